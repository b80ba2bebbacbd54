"""Dominance, hypervolume, and the ranking of points with several objectives.

A row dominates another one if it is at least as good in every objective and better in one. The rows
that none dominates are the front. Hypervolumes are exact; they take O(n log n) operations for two
objectives, and more for each further one, so a front of many points in five objectives takes
seconds.

There is no reference point to choose. What is compared is scaled by the ranges of the front, from
its ideal point to its nadir, and the extreme points of the front, whose contribution would depend
on a reference point, come first.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .types import Array, Indices

MOST_OBJECTIVES = 5
LARGEST = 4e307  # of a value that is scaled, so that differences are finite
BLOCK = 256  # rows that are compared with all others at once

Mask = NDArray[np.bool_]


def usable(values: Array) -> Array:
    """Return values in which each row with a NaN, a failed evaluation, is worse than all others."""
    failed: Mask = np.logical_or.reduce(np.isnan(values), axis=1)
    return (
        np.where(failed[:, None], math.inf, values) if failed.any() else values
    )


def dominates(values: Array, others: Array) -> bool:
    """Return whether one row, or a single value, dominates another one."""
    return bool(np.all(values <= others) and np.any(values < others))


def is_front(values: Array) -> Mask:
    """Return which rows no other one dominates; of equal rows all or none, and no failed one."""
    values = usable(values)
    finite = (values < math.inf).all(axis=1)
    mask = np.zeros(len(values), dtype=bool)
    # A failed row is dominated by every other one.
    rows = np.flatnonzero(finite)
    if values.shape[1] == 2:
        mask[rows] = _is_front_of_two(values[rows])
    else:
        mask[rows] = _is_front_of_many(values[rows])
    return mask


def _is_front_of_two(values: Array) -> Mask:
    """Return which rows of two objectives no other one dominates, by one pass in order."""
    mask = np.empty(len(values), dtype=bool)
    if not len(values):
        return mask
    order = np.lexsort((values[:, 1], values[:, 0]))
    first, second = values[order].T
    # Better in the second objective than all that are at least as good in the first.
    fresh = second < np.concatenate(
        [[math.inf], np.minimum.accumulate(second)[:-1]]
    )
    # A row equal to the one before it in both objectives shares its fate.
    start = np.concatenate(
        [[True], (first[1:] != first[:-1]) | (second[1:] != second[:-1])]
    )
    mask[order] = fresh[start][np.cumsum(start) - 1]
    return mask


def _is_front_of_many(values: Array) -> Mask:
    """Return which rows no other one dominates.

    Only a row before it in lexicographic order can dominate a row.
    """
    mask = np.zeros(len(values), dtype=bool)
    kept = values[:0]
    order = np.lexsort(values.T[::-1])
    # In blocks: first by the front so far, then among themselves.
    for i in range(0, len(order), BLOCK):
        rows = order[i : i + BLOCK]
        block = values[rows]
        left = ~_are_dominated(block, kept)
        rows = rows[left]
        block = block[left]
        undominated = ~_are_dominated(block, block)
        mask[rows[undominated]] = True
        kept = np.concatenate([kept, block[undominated]])
    return mask


def _are_dominated(values: Array, by: Array) -> Mask:
    """Return which rows one of others dominates."""
    if not len(values) or not len(by):
        return np.zeros(len(values), dtype=bool)
    at_least_as_good = np.ones((len(values), len(by)), dtype=bool)
    better = np.zeros((len(values), len(by)), dtype=bool)
    # by[j] dominates values[i] if it is nowhere worse and somewhere better.
    for ours, theirs in zip(values.T, by.T, strict=True):
        at_least_as_good &= theirs <= ours[:, None]
        better |= theirs < ours[:, None]
    at_least_as_good &= better
    dominated: Mask = np.logical_or.reduce(at_least_as_good, axis=1)
    return dominated


def levels(values: Array) -> Indices:
    """Return 0 for the front, 1 for the front of the others, and so on.

    Failed rows get the number of rows.
    """
    level_of_row = np.full(len(values), len(values), dtype=np.intp)
    rows = np.arange(len(values))
    level = 0
    while len(rows):
        mask = is_front(values[rows])
        if not mask.any():
            break
        level_of_row[rows[mask]] = level
        rows = rows[~mask]
        level = level + 1
    return level_of_row


def hypervolume(values: Array, reference: Array) -> float:
    """Return the volume of what rows dominate within the box up to a reference point."""
    inside = values[(values < reference).all(axis=1)]
    if len(inside):
        return _volume(np.unique(inside[is_front(inside)], axis=0), reference)
    return 0.0


def _volume(front: Array, reference: Array) -> float:
    """Return the volume of different rows, in lexicographic order, without dominated ones."""
    m = len(reference)
    if m == 1 or len(front) == 1:
        return float(np.prod(reference - front[0]))
    if m == 2:
        # Rectangles of a staircase.
        above = np.concatenate([[reference[1]], front[:-1, 1]])
        return float((reference[0] - front[:, 0]) @ (above - front[:, 1]))
    if m == 3:
        return _volume_of_three(front, reference)
    # Each row adds what it dominates and later ones do not (While, Bradstreet and Barone, 2012).
    total = 0.0
    # The rows before dominate little of what the others do
    order = np.argsort(-front[:, -1], kind="stable")
    front = front[order]
    for i, row in enumerate(front):
        total += _exclusive(row, front[i + 1 :], reference)
    return total


def _volume_of_three(front: Array, reference: Array) -> float:
    """Return the volume of rows with three objectives, by slices along the last one."""
    front = front[np.argsort(front[:, 2], kind="stable")]
    heights = np.append(front[1:, 2], reference[2]) - front[:, 2]
    # The staircase of the slice: increasing in the first objective, decreasing in the second.
    xs = [-math.inf, float(reference[0])]
    ys = [float(reference[1]), -math.inf]
    area = total = 0.0
    for (x, y, _), height in zip(front.tolist(), heights.tolist(), strict=True):
        lo = bisect_right(xs, x) - 1
        if ys[lo] > y:
            first = lo if xs[lo] == x else lo + 1
            last = first
            while ys[last] >= y:
                last += 1
            # Between x and the first step that is lower than y, what was above y is gained.
            at = x
            level = ys[lo]
            for k in range(lo + 1, last):
                area += (xs[k] - at) * (level - y)
                at = xs[k]
                level = ys[k]
            area += (xs[last] - at) * (level - y)
            xs[first:last], ys[first:last] = [x], [y]
        total += area * height
    return total


def _exclusive(row: Array, others: Array, reference: Array) -> float:
    """Return the volume of what one row dominates and others do not."""
    box = float(np.prod(reference - row))
    if not len(others):
        return box
    # What others dominate within the box of the row.
    limited = np.maximum(others, row)
    limited = limited[(limited < reference).all(axis=1)]
    return box - (
        _volume(np.unique(limited[is_front(limited)], axis=0), reference)
        if len(limited)
        else 0.0
    )


def contributions(front: Array, reference: Array) -> Array:
    """Return for each row of a front the volume that it alone dominates; 0 for equal rows."""
    if front.shape[1] == 2:
        order = np.lexsort((front[:, 1], front[:, 0]))
        x, y = np.minimum(front[order], reference).T
        # The rectangle between the next rows on both sides.
        right = np.append(x[1:], reference[0])
        above = np.concatenate([[reference[1]], y[:-1]])
        areas = np.empty(len(front))
        areas[order] = (right - x) * (above - y)
        return areas
    volumes = np.zeros(len(front))
    for i, row in enumerate(front):
        if (row < reference).all():
            volumes[i] = _exclusive(row, np.delete(front, i, axis=0), reference)
    return volumes


def ranking(values: Array) -> Indices:
    """Return ranks from 0, the best: by fronts, then by contributions to the hypervolume.

    The contribution is the hypervolume that a row adds to the others of its front, scaled by the
    ranges of that front. The extreme rows of a front, which are the best in an objective, come
    first: their contribution would depend on a reference point. Equal rows are tied, and so are
    failed ones, which come last.
    """
    ranks = np.full(len(values), 0, dtype=np.intp)
    level = levels(values)
    begin = 0
    for front in np.unique(level):
        rows = np.flatnonzero(level == front)
        if front < len(values):
            points, inverse = np.unique(
                values[rows], axis=0, return_inverse=True
            )
            # Objectives on the ranges of this front: ideal point 0, nadir 1.
            unit = scaled(points, points)
            # Sums differ by rounding
            added = np.round(contributions(unit, np.ones(values.shape[1])), 12)
            # The best row in an objective comes first.
            added[(unit <= 0.0).any(axis=1)] = math.inf
            ranks[rows] = (
                begin
                + np.unique(-added, return_inverse=True)[1][inverse.ravel()]
            )
        else:
            ranks[rows] = begin
        # The next front begins after all ranks of this one.
        begin = int(ranks[rows].max()) + 1 if len(rows) else begin
    return ranks


class Front:
    """The front of the rows of a table, which may grow; in the order of its values.

    Parameters
    ----------
    objectives : int
        Number of objectives.

    Attributes
    ----------
    values : array of shape (k, objectives)
        Values of the rows of the front, in lexicographic order; of equal rows the first one alone.
    rows : array of shape (k,)
        Their indices in the table.
    last : int
        The last row that was added; −1 if there is none.
    """

    def __init__(self, objectives: int) -> None:
        self.last = -1
        self.values: Array = np.empty((0, objectives))
        self.rows: Indices = np.empty(0, dtype=np.intp)

    @classmethod
    def of(cls, values: Array, usable: Mask) -> Self:
        """Return the front of those rows that are usable."""
        front = cls(values.shape[1])
        rows = np.flatnonzero(usable)
        rows = rows[is_front(values[rows])]
        front.values, first = np.unique(values[rows], axis=0, return_index=True)
        front.rows = rows[first]
        return front

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: int, value: Array) -> bool:
        """Add a row unless another one is as good in every objective.

        Return whether it is in the front.
        """
        if (
            not (value < math.inf).all()
            or (self.values <= value).all(axis=1).any()
        ):
            return False
        self._insert(row, value)
        return True

    def place(self, row: int, value: Array) -> list[tuple[int, Array]]:
        """Add a row in place of an equal one.

        Return the rows that are dominated then, or this one if it is.
        """
        as_good = (self.values <= value).all(axis=1)
        if not as_good.any():
            return self._insert(row, value)
        equal = as_good & (self.values == value).all(axis=1)
        if not equal.any():
            return [(row, value)]
        self.rows = np.where(equal, row, self.rows)
        return []

    def _insert(self, row: int, value: Array) -> list[tuple[int, Array]]:
        """Add a row that none dominates; return those that it dominates, which are removed."""
        kept = ~(value <= self.values).all(axis=1)
        removed = list(
            zip(self.rows[~kept].tolist(), self.values[~kept], strict=True)
        )
        values = self.values[kept]
        rows = self.rows[kept]
        at = int((values[:, 0] < value[0]).sum())
        while at < len(values) and tuple(values[at]) < tuple(value):
            at += 1
        self.values = np.insert(values, at, value, axis=0)
        self.rows = np.insert(rows, at, row)
        self.last = row
        return removed

    def copy(self) -> Self:
        """Return a copy that does not change with this one."""
        copy = type(self)(self.values.shape[1])
        copy.values = self.values
        copy.rows = self.rows
        copy.last = self.last
        return copy


class Layers:
    """The front of a table, the front of its other rows, and so on.

    The fronts together have at least a number of rows.

    The table may grow, and of rows with equal values the last one is kept.

    Parameters
    ----------
    objectives : int
        Number of objectives.
    least : int
        Number of rows after which no other front is needed.

    Attributes
    ----------
    fronts : list of Front
        The fronts, at least one.
    """

    def __init__(self, objectives: int, smallest: int) -> None:
        self.objectives = objectives
        self.least = smallest
        self.fronts = [Front(objectives)]

    def add(self, row: int, value: Array) -> None:
        """Add a row (Li, Deb, Zhang and Kwong, 2017).

        The rows that it dominates move to the next front.
        """
        moved = [(row, value)] if (value < math.inf).all() else []
        for front in self.fronts:
            moved = [
                pushed
                for moved_row in moved
                for pushed in front.place(*moved_row)
            ]
        if moved and sum(map(len, self.fronts)) < self.least:
            self.fronts.append(Front(self.objectives))
            for moved_row in moved:
                self.fronts[-1].place(*moved_row)
        total = sum(map(len, self.fronts))
        while (
            len(self.fronts) > 1 and total - len(self.fronts[-1]) >= self.least
        ):
            total -= len(self.fronts.pop())

    @property
    def rows(self) -> Indices:
        """The rows of all fronts."""
        return np.concatenate([front.rows for front in self.fronts])

    @property
    def values(self) -> Array:
        """Their values."""
        return np.concatenate([front.values for front in self.fronts])

    @property
    def level(self) -> Indices:
        """The front to which each row belongs, 0 for the first."""
        return np.repeat(
            np.arange(len(self.fronts)), [len(front) for front in self.fronts]
        )

    def copy(self) -> Self:
        """Return a copy that does not change with this one."""
        copy = type(self)(self.objectives, self.least)
        copy.fronts = [front.copy() for front in self.fronts]
        return copy


def scaled(values: Array, front: Array) -> Array:
    """Return values relative to the ranges of a front: its ideal point is 0, its nadir 1."""
    values = np.clip(values, -LARGEST, LARGEST)
    front = np.clip(front, -LARGEST, LARGEST)
    low = front.min(axis=0)
    high = front.max(axis=0)
    unit: Array = (values - low) / np.where(high > low, high - low, 1.0)
    return unit


def knee(front: Array) -> int:
    """Return the row of a front that is closest to the ideal point, scaled by the ranges.

    Of equal rows the first.
    """
    return int((scaled(front, front) ** 2).sum(axis=1).argmin())
