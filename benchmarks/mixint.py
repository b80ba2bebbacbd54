"""Mixed integers and floats: bbob-mixint of COCO, compared with CatCMAwM of cmaes, TPE of Optuna and random search.

    python benchmarks/mixint.py [--functions 6 8 10 20] [--dimensions 10 20] [--methods knobless …] [--out out/mixint]

Needs coco-experiment and cmaes. A run is one instance of a function, 1 to 5, which is also the seed. Each finished run
is one line of `runs.csv`, with the best value after 50, 100, 200, 500, 1,000 and 2,000 evaluations; the same command
resumes from there. At the end the mean rank of each method is printed, over all functions, dimensions and instances;
equal values share their mean rank. TPE has runs of 500 evaluations and takes part up to there.

Four fifths of the variables are integers with 2, 4, 8 and 16 values, the others are floats. Rules were tuned on the odd
functions (1, 3, 15, 17, 21, 23) and on other functions; the even ones (6, 8, 10, 20) were not used for that.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import cocoex
import numpy as np
from scipy.stats import rankdata

import knobless as kl

BUDGETS = (50, 100, 200, 500, 1000, 2000)
TPE_BUDGET = 500
REPORTED, TUNED = (6, 8, 10, 20), (1, 3, 15, 17, 21, 23)
INSTANCES = range(1, 6)


class Problem:
    """A problem of the suite that records the best value so far."""

    def __init__(self, function: int, dimension: int, instance: int) -> None:
        chosen = f"dimensions:{dimension} function_indices:{function} instance_indices:{instance}"
        self._suite = cocoex.Suite("bbob-mixint", "", chosen)  # kept, because it owns the problem
        self._problem = self._suite[0]
        self.integers = self._problem.number_of_integer_variables
        self.low, self.high = self._problem.lower_bounds.tolist(), self._problem.upper_bounds.tolist()
        self.best: list[float] = []

    def __call__(self, x: Iterable[float]) -> float:
        value = float(self._problem(np.array([*x], dtype=float)))
        self.best.append(min(value, self.best[-1] if self.best else math.inf))
        return value

    @property
    def space(self) -> kl.Space:
        """The search space."""
        n, bounds = self.integers, [*zip(self.low, self.high, strict=True)]
        integers, floats = [kl.Integer(int(a), int(b)) for a, b in bounds[:n]], [kl.Float(*each) for each in bounds[n:]]
        return kl.Space.of(integers + floats)


def knobless(f: Problem, seed: int, algorithm: Any = None) -> None:
    """Run the search for deterministic objectives."""
    kl.minimize(f, f.space, budget=BUDGETS[-1], rng=seed, deterministic=True, algorithm=algorithm)


def catcmawm(f: Problem, seed: int) -> None:
    """Run CatCMAwM with its defaults."""
    from cmaes import CatCMAwM

    floats = [*zip(f.low[f.integers :], f.high[f.integers :], strict=True)]
    integers = [range(int(a), int(b) + 1) for a, b in zip(f.low, f.high, strict=True)][: f.integers]
    opt = CatCMAwM(x_space=floats, z_space=integers, seed=seed)
    while len(f.best) < BUDGETS[-1]:
        points = [opt.ask() for _ in range(opt.population_size)]
        opt.tell([(each, f([*each.z, *each.x])) for each in points])


def tpe(f: Problem, seed: int) -> None:
    """Run TPE with its defaults."""
    import optuna

    def objective(trial: optuna.Trial) -> float:
        each = enumerate(zip(f.low, f.high, strict=True))
        return f(
            trial.suggest_int(str(i), int(a), int(b)) if i < f.integers else trial.suggest_float(str(i), a, b)
            for i, (a, b) in each
        )

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=TPE_BUDGET)


def random(f: Problem, seed: int) -> None:
    """Draw points from the uniform distribution."""
    rng = np.random.default_rng(seed)
    for _ in range(BUDGETS[-1]):
        x = rng.uniform(f.low, f.high)
        x[: f.integers] = rng.integers(f.low[: f.integers], f.high[: f.integers], endpoint=True)
        f(x)


METHODS: dict[str, Callable[[Problem, int], None]] = {
    "knobless": knobless,
    "pbil_elitist": lambda f, seed: knobless(f, seed, kl.pbil_elitist(f.space)),
    "catcmawm": catcmawm,
    "tpe": tpe,
    "random": random,
}


def run_all(chosen: argparse.Namespace, path: Path) -> Iterator[list[str]]:
    """Make the runs that the file does not have, and yield the rows of all."""
    known = {tuple(row[:4]): row for row in csv.reader(path.open())} if path.exists() else {}
    for function in chosen.functions:
        for dimension in chosen.dimensions:
            for instance in INSTANCES:
                for method in chosen.methods:
                    key = (method, str(function), str(dimension), str(instance))
                    if key not in known:
                        f = Problem(function, dimension, instance)
                        METHODS[method](f, instance)
                        values = [repr(f.best[n - 1]) if n <= len(f.best) else "" for n in BUDGETS]
                        known[key] = [*key, *values]
                        with path.open("a", newline="") as file:
                            csv.writer(file).writerow(known[key])
                    yield known[key]


def main() -> None:
    """Make the runs and print the mean ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, nargs="+", default=REPORTED)
    parser.add_argument("--dimensions", type=int, nargs="+", default=(10, 20))
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=[*METHODS])
    parser.add_argument("--out", type=Path, default=Path("out/mixint"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    rows = [*run_all(chosen, chosen.out / "runs.csv")]
    print("mean rank after", *(f"{n:>6}" for n in BUDGETS))
    ranks: dict[str, list[list[float]]] = {method: [] for method in chosen.methods}
    for column in range(4, 4 + len(BUDGETS)):
        cells: dict[tuple[str, ...], dict[str, float]] = {}
        for row in rows:
            if row[column]:
                cells.setdefault(tuple(row[1:4]), {})[row[0]] = float(row[column])
        each: dict[str, list[float]] = {method: [] for method in chosen.methods}
        for cell in cells.values():
            for method, rank in zip(cell, rankdata([*cell.values()]), strict=True):
                each[method].append(float(rank))
        for method, own in each.items():
            ranks[method].append(own)
    for method, columns in ranks.items():
        print(f"{method:15}", *(f"{np.mean(own):6.2f}" if own else "     –" for own in columns))


if __name__ == "__main__":
    main()
