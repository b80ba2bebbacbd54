"""Thompson sampling with a linear model: its features, its posterior distribution and its symmetries."""

from __future__ import annotations

import itertools
import json
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
from conftest import FAMILIES, frozen, parts_of, saved_and_restored
from knobless.algorithms import LinearThompson, Search
from knobless.core import linear
from knobless.core.algorithm import is_exact
from knobless.core.description import algorithm_data, algorithm_of
from knobless.core.linear import estimate, recommend
from knobless.core.linear_model import RATIOS, LinearModel, rank_scores, words
from knobless.core.rng import Stream, first_uniforms
from knobless.core.search import WHOLE
from knobless.families import Bernoulli, Categorical

LEGENDRE, WEIGHTS = np.polynomial.legendre.leggauss(6)
MIXED = kl.Space(bits=kl.Binary(3), kind=kl.Choice("a", "b", "c"), below=kl.Float(0, 1))
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


def uniform(family):
    """All points and their probabilities under the uniform distribution; for a number the nodes of a quadrature."""
    each = []
    for k in family.options:
        each.append((np.arange(k), np.full(k, 1 / k)) if k else (0.5 + 0.5 * LEGENDRE, 0.5 * WEIGHTS))
    x = itertools.product(*(values for values, _ in each))
    return frozen(list(x)), np.array([math.prod(p) for p in itertools.product(*(p for _, p in each))])


def linear_thompson(space):
    """The one member of the search."""
    return kl.algorithms.linear_thompson(space).members[0]


def told(algorithm, x, f, state=None):
    """The state after evaluations, which are in its archive."""
    state = algorithm.init() if state is None else state
    state.archive.add(x, f)
    return algorithm.tell(state, x, f)


def spent(algorithm, fun, budget, seed=0):
    """The state after a run, and all points."""
    state, rng, seen = algorithm.init(), Stream(seed), []
    while sum(map(len, seen)) < budget:
        x = algorithm.ask(state, rng)
        seen.append(x)
        state = told(algorithm, x, fun(x), state)
    return state, np.concatenate(seen)


def random_evaluations(family, n):
    return family.sample(family.initial(), n, Stream(0)), np.random.default_rng(0).normal(size=n)


def points_of(state):
    """The points from which a state of the member has learned."""
    return state.archive.at(state.kept - state.archive.dropped)


def minimizers(state, size):
    """Minimizers of draws of the model, which are neither crossed nor drawn again."""
    return state.family.minimizer(state.model.draw(Stream(1).uniforms(size, words(len(state.first)))))


# Features


@every_family
def test_features_are_standardized_under_the_uniform_distribution(family):
    x, p = uniform(family)
    phi = family.features(x)
    expected = np.eye(phi.shape[1])
    for part, where in parts_of(family):
        if isinstance(part, Categorical):
            expected[where, where] = np.kron(np.eye(part.n), np.eye(part.k) - 1 / part.k)
    assert phi.shape[1] == len(family.initial())
    assert np.allclose(p @ phi, 0, atol=1e-14)
    assert np.allclose(phi.T @ (p[:, None] * phi), expected, atol=1e-14)
    assert np.trace(expected) == pytest.approx(family.dim)


@every_family
def test_numbers_outside_of_their_range_are_those_at_its_bounds(family):
    x = family.sample(family.initial(), 200, Stream(1))
    inside = np.where(family.options == 0, np.clip(x, 0, 1), x)
    assert (family.features(x) == family.features(inside)).all()


@every_family
@given(data=st.data())
def test_the_minimizer_is_the_least_of_all_points(family, data):
    w = np.array(data.draw(st.lists(st.floats(-3, 3), min_size=len(family.initial()), max_size=len(family.initial()))))
    grid = [np.arange(k) if k else np.linspace(0, 1, 41) for k in family.options]
    x = np.array(list(itertools.product(*grid)))
    found = family.minimizer(frozen([w, -w]))
    assert found.shape == (2, family.variables)
    assert found.dtype == family.dtype
    numbers = found[:, family.options == 0]
    assert ((numbers >= 0) & (numbers <= 1)).all()
    values = family.features(found)
    for row, sign in zip(values, (1, -1), strict=True):
        assert row @ w * sign <= (family.features(x) @ w * sign).min() + 1e-12


def test_a_choice_of_two_has_the_scalar_products_and_minimizers_of_a_bit():
    bit, choice = Bernoulli(3), Categorical(3, 2)
    x = np.array(list(itertools.product((0, 1), repeat=3)))
    one, other = bit.features(x), choice.features(x)
    assert np.allclose(one @ one.T, other @ other.T)
    w = np.random.default_rng(0).normal(size=(50, 6))
    w[0] = 0  # a tie
    difference = (w[:, 1::2] - w[:, ::2]) / 2**0.5
    assert (choice.minimizer(w) == bit.minimizer(difference)).all()


# Scores of ranks


@given(st.lists(st.sampled_from([-math.inf, -2.0, -0.0, 0.0, 1.0, 5.0, 7.0, math.inf, math.nan]), min_size=1))
def test_scores_are_those_of_the_mean_ranks(values):
    clean = [math.inf if value != value else value for value in values]
    p = []
    for value in clean:
        below, equal = sum(other < value for other in clean), sum(other == value for other in clean)
        p.append((below + (equal + 1) / 2 - 0.375) / (len(clean) + 0.25))
    normal, exponential = rank_scores(frozen(values)).tolist()
    assert normal == pytest.approx([NormalDist().inv_cdf(each) for each in p], abs=1e-6)
    assert exponential == pytest.approx([math.log(each) for each in p])


@given(st.lists(st.floats(-100, 100).map(lambda v: round(v, 3)), min_size=1))
def test_scores_are_invariant_to_increasing_maps(values):
    f = np.array(values)
    scores = rank_scores(f)
    assert (rank_scores(np.sinh(f / 20)) == scores).all()
    assert np.allclose(rank_scores(-f)[0], -scores[0])


# The posterior distribution


def dense(phi, y, dim, prior):
    """The model in the textbook's formulas: for each r the evidence, the mean and the covariance of w."""
    n, features = phi.shape
    rows, y = phi - phi.mean(axis=0), y - y.mean()
    found = []
    for r in dim * RATIOS:
        a = rows.T @ rows + r * np.eye(features)
        inverse = np.linalg.inv(a)
        b = rows.T @ y
        variance = (y @ y - b @ inverse @ b) / (n - 1)
        _, logdet = np.linalg.slogdet(a / r)
        log = -0.5 * ((n - 1) * math.log(variance) + logdet)
        tau = math.sqrt(variance / r)
        found.append((log, inverse @ (b + r * tau * prior), variance * inverse, variance, tau))
    log, mean, covariance, variance, tau = map(np.array, zip(*found, strict=True))
    p = np.exp(log - log.max())
    return p / p.sum(), mean, covariance, variance, tau


@pytest.mark.parametrize("n", [2, 3, 5, 9, 10, 40])
@pytest.mark.parametrize("name", ["bits", "choices of four", "mixed"])
@pytest.mark.parametrize("shift", [0.0, 1.0], ids=["uniform", "prior"])
def test_the_posterior_is_that_of_the_textbook(name, n, shift):
    family, rng = FAMILIES[name], np.random.default_rng(n)
    x = family.sample(family.initial(), n, rng)
    phi, y = family.features(x), rng.normal(size=n)
    prior = shift * rng.normal(size=phi.shape[1])
    p, mean, covariance, variance, tau = dense(phi, y, family.dim, prior)
    model = LinearModel.fit(frozen(phi), frozen(y), family.dim, frozen(prior))
    assert np.allclose(model.probability, p, atol=1e-10)
    assert np.allclose(model.weights, p @ mean, atol=1e-10)
    assert np.allclose((model.noise, model.tau), (variance, tau), atol=1e-10)
    at = family.features(family.sample(family.initial(), 7, rng))
    expected, std = model.predict(at)
    q = at - phi.mean(axis=0)
    means = y.mean() + q @ mean.T
    within = variance / n + np.einsum("mi,gij,mj->mg", q, covariance, q)
    assert np.allclose(expected, means @ p)
    assert np.allclose(std**2, (within + (means - (means @ p)[:, None]) ** 2) @ p)


@pytest.mark.parametrize("n", [4, 60])
def test_several_sets_of_values_are_weighted_by_what_the_features_explain(n):
    family, rng = FAMILIES["mixed"], np.random.default_rng(n)
    phi = family.features(family.sample(family.initial(), n, rng))
    y = np.array([rng.normal(size=n), 5 + 3 * (phi[:, 0] + rng.normal(size=n))])
    prior = rng.normal(size=phi.shape[1])
    model = LinearModel.fit(frozen(phi), frozen(y), family.dim, prior)
    each = [LinearModel.fit(phi, row, family.dim, prior) for row in y]
    alone = [dense(phi, row / row.std(), family.dim, prior) for row in y]
    assert np.allclose(model.mean, np.concatenate([one.mean for one in each]))
    assert np.allclose(model.noise, np.concatenate([one.noise for one in each]))
    assert np.allclose(model.level, np.repeat(y.mean(axis=1), len(RATIOS)))
    evidence = [-0.5 * ((n - 1) * np.log(variance) + logdet(phi, family.dim)) for *_, variance, _ in alone]
    p = np.exp(np.concatenate(evidence) - np.max(evidence))
    assert np.allclose(model.probability, p / p.sum(), atol=1e-10)


def logdet(phi, dim):
    """ln |ΦᵀΦ/r + I| for each r."""
    rows = phi - phi.mean(axis=0)
    return [np.linalg.slogdet(rows.T @ rows / r + np.eye(phi.shape[1]))[1] for r in dim * RATIOS]


@pytest.mark.parametrize("n", [4, 60])
def test_draws_have_the_mean_and_the_covariance_of_the_posterior(n):
    family, rng = FAMILIES["mixed"], np.random.default_rng(n)
    phi, y = family.features(family.sample(family.initial(), n, rng)), rng.normal(size=n)
    p, mean, covariance, _, _ = dense(phi, y, family.dim, np.zeros(phi.shape[1]))
    w = LinearModel.fit(phi, y, family.dim).draw(Stream(3).uniforms(200_000, words(phi.shape[1])))
    between = (mean - p @ mean).T @ (p[:, None] * (mean - p @ mean))
    expected = np.tensordot(p, covariance, 1) + between
    scale = np.sqrt(np.diag(expected))
    assert np.allclose(w.mean(axis=0) / scale, p @ mean / scale, atol=0.015)
    assert np.allclose(np.cov(w.T) / np.outer(scale, scale), expected / np.outer(scale, scale), atol=0.04)


def test_draws_do_not_depend_on_how_many_there_are():
    family = FAMILIES["mixed"]
    phi = family.features(family.sample(family.initial(), 30, Stream(0)))
    model = LinearModel.fit(phi, np.sin(np.arange(30.0)), family.dim)
    u = Stream(1).uniforms(23, words(phi.shape[1]))
    whole = model.draw(u)
    for a, b in itertools.pairwise((0, 1, 4, 12, 23)):
        assert (model.draw(u[a:b]) == whole[a:b]).all()


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -math.inf, 1e308])
def test_equal_values_leave_the_draws_symmetric(value):
    algorithm = linear_thompson(kl.Binary(6))
    state, _ = spent(algorithm, lambda x: np.full(len(x), value), 40)
    assert np.isfinite(state.model.draw(Stream(0).uniforms(100, words(6)))).all()
    assert np.abs(state.model.weights).max() < 1e-12
    x = minimizers(state, 4000)
    assert np.abs(x.mean(axis=0) - 0.5).max() < 4 * 0.5 / 4000**0.5


# Symmetries


@pytest.mark.slow
def test_under_pure_noise_every_point_is_uniform():
    """Chi-square test of the 12th to 24th evaluations at the level 0.001, with one point of each run."""
    space = kl.Space(bits=kl.Binary(2), kind=kl.Choice("a", "b", "c"))
    algorithm, counts = linear_thompson(space), np.zeros((2, 2, 3))
    for seed in range(120):
        noise = np.random.default_rng(seed)
        _, x = spent(algorithm, lambda x, noise=noise: noise.normal(size=len(x)), 24, seed)
        np.add.at(counts, tuple(x[12 + seed % 12]), 1)
    chi = ((counts - 10) ** 2 / 10).sum()
    assert chi < 31.3  # 11 degrees of freedom


@pytest.mark.parametrize("n", [6, 60])
def test_renaming_options_and_flipping_bits_renames_the_posterior(n):
    family = FAMILIES["mixed"]  # two bits, a choice of three, a number
    rng = np.random.default_rng(n)
    x = family.sample(family.initial(), n, rng)
    renamed = x.copy()
    renamed[:, 0] = 1 - x[:, 0]
    renamed[:, 2] = np.array([2, 0, 1])[x[:, 2].astype(int)]
    renamed[:, 3] = 1 - x[:, 3]
    f = rng.normal(size=n)
    one, other = (LinearModel.fit(family.features(each), rank_scores(f), family.dim) for each in (x, renamed))
    turn = np.zeros((7, 7))  # what happens to the features
    turn[[0, 1, 4, 2, 3, 5, 6], range(7)] = [-1, 1, 1, 1, 1, -1, 1]
    assert np.allclose(family.features(renamed), family.features(x) @ turn.T)
    assert np.allclose(other.probability, one.probability)
    assert np.allclose(other.weights, turn @ one.weights)
    variances = [
        np.eye(7) * m.tau[5] ** 2 + m.vectors * ((m.shrink[5] + m.tau[5]) ** 2 - m.tau[5] ** 2) @ m.vectors.T
        for m in (one, other)
    ]
    assert np.allclose(variances[1], turn @ variances[0] @ turn.T)


def test_a_prior_is_what_uninformed_sampling_begins_with():
    p = (0.7, 0.2, 0.1)
    space = kl.Space(bit=kl.Binary(1, p=0.8), kind=kl.Choice("a", "b", "c", p=list(p)))
    algorithm = linear_thompson(space)
    state = told(algorithm, algorithm.family.sample(algorithm.init().first, 1, Stream(0)), np.zeros(1))
    state = told(algorithm, points_of(state), np.zeros(1), state)  # one point twice: nothing is learned
    x = minimizers(state, 20_000)
    assert x[:, 0].mean() == pytest.approx(state.first[0], abs=0.03)
    shares = np.bincount(x[:, 1].astype(int)) / len(x)
    assert shares == pytest.approx(state.first[1:], abs=0.05)


# The search


def test_it_finds_the_optimum_of_a_noisy_linear_function_and_of_a_parabola():
    space = kl.Space(bits=kl.Binary(10), kind=kl.Choice("a", "b", "c"), below=kl.Float(0, 1))
    algorithm, noise = linear_thompson(space), np.random.default_rng(0)

    def fun(x):
        return x[:, :10].sum(axis=1) + 2 * (x[:, 10] != 1) + 20 * (x[:, 11] - 0.3) ** 2 + noise.normal(size=len(x))

    state, _ = spent(algorithm, fun, 600)
    best = algorithm.best_point(state)
    assert best[:11].tolist() == [0] * 10 + [1]
    assert best[11] == pytest.approx(0.3, abs=0.06)
    assert recommend(algorithm.family, points_of(state), state.f) == pytest.approx(best)
    mean, std = estimate(algorithm.family, points_of(state), state.f, best[None])
    assert abs(mean[0]) < 4 * std[0] < 1.5


def test_estimates_ignore_failures_and_have_the_scale_of_the_values():
    family, rng = Bernoulli(4), np.random.default_rng(1)
    x = family.sample(family.initial(), 50, rng)
    f = x.sum(axis=1) + rng.normal(size=50)
    mean, std = estimate(family, x, f, x[:3])
    large, wide = estimate(family, x, 1e300 * f, x[:3])
    assert np.allclose((large / 1e300, wide / 1e300), (mean, std))
    failed = np.concatenate([f, [math.nan, math.inf]])
    assert np.allclose(estimate(family, np.concatenate([x, x[:2]]), failed, x[:3]), (mean, std))
    same, zero = estimate(family, x, np.full(50, 3.0), x[:3])
    assert np.allclose(same, 3.0)
    assert (zero < 1e-4).all()


def test_a_variable_that_never_varies_is_sampled_again_and_recommended_as_it_was():
    family = Bernoulli(3)
    algorithm, x = LinearThompson(family), family.sample(family.initial(), 40, Stream(0))
    for bit in (0, 1):
        x[:, 1] = bit
        state = told(algorithm, x, x[:, 0] + 0.01 * np.sin(np.arange(40)))
        assert algorithm.best_point(state).tolist()[:2] == [0, bit]
        drawn = minimizers(state, 2000)
        assert drawn[:, 0].mean() < 0.01
        assert abs(drawn[:, 1].mean() - 0.5) < 0.05


@given(st.integers(0, 300), st.integers(1, 40))
def test_an_iteration_has_a_twentieth_of_the_evaluations_or_a_third(n, batch):
    large = LinearThompson(Bernoulli(60), batch)
    assert large.lam(told(large, np.zeros((n, 60), np.int8), np.zeros(n))) == max(n // 3, batch, 6)
    algorithm = LinearThompson(Bernoulli(2), batch)
    state = told(algorithm, np.zeros((n, 2), np.int8), np.zeros(n))
    assert algorithm.lam(state) == max(n // 20, batch, 2 - n, 1)


def searched(n=40, variables=16):
    """A search of bits after n evaluations that have different values, the lowest first."""
    algorithm = linear_thompson(kl.Binary(variables))
    x = algorithm.family.sample(algorithm.init().first, n, Stream(0))
    return algorithm, told(algorithm, x, np.arange(float(n)))


def test_every_second_point_is_crossed_with_one_of_the_best():
    algorithm, state = searched()
    assert (state.elites == points_of(state)[:4]).all()  # ln 40 = 3.7
    u = Stream(2).uniforms(4000, algorithm.width)
    drawn, x = algorithm.family.minimizer(state.model.draw(u[:, : words(16)])), algorithm.points(state, state.model, u)
    whole = (x == drawn).all(axis=1)
    assert 0.47 < whole.mean() < 0.65  # some of the crossed ones are equal to the draw
    options = (x[:, None] == drawn[:, None]) | (x[:, None] == state.elites)
    assert options.all(axis=2).any(axis=1).all()
    shares = (x == drawn)[~whole].mean(axis=1)
    assert shares.min() < 0.3
    assert shares.max() > 0.9


def test_crossed_points_of_a_conditional_space_are_canonical():
    space = kl.Space(
        kernel=kl.Choice("linear", "rbf", "poly"),
        gamma=kl.Float(0, 1).when(kernel=("rbf", "poly")),
        degree=kl.Integer(2, 5).when(kernel="poly"),
        rest=kl.Binary(6),
    )
    algorithm, family = linear_thompson(space), space.family
    x = family.sample(family.initial(), 60, Stream(0))
    state = told(algorithm, x, np.random.default_rng(1).normal(size=60))
    elites, u = state.elites, Stream(2).uniforms(3000, algorithm.width)
    active = family.active(elites)
    assert (active != active[0]).any()
    w = state.model.draw(u[:, : words(len(state.first))])
    drawn = family.full_minimizer(w)
    assert (family.canonical(drawn) == family.minimizer(w)).all()
    points = algorithm.points(state, state.model, u)
    assert (points == family.canonical(points)).all()
    from_elites = ((points[:, None] == elites) & active).any(axis=1)
    assert ((points == drawn) | from_elites | ~family.active(points)).all()


@pytest.mark.parametrize("f", [np.zeros(40), np.arange(40) % 3 > 0, np.full(40, math.nan)], ids=["one", "two", "nan"])
def test_no_point_is_crossed_with_one_of_many_equal_ones(f):
    algorithm, state = searched()
    assert told(algorithm, points_of(state), f.astype(float)).elites is None


def test_a_point_that_was_evaluated_is_drawn_again():
    algorithm, state = searched(variables=5)
    known = {row.tobytes() for row in points_of(state)}
    assert 20 < len(known) < 32
    x = algorithm.ask(state, Stream(3), 2000)
    u, share = Stream(3).uniforms(2000, algorithm.width + 2)[:, : algorithm.width].copy(), words(len(state.first)) + 1
    linear = u[:, share] >= state.interactions.probability_of_any * 2**32
    u[:, share] = 2**32 - 1
    plain = algorithm.points(state, state.model, u)
    new = np.array([row.tobytes() not in known for row in plain])
    assert (x[new & linear] == plain[new & linear]).all()
    assert np.mean([row.tobytes() not in known for row in x]) > 2 * new.mean()


def test_interactions_make_points_crossed_ones_that_were_not_evaluated():
    family, rng = Bernoulli(12), np.random.default_rng(0)
    algorithm, x = LinearThompson(family), family.sample(family.initial(), 100, rng)
    state = told(algorithm, x, (x != np.roll(x, 1, axis=1)).sum(axis=1) + 0.1 * rng.normal(size=100))
    assert state.interactions.probability_of_any > 0.99
    drawn = algorithm.ask(state, Stream(1), 200)
    assert not {row.tobytes() for row in x} & {row.tobytes() for row in drawn}
    jumps = (drawn != np.roll(drawn, 1, axis=1)).sum(axis=1)
    pool = algorithm.points(state, state.model, Stream(2).uniforms(2000, algorithm.width))
    assert jumps.mean() < (pool != np.roll(pool, 1, axis=1)).sum(axis=1).mean() - 0.5


def test_the_model_with_interactions_depends_on_the_evaluations_alone():
    family, rng = Bernoulli(6), np.random.default_rng(0)
    algorithm, x, f = LinearThompson(family), family.sample(family.initial(), 60, rng), rng.normal(size=60)
    once, step = told(algorithm, x, f), algorithm.init()
    for i in range(60):
        step = told(algorithm, x[i : i + 1], f[i : i + 1], step)
        assert (step.interactions is None) == (i < 7)
    assert (once.interactions.probability == step.interactions.probability).all()
    assert 50 <= len(step.interactions.phi) <= 60


def test_points_do_not_depend_on_how_many_are_drawn_at_once():
    algorithm, state = searched(variables=5)
    whole, rng = algorithm.ask(state, Stream(3), 60), Stream(3)
    assert (np.concatenate([algorithm.ask(state, rng, k) for k in (1, 7, 20, 32)]) == whole).all()


def test_the_first_uniforms_of_a_key_are_those_of_its_stream():
    for key, size, width in (0, 3, 5), (2**64 - 1, 8, 4):
        assert (first_uniforms(key, size, width) == Stream(key).uniforms(size, width)).all()


def test_observed_evaluations_count_as_its_own():
    search = kl.algorithms.linear_thompson(MIXED)
    family, rng = search.family, np.random.default_rng(0)
    x, f = family.sample(family.initial(), 30, rng), rng.normal(size=30)
    asked = search.tell(search.init(), x, f)
    observed = search.observe(search.tell(search.init(), x[:9], f[:9]), x[9:], f[9:])
    assert (search.ask(asked, Stream(4)) == search.ask(observed, Stream(4))).all()
    assert (asked.theta == observed.theta).all()


def test_it_learns_from_the_evaluations_of_other_members():
    space = kl.Binary(8)
    members = (linear_thompson(space), kl.pbil_lambda(space))
    search, rng, seen = Search(members, deterministic=False), Stream(0), []
    state = search.init()
    while sum(map(len, seen)) < 100:
        seen.append(search.ask(state, rng))
        state = search.tell(state, seen[-1], seen[-1].sum(axis=1) + 0.0)
    group = state.groups[WHOLE]
    assert all(record.spent for record in group.records)
    assert (points_of(group.states[0]) == np.concatenate(seen)).all()
    assert (group.states[0].f == np.concatenate(seen).sum(axis=1)).all()
    assert is_exact(kl.pbil_lambda(space))
    assert not is_exact(search)


def test_theta_is_the_mean_of_the_newest_quarter():
    family = Bernoulli(4)
    x = family.sample(family.initial(), 40, Stream(0))
    algorithm = LinearThompson(family)
    state = told(algorithm, x, np.arange(40.0))
    assert state.theta == pytest.approx(np.clip(x[30:].mean(axis=0), 0.25, 0.75))


# States


def searched_with(search, fun, n):
    """The state of a search after n evaluations or a few more."""
    state, rng = search.init(), Stream(0)
    while state.n < n:
        x = search.ask(state, rng)
        state = search.tell(state, x, fun(x))
    return state


@pytest.mark.parametrize("n", [0, 1, 2, 7, 30, 700])
def test_copies_and_saved_states_continue_as_the_original(n):
    search, rng = kl.algorithms.linear_thompson(MIXED), np.random.default_rng(n)
    state = searched_with(search, lambda x: rng.normal(size=len(x)), n)
    described = json.loads(json.dumps(algorithm_data(search)))
    assert algorithm_of(described, search.family) == search
    saved = saved_and_restored(search, state)
    copy = state.copy()
    for _ in range(3):
        x = search.ask(state, Stream(5))
        f = np.sin(np.arange(len(x)))
        for other in (copy, saved):
            assert (search.ask(other, Stream(5)) == x).all()
        copy, saved, state = (search.tell(each, x, f) for each in (copy, saved, state))
        assert (state.theta == copy.theta).all()
        assert (state.theta == saved.theta).all()


def test_a_copy_is_independent():
    search = kl.algorithms.linear_thompson(kl.Binary(3))
    state = searched_with(search, lambda x: x.sum(axis=1) + 0.0, 20)
    copy, x, theta = state.copy(), state.archive.x(), state.theta.copy()
    copy.theta[:] = 0.3
    search.tell(copy, x, np.zeros(len(x)))
    assert (state.archive.x() == x).all()
    assert (points_of(state.groups[WHOLE].states[0]) == x).all()
    assert (state.theta == theta).all()


@pytest.mark.parametrize(
    "change",
    [
        {"rows": "012"},
        {"rows": [0, 0]},
        {"rows": [1, 0]},
        {"rows": [-1]},
        {"rows": [20]},
        {"rows": [0.5]},
    ],
)
def test_what_is_not_a_state_is_rejected(change):
    algorithm = linear_thompson(kl.Binary(3))
    state = told(algorithm, *random_evaluations(algorithm.family, 20))
    data = algorithm.data(state)
    assert (algorithm.restore(algorithm.init(archive=state.archive), data).theta == state.theta).all()
    with pytest.raises(ValueError, match="expected"):
        algorithm.restore(algorithm.init(archive=state.archive), data | change)


def test_more_rows_than_are_kept_are_rejected(monkeypatch):
    algorithm = linear_thompson(kl.Binary(3))
    state = told(algorithm, *random_evaluations(algorithm.family, 20))
    data = algorithm.data(state)
    monkeypatch.setattr(linear, "KEPT", 3 * 19)
    with pytest.raises(ValueError, match="rows: expected at most 19"):
        algorithm.restore(algorithm.init(archive=state.archive), data)


@pytest.mark.slow
def test_what_was_learned_outlasts_the_evaluations_that_are_dropped(monkeypatch):
    monkeypatch.setattr(linear, "KEPT", 20 * 1500)
    algorithm, noise = linear_thompson(kl.Binary(20)), np.random.default_rng(1)
    state, x = spent(algorithm, lambda x: x.sum(axis=1) + noise.normal(0, 20**0.5, len(x)), 12_000, seed=1)
    assert 750 <= state.n <= state.most == 1500
    assert (points_of(state)[-1] == x[-1]).all()
    assert algorithm.best_point(state).sum() == 0
    fresh = told(algorithm, points_of(state), state.f)
    assert (algorithm.ask(fresh, Stream(0)) == algorithm.ask(state, Stream(0))).all()


def test_a_run_is_resumed_from_its_journal(tmp_path):
    rng = np.random.default_rng(0)
    noise = {}

    def fun(x):
        key = (x["bits"].tobytes(), x["kind"], x["below"])
        return noise.setdefault(key, rng.normal()) + x["bits"].sum()

    runs = [
        [
            kl.minimize(fun, MIXED, budget=budget, algorithm=kl.algorithms.linear_thompson(MIXED), rng=3, journal=file)
            for budget in budgets
        ][-1]
        for budgets, file in (((60,), None), ((7, 31, 60), tmp_path / "run.journal"))
    ]
    assert runs[0].fun == runs[1].fun
    assert repr(runs[0].x) == repr(runs[1].x)


def test_estimates_of_the_largest_values_are_infinite_rather_than_an_error():
    family = Bernoulli(3)
    x = family.sample(family.initial(), 8, Stream(0))
    mean, std = estimate(family, x, np.where(x[:, 0], 1.7e308, -1.7e308), np.array([[1, 1, 1]]))
    assert mean[0] > 1e307
    assert not np.isnan(std).any()
