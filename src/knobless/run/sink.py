"""What keeps the rows of a run: its journal (`recording`), or memory (`memory`).

The values of candidates are recalled, or rows are prepared for them; values are recorded when
evaluations end, and kept when the run has taken them. Without `positions`, the search learns from
the values; with `positions`, they confirm that the target is reached or compare the points to
recommend, and it has the `Event.position` of each by its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from knobless.journal.evaluations import Evaluations
from knobless.parallel.evaluation import Outcome

from .candidates import Batch, ToldValues
from .run_state import RunState

Value = float | Exception
Positions = Mapping[int, int]


class Sink(Protocol):
    """Protocol of what keeps the rows of a run."""

    def recall(
        self, candidates: Batch, positions: Positions | None = None
    ) -> dict[int, Value]:
        """Return the values of candidates that need not be evaluated, by their ids."""

    def expect(
        self, candidates: Batch, positions: Positions | None = None
    ) -> None:
        """Prepare rows of candidates whose evaluations begin."""

    def record(self, outcomes: Sequence[Outcome]) -> None:
        """Record evaluations that have ended elsewhere."""

    def record_arrivals(self, outcomes: Sequence[Outcome]) -> None:
        """Record evaluations that have ended elsewhere, whose values are used in this order."""

    def arrival(self) -> tuple[int, Value] | None:
        """Return the next recorded value that is used in the order of arrival, and its candidate.

        What was drawn before it is drawn then. None after the last one.
        """

    def record_here(
        self, id: int, value: Value, started: float, ended: float
    ) -> None:
        """Record an evaluation that has ended in this process, with times by `time.monotonic()`."""

    def record_together(
        self,
        ids: Sequence[int],
        values: Sequence[Value],
        started: float,
        ended: float,
    ) -> None:
        """Record evaluations of one call in this process, as `record_here` does."""

    def keep(
        self,
        run: RunState,
        candidates: Batch,
        values: ToldValues,
        positions: Positions | None = None,
    ) -> None:
        """Count values, in the order of their candidates, as evaluations of the run."""

    def drawn(self) -> None:
        """Record how many candidates were drawn, where no value will show it."""

    def clear(self) -> None:
        """Delete all rows; those of a journal only if every evaluation failed."""

    def evaluations(self, nfev: int) -> Evaluations:
        """Return the evaluations of the run, of which there were `nfev`."""

    def latest(self, ids: Sequence[int]) -> Evaluations:
        """Return the last evaluations of candidates told to the search, in the order of `ids`."""
