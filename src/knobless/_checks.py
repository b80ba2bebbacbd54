"""Checks of arguments and of installed libraries.

Errors state the name, the expected value and the given one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def integer(name: str, value: Any) -> int:
    """Return `value` as an int; raise TypeError for anything that is not a whole number."""
    if isinstance(value, bool):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name}: expected an integer, got {value!r} of type {type(value).__name__}"
        ) from None


def positive_int(name: str, value: Any, least: int = 1) -> int:
    """Return `value` as an int of at least `least`."""
    number = integer(name, value)
    if number < least:
        raise ValueError(
            f"{name}: expected an integer of at least {least}, got {number}"
        )
    return number


def count(name: str, value: Any) -> int:
    """Return `value` as an int of at least one; whole floats are accepted, for 1e5."""
    return positive_int(
        name,
        int(value)
        if isinstance(value, float) and value.is_integer()
        else value,
    )


def real(name: str, value: Any) -> float:
    """Return `value` as a finite float."""
    if isinstance(value, (str, bytes, bool)) or np.ndim(value):
        raise TypeError(
            f"{name}: expected a number, got {value!r} of type {type(value).__name__}"
        )
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name}: expected a number, got {value!r} of type {type(value).__name__}"
        ) from None
    except OverflowError:
        raise ValueError(
            f"{name}: expected a finite number, got an integer that is too large"
        ) from None
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
        raise TypeError(
            f"{name}: expected probabilities, got {values!r}"
        ) from None
    except OverflowError:
        raise ValueError(
            f"{name}: expected probabilities, got an integer that is too large"
        ) from None


def elements(name: str, values: Any, expected: str) -> tuple[Any, ...]:
    """Return the elements of what a user gave.

    Raise TypeError for text, mappings and what has none.
    """
    try:
        iterator = (
            None if isinstance(values, (str, bytes, Mapping)) else iter(values)
        )
    # Also of an array without dimensions, which has `__iter__`
    except TypeError:
        iterator = None
    if iterator is None:
        raise TypeError(f"{name}: expected {expected}, got {values!r:.200}")
    return tuple(iterator)


def suggests(
    named: str, call: str, suggestions: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that adds a hint to the TypeErrors of wrong calls.

    The hint is the right argument, or an example of a call.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        accepted = signature(function)
        names = accepted.parameters.keys()

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name in suggestions and name not in names:
                    raise TypeError(
                        f"{named}() got an unexpected keyword argument {name!r}: "
                        f"{suggestions[name]}"
                    )
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                try:
                    accepted.bind(*args, **kwargs)
                except TypeError:
                    shown = str(error).replace(".__init__", "")
                    raise TypeError(
                        f"{shown}; expected a call such as {call}"
                    ) from None
                raise

        return checked

    return decorated


def constructed_as(call: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator that adds an example of a call to TypeErrors of a class."""

    def decorated(cls: type[T]) -> type[T]:
        cls.__init__ = suggests(cls.__name__, call)(cls.__init__)  # type: ignore[method-assign]
        return cls

    return decorated


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Let the error of a missing library name the extra `name`, which installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "knobless"):
            raise
        raise ModuleNotFoundError(
            f"{package} is not installed: pip install 'knobless[{name}]'",
            name=package,
        ) from None
