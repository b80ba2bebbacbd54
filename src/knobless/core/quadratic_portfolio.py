"""A portfolio that is interrupted once, to determine an objective if it is a quadratic function of bits.

The values of a point and of the points that differ from it in one or two bits determine a quadratic function of n bits:
N = 1 + n (n + 1) / 2 values. When the portfolio has used half as many evaluations, a few tests at its best point show
whether the objective is quadratic (`quadratic.py`). If so, the neighbors of that point are evaluated, and then the
minimum of the model. A quadratic objective thus takes about 1.5 N evaluations, and one that the portfolio
minimizes with fewer than N / 2 costs nothing more. Other objectives cost the evaluations of a test, 7 in most cases.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from knobless._checks import positive_int

from .algorithm import AlgorithmInfo, is_exact
from .conditional import Conditional
from .elitism import Elite
from .families import Family
from .portfolio import Portfolio, PortfolioState
from .quadratic import PARTS, PER_TEST, Quadratic, block_sizes, flipped, is_quadratic, neighbors, tests
from .rng import RNG
from .types import Array, Points
from .violation import is_feasible

TESTING, LEARNING, MINIMIZING = range(3)


class Study(NamedTuple):
    """The evaluations that determine a quadratic function.

    Attributes
    ----------
    x : array
        The point of the tests, whose neighbors are evaluated.
    center : float
        Its value.
    stage : int
        `TESTING` whether the objective is quadratic, `LEARNING` the values of the neighbors, or `MINIMIZING` the model.
    f : array
        Values of the tests so far, later those of the neighbors.
    points : array
        The next points.
    """

    x: Points
    center: float
    stage: int
    f: Array
    points: Points

    @classmethod
    def of(cls, x: Points, center: float, stage: int, f: Array, batch: int) -> Study:
        """Return a study with its next points: 7 of a test, n neighbors, at least `batch`, or minima of the model."""
        n, key = len(x), zlib.crc32(x.astype(np.int8).tobytes())  # the same for a bit and a choice of two
        if stage == TESTING:
            flips = tests(n, key)[len(f) : len(f) + PER_TEST]
        elif stage == LEARNING:
            flips = neighbors(n, len(f), max(n, batch))
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # sums of values near the largest float
                flips = Quadratic(center, f).minima(key)[:batch]
        return cls(x, center, stage, f, flipped(x, flips))

    def after(self, values: Array, batch: int) -> Study | None:
        """Return the study with the values of its points; None if it has ended, also by an infeasible point."""
        n, stage, f = len(self.x), self.stage, np.concatenate([self.f, values])
        if stage == MINIMIZING or not _have_values(values):
            return None
        if stage == TESTING:
            if not is_quadratic(self.center, f):
                return None
            if len(f) == PER_TEST * len(block_sizes(n)):
                stage, f = LEARNING, f[:0]
        elif len(f) == n * (n + 1) // 2:
            stage = MINIMIZING
        return Study.of(self.x, self.center, stage, f, batch)

    def lowest(self, values: Array) -> Elite | None:
        """Return the best of the minima of the model, whose values are given, and of the neighbors.

        None in the stages before, and if a point failed or is infeasible.
        """
        if self.stage != MINIMIZING or not _have_values(values):
            return None
        i, j = int(values.argmin()), int(self.f.argmin())
        if values[i] <= self.f[j]:
            return Elite(self.points[i : i + 1], values[i : i + 1])
        return Elite(flipped(self.x, neighbors(len(self.x), j, 1)), self.f[j : j + 1])


def _have_values(f: Array) -> bool:
    """Return whether all evaluations succeeded, at feasible points."""
    return bool((np.isfinite(f) & is_feasible(f)).all())


class QuadraticState(NamedTuple):
    """State of a quadratic portfolio.

    Attributes
    ----------
    rest : PortfolioState
        State of the portfolio.
    study : Study or None
        The evaluations between two iterations of the portfolio; None before and afterwards.
    ended : bool
        Whether they have ended.
    before : int
        Number of evaluations before those of the portfolio, which count for the beginning of the study.
    """

    rest: PortfolioState
    study: Study | None = None
    ended: bool = False
    before: int = 0

    @property
    def theta(self) -> Array:
        """Parameters of the portfolio."""
        return self.rest.theta

    def copy(self) -> QuadraticState:
        """Return a copy that does not change with this state."""
        return self._replace(rest=self.rest.copy())


@dataclass(frozen=True)
class QuadraticPortfolio:
    """A portfolio over bits that also determines quadratic objectives and minimizes the model; for deterministic ones.

    Parameters
    ----------
    rest : Portfolio
        The portfolio.
    batch : int
        Least number of points per iteration.

    Raises
    ------
    TypeError
        If `rest` is not a `Portfolio`, a variable has more than two options, or there are numbers, subsets or
        conditional variables.
    ValueError
        If there are fewer than three variables.

    Notes
    -----
    Of the study, an iteration has the 7 points of a test, n neighbors, or the minimum of the model. If these are fewer
    than `batch`, the others are random. The study ends if one of its points fails, is cancelled or infeasible.
    """

    rest: Portfolio
    batch: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.rest, Portfolio):
            raise TypeError(f"rest: expected a portfolio, got {self.rest!r:.200}")
        family = self.rest.family
        if isinstance(family, Conditional) or family.size_bounds or (family.options != 2).any():
            raise TypeError("rest: expected a portfolio over bits only")
        if family.variables < PARTS:
            raise ValueError(f"rest: expected a portfolio over at least {PARTS} bits, got {family.variables}")
        positive_int("batch", self.batch)

    @property
    def family(self) -> Family:
        """Family of the points."""
        return self.rest.family

    @property
    def exact(self) -> bool:
        """Whether the portfolio draws the same points on every machine."""
        return is_exact(self.rest)

    @property
    def n_values(self) -> int:
        """Number of values that determine a quadratic function."""
        n = self.family.variables
        return 1 + n * (n + 1) // 2

    @property
    def begins_at(self) -> int:
        """Number of evaluations after which the study begins, half of the number of values."""
        return self.n_values // 2

    def init(self, theta: Array | None = None, x0: Points | None = None) -> QuadraticState:
        """Return the initial state of the portfolio."""
        return QuadraticState(self.rest.init(theta, x0))

    def lam(self, state: QuadraticState) -> int:
        """Return the number of points of the current iteration."""
        return self.rest.lam(state.rest) if state.study is None else max(len(state.study.points), self.batch)

    def ask(self, state: QuadraticState, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        """Return points of the portfolio or of the study."""
        if state.study is None:
            return self.rest.ask(state.rest, rng, size, start)
        size = self.lam(state) if size is None else size
        own = state.study.points[start : start + size].copy()
        more = size - len(own)
        return np.concatenate([own, self.family.sample(self.family.initial(), more, rng)]) if more else own

    def tell(self, state: QuadraticState, x: Points, f: Array) -> QuadraticState:
        """Return the state after an iteration."""
        rest, study, ended, before = state
        if study is None:
            rest = self.rest.tell(rest, x, f)
            return QuadraticState(rest, None if ended else self._begun(rest, before), ended, before)
        own = len(study.points)
        # Fixed variables are replaced in the points; as a function of all variables the objective is what it was.
        if len(f) < self.lam(state) and not np.array_equal(x[:own], study.points):  # one of them was cancelled
            return QuadraticState(rest, None, True, before)
        after, best = study.after(f[:own], self.batch), study.lowest(f[:own])
        if best is not None:
            rest = self.rest.inject(rest, best.x[0], float(best.f[0]))
        return QuadraticState(rest, after, after is None, before)

    def _begun(self, rest: PortfolioState, before: int) -> Study | None:
        """Return the study if it begins after this iteration of the portfolio."""
        if not self.rest.can_yield(rest) or before + sum([record.spent for record in rest.records]) < self.begins_at:
            return None
        if not len(rest.best.f) or not _have_values(rest.best.f):
            return None
        return Study.of(rest.best.x[0], float(rest.best.f[0]), TESTING, np.empty(0), self.batch)

    def inject(self, state: QuadraticState, x: Points, f: float) -> QuadraticState:
        """Return the state with the point injected into the portfolio."""
        return state._replace(rest=self.rest.inject(state.rest, x, f))

    def observe(self, state: QuadraticState, x: Points, f: Array) -> QuadraticState:
        """Return the state with the evaluations observed by the portfolio."""
        return state._replace(rest=self.rest.observe(state.rest, x, f))

    def can_yield(self, state: QuadraticState) -> bool:
        """Return whether the portfolio can yield; False during the study."""
        return state.study is None and self.rest.can_yield(state.rest)

    def info(self, state: QuadraticState) -> AlgorithmInfo:
        """Return what can be observed of the portfolio, with λ of the current iteration."""
        return self.rest.info(state.rest)._replace(lam=self.lam(state))

    def at_least(self, lam: int) -> Self:
        """Return the same portfolio with at least `lam` points per iteration."""
        return replace(self, rest=self.rest.at_least(lam), batch=max(self.batch, lam))
