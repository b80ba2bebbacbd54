"""Problems of instance files: how their formats state size, value, verdict and answer.

The lines are those that solvers print: c for comments, o for the value, s for the verdict, v for
the point.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from .problem import BitArray, Problem

if TYPE_CHECKING:
    from knobless.fast.gains import Structure


class Verdict(StrEnum):
    """A claim of a solver. It is proved by a cost of 0, or by an evaluation of every point."""

    SATISFIABLE = "SATISFIABLE"
    UNSATISFIABLE = "UNSATISFIABLE"
    OPTIMUM = "OPTIMUM FOUND"
    UNKNOWN = "UNKNOWN"

    @property
    def code(self) -> int:
        """The exit code of a SAT or MaxSAT solver."""
        return {
            "SATISFIABLE": 10,
            "UNSATISFIABLE": 20,
            "OPTIMUM FOUND": 30,
            "UNKNOWN": 0,
        }[self]


class InstanceProblem(Problem):
    """A problem with an instance file format.

    A value is the number of the format, a cost what is minimized.
    """

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name of the problem, such as Max-Cut."""

    @property
    @abstractmethod
    def size(self) -> str:
        """The numbers of variables and terms, in words."""

    @property
    @abstractmethod
    def largest_sum(self) -> float:
        """An upper bound on the magnitude of costs and of partial sums.

        Inf if it exceeds the range of floats.
        """

    @abstractmethod
    def structure(self) -> Structure:
        """Return the terms of the cost, for incremental evaluation, which needs numba."""

    def value_of(self, x: BitArray, cost: float) -> float | None:
        """Return the value of a point, given its cost; None if the point is infeasible."""
        return as_whole(cost)

    def cost_of(self, target: float | None) -> float | None:
        """Return the cost that corresponds to a target value; None for no target."""
        return target

    def verdict(self, value: float | None, exhausted: bool) -> Verdict | None:
        """Return what is proved by the best value found; None if the format has no verdicts."""
        return None

    def value_lines(self, x: BitArray, cost: float) -> Iterator[str]:
        """Yield the lines that state the value of a point."""
        yield f"o {self.value_of(x, cost)}"

    def point_lines(self, x: BitArray) -> Iterator[str]:
        """Yield the lines that state a point."""
        yield "v " + "".join(map(str, x.tolist()))

    def hard_unsatisfied(self, x: BitArray) -> int | None:
        """Return the number of violated hard constraints; None if the format has none."""
        return None


def as_whole(value: float) -> float:
    """Return an integral value as an int, which prints without a fraction."""
    return int(value) if value == math.floor(value) else value
