"""`knobless run`, `show` and `resume`: a run, a summary of its journal, and its continuation.

The options are those of `minimize`. `run` records a `RunPlan` in the journal, which `resume` reads.
Results go to the standard output, everything else to the standard error.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import typer

from knobless.core.algorithm import Algorithm
from knobless.core.data import difference
from knobless.core.description import algorithm_of
from knobless.journal.records import Journal, JournalError, Record, read
from knobless.recipes import (
    cga,
    linear_thompson,
    p3,
    pbil_elitist,
    pbil_epsilon,
    pbil_lambda,
    search,
)
from knobless.report.summary import summary
from knobless.run.candidates import Failure
from knobless.run.minimize import maximize, minimize
from knobless.run.optimizer import Optimizer
from knobless.run.result import Status
from knobless.run.sources import workers_of
from knobless.space.codec import space_data
from knobless.space.fixed import FixedVariables
from knobless.space.space import Space

from . import options, tables
from .command import Command
from .errors import reported_errors
from .objects import NamedFunction, UserCodeError, is_local
from .options import AlgorithmName
from .plan import RunPlan, direction_of, objectives_of, toml_text
from .terminal import Messages, plain

RECIPES: dict[AlgorithmName, Callable[[Any], Algorithm]] = {
    AlgorithmName.PBIL_LAMBDA: pbil_lambda,
    AlgorithmName.PBIL_EPSILON: pbil_epsilon,
    AlgorithmName.PBIL_ELITIST: pbil_elitist,
    AlgorithmName.CGA: cga,
    AlgorithmName.P3: p3,
    AlgorithmName.SEARCH: search,
    AlgorithmName.LINEAR_THOMPSON: linear_thompson,
    AlgorithmName.NOISY_SEARCH: partial(search, deterministic=False),
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
    app.command(
        "run", short_help="Optimize a function or the output of a program."
    )(run_command)
    app.command("show", short_help="Summarize a journal, also during the run.")(
        show_command
    )
    app.command("resume", short_help="Resume a run from its journal.")(
        resume_command
    )


def run_command(
    space: options.SpaceOption,
    objective: options.ObjectiveArgument = None,
    command: options.CommandOption = None,
    budget: options.BudgetOption = None,
    journal: options.JournalOption = None,
    workers: options.WorkersOption = 1,
    batch: options.BatchOption = None,
    maximize: options.MaximizeOption = False,
    objectives: options.ObjectivesOption = None,
    deterministic: options.DeterministicOption = None,
    target: options.TargetOption = None,
    timeout: options.TimeoutOption = None,
    stall: options.StallOption = None,
    evaluation_timeout: options.EvaluationTimeoutOption = None,
    seed: options.SeedOption = None,
    algorithm: options.AlgorithmOption = None,
    constraint: options.ConstraintOption = None,
    fix: options.FixOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Minimize or maximize an objective function, or the output of a program, over a search space.

    With a journal no evaluation is lost: repeat the command, or use `knobless resume`, to continue
    an interrupted run.

    Exit codes: 0 success; 1 no finite value, or an error in the objective; 2 wrong usage or file;
    130 Ctrl-C.
    """
    with reported_errors(_how_to_resume(journal, command is not None)):
        toml = toml_text(space)
        stopping = budget, workers, target, timeout, stall, evaluation_timeout
        ways = objectives_of(objectives or (), maximize)
        named = [f"{name}={way}" for name, way in (ways or {}).items()]
        plan = RunPlan(
            objective,
            command,
            space,
            toml,
            *stopping,
            constraint or [],
            fix or [],
            named,
        )
        domain = plan.read_space()
        fun = plan.read_objective(domain)
        direction = direction_of(maximize, ways)
        recipe = None if algorithm is None else RECIPES[algorithm](domain)
        facts = Facts(direction, recipe, batch, deterministic, seed)
        before = 0 if journal is None else count_recorded(journal)
        messages = Messages(quiet)
        if before and journal is not None:
            _check_same_run(journal, plan, domain, facts)
            messages.write(
                f"Resuming {plan.name} after {before} evaluations in {journal}."
            )
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

    The objective that the journal names is called only if it is defined in a file of the current
    folder; a command is run only with --trust, or if `run` is called with it again.

    Exit codes are those of `run`.
    """
    with reported_errors(_how_to_resume(journal, trust)):
        with read(journal) as record:
            plan = RunPlan.of(record)
            fun, domain = _import_checked(record, plan, trust)
            before = record.counts().evaluations
            # By default a run tests whether the objective is noisy, but not if an algorithm is
            # given.
            algorithm = None
            if not record.identity.is_recommended:
                algorithm = algorithm_of(
                    record.identity.algorithm, record.space.family
                )
            facts = Facts(
                record.direction,
                algorithm,
                # Without one, a run may be resumed with any number of workers.
                record.batch if record.batch > 1 else None,
                record.deterministic,
                None,
            )
        plan = replace(
            plan,
            budget=budget or plan.budget,
            workers=plan.workers if workers is None else workers,
        )
        messages = Messages(quiet)
        of = "" if plan.budget is None else f" of {plan.budget}"
        messages.write(
            f"Resuming {plain(plan.name)} after {before}{of} evaluations."
        )
        _optimize(plan, fun, domain, facts, journal, before, json, messages)


def show_command(
    journal: options.JournalArgument,
    json: options.JsonOption = False,
    csv: options.CsvOption = False,
) -> None:
    """Summarize a journal, also during the run: best point, state of the search, failures,
    durations.

    Nothing that the journal names is imported. Exit code 2 if the file is not a journal.
    """
    with reported_errors():
        if json and csv:
            raise ValueError("--csv: expected either --csv or --json, got both")
        with read(journal) as record:
            if csv:
                tables.write_evaluations(record.evaluations, sys.stdout)
                return
            shown = summary(record)
            space = record.space
        if json:
            data = {"journal": str(journal)} | {
                field.name: getattr(shown, field.name)
                for field in fields(shown)
            }
            typer.echo(tables.as_json(data))
        else:
            tables.print_summary(shown, space)


def _optimize(
    plan: RunPlan,
    fun: NamedFunction | Command,
    space: Space,
    facts: Facts,
    journal: Path | None,
    before: int,
    json: bool,
    messages: Messages,
) -> None:
    """Run the optimization, print the result and exit."""
    workers = workers_of(plan.workers)
    smallest = max(facts.batch or workers, 2)
    if workers > smallest:
        advice = "begin a new run" if before else "leave out --batch"
        messages.write(
            f"{workers} workers, but an iteration may have only {smallest} evaluations: "
            f"{advice} to "
            "keep all workers busy."
        )
    constraints = plan.read_constraints()
    fixed = plan.read_fixed()
    # What is wrong with it is reported as wrong usage
    FixedVariables.of(space, fixed)
    in_processes = workers > 1 or plan.evaluation_timeout is not None
    with (
        messages.of_the_library(),
        _stdout_for_data() if json else nullcontext() as out,
    ):
        try:
            result = (maximize if facts.direction == "maximize" else minimize)(
                fun.fun
                if isinstance(fun, NamedFunction) and not in_processes
                else fun,
                space,
                budget=plan.budget,
                algorithm=facts.algorithm,
                target=plan.target,
                timeout=plan.timeout,
                stall=plan.stall,
                constraints=[constraint.fun for constraint in constraints],
                fixed=fixed,
                rng=facts.rng,
                batch=facts.batch,
                workers=workers,
                deterministic=facts.deterministic,
                evaluation_timeout=plan.evaluation_timeout,
                objectives=plan.read_objectives(),
                journal=None
                if journal is None
                else Journal(journal, {"command": asdict(plan)}),
                progress=messages.progress,
            )
        except JournalError:
            raise
        except Failure as error:  # of a program
            raise UserCodeError(
                f"{error}. The run ends because its first evaluations failed"
            ) from None
        except Exception as error:
            raise UserCodeError(
                f"{plan.name}: the run ends with this error"
            ) from error
        if before and journal is not None and before == count_recorded(journal):
            messages.write(
                f"Nothing left to do: {before} evaluations are recorded."
            )
        if out is not None:
            about = {
                "objective": plan.name,
                "direction": facts.direction,
                "objectives": plan.read_objectives() or {},
                "journal": journal and str(journal),
            }
            out.write(tables.as_json(about | result.to_dict()) + "\n")
        else:
            tables.print_result(result, space)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    raise typer.Exit(1 if result.x is None else 0)


def _import_checked(
    record: Record, plan: RunPlan, trust: bool
) -> tuple[NamedFunction | Command, Space]:
    """Import what a journal names; unless trusted, only from the current folder, and no command."""
    if not trust:
        _check_trusted(record, plan)
    space = plan.read_space()
    # Before memory is taken for it
    differs = difference(record.identity.space, space_data(space), "space")
    if differs:
        raise JournalError(
            f"{record.path}: journal does not match this run: {differs}"
        )
    if algorithm_of(record.identity.algorithm, space.family) is None:
        raise JournalError(
            f"{record.path}: cannot resume: the algorithm has custom components, which are not "
            "recorded"
        )
    fun = plan.read_objective(space)
    for function in (fun, *plan.read_constraints()):
        if not trust and not (
            isinstance(function, NamedFunction) and function.is_local
        ):
            name = (
                function.name
                if isinstance(function, NamedFunction)
                else plan.name
            )
            raise ValueError(
                _refused(
                    record,
                    f"names {name}, which is defined outside the current folder",
                )
            )
    return fun, space


def _check_trusted(record: Record, plan: RunPlan) -> None:
    """Raise if the journal has a command, or names what is not in a file of the current folder."""
    if plan.command is not None:  # its arguments can do harm with any program
        raise ValueError(
            _refused(
                record,
                f"has the command {plan.command}, which is not run without --trust",
            )
        )
    for name in (
        plan.objective,
        None if plan.toml is not None else plan.space,
        *plan.constraints,
    ):
        if name is not None and not is_local(name):
            raise ValueError(
                _refused(
                    record,
                    f"names {name}, which is not in a file of the current folder",
                )
            )


def _refused(record: Record, reason: str) -> str:
    remedy = f"To run it anyway: {_resume_command(record.path, trust=True)}"
    return (
        f"{record.path}: cannot resume: the journal {plain(reason)}. {remedy}"
    )


def count_recorded(journal: Path) -> int:
    """Return the number of evaluations in a journal; 0 if it does not exist or is empty."""
    try:
        with read(journal) as record:
            return record.counts().evaluations
    # If it cannot be written either, `minimize` reports why
    except JournalError:
        return 0


def _check_same_run(
    journal: Path, plan: RunPlan, space: Space, facts: Facts
) -> None:
    """Raise unless an existing journal is of this run, before the plan is recorded in it."""
    with read(journal) as record:
        noted = record.meta.get("command")
        recorded = (
            noted.get("objective") or noted.get("command")
            if isinstance(noted, dict)
            else plan.name
        )
        batch = facts.batch or record.batch
        constraints = [constraint.fun for constraint in plan.read_constraints()]
        current = Optimizer(
            space,
            facts.algorithm,
            None,
            facts.rng,
            batch,
            facts.deterministic,
            constraints=constraints,
            fixed=plan.read_fixed(),
            objectives=plan.read_objectives(),
        )
        identity = current.identity(facts.direction)
        if facts.rng is None:
            identity = identity._replace(rng=record.identity.rng)
        differs = difference(
            recorded, plan.name, "objective"
        ) or record.identity.difference(identity)
        if differs:
            raise JournalError(
                f"{journal}: journal does not match this run: {differs}"
            )


def _how_to_resume(journal: Path | None, trust: bool) -> str:
    if journal is None:
        return ""
    return f"Recorded evaluations are kept; to resume: {_resume_command(journal, trust)}"


def _resume_command(journal: Path, trust: bool) -> str:
    return shlex.join(
        ["knobless", "resume", str(journal), *(["--trust"] if trust else [])]
    )


@contextmanager
def _stdout_for_data() -> Iterator[IO[str]]:
    """Yield the standard output.

    What the objective prints, here or in a worker, goes to the standard error.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        try:
            yield out
        finally:
            sys.stdout.flush()
            os.dup2(out.fileno(), 1)
