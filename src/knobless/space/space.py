"""Spaces: variables by name, in lists, nested; and the translation between codes and what the user sees.

A `Space` groups the columns of its codes into one block per kind and cardinality (bits, then choices by
number of options, then numbers), so that its family stays vectorised however many variables there are. A
choice of two is a bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from knobless.core.families import Bernoulli, Categorical, Family, Product, slices
from knobless.core.gaussian import Gaussian
from knobless.core.types import Points

from .variables import Binary, Choice, Float, Integer, Variable

VARIABLES = (Binary, Choice, Integer, Float)
NUMBERS = (Integer, Float)


class Space:
    """Named variables: `Space(layers=Binary(31), act=Choice("relu", "tanh"), lr=Float(1e-4, 1e-1, log=True))`.

    A value may itself be a space, or a list of variables and spaces. Points are dicts of the same shape.
    """

    def __init__(self, /, **named: Any) -> None:
        self._set(named)

    def _set(self, tree: Any) -> None:
        self._tree = _checked(tree, "space")
        self._leaves: list[tuple[str, Variable]] = list(_walk(self._tree, ""))

    @classmethod
    def of(cls, domain: Any) -> Space:
        """`domain` as a space: a space, a variable, or a list or dict of such."""
        if isinstance(domain, cls):
            return domain
        space = cls.__new__(cls)
        space._set(domain)
        return space

    @cached_property
    def _order(self) -> list[int]:
        """The variables in the order of their columns."""
        return sorted(range(len(self._leaves)), key=lambda i: _block(self._leaves[i][1]))

    @cached_property
    def _columns(self) -> list[slice]:
        """Each variable's columns in a code."""
        spans = slices(self._leaves[i][1].n or 1 for i in self._order)
        return [span for _, span in sorted(zip(self._order, spans, strict=True), key=itemgetter(0))]

    @cached_property
    def family(self) -> Family:
        """The distribution over codes, starting from the variables' priors."""
        blocks = groupby((self._leaves[i][1] for i in self._order), key=_block)
        parts = tuple(_part(count, list(variables)) for (_, count), variables in blocks)
        return parts[0] if len(parts) == 1 else Product(parts)

    @property
    def sole(self) -> Variable | None:
        """The variable that this space is, if it is one and not a collection."""
        return None if isinstance(self._tree, (dict, list)) else self._tree

    @cached_property
    def cardinality(self) -> float:
        """How many points there are; inf where they cannot be counted."""
        variables = [variable for _, variable in self._leaves]
        if sum(math.log2(v.count) * (v.n or 1) for v in variables) > 1000:
            return math.inf
        return math.prod(v.count ** (v.n or 1) for v in variables)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each column of a code."""
        names = [""] * self.family.variables
        for (name, variable), columns in zip(self._leaves, self._columns, strict=True):
            n = variable.n
            names[columns] = [name.lstrip(".")] if n is None else [f"{name}[{i}]".lstrip(".") for i in range(n)]
        return tuple(names)

    def decode(self, code: Points) -> Any:
        """What the user sees of one code."""
        return self.decode_each(code[None])[0]

    def decode_each(self, codes: Points) -> list[Any]:
        """What the user sees of each code: variable by variable, so that a row costs little more than none."""
        columns = [_listed(v, codes[:, c]) for v, c in self._each()]
        return [_filled(self._tree, values) for values in zip(*columns, strict=True)]

    def decode_batch(self, codes: Points) -> Any:
        """What a vectorized objective sees of several codes: one array a variable, one row a code."""
        values = [v.values(codes[:, c])[:, 0] if v.n is None else v.values(codes[:, c]) for v, c in self._each()]
        return _filled(self._tree, values)

    def encode(self, x: Any, name: str = "x") -> Points:
        """A code that decodes to x; a point that is not in the space is a ValueError that begins with `name`."""
        code = np.empty(self.family.variables)
        points = _taken(self._tree, x, name)
        for (variable, columns), (where, value) in zip(self._each(), points, strict=True):
            code[columns] = _codes(variable, value, where)
        return code.astype(self.family.mode(self.family.initial()).dtype)

    def visible(self, codes: Points) -> Points:
        """Codes stripped of what cannot be seen: two rows are equal where their points are."""
        seen = codes
        for variable, columns in self._each():
            if isinstance(variable, NUMBERS):
                seen = codes.copy() if seen is codes else seen
                seen[:, columns] = variable.values(codes[:, columns])
        return seen

    def _each(self) -> Iterable[tuple[Variable, slice]]:
        return ((variable, columns) for (_, variable), columns in zip(self._leaves, self._columns, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self._tree == other._tree

    def __hash__(self) -> int:
        return hash(tuple(name for name, _ in self._leaves))

    def __repr__(self) -> str:
        if isinstance(self._tree, dict):
            return f"Space({', '.join(f'{k}={v!r}' for k, v in self._tree.items())})"
        return f"Space.of({self._tree!r})"


def _checked(tree: Any, name: str) -> Any:
    """The tree with spaces opened up, as dicts, lists and variables."""
    if isinstance(tree, Space):
        return tree._tree
    if isinstance(tree, VARIABLES):
        return tree
    if isinstance(tree, Mapping):
        if not tree:
            raise ValueError(f"{name}: expected at least one variable, got none")
        return {key: _checked(value, f"{name}.{key}") for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        if not tree:
            raise ValueError(f"{name}: expected at least one variable, got an empty {type(tree).__name__}")
        return [_checked(value, f"{name}[{i}]") for i, value in enumerate(tree)]
    expected = "Binary, Choice, Integer, Float, Space, or a list or dict of these"
    raise TypeError(f"{name}: expected {expected}, got {tree!r} of type {type(tree).__name__}")


def _walk(tree: Any, name: str) -> Iterator[tuple[str, Variable]]:
    """The variables with their names, in the user's order."""
    if isinstance(tree, dict):
        for key, below in tree.items():
            yield from _walk(below, f"{name}.{key}")
    elif isinstance(tree, list):
        for i, below in enumerate(tree):
            yield from _walk(below, f"{name}[{i}]")
    else:
        yield name, tree


def _filled(tree: Any, values: Iterable[Any]) -> Any:
    """The tree with values for variables, which come in the order of `_walk`."""
    values = iter(values)
    if isinstance(tree, dict):
        return {key: _filled(below, values) for key, below in tree.items()}
    if isinstance(tree, list):
        return [_filled(below, values) for below in tree]
    return next(values)


def _taken(tree: Any, x: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The variables' values with their names, out of a point of the tree's shape."""
    if isinstance(tree, dict):
        if not isinstance(x, Mapping):
            raise TypeError(f"{name}: expected a dict with the keys {list(tree)}, got {x!r}")
        if x.keys() != tree.keys():
            raise ValueError(f"{name}: expected the keys {list(tree)}, got {list(x)}")
        for key, below in tree.items():
            yield from _taken(below, x[key], f"{name}[{key!r}]")
    elif isinstance(tree, list):
        if not isinstance(x, Sequence | np.ndarray) or isinstance(x, (str, bytes)) or len(x) != len(tree):
            raise ValueError(f"{name}: expected a list of {len(tree)}, got {x!r}")
        for i, below in enumerate(tree):
            yield from _taken(below, x[i], f"{name}[{i}]")
    else:
        yield name, x


def _codes(variable: Variable, value: Any, name: str) -> float | list[float]:
    if variable.n is None:
        return variable.code(value, name)
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, (str, bytes)) or len(value) != variable.n:
        raise ValueError(f"{name}: expected {variable.n} values, got {value!r}")
    return [variable.code(v, f"{name}[{i}]") for i, v in enumerate(value)]


def _listed(variable: Variable, codes: Points) -> list[Any]:
    """The values of one variable: arrays, each its own, or scalars of Python's own types."""
    if variable.n is not None:
        return [row.copy() for row in variable.values(codes)]
    if isinstance(variable, Choice):  # the option itself, of whatever type
        return [variable.options[i] for i in codes[:, 0].astype(np.intp).tolist()]
    return variable.values(codes)[:, 0].tolist()


def _block(variable: Variable) -> tuple[bool, float]:
    """What a block has in common; sorts bits first and numbers last."""
    return (True, 0.0) if isinstance(variable, NUMBERS) else (False, variable.count)


def _part(count: float, variables: list[Any]) -> Family:
    """The family of one block."""
    if isinstance(variables[0], NUMBERS):
        return Gaussian(tuple(v.axis for v in variables for _ in range(v.n or 1)))
    prior = np.concatenate([v.prior for v in variables])
    flat = (prior == prior[0, 0]).all()
    if count == 2:
        return Bernoulli(len(prior), p=0.5 if flat else tuple(prior[:, 1].tolist()))
    return Categorical(len(prior), int(count), p=None if flat else tuple(map(tuple, prior.tolist())))
