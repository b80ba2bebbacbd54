"""Points of a space with conditional variables: dicts and lists of their active variables only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knobless.core.conditional import Condition, Conditional, Intervals
from knobless.core.families import Family
from knobless.core.types import Points

from .conditions import Conditions, Test, intervals_of
from .variable import Variable
from .when import INACTIVE, shown_values

MOST_OPTIONS = 16  # of a variable between whose values a search takes turns


@dataclass(frozen=True)
class Layout:
    """Variables and conditions of a space, with the columns of its codes.

    Parameters
    ----------
    conditions : Conditions
        The variables, in order of declaration, and their conditions.
    where : tuple of slice
        Columns of each variable.
    """

    conditions: Conditions
    where: tuple[slice, ...]

    @property
    def is_conditional(self) -> bool:
        """Whether there is a point in which a variable is inactive."""
        return any(self.conditions.requirements)

    @cached_property
    def _intervals(self) -> dict[tuple[int, frozenset[int]], Intervals]:
        """Codes of a variable for some of its values, as far as conditions need them."""
        conditions = self.conditions
        needs = [
            (p, indices)
            for i in range(len(conditions.guards))
            for p, indices in conditions.direct(i).items()
        ]
        tests = [
            (test.parent, test.indices)
            for guard in conditions.guards
            for test in guard.tests
        ]
        return {
            (p, indices): intervals_of(conditions.variables[p][1], indices)
            for p, indices in {*needs, *tests}
        }

    def family(self, flat: Family) -> Family:
        """Return the family of the active columns, given that of all columns."""
        if not self.is_conditional:
            return flat
        conditions = []
        requirements = self.conditions.requirements
        parents: set[int] = set()
        for i, where in enumerate(self.where):
            if where.start == where.stop:  # a constant
                continue
            for parent, indices in self.conditions.direct(
                self.conditions.inside[i]
            ).items():
                if parent not in requirements[i] and not requirements[parent]:
                    continue  # it holds in every point
                parents.add(parent)
                codes = self._intervals[parent, indices]
                column = self.where[parent].start
                conditions += [
                    Condition(child, column, codes)
                    for child in range(where.start, where.stop)
                ]
        if not conditions:
            return flat
        branches = [
            (self.where[i].start, self._codes(i))
            for i in parents
            if self._variable(i).count <= MOST_OPTIONS
        ]
        return Conditional(flat, tuple(conditions), tuple(sorted(branches)))

    def _variable(self, i: int) -> Variable:
        return self.conditions.variables[i][1]

    def _codes(self, i: int) -> tuple[float, ...]:
        """Return the code of each value of a variable."""
        variable = self._variable(i)
        return tuple(
            variable.code(variable.value_at(j), "value")
            for j in range(int(variable.count))
        )

    # From codes to points.

    def active(self, codes: Points, family: Family) -> NDArray[np.bool_]:
        """Return which variables are active, one row per point."""
        active = np.ones((len(codes), len(self.where)), dtype=bool)
        if isinstance(family, Conditional):
            varying = [
                i
                for i, where in enumerate(self.where)
                if where.start < where.stop
            ]
            active[:, varying] = family.active(codes)[
                :, [self.where[i].start for i in varying]
            ]
        for i, where in enumerate(self.where):
            inside = self.conditions.inside[i]
            if where.start == where.stop and inside is not None:
                active[:, i] = self._holds_in(codes, active, inside)
        return active

    def points(
        self,
        codes: Points,
        active: NDArray[np.bool_],
        columns: Sequence[Sequence[Any]],
    ) -> list[Any]:
        """Return the points of codes.

        `active` has the active variables, and `columns` the values of each variable in all points.
        """
        # One for all points with the same active variables
        shapes: dict[bytes, Any] = {}
        points = []
        for row, values in zip(
            self._holding(codes, active),
            zip(*columns, strict=True),
            strict=True,
        ):
            key = row.tobytes()
            if key not in shapes:
                shapes[key] = self._active_shape(
                    self.conditions.shape, row.tolist()
                )
            points.append(filled_shape(shapes[key], values))
        return points

    def _holding(
        self, codes: Points, active: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return which guards hold, one row per point."""
        holding: list[NDArray[np.bool_]] = []
        for i, guard in enumerate(self.conditions.guards):
            holding.append(
                self._holds_in(codes, active, i)
                if guard.variable is None
                else active[:, guard.variable]
            )
        return np.column_stack(holding)

    def _holds_in(
        self, codes: Points, active: NDArray[np.bool_], i: int
    ) -> NDArray[np.bool_]:
        """Return in which points guard `i` holds.

        `active` has the active variables apart from constants.
        """
        holds = np.ones(len(codes), dtype=bool)
        for parent, indices in self.conditions.direct(i).items():
            edges = np.ravel(self._intervals[parent, indices])
            inside = (
                np.searchsorted(
                    edges, codes[:, self.where[parent].start], side="right"
                )
                % 2
                == 1
            )
            holds &= active[:, parent] & inside
        return holds

    def _active_shape(self, node: Any, holding: Sequence[bool]) -> Any:
        """Return the shape of the points for which these guards hold.

        It has the indices of variables in dicts and lists.
        """
        if isinstance(node, dict):
            items = node.items()
            return {
                k: self._active_shape(below, holding)
                for k, (i, below) in items
                if i is None or holding[i]
            }
        if isinstance(node, list):
            return [
                self._active_shape(below, holding)
                for i, below in node
                if i is None or holding[i]
            ]
        return node

    @cached_property
    def full_shape(self) -> Any:
        """The shape of a point in which every variable is active."""
        return self._active_shape(
            self.conditions.shape, [True] * len(self.conditions.guards)
        )

    # From points to codes.

    def read(self, x: Any, name: str) -> list[tuple[str, Any]]:
        """Return the value of each variable in a point, with its name in messages.

        INACTIVE for an inactive one.

        Raises
        ------
        ValueError, TypeError
            If the point has not the keys of its active variables, or values that others depend on
            are invalid.
        """
        items: list[tuple[str, Any]] = [(name, INACTIVE)] * len(self.where)
        # Of the active variables that others depend on
        codes: dict[int, float] = {}

        def failing(guard: int | None) -> Test | None:
            tests = () if guard is None else self.conditions.guards[guard].tests
            return next(
                (test for test in tests if not self._holds(test, codes)), None
            )

        def visit(node: Any, x: Any, name: str) -> None:
            if isinstance(node, dict):
                visit_dict(node, x, name)
            elif isinstance(node, list):
                active = [
                    below for guard, below in node if failing(guard) is None
                ]
                if (
                    not isinstance(x, Sequence | np.ndarray)
                    or isinstance(x, (str, bytes))
                    or len(x) != len(active)
                ):
                    raise ValueError(
                        f"{name}: expected a list of {len(active)}, got {x!r}"
                    )
                for i, below in enumerate(active):
                    visit(below, x[i], f"{name}[{i}]")
            else:
                items[node] = name, x
                if node in self._parents:
                    (codes[node],) = self._variable(node).codes(x, name)

        def visit_dict(node: dict[Any, Any], x: Any, name: str) -> None:
            if not isinstance(x, Mapping):
                raise TypeError(
                    f"{name}: expected a dict with keys among {list(node)}, got {x!r}"
                )
            unknown = [key for key in x if key not in node]
            if unknown:
                raise ValueError(
                    f"{name}: expected keys among {list(node)}, got {unknown[0]!r}"
                )
            for key, (guard, below) in sorted(
                node.items(), key=self._reading_order
            ):
                test = failing(guard)
                if test is None and key not in x:
                    raise ValueError(
                        f"{name}: expected the key {key!r}, which is active, got {list(x)}"
                    )
                if test is not None and key in x:
                    raise ValueError(
                        f"{name}: expected no key {key!r}, which needs {self._shown(test)}, got "
                        f"{list(x)}"
                    )
                if test is None:
                    visit(below, x[key], f"{name}[{key!r}]")

        visit(self.conditions.shape, x, name)
        return items

    @cached_property
    def _parents(self) -> set[int]:
        return {
            test.parent
            for guard in self.conditions.guards
            for test in guard.tests
        }

    def _holds(self, test: Test, codes: Mapping[int, float]) -> bool:
        code = codes.get(test.parent)
        return code is not None and any(
            low <= code < high
            for low, high in self._intervals[test.parent, test.indices]
        )

    def _reading_order(
        self, item: tuple[Any, tuple[int | None, Any]]
    ) -> tuple[bool, int]:
        """Return a key that sorts variables before what depends on them: groups come last."""
        guard, node = item[1]
        return not isinstance(
            node, int
        ), 0 if guard is None else self.conditions.levels[guard]

    def _shown(self, test: Test) -> str:
        variable = self._variable(test.parent)
        values = tuple(variable.value_at(j) for j in sorted(test.indices))
        return f"{test.name}={shown_values(values)}"


def filled_shape(shape: Any, values: Sequence[Any]) -> Any:
    """Return a shape with the indices of variables replaced by their values."""
    if isinstance(shape, dict):
        return {
            key: filled_shape(below, values) for key, below in shape.items()
        }
    if isinstance(shape, list):
        return [filled_shape(below, values) for below in shape]
    return values[shape]
