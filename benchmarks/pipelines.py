"""Compare searches of a scikit-learn pipeline with branches, at the same number of candidates.

    python benchmarks/pipelines.py [--seeds 5]

The pipeline is that of `examples/pipeline_branches.py`. Each seed splits the data in halves. All methods use one half,
with the same folds; the outer score is that of the best pipeline, fitted to this half, on the other one. Writes
`docs/examples/pipelines/`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import runpy
import statistics
from pathlib import Path

import numpy as np
import sklearn
from scipy.stats import loguniform, randint, uniform
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import RandomizedSearchCV, StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import Pipeline

import knobless as kl
from harness import write_csv
from knobless.sklearn import SearchCV

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "docs" / "examples" / "pipelines"
EXAMPLE = runpy.run_path(str(ROOT / "examples" / "pipeline_branches.py"))
BUDGETS = (20, 60, 200)


def dicts():
    """Return the same space as a list of dicts, one per combination of steps, as scikit-learn requires it."""
    scalers = [scaler() for scaler in EXAMPLE["SCALERS"].values()]
    reductions = {
        "none": {},
        "pca": {"reduction__n_components": uniform(0.5, 0.49)},
        "select": {"reduction__percentile": randint(5, 96)},
    }
    svc = {"model__C": loguniform(1e-2, 1e3), "model__gamma": loguniform(1e-4, 1.0)}
    models = [
        ("svc", {"model__kernel": ["rbf"], **svc}),
        ("svc", {"model__kernel": ["poly"], "model__degree": randint(2, 5), **svc}),
        ("logistic", {"model__C": loguniform(1e-3, 1e2)}),
        ("forest", {"model__max_depth": randint(2, 13), "model__max_features": uniform(0.1, 0.9)}),
    ]
    return [
        {
            "scaler": scalers,
            "reduction": [EXAMPLE["REDUCTIONS"][reduction]()],
            "model": [EXAMPLE["MODELS"][model]()],
            **reductions[reduction],
            **parameters,
        }
        for reduction, (model, parameters) in itertools.product(reductions, models)
    ]


def by_minimize(X, y, cv, seed):
    """Return (score, pipeline) of all candidates in order, by `kl.maximize` with conditional variables."""
    result = kl.maximize(
        lambda c: cross_val_score(EXAMPLE["pipeline"](c), X, y, cv=cv).mean(),
        EXAMPLE["SPACE"],
        budget=BUDGETS[-1],
        deterministic=True,
        rng=seed,
    )
    return [(each.value, EXAMPLE["pipeline"](each.x)) for each in result.evaluations]


def by_class(search):
    """Return the same function for a class of scikit-learn's interface."""

    def run(X, y, cv, seed):
        pipeline = Pipeline(
            [("scaler", "passthrough"), ("reduction", "passthrough"), ("model", EXAMPLE["MODELS"]["svc"]())]
        )
        fitted = search(pipeline, dicts(), n_iter=BUDGETS[-1], cv=cv, random_state=seed, refit=False).fit(X, y)
        results = fitted.cv_results_
        return [
            (score, clone(pipeline).set_params(**{name: clone(value, safe=False) for name, value in each.items()}))
            for score, each in zip(results["mean_test_score"], results["params"], strict=True)
        ]

    return run


METHODS = {
    "kl.maximize with conditional variables": by_minimize,
    "knobless.sklearn.SearchCV": by_class(SearchCV),
    "RandomizedSearchCV": by_class(RandomizedSearchCV),
}


def main():
    """Run all methods on all splits and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    X, y = load_digits(return_X_y=True)
    data = {"digits": (X[:800], y[:800]), "breast cancer": load_breast_cancer(return_X_y=True)}
    rows = []
    HERE.mkdir(parents=True, exist_ok=True)
    for seed, (name, (X, y)) in itertools.product(range(seeds), data.items()):
        X, outer_X, y, outer_y = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
        cv = StratifiedKFold(3, shuffle=True, random_state=seed)
        for method, run in METHODS.items():
            candidates = run(X, y, cv, seed)
            for budget in BUDGETS:
                inner, best = max(candidates[:budget], key=lambda each: np.nan_to_num(each[0]))  # failed: NaN
                outer = best.fit(X, y).score(outer_X, outer_y)
                row = {"data": name, "candidates": budget, "method": method, "seed": seed}
                rows.append(row | {"inner": round(float(inner), 5), "outer": round(outer, 5)})
            print(rows[-1], flush=True)
            write_csv(HERE / "runs.csv", rows)  # what has been done is left after an interruption
    lines = ["| data | candidates | method | inner | outer |", "|---|---|---|---|---|"]
    for name, budget, method in itertools.product(data, BUDGETS, METHODS):
        group = [r for r in rows if (r["data"], r["candidates"], r["method"]) == (name, budget, method)]
        means = " | ".join(f"{statistics.mean(r[score] for r in group):.4f}" for score in ("inner", "outer"))
        lines.append(f"| {name} | {budget} | {method} | {means} |")
    print("\n".join(lines))
    versions = {"knobless": kl.__version__, "scikit-learn": sklearn.__version__, "python": platform.python_version()}
    meta = {"command": f"python benchmarks/pipelines.py --seeds {seeds}", **versions, "cores": os.cpu_count()}
    (HERE / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
