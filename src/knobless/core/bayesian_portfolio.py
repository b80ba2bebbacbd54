"""Bayesian optimization of bits, then a portfolio; for few evaluations.

The first eight points are random. Each further one has the largest expected improvement, by a Gaussian process
(`gaussian_process.py`), of the points that a few climbs find: from the three best points and from two points near
them, one bit at a time. After 300 evaluations, or 100 without an improvement, the portfolio starts from the best point.

Several points at once are chosen one after the other, each as if the ones before had the mean as their value.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import positive_int

from .algorithm import AlgorithmInfo
from .evolution import theta_around
from .families import Family
from .gaussian_process import FIRST_UPDATES, LATER_UPDATES, GaussianProcess, Posterior, first_shares, scaled_values
from .linear import new_rows, point_keys
from .quadratic_portfolio import QuadraticPortfolio, QuadraticState
from .rng import RNG, first_uniforms, unit_interval
from .types import Array, Points, Words

MOST_BITS = 50  # for which a process is fit
RANDOM_POINTS = 8  # at first
MOST_BAYESIAN, MOST_UNIMPROVED = 300, 100  # evaluations before the portfolio, and those without an improvement
GROWTH = 10  # the process is fit again with one in so many more evaluations
FROM_BEST, FROM_NEAR = 3, 2  # climbs from the best points, and from points near them
MOST_CHANGED = 4  # bits by which a near point differs, at most
MOST_STEPS = 5  # of a climb, at most
CONSIDERED = 12  # changes of a point whose expected improvement is computed


class BayesianState(NamedTuple):
    """State of a Bayesian portfolio.

    Attributes
    ----------
    first : array
        Initial parameters, of which random points are drawn.
    x0 : array or None
        Point from which the search starts, and later the one from which the portfolio has started.
    x : array of shape (m, variables)
        The evaluated points, each once; none after the portfolio has started.
    f : array of shape (m,)
        Their values; inf for failures.
    process : GaussianProcess or None
        The process at these points; None if there are few.
    fixed : array of bool of shape (variables,)
        Bits that cannot be changed: those that differ from the points asked for and are equal in all evaluated ones.
    points : array of shape (batch, variables)
        The next points; none if these are random.
    mean : array
        Mean of the statistics of the best quarter of the points, of which the best one counts half, within the margins;
        the initial parameters without any.
    rest : QuadraticState or None
        State of the portfolio; None until it has started.
    """

    first: Array
    x0: Points | None
    x: Points
    f: Array
    process: GaussianProcess | None
    fixed: NDArray[np.bool_]
    points: Points
    mean: Array
    rest: QuadraticState | None = None

    @property
    def theta(self) -> Array:
        """Parameters of the portfolio; until it has started, a mean of the best points."""
        return self.mean if self.rest is None else self.rest.theta

    def copy(self) -> BayesianState:
        """Return a copy that does not change with this state."""
        return self._replace(rest=self.rest and self.rest.copy())


@dataclass(frozen=True)
class BayesianPortfolio:
    """Bayesian optimization for the first evaluations of bits, then a portfolio, for deterministic objectives.

    Parameters
    ----------
    rest : QuadraticPortfolio
        The algorithm that starts from the best point.
    batch : int
        Number of points per iteration until then.

    Raises
    ------
    TypeError
        If `rest` is not a `QuadraticPortfolio`.
    ValueError
        If there are more than 50 variables.

    Notes
    -----
    The points are determined by the evaluations, apart from random ones. An iteration without a new point starts the
    portfolio, as in a space that is nearly exhausted, or with constraints, where a repaired point may be a known one.
    """

    rest: QuadraticPortfolio
    batch: int = 1

    exact: ClassVar[bool] = False  # sums are rounded differently on other machines

    def __post_init__(self) -> None:
        if not isinstance(self.rest, QuadraticPortfolio):
            raise TypeError(f"rest: expected a QuadraticPortfolio, got {self.rest!r:.200}")
        if self.family.variables > MOST_BITS:
            raise ValueError(f"rest: expected a portfolio over at most {MOST_BITS} bits, got {self.family.variables}")
        positive_int("batch", self.batch)

    @property
    def family(self) -> Family:
        """Family of the points."""
        return self.rest.family

    @cached_property
    def _none(self) -> Points:
        return np.empty((0, self.family.variables), self.family.dtype)

    def init(self, theta: Array | None = None, x0: Points | None = None) -> BayesianState:
        """Return the state before the first iteration."""
        theta = self.family.initial() if theta is None else self.family.move(theta, np.zeros(len(theta)))
        free = np.zeros(self.family.variables, dtype=bool)
        return BayesianState(theta, x0, self._none, np.empty(0), None, free, self._none, theta)

    def lam(self, state: BayesianState) -> int:
        """Return the number of points of the current iteration."""
        return self.batch if state.rest is None else self.rest.lam(state.rest)

    def ask(self, state: BayesianState, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        """Return x0 and random points, then those of largest expected improvement; later points of the portfolio."""
        if state.rest is not None:
            return self.rest.ask(state.rest, rng, size, start)
        size = self.batch if size is None else size
        own = state.points if len(state.f) or state.x0 is None else state.x0[None].astype(self.family.dtype)
        own = own[start : start + size]
        more = size - len(own)
        return np.concatenate([own, self.family.sample(state.first, more, rng)]) if more else own.copy()

    def tell(self, state: BayesianState, x: Points, f: Array) -> BayesianState:
        """Return the state after an iteration."""
        if state.rest is not None:
            return state._replace(rest=self.rest.tell(state.rest, x, f))
        told, asked = set(point_keys(x)), point_keys(state.points)
        if len(x) < len(asked) and told.issubset(asked):
            # Cancelled points count as failures, as in P3; otherwise they would be asked for again and again.
            cancelled = state.points[[key not in told for key in asked]]
            x, f = np.concatenate([x, cancelled]), np.concatenate([f, np.full(len(cancelled), np.inf)])
        if not len(f):
            return state
        after = self.observe(state, x, f)
        if after.rest is not None:
            return after
        replaced = len(state.points) == len(x) and (x != state.points).any(axis=0)
        fixed = replaced & (after.x == x[0]).all(axis=0)
        if after is state or after.process is None or after.process.fitted < len(after.f):
            fixed |= state.fixed  # otherwise anew: a bit may be fixed in a part of the run only
        if (fixed != state.fixed).any():
            return self.with_points(after._replace(fixed=fixed))
        # Random points may be known ones, for instance if few bits are not fixed.
        return self._started(after) if after is state and state.process is not None else after

    def observe(self, state: BayesianState, x: Points, f: Array) -> BayesianState:
        """Return the state with further evaluations; the same one if all of them are known."""
        if state.rest is not None:
            return state._replace(rest=self.rest.observe(state.rest, x, f))
        new = new_rows(x, set(point_keys(state.x)))
        if not new:
            return state
        x = np.concatenate([state.x, x[new].astype(self.family.dtype)])
        f = np.concatenate([state.f, np.where(np.isnan(f[new]), np.inf, f[new])])
        if len(f) >= min(MOST_BAYESIAN, 2**self.family.variables) or len(f) - 1 - int(f.argmin()) > MOST_UNIMPROVED:
            return self._started(state._replace(x=x, f=f))
        return self.with_points(state._replace(x=x, f=f, process=self._process(state.process, x, f)))

    def with_points(self, state: BayesianState) -> BayesianState:
        """Return a state with the points and the mean that follow from its evaluations and its process.

        Parameters
        ----------
        state : BayesianState
            A state with evaluations.

        Returns
        -------
        BayesianState
            The state with its points and its mean.
        """
        first, _, x, f, process, fixed, *_ = state
        mean = theta_around(self.family, first, x[f.argsort(kind="stable")[: 1 + len(f) // 4]])
        return state._replace(mean=mean, points=self._none if process is None else self._next(process, f, fixed))

    @staticmethod
    def _process(process: GaussianProcess | None, x: Points, f: Array) -> GaussianProcess | None:
        """Return the process with further evaluations, fit again if these are many; None for few evaluations."""
        m = len(f)
        if m < RANDOM_POINTS:
            return None
        s = 2.0 * x - 1.0
        if process is None:
            return GaussianProcess.fit(s, scaled_values(f), first_shares(x.shape[1]), FIRST_UPDATES)
        if m >= process.fitted + max(1, m // GROWTH):
            return GaussianProcess.fit(s, scaled_values(f), process.shares, LATER_UPDATES)
        return process.extended(s[len(process.s) :])

    def _next(self, process: GaussianProcess, f: Array, fixed: NDArray[np.bool_]) -> Points:
        """Return the points of the next iteration, fewer than `batch` if the climbs find no others."""
        y, n, batch = scaled_values(f), self.family.variables, min(self.batch, MOST_BAYESIAN)
        words = first_uniforms(zlib.crc32(process.s.astype(np.int8).tobytes()), batch * FROM_NEAR, 2 + n)
        best = process.s[f.argsort(kind="stable")[:FROM_BEST]]
        chosen: list[Array] = []
        for i in range(batch):
            posterior = process.given(y)
            around = near(best, words[i * FROM_NEAR : (i + 1) * FROM_NEAR], fixed)
            found = climbed(posterior, np.concatenate([best, around]), fixed)
            if found is None:
                break
            chosen.append(found)
            if i + 1 < batch:
                process, y = process.extended(found[None]), np.append(y, posterior.mean(found))
        return (np.array(chosen).reshape(-1, n) > 0.0).astype(self.family.dtype)

    def _started(self, state: BayesianState) -> BayesianState:
        """Return the state with the portfolio started from the best point."""
        first, x0, x, f, *_ = state
        best = float(f.min(initial=np.inf))
        if best < np.inf:
            x0 = x[f.argmin()].copy()
        rest = self.rest.init(first, x0)._replace(before=len(f))
        if x0 is not None and best < np.inf:
            rest = self.rest.inject(rest, x0, best)
        return self.init(first, x0)._replace(rest=rest)

    def inject(self, state: BayesianState, x: Points, f: float) -> BayesianState:
        """Return the state with a point injected into the portfolio; the same state until that has started."""
        return state if state.rest is None else state._replace(rest=self.rest.inject(state.rest, x, f))

    def can_yield(self, state: BayesianState) -> bool:
        """Return whether the portfolio can yield; True until it has started."""
        return state.rest is None or self.rest.can_yield(state.rest)

    def info(self, state: BayesianState) -> AlgorithmInfo:
        """Return what can be observed of the portfolio; until it has started, θ and λ."""
        if state.rest is None:
            return AlgorithmInfo(state.mean, self.batch, np.nan, float(self.batch), np.nan)
        return self.rest.info(state.rest)

    def at_least(self, lam: int) -> Self:
        """Return the same search with at least `lam` points per iteration."""
        return replace(self, rest=self.rest.at_least(lam), batch=max(self.batch, lam))


def near(best: Array, words: Words, fixed: NDArray[np.bool_]) -> Array:
    """Return points near some of the best ones, by up to four changed bits, one for each row of random words."""
    n, u = best.shape[1], unit_interval(words[:, :2])
    points = best[(len(best) * u[:, 0]).astype(np.intp)]
    counts = 1 + (min(MOST_CHANGED, n - np.count_nonzero(fixed)) * u[:, 1]).astype(np.intp)
    order = np.where(fixed, np.iinfo(words.dtype).max, words[:, 2:]).argsort(axis=1, kind="stable")
    for point, count, bits in zip(points, counts.tolist(), order, strict=True):
        point[bits[:count]] *= -1.0
    return points


def climbed(posterior: Posterior, now: Array, fixed: NDArray[np.bool_]) -> Array | None:
    """Return the new point of largest expected improvement on the climbs from these points; None if there is none."""
    value = np.full(len(now), -np.inf)
    best, chosen = -np.inf, None
    for _ in range(MOST_STEPS):
        bits, each = posterior.improvements(now, CONSIDERED, fixed)
        rows, at = np.arange(len(now)), each.argmax(axis=1)
        better = each[rows, at] > value
        if not better.any():
            break
        rows, at = rows[better], at[better]
        value, now = each[rows, at], now[better]
        now[np.arange(len(now)), bits[rows, at]] *= -1.0
        i = int(value.argmax())
        if value[i] > best:
            best, chosen = value[i], now[i].copy()
    return chosen
