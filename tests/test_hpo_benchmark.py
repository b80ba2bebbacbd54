"""The benchmark of hyperparameters: two halves that share nothing, active values, random search."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from hpo import BUDGETS, SETTINGS, Run, baseline
from hpo_problems import CHOOSING, NOISY, REPORTING, Problem, real


def models(half):
    """The classes of the models that the problems of a half fit."""
    rng = np.random.default_rng(0)
    classes = set()
    for name, problem in half.items():
        if problem.model is None or name == "lightgbm":  # it need not be installed
            continue
        for _ in range(50):
            model = problem.model(problem.draw(rng))
            classes.add(type(model[-1] if isinstance(model, Pipeline) else model).__name__)
    return classes


def test_the_halves_share_neither_models_nor_data():
    pytest.importorskip("sklearn", minversion="1.7", reason="earlier versions have no quantile_method")
    assert not models(CHOOSING) & models(REPORTING)
    data = [{problem.data for problem in half.values()} - {""} for half in (CHOOSING, REPORTING)]
    assert not data[0] & data[1]
    assert not CHOOSING.keys() & REPORTING.keys()


@pytest.mark.parametrize("half", [CHOOSING, REPORTING])
def test_each_half_has_all_groups_and_two_noisy_problems_of_each(half):
    groups = {"flat", "conditional", "floats", "tables"}
    assert {problem.group for problem in half.values()} == groups
    assert sorted(half[name].group for name in NOISY if name in half) == sorted([*groups] * 2)


@pytest.mark.parametrize("name", ["wine pipeline", "sonar pipeline"])
def test_values_of_inactive_parameters_are_dropped(name):
    problem, rng = (CHOOSING | REPORTING)[name], np.random.default_rng(0)
    values = problem.draw(rng)
    full = {parameter.name: parameter.draw(rng) for parameter in problem.parameters} | values
    assert problem.active(full) == problem.active(values) == values


def uniform(noise=0.0):
    return Problem("floats", (real("x", 0.0, 1.0),), lambda v, split: v["x"], noise=noise)


def test_random_search_finds_the_median_of_the_lowest_of_uniform_values():
    median = baseline(uniform(), noisy=False)["median"]
    for n in BUDGETS:
        assert median[str(n)] == pytest.approx(1.0 - 0.5 ** (1.0 / n), rel=0.3)


def test_under_noise_a_run_is_judged_by_the_true_value_of_the_point_with_the_lowest_one():
    f = Run(uniform(noise=0.3), SETTINGS["noisy"], 0, (20,))
    rng = np.random.default_rng(0)
    seen = [(f(point := f.problem.draw(rng)), point["x"]) for _ in range(20)]
    f.record(20)
    assert f.results[20] == min(seen)[1] != min(x for _, x in seen)
