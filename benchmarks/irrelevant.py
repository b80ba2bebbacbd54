"""What a variable without influence costs: runs with and without one, of each kind.

    python benchmarks/irrelevant.py run [--tune] [--seeds 11] [--jobs 2]
    python benchmarks/irrelevant.py table [--tune]

Three spaces, with four random instances each: 30 bits with a quadratic function (QUBO, weights from
−10 to 10), 20 choices of three options with a random cost for each option and each pair of
neighbors, and 6 floats with the ellipsoid that is rotated and moved. To each of them is added a
bit, a choice of five options, an integer, a float, a float on a log scale, or a choice with a
conditional float, which the function ignores. `--tune` takes other instances, on which rules are
chosen.

A run has 60 evaluations and nothing is declared. The loss is 1 − g′/g, where g is the mean
improvement on the median of random points without the variable, and g′ the one with it.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from contest import complete_runs, grid, run_command
from harness import commit, machine, read_csv

BUDGET, INSTANCES = 60, 4
SPACES: dict[str, dict[str, Any]] = {
    "30 bits": {"x": kl.Binary(30)},
    "20 choices": {"x": kl.Choice("a", "b", "c", n=20)},
    "6 floats": {"x": kl.Float(-5.0, 5.0, n=6)},
}
EXTRAS: dict[str, dict[str, Any]] = {
    "none": {},
    "bit": {"extra": kl.Choice(False, True)},
    "choice": {"extra": kl.Choice(*"abcde")},
    "integer": {"extra": kl.Integer(1, 100)},
    "float": {"extra": kl.Float(0.0, 1.0)},
    "log float": {"extra": kl.Float(1e-5, 1e-1, log=True)},
    "conditional": {"extra": kl.Choice("a", "b"), "more": kl.Float(0.0, 1.0).when(extra="b")},
}


class Task(NamedTuple):
    """A run."""

    space: str
    extra: str
    instance: int
    seed: int


@cache
def instance_of(space: str, instance: int) -> Any:
    """Return a function of the values of x, and the median of random points."""
    rng = np.random.default_rng([instance, *space.encode()])
    if space == "30 bits":
        weights = np.triu(rng.integers(-10, 11, (30, 30)))

        def fun(x: Any) -> float:
            return float(x @ weights @ x)

        points = rng.integers(0, 2, (2001, 30))
    elif space == "20 choices":
        single, pairs = rng.normal(size=(20, 3)), rng.normal(size=(19, 3, 3))

        def fun(x: Any) -> float:
            i = np.array(["abc".index(option) for option in x])
            return float(single[np.arange(20), i].sum() + pairs[np.arange(19), i[:-1], i[1:]].sum())

        points = np.array(list("abc"))[rng.integers(0, 3, (2001, 20))]
    else:
        axes, center = np.linalg.qr(rng.normal(size=(6, 6)))[0], rng.uniform(-3.0, 3.0, 6)

        def fun(x: Any) -> float:
            return float((10.0 ** np.linspace(0, 2, 6) * ((np.asarray(x) - center) @ axes) ** 2).sum())

        points = rng.uniform(-5.0, 5.0, (2001, 6))
    return fun, float(np.median([fun(point) for point in points]))


def run_task(task: Task) -> dict[str, Any]:
    fun, _ = instance_of(task.space, task.instance)
    space = kl.Space(**SPACES[task.space], **EXTRAS[task.extra])
    result = kl.minimize(lambda values: fun(values["x"]), space, budget=BUDGET, rng=task.seed)
    return {**task._asdict(), "value": f"{result.fun:.10g}"}


def run(options: argparse.Namespace) -> None:
    first = 1000 if options.tune else 0
    tasks = [
        Task(space, extra, instance, seed)
        for seed in range(options.seeds)
        for space in options.spaces
        for extra in EXTRAS
        for instance in range(first, first + INSTANCES)
    ]
    complete_runs(options.out / "runs.csv", tasks, ["value"], run_task, options.jobs, options.anew)
    (options.out / "meta.json").write_text(json.dumps({"commit": commit(), **machine()}, indent=1) + "\n")


def table(options: argparse.Namespace) -> None:
    rows = read_csv(options.out / "runs.csv")
    lines = [("loss in percent", *EXTRAS)]
    for space in SPACES:
        gains: dict[str, list[float]] = {}
        for row in rows:
            if row["space"] == space:
                median = instance_of(space, int(row["instance"]))[1]
                gains.setdefault(row["extra"], []).append(median - float(row["value"]))
        if gains:
            means = {extra: float(np.mean(each)) for extra, each in gains.items()}
            losses = {extra: 100.0 * (1.0 - mean / means["none"]) for extra, mean in means.items()}
            cells = [f"{losses[extra]:.1f}" if extra in losses else "" for extra in EXTRAS]
            lines.append((f"{space}, {len(gains['none'])} runs", *cells))
    text = grid(lines) + "\n"
    (options.out / "table.md").write_text(text, encoding="utf-8")
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=11)
    parser.add_argument("--spaces", nargs="+", choices=SPACES, default=[*SPACES])
    run_command(parser, "irrelevant", {"run": run, "table": table})


if __name__ == "__main__":
    main()
