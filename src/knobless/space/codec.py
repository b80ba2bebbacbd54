"""Spaces as plain data, for journals and snapshots.

Options of a choice that JSON cannot represent are stored by index, with a readable name. Conditions
are part of the data of the variable or group that has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knobless.core.data import from_plain, shown, to_plain

from .conditions import Conditions, is_conditional, resolve
from .kinds import VARIABLE_KINDS
from .space import Space
from .when import MOST_VALUES, When

PARAMETERS = 10**7  # of the space of a file, at most
_DEPTH = 50  # of a space in a space


def space_data(space: Space) -> Any:
    """Return a space as plain data: its variables by name, in order of declaration."""
    # Raises if a condition names a variable that the space does not have
    space.columns()
    tree = space.tree
    return _tree_data(
        tree,
        _conditions_data(resolve(tree)) if is_conditional(tree) else iter(()),
    )


def _tree_data(tree: Any, conditions: Iterator[Any]) -> Any:
    match tree:
        case When(of=of):
            conditions_of_node = next(conditions)
            return _tree_data(of, conditions) | {"when": conditions_of_node}
        case dict():
            return {
                "named": [
                    [to_plain(key), _tree_data(below, conditions)]
                    for key, below in tree.items()
                ]
            }
        case list():
            return {"listed": [_tree_data(below, conditions) for below in tree]}
    return {"type": type(tree).__name__} | tree.data()


def _conditions_data(conditions: Conditions) -> Iterator[Any]:
    """Yield names and values of the conditions of each `when`.

    Options as those of their choice are stored.
    """
    for guard in conditions.guards:
        pairs = []
        for name, parent, indices in guard.tests:
            pairs.append(
                [
                    name,
                    conditions.variables[parent][1].value_data(sorted(indices)),
                ]
            )
        yield {"named": pairs}


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
    node_conditions = _conditions_of(data["when"])
    without_when = {
        name: value for name, value in data.items() if name != "when"
    }
    return When(
        _unconditional_of(
            without_when, room, depth, conditions + len(node_conditions)
        ),
        node_conditions,
    )


def _conditions_of(data: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    match data:
        case {"named": [_, *_] as pairs}:
            for pair in pairs:
                match pair:
                    case [str(), [_, *_] as values] if (
                        len(values) <= MOST_VALUES
                    ):
                        continue
                raise ValueError(
                    f"expected a name and values, got {shown(pair)}"
                )
            values_by_name = {
                name: tuple(map(from_plain, values)) for name, values in pairs
            }
            if len(values_by_name) == len(pairs):
                return tuple(values_by_name.items())
    raise ValueError(f"expected conditions, got {shown(data)}")


def _unconditional_of(
    data: Any, room: list[int], depth: int, conditions: int
) -> Any:
    match data:
        case {"named": list() as pairs}:
            if not all(
                isinstance(pair, list) and len(pair) == 2 for pair in pairs
            ):
                raise ValueError("expected pairs of a name and a variable")
            tree = {
                from_plain(key): _tree_of(below, room, depth - 1, conditions)
                for key, below in pairs
            }
            if len(tree) < len(pairs):
                raise ValueError("expected names that differ")
            return tree
        case {"listed": list() as each}:
            return [
                _tree_of(below, room, depth - 1, conditions) for below in each
            ]
        case {"type": str() as kind, **given} if kind in VARIABLE_KINDS:
            variable = VARIABLE_KINDS[kind].from_data(
                {str(name): value for name, value in given.items()}
            )
            if variable is not None:
                _take(
                    room,
                    (variable.entry_parameters + conditions)
                    * (variable.n or 1),
                )
                return variable
    raise ValueError(f"expected a variable, got {shown(data)}")


def _take(room: list[int], parameters: int) -> None:
    room[0] -= parameters
    if room[0] < 0:
        raise ValueError(f"expected at most {PARAMETERS} parameters")
