"""The archive: all evaluations of a run in order, which members and models read.

Points are packed, so that a bit takes a bit, and looked up by a key that is equal for equal points.
Where equal points have equal values, each point is one row: another evaluation of it, as a test for
noise, is kept apart. Otherwise every evaluation is a row, and of a long run the last ones are kept.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self

import numpy as np

from .data import floats, listed, octets, text, whole, whole_at
from .elitism import Elite
from .families import Family
from .pareto import is_front, ranking
from .point_values import PointValues
from .types import Array, Mask, Points

MOST_ROWS = 2**17  # evaluations of a noisy objective that are kept
MOST_BYTES = 2**26  # of their points when they are read
PACKED_AT_ONCE = 2**10  # rows
UNPACKED_BYTES = 2**22  # of rows that are not packed yet

# What a row is: an evaluation; a value that was known, of an equal point that is no row, or from
# elsewhere; a point that was not evaluated because it is infeasible, from which the members learn
# nevertheless; or an evaluation that was stopped, of which the value is estimated.
EVALUATED = 1
COPIED = 5
REJECTED = 6
STOPPED = 7

Keys = Callable[[Points], list[bytes]]


class Feasible(Protocol):
    """Protocol of the constraints of a run."""

    def are_feasible(self, codes: Points) -> Mask:
        """Return which points are feasible."""

    def repaired(self, codes: Points, key: int) -> Points:
        """Return feasible points close to others; `key` is that of the random numbers."""


class Archive:
    """Evaluations in order.

    Parameters
    ----------
    family : Family
        Family of the points.
    keys : callable, optional
        Return a key for each of several points, equal for equal points; the packed points by
        default.
    deterministic : bool
        Whether equal points have equal values, so that each point is one row.
    recent : int, optional
        Number of the last evaluations of a noisy objective that suffice; as many as fit by default.
    objectives : int
        Number of objectives. Those of several are noted by points (`note_outcomes`), and a row has
        one number for all.

    Attributes
    ----------
    n : int
        Number of rows and of repeated evaluations so far, those that were dropped included.
    evaluated : int
        Number of evaluations among these.
    by_point : PointValues
        The values of several objectives.
    pending_points : callable or None
        Return the points that are being evaluated; None if none are.
    feasible : Feasible or None
        The constraints of the run, which members may ask for; None without any.
    errors : dict
        By the keys of points whose evaluation was stopped, the standard errors of the estimated
        values.
    """

    def __init__(
        self,
        family: Family,
        keys: Keys | None = None,
        deterministic: bool = True,
        recent: int | None = None,
        objectives: int = 1,
    ) -> None:
        self.family = family
        self.objectives = objectives
        self.by_point = PointValues(family, objectives)
        self._outcomes = np.empty((0, objectives))  # of the first rows
        self.deterministic = deterministic
        self.n = self.evaluated = 0
        self._dropped = 0
        self.pending_points: Callable[[], Points] | None = None
        self.feasible: Feasible | None = None
        self.errors: dict[bytes, float] = {}
        self._best = Elite.empty(family)
        self._keys = keys
        # Rows that are not packed yet, if they are not looked up
        self._added: list[tuple[Points, Array, bytes]] = []
        self._n_added = 0
        self._recent = recent
        self._at_once = max(
            min(
                PACKED_AT_ONCE,
                UNPACKED_BYTES
                // max(family.variables * family.dtype.itemsize, 1),
            ),
            1,
        )
        # The points packed last, which are often packed again
        self._last: tuple[Points, list[bytes]] | None = None
        self._codes: list[bytes] = []
        self._f = np.empty(64)
        self._kinds = bytearray()
        self._rejected = 0  # rows that are no evaluations, neither earlier ones
        # Row of each point, if each point is one row
        self._index: dict[bytes, int] = {}
        # Values of points that are no rows yet, or that were replaced
        self._noted: dict[bytes, float] = {}
        self._replaced = 0  # rows among these
        # Evaluations of known points: the row before which, and …
        self._repeats: list[tuple[int, bytes, float]] = []

    @property
    def pending(self) -> Points:
        """Points that are being evaluated."""
        if self.pending_points is None:
            return self.x(0, 0)
        return self.pending_points()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    @property
    def _rows(self) -> list[bytes]:
        """The packed points of the rows."""
        if self._added:
            self._pack()
        return self._codes

    @property
    def dropped(self) -> int:
        """Rows that were dropped, the oldest ones."""
        return self._dropped if self._rows else 0

    @property
    def best(self) -> Elite:
        """The best point, the first in case of ties.

        None before there is a value below infinity.
        """
        return self._best if self._rows else Elite.empty(self.family)

    @property
    def f(self) -> Array:
        """Values of the rows; NaN for a failed evaluation. Must not be modified."""
        return self._f[: len(self._rows)]

    def x(self, start: int = 0, stop: int | None = None) -> Points:
        """Return the points of the rows from `start` to `stop`, all by default."""
        return self.family.unpack(b"".join(self._rows[start:stop]))

    def at(self, rows: Any) -> Points:
        """Return the points of some rows, given by their indices."""
        codes = self._rows
        return self.family.unpack(b"".join([codes[row] for row in rows]))

    def code(self, row: int) -> bytes:
        """Return the packed point of a row."""
        return self._rows[row]

    def keys(self, x: Points) -> list[bytes]:
        """Return one key per point, equal for equal points."""
        return self.codes(x) if self._keys is None else self._keys(x)

    def codes(self, x: Points) -> list[bytes]:
        """Return the packed points."""
        if self._last is not None and self._last[0] is x:
            return self._last[1]
        data = self.family.pack(x)
        width = self.family.width
        codes = (
            [data]
            if len(x) == 1
            else [data[i : i + width] for i in range(0, len(data), width)]
        )
        self._last = x, codes
        return codes

    # Values by points.

    def row(self, key: bytes) -> int | None:
        """Return the row of the point with this key; None if the point is not known."""
        return self._index.get(key)

    def value(self, key: bytes) -> float | None:
        """Return the value of the point with this key, None if it is not known.

        Only if each point is one row.
        """
        row = self._index.get(key)
        if row is None or key in self._noted:
            return self._noted.get(key)
        return self._f.item(row)

    @property
    def known(self) -> int:
        """Number of points that have a value."""
        return (
            len(self._index)
            + len(self._noted)
            - self._replaced
            - self._rejected
        )

    def note(self, keys: Iterable[bytes], values: Iterable[float]) -> None:
        """Store values of points that are no rows yet.

        a known one keeps its value unless the evaluation failed.
        """
        index = self._index
        noted = self._noted
        for key, value in zip(keys, values, strict=True):
            row = index.get(key)
            if row is None:
                if noted.setdefault(key, value) != noted[key]:  # NaN
                    noted[key] = value
            elif math.isnan(self._f[row]):
                self._f[row] = value

    # Estimated values.

    def note_errors(self, x: Points, errors: Iterable[float]) -> None:
        """Store the standard errors of estimated values, before their rows are added."""
        self.errors.update(zip(self.keys(x), errors, strict=True))

    # Several objectives.

    def note_outcome(self, x: Points, outcome: Sequence[float] | float) -> None:
        """Store the values of several objectives at a point.

        Of an infeasible one the rank of its violation.
        """
        (key,) = self.keys(x[None])
        (code,) = self.codes(x[None])
        if isinstance(outcome, float):
            self.by_point.add_infeasible(key, code, outcome)
        else:
            self.by_point.add(key, code, outcome)
        # An evaluation of the point may have failed before.
        self._outcomes = self._outcomes[
            : self._index.get(key, len(self._outcomes))
        ]

    def outcomes_of(self, keys: Iterable[bytes], f: Array) -> Array:
        """Return the objectives of points, one row per point.

        Where none are noted, all of them are the value of the row: so it is for failed evaluations,
        which all others dominate.
        """
        indices = [self.by_point.index(key) for key in keys]
        known = np.array([i is not None for i in indices], dtype=bool)
        outcomes = np.repeat(f[:, None], self.objectives, axis=1)
        values = (
            self.by_point.first if self.deterministic else self.by_point.means
        )
        outcomes[known] = values[[i for i in indices if i is not None]]
        return outcomes

    @property
    def outcomes(self) -> Array:
        """The objectives of the rows, if each point is one row. Must not be modified."""
        done = len(self._outcomes)
        n = len(self)
        if done < n:
            new_outcomes = self.outcomes_of(
                self.keys(self.x(done)), self.f[done:]
            )
            self._outcomes = np.concatenate([self._outcomes, new_outcomes])
        return self._outcomes

    def ranked(self, x: Points, f: Array) -> Array:
        """Return the values by which algorithms rank points that were just evaluated.

        These are `f`, or the ranks of several objectives among the given points. Without noise, the
        front of all evaluations is ranked with them.
        """
        if self.objectives == 1 or not len(f):
            return f
        compared = self.outcomes_of(self.keys(x), f)
        if self.deterministic:
            outcomes = self.outcomes
            compared = np.concatenate([compared, outcomes[is_front(outcomes)]])
        ranks: Array = ranking(compared)[: len(f)].astype(float)
        return np.where(np.isfinite(f), ranks, f)

    def replace(self, key: bytes, value: float) -> None:
        """Store the value of a point that was evaluated elsewhere.

        The row that it may be does not change.
        """
        known = self.value(key)
        self.errors.pop(key, None)
        if known is None or (
            known != value and not (math.isnan(known) and math.isnan(value))
        ):
            self._replaced += key in self._index and key not in self._noted
            self._noted[key] = value

    # Rows.

    def add(
        self, x: Points, f: Array, kinds: Iterable[int] | None = None
    ) -> None:
        """Add evaluations in order, if each point is one row those of known points apart.

        A value replaces that of an earlier evaluation of the point that failed, which is NaN. The
        kinds of the rows are `EVALUATED`, as by default, `COPIED`, `REJECTED` or `STOPPED`.
        """
        if not len(f):
            return
        kinds = bytes([EVALUATED]) * len(f) if kinds is None else bytes(kinds)
        self.evaluated += kinds.count(EVALUATED)
        if not self.deterministic:
            self.n += len(f)
            self._added.append((x, f, kinds))
            self._n_added += len(f)
            if self._n_added > self._at_once:
                if self._recent is None or self._at_once < self._recent:
                    self._pack()
                else:
                    self._forget(self._recent)
            return
        # Each point is one row: known points are not added again.
        codes = self.codes(x)
        keys = codes if self._keys is None else self._keys(x)
        if len(keys) == 1 and keys[0] not in self._index:  # the usual case
            self._index[keys[0]] = len(self._codes)
        elif self._index.keys().isdisjoint(keys) and len({*keys}) == len(keys):
            start = len(self._codes)
            self._index.update(
                zip(keys, range(start, start + len(keys)), strict=True)
            )
        else:
            values = f.tolist()
            rows = self._new_of(keys, codes, values, kinds)
            codes = [codes[i] for i in rows]
            keys = [keys[i] for i in rows]
            kinds = bytes([kinds[i] for i in rows])
            x = x[rows]
            f = np.array([values[i] for i in rows])
        if self._noted:
            for key in keys:
                self._noted.pop(key, None)
        self.n += len(codes)
        if codes:
            self._extend(x, codes, f, kinds)

    def _forget(self, recent: int) -> None:
        """Drop the first of the rows that are not packed, but the most recent ones."""
        first = 0
        while self._n_added - len(self._added[first][1]) >= recent:
            self._n_added -= len(self._added[first][1])
            first += 1
        self._dropped += sum(len(f) for _, f, _ in self._added[:first])
        del self._added[:first]

    def _pack(self) -> None:
        """Pack the rows that were added."""
        x, f, kinds = zip(*self._added, strict=True)
        self._added = []
        self._n_added = 0
        points = np.concatenate(x)
        self._extend(
            points, self.codes(points), np.concatenate(f), b"".join(kinds)
        )

    def _new_of(
        self,
        keys: list[bytes],
        codes: list[bytes],
        values: list[float],
        kinds: bytes,
    ) -> list[int]:
        """Return which of these are new rows, which are indexed; store the values of the others.

        A value replaces that of an evaluation of the same point that failed, also in `values`.
        """
        index = self._index
        start = len(self._codes)
        rows: list[int] = []
        for i, (key, code, value, kind) in enumerate(
            zip(keys, codes, values, kinds, strict=True)
        ):
            row = index.setdefault(key, start + len(rows))
            if row == start + len(rows):
                rows.append(i)
                continue
            if row >= start:
                first = rows[row - start]
                values[first] = (
                    value if math.isnan(values[first]) else values[first]
                )
            elif math.isnan(self._f[row]):
                self._f[row] = value
            if kind == EVALUATED:  # neither what was copied nor an estimate
                self._repeats.append((start + len(rows), code, value))
                self.n += 1
        return rows

    def _extend(
        self, x: Points, codes: list[bytes], f: Array, kinds: bytes
    ) -> None:
        """Append rows."""
        start = len(self._codes)
        end = len(self._codes) + len(codes)
        if end > len(self._f):
            # Grow by doubling, so that appending takes constant time on average.
            longer = np.empty(2 * end + 64)
            longer[:start] = self._f[:start]
            self._f = longer
        self._f[start:end] = f
        self._codes += codes
        self._kinds += kinds
        self._rejected += kinds.count(REJECTED)
        lowest = f.item() if len(f) == 1 else np.fmin.reduce(f)
        if lowest < (self._best.f.item() if len(self._best.f) else math.inf):
            i = int((f == lowest).argmax())
            self._best = Elite(x[i : i + 1].copy(), f[i : i + 1].copy())
        self._drop()

    def make_noisy(self) -> None:
        """Make every evaluation a row: equal points have different values."""
        codes = self._codes
        values = self.f.tolist()
        for row, code, value in reversed(self._repeats):
            codes.insert(row, code)
            values.insert(row, value)
            self._kinds.insert(row, EVALUATED)
        self.deterministic = False
        self._index = {}
        self._repeats = []
        self._noted = {}
        self._outcomes = self._outcomes[:0]
        self._f = np.array(values)
        self._drop()

    def evaluations(self, most: int | None = None) -> tuple[Points, Array]:
        """Return points and values of the last evaluations in order, of all by default.

        Points that were copied or rejected are left out, and so are those whose evaluation was
        stopped.
        """
        codes, f = self._evaluated
        start = 0 if most is None else max(len(f) - most, 0)
        return self.family.unpack(b"".join(codes[start:])), f[start:]

    @property
    def values(self) -> Array:
        """Values of the evaluations in order. Must not be modified."""
        return self._evaluated[1]

    @property
    def _evaluated(self) -> tuple[list[bytes], Array]:
        """Packed points and values of the evaluations in order."""
        codes = self._rows
        f = self.f
        places = None
        if self._kinds.count(EVALUATED) < len(f):
            places = np.flatnonzero(
                np.frombuffer(self._kinds, dtype=np.uint8) == EVALUATED
            )
            codes = [codes[row] for row in places.tolist()]
            f = f[places]
        if self._repeats:
            before, repeated, values = zip(*self._repeats, strict=True)
            at = (
                before
                if places is None
                else places.searchsorted(before).tolist()
            )
            codes = codes.copy()
            f = np.insert(f, at, values)
            for row, code in zip(reversed(at), reversed(repeated), strict=True):
                codes.insert(row, code)
        return codes, f

    def points(self) -> tuple[Points, Array]:
        """Return all points that have a value, and their values.

        The keys must be the packed points, and each point one row.
        """
        noted = self._noted
        rows = [
            (code, f)
            for code, f in zip(self._codes, self.f.tolist(), strict=True)
            if code not in noted
        ]
        x = self.family.unpack(b"".join([*(code for code, _ in rows), *noted]))
        return x, np.array([*(f for _, f in rows), *noted.values()])

    @property
    def _most(self) -> int:
        """Rows that are kept, unless each point is needed."""
        return max(
            min(
                MOST_ROWS,
                MOST_BYTES
                // max(self.family.variables * self.family.dtype.itemsize, 1),
            ),
            2,
        )

    def _drop(self) -> None:
        """Drop half of what fits each time there is more, unless each point is needed.

        What is kept does not depend on how many evaluations are added at once.
        """
        if self.deterministic:
            return
        # Drop blocks of half the capacity: what is kept does not depend on the sizes of additions.
        excess = len(self._codes) - self._most
        at_once = self._most - self._most // 2
        if excess > 0:
            dropped = -(-excess // at_once) * at_once
            self._dropped += dropped
            self._f = self._f[dropped : len(self._codes)].copy()
            del self._codes[:dropped], self._kinds[:dropped]

    def copy(self) -> Self:
        """Return a copy that does not change with this archive."""
        copy = type(self)(
            self.family,
            self._keys,
            self.deterministic,
            self._recent,
            self.objectives,
        )
        copy.by_point = self.by_point.copy()
        copy._outcomes = self._outcomes
        copy._codes = self._rows.copy()
        copy._replaced = self._replaced
        pending = self.pending
        copy.pending_points = lambda: pending
        copy.feasible = self.feasible
        copy.errors = self.errors.copy()
        copy.n = self.n
        copy.evaluated = self.evaluated
        copy._dropped = self._dropped
        copy._best = self._best
        copy._rejected = self._rejected
        copy._f, copy._kinds = self.f.copy(), self._kinds.copy()
        copy._index, copy._noted, copy._repeats = (
            self._index.copy(),
            self._noted.copy(),
            self._repeats.copy(),
        )
        return copy

    def data(self) -> dict[str, Any]:
        """Return the archive as plain data, for `restore`."""
        rows, codes, values = (
            zip(*self._repeats, strict=True) if self._repeats else ((), (), ())
        )
        return {
            "x": encoded(b"".join(self._rows)),
            "f": text(self.f),
            "kinds": encoded(self._kinds),
            "repeated": {
                "rows": list(rows),
                "x": encoded(b"".join(codes)),
                "f": text(np.array(values)),
            },
            "noted": {
                "keys": encoded(b"".join(self._noted)),
                "f": text(np.array([*self._noted.values()])),
            },
            "n": self.n,
            "evaluated": self.evaluated,
            "dropped": self.dropped,
            "best": elite_data(self.best, self.family),
            "errors": {
                "keys": encoded(b"".join(self.errors)),
                "f": text(np.array([*self.errors.values()])),
            },
            "outcomes": self.by_point.data(),
        }

    def restore(self, data: Any) -> None:
        """Add the evaluations that `data` described to an empty archive.

        ValueError if it describes none.
        """
        x = self.family.unpack(octets(data, "x"))
        f = floats(data, "f")
        kinds = octets(data, "kinds")
        if not len(x) == len(f) == len(kinds) or not {*kinds} <= {
            EVALUATED,
            COPIED,
            REJECTED,
            STOPPED,
        }:
            raise ValueError(
                f"f: expected a value and the kind of each of {len(x)} points, got {len(f)}"
            )
        self.add(x, f, kinds)
        if len(self) != len(f):
            raise ValueError(
                "x: expected each point once, and no more than fit"
            )
        repeated = data["repeated"]
        noted = data["noted"]
        rows = [whole(row, most=len(f)) for row in listed(repeated, "rows")]
        values = floats(repeated, "f")
        if rows != sorted(rows):
            raise ValueError("rows: expected increasing numbers")
        codes = self.codes(self.family.unpack(octets(repeated, "x")))
        self._repeats = list(zip(rows, codes, values.tolist(), strict=True))
        keys = octets(noted, "keys")
        width = len(
            self.keys(np.zeros((1, self.family.variables), self.family.dtype))[
                0
            ]
        )
        self._noted = dict(
            zip(chunks(keys, width), floats(noted, "f").tolist(), strict=True)
        )
        errors = (
            chunks(octets(data["errors"], "keys"), width),
            floats(data["errors"], "f").tolist(),
        )
        self.errors = dict(zip(*errors, strict=True))
        self._replaced = sum(key in self._index for key in self._noted)
        self.n, self.evaluated, self._dropped = (
            whole_at(data, name) for name in ("n", "evaluated", "dropped")
        )
        self._best = elite_of(data["best"], self.family)
        self.by_point.restore(data["outcomes"], self.keys)


def encoded(data: bytes | bytearray) -> str:
    """Return bytes as text."""
    return b64encode(data).decode()


def chunks(data: bytes, width: int) -> list[bytes]:
    """Return consecutive parts of equal length; ValueError if there is a rest."""
    if len(data) % width:
        raise ValueError(f"expected {width} bytes for each point")
    return [data[i : i + width] for i in range(0, len(data), width)]


def elite_data(elite: Elite, family: Family) -> dict[str, Any]:
    """Return points with their values as plain data, for `elite_of`."""
    return {"x": encoded(family.pack(elite.x)), "f": text(elite.f)}


def elite_of(data: Any, family: Family) -> Elite:
    """Return the points with their values that `elite_data` described.

    ValueError for other data.
    """
    elite = Elite(family.unpack(octets(data, "x")), floats(data, "f"))
    if len(elite.x) != len(elite.f):
        raise ValueError(
            f"elite: expected {len(elite.x)} values, one for each point, got {len(elite.f)}"
        )
    return elite
