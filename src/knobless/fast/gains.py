"""Incremental evaluation: the change of a cost by each flip of a bit.

After a flip, only the terms that share the bit are updated.

A `Structure` is a cost as a sum of terms, in arrays. `reset` evaluates a point completely, `flip`
updates the state in time proportional to the terms of the bit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import ArrayLike, NDArray

from knobless.core.types import Array

from .shared import BITS, INTS, REALS


class Structure(NamedTuple):
    """A cost over bits as a sum of terms.

    A term is a product of at most two bits, or a weighted clause that is not satisfied.

    Attributes
    ----------
    starts : array
        The first entry of each bit, and the number of entries.
    entries : array
        For each product of a bit with another one, that other bit. For each clause that contains
        the bit, twice the number of the clause, plus one if the bit is negated.
    weights : array
        The weight of each entry, for products; of each clause otherwise.
    linear : array
        The weight of each bit, for products; empty otherwise.
    clause_starts, members : array
        The first member of each clause, and the number of members; the bits of the clauses. Both
        empty for products.
    """

    starts: NDArray[np.int64]
    entries: NDArray[np.int64]
    weights: Array
    linear: Array
    clause_starts: NDArray[np.int64]
    members: NDArray[np.int64]

    @classmethod
    def of_products(
        cls, linear: ArrayLike, i: ArrayLike, j: ArrayLike, weights: ArrayLike
    ) -> Structure:
        """Return the structure of Σ_k linear_k x_k + Σ_t weights_t x_{i_t} x_{j_t}."""
        linear = np.asarray(linear, dtype=np.float64)
        weights = np.asarray(weights, dtype=np.float64)
        n = len(linear)
        rounded = exact(np.concatenate([linear, weights]))
        rows = np.concatenate([i, j]).astype(np.int64)
        columns = np.concatenate([j, i]).astype(np.int64)
        order = np.lexsort((columns, rows))
        values = np.tile(rounded[n:], 2)[order]
        none = np.empty(0, dtype=np.int64)
        return cls(
            _starts(rows, n),
            columns[order],
            values,
            rounded[:n].copy(),
            none,
            none,
        )

    @classmethod
    def of_clauses(
        cls, n: int, clauses: list[list[int]], weights: ArrayLike
    ) -> Structure:
        """Return the structure of the weight of the clauses that are not satisfied."""
        literals = np.array(
            [literal for clause in clauses for literal in clause],
            dtype=np.int64,
        )
        lengths = np.array([len(clause) for clause in clauses], dtype=np.int64)
        members = np.abs(literals) - 1
        order = np.argsort(members, kind="stable")
        entries = (
            2 * np.repeat(np.arange(len(clauses)), lengths) + (literals < 0)
        )[order].astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(
            _starts(members, n),
            entries,
            exact(np.asarray(weights, dtype=np.float64)),
            np.empty(0),
            starts,
            members,
        )


class GainState(NamedTuple):
    """A point, and the change of the cost by each flip.

    Attributes
    ----------
    x : array
        The point.
    gains : array
        Change of the cost if a bit is flipped; a negative one is an improvement.
    satisfied : array
        Number of true literals of each clause.
    critical : array
        Exclusive or of the bits of these literals: the bit itself if there is one.
    """

    x: NDArray[np.int8]
    gains: Array
    satisfied: NDArray[np.int64]
    critical: NDArray[np.int64]

    @classmethod
    def of(cls, structure: Structure) -> GainState:
        """Return a state for a structure; `reset` must follow."""
        n = len(structure.starts) - 1
        m = max(len(structure.clause_starts) - 1, 0)
        return cls(
            np.zeros(n, dtype=np.int8),
            np.zeros(n),
            *np.zeros((2, m), dtype=np.int64),
        )


STRUCTURE = types.NamedTuple((INTS, INTS, REALS, REALS, INTS, INTS), Structure)
GAIN_STATE = types.NamedTuple((BITS, REALS, INTS, INTS), GainState)


def exact(weights: Array) -> Array:
    """Round weights to multiples of a power of two such that all their sums are exact.

    Notes
    -----
    Without rounding, the sum of the changes along a long path would differ from the cost of its
    end, and returning to a point could look like an improvement.
    """
    total = float(np.abs(weights).sum())
    # Two bits less than a float has, for halves and changes of sign; at least the smallest float.
    unit = math.ldexp(1.0, max(math.frexp(total)[1] - 51, -1074))
    return np.rint(weights / unit) * unit


def _starts(rows: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return where the entries of each row begin if they are sorted by row, and their number."""
    return np.concatenate(
        [[0], np.cumsum(np.bincount(rows, minlength=n))]
    ).astype(np.int64)


@njit(error_model="numpy")
def reset(structure, state):
    """Compute the gains at x; return the cost."""
    starts, entries, weights, linear, clause_starts, members = structure
    x, gains, satisfied, critical = state
    cost = 0.0
    if linear.size:
        for i in range(x.size):
            total = linear[i]
            half = linear[i]
            for e in range(starts[i], starts[i + 1]):
                if x[entries[e]]:
                    total += weights[e]
                    # The other half is counted at the other bit
                    half += 0.5 * weights[e]
            gains[i] = -total if x[i] else total
            cost += half * x[i]
        return cost
    gains[:] = 0.0
    satisfied[:] = 0
    critical[:] = 0
    for i in range(x.size):
        for e in range(starts[i], starts[i + 1]):
            if (entries[e] & 1) != x[i]:
                satisfied[entries[e] >> 1] += 1
                critical[entries[e] >> 1] ^= i
    for c in range(satisfied.size):
        if satisfied[c] == 0:
            cost += weights[c]
            for m in range(clause_starts[c], clause_starts[c + 1]):
                gains[members[m]] -= weights[c]
        elif satisfied[c] == 1:
            gains[critical[c]] += weights[c]
    return cost


@njit(error_model="numpy")
def flip(structure, state, i):
    """Flip bit i and update the gains; return the change of the cost."""
    starts, entries, weights, linear, clause_starts, members = structure
    x, gains, satisfied, critical = state
    change = gains[i]
    x[i] ^= 1
    if linear.size:
        for e in range(starts[i], starts[i + 1]):
            j = entries[e]
            gains[j] += weights[e] if x[i] != x[j] else -weights[e]
        gains[i] = -change
        return change
    for e in range(starts[i], starts[i + 1]):
        c = entries[e] >> 1
        critical[c] ^= i
        if (entries[e] & 1) != x[i]:  # the literal is true now
            satisfied[c] += 1
            if satisfied[c] == 1:
                for m in range(clause_starts[c], clause_starts[c + 1]):
                    gains[members[m]] += weights[c]
                gains[i] += weights[c]
            elif satisfied[c] == 2:
                gains[critical[c] ^ i] -= weights[c]
        else:
            satisfied[c] -= 1
            if satisfied[c] == 0:
                for m in range(clause_starts[c], clause_starts[c + 1]):
                    gains[members[m]] -= weights[c]
                gains[i] -= weights[c]
            elif satisfied[c] == 1:
                gains[critical[c]] += weights[c]
    return change
