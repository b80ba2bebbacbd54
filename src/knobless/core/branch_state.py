"""The state of a search of branches, and the points of a combination that were evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .branches import Combination
from .elitism import Elite
from .igo import State
from .linear import LinearState
from .types import Array


class Seen(NamedTuple):
    """The points of a combination that were evaluated.

    Attributes
    ----------
    points : frozenset of bytes
        The different points.
    repeats : int
        Evaluations since the last new point.
    restarts : int
        How often the search of the combination was restarted.
    """

    points: frozenset[bytes] = frozenset()
    repeats: int = 0
    restarts: int = 0

    def add(self, point: bytes) -> Seen:
        """Return this with one more point."""
        if point in self.points:
            return self._replace(repeats=self.repeats + 1)
        return self._replace(points=self.points | {point}, repeats=0)


class BranchState(NamedTuple):
    """State of a search of branches.

    Attributes
    ----------
    loop : State
        State of the loop.
    linear : LinearState or None
        State of the linear search; None if it is not used or the turns have begun.
    theta : array
        Parameters around which the search is: those of the loop at first.
    spent : int
        Number of evaluations.
    n : tuple of int
        Evaluations in the turns of each branch.
    best : tuple of float
        The best value of each branch.
    states : mapping
        State of the algorithm of each combination that had a turn.
    seen : mapping
        The points of each combination that were evaluated, if the objective is deterministic and its points are few.
    turn : tuple of int and tuple, or None
        The branch whose turn it is, with its combination; None before the turns.
    elite : Elite
        The best point.
    """

    loop: State
    linear: LinearState | None
    theta: Array
    spent: int
    n: tuple[int, ...]
    best: tuple[float, ...]
    states: Mapping[Combination, Any]
    seen: Mapping[Combination, Seen]
    turn: tuple[int, Combination] | None
    elite: Elite

    def restarts(self, key: Combination) -> int:
        """Return how often the search of a combination was restarted.

        Parameters
        ----------
        key : tuple of float
            The combination.

        Returns
        -------
        int
            Zero for a combination whose points are not counted.
        """
        return self.seen[key].restarts if key in self.seen else 0

    def copy(self) -> BranchState:
        """Return a copy that does not change with this state."""
        return self._replace(
            loop=self.loop.copy(),
            linear=self.linear and self.linear.copy(),
            theta=self.theta.copy(),
            states={key: state.copy() for key, state in self.states.items()},
            elite=self.elite.copy(),
        )
