"""Between a run and its journal: values become rows, and rows become values again.

Resuming a run repeats it from its start without the evaluations that the journal has. `Optimizer`
does so at once, with `replay`. `minimize` does so as it goes, with `Recording.recall`: so whatever
ends a run, and all of its result, are as in a run that was never interrupted. In a journal, values
have the user's sign; here, they are minimized.
"""

from __future__ import annotations

import hashlib
import math
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from knobless.core.early_stopping import Curve
from knobless.core.families import Family
from knobless.core.several import Several
from knobless.core.types import Points
from knobless.core.violation import Infeasible
from knobless.journal.evaluations import ROWS_AT_ONCE, Evaluations, ListedRows
from knobless.journal.events import (
    ADDED,
    CANCELLED,
    CHECKED,
    TOLD,
    Event,
    Journal,
    JournalError,
    steps_of,
    unpacked,
)
from knobless.journal.identity import Identity
from knobless.journal.records import JournalPart, JournalRows, read
from knobless.journal.sqlite import Writer
from knobless.parallel.evaluation import Outcome
from knobless.parallel.returned import Attributed

from . import snapshot
from .candidates import (
    NONE,
    Batch,
    Failure,
    ToldValues,
    told_values,
    traceback_of,
)
from .run_state import RunState, check_batch
from .sink import Positions, Value
from .streams import Streams

NEW_OR_SAME = "Use another file for a new run, or the arguments of the recorded run to resume it"
REPLAYED_AT_ONCE = 2**14  # rows of a journal
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
        special = {**self.told.infeasible, **self.told.several}
        return [
            (code, special.get(i, f[i])) for i, code in enumerate(self.codes)
        ]


def read_rows(
    events: Iterable[Event], family: Family, sign: float
) -> Iterator[Rows]:
    """Decode the events of a journal, group by group."""
    for (drawn, fate), group in groupby(
        events, key=attrgetter("drawn", "fate")
    ):
        rows_of_group = list(group)
        ids = [event.id for event in rows_of_group]
        adjacent = range(ids[0], ids[0] + len(ids))
        ranks = [event.rank(sign) for event in rows_of_group]
        failures = {
            i: event.failure
            for i, event in enumerate(rows_of_group)
            if event.failure is not None
        }
        values = told_values(ranks, failures)
        yield Rows(
            drawn,
            fate,
            adjacent if ids == list(adjacent) else ids,
            unpacked(rows_of_group, family),
            values,
        )


def recorded_mode(journal: Any) -> tuple[int, bool] | None:
    """Return the `batch` of a journal, and whether values are used in the order of arrival.

    None if there is none.
    """
    path = Journal.of(journal).path
    try:
        with read(path) as record:
            return record.batch, record.asynchronous
    # There is none yet; what else is wrong with it is reported when it is opened for writing
    except JournalError:
        return None


def replay(
    run: RunState,
    events: Iterable[Event],
    family: Family,
    sign: float,
    drawn: int = 0,
) -> None:
    """Repeat the events of a journal, then draw until `drawn` candidates are drawn.

    Recorded points are not asked for again, apart from the first ones.
    """
    left = (event for event in events if event.fate != CHECKED)
    while chunk := list(islice(left, REPLAYED_AT_ONCE)):
        _replay(run, list(read_rows(chunk, family, sign)))
    run.redraw(drawn)
    run.again = run.pending_ids()


def _replay(run: RunState, groups: list[Rows]) -> None:
    run.recorded = {
        id: code
        for rows in groups
        for id, code in recorded_points(rows).items()
    }
    for rows in groups:
        run.redraw(rows.drawn)
        if rows.fate == ADDED:
            run.add(rows.codes, [value for _, value in rows.pairs()])
            continue
        run.expect(rows.ids)
        run.confirm(rows.ids, rows.codes)
        if rows.fate == TOLD:
            run.tell(rows.ids, *rows.told)
        else:
            run.cancel(rows.ids)
    run.recorded = {}


def recorded_points(rows: Rows) -> dict[int, Points]:
    """Return the points of candidates by their ids."""
    if rows.fate == ADDED:
        return {}
    return dict(zip(rows.ids, rows.codes, strict=True))


class Recording:
    """The journal of a run, opened for writing: new, or one of the same identity.

    `journal` may be open already. With `adopt`, the run takes the random streams of a journal that
    exists.
    """

    def __init__(
        self, journal: Any, run: RunState, identity: Identity, adopt: bool
    ) -> None:
        self._run = run
        self._sign = identity.sign
        self._objectives = identity.directions
        self._family = run.space.family
        self._width = run.space.family.width
        self._places: dict[int, tuple[int, int, int, bytes, int, int]] = {}
        self._told = -1  # the highest id of a candidate whose value is kept
        # Evaluations not told: candidates drawn before, first, stop
        self._compared: list[tuple[int, int, int]] = []
        self._here = f"pid {os.getpid()}@{socket.gethostname()}"
        self._writer = writer = (
            journal
            if isinstance(journal, Writer)
            else Writer(Journal.of(journal))
        )
        try:
            self._begin(writer, identity, adopt)
            writer.note(writer.journal.meta)
            writer.checkpoint()
            # By candidates drawn, number and point. All of them at once: a run that is resumed with
            # another target adds rows of this kind after those of later candidates.
            self._checked: dict[tuple[int, int, bytes], Value] = {
                (event.drawn, event.id, event.code): (
                    event.rank(self._sign)
                    if event.failure is None
                    else Failure(event.failure)
                )
                for event in writer.events(f"WHERE fate = {CHECKED}")
            }
        except BaseException:
            writer.close()
            raise
        events = writer.events(f"WHERE fate != {CHECKED}")
        self._rows: Iterator[Rows] = read_rows(events, self._family, self._sign)
        # To be recalled next; None at the end of the journal
        self.next_rows: Rows | None = None
        # Whether values are used in the order of the rows
        self.by_arrival = False
        self._arrivals: Iterator[tuple[int, int, Points, Value]] = iter(())
        self._used = 0  # values that were used

    def _begin(self, writer: Writer, identity: Identity, adopt: bool) -> None:
        if "identity" not in writer.header:
            # Else it could not be read back
            check_batch(identity.batch, self._run.space.family)
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

    def replay(self, slow: float = math.inf) -> None:
        """Bring the run from its start to where the journal ends, from the last checkpoint on if
        there is one.

        Write a checkpoint if that takes longer than `slow` seconds.
        """
        with self.explained():
            row = self.restored_row()
            events = self._writer.events(f"WHERE number > {row}")
            drawn = self._writer.header.get("drawn", 0)
            started = time.monotonic()
            replay(self._run, events, self._family, self._sign, drawn)
        if time.monotonic() - started > slow:
            snapshot.save(
                self._checkpoint,
                Identity.from_data(self._writer.header["identity"]),
                self._run,
            )
            self._writer.put(
                "checkpoint",
                {
                    "sha256": _digest(self._checkpoint),
                    "row": self._writer.last_row,
                },
            )

    @property
    def _checkpoint(self) -> Path:
        """A snapshot beside the journal, with its digest and the number of its last row.

        If it is missing, or has another digest, it is ignored: the state is always that of the
        journal alone.
        """
        return self.path.with_name(self.path.name + ".checkpoint")

    def restored_row(self) -> int:
        """Restore the last checkpoint; return the number of the last row that it covers."""
        noted = self._writer.header.get("checkpoint")
        if noted is None or _digest(self._checkpoint) != noted.get("sha256"):
            return 0
        row = noted.get("row")
        if type(row) is not int or not 0 < row <= self._writer.last_row:
            return 0
        try:
            identity, data = snapshot.read_snapshot(self._checkpoint)
        except snapshot.SnapshotError:  # of another version
            return 0
        snapshot.restore(self._run, identity, data)
        return row

    def known(
        self, points: list[tuple[Points, float]]
    ) -> list[tuple[Points, float]]:
        """Return the points known when the run began.

        They are the recorded ones, or those given, which are then recorded.
        """
        fresh = not self._advance()
        rows: Rows | None = None
        if self.next_rows is not None and self.next_rows[:2] == (0, ADDED):
            rows = self.next_rows
            self._advance()
        recorded = [] if rows is None else rows.pairs()
        if not points:
            return recorded
        if fresh:
            self._writer.append(
                [self._added(code, value) for code, value in points]
            )
        elif len(recorded) != len(points):
            raise self._mismatch(
                f"known: journal has {len(recorded)} points, got {len(points)}"
            )
        elif [self._known(*pair) for pair in recorded] != [
            self._known(*pair) for pair in points
        ]:
            raise self._mismatch("known: journal has other points or values")
        return points

    def recall(
        self, candidates: Batch, positions: Positions | None = None
    ) -> dict[int, Value]:
        """Return the recorded values of candidates, by their ids."""
        ids = candidates.ids
        if positions is not None:
            keys = zip(ids, self._packed(candidates.codes), strict=True)
            recalled = {
                id: self._checked.get((self._run.drawn, id, code))
                for id, code in keys
            }
            return {
                id: value for id, value in recalled.items() if value is not None
            }
        rows = self.next_rows
        if rows is None or rows[:2] != (self._run.drawn, TOLD):
            return {}
        with self.explained():
            self._run.confirm(rows.ids, rows.codes)
        self._advance()
        values = dict(zip(rows.ids, rows.told.values(), strict=True))
        if len(values) < len(rows.ids):
            raise JournalError(
                f"{self._writer.path}: cannot resume: duplicate candidate in journal"
            )
        if len(values) == len(ids):
            return values
        return {id: values[id] for id in ids if id in values}

    def begin_arrivals(self) -> None:
        """Note that values are used in the order of the rows, and read all recorded points."""
        self.by_arrival = True
        if not self._writer.header.get("asynchronous"):
            self._writer.put("asynchronous", True)
        with self.explained():
            groups = (
                [] if self.next_rows is None else [self.next_rows, *self._rows]
            )
        self._run.recorded = {
            id: code
            for rows in groups
            for id, code in recorded_points(rows).items()
        }
        self.next_rows = None
        self._arrivals = (
            (rows.drawn, id, code, value)
            for rows in groups
            for id, code, value in zip(
                rows.ids, rows.codes, self._evaluated(rows), strict=True
            )
        )

    def _evaluated(self, rows: Rows) -> list[Value]:
        if rows.fate != TOLD:
            raise JournalError(
                f"{self._writer.path}: cannot resume: it has cancelled or added points. Resume a "
                "journal of an "
                "Optimizer with an Optimizer"
            )
        return rows.told.values()

    def arrival(self) -> tuple[int, Value] | None:
        """Return the next recorded value and its candidate, after drawing what was drawn before it.

        None at the end.
        """
        run = self._run
        arrived = next(self._arrivals, None)
        if arrived is None:
            run.recorded = {}
            return None
        drawn, id, code, value = arrived
        with self.explained():
            run.redraw(drawn)
            run.expect([id])
            run.confirm([id], code[None])
        return id, value

    def _advance(self) -> bool:
        with self.explained():
            self.next_rows = next(self._rows, None)
        self._run.recorded = (
            {} if self.next_rows is None else recorded_points(self.next_rows)
        )
        return self.next_rows is not None

    def _mismatch(self, what: str) -> JournalError:
        return JournalError(
            f"{self._writer.path}: journal does not match this run: {what}. {NEW_OR_SAME}"
        )

    # From values to rows.

    def expect(
        self, candidates: Batch, positions: Positions | None = None
    ) -> None:
        """Prepare rows of candidates whose evaluations begin."""
        if positions is not None:
            places = [(self._run.nit, positions[id]) for id in candidates.ids]
            self._expect(
                CHECKED,
                candidates.ids,
                self._run.drawn,
                candidates.codes,
                places,
            )
            return
        if self.next_rows is not None:
            raise JournalError(
                f"{self._writer.path}: cannot resume: candidate {self.next_rows.ids[0]} is not "
                "one that `minimize` "
                "would evaluate here, or rows before it are missing. Resume a journal of an "
                "Optimizer with an Optimizer"
            )
        self._expect(TOLD, candidates.ids, *self._run.located(candidates.ids))

    def _expect(
        self,
        fate: int,
        ids: Sequence[int],
        drawn: int,
        codes: Points,
        places: Iterable[tuple[int, int]],
    ) -> None:
        rows = zip(ids, self._packed(codes), places, strict=True)
        self._places = {
            id: (drawn, fate, id, code, *place) for id, code, place in rows
        }

    def _packed(self, points: Points) -> list[bytes]:
        packed = self._family.pack(points)
        width = self._width
        return [packed[i : i + width] for i in range(0, len(packed), width)]

    def record(self, outcomes: Iterable[Outcome]) -> None:
        """Commit values that became known together, as soon as they are known."""
        self._writer.append([self._row(*outcome[:5]) for outcome in outcomes])

    def record_arrivals(self, outcomes: Sequence[Outcome]) -> None:
        """Commit values that are used in this order, before any other candidates are drawn."""
        ids = [outcome.id for outcome in outcomes]
        self._expect(TOLD, ids, *self._run.located(ids))
        self.record(outcomes)

    def record_here(
        self, id: int, value: Value, started: float, ended: float
    ) -> None:
        """Commit the value of an evaluation in this process, with times by `time.monotonic()`."""
        time_now = time.time()
        self.record(
            (
                Outcome(
                    id,
                    value,
                    time_now - (ended - started),
                    time_now,
                    self._here,
                ),
            )
        )

    def record_together(
        self,
        ids: Sequence[int],
        values: Sequence[Value],
        started: float,
        ended: float,
    ) -> None:
        """Commit values of evaluations in one call in this process, as `record_here` does."""
        time_now = time.time()
        began = time_now - (ended - started)
        self.record(
            [
                Outcome(id, value, began, time_now, self._here)
                for id, value in zip(ids, values, strict=True)
            ]
        )

    def keep(
        self,
        run: RunState,
        candidates: Batch,
        values: ToldValues,
        positions: Positions | None = None,
    ) -> None:
        """Count recorded values as evaluations of the run."""
        ids = candidates.ids
        if positions is None:
            self._told, self._used = (
                max(self._told, ids[-1]),
                self._used + len(ids),
            )
        else:
            self._compared.append((run.drawn, ids[0], ids[-1] + 1))

    def evaluations(self, nfev: int) -> Evaluations:
        """Return the evaluations of the run, read from the journal when they are accessed."""
        direction = "minimize" if self._sign > 0 else "maximize"
        used = self._used if self.by_arrival else None
        part = JournalPart(
            self._writer.last_row, self._told, tuple(self._compared), used
        )
        return Evaluations(
            self._run.space,
            direction,
            JournalRows(self._writer.path, part),
            0,
            self._objectives,
        )

    def latest(self, ids: Sequence[int]) -> Evaluations:
        """Return the evaluations of candidates that were kept last, in the order of `ids`."""
        latest: dict[int, Event] = {}
        for start in range(0, len(ids), ROWS_AT_ONCE):
            # Fate: the condition of the index
            listed = ", ".join(map(str, ids[start : start + ROWS_AT_ONCE]))
            latest |= {
                event.id: event
                for event in self._writer.events(
                    f"WHERE fate IN (1, 2) AND id IN ({listed})"
                )
            }
        direction = "minimize" if self._sign > 0 else "maximize"
        return Evaluations(
            self._run.space,
            direction,
            ListedRows([latest[id] for id in ids]),
            0,
            self._objectives,
        )

    def told(
        self,
        ids: Sequence[int],
        told: ToldValues,
        attributes: Mapping[int, str] = NONE,
    ) -> None:
        """Commit values of candidates that were evaluated elsewhere.

        `attributes` are by position.
        """
        values: list[Any] = told.values()
        for i, text in attributes.items():
            values[i] = Attributed(values[i], text)
        self._commit(TOLD, ids, values)

    def cancelled(self, ids: Sequence[int]) -> None:
        """Commit that candidates will have no values."""
        self._commit(CANCELLED, ids, [math.nan] * len(ids))

    def _commit(
        self, fate: int, ids: Sequence[int], values: Sequence[Value]
    ) -> None:
        """Commit what became of candidates.

        Of those that are only handed out, the time is known at most.
        """
        self._expect(fate, ids, *self._run.located(ids))
        asked = self.asked
        time_now = time.time()
        self._writer.append(
            [
                self._row(id, value, asked.get(id), time_now, None)
                for id, value in zip(ids, values, strict=True)
            ]
        )

    def added(self, code: Points, value: float) -> None:
        """Commit a point that was evaluated elsewhere."""
        self._writer.append([self._added(code, value)])

    @property
    def asked(self) -> dict[int, float]:
        """When pending candidates were handed out by `hand_out`, by their ids.

        All times are finite.
        """
        times = self._writer.header.get("asked", {}).items()
        return {
            int(id): when
            for id, when in times
            if id.isdecimal() and type(when) is float and math.isfinite(when)
        }

    def hand_out(self, ids: Sequence[int], time_now: float) -> None:
        """Commit that candidates are handed out.

        A process that opens the journal later draws others.
        """
        self.drawn()
        pending = self._run.pending_ids()
        asked = self.asked | dict.fromkeys(ids, time_now)
        self._writer.put(
            "asked", {str(id): asked[id] for id in pending if id in asked}
        )

    def drawn(self) -> None:
        """Commit how many candidates were drawn, where no value will be recorded that shows it."""
        if self._run.drawn > self._writer.header.get("drawn", 0):
            self._writer.put("drawn", self._run.drawn)

    def clear(self) -> None:
        """Delete all evaluations, if every one of them failed."""
        self._writer.clear()

    def _row(
        self,
        id: int,
        value: Value,
        started: float | None,
        ended: float,
        worker: str | None,
    ) -> Event:
        drawn, fate, id, code, iteration, position = self._places[id]
        failure = None
        if isinstance(value, Exception):
            failure = shortened(traceback_of(value))
            value = math.nan
        attributes = None
        if isinstance(value, Attributed):
            attributes = value.text
            value = value.rank
        curve = value if isinstance(value, Curve) else None
        stored, violation = self._stored(value if curve is None else curve.last)
        place = (
            drawn,
            fate,
            id,
            code,
            stored,
            failure,
            iteration,
            position,
            started,
            ended,
            worker,
            violation,
        )
        steps, stopped = (
            (None, 0) if curve is None else steps_of(curve, self._sign)
        )
        return Event(*place, steps, stopped, attributes)

    def _added(self, code: Points, value: float) -> Event:
        run = self._run
        packed = self._family.pack(code[None])
        stored, violation = self._stored(value)
        return Event(
            run.drawn,
            ADDED,
            -1,
            packed,
            stored,
            None,
            run.nit,
            -1,
            None,
            time.time(),
            None,
            violation,
        )

    def _known(self, code: Points, value: float) -> tuple[Any, ...]:
        """Return what a known point is compared by."""
        event = self._added(code, value)
        return event.code, event.value, event.violation

    def _stored(self, rank: float) -> tuple[float | None, float | None]:
        """Return the value with the user's sign, and the violation."""
        if isinstance(rank, Infeasible):
            return self._signed(rank.value), rank.violation
        return None if math.isnan(rank) else self._signed(rank), None

    def _signed(self, value: float) -> float:
        return value if isinstance(value, Several) else self._sign * value


def shortened(text: str) -> str:
    """Return the message of a failed evaluation as stored: valid Unicode of bounded length."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LONGEST else "… " + text[-LONGEST:]


def _digest(path: Path) -> str | None:
    if not path.is_file():  # opening a named pipe would wait for its writer
        return None
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
