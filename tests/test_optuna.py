"""The sampler for Optuna: the trials of `Optimizer`, and studies that many processes share."""

import contextlib
import copy
import json
import logging
import math
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import knobless as kl

optuna = pytest.importorskip("optuna")

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402
from optuna.storages import JournalStorage  # noqa: E402
from optuna.storages.journal import JournalFileBackend  # noqa: E402
from optuna.trial import TrialState  # noqa: E402

from knobless.core.rng import Stream  # noqa: E402
from knobless.optuna import KnoblessSampler  # noqa: E402
from knobless.optuna.conditions import Presence  # noqa: E402
from knobless.optuna.fold import Fold  # noqa: E402
from knobless.optuna.joint import Joint  # noqa: E402
from knobless.optuna.ranking import trial_values  # noqa: E402
from knobless.optuna.tags import TAG  # noqa: E402

MIXED = {
    "act": CategoricalDistribution(["relu", "tanh", None]),
    "bias": CategoricalDistribution([False, True]),
    "depth": IntDistribution(1, 9, step=2),
    "drop": FloatDistribution(0.0, 0.5, step=0.1),
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "width": IntDistribution(1, 512, log=True),
}
SPACE = {
    "act": kl.Choice("relu", "tanh", None),
    "bias": kl.Choice(False, True),
    "depth": kl.Integer(1, 9, step=2),
    "drop": kl.Float(0.0, 0.5, step=0.1),
    "lr": kl.Float(1e-5, 1e-1, log=True),
    "width": kl.Integer(1, 512, log=True),
}

# These are the tests of a stated algorithm; those of the recommended search are in test_optuna_search.py.
loop_sampler = partial(KnoblessSampler, algorithm=kl.pbil_lambda)


@pytest.fixture(autouse=True)
def _quiet():
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(level)


def cost(x):
    """Best at one corner of MIXED."""
    return (
        (x["act"] != "tanh")
        + (not x["bias"])
        + abs(x["depth"] - 7) / 8
        + x["drop"]
        + abs(math.log10(x["lr"]) + 3) / 2
        + abs(math.log2(x["width"]) - 5) / 4
    )


def objective(trial):
    return cost({name: trial._suggest(name, each) for name, each in MIXED.items()})


def study_of(sampler, **given):
    return optuna.create_study(sampler=sampler, **given)


def params(study):
    return [dict(sorted(trial.params.items())) for trial in study.get_trials(deepcopy=False)]


def points(count, value=cost, **given):
    """What `Optimizer` hands out, each told at the end of its iteration."""
    opt, found = kl.Optimizer(SPACE, **{"algorithm": kl.pbil_lambda(SPACE)} | given), []
    while len(found) < count:
        batch = opt.ask()
        found += [candidate.x for candidate in batch]
        opt.tell(batch, [value(candidate.x) for candidate in batch])
    return found[:count]


def tags(study):
    return [trial.system_attrs.get(TAG, {}) for trial in study.get_trials(deepcopy=False)]


def iterations(study):
    return [tag.get("iteration") if isinstance(tag, dict) else None for tag in tags(study)]


def check(study, seed, recipe=kl.pbil_lambda):
    """Every tagged trial is drawn from the θ that its tag leads to, by a plain reading of the tags.

    Returns the λ that the algorithm asks for in each iteration, by the trial that opened it.
    """
    trials = study.get_trials(deepcopy=False)
    algorithm = recipe(kl.Space.of(SPACE))
    sign = -1.0 if study.direction == optuna.study.StudyDirection.MAXIMIZE else 1.0
    states, roots = {}, {}

    def state(number):
        if number not in states:
            tag = trials[number].system_attrs[TAG]
            if tag["iteration"] == 0:
                states[number], roots[number] = algorithm.init(), number
            else:
                before = state(tag["after"])
                learned = [trials[n] for n in tag["learned"]]
                assert all(t.system_attrs[TAG]["opened"] == tag["after"] for t in learned)
                x = np.array([t.system_attrs[TAG]["code"] for t in learned])
                f = trial_values(learned, sign)
                states[number], roots[number] = algorithm.tell(before, x, f), roots[tag["after"]]
        return states[number]

    for trial in trials:
        if "code" in trial.system_attrs.get(TAG, {}):
            tag = trial.system_attrs[TAG]
            now = state(tag["opened"])
            rng = Stream.of(seed)
            code = algorithm.ask(now, rng, trial.number - roots[tag["opened"]] + 1)[-1]
            assert code.tolist() == tag["code"]
            seen = kl.Space.of(SPACE).decode(code)
            assert all(seen[name] == value for name, value in trial.params.items())
    return {number: algorithm.lam(state) for number, state in states.items()}


# The trials of a seed.


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.slow), "journal"])
def storage(request, tmp_path):
    match request.param:
        case "memory":
            return optuna.storages.InMemoryStorage()
        case "sqlite":
            return optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/study.db")
        case "journal":
            return JournalStorage(JournalFileBackend(f"{tmp_path}/study.log"))


def test_one_process_runs_the_trials_of_the_optimizer(storage):
    study = study_of(loop_sampler(MIXED, seed=7), storage=storage)
    study.optimize(objective, n_trials=40)
    assert params(study) == points(40, rng=7)
    assert max(iterations(study)) > 8
    check(study, 7)


def test_a_space_that_is_not_given_is_known_after_one_trial():
    study = study_of(loop_sampler(seed=7))
    study.optimize(objective, n_trials=60)
    assert params(study)[1:] == points(59, rng=7)
    assert tags(study)[0] == {"iteration": 0, "number": 0}


def test_maximisation_is_minimisation_of_the_negative():
    study = study_of(loop_sampler(MIXED, seed=1), direction="maximize")
    study.optimize(lambda trial: -objective(trial), n_trials=60)
    assert params(study) == points(60, rng=1)


def test_any_recipe():
    study = study_of(loop_sampler(MIXED, seed=1, algorithm=kl.pbil_epsilon))
    study.optimize(objective, n_trials=60)
    assert params(study) == points(60, rng=1, algorithm=kl.pbil_epsilon(kl.Space.of(SPACE)))
    check(study, 1, kl.pbil_epsilon)


def test_a_study_that_is_resumed_goes_on_as_if_it_had_not_stopped(tmp_path):
    for _ in range(8):
        storage = JournalStorage(JournalFileBackend(f"{tmp_path}/study.log"))
        study = study_of(loop_sampler(MIXED, seed=5), storage=storage, study_name="s", load_if_exists=True)
        study.optimize(objective, n_trials=5)
    assert params(study) == points(40, rng=5)


def test_a_state_that_is_no_longer_kept_is_folded_again(monkeypatch):
    monkeypatch.setattr("knobless.optuna.fold.STATES", 1)
    study = study_of(loop_sampler(MIXED, seed=5))
    study.optimize(objective, n_trials=60)
    assert params(study) == points(60, rng=5)


def test_failed_trials_and_pruned_trials_without_a_report_rank_worst():
    def spoilt(trial):
        value = objective(trial)
        if trial.params["act"] is None:
            raise optuna.TrialPruned
        if trial.params["bias"]:
            raise ArithmeticError
        return value

    study = study_of(loop_sampler(MIXED, seed=2))
    study.optimize(spoilt, n_trials=100, catch=ArithmeticError)
    states = [trial.state for trial in study.trials]
    assert {TrialState.PRUNED, TrialState.FAIL, TrialState.COMPLETE} == set(states)
    assert params(study) == points(100, lambda x: math.nan if x["act"] is None or x["bias"] else cost(x), rng=2)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_pruned_trials_are_ranked_by_their_last_value_behind_completed_ones(direction):
    sign = 1 if direction == "minimize" else -1

    def spoilt(trial):
        value = objective(trial)
        if trial.params["bias"]:
            trial.report(sign * (value - 1e6), 1)
            raise optuna.TrialPruned
        return sign * value

    study = study_of(loop_sampler(MIXED, seed=2), direction=direction)
    study.optimize(spoilt, n_trials=60)
    assert params(study) == points(60, lambda x: cost(x) + 1e6 * x["bias"], rng=2)


def pruned(reports):
    return optuna.create_trial(state=TrialState.PRUNED, intermediate_values=reports)


def complete(value):
    return optuna.create_trial(value=value)


FAILED = optuna.create_trial(state=TrialState.FAIL)


@pytest.mark.parametrize(
    "best_first",
    [
        [[complete(1.0)], [pruned({0: 0.0})], [FAILED, pruned({}), pruned({0: 0.0, 1: math.nan}), complete(math.inf)]],
        [[complete(-math.inf)], [complete(2.0)], [pruned({3: 1.0})], [pruned({3: 2.0}), pruned({2: 9.0, 3: 2.0})]],
        # They are compared at the last step that both have reached.
        [[pruned({1: 2.0, 5: 7.0})], [pruned({1: 3.0})], [pruned({1: 4.0, 5: 8.0})], [pruned({1: 5.0})]],
        [[pruned({1: 2.0, 5: 7.0})], [pruned({2: 2.0})]],
        [[pruned({4: 7.0})], [pruned({2: 2.0})]],
        [[pruned({0: math.inf, 1: 1.0})], [pruned({0: math.inf})]],
        # What was pruned at one step is ordered by the values of this step, whatever they were before.
        [[pruned({1: 6.0, 2: 1.0})], [pruned({1: 5.5})], [pruned({1: 4.0, 2: 2.0})]],
    ],
)
def test_order_of_pruned_trials(best_first):
    trials = [trial for group in best_first for trial in group]
    expected = [place for place, group in enumerate(best_first) for _ in group]
    for order in (range(len(trials)), reversed(range(len(trials)))):
        chosen = list(order)
        found = trial_values([trials[i] for i in chosen], 1.0)
        _, ranks = np.unique(np.where(np.isnan(found), math.inf, found), return_inverse=True)
        assert ranks.tolist() == [expected[i] for i in chosen]


def test_pruned_trials_are_hardly_worse_than_the_worst_completed_one():
    found = trial_values([complete(-3.0), pruned({0: 1e9}), complete(4.0), pruned({0: 2e9}), FAILED], -1.0)
    assert found[:4] == pytest.approx([3.0, 3.0, -4.0, 3.0])  # the preference may depend on the values themselves
    assert found[0] < found[3] < found[1]
    assert math.isnan(found[4])


def test_a_trial_that_fails_before_it_has_asked_for_all_is_still_learned_from():
    def early(trial):
        if trial._suggest("act", MIXED["act"]) is None:
            raise ArithmeticError
        return objective(trial)

    study = study_of(loop_sampler(MIXED, seed=2))
    study.optimize(early, n_trials=60, catch=ArithmeticError)
    expected = points(60, lambda x: math.nan if x["act"] is None else cost(x), rng=2)
    assert any(len(each) == 1 for each in params(study))
    assert all(want | got == want for want, got in zip(expected, params(study), strict=True))


# What is known before.

GOOD = {"act": "tanh", "bias": True, "depth": 7, "drop": 0.1, "lr": 1e-3, "width": 32}


@pytest.mark.parametrize("space", [MIXED, None], ids=["given", "found"])
def test_an_enqueued_trial_is_x0(space):
    study = study_of(loop_sampler(space, seed=4))
    study.enqueue_trial(GOOD)
    study.optimize(objective, n_trials=60)
    assert params(study)[0] == GOOD
    assert params(study)[1:] == points(60, rng=4, x0=GOOD)[1:]


def test_the_best_trial_of_another_sampler_is_x0():
    study = study_of(optuna.samplers.RandomSampler(seed=0), direction="maximize")
    study.optimize(lambda trial: -objective(trial), n_trials=20)
    x0 = dict(sorted(study.best_params.items()))
    study.sampler = loop_sampler(seed=4)
    study.optimize(lambda trial: -objective(trial), n_trials=40)
    assert params(study)[20:] == points(41, rng=4, x0=x0)[1:]


def test_what_is_enqueued_later_leaves_the_other_trials_as_they_are():
    study = study_of(loop_sampler(MIXED, seed=4))
    study.optimize(objective, n_trials=31)
    study.enqueue_trial(GOOD)
    study.enqueue_trial({"depth": 3})  # the rest of it is drawn, but the point is not one of θ
    study.optimize(objective, n_trials=30)
    assert params(study)[31] == GOOD
    assert params(study)[32]["depth"] == 3
    assert tags(study)[31:33] == [{}, {}]
    assert not {31, 32} & {n for tag in tags(study) for n in tag.get("learned", ())}
    check(study, 4)


def test_a_point_outside_the_space_is_no_place_to_start_from():
    study = study_of(loop_sampler(MIXED, seed=4))
    wide = {name: IntDistribution(1, 99) if name == "depth" else each for name, each in MIXED.items()}
    study.add_trial(optuna.create_trial(params=GOOD | {"depth": 50}, distributions=wide, value=-1.0))
    study.optimize(objective, n_trials=20)
    assert params(study)[1:] == points(20, rng=4)


def test_a_point_without_a_finite_value_is_no_place_to_start_from():
    study = study_of(loop_sampler(MIXED, seed=4))
    study.add_trial(optuna.create_trial(params=GOOD, distributions=MIXED, value=math.inf))
    study.optimize(objective, n_trials=20)
    assert params(study)[1:] == points(20, rng=4)


# Trials of other studies.

OTHER = {name: CategoricalDistribution([f"{name}{i}" for i in range(8)]) for name in "abcdef"}


@pytest.mark.parametrize("space", [OTHER, MIXED], ids=["another space", "the same space"])
def test_trials_of_another_study_are_not_learned_from_as_this_study_s_own(space):
    def other(trial):
        return float(len({repr(trial._suggest(name, each)) for name, each in space.items()}))

    old = study_of(loop_sampler(space, seed=1))
    old.optimize(other, n_trials=25)
    study = study_of(loop_sampler(MIXED, seed=2))
    study.optimize(objective, n_trials=5)
    for trial in old.trials:
        study.add_trial(trial)
    for sampler in (study.sampler, loop_sampler(MIXED, seed=2)):
        study.sampler = sampler
        study.optimize(objective, n_trials=20)
    assert max(iterations(study)[30:]) > 5
    assert not {n for tag in tags(study)[30:] for n in tag.get("learned", ())} & set(range(5, 30))


def test_a_copy_of_a_whole_study_continues_as_the_original():
    old, new = (study_of(loop_sampler(MIXED, seed=1)) for _ in range(2))
    old.optimize(objective, n_trials=25)
    for trial in old.trials:
        new.add_trial(trial)
    new.optimize(objective, n_trials=25)
    assert params(new) == points(50, rng=1)


CODE = [0.0, 0.0, 0.5, 0.5, 0.5, 0.5]
OPENING = {"iteration": 1, "opened": 5, "number": 5, "size": 2, "after": 0, "learned": [0, 1], "code": CODE}


@pytest.mark.parametrize(
    "tag",
    [
        None,
        [1, 2],
        "text",
        {},
        {"iteration": "1", "number": 5},
        {"iteration": 0, "opened": 5, "number": 5, "code": CODE, "size": 2},
        {"iteration": 0, "opened": 5, "number": 5, "code": CODE, "size": 2, "identity": {}, "x0": 99},
        {name: value for name, value in OPENING.items() if name != "size"},
        OPENING | {"learned": [0, 99]},
        OPENING | {"learned": None},
        OPENING | {"after": -1},
        OPENING | {"code": [[0.0], 0]},
        {"iteration": 0, "opened": 0, "number": 5, "code": [1.0]},
        {"iteration": 0, "opened": 0, "number": 5, "code": [math.nan] * 6},
        {"iteration": 0, "opened": 0, "number": 5, "code": [99.0, *CODE[1:]]},
    ],
    ids=str,
)
def test_a_malformed_tag_is_ignored(tag):
    study = study_of(loop_sampler(MIXED, seed=2))
    study.optimize(objective, n_trials=5)
    study.add_trial(optuna.create_trial(params=GOOD, distributions=MIXED, value=1.0, system_attrs={TAG: tag}))
    study.optimize(objective, n_trials=20)
    assert max(iteration for n, iteration in enumerate(iterations(study)) if n != 5) > 5
    own = [tag for n, tag in enumerate(tags(study)) if n != 5]
    assert 5 not in {n for tag in own for n in tag.get("learned", ())}


# Conditional parameters.

KERNEL = CategoricalDistribution(["linear", "rbf", "poly"])
LAYERS = IntDistribution(1, 4)
UNIT = FloatDistribution(0, 1)


def trial_of(**given):
    """A completed trial: an option's name, a number of layers, or a float."""
    kinds = {
        name: KERNEL if value in KERNEL.choices else LAYERS if type(value) is int else UNIT
        for name, value in given.items()
    }
    return optuna.create_trial(params=given, distributions=kinds, value=0.0)


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([], {}),
        ([{"x": 0.5, "y": 0.5}], {"x": {}, "y": {}}),
        ([{"x": 0.5, "y": 0.5}, {"y": 0.5}], {"y": {}}),
        ([{"k": "rbf", "gamma": 0.1}, {"k": "linear"}], {"k": {}, "gamma": {"k": (1,)}}),
        (
            [{"k": "rbf", "gamma": 0.1}, {"k": "poly", "gamma": 0.1, "degree": 1}, {"k": "linear"}],
            {"k": {}, "gamma": {"k": (1, 2)}, "degree": {"k": (2,)}},
        ),
        # An integer, and a parent that is conditional itself.
        (
            [{"n": 1}, {"n": 2, "a": "rbf", "x": 0.1}, {"n": 3, "a": "rbf", "x": 0.1}, {"n": 2, "a": "poly"}, {"n": 4}],
            {"n": {}, "a": {"n": (2, 3)}, "x": {"a": (1,)}},
        ),
        # Two parameters that occur together have the same parent, not one another.
        (
            [{"k": "rbf", "a": "rbf", "b": "rbf"}, {"k": "rbf", "a": "poly", "b": "poly"}, {"k": "linear"}],
            {"k": {}, "a": {"k": (1,)}, "b": {"k": (1,)}},
        ),
        # Of two possible parents, the one with fewer values needs fewer assumptions; otherwise the first name.
        (
            [{"k": "rbf", "n": 1, "x": 0.1}, {"k": "rbf", "n": 2, "x": 0.1}, {"k": "poly", "n": 3}],
            {"k": {}, "n": {}, "x": {"k": (1,)}},
        ),
        ([{"k": "rbf", "a": "poly", "x": 0.1}, {"k": "poly", "a": "rbf"}], {"k": {}, "a": {}, "x": {"a": (2,)}}),
        # A float is no parent, nor is a parameter that trials with the other one lack.
        ([{"u": 0.1, "x": 0.1}, {"u": 0.2}], {"u": {}}),
        ([{"u": 0.1, "x": 0.1}, {"u": 0.1, "a": "rbf"}], {"u": {}}),
        # Contradictions.
        ([{"k": "rbf", "x": 0.1}, {"k": "rbf"}, {"k": "poly"}], {"k": {}}),
        ([{"k": "rbf", "x": 0.1}, {"k": "poly", "x": "rbf"}, {"k": "linear"}], {"k": {}}),
    ],
    ids=str,
)
def test_conditions_inferred_from_trials(trials, expected):
    made = [trial_of(**each) for each in trials]
    assert Presence(made).conditions == expected
    assert Presence(reversed(made)).conditions == expected


def test_a_parent_has_few_values():
    wide = CategoricalDistribution(range(17))
    first = optuna.create_trial(params={"w": 0, "x": 0.1}, distributions={"w": wide, "x": UNIT}, value=0.0)
    second = optuna.create_trial(params={"w": 1}, distributions={"w": wide}, value=0.0)
    assert Presence([first, second]).conditions == {"w": {}}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_the_parameters_of_a_random_tree_are_those_that_its_conditions_predict(seed):
    rng = np.random.default_rng(seed)
    tree = {"n00": {}}  # each parameter with the values of at most one earlier parameter
    for i in range(1, 12):
        parent = f"n{rng.integers(i):02}"
        tree[f"n{i:02}"] = {parent: rng.choice(3, rng.integers(1, 3), replace=False)} if rng.random() < 0.7 else {}

    def draw():
        found = {}
        for name, needs in tree.items():
            if all(p in found and KERNEL.choices.index(found[p]) in values for p, values in needs.items()):
                found[name] = str(rng.choice(KERNEL.choices))
        return found

    trials = [draw() for _ in range(1000)]
    conditions = Presence(trial_of(**each) for each in trials).conditions
    assert conditions.keys() == set().union(*trials)
    joint = Joint.of(dict.fromkeys(conditions, KERNEL), conditions, kl.pbil_lambda)
    for found in (draw() for _ in range(200)):
        assert joint.params(joint.code(found)) == found


# Spaces that change.


class ByNumber(optuna.samplers.RandomSampler):
    """An independent sampler without a state: draws by the trial's number. Keeps what it was asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def sample_independent(self, study, trial, name, distribution):
        self.asked.append((trial.number, name))
        rng = optuna.samplers.RandomSampler(seed=trial.number)
        return rng.sample_independent(study, trial, name, distribution)


@contextlib.contextmanager
def warnings_of_the_sampler(caplog):
    """The trials and parameters that the sampler warns about."""
    said = []
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    optuna.logging.enable_propagation()
    with caplog.at_level(logging.WARNING):
        yield said
    optuna.logging.disable_propagation()
    said += {record.args[:2] for record in caplog.records if record.name == "optuna.knobless"}


def models(trial):
    """Three branches, one of them with a branch inside."""
    n = trial.suggest_int("n", 1, 5) / 50
    match trial.suggest_categorical("model", ["linear", "forest", "net"]):
        case "linear":
            return 1 + n
        case "forest":
            return 0.5 + n + trial.suggest_float("share", 0, 1) ** 2
        case "net":
            rate = trial.suggest_float("rate", 1e-4, 1, log=True)
            momentum = trial.suggest_float("momentum", 0, 1) if trial.suggest_categorical("sgd", [False, True]) else 0.5
            return n + abs(math.log10(rate) + 2) + abs(momentum - 0.9)


def test_conditional_parameters_are_sampled_jointly_once_their_condition_is_inferred(caplog):
    independent = ByNumber()
    study = study_of(loop_sampler(independent_sampler=independent, seed=0))
    with warnings_of_the_sampler(caplog) as warned:
        study.optimize(models, n_trials=150)
    asked = independent.asked
    first = {name: next(t.number for t in study.trials if name in t.params) for name in ("share", "rate", "momentum")}
    assert {name: min(n for n, each in asked if each == name) for name in first} == first
    assert max(n for n, _ in asked) < 40
    assert warned == []
    assert study.best_value < 0.2
    assert study.best_params["sgd"]


def test_a_parameter_without_an_explanation_is_left_to_the_independent_sampler(caplog):
    def unexplained(trial):
        x = trial.suggest_float("x", 0, 1) + trial.suggest_int("n", 1, 5)
        return x + (trial.suggest_float("y", 0, 1) if x % 1 < 0.9 else 0)

    independent = ByNumber()
    study = study_of(loop_sampler(independent_sampler=independent, seed=0))
    with warnings_of_the_sampler(caplog) as warned:
        study.optimize(unexplained, n_trials=60)
    without = next(t.number for t in study.trials if "y" not in t.params)
    asked = {n for n, name in independent.asked if name == "y"}
    assert {t.number for t in study.trials if t.number > without + 20 and "y" in t.params} <= asked
    assert [name for _, name in warned] == ["y"]  # once
    assert max(iterations(study)) > 5


def test_a_declaration_that_differs_from_what_is_suggested_is_reported_once(caplog):
    space = {"x": kl.Float(0, 1), "n": kl.Integer(1, 5), "typo": kl.Float(0, 1), "model": kl.Choice("a", "b")}
    space |= {"share": kl.Float(0, 1).when(model="b"), "missing": kl.Float(0, 1).when(model="b")}
    distributions = dict.fromkeys(("x", "share", "typo"), FloatDistribution(0, 1))
    distributions["model"] = CategoricalDistribution(["a", "b"])

    def objective(trial):
        value = trial.suggest_float("x", 0, 1) + trial.suggest_int("n", 1, 9)
        if trial.suggest_categorical("model", ["a", "b"]) == "b":
            value += trial.suggest_float("share", 0, 1)
        return value

    for given, expected in [
        (kl.Space(**space), {"n": 0, "typo": 0, "missing": None}),
        (distributions, {"typo": 10, "n": 1}),  # n is left to the independent sampler
    ]:
        caplog.clear()
        study = study_of(loop_sampler(given, seed=0))
        with warnings_of_the_sampler(caplog) as warned:
            study.optimize(objective, n_trials=15)
        first = next(t.number for t in study.trials if t.params["model"] == "b")
        reported = [(first if number is None else number, name) for name, number in expected.items()]
        assert sorted(warned) == sorted(reported)


@pytest.mark.slow
def test_the_state_follows_from_the_trials_when_the_space_grows(shared):
    def study_again():
        sampler = loop_sampler(independent_sampler=ByNumber(), seed=0)
        return optuna.load_study(study_name="s", storage=shared, sampler=sampler)

    for _ in range(60):
        study_again().optimize(models, n_trials=1)  # another process each time
    one = study_of(loop_sampler(independent_sampler=ByNumber(), seed=0))
    one.optimize(models, n_trials=60)
    assert params(one) == params(study_again())
    assert tags(one) == tags(study_again())


@pytest.mark.slow
def test_a_change_of_the_space_continues_the_run():
    study = study_of(loop_sampler(independent_sampler=ByNumber(), seed=0))
    study.optimize(models, n_trials=100)
    assert sum("x0" in tag for tag in tags(study)) == 1
    assert 1 < sum("identity" in tag for tag in tags(study)) < 15
    # All candidates are learned from once, those of the last iteration excepted.
    learned = sorted(n for tag in tags(study) for n in tag.get("learned", ()))
    last = [n for n, tag in enumerate(tags(study)) if tag["iteration"] == max(iterations(study))]
    assert learned == list(range(1, last[0]))
    # In the last space, the state is that of an algorithm that was told of all iterations.
    presence = Presence(study.trials[: last[0]])
    joint = Joint.of(dict(sorted(presence.distributions.items())), presence.conditions, kl.pbil_lambda)
    state = joint.algorithm.init()
    for tag in tags(study):
        if tag.get("learned"):
            told = [study.trials[n] for n in tag["learned"]]
            own = [t for t in told if joint.drawn(t) is not None]
            codes = [joint.drawn(t) if t in own else joint.code(t.params) for t in told]
            state = joint.algorithm.tell(state, np.array(codes), trial_values(told, 1.0))
    index = last[0] - next(n for n, tag in enumerate(tags(study)) if "x0" in tag)
    words = (joint.algorithm.family.words + 1) // 2
    point = joint.algorithm.ask(state, Stream(Stream.of(0).key, index * words), 1)[0]
    assert joint.params(point).items() >= study.trials[last[0]].params.items()


GIVEN = kl.Space(
    kind=kl.Choice("a", "b"), x=kl.Float(-1, 1).when(kind="a"), y=kl.Float(-1, 1).when(kind="b"), n=kl.Integer(1, 3)
)


@pytest.mark.parametrize(
    "space",
    [
        {
            "kind": CategoricalDistribution(["a", "b"]),
            **dict.fromkeys("xy", FloatDistribution(-1, 1)),
            "n": IntDistribution(1, 3),
        },
        GIVEN,
    ],
    ids=["distributions", "space"],
)
def test_a_conditional_parameter_is_sampled_jointly_if_the_space_is_given(space):
    def tree(trial):
        n = trial.suggest_int("n", 1, 3)
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            return n - 1 + trial.suggest_float("x", -1, 1) ** 2
        return n + 1 + trial.suggest_float("y", -1, 1) ** 2

    class Never(optuna.samplers.RandomSampler):
        def sample_independent(self, *args):
            raise AssertionError

    study = study_of(loop_sampler(space, seed=0, independent_sampler=Never()))
    study.optimize(tree, n_trials=200)
    assert study.best_value < 1e-3
    assert max(iterations(study)) > 20
    assert sum("identity" in tag for tag in tags(study)) == 1 or space is not GIVEN  # nothing is left to infer


def test_a_range_that_differs_from_the_given_one_is_not_learned_from():
    study = study_of(loop_sampler({"x": FloatDistribution(0, 1)}, seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 5, 6), n_trials=20)
    assert all(5 <= trial.params["x"] <= 6 for trial in study.trials)
    assert set(iterations(study)) == {0}


def test_numbers_that_a_float_cannot_tell_apart_are_left_to_the_independent_sampler():
    study = study_of(loop_sampler(seed=0))
    study.optimize(lambda trial: trial.suggest_int("n", 0, 2**60) * trial.suggest_int("m", 0, 9), n_trials=20)
    assert max(iterations(study)) > 3
    assert all(len(tag["code"]) == 1 for tag in tags(study)[1:])


def test_options_that_are_equal_or_not_even_equal_to_themselves():
    study = study_of(loop_sampler(seed=0))
    with pytest.warns(UserWarning, match="tuple"):
        study.optimize(
            lambda trial: float(
                len(repr(trial.suggest_categorical("x", [1, 1.0, True, math.nan, (2, 3)])))
                + trial.suggest_categorical("y", [0, 1])
            ),
            n_trials=30,
        )
    assert max(iterations(study)) > 5


# Many processes, as far as one can play them.


def worker(storage, seed):
    """A study as another process sees it: nothing is shared but the storage."""
    return optuna.load_study(study_name="s", storage=storage, sampler=loop_sampler(MIXED, seed=seed))


@pytest.fixture
def shared():
    storage = optuna.storages.InMemoryStorage()
    optuna.create_study(study_name="s", storage=storage)
    return storage


def finish(study, trial):
    study.tell(trial, objective(trial))


def test_workers_of_one_seed_draw_different_points_from_one_run(shared):
    workers = [worker(shared, 0) for _ in range(3)]
    for _ in range(30):
        out = [(study, study.ask(MIXED)) for study in workers]
        for study, trial in out:
            finish(study, trial)
    study = worker(shared, 0)
    assert len({tuple(tag["code"]) for tag in tags(study)}) == 90
    assert sum(tag["iteration"] == 0 and tag["opened"] == n for n, tag in enumerate(tags(study))) == 1
    check(study, 0)
    # All candidates of earlier iterations are learned from: they come back before the next is opened.
    last = tags(study)[-1]["opened"]
    learned = sorted(n for tag in tags(study) for n in tag.get("learned", ()))
    assert learned == [n for n, tag in enumerate(tags(study)) if tag["opened"] != last]


def test_what_a_dead_worker_has_asked_for_is_waited_for_by_nobody(shared):
    dead, alive = worker(shared, 0), worker(shared, 0)
    for _ in range(5):
        dead.ask(MIXED)
        for _ in range(4):
            finish(alive, alive.ask(MIXED))
    before = max(iterations(alive))
    for _ in range(40):
        finish(alive, alive.ask(MIXED))
    assert before >= 3
    assert max(iterations(alive)) >= before + 5
    # The dead are not taken for workers for ever.
    last = {n: tag["size"] for n, tag in enumerate(tags(alive)) if tag["iteration"] > before + 1 and "size" in tag}
    lam = check(alive, 0)
    assert last == {number: lam[number] for number in last}


def test_late_results_change_nothing(shared):
    slow, quick, other = worker(shared, 0), worker(shared, 0), worker(shared, 0)
    late = [slow.ask(MIXED) for _ in range(3)]
    for _ in range(20):
        finish(quick, quick.ask(MIXED))
    tip = max(iterations(quick))
    for trial in late:
        slow.tell(trial, -100.0)
    finish(quick, quick.ask(MIXED))
    finish(other, other.ask(MIXED))  # folds all of it anew
    assert max(iterations(quick)) in (tip, tip + 1)
    assert not {trial.number for trial in late} & {n for tag in tags(quick) for n in tag.get("learned", ())}
    assert quick.best_value == -100.0
    check(quick, 0)


def test_of_two_that_open_an_iteration_at_once_the_furthest_is_followed():
    joint = Joint.of(MIXED, {}, kl.pbil_lambda)
    key = 0

    def trial(number, tag, state=TrialState.RUNNING):
        attrs = {TAG: tag | {"number": number}} if tag else {}
        made = optuna.create_trial(state=TrialState.COMPLETE, value=float(number), system_attrs=attrs)
        made.number, made.state = number, state
        return made

    def done(number, tag):
        return trial(number, tag, TrialState.COMPLETE)

    root, _ = Fold(optuna.study.StudyDirection.MINIMIZE).draw(joint, [trial(0, None)], 0, key)
    trials = [done(0, root), done(1, {"iteration": 0, "opened": 0, "code": root["code"]})]
    second = {"iteration": 1, "size": 2, "after": 0, "learned": [0, 1], "code": root["code"]}
    trials += [trial(2, None), trial(3, second | {"opened": 3})]
    fold = Fold(optuna.study.StudyDirection.MINIMIZE)

    def opened(number):
        tag, _ = fold.draw(joint, [*trials, trial(number, None)], number, key)
        return tag["opened"]

    assert opened(4) == 3
    trials[2] = trial(2, second | {"opened": 2})  # a slower process had the lower number
    assert opened(4) == 2
    trials += [done(4, {"iteration": 1, "opened": 3, "code": root["code"]})]
    trials[3] = done(3, trials[3].system_attrs[TAG])
    trials += [trial(5, {"iteration": 2, "opened": 5, "size": 2, "after": 3, "learned": [3, 4], "code": root["code"]})]
    assert opened(6) == 5  # but the other has come further


def test_an_opening_is_taken_in_once_all_it_speaks_of_is_seen():
    study = study_of(loop_sampler(MIXED, seed=0))
    study.optimize(objective, n_trials=12)
    trials = study.get_trials()
    joint, key = Joint.of(MIXED, {}, kl.pbil_lambda), 0
    opener = next(n for n, tag in enumerate(tags(study)) if tag["iteration"] == 2)
    late = tags(study)[opener]["learned"][-1]
    torn = copy.deepcopy(trials[: opener + 1])
    torn[late].state = TrialState.RUNNING  # a storage that is read while it is written to
    fold = Fold(optuna.study.StudyDirection.MINIMIZE)
    assert fold.draw(joint, torn, opener + 1, key)[0]["opened"] != opener
    assert fold.draw(joint, trials, len(trials), key) == Fold(study.direction).draw(joint, trials, len(trials), key)


def test_trials_in_threads():
    study = study_of(loop_sampler(MIXED, seed=0))
    barrier = threading.Barrier(4)

    def meet(trial):
        value = objective(trial)
        barrier.wait(300)
        return value

    study.optimize(meet, n_trials=80, n_jobs=4)
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials)
    assert len({tuple(tag["code"]) for tag in tags(study)}) == 80
    check(study, 0)
    assert max(iterations(study)) > 8


def test_an_iteration_is_no_smaller_than_the_number_of_workers(shared):
    workers = [worker(shared, 0) for _ in range(4)]
    out = [study.ask(MIXED) for study in workers]
    for i in range(60):
        finish(workers[i % 4], out[i % 4])
        out[i % 4] = workers[i % 4].ask(MIXED)
    opened = [(tag["iteration"], tag["size"]) for tag in tags(workers[0]) if "size" in tag]
    assert opened[0] == (0, 2)
    assert min(size for iteration, size in opened if iteration > 0) == 4
    check(workers[0], 0)


def test_trials_that_are_asked_for_first_and_suggest_later_are_of_one_run(shared):
    study = worker(shared, 0)
    trials = [study.ask() for _ in range(6)]
    for trial in reversed(trials):
        trial._suggest("act", MIXED["act"])
    for trial in trials:
        finish(study, trial)
    for _ in range(10):
        finish(study, study.ask(MIXED))
    assert sum("identity" in tag for tag in tags(study)) == 1
    assert tags(study)[6]["learned"] == [0, 1, 2, 3, 4, 5]
    # Places in the stream before its beginning are places like others.
    assert len({tuple(tag["code"]) for tag in tags(study)}) == 16


def test_a_tag_that_could_not_be_written_is_not_built_on(shared, monkeypatch):
    study, other = worker(shared, 0), worker(shared, 0)
    out = [study.ask(MIXED) for _ in range(3)]
    for trial in out[:2]:
        finish(study, trial)
    opener = study.ask()
    with monkeypatch.context() as broken:
        broken.setattr(shared, "set_trial_system_attr", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            objective(opener)
    finish(study, out[2])
    finish(study, opener)
    assert tags(study)[3]["learned"] == [0, 1, 2]
    for _ in range(10):
        finish(study, study.ask(MIXED))
        finish(other, other.ask(MIXED))
    check(study, 0)


def test_a_failed_trial_that_is_tried_again_opens_nothing(shared):
    study = worker(shared, 0)
    for _ in range(2):
        finish(study, study.ask(MIXED))
    opener = study.ask()
    opener._suggest("act", MIXED["act"])
    study.tell(opener, state=TrialState.FAIL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        name = "RetryHeartbeatStaleTrialCallback"  # RetryFailedTrialCallback before version 5
        retry = getattr(optuna.storages, name, None) or optuna.storages.RetryFailedTrialCallback
        retry()(study, study.trials[2])
    for _ in range(20):
        finish(study, study.ask(MIXED))
    assert tags(study)[2]["opened"] == 2
    assert study.trials[3].system_attrs["failed_trial"] == 2
    assert study.trials[3].params["act"] == study.trials[2].params["act"]
    assert tags(study)[3] == tags(study)[2]
    assert max(iterations(study)) > 4


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def answers(port):
    """Returns once somebody listens there."""
    for _ in range(3000):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens at {port}")


@pytest.mark.slow
def test_a_grpc_proxy(tmp_path):
    pytest.importorskip("grpc")
    url = f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(study_name="s", storage=url)
    port = free_port()
    serve = "import optuna, sys; optuna.storages.run_grpc_proxy_server(optuna.storages.get_storage(sys.argv[1]), "
    serve += "host='localhost', port=int(sys.argv[2]))"
    server = subprocess.Popen([sys.executable, "-W", "ignore", "-c", serve, url, str(port)], stderr=subprocess.DEVNULL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage = optuna.storages.GrpcStorageProxy(host="localhost", port=port)
        storage.wait_server_ready(timeout=300)
        study = worker(storage, 7)
        study.optimize(objective, n_trials=12)
        assert params(study) == points(12, rng=7)
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    "pruner",
    [
        optuna.pruners.MedianPruner(),
        optuna.pruners.PercentilePruner(40.0),
        optuna.pruners.SuccessiveHalvingPruner(),
        optuna.pruners.HyperbandPruner(max_resource=9),
        optuna.pruners.ThresholdPruner(upper=3.0),
    ],
    ids=lambda pruner: type(pruner).__name__,
)
def test_pruners_work_with_the_sampler(pruner):
    def steps(trial):
        end = trial.suggest_float("x", -1.0, 1.0) ** 2 + trial.suggest_int("n", 0, 4)
        for step in range(1, 10):
            trial.report(end + 1.0 / step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return end

    study = study_of(KnoblessSampler(seed=0), pruner=pruner)
    study.optimize(steps, n_trials=25)
    assert {TrialState.PRUNED, TrialState.COMPLETE} == {trial.state for trial in study.trials}
    assert study.best_value < 0.5


def test_brackets_of_a_pruner_learn_together():
    def steps(trial):
        value = objective(trial)
        for step in range(9):
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study = study_of(loop_sampler(MIXED, seed=0), pruner=optuna.pruners.HyperbandPruner(max_resource=9))
    study.optimize(steps, n_trials=60)
    assert {TrialState.PRUNED, TrialState.COMPLETE} == {trial.state for trial in study.trials}
    assert sum("identity" in tag for tag in tags(study)) == 1
    check(study, 0)


# What it leaves behind, and what it refuses.


def test_only_plain_data_is_stored():
    study = study_of(loop_sampler(MIXED))
    study.optimize(objective, n_trials=30)
    assert study._storage.get_study_system_attrs(study._study_id) == {}
    allowed = {"iteration", "number", "opened", "code", "size", "after", "learned", "identity", "x0"}
    for trial in study.trials:
        assert trial.system_attrs.keys() == {TAG}
        assert trial.system_attrs[TAG].keys() <= allowed
        assert json.loads(json.dumps(trial.system_attrs)) == trial.system_attrs


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda sampler: pickle.loads(pickle.dumps(sampler))])
def test_a_copy_goes_on_like_the_original(copied):
    study = study_of(loop_sampler(MIXED, seed=3))
    study.optimize(objective, n_trials=20)
    assert b"Fold" not in pickle.dumps(study.sampler)
    study.sampler = copied(study.sampler)
    study.optimize(objective, n_trials=20)
    assert params(study) == points(40, rng=3)


def test_a_sampler_may_serve_several_studies():
    sampler = loop_sampler(MIXED, seed=3)
    for _ in range(2):
        study = study_of(sampler)
        study.optimize(objective, n_trials=20)
        assert params(study) == points(20, rng=3)


def test_without_a_seed_runs_differ():
    first, second = (study_of(loop_sampler(MIXED)) for _ in range(2))
    first.optimize(objective, n_trials=3)
    second.optimize(objective, n_trials=3)
    assert params(first) != params(second)


def test_reseeding_is_for_the_independent_sampler():
    def draws(reseed):
        sampler = loop_sampler(seed=0)
        if reseed:
            sampler.reseed_rng()
        study = study_of(sampler)
        study.optimize(objective, n_trials=2)
        return params(study)[0]

    assert draws(False) == draws(False)
    assert draws(True) != draws(False)


def test_what_it_refuses():
    with pytest.raises(TypeError, match=r"KnoblessSampler\(\) got .* argument 'space': use search_space"):
        KnoblessSampler(space={})
    with pytest.raises(TypeError, match=r"argument 'n_startup_trials': the sampler has no strategy parameters"):
        KnoblessSampler(n_startup_trials=10)
    with pytest.raises(TypeError, match=r"search_space\['x'\]: expected a distribution of Optuna, got 3"):
        KnoblessSampler({"x": 3})
    with pytest.raises(TypeError, match=r"search_space\['x'\]: expected one Choice, Integer or Float.*, got Binary"):
        KnoblessSampler(kl.Space(x=kl.Binary(3)))
    with pytest.raises(TypeError, match="search_space: expected a Space of named variables that are not nested"):
        KnoblessSampler(kl.Space(x=kl.Space(y=kl.Float(0, 1))))
    with pytest.raises(TypeError, match="algorithm: expected a recipe such as pbil_lambda, or None, got 'cga'"):
        KnoblessSampler(algorithm="cga")
    study = study_of(loop_sampler(MIXED, algorithm=lambda space: (space, 1)))
    with pytest.raises(TypeError, match=r"algorithm: expected a recipe that returns an algorithm, got \(Space"):
        study.optimize(objective, n_trials=1)
    with pytest.raises(TypeError, match="independent_sampler: expected a sampler of Optuna, got 1"):
        KnoblessSampler(independent_sampler=1)
    with pytest.raises(ValueError, match="seed: expected None or an integer of at least 0, got -1"):
        KnoblessSampler(seed=-1)
    study = study_of(loop_sampler(MIXED), directions=["minimize", "minimize"])
    with pytest.raises(ValueError, match=r"multi-objective optimization, KnoblessSampler cannot be used"):
        study.optimize(lambda trial: (objective(trial), 0.0), n_trials=1)


def test_the_core_does_not_import_optuna():
    script = "import knobless, sys; sys.exit('optuna' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.slow
def test_the_dashboard_shows_the_trials(tmp_path):
    dashboard = shutil.which("optuna-dashboard", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if dashboard is None or chromium is None:
        pytest.skip("needs optuna-dashboard (pip) and chromium (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip)")
    url = f"sqlite:///{tmp_path}/study.db"
    study = study_of(loop_sampler(MIXED, seed=0), storage=url, study_name="of knobless")
    study.optimize(objective, n_trials=12)
    port = free_port()
    words = [dashboard, url, "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        answers(port)
        with sync_api.sync_playwright() as play:
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1400, "height": 1400})
            page.goto(f"http://127.0.0.1:{port}/dashboard/studies/{study._study_id}/trials")
            page.get_by_text("12 Trials").wait_for(timeout=300_000)
            page.get_by_text("Trial 11", exact=True).click()
            page.get_by_text(str(study.trials[11].value)).wait_for(timeout=300_000)
            seen = page.inner_text("body")
            browser.close()
    finally:
        server.kill()
        server.wait()
    assert seen.count("Complete") >= 12
    assert f"act {study.trials[11].params['act']}" in seen
