"""scikit-learn's own checks, and laws of the two estimators on models whose best features and parameters are known."""

import itertools
import re
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, RandomizedSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from knobless import Binary, Choice, Float, Integer, Space
from knobless.sklearn import FeatureSelector, SearchCV
from knobless.sklearn import candidates as module
from knobless.sklearn.grid import Grid
from knobless.sklearn.initial_subsets import initial_subsets


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what scikit-learn's checks provoke
@parametrize_with_checks(
    [
        FeatureSelector(RidgeClassifier(), n_iter=4, cv=3),
        SearchCV(RidgeClassifier(), {"alpha": [0.1, 1.0, 10.0]}, n_iter=2, cv=3),
    ]
)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def test_the_core_does_without_scikit_learn():
    code = "import knobless, sys; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# Features. Column i of COLUMNS is the number i, so that a model sees which columns it has.

COLUMNS = np.tile(np.arange(12.0), (12, 1))
ONE = [(np.arange(12), np.arange(12))]  # split


class Wants(BaseEstimator):
    """Scores the features it wants, less the others; without the one it `needs`, it cannot be fitted."""

    def __init__(self, wanted=(), needs=None, price=1.0):
        self.wanted = wanted
        self.needs = needs
        self.price = price

    def fit(self, X, y=None):
        if self.needs is not None and self.needs not in X[0]:
            raise RuntimeError(f"no feature {self.needs}")
        return self

    def score(self, X, y=None):
        had = set(X[0])
        return len(had & set(self.wanted)) - self.price * len(had - set(self.wanted))


def subsets(n):
    return (np.array([i >> k & 1 for k in range(n)], dtype=bool) for i in range(1, 2**n))


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    return X, X[:, 1] - 2.0 * X[:, 3] + rng.normal(size=60)


def test_every_subset_once_and_the_best_of_them(noisy):
    X, y = noisy
    selector = FeatureSelector(Ridge(), n_iter=1000, cv=3, random_state=0, racing=False).fit(X, y)
    expected = {tuple(mask): cross_val_score(Ridge(), X[:, mask], y, cv=3) for mask in subsets(5)}
    results = selector.cv_results_
    assert [*map(tuple, results["support"])].count((True,) * 5) == 1
    assert {*map(tuple, results["support"])} == set(expected)
    assert len(results["support"]) == 31
    assert results["support"][0].all()
    for i, mask in enumerate(results["support"]):
        scores = [results[f"split{k}_test_score"][i] for k in range(3)]
        np.testing.assert_array_equal(scores, expected[tuple(mask)])
        assert results["mean_test_score"][i] == np.mean(scores)
        assert results["std_test_score"][i] == np.std(scores)
        assert results["n_features"][i] == mask.sum()
    assert (results["n_splits"] == 3).all()
    # Selected is the smallest subset within one standard error of the best score.
    best = max(expected, key=lambda mask: expected[mask].mean())
    least = expected[best].mean() - expected[best].std(ddof=1) / 3**0.5
    smallest = min(sum(mask) for mask, scores in expected.items() if scores.mean() >= least)
    of_this_size = [mask for mask in expected if sum(mask) == smallest]
    assert tuple(selector.support_) == max(of_this_size, key=lambda mask: expected[mask].mean())
    assert selector.best_score_ == expected[tuple(selector.support_)].mean()
    assert selector.n_features_ == smallest < 5


def test_no_more_subsets_than_asked_for_and_none_twice():
    selector = FeatureSelector(Wants((2, 3)), n_iter=57, cv=ONE, random_state=0).fit(COLUMNS)
    support = selector.cv_results_["support"]
    assert len(support) == len({*map(tuple, support)}) == 57
    assert support[0].all()


@pytest.mark.parametrize("wanted", [(3,), (0, 2, 7, 11), range(12)])
def test_the_wanted_features_are_found(wanted):
    selector = FeatureSelector(Wants(tuple(wanted)), n_iter=80, cv=ONE, random_state=0).fit(COLUMNS)
    assert np.flatnonzero(selector.support_).tolist() == list(wanted)


def test_of_equal_scores_the_one_with_fewer_features():
    free = Wants((4, 5), price=0.0)  # the others cost nothing, and bring nothing
    selector = FeatureSelector(free, n_iter=100, cv=ONE, random_state=0).fit(COLUMNS)
    assert np.flatnonzero(selector.support_).tolist() == [4, 5]


@pytest.mark.parametrize(("allowed", "sizes"), [(None, [10, 5, 2, 1]), (6, [6]), ((3, 9), [9, 4, 3]), ((1, 2), [2, 1])])
def test_the_first_subsets_are_nested_and_of_the_features_most_related_to_the_target(allowed, sizes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10))
    X[:, 7] = 3.0  # related to nothing
    target = X @ np.array([0, 0, 8, 0, 4, 0, 0, 0, 2, 0]) + rng.normal(size=200)
    for estimator, y in ((Ridge(), target), (RidgeClassifier(), np.where(target > 0, "yes", "no"))):
        selector = FeatureSelector(estimator, n_features_to_select=allowed, n_iter=len(sizes), cv=3)
        first = selector.fit(X, y).cv_results_["support"]
        assert first.sum(axis=1).tolist() == sizes
        assert all((small <= large).all() for large, small in itertools.pairwise(first))
        for mask in first:
            assert set(np.flatnonzero(mask)) >= {2, 4, 8} or set(np.flatnonzero(mask)) <= {2, 4}


def test_without_a_target_the_first_subset_has_all_features():
    assert initial_subsets(Ridge(), COLUMNS, None, range(1, 13))[0].all()
    assert initial_subsets(Ridge(), COLUMNS, None, range(1, 3)) is None
    missing = np.where(np.arange(12) % 2, np.nan, COLUMNS.T)  # half of the values
    target = np.arange(12.0)
    assert len(initial_subsets(Ridge(), missing, target, range(1, 13))) == 4


@pytest.mark.parametrize("kind", [Ridge, RidgeClassifier])
def test_five_folds_are_repeated_three_times_unless_others_are_stated(noisy, kind):
    X, y = noisy
    y = y if kind is Ridge else y > 0
    one, same, other = (
        FeatureSelector(kind(), n_iter=3, random_state=seed).fit(X, y).cv_results_ for seed in (0, 0, 1)
    )
    assert sum("split" in name for name in one) == 15 + 1
    np.testing.assert_array_equal(one["split7_test_score"], same["split7_test_score"])
    assert (one["split7_test_score"][0] != other["split7_test_score"][0]) or kind is RidgeClassifier


def test_the_optimizer_is_told_scores_and_that_they_are_deterministic(monkeypatch, noisy):
    told = []

    class Spy(module.Optimizer):
        def tell(self, candidates, values):
            assert self.deterministic
            told.extend(zip([tuple(candidate.x == 1) for candidate in candidates], values, strict=True))
            super().tell(candidates, values)

    monkeypatch.setattr(module, "Optimizer", Spy)
    results = FeatureSelector(Ridge(), n_iter=20, cv=5, random_state=0).fit(*noisy).cv_results_
    scores = np.array([results[f"split{k}_test_score"] for k in range(5)]).T
    rows = dict(zip(map(tuple, results["support"]), zip(scores, results["n_splits"], strict=True), strict=True))
    assert {n for _, n in rows.values()} > {5}  # some were stopped
    for mask, value in told:
        row, n = rows[mask]
        assert value.stopped == (n < 5)
        assert value.steps == pytest.approx([-row[: i + 1].mean() for i in range(n)], rel=1e-12)
        assert np.isnan(row[n:]).all()


def test_no_features_are_never_fitted():
    selector = FeatureSelector(Wants(()), n_iter=1000, cv=ONE, random_state=0).fit(COLUMNS[:, :4])
    assert selector.cv_results_["n_features"].min() == 1
    assert len(selector.cv_results_["support"]) == 2**4 - 1
    assert selector.n_features_ == 1
    assert FeatureSelector(Wants(()), cv=2).fit(COLUMNS[:, :1]).support_.tolist() == [True]


def test_a_subset_that_cannot_be_fitted_ranks_worst():
    selector = FeatureSelector(Wants((1,), needs=0), n_iter=100, cv=ONE, random_state=0)
    with pytest.warns(FitFailedWarning, match="RuntimeError: no feature 0"):
        selector.fit(COLUMNS[:, :8])
    assert np.flatnonzero(selector.support_).tolist() == [0, 1]
    results = selector.cv_results_
    np.testing.assert_array_equal(np.isnan(results["mean_test_score"]), ~results["support"][:, 0])


def test_an_estimator_that_fails_on_all_features_is_shown_at_once():
    with pytest.raises(RuntimeError, match="no feature 99"):
        FeatureSelector(Wants(needs=99), cv=2).fit(COLUMNS)


@pytest.mark.parametrize("racing", [False, True])
def test_the_same_for_a_seed_with_any_number_of_jobs_up_to_the_folds(noisy, racing):
    def results(seed, n_jobs, kind=int):
        common = {"cv": 5, "n_jobs": n_jobs, "racing": racing}
        selector = FeatureSelector(Ridge(), n_iter=12, random_state=kind(seed), **common)
        space = {"alpha": stats.loguniform(1e-3, 1e3)}
        search = SearchCV(Ridge(), space, n_iter=9, random_state=kind(seed), **common)
        return selector.fit(*noisy).cv_results_ | search.fit(*noisy).cv_results_

    with joblib.parallel_config("threading"):
        one = results(5, 1)
        for again in (results(5, 1), results(5, 2), results(5, 5, np.random.RandomState)):
            for key, column in one.items():
                if "time" not in key:
                    np.testing.assert_array_equal(column, again[key])
        assert racing == (one["n_splits"].min() < 5) if racing else "n_splits" in one
        other = results(6, 1)
    assert (other["support"] != one["support"]).any()
    assert (other["params"] != one["params"]) is True


@pytest.mark.parametrize(("jobs", "folds", "batch"), [(1, 3, 1), (3, 3, 1), (4, 3, 2), (64, 5, 13)])
def test_an_iteration_has_enough_candidates_for_all_jobs(monkeypatch, noisy, jobs, folds, batch):
    seen = []
    optimizer = module.Optimizer
    monkeypatch.setattr(module.joblib, "effective_n_jobs", lambda n_jobs: jobs)
    monkeypatch.setattr(module, "Optimizer", lambda *a, **b: seen.append(b["batch"]) or optimizer(*a, **b))
    FeatureSelector(Ridge(), n_iter=2, cv=folds).fit(*noisy)
    SearchCV(Ridge(), {"alpha": [1.0, 2.0, 3.0]}, n_iter=2, cv=folds).fit(*noisy)
    assert seen == [batch, batch]


def test_in_a_pipeline_with_names(noisy):
    X, y = noisy
    frame = pd.DataFrame(X, columns=list("abcde"))
    selector = FeatureSelector(Ridge(), n_iter=15, cv=3, random_state=0)
    pipeline = make_pipeline(selector, Ridge()).set_output(transform="pandas").fit(frame, y)
    names = pipeline[:-1].get_feature_names_out().tolist()
    assert names == [name for name, kept in zip("abcde", pipeline[0].support_, strict=True) if kept]
    assert {"b", "d"} <= set(names)
    assert pipeline[:-1].transform(frame).columns.tolist() == names
    assert cross_val_score(pipeline, frame, y, cv=3).mean() > 0.7


class Weighed(Wants):
    """Fits only with the weights that belong to its rows, all of one parity: the rows' numbers."""

    def fit(self, X, y=None, sample_weight=None):
        np.testing.assert_array_equal(sample_weight, y)
        assert len(set(sample_weight % 2)) == 1  # the other group is for the test
        return self


@pytest.mark.parametrize("routing", [False, True])
def test_groups_and_weights_go_where_they_belong(routing):
    rows = np.arange(12)
    given = {"groups": rows % 2, "sample_weight": rows}
    with config_context(enable_metadata_routing=routing):
        estimator = Weighed((0, 1))
        if routing:
            estimator.set_fit_request(sample_weight=True)
        FeatureSelector(estimator, n_iter=5, cv=GroupKFold(2)).fit(COLUMNS, rows, **given)
        search = SearchCV(estimator, {"price": [1.0, 2.0, 3.0]}, n_iter=2, cv=GroupKFold(2), refit=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*does not support sample_weight", UserWarning)  # of some versions
            search.fit(COLUMNS, rows, **given)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"n_iter": 0}, ValueError, "n_iter: expected an integer of at least 1, got 0"),
        ({"n_iter": 2.5}, TypeError, "n_iter: expected an integer, got 2.5"),
        ({"scoring": ["r2"]}, TypeError, r"scoring: expected the name of one score, a scorer or None, got \['r2'\]"),
        ({"k": 5}, TypeError, r"FeatureSelector\(\) got an unexpected keyword argument 'k': use n_features_to_select"),
    ],
)
def test_what_a_selector_refuses(noisy, given, error, message):
    with pytest.raises(error, match=message):
        FeatureSelector(Ridge(), **given).fit(*noisy)


# Parameters.


class Hill(BaseEstimator):
    """Scores highest at a = 3, b = 100, kind = "round"; fails where a is one of `fails`."""

    def __init__(self, a=0.0, b=1.0, kind="flat", fails=()):
        self.a = a
        self.b = b
        self.kind = kind
        self.fails = fails

    def fit(self, X, y=None):
        if self.a in self.fails:
            raise RuntimeError(f"no fit for {self.a}")
        return self

    def score(self, X, y=None):
        return -((self.a - 3) ** 2) - (np.log10(self.b) - 2) ** 2 - (self.kind != "round")


EMPTY = np.zeros((12, 1))


def test_all_candidates_once_with_the_scores_of_a_grid(noisy):
    grid = {"alpha": [0.01, 1.0, 100.0], "fit_intercept": [True, False]}
    common = {"cv": 3, "return_train_score": True, "scoring": ["r2", "neg_median_absolute_error"], "refit": "r2"}
    search = SearchCV(Ridge(), grid, n_iter=1000, random_state=0, racing=False, **common).fit(*noisy)
    whole = GridSearchCV(Ridge(), grid, **common).fit(*noisy)
    assert search.cv_results_.keys() == whole.cv_results_.keys()
    where = [whole.cv_results_["params"].index(params) for params in search.cv_results_["params"]]
    assert sorted(where) == list(range(6))
    for key, column in search.cv_results_.items():
        if key != "params" and "time" not in key:
            np.testing.assert_array_equal(column, whole.cv_results_[key][where])
    assert search.best_params_ == whole.best_params_
    assert search.best_score_ == whole.best_score_
    np.testing.assert_array_equal(search.predict(noisy[0]), whole.predict(noisy[0]))


def test_as_many_candidates_as_asked_for_and_none_twice():
    space = {"a": stats.randint(0, 10), "kind": ["round", "flat"]}
    search = SearchCV(Hill(), space, n_iter=17, cv=2, random_state=1).fit(EMPTY)
    seen = [tuple(params.values()) for params in search.cv_results_["params"]]
    assert len(seen) == len(set(seen)) == 17


def test_it_learns_from_what_it_has_seen():
    space = {"a": stats.uniform(-10, 20), "b": stats.loguniform(1e-3, 1e6), "kind": ["round", "flat", "square"]}
    found = {kind: [] for kind in (SearchCV, RandomizedSearchCV)}
    for kind, scores in found.items():
        for seed in range(3):
            scores.append(kind(Hill(), space, n_iter=40, cv=ONE, random_state=seed).fit(EMPTY).best_score_)
    assert np.median(found[SearchCV]) > 0.2 * np.median(found[RandomizedSearchCV])  # the best is 0


class Folded(BaseEstimator):
    """Scores −(a − 3)², plus something of each fold, less than what tells candidates apart."""

    fits = 0

    def __init__(self, a=0.0):
        self.a = a

    def fit(self, X, y=None):
        Folded.fits += 1
        return self

    def score(self, X, y=None):
        return -((self.a - 3) ** 2) + 0.01 * np.sin(X.sum())


def test_a_race_needs_fewer_fits_for_the_same_parameters():
    X, fits = np.arange(20.0)[:, None], {}
    for racing in (False, True):
        Folded.fits = 0
        search = SearchCV(Folded(), {"a": stats.uniform(-10, 20)}, n_iter=25, cv=5, random_state=0, racing=racing)
        results = search.fit(X).cv_results_
        fits[racing] = Folded.fits - 1
        assert abs(search.best_params_["a"] - 3) < 0.1
        assert search.n_splits_ == 5
        assert search.cv == 5
    assert fits[False] == 125
    assert fits[True] == results["n_splits"].sum() < 90
    scores = np.array([results[f"split{k}_test_score"] for k in range(5)]).T
    for row, n, mean, rank, time in zip(
        scores, *(results[k] for k in ("n_splits", "mean_test_score", "rank_test_score", "mean_fit_time")), strict=True
    ):
        assert np.isnan(row).tolist() == [k >= n for k in range(5)]
        assert (mean == row.mean()) if n == 5 else np.isnan(mean)
        assert (rank == results["rank_test_score"].max()) or n == 5
        assert time >= 0


def test_only_the_parameters_of_one_dict_at_a_time():
    space = [{"kind": ["flat"]}, {"kind": ["round"], "a": [1, 2, 3]}, {"a": [5], "b": [2.0, 4.0]}]
    search = SearchCV(Hill(), space, n_iter=50, cv=2, random_state=0).fit(EMPTY)
    seen = search.cv_results_["params"]
    expected = [
        {"kind": "flat"},
        *({"kind": "round", "a": a} for a in (1, 2, 3)),
        {"a": 5, "b": 2.0},
        {"a": 5, "b": 4.0},
    ]
    assert sorted(map(str, seen)) == sorted(map(str, expected))
    assert search.best_params_ == {"kind": "round", "a": 3}
    assert search.cv_results_["param_b"].mask.tolist() == ["b" not in params for params in seen]


def test_the_parameters_of_several_dicts_are_conditional():
    grid = Grid([{"a": [1, 2, 3], "b": Float(0, 0.3, step=0.1)}, {"a": ["x", "y"]}, {}])
    assert grid.space.cardinality == 3 * 4 + 2 + 1
    codes = grid.space.family.sample(grid.space.family.initial(), 300, np.random.default_rng(0))
    points = grid.space.decode_each(codes)
    assert {(x["dict"], len(x)) for x in points} == {(0, 3), (1, 2), (2, 1)}
    assert {grid.point(x) for x in points} == set(grid.points())
    assert len(set(grid.points())) == 15


def test_a_single_candidate():
    search = SearchCV(Hill(), {"a": [2], "kind": ("round",)}, n_iter=5, cv=2).fit(EMPTY)
    assert search.cv_results_["params"] == [{"a": 2, "kind": "round"}]
    assert search.best_score_ == -1 - 4


class Remembers(BaseEstimator):
    """Scores the rows it was not given."""

    def __init__(self, a=0):
        self.a = a

    def fit(self, X, y=None):
        return self

    def score(self, X, y=None):
        return float((2.0 ** X[:, 0]).sum())


def test_shuffled_splits_are_drawn_once():
    X = np.arange(30.0)[:, None]
    search = SearchCV(Remembers(), {"a": range(10)}, n_iter=10, cv=KFold(3, shuffle=True)).fit(X)
    for k in range(3):
        assert len(set(search.cv_results_[f"split{k}_test_score"])) == 1
    selector = FeatureSelector(Remembers(), n_iter=7, cv=KFold(3, shuffle=True)).fit(np.repeat(X, 3, axis=1))
    for k in range(3):
        assert len(set(selector.cv_results_[f"split{k}_test_score"])) == 1


def two_scores(estimator, X, y=None):
    return {"up": estimator.a, "down": -estimator.a}


@pytest.mark.parametrize(
    "scoring", [two_scores, {"up": lambda e, X, y=None: e.a, "down": lambda e, X, y=None: -e.a}], ids=["one", "each"]
)
def test_of_several_scores_the_one_that_refit_names_is_searched_for(scoring):
    space = {"a": stats.randint(0, 1000)}
    up, down = (
        SearchCV(Hill(), space, n_iter=20, cv=ONE, random_state=0, scoring=scoring, refit=name).fit(EMPTY)
        for name in ("up", "down")
    )
    assert up.multimetric_
    assert np.mean(up.cv_results_["mean_test_up"]) > 700
    assert np.mean(down.cv_results_["mean_test_up"]) < 300
    assert up.best_score_ == up.cv_results_["mean_test_up"].max() == up.best_params_["a"]
    for refit in (False, lambda results: 0):  # the first score
        search = SearchCV(Hill(), space, n_iter=20, cv=ONE, random_state=0, scoring=scoring, refit=refit).fit(EMPTY)
        assert (search.cv_results_["mean_test_up"] == up.cv_results_["mean_test_up"]).all()


def test_param_grid_is_another_name_of_param_distributions():
    grid = {"a": [1, 2, 3], "b": [10, 100]}
    one = SearchCV(Hill(), grid, n_iter=4, cv=ONE, random_state=0).fit(EMPTY)
    other = SearchCV(Hill(), param_grid=grid, n_iter=4, cv=ONE, random_state=0)
    assert clone(other).get_params()["param_grid"] == grid
    assert other.fit(EMPTY).cv_results_["params"] == one.cv_results_["params"]
    for both in ({}, {"param_grid": grid, "param_distributions": grid}):
        with pytest.raises(TypeError, match="param_distributions: expected either these or param_grid, got"):
            SearchCV(Hill(), cv=ONE, **both).fit(EMPTY)


def test_arguments_of_other_libraries_name_the_right_one():
    with pytest.raises(TypeError, match=r"SearchCV\(\) got an unexpected keyword argument 'rng': use random_state"):
        SearchCV(Hill(), {"a": [1, 2]}, rng=0)
    with pytest.raises(
        TypeError, match=r"; expected a call such as FeatureSelector\(estimator, n_features_to_select=5"
    ):
        FeatureSelector(Hill(), 5)


def test_a_choice_of_one_is_a_constant():
    search = SearchCV(Hill(), {"a": [1, 2, 3], "b": Choice(10)}, n_iter=9, cv=ONE, random_state=0).fit(EMPTY)
    assert sorted(params["a"] for params in search.cv_results_["params"]) == [1, 2, 3]
    assert search.best_params_["b"] == 10


def test_candidates_that_cannot_be_fitted_rank_worst_and_are_in_the_results():
    firsts = []
    for seed in range(4):
        search = SearchCV(Hill(fails=range(4, 12)), {"a": range(12)}, n_iter=6, cv=2, random_state=seed)
        with pytest.warns(FitFailedWarning, match=r"(?s)fits failed out of a total of .*no fit for"):
            search.fit(EMPTY)
        seen = {params["a"]: score for params, score in zip(*(search.cv_results_[k] for k in KEYS), strict=True)}
        assert len(seen) == 6
        assert {a for a, score in seen.items() if score != score} == {a for a in seen if a >= 4}
        assert search.best_params_["a"] == max(a for a in seen if a < 4)
        firsts.append([a >= 4 for a in seen][:2])
    assert [True, True] in firsts  # which by itself ends a search of scikit-learn's


KEYS = ("params", "mean_test_score")


def test_where_all_candidates_fail_the_search_says_so():
    failing = Hill(fails=range(10))
    with pytest.raises(ValueError, match=r"(?s)All the \d+ fits failed.*no fit for"):
        SearchCV(failing, {"a": range(10)}, n_iter=7, cv=2).fit(EMPTY)
    with pytest.raises(RuntimeError, match="no fit for"):
        SearchCV(failing, {"a": range(10)}, n_iter=7, cv=2, error_score="raise").fit(EMPTY)


class Loaded:
    """A distribution of unknown range."""

    def rvs(self, random_state=None):
        return 4


@pytest.mark.parametrize(
    ("given", "variable"),
    [
        (stats.randint(2, 10), Integer(2, 9)),
        (stats.randint(-5, 100, loc=5), Integer(0, 104)),
        (stats.uniform(1, 3), Float(1, 4)),
        (stats.beta(1, 1, loc=-1, scale=2), Float(-1, 1)),
        (stats.loguniform(1e-3, 1e2), Float(1e-3, 1e2, log=True)),
        (stats.reciprocal(2, 8), Float(2, 8, log=True)),
        (Integer(1, 1000, log=True), Integer(1, 1000, log=True)),
        (Float(0, 1, step=0.25), Float(0, 1, step=0.25)),
        (range(3, 30, 3), Integer(0, 8)),
        (np.logspace(-3, 3, 7), Integer(0, 6)),
        ([100, 1, 10.0], Integer(0, 2)),
        ([1, 2], Choice(0, 1)),
        ([None, 3, 5], Choice(0, 1, 2)),
        ([1, 1.0, 0.5], Choice(0, 1, 2)),  # one feature, and all of them
        ([True, False, True], Choice(0, 1)),
        (Choice("x", "y", p=[0.9, 0.1]), Choice(0, 1, p=[0.9, 0.1])),
    ],
)
def test_what_users_write_as_variables(given, variable):
    grid = Grid({"a": given})
    assert grid.space.columns()[0].variable == variable


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ([100, 1, 10.0], [1, 10.0, 100]),
        ([1, 1.0, 0.5], [1, 1.0, 0.5]),
        ([Ridge, None, Ridge], [Ridge, None]),
        (np.array([3.0, 1.0, 2.0]), [*np.array([1.0, 2.0, 3.0])]),
        (stats.randint(4, 7), [4, 5, 6]),
        (stats.randint(4, 5), [4]),
        (Choice("x", (1, 2)), ["x", (1, 2)]),
    ],
)
def test_every_option_is_a_candidate_as_it_was_written(given, values):
    grid = Grid({"a": given})
    codes = grid.space.family.sample(grid.space.family.initial(), 300, np.random.default_rng(0))
    seen = {grid.point(x): grid.parameters(grid.point(x))["a"] for x in grid.space.decode_each(codes)}
    assert len(seen) == len(values)
    assert sorted(map(repr, seen.values())) == sorted(map(repr, values))


class Counting:
    """An option that counts how often it is compared."""

    compared = 0

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        Counting.compared += 1
        return self.number == other.number

    def __hash__(self):
        return hash(self.number)


@pytest.mark.parametrize("wrap", [lambda option: option, lambda option: [option]], ids=["hashable", "lists"])
def test_the_number_of_comparisons_is_not_quadratic_in_the_number_of_options(wrap):
    Counting.compared = 0
    options = [wrap(Counting(i % 300)) for i in range(600)]
    assert len(Grid({"a": options}).dicts[0]["a"].options) == 300
    assert Counting.compared <= 3000


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (stats.norm(0, 1), ValueError, r"\['a'\]: expected a distribution that is uniform, .*, got norm; .*Float"),
        (stats.truncnorm(-1, 1), ValueError, "got truncnorm"),
        (stats.expon(scale=100), ValueError, "got expon"),
        (stats.poisson(3), ValueError, "got poisson"),
        (stats.binom(5, 0.5), ValueError, "got binom"),
        (stats.randint(0, 5, loc=0.5), ValueError, "got randint"),
        (stats.loguniform(1, 10, loc=5), ValueError, "got loguniform|got reciprocal"),
        (Loaded(), ValueError, "got <.*Loaded"),
        ("rbf", TypeError, "expected a list, a distribution, or one Integer, Float or Choice, got 'rbf'"),
        (3, TypeError, "got 3"),
        (Binary(3), TypeError, r"got Binary\(3\)"),
        (Float(0, 1, n=2), TypeError, "got Float"),
        (Float(0, 1).when(b=2), TypeError, "; variables are given as a dict, and conditional ones as a list of dicts"),
        ([], ValueError, r"param_distributions\['a'\]: expected at least one option, got none"),
    ],
)
def test_what_a_search_refuses(given, error, message):
    with pytest.raises(error, match=message):
        SearchCV(Hill(), {"a": given}, cv=2).fit(EMPTY)


def test_a_tuple_that_may_be_meant_as_a_range_is_two_options_with_a_warning():
    with pytest.warns(UserWarning, match=r"\(0.1, 10\) is read as two options.* written kl.Float\(0.1, 10\)$"):
        search = SearchCV(Hill(), {"a": (0.1, 10)}, cv=ONE).fit(EMPTY)
    assert list(search.cv_results_["param_a"]) == [0.1, 10]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SearchCV(Hill(), {"a": [0.1, 10]}, cv=ONE).fit(EMPTY)


@pytest.mark.parametrize("given", [3, "a", [], [3], {1, 2}, Space(a=Float(0, 1))], ids=str)
def test_only_dicts_are_spaces(given):
    with pytest.raises(TypeError, match="param_distributions: expected a dict or a list of dicts, got"):
        SearchCV(Hill(), given, cv=2).fit(EMPTY)
    with pytest.raises(ValueError, match="n_iter: expected an integer of at least 1, got 0"):
        SearchCV(Hill(), {"a": [1, 2]}, n_iter=0, cv=2).fit(EMPTY)


@pytest.mark.parametrize(("wanted", "sizes"), [(2, {2}), ((1, 3), {1, 2, 3}), (5, {5}), ((4, 5), {4, 5})])
def test_only_subsets_with_the_number_of_features_asked_for(noisy, wanted, sizes):
    selector = FeatureSelector(Ridge(), n_features_to_select=wanted, n_iter=30, cv=3, random_state=0).fit(*noisy)
    each = selector.cv_results_["support"]
    assert set(each.sum(axis=1)) == sizes  # so few subsets that all are evaluated
    assert len(set(map(tuple, each))) == len(each) == sum(sum(mask) in sizes for mask in subsets(5))
    assert selector.n_features_ in sizes


@pytest.mark.parametrize(
    ("wanted", "error"), [(6, ValueError), (0, ValueError), ((0, 3), ValueError), (True, TypeError), (0.5, TypeError)]
)
def test_wrong_numbers_of_features(noisy, wanted, error):
    message = f"n_features_to_select: expected a number from 1 to 5, or the smallest and the largest, got {wanted!r}"
    with pytest.raises(error, match=re.escape(message)):
        FeatureSelector(Ridge(), n_features_to_select=wanted).fit(*noisy)
