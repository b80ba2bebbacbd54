"""The recommended point of a recorded run, as in its result.

The evaluations at the end of a noisy run that compare the points to recommend are rows of its
journal. They count as long as no candidate was drawn after them: a run that is resumed with a
larger budget compares its points again.
"""

from __future__ import annotations

import numpy as np

from knobless.journal.events import CHECKED, Event
from knobless.run.recommendation import Recommended, recommended_point, winner
from knobless.run.run_state import RunState


class Checks:
    """The last evaluations of a journal that the search does not learn from."""

    def __init__(self, sign: float) -> None:
        self._sign = sign
        self._drawn = -1  # candidates drawn before them
        self._values: dict[bytes, list[float]] = {}  # by packed point

    def take(self, event: Event) -> None:
        """Read the next row of the journal."""
        if event.fate != CHECKED:
            return
        if event.drawn != self._drawn:
            self._drawn = event.drawn
            self._values = {}
        self._values.setdefault(event.code, []).append(event.rank(self._sign))

    def recommended(self, run: RunState) -> Recommended | None:
        """Return the point to use, with its value to be minimized.

        `run` is the run at the end of the journal.
        """
        if run.noisy and run.drawn == self._drawn:
            codes = run.space.family.unpack(b"".join(self._values))
            point = winner(
                run,
                codes,
                [np.array(values) for values in self._values.values()],
            )
            if point is not None:
                return point
        return recommended_point(run)
