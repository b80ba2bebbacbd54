"""The computation of the tables of conditional_problems.py: some minutes on one core.

`svr`: 1 − R² of a support vector regression on `diabetes`, standardized. `pipeline`: the error of classifiers on 600
of the `digits` with normal noise of standard deviation 6. Both with three folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR
from tqdm import tqdm

from conditional_problems import DATA, GRIDS, configurations
from harness import write_csv

FOLDS = 3
NOISE = 6.0


def svr() -> Callable[..., float]:
    """Return the function of a configuration that is 1 − R²."""
    X, y = load_diabetes(return_X_y=True)
    X, y = StandardScaler().fit_transform(X), (y - y.mean()) / y.std()
    cv = KFold(FOLDS, shuffle=True, random_state=0)

    def cost(kernel: str, C: int, gamma: int = 0, coef0: int = 0, degree: int = 3) -> float:
        model = SVR(
            kernel=kernel, C=10.0 ** (C / 2 - 2), gamma=10.0 ** (gamma / 2 - 3), coef0=coef0 / 2, degree=degree,
            max_iter=100_000,
        )  # fmt: skip
        return 1.0 - cross_val_score(model, X, y, cv=cv, scoring="r2").mean()

    return cost


def pipeline() -> Callable[..., float]:
    """Return the function of a configuration that is the share of errors."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:600] + np.random.default_rng(0).normal(0.0, NOISE, (600, 64)), y[:600]
    cv = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    scalers = {"standard": [StandardScaler()], "minmax": [MinMaxScaler()]}
    X = X / X.std()

    def cost(model: str, scale: str = "none", **parameters: Any) -> float:
        estimator = make_pipeline(*scalers.get(scale, []), MODELS[model](**parameters))
        return 1.0 - cross_val_score(estimator, X, y, cv=cv).mean()

    return cost


MODELS: dict[str, Callable[..., Any]] = {
    "svc": lambda kernel, C, gamma=0: SVC(kernel=kernel, C=10.0 ** (C / 2 - 2), gamma=10.0 ** (gamma / 2 - 3)),
    "forest": lambda n_estimators, max_depth, max_features, min_samples_leaf: RandomForestClassifier(
        (10, 30, 100)[n_estimators],
        max_depth=(4, 6, 10, None)[max_depth],
        max_features=("sqrt", 0.3, 0.6)[max_features],
        min_samples_leaf=min_samples_leaf,
        random_state=0,
    ),
    "neighbors": lambda n_neighbors, weights, p: KNeighborsClassifier(2 * n_neighbors - 1, weights=weights, p=p),
    "logistic": lambda inverse_penalty: LogisticRegression(C=10.0 ** (inverse_penalty / 2 - 3), max_iter=300),
}


def compute() -> None:
    """Write both tables, one row per configuration."""
    warnings.simplefilter("ignore")  # of fits that stop at the limit of iterations
    for name, cost in {"svr": svr(), "pipeline": pipeline()}.items():
        rows = [each | {"cost": f"{cost(**each):.5g}"} for each in tqdm([*configurations(GRIDS[name])])]
        write_csv(DATA / f"conditional_{name}.csv", rows, [*(variable.name for variable in GRIDS[name]), "cost"])
