"""Hostile files: whatever is in a journal or a snapshot, it opens or fails with this library's own error.

A few hundred of them here; `pytest tests/test_hostile.py --hypothesis-profile thousands` makes 10,000.
"""

import json
import random
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import knobless as kl
from knobless.journal.records import read

SPACE = kl.Space(bits=kl.Binary(5), kind=kl.Choice("a", "b'; DROP TABLE events; --", len), z=kl.Float(0, 1))
NUMBERS = ("SFC64", "MT19937", "Philox", "PCG64")
COLUMNS = (
    "number drawn fate id code value failure iteration position started ended worker".split()  # noqa: SIM905
)

STATEMENTS = (
    "CREATE TABLE more (a)",
    "CREATE VIEW v AS SELECT * FROM events",
    "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END",
    "CREATE INDEX i ON events (id)",
    "DELETE FROM events WHERE number % 3 = 1",
    "DELETE FROM header",
    "DROP TABLE events",
    "ALTER TABLE events ADD COLUMN more",
    "PRAGMA user_version = 2",
    "PRAGMA application_id = 7",
    f"INSERT INTO events SELECT number + 100, {', '.join(COLUMNS[1:])} FROM events",
)

many = settings(max_examples=5 * settings().max_examples, suppress_health_check=list(HealthCheck))

huge = st.sampled_from([2**31, 2**53, 2**63 - 1, -(2**63), 10**30, 10**300, 1e308, -1, 0, 1])
texts = st.text(max_size=20) | st.sampled_from(["'; DROP TABLE events; --", "\x00", "\ud800", "NaN", "1e999", "(" * 99])
scalars = st.none() | st.booleans() | st.integers() | huge | st.floats() | texts
anything = st.recursive(
    scalars, lambda below: st.lists(below, max_size=4) | st.dictionaries(texts, below, max_size=4), max_leaves=8
)


@pytest.fixture(scope="module")
def folder():
    made = Path(tempfile.mkdtemp())
    yield made
    shutil.rmtree(made)


def objective(x):
    if x["bits"][0] and x["bits"][1]:
        raise RuntimeError("no")
    return float(x["bits"].sum() + x["z"])


def played(i, **arguments):
    """An optimizer with a bit of everything in it."""
    rng = np.random.Generator(getattr(np.random, NUMBERS[i])(0))
    opt = kl.Optimizer(SPACE, rng=rng, batch=3, deterministic=bool(i % 2), **arguments)
    opt.add(SPACE.decode(SPACE.family.mode(opt.theta)), 3.0)
    for _ in range(6):
        out = opt.ask(5)
        values = [objective(c.x) if not (c.x["bits"][0] and c.x["bits"][1]) else RuntimeError("no") for c in out]
        opt.tell(out[:3], values[:3])
        opt.cancel(out[3])
    return opt


@pytest.fixture(scope="module")
def journals(folder):
    for i in range(4):
        played(i, journal=folder / f"journal-{i}").close()
    kl.minimize(objective, SPACE, budget=40, batch=4, journal=folder / "journal-4", rng=0)
    return [folder / f"journal-{i}" for i in range(5)]


@pytest.fixture(scope="module")
def snapshots(folder):
    for i in range(4):
        played(i).save(folder / f"snapshot-{i}")
    return [folder / f"snapshot-{i}" for i in range(4)]


class Malice:
    """Says where to do what, with the values and the bytes that hypothesis has made."""

    def __init__(self, seed, odd, blob):
        self.chance, self.odd, self.blob = random.Random(seed), odd, blob

    def bent(self, data):
        """JSON with something in it replaced, dropped, doubled or cut."""
        chance, here, at = self.chance, None, data
        while isinstance(at, (dict, list)) and at and (here is None or chance.random() < 0.9):
            here, key = at, chance.choice(sorted(at) if isinstance(at, dict) else range(len(at)))
            at = here[key]
        if here is None:
            return deepcopy(chance.choice(self.odd))
        match chance.randrange(6):
            case 0:
                del here[key]
            case 1 if isinstance(here, list):
                here.append(at)
            case 2 if isinstance(at, str) and at:
                cut = chance.randrange(len(at))
                here[key] = at[:cut] + chance.choice(["", "AAAA", "\0", "é"]) + at[cut + chance.randrange(9) :]
            case 3 if isinstance(at, int):
                here[key] = at + chance.choice([-1, 1, 2**40])
            case _:
                here[key] = deepcopy(chance.choice(self.odd))
        return data

    def damaged(self, data):
        """Bytes that are cut, overwritten, or others altogether."""
        chance = self.chance
        match chance.randrange(6):
            case 0:
                return self.blob
            case 1:
                return data[: chance.randrange(len(data))]
            case 2:
                return data[:100] + self.blob
        data = bytearray(data)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(data) if chance.random() < 0.5 else 200)
            piece = self.blob[: chance.randint(1, 8)] or chance.randbytes(4)
            data[at : at + len(piece)] = piece
        return bytes(data)

    def altered(self, connection):
        """A journal with other values in its tables, or other tables."""
        chance = self.chance
        match chance.randrange(7):
            case 0 | 1 | 2:
                name = chance.choice(["identity", "identity", "identity", "meta", "created"])
                found = connection.execute("SELECT json FROM header WHERE name = ?", (name,)).fetchone()
                text = json.dumps(self.bent(json.loads(found[0]) if found else {}))
                text = chance.choice([text] * 8 + ["[" * 100_000, "", "\0", "{" * 99])
                connection.execute("INSERT OR REPLACE INTO header VALUES (?, ?)", (name, text))
            case 3 | 4 | 5:
                value = chance.choice([*self.odd, self.blob])
                which = chance.choice(COLUMNS), value if np.isscalar(value) or value is None else json.dumps(value)
                connection.execute(
                    f"UPDATE events SET {which[0]} = ? WHERE number = ?", (which[1], chance.randint(1, 40))
                )
            case _:
                connection.execute(chance.choice(STATEMENTS))


def hostile(files):
    """Which of the good files to begin with, how it is turned, and into what."""
    return given(
        i=st.integers(0, files - 1),
        malice=st.builds(
            Malice, st.integers(0, 2**63), st.lists(anything, min_size=6, max_size=6), st.binary(max_size=300)
        ),
        times=st.integers(0, 3),
    )


@pytest.mark.slow
@hostile(5)
@many
def test_a_journal_opens_or_says_why_not(i, malice, times, journals, folder):
    with tempfile.TemporaryDirectory(dir=folder) as alone:
        path = Path(alone) / "run.sqlite"
        shutil.copy(journals[i], path)
        if times:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                for _ in range(times):
                    with suppress(sqlite3.Error, ValueError, OverflowError, RecursionError):  # it was refused already
                        malice.altered(connection)
        else:
            path.write_bytes(malice.damaged(path.read_bytes()))
        tried(path, i)


def tried(path, i):
    """Reads, folds and goes on with the journal, as far as it lets."""
    with suppress(kl.JournalError), read(path) as record:
        record.counts()
        for event in record:
            with suppress(kl.JournalError):
                record.point(event)
        list(record.failures())
        with suppress(kl.JournalError):
            opt = kl.Optimizer.from_journal(record)
            if opt.lam < 1000:
                opt.ask(3)
    with suppress(kl.JournalError):
        if i < 4:
            opt = kl.Optimizer(SPACE, batch=3, deterministic=bool(i % 2), journal=path)
            try:
                opt.tell(some := opt.ask(3), [1.0] * len(some))
            finally:
                opt.close()
        else:
            kl.minimize(lambda x: 1.0, SPACE, budget=50, batch=4, journal=path)


@pytest.mark.slow
@hostile(4)
@many
def test_a_snapshot_opens_or_says_why_not(i, malice, times, snapshots, folder):
    path = folder / "hostile.json"
    if times:
        found = json.loads(snapshots[i].read_text())
        for _ in range(times):
            part = malice.chance.choice(["state", "state", "identity", ""])
            if part and isinstance(found, dict) and isinstance(found.get(part), dict):
                found[part] = malice.bent(found[part])
            else:
                found = malice.bent(found)
        path.write_text(json.dumps(found))
    else:
        path.write_bytes(malice.damaged(snapshots[i].read_bytes()))
    with suppress(kl.SnapshotError):
        opt = kl.Optimizer.load(path, SPACE)
        repr(opt.best)
        repr(opt.mode_fun)
        repr(opt.pending)
