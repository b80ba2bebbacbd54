"""`knobless solve`: run the optimizer on an instance file and print the answer as solvers do."""

from __future__ import annotations

import sys

import numpy as np
import typer

from knobless import __version__
from knobless._checks import positive_real, real
from knobless.problems.instances import load_instance, solve_instance

from . import options, tables
from .errors import reported_errors
from .terminal import Messages, plain


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(
        "solve", short_help="Optimize a SAT, MaxSAT, Max-Cut or QUBO instance."
    )(solve_command)


def solve_command(
    instance: options.InstanceArgument,
    budget: options.BudgetOption = None,
    format: options.FormatOption = None,
    seed: options.SeedOption = None,
    target: options.TargetOption = None,
    timeout: options.TimeoutOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Optimize a SAT, MaxSAT, Max-Cut or QUBO instance: .cnf, .wcnf, .mc, .qubo, also with .gz,
    .xz or .bz2.

    The output is that of solvers: c comments, o the value, s the verdict, v the point. Ctrl-C
    prints the best so far. A target is a value as printed; for SAT and MaxSAT it is 0 by default.

    Exit codes: 0 done; 10 satisfiable; 20 unsatisfiable; 30 optimum found; 2 wrong usage or file;
    130 Ctrl-C. 20 means that every point was evaluated, 30 the same or a cost of 0; both for SAT
    and MaxSAT only.
    """
    with reported_errors():
        for name, value, check in (
            ("target", target, real),
            ("timeout", timeout, positive_real),
        ):
            if value is not None:
                check(name, value)  # before a long file is read
        if budget is None and timeout is None:
            raise ValueError(
                "--budget: expected a number of evaluations, or a --timeout, got neither"
            )
        data = sys.stdin.buffer.read() if instance == "-" else None
        read = load_instance(
            "standard input" if instance == "-" else instance, format, data
        )
        seed = (
            int(np.random.default_rng().integers(2**32))
            if seed is None
            else seed
        )
        if not json:
            typer.echo(f"c knobless {__version__}")
            typer.echo(
                f"c {read.problem.kind}, format from {read.detected_from}: {plain(read.name)}, "
                f"{read.problem.size}"
            )
            if read.is_rounded:
                typer.echo(
                    "c the sum of the weights exceeds 2^53: values are rounded"
                )
            sys.stdout.flush()
        messages = Messages(quiet)
        with messages.of_the_library():
            answer = solve_instance(
                read, budget, seed, target, timeout, messages.progress
            )
        typer.echo(
            tables.as_json(answer.data()) if json else "\n".join(answer.lines())
        )
        sys.stdout.flush()
        raise typer.Exit(answer.code)
