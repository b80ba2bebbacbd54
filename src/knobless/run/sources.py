"""Where a run gets its values from: one by one, all in one call, or a pool of workers.

A source is a generator function over the candidates of an iteration. It records values when their
evaluations end, and yields them in the order of the candidates, as many as have arrived, negated if
the run maximizes. It ends early when the time is up.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

from knobless._checks import boolean
from knobless.core.violation import negated
from knobless.parallel.evaluation import Outcome, evaluate
from knobless.parallel.returned import (
    objective_value,
    objective_values,
    without_attributes,
)

from .candidates import Batch, Candidate
from .constraints import function_name
from .objectives import Objectives, SeveralObjective
from .sink import Positions, Sink, Value
from .stopping import RunProgress

if TYPE_CHECKING:
    from knobless.parallel.pool import Pool


ValueStream = Generator[Value, None, None]  # in the order of the candidates
Source = Callable[[Batch, "Evaluator"], ValueStream]


class EvaluatedObjective(NamedTuple):
    """An objective function and how it is to be evaluated, as the user has given it."""

    fun: Callable[[Any], Any]
    workers: Any
    vectorized: bool
    evaluation_timeout: float | None
    objectives: Objectives | None = None

    @property
    def name(self) -> str:
        """The name of the function, for people to read."""
        return function_name(self.fun)

    @property
    def in_this_process(self) -> bool:
        """Whether no pool is needed."""
        is_one = (
            isinstance(self.workers, Integral)
            and not isinstance(self.workers, bool)
            and self.workers == 1
        )
        return is_one and self.evaluation_timeout is None

    def source(self, resources: ExitStack) -> tuple[Source, Pool | None]:
        """Return the source of its values, and the pool of workers if there is one.

        `resources` closes it.
        """
        vectorized = boolean("vectorized", self.vectorized)
        if self.in_this_process:
            evaluate_here = (
                partial(_in_one_call, self.fun, self._read_all)
                if vectorized
                else partial(_one_by_one, self._read)
            )
            return evaluate_here, None
        if vectorized:
            argument = (
                "evaluation_timeout"
                if self.evaluation_timeout is not None
                else "workers"
            )
            raise ValueError(
                f"{argument}: expected none with vectorized=True, where one call evaluates all"
            )
        # Only here, because multiprocessing takes long to import
        from knobless.parallel import pool

        entered = resources.enter_context(
            pool.pool_of(self.workers, self._read, self.evaluation_timeout)
        )
        return partial(_in_pool, entered), entered

    @property
    def _read(self) -> Callable[[Any], Any]:
        """The function; its values are read as those of several objectives if these are stated."""
        if self.objectives is None:
            return self.fun
        return SeveralObjective(self.fun, self.objectives)

    def _read_all(self, values: Any, n: int) -> list[float]:
        """Return the values of a vectorized objective at n points."""
        if self.objectives is None:
            return objective_values(values, n)
        return [
            self.objectives.read(value)
            for value in self.objectives.read_all(values, n)
        ]


class Evaluator:
    """Evaluates candidates that have no value yet, and notes when the time is up."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        sign: float,
        timeout: float,
        progress: RunProgress,
        watched: Callable[[Batch, float], Batch],
    ) -> None:
        self.source = source
        self.sink = sink
        self.sign = sign
        self.timeout = timeout
        self.progress = progress
        # Adds what workers need to stop hopeless evaluations
        self.watched = watched
        # a value after which candidates need not be evaluated; NaN if there is none
        self.target = math.nan
        # Values of these candidates that are known before they can be yielded
        self.arrived: dict[int, Value] = {}
        # Whether the objective was called, and not only read from the journal
        self.evaluated = False
        # When the time is up, with that for the comparison of the points to recommend
        self.end = math.inf

    def begin(self) -> None:
        """Note that the objective is about to be called; the time limit begins."""
        if not self.evaluated:
            self.evaluated = True
            self.progress.deadline = self.end = time.monotonic() + self.timeout

    def values(
        self,
        candidates: Batch,
        arrived: dict[int, Value],
        target: float,
        positions: Positions | None = None,
    ) -> ValueStream:
        """Return the values of candidates in order: those that have arrived, then others."""
        ids = candidates.ids
        recalled = arrived and arrived.copy()
        missing = (
            candidates.take(
                [i for i, id in enumerate(ids) if id not in recalled]
            )
            if recalled
            else candidates
        )
        if recalled and not missing.ids:
            return (recalled[id] for id in ids)
        self.begin()
        self.sink.expect(missing, positions)
        self.target, self.arrived = target, arrived
        evaluated = self.source(
            missing
            if positions is not None
            else self.watched(missing, self.sign),
            self,
        )
        return _merged(ids, recalled, evaluated) if recalled else evaluated


def _merged(
    ids: Sequence[int], recalled: Mapping[int, Value], evaluated: ValueStream
) -> ValueStream:
    """Yield recalled and evaluated values in the order of their candidates."""
    with closing(evaluated):
        for id in ids:
            value = recalled[id] if id in recalled else next(evaluated, None)
            if value is None:  # time limit reached
                return
            yield value


def workers_of(workers: Any) -> Any:
    """Return `workers`, with −1 replaced by the number of CPUs that this process may use."""
    if not isinstance(workers, Integral) or workers != -1:
        return workers
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _one_by_one(
    fun: Callable[[Any], Any], candidates: Batch, run: Evaluator
) -> ValueStream:
    """Evaluate serially."""
    maximizing = run.sign < 0
    deadline = run.progress.deadline
    record = run.sink.record_here
    monotonic = time.monotonic
    for id, x in zip(candidates.ids, candidates.points, strict=True):
        started = monotonic()
        value = evaluate(fun, x, objective_value)
        ended = monotonic()
        if maximizing:
            value = _negated(value)
        record(id, value, started, ended)
        yield value if type(value) is float else without_attributes(value)
        if ended >= deadline:
            return


def _in_one_call(
    fun: Callable[[Any], Any],
    read: Callable[[Any, int], list[float]],
    candidates: Batch,
    run: Evaluator,
) -> ValueStream:
    """Evaluate all candidates in one call of a vectorized objective."""
    started = time.monotonic()
    evaluated = evaluate(
        fun, candidates.x, lambda values: read(values, len(candidates))
    )
    values: list[Any] = (
        [evaluated] * len(candidates)
        if isinstance(evaluated, Exception)
        else evaluated
    )
    if run.sign < 0:
        values = [_negated(value) for value in values]
    run.sink.record_together(candidates.ids, values, started, time.monotonic())
    yield from values


def _in_pool(pool: Pool, candidates: Batch, run: Evaluator) -> ValueStream:
    """Evaluate as many candidates at once as the pool takes."""
    waiting = deque(candidates)
    pending = set[int]()
    deadline = run.progress.deadline
    ids = candidates.ids
    arrived = run.arrived
    # The first candidate that reaches the target: later ones are not begun
    last = math.inf

    def receive(timeout: float | None) -> None:
        nonlocal last
        outcomes = pool.wait(timeout)
        if run.sign < 0:
            outcomes = [
                outcome._replace(value=_negated(outcome.value))
                for outcome in outcomes
            ]
        for id, value, *_ in outcomes:
            pending.discard(id)
            arrived[id] = without_attributes(value)
            if isinstance(value, float) and value <= run.target:
                last = min(last, id)
        run.sink.record(outcomes)

    try:
        done = 0
        while done < len(ids):
            n_done = done
            while n_done < len(ids) and ids[n_done] in arrived:
                n_done += 1
            if n_done > done:
                yield from [arrived[id] for id in ids[done:n_done]]
                done = n_done
                continue
            begun: list[Candidate] = []
            while (
                waiting
                and len(pending) < pool.capacity
                and waiting[0].id < last
                and not _passed(deadline)
            ):
                begun.append(waiting.popleft())
                pending.add(begun[-1].id)
            if begun:
                pool.submit(begun)
            if not pending:
                return
            left = deadline - time.monotonic()
            receive(left if 0.0 < left < math.inf and waiting else None)
    finally:
        # Whatever has ended the iteration: values that have arrived are kept, the others are
        # dropped
        if pending:
            with suppress(Exception):
                receive(0.0)
            pool.discard(pending)


class Arrivals:
    """Evaluations in a pool, whose values are used in the order in which they arrive."""

    def __init__(self, pool: Pool, run: Evaluator) -> None:
        self._pool, self._run = pool, run
        self.pending: set[int] = set()
        self.waiting: deque[Outcome] = deque()  # recorded, and not used yet

    @property
    def free(self) -> int:
        """The number of evaluations that can be begun now."""
        return max(self._pool.capacity - len(self.pending), 0)

    def submit(self, candidates: Batch) -> None:
        """Begin evaluations."""
        self._run.begin()
        self.pending.update(candidates.ids)
        self._pool.submit(self._run.watched(candidates, self._run.sign))

    def next(self, timeout: float | None) -> Outcome | None:
        """Return the next value that arrives, negated if the run maximizes.

        None after so many seconds.
        """
        if not self.waiting:
            outcomes = self._pool.wait(timeout)
            if self._run.sign < 0:
                outcomes = [
                    outcome._replace(value=_negated(outcome.value))
                    for outcome in outcomes
                ]
            if outcomes:
                self._run.sink.record_arrivals(outcomes)
            self.pending.difference_update([outcome.id for outcome in outcomes])
            self.waiting.extend(outcomes)
        return self.waiting.popleft() if self.waiting else None

    def close(self) -> None:
        """Record what has arrived, and drop what is pending."""
        if self.pending:
            with suppress(Exception):
                self.waiting.extend(
                    [
                        arrival
                        for arrival in [self.next(0.0)]
                        if arrival is not None
                    ]
                )
            self._pool.discard(self.pending)
            self.pending.clear()


def _negated(value: Value) -> Value:
    return value if isinstance(value, Exception) else negated(value)


def _passed(deadline: float) -> bool:
    return time.monotonic() >= deadline
