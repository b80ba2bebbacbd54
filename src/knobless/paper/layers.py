"""Experiment I: which of 31 layers a deep network uses, found while its weights are trained; and what is said aside."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import figures as plotting
from .claims import Claim, Report
from .joint import results as joint
from .joint.results import EARLY, END, Found, Options, Quartiles, Say, ahead, chance, label, lower, not_run, quartiles

NAME = "layers"
WIDER = 2.0  # an inter-quartile range wider by this factor is called less stable
LOST = 50.0  # percent: a trial that ends above has not learned
TEN_LAYERS = Quartiles(1.778, 1.778, 1.778)  # a note gives this number alone

EXPERIMENT = joint.Experiment(
    NAME,
    "Selection of layers (experiment I)",
    31,
    ("cga", "pbil-lambda", "pbil-epsilon"),
    *(
        ("ten-layers", "pbil-epsilon-no-skip", "pbil-epsilon-no-clip", "pbil-lambda-batch-128", "pbil-lambda-patient"),
        {
            "cga": Quartiles(2.240, 2.130, 2.298),
            "pbil-lambda": Quartiles(1.855, 1.790, 1.932),
            "pbil-epsilon": Quartiles(1.795, 1.752, 1.838),
            "ten-layers": TEN_LAYERS,
        },
        "active hidden layers",
        lambda ones: 1.0 + ones,  # the first is always there
    ),
    "MNIST, 32 hidden layers of 128 ReLU units, X ← X + m·H(X), n = 31, mini-batches of 64, Nesterov's momentum 0.9,"
    " weight decay 1e-4, gradients clipped to norm 2, learning rate divided by 10 at 1/2 and 3/4 of the updates: as in"
    " the paper. Not in the paper and settled here: the number of updates, learning rate 0.01, LeCun-normal weights,"
    " zero biases, pixels in [0, 1].",
)


def reproduce(options: Options, say: Say) -> Report:
    """Trains what is missing, draws, and judges."""
    joint.train(EXPERIMENT, options, say)
    return report(options.out, options.iterations)


def report(out: Path, updates: int = joint.UPDATES) -> Report:
    """Draws and judges what the CSV has."""
    found, longer = joint.at(EXPERIMENT, out, updates)
    figures = [
        (
            joint.draw(EXPERIMENT, found, out / f"{NAME}.png"),
            "Over the updates of the weights: median and inter-quartile band of the trials. Dotted: the learning rate"
            " is divided by 10.",
        ),
        (
            draw_ends(found, out / f"{NAME}-final.png"),
            "Test error at the end: every trial, and median and quartiles; in grey the paper's.",
        ),
    ]
    if any(setting in found for setting in EXPERIMENT.others):
        path = draw_remarks(found, out / f"{NAME}-remarks.png")
        figures.append(
            (
                path,
                "What the paper says aside: median and inter-quartile band of the trials, in the colours of the names.",
            )
        )
    return joint.report(EXPERIMENT, out, updates, found, figures, claims(found), longer)


def claims(found: Found) -> list[Claim]:
    """What the text, a footnote, a note and the appendix say."""
    adaptive = ("pbil-lambda", "pbil-epsilon")
    beginning = "The test errors of our methods outperform the previous cGA at the beginning stage of training: {}."
    end = "… but also at the final iteration: {}."
    return [
        *(ahead(found, setting, "cga", EARLY, beginning.format(label(setting))) for setting in adaptive),
        *(ahead(found, setting, "cga", END, end.format(label(setting))) for setting in adaptive),
        *(joint.dynamic(found, s, f"The strategy parameters change dynamically: {label(s)}.") for s in adaptive),
        ten_layers(found),
        *(as_good_as_ten_layers(found, setting) for setting in adaptive),
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


def ten_layers(found: Found) -> Claim:
    """The note's number."""
    claim = "The best number of layers was ten, whose test error is 1.778."
    criterion = "1.778 lies within the test errors of the trials with ten fixed layers (other numbers were not run)"
    if missing := not_run(found, "ten-layers"):
        return Claim(claim, criterion, missing, None)
    final = found["ten-layers"].final
    words = f"{quartiles(final)}, from {final.min():.3f} to {final.max():.3f}"
    return Claim(claim, criterion, words, bool(final.min() <= TEN_LAYERS.median <= final.max()))


def as_good_as_ten_layers(found: Found, setting: str) -> Claim:
    """What the paper's two numbers say together."""
    paper = EXPERIMENT.paper[setting].median
    claim = f"(The search comes up to ten fixed layers: {label(setting)} {paper:.3f} against {TEN_LAYERS.median:.3f}.)"
    criterion = f"its median is within the other's quartiles or below; not if above with p < {joint.SURE:g}"
    if missing := not_run(found, setting, "ten-layers"):
        return Claim(claim, criterion, missing, None)
    search, fixed = found[setting].final, found["ten-layers"].final
    words = f"{quartiles(search)} against {quartiles(fixed)} ({chance(search, fixed)})"
    if lower(fixed, search):
        return Claim(claim, criterion, words, False)
    return Claim(claim, criterion, words, True if np.median(search) <= quartiles(fixed).high else None)


def less_stable(found: Found, setting: str, claim: str) -> Claim:
    """The claim that PBIL-ε is less stable with this changed."""
    criterion = (
        f"without it the inter-quartile range of the test error at the end is at least {WIDER:g} times as wide, or more"
        f" of the trials end above {LOST:g} %; it does not hold if the range is not wider at all"
    )
    if missing := not_run(found, setting, "pbil-epsilon"):
        return Claim(claim, criterion, missing, None)
    with_it, without = found["pbil-epsilon"].final, found[setting].final
    here, there = quartiles(with_it), quartiles(without)
    factor = (there.high - there.low) / max(here.high - here.low, 1e-9)
    lost, lost_with = (float((final > LOST).mean()) for final in (without, with_it))
    words = (
        f"without {there}, with {here}: {factor:.3g} times as wide; above {LOST:g} %: {lost * len(without):.0f} of"
        f" {len(without)} trials without, {lost_with * len(with_it):.0f} of {len(with_it)} with"
    )
    return Claim(
        claim, criterion, words, True if factor >= WIDER or lost > lost_with else False if factor <= 1 else None
    )


def draw_ends(found: Found, path: Path) -> Path:
    """Beside the paper's numbers."""
    figure, (ax,) = plotting.axes("test error at the end, here and in the paper", height=3.4)
    joint.draw_ends(ax, EXPERIMENT, found, (*EXPERIMENT.settings, "ten-layers"))
    return plotting.save(figure, path)


def draw_remarks(found: Found, path: Path) -> Path:
    """What is said aside, over the updates and at the end."""
    figure, (over, ends) = plotting.axes("test error", "test error at the end", height=4.4)
    settings = [setting for setting in ("pbil-epsilon", "pbil-lambda", *EXPERIMENT.others) if setting in found]
    for setting in settings:
        trials = found[setting]
        plotting.over_time(over, trials.at, trials.error, label(setting), joint.color(setting))
    joint.over_updates(over, found, settings)
    over.set(yscale="log", ylabel="test error, %")
    joint.plain(over.yaxis, joint.PERCENT)
    joint.draw_ends(ends, EXPERIMENT, found, settings)
    ends.set(xscale="log")
    joint.plain(ends.xaxis, joint.PERCENT)
    return plotting.save(figure, path)
