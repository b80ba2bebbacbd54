"""Costs made of neighbours: Ising models, low autocorrelation, and NK landscapes on a ring.

The bits stand on a ring, a torus or a line. What a bit costs depends on others near it or at every distance,
so that no bit has a best value of its own.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knobless._checks import integer, positive_int
from knobless.core.types import Array

from .problem import NO_INTS, NO_REALS, BitArray, Flat, Problem, frozen, in_blocks


def unequal(a: BitArray, b: BitArray) -> Array:
    """How many entries of each row differ."""
    return (a != b).sum(axis=1, dtype=np.int32).astype(np.float64)


@dataclass(frozen=True)
class IsingRing(Problem):
    """A ferromagnetic ring: how many of the n pairs of neighbours differ.

    With spins s = 2x − 1 the energy −Σ s_i s_{i+1} is twice this, less n.
    """

    n: int
    optimum = 0.0  # all alike

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive_int("IsingRing: n", self.n, least=3))

    def costs(self, x: BitArray) -> Array:
        return unequal(x[:, 1:], x[:, :-1]) + (x[:, 0] != x[:, -1])

    def flat(self) -> Flat:
        return "ising_ring", NO_INTS, NO_REALS


@dataclass(frozen=True)
class IsingTorus(Problem):
    """A ferromagnetic square grid whose edges meet: how many of the 2n pairs of neighbours differ.

    n = side², row by row. With spins s = 2x − 1 the energy −Σ s_i s_j is twice this, less 2n.
    """

    side: int
    n: int = field(init=False, repr=False)
    optimum = 0.0  # all alike

    def __post_init__(self) -> None:
        side = positive_int("IsingTorus: side", self.side, least=3)
        object.__setattr__(self, "side", side)
        object.__setattr__(self, "n", side * side)

    def costs(self, x: BitArray) -> Array:
        grid = x.reshape(len(x), self.side, self.side)
        right, down = np.roll(grid, -1, axis=2), np.roll(grid, -1, axis=1)
        return unequal(x, right.reshape(x.shape)) + unequal(x, down.reshape(x.shape))

    def flat(self) -> Flat:
        return "ising_torus", np.array([self.side], dtype=np.int64), NO_REALS


# Least energies for n = 1, 2, …, all by exhaustive search: T. Packebusch, S. Mertens, Low autocorrelation
# binary sequences, J. Phys. A 49 (2016) 165001, table 1.
LABS_ENERGIES = (
    *(0, 1, 1, 2, 2, 7, 3, 8, 12, 13, 5, 10, 6, 19, 15, 24, 32, 25, 29, 26, 26, 39, 47, 36, 36, 45, 37, 50, 62, 59),
    *(67, 64, 64, 65, 73, 82, 86, 87, 99, 108, 108, 101, 109, 122, 118, 131, 135, 140, 136, 153, 153, 166, 170),
    *(175, 171, 192, 188, 197, 205, 218, 226, 235, 207, 208, 240, 257),
)


@dataclass(frozen=True)
class LABS(Problem):
    """Low autocorrelation binary sequences: the energy Σ_k C_k², C_k = Σ_i s_i s_{i+k}, of the spins s = 2x − 1.

    To be minimised, as it stands (the merit factor n²/2E is to be maximised). The least energy is known
    up to n = 66.
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive_int("LABS: n", self.n))

    @property
    def optimum(self) -> float | None:
        return float(LABS_ENERGIES[self.n - 1]) if self.n <= len(LABS_ENERGIES) else None

    def costs(self, x: BitArray) -> Array:
        return in_blocks(self._energies, x, 64 * self.n)

    def _energies(self, x: BitArray) -> Array:
        # The correlations are whole numbers of at most n, so that rounding makes the transform exact.
        spectrum = np.fft.rfft(2.0 * x - 1.0, 2 * self.n, axis=1)
        c = np.rint(np.fft.irfft(spectrum.real**2 + spectrum.imag**2, 2 * self.n, axis=1)[:, 1 : self.n])
        return (c * c).sum(axis=1)

    def flat(self) -> Flat:
        return "labs", NO_INTS, NO_REALS


@dataclass(frozen=True, eq=False)
class NK(Problem):
    """Kauffman's NK landscape on a ring: the sum over i of a random number for bit i and the k bits after it.

    Neighbours are adjacent, not random: the landscape is as rugged, and its least cost can be computed (by
    dynamic programming, in time n·4^k; given up to k = 10). The numbers are uniform on [0, 1) in steps of 2⁻³²,
    which makes every sum exact. They are added, not averaged, and small is good: which way round is only a
    convention, since they are uniform.
    """

    n: int
    k: int
    rng: InitVar[Any]
    tables: Array = field(init=False, repr=False)  # one row a bit: a number for each state of it and its neighbours

    def __post_init__(self, rng: Any) -> None:
        n, k = positive_int("NK: n", self.n), integer("NK: k", self.k)
        if not 0 <= k < n:
            raise ValueError(f"NK: k: expected from 0 to n - 1 = {n - 1}, got {k}")
        if n * 2 ** (k + 1) > 2**26:
            raise ValueError(f"NK: k: expected tables of at most 2**26 numbers, got n * 2**(k+1) = {n * 2 ** (k + 1)}")
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "k", k)
        numbers = np.random.default_rng(rng).integers(0, 2**32, (n, 2 ** (k + 1)))
        object.__setattr__(self, "tables", frozen(numbers / 2.0**32))

    @cached_property
    def optimum(self) -> float | None:
        if self.k > 10:
            return None
        # least[a, b]: the least sum so far, over points that begin with the k bits a and, so far, end with the k bits b
        states = 2**self.k
        least = np.full((states, states), np.inf)
        np.fill_diagonal(least, 0.0)
        for i in range(self.n):
            # Table i sees b and one bit more; the window then moves on, and its oldest bit, 0 or 1, is forgotten.
            seen = least[:, :, None] + self.tables[i].reshape(states, 2)
            least = seen.reshape(states, 2, states).min(axis=1)
        # After n steps the window has gone round: its k bits are those the point began with.
        return float(np.diagonal(least).min())

    def costs(self, x: BitArray) -> Array:
        return in_blocks(self._sums, x, 16 * self.n)

    def _sums(self, x: BitArray) -> Array:
        ring = np.concatenate([x, x[:, : self.k]], axis=1)
        state: NDArray[np.int64] = x.astype(np.int64)
        for j in range(1, self.k + 1):
            state = 2 * state + ring[:, j : j + self.n]
        state += np.arange(self.n) * 2 ** (self.k + 1)
        return self.tables.ravel()[state].sum(axis=1)

    def flat(self) -> Flat:
        return "nk", np.array([self.k], dtype=np.int64), self.tables.ravel()
