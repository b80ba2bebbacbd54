"""What the algorithms do on known problems, over fixed seeds and in bands wide enough for any platform."""

import math

import numpy as np
import pytest

import knobless as kl
from knobless.algorithms import IGO, SNR, Quartiles, cga
from knobless.families import Bernoulli
from knobless.problems import LeadingOnes

SEEDS = range(5)


def onemax(x):
    return x.shape[1] - x.sum(axis=1, dtype=float)


def hit(algorithm, f, seed, cap=10**6):
    """Calls until f is zero, inf if it never was, and the largest λ on the way."""
    rng, state, nfev, peak = np.random.default_rng(seed), algorithm.init(), 0, 2
    while nfev < cap:
        x = algorithm.ask(state, rng)
        values = f(x)
        if not values.all():
            return nfev + int(values.argmin()) + 1, peak
        nfev += len(x)
        state = algorithm.tell(state, x, values)
        peak = max(peak, algorithm.lam(state))
    return math.inf, peak


@pytest.mark.slow
@pytest.mark.parametrize(("n", "low", "high"), [(100, 600, 880), (1000, 11_000, 13_500)])
def test_pbil_lambda_hits_onemax_as_in_the_paper(n, low, high):
    runs = [hit(kl.pbil_lambda(Bernoulli(n)), onemax, seed) for seed in SEEDS]
    assert low <= np.median([calls for calls, _ in runs]) <= high
    if n == 1000:
        assert 13 <= np.median([peak for _, peak in runs]) <= 17


@pytest.mark.slow
def test_pbil_lambda_hits_leadingones_as_in_the_paper():
    fast = pytest.importorskip("knobless.fast", reason="these many calls are for the compiled engine")
    runs = fast.trials(LeadingOnes(100), kl.pbil_lambda(Bernoulli(100)), SEEDS, budget=10**6, target=0)
    assert 20_000 <= np.median([run.nfev for run in runs]) <= 42_000


@pytest.mark.slow
def test_cga_with_the_usual_step_on_onemax():
    assert 2000 <= np.median([hit(cga(Bernoulli(100)), onemax, seed)[0] for seed in SEEDS]) <= 2350


@pytest.mark.slow
def test_a_small_step_needs_no_more_than_two_samples_and_is_then_cga():
    family = Bernoulli(100)
    small = IGO(family, Quartiles(), SNR(eps=1 / 100, lam_max=100))
    for seed in SEEDS:
        assert hit(small, onemax, seed) == hit(cga(family), onemax, seed)


@pytest.mark.slow
def test_a_large_step_leads_cga_astray_on_leadingones():
    fast = pytest.importorskip("knobless.fast", reason="half a million calls are for the compiled engine")
    algorithm = cga(Bernoulli(100), eps=0.1)
    runs = list(fast.trials(LeadingOnes(100), algorithm, SEEDS, budget=10**5, target=0))
    assert all(run.nfev == 10**5 and run.best > 0 for run in runs)


@pytest.mark.parametrize("bound", ["low", "high"])
@pytest.mark.parametrize(
    ("variable", "close"),
    [(kl.Integer(0, 63, n=20), 0), (kl.Float(0, 63, n=20), 0.063), (kl.Integer(1, 64, log=True), 0)],
)
def test_an_optimum_on_the_bounds_is_found(variable, close, bound):
    best = getattr(variable, bound)
    for seed in range(5):
        assert kl.minimize(lambda x: np.abs(x - best).sum(), variable, budget=4000, target=close, rng=seed).success


@pytest.mark.slow
def test_a_mixed_space_is_solved():
    space = kl.Space(
        bits=kl.Binary(10),
        choices=[kl.Choice("a", "b", "c", "d")] * 5,
        integers=[kl.Integer(1, 64)] * 3,
        floats=[kl.Float(1e-4, 1e-1, log=True)] * 2,
    )
    close = 0
    for seed in range(4):
        rng = np.random.default_rng(1000 + seed)
        bits, choices = rng.integers(0, 2, 10), rng.choice(list("abcd"), 5)
        integers, floats = rng.integers(1, 65, 3), rng.uniform(-4, -1, 2)

        def fun(x, bits=bits, choices=choices, integers=integers, floats=floats):
            wrong = (x["bits"] != bits).sum() + sum(a != b for a, b in zip(x["choices"], choices, strict=True))
            off = (np.array(x["integers"]) - integers) / 63, (np.log10(x["floats"]) - floats) / 3
            return wrong + sum((d**2).sum() for d in off)

        close += kl.minimize(fun, space, budget=5000, target=0.05, rng=seed).fun <= 0.05
    assert close >= 3


def solved_under_noise(algorithm, runs, n=50):
    """How many runs on OneMax with Gaussian noise of variance n end with the optimum as their mode."""
    solved = 0
    for seed in range(runs):
        noise = np.random.default_rng(1000 + seed)
        result = kl.minimize(
            lambda x, noise=noise: onemax(x) + noise.normal(0, n**0.5, len(x)),
            kl.Binary(n),
            budget=40_000,
            algorithm=algorithm,
            rng=seed,
            vectorized=True,
        )
        solved += bool(result.mode.all())
    return solved


@pytest.mark.slow
def test_noise_is_averaged_out_by_adaptation():
    assert solved_under_noise(None, runs=3) >= 2


@pytest.mark.slow
def test_noise_is_not_averaged_out_by_a_large_fixed_step():
    assert solved_under_noise(cga(kl.Binary(50), eps=0.1), runs=1) == 0
