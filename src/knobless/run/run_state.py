"""The state of a run as one value, in codes and ids; `Optimizer` shows it as points.

Evaluations are in the archive, which the algorithm reads; besides it, a run has only its pending
candidates. A snapshot is this value packed, loading one replaces it, and replaying a journal builds
it.

An iteration is complete when λ candidates are told or cancelled, whichever they are and in
whichever order. The algorithm then learns from them, in the order in which they were drawn, and the
next iteration begins. So λ candidates that are drawn and told before any others make the same
iteration in any order. Further ones may be drawn at any time, from the state that the algorithm has
then, and their values count for the iteration in which they arrive. The state is therefore a
function of the order of draws and values alone. An initial point, or a point that is tested for
noise, precedes the λ samples and is one more.

A search has several members. What a member has asked for, it is told (`Owner`), with λ values at
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knobless.core.algorithm import (
    ALONE,
    Algorithm,
    Owner,
    is_exact,
    keeps_states,
    most_points,
    observes,
)
from knobless.core.archive import COPIED, REJECTED, STOPPED, Archive
from knobless.core.description import search_of
from knobless.core.early_stopping import Curve, Curves, is_hopeless
from knobless.core.families import Family
from knobless.core.search import Search
from knobless.core.several import Several
from knobless.core.types import Array, Points
from knobless.core.violation import Infeasible, is_feasible
from knobless.journal.events import CANCELLED, RETURNED_NAN, TOLD
from knobless.journal.identity import Identity
from knobless.space.fixed import FixedVariables
from knobless.space.space import Space

from .candidates import NONE, Batch, ToldValues
from .constraints import NO_CONSTRAINTS, Constraints
from .feasibility import Feasibility
from .iteration import (
    PENDING,
    Best,
    FirstFailure,
    Info,
    Iteration,
    Late,
    Settled,
    is_better,
)
from .noise_test import SMALL_DOUBT, NoiseTest
from .pending import Pending, keys_of
from .streams import Streams

# Draws in a row without a new point after which sampling is taken to yield no more
MAX_STALE = 1000
# Evaluations with a violation at which the algorithm changes
INFEASIBLE_SHARE = 0.25
# Candidates of a journal that are drawn again and compared, as a check of versions and machines
VERIFIED = 8
RECENT = 512  # evaluations kept to look up those of the most probable point
# Random words of all pending candidates that a file may ask for
MOST_WORDS = 2**28
MOST_PENDING = 2**20  # pending candidates that a file may ask for

THE_ALGORITHM = Owner(ALONE)

# a plain tuple, which takes the least time to create
InfoArguments = tuple[Algorithm, Any, int, int, Best | None]


@dataclass(slots=True)
class Unlearned:
    """What an owner has asked for since it was last told, and what it is not told yet."""

    asked: int = 0
    # Candidates that it needs to learn; 0 as long as that is not known
    needed: int = 0
    settled: int = 0  # candidates that are told or cancelled
    parts: list[Settled] = field(default_factory=list)  # those with values


@dataclass(slots=True)
class RunState:
    """Everything that changes in a run; objective values are minimized.

    `space`, `x0` and `noisy_algorithm` are what the run was started with, the other fields are its
    state. Of several initial points, the search starts from the best one, which is found by an
    iteration of these alone.
    """

    algorithm: Algorithm  # the one in use
    space: Space
    x0: Points | None  # the initial points, one row each
    streams: Streams
    search: Any  # the state of the algorithm
    # To precede the samples of this iteration, and not handed out yet
    initial_points: Points
    iteration: Iteration
    archive: Archive
    pending: Pending | None  # None if equal points may have different values
    noisy: bool  # whether they have, as stated or found
    # The one to change to if the objective is found to be noisy
    noisy_algorithm: Search | None
    # The one to change to if many evaluations have a violation
    constrained_algorithm: Search | None
    # None if it is stated or found whether the objective is noisy, or of no interest
    noise_test: NoiseTest | None
    # The steps of complete evaluations
    curves: Curves = field(default_factory=Curves)
    # The steps of pending candidates, by `Optimizer.report`
    reported: dict[int, Curve] = field(default_factory=dict)
    # Pending candidates of complete iterations
    late: dict[int, Late] = field(default_factory=dict)
    unlearned: dict[Owner, Unlearned] = field(default_factory=dict)
    # Pending when another process ended: to be handed out again
    again: list[int] = field(default_factory=list)
    # The initial point from which the search starts
    origin: Points | None = None
    best: Best | None = None
    failure: FirstFailure | None = None
    stale: int = 0  # draws in a row without a new point
    nit: int = 0
    nfev: int = 0
    failures: int = 0
    infeasible: int = 0  # evaluations with a violation
    feasibility: Feasibility | None = None  # None without constraints
    # By id, of a journal; not part of the state
    recorded: Mapping[int, Points] = field(default_factory=dict)
    # Different points that can be drawn; not part of the state
    n_points: float = math.inf
    # Draws after which sampling is taken to yield no more; neither
    most_stale: int = MAX_STALE
    # Called after each iteration; not part of the state
    on_iteration: Callable[[], object] | None = None
    # Whether the algorithm reads the archive, and does not only have a state of its own
    is_search: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_search = observes(self.algorithm)

    @classmethod
    def start(
        cls,
        space: Space,
        algorithm: Algorithm,
        x0: Points | None,
        streams: Streams,
        deterministic: bool | None,
        noisy_algorithm: Search | None = None,
        feasibility: Feasibility | None = None,
        constrained_algorithm: Search | None = None,
        objectives: int = 1,
    ) -> Self:
        """Return the state before anything is drawn; the points of x0 are handed out first.

        With a `noisy_algorithm`, the run tests whether the objective is noisy, and changes to it if
        so. With a `constrained_algorithm`, it changes to that if many evaluations have a violation.
        """
        family = algorithm.family
        points = (
            np.empty((0, family.variables), family.dtype) if x0 is None else x0
        )
        origin = points[0] if len(points) == 1 else None
        if feasibility is not None and x0 is not None:
            for i, code in enumerate(x0):
                feasibility.require(
                    code, "x0" if origin is not None else f"x0[{i}]"
                )
            feasibility.start(x0[0])
        once = deterministic is True or noisy_algorithm is not None
        recent = (
            RECENT
            if deterministic is None and not observes(algorithm)
            else None
        )
        archive = Archive(
            family,
            keys_of(space),
            getattr(algorithm, "deterministic", once),
            recent,
            objectives,
        )
        search = started(algorithm, origin, archive)
        iteration = first_iteration(len(points), algorithm.lam(search))
        run = cls(
            algorithm,
            space,
            x0,
            streams,
            search,
            points,
            iteration,
            archive,
            pending=Pending(archive) if once else None,
            noisy=deterministic is False,
            noisy_algorithm=noisy_algorithm,
            constrained_algorithm=constrained_algorithm,
            noise_test=None if noisy_algorithm is None else NoiseTest(),
            feasibility=feasibility,
            origin=origin,
            n_points=space.cardinality
            if feasibility is None
            else feasibility.fixed.cardinality,
            most_stale=MAX_STALE,
        )
        archive.pending_points = run.pending_points
        return run

    @classmethod
    def from_identity(
        cls,
        identity: Identity,
        space: Space,
        algorithm: Algorithm,
        constraints: Constraints = NO_CONSTRAINTS,
    ) -> Self:
        """Return the state at the start of the run that a file describes."""
        check_batch(identity.batch, space.family)
        x0 = (
            None
            if identity.x0 is None
            else space.family.unpack(bytes.fromhex(identity.x0))
        )
        streams = Streams.from_data(identity.rng)
        described = identity.noisy_algorithm, identity.constrained_algorithm
        noisy, later = (
            None
            if search_data is None
            else search_of(search_data, space.family, identity.batch)
            for search_data in described
        )
        algorithm = algorithm.at_least(identity.batch)
        feasibility = Feasibility.of(
            space, constraints, FixedVariables.from_data(space, identity.fixed)
        )
        objectives = (
            1 if identity.objectives is None else len(identity.objectives)
        )
        return cls.start(
            space,
            algorithm,
            x0,
            streams,
            identity.deterministic,
            noisy,
            feasibility,
            later,
            objectives,
        )

    # What can be observed.

    @property
    def lam(self) -> int:
        """Samples of this iteration."""
        return self.algorithm.lam(self.search)

    @property
    def lowest_rank(self) -> float:
        """The best value so far as it ranks; inf before there is one."""
        return math.inf if self.best is None else self.best.rank

    @property
    def lowest_fun(self) -> float:
        """The value of the best point so far; inf before there is one."""
        return math.inf if self.best is None else self.best.fun

    @property
    def undrawn(self) -> int:
        """Candidates that this iteration needs and that are not drawn yet."""
        return self.iteration.undrawn

    @property
    def drawn(self) -> int:
        """Candidates drawn in all iterations."""
        return self.iteration.first + self.iteration.drawn

    @property
    def deterministic(self) -> bool | None:
        """Whether equal points have equal values, as stated or found; None if that is not known."""
        if self.noise_test is not None:
            return True if self.noise_test.doubt < SMALL_DOUBT else None
        return (
            True if self.pending is not None else False if self.noisy else None
        )

    @property
    def is_compared(self) -> bool:
        """Whether all evaluations are compared, by tests for noise or in the end."""
        return self.noisy or self.noise_test is not None

    @property
    def complete(self) -> bool:
        """Whether a deterministic objective was evaluated everywhere, and nothing is pending."""
        pending = self.pending
        all_known = (
            pending is not None
            and not len(pending)
            and self.archive.known >= self.n_points
        )
        return all_known and not self._unsure

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing to hand out: sampling yields no new points."""
        return self._yields_none and not self.again

    @property
    def _yields_none(self) -> bool:
        """Whether sampling yields no new points."""
        return (
            self.stale >= self.most_stale or self._covered
        ) and not self._unsure

    @property
    def _covered(self) -> bool:
        return self.pending is not None and self.pending.cover(self.n_points)

    @property
    def _unsure(self) -> bool:
        """Whether tests for noise must precede the end of a run that finds no new points."""
        test = self.noise_test
        pending = self.pending
        if (
            test is None
            or pending is None
            or not test.unsure
            or not test.points
        ):
            return False
        # Either the next test is yet to be handed out, or the rest of this iteration is yet to be
        # drawn, which decides the test. The next one may follow, but not before the pending
        # candidates are told.
        return len(self.initial_points) > 0 or not len(pending)

    @property
    def mode(self) -> Points:
        """The most probable point, with the values of fixed variables."""
        mode = self.algorithm.family.mode(self.search.theta)
        if self.feasibility is None:
            return mode
        return self.feasibility.fixed.applied(mode[None])[0]

    @property
    def mode_fun(self) -> float | None:
        """The mean of the finite values of the most probable point among the last evaluations.

        None without any.
        """
        code = self.mode[None]
        if self.pending is not None:
            (key,) = self.archive.keys(code)
            value = (
                None if key in self.archive.errors else self.archive.value(key)
            )
            if value is not None and self._have_values(np.array([value]))[0]:
                return value
            return None
        seen = self.space.visible(code)
        rows_told = [
            self.archive.evaluations(RECENT),
            *([self.iteration.evaluated()] if self.iteration.drawn else []),
        ]
        x, f = (
            np.concatenate(arrays)[-RECENT:]
            for arrays in zip(*rows_told, strict=True)
        )
        values = f[
            (self.space.visible(x) == seen).all(axis=1) & self._have_values(f)
        ]
        if len(values):
            with np.errstate(over="ignore"):
                mean = float(values.mean())
            if math.isfinite(mean):
                return mean
            return float((values / len(values)).sum())
        best = self.best
        is_best = (
            best is not None
            and not best.violation
            and (self.space.visible(best.at[None]) == seen).all()
        )
        return self.lowest_fun if is_best else None

    def _have_values(self, ranks: Array) -> NDArray[np.bool_]:
        """Return which ranks are finite values of feasible points."""
        finite: NDArray[np.bool_] = np.isfinite(ranks)
        return finite & is_feasible(ranks) if self.infeasible else finite

    @property
    def info(self) -> Info:
        """The record of the last iteration."""
        return info_of(*self.info_arguments)

    @property
    def info_arguments(self) -> InfoArguments:
        """What `info_of` computes the record of the last iteration from, now or later.

        A state that is a value is all that is needed; of another one, θ is computed now.
        """
        algorithm = self.algorithm
        search = self.search
        state = search if keeps_states(algorithm) else algorithm.info(search)
        return algorithm, state, self.nit, self.nfev, self.best

    def pending_ids(self) -> list[int]:
        """Return the ids of all pending candidates."""
        if self.pending is not None:
            return self.pending.ids
        return [
            *self.late,
            *(self.iteration.pending_ids() if self.iteration.drawn else ()),
        ]

    def pending_points(self) -> Points:
        """Return the points of all pending candidates that the algorithm has asked for."""
        first = self.iteration.first + self.iteration.n_initial_points
        late = self.late
        ids = [
            id
            for id in self.pending_ids()
            if id >= first or (id in late and late[id].position >= 0)
        ]
        return self.codes_of(ids) if ids else self.archive.x(0, 0)

    def codes_of(self, ids: Sequence[int]) -> Points:
        """Return the points of pending candidates."""
        first = self.iteration.first
        if isinstance(ids, range) and ids.step == 1 and ids.start >= first:
            return self.iteration.codes[ids.start - first : ids.stop - first]
        if len(ids):
            return np.array([self._code_of(id) for id in ids])
        return self.initial_points[:0]

    def _code_of(self, id: int) -> Points:
        first = self.iteration.first
        if id < first:
            return self.late[id].code
        return self.iteration.codes[id - first]

    def located(
        self, ids: Sequence[int]
    ) -> tuple[int, Points, list[tuple[int, int]]]:
        """Return the number of candidates drawn, and the pending ones with their places."""
        first = self.iteration.first
        nit = self.nit
        skipped = self.iteration.n_initial_points
        places = [
            (nit, max(id - first - skipped, -1))
            if id >= first
            else self.late[id][:2]
            for id in ids
        ]
        return self.drawn, self.codes_of(ids), places

    # Drawing.

    def ask(self, k: int | None) -> tuple[Sequence[int], Points]:
        """Return ids and points of the next k candidates, or of all that are left to draw."""
        if self.again:
            return self._ask_again(k)
        iteration = self.iteration
        if k is None and not iteration.undrawn and not self._yields_none:
            raise RuntimeError(
                f"ask: all {iteration.size} candidates of iteration {self.nit} were asked for and "
                f"{iteration.missing} "
                "are pending: tell their values, cancel those that will have none, or call ask(k) "
                "for k more"
            )
        ids: Sequence[int] = ()
        codes = self.initial_points[:0]
        while not self._yields_none:
            left = self.iteration.size if k is None else k - len(ids)
            # An iteration that closed meanwhile may have shown noise.
            ids_drawn, fresh = (
                self._draw(left)
                if self.pending is None
                else self._draw_new(left, self.pending)
            )
            ids, codes = (
                ([*ids, *ids_drawn], np.concatenate([codes, fresh]))
                if ids
                else (ids_drawn, fresh)
            )
            if len(ids) == k or (
                k is None
                and (
                    not self.undrawn
                    or (ids and self.iteration is not iteration)
                )
            ):
                break
        return ids, codes

    def _draw(self, k: int) -> tuple[range, Points]:
        """Draw up to k points that the algorithm proposes now: initial points, then samples.

        The points do not depend on how many are drawn at once.
        """
        iteration = self.iteration
        k = min(k, iteration.undrawn or 1)
        initial = min(k, len(self.initial_points))
        ids = range(0)
        codes = self.initial_points[:initial]  # which are feasible
        if initial:
            self.initial_points = self.initial_points[initial:]
            ids = iteration.extend(codes)
        if initial < k:
            more_ids, points = self._propose(k - initial)
            ids = range(ids.start, more_ids.stop) if ids else more_ids
            codes = np.concatenate([codes, points]) if initial else points
        return ids, codes

    def _propose(self, k: int) -> tuple[range, Points]:
        """Draw up to k points of what has the turn."""
        first = self.drawn
        if self.is_search:
            owner, limit = self.algorithm.proposer(self.search, self._asked_by)  # type: ignore[attr-defined]
        else:
            asked = self._asked_by(THE_ALGORITHM)
            limit = most_points(self.algorithm, self.lam, asked)
            owner = THE_ALGORITHM if limit else None
        k = min(k, limit or 1)
        unlearned = self._unlearned_of(self._turn if owner is None else owner)
        codes = self._sampled(k, unlearned.asked, first, owner)
        unlearned.asked += k
        if self.feasibility is not None:
            codes = self.feasibility.replaced(
                codes, self.search.theta, self.streams.main.key, first, k
            )
        return self.iteration.extend(codes, owner), codes

    @property
    def _turn(self) -> Owner:
        """What has the turn."""
        if self.is_search:
            return self.algorithm.owner(self.search)  # type: ignore[attr-defined]
        return THE_ALGORITHM

    def checked_owner(self, owner: Owner | None) -> Owner:
        """Return an owner of a file; ValueError if it cannot be one of this run."""
        if owner is None or (owner.kind == ALONE) == self.is_search:
            raise ValueError("owner: expected a part of the algorithm")
        if self.is_search:
            self.algorithm.check_owner(self.search, owner)  # type: ignore[attr-defined]
        return owner

    def _asked_by(self, owner: Owner) -> int:
        return self.unlearned[owner].asked if owner in self.unlearned else 0

    def _unlearned_of(self, owner: Owner) -> Unlearned:
        unlearned = self.unlearned.get(owner)
        if unlearned is None:
            unlearned = self.unlearned[owner] = Unlearned()
        return unlearned

    def _sampled(
        self, size: int, start: int, first: int, owner: Owner | None
    ) -> Points:
        """Return points of the algorithm, of which the first one gets this id.

        It is not asked for recorded ones.
        """
        if not self.recorded:
            return self._asked(size, start, owner)
        skip = getattr(self.algorithm, "skip", None)
        recorded = self.recorded
        if skip is None or (
            self.feasibility is not None
            and self.feasibility.constraints.functions
        ):
            return self._asked(size, start, owner)
        parts = [self.archive.x(0, 0)]
        # Any recorded point of another algorithm is taken
        verified = VERIFIED if is_exact(self.algorithm) else 0
        for known, group in groupby(
            range(size),
            lambda i: first + i >= verified and first + i in recorded,
        ):
            ids_of_group = list(group)
            if known:
                skip(
                    self.search,
                    self.streams.main,
                    len(ids_of_group),
                    start + ids_of_group[0],
                    **self._arguments(owner),
                )
                parts.append(
                    np.array([recorded[first + i] for i in ids_of_group])
                )
            else:
                parts.append(
                    self._asked(
                        len(ids_of_group), start + ids_of_group[0], owner
                    )
                )
        return np.concatenate(parts)

    def _asked(self, size: int, start: int, owner: Owner | None) -> Points:
        if self.feasibility is not None:
            self.archive.feasible = (
                self.feasibility
                if self.feasibility.constraints.functions
                else None
            )
        return self.algorithm.ask(
            self.search,
            self.streams.main,
            size,
            start,
            **self._arguments(owner),
        )

    def _arguments(self, owner: Owner | None) -> dict[str, Any]:
        """Return arguments of a search: who asks, and which variables are fixed."""
        return {"owner": owner, **self._fixed} if self.is_search else {}

    @property
    def _fixed(self) -> dict[str, NDArray[np.bool_]]:
        """An argument of a search, which is told which variables are fixed."""
        if (
            self.feasibility is None
            or not len(self.feasibility.fixed)
            or not self.is_search
        ):
            return {}
        fixed = np.zeros(self.algorithm.family.variables, dtype=bool)
        fixed[self.feasibility.fixed.columns] = True
        return {"fixed": fixed}

    def _draw_new(
        self, k: int, pending: Pending
    ) -> tuple[Sequence[int], Points]:
        """Draw the next k points and return the new ones; those with known values are settled."""
        tests = len(self.initial_points) if self.nit else 0
        ids, codes = self._draw(k)
        new, known, values = pending.look_up(ids, codes, tests)
        if len(new) == len(ids):  # the usual case
            self.stale = 0
            return ids, codes
        self.stale = len(ids) - 1 - new[-1] if new else self.stale + len(ids)
        if known:
            self.iteration.settle(
                known if len(known) < len(ids) else ids,
                np.array(values),
                COPIED,
            )
        self._close()
        return (
            ([ids[row] for row in new], codes[new]) if new else ((), codes[:0])
        )

    def _ask_again(self, k: int | None) -> tuple[Sequence[int], Points]:
        """Return candidates that were pending when another process ended, then new ones."""
        ids = self.again[:k]
        self.again = self.again[len(self.again) if k is None else k :]
        codes = self.codes_of(ids)
        if k is not None and len(ids) < k:
            ids_drawn, fresh = self.ask(k - len(ids))
            ids = [*ids, *ids_drawn]
            codes = np.concatenate([codes, fresh])
        return ids, codes

    def check_pending(self, k: int) -> None:
        """ValueError if a file may not ask for k more pending candidates."""
        pending = k + len(self.late) + self.iteration.fates.count(PENDING)
        if (
            pending > MOST_PENDING
            or pending * self.algorithm.family.words > MOST_WORDS
        ):
            raise ValueError(
                f"{pending} pending candidates are more than a file may ask for"
            )

    def redraw(self, drawn: int) -> None:
        """Draw until as many candidates are drawn as a file states.

        ValueError if that is impossible.
        """
        if self.drawn < drawn:
            self.check_pending(drawn - self.drawn)
        while self.drawn < drawn:
            k = min(drawn - self.drawn, self.undrawn or 1)
            if self.pending is None:
                self._draw(k)
            elif self._yields_none:
                raise ValueError(f"{drawn} candidates cannot have been drawn")
            else:
                self._draw_new(k, self.pending)

    def confirm(self, ids: Sequence[int], recorded: Points) -> None:
        """Check that recorded points are those drawn now, or take them on another machine.

        Where rounding can change a point by more than the last digits, any recorded point is taken.
        """
        codes = self.codes_of(ids)
        if recorded.shape == codes.shape and (recorded == codes).all():
            return
        near = not is_exact(self.algorithm) or np.allclose(
            recorded, codes, rtol=0.0, atol=1e-6
        )
        if recorded.shape != codes.shape or not near:
            shown = ", ".join(map(str, list(ids)[:5]))
            hint = (
                ""
                if self.feasibility is None
                else "; the constraints must return what they returned then"
            )
            raise ValueError(
                f"the points recorded for the candidates {shown} are not those drawn now{hint}"
            )
        if self.iteration.drawn:
            self.iteration.codes = self.iteration.codes.copy()
        for id, code in zip(ids, recorded, strict=True):
            if id >= self.iteration.first:
                self.iteration.codes[id - self.iteration.first] = code

    def watched(self, candidates: Batch, sign: float) -> Batch:
        """Return candidates with what workers need to stop hopeless evaluations.

        Tests for noise run on.
        """
        if not self.curves.complete:  # no evaluation has several steps
            return candidates
        return candidates.watched(
            [self._limits_of(id) for id in candidates.ids], sign
        )

    def report(self, id: int, value: float) -> bool:
        """Store the value of a pending candidate after one more step.

        Return whether it is not hopeless.
        """
        steps = (
            (*self.reported[id].steps, value)
            if id in self.reported
            else (value,)
        )
        stopped = is_hopeless(value, len(steps) - 1, self._limits_of(id))
        self.reported[id] = Curve(steps, stopped)
        return not stopped

    def with_steps(self, id: int, value: float) -> float:
        """Return the value of a candidate with the steps that were reported.

        It was stopped if it was hopeless after the last one. Another value than that one shows that
        it ran on.
        """
        curve = self.reported[id]
        return (
            curve if value == curve.steps[-1] else Curve((*curve.steps, value))
        )

    def _limits_of(self, id: int) -> tuple[float, ...]:
        _, _, ((_, position),) = self.located([id])
        return self.curves.limits_of(id) if position >= 0 else ()

    # Telling.

    def expect(self, ids: Sequence[int]) -> None:
        """ValueError if one of these is not pending."""
        once = isinstance(ids, range) or len(set(ids)) == len(ids)
        if (
            once
            and self.iteration.are_pending(ids)
            and (self.pending is None or self.pending.has(ids))
        ):
            return  # the usual case
        if not once:
            raise ValueError(
                f"candidates: expected each once, got the ids {list(ids)}"
            )
        for id in ids:
            if not 0 <= id < self.drawn:
                raise ValueError(
                    f"candidates: expected candidates returned by ask(), got the unknown id {id}"
                )
            handed_out = self.pending is None or id in self.pending
            if not handed_out or not (
                id in self.late or self.iteration.are_pending([id])
            ):
                raise ValueError(
                    f"candidates: expected pending ones, got id {id}, which was told or cancelled"
                )

    def tell(
        self,
        ids: Sequence[int],
        f: Array,
        failures: Mapping[int, str],
        infeasible: Mapping[int, Infeasible] = NONE,
        several: Mapping[int, Several] = NONE,
        curves: Mapping[int, Curve] = NONE,
    ) -> None:
        """Store values of pending candidates; see `ToldValues` for the arguments."""
        if not len(ids):
            return
        if len(ids) > 1 and (curves or self.late or self.iteration.surplus):
            # One by one: the iteration may be complete before the last of them, which counts for
            # the next one then. A journal does not record which values were told together.
            values = ToldValues(f, failures, infeasible, several, curves)
            for i, id in enumerate(ids):
                self.tell([id], *values.at(i))
            return
        if self.archive.objectives > 1:
            self._note_outcomes(ids, infeasible, several)
        self.stale = 0
        for id in ids if self.reported else ():
            self.reported.pop(id, None)
        if curves and curves[0].stopped:
            self.nfev += 1
            self._settle(ids, self._estimated(ids, curves[0]), STOPPED)
            return
        if curves:
            self.curves.add(curves[0])
        self._count(ids, f, failures, infeasible, several)
        self._settle(ids, f, TOLD)

    def _note_outcomes(
        self,
        ids: Sequence[int],
        infeasible: Mapping[int, Infeasible],
        several: Mapping[int, Several],
    ) -> None:
        """Store the values of several objectives at points, in the order of these.

        Failed evaluations have none.
        """
        rows = sorted([*infeasible, *several])
        for row, code in zip(
            rows, self.codes_of([ids[row] for row in rows]), strict=True
        ):
            self.archive.note_outcome(
                code,
                several[row].minimized
                if row in several
                else float(infeasible[row]),
            )

    def _estimated(self, ids: Sequence[int], curve: Curve) -> Array:
        """Return the estimated value of a stopped evaluation; the archive notes its error.

        It is above the best value so far: what was stopped is never the best point.
        """
        value, error = self.curves.estimate(curve, self.lowest_rank)
        self.archive.note_errors(self.codes_of(ids), [error])
        return np.array([value])

    def cancel(self, ids: Sequence[int]) -> None:
        """Store that these candidates will have no values."""
        for id in ids if self.reported else ():
            self.reported.pop(id, None)
        alone = self.late or self.iteration.surplus  # as in `tell`
        for part in [[id] for id in ids] if alone else [ids][: len(ids)]:
            self._settle(part, np.full(len(part), math.nan), CANCELLED)

    def add(self, codes: Points, values: Sequence[float]) -> None:
        """Store the values of points that were evaluated elsewhere."""
        for code, value in zip(codes, values, strict=True):
            self.infeasible += isinstance(value, Infeasible)
            several = self.archive.objectives > 1 and not math.isnan(value)
            if (
                several
                and self.archive.by_point.index(
                    self.archive.keys(code[None])[0]
                )
                is None
            ):
                self.archive.note_outcome(
                    code,
                    value.minimized
                    if isinstance(value, Several)
                    else float(value),
                )
            if is_better(value, -1, self.best):
                self.best = Best(value, -1, code)
        if self.is_search and len(codes):
            begun = self.drawn > 0
            self.search = self.algorithm.add(  # type: ignore[attr-defined]
                self.search, codes, np.array(values), begun
            )
            if not begun:
                self.iteration = first_iteration(
                    len(self.initial_points), self.lam
                )
        if self.pending is not None and len(codes):
            for key, value in zip(
                self.archive.keys(codes), values, strict=True
            ):
                self.archive.replace(key, value)

    def _count(
        self,
        ids: Sequence[int],
        f: Array,
        failures: Mapping[int, str],
        infeasible: Mapping[int, Infeasible],
        several: Mapping[int, Several],
    ) -> None:
        """Count evaluations and failures, and keep the best and the first of them."""
        self.nfev += len(f)
        self.infeasible += len(infeasible)
        # As np.minimum.reduce(f), in a quarter of the time
        lowest = f.item() if len(f) == 1 else f.item(f.argmin())
        if lowest != lowest:  # NaN is among them
            failed = np.flatnonzero(f != f).tolist()
            self.failures += len(failed)
            id, row = min((ids[row], row) for row in failed)
            if self.failure is None or id < self.failure.id:
                self.failure = FirstFailure(id, failures.get(row, RETURNED_NAN))
            lowest = np.fmin.reduce(f)
        best = self.best
        # Almost always false, so the other conditions are rarely evaluated.
        if (
            lowest < math.inf
            if best is None
            else lowest < best.rank
            or (lowest == best.rank and min(ids) < best.id)
        ):
            id, row = min(
                (ids[row], row) for row in np.flatnonzero(f == lowest).tolist()
            )
            value = several.get(
                row, infeasible.get(row, float(f[row]))
            )  # of −0.0 and 0.0, which are equal, that of the lowest id
            if is_better(value, id, best):
                self.best = Best(value, id, self._code_of(id).copy())

    def _settle(self, ids: Sequence[int], f: Array, fate: int) -> None:
        """Store what became of candidates, and of those that waited for the same value."""
        if self.again:
            self.again = [id for id in self.again if id not in ids]
        self._store(ids, f, fate)
        if self.pending is not None:
            waiting_ids, values = self.pending.settle(
                ids, f, keep=fate != CANCELLED
            )
            if waiting_ids:
                self._store(
                    waiting_ids,
                    np.array(values),
                    CANCELLED if fate == CANCELLED else COPIED,
                )
        self._close()

    def _store(self, ids: Sequence[int], f: Array, fate: int) -> None:
        first = self.iteration.first
        late = self.late
        if not late or (
            isinstance(ids, range) and ids.step == 1 and ids.start >= first
        ):
            self.iteration.settle(ids, f, fate)
            return
        in_iteration = [i for i, id in enumerate(ids) if id >= first]
        if in_iteration:
            self.iteration.settle(
                [ids[i] for i in in_iteration], f[in_iteration], fate
            )
        for id, value in zip(ids, f.tolist(), strict=True):
            if id < first:
                self.iteration.settle_late(id, late.pop(id), value, fate)

    def _close(self) -> None:
        """Begin the next iteration if this one is complete, after learning from it."""
        iteration = self.iteration
        if iteration.missing:
            return
        usual = not iteration.others and iteration.drawn == iteration.size
        for id in () if usual else iteration.pending_ids():
            row = id - iteration.first
            position = max(row - iteration.n_initial_points, -1)
            self.late[id] = Late(
                self.nit, position, iteration.codes[row], iteration.owner(row)
            )
        settled = iteration.settled()
        noisy = self._is_shown_noisy(*self._tested()) if self._tests else False
        if self.feasibility is not None and not usual:
            self.feasibility.filled = []
        later = settled.pop(None, None)
        if later is not None:
            rows_told = later.without(CANCELLED)
            self._observe(rows_told.codes, rows_told.f, rows_told.fates)
        if self.nit == 0 and iteration.size == iteration.n_initial_points:
            self._start_at_best(iteration, settled)
        else:
            for owner, part in settled.items():
                self._add_unlearned(owner, part)  # type: ignore[arg-type]
            self._learn()
        constrained = self.constrained_algorithm if self.infeasible else None
        if (
            constrained is not None
            and self.infeasible >= INFEASIBLE_SHARE * self.nfev
        ):
            self.become_constrained(constrained)
        if noisy:
            self.become_noisy()
        elif self.noise_test is not None:
            for part in (
                *([] if later is None else [later]),
                *settled.values(),
            ):
                rows_told = part.having(TOLD)
                self.noise_test.observe(
                    rows_told.codes,
                    self._compared(rows_told.codes, rows_told.f),
                )
        self.nit += 1
        self._begin(iteration.first + iteration.drawn)
        if self.on_iteration is not None:
            self.on_iteration()

    @property
    def _tests(self) -> bool:
        """Whether a point was handed out to be tested for noise and is no longer pending."""
        test = self.noise_test
        iteration = self.iteration
        if test is None or test.expected is None:
            return False
        tests_initial = (
            self.nit > 0
            and iteration.n_initial_points > 0
            and bool(iteration.drawn)
        )
        return (tests_initial and iteration.fates[0] != PENDING) or any(
            late.is_test for _, late, _, _ in iteration.others
        )

    def _tested(self) -> tuple[Points, Array]:
        """Return the point that was tested for noise and its second value.

        None if it was cancelled.
        """
        iteration = self.iteration
        for _, late, value, fate in iteration.others:
            if late.is_test:
                return late.code[None][: fate == TOLD], np.array([value])[
                    : fate == TOLD
                ]
        was_told = iteration.fates[0] == TOLD
        return iteration.codes[:1][:was_told], iteration.f[:1][:was_told]

    def _add_unlearned(self, owner: Owner, part: Settled) -> None:
        """Store what became of candidates of an owner until the owner learns from it."""
        unlearned = self._unlearned_of(owner)
        # Before more values are known
        unlearned.needed = unlearned.needed or self._needed(owner)
        unlearned.settled += len(part.ids)
        part = part.without(CANCELLED)
        if self.feasibility is not None and owner == self._turn:
            x, f = self.feasibility.learn(part.codes, part.f)
            # Points that were not handed out, and follow the others
            n_foreign = len(f) - len(part.f)
            ids = [*part.ids, *range(self.drawn, self.drawn + n_foreign)]
            part = Settled(
                ids, x, f, bytes(part.fates).ljust(len(f), bytes([REJECTED]))
            )
        # Else the values suffice, which are noted
        if self.is_search or self.pending is None:
            self.archive.add(part.codes, part.f, part.fates)
        unlearned.parts.append(part)

    def _learn(self) -> None:
        """Tell the owners that have as many values as they need."""
        for owner, unlearned in list(self.unlearned.items()):
            n_settled = unlearned.settled
            if not n_settled or (
                n_settled < unlearned.needed and n_settled < self._needed(owner)
            ):
                continue
            del self.unlearned[owner]
            _, x, f, _ = Settled.joined(unlearned.parts)
            if self.is_search:
                self.search = self.algorithm.learn(self.search, x, f, owner)  # type: ignore[attr-defined]
            else:
                self.search = self.algorithm.tell(self.search, x, f)

    def _needed(self, owner: Owner) -> int:
        """Return how many values an owner needs to learn from them."""
        if not self.is_search:
            return self.lam
        open: bool = self.algorithm.is_open(self.search, owner)  # type: ignore[attr-defined]
        return self.algorithm.lam(self.search, owner) if open else 0  # type: ignore[call-arg]

    def _start_at_best(
        self, iteration: Iteration, settled: Mapping[Owner | None, Settled]
    ) -> None:
        """Start the search from the best of several initial points, the first in case of ties.

        It has not asked for the candidates that were `settled` meanwhile.
        """
        for part in settled.values():
            rows_told = part.without(CANCELLED)
            self._observe(rows_told.codes, rows_told.f, rows_told.fates)
        f = iteration.f[: iteration.size]
        self.origin = iteration.codes[
            np.where(np.isnan(f), math.inf, f).argmin()
        ].copy()
        self.search = started(self.algorithm, self.origin, self.archive)
        self._disown()

    def _disown(self) -> None:
        """Note that the algorithm was replaced.

        The new one has not asked for the candidates that are pending.
        """
        self.unlearned.clear()
        self.late = {
            id: late._replace(owner=None) for id, late in self.late.items()
        }

    def _is_shown_noisy(self, x: Points, f: Array) -> bool:
        """Return whether a second evaluation of the tested point shows noise.

        There is none if it was cancelled.
        """
        test = self.noise_test
        archive = self.archive
        if test is None or test.expected is None:
            return False
        again = np.array(f[0] if len(f) else math.nan)
        if archive.objectives == 1:
            return test.judge(again, archive.values, archive.evaluated)
        values = np.full(archive.objectives, again)
        if is_feasible(again):
            values = np.array(archive.by_point.last(archive.keys(x)[0]))
        return test.judge(values, archive.outcomes, archive.evaluated)

    def _compared(self, x: Points, f: Array) -> Array:
        """Return the values that are compared: one row each with several objectives."""
        if self.archive.objectives == 1 or not len(f):
            return f
        return self.archive.outcomes_of(self.archive.keys(x), f)

    def _observe(
        self, x: Points, f: Array, kinds: bytes | bytearray | None = None
    ) -> None:
        """Add evaluations that the algorithm has not asked for."""
        if self.is_search:
            self.search = self.algorithm.observe(self.search, x, f, kinds)  # type: ignore[attr-defined]
        elif self.pending is None:
            self.archive.add(x, f, kinds)

    def become_constrained(self, algorithm: Search) -> None:
        """Change to the algorithm for objectives with violations, unless the objective is noisy."""
        self.constrained_algorithm = None
        if self.pending is not None:
            self._change_to(algorithm)

    def become_noisy(self) -> None:
        """Change to the algorithm for noisy objectives, which learns from all evaluations."""
        if self.noisy_algorithm is None or self.pending is None:
            raise RuntimeError("the run was not started to test for noise")
        self.late = {
            id: late for id, late in self.late.items() if id in self.pending
        }
        self.pending = self.noise_test = None
        self.noisy, self.stale = True, 0
        self.archive.make_noisy()
        self._change_to(self.noisy_algorithm)

    def _change_to(self, algorithm: Search) -> None:
        """Change to another algorithm, which reads all evaluations so far."""
        self.algorithm, self.is_search = algorithm, True
        self.search = algorithm.init(x0=self.origin, archive=self.archive)
        self._disown()

    def _begin(self, first: int) -> None:
        """Begin the next iteration, with a point to be tested for noise if a test is due."""
        test = self.noise_test
        if test is not None and test.points and test.expected is None:
            at_end = test.unsure and (
                self.stale >= self.most_stale or self._covered
            )
            if self.archive.evaluated >= test.due or at_end:
                self.initial_points = test.begin()[None]
        tests = len(self.initial_points)
        turn = self._turn
        unlearned = self._unlearned_of(turn)
        unlearned.needed = unlearned.needed or self._needed(turn)
        self.iteration = Iteration(
            first,
            tests + max(unlearned.needed - unlearned.settled, 1),
            n_initial_points=tests,
        )

    def adopt(
        self,
        search: Any,
        nit: int,
        nfev: int,
        failures: int,
        drawn: int,
        best: tuple[float, Points],
        evaluations: tuple[Points, Array],
    ) -> Points:
        """Continue where another engine has taken the run, between two iterations.

        `best` is the best value and its point, `evaluations` has points and values since the last
        call, in order, if they are of interest. If a point is being tested for noise, they are
        those of one iteration, and the test is the first of them. Return the points to be tested in
        the next iteration, before its samples: one or none.
        """
        self.search = search
        self.nit = nit
        self.nfev = nfev
        self.failures = failures
        if failures and self.failure is None:
            self.failure = FirstFailure(nfev, RETURNED_NAN)
        if best[0] < self.lowest_rank:
            self.best = Best(best[0], nfev, best[1])
        x, f = evaluations
        if len(f):
            noisy = self._is_shown_noisy(x[:1], f[:1])
            self._observe(x, f)
            if noisy:
                self.become_noisy()
            elif self.noise_test is not None:
                self.noise_test.observe(x, f)
        self._begin(drawn)
        tests = self.initial_points
        self.initial_points = self.initial_points[:0]
        return tests

    def remember(self, codes: Points, f: Array) -> None:
        """Store the last evaluations of another engine that has handed over none."""
        if self.pending is None:
            self.archive.add(codes, f)
            return
        self.archive.note(self.archive.keys(codes), f.tolist())


def info_of(
    algorithm: Algorithm,
    state: Any,
    nit: int,
    nfev: int,
    best: Best | None,
    sign: float = 1.0,
) -> Info:
    """Return the record of an iteration, with values times `sign`.

    `state` is the state of the loop, or what another algorithm shows of its own.
    """
    theta, lam, eps, lam_r, snr = (
        algorithm.info(state) if keeps_states(algorithm) else state
    )
    theta = theta.view()
    theta.flags.writeable = False
    fun, violation = (
        (math.inf, 0.0) if best is None else (best.fun, best.violation)
    )
    best_fun = math.nan if isinstance(fun, Several) else sign * fun
    return Info(
        nit,
        nfev,
        best_fun,
        lam,
        lam_r,
        eps,
        snr,
        algorithm.family.entropy(theta),
        violation,
        theta,
    )


def first_iteration(n_initial_points: int, lam: int) -> Iteration:
    """Return the first iteration: an initial point and λ samples, or only initial points."""
    return Iteration(
        0,
        n_initial_points + (lam if n_initial_points < 2 else 0),
        n_initial_points,
    )


def started(algorithm: Algorithm, x0: Points | None, archive: Archive) -> Any:
    """Return the state of an algorithm before the first iteration; a search reads the archive."""
    if observes(algorithm):
        return algorithm.init(x0=x0, archive=archive)  # type: ignore[call-arg]
    return algorithm.init(x0=x0)


def check_batch(batch: int, family: Family) -> None:
    """ValueError for a batch larger than a file may ask for."""
    if batch > MOST_PENDING or batch * family.words > MOST_WORDS:
        raise ValueError(
            f"batch: expected at most {min(MOST_PENDING, MOST_WORDS // family.words)}, got {batch}"
        )
