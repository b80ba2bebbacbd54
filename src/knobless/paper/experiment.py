"""Trials that can be stopped and taken up again: one trial, one row of a CSV, written as soon as it ends.

A `Task` is a trial that may have to be run; `carry_out` runs those that the `Table` does not have, in threads,
long ones first. A trial's seed is made of what it is (`seed`), so that neither the order nor the number of
threads shows in the results.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from tqdm import tqdm

from knobless import __version__
from knobless.fast import Objective, Run, compiled
from knobless.problems import Problem
from knobless.run.result import Status

Key = tuple[str, ...]
Row = dict[str, str]

SLICE = 2000  # iterations between two looks at whether to stop: a second at most


@dataclass(frozen=True)
class Options:
    """What every command is told."""

    out: Path
    trials: int = 10
    max_n: int = 3000
    jobs: int = 0  # 0: as many as there are cores

    @property
    def threads(self) -> int:
        return self.jobs or os.cpu_count() or 1

    def sizes(self, *sizes: int) -> list[int]:
        """Those of these that are not above `max_n`."""
        kept = [n for n in sizes if n <= self.max_n]
        if not kept:
            raise ValueError(f"max_n: expected at least {min(sizes)}, got {self.max_n}")
        return kept


class Stopped(Exception):  # noqa: N818 (it is no error)
    """A trial was told to end before its end."""


def seed(*what: object) -> np.random.SeedSequence:
    """The seed of what is named: `seed("hitting-times", "OneMax", "cGA 1/n", 100, 3)`."""
    digest = hashlib.sha256("\x1f".join(map(str, what)).encode()).digest()
    return np.random.SeedSequence(int.from_bytes(digest[:16]))


def finish(run: Run, cap: float, stop: Event, target: float = 0.0) -> bool:
    """Takes a run to its target or to the cap; whether it met the target."""
    while True:
        status = run.go(cap, iterations=SLICE, target=target)
        if status is not None:
            return status is Status.TARGET
        if stop.is_set():
            raise Stopped


def follow(run: Run, marks: Iterable[float], stop: Event, target: float = -math.inf) -> Iterator[float]:
    """Takes a run from mark to mark, in calls; yields each mark at the end of the iteration that passes it.

    Where the target is met before a mark, the marks end there.
    """
    lam = 2.0  # samples per iteration, as last seen
    for mark in marks:
        while run.nfev < mark:
            if stop.is_set():
                raise Stopped
            before, begun = run.nfev, run.nit
            # A quarter of what is left at a time: λ may grow on the way, and the mark must not be overrun.
            if run.go(iterations=min(max(1, int((mark - before) / lam / 4)), SLICE), target=target) is Status.TARGET:
                return
            lam = (run.nfev - before) / (run.nit - begun)
        yield mark


def kernel_of(problem: Problem) -> Objective:
    """The problem, compiled."""
    objective = compiled(problem)
    if objective is None:
        raise TypeError(f"problem: expected one with a kernel, got {problem!r}")
    return objective


def series(values: Iterable[float]) -> str:
    """Numbers in one field of a row."""
    return " ".join(f"{value:.4g}" for value in values)


class Table:
    """A CSV file of finished trials: columns that name a trial, then columns that say what came of it.

    Everything is text, as in the file. What a stopped process left of a half-written line is cut off.
    """

    def __init__(self, path: Path, names: Sequence[str], results: Sequence[str]) -> None:
        self.path = path
        self.names = tuple(names)
        self.columns = (*names, *results)
        self._rows: dict[Key, Row] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._read()
        else:
            path.write_text(_line(self.columns), encoding="utf-8")

    def _read(self) -> None:
        text = self.path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.truncate(self.path, len(whole))
        lines = csv.reader(io.StringIO(whole.decode("utf-8")))
        header = tuple(next(lines, ()))
        if header != self.columns:
            raise ValueError(
                f"{self.path}: expected the columns {', '.join(self.columns)}, got {', '.join(header) or 'none'};"
                " move the file away or choose another folder"
            )
        for line in lines:
            row = dict(zip(self.columns, line, strict=True))
            self._rows[self._key(row)] = row

    def _key(self, row: Mapping[str, str]) -> Key:
        return tuple(row[name] for name in self.names)

    def add(self, row: Mapping[str, Any]) -> None:
        text = {column: str(row[column]) for column in self.columns}
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_line(list(text.values())))
        self._rows[self._key(text)] = text

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def get(self, key: Key) -> Row | None:
        return self._rows.get(key)

    def of(self, tasks: Iterable[Task]) -> list[Row]:
        """The rows of these trials, those there are."""
        return [self._rows[task.key] for task in tasks if task.key in self._rows]


def _line(values: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A whole table at once."""
    columns = list(rows[0])
    lines = [_line(columns), *(_line([str(row[column]) for column in columns]) for row in rows)]
    path.write_text("".join(lines), encoding="utf-8")


@dataclass(frozen=True)
class Task:
    """A trial: its name, what runs it, and about how long that takes, in any unit."""

    name: Mapping[str, Any]
    run: Callable[[Event], Mapping[str, Any]]
    cost: float

    @property
    def key(self) -> Key:
        return tuple(map(str, self.name.values()))


class Verdict(Enum):
    """Whether a trial may begin."""

    GO = "go"
    WAIT = "wait for others"
    SKIP = "not worth running"


def carry_out(
    table: Table,
    tasks: Sequence[Task],
    threads: int,
    label: str,
    verdict: Callable[[Task], Verdict] = lambda task: Verdict.GO,
) -> None:
    """Runs the trials that the table does not have yet, the costly ones first, and adds each as it ends."""
    pending = sorted((task for task in tasks if task.key not in table), key=lambda task: -task.cost)
    stop = Event()
    running: dict[Future[Mapping[str, Any]], Task] = {}

    def collect(futures: Iterable[Future[Mapping[str, Any]]]) -> None:
        for future in futures:
            table.add({**running.pop(future).name, **future.result()})
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
                    said = verdict(task)
                    if said is Verdict.WAIT:
                        continue
                    pending.remove(task)
                    if said is Verdict.GO:
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


def _timed(task: Task, stop: Event) -> Mapping[str, Any]:
    began = time.perf_counter()
    result = task.run(stop)
    return {**result, "seconds": f"{time.perf_counter() - began:.3f}"}


@contextmanager
def session(options: Options, name: str) -> Iterator[None]:
    """Writes `<name>-meta.json` at the end, or where it was stopped: versions, machine, and every session's time."""
    began = time.time()
    path = options.out / f"{name}-meta.json"
    try:
        yield
    finally:
        before = json.loads(path.read_text())["sessions"] if path.exists() else []
        this = {
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
            "wall_seconds": round(time.time() - began, 1),
            "threads": options.threads,
            "trials": options.trials,
            "max_n": options.max_n,
            "commit": commit(),
        }
        options.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**machine(), "sessions": [*before, this]}, indent=2) + "\n")


def machine() -> dict[str, Any]:
    """Versions and the machine, as a reader of results wants them."""
    return {
        "knobless": __version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in ("numpy", "numba", "matplotlib")},
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def commit() -> str | None:
    """The commit of the working copy that this runs from, marked if files differ from it; None if it is none."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        said = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()
