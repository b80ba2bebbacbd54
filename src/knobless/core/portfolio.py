"""A portfolio of algorithms that share the budget of evaluations in turns.

The member that improves on the best value goes on. At a point where it can yield (`can_yield`), the next turn goes to
the member with the fewest evaluations since it last improved the portfolio's best value. A member that leads is
therefore not interrupted, and without a leader all members spend alike: at most the number of members times the
evaluations of the best one. The best point is shared: it is injected into a member whose turn ends behind the others.

θ and ε of the portfolio are those of the last member; λ is that of the member whose turn it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from .algorithm import AlgorithmInfo, AnyState, Member
from .elitism import Elite
from .families import Family
from .rng import RNG
from .types import Array, Points


class PortfolioState(NamedTuple):
    """The states of the members, whose turn it is, what each has spent since it led, and who holds the best point."""

    members: tuple[Any, ...]
    turn: int
    idle: tuple[int, ...]
    best: Elite
    owner: int

    @property
    def theta(self) -> Array:
        last: AnyState = self.members[-1]
        return last.theta

    def copy(self) -> PortfolioState:
        members = tuple(member.copy() for member in self.members)
        return self._replace(members=members, best=self.best.copy())


@dataclass(frozen=True)
class Portfolio:
    """Algorithms for one family that take turns; of equals the first goes first."""

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.members, tuple) or not all(isinstance(member, Member) for member in self.members):
            expected = "a tuple of algorithms that have the methods inject and can_yield"
            raise TypeError(f"members: expected {expected}, got {self.members!r:.200}")
        if not self.members:
            raise ValueError("members: expected at least one algorithm, got none")
        if any(member.family != self.members[0].family for member in self.members):
            raise ValueError("members: expected algorithms for one family")

    @property
    def family(self) -> Family:
        return self.members[0].family

    def init(self, theta: Array | None = None, x0: Points | None = None) -> PortfolioState:
        members = tuple(member.init(theta, x0) for member in self.members)
        return PortfolioState(members, 0, (0,) * len(members), Elite.empty(self.family), 0)

    def lam(self, state: PortfolioState) -> int:
        return self.members[state.turn].lam(state.members[state.turn])

    def ask(self, state: PortfolioState, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        return self.members[state.turn].ask(state.members[state.turn], rng, size, start)

    def tell(self, state: PortfolioState, x: Points, f: Array) -> PortfolioState:
        states, turn, idle, best, owner = state
        member = self.members[turn]
        after = member.tell(states[turn], x, f)
        spent = idle[turn] + len(f)
        lowest = float(f[0] if len(f) == 1 else np.fmin.reduce(f, initial=math.inf))
        if lowest < (best.f[0] if len(best.f) else math.inf):
            i = int((f == lowest).argmax())
            best, owner, spent = Elite(x[i : i + 1].copy(), f[i : i + 1].copy()), turn, len(f) - 1 - i
        elif owner != turn and len(best.f):
            after = member.inject(after, best.x[0], float(best.f[0]))
        states = (*states[:turn], after, *states[turn + 1 :])
        idle = (*idle[:turn], spent, *idle[turn + 1 :])
        return PortfolioState(states, idle.index(min(idle)) if member.can_yield(after) else turn, idle, best, owner)

    def inject(self, state: PortfolioState, x: Points, f: float) -> PortfolioState:
        members = tuple(member.inject(each, x, f) for member, each in zip(self.members, state.members, strict=True))
        return state._replace(members=members)

    def can_yield(self, state: PortfolioState) -> bool:
        return self.members[state.turn].can_yield(state.members[state.turn])

    def info(self, state: PortfolioState) -> AlgorithmInfo:
        return self.members[-1].info(state.members[-1])._replace(lam=self.lam(state))

    def at_least(self, lam: int) -> Self:
        return replace(self, members=tuple(member.at_least(lam) for member in self.members))
