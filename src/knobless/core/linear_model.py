"""Bayesian linear regression with an uncertain signal-to-noise ratio, for models of the objective.

The model of n values y at points with the features φ is y = c + (φ − mean φ)·w + noise, where c has
a flat prior, w ~ N(0, τ² I) and the noise has variance σ². Only the ratio r = σ²/τ² matters. It is
given by the share R² of the variance of y that the features explain, r = dim·(1 − R²)/R², and its
posterior is computed on a grid of R². There may be several sets of values for the same points, such
as different scores of their ranks. The set of which the features explain the most is then the most
probable one.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .types import Array, Words

# (1 − R²)/R², R² = .002 to .999
RATIOS = np.exp(
    np.linspace(math.log(0.998 / 0.002), math.log(0.001 / 0.999), 16)
)
RANK = 1e-10  # eigenvalues below this share of the largest one are zero
TILE = 8  # rows of a matrix product
# Least variance of the noise, relative to that of y: values may be equal, or fit exactly
LEAST = 1e-12

Floats = NDArray[Any]  # of single or double precision

# Quantiles of the normal distribution by ln(p/(1 − p)), between which interpolation is exact to
# 1e-6.
_LOGITS = np.linspace(-20.0, 20.0, 4097)
_SCORES = np.array(
    [
        NormalDist().inv_cdf(1.0 / (1.0 + math.exp(-logit)))
        for logit in _LOGITS.tolist()
    ]
)


class LinearModel(NamedTuple):
    """Posterior distribution of the weights w.

    It is a mixture of normal distributions over the grid of ratios r.

    With several sets of values, the grid has all pairs of a set and an r.

    Attributes
    ----------
    n : int
        Number of values.
    level : array of shape (grid,)
        Mean of the values.
    center : array of shape (features,)
        Mean of the features.
    prior : array of shape (features,)
        Prior mean of w in units of τ.
    vectors : array of shape (features, rank)
        Eigenvectors of ΦᵀΦ with positive eigenvalues, where Φ has one row φ − mean φ per value.
    mean : array of shape (grid, rank)
        Posterior mean of w − τ·prior along the eigenvectors. Orthogonal to them it is zero.
    shrink : array of shape (grid, rank)
        Posterior standard deviation of w along the eigenvectors, minus τ; orthogonal to them it is
        τ.
    tau : array of shape (grid,)
        Prior standard deviation τ of the weights.
    probability : array of shape (grid,)
        Posterior probability of each r.
    noise : array of shape (grid,)
        Variance σ² of the noise.
    """

    n: int
    level: Array
    center: Array
    prior: Array
    vectors: Array
    mean: Array
    shrink: Array
    tau: Array
    probability: Array
    noise: Array

    @classmethod
    def fit(
        cls,
        phi: Array,
        y: Array,
        dim: int,
        prior: Array | None = None,
        gram: Array | None = None,
    ) -> Self:
        """Return the posterior distribution after n values, or after sets of n values.

        n is at least 2; each set is a row.

        `phi` has one row of features per value, whose expected squared length `dim` is their number
        of degrees of freedom. `prior` is the prior mean of w in units of τ, zero by default, and
        `gram` is phi.T @ phi, if it is known.

        Notes
        -----
        With the eigenvalues d and eigenvectors V of ΦᵀΦ and b = VᵀΦᵀy, the variance of the noise is
        estimated as σ² = (y·y − Σ b²/(d + r))/(n − 1) and the evidence is −½ ((n − 1) ln σ² + Σ
        ln(1 + d/r)), both without the prior mean; between sets of values, σ² is compared in units
        of the variance of the set. With fewer values than features the eigenvectors are those of
        ΦΦᵀ, mapped by Φᵀ.
        """
        n, features = phi.shape
        y = np.atleast_2d(y)
        center = phi.sum(axis=0) / n
        level = y.sum(axis=1) / n
        y = y - level[:, None]
        # The smaller of the two Gram matrices has the same positive eigenvalues.
        if n <= features:
            rows = phi - center
            d, u = np.linalg.eigh(rows @ rows.T)
            u, d = _positive(u, d)
            vectors = (rows.T @ u) / np.sqrt(d)
            b = np.sqrt(d) * (y @ u)
        else:
            gram = phi.T @ phi if gram is None else gram
            d, vectors = np.linalg.eigh(gram - n * np.outer(center, center))
            vectors, d = _positive(vectors, d)
            b = (y @ phi) @ vectors
        r = dim * RATIOS[:, None]
        # One row per set; one column per r below
        total = (y * y).sum(axis=1, keepdims=True) / (n - 1)
        unit = np.where(total > 0.0, total, 1.0)
        # σ² = (y·y − Σ b²/(d + r))/(n − 1)
        variance = np.maximum(
            total - (b * b) @ (1.0 / (d + r)).T / (n - 1), LEAST * unit
        )
        # −½ ((n − 1) ln σ² + Σ ln(1 + d/r))
        evidence = -0.5 * (
            (n - 1) * np.log(variance / unit) + np.log1p(d / r).sum(axis=1)
        )
        # Bayes' rule with equal prior probabilities.
        probability = np.exp(evidence - evidence.max()).ravel()
        probability /= probability.sum()
        # From here on one row per pair of a set and an r.
        b = np.repeat(b, len(RATIOS), axis=0)
        r = np.tile(r, (len(y), 1))
        level = np.repeat(level, len(RATIOS))
        variance = variance.ravel()
        sigma = np.sqrt(variance)[:, None]
        # r = σ²/τ²
        tau = sigma / np.sqrt(r)
        prior = np.zeros(features) if prior is None else prior
        # Ridge regression along each eigenvector.
        mean = (b - tau * d * (prior @ vectors)) / (d + r)
        shrink = sigma / np.sqrt(d + r) - tau
        return cls(
            n,
            level,
            center,
            prior,
            vectors,
            mean,
            shrink,
            tau[:, 0],
            probability,
            variance,
        )

    @property
    def weights(self) -> Array:
        """Posterior mean of w."""
        p = self.probability
        return (p @ self.tau) * self.prior + self.vectors @ (p @ self.mean)

    def draw(self, u: Words) -> Floats:
        """Return one draw of w per row of uniform integers (see `words`).

        Single precision is faster and exact enough.
        """
        # Draw an entry of the grid, then w from its normal distribution.
        at = np.searchsorted(
            np.cumsum(self.probability)[:-1], (u[:, 0] + 0.5) * 2.0**-32
        )
        z = normals(u[:, 1:])[:, : len(self.center)]
        vectors = self.vectors.astype(np.float32)
        # w = z τ + prior τ + V (z·V shrink + mean): exact, in two products
        inside = self.shrink.astype(np.float32)[at]
        inside *= _product(z, vectors)
        inside += self.mean.astype(np.float32)[at]
        w: Floats = _product(inside, vectors.T)
        w += (z + self.prior.astype(np.float32)) * self.tau.astype(np.float32)[
            at, None
        ]
        return w

    def predict(self, phi: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation at points with the features `phi`.

        The function is c + (φ − mean φ)·w.
        """
        q = phi - self.center
        along = q @ self.vectors
        means = (
            self.level
            + along @ self.mean.T
            + np.outer(q @ self.prior, self.tau)
        )
        mean = means @ self.probability
        # Var(w·q) = τ² ‖q‖² + Σ ((shrink + τ)² − τ²) (q·v)²
        spread = (self.shrink + self.tau[:, None]) ** 2 - self.tau[:, None] ** 2
        variance = (
            self.noise / self.n
            + np.outer((q * q).sum(axis=1), self.tau**2)
            + along**2 @ spread.T
        )
        # Law of total variance over the grid.
        variance += (means - mean[:, None]) ** 2
        return mean, np.sqrt(np.maximum(variance @ self.probability, 0.0))


def words(features: int) -> int:
    """Return the number of 32-bit uniforms per draw of w.

    One is for r, and there is one per normal number, in pairs.
    """
    return 1 + features + features % 2


def normals(u: Words) -> Floats:
    """Return one normal number per uniform integer, an even number per row, by Box and Muller.

    The numbers are in single precision, which is much faster.
    """
    half = u.astype(np.float32)
    half += np.float32(0.5)
    half *= np.float32(2.0**-32)
    # Box and Muller: √(−2 ln u₁) (cos, sin)(2π u₂)
    radius, angle = np.split(half, 2, axis=1)
    np.sqrt(np.float32(-2.0) * np.log(radius), out=radius)
    angle *= np.float32(2.0 * np.pi)
    return np.concatenate(
        [radius * np.cos(angle), radius * np.sin(angle)], axis=1
    )


def _product(rows: Floats, matrix: Floats) -> Floats:
    """Return rows @ matrix, computed in blocks of one shape.

    Each row is then the same bit for bit, however many rows there are.
    """
    m, n = rows.shape
    k = matrix.shape[1]
    # A matrix product of another shape may add in another order.
    padded = np.zeros((-(-m // TILE) * TILE, n), rows.dtype)
    padded[:m] = rows
    return (padded.reshape(len(padded) // TILE, TILE, n) @ matrix).reshape(
        len(padded), k
    )[:m]


def _positive(vectors: Array, d: Array) -> tuple[Array, Array]:
    """Return the eigenvectors with positive eigenvalues, and these, which are sorted."""
    # Eigenvalues below the rounding error are zero.
    first = int(np.searchsorted(d, max(RANK * d[-1], LEAST)))
    return vectors[:, first:], d[first:]


def rank_scores(f: Array) -> Array:
    """Return two sets of scores of the ranks of values, the lowest value first.

    NaN and inf are the worst, together.

    Normal scores Φ⁻¹(p) and exponential scores ln p for p = (rank − 3/8)/(n + 1/4), with the mean
    rank of equal values. Exponential scores differ most between the best values.
    """
    _, inverse, counts = np.unique(
        np.where(f == f, f, np.inf), return_inverse=True, return_counts=True
    )
    # Blom's plotting positions (rank − 3/8)/(n + 1/4), with mean ranks.
    p = (np.cumsum(counts) - 0.5 * (counts - 1) - 0.375) / (len(f) + 0.25)
    rows: Array = np.array(
        [np.interp(np.log(p / (1.0 - p)), _LOGITS, _SCORES), np.log(p)]
    )
    return rows[:, inverse]
