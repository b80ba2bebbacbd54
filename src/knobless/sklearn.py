"""Estimators for scikit-learn: `FeatureSelector` and `SearchCV`, a drop-in replacement for `RandomizedSearchCV`.

Both evaluate candidates by scikit-learn's cross-validation, on splits drawn once, so that the objective, the negated
mean score, is deterministic and each candidate is evaluated at most once. `Grid` turns the parameter distributions that
users of scikit-learn write into a `Space`.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv, cross_validate
from sklearn.model_selection._search import BaseSearchCV  # the base class that its documentation names for new searches
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from knobless._checks import count, suggests
from knobless.core.algorithm import Algorithm
from knobless.core.branch_search import BranchSearch
from knobless.core.conditional import Conditional
from knobless.recipes import pbil_lambda
from knobless.run.arguments import FEATURE_SELECTOR, SEARCH_CV
from knobless.run.optimizer import Optimizer
from knobless.space.space import Space
from knobless.space.subset import Subset
from knobless.space.variables import Binary, Choice, Float, Integer
from knobless.space.when import When

__all__ = ["FeatureSelector", "SearchCV"]

Key = TypeVar("Key", bound=Hashable)
MAX_REPEATS = 1000  # points in a row that stand for candidates evaluated before, after which a search ends


def evaluate_all(
    opt: Optimizer, n_iter: int, key: Callable[[Any], Key], evaluate: Callable[[list[Key]], Iterable[float]]
) -> dict[Key, float]:
    """Return the costs of up to `n_iter` candidates: fewer if the optimizer yields no new ones.

    Different points may have the same key, that is, stand for the same candidate.
    """
    costs: dict[Key, float] = {}
    repeats = 0
    while repeats < MAX_REPEATS and len(batch := opt.ask()):
        keys = [key(candidate.x) for candidate in batch]
        new = [each for each in dict.fromkeys(keys) if each not in costs][: n_iter - len(costs)]
        if new:
            costs.update(zip(new, evaluate(new), strict=True))
        if len(costs) == n_iter:
            break
        opt.tell(batch, [costs[each] for each in keys])
        repeats = 0 if new else repeats + len(batch)
    return costs


class FeatureSelector(SelectorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Select the features with which an estimator has the best cross-validated score.

    Parameters
    ----------
    estimator : estimator
        Fitted to subsets of the features. Any estimator is accepted; `coef_` is not needed.
    n_features_to_select : int or pair of int, default=None
        Number of features to select, or its smallest and largest value, both included; any number by default.
    n_iter : int, default=100
        Maximum number of subsets to evaluate. Each takes one fit per fold.
    scoring : str or callable, default=None
        Name of a score, or a scorer. None stands for the estimator's own `score`.
    cv : int, splitter or iterable, default=None
        Number of folds, a splitter, or the splits. They are drawn once and are the same for all subsets.
    n_jobs : int, default=None
        Number of fits that run at once. With more of them than folds, an iteration has more subsets.
    random_state : int, RandomState instance or None, default=None
        Seed of the search.

    Attributes
    ----------
    support_ : ndarray of bool, shape (n_features,)
        Mask of the selected features.
    n_features_ : int
        Number of selected features.
    best_score_ : float
        Mean cross-validated score of the selected features.
    cv_results_ : dict of ndarrays
        Evaluated subsets in order: `support` with one row per subset, `n_features`, `mean_test_score`,
        `std_test_score`, and `split0_test_score` and so on.

    Notes
    -----
    The set of all features is evaluated first if its size is allowed, so the best score is never below its score, and
    the search starts halfway to it. Of equal scores, the one with fewer features is better. The empty set, and a subset
    on which a fit fails, rank worst. No subset is evaluated twice.

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

    @suggests("FeatureSelector", "FeatureSelector(estimator, n_features_to_select=5)", FEATURE_SELECTOR)
    def __init__(
        self,
        estimator: Any,
        *,
        n_features_to_select: int | tuple[int, int] | None = None,
        n_iter: int = 100,
        scoring: Any = None,
        cv: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_features_to_select = n_features_to_select
        self.n_iter = n_iter
        self.scoring = scoring
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, **params: Any) -> FeatureSelector:
        """Select features.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_samples, n_features)
            Training data.
        y : array-like, shape (n_samples,), default=None
            Target values.
        **params : dict
            `groups` are passed to the splitter, other parameters to the estimator's `fit`. With scikit-learn's
            metadata routing enabled, each is passed to the methods that request it.

        Returns
        -------
        FeatureSelector
            The fitted selector.
        """
        n_iter = count("n_iter", self.n_iter)
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise TypeError(f"scoring: expected the name of one score, a scorer or None, got {self.scoring!r}")
        finite = not get_tags(self).input_tags.allow_nan
        X = validate_data(self, X, accept_sparse="csc", ensure_all_finite=finite)
        p = X.shape[1]
        space = _subsets(self.n_features_to_select, p)
        to_split, to_fit = self._routed(params)
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(cv.split(X, y, **to_split))
        scorer = check_scoring(self.estimator, scoring=self.scoring)

        found: dict[bytes, list[float]] = {}  # the scores of each subset by its mask

        with Parallel(n_jobs=self.n_jobs) as parallel:

            def evaluate(subsets: list[bytes]) -> Iterator[float]:
                tasks = [(mask, split) for mask in map(_mask, subsets) for split in splits]
                each = parallel(delayed(_score)(self.estimator, X, y, *task, scorer, to_fit) for task in tasks)
                for i, subset in enumerate(subsets):
                    scores = each[i * len(splits) : (i + 1) * len(splits)]
                    found[subset] = _without_errors(scores, strict=len(found) == 0)
                    yield _cost(np.mean(found[subset]), sum(subset))

            batch = math.ceil(joblib.effective_n_jobs(self.n_jobs) / len(splits))
            seed = _seed(self.random_state)
            if isinstance(space, Subset) and space.count == 1:
                list(evaluate([np.ones(p, dtype=bool).tobytes()]))
            else:
                x0 = np.ones(p) if isinstance(space, Binary) or space.high == p else None
                opt = Optimizer(space, x0=x0, rng=seed, batch=batch, deterministic=True)
                if isinstance(space, Binary):
                    opt.add(np.zeros(p), math.inf)  # there is nothing to fit
                evaluate_all(opt, n_iter, np.ndarray.tobytes, evaluate)

        self.cv_results_ = _results(found)
        scores, features = self.cv_results_["mean_test_score"], self.cv_results_["n_features"]
        best = np.lexsort((features, -scores))[0]  # NaN is sorted last
        self.support_ = self.cv_results_["support"][best]
        self.n_features_ = int(features[best])
        self.best_score_ = float(scores[best])
        return self

    def _routed(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters of the splitter, and those of fits and scores."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **params)
            return routed.splitter.split, {**routed.estimator.fit, **routed.scorer.score}
        rest = dict(params)
        return {"groups": rest.pop("groups", None)}, rest

    def get_metadata_routing(self) -> MetadataRouter:
        """Return how the parameters of `fit` are routed to the estimator, the splitter and the scorer.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
            The routing.
        """
        splitter = check_cv(self.cv, classifier=is_classifier(self.estimator))
        scorer = check_scoring(self.estimator, scoring=self.scoring)
        return (
            MetadataRouter(owner=self)
            .add(estimator=self.estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
            .add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
            .add(scorer=scorer, method_mapping=MethodMapping().add(caller="fit", callee="score"))
        )

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).input_tags
        tags.input_tags.allow_nan, tags.input_tags.sparse = inner.allow_nan, inner.sparse
        return tags


def _subsets(n_features: Any, p: int) -> Binary | Subset:
    """Return the space of the subsets of p features with these numbers of members."""
    if n_features is None:
        return Binary(p)
    message = (
        f"n_features_to_select: expected a number from 1 to {p}, or the smallest and the largest, got {n_features!r}"
    )
    try:
        space = Subset(p, n_features)
    except (TypeError, ValueError) as error:
        raise type(error)(message) from None
    if space.low == 0:
        raise ValueError(message)
    return space


def _mask(subset: bytes) -> NDArray[np.bool_]:
    return np.frombuffer(subset, dtype=np.int8).astype(bool)


def _cost(score: Any, features: int) -> float:
    """Return the negated score. Features cost one unit in its last place each, which breaks ties and nothing else."""
    return float(features * np.spacing(abs(score)) - score)


def _score(
    estimator: Any, X: Any, y: Any, mask: NDArray[np.bool_], split: Any, scorer: Any, params: dict[str, Any]
) -> float | Exception:
    """Return the score of one fit on the features of a mask, or the exception that it raised."""
    try:
        each = cross_validate(
            clone(estimator), X[:, mask], y, scoring=scorer, cv=[split], params=params, error_score="raise"
        )
        return float(each["test_score"][0])
    except Exception as error:
        return error


def _without_errors(scores: list[Any], strict: bool) -> list[float]:
    """Return the scores with NaN for an exception, or raise it if `strict`."""
    for error in scores:
        if isinstance(error, Exception):
            if strict:  # the first subset, usually of all features, on which the estimator should work
                raise error
            message = f"{type(error).__name__}: {error}"
            warnings.warn(f"a fit failed, so this subset of features ranks worst: {message}", FitFailedWarning, 2)
            break
    return [math.nan if isinstance(score, Exception) else score for score in scores]


def _results(found: dict[bytes, list[float]]) -> dict[str, NDArray[Any]]:
    support = np.array([_mask(subset) for subset in found])
    scores = np.array(list(found.values()))
    results = {f"split{i}_test_score": column for i, column in enumerate(scores.T)}
    results |= {"mean_test_score": scores.mean(axis=1), "std_test_score": scores.std(axis=1)}
    return {"support": support, "n_features": support.sum(axis=1), **results}


class SearchCV(BaseSearchCV):  # type: ignore[misc]
    """Search for the parameters of an estimator that have the best cross-validated score.

    A drop-in replacement for `RandomizedSearchCV` that learns from the candidates evaluated so far. Its parameters,
    methods and attributes are the same.

    Parameters
    ----------
    estimator : estimator
        Fitted with each candidate's parameters.
    param_distributions : dict or list of dicts, optional
        Possible values by parameter. A value is a list or array, where three or more numbers count as ordered; a
        frozen distribution of `scipy.stats` that is uniform on a bounded range of integers or floats, or uniform in
        log scale; or an `Integer`, `Float` or `Choice` of this library. Of a list of dicts, a candidate has the
        parameters of one.
    n_iter : int, default=10
        Maximum number of candidates. None is evaluated twice, so there may be fewer.
    scoring : str, callable, list, tuple or dict, default=None
        One or several scores, as for `RandomizedSearchCV`.
    n_jobs : int, default=None
        Number of fits that run at once. With more of them than folds, an iteration has more candidates.
    refit : bool, str or callable, default=True
        Whether to fit the best candidate to all data at the end. With several scores, the name of the one to search
        for; with False or a callable, that is the first one.
    cv : int, splitter or iterable, default=None
        Number of folds, a splitter, or the splits. They are drawn once and are the same for all candidates.
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

    @suggests("SearchCV", "SearchCV(estimator, param_distributions, n_iter=50)", SEARCH_CV)
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
    ) -> None:
        self.param_distributions = param_distributions
        self.param_grid = param_grid
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

    def _run_search(self, evaluate_candidates: Callable[..., dict[str, Any]]) -> None:
        if (self.param_grid is None) == (self.param_distributions is None):
            given = "neither" if self.param_grid is None else "both"
            raise TypeError(f"param_distributions: expected either these or param_grid, got {given}")
        given = self.param_distributions if self.param_grid is None else self.param_grid
        n_iter, grid = count("n_iter", self.n_iter), Grid(given)
        cv = FixedSplits(self._checked_cv_orig)
        results: dict[str, Any] = {}
        failed: list[dict[str, Any]] = []  # in all fits, and not in the results yet
        failure: ValueError | None = None

        def evaluate(points: list[Any]) -> list[float]:
            nonlocal results, failure
            candidates = [grid.parameters(point) for point in points]
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", NOT_FINITE, UserWarning)  # repeated for all results each time
                    results = evaluate_candidates([*failed, *candidates], cv=cv)
            except ValueError as error:
                # scikit-learn ends a search if all fits of a call fail. A call has few candidates here: these are
                # evaluated again along with the next ones, or they would be missing in the results.
                if self.error_score == "raise" or "fits failed" not in str(error):
                    raise
                failure = error
                failed.extend(candidates)
                return [math.nan] * len(candidates)
            failed.clear()
            return [-score for score in results[self._sought(results)][-len(candidates) :].tolist()]

        batch = math.ceil(joblib.effective_n_jobs(self.n_jobs) / self.n_splits_)
        if grid.space.cardinality <= n_iter:
            evaluate(list(grid.points()))  # there is nothing to search for
        else:
            opt = Optimizer(grid.space, grid.algorithm, rng=_seed(self.random_state), batch=batch, deterministic=True)
            evaluate_all(opt, n_iter, grid.point, evaluate)

        if failure is not None and not results:
            raise failure
        if failed:
            message = f"the last {len(failed)} candidates failed in all fits and are not in cv_results_: {failure}"
            warnings.warn(message, FitFailedWarning, 3)
        scores = results[self._sought(results)]
        if not np.isfinite(scores).all():
            warnings.warn(f"{NOT_FINITE}: {scores}", UserWarning, 3)

    def _sought(self, results: Mapping[str, Any]) -> str:
        """Return the name of the column with the scores to search for."""
        named = f"mean_test_{self.refit}"
        if named in results:
            return named
        return next(name for name in results if name.startswith("mean_test_"))


CONDITIONS = "variables are given as a dict, and conditional ones as a list of dicts, one per case"
NOT_FINITE = "One or more of the test scores are non-finite"  # the message of scikit-learn


class FixedSplits:
    """The splits of a splitter, drawn once: a splitter that shuffles draws others each time."""

    def __init__(self, cv: Any) -> None:
        self._cv = cv
        self._splits: list[Any] | None = None

    def split(self, *args: Any, **params: Any) -> list[Any]:
        if self._splits is None:
            self._splits = list(self._cv.split(*args, **params))
        return self._splits


class Parameter(NamedTuple):
    """One parameter of an estimator: its variable, and its options if the variable is their index."""

    variable: Choice | Integer | Float
    options: Sequence[Any] | None

    def value(self, number: Any) -> Any:
        return number if self.options is None else self.options[number]

    def numbers(self) -> Sequence[Any]:
        """Return all values of the variable, if there are finitely many."""
        match self.variable:
            case Choice(options=options):
                return options
            case Integer(low=low, high=high, step=step):
                return range(low, high + 1, step)
            case Float(count=count) as variable:
                return list(variable.values((np.arange(count) + 0.5) / count).tolist())


class Grid:
    """The space of `param_distributions`. Of several dicts, a candidate has the parameters of one.

    The index of the dict is a variable, on which the variables of the dicts are conditional. A candidate is identified
    by this index, followed by the values of the variables of that dict.
    """

    def __init__(self, given: Any) -> None:
        dicts = [given] if isinstance(given, Mapping) else given
        if not isinstance(dicts, (list, tuple)) or not dicts or not all(isinstance(each, Mapping) for each in dicts):
            hint = f"; {CONDITIONS}" if isinstance(given, (Space, When)) else ""
            raise TypeError(f"param_distributions: expected a dict or a list of dicts, got {given!r}{hint}")
        self.dicts = [{name: _parameter(name, value) for name, value in each.items()} for each in dicts]
        tree: dict[Any, Any] = {
            (i, name): parameter.variable if len(dicts) == 1 else parameter.variable.when(dict=i)
            for i, each in enumerate(self.dicts)
            for name, parameter in each.items()
        }
        varying = [parameter for each in self.dicts for parameter in each.values() if parameter.variable.count > 1]
        if len(dicts) > 1 or not varying:  # a space needs something to choose, even if a candidate does not
            tree["dict"] = Choice(*range(max(len(dicts), 2)))
        self.space = Space.of(tree)

    @property
    def algorithm(self) -> Algorithm:
        """PBIL-λ, with several dicts in turns among them."""
        # Elitism converges before `n_iter` candidates on small spaces and is not measured to be better.
        loop = pbil_lambda(self.space)
        return BranchSearch(loop, deterministic=True) if isinstance(self.space.family, Conditional) else loop

    def point(self, x: dict[Any, Any]) -> tuple[Any, ...]:
        i = x["dict"] if len(self.dicts) > 1 else 0
        return i, *(x[i, name] for name in self.dicts[i])

    def points(self) -> Iterator[tuple[Any, ...]]:
        """Yield all candidates, if the space is finite."""
        for i, each in enumerate(self.dicts):
            yield from itertools.product([i], *(parameter.numbers() for parameter in each.values()))

    def parameters(self, point: tuple[Any, ...]) -> dict[str, Any]:
        """Return the parameters of the estimator."""
        each = zip(self.dicts[point[0]].items(), point[1:], strict=True)
        return {name: parameter.value(number) for (name, parameter), number in each}


def _parameter(name: str, given: Any) -> Parameter:
    where = f"param_distributions[{name!r}]"
    if isinstance(given, (Integer, Float)) and given.n is None:
        return Parameter(given, None)
    if isinstance(given, Choice) and given.n is None:
        return Parameter(Choice(*range(len(given.options)), p=given.p), given.options)
    if hasattr(given, "rvs"):
        return _distribution(where, given)
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        expected = "a list, a distribution, or one Integer, Float or Choice"
        hint = f"; {CONDITIONS}" if isinstance(given, (Space, When)) else ""
        raise TypeError(f"{where}: expected {expected}, got {given!r}{hint}")
    if isinstance(given, tuple) and len(given) == 2 and all(map(_is_number, given)) and given[0] < given[1]:
        low, high = given
        kind = "Integer" if all(isinstance(each, Integral) for each in given) else "Float"
        shown = f"the tuple {given} is read as two options, which are written [{low}, {high}]"
        warnings.warn(f"{where}: {shown}; a range is written kl.{kind}({low}, {high})", UserWarning, 6)
    distinct: dict[Hashable, Any] = {}
    for option in given:
        distinct.setdefault(_identity(option), option)
    options = list(distinct.values())
    if not options:
        raise ValueError(f"{where}: expected at least one option, got none")
    if len(options) > 2 and all(map(_is_number, options)) and len(set(options)) == len(options):
        return Parameter(Integer(0, len(options) - 1), sorted(options))
    return Parameter(Choice(*range(len(options))), options)


def _identity(option: Any) -> Hashable:
    """Return what equal options of the same type have in common; that of lists and arrays is a digest."""
    try:
        hash(option)
    except TypeError:
        return type(option), joblib.hash(option)
    return type(option), option


def _is_number(option: Any) -> bool:
    return isinstance(option, Real) and not isinstance(option, (bool, np.bool_)) and math.isfinite(option)


def _distribution(where: str, given: Any) -> Parameter:
    """Return the range and scale of a distribution, by its quantiles: a distribution of any name may be uniform."""
    try:
        low, high = (float(bound) for bound in given.support())
        q = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
        if math.isfinite(high - low):
            if hasattr(given, "pmf"):
                below = low + np.floor(q * (high - low))
                if low.is_integer() and np.allclose(given.cdf(below), (below - low + 1) / (high - low + 1)):
                    return Parameter(Integer(int(low), int(high)), None)
            elif np.allclose(given.ppf(q), low + q * (high - low)):
                return Parameter(Float(low, high), None)
            elif low > 0.0 and np.allclose(np.log(given.ppf(q)), math.log(low) + q * math.log(high / low)):
                return Parameter(Float(low, high, log=True), None)
    except AttributeError:
        pass  # not a distribution of scipy.stats
    expected = "a distribution that is uniform, or uniform in log scale, on a bounded range"
    hint = "a range is also written Float(low, high, log=True) or Integer(low, high)"
    shown = getattr(getattr(given, "dist", None), "name", repr(given))
    raise ValueError(f"{where}: expected {expected}, got {shown}; {hint}")


def _seed(random_state: Any) -> int:
    """Return a seed for any random state of scikit-learn: None, an integer, a RandomState."""
    return int(check_random_state(random_state).randint(2**31 - 1))
