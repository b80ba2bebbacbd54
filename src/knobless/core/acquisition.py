"""Candidates of Bayesian optimization, and the score that chooses among them.

Candidates have numbers at the centers of cells and values of all variables, whether active or not,
so that a variable that becomes active has a random value. Where there are constraints, candidates
that violate them are left out or repaired, and climbs keep to feasible points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .archive import Feasible
from .conditional import Conditional
from .families import Discrete, Family
from .kernel import Encoding
from .subset import resized
from .types import Array, Mask, Points

# Candidates: random ones, and those near each of so many best points
UNIFORM, NEAR, BEST = 200, 40, 6
# Candidates that are checked for feasibility, and infeasible ones that are repaired
CHECKED, REPAIRED = 64, 8
# Climbs, their rounds, and points of each climb and round
CLIMBS, ROUNDS, TRIED = 8, 10, 16
# Of a number in points near the best ones, as powers of 10
LEAST_STEP, MOST_STEP = -2.5, -0.5
FIRST_STEP = 0.15  # of a number in a climb


Score = Callable[[Points], Array]


class Turn(NamedTuple):
    """A branch to which an evaluation belongs: the code of a column, and its best value."""

    column: int
    code: float
    best: float


@dataclass(frozen=True)
class Prior:
    """Random points as under given parameters of a family.

    Parameters
    ----------
    encoding : Encoding
        Coordinates of the points.
    theta : array
        The parameters.
    """

    encoding: Encoding
    theta: Array

    @cached_property
    def _marginals(self) -> tuple[Array, Array, Array]:
        """Mean and width of the numbers, and cumulative probabilities of the options."""
        family = self.encoding.family
        mean, width = np.zeros((2, family.variables))
        cumulative = np.ones(
            (family.variables, max(int(family.options.max()) - 1, 1))
        )
        for i in range(family.variables):
            marginal = family.marginal(self.theta, i)
            if isinstance(marginal, Discrete):
                cumulative[i, : len(marginal.p) - 1] = marginal.p[:-1].cumsum()
            else:  # the uniform distribution with this mean and variance
                mean[i] = marginal.mean
                width[i] = math.sqrt(12.0) * marginal.sigma
        return mean, width, cumulative

    def points(self, u: Array, g: np.random.Generator) -> Points:
        """Return points for uniform numbers, one per variable."""
        family = self.encoding.family
        mean, width, cumulative = self._marginals
        # Inverse transform: option k where u falls between the cumulated probabilities.
        chosen = (u[:, :, None] >= cumulative).sum(axis=2)
        points = np.where(
            family.options > 0, chosen, reflected(mean + width * (u - 0.5))
        ).astype(family.dtype)
        return self.encoding.centered(self.sized(points, g))

    def center(self, point: Points) -> Points:
        """Return a point with the means of numbers and the most probable options.

        A choice whose options are equally probable keeps the option of `point`.
        """
        family = self.encoding.family
        mean, _, cumulative = self._marginals
        point = np.where(family.options > 0, point, mean).astype(family.dtype)
        for i in np.flatnonzero(family.options > 0).tolist():
            # Probability of each option.
            p = np.diff(
                cumulative[i, : family.options[i] - 1], prepend=0.0, append=1.0
            )
            if np.ptp(p) > 1e-9:
                point[i] = p.argmax()
        return point

    def sized(
        self, points: Points, g: np.random.Generator, kept: Mask | None = None
    ) -> Points:
        """Return points with subsets of allowed sizes.

        Bits are changed at random, if possible not in columns that are kept.
        """
        bounds = self.encoding.family.size_bounds
        if not bounds:
            return points
        cost = g.random(points.shape)
        return resized(points, bounds, cost if kept is None else cost + kept)


class Candidates:
    """Points of which the one with the largest score is chosen.

    The score is, for example, the expected improvement.

    Parameters
    ----------
    prior : Prior
        Distribution of random points.
    score : callable
        Return the scores of points with centered numbers.
    best : array
        Points near which others are tried.
    free : array of bool
        Which variables are not fixed.
    turn : Turn, optional
        The branch that all points are in.
    feasible : Feasible, optional
        The constraints.
    g : numpy.random.Generator
        Source of random numbers.
    """

    def __init__(
        self,
        prior: Prior,
        score: Score,
        best: Points,
        free: Mask,
        turn: Turn | None,
        feasible: Feasible | None,
        g: np.random.Generator,
    ) -> None:
        family = prior.encoding.family
        self.prior = prior
        self.score = score
        self.best = best
        self.free = free
        self.turn = turn
        self.feasible = feasible
        self.g = g
        self.encoding = prior.encoding
        self.family = family
        self.options = family.options
        # The change of a number is at least this: one cell, about, on a log scale.
        self.least = np.where(
            (self.options == 0) & (family.counts > 0),
            1.0 / np.maximum(family.counts, 1),
            0.0,
        )

    def best_first(self, climbs: bool) -> Points:
        """Return the candidates, those of large score first."""
        g = self.g
        d = self.family.variables
        m = NEAR * len(self.best)
        # Global candidates: from the prior.
        random = self._restricted(self.prior.points(g.random((UNIFORM, d)), g))
        # Inactive variables of the best points get random values, which count once they are active.
        full = np.where(
            self.encoding.active(self.best), self.best, random[: len(self.best)]
        )
        # Local candidates: normal steps of all scales, and 0, 1, 2 or half of the variables
        # changed.
        steps = 10.0 ** g.uniform(LEAST_STEP, MOST_STEP, m)
        rates = np.array([0.0, 1.0, 2.0, 0.5 * d])[g.integers(4, size=m)] / d
        points = np.concatenate(
            [random, self._near(np.repeat(full, NEAR, axis=0), steps, rates)]
        )
        # Constraints are checked for the points of large score only.
        points, scores = self._sorted(points, self.score(points))
        if self.feasible is not None:
            points = self._feasible_of(points[:CHECKED], self.feasible)
            points, scores = self._sorted(points, self.score(points))
        if climbs:
            climbed, reached = self._climbed(points[:CLIMBS], scores[:CLIMBS])
            points, scores = self._sorted(
                np.concatenate([climbed, points]),
                np.concatenate([reached, scores]),
            )
        return canonical(self.family, points)

    @staticmethod
    def _sorted(points: Points, scores: Array) -> tuple[Points, Array]:
        order = (-scores).argsort(kind="stable")
        return points[order], scores[order]

    def _feasible_of(self, points: Points, feasible: Feasible) -> Points:
        """Return the feasible ones of some points, and the first of the others after a repair."""
        kept = feasible.are_feasible(canonical(self.family, points))
        to_repair = canonical(self.family, points[~kept][:REPAIRED])
        repaired = feasible.repaired(to_repair, int(self.g.integers(2**63)))
        return np.concatenate([points[kept], self.encoding.centered(repaired)])

    def _climbed(self, at: Points, scores: Array) -> tuple[Points, Array]:
        """Return where climbs from some points arrive, with steps of numbers that adapt."""
        k = len(at)
        step = np.full(k, FIRST_STEP)
        rows = np.arange(k)
        # Half of the trials change one variable, others 30 % of them or all.
        rates = np.tile([0.0, 0.0, 0.3, 1.0], k * TRIED // 4)
        for _ in range(ROUNDS):
            around = self._near(
                np.repeat(at, TRIED, axis=0), np.repeat(step, TRIED), rates
            )
            values_around = self.score(around).reshape(k, TRIED)
            j = values_around.argmax(axis=1)
            next_points = around.reshape(k, TRIED, -1)[rows, j]
            # The best trial of each climb, if it improves the score.
            better = values_around[rows, j] > scores
            if self.feasible is not None and better.any():
                better[better] = self.feasible.are_feasible(
                    canonical(self.family, next_points[better])
                )
            at = np.where(better[:, None], next_points, at)
            scores = np.where(better, values_around[rows, j], scores)
            # Steps grow slowly after a success and halve after a failure.
            step = np.where(better, 1.1 * step, 0.5 * step)
        return at, scores

    def _restricted(self, points: Points) -> Points:
        """Return points with the values of fixed variables, and in the branch that has the turn."""
        if not self.free.all():
            points = np.where(self.free, points, self.best[0])
        if self.turn is not None and self.free[self.turn.column]:
            points[:, self.turn.column] = self.turn.code
        return points

    def _near(self, at: Points, steps: Array, rates: Array) -> Points:
        """Return points with at least one active variable changed.

        Numbers change by normal steps of these lengths.
        """
        g = self.g
        m, d = at.shape
        changeable = self.encoding.active(at) & self.free
        # Each variable with its rate, and one active variable in any case.
        changed = g.random((m, d)) < rates[:, None]
        changed[
            np.arange(m), (g.random((m, d)) * changeable).argmax(axis=1)
        ] = True
        changed &= changeable
        moves = steps[:, None] * g.standard_normal((m, d))
        # A smaller move of an integer would not change its value.
        moves = np.where(
            np.abs(moves) < self.least, np.copysign(self.least, moves), moves
        )
        # A choice takes any other option with equal probability.
        by = 1 + (g.random((m, d)) * np.maximum(self.options - 1, 1)).astype(
            np.intp
        )
        moved_points = np.where(
            self.options > 0,
            (at + by) % np.maximum(self.options, 1),
            reflected(at + moves),
        )
        points = np.where(changed, moved_points, at).astype(self.family.dtype)
        return self._restricted(
            self.encoding.centered(self.prior.sized(points, g, changed))
        )


def reflected(z: Array) -> Array:
    """Return numbers with the parts of their range beyond 0 and 1 reflected."""
    return 1.0 - np.abs(1.0 - np.abs(z) % 2.0)


def canonical(family: Family, points: Points) -> Points:
    """Return points with inactive variables at their fixed codes."""
    return (
        family.canonical(points) if isinstance(family, Conditional) else points
    )


def log_improvement(
    target: float | Array, mean: Array, deviation: Array
) -> Array:
    """Return the logarithms of the expected improvements of normal numbers on a target.

    With u = (mean − target) / σ, the improvement is σ (φ(u) − u Φ(−u)), which is σ φ(u) (1 − u
    r(u)) for u > 0.
    """
    # E[(target − y)⁺] = σ (φ(u) − u Φ(−u)), in logarithms to keep tiny values apart.
    u = (mean - target) / deviation
    away = np.abs(u)
    ratio = mills_ratio(away)
    density = np.exp(-0.5 * np.minimum(u * u, 1400.0))
    log_tail = (
        -2.0 * np.log(np.maximum(away, 1.0)) - 3.0 / np.maximum(away, 1.0) ** 2
    )
    # u > 0: ln(1 − u r(u)), and its asymptote −2 ln u − 3/u² where rounding would dominate.
    below = np.log(np.maximum(1.0 - away * ratio, 1e-300))
    tail = np.where(away > 20.0, log_tail, below) - 0.5 * u * u
    # u ≤ 0: φ(u) + |u| Φ(|u|) with Φ(|u|) = 1 − φ(u) r(|u|)
    above = np.log(
        np.maximum(density * (1.0 - away * ratio) + ROOT * away, 1e-300)
    )
    return np.where(u > 0.0, tail, above) - math.log(ROOT) + np.log(deviation)


def log_probability_below(mean: Array, deviation: Array) -> Array:
    """Return the logarithms of the probabilities Φ(−mean / σ) that normal numbers are negative."""
    u = mean / deviation
    # ln Φ(−|u|) = ln r(|u|) + ln φ(u)
    tail = np.log(mills_ratio(np.abs(u))) - 0.5 * u * u - math.log(ROOT)
    return np.where(u > 0.0, tail, np.log1p(-np.exp(tail)))


def mills_ratio(u: Array) -> Array:
    """Return r(u) = Φ(−u) / φ(u) for u >= 0.

    It is the fit of Press et al., Numerical Recipes, to the complementary error function.
    """
    t = 1.0 / (1.0 + math.sqrt(0.125) * u)
    ratio: Array = 0.5 * ROOT * t * np.exp(np.polyval(ERFC, t))
    return ratio


ROOT = math.sqrt(2.0 * math.pi)
ERFC: Sequence[float] = (
    0.17087277,
    -0.82215223,
    1.48851587,
    -1.13520398,
    0.27886807,
    -0.18628806,
    0.09678418,
    0.37409196,
    1.00002368,
    -1.26551223,
)
