"""`FeatureSelector`: the subset of the features with the best cross-validated score."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from knobless._checks import boolean, count, suggests
from knobless.space.subset import Subset
from knobless.space.variable import Variable
from knobless.space.variables import Binary

from .candidates import optimizer_of, search_candidates, seed_of, steps_of
from .compatible import get_tags, validate_data
from .folds import Folds, score_of_fold
from .initial_subsets import initial_subsets
from .names import FEATURE_SELECTOR


class FeatureSelector(SelectorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Select the features with which an estimator has the best cross-validated score.

    Parameters
    ----------
    estimator : estimator
        Fitted to subsets of the features. Any estimator is accepted; `coef_` is not needed.
    n_features_to_select : int or pair of int, default=None
        Number of features to select, or its smallest and largest value, both included; any number
        by default.
    n_iter : int, default=50
        Maximum number of subsets to evaluate. Each takes at most one fit per fold.
    scoring : str or callable, default=None
        Name of a score, or a scorer. None stands for the estimator's own `score`.
    cv : int, splitter or iterable, default=None
        Number of folds, a splitter, or the splits. None stands for five folds, repeated three times
        with other splits, for classifiers stratified. They are drawn once and are the same for all
        subsets.
    n_jobs : int, default=None
        Number of fits that run at once: folds of a subset. With more of them than folds, an
        iteration has more subsets.
    random_state : int, RandomState instance or None, default=None
        Seed of the search, and of the folds if `cv` is None.
    racing : bool, default=True
        Whether the folds of a subset are run one after the other, and no further ones as soon as
        its scores show that it will not be among the best.

    Attributes
    ----------
    support_ : ndarray of bool, shape (n_features,)
        Mask of the selected features.
    n_features_ : int
        Number of selected features.
    best_score_ : float
        Mean cross-validated score of the selected features.
    cv_results_ : dict of ndarrays
        Evaluated subsets in order: `support` with one row per subset, `n_features`,
        `mean_test_score`, `std_test_score`, `split0_test_score` and so on, and `n_splits`, the
        number of folds that were run. The scores of the others, and their mean, are NaN.

    Notes
    -----
    The first subsets are nested: all features if that is allowed, then the half of them that are
    the most related to the target by their F statistic, and so on. The search starts from the best
    of these.

    Selected is the subset with the fewest features whose score is at most one standard error below
    the best one: the best of many scores is higher than it would be on other data. The empty set,
    and a subset on which a fit fails, rank worst. No subset is evaluated twice.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from knobless.sklearn import FeatureSelector
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> selector = FeatureSelector(RidgeClassifier(), n_iter=20, random_state=0).fit(X, y)
    >>> selector.transform(X).shape[1] == selector.n_features_
    True
    """

    @suggests(
        "FeatureSelector",
        "FeatureSelector(estimator, n_features_to_select=5)",
        FEATURE_SELECTOR,
    )
    def __init__(
        self,
        estimator: Any,
        *,
        n_features_to_select: int | tuple[int, int] | None = None,
        n_iter: int = 50,
        scoring: Any = None,
        cv: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        racing: bool = True,
    ) -> None:
        self.estimator = estimator
        self.n_features_to_select = n_features_to_select
        self.n_iter = n_iter
        self.scoring = scoring
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.racing = racing

    def fit(self, X: Any, y: Any = None, **params: Any) -> FeatureSelector:
        """Select features.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_samples, n_features)
            Training data.
        y : array-like, shape (n_samples,), default=None
            Target values.
        **params : dict
            `groups` are passed to the splitter, other parameters to the estimator's `fit`. With
            scikit-learn's metadata routing enabled, each is passed to the methods that request it.
        """
        n_iter = count("n_iter", self.n_iter)
        if not (
            self.scoring is None
            or isinstance(self.scoring, str)
            or callable(self.scoring)
        ):
            raise TypeError(
                f"scoring: expected the name of one score, a scorer or None, got {self.scoring!r}"
            )
        finite = not get_tags(self).input_tags.allow_nan
        X = validate_data(
            self, X, accept_sparse="csc", ensure_all_finite=finite
        )
        space, sizes = _subsets(self.n_features_to_select, X.shape[1])
        seed = seed_of(self.random_state)
        folds = Folds(self, X, y, params, repeated=seed)
        steps = steps_of(
            len(folds), boolean("racing", self.racing), self.n_jobs
        )
        scorer = check_scoring(self.estimator, scoring=self.scoring)
        first = True

        with Parallel(n_jobs=self.n_jobs) as parallel:

            def score(
                subsets: Sequence[bytes], selected: range
            ) -> list[list[float]]:
                nonlocal first
                tasks = [
                    (X[:, _mask(subset)], folds.splits[i])
                    for subset in subsets
                    for i in selected
                ]
                fits = parallel(
                    delayed(score_of_fold)(
                        self.estimator,
                        columns,
                        y,
                        split,
                        scorer,
                        folds.fit_params,
                    )
                    for columns, split in tasks
                )
                scores = _without_errors(fits, strict=first)
                first = False
                return [
                    scores[i : i + len(selected)]
                    for i in range(0, len(fits), len(selected))
                ]

            if space.count == 1:
                only = np.ones(X.shape[1], dtype=bool).tobytes()
                scores = {only: score([only], range(len(folds)))[0]}
            else:
                x0 = initial_subsets(self.estimator, X, y, sizes)
                opt = optimizer_of(space, len(folds), self.n_jobs, seed, x0)
                if self.n_features_to_select is None:
                    # There is nothing to fit
                    opt.add(np.zeros(X.shape[1]), math.inf)
                scores = search_candidates(
                    opt,
                    n_iter,
                    np.ndarray.tobytes,
                    steps,
                    self.racing,
                    score,
                    _cost,
                )

        self.cv_results_ = _results(scores, len(folds))
        selected = _selected(self.cv_results_, len(folds))
        self.support_ = self.cv_results_["support"][selected]
        self.n_features_ = int(self.cv_results_["n_features"][selected])
        self.best_score_ = float(self.cv_results_["mean_test_score"][selected])
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Return how parameters of `fit` reach the estimator, the splitter and the scorer."""
        splitter = check_cv(self.cv, classifier=is_classifier(self.estimator))
        scorer = check_scoring(self.estimator, scoring=self.scoring)
        return (
            MetadataRouter(owner=self)
            .add(
                estimator=self.estimator,
                method_mapping=MethodMapping().add(caller="fit", callee="fit"),
            )
            .add(
                splitter=splitter,
                method_mapping=MethodMapping().add(
                    caller="fit", callee="split"
                ),
            )
            .add(
                scorer=scorer,
                method_mapping=MethodMapping().add(
                    caller="fit", callee="score"
                ),
            )
        )

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).input_tags
        tags.input_tags.allow_nan = inner.allow_nan
        tags.input_tags.sparse = inner.sparse
        return tags

    def _more_tags(self) -> dict[str, Any]:
        """Return the tags for scikit-learn 1.5."""
        return {"allow_nan": get_tags(self.estimator).input_tags.allow_nan}


def _subsets(n_features: Any, p: int) -> tuple[Variable, range]:
    """Return the space of subsets of p features with these sizes, and the sizes."""
    if n_features is None:
        return Binary(p), range(1, p + 1)
    expected = f"a number from 1 to {p}, or the smallest and the largest"
    message = f"n_features_to_select: expected {expected}, got {n_features!r}"
    try:
        space = Subset(p, n_features)
    except (TypeError, ValueError) as error:
        raise type(error)(message) from None
    if space.low == 0:
        raise ValueError(message)
    return space, range(space.low, space.high + 1)


def _mask(subset: bytes) -> NDArray[np.bool_]:
    return np.frombuffer(subset, dtype=np.int8).astype(bool)


def _cost(subset: bytes, score: float) -> float:
    """Return the negated score.

    Features cost one unit in its last place each, which breaks ties and nothing else.
    """
    return float(sum(subset) * np.spacing(abs(score)) - score)


def _without_errors(scores: list[Any], strict: bool) -> list[float]:
    """Return the scores with NaN for an exception, or raise it if `strict`."""
    for error in scores:
        if isinstance(error, Exception):
            # The first subset, usually of all features, on which the estimator should work
            if strict:
                raise error
            message = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"a fit failed, so this subset of features ranks worst: {message}",
                FitFailedWarning,
                2,
            )
            break
    return [
        math.nan if isinstance(score, Exception) else score for score in scores
    ]


def _results(
    scores: dict[bytes, list[float]], n_folds: int
) -> dict[str, NDArray[Any]]:
    support = np.array([_mask(subset) for subset in scores])
    table = np.array(
        [row + [math.nan] * (n_folds - len(row)) for row in scores.values()]
    )
    results = {
        f"split{i}_test_score": column for i, column in enumerate(table.T)
    }
    results |= {
        "mean_test_score": table.mean(axis=1),
        "std_test_score": table.std(axis=1),
    }
    n_splits = np.array([*map(len, scores.values())])
    return {
        "support": support,
        "n_features": support.sum(axis=1),
        **results,
        "n_splits": n_splits,
    }


def _selected(results: dict[str, NDArray[Any]], n_folds: int) -> int:
    """Return the row with the fewest features and almost the best score.

    Its score is at most one standard error below the best one.

    The best of many scores is a lucky one, and the more features, the more subsets there are to be
    lucky with.
    """
    scores = results["mean_test_score"]
    features = results["n_features"]
    best = int(np.lexsort((features, -scores))[0])  # NaN is sorted last
    error = results["std_test_score"][best] / math.sqrt(max(n_folds - 1, 1))
    close = np.flatnonzero(~(scores < scores[best] - error))
    close = close[~np.isnan(scores[close])]
    if len(close):
        return int(close[np.lexsort((-scores[close], features[close]))[0]])
    return best
