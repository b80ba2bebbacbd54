"""`knobless solve`: an instance file in, what a solver prints out."""

from __future__ import annotations

import sys
from typing import Annotated

import numpy as np
import typer

from knobless import __version__
from knobless._checks import positive_real, real
from knobless.problems.instances import NAMES, Format, load, rounded, solve

from . import tables
from .run import Json, Remarks, ending

File = Annotated[str, typer.Argument(metavar="INSTANCE", help="A file, packed or not; - for the standard input.")]
Budget = Annotated[int, typer.Option(min=1, help="Evaluations at most.")]
Kind = Annotated[Format | None, typer.Option("--format", help="Where the name of the file does not tell.")]
Seed = Annotated[int | None, typer.Option("--seed", "--rng", min=0, help="Makes the run repeatable.")]
Target = Annotated[
    float | None, typer.Option(help="Stop at a value as good, counted as the answer is; 0 for SAT and MaxSAT.")
]
Timeout = Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop after so many seconds.")]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command("solve")(command)


def command(
    instance: File,
    budget: Budget,
    format: Kind = None,
    seed: Seed = None,
    target: Target = None,
    timeout: Timeout = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look for the best point of a SAT, MaxSAT, Max-Cut or QUBO instance: .cnf, .wcnf, .mc, .qubo, also .gz, .xz, .bz2.

    Prints as solvers do: c remarks, o the value, s what is claimed, v the point. Ctrl-C prints the best so far.

    Exit codes: 0 done, 10 satisfiable, 20 unsatisfiable, 30 optimum found, 2 a wrong command or file, 130 Ctrl-C. 20 is
    said where every point was looked at, 30 there and of a cost of 0; both of SAT and MaxSAT alone.
    """
    with ending(None):
        for name, value, check in (("target", target, real), ("timeout", timeout, positive_real)):
            if value is not None:
                check(name, value)  # now, and not after a long file was read
        data = sys.stdin.buffer.read() if instance == "-" else None
        read = load("standard input" if instance == "-" else instance, format, data)
        seed = int(np.random.default_rng().integers(2**32)) if seed is None else seed
        if not json:
            typer.echo(f"c knobless {__version__}")
            typer.echo(f"c {NAMES[read.format]} {read.told_by}: {tables.plain(read.name)}, {read.size}")
            if rounded(read):
                typer.echo("c the weights add up to more than 2^53: values are rounded")
            sys.stdout.flush()
        answer = solve(read, budget, seed, target, timeout, Remarks(quiet).bar)
        typer.echo(tables.as_json(answer.data()) if json else "\n".join(answer.lines()))
        sys.stdout.flush()
        raise typer.Exit(answer.code)
