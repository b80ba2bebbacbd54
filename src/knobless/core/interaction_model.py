"""Gaussian processes with interactions, weighed against a linear model by evidence.

With the features φ of two points, the covariance of their values is proportional to φ·φ′ for a
linear function. For the order s it is proportional to exp(s φ·φ′/dim) − 1, whose expansion has
products of any number of features, s of them on average; for bits and choices it decreases
exponentially with the number of variables that differ. The posterior probabilities of the orders
show whether there are interactions, from evaluations alone.

A fit takes O(n³) operations for n evaluations, so these models are for the first hundreds of a run.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np

from .linear_model import LEAST, RATIOS, normals
from .types import Array, Words

ORDERS = (0.0, 2.0, 5.0)  # 0 is linear
# Share of the variance that is added for the factorization of a covariance, which may be singular
DIAGONAL = 1e-6


class InteractionModel(NamedTuple):
    """Posterior distribution of a function, as a mixture of Gaussian processes.

    The mixture is over orders, sets of values and ratios of noise to signal.

    Attributes
    ----------
    phi : array of shape (n, features)
        Features of the evaluations.
    dim : int
        Number of free parameters.
    means : array of shape (orders, n)
        For each evaluation, the mean of its covariances with all of them.
    values, vectors : arrays of shape (orders, n) and (orders, n, n)
        Eigenvalues and eigenvectors of the centered covariances.
    b : array of shape (orders, sets, n)
        Sets of values along the eigenvectors.
    variance : array of shape (orders, sets, ratios)
        Variance of the noise.
    probability : array of shape (orders, sets, ratios)
        Posterior probabilities. A priori, the probability of the linear model is one half.
    """

    phi: Array
    dim: int
    means: Array
    values: Array
    vectors: Array
    b: Array
    variance: Array
    probability: Array

    @classmethod
    def fit(cls, phi: Array, y: Array, dim: int) -> Self:
        """Return the posterior distribution after n values, at least two.

        `phi` has one row of features per value. The rows of `y` are sets of values, such as
        different scores of their ranks. `dim` is the number of free parameters.
        """
        n = len(phi)
        products = phi @ phi.T
        covariance = np.array(
            [_covariance(products, order, dim) for order in ORDERS]
        )
        means = covariance.mean(axis=1)
        # Remove the constant: k(x, y) − E k(x, ·) − E k(·, y) + E k(·, ·)
        centered = (
            covariance
            - means[:, None]
            - means[:, :, None]
            + means.mean(axis=1)[:, None, None]
        )
        d, vectors = np.linalg.eigh(centered)
        d = np.maximum(d, 0.0)
        y = y - y.mean(axis=1, keepdims=True)
        b = y @ vectors
        total = (y * y).sum(axis=1)[:, None] / (n - 1)
        unit = np.where(total > 0.0, total, 1.0)
        ratios = RATIOS[:, None]
        # Of the noise, along each vector
        share = ratios / (d[:, None] + ratios)
        # σ² = bᵀ diag(ρ/(d + ρ)) b/(n − 1) for the ratio ρ of noise to signal
        variance = np.maximum(
            (b * b) @ share.transpose(0, 2, 1) / (n - 1), LEAST * unit
        )
        # −½ ((n − 1) ln σ² − Σ ln(ρ/(d + ρ)))
        evidence = -0.5 * (
            (n - 1) * np.log(variance / unit)
            - np.log(share).sum(axis=2)[:, None]
        )
        # A priori, the orders with interactions share one half.
        evidence[1:] -= math.log(len(ORDERS) - 1)
        probability = np.exp(evidence - evidence.max())
        return cls(
            phi,
            dim,
            means,
            d,
            vectors,
            b,
            variance,
            probability / probability.sum(),
        )

    @property
    def probability_of_any(self) -> float:
        """Posterior probability that there are interactions."""
        return float(self.probability[1:].sum())

    def mean(self, phi: Array) -> Array:
        """Return the posterior means at points, up to a constant."""
        total = np.zeros(len(phi))
        for k in range(len(ORDERS)):
            # Posterior mean k(x, X) V (d + ρ)⁻¹ b, averaged over sets and ratios.
            weights = self.probability[k][:, :, None] / (
                self.values[k] + RATIOS[:, None]
            )
            total += self._with_data(phi, k)[0] @ (
                self.vectors[k] @ (self.b[k] * weights.sum(axis=1)).sum(axis=0)
            )
        return total

    def draw(self, phi: Array, u: Words) -> Array:
        """Return the values of a random function with interactions at points, up to a constant.

        The number of points is even, and `u` has one uniform integer more.
        """
        k, j, i = _drawn(self.probability[1:], int(u[0]))
        k = k + 1
        ratio = RATIOS[i]
        rows, levels = self._with_data(phi, k)
        along = rows @ self.vectors[k]
        # Cov = (σ²/ρ) (k(x, x) − k(x, X) (K + ρ)⁻¹ k(X, x))
        shrunk = along / (self.values[k] + ratio)
        prior = (
            _covariance(phi @ phi.T, ORDERS[k], self.dim)
            - levels
            - levels.T
            + self.means[k].mean()
        )
        covariance = (self.variance[k, j, i] / ratio) * (
            prior - shrunk @ along.T
        )
        return shrunk @ self.b[k, j] + _normal(covariance, u[1:])

    def _with_data(self, phi: Array, k: int) -> tuple[Array, Array]:
        """Return the centered covariances with the evaluations, and the means before."""
        rows = _covariance(phi @ self.phi.T, ORDERS[k], self.dim)
        levels = rows.mean(axis=1, keepdims=True)
        return rows - levels - (self.means[k] - self.means[k].mean()), levels


def _drawn(probability: Array, u: int) -> list[int]:
    """Return the index of an entry, drawn in proportion to the entries by a 32-bit integer."""
    cumulative = np.cumsum(probability)
    at = int(
        np.searchsorted(cumulative[:-1], (u + 0.5) * 2.0**-32 * cumulative[-1])
    )
    return [int(index) for index in np.unravel_index(at, probability.shape)]


def _normal(covariance: Array, u: Words) -> Array:
    """Return normal numbers with a covariance, to which a small share of the variance is added."""
    m = len(covariance)
    # Rounding may make a covariance slightly indefinite.
    covariance.flat[:: m + 1] += DIAGONAL * covariance.trace() / m
    normal: Array = np.linalg.cholesky(covariance) @ normals(u[None])[
        0, :m
    ].astype(float)
    return normal


def _covariance(products: Array, order: float, dim: int) -> Array:
    """Return the covariances of an order for scalar products of features.

    One on average on the diagonal.
    """
    if order:
        # Σ_k (order·φ·φ'/dim)^k / k! without the constant: all orders of interaction
        return np.expm1((order / dim) * products) / math.expm1(order)
    return products / dim
