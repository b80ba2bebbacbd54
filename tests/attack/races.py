"""Two writers of one file: threads, a forked process, and another process after the folder was copied."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import knobless as kl
from knobless.journal import read

SPACE = kl.Binary(12)
ROUNDS = 10  # of a race between threads, which is not lost every time

OPEN = """
import sys, knobless as kl
try:
    kl.Optimizer(kl.Binary(12), batch=4, journal=sys.argv[1])
except kl.JournalError:
    sys.exit(3)
"""


def attack(seed: int, folder: Path) -> list[str]:
    """Which writer was not refused, or what it left."""
    return random.Random(seed).choice([_opening, _saving, _forked, _copied])(seed, folder)


def _optimizer(seed: int, journal: Path | None = None) -> Any:
    """One that is in the middle of a run."""
    opt = kl.Optimizer(SPACE, rng=seed, batch=4, journal=journal)
    _advance(opt)
    return opt


def _advance(opt: Any) -> None:
    asked = opt.ask()
    opt.tell(asked, [float(candidate.x.sum()) for candidate in asked])


def _at_once(call: Callable[[int], Any]) -> list[Any]:
    """What two threads return, or raise, that begin at the same moment; a thread waits for the other at the end."""
    begin, end = Barrier(2), Barrier(2)

    def one(i: int) -> Any:
        begin.wait()
        try:
            return call(i)
        except Exception as error:
            return error
        finally:
            end.wait()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(one, range(2)))
    finally:
        sys.setswitchinterval(before)


def _opening(seed: int, folder: Path) -> list[str]:
    """Of two threads that open a journal, one is refused."""
    found = []
    for i in range(ROUNDS):
        path = folder / f"{i}.sqlite"
        _optimizer(seed, path).close()

        def opened(_: int, path: Path = path) -> Any:
            opt = kl.Optimizer(SPACE, batch=4, journal=path)
            _advance(opt)
            return opt

        outcomes = _at_once(opened)
        won = [opt for opt in outcomes if isinstance(opt, kl.Optimizer)]
        for opt in won:
            opt.close()
        if len(won) != 1 or not any(isinstance(each, kl.JournalError) for each in outcomes):
            found.append(f"threads that open a journal: expected one to be refused, got {outcomes}")
        found += _sound(path)
    return found


def _saving(seed: int, folder: Path) -> list[str]:
    """Of two threads that save to one path, each writes all of it or nothing."""
    found, path = [], folder / "saved"
    each = [_optimizer(seed), _optimizer(seed + 1)]
    for _ in range(ROUNDS):
        for outcome in _at_once(lambda i: each[i].save(path)):
            if outcome is not None:
                found.append(f"threads that save to one path: raised {outcome!r}")
        try:
            kl.Optimizer.load(path, SPACE)
        except kl.SnapshotError as error:
            found.append(f"threads that save to one path: {error}")
    return found


def _forked(seed: int, folder: Path) -> list[str]:
    """A forked process does not write to the journal of its parent."""
    opt = _optimizer(seed, folder / "run.sqlite")
    asked = opt.ask()
    pid = os.fork()
    if not pid:
        try:
            opt.tell(asked[0], 1.0)
        except kl.JournalError:
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    opt.tell(asked, [2.0] * len(asked))
    opt.close()
    refused = [] if status == 0 else ["a forked process: expected a JournalError from tell, got none"]
    return refused + _sound(folder / "run.sqlite")


def _copied(seed: int, folder: Path) -> list[str]:
    """A copy of the folder, made by the writer itself, does not let another process in."""
    (folder / "run").mkdir()
    opt = _optimizer(seed, folder / "run" / "run.sqlite")
    shutil.copytree(folder / "run", folder / "backup")
    ended = subprocess.run([sys.executable, "-c", OPEN, folder / "run" / "run.sqlite"], capture_output=True, text=True)
    opt.close()
    if ended.returncode == 3:
        return []
    return ["after a copy of the folder: expected another process to be refused", *ended.stderr.splitlines()[-1:]]


def _sound(path: Path) -> list[str]:
    """A journal can be read and folded."""
    try:
        with read(path) as record:
            kl.Optimizer.from_journal(record)
    except kl.JournalError as error:
        return [f"a journal that cannot be read: {error}"]
    return []
