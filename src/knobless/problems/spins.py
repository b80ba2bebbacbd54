"""Ising models, low autocorrelation binary sequences, and NK landscapes on a ring.

The cost of a bit depends on its neighbors on a ring, a torus or a line, so that no bit has a best
value of its own.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knobless._checks import integer, positive_int
from knobless.core.types import Array

from .problem import (
    EMPTY_INTS,
    EMPTY_REALS,
    BitArray,
    Flat,
    Problem,
    frozen,
    in_blocks,
)


def unequal(a: BitArray, b: BitArray) -> Array:
    """Return the number of entries of each row that differ."""
    return (a != b).sum(axis=1, dtype=np.int32).astype(np.float64)


@dataclass(frozen=True)
class IsingRing(Problem):
    """A ferromagnetic Ising ring: the number of pairs of neighbors that differ.

    With spins s = 2x − 1, the energy −Σ s_i s_{i+1} is twice this cost minus n.

    Parameters
    ----------
    n : int
        Number of spins, at least 3.
    """

    n: int
    optimum = 0.0  # all alike

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "n", positive_int("IsingRing: n", self.n, least=3)
        )

    def costs(self, x: BitArray) -> Array:
        return unequal(x[:, 1:], x[:, :-1]) + (x[:, 0] != x[:, -1])

    def flat(self) -> Flat:
        return "ising_ring", EMPTY_INTS, EMPTY_REALS


@dataclass(frozen=True)
class IsingTorus(Problem):
    """A ferromagnetic Ising model on a square torus: the number of pairs of neighbors that differ.

    With spins s = 2x − 1, the energy −Σ s_i s_j is twice this cost minus 2n.

    Parameters
    ----------
    side : int
        Side of the grid, at least 3; n = side², row by row.
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
        right = np.roll(grid, -1, axis=2)
        down = np.roll(grid, -1, axis=1)
        return unequal(x, right.reshape(x.shape)) + unequal(
            x, down.reshape(x.shape)
        )

    def flat(self) -> Flat:
        return "ising_torus", np.array([self.side], dtype=np.int64), EMPTY_REALS


# Smallest energies for n = 1, 2, …, all by exhaustive search: T. Packebusch, S. Mertens, Low
# autocorrelation binary sequences, J. Phys. A 49 (2016) 165001, table 1.
LABS_ENERGIES = (
    *(
        0,
        1,
        1,
        2,
        2,
        7,
        3,
        8,
        12,
        13,
        5,
        10,
        6,
        19,
        15,
        24,
        32,
        25,
        29,
        26,
        26,
        39,
        47,
        36,
        36,
        45,
        37,
        50,
        62,
        59,
    ),
    *(
        67,
        64,
        64,
        65,
        73,
        82,
        86,
        87,
        99,
        108,
        108,
        101,
        109,
        122,
        118,
        131,
        135,
        140,
        136,
        153,
        153,
        166,
        170,
    ),
    *(175, 171, 192, 188, 197, 205, 218, 226, 235, 207, 208, 240, 257),
)


@dataclass(frozen=True)
class LABS(Problem):
    """Low autocorrelation binary sequences: E = Σ_k C_k² with C_k = Σ_i s_i s_{i+k}, s = 2x − 1.

    The energy is minimized; the merit factor is n²/2E. The optimum is known up to n = 66.

    Parameters
    ----------
    n : int
        Length of the sequence.
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive_int("LABS: n", self.n))

    @property
    def optimum(self) -> float | None:
        if self.n <= len(LABS_ENERGIES):
            return float(LABS_ENERGIES[self.n - 1])
        return None

    def costs(self, x: BitArray) -> Array:
        return in_blocks(self._energies, x, 64 * self.n)

    def _energies(self, x: BitArray) -> Array:
        # The correlations are integers of magnitude at most n, so that rounding makes the transform
        # exact.
        spectrum = np.fft.rfft(2.0 * x - 1.0, 2 * self.n, axis=1)
        c = np.rint(
            np.fft.irfft(
                spectrum.real**2 + spectrum.imag**2, 2 * self.n, axis=1
            )[:, 1 : self.n]
        )
        return (c * c).sum(axis=1)

    def flat(self) -> Flat:
        return "labs", EMPTY_INTS, EMPTY_REALS


@dataclass(frozen=True, eq=False)
class NK(Problem):
    """Kauffman's NK landscape on a ring: a random number for each bit and its k successors.

    Parameters
    ----------
    n : int
        Number of bits.
    k : int
        Number of neighbors of a bit, less than n.
    rng : int, Generator or None
        Seed or generator of the random numbers.

    Notes
    -----
    Neighbors are adjacent, not random, so that the optimum can be computed by dynamic programming
    in time n·4^k; it is known up to k = 10. The numbers are uniform on [0, 1), multiples of 2⁻³²,
    so that every sum is exact. They are added, not averaged.
    """

    n: int
    k: int
    rng: InitVar[Any]
    # One row per bit: a number for each state of it and its neighbors
    tables: Array = field(init=False, repr=False)

    def __post_init__(self, rng: Any) -> None:
        n = positive_int("NK: n", self.n)
        k = integer("NK: k", self.k)
        if not 0 <= k < n:
            raise ValueError(
                f"NK: k: expected from 0 to n - 1 = {n - 1}, got {k}"
            )
        if n * 2 ** (k + 1) > 2**26:
            raise ValueError(
                "NK: k: expected tables of at most 2**26 numbers, got n * 2**(k+1) = "
                f"{n * 2 ** (k + 1)}"
            )
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "k", k)
        numbers = np.random.default_rng(rng).integers(
            0, 2**32, (n, 2 ** (k + 1))
        )
        object.__setattr__(self, "tables", frozen(numbers / 2.0**32))

    @cached_property
    def optimum(self) -> float | None:
        if self.k > 10:
            return None
        # least[a, b]: the smallest sum over prefixes that begin with the k bits a and end with the
        # k bits b
        states = 2**self.k
        lowest = np.full((states, states), np.inf)
        np.fill_diagonal(lowest, 0.0)
        for i in range(self.n):
            # Table i depends on b and one more bit; the window then moves on and its oldest bit is
            # minimized out.
            seen = lowest[:, :, None] + self.tables[i].reshape(states, 2)
            lowest = seen.reshape(states, 2, states).min(axis=1)
        # After n steps the window has gone around: its k bits are those at the beginning of the
        # point.
        return float(np.diagonal(lowest).min())

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
