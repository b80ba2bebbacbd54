"""The search for noisy objectives: whose turn it is, what the linear search learns, and states from a file."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
from conftest import examples, saved_and_restored
from knobless.algorithms import Search, Shares, cga, linear_thompson
from knobless.core.archive import Archive
from knobless.core.catalog import LINEAR_LIMIT
from knobless.core.description import algorithm_data, algorithm_of
from knobless.core.rng import Stream
from knobless.core.search import WHOLE
from knobless.families import Bernoulli

ALONE = 10  # evaluations per parameter before the loop begins
SHARE = 3  # evaluations of the loop for each one of the linear search
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


def noisy(space):
    return kl.search(space, deterministic=False)


def counts(state):
    """Return the evaluations of the linear search and of the loop, since the loop began."""
    return [record.spent for record in state.groups[WHOLE].records] if state.begun else [0, 0]


@pytest.mark.slow
@examples(20)
@given(batch=st.integers(1, 9), seed=st.integers(0, 99))
def test_the_loop_starts_after_ten_evaluations_per_parameter_and_keeps_three_of_four(batch, seed):
    algorithm = noisy(BITS).at_least(batch)
    linear, loop = algorithm.members
    spent = [0, 0]
    for before, now, x, _ in iterations(algorithm, algorithm.init(), 60, seed):
        assert len(x) >= batch
        assert before.begun == (before.n >= ALONE * 3)
        assert now.n == before.n + len(x)
        if not before.begun:
            assert len(x) == linear.lam(before.stages[0])
        else:
            states = before.groups[WHOLE].states
            turn = spent[1] <= SHARE * spent[0]  # that of the loop, if it is below its share
            lam = loop.lam(states[1]) if turn else linear.lam(states[0])
            assert len(x) == lam == algorithm.lam(before) == algorithm.info(before).lam
            spent[turn] += len(x)
            if not turn:
                assert repr(now.groups[WHOLE].states[1]) == repr(states[1])
        assert counts(now) == spent


@each_space
def test_the_loop_starts_from_the_newest_quarter_with_the_largest_samples(space):
    algorithm = noisy(space)
    for before, now, _, _ in iterations(algorithm, algorithm.init(), 200):
        if not before.begun and now.begun:
            newest = now.archive.x()[-math.ceil(now.n / 4) :]
            start, mean = algorithm.family.initial(), algorithm.family.statistics(newest).mean(axis=0)
            np.testing.assert_allclose(now.theta, algorithm.family.move(start, mean - start), rtol=1e-12)
            assert algorithm.lam(now) == max(algorithm.family.dim, 2)
            return
    pytest.fail("the loop has not started")


@each_space
def test_the_linear_search_learns_from_every_evaluation(space):
    algorithm = noisy(space)
    elsewhere = algorithm.family.sample(algorithm.family.initial(), 4, Stream(5))
    state = algorithm.observe(algorithm.init(), elsewhere, np.array([1.0, 2.0, math.nan, 0.0]))
    assert (state.archive.n, counts(state)) == (4, [0, 0])
    state, points = after(algorithm, state, 300)
    assert min(counts(state)) > 0
    linear = state.groups[WHOLE].states[0]
    assert state.archive.x().tolist() == elsewhere.tolist() + points
    assert linear.kept.tolist() == [*range(len(points) + 4)]


def test_earlier_evaluations_count_towards_the_start_of_the_loop():
    algorithm = noisy(BITS)
    x = algorithm.family.sample(algorithm.family.initial(), ALONE * 3, Stream(5))
    for n in (len(x) - 1, len(x)):
        archive = Archive(algorithm.family, deterministic=False)
        archive.add(x[:n], x[:n, 0] * 1.0)
        assert algorithm.init(archive=archive).begun == (n == len(x))


@each_space
@pytest.mark.parametrize("n", [0, 3, 100])
def test_a_state_from_a_file_goes_on_as_the_one_that_was_written(space, n):
    algorithm = noisy(space)
    assert algorithm_of(json.loads(json.dumps(algorithm_data(algorithm))), algorithm.family) == algorithm
    state, _ = after(algorithm, algorithm.init(), n)
    copied, kept = state.copy(), algorithm.data(state)
    restored = saved_and_restored(algorithm, state)
    assert algorithm.data(restored) == kept
    assert after(algorithm, restored, 12, seed=1)[1] == after(algorithm, state, 12, seed=1)[1]
    assert algorithm.data(copied) == kept  # what happens to a state does not reach its copy


def check_refused(algorithm, data, changes):
    for change in changes:
        with pytest.raises((ValueError, TypeError, LookupError)):
            algorithm.restore(algorithm.init(), data | change)


def test_data_that_describe_no_search_are_refused():
    algorithm = noisy(BITS)
    data = algorithm.data(algorithm.init())
    check_refused(algorithm, data, [{"n": -1}, {"before": -1}, {"archive": None}, {"stage": 2}, {"stage": 0.0}])
    check_refused(algorithm, data, [{"stage": 1}, {"stages": []}, {"stages": [None]}, {"stages": [{"rows": [7]}]}])


def test_data_that_describe_no_turns_are_refused():
    algorithm = noisy(BITS)
    data = json.loads(json.dumps(algorithm.data(after(algorithm, algorithm.init(), 100)[0])))
    check_refused(algorithm, data, [{"groups": []}, {"groups": [[]]}, {"groups": [[[], {"states": []}]]}])
    group = data["groups"][0][1]
    changes = {"records": group["records"][:1]}, {"turn": 2}, {"owner": -1}, {"states": group["states"][::-1]}
    check_refused(algorithm, data, [{"groups": [[[], group | change]]} for change in changes])


def test_descriptions_of_no_search_are_refused():
    algorithm = noisy(BITS)
    data = json.loads(json.dumps(algorithm_data(algorithm)))
    rule = data["rule"]
    for wrong in ({"rule": rule | {"shares": {"tuple": [1]}}}, {"members": {"tuple": []}}, {"members": 1}, {"more": 1}):
        with pytest.raises((ValueError, TypeError), match=r"expected"):
            algorithm_of(data | wrong, algorithm.family)


def test_a_loop_without_a_largest_sample_starts_with_small_ones():
    linear, loop = noisy(BITS).members
    for each in (cga(BITS), replace(loop, adaptation=replace(loop.adaptation, lam_max=math.inf))):
        theta = np.full(3, 0.4)
        assert each.continued(theta).theta.tolist() == theta.tolist()
        assert each.lam(each.continued(theta)) == each.lam(each.init())
    with pytest.raises(ValueError, match=r"^members: expected algorithms for one family"):
        Search((linear, kl.pbil_lambda(CHOICES)), Shares((1, 3)))


def test_above_the_limit_of_the_dimension_it_is_pbil_lambda():
    small, large = kl.Binary(LINEAR_LIMIT), kl.Binary(LINEAR_LIMIT + 1)
    assert noisy(small).members == (*linear_thompson(small).members, kl.pbil_lambda(small))
    assert noisy(large) == Search((kl.pbil_lambda(large),), deterministic=False)


@pytest.mark.slow
def test_it_is_ahead_of_pbil_lambda_on_noisy_onemax():
    family = Bernoulli(30)
    mistakes = {}
    for algorithm in (noisy(family), kl.pbil_lambda(family)):
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
