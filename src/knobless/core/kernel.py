"""A Gaussian process over points of any family.

A point is a vector of coordinates: a number on its range, with an integer at the center of its
cell, and an option at a corner of a simplex with edges of length 1. An inactive variable is at the
center of its values; a conditional one has a further coordinate for whether it is active. The
covariance is a Matérn function, with ν = 5/2, of the distance between such vectors, with one length
for each variable.

Where there are many bits, they have no lengths. Their covariance is a sum over orders of
interaction, by which that of the other variables is multiplied. A function of order k is a sum of
products of k bits, as −1 and 1, with independent normal weights. Its values at two points that
differ in d of n bits have the correlation K_k(d) / K_k(0), with the Krawtchouk polynomial K_k.

Where values have noise, few of them cannot show interactions. The covariance is then a sum of two:
that above, and that of a linear function of the features of the family, as in `linear_model.py`.
The evidence decides on their shares.

Lengths, the shares of the orders and the variance of noise maximize the posterior density, with
wide priors. By the prior, the squared distance of two random points is about 1 in units of the
lengths, whatever their number. Mean and variance of the process are those of largest likelihood.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from functools import cache, cached_property
from typing import NamedTuple, Self

import numpy as np

from .conditional import Conditional
from .coordinate_search import axes_of
from .families import Family
from .gaussian import bounded
from .types import Array, Indices, Mask, Points
from .violation import is_feasible

MANY_BITS = 8  # from which on bits have no lengths of their own
NOISE = 1e-3  # variance of noise by the prior, relative to that of the process
# Standard deviations of the logarithms by the prior
LENGTH_SPREAD, NOISE_SPREAD, SHARE_SPREAD = 1.0, 2.0, 1.0
# Of the variance by the prior: orders 1 to 4
SHARES = np.array([0.53, 0.27, 0.13, 0.07])
NOISY = 0.03  # the same where values are known to have noise
# Log odds of the share of the linear part by the prior, and their standard deviation
LINEAR, LINEAR_SPREAD = 0.0, 2.0
# The same, at least, which also keeps the covariance invertible
LEAST_NOISE = 1e-7
# Distance between active and inactive, in the further coordinate
ACTIVITY = 0.5
# Of the maximization: most steps, and the gain below which it ends
STEPS, TOLERANCE = 12, 1e-3
BLOCK_SIZE = 64  # rows and columns of a block
# Of the transformation of values, neither 0 nor 2
POWERS = np.arange(-2.9, 2.0, 0.2)


@cache
def correlations(n: int) -> Array:
    """Return the correlations of each order by the number of bits that differ.

    The shape is (orders, n + 1).
    """
    orders = min(len(SHARES), n)
    # In row d, d of them are −1
    signs = np.where(np.arange(n) < np.arange(n + 1)[:, None], -1.0, 1.0)
    sums = np.zeros((orders + 1, n + 1))  # of all products of k of them
    sums[0] = 1.0
    for j in range(n):
        sums[1:] += signs[:, j] * sums[:-1]
    return (
        sums[1:]
        / np.array([math.comb(n, k) for k in range(1, orders + 1)])[:, None]
    )


@dataclass(frozen=True)
class Encoding:
    """The coordinates of the points of a family.

    Parameters
    ----------
    family : Family
        The family.
    linear : bool
        Whether the covariance has a linear part.
    """

    family: Family
    linear: bool = False

    @cached_property
    def conditional(self) -> Mask:
        """Which columns are conditional."""
        mask = np.zeros(self.family.variables, dtype=bool)
        if isinstance(self.family, Conditional):
            mask[[condition.column for condition in self.family.conditions]] = (
                True
            )
        return mask

    @cached_property
    def bits(self) -> Indices:
        """Columns of bits that have no lengths of their own."""
        columns = np.flatnonzero((self.family.options == 2) & ~self.conditional)
        return columns if len(columns) >= MANY_BITS else columns[:0]

    @cached_property
    def others(self) -> Indices:
        """Columns that have lengths of their own."""
        return np.setdiff1d(np.arange(self.family.variables), self.bits)

    @cached_property
    def _choices(self) -> tuple[Indices, Indices]:
        """Column and option of each coordinate of a choice of more than two options."""
        columns = self.others[self.family.options[self.others] > 2]
        options = [np.arange(k) for k in self.family.options[columns].tolist()]
        return np.repeat(columns, self.family.options[columns]), np.concatenate(
            [*options, columns[:0]]
        )

    @cached_property
    def _scalars(self) -> Indices:
        """Columns with one coordinate, whose values are from 0 to 1."""
        return self.others[self.family.options[self.others] <= 2]

    @cached_property
    def column_of(self) -> Indices:
        """For each coordinate, the index of its column among those with lengths."""
        columns = np.concatenate(
            [self._scalars, self._choices[0], np.flatnonzero(self.conditional)]
        )
        return np.searchsorted(self.others, columns)

    @cached_property
    def mean_squares(self) -> Array:
        """Mean squared distance of two random values of each column with a length."""
        options = self.family.options[self.others]
        return np.where(
            options > 0, 1.0 - 1.0 / np.maximum(options, 1), 1.0 / 6.0
        )

    @cached_property
    def _grids(self) -> tuple[Indices, Array]:
        """Columns of the numbers with finitely many values, and their axes."""
        axes = np.array(
            [astuple(axis) for axis in axes_of(self.family)]
        ).reshape(-1, 5)
        finite = axes[:, 4] > 0
        return np.flatnonzero(self.family.options == 0)[finite], axes[finite].T

    def centered(self, x: Points) -> Points:
        """Return points with integers at the centers of their cells, and numbers within bounds."""
        numbers = self.family.options == 0
        if not numbers.any():
            return x
        x = np.where(numbers, bounded(x, 0.0, 1.0), x)
        columns, (low, _, cell, rate, count) = self._grids
        if len(columns):
            z = x[:, columns]
            scale = np.where(rate > 0.0, rate, 1.0)
            # On a log scale, the centers of integers v are at ln v
            unit = cell * scale
            first = np.rint(np.exp(scale * low) / unit)
            v = bounded(
                np.rint(np.exp(scale * z) / unit), first, first + count - 1.0
            )
            step = bounded(np.floor(z * count), 0.0, count - 1.0)
            x[:, columns] = np.where(
                rate > 0.0, np.log(v * unit) / scale, (step + 0.5) / count
            )
        return x

    def active(self, x: Points) -> Mask:
        """Return which columns of points are active."""
        if isinstance(self.family, Conditional):
            return self.family.active(x)
        return np.ones(x.shape, dtype=bool)

    def coordinates(self, x: Points) -> Array:
        """Return the coordinates of the columns with lengths, for points with centered numbers."""
        columns, options = self._choices
        options_of = self.family.options[columns]
        corners = math.sqrt(0.5) * (
            (x[:, columns] == options) - 1.0 / options_of
        )
        scalars = x[:, self._scalars] - 0.5
        if not self.conditional.any():
            if len(columns):
                return np.concatenate([scalars, corners], axis=1)
            return scalars
        active = self.active(x)
        return np.concatenate(
            [
                scalars * active[:, self._scalars],
                corners * active[:, columns],
                ACTIVITY * active[:, self.conditional],
            ],
            axis=1,
        )

    def features(self, x: Points) -> Array:
        """Return the features of the linear part, of mean squared length 1; none without it."""
        if not self.linear:
            return np.empty((len(x), 0))
        return self.family.features(x) / math.sqrt(self.family.dim)

    def signs(self, x: Points) -> Array:
        """Return the bits without lengths, as −1 and 1."""
        return 2.0 * x[:, self.bits] - 1.0


class Hyperparameters(NamedTuple):
    """What the covariance depends on, as logarithms.

    Attributes
    ----------
    lengths : array
        One for each variable that has one.
    noise : float
        Variance of noise, relative to that of the process.
    linear : float
        Odds of the share of the linear part; −inf without it.
    shares : array
        Shares of the orders of interaction, up to a factor.
    """

    lengths: Array
    noise: float
    linear: float
    shares: Array

    @classmethod
    def of(cls, theta: Array, encoding: Encoding) -> Self:
        """Return those in a vector."""
        n = len(encoding.others)
        linear = float(theta[n + 1]) if encoding.linear else -math.inf
        return cls(
            theta[:n], float(theta[n]), linear, theta[n + 1 + encoding.linear :]
        )

    @property
    def share(self) -> float:
        """Share of the linear part in the variance."""
        if self.linear > -math.inf:
            return 1.0 / (1.0 + math.exp(-self.linear))
        return 0.0


class Covariance:
    """The covariance of the process at points, and its derivatives.

    `theta` has all hyperparameters.

    Parameters
    ----------
    encoding : Encoding
        Coordinates of the points.
    x : array of shape (m, variables)
        Points with centered numbers.
    """

    def __init__(self, encoding: Encoding, x: Points) -> None:
        self.encoding, self.phi, self.signs = (
            encoding,
            encoding.coordinates(x),
            encoding.signs(x),
        )
        features = encoding.features(x)
        self.products = product(features, features.T)
        n = len(encoding.others)
        active = (
            encoding.active(x)[:, encoding.others].sum(axis=1).mean()
            if len(x) and n
            else 1.0
        )
        self.orders = (
            correlations(len(encoding.bits))
            if len(encoding.bits)
            else np.ones((0, 1))
        )
        lengths = 0.5 * np.log(max(active, 1.0) * encoding.mean_squares)
        shares = np.log(SHARES[: len(self.orders)])
        linear = [LINEAR] * encoding.linear
        noise = math.log(NOISY if encoding.linear else NOISE)
        # Of the prior
        self.mean = np.concatenate([lengths, [noise], linear, shares])
        spreads = (LENGTH_SPREAD, NOISE_SPREAD, LINEAR_SPREAD, SHARE_SPREAD)
        self.spread = np.repeat(spreads, (n, 1, len(linear), len(shares)))

    def density(self, theta: Array, y: Array) -> tuple[float, Array]:
        """Return minus the log density of hyperparameters given values, and its gradient.

        Both are up to a constant.
        """
        n = len(self.encoding.others)
        m = len(y)
        hyperparameters = Hyperparameters.of(theta, self.encoding)
        lengths, noise, _, shares = hyperparameters
        weights = np.exp(-2.0 * lengths)[self.encoding.column_of]
        matern, slope = matern_and_slope(
            squared_distances(
                self.phi * np.sqrt(weights), self.phi * np.sqrt(weights)
            )
        )
        p = np.exp(shares - shares.max()) if len(shares) else shares
        p = p / p.sum() if len(p) else p
        d = different(self.signs, self.signs)
        orders = p @ self.orders if len(p) else np.ones(1)
        factor = orders[d] * matern
        k = factor
        share = hyperparameters.share
        if self.encoding.linear:
            k = share * self.products + (1.0 - share) * factor
        k = k + (math.exp(noise) + LEAST_NOISE) * np.eye(m)
        root = inverse_root(k)
        inverse = product(root.T, root)
        _, solved, variance = profiled(inverse, y)
        offset = (theta - self.mean) / self.spread
        value = (
            0.5 * m * math.log(variance)
            - np.log(np.diag(root)).sum()
            + 0.5 * float(offset @ offset)
        )
        # Minus twice the derivative by the covariance
        q = np.outer(solved, solved) / variance - inverse
        gradient = offset / self.spread
        if self.encoding.linear:
            change = share * (1.0 - share) * (self.products - factor)
            gradient[n + 1] -= 0.5 * float((q * change).sum())
            q, noises = (1.0 - share) * q, float(np.trace(q))
        else:
            noises = float(np.trace(q))
        if n:
            # Σ_ab w_ab (φ_a − φ_b)² for each coordinate, with w symmetric, is 2 (Σ_a (Σ_b w_ab)
            # φ_a² − φᵀwφ).
            w = q * slope * orders[d]
            sums = w.sum(axis=1) @ self.phi**2 - (
                self.phi * product(w, self.phi)
            ).sum(axis=0)
            gradient[:n] += 2.0 * np.bincount(
                self.encoding.column_of, weights * sums, n
            )
        gradient[n] -= 0.5 * noises * math.exp(noise)
        if len(p):
            w = q * matern
            by_order = np.array([(w * order[d]).sum() for order in self.orders])
            gradient[n + 1 + self.encoding.linear :] -= (
                0.5 * p * (by_order - p @ by_order)
            )
        return value, gradient

    def fit(self, y: Array, starts: list[Array]) -> Array:
        """Return the hyperparameters of largest density, by a quasi-Newton method."""
        return min(
            (self._climbed(start, y) for start in starts),
            key=lambda climbed: climbed[0],
        )[1]

    def _climbed(self, theta: Array, y: Array) -> tuple[float, Array]:
        value, gradient = self.density(theta, y)
        inverse_hessian = np.diag(0.3 * np.minimum(self.spread, 1.0) ** 2)
        for _ in range(STEPS):
            direction = -inverse_hessian @ gradient
            direction *= min(
                1.0, 1.5 / max(float(np.abs(direction).max()), 1e-12)
            )
            length = 1.0
            while True:
                after, slope = self.density(theta + length * direction, y)
                if after <= value + 1e-4 * length * float(gradient @ direction):
                    break
                length *= 0.3
                if length < 1e-3:
                    return value, theta
            step = length * direction
            change = slope - gradient
            along = float(step @ change)
            if along > 1e-10:
                v = np.eye(len(theta)) - np.outer(step, change) / along
                inverse_hessian = (
                    v @ inverse_hessian @ v.T + np.outer(step, step) / along
                )
            gain = value - after
            theta = theta + step
            value = after
            gradient = slope
            if gain < TOLERANCE:
                break
        return value, theta


class Process(NamedTuple):
    """The process, given values at points.

    Attributes
    ----------
    encoding : Encoding
        Coordinates of the points.
    weights : array
        Root of the weight of each coordinate in the squared distance.
    orders : array
        Covariance by the number of bits that differ.
    share : float
        Share of the linear part in the variance.
    phi, signs, features : array
        Coordinates of the points, their bits, and features of the linear part.
    root : array of shape (m, m)
        Inverse of the Cholesky factor of the covariance.
    solved : array of shape (m,)
        Inverse of the covariance times the differences of the values from the level.
    level, variance, noise : float
        Mean and variance of the process before there are values, and the variance of noise relative
        to that.
    """

    encoding: Encoding
    weights: Array
    orders: Array
    share: float
    phi: Array
    signs: Array
    features: Array
    root: Array
    solved: Array
    level: float
    variance: float
    noise: float

    @classmethod
    def of(cls, encoding: Encoding, x: Points, y: Array, theta: Array) -> Self:
        """Return the process with given hyperparameters."""
        hyperparameters = Hyperparameters.of(theta, encoding)
        lengths, noise, _, shares = hyperparameters
        weights = np.exp(-lengths)[encoding.column_of]
        p = np.exp(shares - shares.max()) if len(shares) else shares
        orders = (
            (p / p.sum()) @ correlations(len(encoding.bits))
            if len(p)
            else np.ones(1)
        )
        noise = math.exp(noise) + LEAST_NOISE
        at = (
            encoding.coordinates(x) * weights,
            encoding.signs(x),
            encoding.features(x),
        )
        root = np.empty((0, 0))
        none = np.empty(0)
        process = cls(
            encoding,
            weights,
            orders,
            hyperparameters.share,
            *at,
            root,
            none,
            0.0,
            1.0,
            noise,
        )
        k = process._covariance(*at)
        k.flat[:: len(x) + 1] += noise
        root = inverse_root(k)
        level, solved, variance = profiled(product(root.T, root), y)
        return process._replace(
            root=root, solved=solved, level=level, variance=variance
        )

    def _covariance(self, phi: Array, signs: Array, features: Array) -> Array:
        k, _ = matern_and_slope(squared_distances(phi, self.phi))
        k = (
            k * self.orders[different(signs, self.signs)]
            if signs.shape[1]
            else k
        )
        if not self.share:
            return k
        return (
            self.share * product(features, self.features.T)
            + (1.0 - self.share) * k
        )

    def _own(self, features: Array) -> Array:
        """Return the prior variances of the function, in units of the process variance."""
        return 1.0 + self.share * ((features * features).sum(axis=1) - 1.0)

    def predict(self, x: Points) -> tuple[Array, Array]:
        """Return mean and standard deviation of the function at points with centered numbers."""
        features = self.encoding.features(x)
        phi = self.encoding.coordinates(x) * self.weights
        signs = self.encoding.signs(x)
        k = self._covariance(phi, signs, features)
        along = product(k, self.root.T)
        left = np.maximum(
            self._own(features) - (along * along).sum(axis=1), LEAST_NOISE
        )
        return self.level + (k * self.solved).sum(axis=1), np.sqrt(
            self.variance * left
        )

    def believing(self, x: Points) -> Self:
        """Return the process with another point, whose value is assumed to be the mean."""
        phi = self.encoding.coordinates(x[None]) * self.weights
        signs = self.encoding.signs(x[None])
        features = self.encoding.features(x[None])
        along = product(self._covariance(phi, signs, features), self.root.T)
        left = (
            self._own(features)[0] + self.noise - float((along * along).sum())
        )
        deviation = math.sqrt(max(left, LEAST_NOISE))
        m = len(self.root)
        root = np.zeros((m + 1, m + 1))
        root[:m, :m], root[m, :m], root[m, m] = (
            self.root,
            -product(along, self.root)[0] / deviation,
            1.0 / deviation,
        )
        phi = np.concatenate([self.phi, phi])
        signs = np.concatenate([self.signs, signs])
        features = np.concatenate([self.features, features])
        return self._replace(
            phi=phi,
            signs=signs,
            features=features,
            root=root,
            solved=np.append(self.solved, 0.0),
        )


def profiled(inverse: Array, y: Array) -> tuple[float, Array, float]:
    """Return the level of largest likelihood, the solution without it, and the variance.

    Values are scaled to variance 1. If they are equal, further ones may differ nevertheless: there
    is a least variance.
    """
    row_sums = inverse.sum(axis=0)
    level = float(row_sums @ y) / float(row_sums.sum())
    residual = y - level
    solved = (inverse * residual).sum(axis=1)
    return (
        level,
        solved,
        max(float(residual @ solved) / len(y), 1.0 / (len(y) + 1.0)),
    )


def matern_and_slope(squares: Array) -> tuple[Array, Array]:
    """Return the Matérn function with ν = 5/2 of squared distances, and its derivative by them."""
    r = np.sqrt(5.0 * squares)
    e = np.exp(-r)
    slope = (1.0 + r) * e
    return slope + (5.0 / 3.0) * squares * e, (-5.0 / 6.0) * slope


def squared_distances(a: Array, b: Array) -> Array:
    """Return the squared distances of all pairs of rows."""
    squares = (
        (a * a).sum(axis=1)[:, None]
        + (b * b).sum(axis=1)
        - 2.0 * product(a, b.T)
    )
    return np.maximum(squares, 0.0)


def different(a: Array, b: Array) -> Indices:
    """Return the numbers of bits that differ, for points with bits as −1 and 1."""
    return np.rint(0.5 * (a.shape[1] - product(a, b.T))).astype(np.intp)


def product(a: Array, b: Array) -> Array:
    """Return a @ b by blocks, for which libraries of linear algebra use one thread.

    Where other processes use the cores, as in parallel runs, several threads wait for each other:
    the search took ten times as long.
    """
    if a.size * b.shape[1] <= BLOCK_SIZE**3:
        return a @ b
    total = np.zeros((len(a), b.shape[1]))
    for i in range(0, len(a), BLOCK_SIZE):
        for j in range(0, b.shape[1], BLOCK_SIZE):
            rows = slice(i, i + BLOCK_SIZE)
            columns = slice(j, j + BLOCK_SIZE)
            for k in range(0, len(b), BLOCK_SIZE):
                total[rows, columns] += (
                    a[rows, k : k + BLOCK_SIZE] @ b[k : k + BLOCK_SIZE, columns]
                )
    return total


def inverse_root(k: Array) -> Array:
    """Return the inverse of the Cholesky factor of a positive definite matrix, by blocks."""
    root = np.zeros(k.shape)
    for i in range(0, len(k), BLOCK_SIZE):
        block = slice(i, min(i + BLOCK_SIZE, len(k)))
        before = slice(0, i)
        along = product(k[block, before], root[before, before].T)
        corner = np.linalg.inv(
            np.linalg.cholesky(k[block, block] - product(along, along.T))
        )
        root[block, block] = corner
        root[block, before] = -product(
            corner, product(along, root[before, before])
        )
    return root


def scaled_values(f: Array) -> Array:
    """Return values with mean 0 and variance 1, transformed so that they are nearly normal.

    Failed and infeasible points count as the worst of the others. Values far above the upper
    quartile are cut, and the power of Yeo and Johnson is the one of largest likelihood.
    """
    usable = np.isfinite(f)
    if (usable & is_feasible(f)).any():
        usable &= is_feasible(f)
    if not usable.any():
        return np.zeros(len(f))
    # So that differences of the largest floats are finite
    y = f / max(float(np.abs(f[usable]).max()), 1.0)
    y = np.where(usable, y, y[usable].max()) - y[usable].min()
    quartile = float(np.quantile(y, 0.75))
    y = np.minimum(y, 3.0 * quartile) if quartile > 0.0 else y
    spread = float(y.std())
    if spread < np.finfo(float).tiny:
        return np.zeros(len(f))
    z = (y - y.mean()) / spread
    # The transformation of Yeo and Johnson for all powers, one per row; expm1(a t) / a is t for a =
    # 0.
    up = np.log1p(np.maximum(z, 0.0))
    down = np.log1p(np.maximum(-z, 0.0))
    powers = POWERS[:, None]
    t = np.where(
        z >= 0.0,
        np.expm1(powers * up) / powers,
        -np.expm1((2.0 - powers) * down) / (2.0 - powers),
    )
    likelihood = -0.5 * len(f) * np.log(np.maximum(t.var(axis=1), 1e-300)) + (
        POWERS - 1.0
    ) * float((up - down).sum())
    chosen = t[int((likelihood - 0.5 * (POWERS - 1.0) ** 2).argmax())]
    return (chosen - chosen.mean()) / max(float(chosen.std()), 1e-300)
