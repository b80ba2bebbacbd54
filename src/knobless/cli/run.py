"""`knobless run`, `show` and `resume`: a run, a summary of its journal, and its continuation.

The options are those of `minimize`. `run` records a `RunPlan` in the journal, which `resume` reads. Results go to the
standard output, everything else to the standard error.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any

import typer

from knobless.core.algorithm import Algorithm
from knobless.core.data import difference
from knobless.journal.records import Journal, JournalError, Record, read
from knobless.recipes import (
    cga,
    linear_thompson,
    noisy_portfolio,
    p3,
    pbil_elitist,
    pbil_epsilon,
    pbil_lambda,
    portfolio,
)
from knobless.report.summary import summary
from knobless.run.minimize import maximize, minimize
from knobless.run.optimizer import Optimizer
from knobless.run.result import Result, Status
from knobless.space.codec import space_data
from knobless.space.space import Space

from . import options, tables
from .errors import reported_errors
from .objects import NamedFunction, UserCodeError, is_local
from .options import AlgorithmName
from .plan import RunPlan, toml_text
from .terminal import Messages, plain

REPORTED = [each.name for each in fields(Result) if each.name != "history"]
RECIPES: dict[AlgorithmName, Callable[[Any], Algorithm]] = {
    AlgorithmName.PBIL_LAMBDA: pbil_lambda,
    AlgorithmName.PBIL_EPSILON: pbil_epsilon,
    AlgorithmName.PBIL_ELITIST: pbil_elitist,
    AlgorithmName.CGA: cga,
    AlgorithmName.P3: p3,
    AlgorithmName.PORTFOLIO: portfolio,
    AlgorithmName.LINEAR_THOMPSON: linear_thompson,
    AlgorithmName.NOISY_PORTFOLIO: noisy_portfolio,
}


@dataclass(frozen=True)
class Facts:
    """Settings of a run that `minimize` records in its journal."""

    direction: str
    algorithm: Algorithm | None
    batch: int | None
    deterministic: bool | None
    rng: int | None


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("run")(run_command)
    app.command("show")(show_command)
    app.command("resume")(resume_command)


def run_command(
    objective: options.ObjectiveArgument,
    space: options.SpaceOption,
    budget: options.BudgetOption = None,
    journal: options.JournalOption = None,
    workers: options.WorkersOption = 1,
    batch: options.BatchOption = None,
    maximize: options.MaximizeOption = False,
    deterministic: options.DeterministicOption = None,
    target: options.TargetOption = None,
    timeout: options.TimeoutOption = None,
    stall: options.StallOption = None,
    evaluation_timeout: options.EvaluationTimeoutOption = None,
    seed: options.SeedOption = None,
    algorithm: options.AlgorithmOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Minimize or maximize an objective function over a search space.

    With a journal no evaluation is lost: repeat the command, or use `knobless resume`, to continue an interrupted run.

    Exit codes: 0 success; 1 no finite value, or an error in the objective; 2 wrong usage or file; 130 Ctrl-C.
    """
    with reported_errors(_how_to_resume(journal)):
        plan = RunPlan(objective, space, toml_text(space), budget, workers, target, timeout, stall, evaluation_timeout)
        domain, fun = plan.read_space(), NamedFunction(objective)
        direction = "maximize" if maximize else "minimize"
        recipe = None if algorithm is None else RECIPES[algorithm](domain)
        facts = Facts(direction, recipe, batch, deterministic, seed)
        before = 0 if journal is None else count_recorded(journal)
        messages = Messages(quiet)
        if before and journal is not None:
            _check_same_run(journal, plan, domain, facts)
            messages.write(f"Resuming {objective} after {before} evaluations in {journal}.")
        _optimize(plan, fun, domain, facts, journal, before, json, messages)


def resume_command(
    journal: options.JournalArgument,
    budget: options.NewBudgetOption = None,
    workers: options.NewWorkersOption = None,
    trust: options.TrustOption = False,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Resume a run from its journal; the result is that of an uninterrupted run.

    The objective that the journal names is called only if it is defined in a file of the current folder.

    Exit codes are those of `run`.
    """
    with reported_errors(_how_to_resume(journal)):
        with read(journal) as record:
            plan = RunPlan.of(record)
            fun, domain = _import_checked(record, plan, trust)
            before = record.counts().evaluations
            # By default a run finds out whether the objective is noisy, which it does not if an algorithm is given.
            algorithm = record.algorithm if record.identity.noisy_algorithm is None else None
            facts = Facts(record.direction, algorithm, record.batch, record.deterministic, None)
        plan = replace(plan, budget=budget or plan.budget, workers=workers or plan.workers)
        messages = Messages(quiet)
        of = "" if plan.budget is None else f" of {plan.budget}"
        messages.write(f"Resuming {plan.objective} after {before}{of} evaluations.")
        _optimize(plan, fun, domain, facts, journal, before, json, messages)


def show_command(journal: options.JournalArgument, json: options.JsonOption = False) -> None:
    """Summarize a journal, also during the run: best point, state of the search, failures, durations.

    Nothing that the journal names is imported. Exit code 2 if the file is not a journal.
    """
    with reported_errors():
        with read(journal) as record:
            found, space = summary(record), record.space
        if json:
            data = {"journal": str(journal)} | {each.name: getattr(found, each.name) for each in fields(found)}
            typer.echo(tables.as_json(data))
        else:
            tables.print_summary(found, space)


def _optimize(
    plan: RunPlan,
    fun: NamedFunction,
    space: Space,
    facts: Facts,
    journal: Path | None,
    before: int,
    json: bool,
    messages: Messages,
) -> None:
    """Run the optimization, print the result and exit."""
    least = max(facts.batch or plan.workers, 2)
    if plan.workers > least and not before:
        messages.write(
            f"{plan.workers} workers, but an iteration may have only {least} evaluations:"
            " leave out --batch to keep all workers busy."
        )
    in_processes = plan.workers > 1 or plan.evaluation_timeout is not None
    with _stdout_for_data() if json else nullcontext() as out:
        try:
            result = (maximize if facts.direction == "maximize" else minimize)(
                fun if in_processes else fun.fun,
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
                progress=messages.progress,
            )
        except JournalError:
            raise
        except Exception as error:
            raise UserCodeError(f"{plan.objective}: the run ends with this error") from error
        if before and journal is not None and before == count_recorded(journal):
            messages.write(f"Nothing left to do: {before} evaluations are recorded.")
        if out is not None:
            about = {"objective": plan.objective, "direction": facts.direction, "journal": journal and str(journal)}
            out.write(tables.as_json(about | {each: getattr(result, each) for each in REPORTED}) + "\n")
        else:
            tables.print_result(result, space)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    raise typer.Exit(1 if result.x is None else 0)


def _import_checked(record: Record, plan: RunPlan, trust: bool) -> tuple[NamedFunction, Space]:
    """Import the objective and the space that a journal names; unless trusted, only from the current folder."""
    remedy = f"To run it anyway: {_resume_command(record.path)} --trust"
    names = [plan.objective] if plan.toml is not None else [plan.objective, plan.space]
    for name in names:
        if not trust and not is_local(name):
            raise ValueError(_not_local(record, name, "not in a file of the current folder", remedy))
    fun = NamedFunction(plan.objective)
    if not trust and not fun.is_local:
        raise ValueError(_not_local(record, plan.objective, "defined outside the current folder", remedy))
    space = plan.read_space()
    differs = difference(record.identity.space, space_data(space), "space")  # before memory is taken for it
    if differs:
        raise JournalError(f"{record.path}: journal does not match this run: {differs}")
    if record.algorithm is None:
        raise JournalError(f"{record.path}: cannot resume: the algorithm has custom components, which are not recorded")
    return fun, space


def _not_local(record: Record, name: str, where: str, remedy: str) -> str:
    return f"{record.path}: cannot resume: the journal names {plain(name)}, which is {where}. {remedy}"


def count_recorded(journal: Path) -> int:
    """Return the number of evaluations in a journal; 0 if it does not exist or is empty."""
    try:
        with read(journal) as record:
            return record.counts().evaluations
    except JournalError:  # if it cannot be written either, `minimize` reports why
        return 0


def _check_same_run(journal: Path, plan: RunPlan, space: Space, facts: Facts) -> None:
    """Raise unless an existing journal is of this run, before the plan is recorded in it."""
    with read(journal) as record:
        noted = record.meta.get("command")
        there = noted.get("objective") if isinstance(noted, dict) else plan.objective
        here = Optimizer(space, facts.algorithm, None, facts.rng, facts.batch or record.batch, facts.deterministic)
        identity = here.identity(facts.direction)
        if facts.rng is None:
            identity = identity._replace(rng=record.identity.rng)
        differs = difference(there, plan.objective, "objective") or record.identity.difference(identity)
        if differs:
            raise JournalError(f"{journal}: journal does not match this run: {differs}")


def _how_to_resume(journal: Path | None) -> str:
    return "" if journal is None else f"Recorded evaluations are kept; to resume: {_resume_command(journal)}"


def _resume_command(journal: Path) -> str:
    return shlex.join(["knobless", "resume", str(journal)])


@contextmanager
def _stdout_for_data() -> Iterator[IO[str]]:
    """Yield the standard output; what the objective prints, here or in a worker, goes to the standard error."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        try:
            yield out
        finally:
            sys.stdout.flush()
            os.dup2(out.fileno(), 1)
