"""Golden records: fixed seeds keep giving the same points, values, λ and θ.

`trajectory` runs an algorithm alone, `drive` runs an `Optimizer`, `solve` runs `minimize` or `maximize`. All of them
return the same kind of record, and each file in `tests/golden` holds the records of one algorithm or interface.
Points, values and λ must be identical, θ must agree within 1e-12. A model is fit by a library of linear algebra, which
may round differently on another machine: runs with a model are over bits and choices, whose points rarely change then.

A difference is a change that users see: a seed gives another run. If it is intended, rewrite all files with

    python tests/test_golden.py --write

and give the reason in the commit message.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import knobless as kl
from conftest import SPACES, briefly_modeled, members_alone
from knobless.algorithms import IGO, SNR, BestSoFar, LastBest, Truncation, cga, p3, pbil, pbil_elitist, umda
from knobless.core.rng import Stream
from knobless.families import Axis, Bernoulli, Categorical, ConditionalBernoulli, Gaussian, Product

GOLDEN = Path(__file__).parent / "golden"
SEEDS = (0, 1)
GROUP = 25  # evaluations or steps per digest
TOLERANCE = 1e-12  # of theta


# Records.


def text(x):
    """Return a point as text; floats have six digits because cos and log differ in the last bit between machines."""
    if isinstance(x, dict):
        return " ".join(f"{name}={text(value)}" for name, value in x.items())
    if isinstance(x, np.ndarray):
        return ("" if x.dtype.kind in "biu" else ",").join(map(text, x.tolist()))
    return f"{x + 0.0:.6g}" if isinstance(x, float) else str(x)


def digests(lines):
    """Return one digest per group of lines, so that the place of the first difference is known."""
    groups = ["\n".join(lines[i : i + GROUP]) for i in range(0, len(lines), GROUP)]
    return " ".join(hashlib.sha256(group.encode()).hexdigest()[:8] for group in groups)


class Record:
    """The evaluations of a run in order, and λ, θ and what else is known after each iteration or step."""

    def __init__(self):
        self.evaluations, self.lam, self.theta, self.steps = [], [], [], []

    def evaluated(self, x, value):
        self.evaluations.append(f"{text(x)} -> {value}")

    def stepped(self, lam, theta, *known):
        self.lam.append(lam)
        self.theta.append(" ".join(map(repr, theta.tolist())))
        self.steps.append(" ".join(map(text, known)))

    def data(self, **outcome):
        """Return entries of short text; the readable ones come before the digests of all evaluations."""
        lam = [(lam, len(list(group))) for lam, group in groupby(self.lam)]
        return {
            "first": self.evaluations[:3],
            "last": self.evaluations[-1],
            "count": len(self.evaluations),
            "lam": " ".join(f"{lam}x{n}" if n > 1 else f"{lam}" for lam, n in lam),
            **outcome,
            "evaluations": digests(self.evaluations),
            "steps": digests(self.steps),
            "theta early": self.theta[len(self.theta) // 10],
            "theta": self.theta[-1],
        }


def compare(found, golden):
    assert found.keys() == golden.keys()
    for part, expected in golden.items():
        if part.startswith("theta"):
            theta = np.array([found[part].split(), expected.split()], dtype=float)
            np.testing.assert_allclose(*theta, rtol=0.0, atol=TOLERANCE, err_msg=part)
        else:
            assert found[part] == expected, part


# Algorithms alone.


def ties(x):
    """Return values with some structure, some roughness and many ties: numbers are seen in cells of a tenth."""
    cells = np.floor(np.asarray(x, dtype=float) * 10.0)
    return np.abs(cells[:, 1:] - cells[:, :-1]).sum(axis=1) + cells[:, 0] - 3.0 * (cells.sum(axis=1) % 3.0)


def plateaus(x):
    """Return few different values: in many iterations all of them are equal."""
    return np.floor(ties(x) / 40.0)


def failures(x):
    """Return NaN and infinite values among the others, and iterations in which every evaluation fails."""
    f, count = ties(x), np.floor(np.asarray(x, dtype=float) * 10.0).sum(axis=1) // 10.0
    f[count % 3.0 == 0.0] = np.nan
    f[count % 7.0 == 1.0] = np.inf
    return f


HARD = (ties, plateaus, failures)


def interactions(x):
    """Return values of a quadratic function of bits."""
    i = np.arange(x.shape[1])
    return ((x @ (np.outer(i + 2, i + 3) * 7 % 19 - 9)) * x).sum(axis=1).astype(float)


def trajectory(algorithm, objective, seed, iterations):
    record, rng, state = Record(), Stream.of(seed), algorithm.init()
    for _ in range(iterations):
        x = algorithm.ask(state, rng)
        f = objective(x)
        for row, value in zip(x, f.tolist(), strict=True):
            record.evaluated(row, value)
        state = algorithm.tell(state, x, f)
        record.stepped(len(x), state.theta, len(record.evaluations))
    return record.data()


BITS = Bernoulli(15)
CHOICES = Product((Categorical(4, 3), Categorical(3, 5)))
BITS_AND_CHOICES = Product((Bernoulli(8), Categorical(3, 4)))
NUMBERS = Gaussian((Axis(), Axis(0.05, 0.95, cell=0.1), Axis(0.2, 0.98, 0.6, 3.0)))
MIXED = Product((Bernoulli(5), Categorical(2, 3), NUMBERS))
SPACE = kl.Space(
    layers=kl.Binary(5),
    act=kl.Choice("relu", "tanh", "gelu"),
    width=kl.Integer(1, 64),
    momentum=kl.Float(0.0, 1.0),
    lr=kl.Float(1e-4, 1e-1, log=True),
)
SUBSETS = Product((ConditionalBernoulli(9, 3, 3), ConditionalBernoulli(6, 1, 4), Categorical(2, 3)))
PAPER = {"bits": BITS, "choices": CHOICES, "mixed": MIXED}


def elitist(rule, family):
    """Return Truncation with an adaptive λ, a combination that no recipe has."""
    return IGO(family, Truncation(1), SNR(eps=0.3, lam_max=12), rule)


BRANCHES = SPACES["branches"].family


def noisy(family):
    return kl.search(family, deterministic=False)


def constrained(family):
    return briefly_modeled(family, constrained=True)


def trajectories(recipe, families, objectives=(ties,), iterations=60):
    return {
        f"{name} {objective.__name__} {seed}": partial(trajectory, recipe(family), objective, seed, iterations)
        for name, family in families.items()
        for objective in objectives
        for seed in SEEDS
    }


# Runs of Optimizer.


def bumpy(x):
    """Return a value of a binary point, with ties and a deceptive basin."""
    return float(np.count_nonzero(x[1:] != x[:-1]) + (len(x) if not x.any() else x.sum() % 5))


def coarse(x):
    """Return one of four values of a binary point: the best value so far is often met again."""
    return float(x.sum() // 4)


def cost(x):
    """Return a value of a point of SPACE, a whole number."""
    bits = np.count_nonzero(x["layers"][1:] != x["layers"][:-1]) + 3 * (x["act"] != "tanh")
    numbers = (abs(x["width"] - 20) // 4, 8.0 * abs(x["momentum"] - 0.4), 4.0 * abs(np.log10(x["lr"]) + 2.5))
    return float(bits + sum(map(np.floor, numbers)))


def broken(x):
    """Return NaN or infinity at some points and raise at others."""
    match int(x.sum()) % 5:
        case 1:
            return float("nan")
        case 2:
            return float("inf")
        case 3:
            raise ValueError("infeasible")
    return bumpy(x)


def in_order(opt, tell, pending, step):
    tell(opt.ask())


def shuffled(opt, tell, pending, step):
    """Tell one candidate at a time, in another order than asked."""
    for candidate in sorted(opt.ask(), key=lambda candidate: candidate.id * 5 % 7):
        tell([candidate])


def late(opt, tell, pending, step):
    """Ask for more than λ candidates and tell some of them in later iterations, newest first."""
    pending += opt.ask(opt.lam + 3)
    for candidate in sorted(pending, key=lambda candidate: -candidate.id):
        if candidate.id % 4 != step % 4:
            tell([candidate])
            pending.remove(candidate)


def canceled(opt, tell, pending, step):
    """Give up a third of the candidates, and now and then all of an iteration."""
    batch = opt.ask()
    lost = [candidate for candidate in batch if candidate.id % 3 == 0 or step % 5 == 4]
    opt.cancel(lost)
    tell([candidate for candidate in batch if candidate not in lost])


def added(opt, tell, pending, step):
    """Add points from elsewhere between the iterations: bad ones, failures and good ones."""
    if step % 4 == 1:
        x = np.arange(12) // (step % 5 + 1) % 2
        opt.add(x, (50.0, float("nan"), 2.0)[step // 4 % 3])
    tell(opt.ask())


def saved(opt, tell, pending, step):
    """Interrupt an iteration by a save and a load."""
    batch = list(opt.ask())
    tell(batch[:1])
    with tempfile.TemporaryDirectory() as folder:
        opt.save(Path(folder, "run"))
        opt = kl.Optimizer.load(Path(folder, "run"), opt.space)
    tell(batch[1:], opt)
    return opt


def drive(step, objective, space, budget, record=None, **options):
    """Run steps until `budget` evaluations are told; with a record, continue it."""
    opt, record, pending = kl.Optimizer(space, **options), record or Record(), []

    def tell(candidates, to=None):
        values = []
        for candidate in candidates:
            try:
                values.append(objective(candidate.x))
            except ValueError as error:
                values.append(error)
            record.evaluated(candidate.x, values[-1])
        (to or opt).tell(candidates, values)

    number = 0
    while opt.nfev < budget:
        opt = step(opt, tell, pending, number) or opt
        best = (opt.best or (None, None))[:2]
        record.stepped(opt.lam, opt.theta, *best, opt.nfev, opt.nit, opt.failures)
        number += 1
    opt.close()
    x, fun, _ = opt.best
    return record.data(
        x=text(x),
        fun=fun,
        nfev=opt.nfev,
        nit=opt.nit,
        failures=opt.failures,
        mode=text(opt.mode),
        mode_fun=text(opt.mode_fun),
        eps=text(opt.eps),
    )


def reopened(objective, space, budgets, **options):
    """Run on one journal with several optimizers; what is pending at the end of one is handed out by the next."""
    with tempfile.TemporaryDirectory() as folder:
        options |= {"record": Record(), "journal": Path(folder, "run.sqlite")}
        return [drive(late, objective, space, budget, **options) for budget in budgets][-1]


ONES, START = np.ones(12, dtype=np.int8), np.array([1, 0] * 6, dtype=np.int8)
POINT = {"layers": np.array([1, 0, 1, 0, 1]), "act": "gelu", "width": 40, "momentum": 0.75, "lr": 0.03}
TWELVE = kl.Binary(12)
PBIL_BITS, PBIL_MIXED = ({"algorithm": kl.pbil_lambda(space)} for space in (TWELVE, SPACE))
ALONE = {"algorithm": members_alone(TWELVE), "deterministic": True}
FIVE = kl.Binary(5)
FIVES = kl.Space(a=kl.Binary(5), b=kl.Choice(*"uvwxy"), c=kl.Choice(*"pqr"))


def fives(x):
    return bumpy(x["a"]) + 2.0 * (x["b"] != "w") + float(ord(x["c"]) * x["a"].sum() % 3)


OPTIMIZER = {
    "in order": partial(drive, in_order, bumpy, TWELVE, 150, **PBIL_BITS, rng=0),
    "in order, mixed": partial(drive, in_order, cost, SPACE, 150, **PBIL_MIXED, rng=1),
    "shuffled": partial(drive, shuffled, bumpy, TWELVE, 150, **PBIL_BITS, rng=0, batch=3),
    "more than lam": partial(drive, late, bumpy, TWELVE, 150, **PBIL_BITS, rng=2),
    "more than lam, mixed": partial(drive, late, cost, SPACE, 150, **PBIL_MIXED, rng=19, batch=4),
    "more than lam, ties": partial(drive, late, coarse, TWELVE, 100, **PBIL_BITS, rng=17, batch=4),
    "cancel": partial(drive, canceled, bumpy, TWELVE, 150, **PBIL_BITS, rng=4, batch=4),
    "add": partial(drive, added, bumpy, TWELVE, 100, **PBIL_BITS, rng=5),
    "failures": partial(drive, shuffled, broken, TWELVE, 100, **PBIL_BITS, rng=6, x0=START, batch=4),
    "x0, batch": partial(drive, in_order, cost, SPACE, 100, **PBIL_MIXED, rng=7, x0=POINT, batch=5),
    "save and load": partial(drive, saved, bumpy, TWELVE, 100, **PBIL_BITS, rng=8, batch=3),
    "journal reopened": partial(reopened, bumpy, TWELVE, (30, 70, 150), **PBIL_BITS, rng=9, batch=3),
    "deterministic": partial(drive, in_order, bumpy, TWELVE, 150, **ALONE, rng=10),
    "deterministic, choices": partial(
        drive, in_order, fives, FIVES, 150, algorithm=members_alone(FIVES), rng=11, deterministic=True, batch=3
    ),
    "deterministic, mixed": partial(drive, shuffled, cost, SPACE, 150, rng=12, deterministic=True, x0=POINT),
    "deterministic, more than lam": partial(drive, late, bumpy, TWELVE, 300, **ALONE, rng=13, batch=4),
    "deterministic, ties": partial(drive, shuffled, coarse, TWELVE, 100, **ALONE, rng=18, batch=6),
    "deterministic, cancel": partial(drive, canceled, bumpy, TWELVE, 100, **ALONE, rng=14, batch=4),
    "deterministic, add": partial(drive, added, bumpy, TWELVE, 200, **ALONE, rng=15),
    "deterministic, journal reopened": partial(reopened, bumpy, TWELVE, (90, 170, 300), **ALONE, rng=16, batch=3),
    "not declared, mixed": partial(drive, shuffled, cost, SPACE, 150, rng=21, batch=3),
}


# Runs of minimize and maximize.


def solve(function, objective, space, budgets=(150,), journal=False, vectorized=False, **options):
    """Run once per budget, on one journal if there is one; the record has the evaluations of all runs."""
    record = Record()

    def evaluate(x):
        value = None
        try:
            value = objective(x)
        finally:
            record.evaluated(x, value)
        return value

    def evaluate_all(x):
        return np.array([evaluate(row) for row in x])

    def callback(info):
        record.stepped(info.lam, info.theta, info.best, info.nfev, info.iteration)

    with tempfile.TemporaryDirectory() as folder:
        if journal:
            options["journal"] = Path(folder, "run.sqlite")
        for budget in budgets:
            fun = evaluate_all if vectorized else evaluate
            result = function(fun, space, budget=budget, vectorized=vectorized, callback=callback, **options)
    return record.data(
        x=text(result.x),
        fun=str(result.fun),  # NaN equals nothing
        nfev=result.nfev,
        nit=result.nit,
        failures=result.failures,
        status=str(result.status),
        mode=text(result.mode),
        mode_fun=text(result.mode_fun),
    )


def eager(function, points):
    """Return the values of all points at once, as the map of a pool does."""
    return [function(point) for point in points]


def never(x):
    return float("nan")


KNOWN = ((ONES, 2.0), (START, 11.0), (ONES, float("nan")))
MINIMIZE = {
    "plain": partial(solve, kl.minimize, bumpy, TWELVE, **PBIL_BITS, rng=0),
    "plain, mixed": partial(solve, kl.minimize, cost, SPACE, **PBIL_MIXED, rng=1),
    "maximize": partial(solve, kl.maximize, bumpy, TWELVE, **PBIL_BITS, rng=25),
    "batch": partial(solve, kl.minimize, bumpy, TWELVE, **PBIL_BITS, rng=3, batch=6),
    "x0": partial(solve, kl.minimize, bumpy, TWELVE, **PBIL_BITS, rng=4, x0=ONES),
    "x0, batch, mixed": partial(solve, kl.maximize, cost, SPACE, **PBIL_MIXED, rng=5, x0=POINT, batch=3),
    "known": partial(solve, kl.minimize, bumpy, TWELVE, **PBIL_BITS, rng=6, known=KNOWN),
    "target": partial(solve, kl.minimize, cost, SPACE, (2000,), **PBIL_MIXED, rng=7, target=2.0),
    "stall": partial(solve, kl.minimize, bumpy, TWELVE, (2000,), **PBIL_BITS, rng=8, stall=40),
    "failures": partial(solve, kl.minimize, broken, TWELVE, **PBIL_BITS, rng=9, x0=START, batch=4),
    "only failures": partial(solve, kl.minimize, never, TWELVE, **PBIL_BITS, rng=10),
    "vectorized": partial(solve, kl.minimize, bumpy, TWELVE, **PBIL_BITS, rng=11, vectorized=True, batch=4),
    "workers": partial(solve, kl.minimize, cost, SPACE, **PBIL_MIXED, rng=12, workers=map, batch=4),
    "workers, failures": partial(
        solve, kl.minimize, broken, TWELVE, **PBIL_BITS, rng=13, workers=eager, batch=4, x0=START
    ),
    "journal": partial(solve, kl.minimize, bumpy, TWELVE, **PBIL_BITS, rng=14, journal=True),
    "journal resumed": partial(
        solve, kl.minimize, cost, SPACE, (42, 43, 150), **PBIL_MIXED, rng=15, journal=True, batch=5
    ),
    "journal resumed, failures": partial(
        solve, kl.minimize, broken, TWELVE, (50, 150), **PBIL_BITS, rng=16, journal=True, batch=4, x0=START, known=KNOWN
    ),
    "deterministic": partial(solve, kl.minimize, bumpy, TWELVE, **ALONE, rng=17),
    "deterministic, mixed": partial(solve, kl.minimize, cost, SPACE, rng=18, deterministic=True, batch=3),
    "deterministic, choices": partial(
        solve, kl.maximize, fives, FIVES, algorithm=members_alone(FIVES), rng=19, deterministic=True, batch=2
    ),
    "deterministic, x0, known": partial(solve, kl.maximize, bumpy, TWELVE, **ALONE, rng=20, x0=START, known=KNOWN),
    "deterministic, exhausted": partial(
        solve, kl.minimize, bumpy, FIVE, algorithm=members_alone(FIVE), rng=21, deterministic=True
    ),
    "deterministic, one algorithm": partial(
        solve, kl.minimize, bumpy, TWELVE, rng=22, deterministic=True, algorithm=kl.pbil_lambda(TWELVE), vectorized=True
    ),
    "deterministic, workers": partial(solve, kl.minimize, bumpy, TWELVE, (300,), **ALONE, rng=23, workers=map, batch=4),
    "deterministic, journal resumed": partial(
        solve, kl.minimize, bumpy, TWELVE, (80, 81, 300), **ALONE, rng=24, journal=True, batch=3
    ),
    "not declared, mixed, target": partial(solve, kl.minimize, cost, SPACE, (2000,), rng=27, target=2.0),
}

# Runs with the recommended search for bits and choices, which begins with a model; some are longer than that is used.
DETERMINISTIC = {"deterministic": True}
RECOMMENDED = {
    "in order": partial(drive, in_order, bumpy, TWELVE, 350, **DETERMINISTIC, rng=30),
    "in order, choices": partial(drive, in_order, fives, FIVES, 60, **DETERMINISTIC, rng=31, batch=3),
    "more than lam": partial(drive, late, bumpy, TWELVE, 60, **DETERMINISTIC, rng=32, batch=4),
    "shuffled, ties": partial(drive, shuffled, coarse, TWELVE, 60, **DETERMINISTIC, rng=33, batch=6),
    "cancel": partial(drive, canceled, bumpy, TWELVE, 60, **DETERMINISTIC, rng=34, batch=4),
    "add": partial(drive, added, bumpy, TWELVE, 60, **DETERMINISTIC, rng=35),
    "failures": partial(drive, shuffled, broken, TWELVE, 60, **DETERMINISTIC, rng=36, x0=START, batch=4),
    "save and load": partial(drive, saved, bumpy, TWELVE, 60, **DETERMINISTIC, rng=37, batch=3),
    "journal reopened": partial(reopened, bumpy, TWELVE, (20, 40, 60), **DETERMINISTIC, rng=38, batch=3),
    "not declared": partial(drive, in_order, bumpy, TWELVE, 60, rng=20),
    "not declared, journal reopened": partial(reopened, bumpy, TWELVE, (20, 40, 60), rng=22, batch=3),
    "minimize": partial(solve, kl.minimize, bumpy, TWELVE, (60,), **DETERMINISTIC, rng=40),
    "maximize, choices": partial(solve, kl.maximize, fives, FIVES, (60,), **DETERMINISTIC, rng=41, batch=2),
    "x0, known": partial(solve, kl.maximize, bumpy, TWELVE, (60,), **DETERMINISTIC, rng=42, x0=START, known=KNOWN),
    "exhausted": partial(solve, kl.minimize, bumpy, FIVE, **DETERMINISTIC, rng=43),
    "workers": partial(solve, kl.minimize, bumpy, TWELVE, (60,), **DETERMINISTIC, rng=44, workers=map, batch=4),
    "journal resumed": partial(
        solve, kl.minimize, bumpy, TWELVE, (30, 31, 60), **DETERMINISTIC, rng=45, journal=True, batch=3
    ),
    "minimize, not declared": partial(solve, kl.minimize, bumpy, TWELVE, (300,), rng=26),
    "not declared, exhausted": partial(solve, kl.minimize, bumpy, FIVE, rng=28),
    "not declared, journal resumed": partial(
        solve, kl.maximize, bumpy, TWELVE, (30, 31, 60), rng=29, journal=True, workers=map, batch=4
    ),
}


# File name: record name: how to make the record.
RUNS = {
    "cga": trajectories(cga, PAPER),
    "pbil": trajectories(lambda family: pbil(family, 10, 4, 0.2), PAPER),
    "pbil_epsilon": trajectories(kl.pbil_epsilon, PAPER),
    "pbil_lambda": trajectories(kl.pbil_lambda, PAPER),
    "umda": trajectories(lambda family: umda(family, 10, 4), PAPER),
    "pbil_elitist": trajectories(pbil_elitist, {"bits": BITS, "space": SPACE}, HARD),
    "last_best": trajectories(partial(elitist, LastBest()), {"bits": BITS}, HARD),
    "best_so_far": trajectories(partial(elitist, BestSoFar()), {"bits": BITS}, HARD),
    "p3": trajectories(p3, {"bits": BITS, "choices": CHOICES}, HARD, 400),
    "members": trajectories(members_alone, {"bits": BITS, "bits and choices": BITS_AND_CHOICES}, HARD, 400),
    "members_quadratic": trajectories(members_alone, {"bits": BITS}, (interactions,), 300),
    "search": trajectories(briefly_modeled, {"bits": BITS, "bits and choices": BITS_AND_CHOICES}, HARD, 100),
    "search_quadratic": trajectories(kl.search, {"bits": BITS}, (interactions,), 400),
    "search_subsets": trajectories(briefly_modeled, {"subsets": SUBSETS}, HARD, 100),
    "search_numbers": trajectories(briefly_modeled, {"space": SPACE}, HARD, 100),
    "search_branches": trajectories(briefly_modeled, {"branches": BRANCHES}, HARD, 100),
    "search_noisy": trajectories(
        noisy, {"bits": BITS, "choices": CHOICES, "branches": BRANCHES}, (ties, failures), 150
    ),
    "search_constrained": trajectories(
        constrained, {"bits": BITS, "mixed": MIXED, "branches": BRANCHES}, (ties, failures), 150
    ),
    "optimizer": OPTIMIZER,
    "minimize": MINIMIZE,
    "recommended": RECOMMENDED,
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_agree_with_the_golden_records(name):
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    assert golden.keys() == RUNS[name].keys()
    for run, make in RUNS[name].items():
        try:
            compare(make(), golden[run])
        except AssertionError as error:
            raise AssertionError(f"{run}: {error}") from None


def test_a_difference_in_any_part_of_a_record_is_found():
    golden = json.loads((GOLDEN / "minimize.json").read_text())["plain"]
    for part, value in golden.items():
        if part.startswith("theta"):
            first, *others = value.split()
            changed = " ".join([repr(float(first) + 2.0 * TOLERANCE), *others])
        else:
            changed = None
        with pytest.raises(AssertionError):
            compare({**golden, part: changed}, golden)


def test_trajectories_differ_between_seeds():
    for path in GOLDEN.glob("*.json"):
        found = [record["evaluations"] for record in json.loads(path.read_text()).values()]
        assert len(set(found)) == len(found), path.name


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/test_golden.py --write")
    GOLDEN.mkdir(exist_ok=True)
    for name, runs in RUNS.items():
        records = {run: make() for run, make in runs.items()}
        (GOLDEN / f"{name}.json").write_text(json.dumps(records, indent=1) + "\n")
