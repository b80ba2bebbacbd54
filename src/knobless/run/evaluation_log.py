"""The evaluations of a run in the order of their candidates, for models and decisions that use all of them."""

from __future__ import annotations

import numpy as np

from knobless.core.families import Family
from knobless.core.types import Array, Points

MOST_EVALUATIONS = 2**17
MOST_BYTES = 2**26  # of points


class EvaluationLog:
    """Points and values in arrays that grow; of a long run the last ones, at least half of what fits."""

    def __init__(self, family: Family) -> None:
        width = max(family.variables * family.dtype.itemsize, 1)
        self._most = max(min(MOST_EVALUATIONS, MOST_BYTES // width), 2)
        self._x = np.empty((0, family.variables), family.dtype)
        self._f = np.empty(0)
        self._length = 0
        self.count = 0  # evaluations so far, those that were dropped included

    @property
    def x(self) -> Points:
        """The points, one row each; must not be modified."""
        return self._x[: self._length]

    @property
    def f(self) -> Array:
        """Their values; must not be modified."""
        return self._f[: self._length]

    def append(self, x: Points, f: Array) -> None:
        """Add evaluations."""
        self.count += len(f)
        while self._length + len(f) > self._most:  # so that what is kept does not depend on how they are grouped
            room, kept = self._most - self._length, self._most // 2
            self._append(x[:room], f[:room])
            self._x[:kept], self._f[:kept] = self._x[-kept:].copy(), self._f[-kept:].copy()
            self._length = kept
            x, f = x[room:], f[room:]
        self._append(x, f)

    def _append(self, x: Points, f: Array) -> None:
        """Add evaluations for which there is room."""
        end = self._length + len(f)
        if end > len(self._f):
            room = min(max(2 * end, 64), self._most)
            longer = np.empty((room, self._x.shape[1]), self._x.dtype), np.empty(room)
            longer[0][: self._length], longer[1][: self._length] = self.x, self.f
            self._x, self._f = longer
        self._x[self._length : end], self._f[self._length : end] = x, f
        self._length = end

    def restore(self, x: Points, f: Array, count: int) -> None:
        """Take over the contents of another log; ValueError if they cannot be those of one."""
        if not len(x) == len(f) <= min(count, self._most):
            raise ValueError("log: expected a value for each point, and at most as many as were evaluated")
        self.append(x, f)
        self.count = count
