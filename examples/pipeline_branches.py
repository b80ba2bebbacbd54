"""A scikit-learn pipeline with branches: each step has its own conditional parameters. Needs scikit-learn.

It prints:

    0.977 with range, pca, svc
    0.957 by a support vector machine with default parameters
"""

from functools import partial

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectPercentile
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

import knobless as kl

SCALERS = {"standard": StandardScaler, "range": MinMaxScaler}
REDUCTIONS = {"none": lambda: "passthrough", "pca": PCA, "select": SelectPercentile}
MODELS = {
    "svc": SVC,
    "logistic": partial(LogisticRegression, max_iter=2000),
    "forest": partial(RandomForestClassifier, n_estimators=20, random_state=0),
}
SPACE = kl.Space(
    scaler=kl.Choice(*SCALERS),
    reduction=kl.Choice(*REDUCTIONS),
    pca=kl.Space(n_components=kl.Float(0.5, 0.99)).when(reduction="pca"),
    select=kl.Space(percentile=kl.Integer(5, 95)).when(reduction="select"),
    model=kl.Choice(*MODELS),
    svc=kl.Space(
        kernel=kl.Choice("rbf", "poly"),
        C=kl.Float(1e-2, 1e3, log=True),
        gamma=kl.Float(1e-4, 1.0, log=True),
        degree=kl.Integer(2, 4).when(kernel="poly"),
    ).when(model="svc"),
    logistic=kl.Space(C=kl.Float(1e-3, 1e2, log=True)).when(model="logistic"),
    forest=kl.Space(max_depth=kl.Integer(2, 12), max_features=kl.Float(0.1, 1.0)).when(model="forest"),
)


def pipeline(c):
    """Return the pipeline of a point; the parameters of a step have its name."""
    steps = (SCALERS, c["scaler"]), (REDUCTIONS, c["reduction"]), (MODELS, c["model"])
    return make_pipeline(*(options[name](**c.get(name, {})) for options, name in steps))


if __name__ == "__main__":
    X, y = (data[:300] for data in load_digits(return_X_y=True))

    def accuracy(c):
        """Return the accuracy in cross-validation."""
        return cross_val_score(pipeline(c), X, y, cv=3).mean()

    result = kl.maximize(accuracy, SPACE, budget=40, deterministic=True, rng=0)
    plain = cross_val_score(make_pipeline(StandardScaler(), SVC()), X, y, cv=3).mean()
    print(f"{result.fun:.3f} with {', '.join(result.x[step] for step in ('scaler', 'reduction', 'model'))}")
    print(f"{plain:.3f} by a support vector machine with default parameters")
