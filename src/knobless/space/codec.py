"""Spaces as plain data, for journals and snapshots.

Options of a choice that JSON cannot represent are stored by index, with a readable name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from knobless.core.data import from_plain, shown, to_plain

from .space import Space
from .variables import Binary, Choice, Float, Integer

PARAMETERS = 10**7  # of the space of a file, at most
_DEPTH = 50  # of a space in a space


def space_data(space: Space) -> Any:
    """Return a space as plain data: its variables by name, in order of declaration."""
    return _tree_data(space.tree)


def _tree_data(tree: Any) -> Any:
    match tree:
        case dict():
            return {"named": [[to_plain(key), _tree_data(below)] for key, below in tree.items()]}
        case list():
            return {"listed": [_tree_data(below) for below in tree]}
        case Choice(options=options, p=p, n=n):
            return {"type": "Choice", "options": _options_data(options), "p": list(p), "n": n}
        case Binary(n=n, p=p):
            return {"type": "Binary", "n": n, "p": list(p) if isinstance(p, tuple) else p}
    data = {each.name: getattr(tree, each.name) for each in fields(tree)}
    return {"type": type(tree).__name__, **data, "log": bool(tree.log)}


def _options_data(options: Sequence[Any]) -> list[Any]:
    """Return each option as JSON has it, or else by a name that no other option has."""
    data: list[Any] = []
    for i, option in enumerate(options):
        each = to_plain(option)
        data.append({"name": f"{each['name']} (option {i})"} if isinstance(each, dict) and each in data else each)
    return data


def space_of(data: Any) -> Space:
    """Return the space that `space_data` described.

    Parameters
    ----------
    data
        Data from `space_data`, possibly from an untrusted file.

    Raises
    ------
    ValueError
        If `data` is not the description of a space, or of one with more than 10⁷ parameters.
    """
    room = [PARAMETERS]
    return Space.of(_tree_of(data, room, _DEPTH))


def _tree_of(data: Any, room: list[int], depth: int) -> Any:
    if not isinstance(data, dict) or not depth:
        raise ValueError(f"expected a space, got {shown(data)}")
    match data:
        case {"named": list() as pairs}:
            if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
                raise ValueError("expected pairs of a name and a variable")
            tree = {from_plain(key): _tree_of(below, room, depth - 1) for key, below in pairs}
            if len(tree) < len(pairs):
                raise ValueError("expected names that differ")
            return tree
        case {"listed": list() as each}:
            return [_tree_of(below, room, depth - 1) for below in each]
        case {"type": "Binary", "n": int() as n, "p": float() | list() as p, **rest} if not rest:
            _take(room, n)
            return Binary(n, p if isinstance(p, float) else tuple(map(_number, p)))
        case {"type": "Choice", "options": list() as options, "p": list() as p, "n": int() | None as n, **rest} if (
            not rest
        ):
            _take(room, len(options) * (1 if n is None else n))
            return Choice(*map(from_plain, options), p=[_number(each) for each in p], n=n)
        case {"type": "Integer", "low": int(), "high": int(), "step": int(), "log": bool(), "n": int() | None}:
            variable: Any = Integer
        case {
            "type": "Float",
            "low": float(),
            "high": float(),
            "step": float() | None,
            "log": bool(),
            "n": int() | None,
        }:
            variable = Float
        case _:
            raise ValueError(f"expected a variable, got {shown(data)}")
    _take(room, 2 * (data["n"] or 1))
    return variable(**{name: value for name, value in data.items() if name != "type"})


def _take(room: list[int], parameters: int) -> None:
    room[0] -= max(parameters, 0)
    if room[0] < 0:
        raise ValueError(f"expected at most {PARAMETERS} parameters")


def _number(data: Any) -> float:
    value = from_plain(data)
    if type(value) not in (int, float):
        raise ValueError(f"expected a number, got {shown(data)}")
    return float(value)
