"""Measure the figures of pages in docs/, and print them next to the printed ones.

    python benchmarks/readings.py [--only NAME] [--seeds 11]

Runs of the plain algorithm use the compiled engine. The variants that it is compared with are built here from
the components of the library: other weights, the same `tell` called in another order, a family with another `move`.
A row is looked up in its document by its first cell. Calls are medians over the seeds 0, 1, …; figures may differ
slightly on processors with another order of summation.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import knobless as kl
from knobless import fast
from knobless.algorithms import IGO, SNR, Quartiles, State, p3, pbil_elitist
from knobless.families import Bernoulli, Gaussian
from knobless.problems import IsingRing, IsingTorus, Jump, LeadingOnes, NoisyOneMax, OneMax, Traps

ROOT = Path(__file__).resolve().parent.parent
COMPARISON, READ = (f"docs/{page}.md" for page in ("comparison", "peers/readings"))
CAP = 2_000_000  # calls after which a run to the optimum is stopped and counts as infinitely long

Rows = Iterator[tuple[str, list[str]]]  # the first cell of a row, and the others
Function = Callable[[Any], Any]
Tell = Callable[[IGO, State, Any, Any], State]


# How things are run.


def calls(problem: Any, algorithm: IGO, seeds: range) -> str:
    """Return the median calls to the optimum, in the compiled engine."""
    runs = fast.trials(problem, algorithm, seeds, budget=CAP, target=0, jobs=1)
    return median(run.nfev if run.best <= 0 else math.inf for run in runs)


def certain(problem: Any, seeds: range, budget: int = CAP) -> list[kl.Result]:
    """Run with `deterministic=True`."""
    space = kl.Binary(problem.n)
    return [kl.minimize(problem, space, budget=budget, target=0, deterministic=True, rng=seed) for seed in seeds]


@dataclass(frozen=True)
class Iteration:
    """One iteration of the core's loop: the calls so far, its values and the next state."""

    nfev: int
    f: Any
    state: State


def iterations(fun: Function, algorithm: IGO, seed: int, budget: int, tell: Tell = IGO.tell) -> Iterator[Iteration]:
    """Run the core's loop, for noise and for variants that are not part of the library."""
    rng, state, nfev = np.random.default_rng(seed), algorithm.init(), 0
    while nfev < budget:
        x = algorithm.ask(state, rng)
        f = fun(x)
        nfev += len(f)
        state = tell(algorithm, state, x, f)
        yield Iteration(nfev, f, state)


def last(each: Iterable[Iteration]) -> Iteration:
    for iteration in each:  # noqa: B007
        pass
    return iteration


def calls_of_variant(problem: Function, algorithm: IGO, seeds: range, tell: Tell = IGO.tell) -> str:
    """Return the median calls to the optimum, in the core."""

    def one(seed: int) -> float:
        for i in iterations(problem, algorithm, seed, CAP, tell):
            if i.f.min() <= 0:
                return i.nfev - len(i.f) + int(i.f.argmin()) + 1
        return math.inf

    return median(map(one, seeds))


def one_plus_one(fun: Function, n: int, seed: int, budget: int, again: bool = False) -> tuple[int, Any]:
    """A (1+1)-EA until a value of 0: each bit flips with probability 1/n, at least one does; calls, and the point.

    The value of the current point is stored, or evaluated `again` with each new one.
    """
    rng, nfev = np.random.default_rng(seed), 1
    x = rng.integers(0, 2, n, dtype=np.int8)
    value = fun(x)
    while nfev < budget and (again or value > 0):
        flips = rng.random(n) < 1 / n
        while not flips.any():
            flips = rng.random(n) < 1 / n
        if again:
            value, nfev = fun(x), nfev + 1
        child = x ^ flips
        child_value, nfev = fun(child), nfev + 1
        if child_value <= value:
            x, value = child, child_value
    return nfev, x


def median(numbers: Iterable[float]) -> str:
    return f"{statistics.median(numbers):,.0f}"


def wrong(x: Any) -> int:
    return int((x == 0).sum())


# Variants that are not part of the library.


def divided(f: Any) -> Any:
    """The weights of `Quartiles` divided by their mean before centering, λ/μ: +1, 0 and −1."""
    return Quartiles()(f) * -(-len(f) // 4) / len(f)


def tell_whitening_after(algorithm: IGO, state: State, x: Any, f: Any) -> State:
    """Line 12 with the θ that line 11 has written.

    The gradient of centered weights does not depend on θ, so that a second `tell`, at the new θ and with the old
    signal, whitens the same gradient there.
    """
    theta = algorithm.tell(state, x, f).theta
    return state._replace(theta=theta, signal=algorithm.tell(state._replace(theta=theta), x, f).signal)


@dataclass(frozen=True)
class Exponential:
    """A `Gaussian` whose σ² is updated to σ² exp(g), with g clipped to [−½, ½]."""

    inner: Gaussian

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def move(self, theta: Any, step: Any) -> Any:
        """Update in two halves, so that none is clipped: the family's rule is σ²/(1 − h), with h = 1 − exp(−g/2)."""
        m, second = theta.reshape(2, -1)
        dm, dsecond = step.reshape(2, -1)
        g = np.clip((dsecond - 2.0 * m * dm) / (second - m * m), -0.5, 0.5)
        h = -np.expm1(-g / 2.0)
        for mean in (np.zeros_like(dm), dm):
            variance = theta[len(m) :] - m * m
            theta = self.inner.move(theta, np.concatenate([mean, 2.0 * m * mean + h * variance]))
        return theta


# The rows of the documents.


def bits(seeds: range) -> Rows:
    n, noisy, far = 100, 60_000, 50_000
    binary = Bernoulli(n)
    both = kl.pbil_lambda(binary), kl.algorithms.cga(binary)
    for name, problem in (
        ("OneMax: the number of wrong bits", OneMax(n)),
        ("LeadingOnes: only the first wrong bit has an effect", LeadingOnes(n)),
    ):
        ea = median(one_plus_one(problem, n, seed, CAP)[0] for seed in seeds)
        ours, cga = (calls(problem, algorithm, seeds) for algorithm in both)
        yield name, [ours, median(run.nfev for run in certain(problem, seeds)), cga, ea]

    def modes(algorithm: IGO) -> list[int]:
        ends = (last(iterations(NoisyOneMax(n, 10, seed), algorithm, seed, noisy)).state.theta for seed in seeds)
        return [wrong(binary.mode(theta)) for theta in ends]

    def ends(again: bool) -> list[int]:
        return [wrong(one_plus_one(NoisyOneMax(n, 10, seed), n, seed, noisy, again)[1]) for seed in seeds]

    ours, cga = (span(modes(algorithm)) for algorithm in both)
    yield (
        f"OneMax under noise of deviation 10: wrong bits after {noisy:,} evaluations",
        [ours, "", cga, span(ends(False))],
    )
    yield "the same, the EA's current point evaluated again at every step", ["", "", "", span(ends(True))]

    deceptive = Traps(50)

    def solved(x: Any) -> int:
        return int(x.reshape(-1, deceptive.k).all(axis=1).sum())

    found = []
    for algorithm in (kl.pbil_lambda(Bernoulli(50)), kl.algorithms.cga(Bernoulli(50))):
        found.append(span([solved(r.best_x) for r in fast.trials(deceptive, algorithm, seeds, budget=far, jobs=1)]))
    found.insert(1, span([solved(run.x) for run in certain(deceptive, seeds, far)]))
    ea = span([solved(one_plus_one(deceptive, 50, seed, far)[1]) for seed in seeds])
    yield f"ten deceptive traps of five bits: traps solved after {far:,} evaluations", [*found, ea]


def span(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return median(counts) + ("" if low == high else f" ({low} to {high})")


def budget(seeds: range) -> Rows:
    for problem in (OneMax, LeadingOnes):
        cells = []
        for n in (30, 100, 300, 1000):
            runs = fast.trials(problem(n), kl.pbil_lambda(Bernoulli(n)), seeds, budget=10 * CAP, target=0, jobs=1)
            each = [run.nfev / n if run.best <= 0 else math.inf for run in runs]
            cells.append(f"{median(each)} n, {max(each):,.0f} n")
        yield f"{problem.__name__}, median and longest run", cells
    for problem in (OneMax, LeadingOnes):
        each_n = {n: [run.nfev / n for run in certain(problem(n), seeds, 10 * CAP)] for n in (30, 100, 300, 1000)}
        cells = [f"{median(each)} n, {max(each):,.0f} n" for each in each_n.values()]
        yield f"{problem.__name__}, `deterministic=True`", cells


def few(seeds: range) -> Rows:
    n, problem = 100, OneMax(100)
    random, learned = [], []
    for budget in (50, 500):
        algorithm = kl.pbil_lambda(Bernoulli(n))
        learned.append(median(run.best for run in fast.trials(problem, algorithm, seeds, budget=budget, jobs=1)))
        points = (np.random.default_rng(seed).integers(0, 2, (budget, n), dtype=np.int8) for seed in seeds)
        random.append(median(problem(x).min() for x in points))
    yield "knobless", learned
    certainly = [median(run.fun for run in certain(problem, seeds, budget)) for budget in (50, 500)]
    yield "knobless, `deterministic=True`", certainly
    yield "random points", random


def weights(seeds: range) -> Rows:
    for problem in (OneMax(100), LeadingOnes(100), OneMax(1000)):
        binary = Bernoulli(problem.n)
        plain = kl.pbil_lambda(binary)
        other = IGO(binary, divided, plain.adaptation)
        large = kl.algorithms.cga(binary, eps=problem.n**-0.5)
        cells = [calls(problem, plain, seeds), calls_of_variant(problem, other, seeds)]
        yield (
            f"{type(problem).__name__}, n = {problem.n:,}",
            [
                *cells,
                calls(problem, large, seeds) if isinstance(problem, OneMax) else "",
            ],
        )


def whitening(seeds: range) -> Rows:
    for problem in (OneMax(50), LeadingOnes(50)):
        for name, recipe in (("PBIL-λ", kl.pbil_lambda), ("PBIL-ε", kl.pbil_epsilon)):
            algorithm = recipe(Bernoulli(50))
            after = calls_of_variant(problem, algorithm, seeds, tell_whitening_after)
            yield f"{name}, {type(problem).__name__}, n = 50", [calls(problem, algorithm, seeds), after]


def pure_noise(seed: int) -> Function:
    rng = np.random.default_rng([seed, 1])
    return lambda x: rng.random(len(x))


def unbounded(seeds: range) -> Rows:
    algorithm = IGO(Bernoulli(100), Quartiles(), SNR(eps=0.1, lam_max=math.inf))
    for spent in (20_000, 200_000):
        ends = [last(iterations(pure_noise(seed), algorithm, seed, spent)).state for seed in seeds]
        lam = [algorithm.lam(state) for state in ends]
        yield f"λ after {spent:,} evaluations", [f"{min(lam):,}", median(lam), f"{max(lam):,}"]


def variance(seeds: range) -> Rows:
    number = kl.Space.of(kl.Float(0, 1)).family
    start = spread(number.initial())
    for name, family in (("σ²/(1 − g)", number), ("σ² exp(g)", Exponential(number))):
        algorithm = kl.pbil_lambda(family)
        runs = [
            [spread(i.state.theta) / start for i in iterations(pure_noise(seed), algorithm, seed, 20_000)]
            for seed in seeds
        ]
        middle = statistics.median(map(statistics.median, runs))
        yield name, [f"{middle:.1g}", f"{statistics.median(map(min, runs)):.1g}"]


def spread(theta: Any) -> float:
    return float(theta[1] - theta[0] ** 2)


def strict(x: Any, f: float, pyramid: Any, stream: Any) -> Any:
    """The original's climb: only changes that improve, until none does."""
    while True:
        before = f
        for i, by in pyramid.changes[stream.permutation(len(pyramid.changes))].tolist():
            old = x[i]
            x[i] = (old + by) % pyramid.options[i]
            value = yield x
            if value < f:
                f = value
            else:
                x[i] = old
        if f == before:
            return f


def deterministic_calls(problem: Any, algorithm: Any, seeds: range) -> str:
    """Calls to the optimum, each point evaluated once; interpreted, so that components can be replaced."""
    space = kl.Binary(problem.n)
    runs = [
        kl.minimize(
            lambda x: float(problem(x)),
            space,
            budget=50_000,
            target=0,
            algorithm=algorithm(space),
            deterministic=True,
            rng=seed,
        )
        for seed in seeds
    ]
    return median(run.nfev if run.success else math.inf for run in runs)


STRUCTURED = {
    "`OneMax(1000)`": OneMax(1000),
    "`LeadingOnes(100)`": LeadingOnes(100),
    "`Jump(20, 3)`": Jump(20, 3),
    "`IsingTorus(10)`": IsingTorus(10),
    "`IsingRing(50)`": IsingRing(50),
    "`Traps(50, 5)`": Traps(50, 5),
}


def climbs(seeds: range) -> Rows:
    module = sys.modules["knobless.core.p3"]
    for name, problem in STRUCTURED.items():
        here, climb = deterministic_calls(problem, p3, seeds), module.climb  # type: ignore[attr-defined]
        module.climb = strict  # type: ignore[attr-defined]
        try:
            yield f"{name}, P3", [here, deterministic_calls(problem, p3, seeds)]
        finally:
            module.climb = climb  # type: ignore[attr-defined]


def beyond(seeds: range) -> Rows:
    recipes = (kl.pbil_lambda, pbil_elitist, p3, kl.search)
    for name, problem in STRUCTURED.items():
        yield name, [deterministic_calls(problem, recipe, seeds) for recipe in recipes]


READINGS: dict[str, tuple[str, str, Callable[[range], Rows]]] = {
    "bits": (COMPARISON, "100 bits: knobless | `deterministic=True` | cGA, ε = 1/n | (1+1)-EA", bits),
    "budget": (READ, "calls to the optimum in multiples of n, n = 30 | 100 | 300 | 1,000", budget),
    "few": (READ, "smallest number of wrong bits of 100 after 50 | 500 evaluations", few),
    "weights": (READ, "calls: weights as here | divided by λ/μ | cGA, ε = n^-½", weights),
    "whitening": (READ, "calls: whitened with θ before | after the update", whitening),
    "unbounded": (READ, "pure noise, 100 bits, λ_max = ∞: minimum | median | maximum of λ", unbounded),
    "variance": (READ, "pure noise, one float: median | minimum of σ² in a run, relative to the start", variance),
    "climbs": (READ, "calls: climbs as here | until no neighbor is better", climbs),
    "beyond": (READ, "calls: PBIL-λ | with elitism | P3 | recommended search", beyond),
}


def printed(document: str) -> dict[str, list[str]]:
    """Return the rows of a document's tables by their first cell."""
    lines = (line.strip() for line in (ROOT / document).read_text(encoding="utf-8").splitlines())
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|"))
    return {first: others for first, *others in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=READINGS, metavar="NAME", help=", ".join(READINGS))
    parser.add_argument("--seeds", type=int, default=11)
    options = parser.parse_args()
    for name, (document, title, measure) in READINGS.items():
        if options.only not in (None, name):
            continue
        start = time.perf_counter()
        print(f"{name} ({document}): {title}")
        for first, cells in measure(range(options.seeds)):
            told = printed(document).get(first)
            print(f"  {first}\n    measured | " + " | ".join(cells))
            print("    printed  | " + ("no such row" if told is None else " | ".join(told)), flush=True)
        print(f"  {time.perf_counter() - start:.0f} s\n")


if __name__ == "__main__":
    main()
