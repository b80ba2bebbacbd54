"""Compare the hypervolume of runs with several objectives, in knobless, Optuna and pymoo.

    NASBENCH=FOLDER python benchmarks/objectives.py run [--tune] [--jobs 2] [--seeds 5] [--problems NAME ...]
    python benchmarks/objectives.py table

FOLDER has the table of NAS-Bench-201; pymoo, coco-experiment and torch are needed. The problems are those of
`objectives_problems.py`: with --tune those on which the search was designed, otherwise others. Each run is measured
after 50, 100, 200 and 1,000 evaluations, on some problems also after 10,000, and Optuna, whose samplers take longer and
longer, only up to 100; its GPSampler, which takes seconds per trial, up to 50, with three seeds and on problems of few
variables. Finished runs are added to runs.csv at once, and the same command resumes.

NSGA-II and SMS-EMOA of pymoo have a population of 100 and the default operators for the variables: two-point crossover
and bit flips for bits, simulated binary crossover and polynomial mutation for floats, mixed ones otherwise. As 100 is
too many for runs of 50 to 200 evaluations, NSGA-II also runs with 20. Optuna has its defaults. All get constraints as
such. knobless gets the names of the objectives, and that they are deterministic.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from contest import complete_runs, grid, run_command
from harness import commit, machine, read_csv
from knobless.core.pareto import hypervolume
from objectives_problems import LONG, PROBLEMS, SMALL, TUNED, Problem

BUDGETS = (50, 100, 200, 1000, 10_000)
FEWEST, FEW, MANY = (
    50,
    100,
    1000,
)  # evaluations of GPSampler, of Optuna's others, and of all others except on some problems
SLOW, MOST_SLOW = ("gp",), 3  # methods that take long, and their seeds at most
LEAST_PAIRS = 5  # problems of a test
RESULTS = (*(f"hv_{budget}" for budget in BUDGETS), "seconds")


class Task(NamedTuple):
    """A run."""

    problem: str
    method: str
    seed: int


class DoneError(Exception):
    """The run is over."""


class Recorded:
    """The objectives of a run: records the values of feasible points."""

    def __init__(self, problem: Problem, budget: int) -> None:
        self.problem, self.budget, self.values = problem, budget, []

    def __call__(self, x: Any) -> tuple[tuple[float, ...], float]:
        """Return the objectives and the violation."""
        if len(self.values) == self.budget:
            raise DoneError
        violation = 0.0 if self.problem.violation is None else self.problem.violation(x)
        values = self.problem.fun(x)
        self.values.append((np.inf,) * self.problem.m if violation > 0 else values)
        return values, violation


def columns(space: Any) -> list[tuple[str, Any, int]]:
    """Return the arrays of variables of a space, each with a name and its length."""
    return [(each.name, each.variable, each.variable.n or 1) for each in kl.Space.of(space).columns()]


def point(space: Any, value: Callable[[str, Any], Any]) -> Any:
    """Return the point whose single variables have these values, by name."""
    made = {}
    for name, each, n in columns(space):
        values = [value(f"{name}{i}", each) for i in range(n)]
        array = values if isinstance(each, kl.Choice) else np.array(values)
        made[name] = values[0] if each.n is None else array
    return made if isinstance(space, kl.Space) else next(iter(made.values()))


# knobless.


def ours(run: Recorded, seed: int) -> None:
    problem = run.problem

    def fun(x: Any) -> Any:
        values, violation = run(x)
        return values if problem.violation is None else kl.Constrained(values, violation)

    names = [f"f{i}" for i in range(problem.m)]
    kl.minimize(fun, problem.space, budget=run.budget, objectives=names, rng=seed, deterministic=True)


# Optuna.


def optuna(name: str) -> Callable[[Recorded, int], None]:
    def search(run: Recorded, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        violations: dict[int, float] = {}

        def violation(trial: Any) -> tuple[float]:
            return (violations[trial.number],)

        options = {} if run.problem.violation is None else {"constraints_func": violation}
        sampler = getattr(optuna.samplers, name)(seed=seed, **options)
        study = optuna.create_study(directions=["minimize"] * run.problem.m, sampler=sampler)

        def fun(trial: Any) -> tuple[float, ...]:
            def value(label: str, each: Any) -> Any:
                if isinstance(each, kl.Binary):
                    return trial.suggest_categorical(label, [0, 1])
                if isinstance(each, kl.Choice):
                    return trial.suggest_categorical(label, list(each.options))
                suggest = trial.suggest_int if isinstance(each, kl.Integer) else trial.suggest_float
                return suggest(label, each.low, each.high)

            values, violations[trial.number] = run(point(run.problem.space, value))
            return values

        study.optimize(fun, n_trials=run.budget)

    return search


# pymoo.


def pymoo(name: str, size: int = 100) -> Callable[[Recorded, int], None]:
    def search(run: Recorded, seed: int) -> None:
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.algorithms.moo.sms import SMSEMOA
        from pymoo.core import variable as v
        from pymoo.core.mixed import MixedVariableDuplicateElimination, MixedVariableMating, MixedVariableSampling
        from pymoo.core.problem import ElementwiseProblem
        from pymoo.operators.crossover.pntx import TwoPointCrossover
        from pymoo.operators.mutation.bitflip import BitflipMutation
        from pymoo.operators.sampling.rnd import BinaryRandomSampling
        from pymoo.optimize import minimize

        space, problem = run.problem.space, run.problem
        options: dict[str, Any] = {}
        if isinstance(space, kl.Binary):
            stated = {"n_var": space.n, "xl": 0, "xu": 1, "vtype": bool}
            options = {
                "sampling": BinaryRandomSampling(),
                "crossover": TwoPointCrossover(),
                "mutation": BitflipMutation(),
            }
        elif isinstance(space, kl.Float):
            stated = {"n_var": space.n, "xl": space.low, "xu": space.high}
        else:
            made = {kl.Binary: lambda each: v.Binary(), kl.Choice: lambda each: v.Choice(options=list(each.options))}
            made |= {kl.Float: lambda each: v.Real(bounds=(each.low, each.high))}
            made |= {kl.Integer: lambda each: v.Integer(bounds=(each.low, each.high))}
            each_of = columns(space)
            stated = {"vars": {f"{name}{i}": made[type(each)](each) for name, each, n in each_of for i in range(n)}}
            fresh = MixedVariableDuplicateElimination()
            options = {"sampling": MixedVariableSampling(), "mating": MixedVariableMating(eliminate_duplicates=fresh)}
            options["eliminate_duplicates"] = fresh

        class Evaluated(ElementwiseProblem):
            def __init__(self) -> None:
                super().__init__(n_obj=problem.m, n_ieq_constr=int(problem.violation is not None), **stated)

            def _evaluate(self, x: Any, out: Any, *args: Any, **kwargs: Any) -> None:
                if isinstance(x, dict):
                    x = point(space, lambda label, each: x[label])
                elif isinstance(space, kl.Binary):
                    x = x.astype(np.int8)
                out["F"], violation = run(x)
                if problem.violation is not None:
                    out["G"] = [violation]

        algorithm = {"NSGA2": NSGA2, "SMSEMOA": SMSEMOA}[name](pop_size=size, **options)
        minimize(Evaluated(), algorithm, ("n_eval", run.budget), seed=seed)

    return search


METHODS: dict[str, tuple[str, int, Callable[[Recorded, int], None]]] = {
    "knobless": ("knobless", BUDGETS[-1], ours),
    "nsga2": ("NSGA-II (pymoo)", BUDGETS[-1], pymoo("NSGA2")),
    "nsga2-20": ("NSGA-II 20 (pymoo)", BUDGETS[-1], pymoo("NSGA2", 20)),
    "sms": ("SMS-EMOA (pymoo)", BUDGETS[-1], pymoo("SMSEMOA")),
    "tpe": ("TPE (Optuna)", FEW, optuna("TPESampler")),
    "optuna-nsga2": ("NSGA-II (Optuna)", FEW, optuna("NSGAIISampler")),
    "gp": ("GP (Optuna)", FEWEST, optuna("GPSampler")),
}


def measured(task: Task) -> dict[str, Any]:
    """Make one run."""
    warnings.simplefilter("ignore")
    problem = (PROBLEMS | TUNED)[task.problem]()
    _, budget, search = METHODS[task.method]
    budget = min(budget, BUDGETS[-1] if task.problem in LONG else MANY)
    run, start = Recorded(problem, budget), time.perf_counter()
    with suppress(DoneError):
        search(run, task.seed)
    seconds, values, reference = time.perf_counter() - start, np.array(run.values), problem.reference
    found = {f"hv_{b}": f"{hypervolume(values[:b], reference):.6g}" if b <= budget else "" for b in BUDGETS}
    return task._asdict() | found | {"seconds": f"{seconds:.1f}"}


# The table.


def cells(rows: list[dict[str, str]]) -> dict[tuple[str, int], dict[str, list[float]]]:
    """Return the hypervolumes by problem and budget, then by method, in the order of the seeds."""
    found: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        for budget in BUDGETS:
            if row[f"hv_{budget}"]:
                found[row["problem"], budget][row["method"]].append(float(row[f"hv_{budget}"]))
    return found


def standing(cell: dict[str, list[float]]) -> str:
    """Return "first", "level", "behind" or "last" for knobless, by medians and by whether the runs overlap."""
    own = cell["knobless"]
    medians = {method: float(np.median(values)) for method, values in cell.items()}
    rival = max((m for m in medians if m != "knobless"), key=medians.__getitem__)
    if medians["knobless"] >= medians[rival]:
        return "first"
    if max(own) >= min(cell[rival]):  # of three runs each, a rank-sum test at 5 % is the same
        return "level"
    return "last" if medians["knobless"] == min(medians.values()) else "behind"


def compared(each: dict[tuple[str, int], dict[str, list[float]]], largest: dict[str, float]) -> list[list[str]]:
    """Return a table of Wilcoxon signed-rank tests over the problems, by evaluations and method."""
    from scipy.stats import wilcoxon

    lines = [["evaluations", "other", "problems", "knobless larger", "equal", "smaller", "p"]]
    for budget in BUDGETS:
        for method in METHODS:
            pairs = [
                (
                    float(np.median(cell["knobless"])) / largest[problem],
                    float(np.median(cell[method])) / largest[problem],
                )
                for (problem, at), cell in each.items()
                if at == budget and method != "knobless" and {"knobless", method} <= cell.keys()
            ]
            if len(pairs) < LEAST_PAIRS:
                continue
            own, other = np.array(pairs).T
            p = wilcoxon(own, other).pvalue if (own != other).any() else 1.0
            counts = [str(int(n.sum())) for n in (own > other, own == other, own < other)]
            lines.append([f"{budget:,}", METHODS[method][0], str(len(pairs)), *counts, f"{p:.2g}"])
    return lines


def table(rows: list[dict[str, str]], problems: list[str]) -> str:
    """Return the tables in Markdown: medians relative to the largest hypervolume of the problem, and the tests."""
    each, count = cells(rows), defaultdict(int)
    lines = [["problem", "evaluations", *(METHODS[method][0] for method in METHODS), "knobless is"]]
    largest = {p: max(v for (q, _), cell in each.items() if q == p for o in cell.values() for v in o) or 1.0
               for p in {p for p, _ in each}}  # fmt: skip
    for problem in problems:
        for budget in BUDGETS:
            cell = each.get((problem, budget), {})
            if "knobless" not in cell or len(cell) < 2:
                continue
            place = standing(cell)
            count[place] += 1
            shown = (f"{np.median(cell[m]) / largest[problem]:.3f}" if m in cell else "" for m in METHODS)
            lines.append([problem, f"{budget:,}", *shown, place])
    total, good = sum(count.values()), count["first"] + count["level"]
    runs = " or ".join(map(str, sorted({len(values) for cell in each.values() for values in cell.values()})))
    return f"""# Several objectives

Medians of {runs} runs of the hypervolume, relative to the largest one of the problem; larger is better. *first*: no
other method has a larger median. *level*: the best other one has, but not all of its runs are better than all of
knobless. *behind* and *last*: they are.

Here knobless is first in {count["first"]} of {total} cells, level in {count["level"]}, behind in {count["behind"]} and
last in {count["last"]}: first or level in {100 * good / max(total, 1):.0f} %.

{grid(lines)}

Wilcoxon signed-rank tests over the problems, of these medians; two-sided, without a correction for several tests.

{grid(compared(each, largest))}
"""


def write(options: argparse.Namespace) -> None:
    names = [*(TUNED if options.tune else PROBLEMS)]
    rows = read_csv(options.out / "runs.csv")
    (options.out / "table.md").write_text(table(rows, names), encoding="utf-8")


def runs(options: argparse.Namespace) -> None:
    names = options.problems or [*(TUNED if options.tune else PROBLEMS)]
    each = [Task(p, m, s) for s in range(options.seeds) for p in names for m in options.methods]
    # The methods that take long come last.
    tasks = [task for task in each if task.method not in SLOW]
    tasks += [t for t in each if t.method in SLOW and t.seed < MOST_SLOW and t.problem in SMALL]
    complete_runs(options.out / "runs.csv", tasks, RESULTS, measured, options.jobs, options.anew)
    meta = {"command": "python benchmarks/objectives.py run", "commit": commit()} | machine()
    meta |= {name: version(name) for name in ("pymoo", "optuna", "coco-experiment")}
    (options.out / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    write(options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--problems", nargs="+", choices=[*PROBLEMS, *TUNED])
    parser.add_argument("--methods", nargs="+", choices=[*METHODS], default=[*METHODS])
    run_command(parser, "objectives", {"run": runs, "table": write})


if __name__ == "__main__":
    main()
