"""Search spaces: variables by name, in lists, nested; and the translation between codes and points.

A `Space` groups the columns of its codes into one block per kind and number of options (bits, then
choices by number of options, then each subset, then numbers), so its family is vectorized for any
number of variables. A choice of two is a bit. The family of conditional variables is a
`Conditional`, and a point has the keys of its active variables only. Constants, which are variables
with one value, have no columns.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knobless._checks import constructed_as, positive_int
from knobless.core.conditional import Conditional
from knobless.core.families import Family, Product, slices
from knobless.core.rng import Stream
from knobless.core.subset import LARGEST
from knobless.core.types import Array, Points

from .codes import Codes
from .conditions import Conditions, is_conditional, resolve, resolved_tree
from .counting import count_points
from .layout import Layout, filled_shape
from .numbers import scaled
from .variable import Variable
from .when import INACTIVE, When, shown_values, when

SCALARS = (bool, int, float, str, np.generic)


class Column(NamedTuple):
    """A variable of a space and its columns in a code.

    Attributes
    ----------
    name : str
        Path of the variable in the space, such as "optimizer.rate" or "layers[0]"; empty if it is
        the whole space.
    variable : Variable
        The variable.
    where : slice
        Its columns: one, or `variable.n`; none for a constant.
    conditions : tuple of pairs
        Names of other variables, with the values that these must have for this one to be active;
        those of the spaces that contain it included.
    """

    name: str
    variable: Variable
    where: slice
    conditions: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    @property
    def is_constant(self) -> bool:
        """Whether the variable has one value only."""
        return self.where.start == self.where.stop

    def codes(self, codes: Points) -> Points:
        """Return the codes of the variable in codes of the space; zeros for a constant.

        Parameters
        ----------
        codes : array of shape (m, columns)
            Codes of the space.
        """
        if self.is_constant:
            return np.zeros((len(codes), self.variable.n or 1))
        return codes[:, self.where]


class LinearFloats(NamedTuple):
    """The single floats of a space on a linear scale and without steps, which are decoded together.

    Attributes
    ----------
    which : tuple of bool
        Whether each variable is one of them.
    where : list of int
        Their columns.
    low, high : array
        Their bounds.
    """

    which: tuple[bool, ...]
    where: list[int]
    low: Array
    high: Array


@constructed_as(
    "kl.Space(x=kl.Float(0.0, 1.0)) or kl.Space.of({'x': kl.Float(0.0, 1.0)})"
)
class Space:
    """A search space of named variables.

    Parameters
    ----------
    **named
        The variables by name. A value may itself be a `Space`, or a list or dict of variables and
        spaces.

    Notes
    -----
    Points are dicts of the same shape. A variable or space with conditions (`when`) is part of a
    point only where these hold.

    Examples
    --------
    >>> import knobless as kl
    >>> rate = kl.Float(1e-4, 1e-1, log=True)
    >>> space = kl.Space(layers=kl.Binary(3), act=kl.Choice("relu", "tanh"), lr=rate)
    >>> len(space.columns())
    3

    A conditional variable:

    >>> degree = kl.Integer(2, 5).when(kernel="poly")
    >>> space = kl.Space(kernel=kl.Choice("linear", "poly"), degree=degree)
    >>> space.cardinality
    5
    """

    when = when

    def __init__(self, /, **named: Any) -> None:
        self._set(named)
        unknown = None if self._conditions is None else self._conditions.unknown
        # No error yet: a space around this one may have the name
        if unknown is not None and unknown.is_misspelled:
            warnings.warn(unknown.message, UserWarning, stacklevel=3)

    def _set(self, tree: Any) -> None:
        if isinstance(tree, When):
            raise ValueError(
                "space: expected a Space that contains the variables of the conditions, got "
                f"{tree!r}"
            )
        self._tree = _checked(tree, "space")
        self._conditions: Conditions | None = None
        if is_conditional(self._tree):
            self._conditions = resolve(self._tree)
            self._tree = resolved_tree(
                self._tree, iter(self._conditions.guards)
            )
        self._leaves: list[tuple[str, Variable]] = list(_walk(self._tree, ""))

    @classmethod
    def of(cls, domain: Any) -> Space:
        """Return `domain` as a space.

        Parameters
        ----------
        domain : Space, variable, list or dict of these, or Family
            What to convert; a space is returned as it is. The points of a family are its codes, as
            arrays.

        Raises
        ------
        TypeError
            If `domain` contains anything else.
        ValueError
            If it contains no variable, or a condition that cannot hold.
        """
        if isinstance(domain, cls):
            return domain
        space = cls.__new__(cls)
        space._set(domain)
        return space

    @cached_property
    def _order(self) -> list[int]:
        """Indices of the variables that are not constants, in the order of their columns."""
        varying = [
            i
            for i, (_, variable) in enumerate(self._leaves)
            if variable.count > 1
        ]
        return sorted(varying, key=self._block)

    def _block(self, i: int) -> tuple[int, float]:
        """Return the sort key of a block: bits first, then choices, each subset, and numbers."""
        return self._leaves[i][1].block(i)

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        if (
            self._conditions is not None
            and self._conditions.unknown is not None
        ):
            raise ValueError(self._conditions.unknown.message)
        if not self._order:
            raise ValueError(
                f"space: expected a variable with two values or more, got constants only: {self!r}"
            )
        spans = slices(self._leaves[i][1].n or 1 for i in self._order)
        where = dict.fromkeys(range(len(self._leaves)), slice(0, 0)) | dict(
            zip(self._order, spans, strict=True)
        )
        return tuple(
            Column(
                name,
                variable,
                where[i],
                () if self._conditions is None else self._conditions.shown(i),
            )
            for i, (name, variable) in enumerate(self._leaves)
        )

    @cached_property
    def _layout(self) -> Layout | None:
        """What conditions make of points; None if there are none."""
        where = tuple(column.where for column in self._columns)
        if self._conditions is None:
            return None
        return Layout(self._conditions, where)

    @cached_property
    def _linear(self) -> LinearFloats:
        """The single floats on a linear scale."""
        ranges = [column.variable.linear_range for column in self._columns]
        low, high = (
            np.array([bounds for bounds in ranges if bounds is not None])
            .reshape(-1, 2)
            .T
        )
        which = tuple(bounds is not None for bounds in ranges)
        selected = zip(self._columns, which, strict=True)
        return LinearFloats(
            which,
            [column.where.start for column, is_linear in selected if is_linear],
            low,
            high,
        )

    @property
    def is_conditional(self) -> bool:
        """Whether there is a point in which a variable is inactive."""
        return self._layout is not None and self._layout.is_conditional

    def columns(self) -> tuple[Column, ...]:
        """Return the variables with their names and columns, in the order of declaration."""
        return self._columns

    @property
    def tree(self) -> Any:
        """The variables as they were declared, as nested dicts and lists; a new one each time."""
        return _copied(self._tree)

    @cached_property
    def family(self) -> Family:
        """Distribution over codes, initialized with the priors of the variables."""
        layout = self._layout
        blocks = groupby(self._order, key=self._block)
        variables = [
            [self._leaves[i][1] for i in indices] for _, indices in blocks
        ]
        parts = tuple(alike[0].block_family(alike) for alike in variables)
        flat = parts[0] if len(parts) == 1 else Product(parts)
        return flat if layout is None else layout.family(flat)

    @property
    def sole(self) -> Variable | None:
        """The variable that is the whole space; None for a collection of variables."""
        return None if isinstance(self._tree, (dict, list)) else self._tree

    @cached_property
    def cardinality(self) -> float:
        """Number of points; inf if there are more than 2**1000 or infinitely many."""
        counts = [column.variable.cardinality for column in self._columns]
        if self._conditions is not None:
            return count_points(counts, self._conditions.requirements)
        number = math.inf if math.inf in counts else math.prod(counts)
        return math.inf if number > LARGEST else number

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each column of a code."""
        names = [""] * self.family.variables
        for name, variable, where, _ in (
            column for column in self._columns if not column.is_constant
        ):
            names[where] = (
                [name]
                if variable.n is None
                else [f"{name}[{i}]" for i in variable.entries]
            )
        return tuple(names)

    def decode(self, code: Points) -> Any:
        """Return the point of one code.

        Parameters
        ----------
        code : array of shape (columns,)
            A code.

        Returns
        -------
        object
            The point, as an objective gets it.
        """
        return self.decode_each(code[None])[0]

    def decode_each(self, codes: Points) -> list[Any]:
        """Return the point of each code.

        Parameters
        ----------
        codes : array of shape (m, columns)
            Codes, one per row.

        Returns
        -------
        list
            The points, as an objective gets them.

        Notes
        -----
        Codes are decoded variable by variable, so each further row adds little time.
        """
        sole = self.sole
        if sole is not None:
            return sole.points(self._columns[0].codes(codes))
        linear = self._linear
        together = iter(
            scaled(codes[:, linear.where], linear.low, linear.high).T.tolist()
        )
        columns = [
            next(together)
            if is_linear
            else column.variable.points(column.codes(codes))
            for column, is_linear in zip(
                self._columns, linear.which, strict=True
            )
        ]
        if self._layout is not None:
            return self._layout.points(codes, self.active(codes), columns)
        return [
            _filled(self._tree, values) for values in zip(*columns, strict=True)
        ]

    def sample(self, rng: Any = None, size: int | None = None) -> Any:
        """Return a random point, or several.

        Parameters
        ----------
        rng : int, numpy.random.Generator or None, default None
            Seed or generator; random by default.
        size : int, optional
            Number of points; a single one by default.

        Returns
        -------
        object or list
            A point drawn from the distribution at the start of a run, as an objective gets it; with
            `size` a list of points.

        Examples
        --------
        >>> import knobless as kl
        >>> kl.Space(act=kl.Choice("relu", "tanh"), layers=kl.Integer(1, 4)).sample(rng=0)
        {'act': 'tanh', 'layers': 3}
        """
        n = 1 if size is None else positive_int("size", size)
        family = self.family
        points = self.decode_each(
            family.sample(family.initial(), n, Stream.of(rng))
        )
        return points[0] if size is None else points

    def active(self, codes: Points) -> NDArray[np.bool_]:
        """Return which variables are active.

        Parameters
        ----------
        codes : array of shape (m, columns)
            Codes, one per row.

        Returns
        -------
        array of bool of shape (m, variables)
            One row per code, in the order of `columns()`.
        """
        if self._layout is None or not self._layout.is_conditional:
            return np.ones((len(codes), len(self._columns)), dtype=bool)
        return self._layout.active(codes, self.family)

    def decode_batch(self, codes: Points) -> Any:
        """Return the codes as a vectorized objective gets them.

        Parameters
        ----------
        codes : array of shape (m, columns)
            Codes, one per row.

        Returns
        -------
        object
            Arrays in the shape of the space: one per variable, with one row per code.

        Raises
        ------
        ValueError
            If the space has conditional variables, of which points have different keys.
        """
        self.check_vectorized()
        decoded = [
            (column.variable, column.variable.values(column.codes(codes)))
            for column in self._columns
        ]
        values = [
            values[:, 0] if variable.n is None else values
            for variable, values in decoded
        ]
        if self._layout is None:
            return _filled(self._tree, values)
        return filled_shape(self._layout.full_shape, values)

    def check_vectorized(self) -> None:
        """Raise ValueError if the space has conditional variables."""
        if self.is_conditional:
            conditional = next(
                column for column in self._columns if column.conditions
            )
            conditions = ", ".join(
                f"{name}={shown_values(values)}"
                for name, values in conditional.conditions
            )
            raise ValueError(
                "vectorized: expected False for a space with conditional variables, whose points "
                "have different keys, "
                f"got {conditional.name}, which is active only for {conditions}"
            )

    def encode(self, x: Any, name: str = "x") -> Points:
        """Return a code that decodes to the point `x`.

        Parameters
        ----------
        x
            A point of the space.
        name : str
            How error messages refer to the point.

        Raises
        ------
        ValueError, TypeError
            If `x` is not a point of the space.
        """
        code = np.zeros(self.family.variables)
        for column, (where, value) in zip(
            self._columns, self._read(x, name), strict=True
        ):
            if value is not INACTIVE:
                # Raises for another value, also of a constant
                codes = column.variable.codes(value, where)
                if not column.is_constant:
                    code[column.where] = codes
        code = code.astype(self.family.dtype)
        if isinstance(self.family, Conditional):
            return self.family.canonical(code[None])[0]
        return code

    def _read(self, x: Any, name: str) -> Iterable[tuple[str, Any]]:
        """Return the value of each variable in a point, with its name in messages.

        INACTIVE for an inactive one.
        """
        if self._layout is None:
            return _taken(self._tree, x, name)
        return self._layout.read(x, name)

    def flatten(self, x: Any) -> list[Any]:
        """Return the values of a point in the order of `columns()`.

        Parameters
        ----------
        x
            A point of the space.

        Returns
        -------
        list
            One value per variable; `INACTIVE` for a variable that is not active.
        """
        return [value for _, value in self._read(x, "x")]

    def visible(self, codes: Points) -> Points:
        """Return codes with latent numbers replaced by their values.

        Parameters
        ----------
        codes : array of shape (m, columns)
            Codes, one per row.

        Returns
        -------
        array of shape (m, columns)
            Two rows are equal if and only if their points are.
        """
        seen = codes = (
            self.family.canonical(codes)
            if isinstance(self.family, Conditional)
            else codes
        )
        linear = self._linear
        if linear.where:
            seen = codes.copy()
            seen[:, linear.where] = scaled(
                codes[:, linear.where], linear.low, linear.high
            )
        for (_, variable, where, _), is_linear in zip(
            self._columns, linear.which, strict=True
        ):
            if (
                not is_linear
                and variable.is_latent
                and where.start < where.stop
            ):
                seen = codes.copy() if seen is codes else seen
                shown = variable.indices if variable.labels else variable.values
                seen[:, where] = shown(codes[:, where])
        return seen

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self._tree == other._tree

    def __hash__(self) -> int:
        return hash(tuple(name for name, _ in self._leaves))

    def __repr__(self) -> str:
        if isinstance(self._tree, dict):
            return f"Space({', '.join(f'{k}={v!r}' for k, v in self._tree.items())})"
        return f"Space.of({self._tree!r})"


def shown_name(name: str) -> str:
    """Return the name to display.

    It is "x" for a variable that is the whole space, if it has no name or only an index.
    """
    return f"x{name}" if not name or name.startswith("[") else name


def _checked(tree: Any, name: str) -> Any:
    """Return the tree with spaces replaced by their own trees: dicts, lists and variables."""
    if isinstance(tree, Space):
        return tree._tree
    if isinstance(tree, Variable):
        return tree
    if isinstance(tree, Family) and name == "space":
        return Codes(tree)
    if isinstance(tree, When):
        return When(_checked(tree.of, name), tree.conditions)
    if isinstance(tree, Mapping):
        if not tree:
            raise ValueError(
                f"{name}: expected at least one variable, got none"
            )
        return {
            key: _checked(value, f"{name}.{key}") for key, value in tree.items()
        }
    if isinstance(tree, (list, tuple)):
        if not tree:
            raise ValueError(
                f"{name}: expected at least one variable, got an empty {type(tree).__name__}"
            )
        if not all(isinstance(value, SCALARS) for value in tree):
            return [
                _checked(value, f"{name}[{i}]") for i, value in enumerate(tree)
            ]
    expected = "Binary, Choice, Integer, Float, Subset, Space, or a list or dict of these"
    kind = "type" if isinstance(tree, type) else type(tree).__name__
    raise TypeError(
        f"{name}: expected {expected}, got {tree!r} of type {kind}{_hint(tree, name)}"
    )


def _hint(value: Any, name: str) -> str:
    """Return how a range, options or a constant of another library are written here."""
    if isinstance(value, Family):
        return "; a family is the whole of a space"
    if isinstance(value, range) and value:
        step = "" if value.step == 1 else f", step={value.step}"
        if value.step > 0:
            return f"; a range is written kl.Integer({value[0]}, {value[-1]}{step})"
        return ""
    if isinstance(value, SCALARS):
        bits = (
            f"; bits are written kl.Binary({value})"
            if type(value) is int and value > 0
            else ""
        )
        if name == "space":
            return bits
        return f"; a constant is written kl.Choice({value!r})"
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    if not isinstance(value, (list, tuple)) or not value:
        return ""
    if (
        len(value) == 2
        and all(isinstance(item, (int, float)) for item in value)
        and value[0] < value[1]
    ):
        whole = (
            f" or kl.Integer({value[0]}, {value[1]})"
            if all(isinstance(item, int) for item in value)
            else ""
        )
        return f"; a range is written kl.Float({value[0]}, {value[1]}){whole}"
    shown = ", ".join(map(repr, value[:5])) + (", …" if len(value) > 5 else "")
    return f"; options are written kl.Choice({shown})"


def _walk(tree: Any, name: str) -> Iterator[tuple[str, Variable]]:
    """Yield the variables with their names, in the order of declaration."""
    if isinstance(tree, dict):
        for key, below in tree.items():
            yield from _walk(below, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, list):
        for i, below in enumerate(tree):
            yield from _walk(below, f"{name}[{i}]")
    elif isinstance(tree, When):
        yield from _walk(tree.of, name)
    else:
        yield name, tree


def _copied(tree: Any) -> Any:
    """Return a copy of a tree."""
    if isinstance(tree, dict):
        return {key: _copied(below) for key, below in tree.items()}
    if isinstance(tree, list):
        return [_copied(below) for below in tree]
    if isinstance(tree, When):
        return When(_copied(tree.of), tree.conditions)
    return tree


def _filled(tree: Any, values: Iterable[Any]) -> Any:
    """Return the tree with the variables replaced by values, which are in the order of `_walk`."""
    values = iter(values)
    if isinstance(tree, dict):
        return {key: _filled(below, values) for key, below in tree.items()}
    if isinstance(tree, list):
        return [_filled(below, values) for below in tree]
    return next(values)


def _taken(tree: Any, x: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of a point of the shape of the tree, with their names in messages."""
    if isinstance(tree, dict):
        if not isinstance(x, Mapping):
            raise TypeError(
                f"{name}: expected a dict with the keys {list(tree)}, got {x!r}"
            )
        if x.keys() != tree.keys():
            raise ValueError(
                f"{name}: expected the keys {list(tree)}, got {list(x)}"
            )
        for key, below in tree.items():
            yield from _taken(below, x[key], f"{name}[{key!r}]")
    elif isinstance(tree, list):
        if (
            not isinstance(x, Sequence | np.ndarray)
            or isinstance(x, (str, bytes))
            or len(x) != len(tree)
        ):
            raise ValueError(
                f"{name}: expected a list of {len(tree)}, got {x!r}"
            )
        for i, below in enumerate(tree):
            yield from _taken(below, x[i], f"{name}[{i}]")
    else:
        yield name, x
