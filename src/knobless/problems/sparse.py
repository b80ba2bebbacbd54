"""Graphs and matrices given as lists of entries `i j value`: the files of rudy, Biq Mac and qbsolv.

`quadratic.py` turns them into problems. Lines that begin with c or # are comments.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from knobless.core.types import Array

from .text import MAX_TERMS, MAX_VARIABLES, Lines, TextSource

MAX_DENSE = 5_000  # variables of a QUBO, whose matrix is dense


def read_edges(source: TextSource) -> tuple[NDArray[np.intp], Array, int]:
    """Read `n m` and m edges `i j weight` or `i j`, counted from 1.

    Return edges from 0, weights and n.
    """
    lines = Lines(source)
    n = m = -1
    ends, weights = array("q"), array("d")  # 24 bytes per edge
    for words in _without_comments(lines):
        if n < 0:
            n, m = _sizes(lines, words, MAX_VARIABLES, MAX_TERMS)
            continue
        if len(words) not in (2, 3):
            lines.fail(
                f"expected an edge 'I J WEIGHT', got {' '.join(words)[:60]!r}"
            )
        if len(weights) == m:
            lines.fail(f"expected {m} edges, got one more")
        i, j = (lines.integer("vertex", word, 1, n) for word in words[:2])
        if i == j:
            lines.fail(f"expected two different vertices, got {i} with itself")
        ends.extend((i - 1, j - 1))
        weights.append(
            lines.real("weight", words[2]) if len(words) == 3 else 1.0
        )
    _check_count(lines, n, m, len(weights), "edges")
    return np.array(ends, dtype=np.intp).reshape(-1, 2), np.array(weights), n


def read_matrix(source: TextSource) -> Array:
    """Read a square matrix, or a qbsolv file.

    The matrix is `n m`, and entries counted from 1 that stand for Q_ij and Q_ji.
    """
    lines = Lines(source)
    n = m = base = -1
    count = 0
    matrix = np.empty((0, 0))
    stored = np.empty((0, 0), dtype=np.bool_)
    for words in _without_comments(lines):
        if n < 0:
            if words[0] == "p":
                if words[1:2] != ["qubo"] or len(words) != 6:
                    lines.fail(
                        f"expected 'p qubo 0 N DIAGONAL OFFDIAGONAL', got {' '.join(words)[:60]!r}"
                    )
                n = lines.integer("n", words[3], 1, MAX_DENSE)
                m = sum(
                    lines.integer("number of entries", word, 0, MAX_DENSE**2)
                    for word in words[4:]
                )
                base = 0
            else:
                n, m = _sizes(lines, words, MAX_DENSE, MAX_DENSE**2)
                base = 1
            matrix = np.zeros((n, n))
            stored = np.zeros((n, n), dtype=np.bool_)
            continue
        if len(words) != 3:
            lines.fail(
                f"expected an entry 'I J VALUE', got {' '.join(words)[:60]!r}"
            )
        if count == m:
            lines.fail(f"expected {m} entries, got one more")
        i, j = sorted(
            lines.integer("index", word, base, n - 1 + base) - base
            for word in words[:2]
        )
        if stored[i, j]:
            lines.fail(f"entry {words[0]} {words[1]} is given twice")
        stored[i, j] = True
        matrix[i, j] = lines.real("value", words[2])
        if base == 1:
            matrix[j, i] = matrix[i, j]
        count += 1
    _check_count(lines, n, m, count, "entries")
    return matrix


def _without_comments(lines: Lines) -> Iterator[list[str]]:
    return (words for words in lines if not words[0].startswith(("c", "#")))


def _sizes(
    lines: Lines, words: list[str], max_n: int, max_m: int
) -> tuple[int, int]:
    if len(words) != 2:
        lines.fail(f"expected the sizes 'N M', got {' '.join(words)[:60]!r}")
    return lines.integer("n", words[0], 1, max_n), lines.integer(
        "m", words[1], 0, max_m
    )


def _check_count(lines: Lines, n: int, m: int, count: int, what: str) -> None:
    if n < 0:
        lines.fail("expected 'N M', got the end of the file")
    if count != m:
        lines.fail(f"expected {m} {what}, got {count}")
