"""Several objectives: how the user states them, and how their values are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

import numpy as np

from knobless.core.pareto import MOST_OBJECTIVES
from knobless.core.several import Several
from knobless.core.violation import ranked
from knobless.parallel.returned import (
    Attributed,
    Constrained,
    Value,
    attributes_text,
    number,
)

SIGNS = {"min": 1.0, "max": -1.0}


@dataclass(frozen=True)
class Objectives:
    """Names and directions of objectives.

    Parameters
    ----------
    names : tuple of str
        Their names, in the order in which values are given.
    signs : tuple of float
        For each of them 1 if it is minimized, −1 if it is maximized.
    """

    names: tuple[str, ...]
    signs: tuple[float, ...]

    @classmethod
    def of(cls, objectives: Any, maximize: bool = False) -> Objectives | None:
        """Check what the user has given.

        Names alone have the direction of the function that was called.
        """
        if objectives is None or isinstance(objectives, cls):
            return objectives
        expected = (
            "names such as ('error', 'latency'), "
            "or directions such as {'error': 'min', 'throughput': 'max'}"
        )
        if isinstance(objectives, (str, bytes)) or not isinstance(
            objectives, (Mapping, Sequence)
        ):
            raise TypeError(
                f"objectives: expected {expected}, got {objectives!r:.200}"
            )
        names = tuple(objectives)
        directions = (
            tuple(objectives.values())
            if isinstance(objectives, Mapping)
            else None
        )
        if not all(isinstance(name, str) and name for name in names):
            raise TypeError(
                f"objectives: expected {expected}, got {objectives!r:.200}"
            )
        if not 1 <= len(names) <= MOST_OBJECTIVES or len({*names}) < len(names):
            raise ValueError(
                f"objectives: expected 1 to {MOST_OBJECTIVES} different names, got "
                f"{objectives!r:.200}"
            )
        if directions is None and len(names) > 1 and SIGNS.keys() >= {*names}:
            raise ValueError(
                "objectives: expected names, got directions; with names these are "
                "{'error': 'min', 'throughput': 'max'}"
            )
        if directions is None:
            return cls(names, (-1.0 if maximize else 1.0,) * len(names))
        for name, direction in zip(names, directions, strict=True):
            if not isinstance(direction, str) or direction not in SIGNS:
                raise ValueError(
                    f"objectives: expected 'min' or 'max' for {name!r}, got {direction!r:.100}"
                )
        return cls(names, tuple(SIGNS[direction] for direction in directions))

    @classmethod
    def from_data(cls, data: Any) -> Objectives | None:
        """Return the objectives that a file describes."""
        return None if data is None else cls.of(dict(data))

    def data(self) -> list[list[str]]:
        """Return pairs of a name and a direction, for a file.

        The order of the pairs is that of the values.
        """
        return [
            [name, direction] for name, direction in self.directions.items()
        ]

    @property
    def directions(self) -> dict[str, str]:
        """The directions by name."""
        return {
            name: "min" if sign > 0 else "max"
            for name, sign in zip(self.names, self.signs, strict=True)
        }

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sign(self) -> float:
        """The factor of values in a run: that of a single objective.

        Several have signs of their own.
        """
        return self.signs[0] if len(self) == 1 else 1.0

    def read(self, value: Any, name: str = "objective") -> float:
        """Return the values of one evaluation as one number; NaN if one of them is NaN.

        A single objective has a plain number, with the user's sign.
        """
        if isinstance(value, (Several, Attributed)):
            return value
        if isinstance(value, Value):
            return Attributed(
                self.read(value.value, f"{name}: value"),
                attributes_text(value.attributes, name),
            )
        if isinstance(value, Constrained):
            return ranked(
                self.read(value.value, f"{name}: value"),
                number(value.violation, f"{name}: violation"),
            )
        values = [
            number(value_of_one, f"{name}: {objective}")
            for objective, value_of_one in zip(
                self.names, self._each(value, name), strict=True
            )
        ]
        if len(self) == 1:
            return values[0]
        if any(map(math.isnan, values)):
            return math.nan
        return Several(values, self.signs)

    def _each(self, value: Any, name: str) -> Sequence[Any]:
        """Return the value of each objective.

        TypeError or ValueError if these are not the stated ones.
        """
        expected = f"expected {len(self)} values, of {', '.join(self.names)}"
        if isinstance(value, Mapping):
            if {*value} != {*self.names}:
                raise ValueError(
                    f"{name}: {expected}, got those of {', '.join(map(str, value)) or 'none'}"
                )
            return [value[objective] for objective in self.names]
        if len(self) == 1 and (
            np.ndim(value) == 0
            if not isinstance(value, (tuple, list))
            else False
        ):
            return [value]
        several = isinstance(value, Sequence) or getattr(value, "ndim", 0) == 1
        if isinstance(value, (str, bytes)) or not several:
            hint = "; is a return statement missing?" if value is None else ""
            raise TypeError(f"{name}: {expected}, got {value!r:.200}{hint}")
        if len(value) != len(self):
            raise ValueError(f"{name}: {expected}, got {len(value)}")
        return [value[i] for i in range(len(self))]

    def read_all(self, values: Any, n: int) -> list[Any]:
        """Return the values of a vectorized objective at n points, one by one, for `read`."""
        if isinstance(values, Constrained):
            violations = np.asarray(values.violation)
            if violations.shape != (n,):
                raise TypeError(
                    f"objective: violation: expected an array of {n} numbers, got "
                    f"{violations.shape}"
                )
            return list(
                map(
                    Constrained,
                    self.read_all(values.value, n),
                    violations.tolist(),
                )
            )
        columns = [
            np.asarray(column_values, dtype=float)
            for column_values in self._columns(values, n)
        ]
        for objective, column in zip(self.names, columns, strict=True):
            if column.shape != (n,):
                raise TypeError(
                    f"objective: {objective}: expected an array of {n} numbers, got one of shape "
                    f"{column.shape}"
                )
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _columns(self, values: Any, n: int) -> Sequence[Any]:
        if isinstance(values, np.ndarray) and values.shape == (n, len(self)):
            return list(values.T)
        if len(self) == 1 and isinstance(values, np.ndarray):
            return [values]
        return self._each(values, "objective")


@dataclass(frozen=True)
class SeveralObjective:
    """An objective function that returns the values of objectives, read where it is evaluated.

    Parameters
    ----------
    fun : callable
        The function of the user.
    objectives : Objectives
        What it returns.
    n : callable, optional
        For a vectorized function, the number of points of a batch.
    """

    fun: Callable[[Any], Any]
    objectives: Objectives

    def __call__(self, x: Any) -> Any:
        returned = self.fun(x)
        if isinstance(returned, GeneratorType):
            return self._steps(returned)
        return self.objectives.read(returned)

    def _steps(
        self, generator: Generator[Any, Any, Any]
    ) -> Generator[float, None, Any]:
        """Read the values of each step."""
        with closing(generator):
            for values in generator:
                yield self.objectives.read(values)
