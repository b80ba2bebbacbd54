"""Points seen before: what a deterministic objective was already paid for.

Drawn points are sorted into new ones, to be evaluated; twins of one that is out for evaluation, which wait
for its value; and known ones, whose value is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from knobless.core.types import Array, Points
from knobless.space.space import Space


class Cache:
    """The values of points, and who waits for which."""

    def __init__(self, space: Space) -> None:
        self._space = space
        family = space.family
        self._plain = family.dtype.kind == "i"  # a code is what is seen of it
        self._values: dict[bytes, float] = {}
        self._out: dict[bytes, list[int]] = {}  # ids that wait for a point; the first was handed out
        self._keys: dict[int, bytes] = {}  # of the ids handed out
        self._both = 0  # points that became known while they were out

    def __len__(self) -> int:
        """Points known or on their way to be."""
        return len(self._values) + len(self._out) - self._both

    def is_out(self, id: int) -> bool:
        return id in self._keys

    def pending_ids(self) -> list[int]:
        """The ids handed out that have not come back."""
        return list(self._keys)

    @property
    def width(self) -> int:
        """Bytes of a point."""
        family = self._space.family
        return len(self._keys_of(np.zeros((1, family.variables), family.dtype))[0])

    def contents(self) -> tuple[dict[bytes, float], dict[bytes, list[int]]]:
        """The values of points, and the ids that wait for one; the first of them was handed out."""
        return self._values, self._out

    def fill(self, values: dict[bytes, float], out: dict[bytes, list[int]]) -> None:
        """With the contents of another."""
        self._values, self._out = values, out
        self._keys = {waiting[0]: key for key, waiting in out.items()}
        self._both = sum(key in values for key in out)

    def recall(self, code: Points) -> float | None:
        return self._values.get(self._keys_of(code[None])[0])

    def store(self, code: Points, value: float) -> None:
        key = self._keys_of(code[None])[0]
        self._both += key in self._out and key not in self._values
        self._values[key] = value

    def meet(self, ids: Sequence[int], codes: Points) -> tuple[list[int], list[int], list[float]]:
        """The rows of new points; and the ids of known ones, with their values. The others wait for a twin."""
        new: list[int] = []
        known: list[int] = []
        values: list[float] = []
        for row, (id, key) in enumerate(zip(ids, self._keys_of(codes), strict=True)):
            value = self._values.get(key)
            if value is not None:
                known.append(id)
                values.append(value)
            elif key in self._out:
                self._out[key].append(id)
            else:
                self._out[key] = [id]
                self._keys[id] = key
                new.append(row)
        return new, known, values

    def back(self, ids: Sequence[int], f: Array, keep: bool) -> tuple[Sequence[int], Array]:
        """These points are no longer out, and their values are to be kept or not; both again, with their twins."""
        all_ids: list[int] = []
        all_f: list[float] = []
        for id, value in zip(ids, f.tolist(), strict=True):
            key = self._keys.pop(id)
            if self._both and key in self._values:
                self._both -= 1
            if keep:
                self._values[key] = value
            waiting = self._out.pop(key)
            all_ids += waiting
            all_f += [value] * len(waiting)
        return (ids, f) if len(all_ids) == len(ids) else (all_ids, np.array(all_f))  # the same, if there were no twins

    def _keys_of(self, codes: Points) -> list[bytes]:
        seen = codes if self._plain else self._space.visible(codes)
        data = seen.tobytes()
        if len(seen) == 1:
            return [data]
        width = seen.itemsize * seen.shape[1]
        return [data[i : i + width] for i in range(0, len(data), width)]
