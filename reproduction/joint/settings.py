"""The two experiments: their settings, labels and colors, the numbers that the paper gives, and training options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from knobless.core.types import Array
from reproduction.settings import CGA_1, COLORS, EPSILON, LAMBDA

OTHER_ESTIMATORS = ("gumbel", "hard-concrete", "reinforce")
ADAPTIVE = ("pbil-lambda", "pbil-epsilon")
UPDATES = 93_750  # 100 passes over MNIST in mini-batches of 64
EARLY = (0.01, 0.1)  # shares of the updates at which the beginning of training is compared
END = (1.0,)
SIGNIFICANCE = 0.01  # p of a rank-sum test below which a difference is not called chance
DYNAMIC = 2.0  # λ_r that changes by this factor is called dynamic
RATE = "-rate-0.03"
MEAN = "-mean"  # ends the name of the mean test error of several networks of a trial
VARIATIONS = {
    RATE: "learning rate 0.03",
    "-he": "weights N(0, 2/inputs)",
    "-normal-0.1": "weights N(0, 0.1²)",
    "-normal-0.15": "weights N(0, 0.15²)",
    "-batch-128": "mini-batches of 128",
    "-chainer": "momentum as in Chainer",
}

LABELS = {
    "cga": "cGA",
    "pbil-lambda": "PBIL-λ",
    "pbil-epsilon": "PBIL-ε",
    "relu": "all ReLU",
    "tanh": "all tanh",
    "cga-half-step": "cGA, ε = 1/(2n)",
    "pbil-lambda-blind": "PBIL-λ, random losses",
    "pbil-epsilon-blind": "PBIL-ε, random losses",
    "stochastic": "θ = ½ throughout",
    "gumbel": "Gumbel-softmax, straight-through",
    "hard-concrete": "hard concrete gates",
    "reinforce": "REINFORCE, leave one out",
    "ten-layers": "ten layers, fixed",
    "ten-plain-layers": "ten plain layers",
    "pbil-epsilon-no-skip": "PBIL-ε, (1 − m)X + mH(X)",
    "pbil-epsilon-no-clip": "PBIL-ε, no clipping",
    "pbil-lambda-batch-128": "PBIL-λ, mini-batches of 128",
    "pbil-lambda-patient": "PBIL-λ, W waits for all λ",
}
SETTING_COLORS = {
    "cga": COLORS[CGA_1],
    "pbil-lambda": COLORS[LAMBDA],
    "pbil-epsilon": COLORS[EPSILON],
    "relu": "#2ca02c",
    "tanh": "#9467bd",
    "cga-half-step": "#aec7e8",
    "pbil-lambda-blind": "#ff9896",
    "pbil-epsilon-blind": "#ffbb78",
    "stochastic": "#7f7f7f",
    "gumbel": "#393b79",
    "hard-concrete": "#637939",
    "reinforce": "#843c39",
    "ten-layers": "#17becf",
    "ten-plain-layers": "#1f6f8b",
    "pbil-epsilon-no-skip": "#8c564b",
    "pbil-epsilon-no-clip": "#7f7f7f",
    "pbil-lambda-batch-128": "#e377c2",
    "pbil-lambda-patient": "#bcbd22",
}


def label(setting: str) -> str:
    """Return the label of a setting."""
    if setting.endswith(MEAN):
        return f"{label(setting.removesuffix(MEAN))}, mean of 10 networks"
    plain, variation = _apart(setting)
    return LABELS[plain] + (f", {VARIATIONS[variation]}" if variation else "")


def color(setting: str) -> str:
    """Return the color of a setting, the same in every figure."""
    return SETTING_COLORS[_apart(setting)[0]]


def _apart(setting: str) -> tuple[str, str]:
    """Return the setting and what is varied, which may be nothing."""
    varied = () if setting in LABELS else (v for v in VARIATIONS if setting.endswith(v))
    variation = next(iter(varied), "")
    return setting.removesuffix(variation), variation


class ErrorQuartiles(NamedTuple):
    """A median and its quartiles, in percent."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f}, {self.high:.3f})"


@dataclass(frozen=True)
class JointExperiment:
    """An experiment: its name, number of bits, settings by name, and the test errors that the paper gives."""

    name: str
    title: str
    n: int
    settings: tuple[str, ...]  # those of the paper's figure
    others: tuple[str, ...]
    paper: Mapping[str, ErrorQuartiles]
    ones: str  # label of the axis of Σ m
    shown: Callable[[Array], Array]  # Σ m in the units of that axis
    setup: str

    @property
    def known(self) -> tuple[str, ...]:
        varied = (f"{setting}{variation}" for variation in VARIATIONS for setting in self.settings)
        return tuple(dict.fromkeys((*self.settings, *self.others, *varied)))


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a training; by default the settings of the paper's figure, on a GPU if there is one."""

    out: Path
    trials: int = 30
    iterations: int = UPDATES
    device: str | None = None
    algorithms: tuple[str, ...] = ()
    mnist: Path | None = None
