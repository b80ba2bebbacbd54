"""One iteration: its candidates and their values, and the record of it that users see."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from knobless.core.algorithm import Owner
from knobless.core.types import Array, Points
from knobless.core.violation import Infeasible
from knobless.journal.evaluations import Evaluations
from knobless.journal.events import TOLD

# Besides TOLD, CANCELLED, COPIED with the value of an equal point, and STOPPED with an estimate
PENDING = 0
EMPTY = np.empty(0)


class _Numbers(NamedTuple):
    """The fields of an `Info`."""

    iteration: int
    nfev: int
    best: float
    lam: int
    lam_r: float
    eps: float
    snr: float
    entropy: float
    violation: float = 0.0
    theta: Array | None = None


class Info(_Numbers):
    """The state of a run after an iteration.

    Attributes
    ----------
    iteration : int
        Number of iterations so far.
    nfev : int
        Number of evaluations so far.
    best : float
        The best objective value so far; inf (−inf for `maximize`) before there is one. As long as
        no point is feasible, the value of the point with the least violation. NaN with several
        objectives.
    lam : int
        Samples of the next iteration.
    lam_r : float
        Sample size that follows from the signal-to-noise ratio, before rounding.
    eps : float
        Step length of the next iteration; NaN if the algorithm does not define it.
    snr : float
        Signal-to-noise ratio; NaN if the algorithm does not define it.
    entropy : float
        Entropy of the distribution.
    violation : float
        The least violation so far, 0 if a point is feasible.
    theta : ndarray or None
        Parameters of the distribution, read-only. None in the rows of a `History`, to save memory.
    x : point or None
        The point to use so far, as that of a `Result`. This and the following are for callbacks and
        stopping rules: they are computed when they are read, and only until the callback returns.
    fun : float or tuple of float
        Its objective value; of a noisy objective an estimate of its mean.
    evaluations : Evaluations
        The evaluations since the last call, none of compiled iterations.
    """

    _lookup: Lookup | None = None  # only while functions of the user are called

    @cached_property
    def _point(self) -> tuple[Any, Any]:
        return self._looked_up("x, fun").point()

    @property
    def x(self) -> Any:
        """The point to use so far."""
        return self._point[0]

    @property
    def fun(self) -> Any:
        """Its objective value."""
        return self._point[1]

    @cached_property
    def evaluations(self) -> Evaluations:
        """The evaluations since the last call."""
        return self._looked_up("evaluations").evaluations()

    def _looked_up(self, name: str) -> Lookup:
        if self._lookup is None:
            raise AttributeError(
                f"info: expected {name} to be read in a callback, before it returns"
            )
        return self._lookup


class Lookup(NamedTuple):
    """What an `Info` computes on demand: the point to use, its value, the new evaluations."""

    point: Callable[[], tuple[Any, Any]]
    evaluations: Callable[[], Evaluations]


@contextmanager
def looking_up(info: Info, lookup: Lookup) -> Iterator[None]:
    """Let functions of the user read from the record what is computed on demand."""
    info._lookup = lookup
    try:
        yield
    finally:
        info._lookup = None


class Best(NamedTuple):
    """The best evaluation so far.

    It has its value to be minimized, its candidate, and where its point is found.

    Of an infeasible point, `rank` is an `Infeasible`, which has the value and the violation.
    """

    rank: float
    id: int
    at: Any

    @property
    def fun(self) -> float:
        """The objective value."""
        return (
            self.rank.value if isinstance(self.rank, Infeasible) else self.rank
        )

    @property
    def violation(self) -> float:
        """How much the point violates the constraints; 0 for a feasible one."""
        return self.rank.violation if isinstance(self.rank, Infeasible) else 0.0


def is_better(rank: float, id: int, best: Best | None) -> bool:
    """Return whether an evaluation has a lower value, or an equal value and a lower id.

    The order of ids is that of (iteration, index). A point evaluated elsewhere has the id −1 and
    comes first.
    """
    return rank < math.inf and (
        best is None or (rank, id) < (best.rank, best.id)
    )


class FirstFailure(NamedTuple):
    """The failed evaluation with the lowest id, and its message."""

    id: int
    text: str


class Late(NamedTuple):
    """A pending candidate of an earlier iteration; `owner` has asked for it (see `Owner`)."""

    iteration: int
    position: int
    code: Points
    owner: Owner | None = None

    @property
    def is_test(self) -> bool:
        """Whether it is a test for noise."""
        return self.position < 0 and self.iteration > 0


class Settled(NamedTuple):
    """Candidates that are no longer pending, in the order of their ids, all of one owner."""

    ids: Sequence[int]
    codes: Points
    f: Array
    fates: bytes | bytearray

    @classmethod
    def joined(cls, parts: Sequence[Settled]) -> Settled:
        """Return the candidates of several parts together, in the order of their ids."""
        if len(parts) == 1:
            return parts[0]
        ids = [id for part in parts for id in part.ids]
        order = sorted(range(len(ids)), key=ids.__getitem__)
        codes, f = (
            np.concatenate([getattr(part, name) for part in parts])[order]
            for name in ("codes", "f")
        )
        fates = b"".join([bytes(part.fates) for part in parts])
        return cls(
            [ids[i] for i in order], codes, f, bytes([fates[i] for i in order])
        )

    def having(self, *fates: int) -> Settled:
        """Return those of which one of these became."""
        if not set(self.fates) - set(fates):
            return self
        rows = [i for i, fate in enumerate(self.fates) if fate in fates]
        return self._rows(rows)

    def without(self, fate: int) -> Settled:
        """Return those of which something else became."""
        if fate not in self.fates:
            return self
        return self._rows(
            [
                i
                for i, fate_of_row in enumerate(self.fates)
                if fate_of_row != fate
            ]
        )

    def _rows(self, rows: Sequence[int]) -> Settled:
        ids = [self.ids[i] for i in rows]
        fates = bytes([self.fates[i] for i in rows])
        return Settled(ids, self.codes[rows], self.f[rows], fates)


class Iteration:
    """The candidates drawn since the last iteration, and what became of each.

    Their ids begin with `first`.

    It is complete when `size` candidates were told or cancelled since then, whichever they are:
    `others` are those of earlier iterations. The first `n_initial_points` were not drawn by the
    algorithm. An iteration of these alone is complete when each of them is told or cancelled.
    """

    __slots__ = (
        "codes",
        "drawn",
        "f",
        "fates",
        "first",
        "missing",
        "n_initial_points",
        "others",
        "owners",
        "size",
    )

    def __init__(
        self, first: int, size: int, n_initial_points: int = 0
    ) -> None:
        self.first = first
        self.size = size
        self.n_initial_points = n_initial_points
        self.drawn = 0
        self.missing = size
        self.codes: Points
        self.f = EMPTY
        self.fates = bytearray()
        # From which row on which owner has asked
        self.owners: list[tuple[int, Owner | None]] = []
        # Ids, candidates, values and fates, in order of arrival
        self.others: list[tuple[int, Late, float, int]] = []

    def extend(self, codes: Points, owner: Owner | None = None) -> range:
        """Add pending candidates; return their ids."""
        start = self.first + self.drawn
        n_more = len(codes)
        if n_more and not (self.owners and self.owners[-1][1] == owner):
            self.owners.append((self.drawn, owner))
        # Sums over points depend on their layout in memory, which is that of a run that was not
        # interrupted.
        self.codes = np.ascontiguousarray(
            np.concatenate([self.codes, codes]) if self.drawn else codes
        )
        self.fates += bytes(n_more)
        self.drawn += n_more
        return range(start, start + n_more)

    @property
    def undrawn(self) -> int:
        """Candidates that can be drawn before the iteration may be complete."""
        return max(self.size - self.drawn - len(self.others), 0)

    @property
    def surplus(self) -> bool:
        """Whether there are more candidates than the iteration needs."""
        return self.drawn + len(self.others) > self.size

    def owner(self, row: int) -> Owner | None:
        """Return who has asked for a candidate."""
        return next(
            (owner for start, owner in reversed(self.owners) if start <= row),
            None,
        )

    def are_pending(self, ids: Sequence[int]) -> bool:
        """Return whether all of these are pending candidates of this iteration."""
        first = self.first
        fates = self.fates
        if isinstance(ids, range) and ids.step == 1:
            start = ids.start - first
            stop = ids.stop - first
            return (
                0 <= start <= stop <= self.drawn
                and fates.count(PENDING, start, stop) == stop - start
            )
        return all(
            0 <= id - first < self.drawn and fates[id - first] == PENDING
            for id in ids
        )

    def settle(self, ids: Sequence[int], f: Array, fate: int) -> None:
        """Store the values of candidates that are told or copied, or that these are cancelled."""
        if len(f) == self.missing == self.drawn and ids == range(
            self.first, self.first + self.drawn
        ):
            # The usual case: all of it at once
            self.f, self.fates, self.missing = f, bytearray([fate]) * len(f), 0
            return
        if len(self.f) < self.drawn:
            self.f = np.concatenate(
                [self.f, np.full(self.drawn - len(self.f), math.nan)]
            )
        for id, value in zip(ids, f.tolist(), strict=True):
            self.f[id - self.first] = value
            self.fates[id - self.first] = fate
        self.count_missing()

    def settle_late(self, id: int, late: Late, value: float, fate: int) -> None:
        """Store what became of a candidate of an earlier iteration."""
        self.others.append((id, late, value, fate))
        self.count_missing()

    def count_missing(self) -> None:
        """Count the candidates without which the iteration is not complete."""
        if self.size == self.n_initial_points > 1:
            self.missing = self.fates.count(PENDING, 0, self.size) + max(
                self.size - self.drawn, 0
            )
        else:
            settled = self.drawn - self.fates.count(PENDING) + len(self.others)
            self.missing = max(self.size - settled, 0)

    def settled(self) -> dict[Owner | None, Settled]:
        """Return what is not pending by owner; first what the algorithm has not asked for."""
        if (
            len(self.owners) == 1
            and not self.others
            and PENDING not in self.fates
        ):  # the usual case: the same array, packed before
            ids = range(self.first, self.first + self.drawn)
            part = Settled(ids, self.codes, self.f, self.fates)
            return {self.owners[0][1]: part}
        parts: dict[Owner | None, list[Settled]] = {None: []}
        for id, late, value, fate in sorted(self.others, key=itemgetter(0)):
            part = Settled(
                [id], late.code[None], np.array([value]), bytes([fate])
            )
            parts.setdefault(late.owner, []).append(part)
        for (start, owner), (stop, _) in pairwise(
            [*self.owners, (self.drawn, None)]
        ):
            ids = range(self.first + start, self.first + stop)
            fates = self.fates[start:stop]
            if PENDING not in fates:
                part = Settled(
                    ids, self.codes[start:stop], self.f[start:stop], fates
                )
            else:
                rows = [
                    i for i, fate in enumerate(fates, start) if fate != PENDING
                ]
                settled_ids = [self.first + i for i in rows]
                part = Settled(
                    settled_ids,
                    self.codes[rows],
                    self.f[rows],
                    bytes([self.fates[i] for i in rows]),
                )
            if len(part.ids):
                parts.setdefault(owner, []).append(part)
        return {
            owner: Settled.joined(parts_of_owner)
            for owner, parts_of_owner in parts.items()
            if parts_of_owner
        }

    def evaluated(self) -> tuple[Points, Array]:
        """Return the points of this iteration that were evaluated, and their values."""
        if self.fates.count(TOLD) == self.drawn:
            return self.codes, self.f  # the usual case
        rows = np.flatnonzero(np.frombuffer(self.fates, dtype=np.uint8) == TOLD)
        # By index: f may be shorter than codes
        return self.codes[rows], self.f[rows]

    def pending_ids(self) -> list[int]:
        """Return the ids of the pending candidates."""
        return [
            self.first + row
            for row, fate in enumerate(self.fates)
            if fate == PENDING
        ]
