"""Instance files: detect the format, run the optimizer, and print the answer as solvers do.

    instance = load_instance("uf100-01.cnf")
    answer = solve_instance(instance, budget=100_000, seed=1)
    print(*answer.lines(), sep="\\n")

A format is an entry of `READERS` and a problem class with the methods of `InstanceProblem`. Values
are those of the format: unsatisfied clauses, falsified weight, the weight of a cut (larger is
better), x'Qx.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from knobless._checks import real
from knobless.run.iteration import Info
from knobless.run.minimize import minimize
from knobless.run.result import Status
from knobless.run.stopping import RunLimits

from .answers import InstanceProblem, Verdict
from .incremental import Compiler, Found, is_incremental, search_incrementally
from .quadratic import MaxCut, Qubo
from .sat import MaxSat
from .text import Lines, TextSource, uncompressed_name

EXACT = 2.0**53  # above it, not every integer is a float
# Variables up to which the black-box search runs before the incremental one,
MEDIUM = 100
# For so many evaluations, which take less time than to import numba, and with more for one,
FIRST_EVALUATIONS = 4096
# or until it is compiled


class Format(StrEnum):
    """A format of instance files; the value is the suffix of the file name."""

    CNF = "cnf"
    WCNF = "wcnf"
    MC = "mc"
    QUBO = "qubo"


READERS: dict[Format, Callable[[TextSource], InstanceProblem]] = {
    Format.CNF: MaxSat.read_cnf,
    Format.WCNF: MaxSat.read_wcnf,
    Format.MC: MaxCut.read,
    Format.QUBO: Qubo.read,
}
# The suffix of the Biq Mac library
SUFFIXES = {f".{format}": format for format in Format} | {
    ".sparse": Format.QUBO
}


@dataclass(frozen=True)
class Instance:
    """A problem from a file; `detected_from` states how its format was determined."""

    name: str
    format: Format
    detected_from: str
    problem: InstanceProblem

    @property
    def is_rounded(self) -> bool:
        """Whether the weights are so large that their sums may be inexact."""
        return self.problem.largest_sum > EXACT


def load_instance(
    name: str, format: Format | None = None, data: bytes | None = None
) -> Instance:
    """Read an instance file.

    Parameters
    ----------
    name : str
        The file. With `data`, the name used in messages.
    format : Format, optional
        The format. By default it is taken from the name, or from unambiguous contents.
    data : bytes, optional
        The contents, compressed or not.

    Returns
    -------
    Instance
        The problem, and how its format was determined.

    Raises
    ------
    ValueError
        If the format is ambiguous or the contents are malformed; the message names the line.
    """
    if data is None:
        with open(name, "rb") as file:
            data = file.read()
    detected_from = "--format"
    if format is None:
        detected_from = "file name"
        plain_name = uncompressed_name(name)
        format = next(
            (
                format_of_suffix
                for suffix, format_of_suffix in SUFFIXES.items()
                if plain_name.endswith(suffix)
            ),
            None,
        )
    if format is None:
        format, detected_from = _guess_format(Lines(_open(name, data)))
    problem = READERS[format](_open(name, data))
    if math.isinf(problem.largest_sum):
        raise ValueError(
            f"{name}: expected weights with a finite sum, got more than a float can represent"
        )
    return Instance(name, format, detected_from, problem)


class _NamedBytes(io.BytesIO):
    """A file in memory that has a name."""

    name = ""


def _open(name: str, data: bytes) -> io.BufferedReader:
    """Return an open file, as the readers expect it."""
    raw = _NamedBytes(data)
    raw.name = name
    return io.BufferedReader(raw)


def _guess_format(lines: Lines) -> tuple[Format, str]:
    """Return the format that the contents show, and where; raise if they are ambiguous."""
    first: list[str] = []
    for words in lines:
        if words[0].startswith(("c", "#")):
            continue
        match first, words:
            case [], ["p", kind, *_] if kind in [*Format]:
                return Format(kind), f"line 'p {kind}'"
            case [], ["h", *_]:
                return Format.WCNF, "a clause that begins with h"
            case [], [n, m] if n.isdigit() and m.isdigit():
                first = words
            case [_, _], [_, _]:
                return (
                    Format.MC,
                    f"line {lines.number}, an edge without a weight",
                )
            case [_, _], [i, j, _] if i == j:
                return (
                    Format.QUBO,
                    f"line {lines.number}, an entry on the diagonal",
                )
            case [], _:
                break
    hint = (
        "it may be a graph or a matrix"
        if first
        else "its contents are not recognized"
    )
    raise ValueError(
        f"{lines.path}: cannot determine the format: {hint}; use --format {', '.join(Format)}"
    )


@dataclass(frozen=True)
class Answer:
    """The result of a run on an instance.

    `value` is None if no point, or no feasible point, was found.
    """

    instance: Instance
    result: Found
    seed: int
    seconds: float

    @property
    def value(self) -> float | None:
        """The best value, as the format counts it."""
        if self.result.x is None:
            return None
        return self.instance.problem.value_of(self.result.x, self.result.cost)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict; None if the format has none."""
        return self.instance.problem.verdict(
            self.value, self.result.status is Status.EXHAUSTED
        )

    @property
    def code(self) -> int:
        """The exit code."""
        if self.result.status is Status.INTERRUPTED:
            return 130
        return (self.verdict or Verdict.UNKNOWN).code

    def lines(self) -> Iterator[str]:
        """Yield the lines that a solver prints: comments, value, verdict, point."""
        problem = self.instance.problem
        x = self.result.x
        nfev = self.result.nfev
        incremental = self.result.incremental
        yield f"c {self.result.message}"
        yield f"c {nfev} evaluations, {self.seconds:.2f} seconds, seed {self.seed}"
        if incremental:
            full, flips = nfev - incremental, self.result.flips
            yield f"c {full} full evaluations, {incremental} incremental, {flips} flips"
        if x is not None:
            yield from problem.value_lines(x, self.result.cost)
        if self.verdict is not None:
            yield f"s {self.verdict}"
        if x is not None:
            yield from problem.point_lines(x)

    def data(self) -> dict[str, Any]:
        """Return the answer for JSON."""
        x = self.result.x
        return {
            "instance": self.instance.name,
            "format": self.instance.format,
            "format_detected_from": self.instance.detected_from,
            "value": self.value,
            "verdict": self.verdict,
            "hard_unsatisfied": None
            if x is None
            else self.instance.problem.hard_unsatisfied(x),
            "x": x,
            "nfev": self.result.nfev,
            "incremental": self.result.incremental,
            "flips": self.result.flips,
            "seconds": self.seconds,
            "seed": self.seed,
            "status": self.result.status,
            "message": self.result.message,
        }


def solve_instance(
    instance: Instance,
    budget: int | None,
    seed: int,
    target: float | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> Answer:
    """Run the optimizer on an instance.

    Parameters
    ----------
    instance : Instance
        The instance.
    budget : int or None
        Maximum number of evaluations; None if a `timeout` is the only limit.
    seed : int
        Seed of the random number generator.
    target : float, optional
        Stop at a value at least this good, as the format counts it. For SAT and MaxSAT it is 0 by
        default.
    timeout : float, optional
        Stop after this many seconds.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    Answer
        The best point, its value and the verdict.
    """
    start = time.perf_counter()
    problem = instance.problem
    cost = problem.cost_of(None if target is None else real("target", target))
    limits = RunLimits.of(1.0, budget, cost, timeout, None)

    def left() -> float:
        return limits.timeout - (time.perf_counter() - start)

    def search(
        fun: Callable[[Any], Any], stop: Callable[[Info], bool] | None = None
    ) -> Found:
        seconds = None if timeout is None else max(left(), 1e-3)
        result = minimize(
            fun,
            problem.space,
            budget=budget,
            target=cost,
            timeout=seconds,
            rng=seed,
            deterministic=True,
            stop=stop,
            progress=progress,
        )
        return Found.of(result)

    if not is_incremental(problem):
        best = search(problem)
    else:
        first = FIRST_EVALUATIONS if problem.n <= MEDIUM else 1
        with Compiler() as compiler:
            best = search(  # a method is not compiled
                problem.__call__,
                lambda info: (
                    first <= info.nfev < limits.budget and compiler.is_ready()
                ),
            )
        if best.status is Status.STOPPED:
            best = search_incrementally(
                problem, best, limits._replace(timeout=left()), seed, progress
            )
    return Answer(instance, best, seed, time.perf_counter() - start)
