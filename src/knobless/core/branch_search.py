"""Search of conditional spaces: the whole space at first, then turns among its branches.

At first, a loop draws all variables from one distribution, for a few evaluations per branch, and then a linear model of
all evaluations is searched for as many. That is enough where a good branch is good on average. Then the points of an
iteration come from one combination of branches, so points are ranked among their like, and a branch that must be tuned
before it is good is tuned. The r-th best branch of a variable has a share of the evaluations proportional to 1/r. θ is
one vector for the whole space: variables that several branches have in common are learned in all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from knobless._checks import boolean, positive_int

from .adaptation import SNR
from .algorithm import AlgorithmInfo, Member
from .branch_state import BranchState, Seen
from .branches import Branches, Combination, Part
from .conditional import Conditional
from .coordinate_search import CoordinateSearch
from .elitism import Elite
from .igo import IGO, State
from .linear import LinearThompson
from .p3 import P3
from .portfolio import Portfolio
from .rng import RNG, Stream
from .subset import number_of_points
from .types import Array, Points

PER_BRANCH = 5  # evaluations of the loop per branch, and of the linear search, before the turns
COUNTED = 2**12  # points of a combination up to which those that were evaluated are counted
REPEATS = 50  # points in a row that were evaluated before, after which the search of a combination is restarted
TRIED = 100  # combinations that are drawn in search of one that is not exhausted


@dataclass(frozen=True)
class BranchSearch:
    """Search of a conditional space as a whole, then in turns among its branches.

    Parameters
    ----------
    loop : IGO
        Algorithm for the whole family, with the adaptation `SNR`. The parts of the space are searched with the same
        components, and with the ε and λ_max of the paper for their numbers of free parameters.
    linear : LinearThompson, optional
        Search with a linear model between the loop and the turns; none by default.
    deterministic : bool
        Whether equal points have equal values. Parts are then searched by a portfolio of the loop and P3, or the
        coordinate search if they have numbers. A combination all of whose points were evaluated gets no more turns, and
        one whose search yields no new points is searched anew, from the initial distribution.
    batch : int
        Least number of points per iteration.

    Raises
    ------
    TypeError
        If the loop has another adaptation, or a family without conditional variables.
    ValueError
        If the linear search is for another family.

    Notes
    -----
    The combination of branches is chosen before the points of an iteration are drawn. The expected length of the signal
    for uninformative values is therefore that of a family without conditions.
    """

    loop: IGO
    linear: LinearThompson | None = None
    deterministic: bool = False
    batch: int = 1

    def __post_init__(self) -> None:
        _ = self.family, self._adaptation
        if self.linear is not None and self.linear.family != self.family:
            raise ValueError("linear: expected a search for the family of the loop")
        boolean("deterministic", self.deterministic)
        positive_int("batch", self.batch)

    @property
    def family(self) -> Conditional:
        """Family of the points."""
        family = self.loop.family
        if not isinstance(family, Conditional):
            raise TypeError(f"loop: expected a family with conditional variables, got {family!r:.200}")
        return family

    @property
    def exact(self) -> bool:
        """Whether the points are the same on every machine."""
        return self.linear is None

    @property
    def has_pure_states(self) -> bool:
        """Whether `tell` returns a new state and does not modify the given one."""
        return self.linear is None and not self.deterministic

    @property
    def _adaptation(self) -> SNR:
        if not isinstance(self.loop.adaptation, SNR):
            raise TypeError(f"loop: expected the adaptation SNR, got {self.loop.adaptation!r:.200}")
        return self.loop.adaptation

    @cached_property
    def branches(self) -> Branches:
        """Branches of the space."""
        return Branches(self.family)

    @cached_property
    def _parts(self) -> dict[Combination, tuple[Part, Member | None]]:
        return {}

    def part(self, key: Combination) -> tuple[Part, Member | None]:
        """Return the part of the space that is active in a combination, and the algorithm for it.

        Parameters
        ----------
        key : tuple of float
            The combination of branches.

        Returns
        -------
        part : Part
            The active columns.
        algorithm : Member or None
            The algorithm for them; None if there are none.
        """
        if key not in self._parts:
            part = self.branches.part(key)
            self._parts[key] = part, self.algorithm_of(part)
        return self._parts[key]

    def algorithm_of(self, part: Part) -> Member | None:
        """Return the algorithm for a part of the space; None if it is a single point.

        Parameters
        ----------
        part : Part
            The part.

        Returns
        -------
        Member or None
            The loop for it, possibly in a portfolio with P3 or the coordinate search.
        """
        family = part.family
        if family is None:
            return None
        n = family.dim
        adaptation = self._adaptation
        adaptation = replace(adaptation, eps=n**-0.5, lam_max=max(n, adaptation.lam_min))
        loop = replace(self.loop, family=family, adaptation=adaptation)
        if not self.deterministic or isinstance(family, Conditional):
            return loop
        search = P3 if family.options.all() else CoordinateSearch
        return Portfolio((search(family, self.batch), loop))

    def init(self, theta: Array | None = None, x0: Points | None = None) -> BranchState:
        """Return the state before the first iteration: that of the loop."""
        loop, k = self.loop.init(theta, x0), len(self.branches.each)
        linear = None if self.linear is None or not k else self.linear.init(theta, x0)
        elite = Elite.empty(self.family)
        return BranchState(loop, linear, loop.theta, 0, (0,) * k, (math.inf,) * k, {}, {}, None, elite)

    def _whole(self, state: BranchState) -> tuple[Member, Any]:
        """Return the algorithm for the whole space that is used before the turns, and its state."""
        if self.linear is None or state.linear is None or state.spent < PER_BRANCH * len(state.n):
            return self.loop, state.loop
        return self.linear, state.linear

    def lam(self, state: BranchState) -> int:
        """Return the number of points of the current iteration."""
        if state.turn is None:
            whole, own = self._whole(state)
            return whole.lam(own)
        _, algorithm = self.part(state.turn[1])
        return self.batch if algorithm is None else algorithm.lam(state.states[state.turn[1]])

    def ask(self, state: BranchState, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        """Return points of the search of the whole space, or of the combination whose turn it is."""
        if state.turn is None:
            whole, own = self._whole(state)
            return whole.ask(own, rng, size, start)
        key = state.turn[1]
        part, algorithm = self.part(key)
        if algorithm is None:
            return np.tile(part.template, (self.batch if size is None else size, 1))
        return part.embed(algorithm.ask(state.states[key], rng, size, start))

    def tell(self, state: BranchState, x: Points, f: Array) -> BranchState:
        """Return the state after an iteration."""
        if not len(f):
            return state
        before, state = state, self._count(state, x, f)
        if state.turn is None:
            if self._whole(before)[0] is self.loop:
                loop = self.loop.tell(state.loop, x, f)
                state = state._replace(loop=loop, theta=loop.theta)
            stages = 1 if state.linear is None else 2
            if not state.n or state.spent < stages * PER_BRANCH * len(state.n):
                return state
            return self._next(state._replace(linear=None))
        rows: dict[Combination, list[int]] = {state.turn[1]: []}  # told in any case, also if its points were replaced
        for i, row in enumerate(x):
            rows.setdefault(self.branches.combination_of(row), []).append(i)
        for key, own in rows.items():
            state = self._learn(state, key, x[own], f[own])
        return self._next(state)

    def _learn(self, state: BranchState, key: Combination, x: Points, f: Array) -> BranchState:
        """Return the state after evaluations of one combination: the one whose turn it is, or of points replayed."""
        branch, turn = state.turn or (0, ())
        if key != turn:
            branch = min(self.branches.contained(key), key=state.n.__getitem__)
            state = self._at(state, branch, key)
        n = (*state.n[:branch], state.n[branch] + len(f), *state.n[branch + 1 :])
        part, algorithm = self.part(key)
        if algorithm is None:
            return state._replace(n=n)
        after = algorithm.tell(state.states[key], x[:, part.columns], f)
        theta = state.theta
        if not state.restarts(key):
            theta = theta.copy()
            theta[part.parameters] = after.theta
        return state._replace(n=n, theta=theta, states={**state.states, key: after})

    def _count(self, state: BranchState, x: Points, f: Array) -> BranchState:
        """Return the state with the best values of the branches, the best point, and all evaluations."""
        best, seen = list(state.best), dict(state.seen)
        finite = ~(self.family.active(x) & (self.family.counts == 0)).any(axis=1)  # before _size, which is slow
        each = zip(x, self.family.indices(x), finite.tolist(), f.tolist(), strict=True)
        for row, point, is_finite, value in each:
            key = self.branches.combination_of(row)
            for branch in self.branches.contained(key):
                best[branch] = min(best[branch], value) if value == value else best[branch]
            if self.deterministic and is_finite and self._size(key) <= COUNTED:
                seen[key] = seen.get(key, Seen()).add(point.tobytes())
        elite = state.elite
        i = int(np.where(f == f, f, math.inf).argmin())
        if f[i] < (elite.f[0] if len(elite.f) else math.inf):
            elite = Elite(x[i : i + 1].copy(), f[i : i + 1].copy())
        linear = state.linear
        if self.linear is not None and linear is not None:
            linear = self.linear.observe(linear, x, f)
        return state._replace(linear=linear, spent=state.spent + len(f), best=tuple(best), seen=seen, elite=elite)

    @cached_property
    def _sizes(self) -> dict[Combination, float]:
        return {}

    def _size(self, key: Combination) -> float:
        """Return the number of points of a combination; inf with a continuum or further conditions."""
        if key not in self._sizes:
            family = self.part(key)[0].family
            conditional = isinstance(family, Conditional)
            self._sizes[key] = 1.0 if family is None else math.inf if conditional else number_of_points(family)
        return self._sizes[key]

    def _next(self, state: BranchState) -> BranchState:
        """Return the state with the next turn: that of the branch with the fewest evaluations relative to its share."""
        shares = self._shares(state)
        state = state._replace(theta=self.branches.weighted(state.theta, shares))
        order = sorted(range(len(shares)), key=lambda b: state.n[b] / shares[b])
        stream = Stream(state.spent)  # the same for all seeds, since `lam` depends on the combination and draws nothing
        u = self._uniforms(stream)
        for branch in order:
            key = self.branches.combine(branch, state.best, u)
            if not self._exhausted(state, key):
                return self._at(state, branch, key)
        for _ in range(TRIED):
            u = self._uniforms(stream)
            u[:, 0] = 0.0  # all from the prior
            key = self.branches.combine(order[0], state.best, u)
            if not self._exhausted(state, key):
                break
        return self._at(state, order[0], key)

    def _uniforms(self, stream: Stream) -> Array:
        nodes = len(self.branches.columns)
        return np.ldexp(stream.words(2 * nodes).astype(float), -64).reshape(nodes, 2)

    def _shares(self, state: BranchState) -> list[float]:
        """Return the share of each branch in the evaluations of its column: 1/r for the r-th best, times its prior."""
        shares = [0.0] * len(state.n)
        for own in self.branches.of_node:
            ranked = enumerate(sorted(own, key=lambda b: state.best[b]), start=1)
            each = {b: self.branches.each[b].prior / rank for rank, b in ranked}
            for b, share in each.items():
                shares[b] = share / sum(each.values())
        return shares

    def _exhausted(self, state: BranchState, key: Combination) -> bool:
        """Return whether all points of a combination were evaluated."""
        return key in state.seen and len(state.seen[key].points) >= self._size(key)

    def _at(self, state: BranchState, branch: int, key: Combination) -> BranchState:
        """Return the state with this turn; the algorithm of the combination continues with the θ of all."""
        part, algorithm = self.part(key)
        state = state._replace(turn=(branch, key))
        if algorithm is None:
            return state
        theta = state.theta[part.parameters]
        seen = state.seen.get(key)
        if seen is not None and seen.repeats >= REPEATS:
            # From here on with a θ of its own: the other combinations are not at their end.
            seen = seen._replace(repeats=0, restarts=seen.restarts + 1)
            state = state._replace(seen={**state.seen, key: seen})
            own = algorithm.init()
        elif state.restarts(key):
            own = state.states[key]
        elif key in state.states:
            own = with_theta(algorithm, state.states[key], theta)
        else:
            own = algorithm.init(theta)
            if len(state.elite.f) and self.branches.combination_of(state.elite.x[0]) == key:
                own = algorithm.inject(own, state.elite.x[0, part.columns], float(state.elite.f[0]))
        return state._replace(states={**state.states, key: own})

    def inject(self, state: BranchState, x: Points, f: float) -> BranchState:
        """Return the same state: a point of another algorithm is already observed."""
        return state

    def observe(self, state: BranchState, x: Points, f: Array) -> BranchState:
        """Return the state with the best values of the branches."""
        return self._count(state, x, f) if len(f) else state

    def can_yield(self, state: BranchState) -> bool:
        """Return True: an iteration depends on the state alone."""
        return True

    def info(self, state: BranchState) -> AlgorithmInfo:
        """Return what can be observed of the algorithm whose turn it is, with the θ of all."""
        if state.turn is None:
            return self.loop.info(state.loop)._replace(lam=self.lam(state))
        algorithm = self.part(state.turn[1])[1]
        if algorithm is None:
            return AlgorithmInfo(state.theta, self.lam(state), math.nan, math.nan, math.nan)
        return algorithm.info(state.states[state.turn[1]])._replace(theta=state.theta)

    def at_least(self, lam: int) -> Self:
        """Return the same search with at least `lam` points per iteration."""
        linear = None if self.linear is None else self.linear.at_least(lam)
        return replace(self, loop=self.loop.at_least(lam), linear=linear, batch=max(self.batch, lam))


def with_theta(algorithm: Member, state: Any, theta: Array) -> Any:
    """Return the state of a loop, or of a portfolio that ends with one, with other parameters."""
    if isinstance(algorithm, Portfolio):
        last = with_theta(algorithm.members[-1], state.members[-1], theta)
        return state._replace(members=(*state.members[:-1], last))
    if isinstance(state, State):
        return state._replace(theta=algorithm.family.move(theta, np.zeros(len(theta))))
    return state
