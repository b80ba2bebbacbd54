"""Compare ways to handle the constraints of multi-dimensional knapsacks, in knobless and in the GA of pymoo.

    python benchmarks/constraints.py run --data FOLDER [--seeds 10] [--jobs 2] [--out docs/peers/constraints]
                                         [--methods constraints ga-repair …] [--instances weish23 …]
    python benchmarks/constraints.py table [--out docs/peers/constraints]

FOLDER contains the OR-Library and SAC-94 knapsacks in `orlib_mknap` and BEST_KNOWN.json. A run has at most 20,000
evaluations and ends at the optimum; its best feasible value is recorded at 5,000 and at 20,000. Finished runs are added
to runs.csv at once, and the same command resumes from there.

The search was designed on weish03 to weish15 (odd numbers), pb1, pb5, pet3, weing1, weing3 and random instances, which
are not in the table. weish01, pet7, sento1 and weish29 were looked at during the design, and are marked.

The GA has a population of 100, uniform tournament selection, two-point crossover and bit-flip mutation, the defaults of
pymoo for bits, and is restarted when it finds no new point. Its repair is that of knobless: items are dropped in random
order until the point is feasible, and others are added in random order as long as it stays feasible.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from contest import carry_out, grid
from harness import Table, commit, machine, read_csv
from instances import knapsacks
from knobless.core.repair import Repair

BUDGETS = (5_000, 20_000)
SAC94 = (
    "hp1",
    "pb7",
    "pet5",
    "pet7",
    "sento1",
    "weing5",
    "weing7",
    "weish01",
    *(f"weish{i}" for i in range(17, 30, 2)),
)
INSTANCES = (*SAC94, *(f"mknap1#{i}" for i in range(1, 8)))
SEEN = ("weish01", "pet7", "sento1", "weish29")
COLUMNS = ("instance", "method", "seed")
RESULTS = ("n", "nfev", "checks", *(f"gap_{budget}" for budget in BUDGETS))


class Knapsack(NamedTuple):
    """A multi-dimensional knapsack: maximize `profit @ x` with `weight @ x <= capacity`."""

    profit: Any
    weight: Any
    capacity: Any
    best: float

    def value(self, x: Any) -> float:
        return float(self.profit @ x)

    def excess(self, x: Any) -> float:
        """Return the largest excess weight, relative to the capacity."""
        return float(((self.weight @ x - self.capacity) / self.capacity).max())

    def violation(self, x: Any) -> float:
        return float((np.maximum(self.weight @ x - self.capacity, 0.0) / self.capacity).sum())


def read(data: Path, name: str) -> Knapsack:
    """Read an instance: items, knapsacks and the optimum, profits, weights by knapsack, capacities."""
    folder = data / "orlib_mknap"
    if name in SAC94:
        n, m, best, *numbers = map(float, (folder / "sac94" / f"{name}.dat").read_text().split())
    else:
        _, *rest = map(float, (folder / "mknap1.txt").read_text().split())
        for _ in range(int(name.partition("#")[2])):
            n, m, best = rest[:3]
            size = 3 + int(n) + int(n) * int(m) + int(m)
            numbers, rest = rest[3:size], rest[size:]
    n, m = int(n), int(m)
    weight = np.reshape(numbers[n : n + n * m], (m, n))
    return Knapsack(np.array(numbers[:n]), weight, np.array(numbers[n + n * m : n + n * m + m]), best)


class DoneError(Exception):
    """The run is over."""


class Counted:
    """The objective of a run: counts evaluations and keeps the best feasible value at each budget."""

    def __init__(self, knapsack: Knapsack) -> None:
        self.knapsack, self.nfev, self.best, self.checks = knapsack, 0, 0.0, 0
        self.at: dict[int, float] = {}

    def evaluated(self, x: Any, feasible: bool) -> float:
        value = self.knapsack.value(x)
        self.nfev += 1
        self.best = max(self.best, value) if feasible else self.best
        if self.nfev in BUDGETS:
            self.at[self.nfev] = self.best
        if self.best >= self.knapsack.best * (1.0 - 1e-12) or self.nfev == BUDGETS[-1]:
            raise DoneError
        return value

    def gap(self, budget: int) -> float:
        return 100.0 * (1.0 - self.at.get(budget, self.best) / self.knapsack.best)


# knobless.


def ours(fun: Callable[[Any], Any], run: Counted, seed: int, **options: Any) -> None:
    """Ask and tell until the run is over."""
    opt = kl.Optimizer(kl.Binary(len(run.knapsack.profit)), rng=seed, maximize=True, **options)
    try:
        while not opt.exhausted:
            batch = opt.ask()
            opt.tell(batch, [fun(candidate.x) for candidate in batch])
    finally:
        run.checks = 0 if opt.run.feasibility is None else opt.run.feasibility.checks


def constraints(run: Counted, seed: int) -> None:
    ours(lambda x: run.evaluated(x, True), run, seed, constraints=run.knapsack.excess)


def pair(run: Counted, seed: int) -> None:
    def fun(x: Any) -> kl.Constrained:
        violation = run.knapsack.violation(x)
        return kl.Constrained(run.evaluated(x, not violation), violation)

    ours(fun, run, seed)


def penalty(run: Counted, seed: int) -> None:
    cost, _ = knapsacks(run.knapsack.profit, run.knapsack.weight, run.knapsack.capacity)

    def fun(x: Any) -> float:
        run.evaluated(x, not run.knapsack.violation(x))
        return -cost(x)

    ours(fun, run, seed)


# pymoo.


def ga(how: str, run: Counted, seed: int) -> None:
    """Restart the GA of pymoo until the run is over."""
    from pymoo.algorithms.soo.nonconvex.ga import GA
    from pymoo.core.evaluator import Evaluator
    from pymoo.core.problem import Problem
    from pymoo.core.repair import Repair as Operator
    from pymoo.core.termination import NoTermination
    from pymoo.operators.crossover.pntx import TwoPointCrossover
    from pymoo.operators.mutation.bitflip import BitflipMutation
    from pymoo.operators.sampling.rnd import BinaryRandomSampling
    from pymoo.problems.static import StaticProblem

    knapsack, n, rng = run.knapsack, len(run.knapsack.profit), np.random.default_rng(seed)
    cost, _ = knapsacks(knapsack.profit, knapsack.weight, knapsack.capacity)
    repair = Repair(kl.Space.of(kl.Binary(n)).family, np.zeros(n, np.int8), directed=True)

    def feasible(x: Any) -> bool:
        run.checks += 1
        return knapsack.excess(x) <= 0.0

    class Repaired(Operator):  # type: ignore[misc]
        def _do(self, problem: Any, X: Any, **_: Any) -> Any:
            rows = []
            for x in np.asarray(X).astype(np.int8):
                change = repair.fill if feasible(x) else repair
                rows.append(change(x, feasible, int(rng.integers(2**63))))
            return np.array(rows).astype(bool)

    while True:
        options = {"repair": Repaired()} if how == "repair" else {}
        algorithm = GA(
            pop_size=100,
            sampling=BinaryRandomSampling(),
            crossover=TwoPointCrossover(),
            mutation=BitflipMutation(),
            **options,
        )
        problem = Problem(n_var=n, n_obj=1, n_ieq_constr=int(how == "deb"), xl=0, xu=1, vtype=bool)
        algorithm.setup(problem, termination=NoTermination(), seed=int(rng.integers(2**31)))
        while (population := algorithm.ask()) is not None and len(population):
            points = population.get("X").astype(np.int8)
            violations = np.array([knapsack.violation(x) for x in points])
            values = np.array([run.evaluated(x, not v) for x, v in zip(points, violations, strict=True)])
            told = {"F": -values[:, None]}
            if how == "penalty":
                told = {"F": np.array([cost(x) for x in points])[:, None]}
            elif how == "deb":
                told["G"] = violations[:, None]
            Evaluator().eval(StaticProblem(problem, **told), population)
            algorithm.tell(infills=population)


METHODS: dict[str, tuple[str, Callable[[Counted, int], None]]] = {
    "constraints": ("knobless, `constraints=`", constraints),
    "pair": ("knobless, `kl.Constrained`", pair),
    "penalty": ("knobless, penalty", penalty),
    "ga-repair": ("GA, repair", partial(ga, "repair")),
    "ga-deb": ("GA, feasible first", partial(ga, "deb")),
    "ga-penalty": ("GA, penalty", partial(ga, "penalty")),
}


def measured(task: tuple[Path, str, str, int]) -> dict[str, Any]:
    """Make one run."""
    data, name, method, seed = task
    warnings.simplefilter("ignore")
    run = Counted(read(data, name))
    with suppress(DoneError):
        METHODS[method][1](run, seed)
    gaps = {f"gap_{budget}": f"{run.gap(budget):.4f}" for budget in BUDGETS}
    facts = {"instance": name, "method": method, "seed": seed, "n": len(run.knapsack.profit)}
    return facts | {"nfev": run.nfev, "checks": run.checks} | gaps


def medians(rows: list[dict[str, str]]) -> dict[tuple[str, str, int], float]:
    """Return the median gap by instance, method and budget."""
    each = defaultdict(list)
    for row in rows:
        for budget in BUDGETS:
            each[row["instance"], row["method"], budget].append(float(row[f"gap_{budget}"]))
    return {key: statistics.median(gaps) for key, gaps in each.items()}


def table(rows: list[dict[str, str]]) -> str:
    """Return the table in Markdown."""
    gap, present = medians(rows), [each for each in METHODS if any(row["method"] == each for row in rows)]
    names = [name for name in INSTANCES if all((name, method, BUDGETS[0]) in gap for method in present)]
    size = {row["instance"]: row["n"] for row in rows}
    parts = []
    for budget in BUDGETS:
        lines = [["instance", "n", *(METHODS[method][0] for method in present)]]
        for name in names:
            shown = name + (" (seen)" if name in SEEN else "")
            lines.append([shown, size[name], *(f"{gap[name, method, budget]:.3f}" for method in present)])
        fresh = [name for name in names if name not in SEEN]
        for title, some in (("mean, unseen", fresh), ("mean, all", names)):
            each = (statistics.mean(gap[name, method, budget] for name in some) for method in present)
            lines.append([title, "", *(f"{value:.3f}" for value in each)])
        parts.append(f"## {budget:,} evaluations\n\n{grid(lines)}\n")
    checks = []
    for method in present:
        own = [row for row in rows if row["method"] == method]
        total = sum(int(row["checks"]) for row in own) / sum(int(row["nfev"]) for row in own)
        checks.append([METHODS[method][0], str(len({row["seed"] for row in own})), f"{total:.1f}"])
    counted = grid([["method", "runs per instance", "checks of constraints per evaluation"], *checks])
    head = (
        "# Constraints of knapsacks\n\nGap to the optimum in percent, medians over seeds. Instances marked as seen "
        "were looked at when the search was designed.\n"
    )
    return "\n".join([head, *parts, f"## Runs and checks\n\n{counted}\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/peers/constraints"))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--instances", nargs="+", choices=INSTANCES, default=list(INSTANCES))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    runs = Table(arguments.out / "runs.csv", COLUMNS, RESULTS)
    if arguments.command == "run":
        if arguments.data is None:
            parser.error("--data: expected the folder of the instances")
        each = [
            (arguments.data.absolute(), name, method, seed)
            for seed in range(arguments.seeds)
            for name in arguments.instances
            for method in arguments.methods
        ]
        tasks = [task for task in each if runs.get((task[1], task[2], str(task[3]))) is None]
        for error in carry_out(tasks, measured, runs.add, arguments.jobs):
            print(error)
        meta = {"command": "python benchmarks/constraints.py run --data FOLDER", "commit": commit()} | machine()
        meta["pymoo"] = version("pymoo")
        (arguments.out / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "table.md").write_text(table(read_csv(arguments.out / "runs.csv")), encoding="utf-8")


if __name__ == "__main__":
    main()
