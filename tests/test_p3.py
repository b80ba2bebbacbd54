"""P3: against its plain transcription, and what climbing, crossing and remembering promise."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
import oracle_p3
from conftest import examples, saved_and_restored
from knobless.algorithms import P3
from knobless.core.rng import Stream
from knobless.families import Bernoulli, Categorical, Product
from knobless.problems import Traps

# Random numbers


def test_the_stream_is_splitmix64():
    """The numbers that its authors' code prints for the seed 0."""
    assert Stream(0).words(3).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(st.integers(0, 2**63 - 1), st.lists(st.integers(0, 5), max_size=6))
def test_words_in_parts_are_words_at_once(key, sizes):
    parts, plain = Stream(key), oracle_p3.SplitMix(key)
    found = [word for size in sizes for word in parts.words(size).tolist()]
    assert found == Stream(key).words(sum(sizes)).tolist() == [plain.next() for _ in range(sum(sizes))]


@given(st.integers(0, 2**63 - 1), st.integers(0, 300))
def test_a_permutation_is_one(key, n):
    found = Stream(key).permutation(n).tolist()
    assert sorted(found) == list(range(n))
    assert found == oracle_p3.SplitMix(key).permutation(n)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10])
def test_below_is_in_range_and_fair(n):
    stream = Stream(n)
    counts = Counter(stream.below(n) for _ in range(2000))
    assert counts.keys() == set(range(n))
    chi2 = sum((counts[i] - 2000 / n) ** 2 / (2000 / n) for i in range(n))
    assert chi2 < 30  # with at most nine degrees of freedom, one in two thousand


def test_below_a_large_number():
    stream, most = Stream(1), 2**32 - 1
    found = [stream.below(most) for _ in range(500)]
    assert 0 <= min(found) < most / 100
    assert most * 0.99 < max(found) < most


# The plain transcription


def linear(x):
    return sum((i * 7919 + 13) % 11 * int(xi) for i, xi in enumerate(x)) % 1000


def leading(x):
    return -sum(1 for _ in itertools.takewhile(bool, x))


def rugged(x):
    """A number for each point that is unrelated to those of its neighbors."""
    return sum((i + 3) ** 5 * (int(xi) + 1) for i, xi in enumerate(x)) * 2654435761 % 2**32 >> 12


def coarse(x):
    return rugged(x) % 4


def trapped(x):
    """Blocks of four that lead away from all being options 1 and above."""
    blocks = [x[i : i + 4] for i in range(0, len(x), 4)]
    return sum(0 if all(block) else 1 + sum(map(bool, block)) for block in blocks)


def failing(x):
    return math.inf if sum(map(int, x)) % 3 == 0 else coarse(x)


FUNCTIONS = {f.__name__: f for f in (linear, leading, rugged, coarse, trapped, failing)}
SPACES = {
    "a bit": (Bernoulli(1), [2]),
    "bits": (Bernoulli(12), [2] * 12),
    "choices": (Categorical(8, 3), [3] * 8),
    "both": (Product((Bernoulli(4), Categorical(3, 5), Bernoulli(1))), [2] * 4 + [5] * 3 + [2]),
}
every_space = pytest.mark.parametrize(("family", "options"), SPACES.values(), ids=SPACES)


def asked(algorithm, seed, f, rounds, x0=None):
    """The points of each iteration, which come back in the state they were handed out in."""
    rng, state, seen = Stream.of(seed), algorithm.init(x0=x0), []
    for _ in range(rounds):
        x = algorithm.ask(state, rng)
        x.flags.writeable = False
        rows = [tuple(row) for row in x.tolist()]
        seen.append(tuple(rows))
        values = np.array([f(row) for row in rows], dtype=float)
        values.flags.writeable = False
        state = algorithm.tell(state, x, values)
    return seen, state


def key_of(seed):
    return Stream.of(seed).word()


@every_space
@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_its_plain_transcription(family, options, f, seed):
    rounds = 4 if len(options) == 1 else 900
    x0 = tuple(k - 1 for k in options) if seed else None
    seen, state = asked(P3(family), seed, f, rounds, None if x0 is None else np.array(x0))
    assert [x for (x,) in seen] == oracle_p3.alone(options, key_of(seed), f, rounds, x0)
    assert x0 or len(state.levels) > 1 or f not in (rugged, trapped) or len(options) == 1  # so crossing is compared


@pytest.mark.slow
@every_space
@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_several_climbers_are_their_plain_transcription(family, options, f):
    """Each climbs and crosses by the rules, in one pyramid and with one memory."""
    rounds = 4 if len(options) == 1 else 300
    x0 = tuple(k - 1 for k in options)
    seen, _ = asked(P3(family, climbers=3), 4, f, rounds, np.array(x0))  # of whatever type
    assert seen[0][0] == x0
    assert seen == oracle_p3.together(options, key_of(4), f, rounds, 3, x0)


def test_a_climber_looks_at_each_neighbour_of_where_it_is_and_keeps_the_better():
    """Without a transcription: the first pass over all bits."""
    n = 30
    seen, _ = asked(P3(Bernoulli(n)), 0, rugged, n + 1)
    here, changed = seen[0][0], []
    for (x,) in seen[1:]:
        (i,) = (i for i in range(n) if x[i] != here[i])
        changed.append(i)
        here = x if rugged(x) <= rugged(here) else here
    assert sorted(changed) == list(range(n)) != changed


@given(st.integers(2, 12), st.integers(20, 60), st.integers(0, 99))
def test_climbers_share_the_first_individual(climbers, n, seed):
    """OneMax: each bit is changed once, and each iteration has one point that combines the better ones of the last."""
    seen, _ = asked(P3(Bernoulli(n), climbers), seed, lambda x: n - sum(x), n // (climbers - 1) + 2)
    assert (1,) * n in {x for each in seen for x in each}


@given(st.integers(2, 9), st.integers(0, 99))
def test_climbers_stay_within_the_bounds_of_a_subset(climbers, seed):
    """The cost is the sum of the chosen of 0 to 19, of which at least 4 must be chosen."""
    family = kl.Space.of(kl.Subset(20, (4, 7))).family
    seen, state = asked(P3(family, climbers), seed, lambda x: sum(i for i, bit in enumerate(x) if bit), 150)
    points = {x for each in seen for x in each}
    assert {sum(x) for x in points} <= {4, 5, 6, 7}
    assert (1,) * 4 + (0,) * 16 in points
    assert state.levels


@pytest.mark.parametrize("climbers", [1, 3])
def test_a_seed_is_a_run(climbers):
    algorithm = P3(Bernoulli(10), climbers)
    assert asked(algorithm, 3, coarse, 200)[0] == asked(algorithm, 3, coarse, 200)[0]
    assert asked(algorithm, 3, coarse, 200)[0] != asked(algorithm, 4, coarse, 200)[0]


# Climbing


@given(st.lists(st.integers(0, 1), min_size=1, max_size=60), st.integers(0, 99))
def test_each_bit_is_looked_at_once_where_they_add_up(start, seed):
    """OneMax from anywhere: the start, and no more than one change of each bit."""
    n = len(start)
    seen, _ = asked(P3(Bernoulli(n)), seed, lambda x: n - sum(x), n + 1, np.array(start, dtype=np.int8))
    assert seen[0] == (tuple(start),)
    assert ((1,) * n,) in seen


@pytest.mark.slow
def test_every_option_is_a_neighbour_however_many_there_are():
    algorithm, rng, k = P3(Categorical(1, 20_000)), np.random.default_rng(0), 20_000
    state, seen = algorithm.init(x0=np.array([15_000])), set()
    while not state.levels:
        x = algorithm.ask(state, rng)
        seen.add(int(x[0, 0]))
        state = algorithm.tell(state, x, np.array([float(x[0, 0] != 15_000)]))
    assert seen == set(range(k))


def test_a_plateau_is_crossed():
    """Pairs of bits of which only both together are better, from zeros: no single change is, so who takes only what is
    better stops at once. The first climber finds the optimum, before there is anything to cross with."""
    n, found = 10, 0
    wrong = lambda x: sum(not (a and b) for a, b in zip(x[::2], x[1::2], strict=True))  # noqa: E731
    for seed in range(20):
        algorithm, rng, best = P3(Bernoulli(n)), np.random.default_rng(seed), n
        state = algorithm.init(x0=np.zeros(n, dtype=np.int8))
        while not state.levels:
            x = algorithm.ask(state, rng)
            best = min(best, wrong(x[0]))
            state = algorithm.tell(state, x, np.array([float(wrong(x[0]))]))
        found += best == 0
    assert found >= 18


@pytest.mark.slow
def test_traps_are_solved():
    problem = Traps(50, 5)
    for seed in range(5):
        algorithm, rng = kl.algorithms.p3(problem.space), np.random.default_rng(seed)
        state, best, calls = algorithm.init(), math.inf, 0
        while best > 0:
            x = algorithm.ask(state, rng)
            f = problem.costs(x)
            best, calls = min(best, f[0]), calls + 1
            state = algorithm.tell(state, x, f)
            assert calls <= 20_000


# Cache


@pytest.mark.slow
@pytest.mark.parametrize("f", [rugged, coarse, leading], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("family", "size"), [(Bernoulli(6), 64), (Categorical(3, 3), 27), (Bernoulli(1), 2)])
def test_no_point_is_asked_for_twice_until_all_are_known(family, size, f):
    for seed in range(3):
        seen, _ = asked(P3(family), seed, f, size + 2)
        assert len(set(seen[:size])) == size
        assert set(seen[size:]) <= set(seen[:size])  # then it still answers


# The state


@pytest.mark.slow
@pytest.mark.parametrize("climbers", [1, 3])
@examples(8)
@given(st.integers(0, 150), st.sampled_from(list(FUNCTIONS.values())), st.booleans())
def test_a_copy_and_what_was_saved_go_on_as_the_state_itself(climbers, rounds, f, guest):
    space = kl.Space.of(kl.Binary(9))
    algorithm = P3(space.family, climbers)
    x0 = np.ones(9, dtype=np.int8) if guest else None
    _, state = asked(algorithm, 1, f, rounds, x0)
    copy, saved = state.copy(), saved_and_restored(algorithm, state, x0=x0)
    for _ in range(60):
        given = [algorithm.ask(each, np.random.default_rng(1)) for each in (state, copy, saved)]
        assert given[0].tolist() == given[1].tolist() == given[2].tolist()
        assert given[0].dtype == given[1].dtype == given[2].dtype
        assert state.can_yield == copy.can_yield == saved.can_yield
        assert state.theta.tolist() == copy.theta.tolist() == saved.theta.tolist()
        values = np.array([f(tuple(row)) for row in given[0].tolist()], dtype=float)
        state, copy, saved = (algorithm.tell(each, given[0], values) for each in (state, copy, saved))


def test_a_copy_does_not_change_with_the_state():
    algorithm = P3(Bernoulli(8))
    _, state = asked(algorithm, 0, coarse, 100)
    copy = state.copy()
    before = copy.theta.tolist(), copy.pending.tolist(), len(copy.told)
    for _ in range(100):
        state = algorithm.tell(state, state.pending, np.array([coarse(state.pending[0].tolist())]))
    assert (copy.theta.tolist(), copy.pending.tolist(), len(copy.told)) == before
    assert state.theta.tolist() != before[0]


def test_it_rests_when_an_individual_has_come_to_its_end():
    algorithm, rng = P3(Bernoulli(10)), np.random.default_rng(0)
    state, rested = algorithm.init(), []
    for i in range(400):
        x = algorithm.ask(state, rng)
        levels = sum(len(level.points) for level in state.levels)
        state = algorithm.tell(state, x, np.array([rugged(x[0])]))
        if algorithm.can_yield(state):
            rested.append(i)
        if i < 10:
            assert not levels
            assert not algorithm.can_yield(state)  # a climb takes longer
    assert 2 < len(rested) < 100


def test_theta_is_how_often_options_occur_among_the_members():
    algorithm = P3(Categorical(4, 3).within(1000))  # margins out of the way
    _, state = asked(algorithm, 0, rugged, 60)
    points = np.array([x for level in state.levels for x in level.points])
    counts = np.stack([(points == k).sum(axis=0) for k in range(3)], axis=1)
    expected = (counts + 1 / 3) / (len(points) + 1)
    np.testing.assert_allclose(state.theta.reshape(4, 3), expected, rtol=0, atol=1e-12)
    assert algorithm.init().theta.tolist() == algorithm.family.initial().tolist()


@pytest.mark.parametrize("back", [back for size in (1, 2) for back in itertools.combinations(range(3), size)])
def test_those_given_up_are_as_bad_as_failures(back):
    """Each value goes to the climber that asked for it, and the others are told the worst."""
    algorithm = P3(Bernoulli(10), 3)
    _, state = asked(algorithm, 2, rugged, 20)
    x, values = state.pending, np.array([rugged(row) for row in state.pending.tolist()], dtype=float)
    rows = list(back)
    partly = algorithm.tell(state.copy(), x[rows], values[rows])
    whole = algorithm.tell(state.copy(), x, np.where(np.isin(range(3), rows), values, math.nan))
    assert partly.told == whole.told
    assert partly.pending.tolist() == whole.pending.tolist()


# What is refused


@pytest.mark.parametrize(
    "space", [kl.Integer(1, 9), kl.Float(0, 1), kl.Space(bits=kl.Binary(3), number=kl.Float(0, 1, n=2))]
)
def test_numbers_cannot_be_exchanged(space):
    with pytest.raises(TypeError, match=r"^family: expected bits, choices and subsets"):
        kl.algorithms.p3(space)


@pytest.mark.parametrize(("climbers", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("2", TypeError)])
def test_climbers_are_counted(climbers, error):
    with pytest.raises(error, match=r"^climbers\b"):
        P3(Bernoulli(3), climbers)


def test_at_least():
    assert kl.algorithms.p3(kl.Binary(5)).at_least(4) == P3(Bernoulli(5), 4)
    assert P3(Bernoulli(5), 4).at_least(2).climbers == 4


def test_a_pyramid_that_knows_every_point_does_not_search_for_new_ones():
    p3 = P3(Bernoulli(2), climbers=50)
    state, stream = p3.init(), Stream(0)
    for i in range(40):
        x = p3.ask(state, stream)
        before = state.individuals
        state = p3.tell(state, x, x.sum(axis=1).astype(float))
        if i >= 20:
            assert len(state.values) == 4
            assert state.individuals - before <= 50
