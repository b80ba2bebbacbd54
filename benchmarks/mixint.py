"""Mixed integers and floats: bbob-mixint of COCO, with CatCMAwM of cmaes, TPE of Optuna, NGOpt and random search.

    python benchmarks/mixint.py run [--functions 1 3 …] [--dimensions 10 20] [--methods tpe …] [--tune] [--jobs 2]
    python benchmarks/mixint.py table [--tune]

Needs coco-experiment, cmaes, optuna and nevergrad. `run` makes the runs that are not recorded yet: each is one row of
`runs.csv` with the best value after 50, 100, 200, 500, 1,000 and 2,000 evaluations. `table` writes the mean rank of
each method over all functions, dimensions and instances to `table.md`; equal values share their mean rank. Methods that
do not have all runs are ranked in a table of their own.

A run is one instance of a function, whose number is also the seed. Four fifths of the variables are integers with 2, 4,
8 and 16 values, the others are floats. Rules were tuned on instances 1 to 5 of the odd functions (`--tune`, with
results in `out/mixint`), and on other functions; instances 11 to 15 and the even functions were not used for that.

The methods: `minimize` with `deterministic=True` (recommended), and with elitist PBIL-λ alone (pbil_elitist); the
others with their defaults. TPE has runs of 500 evaluations; NGOpt is told the budget of 2,000.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from contest import complete_runs, grid, run_command
from harness import commit, machine, read_csv

BUDGETS = (50, 100, 200, 500, 1000, 2000)
TPE_BUDGET = 500
FUNCTIONS = (1, 3, 6, 8, 10, 15, 17, 20, 21, 23)
TUNING, REPORTED = range(1, 6), range(11, 16)  # instances


class Problem:
    """A problem of the suite that records the best value so far."""

    def __init__(self, function: int, dimension: int, instance: int) -> None:
        import cocoex

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


# The methods: a problem and a seed to evaluations.


def recommended(f: Problem, number: int, algorithm: Any = None) -> None:
    kl.minimize(f, f.space, budget=BUDGETS[-1], rng=number, deterministic=True, algorithm=algorithm)


def pbil_elitist(f: Problem, number: int) -> None:
    recommended(f, number, kl.algorithms.pbil_elitist(f.space))


def catcmawm(f: Problem, number: int) -> None:
    from cmaes import CatCMAwM

    floats = [*zip(f.low[f.integers :], f.high[f.integers :], strict=True)]
    integers = [range(int(a), int(b) + 1) for a, b in zip(f.low, f.high, strict=True)][: f.integers]
    opt = CatCMAwM(x_space=floats, z_space=integers, seed=number)
    while len(f.best) < BUDGETS[-1]:
        points = [opt.ask() for _ in range(opt.population_size)]
        opt.tell([(each, f([*each.z, *each.x])) for each in points])


def tpe(f: Problem, number: int) -> None:
    import optuna

    def objective(trial: optuna.Trial) -> float:
        each = enumerate(zip(f.low, f.high, strict=True))
        return f(
            trial.suggest_int(str(i), int(a), int(b)) if i < f.integers else trial.suggest_float(str(i), a, b)
            for i, (a, b) in each
        )

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=number))
    study.optimize(objective, n_trials=TPE_BUDGET)


def ngopt(f: Problem, number: int) -> None:
    import nevergrad as ng

    scalars = [ng.p.Scalar(lower=a, upper=b) for a, b in zip(f.low, f.high, strict=True)]
    space = ng.p.Tuple(*(each.set_integer_casting() if i < f.integers else each for i, each in enumerate(scalars)))
    space.random_state.seed(number)
    opt = ng.optimizers.NGOpt(space, budget=BUDGETS[-1])
    for _ in range(BUDGETS[-1]):
        candidate = opt.ask()
        opt.tell(candidate, f(candidate.value))


def at_random(f: Problem, number: int) -> None:
    rng = np.random.default_rng(number)
    for _ in range(BUDGETS[-1]):
        x = rng.uniform(f.low, f.high)
        x[: f.integers] = rng.integers(f.low[: f.integers], f.high[: f.integers], endpoint=True)
        f(x)


METHODS: dict[str, Callable[[Problem, int], None]] = {
    "recommended": recommended,
    "pbil_elitist": pbil_elitist,
    "catcmawm": catcmawm,
    "tpe": tpe,
    "ngopt": ngopt,
    "random": at_random,
}


# Runs.


class Task(NamedTuple):
    """What identifies a run."""

    method: str
    function: int
    dimension: int
    instance: int


def perform(task: Task) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    f = Problem(task.function, task.dimension, task.instance)
    METHODS[task.method](f, task.instance)
    return {**task._asdict(), **{str(n): repr(f.best[n - 1]) if n <= len(f.best) else "" for n in BUDGETS}}


def complete(options: argparse.Namespace) -> None:
    """Make the runs that are not recorded yet: the first instance of every function, then the second, and so on."""
    instances = TUNING if options.tune else REPORTED
    tasks = [
        Task(method, function, dimension, instance)
        for instance in instances
        for method in options.methods
        for function in options.functions
        for dimension in options.dimensions
    ]
    results = [str(budget) for budget in BUDGETS]
    complete_runs(options.out / "runs.csv", tasks, results, perform, options.jobs, options.anew)


# What came of them.


def cell_of(row: dict[str, str]) -> tuple[str, ...]:
    """Return the function, dimension and instance of a run."""
    return row["function"], row["dimension"], row["instance"]


def mean_ranks(rows: Sequence[dict[str, str]], methods: Sequence[str]) -> list[list[str]]:
    """Return one row per method with its mean rank after each number of evaluations."""
    from scipy.stats import rankdata

    ranks: dict[tuple[str, int], list[float]] = defaultdict(list)
    for budget in BUDGETS:
        cells: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
        for row in rows:
            if row[str(budget)]:
                cells[cell_of(row)][row["method"]] = float(row[str(budget)])
        for cell in cells.values():
            for method, rank in zip(cell, rankdata([*cell.values()]), strict=True):
                ranks[method, budget].append(float(rank))
    shown = {key: f"{np.mean(each):.2f}" for key, each in ranks.items()}
    return [[method, *(shown.get((method, budget), "–") for budget in BUDGETS)] for method in methods]


def report(options: argparse.Namespace) -> None:
    rows = read_csv(options.out / "runs.csv")
    cells: dict[str, set[tuple[str, ...]]] = {name: set() for name in METHODS}
    for row in rows:
        cells[row["method"]].add(cell_of(row))
    every = set.union(*cells.values())
    methods, complete = [name for name in METHODS if cells[name]], [name for name in METHODS if cells[name] == every]
    common = set.intersection(*(cells[name] for name in methods))
    full = [row for row in rows if row["method"] in complete]
    groups = {
        "All functions": full,
        "Functions that were not used for tuning (6, 8, 10, 20)": [r for r in full if int(r["function"]) % 2 == 0],
        **{f"{d} dimensions": [r for r in full if r["dimension"] == d] for d in sorted({r["dimension"] for r in full})},
        **{f"Function {i}": [r for r in full if r["function"] == str(i)] for i in FUNCTIONS},
    }
    head = ["method", *(f"{budget:,}" for budget in BUDGETS)]
    parts = ["# bbob-mixint", "Mean rank after 50 to 2,000 evaluations; smaller is better. TPE has 500 evaluations."]
    for name, chosen in groups.items():
        parts += [f"{name}:", grid([head, *mean_ranks(chosen, complete)])]
    parts += [
        f"All methods, on the {len(common)} of {len(every)} problems on which each of them has a run:",
        grid([head, *mean_ranks([row for row in rows if cell_of(row) in common], methods)]),
        f"Runs: {', '.join(f'{name} {len(cells[name])}' for name in methods)}.",
    ]
    text = "\n\n".join(parts) + "\n"
    (options.out / "table.md").write_text(text, encoding="utf-8")
    what = {"command": "python benchmarks/mixint.py run; python benchmarks/mixint.py table", "commit": commit()}
    peers = ("coco-experiment", "cmaes", "optuna", "nevergrad", "scipy")
    described = what | machine() | {name: version(name) for name in peers}
    (options.out / "meta.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--functions", type=int, nargs="+", default=FUNCTIONS)
    parser.add_argument("--dimensions", type=int, nargs="+", default=(10, 20))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS], metavar="NAME")
    run_command(parser, "mixint", {"run": complete, "table": report})


if __name__ == "__main__":
    main()
