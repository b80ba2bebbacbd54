"""The first subsets of a feature selection: nested ones, most related features first."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.feature_selection import f_classif, f_regression

Masks = list[NDArray[np.float64]]


def initial_subsets(
    estimator: Any, X: Any, y: Any, sizes: Sequence[int]
) -> Masks | None:
    """Return the largest subset allowed, one with half as many features, and so on.

    None if there is no target.

    A search with few evaluations cannot find out which of many features matter. The F statistic of
    each feature alone is an estimate that costs no fit.
    """
    p = X.shape[1]
    y = None if y is None else np.asarray(y)
    if y is None or y.ndim != 1:
        return [np.ones(p)] if p in sizes else None
    order = np.argsort(-_relations(estimator, X, y), kind="stable")
    masks: Masks = []
    size = max(sizes)
    while size in sizes:
        mask = np.zeros(p)
        mask[order[:size]] = 1.0
        masks.append(mask)
        size = max(size // 2, min(sizes)) if size > min(sizes) else 0
    return masks


def _relations(estimator: Any, X: Any, y: Any) -> NDArray[np.float64]:
    """Return the F statistic of each feature, 0 where it is not defined."""
    with warnings.catch_warnings():
        # Of constant features, and of those without a value
        warnings.simplefilter("ignore")
        if isinstance(X, np.ndarray) and np.isnan(X).any():
            X = np.where(np.isnan(X), np.nan_to_num(np.nanmean(X, axis=0)), X)
        numbers = y.dtype.kind in "fiu"
        statistic = (
            f_regression
            if numbers and not is_classifier(estimator)
            else f_classif
        )
        return np.nan_to_num(statistic(X, y)[0], posinf=np.finfo(float).max)
