"""The evaluations of a run: what the objective was called with and returned, with a journal and without one."""

import csv
import io
import json
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

import knobless as kl
from knobless.cli.app import app
from knobless.journal import read
from knobless.run import memory
from knobless.run.recommendation import reserved

SPACE = kl.Space(
    kernel=kl.Choice("linear", "rbf", "poly"),
    value=kl.Float(1e-2, 1e3, log=True),
    gamma=kl.Float(1e-4, 10, log=True).when(kernel=("rbf", "poly")),
    more=kl.Space(degree=kl.Integer(2, 5), bits=kl.Binary(2)).when(kernel="poly"),
    pair=kl.Choice((1, 2), None),
)
NAMES = ("kernel", "x.value", "gamma", "more.degree", "more.bits[0]", "more.bits[1]", "pair")
FACTS = ["value", "violation", "status", "kind", "iteration", "worker", "start", "seconds", "message", "steps"]


def flat(x):
    """One entry per column; None where a variable is inactive."""
    more = x.get("more", {"degree": None, "bits": (None, None)})
    return [x["kernel"], x["value"], x.get("gamma"), more["degree"], *more["bits"], x["pair"]]


def loss(x):
    if x["kernel"] == "poly" and x["more"]["degree"] == 5:
        raise ValueError(f"diverged at {x['value']:.3g}")
    if x["kernel"] == "linear" and x["pair"] is None:
        return math.nan
    return abs(math.log(x["value"])) + x.get("gamma", 1.0) + (x["kernel"] != "rbf")


def known_by(record):
    """The parts of an evaluation that do not depend on the clock or the worker."""
    return (*map(str, flat(record.x)), repr(record.value), record.status, record.kind, record.iteration)


def same(one, other):
    assert list(map(known_by, one)) == list(map(known_by, other))


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_table_is_what_the_objective_received_and_returned(tmp_path, direction, recorded):
    calls = []

    def fun(x):
        calls.append([flat(x), math.nan, "failed"])
        value = loss(x)
        if not math.isnan(value):
            calls[-1][1:] = [value, "ok"]
        return value

    journal = tmp_path / "run.sqlite" if recorded else None
    result = getattr(kl, direction)(fun, SPACE, budget=150, rng=0, journal=journal)
    frame = result.evaluations.to_pandas()
    assert list(frame) == [*NAMES, *FACTS]
    assert len(frame) == len(result.evaluations) == result.nfev == len(calls)
    assert (frame.status == "failed").sum() == result.failures > 5
    for name, values in zip(NAMES, zip(*(point for point, _, _ in calls), strict=True), strict=True):
        if name == "pair":  # None is one of its options, and it is never inactive
            assert frame[name].tolist() == list(values)
        else:
            assert frame[name].isna().tolist() == [value is None for value in values]
            assert frame[name].dropna().tolist() == [value for value in values if value is not None]
    np.testing.assert_array_equal(frame.value, [value for _, value, _ in calls])
    assert frame.status.tolist() == [status for _, _, status in calls]
    assert {"search", "noise test"} == set(frame.kind)
    assert (frame.iteration.diff().dropna() >= 0).all()
    assert (frame.start.diff().dropna() >= pandas.Timedelta(0)).all()
    assert frame.seconds.between(0, 60).all()
    messages = frame.message[frame.status == "failed"]
    assert all("diverged at" in text or text == "the objective returned NaN" for text in messages)
    assert frame.message[frame.status == "ok"].isna().all()


@pytest.mark.parametrize("target", [None, 1.0])
def test_evaluations_do_not_depend_on_workers_or_a_journal(tmp_path, target):
    def run(**more):
        return kl.minimize(loss, SPACE, budget=120, target=target, batch=4, rng=3, **more).evaluations

    with ThreadPoolExecutor(3) as pool:
        serial = run()
        assert (len(serial) < 120) is (target is not None)
        same(serial, run(workers=pool))
        same(serial, run(journal=tmp_path / "1.sqlite"))
        same(serial, run(workers=pool, journal=tmp_path / "2.sqlite"))
        same(serial, run(journal=tmp_path / "2.sqlite"))  # all of it from the journal
    assert {each.worker for each in serial} == {serial[0].worker}


@pytest.mark.slow
def test_a_journal_may_have_more_evaluations_than_the_run(tmp_path):
    noise = np.random.default_rng(0)
    many = kl.minimize(
        lambda x: float(x.sum() + noise.normal()), kl.Binary(9), budget=200, rng=0, journal=tmp_path / "j"
    )
    few = kl.minimize(lambda x: 1 / 0, kl.Binary(9), budget=40, rng=0, journal=tmp_path / "j", deterministic=None)
    more = kl.minimize(lambda x: float(x.sum()), kl.Binary(9), budget=300, rng=0, journal=tmp_path / "j")
    for result in (many, few, more):
        assert len(result.evaluations) == result.nfev
        kinds = [each.kind for each in result.evaluations]
        assert kinds.count("finalist") == reserved(result.nfev)
        assert result.failures == sum(each.status == "failed" for each in result.evaluations)
    assert [each.kind for each in many.evaluations[-11:]] == ["search", *["finalist"] * 10]
    with read(tmp_path / "j") as record:
        assert len(record.evaluations) == record.counts().evaluations > more.nfev


def test_the_mean_of_the_finalists_is_the_value_of_the_result():
    noise = np.random.default_rng(1)
    result = kl.maximize(lambda x: float(x.sum() + noise.normal(scale=5.0)), kl.Binary(30), budget=400, rng=0)
    finalists: dict[bytes, list[float]] = {}
    for each in result.evaluations:
        if each.kind == "finalist":
            finalists.setdefault(each.x.tobytes(), []).append(each.value)
    fresh = finalists[result.x.tobytes()]
    assert np.mean(fresh) == pytest.approx(result.fun)
    assert len(finalists) > 1
    squares = sum(np.var(values) * len(values) for values in finalists.values())
    variance = squares / (sum(map(len, finalists.values())) - len(finalists))  # of all finalists, which have few values
    assert math.sqrt(variance / len(fresh)) == pytest.approx(result.fun_std)


def test_initial_points_confirmations_known_and_cancelled_points_are_marked(tmp_path):
    x0 = np.ones(8, dtype=np.int8)
    path = tmp_path / "run.sqlite"
    result = kl.minimize(
        lambda x: float(x.sum()), kl.Binary(8), budget=200, target=0.0, x0=x0, known=[([1] * 7 + [0], 7.0)], rng=0,
        journal=path,
    )  # fmt: skip
    assert result.evaluations[0].kind == "initial point"
    assert result.evaluations[-1].kind == "confirmation"
    assert len(result.evaluations) == result.nfev
    with read(path) as record:
        assert record.evaluations[0].kind == "known"
        assert list(map(repr, record.evaluations))[1:] == list(map(repr, result.evaluations))
    with kl.Optimizer(kl.Binary(8), rng=0, journal=tmp_path / "opt.sqlite") as opt:
        batch = opt.ask(4)
        opt.tell(batch[1], 2.0)
        opt.cancel(batch[0])
        frame = read(tmp_path / "opt.sqlite").to_pandas()
    assert frame.status.tolist() == ["cancelled", "ok"]
    assert frame.value.isna().tolist() == [True, False]
    assert frame.filter(like="x[").to_numpy().tolist() == [batch[0].x.tolist(), batch[1].x.tolist()]


def described(x):
    """A value with attributes, some of which are not in each evaluation."""
    value = float(x.sum())
    if x[0]:
        return value
    more = {"at": x[:2]} if x[1] else {"seconds": math.nan, "worker": None}
    return kl.Value(kl.Constrained(value, value - 3), {"ones": x.sum(), **more, "note": f"{value:g}"})


def attributes_of(result):
    return repr([each.attributes for each in result.evaluations])


def test_attributes_are_stored_with_their_evaluation(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "PACKED_AT_ONCE", 7)
    given = {"budget": 30, "rng": 0, "algorithm": kl.pbil_lambda(kl.Binary(6))}
    kept = kl.maximize(described, kl.Binary(6), **given)
    kl.maximize(described, kl.Binary(6), journal=tmp_path / "a", **given | {"budget": 11})
    recorded = kl.maximize(described, kl.Binary(6), journal=tmp_path / "a", **given)
    with ThreadPoolExecutor(2) as executor:
        parallel = kl.maximize(described, kl.Binary(6), workers=executor, **given | {"batch": 1})
    plain = kl.maximize(lambda x: getattr(described(x), "value", x.sum()), kl.Binary(6), **given)
    expected = repr([json.loads(json.dumps(getattr(described(each.x), "attributes", {}), default=lambda v: v.tolist()))
                     for each in kept.evaluations])  # fmt: skip
    assert attributes_of(kept) == attributes_of(recorded) == attributes_of(parallel) == expected
    assert [repr(each.x) for each in plain.evaluations] == [repr(each.x) for each in kept.evaluations]
    for result in (kept, recorded):
        frame = result.evaluations.to_pandas()
        assert {*frame.columns[-5:]} == {"ones", "at", "note", "a.seconds", "a.worker"}
        ones = [each.attributes.get("ones", math.nan) for each in result.evaluations]
        np.testing.assert_array_equal(frame["ones"].astype(float), ones)


def test_values_of_steps_and_of_several_objectives_may_have_attributes(tmp_path):
    def steps(x):
        yield kl.Value(5.0, {"step": 1})
        yield kl.Value(float(x.sum()), {"step": 2})
        yield float(x.sum())

    result = kl.minimize(steps, kl.Binary(4), budget=3, rng=0)
    assert result.evaluations[0].attributes == {"step": 2}
    assert result.evaluations[0].steps == (5.0, result.evaluations[0].value, result.evaluations[0].value)
    result = kl.minimize(
        lambda x: kl.Value({"a": x.sum(), "b": x[0]}, {"ok": True}),
        kl.Binary(4),
        budget=3,
        rng=0,
        objectives=("a", "b"),
    )
    assert result.evaluations[2].attributes == {"ok": True}
    with kl.Optimizer(kl.Binary(4), rng=0, journal=tmp_path / "a") as opt:
        batch = opt.ask(3)
        opt.tell(batch, [kl.Value(1.0, {"z": [1, "é"]}), 2.0, ValueError("no")])
        opt.tell(opt.ask(1)[0], kl.Value(kl.Constrained(1.0, 2.0), {"z": 0}))
    with read(tmp_path / "a") as record:
        assert [each.attributes for each in record.evaluations] == [{"z": [1, "é"]}, {}, {}, {"z": 0}]
        assert record.evaluations[3].violation == 2.0


@pytest.mark.parametrize("attributes", [3, {1: 2}, {"a": object()}, {"a": {1, 2}}])
def test_attributes_that_json_cannot_represent_are_refused(attributes):
    with pytest.raises(TypeError, match=r"^objective: attributes: expected .*, got "):
        kl.minimize(lambda x: kl.Value(1.0, attributes), kl.Binary(3), budget=3)


def test_only_evaluations_have_attributes():
    value = kl.Value(1.0, {"a": 1})
    with pytest.raises(TypeError, match=r"^known\[0\]: expected a value without attributes"):
        kl.minimize(lambda x: 1.0, kl.Binary(3), budget=3, known=[([0, 0, 0], value)])
    with pytest.raises(TypeError, match=r"^value: expected a value without attributes"):
        kl.Optimizer(kl.Binary(3)).add([0, 0, 0], value)
    with pytest.raises(TypeError, match="expected no attributes with vectorized=True"):
        kl.minimize(lambda x: value, kl.Binary(3), budget=3, vectorized=True)


def test_a_long_run_without_a_journal_keeps_the_last_ones(monkeypatch):
    monkeypatch.setattr(memory, "KEPT_EVALUATIONS", 100)
    monkeypatch.setattr(memory, "PACKED_AT_ONCE", 30)
    monkeypatch.setattr(memory, "MOST_MESSAGES", 2)
    space, seen = kl.Binary(10), []

    def fun(x):
        seen.append(x.copy())
        if len(seen) % 7 == 0:
            raise ValueError(f"failure {len(seen)}")
        return float(x.sum())

    result = kl.minimize(fun, space, budget=1000, algorithm=kl.pbil_lambda(space), rng=0)
    assert (len(result.evaluations), result.evaluations.dropped) == (100, 900)
    for each, x in zip(result.evaluations, seen[-100:], strict=True):
        np.testing.assert_array_equal(each.x, x)
    assert {each.message is None for each in result.evaluations if each.status == "failed"} == {False}


def test_a_sequence_is_what_its_parts_are(tmp_path):
    for journal in (None, tmp_path / "run.sqlite"):
        each = kl.minimize(lambda x: float(x.sum()), kl.Binary(6), budget=40, rng=0, journal=journal).evaluations
        copied = pickle.loads(pickle.dumps(each))  # before it is read
        n, all_of_it = len(each), list(map(repr, each))
        assert list(map(repr, copied)) == all_of_it
        assert [repr(each[i]) for i in range(n)] == all_of_it
        assert [repr(each[i - n]) for i in range(n)] == all_of_it
        for part in (slice(3, 9), slice(None, None, -4), slice(-5, None), slice(9, 3)):
            assert list(map(repr, each[part])) == all_of_it[part]
        with pytest.raises(IndexError):
            each[n]
        assert list(map(repr, pickle.loads(pickle.dumps(each)))) == all_of_it


@pytest.mark.slow
def test_compiled_iterations_keep_none(compiled_at_once):
    pytest.importorskip("numba")
    from knobless.problems import OneMax

    result = kl.minimize(OneMax(50), kl.Binary(50), budget=2000, algorithm=kl.pbil_lambda(kl.Binary(50)), rng=0)
    assert len(result.evaluations) + result.evaluations.dropped == result.nfev
    assert result.evaluations.dropped > 1900


def test_csv_round_trip_without_formulas(tmp_path):
    evil = ["=1+2", "-O2", "@x", "'quoted", 'a,"b"\nc', "\x1b[31mred", "plain"]
    space = kl.Space(
        **{"flag": kl.Choice(*evil), "=cmd": kl.Integer(-3, 3).when(flag="plain"), "c": kl.Choice(-1, 0.5)}
    )
    path = tmp_path / "run.sqlite"

    def fun(x):
        if x["flag"] == "@x":
            raise ValueError("two\nlines")
        return -float(len(x["flag"])) - x["c"]

    kl.minimize(fun, space, budget=60, rng=0, journal=path)
    done = CliRunner().invoke(app, ["show", str(path), "--csv"])
    assert done.exit_code == 0
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert rows[0] == ["flag", "'=cmd", "c", *FACTS]
    with read(path) as record:
        expected = list(record.evaluations)
    assert len(rows) - 1 == len(expected)
    for row, each in zip(rows[1:], expected, strict=True):
        flag = row[0][1:] if row[0].startswith("'") else row[0]
        assert flag.encode().decode("unicode_escape") == each.x["flag"]
        assert row[1] == str(each.x.get("=cmd", ""))
        assert row[2] == repr(each.x["c"])
        assert row[3] == ("" if each.status == "failed" else repr(each.value))
        assert float(row[10]) == each.seconds
        assert pandas.Timestamp(row[9]).timestamp() == pytest.approx(each.start, abs=1e-5)
    numbers = {i for i, name in enumerate(rows[0]) if name in ("'=cmd", "c", "value")}
    assert not [
        cell for row in rows for i, cell in enumerate(row) if i not in numbers and cell[:1] in tuple("=+-@\t\r")
    ]
    assert CliRunner().invoke(app, ["show", str(path), "--csv", "--json"]).exit_code == 2
