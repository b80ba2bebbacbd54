"""A compiled run: the loop, P3, or the search of P3 and the genetic algorithm.

The members advance in compiled code and return blocks of points and values. Here these are counted,
and told to the core's `Search`, which gives out the turns; the points of its study are evaluated in
compiled code as well.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from knobless.core.elitism import Elite
from knobless.core.evolution import Evolution
from knobless.core.igo import IGO
from knobless.core.p3 import P3
from knobless.core.rng import Stream
from knobless.core.search import WHOLE, Search
from knobless.core.turns import MemberRecord
from knobless.core.types import Array, Points
from knobless.journal.events import TOLD
from knobless.run.optimizer import Optimizer
from knobless.run.result import Status
from knobless.run.run_state import MAX_STALE, RECENT
from knobless.run.stopping import Rules, RunLimits, RunProgress, UserRules
from knobless.space.variables import Binary

from . import shared
from .engine import CompiledLoop
from .evolution import CompiledPopulation
from .interrupts import deferred_interrupt
from .pyramid import CompiledPyramid

if TYPE_CHECKING:
    from . import Objective

LOG_BYTES = 2**18  # of points that are kept until they are handed over
MOST_LEFT = 2**62


class CompiledP3(P3):
    """P3 with states that have advanced before they are told."""

    def tell(self, state: Any, x: Points, f: Array) -> Any:
        """Return the same state."""
        return state


class CompiledEvolution(Evolution):
    """The genetic algorithm with states that have advanced before they are told."""

    def tell(self, state: Any, x: Points, f: Array) -> Any:
        """Return the same state."""
        return state

    def inject(self, state: Any, x: Points, f: float) -> Any:
        """Return the state with a point of another member in the population."""
        state.inject(Elite(x[None], np.array([f])))
        return state


COMPILED_STATES: dict[type, Any] = {
    IGO: CompiledLoop,
    P3: CompiledPyramid,
    Evolution: CompiledPopulation,
}


def members_of(algorithm: Any, deterministic: bool) -> tuple[Any, ...] | None:
    """Return the members of an algorithm that can be compiled, of a single one itself.

    None for any other.
    """
    members = getattr(algorithm, "members", (algorithm,))
    compiled = (
        [(P3, Evolution)] if hasattr(algorithm, "members") else [(IGO,), (P3,)]
    )
    if (
        tuple(map(type, members)) not in compiled
        or getattr(getattr(algorithm, "study", None), "batch", 1) > 1
    ):
        return None
    # P3 draws the key of its random numbers at its first turn, here when the run begins: that turn
    # must be the first.
    if len(members) > 1 and algorithm.rule.next(
        [MemberRecord()] * len(members)
    ):
        return None
    if all(
        COMPILED_STATES[type(member)].supports(member, deterministic)
        for member in members
    ):
        return members
    return None


class Successor(NamedTuple):
    """What continues the run of an optimizer in compiled code; `sign` is -1.0 to maximize."""

    objective: Objective
    opt: Optimizer
    sign: float

    @classmethod
    def of(
        cls, objective: Objective | None, opt: Optimizer, sign: float
    ) -> Self | None:
        """Return the successor; None if the objective or the algorithm is not compiled."""
        n = getattr(opt.space.sole, "n", 0)
        if (
            objective is None
            or type(opt.space.sole) is not Binary
            or not cls(objective, opt, sign).members
        ):
            return None
        objective.check(n)
        return cls(objective, opt, sign)

    @property
    def members(self) -> tuple[Any, ...]:
        """The members of the algorithm; none if it is not compiled."""
        return (
            members_of(self.opt.algorithm, self.opt.run.pending is not None)
            or ()
        )

    @property
    def functions(self) -> list[shared.EngineFunction]:
        """All functions of the engine that the run calls."""
        code = self.objective.code
        functions = [code] if isinstance(code, shared.EngineFunction) else []
        for member in self.members:
            functions += COMPILED_STATES[type(member)].functions()
        if getattr(self.opt.algorithm, "study", None) is not None:
            functions.append(shared.evaluate_samples)
        if self.opt.run.pending is None:
            return functions
        return [*functions, shared.store, shared.move, shared.recall]

    @property
    def is_ready(self) -> bool:
        """Whether nothing is to be compiled."""
        return all(function.is_ready for function in self.functions)

    def start(self, improved_at: int) -> Run:
        """Compile what is not compiled yet, and return the run after its last improvement at this
        evaluation.
        """
        for function in self.functions:
            function.compiled  # noqa: B018
        return Run.resumed(self.objective, self.opt, self.sign, improved_at)


class Run:
    """A run of an algorithm over binary variables on a compiled objective.

    It is the run of the same seed that the core computes, between two calls of `go` all of it can
    be inspected.

    Parameters
    ----------
    objective : Objective
        The compiled objective.
    algorithm : Algorithm
        An `IGO` with a ranking preference, `P3`, or a `Search` of `P3` and `Evolution`.
    rng : seed, numpy.random.Generator or Stream, optional
        Source of the random numbers.
    state : optional
        State of the algorithm to begin with.
    sign : {1.0, -1.0}
        -1.0 to maximize.
    deterministic : bool
        Whether equal points have equal values: each point is then evaluated at most once.

    Attributes
    ----------
    nfev, nit, failures : int
        Evaluations so far, iterations, and evaluations that gave NaN.
    best : float
        The lowest objective value so far.
    best_x : array
        The point with that value.
    improved_at : int
        Evaluations until the last improvement.

    Raises
    ------
    TypeError
        If the algorithm cannot be compiled.
    """

    nfev = nit = failures = improved_at = 0
    best = math.inf

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
            raise TypeError(
                f"algorithm: expected one over bits, by rank, that is compiled, got {algorithm!r}"
            )
        n = algorithm.family.variables
        objective.check(n)
        self.objective = objective
        self.algorithm = algorithm
        self.sign = sign
        self.best_x: Points = np.zeros(n, dtype=np.int8)
        self._block = shared.empty_block(n, deterministic)
        # That can be evaluated
        self._points = 2.0 ** min(n, 64) if deterministic else math.inf
        state = algorithm.init() if state is None else state
        group = state.groups.get(WHOLE) if hasattr(state, "groups") else None
        if hasattr(state, "groups") and group is None:
            raise ValueError("state: expected one in which the stages are over")
        rng = Stream.of(rng)
        states = (state,) if group is None else group.states
        self._states = tuple(
            COMPILED_STATES[type(member)](member, *arguments, rng)
            for member, *arguments in zip(members, states, strict=True)
        )
        self._keep_cache(
            shared.empty_cache(n) if deterministic else shared.no_cache()
        )
        self._search: Search | None = None
        if group is not None:
            family = algorithm.family
            self._search = replace(
                algorithm,
                members=(CompiledP3(family), CompiledEvolution(family)),
            )
            self._state = state._replace(
                groups={WHOLE: group._replace(states=self._states)}
            )
        self._drawn = 0  # candidates
        # Evaluations to be handed over, if they are of interest
        self._log: list[tuple[Points, Array]] | None = None
        # The last evaluations, if they are of interest
        self._recent: tuple[Points, Array] | None = None
        self._logged = 0  # bytes of their points
        # Point that is tested for noise before the next iteration
        self._test: Points | None = None
        # Its evaluation, until it is handed over
        self._tested: list[tuple[Points, Array]] = []

    @classmethod
    def resumed(
        cls, objective: Objective, opt: Optimizer, sign: float, improved_at: int
    ) -> Self:
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
        """
        run = cls(
            objective,
            opt.algorithm,
            opt.rng,
            opt.run.search,
            sign,
            deterministic=opt.run.pending is not None,
        )
        counts = run._block.counts
        if opt.run.pending is None:
            run._recent, run._block = (
                (run.best_x[None][:0], np.empty(0)),
                shared.empty_block(len(run.best_x), True),
            )
            counts = run._block.counts
        else:
            run._remember(*opt.run.archive.points())
        for state in run._states:
            while state.told:  # which evaluates nothing
                counts[shared.DONE_ROWS] = counts[shared.COMPLETED] = counts[
                    shared.STALE
                ] = 0
                counts[shared.LEFT] = 1
                run._call(
                    state,
                    shared.Limits(
                        sign,
                        math.nan,
                        state.told,
                        math.inf,
                        math.inf,
                        math.inf,
                        0.0,
                    ),
                )
                state.told -= int(counts[shared.COMPLETED])
        if opt.run.is_compared:
            run._log = []
            run._recent = None
        run.nfev = opt.nfev
        run.nit = opt.nit
        run.failures = opt.failures
        run._drawn = opt.run.drawn
        run.best = opt.observed_fun
        run.improved_at = improved_at
        counts[shared.STALE] = opt.run.stale
        return run

    def update(self, opt: Optimizer) -> None:
        """Copy the visible state of this run to the optimizer.

        The run takes over the next point that is tested for noise.

        If the last such test has shown noise, the optimizer uses another algorithm from now on, and
        this run is over.

        Parameters
        ----------
        opt : Optimizer
            The optimizer that this run continues.
        """
        count = self._states[-1].count
        if count is not None:
            opt.rng.count = count
        evaluations = self.best_x[None][:0], np.empty(0)
        if self._log:
            x, f = zip(*self._log, strict=True)
            evaluations = (np.concatenate(x), np.concatenate(f))
            self._log = []
            self._logged = 0
        best = self.best, self.best_x
        tests = opt.run.adopt(
            self.state,
            self.nit,
            self.nfev,
            self.failures,
            self._drawn,
            best,
            evaluations,
        )
        self._test = tests[0] if len(tests) else None
        self._tested = []

    def finish(self, opt: Optimizer) -> None:
        """Copy the state at the end of the run, with the values that determine `mode_fun`.

        Parameters
        ----------
        opt : Optimizer
            The optimizer that this run continues.
        """
        self.update(opt)
        counts = self._block.counts
        if opt.algorithm is not self.algorithm:
            return
        if opt.run.pending is not None:
            mode = self.algorithm.family.mode(self.theta)[None]
            f = np.array([shared.recall(self._cache, mode[0])])
            self._recent = mode[f < math.inf], f[f < math.inf]
        if self._recent is not None:
            opt.run.remember(*self._recent)
        # The iteration that was not completed
        elif counts[shared.LAM] and opt.run.pending is None:
            rows = slice(
                counts[shared.DONE_ROWS],
                counts[shared.DONE_ROWS] + counts[shared.VALUED],
            )
            ids = opt.run.iteration.extend(self._block.x[rows].copy())
            opt.run.iteration.settle(ids, self._block.f[rows].copy(), TOLD)

    def _remember(self, x: Points, f: Array) -> None:
        """Add evaluations to the cache."""
        counts = self._block.counts
        for point, value in zip(x, f.tolist(), strict=True):
            if 2 * (counts[shared.KNOWN] + 1) > len(self._cache.table):
                self._keep_cache(shared.grown_cache(self._cache))
            shared.store(self._cache, point.copy(), value, counts)

    def _keep_cache(self, cache: shared.CacheTable) -> None:
        self._cache = cache
        for state in self._states:
            state.cache = cache

    @property
    def x(self) -> Points:
        """The samples of the last call of `go`, if it was short, in its first rows."""
        return self._block.x

    @property
    def lam_r(self) -> float:
        """λ_r of the loop, before it is rounded."""
        lam_r: float = self._states[0].lam_r
        return lam_r

    @property
    def theta(self) -> Array:
        """θ of the algorithm; of a search that of the last member."""
        theta: Array = self._states[-1].theta
        return theta

    @property
    def state(self) -> Any:
        """The core's state.

        Of P3 and a search with states of members that have the same attributes.
        """
        return self._states[0].core if self._search is None else self._state

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
            Why the run ended; None if it has only done its iterations, or if `update` must precede
            the next one.
        """
        limits = RunLimits(budget, target, math.inf, stall)
        rules = Rules.of(limits, UserRules())
        counts = self._block.counts
        begun = self.nit
        until = begun + iterations
        while True:
            ending = rules.end(self._progress(budget))
            if ending is not None or self.nit >= until:
                return ending and ending.status
            if not counts[shared.LAM]:
                if counts[shared.KNOWN] >= self._points:
                    return Status.EXHAUSTED
                if counts[shared.STALE] >= MAX_STALE:
                    return Status.CONVERGED
                if self.nit > begun and (
                    self._tested
                    or self.nfev >= due
                    or self._logged >= LOG_BYTES
                ):
                    return None
            forced = self._test is not None
            if self._test is not None:
                self._evaluate_test(self._test)
                ending = rules.end(self._progress(budget))
            left = (
                0
                if ending is not None
                else limits.evaluations(self._progress(budget))
            )
            n_more = 1 if self._tested else until - self.nit
            rows = counts[shared.DONE_ROWS] + max(due - self.nfev, 1)
            self._advance(
                left,
                shared.Limits(
                    self.sign, target, n_more, rows, math.inf, MAX_STALE, forced
                ),
            )

    def _progress(self, budget: float) -> RunProgress:
        """Return what stopping rules read."""
        return RunProgress(
            self.nfev,
            self.failures,
            self.best,
            self.best,
            self.improved_at,
            budget - self.nfev,
        )

    def _advance(self, left: float, limits: shared.Limits) -> None:
        """Let the member that has the turn advance, or the study.

        Count the evaluations and tell them.
        """
        counts = self._block.counts
        if not counts[shared.LAM]:
            counts[shared.DONE_ROWS] = counts[shared.VALUED] = 0
        n_rows = int(counts[shared.DONE_ROWS])
        counted = int(counts[shared.DONE_ROWS] + counts[shared.VALUED])
        counts[shared.LEFT], counts[shared.COMPLETED] = (
            min(left, self._points - counts[shared.KNOWN], MOST_LEFT),
            0,
        )
        self._block.best[0] = self.best
        group = None if self._search is None else self._state.groups[WHOLE]
        if self._search is None or group is None:
            self._call(self._states[0], limits)
        elif self._state.study is not None:
            self._evaluate(self._state.study.points, limits)
        else:
            state = self._states[group.turn]
            state.follow(group.best if group.owner != group.turn else None)
            self._call(
                state,
                limits._replace(
                    turn=counts[shared.DONE_ROWS]
                    + self._search.keeps(self._state)
                ),
            )
        stop = int(counts[shared.DONE_ROWS])
        self._count(counted, stop + int(counts[shared.VALUED]))
        if stop > n_rows:
            self._tell(n_rows, stop)

    def _call(self, state: shared.CompiledState, limits: shared.Limits) -> None:
        """Let a member advance to a limit; enlarge arrays that are too small."""
        on = (self.objective.address, self.objective.ints, self.objective.reals)
        runner = state.functions()[0]
        limits = shared.Limits(*map(float, limits))
        why = shared.GOING
        while why != shared.LIMIT:
            with deferred_interrupt():
                why = runner(
                    *on, self._block, self._cache, state.arrays, limits
                )
            match why:
                case shared.GROW_BLOCK:
                    self._block = shared.grown_block(self._block)
                case shared.GROW_CACHE:
                    self._keep_cache(shared.grown_cache(self._cache))
                case shared.GROW_BUFFERS | shared.GROW_TERMS:
                    state.grow(why)

    def _evaluate(self, points: Points, limits: shared.Limits) -> None:
        """Evaluate the points of an iteration of the study."""
        counts = self._block.counts
        m = len(points)
        while len(self._block.f) < m:
            self._block = shared.grown_block(self._block)
        while len(self._cache.table) < 2 * (counts[shared.KNOWN] + m):
            self._keep_cache(shared.grown_cache(self._cache))
        if not counts[shared.LAM]:
            self._block.x[:m], counts[shared.LAM], counts[shared.NEW] = (
                points,
                m,
                0,
            )
        on = (
            self.objective.address,
            self.objective.ints,
            self.objective.reals,
            self._block,
            self._cache,
        )
        with deferred_interrupt():
            shared.evaluate_samples(*on, shared.Limits(*map(float, limits)))

    def _evaluated(self, start: int, stop: int) -> slice | NDArray[np.intp]:
        """Return which of some rows of the block were evaluated rather than known."""
        if (
            not len(self._cache.table)
            or (evaluated := self._block.evaluated[start:stop]).all()
        ):
            return slice(start, stop)
        return start + evaluated.nonzero()[0]

    def _count(self, start: int, stop: int) -> None:
        """Count evaluations, and keep the best of them."""
        block = self._block
        rows = self._evaluated(start, stop)
        f = block.f[rows]
        lowest = f.min(initial=math.inf)
        if lowest != lowest:  # NaN is among them
            self.failures += int(np.count_nonzero(f != f))
            lowest = np.fmin.reduce(f, initial=math.inf)
        if lowest < self.best:
            at = int((f == lowest).argmax())
            row = start + at if isinstance(rows, slice) else rows[at]
            x = (
                block.x[row]
                if block.counts[shared.KEEPS_POINTS]
                else block.best_x
            )
            self.best, self.best_x, self.improved_at = (
                float(lowest),
                x.copy(),
                self.nfev + at + 1,
            )
        self.nfev += len(f)
        if self._recent is not None:
            before = self._recent
            self._recent = (
                np.concatenate([before[0], block.x[rows]])[-RECENT:],
                np.concatenate([before[1], f])[-RECENT:],
            )

    def _tell(self, start: int, stop: int) -> None:
        """Take the rows of complete iterations into account."""
        counts = self._block.counts
        self.nit += int(counts[shared.COMPLETED])
        self._drawn += stop - start + len(self._tested)
        if self._log is not None:
            rows = self._evaluated(start, stop)
            self._log += [
                *self._tested,
                (self._block.x[rows].copy(), self._block.f[rows].copy()),
            ]
            self._logged += self._log[-1][0].nbytes
        if self._tested:
            counts[shared.STALE] = 0
        if self._search is not None:
            self._state = self._search.learn(
                self._state,
                self._block.x[start:stop],
                self._block.f[start:stop],
            )

    def _evaluate_test(self, x: Points) -> None:
        """Evaluate the point that is tested for noise, before the samples of its iteration."""
        counts = self._block.counts
        counts[shared.DONE_ROWS] = counts[shared.VALUED] = 0
        self._block.x[0], self._block.f[0], self._block.evaluated[0] = (
            x,
            self.sign * self.objective(x),
            True,
        )
        self._count(0, 1)
        self._tested = [(self._block.x[:1].copy(), self._block.f[:1].copy())]
        self._test = None
