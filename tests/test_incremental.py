"""Incremental evaluation: flips give the costs and gains of complete evaluations, and the search counts and repeats."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numba", reason="incremental evaluation is compiled by numba: pip install 'knobless[fast]'")

import knobless as kl
from conftest import examples
from knobless import Status
from knobless.fast.gains import GainState, exact, flip, reset
from knobless.fast.structured import StructuredRun
from knobless.problems import incremental, instances
from knobless.problems.instances import Format, Instance, solve_instance
from knobless.problems.quadratic import MaxCut, Qubo
from knobless.problems.sat import MaxSat
from knobless.run.stopping import RunLimits

SEEDS = st.integers(0, 2**32 - 1)


def formula(rng, n, weights):
    """Clauses of any length, also empty ones, with repeated and contradicting literals."""
    clauses = [rng.integers(1, n + 1, k) * rng.choice([-1, 1], k) for k in rng.integers(0, 5, 2 * n)]
    return MaxSat([clause.tolist() for clause in clauses], weights, n)


def graph(rng, n, weights):
    edges = rng.integers(0, n, (3 * n, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    return MaxCut(edges, weights[: len(edges)], n)


KINDS = {
    "SAT": lambda rng, n: formula(rng, n, None),
    "MaxSAT": lambda rng, n: formula(rng, n, rng.choice([1.0, 7.0, math.inf], 2 * n).tolist()),
    "Max-Cut": lambda rng, n: graph(rng, n, rng.integers(-9, 10, 3 * n)),
    "Max-Cut with reals": lambda rng, n: graph(rng, n, rng.normal(size=3 * n)),
    "QUBO": lambda rng, n: Qubo(rng.integers(-9, 10, (n, n)) * rng.integers(0, 2, (n, n))),
    "QUBO with reals": lambda rng, n: Qubo(rng.normal(size=(n, n))),
}


@given(st.sampled_from(list(KINDS)), st.integers(1, 8), SEEDS)
@examples(60)
def test_costs_and_gains_after_flips_are_those_of_complete_evaluations(kind, n, seed):
    rng = np.random.default_rng(seed)
    problem = KINDS[kind](rng, n)
    structure = problem.structure()
    state, fresh = GainState.of(structure), GainState.of(structure)
    state.x[:] = rng.integers(0, 2, n)
    cost = reset.py_func(structure, state)
    for i in rng.integers(0, n, 20):
        cost += flip.py_func(structure, state, i)
    fresh.x[:] = state.x
    assert reset.py_func(structure, fresh) == cost  # sums are exact, also of real weights
    for ours, theirs in zip(state, fresh, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    neighbors = state.x ^ np.eye(n, dtype=np.int8)
    close = {"rtol": 0, "atol": 1e-9 if "reals" in kind else 0}
    np.testing.assert_allclose(cost, problem(state.x), **close)
    np.testing.assert_allclose(cost + state.gains, problem(neighbors), **close)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20))
def test_rounded_weights_are_close_and_integers_unchanged(weights):
    weights = np.array(weights)
    assert np.abs(exact(weights) - weights).max() <= 2.0**-51 * np.abs(weights).sum()
    assert (exact(np.rint(weights)) == np.rint(weights)).all()


def run(problem, seed, budget, target=math.nan):
    made = StructuredRun(problem.structure(), seed)
    status = None
    while status is None:
        status = made.go(budget, target)
    return made, status


@pytest.mark.parametrize("kind", KINDS)
def test_the_search_counts_its_evaluations_and_repeats_with_a_seed(kind):
    problem = KINDS[kind](np.random.default_rng(5), 40)
    made, status = run(problem, 3, 30_000)
    again, _ = run(problem, 3, 30_000)
    assert (made.nfev, status) == (30_000, Status.BUDGET)
    assert 1 < made.full < 1000
    assert made.flips >= made.nfev - made.full
    assert (made.best, made.flips, made.best_x.tolist()) == (again.best, again.flips, again.best_x.tolist())
    assert made.best == pytest.approx(problem(made.best_x), abs=1e-9)
    reached, status = run(problem, 3, 30_000, made.best)
    assert (reached.best, status) == (made.best, Status.TARGET)


def solved(problem, format, **limits):
    return solve_instance(Instance("a", format, "--format", problem), seed=1, **limits)


def test_an_answer_is_that_of_the_problem_and_states_both_counts():
    planted = MaxSat.planted(150, 600, 2)
    answer = solved(planted, Format.CNF, budget=1_000_000)
    assert (answer.verdict, planted(answer.result.x)) == ("SATISFIABLE", 0.0)
    full = answer.result.nfev - answer.result.incremental
    counts = f"c {full} full evaluations, {answer.result.incremental} incremental, {answer.result.flips} flips"
    assert counts in list(answer.lines())
    assert (answer.data()["incremental"], answer.data()["flips"]) == (answer.result.incremental, answer.result.flips)


def test_flips_continue_from_the_first_evaluations_and_are_never_worse(monkeypatch):
    monkeypatch.setattr(instances, "FIRST_EVALUATIONS", 200)
    problem = graph(np.random.default_rng(1), 60, np.ones(180))
    first, both = (solved(problem, Format.MC, budget=budget) for budget in (200, 5000))
    assert (first.result.nfev, first.result.incremental) == (200, 0)
    assert (both.result.nfev, both.result.status) == (5000, Status.BUDGET)
    assert both.result.nfev - both.result.incremental > 200
    assert both.value > first.value


def test_a_timeout_and_an_interrupt_end_the_search_with_its_best_point(monkeypatch):
    problem = graph(np.random.default_rng(0), 200, np.ones(600))
    answer = solved(problem, Format.MC, budget=None, timeout=0.2)
    assert answer.result.status is Status.TIMEOUT
    go = StructuredRun.go

    def interrupted(self, *limits):
        go(self, *limits)
        raise KeyboardInterrupt

    monkeypatch.setattr(StructuredRun, "go", interrupted)
    answer = solved(problem, Format.MC, budget=10**9)
    assert (answer.code, answer.value) == (130, -problem(answer.result.x))
    assert answer.result.incremental > 0


def test_a_target_is_that_of_the_problem_although_weights_are_rounded():
    rng = np.random.default_rng(4)
    for seed in range(8):
        problem = graph(rng, 21, rng.integers(1, 99, 63) / 100)
        limits = RunLimits.of(1.0, 2000, None, None, None)
        first = incremental.Found.of(kl.minimize(problem.__call__, problem.space, budget=1, rng=0))
        best = incremental.search_incrementally(problem, first, limits, seed, False)
        found = incremental.search_incrementally(problem, first, limits._replace(target=best.cost), seed, False)
        assert (found.status, found.cost) == (Status.TARGET, best.cost)
        lower = limits._replace(target=np.nextafter(best.cost, -math.inf))
        found = incremental.search_incrementally(problem, first, lower, seed, False)
        assert (found.status is Status.TARGET) == (found.cost <= lower.target)


def test_small_weights_beside_large_ones_are_not_rounded_to_nothing():
    large = MaxSat([[1], [2], [-2]], [2.0**60, 2.0, 1.0], 120)
    answer = solved(large, Format.WCNF, budget=3000)
    assert (answer.result.status, answer.value) == (Status.BUDGET, 1)


@pytest.mark.parametrize("n", [60, 120])
def test_evaluations_begin_before_the_search_is_compiled(monkeypatch, n):
    monkeypatch.setattr(instances, "FIRST_EVALUATIONS", 100)
    problem = graph(np.random.default_rng(1), n, np.ones(3 * n))
    asked = []
    monkeypatch.setattr(incremental.Compiler, "is_ready", lambda compiler: asked.append(1) or len(asked) > 5)
    answer = solved(problem, Format.MC, budget=5000)
    assert (len(asked), answer.result.nfev, answer.result.status) == (6, 5000, Status.BUDGET)
    assert answer.result.incremental > 0
    monkeypatch.setattr(incremental.Compiler, "is_ready", lambda compiler: False)
    never = solved(problem, Format.MC, budget=500)
    plain = kl.minimize(problem.__call__, problem.space, budget=500, rng=1, deterministic=True)
    assert (never.result.cost, never.result.nfev, never.result.incremental) == (plain.fun, 500, 0)


@pytest.mark.parametrize("n", [60, 120])
def test_without_numba_the_black_box_search_runs(monkeypatch, n):
    monkeypatch.setattr(incremental, "find_spec", lambda name: None)
    problem = MaxSat.planted(n, 3 * n, 2)
    answer = solved(problem, Format.CNF, budget=500)
    result = kl.minimize(problem, problem.space, budget=500, target=0, rng=answer.seed, deterministic=True)
    assert (answer.result.incremental, answer.result.nfev, answer.result.cost) == (0, result.nfev, result.fun)
