"""Plots of runs, with matplotlib.

Each function draws one plot and returns its `Axes`; `panel` returns a `Figure`.

    ax = plots.best("run.sqlite")                      # a journal, by its path or as
    knobless.journal.read returns it ax = plots.best(result)                            # the result
    of minimize, or its history plots.best(trace, ax=plots.values(trace))          # two plots in
    one; a Trace is a journal read once plots.convergence(["a.sqlite", "b.sqlite"])        # several
    runs in one plot plots.front(result)                                # several objectives
    plots.curves(result)                               # values over steps, of an objective that
    yields plots.importance(result)                           # which variables matter
    plots.slice_plots("run.sqlite")                    # a figure with one plot per variable
    plots.panel("run.sqlite").savefig("run.png")       # all plots of a run in one figure

θ over time is recorded in journals only.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knobless._checks import extra
from knobless.core.pareto import scaled
from knobless.core.types import Array
from knobless.journal.evaluations import Evaluations
from knobless.report.importance import ranks, variable_importance
from knobless.report.marginals import Marginal, evenly
from knobless.report.observed import Observed, ObservedColumn
from knobless.report.outcomes import Outcomes, attained, signs_of
from knobless.report.trace import (
    CURVES,
    LearningCurve,
    Trace,
    drawable,
    extent,
    improvements,
    run_names,
)
from knobless.run.iteration import Info
from knobless.run.result import History, Result

with extra("plots"):
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

__all__ = [
    "attainment",
    "best",
    "convergence",
    "curves",
    "entropy",
    "eps",
    "front",
    "history",
    "hitting_times",
    "hypervolume",
    "importance",
    "lam",
    "marginals",
    "panel",
    "parallel_coordinates",
    "slice_plot",
    "slice_plots",
    "snr",
    "theta",
    "values",
]

LINE_COLORS = (
    "#1f5fa8",
    "#e07b1a",
    "#2e8b57",
    "#b03a5b",
    "#7b5ea7",
    "#8a6d3b",
    "#3aa6b9",
    "#5f6670",
)
BLUE = "#1f5fa8"
ORANGE = "#e07b1a"
GREY = "#8a8f98"
INK = "#22262b"
PALE = "#e6ebf2"
MAP = LinearSegmentedColormap.from_list(
    "theta", ["#f3f6fa", "#a9c7e8", "#1f5fa8", "#0d2a52"]
)
NAMES = 40  # maximum number of names on an axis
BARS = 20  # variables in a plot of their importance, at most
SLICES = 12  # variables in a figure of slices, at most
AXES = 10  # variables in a plot of parallel coordinates, at most
LINES = 500  # evaluations in it, at most
DOTS_IN_SLICE = 2000  # evaluations in a slice, at most


def best(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the best objective value so far over evaluations.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or History
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        history.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    calls, values, _ = _best_of(run)
    ax = _axes(ax, "evaluations", "value")
    _best_line(ax, calls, values)
    _thousands(ax)
    return _with_legend(ax)


def values(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the values of single evaluations as dots, with their median and quartiles.

    Of many evaluations, an evenly chosen part is drawn. The worst 5 % may lie outside the axes.

    Parameters
    ----------
    run : str, os.PathLike, Record or Trace
        Journal, by its path or as `knobless.journal.read` returns it, or a trace.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    trace = _journal(run)
    ax = _axes(ax, "evaluations", "value")
    calls = trace.dots
    middle = trace.bands
    _dots(ax, *calls)
    if len(middle.calls):
        ax.fill_between(
            middle.calls,
            middle.low,
            middle.high,
            color=ORANGE,
            alpha=0.25,
            linewidth=0,
            label="quartiles",
        )
        ax.plot(
            middle.calls,
            middle.middle,
            color=ORANGE,
            linewidth=1.4,
            label="median",
        )
    ax.set_ylim(trace.extent)
    _thousands(ax)
    return _with_legend(ax)


def history(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the optimization history: the values of evaluations, and the best value so far.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or Evaluations
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        evaluations.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.

    Raises
    ------
    ValueError
        If a result has several objectives.
    """
    if isinstance(run, (Result, Evaluations)):
        evaluations = run if isinstance(run, Evaluations) else run.evaluations
        if evaluations.objectives:
            raise ValueError(
                "run: expected one with a single objective, got "
                f"{len(evaluations.objectives)} objectives; use front or hypervolume"
            )
        observed = np.array([evaluation.value for evaluation in evaluations])
        calls = evaluations.dropped + 1 + np.arange(len(observed))
        sign = 1.0 if evaluations.direction == "minimize" else -1.0
        ax = _axes(ax, "evaluations", "value")
        shown = evenly(len(observed), DOTS_IN_SLICE)
        _dots(ax, calls[shown], drawable(observed[shown]))
        steps = improvements(calls, observed, sign)
        _best_line(ax, steps.calls, steps.best)
        _limits(ax, observed, sign)
        _thousands(ax)
        return _with_legend(ax)
    trace = Trace.of(run)
    return best(trace, values(trace, ax))


def curves(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the values of evaluations over their steps; those that were stopped end with a dot.

    Of many evaluations, an evenly chosen part is drawn. The worst 5 % of the values may lie outside
    the axes.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or Evaluations
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        evaluations.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.

    Raises
    ------
    ValueError
        If the objective does not yield.
    """
    shown, sign = _learning_curves(run)
    if not shown:
        raise ValueError(
            "run: expected one of an objective that yields its value so far, got one without steps"
        )
    ax = _axes(ax, "step", "value")
    styles = {True: (ORANGE, "stopped"), False: (GREY, "complete")}
    for stopped, (color, label) in styles.items():
        for curve in (curve for curve in shown if curve.stopped == stopped):
            ends = [len(curve.values) - 1] if stopped else []
            steps = 1 + np.arange(len(curve.values))
            ax.plot(
                steps,
                drawable(curve.values),
                ".-",
                markevery=ends,
                color=color,
                linewidth=0.8,
                alpha=0.6,
                label=label,
            )
            label = "_"  # one entry of the legend for all of them
    complete = [
        curve
        for curve in shown
        if not curve.stopped and math.isfinite(curve.values[-1])
    ]
    if complete:
        good = min(complete, key=lambda curve: sign * curve.values[-1])
        ax.plot(
            1 + np.arange(len(good.values)),
            good.values,
            color=BLUE,
            linewidth=2.0,
            label="best",
        )
    _limits(ax, np.concatenate([curve.values for curve in shown]), sign)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _with_legend(ax)


def front(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the front of a run with several objectives.

    Two objectives are drawn with all evaluations, the front as a step line, and its knee; under
    noise, the points of the front are means, with their standard errors. More are drawn as one line
    per point of the front over the objectives, each scaled by its range on the front, with the
    better values above.

    Parameters
    ----------
    run : str, os.PathLike, Record or Result
        Journal, by its path or as `knobless.journal.read` returns it; or a result.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.

    Raises
    ------
    ValueError
        If the run has a single objective.
    """
    outcomes = Outcomes.of(run)
    names = [*outcomes.directions]
    rows = outcomes.front
    values = outcomes.values
    if len(names) > 2:
        ax = _axes(ax, "", "better →")
        unit = (
            1.0 - scaled(outcomes.minimized[rows], outcomes.minimized[rows])
            if len(rows)
            else values[rows]
        )
        for row, line in zip(rows, unit, strict=True):
            knee = int(row) == outcomes.knee
            ax.plot(
                line,
                color=ORANGE if knee else BLUE,
                alpha=1.0 if knee else 0.35,
                linewidth=2.0 if knee else 1.0,
            )
        ax.set_xticks(
            range(len(names)),
            [f"{name} ({way})" for name, way in outcomes.directions.items()],
        )
        return ax
    ax = _axes(ax, names[0], names[1])
    observed = outcomes.observed_values
    ax.scatter(
        observed[:, 0],
        observed[:, 1],
        s=6,
        color=GREY,
        alpha=0.4,
        linewidths=0,
        label="evaluations",
    )
    front_values = values[rows]
    # The region that is attained is bounded by the worse of two neighbors in the second objective.
    order = np.argsort(front_values[:, 0])
    _step_line(
        ax,
        front_values[order, 0],
        front_values[order, 1],
        outcomes.directions[names[0]] == "min",
        color=BLUE,
        linewidth=1.2,
    )
    ax.scatter(
        front_values[:, 0],
        front_values[:, 1],
        s=18,
        color=BLUE,
        label="front",
        zorder=3,
    )
    if outcomes.std is not None:
        errors = outcomes.std[rows]
        ax.errorbar(
            front_values[:, 0],
            front_values[:, 1],
            errors[:, 1],
            errors[:, 0],
            "none",
            ecolor=BLUE,
            elinewidth=0.8,
            alpha=0.5,
        )
    if outcomes.knee >= 0:
        ax.scatter(
            values[outcomes.knee, :1],
            values[outcomes.knee, 1:],
            s=70,
            facecolors="none",
            edgecolors=ORANGE,
            linewidths=1.8,
            label="knee",
            zorder=4,
        )
    return _with_legend(ax)


def hypervolume(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the hypervolume of the front over evaluations, relative to the last one.

    Values are scaled by the ranges of the last front; the reference point is a tenth beyond its
    worst values.

    Parameters
    ----------
    run : str, os.PathLike, Record or Result
        Journal, by its path or as `knobless.journal.read` returns it; or a result.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.

    Raises
    ------
    ValueError
        If the run has a single objective.
    """
    calls, volumes = Outcomes.of(run).hypervolumes
    ax = _axes(ax, "evaluations", "hypervolume")
    ax.step(calls, volumes, where="post", color=BLUE, linewidth=1.6)
    ax.set_ylim(0.0, 1.05)
    _thousands(ax)
    return ax


def attainment(runs: Sequence[Any], ax: Axes | None = None) -> Axes:
    """Plot the fronts that several runs attain: the best, the median and the worst of them.

    Every point on or beyond the median line is dominated by, or equal to, a point of at least half
    of the runs.

    Parameters
    ----------
    runs : sequence of str, os.PathLike, Record or Result
        Journals or results.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.

    Raises
    ------
    ValueError
        If the runs do not have the same two objectives.
    """
    outcomes_of_runs = [Outcomes.of(run) for run in runs]
    ways = outcomes_of_runs[0].directions if outcomes_of_runs else {}
    if len(ways) != 2 or any(
        outcomes.directions != ways for outcomes in outcomes_of_runs
    ):
        raise ValueError(
            "runs: expected at least one, and all with the same two objectives"
        )
    at = np.unique(
        np.concatenate(
            [
                outcomes.minimized[outcomes.front, 0]
                for outcomes in outcomes_of_runs
            ]
        )
    )
    levels = np.sort(attained(outcomes_of_runs, at), axis=0)
    names = [*ways]
    signs = signs_of(ways)
    ax = _axes(ax, names[0], names[1])
    places = {
        "worst": len(outcomes_of_runs) - 1,
        "median": (len(outcomes_of_runs) - 1) // 2,
        "best": 0,
    }
    for (label, place), color in zip(
        places.items(), (GREY, BLUE, ORANGE), strict=True
    ):
        shown = np.isfinite(levels[place])
        x = signs[0] * at[shown]
        y = signs[1] * levels[place, shown]
        order = np.argsort(x)
        _step_line(
            ax,
            x[order],
            y[order],
            signs[0] > 0,
            color=color,
            linewidth=1.5,
            label=label,
        )
    return _with_legend(ax)


def importance(run: Any, ax: Axes | None = None) -> Axes:
    """Plot how much each variable matters for the objective value, the most important first.

    With scikit-learn it is the permutation importance of a random forest that is fit to the ranks
    of the values; otherwise it is the share of their variance that each variable explains by
    itself. The label of the axis states which. The scores sum to 1, and describe the evaluated
    points, not the whole space. At most 20 variables are shown.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or Evaluations
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        evaluations.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    importance = variable_importance(_observed(run))
    scores = importance.scores[:BARS]
    names = importance.names[:BARS]
    ax = _axes(ax, f"importance ({importance.method})", "")
    bars = ax.barh(range(len(names)), scores, color=BLUE, height=0.7)
    ax.bar_label(
        bars,
        [f"{score:.2f}" for score in scores],
        padding=3,
        fontsize=8,
        color=INK,
    )
    ax.set(
        ylim=(len(names) - 0.4, -0.6),
        xlim=(0.0, max([*scores.tolist(), 0.01]) * 1.12),
    )
    _named(ax, names)
    return ax


def entropy(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the entropy of each variable in the search distribution over iterations, as a heat map.

    A row is the entropy of the options of a variable, or the standard deviation of a number,
    divided by its initial value. The variables that are decided first matter most to the search. Of
    many variables, 64 are drawn.

    Parameters
    ----------
    run : str, os.PathLike, Record or Trace
        Journal, by its path or as `knobless.journal.read` returns it, or a trace.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    return _heat_map(
        ax, *_folded(_journal(run)).entropies, "entropy, relative to the start"
    )


def slice_plot(run: Any, name: str, ax: Axes | None = None) -> Axes:
    """Plot the values of evaluations over one variable; the later an evaluation, the darker.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or Evaluations
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        evaluations.
    name : str
        Name of the variable, such as "optimizer.rate" or "layers[0]".
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.

    Raises
    ------
    ValueError
        If there is no variable of this name.
    """
    observed = _observed(run)
    columns_of = [observed.column(i) for i in range(observed.n_columns)]
    for column in columns_of:
        if column.name == name:
            return _slice(ax, observed, column)
    shown = ", ".join(column.name for column in columns_of[:20])
    raise ValueError(
        f"name: expected one of {shown}{', …' if len(columns_of) > 20 else ''}, got {name!r}"
    )


def slice_plots(run: Any) -> Figure:
    """Plot the values of evaluations over each variable: at most the 12 most important ones.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or Evaluations
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        evaluations.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, with one plot per variable.
    """
    observed = _observed(run)
    columns = variable_importance(observed).columns[:SLICES].tolist()
    wide = min(len(columns), 4)
    high = -(-len(columns) // wide)
    figure = _figure(3.2 * wide + 0.6, 2.7 * high + 0.3)
    grid = figure.subplots(high, wide, squeeze=False, sharey=True).ravel()
    for ax, column in zip(grid, columns, strict=False):
        _slice(ax, observed, observed.column(column))
    for i, ax in enumerate(grid):
        ax.set_visible(i < len(columns))
        if i % wide:
            ax.set_ylabel("")
    return figure


def parallel_coordinates(run: Any, ax: Axes | None = None) -> Axes:
    """Plot evaluations as lines through one vertical axis per variable.

    The better a value, the darker its line.

    At most the 10 most important variables are shown, in the order of declaration, and at most 500
    evaluations. A line is interrupted where a variable is inactive. The last axis is the rank of
    the value, with the best at the top.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or Evaluations
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        evaluations.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    observed = _observed(run)
    chosen = sorted(variable_importance(observed).columns[:AXES].tolist())
    columns = [observed.column(i) for i in chosen]
    ax = _axes(_figure(11, 5).subplots() if ax is None else ax, "", "")
    good = 1.0 - ranks(observed.sign * observed.values)
    lines = np.array([*(column.positions for column in columns), good]).T
    shown = evenly(len(good), LINES)
    # The best ones on top
    for row in shown[np.argsort(good[shown], kind="stable")]:
        ax.plot(
            lines[row],
            color=MAP(0.15 + 0.75 * good[row] ** 2),
            linewidth=0.8,
            alpha=0.25 + 0.6 * good[row] ** 4,
        )
    for i, column in enumerate(columns):
        ax.axvline(i, color=GREY, linewidth=0.8)
        for at, text in _marks(column):
            ax.annotate(
                _plain(text, 14),
                (i, at),
                (3, 0),
                textcoords="offset points",
                fontsize=7,
                color=INK,
                va="center",
            )
    ax.axvline(len(columns), color=GREY, linewidth=0.8)
    ends = (
        [
            f"{value:.4g}"
            for value in (
                observed.sign * np.sort(observed.sign * observed.values)
            )[[-1, 0]]
        ]
        if len(good)
        else []
    )
    for at, text in enumerate(ends):
        ax.annotate(
            text,
            (len(columns), at),
            (3, 0),
            textcoords="offset points",
            fontsize=7,
            color=INK,
            va="center",
        )
    names = [_plain(column.name, 18) for column in columns]
    ax.set_xticks(range(len(columns) + 1), [*names, "value (rank)"], fontsize=9)
    ax.set_yticks([])
    ax.set(xlim=(-0.1, len(columns) + 0.35), ylim=(-0.04, 1.04))
    ax.spines[:].set_visible(False)
    return ax


def lam(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the sample size λ_r over iterations.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or History
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        history.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    return _line(ax, _steps(run), "lam_r", "$\\lambda_r$")


def eps(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the step length ε over iterations.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or History
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        history.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    return _line(ax, _steps(run), "eps", "$\\varepsilon$")


def snr(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the signal-to-noise ratio ‖s‖²/γ over iterations.

    For a journal, a dashed line marks α, the value around which the adaptation of λ_r keeps the
    ratio.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or History
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        history.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    if not isinstance(run, (Result, History)):
        run = Trace.of(run)
    ax = _line(ax, _steps(run), "snr", "$\\|s\\|^2 / \\gamma$")
    if isinstance(run, Trace) and run.alpha is not None:
        ax.axhline(run.alpha, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    return ax


def theta(run: Any, ax: Axes | None = None) -> Axes:
    """Plot θ over iterations as a heat map.

    A row is the probability that a bit is one, that of an option of a choice, or the position of a
    number's mean in its range. Of many rows, an evenly chosen part is drawn.

    Parameters
    ----------
    run : str, os.PathLike, Record or Trace
        Journal, by its path or as `knobless.journal.read` returns it, or a trace.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    trace = _folded(_journal(run))
    numbers = any(not marginal.labels for marginal in trace.marginals)
    return _heat_map(
        ax,
        *trace.theta_history,
        "probability, or position in the range" if numbers else "probability",
    )


def marginals(run: Any, ax: Axes | None = None) -> Axes:
    """Plot the final search distribution, with one row per variable.

    The probabilities of the options of a variable are stacked. A number has a dot at its mean and a
    bar of one standard deviation to either side; the row spans its range.

    Parameters
    ----------
    run : str, os.PathLike, Record or Trace
        Journal, by its path or as `knobless.journal.read` returns it, or a trace.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    trace = _folded(_journal(run))
    ax = _axes(ax, "probability", "")
    at_end: Array = trace.theta  # type: ignore[assignment]
    bits = {
        row: marginal
        for row, marginal in enumerate(trace.marginals)
        if marginal.labels == ("0", "1")
    }
    if bits:  # all at once, which is fast; only the probability of a one
        ax.barh(list(bits), 1.0, color=PALE, height=0.8)
        ax.barh(
            list(bits),
            [marginal.probabilities(at_end)[1] for marginal in bits.values()],
            color=MAP(0.66),
            height=0.8,
        )
    for row, marginal in enumerate(trace.marginals):
        if row not in bits:
            draw = _options if marginal.labels else _number
            draw(
                ax, row, marginal, at_end, written=len(trace.marginals) <= NAMES
            )
    ax.set(xlim=(0.0, 1.0), ylim=(len(trace.marginals) - 0.4, -0.6))
    if any(not marginal.labels for marginal in trace.marginals):
        ax.set_xlabel("probability, or position in the range")
    _named(ax, [marginal.name for marginal in trace.marginals])
    ax.spines[["left", "bottom"]].set_visible(False)
    return ax


def convergence(
    runs: Sequence[Any] | Mapping[str, Any], ax: Axes | None = None
) -> Axes:
    """Plot the best objective value so far of several runs, over evaluations.

    Parameters
    ----------
    runs : Sequence or Mapping
        Runs, each as for `best`; or these by their names. Journals are called by the names of their
        files.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    named = (
        dict(runs)
        if isinstance(runs, Mapping)
        else dict(zip(run_names(runs), runs, strict=True))
    )
    if not named:
        raise ValueError("runs: expected at least one, got none")
    ax = _axes(ax, "evaluations", "best value so far")
    for i, (name, run) in enumerate(named.items()):
        calls, values, _ = _best_of(run)
        color = (
            LINE_COLORS[i]
            if len(named) <= len(LINE_COLORS)
            else MAP(0.3 + 0.7 * i / len(named))
        )
        ax.step(
            calls,
            drawable(values),
            where="post",
            color=color,
            linewidth=1.8,
            label=name,
        )
    _thousands(ax)
    return _with_legend(ax) if len(named) <= NAMES else ax


def hitting_times(
    runs: Sequence[Any], target: float, ax: Axes | None = None
) -> Axes:
    """Plot the fraction of runs that have reached a target value, over evaluations.

    Results do not record whether they were minimized or maximized; it is inferred from the order of
    their values.

    Parameters
    ----------
    runs : Sequence
        Runs, each as for `best`.
    target : float
        Objective value to reach.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default, those of a new figure.
    """
    courses = [_best_of(run) for run in runs]
    if not courses:
        raise ValueError("runs: expected at least one, got none")
    sign = next((sign for _, _, sign in courses if sign), 1.0)
    hits = [
        calls[sign * values <= sign * target] for calls, values, _ in courses
    ]
    reached = np.sort([hit[0] for hit in hits if len(hit)])
    end = max((calls[-1] for calls, _, _ in courses if len(calls)), default=1)
    ax = _axes(
        ax, "evaluations", f"fraction of {len(courses)} runs at {target:g}"
    )
    share = np.arange(len(reached) + 1) / len(courses)
    ax.step(
        [0, *reached, end],
        [*share, share[-1]],
        where="post",
        color=BLUE,
        linewidth=2.0,
    )
    ax.set_ylim(-0.02, 1.05)
    _thousands(ax)
    return ax


def panel(run: Any) -> Figure:
    """Plot all that is recorded of a run in one figure.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace, Result or History
        Journal, by its path or as `knobless.journal.read` returns it; a trace; a result; or its
        history.
    """
    if isinstance(run, Result) and run.front is not None:
        return _front_panel(run)
    if isinstance(run, (Result, History)):
        drawn = _adapted(run)
        figure = _figure(10, 4 + len(drawn))
        above, *below = figure.subplots(
            1 + len(drawn), 1, height_ratios=[3] + [1] * len(drawn)
        )
        best(run, above)
        return _below_each_other(figure, run, drawn, below)
    trace = Trace.of(run)
    calls = int(trace.calls[-1]) if len(trace) else 0
    if trace.outcomes is not None:
        figure = _front_panel(trace)
        outcome = f": front of {len(trace.outcomes.front)} points"
        figure.suptitle(
            f"{_plain(trace.name)}{outcome} after {calls:,} evaluations",
            color=INK,
            fontweight="bold",
        )
        return figure
    if trace.theta is None or not trace.steps:
        figure = _figure(10, 5)
        best(trace, values(trace, figure.subplots()))
    else:
        rows = len(trace.theta_history[0])
        figure = _figure(13, 6.5 + 0.17 * min(max(rows, 10), NAMES))
        parts: Any = figure.subfigures(
            2, 1, height_ratios=[6.0, 0.5 + 0.17 * min(max(rows, 10), NAMES)]
        )
        above, below = parts
        drawn = _adapted(trace)
        names = [draw.__name__ for draw in drawn]
        axes = above.subplot_mosaic(
            [["values", name] for name in names], width_ratios=[2, 1]
        )
        best(trace, values(trace, axes["values"]))
        _below_each_other(figure, trace, drawn, [axes[name] for name in names])
        left, right = below.subplots(1, 2, width_ratios=[1.25, 1])
        theta(trace, left)
        marginals(trace, right)
    chosen = trace.recommended
    outcome = ""
    if chosen is not None:
        error = "" if math.isnan(chosen.std) else f" ± {chosen.std:.2g}"
        outcome = f": recommended point {chosen.fun:.6g}{error}"
    elif trace.best is not None:
        outcome = f": {'lowest' if trace.sign > 0 else 'highest'} value {trace.best[0]:.6g}"
    figure.suptitle(
        f"{_plain(trace.name)}{outcome} after {calls:,} evaluations",
        color=INK,
        fontweight="bold",
    )
    return figure


def _front_panel(run: Any) -> Figure:
    """Plot the front of several objectives and its hypervolume."""
    figure = _figure(10, 4.5)
    left, right = figure.subplots(1, 2)
    front(run, left)
    hypervolume(run, right)
    return figure


# Data.


def _learning_curves(run: Any) -> tuple[list[LearningCurve], float]:
    """Return the learning curves of a run, and −1 if it is maximized, else 1."""
    if isinstance(run, Result):
        run = run.evaluations
    if not isinstance(run, Evaluations):
        trace = Trace.of(run)
        return trace.curves, trace.sign
    rows = [
        (row, evaluation)
        for row, evaluation in enumerate(run)
        if evaluation.steps
    ]
    curves_of = [
        LearningCurve(
            row,
            np.array([np.ravel(value)[0] for value in evaluation.steps or ()]),
            evaluation.status == "stopped",
        )
        for row, evaluation in (rows[i] for i in evenly(len(rows), CURVES))
    ]
    direction = next(iter(run.objectives.values()), run.direction)
    return curves_of, 1.0 if direction in ("min", "minimize") else -1.0


def _observed(run: Any) -> Observed:
    """Return the evaluated points of a run and their values, at least one."""
    if isinstance(run, Result):
        run = run.evaluations
    if isinstance(run, Evaluations):
        direction = next(iter(run.objectives.values()), run.direction)
        observed = Observed(
            run.space,
            1.0 if direction.startswith("min") else -1.0,
            *run.arrays(),
        )
    else:
        observed = Trace.of(run).observed
    if not len(observed.values):
        raise ValueError(
            "run: expected at least one evaluation with a value, got none"
        )
    return observed


def _journal(run: Any) -> Trace:
    if isinstance(run, (Result, History)):
        raise TypeError(
            f"run: expected a journal, got a {type(run).__name__}, which records no single "
            "evaluations"
        )
    return Trace.of(run)


def _folded(trace: Trace) -> Trace:
    if trace.theta is None:
        raise ValueError(
            f"{trace.name}: θ is not known, because the run has constraints or a custom algorithm"
        )
    return trace


def _steps(run: Any) -> list[Info]:
    """Return the iterations of a run, at least one."""
    history = run.history if isinstance(run, Result) else run
    steps = (
        history[:]
        if isinstance(history, History)
        else _folded(Trace.of(run)).steps
    )
    if not steps:
        raise ValueError("run: expected at least one iteration, got none")
    return steps


def _best_of(run: Any) -> tuple[NDArray[np.int64], Array, float]:
    """Return evaluations, the best values after them, and the sign of the objective.

    The sign is 0 if it is not known.
    """
    if not isinstance(run, (Result, History)):
        trace = Trace.of(run)
        return (*trace.improvements, trace.sign)
    if isinstance(run, Result) and run.front is not None:
        raise ValueError(
            "run: expected one with a single objective; for several there are front and hypervolume"
        )
    rows = _rows(run)
    values = np.array([value for _, value in rows])
    sign = (
        0.0
        if len(values) < 2
        else float(values[0] > values[-1]) - float(values[0] < values[-1])
    )
    return (
        *improvements(
            np.array([nfev for nfev, _ in rows], dtype=np.int64),
            values,
            sign or 1.0,
        ),
        sign,
    )


def _rows(run: Result | History) -> list[tuple[int, float]]:
    """Return evaluations and the best value after them.

    Those of a result include an incomplete last iteration.
    """
    rows = [
        (row.nfev, row.best)
        for row in (run.history if isinstance(run, Result) else run)
    ]
    rows = [(nfev, value) for nfev, value in rows if math.isfinite(value)]
    if isinstance(run, Result) and math.isfinite(run.fun):
        rows = [row for row in rows if row[0] < run.nfev] + [
            (run.nfev, run.fun)
        ]
    return rows


# Drawing.


class _PlotFigure(Figure):
    """A figure that a notebook displays, where pyplot is not loaded too."""

    def _repr_png_(self) -> bytes:
        """Return the picture; the name is that of IPython."""
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()


class _PlotAxes(Axes):
    """The only axes of a figure, which a notebook displays as the picture."""

    def _repr_png_(self) -> bytes | None:
        """Return the picture; the name is that of IPython."""
        figure = self.get_figure(root=True)
        return figure._repr_png_() if isinstance(figure, _PlotFigure) else None


def _figure(width: float, height: float) -> Figure:
    """Return a figure without pyplot: no window, no global state."""
    return _PlotFigure(figsize=(width, height), dpi=110, layout="constrained")


def _axes(ax: Axes | None, xlabel: str, ylabel: str) -> Axes:
    ax = _figure(8, 5).add_subplot(axes_class=_PlotAxes) if ax is None else ax
    ax.set_xlabel(xlabel, color=INK)
    ax.set_ylabel(ylabel, color=INK)
    ax.tick_params(colors=INK, labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    return ax


def _heat_map(
    ax: Axes | None,
    names: Sequence[str],
    iterations: NDArray[np.int64],
    rows: Array,
    label: str,
) -> Axes:
    """Draw numbers from 0 to 1 over iterations, one row per name."""
    ax = _axes(ax, "iterations", "")
    # A column extends to the next; the last one is as wide as the one before.
    edges = np.append(
        iterations,
        2 * iterations[-1] - iterations[-2]
        if len(iterations) > 1
        else iterations[-1] + 1,
    )
    mesh = ax.pcolormesh(
        edges,
        np.arange(len(names) + 1) - 0.5,
        rows.T,
        cmap=MAP,
        vmin=0.0,
        vmax=1.0,
        rasterized=True,
    )
    ax.invert_yaxis()
    _named(ax, names)
    bar = ax.figure.colorbar(
        mesh, ax=ax, ticks=[0.0, 0.5, 1.0], aspect=30, pad=0.02
    )
    bar.set_label(label, color=INK)
    bar.ax.tick_params(colors=INK, labelsize=8, length=0)
    bar.outline.set_visible(False)
    ax.spines[:].set_visible(False)
    return ax


def _slice(ax: Axes | None, observed: Observed, column: ObservedColumn) -> Axes:
    """Draw the values over one column."""
    ax = _axes(ax, _plain(column.name), "value")
    active = np.flatnonzero(~np.isnan(column.values))
    shown = active[evenly(len(active), DOTS_IN_SLICE)]
    x = column.values[shown]
    # Options side by side, spread so that equal ones do not hide each other
    if column.labels:
        x = x + 0.5 * (np.modf(0.6180339887 * np.arange(len(x)))[0] - 0.5)
        ax.set_xticks(
            range(len(column.labels)),
            [_plain(label, 12) for label in column.labels],
        )
        ax.set_xlim(-0.5, len(column.labels) - 0.5)
    elif column.log:
        ax.set_xscale("log")
        room = (column.high / column.low) ** 0.03
        ax.set_xlim(column.low / room, column.high * room)
    else:
        room = 0.03 * (column.high - column.low) or 1.0
        ax.set_xlim(column.low - room, column.high + room)
    shades = 0.3 + 0.7 * shown / max(len(column.values) - 1, 1)
    ax.scatter(
        x, drawable(observed.values[shown]), s=9, c=MAP(shades), linewidths=0
    )
    _limits(ax, observed.values, observed.sign)
    return ax


def _marks(column: ObservedColumn) -> list[tuple[float, str]]:
    """Return positions on the axis of a column, and what is written there."""
    if not column.labels:
        return [(0.0, f"{column.low:.4g}"), (1.0, f"{column.high:.4g}")]
    last = len(column.labels) - 1
    return [(i / last, column.labels[i]) for i in evenly(last + 1, 8).tolist()]


def _limits(ax: Axes, values: Array, sign: float) -> None:
    """Limit the vertical axis; the worst 5 % may lie outside."""
    ax.set_ylim(extent(values, sign))


def _line(ax: Axes | None, steps: Sequence[Any], name: str, label: str) -> Axes:
    ax = _axes(ax, "iterations", label)
    ax.plot(
        [step.iteration for step in steps],
        [getattr(step, name) for step in steps],
        color=BLUE,
        linewidth=1.2,
    )
    ax.set_ylim(bottom=0.0)
    _thousands(ax)
    return ax


def _adapted(run: Any) -> list[Callable[..., Axes]]:
    """Return the functions that plot λ_r and, if defined, ε and the signal-to-noise ratio."""
    steps = _steps(run)
    return [lam] + [
        draw
        for draw in (eps, snr)
        if any(np.isfinite(getattr(step, draw.__name__)) for step in steps)
    ]


def _below_each_other(
    figure: Figure,
    run: Any,
    drawn: Sequence[Callable[..., Axes]],
    axes: Sequence[Axes],
) -> Figure:
    for draw, ax in zip(drawn, axes, strict=True):
        draw(run, ax)
        ax.sharex(axes[-1])
        if ax is not axes[-1]:
            ax.set_xlabel("")
            ax.tick_params(labelbottom=False)
    return figure


def _options(
    ax: Axes, row: int, marginal: Marginal, at_end: Array, written: bool
) -> None:
    p = marginal.probabilities(at_end)
    edges = np.concatenate([[0.0], np.cumsum(p)])
    for label, (left, right) in zip(
        marginal.labels, pairwise(edges), strict=True
    ):
        shade = right - left
        ax.barh(
            row,
            shade,
            left=left,
            color=MAP(0.1 + 0.56 * shade),
            edgecolor="white",
            linewidth=0.8,
            height=0.8,
        )
        if written and shade > 0.018 * len(label) + 0.03:
            color = "white" if shade > 0.6 else INK
            ax.text(
                (left + right) / 2,
                row,
                _plain(label),
                color=color,
                ha="center",
                va="center",
                fontsize=8,
            )


def _number(
    ax: Axes, row: int, marginal: Marginal, at_end: Array, written: bool
) -> None:
    middle, low, high = marginal.span(at_end)
    ax.barh(row, 1.0, color=PALE, height=0.12)
    ax.barh(row, high - low, left=low, color=MAP(0.4), height=0.4)
    ax.plot([middle], [row], marker="o", markersize=4, color=MAP(1.0))
    if written:
        value = marginal.quantiles(at_end)[0]
        left = high > 0.8
        shift = (-4 if left else 4, 0)
        ax.annotate(
            f"{value:.4g}",
            (low if left else high, row),
            shift,
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
            color=INK,
        )


def _named(ax: Axes, names: Sequence[str]) -> None:
    """Label the vertical axis with all names, or an evenly chosen part."""
    stride = -(-len(names) // NAMES)
    ax.set_yticks(
        range(0, len(names), stride), [_plain(name) for name in names[::stride]]
    )
    ax.tick_params(axis="y", length=0, labelsize=8)


def _plain(text: str, limit: int = 32) -> str:
    """Escape the dollar, which would begin a formula, and shorten."""
    text = text.replace("$", r"\$")
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _thousands(ax: Axes) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _step_line(ax: Axes, x: Any, y: Any, minimized: bool, **style: Any) -> None:
    """Draw the edge of what points with increasing x attain."""
    ax.step(x, y, where="post" if minimized else "pre", **style)


def _best_line(ax: Axes, calls: Any, values: Any) -> None:
    """Draw the best value so far as steps."""
    ax.step(
        calls,
        drawable(values),
        where="post",
        color=BLUE,
        linewidth=2.0,
        label="best so far",
    )


def _dots(ax: Axes, calls: Any, values: Any) -> None:
    """Draw the values of single evaluations."""
    ax.plot(
        calls,
        values,
        linestyle="none",
        marker=".",
        markersize=3,
        color=GREY,
        alpha=0.45,
        label="evaluations",
    )


def _with_legend(ax: Axes) -> Axes:
    ax.legend(fontsize=9, labelcolor=INK, edgecolor="none", framealpha=0.8)
    return ax
