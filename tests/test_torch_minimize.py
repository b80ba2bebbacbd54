"""`knobless.torch.minimize` is `knobless.minimize` in tensors: the same run for a seed, the same results and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import knobless as kl
from conftest import quick_if
from knobless.algorithms import cga, p3

torch = pytest.importorskip("torch", reason="knobless.torch needs torch: pip install 'knobless[torch]'")

from knobless.torch import (  # noqa: E402
    Separable,
    maximize,
    minimize,
    tensor_run,
    weighted_sum,
)
from knobless.torch import samples as samples_module  # noqa: E402

SPACES = {
    "bit": kl.Binary(1),
    "bits": kl.Binary(37),
    "prior": kl.Binary(10, p=0.3),
    "choice": kl.Choice(*"abc"),
    "choices": kl.Choice(*"abcde", n=6),
    "product": kl.Space(a=kl.Binary(5), b=kl.Choice(*range(3), n=3), c=kl.Choice(*range(7)), d=kl.Choice("only")),
    "nested": kl.Space(a=kl.Space(b=kl.Choice("x", "y")), c=[kl.Choice(*range(4)), kl.Binary(3)]),
}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def leaves(points):
    """The entries of points in their order, with one column each."""
    if isinstance(points, dict):
        points = list(points.values())
    if isinstance(points, list):
        return torch.cat([leaves(each) for each in points], 1)
    return points.double().reshape(len(points), -1)


def rough(columns):
    """A value for a point, from the code of each variable: with ties, NaN and infinite values."""
    weights = torch.arange(1.0, columns.shape[1] + 1, dtype=torch.float64)
    f = (columns * weights).sum(1) % 11
    f[f == 7] = torch.nan
    f[f == 8] = torch.inf
    return f


def in_codes(space):
    """The same objective for `knobless.minimize`, which gets one point with the options themselves."""
    space = kl.Space.of(space)
    order = [i for c in space.columns() for i in (range(c.where.start, c.where.stop) or [None] * (c.variable.n or 1))]

    def fun(x):
        code = space.encode(x)
        return float(rough(torch.tensor([[0.0 if i is None else float(code[i]) for i in order]]))[0])

    return fun


def same(ours, theirs):
    for name in ("fun", "violation", "observed_fun", "nfev", "nit", "success", "status", "failures", "failure"):
        a, b = getattr(ours, name), getattr(theirs, name)
        assert a == b or (a != a and b != b), name
    assert ours.message == theirs.message
    for name in ("x", "observed_x", "mode"):
        assert repr(getattr(ours, name)) == repr(getattr(theirs, name)), name
    assert (ours.deterministic, ours.fun_std) == (theirs.deterministic, theirs.fun_std)
    a, b = np.array([[info[:-1] for info in each.history] for each in (ours, theirs)]).reshape(2, -1, 9)
    np.testing.assert_array_equal(a[:, :4], b[:, :4])  # iterations, evaluations, best, λ
    np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize(
    "recipe", [quick_if(each is kl.pbil_lambda, each) for each in (kl.pbil_lambda, kl.pbil_epsilon, cga)]
)
def test_a_run_is_that_of_the_core(name, recipe):
    space = SPACES[name]
    how = {"budget": 150, "rng": 0, "algorithm": recipe(space)}
    same(minimize(lambda x: rough(leaves(x)), space, **how), kl.minimize(in_codes(space), space, **how))


@pytest.mark.parametrize(
    "how",
    [
        {"budget": 7},
        {"budget": 1},
        {"budget": 500, "target": 1.0},
        {"budget": 500, "target": 0.0, "stall": 40},
        {"budget": 500, "stall": 12},
        {"budget": 500, "stall": 1},
        {"budget": 500, "target": 3.0, "stall": 3},
        {"budget": 300, "x0": [1] * 37},
        {"budget": 300, "x0": [1] * 37, "target": 10.0},
        {"budget": 300, "batch": 16},
        {"budget": 300, "known": [([0] * 37, 0.25), ([1] * 37, math.nan), ([1] * 37, 3.0)], "stall": 100},
        {"budget": 300, "known": [([0] * 37, 0.25)], "target": 0.5},
    ],
)
def test_stopping_rules_and_initial_points_are_those_of_the_core(how):
    space = SPACES["bits"]
    for seed in range(3):
        theirs = kl.minimize(in_codes(space), space, rng=seed, algorithm=kl.pbil_lambda(space), **how)
        same(minimize(lambda x: rough(leaves(x)), space, rng=seed, **how), theirs)


def test_maximization_is_minimization_of_the_negated_objective():
    space = SPACES["product"]
    how = {"budget": 400, "rng": 1, "target": 9.5}
    down = minimize(lambda x: -rough(leaves(x)), space, budget=400, rng=1, target=-9.5)
    up = maximize(lambda x: rough(leaves(x)), space, **how)
    assert (up.fun, up.nfev, up.nit, repr(up.x)) == (-down.fun, down.nfev, down.nit, repr(down.x))
    assert [info.best for info in up.history] == [-info.best for info in down.history]
    same(up, kl.maximize(in_codes(space), space, algorithm=kl.pbil_lambda(space), **how))


@pytest.mark.parametrize("name", ["bits", "product"])
def test_trials_side_by_side_are_single_runs(name):
    space = SPACES[name]
    how = {"budget": 250, "target": 1.0, "stall": 60}
    many = minimize(lambda x: rough(leaves(x)), space, trials=5, rng=4, **how)
    assert len({each.nfev for each in many}) > 1
    for each, rng in zip(many, np.random.default_rng(4).spawn(5), strict=True):
        same(each, minimize(lambda x: rough(leaves(x)), space, rng=rng, **how))


def test_chunks_of_stored_samples_change_nothing(monkeypatch):
    space = SPACES["product"]
    whole = minimize(lambda x: rough(leaves(x)), space, budget=400, trials=2, rng=0, batch=9)
    sizes = []

    def counted(x):
        f = rough(leaves(x))
        sizes.append(len(f))
        return f

    monkeypatch.setattr(samples_module, "EVALUATED_AT_ONCE", 60)
    monkeypatch.setattr(samples_module, "DRAWN_AT_ONCE", 50)
    for ours, theirs in zip(minimize(counted, space, budget=400, trials=2, rng=0, batch=9), whole, strict=True):
        same(ours, theirs)
    assert max(sizes) <= 6


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [1, 5, 16, 100, (1, 2, 3, 31), (37,)])
@pytest.mark.parametrize("chunk", [10, 2**22])
def test_a_separable_objective_is_evaluated_in_tiles_with_the_same_run(monkeypatch, tiles, chunk):
    weights = torch.arange(37.0) - 11
    seen = []

    def partial(points, columns):
        assert points.dtype == torch.int8
        seen.append(points.shape[1])
        assert points.shape[1] == len(range(*columns.indices(37)))
        return points.double() @ weights.double()[columns]

    monkeypatch.setattr(samples_module, "DRAWN_AT_ONCE", chunk)
    fun = Separable(partial, tiles, total=lambda sums: sums**2)
    how = {"budget": 600, "trials": 2, "rng": 5, "target": 0.0}
    whole = minimize(lambda x: (x.double() @ weights.double()) ** 2, kl.Binary(37), **how)
    for ours, theirs in zip(minimize(fun, kl.Binary(37), **how), whole, strict=True):
        same(ours, theirs)
    assert set(seen) == set(tiles if isinstance(tiles, tuple) else [min(tiles, 37), 37 % tiles or tiles])
    x = torch.randint(2, (4, 37), dtype=torch.int8)
    assert torch.equal(fun(x), (x.double() @ weights.double()) ** 2)
    negated = Separable(partial, tiles, total=lambda sums: -(sums**2))
    assert maximize(negated, kl.Binary(37), **how)[1].nfev == whole[1].nfev


def test_a_linear_objective_is_a_weighted_sum():
    weights = torch.tensor([3.0, -1.0, 2.0, -5.0, 0.5])
    result = minimize(weighted_sum(weights, total=lambda sums: sums + 10), kl.Binary(5), budget=200, rng=0)
    assert (result.fun, result.x.tolist()) == (4.0, [0, 1, 0, 1, 0])


def test_the_callback_gets_every_iteration_and_can_stop_the_run():
    infos = []

    def callback(info):
        infos.append(info)
        if info.iteration == 20:
            raise StopIteration

    result = minimize(lambda x: x.sum(1), kl.Binary(30), budget=5000, rng=0, callback=callback)
    assert [info.iteration for info in infos] == list(range(1, 21))
    assert (result.status, result.nit, result.nfev) == (kl.Status.CALLBACK, 20, infos[-1].nfev)
    assert infos[-1].theta.shape == (30,)
    assert [info[:-1] for info in infos] == [info[:-1] for info in result.history]
    assert infos[0].theta.tolist() != infos[-1].theta.tolist()
    with pytest.raises(ZeroDivisionError):
        minimize(lambda x: x.sum(1), kl.Binary(30), budget=50, callback=lambda info: 1 / 0)
    rounds = []
    minimize(lambda x: x.sum(1), kl.Binary(30), budget=50, trials=3, rng=0, callback=rounds.append)
    assert {len(each) for each in rounds} == {3}


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"target": 2.0}, {"stall": 60}, {"trials": 3, "stall": 90, "x0": [1] * 900}])
@pytest.mark.parametrize("recipe", [kl.pbil_lambda, kl.pbil_epsilon])
def test_runs_that_are_read_every_few_iterations_are_the_same(monkeypatch, how, recipe):
    """As on a GPU: with more rows than λ, and iterations after the end."""
    space, sizes = kl.Binary(900), []

    def counted(x):
        sizes.append(len(x))
        return (x.sum(1) - 440).abs()

    how = {"budget": 900, "rng": 3, "algorithm": recipe(space)} | how
    each = [minimize(counted, space, **how)]
    monkeypatch.setattr(tensor_run, "reads_at_once", lambda device: False)
    calls = len(sizes)
    each.append(minimize(counted, space, **how))
    assert calls < len(sizes) - calls <= calls + 7
    assert max(sizes[calls:]) <= 1.7 * max(sizes[:calls])
    for ours, theirs in zip(*(found if isinstance(found, list) else [found] for found in each), strict=True):
        same(ours, theirs)


def test_progress_is_shown_in_evaluations_of_all_trials(capsys):
    minimize(lambda x: x.sum(1), kl.Binary(30), budget=50, trials=2, rng=0, progress=True)
    assert "100/100" in capsys.readouterr().err


@pytest.mark.slow
def test_long_runs_have_a_thinned_history():
    space = kl.Binary(4)
    how = {"budget": 5000, "rng": 0, "algorithm": cga(space)}
    same(minimize(lambda x: rough(leaves(x)), space, **how), kl.minimize(in_codes(space), space, **how))


def test_a_timeout_ends_the_run_and_all_failures_too():
    result = minimize(lambda x: x.sum(1), kl.Binary(20), timeout=1e-9, rng=0)
    assert (result.status, result.nit) == (kl.Status.TIMEOUT, 1)
    with pytest.warns(RuntimeWarning, match="Most evaluations failed"):
        result = minimize(lambda x: x.sum(1) * torch.nan, kl.Binary(20), budget=1000, rng=0)
    assert result.status == kl.Status.FAILED
    assert (result.nfev, result.x, result.success) == (100, None, False)
    assert math.isnan(result.fun)


def test_points_are_given_in_the_shape_of_the_space():
    seen = []

    def fun(x):
        seen.append(x)
        return x["a"]["b"] + x["c"][1].sum(1)

    minimize(fun, SPACES["nested"], budget=2, rng=0)
    x = seen[0]
    assert x["a"]["b"].shape == x["c"][0].shape == (2,)
    assert x["c"][1].shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fun": 3}, TypeError, "fun: expected a function, got 3"),
        ({"budget": None}, TypeError, "budget: expected a number of evaluations, or a timeout, got neither"),
        ({"budget": 0}, ValueError, "budget: expected an integer of at least 1, got 0"),
        ({"trials": 0}, ValueError, "trials: expected an integer of at least 1, got 0"),
        ({"callback": 3}, TypeError, "callback: expected a function, got 3"),
        ({"progress": 3}, TypeError, "progress: expected True or False, got 3"),
        ({"seed": 3}, TypeError, "unexpected keyword argument 'seed': use rng"),
        ({"space": kl.Float(0, 1)}, TypeError, r"space: expected bits and choices alone .*, got Float\(0.0, 1.0\)$"),
        ({"device": "nowhere"}, ValueError, "device: expected an available device, got 'nowhere': "),
        ({"workers": 2}, TypeError, "argument 'workers': not available for objectives in tensors"),
        (
            {"space": kl.Space(a=kl.Choice(*"abc"), b=kl.Binary(2).when(a="b"))},
            TypeError,
            "none of them conditional, got a conditional variable for b$",
        ),
        ({"space": kl.Subset(5, 2)}, TypeError, "space: expected bits and choices alone"),
        (
            {"algorithm": p3(kl.Binary(4))},
            TypeError,
            "algorithm: expected one of pbil_lambda, pbil_epsilon, .* got a value of type P3",
        ),
        ({"algorithm": kl.pbil_lambda(kl.Binary(5))}, ValueError, "algorithm: expected one made for this space"),
        ({"fun": lambda x: 1.0}, TypeError, "objective: expected a tensor of 2 numbers, got 1.0 of type float"),
        ({"fun": lambda x: x}, TypeError, r"objective: expected a tensor of 2 numbers, got one of shape \[2, 4\]"),
        ({"fun": Separable(lambda x, columns: x, 2)}, TypeError, "partial: expected a tensor of 2 numbers"),
        (
            {"fun": Separable(lambda x, columns: x.sum(1), (3, 2))},
            ValueError,
            "tiles: expected widths that add up to 4",
        ),
        ({"fun": weighted_sum(torch.ones(4)), "space": kl.Choice(*"abc")}, TypeError, "space of a Separable objective"),
        ({"fun": weighted_sum(torch.ones(5))}, ValueError, "weights: expected one per variable, 4, got 5"),
    ],
)
def test_errors_name_the_argument(arguments, error, message):
    given = {"fun": lambda x: x.sum(1), "space": kl.Binary(4), "budget": 10} | arguments
    with pytest.raises(error, match=message):
        minimize(given.pop("fun"), given.pop("space"), **given)


def test_errors_of_the_objective_and_of_its_parts_are_raised():
    with pytest.raises(ZeroDivisionError):
        minimize(lambda x: 1 / 0, kl.Binary(4), budget=10)
    with pytest.raises(TypeError, match="partial: expected a function, got 3"):
        Separable(3)
    with pytest.raises(ValueError, match="tiles: expected an integer of at least 1, got 0"):
        Separable(lambda x, columns: x.sum(1), 0)
    with pytest.raises(TypeError, match="weights: expected a tensor of one dimension"):
        weighted_sum([1.0, 2.0])
