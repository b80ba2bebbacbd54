"""Points seen before: what a deterministic objective was already paid for.

Drawn points are sorted into new ones, to be evaluated; twins of one that is out for evaluation, which wait
for its value; and known ones, whose value is at hand.
"""

from __future__ import annotations

from .families import Points
from .space import Space


class Memory:
    """The values of points, and who waits for which."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._values: dict[bytes, float] = {}
        self._out: dict[bytes, list[int]] = {}  # ids that wait for a point; the first was handed out
        self._keys: dict[int, bytes] = {}  # of the ids handed out

    def __len__(self) -> int:
        """Points known or on their way to be."""
        return len(self._values) + len(self._out)

    def is_out(self, id: int) -> bool:
        return id in self._keys

    def recall(self, code: Points) -> float | None:
        return self._values.get(self._key(code))

    def store(self, code: Points, value: float) -> None:
        self._values[self._key(code)] = value

    def meet(self, id: int, code: Points) -> tuple[bool, float | None]:
        """Whether this point is new, and its value if it is known."""
        key = self._key(code)
        if key in self._values:
            return False, self._values[key]
        waiting = self._out.setdefault(key, [])
        waiting.append(id)
        if len(waiting) == 1:
            self._keys[id] = key
        return len(waiting) == 1, None

    def learn(self, id: int, value: float) -> list[int]:
        """The value of a point that was handed out; returns the ids of its twins."""
        key = self._keys.pop(id)
        self._values[key] = value
        return self._out.pop(key)[1:]

    def forget(self, id: int) -> list[int]:
        """A point that will never come back; returns the ids of its twins."""
        return self._out.pop(self._keys.pop(id))[1:]

    def _key(self, code: Points) -> bytes:
        return self._space.visible(code[None])[0].tobytes()
