"""Bits and choices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import (
    boolean,
    constructed_as,
    positive_int,
    probabilities,
)
from knobless.core.data import from_plain, number_of
from knobless.core.families import Bernoulli, Categorical, Family
from knobless.core.types import Array, Points

from .options import (
    alike,
    equal,
    hash_key,
    named_options,
    object_array,
    repeated_option,
    shown_options,
)
from .variable import Domain, Variable, brief


class Indexed(Variable):
    """Base class of variables whose codes are indices of options: bits are choices of two."""

    @property
    @abstractmethod
    def prior(self) -> Array:
        """Prior probability of each option, one row per entry."""

    def block(self, i: int) -> tuple[int, float]:
        return 0, self.count

    @staticmethod
    def block_family(variables: Sequence[Any]) -> Family:
        prior = np.concatenate([variable.prior for variable in variables])
        flat = (prior == prior[0, 0]).all()
        count = int(variables[0].count)
        if count == 2:
            return Bernoulli(
                len(prior), p=0.5 if flat else tuple(prior[:, 1].tolist())
            )
        return Categorical(
            len(prior),
            count,
            p=None if flat else tuple(map(tuple, prior.tolist())),
        )


@constructed_as("kl.Binary(100)")
@dataclass(frozen=True, repr=False)
class Binary(Indexed):
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
    is_bits = True
    labels = ("0", "1")
    toml_options = ("p",)
    __repr__ = brief

    def __post_init__(self) -> None:
        n = positive_int("Binary: n", self.n)
        p = probabilities("Binary: p", self.p)
        if p.shape not in ((), (n,)):
            raise ValueError(
                f"Binary: p: expected one probability or {n}, got {self.p!r}"
            )
        if not ((p > 0.0) & (p < 1.0)).all():
            raise ValueError(
                f"Binary: p: expected probabilities strictly between 0 and 1, got {self.p!r}"
            )
        object.__setattr__(self, "n", n)
        object.__setattr__(
            self, "p", p.tolist() if p.ndim == 0 else tuple(p.tolist())
        )

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

    @property
    def can_have_dependents(self) -> bool:
        return self.n == 1

    def data(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "p": list(self.p) if isinstance(self.p, tuple) else self.p,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self | None:
        match data:
            case {"n": int() as n, "p": float() | list() as p, **rest} if (
                not rest
            ):
                return cls(
                    n, p if isinstance(p, float) else tuple(map(number_of, p))
                )
        return None

    @classmethod
    def from_toml(cls, of: Any, options: Mapping[str, Any]) -> Self:
        return cls(of, **options)


@dataclass(frozen=True, init=False, eq=False)
class Choice(Indexed):
    """One of several options.

    Parameters
    ----------
    *options
        Different values of any type. A single one is a constant.
    p : sequence of float, optional
        Prior probability of each option; uniform by default.
    n : int, optional
        Length of an array of choices; a scalar by default.
    ordered : bool
        Whether the options are given in an order in which neighbors are similar, such as sizes. The
        variable is then searched as an `Integer` is, and takes no `p`.

    Notes
    -----
    A point contains the option itself and not a copy, so the objective must not modify it.

    Examples
    --------
    >>> import knobless as kl
    >>> kl.Choice("relu", "tanh", p=[0.9, 0.1])
    Choice('relu', 'tanh', p=[0.9, 0.1])
    >>> kl.Choice("small", "medium", "large", ordered=True)
    Choice('small', 'medium', 'large', ordered=True)
    """

    options: tuple[Any, ...]
    p: tuple[float, ...]
    n: int | None

    toml_options = ("p", "n", "ordered")

    def __new__(
        cls,
        *options: Any,
        p: Sequence[float] | None = None,
        n: int | None = None,
        ordered: bool = False,
    ) -> Any:
        if not boolean("Choice: ordered", ordered):
            return super().__new__(cls)
        if p is not None:
            raise ValueError(
                f"Choice: p: expected none with ordered=True, got {p!r}"
            )
        # Here because it is made of a choice and an integer
        from .ordered import OrderedChoice

        return OrderedChoice(cls(*options, n=n))

    def __init__(
        self,
        *options: Any,
        p: Sequence[float] | None = None,
        n: int | None = None,
        ordered: bool = False,
    ) -> None:
        k = len(options)
        if not k:
            raise ValueError("Choice: expected at least one option, got none")
        if k == 1 and isinstance(
            options[0], (list, tuple, set, frozenset, range, np.ndarray)
        ):
            raise ValueError(
                f"Choice: expected options, got a single {type(options[0]).__name__}, "
                f"{options[0]!r}; "
                "a list of options is written Choice(*options)"
            )
        twice = repeated_option(options)
        if twice is not None:
            raise ValueError(
                f"Choice: expected options that differ, got {options[twice]!r} twice"
            )
        prior = (
            np.full(k, 1.0 / k) if p is None else probabilities("Choice: p", p)
        )
        if prior.shape != (k,):
            raise ValueError(
                f"Choice: p: expected {k} probabilities for {k} options, got {p!r}"
            )
        if not (prior > 0.0).all():
            raise ValueError(
                f"Choice: p: expected a probability above 0 for every option, got {p!r}"
            )
        if not abs(prior.sum() - 1.0) <= 1e-6:
            raise ValueError(
                f"Choice: p: expected probabilities that sum to 1, got {p!r}, which sum to "
                f"{prior.sum():g}"
            )
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "p", tuple(prior.tolist()))
        object.__setattr__(
            self, "n", None if n is None else positive_int("Choice: n", n)
        )

    @property
    def count(self) -> float:
        return len(self.options)

    @property
    def prior(self) -> Array:
        return np.tile(self.p, (self.n or 1, 1))

    @property
    def entry_parameters(self) -> int:
        return len(self.options)

    @cached_property
    def _array(self) -> NDArray[Any]:
        if len({type(option) for option in self.options}) == 1 and isinstance(
            self.options[0], (bool, int, float, str)
        ):
            return np.array(self.options)
        return object_array(self.options)

    @cached_property
    def _index(self) -> dict[int | None, list[int]]:
        """Indices of the options by their keys."""
        index: dict[int | None, list[int]] = {}
        for i, option in enumerate(self.options):
            index.setdefault(hash_key(option), []).append(i)
        return index

    def values(self, codes: Points) -> NDArray[Any]:
        return self._array[codes.astype(np.intp)]

    def points(self, codes: Points) -> list[Any]:
        if self.n is not None:
            return super().points(codes)
        # The option itself, of any type
        return [self.options[i] for i in codes[:, 0].astype(np.intp).tolist()]

    def cells(self, codes: Points) -> NDArray[Any]:
        return object_array(self.options)[codes.astype(np.intp)]

    def code(self, value: Any, name: str) -> float:
        for i in self._index.get(hash_key(value), ()):
            if alike(self.options[i], value):
                return float(i)
        # Of another type: True is 1 only if there is no option 1
        for i, option in enumerate(self.options):
            if equal(option, value):
                return float(i)
        options = [repr(option) for option in self.options]
        shown = repr(value)
        hint = (
            "; options are compared by equality: "
            "use the same object, or options that are strings"
        )
        raise ValueError(
            f"{name}: expected one of {', '.join(options)}, got "
            f"{shown}{hint if shown in options else ''}"
        )

    @property
    def labels(self) -> tuple[str, ...]:
        return shown_options(self.options)

    @property
    def domain(self) -> Domain:
        return Domain("options", options=self.options, p=self.p)

    @property
    def can_have_dependents(self) -> bool:
        return self.n is None

    def value_at(self, index: int) -> Any:
        return self.options[index]

    def data(self) -> dict[str, Any]:
        return {
            "options": named_options(self.options),
            "p": list(self.p),
            "n": self.n,
        }

    def value_data(self, indices: Sequence[int]) -> list[Any]:
        options = named_options(self.options)
        return [options[index] for index in indices]

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self | None:
        match data:
            case {
                "options": list() as options,
                "p": list() as p,
                "n": int() | None as n,
                **rest,
            } if not rest:
                return cls(
                    *map(from_plain, options),
                    p=[number_of(probability) for probability in p],
                    n=n,
                )
        return None

    @classmethod
    def from_toml(cls, of: Any, options: Mapping[str, Any]) -> Self:
        if not isinstance(of, list):
            raise ValueError(f"expected an array of options, got {of!r}")
        return cls(*of, **options)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Choice) or len(self.options) != len(
            other.options
        ):
            return False
        is_equal = all(map(alike, self.options, other.options))
        return is_equal and self.p == other.p and self.n == other.n

    def __hash__(self) -> int:
        return hash((len(self.options), self.p, self.n))

    def __repr__(self) -> str:
        words = [*map(repr, self.options)]
        words += [f"p={list(self.p)}"] if len(set(self.p)) > 1 else []
        words += [f"n={self.n}"] if self.n else []
        return f"Choice({', '.join(words)})"
