"""Conditional variables: the default beside the flat space, Optuna's TPE and random search.

    python benchmarks/conditional.py tables
    python benchmarks/conditional.py run [--kinds honest …] [--methods conditional …] [--tune] [--anew] [--jobs 2]
    python benchmarks/conditional.py table [--tune] [--ours conditional]
    python benchmarks/conditional.py repeats

`tables` computes the two tables of conditional_problems.py, which are part of the repository. `run` makes the runs that
are not recorded yet: each is one row of `runs.csv` with best − optimum after 50, 100, 200 and 300 evaluations.
`table` writes `table.md` and `meta.json`. `repeats` counts configurations evaluated twice, on a grid of kernels.
`--tune` is for the trees on which rules may be tuned; their results are in `out/conditional`, not in `docs`.

The methods: `minimize` with the conditional space and nothing declared (conditional); with the space of all variables,
whose inactive ones the objective ignores, and `deterministic=True` (flat); define-by-run with TPE (tpe), and with its
options `multivariate` and `group` up to 100 evaluations (tpe_group); uniform draws (random).

A value is (best − optimum) / (mean best of random − optimum), of the same tree and number of evaluations, its cell. Two
methods are compared in each cell by a one-sided Mann-Whitney test. Each has 10 seeds on a tree (TPE 5, random 30)
and 20 on a table (random 30).
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from conditional_problems import GRIDS, KINDS, REPORTED, TUNING, Problem, kernel_grid, problem
from contest import complete_runs, grid, run_command
from harness import commit, machine, read_csv, seed

BUDGETS = (50, 100, 200, 300)
LEVEL = 0.05  # of the tests
TABLE_SEEDS = 20

Points = list[dict[str, Any]]


# The methods: a problem, a seed and a number of evaluations to the points in the order of their evaluation.


def points_of(f: Problem, space: kl.Space, budget: int, **arguments: Any) -> Points:
    """Return the points that `minimize` evaluates."""
    points: Points = []

    def fun(x: dict[str, Any]) -> float:
        points.append(x)
        return f(x)

    kl.minimize(fun, space, budget=budget, **arguments)
    return points


def conditional(f: Problem, number: int, budget: int) -> Points:
    return points_of(f, f.space(), budget, rng=number)


def flat(f: Problem, number: int, budget: int) -> Points:
    return points_of(f, f.flat_space(), budget, rng=number, deterministic=True)


def at_random(f: Problem, number: int, budget: int) -> Points:
    rng = np.random.default_rng(number)
    return [f.draw(rng) for _ in range(budget)]


def tpe(f: Problem, number: int, budget: int, **options: bool) -> Points:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=number, **options))
    study.optimize(lambda trial: f(f.suggest(trial)), n_trials=budget)
    return [trial.params for trial in study.trials]


def tpe_group(f: Problem, number: int, budget: int) -> Points:
    return tpe(f, number, budget, multivariate=True, group=True)


def run(f: Problem, algorithm: Callable[[kl.Space], Any] | None, number: int, budget: int, **arguments: Any) -> Any:
    """Return the lowest value after each evaluation of a run with `algorithm(space)`; None is the default."""
    space = f.space()
    chosen = algorithm(space) if algorithm else None
    return lowest(f, points_of(f, space, budget, rng=number, algorithm=chosen, **arguments), budget)


def lowest(f: Problem, points: Points, budget: int) -> Any:
    """Return the lowest value after each evaluation; a run that ends early keeps its last one."""
    least = np.minimum.accumulate([f(x) for x in points])
    return np.concatenate([least, np.full(budget - len(least), least[-1])])


class Method(NamedTuple):
    """A method, the number of its seeds on trees, and the most evaluations."""

    points: Callable[[Problem, int, int], Points]
    seeds: int
    most: int = max(BUDGETS)


METHODS = {
    "conditional": Method(conditional, 10),
    "flat": Method(flat, 10),
    "tpe": Method(tpe, 5),
    "tpe_group": Method(tpe_group, 5, 100),
    "random": Method(at_random, 30),
}


# Runs.


class Task(NamedTuple):
    """What identifies a run."""

    kind: str
    problem: str
    method: str
    seed: int


def perform(task: Task) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    f, method = problem(task.kind, task.problem), METHODS[task.method]
    number = int(seed("conditional", *task).generate_state(1)[0])
    regrets = np.maximum(lowest(f, method.points(f, number, method.most), method.most) - f.optimum, 0.0)
    at = {str(budget): f"{regrets[budget - 1]:.4g}" if budget <= method.most else "" for budget in BUDGETS}
    return {**task._asdict(), **at}


def tasks_of(options: argparse.Namespace) -> Iterable[Task]:
    """Return the runs asked for: the first seed of every problem, then the second, and so on."""
    names = dict.fromkeys(KINDS, TUNING if options.tune else REPORTED) | {"table": () if options.tune else GRIDS}
    for method in options.methods:
        for number in range(max(METHODS[method].seeds, TABLE_SEEDS)):
            for kind in options.kinds:
                seeds = max(METHODS[method].seeds, TABLE_SEEDS if kind == "table" else 0)
                if number < min(seeds, options.seeds):
                    yield from (Task(kind, str(name), method, number) for name in names[kind])


def complete(options: argparse.Namespace) -> None:
    """Make the runs that are not recorded yet."""
    results = [str(budget) for budget in BUDGETS]
    complete_runs(options.out / "runs.csv", list(tasks_of(options)), results, perform, options.jobs, options.anew)


# What came of them.


class Cell(NamedTuple):
    """The regrets (best − optimum) of all methods on a problem after a number of evaluations."""

    kind: str
    problem: str
    budget: int
    regrets: dict[str, list[float]]

    def mean(self, method: str) -> float:
        """Return the mean of the normalized values."""
        return float(np.mean(self.regrets[method]) / np.mean(self.regrets["random"]))

    def better(self, ours: str, other: str) -> bool:
        """Return whether the regrets of a method are significantly lower."""
        from scipy.stats import mannwhitneyu

        one, two = self.regrets[ours], self.regrets[other]
        if len({*one, *two}) == 1:
            return False
        return bool(mannwhitneyu(one, two, alternative="less").pvalue < LEVEL)


def cells_of(rows: Iterable[dict[str, str]]) -> list[Cell]:
    found: dict[tuple[str, str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for budget in BUDGETS:
            if row[str(budget)]:
                found[row["kind"], row["problem"], budget][row["method"]].append(float(row[str(budget)]))
    return [Cell(*key, regrets) for key, regrets in sorted(found.items())]


def means(cells: Sequence[Cell], kind: str, methods: Sequence[str]) -> list[list[str]]:
    """Return one row per method with the mean value of each number of evaluations."""
    rows = []
    for method in methods:
        each = [mean_of(cells, kind, budget, method) for budget in BUDGETS]
        rows.append([kind, method, *("–" if mean is None else f"{mean:.3f}" for mean in each)])
    return rows


def mean_of(cells: Sequence[Cell], kind: str, budget: int, method: str) -> float | None:
    found = [c.mean(method) for c in cells if (c.kind, c.budget) == (kind, budget) and method in c.regrets]
    return float(np.mean(found)) if found else None


def counts(cells: Sequence[Cell], kind: str, ours: str, other: str) -> list[str]:
    """Return the number of cells, those significantly better and worse, and those with a lower and a higher mean."""
    both = [c for c in cells if c.kind in kind.split(" and ") and {ours, other} <= {*c.regrets}]
    better = sum(cell.better(ours, other) for cell in both)
    worse = sum(cell.better(other, ours) for cell in both)
    differences = np.array([np.mean(cell.regrets[ours]) - np.mean(cell.regrets[other]) for cell in both])
    share = f"{worse} ({worse / len(both):.1%})" if both else "–"
    lower, higher = np.count_nonzero(differences < 0.0), np.count_nonzero(differences > 0.0)
    return [kind, ours, other, str(len(both)), str(better), share, str(lower), str(higher)]


def table_rows(cells: Sequence[Cell], methods: Sequence[str]) -> list[list[str]]:
    """Return one row per table and number of evaluations, with the median of the lowest values."""
    rows = [["table", "evaluations", "optimum", *methods]]
    for cell in cells:
        if cell.kind == "table":
            optimum = problem("table", cell.problem).optimum
            medians = {name: f"{optimum + np.median(regrets):.4f}" for name, regrets in cell.regrets.items()}
            best = [cell.problem, str(cell.budget), f"{optimum:.4f}"]
            rows.append(best + [medians.get(name, "–") for name in methods])
    return rows


def report(options: argparse.Namespace) -> None:
    cells = cells_of(read_csv(options.out / "runs.csv"))
    methods = [name for name in METHODS if any(name in cell.regrets for cell in cells)]
    others, ours = [name for name in methods if name != options.ours], options.ours
    head = ["kind", "method", "against", "cells", "better", "worse", "lower mean", "higher mean"]
    both = " and ".join(KINDS)
    values = [row for kind in KINDS for row in means(cells, kind, methods)]
    parts = [
        "# Conditional variables",
        "Mean value: (best − optimum) / (mean best of random − optimum).",
        grid([["trees", "method", *map(str, BUDGETS)], *values]),
    ]
    if ours in methods and "flat" in methods:
        ratios = [mean_of(cells, "honest", b, ours) / mean_of(cells, "honest", b, "flat") for b in BUDGETS]
        parts.append(f"Honest trees, {ours} / flat: " + ", ".join(f"{ratio:.3f}" for ratio in ratios) + ".")
    parts += [
        f"Cells by one-sided Mann-Whitney tests at {LEVEL:.0%}:",
        grid([head, *(counts(cells, each, name, "random") for name in methods[:-1] for each in (both, *KINDS))]),
    ]
    if any(cell.kind == "table" for cell in cells):
        parts += ["Medians on the tables:", grid(table_rows(cells, methods))]
    if ours in methods:
        lost = [
            f"{cell.problem} at {cell.budget} against {name}"
            for cell in cells
            for name in others
            if cell.kind == "table" and {ours, name} <= {*cell.regrets} and cell.better(name, ours)
        ]
        parts += [
            f"{ours} against each other method:",
            grid([head, *(counts(cells, each, ours, name) for name in others for each in (*KINDS, "table"))]),
            f"{ours} significantly worse on a table: {', '.join(lost) or 'none'}.",
        ]
    text = "\n\n".join(parts) + "\n"
    (options.out / "table.md").write_text(text, encoding="utf-8")
    what = {
        "command": "python benchmarks/conditional.py run; python benchmarks/conditional.py table",
        "commit": commit(),
    }
    described = what | machine() | {name: version(name) for name in ("optuna", "scikit-learn", "scipy")}
    (options.out / "meta.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    print(text)


def repeats(options: argparse.Namespace) -> None:
    """Count evaluations of configurations that have been evaluated; those of the best one are tests of noise."""
    f = kernel_grid()
    total = len(f.cost.costs)
    rows = [["deterministic", "seed", "configurations", "evaluations", "different", "tests of noise", "other repeats"]]
    for deterministic in (None, True):
        for number in range(min(options.seeds, 5)):
            points = points_of(f, f.space(), total, rng=number, deterministic=deterministic)
            seen: dict[tuple[Any, ...], float] = {}
            tests = others = 0
            for point in points:
                key = tuple(sorted(point.items()))
                if key in seen and seen[key] == min(seen.values()):
                    tests += 1
                elif key in seen:
                    others += 1
                seen[key] = f(point)
            found = [deterministic, number, total, len(points), len(seen), tests, others]
            rows.append([str(each) for each in found])
    text = f"# Repeated evaluations in conditional spaces\n\n{grid(rows)}\n"
    (options.out / "repeats.md").write_text(text, encoding="utf-8")
    print(text)


def tables(options: argparse.Namespace) -> None:
    import conditional_tables

    conditional_tables.compute()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=(*KINDS, "table"), default=[*KINDS, "table"], metavar="KIND")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=30, help="runs of each; at most as many as are stated")
    parser.add_argument("--ours", default="conditional", help="the method that is compared with the others")
    run_command(parser, "conditional", {"tables": tables, "run": complete, "table": report, "repeats": repeats})


if __name__ == "__main__":
    main()
