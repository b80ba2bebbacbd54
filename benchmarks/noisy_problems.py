"""Noisy objectives whose noiseless value and optimum are known, for noise.py.

A point is a vector: one index of an option per discrete variable, then the numbers, each in [0, 1]. By seed, bits are
flipped, options are shuffled and the optimum of numbers is moved, so that no search gains from where it starts.
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grids import GRIDS, Plain

Vector = Any
SIMULATIONS, TRUE_SIMULATIONS, STAGES = 100, 200_000, 25


class Noisy(NamedTuple):
    """An instance of a problem.

    Attributes
    ----------
    sizes : tuple of int
        Number of options of each discrete variable.
    numbers : int
        Number of variables in [0, 1].
    evaluate : callable
        One noisy evaluation: a point to its objective value, to be minimized.
    regret : callable
        The noiseless value of a point minus the least one; for a table, the rank of the point in 10,000.
    """

    sizes: tuple[int, ...]
    numbers: int
    evaluate: Callable[[Vector], float]
    regret: Callable[[Vector], float]


class Kind(NamedTuple):
    """A problem.

    Attributes
    ----------
    make : callable
        A generator for the instance and its noise, and the folder of the tables, to the instance.
    step : float
        The least difference of regrets that counts; 0 for a table, whose regret is never 0.
    file : str
        The file of a table in the folder.
    """

    make: Callable[[np.random.Generator, Path], Noisy]
    step: float = 1.0
    file: str = ""


def gaussian(rng: np.random.Generator, n: int, sigma: float, regret: Callable[[Vector], float]) -> Noisy:
    """Return a function of flipped bits with normal noise."""
    mask = rng.integers(0, 2, n)

    def true(x: Vector) -> float:
        return regret(np.asarray(x) ^ mask)

    return Noisy((2,) * n, 0, lambda x: true(x) + sigma * rng.standard_normal(), true)


def zeros(x: Vector) -> float:
    return float(len(x) - np.count_nonzero(x))


def onemax(n: int, variance: float, rng: np.random.Generator, data: Path) -> Noisy:
    return gaussian(rng, n, math.sqrt(variance), zeros)


def leading_ones(rng: np.random.Generator, data: Path) -> Noisy:
    return gaussian(rng, 30, math.sqrt(7.5), lambda x: float(30 - np.append(x, 0).argmin()))


def twomax(rng: np.random.Generator, data: Path) -> Noisy:
    return gaussian(rng, 30, 2.7, lambda x: min(zeros(x), 30.0 - zeros(x)))


def ising_ring(rng: np.random.Generator, data: Path) -> Noisy:
    return gaussian(rng, 20, 1.0, lambda x: float(np.count_nonzero(x != np.roll(x, 1))))


def nk(rng: np.random.Generator, data: Path) -> Noisy:
    """Return an NK landscape of 30 bits: each contributes with its three successors on a ring."""
    n, k = 30, 3
    table = rng.random((n, 2 ** (k + 1)))
    least = ring_minimum(table, k)
    places, rows = 2 ** np.arange(k, -1, -1), np.arange(n)

    def regret(x: Vector) -> float:
        windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([x, x[:k]]), k + 1)
        return float(table[rows, windows @ places].sum() - least)

    return gaussian(rng, n, 1.0, regret)


def ring_minimum(table: Any, k: int) -> float:
    """Return the least sum of contributions on a ring, by dynamic programming from each start of k bits."""
    states = 2**k
    cost = np.full((states, states), np.inf)  # from the first k bits to the current k bits
    np.fill_diagonal(cost, 0.0)
    for row in table:
        following = np.full_like(cost, np.inf)
        for state in range(states):
            for bit in (0, 1):
                window = 2 * state + bit
                after = window % states
                following[:, after] = np.minimum(following[:, after], cost[:, state] + row[window])
        cost = following
    return float(cost.diagonal().min())


def win_lose(rng: np.random.Generator, data: Path) -> Noisy:
    """Return OneMax of 30 bits where a game is observed: 1 for a loss, with probability .2 + .6 mistakes/30."""
    quiet = gaussian(rng, 30, 0.0, zeros)
    return quiet._replace(evaluate=lambda x: float(rng.random() < 0.2 + 0.6 * quiet.regret(x) / 30.0))


def mixed(rng: np.random.Generator, data: Path) -> Noisy:
    """Return 8 bits, 4 choices of 4 and 4 numbers; separable but for one interaction, σ = .5."""
    bits = rng.integers(0, 2, 8)
    costs = np.array([rng.permutation([0.0, 0.3, 0.6, 0.9]) for _ in range(4)])
    center = rng.uniform(0.2, 0.8, 4)

    def regret(x: Vector) -> float:
        wrong = np.asarray(x[:8]) != bits
        chosen = costs[np.arange(4), np.asarray(x[8:12], dtype=int)]
        distance = np.asarray(x[12:], dtype=float) - center
        interaction = 0.5 * (wrong[0] and chosen[0] > 0.0)
        return float(0.5 * np.count_nonzero(wrong) + chosen.sum() + 4.0 * distance @ distance + interaction)

    return Noisy((2,) * 8 + (4,) * 4, 4, lambda x: regret(x) + 0.5 * rng.standard_normal(), regret)


# Contamination control and pest control: in each simulation a level grows, or is reduced, by a random share per stage.

Draw = Callable[[int, float], Any]  # a stage, or -1 for the start, and b: shares from Beta(1, b), one per simulation


def by_uniforms(u: Any) -> Draw:
    """Return draws by inversion: one row of u per stage, and the last one for the start."""
    return lambda stage, b: 1.0 - u[stage] ** (1.0 / b)


@cache
def true_draws() -> Draw:
    """Return the draws of the noiseless values: the same for all points."""
    return by_uniforms(np.random.default_rng(20_19).random((STAGES + 1, TRUE_SIMULATIONS), dtype=np.float32))


def spread(level: Any, draw: Draw, stage: int, control: float | None) -> Any:
    """Return the next level: reduced by a share from Beta(1, control), or else grown by one from Beta(1, 17/3)."""
    if control is None:
        return level + draw(stage, 17.0 / 3.0) * (1.0 - level)
    return (1.0 - draw(stage, control)) * level


def contamination_cost(x: Vector, draw: Draw) -> float:
    level, cost = draw(-1, 30.0), 0.0
    for i in range(STAGES):
        level = spread(level, draw, i, 3.0 / 7.0 if x[i] else None)
        cost += 1.01 * x[i] + 0.95 - np.count_nonzero(level < 0.1) / level.size
    return float(cost)


PRICE, DISCOUNT = (1.0, 0.8, 0.7, 0.5), (0.2, 0.3, 0.3, 0.0)
CONTROL, RESISTANCE = (2 / 7, 3 / 7, 3 / 7, 5 / 7), (1 / 7, 2.5 / 7, 2 / 7, 0.5 / 7)


def pest_cost(x: Vector, draw: Draw) -> float:
    level, cost, uses = draw(-1, 30.0), 0.0, [0, 0, 0, 0]
    for i in range(STAGES):
        cost += np.count_nonzero(level > 0.1) / level.size
        b = None
        if x[i]:
            use = int(x[i]) - 1
            b = CONTROL[use] + uses[use] * RESISTANCE[use] / STAGES
            uses[use] += 1
        level = spread(level, draw, i, b)
    each = zip(uses, PRICE, DISCOUNT, strict=True)
    return float(cost + sum(count * price * (1.0 - most * count / STAGES) for count, price, most in each))


def simulated(
    cost: Callable[[Vector, Draw], float], options: int, least: float, rng: np.random.Generator, data: Path
) -> Noisy:
    """Return the mean over 100 simulations, drawn anew for each evaluation.

    `least` is the lowest noiseless value that long deterministic runs have found.
    """
    shuffled = np.array([rng.permutation(options) for _ in range(STAGES)])
    stages = np.arange(STAGES)

    def evaluate(x: Vector) -> float:
        return cost(shuffled[stages, np.asarray(x, dtype=int)], by_uniforms(rng.random((STAGES + 1, SIMULATIONS))))

    def regret(x: Vector) -> float:
        return max(cost(shuffled[stages, np.asarray(x, dtype=int)], true_draws()) - least, 0.0)

    return Noisy((options,) * STAGES, 0, evaluate, regret)


# Tables of trained networks: one training, drawn at random, instead of the mean.


@cache
def trainings(path: Path, measure: str, sense: int) -> tuple[Any, Any, Any]:
    """Return the values of all trainings as costs, their number and the rank of their mean, by configuration."""
    with lzma.open(path) as file:
        rows = Plain(file).load()
    keys = np.array([[int(c, 36) for c in key] for key in rows])
    shape = tuple(keys.max(axis=0) + 1)
    most = max(len(row[measure]) for row in rows.values())
    costs, counts = np.zeros((*shape, most)), np.zeros(shape, dtype=int)
    for key, row in zip(map(tuple, keys), rows.values(), strict=True):
        counts[key] = len(row[measure])
        costs[key][: counts[key]] = -sense * np.asarray(row[measure], dtype=float)
    means = (costs.sum(axis=-1) / counts).ravel()
    ranks = 10_000.0 * np.searchsorted(np.sort(means), means) / means.size + 0.5
    return costs, counts, ranks.reshape(shape)


def table(name: str, rng: np.random.Generator, data: Path) -> Noisy:
    grid = GRIDS[name]
    costs, counts, ranks = trainings(data / grid.file, grid.measure, grid.sense)
    shuffled = [rng.permutation(options) for options in counts.shape]

    def row(x: Vector) -> tuple[int, ...]:
        return tuple(int(order[int(i)]) for order, i in zip(shuffled, x, strict=True))

    def evaluate(x: Vector) -> float:
        key = row(x)
        return float(costs[(*key, rng.integers(counts[key]))])

    return Noisy(counts.shape, 0, evaluate, lambda x: float(ranks[row(x)]))


def from_table(name: str) -> Kind:
    return Kind(partial(table, name), 0.0, GRIDS[name].file)


PROBLEMS = {
    "OneMax 30, σ²=30": Kind(partial(onemax, 30, 30.0)),
    "OneMax 30, σ²=7.5": Kind(partial(onemax, 30, 7.5)),
    "OneMax 100, σ²=100": Kind(partial(onemax, 100, 100.0)),
    "OneMax 100, σ²=25": Kind(partial(onemax, 100, 25.0)),
    "LeadingOnes 30": Kind(leading_ones),
    "NAS-Bench-201": from_table("NAS-Bench-201 CIFAR-10"),
    "vehicle": from_table("HPOBench vehicle"),
    "protein": from_table("HPOlib protein structure"),
    "contamination": Kind(partial(simulated, contamination_cost, 2, 21.8545), 0.01),
    "pest": Kind(partial(simulated, pest_cost, 5, 12.0079), 0.01),
    "mixed": Kind(mixed, 0.01),
    "TwoMax 30": Kind(twomax),
    "Ising ring 20": Kind(ising_ring),
    "NK 30": Kind(nk, 0.01),
    "win/lose": Kind(win_lose),
}
