"""A digest of the code of an objective, which shows that it has changed since a run."""

from __future__ import annotations

import hashlib
import inspect
import sys
from functools import partial
from types import CodeType
from typing import Any


def code_digest(fun: Any) -> str | None:
    """Return a digest of the bytecode of a function, after the version of the interpreter.

    None if it has none.

    Comments, formatting and the place of the function do not count; neither do other functions that
    it calls, nor data.
    """
    while isinstance(fun, partial):
        fun = fun.func
    fun = inspect.unwrap(fun)
    code = getattr(
        fun if inspect.isroutine(fun) else getattr(fun, "__call__", None),  # noqa: B004
        "__code__",
        None,
    )
    if not isinstance(code, CodeType):
        return None
    return f"{sys.implementation.cache_tag}:{hashlib.sha256(_text(code).encode()).hexdigest()}"


def same_interpreter(one: str, other: str) -> bool:
    """Return whether two digests can be compared."""
    return one.partition(":")[0] == other.partition(":")[0]


def _text(value: Any) -> str:
    """Return a text that is equal for equal constants.

    The order of a set varies between processes.
    """
    match value:
        case CodeType():
            return _text(
                (
                    value.co_code.hex(),
                    value.co_names,
                    value.co_varnames,
                    value.co_consts,
                )
            )
        case frozenset():
            return f"{{{sorted(map(_text, value))}}}"
        case tuple():
            return f"({', '.join(map(_text, value))})"
    return repr(value)
