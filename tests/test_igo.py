"""The loop: against the plain-Python oracle, against the algorithms it contains, and the laws of its signal."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import oracle
from conftest import FAMILIES, SMALL, Spy, examples, frozen, log_density, support, thetas, tuples
from knobless import pbil_epsilon, pbil_lambda
from knobless.algorithms import (
    IGO,
    SNR,
    Fixed,
    LastBest,
    Quartiles,
    Truncation,
    Values,
    cga,
    pbil,
    samples,
    steps,
    umda,
)
from knobless.core.adaptation import Signal
from knobless.core.rng import Stream
from knobless.families import Bernoulli, Categorical
from oracle_p3 import SplitMix

RECIPES = {
    "pbil_lambda": pbil_lambda,
    "pbil_epsilon": pbil_epsilon,
    "cga": cga,
    "umda": lambda family: umda(family, 8, 3),
    "pbil": lambda family: pbil(family, 6, 2, 0.3),
    "alpha": lambda family: IGO(family, Quartiles(), SNR(eps=0.5, lam_max=8, alpha=3.0)),
    "values": lambda family: IGO(family, Values(), SNR(eps=0.5, lam_max=8)),
}
ORACLES = {
    "pbil_lambda": oracle.pbil_lambda,
    "pbil_epsilon": oracle.pbil_epsilon,
    "cga": oracle.cga,
    "umda": lambda n: oracle.umda(8, 3),
    "pbil": lambda n: oracle.pbil(6, 2, 0.3),
    "alpha": lambda n: oracle.Settings(oracle.quartiles, eps=0.5, lam_min=2, lam_max=8, alpha=3.0),
}
every_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def run(algorithm, seed, f, iterations):
    """Samples, ε and θ of every iteration; everything handed over is read-only."""
    rng = Stream.of(seed)
    state = algorithm.init()
    for _ in range(iterations):
        state.theta.flags.writeable = state.signal.s.flags.writeable = False
        eps = algorithm.info(state).eps
        x = frozen(algorithm.ask(state, rng))
        state = algorithm.tell(state, x, frozen([f(xi) for xi in x], float))
        yield x, eps, state.theta


def rows(seed, n):
    """Yield rows of the stream of a seed, n words of 32 bits each: whole 64-bit words, low half first."""
    words = SplitMix(int(np.random.default_rng(seed).integers(2**64, dtype=np.uint64)))
    while True:
        raw = [words.next() for _ in range((n + 1) // 2)]
        yield [half for word in raw for half in (word & 0xFFFFFFFF, word >> 32)][:n]


@st.composite
def objectives(draw, n):
    """Small whole numbers, so that ties abound, of either sign; linear, with interactions, or hard to learn from."""
    a = draw(st.lists(st.integers(-2, 2), min_size=n, max_size=n))
    kind = draw(st.sampled_from(["linear", "pairs", "leading", "hash", "failing"]))
    if kind == "leading":
        return lambda x: -sum(itertools.takewhile(bool, x))
    if kind == "hash":
        return lambda x: (sum((i + 3) ** 5 * int(xi) for i, xi in enumerate(x)) * 2654435761 >> 7) % 5 - 2
    if kind == "pairs":
        return lambda x: sum(ai * int(xi) * int(xj) for ai, xi, xj in zip(a, x, x[1:], strict=False))
    linear = lambda x: sum(ai * int(xi) for ai, xi in zip(a, x, strict=True))  # noqa: E731
    if kind == "failing":
        return lambda x: (math.nan, math.inf, 1.0, 0.0)[linear(x) % 4]
    return linear


@pytest.mark.parametrize("name", ORACLES)
@examples(30)
@given(st.data())
def test_the_loop_is_algorithm_1(name, data):
    n, seed = data.draw(st.integers(1, 14)), data.draw(st.integers(0, 2**32))
    f = data.draw(objectives(n))
    core = run(RECIPES[name](Bernoulli(n)), seed, f, 40)
    plain = oracle.run(ORACLES[name](n), n, rows(seed, n), f)
    for (x, eps, theta), (y, epsilon, phi) in zip(core, plain, strict=False):
        assert x.tolist() == y  # the same samples, and so the same λ
        assert math.isclose(eps, epsilon, rel_tol=1e-12)
        np.testing.assert_allclose(theta, phi, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["pbil_lambda", "pbil_epsilon"])
def test_the_loop_is_algorithm_1_on_a_long_run(name):
    """On an objective that is hardly more than noise, so that λ and ε move a lot; the short runs need not show it."""
    n = 24
    f = lambda x: (sum((i + 3) ** 5 * int(xi) for i, xi in enumerate(x)) * 2654435761 >> 9) % 97  # noqa: E731
    spent = set()
    core = run(RECIPES[name](Bernoulli(n)), 5, f, 200)
    for (x, eps, theta), (y, _, phi) in zip(core, oracle.run(ORACLES[name](n), n, rows(5, n), f), strict=False):
        assert x.tolist() == y
        np.testing.assert_allclose(theta, phi, rtol=0, atol=1e-12)
        spent.add((len(x), eps))
    assert len(spent) > 8


# The algorithms it contains


@given(st.integers(1, 20), st.integers(0, 999))
def test_cga_by_hand(n, seed):
    rng = np.random.default_rng(seed)
    algorithm = cga(Bernoulli(n))
    state = algorithm.init()
    for _ in range(20):
        x = algorithm.ask(state, rng)
        f = rng.integers(0, 3, 2).astype(float)
        winner, loser = x[np.argsort(f, kind="stable")].astype(float)
        expected = state.theta if f[0] == f[1] else state.theta + (winner - loser) / n
        state = algorithm.tell(state, frozen(x), frozen(f))
        least = 1.0 / max(n, 4)
        np.testing.assert_allclose(state.theta, np.clip(expected, least, 1.0 - least), rtol=0, atol=1e-15)


@given(st.integers(1, 20), st.integers(0, 999), st.sampled_from([(10, 3, 1.0), (5, 4, 1.0), (10, 3, 0.25)]))
def test_umda_and_pbil_by_hand(n, seed, numbers):
    lam, mu, eps = numbers
    rng = np.random.default_rng(seed)
    family = Bernoulli(n)
    algorithm = umda(family, lam, mu) if eps == 1.0 else pbil(family, lam, mu, eps)
    x = algorithm.ask(algorithm.init(), rng)
    assert len(x) == lam
    f = rng.permutation(lam).astype(float)
    theta = algorithm.tell(algorithm.init(), frozen(x), frozen(f)).theta
    expected = (1.0 - eps) * 0.5 + eps * x[f < mu].mean(axis=0)  # the mean of the μ best
    least = 1.0 / max(n, 4)
    np.testing.assert_allclose(theta, np.clip(expected, least, 1.0 - least), rtol=0, atol=1e-14)


@every_family
def test_cga_is_pbil_epsilon_held_at_two_samples(family):
    """Bit for bit, as in the paper's appendix."""
    held = IGO(family, Quartiles(), SNR(eps=1 / family.dim, lam_min=2, lam_max=2, spend=steps))
    f = lambda x: float(np.sum(x * x))  # noqa: E731
    for (x, eps, theta), (y, epsilon, phi) in zip(run(cga(family), 1, f, 100), run(held, 1, f, 100), strict=True):
        np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(theta, phi)
        assert eps == epsilon


@pytest.mark.parametrize("n", [50, 100])
def test_pbil_lambda_with_short_steps_is_cga_on_onemax(n):
    """The paper: with ε = 1/n it "performed very similarly to cGA, as it kept λ = 2". Here until the optimum."""
    short = IGO(Bernoulli(n), Quartiles(), SNR(eps=1 / n, lam_max=n))
    onemax = lambda x: n - int(x.sum())  # noqa: E731
    for (x, _, theta), (y, _, phi) in zip(
        run(short, 0, onemax, 2000), run(cga(Bernoulli(n)), 0, onemax, 2000), strict=True
    ):
        assert len(x) == 2
        np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(theta, phi)
        if x.all(axis=1).any():
            return
    pytest.fail("the optimum was not found")


# Nothing told, nothing learned


@every_family
@every_recipe
@pytest.mark.parametrize("value", [0.0, -3.5, 7.0, math.inf, math.nan])
def test_a_flat_objective_changes_nothing(family, recipe, value):
    algorithm = recipe(family)
    start = state = algorithm.init()
    theta, s = state.theta.tobytes(), state.signal.s.tobytes()
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = algorithm.ask(state, rng)
        state = algorithm.tell(state, x, np.full(len(x), value))
    assert state.theta.tobytes() == theta
    assert state.signal.s.tobytes() == s
    assert state.signal[1:] == start.signal[1:]


# The signal


every_small = pytest.mark.parametrize("family", SMALL.values(), ids=SMALL)


@every_small
@pytest.mark.parametrize("preference", [Quartiles(), Truncation(1), Values()], ids=["quartiles", "best", "values"])
@examples(8)
@given(st.data())
def test_the_whitened_gradient_has_length_one_when_f_tells_nothing(family, preference, data):
    """E‖z‖² = 1 with f drawn apart from x; exact, by enumerating the samples, also with ties."""
    theta = data.draw(thetas(family))
    f = frozen(data.draw(st.lists(st.integers(0, 2), min_size=3, max_size=3)), float)
    assume(len(set(f)) > 1)
    mean2, mean = 0.0, 0.0
    for x, p in tuples(family, theta, 3):
        spy = Spy()
        algorithm = IGO(family, preference, spy)
        algorithm.tell(algorithm.init(theta), x, f)
        z, noise = spy.told[0]
        mean2 += p * (z @ z) / noise**2
        mean = mean + p * z
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    assert math.isclose(mean2, 1.0, rel_tol=1e-10)


@every_small
@examples(8)
@given(st.data())
def test_snr2_is_one_plus_snr(family, data):
    """Eq. (snr2) of the gradient as the loop whitens it, against eq. (snr) with an explicit Fisher matrix."""
    theta = data.draw(thetas(family))
    x, p = support(family, theta)
    T = family.statistics(x) - theta
    G = np.linalg.pinv((T.T * p) @ T, rcond=1e-12, hermitian=True)
    a = np.array(data.draw(st.lists(st.integers(-2, 2), min_size=x.shape[1], max_size=x.shape[1])))
    assume(a.any())
    length2, mean, second = 0.0, 0.0, 0.0
    for y, q in tuples(family, theta, 2):
        f = frozen(y @ a, float)
        spy = Spy()
        algorithm = IGO(family, Quartiles(), spy)
        algorithm.tell(algorithm.init(theta), y, f)
        if spy.told:  # otherwise all tied, and the gradient is zero
            z, _ = spy.told[0]
            length2 += q * (z @ z)
        w = Quartiles()(f)
        gradient = w @ (family.statistics(y) - theta) / 2
        mean = mean + q * gradient
        second = second + q * np.outer(gradient, gradient)
    noise = np.trace(G @ (second - np.outer(mean, mean)))
    snr, snr2 = mean @ G @ mean / noise, length2 / noise
    assert math.isclose(snr2, 1.0 + snr, rel_tol=1e-8)


@given(st.floats(0.05, 1.0), st.integers(1, 7), st.floats(0.0, 3.0))
def test_averaging_raises_the_signal_and_not_the_noise(beta, t, signal):
    """‖s‖²/γ is on average 1 + SNR·(Σ(1−β)^k)²/Σ(1−β)^2k, which tends to (2−β)/β; over all signs of the noise."""
    adaptation = SNR(eps=beta, lam_max=2)
    mean = np.array([signal, 0.0, 0.0])
    length2 = 0.0
    for signs in itertools.product((-1.0, 1.0), repeat=t):
        state = adaptation.start(np.zeros(3))
        for k, sign in enumerate(signs):  # noise of length one, in one direction after another
            eps, state = adaptation.step(state, frozen(mean + sign * np.eye(3)[k % 3]), 1.0)
            assert eps == beta
        length2 += float(state.s @ state.s) / 2**t
    kept = (1.0 - beta) ** np.arange(t)
    assert math.isclose(state.gamma, 1.0 - (1.0 - beta) ** (2 * t), rel_tol=1e-9)
    raised = kept.sum() ** 2 / (kept**2).sum()
    assert math.isclose(length2 / state.gamma, 1.0 + signal**2 * raised, rel_tol=1e-9)


@pytest.mark.parametrize("beta", [0.01, 0.1, 0.5, 1.0])
def test_averaging_raises_the_snr_by_the_papers_factor(beta):
    adaptation = SNR(eps=beta, lam_max=2)
    state = adaptation.start(np.zeros(2))
    for _ in range(4000):
        _, state = adaptation.step(state, frozen([0.3, 0.4]), 0.5)  # a signal of length one, no noise
    assert math.isclose(float(state.s @ state.s) / state.gamma, (2.0 - beta) / beta, rel_tol=1e-9)


def test_lambda_stays_within_its_bounds():
    adaptation = SNR(eps=0.5, lam_min=3, lam_max=7)
    for z, bound in ((np.zeros(2), 7.0), (np.full(2, 9.0), 3.0)):  # no signal, then nothing but signal
        state = adaptation.start(np.zeros(2))
        for _ in range(50):
            _, state = adaptation.step(state, frozen(z), 1.0)
            assert 3.0 <= state.lam_r <= 7.0
        assert state.lam_r == bound


def test_snr_reads_off_the_state():
    algorithm = pbil_lambda(Bernoulli(9))
    state = algorithm.init()
    assert math.isnan(algorithm.info(state).snr)
    x = np.eye(9, dtype=np.int8)[:2]
    state = algorithm.tell(state, x, np.array([0.0, 1.0]))
    assert math.isclose(algorithm.info(state).snr, float(state.signal.s @ state.signal.s) / state.signal.gamma)
    # By hand: z = ½(2x_1 − 2x_2)/√¼ has ‖z‖² = 8, and noise² = 9·8/4.
    assert math.isclose(algorithm.info(state).snr, 8.0 / 18.0, rel_tol=1e-12)


# Theorem 1


@pytest.mark.parametrize(
    "family",
    [Bernoulli(3).within(10**9), Categorical(1, 4).within(10**9), Categorical(2, 3).within(10**9)],
    ids=["bits", "choice", "choices"],
)
@given(st.data())
def test_theorem_1(family, data):
    """ln J(θ')/J(θ) ≥ (1 − ε̄)/ε̄ · KL(P_θ‖P_θ'), run through the loop itself.

    θ in fractions, so that a sample with each point as often as its probability makes the Monte Carlo
    mean the exact one. Margins of 1e-9 are no projection.
    """
    k = 2 if isinstance(family, Bernoulli) else family.k
    shares = [data.draw(st.lists(st.integers(1, 3), min_size=k, max_size=k)) for _ in range(family.n)]
    theta = np.array([[part / sum(each) for part in each] for each in shares])
    theta = frozen(theta[:, 1] if isinstance(family, Bernoulli) else theta.ravel())
    x, p = support(family, theta)
    W = np.array(data.draw(st.lists(st.floats(0.0, 5.0), min_size=len(x), max_size=len(x))))
    eps = data.draw(st.floats(0.01, 0.99))
    J = p @ W
    assume(J > 1e-3)
    counts = p * math.prod(sum(each) for each in shares)
    np.testing.assert_allclose(counts, np.rint(counts), rtol=1e-12)
    counts = np.rint(counts).astype(int)
    order = np.argsort(-W, kind="stable")  # f: the rank of W, so that W is a non-increasing function of f
    f = np.empty(len(x))
    f[order] = np.arange(len(x))
    algorithm = IGO(family, Values(lambda f: W[order][f.astype(int)]), Fixed(2, eps))
    after = algorithm.tell(algorithm.init(theta), x.repeat(counts, axis=0), f.repeat(counts)).theta
    _, q = support(family, after)
    kl = sum(
        pi * (log_density(family, theta, xi) - log_density(family, after, xi)) for pi, xi in zip(p, x, strict=True)
    )
    assert math.log(q @ W / J) >= (1.0 - eps) / eps * kl - 1e-9


# What is refused, and what is allowed


def test_no_limit_on_the_samples_is_allowed():
    algorithm = IGO(Bernoulli(10), Quartiles(), SNR(eps=0.5, lam_max=math.inf))
    rng = np.random.default_rng(0)
    state = algorithm.init()
    for _ in range(200):
        x = algorithm.ask(state, rng)
        if len(x) > 10:  # under pure noise λ passes the default limit; no need to see how far
            return
        state = algorithm.tell(state, x, rng.random(len(x)))
    pytest.fail("λ stayed within the default limit")


@pytest.mark.parametrize(
    ("bad", "error", "name"),
    [
        (lambda: SNR(eps=0.0, lam_max=5), ValueError, "eps"),
        (lambda: SNR(eps=1.1, lam_max=5), ValueError, "eps"),
        (lambda: SNR(eps=math.nan, lam_max=5), ValueError, "eps"),
        (lambda: SNR(eps="fast", lam_max=5), TypeError, "eps"),
        (lambda: SNR(eps=0.5, lam_max=1), ValueError, "lam_max"),
        (lambda: SNR(eps=0.5, lam_max=math.nan), ValueError, "lam_max"),
        (lambda: SNR(eps=0.5, lam_max=9, lam_min=10), ValueError, "lam_max"),
        (lambda: SNR(eps=0.5, lam_max=5, lam_min=1), ValueError, "lam_min"),
        (lambda: SNR(eps=0.5, lam_max=5, lam_min=2.5), TypeError, "lam_min"),
        (lambda: SNR(eps=0.5, lam_max=5, alpha=0.0), ValueError, "alpha"),
        (lambda: Fixed(1, 0.5), ValueError, "lam"),
        (lambda: Fixed(2.0, 0.5), TypeError, "lam"),
        (lambda: Fixed(2, 0.0), ValueError, "eps"),
        (lambda: Fixed(2, math.inf), ValueError, "eps"),
        (lambda: umda(Bernoulli(3), 5, 5), ValueError, "mu"),
        (lambda: umda(Bernoulli(3), 5, 0), ValueError, "mu"),
        (lambda: umda(Bernoulli(3), 1, 1), ValueError, "lam"),
        (lambda: pbil(Bernoulli(3), 5, 2, 0.0), ValueError, "eps"),
        (lambda: pbil(Bernoulli(3), 5, 2, 1.5), ValueError, "eps"),
        (lambda: pbil(Bernoulli(3), 5.5, 2, 0.5), TypeError, "lam"),
        (lambda: cga(Bernoulli(3), eps=-1.0), ValueError, "eps"),
        (lambda: cga("bits"), TypeError, "space"),
    ],
)
def test_errors_name_the_argument(bad, error, name):
    with pytest.raises(error, match=rf"^{name}\b"):
        bad()


def test_what_a_recipe_is_made_of():
    for family in FAMILIES.values():
        n = family.dim
        assert pbil_lambda(family) == IGO(family, Quartiles(), SNR(eps=n**-0.5, lam_max=max(n, 2), spend=samples))
        assert pbil_epsilon(family) == IGO(family, Quartiles(), SNR(eps=n**-0.5, lam_max=max(n, 2), spend=steps))
        assert cga(family) == IGO(family, Quartiles(), Fixed(2, 1 / n))
        assert umda(family, 9, 4) == IGO(family, Truncation(4), Fixed(9, 1.0))
        assert pbil(family, 9, 4, 0.2) == IGO(family, Truncation(4), Fixed(9, 0.2))


@every_recipe
@pytest.mark.parametrize("lam", [2, 5, 30])
def test_at_least(recipe, lam):
    algorithm = recipe(Bernoulli(20))
    more = algorithm.at_least(lam)
    assert more.lam(more.init()) == max(lam, algorithm.lam(algorithm.init()))
    for x, _, _ in run(more, 0, lambda x: int(x.sum()), 30):
        assert len(x) >= lam


def test_steps_are_as_short_as_the_ratio_says():
    adaptation = SNR(eps=0.5, lam_max=100, spend=steps)
    assert adaptation.spend_at(Signal(np.zeros(1), 0.0, 8.0)) == (2, 0.125)
    assert SNR(eps=0.5, lam_max=100).spend_at(Signal(np.zeros(1), 0.0, 8.4)) == (8, 0.5)


@pytest.mark.parametrize(
    ("component", "given"),
    [
        ("preference", Quartiles),
        ("preference", "quartiles"),
        ("adaptation", SNR),
        ("adaptation", None),
        ("elitism", LastBest),
        ("elitism", True),
    ],
)
def test_components_are_values(component, given):
    parts = {"preference": Quartiles(), "adaptation": Fixed(2, 0.1), "elitism": LastBest()} | {component: given}
    with pytest.raises(TypeError, match=rf"^{component}: expected a value such as .*, got "):
        IGO(Bernoulli(3), **parts)
