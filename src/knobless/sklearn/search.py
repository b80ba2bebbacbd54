"""`SearchCV`, a drop-in replacement for `RandomizedSearchCV`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from sklearn.exceptions import FitFailedWarning

# The base class that its documentation names for new searches
from sklearn.model_selection._search import BaseSearchCV

from knobless._checks import boolean, count, suggests

from .candidates import optimizer_of, search_candidates, seed_of, steps_of
from .fits import Fits
from .folds import Folds, SomeFolds
from .grid import Grid, Point
from .names import SEARCH_CV

# The message of scikit-learn
NOT_FINITE = "One or more of the test scores are non-finite"


class SearchCV(BaseSearchCV):  # type: ignore[misc]
    """Search for the parameters of an estimator that have the best cross-validated score.

    A drop-in replacement for `RandomizedSearchCV` that learns from the candidates evaluated so far.
    Its parameters, methods and attributes are the same.

    Parameters
    ----------
    estimator : estimator
        Fitted with each candidate's parameters.
    param_distributions : dict or list of dicts, optional
        Possible values by parameter. A value is a list or array, where three or more numbers count
        as ordered; a frozen distribution of `scipy.stats` that is uniform on a bounded range of
        integers or floats, or uniform in log scale; or an `Integer`, `Float` or `Choice` of this
        library. Of a list of dicts, a candidate has the parameters of one.
    n_iter : int, default=10
        Maximum number of candidates. None is evaluated twice, so there may be fewer.
    scoring : str, callable, list, tuple or dict, default=None
        One or several scores, as for `RandomizedSearchCV`.
    n_jobs : int, default=None
        Number of fits that run at once: folds of a candidate. With more of them than folds, an
        iteration has more candidates.
    refit : bool, str or callable, default=True
        Whether to fit the best candidate to all data at the end. With several scores, the name of
        the one to search for; with False or a callable, that is the first one.
    cv : int, splitter or iterable, default=None
        Number of folds, a splitter, or the splits. They are drawn once and are the same for all
        candidates.
    verbose : int, default=0
        Verbosity, as for `RandomizedSearchCV`.
    pre_dispatch : int or str, default="2*n_jobs"
        Number of fits that are dispatched at once, as for `RandomizedSearchCV`.
    random_state : int, RandomState instance or None, default=None
        Seed of the search.
    error_score : "raise" or float, default=np.nan
        Score of a fit that fails. A candidate with a failed fit ranks worst.
    return_train_score : bool, default=False
        Whether `cv_results_` has scores on the training data.
    param_grid : dict or list of dicts, optional
        The name that `GridSearchCV` has for `param_distributions`; one of the two is needed.
    racing : bool, default=True
        Whether the folds of a candidate are run one after the other, and no further ones as soon as
        its scores show that it will not be among the best. `cv_results_` then has a column
        `n_splits`, the number of folds that were run, and NaN for the scores of the others and for
        their mean.

    Examples
    --------
    >>> from scipy.stats import loguniform
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> from knobless.sklearn import SearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> space = {"C": loguniform(1e-2, 1e3), "kernel": ["rbf", "poly"]}
    >>> search = SearchCV(SVC(), space, n_iter=20, random_state=0).fit(X, y)
    >>> sorted(search.best_params_)
    ['C', 'kernel']
    """

    @suggests(
        "SearchCV",
        "SearchCV(estimator, param_distributions, n_iter=50)",
        SEARCH_CV,
    )
    def __init__(
        self,
        estimator: Any,
        param_distributions: Any = None,
        *,
        n_iter: int = 10,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        param_grid: Any = None,
        racing: bool = True,
    ) -> None:
        self.param_distributions = param_distributions
        self.param_grid = param_grid
        self.racing = racing
        self.n_iter = n_iter
        self.random_state = random_state
        super().__init__(
            estimator=estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Search, and fit the best candidate to all data unless `refit` is False.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            Training data.
        y : array-like, default=None
            Target values.
        **params : dict
            Parameters of the splitter, of fits and of scores, as for `RandomizedSearchCV`.
        """
        cv = self.get_params(deep=False)["cv"]
        if isinstance(cv, Iterator):  # which can be read only once
            cv = list(cv)
            self.set_params(cv=cv)
        self._folds = folds = Folds(self, X, y, params)
        steps = steps_of(
            len(folds), boolean("racing", self.racing), self.n_jobs
        )
        self._fits = Fits(steps, self.error_score, self.refit)
        # scikit-learn runs all folds of its splitter at once, so during the search it gets those of
        # one step.
        self.cv = SomeFolds(folds, steps[0])
        try:
            super().fit(X, y, **params)
        finally:
            self.cv = cv
            del self._folds, self._fits
        self.n_splits_ = len(folds)
        return self

    def _run_search(self, evaluate_candidates: Callable[..., Any]) -> None:
        if (self.param_grid is None) == (self.param_distributions is None):
            choice = "neither" if self.param_grid is None else "both"
            raise TypeError(
                f"param_distributions: expected either these or param_grid, got {choice}"
            )
        grid = Grid(
            self.param_distributions
            if self.param_grid is None
            else self.param_grid
        )
        n_iter = count("n_iter", self.n_iter)
        folds = self._folds
        fits = self._fits

        def score(
            points: Sequence[Point], selected: range
        ) -> list[list[float]]:
            candidates = [grid.parameters(point) for point in points]
            try:
                evaluate_candidates(candidates, cv=SomeFolds(folds, selected))
            # Scikit-learn ends a search if all fits of a call fail
            except ValueError as error:
                return fits.add_failed(points, selected, error)
            return fits.add(points, selected)

        with warnings.catch_warnings():
            # Of each step; there is one for all of them
            warnings.simplefilter("ignore", FitFailedWarning)
            # There is nothing to search for
            if grid.space.cardinality <= n_iter:
                points = list(grid.points())
                for selected in fits.steps:
                    score(points, selected)
            else:
                opt = optimizer_of(
                    grid.space,
                    len(folds),
                    self.n_jobs,
                    seed_of(self.random_state),
                )
                scores = search_candidates(
                    opt,
                    n_iter,
                    grid.point,
                    fits.steps,
                    self.racing,
                    score,
                    lambda point, mean: -mean,
                )
                fits.keep(scores)
        fits.check()
        fits.results |= self._table(
            [grid.parameters(point) for point in fits.by_point]
        )

    def _format_results(
        self,
        candidate_params: Any,
        n_splits: int,
        out: Any,
        more_results: Any = None,
    ) -> Any:
        """Return the table that is filled when the search ends.

        Scikit-learn calls this after each step.
        """
        self._fits.made = out
        return self._fits.results

    def _table(self, candidates: list[dict[str, Any]]) -> dict[str, Any]:
        """Return `cv_results_`."""
        n = len(self._folds)
        n_run = [len(fits) for fits in self._fits.by_point.values()]
        attributes = {"n_splits": n_run} if self.racing else {}
        with warnings.catch_warnings():
            # Which those that were stopped are not
            warnings.filterwarnings("ignore", NOT_FINITE, UserWarning)
            table = super()._format_results(
                candidates, n, self._fits.rows(n), attributes
            )
        for name in ("fit_time", "score_time"):
            times = [
                [np.nan if fit is None else fit[name] for fit in fits]
                for fits in self._fits.by_point.values()
            ]
            table |= {
                f"mean_{name}": np.array([*map(np.mean, times)]),
                f"std_{name}": np.array([*map(np.std, times)]),
            }
        complete = np.array(n_run) == n
        for name in [name for name in table if name.startswith("mean_test_")]:
            if not np.isfinite(table[name][complete]).all():
                warnings.warn(f"{NOT_FINITE}: {table[name]}", UserWarning, 4)
        return table
