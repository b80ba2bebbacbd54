"""Problems with several objectives, all minimized, for `objectives.py`.

- OneMinMax, LOTZ and CountingOnesCountingZeros (COCZ): bit strings whose fronts are known.
- ρMNK landscapes: NK landscapes whose values are correlated by ρ.
- Knapsacks: two profits with one capacity; more weight than that is a violation.
- ZDT, DTLZ2, and a mixed function of floats, integers, choices and bits.
- bbob-biobj: pairs of functions of the COCO platform.
- NAS-Bench-201: error of networks on CIFAR-10, and their weights relative to a convolution of 3×3.
- Models of scikit-learn: error and size, which stands for the time of a prediction and is the same on every machine:
  nodes of a decision tree, and pixels of handwritten digits that nearest neighbors compare.

The reference point of a hypervolume is a tenth of the ranges beyond the nadir of the front where the front is known, or
beyond no profit; the nadir for bbob-biobj; otherwise the mean of 1,000 random points.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

import grids
import knobless as kl


class Problem(NamedTuple):
    """A problem; `fun` returns its objectives as a tuple, `violation` how much a point violates constraints."""

    name: str
    space: Any
    fun: Callable[[Any], tuple[float, ...]]
    m: int
    violation: Callable[[Any], float] | None = None
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # ideal point and nadir, if known; or bounds

    @property
    def reference(self) -> Any:
        """The reference point of hypervolumes."""
        if self.box is not None:
            low, high = map(np.array, self.box)
            return high + np.where(np.isnan(low), 0.0, 0.1 * (high - low))
        g = np.random.default_rng(0)
        space = kl.Space.of(self.space)
        return np.mean([self.fun(space.sample(g)) for _ in range(1000)], axis=0)


def one_min_max(n: int) -> Problem:
    return Problem(f"OneMinMax {n}", kl.Binary(n), lambda x: (float(x.sum()), float(n - x.sum())), 2,
                   box=((0.0, 0.0), (float(n), float(n))))  # fmt: skip


def lotz(n: int) -> Problem:
    def fun(x: Any) -> tuple[float, ...]:
        zeros, ones = np.flatnonzero(x == 0), np.flatnonzero(x == 1)
        leading = int(zeros[0]) if len(zeros) else n
        trailing = n - 1 - int(ones[-1]) if len(ones) else n
        return float(-leading), float(-trailing)

    return Problem(f"LOTZ {n}", kl.Binary(n), fun, 2, box=((-float(n), -float(n)), (0.0, 0.0)))


def counting(n: int) -> Problem:
    def fun(x: Any) -> tuple[float, ...]:
        first, second = int(x[: n // 2].sum()), int(x[n // 2 :].sum())
        return -float(first + second), -float(first + n - n // 2 - second)

    return Problem(f"COCZ {n}", kl.Binary(n), fun, 2, box=((-float(n), -float(n)), (-float(n // 2), -float(n // 2))))


def mnk(n: int, k: int, rho: float, m: int, seed: int) -> Problem:
    """A ρMNK landscape (Verel, Liefooghe, Jourdan and Dhaenens, 2013)."""
    g = np.random.default_rng([seed, n, k, m])
    cov = np.full((m, m), rho) + (1.0 - rho) * np.eye(m)
    normal = g.multivariate_normal(np.zeros(m), cov, size=(n, 2 ** (k + 1)))
    table = np.vectorize(NormalDist().cdf)(normal)  # uniform values, correlated among the objectives
    links = np.array([[i, *g.choice(np.delete(np.arange(n), i), k, replace=False)] for i in range(n)])
    powers, rows = 2 ** np.arange(k + 1), np.arange(n)

    def fun(x: Any) -> tuple[float, ...]:
        return tuple((-table[rows, x[links] @ powers].mean(axis=0)).tolist())

    return Problem(f"MNK {n} {k} {rho} {m} {seed}", kl.Binary(n), fun, m)


def knapsack(n: int, seed: int) -> Problem:
    g = np.random.default_rng([seed, n])
    profit, weight = g.integers(10, 101, (2, n)), g.integers(10, 101, n)
    capacity = int(weight.sum()) // 2

    def fun(x: Any) -> tuple[float, ...]:
        return tuple((-(profit @ x)).astype(float).tolist())

    def violation(x: Any) -> float:
        return float(weight @ x - capacity)

    low = tuple((-profit.sum(axis=1)).astype(float).tolist())
    return Problem(f"knapsack {n} {seed}", kl.Binary(n), fun, 2, violation, (low, (0.0, 0.0)))


def zdt(number: int, d: int) -> Problem:
    shapes: dict[int, Callable[[float, float], float]] = {
        1: lambda f, g: 1.0 - (f / g) ** 0.5,
        2: lambda f, g: 1.0 - (f / g) ** 2,
        3: lambda f, g: 1.0 - (f / g) ** 0.5 - f / g * np.sin(10.0 * np.pi * f),
        4: lambda f, g: 1.0 - (f / g) ** 0.5,
    }

    def fun(x: Any) -> tuple[float, ...]:
        rest = x[1:]
        if number == 4:
            rest = 10.0 * rest - 5.0
            g = 1.0 + 10.0 * (d - 1) + float((rest**2 - 10.0 * np.cos(4.0 * np.pi * rest)).sum())
        else:
            g = 1.0 + 9.0 * float(rest.mean())
        return float(x[0]), float(g * shapes[number](float(x[0]), g))

    low = -0.7733690 if number == 3 else 0.0
    return Problem(f"ZDT{number} {d}", kl.Float(0.0, 1.0, n=d), fun, 2, box=((0.0, low), (1.0, 1.0)))


def dtlz2(d: int, m: int) -> Problem:
    def fun(x: Any) -> tuple[float, ...]:
        g = float(((x[m - 1 :] - 0.5) ** 2).sum())
        angles = 0.5 * np.pi * x[: m - 1]
        values = []
        for i in range(m):
            value = 1.0 + g
            value *= float(np.prod(np.cos(angles[: m - 1 - i])))
            values.append(value * (float(np.sin(angles[m - 1 - i])) if i else 1.0))
        return tuple(values)

    return Problem(f"DTLZ2 {d} {m}", kl.Float(0.0, 1.0, n=d), fun, m, box=((0.0,) * m, (1.0,) * m))


def mixed(d: int, seed: int) -> Problem:
    """Two functions of floats, integers, choices and bits, each with an optimum of its own."""
    g = np.random.default_rng([seed, d])
    centers, bits, options = g.random((2, 2 * d)), g.integers(0, 2, (2, d)), g.integers(0, 4, (2, d))
    weights = g.dirichlet(np.ones(d), (2, 4))

    def fun(x: Any) -> tuple[float, ...]:
        choice = np.array([int(c) for c in x["c"]])
        values = []
        for i in range(2):
            w = weights[i]
            values.append(
                float(w[0] @ (np.asarray(x["f"]) - centers[i, :d]) ** 2)
                + float(w[1] @ (np.asarray(x["i"]) / 20.0 - centers[i, d:]) ** 2)
                + 0.3 * float(w[2] @ (x["b"] != bits[i]))
                + 0.3 * float(w[3] @ (choice != options[i]))
            )
        return tuple(values)

    space = kl.Space(f=kl.Float(0.0, 1.0, n=d), i=kl.Integer(0, 20, n=d), b=kl.Binary(d), c=kl.Choice(*"0123", n=d))
    return Problem(f"mixed {d} {seed}", space, fun, 2)


@cache
def _suite(d: int) -> Any:
    import cocoex

    return cocoex.Suite("bbob-biobj", "", f"dimensions:{d} instance_indices:1-5")


def bbob(number: int, instance: int, d: int) -> Problem:
    """A pair of functions of the suite bbob-biobj, on the range from −5 to 5, in which the fronts are."""
    suite = _suite(d)
    problem = suite.get_problem_by_function_dimension_instance(number, d, instance)
    nadir = tuple(problem.largest_fvalues_of_interest.tolist())

    def fun(x: Any) -> tuple[float, ...]:
        first, second = problem(np.asarray(x, dtype=float)).tolist()
        return first, second

    low = (float("nan"),) * 2
    return Problem(f"bbob-biobj {number} {instance} {d}", kl.Float(-5.0, 5.0, n=d), fun, 2, box=(low, nadir))


def nasbench(data: Path) -> Problem:
    """The table of NAS-Bench-201 in a folder of data."""
    table = grids.read(data / "nasbench" / "nasbench201" / "cifar10.pkl.xz", "val_acc")
    weights = np.array([0.0, 0.0, 1.0, 9.0, 0.0]) / 9.0  # of none, skip, 1x1, 3x3, pooling

    def fun(x: Any) -> tuple[float, ...]:
        each = [int(option) for option in x]
        return 100.0 - float(table[tuple(each)]), float(weights[each].sum())

    return Problem("NAS-Bench-201", kl.Choice(*"01234", n=6), fun, 2)


@cache
def _halves(name: str) -> Any:
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return train_test_split(x, y, test_size=0.5, random_state=0)


def tree() -> Problem:
    """A decision tree for breast cancer: error and nodes."""
    from sklearn.tree import DecisionTreeClassifier

    x, x_test, y, y_test = _halves("breast_cancer")

    def fun(options: Any) -> tuple[float, ...]:
        model = DecisionTreeClassifier(random_state=0, **options).fit(x, y)
        return 1.0 - float(model.score(x_test, y_test)), float(model.tree_.node_count)

    space = kl.Space(
        criterion=kl.Choice("gini", "entropy"),
        splitter=kl.Choice("best", "random"),
        max_depth=kl.Integer(1, 12),
        min_samples_leaf=kl.Integer(1, 40),
        min_samples_split=kl.Integer(2, 60),
        max_features=kl.Float(0.05, 1.0),
        ccp_alpha=kl.Float(0.0, 0.05),
    )
    return Problem("tree", space, fun, 2, box=((0.0, 1.0), (0.5, 41.0)))


def pixels() -> Problem:
    """Nearest neighbors for handwritten digits: error and pixels."""
    x, x_test, y, y_test = _halves("digits")

    def fun(chosen: Any) -> tuple[float, ...]:
        if not chosen.any():
            return 1.0, 0.0
        one, two = (each[:, chosen == 1] for each in (x, x_test))
        nearest = ((one**2).sum(axis=1) - 2.0 * two @ one.T).argmin(axis=1)
        return float((y[nearest] != y_test).mean()), float(chosen.sum())

    return Problem("pixels", kl.Binary(64), fun, 2, box=((0.0, 0.0), (1.0, 64.0)))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "OneMinMax 70": lambda: one_min_max(70),
    "LOTZ 40": lambda: lotz(40),
    "MNK 64 3 -0.3 2 1": lambda: mnk(64, 3, -0.3, 2, 1),
    "MNK 48 2 0.0 3 1": lambda: mnk(48, 2, 0.0, 3, 1),
    "knapsack 60 1": lambda: knapsack(60, 1),
    "ZDT2 10": lambda: zdt(2, 10),
    "mixed 6 1": lambda: mixed(6, 1),
    "bbob-biobj 5 3 5": lambda: bbob(5, 3, 5),
    "bbob-biobj 37 3 5": lambda: bbob(37, 3, 5),
    "bbob-biobj 50 3 10": lambda: bbob(50, 3, 10),
    "pixels": pixels,
    "NAS-Bench-201": lambda: nasbench(Path(os.environ["NASBENCH"])),
}
# With 10,000 evaluations.
LONG = ("MNK 64 3 -0.3 2 1", "bbob-biobj 5 3 5")
# For GPSampler, which takes minutes on many variables.
SMALL = ("ZDT2 10", "bbob-biobj 5 3 5", "bbob-biobj 37 3 5", "NAS-Bench-201", "ZDT4 5", "bbob-biobj 1 1 5")
TUNED: dict[str, Callable[[], Problem]] = {
    "OneMinMax 50": lambda: one_min_max(50),
    "LOTZ 30": lambda: lotz(30),
    "COCZ 50": lambda: counting(50),
    "MNK 64 2 0.0 2 0": lambda: mnk(64, 2, 0.0, 2, 0),
    "MNK 64 4 -0.5 2 0": lambda: mnk(64, 4, -0.5, 2, 0),
    "MNK 64 6 0.0 2 0": lambda: mnk(64, 6, 0.0, 2, 0),
    "ZDT1 10": lambda: zdt(1, 10),
    "ZDT4 5": lambda: zdt(4, 5),
    "DTLZ2 8 3": lambda: dtlz2(8, 3),
    "tree": tree,
    "bbob-biobj 1 1 5": lambda: bbob(1, 1, 5),
    "bbob-biobj 11 1 5": lambda: bbob(11, 1, 5),
    "bbob-biobj 28 1 5": lambda: bbob(28, 1, 5),
    "bbob-biobj 46 1 10": lambda: bbob(46, 1, 10),
}
