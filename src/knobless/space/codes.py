"""The points of a custom family as a variable, which is the whole of a space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import real
from knobless.core.data import readable_name, to_plain
from knobless.core.families import Family, RecordedFamily
from knobless.core.types import Points

from .variable import Variable

# Of points in a file
TYPES = (
    "|b1",
    "|i1",
    "|u1",
    "<i2",
    "<u2",
    "<i4",
    "<u4",
    "<i8",
    "<u8",
    "<f4",
    "<f8",
)


@dataclass(frozen=True, repr=False)
class Codes(Variable):
    """The codes of a family, as an array.

    Parameters
    ----------
    family : Family
        The family.
    """

    family: Family
    n: int = field(init=False)

    def __post_init__(self) -> None:
        family = self.family
        # Journals contain the bytes of the points, and are read without the family.
        if (
            type(family).pack is not Family.pack
            or type(family).unpack is not Family.unpack
        ):
            expected = (
                "variables, or a family that packs its points as Family does"
            )
            raise TypeError(f"space: expected {expected}, got {family!r:.200}")
        if self._dtype not in TYPES:
            raise TypeError(
                f"space: expected a family whose points are numbers, got the type {family.dtype}"
            )
        object.__setattr__(self, "n", family.variables)

    @property
    def _dtype(self) -> str:
        """Type of the points as files have it."""
        return self.family.dtype.newbyteorder("<").str

    @property
    def count(self) -> float:
        return max(self.family.cardinality, 2)

    @property
    def cardinality(self) -> float:
        return self.family.cardinality

    def values(self, codes: Points) -> NDArray[Any]:
        return codes.copy()

    def code(self, value: Any, name: str) -> float:
        number = real(name, value)
        with np.errstate(invalid="ignore"):
            is_exact = np.array(number).astype(self.family.dtype) == number
        if not is_exact:
            raise ValueError(
                f"{name}: expected a value of the type {self.family.dtype}, got {value!r}"
            )
        return number

    def block(self, i: int) -> tuple[int, float]:
        return 3, i

    @staticmethod
    def block_family(variables: Sequence[Any]) -> Family:
        (leaf,) = variables
        family: Family = leaf.family
        return family

    def data(self) -> dict[str, Any]:
        family = self.family
        if isinstance(family, RecordedFamily):
            return {"family": family.data}
        names: list[str] = (
            [field.name for field in fields(family)]
            if is_dataclass(family)
            else []
        )
        return {
            "family": {
                "name": readable_name(type(family)),
                "parameters": [
                    [name, to_plain(getattr(family, name))] for name in names
                ],
                "variables": family.variables,
                "dtype": self._dtype,
            }
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self | None:
        match data:
            case {
                "family": {
                    "name": str(),
                    "variables": int() as n,
                    "dtype": str() as dtype,
                }
            }:
                if dtype in TYPES and n > 0:
                    return cls(
                        RecordedFamily(
                            data["family"], n, np.dtype(dtype).newbyteorder("=")
                        )
                    )
        return None

    def __repr__(self) -> str:
        return repr(self.family)
