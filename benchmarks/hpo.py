"""Hyperparameter optimization with few evaluations: `minimize` and `KnoblessSampler`, TPE and
GPSampler of Optuna, SMAC3, HEBO, and random search.

    python benchmarks/hpo.py run [--tune] [--methods tpe …] [--settings single …] [--problems svc …]
    python benchmarks/hpo.py table [--tune] [--each]
    python benchmarks/hpo.py cost

Needs scikit-learn; the methods need optuna, torch (gp), smac and HEBO, some problems LightGBM and
the folder `--data`. `run` makes the runs that are not recorded yet; `--anew` repeats them. `--tune`
takes the problems on which rules are chosen. The others, which have other data and other models,
are for reporting and are run when the rules are fixed.

Three settings: a single evaluation at a time; rounds of 8, proposed before any of their values is
known; and single evaluations with noise. Without noise, a run has the best value of its first 20,
50, 100 and 200 evaluations. With noise, it has the true value of the point that it returns: that
of the lowest single value, the incumbent of SMAC3, and `result.x` of runs of as many evaluations.
SMAC3, whose first points depend on the number of evaluations, is run anew for each number too.
Whether there is noise is told to those that have to know: `minimize` without noise
(`deterministic=True`), GPSampler and SMAC3.

The table has the mean regret: 0 is the best value that is known, and 1 the median of random search
with as many evaluations, computed from one large sample of random points. It is at most 5. A run
that has found no better than that median counts as one of the failures. The own time is that of the
method without the objective, in one thread. `cost` measures it for two problems, all methods in
turns in one process.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from contest import complete_runs, grid, run_command
from harness import commit, machine, read_csv
from hpo_problems import NOISY, RUN_BEFORE, Folder, Problem, Values, function, levy, problems

BUDGETS = (20, 50, 100, 200)
MOST_REGRET = 5.0
RANDOM_POINTS = {"floats": 20_000, "noisy": 400}  # of other groups:
MOST_RANDOM_POINTS = 3_000
UNSEEN = 10**9  # numbers of noise that no run sees, from here on
RESAMPLES = 4_000  # of random search under noise
PACKAGES = ("optuna", "torch", "smac", "HEBO", "scikit-learn", "lightgbm")


class Setting(NamedTuple):
    """How evaluations are asked for, and whether they have noise."""

    title: str
    batch: int = 1
    noisy: bool = False


SETTINGS = {
    "single": Setting("one evaluation at a time"),
    "rounds": Setting("rounds of 8", batch=8),
    "noisy": Setting("noise, one evaluation at a time", noisy=True),
}


class Task(NamedTuple):
    """A run."""

    setting: str
    problem: str
    method: str
    seed: int


class Run:
    """The objective of one run: records points and values, and adds up its own time."""

    def __init__(self, problem: Problem, setting: Setting, seed: int, budgets: Sequence[int]) -> None:
        self.problem, self.setting, self.seed, self.budgets = problem, setting, seed, budgets
        self.points: list[Values] = []
        self.values: list[float] = []
        self.calls, self.seconds = 0, 0.0
        self.results: dict[int, float] = {}  # by number of evaluations

    def __call__(self, values: Values) -> float:
        start = time.process_time()
        point = dict(values)
        if self.setting.noisy:
            value = self.problem.noisy(point, 10_000 * self.seed + self.calls)
        else:
            value = self.problem.fun(point)
        self.calls += 1
        self.points.append(point)
        self.values.append(math.inf if math.isnan(value) else value)
        self.seconds += time.process_time() - start
        return value

    def rounds(self, budget: int) -> Iterator[int]:
        """Yield the sizes of the rounds."""
        while len(self.values) < budget:
            yield min(self.setting.batch, budget - len(self.values))

    def record(self, budget: int, point: Values | None = None) -> None:
        """Record the result at a number of evaluations: that of a point, or of the best one."""
        start = time.process_time()
        index = int(np.argmin(self.values[:budget]))
        if self.setting.noisy:
            self.results[budget] = self.problem.mean(self.points[index] if point is None else point)
        else:
            self.results[budget] = self.values[index]
        self.seconds += time.process_time() - start

    def restart(self) -> None:
        """Begin again, with no points."""
        self.points, self.values = [], []


# The methods. Each makes a run and records its results.


def knobless(f: Run) -> None:
    minimize = partial(kl.minimize, f, f.problem.space, rng=f.seed)
    if f.setting.noisy:
        for budget in f.budgets:
            f.restart()
            f.record(budget, dict(minimize(budget=budget).x))
    else:
        minimize(budget=f.budgets[-1], batch=f.setting.batch, deterministic=True)
        for budget in f.budgets:
            f.record(budget)


def with_optuna(sampler: Any, f: Run) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def suggested(trial: Any) -> Values:
        values: Values = {}
        for parameter in f.problem.parameters:
            name, low, high = parameter.name, parameter.low, parameter.high
            if not parameter.is_active(values):
                continue
            if parameter.options:
                options = parameter.options
                values[name] = options[trial.suggest_categorical(name, range(len(options)))]
            elif parameter.integer:
                values[name] = trial.suggest_int(name, int(low), int(high), log=parameter.log)
            else:
                values[name] = trial.suggest_float(name, low, high, log=parameter.log)
        return values

    study = optuna.create_study(sampler=sampler)
    for size in f.rounds(f.budgets[-1]):
        trials = [study.ask() for _ in range(size)]
        points = [suggested(trial) for trial in trials]
        for trial, point in zip(trials, points, strict=True):
            value = f(point)
            if math.isnan(value):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, value)
    for budget in f.budgets:
        f.record(budget)


def sampler(f: Run) -> None:
    from knobless.optuna import KnoblessSampler

    with_optuna(KnoblessSampler(seed=f.seed), f)


def tpe(f: Run) -> None:
    import optuna

    parallel = f.setting.batch > 1
    with_optuna(optuna.samplers.TPESampler(seed=f.seed, constant_liar=parallel), f)


def gp(f: Run) -> None:
    import optuna
    import torch

    torch.set_num_threads(1)
    deterministic = not f.setting.noisy
    with_optuna(optuna.samplers.GPSampler(seed=f.seed, deterministic_objective=deterministic), f)


def smac(f: Run) -> None:
    for budget in f.budgets:
        f.restart()
        with tempfile.TemporaryDirectory() as folder:
            smac_run(f, budget, Path(folder))


def smac_run(f: Run, budget: int, folder: Path) -> None:
    import ConfigSpace
    from smac import HyperparameterOptimizationFacade, Scenario
    from smac.runhistory import StatusType
    from smac.runhistory.dataclasses import TrialValue

    space = ConfigSpace.ConfigurationSpace(seed=f.seed)
    by_name = {parameter.name: parameter for parameter in f.problem.parameters}
    for name, parameter in by_name.items():
        low, high = parameter.low, parameter.high
        if parameter.options:
            space.add(ConfigSpace.Categorical(name, list(range(len(parameter.options)))))
        elif parameter.integer:
            space.add(ConfigSpace.Integer(name, (int(low), int(high)), log=parameter.log))
        else:
            space.add(ConfigSpace.Float(name, (low, high), log=parameter.log))
    for name, parameter in by_name.items():
        if parameter.when:
            parent, needed = parameter.when
            options = [by_name[parent].options.index(option) for option in needed]
            space.add(ConfigSpace.InCondition(space[name], space[parent], options))

    def values_of(configuration: Any) -> Values:
        values: Values = {}
        for name, value in dict(configuration).items():
            parameter = by_name[name]
            if parameter.options:
                values[name] = parameter.options[int(value)]
            else:
                values[name] = int(value) if parameter.integer else float(value)
        return values

    scenario = Scenario(
        space,
        output_directory=folder,
        deterministic=not f.setting.noisy,
        n_trials=budget,
        seed=f.seed,
    )
    facade = HyperparameterOptimizationFacade(scenario, lambda config, seed=0: 0.0, overwrite=True, logging_level=False)
    for size in f.rounds(budget):
        trials = [facade.ask() for _ in range(size)]
        for trial in trials:
            value = f(values_of(trial.config))
            if math.isnan(value):  # its forest needs numbers: the worst one so far
                finite = [known for known in f.values if known < math.inf]
                told = TrialValue(cost=max(finite, default=0.0), status=StatusType.CRASHED)
            else:
                told = TrialValue(cost=value)
            facade.tell(trial, told, save=False)
    incumbent = facade.intensifier.get_incumbent()
    f.record(budget, None if incumbent is None else values_of(incumbent))


def hebo(f: Run) -> None:
    import torch
    from hebo.design_space.design_space import DesignSpace
    from hebo.optimizers.hebo import HEBO

    torch.set_num_threads(1)
    torch.manual_seed(f.seed)
    np.random.seed(f.seed)  # noqa: NPY002 - it uses the global generator
    entries: list[dict[str, Any]] = []
    for parameter in f.problem.parameters:
        if parameter.options:
            categories = list(range(len(parameter.options)))
            entries.append({"name": parameter.name, "type": "cat", "categories": categories})
        else:
            kind = ("pow_int" if parameter.integer else "pow") if parameter.log else "num"
            kind = "int" if parameter.integer and not parameter.log else kind
            bounds = {"lb": parameter.low, "ub": parameter.high}
            entries.append({"name": parameter.name, "type": kind, **bounds})
    optimizer = HEBO(DesignSpace().parse(entries), scramble_seed=f.seed)
    for size in f.rounds(f.budgets[-1]):
        with contextlib.redirect_stdout(io.StringIO()):  # it prints where its fit fails
            rows = optimizer.suggest(n_suggestions=size)
        values = []
        for index in range(size):
            point: Values = {}
            for parameter in f.problem.parameters:  # it has no conditions
                value = rows[parameter.name].iloc[index]
                if parameter.options:
                    point[parameter.name] = parameter.options[int(value)]
                else:
                    point[parameter.name] = int(value) if parameter.integer else float(value)
            values.append(f(f.problem.active(point)))
        optimizer.observe_new_data(rows, np.array(values).reshape(-1, 1))
    for budget in f.budgets:
        f.record(budget)


def random(f: Run) -> None:
    rng = np.random.default_rng(f.seed)
    for size in f.rounds(f.budgets[-1]):
        for _ in range(size):
            f(f.problem.draw(rng))
    for budget in f.budgets:
        f.record(budget)


class Method(NamedTuple):
    """A method in the table, and the most evaluations of its runs."""

    title: str
    run: Callable[[Run], None]
    most: int = 200


METHODS = {
    "knobless": Method("knobless", knobless),
    "sampler": Method("knobless, `KnoblessSampler`", sampler),
    "tpe": Method("Optuna's TPE", tpe),
    "gp": Method("Optuna's GPSampler", gp, 100),
    "smac": Method("SMAC3", smac, 100),
    "hebo": Method("HEBO", hebo, 100),
    "random": Method("random search", random),
}
OURS = "knobless"


def budgets_of(method: str) -> tuple[int, ...]:
    return tuple(budget for budget in BUDGETS if budget <= METHODS[method].most)


def run_task(data: Path, tune: bool, most: int, task: Task) -> dict[str, Any]:
    """Make a run; return its results, and its own time per evaluation."""
    Folder.path = data
    budgets = tuple(budget for budget in budgets_of(task.method) if budget <= most)
    f = Run(problems(tune)[task.problem], SETTINGS[task.setting], task.seed, budgets)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        METHODS[task.method].run(f)
    own = time.process_time() - start - f.seconds
    results = {f"at {n}": f"{f.results[n]:.10g}" if n in f.results else "" for n in BUDGETS}
    return {**task._asdict(), **results, "ms": f"{1000.0 * own / f.calls:.2f}"}


# Random search, from one sample.


def baseline(problem: Problem, noisy: bool) -> dict[str, Any]:
    """Return the lowest true value of many random points, and what random search returns."""
    rng = np.random.default_rng(12345)
    kind = "noisy" if noisy else problem.group
    points = [problem.draw(rng) for _ in range(RANDOM_POINTS.get(kind, MOST_RANDOM_POINTS))]
    if noisy:
        seen = finite([problem.noisy(point, UNSEEN + i) for i, point in enumerate(points)])
        true = finite([problem.mean(point) for point in points])
    else:
        seen = true = finite([problem.fun(point) for point in points])
    medians = {}
    for n in BUDGETS:
        drawn = rng.integers(len(points), size=(RESAMPLES, n))
        returned = drawn[np.arange(RESAMPLES), seen[drawn].argmin(axis=1)]
        medians[str(n)] = float(np.median(true[returned]))
    return {"lowest": float(true.min()), "median": medians}


def finite(values: Sequence[float]) -> Any:
    return np.array([math.inf if math.isnan(value) else value for value in values])


def baselines(names: Sequence[str], noisy: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Return the baselines of problems by name, from a file if they are recorded there."""
    path = options.out / "baseline.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    half = problems(options.tune)
    for name in names:
        key = f"{name}, noisy" if noisy else name
        if key not in known:
            known[key] = baseline(half[name], noisy)
            path.write_text(json.dumps(known, indent=1) + "\n")
    return {name: known[f"{name}, noisy" if noisy else name] for name in names}


# Commands.


def tasks_of(options: argparse.Namespace) -> list[Task]:
    """Return the runs that are asked for, one seed of all problems after the other."""
    known = problems(options.tune)
    if unknown := set(options.problems or ()) - set(known):
        raise SystemExit(f"No such problems, or no data for them: {', '.join(sorted(unknown))}")
    seeds = range(options.first, options.first + options.seeds)
    return [
        Task(setting, name, method, seed)
        for setting in options.settings
        for seed in seeds
        for method in options.methods
        for name in options.problems or known
        if not SETTINGS[setting].noisy or name in NOISY
    ]


def run(options: argparse.Namespace) -> None:
    Folder.path = options.data.resolve()
    tasks = tasks_of(options)
    for setting in options.settings:
        names = list(dict.fromkeys(task.problem for task in tasks if task.setting == setting))
        baselines(names, SETTINGS[setting].noisy, options)
    make = partial(run_task, Folder.path, options.tune, options.most)
    columns = [*(f"at {n}" for n in BUDGETS), "ms"]
    complete_runs(options.out / "runs.csv", tasks, columns, make, options.jobs, options.anew)
    record_versions(options)


def record_versions(options: argparse.Namespace) -> None:
    """Record the commit, the versions and the machine of the methods that were run."""
    path = options.out / "meta.json"
    meta = json.loads(path.read_text()) if path.exists() else {}
    about = {"commit": commit(), **machine()}
    for package in PACKAGES:
        try:
            about[package] = version(package)
        except PackageNotFoundError:
            about[package] = None
    meta |= dict.fromkeys(options.methods, about)
    path.write_text(json.dumps(meta, indent=1) + "\n")


class Result(NamedTuple):
    """A run at one number of evaluations: its regret, and whether it is no better than random."""

    regret: float
    failed: bool


def results_of(
    rows: Sequence[dict[str, str]], options: argparse.Namespace
) -> dict[tuple[str, str, int], dict[int, Result]]:
    """Return the results of the runs of one setting, by method, problem and seed."""
    names = list(dict.fromkeys(row["problem"] for row in rows))
    noisy = SETTINGS[rows[0]["setting"]].noisy
    random_search = baselines(names, noisy, options)
    lowest = {name: random_search[name]["lowest"] for name in names}
    for row in options.rows:
        if row["problem"] in lowest and SETTINGS[row["setting"]].noisy == noisy:
            values = [float(row[f"at {n}"]) for n in BUDGETS if row[f"at {n}"]]
            lowest[row["problem"]] = min(lowest[row["problem"]], *values)
    results = {}
    for row in rows:
        name = row["problem"]
        at: dict[int, Result] = {}
        for n in (n for n in BUDGETS if row[f"at {n}"]):
            value, best = float(row[f"at {n}"]), lowest[name]
            median = random_search[name]["median"][str(n)]
            scaled = (value - best) / (median - best) if median > best else float(value > best)
            at[n] = Result(min(scaled, MOST_REGRET), value >= median > best)
        results[row["method"], name, int(row["seed"])] = at
    return results


def table(options: argparse.Namespace) -> None:
    """Write the tables of each setting and group."""
    Folder.path = options.data.resolve()
    half = problems(options.tune)
    options.rows = [row for row in read_csv(options.out / "runs.csv") if row["problem"] in half]
    parts = [
        "# Hyperparameter optimization with few evaluations",
        "Mean regret after as many evaluations: 0 is the best value that is known, 1 the median of "
        "random search. In brackets, runs in which knobless was better, equal and worse with the "
        "same problem and seed. `benchmarks/hpo.py` describes the problems and the settings.",
    ]
    for setting, about in SETTINGS.items():
        rows = [row for row in options.rows if row["setting"] == setting]
        if rows:
            results = results_of(rows, options)
            parts += [f"## {about.title.capitalize()}", *setting_tables(rows, results, half, options)]
    text = "\n\n".join(parts) + "\n"
    (options.out / "table.md").write_text(text, encoding="utf-8")
    print(text)


def setting_tables(
    rows: Sequence[dict[str, str]],
    results: dict[tuple[str, str, int], dict[int, Result]],
    half: dict[str, Problem],
    options: argparse.Namespace,
) -> Iterator[str]:
    """Yield the tables of a setting: all problems, each group, and if asked for each problem."""
    methods = [name for name in METHODS if any(row["method"] == name for row in rows)]
    groups = {"all problems": set(half)}
    for name, problem in half.items():
        groups.setdefault(problem.group, set()).add(name)
    if not options.tune:
        groups["without those run before"] = set(half) - set(RUN_BEFORE)
    if options.each:
        groups |= {name: {name} for name in half}
    times = defaultdict(list)
    for row in rows:
        times[row["method"]].append(float(row["ms"]))
    for group, names in groups.items():
        kept = {key: result for key, result in results.items() if key[1] in names}
        lines = [(group, *map(str, BUDGETS), "no better than random at 100, %", "ms", "runs")]
        for method in methods:
            runs = [result for key, result in kept.items() if key[0] == method]
            if not runs:
                continue
            cells = [regret_cell(kept, method, n) for n in BUDGETS]
            failed = [result[100].failed for result in runs if 100 in result]
            own = f"{np.mean(times[method]):.1f}"
            share = f"{100.0 * np.mean(failed):.0f}" if failed else ""
            lines.append((METHODS[method].title, *cells, share, own, str(len(runs))))
        if len(lines) > 1:
            yield grid(lines)


def regret_cell(results: dict[tuple[str, str, int], dict[int, Result]], method: str, n: int) -> str:
    """Return the mean regret, and how often knobless was better, equal and worse."""
    regrets, signs = [], []
    for (name, problem, seed), result in results.items():
        if name == method and n in result:
            regrets.append(result[n].regret)
            ours = results.get((OURS, problem, seed), {})
            if n in ours:
                signs.append(np.sign(result[n].regret - ours[n].regret))
    if not regrets:
        return ""
    mean = f"{np.mean(regrets):.2f}"
    if method == OURS or not signs:
        return mean
    return f"{mean} ({signs.count(1)}:{signs.count(0)}:{signs.count(-1)})"


def cost(options: argparse.Namespace) -> None:
    """Measure the own time per evaluation of 100 evaluations, the methods in turns."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        if os.environ.get(name) != "1":
            raise SystemExit(f"{name}: expected 1 in the environment, for one thread")
    pipeline = problems(False)["friedman pipeline"]
    measured = {"10 floats": function(levy, 1.0, *[(-8.0, 11.0)] * 10), "17 conditional": pipeline}
    lines = [("own time per evaluation, ms", *measured)]
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for seed in range(options.seeds):
        for method in options.methods:
            for name, problem in measured.items():
                f = Run(problem, SETTINGS["single"], seed, (100,))
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    METHODS[method].run(f)
                seconds[method, name].append((time.process_time() - start - f.seconds) / f.calls)
    rows = {m: {name: 1000.0 * min(seconds[m, name]) for name in measured} for m in options.methods}
    lines += [(METHODS[m].title, *(f"{ms:.1f}" for ms in row.values())) for m, row in rows.items()]
    about = {"runs": options.seeds, "commit": commit(), **machine()}
    (options.out / "cost.json").write_text(json.dumps({**about, "ms": rows}, indent=1) + "\n")
    print(grid(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=[*SETTINGS])
    parser.add_argument("--problems", nargs="+", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--most", type=int, default=BUDGETS[-1], help="evaluations of a run")
    parser.add_argument("--each", action="store_true", help="a table for each problem too")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of files")
    run_command(parser, "hpo", {"run": run, "table": table, "cost": cost})


if __name__ == "__main__":
    main()
