"""P3, elitism and the search compiled: the same random numbers give the same points in the same order."""

import math
import signal
import threading
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import knobless as kl
from conftest import briefly_modeled, members_alone, quick_if, sharing
from knobless import problems
from knobless.algorithms import IGO, P3, BestSoFar, Lead, QuadraticStudy, Search, Shares, pbil_elitist
from knobless.core.linkage import Pairs
from knobless.core.model import MOST_EVALUATIONS
from knobless.core.rng import Stream
from knobless.core.search import WHOLE
from knobless.core.study import LEARNING, MINIMIZING, TESTING
from knobless.core.turns import MOST_EQUAL
from knobless.families import Bernoulli

numba = pytest.importorskip("numba", reason="the compiled engine needs numba: pip install 'knobless[fast]'")

from knobless import fast  # noqa: E402
from knobless.fast import pyramid  # noqa: E402
from knobless.fast.shared import GROW_TERMS, OBJECTIVE  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_at_once")


@numba.njit(OBJECTIVE)
def noise(x, ints, reals):
    """Looks random, has ties and failures, and is the same each time."""
    h = np.uint64(ints[0])
    for i in range(x.size):
        h = (h ^ np.uint64(x[i])) * np.uint64(0x100000001B3)
        h ^= h >> np.uint64(29)
    value = float(h % np.uint64(1000))
    if value < 20:
        return np.nan
    return math.inf if value < 40 else value


def noisy(seed):
    return fast.Objective(noise, np.array([seed]))


@cache
def noting(kernel, size):
    """The kernel, which has `size` integers, with a protocol behind these."""

    @numba.njit(OBJECTIVE)
    def noted(x, ints, reals):
        at = ints[size]
        ints[size] += 1
        for i in range(x.size):
            ints[size + 1 + at * x.size + i] = x[i]
        return kernel(x, ints[:size], reals)

    return noted


class Noted:
    """An objective that notes what it was asked for, called from compiled code or from Python."""

    def __init__(self, problem, n, calls):
        inner = fast.compiled(problem)
        self.n, self.size = n, inner.ints.size
        ints = np.concatenate([inner.ints, np.zeros(1 + calls * n, dtype=int)])
        self.objective = fast.Objective(noting(inner.function, self.size), ints, inner.reals)

    def take(self):
        """What it was asked for since the last time."""
        ints = self.objective.ints
        calls, ints[self.size] = int(ints[self.size]), 0
        return ints[self.size + 1 : self.size + 1 + calls * self.n].reshape(calls, self.n).copy()


def couplings(n, seed):
    """A quadratic objective whose values are not integers."""
    return problems.Qubo(np.random.default_rng(seed).normal(size=(n, n)))


def cut(n, seed):
    rng = np.random.default_rng(seed)
    edges = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.3]
    return problems.MaxCut(edges, rng.integers(1, 5, len(edges)), n)


SEVERAL = {
    "OneMax": (problems.OneMax(20), 20),
    "LeadingOnes": (problems.LeadingOnes(17), 17),
    "Traps": (problems.Traps(30, 5), 30),
    "MaxSat": (problems.MaxSat.random(70, 290, 0), 70),
    "IsingRing": (problems.IsingRing(24), 24),
    "NK": (problems.NK(100, 4, 0), 100),
    "Qubo": (couplings(20, 0), 20),
    "MaxCut": (cut(25, 1), 25),
    "noise": (noisy(3), 13),
}
CALLS = 1000
STAGES = (TESTING, LEARNING, MINIMIZING)


@pytest.fixture(params=SEVERAL, scope="module")
def noted(request):
    problem, n = SEVERAL[request.param]
    return Noted(problem, n, CALLS)


def algorithms(n):
    family = Bernoulli(n)
    return {
        "p3": kl.algorithms.p3(family),
        "search": members_alone(family),
        "search without a study": sharing(family),
        "elitist": pbil_elitist(family),
        "best so far": replace(kl.pbil_lambda(family), elitism=BestSoFar()),
        "paper": kl.pbil_lambda(family),
    }


def both(noted, algorithm, seed, **limits):
    """The same run interpreted and compiled: the result and the run, and what each has asked for."""
    space = kl.Binary(noted.n)
    result = kl.minimize(
        lambda x: noted.objective(x), space, algorithm=algorithm, deterministic=True, rng=seed, **limits
    )
    interpreted = noted.take()
    run = fast.Run(noted.objective, algorithm, seed, deterministic=True)
    status = run.go(**limits)
    assert (status, run.nfev, run.nit) == (result.status, result.nfev, result.nit)
    assert run.failures == result.failures
    np.testing.assert_array_equal(noted.take(), interpreted)
    np.testing.assert_array_equal(run.best_x, result.x)
    np.testing.assert_array_equal(algorithm.family.mode(run.theta), result.mode)
    return result, run


@pytest.mark.parametrize("name", [quick_if(name in ("p3", "search"), name) for name in algorithms(2)])
def test_the_same_points_in_the_same_order(noted, name):
    algorithm = algorithms(noted.n)[name]
    result, run = both(noted, algorithm, 1, budget=300 if isinstance(algorithm, IGO) else CALLS)
    assert run.best == result.fun
    if isinstance(algorithm, Search):
        assert run.state.studied == (algorithm.study is not None and algorithm.study.begins_at < CALLS)


@pytest.mark.slow
def test_long_runs_of_p3_build_the_same_pyramid():
    noted = Noted(noisy(0), 14, 6000)
    _, run = both(noted, kl.algorithms.p3(Bernoulli(14)), 0, budget=6000)
    assert (
        run._states[0].arrays.levels[0, pyramid.SIZE] > 128
    )  # three blocks, more in all than there was room for at first


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("name", ["p3", "search", "elitist", "paper"])
def test_small_spaces_come_to_their_end(n, name):
    for seed in range(2):
        noted = Noted(noisy(seed), n, 100)
        result, _ = both(noted, algorithms(n)[name], seed, budget=10**4)
        assert result.status in (kl.Status.EXHAUSTED, kl.Status.CONVERGED)


@pytest.mark.parametrize("n", [5, 7, 8, 15, 16, 17])
def test_neighboring_variables_are_the_same_for_every_number_of_bits(n):
    both(Noted(noisy(n), n, 250), kl.algorithms.p3(Bernoulli(n)), 2, budget=250)


@numba.njit(OBJECTIVE)
def few_values(x, ints, reals):
    """Has ties in each selection."""
    value = noise(x, ints, reals)
    return value if value != value else float(min(value, 500.0) // 125.0)


@pytest.mark.parametrize(
    ("objective", "n", "calls", "size"),
    [(noisy(1), 11, 1500, 64), (fast.Objective(few_values, np.array([4])), 20, 2500, 32)],
    ids=["noise", "few values"],
)
def test_a_run_continues_compiled_after_any_iteration(objective, n, calls, size):
    noted = Noted(objective, n, 2 * calls)
    opt = kl.Optimizer(kl.Binary(n), members_alone(kl.Binary(n)), deterministic=True, rng=6)
    asked, runs, thetas = [], [], {}
    while opt.nfev < calls:
        if opt.nfev >= calls * (len(runs) + 1) // 4:
            runs.append((sum(map(len, asked)), fast.Run.resumed(noted.objective, opt, 1.0, 0)))
        batch = opt.ask()
        opt.tell(batch, [noted.objective(candidate.x) for candidate in batch])
        asked.append(noted.take())
        thetas[opt.nit] = opt.run.search.theta
    asked, core = np.concatenate(asked), opt.run.search.groups[WHOLE]
    assert core.states[1].size >= size  # the population was restarted
    for nfev, run in runs:
        while run.nit < opt.nit:
            run.go(iterations=1)
            np.testing.assert_array_equal(run.theta, thetas.get(run.nit, run.theta))
        np.testing.assert_array_equal(noted.take(), asked[nfev:])
        group = run.state.groups[WHOLE]
        assert (group.turn, group.records, group.owner) == (core.turn, core.records, core.owner)
        np.testing.assert_array_equal(group.best.x, core.best.x)
        assert group.states[1].size == core.states[1].size


@pytest.mark.parametrize("name", ["p3", "search", "elitist"])
def test_limits_are_met_to_the_evaluation(name):
    noted = Noted(problems.Traps(20, 5), 20, 20_000)
    algorithm = algorithms(20)[name]
    for budget in (1, 2, 7, 50, 333):
        assert both(noted, algorithm, 5, budget=budget)[1].nfev == budget
    for seed in range(3):
        result, _ = both(noted, algorithm, seed, budget=5000, target=4)
        assert result.status is kl.Status.TARGET
        result, _ = both(noted, algorithm, seed, budget=5000, stall=77)
        assert result.status is kl.Status.STALL


@numba.njit(OBJECTIVE)
def failing(x, ints, reals):
    """Fails at every point."""
    return np.nan


def test_the_members_take_turns_before_there_is_a_value():
    noted, algorithm = Noted(fast.Objective(failing), 6, 100), replace(sharing(Bernoulli(6)), rule=Lead())
    given = {"budget": 100, "algorithm": algorithm, "deterministic": True, "rng": 0}
    with pytest.warns(RuntimeWarning, match="Most evaluations failed"):
        result = kl.minimize(lambda x: noted.objective(x), kl.Binary(6), **given)
    asked = noted.take()
    run = fast.Run(noted.objective, algorithm, 0, deterministic=True)
    assert (run.go(budget=100), run.nfev, run.nit) == (result.status, result.nfev, result.nit)
    assert run.state.groups[WHOLE].records[1].spent > 0
    np.testing.assert_array_equal(noted.take(), asked)


def test_a_run_goes_on_where_it_stopped():
    algorithm = members_alone(Bernoulli(40))
    once, often = (fast.Run(fast.compiled(problems.Traps(40)), algorithm, 5, deterministic=True) for _ in range(2))
    once.go(iterations=9000)
    for i in range(90):
        often.go(iterations=100)
        assert often.nit == 100 * (i + 1)
    np.testing.assert_array_equal(once.theta, often.theta)
    records = [run.state.groups[WHOLE].records for run in (once, often)]
    assert (once.nfev, once.best, records[0]) == (often.nfev, often.best, records[1])


# A study of the objective.


def stages(problem, seed, recipe=members_alone):
    """Of each evaluation of a run in Python, the stage of the study, or None; and its value."""
    opt = kl.Optimizer(problem.space, recipe(problem.space), deterministic=True, rng=seed)
    found = []
    while not opt.run.search.studied:
        batch = opt.ask()
        study = opt.run.search.study
        values = [problem(candidate.x) for candidate in batch]
        found += [(study and study.stage, value) for value in values]
        opt.tell(batch, values)
    return found


STUDIED = couplings(17, 14)  # whose minimum the members have not evaluated when the study begins
SEED = 0


def test_a_run_may_end_in_any_stage_of_a_study():
    found = stages(STUDIED, SEED)
    stage = [each for each, _ in found]
    noted, algorithm = Noted(STUDIED, STUDIED.n, 1000), members_alone(STUDIED.space)
    first = {each: stage.index(each) for each in STAGES}
    ends = {stage.index(each) + i for each in STAGES for i in (0, 1, 2, 8)}
    for budget in sorted(ends | {len(stage) - 1, len(stage), len(stage) + 1, len(stage) + 40}):
        result, run = both(noted, algorithm, SEED, budget=budget)
        assert result.nfev == run.nfev == budget
    lowest = np.minimum.accumulate([value for _, value in found])
    improved = [i for i in range(first[TESTING], len(found)) if lowest[i] < lowest[i - 1]]
    assert {stage[i] for i in improved} >= {LEARNING, MINIMIZING}  # or else this tests less than it says
    for i in improved:
        result, _ = both(noted, algorithm, SEED, budget=1000, target=lowest[i])
        assert (result.status, result.nfev) == (kl.Status.TARGET, i + 1)
    stalled = set()
    for seed in range(4):
        found = stages(STUDIED, seed)
        stage = [each for each, _ in found]
        for i in (stage.index(TESTING) + 3, stage.index(LEARNING) + 5):
            best_at = int(np.argmin([value for _, value in found[:i]]))
            result, _ = both(noted, algorithm, seed, budget=1000, stall=i - best_at)
            assert result.status is kl.Status.STALL
            if result.nfev <= len(stage):
                stalled.add(stage[result.nfev - 1])
    assert stalled >= {TESTING, LEARNING}


CONTINUED = {
    "Qubo": (STUDIED, members_alone, 500),
    "MaxCut": (cut(13, 3), members_alone, 500),
    "few bits after Bayesian optimization": (couplings(13, 3), kl.search, 500),  # which is longer than begins_at
    "more bits after Bayesian optimization": (couplings(35, 3), briefly_modeled, 1200),  # which is shorter
}


@pytest.mark.parametrize(("problem", "recipe", "calls"), CONTINUED.values(), ids=CONTINUED)
def test_a_run_continues_compiled_after_any_iteration_of_a_study(problem, recipe, calls):
    noted = Noted(problem, problem.n, 3000)
    opt = kl.Optimizer(problem.space, recipe(problem.space), deterministic=True, rng=SEED)
    asked, runs, after = [], [], {}
    while opt.nfev < calls:
        state = opt.run.search
        if state.begun and (state.study or opt.nit % 50 == 49 or (state.before and len(runs) < 10)):
            drawn = opt.rng.count
            run = fast.Run.resumed(noted.objective, opt, 1.0, 0)
            opt.rng.count = drawn  # P3 that has not begun draws its key, but here the optimizer goes on as well
            runs.append((state.study and state.study.stage, sum(map(len, asked)), opt.nit, run))
        batch = opt.ask()
        opt.tell(batch, [noted.objective(candidate.x) for candidate in batch])
        asked.append(noted.take())
        after[opt.nit] = opt.run.search.theta, opt.run.search.study, opt.run.search.studied
    asked, core = np.concatenate(asked), opt.run.search
    assert core.studied
    assert (core.before > 0) == (recipe is not members_alone)
    if recipe is not members_alone:
        assert (core.before >= opt.algorithm.study.begins_at) == (problem.n == 13)
    assert {stage for stage, *_ in runs} >= {None, TESTING, LEARNING}
    for _, nfev, nit, run in runs:
        assert run.nit == nit
        while run.nit < opt.nit:
            run.go(iterations=1)
            if run.nit in after:
                theta, study, studied = after[run.nit]
                np.testing.assert_array_equal(run.theta, theta)
                state = run.state
                assert (state.study is None, state.studied, state.before) == (study is None, studied, core.before)
                if study is not None:
                    assert state.study[1:3] == study[1:3]
                    for mine, other in zip(state.study[0::2], study[0::2], strict=False):
                        np.testing.assert_array_equal(mine, other)
        np.testing.assert_array_equal(noted.take(), asked[nfev:])
        group, other = run.state.groups[WHOLE], core.groups[WHOLE]
        assert (group.turn, group.records, group.owner) == (other.turn, other.records, other.owner)
        if recipe is not members_alone:
            np.testing.assert_array_equal(run.state.x0, core.x0)


class WatchedQubo(problems.Qubo):
    """Counts the calls from Python."""

    calls = 0

    def costs(self, x):
        type(self).calls += len(x)
        return super().costs(x)


# The recommended search over few and over many bits: with and without Bayesian optimization before the members.
RECOMMENDED = {"few bits": STUDIED, "many bits": couplings(101, 0)}


def same_with_a_study(problem, function, deterministic, *ends):
    """Check that runs are the same compiled or not that end at these stages, after so many evaluations of each."""
    noted, stage = Noted(problem, problem.n, 9000), [each for each, _ in stages(problem, SEED, kl.search)]
    # The numbers at which the study begins are those of the run that is deterministic and minimizes.
    for begins, more in ends:
        budget = more + (len(stage) if begins is None else stage.index(begins))
        given = {"budget": budget, "rng": SEED, "deterministic": deterministic}
        result = function(noted.objective, problem.space, **given)
        points = noted.take()
        other = function(lambda x: noted.objective(x), problem.space, **given)
        np.testing.assert_array_equal(points, noted.take())
        for name in ("x", "mode"):
            np.testing.assert_array_equal(getattr(result, name), getattr(other, name))
        for name in ("fun", "mode_fun", "nfev", "nit", "status", "failures", "deterministic"):
            assert getattr(result, name) == getattr(other, name)
        assert [row[:4] for row in result.history] == [row[:4] for row in other.history]


@pytest.mark.parametrize("deterministic", [None, True], ids=["not declared", "deterministic"])
@pytest.mark.parametrize("function", [kl.minimize, quick_if(False, kl.maximize)])
def test_minimize_with_a_study_is_the_same_run_compiled_or_not(deterministic, function):
    ends = (TESTING, 4), (LEARNING, 40), (None, -1), (None, 400)
    same_with_a_study(RECOMMENDED["many bits"], function, deterministic, *ends)


@pytest.mark.slow
def test_minimize_with_a_study_is_the_same_run_compiled_or_not_after_bayesian_optimization():
    same_with_a_study(STUDIED, kl.minimize, None, (LEARNING, 40), (None, 400))


@pytest.mark.parametrize(("deterministic", "most"), [(True, 5), (None, 60)])  # evaluations in Python of the members
@pytest.mark.parametrize("problem", [quick_if(False, STUDIED), RECOMMENDED["many bits"]], ids=RECOMMENDED)
def test_a_study_is_compiled(problem, deterministic, most):
    opt = kl.Optimizer(problem.space, deterministic=True, rng=SEED)
    while not opt.run.search.begun:
        batch = opt.ask()
        opt.tell(batch, [problem(candidate.x) for candidate in batch])
    found, watched = stages(problem, SEED, kl.search), WatchedQubo(problem.matrix)
    WatchedQubo.calls = 0
    result = kl.minimize(watched, problem.space, budget=len(found) + 300, rng=SEED, deterministic=deterministic)
    assert WatchedQubo.calls < opt.nfev + most < len(found) < result.nfev
    assert result.fun == pytest.approx(min(value for _, value in found))


# Bayesian optimization before the members is interpreted.


AFTER = {"Qubo": couplings(20, 0), "OneMax": problems.OneMax(20), "noise": noisy(3)}


@pytest.mark.parametrize("function", [kl.minimize, quick_if(False, kl.maximize)])
@pytest.mark.parametrize("given", [{}, quick_if(False, {"x0": np.arange(20) % 2}), quick_if(False, {"stall": 150})])
@pytest.mark.parametrize("problem", AFTER.values(), ids=AFTER)
def test_minimize_is_the_same_run_whether_or_not_it_is_compiled_after_bayesian_optimization(problem, given, function):
    same_after_a_stage(problem, function, algorithm=briefly_modeled(kl.Binary(20)), **given)


@pytest.mark.slow
def test_the_recommended_run_is_the_same_whether_or_not_it_is_compiled():
    same_after_a_stage(AFTER["Qubo"], kl.minimize)


def same_after_a_stage(problem, function, **given):
    """Check that the run is the same compiled or not."""
    noted, space = Noted(problem, 20, 2000), kl.Binary(20)
    given = {"budget": 800, "rng": SEED, "deterministic": True} | given
    result = function(noted.objective, space, **given)
    points = noted.take()
    values = []
    other = function(lambda x: values.append(noted.objective(x)) or values[-1], space, **given)
    np.testing.assert_array_equal(points, noted.take())
    assert result.nfev == other.nfev == len(values) == len(points)
    for name in ("x", "mode"):
        np.testing.assert_array_equal(getattr(result, name), getattr(other, name))
    for name in ("fun", "mode_fun", "nit", "status", "failures", "deterministic"):
        assert getattr(result, name) == getattr(other, name)
    assert result.fun == (np.nanmin(values) if function is kl.minimize else np.nanmax(values))
    assert [row[:4] for row in result.history] == [row[:4] for row in other.history]


def test_the_members_are_compiled_as_soon_as_bayesian_optimization_has_ended():
    problem = WatchedQubo(couplings(20, 0).matrix)
    opt = kl.Optimizer(problem.space, deterministic=True, rng=SEED)
    while not opt.run.search.begun:
        batch = opt.ask()
        opt.tell(batch, [problem(candidate.x) for candidate in batch])
    WatchedQubo.calls = 0
    result = kl.minimize(problem, problem.space, budget=800, rng=SEED, deterministic=True)
    assert WatchedQubo.calls == opt.nfev <= MOST_EVALUATIONS < result.nfev == 800


def test_a_compiled_run_does_not_begin_with_bayesian_optimization():
    objective, algorithm = fast.compiled(problems.OneMax(20)), kl.search(Bernoulli(20))
    with pytest.raises(ValueError, match=r"^state: expected one in which the stages are over"):
        fast.Run(objective, algorithm, 0, deterministic=True)


class Watched(problems.Traps):
    """Counts the calls from Python."""

    calls = 0

    def costs(self, x):
        type(self).calls += len(x)
        return super().costs(x)


def interpreted(problem, **given):
    return kl.minimize(lambda x: problem(x), problem.space, **given)


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"x0": np.arange(30) % 2},
        {"known": [(np.ones(30), 0.0), (np.zeros(30), 7.0)]},
        {"target": 3.0},
        {"stall": 200},
    ],
    ids=["plain", "x0", "known", "target", "stall"],
)
def test_minimize_with_p3_is_the_same_run_compiled_or_not(given):
    problem = Watched(30)
    given = {"budget": 1500, "algorithm": kl.algorithms.p3(problem.space), "deterministic": True, "rng": 3, **given}
    Watched.calls = 0
    infos = []
    result = kl.minimize(problem, problem.space, callback=infos.append, **given)
    assert Watched.calls < 5 < result.nfev  # the first iteration is the interpreter's
    other = interpreted(problem, **given)
    for name in ("x", "mode"):
        np.testing.assert_array_equal(getattr(result, name), getattr(other, name))
    for name in ("fun", "mode_fun", "nfev", "nit", "status", "failures"):
        assert getattr(result, name) == getattr(other, name)
    assert [row[:4] for row in result.history] == [row[:4] for row in other.history]
    np.testing.assert_allclose([row.entropy for row in result.history], [row.entropy for row in other.history])
    assert [info.iteration for info in infos] == list(range(1, result.nit + 1))


@pytest.mark.slow
def test_minimize_compiles_the_recommended_search():
    problem = Watched(120)
    Watched.calls = 0
    result = kl.minimize(problem, problem.space, budget=10**6, target=0, deterministic=True, rng=0)
    assert result.success
    assert result.x.all()
    assert Watched.calls < 5 < result.nfev
    assert result.history[-1].nfev == result.nfev
    result = kl.maximize(problem, problem.space, budget=5000, deterministic=True, rng=0)
    assert result.fun == problem(result.x) == 120


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"x0": np.ones(10, dtype=int)}, {"known": [(np.ones(10), -5.0)]}])
@pytest.mark.parametrize("recipe", [members_alone, briefly_modeled], ids=["members", "with a stage"])
def test_a_search_that_has_evaluated_everything_ends(recipe, given):
    space = kl.Binary(10)
    result = kl.minimize(noisy(1), space, algorithm=recipe(space), budget=10**6, deterministic=True, rng=0, **given)
    assert result.status is kl.Status.EXHAUSTED
    assert result.nfev == 2**10 - ("known" in given)
    values = [noisy(1)(x) for x in np.array(np.meshgrid(*[[0, 1]] * 10)).reshape(10, -1).T.copy()]
    assert result.fun == (-5.0 if "known" in given else np.nanmin(values))
    assert result.failures == np.isnan(values).sum() - ("known" in given and math.isnan(noisy(1)(np.ones(10))))
    assert result.mode_fun is not None


def test_what_fails_always_ends():
    @fast.objective
    def broken(x):
        return np.nan

    result = kl.minimize(broken, kl.Binary(60), budget=10**6, deterministic=True, rng=0)
    assert result.status is kl.Status.FAILED
    assert result.x is None
    assert result.failures == result.nfev


def test_many_at_once_are_left_to_the_interpreter():
    Watched.calls = 0
    kl.minimize(Watched(60), kl.Binary(60), budget=200, batch=4, deterministic=True, rng=0)
    assert Watched.calls == 200
    with pytest.raises(TypeError, match=r"^algorithm: expected one over bits"):
        fast.Run(fast.compiled(problems.OneMax(9)), kl.algorithms.p3(Bernoulli(9)))  # it would repeat evaluations


def test_other_searches_are_left_to_the_interpreter():
    family, objective = Bernoulli(9), fast.compiled(problems.OneMax(9))
    p3, evolution = both = sharing(family).members
    members = ((p3, pbil_elitist(family)), (evolution, p3), (p3, evolution.at_least(17)), (p3, p3))
    others = [Search(each) for each in members]
    others += [Search(both, Shares((1, 1))), Search(both, study=QuadraticStudy(family, 2))]
    for search in others:
        with pytest.raises(TypeError, match=r"^algorithm: expected one over bits"):
            fast.Run(objective, search, deterministic=True)


@pytest.mark.parametrize("equal", [0, 100, MOST_EQUAL])
def test_equal_evaluations_of_the_members_are_the_same_compiled_or_not(equal):
    problem = problems.MaxSat.random(20, 90, 1)
    algorithm = replace(sharing(problem.space), rule=Lead(equal))
    given = {"budget": 600, "rng": 2, "deterministic": True, "algorithm": algorithm}
    compiled, interpreted = (kl.minimize(fun, problem.space, **given) for fun in (problem, lambda x: problem(x)))
    assert (compiled.x.tolist(), compiled.fun, compiled.nit) == (
        interpreted.x.tolist(),
        interpreted.fun,
        interpreted.nit,
    )


def test_subsets_are_left_to_the_interpreter():
    Watched.calls = 0
    result = kl.minimize(Watched(30), kl.Subset(30, 7), budget=100, deterministic=True, rng=0)
    assert Watched.calls == 100
    assert result.x.sum() == 7
    with pytest.raises(TypeError, match=r"^algorithm: expected one over bits"):
        fast.Run(fast.compiled(problems.OneMax(9)), kl.search(kl.Subset(9, 3)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # while the engine is being loaded
def test_ctrl_c_is_heard_while_p3_climbs():
    class Interrupted(problems.NK):
        """Interrupts the run some time after its first call, the only one from Python."""

        def costs(self, x):
            threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
            return super().costs(x)

    given = {"space": kl.Binary(300), "deterministic": True, "rng": 0}
    kl.minimize(problems.NK(300, 3, 0), budget=100, **given)  # compiles
    result = kl.minimize(Interrupted(300, 3, 0), budget=10**9, **given)
    assert result.status is kl.Status.INTERRUPTED
    assert 10 < result.nfev < 10**9


def test_more_bits_than_pairs_are_counted_for():
    calls = 2101  # the climb from the optimum takes 2,100; then there is a tree
    noted = Noted(problems.OneMax(2100), 2100, calls)
    x0 = np.ones(2100, dtype=np.int8)
    algorithm = kl.algorithms.p3(Bernoulli(2100))
    run = fast.Run(noted.objective, algorithm, 0, algorithm.init(x0=x0), deterministic=True)
    state = algorithm.init(x0=x0)
    state.begin(Stream.of(0).word())
    for _ in range(calls):
        state = algorithm.tell(state, state.pending, np.array([2100.0 - state.pending.sum()]))
    run.go(budget=calls)
    assert int(run._states[0].arrays.counts[pyramid.WORD_COUNT]) == state.stream.count
    assert len(state.levels[0].tree(state.stream)) == 2100


# Of these 79 points the entropies of two bits round otherwise when they are added up in another order.
SPLIT = ("fff", "7f5effff7effb7df7204", "42100008100c8008118", "7fdeefee7ff537cf7ca7", "2400108042c0108140")
SPLIT = np.array([[int(bit) for bit in f"{int(word, 16):079b}"] for word in (*SPLIT, "2150110008c0240200")]).T


@pytest.mark.slow
def test_trees_are_the_same_to_the_last_bit():
    pairs = Pairs(np.full(6, 2))
    for x in SPLIT:
        pairs.add(x)
    distance = pairs.distances(np.arange(6))
    assert (distance != distance.T).any()  # else this tests nothing
    for key in range(100):
        state = pyramid.empty_pyramid(P3(Bernoulli(6)), key, None)
        state.levels[0, pyramid.SIZE], state.levels[0, pyramid.HEAD] = len(SPLIT), 0
        for block in range(2):
            rows = SPLIT[64 * block : 64 * block + 64].astype(np.uint64)
            shifts = np.arange(len(rows), dtype=np.uint64)[:, None]
            state.columns[block], state.chain[block] = np.bitwise_or.reduce(rows << shifts), block + 1
        state = pyramid.grown_pyramid(state, GROW_TERMS)
        pyramid.linkage_tree(state, 0)
        spans = state.spans[1][: state.levels[0, pyramid.GROUPS]]
        mine = [sorted(state.leaves[1][start:stop].tolist()) for start, stop in spans]
        assert mine == [sorted(group.tolist()) for group in pairs.tree(Stream(key))]
