"""Three small problems, solved without setting a parameter, beside random search: out/demo.png.

1. Bits: which of 22 depots to open. All 4,194,304 subsets are evaluated, to know the optimum.
2. A mixed space: the inputs, kernel and hyperparameters of a regression model.
3. Noise: which of 40 switches of a process to turn on, by very noisy measurements.

Every problem is solved with several seeds, and the figure shows the mean of these runs.
"""

# ruff: noqa: E402
import os

for library in ("OMP", "OPENBLAS", "MKL"):  # before NumPy is loaded: one thread solves small matrices fastest
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

import knobless as kl

BLUE, ORANGE, GRAY, INK = "#1f5fa8", "#e07b1a", "#8a8f98", "#22262b"
SEEDS = 5


class Curve(NamedTuple):
    """A line of the figure: one row of values per seed, over evaluations."""

    label: str
    color: str
    evaluations: np.ndarray
    values: np.ndarray


class Panel(NamedTuple):
    """What the figure shows of one problem."""

    title: str
    value_label: str
    value_range: tuple
    curves: list
    levels: list  # (label, value, "top" or "bottom": the side of its label) of reference lines
    log: bool = False


def best_so_far(values):
    """Return the lowest value after each evaluation."""
    return np.minimum.accumulate(values)


def curves_of(runs, random):
    """Return the best values of runs and of random search, one row per seed."""
    at = np.arange(1, runs.shape[1] + 1)
    return [Curve("random search", GRAY, at, random), Curve("knobless", BLUE, at, runs)]


def values_of(fun, space, budget, seed):
    """Return the best value after each evaluation of a run, and its result."""
    values = []

    def recorded(x):
        values.append(fun(x))
        return values[-1]

    result = kl.minimize(recorded, space, budget=budget, rng=seed)
    values += [values[-1]] * (budget - len(values))  # a small space may be exhausted before
    return best_so_far(values), result


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
        return rent[chosen].sum() + haul[:, chosen].min(axis=1).sum() if len(chosen) else 2 * haul.sum()

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


def solve_depots(budget=500):
    """Solve problem 1."""
    cost, rent, haul = depots()
    n = len(rent)
    print(f"1. Bits: which of {n} depots to open, so that rent and transport cost least")
    runs = [values_of(cost, kl.Binary(n), budget, seed) for seed in range(SEEDS)]
    random = [
        best_so_far([cost(x) for x in np.random.default_rng(seed).integers(0, 2, (budget, n))]) for seed in range(SEEDS)
    ]
    curves = curves_of(np.array([values for values, _ in runs]), np.array(random))
    exact = cheapest_of_all(rent, haul)
    costs = np.array([result.fun for _, result in runs])
    after = [1 + int(np.argmin(values)) for values, _ in runs]
    optimal = np.count_nonzero(np.isclose(costs, exact))
    print(f"   optimum     {exact:.3f}, the least of all {2**n:,} subsets")
    print(f"   found by    {optimal} of {SEEDS} runs, after {min(after)} to {max(after)} of {budget} evaluations")
    print(f"   random      {curves[0].values[:, -1].mean():.3f} on average with as many evaluations\n")
    return Panel("1. Bits: which depots to open", "cost", (25.5, 36), curves, [("optimum", exact, "top")])


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


def random_model(rng, inputs):
    """Return a random point of the space of problem 2."""
    return {
        "inputs": rng.integers(0, 2, inputs),
        "kernel": rng.choice(["linear", "polynomial", "gaussian", "laplace"]),
        "degree": rng.integers(2, 7),
        "width": 0.3 * 100 ** rng.random(),
        "ridge": 1e-6 * 1e8 ** rng.random(),
    }


def solve_model(budget=200):
    """Solve problem 2."""
    rng = np.random.default_rng(7)
    x, y = friedman(200, rng)
    n = x.shape[1]
    error = cross_validation(x, y)
    space = kl.Space(
        inputs=kl.Binary(n),
        kernel=kl.Choice("linear", "polynomial", "gaussian", "laplace"),
        degree=kl.Integer(2, 6),
        width=kl.Float(0.3, 30, log=True),
        ridge=kl.Float(1e-6, 1e2, log=True),
    )
    print("2. Mixed: inputs, kernel, degree, width and ridge of a regression model (5-fold cross-validation)")
    runs = [values_of(error, space, budget, seed) for seed in range(SEEDS)]
    random = []
    for seed in range(SEEDS):
        rng_of_seed = np.random.default_rng(seed)
        random.append(best_so_far([error(random_model(rng_of_seed, n)) for _ in range(budget)]))
    curves = curves_of(np.array([values for values, _ in runs]), np.array(random))
    plain = {"inputs": np.ones(n, dtype=int), "kernel": "gaussian", "degree": 2, "width": 1.0, "ridge": 1.0}
    model, test = runs[0][1].x, friedman(5000, rng)
    exact = np.count_nonzero([np.array_equal(result.x["inputs"], np.arange(n) < 5) for _, result in runs])
    print(f"   found       error {curves[1].values[:, -1].mean():.3f} on average after {budget} evaluations;")
    print(f"               {exact} of {SEEDS} runs select the five inputs that matter and no other")
    print(f"   random      {curves[0].values[:, -1].mean():.3f} on average with as many evaluations")
    print(f"   reference   a plain Gaussian kernel on all inputs gives {error(plain):.3f}; the noise alone is 1")
    new, new_plain = (prediction_error(each, x, y, *test) for each in (model, plain))
    print(f"   new data    error {new:.3f} with the first run's model; the plain model's is {new_plain:.3f}\n")
    levels = [("plain model", error(plain), "bottom"), ("noise in the data", 1.0, "top")]
    return Panel("2. Mixed: a regression model", "cross-validated error", (0.75, 4.95), curves, levels)


# 3. Noise: switches of a process


def process(switches=40, noise=6.0, seed=3):
    """The true gain of a setting of the switches, and a measurement of it."""
    effect = np.random.default_rng(seed).normal(size=switches)
    errors = np.random.default_rng(seed + 1)

    def gain(x):
        return float(x @ effect)

    def measure(x):
        return gain(x) + noise * errors.standard_normal()

    return gain, measure, effect


def solve_process(budgets=(100, 200, 400, 800, 1600, 3200)):
    """Solve problem 3, with one run per seed and budget."""
    gain, measure, effect = process()
    n = len(effect)
    print(f"3. Noise: which of {n} switches to turn on, measured with an error of deviation 6")
    runs = [
        [kl.maximize(measure, kl.Binary(n), budget=budget, rng=seed) for budget in budgets] for seed in range(SEEDS)
    ]
    lucky = np.array([[gain(result.observed_x) for result in of_seed] for of_seed in runs])
    recommended = np.array([[gain(result.x) for result in of_seed] for of_seed in runs])
    estimates = np.array([of_seed[-1].fun for of_seed in runs])
    measured = np.array([of_seed[-1].observed_fun for of_seed in runs])
    possible = effect[effect > 0].sum()
    print(f"   found       true gain {recommended[:, -1].mean():.2f} on average after {budgets[-1]:,} measurements;")
    print(f"               its estimate is {estimates.mean():.2f}")
    print(f"   luckiest    true gain {lucky[:, -1].mean():.2f} on average; it was measured as {measured.mean():.2f}")
    print(f"   reference   {possible:.2f} is possible, when every switch that helps is on and no other\n")
    at = np.array(budgets)
    curves = [Curve("best measurement", ORANGE, at, lucky), Curve("recommended by knobless", BLUE, at, recommended)]
    levels = [("possible", possible, "bottom")]
    return Panel("3. Noise: switches of a process", "true gain of the point", (0, 18), curves, levels, log=True)


# The figure


def draw(panels, path):
    """Draw the mean over seeds, and the range of all seeds, with one column per problem."""
    figure = Figure(figsize=(15, 4.6), dpi=100, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.14, h_pad=0.08)
    for panel, ax in zip(panels, figure.subplots(1, len(panels)), strict=True):
        for label, level, side in panel.levels:
            ax.axhline(level, color=GRAY, linewidth=1, linestyle=(0, (4, 3)))
            at = (0.99, level + (0.01 if side == "bottom" else -0.01) * np.ptp(panel.value_range))
            ax.text(*at, label, transform=ax.get_yaxis_transform(), ha="right", va=side, fontsize=10, color=GRAY)
        for curve in panel.curves:
            x, values = curve.evaluations, curve.values
            ax.fill_between(x, values.min(axis=0), values.max(axis=0), color=curve.color, alpha=0.15, linewidth=0)
            ax.plot(x, values.mean(axis=0), color=curve.color, linewidth=2.2, label=curve.label)
        ax.set_title(panel.title, fontsize=14, fontweight="bold", color=INK, loc="left", pad=12)
        ax.set_ylabel(panel.value_label, color=INK, fontsize=11)
        ax.set_ylim(panel.value_range)
        ax.set_xlabel("evaluations", color=INK, fontsize=11)
        if panel.log:
            ax.set_xscale("log")
            ax.set_xticks(panel.curves[0].evaluations, minor=False)
            ax.set_xticks([], minor=True)
        else:
            ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        ax.tick_params(colors=INK, labelsize=10)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(GRAY)
        corner = ("lower right", (1, 0)) if panel.log else ("upper right", (1, 0.89))
        ax.legend(frameon=False, fontsize=11, labelcolor=INK, loc=corner[0], bbox_to_anchor=corner[1])
    figure.savefig(path)


def main():
    """Solve the three problems and draw the figure."""
    panels = [solve_depots(), solve_model(), solve_process()]
    picture = Path("out") / "demo.png"
    picture.parent.mkdir(exist_ok=True)
    draw(panels, picture)
    print(f"The picture of all three, means over {SEEDS} seeds: {picture}")


if __name__ == "__main__":
    main()
