"""What is liked: a preference turns the objective values of one iteration into the weights w as applied.

Lines 4 to 6 of Algorithm 1. Centring belongs here, not to the loop: a centred loop would be neither UMDA
nor PBIL. Smaller values are better. Ties (exact equality, whatever the sign of f) share their weights, NaN
and +inf rank worst and together, and equal weights tell the loop that nothing was learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from knobless._checks import positive_int

from .types import Array


class Preference(Protocol):
    """f ↦ w, the weights exactly as they multiply T(x)."""

    def __call__(self, f: Array) -> Array: ...


@dataclass(frozen=True)
class Quartiles:
    """The paper's: +λ/μ for the best μ = ⌈λ/4⌉ points, −λ/μ for the worst μ, 0 between.

    The paper writes 2λ/μ, λ/μ and 0 and calls their mean μ_W one, though it is λ/μ. These are its weights
    less that mean, and not divided by it: so λ = 2 is exactly cGA and σ_W² is 2λ/μ as the paper states.
    """

    def __call__(self, f: Array) -> Array:
        lam = len(f)
        mu = -(-lam // 4)
        return by_rank(f, quartile_counts(lam), lam / mu)


@dataclass(frozen=True)
class Truncation:
    """λ/μ for the best μ points and 0 for the others, not centred: UMDA's and PBIL's."""

    mu: int

    def __post_init__(self) -> None:
        positive_int("mu", self.mu)

    def __call__(self, f: Array) -> Array:
        return by_rank(f, truncation_counts(len(f), self.mu), len(f) / self.mu)


@dataclass(frozen=True)
class Values:
    """By value: any non-increasing W ≥ 0, centred and divided by its own mean μ_W, as ε/μ_W in line 11.

    `W` maps an array of objective values to an array of the same length. Without one it is exp(−f), with f
    shifted by its least value first: the shift cancels in W/μ_W and nothing overflows. NaN and inf get the
    weight of the worst finite value, −inf that of the best.
    """

    W: Callable[[Array], NDArray[np.floating]] | None = None

    def __call__(self, f: Array) -> Array:
        finite = np.isfinite(f)
        if not finite.any():
            return np.zeros(len(f))
        f = np.where(f == -np.inf, f[finite].min(), np.where(finite, f, f[finite].max()))
        if self.W is None:
            with np.errstate(over="ignore"):  # exp(−inf) is 0, which is what is meant
                W = np.exp(f.min() - f)
        else:
            W = self._checked(f)
        mean = W.mean()
        return (W - mean) / mean if mean > 0.0 else np.zeros(len(f))

    def _checked(self, f: Array) -> Array:
        W = np.asarray(self.W(f), dtype=float)  # type: ignore[misc]
        if W.shape != f.shape:
            raise ValueError(f"W: expected {len(f)} weights for {len(f)} values, got an array of shape {W.shape}")
        if not (np.isfinite(W).all() and (W >= 0.0).all()):
            raise ValueError(f"W: expected finite weights of at least 0, got {W} for the values {f}")
        order = np.argsort(f, kind="stable")
        if (np.diff(W[order]) > 0.0).any():
            raise ValueError(f"W: expected a non-increasing function, got {W[order]} for the values {f[order]}")
        return W


def by_rank(f: Array, counts: NDArray[np.int64], unit: float) -> Array:
    """Weights by rank, ties averaged; `counts` are the cumulated weights of the ranks in units of `unit`.

    Whole numbers are cumulated, so that the average over a tie is exact and Σw does not depend on ties.
    """
    ranked = np.sort(f)
    if ranked[-1] != ranked[-1]:  # NaN: with +inf
        f = np.where(f == f, f, np.inf)
        ranked = np.sort(f)
    first = ranked.searchsorted(f, "left")
    last = ranked.searchsorted(f, "right")
    return unit * (counts[last] - counts[first]) / (last - first)


@lru_cache(maxsize=4096)
def quartile_counts(lam: int) -> NDArray[np.int64]:
    """The best quarter counts one, the worst quarter minus one."""
    mu = -(-lam // 4)
    w = np.zeros(lam, dtype=np.int64)
    w[:mu] += 1
    w[lam - mu :] -= 1
    return cumulated(w)


@lru_cache(maxsize=4096)
def truncation_counts(lam: int, mu: int) -> NDArray[np.int64]:
    """The best μ count one."""
    return cumulated((np.arange(lam) < mu).astype(np.int64))


def cumulated(w: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, w_1, w_1 + w_2, …; read-only, because it is cached."""
    counts = np.concatenate([[0], np.cumsum(w)])
    counts.flags.writeable = False
    return counts
