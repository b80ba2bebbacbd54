"""A search: members that read one archive of evaluations, and a rule that gives out turns.

An iteration of a search is one of a member. Who has the next one is decided after each, in this
order:

1. A stage: the first evaluations belong to one member after the other, each until the run has a
   number of evaluations or the member has ended.
2. A study, which interrupts the members once.
3. A member, by the rule of turns (`turns.py`). In a conditional space, the turn goes to a
   combination of branches first (`branching.py`), whose part of the space has members of its own.

All evaluations are in the archive, those of every member. The members begin where the stages have
ended: at the best point, or under noise at θ.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from knobless._checks import positive_int

from .algorithm import (
    MEMBER,
    STAGE,
    STUDY,
    AlgorithmInfo,
    Owner,
    is_exact,
    most_points,
    overlaps,
)
from .archive import COPIED, Archive
from .branches import Combination, Part
from .branching import Branching, BranchTurns
from .conditional import Conditional
from .data import listed, octets, whole_at
from .families import Family
from .member import Member
from .rng import RNG, Stream
from .study import QuadraticStudy, Study
from .turns import Group, Lead, Shares
from .types import Array, Mask, Points

LEAD_AT_ONCE = Lead()
WHOLE: Combination = ()  # the combination of a space without branches

Members = tuple[Member[Any], ...]


class MembersOfPart(Protocol):
    """Protocol of functions that return the members for a part of a conditional space."""

    @property
    def deterministic(self) -> bool:
        """Whether the objective is deterministic.

        A part is then left when all its points were evaluated, and restarted when it yields no new
        ones.
        """

    def __call__(self, family: Family) -> Members:
        """Return the members for the family of a part."""


@dataclass(frozen=True)
class Stage:
    """The first evaluations of a search.

    Parameters
    ----------
    member : Member
        The member that asks for them.
    until : float
        Number of evaluations of the search after which the stage ends; it also ends if the state of
        the member has an attribute `ended` that is True.
    """

    member: Member[Any]
    until: float = math.inf

    def __post_init__(self) -> None:
        is_number = isinstance(self.until, int | float)
        if isinstance(self.until, bool) or not is_number:
            raise TypeError(
                f"until: expected a number of evaluations, got {self.until!r:.100}"
            )
        if not self.until >= 0:
            raise ValueError(
                f"until: expected a number of evaluations, got {self.until}"
            )


class SearchState(NamedTuple):
    """State of a search.

    Attributes
    ----------
    archive : Archive
        All evaluations.
    first : array
        Initial parameters.
    x0 : array or None
        The point from which the search starts, and later the one from which the members have
        started.
    n : int
        Number of evaluations told, and of those in the archive before.
    stages : tuple
        States of the members of the stages; None before the first turn.
    stage : int
        Index of the current stage; the number of stages if they are over.
    study : Study or None
        The study, while it interrupts the members.
    studied : bool
        Whether it has ended.
    before : int
        Number of different points that were evaluated before the members began.
    groups : mapping
        For each combination of branches that had a turn, its members; `WHOLE` is the one of a space
        without branches.
    turns : BranchTurns or None
        The turns among branches.
    """

    archive: Archive
    first: Array
    x0: Points | None
    n: int
    stages: tuple[Any, ...]
    stage: int = 0
    study: Study | None = None
    studied: bool = False
    before: int = 0
    groups: Mapping[Combination, Group] = {}
    turns: BranchTurns | None = None

    @property
    def theta(self) -> Array:
        """Parameters of the last member, in a space with branches of all of them.

        Before, those of the first stage.
        """
        if self.turns is not None:
            return self.turns.theta
        shown: Any = (
            self.groups[WHOLE].states[-1] if self.groups else self.stages[0]
        )
        theta: Array = shown.theta
        return theta

    @property
    def begun(self) -> bool:
        """Whether the stages are over and the members share the turns."""
        return bool(self.groups) or self.turns is not None

    def copy(self) -> SearchState:
        """Return a copy that does not change with this state."""
        archive = self.archive.copy()

        def copied(state: Any) -> Any:
            if state is None:
                return None
            if hasattr(state, "archive"):
                return state.copy(archive)
            return state.copy()

        groups = {
            key: group._replace(
                states=tuple(map(copied, group.states)), best=group.best.copy()
            )
            for key, group in self.groups.items()
        }
        return self._replace(
            archive=archive,
            stages=tuple(map(copied, self.stages)),
            groups=groups,
        )


@dataclass(frozen=True)
class Search:
    """Members that share the evaluations of a run.

    Parameters
    ----------
    members : tuple of Member
        Algorithms for one family that share the turns; ties in the order of turns are broken by
        their order here.
    rule : Lead or Shares
        Which of them has the next turn.
    stages : tuple of Stage
        Members that have the first evaluations.
    study : QuadraticStudy, optional
        Evaluations that interrupt the members once.
    parts : MembersOfPart, optional
        The members for the family of each part of a conditional space; `members` is then empty.
    deterministic : bool
        Whether equal points have equal values, so that the archive has each point once.
    batch : int
        Least number of points per iteration.

    Raises
    ------
    TypeError
        If a member lacks a method, or another argument is not of its type.
    ValueError
        If there are no members, or members, shares or a study for others.

    Notes
    -----
    What can be observed, such as θ and ε, is that of the last member, and of the first stage
    before; λ is that of the current iteration.
    """

    members: Members = ()
    rule: Lead | Shares = LEAD_AT_ONCE
    stages: tuple[Stage, ...] = ()
    study: QuadraticStudy | None = None
    parts: MembersOfPart | None = None
    deterministic: bool = True
    batch: int = 1

    def __post_init__(self) -> None:
        self._check_types()
        algorithms = self._every if isinstance(self.members, tuple) else (None,)
        if not all(isinstance(member, Member) for member in algorithms):
            expected = "a tuple of algorithms with the methods of a member, such as inject"
            raise TypeError(
                f"members: expected {expected}, got {self.members!r:.200}"
            )
        has_branches = (
            bool(algorithms)
            and self.branching is not None
            and bool(self.branching.branches.each)
        )
        if not (self.members or has_branches):
            raise ValueError(
                "members: expected at least one algorithm, got none"
            )
        if any(member.family != self.family for member in algorithms):
            raise ValueError("members: expected algorithms for one family")
        if has_branches and (self.members or not self.stages):
            raise ValueError(
                "parts: expected a search with stages and without members of the whole space"
            )
        if self.study is not None and self.study.family != self.family:
            raise ValueError(
                "study: expected one for the family of the members"
            )
        if isinstance(self.rule, Shares):
            n = len(self.members)
            n_shares = len(self.rule.shares)
            if n_shares != n:
                raise ValueError(f"rule: expected {n} shares, got {n_shares}")
        positive_int("batch", self.batch)

    def _check_types(self) -> None:
        """TypeError if an argument other than the members is not of its type."""
        stages = self.stages if isinstance(self.stages, tuple) else (None,)
        if not all(isinstance(stage, Stage) for stage in stages):
            raise TypeError(
                f"stages: expected a tuple of Stage, got {self.stages!r:.200}"
            )
        if not isinstance(self.rule, Lead | Shares):
            raise TypeError(
                f"rule: expected Lead or Shares, got {self.rule!r:.200}"
            )
        if not isinstance(self.study, QuadraticStudy | None):
            raise TypeError(
                f"study: expected a QuadraticStudy, got {self.study!r:.200}"
            )
        if self.parts is not None and not (
            callable(self.parts) and hasattr(self.parts, "deterministic")
        ):
            raise TypeError(
                "parts: expected a function of a family with `deterministic`, got "
                f"{self.parts!r:.200}"
            )

    @property
    def _every(self) -> Members:
        return (*(stage.member for stage in self.stages), *self.members)

    @property
    def family(self) -> Family:
        """Family of the points."""
        return self._every[0].family

    @property
    def exact(self) -> bool:
        """Whether the points are the same on every machine."""
        return all(map(is_exact, self._every))

    @cached_property
    def _reads_outcomes(self) -> bool:
        """Whether no member needs a rank of points with several objectives."""
        return all(
            getattr(member, "reads_outcomes", False) for member in self._every
        )

    @cached_property
    def branching(self) -> Branching | None:
        """The turns among the branches of a conditional space; None without them."""
        if self.parts is None or not isinstance(self.family, Conditional):
            return None
        return Branching(self.family, counts=self.parts.deterministic)

    @cached_property
    def _parts(self) -> dict[Combination, tuple[Part, Members]]:
        return {}

    def part(self, key: Combination) -> tuple[Part | None, Members]:
        """Return the part of the space that a combination has, and its members.

        The part is None for the whole space.

        There are none if the part is one point.
        """
        if self.parts is None or self.branching is None:
            return None, self.members
        if key not in self._parts:
            part = self.branching.branches.part(key)
            members = () if part.family is None else self.parts(part.family)
            self._parts[key] = (
                part,
                tuple(member.at_least(self.batch) for member in members),
            )
        return self._parts[key]

    def init(
        self,
        theta: Array | None = None,
        x0: Points | None = None,
        archive: Archive | None = None,
    ) -> SearchState:
        """Return the state before the first iteration.

        The evaluations of the search are added to `archive`, which may have earlier ones.
        """
        archive = (
            Archive(self.family, deterministic=self.deterministic)
            if archive is None
            else archive
        )
        first = self.family.initial() if theta is None else theta
        return self._next(
            SearchState(
                archive, first, x0, archive.n, (None,) * len(self.stages)
            )
        )

    def _current(self, state: SearchState) -> tuple[Member[Any] | None, Any]:
        """Return the member that has the turn, apart from the study, and its state.

        None for a part of one point.
        """
        return self._of(state, self._turn(state))

    def _of(
        self, state: SearchState, owner: Owner
    ) -> tuple[Member[Any] | None, Any]:
        """Return a member or the study, and its state; None for a part that is one point."""
        if owner.kind == STAGE:
            return self.stages[owner.number].member, state.stages[owner.number]
        if owner.kind == STUDY:
            return self.study, state.study  # type: ignore[return-value]  # which has its own `tell`
        members = self.part(owner.key)[1]
        if members:
            return (
                members[owner.number],
                state.groups[owner.key].states[owner.number],
            )
        return (None, None)

    def check_owner(self, state: SearchState, owner: Owner) -> None:
        """Check that an owner, possibly of an untrusted file, had a turn in this search.

        ValueError if not.
        """
        counts = {STAGE: len(self.stages), STUDY: 1, MEMBER: 0}
        if owner.kind == MEMBER and (
            owner.key in state.groups
            or (state.turns and not self.part(owner.key)[1])
        ):
            counts[MEMBER] = max(len(self.part(owner.key)[1]), 1)
        if owner.number >= counts.get(owner.kind, 0) or (
            owner.kind == STUDY and self.study is None
        ):
            raise ValueError(
                f"owner: expected a part of the search, got {owner}"
            )

    def _turn(self, state: SearchState) -> Owner:
        """Return the stage or the member that has the turn, apart from the study."""
        if state.stage < len(self.stages):
            return Owner(STAGE, state.stage)
        key = self._key(state)
        index = state.groups[key].turn if key in state.groups else 0
        return Owner(
            MEMBER,
            index,
            key,
            0 if state.turns is None else state.turns.restarts(key),
        )

    def owner(self, state: SearchState) -> Owner:
        """Return what has the turn."""
        if state.study is not None and self.study is not None:
            return Owner(STUDY)
        return self._turn(state)

    def proposer(
        self, state: SearchState, asked: Callable[[Owner], int]
    ) -> tuple[Owner | None, int]:
        """Return what proposes the next points, and how many at most.

        It is what has the turn, or the last member if that has asked for all of its iteration and
        cannot go on before it has the values. None if no member can.

        Parameters
        ----------
        state : SearchState
            State of the search.
        asked : callable
            Return how many points an owner has asked for since it was last told.

        Returns
        -------
        tuple of (Owner or None, int)
            What proposes, and the number of points.
        """
        owner = self.owner(state)
        member, current = self._of(state, owner)
        if member is None:
            return owner, self.batch
        limit = most_points(member, member.lam(current), asked(owner))
        if limit:
            return owner, limit
        if owner.kind != STAGE:
            owner = self._turn(state)
            last = owner._replace(number=len(self.part(owner.key)[1]) - 1)
            member, current = self._of(state, last)
            if overlaps(member):
                return last, most_points(
                    member, self.lam(state, last), asked(last)
                )
        return None, 1

    @staticmethod
    def _key(state: SearchState) -> Combination:
        return WHOLE if state.turns is None else state.turns.combination

    def lam(self, state: SearchState, owner: Owner | None = None) -> int:
        """Return the number of points of the current iteration, of what has the turn by default."""
        member, current = self._of(
            state, self.owner(state) if owner is None else owner
        )
        return self.batch if member is None else member.lam(current)

    def is_open(self, state: SearchState, owner: Owner) -> bool:
        """Return whether an owner still learns.

        A stage or a study that has ended does not, nor do restarted members.
        """
        if owner.kind == STAGE:
            return owner.number == state.stage < len(self.stages)
        if owner.kind == STUDY:
            return state.study is not None
        restarts = 0 if state.turns is None else state.turns.restarts(owner.key)
        return owner.kind == MEMBER and owner.restarts == restarts

    def ask(
        self,
        state: SearchState,
        rng: RNG,
        size: int | None = None,
        start: int = 0,
        fixed: Mask | None = None,
        owner: Owner | None = None,
    ) -> Points:
        """Return points of the current iteration of an owner, of what has the turn by default."""
        owner = self.owner(state) if owner is None else owner
        member, current = self._of(state, owner)
        part = self.part(owner.key)[0] if owner.kind == MEMBER else None
        size = self.lam(state, owner) if size is None else size
        if member is None:
            if part is not None:
                return np.tile(part.template, (size, 1))
            return state.archive.x(0, 0)
        if fixed is not None and getattr(member, "takes_fixed", False):
            return member.ask(current, rng, size, start, fixed)  # type: ignore[call-arg]
        points = member.ask(current, rng, size, start)
        return points if part is None else part.embed(points)

    def skip(
        self,
        state: SearchState,
        rng: Stream,
        size: int,
        start: int = 0,
        fixed: Mask | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Advance the stream as `ask` does: points that are known need not be asked for again."""
        member, current = self._of(
            state, self.owner(state) if owner is None else owner
        )
        if member is None:
            return
        # Not isinstance(member, SkippingMember), which takes as long as many points. Those of `ask`
        # are dropped.
        skip: Any = getattr(member, "skip", member.ask)
        if fixed is not None and getattr(member, "takes_fixed", False):
            skip(current, rng, size, start, fixed)
        else:
            skip(current, rng, size, start)

    def tell(
        self,
        state: SearchState,
        x: Points,
        f: Array,
        kinds: Iterable[int] | None = None,
    ) -> SearchState:
        """Return the state after an iteration; cancelled points are left out.

        `kinds` are those of the rows of the archive (see `Archive.add`).
        """
        state.archive.add(x, f, kinds)
        return self.learn(state, x, f)

    def learn(
        self,
        state: SearchState,
        x: Points,
        f: Array,
        owner: Owner | None = None,
    ) -> SearchState:
        """Return the state after iterations of an owner, by default of what has the turn.

        The archive has the evaluations already. Those of an owner that has ended may have the best
        point.
        """
        if state.archive.objectives > 1 and not self._reads_outcomes:
            f = state.archive.ranked(x, f)
        owner = self.owner(state) if owner is None else owner
        state = state._replace(n=state.n + len(f))
        if not self.is_open(state, owner):
            return self._led_by(self._counted(state, x, f), x, f)
        if owner.kind == STAGE:
            member, current = self._of(state, owner)
            states = [*state.stages]
            states[owner.number] = (
                current if member is None else member.tell(current, x, f)
            )
            return self._next(state._replace(stages=tuple(states)))
        if (
            owner.kind == STUDY
            and state.study is not None
            and self.study is not None
        ):
            study, best = self.study.tell(state.study, x, f)
            groups = dict(state.groups)
            if best is not None:
                groups[WHOLE] = groups[WHOLE].inject(
                    self.members, best.x[0], float(best.f[0])
                )
            return state._replace(
                study=study, studied=study is None, groups=groups
            )
        if self.branching is not None and state.turns is not None:
            return self._tell_branches(
                state, self.branching, state.turns, x, f, owner
            )
        group = state.groups[WHOLE]
        after = state._replace(
            groups={
                WHOLE: group.tell(self.members, self.rule, x, f, owner.number)
            }
        )
        return self._next(after) if owner.number == group.turn else after

    def _counted(self, state: SearchState, x: Points, f: Array) -> SearchState:
        """Return the state after evaluations from which no member learns."""
        if self.branching is not None and state.turns is not None and len(f):
            return state._replace(turns=self.branching.count(state.turns, x, f))
        return state

    def _led_by(self, state: SearchState, x: Points, f: Array) -> SearchState:
        """Return the state in which members may get the best of some points later."""
        groups = dict(state.groups)
        branching = self.branching
        for row in np.argsort(f)[
            : len(f) if groups and self.deterministic else 0
        ]:
            key = (
                WHOLE
                if branching is None
                else branching.branches.combination_of(x[row])
            )
            part = self.part(key)[0]
            if key in groups:
                columns = slice(None) if part is None else part.columns
                groups[key] = groups[key].led_by(x[row, columns], float(f[row]))
        return state._replace(groups=groups)

    def observe(
        self,
        state: SearchState,
        x: Points,
        f: Array,
        kinds: Iterable[int] | None = None,
    ) -> SearchState:
        """Return the state after evaluations that the search has not asked for.

        These are initial points, known ones, or the best one that was evaluated again.
        """
        state.archive.add(x, f, kinds)
        return self._counted(state, x, f)

    def add(
        self, state: SearchState, x: Points, f: Array, begun: bool
    ) -> SearchState:
        """Return the state after evaluations made elsewhere.

        Every member reads them in the archive. Before the first iteration, the search begins with
        them as it would have after making them; later, the best of them is injected into the
        members after their next iterations.
        """
        state = self.observe(state, x, f, bytes([COPIED]) * len(f))
        archive = state.archive
        if not begun:
            # Under noise, a single value does not make a point the best one.
            starts = (
                state.x0 is None
                and not self.stages
                and self.deterministic
                and len(archive.best.f) > 0
            )
            return self.init(
                state.first,
                archive.best.x[0].copy() if starts else state.x0,
                archive,
            )
        return self._led_by(state, x, f)

    def _next(self, state: SearchState) -> SearchState:
        """Return the state with the next turn."""
        for i in range(state.stage, len(self.stages)):
            member = self.stages[i].member
            until = self.stages[i].until
            if state.stages[i] is None:
                current = member.init(state.first, state.x0, state.archive)
                state = state._replace(
                    stages=(*state.stages[:i], current, *state.stages[i + 1 :]),
                    stage=i,
                )
            if state.n < until and not getattr(state.stages[i], "ended", False):
                return state._replace(stage=i)
        if not state.begun:
            state = self._begin(state._replace(stage=len(self.stages)))
        # The study interrupts the members once, when half of N evaluations were made.
        if self.study is None or state.studied or not self._can_yield(state):
            return state
        if self._spent(state) < self.study.begins_at:
            return state
        return state._replace(study=self.study.begin(state.groups[WHOLE].best))

    def _begin(self, state: SearchState) -> SearchState:
        """Return the state with the members started where the stages have arrived."""
        archive = state.archive
        best = state.archive.best
        if self.branching is not None:
            turns = self.branching.begin(state.stages[0].theta, archive)
            return self._turn_of_branch(
                state._replace(turns=turns), self.branching
            )
        if self.stages and isinstance(self.rule, Shares):
            # Under noise members continue with θ: it is what the stages have learned.
            theta = state.stages[-1].theta
            states = [
                member.continued(theta)
                if hasattr(member, "continued")
                else member.init(state.first, None, archive)
                for member in self.members
            ]
        else:
            if self.stages and len(best.f):
                state = state._replace(x0=best.x[0].copy())
            states = [
                member.init(state.first, state.x0, archive)
                for member in self.members
            ]
        group = Group.begin(tuple(states), self.family, self.rule)
        # Under noise, a single value does not make a point the best one
        if self.deterministic and len(best.f):
            group = group.inject(self.members, best.x[0], float(best.f[0]))
        return state._replace(before=len(archive), groups={WHOLE: group})

    def keeps(self, state: SearchState) -> float:
        """Return a number of evaluations, at least 1, for which a member certainly keeps the turn.

        The space has no branches, the stages are over, and there is no study.
        """
        group = state.groups[WHOLE]
        kept = self.rule.keeps(group.records, group.turn)
        if self.study is not None and not state.studied:
            kept = max(min(kept, self.study.begins_at - self._spent(state)), 1)
        return kept

    @staticmethod
    def _spent(state: SearchState) -> int:
        """Return the points evaluated before the members began, plus their evaluations."""
        return state.before + sum(
            [record.spent for record in state.groups[WHOLE].records]
        )

    def can_yield(self, state: SearchState) -> bool:
        """Return whether the member that has the turn can yield; False during a study."""
        return state.study is None and self._can_yield(state)

    def _can_yield(self, state: SearchState) -> bool:
        member, current = self._current(state)
        return member is None or member.can_yield(current)

    # Branches.

    def _tell_branches(
        self,
        state: SearchState,
        branching: Branching,
        turns: BranchTurns,
        x: Points,
        f: Array,
        owner: Owner,
    ) -> SearchState:
        """Return the state after an iteration of a member of one combination of branches."""
        if not len(f):
            return state
        turns = branching.count(turns, x, f)
        state = state._replace(turns=turns)
        # Told in any case, also if points were replaced
        rows: dict[Combination, list[int]] = {owner.key: []}
        for i, row in enumerate(x):
            rows.setdefault(branching.branches.combination_of(row), []).append(
                i
            )
        for key, which in rows.items():
            at = owner.number if key == owner.key else None
            state = self._tell_part(
                state, branching, key, x[which], f[which], at
            )
        if owner.key == turns.combination:
            return self._turn_of_branch(state, branching)
        return state

    def _tell_part(
        self,
        state: SearchState,
        branching: Branching,
        key: Combination,
        x: Points,
        f: Array,
        at: int | None,
    ) -> SearchState:
        """Return the state after evaluations of one combination, or of replaced points."""
        if state.turns is not None and key != state.turns.combination:
            state = self._with_group(state, branching, key)
        turns: BranchTurns = branching.spend(state.turns, key, len(f))  # type: ignore[arg-type]
        part, members = self.part(key)
        if part is None or not members:
            return state._replace(turns=turns)
        group = state.groups[key].tell(
            members, self.rule, x[:, part.columns], f, at
        )
        if not turns.restarts(key):
            theta = turns.theta.copy()
            theta[part.parameters] = group.states[-1].theta
            turns = turns._replace(theta=theta)
        return state._replace(turns=turns, groups={**state.groups, key: group})

    def _turn_of_branch(
        self, state: SearchState, branching: Branching
    ) -> SearchState:
        """Return the state with the turn of the next branch."""
        turns = branching.next(state.turns, state.n)  # type: ignore[arg-type]
        return self._with_group(
            state._replace(turns=turns), branching, turns.combination
        )

    def _with_group(
        self, state: SearchState, branching: Branching, key: Combination
    ) -> SearchState:
        """Return the state with the members of a combination, started where the search is."""
        part, members = self.part(key)
        turns = state.turns
        if part is None or turns is None or not members:
            return state
        theta = turns.theta[part.parameters]
        best = state.archive.best
        restarted = branching.restarted(turns, key)
        if restarted is not None:
            # From here on with a θ of its own: the other combinations are not at their end.
            state = state._replace(turns=restarted)
            group = Group.begin(
                tuple(member.init() for member in members),
                members[0].family,
                self.rule,
            )
        elif turns.restarts(key):
            return state
        elif key in state.groups:
            group = state.groups[key]
            last = members[-1]
            if hasattr(last, "at_theta"):
                group = group._replace(
                    states=(
                        *group.states[:-1],
                        last.at_theta(group.states[-1], theta),
                    )
                )
        else:
            group = Group.begin(
                tuple(member.init(theta) for member in members),
                members[0].family,
                self.rule,
            )
            if (
                len(best.f)
                and branching.branches.combination_of(best.x[0]) == key
            ):
                group = group.inject(
                    members, best.x[0, part.columns], float(best.f[0])
                )
        return state._replace(groups={**state.groups, key: group})

    def recommended(self, state: SearchState) -> Points | None:
        """Return the point that the model of a stage expects to be the best; None without one."""
        for stage, current in zip(self.stages, state.stages, strict=True):
            recommended = getattr(stage.member, "recommended", None)
            if recommended is not None and current is not None:
                point: Points | None = recommended(current)
                return point
        return None

    # What can be observed, and plain data.

    def info(self, state: SearchState) -> AlgorithmInfo:
        """Return what can be observed of the last member, with λ of this iteration.

        Before the members begin, it is that of the first stage.
        """
        lam = self.lam(state)
        if not state.begun:
            return self.stages[0].member.info(state.stages[0])._replace(lam=lam)
        key = self._key(state)
        members = self.part(key)[1]
        if not members:
            return AlgorithmInfo(state.theta, lam, math.nan, math.nan, math.nan)
        return (
            members[-1]
            .info(state.groups[key].states[-1])
            ._replace(theta=state.theta, lam=lam)
        )

    def at_least(self, lam: int) -> Self:
        """Return the same search with at least `lam` points per iteration."""
        return replace(
            self,
            members=tuple(member.at_least(lam) for member in self.members),
            stages=tuple(
                replace(stage, member=stage.member.at_least(lam))
                for stage in self.stages
            ),
            study=None if self.study is None else self.study.at_least(lam),
            batch=max(self.batch, lam),
        )

    def data(self, state: SearchState) -> dict[str, Any]:
        """Return the state as plain data, for `restore`."""
        stages = zip(self.stages, state.stages, strict=True)
        family = self.family
        groups = []
        for key, group in state.groups.items():
            members = self.part(key)[1]
            groups.append([list(key), group.data(members, members[0].family)])
        return {
            "archive": state.archive.data(),
            "x0": None
            if state.x0 is None
            else b64encode(family.pack(state.x0[None])).decode(),
            "n": state.n,
            "stages": [
                None if current is None else stage.member.data(current)
                for stage, current in stages
            ],
            "stage": state.stage,
            "study": None
            if state.study is None or self.study is None
            else self.study.data(state.study),
            "studied": state.studied,
            "before": state.before,
            "groups": groups,
            "turns": None
            if state.turns is None or self.branching is None
            else self.branching.data(state.turns),
        }

    def restore(self, state: SearchState, data: Any) -> SearchState:
        """Return the state that `data` described, from a state before the first iteration.

        `data` may be from an untrusted file; ValueError, TypeError or LookupError if it does not
        describe a state.
        """
        archive = state.archive
        family = self.family
        archive.restore(data["archive"])
        x0 = (
            None if data["x0"] is None else family.unpack(octets(data, "x0"))[0]
        )
        stage = whole_at(data, "stage")
        stored = listed(data, "stages")
        if len(stored) != len(self.stages) or stage > len(stored):
            raise ValueError(
                f"stages: expected the states of {len(self.stages)} members"
            )
        stages = tuple(
            None
            if values is None
            else at_stage.member.restore(
                at_stage.member.init(state.first, state.x0, archive), values
            )
            for at_stage, values in zip(self.stages, stored, strict=True)
        )
        if stage < len(stages) and stages[stage] is None:
            raise ValueError(
                "stages: expected the state of the member that has the turn"
            )
        turns = (
            None
            if data["turns"] is None or self.branching is None
            else self.branching.turns_of(data["turns"])
        )
        groups = {}
        for key, values in listed(data, "groups"):
            combination = (
                WHOLE
                if self.branching is None
                else self.branching.combination(key)
            )
            members = self.part(combination)[1]
            if not members:
                raise ValueError("groups: expected combinations with variables")
            whole_space = self.branching is None
            fresh = (
                m.init(state.first, x0, archive) if whole_space else m.init()
                for m in members
            )
            group = Group.begin(tuple(fresh), members[0].family, self.rule)
            groups[combination] = group.restore(
                members, members[0].family, values
            )
        study = (
            None
            if data["study"] is None or self.study is None
            else self.study.state_of(data["study"])
        )
        restored = SearchState(
            archive,
            state.first,
            x0,
            whole_at(data, "n"),
            stages,
            stage,
            study,
            data["studied"] is True,
            whole_at(data, "before"),
            groups,
            turns,
        )
        if stage == len(stages) and not self._has_turn(restored):
            raise ValueError(
                "groups: expected the state of the member that has the turn"
            )
        return restored

    def _has_turn(self, state: SearchState) -> bool:
        key = self._key(state)
        return state.begun and (key in state.groups or not self.part(key)[1])
