"""Compare knobless with values that the authors of other methods have published, at the same number of evaluations.

    python benchmarks/published.py [--problems contamination …] [--searches default …] [--anew] [--jobs 2] [--data data]

`published_problems.py` has the problems and the published values. Each run is one row of `runs.csv`; rows that exist
are not run again, except with `--anew`. At the end the tables of `docs/peers/published/table.md` are made from all
rows. `--data` is the folder with `maxsat_combo`; all runs take some minutes.

`default` is `kl.minimize(fun, space, budget=…, rng=seed)`; `deterministic` also has `deterministic=True`. A run ends
early where the maximum is known and met. `value` is the best value seen; for a noisy objective, `true` is the noiseless
value of the point returned. Seconds are processor time and include the objective; runs are made in the order of the
seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import knobless as kl
from contest import STOPPED, complete_runs, grid
from harness import commit, machine, seed
from power import fill
from published_problems import GROUPS, HNCO, PROBLEMS, Problem

ROOT = Path(__file__).parents[1]
SEARCHES: dict[str, dict[str, Any]] = {"default": {}, "deterministic": {"deterministic": True}}
TITLES = {"default": "knobless", "deterministic": "`deterministic=True`"}
RESULTS = ("nfev", "value", "true", "seconds")
RUNS, CLOSE = 25, 1e-9


class Task(NamedTuple):
    """What identifies a run."""

    problem: str
    evaluations: int
    search: str
    seed: int


def runs_of(problem: str) -> int:
    """Return the number of runs, that of the publication."""
    return 20 if problem in HNCO else RUNS


def run(data: Path, task: Task) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    problem, source = PROBLEMS[task.problem], seed("published", task.problem, task.seed)
    instance = problem.make(task.seed, np.random.default_rng(source), data)
    number = int(source.generate_state(1)[0])
    facts = SEARCHES[task.search] | ({} if problem.optimum is None else {"target": problem.optimum + CLOSE})
    began = time.process_time()
    result = kl.minimize(instance.fun, instance.space, budget=task.evaluations, rng=number, **facts)
    seconds = time.process_time() - began
    return {
        **task._asdict(),
        "nfev": result.nfev,
        "value": repr(problem.value(result.observed_fun)),
        "true": "" if instance.true is None else repr(instance.true(result.x)),
        "seconds": f"{seconds:.4f}",
    }


def complete(options: argparse.Namespace) -> list[dict[str, str]]:
    """Make the runs that are not recorded yet; return all rows."""
    tasks = [
        Task(name, evaluations, search, number)
        for number in range(options.seeds or RUNS)
        for name in options.problems
        if number < runs_of(name)
        for evaluations in PROBLEMS[name].evaluations
        for search in options.searches
    ]
    return complete_runs(
        options.out / "runs.csv", tasks, RESULTS, partial(run, options.data.resolve()), options.jobs, options.anew
    )


# Tables.


class Cell(NamedTuple):
    """The runs of a search on a problem with a number of evaluations."""

    problem: Problem
    rows: Sequence[Mapping[str, str]]

    def values(self, column: str = "value") -> Any:
        return np.array([float(row[column]) for row in self.rows])

    @property
    def score(self) -> float:
        """Return what is compared: the mean or, for HNCO, the median."""
        return float(np.median(self.values()) if self.problem.maximized else self.values().mean())

    def text(self, column: str = "value") -> str:
        values = self.values(column)
        if not self.problem.maximized:
            return f"{values.mean():.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"
        if self.problem.optimum is None:
            return f"{np.median(values):.3f}"
        met = values >= self.problem.value(self.problem.optimum) - CLOSE
        evaluations = self.values("nfev")[met]
        after = f", median {np.median(evaluations):,.0f} evaluations" if met.any() else ""
        return f"{np.median(values):g} ({met.sum()}/{len(met)}{after})"

    @property
    def seconds(self) -> str:
        """Return the median, of the runs for which it was measured."""
        measured = [float(row["seconds"]) for row in self.rows if row["seconds"]]
        return f"{np.median(measured):.2g}" if measured else "–"


def cells_of(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, int], dict[str, Cell]]:
    found: dict[tuple[str, int], dict[str, list[Mapping[str, str]]]] = {}
    for row in rows:
        if row["problem"] in PROBLEMS:
            key = row["problem"], int(row["evaluations"])
            found.setdefault(key, {}).setdefault(row["search"], []).append(row)
    return {
        key: {search: Cell(PROBLEMS[key[0]], each) for search, each in searches.items()}
        for key, searches in found.items()
    }


def table(group: Mapping[str, Problem], cells: Mapping[tuple[str, int], Mapping[str, Cell]]) -> str:
    """Return a table with one line per problem and number of evaluations; the best value of a line is bold."""
    methods = list(dict.fromkeys(method for problem in group.values() for method in problem.published))
    rows = [["", "evaluations", *methods, *(part for name in SEARCHES for part in (TITLES[name], "s"))]]
    for name, problem in group.items():
        for evaluations in problem.evaluations:
            ours = cells.get((name, evaluations), {})
            published = problem.published if evaluations == problem.evaluations[0] else {}
            scores = {method: value for method, value in published.items() if method != "best known"}
            if scores:  # nothing is compared without them
                scores |= {search: cell.score for search, cell in ours.items()}
            better = max if problem.maximized else min
            best = better(scores.values(), default=None)

            def marked(method: str, text: str, scores: Any = scores, best: Any = best) -> str:
                return f"**{text}**" if method in scores and abs(scores[method] - best) < 5e-4 else text

            texts = [marked(method, f"{published[method]:g}") if method in published else "" for method in methods]
            for search in SEARCHES:
                cell = ours.get(search)
                texts += [marked(search, cell.text()), cell.seconds] if cell else ["–", "–"]
            rows.append([name, f"{evaluations:,}", *texts])
            if ours and all(cell.rows[0]["true"] for cell in ours.values()):
                true = [part for s in SEARCHES for part in ((ours[s].text("true") if s in ours else "–"), "")]
                rows.append(["the same, true value", "", *[""] * len(methods), *true])
    return grid(rows)


def losses(cells: Mapping[tuple[str, int], Mapping[str, Cell]]) -> str:
    """Return the lines on which a published value is better than that of each search."""
    found = []
    for name, problem in PROBLEMS.items():
        ours = cells.get((name, problem.evaluations[0]), {})
        sign = -1.0 if problem.maximized else 1.0
        for method, value in problem.published.items():
            behind = [cell for cell in ours.values() if sign * (cell.score - value) > 5e-4]
            if method != "best known" and ours and len(behind) == len(ours):
                best = min(behind, key=lambda cell, sign=sign: sign * cell.score)
                found.append(f"- {name}: {method} {value:g}, knobless {best.score:.3f}")
    return "\n".join(found) or "None."


def write(options: argparse.Namespace, rows: Sequence[Mapping[str, str]]) -> None:
    cells = cells_of(rows)
    tables = {name: table(group, cells) for name, group in GROUPS.items()}
    if options.page.exists():
        fill(options.page, **tables, losses=losses(cells))
    what = {"command": "python benchmarks/published.py", "commit": commit(), **machine()}
    (options.out / "meta.json").write_text(json.dumps(what, indent=1) + "\n", encoding="utf-8")
    print("\n\n".join([*tables.values(), losses(cells)]))


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=[*PROBLEMS], metavar="NAME")
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=[*SEARCHES], metavar="NAME")
    parser.add_argument("--seeds", type=int, help="fewer runs than published")
    parser.add_argument("--anew", action="store_true", help="repeat runs that are recorded")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with maxsat_combo")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "peers" / "published")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "peers" / "published" / "table.md")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    options = asked()
    write(options, complete(options))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(STOPPED) from None
