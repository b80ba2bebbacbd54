"""Figure 1: evaluations to the optimum of OneMax and LeadingOnes over n, and the claims about them.

Included are the scaling that the paper cites for cGA, as fitted exponents, and, in `drift`, why PBIL-ε is slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from harness import Table, seed, write_csv
from knobless.fast import Run
from knobless.problems import BinVal, LeadingOnes, OneMax, Problem

from . import drift
from . import figures as plotting
from .claims import Claim, Report
from .experiment import Skipping, Task, finish, kernel_of, run_tasks, session, trials_table
from .measure import Sample, Slope, listed_by_n, quantile, ratio, slope
from .options import Options
from .settings import ALGORITHMS, CGA_1, CGA_3_4, CGA_HALF, COLORS, EPSILON, LAMBDA, LAMBDA_1

_NAME = "hitting-times"
_SIZES = (10, 30, 100, 300, 1000, 3000)
SCALING_SIZES = (30, 100, 300, 1000)
FIGURE_1 = (LAMBDA, EPSILON, LAMBDA_1, CGA_1, CGA_HALF)
SCALING = {CGA_1: 1.0, CGA_3_4: 0.75}  # ε = n^-power
KEY_COLUMNS = ("function", "setting", "n", "trial", "cap")
RESULT_COLUMNS = ("calls", "solved", "iterations", "best", "lam_r")
LARGE = 100  # claims about how things scale are checked from here on

_PROBLEMS: dict[str, Callable[[int], Problem]] = {"OneMax": OneMax, "LeadingOnes": LeadingOnes, "BinVal": BinVal}
CHAINS = (
    *(("OneMax", setting, _SIZES) for setting in FIGURE_1),
    ("LeadingOnes", LAMBDA, _SIZES),
    *(("LeadingOnes", setting, _SIZES[:-1]) for setting in FIGURE_1[1:]),  # at n = 3000 they end at the cap
    ("OneMax", CGA_3_4, SCALING_SIZES),
    *(("BinVal", setting, SCALING_SIZES) for setting in SCALING),
)


def _trial(function: str, setting: str, n: int, number: int, cap: float, stop: Event) -> dict[str, Any]:
    """Run to the optimum or to the cap."""
    run = Run(kernel_of(_PROBLEMS[function](n)), ALGORITHMS[setting](n), seed(_NAME, function, n, number))
    solved = finish(run, cap, stop)
    return {
        "calls": run.nfev,
        "solved": int(solved),
        "iterations": run.nit,
        "best": f"{run.best:g}",
        "lam_r": f"{run.lam_r:.6g}",
    }


def plan(options: Options, cap: float) -> list[Task]:
    """Return all trials."""
    tasks = []
    for function, setting, sizes in CHAINS:
        for n in (n for n in sizes if n <= options.max_n):
            for number in range(options.trials_at(n)):
                name = {"function": function, "setting": setting, "n": n, "trial": number, "cap": f"{cap:.0f}"}
                cost = n * n * (n if function == "LeadingOnes" else 1)
                tasks.append(Task(name, partial(_trial, function, setting, n, number, cap), cost))
    return tasks


@dataclass(frozen=True)
class Results:
    """Samples by function, setting and n, and the λ_r that runs ended with; what was skipped is not there."""

    cap: float
    samples: dict[tuple[str, str, int], Sample]
    lam_mean: dict[tuple[str, str, int], list[float]]
    lam_end: dict[tuple[str, str, int], list[float]]
    planned: tuple[tuple[str, str, int], ...]

    @classmethod
    def of(cls, table: Table, tasks: Sequence[Task], cap: float) -> Results:
        results = cls(cap, {}, {}, {}, tuple(dict.fromkeys(_group(task.name) for task in tasks)))
        calls: dict[tuple[str, str, int], list[float]] = {}
        for row in table.rows_of(task.key for task in tasks):
            group = _group(row)
            calls.setdefault(group, []).append(float(row["calls"]) if row["solved"] == "1" else math.inf)
            results.lam_mean.setdefault(group, []).append(float(row["calls"]) / max(int(row["iterations"]), 1))
            results.lam_end.setdefault(group, []).append(float(row["lam_r"]))
        results.samples.update({group: Sample(tuple(c)) for group, c in calls.items()})
        return results

    def sizes(self, function: str, *settings: str) -> list[int]:
        """Return the n that were planned for all these settings and run for at least one of them."""
        planned = [{n for f, s, n in self.planned if (f, s) == (function, setting)} for setting in settings]
        run = {n for f, s, n in self.samples if f == function and s in settings}
        return sorted(set.intersection(*planned) & run)

    def chain(self, function: str, setting: str) -> list[tuple[int, Sample]]:
        return [(n, self.samples[f, s, n]) for f, s, n in sorted(self.samples) if (f, s) == (function, setting)]

    def median(self, function: str, setting: str, n: int) -> float:
        """Infinite where most trials were cut off, and where n was skipped because all were at a smaller n."""
        sample = self.samples.get((function, setting, n))
        return sample.median if sample else math.inf

    def ratios(self, function: str, a: str, b: str) -> list[tuple[int, float]]:
        """Median calls of a over those of b, for every n."""
        sizes = self.sizes(function, a, b)
        return [(n, ratio(self.median(function, a, n), self.median(function, b, n))) for n in sizes]

    def summary(self) -> list[dict[str, Any]]:
        rows = []
        for function, setting, n in self.planned:
            sample = self.samples.get((function, setting, n))
            row = {"function": function, "setting": setting, "n": n, "cap": f"{self.cap:.0f}"}
            if sample is None:
                empty = dict.fromkeys(
                    ["trials", "solved", "censored", "median", "lower_quartile", "upper_quartile"], ""
                )
                rows.append({**row, **empty, "note": "skipped: at a smaller n every trial ended at the cap"})
                continue
            low, high = sample.quartiles
            numbers = {"median": sample.median, "lower_quartile": low, "upper_quartile": high}
            counts = {"trials": len(sample.calls), "solved": sample.solved, "censored": sample.censored}
            rows.append({**row, **counts, **{k: _calls(v) for k, v in numbers.items()}, "note": ""})
        return rows


def _group(name: Any) -> tuple[str, str, int]:
    return name["function"], name["setting"], int(name["n"])


def _calls(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else "censored"


def large(pairs: Iterable[tuple[int, float]]) -> list[float]:
    """Return the values at n ≥ 100, or all if there are none."""
    pairs = list(pairs)
    return [v for n, v in pairs if n >= LARGE] or [v for _, v in pairs]


def _all(pairs: Iterable[tuple[int, float]], test: Callable[[float], bool]) -> bool | None:
    values = [v for v in large(pairs) if not math.isnan(v)]
    return all(map(test, values)) if values else None


def claims_of_figure_1(results: Results) -> list[Claim]:
    """Check the statements about Figure 1, sentence by sentence."""
    r = results
    from_ = f"at every n ≥ {LARGE}"
    one, leading = "OneMax", "LeadingOnes"
    halves = {f: r.ratios(f, CGA_1, CGA_HALF) for f in (one, leading)}
    best = {f: [(CGA_HALF if v > 1.0 else CGA_1) for v in large(halves[f])] for f in halves}
    apart = [
        (n, r.samples[one, CGA_HALF, n].quartiles[1] < r.samples[one, CGA_1, n].quartiles[0])
        for n in r.sizes(one, CGA_1, CGA_HALF)
        if (one, CGA_1, n) in r.samples and (one, CGA_HALF, n) in r.samples
    ]
    failed = [(n, sample.censored / len(sample.calls)) for n, sample in r.chain(leading, CGA_HALF)]
    largest_failed = failed[-1][1] if failed and failed[-1][0] >= LARGE else None
    alike = [(f, r.ratios(f, LAMBDA_1, CGA_1)) for f in (one, leading)]
    mean_lam = [
        (n, quantile(r.lam_mean[f, LAMBDA_1, n], 0.5))
        for f in (one, leading)
        for n in r.sizes(f, LAMBDA_1)
        if (f, LAMBDA_1, n) in r.lam_mean
    ]
    fewer_one, fewer_leading = r.ratios(one, LAMBDA, CGA_HALF), r.ratios(leading, LAMBDA, CGA_1)
    lag = {f: r.ratios(f, EPSILON, LAMBDA) for f in (one, leading)}
    adapted = [
        (n, quantile([n**-0.5 * 2.0 / lam for lam in r.lam_end[leading, EPSILON, n]], 0.5) * n)
        for n in r.sizes(leading, EPSILON)
        if (leading, EPSILON, n) in r.lam_end
    ]
    return [
        Claim(
            "The optimal ε of cGA depends on problems.",
            f"the better of ε = 1/n and n^-½ is one on OneMax and the other on LeadingOnes, {from_}",
            "calls with 1/n over calls with n^-½: "
            + "; ".join(f"{function} {listed_by_n(halves[function])}" for function in (one, leading)),
            set(best[one]) == {CGA_HALF} and set(best[leading]) == {CGA_1} if best[one] and best[leading] else None,
        ),
        Claim(
            "On OneMax ε = n^-½ resulted in significantly faster convergence.",
            f"cGA(n^-½) has fewer calls than cGA(1/n), inter-quartile ranges apart, {from_}",
            f"calls with 1/n over calls with n^-½: {listed_by_n(halves[one])}; ranges apart at n = "
            + (", ".join(str(n) for n, yes in apart if yes) or "none"),
            _all(apart, bool),
        ),
        Claim(
            "ε = n^-½ was too large for LeadingOnes and cGA failed to locate the optimum.",
            f"at the largest n that was run no trial of cGA(n^-½) is solved within {r.cap:.0e} calls",
            f"share of trials that failed: {listed_by_n(failed)}",
            None if largest_failed is None else largest_failed == 1.0,
        ),
        Claim(
            "With ε = 1/n the proposed method performed very similarly to cGA.",
            f"medians of PBIL-λ(1/n) and cGA(1/n) within a factor of 1.25 on both functions, {from_}",
            "PBIL-λ(1/n) over cGA(1/n): " + "; ".join(f"{f} {listed_by_n(pairs)}" for f, pairs in alike),
            _both([_all(pairs, lambda v: 0.8 <= v <= 1.25) for _, pairs in alike]),
        ),
        Claim(
            "… as it kept λ = 2.",
            f"calls per iteration of PBIL-λ(1/n) below 2.1 on both functions, {from_}",
            f"calls per iteration, OneMax then LeadingOnes: {listed_by_n(mean_lam)}",
            _all(mean_lam, lambda v: v < 2.1),
        ),
        Claim(
            "With ε = n^-½ the proposed method located the optimum with fewer f-calls than cGA with n^-½ on OneMax.",
            f"median of PBIL-λ below that of cGA(n^-½), {from_}",
            f"PBIL-λ over cGA(n^-½): {listed_by_n(fewer_one)}",
            _all(fewer_one, lambda v: v < 1.0),
        ),
        Claim(
            "… and than cGA with 1/n on LeadingOnes.",
            f"median of PBIL-λ below that of cGA(1/n), {from_}",
            f"PBIL-λ over cGA(1/n): {listed_by_n(fewer_leading)}",
            _all(fewer_leading, lambda v: v < 1.0),
        ),
        *(
            Claim(
                f"PBIL-ε tended to be slower than PBIL-λ on both functions: {f}.",
                f"median of PBIL-ε above that of PBIL-λ, {from_}",
                f"PBIL-ε over PBIL-λ: {listed_by_n(lag[f])}",
                _all(lag[f], lambda v: v > 1.0),
            )
            for f in (one, leading)
        ),
        _scales_worse(r),
        Claim(
            "… though it adapted ε < 1/n.",
            "ε of PBIL-ε at the end of its runs on LeadingOnes below 1/n, at every n ≥ 100 (median)",
            f"ε · n at the end: {listed_by_n(adapted)}",
            _all(adapted, lambda v: v < 1.0),
        ),
    ]


def _both(verdicts: Sequence[bool | None]) -> bool | None:
    return None if None in verdicts else all(verdicts)


def _scales_worse(r: Results) -> Claim:
    """Compare PBIL-ε with cGA(1/n) on LeadingOnes, where one of them may not finish."""
    pairs = r.ratios("LeadingOnes", EPSILON, CGA_1)
    slopes = [slope([p for p in r.chain("LeadingOnes", s) if p[0] >= 30]) for s in (EPSILON, CGA_1)]
    grows = [v for _, v in pairs if not math.isnan(v)]
    words = ", ".join(f"{s} {fit or 'no two sizes solved'}" for s, fit in zip((EPSILON, CGA_1), slopes, strict=True))
    steeper = slopes[0] is not None and slopes[1] is not None and slopes[0].slope > slopes[1].slope
    return Claim(
        "PBIL-ε scaled even worse than cGA with 1/n on LeadingOnes.",
        "fitted exponent of calls in n (n ≥ 30, sizes where all trials were solved) larger for PBIL-ε,"
        " and more calls at the largest n where either finished",
        f"exponents: {words}; PBIL-ε over cGA(1/n): {listed_by_n(pairs)}",
        steeper and grows[-1] > 1.0 if len(grows) > 1 and None not in slopes else None,
    )


def claims_of_scaling(results: Results) -> list[Claim]:
    """Return the claims on the runtimes of cGA that the paper cites, as exponents of n."""
    claims = []
    for setting, power in SCALING.items():
        fits: dict[str, Slope | None] = {}
        for function in ("OneMax", "BinVal"):
            fits[function] = slope([p for p in results.chain(function, setting) if p[0] >= 30])
        words = {f: str(fit or "not enough sizes solved") for f, fit in fits.items()}
        one = fits["OneMax"]
        claims += [
            Claim(
                f"The runtime of cGA on OneMax is Θ(√n/ε) for ε = n^(-½-δ): here ε = n^-{power:g}.",
                f"fitted exponent (n ≥ 30) within 0.15 of ½ + {power:g} = {0.5 + power:g}",
                f"exponent {words['OneMax']}",
                None if one is None else abs(one.slope - 0.5 - power) < 0.15,
            ),
            Claim(
                f"The lower bound of the runtime of cGA on Linear is Ω(n/ε): BinVal, ε = n^-{power:g}.",
                f"fitted exponent (n ≥ 30) at least 1 + {power:g} - 0.15; the bound is that of the hardest linear"
                " function, and the weights of BinVal differ most",
                f"exponent {words['BinVal']}",
                None if fits["BinVal"] is None else fits["BinVal"].slope >= 1.0 + power - 0.15,
            ),
        ]
    return claims


def draw_figure_1(results: Results, path: Path) -> Path:
    """Both functions, all settings."""
    figure, both = plotting.axes("OneMax", "LeadingOnes")
    for ax in both:
        for place, setting in enumerate(FIGURE_1):
            chain = results.chain(ax.get_title(), setting)
            plotting.plot_hitting_times(ax, chain, lambda n: results.cap, setting, COLORS[setting], place)
        ax.axhline(results.cap, color="0.4", linewidth=0.8, linestyle=":")
        ax.legend(fontsize=8, loc="upper left")
    return plotting.save_figure(figure, path)


def draw_scaling(results: Results, path: Path) -> Path:
    """Draw cGA on two linear functions, with the runtimes that are cited."""
    figure, both = plotting.axes(*(f"cGA, ε = n^-{power:g}" for power in SCALING.values()))
    for ax, (setting, power) in zip(both, SCALING.items(), strict=True):
        for place, (function, color) in enumerate((("OneMax", "#1f77b4"), ("BinVal", "#d62728"))):
            chain = [p for p in results.chain(function, setting) if p[0] in SCALING_SIZES]
            plotting.plot_hitting_times(ax, chain, lambda n: results.cap, function, color, place)
        sizes = [n for n in SCALING_SIZES if n in results.sizes("OneMax", setting)]
        ax.plot(sizes, [2 * n ** (0.5 + power) for n in sizes], "k--", linewidth=0.8, label="∝ √n/ε")
        ax.plot(sizes, [2 * n ** (1.0 + power) for n in sizes], "k:", linewidth=0.8, label="∝ n/ε")
        ax.legend(fontsize=8)
    return plotting.save_figure(figure, path)


def reproduce(options: Options, cap: float = 3e7, skip: bool = True) -> Report:
    """Run the missing trials, draw the figures and check the claims."""
    out = options.out
    sizes = options.sizes(*_SIZES)
    if options.max_n < min(SCALING_SIZES):  # fits begin there
        raise ValueError(f"max_n: expected at least {min(SCALING_SIZES)}, got {options.max_n}")
    with session(options, _NAME):
        table = trials_table(out / f"{_NAME}.csv", KEY_COLUMNS, RESULT_COLUMNS)
        tasks = plan(options, cap)
        run_tasks(table, tasks, options.threads, _NAME, Skipping(table, tasks, larger=skip))
        drifted = drift.reproduce(options)
        results = Results.of(table, tasks, cap)
        write_csv(out / f"{_NAME}-summary.csv", results.summary())
        figure_1 = draw_figure_1(results, out / f"{_NAME}.png")
        figures = [(figure_1, "Median and inter-quartile band. Crosses: trials cut off at the cap, and how many.")]
        claims = claims_of_figure_1(results)
        if results.chain("BinVal", CGA_1):
            scaling = draw_scaling(results, out / f"{_NAME}-scaling.png")
            figures.append((scaling, "cGA at two step lengths beside the runtimes that the paper cites."))
            claims += claims_of_scaling(results)
        report = Report(
            _NAME,
            "Hitting times (Figure 1)",
            f"{options.trials} trials, n = {', '.join(map(str, sizes))}, at most {cap:.0e} calls per trial."
            " Medians count a trial that was cut off as slower than all others; 0 and ∞ stand for ratios of which"
            " only one side got to the optimum.",
            (*figures, *drifted.figures),
            (*claims, *drifted.claims),
        )
        report.write(out)
    return report
