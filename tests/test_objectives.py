"""Several objectives: what a run returns, and that every way through a run gives the same front."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

import knobless as kl
from knobless.algorithms import P3
from knobless.core.several import Several
from knobless.report.outcomes import Outcomes, attained
from knobless.report.page_data import collect_page_data
from knobless.report.trace import Trace
from knobless.run.objectives import Objectives

NAMES = ("ones", "zeros")
MIXED = kl.Space(
    depth=kl.Integer(1, 3),
    rate=kl.Float(1e-3, 1.0, log=True),
    kind=kl.Choice("a", "b", "c"),
    bits=kl.Binary(4),
    second=kl.Float(0.0, 1.0).when(depth=(2, 3)),
)


def count(x):
    return float(x.sum()), float((1 - x).sum())


def leading_and_trailing(x):
    leading = int(np.cumprod(x).sum())
    return -float(leading), -float(np.cumprod(1 - x[::-1]).sum())


def mixed(x):
    cost = x["rate"] + x["depth"] + (x["kind"] == "a")
    return {"cost": cost, "gain": x["depth"] - x["rate"] + x.get("second", 0.0) + int(x["bits"].sum())}


def points(evaluations):
    return [np.asarray(each.x).tolist() for each in evaluations]


def same_front(one, other):
    return (one.front.values == other.front.values).all() and (one.front.codes == other.front.codes).all()


def front_by_definition(values):
    return np.array([not any((v <= row).all() and (v < row).any() for v in values) for row in values])


def test_the_front_is_what_no_evaluation_dominates():
    result = kl.minimize(leading_and_trailing, kl.Binary(8), budget=150, objectives=("leading", "trailing"), rng=0)
    values = np.array([each.value for each in result.evaluations])
    assert result.nfev == len(values) == 150
    assert {*map(tuple, result.front.values.tolist())} == {*map(tuple, values[front_by_definition(values)].tolist())}
    assert (np.diff(result.front.values[:, 0]) > 0).all()
    assert (np.diff(result.front.values[:, 1]) < 0).all()
    assert all(leading_and_trailing(each.x) == each.values for each in result.front)
    assert result.fun == result.front[result.front.knee].values == leading_and_trailing(result.x)


def test_one_objective_is_the_run_without_it():
    plain = kl.minimize(lambda x: float((x[:-1] != x[1:]).sum()), kl.Binary(12), budget=60, rng=1)
    named = kl.minimize(
        lambda x: {"a": float((x[:-1] != x[1:]).sum())}, kl.Binary(12), budget=60, rng=1, objectives=("a",)
    )
    assert points(plain.evaluations) == points(named.evaluations)
    assert (plain.fun, plain.nit) == (named.fun, named.nit)
    assert named.front is None
    larger = kl.maximize(lambda x: float(x.sum()), kl.Binary(12), budget=60, rng=1)
    named = kl.minimize(lambda x: (x.sum(),), kl.Binary(12), budget=60, rng=1, objectives={"a": "max"})
    assert points(larger.evaluations) == points(named.evaluations)
    assert larger.fun == named.fun


ALIKE = {
    "bits": (kl.Binary(12), {}),
    "choices": (kl.Choice("a", "b", "c", n=6), {"deterministic": True}),
    "subset": (kl.Subset(8, 3), {"batch": 3}),
    "numbers": (kl.Float(0.0, 1.0, n=2), {}),
    "mixed": (MIXED, {"rng": 5}),
    "noisy": (MIXED, {"deterministic": False}),
    "constraints": (kl.Binary(12), {"constraints": lambda x: x[:3].sum() - 1.0}),
    "fixed": (MIXED, {"fixed": {"kind": "b"}}),
    "algorithm": (kl.Binary(12), {"algorithm": kl.pbil_lambda(kl.Binary(12))}),
}


def numbers_in(x):
    """All numbers and options of a point as numbers."""
    parts = x.values() if isinstance(x, dict) else [x]
    arrays = [np.atleast_1d(np.asarray(part)) for part in parts]
    return np.concatenate([[*map(ord, each)] if each.dtype.kind == "U" else each.astype(float) for each in arrays])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "form"),
    [(case, "plain") for case in ALIKE]
    + [(case, form) for case in ("bits", "mixed") for form in ("violation", "noise")],
)
def test_one_objective_is_the_run_without_it_in_every_kind_of_space(case, form):
    space, options = ALIKE[case]

    def runs():
        g = np.random.default_rng(0)

        def value(x):
            each = numbers_in(x)
            distance = float((each**2).sum() - each[:-1] @ each[1:])
            return distance + g.normal() if form == "noise" else distance

        def plain(x):
            return kl.Constrained(value(x), numbers_in(x)[0] - 0.5) if form == "violation" else value(x)

        def named(x):
            found = plain(x)
            return kl.Constrained((found.value,), found.violation) if form == "violation" else {"a": found}

        return plain, named

    plain = kl.minimize(runs()[0], space, budget=20, **{"rng": 1} | options)
    named = kl.minimize(runs()[1], space, budget=20, objectives=("a",), **{"rng": 1} | options)
    assert [e.value for e in plain.evaluations] == [e.value for e in named.evaluations]
    assert [numbers_in(e.x).tolist() for e in plain.evaluations] == [
        numbers_in(e.x).tolist() for e in named.evaluations
    ]
    assert (plain.fun, plain.nit, plain.deterministic) == (named.fun, named.nit, named.deterministic)


def test_directions():
    small = kl.minimize(count, kl.Binary(6), budget=40, objectives=NAMES, rng=0, deterministic=True)
    signs = {"ones": "min", "zeros": "max"}
    other = kl.maximize(
        lambda x: (x.sum(), -(1 - x).sum()), kl.Binary(6), budget=40, objectives=signs, rng=0, deterministic=True
    )
    assert points(small.evaluations) == points(other.evaluations)
    assert (small.front.values == other.front.values * [1.0, -1.0]).all()
    assert other.front.directions == signs


@pytest.mark.parametrize("form", ["tuple", "list", "dict", "array", "vectorized"])
def test_forms_of_values(form):
    forms = {
        "tuple": count,
        "list": lambda x: list(count(x)),
        "dict": lambda x: dict(zip(reversed(NAMES), reversed(count(x)), strict=True)),
        "array": lambda x: np.array(count(x)),
        "vectorized": lambda x: np.stack([x.sum(axis=1), (1 - x).sum(axis=1)], axis=1),
    }
    result = kl.minimize(
        forms[form],
        kl.Binary(6),
        budget=20,
        objectives=NAMES,
        rng=0,
        deterministic=True,
        vectorized=form == "vectorized",
    )
    expected = kl.minimize(count, kl.Binary(6), budget=20, objectives=NAMES, rng=0, deterministic=True)
    assert points(result.evaluations) == points(expected.evaluations)
    assert same_front(result, expected)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ((1.0, 2.0, 3.0), "objective: expected 2 values, of ones, zeros, got 3"),
        ({"ones": 1.0}, "objective: expected 2 values, of ones, zeros, got those of ones"),
        (1.0, "objective: expected 2 values, of ones, zeros, got 1.0"),
        (None, "is a return statement missing"),
        ((1.0, "a"), "objective: zeros: expected one number, got 'a'"),
    ],
)
def test_wrong_values(value, error):
    with pytest.raises((TypeError, ValueError), match=error):
        kl.minimize(lambda x: value, kl.Binary(4), budget=5, objectives=NAMES)


@pytest.mark.parametrize("objectives", ["ab", ("a", "a"), (1, 2), (), tuple("abcdef"), {"a": "up"}, {"a": ["min"]}, 3])
def test_wrong_objectives(objectives):
    with pytest.raises((TypeError, ValueError), match="objectives: expected"):
        kl.minimize(count, kl.Binary(4), budget=5, objectives=objectives)


def test_a_tuple_without_objectives_names_both_remedies():
    with pytest.raises(TypeError, match=r"kl.Constrained\(value, violation\), .* objectives=\('error', 'latency'\)"):
        kl.minimize(count, kl.Binary(4), budget=5)
    with pytest.raises(ValueError, match="target: expected none with several objectives"):
        kl.minimize(count, kl.Binary(4), budget=5, objectives=NAMES, target=0.0)


def test_nan_in_one_objective_is_a_failed_evaluation():
    def fun(x):
        return (math.nan if x[0] else float(x.sum())), float(-x.sum())

    result = kl.minimize(fun, kl.Binary(6), budget=30, objectives=NAMES, rng=0, deterministic=True)
    failed = [each for each in result.evaluations if each.status == "failed"]
    assert result.failures == len(failed) > 0
    assert all(each.x[0] for each in failed)
    assert not any(each.x[0] for each in result.front)


def test_violations():
    def fun(x):
        return kl.Constrained(count(x), float(x[:3].sum()) - 1.0)

    result = kl.minimize(fun, kl.Binary(8), budget=80, objectives=NAMES, rng=0)
    assert all(each.x[:3].sum() <= 1 for each in result.front)
    assert result.violation == 0.0
    assert any(each.violation > 0 for each in result.evaluations)
    none = kl.minimize(
        lambda x: kl.Constrained(count(x), 1.0 + x.sum()), kl.Binary(4), budget=16, objectives=NAMES, deterministic=True
    )
    assert len(none.front) == 0
    assert not none.success
    assert none.violation == 1.0


def test_stated_constraints_and_fixed_variables():
    result = kl.minimize(
        mixed,
        MIXED,
        budget=40,
        objectives={"cost": "min", "gain": "max"},
        constraints=lambda x: x["bits"].sum() - 2.0,
        fixed={"kind": "b"},
        rng=0,
    )
    assert all(each.x["bits"].sum() <= 2 and each.x["kind"] == "b" for each in result.evaluations)
    assert len({str(each.x) for each in result.evaluations}) > 30
    assert max(point.values[1] for point in result.front) > 4.0


class Noisy:
    """Counts of ones and zeros with normal noise."""

    def __init__(self):
        self.g = np.random.default_rng(0)

    def __call__(self, x):
        return tuple(value + self.g.normal() for value in count(x))


def test_under_noise_the_front_is_that_of_means_of_several_evaluations():
    result = kl.minimize(Noisy(), kl.Binary(10), budget=300, objectives=NAMES, rng=0)
    assert result.deterministic is False
    values = {}
    for evaluation in result.evaluations:
        values.setdefault(evaluation.x.tobytes(), []).append(evaluation.value)
    means = {x: np.mean(each, axis=0) for x, each in values.items() if len(each) > 1}
    squares = [(np.array(values[x]) - mean) ** 2 for x, mean in means.items()]
    freedom = sum(len(each) - 1 for each in squares)
    deviation = np.sqrt(sum(each.sum(axis=0) for each in squares) / freedom)
    expected = front_by_definition(np.array(list(means.values())))
    assert {point.x.tobytes() for point in result.front} == {x for x, kept in zip(means, expected, strict=True) if kept}
    for point in result.front:
        n = len(values[point.x.tobytes()])
        assert point.values == pytest.approx(means[point.x.tobytes()])
        assert point.std == pytest.approx(deviation / np.sqrt(n))
    outcomes = Outcomes.of(result)
    assert outcomes.values[outcomes.front] == pytest.approx(result.front.values)
    assert outcomes.std[outcomes.front] == pytest.approx(result.front.std)
    assert tuple(outcomes.values[outcomes.knee]) == pytest.approx(result.fun)
    assert (np.diff(outcomes.hypervolumes[1]) >= 0.0).all()
    counts = [len(values[point.x.tobytes()]) for point in result.front]
    assert sum(counts) > 50  # it is these that are evaluated again
    assert result.fun_std == result.front[result.front.knee].std
    assert "±" in repr(result)
    assert "±" in result._repr_html_()


def test_runs_under_noise_continue(tmp_path):
    options = {"objectives": NAMES, "rng": 0, "batch": 3}
    whole = kl.minimize(Noisy(), kl.Binary(8), budget=90, **options)
    fun = Noisy()
    kl.minimize(fun, kl.Binary(8), budget=40, journal=tmp_path / "run.sqlite", **options)
    resumed = kl.minimize(fun, kl.Binary(8), budget=90, journal=tmp_path / "run.sqlite", **options)
    assert same_front(whole, resumed)
    assert (whole.front.std == resumed.front.std).all()
    opt, fun = kl.Optimizer(kl.Binary(8), **options), Noisy()
    for _ in range(20):
        batch = opt.ask()
        opt.tell(batch, [fun(candidate.x) for candidate in batch])
    batch = opt.ask()
    opt.tell(batch[1], fun(batch[1].x))
    opt.save(tmp_path / "state")
    other = kl.Optimizer.load(tmp_path / "state", kl.Binary(8))
    for run in (opt, other):
        run.tell([batch[0], batch[2]], [(1.0, 2.0), (3.0, 1.0)])
    for _ in range(10):
        one, two = opt.ask(), other.ask()
        assert (one.codes == two.codes).all()
        told = [fun(candidate.x) for candidate in one]
        opt.tell(one, told)
        other.tell(two, told)


def test_under_noise_a_point_that_was_infeasible_once_is_not_in_the_front():
    g = np.random.default_rng(0)

    def fun(x):
        return kl.Constrained(tuple(value + g.normal() for value in count(x)), g.random() - 0.9)

    result = kl.minimize(fun, kl.Binary(4), budget=80, objectives=NAMES, rng=0)
    infeasible = {evaluation.x.tobytes() for evaluation in result.evaluations if evaluation.violation > 0.0}
    assert infeasible
    outcomes = Outcomes.of(result)
    assert outcomes.values[outcomes.front] == pytest.approx(result.front.values)
    assert len(result.front) > 0
    assert not any(point.x.tobytes() in infeasible for point in result.front)


def test_noise_of_one_objective_is_found_beside_a_much_larger_one():
    g = np.random.default_rng(0)
    result = kl.minimize(lambda x: (1e9 * float(x.sum()), g.normal()), kl.Binary(8), budget=20, objectives=NAMES, rng=0)
    assert result.deterministic is False


@pytest.mark.parametrize("space", [MIXED, kl.Subset(8, 3), kl.Float(0.0, 1.0, n=3), kl.Choice("a", "b", "c", n=5)])
def test_every_kind_of_variable(space):

    def fun(x):
        if isinstance(x, dict):
            return tuple(mixed(x).values())
        x = np.array([ord(option) for option in x]) if np.asarray(x).dtype.kind == "U" else np.asarray(x, dtype=float)
        return float(x.sum()), float(((x - x.mean()) ** 2).sum()) - float(x[0])

    result = kl.minimize(fun, space, budget=60, objectives=("a", "b"), rng=0, deterministic=True)
    assert result.nfev > 40
    assert len(result.front) > 0


def test_resumed_is_uninterrupted(tmp_path):
    options = {"objectives": {"cost": "min", "gain": "max"}, "rng": 3, "batch": 3}
    whole = kl.minimize(mixed, MIXED, budget=60, **options)
    kl.minimize(mixed, MIXED, budget=23, journal=tmp_path / "run.sqlite", **options)
    resumed = kl.minimize(mixed, MIXED, budget=60, journal=tmp_path / "run.sqlite", **options)
    assert same_front(whole, resumed)
    assert resumed.nfev == 60
    assert [each.value for each in resumed.evaluations] == [each.value for each in whole.evaluations]
    opt = kl.Optimizer.from_journal(tmp_path / "run.sqlite")
    assert (opt.front.values == whole.front.values).all()
    assert opt.recommended.fun == whole.fun
    with pytest.raises(kl.JournalError, match="objectives"):
        kl.minimize(lambda x: 0.0, MIXED, budget=60, journal=tmp_path / "run.sqlite", rng=3, batch=3)


def test_snapshots_continue(tmp_path):
    opt = kl.Optimizer(kl.Binary(8), rng=0, objectives=NAMES)
    for _ in range(30):
        batch = opt.ask()
        opt.tell(batch, [count(each.x) for each in batch])
    opt.save(tmp_path / "state")
    other = kl.Optimizer.load(tmp_path / "state", kl.Binary(8))
    assert (opt.front.values == other.front.values).all()
    for _ in range(10):
        one, two = opt.ask(), other.ask()
        assert (one.codes == two.codes).all()
        opt.tell(one, [count(each.x) for each in one])
        other.tell(two, [count(each.x) for each in two])


def test_ask_and_tell():
    opt = kl.Optimizer(kl.Binary(6), rng=0, objectives={"ones": "min", "zeros": "max"}, batch=4)
    batch = opt.ask()
    opt.tell(batch[:2], np.array([count(each.x) for each in batch[:2]]))
    opt.tell(batch[2], {"zeros": 4.0, "ones": 2.0})
    opt.tell(batch[3:], [RuntimeError("no")])
    opt.add(np.zeros(6, dtype=np.int8), (0.0, 6.0))
    assert opt.nfev == 4
    assert opt.failures == 1
    assert opt.front[0].values == (0.0, 6.0) == opt.best.fun
    assert len(opt.front) == 1
    assert "1 points" in repr(opt)
    assert "front" in opt._repr_html_()
    with pytest.raises(AttributeError, match="front: expected several objectives"):
        _ = kl.Optimizer(kl.Binary(6)).front


def test_cancelled_candidates():
    opt = kl.Optimizer(kl.Binary(6), rng=0, objectives=NAMES)
    for i in range(20):
        batch = opt.ask()
        if i % 3:
            opt.tell(batch, [count(each.x) for each in batch])
        else:
            opt.cancel(batch)
    assert opt.nfev == 13
    assert len(opt.front) > 1


def test_algorithms_that_rank_work_as_they_are():
    for algorithm in (kl.pbil_lambda(kl.Binary(8)), P3(kl.pbil_lambda(kl.Binary(8)).family)):
        result = kl.minimize(
            leading_and_trailing, kl.Binary(8), budget=60, objectives=NAMES, rng=0, algorithm=algorithm
        )
        assert len(result.front) > 1


def test_stall_counts_evaluations_since_the_front_has_changed():
    result = kl.minimize(lambda x: (0.0, 0.0), kl.Binary(10), budget=200, objectives=NAMES, rng=0, stall=20)
    assert result.nfev == 21
    assert result.status == "stall"


def test_known_points_are_in_the_front():
    known = [(np.zeros(6, dtype=np.int8), (-1.0, 3.0))]
    result = kl.minimize(count, kl.Binary(6), budget=10, objectives=NAMES, known=known, rng=0)
    assert result.front[0].values == (-1.0, 3.0)


def test_tables_and_notebooks():
    pytest.importorskip("pandas")
    result = kl.minimize(count, kl.Binary(3), budget=8, objectives=NAMES, rng=0)
    frame = result.front.to_pandas()
    assert list(frame.columns) == ["x[0]", "x[1]", "x[2]", "ones", "zeros"]
    assert (frame[list(NAMES)].to_numpy() == result.front.values).all()
    every = result.evaluations.to_pandas()
    assert (every["ones"] + every["zeros"] == 3.0).all()
    assert "value" not in every
    assert "<th" in result._repr_html_()
    assert "ones" in result._repr_html_()
    assert "Front of 4 points: ones (min), zeros (min)" in repr(result)


def test_values_are_stored_exactly():
    values = Several((0.1, -0.0, math.inf), (1.0, -1.0, 1.0))
    again = Several.of(values.text)
    assert again.values == values.values
    assert math.copysign(1.0, again.values[1]) < 0
    assert float(again) == float(values)
    for text in ("[[1.0], [2.0]]", '[["a"], [1.0]]', "[[1.0, 2.0], [1.0]]"):
        with pytest.raises(ValueError, match="value: expected those of several objectives"):
            Several.of(text)
    assert Objectives.of({"a": "max", "b": "min"}).read((1.0, 2.0)).minimized == (-1.0, 2.0)


@pytest.mark.slow
def test_workers_do_not_change_a_run():
    if not hasattr(os, "fork"):
        pytest.skip("needs processes")
    one = kl.minimize(mixed, MIXED, budget=40, batch=4, objectives={"cost": "min", "gain": "max"}, rng=0)
    two = kl.minimize(mixed, MIXED, budget=40, batch=4, objectives={"cost": "min", "gain": "max"}, rng=0, workers=2)
    assert same_front(one, two)


def test_hypervolume_over_time_and_attainment(tmp_path):
    names = ("leading", "trailing")
    runs = [kl.minimize(leading_and_trailing, kl.Binary(8), budget=60, objectives=names, rng=seed) for seed in range(3)]
    outcomes = Outcomes.of(runs[0])
    calls, volumes = outcomes.hypervolumes
    assert (np.diff(calls) > 0).all()
    assert (np.diff(volumes) >= 0).all()
    assert volumes[-1] == 1.0
    assert (outcomes.values[outcomes.front] == runs[0].front.values).all()
    assert tuple(outcomes.values[outcomes.knee]) == runs[0].fun
    at = np.arange(-9.0, 2.0)
    for row, run in zip(attained([Outcomes.of(run) for run in runs], at), runs, strict=True):
        for x, y in zip(at, row, strict=True):
            assert y == min((v for u, v in run.front.values.tolist() if u <= x), default=math.inf)
    journal = tmp_path / "run.sqlite"
    kl.minimize(leading_and_trailing, kl.Binary(8), budget=60, objectives=names, rng=0, journal=journal)
    assert (Outcomes.of(journal).minimized == outcomes.minimized).all()
    with pytest.raises(ValueError, match="run: expected one with several objectives"):
        Outcomes.of(kl.minimize(lambda x: float(x.sum()), kl.Binary(4), budget=5))


def test_plots_and_report(tmp_path):
    plots = pytest.importorskip("knobless.plots")
    journal = tmp_path / "run.sqlite"
    options = {"budget": 40, "objectives": {"cost": "min", "gain": "max"}, "rng": 0, "deterministic": True}
    result = kl.minimize(mixed, MIXED, journal=journal, **options)
    drawn = plots.front(journal)
    assert (drawn.collections[1].get_offsets() == result.front.values).all()
    assert (drawn.get_xlabel(), drawn.get_ylabel()) == ("cost", "gain")
    assert plots.hypervolume(result).lines[0].get_ydata()[-1] == 1.0
    assert len(plots.attainment([result, journal]).lines) == 3
    assert len(plots.panel(result).axes) == len(plots.panel(journal).axes) == 2
    data = collect_page_data(Trace.of(journal))
    assert data["objectives"]["count"] == len(result.front)
    assert data["direction"] == "minimize"
    assert data["objectives"]["errors"] is None
    noisy = tmp_path / "noisy.sqlite"
    kl.minimize(Noisy(), kl.Binary(4), budget=40, objectives=NAMES, rng=0, journal=noisy)
    assert len(plots.front(noisy).containers) == 1
    assert collect_page_data(Trace.of(noisy))["objectives"]["errors"] is not None
    with pytest.raises(ValueError, match="run: expected one with a single objective"):
        plots.best(result)


def test_more_than_two_objectives():
    result = kl.minimize(
        lambda x: (*count(x), -float(x[0])), kl.Binary(5), budget=32, objectives=("a", "b", "c"), rng=0
    )
    assert len(result.front) == 6
    plots = pytest.importorskip("knobless.plots")
    assert len(plots.front(result).lines) == 6


def test_journals_and_the_order_of_objectives(tmp_path):
    options = {"journal": tmp_path / "run.sqlite", "rng": 0}
    kl.minimize(count, kl.Binary(10), budget=20, objectives=("a", "b"), **options)
    with pytest.raises(kl.JournalError, match='journal has "a", got "b"'):
        kl.minimize(count, kl.Binary(10), budget=40, objectives=("b", "a"), **options)
    with pytest.raises(kl.JournalError, match='journal has "min", got "max"'):
        kl.minimize(count, kl.Binary(10), budget=40, objectives={"a": "min", "b": "max"}, **options)


def test_the_largest_values_do_not_overflow(tmp_path):
    largest = 1.7e308

    def fun(x):
        return largest * (x.sum() % 2), largest - x.sum(), -largest * x[0]

    names = ("a", "b", "c")
    result = kl.minimize(fun, kl.Binary(10), budget=40, objectives=names, rng=0, deterministic=True)
    values = np.array([evaluation.value for evaluation in result.evaluations])
    assert (result.front.values == np.unique(values[front_by_definition(values)], axis=0)).all()
    assert result.failures == 0


def test_infinite_values_rank_worst():
    def fun(x):
        return (-math.inf, math.inf) if x[0] else count(x)

    result = kl.minimize(fun, kl.Binary(6), budget=30, objectives=NAMES, rng=0)
    assert result.failures == 0
    assert result.failure is None
    assert not any(point.x[0] for point in result.front)
    assert any(evaluation.value == (-math.inf, math.inf) for evaluation in result.evaluations)
    best = kl.minimize(lambda x: (-math.inf, float(x.sum())), kl.Binary(4), budget=16, objectives=NAMES, rng=0)
    assert best.fun == (-math.inf, 0.0)


def test_objectives_that_are_called_like_other_columns():
    pytest.importorskip("pandas")
    names = ("status", "violation")
    space = kl.Space(value=kl.Binary(2), seconds=kl.Float(0.0, 1.0))
    result = kl.minimize(lambda x: (x["seconds"], 1.0), space, budget=5, objectives=names, rng=0)
    frame = result.evaluations.to_pandas()
    assert list(frame["f.status"]) == [evaluation.value[0] for evaluation in result.evaluations]
    assert set(frame["status"]) == {"ok"}
    assert list(frame["f.violation"]) == [1.0] * 5
    assert list(frame.columns)[:3] == ["value[0]", "value[1]", "x.seconds"]


def test_points_of_fronts_can_be_compared():
    result = kl.minimize(mixed, MIXED, budget=30, objectives={"cost": "min", "gain": "max"}, rng=0)
    again = kl.minimize(mixed, MIXED, budget=30, objectives={"cost": "min", "gain": "max"}, rng=0)
    assert list(result.front) == list(again.front)
    assert result.front[0] != result.front[1]
    assert result.front.index(again.front[1]) == 1
    assert result.front[0] != (result.front[0].x, result.front[0].values, None)


def test_each_evaluation_counts_once_when_more_are_told_than_an_iteration_has():
    opt, fun = kl.Optimizer(kl.Binary(6), rng=0, objectives=NAMES, deterministic=False, batch=2), Noisy()
    for _ in range(6):
        batch = opt.ask(5)
        opt.tell(batch, [fun(candidate.x) for candidate in batch])
    assert opt.run.archive.by_point.counts.sum() == opt.nfev == 30


def test_directions_are_no_names_of_objectives():
    with pytest.raises(ValueError, match="objectives: expected names, got directions"):
        kl.minimize(lambda x: (0.0, 1.0), kl.Binary(3), budget=5, objectives=("min", "max"))


def test_the_history_of_several_objectives_is_refused():
    pytest.importorskip("matplotlib")
    result = kl.minimize(lambda x: (float(x.sum()), 1.0), kl.Binary(3), budget=5, objectives=("a", "b"), rng=0)
    with pytest.raises(ValueError, match="run: expected one with a single objective, got 2 objectives"):
        kl.plots.history(result)
