"""What goes out for evaluation and what comes back: candidates, batches of them, and one iteration's books."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from traceback import format_exception
from typing import Any, NamedTuple, overload

import numpy as np

from knobless._checks import objective_value
from knobless.core.types import Array, Points
from knobless.space.space import Space

OUT, TOLD, CANCELLED = 0, 1, 2
EMPTY = np.empty(0)


class Failure(Exception):  # noqa: N818
    """An evaluation that failed, by what it said: of one that another process saw."""


class Candidate(NamedTuple):
    """A point to evaluate."""

    id: int
    x: Any


class Batch(Sequence[Candidate]):
    """Candidates in the order of their index; `x` has them all, in the form that a vectorized objective takes."""

    def __init__(self, space: Space, ids: Sequence[int], codes: Points) -> None:
        self._space = space
        self.ids = ids
        self._codes = codes

    @property
    def x(self) -> Any:
        """All points at once, as a vectorized objective gets them."""
        return self._space.decode_batch(self._codes)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> Batch: ...
    def __getitem__(self, index: int | slice) -> Candidate | Batch:
        if isinstance(index, slice):
            return Batch(self._space, self.ids[index], self._codes[index])
        return Candidate(self.ids[index], self._points[index])

    def __iter__(self) -> Iterator[Candidate]:
        return map(Candidate, self.ids, self._points)

    def take(self, rows: Sequence[int]) -> Batch:
        """Some of them."""
        return Batch(self._space, [self.ids[row] for row in rows], self._codes[rows])

    @cached_property
    def _points(self) -> list[Any]:
        return self._space.decode_each(self._codes)

    def __repr__(self) -> str:
        return f"Batch of {len(self)}: {', '.join(map(repr, self[:3]))}{', …' if len(self) > 3 else ''}"


class Iteration:
    """The candidates drawn from one θ and what became of each; their ids are `first` and on.

    It is over when the first `size` of them have come back or were given up. The first `guests` of them were
    not drawn from θ.
    """

    def __init__(self, first: int, size: int, n_initial_points: int = 0) -> None:
        self.first = first
        self.size = size
        self.n_initial_points = n_initial_points
        self.drawn = 0
        self.missing = size
        self.codes: Points
        self._f = EMPTY
        self._fate = bytearray()

    def extend(self, codes: Points) -> range:
        """More rows, all out; returns their ids."""
        start, more = self.first + self.drawn, len(codes)
        self.codes = np.concatenate([self.codes, codes]) if self.drawn else codes
        self._fate += bytes(more)
        self.drawn += more
        return range(start, start + more)

    def are_out(self, ids: Sequence[int]) -> bool:
        """Whether all these are candidates of this iteration that have not come back."""
        first, fate = self.first, self._fate
        if isinstance(ids, range):
            start, stop = ids.start - first, ids.stop - first
            return 0 <= start <= stop <= self.drawn and ids.step == 1 and fate.count(OUT, start, stop) == stop - start
        return all(0 <= id - first < self.drawn and fate[id - first] == OUT for id in ids)

    def settle(self, ids: Sequence[int], f: Array, fate: int) -> None:
        """These have come back with values, or never will."""
        if len(f) == self.missing == self.drawn and fate == TOLD and ids == range(self.first, self.first + self.drawn):
            self._f, self._fate, self.missing = f, bytearray([TOLD]) * len(f), 0  # the usual case: all of it at once
            return
        if len(self._f) < self.drawn:
            self._f = np.concatenate([self._f, np.full(self.drawn - len(self._f), math.nan)])
        for id, value in zip(ids, f.tolist(), strict=True):
            self._f[id - self.first] = value
            self._fate[id - self.first] = fate
        self.missing = self._fate.count(OUT, 0, self.size) + max(self.size - self.drawn, 0)

    def harvest(self) -> tuple[Points, Array]:
        """What the algorithm learns from: the points drawn from θ, of the first `size`, that have come back."""
        if self.drawn == self.size and not self.n_initial_points and CANCELLED not in self._fate:
            return self.codes, self._f  # the usual case
        rows = slice(self.n_initial_points, self.size)
        return self.told(rows) if CANCELLED in self._fate else (self.codes[rows], self._f[rows])

    def told(self, rows: slice = slice(None)) -> tuple[Points, Array]:
        """The points that have come back with a value, and these."""
        back = np.flatnonzero(np.frombuffer(self._fate, dtype=np.uint8)[rows] == TOLD)
        return self.codes[rows][back], self._f[rows][back]  # by index: the last ones drawn have no place in _f yet

    def pending_ids(self) -> list[int]:
        """The ids that are still out."""
        return [self.first + row for row, fate in enumerate(self._fate) if fate == OUT]


def ids_of(candidates: Batch | Candidate | Iterable[Candidate]) -> Sequence[int]:
    """The ids of what `ask` gave, or of any part of it."""
    if isinstance(candidates, Batch):
        return candidates.ids
    each = [candidates] if isinstance(candidates, Candidate) else list(candidates)
    for candidate in each:
        if not isinstance(candidate, Candidate):
            raise TypeError(f"candidates: expected what ask() gave, got {candidate!r}")
    return [candidate.id for candidate in each]


def values_of(values: Any, count: int) -> tuple[Array, list[str]]:
    """The values as floats, NaN for exceptions, and what these said."""
    array = isinstance(values, np.ndarray)
    if not array and type(values) is not list:  # the usual case; what else it may be takes time to tell
        if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
            raise TypeError(f"values: expected {count}, one for each candidate, got {values!r}")
        values = list(values)
    if len(values) != count:
        raise ValueError(f"values: expected {count}, one for each candidate, got {len(values)}")
    if array and values.dtype.kind in "fiub" and values.ndim == 1:
        return values.astype(float), []
    if all(type(v) is float for v in values):
        return np.array(values, dtype=float), []
    errors = [said(v) for v in values if isinstance(v, BaseException)]
    f = [math.nan if isinstance(v, BaseException) else objective_value(v, "values") for v in values]
    return np.array(f), errors


def said(error: BaseException) -> str:
    """An error with its traceback."""
    return str(error) if isinstance(error, Failure) else "".join(format_exception(error))
