"""The protocol of members: algorithms that take part in a search."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from .algorithm import Algorithm, S
from .archive import Archive
from .rng import Stream
from .types import Array, Points


@runtime_checkable
class Member(Algorithm[S], Protocol[S]):
    """Protocol of algorithms that take part in a search.

    A member has its turns between those of others. It may read their evaluations in the archive of
    the run, which its state then refers to; the search adds the evaluations of an iteration before
    it tells them. A state that has an attribute `ended` that is True gets no further turns of a
    stage.
    """

    def init(
        self,
        theta: Array | None = None,
        x0: Points | None = None,
        archive: Archive | None = None,
    ) -> S:
        """Return the state before the first turn.

        Parameters
        ----------
        theta : array, optional
            Initial parameters of the family; those of `family.initial()` by default.
        x0 : array, optional
            Point to start from.
        archive : Archive, optional
            All evaluations of the run.
        """

    def inject(self, state: S, x: Points, f: float) -> S:
        """Return the state after another member has found a better point.

        Parameters
        ----------
        state
            State of the algorithm.
        x : array of shape (variables,)
            The point; must not be modified.
        f : float
            Its objective value.
        """

    def can_yield(self, state: S) -> bool:
        """Return whether the turn may pass to another member now.

        Parameters
        ----------
        state
            State of the algorithm.

        Returns
        -------
        bool
            False while the algorithm needs the next evaluations itself.
        """

    def data(self, state: S) -> dict[str, Any]:
        """Return a state as plain data, for snapshots.

        Parameters
        ----------
        state
            State of the algorithm.

        Returns
        -------
        dict
            Values that JSON can represent, without the archive.
        """

    def restore(self, state: S, data: Any) -> S:
        """Return the state that `data` described.

        Parameters
        ----------
        state
            The state before the first turn.
        data
            Data from `data`, possibly from an untrusted file.

        Returns
        -------
        state
            The state; ValueError, TypeError or LookupError if `data` is not one.
        """


@runtime_checkable
class SkippingMember(Member[S], Protocol[S]):
    """Protocol of members that can advance the random numbers without computing points."""

    def skip(self, state: S, rng: Stream, size: int, start: int = 0) -> None:
        """Advance the stream as `ask` does: points that are known need not be asked for again.

        Parameters
        ----------
        state
            State of the algorithm.
        rng : Stream
            Source of random numbers.
        size : int
            Number of points.
        start : int
            Index of the first point within the iteration.
        """
