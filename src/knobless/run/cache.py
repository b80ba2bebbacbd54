"""The cache of a deterministic objective: values of evaluated points, and candidates that wait for a value.

A drawn point is new, to be evaluated; or equal to a pending one, whose value it waits for; or known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from knobless.core.conditional import Conditional
from knobless.core.types import Array, Points
from knobless.space.space import Space


class Cache:
    """Values of points by their bytes, and for each pending point the ids that wait for it."""

    def __init__(self, space: Space) -> None:
        self._space = space
        family = space.family
        # A code is the point itself, except for latent numbers and inactive variables.
        self._plain = family.dtype.kind == "i" and not isinstance(family, Conditional)
        self._values: dict[bytes, float] = {}
        self._waiting: dict[bytes, list[int]] = {}  # ids by point; the first of them was handed out
        self._keys: dict[int, bytes] = {}  # of the ids handed out
        self._both = 0  # points that became known while they were pending

    @classmethod
    def of(cls, space: Space, values: dict[bytes, float], waiting: dict[bytes, list[int]]) -> Self:
        """Return a cache with these contents."""
        cache = cls(space)
        cache._values, cache._waiting = values, waiting
        cache._keys = {ids[0]: key for key, ids in waiting.items()}
        cache._both = sum(key in values for key in waiting)
        return cache

    def __len__(self) -> int:
        """Return the number of points that are known or pending."""
        return len(self._values) + len(self._waiting) - self._both

    @property
    def values(self) -> Mapping[bytes, float]:
        """Values by the bytes of the point."""
        return self._values

    @property
    def waiting(self) -> Mapping[bytes, list[int]]:
        """The ids that wait for a point; the first of them was handed out."""
        return self._waiting

    @property
    def width(self) -> int:
        """Bytes of a point."""
        family = self._space.family
        return len(self._keys_of(np.zeros((1, family.variables), family.dtype))[0])

    def is_pending(self, id: int) -> bool:
        """Return whether this candidate was handed out and has no value yet."""
        return id in self._keys

    def are_pending(self, ids: Sequence[int]) -> bool:
        """Return whether all of these candidates were handed out and have no value yet."""
        return ids[0] in self._keys if len(ids) == 1 else all(map(self._keys.__contains__, ids))

    def pending_ids(self) -> list[int]:
        """Return the ids handed out that have no value yet."""
        return list(self._keys)

    def get(self, code: Points) -> float | None:
        """Return the value of a point; None if it is not known."""
        return self._values.get(self._keys_of(code[None])[0])

    def put(self, code: Points, value: float) -> None:
        """Store the value of a point."""
        key = self._keys_of(code[None])[0]
        self._both += key in self._waiting and key not in self._values
        self._values[key] = value

    def look_up(self, ids: Sequence[int], codes: Points, tests: int = 0) -> tuple[list[int], list[int], list[float]]:
        """Return the rows of points to evaluate, and the ids of known ones with their values; the others wait.

        The first `tests` are to be evaluated though they are known.
        """
        new: list[int] = []
        known: list[int] = []
        values: list[float] = []
        if len(ids) == 1 and not tests:  # a search that evaluates one point at a time
            key = self._keys_of(codes)[0]
            if key not in self._values and key not in self._waiting:
                self._waiting[key], self._keys[ids[0]] = [ids[0]], key
                return [0], known, values
        for row, (id, key) in enumerate(zip(ids, self._keys_of(codes), strict=True)):
            value = self._values.get(key)
            if row < tests and key not in self._waiting:
                self._both += value is not None
                self._waiting[key] = [id]
                self._keys[id] = key
                new.append(row)
            elif value is not None:
                known.append(id)
                values.append(value)
            elif key in self._waiting:
                self._waiting[key].append(id)
            else:
                self._waiting[key] = [id]
                self._keys[id] = key
                new.append(row)
        return new, known, values

    def settle(self, ids: Sequence[int], f: Array, keep: bool) -> tuple[list[int], list[float]]:
        """End the pending state of these, and store their values if `keep`; return the ids that waited, with values."""
        more_ids: list[int] = []
        more_f: list[float] = []
        for id, value in zip(ids, f.tolist(), strict=True):
            key = self._keys.pop(id)
            if self._both and key in self._values:
                self._both -= 1
            known = self._values.get(key)
            if keep and (known is None or known != known):  # a test leaves the value that is known
                self._values[key] = value
            waiting = self._waiting.pop(key)
            if len(waiting) > 1:
                more_ids += waiting[1:]
                more_f += [value] * (len(waiting) - 1)
        return more_ids, more_f

    def _keys_of(self, codes: Points) -> list[bytes]:
        return row_bytes(codes if self._plain else self._space.visible(codes))


def row_bytes(rows: Points) -> list[bytes]:
    """Return the bytes of each row."""
    data = rows.tobytes()
    if len(rows) == 1:
        return [data]
    width = rows.itemsize * rows.shape[1]
    return [data[i : i + width] for i in range(0, len(data), width)]
