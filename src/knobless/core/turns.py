"""Turns: which member of a search is next, and the group of members of one space.

After an iteration in which the current member can yield (`can_yield`), the next turn goes by one of
two rules. `Lead` gives it to the member with the fewest evaluations, where those of the leading
member count an eighth. The leading member is the one with the lowest value after the same number of
evaluations each: the largest power of two that all members have reached. Below 16, the first member
leads. With k members, the one that is best in the end has at least one in k + 7 evaluations until
it leads, and 8 in k + 7 afterwards. Under noise the lowest value depends on chance, and `Shares`
gives each member a fixed share of the evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from knobless._checks import positive_int

from .archive import elite_data, elite_of
from .data import floats, listed, text, whole_at
from .elitism import Elite
from .families import Family
from .member import Member
from .types import Array, Points

LEAD = 8  # evaluations of the leading member for each one of another
# Evaluations of each member from which on their values are compared
LEAST_COMPARED = 16
MOST_EQUAL = 2**62  # evaluations before one may lead, at most


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

    def after(self, f: Array, lowest_value: float) -> MemberRecord:
        """Return the record after another iteration.

        `lowest_value` is the lowest of its values f; NaN is no value.
        """
        spent, lowest, course = self
        # The lowest value after 2^k evaluations, for each k that these evaluations reach.
        while spent + len(f) >= 1 << len(course):
            course += (min(lowest, lowest_of(f[: (1 << len(course)) - spent])),)
        return MemberRecord(spent + len(f), min(lowest, lowest_value), course)

    def data(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return {
            "spent": self.spent,
            "values": text(np.array([*self.course, self.lowest])),
        }

    @classmethod
    def of(cls, data: Any) -> MemberRecord:
        """Return the record that `data` described; ValueError for other data."""
        spent = whole_at(data, "spent")
        values = floats(data, "values")
        if (
            len(values) != 1 + spent.bit_length()
            or np.isnan(values).any()
            or (values[1:] > values[:-1]).any()
        ):
            raise ValueError(
                "values: expected the lowest values after 1, 2, 4, … evaluations"
            )
        *course, lowest = values.tolist()
        return cls(spent, lowest, tuple(course))


def lowest_of(f: Array) -> float:
    """Return the lowest value; inf if there is none."""
    lowest = (
        f.item() if len(f) == 1 else float(np.fmin.reduce(f, initial=math.inf))
    )
    return lowest if lowest == lowest else math.inf


@dataclass(frozen=True)
class Lead:
    """The member with the fewest evaluations is next; those of the leading member count an eighth.

    Parameters
    ----------
    equal : int
        Number of evaluations that each member has before one of them leads: an advantage in the
        first evaluations may not last.

    Examples
    --------
    The second member has the lower value after 16 evaluations each, so it leads:

    >>> import numpy as np
    >>> records = [MemberRecord().after(np.full(16, value), value) for value in (3.0, 1.0)]
    >>> Lead().next(records), Lead().keeps(records, 1)
    (1, 16)
    """

    equal: int = 0

    def __post_init__(self) -> None:
        if positive_int("equal", self.equal, least=0) > MOST_EQUAL:
            raise ValueError(
                f"equal: expected at most {MOST_EQUAL}, got {self.equal}"
            )

    def next(self, records: Sequence[MemberRecord]) -> int:
        """Return the index of the member that has the next turn, the first in case of ties."""
        cost = self._cost(records)[0]
        return cost.index(min(cost))

    def keeps(self, records: Sequence[MemberRecord], turn: int) -> float:
        """Return a number of evaluations for which the member certainly keeps the turn.

        It is at least 1 and does not depend on the values of these evaluations.
        """
        cost, costs = self._cost(records)
        next_lowest = min(
            (n for i, n in enumerate(cost) if i != turn), default=math.inf
        )
        n_more = (next_lowest - cost[turn]) / costs[turn]
        fewest = min(record.spent for record in records)
        mine = records[turn].spent
        # Another member may lead when all have reached the next power of two, or `equal`
        if mine == fewest:
            n_more = min(
                n_more,
                (self.equal if fewest < self.equal else 1 << mine.bit_length())
                - mine,
            )
        return max(n_more, 1)

    def _cost(
        self, records: Sequence[MemberRecord]
    ) -> tuple[list[int], list[int]]:
        """Return the cost of the evaluations of each member, and of a further one."""
        spent = [record.spent for record in records]
        fewest = min(spent)
        if fewest < self.equal:
            return spent, [1] * len(spent)
        # All members have at least 2^power evaluations: compare their lowest values after so many.
        power = fewest.bit_length() - 1
        values = [
            record.course[power] if fewest >= LEAST_COMPARED else math.inf
            for record in records
        ]
        weights = [LEAD] * len(spent)
        weights[values.index(min(values))] = 1
        return [n * k for n, k in zip(spent, weights, strict=True)], weights


@dataclass(frozen=True)
class Shares:
    """The member with the fewest evaluations relative to its share is next.

    Parameters
    ----------
    shares : tuple of int
        Evaluations of each member, relative to those of the others.

    Examples
    --------
    >>> Shares((1, 3)).next([MemberRecord(spent=1), MemberRecord(spent=2)])
    1
    """

    shares: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.shares, tuple):
            raise TypeError(
                f"shares: expected a tuple of integers, got {self.shares!r:.100}"
            )
        for share in self.shares:
            positive_int("shares", share)

    def next(self, records: Sequence[MemberRecord]) -> int:
        """Return the index of the member that has the next turn."""
        # Evaluations in units of the share.
        relative = [
            record.spent / share
            for record, share in zip(records, self.shares, strict=True)
        ]
        return max(range(len(relative)), key=lambda i: (-relative[i], i))

    def keeps(self, records: Sequence[MemberRecord], turn: int) -> float:
        """Return 1: each evaluation may be the last one of a turn."""
        return 1


class Group(NamedTuple):
    """The states of members that share the evaluations of one space.

    Attributes
    ----------
    states : tuple
        States of the members.
    turn : int
        Index of the member that has the turn.
    records : tuple of MemberRecord
        The evaluations of each member.
    best : Elite
        The best point of their evaluations.
    owner : int
        Index of the member that found it; the number of members if it was found elsewhere.
    """

    states: tuple[Any, ...]
    turn: int
    records: tuple[MemberRecord, ...]
    best: Elite
    owner: int

    @classmethod
    def begin(
        cls, states: tuple[Any, ...], family: Family, rule: Lead | Shares
    ) -> Group:
        """Return the group before its first turn."""
        records = (MemberRecord(),) * len(states)
        return cls(states, rule.next(records), records, Elite.empty(family), 0)

    def tell(
        self,
        members: Sequence[Member[Any]],
        rule: Lead | Shares,
        x: Points,
        f: Array,
        at: int | None = None,
    ) -> Group:
        """Return the group after an iteration of a member, the one that has the turn by default.

        The best point of the group is injected into a member whose iteration did not improve on it.
        The turn may pass after an iteration of the member that has it.
        """
        states, turn, records, best, owner = self
        at = turn if at is None else at
        member = members[at]
        state = member.tell(states[at], x, f)
        lowest = lowest_of(f)
        # A new best point belongs to the current member.
        if lowest < (best.f.item() if len(best.f) else math.inf):
            row = int((f == lowest).argmax())
            best = Elite(x[row : row + 1].copy(), f[row : row + 1].copy())
            owner = at
        elif owner != at and len(best.f):
            state = member.inject(state, best.x[0], float(best.f[0]))
        states = (*states[:at], state, *states[at + 1 :])
        records = (
            *records[:at],
            records[at].after(f, lowest),
            *records[at + 1 :],
        )
        turn = (
            rule.next(records)
            if at == turn and member.can_yield(state)
            else turn
        )
        return Group(states, turn, records, best, owner)

    def inject(
        self, members: Sequence[Member[Any]], x: Points, f: float
    ) -> Group:
        """Return the group with a point injected into all members."""
        states = (
            member.inject(state, x, f)
            for member, state in zip(members, self.states, strict=True)
        )
        return self._replace(states=tuple(states))

    def led_by(self, x: Points, f: float) -> Group:
        """Return the group with a point from elsewhere as its best.

        The point is injected into each member after the next iteration of that member.
        """
        if not f < (self.best.f.item() if len(self.best.f) else math.inf):
            return self
        return self._replace(
            best=Elite(x[None].copy(), np.array([f])), owner=len(self.states)
        )

    def data(
        self, members: Sequence[Member[Any]], family: Family
    ) -> dict[str, Any]:
        """Return the group as plain data."""
        return {
            "states": [
                member.data(state)
                for member, state in zip(members, self.states, strict=True)
            ],
            "turn": self.turn,
            "records": [record.data() for record in self.records],
            "best": elite_data(self.best, family),
            "owner": self.owner,
        }

    def restore(
        self, members: Sequence[Member[Any]], family: Family, data: Any
    ) -> Group:
        """Return the group that `data` described, given one before its first turn.

        ValueError for other data.
        """
        states = listed(data, "states")
        records = tuple(map(MemberRecord.of, listed(data, "records")))
        turn = whole_at(data, "turn")
        owner = whole_at(data, "owner")
        best = elite_of(data["best"], family)
        if (
            not len(states)
            == len(records)
            == len(members)
            > max(turn, owner - 1)
            or len(best.f) > 1
        ):
            raise ValueError(
                f"states: expected those of {len(members)} members"
            )
        stored = zip(members, self.states, states, strict=True)
        return Group(
            tuple(member.restore(*pair) for member, *pair in stored),
            turn,
            records,
            best,
            owner,
        )
