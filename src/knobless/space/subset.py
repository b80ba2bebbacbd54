"""Subsets: a variable that chooses a number of options out of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import (
    constructed_as,
    integer,
    positive_int,
    probabilities,
)
from knobless.core.data import from_plain, number_of
from knobless.core.families import Family
from knobless.core.subset import ConditionalBernoulli, number_of_subsets
from knobless.core.types import Points

from .options import named_options, repeated_option, shown_options
from .variable import Variable
from .variables import Choice

# Entries of a table with which subsets are drawn: one per option and number of members
LARGEST_TABLE = 10**7


@constructed_as("kl.Subset(10, 3) or kl.Subset(options, (1, 3))")
@dataclass(frozen=True, init=False, eq=False)
class Subset(Variable):
    """Subset with k members of n options.

    Parameters
    ----------
    of : int or sequence
        Number of options n, or the options themselves, which are different values of any type.
    k : int or pair of int
        Number of members, or its smallest and largest value, both included.
    p : float or sequence of float, optional
        Prior probability of membership, for all options or for each; strictly between 0 and 1. The
        probability of a subset with an admissible number of members is proportional to the product
        of the odds p/(1 − p) of its members. By default options are equally probable, and the mean
        size is the middle of the range of `k`.

    Notes
    -----
    In a point, a subset of n options is a boolean array of n, and a subset of given options is the
    tuple of its members in the order of the options. A vectorized objective gets a boolean array
    with one row per point in both cases. If `k` is 0 or n, the variable is a constant.

    Examples
    --------
    >>> import knobless as kl
    >>> kl.minimize(lambda x: x[:3].sum(), kl.Subset(5, 2), budget=100, rng=0).x.tolist()
    [False, False, False, True, True]

    >>> words = kl.Subset(["a", "bb", "ccc"], (2, 3))
    >>> result = kl.minimize(lambda x: len("".join(x)), words, budget=20, rng=0)
    >>> result.x
    ('a', 'bb')
    """

    n: int
    low: int
    high: int
    options: tuple[Any, ...] | None
    p: float | tuple[float, ...] | None

    is_bits = True
    labels = ("0", "1")
    toml_options = ("k", "p")

    def __init__(
        self,
        of: int | Sequence[Any],
        k: int | tuple[int, int],
        *,
        p: float | Sequence[float] | None = None,
    ) -> None:
        options = None
        if isinstance(of, Iterable) and not isinstance(
            of, (str, bytes, Set, Mapping)
        ):
            options = tuple(
                np.atleast_1d(of).tolist() if isinstance(of, np.ndarray) else of
            )
            if not options:
                raise ValueError(
                    "Subset: options: expected at least one, got none"
                )
            twice = repeated_option(options)
            if twice is not None:
                raise ValueError(
                    f"Subset: options: expected options that differ, got {options[twice]!r} twice"
                )
        elif isinstance(of, bool) or not hasattr(of, "__index__"):
            raise TypeError(
                f"Subset: expected a number of options or a list of options, got {of!r}"
            )
        n = positive_int("Subset: n", of) if options is None else len(options)
        low, high = _sizes(k, n)
        if n * high > LARGEST_TABLE:
            raise ValueError(
                f"Subset: expected at most {LARGEST_TABLE} for n times the largest k, got {n} "
                f"times {high}"
            )
        prior: Any = None
        if p is not None:
            stated = probabilities("Subset: p", p)
            if stated.shape not in ((), (n,)):
                raise ValueError(
                    f"Subset: p: expected one probability or {n}, got {p!r}"
                )
            if not ((stated > 0.0) & (stated < 1.0)).all():
                raise ValueError(
                    f"Subset: p: expected probabilities strictly between 0 and 1, got {p!r}"
                )
            prior = (
                stated.tolist() if stated.ndim == 0 else tuple(stated.tolist())
            )
        for name, value in (
            ("n", n),
            ("low", low),
            ("high", high),
            ("options", options),
            ("p", prior),
        ):
            object.__setattr__(self, name, value)

    @property
    def count(self) -> float:
        return 1 if self.low == self.n or self.high == 0 else 2

    @property
    def cardinality(self) -> float:
        """Number of different subsets; inf for more than 2**1000."""
        return number_of_subsets(self.n, self.low, self.high)

    def block(self, i: int) -> tuple[int, float]:
        return 1, i

    @staticmethod
    def block_family(variables: Sequence[Any]) -> Family:
        (subset,) = variables
        return ConditionalBernoulli(subset.n, subset.low, subset.high, subset.p)

    @property
    def entries(self) -> list[str]:
        """Names of the options, or their indices."""
        if self.options is None:
            return super().entries
        return list(shown_options(self.options))

    @property
    def array_length(self) -> int | None:
        return self.n if self.options is None else None

    def values(self, codes: Points) -> NDArray[Any]:
        # The codes of a constant are zeros, also if it contains all options.
        if self.count == 1:
            return np.full(codes.shape, self.high > 0)
        return codes.astype(bool)

    def points(self, codes: Points) -> list[Any]:
        masks = self.values(codes)
        if self.options is None:
            return [row.copy() for row in masks]
        return [
            tuple(self.options[i] for i in row.nonzero()[0].tolist())
            for row in masks
        ]

    @cached_property
    def _choice(self) -> Choice:
        return Choice(*self.options or ())

    def code(self, value: Any, name: str) -> float:
        if np.ndim(value) or isinstance(value, str) or value not in (0, 1):
            raise ValueError(f"{name}: expected True or False, got {value!r}")
        return float(value)

    def codes(self, value: Any, name: str) -> list[float]:
        if self.options is None:
            if (
                not isinstance(value, Sequence | np.ndarray)
                or isinstance(value, (str, bytes))
                or len(value) != self.n
            ):
                raise ValueError(
                    f"{name}: expected {self.n} values, True or False, got {value!r}"
                )
            codes = [
                self.code(item, f"{name}[{i}]") for i, item in enumerate(value)
            ]
        else:
            if not isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
                raise TypeError(
                    f"{name}: expected a tuple of options, got {value!r}"
                )
            codes = [0.0] * self.n
            for i, member in enumerate(value):
                index = int(self._choice.code(member, f"{name}[{i}]"))
                if codes[index]:
                    raise ValueError(
                        f"{name}: expected each option at most once, got {member!r} twice"
                    )
                codes[index] = 1.0
        size = int(sum(codes))
        if not self.low <= size <= self.high:
            members = "True values" if self.options is None else "options"
            raise ValueError(
                f"{name}: expected {self._shown_sizes} {members}, got {size}"
            )
        return codes

    def data(self) -> dict[str, Any]:
        of = self.n if self.options is None else named_options(self.options)
        return {
            "of": of,
            "k": [self.low, self.high],
            "p": list(self.p) if isinstance(self.p, tuple) else self.p,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self | None:
        match data:
            case {
                "of": int() | list() as of,
                "k": [int() as low, int() as high],
                "p": p,
                **rest,
            } if not rest and type(p) in (float, list, type(None)):
                options = (
                    list(map(from_plain, of)) if isinstance(of, list) else of
                )
                return cls(
                    options,
                    (low, high),
                    p=tuple(map(number_of, p)) if isinstance(p, list) else p,
                )
        return None

    @classmethod
    def from_toml(cls, of: Any, options: Mapping[str, Any]) -> Self:
        if "k" not in options:
            raise ValueError(
                "expected k, the number of members, beside it, got none"
            )
        return cls(of, **options)

    @property
    def _shown_sizes(self) -> str:
        if self.low == self.high:
            return str(self.low)
        return f"{self.low} to {self.high}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Subset) or (self.options is None) != (
            other.options is None
        ):
            return False
        is_equal = self.options is None or self._choice == other._choice
        return is_equal and all(
            getattr(self, name) == getattr(other, name)
            for name in ("n", "low", "high", "p")
        )

    def __hash__(self) -> int:
        return hash((self.n, self.low, self.high, self.p))

    def __repr__(self) -> str:
        words = [
            repr(self.n) if self.options is None else repr(list(self.options))
        ]
        words.append(
            repr(self.low)
            if self.low == self.high
            else repr((self.low, self.high))
        )
        if self.p is not None:
            words.append(
                f"p={list(self.p) if isinstance(self.p, tuple) else self.p}"
            )
        return f"Subset({', '.join(words)})"


def _sizes(k: Any, n: int) -> tuple[int, int]:
    """Return the smallest and the largest size that `k` gives."""
    if isinstance(k, (tuple, list)):
        if len(k) != 2:
            raise ValueError(
                f"Subset: k: expected a number of members or a pair (low, high), got {k!r}"
            )
        low = integer("Subset: k[0]", k[0])
        high = integer("Subset: k[1]", k[1])
    else:
        low = high = integer("Subset: k", k)
    if not 0 <= low <= high <= n:
        expected = (
            f"a number from 0 to {n}"
            if low == high
            else f"0 <= low <= high <= {n}"
        )
        raise ValueError(f"Subset: k: expected {expected}, got {k!r}")
    return low, high
