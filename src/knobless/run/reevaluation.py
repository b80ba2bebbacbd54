"""Evaluations that the search does not learn from: confirmations and comparisons.

They confirm that the target is reached while the objective may be noisy, and compare the points to
recommend. A run that is resumed with a larger budget continues as if they had not been made.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from knobless.core.types import Points

from .candidates import Batch, values_of
from .recommendation import Recommended, finalists, reserved, winner
from .result import Status
from .run_state import RunState
from .sink import Value
from .sources import Evaluator
from .stopping import RunLimits

# The position of a second value, among the points to recommend
CONFIRMATION = -1


class Reevaluations:
    """The evaluations of a run that the search does not learn from."""

    def __init__(
        self,
        run: RunState,
        limits: RunLimits,
        evaluator: Evaluator,
        show: Callable[[int], object],
        log: Callable[[str, Value], object],
    ) -> None:
        self._run = run
        self._limits = limits
        self._evaluator = evaluator
        self._show = show
        self._log = log
        # Candidates drawn at the last of them, and the number of the next there
        self._last = 0, 0
        self.nfev = 0
        self.failures = 0
        # Whether a value that reached the target was not confirmed
        self.refuted = False

    @property
    def confirms(self) -> bool:
        """Whether a value that reaches the target needs a second one."""
        test = self._run.noise_test
        return (
            test is not None
            and test.unsure
            and self._run.nfev + self.nfev < self._limits.budget
        )

    def confirm(self, code: Points) -> bool:
        """Return whether a point reaches the target; under noise by a second value too."""
        if not self.confirms:
            return True
        values = self._evaluate(code, [CONFIRMATION])
        self.refuted = bool(values) and not (
            isinstance(values[0], float) and values[0] <= self._limits.target
        )
        return not self.refuted

    def compare(self, status: Status) -> Recommended | None:
        """Return the best of the points to recommend by further evaluations.

        None if there are too few of these.
        """
        run = self._run
        end = self._evaluator.end
        if not run.noisy or run.best is None or time.monotonic() >= end:
            return None
        nfev = run.nfev + self.nfev
        budget = self._limits.budget
        n = int(
            min(
                reserved(budget if status is Status.BUDGET else nfev),
                budget - nfev,
            )
        )
        codes = finalists(run)[:n]
        if not len(codes):
            return None
        positions = [i % len(codes) for i in range(n)]
        self._evaluator.progress.deadline = end
        values = self._evaluate(codes[positions], positions)
        f = np.array(
            [
                value if isinstance(value, float) else math.nan
                for value in values
            ]
        )
        return winner(
            run, codes, [f[i :: len(codes)] for i in range(len(codes))]
        )

    def _evaluate(self, codes: Points, positions: Sequence[int]) -> list[Value]:
        """Evaluate points without telling the optimizer; return fewer values if the time is up.

        `positions` has for each its index among the points to recommend.
        """
        drawn = self._run.drawn
        sink = self._evaluator.sink
        first = self._last[1] if self._last[0] == drawn else 0
        candidates = Batch(
            self._run.space, range(first, first + len(codes)), codes
        )
        by_id = dict(zip(candidates.ids, positions, strict=True))
        values: list[Value] = []
        try:
            arrived = sink.recall(candidates, by_id).copy()
            recalled = {*arrived}
            for id, value in zip(
                candidates.ids,
                self._evaluator.values(candidates, arrived, math.nan, by_id),
                strict=False,
            ):
                values.append(value)
                if id not in recalled:
                    self._log(
                        "confirmation"
                        if by_id[id] == CONFIRMATION
                        else f"finalist {by_id[id]}",
                        value,
                    )
                self.nfev += 1
                self.failures += isinstance(value, Exception) or math.isnan(
                    value
                )
                self._show(self._run.nfev + self.nfev)
        finally:
            if values:
                sink.keep(
                    self._run,
                    candidates[: len(values)],
                    values_of(values, len(values)),
                    by_id,
                )
        self._last = drawn, first + len(codes)
        return values
