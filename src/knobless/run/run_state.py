"""The state of a run as one value, in codes and ids: what `Optimizer` shows to the user, in terms of the space.

A snapshot is this value packed, loading one replaces it, and replaying a journal builds it. Candidates are drawn from
the current iteration; when those with index 0 to λ − 1 are told or cancelled, the algorithm learns from them and the
next iteration begins. More than λ candidates may be pending: they count for the best point and for the number of
evaluations, as late results of earlier iterations do. An initial point, or a point that is tested for noise, precedes
the λ samples and is not one of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knobless.core.algorithm import Algorithm, Member, is_exact
from knobless.core.description import algorithm_of
from knobless.core.families import Family
from knobless.core.igo import State
from knobless.core.types import Array, Points
from knobless.core.violation import Infeasible, is_feasible
from knobless.journal.events import CANCELLED, RETURNED_NAN, TOLD
from knobless.journal.identity import Identity
from knobless.space.fixed import FixedVariables
from knobless.space.space import Space

from .cache import Cache
from .candidates import NONE
from .constraints import NO_CONSTRAINTS, Constraints
from .evaluation_log import EvaluationLog
from .feasibility import Feasibility
from .iteration import COPIED, EMPTY, PENDING, Best, FirstFailure, Info, Iteration, Late, is_better
from .noise_test import SMALL_DOUBT, NoiseTest
from .streams import Streams

MAX_STALE = 1000  # draws in a row without a new point after which sampling is taken to yield no more
INFEASIBLE_SHARE = 0.25  # evaluations with a violation at which the algorithm changes
RECENT = 512  # evaluations kept to look up those of the most probable point
MOST_WORDS = 2**28  # random words of all pending candidates that a file may ask for
MOST_PENDING = 2**20  # pending candidates that a file may ask for

InfoArguments = tuple[Algorithm, Any, int, int, Best | None]  # a plain tuple, which takes the least time to create


@dataclass(slots=True)
class RunState:
    """Everything that changes in a run; objective values are minimized.

    `space`, `x0` and `noisy_algorithm` are what the run was started with, the other fields are its state.
    """

    algorithm: Algorithm  # the one in use
    space: Space
    x0: Points | None
    streams: Streams
    search: Any  # the state of the algorithm
    initial_points: Points  # to precede the samples of this iteration, and not handed out yet
    iteration: Iteration
    cache: Cache | None  # None if equal points may have different values
    noisy_algorithm: Member | None  # the one to change to if the objective is found to be noisy
    constrained_algorithm: Member | None  # the one to change to if many evaluations have a violation
    noise_test: NoiseTest | None  # None if it is stated or found whether the objective is noisy
    log: EvaluationLog | None  # None if neither is of interest
    recent: deque[Iteration] = field(default_factory=deque)  # complete iterations of the last evaluations
    n_recent: int = 0  # candidates in these
    late: dict[int, Late] = field(default_factory=dict)  # pending candidates of complete iterations
    again: list[int] = field(default_factory=list)  # pending when another process ended: to be handed out again
    best: Best | None = None
    failure: FirstFailure | None = None
    stale: int = 0  # draws in a row without a new point
    nit: int = 0
    nfev: int = 0
    failures: int = 0
    infeasible: int = 0  # evaluations with a violation
    feasibility: Feasibility | None = None  # None without constraints
    n_points: float = math.inf  # different points that can be drawn; not part of the state
    most_stale: int = MAX_STALE  # draws after which sampling is taken to yield no more; neither
    on_iteration: Callable[[], object] | None = None  # called after each iteration; not part of the state

    @classmethod
    def start(
        cls,
        space: Space,
        algorithm: Algorithm,
        x0: Points | None,
        streams: Streams,
        deterministic: bool | None,
        noisy_algorithm: Member | None = None,
        feasibility: Feasibility | None = None,
        constrained_algorithm: Member | None = None,
    ) -> Self:
        """Return the state before anything is drawn; x0 is handed out first.

        With a `noisy_algorithm`, the run tests whether the objective is noisy, and changes to it if so. With a
        `constrained_algorithm`, it changes to that if many evaluations have a violation.
        """
        if feasibility is not None and x0 is not None:
            feasibility.start(x0, "x0")
        family = algorithm.family
        search = algorithm.init(x0=x0)
        points = np.empty((0, family.variables), family.dtype) if x0 is None else x0[None]
        iteration = Iteration(0, len(points) + algorithm.lam(search), n_initial_points=len(points))
        undecided = noisy_algorithm is not None
        return cls(
            algorithm,
            space,
            x0,
            streams,
            search,
            points,
            iteration,
            cache=Cache(space) if deterministic or undecided else None,
            noisy_algorithm=noisy_algorithm,
            constrained_algorithm=constrained_algorithm,
            noise_test=NoiseTest() if undecided else None,
            log=EvaluationLog(family) if deterministic is False or undecided else None,
            feasibility=feasibility,
            n_points=space.cardinality if feasibility is None else feasibility.fixed.cardinality,
            most_stale=MAX_STALE,
        )

    @classmethod
    def from_identity(
        cls, identity: Identity, space: Space, algorithm: Algorithm, constraints: Constraints = NO_CONSTRAINTS
    ) -> Self:
        """Return the state at the start of the run that a file describes."""
        check_batch(identity.batch, space.family)
        x0 = None if identity.x0 is None else space.family.unpack(bytes.fromhex(identity.x0))[0]
        streams = Streams.from_data(identity.rng)
        noisy = _member_of(identity.noisy_algorithm, "noisy_algorithm", identity.batch, space.family)
        later = _member_of(identity.constrained_algorithm, "constrained_algorithm", identity.batch, space.family)
        algorithm = algorithm.at_least(identity.batch)
        feasibility = Feasibility.of(space, constraints, FixedVariables.from_data(space, identity.fixed))
        return cls.start(space, algorithm, x0, streams, identity.deterministic, noisy, feasibility, later)

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
        """Candidates of this iteration that are not drawn yet."""
        return max(self.iteration.size - self.iteration.drawn, 0)

    @property
    def drawn(self) -> int:
        """Candidates drawn in all iterations."""
        return self.iteration.first + self.iteration.drawn

    @property
    def deterministic(self) -> bool | None:
        """Whether equal points have equal values, as stated or found; None if that is not known."""
        if self.noise_test is not None:
            return True if self.noise_test.doubt < SMALL_DOUBT else None
        return True if self.cache is not None else None if self.log is None else False

    @property
    def complete(self) -> bool:
        """Whether a deterministic objective has been evaluated everywhere."""
        return self._covered and not self._unsure

    @property
    def exhausted(self) -> bool:
        """Whether sampling yields no new points."""
        return (self.stale >= self.most_stale or self._covered) and not self._unsure

    @property
    def _covered(self) -> bool:
        return self.cache is not None and len(self.cache) >= self.n_points

    @property
    def _unsure(self) -> bool:
        """Whether tests for noise must precede the end of a run that finds no new points."""
        test, cache = self.noise_test, self.cache
        if test is None or cache is None or not test.unsure or not test.points:
            return False
        # Either the next test is yet to be handed out, or the rest of this iteration is yet to be drawn, which decides
        # the test. The next one may follow, but not before the pending candidates are told.
        return len(self.initial_points) > 0 or not cache.waiting

    @property
    def mode(self) -> Points:
        """The most probable point, with the values of fixed variables."""
        mode = self.algorithm.family.mode(self.search.theta)
        return mode if self.feasibility is None else self.feasibility.fixed.applied(mode[None])[0]

    @property
    def mode_fun(self) -> float | None:
        """The mean of the finite values of the most probable point among the last evaluations; None without any."""
        code = self.mode
        if self.cache is not None:
            value = self.cache.get(code)
            return value if value is not None and self._have_values(np.array([value]))[0] else None
        seen = self.space.visible(code[None])
        told = [each.evaluated() for each in (*self.recent, *([self.iteration] if self.iteration.drawn else []))]
        if told:
            x, f = (np.concatenate(each)[-RECENT:] for each in zip(*told, strict=True))
            values = f[(self.space.visible(x) == seen).all(axis=1) & self._have_values(f)]
        else:
            values = EMPTY
        if len(values):
            with np.errstate(over="ignore"):
                mean = float(values.mean())
            return mean if math.isfinite(mean) else float((values / len(values)).sum())
        best = self.best
        same = best is not None and not best.violation and (self.space.visible(best.at[None]) == seen).all()
        return self.lowest_fun if same else None

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
        algorithm, search = self.algorithm, self.search
        state = search if type(search) is State else algorithm.info(search)
        return algorithm, state, self.nit, self.nfev, self.best

    def pending_ids(self) -> list[int]:
        """Return the ids of all pending candidates."""
        if self.cache is not None:
            return self.cache.pending_ids()
        return [*self.late, *(self.iteration.pending_ids() if self.iteration.drawn else ())]

    def codes_of(self, ids: Sequence[int]) -> Points:
        """Return the points of pending candidates."""
        first = self.iteration.first
        if isinstance(ids, range) and ids.step == 1 and ids.start >= first:
            return self.iteration.codes[ids.start - first : ids.stop - first]
        return np.array([self._code_of(id) for id in ids]) if len(ids) else self.initial_points[:0]

    def _code_of(self, id: int) -> Points:
        first = self.iteration.first
        return self.late[id].code if id < first else self.iteration.codes[id - first]

    def located(self, ids: Sequence[int]) -> tuple[int, Points, list[tuple[int, int]]]:
        """Return the number of candidates drawn, and of pending ones the points and (iteration, index of sample)."""
        first, nit, skipped = self.iteration.first, self.nit, self.iteration.n_initial_points
        places = [(nit, id - first - skipped) if id >= first else self.late[id][:2] for id in ids]
        return self.drawn, self.codes_of(ids), places

    # Drawing.

    def ask(self, k: int | None) -> tuple[Sequence[int], Points]:
        """Return ids and points of the next k candidates, or of all of this iteration that are not drawn yet."""
        if self.again:
            return self._ask_again(k)
        return self._draw(k) if self.cache is None else self._ask_new(k)

    def _draw(self, k: int | None) -> tuple[range, Points]:
        """Draw the next k points: initial points, then λ samples, then further ones from a stream of their own."""
        iteration, undrawn = self.iteration, self.undrawn
        if k is None and not undrawn:
            raise RuntimeError(
                f"ask: all {iteration.size} candidates of iteration {self.nit} were asked for and {iteration.missing} "
                "are pending: tell their values, cancel those that will have none, or call ask(k) for k more"
            )
        k = undrawn if k is None else k
        initial = min(k, len(self.initial_points))
        start = iteration.drawn - iteration.n_initial_points + len(self.initial_points)  # among the samples
        codes = self.algorithm.ask(self.search, self.streams.main, min(k, undrawn) - initial, start)
        if k > undrawn:
            more = self.algorithm.ask(self.search, self.streams.spare, k - undrawn, self.lam)
            codes = np.concatenate([codes, more])
        if self.feasibility is not None and len(codes):
            key, n_samples = self.streams.main.key, min(k, undrawn) - initial
            codes = self.feasibility.replaced(codes, self.search.theta, key, self.drawn + initial, n_samples)
        if initial:  # which are feasible
            codes = np.concatenate([self.initial_points[:initial], codes])
            self.initial_points = self.initial_points[initial:]
        return iteration.extend(codes), codes

    def _ask_new(self, k: int | None) -> tuple[Sequence[int], Points]:
        """Draw until k points are new, or until an iteration has a new point."""
        if k is None and self.cache is not None and not self.exhausted:
            ids, codes = self._draw_new(None, self.cache)
            if ids:  # the usual case
                return ids, codes
        ids = ()
        codes = self.initial_points[:0]
        while len(ids) < (1 if k is None else k) and not self.exhausted:
            left = None if k is None else min(k - len(ids), self.undrawn or k - len(ids))
            # Without a cache if an iteration that closed meanwhile has shown noise.
            more, fresh = self._draw(left) if self.cache is None else self._draw_new(left, self.cache)
            ids, codes = ([*ids, *more], np.concatenate([codes, fresh])) if ids else (more, fresh)
        return ids, codes

    def _draw_new(self, k: int | None, cache: Cache) -> tuple[Sequence[int], Points]:
        """Draw the next k points and return the new ones; those with known values are settled."""
        tests = len(self.initial_points) if self.nit else 0
        ids, codes = self._draw(k)
        new, known, values = cache.look_up(ids, codes, tests)
        if len(new) == len(ids):  # the usual case
            self.stale = 0
            return ids, codes
        self.stale = len(ids) - 1 - new[-1] if new else self.stale + len(ids)
        if known:
            self.iteration.settle(known if len(known) < len(ids) else ids, np.array(values), COPIED)
        self._close()
        return ([ids[row] for row in new], codes[new]) if new else ((), codes[:0])

    def _ask_again(self, k: int | None) -> tuple[Sequence[int], Points]:
        """Return candidates that were pending when another process ended, and new ones if these are not enough."""
        ids, self.again = self.again[:k], self.again[len(self.again) if k is None else k :]
        codes = self.codes_of(ids)
        if k is not None and len(ids) < k:
            more, fresh = self.ask(k - len(ids))
            ids, codes = [*ids, *more], np.concatenate([codes, fresh])
        return ids, codes

    def check_pending(self, k: int) -> None:
        """ValueError if a file may not ask for k more pending candidates."""
        pending = k + len(self.late) + self.iteration.fates.count(PENDING)
        if pending > MOST_PENDING or pending * self.algorithm.family.words > MOST_WORDS:
            raise ValueError(f"{pending} pending candidates are more than a file may ask for")

    def redraw(self, drawn: int) -> None:
        """Draw until as many candidates are drawn as a file states; ValueError if that is impossible."""
        while self.drawn < drawn:
            left = drawn - self.drawn
            k = min(left, self.undrawn or left)
            self.check_pending(k)
            if self.cache is None:
                self._draw(k)
            elif self.exhausted:
                raise ValueError(f"{drawn} candidates cannot have been drawn")
            else:
                self._draw_new(k, self.cache)

    def confirm(self, ids: Sequence[int], recorded: Points) -> None:
        """Check that recorded points are those drawn now; on a machine that rounds differently, take the recorded.

        Where rounding can change a point by more than the last digits, any recorded point is taken.
        """
        codes = self.codes_of(ids)
        if recorded.shape == codes.shape and (recorded == codes).all():
            return
        near = not is_exact(self.algorithm) or np.allclose(recorded, codes, rtol=0.0, atol=1e-6)
        if recorded.shape != codes.shape or not near:
            shown = ", ".join(map(str, list(ids)[:5]))
            hint = "" if self.feasibility is None else "; the constraints must return what they returned then"
            raise ValueError(f"the points recorded for the candidates {shown} are not those drawn now{hint}")
        for id, code in zip(ids, recorded, strict=True):
            if id >= self.iteration.first:
                self.iteration.codes[id - self.iteration.first] = code

    # Telling.

    def expect(self, ids: Sequence[int]) -> None:
        """ValueError if one of these is not pending."""
        once = isinstance(ids, range) or len(set(ids)) == len(ids)
        if once and self.iteration.are_pending(ids) and (self.cache is None or self.cache.are_pending(ids)):
            return  # the usual case
        if not once:
            raise ValueError(f"candidates: expected each once, got the ids {list(ids)}")
        for id in ids:
            if not 0 <= id < self.drawn:
                raise ValueError(f"candidates: expected candidates returned by ask(), got the unknown id {id}")
            handed_out = self.cache is None or self.cache.is_pending(id)
            if not handed_out or not (id in self.late or self.iteration.are_pending([id])):
                raise ValueError(f"candidates: expected pending ones, got id {id}, which was told or cancelled")

    def tell(
        self, ids: Sequence[int], f: Array, failures: Mapping[int, str], infeasible: Mapping[int, Infeasible] = NONE
    ) -> None:
        """Store values of pending candidates; see `ToldValues` for the arguments."""
        if not len(ids):
            return
        if len(ids) > 1 and (self.late or self.iteration.drawn > self.iteration.size):
            # One by one: the iteration may be complete before the last of them, which must not count for it then. A
            # journal does not record which values were told together.
            for i, id in enumerate(ids):
                text = {0: failures[i]} if i in failures else {}
                self.tell([id], f[i : i + 1], text, {0: infeasible[i]} if i in infeasible else NONE)
            return
        self.stale = 0
        self._count(ids, f, failures, infeasible)
        self._settle(ids, f, TOLD)

    def cancel(self, ids: Sequence[int]) -> None:
        """Store that these candidates will have no values."""
        if len(ids):
            self._settle(ids, np.full(len(ids), math.nan), CANCELLED)

    def add(self, code: Points, value: float) -> None:
        """Store the value of a point that was evaluated elsewhere."""
        if self.cache is not None:
            self.cache.put(code, value)
        self.infeasible += isinstance(value, Infeasible)
        if is_better(value, -1, self.best):
            self.best = Best(value, -1, code)

    def _count(
        self, ids: Sequence[int], f: Array, failures: Mapping[int, str], infeasible: Mapping[int, Infeasible]
    ) -> None:
        """Count evaluations and failures, and keep the best and the first of them."""
        self.nfev += len(f)
        self.infeasible += len(infeasible)
        lowest = f.item() if len(f) == 1 else f.item(f.argmin())  # as np.minimum.reduce(f), in a quarter of the time
        if lowest != lowest:  # NaN is among them
            failed = np.flatnonzero(f != f).tolist()
            self.failures += len(failed)
            id, row = min((ids[row], row) for row in failed)
            if self.failure is None or id < self.failure.id:
                self.failure = FirstFailure(id, failures.get(row, RETURNED_NAN))
            lowest = np.fmin.reduce(f)
        best = self.best
        # Almost always false, so the other conditions are rarely evaluated.
        if lowest < math.inf if best is None else lowest < best.rank or (lowest == best.rank and min(ids) < best.id):
            id, row = min((ids[row], row) for row in np.flatnonzero(f == lowest).tolist())
            value = infeasible.get(row, float(f[row]))  # of −0.0 and 0.0, which are equal, that of the lowest id
            if is_better(value, id, best):
                self.best = Best(value, id, self._code_of(id).copy())

    def _settle(self, ids: Sequence[int], f: Array, fate: int) -> None:
        """Store what became of candidates, and of those that waited for the same value."""
        if self.again:
            self.again = [id for id in self.again if id not in ids]
        self._store(ids, f, fate)
        if self.cache is not None:
            more, values = self.cache.settle(ids, f, keep=fate == TOLD)
            if more:
                self._store(more, np.array(values), COPIED if fate == TOLD else CANCELLED)
        self._close()

    def _store(self, ids: Sequence[int], f: Array, fate: int) -> None:
        if not self.late or (isinstance(ids, range) and ids.step == 1 and ids.start >= self.iteration.first):
            self.iteration.settle(ids, f, fate)
            return
        now = [i for i, id in enumerate(ids) if self.late.pop(id, None) is None]
        for i in sorted(set(range(len(ids))).difference(now)):
            self._settle_late(ids[i], f[i : i + 1], fate)
        self.iteration.settle([ids[i] for i in now], f[now], fate)

    def _settle_late(self, id: int, f: Array, fate: int) -> None:
        """Store the value of a candidate of a complete iteration, if that is a recent one."""
        for iteration in self.recent:
            if iteration.first <= id < iteration.first + iteration.drawn:
                iteration.settle([id], f, fate)

    def _close(self) -> None:
        """Tell a complete iteration to the algorithm and begin the next one."""
        iteration = self.iteration
        if iteration.missing:
            return
        if iteration.drawn > iteration.size:
            for id in iteration.pending_ids():
                position = id - iteration.first
                self.late[id] = Late(self.nit, position - iteration.n_initial_points, iteration.codes[position])
        x, f = iteration.samples()
        if self.feasibility is not None:
            x, f = self.feasibility.learn(x, f)
        self.search = self.algorithm.tell(self.search, x, f)
        constrained = self.constrained_algorithm if self.infeasible else None
        if constrained is not None and self.infeasible >= INFEASIBLE_SHARE * self.nfev:
            self._become_constrained(constrained)
        if self.cache is None:  # which has all values
            self.recent.append(iteration)
            self.n_recent += iteration.drawn
            while self.n_recent - self.recent[0].drawn > RECENT:
                self.n_recent -= self.recent.popleft().drawn
        if self.log is not None:
            again = float(iteration.f[0]) if iteration.fates[0] == TOLD else math.nan
            self._learn(*iteration.evaluated(iteration.size), again, self.log)
        self.nit += 1
        self._begin(iteration.first + iteration.drawn)
        if self.on_iteration is not None:
            self.on_iteration()

    def _learn(self, x: Points, f: Array, again: float, log: EvaluationLog) -> None:
        """Add evaluations of complete iterations to the log, and decide whether a second value `again` shows noise."""
        test = self.noise_test
        noisy = test is not None and test.expected is not None and test.judge(again, log.f, log.count)
        log.append(x, f)
        if noisy:
            self._become_noisy(log)
        elif test is not None and len(f):
            test.observe(x, f)

    def _become_constrained(self, algorithm: Member) -> None:
        """Change to the algorithm for objectives with violations, unless the objective is noisy."""
        self.constrained_algorithm = None
        if self.cache is not None:
            best, state = self.best, algorithm.init(x0=self.x0)
            self.algorithm = algorithm
            self.search = state if best is None else algorithm.inject(state, best.at, best.rank)

    def _become_noisy(self, log: EvaluationLog) -> None:
        """Change to the algorithm for noisy objectives, which learns from all evaluations so far."""
        if self.noisy_algorithm is None or self.cache is None:
            raise RuntimeError("the run was not started to test for noise")
        self.late = {id: late for id, late in self.late.items() if self.cache.is_pending(id)}
        self.cache = self.noise_test = None
        self.stale = 0
        self.algorithm = self.noisy_algorithm
        self.search = self.algorithm.observe(self.algorithm.init(x0=self.x0), log.x, log.f)

    def _begin(self, first: int) -> None:
        """Begin the next iteration, with a point to be tested for noise if a test is due."""
        test, log = self.noise_test, self.log
        tests = 0
        if test is not None and log is not None and test.points:
            at_end = test.unsure and (self.stale >= self.most_stale or self._covered)
            if log.count >= test.due or at_end:
                self.initial_points, tests = test.begin()[None], 1
        self.iteration = Iteration(first, tests + self.lam, n_initial_points=tests)

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

        `best` is the best value and its point, `evaluations` has points and values since the last call, in order, if
        they are of interest. If a point is being tested for noise, they are those of one iteration, and the test is the
        first of them. Return the points to be tested in the next iteration, before its samples: one or none.
        """
        self.search = search
        self.nit, self.nfev, self.failures = nit, nfev, failures
        if failures and self.failure is None:
            self.failure = FirstFailure(nfev, RETURNED_NAN)
        if best[0] < self.lowest_rank:
            self.best = Best(best[0], nfev, best[1])
        x, f = evaluations
        if self.log is not None and len(f):
            self._learn(x, f, float(f[0]), self.log)
        self._begin(drawn)
        tests, self.initial_points = self.initial_points, self.initial_points[:0]
        return tests

    def remember(self, codes: Points, f: Array) -> None:
        """Store the last evaluations of another engine."""
        if self.cache is not None:
            for code, value in zip(codes, f.tolist(), strict=True):
                self.cache.put(code, value)
            return
        iteration = Iteration(self.nfev - len(f), len(f))
        iteration.settle(iteration.extend(codes), f, TOLD)
        self.recent.append(iteration)
        self.n_recent += len(f)


def info_of(algorithm: Algorithm, state: Any, nit: int, nfev: int, best: Best | None, sign: float = 1.0) -> Info:
    """Return the record of an iteration, with values times `sign`.

    `state` is the state of the loop, or what another algorithm shows of its own.
    """
    theta, lam, eps, lam_r, snr = algorithm.info(state) if type(state) is State else state
    theta = theta.view()
    theta.flags.writeable = False
    fun, violation = (math.inf, 0.0) if best is None else (best.fun, best.violation)
    return Info(nit, nfev, sign * fun, lam, lam_r, eps, snr, algorithm.family.entropy(theta), violation, theta)


def _member_of(data: Any, name: str, batch: int, family: Family) -> Member | None:
    """Return the algorithm that a file describes; None if there is none."""
    if data is None:
        return None
    described = algorithm_of(data, family)
    if not isinstance(described, Member):
        raise ValueError(f"{name}: expected one of this library")
    return described.at_least(batch)


def check_batch(batch: int, family: Family) -> None:
    """ValueError for a batch larger than a file may ask for."""
    if batch > MOST_PENDING or batch * family.words > MOST_WORDS:
        raise ValueError(f"batch: expected at most {min(MOST_PENDING, MOST_WORDS // family.words)}, got {batch}")
