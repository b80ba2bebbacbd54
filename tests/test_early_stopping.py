"""Objectives that yield: the rule that stops hopeless evaluations, and its way through a run."""

from __future__ import annotations

import math
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
from knobless.core.early_stopping import (
    LEAST,
    PROBABILITY,
    Curve,
    Curves,
    farthest_apart,
    is_hopeless,
    student_quantile,
)
from knobless.parallel.evaluation import Watched, evaluate
from knobless.parallel.returned import last_value, objective_value

SPACE = kl.Space(a=kl.Float(0, 1), b=kl.Float(0, 1))
STEPS = 20


def train(x: dict[str, float]) -> Iterator[float]:
    """Yield values that fall towards the distance from (0.3, 0.7)."""
    for step in range(1, STEPS + 1):
        yield (x["a"] - 0.3) ** 2 + (x["b"] - 0.7) ** 2 + math.exp(-step / 4)


def steps_of(result: kl.Result) -> list[Any]:
    return [(each.status, each.steps) for each in result.evaluations]


def table(curves: Any) -> Curves:
    known = Curves()
    for curve in curves:
        known.add(Curve(curve))
    return known


# The rule.


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 101])
@pytest.mark.parametrize("probability", [0.05, 0.01, 1e-4])
def test_quantiles_are_those_of_student(freedom: int, probability: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert student_quantile(probability, freedom) == pytest.approx(stats.t.isf(probability, freedom), rel=1e-6)


def test_limits_are_prediction_bounds_of_a_regression() -> None:
    # With two steps, and curves that are all used, the limit is that of a linear regression written out.
    rng = np.random.default_rng(0)
    last = np.array([0.0, 1.0, 1.0, 2.0, 3.0, 5.0])
    first = 1.0 + 0.5 * last + 0.1 * rng.random(6)
    scale = np.median(last) - last.min()

    def scaled(values: Any) -> Any:
        return np.log1p((values - last.min()) / scale)

    y, z = scaled(last), scaled(first)
    design = np.column_stack([np.ones(6), y])
    (intercept, slope), *_ = np.linalg.lstsq(design, z, rcond=None)
    variance = ((z - intercept - slope * y) ** 2).sum() / 4
    leverage = np.linalg.inv(design.T @ design)[0, 0]  # at y = 0, the best
    bound = intercept + student_quantile(PROBABILITY, 4) * math.sqrt(variance * (1 + leverage))
    limit = last.min() + scale * math.expm1(bound)
    assert table(np.column_stack([first, last])).limits == pytest.approx((limit,))


def test_nothing_is_stopped_before_enough_have_finished() -> None:
    curves = [[float(i), float(i)] for i in range(LEAST)]
    assert table(curves[:-1]).limits == ()
    assert len(table(curves).limits) == 1
    assert table([[1.0, 2.0]] * 10).limits == ()  # equal values do not show a scale
    assert table([[1.0, 2.0 + i * np.spacing(2.0)] for i in range(10)]).limits == ()  # nor do rounding errors
    assert table([[float(i)] for i in range(10)]).limits == ()  # neither do single steps


def test_orders_that_hold_stop_the_worst_and_keep_the_best() -> None:
    rng = np.random.default_rng(1)
    end = rng.random(30)
    curves = end[:, None] + np.exp(-np.arange(10) / 3.0) + 0.001 * rng.normal(size=(30, 10))
    limits = table(curves).limits
    assert len(limits) == 9
    assert all(limit >= curve for limit, curve in zip(limits, curves[end.argmin()], strict=False))
    stopped = [is_hopeless(curve[0], 0, limits) for curve in curves[end > 0.2]]
    assert np.mean(stopped) > 0.9


@pytest.mark.parametrize("kind", ["noise", "reversed"])
def test_orders_that_do_not_hold_stop_almost_nothing(kind: str) -> None:
    rng = np.random.default_rng(2)
    stopped = 0
    for _ in range(20):
        end = rng.random(40)
        steps = rng.random((40, 9)) if kind == "noise" else np.repeat(1.0 - end[:, None], 9, axis=1)
        limits = table(np.column_stack([steps[:20], end[:20]])).limits
        stopped += sum(any(value > limit for value, limit in zip(row, limits, strict=True)) for row in steps[20:])
    assert stopped <= 0.05 * 20 * 20


@given(st.integers(0, 2**32), st.floats(0.01, 100.0), st.floats(-100.0, 100.0))
def test_the_unit_of_values_does_not_matter(seed: int, factor: float, shift: float) -> None:
    curves = np.random.default_rng(seed).random((12, 5)).cumsum(axis=1)
    limits = np.array(table(curves).limits)
    moved = np.array(table(factor * curves + shift).limits)
    assert moved == pytest.approx(factor * limits + shift, rel=1e-6, abs=1e-6 * factor)


def test_values_that_are_not_finite() -> None:
    curves = [[float(i), float(i), float(i)] for i in range(8)]
    curves[0][0] = math.inf  # the best one: whatever a value is at the first step, it is not hopeless
    first, second = table(curves).limits
    assert first == math.inf
    assert second < math.inf
    assert is_hopeless(math.nan, 1, (first, second))
    assert not is_hopeless(math.nan, 0, (first, second))
    assert not is_hopeless(1e9, 2, (first, second))


def test_curves_of_different_lengths() -> None:
    short, long = [[i, i / 2] for i in range(6)], [[i, i / 2, i / 3, i / 4] for i in range(6)]
    limits = table([*short, *long]).limits
    assert len(limits) == 3  # those of the first step from all, of the others from the long ones
    assert all(limit < math.inf for limit in limits)


def test_estimates_are_above_the_best_and_not_beyond_the_value() -> None:
    known = table([[float(i), i / 2, i / 4] for i in range(8)])
    for value in (-5.0, 0.0, 0.5, 3.0, 100.0):
        assert 0.0 < known.estimate(Curve([value], stopped=True), 0.0)[0] <= max(value, 7 / 4)
    assert known.estimate(Curve([1.0, math.nan], stopped=True), 0.0)[0] == math.inf
    assert known.estimate(Curve([4.0], stopped=True), 0.0)[0] == pytest.approx(1.0, rel=0.2)


@given(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=20), st.integers(2, 20))
def test_farthest_apart_keeps_the_ends(values: list[float], count: int) -> None:
    values.sort()
    kept = farthest_apart(np.array(values), count)
    assert len(kept) == min(count, len(values))
    assert kept == sorted({*kept})
    assert (kept[0], kept[-1]) == (0, len(values) - 1)


def test_candidates_whose_number_is_a_square_run_on() -> None:
    known = table([[float(i), float(i)] for i in range(9)])
    assert [id for id in range(30) if not known.limits_of(id)] == [0, 1, 4, 9, 16, 25]


def test_a_curve_is_a_value() -> None:
    curve = Curve([3.0, 2.0])
    assert curve == 2.0
    assert (-curve).steps == (-3.0, -2.0)
    assert math.isnan(Curve([3.0, 2.0], stopped=True))
    again = pickle.loads(pickle.dumps(Curve([3.0], stopped=True)))
    assert (again.steps, again.stopped) == ((3.0,), True)


# Evaluations.


def test_a_generator_is_closed_when_it_is_stopped() -> None:
    events: list[Any] = []

    def steps() -> Iterator[float]:
        try:
            for value in (1.0, 2.0, 3.0):
                events.append(value)
                yield value
        finally:
            events.append("closed")

    curve = last_value(steps(), (math.inf, 1.5))
    assert isinstance(curve, Curve)
    assert (curve.steps, curve.stopped, events) == ((1.0, 2.0), True, [1.0, 2.0, "closed"])
    assert last_value(steps(), (1.0, 2.0)) == 3.0
    maximized = last_value(steps(), (-1.5,), sign=-1.0)
    assert isinstance(maximized, Curve)
    assert maximized.steps == (1.0,)


def test_the_limits_travel_with_the_point() -> None:
    point = pickle.loads(pickle.dumps(Watched({"a": 0.0, "b": 0.0}, (0.0,), 1.0)))
    curve = evaluate(train, point, objective_value)
    assert isinstance(curve, Curve)
    assert (len(curve.steps), curve.stopped) == (1, True)
    assert evaluate(lambda x: x["a"], point, objective_value) == 0.0  # a function that returns stays as it is


def yields(*values: Any) -> Any:
    def objective(x: Any) -> Iterator[Any]:
        yield from values

    return objective


def yields_after_its_end(x: Any) -> Iterator[float]:
    try:
        for step in range(5):
            yield x["a"] + step
    except GeneratorExit:
        yield 0.0


def returns_at_its_end(x: Any) -> Any:
    yield 1.0
    return 0.5


@pytest.mark.parametrize(
    ("fun", "message"),
    [
        (yields(None), "objective: value of step 1: expected one number, got None; a function that contains yield"),
        (yields(1.0, "low"), "objective: value of step 2: expected one number, got 'low'"),
        (yields(), "objective: expected a number from yield at least once, got none"),
        (yields((1.0, 2.0)), "objective: value of step 1: expected one number, got a tuple of 2"),
        (returns_at_its_end, "objective: expected the last value from yield, got 0.5 from return"),
    ],
)
def test_mistakes_are_shown_at_once(fun: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        kl.minimize(fun, SPACE, budget=5, rng=0)


def test_mistakes_later_on_are_failed_evaluations() -> None:
    result = kl.minimize(yields_after_its_end, SPACE, budget=40, rng=0)
    failed = [each for each in result.evaluations if each.status == "failed"]
    assert failed
    assert all("expected no further value after it was stopped" in str(each.message) for each in failed)
    assert math.isfinite(result.fun)


def test_a_vectorized_objective_cannot_yield() -> None:
    with pytest.raises(TypeError, match="got a generator; an objective with steps gets one point at a time"):
        kl.minimize(train, kl.Space(a=kl.Float(0, 1), b=kl.Float(0, 1)), budget=5, rng=0, vectorized=True)


# Runs.


def test_a_run_takes_fewer_steps_and_finds_the_optimum() -> None:
    result = kl.minimize(train, SPACE, budget=40, rng=0)
    whole = kl.minimize(lambda x: [*train(x)][-1], SPACE, budget=40, rng=0)
    assert result.nfev == 40
    assert result.failures == 0
    assert result.fun == pytest.approx(whole.fun, abs=1e-3)
    steps = [len(each.steps or ()) for each in result.evaluations]
    assert sum(steps) < 0.65 * 40 * STEPS
    for each in result.evaluations:
        assert each.status == ("ok" if len(each.steps or ()) == STEPS else "stopped")
        assert math.isnan(each.value) == (each.status == "stopped")
    best = min((each for each in result.evaluations if each.status == "ok"), key=lambda each: each.value)
    assert result.fun == best.value
    assert best.x == result.x


def test_maximizing_is_minimizing_the_negative() -> None:
    low = kl.minimize(train, SPACE, budget=25, rng=0)
    high = kl.maximize(lambda x: (-value for value in train(x)), SPACE, budget=25, rng=0)
    assert high.fun == -low.fun
    assert [(s, tuple(-v for v in steps)) for s, steps in steps_of(high)] == steps_of(low)


def test_a_run_in_threads_stops_too() -> None:
    with ThreadPoolExecutor(2) as pool:
        result = kl.minimize(train, SPACE, budget=30, rng=0, workers=pool)
    assert {"ok", "stopped"} == {each.status for each in result.evaluations}


def test_a_run_in_rounds_does_not_depend_on_workers() -> None:
    serial = kl.minimize(train, SPACE, budget=30, rng=0, batch=3)
    with ThreadPoolExecutor(3) as pool:
        pooled = kl.minimize(train, SPACE, budget=30, rng=0, batch=3, workers=pool)
    assert steps_of(pooled) == steps_of(serial)


@pytest.mark.slow
def test_a_run_in_processes_stops_too() -> None:
    result = kl.minimize(train, SPACE, budget=30, rng=0, workers=2)
    assert {"ok", "stopped"} == {each.status for each in result.evaluations}


@pytest.mark.parametrize("interrupted", [3, 17, 24])
def test_a_run_that_was_interrupted_is_resumed_exactly(tmp_path: Path, interrupted: int) -> None:
    whole = kl.minimize(train, SPACE, budget=30, rng=0)
    calls = 0

    def interrupted_between_two_steps(x: Any) -> Iterator[float]:
        nonlocal calls
        calls += 1
        for step, value in enumerate(train(x)):
            if calls == interrupted and step == 1:
                raise KeyboardInterrupt
            yield value

    path = tmp_path / "run.sqlite"
    with suppress(KeyboardInterrupt):
        kl.minimize(interrupted_between_two_steps, SPACE, budget=30, rng=0, journal=path)
    resumed = kl.minimize(train, SPACE, budget=30, rng=0, journal=path)
    assert steps_of(resumed) == steps_of(whole)
    assert (resumed.fun, resumed.x) == (whole.fun, whole.x)
    with kl.journal.read(path) as record:
        assert [(e.status, e.steps) for e in record.evaluations] == steps_of(whole)
        assert record.counts().failures == 0


KILLED = """
import os, signal, sys
import knobless as kl
from test_early_stopping import SPACE, train

evaluations = 0


def killed_between_two_steps(x):
    global evaluations
    evaluations += 1
    for step, value in enumerate(train(x)):
        if evaluations == 9 and step == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        yield value


kl.minimize(killed_between_two_steps, SPACE, budget=20, rng=0, journal=sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_run_that_was_killed_between_two_steps_is_resumed_exactly(tmp_path: Path) -> None:
    whole = kl.minimize(train, SPACE, budget=20, rng=0)
    path = tmp_path / "run.sqlite"
    done = subprocess.run([sys.executable, "-c", KILLED, path], cwd=Path(__file__).parent, timeout=300)
    assert done.returncode == -signal.SIGKILL
    with kl.journal.read(path) as record:
        assert steps_of(record) == steps_of(whole)[:8]
    resumed = kl.minimize(train, SPACE, budget=20, rng=0, journal=path)
    assert steps_of(resumed) == steps_of(whole)
    assert (resumed.fun, resumed.x) == (whole.fun, whole.x)


def test_ask_report_and_tell_are_resumed_between_two_reports(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    whole = asked_and_told(kl.Optimizer(SPACE, rng=0), 20)
    with kl.Optimizer(SPACE, rng=0, journal=path) as opt:
        before = asked_and_told(opt, 9)
        (candidate,) = opt.ask(1)
        opt.report(candidate, next(train(candidate.x)))
    with kl.Optimizer.from_journal(path) as opt:  # the evaluation begins again
        assert before + asked_and_told(opt, 11) == whole


def asked_and_told(opt: kl.Optimizer, count: int) -> list[Any]:
    told: list[Any] = []
    while len(told) < count:  # candidates of an iteration have the same limits
        batch, curves = opt.ask(), []
        for candidate in batch:
            steps = []
            for value in train(candidate.x):
                steps.append(value)
                if not opt.report(candidate, value):
                    break
            curves.append(tuple(steps))
        opt.tell(batch, [steps[-1] for steps in curves])
        told += curves
    return told[:count]


def test_ask_report_and_tell_are_the_run_of_minimize(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with kl.Optimizer(SPACE, rng=0, journal=path) as opt:
        told = asked_and_told(opt, 30)
        best = opt.best
    assert told == [steps for _, steps in steps_of(kl.minimize(train, SPACE, budget=30, rng=0))]
    opt = kl.Optimizer.from_journal(path)
    assert opt.best == best
    opt.save(tmp_path / "snapshot")
    loaded = kl.Optimizer.load(tmp_path / "snapshot", SPACE)
    assert asked_and_told(loaded, 10) == asked_and_told(opt, 10)


def test_report_needs_a_pending_candidate_and_a_number() -> None:
    opt = kl.Optimizer(SPACE, rng=0)
    (candidate,) = opt.ask(1)
    with pytest.raises(TypeError, match="value: expected one number, got 'low'"):
        opt.report(candidate, "low")  # type: ignore[arg-type]
    opt.tell(candidate, 1.0)
    with pytest.raises(ValueError, match="candidates: expected pending ones"):
        opt.report(candidate, 1.0)


def test_the_table_has_the_steps() -> None:
    pytest.importorskip("pandas")
    result = kl.minimize(train, SPACE, budget=25, rng=0)
    frame = result.evaluations.to_pandas()
    assert frame.steps.map(len).tolist() == [len(each.steps or ()) for each in result.evaluations]
    assert (frame.value.isna() == (frame.status == "stopped")).all()


def test_violations_are_not_stopped() -> None:
    violated = last_value((kl.Constrained(9.0, violation) for violation in (2.0, 1.0)), (0.0,))
    assert isinstance(violated, Curve)
    assert [(rank.value, rank.violation) for rank in violated.steps] == [(9.0, 2.0), (9.0, 1.0)]  # type: ignore[attr-defined]
    feasible = last_value((kl.Constrained(value, 0.0) for value in (2.0, 1.0)), (0.0,))
    assert isinstance(feasible, Curve)
    assert feasible.steps == (2.0,)


def with_violation(x: Any) -> Iterator[kl.Constrained]:
    """Yield values that fall, with a violation that falls as well."""
    for step, value in enumerate(train(x)):
        yield kl.Constrained(value, x["a"] - 0.2 - 0.01 * step)


def of_two(x: Any) -> Iterator[tuple[float, float]]:
    """Yield a value that falls, and one that does not."""
    return ((value, x["a"]) for value in train(x))


@pytest.mark.parametrize(
    ("fun", "options"), [(with_violation, {}), (of_two, {"objectives": {"error": "min", "size": "max"}})]
)
def test_steps_of_violations_and_several_objectives(fun: Any, options: Any, tmp_path: Path) -> None:
    result = kl.minimize(fun, SPACE, budget=20, rng=0, **options)
    for each in result.evaluations:
        assert each.steps is not None
        if each.status == "ok":
            assert each.steps == tuple(v.value if options == {} else v for v in fun(each.x))
    assert not options or {each.status for each in result.evaluations} == {"ok"}
    path = tmp_path / "run.sqlite"
    kl.minimize(fun, SPACE, budget=10, rng=0, journal=path, **options)
    resumed = kl.minimize(fun, SPACE, budget=20, rng=0, journal=path, **options)
    assert steps_of(resumed) == steps_of(result)
    opt = kl.Optimizer(SPACE, rng=0, **options)
    for candidate in opt.ask(2):
        for value in fun(candidate.x):
            assert opt.report(candidate, value)
        opt.save(tmp_path / "snapshot")
        opt = kl.Optimizer.load(tmp_path / "snapshot", SPACE)
        opt.tell(candidate, value)
    assert opt.nfev == 2


# What is not a value.


@pytest.mark.parametrize("seed", range(4))
def test_estimates_are_never_recommended(seed: int) -> None:
    result = kl.minimize(train, SPACE, budget=60, rng=seed, deterministic=False)
    complete = [each for each in result.evaluations if each.status == "ok"]
    assert len(complete) < len(result.evaluations)
    assert result.fun >= min(each.value for each in complete)
    assert any(each.x == result.x for each in complete)


def test_estimates_are_not_the_value_of_the_mode() -> None:
    opt = kl.Optimizer(SPACE, rng=0)
    asked_and_told(opt, 30)
    values = {str(each.x): each.value for each in kl.minimize(train, SPACE, budget=30, rng=0).evaluations}
    fun = opt.mode_fun
    assert fun is None or fun == values[str(opt.mode)]


def hopeless(opt: kl.Optimizer) -> Any:
    """Return a candidate that was reported to be hopeless, with its last value."""
    while True:
        (candidate,) = opt.ask(1)
        for value in train(candidate.x):
            if not opt.report(candidate, value):
                return candidate, value
        opt.tell(candidate, value)


def test_a_value_other_than_the_last_one_reported_counts() -> None:
    opt = kl.Optimizer(SPACE, rng=0)
    candidate, _ = hopeless(opt)
    opt.tell(candidate, -100.0)
    assert opt.best is not None
    assert (opt.best.fun, opt.best.x) == (-100.0, candidate.x)


def test_a_cancelled_candidate_leaves_nothing() -> None:
    opt = kl.Optimizer(SPACE, rng=0)
    candidate, _ = hopeless(opt)
    opt.cancel(candidate)
    assert not opt.run.reported


def test_reported_steps_are_saved(tmp_path: Path) -> None:
    opt = kl.Optimizer(SPACE, rng=0)
    asked_and_told(opt, 12)
    (candidate,) = opt.ask(1)
    values = list(train(candidate.x))
    for value in values[:3]:
        opt.report(candidate, value)
    opt.save(tmp_path / "snapshot")
    loaded = kl.Optimizer.load(tmp_path / "snapshot", SPACE)
    assert loaded.report(candidate, values[3]) == opt.report(candidate, values[3])
    assert loaded.run.reported[candidate.id].steps == tuple(values[:4])
