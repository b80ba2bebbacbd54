"""The sampler for Optuna with the recommended search: the trials are the evaluations of `minimize`."""

import math

import numpy as np
import pytest

import knobless as kl

optuna = pytest.importorskip("optuna")

from optuna.distributions import FloatDistribution  # noqa: E402
from optuna.trial import TrialState  # noqa: E402

from knobless.optuna import KnoblessSampler  # noqa: E402
from knobless.optuna.joint import declared  # noqa: E402
from knobless.optuna.tags import TAG, call_of  # noqa: E402

SPACES = {
    "floats": kl.Space(x=kl.Float(-1, 1), rate=kl.Float(1e-4, 1, log=True)),
    "mixed": kl.Space(
        z=kl.Choice("a", "b", "c"), bias=kl.Choice(False, True), n=kl.Integer(1, 50), x=kl.Float(0, 1, step=0.01)
    ),
    "bits": kl.Space(**{f"b{i:02}": kl.Choice(0, 1) for i in range(14)}),
    "conditional": kl.Space(
        kind=kl.Choice("a", "b", "c"),
        x=kl.Float(0, 1).when(kind="a"),
        n=kl.Integer(1, 9).when(kind="b"),
        y=kl.Float(0, 1),
    ),
}
BOX = SPACES["floats"]


@pytest.fixture(autouse=True)
def _quiet():
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(level)


def cost(values):
    """Every variable matters, at another value."""
    each = [(str(name), value) for name, value in sorted(values.items())]
    return sum((sum(map(ord, str(v))) % 7 if isinstance(v, str) else v - ord(k[0]) % 5 / 4) ** 2 for k, v in each)


def distributions_of(space):
    """The distributions of all parameters of a space."""
    return declared(space)[0]


def suggested(trial, space):
    """The values of a trial, whose parameters are those of a space."""
    distributions, values = distributions_of(space), {}
    for column in space.columns():
        if all(parent in values and values[parent] in needed for parent, needed in column.conditions):
            values[column.name] = trial._suggest(column.name, distributions[column.name])
    return values


def study_of(space, seed=3, **given):
    return optuna.create_study(sampler=KnoblessSampler(space, seed=seed), **given)


def points(study):
    return [dict(sorted(trial.params.items())) for trial in study.get_trials(deepcopy=False)]


def evaluations(space, count, seed=3, value=cost, **given):
    """The points of `minimize`."""
    seen = []
    fun = lambda x: seen.append(dict(sorted(x.items()))) or value(x)  # noqa: E731
    kl.minimize(fun, space, budget=count, rng=seed, **given)
    return seen


@pytest.mark.parametrize("kind", sorted(SPACES))
def test_the_trials_of_one_process_are_the_evaluations_of_minimize(kind):
    space, count = SPACES[kind], 30
    study = study_of(space)
    study.optimize(lambda trial: cost(suggested(trial, space)), n_trials=count)
    assert points(study) == evaluations(space, count)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "noise"), [("mixed", 0.0), ("floats", 1.0)])
def test_long_studies_of_one_process_are_runs_of_an_optimizer(kind, noise):
    space, count, found = SPACES[kind], 130, []
    opt, errors = kl.Optimizer(space, rng=3), np.random.default_rng(0)
    while len(found) < count:
        batch = opt.ask()
        found += [dict(sorted(candidate.x.items())) for candidate in batch]
        opt.tell(batch, [cost(candidate.x) + noise * errors.normal() for candidate in batch])
    assert opt.deterministic is (noise == 0.0)
    errors = np.random.default_rng(0)
    study = study_of(space)
    study.optimize(lambda trial: cost(suggested(trial, space)) + noise * errors.normal(), n_trials=count)
    assert points(study) == found[:count]


def test_maximization_is_minimization_of_the_negative():
    study = study_of(BOX, direction="maximize")
    study.optimize(lambda trial: -cost(suggested(trial, BOX)), n_trials=20)
    assert points(study) == evaluations(BOX, 20)


def test_a_study_that_is_resumed_continues_as_if_it_had_not_stopped():
    storage = optuna.storages.InMemoryStorage()
    for seed in (3, 3, 4):  # the seed is that of the first trial
        study = study_of(BOX, seed, storage=storage, study_name="s", load_if_exists=True)
        study.optimize(lambda trial: cost(suggested(trial, BOX)), n_trials=10)
    assert points(study) == evaluations(BOX, 30)


def test_failures_rank_worst():
    def spoilt(trial):
        values = suggested(trial, BOX)
        if values["x"] > 0.2:
            raise ArithmeticError
        return cost(values)

    study = study_of(BOX)
    study.optimize(spoilt, n_trials=25, catch=ArithmeticError)
    assert points(study) == evaluations(BOX, 25, value=lambda x: math.nan if x["x"] > 0.2 else cost(x))


def test_pruned_trials_are_evaluations_that_were_stopped():
    def pruned(trial):
        value = cost(suggested(trial, BOX))
        trial.report(2.0 * value, 0)
        if value > 1.0 and trial.number not in (0, 1, 4, 9, 16):
            raise optuna.TrialPruned
        return value

    study = study_of(BOX)
    study.optimize(pruned, n_trials=25)
    opt = kl.Optimizer(BOX, rng=3)
    for trial in study.trials:
        (candidate,) = opt.ask(1)
        assert trial.params == candidate.x
        value = cost(candidate.x)
        opt.report(candidate, 2.0 * value)
        opt.run.reported[candidate.id] = type(opt.run.reported[candidate.id])(
            (2.0 * value,), trial.state == TrialState.PRUNED
        )
        opt.tell(candidate, 2.0 * value if trial.state == TrialState.PRUNED else value)
    assert TrialState.PRUNED in {trial.state for trial in study.trials}


def test_enqueued_trials_and_those_of_other_samplers_are_learned_from():
    study = study_of(BOX)
    study.enqueue_trial({"x": 0.25, "rate": 0.01})
    study.add_trial(optuna.create_trial(params={"x": 5.0}, distributions={"x": FloatDistribution(0, 9)}, value=-9.0))
    study.optimize(lambda trial: cost(suggested(trial, BOX)), n_trials=12)
    opt = kl.Optimizer(BOX, rng=3)
    opt.add({"x": 0.25, "rate": 0.01}, cost({"x": 0.25, "rate": 0.01}))
    for trial in study.trials[2:]:
        (candidate,) = opt.ask(1)
        assert trial.params == candidate.x
        opt.tell(candidate, cost(candidate.x))
    study.enqueue_trial({"x": 0.5})  # the rest of it is random, and it is learned from
    study.optimize(lambda trial: cost(suggested(trial, BOX)), n_trials=2)
    assert study.trials[-2].params["x"] == 0.5
    assert study.trials[-2].number in study.trials[-1].system_attrs[TAG]["told"]


def workers(count, seeds):
    """Studies as other processes see them: nothing is shared but the storage."""
    storage = optuna.storages.InMemoryStorage()
    optuna.create_study(study_name="s", storage=storage)
    return [
        optuna.load_study(study_name="s", storage=storage, sampler=KnoblessSampler(BOX, seed=seed))
        for seed in seeds[:count]
    ]


def ask(study):
    """A trial that has its parameters."""
    return study.ask(distributions_of(BOX))


def finish(study, trial):
    study.tell(trial, cost(suggested(trial, BOX)))


@pytest.mark.parametrize("seeds", [(0, 0, 0, 0), (0, 1, 2, 3)], ids=["one seed", "several seeds"])
def test_processes_take_part_in_one_search(seeds):
    each = workers(4, seeds)
    running = [ask(study) for study in each]
    for i in range(40):
        finish(each[i % 4], running[i % 4])
        running[i % 4] = ask(each[i % 4])
    every = [tuple(point.values()) for point in points(each[0]) if point]
    assert len(set(every)) >= len(every) - 4  # some are evaluated again, to test for noise
    # The calls of another process, which reads the trials alone, are the same: it goes on where they are.
    again = optuna.load_study(study_name="s", storage=each[0]._storage, sampler=KnoblessSampler(BOX, seed=7))
    trial = ask(again)
    assert call_of(again.get_trials(), trial.number).seed == 0
    assert min(t.value for t in again.trials if t.value is not None) < 0.1


def test_no_process_waits_for_one_that_is_gone():
    dead, alive = workers(2, (0, 0))
    for _ in range(3):
        ask(dead)
        for _ in range(8):
            finish(alive, ask(alive))
    assert alive.best_value < 0.05
    assert len({tuple(trial.params.values()) for trial in alive.trials}) >= 24


def test_a_trial_whose_tag_is_not_there_yet_is_assumed_to_have_the_next_candidate(monkeypatch):
    slow, quick = workers(2, (0, 0))
    finish(quick, ask(quick))
    kept = []
    with monkeypatch.context() as patch:
        patch.setattr(slow._storage, "set_trial_system_attr", lambda *given: kept.append(given))
        first = ask(slow)
    second = ask(quick)
    calls = [call_of(slow.get_trials(), trial.number) for trial in (first, second)]
    assert calls[0] is None
    slow._storage.set_trial_system_attr(*kept[0])
    late = call_of(slow.get_trials(), first.number)
    assert late.code != calls[1].code
    assert late.candidate < calls[1].candidate
    for study, trial in ((slow, first), (quick, second)):
        finish(study, trial)
    finish(quick, ask(quick))
    assert quick.best_value <= min(t.value for t in quick.trials)


GOOD = {
    "number": 5,
    "space": "0123456789abcdef",
    "seed": 0,
    "told": [0, 1],
    "candidate": 5,
    "code": [0.5, 0.5],
}


@pytest.mark.parametrize(
    "change",
    [
        {"number": 4},
        {"space": None},
        {"seed": -1},
        {"told": None},
        {"told": [-1]},
        {"candidate": 1.5},
        {"code": [math.nan, 0.5]},
        {"code": "text"},
        {"more": 1},
    ],
    ids=str,
)
def test_malformed_tags_are_ignored(change):
    study = study_of(BOX)
    study.optimize(lambda trial: cost(suggested(trial, BOX)), n_trials=5)
    params, given = {"x": 0.1, "rate": 0.1}, distributions_of(BOX)
    tag = {TAG: GOOD | change}
    study.add_trial(optuna.create_trial(params=params, distributions=given, value=1.0, system_attrs=tag))
    assert call_of(study.trials, 5) is None
    study.optimize(lambda trial: cost(suggested(trial, BOX)), n_trials=5)
    assert study.trials[6].system_attrs[TAG]["told"] == [4, 5]


@pytest.mark.parametrize("change", [{"code": [9.0]}, {"told": [0, 99]}, {"candidate": 10**6}], ids=str)
def test_tags_that_cannot_be_are_harmless(change):
    study = study_of(BOX)
    study.optimize(lambda trial: cost(suggested(trial, BOX)), n_trials=5)
    params, given = {"x": 0.1, "rate": 0.1}, distributions_of(BOX)
    tag = {TAG: study.trials[4].system_attrs[TAG] | {"number": 5, "candidate": 5} | change}
    study.add_trial(optuna.create_trial(params=params, distributions=given, value=1.0, system_attrs=tag))
    study.optimize(lambda trial: cost(suggested(trial, BOX)), n_trials=8)
    assert study.best_value < 1.0


def test_a_space_that_grows_continues_with_all_that_is_known():
    def branches(trial):
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            return 1.0 + trial.suggest_float("x", 0, 1)
        return (trial.suggest_float("y", 0, 1) - 0.3) ** 2 + trial.suggest_int("n", 0, 9) / 9

    study = optuna.create_study(sampler=KnoblessSampler(seed=0))
    study.optimize(branches, n_trials=40)
    assert study.best_value < 0.01
    spaces = [trial.system_attrs[TAG]["space"] for trial in study.trials if TAG in trial.system_attrs]
    assert 1 < len(set(spaces)) < 5
    changed = next(i for i, space in enumerate(spaces) if space == spaces[-1]) + len(study.trials) - len(spaces)
    assert study.trials[changed].system_attrs[TAG]["told"] == list(range(changed))


def test_a_space_all_of_whose_points_are_evaluated_gives_random_ones():
    space = kl.Space(a=kl.Choice(0, 1), b=kl.Choice(0, 1))
    study = study_of(space)
    study.optimize(lambda trial: float(trial.suggest_categorical("a", (0, 1))), n_trials=30)
    assert study.trials[-1].system_attrs[TAG]["candidate"] is None
    assert len({repr(trial.params) for trial in study.trials}) == 2 or study.best_value == 0.0


def test_parameters_that_are_suggested_with_other_ranges_are_learned_from_where_they_fit():
    study = optuna.create_study(sampler=KnoblessSampler({"x": FloatDistribution(0, 1)}, seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 5, 6), n_trials=15)
    assert all(5 <= trial.params["x"] <= 6 for trial in study.trials)


def test_several_directions():
    study = study_of(BOX, directions=["minimize", "maximize"])
    study.optimize(lambda trial: (cost(v := suggested(trial, BOX)), v["x"]), n_trials=20)
    found, opt = [], kl.Optimizer(BOX, rng=3, objectives={"a": "min", "b": "max"})
    while len(found) < 20:
        (candidate,) = opt.ask(1)
        found.append(dict(sorted(candidate.x.items())))
        opt.tell(candidate, (cost(candidate.x), candidate.x["x"]))
    assert points(study) == found


DIRECTIONS, NAMES = ["minimize", "maximize"], {"cost": "min", "gain": "max"}


def two(x):
    """The cost, and what is largest elsewhere."""
    return cost(x), sum(v for v in x.values() if isinstance(v, float)) - 3.0 * (x.get("z") == "b")


@pytest.mark.parametrize("kind", ["mixed", pytest.param("conditional", marks=pytest.mark.slow)])
def test_several_objectives_have_the_points_of_minimize(kind):
    space, storage = SPACES[kind], optuna.storages.InMemoryStorage()
    for count in (13, 11):  # in another process, as it were
        study = study_of(space, directions=DIRECTIONS, storage=storage, study_name="s", load_if_exists=True)
        study.optimize(lambda trial: two(suggested(trial, space)), n_trials=count)
    assert points(study) == evaluations(space, 24, value=two, objectives=NAMES)


def excess(x):
    return [x["n"] - 20.5, x["x"] - 0.8]


@pytest.mark.parametrize("form", ["constraints_func", "set_constraint"])
@pytest.mark.parametrize("several", [False, True])
def test_constraints_are_those_of_minimize(form, several):
    if form == "set_constraint" and not hasattr(optuna.Trial, form):
        pytest.skip("needs Optuna 5")
    space, fun = SPACES["mixed"], two if several else cost

    def objective(trial):
        x = suggested(trial, space)
        if form == "set_constraint":
            for name, value in zip("ab", excess(x), strict=True):
                trial.set_constraint(name, value)
        return fun(x)

    options = {"constraints_func": lambda trial: excess(trial.params)} if form == "constraints_func" else {}
    sampler = KnoblessSampler(space, seed=3, **options)
    study = optuna.create_study(sampler=sampler, directions=DIRECTIONS[: 1 + several])
    study.optimize(objective, n_trials=14)
    feasible = [max(excess(trial.params)) <= 0.0 for trial in study.trials]
    assert not all(feasible)
    given = {"objectives": NAMES} if several else {}
    assert points(study) == evaluations(
        space, 14, value=lambda x: kl.Constrained(fun(x), sum(max(each, 0.0) for each in excess(x))), **given
    )


def test_constraints_of_a_stated_algorithm():
    constraint = lambda trial: [trial.params["n"] - 6.5]  # noqa: E731
    sampler = KnoblessSampler(SPACES["mixed"], seed=3, algorithm=kl.pbil_lambda, constraints_func=constraint)
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: cost(suggested(trial, SPACES["mixed"])), n_trials=150)
    feasible = [trial.params["n"] <= 6 for trial in study.trials]
    assert sum(feasible[:20]) < 8
    assert sum(feasible[-20:]) > 15


def test_constraints_that_cannot_be_computed_end_the_study():
    sampler = KnoblessSampler(BOX, seed=3, constraints_func=lambda trial: [math.nan])
    study = optuna.create_study(sampler=sampler, directions=DIRECTIONS)
    with pytest.raises(ValueError, match="constraints_func: expected numbers, got"):
        study.optimize(lambda trial: (cost(suggested(trial, BOX)), 0.0), n_trials=2)
    study.tell(study.ask(), state=TrialState.FAIL)
    with pytest.raises(TypeError, match="constraints_func: expected a function of a trial, got 1"):
        KnoblessSampler(constraints_func=1)


def test_several_objectives_in_threads_and_failures():
    space = SPACES["mixed"]

    def fun(trial):
        x = suggested(trial, space)
        if x["z"] == "c":
            raise RuntimeError
        return two(x)

    study = study_of(space, directions=DIRECTIONS)
    study.optimize(fun, n_trials=16, n_jobs=4, catch=RuntimeError)
    assert 0 < sum(trial.state == TrialState.FAIL for trial in study.trials) < 12
    ahead = [study.ask() for _ in range(4)]
    assert len({tuple(trial.relative_params.values()) for trial in ahead}) == 4


def test_six_objectives_are_too_many():
    study = study_of(BOX, directions=["minimize"] * 6)
    with pytest.raises(ValueError, match="objectives: expected 1 to 5 different names"):
        study.optimize(lambda trial: (cost(suggested(trial, BOX)),) * 6, n_trials=1)
