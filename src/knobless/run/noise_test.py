"""Whether an objective is noisy: the best point so far is evaluated again at a few moments.

Noise makes lucky points the best, and a lucky point does not repeat. So a test of the best point has the most power
where an error would cost the most. The first difference beyond the rounding of floating-point sums makes a run noisy
for good; each test without a difference lowers the doubt that is left. What is used here are the evaluations of
complete iterations in the order of their candidates, so the decision does not depend on the order of arrival.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from knobless.core.types import Array, Points
from knobless.core.violation import FEASIBLE_LIMIT, is_feasible

FIRST_TEST = 8  # evaluations before the first test
SOONER, LATER = 1.5, 4.0  # growth of the number of evaluations from one test to the next, with doubt and without
SMALL_DOUBT = 1e-3  # doubt below which an objective is taken to be deterministic
JITTER = 1e-6  # of the largest absolute value: differences by which sums of floating-point numbers vary
MOST_TESTS = 12  # after which a space that is exhausted is not tested any more
MOST_POINTS = 16  # that share the best value and are tested in turn


@dataclass(slots=True)
class NoiseTest:
    """The state of the tests of one run.

    `doubt` is the probability that all tests so far had found equal values if the objective were noisy and two
    evaluations of a point agreed as often as two evaluations of the run do.
    """

    doubt: float = 1.0
    due: float = FIRST_TEST  # evaluations at which the next test is due
    tests: int = 0  # made or under way
    turn: int = 0  # tests of the current best value
    fun: float = math.inf  # the best value, and the first points that have it
    points: list[Points] = field(default_factory=list)
    expected: float | None = None  # the recorded value of the point that is being tested

    @property
    def unsure(self) -> bool:
        """Whether there is still doubt that more tests could remove."""
        return self.doubt >= SMALL_DOUBT and self.tests < MOST_TESTS

    def begin(self) -> Points:
        """Return the point to be evaluated again."""
        point = self.points[self.turn % len(self.points)]
        self.tests += 1
        self.turn += 1
        self.expected = self.fun
        return point

    def judge(self, value: float, f: Array, count: int) -> bool:
        """Return whether a second value, NaN if there is none, shows noise; `f` has the last of `count` values."""
        expected, self.expected = self.expected, None
        self.due = SOONER * (count + 1)
        if expected is None or math.isnan(value):
            return False
        # Values are compared with values, violations with violations: one of each is a difference.
        alike = f[np.isfinite(f) & (is_feasible(f) == (expected < FEASIBLE_LIMIT))]
        scale = np.abs(alike).max() if len(alike) else 0.0
        same_kind = (value < FEASIBLE_LIMIT) == (expected < FEASIBLE_LIMIT)
        if value != expected and not (same_kind and abs(value - expected) <= JITTER * scale):
            return True
        n = len(f)
        if n > 1:
            _, counts = np.unique(f, return_counts=True)
            agreeing = float((counts * (counts - 1.0)).sum()) / (n * (n - 1.0))
            self.doubt *= max(agreeing, 1.0 / n)
        if self.doubt < SMALL_DOUBT:
            self.due = LATER * (count + 1)
        return False

    def observe(self, x: Points, f: Array) -> None:
        """Take evaluations into account, in the order of their candidates."""
        lowest = f.item() if len(f) == 1 else np.fmin.reduce(f, initial=math.inf)
        if not lowest <= self.fun or lowest == math.inf:
            return
        if lowest < self.fun:
            self.fun, self.turn, self.points = float(lowest), 0, []
        for code in x[f == lowest]:
            if len(self.points) < MOST_POINTS and not any((code == each).all() for each in self.points):
                self.points.append(code.copy())
