"""Tables of trained networks as functions of choices, and the optimizers of choices that power.py runs on them.

A table has one row per configuration of a search space: one character per variable, for its option (0 to 9,
then a to z). Its value is the mean over the seeds of the trainings. Options are categories here, even if
they were numbers, and are shuffled by table and seed, the same for all algorithms.
"""

from __future__ import annotations

import lzma
import pickle
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contest import Function, Objective


class Grid(NamedTuple):
    """`n` variables, a file, the measure in it, and whether that is maximized (1) or minimized (-1)."""

    n: int
    file: str
    measure: str
    sense: int


GRIDS = {
    "NAS-Bench-201 CIFAR-10": Grid(6, "nasbench/nasbench201/cifar10.pkl.xz", "val_acc", 1),
    "HPOBench vehicle": Grid(5, "nasbench/hpobench/vehicle.pkl.xz", "val_acc", 1),
    "HPOlib protein structure": Grid(9, "nasbench/hpolib/protein_structure.pkl.xz", "val_loss", -1),
}


class Plain(pickle.Unpickler):
    """Unpickler of built-in values only, so that a file cannot execute code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"expected numbers and text alone, got {module}.{name}")


@lru_cache
def read(path: Path, measure: str) -> Any:
    """Return the values, with one axis per variable."""
    with lzma.open(path) as file:
        rows = Plain(file).load()
    keys = np.array([[int(c, 36) for c in key] for key in rows])
    values = np.full(keys.max(axis=0) + 1, np.nan)
    values[tuple(keys.T)] = [np.mean(row[measure]) for row in rows.values()]
    if np.isnan(values).any():
        raise ValueError(f"{path}: expected a value for every configuration")
    return values


def function(name: str, data: Path, source: np.random.SeedSequence) -> Function:
    """The table with its options shuffled."""
    grid = GRIDS[name]
    values, rng = read(data / grid.file, grid.measure), np.random.default_rng(source)
    best = float((grid.sense * values).max() * grid.sense)
    for axis, options in enumerate(values.shape):
        values = values.take(rng.permutation(options), axis=axis)
    return Function(name, lambda x: float(values[tuple(x)]), best, grid.sense, sizes=values.shape)


def rank(name: str, data: Path, value: float) -> float:
    """Return the number of better ones in 10,000 configurations, plus 0.5: 0.5 is the best."""
    grid = GRIDS[name]
    better = grid.sense * read(data / grid.file, grid.measure) > grid.sense * value
    return float(10_000 * better.mean() + 0.5)


# Each calls f until that raises `Done`, with `f.clock` running outside of f.


def at_random(f: Objective, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    while True:
        with f.clock:
            x = rng.integers(f.sizes)
        f(x)


def tpe(f: Objective, n: int, seed: int) -> None:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space: dict[str, BaseDistribution] = {f"x{i}": CategoricalDistribution(range(k)) for i, k in enumerate(f.sizes)}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    while True:
        with f.clock:
            trial = study.ask(space)
        value = f([trial.params[name] for name in space])
        with f.clock:
            study.tell(trial, value)


def pymoo_mixed(f: Objective, n: int, seed: int) -> None:
    from pymoo.core.evaluator import Evaluator
    from pymoo.core.mixed import MixedVariableGA
    from pymoo.core.problem import Problem
    from pymoo.core.termination import NoTermination
    from pymoo.core.variable import Choice
    from pymoo.problems.static import StaticProblem

    names = [f"x{i}" for i in range(n)]
    problem = Problem(
        vars={name: Choice(options=list(range(k))) for name, k in zip(names, f.sizes, strict=True)}, n_obj=1
    )
    ga = MixedVariableGA()
    ga.setup(problem, termination=NoTermination(), seed=seed)
    while True:
        with f.clock:
            population = ga.ask()
        if population is None or not len(population):
            return
        values = np.array([f([x[name] for name in names]) for x in population.get("X")])
        with f.clock:
            Evaluator().eval(StaticProblem(problem, F=values[:, None]), population)
            ga.tell(infills=population)
