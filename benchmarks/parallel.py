"""How busy workers are, how long a run takes, and what it costs in evaluations that no worker waits.

    python benchmarks/parallel.py [--quick] [--runs 3] [--only NAME] [--out docs/peers]

Workers are simulated: a clock that only this program moves has the end of each evaluation, and the time that the
optimizer takes, in seconds of the processor. So the results do not depend on what else the machine does. A free worker
asks for a point (`Optimizer.ask(1)`, `study.ask()`), and the value is told when its evaluation ends, as `minimize`
does. Evaluations take one second on average, all the same time or lognormal with σ = 1 of the logarithm.

For each of eight kinds of space, of 4, 8 and 16 workers, and of 80 and 200 evaluations, the file has the share of time
in which the workers were busy, until the last evaluation has begun: after that, there is nothing left to do for those
that end first. With 200 evaluations it also has the number of evaluations and the time until the best value that one
worker reaches after 60 evaluations (the median of its runs), relative to those of one worker. A run that does not
reach it counts with 200 evaluations, and with the time of all of them. Optuna is its TPE sampler with
`constant_liar=True` and `multivariate=True`.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from harness import commit, machine, write_csv

BUDGETS = (80, 200)
WORKERS = (4, 8, 16)
REFERENCE = 60  # evaluations of one worker whose best value is to be reached
COUPLING = 0.5


def vector(x: Any) -> np.ndarray[Any, Any]:
    """A point as numbers: options by their index."""
    if isinstance(x, dict):
        return np.concatenate([vector(each) for each in x.values()])
    return np.atleast_1d(x).astype(float)


class Problem(NamedTuple):
    """A space, its objective, and the same parameters suggested by a trial of Optuna."""

    space: Any
    fun: Callable[[Any], float]
    suggest: Callable[[Any], Any]


def quadratic(n: int, seed: int, scale: float = 1.0) -> Callable[[Any], float]:
    """A random quadratic function of n numbers, convex if these are not bits."""
    g = np.random.default_rng(seed)
    a, b = g.normal(size=(n, n)) * COUPLING / math.sqrt(n), g.uniform(0.2, 0.8, n)
    q = np.eye(n) + a @ a.T

    def fun(x: Any) -> float:
        z = vector(x) / scale - b
        return float(z @ q @ z)

    return fun


def pairs(n: int, seed: int) -> Callable[[Any], float]:
    """A random quadratic function of bits, with a twentieth of all pairs, at least 2 per bit."""
    g = np.random.default_rng(seed)
    w = g.normal(size=(n, n)) * (g.random((n, n)) < max(0.05, 4 / n))

    def fun(x: Any) -> float:
        z = vector(x)
        return float(z @ w @ z)

    return fun


def tables(n: int, k: int, seed: int) -> Callable[[Any], float]:
    """A sum of random tables of each choice, and of each pair of neighboring ones."""
    g = np.random.default_rng(seed)
    one, two = g.normal(size=(n, k)), g.normal(size=(n - 1, k, k))

    def fun(x: Any) -> float:
        z = vector(x).astype(int)
        return float(one[np.arange(n), z].sum() + two[np.arange(n - 1), z[:-1], z[1:]].sum())

    return fun


def bits(trial: Any, n: int) -> list[int]:
    return [trial.suggest_categorical(f"b{i}", (0, 1)) for i in range(n)]


def floats(trial: Any, n: int, high: float = 1.0) -> list[float]:
    return [trial.suggest_float(f"f{i}", 0.0, high) for i in range(n)]


def subset(trial: Any) -> np.ndarray[Any, Any]:
    """The five largest of twenty numbers."""
    rank = np.argsort(np.argsort(floats(trial, 20)))
    return (rank >= 15).astype(float)


def conditional(x: Any) -> float:
    """Two branches, of which the second is better when it is tuned, and bits that both have."""
    own = (x["rate"] - 0.3) ** 2 + 0.3 if x["kind"] == 0 else (x["size"] - 70) ** 2 / 4900 + (x["drop"] - 0.6) ** 2
    return float(own + 0.1 * np.abs(np.asarray(x["bits"]) - np.array([1, 0, 1, 1, 0, 0])).sum())


def suggest_conditional(trial: Any) -> dict[str, Any]:
    x: dict[str, Any] = {"kind": trial.suggest_categorical("kind", (0, 1)), "bits": bits(trial, 6)}
    if x["kind"] == 0:
        return x | {"rate": trial.suggest_float("rate", 0.0, 1.0)}
    return x | {"size": trial.suggest_int("size", 1, 100), "drop": trial.suggest_float("drop", 0.0, 1.0)}


PROBLEMS = {
    "30 bits": Problem(kl.Binary(30), pairs(30, 1), lambda t: bits(t, 30)),
    "120 bits": Problem(kl.Binary(120), pairs(120, 2), lambda t: bits(t, 120)),
    "choices": Problem(
        kl.Choice(0, 1, 2, 3, n=12),
        tables(12, 4, 3),
        lambda t: [t.suggest_categorical(f"c{i}", (0, 1, 2, 3)) for i in range(12)],
    ),
    "integers": Problem(
        kl.Integer(0, 100, n=6), quadratic(6, 4, 100.0), lambda t: [t.suggest_int(f"i{i}", 0, 100) for i in range(6)]
    ),
    "floats": Problem(kl.Float(0.0, 1.0, n=8), quadratic(8, 5), lambda t: floats(t, 8)),
    "mixed": Problem(
        kl.Space(b=kl.Binary(10), f=kl.Float(0.0, 1.0, n=5)),
        quadratic(15, 6),
        lambda t: {"b": bits(t, 10), "f": floats(t, 5)},
    ),
    "conditional": Problem(
        kl.Space(
            kind=kl.Choice(0, 1),
            bits=kl.Binary(6),
            rate=kl.Float(0.0, 1.0).when(kind=0),
            size=kl.Integer(1, 100).when(kind=1),
            drop=kl.Float(0.0, 1.0).when(kind=1),
        ),
        conditional,
        suggest_conditional,
    ),
    "subset": Problem(kl.Subset(20, 5), pairs(20, 8), subset),
}


class Knobless:
    """An `Optimizer` of which points are asked for one at a time."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem, self._opt = problem, kl.Optimizer(problem.space, rng=seed)

    def ask(self) -> tuple[Any, float] | None:
        batch = self._opt.ask(1)
        return (batch[0], self._problem.fun(batch[0].x)) if len(batch) else None

    def tell(self, asked: Any, value: float) -> None:
        self._opt.tell(asked, value)


class Optuna:
    """A study with the TPE sampler."""

    def __init__(self, problem: Problem, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True, multivariate=True)
        self._problem, self._study = problem, optuna.create_study(sampler=sampler)

    def ask(self) -> tuple[Any, float]:
        trial = self._study.ask()
        return trial, self._problem.fun(self._problem.suggest(trial))

    def tell(self, asked: Any, value: float) -> None:
        self._study.tell(asked, value)


OPTIMIZERS = {"knobless": Knobless, "optuna": Optuna}


class Course(NamedTuple):
    """The evaluations of a run in the order in which they have ended: starts, ends and values."""

    starts: list[float]
    ends: list[float]
    values: list[float]

    def busy(self, workers: int, budget: int) -> float:
        """The share of time in which the workers were busy, until the evaluation that is the last one has begun."""
        end = sorted(self.starts)[budget - 1]
        spent = sum(min(b, end) - a for a, b in zip(self.starts, self.ends, strict=True) if a < end)
        return spent / (workers * end)

    def reaching(self, target: float) -> tuple[int, float]:
        """The number of evaluations and the time until a value."""
        for n, (value, end) in enumerate(zip(self.values, self.ends, strict=True), start=1):
            if value <= target:
                return n, end
        return len(self.values), self.ends[-1]


def simulated(optimizer: Any, workers: int, durations: Iterator[float], budget: int) -> Course:
    """Run an optimizer with workers that are simulated."""
    running: list[tuple[float, int, float, Any, float]] = []  # end, number, start, what was asked, value
    course, now, begun = Course([], [], []), 0.0, itertools.count()
    left = budget
    while left or running:
        while left and len(running) < workers:
            clock = time.process_time()
            found = optimizer.ask()
            now += time.process_time() - clock
            if found is None:
                break
            heapq.heappush(running, (now + next(durations), next(begun), now, *found))
            left -= 1
        if not running:
            break
        end, _, start, asked, value = heapq.heappop(running)
        now = max(now, end)
        clock = time.process_time()
        optimizer.tell(asked, value)
        now += time.process_time() - clock
        for each, number in zip(course, (start, end, value), strict=True):
            each.append(number)
    return course


def durations(kind: str, seed: int) -> Iterator[float]:
    """Seconds of evaluations, 1 on average."""
    g = np.random.default_rng(seed)
    while True:
        yield 1.0 if kind == "equal" else float(g.lognormal(-0.5, 1.0))


def measured(name: str, problem: Problem, make: Callable[..., Any], runs: int) -> list[dict[str, Any]]:
    """The rows of one optimizer on one problem."""
    budget = max(BUDGETS)
    alone = [simulated(make(problem, seed), 1, durations("equal", seed), budget) for seed in range(runs)]
    target = statistics.median(min(course.values[:REFERENCE]) for course in alone)
    evaluations, seconds = (statistics.mean(part) for part in zip(*(c.reaching(target) for c in alone), strict=True))
    rows = []
    for kind, workers in itertools.product(("lognormal", "equal"), WORKERS):
        courses = [simulated(make(problem, s), workers, durations(kind, 100 + s), budget) for s in range(runs)]
        reached = [course.reaching(target) for course in courses]
        row = {"space": name, "durations": kind, "workers": workers, "runs": runs}
        for n in BUDGETS:
            busy = [course.busy(workers, n) for course in courses if len(course.starts) >= n]
            row[f"busy {n}"] = f"{statistics.mean(busy):.3f}" if busy else ""
        row["evaluations"] = f"{statistics.mean(n for n, _ in reached) / evaluations:.2f}"
        row["time"] = f"{statistics.mean(end for _, end in reached) / seconds:.3f}"
        rows.append(row)
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """Means over the spaces, and the least share of time."""
    lines = []
    for name, kind, workers in itertools.product(OPTIMIZERS, ("lognormal", "equal"), map(str, WORKERS)):
        of = [r for r in rows if (r["optimizer"], r["durations"], str(r["workers"])) == (name, kind, workers)]
        if of:
            busy = [float(r[f"busy {n}"]) for r in of for n in BUDGETS if r[f"busy {n}"]]
            mean = {column: statistics.mean(float(r[column]) for r in of) for column in ("evaluations", "time")}
            lines.append(
                f"{name:9} {kind:9} {workers:>2} workers: busy {statistics.mean(busy):.2f}, at least {min(busy):.2f}; "
                f"evaluations x {mean['evaluations']:.2f}, time x {mean['time']:.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument("--quick", action="store_true", help="two spaces, one run each")
    parser.add_argument("--out", type=Path, help="write the results here")
    parser.add_argument("--only", choices=OPTIMIZERS, help="one of the optimizers")
    options = parser.parse_args()
    problems = dict(itertools.islice(PROBLEMS.items(), 2 if options.quick else None))
    rows: list[dict[str, Any]] = []
    for (name, problem), (optimizer, make) in itertools.product(problems.items(), OPTIMIZERS.items()):
        if options.only in (None, optimizer):
            found = measured(name, problem, make, 1 if options.quick else options.runs)
            rows += [{"optimizer": optimizer, **row} for row in found]
            print(optimizer, name, [(r["durations"], r["workers"], r["busy 200"]) for r in found], flush=True)
    print(summary(rows))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_csv(options.out / "parallel.csv", rows)
        facts = {"command": "python benchmarks/parallel.py", "runs": options.runs, "commit": commit(), **machine()}
        facts |= {"versions": {package: version(package) for package in ("numpy", "optuna")}}
        (options.out / "parallel.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
