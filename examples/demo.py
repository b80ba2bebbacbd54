"""Three small problems, solved without setting a parameter, and a figure of the runs: out/demo.png.

1. bits: which of 22 depots to open. All 4,194,304 subsets are evaluated, to know the optimum.
2. a mixed space: the inputs, kernel and hyperparameters of a regression model.
3. noise: which of 40 switches of a process to turn on, by very noisy measurements.
"""

# ruff: noqa: E402
import os

for library in ("OMP", "OPENBLAS", "MKL"):  # before NumPy is loaded: one thread solves small matrices fastest
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

import knobless as kl

BLUE, ORANGE, GRAY, INK = "#1f5fa8", "#e07b1a", "#8a8f98", "#22262b"
THETA_HISTORY = LinearSegmentedColormap.from_list("theta_history", ["#fbfcfe", "#a9c7e8", "#1f5fa8", "#0d2a52"])


class Trace:
    """A callback that records the infos of all iterations."""

    def __init__(self):
        """Start with an empty record."""
        self.infos = []

    def __call__(self, info):
        """Add an iteration."""
        self.infos.append(info)

    def column(self, name):
        """Return one field of all iterations as an array."""
        return np.array([getattr(info, name) for info in self.infos])

    def first_hit(self, result):
        """Return the evaluations after which the best value was reached; an incomplete last iteration has no info."""
        return next((info.nfev for info in self.infos if info.best == result.fun), result.nfev)


class Panel(NamedTuple):
    """The contents of the figure for one problem."""

    title: str
    trace: Trace
    evaluations: int
    value_label: str
    value_range: tuple
    curves: list  # (label, values over iterations, color)
    levels: list  # (label, value, "top" or "bottom": the side of its label) of reference lines
    theta: np.ndarray  # one row per iteration, one column per row of the heat map
    rows: dict  # row of the heat map: its name
    rows_label: str
    shade_label: str


# 1. Bits: which depots to open


def depots(sites=22, shops=60, seed=1):
    """The cost of opening a set of depots and serving every shop from the nearest open one."""
    rng = np.random.default_rng(seed)
    where, shop = rng.random((sites, 2)), rng.random((shops, 2))
    demand = rng.uniform(1, 3, shops)
    haul = demand[:, None] * np.linalg.norm(shop[:, None] - where, axis=2)
    rent = rng.uniform(1, 3, sites)

    def cost(x):
        chosen = np.flatnonzero(x)
        return rent[chosen].sum() + haul[:, chosen].min(axis=1).sum() if len(chosen) else np.inf

    return cost, rent, haul


def cheapest_of_all(rent, haul):
    """Return the lowest cost over all subsets, by doubling: depot i is open if bit i of the subset's number is 1."""
    total = np.zeros(1)
    for r in rent:
        total = np.concatenate([total, total + r])
    for distances in haul:
        nearest = np.full(1, np.inf)
        for d in distances:
            nearest = np.concatenate([nearest, np.minimum(nearest, d)])
        total += nearest
    return total.min()


def greedy(cost, n):
    """Repeatedly open the depot that saves most."""
    x = np.zeros(n, dtype=int)
    while True:
        better = min((np.maximum(x, one) for one in np.eye(n, dtype=int)), key=cost)
        if cost(better) >= cost(x):
            return cost(x)
        x = better


def solve_depots():
    """Solve problem 1."""
    cost, rent, haul = depots()
    n = len(rent)
    print(f"1. Bits: which of {n} depots to open, so that rent and transport cost least")
    trace = Trace()
    result = kl.minimize(cost, kl.Binary(n), budget=1000, rng=1, callback=trace, progress=True)
    exact, naive = cheapest_of_all(rent, haul), greedy(cost, n)
    print(f"   found       {result.fun:.3f}, open: {', '.join(map(str, np.flatnonzero(result.x)))}")
    print(f"   effort      reached after {trace.first_hit(result)} of {result.nfev} evaluations")
    print(f"   reference   {exact:.3f} is the least of all {2**n:,} subsets; greedy opening gives {naive:.3f}\n")
    order = np.argsort(-result.x, kind="stable")  # open depots on top
    return Panel(
        title="1. Bits: which depots to open",
        trace=trace,
        evaluations=result.nfev,
        value_label="cost",
        value_range=(25, 36),
        curves=[("best found", trace.column("best"), BLUE)],
        levels=[("greedy", naive, "bottom"), ("least of all subsets", exact, "top")],
        theta=trace.column("theta")[:, order],
        rows={row: str(i) for row, i in enumerate(order)},
        rows_label="depot",
        shade_label="probability to be open",
    )


# 2. A mixed space: configuring a regression model


def friedman(rows, rng, inputs=12, noise=1.0):
    """Friedman's regression problem (1991): five inputs matter, the others do not; noise of deviation 1."""
    x = rng.random((rows, inputs))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return x, y + noise * rng.standard_normal(rows)


def kernel_matrix(model, a, b):
    """Return the kernel matrix of the rows of a and b, for the kernel of the model."""
    a, b = (2 * (data[:, model["inputs"] == 1] - 0.5) / model["width"] for data in (a, b))
    if model["kernel"] == "linear":
        return a @ b.T
    if model["kernel"] == "polynomial":
        return (1 + a @ b.T) ** model["degree"]
    squared = np.maximum((a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T, 0)
    return np.exp(-squared) if model["kernel"] == "gaussian" else np.exp(-np.sqrt(squared))


def prediction_error(model, x, y, x_new, y_new):
    """Return the root mean squared error of kernel ridge regression on new data."""
    mean = y.mean()
    k = kernel_matrix(model, x, x)
    coefficients = np.linalg.solve(k + model["ridge"] * np.eye(len(y)), y - mean)
    return np.sqrt(np.mean((kernel_matrix(model, x_new, x) @ coefficients + mean - y_new) ** 2))


def cross_validation(x, y, folds=5):
    """The objective: the cross-validated error of a model."""
    fold = np.arange(len(y)) % folds

    def error(model):
        return np.mean(
            [prediction_error(model, x[fold != k], y[fold != k], x[fold == k], y[fold == k]) for k in range(folds)]
        )

    return error


def solve_model():
    """Solve problem 2."""
    rng = np.random.default_rng(7)
    x, y = friedman(200, rng)
    error = cross_validation(x, y)
    kernels = ("linear", "polynomial", "gaussian", "laplace")
    space = kl.Space(
        inputs=kl.Binary(x.shape[1]),
        kernel=kl.Choice(*kernels),
        degree=kl.Integer(2, 6),
        width=kl.Float(0.3, 30, log=True),
        ridge=kl.Float(1e-6, 1e2, log=True),
    )
    print("2. Mixed: inputs, kernel, degree, width and ridge of a regression model (5-fold cross-validation)")
    trace = Trace()
    result = kl.minimize(error, space, budget=2000, rng=0, callback=trace, progress=True)
    plain = {"inputs": np.ones(x.shape[1], dtype=int), "kernel": "gaussian", "degree": 2, "width": 1.0, "ridge": 1.0}
    found, test = result.x, friedman(5000, rng)
    print(f"   found       error {result.fun:.3f} with inputs {', '.join(map(str, np.flatnonzero(found['inputs'])))},")
    print(f"               a {found['kernel']} kernel, degree {found['degree']}, ", end="")
    print(f"width {found['width']:.2g}, ridge {found['ridge']:.2g}")
    print(f"   effort      reached after {trace.first_hit(result)} of {result.nfev} evaluations")
    print(f"   reference   a plain Gaussian kernel on all inputs gives {error(plain):.3f}; the noise alone is 1;")
    print("               inputs 0 to 4 are those that matter")
    new, new_plain = (prediction_error(model, x, y, *test) for model in (found, plain))
    print(f"   new data    error {new:.3f}; the plain model's is {new_plain:.3f}\n")
    theta = trace.column("theta")  # 12 bits, 4 probabilities of the kernel, then the means of the numbers
    return Panel(
        title="2. Mixed: a regression model",
        trace=trace,
        evaluations=result.nfev,
        value_label="cross-validated error",
        value_range=(0.75, 4.95),
        curves=[("best found", trace.column("best"), BLUE)],
        levels=[("plain model", error(plain), "bottom"), ("noise in the data", 1.0, "top")],
        theta=theta[:, :19],
        rows=dict(enumerate([*(f"input {i}" for i in range(12)), *kernels, "degree", "log width", "log ridge"])),
        rows_label="",
        shade_label="probability, or place in the range",
    )


# 3. Noise: switches of a process


def process(switches=40, noise=6.0, seed=3):
    """The true gain of a setting of the switches, and a measurement of it."""
    rng = np.random.default_rng(seed)
    effect = rng.normal(size=switches)

    def gain(x):
        return float(x @ effect)

    def measure(x):
        return gain(x) + noise * rng.standard_normal()

    return gain, measure, effect


def solve_process():
    """Solve problem 3."""
    gain, measure, effect = process()
    n = len(effect)
    print(f"3. Noise: which of {n} switches to turn on, measured with an error of deviation 6")
    trace = Trace()
    result = kl.maximize(measure, kl.Binary(n), budget=20_000, rng=3, callback=trace, progress=True)
    possible = effect[effect > 0].sum()
    print(f"   found       estimated {result.fun:.2f} ± {result.fun_std:.2f}, its true gain is {gain(result.x):.2f}")
    print(f"   luckiest    measured {result.observed_fun:.2f}, its true gain is {gain(result.observed_x):.2f}")
    print(f"   effort      {result.nfev} evaluations")
    print(f"   reference   {possible:.2f} is possible, when every switch that helps is on and no other\n")
    order = np.argsort(-effect)
    theta = trace.column("theta")
    return Panel(
        title="3. Noise: switches of a process",
        trace=trace,
        evaluations=result.nfev,
        value_label="gain",
        value_range=(-2, 43),
        curves=[
            ("best measured (luck)", trace.column("best"), ORANGE),
            ("true gain of the mode", np.array([gain(t >= 0.5) for t in theta]), BLUE),
        ],
        levels=[("possible", possible, "bottom")],
        theta=theta[:, order],
        rows={row: f"{effect[order[row]]:+.1f}" for row in range(0, n, 3)},
        rows_label="switch, by its true effect",
        shade_label="probability to be on",
    )


# The figure


def draw(panels, path):
    """Draw the best value, λ and θ over evaluations, with one column per problem."""
    figure = Figure(figsize=(15, 9.6), dpi=100, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.14, h_pad=0.08)
    axes = figure.subplots(3, len(panels), sharex="col", height_ratios=[3, 1.4, 4.4])
    for panel, (value, lam, theta) in zip(panels, axes.T, strict=True):
        evaluations = panel.trace.column("nfev")
        draw_values(value, panel, evaluations)
        draw_lam(lam, panel, evaluations)
        theta_history = draw_theta(theta, panel, evaluations)
        bar = figure.colorbar(theta_history, ax=theta, orientation="horizontal", aspect=50, pad=0.02, ticks=[0, 0.5, 1])
        bar.set_label(panel.shade_label, color=INK)
        bar.ax.tick_params(colors=INK, labelsize=9, length=0)
        bar.outline.set_visible(False)
    for ax in axes.flat:
        ax.tick_params(colors=INK, labelsize=9)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(GRAY)
        ax.yaxis.label.set_color(INK)
    figure.savefig(path)


def draw_values(ax, panel, evaluations):
    """Draw the best value over evaluations, with reference lines."""
    for name, level, side in panel.levels:
        ax.axhline(level, color=GRAY, linewidth=1, linestyle=(0, (4, 3)))
        at = (0.99, level + (0.01 if side == "bottom" else -0.01) * np.ptp(panel.value_range))
        ax.text(*at, name, transform=ax.get_yaxis_transform(), ha="right", va=side, fontsize=9, color=GRAY)
    for name, values, color in panel.curves:
        ax.step(evaluations, values, where="post", color=color, linewidth=2, label=name)
    ax.set_title(panel.title, fontsize=13, fontweight="bold", color=INK, loc="left", pad=12)
    ax.set_ylabel(panel.value_label)
    ax.set_ylim(panel.value_range)
    ax.legend(frameon=False, fontsize=9, labelcolor=INK)


def draw_lam(ax, panel, evaluations):
    """Draw the adapted number of samples per iteration."""
    lam = panel.trace.column("lam")
    ax.fill_between(evaluations, lam, step="post", color=BLUE, alpha=0.2, linewidth=0)
    ax.step(evaluations, lam, where="post", color=BLUE, linewidth=0.8)
    ax.set_ylabel("samples per\niteration, λ")
    ax.set_ylim(0, 1.05 * lam.max())
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def draw_theta(ax, panel, evaluations):
    """Draw a heat map of the parameters over evaluations, with one row per parameter."""
    grid = np.linspace(0, panel.evaluations, 400)
    at = np.maximum(np.searchsorted(evaluations, grid, side="right") - 1, 0)
    edges = (0, panel.evaluations, panel.theta.shape[1] - 0.5, -0.5)
    theta_history = ax.imshow(
        panel.theta[at].T, extent=edges, aspect="auto", cmap=THETA_HISTORY, vmin=0, vmax=1, interpolation="nearest"
    )
    ax.set_yticks(list(panel.rows), panel.rows.values())
    ax.tick_params(axis="y", length=0)
    ax.set_ylabel(panel.rows_label)
    ax.set_xlabel("evaluations", color=INK)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return theta_history


def main():
    """Solve the three problems and draw the figure."""
    panels = [solve_depots(), solve_model(), solve_process()]
    picture = Path("out") / "demo.png"
    picture.parent.mkdir(exist_ok=True)
    draw(panels, picture)
    print(f"The picture of all three: {picture}")


if __name__ == "__main__":
    main()
