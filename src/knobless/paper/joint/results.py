"""What `layers` and `activations` share: trainings that are missing, the CSV they end up in, comparisons and pictures.

The training itself is in `training` and needs torch. All else here needs the CSV alone, so that pictures can be
made on another machine than the one with the GPU.
"""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, NullLocator

from knobless._checks import positive_int
from knobless.core.types import Array
from knobless.paper import figures as plotting
from knobless.paper.claims import Claim, Report
from knobless.paper.experiment import write_csv
from knobless.paper.measure import quantile
from knobless.paper.settings import CGA_1, COLORS, EPSILON, LAMBDA

if TYPE_CHECKING:
    from knobless.torch.data import Data

    from .training import Setting

Say = Callable[[str], object]

UPDATES = 93_750  # 100 passes over MNIST in mini-batches of 64
EARLY = (0.01, 0.1)  # shares of the updates at which the beginning of training is judged
END = (1.0,)
SURE = 0.01  # p of a rank-sum test below which one setting is called better than another
DYNAMIC = 2.0  # λ_r that changes by this factor is called dynamic
RATE = "-rate-0.03"
PERCENT = (1, 1.5, 2, 3, 5, 10, 20, 50, 100)  # ticks of test errors

NAMES = {
    "cga": "cGA",
    "pbil-lambda": "PBIL-λ",
    "pbil-epsilon": "PBIL-ε",
    "relu": "all ReLU",
    "tanh": "all tanh",
    "ten-layers": "ten layers, fixed",
    "pbil-epsilon-no-skip": "PBIL-ε, (1 − m)X + mH(X)",
    "pbil-epsilon-no-clip": "PBIL-ε, no clipping",
    "pbil-lambda-batch-128": "PBIL-λ, mini-batches of 128",
    "pbil-lambda-patient": "PBIL-λ, W waits for all λ",
}
COLOR = {
    "cga": COLORS[CGA_1],
    "pbil-lambda": COLORS[LAMBDA],
    "pbil-epsilon": COLORS[EPSILON],
    "relu": "#2ca02c",
    "tanh": "#9467bd",
    "ten-layers": "#17becf",
    "pbil-epsilon-no-skip": "#8c564b",
    "pbil-epsilon-no-clip": "#7f7f7f",
    "pbil-lambda-batch-128": "#e377c2",
    "pbil-lambda-patient": "#bcbd22",
}


def label(setting: str) -> str:
    """The setting's name as a reader wants it."""
    plain = setting.removesuffix(RATE)
    return NAMES[plain] + (", learning rate 0.03" if plain != setting else "")


def color(setting: str) -> str:
    """The same in every figure."""
    return COLOR[setting.removesuffix(RATE)]


class Quartiles(NamedTuple):
    """A median and its quartiles, as the paper gives them."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f}, {self.high:.3f})"


@dataclass(frozen=True)
class Experiment:
    """One of the two: its name, its settings by name, its number of bits, and the test errors that the paper gives."""

    name: str
    title: str
    n: int
    settings: tuple[str, ...]  # of the paper's figure
    others: tuple[str, ...]
    paper: Mapping[str, Quartiles]
    ones: str  # what Σ m tells, as the label of an axis
    shown: Callable[[Array], Array]  # Σ m as it is shown there
    setup: str

    @property
    def known(self) -> tuple[str, ...]:
        rates = tuple(f"{setting}{RATE}" for setting in self.settings)
        return (*self.settings, *self.others, *rates)


@dataclass(frozen=True)
class Options:
    """What the two commands are told; no algorithms are those of the paper's figure, no device the best there is."""

    out: Path
    trials: int = 30
    iterations: int = UPDATES
    device: str | None = None
    algorithms: tuple[str, ...] = ()
    mnist: Path | None = None


# What the CSV says.


@dataclass(frozen=True)
class Trials:
    """The trials of a setting that were trained to the end: a row each, and a column for each number of updates."""

    numbers: tuple[int, ...]
    at: Array
    error: Array  # test error in percent
    lam_r: Array
    eps: Array
    ones: Array

    def place(self, share: float) -> int:
        """The column nearest to this share of all updates, on the logarithmic scale on which columns are spaced."""
        return int(np.abs(np.log(self.at / (share * self.at[-1]))).argmin())

    @property
    def final(self) -> Array:
        return self.error[:, -1]


Found = Mapping[str, Trials]  # by setting
Curve = dict[int, list[float]]  # of one trial: by update


def read(path: Path) -> dict[int, dict[str, Trials]]:
    """What is there, by the number of updates of the whole training and by setting."""
    curves: dict[tuple[int, str], dict[int, Curve]] = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            for row in table:
                try:
                    updates, trial, update = (int(row[name]) for name in ("updates", "trial", "update"))
                    values = [float(row[name] or "nan") for name in ("error", "lam_r", "eps", "ones")]
                except (KeyError, TypeError, ValueError):
                    raise ValueError(f"{path}, line {table.line_num}: expected a row of a trial, got {row}") from None
                curves.setdefault((updates, row["setting"]), {}).setdefault(trial, {})[update] = values
    found: dict[int, dict[str, Trials]] = {}
    for (updates, setting), trials in curves.items():
        ended = {number: trials[number] for number in sorted(trials) if updates in trials[number]}
        if ended:
            at = sorted(set.intersection(*map(set, ended.values())))
            values_of = np.array([[curve[update] for update in at] for curve in ended.values()])
            found.setdefault(updates, {})[setting] = Trials(
                tuple(ended), np.array(at, dtype=float), *np.moveaxis(values_of, 2, 0)
            )
    return found


def at(experiment: Experiment, out: Path, updates: int) -> tuple[Found, Found]:
    """What was trained for so many updates, which must be something, and for ten times as many."""
    path = out / f"{experiment.name}.csv"
    found = read(path)
    if updates not in found:
        got = ", ".join(f"{n:,}" for n in sorted(found)) or "none"
        raise ValueError(f"{path}: expected trials of {updates:,} updates, got {got}")
    return found[updates], found.get(10 * updates, {})


# What it does not say yet.


def train(experiment: Experiment, options: Options, say: Say) -> None:
    """Trains what the CSV does not have; where it has all, neither torch nor MNIST is asked for."""
    trials, updates = positive_int("trials", options.trials), positive_int("iterations", options.iterations)
    for name in options.algorithms:
        if name not in experiment.known:
            raise ValueError(f"algorithms: expected some of {', '.join(experiment.known)}, got {name!r}")
    found = read(options.out / f"{experiment.name}.csv").get(updates, {})
    missing: dict[str, list[int]] = {}
    for name in options.algorithms or experiment.settings:
        ended = found[name].numbers if name in found else ()
        missing[name] = [number for number in range(trials) if number not in ended]
    missing = {name: numbers for name, numbers in missing.items() if numbers}
    if not missing:
        return
    from knobless.torch.data import mnist

    from . import runs

    device = device_of(options.device)
    settings = runs.chosen(experiment.name, list(missing))
    data = mnist(options.mnist)
    if device.startswith("cpu"):
        say("On the CPU: a few updates of each setting tell how long it will take.")
        say(on_a_cpu(settings, data, missing, updates))
    for number, setting in enumerate(settings, 1):
        told = beginning_with(f"[{number}/{len(settings)}] ", say)
        runs.run(experiment.name, [setting], data, trials, updates, device, options.out, told)


def beginning_with(words: str, say: Say) -> Say:
    """Says the same after these words."""
    return lambda line: say(words + line)


def device_of(name: str | None) -> str:
    """The one named, if it is there; without a name the GPU, or the CPU where there is none."""
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device: expected cpu, cuda or one GPU such as cuda:0, got {name!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device: expected one that is here, got {name!r}, and PyTorch finds no GPU")
    return name


def on_a_cpu(settings: Sequence[Setting], data: Data, missing: Mapping[str, Sequence[int]], updates: int) -> str:
    """How long it will take, from a few updates of each setting."""
    from .training import Training

    seconds = {}
    for setting in settings:
        training = Training(setting, data, missing[setting.name], updates=3)
        training.run(1)
        began = time.perf_counter()
        training.run(3)
        seconds[setting.name] = (time.perf_counter() - began) / 2 * updates
    each = ", ".join(f"{name} {lasting(s)}" for name, s in seconds.items())
    return (
        f"{updates:,} updates will take about {lasting(sum(seconds.values()))} on this CPU ({each}). A GPU is far"
        " quicker; fewer --trials or --iterations take less. Ctrl-C stops; the same command goes on from a checkpoint."
    )


def lasting(seconds: float) -> str:
    """A duration in its unit."""
    for unit, size in (("days", 86_400.0), ("hours", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1.0):.0f} s"


# Who is better.


def quartiles(values: Iterable[float]) -> Quartiles:
    """Median, lower and upper quartile."""
    kept = list(values)
    return Quartiles(*(quantile(kept, q) for q in (0.5, 0.25, 0.75)))


def rank_sum(a: Array, b: Array) -> float:
    """The two-sided p of Wilcoxon's rank-sum test: normal, with ties and continuity corrected for."""
    both = np.concatenate([a, b])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    m, n, total = len(a), len(b), len(both)
    ties = float((counts**3 - counts).sum()) / (total * (total - 1))
    spread = math.sqrt(m * n / 12 * (total + 1 - ties))
    away = abs(float(ranks[:m].sum()) - m * (total + 1) / 2) - 0.5
    return math.erfc(max(away, 0.0) / spread / math.sqrt(2)) if spread else 1.0


def lower(a: Array, b: Array) -> bool | None:
    """Whether a's median is below b's; None where the trials may differ by chance."""
    if rank_sum(a, b) >= SURE or np.median(a) == np.median(b):
        return None
    return bool(np.median(a) < np.median(b))


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """False if one is, True if all are."""
    known = list(verdicts)
    return False if False in known else None if None in known or not known else True


def ahead(found: Found, first: str, second: str, shares: Sequence[float], claim: str) -> Claim:
    """The claim that one setting has the lower test error, at each of some shares of the updates."""
    when = (
        "at the end" if shares == END else "at " + " and at ".join(f"{100 * s:g} %" for s in shares) + " of the updates"
    )
    criterion = f"the median test error of {label(first)} is below that of {label(second)} {when}, p < {SURE:g}"
    if missing := not_run(found, first, second):
        return Claim(claim, criterion, missing, None)
    a, b = found[first], found[second]
    verdicts, words = [], []
    for share in shares:
        i, j = a.place(share), b.place(share)
        x, y = a.error[:, i], b.error[:, j]
        verdicts.append(lower(x, y))
        words.append(f"{np.median(x):.3f} against {np.median(y):.3f} after {a.at[i]:,.0f} ({chance(x, y)})")
    return Claim(claim, criterion, "; ".join(words), all_of(verdicts))


def chance(a: Array, b: Array) -> str:
    """The p of their difference in words."""
    p = rank_sum(a, b)
    return f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"


def not_run(found: Found, *settings: str) -> str:
    """Which of these are missing, in words; nothing if none is."""
    names = [label(setting) for setting in settings if setting not in found]
    return f"not run: {', '.join(names)}" if names else ""


def dynamic(found: Found, setting: str, claim: str) -> Claim:
    """The claim that λ_r changes in the course of the training, not only in its growth from 2 at the beginning."""
    begin = EARLY[0]
    criterion = (
        f"from {100 * begin:g} % of the updates on, the largest λ_r of a trial is {DYNAMIC:g} times the smallest"
    )
    if missing := not_run(found, setting):
        return Claim(claim, criterion + " in the median", missing, None)
    trials = found[setting]
    lam = trials.lam_r[:, trials.place(begin) :]
    factor = float(np.median(lam.max(axis=1) / lam.min(axis=1)))
    first, last, most = (float(np.median(lam[:, i])) for i in (0, -1, int(np.median(lam, axis=0).argmax())))
    words = f"{factor:.2g} times; the median λ_r is {first:.3g} there, {most:.3g} at most, {last:.3g} at the end"
    return Claim(claim, criterion + " in the median", words, factor >= DYNAMIC)


# How it is written down.


def report(
    experiment: Experiment,
    out: Path,
    updates: int,
    found: Found,
    figures: Sequence[tuple[Path, str]],
    claims: Sequence[Claim],
    longer: Found,
) -> Report:
    """Claims and figures, the numbers beside the paper's as a CSV, and as tables below the claims."""
    trained = " ".join(filter(None, (f"{updates:,} updates of the weights.", experiment.setup, made(experiment, out))))
    said = Report(experiment.name, experiment.title, trained, tuple(figures), tuple(claims))
    said.write(out)
    lines = [*summary(experiment, found, updates), *summary(experiment, longer, 10 * updates)]
    write_csv(out / f"{experiment.name}-summary.csv", lines)
    text = said.markdown() + "\n## The numbers beside the paper's\n\n" + table(experiment, found)
    if longer:
        text += f"\n### After {10 * updates:,} updates\n\n" + table(experiment, longer)
    (out / f"{experiment.name}-claims.md").write_text(text, encoding="utf-8")
    return said


def made(experiment: Experiment, out: Path) -> str:
    """Where and for how long it was trained, if the CSV's companion tells."""
    path = out / f"{experiment.name}-meta.json"
    if not path.exists():
        return ""
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    devices = " and ".join(dict.fromkeys(run["device"] for run in runs))
    count, seconds = (sum(run[name] for run in runs) for name in ("trials", "seconds"))
    return f"Trained on {devices}: {count} trainings in {seconds:.0f} s."


def there(experiment: Experiment, found: Found) -> list[str]:
    """The settings that were run, in the order in which they are named."""
    return [setting for setting in experiment.known if setting in found]


def summary(experiment: Experiment, found: Found, updates: int) -> list[dict[str, Any]]:
    """A row a setting: how its trials ended, and what the paper has."""
    lines = []
    for setting in there(experiment, found):
        trials = found[setting]
        here, paper = quartiles(trials.final), experiment.paper.get(setting)
        ends = {name: float(np.median(getattr(trials, name)[:, -1])) for name in ("lam_r", "eps", "ones")}
        lines.append(
            {
                "setting": setting,
                "updates": updates,
                "trials": len(trials.final),
                **{name: f"{value:.4g}" for name, value in here._asdict().items()},
                **{f"paper_{name}": getattr(paper, name, "") for name in Quartiles._fields},
                **{f"median_{name}": "" if math.isnan(value) else f"{value:.4g}" for name, value in ends.items()},
            }
        )
    return lines


def table(experiment: Experiment, found: Found) -> str:
    """Test errors in percent at the end, as Markdown."""
    lines = ["| setting | trials | test error here, % | in the paper |", "|---|---|---|---|"]
    for setting in there(experiment, found):
        final, paper = found[setting].final, experiment.paper.get(setting)
        given = "" if paper is None else f"{paper.median:.3f}" if paper.low == paper.high else str(paper)
        lines.append(f"| {label(setting)} | {len(final)} | {quartiles(final)} | {given} |")
    return "\n".join(lines) + "\n"


# Pictures.


def draw(experiment: Experiment, found: Found, path: Path) -> Path:
    """Test error, λ_r, ε and the architecture over the updates, for the settings of the paper's figure."""
    figure, axes = plotting.axes("test error", "λ_r", "ε", experiment.ones, columns=2, height=3.7)
    errors, lam, eps, ones = axes
    settings = [setting for setting in experiment.settings if setting in found]
    for setting in settings:
        trials, looks = found[setting], (label(setting), color(setting))
        plotting.over_time(errors, trials.at, trials.error, *looks)
        if not np.isnan(trials.lam_r).all():  # it was searched
            plotting.over_time(eps, trials.at, trials.eps, *looks)
            plotting.over_time(ones, trials.at, experiment.shown(trials.ones), *looks)
            if setting != "cga":
                plotting.over_time(lam, trials.at, trials.lam_r, *looks)
    for ax in axes:
        over_updates(ax, found, settings)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=8)
    errors.set(yscale="log", ylabel="test error, %")
    plain(errors.yaxis, PERCENT)
    lam.set(yscale="log", ylabel="λ_r")
    plain(lam.yaxis, [2**k for k in range(1, 13)])
    eps.set(yscale="log", ylabel="ε")
    ones.set(ylabel=experiment.ones)
    return plotting.save(figure, path)


def over_updates(ax: Axes, found: Found, settings: Sequence[str]) -> None:
    """The logarithmic axis of updates; dotted, where the learning rate is divided by 10."""
    ax.set(xscale="log", xlabel="updates of the weights")
    for end in {found[setting].at[-1] for setting in settings}:
        for share in (0.5, 0.75):
            ax.axvline(share * end, color="0.55", linewidth=0.8, linestyle=":", zorder=0)


def plain(axis: Axis, ticks: Sequence[float]) -> None:
    """A logarithmic axis with numbers that can be read, without making room for all of them."""
    low, high = axis.get_view_interval()
    axis.set_ticks([tick for tick in ticks if low <= tick <= high])
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def draw_ends(ax: Axes, experiment: Experiment, found: Found, settings: Sequence[str]) -> None:
    """Every trial's test error at the end, median and quartiles in bold; below, in grey, what the paper has."""
    kept = [setting for setting in settings if setting in found]
    for place, setting in enumerate(kept):
        final, paper = np.sort(found[setting].final), experiment.paper.get(setting)
        apart = place - 0.16 + 0.32 * (0.618 * np.arange(len(final)) % 1.0)  # so that equal ones are seen
        ax.scatter(final, apart, s=11, color=color(setting), alpha=0.35, linewidth=0)
        interval(ax, quartiles(final), place, color(setting), "o")
        if paper is not None:
            interval(ax, paper, place + 0.33, "0.35", "D")
    ax.plot([], [], color="0.1", marker="o", linewidth=3, label="here")
    if any(setting in experiment.paper for setting in kept):
        ax.plot([], [], color="0.35", marker="D", markersize=5, linewidth=1.5, label="the paper")
    ax.set_yticks(range(len(kept)), [label(setting) for setting in kept])
    for text, setting in zip(ax.get_yticklabels(), kept, strict=True):
        text.set_color(color(setting))
    ax.set(ylim=(len(kept) - 0.4, -0.5), xlabel="test error at the end, %")
    ax.legend(fontsize=8)


def interval(ax: Axes, values: Quartiles, place: float, shade: str, marker: str) -> None:
    """A median on the bar of its quartiles."""
    bold = marker == "o"
    ax.plot([values.low, values.high], [place] * 2, color=shade, linewidth=3 if bold else 1.5, solid_capstyle="round")
    ax.plot(
        [values.median], [place], color=shade, marker=marker, markersize=6.5 if bold else 5, markeredgecolor="white"
    )
