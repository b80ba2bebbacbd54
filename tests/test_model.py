"""Bayesian optimization with a Gaussian process: the process, its points, when it ends, and where it is used."""

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
from conftest import SPACES, check_continuations, members_alone, saved_and_restored
from knobless.algorithms import Model
from knobless.core.acquisition import Prior, log_improvement, log_probability_below, reflected
from knobless.core.description import algorithm_data, algorithm_of
from knobless.core.kernel import (
    ACTIVITY,
    BLOCK_SIZE,
    LEAST_NOISE,
    MANY_BITS,
    Covariance,
    Encoding,
    Process,
    correlations,
    inverse_root,
    product,
    scaled_values,
)
from knobless.core.model import MOST_EVALUATIONS, MOST_FIRST, MOST_UNIMPROVED, MOST_VARIABLES
from knobless.core.rng import Stream
from knobless.core.surrogate import objective, violation
from knobless.core.violation import FEASIBLE_LIMIT, ranked
from knobless.families import Bernoulli

EVERY = sorted(SPACES)
KINDS = {
    "bits": kl.Binary(12),
    "mixed": kl.Space(
        bits=kl.Binary(3),
        kind=kl.Choice("a", "b", "c"),
        rate=kl.Float(1e-4, 1.0, log=True),
        depth=kl.Integer(1, 100, log=True),
        share=kl.Float(-1.0, 1.0),
    ),
    "bits and more": kl.Space(bits=kl.Binary(MANY_BITS), kind=kl.Choice("a", "b", "c"), share=kl.Float(0.0, 1.0)),
    "branches": SPACES["branches with numbers"],
}
KIND = pytest.mark.parametrize("kind", sorted(KINDS))


def rugged(x):
    """Return values of points in which neighbors interact; few are equal."""
    weights = np.sqrt(np.arange(2.0, 2.0 + x.shape[1]))
    return 3.0 * np.abs(np.diff(x, axis=1)).sum(axis=1) + (x * weights).sum(axis=1) % 3.0


steps = partial(conftest.steps, rugged)


def model_of(state):
    """Return the state of the model in that of a search."""
    return state.stages[0]


def example(kind, m=30, seed=0):
    """Return an encoding, random points with centered numbers, and their values."""
    family = kl.Space.of(KINDS[kind]).family
    encoding = Encoding(family)
    x = encoding.centered(family.sample(family.initial(), m, Stream(seed)))
    return encoding, x, scaled_values(rugged(x) + np.random.default_rng(seed).normal(size=m))


# The process.


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_correlations_are_those_of_random_sums_of_products(n):
    s = np.array([*itertools.product([-1.0, 1.0], repeat=n)])
    d = (s[:, None] != s).sum(axis=2)
    assert len(correlations(n)) == min(n, 4)
    for order, table in enumerate(correlations(n), 1):
        phi = np.array([s[:, list(each)].prod(axis=1) for each in itertools.combinations(range(n), order)]).T
        np.testing.assert_allclose(table[d], phi @ phi.T / math.comb(n, order), atol=1e-12)


def plain_covariance(encoding, a, b, theta):
    """Return the covariance by its definition, one pair of points after the other."""
    family, n = encoding.family, len(encoding.others)
    lengths = dict(zip(encoding.others.tolist(), np.exp(theta[:n]).tolist(), strict=True))
    shares = np.exp(theta[n + 1 :]) / np.exp(theta[n + 1 :]).sum()
    active = encoding.active(np.concatenate([a, b]))
    found = np.empty((len(a), len(b)))
    for i, j in np.ndindex(found.shape):
        square = 0.0
        for column, length in lengths.items():
            k, one, other = int(family.options[column]), active[i, column], active[len(a) + j, column]
            if one and other:
                d = abs(a[i, column] - b[j, column])
                own = float(d > 0) if k else d**2
            elif one or other:  # the distance from the center of its values, and that of activity
                value = a[i, column] if one else b[j, column]
                own = (0.5 * (1.0 - 1.0 / k) if k else (value - 0.5) ** 2) + ACTIVITY**2
            else:
                own = 0.0
            square += own / length**2
        r = math.sqrt(5.0 * square)
        found[i, j] = (1.0 + r + r * r / 3.0) * math.exp(-r)
        if len(shares):
            d = (a[i, encoding.bits] != b[j, encoding.bits]).sum()
            found[i, j] *= shares @ correlations(len(encoding.bits))[:, d]
    return found


def random_theta(encoding, x, seed=0):
    """Return random hyperparameters, from the prior."""
    covariance = Covariance(encoding, x)
    return covariance.mean + 0.5 * covariance.spread * np.random.default_rng(seed).normal(size=len(covariance.mean))


@KIND
def test_means_and_deviations_are_those_of_the_formulas(kind):
    encoding, x, y = example(kind)
    theta = random_theta(encoding, x)
    noise = math.exp(theta[len(encoding.others)]) + LEAST_NOISE
    at = example(kind, 10, seed=1)[1]
    inverse = np.linalg.inv(plain_covariance(encoding, x, x, theta) + noise * np.eye(len(x)))
    level = (inverse @ y).sum() / inverse.sum()
    variance = (y - level) @ inverse @ (y - level) / len(y)
    rows = plain_covariance(encoding, at, x, theta)
    mean, deviation = Process.of(encoding, x, y, theta).predict(at)
    np.testing.assert_allclose(mean, level + rows @ inverse @ (y - level), atol=1e-6)
    explained = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    np.testing.assert_allclose(deviation**2, variance * np.maximum(1.0 - explained, LEAST_NOISE), atol=1e-6)


def with_linear_part(kind, seed=0):
    """Return the covariance with a linear part, random hyperparameters, points and their values."""
    plain, x, y = example(kind, seed=seed)
    encoding = Encoding(plain.family, linear=True)
    covariance = Covariance(encoding, x)
    return covariance, random_theta(encoding, x, seed), x, y


@KIND
def test_under_noise_the_covariance_has_a_linear_part(kind):
    covariance, theta, x, y = with_linear_part(kind)
    encoding, n = covariance.encoding, len(covariance.encoding.others)
    share = 1.0 / (1.0 + math.exp(-theta[n + 1]))
    features = encoding.family.features(x) / math.sqrt(encoding.family.dim)
    rest = plain_covariance(Encoding(encoding.family), x, x, np.delete(theta, n + 1))
    k = share * features @ features.T + (1.0 - share) * rest
    inverse = np.linalg.inv(k + (math.exp(theta[n]) + LEAST_NOISE) * np.eye(len(x)))
    level = (inverse @ y).sum() / inverse.sum()
    process = Process.of(encoding, x, y, theta)
    mean, deviation = process.predict(x)
    np.testing.assert_allclose(mean, level + k @ inverse @ (y - level), atol=1e-6)
    left = np.maximum(np.diag(k) - np.einsum("ij,jk,ik->i", k, inverse, k), LEAST_NOISE)
    np.testing.assert_allclose(deviation**2, process.variance * left, atol=1e-6)
    gradient = covariance.density(theta, y)[1]
    for i, step in enumerate(1e-5 * np.eye(len(theta))):
        difference = (covariance.density(theta + step, y)[0] - covariance.density(theta - step, y)[0]) / 2e-5
        assert gradient[i] == pytest.approx(difference, abs=1e-4, rel=1e-4)


@KIND
def test_a_point_that_is_believed_changes_deviations_alone(kind):
    encoding, x, y = example(kind)
    theta = random_theta(encoding, x)
    process, at, new = Process.of(encoding, x, y, theta), *(example(kind, 10, seed=s)[1] for s in (1, 2))
    for point in new:
        process = process.believing(point)
    mean, deviation = process.predict(at)
    np.testing.assert_allclose(mean, Process.of(encoding, x, y, theta).predict(at)[0], atol=1e-9)
    # That of the process at all points, up to the variance, which is not estimated again.
    every = np.concatenate([x, new])
    whole = Process.of(encoding, every, np.zeros(len(every)), theta)._replace(variance=process.variance)
    np.testing.assert_allclose(deviation, whole.predict(at)[1], atol=1e-6)


@KIND
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_the_density_is_that_of_differences(kind, seed):
    encoding, x, y = example(kind, seed=seed)
    covariance, theta = Covariance(encoding, x), random_theta(encoding, x, seed)
    gradient = covariance.density(theta, y)[1]
    for i, step in enumerate(1e-5 * np.eye(len(theta))):
        difference = (covariance.density(theta + step, y)[0] - covariance.density(theta - step, y)[0]) / 2e-5
        assert gradient[i] == pytest.approx(difference, abs=1e-4, rel=1e-4)


@KIND
def test_a_fit_is_at_a_larger_density(kind):
    encoding, x, y = example(kind)
    covariance = Covariance(encoding, x)
    fit = covariance.fit(y, [covariance.mean])
    assert covariance.density(fit, y)[0] < covariance.density(covariance.mean, y)[0]


def test_a_variable_without_influence_has_the_largest_length():
    family = kl.Space.of(kl.Float(0.0, 1.0, n=4)).family
    encoding = Encoding(family)
    x = Prior(encoding, family.initial()).points(np.random.default_rng(0).random((40, 4)), np.random.default_rng(0))
    covariance = Covariance(encoding, x)
    fit = covariance.fit(scaled_values(np.sin(5.0 * x[:, 0]) + x[:, 1] * x[:, 3]), [covariance.mean])
    assert fit[:4].argmax() == 2


@KIND
def test_renaming_options_and_changing_the_order_of_points_changes_nothing(kind):
    encoding, x, y = example(kind)
    theta, at = random_theta(encoding, x), example(kind, 10, seed=1)[1]
    order = np.random.default_rng(0).permutation(len(x))
    expected = Process.of(encoding, x, y, theta).predict(at)
    np.testing.assert_allclose(Process.of(encoding, x[order], y[order], theta).predict(at), expected, atol=1e-7)
    if not encoding.conditional.any():
        k = encoding.family.options
        renamed = [np.where(k > 0, (each + 1) % np.maximum(k, 1), each) for each in (x, at)]
        np.testing.assert_allclose(Process.of(encoding, renamed[0], y, theta).predict(renamed[1]), expected, atol=1e-7)


@pytest.mark.parametrize("m", [1, 5, BLOCK_SIZE, BLOCK_SIZE + 1, 3 * BLOCK_SIZE - 1])
def test_blocks_are_those_of_the_whole_matrix(m):
    a = np.random.default_rng(0).normal(size=(m, m))
    np.testing.assert_allclose(product(a, a.T), a @ a.T, atol=1e-10)
    k = a @ a.T + np.eye(m)
    root = inverse_root(k)
    assert (np.triu(root, 1) == 0.0).all()
    np.testing.assert_allclose(root @ k @ root.T, np.eye(m), atol=1e-9)


@pytest.mark.parametrize("u", [-30.0, -5.0, -0.1, 0.0, 0.1, 1.0, 5.0, 7.0])
def test_log_improvements_are_those_of_the_formula(u):
    value = math.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi) - u * 0.5 * math.erfc(u * math.sqrt(0.5))
    found = log_improvement(1.0, np.array([1.0 + 2.0 * u]), np.array([2.0]))
    assert found[0] == pytest.approx(math.log(2.0 * value), abs=1e-5)


@pytest.mark.parametrize("u", [-30.0, -5.0, -0.1, 0.0, 0.1, 1.0, 5.0, 30.0])
def test_log_probabilities_are_those_of_the_formula(u):
    expected = math.log(0.5 * math.erfc(u * math.sqrt(0.5)))
    found = log_probability_below(np.array([2.0 * u]), np.array([2.0]))
    assert found[0] == pytest.approx(expected, abs=1e-5)


def test_log_improvements_decrease_with_the_mean_however_far_it_is():
    found = log_improvement(0.0, np.linspace(-50.0, 1000.0, 20_000), np.ones(20_000))
    assert np.isfinite(found).all()
    assert (np.diff(found) < 0.0).all()


def test_violations_are_ordered_and_above_those_of_feasible_points():
    f = np.array([1.0, *(ranked(0.0, v) for v in (1e-300, 1e-3, 5.0, 1e300)), math.nan, -7.0])
    rows, y = violation(f)
    assert rows.tolist() == [0, 1, 2, 3, 4, 6]
    assert (y[[0, 5]] < 0.0).all()
    assert (y[1:5] >= 0.0).all()
    assert (np.diff(y[1:5]) >= 0.0).all()


def test_infeasible_points_count_only_as_long_as_no_point_is_feasible():
    infeasible = [ranked(1.0, 2.0), ranked(5.0, 1.0)]
    rows, y = objective(np.array(infeasible))
    assert rows.tolist() == [0, 1]
    assert y[1] < y[0]
    rows, _ = objective(np.array([*infeasible, 3.0, math.nan, 2.0]))
    assert rows.tolist() == [2, 3, 4]


VALUES = st.lists(st.one_of(st.floats(-100.0, 100.0), st.sampled_from([0.0, 1.0])), min_size=2, max_size=30)


@given(VALUES, st.floats(0.01, 100.0), st.floats(-100.0, 100.0))
def test_scaled_values_keep_their_order(f, unit, shift):
    f = np.round(np.array(f), 6)
    y = scaled_values(f * unit + shift)
    assert np.isfinite(y).all()
    assert (np.diff(y[f.argsort(kind="stable")]) >= -1e-9).all()
    assert abs(y.mean()) < 1e-6


@pytest.mark.parametrize("worst", [math.nan, math.inf, 2.0 * FEASIBLE_LIMIT])
def test_failed_and_infeasible_points_count_as_the_worst(worst):
    f = np.array([3.0, 1.0, worst, 2.0])
    assert scaled_values(f).tolist() == scaled_values(np.where(f < 10.0, f, 3.0)).tolist()
    assert (scaled_values(np.array([worst])) == 0.0).all()


@given(st.floats(-3.0, 4.0))
def test_reflected_numbers_are_in_range(z):
    assert 0.0 <= float(reflected(np.array(z))) <= 1.0
    if 0.0 <= z <= 1.0:
        assert float(reflected(np.array(z))) == pytest.approx(z, abs=1e-12)
    assert float(reflected(np.array(-z))) == pytest.approx(float(reflected(np.array(z))), abs=1e-12)


# The points.


@pytest.mark.parametrize("kind", EVERY)
def test_points_are_new_and_in_the_space(kind):
    space = kl.Space.of(SPACES[kind])
    seen, asked = set(), kl.Optimizer(space, rng=0, deterministic=True)
    while asked.nfev < 45 and not asked.run.search.begun:
        batch = asked.ask()
        if not batch:
            break
        keys = [row.tobytes() for row in space.visible(asked.run.codes_of(batch.ids))]
        assert not seen.intersection(keys)
        seen.update(keys)
        for candidate in batch:
            space.encode(candidate.x)
        asked.tell(batch, rugged(asked.run.codes_of(batch.ids)).tolist())
    assert seen


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_first_points_are_a_latin_hypercube_with_the_center(n):
    opt, m = kl.Optimizer(kl.Float(0.0, 1.0, n=n), rng=1, deterministic=True), min(max(n + 1, 4), MOST_FIRST)
    x = []
    for _ in range(m):
        batch = opt.ask()
        x += [np.ravel(candidate.x) for candidate in batch]
        opt.tell(batch, [float(np.sum(candidate.x)) for candidate in batch])
    assert (x[0] == 0.5).all()
    cells = np.floor(np.array(x[1:]) * (m + 2))
    assert all(len(set(column)) == m - 1 for column in cells.T.tolist())


def test_points_are_within_the_bounds_unless_the_optimum_is_there():
    points = []
    fun = lambda x: points.append(x) or float(((x - 0.3) ** 2).sum())  # noqa: E731
    kl.minimize(fun, kl.Float(0.0, 1.0, n=4), budget=60, rng=0, deterministic=True)
    assert ((np.array(points) > 0.0) & (np.array(points) < 1.0)).all()


def test_a_prior_decides_the_first_point():
    space = kl.Space(a=kl.Choice("x", "y", "z", p=(0.1, 0.1, 0.8)), b=kl.Float(0.0, 1.0))
    for seed in range(5):
        opt = kl.Optimizer(space, rng=seed, deterministic=True)
        first = opt.ask()[0].x
        assert first["a"] == "z"
        assert first["b"] == 0.5


@KIND
@pytest.mark.parametrize("n", [3, MOST_FIRST + 3, 40])
def test_copies_and_saved_states_continue_as_the_original(kind, n):
    algorithm, rng = kl.search(KINDS[kind]), Stream(1)
    state, _ = next(itertools.islice(steps(algorithm, rng=rng), n, None))
    assert not state.begun
    check_continuations(rugged, algorithm, state, 8)


@pytest.mark.parametrize(
    "change",
    [
        {"key": -1},
        {"key": 2**64},
        {"cancelled": None},
        {"cancelled": "AAA="},
        {"rows": -1},
        {"rows": 10**6},
        {"begun": 10**6},
    ],
)
def test_states_that_are_none_are_refused(change):
    algorithm = kl.search(KINDS["mixed"])
    state, _ = next(itertools.islice(steps(algorithm), 8, None))
    data = json.loads(json.dumps(algorithm.data(state)))
    with pytest.raises((ValueError, TypeError, LookupError)):
        algorithm.restore(algorithm.init(), data | {"stages": [data["stages"][0] | change]})


@KIND
def test_points_asked_for_one_by_one_are_those_asked_for_together(kind):
    algorithm = kl.search(KINDS[kind]).at_least(6)
    evaluated = set()
    for state, x in itertools.islice(steps(algorithm), 5):  # noqa: B007
        assert len(np.unique(x, axis=0)) == 6
        assert not evaluated & {row.tobytes() for row in x}
        evaluated |= {row.tobytes() for row in x}
    apart = [algorithm.ask(state, Stream(7), size, start) for start, size in ((0, 1), (1, 3), (4, 4))]
    assert (np.concatenate(apart)[:6] == x).all()
    skipped, drawn = Stream(7), Stream(7)
    algorithm.skip(state, skipped, 4)
    algorithm.ask(state, drawn, 4)
    assert skipped.count == drawn.count


@KIND
def test_it_starts_at_x0(kind):
    family = kl.Space.of(KINDS[kind]).family
    x0 = Encoding(family).centered(family.sample(family.initial(), 1, Stream(0)))[0]
    algorithm = kl.search(KINDS[kind])
    _, x = next(steps(algorithm, state=algorithm.init(None, x0)))
    assert (x == x0).all()


@pytest.mark.parametrize("value", [math.nan, 1.0, math.inf])
def test_values_without_order_do_not_end_the_search(value):
    algorithm, seen = kl.search(KINDS["bits"]), set()
    for state, x in itertools.islice(conftest.steps(lambda x: np.full(len(x), value), algorithm), MOST_UNIMPROVED):
        assert not state.begun
        seen.add(x[0].tobytes())
    assert len(seen) == MOST_UNIMPROVED


def test_an_improvement_now_and_then_keeps_it_up_to_its_length():
    algorithm, count = kl.search(Bernoulli(20)), itertools.count()
    run = conftest.steps(lambda x: -float(next(count)) * np.ones(len(x)), algorithm.at_least(10))
    for state, _ in run:
        if state.begun:
            break
    assert len(state.archive) == MOST_EVALUATIONS


HARD = {
    "constant": lambda i: 1.0,
    "huge": lambda i: 1e308 * (-1.0) ** i,
    "tiny": lambda i: 1e-308 * i,
    "infinite": lambda i: math.inf if i % 2 else float(i),
    "failures": lambda i: math.nan if i % 3 == 0 else float(-i),
    "exponential": lambda i: math.exp(10.0 * i),
    "ties": lambda i: float(i % 4 == 0),
    "violations": lambda i: kl.Constrained(i % 7, i % 3),
}


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("name", sorted(HARD))
@pytest.mark.filterwarnings("error")
def test_values_that_are_hard_to_compute_with(kind, name):
    count = itertools.count()
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        result = kl.minimize(
            lambda _: HARD[name](next(count)), SPACES[kind], budget=25, rng=0, deterministic=True, batch=5
        )
    assert result.nfev <= 25


@pytest.mark.filterwarnings("error")
def test_large_batches_and_many_conditional_variables():
    kinds = kl.Choice(*"abcde")
    space = kl.Space(kind=kinds, **{f"v{i}": kl.Float(0, 1).when(kind="abcde"[i % 5]) for i in range(50)})
    for batch, budget in ((1, 15), (1000, 2000)):
        fun = lambda x: sum(value for value in x.values() if isinstance(value, float))  # noqa: E731
        assert kl.minimize(fun, space, budget=budget, rng=0, deterministic=True, batch=batch).nfev == budget


@pytest.mark.parametrize("n", [1, 3, 5, 8])
def test_small_spaces_are_exhausted(n):
    seen = []
    fun = lambda x: seen.append(x.tobytes()) or float(rugged(x[None])[0])  # noqa: E731
    result = kl.minimize(fun, kl.Binary(n), budget=1000, rng=0, deterministic=True)
    assert result.status == kl.Status.EXHAUSTED
    assert len(seen) == len(set(seen)) == 2**n


def test_fixed_variables_keep_their_values_and_the_others_are_searched():
    space = kl.Space(a=kl.Binary(10), b=kl.Binary(5), c=kl.Float(0.0, 1.0), d=kl.Integer(1, 9))
    opt = kl.Optimizer(space, rng=0, deterministic=True, fixed={"b": [1, 0, 1, 1, 0], "d": 4})
    found = []
    for _ in range(40):
        batch = opt.ask()
        assert all(each.x["b"].tolist() == [1, 0, 1, 1, 0] and each.x["d"] == 4 for each in batch)
        opt.tell(batch, [float(each.x["a"].sum() + (each.x["c"] - 0.3) ** 2) for each in batch])
        found += [float(each.fun) for each in [opt.best]]
    assert opt.nfev == 40
    assert found[-1] < 0.1


def test_a_variable_that_was_fixed_for_some_points_is_searched_later():
    space = kl.Space(a=kl.Binary(1), b=kl.Binary(14))
    for value in (0, 1):
        opt, free = kl.Optimizer(space, rng=1, deterministic=True), []
        while opt.nfev < 60:
            batch = opt.ask() if opt.nfev >= 30 else opt.ask(fixed={"a": [value]})
            free += [int(each.x["a"][0]) for each in batch] if opt.nfev >= 30 else []
            opt.tell(batch, [float(rugged(np.concatenate([*each.x.values()])[None])[0]) for each in batch])
        assert 1 - value in free


def test_the_model_proposes_new_feasible_points():
    weight = np.random.default_rng(0).integers(10, 99, 30)
    light = lambda x: float(weight @ x) - 0.3 * weight.sum()  # noqa: E731
    family = kl.Space.of(kl.Binary(30)).family

    class Light:
        def are_feasible(self, codes):
            return np.array([light(code) <= 0.0 for code in codes], dtype=bool)

        def repaired(self, codes, key):
            return np.zeros_like(codes)

    algorithm = kl.search(family, constrained=True)
    state = algorithm.init()
    state.archive.feasible = Light()
    asked = [x for _, x in itertools.islice(steps(algorithm, state=state), 25)]
    assert Light().are_feasible(np.concatenate(asked)).all()
    assert len(np.unique(np.concatenate(asked), axis=0)) == 25


def test_violations_that_evaluations_show_are_avoided():
    def fun(x):  # the minimum is on the border of a disk
        return kl.Constrained(-float(x.sum()), max(float(x @ x) - 1.0, 0.0))

    result = kl.minimize(fun, kl.Float(-2.0, 2.0, n=2), budget=40, rng=0, deterministic=True)
    assert result.fun == pytest.approx(-math.sqrt(2.0), abs=0.01)


def test_a_space_whose_feasible_points_are_few_is_searched_to_its_end():
    seen = []
    fun = lambda x: seen.append(x.tobytes()) or float(rugged(x[None])[0])  # noqa: E731
    kl.minimize(fun, kl.Binary(12), budget=200, rng=0, deterministic=True, constraints=lambda x: x.sum() <= 2)
    assert len(seen) == len(set(seen)) == 1 + 12 + 66


@pytest.mark.parametrize("batch", [1, 4])
def test_cancelled_points_are_not_asked_for_again(batch):
    algorithm = kl.search(KINDS["bits"]).at_least(batch)
    state, x = next(itertools.islice(steps(algorithm), 20, None))
    left = x[: batch // 2]
    after = algorithm.tell(state, left, rugged(left))
    again = algorithm.ask(after, Stream(2))
    assert not {row.tobytes() for row in again} & {row.tobytes() for row in x}
    assert len(model_of(after).cancelled) == batch - len(left)
    check_continuations(rugged, algorithm, after, 3)


def test_known_evaluations_are_used():
    space = kl.Float(-1.0, 1.0, n=2)
    known = [(np.array([a, b]), a * a + (b - 0.5) ** 2) for a in np.linspace(-1, 1, 4) for b in np.linspace(-1, 1, 4)]
    result = kl.minimize(
        lambda x: float(x[0] ** 2 + (x[1] - 0.5) ** 2), space, budget=6, known=known, rng=0, deterministic=True
    )
    assert result.fun < 1e-3


def look(opt):
    """Return what can be observed of a run."""
    best = opt.best and (repr(opt.best.x), opt.best.fun)
    return opt.theta.tolist(), best, opt.nfev, opt.nit, opt.lam, [(c.id, repr(c.x)) for c in opt.pending]


@pytest.mark.parametrize("how", ["snapshot", "journal"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("kind", ["bits", "branches"])
@pytest.mark.parametrize("deterministic", [True, None], ids=["deterministic", "not declared"])
def test_a_run_that_is_resumed_is_the_run_that_never_stopped(kind, deterministic, batch, how, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # this is not about the disk, which is slow
    path, space = tmp_path / "run", kl.Space.of(KINDS[kind])
    options = {"rng": 5, "deterministic": deterministic, "batch": batch}

    def cost(candidates):
        return rugged(np.array([space.encode(c.x) for c in candidates])).tolist()

    def begun(**more):
        opt = kl.Optimizer(space, **options, **more)
        while opt.nfev < 24:
            out = opt.ask()
            opt.tell(out, cost(out))
        out = opt.ask()
        opt.tell(out[: len(out) // 2], cost(out[: len(out) // 2]) if len(out) > 1 else [])
        return opt

    expected = begun()
    if how == "snapshot":
        begun().save(path)
        opt = kl.Optimizer.load(path, space)
    else:
        begun(journal=path).close()
        opt = kl.Optimizer(space, journal=path, **options)
        if len(opt.pending) < len(expected.pending):  # candidates without a value are handed out again
            opt.ask(len(expected.pending))
    assert look(opt) == look(expected)
    for each in (opt, expected):
        left = each.pending
        each.tell(left, cost(left))
    while expected.nfev < 40:
        out, same = opt.ask(), expected.ask()
        assert [repr(c.x) for c in out] == [repr(c.x) for c in same]
        for each in (opt, expected):
            each.tell(out, cost(out))
        assert look(opt) == look(expected)
    opt.close()


# Where it is used, and what it finds.


def test_interactions_are_found_with_fewer_evaluations_than_without():
    def run(algorithm, seed):
        q = np.random.default_rng(seed).normal(size=(20, 20))
        options = {"algorithm": algorithm, "rng": seed, "deterministic": True}
        return kl.minimize(lambda x: float(x @ q @ x), kl.Binary(20), budget=60, **options).fun

    both = kl.search(kl.Binary(20)), members_alone(kl.Binary(20))
    found = np.array([[run(each, seed) for each in both] for seed in range(6)])
    assert found[:, 0].mean() < found[:, 1].mean()


def test_a_plateau_at_the_first_point_is_left():
    for seed in range(3):
        fun = lambda x: 1.0 if abs(x[0] - 0.8) > 0.15 else float(abs(x[0] - 0.8) + (x[1] - 0.2) ** 2)  # noqa: E731
        found = kl.minimize(fun, kl.Float(0.0, 1.0, n=3), budget=50, rng=seed, deterministic=True).fun
        assert found < 0.1


@pytest.mark.parametrize(
    ("space", "is_used"),
    [
        (kl.Binary(1), True),
        (kl.Binary(MOST_VARIABLES), True),
        (kl.Binary(MOST_VARIABLES + 1), False),
        (kl.Choice(*"abc", n=4), True),
        (kl.Subset(9, 3), True),
        (kl.Float(0.0, 1.0), True),
        (SPACES["branches"], True),
    ],
)
def test_it_is_used_up_to_a_number_of_variables(space, is_used):
    members = [type(stage.member) for stage in kl.search(space).stages]
    assert (Model in members) == is_used


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"^family: expected at most 100 variables, got 101"):
        Model(Bernoulli(101))
    with pytest.raises(ValueError, match=r"^batch: "):
        Model(Bernoulli(5), 0)
    data = algorithm_data(Model(Bernoulli(5)))
    for change in ({"batch": 0}, {"batch": True}, {"batch": 10**12}, {"more": 1}):
        with pytest.raises(ValueError, match="expected"):
            algorithm_of(data | change, Bernoulli(5))
    state = kl.search(kl.Binary(5)).init()
    assert saved_and_restored(kl.search(kl.Binary(5)), state).stages[0].key is None
