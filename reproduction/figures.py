"""Figures: medians with interquartile bands over n or over time, and marks where trials were cut off."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from knobless.core.types import Array

from .measure import Sample, quantile


def axes(*titles: str, height: float = 4.2, columns: int | None = None) -> tuple[Figure, list[Axes]]:
    """Return a figure with one pair of axes per title. Without pyplot: no window, no global state."""
    columns = columns or len(titles)
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(5.4 * columns, height * rows), dpi=120, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title)
        panel.grid(alpha=0.25, which="both", linewidth=0.5)
    return figure, panels


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure; return its path."""
    figure.savefig(path)
    return path


def plot_hitting_times(
    ax: Axes, samples: Sequence[tuple[int, Sample]], cap: Callable[[int], float], label: str, color: str, place: int = 0
) -> None:
    """Log-log: the median and the inter-quartile band; crosses at the cap with the number of trials cut off there.

    A quartile that was cut off is drawn at the cap, a median that was is not drawn. `place`, the number of this
    curve, sets its marker and keeps its numbers clear of the others'.
    """
    sizes = [n for n, _ in samples]
    low = [min(sample.quartiles[0], cap(n)) for n, sample in samples]
    high = [min(sample.quartiles[1], cap(n)) for n, sample in samples]
    median = [sample.median if math.isfinite(sample.median) else math.nan for _, sample in samples]
    ax.fill_between(sizes, low, high, color=color, alpha=0.18, linewidth=0)
    ax.plot(sizes, median, color=color, marker="os^vDP"[place % 6], markersize=4, linewidth=1.4, label=label)
    for n, sample in samples:
        if sample.censored:
            ax.plot([n], [cap(n)], marker="x", color=color, markersize=7, linestyle="none", clip_on=False)
            text = f"{sample.censored}/{len(sample.calls)}"
            shift = (5, -9 - 8 * place)  # below the cap, where there is room
            ax.annotate(text, (n, cap(n)), xytext=shift, textcoords="offset points", fontsize=6.5, color=color)
    ax.set(xscale="log", yscale="log", xlabel="n", ylabel="calls to the optimum")


def plot_over_time(ax: Axes, x: Array, curves: Array, label: str, color: str) -> None:
    """Plot the median of the curves, one row per trial, and their interquartile band."""
    low, middle, high = (
        np.array([quantile(c[~np.isnan(c)], q) if (~np.isnan(c)).any() else np.nan for c in curves.T])
        for q in (0.25, 0.5, 0.75)
    )
    ax.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
    ax.plot(x, middle, color=color, linewidth=1.4, label=label)


def ordered_colors(count: int) -> list[str]:
    """Return colors for an ordered series."""
    return [to_hex(colormaps["viridis"](0.92 * i / max(count - 1, 1))) for i in range(count)]
