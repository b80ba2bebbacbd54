"""Whether an objective is noisy: the best point so far is evaluated again at a few moments.

Noise makes lucky points the best, and a lucky point does not repeat. So a test of the best point
has the most power where an error would cost the most. The first difference beyond the rounding of
floating-point sums makes a run noisy for good; each test without a difference lowers the doubt that
is left. What is used here are the evaluations of complete iterations in the order of their
candidates, so the decision does not depend on the order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from knobless.core.pareto import dominates
from knobless.core.point_values import JITTER
from knobless.core.types import Array, Points
from knobless.core.violation import FEASIBLE_LIMIT, is_feasible

FIRST_TEST = 8  # evaluations before the first test
# Growth of the number of evaluations from one test to the next, with doubt and without
SOONER, LATER = 1.5, 4.0
# Doubt below which an objective is taken to be deterministic
SMALL_DOUBT = 1e-3
MOST_TESTS = 12  # after which a space that is exhausted is not tested any more
MOST_POINTS = 16  # that share the best value and are tested in turn


@dataclass(slots=True)
class NoiseTest:
    """The state of the tests of one run.

    `doubt` is the probability that all tests so far had found equal values if the objective were
    noisy and two evaluations of a point agreed as often as two evaluations of the run do.

    With several objectives, the values of an evaluation are a row; the points that are tested are
    those of the front.
    """

    doubt: float = 1.0
    due: float = FIRST_TEST  # evaluations at which the next test is due
    tests: int = 0  # made or under way
    turn: int = 0  # tests of the current best value
    # The best value, or those of the front, once for each point
    values: list[Array] = field(default_factory=list)
    # The first points that have it
    points: list[Points] = field(default_factory=list)
    # The recorded value of the point that is being tested
    expected: Array | None = None

    @property
    def unsure(self) -> bool:
        """Whether there is still doubt that more tests could remove."""
        return self.doubt >= SMALL_DOUBT and self.tests < MOST_TESTS

    def begin(self) -> Points:
        """Return the point to be evaluated again."""
        tested = self.turn % len(self.points)
        self.tests += 1
        self.turn += 1
        self.expected = self.values[tested]
        return self.points[tested]

    def judge(self, value: Array, f: Array, count: int) -> bool:
        """Return whether a second value, NaN if there is none, shows noise.

        `f` has the last of `count` values.
        """
        expected = self.expected
        self.expected = None
        self.due = SOONER * (count + 1)
        if expected is None or np.isnan(value).any():
            return False
        # Values are compared with values, violations with violations: one of each is a difference.
        feasible = bool(np.all(expected < FEASIBLE_LIMIT))
        alike = np.where(
            np.isfinite(f) & (is_feasible(f) == feasible), np.abs(f), 0.0
        )
        scale = alike.max(axis=0, initial=0.0)
        same_kind = bool(np.all(value < FEASIBLE_LIMIT)) == feasible
        with np.errstate(invalid="ignore", over="ignore"):
            near = (value == expected) | (
                same_kind & (np.abs(value - expected) <= JITTER * scale)
            )
        if not near.all():
            return True
        n = len(f)
        if n > 1:
            _, counts = np.unique(
                np.where(np.isnan(f), np.finfo(float).max, f),
                axis=0,
                return_counts=True,
            )
            agreeing = float((counts * (counts - 1.0)).sum()) / (n * (n - 1.0))
            self.doubt *= max(agreeing, 1.0 / n)
        if self.doubt < SMALL_DOUBT:
            self.due = LATER * (count + 1)
        return False

    def observe(self, x: Points, f: Array) -> None:
        """Take evaluations into account, in the order of their candidates."""
        if not len(f):  # all were cancelled
            return
        rows: Iterable[int] = range(len(f))
        if f.ndim == 1:  # most values are worse than the best one
            lowest = (
                f.item() if len(f) == 1 else np.fmin.reduce(f, initial=math.inf)
            )
            if self.values and lowest > self.values[0]:
                return
            rows = np.flatnonzero(f == lowest).tolist()
        for row in rows:
            self._take(x[row], f[row])

    def _take(self, x: Points, value: Array) -> None:
        """Keep a point unless another one is better, and only those that are not worse."""
        if not np.all(value < math.inf) or any(
            dominates(best, value) for best in self.values
        ):
            return
        kept = [
            i
            for i, best in enumerate(self.values)
            if not dominates(value, best)
        ]
        if len(kept) < len(self.values):
            self.values = [self.values[i] for i in kept]
            self.points = [self.points[i] for i in kept]
        if not kept:
            self.turn = 0
        if len(kept) < MOST_POINTS and not any(
            (x == point).all() for point in self.points
        ):
            self.values.append(value)
            self.points.append(x.copy())
