"""Calls to the optimum, and cost of the optimizer itself, of PBIL-λ beside its peers on 27 functions of bits.

    python benchmarks/peers.py [--n 100] [--calls 50000] [--seeds 5] [--jobs 2] [--out out/peers]
                               [--functions OneMax F18 …] [--peers pbil-lambda rls …]

The functions are OneMax and LeadingOnes of `knobless.problems` and the PBO suite of the package ioh, F1 to F25,
instance 1 (F1 and F2 are OneMax and LeadingOnes again, with other seeds). Every run goes through `Objective`, which
counts calls and ends the run at the very call that meets the optimum or is the last one allowed. A finished run is a
row of `runs.csv` at once; the same command goes on where it was stopped. At the end come `table.md`, `table.csv`
and `meta.json`.

No peer may gain from where it begins: every point is XORed with bits drawn by function and seed, the same for all
peers. Without that nevergrad, whose first point is all zeros, would solve the Ising functions in one call. To
the other peers both values of a bit are alike, so that nothing changes for them.

Overhead is wall time in ask and tell alone, or, for a peer that only has one call for the whole run, all of that
less what the objective took. Machines are noisy, and jobs disturb each other: read it as an order of magnitude.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import knobless as kl
from knobless.problems import LeadingOnes, OneMax
from knobless.reproduce.experiment import Table, machine, seed, write_csv

CLOSE = 1e-9  # a cost this near to the optimum's meets it
SHORT = 100  # runs of fewer calls say little about overhead
OURS = "pbil-lambda"
PBO = tuple(f"F{i}" for i in range(1, 26))
FUNCTIONS = ("OneMax", "LeadingOnes", *PBO)


# What is minimised.


@dataclass(frozen=True)
class Function:
    """A cost of bits: the distance of the value, which is maximised, from the optimum, or from 0 if that is unknown."""

    label: str
    value: Callable[[Any], float]
    optimum: float | None

    def cost(self, x: Any) -> float:
        return (self.optimum or 0.0) - self.value(x)

    def value_of(self, cost: float) -> float:
        return (self.optimum or 0.0) - cost


def function(name: str, n: int) -> Function:
    """By name; a ValueError where it has no such n."""
    if name in PBO:
        return pbo(int(name[1:]), n)
    problem = {"OneMax": OneMax, "LeadingOnes": LeadingOnes}[name](n)
    return Function(name, lambda x: n - problem(x), float(n))


def pbo(number: int, n: int) -> Function:
    import ioh

    problem = ioh.get_problem(number, 1, n, ioh.ProblemClass.PBO)
    label = f"F{number} {problem.meta_data.name}"
    return Function(label, lambda x: problem(x.tolist()), stated_optimum(number, n, problem.optimum.y))


def stated_optimum(number: int, n: int, stated: float) -> float | None:
    """What ioh says, where that is right: compared with enumeration for n = 9, 10, 11, 12 and 16."""
    wrong = math.isinf(stated) or (number == 24 and n % 5) or (number == 23 and n < 16)
    return None if wrong else float(stated)


# How a run is counted and timed.


class Done(Exception):  # noqa: N818 (it is no error)
    """The optimum is met or the calls are spent."""


class Clock:
    """Adds up the seconds of `with clock:` blocks."""

    def __init__(self) -> None:
        self.seconds, self.running = 0.0, False

    def __enter__(self) -> None:
        self.running, self._start = True, time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start
        self.running = False


class Objective:
    """What a peer calls with a point: gives the cost, counts, and raises `Done` at the end of the run.

    `clock` is for the peer's own time; what is spent in here does not count for it.
    """

    def __init__(self, function: Function, mask: Any, calls: int) -> None:
        self.function, self.mask, self.calls = function, mask, calls
        self.target = -math.inf if function.optimum is None else CLOSE
        self.nfev, self.best, self.best_at, self.seconds = 0, math.inf, 0, 0.0
        self.clock = Clock()

    @property
    def solved(self) -> bool:
        return self.best <= self.target

    def __call__(self, x: Any) -> float:
        start = time.perf_counter()
        try:
            return self._evaluate(x)
        finally:
            spent = time.perf_counter() - start
            self.seconds += spent
            if self.clock.running:
                self.clock.seconds -= spent

    def _evaluate(self, x: Any) -> float:
        x = np.asarray(x, dtype=np.int8)
        if x.shape != self.mask.shape:  # ioh would answer with NaN
            raise ValueError(f"x: expected {self.mask.size} bits, got the shape {x.shape}")
        cost = self.function.cost(x ^ self.mask)
        self.nfev += 1
        if cost < self.best:
            self.best, self.best_at = cost, self.nfev
        if self.solved or self.nfev == self.calls:
            raise Done
        return cost


# The peers: each calls f until that raises `Done`, with `f.clock` running while the peer itself works.


def pbil_lambda(f: Objective, n: int, seed: int) -> None:
    opt = kl.Optimizer(kl.Binary(n), rng=seed)
    while True:
        with f.clock:
            batch = opt.ask()
        values = [f(x) for x in batch.x]
        with f.clock:
            opt.tell(batch, values)


def climb(mutate: Callable[[Any, Any], Any], f: Objective, n: int, seed: int) -> None:
    """Changes the point it is at and stays with what is not worse."""
    rng = np.random.default_rng(seed)
    with f.clock:
        x = rng.integers(0, 2, n, dtype=np.int8)
        value = f(x)
        while True:
            child = mutate(x, rng)
            child_value = f(child)
            if child_value <= value:
                x, value = child, child_value


def flip_one(x: Any, rng: np.random.Generator) -> Any:
    """RLS: exactly one bit."""
    child = x.copy()
    child[rng.integers(x.size)] ^= 1
    return child


def flip_some(x: Any, rng: np.random.Generator) -> Any:
    """(1+1)-EA: each bit with probability 1/n, drawn again while it is none."""
    while not (flips := rng.random(x.size) < 1 / x.size).any():
        pass
    return x ^ flips


def catcmawm(f: Objective, n: int, seed: int) -> None:
    from cmaes import CatCMAwM

    opt = CatCMAwM(c_space=[2] * n, seed=seed)
    while True:
        with f.clock:
            solutions = [opt.ask() for _ in range(opt.population_size)]
        told = [(solution, f(solution.c[:, 1])) for solution in solutions]
        with f.clock:
            opt.tell(told)


def nevergrad(name: str, f: Objective, n: int, seed: int) -> None:
    import nevergrad as ng

    space = ng.p.Choice([0, 1], repetitions=n, deterministic=True)  # the default draws anew at each look, and stalls
    space.random_state.seed(seed)
    opt = ng.optimizers.registry[name](space, budget=f.calls)
    while True:
        with f.clock:
            candidate = opt.ask()
        value = f(candidate.value)
        with f.clock:
            opt.tell(candidate, value)


def pymoo_ga(f: Objective, n: int, seed: int) -> None:
    from pymoo.algorithms.soo.nonconvex.ga import GA
    from pymoo.core.evaluator import Evaluator
    from pymoo.core.problem import Problem
    from pymoo.core.termination import NoTermination
    from pymoo.operators.crossover.pntx import TwoPointCrossover
    from pymoo.operators.mutation.bitflip import BitflipMutation
    from pymoo.operators.sampling.rnd import BinaryRandomSampling
    from pymoo.problems.static import StaticProblem

    ga = GA(pop_size=100, sampling=BinaryRandomSampling(), crossover=TwoPointCrossover(), mutation=BitflipMutation())
    problem = Problem(n_var=n, n_obj=1, xl=0, xu=1, vtype=bool)
    ga.setup(problem, termination=NoTermination(), seed=seed)
    while True:
        with f.clock:
            population = ga.ask()
        if population is None or not len(population):  # it finds no child that is not in the population already
            return
        values = np.array([f(x) for x in population.get("X")])
        with f.clock:
            Evaluator().eval(StaticProblem(problem, F=values[:, None]), population)
            ga.tell(infills=population)


def gomea(f: Objective, n: int, seed: int) -> None:
    import gomea

    offset = 10.0 * n * n  # it maximises, and misbehaves below 0; no cost is as high as this

    class Fitness(gomea.fitness.BBOFitnessFunctionDiscrete):
        def objective_function(self, index: int, variables: Any) -> float:
            return offset - f(variables)

    fitness, linkage = Fitness(n), gomea.linkage.LinkageTree()  # both must outlive the run
    solver = gomea.DiscreteGOMEA(
        fitness=fitness, linkage_model=linkage, max_number_of_evaluations=f.calls, random_seed=seed
    )
    with f.clock:
        solver.run()


class Peer(NamedTuple):
    """A peer in the table; `cost` is a guess at its µs per call, to begin with long runs."""

    title: str
    package: str
    run: Callable[[Objective, int, int], None]
    timed: str
    cost: float


PEERS = {
    OURS: Peer("PBIL-λ", "knobless", pbil_lambda, "ask and tell", 20),
    "rls": Peer("RLS", "knobless", partial(climb, flip_one), "the loop, less the objective", 2),
    "ea": Peer("(1+1)-EA", "knobless", partial(climb, flip_some), "the loop, less the objective", 5),
    "catcmawm": Peer("CatCMAwM", "cmaes", catcmawm, "ask and tell", 100),
    "ngopt": Peer("NGOpt", "nevergrad", partial(nevergrad, "NGOpt"), "ask and tell", 1200),
    "discrete-one-plus-one": Peer(
        "DiscreteOnePlusOne", "nevergrad", partial(nevergrad, "DiscreteOnePlusOne"), "ask and tell", 700
    ),
    "pymoo-ga": Peer("pymoo GA", "pymoo", pymoo_ga, "ask and tell, with Evaluator.eval", 70),
    "gomea": Peer("gomea", "gomea", gomea, "run(), less the objective", 5),
}


# Runs.


class Task(NamedTuple):
    """What names a run."""

    n: int
    calls: int
    function: str
    peer: str
    seed: int

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(map(str, self))


RESULTS = ("end", "nfev", "best", "best_at", "overhead_us", "seconds", "objective_seconds")


def run(task: Task) -> dict[str, Any]:
    """A row of `runs.csv`. `best` is a cost."""
    warnings.simplefilter("ignore")
    source = seed("peers", task.function, task.n, task.seed)
    mask = np.random.default_rng(source).integers(0, 2, task.n, dtype=np.int8)
    f = Objective(function(task.function, task.n), mask, task.calls)
    start = time.perf_counter()
    try:
        PEERS[task.peer].run(f, task.n, int(source.generate_state(1)[0] >> 1))
        end = "gave up"
    except Done:
        end = "optimum" if f.solved else "budget"
    return {
        **task._asdict(),
        "end": end,
        "nfev": f.nfev,
        "best": repr(float(f.best)),
        "best_at": f.best_at,
        "overhead_us": f"{f.clock.seconds / f.nfev * 1e6:.3f}",
        "seconds": f"{time.perf_counter() - start:.3f}",
        "objective_seconds": f"{f.seconds:.3f}",
    }


def carry_out(table: Table, tasks: Sequence[Task], jobs: int) -> list[str]:
    """Runs what the table does not have, long runs first, in processes; says what went wrong."""
    pending = sorted((task for task in tasks if task.key not in table), key=lambda task: -PEERS[task.peer].cost)
    errors = []
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # for the processes to come
    quietly = (signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a process without a traceback
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=signal.signal, initargs=quietly)
    try:
        futures = {pool.submit(run, task): task for task in pending}
        done = as_completed(futures)
        for future in tqdm(done, total=len(tasks), initial=len(tasks) - len(pending), unit=" runs", smoothing=0.0):
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                raise SystemExit("A process died. The same command goes on; --peers can leave one out.")
            if error is None:
                table.add(future.result())
            else:
                errors.append(f"{futures[future]}: {error!r}")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return errors


# What came of it.


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
        """To the optimum: the median, or all calls spent over the runs that met it."""
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
    """PBIL-λ beside the best of the others: a ratio of calls, or by how much its value is better or worse."""
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
    """How many lines PBIL-λ wins, shares and loses."""
    led = [leaders(line) for line in lines.values() if OURS in line]
    if not led:
        return "PBIL-λ was not run."
    alone, shared = sum(each == {OURS} for each in led), sum(OURS in each and len(each) > 1 for each in led)
    lost = [name for name, line in lines.items() if OURS in line and OURS not in leaders(line)]
    text = f"Of {len(led)} lines PBIL-λ wins {alone}, shares {shared} and loses {len(lost)}"
    return text + (f": {', '.join(lost)}." if lost else ".")


def grid(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are level; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([padded[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *padded[1:]])


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
    spent = f"{options.n} bits, at most {options.calls:,} calls a run, {options.seeds} runs each"
    reading = (
        "Calls to the optimum: the median; where some runs failed, all calls spent over the runs that met it, and how"
        " many did; in brackets, where none did or it is not known, the median of the best values (greater is better)."
        " The best of a line is bold."
    )
    parts = [
        f"# PBIL-λ beside its peers: {spent}",
        reading,
        calls_grid(lines, options.peers),
        standing(lines) + " F1 and F2 are OneMax and LeadingOnes once more.",
        "Overhead outside the objective, over all runs, in wall time:",
        overhead_grid(lines, options.peers),
        *notes,
    ]
    return "\n\n".join(parts) + "\n"


def long_form(lines: dict[str, Line]) -> list[dict[str, Any]]:
    """`table.csv`: a row a cell."""
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
        **{package: version(package) for package in packages},
        **{key: value for key, value in vars(options).items() if not isinstance(value, Path)},
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "wall_seconds_of_last_session": round(seconds, 1),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


# What was asked for.


def suitable(names: Sequence[str], n: int) -> tuple[list[str], list[str]]:
    """The functions that have this n, and a note for each other."""
    kept, notes = [], []
    for name in names:
        try:
            function(name, n)
        except ValueError as error:
            notes.append(f"{name} is left out: {error}")
        else:
            kept.append(name)
    return kept, notes


def installed(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The peers whose package is there, and a note for each other."""
    kept = [name for name in names if find_spec(PEERS[name].package)]
    missing = [name for name in names if name not in kept]
    return kept, [f"{PEERS[name].title} is left out: {PEERS[name].package} is not installed." for name in missing]


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100, help="bits")
    parser.add_argument("--calls", type=int, default=50_000, help="after which a run is given up")
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
    errors = carry_out(table, tasks, options.jobs)
    lines = lines_of(table, tasks)
    failed = [f"{len(errors)} runs failed, and are tried again next time; the first: {errors[0]}"] if errors else []
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
        raise SystemExit("Stopped. What is finished is kept; the same command goes on from here.") from None
