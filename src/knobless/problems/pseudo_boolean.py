"""Functions of the theory of evolutionary computation, with a known optimum.

All are minimized, so each is written as the distance from its best value; the best point is all
ones. Those of the paper are `OneMax` and `LeadingOnes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from knobless._checks import positive_int, real
from knobless.core.types import Array

from .problem import (
    EMPTY_INTS,
    EMPTY_REALS,
    BitArray,
    Flat,
    Problem,
    frozen,
    in_blocks,
    weigh,
)


def zeros(x: BitArray) -> Array:
    """Return the number of zeros of each row."""
    # The sum in 32 bits takes half the time of NumPy's own choice.
    return x.shape[1] - x.sum(axis=1, dtype=np.int32).astype(np.float64)


@dataclass(frozen=True)
class OneMax(Problem):
    """OneMax: the number of zeros, n − Σx.

    Parameters
    ----------
    n : int
        Number of bits.
    """

    n: int
    optimum = 0.0  # no zero

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive_int("OneMax: n", self.n))

    def costs(self, x: BitArray) -> Array:
        return zeros(x)

    def flat(self) -> Flat:
        return "one_max", EMPTY_INTS, EMPTY_REALS


@dataclass(frozen=True)
class LeadingOnes(Problem):
    """LeadingOnes: n minus the number of ones before the first zero.

    Parameters
    ----------
    n : int
        Number of bits.
    """

    n: int
    optimum = 0.0  # no zero, so n ones lead

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive_int("LeadingOnes: n", self.n))

    def costs(self, x: BitArray) -> Array:
        # For bool, a search that ends at the first zero
        first = x.view(np.bool_).argmin(axis=1)
        # No zero: argmin returns 0
        first[x[np.arange(len(x)), first] == 1] = self.n
        return (self.n - first).astype(np.float64)

    def flat(self) -> Flat:
        return "leading_ones", EMPTY_INTS, EMPTY_REALS


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Problem):
    """A linear function: the total weight of the zeros, Σ w_i (1 − x_i).

    Parameters
    ----------
    weights : array_like
        One positive weight per bit.
    """

    weights: Array
    n: int = field(init=False)
    optimum = 0.0  # every weight is above 0, so only all ones cost nothing

    def __post_init__(self) -> None:
        weights = frozen(np.asarray(self.weights, dtype=np.float64))
        if weights.ndim != 1 or not weights.size:
            raise ValueError(
                "Linear: weights: expected one weight per bit, got an array of shape "
                f"{weights.shape}"
            )
        if not ((weights > 0.0) & (weights < np.inf)).all():
            raise ValueError(
                f"Linear: weights: expected finite numbers above 0, got {self.weights}"
            )
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "n", weights.size)

    @classmethod
    def random(cls, n: int, rng: Any) -> Self:
        """Draw weights uniformly from (0, 1].

        Parameters
        ----------
        n : int
            Number of bits.
        rng : int, Generator or None
            Seed or generator.

        Notes
        -----
        Weights are multiples of 2⁻³², so that every sum is exact and equal points tie.
        """
        n = positive_int("Linear: n", n)
        return cls(
            np.random.default_rng(rng).integers(1, 2**32, n, endpoint=True)
            / 2.0**32
        )

    def __repr__(self) -> str:
        return f"Linear(n={self.n}, weights from {self.weights.min():g} to {self.weights.max():g})"

    def costs(self, x: BitArray) -> Array:
        return in_blocks(
            lambda rows: weigh(self.weights, 1 - np.ascontiguousarray(rows.T)),
            x,
            8 * self.n,
        )

    def flat(self) -> Flat:
        """Return integer multiples and their unit if all their sums are exact, else the weights.

        Returns
        -------
        tuple of str, array and array
            Name of the kernel, its integers and its reals.
        """
        unit = 2.0 ** (math.frexp(self.weights.sum())[1] - 52)
        multiples = self.weights / unit
        if (multiples == np.rint(multiples)).all():
            return "linear", multiples.astype(np.int64), np.array([unit])
        return "linear", EMPTY_INTS, self.weights


@dataclass(frozen=True)
class BinVal(Problem):
    """BinVal: 2ⁿ − 1 minus the binary number of the bits, Σ 2^(n−1−i) (1 − x_i).

    Parameters
    ----------
    n : int
        Number of bits, at most 1023, so that 2ⁿ is a float.

    Notes
    -----
    A float has 53 binary digits, counted from the first zero of x. Points that agree on these may
    tie; the order of all others is exact.
    """

    n: int
    optimum = 0.0  # 2ⁿ − 1 is all ones

    def __post_init__(self) -> None:
        n = positive_int("BinVal: n", self.n)
        if n > 1023:
            raise ValueError(f"BinVal: n: expected at most 1023, got {n}")
        object.__setattr__(self, "n", n)

    def costs(self, x: BitArray) -> Array:
        # By Horner's rule in digits of 32 bits, as the compiled kernel does: the same roundings.
        padded = np.zeros((len(x), -self.n % 32 + self.n), dtype=np.int8)
        padded[:, -self.n % 32 :] = 1 - x
        value = np.zeros(len(x))
        for digit in np.packbits(padded, axis=1).view(">u4").T:
            value = value * 2.0**32 + digit
        return value

    def flat(self) -> Flat:
        return "bin_val", EMPTY_INTS, EMPTY_REALS


@dataclass(frozen=True)
class Jump(Problem):
    """Jump: OneMax with a gap of width k before the optimum.

    z zeros cost z, but n + k − z if 0 < z < k. This is n + k minus the usual Jump_k, which is
    maximized.

    Parameters
    ----------
    n : int
        Number of bits.
    k : int
        Width of the gap; k = 1 is OneMax.
    """

    n: int
    k: int
    optimum = 0.0  # z ≥ k and n + k − z > n are above 0

    def __post_init__(self) -> None:
        n = positive_int("Jump: n", self.n)
        k = positive_int("Jump: k", self.k)
        if k > n:
            raise ValueError(f"Jump: k: expected at most n = {n}, got {k}")
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "k", k)

    def costs(self, x: BitArray) -> Array:
        z = zeros(x)
        return np.where((z > 0.0) & (z < self.k), self.n + self.k - z, z)

    def flat(self) -> Flat:
        return "jump", np.array([self.k], dtype=np.int64), EMPTY_REALS


@dataclass(frozen=True)
class Traps(Problem):
    """Concatenated deceptive traps: in each block of k bits, u ones cost u + 1, but 0 if u = k.

    This is k minus the usual trap function, which is maximized, summed over the n/k blocks.

    Parameters
    ----------
    n : int
        Number of bits, a multiple of k.
    k : int
        Number of bits of a block.
    """

    n: int
    k: int = 5
    optimum = 0.0  # a block costs at least 1 unless it is all ones

    def __post_init__(self) -> None:
        n = positive_int("Traps: n", self.n)
        k = positive_int("Traps: k", self.k, least=2)
        if n % k:
            raise ValueError(
                f"Traps: n: expected a multiple of k = {k}, got {n}"
            )
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "k", k)

    def costs(self, x: BitArray) -> Array:
        u = sum(
            (x[:, j :: self.k] for j in range(1, self.k)),
            start=x[:, :: self.k].astype(np.int32),
        )
        return np.where(u == self.k, 0, u + 1).sum(axis=1).astype(np.float64)

    def flat(self) -> Flat:
        return "traps", np.array([self.k], dtype=np.int64), EMPTY_REALS


@dataclass(frozen=True, eq=False, repr=False)
class NoisyOneMax(Problem):
    """OneMax with additive normal noise, drawn independently for each evaluation.

    Parameters
    ----------
    n : int
        Number of bits.
    sigma : float
        Standard deviation of the noise.
    rng : int, Generator or None
        Seed or generator of the noise.

    Notes
    -----
    The noise has a generator spawned from `rng`, so that it is independent of the draws of an
    optimizer and both are reproducible. A call advances that generator; do not call a problem from
    two threads. There is no optimum; `mean` is the function without noise.
    """

    n: int
    sigma: float
    rng: Any = None

    def __post_init__(self) -> None:
        sigma = real("NoisyOneMax: sigma", self.sigma)
        if sigma < 0.0:
            raise ValueError(
                f"NoisyOneMax: sigma: expected a number of at least 0, got {sigma}"
            )
        object.__setattr__(self, "n", positive_int("NoisyOneMax: n", self.n))
        object.__setattr__(self, "sigma", sigma)
        # Spawned: a generator that the caller also draws from would tie the noise to those draws.
        object.__setattr__(
            self, "rng", np.random.default_rng(self.rng).spawn(1)[0]
        )

    @property
    def mean(self) -> OneMax:
        """The function without noise."""
        return OneMax(self.n)

    def __repr__(self) -> str:
        return f"NoisyOneMax(n={self.n}, sigma={self.sigma:g})"

    def costs(self, x: BitArray) -> Array:
        return zeros(x) + self.sigma * self.rng.standard_normal(len(x))
