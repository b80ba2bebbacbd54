"""Compare `FeatureSelector` and `SearchCV` with scikit-learn's methods: scores on other data, and numbers of fits.

    python benchmarks/sklearn_selection.py features [--tune] [--data FOLDER] [--seeds 5]
    python benchmarks/sklearn_selection.py search [--tune] [--data FOLDER] [--seeds 5]

Each seed draws training data, with which all methods work by the same five folds, and other data,
on which a model with the features or parameters found is scored. With `--tune`, the problems are
those on which the rules were chosen; the others, which have other data, are for reporting. FOLDER
has the tables Sonar, Vehicle and segment; without it, their problems are left out. Writes
`docs/peers/sklearn/`.

Features: of `SelectKBest` the number of features, and of all the subset, is chosen by
cross-validation on the training data. Parameters: halving has 27 candidates, which takes 195 fits,
and the others 39 candidates, which takes at most as many. A race takes fewer; "as many fits" is the
race with as many candidates as 195 fits allow.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn
from scipy.stats import loguniform, randint, uniform
from sklearn import datasets
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingRegressor, RandomForestClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFECV, SelectKBest, SequentialFeatureSelector, f_classif, f_regression
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import (
    GridSearchCV,
    HalvingRandomSearchCV,
    KFold,
    RandomizedSearchCV,
    StratifiedKFold,
    cross_val_score,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from harness import commit, machine, write_csv
from knobless.sklearn import FeatureSelector, SearchCV

HERE = Path(__file__).resolve().parent.parent / "docs" / "peers" / "sklearn"
FOLDS = 5
CANDIDATES = 27  # of halving: 27 on a ninth of the data, 9 on a third, 3 on all of it
FITS = FOLDS * (27 + 9 + 3)
TEST = 2000  # rows of made data to score on

Data = tuple[np.ndarray, np.ndarray]


class Problem(NamedTuple):
    """A model, its data by seed, the number of rows to train on, and what is sought."""

    half: str
    load: Callable[[int], Data]
    rows: int
    model: Any
    scoring: str = "accuracy"
    space: dict[str, Any] | None = None


FILES: dict[str, Path] = {}  # tables of the folder


def table(name: str) -> Callable[[int], Data]:
    """Return a function that reads a table whose last column is the class."""

    def load(seed: int) -> Data:
        rows = np.genfromtxt(FILES[name], delimiter=",", dtype=str, skip_header=name != "segment")
        rows = np.char.strip(rows, '"')
        return rows[:, :-1].astype(float), np.unique(rows[:, -1], return_inverse=True)[1]

    return load


def bundled(name: str, noise: int = 0) -> Callable[[int], Data]:
    """Return a function that loads data of scikit-learn, with features of pure noise."""

    def load(seed: int) -> Data:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return np.hstack([X, np.random.default_rng(seed + 77).normal(size=(len(X), noise))]), y

    return load


def made(rows: int, *shape: int, **options: Any) -> Callable[[int], Data]:
    """Return a function that makes data with two classes."""
    features, informative, redundant = shape

    def load(seed: int) -> Data:
        return datasets.make_classification(
            rows + TEST, features, n_informative=informative, n_redundant=redundant, random_state=seed, **options
        )

    return load


def correlated(seed: int) -> Data:
    """Make 60 correlated features, eight of which matter, and a target with as much noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(150 + TEST, 60))
    for j in range(1, 60):
        X[:, j] = 0.5 * X[:, j - 1] + 0.75**0.5 * X[:, j]
    weights = np.zeros(60)
    weights[rng.choice(60, 8, replace=False)] = rng.normal(size=8)
    signal = X @ weights
    return X, signal + signal.std() * rng.normal(size=len(X))


def pairs_of_diabetes(seed: int) -> Data:
    """Return the features of `load_diabetes` and their products."""
    X, y = datasets.load_diabetes(return_X_y=True)
    i, j = np.triu_indices(X.shape[1])
    return np.hstack([X, 20.0 * X[:, i] * X[:, j]]), y


def friedman(seed: int) -> Data:
    """Make the first problem of Friedman."""
    return datasets.make_friedman1(250 + TEST, noise=1.0, random_state=seed)


NEAREST = KNeighborsClassifier()
FEATURES = {
    "Sonar, ridge": Problem("choosing", table("Sonar"), 104, RidgeClassifier()),
    "Sonar, neighbors": Problem("choosing", table("Sonar"), 104, NEAREST),
    "breast cancer, ridge": Problem("choosing", bundled("breast_cancer"), 150, RidgeClassifier()),
    "breast cancer + 50, Bayes": Problem("choosing", bundled("breast_cancer", 50), 150, GaussianNB()),
    "wine + 30, neighbors": Problem("choosing", bundled("wine", 30), 89, NEAREST),
    "made, 120, ridge": Problem("choosing", made(300, 120, 10, 10, flip_y=0.2, class_sep=0.5), 300, RidgeClassifier()),
    "made, 120, neighbors": Problem("choosing", made(300, 120, 8, 4, flip_y=0.1), 300, NEAREST),
    "correlated, 60, ridge": Problem("choosing", correlated, 150, Ridge(), "r2"),
    "Vehicle, ridge": Problem("reporting", table("Vehicle"), 200, RidgeClassifier()),
    "Vehicle, neighbors": Problem("reporting", table("Vehicle"), 200, NEAREST),
    "segment, Bayes": Problem("reporting", table("segment"), 200, GaussianNB()),
    "digits, neighbors": Problem("reporting", bundled("digits"), 250, NEAREST),
    "digits, ridge": Problem("reporting", bundled("digits"), 250, RidgeClassifier()),
    "iris + 60, Bayes": Problem("reporting", bundled("iris", 60), 75, GaussianNB()),
    "diabetes, 65, ridge": Problem("reporting", pairs_of_diabetes, 220, Ridge(), "r2"),
    "clusters, 100, neighbors": Problem(
        "reporting", made(400, 100, 5, 5, flip_y=0.05, class_sep=1.2, n_clusters_per_class=4), 400, NEAREST
    ),
}


def named(step: str, space: dict[str, Any]) -> dict[str, Any]:
    return {f"{step}__{name}": values for name, values in space.items()}


TREES = {
    "max_depth": [2, 3, 4, 6, 8, 12, 16, 24],
    "min_samples_split": randint(2, 40),
    "min_samples_leaf": randint(1, 20),
    "max_features": uniform(0.05, 0.95),
    "criterion": ["gini", "entropy"],
    "ccp_alpha": loguniform(1e-5, 1e-1),
    "bootstrap": [True, False],
    "class_weight": [None, "balanced"],
}
VECTORS = {"C": loguniform(1e-3, 1e3), "gamma": loguniform(1e-5, 1e1), "kernel": ["rbf", "poly", "sigmoid"]}
LINEAR = {
    "alpha": loguniform(1e-6, 1e1),
    "penalty": ["l1", "l2", "elasticnet"],
    "l1_ratio": uniform(0, 1),
    "learning_rate": ["optimal", "invscaling", "constant"],
    "eta0": loguniform(1e-4, 1),
    "power_t": uniform(0.1, 0.8),
}
FOREST = {
    "max_depth": randint(2, 20),
    "min_samples_leaf": randint(1, 20),
    "max_features": uniform(0.05, 0.95),
    "criterion": ["gini", "entropy"],
    "max_samples": uniform(0.2, 0.8),
}
LOGISTIC = {"C": loguniform(1e-4, 1e4), "fit_intercept": [True, False], "class_weight": [None, "balanced"]}
NETWORK = {
    "alpha": loguniform(1e-6, 1),
    "learning_rate_init": loguniform(1e-4, 1),
    "hidden_layer_sizes": [(4,), (8,), (16,), (32,)],
    "activation": ["relu", "tanh", "logistic"],
}
BOOSTING = {
    "learning_rate": loguniform(1e-3, 1),
    "max_depth": randint(1, 8),
    "subsample": uniform(0.2, 0.8),
    "min_samples_leaf": randint(1, 40),
    "max_features": uniform(0.1, 0.9),
}
SGD = SGDClassifier(loss="log_loss", max_iter=60, tol=None, random_state=0)
SEARCHES = {
    "breast cancer, extra trees": Problem(
        "choosing", bundled("breast_cancer"), 200, ExtraTreesClassifier(12, random_state=0), "neg_log_loss", TREES
    ),
    "wine, support vectors": Problem(
        "choosing", bundled("wine"), 89, SVC(), "accuracy", VECTORS | {"coef0": uniform(0, 3)}
    ),
    "Sonar, neighbors": Problem(
        "choosing",
        table("Sonar"),
        104,
        NEAREST,
        "accuracy",
        {"n_neighbors": randint(1, 30), "p": uniform(0.5, 3.5), "weights": ["uniform", "distance"]},
    ),
    "made, 20, linear": Problem(
        "choosing", made(250, 20, 6, 4, flip_y=0.1, class_sep=0.7), 250, SGD, "accuracy", LINEAR
    ),
    "diabetes, support vectors": Problem(
        "choosing",
        bundled("diabetes"),
        221,
        SVR(),
        "r2",
        {"C": loguniform(1e-2, 1e4), "gamma": loguniform(1e-5, 1e1), "epsilon": loguniform(1e-2, 1e2)},
    ),
    "digits, support vectors": Problem(
        "reporting",
        bundled("digits"),
        300,
        SVC(),
        "accuracy",
        VECTORS | {"degree": randint(2, 6), "coef0": uniform(0, 5), "shrinking": [True, False]},
    ),
    "Vehicle, forest": Problem(
        "reporting", table("Vehicle"), 300, RandomForestClassifier(12, random_state=0), "accuracy", FOREST
    ),
    "segment, logistic": Problem(
        "reporting", table("segment"), 300, LogisticRegression(max_iter=200), "neg_log_loss", LOGISTIC
    ),
    "iris, network": Problem(
        "reporting", bundled("iris"), 75, MLPClassifier(max_iter=100, random_state=0), "neg_log_loss", NETWORK
    ),
    "Friedman 1, boosting": Problem(
        "reporting", friedman, 250, GradientBoostingRegressor(n_estimators=40, random_state=0), "r2", BOOSTING
    ),
}


def split(problem: Problem, seed: int) -> tuple[Any, ...]:
    """Return data to train on, data to score on, and the folds."""
    X, y = problem.load(seed)
    classes = problem.scoring != "r2"
    X, test, y, expected = train_test_split(
        X, y, train_size=problem.rows, stratify=y if classes else None, random_state=seed
    )
    cv = (StratifiedKFold if classes else KFold)(FOLDS, shuffle=True, random_state=seed)
    return X, test, y, expected, cv


def counted(model: Any) -> tuple[Any, list[int]]:
    """Return a model whose clones count their fits, and the count."""
    fits = [0]
    kind = type(model)

    def fit(self: Any, *args: Any, **params: Any) -> Any:
        fits[0] += 1
        return kind.fit(self, *args, **params)

    return type(kind.__name__, (kind,), {"fit": fit, "__module__": kind.__module__})(
        **model.get_params(deep=False)
    ), fits


def best_k(estimator: Any, X: np.ndarray, y: np.ndarray, cv: Any, statistic: Any) -> np.ndarray:
    """Return the features of `SelectKBest` with the best number of them."""
    p = X.shape[1]
    sizes = sorted({round(p * 2 ** (-i / 2)) for i in range(20)} - {0})
    pipeline = Pipeline([("select", SelectKBest(statistic)), ("model", estimator)])
    search = GridSearchCV(pipeline, {"select__k": sizes}, cv=cv, refit=False).fit(X, y)
    return SelectKBest(statistic, k=search.best_params_["select__k"]).fit(X, y).get_support()


def select(name: str, seed: int) -> list[dict[str, Any]]:
    """Select features by each method."""
    problem = FEATURES[name]
    X, test, y, expected, cv = split(problem, seed)
    scaler = StandardScaler().fit(X)
    X, test = scaler.transform(X), scaler.transform(test)
    estimator, fits = counted(problem.model)
    statistic = f_regression if problem.scoring == "r2" else f_classif
    selectors: dict[str, Callable[[], np.ndarray]] = {
        "all features": lambda: np.ones(X.shape[1], dtype=bool),
        "SelectKBest": lambda: best_k(estimator, X, y, cv, statistic),
        "SequentialFeatureSelector": lambda: (
            SequentialFeatureSelector(estimator, tol=1e-6, cv=cv).fit(X, y).get_support()
        ),
        "FeatureSelector": lambda: FeatureSelector(estimator, random_state=seed).fit(X, y).get_support(),
        "FeatureSelector, these folds": lambda: (
            FeatureSelector(estimator, cv=cv, random_state=seed).fit(X, y).get_support()
        ),
    }
    if hasattr(problem.model, "alpha"):  # a linear model, with the coefficients that RFECV needs
        selectors["RFECV"] = lambda: RFECV(estimator, cv=cv).fit(X, y).get_support()
    rows = []
    for method, selector in selectors.items():
        fits[0], start = 0, time.process_time()
        support = selector()
        row = {"half": problem.half, "problem": name, "seed": seed, "method": method, "fits": fits[0]}
        row |= {"seconds": round(time.process_time() - start, 2), "features": int(support.sum())}
        inner = cross_val_score(problem.model, X[:, support], y, cv=cv).mean()
        outer = clone(problem.model).fit(X[:, support], y).score(test[:, support], expected)
        rows.append(row | {"inner": float(inner), "outer": float(outer)})
    return rows


def search(name: str, seed: int) -> list[dict[str, Any]]:
    """Search parameters by each method."""
    problem = SEARCHES[name]
    X, test, y, expected, cv = split(problem, seed)
    model, fits = counted(problem.model)
    estimator = Pipeline([("scale", StandardScaler()), ("model", model)])
    space = named("model", problem.space or {})
    scorer = get_scorer(problem.scoring)
    common = {"scoring": problem.scoring, "cv": cv, "random_state": seed, "refit": False}
    halving = {"n_candidates": CANDIDATES, "min_resources": len(X) // 9}
    n_iter = FITS // FOLDS
    rows = []

    def add(method: str, spent: int, seconds: float, params: dict[str, Any], inner: float) -> None:
        best = clone(estimator).set_params(**params).fit(X, y)
        row = {"half": problem.half, "problem": name, "seed": seed, "method": method, "fits": spent}
        row |= {"seconds": round(seconds, 2), "inner": float(inner)}
        rows.append(row | {"outer": float(scorer(best, test, expected))})

    searchers = {
        "HalvingRandomSearchCV": HalvingRandomSearchCV(estimator, space, **halving, **common),
        "RandomizedSearchCV": RandomizedSearchCV(estimator, space, n_iter=n_iter, **common),
        "SearchCV, racing=False": SearchCV(estimator, space, n_iter=n_iter, racing=False, **common),
        "SearchCV": SearchCV(estimator, space, n_iter=n_iter, **common),
    }
    for method, searcher in searchers.items():
        fits[0], start = 0, time.process_time()
        searcher.fit(X, y)
        add(method, fits[0], time.process_time() - start, searcher.best_params_, searcher.best_score_)
    start = time.process_time()
    results = SearchCV(estimator, space, n_iter=3 * n_iter, **common).fit(X, y).cv_results_
    spent = results["n_splits"].cumsum()
    n = int((spent <= FITS).sum())  # a search with fewer candidates has the same first ones
    best = int(np.nanargmax(results["mean_test_score"][:n]))
    seconds = float((time.process_time() - start) * spent[n - 1] / spent[-1])
    add("SearchCV, as many fits", int(spent[n - 1]), seconds, results["params"][best], results["mean_test_score"][best])
    return rows


SHOWN = {"features": ["fits", "features", "inner", "outer"], "search": ["fits", "inner", "outer"]}


def table_of(what: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table: the means over seeds, and for each method its mean difference from the first."""
    seeds = len({row["seed"] for row in rows})
    yield f"# scikit-learn, {what}: means of {seeds} seeds ± standard deviation\n"
    for half in dict.fromkeys(row["half"] for row in rows):
        groups = defaultdict(list)
        for row in rows:
            if row["half"] == half:
                groups[row["problem"], row["method"]].append(row)
        yield f"## Problems for {half}\n"
        yield f"| problem | method | {' | '.join(SHOWN[what])} |\n|---|---|{'---|' * len(SHOWN[what])}"
        for key, group in groups.items():
            cells = [*key]
            for column in SHOWN[what]:
                values = [row[column] for row in group]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                mean = statistics.mean(values)
                cells.append(f"{mean:,.0f}" if column in ("fits", "features") else f"{mean:.4f} ± {spread:.2g}")
            yield f"| {' | '.join(cells)} |"
        yield ""
        yield from ranks(what, groups)


def ranks(what: str, groups: dict[tuple[str, str], list[dict[str, Any]]]) -> Iterator[str]:
    """Yield the mean number of fits and the mean rank of each method by its outer score, over problems and seeds."""
    methods = [m for m in dict.fromkeys(method for _, method in groups) if m != "RFECV"]
    problems = list(dict.fromkeys(problem for problem, _ in groups))
    outer = np.array([[[row["outer"] for row in groups[p, m]] for m in methods] for p in problems])
    order = (outer[:, :, None, :] > outer[:, None, :, :]).sum(1) + 0.5 * (
        outer[:, :, None, :] == outer[:, None, :, :]
    ).sum(1)
    place = order.mean(axis=(0, 2)) + 0.5
    fits = [statistics.mean(row["fits"] for p in problems for row in groups[p, m]) for m in methods]
    yield "| method | mean rank of the outer score | fits |\n|---|---|---|"
    for method, rank, spent in zip(methods, place, fits, strict=True):
        yield f"| {method} | {rank:.2f} | {spent:,.0f} |"
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=[*SHOWN])
    parser.add_argument("--tune", action="store_true", help="the problems on which rules were chosen")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    sklearn.set_config(assume_finite=True, skip_parameter_validation=True)
    FILES.update(
        {
            name: chosen.data / file
            for name, file in (
                ("Sonar", "mlbench_Sonar.csv.gz"),
                ("Vehicle", "mlbench_Vehicle.csv.gz"),
                ("segment", "segment.dat"),
            )
            if chosen.data
        }
    )
    problems, run = (FEATURES, select) if chosen.what == "features" else (SEARCHES, search)
    half = "choosing" if chosen.tune else "reporting"
    names = [
        name
        for name, problem in problems.items()
        if problem.half == half and (chosen.data or name.split(",")[0] not in ("Sonar", "Vehicle", "segment"))
    ]
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / f"{chosen.what}-{half}"
    rows: list[dict[str, Any]] = []
    for seed in range(chosen.seeds):
        for name in names:
            rows += run(name, seed)
            print(seed, name, flush=True)
        write_csv(path.with_suffix(".csv"), rows)
        path.with_suffix(".md").write_text("\n".join(table_of(chosen.what, rows)))
    meta = machine() | {"commit": commit(), "scikit-learn": sklearn.__version__, "folds": FOLDS, "seeds": chosen.seeds}
    path.with_suffix(".json").write_text(json.dumps(meta, indent=2) + "\n")
    print(path.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
