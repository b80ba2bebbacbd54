"""Journals opened for reading, also while another process writes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from knobless.core.algorithm import Algorithm
from knobless.core.description import algorithm_of
from knobless.space.codec import space_of
from knobless.space.space import Space

from .evaluations import ROWS_AT_ONCE, Evaluations, names_in
from .events import (
    CANCELLED,
    CHECKED,
    TOLD,
    Counts,
    Event,
    Journal,
    JournalError,
    unpacked,
)
from .identity import Identity
from .sqlite import (
    COLUMNS,
    connect,
    explained,
    inspect,
    is_new,
    read_header,
    select,
)

__all__ = ["Counts", "Event", "Journal", "JournalError", "Record", "read"]


FAILED = f"fate IN ({TOLD}, {CHECKED}) AND value IS NULL AND NOT stopped"


class Record:
    """A journal opened for reading.

    Iterate over it for its events, in the order in which they were recorded.

    Parameters
    ----------
    path : path-like
        The journal. Another process may be writing to it.

    Attributes
    ----------
    identity : Identity
        What run the journal belongs to, as plain data.
    space : Space
        The search space. An option that JSON cannot represent is replaced by its name.
    algorithm : Algorithm or None
        The algorithm; None if it has custom components, or if the run has constraints, which a
        journal does not store.
    direction : str
        "minimize" or "maximize".
    sign : float
        −1 for "maximize", else 1: values times it are minimized.
    batch : int
        The parameter of the run.
    deterministic : bool or None
        The parameter of the run, as it was given.
    x0 : point, list of points or None
        The initial points of the run.
    seed : object
        The seed of the run; None if it was started from a generator.
    meta : dict
        Notes given to `Journal`; `minimize` adds "fun", "code" (a digest) and "budget".
    created : float or None
        Time at which the journal was created, in seconds since the epoch.
    drawn : int
        Candidates drawn when `knobless ask` was last called, or when the run last found that
        sampling yields no new points; 0 if neither happened.

    Raises
    ------
    JournalError
        If there is no journal at `path` or it is not valid.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._connection = connect(self.path, writable=False)
        self._close = weakref.finalize(self, self._connection.close)
        try:
            with explained(self.path):
                if is_new(self._connection):
                    raise JournalError(
                        f"{self.path}: nothing has been recorded yet"
                    )
                inspect(self._connection, self.path)
                header = read_header(self._connection)
                if "identity" not in header:
                    raise JournalError(
                        f"{self.path}: nothing has been recorded yet"
                    )
                self._read(header)
        except BaseException:
            self.close()
            raise

    def _read(self, header: dict[str, Any]) -> None:
        self.identity = identity = Identity.from_data(header["identity"])
        self.meta: dict[str, Any] = header.get("meta", {})
        self.created: float | None = header.get("created")
        self.drawn: int = header.get("drawn", 0)
        self.asynchronous: bool = header.get("asynchronous", False)
        self.direction = identity.direction
        self.sign = identity.sign
        self.seed = identity.seed
        self.batch = identity.batch
        self.deterministic = identity.deterministic
        self.space: Space = space_of(identity.space)
        algorithm = algorithm_of(identity.algorithm, self.space.family)
        self.algorithm: Algorithm | None = (
            None if identity.constraints else algorithm
        )
        x0 = identity.x0
        points = (
            []
            if x0 is None
            else self.space.decode_each(
                self.space.family.unpack(bytes.fromhex(x0))
            )
        )
        self.x0 = points if len(points) > 1 else points[0] if points else None

    def __iter__(self) -> Iterator[Event]:
        return select(self._connection, self.path)

    def since(self, number: int, limit: int) -> list[tuple[int, Event]]:
        """Return the rows from a number on.

        Parameters
        ----------
        number : int
            Number of the first row.
        limit : int
            Maximum number of rows.

        Returns
        -------
        list of (int, Event)
            The rows with their numbers, in their order.
        """
        query = f"SELECT number, {COLUMNS} FROM events WHERE number >= ? ORDER BY number LIMIT ?"
        with explained(self.path):
            rows = self._connection.execute(query, (number, limit)).fetchall()
        return [(number, Event.read(fields)) for number, *fields in rows]

    def failures(self) -> Iterator[Event]:
        """Iterate over the failed evaluations.

        Returns
        -------
        iterator of Event
            The failed evaluations in the order in which they were recorded.
        """
        return select(self._connection, self.path, f"WHERE {FAILED}")

    def counts(self) -> Counts:
        """Return the number of rows of each kind, the first start and the last end."""
        with explained(self.path):
            return Counts(
                *self._connection.execute(
                    "SELECT count(*) FILTER (WHERE fate IN (1, 4)), "
                    f"count(*) FILTER (WHERE {FAILED}), count(*) FILTER (WHERE fate = 2), "
                    "count(*) FILTER (WHERE fate = 3), min(started), max(ended) FROM events"
                ).fetchone()
            )

    @property
    def evaluations(self) -> Evaluations:
        """All rows as evaluations, in the order of their candidates.

        Cancelled candidates and points evaluated elsewhere are included.

        They are read again from the file when they are accessed, also after this record is closed.
        """
        return Evaluations(
            self.space,
            self.direction,
            JournalRows(self.path),
            0,
            self.identity.directions,
        )

    def to_pandas(self) -> Any:
        """Convert all rows to a pandas data frame.

        Returns
        -------
        pandas.DataFrame
            One row per evaluation, as `Evaluations.to_pandas` describes.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return self.evaluations.to_pandas()

    def numbers(self, part: JournalPart | None = None) -> NDArray[np.int64]:
        """Return the numbers of rows, in the order of candidates, or of arrival if that counts.

        Evaluations that the search does not learn from, and points evaluated elsewhere, follow the
        candidates that were drawn before them.

        Parameters
        ----------
        part : JournalPart, optional
            What to select; all rows by default.

        Returns
        -------
        array of int
            The numbers of the rows.
        """
        with explained(self.path):
            rows = self._connection.execute(
                "SELECT number, drawn, fate, id FROM events ORDER BY number"
            ).fetchall()
        index = np.array(rows, dtype=np.int64).reshape(-1, 4)
        if part is not None:
            index = index[part.contains(index)]
        number, drawn, fate, id = index.T
        if part is not None and part.used is not None:
            return number
        candidate = (fate == TOLD) | (fate == CANCELLED)
        place = np.where(candidate, id, drawn - 1)
        among = np.where(fate == CHECKED, id, number)
        return number[np.lexsort((among, ~candidate, place))]

    def rows(self, numbers: Sequence[int]) -> list[Event]:
        """Return rows by their numbers.

        Parameters
        ----------
        numbers : sequence of int
            Numbers of rows, each once.

        Returns
        -------
        list of Event
            The rows in this order.
        """
        marks = ", ".join("?" * len(numbers))
        query = (
            f"SELECT number, {COLUMNS} FROM events WHERE number IN ({marks})"
        )
        with explained(self.path):
            events = {
                number: Event.read(fields)
                for number, *fields in self._connection.execute(
                    query, list(numbers)
                )
            }
            return [events[number] for number in numbers]

    def attribute_names(self) -> list[str]:
        """Return the names of the attributes of all evaluations.

        Returns
        -------
        list of str
            The names in the order in which they first occur.
        """
        query = "SELECT attributes FROM events WHERE attributes IS NOT NULL ORDER BY number"
        with explained(self.path):
            return names_in(text for (text,) in self._connection.execute(query))

    def point(self, event: Event) -> Any:
        """Return the point of an event as the objective received it.

        Parameters
        ----------
        event : Event
            An event of this journal.

        Raises
        ------
        JournalError
            If the event has no valid point of the space.
        """
        with explained(self.path):
            return self.space.decode(unpacked([event], self.space.family)[0])

    def explained(self) -> AbstractContextManager[None]:
        """Turn errors caused by the contents of this file into a `JournalError`.

        Returns
        -------
        context manager
            Within it, the contents of the file can be decoded and replayed.
        """
        return explained(self.path)

    def close(self) -> None:
        """Close the file; leaving a `with` block does the same."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JournalPart(NamedTuple):
    """The rows of a journal that one run has used.

    A journal may have more, of runs with other stopping rules.

    `last` is the last number of a row, `told` the highest id of a candidate; `checks` are
    evaluations that the search does not learn from, by the number of candidates drawn before them,
    and their own numbers from first to before last.
    If values are used in the order of arrival, `used` is their number.
    """

    last: int
    told: int
    checks: tuple[tuple[int, int, int], ...]
    used: int | None = None

    def contains(self, index: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows, given by (number, drawn, fate, id), belong to the run."""
        number, drawn, fate, id = index.T
        selected = (fate == TOLD) & (id <= self.told)
        if self.used is not None:
            selected &= (fate == TOLD).cumsum() <= self.used
        for at, first, stop in self.checks:
            selected |= (
                (fate == CHECKED) & (drawn == at) & (first <= id) & (id < stop)
            )
        belongs: NDArray[np.bool_] = selected & (number <= self.last)
        return belongs


class JournalRows:
    """Evaluations of a journal in the order of their candidates, read when they are needed."""

    def __init__(
        self, path: str | os.PathLike[str], part: JournalPart | None = None
    ) -> None:
        self._path = Path(path).absolute()
        self._part = part

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        with Record(self._path) as record:
            return record.numbers(self._part)

    def __len__(self) -> int:
        return len(self._numbers)

    def attribute_names(self) -> list[str]:
        """Return the names of all attributes, in the order in which they first occur."""
        with Record(self._path) as record:
            return record.attribute_names()

    def chunks(self, start: int, stop: int) -> Iterator[list[Event]]:
        """Yield the evaluations from `start` to before `stop`, a few at a time."""
        with Record(self._path) as record:
            for first in range(start, stop, ROWS_AT_ONCE):
                yield record.rows(
                    self._numbers[
                        first : min(first + ROWS_AT_ONCE, stop)
                    ].tolist()
                )


def read(path: str | os.PathLike[str]) -> Record:
    """Open a journal for reading.

    Parameters
    ----------
    path : path-like
        The journal. Another process may be writing to it.

    Returns
    -------
    Record
        A context manager with the facts of the run, and an iterable of its events.

    Raises
    ------
    JournalError
        If there is no journal at `path` or it is not valid.

    Examples
    --------
    >>> with knobless.journal.read("run.sqlite") as record:  # doctest: +SKIP
    ...     print(record.space, record.counts().evaluations)
    ...     values = [event.value for event in record]
    """
    return Record(path)
