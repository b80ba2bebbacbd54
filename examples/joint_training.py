"""Joint training of weights and architecture on the 8×8 digits of scikit-learn: out/joint_training.png.

1. layers: which of 20 layers of a residual network to use. The paper's experiment I, scaled down.
2. activations: tanh or ReLU, for each of 128 units. Experiment II.

Each starts with typical use of `knobless.torch`: a searchable network, a search over its choices, a training loop, and
the plain network at the end. Then the algorithms are compared, with five trainings each, which run as one batch.
"""

import math
import time
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

import knobless as kl
from knobless.torch import Activations, Architecture, ArchitectureSearch, Residual, train_epsilon, train_lambda
from knobless.torch.data import digits
from reproduction.joint import networks
from reproduction.joint.training import Setting, Training

BLUE, ORANGE, GREEN, GRAY, INK = "#1f5fa8", "#e07b1a", "#2f9e6e", "#8a8f98", "#22262b"
THETA_HISTORY = LinearSegmentedColormap.from_list("theta_history", ["#fbfcfe", "#a9c7e8", "#1f5fa8", "#0d2a52"])

PIXELS, CLASSES, BATCH, TRIALS = 64, 10, 64, 5
DATA = digits()


class Curve(NamedTuple):
    """The record of the trials of one setting."""

    setting: Setting
    label: str
    color: str
    rows: list  # of a mark: the numbers of each trial
    milliseconds: float  # processor time per update

    def column(self, name):
        """Return one quantity of all trials, with one row per mark."""
        return np.array([[trial[name] for trial in trials] for trials in self.rows])


class Panel(NamedTuple):
    """The contents of the figure for one experiment."""

    title: str
    marks: np.ndarray
    curves: list
    n: int
    ones_label: str
    ones_scale: float  # the weight of a bit that is one
    theta: np.ndarray  # one row per mark, one column per row of the heat map
    theta_label: str
    theta_title: str


# Typical use


def layers_network(units=32, n=20):
    """Return a network of a layer, a stack of layers that can be switched off, and the output."""
    blocks = [nn.Sequential(nn.Linear(units, units), nn.ReLU()) for _ in range(n)]
    first, last = nn.Linear(PIXELS, units), nn.Linear(units, CLASSES)
    return Architecture(nn.Sequential(OrderedDict(first=first, relu=nn.ReLU(), stack=Residual(blocks), last=last)))


def activations_network(units=64):
    """Return a network with two hidden layers, each unit of which is tanh or ReLU."""
    first, second, last = nn.Linear(PIXELS, units), nn.Linear(units, units), nn.Linear(units, CLASSES)
    f1, f2 = (Activations(units, [torch.tanh, torch.relu]) for _ in range(2))
    return Architecture(nn.Sequential(OrderedDict(first=first, f1=f1, second=second, f2=f2, last=last)))


def initialize(network):
    """Initialize with LeCun-normal weights and zero biases, as in the comparison below."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            nn.init.zeros_(layer.bias)


def mini_batches():
    """Return a loader of mini-batches (x, y)."""
    images, labels = torch.tensor(DATA.train_x) / 255, torch.tensor(DATA.train_y, dtype=torch.int64)
    return DataLoader(TensorDataset(images, labels), BATCH, shuffle=True, drop_last=True)


def train(network, search, loop, loader, updates, clip=math.inf):
    """Train weights and architecture jointly; return θ at the marks."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
    rate = torch.optim.lr_scheduler.MultiStepLR(optimizer, [updates // 2, updates * 3 // 4])
    at, theta = marks(updates), []

    def before(*_):
        nn.utils.clip_grad_norm_(network.parameters(), clip)

    def after(update, losses):
        rate.step()
        bar.update()
        if update in at:
            theta.append(search.theta[0].clone())

    optimizer.register_step_pre_hook(before)
    with tqdm(total=updates, desc="   one training", unit="update", leave=False) as bar:
        loop(network, search, optimizer, loader, updates, callback=after)
    return torch.stack(theta).numpy()


@torch.no_grad()
def freeze(network, search):
    """Describe the plain network of the most probable architecture, and check that its outputs are equal."""
    plain = network.freeze(search.mode)
    images, labels = torch.tensor(DATA.test_x) / 255, torch.tensor(DATA.test_y)
    searched, frozen = network(images, search.mode).argmax(1), plain(images).argmax(1)
    wrong = 100 * (frozen != labels).float().mean()
    size, left = (sum(p.numel() for p in each.parameters()) for each in (network, plain))
    print(f"   chosen      {network.describe(search.mode)}")
    print(f"   frozen      {left:,} of {size:,} parameters are left, test error {wrong:.2f} %;")
    print(f"               {(searched == frozen).sum()} of {len(frozen)} predictions are as before\n")
    return plain


# Comparison


def marks(updates):
    """Return the updates after which to record, evenly spaced on a logarithmic scale."""
    return np.unique(np.geomspace(10, updates, 40).round().astype(int)).tolist()


def compare(settings, updates):
    """Run five trainings of each setting at once, and print a table of the results."""
    curves = []
    for setting, label, color in settings:
        training, rows, seconds = Training(setting, DATA, range(TRIALS), updates), [], 0.0
        with tqdm(total=updates, desc=f"   {label}, {TRIALS} trainings", unit="update", leave=False) as bar:
            for mark in marks(updates):
                started = time.process_time()
                training.run(mark)
                seconds += time.process_time() - started
                rows.append(training.records())
                bar.update(mark - bar.n)
        curves.append(Curve(setting, label, color, rows, 1e3 * seconds / updates))
    early = marks(updates)[len(marks(updates)) // 2]
    heads = (
        f"test error in %, {TRIALS} trainings",
        f"after {early:,} updates",
        f"after {updates:,}, median and quartiles",
        "ms per update",
    )
    print("   {:32}{:26}{:36}{}".format(*heads))
    for curve in curves:
        errors = dict(zip(marks(updates), curve.column("error"), strict=True))
        shown = ("{1:5.2f} ({0:.2f} to {2:.2f})".format(*quartiles(errors[mark])) for mark in (early, updates))
        print("   {:32}{:26}{:36}{:.2f}".format(curve.label, *shown, curve.milliseconds))
    print()
    return curves


def quartiles(each):
    """Return the quartiles over the last dimension."""
    return np.quantile(each, [0.25, 0.5, 0.75], axis=-1)


def solve_layers(updates=800):
    """Run experiment I."""
    print("1. Layers: which of 20 layers to have")
    torch.manual_seed(0)
    network = layers_network()
    initialize(network)
    search = ArchitectureSearch(network.space, kl.pbil_epsilon(network.space), rng=0)
    theta = train(network, search, train_epsilon, mini_batches(), updates, clip=2.0)
    freeze(network, search)
    same = networks.LayerNetwork(PIXELS, units=32, n=20)
    curves = compare(
        [
            (Setting("pbil-epsilon", same, kl.pbil_epsilon, clip=2.0), "PBIL-ε", BLUE),
            (Setting("pbil-lambda", same, kl.pbil_lambda, clip=2.0), "PBIL-λ", GREEN),
            (Setting("cga", same, kl.algorithms.cga, clip=2.0), "cGA", ORANGE),
            (Setting("all", same, mask=(1,) * same.n, clip=2.0), "all 20 layers", GRAY),
        ],
        updates,
    )
    return Panel(
        title="1. Which of 20 layers to have",
        marks=marks(updates),
        curves=curves,
        n=same.n,
        ones_label="layers that are on",
        ones_scale=1,
        theta=theta,
        theta_label="layer",
        theta_title="one training with PBIL-ε",
    )


def solve_activations(updates=1200):
    """Run experiment II."""
    print("2. Activations: tanh or ReLU, for each of 128 units")
    torch.manual_seed(0)
    network = activations_network()
    initialize(network)
    search = ArchitectureSearch(network.space, kl.pbil_lambda(network.space), rng=0)
    theta = train(network, search, train_lambda, mini_batches(), updates)
    freeze(network, search)
    same = networks.ActivationNetwork(PIXELS, units=64, depth=2)
    curves = compare(
        [
            (Setting("pbil-epsilon", same, kl.pbil_epsilon), "PBIL-ε", BLUE),
            (Setting("pbil-lambda", same, kl.pbil_lambda), "PBIL-λ", GREEN),
            (Setting("cga", same, kl.algorithms.cga), "cGA", ORANGE),
            (Setting("relu", same, mask=(1,) * same.n), "all ReLU", GRAY),
            (Setting("tanh", same, mask=(0,) * same.n), "all tanh", INK),
        ],
        updates,
    )
    return Panel(
        title="2. tanh or ReLU, for each of 128 units",
        marks=marks(updates),
        curves=curves,
        n=same.n,
        ones_label="share of ReLU, %",
        ones_scale=100 / same.n,
        theta=theta[:, np.argsort(-theta[-1])],
        theta_label="unit, by its last θ",
        theta_title="one training with PBIL-λ",
    )


# The figure


def draw(panels, path):
    """Draw test error, architecture, λ_r and θ over updates, with one column per experiment."""
    figure = Figure(figsize=(12, 11), dpi=100, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.14, h_pad=0.08)
    axes = figure.subplots(4, len(panels), sharex="col", height_ratios=[3, 1.7, 1.7, 2.6])
    for panel, (error, ones, lam_r, theta) in zip(panels, axes.T, strict=True):
        draw_error(error, panel)
        draw_ones(ones, panel)
        draw_lam_r(lam_r, panel)
        theta_history = draw_theta(theta, panel)
    bar = figure.colorbar(
        theta_history, ax=axes[-1], orientation="horizontal", shrink=0.5, aspect=50, pad=0.03, ticks=[0, 0.5, 1]
    )
    bar.set_label("θ: probability of a layer to be on, of a unit to be ReLU", color=INK)
    bar.ax.tick_params(colors=INK, labelsize=9, length=0)
    bar.outline.set_visible(False)
    for ax in axes.flat:
        ax.tick_params(colors=INK, labelsize=9)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(GRAY)
        ax.yaxis.label.set_color(INK)
    figure.savefig(path)


def draw_band(ax, panel, curve, values):
    """Draw the median and the quartiles of the trials."""
    low, middle, high = quartiles(values)
    ax.fill_between(panel.marks, low, high, color=curve.color, alpha=0.15, linewidth=0)
    ax.plot(panel.marks, middle, color=curve.color, linewidth=2, label=curve.label)


def draw_error(ax, panel):
    """Draw the test errors of all settings."""
    for curve in panel.curves:
        draw_band(ax, panel, curve, curve.column("error"))
    ax.set_title(panel.title, fontsize=13, fontweight="bold", color=INK, loc="left", pad=12)
    ax.set_ylabel("test error, %")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(frameon=False, fontsize=9, labelcolor=INK)


def draw_ones(ax, panel):
    """Draw the composition of the most probable architecture."""
    for curve in panel.curves:
        if curve.setting.algorithm is not None:
            draw_band(ax, panel, curve, panel.ones_scale * curve.column("ones"))
    ax.set_ylabel(panel.ones_label)
    ax.set_ylim(0, panel.ones_scale * panel.n)
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def draw_lam_r(ax, panel):
    """Draw λ_r, which PBIL-λ spends on samples and PBIL-ε on shorter steps."""
    for curve in panel.curves[:2]:
        draw_band(ax, panel, curve, curve.column("lam_r"))
    level = 2 * panel.n**0.5
    ax.axhline(level, color=ORANGE, linewidth=1, linestyle=(0, (4, 3)))
    at = ax.get_yaxis_transform()
    ax.text(0.01, level, "above: PBIL-ε steps shorter than cGA", transform=at, va="bottom", fontsize=9, color=ORANGE)
    ax.set_ylabel("λ_r")
    ax.set_ylim(0)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def draw_theta(ax, panel):
    """Draw a heat map of the parameters over updates, with one row per parameter."""
    edges = np.concatenate([[panel.marks[0]], panel.marks])
    rows = np.arange(panel.theta.shape[1] + 1) - 0.5
    theta_history = ax.pcolormesh(edges, rows, panel.theta.T, cmap=THETA_HISTORY, vmin=0, vmax=1)
    ax.invert_yaxis()
    ax.set_ylabel(panel.theta_label)
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_title(panel.theta_title, fontsize=9, color=INK, loc="right", pad=4)
    ax.set_xlabel("updates of the weights", color=INK)
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return theta_history


def main():
    """Run both experiments and draw the figure."""
    torch.set_num_threads(1)  # a second thread does not speed up such small networks
    panels = [solve_layers(), solve_activations()]
    picture = Path("out") / "joint_training.png"
    picture.parent.mkdir(exist_ok=True)
    draw(panels, picture)
    print(f"The picture of both: {picture}")


if __name__ == "__main__":
    main()
