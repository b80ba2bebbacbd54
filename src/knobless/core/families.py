"""Families of distributions: exponential families, with parameters θ = E_θ[T(x)].

A family draws points, computes their sufficient statistics T(x), and has the geometry of its
parameters; it does not depend on objectives, weights or step lengths. `Bernoulli` is the family of
bits, `Categorical` of choices, `Gaussian` (in `gaussian.py`) of numbers, `ConditionalBernoulli` (in
`subset.py`) of subsets, and `Product` combines independent families. Parameters are flat float
vectors and points are rows of an array with one column per variable, so the loop in `igo.py` is the
same for all families.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import constructed_as, positive_int, probabilities

from .rng import RNG, Stream, uniforms
from .types import Array, Indices, Points, Words

# Arrays, because NumPy takes longer with Python numbers
ONE = np.array(1.0)
TWO_TO_32 = np.array(2.0**32)


class Discrete(NamedTuple):
    """Marginal distribution of a column with a finite number of options.

    Attributes
    ----------
    p : array
        Probability of each option.
    """

    p: Array


class Normal(NamedTuple):
    """Marginal distribution of a column that is a latent normal number.

    Attributes
    ----------
    mean, sigma : float
        Mean and standard deviation, on the range scaled to [0, 1].
    """

    mean: float
    sigma: float


class SizeBounds(NamedTuple):
    """Columns of bits of which a point has a bounded number of ones.

    Attributes
    ----------
    columns : slice
        The columns.
    low, high : int
        Smallest and largest number of ones.
    """

    columns: slice
    low: int
    high: int


def checked_family(family: Any) -> Family:
    """Return a family; raise TypeError for anything else, such as a space."""
    if not isinstance(family, Family):
        raise TypeError(
            f"family: expected a family of distributions, got {family!r:.200} of type "
            f"{type(family).__name__}; that of "
            "a space is kl.Space.of(space).family"
        )
    return family


class Family(ABC):
    """Base class of families of distributions over points.

    A point is a row of numbers, one column per variable: 0 or 1 for a bit, the index of an option
    for a choice, a latent real for a number. In all methods, `theta` is a flat vector of
    parameters, `x` an array with one row per point, `w` one weight per point or parameter, and `i`
    a column of a point.

    Notes
    -----
    A custom family defines the nine abstract members, which are those that Algorithm 1 of the paper
    needs. The others have defaults: `deviations`, `gradient` and `active_dim` are those of a family
    without conditional variables, points are packed as their bytes, and the entropy is not known.
    What treats columns one by one (models, the other algorithms, `fixed`, plots of distributions)
    needs a `ColumnFamily`, and the members that only such a family has raise a TypeError.
    """

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of free parameters, n in the paper; not the number of variables."""

    @property
    @abstractmethod
    def variables(self) -> int:
        """Number of columns of a point."""

    @property
    def words(self) -> int:
        """Number of 32-bit uniforms per point."""
        return self.variables

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Data type of points."""

    @property
    def options(self) -> Indices:
        """Number of options of each column; 0 for a number."""
        return np.zeros(self.variables, dtype=np.intp)

    @property
    def counts(self) -> Indices:
        """Number of different values of each column; 0 for a continuum."""
        return self.options

    @property
    def size_bounds(self) -> tuple[SizeBounds, ...]:
        """The columns that are subsets, with the bounds of their sizes."""
        return ()

    @property
    def width(self) -> int:
        """Number of bytes of a packed point."""
        return self.variables * self.dtype.itemsize

    def within(self, total: int) -> Self:
        """Return the same family with the margins of a problem of `total` variables."""
        return self

    @abstractmethod
    def initial(self) -> Array:
        """Return the initial θ: the prior if there is one, else the least informative one."""

    def draw(self, theta: Array, u: Words) -> Points:
        """Return the points under θ for given uniforms, `words` 32-bit integers per point."""
        raise self._no_columns("draw")

    @abstractmethod
    def sample(self, theta: Array, size: int, rng: RNG) -> Points:
        """Return independent points from P_θ.

        Parameters
        ----------
        theta : array
            Parameters.
        size : int
            Number of points.
        rng : Stream or numpy.random.Generator
            Source of random numbers; a generator gives the key of a stream. A run passes a stream,
            and ``rng.uniforms(size, words)`` returns a row of 32-bit integers for each point.

        Returns
        -------
        array of shape (size, variables)
            The points, one per row.

        Notes
        -----
        Each point uses the same number of random numbers: four points drawn twice are eight points
        drawn once.
        """

    def active_dim(self, theta: Array) -> float:
        """Return the expected number of free parameters of the active variables under P_θ.

        It is `dim` if there are no conditional variables.
        """
        return self.dim

    @abstractmethod
    def statistics(self, x: Points) -> NDArray[Any]:
        """Return the sufficient statistics T(x), one row per point; possibly `x` itself."""

    def deviations(self, theta: Array, x: Points) -> Array:
        """Return T(x) − θ, one row per point; zero for inactive variables."""
        return self.statistics(x) - theta

    def gradient(self, theta: Array, x: Points, w: Array) -> Array:
        """Return the natural gradient Σ w (T(x) − θ) as a new array, without inactive variables."""
        gradient: Array = w.dot(self.statistics(x))  # takes half the time of @
        if total := np.add.reduce(w):  # zero for centered weights
            gradient -= total * theta
        return gradient

    def indices(self, x: Points) -> Points:
        """Return points with numbers replaced by the indices of their values.

        Numbers of a continuum stay. The result may be `x` itself.
        """
        return x

    def features(self, x: Points) -> Array:
        """Return statistics that are standardized under the uniform distribution.

        Under the uniform distribution over the points the features have mean 0, and their
        covariance is the identity, or a projection for choices, whose features sum to zero.
        """
        raise self._no_columns("features")

    def minimizer(self, w: Array) -> Points:
        """Return the points x that minimize features(x)·w, one per row of `w`.

        In case of ties the last option.
        """
        raise self._no_columns("minimizer")

    @abstractmethod
    def whiten(self, theta: Array, v: Array) -> Array:
        """Return G(θ)^½ v for a square root of the Fisher matrix G.

        It has the property ‖whiten(θ, v)‖² = vᵀ G(θ) v.
        """

    @abstractmethod
    def move(self, theta: Array, step: Array) -> Array:
        """Return θ + step as a new array, projected into the parameter space and the margins."""

    @abstractmethod
    def mode(self, theta: Array) -> Points:
        """Return the most probable point."""

    def entropy(self, theta: Array) -> float:
        """Return the entropy in nats; the differential one for numbers."""
        return math.nan

    def marginal(self, theta: Array, i: int) -> Discrete | Normal:
        """Return the marginal distribution of column `i`."""
        raise self._no_columns("marginal")

    def parameters(self, i: int) -> range:
        """Return the indices of the parameters of column `i` in θ."""
        raise self._no_columns("parameters")

    def select(self, columns: Sequence[int]) -> Family:
        """Return the family of some columns in increasing order, as a problem of its own."""
        raise self._no_columns("select")

    def pack(self, x: Points) -> bytes:
        """Return the points as bytes, `width` per point, the same on every machine."""
        return np.ascontiguousarray(
            x, dtype=self.dtype.newbyteorder("<")
        ).tobytes()

    def unpack(self, data: bytes) -> Points:
        """Return the points packed by `pack`.

        ValueError if `data`, possibly from an untrusted file, has none.
        """
        return (
            packed_rows(data, self.width)
            .view(self.dtype.newbyteorder("<"))
            .astype(self.dtype)
        )

    def skip(self, theta: Array, size: int, rng: Stream) -> None:
        """Advance a stream as `sample` does."""
        self.sample(theta, size, rng)

    @property
    def cardinality(self) -> float:
        """Number of different points, if it is known; else inf."""
        return math.inf

    def _no_columns(self, member: str) -> TypeError:
        return TypeError(
            f"family: expected a ColumnFamily, which has {member}, got {self!r:.200}"
        )


class ColumnFamily(Family):
    """Base class of families whose columns are variables: bits, choices and numbers.

    They define all members of `Family`. Points are drawn from uniforms, the same number for each.
    """

    @abstractmethod
    def draw(self, theta: Array, u: Words) -> Points: ...

    def sample(self, theta: Array, size: int, rng: RNG) -> Points:
        return self.draw(theta, uniforms(rng, size, self.words))

    def skip(self, theta: Array, size: int, rng: Stream) -> None:
        rng.skip(size, self.words)


class RecordedFamily(Family):
    """Family of which a file has the description: its points can be read, but not drawn.

    Parameters
    ----------
    data : dict
        The description.
    variables : int
        Number of columns of a point.
    dtype : dtype
        Data type of points.
    """

    dim = 1
    variables = 1
    dtype = np.dtype(float)

    def __init__(
        self, data: Mapping[str, Any], variables: int, dtype: np.dtype[Any]
    ) -> None:
        self.data = data
        self.variables = variables
        self.dtype = dtype

    def __repr__(self) -> str:
        return str(self.data["name"])

    def initial(self) -> Array:
        return np.zeros(0)

    def sample(self, theta: Array, size: int, rng: RNG) -> Points:
        raise self._unknown()

    def statistics(self, x: Points) -> NDArray[Any]:
        raise self._unknown()

    def whiten(self, theta: Array, v: Array) -> Array:
        raise self._unknown()

    def move(self, theta: Array, step: Array) -> Array:
        raise self._unknown()

    def mode(self, theta: Array) -> Points:
        raise self._unknown()

    def _unknown(self) -> TypeError:
        return TypeError(
            f"family: expected the family itself, got a description of {self}"
        )


def threshold(p: Array) -> Words:
    """Return the 32-bit threshold below which a uniform integer falls with probability p."""
    return (p * TWO_TO_32).astype(np.uint32)


@dataclass(frozen=True)
class Bernoulli(ColumnFamily):
    """Family of `n` independent bits: T(x) = x and θ is the probability of a one.

    Parameters
    ----------
    n : int
        Number of bits.
    p : float or tuple of float
        Initial probability of a one, for all bits or for each.
    total : int, optional
        Number of variables D of the whole problem; `n` by default.

    Notes
    -----
    As in the paper, θ stays in [1/D, 1 − 1/D]. Below D = 4 that interval would be a point or empty,
    so D is at least 4.

    Examples
    --------
    >>> import numpy as np
    >>> from knobless.families import Bernoulli
    >>> bits = Bernoulli(3)
    >>> bits.initial().tolist(), bits.mode(np.array([0.9, 0.2, 0.6])).tolist()
    ([0.5, 0.5, 0.5], [1, 0, 1])
    """

    n: int
    p: float | tuple[float, ...] = 0.5
    total: int | None = None

    def __post_init__(self) -> None:
        positive_int("n", self.n)
        p = probabilities("p", self.p)
        if (
            p.shape not in ((), (self.n,))
            or not ((p >= 0.0) & (p <= 1.0)).all()
        ):
            raise ValueError(
                f"p: expected one probability or {self.n}, got {self.p!r}"
            )

    @property
    def dim(self) -> int:
        return self.n

    variables = words = dim
    dtype = np.dtype(np.int8)

    @property
    def options(self) -> Indices:
        return np.full(self.n, 2)

    @property
    def width(self) -> int:
        return (self.n + 7) // 8

    @cached_property
    def margin(self) -> float:
        return margin(self.total or self.n, 2)

    @cached_property
    def _bounds(self) -> tuple[Array, Array]:
        return np.array(self.margin), np.array(1.0 - self.margin)

    def within(self, total: int) -> Self:
        return replace(self, total=total)

    def initial(self) -> Array:
        return self.move(
            np.broadcast_to(np.asarray(self.p, dtype=float), self.n),
            np.zeros(self.n),
        )

    def draw(self, theta: Array, u: Words) -> Points:
        return (u < threshold(theta)).view(np.int8)

    def statistics(self, x: Points) -> NDArray[Any]:
        return x

    def features(self, x: Points) -> Array:
        return 2.0 * x - 1.0

    def minimizer(self, w: Array) -> Points:
        # One where the weight is not positive: ties give one, as the mode does.
        return (w <= 0.0).view(np.int8)

    def whiten(self, theta: Array, v: Array) -> Array:
        # Θ(1 − θ), in place: these vectors are long and the loop is hot
        # G(θ) = 1/(θ (1 − θ)), so G^½ v = v/√(θ (1 − θ))
        variance = ONE - theta
        variance *= theta
        np.sqrt(variance, out=variance)
        return np.divide(v, variance, out=variance)

    def move(self, theta: Array, step: Array) -> Array:
        # The projection of the paper onto [1/D, 1 − 1/D].
        moved = theta + step
        return moved.clip(*self._bounds, out=moved)

    def mode(self, theta: Array) -> Points:
        return (theta >= 0.5).view(np.int8)

    def entropy(self, theta: Array) -> float:
        return float(
            -(theta @ np.log(theta) + (1.0 - theta) @ np.log1p(-theta))
        )

    def marginal(self, theta: Array, i: int) -> Discrete:
        return Discrete(np.array([1.0 - theta[i], theta[i]]))

    def parameters(self, i: int) -> range:
        return range(i, i + 1)

    def select(self, columns: Sequence[int]) -> Bernoulli:
        return Bernoulli(
            len(columns),
            tuple(self.p[i] for i in columns)
            if isinstance(self.p, tuple)
            else self.p,
        )

    def pack(self, x: Points) -> bytes:
        return np.packbits(x.astype(np.bool_), axis=1).tobytes()

    def unpack(self, data: bytes) -> Points:
        return np.unpackbits(
            packed_rows(data, self.width), axis=1, count=self.n
        ).view(np.int8)


@constructed_as(
    "kl.Choice('a', 'b') for a variable; Categorical(n, k) is a family of distributions"
)
@dataclass(frozen=True)
class Categorical(ColumnFamily):
    """Family of `n` independent choices among `k` options, with one-hot statistics T(x).

    Parameters
    ----------
    n : int
        Number of choices.
    k : int
        Number of options of each choice, at least 2.
    p : tuple of tuples of float, optional
        Initial probabilities, one tuple per choice; uniform by default.
    total : int, optional
        Number of variables D of the whole problem; `n` by default.

    Notes
    -----
    θ is ordered by variable. The k probabilities of a variable sum to one, so it has k − 1 free
    parameters. The probability of an option is at least min(1/(D(k − 1)), 1/(2k)). For k = 2 this
    is the margin of a bit, and the whole trajectory is that of a bit.

    Examples
    --------
    >>> import numpy as np
    >>> from knobless.families import Categorical
    >>> choice = Categorical(1, 3)
    >>> choice.dim, choice.statistics(np.array([[2]])).astype(int).tolist()
    (2, [[0, 0, 1]])
    """

    n: int
    k: int
    p: tuple[tuple[float, ...], ...] | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        # Options, as other libraries have them.
        if isinstance(self.n, (str, float)) or isinstance(self.k, (str, float)):
            shown = f"got {self.n!r} and {self.k!r}; a variable with these options is written"
            raise TypeError(
                f"n and k: expected integers, {shown} kl.Choice({self.n!r}, {self.k!r})"
            )
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

    @property
    def options(self) -> Indices:
        return np.full(self.n, self.k)

    @property
    def _packed(self) -> np.dtype[Any]:
        """Type of a packed index: the shortest that fits, little-endian."""
        return np.dtype(
            "<u1" if self.k <= 2**8 else "<u2" if self.k <= 2**16 else "<u4"
        )

    @property
    def width(self) -> int:
        return self.n * self._packed.itemsize

    def initial(self) -> Array:
        p = (
            np.full((self.n, self.k), 1.0 / self.k)
            if self.p is None
            else np.array(self.p, dtype=float)
        )
        # 0.33 + 0.33 + 0.34 is 1 within rounding
        # Given probabilities sum to one within rounding.
        p = p / p.sum(axis=1, keepdims=True)
        return self.move(p.ravel(), np.zeros(p.size))

    def draw(self, theta: Array, u: Words) -> Points:
        # Option 1 or above if u falls below θ_1 + … + θ_{k−1}, option 2 or above below θ_2 + …, and
        # so on: cumulated from the last option, so that a choice of two is drawn as a bit is.
        tails = theta.reshape(self.n, self.k)[:, :0:-1].cumsum(axis=1)
        below = (
            u < threshold(np.minimum(tails, 1.0 - self.margin)).T[:, None, :]
        )
        return below.sum(axis=0, dtype=self.dtype)

    def statistics(self, x: Points) -> NDArray[Any]:
        return (x[:, :, None] == np.arange(self.k)).reshape(
            len(x), self.n * self.k
        )

    def features(self, x: Points) -> Array:
        # √k (T(x) − 1/k). Scalar products are k − 1 for equal options and −1 for others: for k = 2
        # those of bits.
        return np.where(
            self.statistics(x), self.k**0.5 - self.k**-0.5, -(self.k**-0.5)
        )

    def minimizer(self, w: Array) -> Points:
        reverse = w.reshape(len(w), self.n, self.k)[:, :, ::-1]
        return (self.k - 1 - reverse.argmin(axis=2)).astype(self.dtype)

    def whiten(self, theta: Array, v: Array) -> Array:
        # u = v/√θ is tangent at √θ. The Householder reflection that sends √θ to −(1, …, 1)/√k turns
        # it into the plane Σ = 0. It is an isometry, treats all options alike, and for k = 2 gives
        # the length of the bit's vector.
        root = np.sqrt(theta).reshape(self.n, self.k)
        # G(θ) = diag(1/θ), so G^½ v = v/√θ
        u = v.reshape(self.n, self.k) / root
        # The vector of the reflection, w = √θ + (1, …, 1)/√k
        normal = root + self.k**-0.5
        # |normal|² = 2 + 2 Σ√θ/√k = 2 Σ normal/√k
        scale = (normal * u).sum(axis=1) * self.k**0.5 / normal.sum(axis=1)
        return (u - scale[:, None] * normal).ravel()

    def move(self, theta: Array, step: Array) -> Array:
        moved = (theta + step).reshape(self.n, self.k)
        # Only variables with an option below the margin are projected.
        low = (moved < self.margin).any(axis=1)
        if low.any():
            # Options below the margin are raised to it; the others are reduced in proportion to
            # their excess over it.
            raised = np.maximum(moved[low], self.margin)
            spare = raised - self.margin
            raised += (
                spare
                * ((1.0 - raised.sum(axis=1)) / spare.sum(axis=1))[:, None]
            )
            moved[low] = np.maximum(raised, self.margin)
        return moved.ravel()

    def mode(self, theta: Array) -> Points:
        # The last one in case of ties, as the mode of a bit at ½ is one.
        return (
            self.k - 1 - theta.reshape(self.n, self.k)[:, ::-1].argmax(axis=1)
        ).astype(self.dtype)

    def entropy(self, theta: Array) -> float:
        return float(-(theta @ np.log(theta)))

    def marginal(self, theta: Array, i: int) -> Discrete:
        return Discrete(theta[i * self.k : (i + 1) * self.k])

    def parameters(self, i: int) -> range:
        return range(i * self.k, (i + 1) * self.k)

    def select(self, columns: Sequence[int]) -> Categorical:
        return Categorical(
            len(columns),
            self.k,
            None if self.p is None else tuple(self.p[i] for i in columns),
        )

    def pack(self, x: Points) -> bytes:
        return np.ascontiguousarray(x, dtype=self._packed).tobytes()

    def unpack(self, data: bytes) -> Points:
        x = packed_rows(data, self.width).view(self._packed)
        if (x >= self.k).any():
            raise ValueError(
                f"packed point: expected options 0 to {self.k - 1}, got {x.max()}"
            )
        return x.astype(self.dtype)


def margin(variables: int, options: int) -> float:
    """Return the least probability of an option.

    On average about one variable per point then differs from its mode.
    """
    # 1/(D (k − 1)) per option, at most half of a uniform option's probability
    return min(1.0 / (variables * (options - 1)), 1.0 / (2 * options))


@dataclass(frozen=True)
class Product(ColumnFamily):
    """Product of independent families: points, parameters and statistics are concatenated.

    Parameters
    ----------
    parts : tuple of Family
        The factors. Each gets the margins of the whole problem, so a product of bits is the family
        of all bits.

    Examples
    --------
    >>> from knobless.families import Bernoulli, Categorical, Product
    >>> Product((Bernoulli(2), Categorical(1, 3))).initial().round(3).tolist()
    [0.5, 0.5, 0.333, 0.333, 0.333]
    """

    parts: tuple[Family, ...]

    def __post_init__(self) -> None:
        positive_int("number of parts", len(self.parts))
        total = sum(part.variables for part in self.parts)
        object.__setattr__(
            self, "parts", tuple(part.within(total) for part in self.parts)
        )

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

    @cached_property
    def options(self) -> Indices:
        return np.concatenate([part.options for part in self.parts])

    @property
    def counts(self) -> Indices:
        return np.concatenate([part.counts for part in self.parts])

    @cached_property
    def size_bounds(self) -> tuple[SizeBounds, ...]:
        located = zip(self.parts, self.part_columns, strict=True)
        return tuple(
            SizeBounds(
                slice(
                    at.start + bounds.columns.start,
                    at.start + bounds.columns.stop,
                ),
                bounds.low,
                bounds.high,
            )
            for part, at in located
            for bounds in part.size_bounds
        )

    @cached_property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    def within(self, total: int) -> Self:
        product = replace(self)
        object.__setattr__(
            product, "parts", tuple(part.within(total) for part in self.parts)
        )
        return product

    @cached_property
    def part_columns(self) -> list[slice]:
        """Columns of each part."""
        return slices(part.variables for part in self.parts)

    @cached_property
    def part_parameters(self) -> list[slice]:
        """Parameters of each part in θ."""
        return slices(len(part.initial()) for part in self.parts)

    @cached_property
    def _words(self) -> list[slice]:
        return slices(part.words for part in self.parts)

    def initial(self) -> Array:
        return np.concatenate([part.initial() for part in self.parts])

    def draw(self, theta: Array, u: Words) -> Points:
        located = zip(
            self.parts, self.part_parameters, self._words, strict=True
        )
        return np.concatenate(
            [part.draw(theta[p], u[:, c]) for part, p, c in located], axis=1
        )

    def statistics(self, x: Points) -> NDArray[Any]:
        located = zip(self.parts, self.part_columns, strict=True)
        return np.concatenate(
            [part.statistics(x[:, c]) for part, c in located], axis=1
        )

    def indices(self, x: Points) -> Points:
        located = zip(self.parts, self.part_columns, strict=True)
        return np.concatenate(
            [part.indices(x[:, c]) for part, c in located], axis=1
        )

    def features(self, x: Points) -> Array:
        located = zip(self.parts, self.part_columns, strict=True)
        return np.concatenate(
            [part.features(x[:, c]) for part, c in located], axis=1
        )

    def minimizer(self, w: Array) -> Points:
        located = zip(self.parts, self.part_parameters, strict=True)
        return np.concatenate(
            [part.minimizer(w[:, p]) for part, p in located], axis=1
        )

    def whiten(self, theta: Array, v: Array) -> Array:
        located = zip(self.parts, self.part_parameters, strict=True)
        return np.concatenate(
            [part.whiten(theta[p], v[p]) for part, p in located]
        )

    def move(self, theta: Array, step: Array) -> Array:
        located = zip(self.parts, self.part_parameters, strict=True)
        return np.concatenate(
            [part.move(theta[p], step[p]) for part, p in located]
        )

    def mode(self, theta: Array) -> Points:
        located = zip(self.parts, self.part_parameters, strict=True)
        return np.concatenate([part.mode(theta[p]) for part, p in located])

    def entropy(self, theta: Array) -> float:
        located = zip(self.parts, self.part_parameters, strict=True)
        return sum(part.entropy(theta[p]) for part, p in located)

    def marginal(self, theta: Array, i: int) -> Discrete | Normal:
        # Column i of the product is column i of one of its parts.
        at, i = self._part_of(i)
        return self.parts[at].marginal(theta[self.part_parameters[at]], i)

    def parameters(self, i: int) -> range:
        at, i = self._part_of(i)
        start = self.part_parameters[at].start
        indices = self.parts[at].parameters(i)
        return range(start + indices.start, start + indices.stop, indices.step)

    def _part_of(self, i: int) -> tuple[int, int]:
        """Return the index of the part of column i, and the index of the column there."""
        at = (
            bisect_right(
                self.part_columns, i, key=lambda columns: columns.start
            )
            - 1
        )
        return at, i - self.part_columns[at].start

    def select(self, columns: Sequence[int]) -> Family:
        chosen = [
            (part, [i - c.start for i in columns if c.start <= i < c.stop])
            for part, c in zip(self.parts, self.part_columns, strict=True)
        ]
        parts = tuple(part.select(inner) for part, inner in chosen if inner)
        return parts[0] if len(parts) == 1 else Product(parts)

    def pack(self, x: Points) -> bytes:
        located = zip(self.parts, self.part_columns, strict=True)
        return np.concatenate(
            [
                packed_rows(part.pack(x[:, c]), part.width)
                for part, c in located
            ],
            axis=1,
        ).tobytes()

    def unpack(self, data: bytes) -> Points:
        rows = packed_rows(data, self.width)
        located = zip(
            self.parts, slices(part.width for part in self.parts), strict=True
        )
        return np.concatenate(
            [part.unpack(rows[:, w].tobytes()) for part, w in located], axis=1
        )


def slices(lengths: Iterable[int]) -> list[slice]:
    """Return consecutive slices of these lengths."""
    return [slice(a, b) for a, b in pairwise(accumulate(lengths, initial=0))]


def packed_rows(data: bytes, width: int) -> NDArray[np.uint8]:
    """Return packed points as rows of bytes.

    Raise ValueError unless the length is a multiple of `width`.
    """
    if len(data) % width:
        raise ValueError(
            f"packed points: expected {width} bytes for each, got {len(data)} in all"
        )
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
