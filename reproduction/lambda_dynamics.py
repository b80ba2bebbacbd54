"""λ_r over a run of PBIL-λ on OneMax and LeadingOnes: about 16 on both, level on one and rising on the other."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from harness import TableRow, seed, series
from knobless.core.types import Array
from knobless.fast import Run
from knobless.problems import LeadingOnes, OneMax
from knobless.run.result import Status

from . import figures as plotting
from .claims import Claim, Report
from .experiment import Stopped, Task, kernel_of, run_tasks, session, trials_table
from .measure import quantile
from .options import Options
from .settings import ALGORITHMS, LAMBDA

_NAME = "lambda-dynamics"
_SIZES = (10, 30, 100, 300, 1000, 3000)
_PROBLEMS = {"OneMax": OneMax, "LeadingOnes": LeadingOnes}
GRID = np.linspace(0.0, 1.0, 101)  # of the run, in calls
_MOST = 2000  # points kept of a run


def _watch(run: Run, cap: float, stop: Event) -> tuple[bool, Array, Array]:
    """Run to the optimum; return whether it was reached, and calls and λ_r at evenly spaced iterations."""
    calls, lam, stride = [0], [run.lam_r], 1
    while True:
        status = run.go(cap, iterations=stride, target=0.0)
        calls.append(run.nfev)
        lam.append(run.lam_r)
        if status is not None:
            return status is Status.TARGET, np.array(calls, dtype=float), np.array(lam)
        if len(calls) > _MOST:  # the length is not known: keep every other one, and record half as often
            calls, lam, stride = calls[::2], lam[::2], 2 * stride
        if stop.is_set():
            raise Stopped


def _trial(function: str, n: int, number: int, cap: float, stop: Event) -> dict[str, Any]:
    """λ_r at each hundredth of a run."""
    run = Run(kernel_of(_PROBLEMS[function](n)), ALGORITHMS[LAMBDA](n), seed(_NAME, function, n, number))
    solved, calls, lam = _watch(run, cap, stop)
    curve = np.interp(GRID, calls / calls[-1], lam)
    return {"calls": run.nfev, "solved": int(solved), "lam_r_max": f"{lam.max():.4g}", "lam_r": series(curve)}


def reproduce(options: Options, cap: float = 3e7) -> Report:
    """Run the missing trials, draw the figures and check the claims."""
    out, n = options.out, [n for n in options.sizes(*_SIZES) if n <= 1000][-1]
    with session(options, _NAME):
        results = ("calls", "solved", "lam_r_max", "lam_r")
        table = trials_table(out / f"{_NAME}.csv", ("function", "n", "trial", "cap"), results)
        tasks = []
        for function in _PROBLEMS:
            for number in range(options.trials):
                name = {"function": function, "n": n, "trial": number, "cap": f"{cap:.0f}"}
                tasks.append(Task(name, partial(_trial, function, n, number, cap), function == "LeadingOnes"))
        run_tasks(table, tasks, options.threads, _NAME)
        rows = {
            f: [row for row in table.rows_of(task.key for task in tasks) if row["function"] == f] for f in _PROBLEMS
        }
        report = Report(
            _NAME,
            "Dynamics of λ",
            f"PBIL-λ, n = {n}, {options.trials} trials to the optimum; λ_r over the share of the run's calls.",
            (
                (
                    _draw(rows, n, out / f"{_NAME}.png"),
                    "λ_r over the run: median and inter-quartile band of the trials.",
                ),
            ),
            tuple(_claims(rows, n)),
        )
        report.write(out)
    return report


def curves(rows: list[TableRow]) -> Array:
    """Return λ_r at each hundredth of the run, one row per trial."""
    return np.array([np.array(row["lam_r"].split(), dtype=float) for row in rows])


def typical(curve: Array) -> float:
    """Return the median over a run."""
    return quantile(curve, 0.5)


def rise(curve: Array) -> float:
    """Return the mean of the last fifth over that of the second fifth (in the first, λ grows from 2)."""
    return float(curve[80:].mean() / curve[20:40].mean())


def _claims(rows: dict[str, list[TableRow]], n: int) -> list[Claim]:
    """Check the statements about λ."""
    found = {f: curves(rows[f]) for f in rows}
    usual = {f: quantile([typical(c) for c in found[f]], 0.5) for f in rows}
    most = {f: quantile([float(row["lam_r_max"]) for row in rows[f]], 0.5) for f in rows}
    rises = {f: quantile([rise(c) for c in found[f]], 0.5) for f in rows}
    at_1000 = n == 1000
    level, rising = 1.25, 1.25
    return [
        Claim(
            "λ was typically increased to around 16 for n = 1000, interestingly, on both functions.",
            "the largest λ_r of a run, in the median of the trials, lies between 16/√2 and 16·√2 on both",
            f"n = {n}: " + ", ".join(f"{f} {most[f]:.1f} (median over a run {usual[f]:.1f})" for f in usual),
            all(16 / math.sqrt(2) <= v <= 16 * math.sqrt(2) for v in most.values()) if at_1000 else None,
        ),
        Claim(
            "On OneMax it tended to keep λ constant …",
            f"mean λ_r of the last fifth of the run within a factor of {level} of that of the second fifth",
            f"last over second fifth: {rises['OneMax']:.2f}",
            1 / level <= rises["OneMax"] <= level,
        ),
        Claim(
            "… whereas on LeadingOnes λ was increasing as the distribution parameters approach the optimum values.",
            f"the same ratio above {rising}",
            f"last over second fifth: {rises['LeadingOnes']:.2f}",
            rises["LeadingOnes"] > rising,
        ),
    ]


def _draw(rows: dict[str, list[TableRow]], n: int, path: Path) -> Path:
    """λ_r over the share of the run."""
    figure, (ax,) = plotting.axes(f"PBIL-λ, n = {n}")
    for function, color in zip(rows, ("#1f77b4", "#d62728"), strict=True):
        plotting.plot_over_time(ax, GRID, curves(rows[function]), function, color)
    ax.axhline(16, color="0.4", linewidth=0.8, linestyle=":", label="16")
    ax.set(xlabel="share of the run's calls", ylabel="λ_r", yscale="log")
    ax.set_yticks([2, 4, 8, 16, 32], ["2", "4", "8", "16", "32"])
    ax.minorticks_off()
    ax.legend(fontsize=8)
    return plotting.save_figure(figure, path)
