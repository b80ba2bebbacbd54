"""The base class of variables: what a space, a file, a table or a plot needs of one.

A code is a number: 0 or 1 for a bit, the index of an option, a latent real for an integer or a
float. Every code of the family has a value, and every value has a code that decodes to it. With
`n`, a variable is an array of `n` entries. A variable with one value is a constant: part of every
point, but not of a code. Its value has the code 0 nevertheless.

A new kind of variable is a class derived from `Variable`; `kinds.py` lists those that files may
contain.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from knobless.core.families import Family
from knobless.core.subset import LARGEST
from knobless.core.types import Points

from .when import when


class Domain(NamedTuple):
    """The values of an entry of a variable, as other libraries describe them.

    Attributes
    ----------
    kind : str
        "options", "integer" or "float".
    low, high : float
        Bounds of a number.
    step : float or None
        Distance between the values of a number; None for any number within the bounds.
    log : bool
        Whether a number has a logarithmic scale.
    options : tuple
        The options, if these are not numbers.
    p : tuple of float
        Their prior probabilities.
    """

    kind: str
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    log: bool = False
    options: tuple[Any, ...] = ()
    p: tuple[float, ...] = ()


class Variable(ABC):
    """Base class of variables.

    Attributes
    ----------
    n : int or None
        Length of the array; None for a scalar.
    is_bits : bool
        Whether its entries are bits, which need no names of options.
    toml_options : tuple of str
        Keys of a TOML file beside the one of this kind of variable; none if files cannot have it.
    """

    n: int | None
    is_bits: ClassVar[bool] = False
    toml_options: ClassVar[tuple[str, ...]] = ()

    when = when

    # Values and codes.

    @property
    @abstractmethod
    def count(self) -> float:
        """Number of values of an entry; 1 for a constant, inf for a float without steps."""

    @property
    def cardinality(self) -> float:
        """Number of different values; inf for more than 2**1000."""
        n = self.n or 1
        if n * math.log2(self.count) > 1001:
            return math.inf
        number = int(self.count) ** n
        return math.inf if number > LARGEST else number

    @abstractmethod
    def values(self, codes: Points) -> NDArray[Any]:
        """Return the value of each code, as a new array of the same shape."""

    def indices(self, codes: Points) -> NDArray[np.intp]:
        """Return the index of the option of each code among the `labels`."""
        return codes.astype(np.intp)

    def points(self, codes: Points) -> list[Any]:
        """Return the value in a point for each row of codes.

        Arrays share no memory; scalars are built-in types.
        """
        values = self.values(codes)
        return values[:, 0].tolist() if self.n is None else list(values)

    def cells(self, codes: Points) -> NDArray[Any]:
        """Return the value of each code as a table of evaluations shows it."""
        return self.values(codes)

    @abstractmethod
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

    def codes(self, value: Any, name: str) -> list[float]:
        """Return the codes of all entries for a value, as it is part of a point.

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
        if self.n is None:
            return [self.code(value, name)]
        several = (
            isinstance(value, Sequence | np.ndarray)
            and not isinstance(value, (str, bytes))
            and np.ndim(value)
        )
        if not several or len(value) != self.n:
            raise ValueError(
                f"{name}: expected {self.n} value{'s' if self.n > 1 else ''}, got {value!r}"
            )
        return [self.code(item, f"{name}[{i}]") for i, item in enumerate(value)]

    @property
    def linear_range(self) -> tuple[float, float] | None:
        """Bounds of a single number that is linear in its code, so that many are decoded at once.

        Else None.
        """
        return None

    @property
    def is_latent(self) -> bool:
        """Whether different codes have the same value."""
        return False

    # The distribution of codes.

    @property
    def entry_parameters(self) -> int:
        """Number of parameters of the distribution of an entry."""
        return 1

    @abstractmethod
    def block(self, i: int) -> tuple[int, float]:
        """Return the sort key of the columns of the i-th variable.

        Variables with the same key share a family.
        """

    @staticmethod
    @abstractmethod
    def block_family(variables: Sequence[Any]) -> Family:
        """Return the family of variables with the same key."""

    # What others show of it.

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the options; none for a number."""
        return ()

    @property
    def entries(self) -> list[str]:
        """Names of the entries of an array."""
        return [str(i) for i in range(self.n or 0)]

    @property
    def array_length(self) -> int | None:
        """Length of its value in a point; None for a scalar, and if it varies."""
        return self.n

    @property
    def domain(self) -> Domain | None:
        """The values of an entry, as other libraries describe them.

        None if they do not have such a variable.
        """
        return None

    # Values that conditions of other variables name.

    @property
    def can_have_dependents(self) -> bool:
        """Whether other variables may be conditional on this one.

        It must have one entry, and values that can be listed.
        """
        return False

    def index(self, value: Any, name: str) -> int:
        """Return the index of a value of an entry among all of them; raise as `code` does."""
        return int(self.code(value, name))

    def value_at(self, index: int) -> Any:
        """Return the value of an entry with this index."""
        return self.values(np.array([float(index)])).tolist()[0]

    def lowest_codes(self, indices: NDArray[np.intp]) -> list[float]:
        """Return the smallest code of the value with each index.

        Inf for the index after the last one.
        """
        codes: list[float] = (indices - 0.5).tolist()
        return codes

    # Files.

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """Return the variable as plain data, for `from_data`."""

    def value_data(self, indices: Sequence[int]) -> list[Any]:
        """Return the values of an entry with these indices as plain data."""
        return [self.value_at(index) for index in indices]

    @classmethod
    @abstractmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self | None:
        """Return the variable that data from an untrusted file describe; None for other types.

        Parameters
        ----------
        data : mapping
            Data from `data`, without the name of the class.

        Raises
        ------
        ValueError
            If there is no such variable.
        """

    @classmethod
    def from_toml(cls, of: Any, options: Mapping[str, Any]) -> Self:
        """Return the variable that a TOML file describes by the value of its key and options."""
        raise ValueError("expected a kind of variable that files may have")


def brief(self: Any) -> str:
    """Return the repr of a variable, without arguments that have their default value."""
    words = []
    for field in fields(self):
        value = getattr(self, field.name)
        if field.default is MISSING:
            words.append(repr(value))
        elif value != field.default:
            words.append(f"{field.name}={value!r}")
    return f"{type(self).__name__}({', '.join(words)})"
