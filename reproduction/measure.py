"""Summaries of trials of which some were cut off at the cap: those count as slower than every other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


def quantile(values: Iterable[float], q: float) -> float:
    """Return the q-quantile, linear between order statistics; infinite if an infinite value has a share in it."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low, share = math.floor(place), place - math.floor(place)
    if share < 1e-12:
        return ordered[low]
    return ordered[low] + share * (ordered[low + 1] - ordered[low]) if ordered[low + 1] < math.inf else math.inf


@dataclass(frozen=True)
class Sample:
    """Calls to the optimum in every trial; infinite where the trial was cut off."""

    calls: tuple[float, ...]

    @property
    def censored(self) -> int:
        return sum(math.isinf(c) for c in self.calls)

    @property
    def solved(self) -> int:
        return len(self.calls) - self.censored

    @property
    def median(self) -> float:
        return quantile(self.calls, 0.5)

    @property
    def quartiles(self) -> tuple[float, float]:
        return quantile(self.calls, 0.25), quantile(self.calls, 0.75)

    @property
    def spread(self) -> float:
        """Upper over lower quartile."""
        low, high = self.quartiles
        return high / low if high < math.inf else math.inf


class Slope(NamedTuple):
    """An exponent fitted to calls ~ n^slope, with its standard error."""

    slope: float
    error: float

    def __str__(self) -> str:
        return f"{self.slope:.2f} ± {self.error:.2f}"


def slope(samples: Sequence[tuple[int, Sample]]) -> Slope | None:
    """Least squares of ln calls on ln n, over the sizes at which every trial was solved; None below two of them."""
    points = [(n, c) for n, sample in samples if not sample.censored for c in sample.calls]
    x, y = np.log(np.array(points, dtype=float).reshape(-1, 2)).T
    if len(set(x)) < 2:
        return None
    centred = x - x.mean()
    fitted = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - fitted * centred
    freedom = max(len(x) - 2, 1)
    return Slope(fitted, math.sqrt(float(rest @ rest) / freedom / float(centred @ centred)))


def ratio(a: float, b: float) -> float:
    """a/b for medians that may be infinite; NaN if both are."""
    return math.nan if math.isinf(a) and math.isinf(b) else a / b


def times(value: float) -> str:
    """Return a ratio in words; infinite means that only the other one reached it."""
    if math.isnan(value):
        return "neither"
    return {math.inf: "∞", 0.0: "0"}.get(value, f"{value:.3g}")


def listed_by_n(values: Iterable[tuple[int, float]]) -> str:
    """`1.2 (n=10), 1.5 (n=30)`."""
    return ", ".join(f"{times(value)} (n={n})" for n, value in values) or "nothing"
