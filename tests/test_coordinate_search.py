"""Coordinate search: its steps, its lines, its restarts, and what it is for."""

from __future__ import annotations

import math

import numpy as np
import pytest

import knobless as kl
from conftest import saved_and_restored
from knobless.algorithms import IGO
from knobless.core.coordinate_search import CoordinateSearch, vertex
from knobless.families import Bernoulli
from knobless.report.trace import Trace

MIXED = kl.Space(bits=kl.Binary(4), kind=kl.Choice("a", "b", "c"), n=kl.Integer(0, 20), z=kl.Float(-1, 1, n=2))


def searched(algorithm, fun, evaluations, state=None):
    """Return the points of a search and its state."""
    rng, points = np.random.default_rng(0), []
    state = algorithm.init() if state is None else state
    for _ in range(evaluations):
        x = algorithm.ask(state, rng)
        points += x.tolist()
        state = algorithm.tell(state, x, np.array([fun(row) for row in x]))
    return points, state


def valley(x):
    """Return the value of a point of MIXED."""
    return float(x[:4].sum() + (x[4] == 1) + (x[5] - 0.3) ** 2 + 5 * (x[6] - x[7]) ** 2 + (x[7] - 0.7) ** 2)


@pytest.mark.parametrize(("a", "b"), [(-1.0, 2.0), (3.0, -0.5), (1.0, -1.0)])
def test_the_vertex_of_a_parabola_is_exact(a, b):
    def f(t):
        return 2.0 * (t - 0.2) ** 2 - 1.0

    assert vertex((a, f(a)), (b, f(b)), f(0.0)) == pytest.approx(0.2)


def test_there_is_no_vertex_beside_a_failure_or_on_a_plateau():
    assert vertex((-1.0, math.inf), (1.0, 2.0), 1.0) == 0.0
    assert vertex((-1.0, 1.0), (1.0, 1.0), 1.0) == 0.0
    assert vertex((-1.0, 1e308), (1.0, 0.0), -1e308) == 0.0  # the differences overflow


def test_a_separable_parabola_is_solved_exactly():
    best = np.linspace(0.1, 0.9, 6)
    algorithm = CoordinateSearch(kl.Space.of(kl.Float(0, 1, n=6)).family)
    _, state = searched(algorithm, lambda x: ((x - best) ** 2).sum(), 60)
    assert state.f < 1e-20


def test_a_valley_that_no_variable_is_parallel_to_is_followed():
    def rosenbrock(x):
        return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())

    found = [
        kl.minimize(rosenbrock, kl.Float(-2, 2, n=2), budget=200, rng=seed, deterministic=True).fun for seed in range(5)
    ]
    assert np.median(found) < 1e-2


def test_a_step_of_an_integer_is_at_least_one():
    def fun(x):
        return abs(x["n"] - 617) + abs(x["log"] - 9)

    space = kl.Space(n=kl.Integer(0, 1000), log=kl.Integer(1, 4096, log=True))
    for seed in range(3):
        assert kl.minimize(fun, space, budget=150, rng=seed, deterministic=True).fun == 0


def test_ackley_with_50_bits_and_3_floats():
    """The problem of Dreczkowski et al. (2023), who report .15 to .24 for the best three of their algorithms."""
    for seed in range(3):
        flipped = np.random.default_rng(seed).integers(0, 2, 50)

        def fun(x, flipped=flipped):
            z = np.concatenate([x["bits"] ^ flipped, x["z"]])
            return 20 - 20 * math.exp(-0.2 * math.sqrt(z @ z / 53)) + math.e - math.exp(np.cos(2 * np.pi * z).mean())

        space = kl.Space(bits=kl.Binary(50), z=kl.Float(-1, 1, n=3))
        assert kl.minimize(fun, space, budget=200, rng=seed, deterministic=True).fun < 0.3


@pytest.mark.parametrize("climbers", [1, 4])
def test_it_is_restarted_from_what_local_optima_have_in_common(climbers):
    algorithm = CoordinateSearch(MIXED.family, climbers)
    points, state = searched(algorithm, valley, 600)
    assert min(map(valley, np.array(points))) < 1e-9
    assert (state.theta[:4] <= 0.25).all()
    within = np.array(points)[:, 5:]
    assert (within >= 0.0).all()
    assert (within <= 1.0).all()


def test_an_injected_point_is_taken_if_it_is_better_than_all_before():
    algorithm = CoordinateSearch(MIXED.family)
    _, state = searched(algorithm, valley, 30)
    x, f = state.x, state.f
    worse = algorithm.inject(state.copy(), np.zeros(8), f + 1.0)
    assert worse.x.tolist() == x.tolist()
    better = algorithm.inject(state, np.full(8, 0.5), f - 1.0)
    assert (better.x.tolist(), better.f) == ([0.5] * 8, f - 1.0)


def test_a_point_in_place_of_the_one_asked_for_has_the_value_told():
    algorithm = CoordinateSearch(MIXED.family)
    state, other = algorithm.init(), np.array([[1.0, 1, 1, 1, 2, 0.5, 0.5, 0.5]])
    algorithm.ask(state, np.random.default_rng(0))
    state = algorithm.tell(state, other, np.array([3.0]))
    assert (state.x.tolist(), state.f) == (other[0].tolist(), 3.0)


def test_a_saved_state_continues_as_the_original():
    algorithm = CoordinateSearch(MIXED.family, 2)
    _, state = searched(algorithm, valley, 20)
    state = algorithm.inject(state, np.array([0.0, 0, 0, 0, 1, 0.4, 0.5, 0.5]), -5.0)
    again = saved_and_restored(algorithm, state)
    assert searched(algorithm, valley, 40, state)[0] == searched(algorithm, valley, 40, again)[0]


@pytest.mark.parametrize(
    "changed", [{"at": []}, {"at": [3]}, {"at": [44]}, {"at": ["1"]}, {"key": None}, {"told": "AAAAAAAA8H8="}]
)
def test_a_wrong_state_is_refused(changed):
    algorithm = CoordinateSearch(MIXED.family, 2)
    _, state = searched(algorithm, valley, 20)
    data = algorithm.data(algorithm.inject(state, np.zeros(8), -5.0))
    with pytest.raises(ValueError, match="expected"):
        algorithm.restore(algorithm.init(), data | changed)


def test_families_without_numbers_and_with_conditions_are_refused():
    with pytest.raises(TypeError, match=r"^family: expected integers or floats"):
        CoordinateSearch(Bernoulli(3))
    conditional = kl.Space(kind=kl.Choice("a", "b"), z=kl.Float(0, 1).when(kind="b"))
    with pytest.raises(TypeError, match=r"^family: expected no conditional variables"):
        CoordinateSearch(conditional.family)


def test_the_search_of_branches_has_it_for_parts_with_numbers():
    space = kl.Space(kind=kl.Choice("a", "b"), z=kl.Float(0, 1, n=2).when(kind="b"))
    search = kl.search(space)
    members = [[type(member) for member in search.part((float(kind),))[1]] for kind in range(2)]
    assert members == [[], [CoordinateSearch, IGO]]


CONDITIONAL = kl.Space(kind=kl.Choice("a", "b"), y=kl.Float(0, 1), z=kl.Float(0, 1).when(kind="b"))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("space", "batch"), [(MIXED, 1), (MIXED, 4), (CONDITIONAL, 2)])
def test_states_from_a_journal_and_from_a_snapshot_continue_as_the_original(tmp_path, space, batch, seed):
    """Whatever was asked, told together or one by one, cancelled or added before."""
    rng, infos, path = np.random.default_rng(seed), [], tmp_path / "run.sqlite"
    opt = kl.Optimizer(space, rng=seed, batch=batch, deterministic=True, journal=path)
    opt.on_iteration = lambda: infos.append(opt.info[:3])
    for _ in range(40):
        opt.ask(int(rng.integers(1, 6)))
        pending = list(opt.pending)
        chosen = [pending[i] for i in rng.permutation(len(pending))[: rng.integers(1, 9)]]
        match rng.integers(6):
            case 0:
                opt.cancel(chosen)
            case 1:
                for candidate in chosen:
                    opt.tell([candidate], [math.nan if rng.random() < 0.3 else rng.normal()])
            case 2:
                opt.add(opt.mode, float(rng.normal()))
            case _:
                opt.tell(chosen, np.round(rng.normal(size=len(chosen)), 1))
    opt.save(tmp_path / "run.snapshot")
    loaded, replayed = kl.Optimizer.load(tmp_path / "run.snapshot", space), kl.Optimizer.from_journal(path)
    with kl.journal.read(path) as record:
        steps = Trace(record).steps
    assert [step[:3] for step in steps] == infos
    assert len(infos) > 10
    assert replayed.pending.ids == loaded.pending.ids == opt.pending.ids
    if len(replayed.pending):
        replayed.ask(len(replayed.pending))  # which are handed out again
    for _ in range(10):
        each = [one.ask(3) for one in (opt, loaded, replayed)]
        assert len({repr(list(batch)) for batch in each}) == 1
        values = rng.normal(size=len(each[0]))
        for one, batch in zip((opt, loaded, replayed), each, strict=True):
            one.tell(batch, values[: len(batch)])


@pytest.mark.parametrize("climbers", [2, 5])
def test_the_point_after_a_local_optimum_is_a_random_one(climbers):
    # The first climber that finds nothing left to visit ends the search there, while the others await their values.
    algorithm, rng = CoordinateSearch(kl.Space.of(kl.Float(0, 1, n=2)).family, climbers), np.random.default_rng(0)
    state, optima = algorithm.init(), 0
    for _ in range(600):
        theta, lowest = state.theta, state.f
        x = algorithm.ask(state, rng)
        state = algorithm.tell(state, x, (2.0 - np.cos(20.0 * x).sum(axis=1)) + x.sum(axis=1))
        if (state.theta != theta).any():  # a local optimum was added
            optima += 1
            assert state.x is None or state.f < lowest
    assert optima > 2
