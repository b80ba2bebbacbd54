"""Constraints on points, as the user gives them: functions that are called before the objective."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from knobless._checks import elements
from knobless.parallel.returned import number

EXPECTED_VALUE = "a number, feasible if at most 0, or a bool, feasible if True"
# Values of a constraint by which integers that are meant as bools are recognized
FIRST_VALUES = 20
SHOWN_POINT = 200  # characters of a point in a message


@dataclass(frozen=True)
class Constraints:
    """Functions of a point that return a number, feasible if at most 0, or a bool."""

    functions: tuple[Callable[[Any], Any], ...]
    _first_values: dict[int, list[Any]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def of(cls, constraints: Any) -> Self:
        """Return what the user has given as constraints."""
        constraints = () if constraints is None else constraints
        functions = (
            (constraints,)
            if callable(constraints)
            else elements(
                "constraints",
                constraints,
                "a function or a sequence of functions",
            )
        )
        for i, function in enumerate(functions):
            if isinstance(function, type) or not callable(function):
                raise TypeError(
                    f"constraints[{i}]: expected a function, got {function!r:.200}"
                )
        return cls(functions)

    @property
    def names(self) -> list[str]:
        """The names of the functions."""
        return [function_name(function) for function in self.functions]

    def shown(self, i: int) -> str:
        """Return the number and the name of a function for people to read."""
        return f"constraints[{i}], {function_name(self.functions[i])}"

    def violations(self, x: Any) -> list[float]:
        """Return by how much a point violates each constraint; 0 where it does not."""
        violations = []
        for i, function in enumerate(self.functions):
            try:
                value = function(x)
            except (Exception, SystemExit) as error:
                raise RuntimeError(
                    f"{self.shown(i)}: raised {error!r} at {x!r:.{SHOWN_POINT}}"
                ) from error
            violations.append(self._violation(i, value, x))
        return violations

    def _violation(self, i: int, value: Any, x: Any) -> float:
        is_array_of_bool = (
            getattr(getattr(value, "dtype", None), "kind", "") == "b"
        )
        if isinstance(value, bool) or (
            is_array_of_bool and not getattr(value, "ndim", 0)
        ):
            return 0.0 if value else 1.0
        self._warn_of_flags(i, value)
        try:
            excess = number(value, "constraint")
        except (TypeError, ValueError):
            excess = math.nan
        if math.isnan(excess):
            shown = (
                f"an array of shape {value.shape}"
                if getattr(value, "ndim", 0)
                else f"{value!r:.{SHOWN_POINT}}"
            )
            raise TypeError(
                f"{self.shown(i)}: expected {EXPECTED_VALUE}, got {shown} at {x!r:.{SHOWN_POINT}}"
            )
        return max(excess, 0.0)

    def _warn_of_flags(self, i: int, value: Any) -> None:
        """Warn once if the first values of a function are the integers 0 and 1.

        They may be meant as bools.
        """
        first = self._first_values.setdefault(i, [])
        if len(first) < FIRST_VALUES:
            first.append(value)
            integers = [
                value
                for value in first
                if isinstance(value, (int, np.integer)) and value in (0, 1)
            ]
            if len(integers) == FIRST_VALUES and 1 in integers:
                warnings.warn(
                    f"{self.shown(i)}: returned only the integers 0 and 1, of which 0 is feasible "
                    "and 1 is not. If "
                    "1 is feasible, return a bool",
                    UserWarning,
                    stacklevel=2,
                )


NO_CONSTRAINTS = Constraints(())


def function_name(function: Any) -> str:
    """Return the name of a function for people to read."""
    named: Any = (
        function if hasattr(function, "__qualname__") else type(function)
    )
    return f"{named.__module__}:{named.__qualname__}"
