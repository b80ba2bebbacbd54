"""Why PBIL-ε lags, measured: on LeadingOnes nothing is known of the late bits, yet their θ moves away from ½.

Three algorithms are followed for 1000·n calls: PBIL-λ, PBIL-ε, and PBIL-ε that begins with its ε already adapted, with
the λ_r that another run of it had at its end. The last quarter of the bits shows how far θ drifts and how soon it comes
back.
"""

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
from knobless.problems import LeadingOnes

from . import figures as plotting
from .claims import Claim, Report
from .experiment import Task, finish, follow, kernel_of, run_tasks, trials_table
from .measure import quantile
from .options import Options
from .settings import ALGORITHMS, COLORS, EPSILON, LAMBDA

_NAME = "drift"
_SIZES = (10, 30, 100)
ADAPTED = "PBIL-ε, ε adapted before"
_SETTINGS = {LAMBDA: COLORS[LAMBDA], EPSILON: COLORS[EPSILON], ADAPTED: "#7f7f7f"}
SETTLED = 10  # times n calls, after which the bits that are on the wrong side are watched
_LENGTH = 1000  # times n calls: the length of a run


def _marks(n: int) -> Array:
    """Return the calls at which a run is recorded: even on a log scale up to the end, with 10·n among them."""
    return np.unique(np.append(np.geomspace(10, _LENGTH * n, 60).round(), float(SETTLED * n)))


def start(setting: str, n: int, number: int, stop: Event) -> Run:
    """Return a run before its first iteration."""
    objective = kernel_of(LeadingOnes(n))
    if setting != ADAPTED:
        return Run(objective, ALGORITHMS[setting](n), seed(_NAME, n, number))
    algorithm = ALGORITHMS[EPSILON](n)
    scout = Run(objective, algorithm, seed(_NAME, "scout", n, number))
    finish(scout, _LENGTH * n, stop)
    state = algorithm.init()
    state = state._replace(signal=state.signal._replace(lam_r=scout.lam_r))
    return Run(objective, algorithm, seed(_NAME, n, number), state)


def _trial(setting: str, n: int, number: int, stop: Event) -> dict[str, Any]:
    """Follow a run to the optimum or to its end.

    `away` is the mean |θ − ½| of the last quarter of the bits. `back` is, of those among them that were below ½
    after 10·n calls, the share that has been above ½ since.
    """
    run = start(setting, n, number, stop)
    late = slice(n - max(n // 4, 1), None)
    away, eps, back = [], [], []
    wrong = np.zeros(0, dtype=bool)
    been = wrong
    for calls in follow(run, _marks(n), stop, target=0.0):
        theta = run.theta[late]
        if calls == SETTLED * n:
            wrong = theta < 0.5
            been = np.zeros_like(wrong)
        if calls >= SETTLED * n:
            been |= wrong & (theta > 0.5)
        away.append(float(np.abs(theta - 0.5).mean()))
        eps.append(n**0.5 * (1.0 if setting == LAMBDA else 2.0 / run.lam_r))
        back.append(been.sum() / wrong.sum() if wrong.any() else math.nan)
    return {"away": series(away), "eps_n": series(eps), "back": series(back)}


def traces(rows: list[TableRow], column: str, length: int) -> Array:
    """Return one row per trial, NaN after its end."""
    found = [np.array(row[column].split(), dtype=float) for row in rows]
    return np.array([np.concatenate([values, np.full(length - len(values), np.nan)]) for values in found])


def reproduce(options: Options) -> Report:
    """Run the missing trials, draw the figures and check the claims."""
    n = options.sizes(*_SIZES)[-1]
    names = ("setting", "n", "trial")
    table = trials_table(options.out / f"hitting-times-{_NAME}.csv", names, ("away", "eps_n", "back"))
    tasks = []
    for setting in _SETTINGS:
        for number in range(options.trials):
            name = {"setting": setting, "n": n, "trial": number}
            tasks.append(Task(name, partial(_trial, setting, n, number), setting == ADAPTED))
    run_tasks(table, tasks, options.threads, _NAME)
    rows = {s: [row for row in table.rows_of(task.key for task in tasks) if row["setting"] == s] for s in _SETTINGS}
    path = _draw(rows, n, options.out / f"hitting-times-{_NAME}.png")
    caption = f"LeadingOnes, n = {n}: how far θ of the last quarter of the bits is from ½, and ε, over the calls."
    return Report(_NAME, "Drift", "", ((path, caption),), tuple(_claims(rows, n)))


def _claims(rows: dict[str, list[TableRow]], n: int) -> list[Claim]:
    """Return the claims of the paper's explanation: drift, and slow recovery."""
    at = _marks(n)
    away = {s: middle(traces(rows[s], "away", len(at))) for s in rows}
    back = {s: middle(traces(rows[s], "back", len(at))) for s in rows}
    eps = {s: middle(traces(rows[s], "eps_n", len(at))) for s in (EPSILON, ADAPTED)}
    adapted = int(np.argmax(eps[EPSILON] <= 2.0 * eps[ADAPTED][0]))
    returned = {s: at[np.argmax(back[s] >= 0.5)] - SETTLED * n if (back[s] >= 0.5).any() else math.inf for s in rows}
    return [
        Claim(
            "The defect of PBIL-ε is that θ randomly drifts away from the initial value before ε is well adapted …",
            "LeadingOnes, last quarter of the bits, which f does not depend on yet: when ε has first come within a"
            " factor of 2 of where runs end, |θ − ½| is at least twice that of PBIL-ε that began with such an ε",
            f"n = {n}, after {at[adapted]:.0f} calls: {away[EPSILON][adapted]:.3f} for PBIL-ε,"
            f" {away[ADAPTED][adapted]:.3f} if it began with an adapted ε",
            bool(away[EPSILON][adapted] >= 2.0 * away[ADAPTED][adapted]),
        ),
        Claim(
            "(The same, beside PBIL-λ, which has no ε to adapt and has no such defect according to the paper.)",
            "at that moment |θ − ½| of these bits is at least twice that of PBIL-λ after as many calls",
            f"{away[EPSILON][adapted]:.3f} for PBIL-ε, {away[LAMBDA][adapted]:.3f} for PBIL-λ",
            bool(away[EPSILON][adapted] >= 2.0 * away[LAMBDA][adapted]),
        ),
        Claim(
            "… and it is difficult to get back as ε is small.",
            f"of these bits that are below ½ after {SETTLED}·n calls, half have been above ½ again later for PBIL-ε"
            " than for PBIL-λ",
            f"calls until half were back (∞: not within {_LENGTH}·n): "
            + ", ".join(f"{s} {returned[s]:.0f}" for s in returned),
            bool(returned[EPSILON] > returned[LAMBDA]),
        ),
    ]


def middle(curves: Array) -> Array:
    """Return the median over the trials that still run, at every mark."""
    columns = [column[~np.isnan(column)] for column in curves.T]
    return np.array([quantile(column, 0.5) if len(column) else math.nan for column in columns])


def _draw(rows: dict[str, list[TableRow]], n: int, path: Path) -> Path:
    """Plot the distance of θ, the bits that are back, and ε."""
    at = _marks(n)
    titles = {"away": "mean |θ − ½| of late bits", "back": "late bits that came back from below ½", "eps_n": "ε · n"}
    figure, row = plotting.axes(*titles.values())
    for ax, column in zip(row, titles, strict=True):
        for setting, color in _SETTINGS.items():
            plotting.plot_over_time(ax, at, traces(rows[setting], column, len(at)), setting, color)
        ax.set(xscale="log", xlabel=f"calls (LeadingOnes, n = {n})")
    if any(
        (np.asarray(line.get_ydata()) > 0).any() for line in row[2].lines
    ):  # small runs may end before the first look
        row[2].set(yscale="log")
    row[0].legend(fontsize=8)
    return plotting.save_figure(figure, path)
