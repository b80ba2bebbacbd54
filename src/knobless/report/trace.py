"""Traces: a run as pictures show it, which `plots.py` draws and the page of `report/` carries.

A `Trace` reads a journal once, row by row: the evaluations become columns, all of them; the iterations, which are
folded on the way, are thinned out evenly, and so are the rows of θ where there are more than one can see. It can
`follow` the same journal later and takes in only what is new by then. Values have the user's sign.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from knobless.core.adaptation import SNR
from knobless.core.algorithm import Algorithm
from knobless.core.types import Array, Points
from knobless.journal.records import COLUMNS, Event, Record, _explained, read
from knobless.run.candidates import CANCELLED, TOLD
from knobless.run.optimizer import Optimizer

from .marginals import heat_rows, marginals

__all__ = ["Trace"]

ROWS = 2048  # iterations kept, at most
THETA_HISTORY = 400  # of these, the ones of which θ is kept
DOTS = 2000  # single evaluations in a picture
BANDS = 100  # windows in which the values' quartiles are taken,
WINDOW = 20  # of at least so many evaluations
CHUNK = 10_000  # events read at once
FAILURE_MESSAGES = 200  # different things that failures say, kept
SAID_NOTHING = "The objective returned NaN."
SAID_OTHERWISE = "Something else; the journal has it."


class Step(NamedTuple):
    """One iteration; λ, λ_r and ε are those in force after it."""

    iteration: int
    nfev: int
    best: float
    lam: int
    lam_r: float
    eps: float
    snr: float
    entropy: float


class Steps(NamedTuple):
    """Calls and the best value from then on, one entry an improvement; the last call is there in any case."""

    calls: NDArray[np.int64]
    best: Array


class Bands(NamedTuple):
    """The values' quartiles in windows of calls."""

    calls: Array
    low: Array
    middle: Array
    high: Array


class FailureMessage(NamedTuple):
    """What failures said, how many said it, and the row of the first of them."""

    text: str
    times: int
    first: int


T = TypeVar("T")


class Thinned(Generic[T]):
    """Items by their number, thinned out evenly so that there are never more than `length`."""

    def __init__(self, length: int) -> None:
        self._length, self._stride = length, 1
        self.items: list[tuple[int, T]] = []

    def take(self, number: int, item: Callable[[], T]) -> None:
        if number % self._stride:
            return
        self.items.append((number, item()))
        if len(self.items) == self._length:
            self._stride *= 2
            self.items = [each for each in self.items if each[0] % self._stride == 0]


class Trace:
    """A run as it is in its journal.

    Columns, one entry a row of the journal: fates, values (NaN for none), iterations, positions, started, ended,
    workers, said (which of `failure_messages`, −1 for none). Their number is `len(trace)`.
    """

    def __init__(self, record: Record) -> None:
        self.name, self.identity = record.path.name, record.identity
        self.space, self.algorithm = record.space, record.algorithm
        self.direction, self.sign = record.direction, record.sign
        self.fates: list[int] = []
        self.values: list[float] = []
        self.iterations: list[int] = []
        self.positions: list[int] = []
        self.started: list[float] = []
        self.ended: list[float] = []
        self.workers: list[int] = []
        self.said: list[int] = []
        self.worker_names: dict[str, int] = {"": 0}
        self._codes, self._packing = bytearray(), record._packing
        self._failure_messages: dict[str, list[int]] = {}
        self._last: tuple[int, Event] | None = None  # the row taken in last, and its number
        self._best: tuple[float, int, int] | None = None  # value to be minimized, id, row
        self.marginals = marginals(record.space)
        self._heat = heat_rows(self.marginals)
        self._steps, self._theta_history = Thinned[Step](ROWS), Thinned[Array](THETA_HISTORY)
        self._opt = None if record.algorithm is None else self._begun(record, record.algorithm)
        self.follow(record)

    @classmethod
    def of(cls, run: Any) -> Self:
        """`run` as a trace: one already, a record, or the path of a journal."""
        if isinstance(run, cls):
            return run
        if isinstance(run, Record):
            return cls(run)
        if not isinstance(run, (str, os.PathLike)):
            raise TypeError(f"run: expected a journal, by its path or as knobless.journal.read gives it, got {run!r}")
        with read(run) as record:
            return cls(record)

    def _begun(self, record: Record, algorithm: Algorithm) -> Optimizer:
        """Before the first evaluation, and looked at after each iteration from then on."""
        with _explained(record.path):
            opt = Optimizer.folded(record.space, algorithm, record.identity, (), record.sign)
        self._theta_history.take(0, lambda: self._theta_row(opt))
        opt._on_iteration = lambda: self._iterated(opt)
        return opt

    def _iterated(self, opt: Optimizer) -> None:
        self._steps.take(opt.nit, lambda: self._step(opt))
        self._theta_history.take(opt.nit, lambda: self._theta_row(opt))

    def _step(self, opt: Optimizer) -> Step:
        iteration, nfev, best, lam, eps, snr, entropy, _ = opt.info
        return Step(iteration, nfev, self.sign * best, lam, opt.algorithm.info(opt._state).lam_r, eps, snr, entropy)

    def _theta_row(self, opt: Optimizer) -> Array:
        return np.clip(opt._state.theta[self._heat[1]], 0.0, 1.0)

    def follow(self, record: Record) -> bool:
        """Takes in what has been recorded since; False if this is not the run it was, or not with the same past."""
        self.meta, self.seed = record.meta, record.seed
        if record.identity != self.identity or (self._last and _chunk(record, self._last[0], 1) != [self._last]):
            return False
        # Chunk by chunk, so that no long look at the file keeps its writer from tidying up.
        while rows := _chunk(record, self._last[0] + 1 if self._last else -(2**63), CHUNK):
            events = [event for _, event in rows]
            with _explained(record.path):
                self._take(events)
                if self._opt is not None:
                    self._opt._replay(events, self.sign)
            self._last = rows[-1]
        return True

    def _take(self, chunk: Sequence[Event]) -> None:
        for row, event in enumerate(chunk, len(self)):
            value = math.nan if event.value is None else event.value
            f = self.sign * value
            if event.fate != CANCELLED and f < math.inf and self._is_better(f, event):
                self._best = f, event.id, row
            self.said.append(self._failure_message(event, row) if event.failed else -1)
            self.workers.append(self.worker_names.setdefault(event.worker or "", len(self.worker_names)))
            self.values.append(value)
        self.fates += [event.fate for event in chunk]
        self.iterations += [event.iteration for event in chunk]
        self.positions += [event.position for event in chunk]
        self.started += [math.nan if event.started is None else event.started for event in chunk]
        self.ended += [math.nan if event.ended is None else event.ended for event in chunk]
        codes = b"".join([event.code for event in chunk])
        # Looked at now, not when it is drawn; and each by itself, since one may be too long where another is too short.
        if any(len(event.code) != self._packing.width for event in chunk):
            raise ValueError(f"expected {self._packing.width} bytes for each point")
        self._packing.unpack(codes)
        self._codes += codes

    def _is_better(self, f: float, event: Event) -> bool:
        """Of equal ones the best is the one with the lowest id, as `Optimizer` has it."""
        if self._best is None or f != self._best[0]:
            return self._best is None or f < self._best[0]
        return event.fate == TOLD and event.id < self._best[1]

    def _failure_message(self, event: Event, row: int) -> int:
        text = event.failure or SAID_NOTHING
        if text not in self._failure_messages and len(self._failure_messages) >= FAILURE_MESSAGES:
            text = SAID_OTHERWISE
        found = self._failure_messages.setdefault(text, [len(self._failure_messages), 0, row])
        found[1] += 1
        return found[0]

    def __len__(self) -> int:
        return len(self.fates)

    # What there is to see.

    @property
    def failure_messages(self) -> list[FailureMessage]:
        """What failures said, each once."""
        return [FailureMessage(text, times, first) for text, (_, times, first) in self._failure_messages.items()]

    @property
    def calls(self) -> NDArray[np.int64]:
        """Evaluations up to and including each row; those of points added or given up are not counted."""
        return np.cumsum(np.array(self.fates, dtype=np.int64) == TOLD)

    def codes(self, since: int = 0) -> Points:
        """The points as codes, from the row `since` on."""
        return self._packing.unpack(bytes(self._codes[since * self._packing.width :]))

    @property
    def best(self) -> tuple[float, int, Points] | None:
        """The best value, its row and its code."""
        if self._best is None:
            return None
        width, (f, _, row) = self._packing.width, self._best
        return self.sign * f, row, self._packing.unpack(bytes(self._codes[row * width : (row + 1) * width]))[0]

    @property
    def theta(self) -> Array | None:
        """As it is now; None if the algorithm has parts of its user's own, which a journal does not have."""
        return None if self._opt is None else self._opt.theta

    @property
    def mode(self) -> Points | None:
        """The code of the most probable point; None where θ is not known."""
        return None if self._opt is None else self._opt.algorithm.family.mode(self._opt._state.theta)

    @property
    def steps(self) -> list[Step]:
        """The iterations, at most `ROWS` of them; the last is always there."""
        return _complete(self._steps.items, None if self._opt is None else self._step(self._opt), self._nit)

    @property
    def theta_history(self) -> tuple[list[str], NDArray[np.int64], Array]:
        """Names of rows of θ; iterations; and for each iteration a row of θ, from 0 to 1.

        For a bit that is the probability of a one, for a choice that of each option, for a number the place of the mean
        in its range.
        """
        if self._opt is None:
            return [], np.zeros(0, dtype=np.int64), np.zeros((0, 0))
        items = self._theta_history.items
        if items[-1][0] < self._nit:
            items = [*items, (self._nit, self._theta_row(self._opt))]
        return self._heat[0], np.array([number for number, _ in items]), np.array([shade for _, shade in items])

    @property
    def _nit(self) -> int:
        return 0 if self._opt is None else self._opt.nit

    @property
    def alpha(self) -> float | None:
        """The signal-to-noise ratio that is kept, if any is."""
        adaptation = getattr(self.algorithm, "adaptation", None)
        return adaptation.alpha if isinstance(adaptation, SNR) else None

    @property
    def improvements(self) -> Steps:
        """Where the best value so far changes."""
        return improvements(self.calls, np.array(self.values), self.sign)

    @property
    def dots(self) -> tuple[NDArray[np.int64], Array]:
        """Calls and their values, evenly thinned out."""
        told = np.flatnonzero(np.array(self.fates) == TOLD)
        shown = told[np.unique(np.linspace(0, len(told) - 1, min(len(told), DOTS)).astype(np.intp))]
        return self.calls[shown], np.array(self.values)[shown]

    @property
    def bands(self) -> Bands:
        """The values' quartiles over calls; failures do not count, and a window where all failed has none."""
        values = np.array(self.values)[np.array(self.fates, dtype=np.int64) == TOLD]
        edges = np.linspace(0, len(values), min(BANDS, len(values) // WINDOW) + 1).astype(np.intp)
        windows = [values[a:b] for a, b in pairwise(edges)]
        quartiles = np.array([_quartiles(window) for window in windows]).reshape(-1, 3)
        middles = (edges[:-1] + 1 + edges[1:]) / 2.0
        return Bands(middles, *quartiles.T)

    @property
    def extent(self) -> tuple[float, float]:
        """From where to where a picture of the values should go: the worst twentieth may lie outside."""
        values = np.array(self.values)
        values = self.sign * values[np.isfinite(values)]
        if not len(values):
            return 0.0, 1.0
        best, worst = float(values.min()), float(np.quantile(values, 0.95))
        room = 0.06 * (worst - best) or 0.06 * abs(best) or 1.0
        low, high = sorted((self.sign * (best - room), self.sign * (worst + room)))
        return low, high


def _chunk(record: Record, number: int, most: int) -> list[tuple[int, Event]]:
    """Rows from this number on, with their numbers."""
    query = f"SELECT number, {COLUMNS} FROM events WHERE number >= ? ORDER BY number LIMIT ?"
    with _explained(record.path):
        rows = record._connection.execute(query, (number, most)).fetchall()
    return [(number, Event._make(rest)) for number, *rest in rows]


def improvements(calls: NDArray[np.int64], values: Array, sign: float) -> Steps:
    """Where the best value so far changes."""
    f = np.where(np.isnan(values), math.inf, sign * values)
    running = np.minimum.accumulate(f) if len(f) else f
    better = np.flatnonzero(running < np.append(math.inf, running)[:-1])
    if len(better) and calls[better[-1]] < calls[-1]:
        better = np.append(better, len(f) - 1)
    return Steps(calls[better], sign * running[better])


def _quartiles(values: Array) -> Array:
    values = values[np.isfinite(values)]
    return np.quantile(values, [0.25, 0.5, 0.75]) if len(values) else np.full(3, math.nan)


def _complete(items: Sequence[tuple[int, Step]], last: Step | None, nit: int) -> list[Step]:
    """With the last iteration, if it was thinned out."""
    kept = [step for _, step in items]
    return [*kept, last] if last is not None and nit and (not kept or kept[-1].iteration < nit) else kept
