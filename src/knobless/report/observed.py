"""Evaluated points and their values, column by column, for plots and importance."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from knobless.core.types import Array, Points
from knobless.space.space import Column, Space, shown_name


class ObservedColumn(NamedTuple):
    """One variable, or one entry of an array of variables, in all evaluations.

    Attributes
    ----------
    name : str
        Name of the column.
    values : array
        Its values; indices of `labels` for options; NaN where the variable is inactive.
    labels : tuple of str
        Names of the options; empty for a number.
    low, high : float
        Range of the values.
    log : bool
        Whether the variable has a logarithmic scale.
    """

    name: str
    values: Array
    labels: tuple[str, ...]
    low: float
    high: float
    log: bool

    @property
    def positions(self) -> Array:
        """The values as positions in the range, from 0 to 1."""
        scale = np.log if self.log else np.asarray
        low = scale(self.low)
        high = scale(self.high)
        return np.asarray(
            (scale(self.values) - low) / ((high - low) or 1.0), dtype=float
        )


class Observed(NamedTuple):
    """Evaluations that have a value.

    `values` have the user's sign, and `sign` is −1 if they are maximized.
    """

    space: Space
    sign: float
    codes: Points
    values: Array

    @property
    def n_columns(self) -> int:
        """Number of columns, those of arrays of variables included."""
        return sum(column.variable.n or 1 for column in self.space.columns())

    def column(self, index: int) -> ObservedColumn:
        """Return a column by its index, in the order of declaration."""
        for i, column in enumerate(self.space.columns()):
            n = column.variable.n or 1
            if index < n:
                return self._column(i, column, index)
            index -= n
        raise IndexError("no such column")

    def _column(self, i: int, column: Column, entry: int) -> ObservedColumn:
        variable = column.variable
        name = shown_name(column.name)
        codes = self.codes[:, column.where.start + entry]
        labels = variable.labels
        domain = variable.domain
        if domain is None or labels:
            values = (variable.indices(codes) if labels else codes).astype(
                float
            )
            log = False
            low = 0.0
            high = variable.count - 1.0
            if not labels:  # of a custom family
                low = values.min(initial=0.0)
                high = values.max(initial=0.0)
        else:
            values = variable.values(codes).astype(float)
            log = domain.log
            low = float(domain.low)
            high = float(domain.high)
        if column.conditions:
            values = np.where(
                self.space.active(self.codes)[:, i], values, math.nan
            )
        shown = (
            name if variable.n is None else f"{name}[{variable.entries[entry]}]"
        )
        return ObservedColumn(shown, values, labels, low, high, log)
