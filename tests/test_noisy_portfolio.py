"""The portfolio for noisy objectives: whose turn it is, what the linear search learns, and states from a file."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
from conftest import examples
from knobless.core.description import algorithm_data, algorithm_of
from knobless.core.noisy_portfolio import LINEAR_ALONE, SHARE
from knobless.core.rng import Stream
from knobless.core.states import state_data, state_of
from knobless.recipes import LINEAR_LIMIT

BITS, CHOICES = kl.Binary(3), kl.Choice(1, 2, 3, n=2)
MIXED = kl.Space(bit=kl.Binary(2), kind=kl.Choice("x", "y", "z"), width=kl.Integer(1, 40))
each_space = pytest.mark.parametrize("space", [BITS, CHOICES, MIXED], ids=["bits", "choices", "mixed"])


def iterations(algorithm, state, n, seed=0):
    """Yield the state before and after each of n iterations with noisy values, and the evaluations."""
    draws, rng = Stream(seed), np.random.default_rng(seed)
    for _ in range(n):
        x = algorithm.ask(state, draws)
        f = x[:, 0] + rng.standard_normal(len(x))
        before, state = state.copy(), algorithm.tell(state, x, f)
        yield before, state, x, f


def after(algorithm, state, n, seed=0):
    """Return the state after n iterations, and all points as a list."""
    log = list(iterations(algorithm, state, n, seed))
    return log[-1][1] if log else state, [point for _, _, x, _ in log for point in x.tolist()]


def plain(state):
    """Return everything in a state as text."""
    return repr((state.linear.x.tolist(), state.linear.f.tolist(), state.loop, state.n, state.spent))


@pytest.mark.slow
@examples(20)
@given(batch=st.integers(1, 9), seed=st.integers(0, 99))
def test_the_loop_starts_after_ten_evaluations_per_parameter_and_keeps_three_of_four(batch, seed):
    algorithm = kl.noisy_portfolio(BITS).at_least(batch)
    spent = [0, 0]
    for before, now, x, _ in iterations(algorithm, algorithm.init(), 60, seed):
        assert len(x) >= batch
        assert (before.loop is None) == (before.n < LINEAR_ALONE * 3)
        assert now.n == before.n + len(x)
        if before.loop is None:
            assert len(x) == algorithm.linear.lam(before.linear)
        else:
            loop = spent[1] <= SHARE * spent[0]  # the loop, if it is below its share
            lam = algorithm.loop.lam(before.loop) if loop else algorithm.linear.lam(before.linear)
            assert len(x) == lam == algorithm.lam(before) == algorithm.info(before).lam
            spent[loop] += len(x)
            if not loop:
                assert repr(now.loop) == repr(before.loop)
        assert now.spent == tuple(spent)


@each_space
def test_the_loop_starts_from_the_newest_quarter_with_the_largest_samples(space):
    algorithm = kl.noisy_portfolio(space)
    for before, now, _, _ in iterations(algorithm, algorithm.init(), 200):
        if before.loop is None and now.loop is not None:
            newest = now.linear.x[-math.ceil(now.n / 4) :]
            start, mean = algorithm.family.initial(), algorithm.family.statistics(newest).mean(axis=0)
            np.testing.assert_allclose(now.theta, algorithm.family.move(start, mean - start), rtol=1e-12)
            assert algorithm.lam(now) == max(algorithm.family.dim, 2)
            return
    pytest.fail("the loop has not started")


@each_space
def test_the_linear_search_learns_from_every_evaluation(space):
    algorithm = kl.noisy_portfolio(space)
    elsewhere = algorithm.family.sample(algorithm.family.initial(), 4, Stream(5))
    state = algorithm.observe(algorithm.init(), elsewhere, np.array([1.0, 2.0, math.nan, 0.0]))
    assert (state.n, state.spent) == (4, (0, 0))
    state, points = after(algorithm, state, 300)
    assert state.spent[0] > 0 < state.spent[1]
    assert state.linear.x.tolist() == elsewhere.tolist() + points


def test_evaluations_from_elsewhere_count_towards_the_start_of_the_loop():
    algorithm = kl.noisy_portfolio(BITS)
    x = algorithm.family.sample(algorithm.family.initial(), LINEAR_ALONE * 3, Stream(5))
    assert algorithm.observe(algorithm.init(), x[1:], x[1:, 0] * 1.0).loop is None
    assert algorithm.observe(algorithm.init(), x, x[:, 0] * 1.0).loop is not None


@each_space
@pytest.mark.parametrize("n", [0, 3, 100])
def test_a_state_from_a_file_goes_on_as_the_one_that_was_written(space, n):
    algorithm = kl.noisy_portfolio(space)
    assert algorithm_of(json.loads(json.dumps(algorithm_data(algorithm))), algorithm.family) == algorithm
    state, _ = after(algorithm, algorithm.init(), n)
    copied, kept = state.copy(), plain(state)
    restored = state_of(algorithm, json.loads(json.dumps(state_data(algorithm, state))), None)
    assert plain(restored) == kept
    assert after(algorithm, restored, 12, seed=1)[1] == after(algorithm, state, 12, seed=1)[1]
    assert plain(copied) == kept  # what happens to a state does not reach its copy


def test_data_that_describe_no_portfolio_are_refused():
    algorithm = kl.noisy_portfolio(BITS)
    data = state_data(algorithm, algorithm.init())
    for wrong in ({"spent": [0]}, {"spent": [0, -1]}, {"n": -1}, {"linear": None}, {"loop": []}):
        with pytest.raises(ValueError, match=r"expected"):
            state_of(algorithm, data | wrong, None)
    inner = algorithm_data(algorithm)["noisy_portfolio"]
    for wrong in (inner | {"linear": inner["loop"]}, inner | {"loop": inner["linear"]}, inner | {"more": 1}):
        with pytest.raises(ValueError, match=r"expected"):
            algorithm_of({"noisy_portfolio": wrong}, algorithm.family)


def test_wrong_members_are_refused():
    linear, loop = kl.linear_thompson(BITS), kl.pbil_lambda(BITS)
    with pytest.raises(ValueError, match=r"^loop: expected an algorithm for the family"):
        kl.NoisyPortfolio(linear, kl.pbil_lambda(CHOICES))
    with pytest.raises(TypeError, match=r"^loop: expected the adaptation SNR"):
        kl.NoisyPortfolio(linear, kl.cga(BITS))
    with pytest.raises(ValueError, match=r"^loop: expected a finite lam_max"):
        kl.NoisyPortfolio(linear, replace(loop, adaptation=replace(loop.adaptation, lam_max=math.inf)))


def test_above_the_limit_of_the_dimension_it_is_pbil_lambda():
    small, large = kl.Binary(LINEAR_LIMIT), kl.Binary(LINEAR_LIMIT + 1)
    assert kl.noisy_portfolio(small) == kl.NoisyPortfolio(kl.linear_thompson(small), kl.pbil_lambda(small))
    assert kl.noisy_portfolio(large) == kl.pbil_lambda(large)


@pytest.mark.slow
def test_it_is_ahead_of_pbil_lambda_on_noisy_onemax():
    family = kl.Bernoulli(30)
    mistakes = {}
    for algorithm in (kl.noisy_portfolio(family), kl.pbil_lambda(family)):
        mistakes[algorithm] = 0
        for seed in range(3):
            draws, rng, state, nfev = Stream(seed), np.random.default_rng(seed), algorithm.init(), 0
            while nfev < 300:
                x = algorithm.ask(state, draws)
                state = algorithm.tell(state, x, x.sum(axis=1) + 2.7 * rng.standard_normal(len(x)))
                nfev += len(x)
            mistakes[algorithm] += int(family.mode(algorithm.info(state).theta).sum())
    ours, pbil_lambda = mistakes.values()
    assert ours < 0.5 * pbil_lambda
