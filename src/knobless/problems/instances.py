"""Instance files: which format one has, the run on it, and the answer as solvers of that format print it.

    instance = load("uf100-01.cnf")
    answer = solve(instance, budget=100_000, seed=1)
    print(*answer.lines(), sep="\\n")

The problems and their readers are those of `knobless.problems`; `solve_cli` is the command. Values are as the format
has them: unsatisfied clauses, falsified weight, the weight of a cut (the greater the better), x'Qx.
"""

from __future__ import annotations

import io
import math
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from knobless._checks import real
from knobless.run.minimize import minimize
from knobless.run.result import Result, Status

from . import MaxCut, MaxSat, Qubo, dimacs
from .text import Lines, unpacked_name

EXACT = 2.0**53  # beyond it not every whole number is a float
WIDE = 78  # characters of a line of literals


class Format(StrEnum):
    """What an instance file holds."""

    CNF = "cnf"
    WCNF = "wcnf"
    MC = "mc"
    QUBO = "qubo"


NAMES = {Format.CNF: "SAT", Format.WCNF: "MaxSAT", Format.MC: "Max-Cut", Format.QUBO: "QUBO"}
SUFFIXES = {f".{each}": each for each in Format} | {".sparse": Format.QUBO}  # as Biq Mac calls them


class Verdict(StrEnum):
    """What a solver may claim. A cost of nothing at all proves itself, and so does a look at every point."""

    SATISFIABLE = "SATISFIABLE"
    UNSATISFIABLE = "UNSATISFIABLE"
    OPTIMUM = "OPTIMUM FOUND"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Instance:
    """A problem from a file; `told_by` says what told its format."""

    name: str
    format: Format
    told_by: str
    problem: MaxSat | MaxCut | Qubo

    @property
    def size(self) -> str:
        match self.problem:
            case MaxSat(n=n, clauses=clauses, weights=weights):
                hard = sum(map(math.isinf, weights or ()))
                return f"{n} variables, {len(clauses)} clauses" + (f", {hard} of them hard" if hard else "")
            case MaxCut(n=n, edges=edges):
                return f"{n} vertices, {len(edges)} edges"
        return f"{self.problem.n} variables"


class Held(io.BytesIO):
    """A file in memory that has a name."""

    name = ""


def load(name: str, format: Format | None = None, data: bytes | None = None) -> Instance:
    """The instance in a file, or in `data`, which are then called by that name.

    The format is what is given, or what the name says, or what the contents show beyond doubt.
    """
    if data is None:
        with open(name, "rb") as file:
            data = file.read()
    told_by = "as given"
    if format is None:
        plain = unpacked_name(name)
        format = next((each for suffix, each in SUFFIXES.items() if plain.endswith(suffix)), None)
        told_by = "by its name"
    if format is None:
        format, told_by = guessed(Lines(held(name, data)))
    source = held(name, data)
    problem: MaxSat | MaxCut | Qubo
    match format:
        case Format.CNF | Format.WCNF:
            clauses, weights, n = dimacs.read(source, headless=format is Format.WCNF)
            if format is Format.CNF and weights is not None:
                raise ValueError(f"{name}: expected 'p cnf', got 'p wcnf': the format is wcnf")
            problem = MaxSat(clauses, weights, n)
        case Format.MC:
            problem = MaxCut.read(source)
        case Format.QUBO:
            problem = Qubo.read(source)
    if math.isinf(largest(problem)):
        raise ValueError(f"{name}: expected weights that add up to a finite number, got more than a float can hold")
    return Instance(name, format, told_by, problem)


def held(name: str, data: bytes) -> io.BufferedReader:
    """An open file, as the readers take it."""
    raw = Held(data)
    raw.name = name
    return io.BufferedReader(raw)


def guessed(lines: Lines) -> tuple[Format, str]:
    """The format that the contents show, and by what; a ValueError where they would do for another as well."""
    first: list[str] = []
    for words in lines:
        if words[0].startswith(("c", "#")):
            continue
        match first, words:
            case [], ["p", ("cnf" | "wcnf" | "qubo") as kind, *_]:
                return Format(kind), f"by its line 'p {kind}'"
            case [], ["h", *_]:
                return Format.WCNF, "by a clause that begins with h"
            case [], [n, m] if n.isdigit() and m.isdigit():
                first = words
            case [_, _], [_, _]:
                return Format.MC, f"by line {lines.number}, an edge without a weight"
            case [_, _], [i, j, _] if i == j:
                return Format.QUBO, f"by line {lines.number}, an entry on the diagonal"
            case [], _:
                break
    found = "a graph or a matrix, which look alike" if first else "nothing that tells"
    remedy = "say --format cnf, wcnf, mc or qubo"
    raise ValueError(f"{lines.path}: its name does not tell its format, and in it is {found}; {remedy}")


@dataclass(frozen=True)
class Answer:
    """What a run on an instance found. `value` is None if there is no point, or a hard clause is broken."""

    instance: Instance
    result: Result
    seed: int
    seconds: float

    @cached_property
    def broken(self) -> tuple[int, float]:
        """Hard clauses that the point breaks, and the weight of the others it breaks, counted anew."""
        problem, x = self.instance.problem, self.result.x
        if not isinstance(problem, MaxSat) or x is None:
            return 0, 0.0
        weights = problem.weights or (1.0,) * len(problem.clauses)
        truth = x.tolist()
        lost = [
            weight
            for clause, weight in zip(problem.clauses, weights, strict=True)
            if not any(truth[abs(literal) - 1] == (literal > 0) for literal in clause)
        ]
        return sum(map(math.isinf, lost)), math.fsum(weight for weight in lost if math.isfinite(weight))

    @property
    def value(self) -> float | None:
        if self.result.x is None or self.broken[0]:
            return None
        match self.instance.problem:
            case MaxSat():
                return whole(self.broken[1])
            case MaxCut():
                return whole(-self.result.fun)
        return whole(self.result.fun)

    @property
    def verdict(self) -> Verdict | None:
        """None where the format knows none."""
        all_seen = self.result.status is Status.EXHAUSTED
        match self.instance.format, self.value:
            case ((Format.MC | Format.QUBO), _):
                return None
            case Format.CNF, 0:
                return Verdict.SATISFIABLE
            case Format.WCNF, 0:
                return Verdict.OPTIMUM
            case Format.WCNF, float() | int():
                return Verdict.OPTIMUM if all_seen else Verdict.SATISFIABLE
        return Verdict.UNSATISFIABLE if all_seen else Verdict.UNKNOWN

    @property
    def code(self) -> int:
        """The exit code, as solvers of SAT and MaxSAT have it."""
        if self.result.status is Status.INTERRUPTED:
            return 130
        codes = {Verdict.SATISFIABLE: 10, Verdict.UNSATISFIABLE: 20, Verdict.OPTIMUM: 30}
        return codes.get(self.verdict or Verdict.UNKNOWN, 0)

    def lines(self) -> Iterator[str]:
        """As solvers print: remarks, the value, the verdict, and the point."""
        yield f"c {self.result.message}"
        yield f"c {self.result.nfev} evaluations, {self.seconds:.2f} seconds, seed {self.seed}"
        hard, soft = self.broken
        if self.instance.format is Format.CNF and self.result.x is not None:
            yield f"c {whole(soft)} of {len(self.instance.problem.clauses)} clauses unsatisfied"  # type: ignore[union-attr]
        elif hard:
            yield f"c {hard} hard clauses unsatisfied, so that there is no value"
        elif self.value is not None:
            yield f"o {self.value}"
        if self.verdict is not None:
            yield f"s {self.verdict}"
        x = self.result.x
        if x is None:
            return
        if self.instance.format is Format.CNF:
            literals = " ".join(str(i if bit else -i) for i, bit in enumerate(x.tolist(), 1))
            yield from textwrap.wrap(f"{literals} 0", WIDE, initial_indent="v ", subsequent_indent="v ")
        else:
            yield "v " + "".join(map(str, x.tolist()))

    def data(self) -> dict[str, Any]:
        """For JSON."""
        hard, _ = self.broken
        return {
            "instance": self.instance.name,
            "format": self.instance.format,
            "told_by": self.instance.told_by,
            "value": self.value,
            "verdict": self.verdict,
            "hard_unsatisfied": hard if self.instance.format is Format.WCNF else None,
            "x": self.result.x,
            "nfev": self.result.nfev,
            "seconds": self.seconds,
            "seed": self.seed,
            "status": self.result.status,
            "message": self.result.message,
        }


def solve(
    instance: Instance,
    budget: int,
    seed: int,
    target: float | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> Answer:
    """A run on an instance. It ends at the target, a value as the format has it; for SAT and MaxSAT that is 0."""
    start = time.perf_counter()
    result = minimize(
        instance.problem,
        instance.problem.space,
        budget=budget,
        algorithm=None,
        target=cost_of(instance, target),
        timeout=timeout,
        rng=seed,
        deterministic=True,
        progress=progress,
    )
    return Answer(instance, result, seed, time.perf_counter() - start)


def cost_of(instance: Instance, target: float | None) -> float | None:
    """The cost that the problem has where the format has the value `target`."""
    if target is not None:
        target = real("target", target)
    match instance.problem:
        case MaxCut():
            return None if target is None else -target
        case MaxSat(weights=weights):
            # A broken hard clause costs more than all others together, and meets no target; nothing is below 0.
            soft = math.inf if weights is None else math.fsum(w for w in weights if math.isfinite(w))
            return min(max(target or 0.0, 0.0), soft)
    return target


def rounded(instance: Instance) -> bool:
    """Whether weights are so large that their sums need not be exact."""
    return largest(instance.problem) > EXACT


def largest(problem: MaxSat | MaxCut | Qubo) -> float:
    """What no cost exceeds, nor any sum on the way to it; inf where that is no float."""
    match problem:
        case MaxSat(weights=weights, clauses=clauses):
            hard = sum(map(math.isinf, weights or ()))
            return (1 + hard) * sum(w for w in weights or () if math.isfinite(w)) + hard + len(clauses)
        case MaxCut(weights=numbers) | Qubo(matrix=numbers):
            with np.errstate(over="ignore"):
                return float(abs(numbers).sum())


def whole(value: float) -> float:
    """A whole number as an int: it prints so."""
    return int(value) if value == math.floor(value) else value
