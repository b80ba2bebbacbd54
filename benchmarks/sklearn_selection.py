"""Compare `FeatureSelector` and `SearchCV` with scikit-learn's methods, at the same number of model fits.

    python benchmarks/sklearn_selection.py features [--data FOLDER] [--seeds 3]
    python benchmarks/sklearn_selection.py search [--seeds 5]

Each seed splits the data in halves. All methods use one half, with the same folds; the accuracy on the other half
is that of a model fitted to the first with the selected features or parameters. FOLDER has the tables Sonar, Vehicle
and segment; without it, the data sets are those that come with scikit-learn. Writes `docs/peers/sklearn/`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np
import sklearn
from scipy.stats import loguniform, randint, uniform
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFECV, SequentialFeatureSelector
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import (
    HalvingRandomSearchCV,
    RandomizedSearchCV,
    StratifiedKFold,
    cross_val_score,
    train_test_split,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.parallel import Parallel, delayed  # with these settings in every process

import knobless as kl
from knobless.paper.table import write_csv
from knobless.sklearn import FeatureSelector, SearchCV

HERE = Path(__file__).resolve().parent.parent / "docs" / "peers" / "sklearn"
FOLDS = 3


class Counted:
    """Counts the fits of this process."""

    fits = 0

    def fit(self, *args, **params):
        Counted.fits += 1
        return super().fit(*args, **params)


class Ridge(Counted, RidgeClassifier):
    """A linear model."""


class Neighbors(Counted, KNeighborsClassifier):
    """No coefficients."""


class Vectors(Counted, SVC):
    """Two scales, and options that matter for some kernels."""


class Trees(Counted, ExtraTreesClassifier):
    """Eight parameters."""


def tables(folder: Path | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = {
        "breast cancer": load_breast_cancer(return_X_y=True),
        "digits": load_digits(return_X_y=True),
    }
    if folder:
        for name, file in {"Sonar": "mlbench_Sonar.csv.gz", "Vehicle": "mlbench_Vehicle.csv.gz"}.items():
            rows = np.genfromtxt(folder / file, delimiter=",", dtype=str, skip_header=1)
            rows = np.char.strip(rows, '"')
            found[name] = rows[:, :-1].astype(float), rows[:, -1]
        rows = np.genfromtxt(folder / "segment.dat", delimiter=",")
        found["segment"] = rows[:, :-1], rows[:, -1].astype(int)
    return found


def halves(X: np.ndarray, y: np.ndarray, seed: int):
    return (
        *train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed),
        StratifiedKFold(FOLDS, shuffle=True, random_state=seed),
    )


def select(data: str, X: np.ndarray, y: np.ndarray, model: str, seed: int) -> list[dict]:
    """Run every method on one split of one data set."""
    X, test, y, expected, cv = halves(X, y, seed)
    scaler = StandardScaler().fit(X)
    X, test = scaler.transform(X), scaler.transform(test)
    estimator = {"ridge": Ridge(), "5 neighbors": Neighbors()}[model]
    rows: list[dict] = []

    def row(method: str, selector=None, budget_of: str | None = None) -> int:
        Counted.fits = 0
        support = np.ones(X.shape[1], dtype=bool) if selector is None else selector.fit(X, y).support_
        spent = Counted.fits
        inner = cross_val_score(estimator, X[:, support], y, cv=cv).mean()
        outer = estimator.fit(X[:, support], y).score(test[:, support], expected)
        what = {"data": data, "model": model, "seed": seed, "budget of": budget_of or method}
        rows.append(what | {"method": method, "fits": spent})
        rows[-1] |= {"features": int(support.sum()), "inner": inner, "outer": outer}
        return spent

    peers = {"SequentialFeatureSelector": SequentialFeatureSelector(estimator, cv=cv)}
    if model == "ridge":  # RFECV needs coefficients
        peers["RFECV"] = RFECV(estimator, cv=cv)
    row("all features")
    for name, peer in peers.items():
        n_iter = row(name, peer) // FOLDS
        row("FeatureSelector", FeatureSelector(estimator, n_iter=n_iter, cv=cv, random_state=seed), name)
    return rows


SEARCHES = {
    "digits": (
        Vectors(),
        {
            "C": loguniform(1e-3, 1e3),
            "gamma": loguniform(1e-6, 1e0),
            "kernel": ["rbf", "poly", "sigmoid"],
            "degree": randint(2, 6),
            "coef0": uniform(0, 5),
            "shrinking": [True, False],
        },
        "accuracy",
    ),
    "breast cancer": (
        Trees(n_estimators=10, random_state=0),
        {
            "max_depth": [2, 3, 4, 6, 8, 12, 16, 24],
            "min_samples_split": randint(2, 40),
            "min_samples_leaf": randint(1, 20),
            "max_features": uniform(0.05, 0.95),
            "criterion": ["gini", "entropy"],
            "ccp_alpha": loguniform(1e-5, 1e-1),
            "bootstrap": [True, False],
            "class_weight": [None, "balanced"],
        },
        "neg_log_loss",
    ),
}


def search(data: str, X: np.ndarray, y: np.ndarray, candidates: int, seed: int) -> list[dict]:
    """Run halving with this number of candidates, and the other methods with as many fits."""
    X, test, y, expected, cv = halves(X, y, seed)
    estimator, space, scoring = SEARCHES[data]
    common = {"scoring": scoring, "cv": cv, "random_state": seed}
    rows: list[dict] = []

    def row(method: str, searcher) -> int:
        Counted.fits = 0
        searcher.fit(X, y)
        spent = Counted.fits - 1  # all of them refit at the end
        inner = cross_val_score(searcher.best_estimator_, X, y, cv=cv, scoring=scoring).mean()
        rows.append({"data": data, "candidates": candidates, "seed": seed, "method": method, "fits": spent})
        rows[-1] |= {"inner": inner, "outer": searcher.score(test, expected)}
        return spent

    # Three rounds, the last with all samples: with fewer samples in the first, some folds would lack a class.
    halving = {"n_candidates": candidates, "min_resources": len(X) // 9}
    n_iter = row("HalvingRandomSearchCV", HalvingRandomSearchCV(estimator, space, **halving, **common)) // FOLDS
    row("RandomizedSearchCV", RandomizedSearchCV(estimator, space, n_iter=n_iter, **common))
    row("SearchCV", SearchCV(estimator, space, n_iter=n_iter, **common))
    return rows


def write(name: str, title: str, rows: list[dict], group: list[str], shown: list[str]) -> None:
    HERE.mkdir(parents=True, exist_ok=True)
    write_csv(HERE / f"{name}.csv", rows)
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in group)].append(row)
    seeds = len({row["seed"] for row in rows})
    lines = [
        f"# {title}: means of {seeds} splits ± standard deviation",
        "",
        f"| {' | '.join(group + shown)} |",
        "|" + "---|" * len(group + shown),
    ]
    for key, each in groups.items():
        cells = [*map(str, key)]
        for column in shown:
            values = [row[column] for row in each]
            mean, spread = statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{mean:,.0f}" if column == "fits" else f"{mean:.4g} ± {spread:.2g}")
        lines.append(f"| {' | '.join(cells)} |")
    (HERE / f"{name}.md").write_text("\n".join(lines) + "\n")
    meta = {"knobless": kl.__version__, "scikit-learn": sklearn.__version__, "numpy": np.__version__}
    meta |= {"python": platform.python_version(), "cores": os.cpu_count(), "folds": FOLDS}
    meta |= {"seeds": seeds}
    (HERE / f"{name}.json").write_text(json.dumps(meta, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["features", "search"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int)
    chosen = parser.parse_args()
    data, rows = tables(chosen.data), []
    if chosen.what == "features":
        run, seeds = select, range(chosen.seeds or 3)
        models = {"ridge": list(data), "5 neighbors": [name for name in data if data[name][0].shape[1] <= 30]}
        cases = [(name, *data[name], model) for model, names in models.items() for name in names]
        group, shown = ["model", "data", "method", "budget of"], ["fits", "features", "inner", "outer"]
        title = "Feature selection at equal numbers of fits"
    else:
        run, seeds = search, range(chosen.seeds or 5)
        cases = [(name, *data[name], candidates) for name in SEARCHES for candidates in (27, 81)]
        group, shown = ["data", "candidates", "method"], ["fits", "inner", "outer"]
        title = "Parameter search at equal numbers of fits"
    sklearn.set_config(assume_finite=True, skip_parameter_validation=True)
    tasks = (delayed(run)(*case, seed) for seed in seeds for case in cases)
    for each in Parallel(n_jobs=2, return_as="generator")(tasks):  # in order: what is written has whole seeds
        rows += each
        write(chosen.what, title, rows, group, shown)
    print((HERE / f"{chosen.what}.md").read_text())


if __name__ == "__main__":
    main()
