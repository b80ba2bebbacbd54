"""Theorem 1 along exact natural-gradient trajectories: every expectation is a sum over all points of a small space.

ln J(θ')/J(θ) ≥ (1 − ε̄)/ε̄ · KL(P_θ ‖ P_θ'), J = E_θ[W(f)], θ' = θ + (ε̄/J)·E_θ[W(f)(T − θ)], W = exp(−f).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness import TableRow, seed, series
from knobless.core.families import Bernoulli, Categorical, Family
from knobless.core.types import Array
from knobless.problems import IsingRing, LeadingOnes, OneMax, Traps

from . import figures as plotting
from .claims import Claim, Report
from .experiment import Stopped, Task, run_tasks, session, trials_table
from .options import Options

_NAME = "theorem"
_TRIALS = 10
EPS_BARS = (0.1, 0.5, 0.9, 1.0)
TIME = 200  # steps times ε̄: the same for every ε̄, or small ones would not get as far
_KEPT = 150  # values of J kept of a trajectory
_SURE = 1.0 - 1e-9  # a probability at which nothing is left to follow
TOLERANCE = 1e-10  # of sums over a thousand points in floating point


class Small(NamedTuple):
    """A space that can be written out: its family, all its points, and f on them."""

    family: Family
    x: NDArray[np.int8]
    f: Array


def _bits(n: int, f: Callable[[NDArray[np.int8]], Array]) -> Small:
    x = np.array(list(itertools.product((0, 1), repeat=n)), dtype=np.int8)
    return Small(Bernoulli(n), x, f(x))


def _choices(n: int, k: int, rng: np.random.Generator) -> Small:
    x = np.array(list(itertools.product(range(k), repeat=n)), dtype=np.int8)
    return Small(Categorical(n, k), x, rng.uniform(0.0, 5.0, len(x)))


def space(name: str, number: int) -> Small:
    """Return a space and an f by name; if f is random, by trial."""
    rng = np.random.default_rng(seed(_NAME, "f", name, number))
    match name:
        case "OneMax, 8 bits":
            return _bits(8, OneMax(8))
        case "LeadingOnes, 8 bits":
            return _bits(8, LeadingOnes(8))
        case "trap, 8 bits":
            return _bits(8, Traps(8, 4))
        case "Ising ring, 8 bits":
            return _bits(8, IsingRing(8))
        case "random f, 8 bits":
            return _bits(8, lambda x: rng.uniform(0.0, 5.0, len(x)))
        case "random f, 5 choices of 4":
            return _choices(5, 4, rng)
    raise ValueError(f"name: expected one of {', '.join(SPACES)}, got {name!r}")


SPACES = (
    *("OneMax, 8 bits", "LeadingOnes, 8 bits", "trap, 8 bits"),
    *("Ising ring, 8 bits", "random f, 8 bits", "random f, 5 choices of 4"),
)


def point_probabilities(small: Small, theta: Array) -> Array:
    """P_θ of every point: a product over the variables."""
    k = len(theta) // small.x.shape[1]
    table = np.stack([1.0 - theta, theta], axis=1) if k == 1 else theta.reshape(-1, k)
    return np.asarray(np.prod(table[np.arange(small.x.shape[1]), small.x], axis=1))


def beginning(small: Small, number: int, name: str) -> Array:
    """Return the least informative θ in the first trial; in the others any θ, by seed."""
    least = small.family.initial()
    if number == 0:
        return least
    rng = np.random.default_rng(seed(_NAME, "theta", name, number))
    n = small.x.shape[1]
    if len(least) == n:
        return rng.uniform(0.05, 0.95, size=(n,))
    drawn = rng.uniform(0.05, 0.95, size=(n, len(least) // n))
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True)).ravel()


def _trial(name: str, eps_bar: float, number: int, stop: Event) -> dict[str, Any]:
    """Compute a trajectory: J on the way, how far each step is above the bound, and where it ends."""
    small = space(name, number)
    weights = np.exp(-small.f)  # W ∘ f
    statistics = small.family.statistics(small.x).astype(float)
    theta = beginning(small, number, name)
    p = point_probabilities(small, theta)
    j = [float(p @ weights)]
    slack, falls = math.inf, 0
    while len(j) <= TIME / eps_bar and p.max() < _SURE:
        if stop.is_set():
            raise Stopped
        gradient = (p * weights) @ (statistics - theta)
        theta = theta + eps_bar / j[-1] * gradient  # never projected
        after = point_probabilities(small, theta)
        there = (p > 0.0) & (after > 0.0)
        divergence = float(p[there] @ np.log(p[there] / after[there]))
        j.append(float(after @ weights))
        gain = math.log(j[-1] / j[-2])
        slack = min(slack, gain - (1.0 - eps_bar) / eps_bar * divergence)
        falls += gain < -TOLERANCE
        p = after
    best = float(weights.max())
    at = np.unique(np.geomspace(1, len(j), _KEPT).astype(int)) - 1
    rest = math.log(j[-1] / j[-2]) / eps_bar
    results = {
        "rest": f"{rest:.3g}",
        "steps": len(j) - 1,
        "slack": f"{slack:.6g}",
        "falls": falls,
        "certain": f"{p.max():.6g}",
    }
    return {**results, "j_end": f"{j[-1] / best:.6g}", "at": series(at), "j": series(j[i] / best for i in at)}


def reproduce(options: Options) -> Report:
    """Run the missing trials, draw the figures and check the claims."""
    out, trials = options.out, min(options.trials, _TRIALS)
    with session(options, _NAME):
        results = ("rest", "steps", "slack", "falls", "certain", "j_end", "at", "j")
        table = trials_table(out / f"{_NAME}.csv", ("space", "eps_bar", "trial"), results)
        tasks = [
            Task({"space": name, "eps_bar": eps, "trial": number}, partial(_trial, name, eps, number), 1 / eps)
            for name in SPACES
            for eps in EPS_BARS
            for number in range(trials)
        ]
        run_tasks(table, tasks, options.threads, _NAME)
        rows = table.rows_of(task.key for task in tasks)
        report = Report(
            _NAME,
            "Theorem 1",
            f"Exact natural-gradient steps on {len(SPACES)} spaces written out point by point,"
            f" {trials} beginnings each (the first assumes least),"
            f" ε̄ = {', '.join(map(str, EPS_BARS))}, W = exp(−f), no projection.",
            ((_draw(rows, out / f"{_NAME}.png"), "J(θ) over its largest value along the trajectories, by ε̄."),),
            tuple(_claims(rows)),
        )
        report.write(out)
    return report


def _claims(rows: list[TableRow]) -> list[Claim]:
    """Return the claims: the theorem, its corollary, and what the paper concludes from it."""
    steps = sum(int(row["steps"]) for row in rows)
    slack = min(float(row["slack"]) for row in rows)
    falls = sum(int(row["falls"]) for row in rows)
    resting = sum(float(row["rest"]) < 1e-3 for row in rows)
    certain = sum(float(row["certain"]) > 0.99 for row in rows)
    best = sum(float(row["j_end"]) > 0.99 for row in rows)
    return [
        Claim(
            "ln J(θ')/J(θ) ≥ (1 − ε̄)/ε̄ · KL(P_θ ‖ P_θ') for W ∘ f ≥ 0, ε̄ = ε·J(θ).",
            f"holds at every step to {TOLERANCE:g}",
            f"{steps} steps on {len(rows)} trajectories; least difference of the two sides {slack:.2g}",
            slack >= -TOLERANCE,
        ),
        Claim(
            "In particular J(θ') ≥ J(θ) for ε < 1/J(θ).",
            "J falls at no step",
            f"{falls} falls in {steps} steps",
            falls == 0,
        ),
        Claim(
            "The step size need not decrease to zero over time.",
            f"with a constant ε̄ J converges: after {TIME}/ε̄ steps at most ln J grows by less than 0.001·ε̄ per step",
            f"{resting} of {len(rows)} trajectories converge, {certain} of them at one point, {best} at the best one",
            resting == len(rows),
        ),
    ]


def _draw(rows: list[TableRow], path: Path) -> Path:
    """J along every trajectory, the one that assumes least drawn thick."""
    figure, panels = plotting.axes(*SPACES, columns=3, height=3.6)
    for ax in panels:
        _trajectories(ax, [r for r in rows if r["space"] == ax.get_title()])
    return plotting.save_figure(figure, path)


def _trajectories(ax: Any, rows: list[TableRow]) -> None:
    for eps, color in zip(EPS_BARS, plotting.ordered_colors(len(EPS_BARS)), strict=True):
        for row in (r for r in rows if r["eps_bar"] == str(eps)):
            j = np.array(row["j"].split(), dtype=float)
            first = row["trial"] == "0"
            label = f"ε̄ = {eps:g}" if first else None
            ax.plot(
                np.array(row["at"].split(), dtype=float) + 1,
                j,
                color=color,
                linewidth=2.0 if first else 0.5,
                alpha=1.0 if first else 0.5,
                label=label,
            )
    ax.set(xscale="log", yscale="log", xlabel="step + 1", ylabel="J(θ) / max W")
    ax.legend(fontsize=7)
