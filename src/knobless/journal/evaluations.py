"""The evaluations of a run as a sequence and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from knobless._checks import extra
from knobless.core.data import parsed
from knobless.core.several import Several
from knobless.core.types import Array, Points
from knobless.space.options import object_array
from knobless.space.space import Column, Space, shown_name

from .events import ADDED, CANCELLED, CHECKED, RETURNED_NAN, Event, unpacked

ROWS_AT_ONCE = 512  # rows decoded at once
# Columns after the variables.
FACTS = (
    "value",
    "violation",
    "status",
    "kind",
    "iteration",
    "worker",
    "start",
    "seconds",
    "message",
    "steps",
)


class EvaluationRecord(NamedTuple):
    """One evaluation of a run.

    Attributes
    ----------
    x : object
        The point, as the objective received it.
    value : float or tuple of float
        The objective value with the user's sign, or a tuple of several; NaN if there is none.
    violation : float
        How much the point violates the constraints; 0 if it is feasible, NaN if there is no value.
    status : str
        "ok", "failed" (the evaluation raised an exception or returned NaN), "stopped" (early,
        without a value) or "cancelled" (without a value).
    kind : str
        "search"; "initial point" (`x0`); "noise test", a second evaluation of the best point;
        "confirmation" of a value that reached the target; "finalist", a comparison of the points to
        recommend; "known" for a point that was evaluated elsewhere.
    iteration : int
        The number of complete iterations before it.
    worker : str or None
        Where it ran; None if that is not known.
    start : float or None
        When it started, in seconds since the epoch; None if that is not known.
    seconds : float or None
        How long it took; None if that is not known.
    message : str or None
        Why it failed: the traceback, or that the objective returned NaN.
    steps : tuple of float or None
        The values that the objective has yielded, one per step; None if it does not yield.
    attributes : dict
        The attributes of the value, as the objective returned them with `Value`; empty if there are
        none.
    """

    x: Any
    value: Any
    violation: float
    status: str
    kind: str
    iteration: int
    worker: str | None
    start: float | None
    seconds: float | None
    message: str | None
    steps: tuple[float, ...] | None
    attributes: dict[str, Any]


class StoredRows(Protocol):
    """Where evaluations are stored, in their order."""

    def __len__(self) -> int:
        """Return their number."""

    def chunks(self, start: int, stop: int) -> Iterator[Sequence[Event]]:
        """Yield those from `start` to before `stop`, a few at a time."""

    def attribute_names(self) -> list[str]:
        """Return the names of all attributes, in the order in which they first occur."""


class ListedRows:
    """Evaluations in memory."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def __len__(self) -> int:
        return len(self._events)

    def chunks(self, start: int, stop: int) -> Iterator[Sequence[Event]]:
        """Yield those from `start` to before `stop`."""
        yield self._events[start:stop]

    def attribute_names(self) -> list[str]:
        """Return the names of all attributes, in the order in which they first occur."""
        return names_in(
            event.attributes
            for event in self._events
            if event.attributes is not None
        )


NO_ROWS = ListedRows(())


class TableColumn(NamedTuple):
    """A column of a table of evaluations: its values, and where they are not missing."""

    name: str
    values: NDArray[Any]
    present: NDArray[np.bool_]


class Evaluations(Sequence[EvaluationRecord]):
    """The evaluations of a run, in the order of their candidates.

    The order does not depend on the number of workers. Points are decoded when they are accessed.
    With a journal, the evaluations are read from that file when they are accessed, so it must still
    exist. Without one, at most the last 262,144 are kept, and fewer if their points need more than
    64 MiB; compiled iterations keep none.

    Parameters
    ----------
    space : Space
        The search space.
    direction : str
        "minimize" or "maximize".
    rows : object
        Where the evaluations are stored.
    dropped : int
        The number of earlier evaluations that are not kept.
    objectives : mapping, optional
        "min" or "max" by the names of several objectives; none for a single one.

    Examples
    --------
    >>> import knobless as kl
    >>> result = kl.minimize(sum, kl.Binary(4), budget=20, rng=0, deterministic=True)
    >>> len(result.evaluations), result.evaluations[0].status
    (16, 'ok')
    """

    def __init__(
        self,
        space: Space,
        direction: str,
        rows: StoredRows,
        dropped: int = 0,
        objectives: Mapping[str, str] | None = None,
    ) -> None:
        self.objectives = {} if objectives is None else dict(objectives)
        self.space = space
        self.direction = direction
        self.dropped = dropped
        self._rows = rows
        # Decoded last, from this index on
        self._last: tuple[int, list[EvaluationRecord]] = (0, [])

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> EvaluationRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[EvaluationRecord]: ...
    def __getitem__(
        self, index: int | slice
    ) -> EvaluationRecord | list[EvaluationRecord]:
        if isinstance(index, slice):
            chosen = range(len(self))[index]
            if not chosen:
                return []
            low = min(chosen[0], chosen[-1])
            high = max(chosen[0], chosen[-1])
            stored = list(self._records(low, high + 1))
            return [stored[i - low] for i in chosen]
        at = range(len(self))[index]
        first, records = self._last
        if not first <= at < first + len(records):
            first = at - at % ROWS_AT_ONCE
            records = list(
                self._records(first, min(first + ROWS_AT_ONCE, len(self)))
            )
            self._last = first, records
        return records[at - first]

    def __iter__(self) -> Iterator[EvaluationRecord]:
        return self._records(0, len(self))

    def __repr__(self) -> str:
        return f"Evaluations: {len(self)} of {len(self) + self.dropped}"

    def _records(self, start: int, stop: int) -> Iterator[EvaluationRecord]:
        for events in self._rows.chunks(start, stop):
            points = self.space.decode_each(unpacked(events, self.space.family))
            for x, event in zip(points, events, strict=True):
                record = EvaluationRecord(x, *_facts(event))
                yield (
                    record._replace(value=self._values_of(record.value))
                    if self.objectives
                    else record
                )

    def _values_of(self, value: float | None) -> tuple[float, ...]:
        """Return the values of several objectives, NaN if there are none."""
        if isinstance(value, Several):
            return value.values
        return (math.nan,) * len(self.objectives)

    def arrays(self) -> tuple[Points, Array]:
        """Return the points as codes, and their values.

        Returns
        -------
        codes : array of shape (m, columns)
            One code per evaluation that has a value.
        values : array of shape (m,)
            Their values, with the user's sign; of several objectives those of the first one.
        """
        chunks = self._rows.chunks(0, len(self))
        events = [
            event
            for events in chunks
            for event in events
            if event.value is not None
        ]
        values = [
            event.value.values[0]
            if isinstance(event.value, Several)
            else event.value
            for event in events
        ]
        return unpacked(events, self.space.family), np.array(
            values, dtype=float
        )

    def outcomes(self) -> tuple[Points, Array, NDArray[np.bool_]]:
        """Return points and values of several objectives, without cancelled candidates.

        Returns
        -------
        codes : array of shape (m, columns)
            One code per evaluation.
        values : array of shape (m, objectives)
            Their values, with the user's signs; NaN for those that failed.
        infeasible : array of bool of shape (m,)
            Which of them were infeasible.
        """
        chunks = self._rows.chunks(0, len(self))
        events = [
            event
            for events in chunks
            for event in events
            if event.fate != CANCELLED
        ]
        values = [self._values_of(event.value) for event in events]
        infeasible = [bool(event.violation) for event in events]
        shape = len(events), len(self.objectives)
        return (
            unpacked(events, self.space.family),
            np.array(values, dtype=float).reshape(shape),
            np.array(infeasible, dtype=bool),
        )

    def tables(self) -> Iterator[list[TableColumn]]:
        """Iterate over parts of the table of all evaluations.

        Returns
        -------
        iterator of list of TableColumn
            The columns of some rows, at least one part: one column per variable, or per entry of an
            array of them, then the fields of an `EvaluationRecord` other than `x`, and one column
            per attribute. A variable called like one of these becomes ``x.value``.
        """
        names = self._rows.attribute_names()
        for events in self._rows.chunks(0, len(self)) if len(self) else [()]:
            yield self._table(events, names)

    def _table(
        self, events: Sequence[Event], attributes: Sequence[str]
    ) -> list[TableColumn]:
        codes = unpacked(events, self.space.family)
        facts: dict[str, tuple[Any, ...]] = (
            dict(
                zip(
                    FACTS,
                    zip(*(_facts(event)[:-1] for event in events), strict=True),
                    strict=True,
                )
            )
            if events
            else dict.fromkeys(FACTS, ())
        )
        noted = [attributes_of(event) for event in events] if attributes else []
        if self.objectives:
            rows = map(self._values_of, facts.pop("value"))
            values = (
                zip(*rows, strict=True)
                if events
                else [()] * len(self.objectives)
            )
            names = (
                f"f.{name}" if name in facts else name
                for name in self.objectives
            )
            facts = dict(zip(names, values, strict=True)) | facts
        for name in attributes:
            facts[f"a.{name}" if name in facts else name] = tuple(
                row.get(name) for row in noted
            )
        table = _columns(self.space, codes, [*facts])
        for name, column_values in facts.items():
            present = np.array(
                [value is not None for value in column_values], dtype=bool
            )
            table.append(
                TableColumn(name, object_array(column_values), present)
            )
        return table

    def to_pandas(self) -> Any:
        """Convert the evaluations to a pandas data frame.

        Returns
        -------
        pandas.DataFrame
            One row per evaluation. One column per variable, called as in ``space.columns()``, and
            one per entry of an array of variables, such as ``layers[0]``; inactive variables are
            missing. Then `value`, or a column per objective called by its name if there are
            several, `violation`, `status`, `kind`, `iteration`, `worker`, `start` (a time in UTC),
            `seconds`, `message` and `steps`, and one column per attribute. A variable that is
            called like one of these is called ``x.value``, an objective ``f.status``, an attribute
            ``a.value``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        with extra("pandas"):
            import pandas
        parts = list(self.tables())
        columns = [
            _joined([part[i] for part in parts]) for i in range(len(parts[0]))
        ]
        n = len(columns) - len(self._rows.attribute_names())
        series = [_series(pandas, column) for column in columns[:n]]
        series += [
            pandas.Series(column.values.tolist()) for column in columns[n:]
        ]  # numbers, texts or lists
        frame = pandas.concat(series, axis=1)
        frame.columns = [column.name for column in columns]
        return frame


def _facts(event: Event) -> tuple[Any, ...]:
    """Return the fields of an evaluation other than its point."""
    status = "stopped" if event.stopped else "failed" if event.failed else "ok"
    status = "cancelled" if event.fate == CANCELLED else status
    timed = event.started is not None and event.ended is not None
    return (
        math.nan if event.value is None else event.value,
        math.nan if event.value is None else event.violation or 0.0,
        status,
        kind_of(event),
        event.iteration,
        event.worker,
        event.started,
        event.ended - event.started if timed else None,  # type: ignore[operator]
        (event.failure or RETURNED_NAN) if event.failed else None,
        None if event.steps is None else tuple(event.curve),
        attributes_of(event),
    )


def attributes_of(event: Event) -> dict[str, Any]:
    """Return the attributes of an evaluation; ValueError if they cannot be read."""
    if event.attributes is None:
        return {}
    attributes = parsed(event.attributes)
    if not isinstance(attributes, dict):
        raise ValueError(
            f"attributes: expected an object, got {event.attributes!r:.100}"
        )
    return attributes


def names_in(texts: Iterable[str]) -> list[str]:
    """Return the names of attributes, in the order in which they first occur."""
    return list(
        dict.fromkeys(
            name for text in dict.fromkeys(texts) for name in parsed(text)
        )
    )


def kind_of(event: Event) -> str:
    """Return what a row of a journal was evaluated for."""
    if event.fate == ADDED:
        return "known"
    if event.fate == CHECKED:
        return "confirmation" if event.position < 0 else "finalist"
    if event.position < 0:
        return "noise test" if event.iteration else "initial point"
    return "search"


def variables_frame(
    pandas: Any, space: Space, codes: Points, taken: Sequence[str]
) -> Any:
    """Return a data frame of points, with one column per variable.

    Those called like other columns begin with ``x.``
    """
    columns = _columns(space, codes, taken)
    frame = pandas.concat(
        [_series(pandas, column) for column in columns], axis=1
    )
    frame.columns = [column.name for column in columns]
    return frame


def _columns(
    space: Space, codes: Points, taken: Sequence[str]
) -> list[TableColumn]:
    """Return the columns of all variables."""
    active = space.active(codes)
    return [
        table_column
        for i, column in enumerate(space.columns())
        for table_column in _variable_columns(
            column, codes[:, column.where], active[:, i], taken
        )
    ]


def _variable_columns(
    column: Column,
    codes: Points,
    active: NDArray[np.bool_],
    taken: Sequence[str],
) -> Iterator[TableColumn]:
    """Yield the columns of a variable: one, or one per entry of an array."""
    variable = column.variable
    name = shown_name(column.name)
    name = f"x.{name}" if name in taken else name
    values = variable.cells(codes)
    names = (
        [name]
        if variable.n is None
        else [f"{name}[{entry}]" for entry in variable.entries]
    )
    for i, label in enumerate(names):
        yield TableColumn(label, values[:, i], active)


def _joined(parts: list[TableColumn]) -> TableColumn:
    values, present = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("values", "present")
    )
    return TableColumn(parts[0].name, values, present)


def _series(pandas: Any, column: TableColumn) -> Any:
    """Return a column as a pandas series, with missing values."""
    name, values, present = column
    if name == "start":
        seconds = pandas.to_numeric(pandas.Series(values), errors="coerce")
        return pandas.to_datetime(seconds, unit="s", utc=True, errors="coerce")
    if name in ("value", "violation", "seconds") or {*map(type, values)} == {
        float
    }:
        return pandas.Series(
            np.array(
                [math.nan if value is None else value for value in values],
                dtype=float,
            )
        )
    if name == "iteration":
        return pandas.Series(values.astype(np.int64))
    if present.all():
        return pandas.Series(values)
    if values.dtype.kind == "i":
        return (
            pandas.Series(values)
            .astype(f"Int{8 * values.dtype.itemsize}")
            .mask(~present)
        )
    if values.dtype.kind == "f":
        return pandas.Series(np.where(present, values, math.nan))
    return pandas.Series(np.where(present, values, pandas.NA), dtype=object)
