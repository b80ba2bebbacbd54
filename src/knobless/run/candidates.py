"""Candidates, batches of them, and their values as the user gives them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from traceback import format_exception
from typing import Any, NamedTuple, overload

import numpy as np

from knobless.core.early_stopping import Curve
from knobless.core.several import Several
from knobless.core.types import Array, Points
from knobless.core.violation import Infeasible, negated
from knobless.parallel.evaluation import Watched
from knobless.parallel.returned import objective_value
from knobless.space.space import Space

FLOATS = {float}  # the types of the usual values
# Shared, as the usual mapping of failures and violations; it can be pickled
NONE: Mapping[int, Any] = {}


class Failure(Exception):  # noqa: N818
    """A failed evaluation of another process or program, by its traceback or message."""


class Candidate(NamedTuple):
    """A point to evaluate.

    Attributes
    ----------
    id : int
        Candidates are numbered from 0 in the order in which they are drawn.
    x : object
        The point, as the objective receives it.
    """

    id: int
    x: Any


class Batch(Sequence[Candidate]):
    """A sequence of candidates; a slice of it is a batch too.

    Parameters
    ----------
    space : Space
        The search space.
    ids : sequence of int
        The ids of the candidates.
    codes : array
        Their codes, one per row.

    Attributes
    ----------
    ids : sequence of int
        The ids of the candidates.
    codes : array
        Their codes, one per row.
    x : object
        All points at once, as a vectorized objective receives them: arrays with one row per point.
        A ValueError if the space has conditional variables.
    """

    def __init__(self, space: Space, ids: Sequence[int], codes: Points) -> None:
        self._space = space
        self.ids = ids
        self.codes = codes
        self._points: list[Any] | None = None

    @property
    def x(self) -> Any:
        """All points at once, as a vectorized objective receives them."""
        return self._space.decode_batch(self.codes)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> Batch: ...
    def __getitem__(self, index: int | slice) -> Candidate | Batch:
        if isinstance(index, slice):
            return Batch(self._space, self.ids[index], self.codes[index])
        return Candidate(self.ids[index], self.points[index])

    def __iter__(self) -> Iterator[Candidate]:
        return map(Candidate, self.ids, self.points)

    def take(self, rows: Sequence[int]) -> Batch:
        """Return the candidates at these positions.

        Parameters
        ----------
        rows : sequence of int
            Positions in this batch.

        Returns
        -------
        Batch
            The candidates in this order.
        """
        return Batch(
            self._space, [self.ids[row] for row in rows], self.codes[rows]
        )

    def watched(
        self, limits: Sequence[tuple[float, ...]], sign: float
    ) -> Batch:
        """Return these candidates with the limits by which workers stop evaluations.

        Parameters
        ----------
        limits : sequence of tuple
            The limits of each candidate; an empty tuple for one that is not stopped.
        sign : float
            −1 for a run that maximizes, else 1.

        Returns
        -------
        Batch
            A batch whose points are `Watched`.
        """
        batch = Batch(self._space, self.ids, self.codes)
        batch._points = [
            Watched(x, limit, sign) if limit else x
            for x, limit in zip(self.points, limits, strict=True)
        ]
        return batch

    @property
    def points(self) -> list[Any]:
        """The point of each candidate."""
        # Not a cached_property, which takes a lock in Python 3.11
        if self._points is None:
            self._points = self._space.decode_each(self.codes)
        return self._points

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        ending = ", …" if len(self) > 3 else ""
        return f"Batch of {len(self)}: {shown}{ending}"


def encoded_points(space: Space, points: Any, name: str) -> Points:
    """Return the codes of a point or of several; what is a point itself is one point."""
    try:
        return space.encode(points, name)[None]
    except (TypeError, ValueError):
        several = isinstance(points, (list, tuple)) or (
            isinstance(points, np.ndarray) and points.ndim > 1
        )
        if not several or not any(_is_point(space, point) for point in points):
            raise
    return np.array(
        [space.encode(point, f"{name}[{i}]") for i, point in enumerate(points)]
    )


def _is_point(space: Space, x: Any) -> bool:
    try:
        space.encode(x)
    except (TypeError, ValueError):
        return False
    return True


def decoded_points(space: Space, codes: Points) -> Any:
    """Return what `encoded_points` would encode: a point, or a list of several."""
    return (
        space.decode(codes[0]) if len(codes) == 1 else space.decode_each(codes)
    )


def ids_of(
    candidates: Batch | Candidate | Iterable[Candidate],
) -> Sequence[int]:
    """Return the ids of what `ask` returned, or of any part of it."""
    if isinstance(candidates, Batch):
        return candidates.ids
    listed = (
        [candidates] if isinstance(candidates, Candidate) else list(candidates)
    )
    for candidate in listed:
        if not isinstance(candidate, Candidate):
            raise TypeError(
                f"candidates: expected candidates returned by ask(), got {candidate!r}"
            )
    return [candidate.id for candidate in listed]


class ToldValues(NamedTuple):
    """Values of candidates to be minimized, as they rank; NaN for failed evaluations.

    By position, `failures` has the tracebacks of those that raised, `infeasible` the values that
    came with a violation, `several` those of several objectives, and `curves` those with steps. The
    value of one that was stopped is NaN here.
    """

    f: Array
    failures: Mapping[int, str]
    infeasible: Mapping[int, Infeasible]
    several: Mapping[int, Several] = NONE
    curves: Mapping[int, Curve] = NONE

    def at(self, i: int) -> ToldValues:
        """Return the value of one candidate."""

        def fact(facts: Mapping[int, Any]) -> Mapping[int, Any]:
            return {0: facts[i]} if i in facts else NONE

        return ToldValues(
            self.f[i : i + 1],
            fact(self.failures),
            fact(self.infeasible),
            fact(self.several),
            fact(self.curves),
        )

    def values(self) -> list[float | Exception]:
        """Return one number or failure for each."""
        values: list[float | Exception] = self.f.tolist()
        for i, text in self.failures.items():
            values[i] = Failure(text)
        for i, rank in (
            *self.infeasible.items(),
            *self.several.items(),
            *self.curves.items(),
        ):
            values[i] = rank
        return values


def values_of(values: Any, count: int, sign: float = 1.0) -> ToldValues:
    """Return values as the user or a source gives them, negated if `sign` is -1."""
    array = isinstance(values, np.ndarray)
    # The checks below take longer than the usual case
    if not array and type(values) is not list:
        if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(
            values, Iterable
        ):
            raise TypeError(
                f"values: expected {count}, one for each candidate, got {values!r}"
            )
        values = list(values)
    if len(values) != count:
        raise ValueError(
            f"values: expected {count}, one for each candidate, got {len(values)}"
        )
    if array and values.dtype.kind in "fiub" and values.ndim == 1:
        f = values.astype(float)
        return ToldValues(-f if sign < 0.0 else f, NONE, NONE)
    if {*map(type, values)} == FLOATS:
        f = np.array(values)
        return ToldValues(-f if sign < 0.0 else f, NONE, NONE)
    failures = {
        i: traceback_of(v)
        for i, v in enumerate(values)
        if isinstance(v, BaseException)
    }
    ranks = [
        math.nan if i in failures else _value(v) for i, v in enumerate(values)
    ]
    return told_values(
        list(map(negated, ranks)) if sign < 0.0 else ranks, failures
    )


def told_values(
    ranks: Sequence[float], failures: Mapping[int, str]
) -> ToldValues:
    """Return values as they rank, with what each kind of them carries.

    `failures` are by position.
    """
    curves = {
        i: rank for i, rank in enumerate(ranks) if isinstance(rank, Curve)
    }
    last = [rank.last if isinstance(rank, Curve) else rank for rank in ranks]
    infeasible = {
        i: rank for i, rank in enumerate(last) if isinstance(rank, Infeasible)
    }
    several = {
        i: rank for i, rank in enumerate(last) if isinstance(rank, Several)
    }
    return ToldValues(np.array(last), failures, infeasible, several, curves)


def _value(value: Any) -> float:
    return objective_value(value, "values")


def traceback_of(error: BaseException) -> str:
    """Return the traceback of a failed evaluation as text."""
    if isinstance(error, Failure):
        return str(error)
    return "".join(format_exception(error))
