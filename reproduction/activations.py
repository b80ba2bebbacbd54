"""Experiment II: tanh or ReLU for each of 3072 hidden units, selected while the weights are trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import figures as plotting
from .claims import Claim, Report
from .joint.comparisons import ahead, all_of, dynamic, lower, not_run, quartiles
from .joint.curves import draw_curves, draw_ends
from .joint.missing import ProgressLog, train_missing
from .joint.report import write_report
from .joint.settings import (
    ADAPTIVE,
    EARLY,
    END,
    OTHER_ESTIMATORS,
    RATE,
    SIGNIFICANCE,
    UPDATES,
    ErrorQuartiles,
    JointExperiment,
    TrainingOptions,
    label,
)
from .joint.trials import TrialsBySetting, trials_at

_NAME = "activations"
N = 3072
FAR = 5.0  # an ε below 1/n by this factor is called far below

ACTIVATION_SELECTION = JointExperiment(
    _NAME,
    "Selection of activation functions (experiment II)",
    N,
    (*("cga", "pbil-lambda", "pbil-epsilon"), "relu", "tanh"),
    ("pbil-lambda-blind", "pbil-epsilon-blind", "stochastic", "cga-half-step", *OTHER_ESTIMATORS),
    {
        "cga": ErrorQuartiles(1.450, 1.430, 1.488),
        "pbil-lambda": ErrorQuartiles(1.370, 1.343, 1.420),
        "pbil-epsilon": ErrorQuartiles(1.385, 1.332, 1.437),
        "relu": ErrorQuartiles(1.610, 1.560, 1.627),
        "tanh": ErrorQuartiles(1.520, 1.490, 1.545),
    },
    "share of ReLU units",
    lambda ones: ones / N,
    "MNIST, 3 hidden layers of 1024 units, tanh or ReLU for each, n = 3072, mini-batches of 64, Nesterov's momentum"
    " 0.9, weight decay 1e-4, learning rate divided by 10 at 1/2 and 3/4 of the updates: as in the paper. Not in the"
    " paper and settled here: the number of updates, learning rate 0.01, LeCun-normal weights, zero biases, pixels"
    " in [0, 1]. Learning rate 0.03 was run to see how much that matters, and was not used to come closer to the"
    " paper.",
)


def reproduce(options: TrainingOptions, log: ProgressLog) -> Report:
    """Train what is missing, draw the figures and check the claims."""
    train_missing(ACTIVATION_SELECTION, options, log)
    return report(options.out, options.iterations)


def report(out: Path, updates: int = UPDATES) -> Report:
    """Draw the figures and check the claims from the CSV."""
    found, longer = trials_at(ACTIVATION_SELECTION, out, updates)
    over = "Over the updates of the weights: median and inter-quartile band of the trials. Dotted: the learning rate"
    figures = [
        (draw_curves(ACTIVATION_SELECTION, found, out / f"{_NAME}.png"), f"{over} is divided by 10."),
        (
            _draw_ends(found, longer, updates, out / f"{_NAME}-final.png"),
            "Test error at the end: every trial, and median and quartiles; in gray the paper's.",
        ),
    ]
    if longer:
        path = draw_curves(ACTIVATION_SELECTION, longer, out / f"{_NAME}-long.png")
        figures.append((path, f"The same for {10 * updates:,} updates."))
    claims = claims_of_activations(found, longer)
    return write_report(ACTIVATION_SELECTION, out, updates, found, figures, claims, longer)


def claims_of_activations(found: TrialsBySetting, longer: TrialsBySetting) -> list[Claim]:
    """Check the statements of the text, and those that follow from its numbers."""
    final = "cGA had an advantage over fixed M in the final performance: {}."
    slower = "… while the decrease of the test error was slower than with fixed M: {}."
    mitigated = "This disadvantage was mitigated by our methods: {}."
    better = "Moreover, they outperformed cGA in the final performance: {}."
    fixed = ("relu", "tanh")
    return [
        *(ahead(found, "cga", setting, END, final.format(label(setting))) for setting in fixed),
        *(ahead(found, setting, "cga", EARLY, slower.format(label(setting))) for setting in fixed),
        *(ahead(found, setting, "cga", EARLY, mitigated.format(label(setting))) for setting in ADAPTIVE),
        *(ahead(found, setting, "cga", END, better.format(label(setting))) for setting in ADAPTIVE),
        *(claims_of_controls(found) if "stochastic" in found else ()),
        dynamic(found, "pbil-epsilon", "The step-size in PBIL-ε was rather dynamic …"),
        dynamic(found, "pbil-lambda", "… and the sample size in PBIL-λ."),
        far_below(found),
        order(found, "(The paper's numbers: PBIL-λ and PBIL-ε below cGA, cGA below tanh, tanh below ReLU.)"),
        order(longer, "(With ten times the updates, the order of the paper's numbers appears.)"),
    ]


def claims_of_controls(found: TrialsBySetting) -> list[Claim]:
    """Check what of the gain is due to the search, and what to the commitment to one network."""
    early = "(The disadvantage is mitigated by the search, and not because θ moves to a vertex in any case: {}.)"
    late = "(The final performance is due to the search, and not because θ moves to a vertex in any case: {}.)"
    committed = "(Commitment to a random network is better than a new network for every update: {}.)"
    return [
        *(ahead(found, s, f"{s}-blind", EARLY, early.format(label(s))) for s in ADAPTIVE),
        *(ahead(found, s, f"{s}-blind", END, late.format(label(s))) for s in ADAPTIVE),
        *(ahead(found, f"{s}-blind", "stochastic", END, committed.format(label(s))) for s in ADAPTIVE),
    ]


def far_below(found: TrialsBySetting) -> Claim:
    """Compare the ε of PBIL-ε with that of cGA."""
    claim = "In PBIL-ε, ε became much smaller than that of cGA (1/n)."
    criterion = f"at the end ε is at most 1/n over {FAR:g} in the median"
    if missing := not_run(found, "pbil-epsilon"):
        return Claim(claim, criterion, missing, None)
    trials = found["pbil-epsilon"]
    eps = np.median(trials.eps, axis=0)
    below = np.flatnonzero(eps < 1 / N)
    since = f"below 1/n after {trials.at[below[0]]:,.0f} updates" if len(below) else "never below 1/n"
    words = f"{eps[-1]:.3g} at the end, 1/n over {1 / N / eps[-1]:.3g}; {since}"
    return Claim(claim, criterion, words, bool(eps[-1] * FAR <= 1 / N))


def order(found: TrialsBySetting, claim: str) -> Claim:
    """Check the order of the paper's numbers, for the adaptive methods that were run."""
    adaptive = [setting for setting in ADAPTIVE if setting in found]
    criterion = f"each of these differences of the medians at the end is there, p < {SIGNIFICANCE:g}"
    if missing := not_run(found, *(() if adaptive else ADAPTIVE), "cga", "tanh", "relu"):
        return Claim(claim, criterion, missing, None)
    pairs = [*((setting, "cga") for setting in adaptive), ("cga", "tanh"), ("tanh", "relu")]
    verdicts = [lower(found[a].final, found[b].final) for a, b in pairs]
    ends = sorted((quartiles(found[s].final), label(s)) for s in (*adaptive, "cga", "tanh", "relu"))
    signs = {True: "<", False: ">", None: "≈"}
    words = ", ".join(f"{label(a)} {signs[v]} {label(b)}" for (a, b), v in zip(pairs, verdicts, strict=True))
    here = ", ".join(f"{name} {values.median:.3f}" for values, name in ends)
    return Claim(claim, criterion, f"{here}: {words}", all_of(verdicts))


def _draw_ends(found: TrialsBySetting, longer: TrialsBySetting, updates: int, path: Path) -> Path:
    """Draw the final errors: with those of the paper, at another learning rate, and after ten times the updates."""
    rates = [setting for setting in ACTIVATION_SELECTION.known if setting.endswith(RATE) and setting in found]
    panels = {f"{updates:,} updates, beside the paper": (found, ACTIVATION_SELECTION.settings)}
    if longer:
        panels[f"{10 * updates:,} updates"] = (longer, ACTIVATION_SELECTION.settings)
    if rates:
        both = [setting for rate in rates for setting in (rate.removesuffix(RATE), rate)]
        panels["how much the learning rate matters"] = (found, tuple(both))
    figure, axes = plotting.axes(*panels, height=4.0)
    for ax, (trials, settings) in zip(axes, panels.values(), strict=True):
        draw_ends(ax, ACTIVATION_SELECTION, trials, settings)
    return plotting.save_figure(figure, path)
