"""Values as plain data: spaces, recipes and generators in the words of JSON, for the files of `journal.py` and
`snapshot.py`.

What is written says what a thing is. It can be compared, and where two differ `difference` says so in words. It
can be read back, but nothing of it is ever run: a file from a stranger is data. An option that JSON has no word
for is kept by its index, with a name for people to read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from knobless.core.adaptation import SNR, Fixed, samples, steps
from knobless.core.algorithm import Algorithm
from knobless.core.elitism import BestSoFar, LastBest, NoElitism
from knobless.core.families import Family
from knobless.core.igo import IGO
from knobless.core.p3 import P3
from knobless.core.portfolio import Portfolio
from knobless.core.preferences import Quartiles, Truncation, Values

from .space import Space
from .variables import Binary, Choice, Float, Integer

Generator = np.random.Generator

PARAMETERS = 10**7  # of a distribution that a file may ask for
CLIMBERS = 2**20  # of a P3 that a file may ask for
DEPTH = 50  # of a space within a space
LONG = 200  # characters of a name

OURS = {each.__name__: each for each in (Quartiles, Truncation, Values, Fixed, SNR, LastBest, BestSoFar)}
FUNCTIONS: dict[str, Callable[..., Any]] = {"samples": samples, "steps": steps}
BIT_GENERATORS = {
    each.__name__: each
    for each in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


class Name(str):
    """The name of an option that is known by its name alone."""

    __slots__ = ()
    __repr__ = str.__str__


def parsed(text: str) -> Any:
    """JSON as data; ValueError for what is none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


# Spaces.


def space_data(space: Space) -> Any:
    """Its variables, by name and in order."""
    return _tree_data(space._tree)


def _tree_data(tree: Any) -> Any:
    match tree:
        case dict():
            return {"named": [[_plain(key), _tree_data(below)] for key, below in tree.items()]}
        case list():
            return {"listed": [_tree_data(below) for below in tree]}
        case Choice(options=options, p=p, n=n):
            return {"type": "Choice", "options": _options_data(options), "p": list(p), "n": n}
        case Binary(n=n, p=p):
            return {"type": "Binary", "n": n, "p": list(p) if isinstance(p, tuple) else p}
    data = {each.name: getattr(tree, each.name) for each in fields(tree)}
    return {"type": type(tree).__name__, **data, "log": bool(tree.log)}


def _options_data(options: Sequence[Any]) -> list[Any]:
    """Each as JSON has it, or by a name of its own."""
    data: list[Any] = []
    for i, option in enumerate(options):
        each = _plain(option)
        data.append({"name": f"{each['name']} (option {i})"} if isinstance(each, dict) and each in data else each)
    return data


def space_of(data: Any) -> Space:
    """The space that `space_data` described; ValueError if it is none, or too large to be taken from a file."""
    room = [PARAMETERS]
    return Space.of(_tree_of(data, room, DEPTH))


def _tree_of(data: Any, room: list[int], depth: int) -> Any:
    if not isinstance(data, dict) or not depth:
        raise ValueError(f"expected a space, got {_shown(data)}")
    match data:
        case {"named": list() as pairs}:
            if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
                raise ValueError("expected pairs of a name and a variable")
            tree = {_value(key): _tree_of(below, room, depth - 1) for key, below in pairs}
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
            return Choice(*map(_value, options), p=[_number(each) for each in p], n=n)
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
            raise ValueError(f"expected a variable, got {_shown(data)}")
    _take(room, 2 * (data["n"] or 1))
    return variable(**{name: value for name, value in data.items() if name != "type"})


def _take(room: list[int], parameters: int) -> None:
    room[0] -= max(parameters, 0)
    if room[0] < 0:
        raise ValueError(f"expected at most {PARAMETERS} parameters")


def _plain(value: Any) -> Any:
    """As JSON has it, or else a name."""
    if value is None or type(value) in (bool, str) or (type(value) is int and abs(value) < 2**1024):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    return {"name": _named(value)}


def _named(value: Any) -> str:
    """How people call it, the same in every process."""
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}:{value.__qualname__}"[:LONG]
    try:
        name = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    except Exception:  # options are of any type, and a type may refuse to be shown
        name = type(value).__name__
    return name if len(name) <= LONG else name[: LONG - 2] + " …"


def _value(data: Any) -> Any:
    """What `_plain` described."""
    match data:
        case None | bool() | str() | int() | float():
            return data
        case {"float": "nan" | "inf" | "-inf" as text}:
            return float(text)
        case {"name": str() as text}:
            return Name(text)
    raise ValueError(f"expected a value, got {_shown(data)}")


def _number(data: Any) -> float:
    value = _value(data)
    if type(value) not in (int, float):
        raise ValueError(f"expected a number, got {_shown(data)}")
    return float(value)


# Recipes.


def algorithm_data(algorithm: Algorithm) -> Any:
    """What an algorithm is beside its family, which is the space's."""
    match algorithm:
        case IGO(elitism=NoElitism()):
            return {"preference": _part_data(algorithm.preference), "adaptation": _part_data(algorithm.adaptation)}
        case IGO():
            parts = {"preference": algorithm.preference, "adaptation": algorithm.adaptation}
            return {name: _part_data(part) for name, part in (parts | {"elitism": algorithm.elitism}).items()}
        case P3(climbers=climbers):
            return {"p3": {"climbers": climbers}}
        case Portfolio(members=members):
            return {"portfolio": [algorithm_data(member) for member in members]}
    return {"own": _named(type(algorithm))}


def _part_data(part: Any) -> Any:
    if is_dataclass(part) and not isinstance(part, type):
        name = type(part).__name__
        name = name if OURS.get(name) is type(part) else _named(type(part))
        return {"type": name} | {each.name: _part_data(getattr(part, each.name)) for each in fields(part)}
    if callable(part):
        name = getattr(part, "__name__", "")
        return {"function": name if FUNCTIONS.get(name) is part else _named(part)}
    return _plain(part)


def algorithm_of(data: Any, family: Family, depth: int = DEPTH) -> Algorithm | None:
    """The algorithm that `algorithm_data` described; None if parts of it were not this library's own."""
    match data:
        case {"preference": preference, "adaptation": adaptation, **rest} if rest.keys() <= {"elitism"}:
            parts = [_part_of(each) for each in (preference, adaptation, *rest.values())]
            return None if None in parts else IGO(family, *parts)
        case {"p3": {"climbers": int() as climbers}} if 0 < climbers <= CLIMBERS and type(climbers) is int:
            return P3(family, climbers)
        case {"portfolio": [_, *_] as each} if depth:
            members = [algorithm_of(member, family, depth - 1) for member in each]
            return None if None in members else Portfolio(tuple(filter(None, members)))
        case {"own": str()}:
            return None
    raise ValueError(f"expected an algorithm, got {_shown(data)}")


def _part_of(data: Any) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"expected a part of an algorithm, got {_shown(data)}")
    made = OURS.get(str(data.get("type")))
    if made is None:
        return None
    given: dict[str, Any] = {}
    for name, each in data.items():
        if isinstance(each, dict) and "function" in each:
            given[name] = FUNCTIONS.get(str(each["function"]))
            if given[name] is None:
                return None
        elif name != "type":
            given[name] = _value(each)
            if given[name] is not None and type(given[name]) not in (int, float):
                raise ValueError(f"{name}: expected a number, got {_shown(each)}")
    if given.keys() != {each.name for each in fields(made)}:
        raise ValueError(f"{made.__name__}: expected {[each.name for each in fields(made)]}, got {list(given)}")
    return made(**given)


# Generators.


def generator_data(rng: Generator) -> Any:
    """A generator's state; TypeError for a bit generator that NumPy does not have."""
    return bit_generator_data(rng.bit_generator.state)


def bit_generator_data(state: Any) -> Any:
    """The state of a bit generator as plain data."""
    if state["bit_generator"] not in BIT_GENERATORS:
        known = ", ".join(BIT_GENERATORS)
        raise TypeError(f"rng: expected one of NumPy's own ({known}), got {state['bit_generator']}")
    return json.loads(json.dumps(state, default=np.ndarray.tolist))


def generator_of(data: Any) -> Generator:
    """A generator in the state that `generator_data` described."""
    made = BIT_GENERATORS.get(str(data.get("bit_generator"))) if isinstance(data, dict) else None
    if made is None:
        raise ValueError(f"expected the state of a generator, got {_shown(data)}")
    bits = made(0)
    bits.state = _fitting(data, bits.state)
    return np.random.Generator(bits)


def _fitting(data: Any, model: Any) -> Any:
    """`data` in the shape and within the bounds of `model`: NumPy takes what it is given."""
    match model:
        case dict():
            if not isinstance(data, dict) or data.keys() != model.keys():
                raise ValueError(f"expected {list(model)}, got {_shown(data)}")
            each = {name: _fitting(data[name], model[name]) for name in model}
            top = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "uinteger": 2**32 - 1}
            for name in each.keys() & top.keys():
                if each[name] > top[name]:
                    raise ValueError(f"{name}: expected at most {top[name]}, got {each[name]}")
            return each
        case np.ndarray():
            if not isinstance(data, list) or len(data) != len(model):
                raise ValueError(f"expected {len(model)} words, got {_shown(data)}")
            most = np.iinfo(model.dtype).max
            return np.array([_word(each, most) for each in data], dtype=model.dtype)
        case str():
            return model
    return _word(data, 2**128 - 1)


def _word(data: Any, most: int) -> int:
    if type(data) is not int or not 0 <= data <= most:
        raise ValueError(f"expected an integer from 0 to {most}, got {_shown(data)}")
    return data


# Differences.


def difference(there: Any, here: Any, name: str, source: str = "journal") -> str | None:
    """Describe the first difference between a description read from `source` and the one at hand; None if equal."""
    if isinstance(there, dict) and isinstance(here, dict):
        if there.keys() == here.keys() == {"named"}:
            return _first(there["named"], here["named"], name, source)
        if there.keys() == here.keys():
            return next(filter(None, (difference(there[k], here[k], f"{name}: {k}", source) for k in here)), None)
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        each = (difference(a, b, f"{name}[{i}]", source) for i, (a, b) in enumerate(zip(there, here, strict=True)))
        return next(filter(None, each), None)
    if type(there) is type(here) and there == here:
        return None
    return f"{name}: {source} has {_shown(there)}, got {_shown(here)}"


def _first(there: Any, here: Any, name: str, source: str) -> str | None:
    """Describe where two lists of pairs differ: in their names, or in the values of these."""
    names = [[each[0] for each in pairs] for pairs in (there, here)]
    if names[0] != names[1]:
        return f"{name}: {source} has the names {_shown(names[0])}, got {_shown(names[1])}"
    each = (difference(a[1], b[1], f"{name}.{b[0]}", source) for a, b in zip(there, here, strict=True))
    return next(filter(None, each), None)


def _shown(data: Any) -> str:
    try:
        text = json.dumps(data, ensure_ascii=False, default=repr)
    except RecursionError:
        return "something nested too deeply"
    return text if len(text) <= LONG else text[: LONG - 2] + " …"
