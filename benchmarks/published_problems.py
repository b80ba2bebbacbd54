"""Problems with published results, as their authors define them, for published.py.

All are costs to be minimized; `Problem.value` converts a cost to the published quantity. By seed, bits are flipped and
options are shuffled, so that no search gains from where it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

import knobless as kl
from knobless import fast
from knobless.fast.kernels import KERNELS
from knobless.fast.shared import OBJECTIVE
from knobless.problems.dimacs import read_dimacs
from noisy_problems import SIMULATIONS, STAGES, Draw, by_uniforms, contamination_cost, pest_cost, true_draws


class Instance(NamedTuple):
    """What a run minimizes, over which space, and the noiseless value of a point if the objective is noisy."""

    fun: Callable[[Any], float]
    space: Any
    true: Callable[[Any], float] | None = None


class Problem(NamedTuple):
    """A problem with published results.

    Attributes
    ----------
    make : callable
        The number of a run, a generator and the folder of the data to the instance.
    published : dict
        Value by method.
    evaluations : tuple of int
        Budgets; the published values are for the first.
    optimum : float, optional
        The cost that ends a run.
    value : callable
        A cost to the published quantity.
    maximized : bool
        Whether large values of this quantity are good.
    """

    make: Callable[[int, np.random.Generator, Path], Instance]
    published: dict[str, float]
    evaluations: tuple[int, ...]
    optimum: float | None = None
    value: Callable[[float], float] = float
    maximized: bool = False


# COMBO.


def on_flipped(cost: Callable[[Any], float], n: int, rng: np.random.Generator) -> Instance:
    mask = rng.integers(0, 2, n, dtype=np.int8)
    return Instance(lambda x: cost(x ^ mask), kl.Binary(n))


@cache
def combo_cases() -> tuple[int, ...]:
    """Return the seeds of COMBO's five cases; five initial seeds, which are not used here, follow each of them."""
    rng = np.random.RandomState(sum(map(ord, "2019ICML_CONTAMINATION")))
    return tuple((int(rng.randint(0, 10_000)), rng.randint(0, 10_000, 5))[0] for _ in range(5))


@cache
def combo_draw(case: int) -> Draw:
    """Return the draws of a case: an array for each distribution, all from the same state of the generator."""

    @cache
    def shares(b: float) -> Any:
        return np.random.RandomState(case).beta(1.0, b, size=(STAGES, SIMULATIONS))

    return lambda stage, b: shares(b)[max(stage, 0)]  # the start is the first row of its own array


def contamination(number: int, rng: np.random.Generator, data: Path) -> Instance:
    draw = combo_draw(combo_cases()[number // 5 % 5])
    return on_flipped(lambda x: contamination_cost(x, draw), STAGES, rng)


def pest(cost: Callable[[Any], float], true: Callable[[Any], float] | None, rng: np.random.Generator) -> Instance:
    shuffled, stages = np.array([rng.permutation(5) for _ in range(STAGES)]), np.arange(STAGES)

    def original(x: Any) -> Any:
        return shuffled[stages, np.asarray(x, dtype=int)]

    space = [kl.Choice(*range(5)) for _ in range(STAGES)]
    return Instance(lambda x: cost(original(x)), space, true and (lambda x: true(original(x))))


def noisy_pest(number: int, rng: np.random.Generator, data: Path) -> Instance:
    noise = np.random.default_rng(rng.integers(2**63))

    def cost(x: Any) -> float:
        return pest_cost(x, by_uniforms(noise.random((STAGES + 1, SIMULATIONS))))

    return pest(cost, lambda x: pest_cost(x, true_draws()), rng)


@cache
def seeded_share(b: float) -> Any:
    return np.random.RandomState(0).beta(1.0, b, size=SIMULATIONS)


def seeded_pest(number: int, rng: np.random.Generator, data: Path) -> Instance:
    return pest(lambda x: pest_cost(x, lambda stage, b: seeded_share(b)), None, rng)


def weighted_max_sat(file: str, number: int, rng: np.random.Generator, data: Path) -> Instance:
    """Return minus the standardized weight of the satisfied clauses; light clauses count negatively."""
    clauses, weights, n = read_dimacs(data / "maxsat_combo" / file)
    longest = max(map(len, clauses))
    literals = np.array([clause + clause[-1:] * (longest - len(clause)) for clause in clauses])
    variable, positive = abs(literals) - 1, literals > 0
    standardized = (np.array(weights) - np.mean(weights)) / np.std(weights)

    def cost(x: Any) -> float:
        return -float(standardized[(x[variable] == positive).any(axis=1)].sum())

    return on_flipped(cost, n or variable.max() + 1, rng)


def branin(number: int, rng: np.random.Generator, data: Path) -> Instance:
    """Return Branin's function on 51 × 51 points; each axis is reversed by seed."""
    reverse = rng.integers(0, 2, 2)
    grid = np.linspace(-1.0, 1.0, 51)

    def cost(x: Any) -> float:
        a, b = (grid[50 - i if back else i] for i, back in zip(x, reverse, strict=True))
        x1, x2 = 7.5 * a + 2.5, 7.5 * b + 7.5
        curve = x2 - 5.1 / (4.0 * np.pi**2) * x1**2 + 5.0 / np.pi * x1 - 6.0
        return float(curve**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(x1) + 10.0)

    return Instance(cost, [kl.Integer(0, 50), kl.Integer(0, 50)])


# MCBO.


def ackley(number: int, rng: np.random.Generator, data: Path) -> Instance:
    """Return Ackley's function of 50 bits and 3 floats."""
    mask = rng.integers(0, 2, 50)

    def cost(x: Any) -> float:
        z = np.concatenate([x["bits"] ^ mask, [x["a"], x["b"], x["c"]]])
        distance, waves = np.sqrt(z @ z / 53.0), np.cos(2.0 * np.pi * z).mean()
        return float(20.0 + np.e - 20.0 * np.exp(-0.2 * distance) - np.exp(waves))

    return Instance(cost, kl.Space(bits=kl.Binary(50), **{name: kl.Float(-1.0, 1.0) for name in "abc"}))


# HNCO: compiled, as costs: the maximum minus the value.


def hiff(x, ints, reals):  # type: ignore[no-untyped-def]
    """HIFF: every block of 1, 2, 4, … bits whose bits are equal counts with its size."""
    value, size = x.size, 2
    while size <= x.size:
        for begin in range(0, x.size, size):
            ones = 0
            for i in range(begin, begin + size):
                ones += x[i]
            if ones in (0, size):
                value += size
        size *= 2
    return float(ints[0] - value)


def trap(x, ints, reals):  # type: ignore[no-untyped-def]
    """Traps of ten bits: 10 if all are one, otherwise 9 minus the number of ones."""
    value = 0
    for begin in range(0, x.size, 10):
        ones = 0
        for i in range(begin, begin + 10):
            ones += x[i]
        value += 10 if ones == 10 else 9 - ones
    return float(x.size - value)


def four_peaks(x, ints, reals):  # type: ignore[no-untyped-def]
    """Four peaks: the larger of leading ones and trailing zeros, and n if both exceed ints[0]."""
    n = x.size
    head = tail = 0
    while head < n and x[head] == 1:
        head += 1
    while tail < n and x[n - 1 - tail] == 0:
        tail += 1
    threshold = ints[0]
    value = max(head, tail) + (n if min(head, tail) > threshold else 0)
    return float(2 * n - threshold - 1 - value)


def path_length(x: Any) -> int:
    """Return the number of ones if they all come first, otherwise -1."""
    ones = 0
    while ones < x.size and x[ones] == 1:
        ones += 1
    for i in range(ones, x.size):
        if x[i]:
            return -1
    return ones


compiled_path_length = njit(path_length)


def ridge(x, ints, reals):  # type: ignore[no-untyped-def]
    """Ridge: n plus the number of ones if they all come first, otherwise the number of zeros."""
    ones = compiled_path_length(x)
    return float(x.size - ones if ones >= 0 else x.size + x.sum())


def plateau(x, ints, reals):  # type: ignore[no-untyped-def]
    """Plateau: n + 1 if all ones come first, n + 2 if there are only ones, otherwise the number of zeros."""
    ones = compiled_path_length(x)
    if ones < 0:
        return float(x.sum() + 2)
    return 0.0 if ones == x.size else 1.0


@cache
def on_flipped_bits(kernel: Any) -> Any:
    """Return the compiled kernel on flipped bits: its data follow the mask."""
    inner = njit(OBJECTIVE)(kernel)

    @njit(OBJECTIVE)
    def flipped(x, ints, reals):  # type: ignore[no-untyped-def]
        y = np.empty_like(x)
        for i in range(x.size):
            y[i] = x[i] ^ np.int8(ints[i])
        return inner(y, ints[x.size :], reals)

    return flipped


def hnco(kernel: Any, n: int, ints: tuple[int, ...], number: int, rng: np.random.Generator, data: Path) -> Instance:
    values = np.concatenate([rng.integers(0, 2, n), np.array(ints, dtype=np.int64)])
    return Instance(fast.Objective(on_flipped_bits(kernel), values, n=n), kl.Binary(n))


def maximum(kernel: Any, largest: float, published: dict[str, float], n: int = 100, ints: Any = ()) -> Problem:
    """Return a problem of HNCO whose largest value is known."""
    make = partial(hnco, kernel, n, ints)
    return Problem(make, published, (300_000,), 0.0, lambda cost: largest - cost, True)


COMBO = {
    "contamination": Problem(
        contamination,
        {"COMBO": 21.445, "BOCS": 21.526, "SA": 21.615, "SMAC": 21.653, "TPE": 21.847},
        (270,),
    ),
    "pest control": Problem(noisy_pest, {"COMBO": 12.007, "SA": 12.728, "SMAC": 14.265, "TPE": 15.00}, (320,)),
    "pest control, seeded": Problem(seeded_pest, {"best known": 12.0316}, (320, 200)),
    "MaxSAT 28": Problem(
        partial(weighted_max_sat, "maxcut-johnson8-2-4.clq.wcnf"),
        {"COMBO": -37.8, "BOCS": -34.8, "SMAC": -20.0, "TPE": -24.6},
        (270,),
    ),
    "MaxSAT 43": Problem(
        partial(weighted_max_sat, "maxcut-hamming8-2.clq.wcnf"),
        {"COMBO": -85.0, "SA": -75.8, "SMAC": -57.0, "TPE": -51.0},
        (270,),
    ),
    "MaxSAT 60": Problem(
        partial(weighted_max_sat, "frb-frb10-6-4.wcnf"),
        {"COMBO": -195.65, "SA": -186.5, "SMAC": -149.0, "TPE": -136.0},
        (270,),
    ),
    "Branin": Problem(branin, {"COMBO": 0.457, "SMAC": 0.718, "TPE": 0.816}, (100,)),
}
MCBO = {
    "Ackley-53": Problem(
        ackley,
        {"best mix": 0.15, "BODi": 0.21, "Casmopolitan": 0.24, "hill climbing": 0.72, "SA": 0.83, "GA": 2.06},
        (200, 400),
    )
}
HNCO = {
    "HIFF 128": maximum(hiff, 1024.0, {"best of ten": 770.0}, 128, (1024,)),
    "Trap 10 × 10": maximum(trap, 100.0, {"best of ten": 91.0}),
    "LABS 100, merit factor": Problem(
        partial(hnco, KERNELS["labs"], 100, ()),
        {"GA": 5.061, "SA": 4.817},
        (300_000,),
        value=lambda energy: 100.0**2 / (2.0 * energy),
        maximized=True,
    ),
    "Jump, k = 5": maximum(KERNELS["jump"], 100.0, {"best of ten": 100.0}, ints=(5,)),
    "four peaks, T = 5": maximum(four_peaks, 194.0, {"best of ten": 194.0}, ints=(5,)),
    "ridge": maximum(ridge, 200.0, {"best of ten": 200.0}),
    "plateau": maximum(plateau, 102.0, {"best of ten": 102.0}),
    "LeadingOnes": maximum(KERNELS["leading_ones"], 100.0, {"best of ten": 100.0}),
}
GROUPS = {"combo": COMBO, "mcbo": MCBO, "hnco": HNCO}
PROBLEMS = COMBO | MCBO | HNCO
