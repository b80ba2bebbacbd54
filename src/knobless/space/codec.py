"""Spaces as plain data, for journals and snapshots.

Options of a choice that JSON cannot represent are stored by index, with a readable name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from knobless.core.data import from_plain, shown, to_plain

from .space import Space
from .variables import Binary, Choice, Float, Integer

Generator = np.random.Generator

PARAMETERS = 10**7  # of the space of a file, at most
DEPTH = 50  # of a space in a space

BIT_GENERATORS = {
    each.__name__: each
    for each in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


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
    return Space.of(_tree_of(data, room, DEPTH))


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


# Generators.


def generator_data(rng: Generator) -> Any:
    """A generator's state; TypeError for a bit generator that NumPy does not have."""
    state = rng.bit_generator.state
    if state["bit_generator"] not in BIT_GENERATORS:
        known = ", ".join(BIT_GENERATORS)
        raise TypeError(f"rng: expected one of NumPy's own ({known}), got {state['bit_generator']}")
    return json.loads(json.dumps(state, default=np.ndarray.tolist))


def generator_of(data: Any) -> Generator:
    """A generator in the state that `generator_data` described."""
    made = BIT_GENERATORS.get(str(data.get("bit_generator"))) if isinstance(data, dict) else None
    if made is None:
        raise ValueError(f"expected the state of a generator, got {shown(data)}")
    bits = made(0)
    bits.state = _fitting(data, bits.state)
    return np.random.Generator(bits)


def _fitting(data: Any, model: Any) -> Any:
    """`data` in the shape and within the bounds of `model`: NumPy takes what it is given."""
    match model:
        case dict():
            if not isinstance(data, dict) or data.keys() != model.keys():
                raise ValueError(f"expected {list(model)}, got {shown(data)}")
            each = {name: _fitting(data[name], model[name]) for name in model}
            top = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "uinteger": 2**32 - 1}
            for name in each.keys() & top.keys():
                if each[name] > top[name]:
                    raise ValueError(f"{name}: expected at most {top[name]}, got {each[name]}")
            return each
        case np.ndarray():
            if not isinstance(data, list) or len(data) != len(model):
                raise ValueError(f"expected {len(model)} words, got {shown(data)}")
            most = np.iinfo(model.dtype).max
            return np.array([_word(each, most) for each in data], dtype=model.dtype)
        case str():
            return model
    return _word(data, 2**128 - 1)


def _word(data: Any, most: int) -> int:
    if type(data) is not int or not 0 <= data <= most:
        raise ValueError(f"expected an integer from 0 to {most}, got {shown(data)}")
    return data
