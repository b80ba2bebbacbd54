"""What the optimizer itself costs: microseconds per evaluation spent in ask and tell, outside the objective.

    python benchmarks/overhead.py [--repeats 3] [--no-peers]

Every optimizer solves OneMax with a vectorized objective until it is solved or has spent its calls, and only
ask and tell are timed. The floor is `rng.random((lam, n)) < theta` alone, for the λ that PBIL-λ used in the
same run. Machines are noisy: read the ratios, each taken within one repeat, interleaved, median over repeats.

A second table compares the portfolio that `deterministic=True` recommends with PBIL-λ, on 100 bits with at most 5,000
evaluations, on functions that exercise different parts of it: local search, crossover, learning.

A third table compares the linear search with PBIL-λ over the first 1,000 evaluations of OneMax with noise of variance
n, in processor time of the thread: set OPENBLAS_NUM_THREADS=1 for it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import knobless as kl
from knobless.problems import LABS, NK, IsingTorus, LeadingOnes, OneMax, Traps

SIZES = (16, 100, 1000, 3000)
CALLS = {16: 2_000, 100: 4_000, 1000: 14_000, 3000: 50_000}  # enough for PBIL-λ to solve it
PEER_CALLS = {16: 600, 100: 600, 1000: 300, 3000: 200}
TPE_CALLS = {16: 200, 100: 100, 1000: 12, 3000: 12}


def pbil_lambda(n: int, seed: int) -> kl.Optimizer:
    space = kl.Binary(n)
    return kl.Optimizer(space, kl.pbil_lambda(space), rng=seed)


def knobless(n: int, seed: int) -> tuple[float, list[int]]:
    """Seconds per evaluation in `Optimizer.ask` and `tell`, and the λ of each iteration."""
    opt = pbil_lambda(n, seed)
    spent, sizes = 0.0, []
    while opt.nfev < CALLS[n] and opt.lowest_fun > 0:
        start = time.perf_counter()
        batch = opt.ask()
        spent += time.perf_counter() - start
        values = n - batch.x.sum(axis=1)
        sizes.append(len(batch))
        start = time.perf_counter()
        opt.tell(batch, values)
        spent += time.perf_counter() - start
    return spent / opt.nfev, sizes


def timed(opt: kl.Optimizer, problem: Any, calls: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds per evaluation in ask and tell, until it is solved or the calls are spent."""
    spent = 0.0
    while opt.nfev < calls and opt.lowest_fun > 0:
        start = clock()
        batch = opt.ask()
        spent += clock() - start
        values = problem(batch.x)
        start = clock()
        opt.tell(batch, values)
        spent += clock() - start
    return spent / opt.nfev


def portfolio(repeats: int) -> None:
    print("\nmicroseconds per evaluation, 100 bits: PBIL-λ, the portfolio of deterministic=True, and their ratio")
    problems = (OneMax(100), LeadingOnes(100), IsingTorus(10), Traps(100), NK(100, 4, rng=0), LABS(100))
    ratios = []
    for problem in problems:
        both = [
            (
                timed(pbil_lambda(100, seed), problem, 5_000),
                timed(kl.Optimizer(kl.Binary(100), rng=seed, deterministic=True), problem, 5_000),
            )
            for seed in range(repeats)
        ]
        ratios.append(statistics.median(b / a for a, b in both))
        plain, portfolios = (statistics.median(each) * 1e6 for each in zip(*both, strict=True))
        print(f"{type(problem).__name__:>14} {plain:10.2f} {portfolios:10.2f} {ratios[-1]:10.2f} x", flush=True)
    print(f"{'on average':>14} {'':21} {statistics.fmean(ratios):10.2f} x")


def linear(repeats: int) -> None:
    print("\nmicroseconds per evaluation under noise: PBIL-λ, linear_thompson, and their ratio")
    for n in (25, 50, 100, 200, 300, 1000):
        both = []
        for seed in range(repeats):
            noise = np.random.default_rng(seed)

            def problem(x: Any, n: int = n, noise: np.random.Generator = noise) -> Any:
                return 10.0 * n - x.sum(axis=1) + noise.normal(0.0, n**0.5, len(x))

            recipes = kl.pbil_lambda, kl.linear_thompson
            made = (kl.Optimizer(kl.Binary(n), each(kl.Binary(n)), rng=seed) for each in recipes)
            both.append([timed(opt, problem, 1_000, time.thread_time) for opt in made])
        plain, model = (statistics.median(each) * 1e6 for each in zip(*both, strict=True))
        ratio = statistics.median(b / a for a, b in both)
        print(f"{n:>14} {plain:10.2f} {model:10.2f} {ratio:10.2f} x", flush=True)


def floor(n: int, sizes: list[int], seed: int) -> float:
    """Seconds per sample of drawing alone."""
    rng, theta = np.random.default_rng(seed), np.full(n, 0.5)
    start = time.perf_counter()
    for lam in sizes:
        rng.random((lam, n)) < theta  # noqa: B015
    return (time.perf_counter() - start) / sum(sizes)


def catcmawm(n: int, seed: int) -> float:
    from cmaes import CatCMAwM

    opt = CatCMAwM(c_space=[2] * n, seed=seed)
    spent, nfev, size = 0.0, 0, opt.population_size
    while nfev < max(PEER_CALLS[n], 3 * size):
        start = time.perf_counter()
        solutions = [opt.ask() for _ in range(size)]
        spent += time.perf_counter() - start
        told = [(s, float(n - s.c[:, 1].sum())) for s in solutions]
        start = time.perf_counter()
        opt.tell(told)
        spent += time.perf_counter() - start
        nfev += size
    return spent / nfev


def nevergrad(n: int, seed: int) -> float:
    import nevergrad as ng

    space = ng.p.Choice([0, 1], repetitions=n, deterministic=True)
    space.random_state.seed(seed)
    opt = ng.optimizers.registry["DiscreteOnePlusOne"](space, budget=PEER_CALLS[n])
    spent = 0.0
    for _ in range(PEER_CALLS[n] // 3):
        start = time.perf_counter()
        candidate = opt.ask()
        spent += time.perf_counter() - start
        value = n - sum(candidate.value)
        start = time.perf_counter()
        opt.tell(candidate, value)
        spent += time.perf_counter() - start
    return spent / (PEER_CALLS[n] // 3)


def optuna_tpe(n: int, seed: int) -> float:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    space = {f"x{i}": optuna.distributions.CategoricalDistribution([0, 1]) for i in range(n)}
    spent = 0.0
    for _ in range(TPE_CALLS[n]):
        start = time.perf_counter()
        trial = study.ask(space)
        spent += time.perf_counter() - start
        value = n - sum(trial.params.values())
        start = time.perf_counter()
        study.tell(trial, value)
        spent += time.perf_counter() - start
    return spent / TPE_CALLS[n]


PEERS: dict[str, Callable[[int, int], float]] = {
    "CatCMAwM": catcmawm,
    "nevergrad": nevergrad,
    "Optuna TPE": optuna_tpe,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    names = ["PBIL-λ", "floor"] + ([] if options.no_peers else list(PEERS))
    print("microseconds per evaluation, and how many times PBIL-λ's cost that is")
    print(f"{'n':>6}" + "".join(f"{name:>20}" for name in names))
    for n in SIZES:
        runs: dict[str, list[float]] = {name: [] for name in names}
        for seed in range(options.repeats):
            ours, sizes = knobless(n, seed)
            runs["PBIL-λ"].append(ours)
            runs["floor"].append(floor(n, sizes, seed))
            for name in names[2:]:
                try:
                    runs[name].append(PEERS[name](n, seed))
                except ImportError:
                    runs[name].append(float("nan"))
        cells = []
        for name in names:
            ratio = statistics.median(a / b for a, b in zip(runs[name], runs["PBIL-λ"], strict=True))
            cells.append(f"{statistics.median(runs[name]) * 1e6:10.2f} ({ratio:6.2f} x)")
        print(f"{n:>6}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
    portfolio(options.repeats)
    linear(options.repeats)


if __name__ == "__main__":
    main()
