"""A compiled run: the loop, P3, or a portfolio of both.

This module grows arrays and exposes results; what is done for every point is in `engine.py` and `pyramid.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from knobless.core.elitism import Elite
from knobless.core.families import Bernoulli
from knobless.core.igo import IGO
from knobless.core.p3 import P3
from knobless.core.portfolio import Portfolio, PortfolioState
from knobless.core.rng import Stream
from knobless.core.types import Array
from knobless.run.optimizer import Optimizer
from knobless.run.result import Status
from knobless.run.run_state import RECENT

from . import engine, pyramid, shared
from .interrupts import deferred_interrupt
from .shared import ABSENT, LOOP, PYRAMID, EngineFunction

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


def members_of(algorithm: Any, deterministic: bool) -> tuple[P3 | None, IGO | None] | None:
    """Return P3 and the loop of an algorithm that can be compiled; None for any other."""
    match algorithm:
        case IGO() if engine.plan_of(algorithm):
            return None, algorithm
        case P3(family=Bernoulli(), climbers=1) if deterministic:
            return algorithm, None
        case Portfolio(members=(P3() as p3, IGO() as igo)) if members_of(p3, deterministic) and engine.plan_of(igo):
            return p3, igo
    return None


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
        p3, igo = members_of(run.algorithm, caches) or (None, None)
        found = [code] if isinstance(code, EngineFunction) else []
        found += [] if p3 is None else [pyramid.pyramid_runner(logs)]
        found += [] if igo is None else [engine.loop_runner(logs)]
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


class PyramidView(NamedTuple):
    """The visible part of a compiled P3's state, from which only its own run can continue."""

    theta: Array

    def copy(self) -> PyramidView:
        return self


class Run:
    """A run of an algorithm over binary variables on a compiled objective.

    It is the run of the same seed that the core computes, between two calls of `go` all of it can be inspected.

    Parameters
    ----------
    objective : Objective
        The compiled objective.
    algorithm : Algorithm
        An `IGO` with a ranking preference, `P3`, or a portfolio of both.
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
        self._p3, self._igo = members
        self._family = algorithm.family
        self._first = self._family.initial()
        n = self._family.variables
        objective.check(n)
        self.objective = objective
        self._progress = shared.progress(n, sign)
        self._cache = shared.empty_cache(n) if deterministic else shared.no_cache()
        state = algorithm.init() if state is None else state
        states = state.members if isinstance(state, PortfolioState) else (state, state)
        rng = Stream.of(rng)
        self._turn = LOOP
        self._log: shared.Log | None = None  # of all evaluations, if an optimizer needs them
        self._paused = False  # whether they must be handed over now
        if self._p3 is not None:
            stream = states[0].stream
            key = rng.word() if stream is None else stream.key
            self._pyramid = pyramid.pyramid(self._p3, key, states[0].x0)
            self._progress.idle[PYRAMID] = 0
            self._turn = PYRAMID
        plan = None if self._igo is None else engine.plan_of(self._igo)
        if plan is not None:
            self._loop = engine.loop(plan, states[-1], rng)
            self._progress.idle[LOOP] = 0

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
        counts, reals, idle, _, leader_x = run._progress
        if opt.run.cache is not None:
            run._remember(opt.run.cache.values)
        if run._p3 is not None:
            run._repeat(state.members[0].told if isinstance(state, PortfolioState) else state.told)
        if opt.run.log is not None:
            run._log = shared.empty_log(run._lam, len(run.best_x))
        counts[shared.NFEV], counts[shared.NIT], counts[shared.FAILURES] = opt.nfev, opt.nit, opt.failures
        counts[shared.STALE], counts[shared.BEST_AT] = opt.run.stale, improved_at
        counts[shared.DRAWN] = opt.run.drawn
        reals[shared.BEST] = opt.lowest_fun
        if run._igo is not None:
            run._loop.saved_nfev[:] = opt.nfev
        if isinstance(state, PortfolioState):
            run._turn, idle[:], counts[shared.OWNER] = state.turn, state.idle, state.owner
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
        if self._igo is not None:
            opt.rng.count = int(self._loop.stream[engine.COUNT])
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
        run = Run(Objective(engine.recorded(), stored, values), self._igo, stream, engine.older_state(loop))
        run.go(budget=nfev)
        return stored[1:].view(np.int8)[: nfev * n].reshape(nfev, n)[-RECENT:], values[-RECENT:]

    def _repeat(self, told: list[float]) -> None:
        """Bring the pyramid to the state of one that was told these values, all of which are in the cache."""
        counts, idle = self._progress.counts, self._progress.idle
        known, other = int(counts[shared.KNOWN]), int(idle[LOOP])
        # None of the conditions that end a run or a turn applies.
        counts[shared.KNOWN], counts[shared.STALE], idle[LOOP] = 0, -len(told), ABSENT
        while self.nit < len(told):
            self._step(shared.Limits(math.inf, len(told), math.nan, math.inf, math.inf))
        counts[shared.KNOWN], idle[LOOP] = known, other

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
    def _lam(self) -> int:
        """Samples of the next iteration, at most."""
        return 1 if self._igo is None else max(round(self.lam_r), int(self._loop.plan.lam_min))

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
        """θ of the loop; for P3 alone, how often each bit is one among its members."""
        if self._igo is not None:
            return self._loop.theta
        first, members = self._first, int(self._pyramid.counts[pyramid.MEMBERS])
        if not members:
            return first
        return self._family.move(first, (self._pyramid.ones / members - first) * (members / (members + 1)))

    @property
    def state(self) -> Any:
        """The core's state; for P3 only its visible part."""
        if self._p3 is None:
            return engine.loop_state(self._loop)
        if self._igo is None:
            return PyramidView(self.theta)
        counts, reals, idle, _, leader_x = self._progress
        lead = float(reals[shared.LEADER_FUN])
        m = int(lead < math.inf)
        best = Elite(np.tile(leader_x, (m, 1)), np.full(m, lead))
        members = PyramidView(self._first), engine.loop_state(self._loop)
        return PortfolioState(members, self._turn, tuple(idle.tolist()), best, int(counts[shared.OWNER]))

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
        on = self.objective.address, self.objective.ints, self.objective.reals, self._progress, self._cache
        turn = self._turn
        runner = (pyramid.pyramid_runner if turn == PYRAMID else engine.loop_runner)(self._log is not None)
        state = self._pyramid if turn == PYRAMID else self._loop
        with deferred_interrupt():
            why: int = runner(*on, state, limits, self._log)
        if turn == LOOP or why == shared.TURN:
            self._turn = int(self._progress.idle.argmin())
        match why:
            case shared.GROW_CACHE:
                self._grow()
            case shared.GROW_TERMS:
                self._pyramid = pyramid.with_terms(self._pyramid)
            case shared.GROW_BUFFERS if turn == PYRAMID:
                self._pyramid = pyramid.grown_pyramid(self._pyramid)
            case shared.GROW_BUFFERS:
                self._loop = engine.grown_loop(self._loop)
        return why
