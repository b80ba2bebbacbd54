"""Calls to the optimum of a OneMax over categories, compared with CatCMAwM of cmaes.

    python benchmarks/categories.py [--variables 30] [--options 5] [--seeds 11]

Each variable has one right option, drawn by seed; the value is the number of wrong ones.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np

import knobless as kl

CAP = 100_000


def knobless(target: np.ndarray, options: int, seed: int) -> int:
    space = kl.Choice(*range(options), n=len(target))
    given = {"budget": CAP, "algorithm": kl.pbil_lambda(space), "target": 0, "rng": seed}
    result = kl.minimize(lambda x: (x != target).sum(axis=1), space, vectorized=True, **given)
    return result.nfev if result.success else CAP


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
    calls: dict[str, list[int]] = {"PBIL-λ": [], "CatCMAwM": []}
    for seed in range(chosen.seeds):
        target = np.random.default_rng(1000 + seed).integers(0, chosen.options, chosen.variables)
        calls["PBIL-λ"].append(knobless(target, chosen.options, seed))
        calls["CatCMAwM"].append(catcmawm(target, chosen.options, seed))
    medians = {name: statistics.median(each) for name, each in calls.items()}
    print(f"{chosen.variables} variables of {chosen.options} options, calls to the optimum, {chosen.seeds} seeds")
    for name, each in calls.items():
        print(f"{name:>10}: median {medians[name]:7.0f}, from {min(each)} to {max(each)}")
    print(f"     ratio: {medians['PBIL-λ'] / medians['CatCMAwM']:.2f}")


if __name__ == "__main__":
    main()
