"""The run of a seed does not depend on what computes it: interpreted, compiled, in an executor, or with a journal."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest

import knobless as kl

pytest.importorskip("numba", reason="the compiled engine needs numba: pip install 'knobless[fast]'")

from knobless import fast

N = 13
SPACE = kl.Binary(N)
FAMILY = kl.Space.of(SPACE).family
START = np.arange(N) % 2

# More than the engine accepts, so that its predicate decides.
PREFERENCES = (kl.Quartiles(), kl.Truncation(1), kl.Truncation(3), kl.Values())
ADAPTATIONS = (
    kl.Fixed(5, 0.3),
    kl.SNR(eps=0.4, lam_max=12),
    kl.SNR(eps=0.3, lam_max=9, lam_min=3, spend=kl.steps),
    kl.SNR(eps=0.5, lam_max=40, alpha=2.5, lam_min=4),
)
ELITISM = (kl.NoElitism(), kl.LastBest(), kl.BestSoFar())
LOOPS = [
    algorithm
    for parts in product(PREFERENCES, ADAPTATIONS, ELITISM)
    if fast.plan_of(algorithm := kl.IGO(FAMILY, *parts))
]
ALGORITHMS = [(each, False) for each in LOOPS]
ALGORITHMS += [(each, True) for each in (*LOOPS, kl.P3(FAMILY), *(kl.Portfolio((kl.P3(FAMILY), i)) for i in LOOPS))]


@fast.objective
def rough(x):
    """Ties, failures, infinite values, and some structure."""
    total = np.abs(x[1:] - x[:-1]).sum()
    weight = 0
    for i in range(x.size):
        weight += (i * i + 3) * x[i]
    if weight % 11 == 3:
        return np.nan
    return np.inf if weight % 13 == 5 else float(total + weight % 4)


def interpreted(x):
    return rough(x)


def run(fun, optimize=kl.minimize, budget=120, **options):
    infos = []
    result = optimize(fun, SPACE, budget=budget, callback=infos.append, **options)
    facts = [getattr(result, name) for name in ("nfev", "nit", "failures", "status")]
    facts += [repr(result.fun), None if result.x is None else result.x.tolist(), result.mode.tolist()]
    facts += [(info.iteration, info.nfev, repr(info.best), info.lam) for info in infos]
    return [*facts, repr(result.mode_fun)], np.array([info.theta for info in infos])


def equal(one, other):
    assert one[0] == other[0]
    np.testing.assert_allclose(one[1], other[1], rtol=0, atol=1e-12)


def name(case):
    algorithm, deterministic = case
    parts = [algorithm] if not isinstance(algorithm, kl.Portfolio) else list(algorithm.members)
    words = []
    for each in parts:
        words.append(type(each).__name__ if isinstance(each, kl.P3) else f"{LOOPS.index(each)}")
    return "+".join(words) + (" deterministic" if deterministic else "")


def test_the_predicate_accepts_more_than_a_handful():
    assert len(LOOPS) == 3 * 4 * 3


@pytest.mark.parametrize("case", ALGORITHMS, ids=name)
def test_the_compiled_run_is_the_interpreted_run(case):
    algorithm, deterministic = case
    for seed, optimize, x0 in ((0, kl.minimize, None), (1, kl.maximize, None), (2, kl.minimize, START)):
        given = {"algorithm": algorithm, "deterministic": deterministic, "rng": seed, "x0": x0, "optimize": optimize}
        equal(run(rough, **given), run(interpreted, **given))


@pytest.mark.parametrize("algorithm", LOOPS[::5], ids=lambda each: name((each, False)))
@pytest.mark.parametrize("budget", [511, 1100, 2000])
def test_the_value_of_the_mode_is_the_mean_of_its_last_evaluations(algorithm, budget):
    given = {"algorithm": algorithm, "rng": 4, "budget": budget}
    equal(run(rough, **given), run(interpreted, **given))


@pytest.mark.parametrize("case", ALGORITHMS[:: len(LOOPS) // 4], ids=name)
def test_neither_an_executor_nor_a_journal_makes_it_another_run(case, tmp_path):
    algorithm, deterministic = case
    given = {"algorithm": algorithm, "deterministic": deterministic, "rng": 3}
    alone = run(rough, **given)
    with ThreadPoolExecutor(2) as pool:
        equal(run(rough, workers=pool, **given), alone)
    equal(run(rough, journal=tmp_path / "run.sqlite", **given), alone)
    equal(run(rough, journal=tmp_path / "run.sqlite", **given), alone)  # all of it is recalled
