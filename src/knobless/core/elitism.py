"""Who survives: a point that takes part in the next iteration without being drawn or evaluated again.

A survivors' rule looks at what an iteration brought and says whom to keep. In the next iteration the loop of `igo.py`
ranks that point among the new samples and lets it pull θ like them. Where equal points have equal values, a good point
that was once drawn is then not forgotten at once, and a climb that is one lucky point wide is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from .types import Array, Points


class Elite(NamedTuple):
    """A point and its value, kept from earlier iterations."""

    x: Points
    f: float

    def copy(self) -> Elite:
        return Elite(self.x.copy(), self.f)


class Elitism(Protocol):
    """Whom to keep after an iteration with the points x and the values f, when `kept` was kept before."""

    def __call__(self, kept: Elite | None, x: Points, f: Array) -> Elite | None: ...


@dataclass(frozen=True)
class NoElitism:
    """The paper's: all that an iteration leaves behind is θ."""

    def __call__(self, kept: Elite | None, x: Points, f: Array) -> Elite | None:
        return None


NO_ELITISM = NoElitism()


@dataclass(frozen=True)
class LastBest:
    """The best point of the last iteration, the first of equals: it lives for one iteration only.

    So θ is held where it is good without being tied to one point: what is kept moves with the samples.
    """

    def __call__(self, kept: Elite | None, x: Points, f: Array) -> Elite | None:
        return _best(x, f)


@dataclass(frozen=True)
class BestSoFar:
    """The best point of all, the last of equals, which crosses plateaus: greedy, fastest where one path leads up."""

    def __call__(self, kept: Elite | None, x: Points, f: Array) -> Elite | None:
        best = _best(x, f)
        return best if kept is None or (best is not None and best.f <= kept.f) else kept


def _best(x: Points, f: Array) -> Elite | None:
    """None where every evaluation failed; NaN is a failure."""
    i = int(f.argmin())
    if f[i] != f[i]:
        i = int(np.where(f == f, f, np.inf).argmin())
    return Elite(x[i].copy(), float(f[i])) if f[i] < np.inf else None
