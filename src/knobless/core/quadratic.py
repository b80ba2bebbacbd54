"""Quadratic functions of bits: a test, a model and its minimization.

A function of bits is quadratic if all of its third differences are zero: for disjoint sets A, B and
C of bits, with f(A) for the value where the bits of A are flipped,

    f(ABC) − f(AB) − f(AC) − f(BC) + f(A) + f(B) + f(C) − f() = 0.

The sets may be large, so few of these tests show whether it is. If so, the values of a point and of
the points that differ from it in one or two bits determine the function. QUBO, Max-Cut and Ising
problems are of this kind.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from .rng import first_uniforms
from .types import Array, Points

PARTS = 3  # sets of bits in a test
PER_TEST = 7  # points of a test
RESTARTS = 64  # searches for the minimum, all at once
STEPS_PER_BIT = 20  # steps of each
ROUNDING = 1e-10  # of values, relative to the largest of them

Flips = NDArray[np.bool_]


def block_sizes(n: int) -> list[int]:
    """Return the sizes of the sets of bits in each test: a third of all, a ninth, …, 1."""
    sizes = [n // PARTS]
    while sizes[-1] > 1:
        sizes.append(max(sizes[-1] // PARTS, 1))
    return sizes


def tests(n: int, key: int) -> Flips:
    """Return which bits are flipped in the points of all tests.

    Each test has seven rows: those of f(A), f(B), f(C), f(AB), f(AC), f(BC) and f(ABC).
    """
    rows = []
    for size, u in zip(
        sizes := block_sizes(n), first_uniforms(key, len(sizes), n), strict=True
    ):
        # Disjoint random sets A, B and C of this size.
        order = u.argsort(kind="stable")
        sets = [order[i * size : (i + 1) * size] for i in range(PARTS)]
        # f(A), f(B), f(C), then f(AB), f(AC), f(BC), then f(ABC)
        for k in (1, 2, 3):
            for chosen in combinations(sets, k):
                row = np.zeros(n, dtype=bool)
                row[np.concatenate(chosen)] = True
                rows.append(row)
    return np.array(rows)


def is_quadratic(center: float, values: Array) -> bool:
    """Return whether the values of `tests` fit a quadratic function that is not linear.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros(9, dtype=np.int8)
    >>> points = flipped(x, tests(9, key=0))
    >>> is_quadratic(0.0, points.sum(axis=1).astype(float) ** 2)
    True
    >>> is_quadratic(0.0, points.sum(axis=1).astype(float) ** 3)
    False
    """
    values = values.reshape(-1, PER_TEST)
    if not np.isfinite(values).all():
        return False
    a, b, c, ab, ac, bc, abc = values.T
    # Values that differ by less are equal up to rounding.
    close = tolerance(np.append(values, center))
    # Sums of values near the largest float
    with np.errstate(over="ignore", invalid="ignore"):
        # Zero in every test for a quadratic function; see the docstring of the module.
        third = abc - ab - ac - bc + a + b + c - center
        # f(AB) − f(A) − f(B) + f() is zero in every test for a linear function.
        second = np.array([ab - a - b, ac - a - c, bc - b - c]) + center
    return bool(
        (np.abs(third) <= close).all() and (np.abs(second) > close).any()
    )


def tolerance(values: Array) -> float:
    """Return the difference up to which sums of a few values are equal."""
    return ROUNDING * float(np.abs(values).max())


def neighbors(n: int, start: int = 0, size: int | None = None) -> Flips:
    """Return which bits are flipped in the points that differ from a point in one bit, then in two.

    Of these, `size` points from index `start` on; fewer at the end.
    """
    total = n * (n + 1) // 2
    at = np.arange(start, total if size is None else min(start + size, total))
    # n single bits, then n − 1 pairs with the first bit, n − 2 others with the second one, …
    stops = np.arange(n, 0, -1).cumsum()
    # Which block an index falls into: block 0 has the single bits, block i the pairs with bit i −
    # 1.
    part = np.searchsorted(stops, at, side="right")
    second = at - stops[part] + n
    first = np.where(part, part - 1, second)
    rows = np.arange(len(at))
    flips = np.zeros((len(rows), n), dtype=bool)
    # For a single bit, first and second are the same.
    flips[rows, first] = flips[rows, second] = True
    return flips


class Quadratic:
    """A quadratic function of the bits that are flipped.

    Parameters
    ----------
    center : float
        Value without a flip.
    values : array
        Values of `neighbors`.
    """

    def __init__(self, center: float, values: Array) -> None:
        # n + n (n − 1) / 2 values
        self.n = n = (int((8 * len(values) + 1) ** 0.5) - 1) // 2
        self.center = center
        # a_i = f(i) − f()
        self.linear = values[:n] - center
        self.pairs = np.zeros((n, n))
        upper = np.triu_indices(n, 1)
        # b_ij = f(ij) − f() − a_i − a_j
        i, j = upper
        self.pairs[upper] = (
            values[n:] - center - self.linear[i] - self.linear[j]
        )
        self.pairs += self.pairs.T

    def fields(self, flips: Flips) -> tuple[Array, Array]:
        """Return the value at each row of flips, and its change if one more bit is flipped.

        The sums are computed in this order on every machine.
        """
        value = np.full(len(flips), self.center)
        field = np.tile(self.linear, (len(flips), 1))
        for i, chosen in enumerate(flips.T):
            value += np.where(chosen, field[:, i], 0.0)
            # A flipped bit i changes the effect of every other bit j by b_ij.
            field += chosen[:, None] * self.pairs[i]
        return value, field

    def minima(self, key: int) -> Flips:
        """Return flips of low values by tabu searches, lowest first, each once.

        Each step of a search flips the bit with the lowest change in value, also if the value
        increases, but none of those that were flipped in the last steps, unless that leads to the
        lowest value so far. How many steps these are differs from search to search, up to a quarter
        of the bits. The first search begins without a flip.
        """
        n = self.n
        rows = np.arange(RESTARTS)
        u = first_uniforms(key, RESTARTS, n)
        # Random starts; the first search starts at the point itself.
        flips = u < 2**31
        flips[0] = False
        value, field = self.fields(flips)
        lowest = value.copy()
        best = flips.copy()
        # For so many steps a flipped bit is tabu: 1 to n/4, different in each search.
        tenure = 1 + rows * max(n // 4, 1) // RESTARTS
        until = np.zeros((RESTARTS, n), dtype=np.int64)
        for step in range(1, 1 + STEPS_PER_BIT * n):
            # Change in value by the flip of each bit: a flipped bit is flipped back.
            change = np.where(flips, -field, field)
            # Tabu bits are excluded unless they lead below the best value so far (aspiration).
            tabu = (until >= step) & (change >= (lowest - value)[:, None])
            chosen = np.where(tabu, np.inf, change).argmin(axis=1)
            value = value + change[rows, chosen]
            flips[rows, chosen] ^= True
            # Update the effects in O(n) per search instead of computing them again.
            sign = np.where(flips[rows, chosen], 1.0, -1.0)
            field += sign[:, None] * self.pairs[chosen]
            until[rows, chosen] = step + tenure
            better = value < lowest
            lowest[better], best[better] = value[better], flips[better]
        # Lowest first, and each point once.
        order = lowest.argsort(kind="stable")
        _, first = np.unique(best[order], axis=0, return_index=True)
        return best[order[np.sort(first)]]


def flipped(x: Points, flips: Flips) -> Points:
    """Return the point with each row of bits flipped."""
    return np.where(flips, 1 - x, x).astype(x.dtype)
