"""Gaussian processes with interactions: the formulas of the textbook, draws, and what the evidence finds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from conftest import FAMILIES, frozen
from knobless.core.interaction_model import ORDERS, InteractionModel
from knobless.core.linear import recommend_evaluated
from knobless.core.linear_model import RATIOS, rank_scores
from knobless.core.rng import Stream
from knobless.families import Bernoulli


def covariance(a, b, order, dim):
    """The covariance of two points, entry by entry."""
    each = [[x @ y / dim for y in b] for x in a]
    return np.array([[(math.exp(order * g) - 1) / (math.exp(order) - 1) if order else g for g in row] for row in each])


def dense(phi, y, dim):
    """For each order, set and ratio: the evidence with a flat prior of the constant, and what predicts new points."""
    n = len(phi)
    center = np.eye(n) - 1 / n
    for order in ORDERS:
        k = center @ covariance(phi, phi, order, dim) @ center
        for row in y:
            values = center @ row
            for ratio in RATIOS:
                inverse = np.linalg.inv(k + ratio * np.eye(n))
                variance = ratio * values @ inverse @ values / (n - 1)
                logdet = np.linalg.slogdet(k / ratio + np.eye(n))[1]
                log = -0.5 * ((n - 1) * math.log(variance / (values @ values / (n - 1))) + logdet)
                yield log + math.log(0.5 if order == 0 else 0.5 / (len(ORDERS) - 1)), order, variance, ratio, inverse


def centered(phi, data, order, dim):
    """The covariances of points with the data and with each other, of functions whose mean over the data is zero."""
    n = len(data)
    among, cross = covariance(data, data, order, dim), covariance(phi, data, order, dim)
    shift = np.full((len(phi), n), 1 / n)
    own = covariance(phi, phi, order, dim) - shift @ cross.T - cross @ shift.T + shift @ among @ shift.T
    return (cross - shift @ among) @ (np.eye(n) - 1 / n), own


@pytest.mark.parametrize("name", ["bits", "choices of four", "mixed"])
@pytest.mark.parametrize("n", [3, 12])
def test_the_posterior_is_that_of_the_textbook(name, n):
    family, rng = FAMILIES[name], np.random.default_rng(n)
    phi, y = family.features(family.sample(family.initial(), n, rng)), rng.normal(size=(2, n))
    at = family.features(family.sample(family.initial(), 5, rng))
    model = InteractionModel.fit(frozen(phi), frozen(y), family.dim)
    found = list(dense(phi, y, family.dim))
    p = np.exp([each[0] for each in found])
    p /= p.sum()
    assert np.allclose(model.probability.ravel(), p, atol=1e-8)
    assert np.allclose(model.variance.ravel(), [each[2] for each in found])
    expected = np.zeros(5)
    for i, (_, order, _, _, inverse) in enumerate(found):
        values = y[i // len(RATIOS) % 2] - y[i // len(RATIOS) % 2].mean()
        expected += p[i] * centered(at, phi, order, family.dim)[0] @ inverse @ values
    assert np.allclose(model.mean(at), expected, atol=1e-8)
    assert model.probability_of_any == pytest.approx(p[2 * len(RATIOS) :].sum())


@pytest.mark.slow
def test_draws_have_the_mean_and_the_covariance_of_one_model():
    family, rng = FAMILIES["mixed"], np.random.default_rng(0)
    phi, y = family.features(family.sample(family.initial(), 20, rng)), rng.normal(size=(2, 20))
    at = family.features(family.sample(family.initial(), 4, rng))
    model, i = InteractionModel.fit(phi, y, family.dim), 2 * len(RATIOS) * 2 + 5  # the last order, the first set
    _, order, variance, ratio, inverse = list(dense(phi, y, family.dim))[i]
    model = model._replace(probability=np.where(np.arange(model.probability.size) == i, 1.0, 0.0).reshape(3, 2, -1))
    cross, own = centered(at, phi, order, family.dim)
    u = Stream(1).uniforms(20_000, 5)
    values = np.array([model.draw(at, row) for row in u])
    expected = variance / ratio * (own - cross @ inverse @ cross.T)
    scale = np.sqrt(np.diag(expected))
    assert np.allclose((values.mean(axis=0) - cross @ inverse @ (y[0] - y[0].mean())) / scale, 0, atol=0.04)
    assert np.allclose(np.cov(values.T) / np.outer(scale, scale), expected / np.outer(scale, scale), atol=0.05)


@pytest.mark.parametrize(
    ("fun", "low", "high"),
    [
        (lambda x: x.sum(axis=1), 0.0, 0.3),
        (lambda x: (x != np.roll(x, 1, axis=1)).sum(axis=1), 0.95, 1.0),
        (lambda x: np.minimum(x.sum(axis=1), 10 - x.sum(axis=1)), 0.95, 1.0),
    ],
    ids=["linear", "ring", "two maxima"],
)
def test_the_evidence_finds_interactions_where_there_are_some(fun, low, high):
    family, rng = Bernoulli(10), np.random.default_rng(0)
    x = family.sample(family.initial(), 120, rng)
    f = fun(x) + 0.5 * rng.normal(size=120)
    probability = InteractionModel.fit(family.features(x), rank_scores(f), family.dim).probability_of_any
    assert low <= probability <= high


def test_equal_values_have_equal_means():
    family = Bernoulli(6)
    phi = family.features(family.sample(family.initial(), 20, Stream(0)))
    model = InteractionModel.fit(phi, rank_scores(np.zeros(20)), family.dim)
    assert np.allclose(model.mean(phi), 0, atol=1e-9)
    assert np.isfinite(model.draw(phi[:8], Stream(1).uniforms(1, 9)[0])).all()


def test_the_recommended_one_is_an_evaluated_point_with_good_neighbors_not_the_luckiest():
    family, rng = Bernoulli(8), np.random.default_rng(3)
    x = family.sample(family.initial(), 200, rng)
    true = (x != np.roll(x, 1, axis=1)).sum(axis=1)
    f = true + rng.normal(size=200)
    worst = int(true.argmax())
    f[worst] = f.min() - 0.1
    best = recommend_evaluated(family, x, f)
    assert (x == best).all(axis=1).any()
    assert np.count_nonzero(best != np.roll(best, 1)) <= 2
    assert recommend_evaluated(Bernoulli(51), np.zeros((9, 51), np.int8), np.zeros(9)) is None
