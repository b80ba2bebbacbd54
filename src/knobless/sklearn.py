"""Estimators for scikit-learn: `FeatureSelector` and `SearchCV`, a drop-in for `RandomizedSearchCV`.

Both hand points of a space to scikit-learn's own cross-validation, on splits drawn once, and climb by the ranks of
the mean scores: `climb` is their loop. What was evaluated is never fitted again. `Grid` is what users of
scikit-learn write for the parameters of an estimator, as a `Space`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv, cross_validate
from sklearn.model_selection._search import BaseSearchCV  # the base its documentation names for searches of one's own
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from knobless._checks import count
from knobless.run.optimizer import Optimizer
from knobless.run.run_state import STALE
from knobless.space.space import Space
from knobless.space.variables import Binary, Choice, Float, Integer, _alike

__all__ = ["FeatureSelector", "SearchCV"]

Cost = tuple[float, ...]  # compared from the left: what comes later breaks ties
WORST: Cost = (math.inf, math.inf)


def climb(
    opt: Optimizer,
    n_iter: int,
    points: float,
    key: Callable[[Any], Hashable],
    known: dict[Any, Cost],
    evaluate: Callable[[list[Any]], Iterable[Cost]],
) -> None:
    """Adds the costs of up to `n_iter` points to those `known`: all `points`, or until nothing new is drawn.

    An iteration is told the ranks of its costs, which is all that its preference sees.
    """
    stale = 0
    while n_iter > 0 and len(known) < points and stale < STALE:
        batch = opt.ask()
        keys = [key(candidate.x) for candidate in batch]
        fresh = [each for each in dict.fromkeys(keys) if each not in known][:n_iter]
        if fresh:
            known.update(zip(fresh, evaluate(fresh), strict=True))
        n_iter -= len(fresh)
        stale = 0 if fresh else stale + len(batch)
        if n_iter > 0:
            ranks = {cost: rank for rank, cost in enumerate(sorted({known[each] for each in keys}))}
            opt.tell(batch, [float(ranks[known[each]]) for each in keys])


class FeatureSelector(SelectorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Selects the features with which an estimator has the best cross-validated score.

        make_pipeline(FeatureSelector(KNeighborsClassifier(), n_iter=200), KNeighborsClassifier())

    estimator     what is fitted to subsets of the features; any, it needs no `coef_`
    n_iter        subsets that are evaluated at most, each by as many fits as `cv` has folds
    scoring       the name of a score, or a scorer; None for the estimator's own
    cv            folds, a splitter, or splits; they are drawn once, the same for all subsets
    n_jobs        fits that run at once. With more of them than folds, an iteration has more subsets.
    random_state  a seed

    All features together are evaluated first, so the score is never below theirs, and the search starts halfway to
    them. No features at all rank worst, and so does a subset that cannot be fitted. Of equal scores, the one with fewer
    features is better.

    support_      whether each feature is selected
    n_features_   how many are
    best_score_   their mean score
    cv_results_   what was evaluated, in order: `support` with one row a subset, `n_features`, `mean_test_score`,
                  `std_test_score` and `split0_test_score` …
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_iter: int = 100,
        scoring: Any = None,
        cv: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_iter = n_iter
        self.scoring = scoring
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, **params: Any) -> FeatureSelector:
        """Selects. `groups` are for the splits; other parameters are for the estimator's `fit`.

        With scikit-learn's metadata routing enabled, each goes where it is requested.
        """
        n_iter = count("n_iter", self.n_iter)
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise TypeError(f"scoring: expected the name of one score, a scorer or None, got {self.scoring!r}")
        finite = not get_tags(self).input_tags.allow_nan
        X = validate_data(self, X, accept_sparse="csc", ensure_all_finite=finite)
        to_split, to_fit = self._routed(params)
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(cv.split(X, y, **to_split))
        scorer = check_scoring(self.estimator, scoring=self.scoring)

        found: dict[bytes, list[float]] = {}  # the scores of each subset, a key is its mask
        p = X.shape[1]

        with Parallel(n_jobs=self.n_jobs) as parallel:

            def evaluate(subsets: list[bytes]) -> Iterator[Cost]:
                tasks = [(mask, split) for mask in map(_mask, subsets) for split in splits]
                each = parallel(delayed(_score)(self.estimator, X, y, *task, scorer, to_fit) for task in tasks)
                for i, subset in enumerate(subsets):
                    scores = each[i * len(splits) : (i + 1) * len(splits)]
                    found[subset] = _without_errors(scores, strict=len(found) == 0)
                    mean = np.mean(found[subset])
                    yield (-float(mean), sum(subset)) if mean == mean else WORST

            known = {bytes(p): WORST}  # no features: nothing to fit
            batch = math.ceil(effective_n_jobs(self.n_jobs) / len(splits))
            opt = Optimizer(Binary(p), x0=np.ones(p), rng=_seed(self.random_state), batch=batch)
            climb(opt, n_iter, 2**p, np.ndarray.tobytes, known, evaluate)

        best = min(found, key=known.__getitem__)
        self.support_ = _mask(best)
        self.n_features_ = int(self.support_.sum())
        self.best_score_ = -known[best][0]
        self.cv_results_ = _results(found)
        return self

    def _routed(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is for the splits, and what is for fits and scores."""
        from sklearn import get_config

        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **params)
            return routed.splitter.split, {**routed.estimator.fit, **routed.scorer.score}
        rest = dict(params)
        return {"groups": rest.pop("groups", None)}, rest

    def get_metadata_routing(self) -> MetadataRouter:
        """Who gets what of `fit`'s parameters: the estimator's fit, the splitter and the scorer."""
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


def _mask(subset: bytes) -> NDArray[np.bool_]:
    return np.frombuffer(subset, dtype=np.int8).astype(bool)


def _score(
    estimator: Any, X: Any, y: Any, mask: NDArray[np.bool_], split: Any, scorer: Any, params: dict[str, Any]
) -> float | Exception:
    """Of one fit, on the features of a mask."""
    try:
        each = cross_validate(
            clone(estimator), X[:, mask], y, scoring=scorer, cv=[split], params=params, error_score="raise"
        )
        return float(each["test_score"][0])
    except Exception as error:
        return error


def _without_errors(scores: list[Any], strict: bool) -> list[float]:
    """NaN for an exception; if `strict`, it is raised."""
    for error in scores:
        if isinstance(error, Exception):
            if strict:  # all features, on which the estimator should work
                raise error
            said = f"{type(error).__name__}: {error}"
            warnings.warn(f"a subset of the features ranks worst, since a fit failed: {said}", FitFailedWarning, 2)
            break
    return [math.nan if isinstance(score, Exception) else score for score in scores]


def _results(found: dict[bytes, list[float]]) -> dict[str, NDArray[Any]]:
    support = np.array([_mask(subset) for subset in found])
    scores = np.array(list(found.values()))
    results = {f"split{i}_test_score": column for i, column in enumerate(scores.T)}
    results |= {"mean_test_score": scores.mean(axis=1), "std_test_score": scores.std(axis=1)}
    return {"support": support, "n_features": support.sum(axis=1), **results}


class SearchCV(BaseSearchCV):  # type: ignore[misc]
    """`RandomizedSearchCV` that learns from the candidates it has seen; its parameters and attributes are the same.

        SearchCV(SVC(), {"C": loguniform(1e-2, 1e3), "kernel": ["rbf", "poly"]}, n_iter=50).fit(X, y).best_params_

    param_distributions   a dict from parameters to what they may be, or a list of such dicts. What may be written
                          there: a list or array, where numbers count as ordered; a frozen distribution of
                          `scipy.stats` that is uniform on a bounded range of integers or floats, or uniform in
                          log scale; `Integer`, `Float` or `Choice` of this library.
    n_iter                candidates at most: none is evaluated twice, so there may be fewer
    n_jobs                fits that run at once. With more of them than folds, an iteration has more candidates.
    refit                 with several scores, the name of the one to search for

    The splits of `cv` are drawn once, the same for all candidates. A candidate that cannot be fitted ranks worst.
    The other parameters, and `fit`, are those of `RandomizedSearchCV`.
    """

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
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
    ) -> None:
        self.param_distributions = param_distributions
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
        n_iter, grid = count("n_iter", self.n_iter), Grid(self.param_distributions)
        cv = Once(self._checked_cv_orig)
        results: dict[str, Any] = {}
        failed: list[dict[str, Any]] = []  # in all fits, and not in the results yet
        failure: ValueError | None = None

        def evaluate(points: list[Any]) -> list[Cost]:
            nonlocal results, failure
            candidates = [grid.parameters(point) for point in points]
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", NOT_FINITE, UserWarning)  # of all results, again and again
                    results = evaluate_candidates([*failed, *candidates], cv=cv)
            except ValueError as error:
                # scikit-learn gives up where all fits of a call fail. A few candidates do not mean that all will:
                # these are handed in again with the next, or there would be no trace of them in the results.
                if self.error_score == "raise" or "fits failed" not in str(error):
                    raise
                failure = error
                failed.extend(candidates)
                return [WORST] * len(candidates)
            failed.clear()
            scores = results[self._sought(results)][-len(candidates) :]
            return [(-score,) if score == score else WORST for score in scores.tolist()]

        batch = math.ceil(effective_n_jobs(self.n_jobs) / self.n_splits_)
        opt = Optimizer(grid.space, rng=_seed(self.random_state), batch=batch)
        climb(opt, n_iter, grid.points, grid.point, {}, evaluate)

        if failure is not None and not results:
            raise failure
        if failed:
            said = f"the last {len(failed)} candidates failed in all fits and are not in cv_results_: {failure}"
            warnings.warn(said, FitFailedWarning, 3)
        scores = results[self._sought(results)]
        if not np.isfinite(scores).all():
            warnings.warn(f"{NOT_FINITE}: {scores}", UserWarning, 3)

    def _sought(self, results: Mapping[str, Any]) -> str:
        """The column of the scores to search for."""
        named = f"mean_test_{self.refit}"
        if named in results:
            return named
        if "mean_test_score" not in results:
            scores = [name.removeprefix("mean_test_") for name in results if name.startswith("mean_test_")]
            raise ValueError(f"refit: expected the score to search for, one of {scores}, got {self.refit!r}")
        return "mean_test_score"


NOT_FINITE = "One or more of the test scores are non-finite"  # scikit-learn's words


class Once:
    """A splitter's splits, drawn once: one that shuffles would draw others each time."""

    def __init__(self, cv: Any) -> None:
        self._cv = cv
        self._splits: list[Any] | None = None

    def split(self, *args: Any, **params: Any) -> list[Any]:
        if self._splits is None:
            self._splits = list(self._cv.split(*args, **params))
        return self._splits


class Parameter(NamedTuple):
    """One parameter of an estimator: the variable that stands for it, and the options, if it is an index."""

    variable: Choice | Integer | Float | None  # None for what cannot vary
    options: Sequence[Any] | None

    def value(self, number: Any) -> Any:
        return number if self.options is None else self.options[number]


class Grid:
    """`param_distributions` as a space. Of several dicts, a candidate has the parameters of one.

    A point is told by the number of its dict, followed by the numbers of those parameters: what it has for the
    other dicts is not seen.
    """

    def __init__(self, given: Any) -> None:
        dicts = [given] if isinstance(given, Mapping) else given
        if not isinstance(dicts, (list, tuple)) or not dicts or not all(isinstance(each, Mapping) for each in dicts):
            raise TypeError(f"param_distributions: expected a dict or a list of dicts, got {given!r}")
        self.dicts = [{name: _parameter(name, value) for name, value in each.items()} for each in dicts]
        tree: dict[Any, Any] = {
            (i, name): parameter.variable
            for i, each in enumerate(self.dicts)
            for name, parameter in each.items()
            if parameter.variable is not None
        }
        if len(dicts) > 1 or not tree:  # a space needs something to choose, even if a candidate does not
            tree["dict"] = Choice(*range(max(len(dicts), 2)))
        self.space = Space.of(tree)

    @property
    def points(self) -> float:
        """How many there are."""
        variables = [[p.variable for p in each.values() if p.variable is not None] for each in self.dicts]
        return sum(math.prod(variable.count for variable in each) for each in variables)

    def point(self, x: dict[Any, Any]) -> tuple[Any, ...]:
        i = x["dict"] if len(self.dicts) > 1 else 0
        return i, *(x.get((i, name), 0) for name in self.dicts[i])

    def parameters(self, point: tuple[Any, ...]) -> dict[str, Any]:
        """What scikit-learn sees of it."""
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
        raise TypeError(f"{where}: expected {expected}, got {given!r}")
    options: list[Any] = []
    for option in given:
        if not any(_alike(option, other) for other in options):
            options.append(option)
    if not options:
        raise ValueError(f"{where}: expected at least one option, got none")
    if len(options) == 1:
        return Parameter(None, options)
    if len(options) > 2 and all(map(_is_number, options)) and len(set(options)) == len(options):
        return Parameter(Integer(0, len(options) - 1), sorted(options))
    return Parameter(Choice(*range(len(options))), options)


def _is_number(option: Any) -> bool:
    return isinstance(option, Real) and not isinstance(option, (bool, np.bool_)) and math.isfinite(option)


def _distribution(where: str, given: Any) -> Parameter:
    """A range with its scale, told by quantiles: a distribution of any name may be uniform."""
    try:
        low, high = (float(bound) for bound in given.support())
        q = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
        if math.isfinite(high - low):
            if hasattr(given, "pmf"):
                below = low + np.floor(q * (high - low))
                if low.is_integer() and np.allclose(given.cdf(below), (below - low + 1) / (high - low + 1)):
                    return Parameter(Integer(int(low), int(high)), None) if low < high else Parameter(None, [int(low)])
            elif np.allclose(given.ppf(q), low + q * (high - low)):
                return Parameter(Float(low, high), None)
            elif low > 0.0 and np.allclose(np.log(given.ppf(q)), math.log(low) + q * math.log(high / low)):
                return Parameter(Float(low, high, log=True), None)
    except AttributeError:
        pass  # not of scipy.stats: who knows what it draws
    expected = "a distribution that is uniform, or uniform in log scale, on a bounded range"
    hint = "a range is also written Float(low, high, log=True) or Integer(low, high)"
    shown = getattr(getattr(given, "dist", None), "name", repr(given))
    raise ValueError(f"{where}: expected {expected}, got {shown}; {hint}")


def _seed(random_state: Any) -> int:
    """A seed from scikit-learn's kinds of random state: None, a number, a RandomState."""
    return int(check_random_state(random_state).randint(2**31 - 1))
