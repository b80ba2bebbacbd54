"""How the objective and its points reach the workers: by pickle, or else by cloudpickle.

Worker processes that were started here get what `pickled` returns. Executors and maps pickle by
themselves, each in its own way or, in threads, not at all; they get both as `Sent`.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .evaluation import Reply, evaluate_timed

PICKLING_HELP = (
    "Other processes get it by pickle: define it with def at the top level of a module (not a "
    "lambda, nor inside a "
    "function or a notebook) and bind data with functools.partial; or install cloudpickle; or use "
    "workers=concurrent.futures.ThreadPoolExecutor(n)."
)


def pickled(name: str, value: Any, by_value: bool = False) -> bytes:
    """Return `value` pickled for other processes; a TypeError that helps if that is impossible.

    With `by_value`, cloudpickle, if it is installed, also pickles lambdas and what a notebook
    defines.
    """
    cloudpickle = _cloudpickle() if by_value else None
    try:
        # Plain pickle finds by name what a worker process cannot import: it has no `__main__` of a
        # notebook.
        return (
            pickle
            if cloudpickle is None or _main_is_importable()
            else cloudpickle
        ).dumps(value)
    except Exception as error:
        reason: Exception = error
    if cloudpickle is not None:
        try:
            return bytes(cloudpickle.dumps(value))
        except Exception as error:
            reason = error
    raise TypeError(
        f"{name}: expected something that pickles, got {value!r} ({reason}). {PICKLING_HELP}"
    )


def _cloudpickle() -> Any:
    """Return the module cloudpickle; None if it is not installed."""
    try:
        return import_module("cloudpickle")
    except ImportError:
        return None


def _main_is_importable() -> bool:
    """Return whether a new process imports the main module of this one: not that of a notebook."""
    main = sys.modules["__main__"]
    return (
        getattr(main, "__spec__", None) is not None
        or getattr(main, "__file__", None) is not None
    )


class Sent:
    """A value that an executor passes to a worker.

    Within this process it is passed as it is, elsewhere as its pickler does.

    What the standard pickle cannot do, such as a lambda, is pickled by cloudpickle whatever the
    executor uses.
    """

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value
        self.error: TypeError | None = None  # why it could not be pickled
        self._data: bytes | None = None  # empty if the standard pickle will do

    def __reduce__(self) -> tuple[Any, ...]:
        if self._data is None:
            self._data = self._pickled()
        if self._data:
            return (_loaded, (self.name, self._data))
        return (Sent, (self.name, self.value))

    def _pickled(self) -> bytes:
        try:
            pickle.dumps(self.value)
            return b""
        except Exception:  # of any type
            try:
                return pickled(self.name, self.value, by_value=True)
            except TypeError as error:
                self.error = error
                raise


def _loaded(name: str, data: bytes) -> Sent:
    return Sent(name, pickle.loads(data))


def evaluate_sent(fun: Sent, limit: float | None, x: Sent) -> Reply:
    """Evaluate the objective that was sent at the point that was sent, in a worker."""
    call: Callable[[Any], Any] = fun.value
    return evaluate_timed(call, limit, x.value)
