"""Kill runs at random moments and resume them: no evaluation lost, none repeated, the same result.

    python tests/attack/crash.py [--kills 200] [--seed 0] [--budgets 4000 600] [--several]

A run with a journal is ended by SIGKILL repeatedly, at random moments, until it is complete. Then the next
one begins, until the number of kills is reached: a sixth each with one worker process and with four, these in
rounds of 6 and without a batch, and each of them with a slow objective (kills hit evaluations) and with a fast one
(kills hit commits). The objective records the points that it has evaluated in a separate list. No evaluation that
was in the journal at a kill may be missing later or be repeated. In the end, result, history and θ must be bit for
bit those of an uninterrupted run. Without a batch, the order of arrival is part of the run: they must be those of a
run that only reads the journal, and every point of the journal must be drawn again. With --several, the objective
has two values, and the front must be the same.

An evaluation that ended before a kill without having reached the journal is repeated; these are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import knobless as kl
from knobless.core.pareto_evolution import ParetoEvolution
from knobless.journal.records import read
from knobless.run import run_state

SPACE = kl.Space(bits=kl.Binary(24), kind=kl.Choice("a", "b", "c"), z=kl.Float(0, 1))  # z makes points unique
START = {"bits": np.zeros(24, dtype=np.int8), "kind": "a", "z": 0.5}  # has a value: a first failure would be raised
ROUNDS, ARRIVAL = 6, None  # values of `batch`
MODES = ((1, ROUNDS), (4, ROUNDS), (4, ARRIVAL))  # workers and batch
BUDGET = {0.0: 4000, 0.002: 600}  # evaluations of a run, by the seconds that each takes


def mark(x: dict) -> str:
    """A point in one word."""
    return f"{''.join(map(str, x['bits'].tolist()))}{x['kind']}{x['z'].hex()}"


def objective(done: str, pause: float, several: bool, x: dict) -> float | tuple[float, float]:
    """Return a value, or two of them, or fail; the point is added to the list at the end."""
    time.sleep(pause * (0.5 + x["z"]))
    value = float(x["bits"].sum() + (x["kind"] == "b") + (x["z"] - 0.3) ** 2)
    line = os.open(done, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(line, f"{mark(x)}\n".encode())
    if pause:
        os.fsync(line)
    os.close(line)
    if x["bits"][0] and x["bits"][1] and x["z"] > 0.9:
        raise RuntimeError("no value here")
    return (value, float(24 - x["bits"].sum()) + x["z"]) if several else value


def minimized(
    done: Path, pause: float, several: bool, mode: tuple[int, int | None], seed: int, journal: Path | None
) -> list[str]:
    """All of a run's result, as text that can be compared, θ included."""
    seen: list[str] = []
    workers, batch = mode
    loop = kl.pbil_lambda(SPACE) if batch == ROUNDS else None
    result = kl.minimize(
        partial(objective, str(done), pause, several),
        SPACE,
        # Without tests for noise, which evaluate points again.
        algorithm=ParetoEvolution(SPACE.family) if several else loop,
        deterministic=True if several or loop is None else None,
        objectives=("value", "zeros") if several else None,
        x0=START,
        budget=BUDGET[pause],
        batch=batch,
        workers=workers,
        rng=seed,
        journal=journal,
        callback=lambda info: seen.append(info.theta.tobytes().hex()),
    )
    values = result.front.values if several else np.array(result.fun)
    facts = (mark(result.x), values.tobytes().hex(), result.nfev, result.nit, result.failures, result.status.value)
    return [*map(repr, facts), repr(result.mode), repr([*result.history]), seen[-1]]


def redrawn(journal: Path) -> None:
    """Draw every point of a journal again; JournalError if one of them is another one."""
    verified, is_exact = run_state.VERIFIED, run_state.is_exact
    run_state.VERIFIED, run_state.is_exact = sys.maxsize, lambda algorithm: True
    try:
        kl.Optimizer.from_journal(journal)
    finally:
        run_state.VERIFIED, run_state.is_exact = verified, is_exact


def started(folder: Path, pause: float, several: bool, mode: tuple[int, int | None], seed: int) -> int:
    """Start a process that completes the run, unless it is killed, and writes the result; return its id."""
    pid = os.fork()
    if pid:
        return pid
    # A worker that is being started when its parent is killed writes to standard error.
    os.dup2(os.open(folder / "complaints", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), 2)
    try:
        found = minimized(folder / "done", pause, several, mode, seed, folder / "run.sqlite")
        (folder / "result.part").write_text(json.dumps(found))
        (folder / "result.part").rename(folder / "result")
        os._exit(0)
    except BaseException as error:
        (folder / "error").write_text(repr(error))
        os._exit(1)


def waited(pid: int, condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, or the process has ended."""
    while not condition() and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.0005)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def recorded(journal: Path) -> list[str]:
    """The points that have been committed; none before the journal has begun."""
    try:
        with read(journal) as record:
            return [mark(record.point(event)) for event in record]
    except kl.JournalError as error:
        if "yet" in str(error) or "no such file" in str(error):
            return []
        raise


class BrokenLaw(Exception):  # noqa: N818
    """A violated law, with the number of kills before."""


class Tally:
    """Counts events; a violated law ends the benchmark."""

    def __init__(self) -> None:
        self.kills = self.runs = self.evaluations = self.again = self.during = 0

    def check(self, law: str, holds: bool) -> None:
        if not holds:
            raise BrokenLaw(f"broken after {self.kills} kills: {law}")


def killed_until_done(
    tally: Tally,
    chance: random.Random,
    pause: float,
    several: bool,
    mode: tuple[int, int | None],
    seed: int,
    kills: int,
) -> None:
    """One run, killed at most `kills` times; none where some of its points are equal."""
    folder = Path(tempfile.mkdtemp(prefix="knobless-crash-"))
    journal, done = folder / "run.sqlite", folder / "done"
    whole = minimized(folder / "once", pause, several, (1, mode[1]), seed, None)
    if len(set(lines(folder / "once"))) < BUDGET[pause]:  # repeated points would count as lost
        shutil.rmtree(folder)
        return
    before: set[str] = set()
    count = at = 0
    while True:
        pid = started(folder, pause, several, mode, seed)
        if count < kills:
            # One in four at any moment from its start; the others once it has got to new evaluations.
            if chance.random() < 0.75:
                waited(pid, lambda: len(lines(done)) > at)  # noqa: B023
            end = time.monotonic() + chance.uniform(0.0, 0.1)
            waited(pid, lambda: time.monotonic() >= end)  # noqa: B023
        else:
            waited(pid, lambda: False)
        os.kill(pid, signal.SIGKILL)  # one that has ended stays a zombie until waitpid
        _, how = os.waitpid(pid, 0)
        listed, committed = lines(done), recorded(journal)
        tally.check("no committed evaluation is lost", before <= set(committed))
        tally.check("no committed evaluation is recorded twice", len(set(committed)) == len(committed))
        tally.check("no committed evaluation is repeated", before.isdisjoint(listed[at:]))
        if os.WIFEXITED(how):
            wrong = " ".join(lines(folder / "error"))
            tally.check(f"a run ends by itself without an error: {wrong}", os.WEXITSTATUS(how) == 0)
            break
        count += 1
        tally.kills += 1
        tally.during += bool(listed[at:])
        before, at = set(committed), len(listed)
    again = len(lines(done)) - len(set(lines(done)))
    tally.check("all that is recorded was evaluated", set(committed) <= set(lines(done)))
    if mode[1] is ARRIVAL:
        whole = minimized(folder / "twice", pause, several, mode, seed, journal)
        tally.check("a run that is complete evaluates nothing", not (folder / "twice").exists())
        redrawn(journal)
    tally.check(
        "result, history and θ are those of one uninterrupted run", json.loads((folder / "result").read_text()) == whole
    )
    tally.check("as many evaluations are recorded as were asked for", len(committed) == BUDGET[pause])
    tally.runs += 1
    tally.evaluations += len(committed)
    tally.again += again
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budgets", type=int, nargs=2, default=[*BUDGET.values()], help="of fast and slow objectives")
    parser.add_argument("--several", action="store_true", help="two objectives")
    options = parser.parse_args()
    BUDGET.update(zip(BUDGET, options.budgets, strict=True))
    chance = random.Random(options.seed)
    everything = Tally()
    cases = [(mode, pause) for mode in MODES for pause in BUDGET]
    for number, (mode, pause) in enumerate(cases):
        tally, seed = Tally(), 0
        wanted = options.kills * (number + 1) // len(cases) - options.kills * number // len(cases)
        while tally.kills < wanted:
            try:
                killed_until_done(tally, chance, pause, options.several, mode, seed, wanted - tally.kills)
            except BrokenLaw as error:
                sys.exit(str(error))
            seed += 1
        workers, batch = mode
        how = "in the order of arrival" if batch is ARRIVAL else f"in rounds of {batch}"
        print(
            f"{workers} worker{'s' * (workers > 1)} {how}, {1e3 * pause:g} ms per evaluation: {tally.kills} kills, "
            f"{tally.during} of them after evaluations; {tally.runs} runs, {tally.evaluations} evaluations: "
            f"none lost, {tally.again} repeated that had not reached the journal, results identical",
            flush=True,
        )
        everything.kills += tally.kills
    print(f"{everything.kills} kills; seed {options.seed}, numpy {np.__version__}")


if __name__ == "__main__":
    main()
