"""Choices whose options have an order: an integer, the position of the option, with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knobless.core.families import Family
from knobless.core.gaussian import Axis
from knobless.core.types import Points

from .numbers import Integer, Number
from .variable import Domain, Variable
from .variables import Choice


@dataclass(frozen=True, repr=False)
class OrderedChoice(Variable):
    """One of several options that have an order, as ``Choice(..., ordered=True)`` returns it.

    It is searched as an integer is, so neighboring options are taken to have similar values.

    Parameters
    ----------
    choice : Choice
        The options in their order.
    """

    choice: Choice

    @property
    def n(self) -> int | None:  # type: ignore[override]
        return self.choice.n

    @cached_property
    def positions(self) -> Integer:
        """The integer that is the position of the option."""
        return Integer(0, len(self.choice.options) - 1, n=self.n)

    @property
    def count(self) -> float:
        return self.choice.count

    def indices(self, codes: Points) -> NDArray[np.intp]:
        return self.positions.values(codes).astype(np.intp)

    def values(self, codes: Points) -> NDArray[Any]:
        return self.choice.values(self.indices(codes))

    def points(self, codes: Points) -> list[Any]:
        return self.choice.points(self.indices(codes))

    def cells(self, codes: Points) -> NDArray[Any]:
        return self.choice.cells(self.indices(codes))

    def code(self, value: Any, name: str) -> float:
        return self.positions.code(self.choice.code(value, name), name)

    @property
    def is_latent(self) -> bool:
        return True

    # The distribution of codes, which is that of a number.

    @property
    def axis(self) -> Axis:
        """As of the integer."""
        return self.positions.axis

    @property
    def entry_parameters(self) -> int:
        return self.positions.entry_parameters

    def block(self, i: int) -> tuple[int, float]:
        return self.positions.block(i)

    @staticmethod
    def block_family(variables: Sequence[Any]) -> Family:
        return Number.block_family(variables)

    # What others show of it.

    @property
    def labels(self) -> tuple[str, ...]:
        return self.choice.labels

    @property
    def domain(self) -> Domain:
        return self.choice.domain

    # Values that conditions of other variables name.

    @property
    def can_have_dependents(self) -> bool:
        return self.choice.can_have_dependents

    def index(self, value: Any, name: str) -> int:
        return self.choice.index(value, name)

    def value_at(self, index: int) -> Any:
        return self.choice.value_at(index)

    def lowest_codes(self, indices: NDArray[np.intp]) -> list[float]:
        return self.positions.lowest_codes(indices)

    # Files, where a TOML file has a choice with `ordered = true`.

    def data(self) -> dict[str, Any]:
        return {"choice": self.choice.data()}

    def value_data(self, indices: Sequence[int]) -> list[Any]:
        return self.choice.value_data(indices)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self | None:
        match data:
            case {"choice": dict(options), **rest} if not rest:
                choice = Choice.from_data(options)
                if choice is not None and len({*choice.p}) == 1:
                    return cls(choice)
        return None

    @classmethod
    def from_toml(cls, of: Any, options: Mapping[str, Any]) -> Self:
        raise ValueError("expected choice with ordered = true")

    def __repr__(self) -> str:
        return f"{repr(self.choice)[:-1]}, ordered=True)"
