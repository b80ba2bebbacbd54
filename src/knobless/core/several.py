"""The values of several objectives as one number, which a run treats as a single value.

The number is 0, or inf if an objective is infinitely bad: it shows that there are values, and no
more. Points are compared by the values, which the archive has (`Archive.outcomes`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Self


class Several(float):
    """The values of several objectives.

    Parameters
    ----------
    values : sequence of float
        The values, with the user's signs.
    signs : sequence of float
        For each objective 1 if it is minimized, −1 if it is maximized.

    Attributes
    ----------
    values, signs : tuple of float
        As given.
    """

    __slots__ = ("signs", "values")
    values: tuple[float, ...]
    signs: tuple[float, ...]

    def __new__(cls, values: Sequence[float], signs: Sequence[float]) -> Self:
        infinite = any(
            sign * value == math.inf
            for sign, value in zip(signs, values, strict=True)
        )
        several = super().__new__(cls, math.inf if infinite else 0.0)
        several.values, several.signs = tuple(values), tuple(signs)
        return several

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.values, self.signs)

    @property
    def minimized(self) -> tuple[float, ...]:
        """The values, each to be minimized."""
        return tuple(
            sign * value
            for sign, value in zip(self.signs, self.values, strict=True)
        )

    @property
    def text(self) -> str:
        """The values as text, for a file."""
        return json.dumps([self.values, self.signs])

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the values that `text` described; ValueError for other text."""
        try:
            values, signs = json.loads(text)
            valid = (
                len(values) == len(signs)
                and {*map(type, values)} <= {float}
                and {*signs} <= {1.0, -1.0}
            )
        except (RecursionError, TypeError, ValueError):
            valid = False
        if not valid:
            raise ValueError(
                f"value: expected those of several objectives, got {text!r:.100}"
            )
        return cls(values, signs)
