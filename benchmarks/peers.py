"""Compare PBIL-λ with its peers on 27 functions of bits: calls to the optimum, and overhead of the optimizer.

    python benchmarks/peers.py [--n 100] [--calls 50000] [--seeds 5] [--jobs 2] [--out out/peers]
                               [--functions OneMax F18 …] [--peers pbil-lambda rls …]

The functions are OneMax and LeadingOnes of `knobless.problems` and the PBO suite of the package ioh, F1 to F25,
instance 1 (F1 and F2 are OneMax and LeadingOnes again, with other seeds). `contest.py` defines the functions, the
peers and the counting of calls. Finished runs are added to `runs.csv` at once; the same command resumes from there. At
the end, `table.md`, `table.csv` and `meta.json` are written.

Overhead is wall time in ask and tell alone, or, for a peer with a single call for the whole run, the time of that call
minus that of the objective. Timings are noisy, and jobs affect each other: only the order of magnitude is reliable.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from contest import (
    PBO,
    PEERS,
    RESULTS,
    STOPPED,
    Function,
    Objective,
    carry_out,
    compete,
    function,
    grid,
    installed,
    mask,
)
from harness import Table, commit, machine, seed, write_csv

SHORT = 100  # shorter runs are not representative of the overhead
OURS = "pbil-lambda"
FUNCTIONS = ("OneMax", "LeadingOnes", *PBO)


# Runs.


class Task(NamedTuple):
    """Key of a run."""

    n: int
    calls: int
    function: str
    peer: str
    seed: int

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(map(str, self))


def run(task: Task) -> dict[str, Any]:
    """A row of `runs.csv`. `best` is a cost."""
    source = seed("peers", task.function, task.n, task.seed)
    f = Objective(function(task.function, task.n), mask(source, task.n), task.calls)
    return {**task._asdict(), **compete(f, PEERS[task.peer].run, source)}


# Results.


@dataclass(frozen=True)
class Cell:
    """The runs of a peer on a function."""

    function: Function
    rows: list[dict[str, str]]

    @property
    def solved(self) -> list[int]:
        return [int(row["nfev"]) for row in self.rows if row["end"] == "optimum"]

    @property
    def measure(self) -> str:
        return "none" if not self.solved else "median" if len(self.solved) == len(self.rows) else "ERT"

    @property
    def calls(self) -> float:
        """Calls to the optimum: the median, or all calls divided by the number of runs that met it."""
        if self.measure == "median":
            return statistics.median(self.solved)
        return sum(int(row["nfev"]) for row in self.rows) / len(self.solved) if self.solved else math.inf

    @property
    def best(self) -> float:
        return statistics.median(float(row["best"]) for row in self.rows)

    @property
    def rank(self) -> tuple[float, float]:
        """Fewer calls are better; without the optimum, a lower cost."""
        return (self.calls, 0.0) if self.solved else (math.inf, self.best)

    def __str__(self) -> str:
        if self.solved:
            return f"{self.calls:,.0f}" + (f" ({len(self.solved)}/{len(self.rows)})" if self.measure == "ERT" else "")
        value = f"{self.function.value_of(self.best):.5g}"
        return f"[{value}]" if self.function.optimum is None else f"[{value} of {self.function.optimum:.5g}]"


Line = dict[str, Cell]  # by peer


def lines_of(table: Table, tasks: Iterable[Task]) -> dict[str, Line]:
    lines: dict[str, dict[str, list[dict[str, str]]]] = {}
    functions: dict[str, Function] = {}
    for task in tasks:
        functions.setdefault(task.function, function(task.function, task.n))
        line = lines.setdefault(task.function, {})
        if row := table.get(task.key):
            line.setdefault(task.peer, []).append(row)
    return {name: {peer: Cell(functions[name], rows) for peer, rows in line.items()} for name, line in lines.items()}


def leaders(line: Line) -> set[str]:
    least = min((cell.rank for cell in line.values()), default=None)
    return {peer for peer, cell in line.items() if cell.rank == least}


def against(line: Line) -> str:
    """Compare PBIL-λ with the best of the others: a ratio of calls, or a difference of values."""
    others = [cell for peer, cell in line.items() if peer != OURS]
    if OURS not in line or not others:
        return ""
    ours, best = line[OURS], min(others, key=lambda cell: cell.rank)
    if ours.solved and best.solved:
        return f"{ours.calls / best.calls:.2f} x"
    if ours.solved or best.solved:
        return "only PBIL-λ" if ours.solved else "not solved"
    return "level" if ours.best == best.best else f"value {best.best - ours.best:+.4g}"


def standing(lines: dict[str, Line]) -> str:
    """Return the number of lines that PBIL-λ wins, shares and loses, as a sentence."""
    led = [leaders(line) for line in lines.values() if OURS in line]
    if not led:
        return "PBIL-λ was not run."
    alone, shared = sum(each == {OURS} for each in led), sum(OURS in each and len(each) > 1 for each in led)
    lost = [name for name, line in lines.items() if OURS in line and OURS not in leaders(line)]
    text = f"Of {len(led)} lines PBIL-λ wins {alone}, shares {shared} and loses {len(lost)}"
    return text + (f": {', '.join(lost)}." if lost else ".")


def calls_grid(lines: dict[str, Line], peers: Sequence[str]) -> str:
    rows = [["function", *(PEERS[peer].title for peer in peers), "PBIL-λ / best other"]]
    for name, line in lines.items():
        best, label = leaders(line), next((cell.function.label for cell in line.values()), name)
        cells = {peer: f"**{cell}**" if peer in best else str(cell) for peer, cell in line.items()}
        rows.append([label, *(cells.get(peer, "–") for peer in peers), against(line)])
    led = [sum(peer in leaders(line) for line in lines.values()) for peer in peers]
    always = [sum(peer in line and line[peer].measure == "median" for line in lines.values()) for peer in peers]
    rows.append(["lines led or shared", *map(str, led), ""])
    rows.append(["solved in every run", *map(str, always), ""])
    return grid(rows)


def overheads(lines: dict[str, Line], peer: str) -> list[float]:
    rows = [row for line in lines.values() if peer in line for row in line[peer].rows]
    long = [row for row in rows if int(row["nfev"]) >= SHORT]
    return sorted(float(row["overhead_us"]) for row in long or rows)


def overhead_grid(lines: dict[str, Line], peers: Sequence[str]) -> str:
    rows = [["", "µs per call, median", "over PBIL-λ's", "least to most of a run", "what is timed"]]
    each = {peer: times for peer in peers if (times := overheads(lines, peer))}
    ours = statistics.median(each[OURS]) if OURS in each else math.nan
    for peer, times in each.items():
        middle = statistics.median(times)
        span = f"{times[0]:,.1f} to {times[-1]:,.1f}"
        ratio = f"{middle / ours:,.2f} x" if OURS in each else ""
        rows.append([PEERS[peer].title, f"{middle:,.1f}", ratio, span, PEERS[peer].timed])
    return grid(rows)


def report(lines: dict[str, Line], options: argparse.Namespace, notes: Sequence[str]) -> str:
    spent = f"{options.n} bits, at most {options.calls:,} calls per run, {options.seeds} runs each"
    reading = (
        "Calls to the optimum: the median; where some runs failed, all calls divided by the number of runs that met it,"
        " with that number; where none did or the optimum is not known, in brackets, the median of the best values"
        " (larger is better). The best of a line is bold."
    )
    parts = [
        f"# Comparison of PBIL-λ with its peers: {spent}",
        reading,
        calls_grid(lines, options.peers),
        standing(lines) + " F1 and F2 are OneMax and LeadingOnes again.",
        "Overhead outside the objective, over all runs, in wall time:",
        overhead_grid(lines, options.peers),
        *notes,
    ]
    return "\n\n".join(parts) + "\n"


def long_form(lines: dict[str, Line]) -> list[dict[str, Any]]:
    """Return `table.csv`: one row per cell."""
    return [
        {
            "function": name,
            "label": cell.function.label,
            "peer": peer,
            "runs": len(cell.rows),
            "solved": len(cell.solved),
            "measure": cell.measure,
            "calls": cell.calls if cell.solved else "",
            "best_value": cell.function.value_of(cell.best),
            "optimum": "" if cell.function.optimum is None else cell.function.optimum,
            "overhead_us": statistics.median(float(row["overhead_us"]) for row in cell.rows),
            "leads": peer in leaders(line),
        }
        for name, line in lines.items()
        for peer, cell in line.items()
    ]


def meta(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    packages = sorted({"ioh", *(PEERS[peer].package for peer in options.peers)} - {"knobless"})
    return {
        **machine(),
        "commit": commit(),  # of the last invocation
        **{package: version(package) for package in packages},
        **{key: value for key, value in vars(options).items() if not isinstance(value, Path)},
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "wall_seconds_of_last_session": round(seconds, 1),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


# Command line.


def suitable(names: Sequence[str], n: int) -> tuple[list[str], list[str]]:
    """Return the functions that have this n, and a note for each of the others."""
    kept, notes = [], []
    for name in names:
        try:
            function(name, n)
        except ValueError as error:
            notes.append(f"{name} is left out: {error}")
        else:
            kept.append(name)
    return kept, notes


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100, help="bits")
    parser.add_argument("--calls", type=int, default=50_000, help="calls after which a run is stopped")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each peer on each function")
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=FUNCTIONS, metavar="NAME")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--out", type=Path, default=Path("out/peers"))
    return parser.parse_args()


def main() -> None:
    options, began = asked(), time.perf_counter()
    options.functions, unsuitable = suitable(options.functions, options.n)
    options.peers, missing = installed(options.peers)
    tasks = [
        Task(options.n, options.calls, name, peer, i)
        for name in options.functions
        for peer in options.peers
        for i in range(options.seeds)
    ]
    table = Table(options.out / "runs.csv", Task._fields, RESULTS)
    pending = sorted((task for task in tasks if task.key not in table), key=lambda task: -PEERS[task.peer].cost)
    errors = carry_out(pending, run, table.add, options.jobs)  # long ones first
    lines = lines_of(table, tasks)
    failed = [f"{len(errors)} runs failed and will be repeated next time; the first: {errors[0]}"] if errors else []
    text = report(lines, options, [*unsuitable, *missing, *failed])
    print(text)
    (options.out / "table.md").write_text(text, encoding="utf-8")
    write_csv(options.out / "table.csv", long_form(lines))
    (options.out / "meta.json").write_text(json.dumps(meta(options, time.perf_counter() - began), indent=2) + "\n")
    print(f"Written to {options.out}: runs.csv, table.md, table.csv, meta.json")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(STOPPED) from None
