"""The loop between an optimizer and an objective: ask, evaluate, tell, until a stopping rule applies.

The loop takes the values of an iteration in the order of its candidates, whether they come from the journal or from
evaluations that end in any order (`sources`). So neither the end of a run nor its result depends on that order.

Some evaluations are not told to the optimizer: those that confirm that the target is reached while the objective may be
noisy, and those that compare the points to recommend. A run that is resumed with a larger budget continues as if they
had not been made.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from knobless._checks import count, positive_real, real
from knobless.core.bayesian_portfolio import BayesianState
from knobless.core.types import Points
from knobless.journal.evaluations import Evaluations
from knobless.journal.events import CHECKED, TOLD
from knobless.parallel.evaluation import Outcome

from . import interrupts
from .candidates import Batch, values_of
from .compiled_engine import CompiledEngine
from .iteration import Info
from .kept_evaluations import KeptEvaluations, KeptGroup, Span
from .optimizer import Optimizer
from .progress import Bar
from .recommendation import FINALISTS_SHARE, Recommended, finalists, recommended_point, reserved, winner
from .recording import Recording, Value
from .result import MESSAGES, History, Result, Status
from .run_state import info_of
from .sources import Source, ValueStream

if TYPE_CHECKING:
    from array import array

    from knobless.fast import Run

NOT_CALLED = " (All evaluations were read from the journal: the objective was not called.)"
MAX_FAILURES = 100  # a run ends after this many evaluations if all of them failed


class StoppingRules(NamedTuple):
    """When a run stops; `target` is a value to be minimized."""

    budget: float  # inf if there is none
    target: float  # NaN, which no value reaches, if there is none
    timeout: float
    stall: float

    @classmethod
    def of(cls, sign: float, budget: Any, target: Any, timeout: Any, stall: Any) -> StoppingRules:
        """Check what the user has given."""
        if budget is None and timeout is None:
            raise TypeError("budget: expected a number of evaluations, or a timeout, got neither")
        return cls(
            math.inf if budget is None else count("budget", budget),
            math.nan if target is None else sign * real("target", target),
            math.inf if timeout is None else positive_real("timeout", timeout),
            math.inf if stall is None else count("stall", stall),
        )


class Loop:
    """One run."""

    def __init__(
        self, sign: float, opt: Optimizer, rules: StoppingRules, callback: Callable[[Info], object] | None
    ) -> None:
        self.sign = sign
        self.opt = opt
        self.rules = rules
        self.callback = callback
        self.info_of = partial(info_of, sign=sign)
        self.history = History(self.info_of)
        self.deferred_size = 16 * len(opt.run.search.theta)  # bytes of θ and of the signal of an iteration
        self.source: Source
        self.bar: Bar | None = None
        self.journal: Recording | None = None
        self.compiled: CompiledEngine | None = None
        self.compilable: tuple[float, int] | None = None  # since when the run can be compiled: time and evaluations
        self.began: float | None = None  # when the first evaluation did: what the journal has does not count
        self.deadline = math.inf
        self.end = math.inf  # the same, with the time for the comparison of the points to recommend
        self.n_checked = 0  # evaluations that are not told to the optimizer, and how many of them failed
        self.n_checked_failures = 0
        self.check = (0, 0)  # candidates drawn at the last of them, and the number of the next there
        self.refuted = False  # whether a value that reached the target was not confirmed
        self.reaching: Points | None = None  # the last point that reached the target in an interpreted iteration
        self.rest: Batch | None = None  # candidates after it, which are evaluated if it is refuted
        self.improved_at = 0  # evaluations until the last improvement
        self.stopped = False  # by the callback
        self.evaluated = False  # whether the objective was called, and not only read from the journal
        self.first_id: int | None = None  # the first evaluation of a run
        self.kept_evaluations = KeptEvaluations(opt.space.family, sign)  # of a run without a journal
        self.first_time = 0  # in its times, of this iteration
        self.spans: dict[int, Span] = {}  # when and where evaluations ran that were not in this process
        self.told = -1  # the highest id of a candidate that was told in a run with a journal
        self.checks: list[tuple[int, int, int]] = []  # evaluations not told: candidates drawn before, first, stop
        self.arrived: dict[int, Value] = {}  # values of this iteration that may precede those of earlier candidates
        self.kept: dict[int, Value] = {}  # those of `rest`
        self.kept_spans: dict[int, Span] = {}  # when and where these ran
        self.target = rules.target
        self.watched = True  # whether single values are of interest before their iteration is complete
        opt.on_iteration = self._report

    @property
    def reached(self) -> bool:
        return not self.refuted and self.opt.run.lowest_rank <= self.rules.target

    @property
    def nfev(self) -> int:
        """All evaluations."""
        return self.opt.run.nfev + self.n_checked

    @property
    def left(self) -> float:
        """Evaluations that are left for the search."""
        run, budget = self.opt.run, self.rules.budget
        left = budget - run.nfev - self.n_checked
        return left - reserved(budget) if run.log is not None and run.deterministic is False else left

    def run(self) -> Status:
        """Iterate until a stopping rule applies; return which."""
        engine: Run | None = None
        run, has_budget = self.opt.run, self.rules.budget < math.inf
        self.watched = self.bar is not None or not math.isnan(self.rules.target) or self.rules.stall < math.inf
        status = Status.TARGET if self.reached else None
        try:
            with interrupts.noted_interrupts() as interrupted:
                while status is None:
                    if interrupted:  # and the exception was lost
                        raise KeyboardInterrupt
                    if not has_budget and run.deterministic is False:
                        self.deadline = self.end - self.rules.timeout / FINALISTS_SHARE
                    if engine is None and self.compiled is not None and self._can_be_compiled:
                        engine = self._change(self.compiled)
                    if engine is None:
                        status = self._iterate()
                    else:
                        status = self._iterate_compiled(engine)
                        if run.algorithm is not engine.algorithm:  # the objective was found to be noisy
                            engine = self.compiled = None
                    if status is not None and status is Status.TARGET and not self._confirmed():
                        status = Status.BUDGET if self.left <= 0 else None
                    if run.failures and run.failures == run.nfev >= MAX_FAILURES:
                        status = Status.FAILED
                    if self.stopped:
                        status = Status.TARGET if self.reached else Status.CALLBACK
                    if self.bar is not None:
                        self._show(self.nfev)
        except KeyboardInterrupt as error:
            interrupts.end_of_run(error)
            status = Status.INTERRUPTED
        if engine is not None:
            engine.finish(self.opt)
        return status

    @property
    def _can_be_compiled(self) -> bool:
        """Whether the next iterations can be compiled.

        The first one is not: it evaluates x0 and raises errors of the objective. Neither are those of Bayesian
        optimization, those in which a few tests decide whether the objective is noisy, nor those after noise was found
        or a value that reached the target was not confirmed.
        """
        run, test = self.opt.run, self.opt.run.noise_test
        decided = run.noisy_algorithm is None if test is None else not test.unsure and test.expected is None
        begun = not isinstance(run.search, BayesianState) or run.search.rest is not None
        return run.nit > 0 and decided and begun and not self.refuted

    def _change(self, compiled: CompiledEngine) -> Run | None:
        """Return the compiled engine if the run has taken so long that it is worthwhile."""
        now = time.monotonic()
        # At the speed since it could be compiled: Bayesian optimization takes longer.
        since, before = self.compilable = self.compilable or (now, self.opt.nfev)
        seconds = now - since
        left = min(seconds / max(self.opt.nfev - before, 1) * self.left, self.deadline - now)
        return compiled.start(seconds, left, self.improved_at, self._announce)

    def _iterate(self) -> Status | None:
        """Run one iteration, or as much of it as the budget allows."""
        opt, left = self.opt, self.left
        if left <= 0:
            return Status.BUDGET
        candidates, self.rest = self.rest or Batch(opt.space, *opt.run.ask(None)), None
        if len(candidates.ids) > left:
            candidates = candidates[: int(left)]
        if not candidates.ids:
            if self.journal is not None:
                self.journal.drawn()
            return Status.EXHAUSTED if opt.complete else Status.CONVERGED
        return self._evaluate(candidates)

    def _iterate_compiled(self, engine: Run) -> Status | None:
        """Run compiled iterations until the history has one more row, or one if there is a callback."""
        run, nit, stride = self.opt.run, self.opt.nit, self.history.stride
        due = math.inf if run.noise_test is None else run.noise_test.due
        iterations = 1 if self.callback else stride - nit % stride
        self.kept_evaluations.clear()  # the engine keeps none of its evaluations
        status = engine.go(run.nfev + self.left, iterations, self.rules.target, self.rules.stall, due)
        engine.update(self.opt)
        self.improved_at = engine.improved_at
        if self.opt.nit > nit:
            self._report()
        return status or (Status.TIMEOUT if time.monotonic() >= self.deadline else None)

    def _evaluate(self, candidates: Batch) -> Status | None:
        """Evaluate candidates and tell their values; those that have arrived are told however the run ends."""
        ids = candidates.ids
        values: list[Value] = []
        status = None
        evaluations = self._begin(candidates)
        try:
            if self.watched:
                status = self._watch(evaluations, values)
            else:
                values.extend(evaluations)  # faster; those before an exception are kept
        finally:
            evaluations.close()
            n, reached = len(values), status is not None and status is Status.TARGET
            if reached:
                self.reaching = self.opt.run.codes_of([ids[n - 1]])
            if n:
                self._tell(candidates if n == len(ids) else candidates[:n], values)
            if reached:
                self.rest = candidates[n:]
                self.kept = {id: self.arrived[id] for id in self.rest.ids if id in self.arrived}
                self.kept_spans = self.spans
            if status is None and n < len(ids) and self.arrived:
                rest = [i for i in range(n, len(ids)) if ids[i] in self.arrived]
                self._tell(candidates.take(rest), [self.arrived[ids[i]] for i in rest])
        return status or (Status.TIMEOUT if time.monotonic() >= self.deadline else None)

    def _watch(self, evaluations: ValueStream, values: list[Value]) -> Status | None:
        """Append evaluations to `values` until one of them ends the run; return why it does."""
        nfev, best = self.opt.run.nfev, self.opt.run.lowest_rank
        for value in evaluations:
            values.append(value)
            if self.bar is not None:
                self._show(self.n_checked + nfev + len(values))
            if isinstance(value, float):
                if value <= self.rules.target:
                    return Status.TARGET
                if value < best:
                    best, self.improved_at = value, nfev + len(values)
            if nfev + len(values) - self.improved_at >= self.rules.stall:
                return Status.STALL
        return None

    def _tell(self, candidates: Batch, values: Sequence[Value]) -> None:
        """Tell values to the optimizer, and keep them for the result."""
        run, ids = self.opt.run, candidates.ids
        if not ids:
            return
        told = values_of(values, len(ids))
        if self.journal is not None:
            self.told = max(self.told, ids[-1])
        else:
            iteration = run.iteration
            first, codes = iteration.first, iteration.codes
            if len(ids) < len(codes):
                codes = codes[[id - first for id in ids]]
            first += iteration.n_initial_points
            self.kept_evaluations.add(KeptGroup(run.nit, TOLD, first, ids, codes, *told, self.first_time, self.spans))
        run.tell(ids, *told)

    def _begin(self, candidates: Batch) -> ValueStream:
        """Return the values of candidates, in their order: those that the journal has, the others evaluated now."""
        ids = candidates.ids
        recalled = self.journal.recall(ids) if self.journal is not None and self.journal.next_rows is not None else {}
        if self.kept:
            recalled, self.kept = self.kept | recalled, {}
        self.arrived = dict(recalled)
        self.first_time = self.kept_evaluations.begin()
        if self.spans or self.kept_spans:
            self.spans, self.kept_spans = self.kept_spans, {}
        missing = candidates.take([i for i, id in enumerate(ids) if id not in recalled]) if recalled else candidates
        if not missing.ids:
            return (recalled[id] for id in ids)
        self.evaluated = True
        if self.began is None:
            self.began = time.monotonic()
            self.deadline = self.end = self.began + self.rules.timeout
        if self.journal is not None:
            self.journal.expect(missing.ids)
        evaluated = self.source(missing, self)
        if self.opt.run.nfev == 0 and ids[0] not in recalled:
            self.first_id = ids[0]
            evaluated = self._raising_first(evaluated)
        return _merged(ids, recalled, evaluated) if recalled else evaluated

    def _raising_first(self, values: ValueStream) -> ValueStream:
        """Raise the error of the first evaluation: a mistake in the program should not use up the budget."""
        with closing(values):
            for first in values:
                if isinstance(first, Exception):
                    values.close()
                    self.arrived.clear()
                    if self.journal is not None:
                        self.journal.forget()
                    raise first
                yield first
                yield from values

    def _confirmed(self) -> bool:
        """Return whether the target is reached, also by a second value if the objective may be noisy."""
        test = self.opt.run.noise_test
        if test is None or not test.unsure or self.reaching is None or self.nfev >= self.rules.budget:
            return True
        values = self._evaluate_again(self.reaching, [-1])
        self.refuted = bool(values) and not (isinstance(values[0], float) and values[0] <= self.rules.target)
        return not self.refuted

    def _compare(self, status: Status) -> Recommended | None:
        """Return the best of the points to recommend by further evaluations; None if there are too few of these."""
        run, log, budget = self.opt.run, self.opt.run.log, self.rules.budget
        if log is None or run.deterministic is not False or run.best is None or time.monotonic() >= self.end:
            return None
        self.deadline = self.end
        n = int(min(reserved(budget if status is Status.BUDGET else self.nfev), budget - self.nfev))
        codes = finalists(run, log)[:n]
        if not len(codes):
            return None
        values = self._evaluate_again(np.resize(codes, (n, codes.shape[1])), [i % len(codes) for i in range(n)])
        f = np.array([value if isinstance(value, float) else math.nan for value in values])
        return winner(run, log, codes, [f[i :: len(codes)] for i in range(len(codes))])

    def _evaluate_again(self, codes: Points, positions: Sequence[int]) -> list[Value]:
        """Evaluate points without telling the optimizer; return fewer values if the time is up.

        `positions` has for each its index among the points to recommend, −1 for a confirmation.
        """
        drawn = self.opt.run.drawn
        first = self.check[1] if self.check[0] == drawn else 0
        batch = Batch(self.opt.space, range(first, first + len(codes)), codes)
        recalled = {} if self.journal is None else self.journal.recall_checked(batch.ids, codes)
        missing = [i for i, id in enumerate(batch.ids) if id not in recalled]
        self.evaluated = self.evaluated or bool(missing)
        if missing and self.journal is not None:
            self.journal.expect_checked(
                [batch.ids[i] for i in missing], codes[missing], [positions[i] for i in missing]
            )
        self.arrived, self.spans, self.first_id, self.target = {}, {}, None, math.nan
        self.first_time = self.kept_evaluations.begin()
        values: list[Value] = []
        try:
            for value in _merged(batch.ids, recalled, self.source(batch.take(missing), self)):
                values.append(value)
                self.n_checked += 1
                self.n_checked_failures += isinstance(value, Exception) or math.isnan(value)
                self._show(self.nfev)
        finally:
            self._keep_checked(drawn, batch.ids[: len(values)], positions, codes[: len(values)], values)
        self.target = self.rules.target
        self.check = drawn, first + len(codes)
        return values

    def _keep_checked(
        self, drawn: int, ids: Sequence[int], positions: Sequence[int], codes: Points, values: Sequence[Value]
    ) -> None:
        """Keep evaluations that are not told to the optimizer for the result."""
        if not ids:
            return
        self.checks.append((drawn, ids[0], ids[-1] + 1))
        if self.journal is None:
            nit, spans = self.opt.run.nit, self.spans
            for i, (id, position) in enumerate(zip(ids, positions, strict=False)):
                told, time = values_of([values[i]], 1), self.first_time + 2 * i
                one = range(id, id + 1)
                self.kept_evaluations.add(
                    KeptGroup(nit, CHECKED, id - position, one, codes[i : i + 1], *told, time, spans)
                )

    @property
    def recording(self) -> bool:
        """Whether there is a journal."""
        return self.journal is not None

    @property
    def times(self) -> array[float]:
        """Start and end of each evaluation in this process, without a journal."""
        return self.kept_evaluations.times

    def record(self, outcomes: Sequence[Outcome]) -> None:
        """Record outcomes in the journal, or when and where they were obtained if there is none.

        The error of the first evaluation is not recorded: it is raised.
        """
        if self.journal is None:
            if not self.spans:  # which earlier iterations share
                self.spans = {}
            self.spans |= {each.id: (each.started, each.ended, each.worker) for each in outcomes}
        else:
            first = self.first_id
            self.journal.record(
                [each for each in outcomes if each.id != first or not isinstance(each.value, Exception)]
            )

    def _report(self) -> None:
        """Add a row to the history and call the callback, which may stop the run."""
        run = self.opt.run
        if self.callback is None:
            self.history.append_deferred(run.nit, run.info_arguments, self.deferred_size)
            return
        info = self.info_of(*run.info_arguments)
        self.history.append(info)
        try:
            self.callback(info)
        except StopIteration:
            self.stopped = True

    def _show(self, nfev: int) -> None:
        if self.bar is not None:
            self.bar.show(nfev, self.sign * self.opt.lowest_fun, self.opt.lam, self.opt.failures)

    def _announce(self, message: str) -> None:
        """Log a message, and show it until the next one on the progress bar."""
        logging.getLogger("knobless").info(message)
        if self.bar is not None:
            self.bar.announce(message)

    def result(self, status: Status) -> Result:
        """Return the result of the run."""
        opt = self.opt
        if self.history.last_iteration < opt.nit:
            self.history.append(self.info_of(*opt.run.info_arguments))
        best, chosen = opt.best, None
        if status not in (Status.INTERRUPTED, Status.CALLBACK, Status.FAILED):
            try:
                chosen = self._compare(status)
            except KeyboardInterrupt as error:
                interrupts.end_of_run(error)
                status = Status.INTERRUPTED
        chosen = chosen or recommended_point(opt.run)
        mode_fun = opt.mode_fun
        message = MESSAGES[status]
        if opt.run.noisy_algorithm is not None and opt.run.noise_test is None:
            message += " The objective was found to be noisy: x is the recommended point."
        failures = opt.failures + self.n_checked_failures
        failing = 2 * failures > self.nfev
        reason = (opt.failure or "").strip().rpartition("\n")[2]
        if status is Status.FAILED:
            message += reason
        elif failing:
            message += f" {failures} of {self.nfev} evaluations failed. The first failure: {reason}"
        elif best is None:
            message += " No evaluation gave a finite value."
        if chosen is not None and chosen.violation:
            message += f" No feasible point was found: x has the least violation, {chosen.violation:.6g}."
        if self.journal is not None and self.nfev and not self.evaluated:
            message += NOT_CALLED
        if failing:
            warnings.warn(f"Most evaluations failed. {message}", RuntimeWarning, stacklevel=5)
        feasible = chosen is not None and not chosen.violation
        reached = math.isnan(self.rules.target) or status is Status.TARGET or self.reached
        return Result(
            x=None if chosen is None else opt.space.decode(chosen.code),
            fun=math.nan if chosen is None else self.sign * chosen.fun,
            fun_std=None if chosen is None or math.isnan(chosen.std) else chosen.std,
            deterministic=opt.deterministic,
            violation=math.nan if chosen is None else chosen.violation,
            lowest_x=None if best is None else best.x,
            lowest_fun=math.nan if best is None else self.sign * best.fun,
            mode=opt.mode,
            mode_fun=None if mode_fun is None else self.sign * mode_fun,
            nfev=self.nfev,
            nit=opt.nit,
            constraint_checks=0 if opt.run.feasibility is None else opt.run.feasibility.checks,
            success=feasible and reached and not failing and status is not Status.INTERRUPTED,
            status=status,
            message=message,
            failures=failures,
            failure=opt.failure,
            history=self.history,
            evaluations=self._evaluations(),
        )

    def _evaluations(self) -> Evaluations:
        """Return the evaluations of the run."""
        kept = self.kept_evaluations
        rows = kept if self.journal is None else self.journal.rows(self.told, self.checks)
        dropped = self.nfev - len(kept) if self.journal is None else 0
        return Evaluations(self.opt.space, "minimize" if self.sign > 0 else "maximize", rows, dropped)


def _merged(ids: Sequence[int], recalled: Mapping[int, Value], evaluated: ValueStream) -> ValueStream:
    """Yield recalled and evaluated values in the order of their candidates."""
    with closing(evaluated):
        for id in ids:
            value = recalled[id] if id in recalled else next(evaluated, None)
            if value is None:  # time limit reached
                return
            yield value
