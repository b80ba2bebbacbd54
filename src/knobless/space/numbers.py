"""Integers and floats."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import (
    constructed_as,
    integer,
    positive_int,
    positive_real,
    real,
)
from knobless.core.families import Family
from knobless.core.gaussian import RESOLUTION, Axis, Gaussian, bounded
from knobless.core.types import Points

from .variable import Domain, Variable, brief


class Number(Variable):
    """Base class of variables that are numbers, whose codes are latent reals."""

    low: float
    high: float
    step: float | None
    log: bool
    toml_options = ("step", "log", "n")
    data_types: ClassVar[Mapping[str, Any]]

    @property
    @abstractmethod
    def axis(self) -> Axis:
        """Range of the latent reals and width of the cells that have the same value."""

    @property
    def is_latent(self) -> bool:
        return True

    @property
    def entry_parameters(self) -> int:
        return 2

    def block(self, i: int) -> tuple[int, float]:
        return 2, 0.0

    @staticmethod
    def block_family(variables: Sequence[Any]) -> Family:
        return Gaussian(
            tuple(
                variable.axis
                for variable in variables
                for _ in range(variable.n or 1)
            )
        )

    @property
    def domain(self) -> Domain:
        return Domain(
            type(self).__name__.lower(),
            self.low,
            self.high,
            self.step,
            self.log,
        )

    def data(self) -> dict[str, Any]:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        data = {name: getattr(self, name) for name in names}
        return data | {"log": bool(self.log)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self | None:
        types = cls.data_types
        are_typed = data.keys() == types.keys() and all(
            isinstance(data[name], kind) for name, kind in types.items()
        )
        return cls(**data) if are_typed else None

    @classmethod
    def from_toml(cls, of: Any, options: Mapping[str, Any]) -> Self:
        if not isinstance(of, list) or len(of) != 2:
            raise ValueError(f"expected [low, high], got {of!r}")
        return cls(*of, **options)


@constructed_as("kl.Integer(1, 10) or kl.Integer(1, 1000, log=True)")
@dataclass(frozen=True, repr=False)
class Integer(Number):
    """Integer from `low` to `high`, both included.

    Parameters
    ----------
    low, high : int
        Bounds. If they are equal, the variable is a constant.
    step : int
        Distance between values, starting at `low`.
    log : bool
        Whether to search on a log scale; needs a positive `low` and a step of 1.
    n : int, optional
        Length of an array of integers; a scalar by default.

    Examples
    --------
    >>> import knobless as kl
    >>> kl.Integer(8, 256, log=True)
    Integer(8, 256, log=True)
    """

    low: int
    high: int
    step: int = 1
    log: bool = False
    n: int | None = None

    __repr__ = brief
    data_types: ClassVar[Mapping[str, Any]] = {
        "low": int,
        "high": int,
        "step": int,
        "log": bool,
        "n": int | None,
    }

    def __post_init__(self) -> None:
        low = integer("Integer: low", self.low)
        high = integer("Integer: high", self.high)
        step = positive_int("Integer: step", self.step)
        if low > high:
            raise ValueError(
                f"Integer: expected low <= high, got low = {low} and high = {high}"
            )
        # Larger neighbors are not different floats
        bound = 10**14 if self.log else 2**50
        if max(abs(low), abs(high)) > bound:
            raise ValueError(
                f"Integer: expected bounds of at most {bound:.6g}, got {low} to {high}"
            )
        if step > high - low > 0:
            raise ValueError(
                f"Integer: step: expected at most high - low = {high - low}, got {step}"
            )
        if self.log and low < 1:
            raise ValueError(
                f"Integer: low: expected at least 1 in log scale, got {low}"
            )
        if self.log and step != 1:
            raise ValueError(
                f"Integer: step: expected 1 in log scale, got {step}"
            )
        for name, value in (("low", low), ("high", high), ("step", step)):
            object.__setattr__(self, name, value)
        object.__setattr__(
            self,
            "n",
            None if self.n is None else positive_int("Integer: n", self.n),
        )

    @property
    def count(self) -> float:
        return (self.high - self.low) // self.step + 1

    @property
    def axis(self) -> Axis:
        if not self.log:
            return _grid_axis(int(self.count))
        # Values lie at ln v between ln(low − ½) and ln(high + ½); one unit at v is 1/v of that.
        bottom, span = self._scale
        cell = 1.0 / (math.exp(bottom) * span)
        return Axis(
            self._latent(self.low),
            self._latent(self.high),
            cell,
            rate=span,
            count=int(self.count),
        )

    @property
    def _scale(self) -> tuple[float, float]:
        bottom = math.log(self.low - 0.5)
        return bottom, math.log(self.high + 0.5) - bottom

    def _latent(self, value: int) -> float:
        bottom, span = self._scale
        return (math.log(value) - bottom) / span

    def values(self, codes: Points) -> NDArray[Any]:
        if not self.log:
            return self.low + self.step * _cells(codes, int(self.count))
        bottom, span = self._scale
        value = np.rint(np.exp(bottom + span * bounded(codes, 0.0, 1.0)))
        return bounded(value, self.low, self.high).astype(np.int64)

    def code(self, value: Any, name: str) -> float:
        where = f"an integer from {self.low} to {self.high}" + (
            f" in steps of {self.step}" if self.step > 1 else ""
        )
        number = real(name, value)
        index, remainder = divmod(number - self.low, self.step)
        if remainder or not 0 <= index < self.count:
            raise ValueError(f"{name}: expected {where}, got {value!r}")
        if self.log:
            return self._latent(int(number))
        return (index + 0.5) / self.count

    @property
    def can_have_dependents(self) -> bool:
        return self.n is None

    def index(self, value: Any, name: str) -> int:
        self.code(value, name)  # raises for another value
        return (int(value) - self.low) // self.step

    def value_at(self, index: int) -> int:
        return self.low + index * self.step

    def lowest_codes(self, indices: NDArray[np.intp]) -> list[float]:
        inner = (indices > 0) & (indices < self.count)
        codes = np.where(indices > 0, np.inf, -np.inf)
        values = self.low + self.step * indices[inner]
        # Bisection between the codes of two neighbors, down to adjacent floats.
        low, high = (
            np.array([self.code(int(value), "value") for value in bound])
            for bound in (values - self.step, values)
        )
        while True:
            middle = low + 0.5 * (high - low)
            between = (low < middle) & (middle < high)
            if not between.any():
                break
            above = self.values(middle) >= values
            high = np.where(between & above, middle, high)
            low = np.where(between & ~above, middle, low)
        codes[inner] = high
        decoded: list[float] = codes.tolist()
        return decoded


@constructed_as("kl.Float(0.0, 1.0) or kl.Float(1e-4, 1.0, log=True)")
@dataclass(frozen=True, repr=False)
class Float(Number):
    """Real number from `low` to `high`.

    Parameters
    ----------
    low, high : float
        Bounds. If they are equal, the variable is a constant.
    step : float, optional
        Distance between values, starting at `low`; any number within the bounds by default.
    log : bool
        Whether to search on a log scale; needs a positive `low` and no `step`.
    n : int, optional
        Length of an array of numbers; a scalar by default.

    Examples
    --------
    >>> import knobless as kl
    >>> kl.Float(1e-4, 1e-1, log=True)
    Float(0.0001, 0.1, log=True)
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False
    n: int | None = None

    __repr__ = brief
    data_types: ClassVar[Mapping[str, Any]] = {
        "low": float,
        "high": float,
        "step": float | None,
        "log": bool,
        "n": int | None,
    }

    def __post_init__(self) -> None:
        low = real("Float: low", self.low)
        high = real("Float: high", self.high)
        if low > high:
            raise ValueError(
                f"Float: expected low <= high, got low = {low} and high = {high}"
            )
        if not math.isfinite(high - low):
            raise ValueError(
                f"Float: expected a range that is a finite number, got {low} to {high}"
            )
        if self.log and low <= 0.0:
            raise ValueError(
                f"Float: low: expected a number above 0 in log scale, got {low}"
            )
        if self.step is not None:
            step = positive_real("Float: step", self.step)
            if self.log:
                raise ValueError(
                    f"Float: step: expected None in log scale, got {step}"
                )
            if step > high - low > 0.0:
                raise ValueError(
                    f"Float: step: expected at most high - low = {high - low}, got {step}"
                )
            if (high - low) / step >= 2**50:
                raise ValueError(
                    f"Float: step: expected fewer than 2**50 steps, got {step}"
                )
            object.__setattr__(self, "step", step)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        object.__setattr__(
            self,
            "n",
            None if self.n is None else positive_int("Float: n", self.n),
        )

    @property
    def count(self) -> float:
        if self.low == self.high:
            return 1
        if self.step is None:
            return math.inf
        # In decimals: (0.3 − 0.0)/0.1 is 2.9999999999999996 in binary.
        low, high, step = (
            Decimal(repr(v)) for v in (self.low, self.high, self.step)
        )
        return int((high - low) / step) + 1

    @cached_property
    def _decimals(self) -> int:
        """Decimal places of the values on the grid: −0.3 + 3·0.1 is 0, not 5.6e-17."""
        exponents = [
            Decimal(repr(v)).as_tuple().exponent for v in (self.low, self.step)
        ]
        return max(-int(e) for e in exponents)

    @property
    def axis(self) -> Axis:
        return Axis() if self.step is None else _grid_axis(int(self.count))

    def values(self, codes: Points) -> NDArray[Any]:
        if self.step is not None:
            value = self.low + self.step * _cells(codes, int(self.count))
            return bounded(
                value
                if self._decimals > 15
                else np.round(value, self._decimals),
                self.low,
                self.high,
            )
        if not self.log:
            return scaled(codes, self.low, self.high)
        z = bounded(codes, 0.0, 1.0)
        low = math.log(self.low)
        high = math.log(self.high)
        value = bounded(np.exp(low + (high - low) * z), self.low, self.high)
        # Exact bounds despite rounding
        value = np.where(z == 0.0, self.low, value)
        return np.where(z == 1.0, self.high, value)

    def code(self, value: Any, name: str) -> float:
        number = real(name, value)
        if not self.low <= number <= self.high:
            raise ValueError(
                f"{name}: expected a number from {self.low} to {self.high}, got {value!r}"
            )
        if self.low == self.high:
            return 0.0
        if self.step is not None:
            index = round((number - self.low) / self.step)
            code = (index + 0.5) / self.count
            near = (
                abs(self.low + self.step * index - number) <= 1e-9 * self.step
            )
            # Far from zero, a value of the grid is rounded by more than that, but is found exactly.
            if index >= self.count or not (
                near or self.values(np.array([code]))[0] == number
            ):
                raise ValueError(
                    f"{name}: expected a number from {self.low} to {self.high} in steps of "
                    f"{self.step}, got {value!r}"
                )
            return code
        if self.log:
            low = math.log(self.low)
            high = math.log(self.high)
            z = (math.log(number) - low) / (high - low)
        else:
            z = (number - self.low) / (self.high - self.low)
        # Rounding may leave z a few units in the last place from a code that decodes to the very
        # number. Half units, because codes below a power of two are twice as dense as those above
        # it.
        near = z + np.arange(-128, 129) * (0.5 * np.spacing(max(z, 2.0**-60)))
        return float(near[np.abs(self.values(near) - number).argmin()])

    def value_at(self, index: int) -> float:
        return float(self.values(np.array([(index + 0.5) / self.count]))[0])

    @property
    def linear_range(self) -> tuple[float, float] | None:
        is_linear = (
            self.step is None
            and not self.log
            and self.n is None
            and self.count > 1
        )
        return (self.low, self.high) if is_linear else None


def _grid_axis(count: int) -> Axis:
    """Return the axis of `count` equal cells.

    The mean stays between the centers of the outer ones.
    """
    return Axis(
        low=0.5 / count,
        high=1.0 - 0.5 / count,
        cell=max(1.0 / count, RESOLUTION),
        count=count,
    )


def scaled(codes: Points, low: Any, high: Any) -> NDArray[Any]:
    """Return the numbers on a linear scale from low to high that codes from 0 to 1 stand for."""
    z = bounded(codes, 0.0, 1.0)
    value = bounded(low + (high - low) * z, low, high)
    return np.where(z == 1.0, high, value)  # exact despite rounding


def _cells(codes: Points, count: int) -> NDArray[np.int64]:
    return bounded(np.floor(codes * count), 0.0, count - 1.0).astype(np.int64)
