"""Compare the default for deterministic objectives with its peers, at equal calls, on published problems.

    python benchmarks/power.py [--suite pbo maxsat …] [--algorithms ours rls …] [--jobs 2] [--data data]

`ours` is `kl.minimize(fun, space, budget=calls, deterministic=True, rng=seed)`. The suites are the 25
functions of ioh's PBO (`contest.py`), instances of public libraries (`instances.py`) and tables of trained networks
(`grids.py`); `--data` is the folder with the files of the last two. Finished runs are added to `<suite>.csv` at
once, and the same command resumes from there; runs of peers.py count as well, as they are the same. At the end the
tables are made from all rows: `table.md`, `table.csv`, `meta.json`, and the figures of the page next to the folder.
`verdicts.py` defines the comparison.

No algorithm may benefit from its starting point: bits are flipped, and options shuffled, by line and seed, equally for
all.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import contest
import grids
import knobless as kl
from contest import PBO, RESULTS, STOPPED, Objective, Peer, Row, carry_out, compete, grid, installed, mask
from grids import GRIDS
from harness import Table, commit, machine, read_csv, seed, write_csv
from instances import INSTANCES
from verdicts import Cell, Entry, Rank, Standing, standing

ROOT = Path(__file__).parents[1]
CONSTRAINED = ROOT / "docs" / "peers" / "constraints"  # runs of constraints.py
SHORT = 50  # shorter runs are not representative of the overhead
OURS, OURSELVES = "ours", ("ours", "pbil-lambda")  # neither is a peer of the other


# The algorithms.


def space_of(f: Objective) -> Any:
    return [kl.Choice(*range(k)) for k in f.sizes] if f.function.sizes else kl.Binary(f.mask.size)


def ours(f: Objective, n: int, seed: int) -> None:
    with f.clock:
        kl.minimize(f, space_of(f), budget=f.calls, deterministic=True, rng=seed)


def pbil_lambda(f: Objective, n: int, seed: int) -> None:
    space = kl.Space.of(space_of(f))
    with f.clock:
        kl.minimize(f, space, budget=f.calls, deterministic=True, rng=seed, algorithm=kl.pbil_lambda(space))


WHOLE = "minimize, less the objective"
ALGORITHMS = {
    OURS: Peer("knobless", "knobless", ours, WHOLE, 50),
    **contest.PEERS,
    "pbil-lambda": Peer("PBIL-λ", "knobless", pbil_lambda, WHOLE, 20),
    "random": Peer("random", "knobless", grids.at_random, "", 1),
    "tpe": Peer("Optuna TPE", "optuna", grids.tpe, "ask and tell", 5000),
    "pymoo-mixed": Peer("pymoo MixedVariableGA", "pymoo", grids.pymoo_mixed, "ask and tell", 200),
}


# The suites.


class Line(NamedTuple):
    """A line of the table."""

    instance: str
    n: int
    calls: int


class Task(NamedTuple):
    """Key of a run within a suite."""

    instance: str
    n: int
    calls: int
    algorithm: str
    seed: int

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(map(str, self))


@dataclass(frozen=True)
class Suite:
    """Lines, and the algorithms that run on them."""

    title: str
    note: str
    lines: tuple[Line, ...]
    algorithms: tuple[str, ...]
    seeds: int = 5


ALL = {instance.name: instance for each in INSTANCES.values() for instance in each}
FILES = {name: each.file for name, each in (ALL | GRIDS).items()}
BITS = (OURS, "pbil-lambda", "rls", "ea", "catcmawm", "ngopt", "pymoo-ga", "gomea")
GREATER = "Values are to be great."
LESS = "Costs are to be small."


def of_library(name: str, title: str, note: str, calls: int = 20_000) -> Suite:
    lines = tuple(Line(instance.name, instance.n, calls) for instance in INSTANCES[name])
    return Suite(title, f"{note} {LESS}", lines, BITS)


SUITES = {
    "pbo": Suite(
        "ioh's PBO functions",
        f"The 25 functions, instance 1. {GREATER}",
        tuple(Line(name, n, 50_000) for n in (64, 100) for name in PBO),
        BITS,
    ),
    "pbo-10000": Suite(
        "ioh's PBO functions, fewer calls",
        f"With a peer more, DiscreteOnePlusOne, of nevergrad like NGOpt. {GREATER}",
        tuple(Line(name, n, 10_000) for n in (64, 100) for name in PBO),
        (*BITS, "discrete-one-plus-one"),
        3,
    ),
    "maxsat": of_library(
        "maxsat", "MAX-SAT", "SATLIB's uniform 3-SAT and COMBO's weighted instances: unsatisfied weight."
    ),
    "biqmac": of_library("biqmac", "QUBO and Max-Cut", "Biq Mac's: x'Qx, or minus the weight of the cut."),
    "scp": of_library("scp", "Set covering", "OR-Library's; a row not covered costs its cheapest column and 1."),
    "mknap": of_library("mknap", "Knapsacks", "SAC-94's: minus the profit, and a penalty for every knapsack too full."),
    "uflp": of_library("uflp", "Facility location", "OR-Library's, without capacities."),
    "labs": of_library("labs", "LABS", "The energy of low autocorrelation sequences."),
    "steiner": of_library("steiner", "Steiner triples", "The size of a cover; a triple not covered costs 2."),
    "tables": Suite(
        "Tables of trained networks",
        "How many of 10,000 configurations are better than the best one found, and 0.5: geometric means over the runs,"
        " and over the tables in the lines *all*, which alone are counted.",
        tuple(Line(name, GRIDS[name].n, calls) for calls in (50, 100, 200, 500) for name in GRIDS),
        (OURS, "pbil-lambda", "random", "tpe", "catcmawm", "ngopt", "pymoo-mixed"),
        20,
    ),
}


def run(data: Path, task: Task) -> Row:
    """Return a row of `<suite>.csv`. `best` is a cost: the distance from the optimum, or from 0 if that is unknown."""
    algorithm = ALGORITHMS[task.algorithm].run
    if task.instance in GRIDS:
        source = seed("power", task.instance, task.seed)
        function = grids.function(task.instance, data, source)
        f = Objective(function, np.zeros(task.n, dtype=np.int8), task.calls)
        row = compete(f, algorithm, source)
        return {**task._asdict(), **row, "rank": f"{grids.rank(task.instance, data, function.value_of(f.best)):.4f}"}
    if task.instance in PBO:
        source = seed("peers", task.instance, task.n, task.seed)  # so that both benchmarks have the same runs
        function = contest.function(task.instance, task.n)
    else:
        source = seed("power", task.instance, task.n, task.seed)
        function = ALL[task.instance].function(data)
    f = Objective(function, mask(source, task.n), task.calls)
    return {**task._asdict(), **compete(f, algorithm, source)}


def rows_of(path: Path) -> list[Row]:
    return read_csv(path) if path.exists() else []


def taken_over(folder: Path) -> Iterator[Row]:
    """Yield the runs of peers.py, except those of PBIL-λ, which were made without `deterministic=True`."""
    for row in rows_of(folder / "runs.csv") + rows_of(folder / "all-10000" / "runs.csv"):
        if row["peer"] not in OURSELVES:
            yield {**row, "instance": row["function"], "algorithm": row["peer"]}


# Results.


def entries_of(suite: Suite, rows: Sequence[Row]) -> list[Entry]:
    """Return the lines of a suite that have runs, with all their runs."""
    found: dict[Line, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[Line(row["instance"], int(row["n"]), int(row["calls"]))][row["algorithm"]].append(row)
    lines = [line for line in suite.lines if line in found]
    if lines and lines[0].instance in GRIDS:
        return ranked({line: found[line] for line in lines})
    return [entry(line, found[line]) for line in lines]


def entry(line: Line, runs: dict[str, list[Row]]) -> Entry:
    if line.instance in PBO:
        function = contest.function(line.instance, line.n)
        label, optimum, sense = function.label, function.optimum, function.sense
    else:
        label, optimum, sense = line.instance, ALL[line.instance].best, -1
    return Entry(label, line.n, line.calls, {name: Cell(rows, optimum, sense) for name, rows in runs.items()})


def ranked(found: dict[Line, dict[str, list[Row]]]) -> list[Entry]:
    """Each table, and all of them together, for each number of calls."""
    entries = []
    for calls in sorted({line.calls for line in found}):
        lines = [line for line in found if line.calls == calls]
        each = [{name: Rank.of(rows) for name, rows in found[line].items()} for line in lines]
        entries += [Entry(line.instance, line.n, calls, cells, False) for line, cells in zip(lines, each, strict=True)]
        everywhere = [name for name in each[0] if all(name in cells for cells in each)]
        means = {name: Rank([cells[name].score for cells in each]) for name in everywhere}
        entries.append(Entry(f"all, {calls} calls", None, calls, means))
    return entries


def suite_grid(entries: Sequence[Entry]) -> str:
    names = [name for name in ALGORITHMS if any(name in entry.cells for entry in entries)]
    rows = [["", "n", "calls", *(ALGORITHMS[name].title for name in names), "knobless / best other"]]
    for entry in entries:
        best, verdict = entry.leaders, entry.verdict(OURS, OURSELVES)
        cells = {name: f"**{cell}**" if name in best else str(cell) for name, cell in entry.cells.items()}
        sizes = ["" if entry.n is None else str(entry.n), f"{entry.calls:,}"]
        rows.append([entry.label, *sizes, *(cells.get(name, "–") for name in names), verdict.text if verdict else ""])
    led = [sum(name in entry.leaders for entry in entries if entry.counted) for name in names]
    rows.append(["lines led or shared", "", "", *map(str, led), ""])
    times = [overheads(entries, name) for name in names]
    rows.append(["µs per call", "", "", *(f"{statistics.median(each):,.1f}" if each else "–" for each in times), ""])
    return grid(rows)


def overheads(entries: Sequence[Entry], name: str) -> list[float]:
    cells = [cell for entry in entries if (cell := entry.cells.get(name))]
    return [float(row["overhead_us"]) for cell in cells for row in cell.rows if int(row["nfev"]) >= SHORT]


def section(suite: Suite, entries: Sequence[Entry]) -> str:
    runs = sorted({len(cell.rows) for entry in entries if entry.n for cell in entry.cells.values()})
    each = f"{runs[0]} runs each." if len(runs) == 1 else f"{runs[0]} to {runs[-1]} runs each."
    said = in_words(standing(entries, OURS, OURSELVES))
    return "\n\n".join([f"## {suite.title}", f"{suite.note} {each}", suite_grid(entries), *said])


def in_words(standing: Standing) -> list[str]:
    if not standing.lines:
        return []
    good = f"at least as good as every peer in {standing.good}, and near or better in {standing.near}"
    text = f"Of {standing.lines} lines knobless is {good}."
    return [text + (f" It loses {', '.join(standing.lost)}." if standing.lost else "")]


# Knapsacks with their constraints stated, from the runs of constraints.py.

STATED = {"constraints": "knobless, `constraints=`", "ga-repair": "pymoo GA, same repair"}
SEEN = ("weish01", "pet7", "sento1", "weish29")  # looked at when the search with constraints was designed


def stated_entries(folder: Path) -> list[Entry]:
    """Return the lines of the knapsacks; the cost is the gap to the optimum in percent."""
    runs: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows_of(folder / "runs.csv"):
        end = "optimum" if float(row["gap_20000"]) == 0.0 else "budget"
        runs[row["instance"]][row["method"]].append({**row, "end": end, "best": row["gap_20000"]})
    entries = []
    for name, n, calls in SUITES["mknap"].lines:
        cells = {method: Cell(runs[name][method], 0.0, -1) for method in STATED if runs[name][method]}
        if len(cells) == len(STATED):
            entries.append(Entry(name + (" (seen)" if name in SEEN else ""), n, calls, cells))
    return entries


def stated_grid(entries: Sequence[Entry]) -> str:
    checks = [f"{title}: checks per call" for title in STATED.values()]
    rows = [["", "n", "calls", *STATED.values(), *checks, "knobless / GA"]]
    for entry in entries:
        each = [cell for cell in entry.cells.values() if isinstance(cell, Cell)]
        shown = [f"**{cell}**" if name in entry.leaders else str(cell) for name, cell in entry.cells.items()]
        counts = [sum(int(row["checks"]) for row in cell.rows) for cell in each]
        calls = [sum(int(row["nfev"]) for row in cell.rows) for cell in each]
        ratios = [f"{count / spent:.0f}" for count, spent in zip(counts, calls, strict=True)]
        verdict = entry.verdict("constraints", ("constraints",))
        sizes = [str(entry.n), f"{entry.calls:,}"]
        rows.append([entry.label, *sizes, *shown, *ratios, verdict.text if verdict else ""])
    return grid(rows)


NOT_YET = "knobless has not been run yet."
READING = (
    "Expected calls to the optimum: all calls divided by the number of runs that met it, with that number if not all"
    " did. In brackets, where none did or the optimum is not known, the median of the best values. The best of a line"
    " is bold. PBIL-λ is also run with deterministic=True; it is not a peer. Near is at most twice the calls, or the"
    " rank, of the best peer, or a value within 2 % of that peer's. The last line has the median time of an algorithm"
    " outside the function, on a machine with other load: it can be several times too long, and differs from suite to"
    " suite."
)


def summary(each: dict[str, list[Entry]]) -> str:
    """Return one line per suite, for the page; the suite that repeats another with fewer calls is not in the sum."""
    rows = [["", "lines", "at least as good as every peer", "near or better"]]
    total = [0, 0, 0]
    for name, entries in each.items():
        counts = standing(entries, OURS, OURSELVES)[:3]
        if counts[0]:
            rows.append([SUITES[name].title, *map(str, counts)])
        if name != "pbo-10000":
            total = [a + b for a, b in zip(total, counts, strict=True)]
    return grid([*rows, ["all but the one with fewer calls", *map(str, total)]]) if total[0] else NOT_YET


STATED_NOTE = (
    "The same instances with the constraints stated instead of a penalty, and the GA of pymoo with the repair of"
    " knobless, restarted when it finds no new point. In brackets, where no run met the optimum, the median gap in"
    " percent. 10 runs each, by `constraints.py`, with other seeds than above. These lines are not in the sums."
    " Instances marked as seen were looked at when that search was designed."
)


def report(each: dict[str, list[Entry]], notes: Sequence[str]) -> str:
    sections = [section(SUITES[name], entries) for name, entries in each.items()]
    if stated := stated_entries(CONSTRAINED):
        sections += ["\n\n".join(["## Knapsacks, with their constraints stated", STATED_NOTE, stated_grid(stated)])]
    parts = ["# Comparison of knobless with its peers, at equal calls", READING, summary(each), *sections, *notes]
    return "\n\n".join(parts) + "\n"


def losses(each: dict[str, list[Entry]]) -> str:
    stands = {SUITES[name].title: standing(entries, OURS, OURSELVES) for name, entries in each.items()}
    if not any(stand.lines for stand in stands.values()):
        return NOT_YET
    return "\n".join(f"- {title}: {', '.join(stand.lost)}" for title, stand in stands.items() if stand.lost) or "None."


def fill(page: Path, **figures: str) -> None:
    """Insert each text between `<!-- name -->` and `<!-- end -->` of the page."""
    text = page.read_text(encoding="utf-8")
    for name, figure in figures.items():
        before, place, rest = text.partition(f"<!-- {name} -->")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"{page}: expected a place '<!-- {name} -->' with '<!-- end -->', got none")
        text = f"{before}{place}\n{figure}\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def long_form(each: dict[str, list[Entry]]) -> list[Row]:
    """Return `table.csv`: one row per cell."""
    return [
        {
            "suite": suite,
            "line": entry.label,
            "n": entry.n or "",
            "calls": entry.calls,
            "algorithm": name,
            "runs": len(cell.rows) or "",
            "solved": cell.solved if isinstance(cell, Cell) else "",
            "ert_or_rank": "" if math.isinf(cell.score) else f"{cell.score:.6g}",
            "median_best": f"{cell.value:.10g}" if isinstance(cell, Cell) else "",
            "leads": name in entry.leaders,
        }
        for suite, entries in each.items()
        for entry in entries
        for name, cell in entry.cells.items()
    ]


def meta(each: dict[str, list[Entry]]) -> Row:
    names = {name for entries in each.values() for entry in entries for name in entry.cells}
    packages = {"ioh", *(ALGORITHMS[name].package for name in names)} - {"knobless"}
    return {
        **machine(),
        "commit": commit(),  # that the tables were made with
        **{package: version(package) for package in sorted(packages) if find_spec(package)},
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def write(out: Path, notes: Sequence[str]) -> str:
    """Write all files that are made from the rows; return the report."""
    each = {name: entries for name in SUITES if (entries := entries_of(SUITES[name], rows_of(out / f"{name}.csv")))}
    text = report(each, notes)
    (out / "table.md").write_text(text, encoding="utf-8")
    if each:
        write_csv(out / "table.csv", long_form(each))
    (out / "meta.json").write_text(json.dumps(meta(each), indent=2) + "\n", encoding="utf-8")
    if (page := out.with_suffix(".md")).exists():
        fill(page, summary=summary(each), losses=losses(each), constraints=stated_grid(stated_entries(CONSTRAINED)))
    return text


# Command line.


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names, lines = ", ".join(ALGORITHMS), {line.instance for suite in SUITES.values() for line in suite.lines}
    parser.add_argument("--suite", nargs="+", choices=SUITES, default=[*SUITES], metavar="NAME", help=", ".join(SUITES))
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, metavar="NAME", help=f"of the suite's: {names}")
    parser.add_argument("--lines", nargs="+", choices=lines, metavar="NAME", help="such as F18, uf100-01; all if none")
    parser.add_argument("--seeds", type=int, help="runs of each algorithm on each line; by default that of the suite")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the instances and the tables")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "power")
    options = parser.parse_args()
    for name in ("seeds", "jobs"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name}: expected at least 1, got {value}")
    return options


def tasks_of(suite: Suite, options: argparse.Namespace) -> list[Task]:
    wanted = [name for name in suite.algorithms if options.algorithms is None or name in options.algorithms]
    lines = [line for line in suite.lines if options.lines is None or line.instance in options.lines]
    seeds = range(options.seeds or suite.seeds)
    return [Task(*line, name, i) for line in lines for name in installed(wanted, ALGORITHMS)[0] for i in seeds]


def complete(name: str, options: argparse.Namespace) -> list[str]:
    """Make the missing runs of a suite; return error messages."""
    tasks = tasks_of(SUITES[name], options)
    keys = {task.key for task in tasks}
    table = Table(options.out / f"{name}.csv", Task._fields, (*RESULTS, "rank") if name == "tables" else RESULTS)
    for row in taken_over(ROOT / "docs" / "peers"):
        key = tuple(row[field] for field in Task._fields)
        if key in keys and key not in table:
            table.add(row)
    pending = [task for task in tasks if task.key not in table]
    files = {FILES[task.instance] for task in pending if FILES.get(task.instance)}
    if missing := sorted(file for file in files if not (options.data / file).exists()):
        raise SystemExit(f"--data: expected {missing[0]} in the folder {options.data}, got none")
    print(f"{name}: {len(tasks) - len(pending)} of {len(tasks)} runs exist")
    pending.sort(key=lambda task: ALGORITHMS[task.algorithm].cost * task.calls)  # short runs first
    errors = carry_out(pending, partial(run, options.data), table.add, options.jobs)
    failed = f"{name}: {len(errors)} runs failed and will be repeated next time; the first: "
    return [failed + errors[0]] if errors else []


def main() -> None:
    options = asked()
    notes = [note for name in options.suite for note in complete(name, options)]
    print(write(options.out, notes))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(STOPPED) from None
