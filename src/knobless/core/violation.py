"""Violations as numbers: infeasible points get values that rank after all feasible ones.

A feasible point ranks by its value. An infeasible one ranks after all feasible ones, by its
violation alone: there is no weight between the two. Its rank is its violation times 2⁷⁶⁷, which no
value of a feasible point reaches.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .types import Array, Mask

# Values of feasible points are below, those of infeasible ones at or above
FEASIBLE_LIMIT = 2.0**512
PER_VIOLATION = 2.0**767  # the rank of a violation of 1
# Violations that differ in rank
LEAST_VIOLATION = FEASIBLE_LIMIT / PER_VIOLATION
MOST_VIOLATION = 2.0**255


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
        # rank = 2⁷⁶⁷ · violation, with the violation in the range that ranks can represent
        rank = super().__new__(
            cls,
            PER_VIOLATION
            * min(max(violation, LEAST_VIOLATION), MOST_VIOLATION),
        )
        rank.value = value
        rank.violation = violation
        return rank

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.value, self.violation)


def ranked(value: float, violation: float) -> float:
    """Return the rank of a point.

    It is the value if the point is feasible, an `Infeasible` if not, and NaN if the evaluation
    failed.
    """
    if violation != violation or value != value:
        return float("nan")
    if violation > 0.0:
        return Infeasible(value, violation)
    if FEASIBLE_LIMIT <= abs(value) < float("inf"):
        raise ValueError(
            f"value: expected a magnitude below 2**512 = 1.34e154 beside a violation, got {value!r}"
        )
    return value


def negated(rank: float) -> float:
    """Return the rank of a point for the negated objective; its violation is the same."""
    if isinstance(rank, Infeasible):
        return Infeasible(-rank.value, rank.violation)
    return -rank


def is_feasible(ranks: Array) -> Mask:
    """Return which ranks are values of feasible points; NaN is not."""
    feasible: Mask = ranks < FEASIBLE_LIMIT
    return feasible


def is_infeasible(ranks: Array) -> Mask:
    """Return which ranks are those of infeasible points.

    NaN and inf, of failed evaluations, are not.
    """
    infeasible: Mask = (ranks >= FEASIBLE_LIMIT) & (ranks < np.inf)
    return infeasible
