"""Calls to the optimum of a OneMax over categories, compared with CatCMAwM of cmaes.

    python benchmarks/categories.py [--variables 30] [--options 5] [--seeds 11]

Each variable has one right option, drawn by seed; the value is the number of wrong ones. `knobless` is `minimize` with
nothing declared, `PBIL-λ` the algorithm of the paper. The ratio is that to the median of CatCMAwM.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np

import knobless as kl
from knobless.algorithms import Algorithm

CAP = 100_000


def knobless(target: np.ndarray, options: int, seed: int, algorithm: Algorithm | None = None) -> int:
    space = kl.Choice(*range(options), n=len(target))
    given = {"budget": CAP, "algorithm": algorithm, "target": 0, "rng": seed}
    result = kl.minimize(lambda x: (x != target).sum(axis=1), space, vectorized=True, **given)
    return result.nfev if result.success else CAP


def pbil_lambda(target: np.ndarray, options: int, seed: int) -> int:
    return knobless(target, options, seed, kl.pbil_lambda(kl.Choice(*range(options), n=len(target))))


def catcmawm(target: np.ndarray, options: int, seed: int) -> int:
    from cmaes import CatCMAwM

    opt = CatCMAwM(c_space=[options] * len(target), seed=seed)
    nfev = 0
    while nfev < CAP:
        told = []
        for _ in range(opt.population_size):
            solution = opt.ask()
            value = float((solution.c.argmax(axis=1) != target).sum())
            nfev += 1
            if value == 0:
                return nfev
            told.append((solution, value))
        opt.tell(told)
    return CAP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variables", type=int, default=30)
    parser.add_argument("--options", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=11)
    chosen = parser.parse_args()
    searches = {"knobless": knobless, "PBIL-λ": pbil_lambda, "CatCMAwM": catcmawm}
    calls: dict[str, list[int]] = {name: [] for name in searches}
    for seed in range(chosen.seeds):
        target = np.random.default_rng(1000 + seed).integers(0, chosen.options, chosen.variables)
        for name, search in searches.items():
            calls[name].append(search(target, chosen.options, seed))
    medians = {name: statistics.median(each) for name, each in calls.items()}
    print(f"{chosen.variables} variables of {chosen.options} options, calls to the optimum, {chosen.seeds} seeds")
    for name, each in calls.items():
        ratio = medians[name] / medians["CatCMAwM"]
        print(f"{name:>10}: median {medians[name]:7.0f}, from {min(each)} to {max(each)}, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
