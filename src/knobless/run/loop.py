"""The loop between an optimizer and an objective: ask, evaluate, tell, until a stopping rule applies.

The loop takes the values of an iteration in the order of its candidates, whether they come from the journal or from
evaluations that end in any order (`sources`). So neither the end of a run nor its result depends on that order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from knobless._checks import count, positive_real, real
from knobless.parallel.evaluation import Outcome

from .candidates import Batch
from .iteration import Info
from .optimizer import Optimizer
from .progress import Bar
from .recording import Recording, Value
from .result import MESSAGES, History, Result, Status
from .sources import Source, ValueStream

if TYPE_CHECKING:
    from knobless.fast import Run

MAX_FAILURES = 100  # a run ends after this many evaluations if all of them failed


class StoppingRules(NamedTuple):
    """When a run stops; `target` is a value to be minimized."""

    budget: int
    target: float  # NaN, which no value reaches, if there is none
    timeout: float
    stall: float

    @classmethod
    def of(cls, sign: float, budget: Any, target: Any, timeout: Any, stall: Any) -> StoppingRules:
        """Check what the user has given."""
        return cls(
            count("budget", budget),
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
        self.history = History()
        self.source: Source
        self.bar: Bar | None = None
        self.journal: Recording | None = None
        self.compiled: Callable[[int], Run] | None = None  # starts the compiled engine
        self.deadline = math.inf  # set by the first evaluation: what the journal has does not count
        self.improved_at = 0  # evaluations until the last improvement
        self.stopped = False  # by the callback
        self.first_id: int | None = None  # the first evaluation of a run
        self.arrived: dict[int, Value] = {}  # values of this iteration that may precede those of earlier candidates
        self.target = rules.target
        opt.on_iteration = self._report

    @property
    def reached(self) -> bool:
        return self.opt.lowest_fun <= self.rules.target

    def run(self) -> Status:
        """Iterate until a stopping rule applies; return which."""
        engine: Run | None = None
        run = self.opt.run
        status = Status.TARGET if self.reached else None
        try:
            while status is None:
                # The first iteration is never compiled: it evaluates x0 and raises errors of the objective.
                if self.compiled is None or run.nit == 0:
                    status = self._iterate()
                else:
                    engine = engine or self.compiled(self.improved_at)
                    status = self._iterate_compiled(engine)
                if run.failures == run.nfev >= MAX_FAILURES:
                    status = Status.FAILED
                if self.stopped:
                    status = Status.TARGET if self.reached else Status.CALLBACK
                self._show(run.nfev)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if engine is not None:
            engine.finish(self.opt)
        return status

    def _iterate(self) -> Status | None:
        """Run one iteration, or as much of it as the budget allows."""
        opt, run = self.opt, self.opt.run
        candidates, left = opt.ask(), self.rules.budget - run.nfev
        if len(candidates.ids) > left:
            candidates = candidates[:left]
        if not candidates.ids:
            if self.journal is not None:
                self.journal.exhausted()
            return Status.EXHAUSTED if opt.complete else Status.CONVERGED
        status = self._evaluate(candidates)
        return Status.BUDGET if status is None and run.nfev >= self.rules.budget else status

    def _iterate_compiled(self, engine: Run) -> Status | None:
        """Run compiled iterations, as many as the history has one row for, or one if there is a callback."""
        nit = self.opt.nit
        budget, target, _, stall = self.rules
        status = engine.go(budget, 1 if self.callback else self.history.stride, target, stall)
        engine.update(self.opt)
        if self.opt.nit > nit:
            self._report()
        return status or (Status.TIMEOUT if time.monotonic() >= self.deadline else None)

    def _evaluate(self, candidates: Batch) -> Status | None:
        """Evaluate candidates and tell their values; those that have arrived are told whatever ends the run."""
        run, target, stall = self.opt.run, self.rules.target, self.rules.stall
        nfev, best = run.nfev, run.lowest_fun
        values: list[Value] = []
        status = None
        evaluations = self._begin(candidates)
        try:
            for value in chain.from_iterable(evaluations):
                values.append(value)
                if self.bar is not None:
                    self._show(nfev + len(values))
                if isinstance(value, float) and value < best:
                    best, self.improved_at = value, nfev + len(values)
                    if best <= target:
                        status = Status.TARGET
                        break
                elif nfev + len(values) - self.improved_at >= stall:
                    status = Status.STALL
                    break
        finally:
            evaluations.close()
            if values:
                self.opt.tell(candidates if len(values) == len(candidates.ids) else candidates[: len(values)], values)
            if status is None and len(values) < len(candidates.ids) and self.arrived:
                rest = [i for i in range(len(values), len(candidates.ids)) if candidates.ids[i] in self.arrived]
                self.opt.tell(candidates.take(rest), [self.arrived[candidates.ids[i]] for i in rest])
        return status or (Status.TIMEOUT if time.monotonic() >= self.deadline else None)

    def _begin(self, candidates: Batch) -> ValueStream:
        """Return the values of candidates, in their order: those that the journal has, the others evaluated now."""
        ids = candidates.ids
        recalled = self.journal.recall(ids) if self.journal is not None and self.journal.next_rows is not None else {}
        self.arrived = dict(recalled)
        missing = candidates.take([i for i, id in enumerate(ids) if id not in recalled]) if recalled else candidates
        if not missing.ids:
            return _at_once([recalled[id] for id in ids])
        if self.deadline == math.inf:
            self.deadline = time.monotonic() + self.rules.timeout
        if self.journal is not None:
            self.journal.expect(missing.ids)
        evaluated = self.source(missing, self)
        if self.opt.run.nfev == 0 and ids[0] not in recalled:
            self.first_id = ids[0]
            evaluated = self._raising_first(evaluated)
        return _merged(ids, recalled, evaluated) if recalled else evaluated

    def _raising_first(self, values: ValueStream) -> ValueStream:
        """Raise the error of the first evaluation: a mistake in the program should not cost the budget."""
        with closing(values):
            for first in values:
                if isinstance(first[0], Exception):
                    values.close()
                    self.arrived.clear()
                    if self.journal is not None:
                        self.journal.forget()
                    raise first[0]
                yield first
                yield from values

    @property
    def recording(self) -> bool:
        """Whether there is a journal."""
        return self.journal is not None

    def record(self, outcomes: Sequence[Outcome]) -> None:
        """Record outcomes in the journal; not the error of the first evaluation, which is raised."""
        if self.journal is not None:
            first = self.first_id
            self.journal.record(
                [each for each in outcomes if each.id != first or not isinstance(each.value, Exception)]
            )

    def _report(self) -> None:
        """Add a row to the history and call the callback, which may stop the run."""
        if self.callback is not None or self.history.keeps(self.opt.nit):
            info = self._info()
            self.history.append(info)
            try:
                if self.callback is not None:
                    self.callback(info)
            except StopIteration:
                self.stopped = True

    def _show(self, nfev: int) -> None:
        if self.bar is not None:
            self.bar.show(nfev, self.sign * self.opt.lowest_fun, self.opt.lam, self.opt.failures)

    def _info(self) -> Info:
        info = self.opt.run.info
        return info._replace(best=self.sign * info.best)

    def result(self, status: Status) -> Result:
        """Return the result of the run."""
        opt = self.opt
        if opt.nit and (not self.history or self.history[-1].iteration < opt.nit):
            self.history.append(self._info())
        best = opt.best
        mode_fun = opt.mode_fun
        message = MESSAGES[status]
        if status is Status.FAILED and opt.failure:
            message += opt.failure.strip().splitlines()[-1]
        elif best is None:
            message += " No evaluation gave a finite value."
        return Result(
            x=None if best is None else best.x,
            fun=math.nan if best is None else self.sign * best.fun,
            mode=opt.mode,
            mode_fun=None if mode_fun is None else self.sign * mode_fun,
            nfev=opt.nfev,
            nit=opt.nit,
            success=best is not None and (math.isnan(self.rules.target) or self.reached),
            status=status,
            message=message,
            failures=opt.failures,
            failure=opt.failure,
            history=self.history,
        )


def _at_once(values: Sequence[Value]) -> ValueStream:
    """Yield values that are known."""
    yield values


def _merged(ids: Sequence[int], recalled: Mapping[int, Value], evaluated: ValueStream) -> ValueStream:
    """Yield recalled and evaluated values in the order of their candidates."""
    with closing(evaluated):
        values = chain.from_iterable(evaluated)
        for id in ids:
            value = recalled[id] if id in recalled else next(values, None)
            if value is None:  # time limit reached
                return
            yield (value,)
