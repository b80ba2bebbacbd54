"""What the comparisons share: the functions of bits, the counting objective, the peers, runs in processes, commands.

Every run goes through `Objective`, which counts calls and ends the run at the very call that meets the optimum or is
the last one allowed. No algorithm may benefit from its starting point: every point is XORed with bits drawn by function
and seed, the same for all. Otherwise nevergrad, whose first point is all zeros, would solve the Ising functions in one
call. The other peers treat both values of a bit alike, so that nothing changes for them.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import knobless as kl
from harness import Table, read_csv, write_csv
from knobless.problems import LeadingOnes, OneMax

CLOSE = 1e-9  # a cost this near to the optimum's, which is 0, meets it; times the optimum where that is above 1
PBO = tuple(f"F{i}" for i in range(1, 26))


# Objectives.


@dataclass(frozen=True)
class Function:
    """A cost of bits: the distance of the value from the optimum, or from 0 if that is unknown.

    `sense` is 1 for maximization, and -1 for minimization. No cost is as high as `most`. If
    variables have more than two options, `sizes` has the number of options of each.
    """

    label: str
    value: Callable[[Any], float]
    optimum: float | None
    sense: int = 1
    most: float | None = None
    sizes: tuple[int, ...] = ()

    def cost(self, x: Any) -> float:
        return self.sense * (self.optimum or 0.0) - self.sense * self.value(x)

    def value_of(self, cost: float) -> float:
        return (self.optimum or 0.0) - self.sense * cost


def function(name: str, n: int) -> Function:
    """Return a function by name; raise ValueError if it has no such n."""
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
    """The optimum according to ioh, if correct: compared with enumeration for n = 9, 10, 11, 12 and 16."""
    wrong = math.isinf(stated) or (number == 24 and n % 5) or (number == 23 and n < 16)
    return None if wrong else float(stated)


# Counting and timing.


class Done(BaseException):
    """The optimum is met or the calls are exhausted. Not an `Exception`, which `minimize` would count as a failure."""


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
    """The objective of a peer: returns the cost of a point, counts calls, and raises `Done` at the end of the run.

    `clock` measures the peer's own time, without the time spent in here.
    """

    def __init__(self, function: Function, mask: Any, calls: int) -> None:
        self.function, self.mask, self.calls = function, mask, calls
        self.target = -math.inf if function.optimum is None else CLOSE * max(1.0, abs(function.optimum))
        self.nfev, self.best, self.best_at, self.seconds = 0, math.inf, 0, 0.0
        self.clock = Clock()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Options of each variable."""
        return self.function.sizes or (2,) * self.mask.size

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
        if x.shape != self.mask.shape:  # ioh would return NaN
            raise ValueError(f"x: expected {self.mask.size} variables, got the shape {x.shape}")
        cost = self.function.cost(x ^ self.mask)
        self.nfev += 1
        if cost < self.best:
            self.best, self.best_at = cost, self.nfev
        if self.solved or self.nfev == self.calls:
            raise Done
        return cost


Algorithm = Callable[[Objective, int, int], None]  # the objective, n, a seed

# The peers: each calls f until that raises `Done`, with `f.clock` running outside of f.


def pbil_lambda(f: Objective, n: int, seed: int) -> None:
    space = kl.Binary(n)
    opt = kl.Optimizer(space, kl.pbil_lambda(space), rng=seed)
    while True:
        with f.clock:
            batch = opt.ask()
        values = [f(x) for x in batch.x]
        with f.clock:
            opt.tell(batch, values)


def climb(mutate: Callable[[Any, Any], Any], f: Objective, n: int, seed: int) -> None:
    """Change the current point and accept a point that is not worse."""
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

    opt = CatCMAwM(c_space=list(f.sizes), seed=seed)
    while True:
        with f.clock:
            solutions = [opt.ask() for _ in range(opt.population_size)]
        told = [(solution, f(solution.c.argmax(axis=1))) for solution in solutions]
        with f.clock:
            opt.tell(told)


def nevergrad(name: str, f: Objective, n: int, seed: int) -> None:
    import nevergrad as ng

    if f.function.sizes:  # with Choice, most calls would be repeated points
        space: Any = ng.p.Tuple(*(ng.p.TransitionChoice(range(k)) for k in f.sizes))
    else:  # the default draws again at each access, and stalls
        space = ng.p.Choice([0, 1], repetitions=n, deterministic=True)
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
        if population is None or not len(population):  # no child that is not in the population already was found
            return
        values = np.array([f(x) for x in population.get("X")])
        with f.clock:
            Evaluator().eval(StaticProblem(problem, F=values[:, None]), population)
            ga.tell(infills=population)


def gomea(f: Objective, n: int, seed: int) -> None:
    import gomea

    # It maximizes, and fails for negative values; no cost is as high as this.
    offset = 10.0 * n * n if f.function.most is None else f.function.most

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
    """A peer in the table; `cost` is an estimate of its µs per call, used to start long runs first."""

    title: str
    package: str
    run: Algorithm
    timed: str
    cost: float


PEERS = {
    "pbil-lambda": Peer("PBIL-λ", "knobless", pbil_lambda, "ask and tell", 20),
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


Row = dict[str, Any]
RESULTS = ("end", "nfev", "best", "best_at", "overhead_us", "seconds", "objective_seconds")
STOPPED = "Stopped. What is finished is kept; the same command continues from here."


def mask(source: np.random.SeedSequence, n: int) -> Any:
    return np.random.default_rng(source).integers(0, 2, n, dtype=np.int8)


def compete(f: Objective, algorithm: Algorithm, source: np.random.SeedSequence) -> Row:
    """Outcome of one run. `best` is a cost."""
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    try:
        algorithm(f, f.mask.size, int(source.generate_state(1)[0] >> 1))
        end = "ended early"
    except Done:
        end = "optimum" if f.solved else "budget"
    return {
        "end": end,
        "nfev": f.nfev,
        "best": repr(float(f.best)),
        "best_at": f.best_at,
        "overhead_us": f"{f.clock.seconds / f.nfev * 1e6:.3f}",
        "seconds": f"{time.perf_counter() - start:.3f}",
        "objective_seconds": f"{f.seconds:.3f}",
    }


def carry_out(tasks: Sequence[Any], run: Callable[[Any], Row], add: Callable[[Row], None], jobs: int) -> list[str]:
    """Make these runs in processes, in order, and add each row as it arrives; return error messages."""
    errors = []
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # for the processes that follow
    quietly = (signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a process without a traceback
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=signal.signal, initargs=quietly)
    try:
        futures = {pool.submit(run, task): task for task in tasks}
        for future in tqdm(as_completed(futures), total=len(tasks), unit=" runs", smoothing=0.0):
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                raise SystemExit(
                    "A worker process ended unexpectedly. Repeat the command to resume, or leave out a peer."
                )
            if error is None:
                add(future.result())
            else:
                errors.append(f"{futures[future]}: {error!r}")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return errors


def complete_runs(
    path: Path,
    tasks: Sequence[Any],
    results: Sequence[str],
    run: Callable[[Any], Row],
    jobs: int,
    anew: bool = False,
) -> list[dict[str, str]]:
    """Make the runs that a CSV file does not contain yet, or all of them anew; return all its rows.

    A task is a named tuple that identifies a run. `results` are the columns after those of the task.
    """
    fields = tasks[0]._fields
    keys = {tuple(map(str, task)): task for task in tasks}
    if anew and path.exists():
        kept = [row for row in read_csv(path) if tuple(row[name] for name in fields) not in keys]
        write_csv(path, kept, (*fields, *results))
    runs = Table(path, fields, results)
    pending = [task for key, task in keys.items() if key not in runs]
    print(f"{len(tasks) - len(pending)} of {len(tasks)} runs are recorded")
    errors = carry_out(pending, run, runs.add, jobs)
    if errors:
        raise SystemExit(f"{len(errors)} runs failed; the first: {errors[0]}")
    return read_csv(path)


def run_command(
    parser: argparse.ArgumentParser, name: str, commands: Mapping[str, Callable[[argparse.Namespace], None]]
) -> None:
    """Add the options of all comparisons to the parser, and run the command that is given; Ctrl-C ends it.

    Results are in docs/peers/`name`, those for tuning in out/`name`.
    """
    parser.add_argument("command", choices=commands)
    parser.add_argument("--tune", action="store_true", help="problems for tuning instead of those that are reported")
    parser.add_argument("--anew", action="store_true", help="repeat runs that are recorded")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args()
    folder = "out" if options.tune else "docs/peers"
    options.out = options.out or Path(__file__).parents[1] / folder / name
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        commands[options.command](options)
    except KeyboardInterrupt:
        raise SystemExit(STOPPED) from None


# Output.


def grid(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([padded[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *padded[1:]])


def installed(names: Sequence[str], peers: Mapping[str, Peer] = PEERS) -> tuple[list[str], list[str]]:
    """Return the peers whose package is installed, and a note for each of the others."""
    kept = [name for name in names if find_spec(peers[name].package)]
    missing = [peers[name] for name in names if name not in kept]
    return kept, [f"{peer.title} is left out: {peer.package} is not installed." for peer in missing]
