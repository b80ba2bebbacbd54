"""Where evaluations run: `pool_of` makes a pool of whatever the user has, and all pools are used alike.

`minimize` submits points and waits for outcomes, in any order. A number of workers gives processes of our own,
each with a pipe to itself, so that one which is late or dies takes nothing else with it. Executors, Dask clients
and map-like callables are the user's: they are neither started nor closed here. `evaluate` runs at the far
end of all of them, so that an evaluation is timed, and its errors are caught, where it happens.
"""

from __future__ import annotations

import atexit
import math
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as any_of
from queue import Empty, SimpleQueue
from traceback import format_exception
from typing import Any, NamedTuple, Protocol, Self
from uuid import uuid4

from ._checks import objective_value, positive_int, positive_real

TRIES = 3  # an evaluation that ends its process so many times has failed
MANY = 1_000_000  # the capacity of what does not tell
GRACE = 1.0  # seconds an idle process gets to leave by itself
TICK = 0.1  # seconds between two looks at what does not call by itself

SPAWN = multiprocessing.get_context("spawn")  # a fork would copy locks and open files, the journal's among them

REMEDY = (
    "Other processes get it by pickle: define it with def at the top level of a module (not a lambda, nor inside a "
    "function), bind data with functools.partial, or use workers=concurrent.futures.ThreadPoolExecutor(n)."
)
GUARD = (
    "Each process imports the main script again: let it start the run under if __name__ == '__main__'. From an "
    "interactive session, import the function from a module."
)
LOST = "Evaluations that were out are lost, not failed. Those that came back before were told."


class Outcome(NamedTuple):
    """What became of one evaluation: a number or an exception, when (`time.time()`) and where."""

    id: int
    value: Any
    started: float
    ended: float
    worker: str


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


class WorkerLostError(RuntimeError):
    """An evaluation whose process died, each time it was tried."""


class RemoteError(RuntimeError):
    """An exception of a worker, as text: the cause of the one that came back, or all there is of one that cannot."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0]).rstrip()


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
            _pickled("fun", fun)
        return (_on_dask if hasattr(workers, "_client") else _on_executor)(workers, call, limit)
    if callable(workers):
        return _Map(workers, call)
    if not isinstance(workers, bool) and hasattr(workers, "__index__"):
        n = positive_int("workers", workers)
        return _Here(call) if n == 1 and limit is None else _Processes(n, _pickled("fun", fun), limit)
    kinds = "an integer, a concurrent.futures.Executor, a Dask client or a callable like map (such as pool.imap)"
    raise TypeError(f"workers: expected {kinds}, got {workers!r} of type {type(workers).__name__}")


# At the far end.


class Failure:
    """An exception on its way back. Of one that does not pickle, only the text of its traceback arrives."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            data = pickle.dumps(self.error)
        except Exception:
            data = b""
        return _revived, (data, "".join(format_exception(self.error)))


def _revived(data: bytes, text: str) -> Failure:
    cause = RemoteError(text)
    try:
        error = pickle.loads(data)
        error.__cause__ = cause
    except Exception:  # many that can be written cannot be read
        return Failure(cause)
    return Failure(error)


class Reply(NamedTuple):
    """What an evaluation gave, seen from where it ran."""

    value: float | Failure
    started: float
    ended: float
    worker: str


def evaluate(fun: Callable[[Any], Any], limit: float | None, x: Any) -> Reply:
    """One evaluation; whatever it raises is part of the reply, so that no pool has to carry an exception."""
    started, clock = time.time(), time.monotonic()
    value: float | Failure
    try:
        value = objective_value(fun(x))
    except Exception as error:
        value = Failure(error)
    except SystemExit as error:  # would end the worker
        failure = RuntimeError(f"objective: raised {error!r}")
        failure.__cause__ = error
        value = Failure(failure)
    took = time.monotonic() - clock
    if limit is not None and took > limit:
        value = Failure(_late(limit))
    return Reply(value, started, started + took, _place())


def _place() -> str:
    """Who runs this: a Dask worker's address, or the process and, unless it is the main one, the thread."""
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        with suppress(ValueError):  # this is no Dask worker
            return str(distributed.get_worker().address)
    thread = threading.current_thread()
    name = "" if thread is threading.main_thread() else f" {thread.name}"
    return f"pid {os.getpid()}@{socket.gethostname()}{name}"


def _serve(pipe: Connection, limit: float | None) -> None:
    """A process of our own: gets the function, then point after point; an empty message bids it leave."""
    if sys.platform != "win32":
        os.setsid()  # Ctrl-C is the parent's business, and what an evaluation starts can be ended with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # forgets one that came while Python was starting
    if sys.platform != "win32":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what `fun` starts should not ignore it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    inbox: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox), daemon=True).start()
    with suppress(ConnectionError):
        pipe.send("up")
        try:
            fun = pickle.loads(inbox.get())
        except Exception as error:
            pipe.send(Failure(error))
            return
        pipe.send("ready")
        while point := inbox.get():
            pipe.send(evaluate(lambda point: fun(pickle.loads(point)), limit, point))


def _listen(pipe: Connection, inbox: SimpleQueue[bytes]) -> None:
    """Hears of the parent's death, during an evaluation too, and ends this process with all it has started."""
    with suppress(EOFError, OSError):
        while True:
            inbox.put(pipe.recv_bytes())
    if sys.platform != "win32":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


# At this end.


def _outcome(id: int, reply: Reply) -> Outcome:
    value = reply.value.error if isinstance(reply.value, Failure) else reply.value
    return Outcome(id, value, reply.started, reply.ended, reply.worker)


def _late(limit: float) -> TimeoutError:
    return TimeoutError(f"objective: took longer than evaluation_timeout={limit:g} seconds")


def _pickled(name: str, value: Any) -> bytes:
    """`value` for other processes, or a TypeError with the remedy."""
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise TypeError(f"{name}: expected something that pickles, got {value!r} ({error}). {REMEDY}") from None


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
        return [_outcome(id, self._call(self._waiting.pop(id)))]

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
                    yield _outcome(id, reply)
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
            yield failed or _outcome(id, future.result())
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
                yield Outcome(id, _late(limit), time.time() - took, time.time(), "unknown")


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
            _pickled("x", x)  # it would call this a failure of the function
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


class _Task(NamedTuple):
    id: int
    point: bytes
    tries: int = 0


class _Worker:
    """A process of our own, seen from here."""

    def __init__(self, limit: float | None) -> None:
        self.pipe, far = SPAWN.Pipe()
        self.process = SPAWN.Process(target=_serve, args=(far, limit))
        self.task: _Task | None = None
        self.ready = False
        self.began = (0.0, 0.0)
        with far, _interrupts_held():
            self.process.start()
        self.pid: int = self.process.pid  # type: ignore[assignment]

    @property
    def idle(self) -> bool:
        return self.ready and self.task is None

    @property
    def name(self) -> str:
        return f"pid {self.pid}@{socket.gethostname()}"

    def run(self, task: _Task) -> None:
        self.task = task
        self.began = time.time(), time.monotonic()
        self.send(task.point)

    def send(self, message: bytes) -> None:
        with suppress(OSError):  # it has died, which will be noticed at the next look
            self.pipe.send_bytes(message)

    def end(self) -> str:
        """Ends it at once, with what it has started; how it ended, if it did so by itself before."""
        if sys.platform != "win32":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(GRACE)
        self.pipe.close()
        code = self.process.exitcode
        if code is None:  # not even a kill ends what hangs in a driver
            return "could not be ended"
        self.process.close()
        return f"was ended by signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"left with exit code {code}"


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process started meanwhile does not hear a Ctrl-C until `_serve` has left the terminal."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # or `start` would start it, which lets interrupts through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Processes:
    """Processes of our own, started when there is something to do; the next one takes the place of one that ended."""

    def __init__(self, n: int, fun: bytes, limit: float | None) -> None:
        self.capacity = n
        self._fun = fun
        self._limit = limit
        self._waiting: deque[_Task] = deque()
        self._workers: dict[Any, _Worker] = {}  # by their pipes
        self._out: set[int] = set()  # what is wanted
        self._stillborn = TRIES - 1  # in a row; the first one is a mistake in the program
        self._broken: Exception | None = None

    def submit(self, id: int, x: Any) -> None:
        self._waiting.append(_Task(id, _pickled("x", x)))
        self._out.add(id)
        self._feed()

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        end = math.inf if timeout is None else time.monotonic() + timeout
        arrived: list[Outcome] = []
        while self._out and not arrived:
            left = 0.0 if self._broken else max(end - time.monotonic(), 0.0)
            for worker in self._restless(min(left, TICK)):
                arrived += self._hear(worker)
            if self._limit:
                arrived += self._overdue(self._limit)
            self._feed()
            if self._broken and not arrived:  # after all that had come before
                raise self._broken
            if not left:
                break
        return arrived

    def discard(self, ids: Iterable[int]) -> None:
        self._out.difference_update(ids)
        self._waiting = deque(task for task in self._waiting if task.id in self._out)

    def __enter__(self) -> Self:
        atexit.register(self._end)  # a daemon thread does not leave its contexts
        return self

    def __exit__(self, *_: object) -> None:
        atexit.unregister(self._end)
        self._end()

    def _feed(self) -> None:
        for worker in self._workers.values():
            if worker.idle and self._waiting:
                worker.run(self._waiting.popleft())
        starting = sum(not worker.ready for worker in self._workers.values())
        while starting < len(self._waiting) and len(self._workers) < self.capacity and not self._broken:
            worker = _Worker(self._limit)
            self._workers[worker.pipe] = worker
            starting += 1

    def _restless(self, patience: float) -> list[_Worker]:
        """Those that have said something or are gone.

        A death is heard at once as the end of the pipe, unless a process that `fun` has forked keeps it open.
        """
        if pipes := any_of(self._workers, patience):
            return [self._workers[pipe] for pipe in pipes]
        return [worker for worker in self._workers.values() if not worker.process.is_alive()]

    def _hear(self, worker: _Worker) -> Iterator[Outcome]:
        try:
            message = worker.pipe.recv() if worker.pipe.poll() else None
        except (EOFError, OSError):
            message = None
        match message:
            case "up":
                worker.send(self._fun)
            case "ready":
                worker.ready = True
                self._stillborn = 0
            case Reply() as reply:
                task, worker.task = worker.task, None
                if task and task.id in self._out:
                    self._out.remove(task.id)
                    yield _outcome(task.id, reply)
            case Failure(error=error):
                self._broken = TypeError(
                    f"fun: expected something that a new process can load, got {error!r}. {REMEDY}"
                )
                self._broken.__cause__ = error
            case _:
                yield from self._bury(worker)

    def _bury(self, worker: _Worker) -> Iterator[Outcome]:
        """It has died. What it had under way is tried again, but not for ever."""
        del self._workers[worker.pipe]
        task, how = worker.task, worker.end()
        if not worker.ready:
            self._stillborn += 1
            if self._stillborn >= TRIES:
                self._broken = RuntimeError(f"workers: a process {how} before it could evaluate anything. {GUARD}")
        elif task and task.id in self._out:
            if task.tries + 1 < TRIES:
                self._waiting.appendleft(task._replace(tries=task.tries + 1))
            else:
                self._out.remove(task.id)
                lost = WorkerLostError(f"objective: its process {how}, the last of {TRIES} times it was tried")
                yield Outcome(task.id, lost, worker.began[0], time.time(), worker.name)

    def _overdue(self, limit: float) -> Iterator[Outcome]:
        for worker in [*self._workers.values()]:
            task, (started, begun) = worker.task, worker.began
            if task and time.monotonic() - begun > limit and not worker.pipe.poll():
                del self._workers[worker.pipe]
                worker.end()
                if task.id in self._out:
                    self._out.remove(task.id)
                    yield Outcome(task.id, _late(limit), started, time.time(), worker.name)

    def _end(self) -> None:
        """Idle processes may leave by themselves, so that they can tidy up; the others are ended."""
        try:
            idle = [worker for worker in self._workers.values() if worker.idle]
            for worker in idle:
                worker.send(b"")
            for worker in [worker for worker in self._workers.values() if not worker.idle]:
                self._workers.pop(worker.pipe).end()
            end = time.monotonic() + GRACE
            for worker in idle:
                any_of([worker.process.sentinel], max(end - time.monotonic(), 0.0))
        finally:
            while self._workers:
                self._workers.popitem()[1].end()
