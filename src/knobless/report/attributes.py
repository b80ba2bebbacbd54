"""The attributes of evaluations as columns: of numbers, or of texts by their indices."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST = 32  # attributes in a table, the first ones
LONGEST = 300  # characters of a text


class AttributeColumn(NamedTuple):
    """An attribute of some rows.

    It has numbers, with NaN where there are none, or indices of labels, the first of them empty.
    """

    name: str
    data: NDArray[Any]
    labels: list[str] | None


class Attributes:
    """The attributes of rows, which are added one by one."""

    def __init__(self) -> None:
        self._rows = 0
        self._cells: dict[str, dict[int, Any]] = {}
        self._texts: set[str] = (
            set()
        )  # names of the attributes that are not numbers in each row
        self._labels: dict[str, dict[str, int]] = {}

    def take(self, attributes: dict[str, Any]) -> None:
        """Add a row."""
        for name, value in attributes.items():
            if name not in self._cells:
                if len(self._cells) == MOST:
                    continue
                self._cells[name], self._labels[name] = {}, {"": 0}
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                self._texts.add(name)
            labels, text = self._labels[name], shown(value)
            labels.setdefault(text, len(labels))
            self._cells[name][self._rows] = value
        self._rows += 1

    @property
    def kinds(self) -> tuple[tuple[str, bool], ...]:
        """The names, and whether each attribute has texts.

        If that changes, columns do not continue earlier ones.
        """
        return tuple((name, name in self._texts) for name in self._cells)

    def columns(self, since: int = 0) -> list[AttributeColumn]:
        """Return the rows from `since` on."""
        return [self._column(name, since) for name in self._cells]

    def _column(self, name: str, since: int) -> AttributeColumn:
        cells, labels = self._cells[name], self._labels[name]
        rows = range(since, self._rows)
        if name in self._texts:
            indices = [
                labels[shown(cells[row])] if row in cells else 0 for row in rows
            ]
            return AttributeColumn(
                name, np.array(indices, dtype=np.int64), list(labels)
            )
        return AttributeColumn(
            name,
            np.array(
                [_number(cells.get(row, math.nan)) for row in rows], dtype=float
            ),
            None,
        )


def _number(value: int | float) -> float:
    """Return a number as a float; inf for an integer that is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def shown(value: Any) -> str:
    """Return an attribute as short text."""
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False)
    )
    return text if len(text) <= LONGEST else text[: LONGEST - 2] + " …"
