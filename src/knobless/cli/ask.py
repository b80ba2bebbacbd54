"""`knobless ask` and `knobless tell`: candidates and values in JSON, for other programs.

Several processes may call them at once; their calls take turns. One line of JSON is one candidate.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import typer

from knobless.journal.events import Journal
from knobless.parallel.returned import Constrained, Value
from knobless.run.candidates import Failure
from knobless.run.shared import RunSettings, SharedRun

from . import options, tables
from .errors import reported_errors
from .plan import direction_of, fixed_values, objectives_of, read_space
from .run import RECIPES
from .terminal import Messages

EXPECTED = (
    '{"id": 3, "value": 1.5}, or with "violation": 0.5, '
    '{"id": 3, "failed": "message"} or {"id": 3, "cancelled": true}'
)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("ask", short_help="Print candidates to evaluate, as JSON.")(
        ask_command
    )
    app.command("tell", short_help="Record values of candidates, from JSON.")(
        tell_command
    )


def ask_command(
    journal: options.SharedJournalArgument,
    n: options.CandidatesOption = 1,
    again: options.AgainOption = None,
    space: options.FirstSpaceOption = None,
    budget: options.AskBudgetOption = None,
    batch: options.AskBatchOption = None,
    maximize: options.MaximizeOption = False,
    objectives: options.ObjectivesOption = None,
    deterministic: options.DeterministicOption = None,
    seed: options.SeedOption = None,
    algorithm: options.AlgorithmOption = None,
    fix: options.FixOption = None,
    wait: options.WaitOption = 60.0,
) -> None:
    """Print candidates to evaluate, one JSON object per line: {"id": 3, "x": {...}}.

    The first call creates the journal and needs --space. The options after it are settings of the
    run; later calls repeat all of them, or none.

    Exit codes: 0 candidates printed; 1 no candidates left; 2 wrong usage or file, or the journal is
    in use.
    """
    with reported_errors():
        start = None
        if space is not None:
            domain = read_space(space)
            recipe = None if algorithm is None else RECIPES[algorithm](domain)
            ways = objectives_of(objectives or (), maximize)
            fixed = fixed_values(fix or ())
            start = RunSettings(
                domain,
                direction_of(maximize, ways),
                recipe,
                None,
                seed,
                batch,
                deterministic,
                fixed,
                ways,
            )
        elif maximize or any(
            source is not None
            for source in (
                objectives,
                batch,
                deterministic,
                seed,
                algorithm,
                fix,
            )
        ):
            raise ValueError(
                "--space: expected with --batch, --maximize, --objective, --deterministic, "
                "--noisy, --seed, "
                "--algorithm and --fix"
            )
        meta = {} if budget is None else {"budget": budget}
        with SharedRun(Journal(journal, meta, wait), start) as run:
            candidates = run.ask(n, again)
            pending = run.n_pending
            nfev = run.nfev
        for id, x in candidates:
            typer.echo(tables.as_json({"id": id, "x": x}))
        if not len(candidates):
            Messages().write(
                f"No candidates left: {nfev} evaluations are recorded, {pending} candidates are "
                "pending."
            )
            raise typer.Exit(1)


def tell_command(
    journal: options.SharedJournalArgument,
    skip_told: options.SkipToldOption = False,
    wait: options.WaitOption = 60.0,
) -> None:
    """Record values of candidates, from JSON on the standard input, one object per line.

    {"id": 3, "value": 1.5}, also with "violation": 0.5 for an infeasible point and "attributes":
    {"auc": 0.9}, or {"id": 3, "failed": "message"} for a failed evaluation, or {"id": 3,
    "cancelled": true} for a candidate that will not be evaluated. The value of several objectives
    is a list of numbers, or an object with their names. If a line is wrong, none is recorded.

    Exit codes: 0 recorded; 2 wrong usage, line or file, or the journal is in use.
    """
    with reported_errors():
        values: dict[int, Any] = {}
        cancelled = []
        text = sys.stdin.read()  # all of it, before others have to wait
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            id, value = _parsed(line, f"standard input, line {number}")
            if id in values or id in cancelled:
                raise ValueError(
                    f"standard input, line {number}: expected each candidate once, got the id "
                    f"{id} again"
                )
            if value is None:
                cancelled.append(id)
            else:
                values[id] = value
        with SharedRun(Journal(journal, wait=wait)) as run:
            run.tell(values, cancelled, skip_told)


def _parsed(line: str, name: str) -> tuple[int, Any]:
    """Return the candidate of a line and its value; None for a cancelled one."""
    try:
        match json.loads(line):
            case {
                "id": int(id),
                "value": value,
                "attributes": dict(attributes),
                **rest,
            } if type(id) is int:
                return id, Value(
                    _parsed(
                        json.dumps({"id": id, "value": value} | rest), name
                    )[1],
                    attributes,
                )
            case {"id": int(id), **rest} if type(id) is int:
                match list(rest.items()):
                    case [("value", value)] if _is_value(value):
                        return id, _told(value)
                    case [
                        ("value", value),
                        ("violation", int() | float() as violation),
                    ] if _is_value(value) and type(violation) is not bool:
                        return id, Constrained(_told(value), float(violation))
                    case [("failed", str(message))]:
                        return id, Failure(message)
                    case [("cancelled", True)]:
                        return id, None
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{name}: expected {EXPECTED}, got {line!r:.100}")


def _is_value(value: Any) -> bool:
    """Return whether this is a number or a list of objective values.

    null is NaN.
    """
    numbers = (
        [*value.values()]
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else [value]
    )
    return all(
        number is None or type(number) in (int, float) for number in numbers
    )


def _told(value: Any) -> Any:
    """Return a number or the numbers of several objectives as floats."""
    match value:
        case dict():
            return {name: _told(number) for name, number in value.items()}
        case list():
            return [_told(number) for number in value]
    return math.nan if value is None else float(value)
