"""Whether an objective is noisy: when it is tested, what follows, and that nothing but the values decides."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
from conftest import examples, quick_if
from knobless.algorithms import pbil_elitist
from knobless.core import archive
from knobless.journal import read
from knobless.report.summary import summary
from knobless.run.noise_test import JITTER, NoiseTest
from knobless.run.optimize import NOT_CALLED
from knobless.run.recommendation import finalists

SPACES = {
    "bits": kl.Binary(12),
    "choices": kl.Space.of([kl.Choice("a", "b", "c")] * 5),
    "mixed": kl.Space(a=kl.Binary(4), b=kl.Choice("x", "y", "z"), c=kl.Float(0, 1), d=kl.Integer(0, 9)),
}
# In these, no model takes milliseconds for each evaluation.
LARGE_SPACES = {
    "bits": kl.Binary(101),
    "choices": kl.Space.of([kl.Choice("a", "b", "c")] * 101),
    "mixed": kl.Space(a=kl.Binary(101), b=kl.Choice("x", "y", "z"), c=kl.Float(0, 1), d=kl.Integer(0, 9)),
}
one_quick_space = pytest.mark.parametrize("name", [quick_if(name == "mixed", name) for name in SPACES])


def look_at(result):
    """The text of a result, without the note that all evaluations were read from the journal."""
    return repr(result).replace(NOT_CALLED, "")


class Recorded:
    """An objective that records its points; its values depend on the point, and on the number of the evaluation."""

    def __init__(self, space, seed, noise=lambda number: 0.0):
        self.space, self.noise = kl.Space.of(space), noise
        rng = np.random.default_rng(seed)
        self.weights = rng.integers(-5, 6, self.space.family.variables)
        self.keys, self.values = [], []

    def __call__(self, x):
        code = self.space.visible(self.space.encode(x)[None])[0]
        value = float(np.round(code, 3) @ self.weights + (code[0] != code[-1])) + self.noise(len(self.keys))
        self.keys.append(code.tobytes())
        self.values.append(value)
        return value

    def repeats(self):
        """The numbers of the evaluations whose point was evaluated before."""
        seen = set()
        return [i for i, key in enumerate(self.keys) if key in seen or seen.add(key)]


def scheduled(values, repeats):
    """A plain transcription: the numbers of evaluations before each test, as far as the values determine them."""
    due, doubt, found = 8, 1.0, []
    for i in repeats:
        assert i >= due, "a test came too early"
        found.append(i)
        before = values[:i]
        n = len(before)
        counts = np.unique(before, return_counts=True)[1]
        doubt *= max(sum(k * (k - 1) for k in counts) / (n * (n - 1)), 1 / n)
        due = (4 if doubt < 1e-3 else 1.5) * (n + 1)
    return due


@one_quick_space
@examples(8)
@given(seed=st.integers(0, 10**6), batch=st.sampled_from([1, 1, 4]))
def test_between_the_tests_the_run_is_that_of_a_deterministic_objective(name, seed, batch):
    same_between_the_tests(LARGE_SPACES[name], seed, batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_between_the_tests_the_run_with_a_model_is_that_of_a_deterministic_objective(name):
    same_between_the_tests(SPACES[name], 0, 1)


def same_between_the_tests(space, seed, batch):
    stated, found = Recorded(space, seed), Recorded(space, seed)
    kl.minimize(stated, space, budget=120, rng=seed, batch=batch, deterministic=True)
    result = kl.minimize(found, space, budget=120, rng=seed, batch=batch)
    repeats = found.repeats()
    once = [key for i, key in enumerate(found.keys) if i not in set(repeats)]
    assert once == stated.keys[: len(once)]
    assert result.nfev == len(found.keys) <= 120
    assert result.deterministic is not False
    assert result.fun == min(found.values)
    if batch == 1 and len(found.keys) == 120:
        assert scheduled(found.values, repeats) + 10 >= 120 or len(repeats) > 4


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.integers(1, 6))
def test_the_doubt_is_the_product_of_the_chances_that_two_values_agree(values, repeats):
    test = NoiseTest()
    test.observe(np.arange(len(values))[:, None], np.array(values, dtype=float))
    doubt = 1.0
    f = np.array(values, dtype=float)
    for _ in range(repeats):
        test.begin()
        assert not test.judge(float(min(values)), f, len(f))
        n = len(f)
        pairs = [a == b for i, a in enumerate(f) for b in f[:i]]
        doubt *= max(sum(pairs) / len(pairs), 1 / n)
        assert test.doubt == pytest.approx(doubt)
        assert test.due == (4 if doubt < 1e-3 else 1.5) * (n + 1)
        f = np.append(f, min(values))


def test_points_that_share_the_best_value_are_tested_in_turn():
    test = NoiseTest()
    test.observe(np.arange(5)[:, None], np.array([2.0, 1.0, 1.0, 3.0, 1.0]))
    assert [test.begin().item() for _ in range(5)] == [1, 2, 4, 1, 2]
    test.observe(np.array([[7]]), np.array([0.5]))
    assert test.begin().item() == 7
    assert test.expected == 0.5


@pytest.mark.parametrize(("value", "noisy"), [(1.0, False), (1.0 + 0.9 * 50 * JITTER, False), (1.0001, True)])
def test_differences_of_rounding_are_no_noise(value, noisy):
    test = NoiseTest()
    f = np.array([1.0, 50.0, -20.0, math.inf, math.nan])[[1, 0, 3, 4]]
    test.observe(np.arange(4)[:, None], f)
    assert test.values == [1.0]
    test.begin()
    assert test.judge(value, f, len(f)) is noisy


def test_a_test_that_fails_decides_nothing():
    test = NoiseTest()
    f = np.arange(8.0)
    test.observe(np.arange(8)[:, None], f)
    test.begin()
    assert test.judge(math.nan, f, len(f)) is False
    assert test.doubt == 1.0
    assert test.due == 13.5


@one_quick_space
@examples(8)
@given(seed=st.integers(0, 10**6))
def test_float_noise_is_found_by_the_first_test(name, seed):
    rng = np.random.default_rng(seed)
    objective = Recorded(SPACES[name], seed, lambda number: rng.normal())
    result = kl.minimize(objective, SPACES[name], budget=60, rng=seed)
    assert result.deterministic is False
    assert result.nfev == 60
    assert objective.repeats()[0] <= 25
    assert "noisy" in result.message
    assert result.observed_fun == min(objective.values[:57])  # the last 5 % compare finalists


def noise_by_id(id):
    """The same noise for an evaluation wherever and whenever it is made."""
    return float(np.random.default_rng(id).normal())


def told(opt, space, steps, order, noisy=True, forget=None):
    """Run an optimizer with noise by candidate, telling in any order and in any parts; return what can be observed."""
    objective = Recorded(space, 3)
    while opt.nfev < steps:
        batch = list(opt.ask())
        order.shuffle(batch)
        while batch:
            k = 1 + order.integers(len(batch))
            opt.tell(batch[:k], [objective(each.x) + noisy * noise_by_id(each.id) for each in batch[:k]])
            batch = batch[k:]
        if forget is not None:
            opt = forget(opt)
    return opt.nit, opt.deterministic, opt.theta.tobytes(), opt.best.fun, opt.lam


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.slow), 5])
@pytest.mark.parametrize("noisy", [False, True])
@examples(8)
@given(seed=st.integers(0, 1000))
def test_the_order_of_tells_does_not_matter(batch, noisy, seed):
    space = LARGE_SPACES["mixed"]
    runs = [
        told(kl.Optimizer(space, rng=seed, batch=batch), space, 60, np.random.default_rng(order), noisy)
        for order in (1, seed)
    ]
    assert runs[0] == runs[1]
    assert runs[0][1] is (False if noisy else runs[0][1])


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("noisy", [False, True])
def test_a_snapshot_at_any_iteration_changes_nothing(name, noisy, tmp_path):
    space, steps = (LARGE_SPACES[name], 80) if noisy else (SPACES[name], 40)

    def forget(opt):
        opt.save(tmp_path / "run.json")
        return kl.Optimizer.load(tmp_path / "run.json", space)

    plain, forgetful = (
        told(kl.Optimizer(space, rng=7), space, steps, np.random.default_rng(0), noisy, each) for each in (None, forget)
    )
    assert plain == forgetful


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("noisy", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_journal_resumed_at_any_evaluation_gives_the_same_result(name, noisy, tmp_path):
    space, budget = SPACES[name], 150 if noisy else 60
    values = [noise_by_id(i) for i in range(budget)] if noisy else [0.0] * budget

    def resumed(stops, path):
        keys = []
        for stop in stops:
            objective = Recorded(space, 3, values[len(keys) :].__getitem__)
            result = kl.minimize(objective, space, budget=stop, rng=5, journal=path)
            keys += objective.keys
        return keys, result

    whole_keys, whole = resumed([budget], tmp_path / "whole.sqlite")
    for parts in ([20, budget], [9, 10, 11, 30, 31, budget], [100, budget] if noisy else [50, budget]):
        path = tmp_path / f"{parts}.sqlite"
        keys, result = resumed(parts, path)
        # A shorter run may have compared finalists, which the longer one does not repeat.
        assert result.deterministic == whole.deterministic
        if not noisy:
            assert keys == whole_keys
            assert (result.fun, result.nfev, result.nit) == (whole.fun, whole.nfev, whole.nit)
        again = Recorded(space, 3, lambda number: values[number])
        repeated = kl.minimize(again, space, budget=budget, rng=5, journal=path)
        assert not again.keys
        assert look_at(repeated) == look_at(result)


def test_values_from_elsewhere_never_contradict():
    space = kl.Binary(10)
    objective = Recorded(space, 0)
    known = [(x, -100.0) for x in np.eye(10, dtype=np.int8)]
    result = kl.minimize(objective, space, budget=100, known=known, rng=0)
    assert result.deterministic is True
    assert result.fun == -100.0
    opt = kl.Optimizer(space, rng=0)
    while opt.nfev < 60:
        for each in opt.ask():
            value = objective(each.x)
            opt.tell(each, value)
            opt.add(each.x, value + 1.0)
    assert opt.deterministic is True


def test_a_target_is_confirmed_while_there_is_doubt():
    lucky = iter([5.0, -1.0, 4.0, 3.0])  # the second value reaches the target, but not when it is made again

    def fun(x):
        return next(lucky, 2.0)

    result = kl.minimize(fun, kl.Binary(8), budget=30, target=0.0, rng=0)
    assert result.status is not kl.Status.TARGET
    assert not result.success
    assert result.observed_fun == -1.0
    steady = kl.minimize(lambda x: float(x.sum()), kl.Binary(8), budget=300, target=0.0, rng=0)
    assert steady.status is kl.Status.TARGET
    assert steady.success
    stated = kl.minimize(lambda x: float(x.sum()), kl.Binary(8), budget=300, target=0.0, rng=0, deterministic=True)
    assert steady.nfev <= stated.nfev + 5


@pytest.mark.parametrize("k", [1, 3])
def test_a_small_space_is_exhausted_only_when_the_doubt_is_gone(k):
    space = kl.Binary(k)
    sure = kl.minimize(lambda x: float(x @ [1, 2, 4][:k]), space, budget=1000, rng=0)
    assert sure.status is kl.Status.EXHAUSTED
    assert sure.fun == 0.0
    assert sure.nfev <= 2**k + 12
    flat = kl.minimize(lambda x: 1.0, space, budget=1000, rng=0)
    assert flat.status is kl.Status.EXHAUSTED
    assert flat.nfev <= 2**k + 12
    rng = np.random.default_rng(0)
    noisy = kl.minimize(lambda x: rng.normal(), space, budget=100, rng=0)
    assert noisy.status is kl.Status.BUDGET
    assert noisy.deterministic is False


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_test_of_a_small_space_is_left_undecided(k, noisy):
    opt = kl.Optimizer(kl.Binary(4), rng=3)
    while opt.nfev < 60 and (batch := opt.ask(k)):
        for each in batch:
            opt.tell(each, float(each.x @ [1, 2, 4, 8]) + noisy * opt.nfev)
    assert opt.deterministic is (not noisy)


def test_candidates_of_an_exhausted_space_are_fewer_than_asked_for():
    opt = kl.Optimizer(kl.Binary(2), rng=0)
    found = 0
    for _ in range(40):
        batch = opt.ask(3)
        if not batch:
            break
        found += len(batch)
        opt.tell(batch, [float(each.x.sum()) for each in batch])
    assert opt.complete
    assert opt.deterministic is not False
    assert 4 <= found <= 16


def test_cancelled_tests_do_not_decide():
    opt = kl.Optimizer(kl.Binary(10), rng=0)
    seen = set()
    while opt.nfev < 80:
        for each in opt.ask():
            key = each.x.tobytes()
            if key in seen:
                opt.cancel(each)
            else:
                opt.tell(each, float(each.x.sum()))
            seen.add(key)
    assert opt.deterministic is None


def test_what_is_stated_is_neither_tested_nor_changed():
    space = kl.Binary(10)
    for stated, algorithm in ((True, None), (True, pbil_elitist(space))):
        objective = Recorded(space, 0)
        result = kl.minimize(objective, space, budget=60, rng=0, deterministic=stated, algorithm=algorithm)
        assert not objective.repeats()
        assert result.deterministic is True
        assert result.fun_std == 0.0
    explicit = kl.minimize(Recorded(space, 0), space, budget=60, rng=0, algorithm=kl.pbil_lambda(space))
    assert explicit.deterministic is None
    assert explicit.fun_std is None
    assert explicit.fun == explicit.observed_fun
    noisy = kl.minimize(Recorded(space, 0), space, budget=400, rng=0, deterministic=False)
    assert noisy.deterministic is False
    assert noisy.nfev == 400


def test_a_limit_of_time_alone_is_enough():
    result = kl.minimize(lambda x: float(x.sum()), kl.Binary(40), timeout=0.2, target=0.0, rng=0)
    assert result.status in (kl.Status.TARGET, kl.Status.TIMEOUT)
    with pytest.raises(TypeError, match="budget: expected a number of evaluations, or a timeout"):
        kl.minimize(lambda x: 0.0, kl.Binary(4))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("batch", [1, 4])
def test_after_a_target_that_is_not_confirmed_the_iteration_goes_on(workers, batch, tmp_path):
    refuted = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = []

        def fun(x, values=values, rng=rng):
            values.append(float(x.sum() + 20.0 * rng.normal()))
            return values[-1]

        with ThreadPoolExecutor(workers) as pool:
            given = {"workers": pool, "journal": tmp_path / f"{seed}.sqlite", "target": -15.0, "rng": seed}
            result = kl.minimize(fun, kl.Binary(10), budget=60, batch=batch, **given)
            made = len(values)
            again = kl.minimize(fun, kl.Binary(10), budget=60, batch=batch, **given)
        assert result.nfev <= 60
        assert result.success == (result.status is kl.Status.TARGET)
        assert look_at(again) == look_at(result)
        assert len(values) == made
        refuted += result.observed_fun <= -15.0 and sum(value <= -15.0 for value in values) > 1
    assert refuted


@pytest.mark.slow
def test_the_tests_of_a_long_run_stay_rare(monkeypatch):
    monkeypatch.setattr(archive, "MOST_ROWS", 64)
    objective = Recorded(kl.Binary(40), 0)
    result = kl.minimize(objective, kl.Binary(40), budget=1500, rng=0)
    assert result.deterministic is True
    assert len(objective.repeats()) <= 12


@pytest.mark.slow
def test_a_journal_resumed_with_another_target_is_resumed_again_without_evaluations(tmp_path):
    confirmations = 0
    for seed in range(8):
        rng, values = np.random.default_rng(seed), []

        def fun(x, rng=rng, values=values):
            values.append(float(x.sum() + 20.0 * rng.normal()))
            return values[-1]

        given = {"journal": tmp_path / f"{seed}.sqlite", "rng": seed, "budget": 60}
        kl.minimize(fun, kl.Binary(10), **given)
        first = kl.minimize(fun, kl.Binary(10), target=-15.0, **given)
        made = len(values)
        assert look_at(kl.minimize(fun, kl.Binary(10), target=-15.0, **given)) == look_at(first)
        assert len(values) == made
        confirmations += made - 60
    assert confirmations


def test_the_batch_of_a_journal_is_the_default(tmp_path):
    given = {"journal": tmp_path / "run.sqlite", "rng": 0}
    kl.minimize(lambda x: float(x.sum()), kl.Binary(20), budget=30, batch=4, **given)
    resumed = kl.minimize(lambda x: float(x.sum()), kl.Binary(20), budget=60, **given)
    assert repr(resumed) == repr(kl.minimize(lambda x: float(x.sum()), kl.Binary(20), budget=60, batch=4, rng=0))


def test_candidates_that_run_while_a_target_is_refuted_are_evaluated_again():
    release, begun = threading.Event(), []

    def fun(x):
        begun.append(x)
        if len(begun) == 1:
            return -100.0
        if (x == begun[0]).all():
            return 5.0
        if len(begun) > 8:  # the candidates have been submitted again
            release.set()
        release.wait(0.2)
        return float(x.sum())

    with ThreadPoolExecutor(4) as pool:
        result = kl.minimize(fun, kl.Binary(20), budget=30, rng=0, workers=pool, target=-50.0, batch=8)
    assert result.status is kl.Status.BUDGET
    assert result.nfev == 30


def test_an_interrupt_among_the_finalists_loses_no_evaluation():
    rng, values = np.random.default_rng(0), []

    def fun(x):
        if len(values) == 98:
            raise KeyboardInterrupt
        values.append(float(x.sum() + rng.normal()))
        return values[-1]

    result = kl.minimize(fun, kl.Binary(10), budget=100, rng=0)
    assert result.status is kl.Status.INTERRUPTED
    assert result.nfev == 98
    assert result.x is not None


def test_no_finalist_is_evaluated_after_the_time_limit(monkeypatch):
    rng, values = np.random.default_rng(0), []
    monkeypatch.setattr(time, "monotonic", lambda: float(len(values)))  # an evaluation takes a second

    def fun(x):
        values.append(float(x.sum() + rng.normal()))
        return values[-1]

    result = kl.minimize(fun, kl.Binary(10), budget=1000, timeout=60.0, rng=0)
    assert result.status is kl.Status.TIMEOUT
    assert result.deterministic is False
    assert result.nfev == len(values) == 60


def test_the_point_that_has_reached_the_target_is_the_one_that_is_confirmed():
    seen = []
    values = iter([5.0, -9.0, 4.0, 3.0, -1.0, -1.0])  # the first to reach the target is refuted, the second is not

    def fun(x):
        seen.append(x.tobytes())
        return next(values)

    result = kl.minimize(fun, kl.Binary(8), budget=30, target=0.0, rng=0)
    assert result.status is kl.Status.TARGET
    assert seen[2] == seen[1]
    assert seen[5] == seen[4] != seen[1]


def finalists_of(x, f):
    """The finalists of a run with these evaluations of bits."""
    bits = kl.Binary(x.shape[1])
    run = kl.Optimizer(bits, kl.pbil_lambda(bits), deterministic=False).run
    run.archive.add(x, f)
    return finalists(run)


@pytest.mark.parametrize("n", [40, 999, 1000, 3000])
def test_the_lowest_observation_is_a_finalist_of_short_runs_only(n):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (n, 4)).astype(np.int8)
    x[::8] = lowest = [1, 1, 1, 0]
    f = x.sum(axis=1) + rng.normal(size=n)
    f[0] = f.min() - 0.01
    assert (finalists_of(x, f) == lowest).all(axis=1).any() == (n < 1000)


def test_all_evaluations_of_a_long_run_are_modeled():
    x = np.random.default_rng(0).integers(0, 2, (20_000, 3)).astype(np.int8)
    f = x[:, 0] * np.resize([1.0, -3.0], len(x))  # of every second one, the sign is wrong
    assert finalists_of(x, f)[0, 0] == 1


@pytest.mark.parametrize(("variables", "budget"), [(10, 40), (10, 60), (400, 30), (400, 50)])
def test_the_point_of_a_short_run_has_an_estimate_with_an_error(variables, budget, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "run.journal"
    best = rng.integers(0, 2, variables)
    result = kl.minimize(
        lambda x: (x != best).sum() + rng.normal(),
        kl.Binary(variables),
        budget=budget,
        deterministic=False,
        rng=0,
        journal=path,
    )
    assert result.fun_std > 0.0
    assert abs(result.fun - (result.x != best).sum()) < 1.5 * variables**0.5  # three deviations of random points
    with read(path) as record:
        shown = summary(record)
    assert (shown.fun, shown.fun_std) == (result.fun, result.fun_std)
