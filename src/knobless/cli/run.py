"""`knobless run`, `show` and `resume`: a search, its journal, and a search gone on with, at a shell.

What can be said at the shell is what `minimize` takes. Beside what a journal knows by itself, `run` notes there a
`Plan`: which function, which space, and when to stop. `resume` reads it again. Results go to the standard output,
all else to the standard error.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from traceback import format_exception
from typing import IO, Annotated, Any

import typer

from knobless._checks import positive_int, positive_real, real
from knobless.core.algorithm import Algorithm
from knobless.core.data import difference
from knobless.journal.records import Journal, JournalError, Record, read
from knobless.recipes import cga, p3, pbil_elitist, pbil_epsilon, pbil_lambda, portfolio
from knobless.report.summary import summary
from knobless.run.minimize import maximize, minimize
from knobless.run.optimizer import Optimizer
from knobless.run.result import Status
from knobless.space import toml as spacefile
from knobless.space.codec import space_data
from knobless.space.space import Space

from . import tables
from .objects import Named, UserCodeError, imported, lies_here

REPORTED = ("x", "fun", "mode", "mode_fun", "nfev", "nit", "success", "status", "message", "failures", "failure")


class Recipe(StrEnum):
    """An algorithm, as a shell can name it."""

    PBIL_LAMBDA = "pbil-lambda"
    PBIL_EPSILON = "pbil-epsilon"
    PBIL_ELITIST = "pbil-elitist"
    CGA = "cga"
    P3 = "p3"
    PORTFOLIO = "portfolio"


RECIPES: dict[Recipe, Callable[[Any], Algorithm]] = {
    Recipe.PBIL_LAMBDA: pbil_lambda,
    Recipe.PBIL_EPSILON: pbil_epsilon,
    Recipe.PBIL_ELITIST: pbil_elitist,
    Recipe.CGA: cga,
    Recipe.P3: p3,
    Recipe.PORTFOLIO: portfolio,
}


@dataclass(frozen=True)
class Plan:
    """What was asked for, beside what a journal knows by itself."""

    objective: str
    space: str  # as it was given: a file, or module:name
    toml: str | None  # what was in the file
    budget: int
    workers: int
    target: float | None
    timeout: float | None
    stall: int | None
    evaluation_timeout: float | None

    def __post_init__(self) -> None:
        for name in ("objective", "space", "toml"):
            if not isinstance(getattr(self, name) or "", str):
                raise TypeError(f"{name}: expected text, got {getattr(self, name)!r}")
        positive_int("budget", self.budget)
        positive_int("workers", self.workers)
        if self.stall is not None:
            positive_int("stall", self.stall)
        if self.target is not None:
            real("target", self.target)
        for name in ("timeout", "evaluation_timeout"):
            if getattr(self, name) is not None:
                positive_real(name, getattr(self, name))

    @classmethod
    def of(cls, record: Record) -> Plan:
        """The one that `run` noted."""
        noted = record.meta.get("command")
        if noted is None:
            remedy = "`knobless run … --journal` with the rest as it was goes on with it"
            raise JournalError(f"{record.path}: `knobless run` has not begun it, so it does not say how; {remedy}")
        names = {each.name for each in fields(cls)}
        if not isinstance(noted, dict) or noted.keys() != names:
            raise JournalError(f"{record.path}: command: expected {', '.join(sorted(names))}, got {noted!r:.100}")
        try:
            return cls(**noted)
        except (TypeError, ValueError) as error:
            raise JournalError(f"{record.path}: command: {error}") from None

    def read_space(self) -> Space:
        if self.toml is not None:
            return spacefile.space_of(self.toml, self.space)
        try:
            return Space.of(imported(self.space))
        except TypeError as error:
            raise ValueError(f"{self.space}: {error}") from None


Objective = Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="What to call; it gets a point.")]
SpaceFile = Annotated[str, typer.Option(metavar="FILE", help="A TOML file, or a space in Python as module:name.")]
Budget = Annotated[int, typer.Option(min=1, help="Evaluations at most.")]
JournalFile = Annotated[
    Path | None, typer.Option("--journal", metavar="FILE", help="Record every evaluation here, and go on from it.")
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that evaluate. The result does not depend on it.")]
Batch = Annotated[int, typer.Option(min=1, help="Evaluations that can run at once: with 4 workers, say 4.")]
Maximize = Annotated[bool, typer.Option("--maximize", help="Look for the greatest value, not the least.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Equal points give equal values: none is paid twice.")
]
Target = Annotated[float | None, typer.Option(help="Stop at the first value that is as good.")]
Timeout = Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop after so many seconds.")]
Stall = Annotated[int | None, typer.Option(min=1, help="Stop after so many evaluations without improvement.")]
EvaluationTimeout = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="After so many seconds a single evaluation has failed.")
]
Rng = Annotated[int | None, typer.Option(min=0, metavar="SEED", help="Makes the run repeatable.")]
Chosen = Annotated[Recipe | None, typer.Option("--algorithm", help="To compare with; by default the one recommended.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no remarks.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A journal.")]


def run(
    objective: Objective,
    space: SpaceFile,
    budget: Budget,
    journal: JournalFile = None,
    workers: Workers = 1,
    batch: Batch = 1,
    maximize: Maximize = False,
    deterministic: Deterministic = False,
    target: Target = None,
    timeout: Timeout = None,
    stall: Stall = None,
    evaluation_timeout: EvaluationTimeout = None,
    rng: Rng = None,
    algorithm: Chosen = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look for the point of a space where a function of yours is least, or greatest.

    With a journal no evaluation is lost, whatever happens: the same command, or `knobless resume`, goes on.

    Exit codes: 0 done, 1 no value or an error in your code, 2 a wrong command or file, 130 Ctrl-C.
    """
    with ending(journal):
        toml = contents(space)
        plan = Plan(objective, space, toml, budget, workers, target, timeout, stall, evaluation_timeout)
        domain, fun = plan.read_space(), Named(objective)
        direction = "maximize" if maximize else "minimize"
        facts = Facts(direction, None if algorithm is None else RECIPES[algorithm](domain), batch, deterministic, rng)
        before = 0 if journal is None else recorded(journal)
        remarks = Remarks(quiet)
        if before and journal is not None:
            refuse_another(journal, plan, domain, facts)
            remarks.say(f"Going on with {objective} after {before} evaluations in {journal}.")
        carry_out(plan, fun, domain, facts, journal, before, json, remarks)


def resume(
    journal: File,
    budget: Annotated[int | None, typer.Option(min=1, help="Evaluations in all; else as before.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that evaluate; else as before.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Call a function from outside this folder as well.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run from its journal, which knows the rest; the result is that of a run never interrupted.

    It calls the function that the journal names, if that is defined in the current folder.

    Exit codes are those of `run`.
    """
    with ending(journal):
        with read(journal) as record:
            plan = Plan.of(record)
            fun, domain = called_from(record, plan, trust)
            before = record.counts().evaluations
            facts = Facts(record.direction, record.algorithm, record.batch, record.deterministic, None)
        plan = replace(plan, budget=budget or plan.budget, workers=workers or plan.workers)
        remarks = Remarks(quiet)
        remarks.say(f"Going on with {plan.objective} after {before} of {plan.budget} evaluations.")
        carry_out(plan, fun, domain, facts, journal, before, json, remarks)


def show(journal: File, json: Json = False) -> None:
    """What is in a journal: the best, how the search stands, what failed, how long it took. Also while it runs.

    Runs nothing that the journal names. Exit code 2 for a file that is no journal.
    """
    with ending(None):
        with read(journal) as record:
            found, space = summary(record), record.space
        if json:
            typer.echo(
                tables.as_json(
                    {"journal": str(journal)} | {each.name: getattr(found, each.name) for each in fields(found)}
                )
            )
        else:
            tables.print_summary(found, space)


# How a run is carried out.


@dataclass(frozen=True)
class Facts:
    """What a journal knows by itself."""

    direction: str
    algorithm: Algorithm | None
    batch: int
    deterministic: bool
    rng: int | None


@dataclass(frozen=True)
class Remarks:
    """What a person at a terminal may want to know while it runs."""

    quiet: bool

    def say(self, text: str) -> None:
        if not self.quiet:
            typer.echo(text, err=True)

    @property
    def bar(self) -> bool:
        return not self.quiet and sys.stderr.isatty()


def carry_out(
    plan: Plan,
    fun: Named,
    space: Space,
    facts: Facts,
    journal: Path | None,
    before: int,
    as_data: bool,
    remarks: Remarks,
) -> None:
    """Runs it, prints the result and leaves with the exit code."""
    least = max(facts.batch, 2)
    if plan.workers > least and not before:
        few = f"an iteration may have as few as {least} evaluations"
        remarks.say(f"{plan.workers} workers, but {few}: with --batch {plan.workers} all are busy.")
    apart = plan.workers > 1 or plan.evaluation_timeout is not None
    with kept_for_data() if as_data else nullcontext() as out:
        try:
            result = (maximize if facts.direction == "maximize" else minimize)(
                fun if apart else fun.fun,
                space,
                budget=plan.budget,
                algorithm=facts.algorithm,
                target=plan.target,
                timeout=plan.timeout,
                stall=plan.stall,
                rng=facts.rng,
                batch=facts.batch,
                workers=plan.workers,
                deterministic=facts.deterministic,
                evaluation_timeout=plan.evaluation_timeout,
                journal=None if journal is None else Journal(journal, {"command": asdict(plan)}),
                progress=remarks.bar,
            )
        except JournalError:
            raise
        except Exception as error:
            raise UserCodeError(f"{plan.objective}: the run ends with this error") from error
        if before and journal is not None and before == recorded(journal):
            remarks.say(f"Nothing was left to do: {before} evaluations are recorded.")
        if out is not None:
            run = {"objective": plan.objective, "direction": facts.direction, "journal": journal and str(journal)}
            print(tables.as_json(run | {each: getattr(result, each) for each in REPORTED}), file=out)
        else:
            tables.print_result(result, space)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    raise typer.Exit(1 if result.x is None else 0)


def called_from(record: Record, plan: Plan, trust: bool) -> tuple[Named, Space]:
    """The function and the space that a journal names. It may be a stranger's, so not just any code is run."""
    remedy = f"If you know what it does: {again(record.path)} --trust"
    names = [plan.objective] if plan.toml is not None else [plan.objective, plan.space]
    for name in names:
        if not trust and not lies_here(name):
            raise ValueError(f"{record.path}: it names {tables.plain(name)}, which is not in this folder. {remedy}")
    fun = Named(plan.objective)
    if not trust and not fun.lies_here:
        raise ValueError(
            f"{record.path}: it names {tables.plain(plan.objective)}, defined outside this folder. {remedy}"
        )
    space = plan.read_space()
    differs = difference(record.identity.space, space_data(space), "space")  # before memory is taken for it
    if differs:
        raise JournalError(f"{record.path}: journal does not match this run: {differs}")
    if record.algorithm is None:
        raise JournalError(f"{record.path}: the algorithm has parts of its user's own, which only its program has")
    return fun, space


def recorded(journal: Path) -> int:
    """Evaluations in a journal; none if there is no such file, or nothing in it."""
    try:
        with read(journal) as record:
            return record.counts().evaluations
    except JournalError:  # if it cannot be written either, `minimize` says why
        return 0


def refuse_another(journal: Path, plan: Plan, space: Space, facts: Facts) -> None:
    """A journal that is there must be of this very run: seen here, before the plan is noted in it."""
    with read(journal) as record:
        noted = record.meta.get("command")
        there = noted.get("objective") if isinstance(noted, dict) else plan.objective
        here = Optimizer(space, facts.algorithm, None, facts.rng, facts.batch, facts.deterministic)
        identity = here.identity(facts.direction)
        if facts.rng is None:
            identity = identity._replace(rng=record.identity.rng)
        differs = difference(there, plan.objective, "objective") or record.identity.difference(identity)
        if differs:
            raise JournalError(f"{journal}: journal does not match this run: {differs}")


def again(journal: Path) -> str:
    """The command that goes on."""
    return shlex.join(["knobless", "resume", str(journal)])


def contents(space: str) -> str | None:
    """Of a TOML file; None for a name."""
    if ":" in space and not space.endswith(".toml") and not Path(space).exists():
        return None
    try:
        return Path(space).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{space}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{space}: not TOML: {error}") from None


@contextmanager
def kept_for_data() -> Iterator[IO[str]]:
    """The standard output. What the function prints meanwhile, here or in a worker, goes to the standard error."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        try:
            yield out
        finally:
            sys.stdout.flush()
            os.dup2(out.fileno(), 1)


@contextmanager
def ending(journal: Path | None) -> Iterator[None]:
    """Turns what can go wrong into a message and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        kept = f" What is recorded is kept: {again(journal)}" if journal else ""
        typer.echo(f"Interrupted.{kept}", err=True)
        raise typer.Exit(130) from None
    except UserCodeError as error:
        typer.echo(f"{user_traceback(error.__cause__)}{error}.", err=True)
        raise typer.Exit(1) from None
    except BrokenPipeError:  # whoever read our output has enough of it: typer leaves quietly
        raise
    except (ValueError, TypeError, OSError) as error:
        typer.echo(f"Error: {tables.plain(str(error))}", err=True)
        raise typer.Exit(2) from None


def user_traceback(error: BaseException | None) -> str:
    """A traceback that begins where the user's code does."""
    if error is None:
        return ""
    ours = (str(Path(__file__).parents[1]), str(Path(os.__file__).parent / "importlib"), "<frozen importlib")
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    return "".join(format_exception(error.with_traceback(trace)))
