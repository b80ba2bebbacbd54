"""Compiled objectives that count their evaluations, with or without noise, for parameterless.py.

All are costs of bits with the minimum 0, by the kernels of `knobless.fast` and two more. `ints` begins with the number
of evaluations, the first of them at the optimum (0 for none) and the state of the generator of the noise; `reals`
begins with the standard deviation of the noise.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from knobless import fast
from knobless.fast.kernels import KERNELS, Kernel
from knobless.fast.shared import OBJECTIVE

COUNT, FIRST, STATE, DATA = range(4)
TURN = 2.0 * math.pi


@njit(cache=True)
def mixed(word: Any) -> Any:
    """Return the output of SplitMix64 for a state."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@njit(cache=True)
def next_word(state: Any) -> Any:
    """Advance a generator, an array of one unsigned integer, and return 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    return mixed(state[0])


@njit(cache=True)
def normal(ints: Any) -> float:
    """Advance the generator of the noise and return a standard normal number, by Box and Muller."""
    state = ints[STATE : STATE + 1].view(np.uint64)
    u = (next_word(state) >> np.uint64(11)) * 2.0**-53
    return math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(TURN * 2.0**-53 * (next_word(state) >> np.uint64(11)))


def deceptive_leading_blocks(x, ints, reals):  # type: ignore[no-untyped-def]
    """n minus DLB: 2 per leading block 11, and 1 if 00 follows."""
    n, i = x.size, 0
    while i < n and x[i] + x[i + 1] == 2:
        i += 2
    return float(n - i) if i == n or x[i] + x[i + 1] == 1 else float(n - i - 1)


def independent_set(x, ints, reals):  # type: ignore[no-untyped-def]
    """ints[0] minus ioh's F22, the number of ones minus n for each edge between two of them."""
    n, half = x.size, x.size // 2
    ones, edges = 0, 0
    for i in range(n):
        ones += x[i]
    for i in range(n - 1):
        if i != half - 1:
            edges += x[i] & x[i + 1]
    for i in range(half - 1):
        edges += (x[i] & x[i + half + 1]) + (x[i + 1] & x[i + half])
    return float(ints[0] - ones + n * edges)


@cache
def counted(kernel: Kernel) -> Any:
    """Return the compiled kernel with a count of evaluations and with noise."""
    inner = njit(OBJECTIVE)(kernel)

    @njit(OBJECTIVE)
    def noisy(x, ints, reals):  # type: ignore[no-untyped-def]
        value = inner(x, ints[DATA:], reals[1:])
        ints[COUNT] += 1
        if value == 0.0 and ints[FIRST] == 0:
            ints[FIRST] = ints[COUNT]
        return value + reals[0] * normal(ints) if reals[0] > 0.0 else value

    return noisy


class Problem(NamedTuple):
    """A kernel, its data, and the standard deviation of the noise."""

    kernel: Kernel
    ints: tuple[int, ...] = ()
    sigma: float = 0.0
    n: int = 100

    def objective(self, seed: int) -> fast.Objective:
        """Return the objective of a run."""
        return fast.Objective(counted(self.kernel), np.array([0, 0, seed, *self.ints]), np.array([self.sigma]), self.n)


K = 5  # of Jump
NOISE = {
    "OneMax": Problem(KERNELS["one_max"], sigma=5.0),
    "LeadingOnes": Problem(KERNELS["leading_ones"], sigma=5.0),
    f"Jump, k = {K}": Problem(KERNELS["jump"], (K,), 5.0),
    "DeceptiveLeadingBlocks": Problem(deceptive_leading_blocks, sigma=5.0),
}
PBO = {
    "F19 IsingRing": Problem(KERNELS["ising_ring"]),
    "F20 IsingTorus": Problem(KERNELS["ising_torus"], (10,)),
    "F22 independent set": Problem(independent_set, (50,)),
}
PROBLEMS = NOISE | PBO
LARGEST = {"F19 IsingRing": 100.0, "F20 IsingTorus": 200.0, "F22 independent set": 50.0}  # ioh's values at the optimum
