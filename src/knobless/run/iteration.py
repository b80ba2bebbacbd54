"""One iteration: its candidates and their values, and the record of it that users see."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from knobless.core.types import Array, Points
from knobless.core.violation import Infeasible
from knobless.journal.evaluations import Evaluations
from knobless.journal.events import CANCELLED, TOLD

PENDING = 0  # besides TOLD, CANCELLED, COPIED with the value of an equal point, and STOPPED with an estimate
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
        The best objective value so far; inf (−inf for `maximize`) before there is one. As long as no point is feasible,
        the value of the point with the least violation. NaN with several objectives.
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
        The point to use so far, as that of a `Result`. This and the following are for callbacks and stopping rules:
        they are computed when they are read, and only until the callback returns.
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
            raise AttributeError(f"info: expected {name} to be read in a callback, before it returns")
        return self._lookup


class Lookup(NamedTuple):
    """What an `Info` computes on demand: the point to use and its value, and the new evaluations."""

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
    """The best evaluation so far: its value to be minimized, its candidate, and where its point is found.

    Of an infeasible point, `rank` is an `Infeasible`, which has the value and the violation.
    """

    rank: float
    id: int
    at: Any

    @property
    def fun(self) -> float:
        """The objective value."""
        return self.rank.value if isinstance(self.rank, Infeasible) else self.rank

    @property
    def violation(self) -> float:
        """How much the point violates the constraints; 0 for a feasible one."""
        return self.rank.violation if isinstance(self.rank, Infeasible) else 0.0


def is_better(rank: float, id: int, best: Best | None) -> bool:
    """Return whether an evaluation is better than the best so far: a lower value, or an equal value with a lower id.

    The order of ids is that of (iteration, index). A point evaluated elsewhere has the id −1 and comes first.
    """
    return rank < math.inf and (best is None or (rank, id) < (best.rank, best.id))


class FirstFailure(NamedTuple):
    """The failed evaluation with the lowest id, and its message."""

    id: int
    text: str


class Late(NamedTuple):
    """A pending candidate of an earlier iteration."""

    iteration: int
    position: int
    code: Points


class Iteration:
    """The candidates drawn from one θ, with the ids `first` and on, and what became of each.

    It is complete when the first `size` candidates are told or cancelled. The first `n_initial_points` of them were not
    drawn from θ.
    """

    __slots__ = ("codes", "drawn", "f", "fates", "first", "missing", "n_initial_points", "size")

    def __init__(self, first: int, size: int, n_initial_points: int = 0) -> None:
        self.first = first
        self.size = size
        self.n_initial_points = n_initial_points
        self.drawn = 0
        self.missing = size
        self.codes: Points
        self.f = EMPTY
        self.fates = bytearray()

    def extend(self, codes: Points) -> range:
        """Add pending candidates; return their ids."""
        start, more = self.first + self.drawn, len(codes)
        # Sums over points depend on their layout in memory, which is that of a run that was not interrupted.
        self.codes = np.ascontiguousarray(np.concatenate([self.codes, codes]) if self.drawn else codes)
        self.fates += bytes(more)
        self.drawn += more
        return range(start, start + more)

    def are_pending(self, ids: Sequence[int]) -> bool:
        """Return whether all of these are pending candidates of this iteration."""
        first, fates = self.first, self.fates
        if isinstance(ids, range) and ids.step == 1:
            start, stop = ids.start - first, ids.stop - first
            return 0 <= start <= stop <= self.drawn and fates.count(PENDING, start, stop) == stop - start
        return all(0 <= id - first < self.drawn and fates[id - first] == PENDING for id in ids)

    def settle(self, ids: Sequence[int], f: Array, fate: int) -> None:
        """Store the values of candidates that are told or copied, or that these are cancelled."""
        if len(f) == self.missing == self.drawn and ids == range(self.first, self.first + self.drawn):
            self.f, self.fates, self.missing = f, bytearray([fate]) * len(f), 0  # the usual case: all of it at once
            return
        if len(self.f) < self.drawn:
            self.f = np.concatenate([self.f, np.full(self.drawn - len(self.f), math.nan)])
        for id, value in zip(ids, f.tolist(), strict=True):
            self.f[id - self.first] = value
            self.fates[id - self.first] = fate
        self.count_missing()

    def count_missing(self) -> None:
        """Count the candidates without which the iteration is not complete."""
        self.missing = self.fates.count(PENDING, 0, self.size) + max(self.size - self.drawn, 0)

    def samples(self) -> tuple[Points, Array, bytes | bytearray]:
        """Return what the algorithm learns from: of the first `size`, the points drawn from θ, their values and fates.

        A fate is what the row is in the archive.
        """
        if self.drawn == self.size and not self.n_initial_points and CANCELLED not in self.fates:
            return self.codes, self.f, self.fates  # the usual case
        rows = slice(self.n_initial_points, self.size)
        if CANCELLED not in self.fates:
            return self.codes[rows], self.f[rows], self.fates[rows]
        kept = np.flatnonzero(np.frombuffer(self.fates, dtype=np.uint8)[rows] != CANCELLED)
        fates = self.fates[rows]
        return self.codes[rows][kept], self.f[rows][kept], bytes([fates[i] for i in kept.tolist()])

    def evaluated(self, stop: int | None = None) -> tuple[Points, Array]:
        """Return the points that were evaluated, and their values; those with an index below `stop` if it is given."""
        if self.fates.count(TOLD) == self.drawn <= (self.drawn if stop is None else stop):
            return self.codes, self.f  # the usual case
        told = np.flatnonzero(np.frombuffer(self.fates, dtype=np.uint8)[:stop] == TOLD)
        return self.codes[told], self.f[told]  # by index: f may be shorter than codes

    def pending_ids(self) -> list[int]:
        """Return the ids of the pending candidates."""
        return [self.first + row for row, fate in enumerate(self.fates) if fate == PENDING]
