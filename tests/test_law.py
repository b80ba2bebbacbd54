"""The run of a seed does not depend on what computes it: interpreted, compiled, in an executor, or with a journal."""

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import numpy as np
import pytest

import knobless as kl
from conftest import briefly_modeled, members_alone, quick_if
from knobless import problems
from knobless.algorithms import (
    IGO,
    P3,
    SNR,
    BestSoFar,
    Fixed,
    LastBest,
    NoElitism,
    Quartiles,
    Search,
    Truncation,
    Values,
    steps,
)
from knobless.core.archive import Archive
from knobless.core.model import MOST_EVALUATIONS
from knobless.families import Bernoulli
from knobless.run import compiled_engine
from knobless.run.compiled_engine import CompiledEngine

numba = pytest.importorskip("numba", reason="the compiled engine needs numba: pip install 'knobless[fast]'")

from knobless import fast  # noqa: E402
from knobless.fast import shared  # noqa: E402
from knobless.fast.run import Successor  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_at_once")

N = 13
SPACE = kl.Binary(N)
MANY = kl.Binary(101)  # so many that no model is used, whose evaluations take milliseconds each
FAMILY = kl.Space.of(SPACE).family
START = np.arange(N) % 2

# More than the engine accepts, so that its predicate decides.
PREFERENCES = (Quartiles(), Truncation(1), Truncation(3), Values())
ADAPTATIONS = (
    Fixed(5, 0.3),
    SNR(eps=0.4, lam_max=12),
    SNR(eps=0.3, lam_max=9, lam_min=3, spend=steps),
    SNR(eps=0.5, lam_max=40, alpha=2.5, lam_min=4),
)
ELITISM = (NoElitism(), LastBest(), BestSoFar())
LOOPS = [
    algorithm for parts in product(PREFERENCES, ADAPTATIONS, ELITISM) if fast.plan_of(algorithm := IGO(FAMILY, *parts))
]
ALGORITHMS = [(each, False) for each in LOOPS]
ALGORITHMS += [(each, True) for each in (*LOOPS, P3(FAMILY), members_alone(FAMILY), briefly_modeled(FAMILY))]
RECOMMENDED = ALGORITHMS[-1]


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
    word = f"{LOOPS.index(algorithm)}" if isinstance(algorithm, IGO) else type(algorithm).__name__
    word += " without stages" if isinstance(algorithm, Search) and not algorithm.stages else ""
    return word + (" deterministic" if deterministic else "")


def test_the_predicate_accepts_more_than_a_handful():
    assert len(LOOPS) == 3 * 4 * 3


# Every fifth case has all kinds of preference, adaptation and elitism.
@pytest.mark.parametrize("case", [quick_if(i % 5 == 0, case) for i, case in enumerate(ALGORITHMS)], ids=name)
def test_the_compiled_run_is_the_interpreted_run(case):
    algorithm, deterministic = case
    for seed, optimize, x0 in ((0, kl.minimize, None), (1, kl.maximize, None), (2, kl.minimize, START)):
        given = {"algorithm": algorithm, "deterministic": deterministic, "rng": seed, "x0": x0, "optimize": optimize}
        equal(run(rough, **given), run(interpreted, **given))


@pytest.mark.parametrize("algorithm", LOOPS[::5], ids=lambda each: name((each, False)))
@pytest.mark.parametrize("budget", [511, pytest.param(1100, marks=pytest.mark.slow)])
def test_the_value_of_the_mode_is_the_mean_of_its_last_evaluations(algorithm, budget):
    given = {"algorithm": algorithm, "rng": 4, "budget": budget}
    equal(run(rough, **given), run(interpreted, **given))


@pytest.mark.parametrize("case", [*ALGORITHMS[:: len(LOOPS) // 4], RECOMMENDED], ids=name)
def test_neither_an_executor_nor_a_journal_makes_it_another_run(case, tmp_path):
    algorithm, deterministic = case
    given = {"algorithm": algorithm, "deterministic": deterministic, "rng": 3}
    alone = run(rough, **given)
    with ThreadPoolExecutor(2) as pool:
        equal(run(rough, workers=pool, batch=1, **given), alone)
    equal(run(rough, journal=tmp_path / "run.sqlite", **given), alone)
    equal(run(rough, journal=tmp_path / "run.sqlite", **given), alone)  # all of it is recalled


def change_at(opportunity, monkeypatch):
    """Let runs change to the compiled engine after this many iterations in which they could have, and no earlier."""
    start, asked = CompiledEngine.start, Counter()

    def delayed(self, *given):
        asked[self] += 1
        return start(self, *given) if asked[self] > opportunity else None

    monkeypatch.setattr(CompiledEngine, "start", delayed)


@pytest.mark.slow
@pytest.mark.parametrize("case", [(LOOPS[0], False), (LOOPS[17], True), ALGORITHMS[-2], RECOMMENDED], ids=name)
def test_the_run_does_not_depend_on_when_it_is_compiled(case, monkeypatch):
    algorithm, deterministic = case
    given = {"algorithm": algorithm, "deterministic": deterministic, "rng": 5}
    expected = run(interpreted, **given)
    for opportunity in (0, 1, 2, 7, 30, 100) if case == RECOMMENDED else range(expected[0][1]):
        with monkeypatch.context() as patch:
            change_at(opportunity, patch)
            equal(run(rough, **given), expected)


@pytest.mark.slow
@pytest.mark.parametrize("begins", [150, 10**9])
def test_an_undecided_run_does_not_depend_on_when_it_is_compiled(begins, monkeypatch):
    for opportunity in (*range(12), 25, 60, 130):
        with monkeypatch.context() as patch:
            change_at(opportunity, patch)
            undecided(partial(Unsteady, begins), space=MANY, budget=400)


def test_a_short_run_imports_no_compiler():
    code = (
        "import sys, knobless as kl; from knobless.problems import OneMax; "
        "kl.minimize(OneMax(9), kl.Binary(9), budget=20); sys.exit('numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_compilation_is_announced_and_only_worthwhile_in_a_long_run(monkeypatch):
    opt, messages = kl.Optimizer(SPACE, rng=0), []
    engine = CompiledEngine.of(problems.OneMax(N), opt, 1.0)
    monkeypatch.setattr(compiled_engine, "COMPILE_AFTER", 2.0)
    monkeypatch.setattr(compiled_engine, "COMPILATION", 30.0)
    monkeypatch.setattr(Successor, "is_ready", False)
    while not opt.run.search.begun:
        batch = opt.ask()
        opt.tell(batch, [float(x.sum()) for _, x in batch])
    assert engine.start(1.9, 1e9, 0, messages.append) is None
    assert engine.start(9.0, 29.0, 0, messages.append) is None
    assert not messages
    assert engine.start(2.0, 30.0, 0, messages.append).nfev == opt.nfev
    assert messages == ["compiling (once)"]
    assert CompiledEngine.of(lambda x: 0.0, opt, 1.0) is None


# With nothing declared, tests for noise are part of the run.


@numba.njit(shared.OBJECTIVE, cache=True)
def unsteady(x, ints, reals):
    """Noisy from evaluation ints[1] on; each evaluation whose number is a multiple of ints[2] fails."""
    ints[0] += 1
    value = 0.0
    for i in range(x.size):
        value += (i % 5 + 1) * x[i] - 0.5 * x[i] * x[i - 1]
    if ints[0] > ints[1]:
        value += reals[0] * ((7919 * ints[0]) % 101)
    return np.nan if ints[0] % ints[2] == 0 else value


class Unsteady(fast.Objective):
    """A compiled objective whose noise begins later, and which counts its calls from Python."""

    def __init__(self, begins, noise=0.03, fails=10**9):
        super().__init__(unsteady, np.array([0, begins, fails]), np.array([noise]))
        self.calls = 0

    def _one(self, x):
        self.calls += 1
        return super()._one(x)


def undecided(make, **given):
    """Return the results of the compiled and of the interpreted run, which are the same."""
    rows, results = [], []
    for fun in (make(), make().__call__):
        infos = []
        result = kl.minimize(fun, callback=infos.append, **{"rng": 0, **given})
        facts = [repr(getattr(result, name)) for name in ("nfev", "nit", "failures", "status", "deterministic")]
        facts += [repr(getattr(result, name)) for name in ("x", "fun", "fun_std", "observed_fun", "mode", "mode_fun")]
        rows.append([*facts, *([row[:4] for row in each] for each in (infos, result.history))])
        results.append(result)
    assert rows[0] == rows[1]
    return results[0]


SEVERAL = [problems.OneMax(120), problems.LeadingOnes(103), problems.Traps(105), problems.NK(110, 3, 0)]


@pytest.mark.parametrize("problem", SEVERAL, ids=lambda problem: type(problem).__name__)
@pytest.mark.parametrize("budget", [30, pytest.param(600, marks=pytest.mark.slow)])
def test_an_undecided_run_is_the_same_compiled_or_not(problem, budget):
    for seed in (0, 1):
        result = undecided(lambda: problem, space=problem.space, budget=budget, rng=seed)
        assert result.deterministic is not False


@pytest.mark.parametrize(
    ("make", "n"), [(lambda: problems.NK(9, 3, 0), 9), pytest.param(lambda: rough, N, marks=pytest.mark.slow)]
)
def test_an_undecided_run_is_the_same_whether_or_not_it_is_compiled_after_bayesian_optimization(make, n):
    assert undecided(make, space=kl.Binary(n), budget=400).deterministic


@pytest.mark.slow
def test_noise_is_found_at_the_same_evaluation_after_bayesian_optimization():
    assert undecided(partial(Unsteady, 350), space=SPACE, budget=450).deterministic is False


@fast.objective
def flat(x):
    """The same everywhere."""
    return 1.0


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 9])
def test_a_space_that_is_exhausted_is_the_same_compiled_or_not(n):
    for fun in (rough, flat):
        assert undecided(lambda fun=fun: fun, space=kl.Binary(n), budget=3000).nfev >= 2**n


BEGINS = np.arange(101) % 2
GIVEN = [{}, {"x0": BEGINS}, {"known": [(BEGINS, -3.0), (1 - BEGINS, 9.0)]}, {"target": 20.0}, {"stall": 120}]


@pytest.mark.parametrize(
    "given", [quick_if(not each, each) for each in GIVEN], ids=["plain", "x0", "known", "target", "stall"]
)
@pytest.mark.parametrize("begins", [60, *(pytest.param(each, marks=pytest.mark.slow) for each in (0, 200, 10**9))])
def test_noise_is_found_at_the_same_evaluation_compiled_or_not(begins, given):
    for noise, fails in ((0.03, 10**9), (0.03, 7), (1e-9, 10**9)):
        make = partial(Unsteady, begins, noise, fails)
        result = undecided(make, space=MANY, budget=700, **given)
        if not given and noise > 1e-9:
            assert result.deterministic is (begins > 700)


@pytest.mark.parametrize(("n", "first"), [(40, MOST_EVALUATIONS), (120, 0)])
def test_the_law_is_not_kept_by_leaving_the_engine(n, first):
    steady, late = Unsteady(10**9), Unsteady(1000)
    result = kl.minimize(steady, kl.Binary(n), budget=3000, rng=0)
    assert result.deterministic
    assert first // 3 <= steady.calls < first + 100
    result = kl.minimize(late, kl.Binary(n), budget=3000, rng=0)
    assert result.deterministic is False
    assert steady.calls < late.calls < 2000  # about a thousand before noise is found


@pytest.mark.parametrize("budget", [150, 700])
def test_a_run_declared_noisy_is_the_same_compiled_or_not(budget):
    for make in (lambda: Unsteady(0), lambda: rough):
        result = undecided(make, space=SPACE, budget=budget, deterministic=False, algorithm=kl.pbil_lambda(SPACE))
        assert result.nfev == budget


def test_what_an_archive_keeps_does_not_depend_on_how_evaluations_are_grouped(monkeypatch):
    monkeypatch.setattr("knobless.core.archive.MOST_ROWS", 10)
    x, f = np.arange(47)[:, None].astype(np.int8).repeat(3, axis=1) % 2, np.arange(47.0)
    once, often = (Archive(Bernoulli(3), deterministic=False) for _ in range(2))
    once.add(x, f)
    for first, last in ((0, 1), (1, 12), (12, 20), (20, 20), (20, 47)):
        often.add(x[first:last], f[first:last])
    np.testing.assert_array_equal(once.f, often.f)
    np.testing.assert_array_equal(once.x(), often.x())
    np.testing.assert_array_equal(once.x()[:, 0], once.f % 2)
    assert (once.n, once.dropped) == (often.n, often.dropped) == (47, 47 - len(once))
    assert once.f[-1] == 46
    assert len(once) >= 5
