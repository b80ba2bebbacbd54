"""Evaluations per second of whole runs on OneMax, on one core: the compiled engine, the core and peers.

    python benchmarks/engine.py [--repeats 3]

The time includes the objective. `compiled` is one long run of PBIL-λ that does not stop at the optimum; `trials`
are runs to the optimum, seed after seed, including their construction; `recommended` is the recommended search for a
deterministic objective, compiled and interpreted; a peer runs for a number of evaluations that keeps this benchmark
short. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import knobless as kl
from knobless import fast
from knobless.families import Bernoulli
from knobless.problems import OneMax

CALLS = {100: 1_500_000, 1000: 1_000_000}
PEER_CALLS = {100: 2000, 1000: 500}


def compiled(n: int, seed: int) -> int:
    run = fast.Run(fast.compiled(OneMax(n)), kl.pbil_lambda(Bernoulli(n)), seed)
    run.go(budget=CALLS[n])
    return run.nfev


def trials(n: int, seed: int) -> int:
    algorithm, objective, nfev = kl.pbil_lambda(Bernoulli(n)), fast.compiled(OneMax(n)), 0
    while nfev < CALLS[n]:
        seed += 1
        run = fast.Run(objective, algorithm, seed)
        run.go(target=0)
        nfev += run.nfev
    return nfev


def interpreted(n: int, seed: int) -> int:
    problem, space = OneMax(n), kl.Binary(n)
    given = {"budget": 20_000, "algorithm": kl.pbil_lambda(space), "target": 0, "rng": seed}
    return kl.minimize(lambda x: problem(x), space, vectorized=True, **given).nfev


def recommended(n: int, seed: int) -> int:
    run = fast.Run(fast.compiled(OneMax(n)), kl.search(Bernoulli(n)), seed, deterministic=True)
    run.go(budget=CALLS[n] // 10)
    return run.nfev


def recommended_interpreted(n: int, seed: int) -> int:
    problem = OneMax(n)
    return kl.minimize(lambda x: problem(x), kl.Binary(n), budget=PEER_CALLS[n], deterministic=True, rng=seed).nfev


def catcmawm(n: int, seed: int) -> int:
    from cmaes import CatCMAwM

    opt = CatCMAwM(c_space=[2] * n, seed=seed)
    nfev = 0
    while nfev < PEER_CALLS[n]:
        solutions = [opt.ask() for _ in range(opt.population_size)]
        opt.tell([(s, float(n - s.c[:, 1].sum())) for s in solutions])
        nfev += len(solutions)
    return nfev


def pymoo_ga(n: int, seed: int) -> int:
    from pymoo.algorithms.soo.nonconvex.ga import GA
    from pymoo.core.problem import Problem
    from pymoo.operators.crossover.pntx import TwoPointCrossover
    from pymoo.operators.mutation.bitflip import BitflipMutation
    from pymoo.operators.sampling.rnd import BinaryRandomSampling
    from pymoo.optimize import minimize

    class Ones(Problem):
        def __init__(self) -> None:
            super().__init__(n_var=n, n_obj=1, xl=0, xu=1, vtype=bool)

        def _evaluate(self, x: np.ndarray, out: dict[str, np.ndarray], *args: object, **kwargs: object) -> None:
            out["F"] = n - x.sum(axis=1)

    ga = GA(pop_size=100, sampling=BinaryRandomSampling(), crossover=TwoPointCrossover(), mutation=BitflipMutation())
    return minimize(Ones(), ga, ("n_eval", PEER_CALLS[n]), seed=seed).algorithm.evaluator.n_eval


def nevergrad(n: int, seed: int) -> int:
    import nevergrad as ng

    space = ng.p.Choice([0, 1], repetitions=n, deterministic=True)
    space.random_state.seed(seed)
    calls = PEER_CALLS[n] // 5
    opt = ng.optimizers.registry["DiscreteOnePlusOne"](space, budget=calls)
    for _ in range(calls):
        candidate = opt.ask()
        opt.tell(candidate, n - sum(candidate.value))
    return calls


RUNS: dict[str, Callable[[int, int], int]] = {
    "compiled": compiled,
    "trials": trials,
    "NumPy": interpreted,
    "recommended": recommended,
    "recommended NumPy": recommended_interpreted,
    "CatCMAwM": catcmawm,
    "pymoo GA": pymoo_ga,
    "nevergrad": nevergrad,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    print("evaluations per second on OneMax, and the speedup of the compiled engine")
    for n in CALLS:
        rates: dict[str, list[float]] = {}
        for seed in range(repeats + 1):  # the first is to warm up
            for name, run in RUNS.items():
                start = time.perf_counter()
                try:
                    nfev = run(n, 1000 * seed)
                except ImportError:
                    continue
                if seed:
                    rates.setdefault(name, []).append(nfev / (time.perf_counter() - start))
        for name, each in rates.items():
            ratio = statistics.median(a / b for a, b in zip(rates["compiled"], each, strict=True))
            print(f"n = {n:>5}  {name:>10}: {statistics.median(each):>12,.0f}   {ratio:>10,.1f} x", flush=True)


if __name__ == "__main__":
    main()
