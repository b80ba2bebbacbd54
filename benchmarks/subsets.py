"""Choosing k of n: `Subset` beside restarted exchanges, a genetic algorithm, a penalty with bits, and random subsets.

    python benchmarks/subsets.py run [--methods subset …] [--tune] [--anew] [--jobs 2]
    python benchmarks/subsets.py table [--tune]

`run` makes the runs that are not recorded yet: each is one row of `runs.csv` with the best value of a subset of the
right size after 300, 1,000 and 3,000 evaluations. `table` writes `table.md` and `meta.json`. `--tune` is for the
problems on which rules may be tuned; their results are in `out/subsets`, not in `docs`. The problems are in
subset_problems.py.

The methods: `minimize` with `Subset(n, k)` and nothing declared (subset), and with `deterministic=True`
(subset_deterministic); random exchanges of a member, accepted if better, until no exchange is, then from another random
subset (exchange); a genetic algorithm with 100 subsets, a crossover that keeps common members and fills up from the
others, and an exchange as mutation, as in the subset selection example of pymoo (genetic); `minimize` with
`Binary(n, p=k/n)` and the standard deviation of random subsets times the deviation of the size as a penalty (penalty);
random subsets (random).
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from contest import complete_runs, grid, run_command
from harness import commit, machine, read_csv, seed
from subset_problems import REPORTED, TUNING, Problem, problem

BUDGETS = (300, 1000, 3000)
LEVEL = 0.05  # of the tests
SEEDS = 20
POPULATION = 100


class Done(BaseException):
    """The evaluations are exhausted. Not an `Exception`, which `minimize` would count as a failure."""


class Objective:
    """A problem that records the best value of a subset of the right size after each evaluation."""

    def __init__(self, f: Problem) -> None:
        self.f, self.best = f, []

    def __call__(self, x: Any) -> float:
        if len(self.best) == max(BUDGETS):
            raise Done
        value = self.f.value(x)
        least = self.best[-1] if self.best else np.inf
        self.best.append(min(least, value) if x.sum() == self.f.k else least)
        return value


# The methods: an objective and a seed to evaluations.


def subset(fun: Objective, number: int, **arguments: Any) -> None:
    kl.minimize(fun, kl.Subset(fun.f.n, fun.f.k), budget=max(BUDGETS), rng=number, **arguments)


def subset_deterministic(fun: Objective, number: int) -> None:
    subset(fun, number, deterministic=True)


def exchange(fun: Objective, number: int) -> None:
    rng = np.random.default_rng(number)
    while True:
        x = fun.f.draw(rng)
        value, stuck = fun(x), False
        while not stuck:
            pairs = [(i, j) for i in np.flatnonzero(x) for j in np.flatnonzero(~x)]
            stuck = True
            for i, j in rng.permutation(pairs):
                if x[i] and not x[j]:
                    x[i], x[j] = False, True
                    new = fun(x)
                    if new < value:
                        value, stuck = new, False
                    else:
                        x[i], x[j] = True, False


def genetic(fun: Objective, number: int) -> None:
    rng = np.random.default_rng(number)
    population = [fun.f.draw(rng) for _ in range(POPULATION)]
    values = [fun(x) for x in population]
    while True:
        known, children = {x.tobytes() for x in population}, []
        while len(children) < POPULATION:
            pair = [min(rng.integers(POPULATION, size=2), key=values.__getitem__) for _ in range(2)]
            a, b = (population[i] for i in pair)
            child = a & b
            others = np.flatnonzero(a ^ b)
            child[rng.permutation(others)[: fun.f.k - child.sum()]] = True
            child[rng.choice(np.flatnonzero(child))], child[rng.choice(np.flatnonzero(~child))] = False, True
            if child.tobytes() not in known:
                known.add(child.tobytes())
                children.append(child)
        population += children
        values += [fun(x) for x in children]
        order = np.argsort(values, kind="stable")[:POPULATION]
        population, values = [population[i] for i in order], [values[i] for i in order]


def penalty(fun: Objective, number: int) -> None:
    n, k, scale = fun.f.n, fun.f.k, fun.f.scale
    space = kl.Binary(n, p=k / n)
    kl.minimize(lambda x: fun(x == 1) + scale * abs(int(x.sum()) - k), space, budget=max(BUDGETS), rng=number)


def at_random(fun: Objective, number: int) -> None:
    rng = np.random.default_rng(number)
    while True:
        fun(fun.f.draw(rng))


METHODS: dict[str, Callable[[Objective, int], None]] = {
    "subset": subset,
    "subset_deterministic": subset_deterministic,
    "exchange": exchange,
    "genetic": genetic,
    "penalty": penalty,
    "random": at_random,
}
OURS = ("subset", "subset_deterministic")


# Runs.


class Task(NamedTuple):
    """What identifies a run."""

    problem: str
    method: str
    seed: int


def perform(task: Task) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    fun = Objective(problem(task.problem))
    with suppress(Done):
        METHODS[task.method](fun, int(seed("subsets", *task).generate_state(1)[0]))
    return {**task._asdict(), **{str(n): f"{fun.best[min(n, len(fun.best)) - 1]:.10g}" for n in BUDGETS}}


def complete(options: argparse.Namespace) -> None:
    """Make the runs that are not recorded yet."""
    names = TUNING if options.tune else REPORTED
    tasks = [Task(name, method, i) for i in range(options.seeds) for method in options.methods for name in names]
    results = [str(budget) for budget in BUDGETS]
    complete_runs(options.out / "runs.csv", tasks, results, perform, options.jobs, options.anew)


# What came of them.


def worse(ours: list[float], others: list[float]) -> bool:
    """Return whether values are significantly higher than others, by a one-sided Mann-Whitney test."""
    from scipy.stats import mannwhitneyu

    return len({*ours, *others}) > 1 and bool(mannwhitneyu(ours, others, alternative="greater").pvalue < LEVEL)


def cells_of(rows: Iterable[dict[str, str]]) -> dict[tuple[str, int], dict[str, list[float]]]:
    found: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for budget in BUDGETS:
            found[row["problem"], budget][row["method"]].append(float(row[str(budget)]))
    return found


def report(options: argparse.Namespace) -> None:
    cells = cells_of(read_csv(options.out / "runs.csv"))
    names = [name for name in (TUNING if options.tune else REPORTED) if (name, BUDGETS[0]) in cells]
    methods = [name for name in METHODS if any(name in cell for cell in cells.values())]
    medians, hits, lost = [["problem", "evaluations", *methods]], [["problem", *methods]], []
    for name in names:
        best = min(min(each) for budget in BUDGETS for each in cells[name, budget].values())
        last = cells[name, BUDGETS[-1]]
        found = {m: sum(value <= best + 1e-6 * abs(best) for value in last[m]) for m in methods}
        hits.append([name, *(f"{found[m]}/{len(last[m])}" for m in methods)])
        for budget in BUDGETS:
            cell = cells[name, budget]
            medians.append([name, str(budget), *(f"{np.median(cell[m]):.4f}" for m in methods)])
            each = [(ours, m) for ours in OURS for m in methods if ours in cell and m not in OURS]
            lost += [f"{ours} on {name} at {budget} against {m}" for ours, m in each if worse(cell[ours], cell[m])]
    parts = [
        "# Subsets",
        "Median of the best values; smaller is better.",
        grid(medians),
        f"Runs with the best value that was found by any method, after {BUDGETS[-1]:,} evaluations:",
        grid(hits),
        f"Significantly worse by one-sided Mann-Whitney tests at {LEVEL:.0%}: {', '.join(lost) or 'none'}.",
    ]
    text = "\n\n".join(parts) + "\n"
    (options.out / "table.md").write_text(text, encoding="utf-8")
    what = {"command": "python benchmarks/subsets.py run; python benchmarks/subsets.py table", "commit": commit()}
    described = what | machine() | {name: version(name) for name in ("scikit-learn", "scipy")}
    (options.out / "meta.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each method on each problem")
    run_command(parser, "subsets", {"run": complete, "table": report})


if __name__ == "__main__":
    main()
