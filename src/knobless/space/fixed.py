"""Variables that are fixed to a value for a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from knobless.core.conditional import Conditional
from knobless.core.rng import first_uniforms
from knobless.core.subset import number_of_subsets, resized
from knobless.core.types import Array, Points

from .space import Space, shown_name


@dataclass(frozen=True)
class FixedVariables:
    """Columns of the codes of a space with the codes they are fixed to."""

    space: Space
    columns: NDArray[np.intp]
    codes: Array

    @classmethod
    def of(cls, space: Space, values: Any) -> Self:
        """Return the fixed variables from a dict of values by names.

        A name is that of a variable, or of an entry of an array.
        """
        if isinstance(values, cls):
            return values
        if not isinstance(values, Mapping):
            raise TypeError(
                f"fixed: expected a dict of values by the names of variables, got {values!r:.200}"
            )
        columns = {
            shown_name(column.name): column for column in space.columns()
        }
        codes: dict[int, float] = {}
        for key, value in values.items():
            name = f"fixed[{key!r}]"
            whole, _, entry = str(key).rpartition("[")
            if key in columns:
                column = columns[key]
                first = 0
                # Raises for another value, also of a constant
                entry_codes = column.variable.codes(value, name)
            elif (
                whole in columns
                and entry[:-1].isdecimal()
                and int(entry[:-1]) < (columns[whole].variable.n or 0)
            ):
                column = columns[whole]
                first = int(entry[:-1])
                entry_codes = [column.variable.code(value, name)]
            else:
                known = ", ".join(list(columns)[:8]) + (
                    ", …" if len(columns) > 8 else ""
                )
                raise ValueError(
                    f"fixed: expected names among {known}, got {key!r}"
                )
            if not column.is_constant:
                codes.update(enumerate(entry_codes, column.where.start + first))
        fixed = cls(
            space,
            np.array(list(codes), dtype=np.intp),
            np.array(list(codes.values()), dtype=float),
        )
        fixed._check_sizes()
        return fixed

    def _check_sizes(self) -> None:
        """ValueError if subsets cannot have a size within their bounds."""
        for columns, low, high in self.space.family.size_bounds:
            codes = self.codes[
                (self.columns >= columns.start) & (self.columns < columns.stop)
            ]
            fewest = int(codes.sum())
            largest = columns.stop - columns.start - int((1.0 - codes).sum())
            if fewest > high or largest < low:
                sizes = str(low) if low == high else f"{low} to {high}"
                raise ValueError(
                    f"fixed: expected entries of a subset with {sizes} members, got {fewest} to "
                    f"{largest}"
                )

    @classmethod
    def from_data(cls, space: Space, data: Mapping[str, Any]) -> Self:
        """Return what `data` describes; ValueError if it is not of this space."""
        columns = {name: i for i, name in enumerate(space.names)}
        if not all(
            name in columns and type(code) is float
            for name, code in data.items()
        ):
            raise ValueError("fixed: expected codes by the names of columns")
        fixed = cls(
            space,
            np.array([columns[name] for name in data], dtype=np.intp),
            np.array(list(data.values())),
        )
        options = space.family.options[fixed.columns]
        is_option = (
            (fixed.codes >= 0.0)
            & (fixed.codes < options)
            & (fixed.codes == np.floor(fixed.codes))
        )
        if not np.where(options > 0, is_option, np.isfinite(fixed.codes)).all():
            raise ValueError("fixed: expected codes of the space")
        fixed._check_sizes()
        return fixed

    @property
    def data(self) -> dict[str, float]:
        """The codes by the names of the columns, as plain data."""
        return {
            self.space.names[i]: code
            for i, code in zip(
                self.columns.tolist(), self.codes.tolist(), strict=True
            )
        }

    def __or__(self, other: FixedVariables) -> FixedVariables:
        """Return the columns of both, with the codes of the other one where both have them."""
        codes = dict(
            zip(self.columns.tolist(), self.codes.tolist(), strict=True)
        )
        codes |= dict(
            zip(other.columns.tolist(), other.codes.tolist(), strict=True)
        )
        return FixedVariables(
            self.space,
            np.array(list(codes), dtype=np.intp),
            np.array(list(codes.values()), dtype=float),
        )

    def __len__(self) -> int:
        return len(self.columns)

    @cached_property
    def cardinality(self) -> float:
        """Number of different points with these values.

        With conditional variables a bound, that of the space.
        """
        family = self.space.family
        if not len(self) or isinstance(family, Conditional):
            return self.space.cardinality
        counts = family.counts.astype(float)
        counts[counts == 0.0] = math.inf
        counts[self.columns] = 1.0
        subsets = 1.0
        for columns, low, high in family.size_bounds:
            counts[columns] = 1.0
            codes = self.codes[
                (self.columns >= columns.start) & (self.columns < columns.stop)
            ]
            free = columns.stop - columns.start - len(codes)
            n_ones = int(codes.sum())
            subsets *= number_of_subsets(
                free, max(low - n_ones, 0), min(high - n_ones, free)
            )
        with np.errstate(over="ignore"):
            return float(counts.prod() * subsets)

    def applied(self, codes: Points) -> Points:
        """Return codes with the fixed values."""
        if not len(self):
            return codes
        codes = codes.copy()
        codes[:, self.columns] = self.codes
        family = self.space.family
        if family.size_bounds:
            cost = np.array(
                [
                    first_uniforms(crc32(row.tobytes()), 1, family.variables)[0]
                    for row in codes
                ],
                dtype=float,
            )
            cost[:, self.columns] = 2.0**33  # above all others
            codes = resized(codes, family.size_bounds, cost)
        if isinstance(family, Conditional):
            return family.canonical(codes)
        return codes
