"""Plain data: values as JSON has them, for files and for comparisons.

Data of a file is read and compared, never run: a file may come from anywhere. A value that JSON
cannot represent is stored by its name.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode, b64encode
from itertools import chain
from typing import Any

import numpy as np

from .families import ColumnFamily, Family
from .types import Array

_LONG = 200  # characters of a name
_MOST = 2**53  # of a count
# Levels of lists and objects; a comparison takes several calls for each
_DEEPEST = 200


class Name(str):
    """Name of a value that JSON cannot represent; its repr is the name itself."""

    __slots__ = ()
    __repr__ = str.__str__


def parsed(text: str) -> Any:
    """Return the data of a JSON text; raise ValueError for any other text."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [data]
    # Descend level by level: recursion could overflow the stack.
    for _ in range(_DEEPEST):
        inner = (
            node.values() if isinstance(node, dict) else node
            for node in level
            if isinstance(node, (dict, list))
        )
        level = [*chain.from_iterable(inner)]
        if not level:
            return data
    raise ValueError("nested too deeply")


def shown(data: Any) -> str:
    """Return data as short text for a message."""
    try:
        text = json.dumps(data, ensure_ascii=False, default=repr)
    except RecursionError:
        return "something nested too deeply"
    return text if len(text) <= _LONG else text[: _LONG - 2] + " …"


def to_plain(value: Any) -> Any:
    """Return a value if JSON can represent it, else its name."""
    if (
        value is None
        or type(value) in (bool, str)
        or (type(value) is int and abs(value) < 2**1024)
    ):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    return {"name": readable_name(value)}


def from_plain(data: Any) -> Any:
    """Return the value that `to_plain` described; a `Name` for a value stored by its name."""
    match data:
        case None | bool() | str() | int() | float():
            return data
        case {"float": "nan" | "inf" | "-inf" as text}:
            return float(text)
        case {"name": str() as text}:
            return Name(text)
    raise ValueError(f"expected a value, got {shown(data)}")


def number_of(data: Any) -> float:
    """Return the number that `to_plain` described; ValueError if it is none."""
    value = from_plain(data)
    if type(value) not in (int, float):
        raise ValueError(f"expected a number, got {shown(data)}")
    return float(value)


def readable_name(value: Any) -> str:
    """Return a readable name of any value, the same in every process."""
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}:{value.__qualname__}"[:_LONG]
    try:
        name = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    # a value may be of any type, and its repr may raise anything
    except Exception:
        name = type(value).__name__
    return name if len(name) <= _LONG else name[: _LONG - 2] + " …"


def difference(
    recorded: Any, current: Any, name: str, source: str = "journal"
) -> str | None:
    """Describe the first difference between data read from `source` and the data at hand.

    None if equal.
    """
    if (
        isinstance(recorded, dict)
        and isinstance(current, dict)
        and recorded.keys() == current.keys()
    ):
        differences = (
            _named_difference(recorded[key], current[key], name, source)
            if key == "named" and _are_pairs(recorded[key])
            else difference(
                recorded[key], current[key], f"{name}: {key}", source
            )
            for key in current
        )
        return next(filter(None, differences), None)
    if (
        isinstance(recorded, list)
        and isinstance(current, list)
        and len(recorded) == len(current)
    ):
        differences = (
            difference(a, b, f"{name}[{i}]", source)
            for i, (a, b) in enumerate(zip(recorded, current, strict=True))
        )
        return next(filter(None, differences), None)
    if type(recorded) is type(current) and recorded == current:
        return None
    return f"{name}: {source} has {shown(recorded)}, got {shown(current)}"


def _are_pairs(data: Any) -> bool:
    return isinstance(data, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in data
    )


def _named_difference(
    recorded: Any, current: Any, name: str, source: str
) -> str | None:
    """Describe where two lists of pairs differ: in their names, or in the values of these."""
    names = [[pair[0] for pair in pairs] for pairs in (recorded, current)]
    if names[0] != names[1]:
        return f"{name}: {source} has the names {shown(names[0])}, got {shown(names[1])}"
    differences = (
        difference(a[1], b[1], f"{name}.{b[0]}", source)
        for a, b in zip(recorded, current, strict=True)
    )
    return next(filter(None, differences), None)


def theta_of(family: Family, data: Any) -> Array:
    """Return the parameters of a distribution in the field `theta`.

    ValueError if they are not those of the family.
    """
    # Moving by zero changes nothing: otherwise the file has parameters outside of the margins.
    theta = floats(data, "theta")
    n = len(family.initial())
    if len(theta) != n:
        raise ValueError(f"theta: expected {n} parameters, got {len(theta)}")
    with np.errstate(all="ignore"):
        moved = family.move(theta, np.zeros(n))
        # Parameters outside of Θ have no finite entropy, or are moved by a projection.
        known = not isinstance(family, ColumnFamily) or math.isfinite(
            family.entropy(theta)
        )
        if not (np.abs(moved - theta) <= 1e-9).all() or not known:
            raise ValueError("theta: expected parameters of a distribution")
    return theta


# Fields of an object, each a ValueError if it is not what is expected.


def text(values: Array) -> str:
    """Return an array of floats as text."""
    return b64encode(values.astype("<f8").tobytes()).decode()


def floats(data: Any, name: str) -> Array:
    """Return the array that `text` made text of."""
    return np.frombuffer(octets(data, name), dtype="<f8").astype(float)


def octets(data: Any, name: str) -> bytes:
    """Return a field of bytes, stored in base 64."""
    if not isinstance(data[name], str):
        raise ValueError(f"{name}: expected bytes")
    return b64decode(data[name], validate=True)


def listed(data: Any, name: str) -> list[Any]:
    """Return a field that is a list."""
    if not isinstance(data[name], list):
        raise ValueError(f"{name}: expected a list")
    return data[name]


def whole_at(data: Any, name: str, least: int = 0) -> int:
    """Return a field that is an integer within bounds."""
    try:
        return whole(data[name], least)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def whole(value: Any, least: int = 0, most: int = _MOST) -> int:
    """Return `value` if it is an integer within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(
            f"expected an integer of at least {least}, got {value!r:.100}"
        )
    return value


def finite_at(data: Any, name: str) -> float:
    """Return a field that is a finite number."""
    value = data[name]
    if type(value) is not float or not math.isfinite(value):
        raise ValueError(
            f"{name}: expected a finite number, got {value!r:.100}"
        )
    return value
