"""Subsets of n options with a bounded number of members.

Bits that are drawn independently, given that there are k ones, have the conditional Bernoulli
distribution: the probability of a subset is proportional to the product of the odds of its members.
It is an exponential family with T(x) = x, for a fixed size as well as for a range of sizes. θ is
the exact probability of each option to be a member; the odds that belong to it are computed when
points are drawn.

`resized` is what other algorithms use to stay within the bounds when they combine points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import integer, positive_int, probabilities

from .families import ColumnFamily, Discrete, Family, SizeBounds, packed_rows
from .types import Array, Indices, Points, Words

# Of the probabilities of the options, and of the expected size
MOST_ERROR = 1e-10
# In which the odds are computed, at most; up to about 10 are needed
ITERATIONS = 100
LARGEST = 2**1000  # larger numbers of points are infinite

Thresholds = NDArray[np.uint64]


@dataclass(frozen=True)
class ConditionalBernoulli(ColumnFamily):
    """Family of subsets of `n` options with `low` to `high` members: T(x) = x and θ = P(x = 1).

    Parameters
    ----------
    n : int
        Number of options, one bit each.
    low, high : int
        Smallest and largest number of ones; not both 0 or both `n`.
    p : float or tuple of float, optional
        Initial probability of a one before the number of ones is taken into account, for all
        options or for each. By default all options have equal probabilities and the expected number
        of ones is the mean of `low` and `high`.
    total : int, optional
        Number of variables D of the whole problem; `n` by default.

    Notes
    -----
    The probability of an admissible subset S is proportional to Π_S o_i with the odds o, which
    follow from θ = E[x]. If the size is fixed, θ sums to it, and there are n − 1 free parameters.

    θ stays in [m, 1 − m] with m = 1/D, or less if the sizes need it. The expected size stays within
    its bounds by 1/2, or by a quarter of their distance if this is less.

    `whiten` uses the diagonal of the Fisher matrix of independent bits, scaled such that the
    expected squared length of the whitened T(x) − θ is exactly the number of free parameters.

    References
    ----------
    Chen, S. X., Dempster, A. P. and Liu, J. S. (1994). Weighted finite population sampling to
    maximize entropy. Biometrika 81, 457-469.

    Examples
    --------
    >>> import numpy as np
    >>> from knobless.families import ConditionalBernoulli
    >>> pairs = ConditionalBernoulli(4, 2, 2)
    >>> pairs.sample(pairs.initial(), 3, np.random.default_rng(0)).sum(axis=1).tolist()
    [2, 2, 2]
    """

    n: int
    low: int
    high: int
    p: float | tuple[float, ...] | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        n = positive_int("n", self.n)
        low = integer("low", self.low)
        high = integer("high", self.high)
        if not 0 <= low <= high <= n or low == n or high == 0:
            raise ValueError(
                f"low, high: expected sizes from 0 to {n} of at least two subsets, got {low} and "
                f"{high}"
            )
        if self.p is not None:
            p = probabilities("p", self.p)
            if p.shape not in ((), (n,)) or not ((p > 0.0) & (p < 1.0)).all():
                raise ValueError(
                    f"p: expected one probability or {n}, strictly between 0 and 1, got {self.p!r}"
                )

    @property
    def dim(self) -> int:
        return self.n - (self.low == self.high)

    @property
    def variables(self) -> int:
        return self.n

    words = variables
    dtype = np.dtype(np.int8)

    @property
    def options(self) -> Indices:
        return np.full(self.n, 2)

    @property
    def size_bounds(self) -> tuple[SizeBounds, ...]:
        return (SizeBounds(slice(0, self.n), self.low, self.high),)

    @property
    def width(self) -> int:
        return (self.n + 7) // 8

    @cached_property
    def size_range(self) -> tuple[float, float]:
        """Smallest and largest expected number of ones."""
        # Distance of the expected size from its bounds.
        spare = min(0.5, (self.high - self.low) / 4)
        return self.low + spare, self.high - spare

    @cached_property
    def margin(self) -> float:
        smallest, largest = self.size_range
        return min(
            1.0 / max(self.total or self.n, 4),
            largest / (2 * self.n),
            (self.n - smallest) / (2 * self.n),
        )

    def within(self, total: int) -> Self:
        return replace(self, total=total)

    def initial(self) -> Array:
        if self.p is None:
            return self.move(
                np.full(self.n, (self.low + self.high) / (2 * self.n)),
                np.zeros(self.n),
            )
        # Log odds of the given probabilities, before the size counts.
        eta = np.broadcast_to(
            np.clip(_logit(np.asarray(self.p, dtype=float)), -50.0, 50.0),
            self.n,
        )
        # The same distribution with a common factor of all odds that makes sizes within the bounds
        # probable.
        # Expected size of independent bits, moved into the range of sizes.
        size = float(np.clip(_logistic(eta).sum(), *self.size_range))
        tilted = _with_sum(eta, size)
        # Undo the common factor of the odds by a weight for each size.
        log_weights = (eta[0] - tilted[0]) * (
            np.arange(self.low, self.high + 1) - size
        )
        sums = _Sums(_logistic(tilted), self.low, self.high)
        return self.move(
            sums.marginals(np.exp(log_weights - log_weights.max())),
            np.zeros(self.n),
        )

    def draw(self, theta: Array, u: Words) -> Points:
        rows = draw_thresholds(self.n, self.low, self.high, theta.tobytes())
        x = np.empty((len(u), self.n), dtype=bool)
        n_ones = np.zeros(len(u), dtype=np.intp)
        for i, row in enumerate(rows):
            # Option i is a member if u falls below the threshold for the members so far.
            n_ones += np.less(u[:, i], row[n_ones], out=x[:, i])
        return x.view(np.int8)

    def statistics(self, x: Points) -> NDArray[Any]:
        return x

    @cached_property
    def _uniform_mean(self) -> float:
        """Probability of a one if all points are equally probable."""
        sizes = np.arange(self.low, self.high + 1)
        # ln of the number of subsets of each size: C(n, k + 1)/C(n, k) = (n − k)/(k + 1)
        log = np.concatenate(
            ([0.0], np.cumsum(np.log((self.n - sizes[:-1]) / (sizes[:-1] + 1))))
        )
        weights = np.exp(log - log.max())
        return float(weights @ sizes / weights.sum() / self.n)

    def features(self, x: Points) -> Array:
        # (x − q)/√(q (1 − q)), scaled for a fixed size, where the bits are not independent.
        q = self._uniform_mean
        return (x - q) * math.sqrt(self.dim / (self.n * q * (1.0 - q)))

    def minimizer(self, w: Array) -> Points:
        # The options by increasing weight, the last ones first in case of ties.
        order = self.n - 1 - w[:, ::-1].argsort(axis=1, kind="stable")
        # Take all options of negative weight, within the bounds of the size.
        sizes = np.clip((w <= 0.0).sum(axis=1), self.low, self.high)
        x = np.zeros(w.shape, dtype=np.int8)
        np.put_along_axis(x, order, np.arange(self.n) < sizes[:, None], axis=1)
        return x

    def whiten(self, theta: Array, v: Array) -> Array:
        return v * np.sqrt(self.dim / (self.n * theta * (1.0 - theta)))

    def move(self, theta: Array, step: Array) -> Array:
        moved = theta + step
        m = self.margin
        clipped = np.minimum(np.maximum(moved, m), 1.0 - m)
        size = float(clipped.sum())
        smallest, largest = self.size_range
        if smallest - MOST_ERROR <= size <= largest + MOST_ERROR:
            return clipped
        # The projection is clip(moved + c) for the c with the nearest size, which is piecewise
        # linear in c.
        breakpoints = np.concatenate((m - moved, 1.0 - m - moved))
        order = breakpoints.argsort(kind="stable")
        c = breakpoints[order]
        # Between breakpoints, the size grows in c by the number of options inside of [m, 1 − m].
        slope = np.cumsum(np.where(order < self.n, 1.0, -1.0))
        sizes = self.n * m + np.concatenate(
            ([0.0], np.cumsum(slope[:-1] * np.diff(c)))
        )
        return np.clip(
            moved
            + np.interp(smallest if size < smallest else largest, sizes, c),
            m,
            1.0 - m,
        )

    def mode(self, theta: Array) -> Points:
        if self.low == self.high:
            eta = theta - 1.0  # in the order of the odds, and the size is fixed
        else:
            # Log odds of the options, with the factor that the sizes contribute.
            p, log_weights = _odds(theta, self.low, self.high)
            eta = _logit(p) + (log_weights[1] - log_weights[0])
        return self.minimizer(-eta[None])[0]

    def entropy(self, theta: Array) -> float:
        p, log_weights = _odds(theta, self.low, self.high)
        # −E[ln P(x)] with P(x) = weight(size) Π p^x (1 − p)^(1 − x) / total
        total = _Sums(p, self.low, self.high).sizes @ np.exp(log_weights)
        # E[log_weights(size)], which is linear in the size
        at_size = float(
            np.interp(
                theta.sum(), np.arange(self.low, self.high + 1), log_weights
            )
        )
        return float(
            math.log(total)
            - at_size
            - theta @ np.log(p)
            - (1.0 - theta) @ np.log1p(-p)
        )

    def marginal(self, theta: Array, i: int) -> Discrete:
        return Discrete(np.array([1.0 - theta[i], theta[i]]))

    def parameters(self, i: int) -> range:
        return range(i, i + 1)

    def select(self, columns: Sequence[int]) -> ConditionalBernoulli:
        if len(columns) != self.n:
            raise ValueError(
                f"columns: expected all {self.n} of a subset, got {len(columns)}"
            )
        return replace(self, total=None)

    def pack(self, x: Points) -> bytes:
        return np.packbits(x.astype(np.bool_), axis=1).tobytes()

    def unpack(self, data: bytes) -> Points:
        x = np.unpackbits(
            packed_rows(data, self.width), axis=1, count=self.n
        ).view(np.int8)
        sizes = x.sum(axis=1)
        wrong = (sizes < self.low) | (sizes > self.high)
        if wrong.any():
            raise ValueError(
                f"packed point: expected {self.low} to {self.high} ones, got {sizes[wrong][0]}"
            )
        return x


def _logit(p: Array) -> Array:
    return np.log(p) - np.log1p(-p)


def _logistic(eta: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-eta))


def _with_sum(eta: Array, total: float) -> Array:
    """Return eta + c, where c is such that the logistic function sums to `total`."""
    low = -800.0
    high = 800.0
    for _ in range(100):
        c = 0.5 * (low + high)
        # The sum increases in c.
        if _logistic(np.clip(eta + c, -700.0, 700.0)).sum() < total:
            low = c
        else:
            high = c
    return eta + c


class _Sums:
    """The distribution of the number of ones of independent bits, by its characteristic function.

    The number of ones has variance D = Σ p(1 − p). Sizes far from its mean have probabilities below
    1e-15 (Bernstein's inequality), so a discrete Fourier transform with few nodes is exact up to
    rounding. Their number is odd, for which 1 + p(z − 1) is not zero.
    """

    def __init__(self, p: Array, low: int, high: int) -> None:
        # Bernstein: P(|S − E S| ≥ t) ≤ 2 exp(−t²/(2D + 2t/3)) is below 1e-15 at this t.
        reach = 12.0 + math.sqrt(144.0 + 70.0 * float(p @ (1.0 - p)))
        enough = (
            -(-min(len(p) + 1, math.ceil(reach) + high - low) // 16) * 16 + 1
        )
        self.p = p
        self._z, self._shifts = _nodes(enough, low, high)
        # Characteristic function of a sum of independent bits: φ(z) = Π (1 + p (z − 1))
        self._factors = 1.0 + p[:, None] * (self._z - 1.0)
        # Half of the nodes: the others are their conjugates
        self._phi = self._factors.prod(axis=0) * (2.0 / enough)
        self._phi[0] *= 0.5

    @property
    def sizes(self) -> Array:
        """Probabilities of low to high ones."""
        return np.maximum((self._shifts @ self._phi).real, 0.0)

    def marginals(self, weights: Array) -> Array:
        """Return the probability of each one if sizes are weighted.

        Those outside of the bounds have weight zero.
        """
        # P(x_i = 1 | size) = p_i z φ(z)/(1 + p_i (z − 1)), summed over the nodes
        phi = weights @ self._shifts * self._phi
        return (
            self.p
            * ((phi * self._z) / self._factors).sum(axis=1).real
            / phi.sum().real
        )


@lru_cache(maxsize=8)
def _nodes(count: int, low: int, high: int) -> tuple[Any, Any]:
    """Return the first half of the roots of unity, and their powers for the sizes."""
    angles = np.arange(count // 2 + 1) * (2.0 * np.pi / count)
    return np.exp(1j * angles), np.exp(
        -1j * np.arange(low, high + 1)[:, None] * angles
    )


def _odds(theta: Array, low: int, high: int) -> tuple[Array, Array]:
    """Return the distribution with E[x] = θ.

    It is given by probabilities p of independent bits and log weights of the sizes low to high.

    The log weights are linear in the size: together they are a common factor of all odds p/(1 − p).
    """
    # Start at independent bits.
    target = _logit(theta)
    eta = target
    rate = 0.0
    # Newton's method with the approximation Cov ≈ diag(d) − d dᵀ/Σd of Hájek, where d is such that
    # the variances are θ(1 − θ), and with differences of logits instead of those of θ, divided by
    # θ(1 − θ). Its convergence is linear near the margins, so two steps are extrapolated (Anderson
    # acceleration).
    variance = theta * (1.0 - theta)
    d = variance
    for _ in range(5):
        # d (1 − d/Σd) = θ (1 − θ), by fixed-point iteration
        d = variance / (1.0 - np.minimum(d / d.sum(), 0.5))
    damping = variance / d
    mean = float(theta.sum())
    deviations = np.arange(low, high + 1, dtype=float) - mean
    # Η and step of the last iteration
    before: tuple[Array, Array] | None = None
    for _ in range(ITERATIONS):
        p = _logistic(eta)
        sums = _Sums(p, low, high)
        if high > low:
            # The common factor that gives the right expected size.
            rate = _rate(sums.sizes, deviations, rate)
        log_weights = rate * deviations
        marginals = sums.marginals(np.exp(log_weights))
        if np.abs(marginals - theta).max() <= MOST_ERROR:
            break
        # Newton's step in log odds.
        step = damping * (
            target - _logit(np.clip(marginals, 1e-12, 1.0 - 1e-12))
        )
        following = eta + step
        if before is not None:
            # Anderson acceleration with one previous step: minimize |step − c·change| over c.
            change = step - before[1]
            following -= (
                (change @ step)
                / max(float(change @ change), 1e-300)
                * (eta - before[0] + change)
            )
        before = (eta, step)
        eta = following
    return p, log_weights


def _rate(probabilities: Array, deviations: Array, rate: float) -> float:
    """Return the r with Σ p d exp(r d) = 0 for probabilities p and deviations d.

    Newton's method starts at `rate`.
    """
    for _ in range(100):
        weights = probabilities * np.exp(
            np.clip(rate * deviations, -700.0, 700.0)
        )
        # The tilted distribution of sizes; its mean is to be zero.
        weights /= weights.sum()
        mean = float(weights @ deviations)
        step = -mean / max(float(weights @ deviations**2) - mean**2, 1e-6)
        # Steps of at most 1 keep the exponentials bounded.
        rate += min(max(step, -1.0), 1.0)
        if abs(step) <= 1e-13:
            break
    return rate


@lru_cache(maxsize=8)
def draw_thresholds(
    n: int, low: int, high: int, theta: bytes
) -> list[Thresholds]:
    """Return the thresholds for drawing a subset, option by option.

    Row i has one for each number r of ones before option i: a uniform 32-bit integer below it is a
    one. The weight of all ways to continue after r ones is computed from the last option to the
    first.
    """
    p, log_weights = _odds(np.frombuffer(theta), low, high)
    weights = np.zeros((n + 1, high + 2))
    # weights[i, r]: total weight of the ways to continue with options i, …, n − 1 after r ones
    weights[n, low : high + 1] = np.exp(log_weights)
    weight_of_one = np.empty((n, high + 1))
    for i in range(n - 1, -1, -1):
        # Option i is a one, or it is none.
        np.multiply(weights[i + 1, 1:], p[i], out=weight_of_one[i])
        np.multiply(weights[i + 1, :-1], 1.0 - p[i], out=weights[i, :-1])
        weights[i, :-1] += weight_of_one[i]
    total = weights[:-1, :-1]
    # Where the total is 0, so is the numerator
    np.divide(weight_of_one, total, out=weight_of_one, where=total > 0.0)
    weight_of_one *= 4294967296.0
    rows = weight_of_one.astype(np.uint64)
    rows.flags.writeable = False
    return list(rows)


def resized(x: Points, bounds: Sequence[SizeBounds], cost: Array) -> Points:
    """Return points with as many ones as the bounds allow, by changing the bits of least cost.

    Bits of cost inf must not be changed. It is a new array if a point was changed.
    """
    for columns, low, high in bounds:
        sizes = x[:, columns].sum(axis=1, dtype=np.intp)
        # Positive: ones to be removed; negative: ones to be added.
        excess = sizes - np.clip(sizes, low, high)
        if excess.any():
            x = x.copy()
            for i in excess.nonzero()[0].tolist():
                bits = x[i, columns]
                # The cost of bits that may change in this direction.
                eligible = np.where(
                    bits == (excess[i] > 0), cost[i, columns], np.inf
                )
                change = eligible.argsort(kind="stable")[: abs(excess[i])]
                bits[change] = 1 - bits[change]
                x[i, columns] = bits
    return x


def number_of_subsets(n: int, low: int, high: int) -> float:
    """Return the number of subsets of n options with low to high members.

    Inf for more than 2**1000.
    """
    middle = min(max(n // 2, low), high)
    # ln C(n, middle) of the largest summand: it avoids integers of many digits.
    log = (
        math.lgamma(n + 1)
        - math.lgamma(middle + 1)
        - math.lgamma(n - middle + 1)
    )
    if log > 1001 * math.log(2.0):
        return math.inf
    total = sum(math.comb(n, size) for size in range(low, high + 1))
    return math.inf if total > LARGEST else total


def number_of_points(family: Family) -> float:
    """Return the number of different points of a family without conditions.

    Inf with a continuum.
    """
    counts = family.counts.astype(float)
    counts[counts == 0.0] = math.inf
    subsets = 1.0
    for columns, low, high in family.size_bounds:
        counts[columns] = 1.0
        subsets *= number_of_subsets(columns.stop - columns.start, low, high)
    with np.errstate(over="ignore"):
        return float(counts.prod() * subsets)
