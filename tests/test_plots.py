"""Plots show the contents of the journal: they are compared with its rows, a fold, and the infos of a callback."""

import json
import math
import sqlite3
from contextlib import closing
from itertools import accumulate
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from typer.testing import CliRunner

import knobless as kl
from conftest import marginals
from knobless import plots
from knobless.algorithms import IGO, Fixed, pbil_elitist
from knobless.journal import records as journal
from knobless.journal.events import ADDED, TOLD
from knobless.report import marginals as report_marginals
from knobless.report import trace
from knobless.report.trace import Trace
from knobless.run.recording import Recording

SPACE = kl.Space(
    switches=kl.Binary(5),
    kernel=kl.Choice("linear", "$cubic$", "round"),
    norm=kl.Choice(None, "None"),
    depth=kl.Integer(1, 9),
    rate=kl.Float(1e-4, 1e-1, log=True),
)
SIGNS = {"minimize": 1.0, "maximize": -1.0}


def loss(x):
    if x["depth"] == 9 and x["switches"][0]:
        raise ValueError(f"too deep for {x['kernel']}")
    if x["kernel"] == "round" and x["depth"] == 2:
        return math.nan
    return float(x["switches"].sum() + abs(x["depth"] - 4) + (x["kernel"] != "round") + abs(math.log(x["rate"] / 1e-2)))


@pytest.fixture(scope="module", params=SIGNS)
def run(request, tmp_path_factory):
    """A recorded run in either direction, with all that can be known of it otherwise."""
    path, infos, sign = tmp_path_factory.mktemp("plots") / "run.sqlite", [], SIGNS[request.param]
    known = [({"switches": [1] * 5, "kernel": "linear", "norm": None, "depth": 4, "rate": 1e-2}, sign * 6.5)]
    result = getattr(kl, request.param)(
        lambda x: sign * loss(x),
        SPACE,
        budget=300,
        known=known,
        rng=1,
        journal=path,
        callback=infos.append,
        algorithm=pbil_elitist(SPACE),  # the only member of a search that has an α
    )
    with journal.read(path) as record:
        events, opt = list(record), kl.Optimizer.from_journal(record)
    assert result.failures > 1
    return SimpleNamespace(path=path, result=result, infos=infos, events=events, opt=opt, sign=sign)


def bests(run):
    """The best value after 0, 1, 2, … calls, by the plainest means."""
    better = min if run.sign > 0 else max
    worst = run.sign * math.inf
    values = [worst if event.value is None else event.value for event in run.events]
    assert run.events[0].fate == ADDED
    return list(accumulate(values, better))


def xy(line):
    return [list(data) for data in line.get_data()]


# What is drawn is what is there.


def test_best_of_a_journal(run):
    calls, values = xy(plots.best(run.path).lines[0])
    every = bests(run)
    assert calls[0] == 0
    assert calls[-1] == 300
    drawn = np.repeat(values[:-1], np.diff(calls))  # a step lasts until the next
    assert [*drawn, values[-1]] == every


def test_best_of_a_result_is_that_of_its_journal_after_each_iteration(run):
    calls, values = xy(plots.best(run.result).lines[0])
    every = bests(run)
    seen = [info.nfev for info in run.infos] + [300]
    assert values == [every[call] for call in calls]
    assert {every[call] for call in seen} == set(values)
    assert calls[-1] == 300
    of_history = xy(plots.best(run.result.history).lines[0])[1]
    assert of_history[-1] == run.infos[-1].best


def test_values_are_those_of_the_evaluations(run):
    ax = plots.values(run.path)
    calls, values = xy(ax.lines[0])
    told = [event for event in run.events if event.fate == TOLD]
    assert calls == list(range(1, 301))
    np.testing.assert_array_equal(values, [math.nan if event.value is None else event.value for event in told])
    low, high = ax.get_ylim()
    inside = [low <= event.value <= high for event in told if event.value is not None]
    assert 0.94 < np.mean(inside) < 1.0
    assert low < run.result.fun < high


def test_the_median_and_quartiles_are_those_of_windows_of_calls(run):
    ax = plots.values(run.path)
    middles, median = xy(ax.lines[1])
    values = np.array([math.nan if e.value is None else e.value for e in run.events if e.fate == TOLD])
    windows = values.reshape(len(middles), -1)
    assert len(windows) == 300 // trace.WINDOW
    np.testing.assert_array_equal(median, np.nanmedian(windows, axis=1))
    np.testing.assert_array_equal(middles, np.arange(1, 301).reshape(windows.shape).mean(axis=1))
    band = Trace.of(run.path).bands
    np.testing.assert_allclose([band.low, band.high], np.nanquantile(windows, [0.25, 0.75], axis=1))


@pytest.mark.parametrize(("draw", "name"), [(plots.lam, "lam_r"), (plots.eps, "eps"), (plots.snr, "snr")])
def test_iterations_are_those_that_a_callback_saw(run, draw, name):
    seen = [getattr(info, name) for info in run.infos]
    iterations, of_result = xy(draw(run.result).lines[0])
    assert iterations == [info.iteration for info in run.infos]
    np.testing.assert_array_equal(of_result, seen)
    np.testing.assert_array_equal(xy(draw(run.path).lines[0])[1], seen)


def test_the_ratio_that_is_kept_is_marked(run):
    lines = plots.snr(run.path).lines
    assert list(lines[1].get_ydata()) == [1.5, 1.5]
    assert len(plots.snr(run.result).lines) == 1


# Where θ has the rows of SPACE: bits (the choice of two is one), then the choice of three, then the numbers' means.
ROWS = {
    **{f"switches[{i}]": i for i in range(5)},
    "norm = 'None'": 5,  # str() would not tell its options apart
    "kernel = linear": 6,
    "kernel = $cubic$": 7,
    "kernel = round": 8,
    "depth": 9,
    "rate": 10,
}


def test_the_heat_map_is_theta_at_each_iteration(run):
    ax = plots.theta(run.path)
    names, iterations, _ = Trace.of(run.path).theta_history
    assert set(names) == set(ROWS)
    assert names[5:9] == ["kernel = linear", "kernel = $cubic$", "kernel = round", "norm = 'None'"]  # as in the space
    assert list(iterations) == [0, *(info.iteration for info in run.infos)]
    drawn = np.asarray(ax.collections[0].get_array())
    theta = np.array([SPACE.family.initial(), *(info.theta for info in run.infos)])
    np.testing.assert_array_equal(drawn, np.clip(theta[:, [ROWS[name] for name in names]], 0, 1).T)
    assert [text.get_text().replace("\\", "") for text in ax.get_yticklabels()] == names
    ax.figure.draw_without_rendering()  # a name with dollars is no formula


def test_marginals_are_those_of_theta_at_the_end(run):
    ax = plots.marginals(run.path)
    theta = run.opt.theta
    bars = [[] for _ in range(9)]
    for bar in ax.patches:
        bars[round(bar.get_y() + bar.get_height() / 2)].append((bar.get_x(), bar.get_width()))
    for i in range(5):
        assert bars[i] == [(0, 1.0), (0, theta[i])]
    assert [width for _, width in bars[5]] == pytest.approx(theta[6:9], abs=1e-15)
    assert [width for _, width in bars[6]] == pytest.approx([1 - theta[5], theta[5]], abs=1e-15)
    assert [left for left, _ in bars[5]] == pytest.approx([0, theta[6], theta[6] + theta[7]], abs=1e-15)
    for row, i in ((7, 9), (8, 10)):
        m, sigma = theta[i], math.sqrt(theta[i + 2] - theta[i] ** 2)
        low, high = max(m - sigma, 0), min(m + sigma, 1)
        assert bars[row][1] == pytest.approx((low, high - low), abs=1e-12)
    dots = [line.get_xdata()[0] for line in ax.lines]
    assert dots == pytest.approx([theta[9], theta[10]])
    texts = {text.get_text() for text in ax.texts}
    assert {f"{run.opt.mode['depth']:.4g}", f"{run.opt.mode['rate']:.4g}"} <= texts


def test_a_number_has_its_value_at_the_mean_and_a_deviation_to_either_side():
    space = kl.Space(rate=kl.Float(1e-4, 1e-1, log=True), depth=kl.Integer(1, 9))
    rate, depth = report_marginals.marginals_of(space)
    theta = np.array([0.5, 0.75, 0.5**2 + 0.25**2, 0.75**2 + 0.1**2])
    assert rate.quantiles(theta) == pytest.approx((10**-2.5, 10**-3.25, 10**-1.75))
    assert depth.quantiles(theta) == (1 + 6, 1 + 5, 1 + 7)  # ninths: 0.75, 0.65 and 0.85 lie in the 7th, 6th, 8th
    assert depth.span(theta) == pytest.approx((0.75, 0.65, 0.85))


def test_each_variable_has_its_own_part_of_theta():
    """Against the distribution of each column, written out point by point."""
    space = kl.Space(
        a=kl.Choice(*"pqr"),
        b=kl.Integer(1, 5),
        c=kl.Choice(*"stu", n=2),
        d=kl.Binary(3),
        e=kl.Float(0, 1),
        f=kl.Choice(*"vw"),
    )
    rng, family = np.random.default_rng(0), space.family
    theta = family.move(family.initial(), 0.1 * rng.normal(size=len(family.initial())))
    written_out = marginals(family, theta)
    found = report_marginals.marginals_of(space)
    assert [each.name for each in found] == ["a", "b", "c[0]", "c[1]", "d[0]", "d[1]", "d[2]", "e", "f"]
    for each in found:
        values, p = written_out[each.column]
        assert space.names[each.column] == each.name
        if each.labels:
            np.testing.assert_allclose(each.probabilities(theta), p)
        else:
            mean = np.dot(values, p)
            sigma = math.sqrt(np.dot(np.square(values), p) - mean**2)
            assert each.span(theta) == pytest.approx(np.clip([mean, mean - sigma, mean + sigma], 0, 1))


# Hitting times.


def hits(path, target, sign):
    with journal.read(path) as record:
        values = [event.value for event in record]
    return next((call for call, v in enumerate(values, 1) if v is not None and sign * v <= sign * target), None)


@pytest.mark.parametrize("direction", SIGNS)
def test_hitting_times_are_the_share_of_runs_that_have_got_there(tmp_path, direction):
    sign, target, paths, results = SIGNS[direction], SIGNS[direction] * 1.0, [], []
    bits = kl.Binary(16)
    for seed in range(7):
        paths.append(tmp_path / f"{seed}.sqlite")
        results.append(
            getattr(kl, direction)(
                lambda x: sign * float(x.sum()),
                bits,
                budget=40,
                algorithm=kl.pbil_lambda(bits),
                rng=seed,
                journal=paths[-1],
            )
        )
    found = [hits(path, target, sign) for path in paths]
    assert 0 < found.count(None) < 7
    calls, share = xy(plots.hitting_times(paths, target).lines[0])
    for call in range(41):
        drawn = share[np.searchsorted(calls, call, side="right") - 1]
        assert drawn == sum(hit is not None and hit <= call for hit in found) / 7
    assert calls[-1] == 40
    # A result has iterations only, and is never earlier than its journal.
    coarse, shares = xy(plots.hitting_times(results, target).lines[0])
    assert shares[-1] == share[-1]
    assert all(a >= b for a, b in zip(coarse, calls, strict=True))


def test_hitting_times_of_nothing():
    with pytest.raises(ValueError, match="runs: expected at least one"):
        plots.hitting_times([], 0.0)
    with pytest.raises(ValueError, match="runs: expected at least one"):
        plots.convergence([])


def test_several_runs_are_one_plot_with_their_names(tmp_path, shell):
    paths = [tmp_path / "first" / "a.sqlite", tmp_path / "second" / "a.sqlite", tmp_path / "b.sqlite"]
    results = []
    for seed, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        results.append(kl.maximize(lambda x: float(x.sum()), kl.Binary(9), budget=30, rng=seed, journal=path))
    ax = plots.convergence(paths)
    assert [line.get_label() for line in ax.lines] == ["first/a", "second/a", "b"]
    for line, path, result in zip(ax.lines, paths, results, strict=True):
        calls, values = xy(line)
        best = [*accumulate((each.value for each in result.evaluations), max)]
        assert values == [best[int(call) - 1] for call in calls]
        assert xy(plots.best(path).lines[0])[0] == calls
    named = plots.convergence({"x": paths[0], "y": results[1]})
    assert [text.get_text() for text in named.get_legend().get_texts()] == ["x", "y"]
    assert len({to_hex(line.get_color()) for line in ax.lines}) == 3
    assert plots.convergence(results * 15).get_legend() is None  # too many names
    done = shell("plot", *paths, "-o", tmp_path / "runs.svg")
    assert done.exit_code == 0, done.output
    assert "second/a" in (tmp_path / "runs.svg").read_text()


# Notebooks.


def test_a_notebook_displays_what_a_function_returns():
    picture = pytest.importorskip("IPython.core.formatters").PNGFormatter()
    result = kl.minimize(lambda x: float(x["bits"].sum()), {"bits": kl.Binary(4)}, budget=10, rng=0)
    for drawn in (plots.history(result), plots.slice_plots(result), plots.importance(result)):
        assert picture(drawn).startswith(b"\x89PNG")
    ours = Figure().subplots()
    assert picture(plots.history(result, ax=ours)) is None  # displayed by who made the figure


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_plots_appear_once_in_a_notebook():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cells = [
        "import knobless as kl\nfrom knobless import plots\n"
        "result = kl.minimize(lambda x: float(x['bits'].sum()), {'bits': kl.Binary(4)}, budget=10, rng=0)",
        "plots.history(result)",
        "plots.slice_plots(result)",
        "import matplotlib.pyplot as plt\nfigure, ax = plt.subplots()\nplots.history(result, ax=ax)",
        "plots.history(result)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=300).execute()
    pictures = [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in notebook.cells]
    assert pictures == [0, 1, 1, 1, 1]


# Traces.


def columns(of):
    names = "fates values iterations positions started ended workers failure_index worker_names steps "
    names += "failure_messages improvements"
    found = {name: getattr(of, name) for name in names.split()}
    return found | {
        "theta_history": of.theta_history,
        "theta": of.theta,
        "mode": of.mode,
        "best": of.best,
        "codes": of.codes(),
    }


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_trace_that_follows_is_one_that_reads_all_at_once(tmp_path, monkeypatch, deterministic):
    monkeypatch.setattr(trace, "CHUNK", 7)
    monkeypatch.setattr(trace, "MAX_ITERATIONS", 16)
    monkeypatch.setattr(trace, "THETA_HISTORY", 8)
    path, rng = tmp_path / "run.sqlite", np.random.default_rng(0)
    opt = kl.Optimizer(SPACE, rng=5, batch=4, deterministic=deterministic, journal=path)
    with journal.read(path) as record:
        following = Trace(record)
    assert len(following) == 0
    assert following.best is None
    assert following.steps == []
    for round_ in range(61):
        batch = list(opt.ask(6) if round_ % 5 == 0 else opt.ask() if opt.n_to_ask else opt.pending)
        for i in rng.permutation(len(batch)).tolist():
            fate = rng.random()
            if fate < 0.1:
                opt.cancel(batch[i])
            elif fate < 0.2:
                opt.tell([batch[i]], [math.nan if fate < 0.15 else ValueError("no")])
            elif fate < 0.9 or round_ % 5:
                opt.tell(batch[i], float(round(rng.normal())))
        if round_ % 10 == 0:
            opt.add(opt.mode, -float(round_ // 30))
        if round_ % 6 and round_ > 6:
            continue
        with journal.read(path) as record:
            assert following.follow(record)
            again, folded = columns(Trace(record)), kl.Optimizer.from_journal(record)
        np.testing.assert_equal(columns(following), again)
        if following.best is not None:
            value, _, code = following.best
            assert value == folded.best.fun
            np.testing.assert_equal(SPACE.decode(code), folded.best.x)
        np.testing.assert_array_equal(following.theta, folded.theta)
        if folded.nit:
            assert following.steps[-1].iteration == folded.nit
            assert following.theta_history[1][-1] == folded.nit
    assert folded.nit > 40
    assert len(following.steps) <= 16
    assert len(following.theta_history[1]) <= 8
    iterations = [step.iteration for step in following.steps]
    assert len(set(np.diff(iterations[:-1]))) == 1  # evenly
    opt.close()


def test_a_trace_does_not_follow_another_run(tmp_path):
    path = tmp_path / "run.sqlite"
    for seed in (0, 1):
        kl.minimize(lambda x: float(x.sum()), kl.Binary(6), budget=10, rng=seed, journal=path)
        with journal.read(path) as record:
            if seed == 0:
                first = Trace(record)
                assert first.follow(record)
            else:
                assert not first.follow(record)
        path.unlink()


def test_a_trace_does_not_follow_the_same_run_begun_again(tmp_path, monkeypatch):
    path, clear = tmp_path / "run.sqlite", Recording.clear

    def traced(recording):
        with journal.read(path) as record:
            first = Trace(record)
            assert record.counts().evaluations == 4
        clear(recording)
        with journal.read(path) as record:
            assert not first.follow(record)

    def backwards(call, items):
        return map(call, list(items)[::-1])

    monkeypatch.setattr(Recording, "clear", traced)
    with pytest.raises(ZeroDivisionError):  # that of the first candidate; those of the others are deleted
        kl.minimize(lambda x: 1 / 0, kl.Binary(6), budget=10, batch=4, rng=0, workers=backwards, journal=path)


@pytest.mark.slow
def test_the_largest_values_are_drawn(tmp_path):
    path, ends = tmp_path / "run.sqlite", (-1.7e308, 1.7e308)
    result = kl.minimize(lambda x: ends[x[0]], kl.Binary(6), budget=60, rng=0, journal=path)
    for figure in (plots.panel(path), plots.panel(result)):
        figure.draw_without_rendering()
        low, high = figure.axes[0].get_ylim()
        assert 0.0 < high - low < math.inf


def test_a_row_that_is_no_point_is_an_error_at_once(tmp_path):
    path = tmp_path / "run.sqlite"
    kl.minimize(lambda x: float(x.sum()), kl.Binary(20), budget=10, rng=0, journal=path)
    with closing(sqlite3.connect(path)) as connection, connection:
        (first,), (second,) = connection.execute("SELECT code FROM events WHERE number IN (1, 2) ORDER BY number")
        codes = [(first + second[:1], 1), (second[1:], 2)]  # together as long as they should be
        connection.executemany("UPDATE events SET code = ? WHERE number = ?", codes)
        mine, fixed = {"function": "mine"}, {"type": "Fixed", "lam": 2, "eps": 0.1}
        algorithm = json.dumps(
            {"type": "IGO", "preference": mine, "adaptation": fixed, "elitism": {"type": "NoElitism"}}
        )
        connection.execute(
            "UPDATE header SET json = json_set(json, '$.algorithm', json(?)) WHERE name = 'identity'", (algorithm,)
        )  # then nothing but the rows themselves can tell
    connection.close()
    with pytest.raises(journal.JournalError, match="3 bytes for each point"):
        Trace.of(path)


@pytest.mark.slow
def test_many_variables_and_iterations_are_thinned_out_evenly(tmp_path):
    path = tmp_path / "wide.sqlite"
    space = kl.Binary(1000)
    cga = kl.algorithms.cga(space)  # with 2 calls an iteration
    kl.minimize(lambda x: x.sum(axis=1), space, budget=3000, algorithm=cga, vectorized=True, rng=0, journal=path)
    of = Trace.of(path)
    names, iterations, theta_history = of.theta_history
    assert theta_history.shape == (len(iterations), report_marginals.HEIGHT)
    shown = [int(name[2:-1]) for name in names]
    assert (shown[0], shown[-1]) == (0, 999)
    assert set(np.diff(shown)) == {3, 4}
    np.testing.assert_array_equal(theta_history[-1], of.theta[shown])
    assert len(iterations) <= trace.THETA_HISTORY
    assert iterations[-1] == 1500
    calls, values = of.dots
    assert len(calls) == trace.DOTS
    assert (calls[0], calls[-1]) == (1, 3000)
    np.testing.assert_array_equal(values, np.array(of.values)[calls - 1])
    assert len(plots.theta(of).get_yticks()) <= plots.NAMES
    assert isinstance(plots.panel(of), Figure)


# What cannot be drawn.


def test_a_result_has_no_values_and_no_theta(run):
    for draw in (plots.values, plots.theta, plots.marginals):
        with pytest.raises(TypeError, match="run: expected a journal, got a Result"):
            draw(run.result)
    with pytest.raises(TypeError, match="run: expected a journal, by its path"):
        plots.best(3)


def second_best(f):
    return np.where(np.argsort(np.argsort(f)) == 1, 1.0, 0.0)


def test_an_algorithm_of_the_users_own_has_values_but_no_theta(tmp_path):
    path, space = tmp_path / "own.sqlite", kl.Binary(8)
    own = IGO(kl.pbil_lambda(space).family, second_best, Fixed(4, 0.1))
    result = kl.minimize(lambda x: float(x.sum()), space, budget=60, algorithm=own, rng=0, journal=path)
    of = Trace.of(path)
    assert of.best[0] == result.fun
    assert xy(plots.best(path).lines[0])[1][-1] == result.fun
    assert len(plots.panel(path).axes) == 1
    for draw in (plots.theta, plots.marginals, plots.lam):
        with pytest.raises(ValueError, match="custom algorithm"):
            draw(path)


def test_a_run_without_an_iteration_has_no_lines(tmp_path):
    path = tmp_path / "empty.sqlite"
    kl.Optimizer(kl.Binary(3), rng=0, journal=path).close()
    with pytest.raises(ValueError, match="at least one iteration"):
        plots.lam(path)
    assert xy(plots.best(path).lines[0]) == [[], []]
    assert isinstance(plots.panel(path), Figure)


# On the same axes, and from the shell.


def test_pictures_go_where_they_are_told(run):
    ax = Figure().subplots()
    of = Trace.of(run.path)
    assert plots.best(of, ax=plots.values(of, ax=ax)) is ax
    assert [line.get_label() for line in ax.lines] == ["evaluations", "median", "best so far"]
    assert to_hex(ax.lines[2].get_color()) == plots.BLUE


@pytest.mark.slow
def test_a_panel_has_all_of_it(run):
    axes = plots.panel(run.path).axes
    labels = {ax.get_ylabel() for ax in axes}
    assert {"value", "$\\lambda_r$", "$\\varepsilon$", "$\\|s\\|^2 / \\gamma$"} <= labels
    assert f"{run.result.fun:.6g} after 300 evaluations" in plots.panel(run.path).get_suptitle()
    assert len(plots.panel(run.result).axes) == 4


def test_curves_are_those_of_the_evaluations_and_the_stopped_ones_end_with_a_dot(tmp_path):
    path = tmp_path / "run.sqlite"
    space = kl.Space(x=kl.Float(-1, 1))
    result = kl.maximize(lambda x: (-(x["x"] ** 2) - 1 / k for k in range(1, 6)), space, budget=14, rng=0, journal=path)
    evaluations = [*result.evaluations]
    for source in (path, result):
        ax = plots.curves(source)
        *lines, good = ax.lines
        drawn = {(line.get_color() == plots.ORANGE, tuple(line.get_ydata())) for line in lines}
        assert drawn == {(each.status == "stopped", each.steps) for each in evaluations}
        assert all(bool(line.get_markevery()) == (line.get_color() == plots.ORANGE) for line in lines)
        assert good.get_ydata()[-1] == result.fun
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["stopped", "complete", "best"]
    with pytest.raises(ValueError, match="expected one of an objective that yields"):
        plots.curves(kl.minimize(lambda x: x["x"], space, budget=3, rng=0))


@pytest.fixture
def shell():
    import typer

    from knobless.cli.pictures import register

    app = typer.Typer()
    register(app)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.slow
def test_plot_from_the_shell(run, shell, tmp_path):
    done = shell("plot", run.path, "-o", tmp_path / "run.png")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    done = shell("plot", run.path, run.path, "--target", run.result.fun, "-o", tmp_path / "hits.svg")
    assert done.exit_code == 0, done.output
    assert "fraction of 2 runs" in (tmp_path / "hits.svg").read_text()


def test_the_shell_says_what_is_wrong(run, shell, tmp_path):
    before = run.path.read_bytes()
    for words, said in (
        (("plot", tmp_path / "no.sqlite"), "no such file"),
        (("plot", run.path, run.path, "--kind", "slices"), "--kind: expected none with several journals"),
        (("plot", run.path, "-o", run.path), "the journal itself"),
        (("report", run.path, "-o", run.path), "the journal itself"),
    ):
        done = shell(*words)
        assert done.exit_code == 2
        assert said in " ".join(done.output.split())
    assert run.path.read_bytes() == before
