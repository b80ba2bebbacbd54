"""Where a run gets its values from: evaluations one by one, all in one call, or in a pool of workers.

A source is a generator function over the candidates of an iteration. It records values when their evaluations end, and
yields them in the order of the candidates, as many as have arrived, negated if the run maximizes. It ends early when
the time is up.
"""

from __future__ import annotations

import math
import os
import time
from array import array
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from knobless._checks import boolean
from knobless.core.violation import negated
from knobless.parallel.evaluation import Outcome, evaluate, objective_value, objective_values

from .candidates import Batch, Candidate
from .constraints import function_name
from .kept_evaluations import Span
from .recording import Value

if TYPE_CHECKING:
    from knobless.parallel.pool import Pool


class Context(Protocol):
    """What a source needs of the run."""

    sign: float
    deadline: float  # by time.monotonic()
    target: float  # NaN if there is none
    arrived: dict[int, Value]  # values that are known before they can be yielded
    spans: dict[int, Span]  # when and where the others ran, without a journal

    @property
    def times(self) -> array[float]:
        """Start and end of each evaluation in this process by `time.monotonic()`, without a journal."""

    @property
    def recording(self) -> bool:
        """Whether there is a journal."""

    def record(self, outcomes: Sequence[Outcome]) -> None:
        """Record outcomes in the journal, or when and where they were obtained if there is none."""


ValueStream = Generator[Value, None, None]  # in the order of the candidates
Source = Callable[[Batch, Context], ValueStream]
THIS_PROCESS = ""  # the worker of an evaluation in this process


class EvaluatedObjective(NamedTuple):
    """An objective function and how it is to be evaluated, as the user has given it."""

    fun: Callable[[Any], Any]
    workers: Any
    vectorized: bool
    evaluation_timeout: float | None

    @property
    def name(self) -> str:
        """The name of the function, for people to read."""
        return function_name(self.fun)

    @property
    def in_this_process(self) -> bool:
        """Whether no pool is needed."""
        one = isinstance(self.workers, Integral) and not isinstance(self.workers, bool) and self.workers == 1
        return one and self.evaluation_timeout is None

    def source(self, resources: ExitStack) -> Source:
        """Return the source of its values; `resources` closes it."""
        vectorized = boolean("vectorized", self.vectorized)
        if self.in_this_process:
            return partial(_in_one_call if vectorized else _one_by_one, self.fun)
        if vectorized:
            given = "evaluation_timeout" if self.evaluation_timeout is not None else "workers"
            raise ValueError(f"{given}: expected none with vectorized=True, where one call evaluates all")
        from knobless.parallel import pool  # only here, because multiprocessing takes long to import

        return partial(_in_pool, resources.enter_context(pool.pool_of(self.workers, self.fun, self.evaluation_timeout)))


def workers_of(workers: Any) -> Any:
    """Return `workers`, with −1 replaced by the number of CPUs that this process may use."""
    if not isinstance(workers, Integral) or workers != -1:
        return workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_workers(workers: Any) -> int:
    """Return the number of evaluations that `workers` can run at once; 1 if that is not known."""
    client = workers if hasattr(workers, "nthreads") else getattr(workers, "_client", None)  # Dask
    if client is not None:
        return max(sum(client.nthreads().values()), 1)
    number = getattr(workers, "_max_workers", workers)
    return max(int(number), 1) if isinstance(number, Integral) and not isinstance(number, bool) else 1


def _one_by_one(fun: Callable[[Any], Any], candidates: Batch, run: Context) -> ValueStream:
    """Evaluate serially."""
    maximizing, recording, deadline, times = run.sign < 0, run.recording, run.deadline, run.times
    monotonic = time.monotonic
    ids = iter(candidates.ids)
    for x in candidates.points:
        clock = monotonic()
        value = evaluate(fun, x, objective_value)
        now = monotonic()
        if maximizing:
            value = _negated(value)
        if recording:
            ended = time.time()
            run.record((Outcome(next(ids), value, ended - (now - clock), ended, THIS_PROCESS),))
        else:
            times.append(clock)
            times.append(now)
        yield value
        if now >= deadline:
            return


def _in_one_call(fun: Callable[[Any], Any], candidates: Batch, run: Context) -> ValueStream:
    """Evaluate all candidates in one call of a vectorized objective."""
    started, clock = time.time(), time.monotonic()
    found = evaluate(fun, candidates.x, partial(objective_values, n=len(candidates)))
    values: list[Any] = [found] * len(candidates) if isinstance(found, Exception) else found
    if run.sign < 0:
        values = [_negated(value) for value in values]
    now = time.monotonic()
    if run.recording:
        ended = started + now - clock
        run.record(
            [Outcome(id, value, started, ended, THIS_PROCESS) for id, value in zip(candidates.ids, values, strict=True)]
        )
    else:
        run.times.extend([clock, now] * len(candidates))
    yield from values


def _in_pool(pool: Pool, candidates: Batch, run: Context) -> ValueStream:
    """Evaluate as many candidates at once as the pool takes."""
    waiting, pending = deque(candidates), set[int]()
    ids, arrived = candidates.ids, run.arrived
    last = math.inf  # the first candidate that reaches the target: later ones are not begun

    def receive(timeout: float | None) -> None:
        nonlocal last
        outcomes = pool.wait(timeout)
        if run.sign < 0:
            outcomes = [each._replace(value=_negated(each.value)) for each in outcomes]
        for id, value, *_ in outcomes:
            pending.discard(id)
            arrived[id] = value
            if isinstance(value, float) and value <= run.target:
                last = min(last, id)
        run.record(outcomes)

    try:
        done = 0
        while done < len(ids):
            more = done
            while more < len(ids) and ids[more] in arrived:
                more += 1
            if more > done:
                yield from [arrived[id] for id in ids[done:more]]
                done = more
                continue
            begun: list[Candidate] = []
            while waiting and len(pending) < pool.capacity and waiting[0].id < last and not _passed(run.deadline):
                begun.append(waiting.popleft())
                pending.add(begun[-1].id)
            if begun:
                pool.submit(begun)
            if not pending:
                return
            left = run.deadline - time.monotonic()
            receive(left if 0.0 < left < math.inf and waiting else None)
    finally:
        if pending:  # whatever has ended the iteration: values that have arrived are kept, the others are dropped
            with suppress(Exception):
                receive(0.0)
            pool.discard(pending)


def _negated(value: Value) -> Value:
    return value if isinstance(value, Exception) else negated(value)


def _passed(deadline: float) -> bool:
    return time.monotonic() >= deadline
