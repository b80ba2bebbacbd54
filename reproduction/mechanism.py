"""The statements of the paper about the mechanism itself: the ratio ‖s‖²/γ, α, β, ε and λ, and its equations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from harness import TableRow, read_csv, seed, series
from knobless.core.adaptation import SNR, Fixed, Signal
from knobless.core.families import Bernoulli
from knobless.core.igo import IGO, State
from knobless.core.preferences import Quartiles
from knobless.core.rng import Stream
from knobless.core.types import Array, Points
from knobless.problems import LeadingOnes, OneMax

from . import figures as plotting
from . import theorem
from .alpha import ALPHAS
from .claims import Claim, Report
from .experiment import Stopped, Task, run_tasks, session, trials_table
from .measure import quantile
from .options import Options
from .settings import pbil_lambda_with

_NAME = "mechanism"
_N = 100
_TRIALS = 10  # the loop is not compiled here, because it records every iteration
_BUDGET = 300 * _N  # evaluations of a run at most
PROBLEMS = ("OneMax", "LeadingOnes", "OneMax, σ = √n")
BETAS = {"1": 1.0, "ε": _N**-0.5, "ε/10": _N**-0.5 / 10.0}
FULL_STEP_SIZES = (2, 4, 16, 64, 256, 1024)  # λ with ε = 1
TRADED = (4, 8, 16, 32)  # λ with ε = λ/(4n)
FINITE_SIZES = (4, 16, 64, 256)  # λ of the steps of Theorem 1
_CAPTION = "‖s‖²/γ over the run where λ_r is at neither bound, median of the trials, and its target α (dotted)."
DISTANCES = (0.1, 0.01, 0.001)  # of θ from the optimal vertex

_Rows = dict[tuple[str, str, str], list[TableRow]]


@dataclass(frozen=True)
class OtherHorizon(SNR):
    """Adaptation whose time horizon 1/β is not that of ε."""

    beta: float = 1.0

    def step(self, signal: Signal, z: Array, noise: float) -> tuple[float, Signal]:
        """Return ε and the signal that `SNR` computes with β instead of ε."""
        _, eps = self.spend_at(signal)
        _, signal = SNR(self.beta, self.lam_max, self.alpha, self.lam_min, self.spend).step(signal, z, noise)
        return eps, signal


def iterate(
    algorithm: IGO, problem: str, number: int, stop: Event, target: float = 0.0
) -> Iterator[tuple[int, State, float]]:
    """Run to the optimum or to the budget; yield evaluations, state and least value after every iteration."""
    stream = Stream.of(np.random.default_rng(seed(_NAME, problem, number)))
    noise = np.random.default_rng(seed(_NAME, problem, number, "noise"))
    function: Callable[[Points], Array] = LeadingOnes(_N) if problem == "LeadingOnes" else OneMax(_N)
    sigma = _N**0.5 if "σ" in problem else 0.0
    state, nfev, best = algorithm.init(), 0, math.inf
    while nfev < _BUDGET and best > target:
        if stop.is_set():
            raise Stopped
        x = algorithm.ask(state, stream)
        f = np.asarray(function(x), dtype=float)
        nfev += len(f)
        if sigma:
            f = f + noise.normal(0.0, sigma, len(f))
        else:
            best = min(best, float(f.min()))
        state = algorithm.tell(state, x, f)
        yield nfev, state, best


def _adapted(algorithm: IGO, problem: str, number: int, stop: Event) -> dict[str, Any]:
    """Return the means of ‖s‖²/γ, where λ_r is at neither bound, and of λ_r over the second half of the iterations."""
    snr, lam_r = [], []
    for _, state, _ in iterate(algorithm, problem, number, stop):
        info = algorithm.info(state)
        snr.append(info.snr if 2.0 < info.lam_r < _N else math.nan)
        lam_r.append(info.lam_r)
    half = len(snr) // 2
    ratios = np.array(snr[half:])
    at = np.linspace(0, len(snr) - 1, min(len(snr), 100)).astype(int)
    mean = float(np.nanmean(ratios)) if np.isfinite(ratios).any() else math.nan
    return {"value": f"{mean:.6g}", "other": f"{np.mean(lam_r[half:]):.6g}", "trace": series(snr[i] for i in at)}


def _full_step(lam: int, number: int, stop: Event) -> dict[str, Any]:
    """Return the wrong bits of the mode after n iterations with ε = 1."""
    algorithm = IGO(Bernoulli(_N), Quartiles(), Fixed(lam=lam, eps=1.0))
    states = (state for _, state, _ in itertools.islice(_endless(algorithm, number, stop), _N))
    *_, last = states
    return {"value": int((last.theta < 0.5).sum()), "other": "", "trace": ""}


def _endless(algorithm: IGO, number: int, stop: Event) -> Iterator[tuple[int, State, float]]:
    """Iterate on OneMax beyond the optimum; the budget is that of the largest λ."""
    stream = Stream.of(np.random.default_rng(seed(_NAME, "full step", number)))
    state, problem = algorithm.init(), OneMax(_N)
    while not stop.is_set():
        x = algorithm.ask(state, stream)
        state = algorithm.tell(state, x, np.asarray(problem(x), dtype=float))
        yield 0, state, 0.0
    raise Stopped


def _traded(lam: int, number: int, stop: Event) -> dict[str, Any]:
    """Return the evaluations to the optimum of OneMax with ε = λ/(4n)."""
    algorithm = IGO(Bernoulli(_N), Quartiles(), Fixed(lam=lam, eps=lam / (4.0 * _N)))
    *_, (nfev, _, best) = iterate(algorithm, "OneMax", number, stop)
    return {"value": nfev if best <= 0.0 else math.inf, "other": "", "trace": ""}


def _finite(lam: int, name: str, number: int, stop: Event) -> dict[str, Any]:
    """Return the share of sampled steps of ε̄ = ½ at which J falls, from the trajectories of Theorem 1."""
    small = theorem.space(name, number)
    weights = np.exp(-small.f)
    statistics = small.family.statistics(small.x).astype(float)
    rng = np.random.default_rng(seed(_NAME, "finite", name, lam, number))
    theta = theorem.beginning(small, number, name)
    falls, steps = 0, 100
    for _ in range(steps):
        if stop.is_set():
            raise Stopped
        p = theorem.point_probabilities(small, theta)
        rows = rng.choice(len(p), size=lam, p=p / p.sum())
        w = weights[rows] / weights[rows].mean()
        moved = theta + 0.5 * (w @ (statistics[rows] - theta)) / lam
        falls += bool(theorem.point_probabilities(small, moved) @ weights < p @ weights)
        gradient = (p * weights) @ (statistics - theta)
        theta = theta + 0.1 / float(p @ weights) * gradient  # along the exact trajectory, where J would not fall
    return {"value": f"{falls / steps:.6g}", "other": "", "trace": ""}


def _near_vertex(distance: float, number: int, stop: Event) -> dict[str, Any]:
    """Return the signal-to-noise ratio of a sample of the gradient near the optimum of OneMax with 8 bits."""
    small = theorem.space("OneMax, 8 bits", number)
    weights = np.exp(-small.f)
    theta = np.full(8, 1.0 - distance)
    p = theorem.point_probabilities(small, theta)
    samples = weights[:, None] * (small.x - theta) / np.sqrt(theta * (1.0 - theta))
    mean = p @ samples
    noise = float(p @ (samples**2).sum(axis=1) - mean @ mean)
    return {"value": f"{float(mean @ mean) / noise:.6g}", "other": "", "trace": ""}


def _plan(trials: int) -> list[Task]:
    """Return all trials."""
    tasks = []

    def add(kind: str, problem: str, setting: object, run: Callable[[int, Event], dict[str, Any]], trials: int) -> None:
        for number in range(trials):
            name = {"kind": kind, "problem": problem, "setting": setting, "trial": number}
            tasks.append(Task(name, partial(run, number), 1.0))

    for problem in PROBLEMS:
        for alpha in ALPHAS:
            algorithm = pbil_lambda_with(_N, alpha=alpha)
            add("alpha", problem, alpha, partial(_adapted, algorithm, problem), trials)
    for problem in PROBLEMS[:2]:
        for name, beta in BETAS.items():
            adaptation = OtherHorizon(eps=_N**-0.5, lam_max=float(_N), beta=beta)
            algorithm = replace(pbil_lambda_with(_N), adaptation=adaptation)
            add("beta", problem, name, partial(_adapted, algorithm, problem), trials)
    for lam in FULL_STEP_SIZES:
        add("full step", "OneMax", lam, partial(_full_step, lam), trials)
    for lam in TRADED:
        add("traded", "OneMax", lam, partial(_traded, lam), trials)
    for name in theorem.SPACES:
        for lam in FINITE_SIZES:
            add("finite", name, lam, partial(_finite, lam, name), trials)
    for distance in DISTANCES:
        add("vertex", "OneMax, 8 bits", distance, partial(_near_vertex, distance), 1)
    return tasks


def reproduce(options: Options) -> Report:
    """Run the missing trials, draw the figure and check the claims."""
    out, trials = options.out, min(options.trials, _TRIALS)
    with session(options, _NAME):
        table = trials_table(out / f"{_NAME}.csv", ("kind", "problem", "setting", "trial"), ("value", "other", "trace"))
        tasks = _plan(trials)
        run_tasks(table, tasks, options.threads, _NAME)
        rows: _Rows = {}
        for row in table.rows_of(task.key for task in tasks):
            rows.setdefault((row["kind"], row["problem"], row["setting"]), []).append(row)
        report = Report(
            _NAME,
            "The mechanism",
            f"PBIL-λ and fixed settings, n = {_N}, {trials} trials of at most {_BUDGET} evaluations; means are"
            " those of the second half of the iterations, because λ and s settle first. Equations by enumeration.",
            ((_draw(rows, out / f"{_NAME}.png"), _CAPTION),),
            (*_claims_of_runs(rows), *_claims_of_equations(rows), claim_of_positions(out / "positions.csv")),
        )
        report.write(out)
    return report


def _middle(rows: _Rows, kind: str, problem: str, setting: object, column: str = "value") -> float:
    return quantile([float(row[column]) for row in rows[kind, problem, str(setting)]], 0.5)


def _claims_of_runs(rows: _Rows) -> list[Claim]:
    """Check the statements about ‖s‖²/γ, α, β, ε and λ."""
    kept = {p: _middle(rows, "alpha", p, 1.5) for p in PROBLEMS}
    lam = {p: [_middle(rows, "alpha", p, alpha, "other") for alpha in ALPHAS] for p in PROBLEMS[:2]}
    horizon = {p: {b: _middle(rows, "beta", p, b, "other") for b in BETAS} for p in PROBLEMS[:2]}
    wrong = {size: _middle(rows, "full step", "OneMax", size) for size in FULL_STEP_SIZES}
    traded = {size: _middle(rows, "traded", "OneMax", size) for size in TRADED}
    averaged = "; ".join(
        f"{p} " + ", ".join(f"{v:.3g} (β={b})" for b, v in values.items()) for p, values in horizon.items()
    )
    named = "; ".join(
        f"{p} " + ", ".join(f"{v:.3g} (α={a:g})" for a, v in zip(ALPHAS, values, strict=True))
        for p, values in lam.items()
    )
    return [
        Claim(
            "We aim at keeping ‖s‖²/γ ≈ α by adapting λ.",
            "mean of ‖s‖²/γ over the iterations in which λ_r is at neither bound, median of the trials, within 10 % of"
            " α = 1.5 on all",
            ", ".join(f"{problem} {value:.3f}" for problem, value in kept.items()),
            all(abs(value - 1.5) <= 0.15 for value in kept.values()),
        ),
        Claim(
            "The higher α is, the higher the sample size is kept.",
            "the mean of λ_r over a run, median of the trials, increases from each α to the next, on both functions",
            named,
            all(a < b for values in lam.values() for a, b in pairwise(values)),
        ),
        Claim(
            "β = ε is required to enhance the signal averaged over time.",
            "with β = 1 the mean of λ_r is at least twice that with β = ε, on both functions",
            averaged,
            all(values["1"] >= 2.0 * values["ε"] for values in horizon.values()),
        ),
        Claim(
            "The step size can be even one as long as λ is large enough, but it will lead to undesired drift of θ when"
            " λ is not sufficiently large.",
            f"OneMax, ε = 1, after {_N} iterations: no wrong bit in the mode for the largest λ, more than n/10 for the"
            " smallest (medians)",
            "wrong bits: " + ", ".join(f"{value:g} (λ={size})" for size, value in wrong.items()),
            wrong[FULL_STEP_SIZES[-1]] == 0 and wrong[FULL_STEP_SIZES[0]] > _N / 10,
        ),
        Claim(
            "ε and 1/λ have similar effect on the accuracy of the parameter update.",
            "OneMax: with ε = λ/(4n) the medians of the evaluations to the optimum are within a factor of 2",
            ", ".join(f"{value:.0f} (λ={size})" for size, value in traded.items()),
            max(traded.values()) <= 2.0 * min(traded.values()),
        ),
    ]


def _claims_of_equations(rows: _Rows) -> list[Claim]:
    """Check the statements about the natural gradient that enumeration decides."""
    falls = {
        size: [float(row["value"]) for name in theorem.SPACES for row in rows["finite", name, str(size)]]
        for size in FINITE_SIZES
    }
    shares = {size: sum(values) / len(values) for size, values in falls.items()}
    ratios = {distance: float(rows["vertex", "OneMax, 8 bits", str(distance)][0]["value"]) for distance in DISTANCES}
    uncorrelated, centered = covariance_ratios()
    scaled = {size: centering_factor(size) for size in (2, 3, 4)}
    return [
        Claim(
            "Theorem 1 does not hold for a finite λ; it provides a useful insight for λ sufficiently large.",
            "the share of sampled steps, ε̄ = ½, at which J falls decreases with λ and is above 0 for the smallest",
            "share: " + ", ".join(f"{share:.3f} (λ={size})" for size, share in shares.items()),
            all(a > b for a, b in pairwise(shares.values())) and shares[FINITE_SIZES[0]] > 0.0,
        ),
        Claim(
            "As the distribution approaches the Dirac delta peak, the length of the natural gradient and the noise tend"
            " to zero at the same rate: the signal-to-noise ratio is more or less constant.",
            "OneMax, 8 bits, W = exp(−f): that of one sample changes by less than a factor of 2 between θ = 0.9 and"
            " θ = 0.999",
            ", ".join(f"{value:.3g} (θ={1.0 - distance:g})" for distance, value in ratios.items()),
            max(ratios.values()) < 2.0 * min(ratios.values()),
        ),
        Claim(
            "If W(f(x)) and T(x) are uncorrelated, Cov(W (T − θ)) = Var(W) G⁻¹.",
            "3 bits, by enumeration: equal to 1e-12 for weights that are uncorrelated with T but not independent of it,"
            " and for independent weights whose mean is not 0",
            f"largest difference over Var(W) G⁻¹: {uncorrelated:.3g} (uncorrelated, mean 0), {centered:.3g}"
            " (independent, mean 1). It needs weights that are independent of x and have the mean 0, which those of the"
            " algorithm have for an uninformative f",
            max(uncorrelated, centered) < 1e-12,
        ),
        Claim(
            "The average preference is subtracted to reduce the variance, while the expectation is unchanged.",
            "4 points of 2 bits, by enumeration: the expectation is the same with and without the subtraction of the"
            " sample mean",
            "with over without: "
            + ", ".join(f"{value:.4f} (λ={size})" for size, value in scaled.items())
            + ": it is scaled by 1 − 1/λ, because the mean contains the sample itself",
            all(abs(value - 1.0) < 1e-12 for value in scaled.values()),
        ),
    ]


def claim_of_positions(path: Path) -> Claim:
    """Check whether later samples of an iteration have lower losses when W is trained as well."""
    claim = (
        "In joint training with PBIL-λ, M_i evaluated later tends to have better loss (since W is updated): a bias in"
        " the stochastic natural gradient."
    )
    criterion = (
        "in each stage of training of both experiments, at least 9 of 10 trials have the lower loss later in more than"
        " half of the pairs of an iteration"
    )
    if not path.exists():
        return Claim(claim, criterion, f"not run: {path.name}", None)
    shares: dict[tuple[str, str, str], list[float]] = {}
    for row in read_csv(path):
        shares.setdefault((row["experiment"], row["begin"], row["end"]), []).append(float(row["later_lower"]))
    words = [
        f"{experiment}, updates {int(begin) + 1:,} to {int(end):,}: {quantile(values, 0.5):.3f} of the pairs,"
        f" {sum(value > 0.5 for value in values)} of {len(values)} trials above ½"
        for (experiment, begin, end), values in shares.items()
    ]
    holds = all(sum(value > 0.5 for value in values) >= 0.9 * len(values) for values in shares.values())
    return Claim(claim, criterion, "; ".join(words), holds)


def covariance_ratios() -> tuple[float, float]:
    """Return how far Cov(W (T − θ)) is from Var(W) G⁻¹: W uncorrelated with T, and W independent with the mean 1."""
    x = np.array(list(itertools.product((0, 1), repeat=3)), dtype=float)
    theta = np.array([0.2, 0.5, 0.7])
    p = np.prod(np.where(x == 1.0, theta, 1.0 - theta), axis=1)
    inverse = np.diag(theta * (1.0 - theta))
    dependent = np.prod((x - theta)[:, :2], axis=1)  # uncorrelated with every bit, and of mean 0

    def difference(w: Array, probability: Array, deviation: Array) -> float:
        samples = w[:, None] * deviation
        mean = probability @ samples
        covariance = (probability[:, None] * samples).T @ samples - np.outer(mean, mean)
        variance = float(probability @ w**2 - (probability @ w) ** 2)
        return float(np.abs(covariance - variance * inverse).max() / np.abs(variance * inverse).max())

    both = np.repeat(np.array([0.0, 2.0]), len(p))  # two values, each with probability ½ at every point
    return (
        difference(dependent, p, x - theta),
        difference(both, np.tile(p, 2) / 2.0, np.tile(x - theta, (2, 1))),
    )


def centering_factor(lam: int) -> float:
    """Return the length of the expected gradient with the sample mean subtracted over that without."""
    x = np.array(list(itertools.product((0, 1), repeat=2)), dtype=float)
    theta = np.array([0.3, 0.6])
    p = np.prod(np.where(x == 1.0, theta, 1.0 - theta), axis=1)
    weights = np.exp(-x.sum(axis=1))
    plain, centered = np.zeros(2), np.zeros(2)
    for rows in itertools.product(range(len(p)), repeat=lam):
        chosen = list(rows)
        probability, w, deviation = float(np.prod(p[chosen])), weights[chosen], x[chosen] - theta
        plain += probability * (w @ deviation) / lam
        centered += probability * ((w - w.mean()) @ deviation) / lam
    return float(np.linalg.norm(centered) / np.linalg.norm(plain))


def _draw(rows: _Rows, path: Path) -> Path:
    """‖s‖²/γ over the share of the run, by α."""
    figure, panels = plotting.axes(*PROBLEMS, height=3.6)
    shown = (1.2, 1.5, 2.0)
    for ax in panels:
        for alpha, color in zip(shown, plotting.ordered_colors(len(shown)), strict=True):
            found = [np.array(row["trace"].split(), dtype=float) for row in rows["alpha", ax.get_title(), str(alpha)]]
            grid = np.linspace(0.0, 1.0, 100)
            curves = np.array([np.interp(grid, np.linspace(0.0, 1.0, len(c)), c) for c in found])
            seen = ~np.isnan(curves).all(axis=0)  # at least one trial has λ_r between its bounds
            ax.plot(
                grid[seen], np.nanmedian(curves[:, seen], axis=0), color=color, linewidth=1.2, label=f"α = {alpha:g}"
            )
            ax.axhline(alpha, color=color, linewidth=0.8, linestyle=":")
        ax.set(xlabel="share of the iterations", ylabel="‖s‖²/γ", ylim=(0.0, 4.0))
    panels[0].legend(fontsize=8)
    return plotting.save_figure(figure, path)
