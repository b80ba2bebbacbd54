"""The front of a run with several objectives: the points that no other one dominates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from knobless._checks import extra
from knobless.core import pareto
from knobless.core.types import Array, Points
from knobless.space.space import Space

from .display import Text, html_grid, one_line
from .objectives import SIGNS, Objectives
from .run_state import RunState

__all__ = ["Front", "FrontPoint"]

MOST_SHOWN = 30  # points of a table in a notebook


class FrontPoint(NamedTuple):
    """A point that no other one dominates.

    Attributes
    ----------
    x : object
        The point, as the objective receives it.
    values : tuple of float
        Its objectives, with the user's signs; under noise the means of its evaluations.
    std : tuple of float or None
        The standard errors of these means; None if the objective is deterministic.
    """

    x: Any
    values: tuple[float, ...]
    std: tuple[float, ...] | None = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FrontPoint)
            and self[1:] == other[1:]
            and are_equal_points(self.x, other.x)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other


class Front(Sequence[FrontPoint]):
    """The points that no other one dominates, in the order of the first objective, best first.

    Of points with equal values, it is the one that was evaluated first. Under noise, points are
    compared by the means of their evaluations, and those with a single one, of which the best is a
    lucky one, are left out.

    Parameters
    ----------
    space : Space
        The space of the points.
    directions : dict
        "min" or "max" by the names of the objectives.
    codes : array of shape (k, columns)
        Codes of the points.
    minimized : array of shape (k, objectives)
        Their objectives, each to be minimized.
    std : array of the same shape, optional
        The standard errors.

    Attributes
    ----------
    names : tuple of str
        Names of the objectives.
    directions : dict
        For each of them "min" or "max".
    values : array of shape (k, objectives)
        The objectives of the points, with the user's signs; under noise means.
    std : array of the same shape or None
        The standard errors of these means; None if the objective is deterministic. They follow from
        the standard deviation of an evaluation, which is that of all points together, as a point
        has few evaluations.
    knee : int
        Index of the point that is closest to the ideal point, where each objective is scaled by its
        range on the front.

    Examples
    --------
    >>> import knobless as kl
    >>> space, names = kl.Binary(3), ("ones", "zeros")
    >>> result = kl.minimize(
    ...     lambda x: (x.sum(), (1 - x).sum()), space, budget=8, objectives=names, rng=0
    ... )
    >>> len(result.front), result.front[0].values, result.fun
    (4, (0.0, 3.0), (1.0, 2.0))
    """

    def __init__(
        self,
        space: Space,
        directions: Mapping[str, str],
        codes: Points,
        minimized: Array,
        std: Array | None = None,
    ) -> None:
        self.space = space
        self.codes = codes
        self.std = std
        self.names, self.directions = tuple(directions), dict(directions)
        signs = [SIGNS[direction] for direction in directions.values()]
        self.values = minimized * np.array(signs) + 0.0  # no −0
        self.knee = pareto.knee(minimized) if len(minimized) else -1

    @classmethod
    def of(cls, run: RunState, space: Space, objectives: Objectives) -> Front:
        """Return the front of all evaluations of a run.

        Parameters
        ----------
        run : RunState
            The run.
        space : Space
            Its space.
        objectives : Objectives
            Its objectives.

        Returns
        -------
        Front
            The points that no other one dominates.
        """
        points = run.archive.by_point
        noisy = not run.archive.deterministic and points.noisy
        values = points.means if noisy else points.first
        usable = points.feasible
        repeated = points.feasible & (points.counts > 1)
        front = pareto.Front.of(
            values, repeated if noisy and repeated.any() else usable
        )
        std = (
            points.deviation / np.sqrt(points.counts[front.rows, None])
            if noisy
            else None
        )
        return cls(
            space,
            objectives.directions,
            points.at(front.rows.tolist()),
            front.values,
            std,
        )

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, index: int) -> FrontPoint: ...
    @overload
    def __getitem__(self, index: slice) -> list[FrontPoint]: ...
    def __getitem__(self, index: int | slice) -> FrontPoint | list[FrontPoint]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        i = range(len(self))[index]
        std = None if self.std is None else tuple(self.std[i].tolist())
        return FrontPoint(
            self.space.decode(self.codes[i]),
            tuple(self.values[i].tolist()),
            std,
        )

    def __iter__(self) -> Iterator[FrontPoint]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name} ({direction})"
            for name, direction in self.directions.items()
        )
        return f"Front of {len(self)} points: {shown}"

    def _repr_html_(self) -> str:
        """Return the front as a table for a notebook.

        Of many points those that are evenly spaced in it.
        """
        rows = [[*self.cells(i), one_line(self[i].x, 200)] for i in self.shown]
        caption = f"{len(self)} points" + (
            "" if len(rows) == len(self) else f", {len(rows)} of them shown"
        )
        return html_grid(
            caption,
            [*self.directions, "x"],
            [[Text(cell) for cell in row] for row in rows],
        )

    def named(self, point: FrontPoint) -> dict[str, Any]:
        """Return a point of the front with its values by the names of the objectives.

        Parameters
        ----------
        point : FrontPoint
            The point.

        Returns
        -------
        dict
            The point as ``x``, its ``values``, and under noise their standard errors as ``std``.
        """
        named = {
            "x": point.x,
            "values": dict(zip(self.names, point.values, strict=True)),
        }
        if point.std is None:
            return named
        return named | {"std": dict(zip(self.names, point.std, strict=True))}

    @property
    def shown(self) -> list[int]:
        """Indices of the points that a table shows: all, or evenly spaced ones of many."""
        places = np.linspace(0, len(self) - 1, min(len(self), MOST_SHOWN))
        indices: list[int] = np.unique(places.astype(np.intp)).tolist()
        return indices

    def cells(self, index: int) -> list[str]:
        """Return the values of a point as text, with their standard errors.

        Parameters
        ----------
        index : int
            Index of the point.
        """
        errors = (
            [""] * len(self.names)
            if self.std is None
            else [f" ± {std:.2g}" for std in self.std[index].tolist()]
        )
        return [
            f"{value:.6g}{error}"
            for value, error in zip(
                self.values[index].tolist(), errors, strict=True
            )
        ]

    def to_pandas(self) -> Any:
        """Convert the front to a pandas data frame.

        Returns
        -------
        pandas.DataFrame
            One row per point: a column per variable, called as in ``space.columns()``, then one per
            objective, and under noise one called ``std.name`` for each standard error. A variable
            that is called like an objective is called ``x.name``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        with extra("pandas"):
            import pandas
        from knobless.journal.evaluations import variables_frame

        frame = variables_frame(pandas, self.space, self.codes, self.names)
        for name, values in zip(self.names, self.values.T, strict=True):
            frame[name] = values
        for name, errors in zip(
            self.names,
            () if self.std is None else self.std.T,
            strict=self.std is not None,
        ):
            frame[f"std.{name}"] = errors
        return frame


def are_equal_points(one: Any, other: Any) -> bool:
    """Return whether two points are equal: arrays, options, or lists and dicts of these."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            are_equal_points(one[name], other[name]) for name in one
        )
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(are_equal_points, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    return type(one) is type(other) and bool(one == other)
