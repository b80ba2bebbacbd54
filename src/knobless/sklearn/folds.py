"""The folds of a search: drawn once, so that all candidates are scored on the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.model_selection import (
    RepeatedKFold,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    check_cv,
    cross_validate,
)
from sklearn.utils import indexable
from sklearn.utils.metadata_routing import process_routing

# Of the folds of a feature selection, unless the user states the folds
REPEATS = 3

# The rows of the training data and those of the test data
Split = tuple[Any, Any]


class Folds:
    """Splits that are drawn once, as a splitter; one that shuffles would draw others each time.

    Parameters
    ----------
    search : estimator
        An estimator with the parameters `estimator` and `cv`.
    X, y : array-like
        The data.
    params : Mapping
        Parameters of the `fit` of this estimator.
    repeated : int, optional
        If `cv` is None, the five folds are drawn three times, with this seed.

    Attributes
    ----------
    splits : list
        The training rows and the test rows of each fold.
    fit_params : dict
        Parameters of fits and scores.
    """

    def __init__(
        self,
        search: Any,
        X: Any,
        y: Any,
        params: Mapping[str, Any],
        repeated: int | None = None,
    ) -> None:
        split_params, self.fit_params = _routed(search, params)
        self._cv = check_cv(
            search.cv, y, classifier=is_classifier(search.estimator)
        )
        if search.cv is None and repeated is not None:
            stratified = isinstance(self._cv, StratifiedKFold)
            kind = RepeatedStratifiedKFold if stratified else RepeatedKFold
            self._cv = kind(
                n_splits=self._cv.get_n_splits(),
                n_repeats=REPEATS,
                random_state=repeated,
            )
        self.splits: list[Split] = list(
            self._cv.split(*indexable(X, y), **split_params)
        )

    def __len__(self) -> int:
        return len(self.splits)

    def get_metadata_routing(self) -> Any:
        """Return the metadata that the splitter requests."""
        return self._cv.get_metadata_routing()


class SomeFolds:
    """The splitter that scikit-learn sees during a search: as many folds as are run at once.

    Parameters
    ----------
    folds : Folds
        All folds.
    some : range
        Those that are run.
    """

    def __init__(self, folds: Folds, selected: range) -> None:
        self._folds, self._some = folds, selected

    def get_n_splits(self, *args: Any, **params: Any) -> int:
        """Return the number of these folds, whatever the data."""
        return len(self._some)

    def split(self, *args: Any, **params: Any) -> Iterator[Split]:
        """Yield these splits, whatever the data."""
        return iter(self._folds.splits[self._some.start : self._some.stop])

    def get_metadata_routing(self) -> Any:
        """Return the metadata that the splitter of all folds requests."""
        return self._folds.get_metadata_routing()


def _routed(
    search: Any, params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of the splitter, and those of fits and scores."""
    if get_config()["enable_metadata_routing"]:
        routed = process_routing(search, "fit", **params)
        return routed.splitter.split, {
            **routed.estimator.fit,
            **routed.scorer.score,
        }
    fit_params = dict(params)
    return {"groups": fit_params.pop("groups", None)}, fit_params


def score_of_fold(
    estimator: Any,
    X: Any,
    y: Any,
    split: Split,
    scorer: Any,
    params: Mapping[str, Any],
) -> float | Exception:
    """Return the score of one fit, or the exception that it raised."""
    try:
        results = cross_validate(
            clone(estimator),
            X,
            y,
            scoring=scorer,
            cv=[split],
            params=dict(params),
            error_score="raise",
        )
        return float(results["test_score"][0])
    except Exception as error:
        return error
