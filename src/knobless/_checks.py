"""Checks of arguments: each raises an error with the name, what was expected and what was given."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")


def integer(name: str, value: Any) -> int:
    """Return `value` as an int; raise TypeError for anything that is not a whole number."""
    if isinstance(value, bool):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {value!r} of type {type(value).__name__}") from None


def positive_int(name: str, value: Any, least: int = 1) -> int:
    """Return `value` as an int of at least `least`."""
    number = integer(name, value)
    if number < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {number}")
    return number


def count(name: str, value: Any) -> int:
    """Return `value` as an int of at least one; whole floats are accepted, for 1e5."""
    return positive_int(name, int(value) if isinstance(value, float) and value.is_integer() else value)


def real(name: str, value: Any) -> float:
    """Return `value` as a finite float."""
    if isinstance(value, (str, bytes, bool)) or np.ndim(value):
        raise TypeError(f"{name}: expected a number, got {value!r} of type {type(value).__name__}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, got {value!r} of type {type(value).__name__}") from None
    except OverflowError:
        raise ValueError(f"{name}: expected a finite number, got an integer that is too large") from None
    if not math.isfinite(number):
        raise ValueError(f"{name}: expected a finite number, got {number}")
    return number


def positive_real(name: str, value: Any) -> float:
    """Return `value` as a finite float above zero."""
    number = real(name, value)
    if number <= 0:
        raise ValueError(f"{name}: expected a number above 0, got {number}")
    return number


def boolean(name: str, value: Any) -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def probabilities(name: str, values: Any) -> NDArray[np.float64]:
    """Return `values` as an array of floats; the caller checks that they are probabilities."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected probabilities, got {values!r}") from None


def suggests(named: str, suggestions: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: arguments of other libraries are a TypeError that names the right one."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        names = signature(function).parameters.keys()

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name in suggestions and name not in names:
                    raise TypeError(f"{named}() got an unexpected keyword argument {name!r}: {suggestions[name]}")
            return function(*args, **kwargs)

        return checked

    return decorated
