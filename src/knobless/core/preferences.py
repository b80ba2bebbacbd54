"""Preferences: the weights w of the points of an iteration, from their objective values.

Lines 4 to 6 of Algorithm 1. Smaller values are better. Ties (exact equality, for any sign of f)
share their weights; NaN and +inf are tied and rank worst. If all weights are equal, the loop skips
the update. Centering belongs to the preference and not to the loop: a loop that centers would be
neither UMDA nor PBIL.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from knobless._checks import positive_int

from .types import Array

# Values up to which plain Python takes less time than calls of NumPy
FEW_VALUES = 10


class Preference(Protocol):
    """Protocol of preferences."""

    def __call__(self, f: Array) -> Array:
        """Return the weights w as they multiply T(x).

        Parameters
        ----------
        f : array
            Objective values of the points of an iteration; not modified.
        """


@dataclass(frozen=True)
class Quartiles:
    """Weights of the paper: +λ/μ for the best quarter of the points, −λ/μ for the worst.

    Notes
    -----
    The paper gives the weights 2λ/μ, λ/μ and 0 and their mean μ_W as one, although it is λ/μ. The
    weights here are those minus their mean, not divided by it: λ = 2 is then exactly cGA, and σ_W²
    is 2λ/μ as the paper states.

    Examples
    --------
    >>> import numpy as np
    >>> from knobless.algorithms import Quartiles
    >>> Quartiles()(np.array([3.0, 1.0, 4.0, 1.5])).tolist()
    [0.0, 4.0, -4.0, 0.0]
    """

    def __call__(self, f: Array) -> Array:
        lam = len(f)
        mu = -(-lam // 4)
        return by_rank(f, quartile_counts(lam), lam / mu)


@dataclass(frozen=True)
class Truncation:
    """Weights of UMDA and PBIL: λ/μ for the best μ points and 0 for the others, not centered.

    Parameters
    ----------
    mu : int
        Number μ of selected points.

    Examples
    --------
    >>> import numpy as np
    >>> from knobless.algorithms import Truncation
    >>> Truncation(2)(np.array([3.0, 1.0, 4.0, 1.5])).tolist()
    [0.0, 2.0, 0.0, 2.0]
    """

    mu: int

    def __post_init__(self) -> None:
        positive_int("mu", self.mu)

    def __call__(self, f: Array) -> Array:
        return by_rank(f, truncation_counts(len(f), self.mu), len(f) / self.mu)


@dataclass(frozen=True)
class Values:
    """Weights by value: any non-increasing W ≥ 0, centered and divided by its mean μ_W.

    Parameters
    ----------
    W : callable, optional
        Function from an array of objective values to an array of the same length; exp(−f) by
        default.

    Notes
    -----
    For exp(−f), f is shifted by its least value first: the shift cancels in W/μ_W and prevents
    overflow. NaN and inf get the weight of the worst finite value, −inf that of the best.

    Examples
    --------
    >>> import numpy as np
    >>> from knobless.algorithms import Values
    >>> Values()(np.array([0.0, np.log(3.0)])).round(6).tolist()  # W = 1 and 1/3, with mean 2/3
    [0.5, -0.5]
    """

    W: Callable[[Array], NDArray[np.floating]] | None = None

    def __call__(self, f: Array) -> Array:
        finite = np.isfinite(f)
        if not finite.any():
            return np.zeros(len(f))
        # The worst finite value stands for NaN and inf, the best one for −inf.
        f = np.where(
            f == -np.inf, f[finite].min(), np.where(finite, f, f[finite].max())
        )
        if self.W is None:
            # exp(−inf) = 0 is the correct weight
            with np.errstate(over="ignore"):
                W = np.exp(f.min() - f)
        else:
            W = self._checked(f)
        mean = W.mean()
        return (W - mean) / mean if mean > 0.0 else np.zeros(len(f))

    def _checked(self, f: Array) -> Array:
        W = np.asarray(self.W(f), dtype=float)  # type: ignore[misc]
        if W.shape != f.shape:
            raise ValueError(
                f"W: expected {len(f)} weights for {len(f)} values, got an array of shape {W.shape}"
            )
        if not (np.isfinite(W).all() and (W >= 0.0).all()):
            raise ValueError(
                f"W: expected finite weights of at least 0, got {W} for the values {f}"
            )
        order = np.argsort(f, kind="stable")
        if (np.diff(W[order]) > 0.0).any():
            raise ValueError(
                f"W: expected a non-increasing function, got {W[order]} for the values {f[order]}"
            )
        return W


def by_rank(f: Array, counts: NDArray[np.int64], unit: float) -> Array:
    """Return weights by rank, averaged over ties.

    `counts` has the cumulative weights of the ranks, as multiples of `unit`.

    Integers make the average over ties exact, so Σw does not depend on ties.
    """
    if len(f) <= FEW_VALUES:
        return _by_rank_of_few(f.tolist(), counts.tolist(), unit)
    ranked = f.copy()
    ranked.sort()
    if ranked[-1] != ranked[-1]:  # NaN is tied with +inf
        f = np.where(f == f, f, np.inf)
        ranked = np.sort(f)
    # Values tied at the ranks first, …, last − 1 share the sum of the weights of these ranks.
    first = ranked.searchsorted(f)
    last = ranked.searchsorted(f, "right")
    return unit * (counts.take(last) - counts.take(first)) / (last - first)


def _by_rank_of_few(f: list[float], counts: list[int], unit: float) -> Array:
    """Return the same weights as `by_rank`, of a few values."""
    f = [v if v == v else math.inf for v in f]  # NaN is tied with +inf
    ranked = sorted(f)
    w = []
    for v in f:
        first = bisect_left(ranked, v)
        last = bisect_right(ranked, v)
        w.append(unit * (counts[last] - counts[first]) / (last - first))
    return np.array(w)


@lru_cache(maxsize=4096)
def quartile_counts(lam: int) -> NDArray[np.int64]:
    """Return cumulative weights: 1 for the best quarter, −1 for the worst."""
    mu = -(-lam // 4)
    w = np.zeros(lam, dtype=np.int64)
    # Both ends may overlap for small λ; their weights then cancel.
    w[:mu] += 1
    w[lam - mu :] -= 1
    return cumulated(w)


@lru_cache(maxsize=4096)
def truncation_counts(lam: int, mu: int) -> NDArray[np.int64]:
    """Return cumulative weights: 1 for the best μ."""
    return cumulated((np.arange(lam) < mu).astype(np.int64))


def cumulated(w: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, w_1, w_1 + w_2, …; read-only, because it is cached."""
    counts = np.concatenate([[0], np.cumsum(w)])
    counts.flags.writeable = False
    return counts
