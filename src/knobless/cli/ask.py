"""`knobless ask` and `tell`: candidates and values in JSON, for clusters, laboratories and other languages.

Several processes may call them at once; their calls take turns. One line of JSON is one candidate.
"""

from __future__ import annotations

import json
import math
import sys

import typer

from knobless.core.violation import ranked
from knobless.journal.events import Journal
from knobless.run.candidates import Failure
from knobless.run.shared import SharedRun, Start

from . import options, tables
from .errors import reported_errors
from .plan import fixed_values, read_space
from .run import RECIPES
from .terminal import Messages

EXPECTED = (
    '{"id": 3, "value": 1.5}, or with "violation": 0.5, {"id": 3, "failed": "message"} or {"id": 3, "cancelled": true}'
)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("ask")(ask_command)
    app.command("tell")(tell_command)


def ask_command(
    journal: options.SharedJournalArgument,
    n: options.CandidatesOption = 1,
    again: options.AgainOption = None,
    space: options.FirstSpaceOption = None,
    budget: options.AskBudgetOption = None,
    batch: options.AskBatchOption = None,
    maximize: options.MaximizeOption = False,
    deterministic: options.DeterministicOption = None,
    seed: options.SeedOption = None,
    algorithm: options.AlgorithmOption = None,
    fix: options.FixOption = None,
    wait: options.WaitOption = 60.0,
) -> None:
    """Print candidates to evaluate, one JSON object per line: {"id": 3, "x": {...}}.

    The first call creates the journal and needs --space. The options after it are settings of the run; later calls
    repeat all of them, or none.

    Exit codes: 0 candidates printed; 1 no candidates left; 2 wrong usage or file, or the journal is in use.
    """
    with reported_errors():
        start = None
        if space is not None:
            domain = read_space(space)
            recipe = None if algorithm is None else RECIPES[algorithm](domain)
            direction = "maximize" if maximize else "minimize"
            start = Start(domain, direction, recipe, None, seed, batch, deterministic, fixed_values(fix or ()))
        elif maximize or any(each is not None for each in (batch, deterministic, seed, algorithm, fix)):
            raise ValueError(
                "--space: expected with --batch, --maximize, --deterministic, --noisy, --seed, --algorithm and --fix"
            )
        meta = {} if budget is None else {"budget": budget}
        with SharedRun(Journal(journal, meta, wait), start) as run:
            candidates = run.ask(n, again)
            pending, nfev = run.n_pending, run.nfev
        for id, x in candidates:
            typer.echo(tables.as_json({"id": id, "x": x}))
        if not len(candidates):
            Messages().write(f"No candidates left: {nfev} evaluations are recorded, {pending} candidates are pending.")
            raise typer.Exit(1)


def tell_command(
    journal: options.SharedJournalArgument,
    skip_told: options.SkipToldOption = False,
    wait: options.WaitOption = 60.0,
) -> None:
    """Record values of candidates, from JSON on the standard input, one object per line.

    {"id": 3, "value": 1.5}, also with "violation": 0.5 for an infeasible point, or {"id": 3, "failed": "message"} for a
    failed evaluation, or {"id": 3, "cancelled": true} for a candidate that will not be evaluated. If a line is wrong,
    none is recorded.

    Exit codes: 0 recorded; 2 wrong usage, line or file, or the journal is in use.
    """
    with reported_errors():
        values: dict[int, float | Failure] = {}
        cancelled = []
        text = sys.stdin.read()  # all of it, before others have to wait
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            id, value = _parsed(line, f"standard input, line {number}")
            if id in values or id in cancelled:
                raise ValueError(f"standard input, line {number}: expected each candidate once, got the id {id} again")
            if value is None:
                cancelled.append(id)
            else:
                values[id] = value
        with SharedRun(Journal(journal, wait=wait)) as run:
            run.tell(values, cancelled, skip_told)


def _parsed(line: str, name: str) -> tuple[int, float | Failure | None]:
    """Return the candidate of a line and its value; None for a cancelled one."""
    try:
        match json.loads(line):
            case {"id": int(id), **rest} if type(id) is int:
                match list(rest.items()):
                    case [("value", None)]:  # how JSON writes NaN
                        return id, math.nan
                    case [("value", int() | float() as value)] if type(value) is not bool:
                        return id, float(value)
                    case [("value", int() | float() as value), ("violation", int() | float() as violation)] if (
                        bool not in (type(value), type(violation))
                    ):
                        return id, ranked(float(value), float(violation))
                    case [("failed", str(message))]:
                        return id, Failure(message)
                    case [("cancelled", True)]:
                        return id, None
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{name}: expected {EXPECTED}, got {line!r:.100}")
