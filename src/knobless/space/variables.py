"""Variables of a search space: the translation between codes, as a family draws them, and values.

A code is a number: 0 or 1 for a bit, the index of an option, a latent real for an integer or a float. Every code of the
family has a value, and every value has a code that decodes to it. With `n`, a variable is an array of `n` entries. A
variable with one value is a constant: part of every point, but not of a code. Its value has the code 0 nevertheless.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from decimal import Decimal
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from knobless._checks import integer, positive_int, positive_real, probabilities, real
from knobless.core.gaussian import RESOLUTION, Axis, bounded
from knobless.core.types import Array, Points

from .options import alike, equal, hash_key, repeated_option
from .when import when


class Variable(Protocol):
    """Protocol of variables."""

    @property
    def n(self) -> int | None:
        """Length of the array; None for a scalar."""

    @property
    def count(self) -> float:
        """Number of values of an entry; 1 for a constant, inf for a float without steps."""

    def values(self, codes: Points) -> NDArray[Any]:
        """Return the value of each code, as a new array of the same shape."""

    def code(self, value: Any, name: str) -> float:
        """Return a code that decodes to the value of an entry.

        Parameters
        ----------
        value
            The value.
        name : str
            How error messages refer to it.

        Raises
        ------
        ValueError, TypeError
            If the variable does not have this value.
        """


def brief(self: Any) -> str:
    """Return the repr of a variable, without arguments that have their default value."""
    words = []
    for each in fields(self):
        value = getattr(self, each.name)
        if each.default is MISSING:
            words.append(repr(value))
        elif value != each.default:
            words.append(f"{each.name}={value!r}")
    return f"{type(self).__name__}({', '.join(words)})"


@dataclass(frozen=True, repr=False)
class Binary:
    """Array of bits, an int8 array in a point.

    Parameters
    ----------
    n : int
        Number of bits.
    p : float or sequence of float
        Prior probability of a one, for all bits or for each; strictly between 0 and 1.

    Examples
    --------
    >>> import knobless as kl
    >>> kl.minimize(lambda x: x.sum(), kl.Binary(5), budget=200, rng=0).x
    array([0, 0, 0, 0, 0], dtype=int8)
    """

    n: int
    p: float | Sequence[float] = 0.5

    count = 2
    when = when
    __repr__ = brief

    def __post_init__(self) -> None:
        n = positive_int("Binary: n", self.n)
        p = probabilities("Binary: p", self.p)
        if p.shape not in ((), (n,)):
            raise ValueError(f"Binary: p: expected one probability or {n}, got {self.p!r}")
        if not ((p > 0.0) & (p < 1.0)).all():
            raise ValueError(f"Binary: p: expected probabilities strictly between 0 and 1, got {self.p!r}")
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "p", p.tolist() if p.ndim == 0 else tuple(p.tolist()))

    @property
    def prior(self) -> Array:
        p = np.broadcast_to(np.asarray(self.p, dtype=float), self.n)
        return np.stack([1.0 - p, p], axis=1)

    def values(self, codes: Points) -> NDArray[Any]:
        return codes.astype(np.int8)

    def code(self, value: Any, name: str) -> float:
        if np.ndim(value) or isinstance(value, str) or value not in (0, 1):
            raise ValueError(f"{name}: expected 0 or 1, got {value!r}")
        return float(value)


@dataclass(frozen=True, init=False, eq=False)
class Choice:
    """One of several options.

    Parameters
    ----------
    *options
        Different values of any type. A single one is a constant.
    p : sequence of float, optional
        Prior probability of each option; uniform by default.
    n : int, optional
        Length of an array of choices; a scalar by default.

    Notes
    -----
    A point contains the option itself and not a copy, so the objective must not modify it.

    Examples
    --------
    >>> import knobless as kl
    >>> kl.Choice("relu", "tanh", p=[0.9, 0.1])
    Choice('relu', 'tanh', p=[0.9, 0.1])
    """

    options: tuple[Any, ...]
    p: tuple[float, ...]
    n: int | None

    when = when

    def __init__(self, *options: Any, p: Sequence[float] | None = None, n: int | None = None) -> None:
        k = len(options)
        if not k:
            raise ValueError("Choice: expected at least one option, got none")
        if k == 1 and isinstance(options[0], (list, tuple, set, frozenset, range, np.ndarray)):
            raise ValueError(
                f"Choice: expected options, got a single {type(options[0]).__name__}, {options[0]!r}; "
                "a list of options is written Choice(*options)"
            )
        twice = repeated_option(options)
        if twice is not None:
            raise ValueError(f"Choice: expected options that differ, got {options[twice]!r} twice")
        prior = np.full(k, 1.0 / k) if p is None else probabilities("Choice: p", p)
        if prior.shape != (k,):
            raise ValueError(f"Choice: p: expected {k} probabilities for {k} options, got {p!r}")
        if not (prior > 0.0).all():
            raise ValueError(f"Choice: p: expected a probability above 0 for every option, got {p!r}")
        if not abs(prior.sum() - 1.0) <= 1e-6:
            raise ValueError(
                f"Choice: p: expected probabilities that sum to 1, got {p!r}, which sum to {prior.sum():g}"
            )
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "p", tuple(prior.tolist()))
        object.__setattr__(self, "n", None if n is None else positive_int("Choice: n", n))

    @property
    def count(self) -> float:
        return len(self.options)

    @property
    def prior(self) -> Array:
        return np.tile(self.p, (self.n or 1, 1))

    @cached_property
    def _array(self) -> NDArray[Any]:
        if len({type(option) for option in self.options}) == 1 and isinstance(self.options[0], (bool, int, float, str)):
            return np.array(self.options)
        array = np.empty(len(self.options), dtype=object)
        for i, option in enumerate(self.options):  # one by one, because an option may itself be a sequence
            array[i] = option
        return array

    @cached_property
    def _index(self) -> dict[int | None, list[int]]:
        """Indices of the options by their keys."""
        index: dict[int | None, list[int]] = {}
        for i, option in enumerate(self.options):
            index.setdefault(hash_key(option), []).append(i)
        return index

    def values(self, codes: Points) -> NDArray[Any]:
        return self._array[codes.astype(np.intp)]

    def code(self, value: Any, name: str) -> float:
        for i in self._index.get(hash_key(value), ()):
            if alike(self.options[i], value):
                return float(i)
        for i, option in enumerate(self.options):  # of another type: True is 1 only if there is no option 1
            if equal(option, value):
                return float(i)
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, self.options))}, got {value!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Choice) or len(self.options) != len(other.options):
            return False
        same = all(map(alike, self.options, other.options))
        return same and self.p == other.p and self.n == other.n

    def __hash__(self) -> int:
        return hash((len(self.options), self.p, self.n))

    def __repr__(self) -> str:
        words = [*map(repr, self.options)]
        words += [f"p={list(self.p)}"] if len(set(self.p)) > 1 else []
        words += [f"n={self.n}"] if self.n else []
        return f"Choice({', '.join(words)})"


@dataclass(frozen=True, repr=False)
class Integer:
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

    when = when
    __repr__ = brief

    def __post_init__(self) -> None:
        low, high = integer("Integer: low", self.low), integer("Integer: high", self.high)
        step = positive_int("Integer: step", self.step)
        if low > high:
            raise ValueError(f"Integer: expected low <= high, got low = {low} and high = {high}")
        bound = 10**14 if self.log else 2**50  # larger neighbors are not different floats
        if max(abs(low), abs(high)) > bound:
            raise ValueError(f"Integer: expected bounds of at most {bound:.6g}, got {low} to {high}")
        if step > high - low > 0:
            raise ValueError(f"Integer: step: expected at most high - low = {high - low}, got {step}")
        if self.log and low < 1:
            raise ValueError(f"Integer: low: expected at least 1 in log scale, got {low}")
        if self.log and step != 1:
            raise ValueError(f"Integer: step: expected 1 in log scale, got {step}")
        for name, value in (("low", low), ("high", high), ("step", step)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "n", None if self.n is None else positive_int("Integer: n", self.n))

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
        return Axis(self._latent(self.low), self._latent(self.high), cell, rate=span, count=int(self.count))

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
        where = f"an integer from {self.low} to {self.high}" + (f" in steps of {self.step}" if self.step > 1 else "")
        number = real(name, value)
        index, rest = divmod(number - self.low, self.step)
        if rest or not 0 <= index < self.count:
            raise ValueError(f"{name}: expected {where}, got {value!r}")
        return self._latent(int(number)) if self.log else (index + 0.5) / self.count


@dataclass(frozen=True, repr=False)
class Float:
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

    when = when
    __repr__ = brief

    def __post_init__(self) -> None:
        low, high = real("Float: low", self.low), real("Float: high", self.high)
        if low > high:
            raise ValueError(f"Float: expected low <= high, got low = {low} and high = {high}")
        if not math.isfinite(high - low):
            raise ValueError(f"Float: expected a range that is a finite number, got {low} to {high}")
        if self.log and low <= 0.0:
            raise ValueError(f"Float: low: expected a number above 0 in log scale, got {low}")
        if self.step is not None:
            step = positive_real("Float: step", self.step)
            if self.log:
                raise ValueError(f"Float: step: expected None in log scale, got {step}")
            if step > high - low > 0.0:
                raise ValueError(f"Float: step: expected at most high - low = {high - low}, got {step}")
            if (high - low) / step >= 2**50:
                raise ValueError(f"Float: step: expected fewer than 2**50 steps, got {step}")
            object.__setattr__(self, "step", step)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "n", None if self.n is None else positive_int("Float: n", self.n))

    @property
    def count(self) -> float:
        if self.low == self.high:
            return 1
        if self.step is None:
            return math.inf
        # In decimals: (0.3 − 0.0)/0.1 is 2.9999999999999996 in binary.
        low, high, step = (Decimal(repr(v)) for v in (self.low, self.high, self.step))
        return int((high - low) / step) + 1

    @cached_property
    def _decimals(self) -> int:
        """Decimal places of the values on the grid: −0.3 + 3·0.1 is 0, not 5.6e-17."""
        exponents = [Decimal(repr(v)).as_tuple().exponent for v in (self.low, self.step)]
        return max(-int(e) for e in exponents)

    @property
    def axis(self) -> Axis:
        return Axis() if self.step is None else _grid_axis(int(self.count))

    def values(self, codes: Points) -> NDArray[Any]:
        if self.step is not None:
            value = self.low + self.step * _cells(codes, int(self.count))
            return bounded(value if self._decimals > 15 else np.round(value, self._decimals), self.low, self.high)
        if not self.log:
            return scaled(codes, self.low, self.high)
        z = bounded(codes, 0.0, 1.0)
        low, high = math.log(self.low), math.log(self.high)
        value = bounded(np.exp(low + (high - low) * z), self.low, self.high)
        value = np.where(z == 0.0, self.low, value)  # exact bounds despite rounding
        return np.where(z == 1.0, self.high, value)

    def code(self, value: Any, name: str) -> float:
        number = real(name, value)
        if not self.low <= number <= self.high:
            raise ValueError(f"{name}: expected a number from {self.low} to {self.high}, got {value!r}")
        if self.low == self.high:
            return 0.0
        if self.step is not None:
            index = round((number - self.low) / self.step)
            code = (index + 0.5) / self.count
            near = abs(self.low + self.step * index - number) <= 1e-9 * self.step
            # Far from zero, a value of the grid is rounded by more than that, but is found exactly.
            if index >= self.count or not (near or self.values(np.array([code]))[0] == number):
                raise ValueError(
                    f"{name}: expected a number from {self.low} to {self.high} in steps of {self.step}, got {value!r}"
                )
            return code
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            z = (math.log(number) - low) / (high - low)
        else:
            z = (number - self.low) / (self.high - self.low)
        # Rounding may leave z a few units in the last place from a code that decodes to the very number. Half units,
        # because codes below a power of two are twice as dense as those above it.
        near = z + np.arange(-128, 129) * (0.5 * np.spacing(max(z, 2.0**-60)))
        return float(near[np.abs(self.values(near) - number).argmin()])


def _grid_axis(count: int) -> Axis:
    """Return the axis of `count` equal cells; the mean stays between the centers of the outer ones."""
    return Axis(low=0.5 / count, high=1.0 - 0.5 / count, cell=max(1.0 / count, RESOLUTION), count=count)


def scaled(codes: Points, low: Any, high: Any) -> NDArray[Any]:
    """Return the numbers on a linear scale from low to high that codes from 0 to 1 stand for."""
    z = bounded(codes, 0.0, 1.0)
    value = bounded(low + (high - low) * z, low, high)
    return np.where(z == 1.0, high, value)  # exact despite rounding


def _cells(codes: Points, count: int) -> NDArray[np.int64]:
    return bounded(np.floor(codes * count), 0.0, count - 1.0).astype(np.int64)
