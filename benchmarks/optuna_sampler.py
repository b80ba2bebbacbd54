"""Compare KnoblessSampler with the samplers of Optuna: calls to the optimum, and time of the sampler.

    python benchmarks/optuna_sampler.py [--calls 500] [--seeds 10] [--jobs 2] [--out out/optuna]
    python benchmarks/optuna_sampler.py --branches [--trials 100] [--branch-seeds 8] [--jobs 2]

Two problems, each with an optimum drawn by seed. OneMax has 30 choices of two; its value is the number of wrong ones.
The mixed space has ten variables: a wrong bit or option costs 1, the depth its distance over the range, the width and
the floats the square of that, in log scale where the variable has one. It is solved at a value of 0.01: bits, options
and depth are right then, and the others within a tenth of their range.

CmaEsSampler has no categories and leaves them to its independent sampler, which is its default, RandomSampler. "CmaEs,
bits as integers" is the same sampler on OneMax written with integers from 0 to 1 and its margin, as users would
write it. All samplers are used with their defaults. Finished runs are added to `runs.csv` at once; the same command
resumes from there.

Time is CPU time in a study in memory, per trial, over the 50 trials after the first 1,000: all that Optuna does for
a trial, so that RandomSampler is the floor. The trials are the sampler's own, except for TPE, whose first 1,000 come
from RandomSampler: its time depends only on their number.

`--branches` runs a study with conditional parameters instead: a model is one of three, each with two parameters of its
own. Its cost is a least value plus weighted squared distances of its parameters to an optimum drawn by seed, scaled to
their ranges. The model with the lowest least value depends on its parameters most. Printed are the best values after
all trials, and the probability that those of KnoblessSampler are lower, with the p-value of a Mann-Whitney test.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.stats import mannwhitneyu

from harness import Table, commit, machine, write_csv
from knobless.algorithms import pbil_elitist
from knobless.optuna import KnoblessSampler

SOLVED = 0.01
BEFORE, TIMED = 1000, 50

ONEMAX: dict[str, BaseDistribution] = {f"bit{i:02}": CategoricalDistribution([0, 1]) for i in range(30)}
INTEGERS: dict[str, BaseDistribution] = {f"bit{i:02}": IntDistribution(0, 1) for i in range(30)}
MIXED: dict[str, BaseDistribution] = {
    "bit0": CategoricalDistribution([0, 1]),
    "bit1": CategoricalDistribution([0, 1]),
    "bit2": CategoricalDistribution([0, 1]),
    "three": CategoricalDistribution(["a", "b", "c"]),
    "four": CategoricalDistribution(["a", "b", "c", "d"]),
    "five": CategoricalDistribution(["a", "b", "c", "d", "e"]),
    "depth": IntDistribution(1, 16),
    "width": IntDistribution(16, 1024, log=True),
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "drop": FloatDistribution(0.0, 1.0),
}

SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "Knobless": lambda seed: KnoblessSampler(seed=seed),
    "Knobless, elitist": lambda seed: KnoblessSampler(seed=seed, algorithm=pbil_elitist),
    "TPE": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "CmaEs": lambda seed: optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False),
    "Random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}
MARGIN = "CmaEs, bits as integers"


class Run(NamedTuple):
    """What is run: a row of the table is this and its result."""

    problem: str
    sampler: str
    calls: int
    seed: int


def key(run: Run) -> tuple[str, ...]:
    return tuple(map(str, run))


def space_of(run: Run) -> dict[str, BaseDistribution]:
    return MIXED if run.problem == "mixed" else INTEGERS if run.sampler == MARGIN else ONEMAX


def sampler_of(run: Run) -> optuna.samplers.BaseSampler:
    if run.sampler == MARGIN:
        return optuna.samplers.CmaEsSampler(seed=run.seed, with_margin=True)
    return SAMPLERS[run.sampler](run.seed)


def scaled(distribution: Any, value: float) -> float:
    """Where a number lies in its range, in log scale where it has one."""
    low, high = distribution.low, distribution.high
    return float(np.log(value / low) / np.log(high / low)) if distribution.log else (value - low) / (high - low)


def optimum(space: dict[str, BaseDistribution], seed: int) -> dict[str, Any]:
    """A point drawn by seed, the same for all samplers; numbers keep off the ends of their range."""
    rng = np.random.default_rng(1000 + seed)
    best: dict[str, Any] = {}
    for name, each in space.items():
        match each:
            case CategoricalDistribution(choices=choices):
                best[name] = choices[rng.integers(len(choices))]
            case IntDistribution(low=low, high=high, log=False):
                best[name] = int(rng.integers(low, high + 1))
            case _:
                best[name] = float(rng.uniform(0.1, 0.9))  # scaled
    return best


def cost(space: dict[str, BaseDistribution], best: dict[str, Any], params: dict[str, Any]) -> float:
    total = 0.0
    for name, each in space.items():
        match each:
            case CategoricalDistribution():
                total += params[name] != best[name]
            case IntDistribution(log=False):
                total += abs(params[name] - best[name]) / (each.high - each.low)
            case _:
                total += (scaled(each, params[name]) - best[name]) ** 2
    return total


def objective_of(run: Run) -> Callable[[optuna.Trial], float]:
    space = space_of(run)
    best = optimum(space, run.seed)
    return lambda trial: cost(space, best, {name: trial._suggest(name, each) for name, each in space.items()})


def calls_of(run: Run) -> dict[str, Any]:
    """Calls up to the first that solves it, and the best value of all."""
    quiet()
    study = optuna.create_study(sampler=sampler_of(run))
    objective = objective_of(run)

    def stop(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        if trial.value is not None and trial.value <= SOLVED:
            study.stop()

    study.optimize(objective, n_trials=run.calls, callbacks=[stop])
    solved = study.best_value <= SOLVED
    return {"solved": solved, "used": len(study.get_trials(deepcopy=False)), "best": round(study.best_value, 6)}


def time_of(run: Run) -> float:
    """CPU milliseconds a trial, after the first 1,000."""
    quiet()
    objective = objective_of(run)
    sampler = sampler_of(run)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0) if run.sampler == "TPE" else sampler)
    study.optimize(objective, n_trials=BEFORE)
    study.sampler = sampler
    study.optimize(objective, n_trials=1)  # what is done once
    began = time.process_time()
    study.optimize(objective, n_trials=TIMED)
    return 1e3 * (time.process_time() - began) / TIMED


def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)


# Conditional parameters.

MODELS: dict[str, tuple[float, dict[str, tuple[BaseDistribution, float]]]] = {  # least value, and weights
    "linear": (
        0.6,
        {
            "alpha": (FloatDistribution(1e-4, 1e2, log=True), 0.2),
            "l1_ratio": (FloatDistribution(0.0, 1.0), 0.1),
        },
    ),
    "forest": (
        0.55,
        {
            "depth": (IntDistribution(2, 32, log=True), 0.4),
            "features": (FloatDistribution(0.1, 1.0), 0.4),
        },
    ),
    "boosting": (
        0.5,
        {
            "learning_rate": (FloatDistribution(1e-3, 1.0, log=True), 1.5),
            "leaves": (IntDistribution(2, 256, log=True), 1.5),
        },
    ),
}


def best_of_branches(sampler: str, seed: int, trials: int) -> float:
    """Return the best value of a study with three branches."""
    quiet()
    rng = np.random.default_rng(2000 + seed)
    best = {name: rng.uniform(0.1, 0.9) for _, each in MODELS.values() for name in each}

    def objective(trial: optuna.Trial) -> float:
        least, parameters = MODELS[trial.suggest_categorical("model", list(MODELS))]
        away = ((name, each, w, trial._suggest(name, each)) for name, (each, w) in parameters.items())
        return least + sum(w * (scaled(each, value) - best[name]) ** 2 for name, each, w, value in away)

    study = optuna.create_study(sampler=SAMPLERS[sampler](seed))
    study.optimize(objective, n_trials=trials)
    return study.best_value


def compare_branches(options: argparse.Namespace) -> None:
    """Print the best values of the samplers, and compare them with those of KnoblessSampler."""
    names = ["Knobless", "TPE", "Random"]
    n = options.branch_seeds
    with ProcessPoolExecutor(options.jobs) as pool:
        each = [(name, seed) for name in names for seed in range(n)]
        values = list(pool.map(best_of_branches, *zip(*each, strict=True), [options.trials] * len(each)))
    found = {name: values[i * n : (i + 1) * n] for i, name in enumerate(names)}
    print(f"Best of {options.trials} trials with three branches, {n} seeds.\n")
    print("| sampler | median | from | to | P(Knobless lower) | p, two-sided |\n|---|---|---|---|---|---|")
    for name, mine in found.items():
        test = mannwhitneyu(mine, found["Knobless"])
        p = "" if name == "Knobless" else f"{test.statistic / n**2:.2f} | {test.pvalue:.3f}"
        print(f"| {name} | {statistics.median(mine):.4f} | {min(mine):.4f} | {max(mine):.4f} | {p or ' | '} |")


# Report.


def lines_of(rows: list[dict[str, str]], times: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    lines = []
    for problem, sampler in dict.fromkeys((row["problem"], row["sampler"]) for row in rows):
        mine = [row for row in rows if (row["problem"], row["sampler"]) == (problem, sampler)]
        used = sorted(int(row["used"]) if row["solved"] == "True" else np.inf for row in mine)
        middle = statistics.median(used)
        lines.append(
            {
                "problem": problem,
                "sampler": sampler,
                "solved": f"{np.isfinite(used).sum()} of {len(used)}",
                "median calls": f"{middle:.0f}" if np.isfinite(middle) else f"> {mine[0]['calls']}",
                "from": f"{used[0]:.0f}" if np.isfinite(used[0]) else "",
                "to": f"{used[-1]:.0f}" if np.isfinite(used[-1]) else f"> {mine[0]['calls']}",
                "median best value": f"{statistics.median(float(row['best']) for row in mine):.3g}",
                "ms a trial": f"{times[problem, sampler]:.2f}",
            }
        )
    return lines


def report(lines: list[dict[str, Any]], options: argparse.Namespace) -> str:
    head = list(lines[0])
    table = [head, ["---"] * len(head), *([line[name] for name in head] for line in lines)]
    rows = "\n".join("| " + " | ".join(row) + " |" for row in table)
    return (
        f"Calls to the optimum through Optuna {version('optuna')}, at most {options.calls}, {options.seeds} seeds; CPU "
        f"time a trial after {BEFORE:,} trials.\n\n{rows}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/optuna"))
    parser.add_argument("--branches", action="store_true", help="compare studies with conditional parameters")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--branch-seeds", type=int, default=8)
    options = parser.parse_args()
    if options.branches:
        compare_branches(options)
        return
    began = time.perf_counter()
    each = [("OneMax n=30", name) for name in (*SAMPLERS, MARGIN)] + [("mixed", name) for name in SAMPLERS]
    runs = [Run(problem, name, options.calls, seed) for problem, name in each for seed in range(options.seeds)]
    table = Table(options.out / "runs.csv", Run._fields, ("solved", "used", "best"))
    missing = [run for run in runs if key(run) not in table]
    with ProcessPoolExecutor(options.jobs) as pool:
        pending = {pool.submit(calls_of, run): run for run in missing}
        for done in as_completed(pending):
            table.add(pending[done]._asdict() | done.result())
    times = {(problem, name): time_of(Run(problem, name, options.calls, 0)) for problem, name in each}
    lines = lines_of([table.get(key(run)) for run in runs], times)
    text = f"# Samplers of Optuna\n\n{report(lines, options)}"
    print(text)
    (options.out / "table.md").write_text(text, encoding="utf-8")
    write_csv(options.out / "table.csv", lines)
    versions = {package: version(package) for package in ("optuna", "cmaes", "scipy")}
    asked = {"calls": options.calls, "seeds": options.seeds, "jobs": options.jobs}
    meta = machine() | {"commit": commit()} | versions | asked
    meta["seconds"] = round(time.perf_counter() - began)
    (options.out / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")


if __name__ == "__main__":
    main()
