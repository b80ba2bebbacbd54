"""Spaces as TOML files, for the command line: `knobless run … --space space.toml`.

    layers     = { binary = 8 }                                  # array of 8 bits activation = {
    choice = ["relu", "tanh", "gelu"] } width      = { integer = [8, 256], log = true }
    # low, high features   = { subset = ["age", "bmi", "bp", "s1"], k = 2 }  # or subset = 4; k =
    [1, 3] for a range

    [optimizer]                                                  # a nested space
    rate       = { float = [1e-5, 1e-1], log = true }
    momentum   = { float = [0, 0.99], step = 0.01 }

A variable is a table with one of these five keys and the options of the class of that name: `k`,
`p`, `n`, `step`, `log`, `ordered`. Any other table is a group of variables, and an array is a list
of them. A file that is a single variable, such as `binary = 100`, is the space of that variable.
Nothing in a file is executed.

A variable or a group with the key `when` is conditional; an array is a set of values:

    kernel     = { choice = ["linear", "rbf", "poly"] }
    degree     = { integer = [2, 5], when = { kernel = "poly" } }

    [radial]
    when       = { kernel = ["rbf", "poly"] }
    gamma      = { float = [1e-4, 10], log = true }
"""

from __future__ import annotations

import tomllib
from typing import Any

from knobless._checks import boolean

from .kinds import VARIABLE_KINDS
from .space import Space
from .when import When, conditions_of

TOML_KINDS = {
    name.lower(): kind
    for name, kind in VARIABLE_KINDS.items()
    if kind.toml_options
}
MOST_VALUES = 10**7  # in a point
EXAMPLE = "a variable, such as { integer = [1, 64] }"


def space_from_toml(text: str, name: str) -> Space:
    """Return the space described by TOML text.

    Parameters
    ----------
    text : str
        Contents of a TOML file.
    name : str
        Name of the file in error messages.

    Raises
    ------
    ValueError
        If `text` is not TOML or does not describe a space; the message begins with `name` and the
        key.
    """
    try:
        tree = _tree(tomllib.loads(text), name, "")
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}: not TOML: {error}") from None
    except RecursionError:
        raise ValueError(f"{name}: nested too deeply") from None
    try:
        space = Space.of(tree)
        # Raises if a condition names an unknown variable
        n = max(column.where.stop for column in space.columns())
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: {str(error).removeprefix('space.')}"
        ) from None
    if n > MOST_VALUES:
        raise ValueError(
            f"{name}: expected at most {MOST_VALUES} values in a point, got {n}"
        )
    return space


def _tree(data: Any, name: str, key: str) -> Any:
    where = f"{name}: {key}".removesuffix(": ")
    if isinstance(data, list):
        if not data:
            raise ValueError(
                f"{where}: expected at least one variable, got an empty array"
            )
        return [
            _tree(below, name, f"{key}[{i}]") for i, below in enumerate(data)
        ]
    if not isinstance(data, dict):
        raise ValueError(
            f"{where}: expected {EXAMPLE}, or a table of variables, got {data!r}"
        )
    if not data:
        raise ValueError(f"{where}: expected at least one variable, got none")
    if "when" in data:
        without_when = {
            word: below for word, below in data.items() if word != "when"
        }
        return When(
            _tree(without_when, name, key), _conditions(data["when"], where)
        )
    # a table is a group
    kinds = [
        kind
        for kind in TOML_KINDS
        if kind in data and not isinstance(data[kind], dict)
    ]
    if len(kinds) > 1:
        raise ValueError(
            f"{where}: expected one of {', '.join(TOML_KINDS)}, got {' and '.join(kinds)}"
        )
    if kinds:
        return _variable(kinds[0], data, where)
    return {
        word: _tree(below, name, f"{key}.{word}".lstrip("."))
        for word, below in data.items()
    }


def _conditions(
    table: Any, where: str
) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    if not isinstance(table, dict):
        raise ValueError(
            f'{where}: when: expected a table of names and values, such as {{ kernel = "rbf" }}, '
            f"got {table!r}"
        )
    try:
        return conditions_of(table)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _variable(kind: str, table: dict[str, Any], where: str) -> Any:
    options = {word: value for word, value in table.items() if word != kind}
    allowed = TOML_KINDS[kind].toml_options
    for word, value in options.items():
        if word not in allowed:
            raise ValueError(
                f"{where}: {word}: expected {', '.join(allowed)} beside {kind}, got {word}"
            )
        if isinstance(value, dict):
            raise ValueError(
                f"{where}: {word}: expected an option of {kind}, got a table"
            )
    try:
        boolean("log", options.get("log", False))
        return TOML_KINDS[kind].from_toml(table[kind], options)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: {kind}: {str(error).removeprefix(f'{kind.title()}: ')}"
        ) from None
