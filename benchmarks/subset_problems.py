"""Problems of choosing k of n for benchmarks/subsets.py: generators with seeds, those reported and those for tuning.

An additive problem is the negative sum of uniform numbers; a pairwise one is quadratic with normal coefficients. A
problem of features is 1 − R² of a linear regression on the chosen ones of a data set, with products of features.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np


class Problem(NamedTuple):
    """An objective of boolean masks of n with k ones, defined for other numbers of ones too; `scale` is its spread."""

    n: int
    k: int
    value: Callable[[Any], float]
    scale: float

    def draw(self, rng: np.random.Generator) -> Any:
        """Return a random subset as a mask."""
        mask = np.zeros(self.n, dtype=bool)
        mask[rng.choice(self.n, self.k, replace=False)] = True
        return mask


def additive(n: int, k: int, seed: int) -> Problem:
    gains = np.random.default_rng(seed).random(n)
    return made(n, k, lambda x: -float(gains @ x))


def pairwise(n: int, k: int, seed: int) -> Problem:
    gains = np.triu(np.random.default_rng(seed).normal(size=(n, n)))
    return made(n, k, lambda x: -float(x @ gains @ x))


def features(data: str, k: int) -> Problem:
    table, target = data_of(data)
    table, target = table - table.mean(axis=0), target - target.mean()
    table /= table.std(axis=0)
    products, with_target, total = table.T @ table, table.T @ target, float(target @ target)

    def value(x: Any) -> float:
        chosen = np.flatnonzero(x)
        if not len(chosen):
            return 1.0
        own, right = products[np.ix_(chosen, chosen)], with_target[chosen]
        return 1.0 - float(right @ np.linalg.lstsq(own, right, rcond=None)[0]) / total

    return made(table.shape[1], k, value)


def data_of(name: str) -> tuple[Any, Any]:
    """Return a table of features with their squares and products, and a target."""
    from sklearn import datasets

    if name == "friedman":
        table, target = datasets.make_friedman1(300, n_features=10, noise=1.0, random_state=1)
    else:
        table, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    if name == "breast_cancer":
        return table, target
    # The diabetes data has 10 features and 45 products; of the others the squares are features too.
    i, j = np.triu_indices(table.shape[1], k=1 if name == "diabetes" else 0)
    centered = (table - table.mean(axis=0)) / table.std(axis=0)
    return np.concatenate([centered, centered[:, i] * centered[:, j]], axis=1), target


def made(n: int, k: int, value: Callable[[Any], float]) -> Problem:
    rng = np.random.default_rng(0)
    problem = Problem(n, k, value, 1.0)
    return problem._replace(scale=float(np.std([value(problem.draw(rng)) for _ in range(200)])))


REPORTED: dict[str, Callable[[], Problem]] = {
    "additive 40 choose 8": lambda: additive(40, 8, 0),
    "pairwise 50 choose 10": lambda: pairwise(50, 10, 0),
    "diabetes 55 choose 10": lambda: features("diabetes", 10),
}
TUNING: dict[str, Callable[[], Problem]] = {
    "additive 30 choose 10": lambda: additive(30, 10, 101),
    "additive 60 choose 6": lambda: additive(60, 6, 102),
    "additive 45 choose 9": lambda: additive(45, 9, 103),
    "pairwise 40 choose 8": lambda: pairwise(40, 8, 101),
    "pairwise 60 choose 15": lambda: pairwise(60, 15, 102),
    "pairwise 45 choose 10": lambda: pairwise(45, 10, 103),
    "friedman 65 choose 8": lambda: features("friedman", 8),
    "breast_cancer 30 choose 10": lambda: features("breast_cancer", 10),
    "wine 104 choose 10": lambda: features("wine", 10),
}


@cache
def problem(name: str) -> Problem:
    """Return a problem by name."""
    return (REPORTED | TUNING)[name]()
