"""Quadratic costs: QUBO, given by a matrix, and Max-Cut, given by the edges of a graph.

Both end in the same compiled kernel: a cut is a quadratic form of the bits that say on which side a vertex is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knobless._checks import positive_int, real
from knobless.core.types import Array

from .problem import BLOCK, Bits, Flat, Problem, frozen, in_blocks, weigh
from .text import MOST, Lines, Source

MOST_DENSE = 5_000  # variables of a QUBO, whose matrix is dense
Terms = tuple[NDArray[np.intp], NDArray[np.intp], Array]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Qubo(Problem):
    """x' Q x for a square matrix Q, symmetric or not: Σ_i Σ_j Q_ij x_i x_j, diagonal and both triangles.

    `optimum` is for those who know it.
    """

    matrix: Array
    optimum: float | None = None
    n: int = field(init=False)

    def __init__(self, matrix: ArrayLike, optimum: float | None = None) -> None:
        matrix = frozen(np.asarray(matrix, dtype=np.float64))
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
            raise ValueError(f"Qubo: matrix: expected a square matrix, got an array of shape {matrix.shape}")
        if not np.isfinite(matrix).all():
            raise ValueError("Qubo: matrix: expected finite numbers, got NaN or infinity")
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "n", len(matrix))
        object.__setattr__(self, "optimum", None if optimum is None else real("Qubo: optimum", optimum))

    @classmethod
    def read(cls, source: Source, optimum: float | None = None) -> Self:
        """A Biq Mac file, or a qbsolv file (.qubo), which is told by its p line. Both are to be minimised.

        Biq Mac: `n m`, then m lines `i j q` counted from 1, an off-diagonal q standing for Q_ij and for Q_ji,
        so that it counts twice. qbsolv: `p qubo 0 n DIAGONAL OFFDIAGONAL`, then as many lines `i j q` counted from 0,
        each counting once. An entry given twice is an error. Lines that begin with c or # are comments.
        """
        return cls(_read_matrix(Lines(source)), optimum)

    def __repr__(self) -> str:
        return f"Qubo(n={self.n}, {np.count_nonzero(self.matrix)} entries)"

    @cached_property
    def _terms(self) -> Terms:
        upper = np.triu(self.matrix) + np.tril(self.matrix, -1).T
        i, j = np.nonzero(upper)
        return i, j, upper[i, j]

    @cached_property
    def _whole(self) -> bool:
        """Whether entries are whole numbers whose sums are exact, so that a matrix product rounds nothing."""
        return bool((self.matrix == np.rint(self.matrix)).all() and np.abs(self.matrix).sum() < 2.0**53)

    def costs(self, x: Bits) -> Array:
        if self._whole:
            # Few rows at a time: for more, BLAS starts threads, which for a matrix this small cost more than they do.
            return in_blocks(self._products, x, min(self.n**2, BLOCK // 16))
        return in_blocks(self._sums, x, 16 * len(self._terms[0]))

    def _products(self, x: Bits) -> Array:
        rows = x.astype(np.float64)
        return ((rows @ self.matrix) * rows).sum(axis=1)

    def _sums(self, x: Bits) -> Array:
        i, j, q = self._terms
        columns = np.ascontiguousarray(x.T)
        return weigh(q, columns.take(i, axis=0) & columns.take(j, axis=0))

    def flat(self) -> Flat:
        return _quadratic(self.n, *self._terms)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class MaxCut(Problem):
    """Minus the weight of the edges between the vertices whose bit is one and the others: the cut, as a cost.

    Edges are pairs of vertices counted from 0, each of weight 1 unless `weights` are given; parallel edges
    add up. `n` is the number of vertices, by default as many as the edges name. `optimum` is for those who
    know it, and is minus the largest cut.
    """

    edges: NDArray[np.intp]
    weights: Array
    n: int
    optimum: float | None = None

    def __init__(
        self, edges: ArrayLike, weights: ArrayLike | None = None, n: int | None = None, optimum: float | None = None
    ) -> None:
        pairs = np.asarray(edges)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
            raise ValueError(f"MaxCut: edges: expected pairs of integers, got {pairs.dtype} of shape {pairs.shape}")
        if len(pairs) and pairs.min() < 0:
            raise ValueError(f"MaxCut: edges: expected vertices counted from 0, got {pairs.min()}")
        if (pairs[:, 0] == pairs[:, 1]).any():
            loop = pairs[pairs[:, 0] == pairs[:, 1]][0, 0]
            raise ValueError(f"MaxCut: edges: expected two different vertices, got {loop} with itself")
        named = int(pairs.max()) + 1 if len(pairs) else 0
        n = positive_int("MaxCut: n", named if n is None else n)
        if n < named:
            raise ValueError(f"MaxCut: n: expected at least {named}, as many vertices as the edges name, got {n}")
        w = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=np.float64)
        if w.shape != (len(pairs),) or not np.isfinite(w).all():
            raise ValueError(f"MaxCut: weights: expected {len(pairs)} finite numbers, one an edge, got {w}")
        object.__setattr__(self, "edges", frozen(pairs.astype(np.intp)))
        object.__setattr__(self, "weights", frozen(w))
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "optimum", None if optimum is None else real("MaxCut: optimum", optimum))

    @classmethod
    def read(cls, source: Source, optimum: float | None = None) -> Self:
        """A file as rudy writes it, G-set's and Biq Mac's: `n m`, then m lines `i j w`, vertices counted from 1.

        A line `i j` is an edge of weight 1. Lines that begin with c or # are comments.
        """
        lines = Lines(source)
        edges: list[tuple[int, int]] = []
        weights: list[float] = []
        n = m = -1
        for words in lines:
            if _comment(words):
                continue
            if n < 0:
                n, m = _sizes(lines, words, MOST)
                continue
            if len(words) not in (2, 3):
                lines.fail(f"expected an edge 'I J WEIGHT', got {' '.join(words)[:60]!r}")
            if len(edges) == m:
                lines.fail(f"expected {m} edges, got one more")
            i, j = (lines.integer("vertex", word, 1, n) for word in words[:2])
            if i == j:
                lines.fail(f"expected two different vertices, got {i} with itself")
            edges.append((i - 1, j - 1))
            weights.append(lines.real("weight", words[2]) if len(words) == 3 else 1.0)
        if len(edges) != m:
            lines.fail(f"expected {m} edges, got {len(edges)}" if n > 0 else "expected 'N M', got the end of the file")
        return cls(np.array(edges, dtype=np.intp).reshape(-1, 2), weights, n, optimum)

    def __repr__(self) -> str:
        return f"MaxCut(n={self.n}, {len(self.edges)} edges)"

    def costs(self, x: Bits) -> Array:
        return in_blocks(self._cuts, x, 16 * len(self.edges))

    def _cuts(self, x: Bits) -> Array:
        columns = np.ascontiguousarray(x.T)
        return -weigh(self.weights, columns.take(self.edges[:, 0], axis=0) ^ columns.take(self.edges[:, 1], axis=0))

    def flat(self) -> Flat:
        """Edge by edge, as the costs are added up, so that both round alike."""
        return "max_cut", self.edges.astype(np.int64).ravel(), self.weights


def _quadratic(n: int, i: NDArray[np.intp], j: NDArray[np.intp], q: Array) -> Flat:
    """Σ q x_i x_j over i ≤ j in compressed rows: where each row begins (n + 1 numbers), then the columns.

    The reals are the diagonal (n numbers), then the values of the columns.
    """
    off = i != j
    diagonal = np.bincount(i[~off], q[~off], n)
    order = np.lexsort((j[off], i[off]))
    starts = np.concatenate([[0], np.cumsum(np.bincount(i[off], minlength=n))])
    ints = np.concatenate([starts, j[off][order]]).astype(np.int64)
    return "quadratic", ints, np.concatenate([diagonal, q[off][order]])


def _comment(words: list[str]) -> bool:
    return words[0].startswith(("c", "#"))


def _sizes(lines: Lines, words: list[str], most: int) -> tuple[int, int]:
    if len(words) != 2:
        lines.fail(f"expected the sizes 'N M', got {' '.join(words)[:60]!r}")
    return lines.integer("n", words[0], 1, most), lines.integer("m", words[1], 0, MOST)


def _read_matrix(lines: Lines) -> Array:
    n = m = base = -1
    entries: dict[tuple[int, int], float] = {}
    for words in lines:
        if _comment(words):
            continue
        if n < 0:
            if words[0] == "p":
                if words[1:2] != ["qubo"] or len(words) != 6:
                    lines.fail(f"expected 'p qubo 0 N DIAGONAL OFFDIAGONAL', got {' '.join(words)[:60]!r}")
                n = lines.integer("n", words[3], 1, MOST_DENSE)
                m = sum(lines.integer("number of entries", word, 0, MOST) for word in words[4:])
                base = 0
            else:
                n, m = _sizes(lines, words, MOST_DENSE)
                base = 1
            continue
        if len(words) != 3:
            lines.fail(f"expected an entry 'I J VALUE', got {' '.join(words)[:60]!r}")
        if len(entries) == m:
            lines.fail(f"expected {m} entries, got one more")
        i, j = sorted(lines.integer("index", word, base, n - 1 + base) - base for word in words[:2])
        if (i, j) in entries:
            lines.fail(f"entry {words[0]} {words[1]} is given twice")
        entries[i, j] = lines.real("value", words[2])
    if len(entries) != m:
        lines.fail(f"expected {m} entries, got {len(entries)}" if n > 0 else "expected 'N M', got the end of the file")
    matrix = np.zeros((n, n))
    for (i, j), value in entries.items():
        matrix[i, j] = value
        if base == 1:
            matrix[j, i] = value
    return matrix
