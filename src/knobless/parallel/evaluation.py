"""One evaluation of the objective, wherever it runs, and the way of its result back to the run.

`evaluate` is the only place that calls an objective. A serial run calls it directly; the workers of
a pool call `evaluate_timed`, whose `Reply` can be pickled even where the exception of a failed
evaluation cannot. A pool passes replies on to the run as `Outcome`.
"""

from __future__ import annotations

import io
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from traceback import format_exception
from types import GeneratorType
from typing import Any, NamedTuple, TypeVar

from .returned import last_value, objective_value

LOST = "Pending evaluations are lost, not failed. Those that came back before were told."

_T = TypeVar("_T")


class Outcome(NamedTuple):
    """The result of one evaluation.

    It is a number or an exception, with the time (`time.time()`) and the place.

    `tries` counts how often it was begun: more than once if a worker was lost.
    """

    id: int
    value: float | Exception
    started: float
    ended: float
    worker: str
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Watched:
    """A point, and what a worker needs to notice that its evaluation is hopeless.

    These are the limits of `last_value`.
    """

    x: Any
    limits: tuple[float, ...]
    sign: float


class WorkerLostError(RuntimeError):
    """An evaluation failed because its worker was lost each time it was tried.

    The message has the signal or the exit code of the last process, or what the executor reported.
    A crash of the interpreter (a segmentation fault, the out-of-memory killer, `os._exit`) is such
    a failure; an exception of the objective is not.
    """


class RemoteError(RuntimeError):
    """An exception of a worker process, as text.

    It is the `__cause__` of an exception that could be sent back, with the traceback of the worker.
    An exception that could not be sent back is replaced by it.
    """

    def __str__(self) -> str:
        return "\n" + str(self.args[0]).rstrip()


# Between this process and the first one; to compare it costs less than os.getpid()
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def evaluate(
    fun: Callable[[Any], Any],
    x: Any,
    checked: Callable[[Any], _T],
    load: Callable[[Any], Any] | None = None,
) -> _T | Exception:
    """Evaluate `fun` at `x` and return its checked value, or the exception that was raised.

    An objective that yields is run to its end, or until it is hopeless if `x` is `Watched`. With
    `load`, the point is `load(x)`.
    """
    forks = _forks
    limits: tuple[float, ...] = ()
    sign = 1.0
    result: Any
    try:
        x = x if load is None else load(x)
        if isinstance(x, Watched):
            x, limits, sign = x.x, x.limits, x.sign
        returned = fun(x)
        steps = (
            isinstance(returned, GeneratorType) and checked is objective_value
        )
        result = (
            last_value(returned, limits, sign) if steps else checked(returned)
        )
    # Either would end more than this evaluation
    except (SystemExit, StopIteration) as error:
        result = RuntimeError(f"objective: raised {error!r}").with_traceback(
            error.__traceback__
        )
    except Exception as error:
        result = error
    # a child process that the objective has forked must not continue the run
    if _forks != forks:
        os._exit(1)
    outcome: _T | Exception = result
    return outcome


class Reply(NamedTuple):
    """The result of one evaluation as a worker sends it back.

    It can be pickled whatever its exception is.
    """

    value: float | Exception
    started: float
    ended: float
    worker: str

    def __reduce__(self) -> tuple[Any, ...]:
        value = (
            RemoteFailure(self.value)
            if isinstance(self.value, Exception)
            else self.value
        )
        return _reply, (value, *self[1:])


def _reply(
    value: float | RemoteFailure, started: float, ended: float, worker: str
) -> Reply:
    return Reply(
        value.error if isinstance(value, RemoteFailure) else value,
        started,
        ended,
        worker,
    )


def evaluate_timed(
    fun: Callable[[Any], Any],
    limit: float | None,
    x: Any,
    load: Callable[[Any], Any] | None = None,
) -> Reply:
    """Evaluate `fun` at `x` in a worker.

    An evaluation that takes longer than `limit` seconds has failed.
    """
    started = time.time()
    clock = time.monotonic()
    value = evaluate(fun, x, objective_value, load)
    seconds = time.monotonic() - clock
    if limit is not None and seconds > limit:
        value = timeout_error(limit)
    return Reply(value, started, started + seconds, _worker_name())


def _worker_name() -> str:
    """Return the address of a Dask worker, or the process and, unless it is main, the thread."""
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        with suppress(ValueError):  # this is no Dask worker
            return str(distributed.get_worker().address)
    thread = threading.current_thread()
    return process_name(os.getpid()) + (
        "" if thread is threading.main_thread() else f" {thread.name}"
    )


def process_name(pid: int) -> str:
    """Return the name of a process as it is recorded."""
    return f"pid {pid}@{socket.gethostname()}"


def timeout_error(limit: float) -> TimeoutError:
    """Return the failure of an evaluation that takes too long."""
    return TimeoutError(
        f"objective: took longer than evaluation_timeout={limit:g} seconds"
    )


class RemoteFailure:
    """An exception that can be pickled, with its traceback as text.

    If it cannot be restored, its text alone remains.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        data = io.BytesIO()
        pickler = pickle.Pickler(data)
        # What libraries such as tblib register for exceptions would not be restored
        pickler.dispatch_table = {}
        # a pickle that is not complete is not restored
        with suppress(Exception):
            pickler.dump(self.error)
        return _restored, (
            data.getvalue(),
            "".join(format_exception(self.error)),
        )


def _restored(data: bytes, text: str) -> RemoteFailure:
    """Return the failure of another process; its exception if that is safe to unpickle."""
    cause = RemoteError(text)
    try:
        error = _ExceptionUnpickler(io.BytesIO(data)).load()
    except Exception:  # many exceptions can be pickled but not unpickled
        error = None
    if not isinstance(error, Exception):
        return RemoteFailure(cause)
    error.__cause__ = cause
    return RemoteFailure(error)


class _ExceptionUnpickler(pickle.Unpickler):
    """Restores exceptions and plain data only.

    Unpickling anything else would run arbitrary code.
    """

    def find_class(self, module: str, name: str) -> Any:
        loaded = (
            super().find_class(module, name) if module in sys.modules else None
        )
        # A class that is loaded here and has no __setstate__ of its own runs nothing but its
        # constructor.
        if (
            isinstance(loaded, type)
            and issubclass(loaded, Exception)
            and loaded.__setstate__ is Exception.__setstate__
        ):
            return loaded
        raise pickle.UnpicklingError(
            f"expected an exception class, got {module}.{name}"
        )
