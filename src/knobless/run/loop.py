"""The loop between an optimizer and an objective: ask, evaluate, tell, until a rule applies.

With a stated `batch`, the loop takes the values of an iteration in the order of its candidates,
whether they come from the journal or from evaluations that end in any order (`sources`). So neither
the end of a run nor its result depends on that order. What becomes of an evaluation: its candidate
is drawn (`_iterate`), it is evaluated and recorded (`sources`, `sink`), its value taken
(`_evaluate`) and told (`_tell`), and the rules are checked (`_ending`).

Without it, and with several workers, no worker waits: the loop uses the next value that arrives,
and asks for a candidate for each free worker (`_advance`). Resuming uses the recorded values in the
same order.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Container, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from knobless.core.early_stopping import Curve
from knobless.core.several import Several
from knobless.core.types import Points
from knobless.core.violation import Infeasible

from . import interrupts
from .candidates import Batch, values_of
from .compiled_engine import CompiledEngine
from .display import one_line
from .iteration import Lookup, looking_up
from .optimizer import Optimizer
from .progress import Bar
from .recommendation import FINALISTS_SHARE, reserved
from .reevaluation import Reevaluations
from .result import History, Status
from .run_state import info_of
from .sink import Sink, Value
from .sources import Arrivals, Evaluator, Source, ValueStream
from .stopping import Ending, Rules, RunLimits, RunProgress, UserRules

if TYPE_CHECKING:
    from knobless.fast import Run
    from knobless.parallel.pool import Pool


FIRST_FAILURES = 4  # evaluations: if all of these raise, so does the run
# Seconds without a value after which it is checked whether there are more workers
LONGEST_WAIT = 1.0
# After which no points are compared
UNCOMPARED = (Status.INTERRUPTED, Status.CALLBACK, Status.FAILED)

LOG = logging.getLogger("knobless")
# Seconds between two estimates for the progress bar, at least
ESTIMATE_INTERVAL = 1.0
ESTIMATE_SHARE = 0.02  # of the runtime that these may take
EVALUATIONS = LOG.getChild("evaluations")  # which can be silenced alone


class Loop:
    """One run."""

    def __init__(
        self,
        sign: float,
        opt: Optimizer,
        limits: RunLimits,
        user_rules: UserRules,
        source: Source,
        sink: Sink,
        bar: Bar | None = None,
        compiled: CompiledEngine | None = None,
        pool: Pool | None = None,
        by_arrival: bool = False,
    ) -> None:
        self.sign = sign
        self.opt = opt
        self.sink = sink
        self.bar = bar
        self.compiled = compiled
        self.limits = limits
        self.user_rules = user_rules or None
        self.rules = Rules.of(limits, user_rules)
        self.progress = RunProgress()
        self.evaluator = Evaluator(
            source, sink, sign, limits.timeout, self.progress, opt.run.watched
        )
        # Values of the journal, in the order in which they arrived
        self.replaying = by_arrival
        self.arrivals = None if pool is None else Arrivals(pool, self.evaluator)
        self.reevaluations = Reevaluations(
            opt.run, limits, self.evaluator, self._show, self._log
        )
        self.info_of = partial(info_of, sign=sign)
        self.history = History(self.info_of)
        # Bytes of θ and of the signal of an iteration
        self.deferred_size = 16 * len(opt.run.search.theta)
        # Since when the run can be compiled: time and evaluations
        self.compilable: tuple[float, int] | None = None
        # The last point that reached the target in an interpreted iteration
        self.reaching: Points | None = None
        # Candidates after it, which are evaluated if it is refuted
        self.rest: Batch | None = None
        self.kept: dict[int, Value] = {}  # values of these that have arrived
        # Shown on the progress bar, and when it is computed again
        self.estimate, self.estimate_due = math.nan, 0.0
        # Candidates told since functions of the user were called
        self.fresh: list[int] = []
        # The errors so far; None once an evaluation has succeeded
        self.first: list[Exception] | None = []
        opt.on_iteration = self._report

    @property
    def reached(self) -> bool:
        """Whether a value has reached the target."""
        return self.progress.reaching <= self.limits.target

    @property
    def nfev(self) -> int:
        """All evaluations."""
        return self.opt.run.nfev + self.reevaluations.nfev

    @property
    def left(self) -> float:
        """Evaluations that are left for the search."""
        run = self.opt.run
        budget = self.limits.budget
        left = budget - run.nfev - self.reevaluations.nfev
        if run.noisy and self.opt.objectives is None:
            return left - reserved(budget)
        return left

    def run(self) -> Ending:
        """Iterate until a stopping rule applies; return why the run ended."""
        engine: Run | None = None
        try:
            with interrupts.noted_interrupts() as interrupted:
                self.progress.reach(self.opt.run.lowest_rank)  # of known points
                ending = self._ending(None)
                while ending is None:
                    if interrupted:  # and the exception was lost
                        raise KeyboardInterrupt
                    if (
                        engine is None
                        and self.compiled is not None
                        and self._can_be_compiled
                    ):
                        engine = self._change(self.compiled)
                    if self.replaying or self.arrivals is not None:
                        status = self._advance(self.progress.left)
                    elif engine is None:
                        status = self._iterate()
                    else:
                        status = self._iterate_compiled(engine)
                        # The objective was found to be noisy
                        if self.opt.run.algorithm is not engine.algorithm:
                            engine = self.compiled = None
                    ending = self._ending(status)
                    if self.bar is not None:
                        self._show(self.nfev)
                if self._waits_for_pending(ending.status):
                    self._drain()
                error = (
                    self._mistake(None)
                    if ending.status not in UNCOMPARED
                    else None
                )
                if error is not None:
                    self.sink.clear()
                    raise error
        except KeyboardInterrupt as error:
            interrupts.end_of_run(error)
            ending = Ending.of(Status.INTERRUPTED)
        finally:
            if self.arrivals is not None:
                self.arrivals.close()
        if engine is not None:
            engine.finish(self.opt)
        return ending

    def _ending(self, status: Status | None) -> Ending | None:
        """Return why the run ends: by the first rule that applies, or for lack of new points."""
        run = self.opt.run
        progress = self.progress
        progress.nfev = run.nfev
        progress.failures = run.failures
        progress.left = self.left
        if self.limits.budget == math.inf and run.deterministic is False:
            progress.deadline = (
                self.evaluator.end - self.limits.timeout / FINALISTS_SHARE
            )
        ending = self.rules.end(progress)
        if (
            ending is not None
            and ending.status is Status.TARGET
            and not self._confirmed()
        ):
            ending = self.rules.end(progress)
        if ending is None and status is not None:
            return Ending.of(status)
        return ending

    def _confirmed(self) -> bool:
        """Return whether the target is reached, by a second value too if there may be noise."""
        if self.reaching is not None and self.reevaluations.confirms:
            self._drain()
        if self.reaching is None or self.reevaluations.confirm(self.reaching):
            return True
        self.progress.reaching = math.inf
        self.progress.left = self.left
        return False

    # Interpreted iterations.

    def _iterate(self) -> Status | None:
        """Run one iteration, or as much of it as the budget allows; return why there is none."""
        opt = self.opt
        left = self.progress.left
        candidates = self.rest or Batch(opt.space, *opt.run.ask(None))
        self.rest = None
        if len(candidates.ids) > left:
            candidates = candidates[: int(left)]
        if not candidates.ids:
            self.sink.drawn()
            return Status.EXHAUSTED if opt.complete else Status.CONVERGED
        self._evaluate(candidates)
        return None

    def _evaluate(self, candidates: Batch) -> None:
        """Evaluate candidates and tell their values.

        Those that have arrived are told however the run ends.
        """
        ids = candidates.ids
        arrived = self.sink.recall(candidates)
        ended = False
        if self.kept:
            arrived = self.kept | arrived
            self.kept = {}
        values: list[Value] = []
        evaluations = self.evaluator.values(
            candidates, arrived, self.limits.target
        )
        if self.first is not None:
            evaluations = self._raising_first(evaluations, arrived)
        logged = (
            EVALUATIONS.isEnabledFor(logging.INFO) and {*ids} - arrived.keys()
        )
        try:
            if self.rules.of_values or self.bar is not None or logged:
                ended = self._watch(evaluations, values, ids, logged or ())
            else:
                # Faster; those before an exception are kept
                values.extend(evaluations)
        finally:
            evaluations.close()
            n = len(values)
            if ended and self.reached:
                self.reaching = self.opt.run.codes_of(ids[n - 1 : n])
                self.rest = candidates[n:]
                self.kept = {
                    id: arrived[id] for id in self.rest.ids if id in arrived
                }
            if n:
                self._tell(
                    candidates if n == len(ids) else candidates[:n], values
                )
            if n < len(ids) and arrived and not ended:
                rows = [i for i in range(n, len(ids)) if ids[i] in arrived]
                self._tell(
                    candidates.take(rows), [arrived[ids[i]] for i in rows]
                )

    def _raising_first(
        self, values: ValueStream, arrived: dict[int, Value]
    ) -> ValueStream:
        """Raise the error of the first evaluation if the next ones fail as well."""
        with closing(values):
            for value in values:
                error = self._mistake(value)
                if error is not None:
                    values.close()
                    arrived.clear()
                    self.sink.clear()
                    raise error
                yield value

    def _mistake(self, value: Value | None) -> Exception | None:
        """Return the error of the first evaluation if all of the first ones have raised.

        That is taken for a mistake in the program, which should not use up the budget. `value` is
        the next one, None at the end of the run.
        """
        if self.first is None:
            return None
        if isinstance(value, Exception):
            self.first.append(value)
        elif value is not None:
            self.first = None
            return None
        if (
            not self.first
            or (len(self.first) < FIRST_FAILURES and value is not None)
            or not self.evaluator.evaluated
        ):
            return None
        return next(
            (error for error in self.first if error.__traceback__ is not None),
            self.first[0],
        )

    def _watch(
        self,
        evaluations: ValueStream,
        values: list[Value],
        ids: Sequence[int],
        logged: Container[int],
    ) -> bool:
        """Append evaluations to `values` until one of them ends the run.

        Return whether one does.
        """
        for row, value in enumerate(evaluations):
            values.append(value)
            ended = self.rules.end_at_value(self.progress, value)
            if ids[row] in logged:
                self._log(f"evaluation {ids[row]}", value)
            if self.bar is not None:
                self._show(self.reevaluations.nfev + self.progress.nfev)
            if ended:
                return True
        return False

    def _tell(self, candidates: Batch, values: Sequence[Value]) -> None:
        """Tell values to the optimizer, and keep them for the result."""
        if values:
            settled = values_of(values, len(values))
            self.sink.keep(self.opt.run, candidates, settled)
            if self.user_rules is not None:
                self.fresh.extend(candidates.ids)
            self.opt.run.tell(candidates.ids, *settled)

    # Values in the order of arrival.

    def _advance(self, left: float) -> Status | None:
        """Use the next value, after giving points to all free workers.

        Return why there is no further value.
        """
        run = self.opt.run
        arrivals = self.arrivals
        if self.replaying:
            arrival = self.sink.arrival()
            if arrival is not None:
                self._use(*arrival)
                return None
            self.replaying, run.again = False, run.pending_ids()
        if arrivals is None:  # from here on in this process
            return None
        wait = LONGEST_WAIT
        if left > 0:
            wait = min(
                max(self.progress.deadline - time.monotonic(), 0.0), wait
            )
        if not arrivals.waiting and time.monotonic() < self.progress.deadline:
            again = len(run.again)  # which count as pending
            free = int(
                min(
                    arrivals.free,
                    again + max(left - len(arrivals.pending) - again, 0),
                )
            )
            candidates = Batch(
                self.opt.space,
                *(run.ask(free) if free > 0 else ((), run.initial_points[:0])),
            )
            if candidates.ids:
                arrivals.submit(candidates)
            elif not arrivals.pending and free > 0:
                self.sink.drawn()
                return (
                    Status.EXHAUSTED if self.opt.complete else Status.CONVERGED
                )
        outcome = arrivals.next(wait)
        if outcome is not None:
            self._use(outcome.id, outcome.value)
        return None

    def _use(self, id: int, value: Value) -> None:
        """Tell a value to the optimizer, and note whether it reaches the target."""
        error = self._mistake(value)
        if error is not None:
            if self.arrivals is not None:
                self.arrivals.close()
            self.sink.clear()
            raise error
        candidate = Batch(self.opt.space, [id], self.opt.run.codes_of([id]))
        before = self.reached
        self._tell(candidate, [value])
        self.rules.end_at_value(self.progress, value)
        if not self.replaying:
            self._log(f"evaluation {id}", value)
        if self.reached and not before:
            self.reaching = candidate.codes

    def _waits_for_pending(self, status: Status) -> bool:
        """Return whether evaluations that are running are awaited when the run ends."""
        return status is Status.TIMEOUT or (
            self.opt.run.noisy and status not in UNCOMPARED
        )

    def _drain(self) -> None:
        """Use the values of pending candidates, without asking for others."""
        run = self.opt.run
        arrivals = self.arrivals
        while run.pending_ids():
            if self.replaying or (
                arrivals is not None and (arrivals.pending or arrivals.waiting)
            ):
                self._advance(0)
            elif not run.again or time.monotonic() >= self.progress.deadline:
                return
            elif arrivals is not None:
                self._advance(0)
            else:
                self._evaluate(Batch(self.opt.space, *run.ask(len(run.again))))

    # Compiled iterations.

    @property
    def _can_be_compiled(self) -> bool:
        """Whether the next iterations can be compiled.

        The first one is not: it evaluates x0 and raises errors of the objective. Neither are those
        of Bayesian optimization, those in which a few tests decide whether the objective is noisy,
        nor those after noise was found or a value that reached the target was not confirmed.
        """
        run = self.opt.run
        test = self.opt.run.noise_test
        decided = (
            run.noisy_algorithm is None
            if test is None
            else not test.unsure and test.expected is None
        )
        begun = getattr(run.search, "begun", True)
        return (
            run.nit > 0 and decided and begun and not self.reevaluations.refuted
        )

    def _change(self, compiled: CompiledEngine) -> Run | None:
        """Return the compiled engine if the run has taken so long that it is worthwhile."""
        time_now = time.monotonic()
        # At the speed since it could be compiled: Bayesian optimization takes longer.
        since, before = self.compilable = self.compilable or (
            time_now,
            self.opt.nfev,
        )
        seconds = time_now - since
        left = min(
            seconds / max(self.opt.nfev - before, 1) * self.left,
            self.progress.deadline - time_now,
        )
        return compiled.start(
            seconds, left, self.progress.improved_at, self._announce
        )

    def _iterate_compiled(self, engine: Run) -> Status | None:
        """Run compiled iterations until the history has one more row.

        It is one iteration if a function is called after each.
        """
        run = self.opt.run
        nit = self.opt.nit
        stride = self.history.stride
        due = math.inf if run.noise_test is None else run.noise_test.due
        iterations = 1 if self.user_rules is not None else stride - nit % stride
        self.sink.clear()  # the engine keeps none of its evaluations
        status = engine.go(
            run.nfev + self.left,
            iterations,
            self.limits.target,
            self.limits.stall,
            due,
        )
        engine.update(self.opt)
        self.progress.improved_at = engine.improved_at
        self.progress.reach(run.lowest_rank)
        if self.opt.nit > nit:
            self._report()
        return status

    def user_value(self, fun: Any) -> Any:
        """Return an objective value with the user's sign, or a tuple of several."""
        if isinstance(fun, Several):
            return fun.values
        if isinstance(fun, float):
            return self.sign * fun
        return fun

    # What is shown.

    def _report(self) -> None:
        """Add a row to the history and call the functions of the user, which may stop the run."""
        run = self.opt.run
        if self.user_rules is None:
            self.history.append_deferred(
                run.nit, lambda: run.info_arguments, self.deferred_size
            )
            return
        info = self.info_of(*run.info_arguments)
        self.history.append(info)
        ids = self.fresh
        self.fresh = []
        with looking_up(
            info, Lookup(self._recommended, partial(self.sink.latest, ids))
        ):
            ending = self.user_rules.call(info)
        self.progress.stopped = self.progress.stopped or ending

    def _recommended(self) -> tuple[Any, Any]:
        """Return the point to use so far, and its value."""
        recommended = self.opt.recommended
        if recommended is None:
            return None, math.nan
        return recommended.x, recommended.fun if isinstance(
            recommended.fun, tuple
        ) else self.sign * recommended.fun

    def _show(self, nfev: int) -> None:
        if self.bar is not None:
            self.bar.show(nfev, *self._shown_fun, self.opt.failures)

    @property
    def _shown_fun(self) -> tuple[str, float]:
        """The value to show, with its name.

        Under noise an estimate, as the best value is a lucky one.
        """
        run = self.opt.run
        time_now = time.monotonic()
        if self.opt.objectives is not None:
            return "best", math.nan
        if not run.noisy:
            return "best", self.sign * self.opt.observed_fun
        if time_now >= self.estimate_due and (
            run.feasibility is None or not run.feasibility.constraints.functions
        ):
            self.estimate = self._recommended()[1]
            seconds = time.monotonic() - time_now
            self.estimate_due = (
                time_now + ESTIMATE_INTERVAL + seconds / ESTIMATE_SHARE
            )
        return "estimated mean", self.estimate

    def _log(self, name: str, value: Value) -> None:
        """Log an evaluation, with the best value so far."""
        if not EVALUATIONS.isEnabledFor(logging.INFO):
            return
        text = shown_value(value, self.sign)
        if self.opt.objectives is None:
            text += f", best {shown_value(self.progress.lowest, self.sign)}"
        EVALUATIONS.info("%s: %s", name, text)

    def _announce(self, message: str) -> None:
        """Log a message, and show it until the next one on the progress bar."""
        LOG.info(message)
        if self.bar is not None:
            self.bar.announce(message)


def shown_value(value: Value, sign: float) -> str:
    """Return the value of an evaluation, or why there is none, as a line of text."""
    if isinstance(value, Exception):
        return f"failed with {one_line(value, 200)}"
    if isinstance(value, Curve):
        stopped = (
            f"stopped after step {len(value.steps)} at "
            if value.stopped
            else ""
        )
        return stopped + shown_value(value.steps[-1], sign)
    if isinstance(value, Infeasible):
        return f"{shown_value(value.value, sign)} (violation {value.violation:.6g})"
    if isinstance(value, Several):
        return f"({', '.join(f'{value_of_one:.6g}' for value_of_one in value.values)})"
    return f"{sign * value:.6g}"
