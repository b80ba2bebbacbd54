"""Overhead of recording every evaluation, and time to resume after a million of them.

    python benchmarks/journal.py [--evaluations 5000] [--repeats 5] [--million 1000000] [--no-peers]

First, microseconds per evaluation at n = 100: `minimize` without and with a journal, one bare INSERT and COMMIT of the
same row into an SQLite file in WAL mode, and an Optuna study (random sampler, all 100 bits asked for at once) on SQLite
and on its journal file. Repeats are interleaved, the figures are medians, ratios are taken within a repeat. The
objective costs the same everywhere and is small.

Then, for a journal of a million evaluations, its size, and the time and memory of a new process that resumes it.
"""

from __future__ import annotations

import argparse
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import knobless as kl
from knobless.journal.sqlite import EVENTS, INSERT

N = 100
SPACE = kl.Binary(N)
PBIL = kl.pbil_lambda(SPACE)  # whose own overhead is small


def objective(x: np.ndarray) -> float:
    return float(x.sum())


def plain(folder: Path, evaluations: int) -> float:
    start = time.perf_counter()
    kl.minimize(objective, SPACE, budget=evaluations, algorithm=PBIL, rng=0)
    return (time.perf_counter() - start) / evaluations


def journal(folder: Path, evaluations: int) -> float:
    start = time.perf_counter()
    kl.minimize(objective, SPACE, budget=evaluations, algorithm=PBIL, rng=0, journal=folder / "run.sqlite")
    return (time.perf_counter() - start) / evaluations


def insert(folder: Path, evaluations: int) -> float:
    """Return the time of bare inserts into SQLite, with rows as in a journal."""
    with kl.journal.read(folder / "run.sqlite") as record:
        rows = [tuple(event) for event in record]
    connection = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(EVENTS)
    start = time.perf_counter()
    for row in rows:
        connection.execute(INSERT, row)
    spent = time.perf_counter() - start
    connection.close()
    return spent / len(rows)


def optuna_on(storage: str, folder: Path, evaluations: int) -> float:
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made = {
        "SQLite": lambda: RDBStorage(f"sqlite:///{folder}/optuna.sqlite"),
        "journal": lambda: JournalStorage(JournalFileBackend(f"{folder}/optuna.log")),
    }[storage]()
    study = optuna.create_study(storage=made, sampler=optuna.samplers.RandomSampler(seed=0))
    space = {f"x{i}": optuna.distributions.CategoricalDistribution([0, 1]) for i in range(N)}
    trials = max(evaluations // 250, 10)  # it is slow
    start = time.perf_counter()
    for _ in range(trials):
        trial = study.ask(space)
        study.tell(trial, float(sum(trial.params.values())))
    return (time.perf_counter() - start) / trials


def costs(evaluations: int, repeats: int, peers: bool) -> None:
    measured: dict[str, list[float]] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            runs = {"without": plain, "with a journal": journal, "bare insert": insert}
            for what, run in runs.items():
                measured.setdefault(what, []).append(run(folder, evaluations))
            for storage in ("SQLite", "journal") if peers else ():
                spent = optuna_on(storage, folder, evaluations)
                measured.setdefault(f"Optuna, {storage}", []).append(spent)
    for what, each in measured.items():
        print(f"{what:>16}: {1e6 * statistics.median(each):10.1f} µs per evaluation")
    recorded = [b - a for a, b in zip(measured["without"], measured["with a journal"], strict=True)]
    ratio = statistics.median(a / b for a, b in zip(recorded, measured["bare insert"], strict=True))
    print(f"recording costs {1e6 * statistics.median(recorded):.1f} µs per evaluation, {ratio:.2f} x the bare insert")
    if peers:
        fastest = map(min, measured["Optuna, SQLite"], measured["Optuna, journal"])
        least = statistics.median(a / b for a, b in zip(fastest, measured["with a journal"], strict=True))
        print(f"Optuna's faster storage takes {least:.0f} x as long as minimize with a journal, all in all")


def noisy(x: np.ndarray) -> np.ndarray:
    return x.sum(axis=1) + 10.0 * np.random.default_rng(x.tobytes()[0]).standard_normal(len(x))


def quiet(x: np.ndarray) -> np.ndarray:
    return x.sum(axis=1)


def million(evaluations: int, fun: str, path: str, resumed: bool) -> None:
    """Make a journal, or resume it for one more evaluation, in a separate process."""
    start = time.perf_counter()
    given = {"budget": evaluations + resumed, "algorithm": PBIL, "rng": 0, "journal": path}
    result = kl.minimize(globals()[fun], SPACE, vectorized=True, **given)
    spent = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if resumed:
        size = os.path.getsize(path) / 1e6
        print(f"{result.nfev - 1} evaluations, {result.nit} iterations, {fun} OneMax: {size:.0f} MB, ", end="")
        print(f"resuming takes {spent:.1f} s and {memory:.0f} MB of memory in all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--million", type=int, default=1_000_000)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--one", nargs=3, metavar=("FUN", "PATH", "RESUMED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        million(options.million, options.one[0], options.one[1], options.one[2] == "yes")
        return
    if options.evaluations:
        costs(options.evaluations, options.repeats, not options.no_peers)
    for fun in ("noisy", "quiet") if options.million else ():
        with tempfile.TemporaryDirectory() as folder:
            for resumed in ("no", "yes"):
                one = ["--million", str(options.million), "--one", fun, f"{folder}/run.sqlite", resumed]
                subprocess.run([sys.executable, __file__, *one], check=True)


if __name__ == "__main__":
    main()
