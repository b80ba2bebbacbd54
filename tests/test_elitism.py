"""Elitism: the points that the rules keep, their effect on θ, and that the signal does not depend on them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from conftest import FAMILIES, SMALL, Spy, examples, frozen, support, thetas, tuples
from knobless import Binary, Optimizer, pbil_lambda
from knobless.algorithms import (
    IGO,
    SNR,
    BestSoFar,
    Elite,
    LastBest,
    NoElitism,
    Quartiles,
    Truncation,
    Values,
    cga,
    pbil_elitist,
)
from knobless.core.rng import Stream
from knobless.families import Axis, Bernoulli, Gaussian
from oracle_p3 import SplitMix

PREFERENCES = {"quartiles": Quartiles(), "best": Truncation(1), "values": Values()}
every_preference = pytest.mark.parametrize("preference", PREFERENCES.values(), ids=PREFERENCES)
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)

NONE = Elite.empty(Bernoulli(1))


def elite(x, f):
    """The elite of one point."""
    return Elite(frozen([x]), frozen([f], float))


# The rules


def plain_last(history):
    """The first best of the last iteration, None if all of it failed."""
    best = None
    for x, f in history[-1] if history else []:
        if f < (math.inf if best is None else best[1]):
            best = x, f
    return best


def plain_so_far(history):
    """The best of all iterations; of those as good, the first one of the last iteration that has one."""
    best = None
    for iteration in history:
        found = plain_last([iteration])
        if found is not None and (best is None or found[1] <= best[1]):
            best = found
    return best


values = st.one_of(st.integers(-2, 2).map(float), st.sampled_from([math.nan, math.inf, -math.inf]))


@pytest.mark.parametrize(("rule", "plain"), [(LastBest(), plain_last), (BestSoFar(), plain_so_far)])
@examples(50)
@given(st.lists(st.lists(values, min_size=1, max_size=4), max_size=6))
def test_the_rules_are_plain_folds(rule, plain, iterations):
    kept, history, count = NONE, [], itertools.count()
    for f in iterations:
        x = frozen([[next(count)] for _ in f])  # points that tell who they are
        history.append(list(zip(x[:, 0].tolist(), f, strict=True)))
        kept = rule(kept, x, frozen(f, float))
        assert (kept.x.shape[1:], kept.x.shape[:1]) == ((1,), kept.f.shape)
        expected = plain(history)
        assert list(zip(kept.x[:, 0].tolist(), kept.f.tolist(), strict=True)) == (
            [] if expected is None else [expected]
        )


def test_nobody_is_kept():
    kept = NoElitism()(elite(np.zeros(1), 0.0), np.ones((1, 1)), np.array([-1.0]))
    assert (kept.x.shape, kept.f.shape) == ((0, 1), (0,))
    assert pbil_lambda(Bernoulli(3)).elitism == NoElitism()


@pytest.mark.parametrize("rule", [LastBest(), BestSoFar()])
def test_what_is_kept_is_a_copy(rule):
    x = np.zeros((2, 3))
    kept = rule(Elite.empty(Bernoulli(3)), x, np.array([1.0, 0.0]))
    x[:] = 7
    assert not kept.x.any()


# The signal


WITH_A_NUMBER = {**SMALL, "float": Gaussian((Axis(),)).within(50)}
every_small = pytest.mark.parametrize("family", WITH_A_NUMBER.values(), ids=WITH_A_NUMBER)


@pytest.mark.slow
@every_small
@every_preference
@examples(8)
@given(st.data())
def test_the_signal_has_length_one_when_f_tells_nothing(family, preference, data):
    """E‖z‖² = 1 for any elite if f is independent of x: exact, by enumerating all samples, also with ties."""
    lam, theta = data.draw(st.integers(2, 4)), data.draw(thetas(family))
    f = frozen(data.draw(st.lists(st.integers(0, 2), min_size=lam, max_size=lam)), float)
    points, _ = support(family, theta)
    survivor = st.builds(elite, st.sampled_from(list(points)), st.integers(-1, 3).map(float))
    kept = data.draw(st.one_of(st.just(Elite.empty(family)), survivor, survivor))
    spy = Spy()
    algorithm = IGO(family, preference, spy, LastBest())
    state = algorithm.init(theta)._replace(elite=kept)
    mean2, mean = 0.0, 0.0
    for x, p in tuples(family, theta, lam):
        algorithm.tell(state, x, f)
        if not spy.told:  # the weights do not depend on x: nothing is told of any samples
            weights = preference(np.append(f, kept.f))
            assert not weights[:lam].any() or len(set(weights.tolist())) == 1
            return
        z, noise = spy.told.pop()
        mean2 += p * (z @ z) / noise**2
        mean = mean + p * z
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    assert math.isclose(mean2, 1.0, rel_tol=1e-10)


@pytest.mark.parametrize(("at", "length2"), [(1, 1 / 9), (0, 9.0)])
def test_with_the_survivor_in_it_the_signal_would_have_another_length(at, length2):
    """A likely survivor would make it shorter and an unlikely one longer: it is left out for a reason."""
    family, lam = Bernoulli(1).within(50), 2
    theta, f, kept = frozen([0.9]), frozen([1.0, 2.0]), elite([at], 0.0)
    spy = Spy()
    algorithm = IGO(family, Quartiles(), spy, LastBest())
    share = Quartiles()(np.append(f, kept.f)) / (lam + 1)
    without = with_it = 0.0
    for x, p in tuples(family, theta, lam):
        algorithm.tell(algorithm.init(theta)._replace(elite=kept), x, f)
        z, noise = spy.told.pop()
        without += p * float(z @ z) / noise**2
        z = z + share[-1] * family.whiten(theta, kept.x[0] - theta)
        with_it += p * float(z @ z) / (family.dim * float(share @ share))
    assert math.isclose(without, 1.0, rel_tol=1e-12)
    own = share[-1] ** 2 / (share @ share)
    assert math.isclose(with_it, 1.0 - own + own * length2, rel_tol=1e-12)
    assert abs(with_it - 1.0) > 0.3


@every_family
def test_where_only_the_survivor_counts_theta_moves_and_the_signal_stays(family):
    """If only the best of all has a weight, samples that are all worse have none, and there is no signal."""
    algorithm = IGO(family, Truncation(1), SNR(eps=0.5, lam_max=9), LastBest())
    start = algorithm.init()
    x = algorithm.ask(start, np.random.default_rng(0), 3)
    state = algorithm.tell(start, frozen(x), frozen([0.0, 1.0, 2.0]))
    after = algorithm.tell(state, frozen(x[1:]), frozen([1.0, 2.0]))
    expected = family.move(state.theta, 0.5 * (family.statistics(x[:1])[0] - state.theta))
    np.testing.assert_allclose(after.theta, expected, rtol=0, atol=1e-15)
    assert after.signal.s.tolist() == state.signal.s.tolist()
    assert after.signal[1:] == state.signal[1:]


# The pull


@pytest.mark.slow
@every_family
@every_preference
@given(st.data())
def test_samples_and_survivor_are_ranked_together_and_all_pull(family, preference, data):
    lam = data.draw(st.integers(1, 6))
    theta = data.draw(thetas(family))
    points, _ = support(family, theta)
    each = st.sampled_from(list(points))
    x = frozen(data.draw(st.lists(each, min_size=lam, max_size=lam)))
    f = frozen(data.draw(st.lists(values, min_size=lam, max_size=lam)), float)
    kept = elite(data.draw(each), data.draw(st.integers(-2, 2).map(float)))
    eps = 0.5
    algorithm = IGO(family, preference, Spy(), LastBest())
    state = algorithm.tell(algorithm.init(theta)._replace(elite=kept), x, f)
    everyone, w = np.vstack([x, kept.x]), preference(np.append(f, kept.f))
    gradient = np.zeros(len(theta))
    if len(set(w.tolist())) > 1:
        for xi, wi in zip(everyone, w, strict=True):
            gradient += wi / (lam + 1) * (family.statistics(xi[None])[0] - theta)
    np.testing.assert_allclose(state.theta, family.move(theta, eps * gradient), rtol=0, atol=1e-12)


def plain_run(n, rows, f, so_far):
    """PBIL-λ with a survivor on bits, one number at a time; see `oracle.run` for the lines that are the paper's."""
    margin, alpha, beta = 1 / max(n, 4), 1.5, n**-0.5
    theta, s, gamma, lam_r, kept = [0.5] * n, [0.0] * n, 0.0, 2.0, None
    while True:
        lam = round(lam_r)
        x = [[int(u < math.floor(theta[k] * 2**32)) for k, u in enumerate(next(rows))] for _ in range(lam)]
        values = [f(xi) for xi in x]
        everyone = [*zip(x, values, strict=True)] + ([] if kept is None else [kept])
        m = len(everyone)
        w = oracle.shared(oracle.quartiles(m), [value for _, value in everyone])
        if min(w) < max(w):
            before, drawn2 = list(theta), sum(w[i] ** 2 for i in range(lam))
            for k in range(n):
                drawn = sum(w[i] * (x[i][k] - before[k]) for i in range(lam)) / m  # the samples' part alone
                all_of = sum(w[i] * (everyone[i][0][k] - before[k]) for i in range(m)) / m
                theta[k] = min(max(before[k] + beta * all_of, margin), 1 - margin)
                z = drawn / math.sqrt(before[k] * (1 - before[k])) / (math.sqrt(n * drawn2) / m)
                s[k] = (1 - beta) * s[k] + math.sqrt(beta * (2 - beta)) * z
            gamma = (1 - beta) ** 2 * gamma + beta * (2 - beta)
            lam_r *= math.exp(beta * (gamma - sum(sk**2 for sk in s) / alpha))
            lam_r = min(max(lam_r, 2), max(n, 2))
        best = plain_last([list(zip(x, values, strict=True))])
        if not so_far or (best is not None and (kept is None or best[1] <= kept[1])):
            kept = best
        yield x, list(theta), kept


def drawn_rows(seed, n):
    """Yield rows of the stream of a seed, n words of 32 bits each: whole 64-bit words, low half first."""
    words = SplitMix(int(np.random.default_rng(seed).integers(2**64, dtype=np.uint64)))
    while True:
        raw = [words.next() for _ in range((n + 1) // 2)]
        yield [half for word in raw for half in (word & 0xFFFFFFFF, word >> 32)][:n]


@pytest.mark.parametrize("so_far", [False, True], ids=["last", "so far"])
@pytest.mark.parametrize("kind", ["leading", "rugged", "failing"])
@pytest.mark.parametrize(("n", "seed"), [(1, 0), (7, 1), (24, 2)])
def test_the_loop_with_a_survivor_is_its_plain_transcription(n, seed, kind, so_far):
    """The same samples and so the same λ, over runs long enough for λ to move; θ within rounding."""

    def f(x):
        hashed = (sum((i + 3) ** 5 * int(xi) for i, xi in enumerate(x)) * 2654435761 >> 9) % 97
        if kind == "leading":
            return float(-sum(itertools.takewhile(bool, map(int, x))))
        return float(hashed) if kind == "rugged" else (math.nan, math.inf, 1.0, 0.0)[hashed % 4]

    algorithm = pbil_elitist(Bernoulli(n))
    if so_far:
        algorithm = replace(algorithm, elitism=BestSoFar())
    rng, state, spent = Stream.of(seed), algorithm.init(), set()
    for _, (y, phi, kept) in zip(range(120), plain_run(n, drawn_rows(seed, n), f, so_far), strict=False):
        state.theta.flags.writeable = state.signal.s.flags.writeable = False
        x = frozen(algorithm.ask(state, rng))
        state = algorithm.tell(state, x, frozen([f(xi) for xi in x], float))
        assert x.tolist() == y
        np.testing.assert_allclose(state.theta, phi, rtol=0, atol=1e-12)
        assert (state.elite.x.tolist(), state.elite.f.tolist()) == (
            ([], []) if kept is None else ([kept[0]], [kept[1]])
        )
        spent.add(len(x))
    assert len(spent) > 2 or n < 24 or kind == "leading"


# The state


@pytest.mark.parametrize("value", [0.0, math.inf, math.nan])
@pytest.mark.parametrize("rule", [LastBest(), BestSoFar()])
def test_a_flat_objective_moves_nothing_but_the_survivor(rule, value):
    algorithm = replace(pbil_lambda(Bernoulli(5)), elitism=rule)
    rng, state = np.random.default_rng(0), algorithm.init()
    for _ in range(50):
        x = algorithm.ask(state, rng)
        state = algorithm.tell(state, x, np.full(len(x), value))
        assert state.elite.x.tolist() == (x[:1].tolist() if value == 0.0 else [])
    assert state.theta.tolist() == [0.5] * 5
    assert not state.signal.s.any()


def test_hearing_of_a_point_makes_it_the_survivor_where_there_are_any():
    x = np.array([1, 0, 1], dtype=np.int8)
    family = Bernoulli(3)
    alone, kept = cga(family), pbil_elitist(family)
    assert not len(alone.inject(alone.init(), x, -1.0).elite.f)
    heard = kept.inject(kept.init(), x, -1.0)
    assert (heard.elite.x.tolist(), heard.elite.f.tolist()) == ([[1, 0, 1]], [-1.0])
    assert heard.theta.tolist() == [0.5] * 3


def test_writing_to_the_state_that_was_handed_out_changes_nothing():
    opt, other = (Optimizer(Binary(6), pbil_elitist(Bernoulli(6)), rng=0) for _ in range(2))
    for _ in range(20):
        for each in (opt, other):
            each.tell(batch := each.ask(), [float(c.x.sum()) for c in batch])
        opt.state.elite.x[:] = 7
        assert opt.theta.tolist() == other.theta.tolist()
    assert opt.state.elite.x.tolist() == other.state.elite.x.tolist()
