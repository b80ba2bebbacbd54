"""Preferences: the paper's weights, ties shared by brute force, and what is not a number."""

from __future__ import annotations

import itertools
import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import frozen
from knobless.algorithms import Quartiles, Truncation, Values
from knobless.core import preferences

RANKING = {"quartiles": Quartiles(), "best": Truncation(1), "best two": Truncation(2)}
every_ranking = pytest.mark.parametrize("preference", RANKING.values(), ids=RANKING)

# Few values, so that ties abound; also f ≤ 0, both zeros, and both infinities.
tied = st.lists(st.sampled_from([-2.5, -1.0, -0.0, 0.0, 1.0, 7.0, math.inf, -math.inf]), min_size=2, max_size=6)


def by_hand(preference, lam):
    """The weights of ranks 1 to λ, as the paper and design rows 1 and 3 give them."""
    if isinstance(preference, Truncation):
        return [lam / preference.mu] * preference.mu + [0.0] * (lam - preference.mu)
    mu = math.ceil(lam / 4)
    return [w - lam / mu for w in [2 * lam / mu] * mu + [lam / mu] * (lam - 2 * mu) + [0.0] * mu]


def averaged(preference, f):
    """Ties shared in the dullest way: the mean over every order in which equals could have been ranked."""
    lam = len(f)
    weights = by_hand(preference, lam)
    orders = [o for o in itertools.permutations(range(lam)) if all(f[a] <= f[b] for a, b in itertools.pairwise(o))]
    w = np.zeros(lam)
    for order in orders:
        w[list(order)] += weights
    return w / len(orders)


@every_ranking
@given(f=st.lists(st.sampled_from([-1.0, -0.0, 0.0, 1.0, 7.0, math.inf, -math.inf, math.nan]), min_size=2, max_size=12))
def test_few_and_many_values_have_the_same_weights_bit_for_bit(preference, f):
    by_limit = []
    for limit in (0, 12):
        with patch.object(preferences, "FEW_VALUES", limit):
            by_limit.append(preference(frozen(f)).tobytes())
    assert by_limit[0] == by_limit[1]


@pytest.mark.parametrize("lam", range(2, 41))
def test_weights_of_the_paper(lam):
    f = np.random.default_rng(lam).permutation(lam).astype(float)
    rank = f.astype(int)
    for preference in (Quartiles(), *(Truncation(mu) for mu in range(1, lam))):
        w = preference(frozen(f))
        np.testing.assert_allclose(w, np.array(by_hand(preference, lam))[rank], rtol=1e-14, atol=1e-14)
    w = Quartiles()(frozen(f))
    assert abs(w.sum()) < 1e-13
    assert math.isclose(w @ w / lam, 2 * lam / math.ceil(lam / 4), rel_tol=1e-14)  # the paper's σ_W²


def test_two_samples_weigh_as_in_cga():
    assert Quartiles()(frozen([3.0, 1.0])).tolist() == [-2.0, 2.0]


@every_ranking
@given(tied)
def test_ties_share(preference, f):
    if isinstance(preference, Truncation) and preference.mu > len(f):
        return
    w = preference(frozen(f))
    np.testing.assert_allclose(w, averaged(preference, f), rtol=1e-13, atol=1e-13)
    for i, j in itertools.combinations(range(len(f)), 2):
        if f[i] == f[j]:
            assert w[i] == w[j]  # to the last bit: the loop compares weights for equality


@every_ranking
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=40), st.randoms(use_true_random=False))
def test_ranking_laws(preference, f, random):
    w = preference(frozen(f, float))
    # Σw is that of the untied ranks
    assert math.isclose(w.sum(), sum(by_hand(preference, len(f))), abs_tol=1e-11)
    # permutation-equivariant
    order = random.sample(range(len(f)), len(f))
    np.testing.assert_array_equal(preference(frozen(np.array(f, float)[order])), w[order])
    # invariant to increasing maps
    for increasing in (lambda v: v**3, lambda v: math.exp(v) - 100.0, lambda v: 1e-300 * v, lambda v: 1e300 * v):
        np.testing.assert_array_equal(preference(frozen([increasing(v) for v in f], float)), w)


@every_ranking
def test_equality_is_exact(preference):
    """Neighbouring floats are two values: a tolerance would tie them, and tie all of a plateau's surroundings."""
    near = frozen([1.0, math.nextafter(1.0, 2.0), 1.0 + 1e-9, 1e9])
    np.testing.assert_array_equal(preference(near), preference(frozen([1.0, 2.0, 3.0, 4.0])))


@every_ranking
@given(st.lists(st.integers(-2, 2), max_size=6), st.integers(1, 3), st.integers(1, 3))
def test_nan_and_inf_rank_worst_together(preference, finite, nans, infs):
    f = [*finite, *[math.nan] * nans, *[math.inf] * infs]
    worst = [*finite, *[1e9] * (nans + infs)]
    np.testing.assert_array_equal(preference(frozen(f, float)), preference(frozen(worst, float)))


@every_ranking
@pytest.mark.parametrize("value", [0.0, -3.5, 7.0, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("lam", [2, 3, 7, 41])
def test_all_tied_means_equal_weights(preference, value, lam):
    w = preference(frozen([value] * lam))
    assert (w == w[0]).all()
    assert math.isclose(w[0], sum(by_hand(preference, lam)) / lam, abs_tol=1e-14)


@pytest.mark.parametrize(("mu", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_truncation_refuses(mu, error):
    with pytest.raises(error, match="mu"):
        Truncation(mu)


# By value


def relative(W):
    W = np.asarray(W, dtype=float)
    return W / W.mean() - 1.0


@given(st.lists(st.floats(-20.0, 20.0), min_size=2, max_size=12), st.floats(-20.0, 20.0))
def test_values_are_exp_over_their_mean(f, shift):
    w = Values()(frozen(f))
    np.testing.assert_allclose(w, relative(np.exp(-np.array(f))), rtol=1e-9, atol=1e-12)
    assert abs(w.sum()) < 1e-9 * len(f)
    np.testing.assert_allclose(Values()(frozen(np.array(f) + shift)), w, rtol=1e-9, atol=1e-9)


def test_exp_does_not_overflow():
    for f in ([1e5, 1e5 + 1.0], [-1e5, 1.0 - 1e5]):
        np.testing.assert_allclose(Values()(frozen(f)), relative([1.0, math.exp(-1.0)]), rtol=1e-9)
    np.testing.assert_array_equal(Values()(frozen([0.0, 1e300, 1e300, 1e300])), [3.0, -1.0, -1.0, -1.0])
    np.testing.assert_array_equal(Values()(frozen([-1.7e308, 1.7e308])), [1.0, -1.0])


@pytest.mark.parametrize("W", [None, lambda f: 10.0 - f])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_inf_weigh_as_the_worst_finite_value(W, bad):
    np.testing.assert_array_equal(Values(W)(frozen([2.0, bad, 1.0])), Values(W)(frozen([2.0, 2.0, 1.0])))


@pytest.mark.parametrize("W", [None, lambda f: 10.0 - f])
def test_minus_infinity_is_never_worse_than_a_finite_value(W):
    """As in a ranking: a preference does not increase with f."""
    w = Values(W)(frozen([2.0, -math.inf, 1.0]))
    assert np.isfinite(w).all()
    assert w[1] >= w[2] > w[0]


@pytest.mark.parametrize("f", [[math.nan] * 3, [math.inf] * 3, [math.inf, math.nan, math.inf]])
def test_nothing_finite_tells_nothing(f):
    assert Values()(frozen(f)).tolist() == [0.0] * 3


@given(st.floats(-1e300, 1e300), st.integers(2, 9))
def test_equal_values_weigh_nothing(value, lam):
    assert Values()(frozen([value] * lam)).tolist() == [0.0] * lam


def test_a_preference_of_the_users_own():
    f = frozen([0.0, 3.0, 5.0])
    np.testing.assert_allclose(Values(lambda f: np.maximum(4.0 - f, 0.0))(f), [1.4, -0.4, -1.0], rtol=1e-14)
    assert Values(lambda f: np.zeros(len(f)))(f).tolist() == [0.0] * 3  # nothing liked at all
    assert Values(lambda f: [2, 1, 0])(f).tolist() == [1.0, 0.0, -1.0]  # integers, and a list, will do


@pytest.mark.parametrize(
    ("W", "message"),
    [
        (lambda f: -f, "at least 0"),
        (lambda f: f, "non-increasing"),
        (lambda f: f[:-1], "expected 3 weights"),
        (lambda f: 1.0, "expected 3 weights"),
        (lambda f: np.full(3, math.nan), "finite"),
        (lambda f: np.full(3, math.inf), "finite"),
    ],
)
def test_a_wrong_preference_is_refused(W, message):
    with pytest.raises(ValueError, match=message):
        Values(W)(frozen([1.0, 3.0, 2.0]))
