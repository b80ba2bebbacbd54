"""Early stopping on tables of learning curves: `minimize` with and without it, and Optuna's pruners.

    python benchmarks/early_stopping.py run [--half report] [--methods knobless …] [--seeds 5]
    python benchmarks/early_stopping.py table [--half report]

The tables are those of `benchmarks/learning_curves.py`: an evaluation is a row of a complete grid of
configurations, so runs are exact and cost nothing but the search. `run` makes the runs that are not
recorded yet, in `docs/peers/early_stopping/`. Rules are chosen on one half of the problems
(`--half choice`); the other one is reported.

A run has reached the target when an evaluation that ran to its end has a value at most as large. The
target of a problem is the median, over seeds, of the best value of 100 complete evaluations by
`minimize` without early stopping. A run ends at the target, or after as many steps as 150 complete
evaluations have, which is then its number of steps. The table has the mean number of steps, divided
by that without early stopping for the same seeds.

Whether the rule is safe is measured apart, without a search: in `safety`, 100 configurations of each
table are evaluated in random order, and so are those of synthetic curves: pure noise, curves that
cross, a mixture, noisy folds, and good ones that improve late. It counts the runs in which the best
of the 100 was stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from harness import Table, commit, machine
from knobless.core.early_stopping import Curve, Curves, is_hopeless
from learning_curves import PROBLEMS, read

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "peers" / "early_stopping"
COMPLETE = 100  # evaluations of which the best value is the target
MOST = 150  # complete evaluations of which a run may have the steps
TRIALS = 1500  # of Optuna in a run, at most


class Task(NamedTuple):
    """A table, what is to be reached, and the seed."""

    name: str
    losses: np.ndarray
    target: float
    seed: int

    @property
    def space(self) -> kl.Space:
        """The grid: indices of ordered values, choices of others."""
        return kl.Space(
            **{
                name: kl.Integer(0, len(values) - 1) if isinstance(values, list) else kl.Choice(*range(len(values)))
                for name, values in PROBLEMS[self.name].options.items()
            }
        )

    def curve(self, indices: Any) -> np.ndarray:
        """Return the losses of a configuration."""
        losses: np.ndarray = self.losses[PROBLEMS[self.name].row(indices)]
        return losses


class Meter:
    """Counts steps and evaluations of a run, and interrupts it at the target or after too many steps."""

    def __init__(self, task: Task) -> None:
        self.task, self.most = task, MOST * task.losses.shape[1]
        self.steps = self.evaluations = self.complete = 0
        self.reached = False
        self.bests: list[float] = []  # after each complete evaluation

    def steps_of(self, indices: Any) -> Iterator[float]:
        """Yield the losses of a configuration, and count them."""
        self.evaluations += 1
        for value in self.task.curve(indices):
            if self.steps >= self.most:
                raise KeyboardInterrupt
            self.steps += 1
            yield float(value)
        self.complete += 1
        self.bests.append(min(float(value), *self.bests[-1:], math.inf))
        if self.bests[-1] <= self.task.target:
            self.reached = True
            raise KeyboardInterrupt


def with_minimize(task: Task, stopping: bool) -> Meter:
    meter = Meter(task)

    def whole(indices: Any) -> float:
        return [*meter.steps_of(indices)][-1]

    fun: Any = meter.steps_of if stopping else whole
    budget = len(task.losses)
    with suppress(KeyboardInterrupt):  # unless there is a result
        kl.minimize(fun, task.space, budget=budget, rng=task.seed, deterministic=True)
    return meter


def with_optuna(task: Task, sampler: Callable[[int], Any], pruner: Callable[[int], Any]) -> Meter:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    meter = Meter(task)
    study = optuna.create_study(sampler=sampler(task.seed), pruner=pruner(task.losses.shape[1]))

    def objective(trial: Any) -> float:
        indices = {
            name: trial.suggest_int(name, 0, len(values) - 1)
            if isinstance(values, list)
            else trial.suggest_categorical(name, range(len(values)))
            for name, values in PROBLEMS[task.name].options.items()
        }
        for step, value in enumerate(meter.steps_of(indices), 1):
            trial.report(min(value, 1e300), step)
            if step < task.losses.shape[1] and trial.should_prune():
                raise optuna.TrialPruned
        return min(value, 1e300)

    with suppress(KeyboardInterrupt):
        study.optimize(objective, n_trials=TRIALS)
    return meter


def tpe(seed: int) -> Any:
    import optuna

    return optuna.samplers.TPESampler(seed=seed)


def at_random(seed: int) -> Any:
    import optuna

    return optuna.samplers.RandomSampler(seed=seed)


def median(steps: int) -> Any:
    import optuna

    return optuna.pruners.MedianPruner()


def halving(steps: int) -> Any:
    import optuna

    return optuna.pruners.SuccessiveHalvingPruner()


def hyperband(steps: int) -> Any:
    import optuna

    return optuna.pruners.HyperbandPruner(max_resource=steps)


METHODS: dict[str, Callable[[Task], Meter]] = {
    "no stopping": partial(with_minimize, stopping=False),
    "knobless": partial(with_minimize, stopping=True),
    "TPE, median": partial(with_optuna, sampler=tpe, pruner=median),
    "TPE, halving": partial(with_optuna, sampler=tpe, pruner=halving),
    "TPE, Hyperband": partial(with_optuna, sampler=tpe, pruner=hyperband),
    "random, halving": partial(with_optuna, sampler=at_random, pruner=halving),
}
RESULTS = ("steps", "evaluations", "complete", "reached")


def targets(half: str, seeds: int) -> dict[str, float]:
    """Return the targets of the problems; they are recorded when they are computed for the first time."""
    path = FOLDER / f"targets-{half}.json"
    known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    for name, losses in read().items():
        if PROBLEMS[name].half == half and name not in known:
            bests = []
            for seed in range(seeds):
                meter = with_minimize(Task(name, losses, -math.inf, seed), stopping=False)
                bests.append(meter.bests[:COMPLETE][-1])
            known[name] = statistics.median(bests)
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(known, indent=1) + "\n")
    return known


def runs_of(half: str) -> Table:
    return Table(FOLDER / f"runs-{half}.csv", ("problem", "method", "seed"), RESULTS)


def run(half: str, methods: Sequence[str], seeds: int) -> None:
    reach, done = targets(half, seeds), runs_of(half)
    for seed, (name, losses), method in product(range(seeds), read().items(), methods):
        if name in reach and (name, method, str(seed)) not in done:
            meter = METHODS[method](Task(name, losses, reach[name], seed))
            steps = meter.steps if meter.reached else meter.most
            values = (steps, meter.evaluations, meter.complete, int(meter.reached))
            done.add({"problem": name, "method": method, "seed": seed} | dict(zip(RESULTS, values, strict=True)))
    packages = {package: version(package) for package in ("optuna", "scikit-learn", "lightgbm", "torch")}
    about = {"commit": commit(), "half": half, "seeds": seeds, **machine(), **packages}
    (FOLDER / f"meta-{half}.json").write_text(json.dumps(about, indent=1) + "\n")


def table(half: str) -> None:
    rows = runs_of(half)
    found: dict[tuple[str, str], dict[int, dict[str, str]]] = defaultdict(dict)
    for name, method, seed in product(PROBLEMS, METHODS, range(100)):
        row = rows.get((name, method, str(seed)))
        if row is not None:
            found[name, method][seed] = row
    print("| problem | steps without stopping |", " | ".join([*METHODS][1:]), "|")
    print("|---|---|" + "---|" * (len(METHODS) - 1))
    ratios: dict[str, list[float]] = defaultdict(list)
    for name in PROBLEMS:
        base = {seed: float(row["steps"]) for seed, row in found[name, "no stopping"].items()}
        if not base:
            continue
        cells = [f"{name}, {PROBLEMS[name].steps} {PROBLEMS[name].unit}s", f"{statistics.mean(base.values()):.0f}"]
        for method in [*METHODS][1:]:
            runs = found[name, method]
            if not runs:
                cells.append("")
                continue
            steps = statistics.mean(float(row["steps"]) for row in runs.values())
            ratios[method].append(steps / statistics.mean(base[seed] for seed in runs))
            missed = sum(row["reached"] == "0" for row in runs.values())
            cells.append(f"{ratios[method][-1]:.2f}" + (f" ({missed} of {len(runs)} not reached)" if missed else ""))
        print("|", " | ".join(cells), "|")
    means = [f"{statistics.mean(ratios[method]):.2f}" if ratios[method] else "" for method in [*METHODS][1:]]
    print("| mean | |", " | ".join(means), "|")


# Safety.


def synthetic(kind: str, rng: np.random.Generator, n: int = 100, steps: int = 20) -> np.ndarray:
    """Return learning curves that are hard to stop."""
    end, time = rng.random(n), np.linspace(0.0, 1.0, steps)
    noise = rng.normal(size=(n, steps))
    if kind == "noise":  # up to the last step
        return np.column_stack([noise[:, 1:], end])
    if kind == "reversed":  # the best ones are the worst ones at first
        return end[:, None] * time + (1.0 - end[:, None]) * (1.0 - time) + 0.02 * noise
    if kind == "half of them reversed":
        start = np.where(rng.random(n) < 0.5, 1.0 - end, end)
        return end[:, None] * time + start[:, None] * (1.0 - time) + 0.02 * noise
    if kind == "folds":
        return np.cumsum(end[:, None] + 0.3 * noise, axis=1) / np.arange(1, steps + 1)
    curves = end[:, None] + np.exp(-3.0 * time) + 0.05 * noise
    for row in np.argsort(end)[: n // 10]:  # the best ones improve at once, and late
        curves[row, : rng.integers(steps // 2, steps - 1)] += 0.7
    return curves


SYNTHETIC = ("noise", "reversed", "half of them reversed", "folds", "late")


def stops(losses: np.ndarray) -> tuple[float, bool]:
    """Evaluate all rows in order; return the share of steps, and whether none with the best value was complete."""
    known, steps, best = Curves(), 0, np.inf
    for id, curve in enumerate(losses):
        limits = known.limits_of(id)
        n = next((s + 1 for s in range(len(curve)) if is_hopeless(curve[s], s, limits)), None)
        steps += len(curve) if n is None else n
        if n is None:
            known.add(Curve(curve.tolist()))
            best = min(best, curve[-1])
    return steps / losses.size, best > losses[:, -1].min()


def safety(half: str, seeds: int) -> None:
    print("| curves | share of steps | runs in which the best one was stopped |\n|---|---|---|")
    cases = {name: losses for name, losses in read().items() if PROBLEMS[name].half == half}
    for name in (*cases, *SYNTHETIC):
        found = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            losses = rng.permutation(cases[name])[:100] if name in cases else synthetic(name, rng)
            found.append(stops(losses))
        share, stopped = np.mean(found, axis=0)
        print(f"| {name} | {share:.2f} | {stopped:.1%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table", "safety"))
    parser.add_argument("--half", choices=("choice", "report"), default="report")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--seeds", type=int, default=5)
    chosen = parser.parse_args()
    if chosen.command == "run":
        run(chosen.half, chosen.methods, chosen.seeds)
    elif chosen.command == "table":
        table(chosen.half)
    else:
        safety(chosen.half, chosen.seeds)


if __name__ == "__main__":
    main()
