"""Conditional variables: `variable.when(name=values)` and the resolution of its names.

`resolve` numbers the variables of a tree and its conditions, finds the variable of each name, and
checks the values. A name is looked up among the keys of the dict that contains the conditional
variable, then outwards. What is resolved is `Conditions`: the shape of the points, and for each
`when` the values that other variables must have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from knobless.core.conditional import Intervals

from .variable import Variable
from .when import When

_LEVELS = 50  # of variables that depend on variables


class Test(NamedTuple):
    """A condition on a variable.

    Attributes
    ----------
    name : str
        Name of the variable, as given.
    parent : int
        Index of the variable.
    indices : frozenset of int
        Indices of its values for which the condition holds.
    """

    name: str
    parent: int
    indices: frozenset[int]


class Guard(NamedTuple):
    """The conditions of one `when`.

    Attributes
    ----------
    path : str
        Path of the variable or space that is conditional.
    given : tuple of pairs
        Names and values; those of known variables as these have them, in their order.
    tests : tuple of Test
        The conditions on known variables.
    outer : int or None
        Index of the `when` that contains this one.
    variable : int or None
        Index of the variable that is conditional; None for a group of variables.
    """

    path: str
    given: tuple[tuple[str, tuple[Any, ...]], ...]
    tests: tuple[Test, ...]
    outer: int | None
    variable: int | None


class Unknown(NamedTuple):
    """A name in a condition that is not in the tree; a tree around it may have it.

    Attributes
    ----------
    message : str
        Error message.
    is_misspelled : bool
        Whether the tree has a similar name.
    """

    message: str
    is_misspelled: bool

    @classmethod
    def of(cls, where: str, name: str, names: list[str]) -> Unknown:
        # Here because only this message needs it
        from difflib import get_close_matches

        # Names that differ in their numbers only, such as layer1 and layer2, are different ones on
        # purpose.
        candidates = [
            known
            for known in names
            if known.rstrip("0123456789") != name.rstrip("0123456789")
        ]
        similar = get_close_matches(name, candidates, n=1, cutoff=0.8)
        hint = f"; did you mean {similar[0]}?" if similar else ""
        message = f"{where}: expected a variable of the space ({', '.join(names)}), got none{hint}"
        return cls(message, bool(similar))


@dataclass(frozen=True)
class Conditions:
    """The conditions of a tree.

    Parameters
    ----------
    variables : tuple of pairs
        Path and variable, in order of declaration.
    inside : tuple of int or None
        For each variable, the index of the innermost `when` that contains it.
    guards : tuple of Guard
        One per `when`, in order of declaration.
    shape
        The tree with pairs in its dicts and lists: the index of a `when` or None, and an index of a
        variable, a dict or a list.
    unknown : Unknown or None
        The first name that is not in the tree; None if all names are.
    """

    variables: tuple[tuple[str, Variable], ...]
    inside: tuple[int | None, ...]
    guards: tuple[Guard, ...]
    shape: Any
    unknown: Unknown | None

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """For each guard, the length of the longest chain of variables that it depends on."""
        known: dict[int, int] = {}

        def level(i: int, trail: tuple[int, ...]) -> int:
            if i in trail:
                cycle = [
                    self.guards[j].path for j in (*trail[trail.index(i) :], i)
                ]
                raise ValueError(
                    f"space: expected conditions without a cycle, got {' → '.join(cycle)}"
                )
            if i not in known:
                guard = self.guards[i]
                inside = [self.inside[test.parent] for test in guard.tests]
                if len(trail) < _LEVELS:
                    of_parents = [
                        0 if j is None else level(j, (*trail, i))
                        for j in inside
                    ]
                    outer = (
                        0
                        if guard.outer is None
                        else level(guard.outer, (*trail, i))
                    )
                    known[i] = max(outer, 1 + max(of_parents, default=0))
                if known.get(i, math.inf) > _LEVELS:
                    raise ValueError(
                        f"space.{guard.path}: expected at most {_LEVELS} levels of conditions"
                    )
            return known[i]

        return tuple(level(i, ()) for i in range(len(self.guards)))

    def direct(self, i: int | None) -> dict[int, frozenset[int]]:
        """Return the variables that the conditions of guard `i` name, with the indices they need.

        The conditions of the guards around it are included.

        A constant is replaced by the variables that it depends on itself.
        """
        needs: dict[int, frozenset[int]] = {}
        while i is not None:
            for _, parent, indices in self.guards[i].tests:
                constant = self.variables[parent][1].count == 1
                named = (
                    self.direct(self.inside[parent])
                    if constant
                    else {parent: indices}
                )
                for variable, allowed in named.items():
                    needs[variable] = needs.get(variable, allowed) & allowed
            i = self.guards[i].outer
        return needs

    def shown(self, i: int) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        """Return the names and values of the conditions of a variable."""
        direct = self.direct(self.inside[i]).items()
        parents = [
            (*self.variables[parent], sorted(indices))
            for parent, indices in direct
        ]
        return tuple(
            (name, tuple(variable.value_at(j) for j in indices))
            for name, variable, indices in parents
        )

    @cached_property
    def needs(self) -> tuple[dict[int, frozenset[int]], ...]:
        """For each guard, the indices that other variables must have for it to hold."""
        known: dict[int, dict[int, frozenset[int]]] = {}
        for i in sorted(range(len(self.guards)), key=self.levels.__getitem__):
            known[i] = needs = self.direct(i)
            for parent in list(needs):
                for ancestor, indices in self._needs_of(parent, known).items():
                    needs[ancestor] = needs.get(ancestor, indices) & indices
            for parent, indices in needs.items():
                if not indices:
                    expected = f"conditions on {self.variables[parent][0]} that can hold together"
                    raise ValueError(
                        f"space.{self.guards[i].path}: expected {expected}, got none that does"
                    )
        return tuple(known[i] for i in range(len(self.guards)))

    def _needs_of(self, variable: int, known: Any) -> dict[int, frozenset[int]]:
        inside = self.inside[variable]
        return {} if inside is None else known[inside]

    @cached_property
    def requirements(self) -> tuple[dict[int, frozenset[int]], ...]:
        """For each variable, the variables that decide whether it is active."""
        varying = [
            {
                p: s
                for p, s in needs.items()
                if len(s) < self.variables[p][1].count
            }
            for needs in self.needs
        ]
        return tuple(
            self._needs_of(i, varying) for i in range(len(self.variables))
        )


def is_conditional(tree: Any) -> bool:
    """Return whether a tree contains conditions."""
    if isinstance(tree, dict):
        return any(map(is_conditional, tree.values()))
    if isinstance(tree, list):
        return any(map(is_conditional, tree))
    return isinstance(tree, When)


def resolve(tree: Any) -> Conditions:
    """Return the conditions of a tree of dicts, lists, variables and `When`.

    Raises
    ------
    ValueError, TypeError
        If a condition is on a variable that has none, on a value that does not exist, on itself, in
        a cycle, or if the conditions of a variable cannot hold together.
    """
    variables: list[tuple[str, Variable]] = []
    inside: list[int | None] = []
    alone: dict[int, int] = {}  # variables by the `when` that is theirs alone
    guarded: list[tuple[str, When, int | None, tuple[dict[Any, Any], ...]]] = []

    def item(
        node: Any,
        path: str,
        outer: int | None,
        scopes: tuple[dict[Any, Any], ...],
    ) -> tuple[int | None, Any]:
        if isinstance(node, When):
            guarded.append((path, node, outer, scopes))
            number = len(guarded) - 1
            inner = below(node.of, path, number, scopes)
            if isinstance(inner, int):
                alone[number] = inner
            return number, inner
        return None, below(node, path, outer, scopes)

    def below(
        node: Any,
        path: str,
        outer: int | None,
        scopes: tuple[dict[Any, Any], ...],
    ) -> Any:
        if isinstance(node, dict):
            shape: dict[Any, Any] = {}
            for key, child in node.items():
                shape[key] = item(
                    child,
                    f"{path}.{key}" if path else str(key),
                    outer,
                    (shape, *scopes),
                )
            return shape
        if isinstance(node, list):
            return [
                item(child, f"{path}[{i}]", outer, scopes)
                for i, child in enumerate(node)
            ]
        variables.append((path, node))
        inside.append(outer)
        return len(variables) - 1

    shape = below(tree, "", None, ())
    guards: list[Guard] = []
    unknown = None
    for i, (path, node, outer, scopes) in enumerate(guarded):
        stated: list[tuple[str, tuple[Any, ...]]] = []
        tests: list[Test] = []
        for name, values in node.conditions:
            where = f"space.{path}: when: {name}"
            of = next((scope[name] for scope in scopes if name in scope), None)
            if of is None:
                names = [str(key) for scope in scopes for key in scope]
                unknown = unknown or Unknown.of(where, name, names)
                stated.append((name, values))
                continue
            if of[0] == i:
                raise ValueError(
                    f"{where}: expected another variable, got a condition on itself"
                )
            variable = _parent(variables, of[1], where)
            indices = frozenset(
                variable.index(value, where) for value in values
            )
            stated.append(
                (
                    name,
                    tuple(
                        variable.value_at(index) for index in sorted(indices)
                    ),
                )
            )
            tests.append(Test(name, of[1], indices))
        guards.append(
            Guard(path, tuple(stated), tuple(tests), outer, alone.get(i))
        )
    conditions = Conditions(
        tuple(variables), tuple(inside), tuple(guards), shape, unknown
    )
    _ = conditions.needs  # its checks
    return conditions


def _parent(
    variables: list[tuple[str, Variable]], node: Any, where: str
) -> Variable:
    """Return the variable of a node of the shape, if it can have dependents."""
    expected = "a Choice, an Integer or a Binary(1)"
    if not isinstance(node, int):
        raise ValueError(
            f"{where}: expected {expected}, got a {'space' if isinstance(node, dict) else 'list'}"
        )
    variable = variables[node][1]
    if not variable.can_have_dependents:
        raise ValueError(f"{where}: expected {expected}, got {variable!r}")
    return variable


def resolved_tree(tree: Any, guards: Iterator[Guard]) -> Any:
    """Return a copy of a tree with the values of conditions as the variables have them."""
    if isinstance(tree, dict):
        return {
            key: resolved_tree(below, guards) for key, below in tree.items()
        }
    if isinstance(tree, list):
        return [resolved_tree(below, guards) for below in tree]
    if isinstance(tree, When):
        guard = next(guards)
        return When(resolved_tree(tree.of, guards), guard.given)
    return tree


def intervals_of(variable: Variable, indices: frozenset[int]) -> Intervals:
    """Return the intervals of the codes of some values, in increasing order.

    Their ends are not included.
    """
    ordered = np.array(sorted(indices))
    breaks = np.flatnonzero(np.diff(ordered) > 1)
    first = ordered[np.append(0, breaks + 1)]
    last = ordered[np.append(breaks, len(ordered) - 1)]
    low, high = (variable.lowest_codes(index) for index in (first, last + 1))
    return tuple(zip(low, high, strict=True))
