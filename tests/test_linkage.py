"""Which variables belong together: against entropies counted plainly and against a naive joining of all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle_p3
from conftest import examples
from knobless.core.linkage import Pairs, joined
from knobless.core.rng import Stream


def pairs_of(options, points):
    pairs = Pairs(np.array(options))
    for x in points:
        pairs.add(np.array(x))
    return pairs


def sets(groups):
    return [frozenset(map(int, group)) for group in groups]


@st.composite
def populations(draw):
    """Options and points; few of them, so that variables are often constant, or tell each other."""
    options = draw(st.lists(st.integers(2, 4), min_size=1, max_size=7))
    point = st.tuples(*(st.integers(0, k - 1) for k in options))
    return options, draw(st.lists(point, min_size=1, max_size=12))


@examples(50)
@given(populations(), st.data())
def test_distances_are_those_of_entropies_counted_plainly(population, data):
    options, points = population
    order = data.draw(st.permutations(range(len(options))))
    found = pairs_of(options, points).distances(np.array(order))
    for i, a in enumerate(order):
        assert found[i, i] == math.inf
        for j, b in enumerate(order):
            if a != b:
                assert abs(found[i, j] - oracle_p3.distance(points, a, b)) <= 1  # where the last bit is rounded away


def test_what_a_distance_means():
    told = [(0, 0, 0, 0), (1, 1, 0, 0), (0, 0, 1, 0), (1, 1, 1, 0)]
    found = pairs_of([2] * 4, told).distances(np.arange(4))
    assert found[0, 1] == 0  # each tells the other
    assert found[0, 2] == 2**30  # neither tells anything
    assert found[0, 3] == 2**30  # nor does a constant


@pytest.mark.slow
@examples(50)
@given(st.data())
def test_the_nearest_are_joined_as_by_looking_at_all_pairs(data):
    """With distances from a few, so that ties abound, and from many, so that averages are rounded."""
    n, most = data.draw(st.integers(1, 9)), data.draw(st.sampled_from([1, 3, 2**30]))
    distance = np.full((n, n), np.inf)
    for i in range(n):
        for j in range(i):
            distance[i, j] = distance[j, i] = data.draw(st.integers(0, most))
    names = data.draw(st.permutations(range(n)))
    expected = oracle_p3.joined(distance.tolist(), names)
    assert [group.tolist() for group in joined(distance, np.array(names))] == expected


def test_ties_that_arise_as_averages_are_rounded_are_broken_alike():
    rng = np.random.default_rng(0)
    for _ in range(400):
        n = int(rng.integers(4, 10))
        distance = np.triu(rng.integers(0, 6, (n, n)), 1).astype(float)
        distance += distance.T
        np.fill_diagonal(distance, np.inf)
        expected = oracle_p3.joined(distance.tolist(), list(range(n)))
        assert [group.tolist() for group in joined(distance, np.arange(n))] == expected


@pytest.mark.parametrize("seed", range(3))
def test_without_ties_it_is_average_linkage(seed):
    hierarchy = pytest.importorskip("scipy.cluster.hierarchy")
    n = 40
    rng = np.random.default_rng(seed)
    condensed = rng.integers(1, 2**30, n * (n - 1) // 2).astype(float)
    distance = np.full((n, n), np.inf)
    distance[np.triu_indices(n, 1)] = condensed
    distance = np.minimum(distance, distance.T)
    groups = [frozenset([i]) for i in range(n)]
    for a, b, _, _ in hierarchy.linkage(condensed, "average"):
        groups.append(groups[int(a)] | groups[int(b)])
    assert set(sets(joined(distance, np.arange(n)))) == set(groups[:-1])


@given(populations(), st.integers(0, 2**63 - 1))
def test_a_tree_has_groups_within_groups(population, key):
    options, points = population
    groups = sets(pairs_of(options, points).tree(Stream(key)))
    everything = frozenset(range(len(options)))
    assert len(set(groups)) == len(groups)
    assert everything not in groups
    assert not groups or frozenset().union(*groups) == everything
    for a in groups:
        for b in groups:
            assert a <= b or b <= a or not a & b


@pytest.mark.parametrize("k", [2, 3])
def test_planted_blocks_are_found(k):
    """Blocks that show one of two patterns each, apart from some noise."""
    rng = np.random.default_rng(k)
    n, size = 20, 5
    blocks = rng.permutation(n).reshape(-1, size)
    patterns = rng.integers(0, k, n)
    points = []
    for _ in range(60):
        x = np.empty(n, dtype=int)
        for block in blocks:
            x[block] = (patterns[block] + rng.integers(0, 2)) % k
        noisy = rng.random(n) < 0.05
        points.append(np.where(noisy, rng.integers(0, k, n), x))
    groups = sets(pairs_of([k] * n, points).tree(Stream(0)))
    assert set(sets(blocks)) <= set(groups)


def test_identical_variables_are_one_group():
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 2, (3, 30))
    points = np.stack([a, b, 1 - a, c, a, np.zeros(30, int), b, np.ones(30, int)], axis=1)
    groups = sets(pairs_of([2] * 8, points).tree(Stream(1)))
    for same in ({0, 2, 4}, {1, 6}, {5, 7}):
        assert same in groups
        assert not any(group < same for group in groups)
    assert {3} in groups


def test_where_all_are_identical_there_is_nothing_to_take_over():
    assert pairs_of([3] * 4, [(0,) * 4, (2,) * 4]).tree(Stream(0)) == []
    assert pairs_of([2] * 4, [(0, 1, 0, 1)]).tree(Stream(0)) == []
    assert pairs_of([2], [(0,), (1,)]).tree(Stream(0)) == []


@pytest.mark.slow
@given(populations(), st.data())
def test_the_names_of_options_do_not_matter(population, data):
    options, points = population
    renamed = [data.draw(st.permutations(range(k))) for k in options]
    others = [tuple(names[option] for names, option in zip(renamed, x, strict=True)) for x in points]
    one, other = pairs_of(options, points), pairs_of(options, others)
    every = np.arange(len(options))
    np.testing.assert_allclose(one.distances(every), other.distances(every), rtol=0, atol=1)
    assert sets(one.tree(Stream(5))) == sets(other.tree(Stream(5)))


@given(populations(), st.data())
def test_the_order_of_the_points_does_not_matter(population, data):
    options, points = population
    one, other = pairs_of(options, points), pairs_of(options, data.draw(st.permutations(points)))
    every = data.draw(st.permutations(range(len(options))))
    assert one.distances(every).tolist() == other.distances(every).tolist()


@pytest.mark.parametrize(("n", "k"), [(2049, 2), (100, 1000)])
def test_beyond_the_most_options_each_is_alone(n, k):
    """Pairs of the options of a hundred choices with a thousand each would take 40 GB."""
    pairs = Pairs(np.full(n, k))
    pairs.add(np.zeros(n, dtype=np.int16))
    assert not pairs.counts.size
    assert sorted(group.tolist() for group in pairs.tree(Stream(3))) == [[i] for i in range(n)]
