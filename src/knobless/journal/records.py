"""Journals opened for reading, also while another process writes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from knobless.core.algorithm import Algorithm
from knobless.core.description import algorithm_of
from knobless.space.codec import space_of
from knobless.space.space import Space

from .events import CHECKED, TOLD, Counts, Event, Journal, JournalError, unpacked
from .identity import Identity
from .sqlite import COLUMNS, connect, explained, inspect, is_new, read_header, select

__all__ = ["Counts", "Event", "Journal", "JournalError", "Record", "read"]


class Record:
    """A journal opened for reading; iterate over it for its events, in the order in which they were recorded.

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
        The algorithm; None if it has custom components, which a journal does not store.
    direction : str
        "minimize" or "maximize".
    sign : float
        −1 for "maximize", else 1: values times it are minimized.
    batch, deterministic, x0, seed
        As they were given to the run.
    meta : dict
        Notes given to `Journal`; `minimize` adds "fun", "code" (a digest) and "budget".
    created : float or None
        Time at which the journal was created, in seconds since the epoch.
    drawn : int
        Candidates drawn when `knobless ask` was last called, or when the run last found that sampling yields no new
        points; 0 if neither happened.

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
                    raise JournalError(f"{self.path}: nothing has been recorded yet")
                inspect(self._connection, self.path)
                header = read_header(self._connection)
                if "identity" not in header:
                    raise JournalError(f"{self.path}: nothing has been recorded yet")
                self._read(header)
        except BaseException:
            self.close()
            raise

    def _read(self, header: dict[str, Any]) -> None:
        self.identity = identity = Identity.from_data(header["identity"])
        self.meta: dict[str, Any] = header.get("meta", {})
        self.created: float | None = header.get("created")
        self.drawn: int = header.get("drawn", 0)
        self.direction, self.sign, self.seed = identity.direction, identity.sign, identity.seed
        self.batch, self.deterministic = identity.batch, identity.deterministic
        self.space: Space = space_of(identity.space)
        self.algorithm: Algorithm | None = algorithm_of(identity.algorithm, self.space.family)
        x0 = identity.x0
        self.x0 = None if x0 is None else self.space.decode(self.space.family.unpack(bytes.fromhex(x0))[0])

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
        return [(number, Event._make(rest)) for number, *rest in rows]

    def failures(self) -> Iterator[Event]:
        """Iterate over the failed evaluations.

        Returns
        -------
        iterator of Event
            The failed evaluations in the order in which they were recorded.
        """
        return select(self._connection, self.path, f"WHERE fate IN ({TOLD}, {CHECKED}) AND value IS NULL")

    def counts(self) -> Counts:
        """Return the number of rows of each kind, and the times of the first start and the last end.

        Returns
        -------
        Counts
            The numbers and times.
        """
        with explained(self.path):
            return Counts(
                *self._connection.execute(
                    "SELECT count(*) FILTER (WHERE fate IN (1, 4)), "
                    "count(*) FILTER (WHERE fate IN (1, 4) AND value IS NULL), count(*) FILTER (WHERE fate = 2), "
                    "count(*) FILTER (WHERE fate = 3), min(started), max(ended) FROM events"
                ).fetchone()
            )

    def point(self, event: Event) -> Any:
        """Return the point of an event as the objective received it.

        Parameters
        ----------
        event : Event
            An event of this journal.

        Returns
        -------
        object
            The point.

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
