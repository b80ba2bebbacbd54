"""Importance of variables, slices, parallel coordinates and entropies: known functions, and what the journal has."""

import math

import numpy as np
import pytest
from typer.testing import CliRunner

import knobless as kl
from knobless import plots
from knobless.cli.app import app
from knobless.report.importance import PERMUTATION, VARIANCE, ranks, variable_importance
from knobless.report.observed import Observed
from knobless.report.trace import Trace

SPACE = kl.Space(
    large=kl.Float(1e-3, 1e3, log=True),
    none=kl.Binary(2),
    small=kl.Integer(0, 9),
    middle=kl.Choice("a", "b", "c", "d"),
    only=kl.Float(0, 1).when(middle="a"),
)


def additive(x):
    large = math.log10(x["large"])  # variance 3
    middle = {"a": 0.0, "b": 2.0, "c": 0.0, "d": 2.0}[x["middle"]]  # variance 1
    return large + middle + 0.11 * x["small"]  # variance 0.1


def uniform(count, sign=1.0, fun=additive):
    """Evaluations at independent uniform points."""
    rng = np.random.default_rng(5)
    codes = rng.random((count, SPACE.family.variables))
    for column in SPACE.columns():
        if math.isfinite(column.variable.count) and column.name not in ("small",):
            codes[:, column.where] = rng.integers(int(column.variable.count), size=codes[:, column.where].shape)
    return Observed(SPACE, sign, codes, np.array([sign * fun(x) for x in SPACE.decode_each(codes)]))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("forest", [True, False])
def test_an_additive_function_is_ranked_by_the_variances_of_its_terms(forest, sign):
    found = variable_importance(uniform(900, sign), forest)
    assert found.names[:3] == ["large", "middle", "small"]
    assert found.method == (PERMUTATION if forest else VARIANCE)
    assert found.scores.sum() == pytest.approx(1.0)
    assert (np.diff(found.scores) <= 0.0).all()
    assert found.scores[0] > 2 * found.scores[1] > 4 * found.scores[2] > 0.0
    assert found.scores[3:].max() < 0.02
    assert sorted(found.columns.tolist()) == list(range(6))


def test_a_conditional_variable_counts_where_it_is_active():
    def branch(x):
        return 4.0 * x["only"] if x["middle"] == "a" else 2.0

    for forest in (True, False):
        found = variable_importance(uniform(900, fun=branch), forest)
        assert "only" in found.names[:2]
        assert found.scores[found.names.index("only")] > 0.2


def test_a_forest_sees_an_interaction():
    def parity(x):
        return float(x["none"][0] ^ x["none"][1])

    scores = {forest: variable_importance(uniform(600, fun=parity), forest) for forest in (True, False)}
    assert set(scores[True].names[:2]) == {"none[0]", "none[1]"}
    assert scores[True].scores[:2].sum() > 0.95


def test_the_scores_ignore_increasing_maps_and_constants():
    one = uniform(300)
    other = variable_importance(one._replace(values=np.exp(one.values)))
    same = variable_importance(one)
    assert same.names == other.names
    np.testing.assert_allclose(same.scores, other.scores)
    constant = variable_importance(one._replace(values=np.ones(300)))
    assert not constant.scores.any()
    assert variable_importance(one._replace(codes=one.codes[:0], values=one.values[:0])).scores.tolist() == [0.0] * 6
    np.testing.assert_array_equal(ranks(np.array([3.0, 1.0, 3.0, math.inf])), np.array([1.5, 0.0, 1.5, 3.0]) / 3)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("importance") / "run.sqlite"

    def fun(x):
        if x["small"] == 9:
            raise ValueError("too many")
        return additive(x)

    return path, kl.minimize(fun, SPACE, budget=200, rng=0, journal=path)


@pytest.mark.slow
def test_plots_of_a_result_and_of_its_journal_are_equal(run):
    path, result = run
    for draw in (plots.importance, plots.parallel_coordinates):
        one, other = draw(result), draw(path)
        assert [p.get_width() for p in one.patches] == [p.get_width() for p in other.patches]
        for a, b in zip(one.lines, other.lines, strict=True):
            np.testing.assert_array_equal(a.get_xydata(), b.get_xydata())
    assert len(plots.importance(result).patches) == 6
    calls, values = plots.history(result).lines[0].get_data()
    np.testing.assert_array_equal(values, [each.value for each in result.evaluations])
    assert calls.tolist() == list(range(1, 201))
    best = plots.history(result).lines[1].get_ydata()[-1]
    assert best == plots.history(path).lines[-1].get_ydata()[-1] == result.fun


@pytest.mark.slow
def test_a_slice_has_the_evaluations_in_which_the_variable_is_active(run):
    _, result = run
    seen = [(each.x["only"], each.value) for each in result.evaluations if "only" in each.x and each.status == "ok"]
    dots = plots.slice_plot(result, "only").collections[0].get_offsets()
    np.testing.assert_allclose(dots, seen)
    dots = plots.slice_plot(result, "middle").collections[0].get_offsets()
    options = ["abcd".index(each.x["middle"]) for each in result.evaluations if each.status == "ok"]
    assert np.rint(np.asarray(dots)[:, 0]).tolist() == options
    assert [ax.get_xlabel() for ax in plots.slice_plots(result).axes if ax.get_visible()] == variable_importance(
        Trace.of(run[0]).observed
    ).names
    with pytest.raises(ValueError, match=r"name: expected one of large, none\[0\], .*got 'rate'"):
        plots.slice_plot(result, "rate")


def test_a_line_is_interrupted_where_a_variable_is_inactive(run):
    _, result = run
    lines = [line for line in plots.parallel_coordinates(result).lines if len(line.get_ydata()) == 7]
    told = [each for each in result.evaluations if each.status == "ok"]
    assert len(lines) == len(told)
    assert sum(np.isnan(line.get_ydata()).any() for line in lines) == sum("only" not in each.x for each in told)


def test_entropies_start_at_one_and_are_those_of_theta(run):
    trace = Trace.of(run[0])
    names, iterations, rows = trace.entropies
    assert names == ["large", "none[0]", "none[1]", "small", "middle", "only"]
    assert rows.shape == (len(iterations), 6)
    assert (rows[0] == 1.0).all()
    assert ((rows >= 0.0) & (rows <= 1.0)).all()
    p = np.array(SPACE.family.marginal(trace.theta, SPACE.columns()[1].where.start).p)
    assert rows[-1, 1] == pytest.approx(-(p @ np.log(p)) / math.log(2))
    assert plots.entropy(run[0]).get_yticklabels()[0].get_text() == "large"


def test_a_run_without_values_has_no_plots(tmp_path):
    with kl.Optimizer(SPACE, rng=0, journal=tmp_path / "run.sqlite"), pytest.raises(ValueError, match="at least one"):
        plots.importance(tmp_path / "run.sqlite")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["history", "importance", "entropy", "slices", "parallel"])
def test_each_plot_from_the_shell(run, tmp_path, kind):
    done = CliRunner().invoke(app, ["plot", str(run[0]), "--kind", kind, "-o", str(tmp_path / "plot.svg")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "plot.svg").stat().st_size > 5000
