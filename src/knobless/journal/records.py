"""Journals: one SQLite file a run, in which every evaluation is committed the moment it ends.

    minimize(fun, space, budget=2000, journal="run.sqlite")     # and again, after whatever ended it: it goes on
    Optimizer(space, journal="run.sqlite")

A journal holds what the run is (space, algorithm, seed, as plain data) and what happened, row by row. Because
an algorithm that is told the same does the same, the state of a run is the fold of these rows, and nothing else is
kept. No row is ever changed. Once an evaluation is committed, no end of the process takes it. A loss of power takes
none that took longer than 50 ms; of quicker ones it may take those that were committed within a second after the last
that it did not take. It leaves the rest in order.

One process writes at a time, held to that by a lock on `run.sqlite.lock`. Others may read meanwhile:

    with knobless.journal.read("run.sqlite") as record:
        record.space, record.algorithm, record.seed, record.batch, record.deterministic, record.direction
        record.meta                     # a dict: what `Journal(path, meta)` noted; `minimize` notes fun and budget
        record.counts()                 # Counts(evaluations, failures, cancelled, added, started, ended)
        for event in record:            # in the order in which they came: iteration, position, fate, value, failure, …
            record.point(event)         # what the objective got
        record.failures()               # the failed ones alone
        record.fold()                   # an Optimizer where the run is: best, theta, lam, eps, mode, nit, nfev, …

`Optimizer` minimizes; `record.sign` is −1 for a journal of `maximize`, and what `fold` gives has values times it.
Whatever is wrong with a file is a `JournalError`. A file from a stranger is data, never code.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self
from urllib.parse import quote

from knobless.core.algorithm import Algorithm
from knobless.core.data import difference, parsed
from knobless.core.description import algorithm_of
from knobless.run.candidates import TOLD
from knobless.space.codec import space_of
from knobless.space.space import Space

if TYPE_CHECKING:
    from knobless.run.optimizer import Optimizer

__all__ = ["Counts", "Event", "Journal", "JournalError", "Record", "read"]

APPLICATION = 0x6B6E6F62  # "knob", where SQLite keeps what a file is for
VERSION = 1
LARGEST = 2**26  # bytes of one text or blob; asked of SQLite, which refuses before it takes memory
SECOND = 1.0  # between two waits for the disk, at most, while rows come
LONG = 0.05  # seconds of an evaluation that is worth such a wait of its own, some milliseconds
PAGE = 1024  # bytes that are written for a row, at least: a quarter of what is usual, because rows are short
LOG = 2**22  # bytes of the write-ahead log before it goes into the file
SAID = 2**14  # characters kept of what a failure said, the last ones

HEADER = "CREATE TABLE header (name TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID"
EVENTS = """CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    drawn INTEGER NOT NULL,
    fate INTEGER NOT NULL,
    id INTEGER NOT NULL,
    code BLOB NOT NULL,
    value REAL,
    failure TEXT,
    iteration INTEGER NOT NULL,
    position INTEGER NOT NULL,
    started REAL,
    ended REAL,
    worker TEXT
)"""
COLUMNS = "drawn, fate, id, code, value, failure, iteration, position, started, ended, worker"
INSERT = f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
SELECT = f"SELECT {COLUMNS} FROM events"
SOUND = """typeof(drawn) = 'integer' AND drawn >= 0 AND fate IN (1, 2, 3) AND typeof(fate) = 'integer'
    AND typeof(id) = 'integer' AND typeof(iteration) = 'integer' AND typeof(position) = 'integer'
    AND typeof(code) = 'blob' AND typeof(value) IN ('real', 'null') AND typeof(failure) IN ('text', 'null')
    AND typeof(started) IN ('real', 'null') AND typeof(ended) IN ('real', 'null')
    AND typeof(worker) IN ('text', 'null')"""

ADDED = 3  # beside TOLD and CANCELLED: a point that was evaluated elsewhere

IDENTITY = ("space", "direction", "batch", "deterministic", "x0", "algorithm", "rng")


class JournalError(ValueError):
    """A journal that cannot be opened, read or written, or that belongs to another run; says which, and why."""


@dataclass(frozen=True)
class Journal:
    """Where a run is recorded, with notes of the user's own: anything that JSON can say."""

    path: str | os.PathLike[str]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)) or not Path(self.path).name:
            raise TypeError(f"journal: expected a path, got {self.path!r}")
        try:
            json.dumps(dict(self.meta))
        except (TypeError, ValueError) as error:
            raise TypeError(f"meta: expected a dict of what JSON can say, got {self.meta!r}: {error}") from None

    @classmethod
    def of(cls, journal: Any) -> Journal:
        return journal if isinstance(journal, cls) else cls(journal)


class Event(NamedTuple):
    """One row: an evaluation (fate TOLD), or a candidate given up, or a point added.

    `drawn` says how many candidates had been drawn by then, so that the same can be drawn again at the same
    time. A value of None is a failure; `failure` is what it said, if it raised. `code` is the packed point.
    """

    drawn: int
    fate: int
    id: int
    code: bytes
    value: float | None
    failure: str | None
    iteration: int
    position: int
    started: float | None
    ended: float | None
    worker: str | None

    @property
    def failed(self) -> bool:
        """An evaluation that raised or gave NaN."""
        return self.fate == TOLD and self.value is None


class Counts(NamedTuple):
    """How many of what there is in a journal, and the times of the first start and the last end."""

    evaluations: int
    failures: int
    cancelled: int
    added: int
    started: float | None
    ended: float | None


class Writer:
    """A journal opened for writing. `identity` is what run it belongs to; None until `begin` has said."""

    def __init__(self, journal: Journal) -> None:
        self.path = Path(journal.path)
        self._meta = journal.meta
        # Whatever names lead to a file, and wherever the process goes, there is one lock.
        real = self.path.resolve()
        lock = _Lock(real)
        try:
            self._connection = _opened(real, writable=True)
        except BaseException:
            lock.release()
            raise
        self._close = weakref.finalize(self, _closed, self._connection, lock)
        self.identity: dict[str, Any] | None = None
        self._synced = self._appended = -math.inf
        try:
            with _explained(self.path):
                if _is_new(self._connection):
                    self._create()
                else:
                    _inspect(self._connection)
                    self._connection.execute("PRAGMA journal_mode = WAL")
                    self.identity = _header(self._connection).get("identity")
                # A commit is then in the hands of the operating system. Waiting for the disk as well is left to
                # `append`, where it is worth it.
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {LOG // PAGE}")
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        self._connection.execute(f"PRAGMA page_size = {PAGE}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        with _transaction(self._connection):
            self._connection.execute(HEADER)
            self._connection.execute(EVENTS)
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {VERSION}")

    def begin(self, identity: Mapping[str, Any]) -> None:
        """This is the run that the journal belongs to; JournalError if it is another's."""
        if self.identity is None:
            self._put("identity", dict(identity))
            self._put("created", time.time())
            self.identity = dict(identity)
        for name in IDENTITY:
            there, here = self.identity.get(name), identity.get(name)
            differs = _rng_difference(there, here) if name == "rng" else difference(there, here, name)
            if differs:
                raise JournalError(f"{self.path}: a journal of another run, {differs}")
        self.note(self._meta)
        with _explained(self.path):  # into the file itself, so that it says what it is even without its -wal
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def note(self, meta: Mapping[str, Any]) -> None:
        """Adds to the notes."""
        if meta:
            with _explained(self.path):
                self._put("meta", _header(self._connection).get("meta", {}) | dict(meta))

    def _put(self, name: str, data: Any) -> None:
        with _explained(self.path):
            self._connection.execute("INSERT OR REPLACE INTO header VALUES (?, ?)", (name, json.dumps(data)))

    def events(self) -> Iterator[Event]:
        """What has been recorded, in the order in which it came."""
        return _events(self._connection, self.path)

    def explained(self) -> AbstractContextManager[None]:
        """What is wrong with what was read here is wrong with this file."""
        return _explained(self.path)

    def append(self, *rows: Sequence[Any]) -> None:
        """Commits these, all of them or none."""
        connection, now = self._connection, time.monotonic()
        started, ended = rows[-1][8:10]
        spent = now - self._appended if started is None else ended - started
        wait = spent > LONG or now - self._synced > SECOND
        try:
            if wait:  # for this commit, and with it all before
                connection.execute("PRAGMA synchronous = FULL")
                self._synced = now
            if len(rows) == 1:
                connection.execute(INSERT, rows[0])
            else:
                with _transaction(connection):
                    connection.executemany(INSERT, rows)
            if wait:
                connection.execute("PRAGMA synchronous = NORMAL")
            self._appended = now
        except (sqlite3.Error, OverflowError) as error:
            raise JournalError(
                f"{self.path}: cannot record an evaluation: {error}. What was recorded before is safe"
            ) from error

    def clear(self) -> None:
        """Drops what was told, if all of it failed."""
        with _explained(self.path), _transaction(self._connection):
            if self._connection.execute(f"SELECT max(value) FROM events WHERE fate = {TOLD}").fetchone()[0] is None:
                self._connection.execute(f"DELETE FROM events WHERE fate = {TOLD}")

    def close(self) -> None:
        """Lets the file go, for others to write."""
        self._close()


def kept(text: str) -> str:
    """What a failure said, as far as it is recorded."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= SAID else "… " + text[-SAID:]


class Record:
    """A journal opened for reading, also while another process writes. See the top of this file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._connection = _opened(self.path, writable=False)
        self._close = weakref.finalize(self, self._connection.close)
        try:
            with _explained(self.path):
                if _is_new(self._connection):
                    raise JournalError(f"{self.path}: nothing has been recorded yet")
                _inspect(self._connection)
                header = _header(self._connection)
                identity = header.get("identity")
                if identity is None:
                    raise JournalError(f"{self.path}: nothing has been recorded yet")
                self._read(identity, header)
        except BaseException:
            self.close()
            raise

    def _read(self, identity: dict[str, Any], header: dict[str, Any]) -> None:
        self.identity = identity
        self.meta: dict[str, Any] = header.get("meta", {})
        self.created: float | None = header.get("created")
        self.space: Space = space_of(identity.get("space"))
        self.batch = _checked(identity, "batch", int)
        self.deterministic: bool = _checked(identity, "deterministic", bool)
        self.direction: str = _checked(identity, "direction", str)
        self.algorithm: Algorithm | None = algorithm_of(identity.get("algorithm"), self.space.family)
        self.seed: Any = _checked(identity, "rng", dict).get("seed")
        self._packing = self.space.family
        x0 = identity.get("x0")
        self.x0 = None if x0 is None else self.space.decode(self._packing.unpack(bytes.fromhex(x0))[0])

    @property
    def sign(self) -> float:
        """Times which values are minimized."""
        return -1.0 if self.direction == "maximize" else 1.0

    def __iter__(self) -> Iterator[Event]:
        return _events(self._connection, self.path)

    def failures(self) -> Iterator[Event]:
        """The evaluations that failed."""
        return _events(self._connection, self.path, f"WHERE fate = {TOLD} AND value IS NULL")

    def counts(self) -> Counts:
        """How many of what there is so far."""
        with _explained(self.path):
            return Counts(
                *self._connection.execute(
                    "SELECT count(*) FILTER (WHERE fate = 1), count(*) FILTER (WHERE fate = 1 AND value IS NULL), "
                    "count(*) FILTER (WHERE fate = 2), count(*) FILTER (WHERE fate = 3), min(started), max(ended) "
                    "FROM events"
                ).fetchone()
            )

    def point(self, event: Event) -> Any:
        """What the objective got; of an option that JSON has no word for, its name."""
        with _explained(self.path):
            return self.space.decode(self._packing.unpack(event.code)[0])

    def fold(self, algorithm: Algorithm | None = None) -> Optimizer:
        """An optimizer where the run is. An algorithm with parts of the user's own must be given again."""
        from knobless.run.optimizer import Optimizer

        algorithm = self.algorithm if algorithm is None else algorithm
        if algorithm is None:
            raise JournalError(f"{self.path}: the algorithm has parts of its user's own; pass it to fold(algorithm)")
        with _explained(self.path):
            return Optimizer.folded(self.space, algorithm, self.identity, iter(self), self.sign)

    def close(self) -> None:
        """Lets the file go; leaving a `with` block does the same."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: str | os.PathLike[str]) -> Record:
    """The journal at `path`, to look at; it may be in use. See the top of this file for what there is to see."""
    return Record(path)


# Files.


class _Lock:
    """Held by the one process that writes: a lock of the operating system, which ends with the process.

    Not on the journal itself, where SQLite has its own. Not inherited by processes that are forked off, which
    may outlive this one.
    """

    held: ClassVar[set[object]] = set()  # by this process, which the operating system would let in twice

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self.pid = os.getpid()
        while True:
            # Looked up before it is opened: to close it again would let go of a lock that this process has on it.
            free = _identity_of(self._path) not in _Lock.held
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666) if free else -1
            except OSError as error:
                raise JournalError(f"{path}: cannot be opened for writing: {error.strerror}: {self._path}") from error
            if not free or not _locked(self._file):
                if free:
                    os.close(self._file)
                raise JournalError(f"{path}: another run is writing to it; it must end before this one can go on")
            self._key = _identity_of(self._file)
            if self._key == _identity_of(self._path):  # else the last holder has just removed it
                _Lock.held.add(self._key)
                return
            os.close(self._file)

    def release(self) -> None:
        with suppress(OSError):  # where an open file cannot be removed it stays
            if _identity_of(self._path) == self._key:
                os.unlink(self._path)
        _Lock.held.discard(self._key)
        os.close(self._file)


def _identity_of(file: Path | int) -> object:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _locked(file: int) -> bool:
    """Takes the lock if nobody has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _locked_on_windows(file)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


def _opened(path: Path, writable: bool) -> sqlite3.Connection:
    """A connection that trusts nothing that is in the file."""
    where = f"file:{quote(str(path.absolute()))}?mode="
    with _explained(path):
        if not writable and not path.is_file():
            raise JournalError(f"{path}: there is no such file")
        for options in ("rwc",) if writable else ("ro", "ro&immutable=1"):
            connection = sqlite3.connect(where + options, uri=True, isolation_level=None, check_same_thread=False)
            try:
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST)
                for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "query_only = ON"):
                    if not (writable and pragma.startswith("query")):
                        connection.execute(f"PRAGMA {pragma}")
                connection.execute("PRAGMA user_version").fetchone()
            except sqlite3.OperationalError:
                connection.close()
                # In a folder where nothing can be written, a journal that is not in use can still be read.
                if options != "ro" or Path(f"{path}-wal").exists():
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                return connection
    raise JournalError(f"{path}: cannot be opened")


def _closed(connection: sqlite3.Connection, lock: _Lock) -> None:
    if lock.pid != os.getpid():  # at the end of a process that was forked off: it is not the one that writes
        return
    try:
        with suppress(sqlite3.Error):  # the last tidying up may fail where the disk is full; nothing is lost
            connection.close()
    finally:
        lock.release()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Whatever is wrong with the file, in this library's own words."""
    try:
        yield
    except JournalError:
        raise
    except sqlite3.DatabaseError as error:
        raise JournalError(f"{path}: {error}") from error
    except (sqlite3.Error, OSError, MemoryError) as error:
        raise JournalError(f"{path}: {error or type(error).__name__}") from error
    except (ValueError, TypeError, OverflowError, AttributeError, LookupError) as error:
        raise JournalError(f"{path}: not a journal as this library writes it: {error}") from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite has ended it by itself where the disk is full
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _is_new(connection: sqlite3.Connection) -> bool:
    """Whether nobody has written to it: an empty file, or one that a process was killed while making."""
    empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    return bool(empty and connection.execute("PRAGMA application_id").fetchone()[0] == 0)


def _inspect(connection: sqlite3.Connection) -> None:
    """JournalError-to-be (ValueError) unless this is a journal, sound in every part, and no more than that."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise ValueError("it is a database of another application")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise ValueError(f"it is of format {version}, and this library knows format {VERSION}")
    # Exactly these tables: a view, a trigger or a generated column could do work of its own.
    if {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema LIMIT 9")} != {HEADER, EVENTS}:
        raise ValueError("it has other tables")
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise ValueError(f"it is damaged: {answer}")
    (bad,) = connection.execute(f"SELECT min(number) FROM events WHERE NOT ({SOUND})").fetchone()
    if bad is not None:
        raise ValueError(f"row {bad} is not an evaluation")


def _header(connection: sqlite3.Connection) -> dict[str, Any]:
    header = {name: parsed(text) for name, text in connection.execute("SELECT name, json FROM header LIMIT 9")}
    for name, kind in (("identity", dict), ("meta", dict), ("created", float)):
        if name in header and not isinstance(header[name], kind):
            raise ValueError(f"{name}: expected a {kind.__name__}, got {header[name]!r:.100}")
    return header


def _events(connection: sqlite3.Connection, path: Path, where: str = "") -> Iterator[Event]:
    with _explained(path):
        yield from map(Event._make, connection.execute(f"{SELECT} {where} ORDER BY number"))


def _checked(identity: dict[str, Any], name: str, kind: Any) -> Any:
    value = identity.get(name)
    if type(value) is not kind:
        raise ValueError(f"{name}: expected {kind.__name__}, got {value!r:.100}")
    return value


def _rng_difference(there: Any, here: Any) -> str | None:
    """In words, where the states of two generators differ: the seeds if they are known."""
    if not isinstance(there, dict):
        return "rng: there is none"
    if difference(there | {"seed": None}, here | {"seed": None}, "rng") is None:
        return None
    seeds = [there.get("seed"), here["seed"]]
    if None in seeds or seeds[0] == seeds[1]:
        return "rng: there it is another generator or in another state (with rng=None the journal's own is taken)"
    return f"rng: there it is the seed {seeds[0]}, here {seeds[1]} (with rng=None the journal's own is taken)"
