"""Spaces as plain data, for journals and snapshots.

Options of a choice that JSON cannot represent are stored by index, with a readable name. Conditions are part of the
data of the variable or group that has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from knobless.core.data import from_plain, shown, to_plain

from .conditions import Conditions, is_conditional, resolve, value_at
from .space import Space
from .subset import Subset
from .variables import Binary, Choice, Float, Integer
from .when import MOST_VALUES, When

PARAMETERS = 10**7  # of the space of a file, at most
_DEPTH = 50  # of a space in a space


def space_data(space: Space) -> Any:
    """Return a space as plain data: its variables by name, in order of declaration."""
    space.columns()  # raises if a condition names a variable that the space does not have
    tree = space.tree
    return _tree_data(tree, _conditions_data(resolve(tree)) if is_conditional(tree) else iter(()))


def _tree_data(tree: Any, conditions: Iterator[Any]) -> Any:
    match tree:
        case When(of=of):
            own = next(conditions)
            return _tree_data(of, conditions) | {"when": own}
        case dict():
            return {"named": [[to_plain(key), _tree_data(below, conditions)] for key, below in tree.items()]}
        case list():
            return {"listed": [_tree_data(below, conditions) for below in tree]}
        case Choice(options=options, p=p, n=n):
            return {"type": "Choice", "options": _options_data(options), "p": list(p), "n": n}
        case Binary(n=n, p=p):
            return {"type": "Binary", "n": n, "p": list(p) if isinstance(p, tuple) else p}
        case Subset(n=n, low=low, high=high, options=options, p=p):
            of = n if options is None else _options_data(options)
            return {"type": "Subset", "of": of, "k": [low, high], "p": list(p) if isinstance(p, tuple) else p}
    data = {each.name: getattr(tree, each.name) for each in fields(tree)}
    return {"type": type(tree).__name__, **data, "log": bool(tree.log)}


def _conditions_data(conditions: Conditions) -> Iterator[Any]:
    """Yield names and values of the conditions of each `when`; options as those of their choice are stored."""
    for guard in conditions.guards:
        pairs = []
        for name, parent, indices in guard.tests:
            variable: Any = conditions.variables[parent][1]
            options = _options_data(variable.options) if isinstance(variable, Choice) else None
            values = [value_at(variable, i) if options is None else options[i] for i in sorted(indices)]
            pairs.append([name, values])
        yield {"named": pairs}


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
    return Space.of(_tree_of(data, room, _DEPTH, 0))


def _tree_of(data: Any, room: list[int], depth: int, conditions: int) -> Any:
    if not isinstance(data, dict) or not depth:
        raise ValueError(f"expected a space, got {shown(data)}")
    if "when" not in data:
        return _unconditional_of(data, room, depth, conditions)
    given = _conditions_of(data["when"])
    rest = {name: each for name, each in data.items() if name != "when"}
    return When(_unconditional_of(rest, room, depth, conditions + len(given)), given)


def _conditions_of(data: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    match data:
        case {"named": [_, *_] as pairs}:
            for pair in pairs:
                match pair:
                    case [str(), [_, *_] as values] if len(values) <= MOST_VALUES:
                        continue
                raise ValueError(f"expected a name and values, got {shown(pair)}")
            given = {name: tuple(map(from_plain, values)) for name, values in pairs}
            if len(given) == len(pairs):
                return tuple(given.items())
    raise ValueError(f"expected conditions, got {shown(data)}")


def _unconditional_of(data: Any, room: list[int], depth: int, conditions: int) -> Any:
    match data:
        case {"named": list() as pairs}:
            if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
                raise ValueError("expected pairs of a name and a variable")
            tree = {from_plain(key): _tree_of(below, room, depth - 1, conditions) for key, below in pairs}
            if len(tree) < len(pairs):
                raise ValueError("expected names that differ")
            return tree
        case {"listed": list() as each}:
            return [_tree_of(below, room, depth - 1, conditions) for below in each]
        case {"type": "Binary", "n": int() as n, "p": float() | list() as p, **rest} if not rest:
            _take(room, n * (1 + conditions))
            return Binary(n, p if isinstance(p, float) else tuple(map(_number, p)))
        case {"type": "Choice", "options": list() as options, "p": list() as p, "n": int() | None as n, **rest} if (
            not rest
        ):
            _take(room, (len(options) + conditions) * (1 if n is None else n))
            return Choice(*map(from_plain, options), p=[_number(each) for each in p], n=n)
        case {"type": "Subset", "of": int() | list() as of, "k": [int() as low, int() as high], "p": p, **rest} if (
            not rest and type(p) in (float, list, type(None))
        ):
            n = len(of) if isinstance(of, list) else of
            _take(room, n * (1 + conditions))
            prior = tuple(map(_number, p)) if isinstance(p, list) else p
            return Subset(list(map(from_plain, of)) if isinstance(of, list) else of, (low, high), p=prior)
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
    _take(room, (2 + conditions) * (data["n"] or 1))
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
