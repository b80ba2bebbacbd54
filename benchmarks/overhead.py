"""What the optimizer itself costs: microseconds per evaluation spent in ask and tell, outside the objective.

    python benchmarks/overhead.py [--repeats 3] [--no-peers] [--only-minimize]

Every optimizer solves OneMax with a vectorized objective until it is solved or has spent its calls, and only
ask and tell are timed. The floor is `rng.random((lam, n)) < theta` alone, for the λ that PBIL-λ used in the
same run. Machines are noisy: read the ratios, each taken within one repeat, interleaved, median over repeats.

A second table compares the search that `deterministic=True` recommends with PBIL-λ, on 100 bits with at most 5,000
evaluations, on functions that exercise different parts of it: local search, crossover, learning.

Another table compares `minimize` with a loop over `Optimizer.ask` and `tell` and with one over CatCMAwM, which call the
same objective point by point: processor time of whole runs on OneMax, less that of as many calls of the objective.

The last table compares the linear search with PBIL-λ over the first 1,000 evaluations of OneMax with noise of variance
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
from knobless.algorithms import linear_thompson
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
    while opt.nfev < CALLS[n] and opt.observed_fun > 0:
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
    while opt.nfev < calls and opt.observed_fun > 0:
        start = clock()
        batch = opt.ask()
        spent += clock() - start
        values = problem(batch.x)
        start = clock()
        opt.tell(batch, values)
        spent += clock() - start
    return spent / opt.nfev


def recommended(repeats: int) -> None:
    print("\nmicroseconds per evaluation, 100 bits: PBIL-λ, the search of deterministic=True, and their ratio")
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
        plain, search = (statistics.median(each) * 1e6 for each in zip(*both, strict=True))
        print(f"{type(problem).__name__:>14} {plain:10.2f} {search:10.2f} {ratios[-1]:10.2f} x", flush=True)
    print(f"{'on average':>14} {'':21} {statistics.fmean(ratios):10.2f} x")


def linear(repeats: int) -> None:
    print("\nmicroseconds per evaluation under noise: PBIL-λ, linear_thompson, and their ratio")
    for n in (25, 50, 100, 200, 300, 1000):
        both = []
        for seed in range(repeats):
            noise = np.random.default_rng(seed)

            def problem(x: Any, n: int = n, noise: np.random.Generator = noise) -> Any:
                return 10.0 * n - x.sum(axis=1) + noise.normal(0.0, n**0.5, len(x))

            recipes = kl.pbil_lambda, linear_thompson
            made = (kl.Optimizer(kl.Binary(n), each(kl.Binary(n)), rng=seed) for each in recipes)
            both.append([timed(opt, problem, 1_000, time.thread_time) for opt in made])
        plain, model = (statistics.median(each) * 1e6 for each in zip(*both, strict=True))
        ratio = statistics.median(b / a for a, b in both)
        print(f"{n:>14} {plain:10.2f} {model:10.2f} {ratio:10.2f} x", flush=True)


def one_by_one(x: Any) -> float:
    return float(x.size - x.sum())


def by_minimize(n: int, seed: int, calls: int) -> int:
    space = kl.Binary(n)
    return kl.minimize(one_by_one, space, budget=calls, algorithm=kl.pbil_lambda(space), rng=seed).nfev


def by_ask_and_tell(n: int, seed: int, calls: int) -> int:
    opt = pbil_lambda(n, seed)
    while opt.nfev < calls:
        batch = opt.ask()
        opt.tell(batch, [one_by_one(x) for _, x in batch])
    return opt.nfev


def by_catcmawm(n: int, seed: int, calls: int) -> int:
    from cmaes import CatCMAwM

    opt, nfev = CatCMAwM(c_space=[2] * n, seed=seed), 0
    while nfev < calls:
        solutions = [opt.ask() for _ in range(opt.population_size)]
        opt.tell([(s, one_by_one(s.c[:, 1])) for s in solutions])
        nfev += len(solutions)
    return nfev


def overhead_of(run: Callable[[int, int, int], int], n: int, seed: int, calls: int) -> float:
    """Microseconds per evaluation of a whole run, in processor time, less those of the objective."""
    point = np.random.default_rng(seed).integers(0, 2, n, dtype=np.int8)
    start = time.thread_time()
    for _ in range(calls):
        one_by_one(point)
    objective = (time.thread_time() - start) / calls
    start = time.thread_time()
    nfev = run(n, seed, calls)
    return ((time.thread_time() - start) / nfev - objective) * 1e6


def whole_runs(repeats: int, peers: bool) -> None:
    print("\nmicroseconds per evaluation of whole runs: minimum (median), and the ratio of minimize to the others")
    runs = [by_minimize, by_ask_and_tell] + ([by_catcmawm] if peers else [])
    for n in (16, 100):
        calls = {by_minimize: CALLS[n], by_ask_and_tell: CALLS[n], by_catcmawm: PEER_CALLS[n]}
        spent: dict[Callable[[int, int, int], int], list[float]] = {run: [] for run in runs}
        for seed in range(repeats):
            for run in runs:
                spent[run].append(overhead_of(run, n, seed, calls[run]))
        cells = [f"{min(each):8.2f} ({statistics.median(each):7.2f})" for each in spent.values()]
        for run in runs[1:]:
            ratio = statistics.median(a / b for a, b in zip(spent[by_minimize], spent[run], strict=True))
            cells.append(f"{min(spent[by_minimize]) / min(spent[run]):6.3f} ({ratio:6.3f}) x")
        print(f"{n:>6}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


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
    parser.add_argument("--only-minimize", action="store_true", help="print the table of whole runs alone")
    options = parser.parse_args()
    if options.only_minimize:
        whole_runs(options.repeats, not options.no_peers)
        return
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
    recommended(options.repeats)
    whole_runs(options.repeats, not options.no_peers)
    linear(options.repeats)


if __name__ == "__main__":
    main()
