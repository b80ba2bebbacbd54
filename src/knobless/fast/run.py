"""A compiled run: the loop, P3, or the portfolio of P3 and the genetic algorithm, also with a study of the objective.

This module grows arrays and exposes results; what is done for every point is in `engine.py`, `pyramid.py`,
`evolution.py` and `study.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from knobless.core.bayesian_portfolio import BayesianPortfolio, BayesianState
from knobless.core.elitism import Elite
from knobless.core.evolution import Evolution
from knobless.core.families import Bernoulli
from knobless.core.igo import IGO
from knobless.core.p3 import P3
from knobless.core.portfolio import MemberRecord, Portfolio, PortfolioState, next_turn
from knobless.core.quadratic_portfolio import TESTING, QuadraticPortfolio, QuadraticState, Study
from knobless.core.rng import Stream
from knobless.core.types import Array
from knobless.run.optimizer import Optimizer
from knobless.run.result import Status
from knobless.run.run_state import RECENT

from . import engine, evolution, pyramid, shared, study
from .interrupts import deferred_interrupt
from .shared import EngineFunction

if TYPE_CHECKING:
    from . import Objective

ENDS = {
    shared.BUDGET: Status.BUDGET,
    shared.TARGET: Status.TARGET,
    shared.STALL: Status.STALL,
    shared.EXHAUSTED: Status.EXHAUSTED,
    shared.CONVERGED: Status.CONVERGED,
}
SLICE = 4096  # iterations of one compiled call, so that Ctrl-C is handled in time


def members_of(algorithm: Any, deterministic: bool) -> tuple[IGO | P3 | Evolution, ...] | None:
    """Return the members of an algorithm that can be compiled, of a single one itself; None for any other."""
    match algorithm:
        case IGO() if engine.plan_of(algorithm):
            return (algorithm,)
        case P3(family=Bernoulli(), climbers=1) if deterministic:
            return (algorithm,)
        case Portfolio(members=(P3() as p3, Evolution(batch=1) as other)) if members_of(p3, deterministic):
            return p3, other
        case QuadraticPortfolio(rest=rest, batch=1) | BayesianPortfolio(rest=rest, batch=1):
            return members_of(rest, deterministic)
    return None


def _begun(algorithm: Any) -> Any:
    """Return the algorithm after Bayesian optimization, which is not compiled; any other as it is."""
    return algorithm.rest if isinstance(algorithm, BayesianPortfolio) else algorithm


class MemberEngine(NamedTuple):
    """The engine of a member."""

    runner: Callable[[bool], EngineFunction]
    grown: Callable[[Any], Any]  # the state with larger arrays


ENGINES = {
    IGO: MemberEngine(engine.loop_runner, engine.grown_loop),
    P3: MemberEngine(pyramid.pyramid_runner, pyramid.grown_pyramid),
    Evolution: MemberEngine(evolution.population_runner, evolution.grown_population),
}


class Successor(NamedTuple):
    """The compiled run that continues that of an optimizer.

    Attributes
    ----------
    objective : Objective
        The compiled objective.
    opt : Optimizer
        The optimizer.
    sign : {1.0, -1.0}
        -1.0 to maximize.
    """

    objective: Objective
    opt: Optimizer
    sign: float

    @property
    def functions(self) -> list[EngineFunction]:
        """All functions of the engine that the run calls."""
        run, code = self.opt.run, self.objective.code
        caches, logs = run.cache is not None, run.log is not None
        members = members_of(run.algorithm, caches) or ()
        found = [code] if isinstance(code, EngineFunction) else []
        found += [ENGINES[type(member)].runner(logs) for member in members]
        if isinstance(_begun(run.algorithm), QuadraticPortfolio):
            found += [study.study_runner(logs), evolution.inject]
        if caches:
            return [*found, shared.store, shared.move, shared.recall]
        return [*found, engine.loop_runner(False), engine.recorded()]

    @property
    def is_ready(self) -> bool:
        """Whether nothing is to be compiled."""
        return all(each.is_ready for each in self.functions)

    def start(self, improved_at: int) -> Run:
        """Compile what is not compiled yet, and return the run.

        Parameters
        ----------
        improved_at : int
            Number of evaluations at the last improvement.

        Returns
        -------
        Run
            The run.
        """
        for each in self.functions:
            each.compiled  # noqa: B018
        return Run.resumed(self.objective, self.opt, self.sign, improved_at)


class View(NamedTuple):
    """The visible part of the state of a compiled member, from which only its own run can continue."""

    theta: Array
    size: int  # points per iteration

    def copy(self) -> View:
        return self


class Run:
    """A run of an algorithm over binary variables on a compiled objective.

    It is the run of the same seed that the core computes, between two calls of `go` all of it can be inspected.

    Parameters
    ----------
    objective : Objective
        The compiled objective.
    algorithm : Algorithm
        An `IGO` with a ranking preference, `P3`, or the portfolio of `P3` and `Evolution`, also as a
        `QuadraticPortfolio`.
    rng : seed, numpy.random.Generator or Stream, optional
        Source of the random numbers.
    state : optional
        State of the algorithm to begin with.
    sign : {1.0, -1.0}
        -1.0 to maximize.
    deterministic : bool
        Whether equal points have equal values: each point is then evaluated at most once.

    Raises
    ------
    TypeError
        If the algorithm cannot be compiled.
    """

    def __init__(
        self,
        objective: Objective,
        algorithm: Any,
        rng: Any = None,
        state: Any = None,
        sign: float = 1.0,
        deterministic: bool = False,
    ) -> None:
        members = members_of(algorithm, deterministic)
        if members is None:
            raise TypeError(f"algorithm: expected one over bits, by rank, that is compiled, got {algorithm!r}")
        self.algorithm = algorithm
        self._members = members
        self._family = algorithm.family
        n = self._family.variables
        objective.check(n)
        self.objective = objective
        self._progress = shared.progress(n, sign, len(members))
        self._cache = shared.empty_cache(n) if deterministic else shared.no_cache()
        state = algorithm.init() if state is None else state
        self._before: BayesianState | None = None  # the state of Bayesian optimization, which has ended
        if isinstance(state, BayesianState):
            if state.rest is None:
                raise ValueError("state: expected one in which the portfolio has started")
            self._before, state, algorithm = state, state.rest, algorithm.rest
        self._study: Study | None = None
        self._evaluated_before = 0  # number of evaluations that count for the beginning of the study
        if isinstance(state, QuadraticState):
            self._progress.counts[shared.STUDY_AT] = 0 if state.ended else max(algorithm.begins_at - state.before, 1)
            self._evaluated_before = state.before
            self._study, state, algorithm = state.study, state.rest, algorithm.rest
        if isinstance(algorithm, Portfolio):
            self._progress.counts[shared.EQUAL] = algorithm.equal
        states = state.members if isinstance(state, PortfolioState) else (state,)
        rng = Stream.of(rng)
        self._states = [self._compiled(*each, rng) for each in zip(members, states, strict=True)]
        self._log: shared.Log | None = None  # of all evaluations, if an optimizer needs them
        self._paused = False  # whether they must be handed over now

    def _compiled(self, member: IGO | P3 | Evolution, state: Any, rng: Stream) -> Any:
        """Return the state of a member in arrays; a pyramid begins again (`_repeat`)."""
        match member:
            case P3():
                key = rng.word() if state.stream is None else state.stream.key
                return pyramid.pyramid(member, key, state.x0)
            case Evolution():
                return evolution.population(self._family, state, rng)
            case IGO() if plan := engine.plan_of(member):
                return engine.loop(plan, state, rng)

    @classmethod
    def resumed(cls, objective: Objective, opt: Optimizer, sign: float, improved_at: int) -> Self:
        """Return a run that continues that of an optimizer.

        Parameters
        ----------
        objective : Objective
            The compiled objective.
        opt : Optimizer
            The optimizer, between two iterations.
        sign : {1.0, -1.0}
            -1.0 to maximize.
        improved_at : int
            Number of evaluations at the last improvement.

        Returns
        -------
        Run
            The run.
        """
        state = opt.run.search
        run = cls(objective, opt.algorithm, opt.rng, state, sign, deterministic=opt.run.cache is not None)
        counts, reals, spent, lowest, course, _, leader_x = run._progress
        if isinstance(state, BayesianState):
            state = state.rest
        if isinstance(state, QuadraticState):
            state = state.rest
        if opt.run.cache is not None:
            run._remember(opt.run.cache.values)
        if isinstance(run._members[0], P3):
            run._repeat(state.members[0].told if isinstance(state, PortfolioState) else state.told)
        if opt.run.log is not None:
            run._log = shared.empty_log(run._lam, len(run.best_x))
        counts[shared.NFEV], counts[shared.NIT], counts[shared.FAILURES] = opt.nfev, opt.nit, opt.failures
        counts[shared.STALE], counts[shared.BEST_AT] = opt.run.stale, improved_at
        counts[shared.DRAWN] = opt.run.drawn
        reals[shared.BEST] = opt.lowest_fun
        if isinstance(run._members[0], IGO):
            run._loop.saved_nfev[:] = opt.nfev
        if isinstance(state, PortfolioState):
            counts[shared.CURRENT], counts[shared.OWNER] = state.turn, state.owner
            if run._study is not None:
                counts[shared.CURRENT] = shared.STUDY
            for i, record in enumerate(state.records):
                spent[i], lowest[i], course[i, : len(record.course)] = record
            if len(state.best.f):
                leader_x[:], reals[shared.LEADER_FUN] = state.best.x[0], state.best.f[0]
        return run

    def update(self, opt: Optimizer) -> None:
        """Copy the visible state of this run to the optimizer, and take from it the next point to be tested for noise.

        If the last such test has shown noise, the optimizer uses another algorithm from now on, and this run is over.

        Parameters
        ----------
        opt : Optimizer
            The optimizer that this run continues.
        """
        if not isinstance(self._members[-1], P3):  # which has a stream of its own
            opt.rng.count = int(self._states[-1].stream[engine.COUNT])
        counts, log = self._progress.counts, self._log
        hands_over = self._paused or counts[shared.TEST] == shared.MADE  # not always, because that takes time
        logged = int(counts[shared.LOGGED]) if hands_over else 0
        best = self.best, self.best_x.copy()
        evaluations = (self.best_x[None][:0], np.empty(0)) if log is None else (log.x[:logged], log.f[:logged])
        drawn = int(counts[shared.DRAWN])
        tests = opt.run.adopt(self.state, self.nit, self.nfev, self.failures, drawn, best, evaluations)
        if hands_over and log is not None:
            if len(log.f) <= self._lam:
                self._log = log = shared.empty_log(self._lam, len(self.best_x))
            counts[shared.LOGGED] = 0
            counts[shared.TEST] = shared.PLANNED if len(tests) else shared.NO_TEST
            if len(tests):
                log.test_x[:] = tests[0]

    def finish(self, opt: Optimizer) -> None:
        """Copy the state at the end of the run, with the values that determine `mode_fun`.

        Parameters
        ----------
        opt : Optimizer
            The optimizer that this run continues.
        """
        self._paused = True
        self.update(opt)
        if opt.algorithm is not self.algorithm:
            return
        if opt.run.cache is not None:
            mode = self._family.mode(self.theta)
            value = shared.recall(self._cache, mode)
            known = int(value < math.inf)
            opt.run.remember(np.tile(mode, (known, 1)), np.full(known, value))
        else:
            opt.run.remember(*self.recent())

    def recent(self) -> tuple[NDArray[np.int8], Array]:
        """Return points and values of the last evaluations of the loop, by repeating that part of the run.

        Returns
        -------
        tuple of two ndarray
            The points, one row per evaluation, and their values; at most the last 512.
        """
        from . import Objective

        loop, n = self._loop, self._family.variables
        nfev = self.nfev - int(loop.saved_nfev[engine.OLDER])
        stored = np.zeros(1 + (nfev * n + 7) // 8, dtype=np.int64)
        values = loop.told[:nfev].copy()
        stream = Stream(int(loop.stream[engine.KEY]), int(loop.saved_count[engine.OLDER]))
        run = Run(Objective(engine.recorded(), stored, values), self.algorithm, stream, engine.older_state(loop))
        run.go(budget=nfev)
        return stored[1:].view(np.int8)[: nfev * n].reshape(nfev, n)[-RECENT:], values[-RECENT:]

    def _repeat(self, told: list[float]) -> None:
        """Bring the pyramid to the state of one that was told these values, all of which are in the cache."""
        progress = self._progress
        # That of P3 alone, with counts to which none of the conditions applies that end a run.
        self._progress = shared.progress(self._family.variables, 1.0, 1)
        self._progress.counts[shared.STALE] = -len(told)
        while self.nit < len(told):
            self._step(shared.Limits(math.inf, len(told), math.nan, math.inf, math.inf))
        self._progress = progress

    def _remember(self, values: Mapping[bytes, float]) -> None:
        """Add evaluations to the cache."""
        for key, value in values.items():
            if 2 * (self._progress.counts[shared.KNOWN] + 1) > len(self._cache.table):
                self._grow()
            shared.store(self._cache, np.frombuffer(key, dtype=np.int8).copy(), value, self._progress.counts)

    def _grow(self) -> None:
        larger = np.zeros(2 * len(self._cache.table), dtype=shared.ENTRY)
        shared.move(self._cache.table, larger)
        self._cache = self._cache._replace(table=larger)

    @property
    def _loop(self) -> engine.LoopState:
        """The state of the loop."""
        return self._states[-1]

    @property
    def _lam(self) -> int:
        """Samples of the next iteration, at most."""
        if self._study is not None:
            return len(self._study.points)
        match self._members[-1]:
            case P3():
                return 1
            case Evolution():
                return int(self._states[-1].counts[evolution.POPULATION_SIZE])
            case IGO():
                return max(round(self.lam_r), int(self._loop.plan.lam_min))

    @property
    def nfev(self) -> int:
        """Evaluations so far."""
        return int(self._progress.counts[shared.NFEV])

    @property
    def nit(self) -> int:
        """Iterations so far."""
        return int(self._progress.counts[shared.NIT])

    @property
    def best(self) -> float:
        """The lowest objective value so far."""
        return float(self._progress.reals[shared.BEST])

    @property
    def best_x(self) -> NDArray[np.int8]:
        """The point with that value."""
        return self._progress.best_x

    @property
    def improved_at(self) -> int:
        """Evaluations until the last improvement."""
        return int(self._progress.counts[shared.BEST_AT])

    @property
    def failures(self) -> int:
        """Evaluations that gave NaN."""
        return int(self._progress.counts[shared.FAILURES])

    @property
    def x(self) -> NDArray[np.int8]:
        """The samples of the last iteration of the loop, in its first rows."""
        return self._loop.x

    @property
    def lam_r(self) -> float:
        """λ_r, before it is rounded."""
        return float(self._loop.scalars[engine.LAM_R])

    @property
    def theta(self) -> Array:
        """θ of the algorithm; of a portfolio that of the last member."""
        state = self._states[-1]
        match self._members[-1]:
            case P3():
                return pyramid.pyramid_theta(self._family, state)
            case Evolution():
                return evolution.population_theta(self._family, state)
            case IGO():
                return self._loop.theta

    @property
    def _records(self) -> tuple[MemberRecord, ...]:
        """The evaluations of each member."""
        _, _, spent, lowest, course, _, _ = self._progress
        each = zip(spent.tolist(), lowest.tolist(), course.tolist(), strict=True)
        return tuple(MemberRecord(n, f, tuple(values[: n.bit_length()])) for n, f, values in each)

    @property
    def state(self) -> Any:
        """The core's state; for P3 and the portfolio only its visible part."""
        if isinstance(self._members[0], IGO):
            return engine.loop_state(self._loop)
        last = View(self.theta, self._lam)
        if len(self._members) == 1:
            return last
        counts, reals, *_, leader_x = self._progress
        lead = float(reals[shared.LEADER_FUN])
        m = int(lead < math.inf)
        best = Elite(np.tile(leader_x, (m, 1)), np.full(m, lead))
        records = self._records
        members, turn = (View(self._family.initial(), 1), last), int(counts[shared.CURRENT])
        turn = next_turn(records, int(counts[shared.EQUAL])) if turn == shared.STUDY else turn
        state: Any = PortfolioState(members, turn, records, best, int(counts[shared.OWNER]))
        if isinstance(_begun(self.algorithm), QuadraticPortfolio):
            state = QuadraticState(state, self._study, not counts[shared.STUDY_AT], self._evaluated_before)
        return state if self._before is None else self._before._replace(rest=state)

    def go(
        self,
        budget: float = math.inf,
        iterations: float = math.inf,
        target: float = math.nan,
        stall: float = math.inf,
        due: float = math.inf,
    ) -> Status | None:
        """Continue the run.

        Parameters
        ----------
        budget : float
            Evaluations of the whole run.
        iterations : float
            Iterations of this call.
        target : float
            Objective value that ends the run; NaN for none.
        stall : float
            Evaluations without improvement that end the run.
        due : float
            Evaluations after which the next test for noise is due.

        Returns
        -------
        Status or None
            Why the run ended; None if it has only done its iterations, or if `update` must precede the next one.
        """
        until = self.nit + iterations
        while True:
            why = self._step(shared.Limits(budget, min(until, self.nit + SLICE), target, stall, due))
            self._paused = why == shared.PAUSE
            if why in ENDS or self._paused or (why in (shared.GOING, shared.TURN) and self.nit >= until):
                return ENDS.get(why)

    def _step(self, limits: shared.Limits) -> int:
        """Call the engine of the member that has the turn; grow arrays that are too small."""
        limits = shared.Limits(*map(float, limits))
        counts = self._progress.counts
        turn = int(counts[shared.CURRENT])
        if turn == shared.STUDY:
            return self._step_of_study(limits)
        member, state = ENGINES[type(self._members[turn])], self._states[turn]
        why = self._call(member.runner, state, limits)
        match why:
            case shared.GROW_TERMS:
                self._states[turn] = pyramid.with_terms(state)
            case shared.GROW_BUFFERS:
                self._states[turn] = member.grown(state)
        if counts[shared.CURRENT] == shared.STUDY:
            center = float(self._progress.reals[shared.LEADER_FUN])
            self._study = Study.of(self._progress.leader_x.copy(), center, TESTING, np.empty(0), 1)
        return why

    def _step_of_study(self, limits: shared.Limits) -> int:
        """Run an iteration of the study; after the last one a member has the turn."""
        if self._study is None:
            raise RuntimeError("study: expected one that has begun, got none")
        points = study.study_points(self._study)
        why = self._call(study.study_runner, points, limits)
        if why != shared.TURN:
            return why
        before, self._study = self._study, self._study.after(points.f, 1)
        best = before.lowest(points.f)
        if best is not None:
            evolution.inject(self._states[shared.POPULATION], self._cache, best.x[0].copy(), float(best.f[0]))
        if self._study is None:
            self._progress.counts[shared.CURRENT] = next_turn(self._records, int(self._progress.counts[shared.EQUAL]))
            self._progress.counts[shared.STUDY_AT] = 0
        return why

    def _call(self, runner: Callable[[bool], EngineFunction], state: Any, limits: shared.Limits) -> int:
        """Call an engine; return why it returned, after the cache has grown if it was too small."""
        on = self.objective.address, self.objective.ints, self.objective.reals, self._progress, self._cache
        with deferred_interrupt():
            why: int = runner(self._log is not None)(*on, state, limits, self._log)
        if why == shared.GROW_CACHE:
            self._grow()
        return why
