"""A pool on an executor of the user: of concurrent.futures, or of a Dask client."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Self
from uuid import uuid4

from .evaluation import Outcome, Reply, timeout_error
from .maps import UNLIMITED
from .processes import POLL_INTERVAL, pickled

LOST = "Pending evaluations are lost, not failed. Those that came back before were told."


class _Call(NamedTuple):
    x: Any
    future: Future[Reply]
    submitted: tuple[float, float]  # time.time(), time.monotonic()


class Futures:
    """Passes an executor no more evaluations than it runs at once, so that a late one has really begun.

    Where the executor itself reports a failure, the failed evaluation may not be its cause: when a Dask worker dies,
    so do those that were to run on it next. Such an evaluation is tried once more, alone.
    """

    def __init__(self, start: Callable[[int, Any], Future[Reply]], capacity: int, limit: float | None) -> None:
        self._start = start
        self.capacity = capacity
        self._limit = limit
        self._waiting: dict[int, Any] = {}
        self._suspects: dict[int, Any] = {}  # to be tried alone, one after the other
        self._running: dict[int, _Call] = {}  # all that the executor is busy with
        self._pending: set[int] = set()  # candidates whose outcomes are expected
        self.begun: dict[int, float] = {}  # when running evaluations were first seen to run
        self._done: SimpleQueue[tuple[int, Future[Reply]]] = SimpleQueue()
        self._broken: Exception | None = None
        self.exit = ExitStack()

    def submit(self, candidates: Iterable[tuple[int, Any]]) -> None:
        for id, x in candidates:
            self._pending.add(id)
            self._waiting[id] = x
        self._feed()

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        end = math.inf if timeout is None else time.monotonic() + timeout
        arrived: list[Outcome] = []
        while self._pending and not arrived:
            left = 0.0 if self._broken else max(end - time.monotonic(), 0.0)
            for id, future in self._finished(min(left, POLL_INTERVAL) if self._limit else left):
                arrived += self._collect(id, future)
            if self._limit:
                arrived += self._overdue(self._limit)
            self._feed()
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
            if id in self._running:
                self._running[id].future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard([*self._waiting, *self._suspects, *self._running])
        self.exit.close()

    def _feed(self) -> None:
        if self._suspects:
            if not self._pending & self._running.keys():
                self._begin(*next(iter(self._suspects.items())))
            return
        while self._waiting and len(self._running) < self.capacity and not self._broken:
            id = next(iter(self._waiting))
            self._begin(id, self._waiting.pop(id))

    def _begin(self, id: int, x: Any) -> None:
        self.begun.pop(id, None)
        try:
            future = self._start(id, x)
        except Exception as error:
            self._break(f"takes no evaluation: {error!r}", error)
            return
        self._running[id] = _Call(x, future, (time.time(), time.monotonic()))
        future.add_done_callback(partial(_put, self._done, id))

    def _break(self, what: str, error: BaseException) -> None:
        self._broken = RuntimeError(f"workers: the executor {what}. {LOST}")
        self._broken.__cause__ = error

    def _finished(self, timeout: float) -> Iterator[tuple[int, Future[Reply]]]:
        """Yield the evaluations that are done, after waiting for a first one."""
        with suppress(Empty):
            yield self._done.get(timeout=None if timeout == math.inf else timeout)
            while True:
                yield self._done.get_nowait()

    def _collect(self, id: int, future: Future[Reply]) -> Iterator[Outcome]:
        if id not in self._running or self._running[id].future is not future:  # discarded, then submitted again
            return
        x, _, (started, clock) = self._running.pop(id)
        self.begun.pop(id, None)
        if id not in self._pending:
            return
        error = CancelledError() if future.cancelled() else future.exception()
        if isinstance(error, (BrokenExecutor, CancelledError)):
            self._break(f"has ended: {error!r}", error)
        elif isinstance(error, Exception) and id not in self._suspects:
            self._suspects[id] = x
        elif error is None or isinstance(error, Exception):
            self._pending.remove(id)
            self._suspects.pop(id, None)
            failed = error and Outcome(id, error, started, started + time.monotonic() - clock, "unknown")
            yield failed or Outcome(id, *future.result())
        else:
            raise error

    def _overdue(self, limit: float) -> Iterator[Outcome]:
        """Yield evaluations that have run for too long; their workers stay busy, their results will be dropped."""
        now = time.monotonic()
        for id in self._pending & self._running.keys():
            future = self._running[id].future
            if future.running():
                self.begun.setdefault(id, now)
            seconds = now - self.begun.get(id, now)
            if seconds > limit and not future.done():
                self._pending.remove(id)
                self._suspects.pop(id, None)
                ended = time.time()
                yield Outcome(id, timeout_error(limit), ended - seconds, ended, "unknown")


def _put(queue: SimpleQueue[tuple[int, Future[Reply]]], id: int, future: Future[Reply]) -> None:
    queue.put((id, future))


def on_executor(executor: Executor, call: Callable[[Any], Reply], limit: float | None) -> Futures:
    """Return a pool on an executor of concurrent.futures."""
    capacity = getattr(executor, "_max_workers", UNLIMITED)

    def start(id: int, x: Any) -> Future[Reply]:
        if isinstance(executor, ProcessPoolExecutor):
            pickled("x", x)  # the executor would report this as a failure of the function
        return executor.submit(call, x)

    return Futures(start, capacity, limit)


def on_dask(executor: Any, call: Callable[[Any], Reply], limit: float | None) -> Futures:
    """Return a pool on the executor of a Dask client.

    Dask has a queue of its own and repeats what a lost worker was running. It takes equal calls for one call unless
    `pure` is False. Its futures do not show when they begin to run: with a limit, the workers send an event.
    """
    if limit is None:
        return Futures(lambda id, x: executor.submit(call, x, pure=False), UNLIMITED, limit)
    topic, client = f"knobless-{uuid4()}", executor._client
    pool = Futures(lambda id, x: executor.submit(_announced, topic, id, call, x, pure=False), UNLIMITED, limit)
    client.subscribe_topic(topic, lambda event: pool.begun.update({event[1]: time.monotonic()}))
    pool.exit.callback(client.unsubscribe_topic, topic)
    return pool


def _announced(topic: str, id: int, call: Callable[[Any], Reply], x: Any) -> Reply:
    """Evaluate on a Dask worker, after an event that the evaluation begins."""
    sys.modules["distributed"].get_worker().log_event(topic, id)
    return call(x)
