"""Conditional variables: columns that are part of a point only for some values of other columns.

`Conditional` adds conditions to a family. Every column is drawn, and the inactive ones are then set
to a fixed code, so equal points have equal codes. An inactive variable takes no part in the update:
its deviation from θ is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .families import ColumnFamily, Discrete, Family, Normal, SizeBounds
from .types import Array, Indices, Mask, Points, Words

# Code of an inactive number; that of a bit or choice is 0, and a subset has its first options
INACTIVE_NUMBER = 0.5
EVERYTHING = ((-math.inf, math.inf),)

Intervals = tuple[tuple[float, float], ...]


class Condition(NamedTuple):
    """Values of a column for which another column is active.

    Attributes
    ----------
    column : int
        The conditional column.
    parent : int
        The column that it depends on.
    intervals : tuple of pairs of float
        The column is active only if low <= code < high for the code of the parent and one of these
        pairs.
    """

    column: int
    parent: int
    intervals: Intervals


@dataclass(frozen=True)
class Conditional(ColumnFamily):
    """Family with conditional columns.

    Parameters
    ----------
    flat : Family
        Family of all columns, whether active or not.
    conditions : tuple of Condition
        A column is active if all its conditions hold and the columns that they depend on are
        active. It must be possible that they all hold.
    branches : tuple of pairs
        Columns on which others depend and which have few values, each with the code of every value.

    Notes
    -----
    The columns are drawn independently, and whether a column is active depends on other columns
    only. Given that it is active, its statistics therefore have the mean θ, and its whitened
    deviation has the expected squared length of its number of free parameters. So the expected
    squared length of the whitened gradient for uninformative values is known: that of a flat
    family, with the expected number of free parameters of the active columns.
    """

    flat: Family
    conditions: tuple[Condition, ...]
    branches: tuple[tuple[int, tuple[float, ...]], ...] = ()

    # Conditions.

    @cached_property
    def requirements(self) -> list[dict[int, Intervals]]:
        """For each column, the codes that other columns must have for it to be active."""
        direct: list[list[Condition]] = [[] for _ in range(self.variables)]
        for condition in self.conditions:
            direct[condition.column].append(condition)
        closures: dict[int, dict[int, Intervals]] = {}

        def closure(column: int) -> dict[int, Intervals]:
            if column not in closures:
                needs: dict[int, Intervals] = {}
                for _, parent, intervals in direct[column]:
                    # What the parent needs, its children need too.
                    inherited = closure(parent).items()
                    for ancestor, codes in ((parent, intervals), *inherited):
                        known = needs.get(ancestor, EVERYTHING)
                        needs[ancestor] = _intersection(known, codes)
                closures[column] = needs
            return closures[column]

        return [closure(column) for column in range(self.variables)]

    @cached_property
    def _tests(self) -> tuple[list[tuple[int, Intervals]], Indices]:
        """All different requirements, and the indices of those of each column.

        The last index is that of no test.
        """
        tests_of = [list(needs.items()) for needs in self.requirements]
        tests = list(
            dict.fromkeys(test for needs in tests_of for test in needs)
        )
        index = {test: i for i, test in enumerate(tests)}
        # Column j has the tests of[:, j]; unused entries point to a test that always holds.
        of = np.full((max(map(len, tests_of)), self.variables), len(tests))
        for column, needs in enumerate(tests_of):
            of[: len(needs), column] = sorted(index[test] for test in needs)
        return tests, of

    @cached_property
    def _bounds(self) -> tuple[Indices, Array, Array, Indices]:
        """Parent and bounds of every interval of the tests, and the first interval of each test."""
        tests, _ = self._tests
        bounds = [bound for _, intervals in tests for bound in intervals]
        low, high = np.array(bounds).T
        lengths = [len(intervals) for _, intervals in tests]
        parents = np.repeat([parent for parent, _ in tests], lengths)
        first = np.cumsum([0, *lengths[:-1]])
        return parents, low, high, first

    def active(self, x: Points) -> Mask:
        """Return which columns are active, one row per point."""
        tests, of = self._tests
        parents, low, high, first = self._bounds
        codes = x[:, parents]
        holds = np.ones((len(x), len(tests) + 1), dtype=bool)
        # A test holds if the code of its parent lies in one of its intervals.
        np.logical_or.reduceat(
            (low <= codes) & (codes < high), first, axis=1, out=holds[:, :-1]
        )
        # A column is active if all its tests hold.
        active = holds[:, of[0]]
        for nth_test in of[1:]:
            active &= holds[:, nth_test]
        return active

    def canonical(self, x: Points) -> Points:
        """Return a new array of the points with a fixed code in their inactive columns."""
        return np.where(self.active(x), x, self.inactive)

    @cached_property
    def inactive(self) -> Points:
        """The code of each column where it is inactive."""
        codes = np.where(self.options > 0, 0, INACTIVE_NUMBER)
        codes = codes.astype(self.dtype)
        for columns, low, _ in self.size_bounds:
            codes[columns.start : columns.start + low] = 1
        return codes

    @cached_property
    def _column_of(self) -> Indices:
        """The column of each parameter."""
        of = np.empty(len(self.flat.initial()), dtype=np.intp)
        for column in range(self.variables):
            parameters = self.flat.parameters(column)
            of[parameters.start : parameters.stop : parameters.step] = column
        return of

    @cached_property
    def _dims(self) -> Array:
        """Number of free parameters of each column."""
        dims = np.where(self.options > 0, self.options - 1.0, 2.0)
        for columns, low, high in self.size_bounds:
            if low == high:
                dims[columns] -= 1.0 / (columns.stop - columns.start)
        return dims

    def _probabilities(self, theta: Array) -> Array:
        """Return the probability of each column to be active."""
        tests, of = self._tests
        holds = np.append(np.zeros(len(tests)), 1.0)
        for parent, (tests_of, test, option) in self._tests_by_parent.items():
            marginal = self.flat.marginal(theta, parent)
            # Sum the probabilities of the options that pass each test.
            if isinstance(marginal, Discrete):
                holds[:-1] += np.bincount(test, marginal.p[option], len(tests))
            else:
                holds[tests_of] = [
                    _probability(marginal, tests[i][1]) for i in tests_of
                ]
        # Parents are drawn independently: P(active) = Π P(test).
        probabilities: Array = holds[of].prod(axis=0)
        return probabilities

    @cached_property
    def _tests_by_parent(self) -> dict[int, tuple[list[int], Indices, Indices]]:
        """For each parent its tests, and the pairs of a test and an option that passes it."""
        tests = self._tests[0]
        options = self.options.tolist()
        parents: dict[int, list[int]] = {}
        for i, (parent, _) in enumerate(tests):
            parents.setdefault(parent, []).append(i)
        pairs = {
            parent: [
                (i, k)
                for i in tests_of
                for k in _options_inside(tests[i][1], options[parent])
            ]
            for parent, tests_of in parents.items()
        }
        return {
            parent: (
                tests_of,
                *np.array(pairs[parent], dtype=np.intp).reshape(-1, 2).T,
            )
            for parent, tests_of in parents.items()
        }

    # The family.

    @cached_property
    def dim(self) -> int:
        """Expected number of free parameters of the active columns under the initial θ, rounded."""
        return max(round(self.active_dim(self.flat.initial())), 1)

    def active_dim(self, theta: Array) -> float:
        return float(self._probabilities(theta) @ self._dims)

    @property
    def variables(self) -> int:
        return self.flat.variables

    @property
    def words(self) -> int:
        return self.flat.words

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.flat.dtype

    @property
    def options(self) -> Indices:
        return self.flat.options

    @property
    def counts(self) -> Indices:
        return self.flat.counts

    @property
    def size_bounds(self) -> tuple[SizeBounds, ...]:
        return self.flat.size_bounds

    @property
    def width(self) -> int:
        return self.flat.width

    def within(self, total: int) -> Self:
        return replace(self, flat=self.flat.within(total))

    def initial(self) -> Array:
        return self.flat.initial()

    def draw(self, theta: Array, u: Words) -> Points:
        return self.canonical(self.flat.draw(theta, u))

    def statistics(self, x: Points) -> NDArray[Any]:
        # Those of an inactive column are the initial parameters: it has no information.
        return np.where(
            self.active(x)[:, self._column_of],
            self.flat.statistics(x),
            self.initial(),
        )

    def indices(self, x: Points) -> Points:
        return np.where(self.active(x), self.flat.indices(x), self.inactive)

    def deviations(self, theta: Array, x: Points) -> Array:
        return np.where(
            self.active(x)[:, self._column_of],
            self.flat.statistics(x) - theta,
            0.0,
        )

    def gradient(self, theta: Array, x: Points, w: Array) -> Array:
        gradient: Array = w @ self.deviations(theta, x)
        return gradient

    def features(self, x: Points) -> Array:
        return np.where(
            self.active(x)[:, self._column_of], self.flat.features(x), 0.0
        )

    def minimizer(self, w: Array) -> Points:
        return self.canonical(self.full_minimizer(w))

    def full_minimizer(self, w: Array) -> Points:
        """Return the points that minimize features(x)·w, inactive columns included.

        An inactive column has the code that would be best if it were active.
        """
        # From the last dependent column up: the weight of a value of a branch is its own plus the
        # least ones of the columns that it makes active. Exact if no column depends directly on
        # several others.
        # Start with the best code of each column by itself.
        x = self.flat.minimizer(w)
        lowest = self._scores(x, w)
        for column, codes in self._from_last:
            totals = []
            # The best value of a branch counts the columns that it makes active.
            for code in codes:
                x[:, column] = code
                score = self._scores(x, w)[:, column]
                children = [
                    c.column
                    for c in self._last_conditions.get(column, ())
                    if inside(code, c.intervals)
                ]
                totals.append(score + lowest[:, children].sum(axis=1))
            # The last option in case of ties
            best = np.argmin(totals[::-1], axis=0)
            x[:, column] = np.asarray(codes[::-1])[best]
            lowest[:, column] = np.min(totals, axis=0)
        return x

    def _scores(self, x: Points, w: Array) -> Array:
        """Return the contribution of each column to features(x)·w if it is active."""
        contributions = self.flat.features(x) * w
        scores = np.zeros(x.shape)
        for parameter, column in enumerate(self._column_of.tolist()):
            scores[:, column] += contributions[:, parameter]
        return scores

    @cached_property
    def _depth(self) -> list[int]:
        """Number of columns that each column depends on."""
        return [len(needs) for needs in self.requirements]

    @cached_property
    def _from_last(self) -> list[tuple[int, tuple[float, ...]]]:
        """The branches, those that depend on others first."""
        return sorted(self.branches, key=lambda branch: -self._depth[branch[0]])

    @cached_property
    def _last_conditions(self) -> dict[int, list[Condition]]:
        """For each parent, the conditions of the columns whose most dependent parent it is."""
        last: dict[int, Condition] = {}
        for condition in self.conditions:
            known = last.get(condition.column)
            if (
                known is None
                or self._depth[known.parent] <= self._depth[condition.parent]
            ):
                last[condition.column] = condition
        by_parent: dict[int, list[Condition]] = {}
        for condition in last.values():
            by_parent.setdefault(condition.parent, []).append(condition)
        return by_parent

    def whiten(self, theta: Array, v: Array) -> Array:
        return self.flat.whiten(theta, v)

    def move(self, theta: Array, step: Array) -> Array:
        return self.flat.move(theta, step)

    def mode(self, theta: Array) -> Points:
        return self.canonical(self.flat.mode(theta)[None])[0]

    def entropy(self, theta: Array) -> float:
        # As if the options of a subset were independent, which is an upper bound.
        entropies = [
            _entropy(self.flat.marginal(theta, column))
            for column in range(self.variables)
        ]
        return float(self._probabilities(theta) @ entropies)

    def marginal(self, theta: Array, i: int) -> Discrete | Normal:
        return self.flat.marginal(theta, i)

    def parameters(self, i: int) -> range:
        return self.flat.parameters(i)

    def select(self, columns: Sequence[int]) -> Family:
        # Conditions between the kept columns remain.
        kept = {column: i for i, column in enumerate(columns)}
        conditions = tuple(
            Condition(
                kept[condition.column],
                kept[condition.parent],
                condition.intervals,
            )
            for condition in self.conditions
            if condition.column in kept and condition.parent in kept
        )
        branches = tuple(
            (kept[column], codes)
            for column, codes in self.branches
            if column in kept
        )
        flat = self.flat.select(columns)
        return Conditional(flat, conditions, branches) if conditions else flat

    def pack(self, x: Points) -> bytes:
        return self.flat.pack(x)

    def unpack(self, data: bytes) -> Points:
        return self.canonical(self.flat.unpack(data))


def inside(code: float, intervals: Intervals) -> bool:
    """Return whether a code lies in one of the intervals."""
    return any(low <= code < high for low, high in intervals)


def _intersection(first: Intervals, second: Intervals) -> Intervals:
    overlaps = sorted(
        (max(a, c), min(b, d)) for a, b in first for c, d in second
    )
    return tuple((low, high) for low, high in overlaps if low < high)


def _options_inside(intervals: Intervals, options: int) -> list[int]:
    """Return the options, out of so many, that lie in one of the intervals."""
    inside_each = (
        range(math.ceil(max(low, 0)), math.ceil(min(high, options)))
        for low, high in intervals
    )
    return sorted(
        {option for inside_one in inside_each for option in inside_one}
    )


def _probability(marginal: Normal, intervals: Intervals) -> float:
    """Return the probability of a code in one of the intervals."""
    cdf = NormalDist(*marginal).cdf
    return sum(cdf(high) - cdf(low) for low, high in intervals)


def _entropy(marginal: Discrete | Normal) -> float:
    if isinstance(marginal, Discrete):
        return float(-(marginal.p @ np.log(marginal.p)))
    return 0.5 * math.log(2.0 * math.pi * math.e * marginal.sigma**2)
