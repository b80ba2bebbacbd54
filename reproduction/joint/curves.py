"""Figures of an experiment: curves over the updates, and test errors at the end of training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, NullLocator

from reproduction import figures as plotting

from .comparisons import quartiles
from .settings import ErrorQuartiles, JointExperiment, color, label
from .trials import TrialsBySetting

PERCENT = (1, 1.5, 2, 3, 5, 10, 20, 50, 100)  # ticks of test errors


def draw_curves(experiment: JointExperiment, found: TrialsBySetting, path: Path) -> Path:
    """Draw test error, λ_r, ε and the architecture over the updates, for the settings of the paper's figure."""
    figure, axes = plotting.axes("test error", "λ_r", "ε", experiment.ones, columns=2, height=3.7)
    errors, lam, eps, ones = axes
    settings = [setting for setting in experiment.settings if setting in found]
    for setting in settings:
        trials, looks = found[setting], (label(setting), color(setting))
        plotting.plot_over_time(errors, trials.at, trials.error, *looks)
        if not np.isnan(trials.lam_r).all():  # not a fixed architecture
            plotting.plot_over_time(eps, trials.at, trials.eps, *looks)
            plotting.plot_over_time(ones, trials.at, experiment.shown(trials.ones), *looks)
            if setting != "cga":
                plotting.plot_over_time(lam, trials.at, trials.lam_r, *looks)
    corners: tuple[Literal["upper right", "upper left", "lower left"], ...] = (
        "upper right",
        "upper left",
        "lower left",
        "upper left",
    )
    for ax, corner in zip(axes, corners, strict=True):
        over_updates(ax, found, settings)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=8, loc=corner)  # the best place would take long to find
    errors.set(yscale="log", ylabel="test error, %")
    plain_ticks(errors.yaxis, PERCENT)
    lam.set(yscale="log", ylabel="λ_r")
    plain_ticks(lam.yaxis, [2**k for k in range(1, 13)])
    eps.set(yscale="log", ylabel="ε")
    ones.set(ylabel=experiment.ones)
    return plotting.save_figure(figure, path)


def over_updates(ax: Axes, found: TrialsBySetting, settings: Sequence[str]) -> None:
    """Set a logarithmic axis of updates; dotted lines mark where the learning rate is divided by 10."""
    ax.set(xscale="log", xlabel="updates of the weights")
    for end in {found[setting].at[-1] for setting in settings}:
        for share in (0.5, 0.75):
            ax.axvline(share * end, color="0.55", linewidth=0.8, linestyle=":", zorder=0)


def plain_ticks(axis: Axis, ticks: Sequence[float]) -> None:
    """Label a logarithmic axis with plain numbers, only those within its limits."""
    low, high = axis.get_view_interval()
    axis.set_ticks([tick for tick in ticks if low <= tick <= high])
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def draw_ends(ax: Axes, experiment: JointExperiment, found: TrialsBySetting, settings: Sequence[str]) -> None:
    """Draw the final test error of each trial, median and quartiles in bold, and those of the paper in gray."""
    kept = [setting for setting in settings if setting in found]
    for place, setting in enumerate(kept):
        final, paper = np.sort(found[setting].final), experiment.paper.get(setting)
        apart = place - 0.16 + 0.32 * (0.618 * np.arange(len(final)) % 1.0)  # so that equal errors do not overlap
        ax.scatter(final, apart, s=11, color=color(setting), alpha=0.35, linewidth=0)
        _draw_interval(ax, quartiles(final), place, color(setting), "o")
        if paper is not None:
            _draw_interval(ax, paper, place + 0.33, "0.35", "D")
    ax.plot([], [], color="0.1", marker="o", linewidth=3, label="here")
    if any(setting in experiment.paper for setting in kept):
        ax.plot([], [], color="0.35", marker="D", markersize=5, linewidth=1.5, label="the paper")
    ax.set_yticks(range(len(kept)), [label(setting) for setting in kept])
    for text, setting in zip(ax.get_yticklabels(), kept, strict=True):
        text.set_color(color(setting))
    ax.set(ylim=(len(kept) - 0.4, -0.5), xlabel="test error at the end, %")
    ax.legend(fontsize=8)


def _draw_interval(ax: Axes, values: ErrorQuartiles, place: float, shade: str, marker: str) -> None:
    """Draw a median on the bar of its quartiles."""
    bold = marker == "o"
    ax.plot([values.low, values.high], [place] * 2, color=shade, linewidth=3 if bold else 1.5, solid_capstyle="round")
    ax.plot(
        [values.median], [place], color=shade, marker=marker, markersize=6.5 if bold else 5, markeredgecolor="white"
    )
