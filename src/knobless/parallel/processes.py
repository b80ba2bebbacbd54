"""Processes of our own: one pipe each, so that one which is late or dies takes nothing else with it."""

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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as any_of
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

from .evaluation import REMEDY, Failure, Outcome, Reply, WorkerLostError, evaluate, late, outcome, pickled

TRIES = 3  # an evaluation that ends its process so many times has failed
GRACE = 1.0  # seconds an idle process gets to leave by itself
TICK = 0.1  # seconds between two looks at what does not call by itself

SPAWN = multiprocessing.get_context("spawn")  # a fork would copy locks and open files, the journal's among them

GUARD = (
    "Each process imports the main script again: let it start the run under if __name__ == '__main__'. From an "
    "interactive session, import the function from a module."
)


# At the far end.


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


class Processes:
    """Processes of our own, started when there is something to do; the next one takes the place of one that ended."""

    def __init__(self, n: int, fun: bytes, limit: float | None) -> None:
        self.capacity = n
        self._fun = fun
        self._limit = limit
        self._waiting: deque[_Task] = deque()
        self._workers: dict[Any, _Worker] = {}  # by their pipes
        self._out: set[int] = set()  # what is wanted
        self._failed_starts = TRIES - 1  # in a row; the first one is a mistake in the program
        self._broken: Exception | None = None

    def submit(self, id: int, x: Any) -> None:
        self._waiting.append(_Task(id, pickled("x", x)))
        self._out.add(id)
        self._feed()

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        end = math.inf if timeout is None else time.monotonic() + timeout
        arrived: list[Outcome] = []
        while self._out and not arrived:
            left = 0.0 if self._broken else max(end - time.monotonic(), 0.0)
            for worker in self._ready_workers(min(left, TICK)):
                arrived += self._receive(worker)
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

    def _ready_workers(self, patience: float) -> list[_Worker]:
        """Those that have said something or are gone.

        A death is heard at once as the end of the pipe, unless a process that `fun` has forked keeps it open.
        """
        if pipes := any_of(self._workers, patience):
            return [self._workers[pipe] for pipe in pipes]
        return [worker for worker in self._workers.values() if not worker.process.is_alive()]

    def _receive(self, worker: _Worker) -> Iterator[Outcome]:
        try:
            message = worker.pipe.recv() if worker.pipe.poll() else None
        except (EOFError, OSError):
            message = None
        match message:
            case "up":
                worker.send(self._fun)
            case "ready":
                worker.ready = True
                self._failed_starts = 0
            case Reply() as reply:
                task, worker.task = worker.task, None
                if task and task.id in self._out:
                    self._out.remove(task.id)
                    yield outcome(task.id, reply)
            case Failure(error=error):
                self._broken = TypeError(
                    f"fun: expected something that a new process can load, got {error!r}. {REMEDY}"
                )
                self._broken.__cause__ = error
            case _:
                yield from self._on_worker_exit(worker)

    def _on_worker_exit(self, worker: _Worker) -> Iterator[Outcome]:
        """It has died. What it had under way is tried again, but not for ever."""
        del self._workers[worker.pipe]
        task, how = worker.task, worker.end()
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= TRIES:
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
                    yield Outcome(task.id, late(limit), started, time.time(), worker.name)

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
