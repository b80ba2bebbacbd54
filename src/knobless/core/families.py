"""What is sampled: exponential families named by their expectation parameters, θ = E_θ[T(x)].

A family knows how to draw points, what their sufficient statistics T(x) are, and the geometry of its
parameters; it knows nothing of objectives, weights or step lengths. `Bernoulli` serves bits,
`Categorical` choices, `Gaussian` (a file of its own) numbers, and `Product` puts independent ones side by side.
Parameters are flat float vectors and points are rows of an array, one column a variable, so the loop in
`igo.py` never asks which family it moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from knobless._checks import positive_int, probabilities

from .types import Array, Points, Words


@runtime_checkable
class Family(Protocol):
    """What the loop needs to know of a distribution over points."""

    @property
    def dim(self) -> int:
        """The paper's n: free parameters, not variables."""

    @property
    def variables(self) -> int:
        """Columns of a point."""

    @property
    def words(self) -> int:
        """32-bit uniforms that one point takes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a point."""

    def within(self, total: int) -> Self:
        """The same family with the margins of a problem of `total` variables."""

    def initial(self) -> Array:
        """The θ that assumes least, or the prior where one was given."""

    def draw(self, theta: Array, u: Words) -> Points:
        """The points that the uniforms u (one row a point) stand for under θ."""

    def sample(self, theta: Array, size: int, rng: np.random.Generator) -> Points:
        """`size` independent points from P_θ."""

    def statistics(self, x: Points) -> NDArray[Any]:
        """T(x), one row a point."""

    def whiten(self, theta: Array, v: Array) -> Array:
        """Some G(θ)^½ v, so that ‖whiten(θ, v)‖² = vᵀ G(θ) v; never a matrix."""

    def move(self, theta: Array, step: Array) -> Array:
        """Towards θ + step, inside Θ and inside the margins."""

    def mode(self, theta: Array) -> Points:
        """The most probable point."""

    def entropy(self, theta: Array) -> float:
        """In nats; differential for numbers."""


def uniforms(rng: np.random.Generator, size: int, words: int) -> Words:
    """`size` rows of uniform 32-bit integers, straight from the bit generator.

    Every row takes whole 64-bit outputs, so that four rows drawn twice are eight rows drawn once. 32 bits
    are exact enough (a probability is off by at most 2⁻³²) and cost half of what doubles do.
    """
    bits = rng.bit_generator
    if isinstance(bits, np.random.MT19937):  # its raw output has 32 bits
        raw = bits.random_raw((size, words))
        return raw.astype(np.uint32)
    raw = bits.random_raw((size, (words + 1) // 2))
    return raw.view(np.uint32)[:, :words]


def threshold(p: Array) -> Words:
    """The 32-bit integer that a uniform one falls below with probability p."""
    return (p * 4294967296.0).astype(np.uint32)


@dataclass(frozen=True)
class Bernoulli:
    """n bits: T(x) = x and θ is the probability of each bit to be one.

    θ stays in [1/D, 1 − 1/D] as in the paper, D the variables of the whole problem; below D = 4 that
    interval would be a point or empty, so D counts as 4.
    """

    n: int
    p: float | tuple[float, ...] = 0.5
    total: int | None = None

    def __post_init__(self) -> None:
        positive_int("n", self.n)
        p = probabilities("p", self.p)
        if p.shape not in ((), (self.n,)) or not ((p >= 0.0) & (p <= 1.0)).all():
            raise ValueError(f"p: expected one probability or {self.n}, got {self.p!r}")

    @property
    def dim(self) -> int:
        return self.n

    variables = words = dim
    dtype = np.dtype(np.int8)

    @cached_property
    def margin(self) -> float:
        return margin(self.total or self.n, 2)

    def within(self, total: int) -> Self:
        return replace(self, total=total)

    def initial(self) -> Array:
        return self.move(np.broadcast_to(np.asarray(self.p, dtype=float), self.n), np.zeros(self.n))

    def draw(self, theta: Array, u: Words) -> Points:
        return (u < threshold(theta)).view(np.int8)

    def sample(self, theta: Array, size: int, rng: np.random.Generator) -> Points:
        return self.draw(theta, uniforms(rng, size, self.words))

    def statistics(self, x: Points) -> NDArray[Any]:
        return x

    def whiten(self, theta: Array, v: Array) -> Array:
        variance = 1.0 - theta  # θ(1 − θ), in place: these vectors are long and the loop is hot
        variance *= theta
        np.sqrt(variance, out=variance)
        return np.divide(v, variance, out=variance)

    def move(self, theta: Array, step: Array) -> Array:
        moved = theta + step
        np.maximum(moved, self.margin, out=moved)
        return np.minimum(moved, 1.0 - self.margin, out=moved)

    def mode(self, theta: Array) -> Points:
        return (theta >= 0.5).view(np.int8)

    def entropy(self, theta: Array) -> float:
        return float(-(theta @ np.log(theta) + (1.0 - theta) @ np.log1p(-theta)))


@dataclass(frozen=True)
class Categorical:
    """n variables of k options each: T(x) is one-hot and θ the probability of each option.

    θ is laid out variable by variable. Its k probabilities sum to one, so that a variable has k − 1 free
    parameters. No option falls below min(1/(D(k − 1)), 1/(2k)), D the variables of the whole problem; for
    k = 2 that is the bit's margin, as everything else here is then the bit's.
    """

    n: int
    k: int
    p: tuple[tuple[float, ...], ...] | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        positive_int("n", self.n)
        positive_int("k", self.k, least=2)

    @property
    def dim(self) -> int:
        return self.n * (self.k - 1)

    @property
    def variables(self) -> int:
        return self.n

    words = variables

    @cached_property
    def margin(self) -> float:
        return margin(self.total or self.n, self.k)

    def within(self, total: int) -> Self:
        return replace(self, total=total)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int16 if self.k < 2**15 else np.int32)

    def initial(self) -> Array:
        p = np.full((self.n, self.k), 1.0 / self.k) if self.p is None else np.array(self.p, dtype=float)
        p = p / p.sum(axis=1, keepdims=True)  # a prior sums to one as people write it, 0.33 + 0.33 + 0.34
        return self.move(p.ravel(), np.zeros(p.size))

    def draw(self, theta: Array, u: Words) -> Points:
        # Option 1 or above when u falls below θ_1 + … + θ_{k−1}, option 2 or above below θ_2 + …, and so
        # on: cumulated from the last option, so that a choice of two draws as a bit does.
        tails = theta.reshape(self.n, self.k)[:, :0:-1].cumsum(axis=1)
        below = u < threshold(np.minimum(tails, 1.0 - self.margin)).T[:, None, :]
        return below.sum(axis=0, dtype=self.dtype)

    def sample(self, theta: Array, size: int, rng: np.random.Generator) -> Points:
        return self.draw(theta, uniforms(rng, size, self.words))

    def statistics(self, x: Points) -> NDArray[Any]:
        return (x[:, :, None] == np.arange(self.k)).reshape(len(x), -1)

    def whiten(self, theta: Array, v: Array) -> Array:
        """u = v/√θ is tangent at √θ; a Householder reflection turns it into the plane Σ = 0.

        The reflection sends √θ to −(1, …, 1)/√k. It is an isometry, it treats all options alike, and for
        k = 2 its length is the bit's.
        """
        root = np.sqrt(theta).reshape(self.n, self.k)
        u = v.reshape(self.n, self.k) / root
        normal = root + self.k**-0.5
        # |normal|² = 2 + 2 Σ√θ/√k = 2 Σ normal/√k
        scale = (normal * u).sum(axis=1) * self.k**0.5 / normal.sum(axis=1)
        return (u - scale[:, None] * normal).ravel()

    def move(self, theta: Array, step: Array) -> Array:
        moved = (theta + step).reshape(self.n, self.k)
        low = (moved < self.margin).any(axis=1)
        if low.any():
            # Options below the margin are lifted to it; the others pay in proportion to what they have above it.
            raised = np.maximum(moved[low], self.margin)
            spare = raised - self.margin
            raised += spare * ((1.0 - raised.sum(axis=1)) / spare.sum(axis=1))[:, None]
            moved[low] = np.maximum(raised, self.margin)
        return moved.ravel()

    def mode(self, theta: Array) -> Points:
        # The last of equals, as a bit at ½ is one.
        return (self.k - 1 - theta.reshape(self.n, self.k)[:, ::-1].argmax(axis=1)).astype(self.dtype)

    def entropy(self, theta: Array) -> float:
        return float(-(theta @ np.log(theta)))


def margin(variables: int, options: int) -> float:
    """The least probability of an option, so that about one variable a point is off its mode."""
    return min(1.0 / (variables * (options - 1)), 1.0 / (2 * options))


@dataclass(frozen=True)
class Product:
    """Independent families side by side: points, parameters and statistics are concatenated.

    Each part gets the margins of the whole, so that a product of bits is the bits together.
    """

    parts: tuple[Family, ...]

    def __post_init__(self) -> None:
        positive_int("number of parts", len(self.parts))
        total = sum(part.variables for part in self.parts)
        object.__setattr__(self, "parts", tuple(part.within(total) for part in self.parts))

    @cached_property
    def dim(self) -> int:
        return sum(part.dim for part in self.parts)

    @cached_property
    def variables(self) -> int:
        return sum(part.variables for part in self.parts)

    @cached_property
    def words(self) -> int:
        return sum(part.words for part in self.parts)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return np.result_type(*(part.dtype for part in self.parts))

    def within(self, total: int) -> Self:
        product = replace(self)
        object.__setattr__(product, "parts", tuple(part.within(total) for part in self.parts))
        return product

    @cached_property
    def _columns(self) -> list[slice]:
        return slices(part.variables for part in self.parts)

    @cached_property
    def _parameters(self) -> list[slice]:
        return slices(len(part.initial()) for part in self.parts)

    @cached_property
    def _words(self) -> list[slice]:
        return slices(part.words for part in self.parts)

    def initial(self) -> Array:
        return np.concatenate([part.initial() for part in self.parts])

    def draw(self, theta: Array, u: Words) -> Points:
        each = zip(self.parts, self._parameters, self._words, strict=True)
        return np.concatenate([part.draw(theta[p], u[:, c]) for part, p, c in each], axis=1)

    def sample(self, theta: Array, size: int, rng: np.random.Generator) -> Points:
        return self.draw(theta, uniforms(rng, size, self.words))

    def statistics(self, x: Points) -> NDArray[Any]:
        each = zip(self.parts, self._columns, strict=True)
        return np.concatenate([part.statistics(x[:, c]) for part, c in each], axis=1)

    def whiten(self, theta: Array, v: Array) -> Array:
        each = zip(self.parts, self._parameters, strict=True)
        return np.concatenate([part.whiten(theta[p], v[p]) for part, p in each])

    def move(self, theta: Array, step: Array) -> Array:
        each = zip(self.parts, self._parameters, strict=True)
        return np.concatenate([part.move(theta[p], step[p]) for part, p in each])

    def mode(self, theta: Array) -> Points:
        each = zip(self.parts, self._parameters, strict=True)
        return np.concatenate([part.mode(theta[p]) for part, p in each])

    def entropy(self, theta: Array) -> float:
        each = zip(self.parts, self._parameters, strict=True)
        return sum(part.entropy(theta[p]) for part, p in each)


def slices(lengths: Iterable[int]) -> list[slice]:
    """Consecutive slices of these lengths."""
    return [slice(a, b) for a, b in pairwise(accumulate(lengths, initial=0))]
