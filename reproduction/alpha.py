"""The appendix: how much PBIL-λ depends on α; and what becomes of λ where λ_max sets no bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from harness import TableRow, seed, series, write_csv
from knobless.core.types import Array
from knobless.fast import Objective, Run
from knobless.problems import LeadingOnes, OneMax

from . import figures as plotting
from .claims import Claim, Report
from .experiment import Skipping, Task, finish, follow, kernel_of, run_tasks, session, trials_table
from .measure import Sample, listed_by_n, quantile, ratio
from .noise import ALONE, noisy
from .options import Options
from .settings import ALGORITHMS, COLORS, LAMBDA, LAMBDA_FREE, pbil_lambda_with

_NAME = "alpha"
ALPHAS = (1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
USUAL = 2.5  # the largest α near the default of 1.5
_SIZES = (10, 30, 100, 300, 1000)
_LARGEST = {"OneMax": 1000, "LeadingOnes": 300}  # runs on LeadingOnes with a small α end at the cap
_PROBLEMS = {"OneMax": OneMax, "LeadingOnes": LeadingOnes}
BOUND_SIZES = (10, 30, 100)
NOISES: dict[str, Callable[[int], float]] = {"OneMax, σ = √n": lambda n: n**0.5, "noise alone": lambda n: ALONE}

_Samples = dict[tuple[str, float, int], Sample]


def _trial(function: str, alpha: float, n: int, number: int, cap: float, stop: Event) -> dict[str, Any]:
    """Run to the optimum or to the cap."""
    run = Run(kernel_of(_PROBLEMS[function](n)), pbil_lambda_with(n, alpha=alpha), seed(_NAME, function, n, number))
    return {"solved": int(finish(run, cap, stop)), "calls": run.nfev, "lam_r": f"{run.lam_r:.6g}"}


def _marks(n: int) -> Array:
    """Return the calls at which a run is recorded, up to 2000·n."""
    return np.unique(np.geomspace(10, 2000 * n, 80).round())


def bounded_trial(problem: str, setting: str, n: int, number: int, cap: float, stop: Event) -> dict[str, Any]:
    """Record λ_r over a run to the optimum, or over 2000·n calls of pure noise, which has no optimum."""
    what = (_NAME, "bound", problem, n, number)  # the same for both settings: they differ where the bound is met
    objective: Objective
    objective = noisy(NOISES[problem](n), *what) if problem in NOISES else kernel_of(_PROBLEMS[problem](n))
    run = Run(objective, ALGORITHMS[setting](n), seed(*what))
    target = -math.inf if problem in NOISES else 0.0
    lam = [run.lam_r for _ in follow(run, _marks(n), stop, target)]
    solved = problem not in NOISES and (run.best <= 0.0 or finish(run, cap, stop))
    largest = max([*lam, run.lam_r])
    return {"solved": int(solved), "calls": run.nfev, "lam_r_max": f"{largest:.6g}", "lam_r": series(lam)}


def reproduce(options: Options, cap: float = 3e7) -> Report:
    """Run the missing trials, draw the figures and check the claims."""
    out, sizes = options.out, options.sizes(*_SIZES)
    with session(options, _NAME):
        table = trials_table(
            out / f"{_NAME}.csv", ("function", "alpha", "n", "trial", "cap"), ("solved", "calls", "lam_r")
        )
        tasks = [
            Task(
                {"function": function, "alpha": alpha, "n": n, "trial": number, "cap": f"{cap:.0f}"},
                partial(_trial, function, alpha, n, number, cap),
                n**3 if function == "LeadingOnes" else n * n,
            )
            for function in _PROBLEMS
            for n in sizes
            if n <= _LARGEST[function]
            for alpha in ALPHAS
            for number in range(options.trials_at(n))
        ]
        run_tasks(table, tasks, options.threads, _NAME, Skipping(table, tasks, larger=False))
        samples = samples_of(table.rows_of(task.key for task in tasks))
        write_csv(out / f"{_NAME}-summary.csv", _summary(samples))
        bounds, n = run_bounds(options, cap)
        report = Report(
            _NAME,
            "Robustness against α (appendix), and λ_max",
            f"PBIL-λ, {options.trials} trials, n = {', '.join(map(str, sizes))} (LeadingOnes up to"
            f" {_LARGEST['LeadingOnes']}), α = {', '.join(map(str, ALPHAS))}. The paper does not list its values of α."
            " Calls to the optimum are divided by the median of the best α of each n.",
            (
                (_draw(samples, out / f"{_NAME}.png"), "Calls over the best median: median and inter-quartile band."),
                (
                    draw_bounds(bounds, n, out / f"{_NAME}-lambda-max.png"),
                    f"λ_r with λ_max = n and λ_max = ∞, n = {n}: median and inter-quartile band.",
                ),
            ),
            (*_claims(samples), *claims_of_bounds(bounds, n)),
        )
        report.write(out)
    return report


def run_bounds(options: Options, cap: float) -> tuple[dict[tuple[str, str], list[TableRow]], int]:
    """Run λ_max = n and λ_max = ∞."""
    n = options.sizes(*BOUND_SIZES)[-1]
    results = ("solved", "calls", "lam_r_max", "lam_r")
    table = trials_table(options.out / f"{_NAME}-lambda-max.csv", ("problem", "setting", "n", "trial", "cap"), results)
    tasks = [
        Task(
            {"problem": problem, "setting": setting, "n": n, "trial": number, "cap": f"{cap:.0f}"},
            partial(bounded_trial, problem, setting, n, number, cap),
            1.0,
        )
        for problem in (*_PROBLEMS, *NOISES)
        for setting in (LAMBDA, LAMBDA_FREE)
        for number in range(options.trials)
    ]
    run_tasks(table, tasks, options.threads, "λ_max")
    rows: dict[tuple[str, str], list[TableRow]] = {}
    for row in table.rows_of(task.key for task in tasks):
        rows.setdefault((row["problem"], row["setting"]), []).append(row)
    return rows, n


def samples_of(rows: list[TableRow]) -> _Samples:
    """Return the calls by function, α and n."""
    calls: dict[tuple[str, float, int], list[float]] = {}
    for row in rows:
        key = row["function"], float(row["alpha"]), int(row["n"])
        calls.setdefault(key, []).append(float(row["calls"]) if row["solved"] == "1" else math.inf)
    return {key: Sample(tuple(c)) for key, c in calls.items()}


def best_median(samples: _Samples, function: str, n: int) -> float:
    """Return the median of the best α."""
    return min(samples[function, alpha, n].median for alpha in ALPHAS)


def sizes_of(samples: _Samples, function: str) -> list[int]:
    """Return the sizes that were run."""
    return sorted({n for name, _, n in samples if name == function})


def relative(samples: _Samples, function: str, alpha: float, n: int) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile of the calls over the best median."""
    best, sample = best_median(samples, function, n), samples[function, alpha, n]
    low, high = sample.quartiles
    return ratio(low, best), ratio(sample.median, best), ratio(high, best)


def by_chance(samples: _Samples, function: str, n: int, alphas: Sequence[float], draws: int = 400) -> float:
    """Return a bound of the worst median over the best if α made no difference, which holds in 95 % of the cases.

    The same calls are assigned to the values of α at random.
    """
    rng = np.random.default_rng(seed(_NAME, "shuffled", function, n))
    calls = np.array([samples[function, alpha, n].calls for alpha in alphas])
    dealt = (rng.permuted(calls.ravel()).reshape(calls.shape) for _ in range(draws))
    medians = [[quantile(row, 0.5) for row in table] for table in dealt]
    return quantile([ratio(max(m), min(m)) for m in medians if min(m) < math.inf], 0.95)


def _summary(samples: _Samples) -> list[dict[str, Any]]:
    """Return one row per function, n and α."""
    lines = []
    for (function, alpha, n), sample in samples.items():
        low, middle, high = relative(samples, function, alpha, n)
        line = {"function": function, "n": n, "alpha": alpha, "trials": len(sample.calls), "censored": sample.censored}
        over = {"lower_quartile": f"{low:.4g}", "median": f"{middle:.4g}", "upper_quartile": f"{high:.4g}"}
        lines.append({**line, "median_calls": f"{sample.median:.0f}", **over})
    return lines


def _claims(samples: _Samples) -> list[Claim]:
    """Check the statements of the appendix about α."""

    def worst(function: str, alphas: Sequence[float]) -> list[tuple[int, float]]:
        sizes = sizes_of(samples, function)
        return [(n, max(relative(samples, function, a, n)[1] for a in alphas)) for n in sizes]

    def robust(claim: str, alphas: Sequence[float]) -> Claim:
        found = worst("OneMax", alphas)
        chance = [(n, by_chance(samples, "OneMax", n, alphas)) for n, _ in found]
        return Claim(
            claim,
            f"median over best median at most 1.4, or not above what chance alone gives in 95 % of the cases if α makes"
            f" no difference, for every α ≤ {max(alphas):g} and n",
            f"worst α ≤ {max(alphas):g}: {listed_by_n(found)}; by chance up to {listed_by_n(chance)}",
            all(v <= max(1.4, c) for (_, v), (_, c) in zip(found, chance, strict=True)),
        )

    stable = [a for a in ALPHAS if a >= 1.5]
    low, rest = worst("LeadingOnes", [1.1]), worst("LeadingOnes", stable)
    return [
        robust(
            "On OneMax, even with the worst α, the performance is at most 1.4 times worse than with the best.",
            [a for a in ALPHAS if a <= USUAL],
        ),
        robust("(The same with larger values of α.)", ALPHAS),
        Claim(
            "α = 1.1 led to significant performance deterioration on LeadingOnes.",
            "median over best median above 2 at the largest n",
            f"α = 1.1: {listed_by_n(low)}",
            low[-1][1] > 2.0,
        ),
        Claim(
            "Larger values (α ≥ 1.5) resulted in stable performance as well.",
            "median over best median on LeadingOnes at most 2 for every α ≥ 1.5 and n",
            f"worst α ≥ 1.5: {listed_by_n(rest)}",
            all(v <= 2.0 for _, v in rest),
        ),
    ]


def claims_of_bounds(rows: dict[tuple[str, str], list[TableRow]], n: int) -> list[Claim]:
    """Check the statements about λ_max."""
    sentence = "λ_max can be ∞, since the adaptation mechanism will not let λ diverge"
    claims = []
    for problem in (*_PROBLEMS, *NOISES):
        both = [rows[problem, setting] for setting in (LAMBDA, LAMBDA_FREE)]
        largest = [quantile([float(row["lam_r_max"]) for row in found], 0.5) for found in both]
        calls = [quantile([float(r["calls"]) if r["solved"] == "1" else math.inf for r in f], 0.5) for f in both]
        if problem in NOISES:
            lam = np.array([np.array(row["lam_r"].split(), dtype=float) for row in both[1]])
            middle = int(np.searchsorted(_marks(n), 200 * n))
            growth = lam[:, -1] / lam[:, middle]
            bounded = int((growth < 2.0).sum())
            measured = f"n = {n}, λ_max = ∞: λ_r {quantile(lam[:, middle], 0.5):.3g} after 200·n calls and"
            measured += f" {quantile(lam[:, -1], 0.5):.3g} after 2000·n (largest {largest[1]:.3g}); growth of a run"
            measured += f" {quantile(growth, 0.5):.3g} in the median, below 2 in {bounded} of {len(growth)} trials"
            criterion = "λ_r of a run grows by less than 2 in the last nine tenths in three quarters of the trials;"
            criterion += " it does not hold if it does so in at most one quarter"
            holds = None if 0.25 < bounded / len(growth) < 0.75 else bounded >= 0.75 * len(growth)
            claims.append(Claim(f"{sentence}: {problem}.", criterion, measured, holds))
            continue
        measured = f"n = {n}: largest λ_r of a run {largest[0]:.3g} (λ_max = n) and {largest[1]:.3g} (∞); calls"
        measured += f" {calls[0]:.0f} and {calls[1]:.0f} (medians)"
        alike = 0.67 <= ratio(calls[1], calls[0]) <= 1.5
        criterion = "λ_r stays below n, and median calls are within a factor of 1.5"
        claims.append(Claim(f"{sentence}: {problem}.", criterion, measured, alike and largest[1] < n))
    return claims


def _draw(samples: _Samples, path: Path) -> Path:
    """Plot calls over the best median, over n, by α."""
    figure, both = plotting.axes(*_PROBLEMS)
    for ax in both:
        sizes = sizes_of(samples, ax.get_title())
        for alpha, color in zip(ALPHAS, plotting.ordered_colors(len(ALPHAS)), strict=True):
            low, middle, high = zip(*(relative(samples, ax.get_title(), alpha, n) for n in sizes), strict=True)
            ax.fill_between(sizes, low, [min(h, 1e3) for h in high], color=color, alpha=0.12, linewidth=0)
            ax.plot(sizes, middle, color=color, marker="o", markersize=3.5, linewidth=1.3, label=f"α = {alpha:g}")
        ax.set(xscale="log", yscale="log", xlabel="n", ylabel="calls over the best median")
    both[0].legend(fontsize=7)
    return plotting.save_figure(figure, path)


def draw_bounds(rows: dict[tuple[str, str], list[TableRow]], n: int, path: Path) -> Path:
    """λ_r over the calls."""
    at = _marks(n)
    figure, row = plotting.axes(*_PROBLEMS, *NOISES, height=3.6)
    for ax in row:
        for setting, label in ((LAMBDA, "λ_max = n"), (LAMBDA_FREE, "λ_max = ∞")):
            found = [np.array(r["lam_r"].split(), dtype=float) for r in rows[ax.get_title(), setting]]
            curves = np.array([np.concatenate([c, np.full(len(at) - len(c), np.nan)]) for c in found])
            plotting.plot_over_time(ax, at, curves, label, COLORS[setting])
        ax.set(xscale="log", yscale="log", xlabel=f"calls (n = {n})", ylabel="λ_r")
    row[0].legend(fontsize=8)
    return plotting.save_figure(figure, path)
