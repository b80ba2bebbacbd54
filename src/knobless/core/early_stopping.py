"""When an evaluation that reports its value step by step is hopeless: a rule without parameters.

Steps are epochs, folds, instances or repetitions; the last value is the value of the evaluation.
Complete evaluations show what those that end well look like on their way: at each step, the value
is regressed on the last value, and what an evaluation that ends as well as the best one would
exceed with negligible probability is the limit of that step. A worker needs nothing but these
limits, which travel with the candidate. So a new evaluation is stopped only where it is worse than
good ones were at the same step: if the order at a step does not predict the order at the end,
because of noise or of curves that cross, the limits are so far away that nothing is stopped.

The probability is 2 % for all steps of an evaluation together. It is divided by the number of
independent tests that they are, which the correlation of the residuals of successive steps shows:
many for noise, about one for smooth curves. A limit is at least the value of the best evaluation at
that step, down to which the relation may not be linear. Evaluations crowd near the best one as a
search proceeds, and resemble each other there, so the regression takes those that are farthest
apart in their last value. Every candidate whose number is a square runs on, which keeps the table
calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Self

import numpy as np

from .several import Several
from .types import Array
from .violation import Infeasible, negated

LEAST = 4  # complete evaluations before anything is stopped
# With which an evaluation as good as the best one is stopped at any of its steps
PROBABILITY = 0.02
ROUNDING = 1e-12  # relative differences that are none
# Complete evaluations that are kept: the best ones and the last ones
MOST = 512


class Curve(float):
    """The value of an evaluation with steps: that of the last step, or NaN if it was stopped.

    Parameters
    ----------
    steps : sequence of float
        The values so far as they rank, at least one: numbers, or the values of several objectives
        or with a violation.
    stopped : bool
        Whether the evaluation was stopped after these steps.

    Attributes
    ----------
    steps : tuple of float
        As given.
    stopped : bool
        As given.
    """

    __slots__ = ("steps", "stopped")
    steps: tuple[float, ...]
    stopped: bool

    def __new__(cls, steps: Sequence[float], stopped: bool = False) -> Self:
        curve = super().__new__(cls, math.nan if stopped else steps[-1])
        curve.steps = tuple(steps)
        curve.stopped = stopped
        return curve

    def __neg__(self) -> Curve:
        return Curve(list(map(negated, self.steps)), self.stopped)

    @property
    def last(self) -> float:
        """The value of the evaluation as it ranks; NaN if it was stopped."""
        return math.nan if self.stopped else self.steps[-1]

    @property
    def values(self) -> list[float]:
        """The values of the steps without violations, which a journal does not have."""
        return [
            rank.value if isinstance(rank, Infeasible) else rank
            for rank in self.steps
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.steps, self.stopped)


class Curves:
    """The steps of the complete evaluations of a run, to be minimized.

    Attributes
    ----------
    complete : list of array
        The values of each evaluation at its steps, in order; the last one is finite.
    """

    def __init__(self) -> None:
        self.complete: list[Array] = []
        self._regression: Regression | None = None

    def add(self, curve: Curve) -> None:
        """Add a complete evaluation that is feasible.

        One that failed, or has a single step, is left out.
        """
        if (
            math.isfinite(curve)
            and len(curve.steps) > 1
            and is_plain(curve.last)
        ):
            self.complete.append(np.array(curve.values))
            self._regression = None
            if len(self.complete) > MOST:
                del self.complete[
                    max(range(MOST // 2), key=lambda i: self.complete[i][-1])
                ]

    def restore(self, complete: Sequence[Array]) -> None:
        """Replace the evaluations by those of a saved run.

        ValueError if they cannot have been added.
        """
        if len(complete) > MOST or not all(
            len(values) > 1 and math.isfinite(values[-1]) for values in complete
        ):
            raise ValueError(
                "curves: expected the steps of complete evaluations"
            )
        self.complete = list(complete)
        self._regression = None

    def limits_of(self, id: int) -> tuple[float, ...]:
        """Return the limits for a candidate; none if it is one that always runs on."""
        return () if math.isqrt(id) ** 2 == id else self.limits

    @property
    def regression(self) -> Regression | None:
        """The regression of complete evaluations; None if they are too few, or all equal."""
        if self._regression is None and len(self.complete) >= LEAST:
            self._regression = Regression(self.complete)
        if self._regression is not None and self._regression.scale > 0.0:
            return self._regression
        return None

    @property
    def limits(self) -> tuple[float, ...]:
        """For each step the value beyond which going on is hopeless.

        Inf if nothing is, none if nothing is known.
        """
        if self.regression is None:
            return ()
        return tuple(self.regression.limits.tolist())

    def estimate(self, curve: Curve, best: float) -> tuple[float, float]:
        """Return the estimated last value of an evaluation that was stopped, and its standard
        error.

        The value is above `best`, and infinite if the last step is not finite.
        """
        value = curve.steps[-1]
        error = 0.0
        if not math.isfinite(value):
            return math.inf, 0.0
        if self.regression is not None:
            value = self.regression.estimate(len(curve.steps) - 1, value)
        return value if best == math.inf else max(
            value, float(np.nextafter(best, math.inf))
        ), error


class Regression:
    """The regression of the values at each step on the last values, and back.

    Values are compared on a scale that is linear up to the best one and logarithmic beyond, in
    units of the distance between the best and the median one: diverging evaluations do not matter,
    and errors grow with the distance.
    """

    def __init__(self, complete: Sequence[Array]) -> None:
        last = np.array([values[-1] for values in complete])
        self.best = float(last.min())
        distances = (
            float(np.median(last)) - self.best,
            float(last.max()) - self.best,
        )
        rounding = ROUNDING * abs(self.best)
        self.scale = next(
            (distance for distance in distances if distance > rounding), 0.0
        )
        if not 0.0 < self.scale < math.inf:
            self.scale = 0.0
            return
        order = last.argsort(kind="stable")[
            : max(_enough(len(last)), -(-len(last) // 2))
        ]
        order = order[
            farthest_apart(self._scaled(last[order]), _enough(len(last)))
        ]
        curves = [complete[i] for i in order.tolist()]
        # The last one of the longest is no longer of interest
        steps = max(map(len, curves)) - 1
        values = np.full((len(curves), steps), math.nan)
        # Not the last step yet
        running = np.zeros((len(curves), steps), dtype=bool)
        for row, curve in enumerate(curves):
            n = len(curve) - 1
            values[row, :n], running[row, :n] = curve[:-1], True
        self.y = self._scaled(last[order])
        # a good one that is not finite at a step: no limit there
        finite = (np.isfinite(values) | ~running).all(0)
        self.running = running & np.isfinite(values)
        self.z = np.where(
            self.running,
            self._scaled(np.where(self.running, values, self.best)),
            0.0,
        )
        self.best_steps = np.where(self.running[0], values[0], -math.inf)
        self.n = self.running.sum(0)
        self.sound = finite & (self.n >= LEAST)
        self.limits = self._limits()

    def _scaled(self, values: Array) -> Array:
        distance = (values - self.best) / self.scale
        return np.where(
            distance > 0.0, np.log1p(np.maximum(distance, 0.0)), distance
        )

    def _unscaled(self, z: Array) -> Array:
        distance = np.where(z > 0.0, np.expm1(np.minimum(z, 600.0)), z)
        return distance * self.scale + self.best

    def _limits(self) -> Array:
        """Return the limit of each step.

        It is a prediction bound of the regression where the last value is the best one.
        """
        n = np.maximum(self.n, 1)
        y_mean = self.running.T @ self.y / n
        z_mean = self.z.sum(0) / n
        y = np.where(self.running, self.y[:, None] - y_mean, 0.0)
        z = np.where(self.running, self.z - z_mean, 0.0)
        yy = (y * y).sum(0)
        sound = self.sound & (yy > 0.0)
        yy = np.where(sound, yy, 1.0)
        slope = np.maximum((y * z).sum(0) / yy, 0.0)
        residuals = z - slope * y
        squares = (residuals * residuals).sum(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = (residuals[:, 1:] * residuals[:, :-1]).sum(
                0
            ) / np.sqrt(squares[1:] * squares[:-1])
        correlation = np.clip(np.nan_to_num(correlation), 0.0, 1.0)
        tests = 1.0 + float((1.0 - correlation**2).sum())
        freedom = np.maximum(self.n - 2, 1)
        quantiles = {
            dof: student_quantile(PROBABILITY / tests, dof)
            for dof in {*freedom.tolist()}
        }
        width = np.array([quantiles[dof] for dof in freedom.tolist()])
        error = np.sqrt(squares / freedom * (1.0 + 1.0 / n + y_mean**2 / yy))
        limits = self._unscaled(z_mean - slope * y_mean + width * error)
        return np.where(sound, np.maximum(limits, self.best_steps), math.inf)

    def estimate(self, step: int, value: float) -> float:
        """Return the expected last value of an evaluation with a value at a step, by the regression
        in this direction.

        It is not beyond the worst one that is known and that value itself.
        """
        z = float(self._scaled(np.array(value)))
        rows = (
            self.running[:, min(step, len(self.n) - 1)]
            if len(self.n)
            else np.zeros(len(self.y), dtype=bool)
        )
        if rows.sum() < LEAST:
            return value
        x = self.z[rows, min(step, len(self.n) - 1)]
        y = self.y[rows]
        distances = x - x.mean()
        square = float(distances @ distances)
        slope = (
            max(float(distances @ (y - y.mean())) / square, 0.0)
            if square > 0.0
            else 0.0
        )
        expected = y.mean() + slope * (z - x.mean())
        return float(
            self._unscaled(
                np.array(min(max(expected, 0.0), max(float(y.max()), z)))
            )
        )


def _enough(n: int) -> int:
    """Return the number of evaluations for a regression, of n that are complete."""
    return min(n, max(16, math.ceil(4.0 * math.sqrt(n))))


def farthest_apart(values: Array, count: int) -> list[int]:
    """Return the positions of some sorted values that are far apart."""
    kept = list(range(len(values)))
    while len(kept) > max(count, 2):
        left = values[kept]
        del kept[1 + int((left[2:] - left[:-2]).argmin())]
    return kept


def is_plain(rank: float) -> bool:
    """Return whether a value is a number, without a violation or further objectives."""
    return not isinstance(rank, (Several, Infeasible))


def is_hopeless(value: float, step: int, limits: Sequence[float]) -> bool:
    """Return whether an evaluation with this value after a step is to be stopped."""
    return (
        step < len(limits)
        and limits[step] < math.inf
        and is_plain(value)
        and not value <= limits[step]
    )


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """Return what Student's t exceeds with a probability below one half, by bisection."""
    low = 0.0
    high = math.pi / 2.0
    for _ in range(60):
        angle = 0.5 * (low + high)
        low, high = (
            (angle, high)
            if _student_tail(angle, freedom) > probability
            else (low, angle)
        )
    return math.sqrt(freedom) * math.tan(low)


def _student_tail(angle: float, freedom: int) -> float:
    """Return the tail of Student's t at √freedom tan(angle) (Abramowitz and Stegun, 26.7.3)."""
    sine = math.sin(angle)
    cosine = math.cos(angle)
    total = 0.0
    term = cosine if freedom % 2 else 1.0
    for k in range(2 + freedom % 2, freedom + 1, 2):
        total = total + term
        term = term * cosine * cosine * (k - 1) / k
    inside = (
        (2.0 / math.pi) * (angle + sine * total)
        if freedom % 2
        else sine * total
    )
    return 0.5 * (1.0 - inside)
