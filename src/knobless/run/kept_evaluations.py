"""The evaluations of a run without a journal: packed points, values and times, in arrays of bounded size.

To keep an iteration only stores what the run has computed anyway. Every few thousand evaluations, or when they are
accessed, these are packed. Until then they are few objects, because Python's garbage collector visits each of them.
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

from knobless.core.families import Family
from knobless.core.types import Array, Points
from knobless.core.violation import Infeasible
from knobless.journal.evaluations import ROWS_AT_ONCE
from knobless.journal.events import Event
from knobless.parallel.evaluation import process_name

from .recording import shortened

KEPT_EVALUATIONS = 2**18
KEPT_BYTES = 2**26  # of packed points
MOST_MESSAGES = 256  # different messages of failures
OTHER_MESSAGE = f"message not kept: more than {MOST_MESSAGES} different ones"
PACKED_AT_ONCE = 2**14  # evaluations that are packed at once, so that most runs never are
UNPACKED_BYTES = 2**22  # of points that are not packed yet

Span = tuple[float, float, str]  # of an evaluation: when it started and ended, and where it ran


class KeptGroup(NamedTuple):
    """Evaluations of one iteration that became known together; see `ToldValues` for their values."""

    iteration: int
    fate: int
    first: int  # the id of the candidate at position 0
    ids: Sequence[int]
    codes: Points
    f: Array
    failures: Mapping[int, str]
    infeasible: Mapping[int, Infeasible]
    times: int  # their first entry of `KeptEvaluations.times`, if they ran in this process
    spans: Mapping[int, Span]  # by id, if they ran elsewhere


class Block(NamedTuple):
    """Packed evaluations; `rows` has (iteration, fate, id, position, worker), `times` (started, ended) of each."""

    codes: bytes
    values: Array
    rows: NDArray[np.int64]
    times: Array
    failures: Mapping[int, str]
    violations: Mapping[int, float]


class KeptEvaluations:
    """The last evaluations of a run, in the order of their candidates; values are stored with the user's sign.

    `times` has start and end of each that is not packed and ran in this process, by `time.monotonic()`.
    """

    def __init__(self, family: Family, sign: float) -> None:
        self._family = family
        self._sign = sign
        self._most = max(min(KEPT_EVALUATIONS, KEPT_BYTES // max(family.width, 1)), 1)
        width = max(family.variables * family.dtype.itemsize, 1)
        self._at_once = max(min(PACKED_AT_ONCE, UNPACKED_BYTES // width), 1)
        self._workers: dict[str, int] = {process_name(os.getpid()): 0}
        self._messages: dict[str, str] = {}
        self._epoch = time.time() - time.monotonic()
        self.clear()

    def clear(self) -> None:
        """Drop all of them."""
        self.times = array("d")
        self._groups: list[KeptGroup] = []
        self._waiting = 0  # evaluations in these
        self._blocks: deque[Block] = deque()
        self._packed = 0  # evaluations in these

    def begin(self) -> int:
        """Return the entry of `times` from which those of an iteration are appended."""
        if self._waiting >= self._at_once:
            self._pack()
        return len(self.times)

    def add(self, group: KeptGroup) -> None:
        """Keep evaluations."""
        self._groups.append(group)
        self._waiting += len(group.f)

    def _pack(self) -> None:
        """Pack the groups into one block, and drop the oldest blocks that are not needed."""
        groups = self._groups
        if not groups:
            return
        codes = np.concatenate([group.codes for group in groups])
        values = self._sign * np.concatenate([group.f for group in groups])
        sizes = [len(group.f) for group in groups]
        rows = np.empty((len(values), 5), dtype=np.int64)
        rows[:, :3] = np.repeat([(group.iteration, group.fate, group.first) for group in groups], sizes, axis=0)
        ids = np.array([id for group in groups for id in group.ids])
        rows[:, 2], rows[:, 3] = ids, ids - rows[:, 2]
        flat: list[float] = []
        workers: list[int] = []
        for group in groups:
            if not group.spans:
                flat.extend(self.times[group.times : group.times + 2 * len(group.f)])
                workers += [0] * len(group.f)
                continue
            for started, ended, where in map(group.spans.__getitem__, group.ids):
                flat += (started - self._epoch, ended - self._epoch)
                workers.append(self._workers.setdefault(where, len(self._workers)))
        rows[:, 4] = workers
        times = np.array(flat).reshape(-1, 2) + self._epoch
        failures = {
            start + i: self._message(text)
            for start, group in zip(accumulate(sizes, initial=0), groups, strict=False)
            for i, text in group.failures.items()
        }
        infeasible = {
            start + i: rank
            for start, group in zip(accumulate(sizes, initial=0), groups, strict=False)
            for i, rank in group.infeasible.items()
        }
        for row, rank in infeasible.items():
            values[row] = self._sign * rank.value
        violations = {row: rank.violation for row, rank in infeasible.items()}
        self._blocks.append(Block(self._family.pack(codes), values, rows, times, failures, violations))
        self._packed += len(values)
        self.times, self._groups, self._waiting = array("d"), [], 0
        while self._packed - len(self._blocks[0].values) >= self._most:
            self._packed -= len(self._blocks.popleft().values)

    def _message(self, text: str) -> str:
        """Return a message of a failure; of many different ones only the first are kept."""
        text = shortened(text)
        if len(self._messages) < MOST_MESSAGES:
            return self._messages.setdefault(text, text)
        return self._messages.get(text, OTHER_MESSAGE)

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
                yield self._events(block, at - first, min(at + ROWS_AT_ONCE, high, end) - first, workers)
            first = end

    def _events(self, block: Block, start: int, stop: int, workers: Sequence[str]) -> list[Event]:
        width = self._family.width
        parts = (block.values[start:stop].tolist(), block.rows[start:stop].tolist(), block.times[start:stop].tolist())
        return [
            Event(
                0,
                fate,
                id,
                block.codes[row * width : (row + 1) * width],
                None if math.isnan(value) else value,
                block.failures.get(row),
                iteration,
                position,
                started,
                ended,
                workers[worker],
                block.violations.get(row),
            )
            for row, (value, (iteration, fate, id, position, worker), (started, ended)) in enumerate(
                zip(*parts, strict=True), start
            )
        ]
