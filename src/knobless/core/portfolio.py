"""A team of algorithms: they take turns, each call going to the one that has earned most lately.

Whoever has found something better than all had before goes on. One that rests (see `Algorithm.rests`) hands over to the
one that has spent the fewest calls since it last improved on what the whole team had: so a member that leads is not
disturbed, and when nobody leads all spend alike, which costs at most as many times the calls of the best one as there
are members. The best point is shared: a member whose turn ends behind the others hears of it.

The last member speaks for the team: θ and ε are its own; λ is that of the one whose turn it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from .adaptation import Signal
from .algorithm import Algorithm, AnyState
from .elitism import Kept
from .families import Family
from .types import Array, Points


class TeamState(NamedTuple):
    """The states of the members, whose turn it is, what each has spent since it led, and who holds the best point."""

    members: tuple[Any, ...]
    turn: int
    idle: tuple[int, ...]
    best: Kept | None
    owner: int

    @property
    def theta(self) -> Array:
        speaker: AnyState = self.members[-1]
        return speaker.theta

    @property
    def signal(self) -> Signal:
        speaker: AnyState = self.members[-1]
        return speaker.signal

    def copy(self) -> TeamState:
        members = tuple(member.copy() for member in self.members)
        return self._replace(members=members, best=self.best and self.best.copy())


@dataclass(frozen=True)
class Team:
    """Algorithms for one family that take turns; of equals the first goes first."""

    members: tuple[Algorithm, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.members, tuple) or not all(isinstance(member, Algorithm) for member in self.members):
            raise TypeError(f"members: expected a tuple of algorithms, got {self.members!r:.200}")
        if not self.members:
            raise ValueError("members: expected at least one algorithm, got none")
        if any(member.family != self.members[0].family for member in self.members):
            raise ValueError("members: expected algorithms for one family")

    @property
    def family(self) -> Family:
        return self.members[0].family

    def init(self, theta: Array | None = None, x0: Points | None = None) -> TeamState:
        members = tuple(member.init(theta, x0) for member in self.members)
        return TeamState(members, 0, (0,) * len(members), None, 0)

    def lam(self, state: TeamState) -> int:
        return self.members[state.turn].lam(state.members[state.turn])

    def ask(self, state: TeamState, rng: np.random.Generator, size: int | None = None, start: int = 0) -> Points:
        return self.members[state.turn].ask(state.members[state.turn], rng, size, start)

    def tell(self, state: TeamState, x: Points, f: Array) -> TeamState:
        states, turn, idle, best, owner = state
        member = self.members[turn]
        after = member.tell(states[turn], x, f)
        spent = idle[turn] + len(f)
        lowest = float(f[0] if len(f) == 1 else np.fmin.reduce(f, initial=math.inf))
        if lowest < (math.inf if best is None else best.f):
            i = int((f == lowest).argmax())
            best, owner, spent = Kept(x[i].copy(), lowest), turn, len(f) - 1 - i
        elif owner != turn and best is not None:
            after = member.hear(after, best.x, best.f)
        states = (*states[:turn], after, *states[turn + 1 :])
        idle = (*idle[:turn], spent, *idle[turn + 1 :])
        return TeamState(states, idle.index(min(idle)) if member.rests(after) else turn, idle, best, owner)

    def hear(self, state: TeamState, x: Points, f: float) -> TeamState:
        members = tuple(member.hear(each, x, f) for member, each in zip(self.members, state.members, strict=True))
        return state._replace(members=members)

    def rests(self, state: TeamState) -> bool:
        return self.members[state.turn].rests(state.members[state.turn])

    def eps(self, state: TeamState) -> float:
        return self.members[-1].eps(state.members[-1])

    def snr(self, state: TeamState) -> float:
        return self.members[-1].snr(state.members[-1])

    def at_least(self, lam: int) -> Self:
        return replace(self, members=tuple(member.at_least(lam) for member in self.members))
