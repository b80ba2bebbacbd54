"""Quadratic functions of bits by enumeration, and the study of a search that tests for them and minimizes them."""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import warnings
from base64 import b64encode
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
from conftest import SPACES, examples, members_alone, saved_and_restored
from knobless.algorithms import Evolution, QuadraticStudy, Search, p3
from knobless.core import quadratic
from knobless.core.data import text
from knobless.core.description import algorithm_data, algorithm_of
from knobless.core.quadratic import PER_TEST, Quadratic, block_sizes, flipped, is_quadratic, neighbors
from knobless.core.rng import Stream
from knobless.core.search import WHOLE
from knobless.core.study import LEARNING, MINIMIZING, TESTING
from knobless.families import Bernoulli
from knobless.problems import IsingRing, IsingTorus, MaxCut, MaxSat, Qubo

STAGES = (TESTING, LEARNING, MINIMIZING)
every_stage = pytest.mark.parametrize("stage", STAGES, ids=["testing", "learning", "minimizing"])


def all_points(n):
    return np.array(list(itertools.product([0, 1], repeat=n)), dtype=np.int8)


class Function:
    """A polynomial of bits of degree two: c + Σ b_i x_i + Σ_{i<j} q_ij x_i x_j."""

    def __init__(self, constant, linear, pairs):
        self.n, self.constant, self.linear, self.pairs = len(linear), constant, linear, pairs

    def __call__(self, x):
        x = np.asarray(x, dtype=float)
        products = x[:, :, None] * x[:, None, :]
        return self.constant + (x * self.linear).sum(axis=1) + (products * np.triu(self.pairs, 1)).sum(axis=(1, 2))


whole = st.integers(-9, 9).map(float)
real = st.floats(-1e3, 1e3).map(lambda value: value if abs(value) > 1e-3 else 0.0)


@st.composite
def functions(draw, numbers=None, pairs=None):
    """Return a function of 3 to 8 bits, and one of its points."""
    n = draw(st.integers(3, 8))
    numbers = draw(st.sampled_from([whole, real])) if numbers is None else numbers
    pairs = numbers if pairs is None else pairs
    rows = [draw(st.lists(each, min_size=size, max_size=size)) for each, size in ((numbers, n), (pairs, n * n))]
    f = Function(draw(numbers), np.array(rows[0]), np.array(rows[1]).reshape(n, n))
    return f, np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), dtype=np.int8)


def model_at(f, x):
    return Quadratic(float(f(x[None])[0]), f(flipped(x, neighbors(f.n))))


def close(found, expected):
    """Equal within rounding of the sums, and exactly if all values are integers."""
    exact = (expected == np.rint(expected)).all()
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=0.0 if exact else 1e-9 * (1.0 + np.abs(expected).max()))


# Functions.


@examples(100)
@given(functions())
def test_the_values_of_neighbors_determine_the_function(drawn):
    f, x = drawn
    flips = all_points(f.n).astype(bool)
    value, field = model_at(f, x).fields(flips)
    close(value, f(flipped(x, flips)))
    change = np.where(flips, -field, field)
    for i in range(f.n):
        other = flips.copy()
        other[:, i] ^= True
        close(value + change[:, i], f(flipped(x, other)))


@examples(200)
@given(functions(), st.integers(0, 2**32 - 1))
def test_the_first_of_the_minima_is_the_minimum(drawn, key):
    f, x = drawn
    minima = model_at(f, x).minima(key)
    values = f(flipped(x, minima))
    close(values[:1], f(all_points(f.n)).min(keepdims=True))
    assert len(np.unique(minima, axis=0)) == len(minima)
    assert (np.diff(values) >= -1e-9 * (1.0 + np.abs(values).max())).all()  # lowest first
    np.testing.assert_array_equal(model_at(f, x).minima(key), minima)


@given(st.integers(1, 30), st.integers(1, 50))
def test_neighbors_differ_in_one_bit_or_two_and_parts_of_them_are_the_whole(n, size):
    flips = neighbors(n)
    assert flips.sum(axis=1).tolist() == [1] * n + [2] * (n * (n - 1) // 2)
    assert len({row.tobytes() for row in flips}) == len(flips)
    parts = [neighbors(n, start, size) for start in range(0, len(flips), size)]
    assert all(len(part) == size for part in parts[:-1])
    np.testing.assert_array_equal(np.concatenate(parts), flips)


def test_a_part_of_the_neighbors_takes_memory_for_that_part_only():
    n, last = 50_000, 50_000 * 50_001 // 2 - 2
    assert [np.flatnonzero(row).tolist() for row in neighbors(n, n - 1, 2)] == [[n - 1], [0, 1]]
    assert [np.flatnonzero(row).tolist() for row in neighbors(n, last, 9)] == [[n - 3, n - 1], [n - 2, n - 1]]


@given(st.integers(3, 300), st.integers(0, 2**32 - 1))
def test_the_sets_of_a_test_are_disjoint_and_of_the_stated_sizes(n, key):
    sizes = block_sizes(n)
    assert sizes[0] == n // 3
    assert sizes[-1] == 1
    assert all(small == max(large // 3, 1) for large, small in itertools.pairwise(sizes))
    flips = quadratic.tests(n, key)
    assert flips.shape == (PER_TEST * len(sizes), n)
    for size, (a, b, c, ab, ac, bc, abc) in zip(sizes, flips.reshape(-1, PER_TEST, n), strict=True):
        assert [each.sum() for each in (a, b, c)] == [size] * 3
        assert not (a & b | a & c | b & c).any()
        for union, expected in ((ab, a | b), (ac, a | c), (bc, b | c), (abc, a | b | c)):
            np.testing.assert_array_equal(union, expected)


def passes(f, x, key):
    return is_quadratic(float(f(x[None])[0]), f(flipped(x, quadratic.tests(len(x), key))))


@examples(100)
@given(functions(), st.integers(0, 2**32 - 1))
def test_a_quadratic_function_is_one_unless_no_test_shows_an_interaction(drawn, key):
    f, x = drawn
    sign = 1.0 - 2.0 * x  # of the change when a bit is flipped
    pairs = np.triu(f.pairs, 1) * sign[:, None] * sign
    seen = []
    for a, b, c, *_ in quadratic.tests(f.n, key).reshape(-1, PER_TEST, f.n):
        seen += [pairs[np.ix_(p, q)].sum() + pairs[np.ix_(q, p)].sum() for p, q in ((a, b), (a, c), (b, c))]
    largest = max(map(abs, seen))
    if largest == 0.0 or largest > 1e-6:  # otherwise a difference may be taken for rounding
        assert passes(f, x, key) == (largest > 0.0)


positive = st.floats(1.0, 1e3)


@given(functions(positive), st.integers(0, 2**32 - 1), st.floats(-1e6, 1e6))
def test_quadratic_functions_with_interactions_of_one_sign_are_found(drawn, key, constant):
    f, x = drawn
    assert passes(lambda rows: f(rows) + constant, np.zeros_like(x), key)


@given(functions(real, st.just(0.0)), st.integers(0, 2**32 - 1))
def test_linear_and_constant_functions_are_left_to_the_members(drawn, key):
    f, x = drawn
    assert not passes(f, x, key)
    assert not passes(lambda rows: np.full(len(rows), f.constant), x, key)


@given(functions(positive), st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, -50.0]))
def test_cubic_functions_are_not_quadratic(drawn, key, cubic):
    f, x = drawn

    def g(rows):
        """All products of three bits count as much."""
        m = np.asarray(rows).sum(axis=1).astype(float)
        return f(rows) + cubic * m * (m - 1.0) * (m - 2.0)

    assert not passes(g, np.zeros_like(x), key)


@pytest.mark.parametrize("bits", list(itertools.combinations(range(5), 3)))
def test_one_product_of_three_bits_is_seen_if_a_test_separates_them(bits):
    n, x = 5, np.zeros(5, dtype=np.int8)
    f = lambda rows: rows[:, bits[0]] * (rows[:, bits[1]] * (rows[:, bits[2]] + 1.0) + 3.0) + rows.sum(axis=1)  # noqa: E731
    for key in range(30):
        a, b, c = quadratic.tests(n, key)[:3]
        separated = sorted(int(np.flatnonzero(each)[0]) for each in (a, b, c)) == sorted(bits)
        assert not separated or not passes(f, x, key)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", range(PER_TEST))
def test_values_that_are_not_finite_are_not_those_of_a_quadratic_function(value, at):
    f = np.array([1.0, 2.0, 4.0, 4.0, 6.0, 7.0, 10.0])
    assert is_quadratic(0.0, f)
    f[at] = value
    assert not is_quadratic(0.0, f)


@pytest.mark.parametrize("f", [np.full(7, 1.79e308), 1.79e308 * np.array([1, -1, 1, -1, -1, 1, -1])])
def test_values_near_the_largest_float_are_not_those_of_a_quadratic_function(f):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not is_quadratic(-1.79e308, f)


# The study of an objective.


def couplings(n, seed):
    """Return random couplings of all pairs of bits, which are no sums of few values, and fields."""
    return Qubo(np.random.default_rng(seed).normal(size=(n, n)))


def cut(n, seed):
    rng = np.random.default_rng(seed)
    edges = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.6]
    return MaxCut(edges, rng.integers(1, 9, len(edges)), n)


def spins(n, seed):
    """Return an Ising model with couplings ±1 of all pairs and no field."""
    signs = np.triu(np.random.default_rng(seed).choice([-1.0, 1.0], (n, n)), 1)
    return Qubo(4.0 * signs - 2.0 * np.diag((signs + signs.T).sum(axis=1)))


QUADRATIC = {
    "QUBO": couplings(11, 0),
    "QUBO of 16 bits": couplings(16, 1),
    "Max-Cut": cut(14, 2),
    "Ising": spins(15, 3),
    "ring": IsingRing(12),
    "torus": IsingTorus(3),
}
every_problem = pytest.mark.parametrize("problem", QUADRATIC.values(), ids=QUADRATIC)


def rugged(x):
    """Return values that look random, of rows of bits."""
    return (np.asarray(x) @ (2654435761 * np.arange(3, 3 + x.shape[1]) ** 3 % 65521) * 40503 % 9973).astype(float)


def parity(x):
    """Return a value that changes with each bit."""
    return np.asarray(x).sum(axis=1) % 2 + 0.5 * (x[:, 0] & x[:, 1])


def steps(algorithm, f, state=None, rng=None):
    """Yield the state before each iteration, and its points; equal points are evaluated each time."""
    rng, state = Stream(1) if rng is None else rng, algorithm.init() if state is None else state
    while True:
        x = algorithm.ask(state, rng)
        yield state, x
        state = algorithm.tell(state, x, f(x))


def until(algorithm, f, condition, rng=None):
    """Return the first state that meets the condition."""
    return next(state for state, _ in itertools.islice(steps(algorithm, f, rng=rng), 10**5) if condition(state))


def at_stage(stage, values=0):
    return lambda state: state.study is not None and state.study.stage == stage and len(state.study.f) >= values


def group_of(state):
    """Return the members' states, their evaluations and the best point."""
    return state.groups[WHOLE]


def spent(state):
    """Return the evaluations of the stages and of the members, without those of a study."""
    return state.before + sum(record.spent for record in group_of(state).records)


def values_needed(n):
    """Return how many values determine a quadratic function of n bits."""
    return 1 + n * (n + 1) // 2


@every_problem
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("search", [members_alone, kl.search], ids=["alone", "recommended"])
def test_a_study_has_as_many_evaluations_as_determine_the_function_and_ends_at_the_minimum(problem, seed, search):
    n, algorithm = problem.n, search(problem.space)
    begins_at = algorithm.study.begins_at
    assert begins_at == values_needed(n) // 2
    total, began, studied, could_begin = 0, None, [], False
    for state, x in steps(algorithm, problem.costs, rng=Stream(seed)):
        if state.study is not None:
            if began is None:
                began = total
                assert spent(state) == total
                assert not could_begin  # before the last iteration
                assert problem(state.study.x) == state.study.center == group_of(state).best.f[0]
            studied.append(x)
        elif began is not None:
            break
        could_begin = state.begun and algorithm.can_yield(state) and spent(state) >= begins_at
        total += len(x)
    assert began >= begins_at
    assert state.studied
    tests_made = PER_TEST * len(block_sizes(n))
    assert total - began == tests_made + n * (n + 1) // 2 + 1
    assert [len(x) for x in studied] == [PER_TEST] * (tests_made // PER_TEST) + [n] * ((n + 1) // 2) + (
        [n // 2] if n % 2 == 0 else []
    ) + [1]
    lowest = problem.costs(all_points(n)).min()
    found = problem.costs(studied[-1])[0]
    assert found == pytest.approx(lowest, abs=1e-9)
    population = group_of(state).states[1]
    assert population.f[0] <= found  # it is injected


@every_problem
def test_minimize_finds_the_optimum_of_a_quadratic_objective_within_its_bound(problem):
    values = problem.costs(all_points(problem.n))
    algorithm = members_alone(problem.space)
    for seed in range(3):
        length = until(algorithm, problem.costs, lambda state: state.study is not None, Stream(seed))
        budget = spent(length) + PER_TEST * len(block_sizes(problem.n)) + values_needed(problem.n)
        options = {"budget": budget, "rng": seed, "deterministic": True, "algorithm": algorithm}
        result = kl.minimize(lambda x: problem(x), problem.space, **options)
        assert result.fun == pytest.approx(values.min(), abs=1e-9)


def test_the_minimum_of_more_bits_is_not_above_what_the_members_alone_find():
    problem = couplings(40, 5)
    algorithm = members_alone(problem.space)
    options = {"budget": 2200, "rng": 0, "deterministic": True}
    study, alone = (
        kl.minimize(lambda x: problem(x), problem.space, algorithm=each, **options)
        for each in (algorithm, replace(algorithm, study=None))
    )
    assert study.fun <= alone.fun + 1e-9


@pytest.mark.parametrize("batch", [1, 3, 7])
@pytest.mark.parametrize("f", [rugged, parity, MaxSat.random(13, 50, 0).costs], ids=["rugged", "parity", "MaxSat"])
def test_other_objectives_cost_the_evaluations_of_a_test_and_change_nothing_else(f, batch):
    algorithm = members_alone(kl.Binary(13)).at_least(batch)
    plain = steps(replace(algorithm, study=None), f, rng=Stream(4))
    studies = []
    for state, x in itertools.islice(steps(algorithm, f, rng=Stream(4)), 1500 // batch):
        if state.study is None:
            expected, points = next(plain)
            np.testing.assert_array_equal(x, points)
            assert group_of(state).records == group_of(expected).records
        else:
            studies.append(len(x))
            assert state.study.stage == TESTING
    assert set(studies) == {PER_TEST}
    assert len(studies) == (2 if f is parity else 1)  # large blocks may hide a function of few bits


def test_linear_objectives_cost_one_test():
    for f in (lambda x: x @ np.arange(1.0, 14.0), lambda x: np.zeros(len(x))):
        studies = [len(x) for state, x in itertools.islice(steps(members_alone(kl.Binary(13)), f), 1500) if state.study]
        assert studies == [PER_TEST]


@pytest.mark.parametrize("f", [couplings(12, 0).costs, rugged], ids=["quadratic", "rugged"])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_there_is_one_study_per_run(f, batch):
    began = ended = 0
    algorithm = members_alone(kl.Binary(12)).at_least(batch)
    for (before, x), (after, _) in itertools.pairwise(itertools.islice(steps(algorithm, f), 400 // batch)):
        assert before.study is None or not algorithm.can_yield(before)
        began += before.study is None and after.study is not None
        ended += before.study is not None and after.study is None
        assert after.studied == bool(ended)
        assert len(x) >= batch
    assert (began, ended) == (1, 1)


@pytest.mark.parametrize("batch", [1, 3, 8, 40])
def test_points_asked_for_one_by_one_are_those_asked_for_together(batch):
    problem = couplings(9, 2)
    algorithm, seen, lowest = members_alone(problem.space).at_least(batch), set(), math.inf
    for state, x in steps(algorithm, problem.costs):
        if state.study is None:
            if state.studied:
                break
            continue
        seen.add(state.study.stage)
        lowest = min(lowest, problem.costs(x).min())
        together, apart = Stream(9), Stream(9)
        every = algorithm.ask(state, together)
        rows = [algorithm.ask(state, apart, 1, i) for i in range(len(every))]
        np.testing.assert_array_equal(np.concatenate(rows), every)
        assert together.count == apart.count
        assert len(every) == algorithm.lam(state) == algorithm.info(state).lam >= batch
        more = algorithm.ask(state, Stream(9), len(every) + 5)
        np.testing.assert_array_equal(more[: len(every)], every)
        assert algorithm.ask(state, Stream(9), 0).shape == (0, 9)
    assert seen == set(STAGES)
    assert lowest == pytest.approx(problem.costs(all_points(9)).min(), abs=1e-9)


@every_stage
def test_writing_to_the_points_of_a_study_changes_nothing(stage):
    algorithm, problem = members_alone(kl.Binary(9)), couplings(9, 2)
    state = until(algorithm, problem.costs, at_stage(stage))
    x = algorithm.ask(state, Stream(0))
    kept = x.copy()
    x[:] = 1 - x
    np.testing.assert_array_equal(algorithm.ask(state, Stream(0)), kept)


@pytest.mark.parametrize("batch", [1, 8])
@every_stage
def test_copies_and_saved_states_continue_as_the_original(stage, batch):
    problem = couplings(9, 2)
    algorithm = members_alone(problem.space).at_least(batch)
    state = until(algorithm, problem.costs, at_stage(stage, 7 if stage != TESTING else 0))
    copies = state.copy(), saved_and_restored(algorithm, state), state
    again = pickle.loads(pickle.dumps(algorithm))
    assert again == algorithm
    assert hash(again) == hash(algorithm)
    runs = [steps(again, problem.costs, each, Stream(3)) for each in copies]
    for _ in range(40):
        found = [next(run) for run in runs]
        for other, x in found[1:]:
            np.testing.assert_array_equal(x, found[0][1])
            assert (other.study is None, other.studied) == (found[0][0].study is None, found[0][0].studied)
            np.testing.assert_array_equal(other.theta, found[0][0].theta)
    assert found[0][0].studied


def test_a_choice_of_two_is_a_bit():
    problem = couplings(9, 2)
    one, other = (
        steps(members_alone(kl.Space.of(each).family), problem.costs, rng=Stream(6))
        for each in (kl.Binary(9), kl.Choice("a", "b", n=9))
    )
    for _ in range(150):
        (state, x), (same, y) = next(one), next(other)
        np.testing.assert_array_equal(x, y)
        assert (state.study is None) == (same.study is None)
    assert state.studied


# In an optimizer.


def optimizer(problem, **options):
    """Return an optimizer that evaluates equal points each time, so that all points of a study are handed out."""
    return kl.Optimizer(problem.space, members_alone(problem.space), **{"rng": 5, "deterministic": False} | options)


def driven(opt, f, condition):
    """Run until the state meets the condition; return the values that were told."""
    told = []
    while not condition(opt.run.search):
        out = opt.ask()
        values = [f(candidate.x) for candidate in out]
        opt.tell(out, values)
        told += values
    return told


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("lost", ["cancelled", "all cancelled", math.nan, math.inf, RuntimeError("no")], ids=str)
@every_stage
def test_a_candidate_without_a_value_ends_the_study_and_nothing_is_lost(stage, lost, batch):
    problem = couplings(9, 2)
    opt = optimizer(problem, batch=batch)
    told = driven(opt, problem, at_stage(stage))
    before = opt.run.search
    out = list(opt.ask())
    own = {row.tobytes() for row in before.study.points}
    missing = next(candidate for candidate in out if candidate.x.astype(np.int8).tobytes() in own)
    others = [candidate for candidate in out if candidate is not missing]
    values = [problem(candidate.x) for candidate in others]
    if lost == "all cancelled":
        opt.cancel(out)
    elif lost == "cancelled":
        opt.cancel(missing)
        opt.tell(others, values)
        told += values
    else:
        opt.tell([missing, *others], [lost, *values])
        told += values
    after = opt.run.search
    assert after.study is None
    assert after.studied
    assert group_of(after).records == group_of(before).records
    assert opt.best.fun == min(told)
    for _ in range(30):
        if opt.exhausted:
            break
        out = opt.ask()
        told += [problem(candidate.x) for candidate in out]
        opt.tell(out, [problem(candidate.x) for candidate in out])
        assert opt.run.search.study is None
    assert opt.best.fun == min(told)


def test_a_random_point_that_fills_a_batch_may_be_cancelled():
    problem = couplings(9, 2)
    algorithm = members_alone(problem.space).at_least(8)
    state = until(algorithm, problem.costs, at_stage(TESTING))
    x = algorithm.ask(state, Stream(0))
    assert len(x) == 8 == len(state.study.points) + 1
    after = algorithm.tell(state, x[:7], problem.costs(x[:7]))
    np.testing.assert_array_equal(after.study.f, problem.costs(x[:7]))


def test_an_evaluation_from_elsewhere_does_not_end_a_study():
    problem = couplings(9, 2)
    algorithm = members_alone(problem.space)
    state = until(algorithm, problem.costs, at_stage(LEARNING, 9))
    x = all_points(9)[:1]
    observed = algorithm.observe(state, x, np.array([-1e3]))
    assert observed.study is state.study
    opt = optimizer(problem)
    driven(opt, problem, at_stage(LEARNING, 9))
    opt.add(x[0], -1e3)
    driven(opt, problem, at_stage(MINIMIZING))
    assert opt.best.fun == -1e3


def look(opt):
    best = opt.best and (opt.best.x.tolist(), opt.best.fun)
    return opt.theta.tolist(), best, opt.nfev, opt.nit, opt.lam, [(c.id, c.x.tolist()) for c in opt.pending]


@pytest.mark.parametrize("how", ["snapshot", "journal"])
@pytest.mark.parametrize("batch", [1, 3, 8])
@every_stage
def test_a_run_that_is_resumed_during_a_study_is_the_run_that_never_stopped(stage, batch, how, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # this is not about the disk, which is slow
    problem, path = couplings(9, 2), tmp_path / "run"

    def begun(**options):
        opt = optimizer(problem, batch=batch, **options)
        driven(opt, problem, at_stage(stage))
        if stage == LEARNING:
            driven(opt, problem, at_stage(LEARNING, 9))
        out = opt.ask()
        opt.tell(out[: len(out) // 2], [problem(candidate.x) for candidate in out[: len(out) // 2]])
        return opt

    expected = begun()
    if how == "snapshot":
        begun().save(path)
        opt = kl.Optimizer.load(path, problem.space)
    else:
        begun(journal=path).close()
        opt = optimizer(problem, batch=batch, journal=path)
        if len(opt.pending) < len(expected.pending):  # candidates without a value are handed out again
            opt.ask(len(expected.pending))
    assert opt.algorithm == expected.algorithm == members_alone(problem.space).at_least(batch)
    assert look(opt) == look(expected)
    for each in (opt, expected):
        left = each.pending
        each.tell(left, [problem(candidate.x) for candidate in left])
    while not expected.exhausted and expected.nfev < 400:
        out, same = opt.ask(), expected.ask()
        assert [c.x.tolist() for c in out] == [c.x.tolist() for c in same]
        for each in (opt, expected):
            each.tell(out, [problem(candidate.x) for candidate in out])
        assert look(opt) == look(expected)
    assert expected.run.search.studied
    assert expected.best.fun == pytest.approx(problem.costs(all_points(9)).min(), abs=1e-9)
    opt.close()


@pytest.mark.parametrize("batch", [1, 8])
def test_minimize_in_parts_with_a_journal_is_minimize_in_one(batch, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    problem = couplings(10, 1)

    def run(budget, **options):
        points = []
        result = kl.minimize(
            lambda x: points.append(x.tolist()) or problem(x),
            problem.space,
            budget=budget,
            rng=2,
            batch=batch,
            **options,
        )
        return points, (result.x.tolist(), result.fun, result.nfev, result.nit, result.mode.tolist())

    expected, parts = run(300), []
    for budget in (60, 115, 130, 150, 180, 300):
        points, last = run(budget, journal=tmp_path / "run.sqlite")
        parts += points
    assert (parts, last) == expected


def test_fixed_bits_keep_their_values():
    problem = couplings(24, 4)
    points, stages = [], set()
    space = kl.Space(a=kl.Binary(24), b=kl.Choice(1, 2))
    opt = kl.Optimizer(space, members_alone(space), rng=0, deterministic=True, fixed={"b": 2})
    while opt.nfev < 700:
        batch = opt.ask()
        points += [candidate.x["a"].tolist() for candidate in batch]
        opt.tell(batch, [problem(candidate.x["a"]) for candidate in batch])
        stages.add(opt.run.search.study and opt.run.search.study.stage)
    assert stages == {None, TESTING, LEARNING, MINIMIZING}
    assert opt.best.x["b"] == 2
    assert len({tuple(each) for each in points}) == len(points)
    model = Quadratic(problem(np.zeros(24)), np.array([problem(each) for each in neighbors(24)]))
    assert opt.best.fun == pytest.approx(problem(model.minima(1)[0]), abs=1e-9)


def test_a_violation_is_not_studied():
    """Ranks of infeasible points are so large that differences of the values would count as rounding errors."""
    problem = MaxSat.random(20, 90, 0)
    for seed in range(6):
        opt = kl.Optimizer(kl.Binary(20), members_alone(kl.Binary(20)), rng=seed, deterministic=True)
        while opt.nfev < 400:
            batch = opt.ask()
            opt.tell(batch, [kl.Constrained(problem(each.x), each.x[0] & each.x[1]) for each in batch])
            study = getattr(opt.run.search, "study", None)
            assert study is None or study.stage == TESTING


def test_points_that_are_repaired_do_not_stop_the_run():
    problem = couplings(10, 3)
    points = []
    kl.minimize(
        lambda x: points.append(x) or problem(x),
        problem.space,
        budget=200,
        rng=0,
        deterministic=True,
        constraints=lambda x: x.sum() <= 6,
        algorithm=members_alone(problem.space),
    )
    assert len(points) == 200
    assert all(x.sum() <= 6 for x in points)


# What is refused.


def test_at_least_holds_for_the_members_and_the_study():
    algorithm = kl.search(kl.Binary(5))
    more = algorithm.at_least(7)
    assert (more.batch, more.study.batch) == (7, 7)
    assert more.members == tuple(member.at_least(7) for member in algorithm.members)
    assert more.at_least(3) == more
    assert algorithm.at_least(1) == algorithm


FIVE = Bernoulli(5)


@pytest.mark.parametrize(
    ("family", "batch", "error", "message"),
    [
        (kl.Space.of(kl.Subset(5, 2)).family, 1, TypeError, r"^family: expected bits only"),
        (kl.Space.of(kl.Choice(1, 2, 3, n=26)).family, 1, TypeError, r"^family: expected bits only"),
        (kl.Space(a=kl.Binary(3), b=kl.Float(0, 1)).family, 1, TypeError, r"^family: expected bits only"),
        (SPACES["branches"].family, 1, TypeError, r"^family: expected bits only"),
        (Bernoulli(2), 1, ValueError, r"^family: expected at least 3 bits, got 2"),
        (FIVE, 0, ValueError, r"^batch: expected"),
        (FIVE, 1.5, TypeError, r"^batch: expected"),
    ],
)
def test_errors_name_the_argument(family, batch, error, message):
    with pytest.raises(error, match=message):
        QuadraticStudy(family, batch)


def test_a_search_has_a_study_for_its_family():
    members = (p3(FIVE), Evolution(FIVE))
    for study in (QuadraticStudy(Bernoulli(6)), p3(FIVE)):
        with pytest.raises((ValueError, TypeError), match=r"^study: expected"):
            Search(members, study=study)


def test_it_is_for_bits_alone():
    for space in (kl.Binary(3), kl.Binary(60), kl.Space(a=kl.Binary(20), b=kl.Choice("a", "b")), kl.Choice(1, 2, n=3)):
        assert kl.search(space).study == QuadraticStudy(kl.Space.of(space).family)
    for space in (kl.Binary(1), kl.Binary(2), kl.Subset(9, 3), kl.Choice(*range(3), n=26)):
        assert kl.search(space).study is None
    for known in ({"deterministic": False}, {"constrained": True}):
        assert kl.search(kl.Binary(20), **known).study is None


@pytest.mark.parametrize("batch", [1, 5])
def test_the_description_is_read_back(batch):
    algorithm = members_alone(kl.Binary(6)).at_least(batch)
    data = json.loads(json.dumps(algorithm_data(algorithm)))
    assert algorithm_of(data, algorithm.family) == algorithm


@pytest.mark.parametrize(
    "change",
    [
        {"batch": 0},
        {"batch": True},
        {"batch": 10**12},
        {"batch": "1"},
        {"type": "P3"},
        {"type": None},
        {"more": 1},
    ],
)
def test_other_descriptions_are_refused(change):
    algorithm = kl.search(kl.Binary(6))
    data = algorithm_data(algorithm)
    with pytest.raises(ValueError, match="expected"):
        algorithm_of(data | {"study": data["study"] | change}, algorithm.family)


def floats(*values):
    return text(np.array(values, dtype=float))


CORRUPTED = {
    "another stage": {"stage": 3},
    "a negative stage": {"stage": -1},
    "a stage that is no integer": {"stage": 1.0},
    "no stage": {"stage": None},
    "too many values": {"values": floats(*[1.0] * 46)},
    "one value": {"values": floats(1.0)},
    "a part of a float": {"values": "AAAA"},
    "no text": {"values": [1.0]},
    "no base 64": {"values": "?"},
    "no point": {"center": {"x": "", "f": ""}},
    "a value that is not finite": {"center": {"x": b64encode(bytes(2)).decode(), "f": floats(math.inf)}},
    "more values than points": {"center": {"x": b64encode(bytes(2)).decode(), "f": floats(1.0, 2.0)}},
}


@pytest.mark.parametrize("change", CORRUPTED.values(), ids=CORRUPTED)
@every_stage
def test_a_study_that_cannot_have_been_is_refused(stage, change):
    problem = couplings(9, 2)
    algorithm = members_alone(problem.space)
    data = algorithm.data(until(algorithm, problem.costs, at_stage(stage)))
    with pytest.raises(ValueError, match=r"."):
        algorithm.restore(algorithm.init(), data | {"study": data["study"] | change})


@every_stage
def test_values_that_are_not_finite_are_refused(stage):
    problem = couplings(9, 2)
    algorithm = members_alone(problem.space)
    condition = at_stage(stage, 0 if stage == MINIMIZING else 7)
    data = algorithm.data(until(algorithm, problem.costs, condition))
    size = len(data["study"]["values"]) * 3 // 4 // 8
    for value in (math.nan, math.inf):
        study = data["study"] | {"values": floats(*[value] * size)}
        with pytest.raises(ValueError, match="study: expected finite values"):
            algorithm.restore(algorithm.init(), data | {"study": study})


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**6),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.integers(), max_size=2),
    st.lists(st.floats(), max_size=50).map(lambda values: floats(*values)),
    st.binary(max_size=6).map(lambda data: b64encode(data).decode()),
    st.dictionaries(st.sampled_from(["x", "f", "stage"]), st.integers(), max_size=2),
)


@pytest.mark.filterwarnings("error")
@examples(200)
@given(
    st.sampled_from(STAGES),
    st.sampled_from(["study", "stage", "values", "center", "x", "f", "studied", "before"]),
    junk,
)
def test_a_corrupted_snapshot_is_loaded_or_refused(tmp_path_factory, stage, name, value):
    path = tmp_path_factory.getbasetemp() / f"study {stage}.json"
    problem = couplings(9, 2)
    if not path.exists():
        opt = optimizer(problem)
        driven(opt, problem, at_stage(stage))
        opt.save(path)
    data = json.loads(path.read_text())
    state = data["state"]["algorithm"]
    places = {
        "study": state,
        "studied": state,
        "before": state,
        "x": state["study"]["center"],
        "f": state["study"]["center"],
    }
    places.get(name, state["study"])[name] = value
    changed = path.with_suffix(".changed")
    changed.write_text(json.dumps(data))
    try:
        opt = kl.Optimizer.load(changed, problem.space)
    except kl.SnapshotError:
        return
    out = opt.ask()
    opt.tell(out, [problem(candidate.x) for candidate in out])
