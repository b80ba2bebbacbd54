"""Journals: a resumed run equals an uninterrupted one, and errors in a journal are reported."""

import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import knobless as kl
from conftest import examples, quick_if
from knobless.algorithms import IGO, SNR, Quartiles, cga, umda
from knobless.core.data import difference
from knobless.families import Bernoulli
from knobless.journal.events import CHECKED, Event
from knobless.journal.events import RETURNED_NAN as NAN
from knobless.journal.records import read
from knobless.journal.sqlite import Lock, Writer, connect
from knobless.parallel.evaluation import Outcome
from knobless.report.summary import summary
from knobless.report.trace import Trace
from knobless.run.optimize import NOT_CALLED
from knobless.space.codec import space_data, space_of

BITS = kl.Binary(10)
DOMAINS = {
    "bits": kl.Binary(9),
    "prior": kl.Binary(3, p=[0.1, 0.2, 0.3]),
    "choice": kl.Choice("a", "b", "c"),
    "choices": kl.Choice(1, 2.5, None, True, n=5),
    "many options": kl.Choice(*range(300)),
    "integer": kl.Integer(1, 10**6, log=True),
    "float": kl.Float(1e-4, 1e-1, log=True),
    "mixed": kl.Space(
        bits=kl.Binary(4),
        kind=kl.Choice("x", None, (1, 2), len, p=[0.1, 0.2, 0.3, 0.4]),
        below=[kl.Integer(0, 20, step=4), kl.Float(-1, 1, n=2), {7: kl.Float(0, 1, step=0.25)}],
    ),
}
domains = pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)


def ones(x):
    return float(x.sum())


def flat(x):
    if isinstance(x, dict):
        return tuple(flat(value) for value in x.values())
    if isinstance(x, list | np.ndarray):
        return tuple(map(flat, x))
    return x


def coarse(x):
    """Any point to one of a few values, or a failure."""
    number = sum(map(ord, repr(flat(x)))) % 7
    if number == 6:
        raise RuntimeError("six")
    return math.nan if number == 5 else float(number)


def told(candidate):
    try:
        return coarse(candidate.x)
    except RuntimeError as error:
        return error


def look(opt):
    best = opt.best and (repr(opt.best.x), opt.best.fun)
    facts = opt.lam, opt.eps, best, opt.nfev, opt.nit, opt.failures, repr(opt.mode), opt.exhausted
    return opt.theta.tolist(), facts, repr(opt.mode_fun), opt.run.streams.data()


def look_at(result):
    facts = (result.fun, result.nfev, result.nit, result.status, result.success, result.failures, result.mode_fun)
    message = result.message.removesuffix(NOT_CALLED)
    return repr(result.x), repr(result.mode), facts, message, [*map(repr, result.history)]


def points(batch):
    return [(candidate.id, repr(candidate.x)) for candidate in batch]


class Bomb(BaseException):
    """Ends a run from within, as a crash would."""


def fused(fun, calls):
    """`fun` for so many calls, then the end."""
    count = itertools.count()

    def lit(x):
        if next(count) >= calls:
            raise Bomb
        return fun(x)

    return lit


# Resuming.


def test_a_run_resumed_with_more_workers_than_its_batch_says_so(tmp_path):
    path = tmp_path / "run.sqlite"
    given = {"fun": ones, "space": kl.Binary(20), "rng": 3, "journal": path}
    kl.minimize(budget=10, batch=2, **given)
    with ThreadPoolExecutor(4) as pool:
        with pytest.warns(UserWarning, match=r"begun with batch=2,.* pass the evaluations of this one as known"):
            resumed = kl.minimize(budget=20, workers=pool, **given)
        known = [(each.x, each.value) for each in resumed.evaluations]
        other = given | {"journal": tmp_path / "other.sqlite", "known": known}
        for _ in range(2):
            kl.minimize(budget=20, workers=pool, **other)  # without a warning
    assert resumed.nfev == 20


@pytest.mark.parametrize("deterministic", [None, True, False])
@pytest.mark.parametrize("calls", [1, 2, 4, 30])
def test_a_run_with_several_initial_points_is_resumed(calls, deterministic, tmp_path):
    path, initial = tmp_path / "run.sqlite", [[0, 1] * 10, [1] * 20, [0] * 20]
    given = {"space": kl.Binary(20), "budget": 60, "x0": initial, "deterministic": deterministic, "rng": 3}
    with pytest.raises(Bomb):
        kl.minimize(fused(coarse, calls), journal=path, **given)
    assert look_at(kl.minimize(coarse, journal=path, **given)) == look_at(kl.minimize(coarse, **given))
    with read(path) as record:
        assert [x.tolist() for x in record.x0] == initial
        assert [each.kind for each in record.evaluations][:4] == ["initial point"] * 3 + ["search"]
    with pytest.raises(kl.JournalError, match="x0"):
        kl.minimize(coarse, journal=path, **given | {"x0": initial[:2]})
    opt = kl.Optimizer(kl.Binary(20), x0=initial, deterministic=deterministic, rng=3)
    opt.tell(opt.ask(2), [2.0, 1.0])
    for _ in range(5):
        opt.save(tmp_path / "run.json")
        loaded = kl.Optimizer.load(tmp_path / "run.json", kl.Binary(20))
        assert look(loaded) == look(opt)
        out = opt.ask()
        assert points(loaded.ask()) == points(out)
        opt.tell(out, [told(each) for each in out])


def test_a_run_that_a_stopping_rule_has_ended_is_resumed(tmp_path):
    path = tmp_path / "run.sqlite"
    given = {"fun": ones, "space": kl.Binary(20), "budget": 300, "algorithm": cga(kl.Binary(20)), "rng": 3}
    rule = {"stop": lambda info: info.nfev >= 40 and "enough"}
    first, again = (kl.minimize(journal=path, **rule, **given) for _ in range(2))
    assert (first.nfev, first.message) == (40, "enough")
    assert look_at(again) == look_at(first)
    assert again.message == "enough" + NOT_CALLED
    assert look_at(kl.minimize(journal=path, **given)) == look_at(kl.minimize(**given))


def played(domain, steps, chance, deterministic, journal, reopened):
    """An optimizer after random asking, telling, giving up and adding, opened anew at random, if `reopened`."""

    def opened():
        return kl.Optimizer(domain, rng=11, batch=3, deterministic=deterministic, journal=journal)

    opt, out = opened(), []
    space = kl.Space.of(domain)
    for _ in range(steps):
        act, k, again = chance.random(), chance.randint(1, 5), chance.random() < 0.2
        chance.shuffle(out)
        if again:
            held = sorted(out, key=lambda c: c.id)
            if reopened:
                opt.close()
                opt = opened()
                # What was out is handed out again, whether it was asked for before or after the last tell.
                out = list(opt.ask(len(held))) if held else []
                assert points(out) == points(held)
        elif act < 0.4 and not opt.exhausted:
            got = opt.ask(k)
            out += got
            if len(got) < k:  # nothing new is left
                break
        elif act < 0.8 and out:
            some, out = out[:k], out[k:]
            opt.tell(some, [told(c) for c in some])
        elif act < 0.9 and out:
            opt.cancel(out.pop())
        elif act > 0.95:
            point = space.decode(space.family.mode(space.family.initial()))
            opt.add(point, chance.choice([-1.0, 0.5, math.nan, math.inf]))
        out.sort(key=lambda c: c.id)
    return opt


@pytest.mark.parametrize(
    "domain", [quick_if(name in ("bits", "integer", "mixed"), each) for name, each in DOMAINS.items()], ids=DOMAINS
)
@pytest.mark.parametrize("deterministic", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_optimizer_goes_on_as_if_it_had_never_stopped(domain, deterministic, seed, tmp_path):
    # The same acts in both; those of the one that is opened anew are interrupted by that, and nothing else.
    never = played(domain, 70, random.Random(seed), deterministic, None, False)
    often = played(domain, 70, random.Random(seed), deterministic, tmp_path / "run.sqlite", True)
    assert look(never) == look(often)
    often.close()
    with read(tmp_path / "run.sqlite") as record:
        folded = kl.Optimizer.from_journal(record)
    opened = kl.Optimizer(domain, batch=3, deterministic=deterministic, journal=tmp_path / "run.sqlite")
    assert (folded.theta.tolist(), folded.nit) == (opened.theta.tolist(), opened.nit)
    assert folded.observed_fun == never.observed_fun
    assert look(folded)[3:] == look(opened)[3:]


def test_what_was_told_is_not_handed_out_again(tmp_path):
    path = tmp_path / "run.sqlite"
    opt = kl.Optimizer(BITS, rng=0, batch=6, journal=path)
    batch = opt.ask()
    opt.tell(batch[1:3], [3.0, math.nan])
    opt.close()
    opt = kl.Optimizer(BITS, batch=6, journal=path)
    assert (opt.nfev, opt.failures, opt.n_to_ask) == (2, 1, 4)
    again = opt.ask()
    assert points(again) == points([batch[i] for i in (0, 3, 4, 5)])
    with pytest.raises(ValueError, match="told or cancelled"):
        opt.tell(batch[1], 3.0)
    with pytest.raises(RuntimeError, match="4 are pending"):
        opt.ask()
    opt.tell(again, [ones(c.x) for c in again])
    assert opt.nit == 1


def test_a_late_result_of_the_process_before_may_be_told_without_asking(tmp_path):
    path = tmp_path / "run.sqlite"
    opt = kl.Optimizer(BITS, rng=0, batch=2, journal=path)
    out = opt.ask(5)
    opt.tell(out[:2], [1.0, 2.0])
    opt.close()
    opt = kl.Optimizer(BITS, batch=2, journal=path)
    assert [c.id for c in opt.pending] == [2, 3, 4]
    opt.tell(out[3], -1.0)
    assert opt.best.x.tolist() == out[3].x.tolist()
    ids = [c.id for c in opt.ask(4)]
    assert ids[:2] == [2, 4]
    assert min(ids[2:]) > 4


SETTINGS = {
    "plain": {},
    "target": {"target": 6.5},
    "stall": {"stall": 40},
    "deterministic": {"deterministic": True},
    "known": {"known": [([1] * 10, 3.5), ([0] * 10, 9.0)], "stall": 60},
    "x0": {"x0": [1, 0] * 5},
    "umda": {"algorithm": umda(BITS, 12, 4)},
}


def bumpy(x):
    if x[0] and x[1] and x[2]:
        raise RuntimeError("bump")
    return math.nan if x[3] and x[4] and x[5] else float(x.sum()) + x[6] / 8


# For maximization, which changes the signs of values alone, two are enough.
EVALUATED = [(kl.minimize, way, batch) for way in ("one by one", "vectorized", "threads") for batch in (1, 16)]
EVALUATED += [(kl.maximize, "one by one", 16), (kl.maximize, "vectorized", 1)]


@pytest.mark.parametrize("given", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize(
    ("call", "way", "batch"),
    [pytest.param(*each, marks=() if each in EVALUATED[1:4:2] else pytest.mark.slow) for each in EVALUATED],
)
def test_a_run_goes_on_as_if_it_had_never_stopped(given, batch, way, call, tmp_path):
    path, chance = tmp_path / "run.sqlite", random.Random(batch)
    arguments = given | {"budget": 123, "batch": batch, "rng": 5}
    never = call(bumpy, BITS, **arguments)

    def rows(x):
        return np.array([math.nan if isinstance(v, Exception) else v for v in map(value, x)])

    def value(x):
        try:
            return bumpy(x)
        except RuntimeError as error:
            return error

    if way == "vectorized":
        never = call(rows, BITS, vectorized=True, **arguments)
    for opened in itertools.count():
        fun = fused(rows if way == "vectorized" else bumpy, chance.randint(1, 40) if opened < 8 else 10**6)
        try:
            if way == "threads":
                with ThreadPoolExecutor(4) as pool:
                    result = call(fun, BITS, workers=pool, journal=path, **arguments)
            else:
                result = call(fun, BITS, vectorized=way == "vectorized", journal=path, **arguments)
            break
        except Bomb:
            continue
    assert look_at(result) == look_at(never)
    assert (result.failure is None) == (never.failure is None)
    # And once more, when there is nothing left to do: every value is in the journal.
    assert look_at(call(fused(bumpy, 0), BITS, journal=path, **arguments)) == look_at(never)
    with read(path) as record:
        counts, opt = record.counts(), kl.Optimizer.from_journal(record)
        assert record.direction == call.__name__
        checked = sum(event.fate == CHECKED for event in record)  # not told to the optimizer
    surplus = counts.evaluations - never.nfev  # of the last iteration, beyond where the run ended
    assert 0 <= surplus <= (0 if way == "one by one" else 15)
    assert opt.nfev == counts.evaluations - checked
    assert counts.added == len(given.get("known", ()))


def test_history_and_theta_of_a_run_that_goes_on(tmp_path):
    thetas, again = [], []
    budget = {"budget": 300, "rng": 1}
    never = kl.minimize(ones, BITS, callback=lambda info: thetas.append(info.theta.tolist()), **budget)
    with pytest.raises(Bomb):
        kl.minimize(fused(ones, 150), BITS, journal=tmp_path / "a", **budget)
    result = kl.minimize(
        ones, BITS, journal=tmp_path / "a", callback=lambda info: again.append(info.theta.tolist()), **budget
    )
    assert again == thetas  # the callback has seen all of it
    assert look_at(result) == look_at(never)


def test_a_callback_that_stopped_a_run_stops_it_there_again(tmp_path):
    def stop(info):
        if info.iteration == 5:
            raise StopIteration

    first, second = (
        kl.minimize(fun, BITS, budget=500, callback=stop, journal=tmp_path / "a", rng=0)
        for fun in (ones, fused(ones, 0))
    )
    assert look_at(first) == look_at(second)
    assert first.status == "callback"


def test_the_budget_may_be_raised_and_lowered(tmp_path):
    for budget in (7, 100, 30, 203):
        result = kl.minimize(ones, BITS, budget=budget, batch=8, journal=tmp_path / "a", rng=4)
        assert look_at(result) == look_at(kl.minimize(ones, BITS, budget=budget, batch=8, rng=4))
    assert kl.minimize(fused(ones, 0), BITS, budget=203, batch=8, journal=tmp_path / "a", rng=4).nfev == 203


def test_the_time_that_it_takes_to_go_on_does_not_count(tmp_path):
    kl.minimize(ones, BITS, budget=300, journal=tmp_path / "a", rng=0)
    result = kl.minimize(ones, BITS, budget=300, timeout=1e-9, journal=tmp_path / "a")
    assert (result.status, result.nfev) == ("budget", 300)
    assert kl.minimize(ones, BITS, budget=900, timeout=1e-9, journal=tmp_path / "a").nfev == 301


def test_an_interrupt_loses_nothing(tmp_path):
    count = itertools.count()

    def interrupted(x):
        if next(count) == 41:
            raise KeyboardInterrupt
        return ones(x)

    result = kl.minimize(interrupted, BITS, budget=100, batch=5, journal=tmp_path / "a", rng=0)
    assert (result.status, result.nfev) == ("interrupted", 41)
    result = kl.minimize(fused(ones, 59), BITS, budget=100, batch=5, journal=tmp_path / "a")
    assert look_at(result) == look_at(kl.minimize(ones, BITS, budget=100, batch=5, rng=0))


def test_a_compiled_objective_is_recorded_too(tmp_path):
    pytest.importorskip("numba")
    from knobless.problems import OneMax

    problem = OneMax(12)
    with pytest.raises(Bomb):
        kl.minimize(fused(problem, 70), problem.space, budget=150, journal=tmp_path / "a", rng=0)
    result = kl.minimize(problem, problem.space, budget=150, journal=tmp_path / "a", rng=0)
    assert look_at(result) == look_at(kl.minimize(lambda x: problem(x), problem.space, budget=150, rng=0))
    with read(tmp_path / "a") as record:
        assert record.counts().evaluations == 150


def test_what_was_drawn_on_a_machine_that_rounds_otherwise_counts_as_it_was(tmp_path):
    path = tmp_path / "run.sqlite"
    space = kl.Space(b=kl.Binary(2), f=kl.Float(0, 1))
    given = {"algorithm": kl.pbil_lambda(space), "journal": path}  # whose points are the same on every machine
    kl.minimize(lambda x: x["f"], space, budget=20, rng=0, **given)
    with closing(sqlite3.connect(path)) as connection, connection:
        (code,) = connection.execute("SELECT code FROM events WHERE number = 3").fetchone()
        z = np.nextafter(np.frombuffer(code[1:]), 9.0)
        connection.execute("UPDATE events SET code = ? WHERE number = 3", (code[:1] + z.tobytes(),))
    connection.close()
    assert kl.minimize(lambda x: x["f"], space, budget=30, **given).nfev == 30
    opt = kl.Optimizer(space, **given)
    assert z[0] in opt.run.archive.evaluations()[0]
    opt.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET code = ? WHERE number = 3", (code[:1] + (z + 0.01).tobytes(),))
    connection.close()
    for go_on in (lambda: kl.Optimizer(space, **given), lambda: kl.minimize(ones, space, budget=30, **given)):
        with pytest.raises(kl.JournalError, match="not those drawn now"):
            go_on()


# What a run is.

ANOTHER = {
    "space": ({"space": kl.Binary(11)}, r"space: n: journal has 10, got 11"),
    "rng": ({"rng": 1}, r"rng: journal has the seed 0, got 1 \(without a seed"),
    "a generator": ({"rng": np.random.default_rng(1)}, "rng: journal has another generator"),
    "batch": ({"batch": 4}, "batch: journal has 1, got 4"),
    "deterministic": ({"deterministic": True}, "deterministic: journal has null, got true"),
    "x0": ({"x0": [1] * 10}, "x0: journal has null, got"),
    "algorithm": ({"algorithm": cga(BITS)}, r'adaptation: journal has .*SNR.*, got .*"Fixed"'),
    "alpha": (
        {"algorithm": IGO(Bernoulli(10), Quartiles(), SNR(10**-0.5, 10, 1.25))},
        "alpha: journal has",
    ),
}


@pytest.mark.parametrize(("change", "message"), ANOTHER.values(), ids=ANOTHER)
def test_a_journal_of_another_run_is_refused_and_says_what_differs(change, message, tmp_path):
    path = tmp_path / "run.sqlite"
    recorded = {"algorithm": kl.pbil_lambda(BITS)} if "algorithm" in change else {}
    kl.minimize(ones, BITS, budget=10, journal=path, rng=0, **recorded)
    before = path.read_bytes()
    arguments = {"space": BITS, "rng": 0} | change
    with pytest.raises(kl.JournalError, match=message):
        kl.Optimizer(**arguments, journal=path)
    with pytest.raises(kl.JournalError, match=message):
        kl.minimize(fused(ones, 0), arguments.pop("space"), budget=20, journal=path, **arguments)
    assert path.read_bytes() == before
    assert not (tmp_path / "run.sqlite.lock").exists()


def test_maximize_and_other_known_points_are_another_run(tmp_path):
    known = [([1] * 10, 5.0)]
    kl.minimize(ones, BITS, budget=10, known=known, journal=tmp_path / "a", rng=0)
    with pytest.raises(kl.JournalError, match='direction: journal has "minimize", got "maximize"'):
        kl.maximize(ones, BITS, budget=10, known=known, journal=tmp_path / "a", rng=0)
    for other, message in (
        ([([1] * 10, 6.0)], "journal has other points or values"),
        (known * 2, "journal has 1 points, got 2"),
    ):
        with pytest.raises(kl.JournalError, match=f"known: {message}"):
            kl.minimize(ones, BITS, budget=10, known=other, journal=tmp_path / "a", rng=0)
    # It need not be passed again.
    result = kl.minimize(ones, BITS, budget=30, journal=tmp_path / "a")
    assert look_at(result) == look_at(kl.minimize(ones, BITS, budget=30, known=known, rng=0))


def test_a_space_that_differs_somewhere_inside_is_named(tmp_path):
    def space(high=64, option="x", name="w"):
        return kl.Space(a=[kl.Binary(2), kl.Choice(option, len)], **{name: kl.Integer(1, high)})

    kl.Optimizer(space(), rng=0, journal=tmp_path / "a").close()
    for other, message in (
        (space(high=65), "space.w: high: journal has 64, got 65"),
        (space(option="y"), r'space.a: listed\[1\]: options\[0\]: journal has "x", got "y"'),
        (space(name="v"), r'space: journal has the names \["a", "w"\], got \["a", "v"\]'),
    ):
        with pytest.raises(kl.JournalError, match=message):
            kl.Optimizer(other, rng=0, journal=tmp_path / "a")


@pytest.mark.parametrize("bits", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_a_generator_gives_the_keys_that_are_stored(bits, tmp_path):
    def generator():
        rng = np.random.Generator(getattr(np.random, bits)(7))
        rng.integers(9, size=5, dtype=np.uint32)  # somewhere in the middle
        return rng

    never = kl.minimize(ones, BITS, budget=90, rng=generator())
    with pytest.raises(Bomb):
        kl.minimize(fused(ones, 30), BITS, budget=90, journal=tmp_path / "a", rng=generator())
    for rng, budget in ((generator(), 60), (None, 90)):
        result = kl.minimize(ones, BITS, budget=budget, journal=tmp_path / "a", rng=rng)
    assert look_at(result) == look_at(never)
    mine = generator()
    kl.minimize(ones, BITS, budget=90, journal=tmp_path / "a", rng=mine)
    used = generator()
    kl.minimize(ones, BITS, budget=90, rng=used)
    # The user's generator is used, as it is without a journal.
    assert mine.integers(2**63, size=9).tolist() == used.integers(2**63, size=9).tolist()
    with pytest.raises(kl.JournalError, match="another state"):
        kl.minimize(ones, BITS, budget=90, journal=tmp_path / "a", rng=mine)


def test_a_seed_from_nowhere_is_kept(tmp_path):
    first = kl.minimize(ones, BITS, budget=50, journal=tmp_path / "a")
    with read(tmp_path / "a") as record:
        seed = record.seed
    assert look_at(kl.minimize(ones, BITS, budget=50, rng=seed)) == look_at(first)
    assert look_at(kl.minimize(fused(ones, 0), BITS, budget=50, journal=tmp_path / "a")) == look_at(first)
    assert look_at(kl.minimize(fused(ones, 0), BITS, budget=50, journal=tmp_path / "a", rng=seed)) == look_at(first)


def test_an_algorithm_of_ones_own_goes_on(tmp_path):
    def ranks(f):
        return (f > f[:, None]).mean(axis=1) - (f < f[:, None]).mean(axis=1)

    mine = IGO(Bernoulli(10), ranks, SNR(eps=0.2, lam_max=math.inf))
    with pytest.raises(Bomb):
        kl.minimize(fused(ones, 30), BITS, budget=90, journal=tmp_path / "a", rng=0, algorithm=mine)
    result = kl.minimize(ones, BITS, budget=90, journal=tmp_path / "a", rng=0, algorithm=mine)
    assert look_at(result) == look_at(kl.minimize(ones, BITS, budget=90, rng=0, algorithm=mine))
    with read(tmp_path / "a") as record:
        assert record.algorithm is None
        with pytest.raises(kl.JournalError, match="pass it to from_journal"):
            kl.Optimizer.from_journal(record)
        assert kl.Optimizer.from_journal(record, mine).observed_fun == result.fun


# Values as data.


@domains
def test_a_space_is_read_back_from_its_description(domain):
    space = kl.Space.of(domain)
    data = json.loads(json.dumps(space_data(space)))
    again = space_of(data)
    assert difference(data, space_data(space), "space") is None
    assert again.family == space.family
    assert again.names == space.names
    assert space_data(again) == data or "name" in json.dumps(data)


def test_options_are_known_by_name_where_json_has_no_word():
    class Thing:
        pass

    options = (1, 1.0, True, "1", None, math.inf, -math.inf, (1, 2), len, Thing(), lambda: 0, lambda: 1, Thing)
    data = space_data(kl.Space.of(kl.Choice(*options)))
    again = space_of(json.loads(json.dumps(data))).sole
    assert [*map(repr, again.options[:7])] == [*map(repr, options[:7])]
    names = [*map(repr, again.options[7:])]
    assert names[:2] == ["(1, 2)", "builtins:len"]
    assert "0x" not in "".join(names)  # the same in every process
    assert len(set(names)) == 6


@given(st.data())
@examples(30)
def test_packed_codes_are_read_back(data):
    space = kl.Space.of(data.draw(st.sampled_from(list(DOMAINS.values()))))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    codes = space.family.sample(space.family.initial(), data.draw(st.integers(1, 5)), rng)
    again = space.family.unpack(space.family.pack(codes))
    assert again.dtype == codes.dtype
    assert again.tobytes() == codes.tobytes()
    assert space.family.pack(codes) == b"".join(space.family.pack(code[None]) for code in codes)
    assert len(space.family.pack(codes)) == len(codes) * space.family.width


def test_a_difference_knows_one_from_true():
    assert difference(1, True, "a") == "a: journal has 1, got true"
    assert difference(1, 1.0, "a") is not None
    assert difference([1, {"b": 2}], [1, {"b": 2}], "a") is None
    assert difference([1], [1, 2], "a") == "a: journal has [1], got [1, 2]"


# Contents.


def test_every_evaluation_is_there_with_its_failure(tmp_path):
    path = tmp_path / "run.sqlite"
    begun = time.time()
    seen = []

    def fun(x):
        seen.append(x.tolist())
        return bumpy(x)

    given = {"budget": 120, "algorithm": kl.pbil_lambda(BITS), "batch": 6, "rng": 2}
    result = kl.minimize(fun, BITS, journal=kl.Journal(path, {"mine": [1, "two"]}), **given)
    with read(path) as record:
        events = list(record)
        assert [record.point(event).tolist() for event in events] == seen
        assert [event.failed for event in events] == [math.isnan(v) for v in map(value_or_nan, map(np.array, seen))]
        assert [event.value for event in events if not event.failed] == [
            v for v in map(value_or_nan, map(np.array, seen)) if v == v
        ]
        errors = [event.failure for event in record.failures()]
        assert len(errors) == result.failures > 0
        raised = [error for error in errors if error]
        assert all("in bumpy" in e and e.endswith("RuntimeError: bump\n") for e in raised)
        assert 0 < len(raised) < len(errors)  # the others gave NaN
        assert [event.id for event in events] == list(range(120))
        assert [event.position for event in events[:7]] == [0, 1, 2, 3, 4, 5, 0]
        assert [event.iteration for event in events[:7]] == [0] * 6 + [1]
        for event in events:
            assert begun <= event.started <= event.ended <= time.time()
            assert event.worker.startswith(f"pid {os.getpid()}@")
        assert record.counts()[:4] == (120, result.failures, 0, 0)
        assert record.counts().started == events[0].started
        assert record.meta.keys() == {"mine", "fun", "code", "budget"}
        assert (record.meta["mine"], record.meta["budget"]) == ([1, "two"], 120)
        assert record.meta["fun"].endswith(":test_every_evaluation_is_there_with_its_failure.<locals>.fun")
        assert (record.batch, record.deterministic, record.seed, record.x0) == (6, None, 2, None)
        assert record.space == kl.Space.of(BITS)
        assert record.algorithm == kl.pbil_lambda(BITS).at_least(6)
        assert begun <= record.created <= time.time()
        opt = kl.Optimizer.from_journal(record)
        assert (opt.best.x.tolist(), opt.observed_fun, opt.nfev) == (result.x.tolist(), result.fun, 120)


def value_or_nan(x):
    try:
        return bumpy(x)
    except RuntimeError:
        return math.nan


def test_minus_infinity_and_infinity_are_values(tmp_path):
    values = itertools.cycle([math.inf, -math.inf, math.nan, 1e308])
    kl.minimize(lambda x: next(values), BITS, budget=4, journal=tmp_path / "a", rng=0)
    with read(tmp_path / "a") as record:
        assert [event.value for event in record] == [math.inf, -math.inf, None, 1e308]


def test_a_failure_that_says_too_much_is_cut(tmp_path):
    count = itertools.count()

    def loud(x):
        if next(count) > 2:
            raise RuntimeError("\ud800 " + "a" * 100_000 + " the end")
        return 0.0

    kl.minimize(loud, BITS, budget=5, journal=tmp_path / "a", rng=0)
    with read(tmp_path / "a") as record:
        for event in record.failures():
            assert len(event.failure) < 20_000
            assert event.failure.strip().endswith("the end")


def test_x0_and_the_users_direction_are_recorded(tmp_path):
    x0 = {"w": 3, "f": 0.1, "o": len}
    space = kl.Space(w=kl.Integer(1, 9), f=kl.Float(1e-3, 1, log=True), o=kl.Choice(len, max))
    result = kl.maximize(lambda x: x["w"], space, budget=40, x0=x0, journal=tmp_path / "a", rng=0)
    with read(tmp_path / "a") as record:
        assert record.x0 == {"w": 3, "f": pytest.approx(0.1), "o": "builtins:len"}
        assert next(iter(record)).value == 3.0
        assert (record.direction, record.sign) == ("maximize", -1.0)
        opt = kl.Optimizer.from_journal(record)
        assert opt.observed_fun == result.fun
        assert opt.mode["w"] == result.mode["w"]


# The first evaluation.


def test_a_typo_leaves_no_trace(tmp_path):
    with pytest.raises(ZeroDivisionError):
        kl.minimize(lambda x: 1 / 0, BITS, budget=40, journal=tmp_path / "a", rng=0)
    with read(tmp_path / "a") as record:
        assert record.counts().evaluations == 0
    result = kl.minimize(ones, BITS, budget=40, journal=tmp_path / "a", rng=0)
    assert look_at(result) == look_at(kl.minimize(ones, BITS, budget=40, rng=0))


def test_a_typo_in_threads_leaves_no_trace(tmp_path):
    # The first evaluation is the last to come back: the others have been recorded by then.
    slow = threading.Event()
    count = itertools.count()

    def typo(x):
        if next(count) == 0:
            slow.wait(300)
        elif next(count) > 6:
            slow.set()
        raise ZeroDivisionError

    with ThreadPoolExecutor(4) as pool, pytest.raises(ZeroDivisionError):
        kl.minimize(typo, BITS, budget=40, batch=8, workers=pool, journal=tmp_path / "a", rng=0)
    result = kl.minimize(ones, BITS, budget=40, batch=8, journal=tmp_path / "a", rng=0)
    assert look_at(result) == look_at(kl.minimize(ones, BITS, budget=40, batch=8, rng=0))


class Scripted:
    """A pool: the first outcome comes alone, or the run is interrupted; the others come when asked again."""

    capacity = 4

    def __init__(self, first):
        self.first, self.out = first, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, candidates):
        self.out += [id for id, _ in candidates]

    def discard(self, ids):
        self.out = [id for id in self.out if id not in ids]

    def wait(self, timeout=None):
        if timeout != 0.0:
            if self.first is KeyboardInterrupt:
                raise KeyboardInterrupt
            return [Outcome(self.out.pop(0), self.first, 0.0, 1.0, "first")]
        return [
            Outcome(id, 7.0 if self.first is KeyboardInterrupt else self.first, 0.0, 1.0, "late") for id in self.out
        ]


def test_what_has_come_when_the_first_has_failed_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("knobless.parallel.pool.pool_of", lambda *_: Scripted(ZeroDivisionError("typo")))
    with pytest.raises(ZeroDivisionError):
        kl.minimize(ones, BITS, budget=40, batch=8, workers=4, journal=tmp_path / "a", rng=0)
    with read(tmp_path / "a") as record:
        assert record.counts().evaluations == 0


def test_what_has_come_when_a_run_is_interrupted_is_recorded_and_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("knobless.parallel.pool.pool_of", lambda *_: Scripted(KeyboardInterrupt))
    result = kl.minimize(ones, BITS, budget=40, batch=8, workers=4, journal=tmp_path / "a", rng=0)
    assert (result.status, result.nfev, result.fun) == ("interrupted", 4, 7.0)
    with read(tmp_path / "a") as record:
        assert record.counts().evaluations == 4


def test_an_error_after_going_on_is_a_failure_like_any_other(tmp_path):
    kl.minimize(ones, BITS, budget=2, batch=2, journal=tmp_path / "a", rng=0)
    calls = itertools.count()

    def sometimes(x):
        if next(calls) == 0:
            raise RuntimeError("not now")
        return ones(x)

    result = kl.minimize(sometimes, BITS, budget=10, batch=2, journal=tmp_path / "a", rng=0)
    assert (result.failures, result.nfev) == (1, 10)


def test_a_run_that_failed_throughout_ends_so_again(tmp_path):
    calls = itertools.count()

    def broken(x):
        if next(calls) == 0:
            return math.nan
        raise OSError("disk full")

    first, second = (
        kl.minimize(fun, BITS, budget=10**6, journal=tmp_path / "a", rng=0) for fun in (broken, fused(broken, 0))
    )
    assert look_at(first) == look_at(second)
    assert second.message == f"Every evaluation failed. The first failure: the objective returned NaN{NOT_CALLED}"


def test_a_commit_waits_for_the_disk_where_that_is_worth_it(tmp_path, monkeypatch):
    clock = itertools.count(step=0.01)
    monkeypatch.setattr("knobless.journal.sqlite.time.monotonic", lambda: next(clock))
    statements = []

    def traced(path, writable):
        connection = connect(path, writable)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr("knobless.journal.sqlite.connect", traced)
    writer = Writer(kl.Journal(tmp_path / "a"))

    ids = itertools.count()

    def waits(started, ended):
        statements.clear()
        writer.append([Event(1, 1, next(ids), b"", 1.0, None, 0, 0, started, ended, None)])
        found = "PRAGMA synchronous = FULL" in statements
        assert (statements[-1] == "PRAGMA synchronous = NORMAL") == found
        return found

    assert [waits(100.0, 100.0 + took) for took in (0.0, 0.0, 0.2, 0.0, 60.0, 60.0)] == [1, 0, 1, 0, 1, 1]
    assert waits(100.0, 90.0)  # the system's clock was set back: how long it took is not known
    assert not waits(None, 100.0)  # as `tell` records it
    assert any(waits(100.0, 100.0) for _ in range(110))  # once a second in any case
    clock = itertools.count(start=9.0, step=0.1)
    assert waits(100.0, 100.01)  # set back by less than the evaluation took
    writer.close()


# One writer, many readers.


def test_a_second_writer_is_refused(tmp_path):
    path = tmp_path / "run.sqlite"
    opt = kl.Optimizer(BITS, rng=0, journal=path)
    for _ in range(2):
        with pytest.raises(kl.JournalError, match="another run is writing to it"):
            kl.minimize(ones, BITS, budget=10, journal=path)
    script = f"""
        import knobless as kl
        try:
            kl.Optimizer(kl.Binary(10), journal={str(path)!r})
        except kl.JournalError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert "another run is writing to it" in done.stdout
    opt.tell(batch := opt.ask(), [1.0] * len(batch))  # and the first is still there
    opt.close()
    kl.Optimizer(BITS, rng=0, journal=path).close()
    opt = kl.Optimizer(BITS, rng=0, journal=path)
    del opt  # also by itself
    kl.Optimizer(BITS, rng=0, journal=path).close()
    assert [each.name for each in tmp_path.iterdir()] == ["run.sqlite"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes are forked")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking beside threads
def test_a_child_that_is_left_behind_does_not_hold_the_journal(tmp_path):
    opt = kl.Optimizer(BITS, rng=0, journal=tmp_path / "a")
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    try:
        opt.close()
        kl.Optimizer(BITS, rng=0, journal=tmp_path / "a").close()
    finally:
        child.kill()
        child.join()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes are forked")
def test_a_child_that_ends_does_not_let_go_of_its_parents_journal(tmp_path):
    script = f"""
        import os, subprocess, sys
        import knobless as kl

        opt = kl.Optimizer(kl.Binary(10), rng=0, journal={str(tmp_path / "a")!r})
        child = os.fork()
        if child == 0:
            sys.exit()  # as a process ends that cleans up after itself
        os.waitpid(child, 0)
        batch = opt.ask()
        opt.tell(batch, [1.0] * len(batch))
        second = "import knobless as kl; kl.Optimizer(kl.Binary(10), journal={str(tmp_path / "a")!r})"
        done = subprocess.run([sys.executable, "-c", second], capture_output=True, text=True)
        print(opt.nfev, "another run is writing" in done.stderr)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert done.stdout == "1 True\n", done.stderr
    with read(tmp_path / "a") as record:
        assert record.counts().evaluations == 1


def test_readers_see_what_is_committed_and_block_nobody(tmp_path):
    path = tmp_path / "run.sqlite"
    seen = []

    def watched(x):
        with read(path) as record:
            seen.append(record.counts().evaluations)
        return ones(x)

    first = None
    opt = kl.Optimizer(BITS, rng=0, journal=path)
    opt.tell(opt.ask(3), [1.0, 2.0, 3.0])
    with read(path) as record:
        reading = iter(record)
        first = next(reading)  # holds its view of the file
        opt.tell(batch := opt.ask(), [0.0] * len(batch))
        assert len(list(reading)) == 2
        assert record.counts().evaluations == 3 + len(batch)
    assert first.value == 1.0
    opt.close()
    path = tmp_path / "other.sqlite"
    kl.minimize(watched, BITS, budget=30, journal=path, rng=0)
    assert seen == list(range(30))


def test_a_reader_cannot_write(tmp_path):
    kl.minimize(ones, BITS, budget=3, journal=tmp_path / "a", rng=0)
    with closing(connect(tmp_path / "a", writable=False)) as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("DELETE FROM events")


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be renamed there")
@pytest.mark.parametrize("how", ["deleted", "renamed", "replaced"])
def test_a_journal_that_is_no_longer_at_its_path_is_copied_and_reported(how, tmp_path):
    path, calls = tmp_path / "run.sqlite", []

    def moved(x):
        calls.append(x)
        if len(calls) == 10:
            if how == "deleted":
                path.unlink()
            elif how == "renamed":
                path.rename(tmp_path / "other")
            else:
                (tmp_path / "other").write_bytes(path.read_bytes())
                (tmp_path / "other").replace(path)
        return ones(x)

    with pytest.raises(kl.JournalError, match=r"deleted, renamed or replaced.*run\.sqlite\.saved, a journal"):
        kl.minimize(moved, BITS, budget=40, journal=path, rng=0)
    assert len(calls) == 10
    saved = tmp_path / "run.sqlite.saved"
    with read(saved) as record:
        assert record.counts().evaluations == 9
    others = {"deleted": set(), "renamed": {"other"}, "replaced": {"run.sqlite"}}[how]
    assert {file.name for file in tmp_path.iterdir()} == {"run.sqlite.saved"} | others  # neither a lock nor a log
    resumed = kl.minimize(ones, BITS, budget=40, journal=saved, rng=0)
    assert resumed.fun == kl.minimize(ones, BITS, budget=40, rng=0).fun


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be removed there")
def test_a_writer_without_its_lock_ends(tmp_path):
    path = tmp_path / "run.sqlite"
    first = kl.Optimizer(BITS, rng=0, journal=path)
    batch = first.ask(3)
    first.tell(batch[:1], [1.0])
    (tmp_path / "run.sqlite.lock").unlink()
    second = kl.Optimizer(BITS, rng=0, journal=path)
    with pytest.raises(kl.JournalError, match=r"the lock file .*run\.sqlite\.lock was deleted or replaced"):
        first.tell(batch[1:], [2.0, 3.0])
    with pytest.raises(kl.JournalError, match="the journal was closed"):
        first.tell(batch[1:], [2.0, 3.0])
    second.tell(second.ask(2), [4.0, 5.0])
    second.close()
    with read(path) as record:
        assert [event.value for event in record] == [1.0, 4.0, 5.0]


def test_a_second_row_of_a_candidate_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "run.sqlite"
    monkeypatch.setattr(Lock, "is_in_place", lambda lock: True)  # at the moment at which both writers write
    first = kl.Optimizer(BITS, rng=0, journal=path)
    batch = first.ask(2)
    (tmp_path / "run.sqlite.lock").unlink()
    second = kl.Optimizer(BITS, rng=0, journal=path)
    first.tell(batch, [1.0, 2.0])
    with pytest.raises(kl.JournalError, match="cannot record an evaluation: UNIQUE constraint failed"):
        second.tell(second.ask(2), [3.0, 4.0])
    second.close()
    first.close()
    with kl.Optimizer(BITS, rng=0, journal=path) as opt:
        assert (opt.nfev, opt.best.fun) == (2, 1.0)


def test_readers_leave_no_files(tmp_path):
    path = tmp_path / "run.sqlite"
    kl.minimize(ones, BITS, budget=5, journal=path, rng=0)
    with read(path) as record, read(path) as other:
        assert len(list(record)) == len(list(other)) == 5
    assert [file.name for file in tmp_path.iterdir()] == ["run.sqlite"]


# What is wrong with a file.


def test_files_that_are_no_journals(tmp_path):
    def refused(message, path, reads=True):
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(kl.JournalError, match=message):
            kl.Optimizer(BITS, journal=path)
        if reads:
            with pytest.raises(kl.JournalError, match=message):
                read(path)
        assert (path.read_bytes() if path.is_file() else None) == before

    text = tmp_path / "text"
    text.write_text("a shopping list " * 99)
    refused("not a database", text)
    other = tmp_path / "other"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE events (id)")
    connection.close()
    refused("a database of another application", other)
    refused("no such file|unable to open|cannot open", tmp_path / "no such folder" / "run")
    refused("expected a file", tmp_path)
    assert not (tmp_path.parent / f"{tmp_path.name}.lock").exists()
    for statement, message in (
        ("PRAGMA user_version = 99", "cannot resume: expected journal format 7, got format 99"),
        ("CREATE TABLE more (id)", "it has other tables"),
        ("CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END", "it has other tables"),
        ("UPDATE events SET value = x'00' WHERE number = 2", "row 2 has values of other types"),
        ("UPDATE events SET value = 'drop table' WHERE number = 2", "row 2 has values of other types"),
        ("UPDATE header SET json = '[]' WHERE name = 'identity'", "identity: expected a dict"),
    ):
        path = tmp_path / "changed"
        path.unlink(missing_ok=True)
        kl.minimize(ones, BITS, budget=5, journal=path, rng=0)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
        connection.close()
        refused(message, path)


def test_a_view_in_the_place_of_a_table_is_not_looked_at(tmp_path):
    path = tmp_path / "endless"
    kl.minimize(ones, BITS, budget=5, journal=path, rng=0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE events")
        connection.execute(
            "CREATE VIEW events AS WITH RECURSIVE t(number) AS (SELECT 1 UNION ALL SELECT 1 + number FROM t) "
            "SELECT number, 1 AS drawn, 1 AS fate FROM t"
        )
    connection.close()
    with pytest.raises(kl.JournalError, match="it has other tables"):
        read(path)


def test_an_empty_file_is_a_new_journal(tmp_path):
    path = tmp_path / "run.sqlite"
    path.touch()
    with pytest.raises(kl.JournalError, match="nothing has been recorded yet"):
        read(path)
    assert kl.minimize(ones, BITS, budget=5, journal=str(path), rng=0).nfev == 5
    # As a process that is killed while it makes one leaves it.
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert kl.minimize(ones, BITS, budget=5, journal=path, rng=0).nfev == 5


def test_a_truncated_journal_says_so(tmp_path):
    path = tmp_path / "run.sqlite"
    kl.minimize(ones, BITS, budget=2000, journal=path, rng=0)
    whole = path.read_bytes()
    for size in (10, 100, 5000, len(whole) // 2, len(whole) - 100):
        path.write_bytes(whole[:size])
        with pytest.raises(kl.JournalError):
            kl.Optimizer(BITS, rng=0, journal=path)
        with pytest.raises(kl.JournalError):
            read(path)


def test_more_than_minimize_does(tmp_path):
    opt = kl.Optimizer(BITS, rng=0, batch=4, journal=tmp_path / "a")
    out = opt.ask(6)
    opt.cancel(out[0])
    opt.tell(out[1:], [1.0] * 5)
    opt.close()
    with pytest.raises(kl.JournalError, match="is not one that `minimize` would evaluate"):
        kl.minimize(ones, BITS, budget=50, batch=4, journal=tmp_path / "a", rng=0)


def test_sizes_that_a_file_declares_are_not_believed(tmp_path):
    path = tmp_path / "run.sqlite"

    def altered(name, change):
        path.unlink(missing_ok=True)
        kl.minimize(ones, BITS, budget=5, journal=path, rng=0)
        with closing(sqlite3.connect(path)) as connection, connection:
            (text,) = connection.execute("SELECT json FROM header WHERE name = 'identity'").fetchone()
            identity = json.loads(text)
            identity[name] = change(identity[name])
            connection.execute("UPDATE header SET json = ? WHERE name = 'identity'", (json.dumps(identity),))
        connection.close()

    for huge in (10**9, 10**18, 10**300):
        altered("space", lambda data: data | {"n": huge})  # noqa: B023
        with pytest.raises(kl.JournalError, match="at most 10000000 parameters"):
            read(path)
    altered("space", lambda data: {"type": "Choice", "options": ["a", "b"], "p": [0.5, 0.5], "n": 10**12})
    with pytest.raises(kl.JournalError, match="at most 10000000 parameters"):
        read(path)
    deep = {"type": "Binary", "n": 1, "p": 0.5}
    for _ in range(60):
        deep = {"listed": [deep]}
    altered("space", lambda data: deep)
    with pytest.raises(kl.JournalError, match="expected a space"):
        read(path)
    altered("batch", lambda data: 2**62)
    with pytest.raises(kl.JournalError), read(path) as record:
        kl.Optimizer.from_journal(record)
    altered("batch", lambda data: data)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET drawn = ?", (2**62,))
    connection.close()
    with read(path) as record, pytest.raises(kl.JournalError, match="more than a file may ask for"):
        kl.Optimizer.from_journal(record)


def test_a_row_has_one_point(tmp_path):
    path = tmp_path / "run.sqlite"
    kl.minimize(ones, BITS, budget=5, journal=path, rng=0, known=[(np.zeros(10, int), 9.0)])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET code = zeroblob(4) WHERE id = -1")
    connection.close()
    uses = (
        lambda record: record.point(next(iter(record))),
        kl.Optimizer.from_journal,
        Trace,
        lambda record: kl.minimize(ones, BITS, budget=5, journal=path, rng=0),
    )
    for use in uses:
        with read(path) as record, pytest.raises(kl.JournalError, match="expected 2 bytes for each point"):
            use(record)


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_a_full_disk(tmp_path):
    path = tmp_path / "run.sqlite"
    script = f"""
        import resource, signal
        import knobless as kl

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        try:
            kl.minimize(lambda x: float(x.sum()), kl.Binary(400), budget=10**6, journal={str(path)!r}, rng=0)
        except kl.JournalError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert "cannot record an evaluation" in done.stdout
    assert "Rows recorded before are not affected" in done.stdout
    with read(path) as record:
        recorded = record.counts().evaluations
    assert recorded > 10
    calls = []
    space = kl.Binary(400)
    result = kl.minimize(lambda x: calls.append(x) or ones(x), space, budget=recorded + 100, journal=path, rng=0)
    assert len(calls) == 100
    assert look_at(result) == look_at(kl.minimize(ones, space, budget=recorded + 100, rng=0))


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="no such users there")
def test_a_folder_where_nothing_can_be_written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("open")
    path = folder / "run.sqlite"
    kl.minimize(ones, BITS, budget=20, journal=path, rng=0)
    above = [folder, *folder.parents]
    modes = [(each, each.stat().st_mode) for each in above if each.owner() == folder.owner()]
    script = f"""
        import os
        import knobless as kl
        from knobless.journal.records import read

        names = kl.Binary, kl.JournalError, kl.Optimizer  # imported before the files of the package may be unreadable
        if os.geteuid() == 0:
            os.setuid(65534)
        with read({str(path)!r}) as record:
            print(record.counts().evaluations, kl.Optimizer.from_journal(record).nfev)
        for name in ("run.sqlite", "new.sqlite"):
            try:
                kl.Optimizer(kl.Binary(10), journal=os.path.join({str(folder)!r}, name))
            except kl.JournalError as error:
                print(error)
    """
    try:
        for each, mode in modes[1:]:
            if each.name.startswith(("pytest", "popen")):
                each.chmod(mode | 0o055)
        folder.chmod(0o555)
        path.chmod(0o444)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300
        )
    finally:
        for each, mode in modes:
            each.chmod(mode)
    assert done.stderr == ""
    first, *others = done.stdout.splitlines()
    assert first == "20 20"
    assert len(others) == 2
    assert all("cannot open for writing" in each for each in others)


WRONG = {
    "a number": (3, TypeError, "journal: expected a path, got 3"),
    "nothing": ("", TypeError, "journal: expected a path, got ''"),
}


@pytest.mark.parametrize(("journal", "error", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_path(journal, error, message):
    with pytest.raises(error, match=message):
        kl.minimize(fused(ones, 0), BITS, budget=5, journal=journal)
    with pytest.raises(TypeError, match="meta: expected a dict that JSON can represent"):
        kl.Journal("a", {"a": len})


def test_notes_are_added_to(tmp_path):
    for meta in ({"a": 1, "b": 2}, {"b": 3}, {}):
        kl.Optimizer(BITS, rng=0, journal=kl.Journal(tmp_path / "a", meta)).close()
    with read(tmp_path / "a") as record:
        assert record.meta == {"a": 1, "b": 3}


def test_a_run_that_is_refused_leaves_the_notes_alone(tmp_path):
    path = tmp_path / "run.sqlite"
    kl.Optimizer(BITS, rng=0, journal=kl.Journal(path, {"whose": "first"})).close()
    with pytest.raises(kl.JournalError, match="does not match this run"):
        kl.Optimizer(kl.Binary(11), rng=0, journal=kl.Journal(path, {"whose": "second"}))
    with read(path) as record:
        assert record.meta == {"whose": "first"}


def test_one_candidate_may_fail_alone(tmp_path):
    path = tmp_path / "run.sqlite"
    opt = kl.Optimizer(BITS, rng=0, journal=path)
    opt.tell(opt.ask(1)[0], ValueError("too hot"))
    opt.close()
    with read(path) as record:
        assert "too hot" in next(record.failures()).failure


def test_a_link_to_a_journal_has_the_same_lock(tmp_path):
    path, link = tmp_path / "run.sqlite", tmp_path / "latest.sqlite"
    opt = kl.Optimizer(BITS, rng=0, journal=path)
    link.symlink_to(path)
    with pytest.raises(kl.JournalError, match="another run is writing to it"):
        kl.Optimizer(BITS, rng=0, journal=link)
    opt.close()


def test_a_function_that_changes_the_folder_takes_no_lock_of_others(tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    held = kl.Optimizer(BITS, rng=0, journal=other / "run.sqlite")

    def moves(x):
        os.chdir(other)
        return 0.0

    kl.minimize(moves, BITS, budget=4, rng=0, journal="run.sqlite")
    assert (other / "run.sqlite.lock").exists()
    assert not (tmp_path / "run.sqlite.lock").exists()
    held.close()


def test_a_timeout_does_not_count_what_is_recalled(tmp_path, monkeypatch):
    path = tmp_path / "run.sqlite"
    kl.minimize(ones, BITS, budget=300, rng=0, journal=path)
    recalled, clock = 0, time.monotonic

    def callback(info):
        nonlocal recalled
        recalled += info.nfev <= 300
        if info.nfev > 310:
            raise StopIteration

    monkeypatch.setattr(time, "monotonic", lambda: clock() + 1000.0 * recalled)  # each takes longer than the timeout
    result = kl.minimize(ones, BITS, budget=1000, timeout=300.0, journal=path, callback=callback)
    assert recalled > 10
    assert (result.status, result.nfev > 310) == ("callback", True)


def test_values_may_come_from_a_generator(tmp_path):
    opt = kl.Optimizer(BITS, rng=0, batch=3, journal=tmp_path / "run.sqlite")
    opt.tell(opt.ask(), (value for value in (1.0, ValueError("x"), 2.0)))
    opt.close()
    with read(tmp_path / "run.sqlite") as record:
        assert [event.value for event in record] == [1.0, None, 2.0]


def test_a_file_without_its_log_still_says_whose_it_is(tmp_path):
    path, alone = tmp_path / "run.sqlite", tmp_path / "alone.sqlite"
    opt = kl.Optimizer(BITS, rng=0, journal=path)
    opt.tell(opt.ask(2), [1.0, 2.0])
    alone.write_bytes(path.read_bytes())
    opt.close()
    with read(alone) as record:
        assert space_data(record.space) == space_data(kl.Space.of(BITS))
        assert record.seed == 0


# What must not happen to a journal.


@pytest.mark.parametrize("part", [slice(None, None, -1), slice(None, None, 2), slice(2, None, -1), slice(5, 0, -3)])
@pytest.mark.parametrize("end", ["tell", "cancel"])
def test_any_slice_of_a_batch_is_recorded_as_it_was_told(part, end, tmp_path):
    opt = kl.Optimizer(BITS, rng=1, batch=6, journal=tmp_path / "a")
    some = opt.ask()[part]
    opt.tell(some, some.x.sum(axis=1)) if end == "tell" else opt.cancel(some)
    opt.close()
    with read(tmp_path / "a") as record:
        assert [record.point(event).tolist() for event in record] == some.x.tolist()
        assert all(event.value in (None, record.point(event).sum()) for event in record)
    resumed = kl.Optimizer(BITS, batch=6, journal=tmp_path / "a")
    assert look(resumed) == look(opt)
    resumed.close()


def test_telling_nothing_changes_nothing(tmp_path):
    opt = kl.Optimizer(BITS, rng=1, batch=6, journal=tmp_path / "a")
    batch, before = opt.ask(), look(opt)
    opt.tell([], [])
    opt.tell(batch[:0], np.empty(0))
    opt.cancel([])
    assert look(opt) == before
    opt.close()
    with read(tmp_path / "a") as record:
        assert list(record) == []


@pytest.mark.slow
def test_of_two_threads_that_open_a_journal_one_is_refused(tmp_path):
    for i in range(40):
        path, both, opened, refused = tmp_path / f"{i}", threading.Barrier(2), [], []

        def one(path=path, both=both, opened=opened, refused=refused):
            both.wait()
            try:
                opened.append(kl.Optimizer(BITS, rng=0, journal=path))
            except kl.JournalError as error:
                refused.append(str(error))

        threads = [threading.Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(opened) == 1
        assert "another run is writing to it" in refused[0]
        opened[0].close()


def opened_elsewhere(path):
    """Return the error of another process that opens the journal."""
    script = f"import knobless as kl; kl.Optimizer(kl.Binary(10), journal={str(path)!r}).close()"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60).stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_copy_of_the_folder_made_by_the_process_does_not_release_the_lock(tmp_path):
    (tmp_path / "run").mkdir()
    opt = kl.Optimizer(BITS, rng=0, journal=tmp_path / "run" / "a")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert "another run is writing to it" in opened_elsewhere(tmp_path / "run" / "a")
    opt.close()
    assert opened_elsewhere(tmp_path / "run" / "a") == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_cannot_write_and_does_not_keep_the_lock(tmp_path):
    opt = kl.Optimizer(BITS, rng=0, journal=tmp_path / "a")
    batch = opt.ask()
    there, here = os.pipe()
    child = os.fork()
    if not child:
        try:
            opt.tell(batch, [1.0] * len(batch))
            os._exit(1)
        except kl.JournalError:
            os.read(there, 1)  # outlives the lock of its parent
            os._exit(0)
    opt.tell(batch, [2.0] * len(batch))
    opt.close()
    assert opened_elsewhere(tmp_path / "a") == ""
    os.write(here, b"x")
    assert os.waitpid(child, 0)[1] == 0
    with read(tmp_path / "a") as record:
        assert [event.value for event in record] == [2.0] * len(batch)


def test_sizes_of_hostile_journals_are_refused(tmp_path):
    def refused(name, change, **options):
        path = tmp_path / name
        opt = kl.Optimizer(kl.Binary(2), rng=0, journal=path, **options)
        while not opt.exhausted and opt.nfev < 4:
            batch = opt.ask()
            opt.tell(batch, [0.0] * len(batch))
        opt.close()
        with closing(sqlite3.connect(path)) as connection, connection:
            change(connection)
        with read(path) as record, pytest.raises(kl.JournalError, match="not a valid journal"):
            kl.Optimizer.from_journal(record)

    def batch(connection):
        connection.execute("UPDATE header SET json = json_set(json, '$.batch', 20000000) WHERE name = 'identity'")

    row = "INSERT INTO events SELECT ?, ?, fate, id + ?, code, value, failure, iteration, position, 0.0, 0.0, NULL, "
    row += "NULL, NULL, 0, NULL FROM events WHERE number = 1"
    refused("batch", batch, deterministic=True)
    refused("batch of PBIL", batch)
    refused("known points", lambda c: c.execute(row, (99, 2**62, 9)), deterministic=True)
    refused("one row", lambda c: c.execute(row, (99, 2**62, 9)))
    refused("growing", lambda c: c.executemany(row, [(99 + i, i * 2**19, i * 2**19 - 1) for i in range(1, 20)]))
    refused("header", lambda c: c.execute("INSERT OR REPLACE INTO header VALUES ('drawn', ?)", (str(2**60),)))
    with pytest.raises(ValueError, match="batch: expected at most"):
        kl.Optimizer(BITS, batch=2**40, algorithm=kl.pbil_lambda(BITS), journal=tmp_path / "mine")


def test_the_journal_of_a_converged_run_leads_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("knobless.run.run_state.MAX_STALE", 60)
    algorithm = kl.pbil_lambda(BITS)
    result = kl.minimize(
        ones, BITS, budget=10**4, algorithm=algorithm, deterministic=True, journal=tmp_path / "a", rng=0
    )
    assert result.status == "converged"
    with read(tmp_path / "a") as record:
        opt, shown = kl.Optimizer.from_journal(record), summary(record)
        seen = Trace(record)
    assert (opt.nit, shown.nit, seen.steps[-1].iteration) == (result.nit,) * 3
    assert opt.mode.tolist() == shown.mode.tolist() == result.mode.tolist()
    again = kl.minimize(ones, BITS, budget=10**4, algorithm=algorithm, deterministic=True, journal=tmp_path / "a")
    assert look_at(again) == look_at(result)


def test_an_exhausted_optimizer_is_resumed_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("knobless.run.run_state.MAX_STALE", 60)
    opt = kl.Optimizer(BITS, kl.pbil_lambda(BITS), rng=3, deterministic=True, journal=tmp_path / "a")
    while len(batch := opt.ask()):
        opt.tell(batch, [ones(c.x) for c in batch])
    opt.close()
    resumed = kl.Optimizer(BITS, kl.pbil_lambda(BITS), deterministic=True, journal=tmp_path / "a")
    assert look(resumed) == look(opt)
    resumed.close()


@given(st.permutations(range(8)), st.integers(1, 8), st.data())
@settings(max_examples=40, deadline=None)
def test_the_best_and_the_first_failure_do_not_depend_on_the_order_of_tells(order, size, data):
    values = data.draw(st.lists(st.sampled_from([0.0, -0.0, 1.0, math.nan, "raises"]), min_size=8, max_size=8))
    values = [ValueError(f"{i}") if value == "raises" else value for i, value in enumerate(values)]
    with tempfile.TemporaryDirectory() as folder:
        opt = kl.Optimizer(kl.Binary(12), rng=1, batch=2, journal=f"{folder}/a")
        batch = opt.ask(8)
        for start in range(0, 8, size):
            some = order[start : start + size]
            opt.tell([batch[i] for i in some], [values[i] for i in some])
        opt.close()
        with read(f"{folder}/a") as record:
            shown, replayed, seen = summary(record), kl.Optimizer.from_journal(record), Trace(record)
    numbers = [math.nan if isinstance(value, ValueError) else value for value in values]
    failed = [i for i, value in enumerate(numbers) if value != value]
    lowest = min([value for value in numbers if value == value], default=math.nan)
    if len(failed) < 8:
        first = next(i for i, value in enumerate(numbers) if value == lowest)
        for x, fun in ((opt.best.x, opt.best.fun), (replayed.best.x, replayed.best.fun), (shown.x, shown.fun)):
            assert (x.tolist(), repr(fun)) == (batch[first].x.tolist(), repr(numbers[first]))
        assert opt.space.decode(seen.best[2]).tolist() == batch[first].x.tolist()
    if failed:
        text = "".join(traceback.format_exception(e)) if isinstance(e := values[failed[0]], ValueError) else NAN
        assert opt.failure == replayed.failure == shown.failure == text


def test_zero_keeps_its_sign_and_the_largest_values_their_mean(tmp_path):
    choice = kl.Choice("a", "b")
    opt = kl.Optimizer(choice, kl.pbil_lambda(choice), rng=0, batch=8, journal=tmp_path / "a")
    values = [-0.0, 0.0, 1.7e308, -1.7e308, 1.7e308, 1.7e308, 5e-324, -math.inf]
    opt.tell(opt.ask(), values)
    opt.close()
    with read(tmp_path / "a") as record:
        assert [repr(event.value) for event in record] == [repr(value) for value in values]
    opt = kl.Optimizer(choice, kl.pbil_lambda(choice), rng=0, batch=8)
    opt.tell(opt.ask(), [1.7e308] * 8)
    assert opt.mode_fun == pytest.approx(1.7e308)


def test_odd_paths_are_journal_errors(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    kl.Optimizer(BITS, rng=0, journal=tmp_path / "one").close()
    os.link(tmp_path / "one", tmp_path / "two")
    for path in (tmp_path / "nul\0", tmp_path / "loop", tmp_path / "two"):
        with pytest.raises(kl.JournalError):
            kl.Optimizer(BITS, journal=path)
    for path in (tmp_path / "nul\0", tmp_path / "loop"):
        with pytest.raises(kl.JournalError):
            read(path)
    odd = os.fsdecode(bytes(tmp_path) + b"/\xff?#%41")
    kl.minimize(ones, BITS, budget=5, journal=odd, rng=0)
    with read(odd) as record:
        assert record.counts().evaluations == 5


def test_a_damaged_description_of_the_space_is_a_journal_error(tmp_path):
    path = tmp_path / "run.sqlite"
    space = kl.Space(a=kl.Binary(3), b=kl.Choice("x", "y"))
    kl.minimize(lambda x: float(x["a"].sum()), space, budget=5, rng=0, journal=path)
    with closing(sqlite3.connect(path)) as connection, connection:
        (text,) = connection.execute("SELECT json FROM header WHERE name = 'identity'").fetchone()
        identity = json.loads(text)
        identity["space"] = {"named": 7}
        connection.execute("UPDATE header SET json = ? WHERE name = 'identity'", (json.dumps(identity),))
    connection.close()
    with pytest.raises(kl.JournalError):
        kl.minimize(lambda x: float(x["a"].sum()), space, budget=9, batch=1, rng=0, journal=path)


def test_a_closed_journal_has_the_iterations_that_equal_points_ended(tmp_path):
    seen = []
    for seed in range(20):
        path = tmp_path / f"{seed}.sqlite"
        opt = kl.Optimizer(kl.Binary(3), kl.pbil_lambda(kl.Binary(3)), rng=seed, deterministic=True, journal=path)
        while opt.nfev < 4:
            opt.tell(batch := opt.ask(1), [float(c.x.sum()) for c in batch])
        told = opt.nit
        opt.ask(1)
        opt.close()
        again = kl.Optimizer.from_journal(path)
        assert (again.nit, again.theta.tolist(), len(again.pending)) == (opt.nit, opt.theta.tolist(), len(opt.pending))
        seen.append(opt.nit > told)
    assert any(seen)
