"""Noisy OneMax: up to which noise cGA with a fixed step finds the optimum, and up to which the adaptation does.

Success is decided by the mode of P_θ, not by the sampled points: noisy values do not show that a point is the best.
"""

from __future__ import annotations

import math
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from numba import njit

from harness import TableRow, seed, series, write_csv
from knobless.core.types import Array
from knobless.fast import Objective, Run
from knobless.fast.engine import OBJECTIVE
from knobless.fast.kernels import Bits, Ints

from . import figures as plotting
from .claims import Claim, Report
from .experiment import Task, follow, run_tasks, session, trials_table
from .measure import quantile
from .options import Options
from .settings import ALGORITHMS, CGA_1, CGA_HALF, COLORS, EPSILON, LAMBDA, LAMBDA_FREE

_NAME = "noise"
_SIZES = (10, 30, 100, 300, 1000)
SIGMAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_SETTINGS = (CGA_HALF, CGA_1, LAMBDA, LAMBDA_FREE, EPSILON)
_ADAPTIVE = (LAMBDA, LAMBDA_FREE, EPSILON)
ALONE = 1e12  # a σ so large that only noise remains

ShareTable = dict[tuple[str, float], float]


def noisy_one_max(x: Bits, ints: Ints, reals: Array) -> float:
    """OneMax plus a normal number; ints are the state of a generator (splitmix64), reals σ."""
    state = np.uint64(ints[0])
    u = np.uint64(0)
    for draw in range(2):
        state = state + np.uint64(0x9E3779B97F4A7C15)
        z = state
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = (z ^ (z >> np.uint64(31))) >> np.uint64(11)  # 53 bits
        if draw == 0:
            u = z
    ints[0] = np.int64(state)
    radius = math.sqrt(-2.0 * math.log((np.float64(u) + 1.0) / 9007199254740993.0))
    ones = np.int32(0)
    for i in range(x.size):
        ones = np.int32(ones + x[i])
    return x.size - ones + reals[0] * radius * math.cos(2.0 * math.pi * np.float64(z) / 9007199254740992.0)


@cache
def _compiled() -> Any:
    return njit(OBJECTIVE, cache=True, nogil=True)(noisy_one_max)


def noisy(sigma: float, *what: object) -> Objective:
    """Noisy OneMax with noise by seed; its state is an array of its own, so each run needs its own problem."""
    state = seed("noise of", *what).generate_state(1, np.uint64).astype(np.int64)
    return Objective(_compiled(), state, np.array([sigma]))


def _marks(budget: float) -> Array:
    """Return the calls at which a run is recorded."""
    return np.unique(np.geomspace(100, budget, 40).round()) if budget > 100 else np.array([budget])


def _trial(setting: str, n: int, sigma: float, number: int, budget: float, stop: Event) -> dict[str, Any]:
    """Run to the end of the budget; record the zeros in the mode of P_θ, and λ_r."""
    what = (_NAME, n, sigma, number)  # the same for all settings
    run = Run(noisy(sigma, *what), ALGORITHMS[setting](n), seed(*what))
    wrong, lam = [], []
    for _ in follow(run, _marks(budget), stop):
        wrong.append(int((run.theta <= 0.5).sum()))
        lam.append(run.lam_r)
    return {"wrong_at_end": wrong[-1], "wrong": series(wrong), "lam_r": series(lam)}


def reproduce(options: Options, budget: float = 1e6) -> Report:
    """Run the missing trials, draw the figures and check the claims."""
    out, n = options.out, options.sizes(*_SIZES)[-1]
    with session(options, _NAME):
        names = ("setting", "n", "sigma", "trial", "budget")
        table = trials_table(out / f"{_NAME}.csv", names, ("wrong_at_end", "wrong", "lam_r"))
        tasks = []
        for setting in _SETTINGS:
            for sigma in SIGMAS:
                for number in range(options.trials):
                    name = {"setting": setting, "n": n, "sigma": sigma, "trial": number, "budget": f"{budget:.0f}"}
                    tasks.append(Task(name, partial(_trial, setting, n, sigma, number, budget), 1.0))
        run_tasks(table, tasks, options.threads, _NAME)
        rows: dict[tuple[str, float], list[TableRow]] = {}
        for row in table.rows_of(task.key for task in tasks):
            rows.setdefault((row["setting"], float(row["sigma"])), []).append(row)
        write_csv(out / f"{_NAME}-summary.csv", _summary(rows, n, budget))
        shares = {key: sum(row["wrong_at_end"] == "0" for row in found) / len(found) for key, found in rows.items()}
        captions = (
            f"n = {n}, {budget:.0e} calls: trials whose mode is the optimum at the end, and zeros in the mode.",
            "λ_r over the calls (median and inter-quartile band), by σ.",
        )
        pictures = (_draw(rows, shares, out / f"{_NAME}.png"), draw_lam(rows, budget, out / f"{_NAME}-lambda.png"))
        report = Report(
            _NAME,
            "Noisy OneMax",
            f"OneMax with normal noise of standard deviation σ, n = {n}, {budget:.0e} calls per trial, {options.trials}"
            " trials. Success: every bit of the mode of P_θ is one at the end.",
            tuple(zip(pictures, captions, strict=True)),
            tuple(_claims(shares, rows, n)),
        )
        report.write(out)
    return report


def _summary(rows: dict[tuple[str, float], list[TableRow]], n: int, budget: float) -> list[dict[str, Any]]:
    """Return one row per setting and σ."""
    at = _marks(budget)
    lines = []
    for (setting, sigma), found in rows.items():
        first = [next((at[i] for i, w in enumerate(row["wrong"].split()) if w == "0"), math.inf) for row in found]
        calls = quantile(first, 0.5)
        lines.append(
            {
                "setting": setting,
                "n": n,
                "sigma": sigma,
                "trials": len(found),
                "success": sum(row["wrong_at_end"] == "0" for row in found),
                "median_calls_to_mode": f"{calls:.0f}" if math.isfinite(calls) else "never",
                "median_zeros_at_end": f"{quantile([float(row['wrong_at_end']) for row in found], 0.5):g}",
                "median_lam_r_at_end": f"{quantile([float(row['lam_r'].split()[-1]) for row in found], 0.5):.4g}",
            }
        )
    return lines


def holds_to(shares: ShareTable, setting: str) -> float:
    """Return the largest σ up to which nine tenths of the trials succeed; −1 if they do not even without noise."""
    good = -1.0
    for sigma in SIGMAS:
        if shares[setting, sigma] < 0.9:
            break
        good = sigma
    return good


def _claims(shares: ShareTable, rows: dict[tuple[str, float], list[TableRow]], n: int) -> list[Claim]:
    """Check the statements about noise."""
    limits = {setting: holds_to(shares, setting) for setting in _SETTINGS}
    words = ", ".join(f"{s} up to σ = {limit:g}" if limit >= 0 else f"{s} at none" for s, limit in limits.items())
    theory = {s: (eps * n**0.5 * math.log(n)) ** -0.5 for s, eps in ((CGA_1, 1.0 / n), (CGA_HALF, n**-0.5))}
    end = {
        sigma: quantile([float(row["lam_r"].split()[-1]) for row in rows[LAMBDA_FREE, sigma]], 0.5) for sigma in SIGMAS
    }
    grows = [end[sigma] for sigma in SIGMAS if 1.0 <= sigma <= limits[LAMBDA_FREE]]
    return [
        Claim(
            "Under noise ε ∈ o(1/(σ² √n log n)) is required to prove convergence of cGA: a fixed step breaks as σ"
            " grows, and a larger one sooner.",
            "cGA(n^-½) stops succeeding (nine trials of ten) at a smaller σ than cGA(1/n), which stops too",
            f"{words}. ε = 1/(σ² √n log n) at σ = {theory[CGA_HALF]:.2g} for n^-½ and {theory[CGA_1]:.2g} for 1/n",
            limits[CGA_HALF] < limits[CGA_1] < SIGMAS[-1],
        ),
        *(
            Claim(
                f"As the objective is noisy, a dynamic change of strategy parameters is encouraged: {setting}.",
                "succeeds at a larger σ than cGA with either step",
                f"up to σ = {limits[setting]:g}; cGA up to {limits[CGA_1]:g} (1/n) and {limits[CGA_HALF]:g} (n^-½)",
                limits[setting] > max(limits[CGA_1], limits[CGA_HALF]),
            )
            for setting in _ADAPTIVE
        ),
        Claim(
            "(The sample size follows the noise: the signal-to-noise ratio is kept constant.)",
            "λ_r of PBIL-λ (λ_max = ∞) at the end grows with σ from σ = 1 on; not checked beyond the largest σ at which"
            " the trials succeed, because λ_r is still growing there when the calls end",
            "λ_r at the end: " + ", ".join(f"{value:.3g} (σ={sigma:g})" for sigma, value in end.items()),
            all(a < b for a, b in pairwise(grows)),
        ),
    ]


def _draw(rows: dict[tuple[str, float], list[TableRow]], shares: ShareTable, path: Path) -> Path:
    """Success and zeros left, over σ."""
    figure, (left, right) = plotting.axes("share of trials whose mode is the optimum", "zeros in the mode at the end")
    for place, setting in enumerate(_SETTINGS):
        color, marker = COLORS[setting], "os^vD"[place]
        left.plot(SIGMAS, [shares[setting, s] for s in SIGMAS], color=color, marker=marker, markersize=4, label=setting)
        ends = np.array([[float(row["wrong_at_end"]) for row in rows[setting, s]] for s in SIGMAS])
        plotting.plot_over_time(right, np.array(SIGMAS), ends.T, setting, color)
    for ax in (left, right):
        ax.set(xlabel="σ")
        ax.set_xscale("symlog", linthresh=0.5)
        ax.set_xticks(SIGMAS, [f"{s:g}" for s in SIGMAS])
    left.legend(fontsize=8)
    return plotting.save_figure(figure, path)


def draw_lam(rows: dict[tuple[str, float], list[TableRow]], budget: float, path: Path) -> Path:
    """λ_r over the calls."""
    at = _marks(budget)
    figure, row = plotting.axes(*_ADAPTIVE)
    for ax, setting in zip(row, _ADAPTIVE, strict=True):
        for sigma, color in zip(SIGMAS, plotting.ordered_colors(len(SIGMAS)), strict=True):
            curves = np.array([np.array(r["lam_r"].split(), dtype=float) for r in rows[setting, sigma]])
            plotting.plot_over_time(ax, at, curves, f"σ = {sigma:g}", color)
        ax.set(xscale="log", yscale="log", xlabel="calls", ylabel="λ_r")
    row[0].legend(fontsize=7)
    return plotting.save_figure(figure, path)
