"""Worker processes: one pipe each, so that one that is late or dies affects no other."""

from __future__ import annotations

import atexit
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

from .evaluation import (
    Outcome,
    RemoteFailure,
    Reply,
    WorkerLostError,
    evaluate_timed,
    process_name,
    timeout_error,
)
from .sending import PICKLING_HELP, pickled

WORKER = "knobless worker"  # the name of each process
MAX_STARTS = 3  # processes that end before they can evaluate anything, in a row
GRACE = 1.0  # seconds that an idle process has to end by itself
POLL_INTERVAL = 0.1  # seconds between two checks for what causes no event

# a fork would copy locks and open files, the journal's among them
SPAWN = multiprocessing.get_context("spawn")

MAIN_GUARD_HELP = (
    "Each process imports the main script again: let it start the run under if __name__ == "
    "'__main__'. From an "
    "interactive session, import the function from a module or install cloudpickle."
)


# In the worker process.


def _serve(pipe: Connection, limit: float | None) -> None:
    """Receive the objective, then tasks (number, point) until None; send (number, reply)."""
    if sys.platform != "win32":
        # Ctrl-C is for the parent, and what an evaluation starts can be ended with it
        os.setsid()
    # Discards one that came while Python was starting
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        # Programs that `fun` starts should not ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    inbox: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox), daemon=True).start()
    with suppress(ConnectionError):
        pipe.send("started")
        try:
            fun = pickle.loads(inbox.get())
        except Exception as error:
            pipe.send(RemoteFailure(error))
            return
        pipe.send("ready")
        while task := inbox.get():
            number, point = task
            pipe.send((number, evaluate_timed(fun, limit, point, pickle.loads)))


def _listen(pipe: Connection, inbox: SimpleQueue[Any]) -> None:
    """Receive messages, during an evaluation too.

    End this process with all it has started if the parent dies.
    """
    with suppress(EOFError, OSError):
        while True:
            inbox.put(pipe.recv())
    if sys.platform != "win32":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


# In the process of the run.


class _Task(NamedTuple):
    id: int
    point: bytes
    tries: int = 1


class _Worker:
    """A worker process."""

    def __init__(self, limit: float | None) -> None:
        self.pipe, remote = SPAWN.Pipe()
        self.process = SPAWN.Process(
            target=_serve, args=(remote, limit), name=WORKER
        )
        self.task: _Task | None = None
        self.ready = False
        self._started = self._clock = 0.0
        with remote, _interrupts_blocked():
            self.process.start()
        self.pid: int = self.process.pid  # type: ignore[assignment]

    @property
    def idle(self) -> bool:
        return self.ready and self.task is None

    @property
    def seconds(self) -> float:
        """Seconds since the current task began."""
        return time.monotonic() - self._clock

    def run(self, task: _Task) -> None:
        self.task = task
        self._started, self._clock = time.time(), time.monotonic()
        self.send((task.id, task.point))

    def send(self, message: Any) -> None:
        # The process has ended, which the next check will show
        with suppress(OSError):
            self.pipe.send(message)

    def failed(self, task: _Task, error: Exception) -> Outcome:
        """Return the outcome of a task that this process has not finished."""
        ended = self._started + self.seconds
        return Outcome(
            task.id,
            error,
            self._started,
            ended,
            process_name(self.pid),
            task.tries,
        )

    def end(self) -> str:
        """End the process at once, with what it has started; return how it ended, for a message."""
        if sys.platform != "win32":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(GRACE)
        self.pipe.close()
        code = self.process.exitcode
        # Not even a kill ends a process that hangs in a driver
        if code is None:
            return "could not be ended"
        self.process.close()
        if code < 0:
            return f"was ended by signal {-code}, {signal.strsignal(-code)}"
        return f"left with exit code {code}"


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C for a process that starts meanwhile, until it has left the terminal."""
    if sys.platform == "win32":
        yield
        return
    # Or `start` would start it, which unblocks interrupts
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Processes:
    """Worker processes, started when there are evaluations to run; one that ends is replaced."""

    def __init__(
        self, n: int, fun: bytes, limit: float | None, lost_retries: int
    ) -> None:
        process = multiprocessing.current_process()
        if process.name == WORKER and getattr(process, "_inheriting", False):
            # a worker imports a main script without a guard, which its parent reports
            sys.exit(1)
        self.capacity = n
        self._fun = fun
        self._limit = limit
        self._lost_retries = lost_retries
        self._waiting: deque[_Task] = deque()
        self._workers: dict[Any, _Worker] = {}  # by their pipes
        # Candidates whose outcomes are expected
        self._pending: set[int] = set()
        # In a row; if the first process fails, the program is wrong
        self._failed_starts = MAX_STARTS - 1
        self._broken: Exception | None = None

    def submit(self, candidates: Iterable[tuple[int, Any]]) -> None:
        for id, x in candidates:
            self._waiting.append(_Task(id, pickled("x", x, by_value=True)))
            self._pending.add(id)
        self._feed()

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        end = math.inf if timeout is None else time.monotonic() + timeout
        arrived: list[Outcome] = []
        while self._pending and not arrived:
            left = 0.0 if self._broken else max(end - time.monotonic(), 0.0)
            for worker in self._ready_workers(min(left, POLL_INTERVAL)):
                arrived += self._receive(worker)
            if self._limit:
                arrived += self._overdue(self._limit)
            self._feed()
            if self._broken and not arrived:  # after all that arrived before
                raise self._broken
            if not left:
                break
        return arrived

    def discard(self, ids: Iterable[int]) -> None:
        self._pending.difference_update(ids)
        self._waiting = deque(
            task for task in self._waiting if task.id in self._pending
        )

    def __enter__(self) -> Self:
        # a daemon thread does not leave its contexts
        atexit.register(self._end)
        return self

    def __exit__(self, *_: object) -> None:
        atexit.unregister(self._end)
        self._end()

    def _feed(self) -> None:
        for worker in self._workers.values():
            if worker.idle and self._waiting:
                worker.run(self._waiting.popleft())
        starting = sum(not worker.ready for worker in self._workers.values())
        while (
            starting < len(self._waiting)
            and len(self._workers) < self.capacity
            and not self._broken
        ):
            worker = _Worker(self._limit)
            self._workers[worker.pipe] = worker
            starting += 1

    def _ready_workers(self, timeout: float) -> list[_Worker]:
        """Return the workers that have sent a message or ended.

        The end of a process is noticed at once by its pipe, unless a process that `fun` has forked
        keeps it open.
        """
        if pipes := wait_for_any(self._workers, timeout):
            return [self._workers[pipe] for pipe in pipes]
        return [
            worker
            for worker in self._workers.values()
            if not worker.process.is_alive()
        ]

    def _receive(self, worker: _Worker) -> Iterator[Outcome]:
        try:
            message = worker.pipe.recv() if worker.pipe.poll() else None
        except (EOFError, OSError):
            message = None
        match message:
            case "started":
                worker.send(self._fun)
            case "ready":
                worker.ready = True
                self._failed_starts = 0
            case (int(number), Reply() as reply):
                task = worker.task
                worker.task = None
                if task is not None and number in self._pending:
                    self._pending.remove(number)
                    yield Outcome(number, *reply, task.tries)
            case RemoteFailure(error=error):
                self._broken = TypeError(
                    f"fun: expected something that a new process can load, got {error!r}. "
                    f"{PICKLING_HELP}"
                )
                self._broken.__cause__ = error
            case _:
                yield from self._on_worker_exit(worker)

    def _on_worker_exit(self, worker: _Worker) -> Iterator[Outcome]:
        """Try the task of a process that has ended again, or let it fail."""
        del self._workers[worker.pipe]
        task = worker.task
        how = worker.end()
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= MAX_STARTS:
                what = f"a process {how} before it could evaluate anything"
                self._broken = RuntimeError(
                    f"workers: {what}. {MAIN_GUARD_HELP}"
                )
        elif task and task.id in self._pending:
            if task.tries <= self._lost_retries:
                self._waiting.appendleft(task._replace(tries=task.tries + 1))
            else:
                self._pending.remove(task.id)
                lost = WorkerLostError(
                    f"objective: its process {how}, the last of {task.tries} times it was tried"
                )
                yield worker.failed(task, lost)

    def _overdue(self, limit: float) -> Iterator[Outcome]:
        for worker in [*self._workers.values()]:
            task = worker.task
            if task and worker.seconds > limit and not worker.pipe.poll():
                del self._workers[worker.pipe]
                worker.end()
                if task.id in self._pending:
                    self._pending.remove(task.id)
                    yield worker.failed(task, timeout_error(limit))

    def _end(self) -> None:
        """End all processes; idle ones may end by themselves, so that they can clean up."""
        try:
            idle = [worker for worker in self._workers.values() if worker.idle]
            for worker in idle:
                worker.send(None)
            for worker in [
                worker for worker in self._workers.values() if not worker.idle
            ]:
                self._workers.pop(worker.pipe).end()
            end = time.monotonic() + GRACE
            for worker in idle:
                wait_for_any(
                    [worker.process.sentinel], max(end - time.monotonic(), 0.0)
                )
        finally:
            while self._workers:
                self._workers.popitem()[1].end()
