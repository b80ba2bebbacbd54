"""Objective values of infeasible points as single numbers, so that algorithms, which only compare values, rank them.

A feasible point ranks by its value. An infeasible one ranks after all feasible ones, by its violation alone: there is
no weight between the two. Its rank is its violation times 2⁷⁶⁷, which no value of a feasible point reaches.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .types import Array

FEASIBLE_LIMIT = 2.0**512  # values of feasible points are below, those of infeasible ones at or above
PER_VIOLATION = 2.0**767  # the rank of a violation of 1
LEAST_VIOLATION, MOST_VIOLATION = FEASIBLE_LIMIT / PER_VIOLATION, 2.0**255  # violations that differ in rank


class Infeasible(float):
    """The rank of an infeasible point.

    Parameters
    ----------
    value : float
        Objective value, to be minimized.
    violation : float
        How much the point violates the constraints, above 0.

    Attributes
    ----------
    value, violation : float
        As given.
    """

    __slots__ = ("value", "violation")
    value: float
    violation: float

    def __new__(cls, value: float, violation: float) -> Self:
        rank = super().__new__(cls, PER_VIOLATION * min(max(violation, LEAST_VIOLATION), MOST_VIOLATION))
        rank.value, rank.violation = value, violation
        return rank

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.value, self.violation)


def ranked(value: float, violation: float) -> float:
    """Return the rank of a point: its value if it is feasible.

    Parameters
    ----------
    value : float
        Objective value, to be minimized.
    violation : float
        How much the point violates the constraints; 0 or less if it is feasible.

    Returns
    -------
    float
        The value, an `Infeasible`, or NaN if one of the two is NaN: the evaluation failed.
    """
    if violation != violation or value != value:
        return float("nan")
    if violation > 0.0:
        return Infeasible(value, violation)
    largest = np.nextafter(FEASIBLE_LIMIT, 0.0).item()
    return value if abs(value) == float("inf") else min(max(value, -largest), largest)


def negated(rank: float) -> float:
    """Return the rank of a point for the negated objective; its violation is the same."""
    return Infeasible(-rank.value, rank.violation) if isinstance(rank, Infeasible) else -rank


def is_feasible(ranks: Array) -> NDArray[np.bool_]:
    """Return which ranks are values of feasible points; NaN is not."""
    feasible: NDArray[np.bool_] = ranks < FEASIBLE_LIMIT
    return feasible
