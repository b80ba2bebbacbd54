"""A climb that is guided by a model of all evaluations, then a portfolio; for few evaluations of choices.

A climb over choices evaluates all options of all variables in random order before it ends. With the interaction model
(`interaction_model.py`) the better ones come first: of the neighbors of the best point, which differ from it in one
variable, the next one evaluated has the lowest value in a draw of the model. The first eight points are random. Where
all neighbors were evaluated, the linear search (`linear.py`) proposes points. After 200 evaluations the portfolio
starts from the best point.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .algorithm import AlgorithmInfo
from .conditional import Conditional
from .families import Family
from .linear import SMALL, LinearState, LinearThompson, new_rows, point_keys
from .portfolio import Portfolio, PortfolioState
from .rng import RNG, first_uniforms
from .types import Array, Points

LENGTH = 200  # evaluations before the portfolio


class GuidedState(NamedTuple):
    """State of a guided portfolio.

    Attributes
    ----------
    linear : LinearState
        State of the linear search, with all evaluations until the portfolio has started.
    rest : PortfolioState or None
        State of the portfolio; None until it has started.
    x0 : array or None
        Point from which the search starts, and later the one from which the portfolio has started.
    """

    linear: LinearState
    rest: PortfolioState | None = None
    x0: Points | None = None

    @property
    def theta(self) -> Array:
        """Parameters of the portfolio; those of the linear search until it has started."""
        return self.linear.theta if self.rest is None else self.rest.theta

    def copy(self) -> GuidedState:
        """Return a copy that does not change with this state."""
        return self._replace(linear=self.linear.copy(), rest=self.rest and self.rest.copy())


@dataclass(frozen=True)
class GuidedPortfolio:
    """A climb guided by a model of the first 200 evaluations, then a portfolio, for deterministic objectives.

    Parameters
    ----------
    linear : LinearThompson
        The search that begins, and that continues where a climb has ended.
    rest : Portfolio
        The algorithm that starts from the best point after 200 evaluations.

    Raises
    ------
    TypeError
        If the family contains numbers, subsets or conditional variables.
    ValueError
        If the two are for different families, or the family has more than 50 free parameters.

    Notes
    -----
    An iteration has `linear.batch` points. If the climb has neighbors of the best point to evaluate, they are those
    with the lowest values of one draw. The random numbers of the draw are determined by the evaluations, so points that
    are asked for one by one are those that are asked for together. An iteration without a new point, as in a space
    that is nearly exhausted, also ends this stage.
    """

    linear: LinearThompson
    rest: Portfolio

    exact: ClassVar[bool] = False  # as the linear search

    def __post_init__(self) -> None:
        if self.linear.family != self.rest.family:
            raise ValueError("rest: expected a portfolio for the family of the linear search")
        family = self.family
        if isinstance(family, Conditional) or not family.options.all() or family.size_bounds:
            raise TypeError("linear: expected a family of bits and choices only")
        if family.dim > SMALL:
            raise ValueError(f"linear: expected at most {SMALL} free parameters, got {family.dim}")

    @property
    def family(self) -> Family:
        """Family of the points."""
        return self.rest.family

    @cached_property
    def _changes(self) -> NDArray[np.intp]:
        """The changes of one variable, as its index and what is added to its option."""
        options = self.family.options.tolist()
        return np.array([(i, by) for i, k in enumerate(options) for by in range(1, k)], np.intp)

    def init(self, theta: Array | None = None, x0: Points | None = None) -> GuidedState:
        """Return the initial state of the linear search."""
        return GuidedState(self.linear.init(theta), None, x0)

    def lam(self, state: GuidedState) -> int:
        """Return the number of points of the current iteration."""
        return self.linear.batch if state.rest is None else self.rest.lam(state.rest)

    def ask(self, state: GuidedState, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        """Return x0 at first, then points of the guided climb or of the linear search; later those of the portfolio."""
        if state.rest is not None:
            return self.rest.ask(state.rest, rng, size, start)
        size = self.linear.batch if size is None else size
        own = self._own(state)[: self.linear.batch][start : start + size]
        if len(own) == size:
            return own
        linear, more = state.linear, size - len(own)
        random = linear.interactions is None
        others = self.family.sample(linear.first, more, rng) if random else self.linear.ask(linear, rng, more)
        return np.concatenate([own, others])

    def _own(self, state: GuidedState) -> Points:
        """Return the points with which an iteration begins: x0, or the new neighbors of the best point in order."""
        linear = state.linear
        if not linear.n and state.x0 is not None:
            return state.x0[None].astype(self.family.dtype)
        model, best = linear.interactions, linear.best
        if model is None or best is None:
            return linear.x[:0]
        i, by = self._changes.T
        around = np.tile(best, (len(i), 1))
        around[np.arange(len(i)), i] = (best[i].astype(np.intp) + by) % self.family.options[i]
        around = around[[key not in linear.known for key in point_keys(around)]]
        if not len(around):
            return around
        m = len(around)
        u = first_uniforms(zlib.crc32(linear.x.tobytes()), 1, 1 + m + m % 2)[0]
        values = model.draw_given(*linear.scored, self.family.features(around), u)
        return around[values.argsort(kind="stable")]

    def tell(self, state: GuidedState, x: Points, f: Array) -> GuidedState:
        """Return the state after an iteration."""
        if state.rest is not None:
            return state._replace(rest=self.rest.tell(state.rest, x, f))
        if not len(f):
            return state
        n = state.linear.n
        state = self.observe(state, x, f)
        return self._started(state) if state.rest is None and state.linear.n == n else state

    def observe(self, state: GuidedState, x: Points, f: Array) -> GuidedState:
        """Return the state with further evaluations."""
        if state.rest is not None:
            return state._replace(rest=self.rest.observe(state.rest, x, f))
        new = new_rows(x, state.linear.known)
        state = state._replace(linear=self.linear.observe(state.linear, x[new], f[new]))
        return self._started(state) if state.linear.n >= LENGTH else state

    def _started(self, state: GuidedState) -> GuidedState:
        """Return the state with the portfolio started from the best point."""
        linear = state.linear
        x0 = state.x0 if linear.best is None else linear.best.copy()
        return GuidedState(self.linear.init(linear.first), self.rest.init(linear.first, x0), x0)

    def inject(self, state: GuidedState, x: Points, f: float) -> GuidedState:
        """Return the state with a point of another algorithm; until the portfolio has started, it is observed."""
        return state if state.rest is None else state._replace(rest=self.rest.inject(state.rest, x, f))

    def can_yield(self, state: GuidedState) -> bool:
        """Return whether the portfolio can yield; True until it has started."""
        return state.rest is None or self.rest.can_yield(state.rest)

    def info(self, state: GuidedState) -> AlgorithmInfo:
        """Return what can be observed of the portfolio, or of the linear search until it has started; with λ."""
        info = self.linear.info(state.linear) if state.rest is None else self.rest.info(state.rest)
        return info._replace(lam=self.lam(state))

    def at_least(self, lam: int) -> Self:
        """Return the same search with at least `lam` points per iteration."""
        return replace(self, linear=self.linear.at_least(lam), rest=self.rest.at_least(lam))
