"""Algorithms as plain data: what a journal records of an algorithm, and what it is compared with.

Components of this library are described by their names and fields and can be rebuilt. Custom
components are described by the names of their types and cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from .adaptation import SNR, Fixed, samples, steps
from .algorithm import Algorithm
from .catalog import MEMBERS, PartMembers
from .data import from_plain, readable_name, shown, to_plain
from .elitism import BestSoFar, LastBest, NoElitism
from .families import Family, RecordedFamily
from .preferences import Quartiles, Truncation, Values
from .rng import Stream
from .search import Search, Stage
from .turns import Lead, Shares

AT_ONCE = 2**20  # points per iteration, at most, that a file may ask for
_DEPTH = 8  # of components in components
_MOST_PARTS = 100  # of a tuple of components
_PARTS = (
    Quartiles,
    Truncation,
    Values,
    Fixed,
    SNR,
    NoElitism,
    LastBest,
    BestSoFar,
    Lead,
    Shares,
    Stage,
    PartMembers,
)
COMPONENTS: dict[str, type[Any]] = {
    made.__name__: made for made in (*MEMBERS, Search, *_PARTS)
}
FUNCTIONS: dict[str, Callable[..., Any]] = {"samples": samples, "steps": steps}


class _Unknown(Exception):  # noqa: N818
    """A component that only the program of the user has."""


def algorithm_data(algorithm: Algorithm) -> Any:
    """Return an algorithm as plain data, without its family, which is that of the space.

    A custom component is described by the name of its type.
    """
    return _data(algorithm)


def _data(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        if COMPONENTS.get(name) is not type(value):
            name = readable_name(type(value))
        values = {
            field.name: getattr(value, field.name)
            for field in fields(value)
            if field.name != "family"
        }
        return {"type": name} | {
            name: _data(part) for name, part in values.items()
        }
    if isinstance(value, tuple):
        return {"tuple": [_data(part) for part in value]}
    if isinstance(value, Algorithm):
        return {"type": readable_name(type(value))}
    if callable(value):
        name = getattr(value, "__name__", "")
        return {
            "function": name
            if FUNCTIONS.get(name) is value
            else readable_name(value)
        }
    return to_plain(value)


def algorithm_of(data: Any, family: Family) -> Algorithm | None:
    """Return the algorithm that `algorithm_data` described.

    Parameters
    ----------
    data
        Data from `algorithm_data`, possibly from an untrusted file.
    family : Family
        Family of the algorithm.

    Returns
    -------
    Algorithm or None
        None if the algorithm or its family has custom components, which only the program of the
        user has.

    Raises
    ------
    ValueError
        If `data` is not the description of an algorithm.
    """
    if isinstance(family, RecordedFamily):
        return None
    try:
        algorithm = _of(data, family, _DEPTH)
    except _Unknown:
        return None
    if not isinstance(algorithm, Algorithm):
        raise ValueError(f"expected an algorithm, got {shown(data)}")
    return algorithm


def search_of(data: Any, family: Family, batch: int) -> Search:
    """Return the search that `algorithm_data` described, with at least `batch` points.

    ValueError for other data.
    """
    search = algorithm_of(data, family)
    if not isinstance(search, Search):
        raise ValueError(
            f"expected a search of this library, got {shown(data)}"
        )
    return search.at_least(batch)


def _of(data: Any, family: Family, depth: int) -> Any:
    if not depth:
        raise ValueError(
            "expected an algorithm, got one that is nested too deeply"
        )
    match data:
        case {"type": str() as name, **given}:
            made = COMPONENTS.get(name)
            if made is None:
                raise _Unknown(name)
            names = [
                component_field.name
                for component_field in fields(made)
                if component_field.name != "family"
            ]
            if set(given) != set(names):
                raise ValueError(
                    f"{name}: expected {names}, got {shown(list(given))}"
                )
            parts = {
                field: _of(given[field], family, depth - 1) for field in names
            }
            for field in parts.keys() & {"batch", "climbers"}:
                if (
                    type(parts[field]) is not int
                    or not 0 < parts[field] <= AT_ONCE
                ):
                    raise ValueError(
                        f"{field}: expected 1 to {AT_ONCE}, got {shown(given[field])}"
                    )
            if any(
                component_field.name == "family"
                for component_field in fields(made)
            ):
                parts["family"] = family
            return made(**parts)
        case {"tuple": list() as parts} if len(parts) <= _MOST_PARTS:
            return tuple(_of(part, family, depth - 1) for part in parts)
        case {"function": str() as name}:
            if name not in FUNCTIONS:
                raise _Unknown(name)
            return FUNCTIONS[name]
        case str():
            raise ValueError(
                f"expected a component of an algorithm, got {shown(data)}"
            )
    value = from_plain(data)
    if isinstance(value, str):
        raise _Unknown(value)
    return value


def stream_data(stream: Stream) -> dict[str, int]:
    """Return the state of a stream of random numbers as plain data."""
    return {"key": stream.key, "count": stream.count}


def stream_of(data: Any) -> Stream:
    """Return the stream that `stream_data` described; raise ValueError for other data."""
    if not isinstance(data, dict) or data.keys() != {"key", "count"}:
        raise ValueError(
            f"rng: expected key and count of a stream, got {shown(data)}"
        )
    for name, value in data.items():
        if type(value) is not int or not 0 <= value < 2**64:
            raise ValueError(
                f"{name}: expected an integer from 0 to 2**64 - 1, got {shown(value)}"
            )
    return Stream(**data)
