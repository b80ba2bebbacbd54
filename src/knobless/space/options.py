"""Equality of options of a choice, which are values of any type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knobless.core.data import to_plain


def repeated_option(options: Sequence[Any]) -> int | None:
    """Return the index of an option that equals an earlier one, or None."""
    earlier: dict[int | None, list[Any]] = {}
    for i, option in enumerate(options):
        same_key = earlier.setdefault(hash_key(option), [])
        if any(alike(option, twin) for twin in same_key):
            return i
        same_key.append(option)
    return None


def hash_key(value: Any) -> int | None:
    """Return a hash that is equal for equal values, also of lists, dicts, sets and arrays.

    None for other types.
    """
    if isinstance(value, float) and value != value:
        return hash("nan")  # that of a NaN is another one for each object
    try:
        return hash(value)
    # Options are of any type, and __hash__ may raise anything
    except Exception:
        pass
    try:
        match value:
            case np.ndarray():
                return hash_key(value.tolist())
            case list() | tuple():
                keys = tuple(map(hash_key, value))
                return None if None in keys else hash(keys)
            case dict():
                pairs = frozenset(
                    (hash(name), hash_key(item)) for name, item in value.items()
                )
                if any(key is None for _, key in pairs):
                    return None
                return hash(pairs)
            case set():
                return hash(frozenset(value))
    except RecursionError:  # a list that contains itself
        pass
    return None


def alike(a: Any, b: Any) -> bool:
    """Return whether two values have the same type and are equal."""
    return a is b or (type(a) is type(b) and equal(a, b))


def equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal; arrays also need the same shape. NaN equals NaN."""
    try:
        if isinstance(a, float) and isinstance(b, float) and a != a:
            return b != b
        is_equal = a == b
        if isinstance(is_equal, bool):
            return is_equal
        return bool(np.all(is_equal)) and np.shape(a) == np.shape(b)
    except Exception:  # options are of any type, and __eq__ may raise anything
        return False


def object_array(values: Sequence[Any]) -> NDArray[Any]:
    """Return an array of these objects; NumPy would make several columns of tuples."""
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


def shown_options(options: Sequence[Any]) -> tuple[str, ...]:
    """Return a different name of each option."""
    words = tuple(map(str, options))
    return words if len(set(words)) == len(words) else tuple(map(repr, options))


def named_options(options: Sequence[Any]) -> list[Any]:
    """Return each option as JSON has it, or else by a name that no other option has."""
    data: list[Any] = []
    for i, option in enumerate(options):
        plain = to_plain(option)
        data.append(
            {"name": f"{plain['name']} (option {i})"}
            if isinstance(plain, dict) and plain in data
            else plain
        )
    return data
