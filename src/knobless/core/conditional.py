"""Conditional variables: columns that are part of a point only for some values of other columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .families import Family
from .types import Array, Points, Words

Intervals = tuple[tuple[float, float], ...]


class Condition(NamedTuple):
    """Values of a column for which another column is active: low <= code of the parent < high for one of the pairs."""

    column: int
    parent: int
    intervals: Intervals


@dataclass(frozen=True)
class Conditional:
    """Family with conditional columns."""

    flat: Family
    conditions: tuple[Condition, ...]
    branches: tuple[tuple[int, tuple[float, ...]], ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.flat, name)

    @cached_property
    def _direct(self) -> list[list[Condition]]:
        direct: list[list[Condition]] = [[] for _ in range(self.flat.variables)]
        for each in self.conditions:
            direct[each.column].append(each)
        return direct

    def active(self, x: Points) -> NDArray[np.bool_]:
        """Return which columns are active."""
        known: dict[int, NDArray[np.bool_]] = {}

        def of(column: int) -> NDArray[np.bool_]:
            if column not in known:
                holds = np.ones(len(x), dtype=bool)
                for _, parent, intervals in self._direct[column]:
                    holds &= of(parent) & (np.searchsorted(np.ravel(intervals), x[:, parent], side="right") % 2 == 1)
                known[column] = holds
            return known[column]

        return np.stack([of(column) for column in range(x.shape[1])], axis=1)

    def canonical(self, x: Points) -> Points:
        """Return points with a fixed code in their inactive columns."""
        return np.where(self.active(x), x, np.where(self.flat.options > 0, 0, 0.5).astype(self.flat.dtype))

    def draw(self, theta: Array, u: Words) -> Points:
        return self.canonical(self.flat.draw(theta, u))

    def sample(self, theta: Array, size: int, rng: Any) -> Points:
        return self.canonical(self.flat.sample(theta, size, rng))

    def mode(self, theta: Array) -> Points:
        return self.canonical(self.flat.mode(theta)[None])[0]

    def unpack(self, data: bytes) -> Points:
        return self.canonical(self.flat.unpack(data))
