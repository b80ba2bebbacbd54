"""Runs in which values are used in the order of arrival: any order of draws and values, journals, and workers."""

import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import knobless as kl
from knobless.algorithms import p3, pbil_elitist
from knobless.run import run_state

SPACES = {
    "bits": kl.Binary(12),
    "many bits": kl.Binary(120),
    "choices": kl.Choice("a", "b", "c", n=5),
    "numbers": kl.Space(a=kl.Integer(0, 9), b=kl.Float(0, 1, n=2)),
    "conditional": kl.Space(c=kl.Choice("x", "y"), x=kl.Float(0, 1).when(c="x"), y=kl.Binary(4).when(c="y")),
    "subset": kl.Subset(9, (2, 5)),
}


QUICK = ("bits", "numbers")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SPACES]
each_space = pytest.mark.parametrize("name", NAMES)


def numbers(x):
    if isinstance(x, dict):
        return [each for value in x.values() for each in numbers(value)]
    return [float(ord(each)) if isinstance(each, str) else float(each) for each in np.ravel(x).tolist()]


def value(x):
    """A value with ties, and failures."""
    found = numbers(x)
    total = sum((each - 0.3) ** 2 * (1 + i % 3) for i, each in enumerate(found))
    return math.nan if total * 7 % 1 < 0.05 else round(total, 1)


def points(batch):
    return [(c.id, repr(c.x)) for c in batch]


def play(opt, chance, calls, fun=value):
    """Ask and tell at random; return all candidates, and check that each ask gives as many as were asked for."""
    every, out = [], []
    for _ in range(calls):
        if len(out) < 16 and chance.random() < 0.5:
            k = chance.choice([1, 1, 2, 5])
            batch = opt.ask(k)
            assert len(batch) == k or opt.exhausted
            every += points(batch)
            out += list(batch)
        elif out:
            candidate = out.pop(chance.randrange(len(out)))
            if chance.random() < 0.05:
                opt.cancel(candidate)
            else:
                opt.tell(candidate, fun(candidate.x))
    return every, out


def recipes(space):
    yield {}
    yield {"deterministic": True}
    yield {"deterministic": False}
    yield {"algorithm": kl.pbil_lambda(space), "deterministic": True}
    yield {"algorithm": pbil_elitist(space), "batch": 4}
    yield {"algorithm": kl.search(space), "deterministic": True, "batch": 3}
    if kl.Space.of(space).family.options.all() and not isinstance(space, kl.Space):
        yield {"algorithm": p3(space), "deterministic": True}


@each_space
def test_a_journal_of_any_order_of_draws_and_values_gives_the_same_points(name, tmp_path, monkeypatch):
    monkeypatch.setattr(run_state, "VERIFIED", math.inf)  # all points are drawn again and compared
    for number, options in enumerate(recipes(SPACES[name])):
        path = tmp_path / f"{number}.sqlite"
        chance, again = random.Random(number), random.Random(number)
        opt = kl.Optimizer(SPACES[name], rng=number, journal=path, **options)
        every, out = play(opt, chance, 60)
        state = (opt.nit, opt.nfev, opt.theta.tolist())
        opt.close()
        assert state == (opt.nit, opt.nfev, opt.theta.tolist())
        # The same events, with the points of each one compared; then those of the file alone.
        twin = kl.Optimizer(SPACES[name], rng=number, **options)
        assert play(twin, again, 60)[0] == every
        resumed = kl.Optimizer(SPACES[name], rng=number, journal=path, **options)
        assert (resumed.nit, resumed.nfev, resumed.theta.tolist()) == state
        assert sorted(points(resumed.ask(len(out)))) == sorted(points(out)) if out else True
        more = points(resumed.ask(3))
        assert more == points(twin.ask(3))
        resumed.close()


@each_space
def test_a_snapshot_at_any_time_continues_alike(name, tmp_path):
    for number, options in enumerate(recipes(SPACES[name])):
        opt = kl.Optimizer(SPACES[name], rng=number, **options)
        _, out = play(opt, random.Random(number), 45)
        opt.save(tmp_path / "run.json")
        twin = kl.Optimizer.load(tmp_path / "run.json", SPACES[name], algorithm=options.get("algorithm"))
        for candidate in out[::-1]:
            for each in (opt, twin):
                each.tell(candidate, value(candidate.x))
        assert play(opt, random.Random(1), 40)[0] == play(twin, random.Random(1), 40)[0]
        assert (opt.nit, opt.theta.tolist()) == (twin.nit, twin.theta.tolist())


def ones(x):
    return float(x.sum())


def test_no_worker_waits_for_another_one():
    gate, calls, lock = threading.Event(), [], threading.Lock()

    def fun(x):
        with lock:
            calls.append(1)
            first = len(calls) == 1
        if first:  # the others go on until it is time
            gate.wait(300)
        elif len(calls) == 20:
            gate.set()
        return ones(x)

    with ThreadPoolExecutor(4) as pool:
        result = kl.minimize(fun, kl.Binary(20), budget=30, rng=0, workers=pool)
    assert (result.nfev, result.status) == (30, "budget")


@pytest.mark.slow
def test_with_one_worker_both_modes_are_the_same_run(tmp_path):
    path = tmp_path / "run.sqlite"
    with ThreadPoolExecutor(4) as pool:
        parallel = kl.minimize(ones, kl.Binary(20), budget=30, rng=0, workers=pool, journal=path)
        seen = [(each.x.tolist(), each.value) for each in parallel.evaluations]
        # Resumed with more workers, then in this process, and all of it once more without a call.
        kl.minimize(ones, kl.Binary(20), budget=60, workers=pool, journal=path)
    last = kl.minimize(ones, kl.Binary(20), budget=80, journal=path)
    again = kl.minimize(ones, kl.Binary(20), budget=80, journal=path)
    assert "the objective was not called" in again.message
    assert [(each.x.tolist(), each.value) for each in last.evaluations][:30] == seen
    assert (again.nfev, again.fun, again.nit) == (last.nfev, last.fun, last.nit)
    alone = tmp_path / "alone.sqlite"
    kl.minimize(ones, kl.Binary(20), budget=20, rng=0, journal=alone)
    with ThreadPoolExecutor(4) as pool:
        more = kl.minimize(ones, kl.Binary(20), budget=40, journal=alone, workers=pool)
    assert more.nfev == 40


def test_a_failing_first_evaluation_in_threads_leaves_no_trace(tmp_path):
    path = tmp_path / "run.sqlite"
    with ThreadPoolExecutor(4) as pool, pytest.raises(ZeroDivisionError):
        kl.minimize(lambda x: 1 / 0, kl.Binary(20), budget=30, rng=0, workers=pool, journal=path)
    result = kl.minimize(ones, kl.Binary(20), budget=30, rng=0, journal=path)
    assert (result.nfev, result.failures) == (30, 0)


@pytest.mark.slow
def test_a_target_and_a_time_limit_end_a_run_of_several_workers():
    with ThreadPoolExecutor(4) as pool:
        given = {"space": kl.Binary(12), "rng": 0, "workers": pool}
        found = kl.minimize(ones, budget=500, target=3.0, deterministic=True, **given)
        assert found.status == "target"
        assert found.fun <= 3.0
        assert kl.minimize(ones, budget=500, target=3.0, **given).fun <= 3.0  # confirmed
        assert kl.minimize(ones, timeout=0.2, deterministic=False, **given).status == "timeout"
        assert kl.minimize(ones, budget=500, **given | {"space": kl.Binary(5)}).status == "exhausted"
