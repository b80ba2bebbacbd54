"""The guided climb before the portfolio: which points it evaluates, when it ends, and where it is used."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest

import conftest
import knobless as kl
from conftest import check_continuations
from knobless.core.guided_portfolio import LENGTH
from knobless.core.linear import FEWEST_FIT
from knobless.core.rng import Stream

SPACE = kl.Space(a=kl.Choice(*range(5), n=5), b=kl.Binary(3))
FAMILY = SPACE.family


def cost(x):
    """Sums of products, so that variables interact; few values are equal."""
    weights = np.sqrt(np.arange(2.0, 2.0 + x.shape[1]))
    return (x * weights).sum(axis=1) % 3.0 + (x[:, 0] * x[:, 1] - 3.0) ** 2


steps = partial(conftest.steps, cost)


def test_a_climb_evaluates_all_neighbors_of_the_best_point_before_anything_else():
    algorithm, evaluated = kl.portfolio(SPACE), {}
    for state, x in steps(algorithm):
        if state.rest is not None:
            break
        assert len(x) == 1
        if len(evaluated) >= FEWEST_FIT:
            left = set(neighbors(min(evaluated, key=evaluated.get))) - evaluated.keys()
            assert not left or x[0].tobytes() in left
        again = x[0].tobytes() in evaluated  # which ends the climb
        evaluated[x[0].tobytes()] = float(cost(x)[0])
    assert again or len(evaluated) == LENGTH
    best = min(evaluated, key=evaluated.get)
    assert state.x0.tobytes() == best
    assert x[0].tobytes() == best  # where P3 starts


def neighbors(key):
    x = np.frombuffer(key, FAMILY.dtype)
    for i, options in enumerate(FAMILY.options.tolist()):
        for option in set(range(options)) - {int(x[i])}:
            y = x.copy()
            y[i] = option
            yield y.tobytes()


@pytest.mark.parametrize("n", [5, 20, LENGTH + 20])
def test_copies_and_saved_states_continue_as_the_original(n):
    algorithm, rng = kl.portfolio(SPACE), Stream(1)
    state, _ = next(itertools.islice(steps(algorithm, rng=rng), n, None))
    assert (state.rest is None) == (n < LENGTH)
    check_continuations(cost, algorithm, state, 10)


def test_several_points_of_an_iteration_are_different_neighbors():
    algorithm = kl.portfolio(SPACE).at_least(6)
    for state, x in steps(algorithm):  # noqa: B007
        if state.linear.n >= 2 * FEWEST_FIT:
            break
    near = state.linear.best.tobytes()
    assert len(np.unique(x, axis=0)) == 6
    assert {row.tobytes() for row in x} <= set(neighbors(near))
    apart = [algorithm.ask(state, Stream(7), size, start) for start, size in ((0, 1), (1, 3), (4, 2))]
    assert (np.concatenate(apart) == x).all()


def test_it_starts_at_x0():
    x0 = np.array([1, 0, 1, 4, 3, 2, 1, 0], FAMILY.dtype)
    algorithm = kl.portfolio(SPACE)
    _, x = next(steps(algorithm, state=algorithm.init(None, x0)))
    assert (x == x0).all()


@pytest.mark.parametrize("value", [math.nan, 1.0])
def test_values_without_order_do_not_end_the_search(value):
    algorithm, seen = kl.portfolio(SPACE), set()
    for state, x in conftest.steps(lambda x: np.full(len(x), value), algorithm):
        if state.linear.n == 40:
            break
        seen.add(x[0].tobytes())
    assert state.rest is None
    assert len(seen) == 40


def test_small_spaces_are_exhausted():
    space = kl.Space(a=kl.Choice(*"abc"), b=kl.Choice(*"abcd"), c=kl.Binary(2))
    seen = []
    result = kl.minimize(
        lambda x: seen.append(str(x)) or len(set(str(x))), space, budget=500, rng=0, deterministic=True
    )
    assert result.status == kl.Status.EXHAUSTED
    assert len(seen) == len(set(seen)) == 48


def test_fixed_variables_keep_their_values():
    opt = kl.Optimizer(SPACE, rng=0, deterministic=True, fixed={"b": [1, 0, 1]})
    points = []
    for _ in range(40):
        batch = opt.ask()
        points += [each.x for each in batch]
        opt.tell(batch, [float(sum(each.x["a"])) for each in batch])
    assert all(list(each["b"]) == [1, 0, 1] for each in points)
    assert len({str(each) for each in points}) == len(points)


def test_additive_choices_need_fewer_evaluations_than_a_climb():
    def evaluations(algorithm, seed):
        target = np.random.default_rng(seed).integers(6, size=8)
        space = kl.Choice(*range(6), n=8)
        fun = lambda x: float((x != target).sum())  # noqa: E731
        options = {"target": 0, "rng": seed, "deterministic": True}
        return kl.minimize(fun, space, budget=300, algorithm=algorithm, **options).nfev

    guided = kl.portfolio(kl.Choice(*range(6), n=8))
    both = [[evaluations(each, seed) for seed in range(3)] for each in (guided, guided.rest)]
    assert np.median(both[0]) <= 0.75 * np.median(both[1])


@pytest.mark.parametrize(
    ("space", "type_"),
    [
        (kl.Binary(60), kl.QuadraticPortfolio),
        (kl.Choice(*range(3), n=26), kl.Portfolio),
        (kl.Space(a=kl.Choice(*"abc"), b=kl.Subset(5, 2)), kl.Portfolio),
    ],
)
def test_the_portfolio_starts_at_once_with_bits_alone_subsets_or_many_parameters(space, type_):
    assert isinstance(kl.portfolio(space), type_)


def test_what_is_refused():
    portfolio, other = kl.portfolio(SPACE), kl.portfolio(kl.Choice(*"abc", n=3))
    with pytest.raises(ValueError, match=r"^rest: expected a portfolio for the family of the linear search"):
        kl.GuidedPortfolio(portfolio.linear, other.rest)
    large = kl.Choice(*"abc", n=26)
    with pytest.raises(ValueError, match=r"^linear: expected at most 50 free parameters, got 52"):
        kl.GuidedPortfolio(kl.linear_thompson(large), kl.portfolio(large))
    subset = kl.Subset(5, 2)
    with pytest.raises(TypeError, match=r"^linear: expected a family of bits and choices only"):
        kl.GuidedPortfolio(kl.linear_thompson(subset), kl.portfolio(subset))
