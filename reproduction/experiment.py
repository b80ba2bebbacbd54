"""Trials that can be interrupted and resumed: one row of a `Table` per trial, written as soon as it ends.

A `Task` is a trial that may have to be run; `run_tasks` runs those that the table lacks, in threads, long ones first.
`Skipping` leaves out trials that would end at the cap. The seed of a trial is a hash of its name without the setting
(`harness.seed`), so that results depend neither on the order nor on the threads, and settings are compared in pairs.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from threading import Event
from typing import Any

from tqdm import tqdm

from harness import STREAM, Table, TableKey, commit, machine
from knobless.fast import Objective, Run, compiled
from knobless.problems import Problem
from knobless.run.result import Status

from .options import Options

FIRST_TRIALS = 10  # of a setting and a size: where all of them end at the cap, no more are run
_SLICE = 2000  # iterations between two checks for a stop: at most a second


class Stopped(Exception):  # noqa: N818 (not an error)
    """Raised in a trial that was asked to stop."""


def finish(run: Run, cap: float, stop: Event, target: float = 0.0) -> bool:
    """Run to the target or to the cap; return whether the target was met."""
    while True:
        status = run.go(cap, iterations=_SLICE, target=target)
        if status is not None:
            return status is Status.TARGET
        if stop.is_set():
            raise Stopped


def follow(run: Run, marks: Iterable[float], stop: Event, target: float = -math.inf) -> Iterator[float]:
    """Run from mark to mark, in evaluations; yield each mark at the end of the iteration that passes it.

    The marks end where the target is met.
    """
    lam = 2.0  # samples per iteration, as last observed
    for mark in marks:
        while run.nfev < mark:
            if stop.is_set():
                raise Stopped
            before, started = run.nfev, run.nit
            # A quarter of what is left at a time: λ may grow on the way, and the mark must not be overrun.
            if run.go(iterations=min(max(1, int((mark - before) / lam / 4)), _SLICE), target=target) is Status.TARGET:
                return
            lam = (run.nfev - before) / (run.nit - started)
        yield mark


def kernel_of(problem: Problem) -> Objective:
    """Return the compiled problem."""
    objective = compiled(problem)
    if objective is None:
        raise TypeError(f"problem: expected one with a kernel, got {problem!r}")
    return objective


@dataclass(frozen=True)
class Task:
    """A trial: its name, the function that runs it, and its approximate duration in any unit."""

    name: Mapping[str, Any]
    run: Callable[[Event], Mapping[str, Any]]
    cost: float

    @property
    def key(self) -> TableKey:
        return (str(STREAM), *map(str, self.name.values()))


def trials_table(path: Path, names: Sequence[str], results: Sequence[str]) -> Table:
    """Open a table of trials; the key begins with the version of the random stream, seconds of a core are last."""
    return Table(path, ("stream", *names), (*results, "seconds"))


class Readiness(Enum):
    """Whether a trial may start."""

    GO = "go"
    WAIT = "wait for others"
    SKIP = "not worth running"


def run_tasks(
    table: Table,
    tasks: Sequence[Task],
    threads: int,
    label: str,
    readiness: Callable[[Task], Readiness] = lambda task: Readiness.GO,
) -> None:
    """Run the trials that the table lacks, costly ones first, and add each as it ends."""
    pending = sorted((task for task in tasks if task.key not in table), key=lambda task: -task.cost)
    stop = Event()
    running: dict[Future[Mapping[str, Any]], Task] = {}

    def collect(futures: Iterable[Future[Mapping[str, Any]]]) -> None:
        for future in futures:
            table.add({"stream": STREAM, **running.pop(future).name, **future.result()})
            bar.update()

    with (
        tqdm(total=len(tasks), initial=len(tasks) - len(pending), desc=label, unit=" trials", smoothing=0.0) as bar,
        ThreadPoolExecutor(threads) as pool,
    ):
        try:
            while pending or running:
                for task in pending[:]:
                    if len(running) >= threads:
                        break
                    ready = readiness(task)
                    if ready is Readiness.WAIT:
                        continue
                    pending.remove(task)
                    if ready is Readiness.GO:
                        running[pool.submit(_timed, task, stop)] = task
                    else:
                        bar.total -= 1
                        bar.refresh()
                if running:
                    collect(wait(running, return_when=FIRST_COMPLETED).done)
                elif pending:
                    raise RuntimeError(f"{label}: {len(pending)} trials wait for one another")
        except BaseException:
            stop.set()
            ended = wait(running).done
            collect([future for future in ended if future.exception() is None])
            raise


class Skipping:
    """Trials that would end at the cap, as all those before them did, are skipped.

    Those of a setting after the first ten wait for these; and with `larger`, a larger n waits for the smaller ones.
    """

    def __init__(self, table: Table, tasks: Iterable[Task], larger: bool) -> None:
        self._table = table
        self._larger = larger
        self._first: dict[tuple[Any, ...], dict[int, list[Task]]] = {}  # the first ten of each setting, by n
        for task in tasks:
            if task.name["trial"] < FIRST_TRIALS:
                self._first.setdefault(_setting(task), {}).setdefault(task.name["n"], []).append(task)

    def __call__(self, task: Task) -> Readiness:
        n, later = task.name["n"], task.name["trial"] >= FIRST_TRIALS
        chain = self._first[_setting(task)]
        before = [group for size, group in chain.items() if (size < n and self._larger) or (size == n and later)]
        rows = [[self._table.get(each.key) for each in group] for group in before]
        solved = [any(row and row["solved"] == "1" for row in group) for group in rows]
        if any(all(group) and not any_solved for group, any_solved in zip(rows, solved, strict=True)):
            return Readiness.SKIP
        return Readiness.GO if all(solved) else Readiness.WAIT


def _setting(task: Task) -> tuple[Any, ...]:
    return tuple(value for name, value in task.name.items() if name not in ("n", "trial", "cap"))


def _timed(task: Task, stop: Event) -> Mapping[str, Any]:
    began = time.thread_time()  # not wall time, which depends on what else the machine does
    result = task.run(stop)
    return {**result, "seconds": f"{time.thread_time() - began:.3f}"}


@contextmanager
def session(options: Options, name: str) -> Iterator[None]:
    """Add to `<name>-meta.json`, at the end or when interrupted, which trials were run, where, and for how long."""
    began = time.time()
    path = options.out / f"{name}-meta.json"
    before = _recorded(options.out, name)
    try:
        yield
    finally:
        trials = _recorded(options.out, name) - before
        if trials:
            sessions = json.loads(path.read_text())["sessions"] if path.exists() else []
            latest = {
                "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
                "wall_seconds": round(time.time() - began, 1),
                "threads": options.threads,
                "trials": trials,
                "commit": commit(),
            }
            path.write_text(json.dumps({**machine(), "sessions": [*sessions, latest]}, indent=2) + "\n")


def _recorded(folder: Path, name: str) -> int:
    """Return the number of trials in the tables of a command."""
    tables = (path.read_text(encoding="utf-8") for path in folder.glob(f"{name}*.csv"))
    return sum(text.count("\n") - 1 for text in tables if text.startswith("stream,"))
