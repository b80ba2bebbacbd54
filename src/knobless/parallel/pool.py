"""Where evaluations run: `pool_of` makes a pool of whatever the user has, and all pools are used alike.

`minimize` submits points and waits for outcomes, in any order. A number of workers gives processes of our own
(`processes`). Executors, Dask clients and map-like callables are the user's: they are neither started nor closed here.
At the far end of all of them is `evaluate` (`evaluation`).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, Self
from uuid import uuid4

from knobless._checks import positive_int, positive_real

from .evaluation import Outcome, RemoteError, Reply, WorkerLostError, evaluate, late, outcome, pickled
from .processes import TICK, TRIES, Processes

__all__ = ["MANY", "TRIES", "Outcome", "Pool", "RemoteError", "WorkerLostError", "pool_of"]

MANY = 1_000_000  # the capacity of what does not tell
LOST = "Evaluations that were out are lost, not failed. Those that came back before were told."


class Pool(Protocol):
    """Runs evaluations. More may be submitted than run at once; the others wait their turn here.

    capacity    evaluations that can run at once, as far as is known
    submit      one evaluation more
    wait        what has come back, at least one; empty only if the timeout passes or nothing is out
    discard     these are no longer wanted: dropped, now or, those that have begun, when they come back

    Leaving the context ends processes of our own at once, and forgets what is out elsewhere.
    """

    @property
    def capacity(self) -> int: ...
    def submit(self, id: int, x: Any) -> None: ...
    def wait(self, timeout: float | None = None) -> list[Outcome]: ...
    def discard(self, ids: Iterable[int]) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


def pool_of(workers: Any, fun: Callable[[Any], Any], evaluation_timeout: float | None = None) -> Pool:
    """The pool that evaluates `fun` on `workers`; what is wrong with them is said here, before anything runs.

    An evaluation that takes longer than `evaluation_timeout` seconds ends as a TimeoutError, everywhere. Processes
    of our own are killed for it; an executor's worker goes on unheard; a map-like callable is waited for.
    """
    if not callable(fun):
        raise TypeError(f"fun: expected a function, got {fun!r}")
    limit = None if evaluation_timeout is None else positive_real("evaluation_timeout", evaluation_timeout)
    call = partial(evaluate, fun, limit)
    if hasattr(workers, "get_executor"):  # a Dask client
        workers = workers.get_executor()
    if isinstance(workers, Executor):
        if isinstance(workers, ProcessPoolExecutor):
            pickled("fun", fun)
        return (_on_dask if hasattr(workers, "_client") else _on_executor)(workers, call, limit)
    if callable(workers):
        return _Map(workers, call)
    if not isinstance(workers, bool) and hasattr(workers, "__index__"):
        n = positive_int("workers", workers)
        return _Here(call) if n == 1 and limit is None else Processes(n, pickled("fun", fun), limit)
    kinds = "an integer, a concurrent.futures.Executor, a Dask client or a callable like map (such as pool.imap)"
    raise TypeError(f"workers: expected {kinds}, got {workers!r} of type {type(workers).__name__}")


class _Here:
    """No workers: each `wait` evaluates one point, in this very thread."""

    capacity = 1

    def __init__(self, call: Callable[[Any], Reply]) -> None:
        self._call = call
        self._waiting: dict[int, Any] = {}

    def submit(self, id: int, x: Any) -> None:
        self._waiting[id] = x

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        if not self._waiting or (timeout is not None and timeout <= 0):
            return []
        id = next(iter(self._waiting))
        return [outcome(id, self._call(self._waiting.pop(id)))]

    def discard(self, ids: Iterable[int]) -> None:
        for id in ids:
            self._waiting.pop(id, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()


class _Map:
    """A callable like `map`: gets all that waits in one call. What it yields is passed on at once, a list whole."""

    capacity = MANY

    def __init__(self, map: Callable[..., Iterable[Any]], call: Callable[[Any], Reply]) -> None:
        self._map = map
        self._call = partial(_numbered, call)
        self._waiting: dict[int, Any] = {}
        self._coming: Iterator[Any] = iter(())
        self._out: set[int] = set()  # what is wanted of it

    def submit(self, id: int, x: Any) -> None:
        self._waiting[id] = x

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        if timeout is not None and timeout <= 0:  # what is there has been passed on
            return []
        arrived: list[Outcome] = []
        whole = False
        while not arrived and self._waiting.keys() | self._out:
            if not self._out:
                batch, self._waiting = self._waiting, {}
                self._out = set(batch)
                given = self._map(self._call, list(batch.items()))
                self._coming, whole = iter(given), isinstance(given, list)
            while self._out and (whole or not arrived):
                arrived += self._next()
        return arrived

    def discard(self, ids: Iterable[int]) -> None:
        for id in ids:
            self._waiting.pop(id, None)
            self._out.discard(id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard([*self._waiting, *self._out])

    def _next(self) -> Iterator[Outcome]:
        match next(self._coming, None):
            case None:
                raise RuntimeError(f"workers: expected a result for each point, got {len(self._out)} too few")
            case (int(id), Reply() as reply):
                if id in self._out:
                    self._out.remove(id)
                    yield outcome(id, reply)
            case other:
                raise TypeError(f"workers: expected a callable like map, got {self._map!r}, which gave {other!r}")


def _numbered(call: Callable[[Any], Reply], item: tuple[int, Any]) -> tuple[int, Reply]:
    """With its id, a result may come in any order (`imap_unordered`)."""
    return item[0], call(item[1])


class _Futures:
    """An executor of the user's. It never gets more than it runs at once, so that what is late has really begun.

    Where the executor itself reports a failure, it may have blamed the wrong one: when a Dask worker dies, so do
    those that were to run on it next. Such an evaluation is tried once more, with no other beside it.
    """

    def __init__(self, start: Callable[[int, Any], Future[Reply]], capacity: int, limit: float | None) -> None:
        self._start = start
        self.capacity = capacity
        self._limit = limit
        self._waiting: dict[int, Any] = {}
        self._suspects: dict[int, Any] = {}  # to be tried alone, one after the other
        self._running: dict[int, _Call] = {}  # all that the executor is busy with
        self._out: set[int] = set()  # what is wanted
        self.begun: dict[int, float] = {}  # when those that run were seen to
        self._done: SimpleQueue[int] = SimpleQueue()
        self._broken: Exception | None = None
        self.exit = ExitStack()

    def submit(self, id: int, x: Any) -> None:
        self._out.add(id)
        self._waiting[id] = x
        self._feed()

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        end = math.inf if timeout is None else time.monotonic() + timeout
        arrived: list[Outcome] = []
        while self._out and not arrived:
            left = 0.0 if self._broken else max(end - time.monotonic(), 0.0)
            for id in self._finished(min(left, TICK) if self._limit else left):
                arrived += self._collect(id)
            if self._limit:
                arrived += self._overdue(self._limit)
            self._feed()
            if self._broken and not arrived:  # after all that had come before
                raise self._broken
            if not left:
                break
        return arrived

    def discard(self, ids: Iterable[int]) -> None:
        for id in ids:
            self._out.discard(id)
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
            if not self._out & self._running.keys():
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
        self._running[id] = _Call(x, future, time.time())
        future.add_done_callback(partial(_put, self._done, id))

    def _break(self, what: str, error: BaseException) -> None:
        self._broken = RuntimeError(f"workers: the executor {what}. {LOST}")
        self._broken.__cause__ = error

    def _finished(self, patience: float) -> Iterator[int]:
        """Those that are done, after waiting for a first one."""
        with suppress(Empty):
            yield self._done.get(timeout=None if patience == math.inf else patience)
            while True:
                yield self._done.get_nowait()

    def _collect(self, id: int) -> Iterator[Outcome]:
        x, future, submitted = self._running.pop(id)
        self.begun.pop(id, None)
        if id not in self._out:
            return
        error = CancelledError() if future.cancelled() else future.exception()
        if isinstance(error, (BrokenExecutor, CancelledError)):
            self._break(f"has ended: {error!r}", error)
        elif isinstance(error, Exception) and id not in self._suspects:
            self._suspects[id] = x
        elif error is None or isinstance(error, Exception):
            self._out.remove(id)
            self._suspects.pop(id, None)
            failed = error and Outcome(id, error, submitted, time.time(), "unknown")
            yield failed or outcome(id, future.result())
        else:
            raise error

    def _overdue(self, limit: float) -> Iterator[Outcome]:
        """What has run for too long is given back as late; its worker stays busy, its result will be dropped."""
        now = time.monotonic()
        for id in self._out & self._running.keys():
            future = self._running[id].future
            if future.running():
                self.begun.setdefault(id, now)
            took = now - self.begun.get(id, now)
            if took > limit and not future.done():
                self._out.remove(id)
                self._suspects.pop(id, None)
                yield Outcome(id, late(limit), time.time() - took, time.time(), "unknown")


class _Call(NamedTuple):
    x: Any
    future: Future[Reply]
    submitted: float


def _put(queue: SimpleQueue[int], id: int, _: object) -> None:
    queue.put(id)


def _on_executor(executor: Executor, call: Callable[[Any], Reply], limit: float | None) -> _Futures:
    capacity = getattr(executor, "_max_workers", MANY)

    def start(id: int, x: Any) -> Future[Reply]:
        if isinstance(executor, ProcessPoolExecutor):
            pickled("x", x)  # it would call this a failure of the function
        return executor.submit(call, x)

    return _Futures(start, capacity, limit)


def _on_dask(executor: Any, call: Callable[[Any], Reply], limit: float | None) -> _Futures:
    """Dask queues by itself and tries again what a dying worker had under way.

    It takes equal calls for one call unless told otherwise, and its futures do not tell when they begin to run:
    with a limit, the workers say so.
    """
    if limit is None:
        return _Futures(lambda id, x: executor.submit(call, x, pure=False), MANY, limit)
    topic, client = f"knobless-{uuid4()}", executor._client
    pool = _Futures(lambda id, x: executor.submit(_announced, topic, id, call, x, pure=False), MANY, limit)
    client.subscribe_topic(topic, lambda event: pool.begun.update({event[1]: time.monotonic()}))
    pool.exit.callback(client.unsubscribe_topic, topic)
    return pool


def _announced(topic: str, id: int, call: Callable[[Any], Reply], x: Any) -> Reply:
    """On a Dask worker, where its library is loaded: says that the evaluation begins."""
    sys.modules["distributed"].get_worker().log_event(topic, id)
    return call(x)
