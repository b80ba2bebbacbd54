"""A portfolio of algorithms that share the budget of evaluations in turns.

After an iteration in which the current member can yield (`can_yield`), the next turn goes to the member with the fewest
evaluations, where those of the leading member count an eighth. The leading member is the one with the lowest value
after the same number of evaluations each: the largest power of two that all members have reached. Below 16, the first
member leads. Of k members, one that is best in the end thereby has at least one in k + 7 evaluations until it leads,
and 8 in k + 7 afterwards. Before each member has the number of evaluations that is given as `equal`, none leads: an
advantage in the first evaluations may not last. The best point is injected into a member whose iteration did not
improve on it, and every evaluation is observed by all other members.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from knobless._checks import positive_int

from .algorithm import AlgorithmInfo, AnyState, Member, is_exact
from .elitism import Elite
from .families import Family
from .rng import RNG
from .types import Array, Points

LEAD = 8  # evaluations of the leading member for each one of another
LEAST_COMPARED = 16  # evaluations of each member from which on their values are compared
MOST_EQUAL = 2**62  # evaluations before one may lead, at most: an integer of 64 bits in the compiled engine


class MemberRecord(NamedTuple):
    """The evaluations of a member.

    Attributes
    ----------
    spent : int
        Number of evaluations.
    lowest : float
        The lowest value.
    course : tuple of float
        The lowest value after 1, 2, 4, 8, … evaluations.
    """

    spent: int = 0
    lowest: float = math.inf
    course: tuple[float, ...] = ()

    def after(self, f: Array, least: float) -> MemberRecord:
        """Return the record after another iteration, whose lowest value is `least`; NaN is no value."""
        spent, lowest, course = self
        while spent + len(f) >= 1 << len(course):
            course += (min(lowest, _lowest(f[: (1 << len(course)) - spent])),)
        return MemberRecord(spent + len(f), min(lowest, least), course)


def _lowest(f: Array) -> float:
    """Return the lowest value; inf if there is none."""
    lowest = f.item() if len(f) == 1 else float(np.fmin.reduce(f, initial=math.inf))
    return lowest if lowest == lowest else math.inf


def next_turn(records: tuple[MemberRecord, ...], equal: int = 0) -> int:
    """Return the member that has the next turn, the first in case of ties."""
    spent = [record.spent for record in records]
    fewest = min(spent)
    if fewest < equal:
        return spent.index(fewest)
    values = [record.course[fewest.bit_length() - 1] if fewest >= LEAST_COMPARED else math.inf for record in records]
    leading = values.index(min(values))
    cost = [record.spent * (1 if i == leading else LEAD) for i, record in enumerate(records)]
    return cost.index(min(cost))


class PortfolioState(NamedTuple):
    """State of a portfolio.

    Attributes
    ----------
    members : tuple
        States of the members.
    turn : int
        Index of the current member.
    records : tuple of MemberRecord
        The evaluations of each member.
    best : Elite
        The best point.
    owner : int
        Index of the member that found it.
    """

    members: tuple[Any, ...]
    turn: int
    records: tuple[MemberRecord, ...]
    best: Elite
    owner: int

    @property
    def theta(self) -> Array:
        """Parameters of the last member."""
        last: AnyState = self.members[-1]
        return last.theta

    def copy(self) -> PortfolioState:
        """Return a copy that does not change with this state."""
        members = tuple(member.copy() for member in self.members)
        return self._replace(members=members, best=self.best.copy())


@dataclass(frozen=True)
class Portfolio:
    """Several algorithms for one family that share the evaluations in turns.

    Parameters
    ----------
    members : tuple of Member
        The algorithms; ties in the order of turns are broken by their order here.
    equal : int
        Number of evaluations that each member has before one of them leads; until then, the next turn goes to the one
        with the fewest.

    Raises
    ------
    TypeError
        If a member is not an algorithm with the methods `inject`, `observe` and `can_yield`.
    ValueError
        If there are no members, members for different families, or `equal` is negative or above 2⁶².

    Notes
    -----
    What can be observed, such as θ and ε, is that of the last member; λ is that of the current member.
    """

    members: tuple[Member, ...]
    equal: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.members, tuple) or not all(isinstance(member, Member) for member in self.members):
            expected = "a tuple of algorithms that have the methods inject, observe and can_yield"
            raise TypeError(f"members: expected {expected}, got {self.members!r:.200}")
        if not self.members:
            raise ValueError("members: expected at least one algorithm, got none")
        if any(member.family != self.members[0].family for member in self.members):
            raise ValueError("members: expected algorithms for one family")
        if positive_int("equal", self.equal, least=0) > MOST_EQUAL:
            raise ValueError(f"equal: expected at most {MOST_EQUAL}, got {self.equal}")

    @property
    def family(self) -> Family:
        """Family of the points."""
        return self.members[0].family

    @property
    def exact(self) -> bool:
        """Whether all members draw the same points on every machine."""
        return all(map(is_exact, self.members))

    def init(self, theta: Array | None = None, x0: Points | None = None) -> PortfolioState:
        """Return the initial states of all members, with the first turn for the first one."""
        members = tuple(member.init(theta, x0) for member in self.members)
        return PortfolioState(members, 0, (MemberRecord(),) * len(members), Elite.empty(self.family), 0)

    def lam(self, state: PortfolioState) -> int:
        """Return the number of points of the current iteration."""
        return self.members[state.turn].lam(state.members[state.turn])

    def ask(self, state: PortfolioState, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        """Return points of the current member."""
        return self.members[state.turn].ask(state.members[state.turn], rng, size, start)

    def tell(self, state: PortfolioState, x: Points, f: Array) -> PortfolioState:
        """Return the state after an iteration of the current member."""
        states, turn, records, best, owner = state
        member = self.members[turn]
        after = member.tell(states[turn], x, f)
        lowest = _lowest(f)
        if lowest < (best.f.item() if len(best.f) else math.inf):
            i = int((f == lowest).argmax())
            best, owner = Elite(x[i : i + 1].copy(), f[i : i + 1].copy()), turn
        elif owner != turn and len(best.f):
            after = member.inject(after, best.x[0], float(best.f[0]))
        each, about = list(states), list(records)
        for i, other in enumerate(self.members):
            if i == turn:
                each[i], about[i] = after, about[i].after(f, lowest)
            else:
                each[i] = other.observe(each[i], x, f)
        records = tuple(about)
        turn = next_turn(records, self.equal) if member.can_yield(after) else turn
        return PortfolioState(tuple(each), turn, records, best, owner)

    def inject(self, state: PortfolioState, x: Points, f: float) -> PortfolioState:
        """Return the state with the point injected into all members."""
        members = tuple(member.inject(each, x, f) for member, each in zip(self.members, state.members, strict=True))
        return state._replace(members=members)

    def observe(self, state: PortfolioState, x: Points, f: Array) -> PortfolioState:
        """Return the state with the evaluations observed by all members."""
        members = tuple(member.observe(each, x, f) for member, each in zip(self.members, state.members, strict=True))
        return state._replace(members=members)

    def can_yield(self, state: PortfolioState) -> bool:
        """Return whether the current member can yield."""
        return self.members[state.turn].can_yield(state.members[state.turn])

    def info(self, state: PortfolioState) -> AlgorithmInfo:
        """Return what can be observed of the last member, with λ of the current one."""
        return self.members[-1].info(state.members[-1])._replace(lam=self.lam(state))

    def at_least(self, lam: int) -> Self:
        """Return the same portfolio with at least `lam` points per iteration of each member."""
        return replace(self, members=tuple(member.at_least(lam) for member in self.members))
