"""Objectives of conditional variables whose optimum is known, for conditional.py: random trees and two tables.

A tree has one or two choices at the top, its nodes; each option of a node has a cost and up to three variables that
are active with it, some of them nodes again. The costs of all active variables are added. The kinds:

honest
    The costs of the options are uniform, so that the best option of a node usually has a low mean as well.
deceptive
    At every node, the option with the lowest attainable value has the highest mean over uniform draws.

The trees of the numbers in `REPORTED` are for results, and nothing may be tuned on them; `TUNING` is for that.

The tables have cross-validated errors of models on the data sets of scikit-learn: `svr` of a support vector regression
with its kernels, `pipeline` of four classifiers with their own parameters. conditional_tables.py computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from harness import read_csv, seed

REPORTED = range(30)
TUNING = range(1000, 1030)
KINDS = ("honest", "deceptive")
DATA = Path(__file__).parent / "data"

Domain = kl.Choice | kl.Integer | kl.Float
Values = dict[str, Any]


class Variable(NamedTuple):
    """A variable, and the options of its parent with which it is active; without a parent, it is always active."""

    name: str
    domain: Domain
    parent: str = ""
    options: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Problem:
    """An objective of conditional variables, to be minimized.

    Attributes
    ----------
    variables : tuple of Variable
        The variables, parents first.
    cost : callable
        The values of the active variables by name to the objective value.
    optimum : float
        The least objective value.
    """

    variables: tuple[Variable, ...]
    cost: Callable[[Values], float]
    optimum: float

    def __call__(self, point: Mapping[str, Any]) -> float:
        """Return the objective value of a point; its inactive keys are ignored."""
        return self.cost(self._active(lambda each: point[each.name]))

    def space(self) -> kl.Space:
        """Return the conditional space."""
        named = {
            each.name: each.domain.when(**{each.parent: each.options}) if each.parent else each.domain
            for each in self.variables
        }
        return kl.Space(**named)

    def flat_space(self) -> kl.Space:
        """Return the space of all variables without conditions."""
        return kl.Space(**{each.name: each.domain for each in self.variables})

    def suggest(self, trial: Any) -> Values:
        """Return the point that an Optuna trial suggests."""
        return self._active(lambda each: suggested(trial, each.name, each.domain))

    def draw(self, rng: np.random.Generator) -> Values:
        """Return a point with uniform values."""
        return self._active(lambda each: drawn(rng, each.domain))

    def _active(self, value: Callable[[Variable], Any]) -> Values:
        """Return the values of the active variables, each found when its condition is known to hold."""
        values: Values = {}
        for each in self.variables:
            if not each.parent or values.get(each.parent) in each.options:
                values[each.name] = value(each)
        return values


def suggested(trial: Any, name: str, domain: Domain) -> Any:
    if isinstance(domain, kl.Choice):
        return trial.suggest_categorical(name, domain.options)
    suggest = trial.suggest_int if isinstance(domain, kl.Integer) else trial.suggest_float
    return suggest(name, domain.low, domain.high)


def drawn(rng: np.random.Generator, domain: Domain) -> Any:
    if isinstance(domain, kl.Choice):
        return domain.options[rng.integers(len(domain.options))]
    if isinstance(domain, kl.Integer):
        return int(rng.integers(domain.low, domain.high, endpoint=True))
    return rng.uniform(domain.low, domain.high)


# Trees.


class Valley(NamedTuple):
    """The cost of a number in [0, 1]: 0 at its center, half of the weight at the distance of the width."""

    center: float
    width: float
    weight: float

    def __call__(self, x: float) -> float:
        ratio = ((x - self.center) / self.width) ** 2
        return self.weight * ratio / (1.0 + ratio)

    @property
    def mean(self) -> float:
        angles = math.atan((1.0 - self.center) / self.width) + math.atan(self.center / self.width)
        return self.weight * (1.0 - self.width * angles)


Cost = Valley | dict[Any, float]  # of each value if these are finitely many


@dataclass(frozen=True)
class Sum:
    """The sum of the costs of all active variables."""

    costs: dict[str, Cost]

    def __call__(self, values: Values) -> float:
        return sum(price(self.costs[name], value) for name, value in values.items())


def price(cost: Cost, value: Any) -> float:
    return cost(value) if isinstance(cost, Valley) else cost[value]


class Range(NamedTuple):
    """The lowest and the mean cost of a part of a tree."""

    lowest: float
    mean: float

    @property
    def excess(self) -> float:
        return self.mean - self.lowest


Part = dict[Variable, Cost]


def total(part: Part, parent: str = "", option: Any = None) -> Range:
    """Return the range of the variables that are active with an option, and of all that depend on them."""
    each = [
        range_of(part, variable, cost)
        for variable, cost in part.items()
        if variable.parent == parent and (not parent or option in variable.options)
    ]
    return Range(sum(one.lowest for one in each), sum(one.mean for one in each))


def range_of(part: Part, variable: Variable, cost: Cost) -> Range:
    """Return the range of a variable and of all that depend on it."""
    if isinstance(cost, Valley):
        return Range(0.0, cost.mean)
    options = [option_range(part, variable, cost, option) for option in cost]
    return Range(min(each.lowest for each in options), float(np.mean([each.mean for each in options])))


def option_range(part: Part, node: Variable, cost: dict[Any, float], option: Any) -> Range:
    below = total(part, node.name, option)
    return Range(cost[option] + below.lowest, cost[option] + below.mean)


def optimal(part: Part, parent: str = "", option: Any = None) -> Iterable[Variable]:
    """Return the variables that are active at the optimum."""
    for variable, cost in part.items():
        if variable.parent == parent and (not parent or option in variable.options):
            yield variable
            if not isinstance(cost, Valley):
                best = min(cost, key=lambda each: option_range(part, variable, cost, each).lowest)
                yield from optimal(part, variable.name, best)


def leaf(rng: np.random.Generator, name: str, parent: str = "", options: Sequence[Any] = ()) -> Part:
    """Return a number, an integer or a choice with a cost that is 0 at a random value."""
    weight = rng.uniform(0.2, 0.8)
    domain: Domain
    cost: Cost
    match rng.choice(("float", "integer", "choice"), p=(0.5, 0.25, 0.25)):
        case "float":
            domain = kl.Float(0.0, 1.0)
            cost = Valley(rng.random(), rng.uniform(0.1, 0.5), weight)
        case "integer":
            n = int(rng.integers(4, 21))
            domain = kl.Integer(1, n)
            valley = Valley(rng.integers(n) / (n - 1), rng.uniform(0.1, 0.5), weight)
            cost = {i + 1: valley(i / (n - 1)) for i in range(n)}
        case _:
            labels = "uvwxy"[: rng.integers(2, 6)]
            domain = kl.Choice(*labels)
            best = rng.choice([*labels])
            cost = {label: 0.0 if label == best else weight * rng.random() for label in labels}
    return {Variable(name, domain, parent, tuple(options)): cost}


def node(rng: np.random.Generator, kind: str, name: str, parent: str = "", options: Sequence[Any] = ()) -> Part:
    """Return a choice with costs of its options and the variables that depend on it."""
    while True:
        labels = "pqrst"[: rng.integers(2, 4 if parent else 6)]
        part: Part = {}
        for label in labels:
            for i in range(rng.integers(4)):
                part |= leaf(rng, f"{name}_{label}{i}", name, label)
            if not parent and rng.random() < 0.2:
                part |= node(rng, kind, f"{name}_{label}", name, label)
        if len(labels) > 2 and rng.random() < 0.3:  # a variable of several options
            several = sorted(rng.choice([*labels], rng.integers(2, len(labels)), replace=False).tolist())
            part |= leaf(rng, f"{name}_{''.join(several)}", name, several)
        costs = offsets(rng, kind, [total(part, name, label).excess for label in labels])
        if costs:
            variable = Variable(name, kl.Choice(*labels), parent, tuple(options))
            return {variable: dict(zip(labels, costs, strict=True)), **part}


def offsets(rng: np.random.Generator, kind: str, excess: Sequence[float]) -> list[float]:
    """Return the costs of options by the excess of the mean over the lowest cost below each; none if it cannot be."""
    if kind == "honest":
        return rng.random(len(excess)).tolist()
    lead = max(excess) - np.array(excess)  # an option that costs less than that keeps a lower mean
    if np.sort(lead)[1] < 0.2:
        return []
    return (lead * rng.uniform(0.3, 0.7, len(excess))).tolist()


@cache
def tree(kind: str, number: int) -> Problem:
    """Return the tree of a kind with a number."""
    rng = np.random.default_rng(seed("conditional", kind, number))
    while True:
        part = leaf(rng, "shared") if rng.random() < 0.5 else {}
        for name in "ab"[: rng.integers(1, 3)]:
            part |= node(rng, kind, name)
        if any(isinstance(each.domain, kl.Float) for each in optimal(part)):  # random draws do not meet the optimum
            return Problem(tuple(part), Sum({each.name: cost for each, cost in part.items()}), total(part).lowest)


# Tables.


@dataclass(frozen=True)
class Lookup:
    """The cost of a configuration by the values of its active variables, in the order of the table."""

    costs: dict[tuple[Any, ...], float]

    def __call__(self, values: Values) -> float:
        return self.costs[tuple(values.values())]


GRIDS = {
    "svr": (
        Variable("kernel", kl.Choice("linear", "rbf", "poly", "sigmoid")),
        Variable("C", kl.Integer(0, 7)),
        Variable("gamma", kl.Integer(0, 6), "kernel", ("rbf", "poly", "sigmoid")),
        Variable("coef0", kl.Integer(0, 3), "kernel", ("poly", "sigmoid")),
        Variable("degree", kl.Integer(2, 4), "kernel", ("poly",)),
    ),
    "pipeline": (
        Variable("model", kl.Choice("svc", "forest", "neighbors", "logistic")),
        Variable("scale", kl.Choice("none", "standard", "minmax"), "model", ("svc", "neighbors", "logistic")),
        Variable("kernel", kl.Choice("linear", "rbf"), "model", ("svc",)),
        Variable("C", kl.Integer(0, 6), "model", ("svc",)),
        Variable("gamma", kl.Integer(0, 6), "kernel", ("rbf",)),
        Variable("n_estimators", kl.Integer(0, 2), "model", ("forest",)),
        Variable("max_depth", kl.Integer(0, 3), "model", ("forest",)),
        Variable("max_features", kl.Integer(0, 2), "model", ("forest",)),
        Variable("min_samples_leaf", kl.Integer(1, 3), "model", ("forest",)),
        Variable("n_neighbors", kl.Integer(1, 8), "model", ("neighbors",)),
        Variable("weights", kl.Choice("uniform", "distance"), "model", ("neighbors",)),
        Variable("p", kl.Integer(1, 2), "model", ("neighbors",)),
        Variable("inverse_penalty", kl.Integer(0, 7), "model", ("logistic",)),
    ),
}


def configurations(variables: Sequence[Variable], chosen: Values | None = None) -> Iterable[Values]:
    """Return all configurations of discrete variables, parents first."""
    chosen = chosen or {}
    if not variables:
        yield chosen
        return
    first, *rest = variables
    if first.parent and chosen.get(first.parent) not in first.options:
        yield from configurations(rest, chosen)
        return
    domain = first.domain
    for value in domain.options if isinstance(domain, kl.Choice) else range(domain.low, domain.high + 1):
        yield from configurations(rest, {**chosen, first.name: value})


@cache
def table(name: str) -> Problem:
    """Return the problem of a table."""
    costs = [float(row["cost"]) for row in read_csv(DATA / f"conditional_{name}.csv")]
    keys = [tuple(each.values()) for each in configurations(GRIDS[name])]
    return Problem(GRIDS[name], Lookup(dict(zip(keys, costs, strict=True))), min(costs))


def kernel_grid() -> Problem:
    """Return a part of `svr` with 618 configurations."""
    high = {"C": 5, "gamma": 5}
    whole = table("svr")
    part = [
        each._replace(domain=replace(each.domain, high=high[each.name])) if each.name in high else each
        for each in whole.variables
    ]
    costs = {tuple(each.values()): whole(each) for each in configurations(part)}
    return Problem(tuple(part), Lookup(costs), min(costs.values()))


def problem(kind: str, name: str) -> Problem:
    """Return a tree by its kind and number, or a table."""
    return table(name) if kind == "table" else tree(kind, int(name))
