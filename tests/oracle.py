"""Algorithm 1 of the paper in plain Python, for bits: to be read beside it, and the core compared with it.

One number at a time, in the order of the paper, without a line of the library. Numbers in brackets are the
lines of Algorithm 1; where the paper leaves something open, the comment names the row of the table of
readings ("What the paper leaves open") that settles it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass
class Settings:
    """The `Require` lines. `samples`: λ_r buys samples (line 15); otherwise it shortens the steps."""

    weights: Callable[[int], list[float]]
    eps: float
    lam_min: int
    lam_max: float
    samples: bool = True
    alpha: float = 1.5


def pbil_lambda(n: int) -> Settings:
    return Settings(quartiles, eps=n**-0.5, lam_min=2, lam_max=max(n, 2))


def pbil_epsilon(n: int) -> Settings:
    return Settings(quartiles, eps=n**-0.5, lam_min=2, lam_max=max(n, 2), samples=False)


def cga(n: int) -> Settings:
    return Settings(quartiles, eps=1 / n, lam_min=2, lam_max=2)


def pbil(lam: int, mu: int, eps: float) -> Settings:
    return Settings(lambda lam: truncation(lam, mu), eps, lam_min=lam, lam_max=lam)


def umda(lam: int, mu: int) -> Settings:
    return pbil(lam, mu, eps=1.0)


def quartiles(lam: int) -> list[float]:
    """The paper's 2λ/μ, λ/μ, 0 less their mean, which is λ/μ, and not divided by it (rows 1 and 3)."""
    mu = math.ceil(lam / 4)
    w = [2 * lam / mu] * mu + [lam / mu] * (lam - 2 * mu) + [0.0] * mu
    return [w_i - lam / mu for w_i in w]


def truncation(lam: int, mu: int) -> list[float]:
    """UMDA's and PBIL's, not centred (row 3)."""
    return [lam / mu] * mu + [0.0] * (lam - mu)


def shared(w: Sequence[float], f: Sequence[float]) -> list[float]:
    """W(f(x_i)): the weight of each point's rank, ties averaged; NaN ranks with +inf (row 5)."""
    f = [math.inf if math.isnan(f_i) else f_i for f_i in f]
    ranked = sorted(f)
    found = []
    for f_i in f:
        ranks = [r for r in range(len(f)) if ranked[r] == f_i]
        found.append(sum(w[r] for r in ranks) / len(ranks))
    return found


def run(
    settings: Settings, n: int, u: Iterator[Sequence[int]], f: Callable[[list[int]], float]
) -> Iterator[tuple[list[list[int]], float, list[float]]]:
    """Yields, iteration after iteration, the samples, the ε in force, and θ after the update.

    `u` yields one row of n uniform 32-bit integers per sample.
    """
    margin = 1 / max(n, 4)  # row 6
    theta = [0.5] * n
    lam = settings.lam_min  # [1]
    lam_r = float(settings.lam_min)  # [1]
    gamma, s = 0.0, [0.0] * n  # [1]
    eps = beta = settings.eps
    while True:  # [2]
        x = []
        for _ in range(lam):  # [3]
            row = next(u)
            x.append([1 if row[k] < math.floor(theta[k] * 2**32) else 0 for k in range(n)])
        w = shared(settings.weights(lam), [f(x_i) for x_i in x])  # [4], [5] is in the weights
        sigma2 = sum(w_i**2 for w_i in w) / lam  # [6], row 4
        if min(w) == max(w):  # [7]
            yield x, eps, list(theta)  # [8]
            continue  # [9]
        gradient = [sum(w[i] * (x[i][k] - theta[k]) for i in range(lam)) / lam for k in range(n)]  # [10]
        before = list(theta)
        for k in range(n):
            theta[k] = min(max(theta[k] + eps * gradient[k], margin), 1 - margin)  # [11], row 1: no division by μ_W
        for k in range(n):
            root = 1 / math.sqrt(before[k] * (1 - before[k]))  # G^½ at θ before the update (row 2)
            scale = math.sqrt(beta * (2 - beta) * lam / (n * sigma2))
            s[k] = (1 - beta) * s[k] + scale * root * gradient[k]  # [12]
        gamma = (1 - beta) ** 2 * gamma + beta * (2 - beta)  # [13]
        norm2 = sum(s_k**2 for s_k in s)
        lam_r = min(max(lam_r * math.exp(beta * (gamma - norm2 / settings.alpha)), settings.lam_min), settings.lam_max)
        yield x, eps, list(theta)  # the line above is [14]
        if settings.samples:
            lam = round(lam_r)  # [15]
        else:
            eps = beta = settings.eps / (lam_r / settings.lam_min)  # [15], as replaced under "Adaptive Step-Size"
