"""Problems of hyperparameter optimization: models and pipelines on real data, functions, and tables.

Two halves with other data *and* other models: rules are chosen on one, and the other one is
reported. Some data sets are files of a folder, and some models need LightGBM; problems that lack
theirs are left out.

Each problem has a noisy variant. For a model this is the loss on a random split of the rows, whose
true value is the mean over splits that no run sees; for a function, normal noise is added.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn.datasets
from sklearn import (
    cluster,
    discriminant_analysis,
    ensemble,
    feature_selection,
    kernel_approximation,
    kernel_ridge,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    random_projection,
    svm,
    tree,
)
from sklearn import preprocessing as pre
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

import knobless as kl
from grids import GRIDS
from grids import read as read_grid

Values = dict[str, Any]
ROWS = 400  # of a data set, at most
JUDGES = range(1, 21)  # the splits of the true value; those of evaluations come after them
FILES = {
    "sonar": "features/mlbench_Sonar.csv.gz",
    "vehicle": "features/mlbench_Vehicle.csv.gz",
    "segment": "features/segment.dat",
}


class Parameter(NamedTuple):
    """An integer, a float or a choice, possibly active only for some values of another one."""

    name: str
    options: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    integer: bool = False
    when: tuple[str, tuple[Any, ...]] | None = None

    @property
    def variable(self) -> Any:
        """The variable of knobless."""
        if self.options:
            variable: Any = kl.Choice(*self.options)
        elif self.integer:
            variable = kl.Integer(int(self.low), int(self.high), log=self.log)
        else:
            variable = kl.Float(self.low, self.high, log=self.log)
        if self.when is None:
            return variable
        return variable.when(**{self.when[0]: self.when[1]})

    def is_active(self, values: Mapping[str, Any]) -> bool:
        """Whether it is active, given the parameters before it."""
        return self.when is None or values.get(self.when[0]) in self.when[1]

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw a value at random."""
        if self.options:
            return self.options[rng.integers(len(self.options))]
        half = 0.5 if self.integer else 0.0
        low, high = self.low - half, self.high + half
        value = rng.uniform(math.log(low), math.log(high)) if self.log else rng.uniform(low, high)
        value = math.exp(value) if self.log else value
        return int(min(max(round(value), self.low), self.high)) if self.integer else value


class Problem(NamedTuple):
    """A problem: its parameters, and a function of their values that is minimized.

    Attributes
    ----------
    group : str
        Flat models, conditional pipelines, floats or tables.
    parameters : tuple of Parameter
        The hyperparameters; one on which others depend is before them.
    loss : callable
        The values and the number of a split to the loss; split 0 is that of the variant without
        noise.
    data : str
        The name of the data set, or of a table of trained networks.
    model : callable, optional
        The values to a model that is not fitted.
    noise : float
        The standard deviation of the noise that is added to a function; 0 for a model.
    """

    group: str
    parameters: tuple[Parameter, ...]
    loss: Callable[[Values, int], float]
    data: str = ""
    model: Callable[[Values], Any] | None = None
    noise: float = 0.0

    @property
    def space(self) -> kl.Space:
        """The space for knobless."""
        return kl.Space(**{parameter.name: parameter.variable for parameter in self.parameters})

    def draw(self, rng: np.random.Generator) -> Values:
        """Draw a point at random."""
        values: Values = {}
        for parameter in self.parameters:
            if parameter.is_active(values):
                values[parameter.name] = parameter.draw(rng)
        return values

    def active(self, values: Mapping[str, Any]) -> Values:
        """Return the values of the active parameters alone."""
        kept: Values = {}
        for parameter in self.parameters:
            if parameter.is_active(kept):
                kept[parameter.name] = values[parameter.name]
        return kept

    def fun(self, values: Values) -> float:
        """Return the loss without noise."""
        return self.loss(values, 0)

    def noisy(self, values: Values, number: int) -> float:
        """Return the loss of one evaluation with noise; those of one number have equal noise."""
        value = self.loss(values, JUDGES.stop + number)
        return value + self.noise * np.random.default_rng(number).standard_normal()

    def mean(self, values: Values) -> float:
        """Return the mean of all evaluations with noise: the true value."""
        if self.noise:
            return self.loss(values, 0)
        mean = float(np.mean([self.loss(values, split) for split in JUDGES]))
        return math.inf if math.isnan(mean) else mean


def pick(name: str, *options: Any, when: Any = None) -> Parameter:
    return Parameter(name, options, when=when)


def whole(name: str, low: int, high: int, log: bool = False, when: Any = None) -> Parameter:
    return Parameter(name, (), low, high, log, True, when)


def real(name: str, low: float, high: float, log: bool = False, when: Any = None) -> Parameter:
    return Parameter(name, (), low, high, log, False, when)


def only(name: str, *values: Any) -> tuple[str, tuple[Any, ...]]:
    return name, values


# Data: one half of the rows for fitting, the other for the loss.


class Folder:
    """The folder of the data sets that are files."""

    path = Path("../shared/data")


@cache
def rows_of(name: str) -> tuple[Any, Any]:
    """Return the features and the target of a data set."""
    if name.startswith("friedman"):
        return getattr(sklearn.datasets, f"make_{name}")(400, noise=0.5, random_state=1)
    if name not in FILES:
        return getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    path = Folder.path / FILES[name]
    header = int(path.suffix == ".gz")
    rows = np.genfromtxt(path, delimiter=",", dtype=str, skip_header=header)
    rows = np.char.strip(rows, '" ')
    return rows[:, :-1].astype(float), np.unique(rows[:, -1], return_inverse=True)[1]


@lru_cache(maxsize=64)
def data(name: str, split: int = 0) -> tuple[Any, ...]:
    """Return the two halves of at most 400 rows of a data set."""
    x, y = rows_of(name)
    rows = np.random.default_rng(split).permutation(len(x))[:ROWS]
    x, y, half = x[rows], y[rows], len(rows) // 2
    if is_regression(y):
        y = (y - y.mean()) / y.std()
    return x[:half], y[:half], x[half:], y[half:]


def is_regression(y: Any) -> bool:
    return len(np.unique(y)) > 20


def fit_loss(model: Any, name: str, error: bool, split: int) -> float:
    """Return the loss of a model on data: logarithmic or squared, or the share of errors."""
    x, y, x_test, y_test = data(name, split)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model.fit(x, y)
            if is_regression(y):
                return float(min(np.mean((model.predict(x_test) - y_test) ** 2), 10.0))
            if error:
                return float(np.mean(model.predict(x_test) != y_test))
            p = model.predict_proba(x_test)
            p_true = p[np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)]
            return float(-np.log(np.clip(p_true, 1e-3, 1.0)).mean())
        except (ValueError, FloatingPointError, np.linalg.LinAlgError):
            return math.nan


def fitted(
    group: str,
    parameters: tuple[Parameter, ...],
    model: Callable[[Values], Any],
    name: str,
    error: bool = False,
) -> Problem:
    """Return a problem: the loss of a model that is made from the values."""

    def loss(values: Values, split: int) -> float:
        return fit_loss(model(values), name, error, split)

    return Problem(group, parameters, loss, name, model)


def of(values: Values, *names: str, prefix: str = "") -> Values:
    """Return some of the values, as arguments of a model."""
    return {name: values[prefix + name] for name in names}


SCALERS = {
    "none": lambda: "passthrough",
    "standard": pre.StandardScaler,
    "minmax": pre.MinMaxScaler,
    "robust": pre.RobustScaler,
    "quantile": lambda: pre.QuantileTransformer(n_quantiles=50),
    "power": pre.PowerTransformer,
}


# Models and pipelines for choosing rules.

SVC = (
    real("C", 1e-2, 1e4, log=True),
    real("gamma", 1e-6, 1.0, log=True),
    pick("kernel", "rbf", "poly", "sigmoid"),
    whole("degree", 2, 4),
    real("coef0", -1.0, 1.0),
)
ELASTIC = (
    real("alpha", 1e-5, 1e2, log=True),
    real("l1_ratio", 0.0, 1.0),
    pick("degree", 1, 2),
    whole("k", 1, 10),
    pick("fit_intercept", False, True),
)
TREE = (
    whole("max_depth", 1, 20),
    whole("min_samples_split", 2, 60, log=True),
    whole("min_samples_leaf", 1, 30, log=True),
    pick("criterion", "gini", "entropy"),
    real("max_features", 0.05, 1.0),
    real("ccp_alpha", 1e-4, 0.2, log=True),
)
KNN = (
    whole("n_neighbors", 1, 60),
    pick("weights", "uniform", "distance"),
    real("p", 1.0, 6.0),
    pick("scaler", "none", "standard", "minmax"),
)
SVR = (
    real("C", 1e-3, 1e3, log=True),
    real("gamma", 1e-5, 1e2, log=True),
    real("epsilon", 1e-3, 1.0, log=True),
)
LOGISTIC = (
    real("C", 1e-4, 1e3, log=True),
    pick("scaler", "standard", "minmax", "robust", "quantile", "power"),
    pick("class_weight", None, "balanced"),
    pick("fit_intercept", False, True),
    whole("degree", 1, 2),
    whole("k", 1, 18),
    whole("max_iter", 2, 60, log=True),
)
WINE_PIPELINE = (
    pick("scaler", "none", "standard", "minmax", "robust"),
    pick("reduction", "none", "pca", "kbest"),
    pick("model", "logistic", "svc", "knn", "tree", "gnb", "lda"),
    whole("components", 1, 12, when=only("reduction", "pca")),
    whole("best", 1, 12, when=only("reduction", "kbest")),
    real("logistic_C", 1e-4, 1e3, log=True, when=only("model", "logistic")),
    pick("class_weight", None, "balanced", when=only("model", "logistic")),
    real("svc_C", 1e-2, 1e3, log=True, when=only("model", "svc")),
    real("svc_gamma", 1e-5, 1e1, log=True, when=only("model", "svc")),
    whole("n_neighbors", 1, 50, when=only("model", "knn")),
    real("p", 1.0, 5.0, when=only("model", "knn")),
    pick("weights", "uniform", "distance", when=only("model", "knn")),
    whole("max_depth", 1, 12, when=only("model", "tree")),
    whole("min_samples_leaf", 1, 30, log=True, when=only("model", "tree")),
    real("var_smoothing", 1e-10, 1.0, log=True, when=only("model", "gnb")),
    real("shrinkage", 0.0, 1.0, when=only("model", "lda")),
)
DIABETES_PIPELINE = (
    pick("scaler", "standard", "minmax", "quantile", "power"),
    pick("features", "none", "poly", "fourier"),
    pick("model", "ridge", "lasso", "svr", "knn", "tree", "kernel"),
    pick("interaction_only", False, True, when=only("features", "poly")),
    real("fourier_gamma", 1e-4, 1e1, log=True, when=only("features", "fourier")),
    whole("n_components", 5, 100, log=True, when=only("features", "fourier")),
    real("ridge_alpha", 1e-4, 1e4, log=True, when=only("model", "ridge")),
    real("lasso_alpha", 1e-4, 1e1, log=True, when=only("model", "lasso")),
    real("C", 1e-3, 1e3, log=True, when=only("model", "svr")),
    real("gamma", 1e-5, 1e1, log=True, when=only("model", "svr")),
    real("epsilon", 1e-3, 1.0, log=True, when=only("model", "svr")),
    whole("n_neighbors", 1, 60, when=only("model", "knn")),
    pick("weights", "uniform", "distance", when=only("model", "knn")),
    whole("max_depth", 1, 12, when=only("model", "tree")),
    real("max_features", 0.1, 1.0, when=only("model", "tree")),
    real("kernel_alpha", 1e-4, 1e2, log=True, when=only("model", "kernel")),
    real("kernel_gamma", 1e-5, 1e1, log=True, when=only("model", "kernel")),
)
VEHICLE_PIPELINE = (
    pick("scaler", "standard", "minmax", "robust", "power"),
    pick("reduction", "none", "pca", "kbest", "poly"),
    pick("model", "logistic", "svc", "knn", "tree", "lda"),
    whole("components", 2, 18, when=only("reduction", "pca")),
    pick("whiten", False, True, when=only("reduction", "pca")),
    whole("best", 1, 18, when=only("reduction", "kbest")),
    pick("interaction_only", False, True, when=only("reduction", "poly")),
    real("logistic_C", 1e-4, 1e3, log=True, when=only("model", "logistic")),
    pick("kernel", "rbf", "poly", "sigmoid", when=only("model", "svc")),
    real("svc_C", 1e-2, 1e3, log=True, when=only("model", "svc")),
    real("svc_gamma", 1e-5, 1e1, log=True, when=only("model", "svc")),
    whole("n_neighbors", 1, 50, log=True, when=only("model", "knn")),
    real("p", 1.0, 5.0, when=only("model", "knn")),
    whole("max_depth", 1, 15, when=only("model", "tree")),
    real("max_features", 0.1, 1.0, when=only("model", "tree")),
    real("shrinkage", 0.0, 1.0, when=only("model", "lda")),
)


def svc(v: Values) -> Any:
    return svm.SVC(**v, max_iter=2000)


def elastic(v: Values) -> Any:
    best = feature_selection.SelectKBest(feature_selection.f_regression, k=v["k"])
    poly = pre.PolynomialFeatures(v["degree"], include_bias=False)
    model = linear_model.ElasticNet(**of(v, "alpha", "l1_ratio", "fit_intercept"), max_iter=300)
    return make_pipeline(best, poly, pre.StandardScaler(), model)


def cart(v: Values) -> Any:
    return tree.DecisionTreeClassifier(**v, random_state=0)


def knn(v: Values) -> Any:
    model = neighbors.KNeighborsClassifier(**of(v, "n_neighbors", "weights", "p"))
    return make_pipeline(SCALERS[v["scaler"]](), model)


def svr(v: Values) -> Any:
    return make_pipeline(pre.StandardScaler(), svm.SVR(**v, max_iter=3000))


def logistic(v: Values) -> Any:
    best = feature_selection.SelectKBest(k=v["k"])
    poly = pre.PolynomialFeatures(v["degree"], include_bias=False)
    names = "C", "class_weight", "fit_intercept", "max_iter"
    return make_pipeline(SCALERS[v["scaler"]](), best, poly, linear_model.LogisticRegression(**of(v, *names)))


def classifier(v: Values) -> Any:
    """Return the classifier of the pipelines for choosing rules."""
    models: Any = {
        "logistic": lambda: linear_model.LogisticRegression(
            C=v["logistic_C"], class_weight=v.get("class_weight"), max_iter=50
        ),
        "svc": lambda: svm.SVC(C=v["svc_C"], gamma=v["svc_gamma"], kernel=v.get("kernel", "rbf"), max_iter=2000),
        "knn": lambda: neighbors.KNeighborsClassifier(**of(v, "n_neighbors", "p"), weights=v.get("weights", "uniform")),
        "tree": lambda: tree.DecisionTreeClassifier(
            max_depth=v["max_depth"],
            min_samples_leaf=v.get("min_samples_leaf", 1),
            max_features=v.get("max_features"),
            random_state=0,
        ),
        "gnb": lambda: naive_bayes.GaussianNB(var_smoothing=v["var_smoothing"]),
        "lda": lambda: discriminant_analysis.LinearDiscriminantAnalysis(solver="lsqr", shrinkage=v["shrinkage"]),
    }
    return models[v["model"]]()


def reduction(v: Values) -> Any:
    """Return the reduction of the features in the pipelines for choosing rules."""
    reductions: Any = {
        "none": lambda: "passthrough",
        "pca": lambda: PCA(v["components"], whiten=v.get("whiten", False), random_state=0),
        "kbest": lambda: feature_selection.SelectKBest(k=v["best"]),
        "poly": lambda: pre.PolynomialFeatures(2, interaction_only=v["interaction_only"], include_bias=False),
    }
    return reductions[v["reduction"]]()


def classification(v: Values) -> Any:
    return make_pipeline(SCALERS[v["scaler"]](), reduction(v), classifier(v))


def diabetes_pipeline(v: Values) -> Any:
    features: Any = {
        "none": lambda: "passthrough",
        "poly": lambda: pre.PolynomialFeatures(2, interaction_only=v["interaction_only"], include_bias=False),
        "fourier": lambda: kernel_approximation.RBFSampler(
            gamma=v["fourier_gamma"], n_components=v["n_components"], random_state=0
        ),
    }
    models: Any = {
        "ridge": lambda: linear_model.Ridge(v["ridge_alpha"]),
        "lasso": lambda: linear_model.Lasso(v["lasso_alpha"], max_iter=200),
        "svr": lambda: svm.SVR(**of(v, "C", "gamma", "epsilon"), max_iter=3000),
        "knn": lambda: neighbors.KNeighborsRegressor(**of(v, "n_neighbors", "weights")),
        "tree": lambda: tree.DecisionTreeRegressor(**of(v, "max_depth", "max_features"), random_state=0),
        "kernel": lambda: kernel_ridge.KernelRidge(alpha=v["kernel_alpha"], gamma=v["kernel_gamma"], kernel="rbf"),
    }
    return make_pipeline(SCALERS[v["scaler"]](), features[v["features"]](), models[v["model"]]())


# Models and pipelines that are reported.

SGD = (
    real("alpha", 1e-7, 1.0, log=True),
    pick("penalty", "l2", "l1", "elasticnet"),
    real("l1_ratio", 0.0, 1.0),
    pick("loss", "log_loss", "modified_huber"),
    pick("learning_rate", "constant", "invscaling", "adaptive"),
    real("eta0", 1e-5, 1.0, log=True),
    whole("max_iter", 1, 30, log=True),
)
FOREST = (
    whole("n_estimators", 2, 30, log=True),
    real("max_features", 0.02, 1.0),
    whole("min_samples_leaf", 1, 20, log=True),
    whole("max_depth", 1, 20),
    pick("criterion", "gini", "entropy"),
    pick("bootstrap", False, True),
)
BOOSTING = (
    real("learning_rate", 1e-3, 1.0, log=True),
    whole("n_estimators", 2, 60, log=True),
    whole("max_depth", 1, 8),
    real("subsample", 0.2, 1.0),
    whole("min_samples_leaf", 1, 40, log=True),
    real("max_features", 0.1, 1.0),
)
MLP = (
    real("learning_rate_init", 1e-5, 1.0, log=True),
    real("alpha", 1e-7, 10.0, log=True),
    whole("hidden", 2, 60, log=True),
    pick("activation", "relu", "tanh", "logistic"),
    whole("batch_size", 8, 128, log=True),
    real("momentum", 0.0, 0.99),
    pick("nesterovs_momentum", False, True),
)
LIGHT = (
    real("learning_rate", 1e-3, 1.0, log=True),
    whole("n_estimators", 2, 50, log=True),
    whole("num_leaves", 2, 64, log=True),
    whole("min_child_samples", 1, 60, log=True),
    real("reg_lambda", 1e-6, 1e2, log=True),
    real("reg_alpha", 1e-6, 1e2, log=True),
    real("colsample_bytree", 0.1, 1.0),
)
ADABOOST = (
    real("learning_rate", 1e-3, 5.0, log=True),
    whole("n_estimators", 2, 25, log=True),
    whole("max_depth", 1, 8),
    whole("min_samples_leaf", 1, 30, log=True),
    real("max_features", 0.02, 1.0, log=True),
)
CANCER_PIPELINE = (
    pick("scaler", "none", "robust", "quantile", "minmax"),
    pick("selection", "none", "percentile", "fromtree"),
    pick("model", "perceptron", "extra", "qda", "centroid", "passive", "bernoulli"),
    whole("percentile", 2, 100, when=only("selection", "percentile")),
    real("threshold", 0.001, 0.2, log=True, when=only("selection", "fromtree")),
    pick("penalty", None, "l1", "l2", "elasticnet", when=only("model", "perceptron")),
    real("perceptron_alpha", 1e-7, 1e-1, log=True, when=only("model", "perceptron")),
    whole("n_estimators", 2, 20, log=True, when=only("model", "extra")),
    whole("min_samples_leaf", 1, 30, log=True, when=only("model", "extra")),
    real("max_features", 0.05, 1.0, when=only("model", "extra")),
    real("reg_param", 1e-6, 1.0, log=True, when=only("model", "qda")),
    real("shrink_threshold", 1e-3, 3.0, log=True, when=only("model", "centroid")),
    real("passive_C", 1e-5, 1e1, log=True, when=only("model", "passive")),
    real("binarize", 0.0, 2.0, when=only("model", "bernoulli")),
    real("smoothing", 1e-3, 1e2, log=True, when=only("model", "bernoulli")),
)
FRIEDMAN_PIPELINE = (
    pick("features", "none", "splines", "nystroem", "bins"),
    pick("model", "bayes", "huber", "extra", "lars", "passive"),
    whole("n_knots", 2, 10, when=only("features", "splines")),
    whole("degree", 1, 4, when=only("features", "splines")),
    real("gamma", 1e-4, 1e1, log=True, when=only("features", "nystroem")),
    whole("n_components", 5, 120, log=True, when=only("features", "nystroem")),
    whole("n_bins", 2, 20, when=only("features", "bins")),
    pick("strategy", "uniform", "quantile", when=only("features", "bins")),
    real("alpha_1", 1e-7, 1e2, log=True, when=only("model", "bayes")),
    real("lambda_1", 1e-7, 1e2, log=True, when=only("model", "bayes")),
    real("epsilon", 1.01, 3.0, when=only("model", "huber")),
    real("huber_alpha", 1e-6, 1e2, log=True, when=only("model", "huber")),
    whole("min_samples_leaf", 1, 40, log=True, when=only("model", "extra")),
    real("max_features", 0.1, 1.0, when=only("model", "extra")),
    whole("nonzero", 1, 60, log=True, when=only("model", "lars")),
    real("passive_C", 1e-4, 1e1, log=True, when=only("model", "passive")),
    real("passive_epsilon", 1e-3, 1.0, log=True, when=only("model", "passive")),
)
SONAR_PIPELINE = (
    pick("features", "none", "groups", "projection", "bins"),
    pick("model", "extra", "mlp", "adaboost", "qda", "sgd"),
    whole("clusters", 2, 60, log=True, when=only("features", "groups")),
    pick("linkage", "ward", "complete", "average", when=only("features", "groups")),
    whole("n_components", 2, 60, log=True, when=only("features", "projection")),
    whole("n_bins", 2, 8, when=only("features", "bins")),
    whole("n_estimators", 2, 25, log=True, when=only("model", "extra")),
    real("max_features", 0.02, 1.0, log=True, when=only("model", "extra")),
    whole("hidden", 2, 50, log=True, when=only("model", "mlp")),
    real("learning_rate_init", 1e-4, 1e-1, log=True, when=only("model", "mlp")),
    real("mlp_alpha", 1e-6, 1e1, log=True, when=only("model", "mlp")),
    whole("stumps", 2, 25, log=True, when=only("model", "adaboost")),
    real("learning_rate", 1e-2, 3.0, log=True, when=only("model", "adaboost")),
    real("reg_param", 1e-6, 1.0, log=True, when=only("model", "qda")),
    real("sgd_alpha", 1e-6, 1.0, log=True, when=only("model", "sgd")),
    pick("penalty", "l2", "l1", when=only("model", "sgd")),
)
SEGMENT_PIPELINE = (
    pick("scaler", "none", "minmax", "robust", "quantile", "power"),
    pick("features", "none", "percentile", "splines", "nystroem"),
    pick("model", "forest", "sgd", "centroid", "bernoulli", "perceptron", "boosting"),
    whole("percentile", 5, 100, when=only("features", "percentile")),
    whole("n_knots", 2, 6, when=only("features", "splines")),
    real("gamma", 1e-4, 1e1, log=True, when=only("features", "nystroem")),
    whole("n_components", 5, 100, log=True, when=only("features", "nystroem")),
    whole("n_estimators", 2, 20, log=True, when=only("model", "forest")),
    real("max_features", 0.05, 1.0, when=only("model", "forest")),
    whole("max_depth", 1, 15, when=only("model", "forest")),
    real("sgd_alpha", 1e-7, 1.0, log=True, when=only("model", "sgd")),
    real("shrink_threshold", 1e-3, 3.0, log=True, when=only("model", "centroid")),
    real("binarize", 0.0, 2.0, when=only("model", "bernoulli")),
    pick("penalty", None, "l1", "l2", when=only("model", "perceptron")),
    real("learning_rate", 1e-2, 1.0, log=True, when=only("model", "boosting")),
    whole("leaves", 2, 12, when=only("model", "boosting")),
)


def sgd(v: Values) -> Any:
    return make_pipeline(pre.MaxAbsScaler(), linear_model.SGDClassifier(**v, random_state=0))


def forest(v: Values) -> Any:
    return ensemble.RandomForestClassifier(**v, random_state=0)


def boosting(v: Values) -> Any:
    return ensemble.GradientBoostingRegressor(**v, random_state=0)


def mlp(v: Values) -> Any:
    arguments = {name: value for name, value in v.items() if name != "hidden"}
    model = neural_network.MLPClassifier((v["hidden"],), solver="sgd", max_iter=12, random_state=0, **arguments)
    return make_pipeline(pre.StandardScaler(), model)


def light(v: Values) -> Any:
    import lightgbm

    return lightgbm.LGBMClassifier(**v, n_jobs=1, verbose=-1, random_state=0)


def adaboost(v: Values) -> Any:
    names = "max_depth", "min_samples_leaf", "max_features"
    weak = tree.ExtraTreeClassifier(**of(v, *names), random_state=0)
    return ensemble.AdaBoostClassifier(weak, **of(v, "learning_rate", "n_estimators"), random_state=0)


def passive(kind: Any, v: Values, **arguments: Any) -> Any:
    """Return a passive-aggressive model."""
    return kind(
        **arguments,
        penalty=None,
        learning_rate="pa1",
        eta0=v["passive_C"],
        random_state=0,
        max_iter=20,
    )


def cancer_pipeline(v: Values) -> Any:
    chosen = ensemble.ExtraTreesClassifier(10, random_state=0)
    selections: Any = {
        "none": lambda: "passthrough",
        "percentile": lambda: feature_selection.SelectPercentile(percentile=v["percentile"]),
        "fromtree": lambda: feature_selection.SelectFromModel(chosen, threshold=v["threshold"]),
    }
    models: Any = {
        "perceptron": lambda: linear_model.Perceptron(
            penalty=v["penalty"], alpha=v["perceptron_alpha"], max_iter=20, random_state=0
        ),
        "extra": lambda: ensemble.ExtraTreesClassifier(
            **of(v, "n_estimators", "min_samples_leaf", "max_features"), random_state=0
        ),
        "qda": lambda: discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=v["reg_param"]),
        "centroid": lambda: neighbors.NearestCentroid(shrink_threshold=v["shrink_threshold"]),
        "passive": lambda: passive(linear_model.SGDClassifier, v, loss="hinge"),
        "bernoulli": lambda: naive_bayes.BernoulliNB(alpha=v["smoothing"], binarize=v["binarize"]),
    }
    return make_pipeline(SCALERS[v["scaler"]](), selections[v["selection"]](), models[v["model"]]())


def friedman_pipeline(v: Values) -> Any:
    features: Any = {
        "none": lambda: "passthrough",
        "splines": lambda: pre.SplineTransformer(**of(v, "n_knots", "degree")),
        "nystroem": lambda: nystroem(v),
        "bins": lambda: pre.KBinsDiscretizer(
            v["n_bins"],
            strategy=v["strategy"],
            encode="onehot-dense",
            quantile_method="averaged_inverted_cdf",
        ),
    }
    models: Any = {
        "bayes": lambda: linear_model.BayesianRidge(**of(v, "alpha_1", "lambda_1"), max_iter=30),
        "huber": lambda: linear_model.HuberRegressor(epsilon=v["epsilon"], alpha=v["huber_alpha"], max_iter=30),
        "extra": lambda: tree.ExtraTreeRegressor(**of(v, "min_samples_leaf", "max_features"), random_state=0),
        "lars": lambda: linear_model.Lars(n_nonzero_coefs=v["nonzero"]),
        "passive": lambda: passive(
            linear_model.SGDRegressor, v, loss="epsilon_insensitive", epsilon=v["passive_epsilon"]
        ),
    }
    return make_pipeline(pre.StandardScaler(), features[v["features"]](), models[v["model"]]())


def nystroem(v: Values) -> Any:
    return kernel_approximation.Nystroem(**of(v, "gamma", "n_components"), random_state=0)


def sonar_pipeline(v: Values) -> Any:
    features: Any = {
        "none": lambda: "passthrough",
        "groups": lambda: cluster.FeatureAgglomeration(v["clusters"], linkage=v["linkage"]),
        "projection": lambda: random_projection.GaussianRandomProjection(v["n_components"], random_state=0),
        "bins": lambda: pre.KBinsDiscretizer(v["n_bins"], encode="ordinal", quantile_method="averaged_inverted_cdf"),
    }
    models: Any = {
        "extra": lambda: ensemble.ExtraTreesClassifier(**of(v, "n_estimators", "max_features"), random_state=0),
        "mlp": lambda: neural_network.MLPClassifier(
            (v["hidden"],),
            alpha=v["mlp_alpha"],
            learning_rate_init=v["learning_rate_init"],
            max_iter=20,
            random_state=0,
        ),
        "adaboost": lambda: ensemble.AdaBoostClassifier(
            tree.ExtraTreeClassifier(max_depth=1, random_state=0),
            n_estimators=v["stumps"],
            learning_rate=v["learning_rate"],
            random_state=0,
        ),
        "qda": lambda: discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=v["reg_param"]),
        "sgd": lambda: linear_model.SGDClassifier(
            loss="log_loss", alpha=v["sgd_alpha"], penalty=v["penalty"], max_iter=20, random_state=0
        ),
    }
    return make_pipeline(pre.MinMaxScaler(), features[v["features"]](), pre.StandardScaler(), models[v["model"]]())


def segment_pipeline(v: Values) -> Any:
    features: Any = {
        "none": lambda: "passthrough",
        "percentile": lambda: feature_selection.SelectPercentile(percentile=v["percentile"]),
        "splines": lambda: pre.SplineTransformer(v["n_knots"]),
        "nystroem": lambda: nystroem(v),
    }
    models: Any = {
        "forest": lambda: ensemble.RandomForestClassifier(
            **of(v, "n_estimators", "max_features", "max_depth"), random_state=0
        ),
        "sgd": lambda: linear_model.SGDClassifier(alpha=v["sgd_alpha"], max_iter=10, random_state=0),
        "centroid": lambda: neighbors.NearestCentroid(shrink_threshold=v["shrink_threshold"]),
        "bernoulli": lambda: naive_bayes.BernoulliNB(binarize=v["binarize"]),
        "perceptron": lambda: linear_model.Perceptron(penalty=v["penalty"], max_iter=20, random_state=0),
        "boosting": lambda: ensemble.GradientBoostingClassifier(
            learning_rate=v["learning_rate"],
            n_estimators=4,
            max_depth=None,
            max_leaf_nodes=v["leaves"],
            max_features=0.3,
            random_state=0,
        ),
    }
    return make_pipeline(SCALERS[v["scaler"]](), features[v["features"]](), models[v["model"]]())


# Tables: choices alone.

TREE_TABLE = (
    pick("max_depth", 1, 2, 3, 4, 6, 8),
    pick("min_samples_split", 2, 5, 10, 20, 40),
    pick("min_samples_leaf", 1, 2, 4, 8, 16),
    pick("criterion", "gini", "entropy"),
    pick("max_features", 0.1, 0.25, 0.5, 1.0),
    pick("splitter", "best", "random"),
)
SVR_TABLE = (
    pick("C", *(10.0**i for i in range(-3, 4))),
    pick("gamma", *(10.0**i for i in range(-5, 2))),
    pick("kernel", "rbf", "poly", "sigmoid", "linear"),
    pick("epsilon", 0.01, 0.1, 0.5),
    pick("scaler", "none", "standard", "minmax", "robust", "quantile"),
)
FOREST_TABLE = (
    pick("n_estimators", 2, 4, 8, 16),
    pick("max_features", 0.05, 0.1, 0.25, 0.5, 1.0),
    pick("min_samples_leaf", 1, 2, 4, 8, 16),
    pick("max_depth", 2, 4, 8, 16),
    pick("criterion", "gini", "entropy"),
    pick("class_weight", None, "balanced"),
)
SGD_TABLE = (
    pick("alpha", *(10.0**i for i in range(-6, 0))),
    pick("eta0", *(10.0**i for i in range(-4, 1))),
    pick("penalty", "l2", "l1", "elasticnet", None),
    pick("loss", "log_loss", "modified_huber", "hinge", "squared_hinge"),
    pick("scaler", "none", "standard", "minmax"),
    pick("learning_rate", "constant", "invscaling", "adaptive"),
)
NETWORK_TABLE = (
    pick("first", 4, 8, 16, 32, 64),
    pick("second", 0, 4, 8, 16, 32),
    pick("activation", "identity", "logistic", "tanh", "relu"),
    pick("learning_rate_init", *(10.0 ** (i / 2) for i in range(-8, 0))),
    pick("alpha", 1e-6, 1e-3, 1e-1, 1.0),
    pick("batch_size", 8, 16, 32, 64),
    pick("solver", "adam", "sgd"),
)
BOOSTING_TABLE = (
    pick("learning_rate", 0.01, 0.03, 0.1, 0.2, 0.4, 0.8),
    pick("n_estimators", 5, 10, 20, 40),
    pick("max_depth", 1, 2, 3, 4, 6),
    pick("subsample", 0.3, 0.6, 0.8, 1.0),
    pick("min_samples_leaf", 1, 4, 16, 32),
    pick("max_features", 0.2, 0.5, 1.0),
    pick("loss", "squared_error", "absolute_error", "huber"),
)


def svr_table(v: Values) -> Any:
    model = svm.SVR(**of(v, "C", "gamma", "kernel", "epsilon"), max_iter=2000)
    return make_pipeline(SCALERS[v["scaler"]](), model)


def forest_table(v: Values) -> Any:
    return ensemble.ExtraTreesClassifier(**v, random_state=0)


def sgd_table(v: Values) -> Any:
    arguments = {name: value for name, value in v.items() if name != "scaler"}
    model = linear_model.SGDClassifier(**arguments, random_state=0, max_iter=4)
    return make_pipeline(SCALERS[v["scaler"]](), model)


def network_table(v: Values) -> Any:
    layers = tuple(units for units in (v["first"], v["second"]) if units)
    arguments = {name: value for name, value in v.items() if name not in ("first", "second")}
    model = neural_network.MLPClassifier(layers, **arguments, max_iter=10, random_state=0)
    return make_pipeline(pre.StandardScaler(), model)


def grid(name: str) -> Problem:
    """Return a table of trained networks, with shuffled options."""
    table = GRIDS[name]
    path = Folder.path / table.file
    rng = np.random.default_rng(0)
    sizes = read_grid(path, table.measure).shape
    parameters = tuple(pick(f"x{i}", *map(int, rng.permutation(size))) for i, size in enumerate(sizes))

    def loss(v: Values, split: int) -> float:
        values = read_grid(path, table.measure)
        return float(-table.sense * values[tuple(v[parameter.name] for parameter in parameters)])

    return Problem("tables", parameters, loss)


# Functions of floats, on ranges in which the optimum is neither at the center nor symmetric.

H6 = (
    np.array([1.0, 1.2, 3.0, 3.2]),
    np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    ),
    1e-4
    * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    ),
)


def branin(x: Any) -> float:
    a, b = x
    bowl = b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6
    return float(bowl**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10)


def hartmann(x: Any) -> float:
    alpha, a, p = H6
    return float(-(alpha * np.exp(-(a * (x - p) ** 2).sum(axis=1))).sum())


def ackley(x: Any) -> float:
    near, far = np.exp(np.cos(2 * np.pi * x).mean()), 20 * np.exp(-0.2 * np.sqrt((x**2).mean()))
    return float(-far - near + 20 + np.e)


def rosenbrock(x: Any) -> float:
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def rastrigin(x: Any) -> float:
    return float((x**2 - 10 * np.cos(2 * np.pi * x) + 10).sum())


def zakharov(x: Any) -> float:
    s = 0.5 * (np.arange(1, len(x) + 1) * x).sum()
    return float((x**2).sum() + s**2 + s**4)


def camel(x: Any) -> float:
    a, b = x
    return float((4 - 2.1 * a**2 + a**4 / 3) * a**2 + a * b + (-4 + 4 * b**2) * b**2)


def styblinski(x: Any) -> float:
    return float((x**4 - 16 * x**2 + 5 * x).sum() / 2)


def levy(x: Any) -> float:
    w = 1 + (x - 1) / 4
    middle = ((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)).sum()
    last = (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)
    return float(np.sin(np.pi * w[0]) ** 2 + middle + last)


def michalewicz(x: Any) -> float:
    steep = np.sin(np.arange(1, len(x) + 1) * x**2 / np.pi) ** 20
    return float(-(np.sin(x) * steep).sum())


def griewank(x: Any) -> float:
    product = np.cos(x / np.sqrt(np.arange(1, len(x) + 1))).prod()
    return float((x**2).sum() / 4000 - product + 1)


def ellipsoid(x: Any) -> float:
    return float((10.0 ** np.linspace(0, 3, len(x)) * (x @ mixing(len(x))) ** 2).sum())


@cache
def mixing(n: int) -> Any:
    return np.linalg.qr(np.random.default_rng(n).standard_normal((n, n)))[0]


def function(fun: Callable[[Any], float], noise: float, *ranges: tuple[float, float]) -> Problem:
    """Return a problem of floats on these ranges."""
    parameters = tuple(real(f"x{i}", *bounds) for i, bounds in enumerate(ranges))

    def loss(v: Values, split: int) -> float:
        return fun(np.array([v[parameter.name] for parameter in parameters]))

    return Problem("floats", parameters, loss, noise=noise)


CHOOSING = {
    "svc": fitted("flat", SVC, svc, "wine", error=True),
    "elastic net": fitted("flat", ELASTIC, elastic, "diabetes"),
    "tree": fitted("flat", TREE, cart, "wine"),
    "neighbors": fitted("flat", KNN, knn, "iris"),
    "svr": fitted("flat", SVR, svr, "diabetes"),
    "logistic": fitted("flat", LOGISTIC, logistic, "vehicle"),
    "wine pipeline": fitted("conditional", WINE_PIPELINE, classification, "wine", error=True),
    "diabetes pipeline": fitted("conditional", DIABETES_PIPELINE, diabetes_pipeline, "diabetes"),
    "vehicle pipeline": fitted("conditional", VEHICLE_PIPELINE, classification, "vehicle", error=True),
    "branin": function(branin, 5.0, (-5.0, 10.0), (0.0, 15.0)),
    "rastrigin": function(rastrigin, 2.0, *[(-2.0, 3.1)] * 3),
    "rosenbrock": function(rosenbrock, 50.0, *[(-1.5, 2.5)] * 4),
    "ackley": function(ackley, 1.0, *[(-7.0, 12.0)] * 5),
    "hartmann 6": function(hartmann, 0.1, *[(0.0, 1.0)] * 6),
    "zakharov": function(zakharov, 50.0, *[(-3.0, 5.0)] * 8),
    "tree table": fitted("tables", TREE_TABLE, cart, "wine"),
    "svr table": fitted("tables", SVR_TABLE, svr_table, "diabetes"),
}
REPORTING = {
    "sgd": fitted("flat", SGD, sgd, "digits"),
    "forest": fitted("flat", FOREST, forest, "digits"),
    "boosting": fitted("flat", BOOSTING, boosting, "friedman1"),
    "mlp": fitted("flat", MLP, mlp, "breast_cancer"),
    "lightgbm": fitted("flat", LIGHT, light, "breast_cancer"),
    "adaboost": fitted("flat", ADABOOST, adaboost, "sonar"),
    "cancer pipeline": fitted("conditional", CANCER_PIPELINE, cancer_pipeline, "breast_cancer", error=True),
    "friedman pipeline": fitted("conditional", FRIEDMAN_PIPELINE, friedman_pipeline, "friedman1"),
    "sonar pipeline": fitted("conditional", SONAR_PIPELINE, sonar_pipeline, "sonar"),
    "segment pipeline": fitted("conditional", SEGMENT_PIPELINE, segment_pipeline, "segment", error=True),
    "camel": function(camel, 0.5, (-1.9, 2.4), (-1.9, 2.4)),
    "styblinski": function(styblinski, 5.0, *[(-4.1, 4.6)] * 3),
    "levy": function(levy, 1.0, *[(-8.0, 11.0)] * 4),
    "michalewicz": function(michalewicz, 0.2, *[(0.0, 3.14159)] * 5),
    "griewank": function(griewank, 0.1, *[(-8.0, 11.0)] * 6),
    "ellipsoid": function(ellipsoid, 200.0, *[(-3.0, 4.5)] * 8),
    "forest table": fitted("tables", FOREST_TABLE, forest_table, "breast_cancer"),
    "sgd table": fitted("tables", SGD_TABLE, sgd_table, "digits", error=True),
    "network table": fitted("tables", NETWORK_TABLE, network_table, "segment"),
    "boosting table": fitted("tables", BOOSTING_TABLE, boosting, "friedman1"),
}
# Those with a noisy variant in the comparison: two of each group in each half.
NOISY = (
    *("svc", "neighbors", "wine pipeline", "diabetes pipeline"),
    *("branin", "hartmann 6", "tree table", "svr table"),
    *("forest", "lightgbm", "friedman pipeline", "sonar pipeline"),
    *("levy", "michalewicz", "sgd table", "network table"),
)
# Those of the reporting half on which an earlier version of knobless was run.
RUN_BEFORE = (
    *("sgd", "forest", "boosting", "mlp", "lightgbm", "forest table", "sgd table"),
    *("camel", "levy", "michalewicz", "ellipsoid"),
)


def problems(tune: bool) -> dict[str, Problem]:
    """Return the problems of one half; those whose data or library is missing are left out."""
    half = CHOOSING if tune else REPORTING
    if tune:
        tables = (name for name, table in GRIDS.items() if (Folder.path / table.file).exists())
        half = half | {name: grid(name) for name in tables}
    return {name: problem for name, problem in half.items() if is_available(name, problem)}


def is_available(name: str, problem: Problem) -> bool:
    if name == "lightgbm" and not find_spec("lightgbm"):
        return False
    return problem.data not in FILES or (Folder.path / FILES[problem.data]).exists()
