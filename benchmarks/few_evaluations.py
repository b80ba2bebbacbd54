"""Few evaluations of few bits: the search with and without Bayesian optimization, Optuna's TPE and random search.

    python benchmarks/few_evaluations.py [--classes qubo …] [--searches knobless …] [--anew] [--jobs 1] [--out FILE]

Each run is one row of `few_evaluations.csv`: the best value after 50, 100, 200, 270 and 500 evaluations of the same
run. Rows that exist are not run again, except with `--anew`. At the end `few_evaluations.md` is made from all rows;
`few_evaluations.json` has the commit, the versions and the machine.

`knobless` is `kl.minimize(fun, kl.Binary(n), budget=500, deterministic=True, rng=seed)`; `without` also has
`algorithm=replace(kl.search(space), stages=())`, without Bayesian optimization; `tpe` is Optuna's TPESampler with its
defaults, up to 270 evaluations because of its runtime; `random` draws uniform points.

A class has twelve instances of at most 50 bits, numbers 100 to 111, with one seed each, the number. Bayesian
optimization was developed with instances of the same classes, but none of these was used. The bits of each instance are
flipped by a random mask; instances of labs and onemax differ by the mask and the number of bits alone.

The gap of a run in percent is 100 (best − lowest) / (median − lowest), for the lowest value in any run of the instance
and the median of 100 random points. Seconds are processor time and include the objective.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from contest import STOPPED, complete_runs, grid
from harness import commit, machine, seed

ROOT = Path(__file__).parents[1]
INSTANCES = range(100, 112)
BUDGETS = (50, 100, 200, 270, 500)
SHOWN = (100, 270, 500)  # in the table by kind of problem
TPE_BUDGET = 270
RESULTS = ("n", *map(str, BUDGETS), "seconds")
CLOSE = 1e-6  # gaps in percent that differ by less are equal

INTRODUCTION = """# Few evaluations of few bits

Bayesian optimization is compared with the search without it, with Optuna's TPE and with random search, by
`python benchmarks/few_evaluations.py`: 12 random instances of each kind of problem, with up to 50 bits, and one run
each. The instances were not used in the design of the search. Gaps are in percent: 100 is the median of 100 random
points, 0 the best value that any run has found. In brackets is the share of runs that are better with Bayesian
optimization, where ties count one half. TPE was run up to 270 evaluations.

- *maxcut*, *max3sat*: weighted MaxSAT, of the edges of a random graph and of random clauses with three literals
- *contamination*: prevention of contamination along a supply chain
- *qubo*: random quadratic functions, sparse and dense
- *features*: cross-validated error of ridge regression on a subset of features
- *knapsack*: one capacity, with a large penalty; random points are far above it, so the gaps are small
- *nk2*, *nk4*: NK landscapes in which a bit interacts with two or four others
- *labs*: low autocorrelation binary sequences
- *ising*: spin glasses on a torus
- *trap4*, *trap5*: deceptive traps of four or five bits
- *onemax*, *leadingones*: the number of wrong bits, and of bits from the first wrong one on
"""

Objective = Callable[[Any], float]
RNG = np.random.Generator


# The classes: a function draws the objective, to be minimized, of n bits.


def max_sat(clauses: Any, rng: RNG) -> Objective:
    """Weighted MaxSAT with standardized weights; literal i + 1 is bit i, and -(i + 1) its negation."""
    weights = rng.integers(1, 11, len(clauses)).astype(float)
    weights = (weights - weights.mean()) / weights.std()
    bits, wanted = abs(clauses) - 1, clauses > 0
    return lambda x: -float(weights[(x[bits] == wanted).any(axis=1)].sum())


def max_cut(n: int, rng: RNG) -> Objective:
    """Maximum cut of a random graph as MaxSAT: two clauses per edge."""
    i, j = np.tril_indices(n, -1)
    edges = np.column_stack([i, j])[rng.random(len(i)) < rng.choice([0.3, 0.55, 0.9])] + 1
    return max_sat(np.concatenate([edges, -edges]), rng)


def max_3sat(n: int, rng: RNG) -> Objective:
    """MaxSAT of 6, 12 or 20 random clauses per bit, each with three literals."""
    count = n * rng.choice([6, 12, 20])
    bits = np.array([rng.choice(n, 3, replace=False) for _ in range(count)])
    return max_sat((bits + 1) * rng.choice([-1, 1], bits.shape), rng)


def contamination(n: int, rng: RNG) -> Objective:
    """Prevention of contamination along a supply chain of n stages, with a penalty for each stage above the limit."""
    price, limit, level = rng.choice([0.6, 0.8, 1.2]), rng.choice([0.08, 0.12, 0.15]), rng.choice([0.9, 0.97])
    initial = rng.beta(1.0, 30.0, 100)
    spread = rng.beta(1.0, rng.choice([12.0, 17.0 / 3.0, 9.0]), (n, 100))
    recovery = rng.beta(1.0, rng.choice([3.0 / 7.0, 1.0]), (n, 100))

    def cost(x: Any) -> float:
        fraction, total = initial, price * float(x.sum()) + n * level
        for i in range(n):
            fraction = fraction * (1.0 - recovery[i]) if x[i] else fraction + (1.0 - fraction) * spread[i]
            total -= float(np.mean(fraction < limit))
        return total

    return cost


def qubo(n: int, rng: RNG) -> Objective:
    """Quadratic function with normal coefficients, of which a tenth, 30 % or all are not zero."""
    q = rng.standard_normal((n, n)) * (rng.random((n, n)) < rng.choice([0.1, 0.3, 1.0]))
    return lambda x: float(x @ q @ x)


def features(n: int, rng: RNG) -> Objective:
    """Squared error of ridge regression on a subset of correlated features, by 5-fold cross-validation."""
    rows = 120
    a = 0.6 * rng.standard_normal((rows, 6)) @ rng.standard_normal((6, n)) + rng.standard_normal((rows, n))
    weights = rng.standard_normal(n) * (rng.random(n) < 0.25)
    y = a @ weights + 0.5 * a[:, 0] * a[:, 1] + 2.0 * rng.standard_normal(rows)
    fold = rng.permutation(rows) % 5

    def cost(x: Any) -> float:
        chosen, error = a[:, x == 1], 0.0
        for k in range(5):
            train, test = fold != k, fold == k
            b, mean = chosen[train], y[train].mean()
            weights = np.linalg.solve(b.T @ b + np.eye(b.shape[1]), b.T @ (y[train] - mean))
            error += float(((y[test] - mean - chosen[test] @ weights) ** 2).sum())
        return error / rows

    return cost


def knapsack(n: int, rng: RNG) -> Objective:
    """Knapsack with 40 % of the total weight as its capacity, and a large penalty for each unit above it."""
    weights, values = rng.integers(1, 60, n), rng.integers(1, 60, n)
    capacity = 0.4 * weights.sum()

    def cost(x: Any) -> float:
        excess = float(weights @ x - capacity)
        return 1000.0 * excess if excess > 0.0 else -float(values @ x)

    return cost


def nk(k: int) -> Callable[[int, RNG], Objective]:
    """NK landscapes in which each bit interacts with k random others."""

    def draw(n: int, rng: RNG) -> Objective:
        links = np.array([[i, *rng.choice(np.delete(np.arange(n), i), k, replace=False)] for i in range(n)])
        table, powers, rows = rng.random((n, 2 ** (k + 1))), 2 ** np.arange(k + 1), np.arange(n)
        return lambda x: -float(table[rows, x[links] @ powers].sum())

    return draw


def labs(n: int, rng: RNG) -> Objective:
    """Low autocorrelation binary sequences: the sum of the squared autocorrelations."""

    def cost(x: Any) -> float:
        s = 2.0 * x - 1.0
        c = np.correlate(s, s, "full")[n:]
        return float(c @ c)

    return cost


def ising(n: int, rng: RNG) -> Objective:
    """Spin glass on a square torus with couplings of ±1."""
    side = round(n**0.5)
    at = np.arange(n).reshape(side, side)
    one, two = np.tile(at.ravel(), 2), np.concatenate([np.roll(at, 1, axis).ravel() for axis in (0, 1)])
    couplings = rng.choice([-1.0, 1.0], 2 * n)

    def cost(x: Any) -> float:
        s = 2.0 * x - 1.0
        return -float(couplings @ (s[one] * s[two]))

    return cost


def trap(k: int) -> Callable[[int, RNG], Objective]:
    """Deceptive traps of k bits at random positions."""

    def draw(n: int, rng: RNG) -> Objective:
        order = rng.permutation(n)

        def cost(x: Any) -> float:
            ones = x[order].reshape(-1, k).sum(axis=1)
            return float(np.where(ones == k, 0, 1 + ones).sum())

        return cost

    return draw


def one_max(n: int, rng: RNG) -> Objective:
    """Return the number of zeros."""
    return lambda x: float(n - x.sum())


def leading_ones(n: int, rng: RNG) -> Objective:
    """Return the number of bits from the first zero on, in a random order."""
    order = rng.permutation(n)
    return lambda x: float(n - np.cumprod(x[order]).sum())


# Each has the numbers of bits from which one is drawn.
CLASSES: dict[str, tuple[Callable[[int, RNG], Objective], Sequence[int]]] = {
    "maxcut": (max_cut, range(20, 46)),
    "max3sat": (max_3sat, range(20, 46)),
    "contamination": (contamination, range(20, 36)),
    "qubo": (qubo, range(20, 46)),
    "features": (features, range(20, 46)),
    "knapsack": (knapsack, range(20, 46)),
    "nk2": (nk(2), range(25, 51)),
    "nk4": (nk(4), range(25, 51)),
    "labs": (labs, range(20, 28)),
    "ising": (ising, (25, 36, 49)),
    "trap4": (trap(4), (24, 32, 40)),
    "trap5": (trap(5), (25, 35, 50)),
    "onemax": (one_max, range(20, 51)),
    "leadingones": (leading_ones, range(20, 51)),
}


def instance(name: str, number: int) -> tuple[int, Objective, float]:
    """Return the number of bits, the objective, and the median value of 100 random points."""
    rng = np.random.default_rng(seed("few_evaluations", name, number))
    draw, sizes = CLASSES[name]
    n = int(rng.choice(sizes))
    cost = draw(n, rng)
    mask = rng.integers(0, 2, n, dtype=np.int8)

    def fun(x: Any) -> float:
        return cost(x ^ mask)

    return n, fun, float(np.median([fun(x) for x in rng.integers(0, 2, (100, n), dtype=np.int8)]))


# The searches: an objective, the number of bits and a seed.


def knobless(fun: Objective, n: int, number: int) -> None:
    kl.minimize(fun, kl.Binary(n), budget=max(BUDGETS), deterministic=True, rng=number)


def without(fun: Objective, n: int, number: int) -> None:
    space = kl.Binary(n)
    algorithm = replace(kl.search(space), stages=())
    kl.minimize(fun, space, budget=max(BUDGETS), algorithm=algorithm, deterministic=True, rng=number)


def tpe(fun: Objective, n: int, number: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = [f"x{i}" for i in range(n)]
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=number))
    study.optimize(
        lambda trial: fun(np.array([trial.suggest_categorical(name, (0, 1)) for name in names], dtype=np.int8)),
        n_trials=TPE_BUDGET,
    )


def at_random(fun: Objective, n: int, number: int) -> None:
    for x in np.random.default_rng(number).integers(0, 2, (max(BUDGETS), n), dtype=np.int8):
        fun(x)


SEARCHES = {"random": at_random, "tpe": tpe, "without": without, "knobless": knobless}


class Task(NamedTuple):
    """What identifies a run."""

    problem: str
    instance: int
    search: str


def run(task: Task) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    n, cost, _ = instance(task.problem, task.instance)
    values: list[float] = []

    def fun(x: Any) -> float:
        values.append(cost(x))
        return values[-1]

    began = time.process_time()
    SEARCHES[task.search](fun, n, task.instance)
    seconds = time.process_time() - began
    most = TPE_BUDGET if task.search == "tpe" else max(BUDGETS)
    best = {str(budget): f"{min(values[:budget]):.10g}" if budget <= most else "" for budget in BUDGETS}
    return {**task._asdict(), "n": n, **best, "seconds": f"{seconds:.3f}"}


# Tables.


Gaps = dict[tuple[str, str, int], dict[str, float]]  # search, class and budget to the gap in percent of each instance


def gaps_of(rows: Sequence[Mapping[str, str]]) -> Gaps:
    lowest: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row["problem"], row["instance"]
        lowest[key] = min([lowest.get(key, np.inf), *(float(row[str(b)]) for b in BUDGETS if row[str(b)])])
    medians = {key: instance(key[0], int(key[1]))[2] for key in lowest}
    gaps: Gaps = {}
    for row in rows:
        key = name, number = row["problem"], row["instance"]
        for budget in BUDGETS:
            if row[str(budget)]:
                gap = (float(row[str(budget)]) - lowest[key]) / (medians[key] - lowest[key])
                gaps.setdefault((row["search"], name, budget), {})[number] = 100.0 * gap
    return gaps


def mean_gap(gaps: Gaps, search: str, names: Sequence[str], budget: int) -> str:
    """Return the mean over the classes of the mean gap; a dash if one of them has no runs."""
    found = [[*gaps.get((search, name, budget), {}).values()] for name in names]
    return f"{np.mean([np.mean(each) for each in found]):.2f}" if all(found) else "–"


def share_better(gaps: Gaps, names: Sequence[str], budget: int) -> str:
    """Return the share of the instances on which `knobless` is better than `without`; ties count one half."""
    points = []
    for name in names:
        ours, others = (gaps.get((search, name, budget), {}) for search in ("knobless", "without"))
        differences = [others[number] - gap for number, gap in ours.items() if number in others]
        points += [0.5 if abs(d) < CLOSE else float(d > 0.0) for d in differences]
    return f"{np.mean(points):.0%}" if points else "–"


def table(gaps: Gaps) -> str:
    """Return the table by kind of problem: one row per class, and their mean."""
    head = [[f"{budget} evaluations: without → with (better)", "TPE"][: 1 + (budget <= TPE_BUDGET)] for budget in SHOWN]
    rows = [["problem", *(title for titles in head for title in titles)]]
    for label, names in {**{name: [name] for name in CLASSES}, "**mean**": [*CLASSES]}.items():
        row = [label]
        for budget in SHOWN:
            one, two = (mean_gap(gaps, search, names, budget) for search in ("without", "knobless"))
            row.append(f"{one} → {two} ({share_better(gaps, names, budget)})")
            row += [mean_gap(gaps, "tpe", names, budget)] if budget <= TPE_BUDGET else []
        rows.append(row)
    return grid(rows)


def means(gaps: Gaps) -> str:
    """Return the mean gap over all classes: one row per search, one column per number of evaluations."""
    rows = [["search", *map(str, BUDGETS)]]
    rows += [[search, *(mean_gap(gaps, search, [*CLASSES], budget) for budget in BUDGETS)] for search in SEARCHES]
    share = [share_better(gaps, [*CLASSES], budget) for budget in BUDGETS]
    return grid([*rows, ["knobless better than without", *share]])


def write(options: argparse.Namespace, rows: Sequence[Mapping[str, str]]) -> None:
    what = {"command": "python benchmarks/few_evaluations.py", "commit": commit(), **machine()}
    gaps = gaps_of([row for row in rows if row["problem"] in CLASSES])
    text = f"{INTRODUCTION}\n{table(gaps)}\n\nThe mean over all kinds of problems:\n\n{means(gaps)}\n"
    options.out.with_suffix(".md").write_text(text, encoding="utf-8")
    described = json.dumps(what | {"optuna": version("optuna")}, indent=1)
    options.out.with_suffix(".json").write_text(f"{described}\n", encoding="utf-8")
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", nargs="+", choices=CLASSES, default=[*CLASSES], metavar="NAME")
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=[*SEARCHES], metavar="NAME")
    parser.add_argument("--anew", action="store_true", help="repeat runs that are recorded")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "peers" / "few_evaluations.csv")
    options = parser.parse_args()
    tasks = [Task(*each) for each in product(options.classes, INSTANCES, options.searches)]
    write(options, complete_runs(options.out, tasks, RESULTS, run, options.jobs, options.anew))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(STOPPED) from None
