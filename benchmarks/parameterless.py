"""Compare knobless with other estimation-of-distribution algorithms without parameters, with and without noise.

    python benchmarks/parameterless.py [--problems OneMax …] [--searches sig-cGA …] [--seeds 25] [--jobs 2]
    python benchmarks/parameterless.py --check

100 bits. The functions with Gaussian noise have 10⁶ evaluations, three functions of ioh's PBO suite 10⁷. A run ends at
the first evaluation of the optimum, which the objective recognizes and the search does not. Each run is one row of
`runs.csv`; rows that exist are not run again, except with `--anew`. At the end the tables of
`docs/peers/parameterless/table.md` are made from all rows. Seconds are processor time and include the objective; runs
are made in the order of the seeds.

`--check` compares the compiled functions with those of ioh, which must be installed, on 1,000 random points.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from contest import STOPPED, Done, complete_runs, grid
from harness import commit, machine, seed
from knobless import fast
from knobless.families import Bernoulli
from parameterless_edas import parallel_run_cga, sig_cga, smart_restart_cga
from parameterless_problems import COUNT, FIRST, LARGEST, NOISE, PBO, PROBLEMS
from power import fill

ROOT = Path(__file__).parents[1]
RESULTS = ("nfev", "first", "seconds")
SLICE = 1000  # iterations between two checks whether the optimum was evaluated


# The searches: an objective, a budget and a seed. They end when the objective has recorded the optimum.


def baseline(algorithm: Any, fun: fast.Objective, budget: int, number: int) -> None:
    algorithm(fun.address, fun.ints, fun.reals, fun.n, budget, np.array([number], dtype=np.uint64))


def loop(recipe: Callable[[Any], Any], fun: fast.Objective, budget: int, number: int) -> None:
    run = fast.Run(fun, recipe(Bernoulli(fun.n)), number)
    while not fun.ints[FIRST] and run.nfev < budget:
        run.go(budget, iterations=SLICE)


def ours(fun: fast.Objective, budget: int, number: int, **facts: Any) -> None:
    if fun.reals[0] == 0.0:
        kl.minimize(fun, kl.Binary(fun.n), budget=budget, target=0.0, rng=number, **facts)
        return

    def observed(x: Any) -> float:  # not compiled, because the search for noisy objectives is not
        value = float(fun(x))
        if fun.ints[FIRST]:
            raise Done
        return value

    with suppress(Done):
        kl.minimize(observed, kl.Binary(fun.n), budget=budget, rng=number)


SEARCHES: dict[str, Callable[[fast.Objective, int, int], None]] = {
    "knobless": ours,
    "`deterministic=True`": partial(ours, deterministic=True),
    "PBIL-λ": partial(loop, kl.pbil_lambda),
    "PBIL-ε": partial(loop, kl.pbil_epsilon),
    "smart-restart cGA": partial(baseline, smart_restart_cga),
    "parallel-run cGA": partial(baseline, parallel_run_cga),
    "sig-cGA": partial(baseline, sig_cga),
}
PUBLISHED = {
    "F19 IsingRing": {"smart-restart cGA, published": "0/100", "partial-restart cgEA, published": "27,000 (100/100)"},
    "F20 IsingTorus": {
        "smart-restart cGA, published": "1,720,000 (96/100)",
        "partial-restart cgEA, published": "1,670,000 (86/100)",
    },
    "F22 independent set": {
        "smart-restart cGA, published": "242,000,000 (4/100)",
        "partial-restart cgEA, published": "29,000,000 (29/100)",
    },
}


# Runs.


class Task(NamedTuple):
    """What identifies a run."""

    problem: str
    budget: int
    search: str
    seed: int


def run(task: Task) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    noise, number = (int(word) for word in seed("parameterless", task.problem, task.seed).generate_state(2))
    fun = PROBLEMS[task.problem].objective(noise)
    began = time.process_time()
    SEARCHES[task.search](fun, task.budget, number)
    seconds = time.process_time() - began
    return {**task._asdict(), "nfev": fun.ints[COUNT], "first": fun.ints[FIRST], "seconds": f"{seconds:.4f}"}


def tasks_of(options: argparse.Namespace) -> list[Task]:
    return [
        Task(name, 1_000_000 if name in NOISE else 10_000_000, search, number)
        for number in range(options.seeds)
        for name in options.problems
        for search in options.searches
        if name in PBO or search != "`deterministic=True`"
    ]


def complete(options: argparse.Namespace) -> list[dict[str, str]]:
    """Make the runs that are not recorded yet; return all rows."""
    return complete_runs(options.out / "runs.csv", tasks_of(options), RESULTS, run, options.jobs, options.anew)


# Tables.


def expected(rows: Sequence[Mapping[str, str]]) -> str:
    """Return all evaluations divided by the number of runs that met the optimum, and that number."""
    met = [row for row in rows if row["first"] != "0"]
    spent = sum(int(row["first"]) or int(row["nfev"]) for row in rows)
    share = f"{len(met)}/{len(rows)}"
    return f"{round(spent / len(met)):,} ({share})" if met else share


def table(names: Iterable[str], rows: Iterable[Mapping[str, str]]) -> str:
    """Return one line per search, with the microseconds per evaluation, and one column per problem."""
    found: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
    for row in rows:
        found[row["search"], row["problem"]].append(row)
    names = list(names)
    lines = [["", *names, "µs per evaluation"]]
    for search in SEARCHES:
        each = [found[search, name] for name in names]
        if any(each):
            seconds = [float(row["seconds"]) / int(row["nfev"]) for cell in each for row in cell]
            cells = [expected(cell) if cell else "–" for cell in each]
            lines.append([search, *cells, f"{1e6 * float(np.median(seconds)):.2g}"])
    for method in dict.fromkeys(method for name in names for method in PUBLISHED.get(name, {})):
        lines.append([method, *(PUBLISHED[name][method] for name in names), ""])
    return grid(lines)


def write(options: argparse.Namespace, rows: Sequence[Mapping[str, str]]) -> None:
    tables = {"noisy-functions": table(NOISE, rows), "pbo-functions": table(PBO, rows)}
    if options.page.exists():
        fill(options.page, **tables)
    what = {"command": "python benchmarks/parameterless.py", "commit": commit(), **machine()}
    (options.out / "meta.json").write_text(json.dumps(what, indent=1) + "\n", encoding="utf-8")
    print("\n\n".join(tables.values()))


def check(points: int = 1000) -> None:
    """Compare the functions with those of ioh on random points of random density."""
    import ioh

    for name, problem in PBO.items():
        fun, theirs = problem.objective(0), ioh.get_problem(int(name[1:3]), 1, problem.n, ioh.ProblemClass.PBO)
        rng = np.random.default_rng(0)
        for _ in range(points):
            x = (rng.random(problem.n) < rng.random()).astype(np.int8)
            if LARGEST[name] - fun(x) != theirs(x.tolist()):
                raise SystemExit(f"{name}: expected {theirs(x.tolist())} at {x}, got {LARGEST[name] - fun(x)}")
        print(f"{name}: equal on {points:,} points")


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=[*PROBLEMS], metavar="NAME")
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=[*SEARCHES], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=25, help="runs of each search on each problem")
    parser.add_argument("--anew", action="store_true", help="repeat runs that are recorded")
    parser.add_argument("--check", action="store_true", help="only compare the functions with ioh's")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "peers" / "parameterless")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "peers" / "parameterless" / "table.md")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    options = asked()
    if options.check:
        check()
    else:
        write(options, complete(options))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(STOPPED) from None
