"""The overhead if nothing is declared, and which noise is detected.

    python benchmarks/detection.py cost  [--runs 200] [--data ../shared/data] [--out docs/peers/detection]
    python benchmarks/detection.py noise [--runs 200] [--out docs/peers/detection]

`cost` minimizes deterministic objectives twice, with nothing declared and with `deterministic=True`, from the same
seeds: evaluations spent on tests among the first 1,000, runs that were taken to be noisy, and the best value after so
many evaluations. `noise` adds noise to OneMax with 30 bits and counts the runs in which it is not detected.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import grids
import knobless as kl
from knobless import problems

MARKS = (50, 100, 300, 1000)
Objective = Callable[[Any], float]


# Deterministic objectives, by name: the space, and the objective of a seed.


def table(name: str, data: Path, seed: int) -> tuple[Any, Objective]:
    """A table, as its rank among 10,000 configurations."""
    made = grids.function(name, data, np.random.SeedSequence(seed))
    values = grids.read(data / grids.GRIDS[name].file, grids.GRIDS[name].measure)
    order = np.sort(grids.GRIDS[name].sense * values.ravel())

    def fun(x: Any) -> float:
        better = len(order) - np.searchsorted(order, grids.GRIDS[name].sense * made.value(tuple(x)), side="right")
        return float(10_000 * better / len(order) + 0.5)

    return [kl.Choice(*range(k)) for k in made.sizes], fun


def flipped(problem: Any, n: int, seed: int) -> tuple[Any, Objective]:
    """A problem over bits, some of which are flipped."""
    mask = np.random.default_rng(seed).integers(0, 2, n, dtype=np.int8)
    return kl.Binary(n), lambda x: float(problem(x ^ mask))


def satisfiability(data: Path, seed: int) -> tuple[Any, Objective]:
    """One of ten instances of SATLIB with 50 variables."""
    paths = sorted((data / "satlib" / "uf050").iterdir())
    problem = problems.MaxSat.read(paths[seed % len(paths)])
    return kl.Binary(50), lambda x: float(problem(x))


def mixed(seed: int) -> tuple[Any, Objective]:
    """Bits, choices and numbers, separable but for one product."""
    rng = np.random.default_rng(seed)
    bits, options, at = rng.integers(0, 2, 8), rng.integers(0, 4, 4), rng.uniform(0.1, 0.9, 4)
    space = kl.Space(
        bits=kl.Binary(8),
        **{f"c{i}": kl.Choice(0, 1, 2, 3) for i in range(4)},
        **{f"x{i}": kl.Float(0, 1) for i in range(4)},
    )

    def fun(x: Any) -> float:
        distance = np.array([x[f"x{i}"] for i in range(4)]) - at
        wrong = [x[f"c{i}"] != options[i] for i in range(4)]
        return float(
            0.25 * (x["bits"] != bits).sum() + 0.5 * sum(wrong) + 4 * (distance**2).sum() + wrong[0] * wrong[1]
        )

    return space, fun


def deterministic(data: Path | None) -> dict[str, Callable[[int], tuple[Any, Objective]]]:
    """The objectives; those of real data where it is at hand."""
    found: dict[str, Callable[[int], tuple[Any, Objective]]] = {
        "OneMax 100": partial(flipped, problems.OneMax(100), 100),
        "LeadingOnes 100": partial(flipped, problems.LeadingOnes(100), 100),
        "trap-5, 50 bits": partial(flipped, problems.Traps(50), 50),
        "mixed": mixed,
    }
    if data is not None:
        found["uf050"] = partial(satisfiability, data)
        found |= {name: partial(table, name, data) for name in grids.GRIDS}
    return found


class Counted:
    """An objective that records its values and how often a point was evaluated again."""

    def __init__(self, fun: Objective, space: Any) -> None:
        self.fun, self.space = fun, kl.Space.of(space)
        self.values: list[float] = []
        self.seen: set[bytes] = set()
        self.again: list[int] = []

    def __call__(self, x: Any) -> float:
        key = self.space.visible(self.space.encode(x)[None]).tobytes()
        if key in self.seen:
            self.again.append(len(self.values))
        self.seen.add(key)
        self.values.append(self.fun(x))
        return self.values[-1]


def cost(name: str, data: Path | None, seed: int) -> dict[str, Any]:
    """One run with nothing declared, and one with the fact stated."""
    space, fun = deterministic(data)[name](seed)
    row: dict[str, Any] = {"problem": name, "seed": seed}
    for title, stated in (("", None), ("stated ", True)):
        counted = Counted(fun, space)
        result = kl.minimize(counted, space, budget=MARKS[-1], rng=seed, deterministic=stated)
        lowest = np.minimum.accumulate(counted.values)
        row |= {f"{title}best {mark}": float(lowest[min(mark, len(lowest)) - 1]) for mark in MARKS}
        if stated is None:
            row |= {f"tests {mark}": sum(i < mark for i in counted.again) for mark in MARKS}
            row["noisy"] = result.deterministic is False
    return row


# Noise.


def one_max(n: int, seed: int) -> Callable[[Any], int]:
    mask = np.random.default_rng(seed).integers(0, 2, n, dtype=np.int8)
    return lambda x: int((x ^ mask).sum())


def off_by_one(share: float, rng: np.random.Generator) -> float:
    """A change by one step of 1/50, up or down, in this share of the evaluations."""
    return float(rng.choice((-1, 1)) / 50 * (rng.random() < share))


NOISE: dict[str, Callable[[int, int, np.random.Generator, Any], float]] = {
    # mistakes, bits, generator, point
    "win or lose, p(lose) = .2 + .6 q": lambda m, n, rng, x: float(rng.random() < 0.2 + 0.6 * m / n),
    "win or lose, wins rare (.7 + .3 q)": lambda m, n, rng, x: float(rng.random() < 0.7 + 0.3 * m / n),
    "win or lose, wins frequent (.05 + .3 q)": lambda m, n, rng, x: float(rng.random() < 0.05 + 0.3 * m / n),
    "Gauss, σ = .3 of the spread": lambda m, n, rng, x: m + rng.normal() * 0.3 * n**0.5 / 2,
    "Gauss, σ = 1e-3 of the spread": lambda m, n, rng, x: m + rng.normal() * 1e-3 * n**0.5 / 2,
    "binomial, 50 items": lambda m, n, rng, x: rng.binomial(50, m / n) / 50,
    "steps of 1/50, 10 % of values off by one": lambda m, n, rng, x: round(50 * m / n) / 50 + off_by_one(0.1, rng),
    "steps of 1/50, 2 % of values off by one": lambda m, n, rng, x: round(50 * m / n) / 50 + off_by_one(0.02, rng),
    "Gauss, σ = 5.5, where two bits are one": lambda m, n, rng, x: m + rng.normal() * 5.5 * (x[0] & x[1]),
    "Gauss, σ = 5.5, where five bits are one": lambda m, n, rng, x: m + rng.normal() * 5.5 * x[:5].all(),
}


def noise(name: str, seed: int) -> dict[str, Any]:
    """After how many evaluations the noise was detected."""
    space, rng, mistakes = kl.Binary(30), np.random.default_rng([seed, 1]), one_max(30, seed)
    opt = kl.Optimizer(space, rng=seed)
    while opt.nfev < MARKS[-1] and opt.deterministic is not False and len(batch := opt.ask()):
        opt.tell(batch, [NOISE[name](mistakes(each.x), 30, rng, each.x) for each in batch])
    return {"noise": name, "seed": seed, "detected": opt.nfev if opt.deterministic is False else None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cost", "noise"])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    data = options.data if options.data.is_dir() else None
    start = time.time()
    with ProcessPoolExecutor(options.jobs) as pool:
        if options.what == "cost":
            names = list(deterministic(data))
            jobs = [pool.submit(cost, name, data, seed) for name in names for seed in range(options.runs)]
        else:
            names = list(NOISE)
            jobs = [pool.submit(noise, name, seed) for name in names for seed in range(options.runs)]
        rows = [job.result() for job in jobs]
    table = summary_of_cost(names, rows) if options.what == "cost" else summary_of_noise(names, rows)
    print(table)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        with open(options.out / f"{options.what}.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        facts = {
            "command": f"python benchmarks/detection.py {options.what} --runs {options.runs}",
            "commit": commit,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "processor": platform.machine(),
            "seconds": round(time.time() - start),
        }
        (options.out / f"{options.what}.json").write_text(json.dumps(facts, indent=1) + "\n")


def summary_of_cost(names: list[str], rows: list[dict[str, Any]]) -> str:
    """A table in Markdown."""
    lines = ["| problem | tests by 50 / 100 / 300 / 1,000 | taken for noisy | best value | with `deterministic=True` |"]
    lines.append("|---|---|---|---|---|")
    for name in names:
        own = [row for row in rows if row["problem"] == name]
        tests = " / ".join(f"{statistics.mean(row[f'tests {mark}'] for row in own):.1f}" for mark in MARKS)
        best, stated = (
            " / ".join(f"{statistics.mean(row[f'{title}best {mark}'] for row in own):.4g}" for mark in MARKS)
            for title in ("", "stated ")
        )
        lines.append(f"| {name} | {tests} | {sum(row['noisy'] for row in own)} of {len(own)} | {best} | {stated} |")
    return "\n".join(lines)


def summary_of_noise(names: list[str], rows: list[dict[str, Any]]) -> str:
    """A table in Markdown."""
    lines = ["| noise | not detected after 50 / 100 / 300 / 1,000 evaluations |", "|---|---|"]
    for name in names:
        own = [row["detected"] for row in rows if row["noise"] == name]
        shares = (sum(at is None or at > mark for at in own) / len(own) for mark in MARKS)
        lines.append(f"| {name} | {' / '.join(f'{100 * share:.3g} %' for share in shares)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
