"""Constraints on points, as the user gives them: functions that are called before the objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from knobless.parallel.evaluation import objective_value

EXPECTED_VALUE = "a number, feasible if at most 0, or a bool, feasible if True"
SHOWN_POINT = 200  # characters of a point in a message


@dataclass(frozen=True)
class Constraints:
    """Functions of a point that return a number, feasible if at most 0, or a bool, feasible if True."""

    functions: tuple[Callable[[Any], Any], ...]

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return what the user has given as constraints."""
        given = () if given is None else given
        if not callable(given) and (not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping))):
            raise TypeError(f"constraints: expected a function or a sequence of functions, got {given!r:.200}")
        functions = (given,) if callable(given) else tuple(given)
        for i, function in enumerate(functions):
            if isinstance(function, type) or not callable(function):
                raise TypeError(f"constraints[{i}]: expected a function, got {function!r:.200}")
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
        found = []
        for i, function in enumerate(self.functions):
            try:
                value = function(x)
            except (Exception, SystemExit) as error:
                raise RuntimeError(f"{self.shown(i)}: raised {error!r} at {x!r:.{SHOWN_POINT}}") from error
            found.append(self._violation(i, value, x))
        return found

    def _violation(self, i: int, value: Any, x: Any) -> float:
        is_array_of_bool = getattr(getattr(value, "dtype", None), "kind", "") == "b"
        if isinstance(value, bool) or (is_array_of_bool and not getattr(value, "ndim", 0)):
            return 0.0 if value else 1.0
        try:
            number = math.nan if isinstance(value, tuple) else objective_value(value)
        except (TypeError, ValueError):
            number = math.nan
        if math.isnan(number):
            shown = f"an array of shape {value.shape}" if getattr(value, "ndim", 0) else f"{value!r:.{SHOWN_POINT}}"
            raise TypeError(f"{self.shown(i)}: expected {EXPECTED_VALUE}, got {shown} at {x!r:.{SHOWN_POINT}}")
        return max(number, 0.0)


NO_CONSTRAINTS = Constraints(())


def function_name(function: Any) -> str:
    """Return the name of a function for people to read."""
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"
