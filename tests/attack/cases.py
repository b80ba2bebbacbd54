"""Random spaces, algorithms and objectives, and a form of points and results in which they can be compared."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest import mock
from zlib import crc32

import numpy as np

import knobless as kl
from knobless.algorithms import (
    IGO,
    SNR,
    BestSoFar,
    Fixed,
    LastBest,
    NoElitism,
    Quartiles,
    Search,
    Truncation,
    Values,
    cga,
    p3,
    pbil,
    pbil_elitist,
    samples,
    steps,
    umda,
)
from knobless.core.catalog import PartMembers, in_branches
from knobless.families import Conditional

Problem = Any  # a space: a variable, or a list or dict of spaces
# What runs warn about that have few values, or another objective when they are resumed; others are errors.
EXPECTED_WARNINGS = (
    "Most evaluations failed|.*No evaluation gave a finite value|.*the objective differs from the recorded"
)
OPTIONS = ("a", "b", "c", None, 1, 2.5, True, ("x", 1), "é", -7)


# Spaces.


def space(chance: random.Random, numbers: bool = True, depth: int = 2) -> Problem:
    """A variable, or a list or dict of up to four spaces."""
    if depth == 0 or chance.random() < 0.4:
        return _variable(chance, numbers)
    below = [space(chance, numbers, depth - 1) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.4:
        return below
    named = {f"v{i}": each for i, each in enumerate(below)}
    return _conditional(chance, named) if chance.random() < 0.5 else named


def _conditional(chance: random.Random, named: dict[str, Problem]) -> dict[str, Problem]:
    """The same with conditions on variables that come before."""
    found: dict[str, Problem] = {}
    values: dict[str, list[Any]] = {}  # of variables on which others may depend
    for name, each in named.items():
        match each:
            case kl.Choice(n=None):
                values[name] = list(each.options)
            case kl.Integer(n=None, high=high, low=low) if high - low < 100:
                values[name] = list(range(low, high + 1, each.step))
            case kl.Binary(n=1):
                values[name] = [0, 1]
        others = [other for other in values if other != name]
        found[name] = each
        if others and not isinstance(each, list) and chance.random() < 0.6:
            parent = chance.choice(others)
            some = chance.sample(values[parent], chance.randint(1, len(values[parent])))
            found[name] = (kl.Space(**each) if isinstance(each, dict) else each).when(**{parent: some})
    return found


def is_conditional(space: Problem) -> bool:
    """Whether a variable of the space may be inactive."""
    return isinstance(kl.Space.of(space).family, Conditional)


def _variable(chance: random.Random, numbers: bool) -> Problem:
    n = chance.choice([None, None, 1, 3])
    kinds = ["binary", "choice", "subset", *(["integer", "float"] if numbers else [])]
    match chance.choice(kinds):
        case "binary":
            bits = chance.randint(1, 10)
            prior = [0.5, chance.uniform(0.05, 0.95), [chance.uniform(0.05, 0.95) for _ in range(bits)]]
            return kl.Binary(bits, p=chance.choice(prior))
        case "choice":
            options = chance.sample(OPTIONS, chance.randint(2, 5))
            weights = [chance.uniform(0.1, 1.0) for _ in options]
            prior = [None, [weight / sum(weights) for weight in weights]]
            return kl.Choice(*options, p=chance.choice(prior), n=n)
        case "subset":
            size = chance.randint(2, 9)
            low = chance.randint(0, size - 1)
            sizes = chance.choice([max(low, 1), (low, chance.randint(low + 1, size))])
            return kl.Subset(size, sizes, p=chance.choice([None, chance.uniform(0.05, 0.95)]))
        case "integer":
            low = chance.randint(1, 9)
            scale = chance.choice([{}, {"step": 3}, {"log": True}])
            return kl.Integer(low, low + chance.choice([4, 100, 10**6]), n=n, **scale)
    ranges = {
        kl.Float(-1.0, 2.0, n=n): 4,
        kl.Float(1e-5, 1e2, log=True, n=n): 4,
        kl.Float(-0.3, 0.7, step=0.1, n=n): 4,
        kl.Float(0.0, 1000.0, step=1e-4, n=n): 1,
        kl.Float(-1e7, 1e7, step=0.01, n=n): 1,
    }
    return chance.choices(list(ranges), list(ranges.values()))[0]


def points(space: Problem, count: int, seed: int) -> list[Any]:
    """Points of the space, drawn from its priors."""
    return [candidate.x for candidate in kl.Optimizer(space, cga(space), rng=seed).ask(count)]


# Algorithms.


def algorithm(chance: random.Random, space: Problem, numbers: bool) -> Any:
    """A recipe, or a combination of preference, adaptation and elitism; None for the default."""
    lam = chance.randint(2, 12)
    mu = chance.randint(1, lam - 1)
    recipes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: kl.pbil_lambda(space),
        lambda: kl.pbil_epsilon(space),
        lambda: pbil_elitist(space),
        lambda: cga(space),
        lambda: umda(space, lam, mu),
        lambda: pbil(space, lam, mu, chance.uniform(0.05, 1.0)),
        lambda: _igo(chance, space, lam, mu),
        lambda: _igo(chance, space, lam, mu),
    ]
    family = kl.Space.of(space).family
    if isinstance(family, Conditional):
        parts = PartMembers(deterministic=False, elitism=NoElitism())
        recipes += [lambda: kl.search(space), lambda: in_branches(family, parts, deterministic=False)]
    elif not numbers:
        recipes += [lambda: p3(space), lambda: kl.search(space), lambda: _search(chance, space, lam, mu)]
    return chance.choice(recipes)()


def _igo(chance: random.Random, space: Problem, lam: int, mu: int) -> Any:
    preference = chance.choice([Quartiles(), Truncation(mu), Values()])
    spend = chance.choice([samples, steps])
    adaptation = chance.choice([Fixed(lam, chance.uniform(0.05, 1.0)), SNR(0.3, lam_max=20, spend=spend)])
    elitism = chance.choice([NoElitism(), LastBest(), BestSoFar()])
    return IGO(kl.Space.of(space).family, preference, adaptation, elitism)


def _search(chance: random.Random, space: Problem, lam: int, mu: int) -> Any:
    return Search((_igo(chance, space, lam, mu), p3(space)))


# Objectives.


@dataclass(frozen=True)
class Objective:
    """A function of the point alone: smooth, flat or rugged, with points where it fails or is not finite."""

    seed: int
    shape: str
    failures: str  # what happens at a tenth of the points

    def __call__(self, x: Any) -> float:
        numbers = list(_numbers(x))
        chance = crc32(repr((self.seed, numbers)).encode()) / 2**32
        if chance < 0.1:
            match self.failures:
                case "raise":
                    raise RuntimeError(f"failure {int(100 * chance)}")
                case "values":
                    return (math.nan, math.inf, -math.inf)[int(1000 * chance) % 3]
        weights = np.random.default_rng(self.seed).normal(size=len(numbers))
        total = float(weights @ np.array(numbers))
        match self.shape:
            case "linear":
                return total
            case "plateau":
                return float(math.floor(total / 2.0))
            case "constant":
                return 3.0
            case "zero":
                return -0.0 if chance < 0.5 else 0.0
            case "huge":
                return math.copysign(1.7e308, total)
        return float(int(1000 * chance) % 7)

    def vectorized(self, batch: Any) -> np.ndarray[Any, Any]:
        """All points of a batch at once."""
        return np.array([self(x) for x in _rows(batch)])


def objective(chance: random.Random) -> Objective:
    shapes = {"linear": 5, "plateau": 4, "rugged": 4, "constant": 2, "zero": 1, "huge": 1}
    (shape,) = chance.choices(list(shapes), list(shapes.values()))
    return Objective(chance.randrange(2**32), shape, chance.choice(["none", "none", "raise", "values"]))


def value_of(fun: Callable[[Any], float], x: Any) -> float | Exception:
    """The objective value, or the exception that was raised."""
    try:
        return fun(x)
    except Exception as error:
        return error


def _numbers(x: Any) -> Iterator[float]:
    """A point as numbers, the same for Python's and NumPy's types."""
    match x:
        case dict():
            for each in x.values():
                yield from _numbers(each)
        case np.ndarray() | list():
            for each in x:
                yield from _numbers(each)
        case bool() | int() | float() | np.bool_() | np.number():
            yield float(x)
        case _:
            yield float(crc32(str(x).encode()) % 11)


def _rows(batch: Any) -> list[Any]:
    """The points of a batch as a vectorized objective gets it."""
    match batch:
        case dict():
            columns = [_rows(each) for each in batch.values()]
            return [dict(zip(batch, values, strict=True)) for values in zip(*columns, strict=True)]
        case list():
            return [list(values) for values in zip(*map(_rows, batch), strict=True)]
    return list(batch)


# Comparison.


def plain(x: Any) -> Any:
    """A point as `knobless show --json` writes it."""
    match x:
        case dict():
            return {key: plain(each) for key, each in x.items()}
        case np.ndarray():
            return plain(x.tolist())
        case list():
            return [plain(each) for each in x]
        case tuple():  # an option that JSON does not have
            return str(x)
        case float() if not math.isfinite(x):
            return None
    return x


def differences(title: str, expected: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """One line for each entry that differs, to the last bit and sign."""
    return [
        f"{title}: {name}: expected {expected[name]!r:.300}, got {got.get(name)!r:.300}"
        for name in expected
        if repr(expected[name]) != repr(got.get(name))
    ]


def shown(journal: Path) -> dict[str, Any]:
    """The output of `knobless show --json`."""
    code, output = command("show", str(journal), "--json")
    if code:
        raise RuntimeError(f"knobless show: exit code {code}")
    return json.loads(output)


def command(*arguments: str) -> tuple[int, str]:
    """The exit code and the output of `knobless`, run in this process."""
    from knobless.__main__ import main

    code, output = 0, TextIOWrapper(BytesIO(), "utf-8")
    with mock.patch.object(sys, "argv", ["knobless", *arguments]), redirect_stdout(output), redirect_stderr(StringIO()):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    output.seek(0)
    return code, output.read()
