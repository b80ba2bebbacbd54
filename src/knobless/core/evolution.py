"""A genetic algorithm whose population doubles, for bits, choices and subsets.

The children of an iteration are as many as the population: each takes its variables at random from
two parents, and each variable changes with probability 1/(2 n). The best of parents and children
are the next population. When four iterations in a row have not changed the population, it is
restarted at random points with twice its size, and keeps the best point. There is no population
size to choose.

In a space with constraints, what is told are the children after their repair (`repair.py`), so the
population is feasible. A repair changes several variables at once, and a population recombines what
it leads to; it would break up the groups of variables that P3 learns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from knobless._checks import positive_int

from .algorithm import AlgorithmInfo
from .archive import Archive, elite_data, elite_of
from .conditional import Conditional
from .data import text, theta_of, whole_at
from .elitism import Elite
from .families import Family, checked_family
from .rng import RNG, Stream, uniforms, unit_interval
from .subset import resized
from .types import Array, Points

FIRST_SIZE = 16  # points of the first population
# Iterations without a change of the population, after which it is restarted
MOST_IDLE = 4
MOST_PER_VARIABLE = 64  # points of a population for each variable, at most
CHANGES = 0.5  # variables of a child that change, on average
HALF = np.uint32(2**31)  # of the uniform integers of 32 bits


def last_change(n: int) -> np.uint32:
    """Return the largest of the uniform integers that change one of n variables."""
    return np.uint32(CHANGES * (2**32 - 1) / n)


def theta_around(family: Family, initial: Array, x: Points) -> Array:
    """Return the mean of the statistics of points, best first, of which the best counts half.

    Within the margins.
    """
    statistics = family.statistics(x)
    return family.move(
        initial,
        (np.add.reduce(statistics, axis=0) / len(statistics) + statistics[0])
        / 2.0
        - initial,
    )


class EvolutionState(NamedTuple):
    """State of the genetic algorithm between two iterations.

    Attributes
    ----------
    theta : array
        Mean of the statistics of the population, of which the best point counts half, within the
        margins.
    x : array of shape (m, variables)
        Points of the population, best first, each once.
    f : array of shape (m,)
        Their values.
    size : int
        Size of the population.
    idle : int
        Iterations since the population has changed.
    fresh : bool
        Whether the next points are random ones.
    """

    theta: Array
    x: Points
    f: Array
    size: int
    idle: int
    fresh: bool

    def copy(self) -> EvolutionState:
        """Return a copy that shares no memory with this one."""
        return self._replace(
            theta=self.theta.copy(), x=self.x.copy(), f=self.f.copy()
        )


@dataclass(frozen=True)
class Evolution:
    """Genetic algorithm with uniform crossover and a population that doubles.

    Parameters
    ----------
    family : Family
        Family of the points, without numbers.
    batch : int
        Least number of points per iteration.

    Raises
    ------
    TypeError
        If the family contains numbers or conditional variables.

    Notes
    -----
    A child takes variable i from its second parent with probability 1/2, and changes it with
    probability 1/(2 n) among n variables. Each parent is the better of two random points, and the
    best ``size`` points of parents and children are the next population.

    References
    ----------
    Syswerda, G. (1989). Uniform crossover in genetic algorithms. ICGA 1989.

    Examples
    --------
    >>> import knobless as kl
    >>> from knobless.algorithms import Evolution
    >>> space = kl.Binary(20)
    >>> evolution = Evolution(kl.Space.of(space).family)
    >>> result = kl.minimize(
    ...     lambda x: int((1 - x).sum()), space, budget=2000, algorithm=evolution, target=0, rng=0
    ... )
    >>> result.fun, result.nfev
    (0.0, 185)
    """

    family: Family
    batch: int = 1

    overlaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_family(self.family)
        if (
            isinstance(self.family, Conditional)
            or not self.family.options.all()
        ):
            raise TypeError(
                "family: expected bits and choices only, without conditional variables"
            )
        positive_int("batch", self.batch)

    @cached_property
    def _initial(self) -> Array:
        return self.family.initial()

    def init(
        self,
        theta: Array | None = None,
        x0: Points | None = None,
        archive: Archive | None = None,
    ) -> EvolutionState:
        """Return the state before the first iteration; x0 has no effect until it is injected."""
        family = self.family
        theta = (
            family.initial()
            if theta is None
            else family.move(theta, np.zeros(len(theta)))
        )
        return EvolutionState(
            theta,
            np.empty((0, family.variables), family.dtype),
            np.empty(0),
            FIRST_SIZE,
            0,
            True,
        )

    def lam(self, state: EvolutionState) -> int:
        """Return the size of the population, at least `batch`."""
        return max(state.size, self.batch)

    def ask(
        self,
        state: EvolutionState,
        rng: RNG,
        size: int | None = None,
        start: int = 0,
    ) -> Points:
        """Return children of the population, or random points for a new one."""
        size = self.lam(state) if size is None else size
        if state.fresh or not len(state.f):
            return self.family.sample(self._initial, size, rng)
        n = self.family.variables
        m = len(state.f)
        # Uniforms of each child: 4 for the parents, n for the crossover, n for the mutations.
        words = uniforms(rng, size, 4 + 2 * n)
        # The population is sorted: the better of two is the one with the lower index.
        drawn = (m * unit_interval(words[:, :4])).astype(np.intp)
        first = drawn[:, :2].min(axis=1)
        second = drawn[:, 2:].min(axis=1)
        # Uniform crossover: each variable of the second parent with probability ½.
        x = state.x.take(first, axis=0)
        # In less time than by np.where
        x += (state.x.take(second, axis=0) - x) * (words[:, 4 : 4 + n] < HALF)
        u = words[:, 4 + n :]
        # Rows and columns, in less time than by nonzero
        changed = np.divmod(np.flatnonzero(u <= last_change(n)), n)
        # A changed variable takes any other option with equal probability.
        options = self.family.options[changed[1]]
        # Below the threshold CHANGES/n, u is uniform: u n/CHANGES in [0, 1) chooses the option.
        shift = n / CHANGES * unit_interval(u[changed]) * (options - 1)
        by = 1 + shift.astype(np.intp)
        x[changed] = (x[changed] + by) % options
        if self.family.size_bounds:
            # Subsets get their size back by other bits than those that have just changed, as far as
            # possible.
            cost = u.astype(float)
            cost[changed] = 2.0**32
            x = resized(x, self.family.size_bounds, cost)
        return x

    def skip(
        self, state: EvolutionState, rng: Stream, size: int, start: int = 0
    ) -> None:
        """Advance the stream as `ask` does."""
        random = state.fresh or not len(state.f)
        rng.skip(
            size, self.family.words if random else 4 + 2 * self.family.variables
        )

    def tell(
        self, state: EvolutionState, x: Points, f: Array
    ) -> EvolutionState:
        """Return the state with the best of parents and children, or before a restart."""
        if not len(f):
            return state
        state = state._replace(fresh=False)
        merged = self._merged(state, x, f)
        # The population has changed: four more iterations before a restart.
        if not np.array_equal(merged.x, state.x):
            return merged._replace(idle=0)
        if state.idle + 1 < MOST_IDLE:
            return state._replace(idle=state.idle + 1)
        size = min(
            2 * state.size,
            max(MOST_PER_VARIABLE * self.family.variables, state.size),
        )
        return EvolutionState(
            state.theta, state.x[:1].copy(), state.f[:1].copy(), size, 0, True
        )

    def _merged(
        self, state: EvolutionState, x: Points, f: Array
    ) -> EvolutionState:
        """Return the state with the best of its population and of the points x.

        Of points with equal values, older ones come first.
        """
        points = np.concatenate([state.x, x])
        values = np.concatenate([state.f, np.where(f == f, f, math.inf)])
        width = points[:1].nbytes
        data = points.tobytes()
        # The first of equal points, so older ones stay.
        first = {
            data[i * width : (i + 1) * width]: i
            for i in reversed(range(len(points)))
        }
        kept = np.sort(np.fromiter(first.values(), np.intp, len(first)))
        # The best points stay, in the order of their values.
        kept = kept[values[kept].argsort(kind="stable")][: state.size]
        points = points[kept]
        theta = theta_around(self.family, self._initial, points)
        return EvolutionState(
            theta, points, values[kept], state.size, state.idle, state.fresh
        )

    def inject(
        self, state: EvolutionState, x: Points, f: float
    ) -> EvolutionState:
        """Return the state with a point of another algorithm in the population."""
        if not state.fresh and (state.x == x).all(axis=1).any():
            return state
        return self._merged(state, x[None], np.array([f]))

    def can_yield(self, state: EvolutionState) -> bool:
        """Return True: an iteration depends on the state alone."""
        return True

    def info(self, state: EvolutionState) -> AlgorithmInfo:
        """Return θ and λ; ε and the signal-to-noise ratio are NaN."""
        lam = self.lam(state)
        return AlgorithmInfo(state.theta, lam, math.nan, float(lam), math.nan)

    def at_least(self, lam: int) -> Self:
        """Return the same algorithm with at least `lam` points per iteration."""
        return replace(self, batch=max(self.batch, lam))

    def data(self, state: EvolutionState) -> dict[str, Any]:
        """Return the state as plain data."""
        numbers = {
            "theta": text(state.theta),
            "size": state.size,
            "idle": state.idle,
            "fresh": state.fresh,
        }
        return numbers | {
            "population": elite_data(Elite(state.x, state.f), self.family)
        }

    def restore(self, state: EvolutionState, data: Any) -> EvolutionState:
        """Return the state that `data` described."""
        size = whole_at(data, "size", least=1)
        x, f = elite_of(data["population"], self.family)
        if len(f) > size or np.isnan(f).any() or (f[1:] < f[:-1]).any():
            raise ValueError(
                f"population: expected at most {size} points, best first"
            )
        return EvolutionState(
            theta_of(self.family, data),
            x,
            f,
            size,
            whole_at(data, "idle"),
            data["fresh"] is True,
        )
