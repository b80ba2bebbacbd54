"""Laws of dominance, hypervolume and the ranking of several objectives, by enumeration."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import knobless as kl
from knobless.core.hypervolume_improvement import expected_hypervolume_improvement
from knobless.core.pareto import Front, Layers, contributions, hypervolume, is_front, knee, levels, ranking

SIDE = 4


def tables(m=None, most=9):
    """Draw small tables of integers, with ties and equal rows; some rows may have failed."""
    sizes = st.integers(2, 5) if m is None else st.just(m)
    cells = st.integers(0, SIDE - 1).map(float)
    return st.tuples(st.integers(1, most), sizes).flatmap(lambda shape: arrays(float, shape, elements=cells))


def dominates(a, b):
    return bool((a <= b).all() and (a < b).any())


def front_by_definition(values):
    return np.array([not any(dominates(other, row) for other in values) for row in values])


def volume_by_enumeration(values, reference):
    """Count the unit cells below the reference point that a row dominates."""
    cells = np.stack(np.meshgrid(*[np.arange(SIDE)] * len(reference), indexing="ij"), -1).reshape(-1, len(reference))
    inside = (cells < reference).all(axis=1)
    return float((inside & (values[:, None] <= cells).all(axis=2).any(axis=0)).sum())


@settings(max_examples=60, deadline=None)
@given(tables())
def test_front(values):
    expected = front_by_definition(values)
    assert (is_front(values) == expected).all()
    front = Front(values.shape[1])
    for i, row in enumerate(values):
        front.add(i, row)
    assert (front.values == np.unique(values[expected], axis=0)).all()
    assert all((values[row] == value).all() for row, value in zip(front.rows, front.values, strict=True))


@settings(max_examples=60, deadline=None)
@given(tables(most=14), st.integers(1, 9))
def test_layers_are_the_first_fronts(values, least):
    layers = Layers(values.shape[1], least)
    for n, value in enumerate(values, start=1):
        layers.add(n - 1, value)
        different = np.unique(values[:n], axis=0)
        level = levels(different)
        for i, front in enumerate(layers.fronts):
            assert (front.values == different[level == i]).all()
        assert (np.diff(layers.level) >= 0).all()
        assert (values[layers.rows] == layers.values).all()
        assert all((values[row + 1 : n] != values[row]).any(axis=1).all() for row in layers.rows)  # the last equal one
        size = len(layers.rows)
        assert min(least, len(different)) <= size
        assert len(layers.fronts) == 1 or size - len(layers.fronts[-1]) < least
    layers.add(len(values), np.full(values.shape[1], np.inf))
    assert len(layers.rows) == size


@settings(max_examples=40, deadline=None)
@given(tables(), st.integers(1, SIDE))
def test_hypervolume(values, height):
    reference = np.full(values.shape[1], float(height))
    volume = hypervolume(values, reference)
    assert volume == volume_by_enumeration(values, reference)
    front = np.unique(values[is_front(values)], axis=0)
    for i, added in enumerate(contributions(front, reference)):
        assert added == pytest.approx(volume - hypervolume(np.delete(front, i, axis=0), reference))


@settings(max_examples=60, deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_ranking_is_a_total_preorder_with_dominance(values, random):
    ranks = ranking(values)
    assert sorted(set(ranks.tolist())) == list(range(ranks.max() + 1))
    for a, rank in zip(values, ranks, strict=True):
        for b, other in zip(values, ranks, strict=True):
            assert rank < other or not dominates(a, b)
            assert rank == other or (a != b).any()
    level = levels(values)
    assert (np.diff(level[np.argsort(ranks)]) >= 0).all()
    assert (ranks[level == 0].max() < ranks[level > 0]).all()
    for each in np.unique(level):  # of a front, what is best in an objective comes first
        own = level == each
        extreme = own & (values == values[own].min(axis=0)).any(axis=1)
        assert (ranks[extreme] == ranks[own].min()).all()
    order = list(range(values.shape[1]))
    random.shuffle(order)
    assert (ranking(values[:, order]) == ranks).all()
    rows = list(range(len(values)))
    random.shuffle(rows)
    assert (ranking(values[rows]) == ranks[rows]).all()


@settings(max_examples=40, deadline=None)
@given(tables())
def test_increasing_maps_leave_dominance_and_scales_leave_the_ranking(values):
    powers = np.arange(1, values.shape[1] + 1)
    assert (levels(np.exp(values) ** powers) == levels(values)).all()
    assert (ranking(values * 2.0**powers - 8.0) == ranking(values)).all()


@settings(max_examples=40, deadline=None)
@given(tables(), tables())
def test_what_is_dominated_does_not_change_the_ranking_of_the_front(values, more):
    front = values[is_front(values)]
    worse = front[0] + 1.0 + more[:, : values.shape[1]] if more.shape[1] >= values.shape[1] else front[:1] + 1.0
    assert (ranking(np.concatenate([front, worse]))[: len(front)] == ranking(front)).all()


def test_failed_rows_are_last():
    values = np.array([[1.0, 2.0], [np.nan, 0.0], [2.0, 1.0], [0.0, np.inf], [3.0, 3.0]])
    assert is_front(values).tolist() == [True, False, True, False, False]
    assert ranking(values).tolist() == [0, 2, 0, 2, 1]
    assert not Front(2).add(0, values[1])
    assert not Front(2).add(0, values[3])


def test_knee_is_closest_to_the_ideal_point():
    front = np.array([[0.0, 10.0], [1.0, 3.0], [5.0, 2.0], [9.0, 0.0]])
    assert knee(front) == 1
    assert knee(front * [100.0, 0.01]) == 1
    assert knee(front[:1]) == 0


@pytest.mark.parametrize("seed", range(6))
def test_expected_hypervolume_improvement(seed):
    g = np.random.default_rng(seed)
    reference = np.array([1.0, 1.5])
    values = g.uniform(-1.5, 1.5, (seed + 1, 2))
    front = values[is_front(values)]
    front = front[np.argsort(front[:, 0])]
    before = hypervolume(front, reference)

    def improvement(point):
        return hypervolume(np.concatenate([front, [point]]), reference) - before

    mean, deviation = g.normal(size=2), g.uniform(0.2, 1.0, 2)
    nodes = np.array([NormalDist().inv_cdf((i + 0.5) / 60) for i in range(60)])  # equally probable
    first, second = (mean[i] + deviation[i] * nodes for i in range(2))
    expected = np.mean([improvement((a, b)) for a in first for b in second])
    predicted = [(mean[i : i + 1], deviation[i : i + 1]) for i in range(2)]
    found = expected_hypervolume_improvement(front, reference, predicted)[0]
    assert found == pytest.approx(expected, rel=0.08, abs=1e-3)
    point = mean + 0.3 * deviation
    certain = [(point[i : i + 1], np.array([1e-9])) for i in range(2)]
    found = expected_hypervolume_improvement(front, reference, certain)[0]
    assert found == pytest.approx(improvement(point), abs=1e-7)


def test_the_search_for_several_objectives():
    members = kl.search(kl.Binary(8), several=True)
    assert [type(stage.member).__name__ for stage in members.stages] == ["Model"]
    assert [type(member).__name__ for member in members.members] == ["ParetoEvolution"]
    assert not kl.search(kl.Binary(8), deterministic=False, several=True).stages
