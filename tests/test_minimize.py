"""`minimize` and `maximize`: every argument, every reason to stop, and what a run leaves behind."""

import io
import itertools
import logging
import math
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest

import knobless as kl
from knobless.algorithms import cga, umda

BITS = kl.Binary(10)
MIXED = kl.Space(
    bits=kl.Binary(3),
    kind=kl.Choice(1.0, 2.0, 3.0),
    below=[kl.Integer(0, 20, step=4), kl.Float(1e-3, 1e1, log=True, n=2)],
)


def ones(x):
    return float(x.sum())


def mixed(x):
    whole, reals = x["below"]
    return float(x["bits"].sum() + x["kind"] + abs(whole - 8) + (reals - 1.0).sum())


def mixed_rows(x):
    whole, reals = x["below"]
    return x["bits"].sum(axis=1) + x["kind"] + abs(whole - 8) + (reals - 1.0).sum(axis=1)


class Spy:
    """An objective that keeps what it was asked, and what it answered."""

    def __init__(self, fun):
        self.fun, self.x, self.f = fun, [], []

    def __call__(self, x):
        self.x.append(x.copy() if isinstance(x, np.ndarray) else x)
        self.f.append(self.fun(x))
        return self.f[-1]

    def __len__(self):
        return len(self.x)


def look(result):
    """All of a result, for bit-for-bit comparison."""
    facts = (result.fun, result.nfev, result.nit, result.status, result.success, result.failures, result.mode_fun)
    return repr(result.x), repr(result.mode), facts, result.message, [*map(repr, result.history)]


# Plain use.


def test_bits():
    fun = Spy(ones)
    result = kl.minimize(fun, kl.Binary(30), budget=2000, rng=0)
    assert result.fun == 0.0
    assert result.x.tolist() == [0] * 30
    assert result.x.dtype == np.int8
    assert result.nfev == len(fun) == 2000
    assert (result.status, result.success, result.failures) == (kl.Status.BUDGET, True, 0)
    assert result.message == "Evaluation budget exhausted."
    assert result.mode.tolist() == [0] * 30


@pytest.mark.slow
def test_a_mixed_space():
    result = kl.minimize(mixed, MIXED, budget=3000, rng=0)
    assert result.x["bits"].tolist() == [0, 0, 0]
    assert result.x["kind"] == 1.0
    assert result.x["below"][0] == 8
    assert result.fun == mixed(result.x) < -0.9


@pytest.mark.parametrize(
    "domain", [kl.Choice("b", "a"), kl.Integer(1, 9), kl.Float(0, 1), [kl.Choice(2, 1)], {"a": BITS}]
)
def test_any_domain_is_a_space(domain):
    result = kl.minimize(lambda x: float(len(repr(x))), domain, budget=20, rng=0)
    assert result.nfev == 20 or result.status == "exhausted"
    assert kl.Space.of(domain).encode(result.x) is not None


def test_the_same_seed_is_the_same_run():
    first, second = (kl.minimize(mixed, MIXED, budget=300, rng=3) for _ in range(2))
    assert look(first) == look(second)
    assert look(first) != look(kl.minimize(mixed, MIXED, budget=300, rng=4))


def test_minimize_is_the_loop_over_an_optimizer():
    opt = kl.Optimizer(BITS, rng=3)
    fun = Spy(ones)
    kl.minimize(fun, BITS, budget=100, rng=3)
    asked = []
    while opt.nfev < 100:
        batch = opt.ask()
        asked += [c.x.tolist() for c in batch]
        opt.tell(batch, [ones(c.x) for c in batch])
    assert [x.tolist() for x in fun.x] == asked[:100]


def test_another_algorithm():
    result = kl.minimize(ones, BITS, budget=100, algorithm=umda(BITS, 20, 5), rng=0)
    assert result.nit == 5


# Reasons to stop.


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("budget", [1, 2, 3, 7, 20, 101])
def test_the_budget_is_met_exactly(budget, vectorized):
    rows = []

    def fun(x):
        rows.append(len(x) if vectorized else 1)
        return x.sum(axis=-1)

    # λ is 7 or 16: what is left is often less than an iteration.
    result = kl.minimize(fun, BITS, budget=budget, batch=7, vectorized=vectorized, rng=0)
    assert sum(rows) == result.nfev == budget
    assert result.nit >= budget // 16  # an iteration may have points that are known
    assert result.status == "budget"


@pytest.mark.parametrize("domain", ["bits", "mixed"])
@pytest.mark.parametrize("stop", [{}, {"target": 2.0}, {"stall": 7}, {"x0": "some"}, {"deterministic": True}], ids=repr)
@pytest.mark.parametrize("batch", [1, 13])
def test_vectorized_is_scalar_bit_for_bit(domain, stop, batch):
    space, one, rows = (BITS, ones, lambda x: x.sum(axis=1)) if domain == "bits" else (MIXED, mixed, mixed_rows)
    stop = dict(stop)
    if "x0" in stop:
        stop["x0"] = [1, 0] * 5 if domain == "bits" else {"bits": [1, 1, 1], "kind": 3.0, "below": [20, [1.0, 2.0]]}
    spies = Spy(one), Spy(rows)
    scalar = kl.minimize(spies[0], space, budget=203, batch=batch, rng=1, **stop)
    vectorized = kl.minimize(spies[1], space, budget=203, batch=batch, rng=1, vectorized=True, **stop)
    assert look(scalar) == look(vectorized)
    values = np.concatenate(spies[1].f).tolist()  # the last of them may confirm the target
    assert spies[0].f in (values[: scalar.nfev], [*values[: scalar.nfev - 1], values[-1]])
    if "target" in stop or "stall" in stop:
        assert scalar.status == next(iter(stop))


def test_the_target_stops_at_the_lowest_index_that_meets_it():
    for vectorized in (False, True):
        fun = Spy(lambda x: x.sum(axis=-1).astype(float))
        given = {"budget": 5000, "algorithm": kl.pbil_lambda(BITS), "target": 2.0, "batch": 16, "rng": 0}
        result = kl.minimize(fun, BITS, vectorized=vectorized, **given)
        values = np.concatenate([np.atleast_1d(f) for f in fun.f])
        first = int(np.flatnonzero(values <= 2.0)[0])
        assert result.nfev == first + 1
        assert result.fun == values[first]
        assert (result.status, result.success, result.message) == ("target", True, "Target reached.")
        assert len(fun) == (first + 1 if not vectorized else -(-(first + 1) // 16))


def test_a_target_that_is_missed_is_no_success():
    result = kl.minimize(ones, BITS, budget=30, target=-1.0, rng=0)
    assert (result.status, result.success) == ("budget", False)


def test_no_target_is_not_met_by_minus_infinity():
    result = kl.minimize(lambda x: -math.inf if x[0] else 1.0, BITS, budget=30, rng=0)
    assert result.status == "budget"
    assert result.fun == -math.inf
    assert result.x[0] == 1


@pytest.mark.parametrize("stall", [1, 5, 12])
def test_stall_counts_evaluations_since_the_last_improvement(stall):
    fun = Spy(ones)
    result = kl.minimize(fun, BITS, budget=10_000, stall=stall, rng=0)
    assert result.status == "stall"
    best = list(itertools.accumulate(fun.f, min))
    improved = [i for i, value in enumerate(best) if i == 0 or value < best[i - 1]]
    waits = np.diff(improved)
    assert result.nfev == len(fun) == improved[-1] + 1 + stall
    assert (waits <= stall).all()  # not later than it had to


def test_stall_from_the_start():
    # Nothing beats what is known: the first `stall` evaluations are all there is.
    result = kl.minimize(ones, BITS, budget=100, stall=9, known=[([0] * 10, -5.0)], rng=0)
    assert (result.nfev, result.status, result.fun) == (9, "stall", -5.0)
    assert kl.minimize(lambda x: math.nan, BITS, budget=100, stall=9, rng=0).nfev == 9


@pytest.mark.parametrize("batch", [1, 200])
def test_timeout_ends_with_the_evaluation_under_way(batch):
    def slow(x):
        time.sleep(0.01)
        return ones(x)

    start = time.monotonic()
    result = kl.minimize(slow, BITS, budget=10_000, timeout=0.1, batch=batch, rng=0)
    assert time.monotonic() - start >= 0.1
    assert result.status == "timeout"
    assert 1 <= result.nfev <= 10
    assert result.fun == ones(result.x)


# known and x0.


@pytest.mark.parametrize("deterministic", [False, True])
def test_known_points_count_for_the_best_but_not_for_the_budget(deterministic):
    known = ([0] * 10, -1.0)
    result = kl.minimize(ones, BITS, budget=20, known=[known], deterministic=deterministic, rng=0)
    assert (result.observed_x.tolist(), result.observed_fun, result.nfev) == (*known, 20)
    assert (result.fun == -1.0) == deterministic  # a single value does not recommend a point of a noisy objective
    assert result.history[0].best == -1.0


def chosen(rng, ones):
    return {f"c{i}": "d" if rng.random() < ones else "abc"[rng.integers(3)] for i in range(12)}


LEARNED = {
    "30 bits": (kl.Binary(30), lambda x: float(30 - x.sum()), lambda rng, ones: rng.random(30) < ones),
    "120 bits": (kl.Binary(120), lambda x: float(120 - x.sum()), lambda rng, ones: rng.random(120) < ones),
    "choices": (
        {f"c{i}": kl.Choice("a", "b", "c", "d") for i in range(12)},
        lambda x: float(sum(value != "d" for value in x.values())),
        chosen,
    ),
    "floats": (
        [kl.Float(0.0, 1.0)] * 8,
        lambda x: float(sum((value - 0.7) ** 2 for value in x)),
        lambda rng, ones: list(rng.uniform(0.6, 0.8, 8) if ones > 0.5 else rng.random(8)),
    ),
}


@pytest.mark.parametrize("deterministic", [None, True, False])
@pytest.mark.parametrize("domain", LEARNED)
def test_a_run_learns_from_known_points(domain, deterministic):
    space, fun, drawn = LEARNED[domain]
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        points = [drawn(rng, ones) for ones in [0.3] * 20 + [0.9] + [0.3] * 19]
        for known in ([], [(x, fun(x)) for x in points]):
            spy = Spy(fun)
            kl.minimize(spy, space, budget=15, known=known, deterministic=deterministic, rng=seed)
            found.append(min(map(fun, spy.x)))  # of new evaluations alone
    assert sum(found[1::2]) < 0.75 * sum(found[::2])


def test_a_target_met_by_what_is_known_costs_nothing():
    fun = Spy(ones)
    result = kl.minimize(fun, BITS, budget=20, target=0.5, known=iter([([1] * 10, 10), ([0] * 10, 0)]), rng=0)
    assert (len(fun), result.nfev, result.nit) == (0, 0, 0)
    assert (result.status, result.success, result.fun) == ("target", True, 0.0)
    assert result.x.tolist() == [0] * 10
    assert "target" in repr(result)


def test_x0_is_evaluated_first():
    fun = Spy(ones)
    x0 = np.array([1, 0] * 5)
    result = kl.minimize(fun, BITS, budget=1, x0=x0, rng=0)
    assert [x.tolist() for x in fun.x] == [x0.tolist()]
    assert result.x.tolist() == x0.tolist()


@pytest.mark.parametrize("deterministic", [None, True, False])
@pytest.mark.parametrize("domain", LEARNED)
def test_several_initial_points_are_evaluated_first_and_the_best_is_started_from(domain, deterministic):
    space, fun, drawn = LEARNED[domain]
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        points = [drawn(rng, ones) for ones in (0.3, 0.9, 0.3)]
        for x0 in (points, points[0]):
            spy = Spy(fun)
            kl.minimize(spy, space, budget=15, x0=x0, deterministic=deterministic, rng=seed)
            found.append(min(map(fun, spy.x[3:])))
            if x0 is points:
                assert list(map(fun, spy.x[:3])) == pytest.approx(list(map(fun, points)))
    assert sum(found[::2]) < sum(found[1::2])


def test_an_algorithm_that_is_given_starts_from_the_best_initial_point():
    points = [[0, 1] * 5, [0] * 10, [1] * 10]
    one, several = (
        kl.Optimizer(BITS, kl.pbil_lambda(BITS), x0=x0, rng=0, deterministic=False) for x0 in (points[1], points)
    )
    out = several.ask()
    assert [x.tolist() for _, x in out] == points
    several.tell(out, [ones(x) for _, x in out])
    assert several.theta.tolist() == one.theta.tolist()
    assert (several.best.x.tolist(), several.nit) == (points[1], 1)


def test_initial_points_are_one_point_or_several():
    for x0 in ([0, 1, 1], np.array([0, 1, 1]), (0, 1, 1)):
        assert len(kl.Optimizer(kl.Binary(3), x0=x0, rng=0).run.x0) == 1
    for x0 in ([[0, 1, 1]] * 2, np.array([[0, 1, 1], [1, 1, 1]]), ((0, 1, 1), [1, 1, 1])):
        assert len(kl.Optimizer(kl.Binary(3), x0=x0, rng=0).run.x0) == 2
    assert len(kl.Optimizer([kl.Binary(2), kl.Binary(2)], x0=[[0, 1], [1, 1]], rng=0).run.x0) == 1
    assert len(kl.Optimizer(kl.Choice("a", "b"), x0=["a", "b", "a"], rng=0).run.x0) == 3
    with pytest.raises(ValueError, match=r"^x0\[1\]\[2\]: expected 0 or 1, got 2$"):
        kl.minimize(ones, kl.Binary(3), budget=9, x0=[[0, 1, 1], [0, 1, 2]])
    with pytest.raises(ValueError, match=r"^x0\[2\]: expected 0 or 1, got 2$"):
        kl.minimize(ones, kl.Binary(3), budget=9, x0=[0, 1, 2])
    with pytest.raises(ValueError, match=r"^x0\[1\]: expected a feasible point"):
        kl.minimize(ones, kl.Binary(3), budget=9, x0=[[0, 1, 1], [1, 1, 1]], constraints=lambda x: x.sum() < 3)


# deterministic.


def test_points_are_never_paid_twice():
    fun = Spy(ones)
    result = kl.minimize(fun, kl.Binary(8), budget=150, deterministic=True, rng=0)
    assert len({tuple(x) for x in fun.x}) == len(fun) == result.nfev == 150


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("known", [0, 1, 5])
def test_an_exhausted_space_ends_the_run(vectorized, known):
    everything = [np.array(x) for x in itertools.product([0, 1], repeat=3)]
    fun = Spy(lambda x: (x @ np.array([1, 2, 4])) % 5 * 1.0)
    result = kl.minimize(
        fun,
        kl.Binary(3),
        budget=1000,
        deterministic=True,
        known=[(x, 9.0) for x in everything[:known]],
        vectorized=vectorized,
        rng=0,
    )
    assert result.nfev == 8 - known
    assert result.status == "exhausted"
    assert result.message == "Every point of the space was evaluated: the best point is the optimum."
    assert result.success


def test_a_space_that_is_all_known_is_exhausted_from_the_start():
    known = [([a, b], a + b) for a in (0, 1) for b in (0, 1)]
    fun = Spy(ones)
    result = kl.minimize(fun, kl.Binary(2), budget=9, known=known, deterministic=True, rng=0)
    assert (len(fun), result.nfev, result.status, result.fun) == (0, 0, "exhausted", 0.0)


def test_a_run_that_yields_nothing_new_ends_by_itself(monkeypatch):
    monkeypatch.setattr("knobless.run.run_state.MAX_STALE", 60)
    space = kl.Choice(0, 1, 2, n=12)
    result = kl.minimize(ones, space, budget=10**6, algorithm=kl.pbil_lambda(space), deterministic=True, rng=0)
    assert result.status == "converged"
    assert result.message == "Converged: sampling yields no new points."
    assert result.fun == 0.0
    assert result.nfev < 3**10


@pytest.mark.parametrize("known", [[], [([0] * 10, -1.0)]], ids=["", "known"])
def test_a_noisy_run_may_end_before_it_has_learned_anything(known):
    result = kl.minimize(ones, BITS, budget=3, batch=16, known=known, deterministic=False, rng=0)
    assert (result.x.tolist(), result.fun) == (result.observed_x.tolist(), result.observed_fun)
    assert (result.fun_std, result.nfev) == (None, 3)


def test_a_noisy_objective_is_paid_each_time():
    fun = Spy(ones)
    kl.minimize(fun, kl.Binary(2), budget=50, deterministic=False, rng=0)
    assert len(fun) == 50


# callback, history, progress.


def test_the_callback_sees_every_iteration():
    infos = []
    result = kl.minimize(ones, BITS, budget=300, algorithm=kl.pbil_lambda(BITS), callback=infos.append, rng=0)
    assert [info.iteration for info in infos] == list(range(1, result.nit + 1))
    assert kl.Info._fields == (
        "iteration",
        "nfev",
        "best",
        "lam",
        "lam_r",
        "eps",
        "snr",
        "entropy",
        "violation",
        "theta",
    )
    # λ is the one in force after the iteration: the next one spends it.
    for a, b in itertools.pairwise(infos):
        assert b.nfev - a.nfev == a.lam
        assert b.best <= a.best
    last = infos[-1]
    assert last.eps == 10**-0.5
    assert 0.0 <= last.snr < math.inf
    assert last.theta.shape == (10,)
    assert last.entropy == pytest.approx(
        -(last.theta * np.log(last.theta) + (1 - last.theta) * np.log(1 - last.theta)).sum()
    )
    assert last.entropy < infos[0].entropy < 10 * math.log(2)
    assert [row[:7] for row in result.history] == [info[:7] for info in infos]


def test_the_callback_may_stop_the_run():
    def stop(info):
        if info.iteration == 5:
            raise StopIteration

    result = kl.minimize(ones, BITS, budget=1000, callback=stop, batch=4, algorithm=cga(BITS), rng=0)
    assert (result.nit, result.nfev, result.status) == (5, 20, "callback")
    assert result.message == "Stopped by the callback."
    assert result.success
    assert result.history[-1].iteration == 5


def test_an_error_in_the_callback_is_the_users():
    def broken(info):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        kl.minimize(ones, BITS, budget=10, callback=broken, rng=0)


def test_a_callback_that_returns_true_is_told_how_to_end_the_run():
    with pytest.raises(TypeError, match="callback: expected no return value, got True; to end the run, raise Stop"):
        kl.minimize(ones, BITS, budget=10, callback=lambda info: info.nfev > 3, rng=0)


@pytest.mark.parametrize("algorithm", [None, cga(BITS)])
@pytest.mark.parametrize("noisy", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_callback_gets_the_evaluations_since_the_last_call(tmp_path, algorithm, noisy):
    given = {"budget": 44, "rng": 0, "algorithm": algorithm, "deterministic": not noisy if algorithm is None else None}
    calls = []

    def callback(info):
        x, fun = (info.x, info.fun) if info.iteration % 10 == 1 else (None, None)  # under noise they need a model
        calls.append((info, x, fun, info.evaluations))

    result = kl.maximize(ones, BITS, callback=callback, **given)
    kept, calls = calls, []
    recorded = kl.maximize(ones, BITS, callback=callback, journal=tmp_path / "a", **given)
    resumed = []
    kl.maximize(ones, BITS, callback=lambda info: resumed.extend(info.evaluations), journal=tmp_path / "a", **given)
    every = [each for _, _, _, evaluations in kept for each in evaluations]
    searched = [each for each in result.evaluations if each.kind != "finalist"][: len(every)]
    assert len(every) == kept[-1][0].nfev > 30
    for found, listed in ((every, searched), (resumed, recorded.evaluations[: len(every)])):
        assert [(each.x.tolist(), each.value, each.iteration) for each in found] == [
            (each.x.tolist(), each.value, each.iteration) for each in listed
        ]
    assert [(repr(x), fun) for _, x, fun, _ in kept] == [(repr(x), fun) for _, x, fun, _ in calls]
    if not noisy or algorithm is not None:
        assert all(ones(x) == fun == info.best for info, x, fun, _ in kept[::10])
    with pytest.raises(AttributeError, match="info: expected x, fun to be read in a callback, before it returns"):
        result.history[0].x  # noqa: B018


def test_the_callback_gets_the_knee_of_several_objectives():
    points = []
    kl.minimize(
        lambda x: (x.sum(), -x.sum()),
        BITS,
        budget=20,
        rng=0,
        objectives=("a", "b"),
        callback=lambda info: points.append((info.x.tolist(), info.fun, [each.value for each in info.evaluations])),
    )
    assert all(fun == (sum(x), -sum(x)) for x, fun, _ in points)
    assert {value for *_, values in points for value in values} > {points[-1][1]}


def test_evaluations_are_logged_once(tmp_path, caplog):
    def fun(x):
        if x[:3].sum() == 1:
            raise ValueError("too hot")
        return float(x.sum())

    def steps(x):
        yield fun(x) + 1
        yield kl.Constrained(fun(x), 2.0)

    given = {"budget": 15, "rng": 1, "x0": [1] * 10, "journal": tmp_path / "a"}
    kl.minimize(fun, BITS, **given)
    assert not caplog.messages
    caplog.set_level(logging.INFO, logger="knobless")
    result = kl.minimize(fun, BITS, **given | {"budget": 30})
    assert [message.split()[0] for message in caplog.messages] == ["evaluation"] * 15
    assert caplog.messages[-1].endswith(f": {result.evaluations[29].value:.6g}, best {result.fun:.6g}")
    failed = [message for message in caplog.messages if "failed with ValueError('too hot'), best" in message]
    assert len(failed) == sum(each.status == "failed" for each in result.evaluations[15:]) > 0
    caplog.clear()
    kl.maximize(steps, BITS, budget=1, x0=[1] * 10)
    assert caplog.messages == ["evaluation 0: 10 (violation 2), best 10 (violation 2)"]


# Rules of the user.


def test_a_stopping_rule_ends_the_run_with_its_message():
    def solved(info):
        return info.best <= 2 and f"solved at {info.nfev}"

    infos = []
    given = {"budget": 1000, "algorithm": cga(BITS), "rng": 0}
    result = kl.minimize(ones, BITS, stop=solved, callback=infos.append, **given)
    assert (result.status, result.message) == (kl.Status.STOPPED, f"solved at {result.nfev}")
    assert result.success
    assert result.fun <= 2 < infos[-2].best
    assert result.nit == len(infos) < 500


def test_a_stopping_rule_without_a_message_is_named():
    def enough(info):
        return np.bool_(info.nfev >= 20)

    result = kl.minimize(ones, BITS, budget=1000, stop=enough, batch=4, algorithm=cga(BITS), rng=0)
    assert (result.nfev, result.status) == (20, "stopped")
    assert result.message.startswith("Stopped by the rule ")
    assert "enough" in result.message


def test_the_first_of_several_stopping_rules_that_applies_ends_the_run():
    rules = [lambda info: None, lambda info: info.nfev >= 30 and "second", lambda info: info.nfev >= 30 and "third"]
    result = kl.maximize(ones, BITS, budget=1000, stop=rules, deterministic=False, rng=0)
    assert (result.nfev >= 30, result.message.split(".")[0]) == (True, "second")
    before = kl.minimize(ones, BITS, budget=1000, stop=rules, target=9, rng=0)  # which the first point reaches
    assert before.status is kl.Status.TARGET


def test_limits_apply_beside_stopping_rules():
    never = Spy(lambda info: False)
    result = kl.minimize(ones, BITS, budget=40, stop=never, deterministic=False, rng=0)
    assert (result.nfev, result.status) == (40, "budget")
    assert len(never) == result.nit


def test_an_error_in_a_stopping_rule_is_the_users():
    with pytest.raises(KeyError, match="mine"):
        kl.minimize(ones, BITS, budget=10, stop=lambda info: {}["mine"], rng=0)
    with pytest.raises(TypeError, match=r"^stop: expected .* to return a bool or a message, got 3$"):
        kl.minimize(ones, BITS, budget=10, stop=lambda info: 3, rng=0)


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [10, 2047, 2048, 2049, 5001])
@pytest.mark.parametrize("watched", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_history_is_thinned_out_and_keeps_the_last(iterations, watched):
    callback = (lambda info: None) if watched else None
    result = kl.minimize(ones, BITS, budget=2 * iterations, algorithm=cga(BITS), callback=callback, rng=0)
    rows = [row.iteration for row in result.history]
    assert result.nit == iterations
    assert len(result.history) == len(rows) <= 2048
    assert len(rows) >= min(iterations, 1024)
    assert rows[-1] == iterations
    assert len(set(np.diff(rows[:-1]).tolist())) == 1  # evenly
    assert result.history[-1].nfev == result.nfev


def test_history_becomes_a_frame():
    pytest.importorskip("pandas")
    result = kl.minimize(ones, BITS, budget=100, algorithm=kl.pbil_lambda(BITS), rng=0)
    frame = result.history.to_pandas()
    assert list(frame.columns) == list(kl.Info._fields[:-1])
    assert len(frame) == result.nit
    assert frame["best"].iloc[-1] == result.fun
    assert [tuple(row) for row in frame.itertuples(index=False)] == [row[:-1] for row in result.history]


def test_history_without_pandas_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"^pandas is not installed: pip install 'knobless\[pandas\]'$"):
        kl.minimize(ones, BITS, budget=10, rng=0).history.to_pandas()


def test_history_is_a_sequence():
    history = kl.minimize(ones, BITS, budget=100, algorithm=cga(BITS), rng=0).history
    assert len(history) == 50
    assert [row.iteration for row in history[1:3]] == [2, 3]
    assert history[-1] is list(history)[-1]
    assert repr(history) == "History of 50 rows: iteration, nfev, best, lam, lam_r, eps, snr, entropy, violation"


def test_progress_goes_to_stderr(capsys):
    pytest.importorskip("tqdm")

    def fails_at_times(x):
        return math.nan if x[0] else ones(x)

    result = kl.minimize(fails_at_times, BITS, budget=50, progress=True, rng=0)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "50/50" in shown.err
    assert "best" in shown.err
    assert "best" in shown.err
    assert "λ" not in shown.err
    assert f"{result.failures} failed" in shown.err


def test_progress_of_maximize_shows_the_users_values(capsys):
    pytest.importorskip("tqdm")
    result = kl.maximize(lambda x: 100.0 + x.sum(), BITS, budget=50, progress=True, rng=0)
    assert f"best {result.fun:g}" in capsys.readouterr().err


def test_no_progress_is_silent(capsys):
    kl.minimize(ones, BITS, budget=50, rng=0)
    assert capsys.readouterr() == ("", "")


def test_progress_without_tqdm_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    fun = Spy(ones)
    with pytest.raises(ImportError, match=r"^tqdm is not installed: pip install 'knobless\[progress\]'$"):
        kl.minimize(fun, BITS, budget=50, progress=True, rng=0)
    assert len(fun) == 0


# Interrupts and failures.


@pytest.mark.parametrize("at", [1, 2, 7, 12, 40])
@pytest.mark.parametrize("progress", [False, True])
def test_an_interrupt_returns_what_there_is(at, progress):
    fun = Spy(ones)

    def interrupted(x):
        if len(fun) + 1 == at:
            raise KeyboardInterrupt
        return fun(x)

    result = kl.minimize(interrupted, BITS, budget=1000, batch=5, progress=progress, rng=0)
    assert (result.status, result.nfev) == ("interrupted", at - 1)
    assert result.message.startswith("Interrupted from the keyboard.")
    if at == 1:
        assert result.x is None
        assert not result.success
    else:
        assert result.fun == min(fun.f) == ones(result.x)


def test_the_first_error_is_shown_as_it_is_if_the_next_three_evaluations_fail_as_well():
    calls = []

    def typo(x):
        calls.append(x)
        return undefined_name  # noqa: F821

    for vectorized in (False, True):
        with pytest.raises(NameError, match="undefined_name") as info:
            kl.minimize(typo, BITS, budget=100, vectorized=vectorized, rng=0)
        assert info.traceback[-1].name == "typo"
    assert len(calls) == 4 + 4  # iterations of one point
    with pytest.raises(NameError):  # or all that there are
        kl.minimize(typo, BITS, budget=2, rng=0)


@pytest.mark.parametrize("failing", [1, 3])
def test_a_run_goes_on_if_only_the_first_evaluations_fail(failing):
    calls = itertools.count()

    def fun(x):
        if next(calls) < failing:
            raise RuntimeError("not yet")
        return ones(x)

    result = kl.minimize(fun, BITS, budget=30, rng=0)
    assert (result.failures, result.nfev) == (failing, 30)


def test_a_later_error_costs_one_evaluation():
    fun = Spy(ones)

    def sometimes(x):
        value = fun(x)
        if len(fun) > 1 and x[0]:
            raise RuntimeError("no such bit")
        return value

    result = kl.minimize(sometimes, BITS, budget=400, rng=0)
    bad = sum(bool(x[0]) for x in fun.x[1:])
    assert (result.nfev, result.failures, result.status) == (400, bad, "budget")
    assert 0 < bad < 200  # it learns to avoid them
    assert result.x.tolist() == [0] * 10
    assert "in sometimes" in result.failure
    assert result.failure.strip().endswith("RuntimeError: no such bit")
    assert f"{bad} failed" in repr(result)


def test_a_vectorized_call_that_fails_later_fails_as_a_whole():
    calls = []

    def once(x):
        calls.append(len(x))
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return x.sum(axis=1)

    result = kl.minimize(once, BITS, budget=30, algorithm=kl.pbil_lambda(BITS), batch=10, vectorized=True, rng=0)
    assert calls == [10, 10, 10]
    assert (result.nfev, result.failures) == (30, 10)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("vectorized", [False, True])
def test_nan_and_inf_rank_worst(bad, vectorized):
    def fun(x):
        return np.where(x[..., 0] == 1, bad, x.sum(axis=-1)) + 0.0

    first_is_one = kl.Optimizer(BITS, rng=2).ask()[0].x[0]
    assert first_is_one  # so that also the very first value is bad
    result = kl.minimize(fun, BITS, budget=400, vectorized=vectorized, rng=2)
    assert result.fun == 0.0
    assert (result.failures > 0) == (bad != bad)
    if bad != bad:
        assert result.failure == "the objective returned NaN"


WRONG = {
    "None": (None, "got None of type NoneType"),
    "text": ("1.0", "got '1.0' of type str"),
    "an array": (np.ones(3), r"got an array of shape \(3,\)"),
    "a list": ([1.0], r"got \[1.0\] of type list"),
    "complex": (1j, "got 1j of type complex"),
    "an array of text": (np.array("3"), "got "),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_type_is_an_error_at_first_and_a_failure_later(wrong, message):
    fun = Spy(lambda x: wrong)
    with pytest.raises(TypeError, match=f"objective: expected one number, {message}"):
        kl.minimize(fun, BITS, budget=100, rng=0)
    assert len(fun) == 4
    calls = itertools.count()
    result = kl.minimize(lambda x: wrong if next(calls) == 3 else ones(x), BITS, budget=20, rng=0)
    assert (result.failures, result.nfev) == (1, 20)
    assert "TypeError: objective: expected one number" in result.failure


@pytest.mark.parametrize(
    "wrong", [1.0, np.ones(3), np.ones((4, 2)), np.array(["a"] * 4), np.ones(4, dtype=complex), [None] * 4]
)
def test_a_wrong_shape_of_a_vectorized_objective(wrong):
    fun = Spy(lambda x: wrong)
    with pytest.raises(TypeError, match=r"objective: expected an array of 4 numbers, got one of shape .* and type"):
        kl.minimize(fun, BITS, budget=100, batch=4, vectorized=True, rng=0)
    assert len(fun) == 1


@pytest.mark.parametrize("number", [3, True, np.float32(3), np.int8(3), np.array(3.0), np.True_], ids=repr)
def test_any_number_is_a_value(number):
    result = kl.minimize(lambda x: number, BITS, budget=4, rng=0)
    assert result.fun == float(number)
    assert type(result.fun) is float


def test_if_everything_fails_the_run_ends_early_and_says_why():
    calls = itertools.count()

    def broken(x):
        if next(calls) == 0:
            return math.nan  # an error here would be shown at once
        raise OSError("disk full")

    result = kl.minimize(broken, BITS, budget=10**6, rng=0)
    assert result.status == "failed"
    assert result.nfev == result.failures < 200
    assert not result.success
    assert result.x is None
    assert math.isnan(result.fun)
    # The first failure is the first in the order of the candidates, also where several are told together.
    assert result.message == "Every evaluation failed. The first failure: the objective returned NaN"
    assert "Every evaluation failed" in repr(result)


@pytest.mark.slow
def test_an_objective_that_writes_into_its_point_harms_itself_alone():
    def vandal(x):
        value = ones(x)
        x[:] = 7
        return value

    assert look(kl.minimize(vandal, BITS, budget=200, rng=0)) == look(kl.minimize(ones, BITS, budget=200, rng=0))

    def mixed_vandal(x):
        value = mixed(x)
        x["bits"][:] = 7
        x["below"][1][:] = 7.0
        x["below"].clear()
        x.clear()
        return value

    for deterministic in (False, True):
        runs = [kl.minimize(f, MIXED, budget=200, deterministic=deterministic, rng=0) for f in (mixed, mixed_vandal)]
        assert look(runs[0]) == look(runs[1])

    def rows_vandal(x):
        value = x.sum(axis=1)
        x[:] = 7
        return value

    run = kl.minimize(rows_vandal, BITS, budget=200, vectorized=True, rng=0)
    assert look(run) == look(kl.minimize(ones, BITS, budget=200, rng=0))


# maximize.


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"target": 8.0, "algorithm": kl.pbil_lambda(BITS)},
        {"known": [([1] * 10, 7.5)], "stall": 9},
        {"x0": [1] * 10},
        {"deterministic": True},
    ],
    ids=lambda given: " ".join(given) or "nothing",
)
def test_maximize_is_minimize_mirrored(given, vectorized):
    def fun(x):
        return np.where(x[..., 0] > x[..., 1], np.nan, x.sum(axis=-1)) * 1.0

    mirrored = dict(given)
    if "target" in given:
        mirrored["target"] = -given["target"]
    if "known" in given:
        mirrored["known"] = [(x, -value) for x, value in given["known"]]
    up, down = [], []
    high = kl.maximize(fun, BITS, budget=301, rng=2, vectorized=vectorized, callback=up.append, **given)
    low = kl.minimize(
        lambda x: -fun(x), BITS, budget=301, rng=2, vectorized=vectorized, callback=down.append, **mirrored
    )
    assert high.x.tolist() == low.x.tolist()
    assert high.mode.tolist() == low.mode.tolist()
    assert high.fun == -low.fun
    assert high.mode_fun == (None if low.mode_fun is None else -low.mode_fun)
    assert (high.nfev, high.nit, high.status, high.success) == (low.nfev, low.nit, low.status, low.success)
    assert high.failures == low.failures > 0
    for a, b in zip([*up, *high.history], [*down, *low.history], strict=True):
        assert a.best == -b.best
        assert (a[:2], repr(a[3:7])) == (b[:2], repr(b[3:7]))


def test_maximize_finds_the_greatest():
    result = kl.maximize(ones, BITS, budget=500, rng=0)
    assert (result.fun, result.x.tolist()) == (10.0, [1] * 10)
    assert str(result.fun) == "10.0"
    assert kl.maximize(lambda x: 0, BITS, budget=5, rng=0).fun.hex() == "0x0.0p+0"  # not −0


def test_maximize_has_the_signature_of_minimize():
    import inspect

    assert inspect.signature(kl.maximize) == inspect.signature(kl.minimize)


# The result.


def test_mode_is_what_to_take_under_noise():
    noise = np.random.default_rng(0)
    pbil = kl.pbil_lambda(BITS)
    result = kl.minimize(lambda x: x.sum() + noise.normal(0, 2), BITS, budget=5000, algorithm=pbil, rng=1)
    assert result.mode.tolist() == [0] * 10
    assert result.mode_fun == pytest.approx(0.0, abs=0.5)  # an average, while `fun` is a lucky draw
    assert result.fun < -4


def test_mode_fun_of_a_deterministic_run_is_its_value():
    result = kl.minimize(lambda x: x.sum() + 0.25, BITS, budget=150, deterministic=True, rng=0)
    assert result.mode_fun == result.mode.sum() + 0.25


def test_mode_fun_counts_the_iteration_under_way():
    # One evaluation, at the only point that can be the mode of θ = ½: its value is known, and should be shown.
    seed = next(seed for seed in range(99) if kl.Optimizer(kl.Binary(1), rng=seed).ask()[0].x[0] == 1)
    result = kl.minimize(ones, kl.Binary(1), budget=1, rng=seed)
    assert result.mode.tolist() == [1]
    assert result.mode_fun == 1.0


@pytest.mark.parametrize("deterministic", [False, True])
def test_mode_whose_evaluations_failed_has_no_value(deterministic):
    result = kl.minimize(lambda x: math.nan, kl.Binary(2), budget=50, rng=0, deterministic=deterministic)
    assert result.mode_fun is None


def test_mode_that_was_not_evaluated_has_no_value():
    result = kl.minimize(lambda x: 0.0, kl.Binary(200), budget=4, rng=0)
    assert result.mode_fun is None
    assert "with value" not in repr(result)


def test_repr_can_be_read():
    shown = repr(kl.minimize(ones, BITS, budget=200, rng=0))
    lines = shown.splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["message", "success", "fun", "x", "mode", "nfev", "nit"]
    assert lines[0].endswith("Evaluation budget exhausted.")
    assert "True (budget)" in lines[1]
    assert "200 evaluations, 0 failed" in lines[5]


def test_repr_of_a_large_point_is_short():
    for space in (kl.Binary(20_000), kl.Space(**{f"variable_{i}": kl.Choice("a", "b") for i in range(500)})):
        shown = repr(kl.minimize(lambda x: 0.0, space, budget=4, rng=0))
        assert len(shown) < 1300
        assert max(map(len, shown.splitlines())) < 500
    assert len(repr(kl.Optimizer(kl.Binary(20_000), rng=0, batch=50).ask())) < 1000


def test_status_is_a_word():
    result = kl.minimize(ones, BITS, budget=3, rng=0)
    assert result.status is kl.Status.BUDGET
    assert f"{result.status}" == "budget"


# Workers.


def bumpy(x):
    if x["bits"][0] and x["bits"][1]:
        raise RuntimeError("bump")
    return math.nan if x["kind"] == 3.0 and x["bits"][2] else mixed(x)


def dawdling(x):
    time.sleep(600.0 if x[0] else 0.0)
    return ones(x)


WORKERS = {
    "processes": lambda: nullcontext(2),
    "threads": lambda: ThreadPoolExecutor(3),
    "map": lambda: nullcontext(map),
    "one": lambda: nullcontext(np.int64(1)),
}


@pytest.mark.parametrize(
    "workers",
    [pytest.param(WORKERS[key], id=key, marks=pytest.mark.slow if key == "processes" else ()) for key in WORKERS],
)
def test_the_result_does_not_depend_on_the_workers(workers):
    start = {"bits": [0, 1, 0], "kind": 2.0, "below": [4, [1.0, 2.0]]}
    several = (
        {"target": 4.0},
        {"deterministic": True},
        {"x0": start},
        {},
        {"stall": 30},
        {"known": [(start, 1.5)], "rng": 6},
    )
    for given in several[:3] if workers is WORKERS["processes"] else several:  # each starts other processes
        arguments = {"budget": 90, "batch": 7, "rng": 5} | given
        infos, seen = [], []
        serial = kl.minimize(bumpy, MIXED, callback=infos.append, **arguments)
        with workers() as pool:
            result = kl.minimize(bumpy, MIXED, workers=pool, callback=seen.append, **arguments)
        assert look(result) == look(serial)
        assert [info.theta.tolist() for info in seen] == [info.theta.tolist() for info in infos]
        assert (result.failure is None) == (serial.failure is None)


def test_a_batch_keeps_as_many_workers_busy_from_the_first_second():
    together = threading.Barrier(6)

    def fun(x):
        together.wait(300)  # for all six of them, each time
        return ones(x)

    with ThreadPoolExecutor(6) as pool:
        result = kl.minimize(fun, BITS, budget=18, batch=6, workers=pool, algorithm=cga(BITS), rng=0)
    assert (result.nfev, result.failures) == (18, 0)


def test_what_comes_after_the_target_is_not_begun():
    calls, taken = itertools.count(), threading.Event()

    class Watched(ThreadPoolExecutor):
        """Notices when the first result is taken."""

        def submit(self, *args):
            future = super().submit(*args)
            result = future.result
            future.result = lambda timeout=None: taken.set() or result(timeout)
            return future

    def fun(x):
        if next(calls) == 0:
            assert taken.wait(300)  # until the other one has been seen to meet the target
            return 5.0
        return -1.0

    with Watched(2) as pool:
        result = kl.minimize(fun, BITS, budget=100, batch=50, target=0.0, workers=pool, deterministic=True, rng=0)
    assert next(calls) == 2  # the first may yet have met it, no other
    assert (result.nfev, result.status, result.fun) == (2, "target", -1.0)


@pytest.mark.slow
def test_an_evaluation_that_takes_too_long_has_failed():
    # In a process of its own also where there is but one.
    given = {"algorithm": kl.pbil_lambda(BITS), "rng": 15}
    assert kl.Optimizer(BITS, **given).ask()[0].x[0] == 0
    result = kl.minimize(dawdling, BITS, budget=6, workers=1, evaluation_timeout=2.0, **given)
    late = sum(c.x[0] for c in kl.Optimizer(BITS, **given).ask())
    assert late == 1
    assert (result.nfev, result.status) == (6, "budget")
    assert 1 <= result.failures <= 4
    assert "TimeoutError" in result.failure


def test_the_first_error_of_a_pool_is_shown_as_it_is():
    with ThreadPoolExecutor(2) as pool, pytest.raises(ZeroDivisionError):
        kl.minimize(lambda x: 1 / 0, BITS, budget=20, batch=4, workers=pool, rng=0)
    with ThreadPoolExecutor(2) as pool, pytest.raises(TypeError, match="objective: expected one number"):
        kl.minimize(lambda x: "1", BITS, budget=20, batch=4, workers=pool, rng=0)


@pytest.mark.slow
def test_a_timeout_waits_for_what_is_under_way_and_counts_it():
    def slow(x):
        time.sleep(2.0)
        return ones(x)

    with ThreadPoolExecutor(3) as pool:
        result = kl.minimize(slow, BITS, budget=10_000, batch=100, timeout=1.9, workers=pool, rng=0)
    assert result.status == "timeout"
    assert result.nfev == 3
    assert result.fun == ones(result.x)


def test_an_interrupt_counts_what_has_come():
    calls = itertools.count()
    others = threading.Event()

    def fun(x):
        number = next(calls)
        if number == 0:
            others.wait(300)
            raise KeyboardInterrupt
        if number == 5:
            others.set()
        return float(number)

    with ThreadPoolExecutor(2) as pool:
        result = kl.minimize(fun, BITS, budget=100, batch=20, workers=pool, rng=0)
    assert result.status == "interrupted"
    assert (result.fun, result.nit) == (1.0, 0)
    assert result.nfev >= 4


def test_workers_that_cannot_be():
    for given, message in (
        ({"workers": 0}, "workers"),
        ({"workers": "four"}, "workers"),
        ({"workers": 2, "vectorized": True}, "workers: expected none with vectorized=True"),
        ({"evaluation_timeout": 1.0, "vectorized": True}, "evaluation_timeout: expected none with vectorized"),
        ({"evaluation_timeout": -1.0}, "evaluation_timeout"),
    ):
        fun = Spy(ones)
        with pytest.raises((TypeError, ValueError), match=message):
            kl.minimize(fun, BITS, budget=10, rng=0, **given)
        assert len(fun) == 0


class Exits:
    """An objective that calls sys.exit, always or at some points."""

    def __init__(self, always):
        self.always = always

    def __call__(self, x):
        if self.always or x[..., 0].any():
            sys.exit(0)
        return x.sum(axis=-1)


EXITS = WORKERS | {"serial": lambda: nullcontext(1), "vectorized": lambda: nullcontext(1)}


@pytest.mark.slow
@pytest.mark.parametrize("journaled", [False, True])
@pytest.mark.parametrize("kind", EXITS)
def test_exit_in_an_objective_is_a_failed_evaluation_everywhere(kind, journaled, tmp_path):
    given = {"budget": 60, "vectorized": kind == "vectorized", "batch": 2, "rng": 4}
    given["algorithm"] = kl.pbil_lambda(BITS)  # with this seed, its first point does not exit
    if journaled:
        given["journal"] = tmp_path / "journal"
    with EXITS[kind]() as workers:
        with pytest.raises(RuntimeError, match=r"^objective: raised SystemExit\(0\)$"):
            kl.minimize(Exits(True), BITS, workers=workers, **given)
        result = kl.minimize(Exits(False), BITS, workers=workers, **given)
    assert (result.status, result.nfev) == ("budget", 60)
    assert 0 < result.failures < 60
    assert result.failure.strip().endswith("RuntimeError: objective: raised SystemExit(0)")
    assert "sys.exit(0)" in result.failure


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_the_objective_forks_does_not_go_on_with_the_run(tmp_path):
    def forks(x):
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        with open(tmp_path / "calls", "a") as file:
            file.write("x")
        return ones(x)

    assert kl.minimize(forks, BITS, budget=8, rng=0).failures == 0
    assert (tmp_path / "calls").read_text() == "x" * 8


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_torch_scalars_are_values():
    torch = pytest.importorskip("torch")
    for value in (torch.tensor(1.5, requires_grad=True), torch.tensor(1.5, dtype=torch.bfloat16), torch.tensor(1.5)):
        assert kl.minimize(lambda x, value=value: value, BITS, budget=4, rng=0).fun == 1.5
    with pytest.raises(TypeError, match=r"expected one number, got an array of shape torch.Size\(\[1\]\)"):
        kl.minimize(lambda x: torch.ones(1), BITS, budget=4, rng=0)


# The core needs NumPy alone.


def test_the_core_runs_with_numpy_alone():
    script = """
        import sys

        ALLOWED = set(sys.stdlib_module_names) | {"numpy", "knobless"}

        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] not in ALLOWED:
                    raise ImportError(f"blocked: {name}")

        before = set(sys.modules)
        sys.meta_path.insert(0, Blocker())
        import knobless as kl

        space = kl.Space(a=kl.Binary(3), b=kl.Choice("x", "y", "z"), c=kl.Float(0, 1))
        result = kl.minimize(lambda x: x["a"].sum() + x["c"], space, budget=50, deterministic=True, rng=0)
        repr(result)
        loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(result.nfev, sorted(loaded - set(sys.stdlib_module_names)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert done.stdout.split(" ", 1)[0] == "50"
    assert {"tqdm", "pandas", "matplotlib"}.isdisjoint(eval(done.stdout.split(" ", 1)[1]))


def test_a_redirected_bar_does_not_break_a_run(monkeypatch):
    pytest.importorskip("tqdm")
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    assert kl.minimize(ones, BITS, budget=20, progress=True, rng=0).nfev == 20
    assert "20/20" in stream.getvalue()
