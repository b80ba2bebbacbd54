"""Traces: the data of a journal as `knobless.plots` and the page of `knobless.report` show them.

A `Trace` reads a journal once: all evaluations become columns; the iterations, which are replayed,
are thinned out evenly, and so are the rows of θ. It can `follow` the same journal later and then
reads only what is new. Values have the user's sign.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from knobless.core.adaptation import SNR
from knobless.core.algorithm import Algorithm
from knobless.core.several import Several
from knobless.core.types import Array, Points
from knobless.journal.evaluations import attributes_of
from knobless.journal.events import ADDED, CHECKED, RETURNED_NAN, TOLD, unpacked
from knobless.journal.records import Event, Record, read
from knobless.run.iteration import Best, Info, is_better
from knobless.run.recommendation import Recommended
from knobless.run.recording import replay
from knobless.run.result import ThinnedList
from knobless.run.run_state import RunState

from .attributes import Attributes
from .checks import Checks
from .marginals import evenly, heat_rows, marginals_of
from .observed import Observed
from .outcomes import Outcomes

__all__ = ["Trace"]

_LARGEST = 4e307  # of a value in a plot
MAX_ITERATIONS = 2048  # iterations kept, at most
SPREADS = 64  # variables of which the entropy over time is kept, at most
THETA_HISTORY = 400  # iterations of which θ is kept, at most
DOTS = 2000  # single evaluations in a plot, at most
# Windows in which the quartiles of the values are computed, at most
BANDS = 100
WINDOW = 20  # evaluations of a window, at least
CHUNK = 10_000  # events read at once
FAILURE_MESSAGES = 200  # distinct messages of failures that are kept, at most
CURVES = 400  # learning curves in a plot, at most
OTHER_FAILURES = "Other failures; the journal has their messages."


class Steps(NamedTuple):
    """Evaluations and the best value from each on.

    There is one entry per improvement, and one for the last evaluation.
    """

    calls: NDArray[np.int64]
    best: Array


class Bands(NamedTuple):
    """Quartiles of the values in windows of evaluations."""

    calls: Array
    low: Array
    middle: Array
    high: Array


class FailureMessage(NamedTuple):
    """A message of failed evaluations, their number, and the row of the first of them."""

    text: str
    times: int
    first: int


class LearningCurve(NamedTuple):
    """The values of an evaluation at its steps, and whether it was stopped.

    Of several objectives, the values are those of the first.
    """

    row: int
    values: Array
    stopped: bool


class Trace:
    """The data of a journal.

    Parameters
    ----------
    record : Record
        The journal, opened for reading. `Trace.of` also takes a path.

    Attributes
    ----------
    fates, values, iterations, positions, started, ended, workers, failure_index, step_counts,
    stopped : list
        Columns with one entry per row of the journal, `len(trace)` of them. A value is NaN if there
        is none; a worker is a number of `worker_names`; a failure is an index of
        `failure_messages`, −1 for none; the number of steps is 0 if the objective does not yield.
    attributes : Attributes
        The attributes of each row.
    """

    def __init__(self, record: Record) -> None:
        self.name = record.path.name
        self.identity = record.identity
        self.space = record.space
        self.algorithm = record.algorithm
        self.direction = record.direction
        self.sign = record.sign
        self.objectives = record.identity.directions
        if self.objectives:  # what is shown over evaluations is the first one
            self.direction = (
                "minimize"
                if next(iter(self.objectives.values())) == "min"
                else "maximize"
            )
            self.sign = 1.0 if self.direction == "minimize" else -1.0
        self._outcomes: list[tuple[float, ...]] = []
        self._infeasible: list[bool] = []
        self.fates: list[int] = []
        self.values: list[float] = []
        self.iterations: list[int] = []
        self.positions: list[int] = []
        self.started: list[float] = []
        self.ended: list[float] = []
        self.workers: list[int] = []
        self.failure_index: list[int] = []
        self.step_counts: list[int] = []
        self.stopped: list[bool] = []
        self.worker_names: dict[str, int] = {"": 0}
        self._codes = bytearray()
        self._family = record.space.family
        self._failure_messages: dict[str, list[int]] = {}
        # The row taken in last, and its number
        self._last: tuple[int, Event] | None = None
        self._best: Best | None = None  # at a row
        self._checks = Checks(record.sign)
        self.attributes = Attributes()
        self.marginals = marginals_of(record.space)
        self._heat = heat_rows(self.marginals)
        self._spread_of = [
            self.marginals[i] for i in evenly(len(self.marginals), SPREADS)
        ]
        self._steps, self._theta_history = (
            ThinnedList[Info](MAX_ITERATIONS),
            ThinnedList[Array](THETA_HISTORY),
        )
        self._spreads = ThinnedList[Array](THETA_HISTORY)
        self._curves = ThinnedList[LearningCurve](CURVES + 1)
        self._n_curves = 0
        self._run = (
            None
            if record.algorithm is None
            else self._started(record, record.algorithm)
        )
        self.follow(record)

    @classmethod
    def of(cls, run: Any) -> Self:
        """Return a journal as a trace.

        Parameters
        ----------
        run : Trace, Record or path-like
            A trace is returned as it is.

        Raises
        ------
        TypeError
            If `run` is none of these.
        JournalError
            If there is no valid journal at the path.
        """
        if isinstance(run, cls):
            return run
        if isinstance(run, Record):
            return cls(run)
        if not isinstance(run, (str, os.PathLike)):
            raise TypeError(
                "run: expected a journal, by its path or as knobless.journal.read gives it, got "
                f"{run!r}"
            )
        with read(run) as record:
            return cls(record)

    def _started(self, record: Record, algorithm: Algorithm) -> RunState:
        """Return the run before its first evaluation; each of its iterations will be kept."""
        with record.explained():
            run = RunState.from_identity(
                record.identity, record.space, algorithm
            )
        self._theta_history.take(0, lambda: self._theta_row(run))
        self._spreads.take(0, lambda: self._spread_row(run))
        run.on_iteration = lambda: self._iterated(run)
        return run

    def _iterated(self, run: RunState) -> None:
        self._steps.take(run.nit, lambda: self._info(run))
        self._theta_history.take(run.nit, lambda: self._theta_row(run))
        self._spreads.take(run.nit, lambda: self._spread_row(run))

    def _info(self, run: RunState) -> Info:
        info = run.info
        return info._replace(best=self.sign * info.best, theta=None)

    def _theta_row(self, run: RunState) -> Array:
        return np.clip(run.search.theta[self._heat[1]], 0.0, 1.0)

    def _spread_row(self, run: RunState) -> Array:
        return np.array(
            [marginal.spread(run.search.theta) for marginal in self._spread_of]
        )

    def follow(self, record: Record) -> bool:
        """Read the rows that were recorded since the last call.

        Parameters
        ----------
        record : Record
            The same journal, opened for reading.

        Returns
        -------
        bool
            False if the journal is that of another run, or if rows that were read before have
            changed.
        """
        self.meta = record.meta
        self.seed = record.seed
        if record.identity != self.identity or (
            self._last and record.since(self._last[0], 1) != [self._last]
        ):
            return False
        # Chunk by chunk, so that no long transaction keeps the writer from a checkpoint.
        while rows := record.since(
            self._last[0] + 1 if self._last else -(2**63), CHUNK
        ):
            events = [event for _, event in rows]
            with record.explained():
                self._take(events)
                if self._run is not None:
                    replay(self._run, events, self._family, record.sign)
            self._last = rows[-1]
        if self._run is not None:
            with record.explained():
                self._run.redraw(record.drawn)
        return True

    def _take(self, chunk: Sequence[Event]) -> None:
        for row, event in enumerate(chunk, len(self)):
            self._take_steps(event, row)
            if isinstance(event.value, Several):
                self._outcomes.append(event.value.values)
                event = event._replace(value=event.value.values[0])
            elif self._several:
                self._outcomes.append((math.nan,) * self._several)
            self._infeasible.append(event.violation is not None)
            value = math.nan if event.value is None else event.value
            rank = event.rank(self.sign)
            self._checks.take(event)
            self.attributes.take(attributes_of(event))
            if event.fate in (TOLD, ADDED) and is_better(
                rank, event.id, self._best
            ):
                self._best = Best(rank, event.id, row)
            self.failure_index.append(
                self._failure_message(event, row) if event.failed else -1
            )
            self.workers.append(
                self.worker_names.setdefault(
                    event.worker or "", len(self.worker_names)
                )
            )
            self.values.append(value)
        self.fates += [event.fate for event in chunk]
        self.iterations += [event.iteration for event in chunk]
        self.positions += [event.position for event in chunk]
        self.started += [
            math.nan if event.started is None else event.started
            for event in chunk
        ]
        self.ended += [
            math.nan if event.ended is None else event.ended for event in chunk
        ]
        # Checked here and not when they are plotted
        unpacked(chunk, self._family)
        self._codes += b"".join([event.code for event in chunk])

    def _take_steps(self, event: Event, row: int) -> None:
        steps = [] if event.steps is None else event.curve
        self.step_counts.append(len(steps))
        self.stopped.append(bool(event.stopped))
        if steps:
            first = [
                value[0] if isinstance(value, tuple) else value
                for value in steps
            ]
            self._curves.take(
                self._n_curves,
                lambda: LearningCurve(
                    row, np.array(first), bool(event.stopped)
                ),
            )
            self._n_curves += 1

    def _failure_message(self, event: Event, row: int) -> int:
        text = event.failure or RETURNED_NAN
        if (
            text not in self._failure_messages
            and len(self._failure_messages) >= FAILURE_MESSAGES
        ):
            text = OTHER_FAILURES
        message = self._failure_messages.setdefault(
            text, [len(self._failure_messages), 0, row]
        )
        message[1] += 1
        return message[0]

    def __len__(self) -> int:
        return len(self.fates)

    @property
    def failure_messages(self) -> list[FailureMessage]:
        """The messages of failed evaluations, each once."""
        return [
            FailureMessage(text, times, first)
            for text, (_, times, first) in self._failure_messages.items()
        ]

    @property
    def calls(self) -> NDArray[np.int64]:
        """Evaluations up to and including each row.

        Cancelled candidates and points evaluated elsewhere are not counted.
        """
        return np.cumsum(self.evaluated)

    @property
    def evaluated(self) -> NDArray[np.bool_]:
        """Whether each row is an evaluation."""
        return np.isin(np.array(self.fates, dtype=np.int64), (TOLD, CHECKED))

    def codes(self, since: int = 0) -> Points:
        """Return the points as codes.

        Parameters
        ----------
        since : int
            Row of the first point.
        """
        return self._family.unpack(
            bytes(self._codes[since * self._family.width :])
        )

    @property
    def best(self) -> tuple[float, int, Points] | None:
        """The best value that the search has learned from, its row and its code."""
        if self._best is None:
            return None
        width = self._family.width
        row = self._best.at
        code = self._family.unpack(
            bytes(self._codes[row * width : (row + 1) * width])
        )[0]
        return self.sign * self._best.fun, row, code

    @property
    def _several(self) -> int:
        """Number of objectives if there are several, else 0."""
        return len(self.objectives)

    @property
    def outcomes(self) -> Outcomes | None:
        """The values of several objectives, one row per row of the journal.

        None for a single objective.
        """
        if not self.objectives:
            return None
        values = np.array(self._outcomes, dtype=float).reshape(
            -1, self._several
        )
        infeasible = np.array(self._infeasible, dtype=bool)
        return Outcomes.of_points(
            self.space, self.objectives, self.codes(), values, infeasible
        )

    @property
    def deterministic(self) -> bool | None:
        """Whether the objective is deterministic, as stated or found so far.

        None if that is not known.
        """
        if self._run is None:
            return self.identity.deterministic
        return self._run.deterministic

    @property
    def recommended(self) -> Recommended | None:
        """The code of the point to use, an estimate of its mean and its standard error.

        None unless it is noisy.
        """
        if (
            self._run is None
            or self.deterministic is not False
            or self.objectives
        ):
            return None
        recommended = self._checks.recommended(self._run)
        if recommended is None:
            return None
        return recommended._replace(fun=self.sign * recommended.fun)

    @property
    def theta(self) -> Array | None:
        """The current θ.

        None if the algorithm has custom components, which a journal does not store.
        """
        return None if self._run is None else self._run.search.theta.copy()

    @property
    def mode(self) -> Points | None:
        """The code of the most probable point; None if θ is not known."""
        return None if self._run is None else self._run.mode

    @property
    def steps(self) -> list[Info]:
        """The iterations without θ, thinned out evenly; the last one is always included."""
        kept = [info for _, info in self._steps.items]
        if (
            self._run is None
            or not self._nit
            or (kept and kept[-1].iteration == self._nit)
        ):
            return kept
        return [*kept, self._info(self._run)]

    @property
    def theta_history(self) -> tuple[list[str], NDArray[np.int64], Array]:
        """Names of rows of θ; iterations; and for each iteration a row of θ, from 0 to 1.

        For a bit it is the probability of a one, for a choice that of each option, for a number the
        position of the mean in its range.
        """
        if self._run is None:
            return [], np.zeros(0, dtype=np.int64), np.zeros((0, 0))
        return self._heat[0], *self._over_time(
            self._theta_history, self._theta_row(self._run)
        )

    @property
    def entropies(self) -> tuple[list[str], NDArray[np.int64], Array]:
        """Names of variables.

        Iterations; and for each iteration the entropy of each variable, from 0 to 1.

        For a variable with options it is the entropy of its probabilities, for a number its
        standard deviation, each divided by its initial value. Those that decrease first matter
        most. Of many variables, 64 are chosen evenly.
        """
        if self._run is None:
            return [], np.zeros(0, dtype=np.int64), np.zeros((0, 0))
        iterations, rows = self._over_time(
            self._spreads, self._spread_row(self._run)
        )
        first = np.where(rows[0] > 0.0, rows[0], 1.0)
        return (
            [marginal.name for marginal in self._spread_of],
            iterations,
            np.clip(rows / first, 0.0, 1.0),
        )

    def _over_time(
        self, kept: ThinnedList[Array], last: Array
    ) -> tuple[NDArray[np.int64], Array]:
        """Return iterations and a row for each, the last iteration included."""
        items = (
            kept.items
            if kept.items[-1][0] >= self._nit
            else [*kept.items, (self._nit, last)]
        )
        return np.array([number for number, _ in items]), np.array(
            [row for _, row in items]
        )

    @property
    def observed(self) -> Observed:
        """The points with a value, and these values."""
        values = np.array(self.values, dtype=float)
        kept = ~np.isnan(values)
        return Observed(self.space, self.sign, self.codes()[kept], values[kept])

    @property
    def _nit(self) -> int:
        return 0 if self._run is None else self._run.nit

    @property
    def alpha(self) -> float | None:
        """The target α of the signal-to-noise ratio; None without adaptation."""
        algorithm = self.algorithm if self._run is None else self._run.algorithm
        adaptation = getattr(algorithm, "adaptation", None)
        return adaptation.alpha if isinstance(adaptation, SNR) else None

    @property
    def improvements(self) -> Steps:
        """The evaluations at which the best value changes."""
        values = np.where(
            np.array(self.fates, dtype=np.int64) == CHECKED,
            math.nan,
            np.array(self.values, dtype=float),
        )
        return improvements(self.calls, values, self.sign)

    @property
    def dots(self) -> tuple[NDArray[np.int64], Array]:
        """Evaluations and their values, thinned out evenly."""
        rows = np.flatnonzero(self.evaluated)
        shown = rows[
            np.unique(
                np.linspace(0, len(rows) - 1, min(len(rows), DOTS)).astype(
                    np.intp
                )
            )
        ]
        return self.calls[shown], drawable(np.array(self.values)[shown])

    @property
    def curves(self) -> list[LearningCurve]:
        """The values of evaluations at their steps, thinned out evenly.

        None if the objective does not yield.
        """
        return [curve for _, curve in self._curves.items]

    @property
    def bands(self) -> Bands:
        """Quartiles of the values, without failures.

        NaN in a window in which all evaluations failed.
        """
        values = np.array(self.values)[self.evaluated]
        edges = np.linspace(
            0, len(values), min(BANDS, len(values) // WINDOW) + 1
        ).astype(np.intp)
        windows = [values[a:b] for a, b in pairwise(edges)]
        quartiles = np.array(
            [_quartiles(window) for window in windows]
        ).reshape(-1, 3)
        middles = (edges[:-1] + 1 + edges[1:]) / 2.0
        return Bands(middles, *quartiles.T)

    @property
    def extent(self) -> tuple[float, float]:
        """Limits of a plot of the values; the worst 5% may lie outside."""
        return extent(np.array(self.values), self.sign)


def drawable(values: Array) -> Array:
    """Return values of which the differences do not overflow.

    Only those beyond ±4e307 are changed.
    """
    return np.where(
        np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), values
    )


def extent(values: Array, sign: float) -> tuple[float, float]:
    """Return limits of a plot of values; the worst 5% may lie outside."""
    values = sign * drawable(values[np.isfinite(values)])
    if not len(values):
        return 0.0, 1.0
    best = float(values.min())
    worst = float(np.quantile(values, 0.95))
    room = 0.06 * (worst - best) or 0.06 * abs(best) or 1.0
    low, high = sorted((sign * (best - room), sign * (worst + room)))
    return low, high


def improvements(calls: NDArray[np.int64], values: Array, sign: float) -> Steps:
    """Return the evaluations at which the best value changes."""
    f = np.where(np.isnan(values), math.inf, sign * values)
    running = np.minimum.accumulate(f) if len(f) else f
    better = np.flatnonzero(running < np.append(math.inf, running)[:-1])
    if len(better) and calls[better[-1]] < calls[-1]:
        better = np.append(better, len(f) - 1)
    return Steps(calls[better], sign * running[better])


def _quartiles(values: Array) -> Array:
    values = drawable(values[np.isfinite(values)])
    if len(values):
        return np.quantile(values, [0.25, 0.5, 0.75])
    return np.full(3, math.nan)


def run_names(runs: Sequence[Any]) -> list[str]:
    """Return a different name for each run.

    The name of a journal is that of its file, with the folder where names are equal.
    """
    paths = [_path_of(run) for run in runs]
    stems = [
        f"run {i}" if path is None else path.stem
        for i, path in enumerate(paths, 1)
    ]
    names: list[str] = []
    for stem, path in zip(stems, paths, strict=True):
        name = (
            stem
            if path is None or stems.count(stem) == 1
            else f"{path.absolute().parent.name}/{stem}"
        )
        while name in names:
            name += "'"
        names.append(name)
    return names


def _path_of(run: Any) -> Path | None:
    """Return the path of a journal; None for what is none."""
    if isinstance(run, (str, os.PathLike)):
        return Path(run)
    if isinstance(run, Record):
        return run.path
    return Path(run.name) if isinstance(run, Trace) else None
