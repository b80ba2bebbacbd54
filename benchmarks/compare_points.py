"""Compare the points that two versions of knobless ask for, to show that a change leaves them identical.

    python benchmarks/compare_points.py --before OLD/src --after NEW/src [--kinds "30 bits" ...] [--quick]

A cell is one run. The cells of the default search are the product of 14 kinds of space, four regimes (deterministic,
noisy, constrained, violations returned by the objective), five seeds, batches of 1 and 4, and the variants in
`VARIANTS`: failed and cancelled evaluations, fixed variables, an initial point, candidates asked for one by one.
Further cells have a stated algorithm (`ALGORITHMS`), or are whole runs of `minimize` (`WHOLE_RUNS`). The numbers of
evaluations are chosen so that every stage of the search is reached, and the change after it.

Each version runs in processes of its own, which use the public interface only. Of each point, as the objective gets it,
and of the number of points asked for at once, a digest is compared; at the end of a cell also θ, the numbers of
iterations and evaluations, the best and the recommended point. An exception is compared by its text. The exit status is
1 if any cell differs. `--quick` runs every eleventh cell. Nothing is stored.
"""

from __future__ import annotations

import argparse
import math
import os
import pickle
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SEEDS, BATCHES = range(5), (1, 4)
REGIMES = ("deterministic", "noisy", "constrained", "violations")
VARIANTS = ("plain", "failed", "cancelled", "fixed", "x0", "fixed in ask", "one by one")
SHAPES = ("separable", "quadratic", "rugged", "quadratic", "rugged")  # of the objective, by seed
FEASIBLE = (0.5, 0.85, 0.5, 0.98, 0.5)  # share of feasible points, by seed; with many, their search does not change
ALGORITHMS = ("pbil_lambda", "pbil_elitist", "p3", "cga")
DIGEST = np.uint64().nbytes  # per point
DECIMALS = 9  # of θ and of estimates of values
PENDING = 4  # candidates that are pending at once if they are asked for one by one
SHOWN_ERRORS = 5  # different exceptions that are printed per kind
QUICK = 11  # one in so many cells; it has no factor in common with the numbers of seeds, batches and so on


# Kinds of space.


class Evaluations(NamedTuple):
    """Numbers of evaluations by regime; `quadratic` is that of deterministic objectives of this shape if it is more."""

    deterministic: int
    noisy: int
    constrained: int
    violations: int
    quadratic: int = 0


EVALUATIONS = {
    "2 bits": Evaluations(60, 60, 60, 60),
    "5 bits": Evaluations(60, 90, 60, 60),
    # Bayesian optimization takes up to 300, then there are equal turns for 240; the study takes 470.
    "30 bits": Evaluations(600, 500, 400, 550, quadratic=850),
    # The study begins after 663 and takes 1,360.
    "51 bits": Evaluations(800, 900, 500, 800, quadratic=2200),
    # The study begins after 2,525 and takes 5,090.
    "100 bits": Evaluations(2700, 1600, 900, 1200, quadratic=7800),
    # Equal turns take 3,200. The study, which would begin after 40,100, is not reached.
    "400 bits": Evaluations(3600, 1200, 500, 900),
    # The guided climb takes 200, equal turns 240.
    "few choices": Evaluations(550, 400, 400, 500),
    "many choices": Evaluations(800, 1300, 600, 800),
    "subset": Evaluations(500, 300, 300, 400),
    "integers": Evaluations(400, 200, 250, 300),
    "floats": Evaluations(400, 200, 250, 300),
    "bits with one float": Evaluations(500, 420, 300, 400),
    # Each of the first two stages takes five per branch, of which there are eight.
    "conditional": Evaluations(400, 250, 200, 250),
    "conditional with floats": Evaluations(400, 250, 200, 250),
}


class Column(NamedTuple):
    """A variable, and the options of its parent with which it is active; without a parent, it is always active."""

    name: str
    variable: Any
    parent: str = ""
    options: tuple[Any, ...] = ()


class Kind(NamedTuple):
    """A kind of space: several named variables, or a single one."""

    columns: tuple[Column, ...]

    def space(self) -> Any:
        if len(self.columns) == 1:
            return self.columns[0].variable
        return {
            name: variable.when(**{parent: options}) if parent else variable
            for name, variable, parent, options in self.columns
        }

    def draw(self, rng: np.random.Generator) -> Any:
        """Return a random point."""
        point: dict[str, Any] = {}
        for name, variable, parent, options in self.columns:
            value = drawn(variable, rng)
            if not parent or point.get(parent) in options:
                point[name] = value
        return point if len(self.columns) > 1 else value

    def values(self, x: Any) -> np.ndarray:
        """Return the entries of a point as numbers; 0 for those of inactive variables."""
        if len(self.columns) == 1:
            return np.asarray(x, dtype=float)
        return np.concatenate([np.ravel(x.get(name, np.zeros(size(each)))) for name, each, *_ in self.columns])

    def entries(self, x: Any) -> dict[str, Any]:
        """Return the entries of a point by their names, as `fixed` has them; those of active variables only."""
        point = x if len(self.columns) > 1 else {"x": x}
        found: dict[str, Any] = {}
        for name, value in point.items():
            if np.ndim(value):
                found |= {f"{name}[{i}]": entry for i, entry in enumerate(value.tolist())}
            else:
                found[name] = value
        return found


@cache
def kinds() -> dict[str, Kind]:
    """Return the kinds of space by their names, those of `EVALUATIONS`."""
    import knobless as kl  # not above: only processes that run cells need it, each that of its version

    def of(*variables: Any) -> Kind:
        return Kind(tuple(Column(f"v{i}", variable) for i, variable in enumerate(variables)))

    def tree(*leaves: Any) -> Kind:
        """Return two choices, a third one below the first, and leaves that are active with options of these."""
        parents = [("model", (0,)), ("model", (1,)), ("model", (1, 2)), ("kernel", (0,)), ("filter", (1,))] * 2
        return Kind(
            (
                Column("model", kl.Choice(0, 1, 2)),
                Column("kernel", kl.Choice(0, 1, 2), "model", (2,)),
                Column("filter", kl.Choice(0, 1)),
                *(Column(f"v{i}", leaf, *parent) for i, (leaf, parent) in enumerate(zip(leaves, parents, strict=True))),
            )
        )

    return {
        **{f"{n} bits": of(kl.Binary(n)) for n in (2, 5, 30, 51, 100, 400)},
        "few choices": of(*[kl.Choice(*range(4))] * 10),  # 30 free parameters
        "many choices": of(*[kl.Choice(*range(5))] * 20),  # 80
        "subset": of(kl.Subset(20, (3, 8))),
        "integers": of(
            kl.Integer(0, 9),
            kl.Integer(-30, 30),
            kl.Integer(1, 1000, log=True),
            kl.Integer(0, 100, step=5),
            kl.Integer(0, 4, n=2),
        ),
        "floats": of(kl.Float(0.0, 1.0), kl.Float(1e-4, 1.0, log=True), kl.Float(-5.0, 5.0), kl.Float(0.0, 2.0, n=2)),
        "bits with one float": of(kl.Binary(30), kl.Float(0.0, 1.0)),
        "conditional": tree(*[kl.Choice(*range(4))] * 10),
        "conditional with floats": tree(
            kl.Float(0.0, 1.0),
            kl.Choice(0, 1, 2),
            kl.Float(1e-3, 1.0, log=True),
            kl.Integer(1, 20),
            kl.Float(-1.0, 1.0),
            kl.Choice(0, 1),
            kl.Binary(3),
            kl.Integer(0, 4),
            kl.Choice(0, 1),
            kl.Float(0.0, 1.0, step=0.25),
        ),
    }


def size(variable: Any) -> int:
    """Return the number of entries of a variable."""
    return variable.n or 1


def is_numeric(variable: Any) -> bool:
    return type(variable).__name__ in ("Integer", "Float")


def drawn(variable: Any, rng: np.random.Generator) -> Any:
    """Return a random value of a variable."""
    match type(variable).__name__:
        case "Binary":
            return rng.integers(0, 2, variable.n, dtype=np.int8)
        case "Subset":
            members = rng.permutation(variable.n)[: rng.integers(variable.low, variable.high + 1)]
            return np.isin(np.arange(variable.n), members)
        case "Choice":
            return variable.options[rng.integers(len(variable.options))]
    if variable.step is None:
        values = rng.uniform(variable.low, variable.high, variable.n)
    else:
        steps = rng.integers(0, (variable.high - variable.low) // variable.step + 1, variable.n)
        values = variable.low + variable.step * steps
    return values if variable.n else np.asarray(values).item()


def bounds(variable: Any) -> list[tuple[float, float]]:
    """Return the smallest and the largest value of each entry."""
    match type(variable).__name__:
        case "Binary" | "Subset":
            each = (0.0, 1.0)
        case "Choice":
            each = (0.0, len(variable.options) - 1.0)
        case _:
            each = (variable.low, variable.high)
    return [each] * size(variable)


# Objectives.


class Objective:
    """An objective of a kind of space: terms of its discrete entries, terms of its numbers, and a capacity.

    Parameters
    ----------
    name : str
        The kind of space.
    regime : str
        One of `REGIMES`.
    seed : int
        Seed of the coefficients and of the noise.
    """

    def __init__(self, name: str, regime: str, seed: int) -> None:
        self.kind, self.regime, self.seed, self.shape = kinds()[name], regime, seed, SHAPES[seed]
        self.rng = rng = np.random.default_rng([list(EVALUATIONS).index(name), seed])
        variables = [column.variable for column in self.kind.columns]
        self.low, self.high = np.transpose([each for variable in variables for each in bounds(variable)])
        is_number = np.repeat([is_numeric(each) for each in variables], [size(each) for each in variables])
        self.discrete, self.numbers = np.flatnonzero(~is_number), np.flatnonzero(is_number)
        n, m = len(self.discrete), len(self.numbers)
        k = 1 + int(self.high[self.discrete].max(initial=0))
        self.k = k
        self.best_codes, self.best_numbers = rng.integers(0, k, n), rng.uniform(0.1, 0.9, m)
        self.matrix = np.triu(rng.integers(-9, 10, (n, n))).astype(float)
        self.pairs = rng.integers(-9, 10, (n, k, k)).astype(float)
        self.table = rng.normal(size=(n, k**3))
        root = rng.normal(size=(m, m))
        self.bowl = root @ root.T + np.eye(m)
        self.weights = rng.integers(1, 10, n + m)
        loads = [self.load(self.kind.draw(rng)) for _ in range(200)]
        self.capacity = float(np.quantile(loads, FEASIBLE[seed]))

    def scaled(self, x: Any) -> np.ndarray:
        """Return the entries of a point, each between 0 and 1."""
        return (self.kind.values(x) - self.low) / (self.high - self.low)

    def load(self, x: Any) -> float:
        return float(self.weights @ self.scaled(x))

    def excess(self, x: Any) -> float:
        """Return by how much a point exceeds the capacity; a constraint."""
        return self.load(x) - self.capacity

    def differ(self, x: Any) -> bool:
        """Return whether the first and the third entry differ; a constraint that excludes the points of equal bits."""
        entries = self.scaled(x)[:3]
        return bool(entries[0] != entries[-1])

    @property
    def constraints(self) -> list[Callable[[Any], Any]]:
        if self.regime != "constrained":
            return []
        return [self.excess, self.differ] if self.seed % 2 else [self.excess]

    def value(self, x: Any) -> float:
        """Return the objective value without noise."""
        codes = self.kind.values(x)[self.discrete].astype(int)
        z = self.scaled(x)[self.numbers] - self.best_numbers
        rows = np.arange(len(codes))
        if self.shape == "separable":
            total = (codes != self.best_codes).sum() + 4.0 * (z * z).sum()
        elif self.shape == "quadratic":
            total = 4.0 * z @ self.bowl @ z
            total += codes @ self.matrix @ codes if self.k == 2 else self.pairs[rows, codes, np.roll(codes, 1)].sum()
        else:
            triples = codes + self.k * np.roll(codes, 1) + self.k**2 * np.roll(codes, 2)
            total = self.table[rows, triples].sum() + (z * z).sum() + 0.1 * (1.0 - np.cos(25.0 * z)).sum()
        coupled = codes[0] * z[0] if len(codes) and len(z) else 0.0
        return float(total + coupled)

    def __call__(self, x: Any) -> Any:
        """Return the objective value, or the value and the violation."""
        value = self.value(x)
        if self.regime == "violations":
            import knobless as kl

            pair = value, self.excess(x)
            return kl.Constrained(*pair) if hasattr(kl, "Constrained") else pair  # the latter for earlier versions
        if self.regime == "noisy":
            # With odd seeds one value in ten has an error, so that the noise is found late.
            return value + (float(self.rng.random() < 0.1) if self.seed % 2 else self.rng.normal())
        return value

    def feasible_point(self) -> Any:
        """Return a random point that satisfies the constraints."""
        rng = np.random.default_rng(self.seed)
        points = (self.kind.draw(rng) for _ in range(10_000))
        if self.excess in self.constraints:
            points = (x for x in points if self.excess(x) <= 0.0)
        if self.differ in self.constraints:
            points = (x for x in points if self.differ(x))
        return next(points)

    def fixed(self) -> dict[str, Any]:
        """Return a fourth of the variables of a feasible point, by their names."""
        entries = list(self.kind.entries(self.feasible_point()).items())
        chosen = np.random.default_rng([self.seed, 1]).permutation(len(entries))[: math.ceil(len(entries) / 4)]
        return dict(entries[i] for i in chosen)


# Runs.


class Cell(NamedTuple):
    """One run. `way` is "default", one of `ALGORITHMS`, or "minimize" with one of `WHOLE_RUNS` as its variant."""

    way: str
    regime: str
    variant: str
    batch: int
    seed: int

    def __str__(self) -> str:
        return f"{self.way}, {self.regime}, {self.variant}, batch {self.batch}, seed {self.seed}"


Answer = tuple[Any, Any]  # a candidate, and what is told for it


class Record:
    """What is compared of a run: the digests of its points, those of its end by name, and the text of its exception."""

    def __init__(self) -> None:
        self.points = bytearray()
        self.end: dict[str, bytes] = {}
        self.error = ""

    def add(self, x: Any, asked: int) -> None:
        """Add a point, which was asked for together with so many."""
        self.points += digest((x, asked))

    def difference(self, other: Record) -> str:
        """Return the first difference to the record of the other version, or an empty string."""
        ours, theirs = (np.frombuffer(bytes(record.points), np.uint64) for record in (self, other))
        both = min(len(ours), len(theirs))
        unequal = np.flatnonzero(ours[:both] != theirs[:both])
        if len(unequal):
            return f"evaluation {unequal[0] + 1} of {len(ours)}"
        if self.error != other.error:
            return f"exception after {len(ours)} and {len(theirs)}: {self.error or 'none'} | {other.error or 'none'}"
        if len(ours) != len(theirs):
            return f"evaluation {both + 1}: the runs have {len(ours)} and {len(theirs)}"
        names = [name for name in self.end if self.end[name] != other.end[name]]
        return f"all {len(ours)} evaluations are equal, at the end differ: {', '.join(names)}" if names else ""


def plain(x: Any) -> Any:
    """Return an object as one of built-in types, with the types of arrays."""
    if isinstance(x, np.ndarray):
        return x.dtype.str, x.shape, x.tobytes()
    if isinstance(x, dict):
        return [(name, plain(value)) for name, value in x.items()]
    if isinstance(x, (list, tuple)):
        return [plain(each) for each in x]
    return x


def digest(x: Any) -> bytes:
    return blake2b(repr(plain(x)).encode(), digest_size=DIGEST).digest()


def cells(name: str) -> Iterator[Cell]:
    """Yield the cells of a kind."""
    for regime, variant, batch, seed in product(REGIMES, VARIANTS, BATCHES, SEEDS):
        yield Cell("default", regime, variant, batch, seed)
    has_numbers = any(is_numeric(column.variable) for column in kinds()[name].columns)
    is_conditional = any(column.parent for column in kinds()[name].columns)
    for way, batch, seed in product(ALGORITHMS, BATCHES, SEEDS):
        if way != "p3" or not (has_numbers or is_conditional):
            yield Cell(way, REGIMES[seed % len(REGIMES)], VARIANTS[(seed + batch) % 3], batch, seed)
    for (variant, (regime, _)), seed in product(WHOLE_RUNS.items(), SEEDS):
        yield Cell("minimize", regime, variant, BATCHES[seed % len(BATCHES)], seed)


def record_of(name: str, cell: Cell) -> Record:
    """Run a cell."""
    record = Record()
    run = whole_run if cell.way == "minimize" else asked_run
    try:
        run(name, cell, record)
    except Exception as error:
        record.error = f"{type(error).__name__}: {error}"
    return record


def evaluations(name: str, cell: Cell) -> int:
    """Return the number of evaluations of a cell."""
    number = getattr(EVALUATIONS[name], cell.regime)
    if cell.regime == "deterministic" and SHAPES[cell.seed] == "quadratic":
        number = max(number, EVALUATIONS[name].quadratic)
    return min(number, {"default": number, "minimize": 1200}.get(cell.way, 400))


def asked_run(name: str, cell: Cell, record: Record) -> None:
    """Run an optimizer by asking and telling."""
    import knobless as kl

    objective, space = Objective(name, cell.regime, cell.seed), kinds()[name].space()
    opt = kl.Optimizer(
        space,
        None
        if cell.way == "default"
        else getattr(getattr(kl, "algorithms", kl), cell.way)(space),  # the latter for earlier versions
        objective.feasible_point() if cell.variant == "x0" else None,
        cell.seed,
        cell.batch,
        constraints=objective.constraints or None,
        fixed=objective.fixed() if cell.variant == "fixed" else None,
    )
    fixed = objective.fixed() if cell.variant == "fixed in ask" else None
    chance = np.random.default_rng(cell.seed)
    budget, n_asked, n_rounds = evaluations(name, cell), 0, 0
    pending: list[Answer] = []
    while n_asked < budget:
        k = 1 if cell.variant == "one by one" else None
        batch = opt.ask(k, fixed=fixed if n_rounds % 3 == 2 else None)
        n_rounds += 1
        for candidate in batch:
            record.add(candidate.x, len(batch))
            pending.append((candidate, value_of(objective, candidate.x, cell, n_asked)))
            n_asked += 1
        if not pending:
            break
        if cell.variant == "one by one":
            if len(pending) == PENDING or not len(batch):
                tell(opt, [pending.pop(chance.integers(len(pending)))])
        elif cell.variant == "cancelled":
            # One in eight, and with one seed all of the first iterations.
            is_cancelled = chance.random(len(pending)) < (1.0 if cell.seed == 4 and n_rounds <= 3 else 0.125)
            opt.cancel([pending[i][0] for i in np.flatnonzero(is_cancelled)])
            tell(opt, [pending[i] for i in np.flatnonzero(~is_cancelled)])
            pending = []
        elif cell.batch > 1:  # in two parts, and in another order than that of the candidates
            tell(opt, pending[1::2])
            tell(opt, pending[::-2] if len(pending) % 2 else pending[-2::-2])
            pending = []
        else:
            tell(opt, pending)
            pending = []
    recommended, best = opt.recommended, opt.best
    record.end = {
        "θ": digest(np.round(opt.theta, DECIMALS) + 0.0),
        "iterations": digest(opt.nit),
        "evaluations": digest((opt.nfev, opt.failures)),
        "deterministic": digest(opt.deterministic),
        "best": digest(best and (best.x, best.fun, best.violation)),
        "recommended": digest(recommended and (recommended.x, round(recommended.fun, DECIMALS), recommended.violation)),
    }


def tell(opt: Any, answers: list[Answer]) -> None:
    if answers:
        opt.tell([candidate for candidate, _ in answers], [value for _, value in answers])


def value_of(objective: Objective, x: Any, cell: Cell, asked: int) -> Any:
    """Return what is told for a point: one in eight fails, and with one seed all of the first ten do."""
    value = objective(x)
    if cell.variant == "failed":
        chance = digest(x)[0] % 16
        if chance == 0 or (cell.seed == 4 and asked < 10):
            return math.nan
        if chance == 1:
            return RuntimeError("failed")
    return value


# By name: the regime, and the arguments of `minimize` for the objective.
WHOLE_RUNS: dict[str, tuple[str, Callable[[Objective], dict[str, Any]]]] = {
    "stated deterministic": ("deterministic", lambda objective: {"deterministic": True}),
    "stated noisy": ("noisy", lambda objective: {"deterministic": False}),
    "nothing stated": ("noisy", lambda objective: {}),
    "target": ("deterministic", lambda objective: {"target": low_value(objective)}),
    "target under noise": ("noisy", lambda objective: {"target": low_value(objective)}),
    "stall": ("deterministic", lambda objective: {"stall": 50}),
    "known points": ("deterministic", lambda objective: {"known": known_points(objective)}),
    "constraints": ("constrained", lambda objective: {"constraints": objective.constraints}),
    "violations": ("violations", lambda objective: {"deterministic": True}),
    "maximized": ("noisy", lambda objective: {"maximize": True}),
}


def low_value(objective: Objective) -> float:
    """Return the lowest value, without noise, of 200 random points."""
    rng = np.random.default_rng(objective.seed)
    return min(objective.value(objective.kind.draw(rng)) for _ in range(200))


def known_points(objective: Objective) -> list[tuple[Any, float]]:
    """Return 20 random points with their values."""
    rng = np.random.default_rng(objective.seed)
    points = [objective.kind.draw(rng) for _ in range(20)]
    return [(x, objective.value(x)) for x in points]


def whole_run(name: str, cell: Cell, record: Record) -> None:
    """Run `minimize` or `maximize`."""
    import knobless as kl

    objective = Objective(name, cell.regime, cell.seed)
    given = WHOLE_RUNS[cell.variant][1](objective)
    maximized = given.pop("maximize", False)

    def fun(x: Any) -> Any:
        record.add(x, 0)
        return -objective(x) if maximized else objective(x)

    optimize = kl.maximize if maximized else kl.minimize
    budget = evaluations(name, cell)
    result = optimize(fun, objective.kind.space(), budget=budget, rng=cell.seed, batch=cell.batch, **given)
    observed = "observed" if hasattr(result, "observed_x") else "lowest"  # the latter for earlier versions
    best = getattr(result, f"{observed}_x"), getattr(result, f"{observed}_fun")
    record.end = {
        "status": digest(str(result.status)),
        "iterations": digest(result.nit),
        "evaluations": digest((result.nfev, result.failures)),
        "deterministic": digest(result.deterministic),
        "best": digest(best),
        "recommended": digest((result.x, round(result.fun, DECIMALS), result.violation)),
        "mode": digest((result.mode, result.mode_fun)),
    }


# Processes.


def chosen_cells(name: str, quick: bool) -> list[Cell]:
    """Return the cells of a kind that are run; the first one depends on the kind, so that their seeds vary."""
    return list(cells(name))[list(EVALUATIONS).index(name) % QUICK :: QUICK] if quick else list(cells(name))


def run_cells(name: str, quick: bool, path: Path) -> None:
    """Run the cells of a kind with the version that this process imports, and write their records to a file."""
    import knobless as kl

    source = Path(kl.__file__).parents[1]
    if str(source) != os.environ["PYTHONPATH"]:
        raise ImportError(f"expected knobless of {os.environ['PYTHONPATH']}, got that of {source}")
    warnings.simplefilter("ignore")  # that most evaluations failed
    path.write_bytes(pickle.dumps({str(cell): record_of(name, cell) for cell in chosen_cells(name, quick)}))


def records(source: Path, name: str, quick: bool, path: Path) -> dict[str, Record]:
    """Return the records of the cells of a kind with the version of `source`, which are run in a new process."""
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",  # the source trees are only read
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    command = [sys.executable, __file__, "--cells", name, str(path), *(["--quick"] if quick else [])]
    subprocess.run(command, env=environment, check=True)
    return pickle.loads(path.read_bytes())


def compare(name: str, before: dict[str, Record], after: dict[str, Record]) -> int:
    """Print the cells of a kind that differ; return their number."""
    different = {cell: text for cell in before if (text := before[cell].difference(after[cell]))}
    n_points = sum(len(record.points) // DIGEST for record in before.values())
    errors = [record.error for record in before.values() if record.error]
    line = f"{name:>24}: {len(before) - len(different):3} of {len(before):3} cells identical, {n_points:7,} evaluations"
    print(line + (f", {len(errors)} exceptions" if errors else ""), flush=True)
    for error in sorted(set(errors))[:SHOWN_ERRORS]:
        print(f"    before: {error}")
    for cell, text in different.items():
        print(f"    {cell}: {text}", flush=True)
    return len(different)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="folder src of one version")
    parser.add_argument("--after", type=Path, help="folder src of the other version")
    parser.add_argument("--kinds", nargs="+", choices=list(EVALUATIONS), default=list(EVALUATIONS), metavar="KIND")
    parser.add_argument("--quick", action="store_true", help=f"run one cell in {QUICK}")
    parser.add_argument("--processes", type=int, default=2, help="that run at once")
    parser.add_argument("--cells", nargs=2, help=argparse.SUPPRESS)  # of a process: the kind, and the file to write
    options = parser.parse_args()
    if options.cells:
        run_cells(options.cells[0], options.quick, Path(options.cells[1]))
        return 0
    if options.before is None or options.after is None:
        parser.error("--before and --after: expected the folders src of two versions")
    start, n_cells, n_different = time.perf_counter(), 0, 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.processes) as pool:
        jobs = {
            name: [
                pool.submit(records, source.resolve(), name, options.quick, Path(folder, f"{name}, {version}"))
                for version, source in (("before", options.before), ("after", options.after))
            ]
            for name in options.kinds
        }
        try:
            for name, both in jobs.items():
                before, after = (job.result() for job in both)
                n_cells += len(before)
                n_different += compare(name, before, after)
        finally:
            pool.shutdown(cancel_futures=True)
    print(f"{n_cells - n_different} of {n_cells} cells identical, {time.perf_counter() - start:.0f} s")
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())
