"""Conditional families and the search of branches: exact, by enumerating small trees."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conftest import examples, frozen, saved_and_restored
from knobless import Choice, Float, Integer, Space, pbil_lambda, search
from knobless.algorithms import Search, Stage, p3, pbil_elitist
from knobless.core.branches import Branches
from knobless.core.catalog import PER_BRANCH, PartMembers, in_branches
from knobless.core.conditional import Condition, Conditional
from knobless.core.rng import Stream
from knobless.families import Axis, Bernoulli, Categorical, Gaussian, Product


def one(k):
    return Bernoulli(1) if k == 2 else Categorical(1, k)


@st.composite
def trees(draw, most=5, several=False):
    """A family of choices: each column depends on at most one earlier column, or on several."""
    options = draw(st.lists(st.integers(2, 3), min_size=2, max_size=most))
    conditions = []
    for column in range(1, len(options)):
        parents = draw(st.lists(st.integers(0, column - 1), max_size=2 if several else 1, unique=True))
        for parent in parents:
            values = draw(st.sets(st.integers(0, options[parent] - 1), min_size=1, max_size=options[parent] - 1))
            conditions.append(Condition(column, parent, tuple((v - 0.5, v + 0.5) for v in sorted(values))))
    assume(conditions)
    parents = sorted({each.parent for each in conditions})
    branches = tuple((parent, tuple(map(float, range(options[parent])))) for parent in parents)
    family = Conditional(Product(tuple(map(one, options))), tuple(conditions), branches)
    assume(all(codes for needs in family.requirements for codes in needs.values()))  # they can hold together
    return family


def is_active(family, x, column):
    """The definition: all conditions hold, and their parents are active."""
    own = [each for each in family.conditions if each.column == column]
    return all(
        is_active(family, x, parent) and any(low <= x[parent] < high for low, high in intervals)
        for _, parent, intervals in own
    )


def distribution(family, theta):
    """All points of the flat family with their probabilities."""
    each = [family.flat.marginal(theta, i).p for i in range(family.variables)]
    x = np.array(list(itertools.product(*map(range, family.options.tolist()))), dtype=family.dtype)
    return x, np.array([math.prod(p[v] for p, v in zip(each, row, strict=True)) for row in x])


def some_theta(family, seed):
    rng = np.random.default_rng(seed)
    theta = family.initial()
    for _ in range(3):
        x = family.flat.sample(theta, 1, rng)
        theta = family.move(theta, rng.uniform(0, 0.5) * (family.flat.statistics(x)[0] - theta))
    return theta


@given(trees(several=True))
def test_a_column_is_active_if_its_conditions_hold_and_its_parents_are_active(family):
    x, _ = distribution(family, family.initial())
    expected = [[is_active(family, row, column) for column in range(family.variables)] for row in x]
    assert (family.active(x) == expected).all()
    points = family.canonical(x)
    assert (family.active(points) == expected).all()  # the code of an inactive column has no effect
    assert (points[family.active(x)] == x[family.active(x)]).all()
    assert (points[~family.active(x)] == 0).all()


@given(trees(several=True), st.integers(0, 99))
def test_entropy_and_the_expected_number_of_active_parameters(family, seed):
    theta = some_theta(family, seed)
    x, p = distribution(family, theta)
    points = {}
    for row, probability in zip(family.canonical(x), p, strict=True):
        points[row.tobytes()] = points.get(row.tobytes(), 0.0) + probability
    each = np.array([*points.values()])
    assert family.entropy(theta) == pytest.approx(-(each @ np.log(each)))
    assert family.active_dim(theta) == pytest.approx(p @ (family.active(x) * (family.options - 1)).sum(axis=1))


@given(trees(most=4, several=True), st.integers(0, 99))
def test_the_gradient_of_uninformative_values_has_mean_zero_and_a_known_length(family, seed):
    theta = frozen(some_theta(family, seed))
    x, p = distribution(family, theta)
    w = np.array([0.5, -0.5])
    mean, length = np.zeros(len(theta)), 0.0
    for (a, p_a), (b, p_b) in itertools.product(zip(x, p, strict=True), repeat=2):
        gradient = family.gradient(theta, np.array([a, b]), w)
        mean += p_a * p_b * gradient
        length += p_a * p_b * (family.whiten(theta, gradient) ** 2).sum()
    assert mean == pytest.approx(0.0, abs=1e-9)
    assert length == pytest.approx(family.active_dim(theta) * (w @ w))


@given(trees(), st.integers(0, 99))
def test_the_update_does_not_move_inactive_variables(family, seed):
    algorithm = pbil_elitist(family)
    state = algorithm.init(some_theta(family, seed))
    stream = Stream(seed)
    for _ in range(5):
        x = algorithm.ask(state, stream, 4)
        f = np.random.default_rng(seed).random(4)
        after = algorithm.tell(state, frozen(x), frozen(f))
        used = family.active(np.concatenate([x, state.elite.x])).any(axis=0)
        for column in np.flatnonzero(~used):
            own = list(family.parameters(int(column)))
            assert (after.theta[own] == state.theta[own]).all()
        state = after


@given(trees(), st.integers(0, 99))
def test_minimizer(family, seed):
    w = np.random.default_rng(seed).normal(size=(5, len(family.initial())))
    x = family.canonical(distribution(family, family.initial())[0])
    least = (family.features(x) @ w.T).min(axis=0)
    found = family.minimizer(w)
    assert (family.canonical(found) == found).all()
    assert (family.features(found) * w).sum(axis=1) == pytest.approx(least)


@given(trees(several=True), st.integers(0, 99))
def test_points_are_packed_in_a_fixed_width(family, seed):
    x = family.sample(family.initial(), 7, np.random.default_rng(seed))
    assert (family.unpack(family.pack(x)) == x).all()


def test_conditions_on_a_number():
    # A number is active where the code of the first one is below ½, which has probability ½ at first.
    flat = Gaussian((Axis(), Axis()))
    family = Conditional(flat, (Condition(1, 0, ((-math.inf, 0.5),)),))
    theta = family.initial()
    assert family.active_dim(theta) == pytest.approx(3.0)
    assert family.dim == 3
    x = np.array([[0.4, 0.9], [0.5, 0.9]])
    assert (family.canonical(x) == [[0.4, 0.9], [0.5, 0.5]]).all()
    assert family.deviations(theta, x)[1, 1::2].tolist() == [0.0, 0.0]


def test_p3_does_not_take_conditional_variables():
    family = Conditional(Bernoulli(2), (Condition(1, 0, ((0.5, 1.5),)),), ((0, (0.0, 1.0)),))
    with pytest.raises(TypeError, match="conditional"):
        p3(family)


# Branches.


@given(trees(several=True), st.integers(0, 99))
def test_the_part_of_a_combination_has_its_active_columns(family, seed):
    branches = Branches(family)
    for row in family.sample(family.initial(), 20, np.random.default_rng(seed)):
        combination = branches.combination_of(row)
        part = branches.part(combination)
        active = np.flatnonzero(family.active(row[None])[0])
        assert [*part.columns] == [column for column in active if column not in branches.columns]
        assert len(branches.contained(combination)) == sum(column in branches.columns for column in active)
        if part.family is not None:
            assert (part.embed(row[None][:, part.columns]) == row).all()
            assert part.family.initial() == pytest.approx(family.initial()[part.parameters], abs=0.2)
            theta, inner = part.family.initial(), row[None][:, part.columns]
            inside = part.family.statistics(inner)[0] - theta
            assert (family.flat.statistics(row[None])[0][part.parameters] - theta == inside).all()


@given(trees(several=True), st.integers(0, 99))
def test_combinations(family, seed):
    branches = Branches(family)
    rng = np.random.default_rng(seed)
    for branch, each in enumerate(branches.each):
        best = rng.random(len(branches.each))
        combination = branches.combine(branch, best, rng.random((len(branches.columns), 2)))
        assert branch in branches.contained(combination)
        assert branches.has(combination)
        greedy = branches.combine(branch, best, np.ones((len(branches.columns), 2)))
        needs = family.requirements[branches.columns[each.node]]
        for other in branches.contained(greedy):
            node = branches.each[other].node
            if node != each.node and branches.columns[node] not in needs:
                assert best[other] == min(best[b] for b in branches.of_node[node])


def noisy(family):
    """Return a search in branches for noisy objectives, whose parts have one member, the loop."""
    return in_branches(family, PartMembers(deterministic=False), deterministic=False)


SEARCHES = {
    "recommended": search,
    "constrained": lambda family: search(family, constrained=True),
    "without a linear model": lambda family: in_branches(family, PartMembers()),
    "noisy": noisy,
}
every_search = pytest.mark.parametrize("make", SEARCHES.values(), ids=SEARCHES)


def searched(algorithm, fun, iterations, seed=0):
    """Yield the state before each iteration, the points and their values."""
    state, stream = algorithm.init(), Stream(seed)
    for _ in range(iterations):
        x = algorithm.ask(state, stream)
        f = np.array([fun(row) for row in x])
        yield state, x, f
        state = algorithm.tell(state, frozen(x), frozen(f))


def value(row):
    return float(np.sin(row @ (1.0 + np.arange(len(row)))))


@every_search
@given(trees(several=True))
def test_the_points_of_a_turn_have_one_combination_and_are_canonical(make, family):
    algorithm = make(family)
    branches = algorithm.branching.branches
    for state, x, _ in searched(algorithm, value, 20):
        assert len(x) == algorithm.lam(state)
        assert (family.canonical(x) == x).all()
        if state.begun:
            assert {branches.combination_of(row) for row in x} == {state.turns.combination}
            assert state.turns.branch in branches.contained(state.turns.combination)


@given(trees(most=4), st.integers(0, 9))
def test_every_point_of_a_small_tree_is_found(family, seed):
    points = {row.tobytes() for row in family.canonical(distribution(family, family.initial())[0])}
    found = set()
    for _, x, _ in searched(search(family), value, 1000, seed):
        found.update(row.tobytes() for row in x)
        if found == points:
            break
    assert found == points


@every_search
@given(trees(several=True), st.integers(0, 9))
def test_a_copy_is_a_value(make, family, seed):
    algorithm = make(family)
    runs = [(state.copy(), x, f) for state, x, f in searched(algorithm, value, 15, seed)]
    for (state, x, f), (after, *_) in itertools.pairwise(runs):
        again = algorithm.tell(state, x, f)
        assert (again.theta == after.theta).all()
        assert (again.n, again.stage, again.turns is None) == (after.n, after.stage, after.turns is None)
        if after.begun:
            assert again.turns[1:] == after.turns[1:]


@pytest.mark.slow
@every_search
@examples(5)
@given(trees(several=True), st.integers(0, 9))
def test_a_state_is_restored_from_its_data(make, family, seed):
    algorithm = make(family)
    for state, x, f in searched(algorithm, value, 20, seed):
        restored = saved_and_restored(algorithm, state)
        assert (algorithm.ask(restored, Stream(1)) == algorithm.ask(state.copy(), Stream(1))).all()
        after = [algorithm.tell(each, x, f) for each in (restored, state.copy())]
        assert algorithm.data(after[0]) == algorithm.data(after[1])


@pytest.mark.slow
def test_shares_of_the_turns():
    # Three branches of one number each whose best values do not change: 6/11, 3/11 and 2/11 of the evaluations.
    flat = Product((Categorical(1, 3), Gaussian((Axis(),) * 3)))
    conditions = tuple(Condition(i + 1, 0, ((i - 0.5, i + 0.5),)) for i in range(3))
    family = Conditional(flat, conditions, ((0, (0.0, 1.0, 2.0)),))
    *_, (state, *_) = searched(noisy(family), lambda row: row[0], 3000)
    n = np.array(state.turns.n)
    assert n.sum() >= 3000
    assert n / n.sum() == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.02)


def test_the_stages_end_after_a_number_of_evaluations_per_branch():
    family = Conditional(Bernoulli(3), (Condition(1, 0, ((0.5, 1.5),)),), ((0, (0.0, 1.0)),))
    counts = [state.n for state, *_ in searched(noisy(family), value, 30) if not state.begun]
    assert max(counts) < 2 * PER_BRANCH


WIDE = Space(n=Integer(1, 100), x=Float(0, 1).when(n=range(50, 101)))  # has conditions, but no branches


@pytest.mark.parametrize("family", [Bernoulli(3), WIDE.family], ids=["no conditions", "no branches"])
def test_a_search_without_members_needs_branches(family):
    with pytest.raises(ValueError, match=r"^members: expected at least one algorithm, got none"):
        Search(stages=(Stage(pbil_lambda(family), 10),), parts=PartMembers())
    if isinstance(family, Conditional):
        assert in_branches(family, PartMembers()) == Search((pbil_elitist(family),))


def test_branches_of_an_integer_have_the_best_values_of_the_loop():
    space = Space(n=Integer(1, 3), x=Float(0, 1).when(n=2), y=Float(0, 1).when(n=(2, 3)))
    algorithm, rng = noisy(space.family), np.random.default_rng(0)
    x = algorithm.ask(algorithm.init(), rng, 100)
    f = np.array([float(each["n"]) for each in space.decode_each(x)])
    assert algorithm.tell(algorithm.init(), x, f).turns.best == (1.0, 2.0, 3.0)


def test_a_variable_below_one_without_branches_has_none():
    space = Space(
        n=Integer(1, 100),
        kind=Choice(1, 2).when(n=range(50, 101)),
        x=Float(0, 1).when(kind=2),
        a=Choice(1, 2, 3),
        y=Float(0, 1).when(a=2),
    )
    algorithm = search(space)
    assert [space.names[column] for column in algorithm.branching.branches.columns] == ["a"]
    for _, x, _ in searched(algorithm, value, 60):
        assert (space.family.canonical(x) == x).all()


def test_points_of_other_combinations_are_learned_from_in_their_own():
    space = Space(a=Choice(0, 1, 2), x=Float(0, 1).when(a=0), y=Float(0, 1).when(a=1))
    algorithm, rng = noisy(space.family), np.random.default_rng(0)
    state = algorithm.init()
    while not state.begun:
        x = algorithm.ask(state, rng)
        state = algorithm.tell(state, x, x[:, 0] + 1.0)
    x = np.array([space.encode({"a": 1, "y": y}) for y in (0.1, 0.2, 0.8, 0.9)] + [space.encode({"a": 2})])
    after = algorithm.tell(state, x, np.array([4.0, 3.0, 2.0, 1.0, 0.5]))
    columns = {name: i for i, name in enumerate(space.names)}
    assert (np.array(after.turns.n) - state.turns.n).tolist() == [0, 4, 1]
    assert after.turns.best[1:] == (1.0, 0.5)
    before, now = (algorithm.family.marginal(each.theta, columns["y"]).mean for each in (state, after))
    assert now > before
    assert algorithm.family.marginal(after.theta, columns["x"]) == algorithm.family.marginal(state.theta, columns["x"])
