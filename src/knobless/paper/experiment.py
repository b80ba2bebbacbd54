"""Trials that can be interrupted and resumed: one row of a `Table` per trial, written as soon as it ends.

A `Task` is a trial that may have to be run; `run_tasks` runs those that the table lacks, in threads, long ones first.
The seed of a trial is a hash of its name (`seed`), so that results depend neither on the order nor on the threads.
"""

from __future__ import annotations

import hashlib
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

from .options import Options
from .table import Table, TableKey

_SLICE = 2000  # iterations between two checks for a stop: at most a second


class Stopped(Exception):  # noqa: N818 (not an error)
    """Raised in a trial that was asked to stop."""


def seed(*what: object) -> np.random.SeedSequence:
    """Return the seed of a trial by its name: `seed("hitting-times", "OneMax", "cGA 1/n", 100, 3)`."""
    digest = hashlib.sha256("\x1f".join(map(str, what)).encode()).digest()
    return np.random.SeedSequence(int.from_bytes(digest[:16]))


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
        return tuple(map(str, self.name.values()))


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


def _timed(task: Task, stop: Event) -> Mapping[str, Any]:
    began = time.perf_counter()
    result = task.run(stop)
    return {**result, "seconds": f"{time.perf_counter() - began:.3f}"}


@contextmanager
def session(options: Options, name: str) -> Iterator[None]:
    """Write `<name>-meta.json` at the end or when interrupted: versions, machine, and the time of each session."""
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
    """Return the versions and the machine, for the metadata of results."""
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
    """Return the commit of the working copy, marked if files differ from it; None outside a working copy."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
