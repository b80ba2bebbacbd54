"""Tables of learning curves: every configuration of a grid, with its loss after each step.

    python benchmarks/learning_curves.py [--problems sgd …]

Computes the tables that are not in `benchmarks/data/curves.npz` yet; needs scikit-learn,
LightGBM and PyTorch. Steps are epochs, boosting rounds, folds of cross-validation or instances. After
a fold or an instance, the loss is the mean of those so far. A run on a table is exact: a point of
the search is a row.

Two halves with other data: the rule that stops evaluations is chosen on one, and the other one is
reported. LightGBM is in both.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FILE = Path(__file__).parent / "data" / "curves.npz"
DIGITS = 4  # significant ones that are stored

Curve = Iterator[float]


class Grid(NamedTuple):
    """A problem: the values of its hyperparameters, and a function that yields a loss per step.

    Attributes
    ----------
    half : str
        "choice" if rules are chosen on it, "report" if it is reported.
    steps : int
        The number of steps.
    options : mapping
        The values of each hyperparameter: a list if they are ordered, else a tuple.
    train : callable
        A configuration to its losses.
    unit : str
        What a step is.
    """

    half: str
    steps: int
    options: dict[str, Sequence[Any]]
    train: Callable[[Mapping[str, Any]], Curve]
    unit: str = "epoch"

    @property
    def size(self) -> int:
        """The number of configurations."""
        return math.prod(map(len, self.options.values()))

    def row(self, indices: Mapping[str, int]) -> int:
        """Return the row of a configuration, given by the index of each value."""
        shape = [len(values) for values in self.options.values()]
        return int(np.ravel_multi_index([int(indices[name]) for name in self.options], shape))


def split(X: Any, y: Any, rows: int, others: int = 400, scaled: bool = True) -> tuple[Any, Any, Any, Any]:
    """Return data to train on and to validate with."""
    order = np.random.default_rng(0).permutation(len(X))[: rows + others]
    X, y = np.asarray(X, dtype=float)[order], np.asarray(y)[order]
    if scaled:
        deviation = X[:rows].std(0)
        X = (X - X[:rows].mean(0)) / np.where(deviation > 0.0, deviation, 1.0)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def mean_so_far(losses: Iterator[float]) -> Curve:
    total = 0.0
    for number, loss in enumerate(losses, 1):
        total += loss
        yield total / number


def folds(model: Any, X: Any, y: Any, n: int = 10, scoring: str = "accuracy") -> Curve:
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

    kind = StratifiedKFold if scoring == "accuracy" else KFold
    for train, test in kind(n, shuffle=True, random_state=0).split(X, y):
        (score,) = cross_val_score(model, X, y, cv=[(train, test)], scoring=scoring)
        yield 1.0 - score if scoring == "accuracy" else -score


# Problems to choose rules on.


def sgd(c: Mapping[str, Any]) -> Curve:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import SGDClassifier
    from sklearn.metrics import log_loss

    X, y, V, w = split(*load_digits(return_X_y=True), 300, 300, c["scaled"])
    rng = np.random.default_rng(1)
    model = SGDClassifier("log_loss", alpha=c["alpha"], eta0=c["eta0"], random_state=0,
                          learning_rate=c["schedule"])  # fmt: skip
    for _ in range(20):
        order = rng.permutation(len(X))
        model.partial_fit(X[order], y[order], classes=np.arange(10))
        yield log_loss(w, np.clip(model.predict_proba(V), 1e-6, 1.0), labels=np.arange(10))


def boosted(X: Any, y: Any, rows: int, rounds: int, c: Mapping[str, Any], **more: Any) -> Curve:
    import lightgbm

    X, y, V, w = split(X, y, rows)
    history: dict[str, Any] = {}
    train = lightgbm.Dataset(X, y, params={"verbose": -1})
    settings = {**c, **more, "verbose": -1, "num_threads": 1, "seed": 0, "bagging_freq": 1, "deterministic": True}
    lightgbm.train(settings, train, rounds, [train.create_valid(V, w)], ["v"],
                   callbacks=[lightgbm.record_evaluation(history)])  # fmt: skip
    ((losses),) = history["v"].values()
    yield from losses


def cancer_rounds(c: Mapping[str, Any]) -> Curve:
    from sklearn.datasets import load_breast_cancer

    return boosted(*load_breast_cancer(return_X_y=True), 300, 60, c, objective="binary")


def torch_steps(build: Callable[[Any, int, int], Any], X: Any, y: Any, V: Any, w: Any, epochs: int, c: Any) -> Curve:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    X, V = torch.tensor(X, dtype=torch.float32), torch.tensor(V, dtype=torch.float32)
    y, w = torch.tensor(y, dtype=torch.long), torch.tensor(w, dtype=torch.long)
    model = build(c, X.shape[1], 10)
    kinds = {
        "sgd": torch.optim.SGD,
        "momentum": lambda weights, lr: torch.optim.SGD(weights, lr, momentum=0.9),
        "adam": torch.optim.Adam,
    }
    optimizer = kinds[c["optimizer"]](model.parameters(), lr=c["rate"])
    loss = torch.nn.CrossEntropyLoss()
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(X)).split(c.get("batch", 64)):
            optimizer.zero_grad()
            loss(model(X[batch]), y[batch]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            yield float(loss(model(V), w))


def mlp(c: Mapping[str, Any]) -> Curve:
    from sklearn.datasets import load_digits
    from torch import nn

    def build(c: Any, inputs: int, outputs: int) -> Any:
        return nn.Sequential(
            nn.Linear(inputs, c["width"]), nn.ReLU(), nn.Dropout(c["dropout"]), nn.Linear(c["width"], outputs)
        )

    return torch_steps(build, *split(*load_digits(return_X_y=True), 500), 15, c)


def svc_folds(c: Mapping[str, Any]) -> Curve:
    from sklearn.datasets import load_digits
    from sklearn.svm import SVC

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(2).permutation(len(X))[:200]
    model = SVC(C=c["C"], gamma=c["gamma"], kernel=c["kernel"], degree=2)
    return mean_so_far(folds(model, X[order] / 16.0, y[order]))


def diabetes_rounds(c: Mapping[str, Any]) -> Curve:
    from sklearn.datasets import load_diabetes

    return boosted(*load_diabetes(return_X_y=True), 300, 60, c, objective="l1")


def tree_instances(c: Mapping[str, Any]) -> Curve:
    from sklearn.datasets import make_classification
    from sklearn.tree import DecisionTreeClassifier

    def losses() -> Iterator[float]:
        for seed in range(20):
            X, y = make_classification(400, 12, n_informative=5, flip_y=0.1, class_sep=0.8, random_state=seed)
            model = DecisionTreeClassifier(**c, random_state=0).fit(X[:200], y[:200])
            yield 1.0 - model.score(X[200:], y[200:])

    return mean_so_far(losses())


# Problems to report.


def friedman_rounds(c: Mapping[str, Any]) -> Curve:
    from sklearn.datasets import make_friedman1

    return boosted(*make_friedman1(700, 12, noise=1.5, random_state=3), 300, 80, c, objective="l2")


def sgd_regression(c: Mapping[str, Any]) -> Curve:
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import SGDRegressor
    from sklearn.preprocessing import PolynomialFeatures

    X, y = load_diabetes(return_X_y=True)
    X, y, V, w = split(PolynomialFeatures(2, include_bias=False).fit_transform(X), y / 100.0, 300)
    model = SGDRegressor("squared_error", penalty=c["penalty"], alpha=c["alpha"], eta0=c["eta0"],
                         learning_rate=c["schedule"], power_t=c["power"], random_state=0)  # fmt: skip
    rng = np.random.default_rng(1)
    for _ in range(40):
        order = rng.permutation(len(X))
        model.partial_fit(X[order], y[order])
        loss = float(np.mean((model.predict(V) - w) ** 2))
        yield loss if loss < 1e6 else math.inf


def ridge_instances(c: Mapping[str, Any]) -> Curve:
    from sklearn.datasets import make_friedman2, make_friedman3
    from sklearn.kernel_ridge import KernelRidge

    def losses() -> Iterator[float]:
        for seed in range(16):
            make = make_friedman2 if seed % 2 else make_friedman3
            X, y = make(200, noise=0.2, random_state=seed)
            X, y, V, w = split(X, y, 100, 100)
            y, w = (y - y.mean()) / y.std(), (w - y.mean()) / y.std()
            model = KernelRidge(alpha=c["alpha"], gamma=c["gamma"], kernel=c["kernel"]).fit(X, y)
            yield min(float(np.mean((model.predict(V) - w) ** 2)), 1e3)

    return mean_so_far(losses())


def powers(low: float, high: float, count: int) -> list[float]:
    return np.geomspace(low, high, count).tolist()


BOOSTING = {
    "learning_rate": powers(0.01, 0.6, 7),
    "num_leaves": [2, 4, 8, 16, 31],
    "min_child_samples": [2, 5, 12, 30],
    "feature_fraction": [0.3, 0.6, 1.0],
}
PROBLEMS = {
    "sgd": Grid(
        "choice",
        20,
        {
            "alpha": powers(1e-6, 1e-1, 6),
            "eta0": powers(1e-4, 1.0, 9),
            "schedule": ("constant", "invscaling"),
            "scaled": (False, True),
        },
        sgd,
    ),
    "cancer": Grid("choice", 60, BOOSTING, cancer_rounds, "round"),
    "mlp": Grid(
        "choice",
        15,
        {
            "rate": powers(1e-4, 0.3, 8),
            "width": [8, 16, 32, 64],
            "dropout": [0.0, 0.25, 0.5],
            "optimizer": ("sgd", "momentum", "adam"),
        },
        mlp,
    ),
    "svc": Grid(
        "choice",
        10,
        {"C": powers(0.01, 1000, 11), "gamma": powers(1e-4, 10.0, 11), "kernel": ("rbf", "poly")},
        svc_folds,
        "fold",
    ),
    "diabetes": Grid("choice", 60, BOOSTING, diabetes_rounds, "round"),
    "trees": Grid(
        "choice",
        20,
        {
            "max_depth": [1, 2, 3, 4, 6, 8, 12],
            "min_samples_leaf": [1, 2, 4, 8, 16, 32],
            "max_features": [0.2, 0.5, 1.0],
            "criterion": ("gini", "entropy"),
        },
        tree_instances,
        "instance",
    ),
    "friedman": Grid("report", 80, BOOSTING, friedman_rounds, "round"),
    "regression": Grid(
        "report",
        40,
        {
            "alpha": powers(1e-6, 1.0, 6),
            "eta0": powers(1e-5, 0.1, 7),
            "schedule": ("constant", "invscaling"),
            "power": [0.1, 0.25, 0.5],
            "penalty": ("l2", "l1"),
        },
        sgd_regression,
    ),
    "ridge": Grid(
        "report",
        16,
        {
            "alpha": powers(1e-4, 10.0, 9),
            "gamma": powers(1e-3, 10.0, 10),
            "kernel": ("rbf", "laplacian", "poly", "sigmoid"),
        },
        ridge_instances,
        "instance",
    ),
}


def table(grid: Grid) -> np.ndarray:
    """Return the losses of all configurations, one row each; inf from where one is not finite."""
    curves = np.full((grid.size, grid.steps), math.inf)
    for row, values in enumerate(product(*grid.options.values())):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for step, loss in enumerate(grid.train(dict(zip(grid.options, values, strict=True)))):
                    if not math.isfinite(loss):
                        break
                    curves[row, step] = loss
            except (ValueError, FloatingPointError):  # of scikit-learn, when weights diverge
                pass
    return rounded(curves).astype(np.float32)


def rounded(values: np.ndarray) -> np.ndarray:
    """Round to significant digits."""
    with np.errstate(all="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(values))) - DIGITS + 1)
        return np.where(np.isfinite(values) & (values != 0.0), np.round(values / unit) * unit, values)


def read() -> dict[str, np.ndarray]:
    """Return the tables by the names of the problems, with as many columns as there are steps."""
    if not FILE.exists():
        return {}
    with np.load(FILE) as data:
        return {name: data[name].astype(float) for name in PROBLEMS if name in data}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=[*PROBLEMS])
    tables = read()
    for name in parser.parse_args().problems:
        if name not in tables:
            start = time.process_time()
            tables[name] = table(PROBLEMS[name])
            np.savez_compressed(FILE, **{key: values.astype(np.float32) for key, values in tables.items()})
            print(f"{name}: {tables[name].shape} in {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
