"""Untrusted files: a damaged or malicious journal or snapshot opens, or fails with the library's own error.

Each case writes one file, changes it at random, and uses it in a process of its own with bounds on time and memory.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import unicodedata
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

import knobless as kl
from knobless.algorithms import p3
from knobless.journal import read

from . import cases

SECONDS = 15  # of CPU time for all uses of one file
MEMORY = 2**30  # bytes that these may take

SPACES = {
    "mixed": kl.Space(bits=kl.Binary(5), kind=kl.Choice("a", "b'; DROP TABLE events; --", len), z=kl.Float(0, 1)),
    "bits": kl.Binary(12),
    "tiny": kl.Binary(2),  # all of it is evaluated
}
GENERATORS = ("SFC64", "MT19937", "Philox", "PCG64")
SIZES = (-1, 0, 1, 10**4, 20_000_000, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), 10**30)
TEXTS = ("", "\x00", "\ud800", "\x9b31m", "\u202ebidi", "NaN", "1e999", "(" * 99, "x" * 10**6)
OTHERS = (None, True, 1e308, float("nan"), float("inf"), 0.5, [], {}, [1, [2]], {"a": {}})
STATEMENTS = (
    "CREATE TABLE more (a)",
    "CREATE VIEW v AS SELECT * FROM events",
    "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END",
    "CREATE INDEX i ON events (id)",
    "ALTER TABLE events ADD COLUMN more",
    "DROP TABLE events",
    "DELETE FROM header",
    "DELETE FROM events WHERE number % 3 = 1",
    "INSERT INTO events SELECT number + 100, drawn, fate, id, code, value, failure, iteration, position, started, "
    "ended, worker, violation, steps, stopped, attributes FROM events",
    "UPDATE events SET drawn = drawn + number * 134217728",
    "UPDATE events SET drawn = 4611686018427387904 WHERE number = (SELECT max(number) FROM events)",
    "UPDATE events SET id = id + 1, position = position + 1",
    "UPDATE events SET failure = printf('%.*c', 1000000, 'x'), value = NULL",
    """UPDATE events SET attributes = '{"a": '""",
    """UPDATE events SET attributes = '{"a": ' || printf('%.*c', 100000, '[') || '}'""",
    "PRAGMA user_version = 2",
    "PRAGMA application_id = 7",
)


def attack(seed: int, folder: Path) -> list[str]:
    """What uses of the file of this seed led to, other than success or the library's own error."""
    return _limited(uses(seed, folder), folder / "found")


def uses(seed: int, folder: Path) -> dict[str, Callable[[], object]]:
    """Writes the file of a seed; returns the ways in which it can be used, by name."""
    chance = random.Random(seed)
    name = chance.choice(list(SPACES))
    space, deterministic = SPACES[name], name == "tiny" or chance.random() < 0.5
    recipes: list[Any] = [None, kl.pbil_epsilon(space)] + ([] if name == "mixed" else [p3(space), kl.search(space)])
    arguments = {"algorithm": chance.choice(recipes), "batch": 3, "deterministic": deterministic}
    rng = np.random.Generator(getattr(np.random, chance.choice(GENERATORS))(0)) if chance.random() < 0.5 else 0
    path = folder / "file"
    if chance.random() < 0.3:
        _played(kl.Optimizer(space, rng=rng, **arguments)).save(path)
        _change_snapshot(chance, path)
        return {"load": lambda: _look(kl.Optimizer.load(path, space))}
    if chance.random() < 0.5:
        _played(kl.Optimizer(space, rng=rng, journal=path, **arguments)).close()
    else:
        kl.minimize(_objective, space, budget=30, rng=rng, journal=path, **arguments)
    _change_journal(chance, path)
    return {
        "read": lambda: _read(path),
        "fold": lambda: _fold(path),
        "show": lambda: _show(path),
        "show --json": lambda: _show(path, "--json"),
        "Optimizer": lambda: kl.Optimizer(space, journal=path, **arguments).close(),
        "minimize": lambda: kl.minimize(_objective, space, budget=40, journal=path, **arguments),
    }


def outcome(use: Callable[[], object]) -> str | None:
    """What is wrong with one use, if anything is."""
    try:
        use()
    except (kl.JournalError, kl.SnapshotError) as error:
        return None if str(error).split(": ", 1)[-1] else f"an error without a message: {error!r}"
    except Exception as error:
        return f"raised {error!r:.200}"
    return None


def _objective(x: Any) -> float:
    bits = x["bits"] if isinstance(x, dict) else x
    return float("nan") if bits.sum() == 1 else float(bits.sum())


def _played(opt: Any) -> Any:
    """After a few iterations, some candidates still out."""
    opt.add(opt.mode, 3.0)
    for _ in range(5):
        asked = opt.ask(5)
        if not len(asked):  # all of the space is known
            break
        opt.tell(asked[:3], [_objective(candidate.x) for candidate in asked[:3]])
        if len(asked) > 3:
            opt.cancel(asked[3])
    return opt


# Changes.


def _change_journal(chance: random.Random, path: Path) -> None:
    if chance.random() < 0.25:
        path.write_bytes(_damaged(chance, path.read_bytes()))
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for _ in range(chance.randint(1, 2)):
            # A change may be refused, or the one before may have left nothing to change.
            with suppress(sqlite3.Error, OverflowError, ValueError, TypeError, LookupError, RecursionError):
                _change_tables(chance, connection)


def _change_tables(chance: random.Random, connection: sqlite3.Connection) -> None:
    match chance.choice(["header", "header", "column", "column", "statement"]):
        case "header":
            name = chance.choice(["identity", "identity", "identity", "meta"])
            ((text,),) = connection.execute("SELECT json FROM header WHERE name = ?", (name,))
            connection.execute("UPDATE header SET json = ? WHERE name = ?", (_changed(chance, text), name))
        case "column":
            columns = [row[1] for row in connection.execute("PRAGMA table_info(events)")]
            value = chance.choice([*SIZES, *TEXTS, *OTHERS[:6], b"", b"\xff" * 40])
            rows = chance.choice(["number = 7", "number % 2", "1"])
            connection.execute(f"UPDATE events SET {chance.choice(columns)} = ? WHERE {rows}", (value,))
        case "statement":
            connection.execute(chance.choice(STATEMENTS))


def _change_snapshot(chance: random.Random, path: Path) -> None:
    if chance.random() < 0.25:
        path.write_bytes(_damaged(chance, path.read_bytes()))
    else:
        path.write_text(_changed(chance, path.read_text()))


def _changed(chance: random.Random, text: str) -> str:
    """JSON in which an entry is replaced, changed a little, removed or repeated, or that is nested deeply."""
    data = json.loads(text)
    where: Any = None
    at = data
    while isinstance(at, (dict, list)) and at and (where is None or chance.random() < 0.9):
        where, key = at, chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
        at = where[key]
    match chance.choice(["replace", "replace", "replace", "change", "remove", "repeat", "nest"]):
        case "change" if isinstance(at, str) and at:  # also part of an array, which is text
            cut = chance.randrange(len(at))
            where[key] = at[:cut] + chance.choice(["", "AAAA", "\0", "é"]) + at[cut + chance.randrange(9) :]
        case "change" if type(at) in (int, float):
            where[key] = at + chance.choice([-1, 1, 2**40])
        case "replace":
            numbers = isinstance(at, (int, float)) and chance.random() < 0.8
            where[key] = chance.choice(SIZES if numbers else [*SIZES, *TEXTS, *OTHERS])
        case "remove":
            del where[key]
        case "repeat":
            where[key] = [at] * 1000
        case "nest":
            depth = chance.choice([700, 5000, 100_000])
            where[key] = "nested"
            return json.dumps(data).replace('"nested"', "[" * depth + "]" * depth)
    return json.dumps(data)


def _damaged(chance: random.Random, data: bytes) -> bytes:
    """Bytes that are cut short, overwritten or moved."""
    match chance.randrange(4):
        case 0:
            return data[: chance.randrange(len(data))]
        case 1:
            at = chance.randrange(len(data))
            return data[:at] + chance.randbytes(chance.randint(1, 100)) + data[at:]
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data) if chance.random() < 0.5 else 200)
        piece = chance.choice([b"\x00", b"\xff", b"\x7f\xff\xff\xff", chance.randbytes(4)])
        changed[at : at + len(piece)] = piece
    return bytes(changed)


# Uses.


def _read(path: Path) -> None:
    with read(path) as record:
        record.counts()
        list(record.failures())
        for event in record:
            record.point(event)


def _fold(path: Path) -> None:
    with read(path) as record:
        _look(kl.Optimizer.from_journal(record))


def _show(path: Path, *options: str) -> None:
    code, output = cases.command("show", str(path), *options)
    if code not in (0, 2):
        raise RuntimeError(f"exit code {code}")
    raw = {f"U+{ord(c):04X}" for c in output if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs")}
    if raw:
        raise RuntimeError(f"unescaped control characters in the output: {', '.join(sorted(raw))}")


def _look(opt: Any) -> None:
    repr((opt.best, opt.mode, opt.mode_fun, opt.pending, opt.info))


def _limited(uses: dict[str, Callable[[], object]], log: Path) -> list[str]:
    """The outcomes of all uses in a process of its own, and which bound that process broke."""
    pid = os.fork()
    if not pid:
        _bound()
        with log.open("w") as lines:
            warnings.simplefilter("error")  # of NumPy, for example
            warnings.filterwarnings("ignore", cases.EXPECTED_WARNINGS)
            for name, use in uses.items():
                print(f"{name}: ", end="", file=lines, flush=True)
                print(outcome(use) or "right", file=lines, flush=True)
        os._exit(0)
    try:
        _, status, usage = os.wait4(pid, 0)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    found = [line for line in log.read_text().splitlines() if not line.endswith(": right")]
    taken = 1024 * (usage.ru_maxrss - resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    if status:
        found.append(
            f"the process ended with status {status} after {usage.ru_utime + usage.ru_stime:.0f} s of CPU time"
        )
    if taken > MEMORY:
        found.append(f"the process took {taken >> 20} MiB of memory")
    return found


def _bound() -> None:
    """Limits time and memory of this process."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 2 * MEMORY, size + 2 * MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
