"""One evaluation, at the far end of whatever pool runs it, and its way back.

`evaluate` times it and catches its errors where it happens; a `Reply` carries what it gave, a failure as far as that
pickles; and `outcome` is what the pools of `workers` hand on to `minimize`.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from traceback import format_exception
from typing import Any, NamedTuple

from knobless._checks import objective_value

REMEDY = (
    "Other processes get it by pickle: define it with def at the top level of a module (not a lambda, nor inside a "
    "function), bind data with functools.partial, or use workers=concurrent.futures.ThreadPoolExecutor(n)."
)


class Outcome(NamedTuple):
    """What became of one evaluation: a number or an exception, when (`time.time()`) and where."""

    id: int
    value: Any
    started: float
    ended: float
    worker: str


class WorkerLostError(RuntimeError):
    """An evaluation whose process died, each time it was tried."""


class RemoteError(RuntimeError):
    """An exception of a worker, as text: the cause of the one that came back, or all there is of one that cannot."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0]).rstrip()


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
        value = Failure(late(limit))
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


def outcome(id: int, reply: Reply) -> Outcome:
    """The reply, of which candidate."""
    value = reply.value.error if isinstance(reply.value, Failure) else reply.value
    return Outcome(id, value, reply.started, reply.ended, reply.worker)


def late(limit: float) -> TimeoutError:
    """What becomes of an evaluation that takes too long."""
    return TimeoutError(f"objective: took longer than evaluation_timeout={limit:g} seconds")


def pickled(name: str, value: Any) -> bytes:
    """`value` for other processes, or a TypeError with the remedy."""
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise TypeError(f"{name}: expected something that pickles, got {value!r} ({error}). {REMEDY}") from None
