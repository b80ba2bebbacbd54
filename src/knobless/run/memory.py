"""The rows of a run without a journal: packed points, values and times, in arrays of bounded size.

To keep an iteration only stores what the run has computed anyway. Every few thousand evaluations,
or when they are accessed, these are packed. Until then they are few objects, because Python's
garbage collector visits each of them.
"""

from __future__ import annotations

import math
import os
import time
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knobless.core.early_stopping import Curve
from knobless.core.several import Several
from knobless.core.types import Array, Points
from knobless.core.violation import Infeasible
from knobless.journal.evaluations import (
    ROWS_AT_ONCE,
    Evaluations,
    ListedRows,
    names_in,
)
from knobless.journal.events import CHECKED, TOLD, Event, steps_of
from knobless.parallel.evaluation import Outcome, process_name
from knobless.parallel.returned import Attributed
from knobless.space.space import Space

from .candidates import NONE, Batch, ToldValues
from .recording import shortened
from .run_state import RunState
from .sink import Positions, Value

KEPT_EVALUATIONS = 2**18
KEPT_BYTES = 2**26  # of packed points
MOST_MESSAGES = 256  # different messages of failures
OTHER_MESSAGE = f"message not kept: more than {MOST_MESSAGES} different ones"
# Evaluations that are packed at once, so that most runs never are
PACKED_AT_ONCE = 2**14
UNPACKED_BYTES = 2**22  # of points that are not packed yet


class KeptGroup(NamedTuple):
    """Evaluations of one iteration that became known together.

    See `ToldValues` for their values.
    """

    iteration: int
    fate: int
    first: int  # the id of the candidate at position 0
    ids: Sequence[int]
    codes: Points
    f: Array
    failures: Mapping[int, str]
    infeasible: Mapping[int, Infeasible]
    several: Mapping[int, Several]
    curves: Mapping[int, Curve]
    attributes: Mapping[int, str]
    times: int  # their first entry of the times
    workers: Sequence[int]  # where they ran; none for this process


class Block(NamedTuple):
    """Packed evaluations.

    `rows` has (iteration, fate, id, position, worker), `times` (started, ended) of each.
    """

    codes: bytes
    values: Array
    rows: NDArray[np.int64]
    times: Array
    failures: Mapping[int, str]
    violations: Mapping[int, float]
    several: Mapping[int, Several]
    curves: Mapping[int, tuple[bytes, int]]  # as the fields of an event
    attributes: Mapping[int, str]


class Memory:
    """The last evaluations of a run, in the order of their candidates.

    Values are stored with the user's sign.
    """

    def __init__(
        self,
        space: Space,
        sign: float,
        objectives: Mapping[str, str] | None = None,
    ) -> None:
        self._space = space
        self._sign = sign
        self._objectives = objectives
        self._family = family = space.family
        self._most = max(
            min(KEPT_EVALUATIONS, KEPT_BYTES // max(family.width, 1)), 1
        )
        width = max(family.variables * family.dtype.itemsize, 1)
        self._at_once = max(min(PACKED_AT_ONCE, UNPACKED_BYTES // width), 1)
        self._workers: dict[str, int] = {process_name(os.getpid()): 0}
        self._messages: dict[str, str] = {}
        self._epoch = time.time() - time.monotonic()
        self.clear()

    def clear(self) -> None:
        """Delete all rows."""
        # Start and end of each evaluation that is not packed, by time.monotonic()
        self._times = array("d")
        self._first_time = 0  # in these, of the evaluations that are expected
        # Of other processes, not kept yet
        self._outcomes: dict[tuple[bool, int], Outcome] = {}
        # Whether the search learns nothing from the evaluations that are expected
        self._checking = False
        self._groups: list[KeptGroup] = []
        self._waiting = 0  # evaluations in these
        # Of candidates that are not kept yet
        self._attributes: dict[int, str] = {}
        self._blocks: deque[Block] = deque()
        self._packed = 0  # evaluations in these
        self._checked = 0  # evaluations so far that the search was not told

    # From values to rows.

    def recall(
        self, candidates: Batch, positions: Positions | None = None
    ) -> dict[int, Value]:
        """Return no values: each candidate is evaluated."""
        return {}

    def expect(
        self, candidates: Batch, positions: Positions | None = None
    ) -> None:
        """Prepare rows of candidates whose evaluations begin."""
        if self._waiting >= self._at_once:
            self._pack()
        self._first_time = len(self._times)
        self._checking = positions is not None

    def record(self, outcomes: Sequence[Outcome]) -> None:
        """Record evaluations that have ended elsewhere."""
        self._outcomes |= {
            (self._checking, outcome.id): outcome for outcome in outcomes
        }
        self._attributes |= {
            outcome.id: outcome.value.text
            for outcome in outcomes
            if isinstance(outcome.value, Attributed)
        }

    def record_arrivals(self, outcomes: Sequence[Outcome]) -> None:
        """Record evaluations that have ended elsewhere, whose values are used in this order."""
        if self._waiting >= self._at_once:
            self._pack()
        self.record(outcomes)

    def arrival(self) -> None:
        """Return None: there are no recorded values."""

    def record_here(
        self, id: int, value: Value, started: float, ended: float
    ) -> None:
        """Record an evaluation that has ended in this process, with times by `time.monotonic()`."""
        append = self._times.append
        append(started)
        append(ended)
        if isinstance(value, Attributed):
            self._attributes[id] = value.text

    def record_together(
        self,
        ids: Sequence[int],
        values: Sequence[Value],
        started: float,
        ended: float,
    ) -> None:
        """Record evaluations of one call in this process, as `record_here` does."""
        self._times.extend((started, ended) * len(ids))

    def keep(
        self,
        run: RunState,
        candidates: Batch,
        values: ToldValues,
        positions: Positions | None = None,
    ) -> None:
        """Count values, in the order of their candidates, as evaluations of the run."""
        ids = candidates.ids
        codes = candidates.codes
        # Of an earlier iteration, told alone
        if positions is None and ids[0] < run.iteration.first:
            _, _, ((nit, position),) = run.located(ids)
            first = ids[0] - position
        else:
            first = run.iteration.first + run.iteration.n_initial_points
            nit = run.nit
        times = self._first_time
        workers = (
            self._take_outcomes(ids, positions is not None)
            if self._outcomes
            else ()
        )
        if workers:
            times = len(self._times) - 2 * len(ids)
        self._waiting += len(ids)
        noted = self._attributes
        popped = self._attributes.pop
        attributes = (
            {i: popped(id) for i, id in enumerate(ids) if id in noted}
            if noted
            else NONE
        )
        if positions is None:
            self._groups.append(
                KeptGroup(
                    nit,
                    TOLD,
                    first,
                    ids,
                    codes,
                    *values,
                    attributes,
                    times,
                    workers,
                )
            )
            return
        self._checked += len(ids)
        for i, id in enumerate(ids):
            noted_here = {0: attributes[i]} if i in attributes else NONE
            of_one = (
                [id],
                codes[i : i + 1],
                *values.at(i),
                noted_here,
                times + 2 * i,
                workers[i : i + 1],
            )
            self._groups.append(
                KeptGroup(nit, CHECKED, id - positions[id], *of_one)
            )

    def _take_outcomes(
        self, ids: Sequence[int], checking: bool
    ) -> Sequence[int]:
        """Append the times of evaluations that have ended elsewhere.

        Return their workers, by number.
        """
        workers = []
        for id in ids:
            _, _, started, ended, worker, _ = self._outcomes.pop((checking, id))
            self._times.extend((started - self._epoch, ended - self._epoch))
            workers.append(self._workers.setdefault(worker, len(self._workers)))
        return workers

    def drawn(self) -> None:
        """Do nothing: a run without a journal is not resumed."""

    def evaluations(self, nfev: int) -> Evaluations:
        """Return the evaluations of the run, of which there were `nfev`."""
        direction = "minimize" if self._sign > 0 else "maximize"
        return Evaluations(
            self._space, direction, self, nfev - len(self), self._objectives
        )

    def latest(self, ids: Sequence[int]) -> Evaluations:
        """Return the evaluations of candidates that were kept last, in the order of `ids`."""
        rows = len(ids) + self._checked  # others may be between them
        events = [
            event
            for chunk in self.chunks(max(len(self) - rows, 0), len(self))
            for event in chunk
        ]
        latest = {event.id: event for event in events if event.fate == TOLD}
        kept = ListedRows([latest[id] for id in ids if id in latest])
        direction = "minimize" if self._sign > 0 else "maximize"
        return Evaluations(
            self._space, direction, kept, len(ids) - len(kept), self._objectives
        )

    def _pack(self) -> None:
        """Pack the groups into one block, and drop the oldest blocks that are not needed."""
        groups = self._groups
        if not groups:
            return
        codes = np.concatenate([group.codes for group in groups])
        values = self._sign * np.concatenate([group.f for group in groups])
        sizes = [len(group.f) for group in groups]
        rows = np.empty((len(values), 5), dtype=np.int64)
        rows[:, :3] = np.repeat(
            [(group.iteration, group.fate, group.first) for group in groups],
            sizes,
            axis=0,
        )
        ids = np.array([id for group in groups for id in group.ids])
        rows[:, 2], rows[:, 3] = ids, np.maximum(ids - rows[:, 2], -1)
        flat: list[float] = []
        workers: list[int] = []
        for group in groups:
            flat.extend(
                self._times[group.times : group.times + 2 * len(group.f)]
            )
            workers.extend(group.workers or [0] * len(group.f))
        rows[:, 4] = workers
        times = np.array(flat).reshape(-1, 2) + self._epoch
        failures = {
            start + i: self._message(text)
            for start, group in zip(
                accumulate(sizes, initial=0), groups, strict=False
            )
            for i, text in group.failures.items()
        }
        infeasible = {
            start + i: rank
            for start, group in zip(
                accumulate(sizes, initial=0), groups, strict=False
            )
            for i, rank in group.infeasible.items()
        }
        several = {
            start + i: rank
            for start, group in zip(
                accumulate(sizes, initial=0), groups, strict=False
            )
            for i, rank in group.several.items()
        }
        curves = {
            start + i: steps_of(curve, self._sign)
            for start, group in zip(
                accumulate(sizes, initial=0), groups, strict=False
            )
            for i, curve in group.curves.items()
        }
        attributes = {
            start + i: text
            for start, group in zip(
                accumulate(sizes, initial=0), groups, strict=False
            )
            for i, text in group.attributes.items()
        }
        for row, rank in infeasible.items():
            values[row] = self._sign * rank.value
            if isinstance(rank.value, Several):
                several[row] = rank.value
        violations = {row: rank.violation for row, rank in infeasible.items()}
        block = Block(
            self._family.pack(codes),
            values,
            rows,
            times,
            failures,
            violations,
            several,
            curves,
            attributes,
        )
        self._blocks.append(block)
        self._packed += len(values)
        self._times = array("d")
        self._groups = []
        self._waiting = 0
        while self._packed - len(self._blocks[0].values) >= self._most:
            self._packed -= len(self._blocks.popleft().values)

    def _message(self, text: str) -> str:
        """Return a message of a failure; of many different ones only the first are kept."""
        text = shortened(text)
        if len(self._messages) < MOST_MESSAGES:
            return self._messages.setdefault(text, text)
        return self._messages.get(text, OTHER_MESSAGE)

    # From rows to evaluations.

    def __len__(self) -> int:
        return min(self._packed + self._waiting, self._most)

    def chunks(self, start: int, stop: int) -> Iterator[list[Event]]:
        """Yield the evaluations from `start` to before `stop`, a few at a time."""
        self._pack()
        workers = list(self._workers)
        skipped = self._packed - len(self)
        low, high = start + skipped, stop + skipped  # among all that are packed
        first = 0
        for block in self._blocks:
            end = first + len(block.values)
            for at in range(max(low, first), min(high, end), ROWS_AT_ONCE):
                yield self._events(
                    block,
                    at - first,
                    min(at + ROWS_AT_ONCE, high, end) - first,
                    workers,
                )
            first = end

    def attribute_names(self) -> list[str]:
        """Return the names of all attributes, in the order in which they first occur."""
        self._pack()
        return names_in(
            text for block in self._blocks for text in block.attributes.values()
        )

    def _events(
        self, block: Block, start: int, stop: int, workers: Sequence[str]
    ) -> list[Event]:
        width = self._family.width
        parts = (
            block.values[start:stop].tolist(),
            block.rows[start:stop].tolist(),
            block.times[start:stop].tolist(),
        )
        return [
            Event(
                0,
                fate,
                id,
                block.codes[row * width : (row + 1) * width],
                block.several.get(row, None if math.isnan(value) else value),
                block.failures.get(row),
                iteration,
                position,
                started,
                ended,
                workers[worker],
                block.violations.get(row),
                *(*block.curves.get(row, (None, 0)), block.attributes.get(row)),
            )
            for row, (
                value,
                (iteration, fate, id, position, worker),
                (started, ended),
            ) in enumerate(zip(*parts, strict=True), start)
        ]
