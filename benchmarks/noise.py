"""True value of the point returned under noise: the default beside PBIL-λ, Optuna's TPE, CatCMAwM and random search.

    python benchmarks/noise.py run [--problems NAME …] [--searches default …] [--budgets 50 …] [--seeds 20] [--jobs 2]
    python benchmarks/noise.py summary

Longer runs, in a folder of their own (`--searches default pbil-lambda` for these two alone):

    python benchmarks/noise.py run --problems "OneMax 100, σ²=100" --budgets 20000 --seeds 10 --out out/noise-20000

Each run is one row of `runs.csv`: a problem, a search, a budget, a seed, and the regret of the returned point: its
noiseless value minus the optimum, or its rank in 10,000 for a table. Rows that exist are not run again, except with
`--anew`. `noisy_problems.py` has the problems; `--data` is the folder of the tables, which are left out without it.

What is returned: `result.x` of `minimize` with nothing declared (default); the mode of the distribution (PBIL-λ,
CatCMAwM); the point with the lowest single value (TPE, random).

The summary has the mean regrets (geometric for tables) and compares the default with each other search, cell by cell (a
problem and a budget): the ratio of the mean regrets, (a + δ)/(b + δ), where δ is the least difference of regrets of the
problem over the number of seeds, that is, the smallest mean that is not 0; the geometric mean of the ratios per budget;
and a two-sided Wilcoxon signed-rank test on the pairs of one seed.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from contest import STOPPED, complete_runs, grid
from harness import read_csv, seed
from noisy_problems import PROBLEMS, Noisy

ROOT = Path(__file__).parents[1]
BUDGETS = (50, 100, 300, 1000, 3000)
LEVEL = 0.01  # of the tests


# The searches: an instance, a budget and a seed to the point returned.


def space_of(f: Noisy) -> kl.Space:
    if not f.numbers and set(f.sizes) == {2}:
        return kl.Space.of(kl.Binary(len(f.sizes)))
    return kl.Space.of([*(kl.Choice(*range(k)) for k in f.sizes), *(kl.Float(0.0, 1.0) for _ in range(f.numbers))])


def default(f: Noisy, budget: int, seed: int) -> Any:
    return kl.minimize(f.evaluate, space_of(f), budget=budget, rng=seed).x


def pbil_lambda(f: Noisy, budget: int, seed: int) -> Any:
    space = space_of(f)
    return kl.minimize(f.evaluate, space, budget=budget, rng=seed, algorithm=kl.pbil_lambda(space)).mode


def at_random(f: Noisy, budget: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    points = [join(rng.integers(f.sizes), rng.random(f.numbers)) for _ in range(budget)]
    return min(points, key=f.evaluate)


def tpe(f: Noisy, budget: int, seed: int) -> Any:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space: dict[str, BaseDistribution] = {f"x{i}": CategoricalDistribution(range(k)) for i, k in enumerate(f.sizes)}
    space |= {f"z{i}": FloatDistribution(0.0, 1.0) for i in range(f.numbers)}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    for _ in range(budget):
        trial = study.ask(space)
        study.tell(trial, f.evaluate(list(trial.params.values())))  # in the order of the space
    return list(study.best_params.values())


def catcmawm(f: Noisy, budget: int, seed: int) -> Any:
    from cmaes import CatCMAwM

    box = np.tile([0.0, 1.0], (f.numbers, 1)) if f.numbers else None
    opt = CatCMAwM(x_space=box, c_space=list(f.sizes), seed=seed)
    for _ in range(budget // opt.population_size):
        solutions = [opt.ask() for _ in range(opt.population_size)]
        opt.tell([(each, f.evaluate(join(each.c.argmax(axis=1), each.x))) for each in solutions])
    numbers = np.clip(opt._mean, 0.0, 1.0) if f.numbers else None
    return join(opt._q.argmax(axis=1)[: len(f.sizes)], numbers)


def join(options: Any, numbers: Any) -> Any:
    return np.concatenate([options, numbers]) if numbers is not None and len(numbers) else options


class Search(NamedTuple):
    """A search in the table, its package, and how far it is run."""

    title: str
    package: str
    run: Callable[[Noisy, int, int], Any]
    most: float = math.inf
    seeds: int = 20


SEARCHES = {
    "default": Search("knobless", "knobless", default),
    "pbil-lambda": Search("PBIL-λ", "knobless", pbil_lambda),
    "tpe": Search("Optuna TPE", "optuna", tpe, 300, 10),
    "catcmawm": Search("CatCMAwM", "cmaes", catcmawm),
    "random": Search("random", "knobless", at_random),
}


# Runs.


class Task(NamedTuple):
    """What identifies a run."""

    problem: str
    search: str
    budget: int
    seed: int


def instance(problem: str, number: int, data: Path) -> tuple[Noisy, int]:
    """Return the instance of a seed, the same for all searches, and a seed for the search."""
    source = seed("noise", problem, number)
    return PROBLEMS[problem].make(np.random.default_rng(source), data), int(source.generate_state(1)[0])


def run(data: Path, task: Task) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    f, number = instance(task.problem, task.seed, data)
    began = time.perf_counter()
    x = SEARCHES[task.search].run(f, task.budget, number)
    seconds = time.perf_counter() - began
    return {**task._asdict(), "regret": repr(float(f.regret(x))), "seconds": f"{seconds:.3f}"}


def tasks_of(options: argparse.Namespace) -> Iterable[Task]:
    """Return the runs asked for, the short ones first."""
    for budget in sorted(options.budgets):
        for problem in options.problems:
            for name in options.searches:
                search = SEARCHES[name]
                if budget <= search.most and find_spec(search.package):
                    for number in range(options.first, options.first + min(options.seeds, search.seeds)):
                        yield Task(problem, name, budget, number)


def complete(options: argparse.Namespace) -> None:
    """Make the runs that are not recorded yet."""
    files = {name: PROBLEMS[name].file for name in options.problems}
    missing = [name for name, file in files.items() if file and not (options.data / file).exists()]
    options.problems = [name for name in options.problems if name not in missing]
    if missing:
        print(f"Left out, no table in {options.data}: {', '.join(missing)}")
    search = partial(run, options.data.resolve())
    path, results = options.out / "runs.csv", ("regret", "seconds")
    complete_runs(path, list(tasks_of(options)), results, search, options.jobs, options.anew)


# What came of them.


class Cell(NamedTuple):
    """The regrets of all searches on a problem with a budget, by search and seed."""

    problem: str
    budget: int
    regrets: dict[str, dict[int, float]]

    def mean(self, search: str, seeds: Sequence[int]) -> float:
        values = [self.regrets[search][number] for number in seeds]
        if PROBLEMS[self.problem].step:
            return float(np.mean(values))
        return float(np.exp(np.mean(np.log(values))))

    def pairs(self, ours: str, other: str) -> list[int]:
        """Return the seeds that both have."""
        return sorted(self.regrets.get(ours, {}).keys() & self.regrets.get(other, {}).keys())

    def ratio(self, ours: str, other: str) -> float:
        seeds = self.pairs(ours, other)
        least = PROBLEMS[self.problem].step / len(seeds)
        return (self.mean(ours, seeds) + least) / (self.mean(other, seeds) + least)

    def p_value(self, ours: str, other: str) -> float:
        from scipy.stats import wilcoxon

        each = [self.regrets[ours][number] - self.regrets[other][number] for number in self.pairs(ours, other)]
        return float(wilcoxon(each).pvalue) if any(each) else 1.0


def cells_of(rows: Iterable[dict[str, str]]) -> list[Cell]:
    found: dict[tuple[str, int], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row["problem"], int(row["budget"])][row["search"]][int(row["seed"])] = float(row["regret"])
    order = [(problem, budget) for problem in PROBLEMS for budget in sorted({budget for _, budget in found})]
    return [Cell(*key, found[key]) for key in order if key in found]


def means_grid(cells: Sequence[Cell]) -> str:
    names = sorted({name for cell in cells for name in cell.regrets}, key=lambda name: [*SEARCHES, name].index(name))
    rows = [["", "budget", *(SEARCHES[name].title if name in SEARCHES else name for name in names)]]
    for cell in cells:
        means = [f"{cell.mean(name, list(cell.regrets[name])):.3g}" if name in cell.regrets else "–" for name in names]
        rows.append([cell.problem, str(cell.budget), *means])
    return grid(rows)


def comparison(cells: Sequence[Cell], ours: str, other: str) -> list[str]:
    """Return the sentences and the table on two searches."""
    both = [cell for cell in cells if cell.pairs(ours, other)]
    if not both:
        return []
    ratios = [(cell, cell.ratio(ours, other)) for cell in both]
    rows = [["budget", "cells", "geometric mean of the ratios", "ahead or level", "better at 1 %", "worse at 1 %"]]
    worse = []
    for budget in sorted({cell.budget for cell in both}):
        each = [(cell, ratio) for cell, ratio in ratios if cell.budget == budget]
        values = np.array([ratio for _, ratio in each])
        significant = [(cell, ratio) for cell, ratio in each if cell.p_value(ours, other) < LEVEL]
        lost = [f"{cell.problem} at {budget} (x {ratio:.2f})" for cell, ratio in significant if ratio > 1.0]
        worse += lost
        counts = [np.count_nonzero(values <= 1.0), len(significant) - len(lost), len(lost)]
        rows.append([str(budget), str(len(each)), f"{np.exp(np.log(values).mean()):.3f}", *map(str, counts)])
    share = np.mean([ratio <= 1.0 for _, ratio in ratios])
    text = f"Ahead or level in {share:.0%} of {len(both)} cells; worse at 1 %: {', '.join(worse) or 'none'}."
    return [f"## {ours} / {other}", grid(rows), text]


def summary(options: argparse.Namespace) -> None:
    rows = read_csv(options.out / "runs.csv")
    cells = cells_of(row for row in rows if row["problem"] in options.problems)
    parts = ["# Noisy objectives: mean regret of the returned point", means_grid(cells)]
    for other in dict.fromkeys(row["search"] for row in rows):
        if other != options.ours:
            parts += comparison(cells, options.ours, other)
    text = "\n\n".join(parts) + "\n"
    (options.out / "summary.md").write_text(text, encoding="utf-8")
    print(text)


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("run", "summary"))
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=[*PROBLEMS], metavar="NAME")
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=[*SEARCHES], metavar="NAME")
    parser.add_argument("--budgets", nargs="+", type=int, default=BUDGETS, metavar="N")
    parser.add_argument("--seeds", type=int, default=20, help="runs of each; at most 10 of TPE")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--ours", default="default", help="the search that the summary compares with the others")
    parser.add_argument("--anew", action="store_true", help="repeat runs that are recorded")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the tables")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "noise")
    return parser.parse_args()


def main() -> None:
    options = asked()
    {"run": complete, "summary": summary}[options.command](options)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(STOPPED) from None
