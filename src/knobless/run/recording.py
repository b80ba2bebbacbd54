"""Between a run and its journal: values become rows, and rows become values again.

Resuming a run repeats it from its start without the evaluations that the journal has. `Optimizer` does so at once, with
`replay`. `minimize` does so as it goes, with `Recording.recall`: so whatever ends a run, and all of its result, are as
in a run that was never interrupted. In a journal, values have the user's sign; here, they are minimized.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from knobless.core.families import Family
from knobless.core.types import Points
from knobless.core.violation import Infeasible
from knobless.journal.events import ADDED, CANCELLED, CHECKED, TOLD, Event, Journal, JournalError, unpacked
from knobless.journal.identity import Identity
from knobless.journal.records import JournalPart, JournalRows, read
from knobless.journal.sqlite import Writer
from knobless.parallel.evaluation import Outcome

from .candidates import Failure, ToldValues, traceback_of
from .run_state import RunState, check_batch
from .streams import Streams

Value = float | Exception
NEW_OR_SAME = "Use another file for a new run, or the arguments of the recorded run to resume it"
LONGEST = 2**14  # characters of a traceback that are recorded, the last ones


class Rows(NamedTuple):
    """Consecutive rows of one kind, recorded when the same number of candidates was drawn."""

    drawn: int
    fate: int
    ids: Sequence[int]
    codes: Points
    told: ToldValues

    def pairs(self) -> list[tuple[Points, float]]:
        """Return points and values as they rank."""
        f = self.told.f.tolist()
        return [(code, self.told.infeasible.get(i, f[i])) for i, code in enumerate(self.codes)]


def read_rows(events: Iterable[Event], family: Family, sign: float) -> Iterator[Rows]:
    """Decode the events of a journal, group by group."""
    for (drawn, fate), group in groupby(events, key=attrgetter("drawn", "fate")):
        each = list(group)
        ids = [event.id for event in each]
        adjacent = range(ids[0], ids[0] + len(ids))
        ranks = [event.rank(sign) for event in each]
        failures = {i: event.failure for i, event in enumerate(each) if event.failure is not None}
        infeasible = {i: rank for i, rank in enumerate(ranks) if isinstance(rank, Infeasible)}
        told = ToldValues(np.array(ranks), failures, infeasible)
        yield Rows(drawn, fate, adjacent if ids == list(adjacent) else ids, unpacked(each, family), told)


def recorded_batch(journal: Any) -> int | None:
    """Return the `batch` of a journal that exists, else None."""
    path = Journal.of(journal).path
    try:
        with read(path) as record:
            return record.batch
    except JournalError:  # there is none yet; what else is wrong with it is reported when it is opened for writing
        return None


def replay(run: RunState, events: Iterable[Event], family: Family, sign: float, drawn: int = 0) -> None:
    """Repeat the events of a journal, then draw until `drawn` candidates are drawn; ValueError if impossible."""
    for rows in read_rows((event for event in events if event.fate != CHECKED), family, sign):
        run.redraw(rows.drawn)
        if rows.fate == ADDED:
            for code, value in rows.pairs():
                run.add(code, value)
            continue
        run.expect(rows.ids)
        run.confirm(rows.ids, rows.codes)
        if rows.fate == TOLD:
            run.tell(rows.ids, *rows.told)
        else:
            run.cancel(rows.ids)
    run.redraw(drawn)
    run.again = run.pending_ids()


class Recording:
    """The journal of a run, opened for writing: new, or one of the same identity.

    `journal` may be open already. With `adopt`, the run takes the random streams of a journal that exists.
    """

    def __init__(self, journal: Any, run: RunState, identity: Identity, adopt: bool) -> None:
        self._run, self._sign = run, identity.sign
        self._family, self._width = run.space.family, run.space.family.width
        self._places: dict[int, tuple[int, int, int, bytes, int, int]] = {}
        self._here = f"pid {os.getpid()}@{socket.gethostname()}"
        self._writer = writer = journal if isinstance(journal, Writer) else Writer(Journal.of(journal))
        try:
            self._begin(writer, identity, adopt)
            writer.note(writer.journal.meta)
            writer.checkpoint()
            # By candidates drawn, number and point. All of them at once: a run that is resumed with another target
            # adds rows of this kind after those of later candidates.
            self._checked: dict[tuple[int, int, bytes], Value] = {
                (event.drawn, event.id, event.code): (
                    event.rank(self._sign) if event.failure is None else Failure(event.failure)
                )
                for event in writer.events(f"WHERE fate = {CHECKED}")
            }
        except BaseException:
            writer.close()
            raise
        told = writer.events(f"WHERE fate != {CHECKED}")
        self._rows: Iterator[Rows] = read_rows(told, self._family, self._sign)
        self.next_rows: Rows | None = None  # to be recalled next; None at the end of the journal

    def _begin(self, writer: Writer, identity: Identity, adopt: bool) -> None:
        if "identity" not in writer.header:
            check_batch(identity.batch, self._run.space.family)  # else it could not be read back
            writer.put("identity", identity.data())
            writer.put("created", time.time())
            return
        with writer.explained():
            recorded = Identity.from_data(writer.header["identity"])
            if adopt:
                self._run.streams = Streams.from_data(recorded.rng)
                identity = identity._replace(rng=recorded.rng)
        differs = recorded.difference(identity)
        if differs:
            raise self._mismatch(differs)

    def rows(self, told: int, checks: Sequence[tuple[int, int, int]]) -> JournalRows:
        """Return the evaluations of the run, by the highest id told and the evaluations it has not learned from."""
        return JournalRows(self._writer.path, JournalPart(self._writer.last_row, told, tuple(checks)))

    def close(self) -> None:
        """Close the journal, so that another process can write to it."""
        self._writer.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self._writer.path

    @property
    def meta(self) -> dict[str, Any]:
        """The notes of the journal."""
        return dict(self._writer.header.get("meta", {}))

    def note(self, meta: Mapping[str, Any]) -> None:
        """Add to the notes of the journal."""
        self._writer.note(meta)

    def explained(self) -> AbstractContextManager[None]:
        """Turn errors caused by the contents of the journal into a `JournalError`."""
        return self._writer.explained()

    # From rows to values.

    def replay(self, row: int = 0) -> None:
        """Bring the run to where the journal ends, from its start or from a checkpoint that covers rows up to `row`."""
        events, drawn = self._writer.events(f"WHERE number > {row}"), self._writer.header.get("drawn", 0)
        with self.explained():
            replay(self._run, events, self._family, self._sign, drawn)

    def known(self, given: list[tuple[Points, float]]) -> list[tuple[Points, float]]:
        """Return the points known when the run began: those recorded, or those given, which are then recorded."""
        fresh = not self._advance()
        found: Rows | None = None
        if self.next_rows is not None and self.next_rows[:2] == (0, ADDED):
            found = self.next_rows
            self._advance()
        recorded = [] if found is None else found.pairs()
        if not given:
            return recorded
        if fresh:
            self._writer.append([self._added(code, value) for code, value in given])
        elif len(recorded) != len(given):
            raise self._mismatch(f"known: journal has {len(recorded)} points, got {len(given)}")
        elif [self._known(*pair) for pair in recorded] != [self._known(*pair) for pair in given]:
            raise self._mismatch("known: journal has other points or values")
        return given

    def recall(self, ids: Sequence[int]) -> dict[int, Value]:
        """Return the recorded values of these candidates, by their ids."""
        rows = self.next_rows
        if rows is None or rows[:2] != (self._run.drawn, TOLD):
            return {}
        with self.explained():
            self._run.confirm(rows.ids, rows.codes)
            self.next_rows = next(self._rows, None)
        values: dict[int, Value] = dict(zip(rows.ids, rows.told.f.tolist(), strict=True))
        if len(values) < len(rows.ids):
            raise JournalError(f"{self._writer.path}: cannot resume: duplicate candidate in journal")
        values |= {rows.ids[i]: Failure(text) for i, text in rows.told.failures.items()}
        values |= {rows.ids[i]: rank for i, rank in rows.told.infeasible.items()}
        return values if len(values) == len(ids) else {id: values[id] for id in ids if id in values}

    def recall_checked(self, ids: Sequence[int], codes: Points) -> dict[int, Value]:
        """Return the recorded values of evaluations that the search does not learn from, by their numbers."""
        packed, width, drawn = self._family.pack(codes), self._width, self._run.drawn
        keys = ((id, (drawn, id, packed[i * width : (i + 1) * width])) for i, id in enumerate(ids))
        return {id: self._checked[key] for id, key in keys if key in self._checked}

    def _advance(self) -> bool:
        with self.explained():
            self.next_rows = next(self._rows, None)
        return self.next_rows is not None

    def _mismatch(self, what: str) -> JournalError:
        return JournalError(f"{self._writer.path}: journal does not match this run: {what}. {NEW_OR_SAME}")

    # From values to rows.

    def expect(self, ids: Sequence[int], fate: int = TOLD) -> None:
        """Prepare rows for pending candidates, whose values are recorded next."""
        if self.next_rows is not None:
            raise JournalError(
                f"{self._writer.path}: cannot resume: candidate {self.next_rows.ids[0]} is not one that `minimize` "
                "would evaluate here, or rows before it are missing. Resume a journal of an Optimizer with an Optimizer"
            )
        run = self._run
        drawn, points, places = run.located(ids)
        rows = zip(ids, self._packed(points), places, strict=True)
        self._places = {id: (drawn, fate, id, code, *place) for id, code, place in rows}

    def expect_checked(self, ids: Sequence[int], points: Points, positions: Sequence[int]) -> None:
        """Prepare rows for evaluations that the search does not learn from."""
        run, rows = self._run, zip(ids, self._packed(points), positions, strict=True)
        self._places = {id: (run.drawn, CHECKED, id, code, run.nit, position) for id, code, position in rows}

    def _packed(self, points: Points) -> list[bytes]:
        packed, width = self._family.pack(points), self._width
        return [packed[i : i + width] for i in range(0, len(packed), width)]

    def record(self, outcomes: Iterable[Outcome]) -> None:
        """Commit values that became known together, as soon as they are known."""
        self._writer.append(
            [
                self._row(id, value, started, ended, worker or self._here)
                for id, value, started, ended, worker in outcomes
            ]
        )

    def told(self, ids: Sequence[int], told: ToldValues) -> None:
        """Commit values of candidates. See `_commit`."""
        self._commit(ids, TOLD, told)

    def cancelled(self, ids: Sequence[int]) -> None:
        """Commit that candidates will have no values. See `_commit`."""
        self._commit(ids, CANCELLED, ToldValues(np.full(len(ids), math.nan), {}, {}))

    def _commit(self, ids: Sequence[int], fate: int, told: ToldValues) -> None:
        """Commit what became of candidates, of which at most the time is known at which they were handed out."""
        self.expect(ids, fate)
        asked = self.asked
        now, values = time.time(), cast("list[Value]", told.f.tolist())
        for i, text in told.failures.items():
            values[i] = Failure(text)
        for i, rank in told.infeasible.items():
            values[i] = rank
        self._writer.append(
            [self._row(id, value, asked.get(id), now, None) for id, value in zip(ids, values, strict=True)]
        )

    def added(self, code: Points, value: float) -> None:
        """Commit a point that was evaluated elsewhere."""
        self._writer.append([self._added(code, value)])

    @property
    def asked(self) -> dict[int, float]:
        """When pending candidates were handed out by `hand_out`, by their ids; all times are finite."""
        times = self._writer.header.get("asked", {}).items()
        return {int(id): when for id, when in times if id.isdecimal() and type(when) is float and math.isfinite(when)}

    def hand_out(self, ids: Sequence[int], now: float) -> None:
        """Commit that candidates are handed out: a process that opens the journal later draws others."""
        self.drawn()
        pending, asked = self._run.pending_ids(), self.asked | dict.fromkeys(ids, now)
        self._writer.put("asked", {str(id): asked[id] for id in pending if id in asked})

    def drawn(self) -> None:
        """Commit how many candidates were drawn, where no value will be recorded that shows it."""
        if self._run.drawn > self._writer.header.get("drawn", 0):
            self._writer.put("drawn", self._run.drawn)

    def forget(self) -> None:
        """Delete the first evaluation, which failed: its error is raised, and the user starts again."""
        self._writer.clear()

    def _row(self, id: int, value: Value, started: float | None, ended: float, worker: str | None) -> Event:
        drawn, fate, id, code, iteration, position = self._places[id]
        failure = None
        if isinstance(value, Exception):
            failure, value = shortened(traceback_of(value)), math.nan
        stored, violation = self._stored(value)
        return Event(drawn, fate, id, code, stored, failure, iteration, position, started, ended, worker, violation)

    def _added(self, code: Points, value: float) -> Event:
        run, packed = self._run, self._family.pack(code[None])
        stored, violation = self._stored(value)
        return Event(run.drawn, ADDED, -1, packed, stored, None, run.nit, -1, None, time.time(), None, violation)

    def _known(self, code: Points, value: float) -> tuple[Any, ...]:
        """Return what a known point is compared by."""
        event = self._added(code, value)
        return event.code, event.value, event.violation

    def _stored(self, rank: float) -> tuple[float | None, float | None]:
        """Return the value with the user's sign, and the violation."""
        if isinstance(rank, Infeasible):
            return self._sign * rank.value, rank.violation
        return None if math.isnan(rank) else self._sign * rank, None


def shortened(text: str) -> str:
    """Return the message of a failed evaluation as it is stored: valid Unicode of bounded length."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LONGEST else "… " + text[-LONGEST:]
