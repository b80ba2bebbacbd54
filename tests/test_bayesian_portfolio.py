"""Bayesian optimization before the portfolio: the Gaussian process, its points, when it ends, and where it is used."""

from __future__ import annotations

import itertools
import json
import math
import os
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import conftest
import knobless as kl
from conftest import check_continuations
from knobless.core.bayesian_portfolio import MOST_BAYESIAN, MOST_BITS, MOST_UNIMPROVED, RANDOM_POINTS
from knobless.core.description import algorithm_data, algorithm_of
from knobless.core.gaussian_process import (
    DIGITS,
    FIRST_UPDATES,
    SHARES,
    GaussianProcess,
    correlations,
    distances,
    first_shares,
    scaled_values,
)
from knobless.core.rng import Stream
from knobless.core.states import state_data, state_of
from knobless.core.violation import FEASIBLE_LIMIT

N = 12
FAMILY = kl.Bernoulli(N)


def all_points(n):
    """Return all points of n bits, as −1 and 1."""
    return np.array([*itertools.product([-1.0, 1.0], repeat=n)])


def products(s, order):
    """Return the products of each `order` of the columns."""
    return np.array([s[:, list(each)].prod(axis=1) for each in itertools.combinations(range(s.shape[1]), order)]).T


def rugged(x):
    """Products of neighbors and a rough part; few values are equal."""
    weights = np.sqrt(np.arange(2.0, 2.0 + x.shape[1]))
    return 3.0 * (x[:, 1:] != x[:, :-1]).sum(axis=1) + (x * weights).sum(axis=1) % 3.0


steps = partial(conftest.steps, rugged)


# The process.


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_correlations_are_those_of_random_sums_of_products(n):
    s = all_points(n)
    d = distances(s, s)
    assert (d == (s[:, None] != s).sum(axis=2)).all()
    assert len(correlations(n)) == min(n, 4)
    for order, table in enumerate(correlations(n), 1):
        phi = products(s, order)
        np.testing.assert_allclose(table[d], phi @ phi.T / math.comb(n, order), atol=1e-12)


def plain(process, y, at):
    """Return means and standard deviations at points, by the formulas of a Gaussian process without shortcuts."""
    covariance = lambda a, b: process.table[(a[:, None] != b).sum(axis=2)]  # noqa: E731
    k = covariance(process.s, process.s) + process.shares[-1] * np.eye(len(y))
    inverse = np.linalg.inv(k)
    level = (inverse @ y).sum() / inverse.sum()
    variance = (y - level) @ inverse @ (y - level) / len(y)
    rows = covariance(at, process.s)
    explained = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    return level + rows @ inverse @ (y - level), np.sqrt(variance * (process.table[0] - explained))


def example(m=20, n=6, seed=0):
    """Return a process at m random points and values there."""
    rng = np.random.default_rng(seed)
    s = rng.permutation(all_points(n))[:m]
    return s, rng.normal(size=m) + s[:, 0]


def test_points_that_are_added_one_by_one_give_the_same_process():
    s, y = example()
    whole = GaussianProcess.fit(s, y, first_shares(6), FIRST_UPDATES)
    parts = GaussianProcess.of(s, whole.shares, 8)
    np.testing.assert_allclose(parts.root, whole.root, atol=1e-9)
    again = GaussianProcess.of(s[:8], whole.shares, 8).extended(s[8:11]).extended(s[11:])
    assert (again.root == parts.root).all()  # a saved state is rebuilt in the same way
    k = whole.table[distances(s, s)] + whole.shares[-1] * np.eye(len(s))
    np.testing.assert_allclose(whole.root @ k @ whole.root.T, np.eye(len(s)), atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_means_and_expected_improvements_are_those_of_the_formulas(seed):
    s, y = example(seed=seed)
    posterior = GaussianProcess.fit(s, y, first_shares(6), FIRST_UPDATES).given(y)
    points, fixed = all_points(6), np.array([False, True, False, False, False, False])
    expected, deviation = plain(posterior.process, y, points)
    np.testing.assert_allclose([posterior.mean(each) for each in points], expected, atol=1e-9)
    bits, improvements = posterior.improvements(points, 6, fixed)
    at = {point.tobytes(): i for i, point in enumerate(points)}
    known = {point.tobytes() for point in s}
    for point, own_bits, own in zip(points, bits, improvements, strict=True):
        assert sorted(own_bits.tolist()) == [*range(6)]
        for bit, improvement in zip(own_bits.tolist(), own.tolist(), strict=True):
            changed = point.copy()
            changed[bit] *= -1.0
            if fixed[bit] or changed.tobytes() in known:
                assert improvement == -math.inf
                continue
            i = at[changed.tobytes()]
            z = (y.min() - expected[i]) / deviation[i]
            density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
            value = deviation[i] * (z * 0.5 * math.erfc(-z * math.sqrt(0.5)) + density)
            assert improvement == pytest.approx(value, rel=1e-2, abs=2.0**-DIGITS * 2.0 * deviation[i])
        lowest = [expected[at[(point * np.where(np.arange(6) == bit, -1.0, 1.0)).tobytes()]] for bit in own_bits]
        finite = [mean for mean, each in zip(lowest, own.tolist(), strict=True) if each > -math.inf]
        assert (np.diff(finite) >= -(2.0 ** (1 - DIGITS))).all()  # those with the lowest means come first


def evidence(s, y, shares):
    """Return the logarithm of the evidence, with the best level and variance."""
    k = (shares[:-1] @ correlations(s.shape[1]))[distances(s, s)] + shares[-1] * np.eye(len(y))
    inverse = np.linalg.inv(k)
    rest = y - (inverse @ y).sum() / inverse.sum()
    return -0.5 * (len(y) * math.log(rest @ inverse @ rest / len(y)) + np.linalg.slogdet(k)[1])


@pytest.mark.parametrize("order", [1, 2, 3])
def test_shares_show_the_order_of_a_function(order):
    rng = np.random.default_rng(order)
    s = rng.choice([-1.0, 1.0], size=(120, 8))
    s = np.unique(s, axis=0)
    phi = products(s, order)
    y = phi @ rng.normal(size=phi.shape[1])
    shares = first_shares(8)
    for _ in range(5):
        shares = GaussianProcess.fit(s, y, shares, 3).shares
    assert shares.sum() == pytest.approx(1.0, abs=1e-3)
    assert shares.argmax() == order - 1
    assert shares[order - 1] > 0.8
    assert evidence(s, y, shares) > evidence(s, y, first_shares(8)) + 1.0


values = st.lists(st.floats(-1e6, 1e6).map(lambda f: round(f, 3)), min_size=2, max_size=20)


@given(values, st.sampled_from([0.5, 3.0, 1e6]), st.sampled_from([-7.0, 0.0, 1e3]))
def test_scaled_values_keep_their_order_and_ignore_shifts_and_units(f, unit, shift):
    f = np.array(f)
    y = scaled_values(f)
    assert y.min() == 0.0
    assert (np.diff(y[f.argsort()]) >= 0.0).all()
    if np.ptp(f) > 1e-3:
        np.testing.assert_allclose(scaled_values(unit * f + shift), y, atol=1e-6 * (1.0 + y.max()))


def test_failed_and_infeasible_points_count_as_the_worst():
    y = scaled_values(np.array([1.0, 2.0, 3.0, math.inf, math.nan, 2.0 * FEASIBLE_LIMIT]))
    assert y.tolist() == [0.0, *y[1:2], *[y[2]] * 4]
    assert not scaled_values(np.array([math.nan, math.inf])).any()
    only = scaled_values(FEASIBLE_LIMIT * np.array([4.0, 2.0, 3.0]))  # the violations count where no point is feasible
    assert only.argsort().tolist() == [1, 2, 0]
    assert np.isfinite(scaled_values(np.array([-1.7e308, 0.0, 1.7e308, -math.inf]))).all()


def test_shares_are_a_distribution():
    assert SHARES.sum() == pytest.approx(1.0)


# The search.


def test_points_are_new_until_the_portfolio_starts_from_the_best():
    algorithm, evaluated = kl.portfolio(FAMILY), {}
    for state, x in steps(algorithm):
        if state.rest is not None:
            break
        assert len(x) == 1
        assert x[0].tobytes() not in evaluated
        assert (len(state.points) == 0) == (len(evaluated) < RANDOM_POINTS)
        evaluated[x[0].tobytes()] = float(rugged(x)[0])
        best = min(evaluated, key=evaluated.get)
    since = len(evaluated) - [*evaluated].index(best) - 1
    assert len(evaluated) == MOST_BAYESIAN or since == MOST_UNIMPROVED + 1
    assert state.x0.tobytes() == best
    assert x[0].tobytes() == best  # where P3 starts
    assert state.rest.before == len(evaluated)
    assert FAMILY.mode(state.theta).tobytes() == best


def test_an_improvement_now_and_then_keeps_it_up_to_its_length():
    algorithm, count = kl.portfolio(kl.Bernoulli(20)), itertools.count()
    run = conftest.steps(lambda x: -float(next(count)) * np.ones(1), algorithm)
    evaluated = [x for state, x in itertools.islice(run, MOST_BAYESIAN + 1)]
    assert len(np.unique(np.concatenate(evaluated[:MOST_BAYESIAN]), axis=0)) == MOST_BAYESIAN
    assert (evaluated[MOST_BAYESIAN] == evaluated[MOST_BAYESIAN - 1]).all()


def test_the_most_probable_point_is_the_best_one():
    algorithm, best = kl.portfolio(FAMILY), (math.inf, None)
    for state, x in itertools.islice(steps(algorithm), 60):
        if best[1] is not None:
            assert FAMILY.mode(state.theta).tobytes() == best[1]
            assert algorithm.info(state).theta is state.theta
        best = min(best, (float(rugged(x)[0]), x[0].tobytes()))


@pytest.mark.parametrize("n", [3, RANDOM_POINTS + 1, 45, MOST_BAYESIAN + 20])
def test_copies_and_saved_states_continue_as_the_original(n):
    algorithm, rng = kl.portfolio(FAMILY), Stream(1)
    state, _ = next(itertools.islice(steps(algorithm, rng=rng), n, None))
    assert (state.rest is None) == (n < MOST_UNIMPROVED)
    check_continuations(rugged, algorithm, state, 30)


@pytest.mark.parametrize(
    "change",
    [
        {"evaluations": None},
        {"fit": None},
        {"fixed": [N]},
        {"fixed": "0"},
        {"fit": {"shares": "", "fitted": 10}},
        {"fit": {"fitted": 0}},
        {"fit": {"fitted": 10**6}},
    ],
)
def test_states_that_are_none_are_refused(change):
    algorithm = kl.portfolio(FAMILY)
    state, _ = next(itertools.islice(steps(algorithm), 20, None))
    data = json.loads(json.dumps(state_data(algorithm, state)))
    assert state_of(algorithm, data, None).x.shape == (20, N)
    if isinstance(change.get("fit"), dict):
        change = {"fit": data["fit"] | change["fit"]}
    with pytest.raises((ValueError, TypeError, LookupError)):
        state_of(algorithm, data | change, None)


def test_several_points_of_an_iteration_are_different():
    algorithm = kl.portfolio(FAMILY).at_least(6)
    evaluated = set()
    for state, x in itertools.islice(steps(algorithm), 12):  # noqa: B007
        assert len(np.unique(x, axis=0)) == 6
        assert not evaluated & {row.tobytes() for row in x}
        evaluated |= {row.tobytes() for row in x}
    apart = [algorithm.ask(state, Stream(7), size, start) for start, size in ((0, 1), (1, 3), (4, 2))]
    assert (np.concatenate(apart) == x).all()


def test_it_starts_at_x0():
    x0 = np.arange(N) % 2
    algorithm = kl.portfolio(FAMILY)
    _, x = next(steps(algorithm, state=algorithm.init(None, x0)))
    assert (x == x0).all()
    assert x.dtype == FAMILY.dtype


@pytest.mark.parametrize("value", [math.nan, 1.0])
def test_values_without_order_do_not_end_the_search(value):
    algorithm, seen = kl.portfolio(FAMILY), set()
    for state, x in itertools.islice(conftest.steps(lambda x: np.full(len(x), value), algorithm), MOST_UNIMPROVED):
        assert state.rest is None
        seen.add(x[0].tobytes())
    assert len(seen) == MOST_UNIMPROVED


@pytest.mark.parametrize("n", [3, 5, 8])
def test_small_spaces_are_exhausted(n):
    seen = []
    fun = lambda x: seen.append(x.tobytes()) or float(rugged(x[None])[0])  # noqa: E731
    result = kl.minimize(fun, kl.Binary(n), budget=1000, rng=0, deterministic=True)
    assert result.status == kl.Status.EXHAUSTED
    assert len(seen) == len(set(seen)) == 2**n
    assert result.fun == rugged((all_points(n) > 0).astype(int)).min()


def test_fixed_variables_keep_their_values_and_the_others_are_searched():
    space = kl.Space(a=kl.Binary(10), b=kl.Binary(5))
    opt = kl.Optimizer(space, rng=0, deterministic=True, fixed={"b": [1, 0, 1, 1, 0]})
    for _ in range(60):
        batch = opt.ask()
        assert all(each.x["b"].tolist() == [1, 0, 1, 1, 0] for each in batch)
        opt.tell(batch, [float(rugged(np.concatenate([*each.x.values()])[None])[0]) for each in batch])
    assert opt.run.search.rest is None
    assert opt.run.search.fixed.nonzero()[0].tolist() == [10, 11, 12, 13, 14]
    assert opt.nfev == 60
    search = opt.run.search
    saved = state_of(opt.algorithm, json.loads(json.dumps(state_data(opt.algorithm, search))), None)
    assert (saved.points == search.points).all()


def test_a_variable_that_was_fixed_for_some_points_is_searched_later():
    space = kl.Space(a=kl.Binary(1), b=kl.Binary(14))
    for value in (0, 1):
        opt, free = kl.Optimizer(space, rng=1, deterministic=True), []
        while opt.nfev < 90:
            batch = opt.ask() if opt.nfev >= 30 else opt.ask(fixed={"a": [value]})
            free += [int(each.x["a"][0]) for each in batch] if opt.nfev >= 30 else []
            opt.tell(batch, [float(rugged(np.concatenate([*each.x.values()])[None])[0]) for each in batch])
        assert 1 - value in free


def test_known_random_points_do_not_end_the_search():
    algorithm = kl.portfolio(FAMILY)
    state = algorithm.tell(algorithm.init(), np.zeros((1, N), FAMILY.dtype), np.ones(1))
    assert algorithm.tell(state, np.zeros((1, N), FAMILY.dtype), np.ones(1)).rest is None


@pytest.mark.parametrize("batch", [1, 4])
def test_cancelled_points_count_as_failures(batch):
    algorithm = kl.portfolio(FAMILY).at_least(batch)
    state, x = next(itertools.islice(steps(algorithm), 20, None))
    left = x[: batch // 2]
    after = algorithm.tell(state, left, rugged(left))
    assert len(after.f) == len(state.f) + batch
    assert np.isinf(after.f[len(state.f) + len(left) :]).all()
    again = algorithm.ask(after, Stream(2))
    assert not {row.tobytes() for row in again} & {row.tobytes() for row in x}


def test_a_large_batch_has_random_points_after_those_of_the_process():
    algorithm = kl.portfolio(kl.Bernoulli(20)).at_least(400)
    state = algorithm.init()
    x = np.unique(algorithm.ask(state, Stream(1), 12), axis=0)
    state = algorithm.tell(state, x, rugged(x))
    assert len(state.points) <= MOST_BAYESIAN
    assert len(algorithm.ask(state, Stream(2))) == 400


def test_choices_of_two_are_searched_as_bits():
    space = kl.Choice("no", "yes", n=N)
    asked = []
    for each in (space, kl.Binary(N)):
        opt = kl.Optimizer(each, rng=0, deterministic=True)
        for _ in range(40):
            batch = opt.ask()
            codes = opt.run.codes_of(batch.ids)
            asked.append(codes[0].tolist())
            opt.tell(batch, rugged(codes))
    assert asked[:40] == asked[40:]


def cost(x):
    return float(rugged(np.asarray(x)[None])[0])


def look(opt):
    best = opt.best and (opt.best.x.tolist(), opt.best.fun)
    return opt.theta.tolist(), best, opt.nfev, opt.nit, opt.lam, [(c.id, c.x.tolist()) for c in opt.pending]


@pytest.mark.parametrize("how", ["snapshot", "journal"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("calls", [RANDOM_POINTS - 4, 40])
@pytest.mark.parametrize("deterministic", [True, None], ids=["deterministic", "not declared"])
def test_a_run_that_is_resumed_is_the_run_that_never_stopped(deterministic, calls, batch, how, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # this is not about the disk, which is slow
    path, space = tmp_path / "run", kl.Binary(N)
    given = {"rng": 5, "deterministic": deterministic, "batch": batch}

    def begun(**options):
        opt = kl.Optimizer(space, **given, **options)
        while opt.nfev < calls:
            out = opt.ask()
            opt.tell(out, [cost(candidate.x) for candidate in out])
        out = opt.ask()
        opt.tell(out[: len(out) // 2], [cost(candidate.x) for candidate in out[: len(out) // 2]])
        return opt

    expected = begun()
    assert expected.run.search.rest is None
    if how == "snapshot":
        begun().save(path)
        opt = kl.Optimizer.load(path, space)
    else:
        begun(journal=path).close()
        opt = kl.Optimizer(space, journal=path, **given)
        if len(opt.pending) < len(expected.pending):  # candidates without a value are handed out again
            opt.ask(len(expected.pending))
    assert opt.algorithm == expected.algorithm == kl.portfolio(space).at_least(batch)
    assert look(opt) == look(expected)
    for each in (opt, expected):
        left = each.pending
        each.tell(left, [cost(candidate.x) for candidate in left])
    while expected.nfev < MOST_BAYESIAN + 60:
        out, same = opt.ask(), expected.ask()
        assert [c.x.tolist() for c in out] == [c.x.tolist() for c in same]
        for each in (opt, expected):
            each.tell(out, [cost(candidate.x) for candidate in out])
        assert look(opt) == look(expected)
    assert opt.run.search.rest.before == expected.run.search.rest.before > calls
    opt.close()


@pytest.mark.parametrize("batch", [1, 8])
def test_minimize_in_parts_with_a_journal_is_minimize_in_one(batch, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def run(budget, **options):
        points = []
        fun = lambda x: points.append(x.tolist()) or cost(x)  # noqa: E731
        result = kl.minimize(fun, kl.Binary(N), budget=budget, rng=2, batch=batch, **options)
        return points, (result.x.tolist(), result.fun, result.nfev, result.nit, result.mode.tolist())

    expected, parts = run(MOST_BAYESIAN + 40), []
    for budget in (5, 50, 51, 90, MOST_BAYESIAN + 40):
        points, last = run(budget, journal=tmp_path / "run.sqlite")
        parts += points
    assert (parts, last) == expected


def test_interactions_are_found_with_fewer_evaluations_than_without():
    def run(algorithm, seed):
        q = np.random.default_rng(seed).normal(size=(20, 20))
        options = {"algorithm": algorithm, "rng": seed, "deterministic": True}
        return kl.minimize(lambda x: float(x @ q @ x), kl.Binary(20), budget=100, **options).fun

    bayesian = kl.portfolio(kl.Binary(20))
    found = np.array([[run(each, seed) for each in (bayesian, bayesian.rest)] for seed in range(8)])
    assert (found[:, 0] <= found[:, 1]).sum() >= 6
    assert found[:, 0].mean() < found[:, 1].mean()


@pytest.mark.parametrize(
    ("space", "type_"),
    [
        (kl.Binary(2), kl.Portfolio),
        (kl.Binary(3), kl.BayesianPortfolio),
        (kl.Binary(MOST_BITS), kl.BayesianPortfolio),
        (kl.Choice("a", "b", n=MOST_BITS), kl.BayesianPortfolio),
        (kl.Binary(MOST_BITS + 1), kl.QuadraticPortfolio),
        (kl.Choice(*"abc", n=4), kl.GuidedPortfolio),
        (kl.Subset(9, 3), kl.Portfolio),
    ],
)
def test_it_is_used_for_three_to_fifty_bits(space, type_):
    assert type(kl.portfolio(space)) is type_


def test_what_is_refused():
    later = kl.portfolio(FAMILY).rest
    with pytest.raises(TypeError, match=r"^rest: expected a QuadraticPortfolio, got Portfolio"):
        kl.BayesianPortfolio(later.rest)
    with pytest.raises(ValueError, match=r"^rest: expected a portfolio over at most 50 bits, got 51"):
        kl.BayesianPortfolio(kl.portfolio(kl.Binary(51)))
    with pytest.raises(ValueError, match=r"^batch: "):
        kl.BayesianPortfolio(later, 0)
    data = algorithm_data(kl.portfolio(FAMILY))
    for change in ({"batch": 0}, {"batch": True}, {"rest": algorithm_data(later.rest)}, {"more": 1}):
        with pytest.raises(ValueError, match="expected"):
            algorithm_of({"bayesian_portfolio": data["bayesian_portfolio"] | change}, FAMILY)
