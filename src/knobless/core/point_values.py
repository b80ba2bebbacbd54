"""The values of several objectives by points: every evaluation of each, and their means.

A row of the archive has one number. What belongs to a point with several objectives is here: where
equal points have equal values the first evaluation, under noise the mean of all. A point that was
infeasible once is infeasible.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from .data import floats, listed, octets, text, whole
from .families import Family
from .types import Array, Indices, Mask, Points

# Of the largest absolute value: differences by which sums of floating-point numbers vary
JITTER = 1e-6

Values = tuple[float, ...]


class PointValues:
    """Evaluations of points with several objectives, all of which are minimized.

    Failed evaluations are left out.

    Parameters
    ----------
    family : Family
        Family of the points.
    objectives : int
        Number of objectives.

    Attributes
    ----------
    codes : list of bytes
        The packed points, in the order of their first evaluations.
    evaluations : list of list
        The evaluations of each that were feasible.
    """

    def __init__(self, family: Family, objectives: int) -> None:
        self.family = family
        self.objectives = objectives
        self.codes: list[bytes] = []
        self.evaluations: list[list[Values]] = []
        self._index: dict[bytes, int] = {}
        self._first, self._means, self._squares = np.zeros((3, 64, objectives))
        self._counts = np.zeros(64, dtype=np.intp)
        self._violations = np.zeros(64)

    def __len__(self) -> int:
        return len(self.codes)

    def index(self, key: bytes) -> int | None:
        """Return the index of the point with this key; None if it has no values."""
        return self._index.get(key)

    def add(self, key: bytes, code: bytes, values: Sequence[float]) -> None:
        """Add a feasible evaluation of a point, given by its key and as it is packed."""
        i = self._place(key, code)
        if not self.evaluations[i] and not self._violations[i]:
            self._first[i] = values
        self.evaluations[i].append(tuple(values))
        # Mean and squared deviations of each objective.
        self._counts[i] = n = len(self.evaluations[i])
        for j, column in enumerate(zip(*self.evaluations[i], strict=True)):
            # So that the sums do not depend on the order of the evaluations
            ordered = sorted(column)
            are_equal = ordered[0] == ordered[-1]  # the sum is rounded
            mean = (
                ordered[0]
                if are_equal
                else sum([value / n for value in ordered])
            )
            squares = sum(
                [(value - mean) * (value - mean) for value in ordered]
            )
            self._means[i, j], self._squares[i, j] = (
                mean,
                squares if math.isfinite(squares) else 0.0,
            )

    def add_infeasible(self, key: bytes, code: bytes, rank: float) -> None:
        """Add an infeasible evaluation of a point, by the rank of its violation.

        The largest one counts.
        """
        i = self._place(key, code)
        if not self.evaluations[i]:
            self._first[i] = rank
        self._violations[i] = max(self._violations[i], rank)

    def _place(self, key: bytes, code: bytes) -> int:
        """Return the index of a point, which is added if it is new."""
        i = self._index.setdefault(key, len(self.codes))
        if i == len(self.codes):
            self.codes.append(code)
            self.evaluations.append([])
            if i == len(self._counts):
                # Grow by doubling.
                for name in (
                    "_first",
                    "_means",
                    "_squares",
                    "_counts",
                    "_violations",
                ):
                    before = getattr(self, name)
                    setattr(
                        self,
                        name,
                        np.concatenate([before, np.zeros_like(before)]),
                    )
        return i

    def last(self, key: bytes) -> Values:
        """Return the last feasible evaluation of a point."""
        return self.evaluations[self._index[key]][-1]

    def at(self, indices: Sequence[int]) -> Points:
        """Return some points, given by their indices."""
        return self.family.unpack(b"".join([self.codes[i] for i in indices]))

    @property
    def counts(self) -> Indices:
        """Numbers of feasible evaluations of the points. Must not be modified."""
        return self._counts[: len(self)]

    @property
    def feasible(self) -> Mask:
        """Which points have been feasible in every evaluation."""
        return self._violations[: len(self)] == 0.0

    @property
    def first(self) -> Array:
        """The first evaluation of each point; of an infeasible one the rank.

        Must not be modified.
        """
        return self._first[: len(self)]

    @property
    def means(self) -> Array:
        """The mean of the evaluations of each point; of an infeasible one the rank."""
        violations = self._violations[: len(self), None]
        return np.where(violations > 0.0, violations, self._means[: len(self)])

    @property
    def deviation(self) -> Array:
        """Standard deviation of an evaluation from the mean of its point, by objectives.

        It is NaN if each point has one evaluation.

        It is that of all points together: a point has few evaluations.
        """
        # Pooled variance: Σ (f − mean)² over Σ (count − 1)
        freedom = float(np.maximum(self.counts - 1, 0).sum())
        squares: Array = self._squares[: len(self)].sum(axis=0)
        if freedom:
            return np.sqrt(squares / freedom)
        return np.full(self.objectives, math.nan)

    @property
    def noisy(self) -> bool:
        """Whether evaluations of a point differ by more than rounding."""
        means = self._means[: len(self)]
        finite = np.where(np.isfinite(means), np.abs(means), 0.0)
        scale: Array = finite.max(axis=0, initial=0.0)
        return bool(
            (
                np.sqrt(self._squares[: len(self)].max(axis=0, initial=0.0))
                > JITTER * scale
            ).any()
        )

    def data(self) -> dict[str, Any]:
        """Return the evaluations as plain data, for `restore`."""
        return {
            "x": b64encode(b"".join(self.codes)).decode(),
            "f": text(
                np.array(
                    [
                        values
                        for evaluations in self.evaluations
                        for values in evaluations
                    ]
                ).ravel()
            ),
            "counts": self.counts.tolist(),
            "first": text(self.first.ravel()),
            "violations": text(self._violations[: len(self)]),
        }

    def restore(self, data: Any, keys: Callable[[Points], list[bytes]]) -> None:
        """Add the evaluations that `data` described; ValueError if it describes none."""
        points = self.family.unpack(octets(data, "x"))
        values = floats(data, "f").reshape(-1, self.objectives).tolist()
        counts = [whole(count) for count in listed(data, "counts")]
        violations = floats(data, "violations")
        first = floats(data, "first").reshape(-1, self.objectives)
        if not len(points) == len(counts) == len(violations) == len(
            first
        ) or sum(counts) != len(values):
            raise ValueError(
                f"counts: expected the number of evaluations of each of {len(points)} points"
            )
        # The evaluations of all points are one list.
        start = 0
        for x, count, violation in zip(
            points, counts, violations.tolist(), strict=True
        ):
            (key,) = keys(x[None])
            code = self.family.pack(x[None])
            for row in values[start : start + count]:
                self.add(key, code, row)
            if violation > 0.0:
                self.add_infeasible(key, code, violation)
            start += count
        if len(self) != len(points):
            raise ValueError("x: expected each point once, with an evaluation")
        self._first[: len(self)] = first

    def copy(self) -> Self:
        """Return a copy that does not change with this one."""
        copy = type(self)(self.family, self.objectives)
        copy.codes, copy._index = self.codes.copy(), self._index.copy()
        copy.evaluations = [
            evaluations.copy() for evaluations in self.evaluations
        ]
        for name in ("_first", "_means", "_squares", "_counts", "_violations"):
            setattr(copy, name, getattr(self, name).copy())
        return copy
