"""A pool on futures: what `executors` and `dask` have in common."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, Self

from .evaluation import LOST, Outcome, Reply, WorkerLostError, timeout_error
from .sending import Sent

POLL_INTERVAL = 0.1  # seconds between two looks at what has begun
CHECK_INTERVAL = 1.0  # seconds between two looks at the workers


class Backend(Protocol):
    """What differs between the executors of libraries."""

    # When evaluations were first known to run, by `time.monotonic()`
    begun: dict[int, float]

    @property
    def capacity(self) -> int:
        """As of a `Pool`."""

    def start(self, id: int, x: Sent) -> Future[Reply]:
        """Start an evaluation."""

    def check(self) -> None:
        """RuntimeError if no evaluation can end any more."""

    def ended_by(self, error: BaseException) -> bool:
        """Whether no evaluation can be started after this failure of one of them."""

    def close(self) -> None:
        """End what was begun here."""


class _Call(NamedTuple):
    x: Any
    future: Future[Reply]
    submitted: tuple[float, float]  # time.time(), time.monotonic()


class Futures:
    """Passes a backend no more evaluations than it runs at once.

    The duration of an evaluation then counts from its real start.

    An exception of the objective is a result. Where the executor itself reports a failure, a worker
    was lost, and the failed evaluation may not be the cause: when a Dask worker dies, so do all
    that it was running. Such an evaluation is a suspect, and is tried again while no other suspect
    runs.
    """

    def __init__(
        self,
        backend: Backend,
        fun: Sent,
        limit: float | None,
        lost_retries: int,
    ) -> None:
        self._backend = backend
        self._fun = fun
        self._limit = limit
        self._lost_retries = lost_retries
        self._waiting: dict[int, Any] = {}
        # Waiting to be tried again, one at a time
        self._suspects: dict[int, Any] = {}
        # How often the workers of pending evaluations were lost
        self._losses: dict[int, int] = {}
        # All that the executor is busy with
        self._running: dict[int, _Call] = {}
        # Candidates whose outcomes are expected
        self._pending: set[int] = set()
        self._done: SimpleQueue[tuple[int, Future[Reply]]] = SimpleQueue()
        self._broken: Exception | None = None

    @property
    def capacity(self) -> int:
        return self._backend.capacity

    def submit(self, candidates: Iterable[tuple[int, Any]]) -> None:
        for id, x in candidates:
            self._pending.add(id)
            self._waiting[id] = x
        self._feed()

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        end = math.inf if timeout is None else time.monotonic() + timeout
        interval = POLL_INTERVAL if self._limit else CHECK_INTERVAL
        arrived: list[Outcome] = []
        while self._pending and not arrived:
            left = 0.0 if self._broken else max(end - time.monotonic(), 0.0)
            for id, future in self._finished(min(left, interval)):
                arrived += self._collect(id, future)
            if self._limit:
                arrived += self._overdue(self._limit)
            self._feed()
            if not arrived:
                self._check()
            if self._broken and not arrived:  # after all that arrived before
                raise self._broken
            if not left:
                break
        return arrived

    def discard(self, ids: Iterable[int]) -> None:
        for id in ids:
            self._pending.discard(id)
            self._waiting.pop(id, None)
            self._suspects.pop(id, None)
            self._losses.pop(id, None)
            if id in self._running:
                self._running[id].future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard([*self._waiting, *self._suspects, *self._running])
        self._backend.close()

    def _feed(self) -> None:
        while (
            (source := self._source())
            and not self._broken
            and len(self._running) < self._backend.capacity
        ):
            id = next(iter(source))
            self._begin(id, source.pop(id))

    def _source(self) -> dict[int, Any]:
        """Return where the next evaluation is taken from; it may be empty."""
        if self._suspects and not self._losses.keys() & self._running.keys():
            return self._suspects
        return self._waiting

    def _begin(self, id: int, x: Any) -> None:
        self._backend.begun.pop(id, None)
        sent = Sent("x", x)
        try:
            future = self._backend.start(id, sent)
        except Exception as error:
            self._break(f"takes no evaluation: {error!r}", error, sent)
            return
        self._running[id] = _Call(sent, future, (time.time(), time.monotonic()))
        future.add_done_callback(partial(_put, self._done, id))

    def _break(self, what: str, error: BaseException, x: Sent) -> None:
        """Note why the pool has ended: first of all, that something cannot be sent."""
        self._broken = self._fun.error or x.error or _not_loaded(error)
        self._broken = self._broken or RuntimeError(
            f"workers: the executor {what}. {LOST}"
        )
        self._broken.__cause__ = error

    def _check(self) -> None:
        try:
            self._backend.check()
        except RuntimeError as error:
            self._broken = self._broken or error

    def _finished(self, timeout: float) -> Iterator[tuple[int, Future[Reply]]]:
        """Yield the evaluations that are done, after waiting for a first one."""
        with suppress(Empty):
            yield self._done.get(timeout=timeout)
            while True:
                yield self._done.get_nowait()

    def _collect(self, id: int, future: Future[Reply]) -> Iterator[Outcome]:
        # Discarded, then submitted again
        if id not in self._running or self._running[id].future is not future:
            return
        x, _, (started, clock) = self._running.pop(id)
        self._backend.begun.pop(id, None)
        if id not in self._pending:
            return
        error = CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self._pending.remove(id)
            yield Outcome(id, *future.result(), self._losses.pop(id, 0) + 1)
        elif (
            self._is_end(error)
            or self._fun.error
            or x.error
            or _not_loaded(error)
        ):
            self._break(f"has ended: {error!r}", error, x)
        elif not isinstance(error, Exception):
            raise error
        else:
            losses = self._losses[id] = self._losses.get(id, 0) + 1
            if losses <= self._lost_retries:
                self._suspects[id] = x.value
                return
            self._pending.remove(id)
            tries = (
                f"its worker was lost, the last of {losses} times it was tried"
            )
            lost = WorkerLostError(
                f"objective: {tries}: {type(error).__name__}: {error}"
            )
            lost.__cause__ = error
            ended = started + time.monotonic() - clock
            yield Outcome(
                id, lost, started, ended, "unknown", self._losses.pop(id)
            )

    def _is_end(self, error: BaseException) -> bool:
        return isinstance(
            error, (BrokenExecutor, CancelledError)
        ) or self._backend.ended_by(error)

    def _overdue(self, limit: float) -> Iterator[Outcome]:
        """Yield evaluations that have run for too long.

        Their workers stay busy, their results will be dropped.
        """
        present = time.monotonic()
        begun = self._backend.begun
        for id in self._pending & self._running.keys():
            future = self._running[id].future
            if future.running():
                begun.setdefault(id, present)
            seconds = present - begun.get(id, present)
            if seconds > limit and not future.done():
                self._pending.remove(id)
                ended = time.time()
                tries = self._losses.pop(id, 0) + 1
                yield Outcome(
                    id,
                    timeout_error(limit),
                    ended - seconds,
                    ended,
                    "unknown",
                    tries,
                )


def _put(
    queue: SimpleQueue[tuple[int, Future[Reply]]],
    id: int,
    future: Future[Reply],
) -> None:
    queue.put((id, future))


def _not_loaded(error: BaseException | None) -> TypeError | None:
    """Return the error of a worker that lacks the module of the objective.

    None if that is not the cause of `error`.
    """
    while error is not None:
        if isinstance(error, (ImportError, AttributeError)):
            return TypeError(
                f"fun: expected something that the workers can load, got {error!r}. Each of them, "
                "and a "
                "scheduler, needs knobless and the module of the objective"
            )
        error = error.__cause__ or error.__context__
    return None
