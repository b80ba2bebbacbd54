"""Points of a deterministic objective that were handed out and have no value yet.

A drawn point is new, to be evaluated; or equal to a pending one, whose value it waits for; or known
to the archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from knobless.core.archive import Archive, Keys
from knobless.core.conditional import Conditional
from knobless.core.types import Array, Points
from knobless.space.space import Space


class Pending:
    """The candidates that wait for a value of each pending point.

    The first of them was handed out.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._waiting: dict[bytes, list[int]] = {}
        self._keys: dict[int, bytes] = {}  # of the candidates handed out

    @property
    def ids(self) -> list[int]:
        """The ids of the candidates handed out."""
        return list(self._keys)

    @property
    def waiting(self) -> list[list[int]]:
        """For each point the ids that wait for its value."""
        return list(self._waiting.values())

    def restore(self, waiting: list[list[int]], keys: list[bytes]) -> None:
        """Take over pending points, with their keys."""
        self._waiting = dict(zip(keys, waiting, strict=True))
        self._keys = {ids[0]: key for key, ids in self._waiting.items()}
        rows = list(chain(*waiting))
        if len(self._waiting) < len(keys) or len({*rows}) < len(rows):
            raise ValueError(
                "waiting: expected different points and candidates"
            )

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, id: int) -> bool:
        return id in self._keys

    def has(self, ids: Sequence[int]) -> bool:
        """Return whether all of these candidates are among those handed out."""
        if len(ids) == 1:
            return ids[0] in self._keys
        return all(map(self._keys.__contains__, ids))

    def cover(self, n_points: float) -> bool:
        """Return whether all of so many points are known or pending."""
        archive = self._archive
        if archive.known + len(self._waiting) < n_points:
            return False
        return (
            archive.known
            + sum(archive.value(key) is None for key in self._waiting)
            >= n_points
        )

    def look_up(
        self, ids: Sequence[int], codes: Points, tests: int = 0
    ) -> tuple[list[int], list[int], list[float]]:
        """Return the rows of points to evaluate, and the known ones with values; others wait.

        The first `tests` are to be evaluated though they are known.
        """
        new: list[int] = []
        known: list[int] = []
        values: list[float] = []
        archive = self._archive
        waiting = self._waiting
        # a search that evaluates one point at a time
        if len(ids) == 1 and not tests:
            (key,) = archive.keys(codes)
            if key not in waiting and archive.value(key) is None:
                waiting[key], self._keys[ids[0]] = [ids[0]], key
                return [0], known, values
        for row, (id, key) in enumerate(
            zip(ids, archive.keys(codes), strict=True)
        ):
            value = (
                None
                if row < tests and key not in waiting
                else archive.value(key)
            )
            if value is not None:
                known.append(id)
                values.append(value)
            elif key in waiting:
                waiting[key].append(id)
            else:
                waiting[key], self._keys[id] = [id], key
                new.append(row)
        return new, known, values

    def settle(
        self, ids: Sequence[int], f: Array, keep: bool
    ) -> tuple[list[int], list[float]]:
        """End the pending state of these, and note their values if `keep`.

        Return the ids that waited, with values.
        """
        more_ids: list[int] = []
        more_f: list[float] = []
        keys = [self._keys.pop(id) for id in ids]
        values = f.tolist()
        if keep:
            self._archive.note(keys, values)
        for key, value in zip(keys, values, strict=True):
            waiting = self._waiting.pop(key)
            if len(waiting) > 1:
                more_ids += waiting[1:]
                more_f += [value] * (len(waiting) - 1)
        return more_ids, more_f


def keys_of(space: Space) -> Keys | None:
    """Return the keys by which the points of a space are compared; None for the packed points.

    A code is the point itself, except for latent numbers and inactive variables.
    """
    family = space.family
    plain = family.dtype.kind == "i" and not isinstance(family, Conditional)
    return None if plain else partial(_visible_keys, space)


def _visible_keys(space: Space, codes: Points) -> list[bytes]:
    return row_bytes(space.visible(codes))


def row_bytes(rows: Points) -> list[bytes]:
    """Return the bytes of each row."""
    data = rows.tobytes()
    if len(rows) == 1:
        return [data]
    width = rows.itemsize * rows.shape[1]
    return [data[i : i + width] for i in range(0, len(data), width)]
