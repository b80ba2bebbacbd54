"""Experiment I: which of 31 layers a deep network uses, selected while its weights are trained; and remarks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import figures as plotting
from .claims import Claim, Report
from .joint.comparisons import ahead, chance, dynamic, lower, not_run, quartiles
from .joint.curves import PERCENT, draw_curves, draw_ends, over_updates, plain_ticks
from .joint.missing import ProgressLog, train_missing
from .joint.report import write_report
from .joint.settings import (
    ADAPTIVE,
    EARLY,
    END,
    LABELS,
    OTHER_ESTIMATORS,
    SIGNIFICANCE,
    UPDATES,
    ErrorQuartiles,
    JointExperiment,
    TrainingOptions,
    color,
    label,
)
from .joint.trials import TrialsBySetting, trials_at

_NAME = "layers"
WIDER = 2.0  # an inter-quartile range wider by this factor is called less stable
_LOST = 50.0  # percent: a trial that ends above has not learned
_TEN = "ten-plain-layers"
TEN_LAYERS = ErrorQuartiles(1.778, 1.778, 1.778)  # a note gives this number alone

LAYER_SELECTION = JointExperiment(
    _NAME,
    "Selection of layers (experiment I)",
    31,
    ("cga", "pbil-lambda", "pbil-epsilon"),
    *(
        (
            *("ten-layers", "ten-plain-layers", "pbil-epsilon-no-skip", "pbil-epsilon-no-clip"),
            *("pbil-lambda-batch-128", "pbil-lambda-patient", *OTHER_ESTIMATORS),
            *("pbil-lambda-blind", "pbil-epsilon-blind", "stochastic", "cga-half-step", "cga-half-step-chainer"),
            *("ten-plain-layers-he", "ten-plain-layers-chainer", "ten-plain-layers-batch-128"),
        ),
        {
            "cga": ErrorQuartiles(2.240, 2.130, 2.298),
            "pbil-lambda": ErrorQuartiles(1.855, 1.790, 1.932),
            "pbil-epsilon": ErrorQuartiles(1.795, 1.752, 1.838),
            _TEN: TEN_LAYERS,
        },
        "active hidden layers",
        lambda ones: 1.0 + ones,  # the first is always there
    ),
    "MNIST, 32 hidden layers of 128 ReLU units, X ← X + m·H(X), n = 31, mini-batches of 64, Nesterov's momentum 0.9,"
    " weight decay 1e-4, gradients clipped to norm 2, learning rate divided by 10 at 1/2 and 3/4 of the updates: as in"
    " the paper. Not in the paper and settled here: the number of updates, learning rate 0.01, LeCun-normal weights,"
    " zero biases, pixels in [0, 1].",
)


def reproduce(options: TrainingOptions, log: ProgressLog) -> Report:
    """Train what is missing, draw the figures and check the claims."""
    train_missing(LAYER_SELECTION, options, log)
    return report(options.out, options.iterations)


def report(out: Path, updates: int = UPDATES) -> Report:
    """Draw the figures and check the claims from the CSV."""
    found, longer = trials_at(LAYER_SELECTION, out, updates)
    figures = [
        (
            draw_curves(LAYER_SELECTION, found, out / f"{_NAME}.png"),
            "Over the updates of the weights: median and inter-quartile band of the trials. Dotted: the learning rate"
            " is divided by 10.",
        ),
        (
            _draw_ends(found, out / f"{_NAME}-final.png"),
            "Test error at the end: every trial, and median and quartiles; in gray the paper's.",
        ),
    ]
    if any(setting in found for setting in LAYER_SELECTION.others):
        path = draw_remarks(found, out / f"{_NAME}-remarks.png")
        figures.append(
            (
                path,
                "Remarks of the paper: median and inter-quartile band of the trials, in the colors of the names.",
            )
        )
    return write_report(LAYER_SELECTION, out, updates, found, figures, claims_of_layers(found), longer)


def claims_of_layers(found: TrialsBySetting) -> list[Claim]:
    """Check the statements of the text, a footnote, a note and the appendix."""
    beginning = "The test errors of our methods outperform the previous cGA at the beginning stage of training: {}."
    end = "… but also at the final iteration: {}."
    return [
        *(ahead(found, setting, "cga", EARLY, beginning.format(label(setting))) for setting in ADAPTIVE),
        *(ahead(found, setting, "cga", END, end.format(label(setting))) for setting in ADAPTIVE),
        *(dynamic(found, s, f"The strategy parameters change dynamically: {label(s)}.") for s in ADAPTIVE),
        ten_layers(found),
        *(as_good_as_ten_layers(found, setting) for setting in ADAPTIVE),
        less_stable(
            found,
            "pbil-epsilon-no-skip",
            "X ← X + m·H(X) is more stable than (1 − m)·X + m·H(X), due to the skip connection.",
        ),
        less_stable(found, "pbil-epsilon-no-clip", "Clipping the gradient to norm 2 prevents too long steps."),
        ahead(
            *(found, "pbil-lambda-batch-128", "pbil-lambda", END),
            "Mini-batches of size 2N, as PBIL-ε in effect has, will further improve PBIL-λ.",
        ),
        ahead(
            *(found, "pbil-lambda", "pbil-lambda-patient", END),
            "For PBIL-λ, updating W after every network is more promising than after every λ.",
        ),
    ]


def ten_layers(found: TrialsBySetting) -> Claim:
    """Check the number given in a note."""
    claim = "The best number of layers was ten, whose test error is 1.778."
    criterion = "1.778 lies within the test errors of the trials with ten plain layers (other numbers were not run)"
    if missing := not_run(found, _TEN):
        return Claim(claim, criterion, missing, None)
    final = found[_TEN].final
    words = f"{quartiles(final)}, from {final.min():.3f} to {final.max():.3f}"
    return Claim(claim, criterion, words, bool(final.min() <= TEN_LAYERS.median <= final.max()))


def as_good_as_ten_layers(found: TrialsBySetting, setting: str) -> Claim:
    """Compare the search with ten plain layers, as the paper's numbers do."""
    paper = LAYER_SELECTION.paper[setting].median
    claim = f"(The search comes up to ten plain layers: {label(setting)} {paper:.3f} against {TEN_LAYERS.median:.3f}.)"
    criterion = f"its median is within the other's quartiles or below; not if above with p < {SIGNIFICANCE:g}"
    if missing := not_run(found, setting, _TEN):
        return Claim(claim, criterion, missing, None)
    search, fixed = found[setting].final, found[_TEN].final
    words = f"{quartiles(search)} against {quartiles(fixed)} ({chance(search, fixed)})"
    if lower(fixed, search):
        return Claim(claim, criterion, words, False)
    return Claim(claim, criterion, words, True if np.median(search) <= quartiles(fixed).high else None)


def less_stable(found: TrialsBySetting, setting: str, claim: str) -> Claim:
    """Check the claim that PBIL-ε is less stable with this change."""
    criterion = (
        f"without it the inter-quartile range of the test error at the end is at least {WIDER:g} times as wide, or more"
        f" of the trials end above {_LOST:g} %; it does not hold if the range is not wider at all"
    )
    if missing := not_run(found, setting, "pbil-epsilon"):
        return Claim(claim, criterion, missing, None)
    with_it, without = found["pbil-epsilon"].final, found[setting].final
    here, there = quartiles(with_it), quartiles(without)
    factor = (there.high - there.low) / max(here.high - here.low, 1e-9)
    lost, lost_with = (float((final > _LOST).mean()) for final in (without, with_it))
    words = (
        f"without {there}, with {here}: {factor:.3g} times as wide; above {_LOST:g} %: {lost * len(without):.0f} of"
        f" {len(without)} trials without, {lost_with * len(with_it):.0f} of {len(with_it)} with"
    )
    return Claim(
        claim, criterion, words, True if factor >= WIDER or lost > lost_with else False if factor <= 1 else None
    )


def _draw_ends(found: TrialsBySetting, path: Path) -> Path:
    """Draw the final errors with those of the paper."""
    figure, (ax,) = plotting.axes("test error at the end, here and in the paper", height=3.4)
    draw_ends(ax, LAYER_SELECTION, found, (*LAYER_SELECTION.settings, _TEN))
    return plotting.save_figure(figure, path)


def draw_remarks(found: TrialsBySetting, path: Path) -> Path:
    """Draw the settings of the remarks, over the updates and at the end."""
    figure, (over, ends) = plotting.axes("test error", "test error at the end", height=4.4)
    others = [s for s in LAYER_SELECTION.others if s in LABELS and s not in OTHER_ESTIMATORS]
    settings = [setting for setting in ("pbil-epsilon", "pbil-lambda", *others) if setting in found]
    for setting in settings:
        trials = found[setting]
        plotting.plot_over_time(over, trials.at, trials.error, label(setting), color(setting))
    over_updates(over, found, settings)
    over.set(yscale="log", ylabel="test error, %")
    plain_ticks(over.yaxis, PERCENT)
    draw_ends(ends, LAYER_SELECTION, found, settings)
    ends.set(xscale="log")
    plain_ticks(ends.xaxis, PERCENT)
    return plotting.save_figure(figure, path)
