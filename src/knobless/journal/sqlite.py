"""The SQLite file of a journal: its schema, its lock, connections to it, and the one that writes.

An untrusted file is data, never code: a connection runs nothing that is stored in the file, the
schema must be exactly the one below, and the types of all values are checked before any of them is
used.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from knobless.core.data import parsed

from .events import TOLD, Event, Journal, JournalError

# "knob", in the field where SQLite stores which application a file belongs to
APPLICATION = 0x6B6E6F62
_VERSION = 7
# Bytes of one text or blob; enforced by SQLite before it takes memory
_LARGEST = 2**26
_SECOND = 1.0  # between two syncs, at most, while rows are written
# Seconds of an evaluation that is worth a sync of its own, which takes some milliseconds
_LONG = 0.05
_POLL = 0.01  # seconds between two attempts to take a lock
COPY_OR_NEW = "Restore a copy of it, or use another file for a new run"
# Bytes of a page, a quarter of the default: each commit writes at least one, and rows are short
PAGE = 1024
LOG_SIZE = 2**22  # bytes of the write-ahead log before a checkpoint

HEADER = "CREATE TABLE header (name TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID"
# The value has no declared type: a column of type REAL would store −0.0 as 0.
EVENTS = """CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    drawn INTEGER NOT NULL,
    fate INTEGER NOT NULL,
    id INTEGER NOT NULL,
    code BLOB NOT NULL,
    value,
    failure TEXT,
    iteration INTEGER NOT NULL,
    position INTEGER NOT NULL,
    started REAL,
    ended REAL,
    worker TEXT,
    violation REAL,
    steps BLOB,
    stopped INTEGER NOT NULL,
    attributes TEXT
)"""
# Two writers, whatever let them in, cannot record a candidate twice, which no run could resume.
CANDIDATES = (
    "CREATE UNIQUE INDEX candidates ON events (id) WHERE fate IN (1, 2)"
)
COLUMNS = ", ".join(Event._fields)
INSERT = f"INSERT INTO events ({COLUMNS}) VALUES ({', '.join('?' * len(Event._fields))})"
SELECT = f"SELECT {COLUMNS} FROM events"
SOUND = """typeof(drawn) = 'integer' AND drawn >= 0
AND fate IN (1, 2, 3, 4) AND typeof(fate) = 'integer'
    AND typeof(id) = 'integer' AND typeof(iteration) = 'integer' AND typeof(position) = 'integer'
    AND typeof(code) = 'blob' AND typeof(failure) IN ('text', 'null')
    AND (typeof(value) IN ('real', 'null') OR typeof(value) = 'text' AND value GLOB '[[][[]*')
    AND typeof(started) IN ('real', 'null') AND typeof(ended) IN ('real', 'null')
    AND typeof(worker) IN ('text', 'null') AND typeof(violation) IN ('real', 'null')
    AND typeof(steps) IN ('blob', 'null') AND stopped IN (0, 1) AND typeof(stopped) = 'integer'
    AND (attributes IS NULL OR typeof(attributes) = 'text' AND attributes GLOB '{*}')"""


class Writer:
    """A journal opened for writing, by one process at a time.

    `header` holds what was stored with `put` before the journal was opened; it is empty for a new
    one.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.path = Path(journal.path)
        self._pid = os.getpid()
        with explained(self.path):
            try:
                # One lock per file, whatever path leads to it
                real = self.path.resolve()
            except (OSError, RuntimeError) as error:
                raise JournalError(
                    f"{self.path}: cannot open: {error}"
                ) from error
            lock = Lock(real, journal.wait)
        try:
            self._connection = connect(real, writable=True)
        except BaseException:
            lock.release()
            raise
        self._close = weakref.finalize(
            self, _close, self._connection, lock, self._pid
        )
        self._lock, self._real = lock, str(real)
        self.header: dict[str, Any] = {}
        self._synced = self._appended = -math.inf
        try:
            with explained(self.path):
                if is_new(self._connection):
                    self._create()
                else:
                    inspect(self._connection, self.path)
                    self._connection.execute("PRAGMA journal_mode = WAL")
                    self.header = read_header(self._connection)
                # A commit then hands its row to the operating system; `append` syncs where that is
                # worth it.
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute(
                    f"PRAGMA wal_autocheckpoint = {LOG_SIZE // PAGE}"
                )
                self._file = os.stat(real)
                logs = (f"{real}-wal", f"{real}-shm")
                self._logs = {
                    path: os.stat(path) for path in logs if os.path.exists(path)
                }
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        self._connection.execute(f"PRAGMA page_size = {PAGE}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        with transaction(self._connection):
            self._connection.execute(HEADER)
            self._connection.execute(EVENTS)
            self._connection.execute(CANDIDATES)
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {_VERSION}")

    def put(self, name: str, data: Any) -> None:
        """Store plain data in the header."""
        self._check_writable()
        with explained(self.path):
            self._connection.execute(
                "INSERT OR REPLACE INTO header VALUES (?, ?)",
                (name, json.dumps(data)),
            )
        self.header[name] = data

    def note(self, meta: Mapping[str, Any]) -> None:
        """Add to the notes."""
        if meta:
            self.put("meta", self.header.get("meta", {}) | dict(meta))

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file: the header is then read without the log."""
        with explained(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def events(self, where: str = "") -> Iterator[Event]:
        """Iterate over the rows in the order in which they were written.

        A condition in SQL selects some of them.
        """
        return select(self._connection, self.path, where)

    @property
    def last_row(self) -> int:
        """The number of the last row; 0 if there is none."""
        with explained(self.path):
            return int(
                self._connection.execute(
                    "SELECT coalesce(max(number), 0) FROM events"
                ).fetchone()[0]
            )

    def explained(self) -> AbstractContextManager[None]:
        """Turn errors caused by the contents of this file into a `JournalError`."""
        return explained(self.path)

    def append(self, rows: Sequence[Event]) -> None:
        """Commit these rows, all of them or none."""
        if not rows:
            return
        self._check_writable()
        connection = self._connection
        begun_at = time.monotonic()
        started, ended = rows[-1][8:10]
        # Of a serial evaluation, whatever happens to the system's clock meanwhile
        spent = begun_at - self._appended
        if started is not None and ended is not None:
            spent = (
                max(spent, ended - started) if ended >= started else math.inf
            )
        wait = spent > _LONG or begun_at - self._synced > _SECOND
        try:
            if wait:  # for this commit, and with it all before
                connection.execute("PRAGMA synchronous = FULL")
                self._synced = begun_at
            if len(rows) == 1:
                connection.execute(INSERT, rows[0].stored)
            else:
                with transaction(connection):
                    connection.executemany(INSERT, [row.stored for row in rows])
            if wait:
                connection.execute("PRAGMA synchronous = NORMAL")
            self._appended = begun_at
        except (sqlite3.Error, OverflowError) as error:
            raise JournalError(
                f"{self.path}: cannot record an evaluation: {error}. Rows recorded before are not "
                "affected"
            ) from error

    def clear(self) -> None:
        """Delete all evaluations, if every one of them failed."""
        self._check_writable()
        with explained(self.path), transaction(self._connection):
            if (
                self._connection.execute(
                    f"SELECT max(value) FROM events WHERE fate = {TOLD}"
                ).fetchone()[0]
                is None
            ):
                self._connection.execute(
                    f"DELETE FROM events WHERE fate = {TOLD}"
                )

    def _check_writable(self) -> None:
        """Check that rows can be written.

        JournalError if the journal is closed, belongs to the parent process, or is no longer at its
        path.
        """
        if not self._close.alive:
            raise JournalError(
                f"{self.path}: cannot write: the journal was closed. To continue the run, open it "
                "again: "
                "Optimizer(..., journal=...)"
            )
        if os.getpid() != self._pid:
            raise JournalError(
                f"{self.path}: cannot write: it is open in process {self._pid}, from which this "
                "one was forked"
            )
        if not _is_at(self._file, self._real):
            copied = self._copied()
            self.close()
            raise JournalError(
                f"{self.path}: cannot write: the file was deleted, renamed or replaced. {copied}"
            )
        if not self._lock.is_in_place():
            self.close()
            raise JournalError(
                f"{self.path}: cannot write: the lock file {self._lock.path} was deleted or "
                "replaced, so another run "
                "may be writing to it. To continue the run, open it again"
            )

    def _copied(self) -> str:
        """Copy all rows, which may have no name any more, to a new file.

        Return a sentence that names it.
        """
        target = f"{self._real}.saved"
        try:
            self._connection.execute("VACUUM INTO ?", (target,))
        except sqlite3.Error as error:
            return f"What was recorded could not be copied to {target}: {error}"
        with suppress(sqlite3.Error):
            # Which moves the log into the file, wherever that is now
            self._connection.close()
        # SQLite would read what is left of the log as that of another file at the path.
        for path, opened in self._logs.items():
            if _is_at(opened, path):
                os.unlink(path)
        return f"What was recorded is in {target}, a journal from which the run can be resumed"

    def close(self) -> None:
        """Close the file, so that another process can write to it."""
        self._close()


def _close(connection: sqlite3.Connection, lock: Lock, pid: int) -> None:
    # a forked process ends: the journal stays open in its parent
    if pid != os.getpid():
        return
    try:
        # The last checkpoint may fail on a full disk; nothing is lost
        with suppress(sqlite3.Error):
            connection.close()
    finally:
        lock.release()


# Locks.


class Lock:
    """An exclusive lock on `<journal>.lock`.

    The operating system releases it when the process ends.

    It is not on the journal itself, where SQLite has its own locks. It belongs to one open file:
    another is refused within the same process too, and opening and closing the file elsewhere does
    not release it.
    """

    _held: set[Lock] = set()  # noqa: RUF012

    def __init__(self, path: Path, wait: float = 0.0) -> None:
        self.path = f"{path}.lock"
        end = time.monotonic() + wait
        # Each name would have a lock of its own
        if path.is_file() and path.stat().st_nlink > 1:
            raise JournalError(
                f"{path}: cannot open for writing: expected a file with one name, got hard links "
                "to it"
            )
        while True:
            try:
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise JournalError(
                    f"{path}: cannot open for writing: {error.strerror}: {self.path}"
                ) from error
            if not _locked(self._file):
                os.close(self._file)
                if time.monotonic() >= end:
                    raise JournalError(
                        f"{path}: cannot open for writing: another run is writing to it. Wait "
                        "until it ends or close "
                        "its Optimizer, or use another file"
                    )
                time.sleep(_POLL)
                continue
            self._opened = os.fstat(self._file)
            if self.is_in_place():  # else the last holder has just removed it
                Lock._held.add(self)
                return
            os.close(self._file)

    def is_in_place(self) -> bool:
        """Return whether the file that is locked is the one at the path.

        If not, another process may lock that one.
        """
        return _is_at(self._opened, self.path)

    def release(self) -> None:
        """Remove the file and release the lock."""
        Lock._held.discard(self)
        with suppress(OSError):  # where an open file cannot be removed it stays
            if self.is_in_place():
                os.unlink(self.path)
        os.close(self._file)

    @classmethod
    def drop_inherited(cls) -> None:
        """Close the files of the parent in a forked process.

        The process may outlive the parent, and would keep its locks.
        """
        for lock in cls._held:
            with suppress(OSError):
                os.close(lock._file)
        cls._held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Lock.drop_inherited)


def _is_at(file: os.stat_result, path: str) -> bool:
    """Return whether a file, which is open, is still at a path."""
    try:
        return os.path.samestat(file, os.stat(path))
    except OSError:
        return False


def _locked(file: int) -> bool:
    """Take the lock, if it is free."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _locked_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _locked_on_windows(file: int) -> bool:
    import msvcrt

    try:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
    except OSError:
        return False
    return True


# Connections.


def connect(path: Path, writable: bool) -> sqlite3.Connection:
    """Open a connection that runs nothing that is stored in the file."""
    with explained(path):
        where = f"file:{quote(os.fsencode(path.absolute()))}?mode="
        # Opening a named pipe would wait for its writer
        if not path.is_file() and (path.exists() or not writable):
            expected = "expected a file" if path.exists() else "no such file"
            raise JournalError(f"{path}: cannot open: {expected}")
        # A reader may write no rows, but as the last to close the file it removes the log, as a
        # writer does. Where it may not write to the folder, a journal that is not in use can still
        # be read.
        for options in ("rwc",) if writable else ("rw", "ro&immutable=1"):
            connection = sqlite3.connect(
                where + options,
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST)
                for pragma in (
                    "trusted_schema = OFF",
                    "cell_size_check = ON",
                    "mmap_size = 0",
                    "query_only = ON",
                ):
                    if not (writable and pragma.startswith("query")):
                        connection.execute(f"PRAGMA {pragma}")
                connection.execute("PRAGMA user_version").fetchone()
            except sqlite3.OperationalError:
                connection.close()
                if options != "rw" or Path(f"{path}-wal").exists():
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                return connection
    raise JournalError(f"{path}: cannot open")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors caused by the file at `path` into a `JournalError` that names it."""
    try:
        yield
    except JournalError:
        raise
    except (sqlite3.Error, OSError, MemoryError) as error:
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError
        )
        remedy = f". {COPY_OR_NEW}" if damaged else ""
        raise JournalError(
            f"{path}: {str(error) or type(error).__name__}{remedy}"
        ) from error
    except (
        ValueError,
        TypeError,
        OverflowError,
        AttributeError,
        LookupError,
    ) as error:
        raise JournalError(
            f"{path}: not a valid journal: {error}. {COPY_OR_NEW}"
        ) from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all statements or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite ends it by itself on a full disk
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def is_new(connection: sqlite3.Connection) -> bool:
    """Return whether nothing is stored in a file, as after an interrupted creation."""
    empty = (
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        == 0
    )
    return bool(
        empty and connection.execute("PRAGMA application_id").fetchone()[0] == 0
    )


def inspect(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a file is a journal with valid types in every row, and nothing else.

    JournalError or ValueError if it is not.
    """
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise ValueError("it is a database of another application")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != _VERSION:
        raise JournalError(
            f"{path}: cannot resume: expected journal format {_VERSION}, got format {version}. "
            "Use the version of "
            "knobless that wrote it, or another file for a new run"
        )
    # Exactly these tables: a view, a trigger or a generated column could run code of its own.
    if {
        sql
        for (sql,) in connection.execute(
            "SELECT sql FROM sqlite_schema LIMIT 9"
        )
    } != {HEADER, EVENTS, CANDIDATES}:
        raise ValueError("it has other tables")
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise ValueError(f"it is damaged: {answer}")
    (bad,) = connection.execute(
        f"SELECT min(number) FROM events WHERE NOT ({SOUND})"
    ).fetchone()
    if bad is not None:
        raise ValueError(f"row {bad} has values of other types")


def read_header(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the header as plain data, its types checked."""
    header = {
        name: parsed(text)
        for name, text in connection.execute(
            "SELECT name, json FROM header LIMIT 9"
        )
    }
    for name, kind in (
        ("identity", dict),
        ("meta", dict),
        ("created", float),
        ("drawn", int),
        ("asked", dict),
        ("asynchronous", bool),
        ("checkpoint", dict),
    ):
        if name in header and type(header[name]) is not kind:
            raise ValueError(
                f"{name}: expected a {kind.__name__}, got {header[name]!r:.100}"
            )
    return header


def select(
    connection: sqlite3.Connection, path: Path, where: str = ""
) -> Iterator[Event]:
    """Iterate over rows in the order in which they were written."""
    with explained(path):
        yield from map(
            Event.read, connection.execute(f"{SELECT} {where} ORDER BY number")
        )
