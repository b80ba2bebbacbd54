"""The functions of the theory of evolutionary computation: given by a formula, and with a known optimum.

All are to be minimised, so each is written as a distance from its best value; the best point is all ones,
except for noise. The paper's two are `OneMax` and `LeadingOnes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from knobless._checks import positive_int, real
from knobless.core.types import Array

from .problem import NO_INTS, NO_REALS, BitArray, Flat, Problem, frozen, in_blocks


def zeros(x: BitArray) -> Array:
    """Zeros of each row."""
    # The sum in 32 bits takes half the time of NumPy's own choice.
    return x.shape[1] - x.sum(axis=1, dtype=np.int32).astype(np.float64)


@dataclass(frozen=True)
class OneMax(Problem):
    """n − Σx, the number of zeros, as in the paper."""

    n: int
    optimum = 0.0  # no zero

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive_int("OneMax: n", self.n))

    def costs(self, x: BitArray) -> Array:
        return zeros(x)

    def flat(self) -> Flat:
        return "one_max", NO_INTS, NO_REALS


@dataclass(frozen=True)
class LeadingOnes(Problem):
    """n less the number of ones before the first zero."""

    n: int
    optimum = 0.0  # no zero, so n ones lead

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive_int("LeadingOnes: n", self.n))

    def costs(self, x: BitArray) -> Array:
        first = x.view(np.bool_).argmin(axis=1)  # for bool, a search that ends at the first zero
        first[x[np.arange(len(x)), first] == 1] = self.n  # no zero: argmin says 0
        return (self.n - first).astype(np.float64)

    def flat(self) -> Flat:
        return "leading_ones", NO_INTS, NO_REALS


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Problem):
    """Σ weights·(1 − x): the weight of the zeros. Weights are above 0, so that the best point is all ones."""

    weights: Array
    n: int = field(init=False)
    optimum = 0.0  # every weight is above 0, so only all ones cost nothing

    def __post_init__(self) -> None:
        weights = frozen(np.asarray(self.weights, dtype=np.float64))
        if weights.ndim != 1 or not weights.size:
            raise ValueError(f"Linear: weights: expected one weight a bit, got an array of shape {weights.shape}")
        if not ((weights > 0.0) & (weights < np.inf)).all():
            raise ValueError(f"Linear: weights: expected finite numbers above 0, got {self.weights}")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "n", weights.size)

    @classmethod
    def random(cls, n: int, rng: Any) -> Self:
        """Weights uniform on (0, 1], in steps of 2⁻³².

        The steps make every sum exact: in whatever order weights are added, equal points tie.
        """
        n = positive_int("Linear: n", n)
        return cls(np.random.default_rng(rng).integers(1, 2**32, n, endpoint=True) / 2.0**32)

    def __repr__(self) -> str:
        return f"Linear(n={self.n}, weights from {self.weights.min():g} to {self.weights.max():g})"

    def costs(self, x: BitArray) -> Array:
        # Row by row, not as a matrix product, which rounds by where in the batch a row stands.
        return in_blocks(lambda rows: (self.weights * (1 - rows)).sum(axis=1), x, 8 * self.n)

    def flat(self) -> Flat:
        """Whole multiples and their unit if every sum of these is exact, as for `random`; else the weights."""
        unit = 2.0 ** (math.frexp(self.weights.sum())[1] - 52)
        multiples = self.weights / unit
        if (multiples == np.rint(multiples)).all():
            return "linear", multiples.astype(np.int64), np.array([unit])
        return "linear", NO_INTS, self.weights


@dataclass(frozen=True)
class BinVal(Problem):
    """2ⁿ − 1 less the number that the bits spell, the first bit the highest: Σ 2^(n−1−i)·(1 − x_i).

    A float holds 53 digits, counted from the first zero of x: points that agree on these may tie, and no
    others change places. n is at most 1023, beyond which 2ⁿ is no float.
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
        return "bin_val", NO_INTS, NO_REALS


@dataclass(frozen=True)
class Jump(Problem):
    """OneMax with a ditch of width k before the optimum: z zeros cost z, but n + k − z if 0 < z < k.

    n + k less the usual Jump_k, which is to be maximised. k = 1 is OneMax.
    """

    n: int
    k: int
    optimum = 0.0  # z ≥ k and n + k − z > n are above 0

    def __post_init__(self) -> None:
        n, k = positive_int("Jump: n", self.n), positive_int("Jump: k", self.k)
        if k > n:
            raise ValueError(f"Jump: k: expected at most n = {n}, got {k}")
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "k", k)

    def costs(self, x: BitArray) -> Array:
        z = zeros(x)
        return np.where((z > 0.0) & (z < self.k), self.n + self.k - z, z)

    def flat(self) -> Flat:
        return "jump", np.array([self.k], dtype=np.int64), NO_REALS


@dataclass(frozen=True)
class Traps(Problem):
    """Blocks of k bits side by side, each deceptive: u ones cost u + 1, but nothing if u = k.

    k less the usual trap, which is to be maximised, summed over the n/k blocks.
    """

    n: int
    k: int = 5
    optimum = 0.0  # a block costs at least 1 unless it is all ones

    def __post_init__(self) -> None:
        n, k = positive_int("Traps: n", self.n), positive_int("Traps: k", self.k, least=2)
        if n % k:
            raise ValueError(f"Traps: n: expected a multiple of k = {k}, got {n}")
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "k", k)

    def costs(self, x: BitArray) -> Array:
        u = sum((x[:, j :: self.k] for j in range(1, self.k)), start=x[:, :: self.k].astype(np.int32))
        return np.where(u == self.k, 0, u + 1).sum(axis=1).astype(np.float64)

    def flat(self) -> Flat:
        return "traps", np.array([self.k], dtype=np.int64), NO_REALS


@dataclass(frozen=True, eq=False, repr=False)
class NoisyOneMax(Problem):
    """OneMax plus normal noise of standard deviation σ, drawn anew at every call, one draw a point.

    The noise comes from a generator of its own, made of `rng`, so that an optimizer's draws and the noise
    are independent and both are repeatable. Calling it moves that generator: the one problem that is not a
    function, and not to be called from two threads. There is no least value; `mean` is what lies under the
    noise, and whether a point is the best is asked there.
    """

    n: int
    sigma: float
    rng: Any = None

    def __post_init__(self) -> None:
        sigma = real("NoisyOneMax: sigma", self.sigma)
        if sigma < 0.0:
            raise ValueError(f"NoisyOneMax: sigma: expected a number of at least 0, got {sigma}")
        object.__setattr__(self, "n", positive_int("NoisyOneMax: n", self.n))
        object.__setattr__(self, "sigma", sigma)
        # Spawned: a generator that the caller also draws from would tie the noise to those draws.
        object.__setattr__(self, "rng", np.random.default_rng(self.rng).spawn(1)[0])

    @property
    def mean(self) -> OneMax:
        """The same without noise."""
        return OneMax(self.n)

    def __repr__(self) -> str:
        return f"NoisyOneMax(n={self.n}, sigma={self.sigma:g})"

    def costs(self, x: BitArray) -> Array:
        return zeros(x) + self.sigma * self.rng.standard_normal(len(x))
