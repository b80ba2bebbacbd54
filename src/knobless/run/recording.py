"""Between a run of `minimize` and its journal: what is recorded is recalled, what is new is recorded as it comes.

To go on with a run is to run it again from its start, only that evaluations which the journal has are not made
again. So whatever ends a run, and whatever is in its result, is as in a run that was never interrupted.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from knobless.core.types import Points
from knobless.journal.records import ADDED, Event, Journal, JournalError

from .candidates import TOLD, Batch, Failure, said
from .optimizer import Entry, Optimizer, run_of

Value = float | Exception


class Log:
    """The journal of a run: read to its end while the run repeats what it did before, then written."""

    def __init__(self, journal: Journal, opt: Optimizer, sign: float, adopt: bool) -> None:
        self._opt, self._sign = opt, sign
        self._entries: dict[int, Entry] = {}
        self._here = f"pid {os.getpid()}@{socket.gethostname()}"
        self._writer = opt._keep(journal, "minimize" if sign > 0 else "maximize", adopt)
        # One iteration's rows at a time: all of them were recorded when the same number of candidates was drawn.
        self._groups = groupby(self._writer.events(), key=attrgetter("drawn", "fate"))
        self._turn()
        self.resumed = self._key is not None  # whether there were evaluations before

    def _turn(self) -> None:
        self._key: tuple[int, int] | None
        self._key, group = next(self._groups, (None, ()))
        self._events = list(group)

    def close(self) -> None:
        self._writer.close()

    def note(self, meta: Mapping[str, Any]) -> None:
        self._writer.note(meta)

    def known(self, given: list[tuple[Points, float]]) -> list[tuple[Points, float]]:
        """The points that were known when the run began: those given, which are recorded, or those recorded."""
        fresh, found = not self.resumed, list[Event]()
        if self._key == (0, ADDED):
            found = self._events
            self._turn()
        self.resumed = self._key is not None
        rows = [self._opt._added(code, value) for code, value in given]
        if not given:
            data = b"".join([event.code for event in found])
            values = [math.nan if event.value is None else event.value for event in found]
            with self._writer.explained():
                return list(zip(self._opt._packing.unpack(data), values, strict=True))
        if fresh:
            self._writer.append(*rows)
        elif [event[3:5] for event in found] != [row[3:5] for row in rows]:
            shown = f"there are {len(found)} points, here {len(rows)}" if len(found) != len(rows) else "they differ"
            raise JournalError(f"{self._writer.path}: a journal of another run, known: {shown}")
        return given

    def recall(self, candidates: Batch) -> dict[int, Value]:
        """What is recorded of these candidates, by their ids."""
        if self._key != (self._opt._drawn, TOLD):
            return {}
        events = self._events
        self._turn()
        with self._writer.explained():
            ids = run_of([event.id for event in events])
            self._opt._confirm(ids, b"".join([event.code for event in events]))
        found = {event.id: self._value(event) for event in events}
        if len(found) < len(events):
            raise JournalError(f"{self._writer.path}: cannot be gone on with: a candidate is recorded more than once")
        return found if len(found) == len(candidates) else {id: found[id] for id in candidates.ids if id in found}

    def _value(self, event: Event) -> Value:
        if event.value is None:
            return math.nan if event.failure is None else Failure(event.failure)
        return self._sign * event.value

    def expect(self, ids: Sequence[int]) -> None:
        """These are to be recorded."""
        if self._key is not None:
            what = "there is more in it than `minimize` does, or something is missing before"
            raise JournalError(f"{self._writer.path}: cannot be gone on with: {what} candidate {self._events[0].id}")
        self._entries = {entry.id: entry for entry in self._opt._entries(ids, TOLD)}

    def record(self, id: int, value: Value, started: float, ended: float, worker: str | None = None) -> None:
        """Commits a value the moment it has come."""
        self._writer.append(self._row(id, value, started, ended, worker or self._here))

    def record_all(self, ids: Sequence[int], values: Sequence[Value], started: float, ended: float) -> None:
        """Commits values that have come together."""
        each = zip(ids, values, strict=True)
        self._writer.append(*(self._row(id, value, started, ended, self._here) for id, value in each))

    def _row(self, id: int, value: Value, started: float, ended: float, worker: str) -> tuple[Any, ...]:
        entry = self._entries[id]
        if isinstance(value, Exception):
            return entry.row(None, said(value), started, ended, worker)
        return entry.row(None if value != value else self._sign * value, None, started, ended, worker)

    def forget(self) -> None:
        """The first evaluation has failed and is shown to the user, who will mend the objective and try again."""
        self._writer.clear()
