"""Results and journals as tables for a terminal, and as JSON."""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import IO, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from knobless.journal.evaluations import Evaluations, TableColumn
from knobless.report.marginals import VariableSummary
from knobless.report.summary import Summary, objective_kind
from knobless.run.front import Front
from knobless.run.jsonable import jsonable
from knobless.run.result import Result
from knobless.space.space import Space
from knobless.space.when import INACTIVE

from .terminal import plain

MAX_WIDTH = 64  # characters of a value
LONGEST = 400  # characters of all attributes
MAX_WORKERS = 4  # named in a summary


def as_json(data: Any) -> str:
    """Return one line of JSON. It is ASCII, so that untrusted text cannot control a terminal."""
    return json.dumps(jsonable(data), allow_nan=False)


def write_evaluations(evaluations: Evaluations, out: IO[str]) -> None:
    """Write all evaluations as CSV, with a header; a missing value is an empty cell."""
    writer = csv.writer(out, lineterminator="\n")
    named = False
    for columns in evaluations.tables():
        if not named:
            writer.writerow([_cell(column.name) for column in columns])
            named = True
        writer.writerows(zip(*map(_cells, columns), strict=True))


def _cells(column: TableColumn) -> list[str]:
    shown = _time if column.name == "start" else _cell
    cells = zip(column.values.tolist(), column.present.tolist(), strict=True)
    return [shown(value) if present else "" for value, present in cells]


def _cell(value: Any) -> str:
    """Return the text of a cell.

    An apostrophe precedes text that a spreadsheet would run as a formula.
    """
    if type(value) in (int, float):
        return "" if value != value else repr(value)
    text = plain(str(value))
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "'") else text


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    # An untrusted journal may contain any number
    except (ValueError, OSError, OverflowError):
        return ""


def print_result(result: Result, space: Space) -> None:
    """Print why a run ended, and what it found."""
    console = Console(highlight=False)
    console.print(Text(plain(result.message)))
    facts = {
        **_values(result, None if result.x is None else result.fun),
        "evaluations": str(result.nfev),
        "failures": _failures(result.failures, result.failure),
        "iterations": str(result.nit),
    }
    console.print(_grid(facts))
    _print_front(console, result.front)
    console.print(_points(space, result))


def print_summary(summary: Summary, space: Space) -> None:
    """Print the summary of a journal."""
    facts = {
        "run": f"{summary.direction} {summary.objective or 'an unnamed objective'}"
        if summary.front is None
        else f"{summary.objective or 'an unnamed objective'}: {_directions(summary.front)}",
        **_values(summary, summary.fun),
        **_attributes(summary.observed_attributes),
        "evaluations": f"{summary.nfev}"
        + (f" of {summary.budget}" if summary.budget else ""),
        "failures": _failures(summary.failures, summary.failure),
        **(
            {"steps": f"{summary.steps}, {summary.stopped} evaluations stopped"}
            if summary.steps
            else {}
        ),
        "evaluation time": _took(
            summary.seconds_median, summary.seconds_longest
        ),
        "started": _moment(summary.started),
        "last ended": _moment(summary.ended),
        "workers": _busy(summary.workers) + _share(summary),
        "objective": objective_kind(
            summary.deterministic, summary.deterministic_stated
        ),
        "batch": str(summary.batch),
        "seed": str(summary.seed),
        "value at mode": _number(summary.mode_fun),
        "iterations": _number(summary.nit),
        "sample size λ": _number(summary.lam),
        "step length ε": _number(summary.eps),
    }
    console = Console(highlight=False)
    console.print(_grid(facts))
    _print_front(console, summary.front)
    console.print(
        _points(
            space, summary, [_sure(marginal) for marginal in summary.marginals]
        )
    )


def _values(outcome: Result | Summary, fun: float | None) -> dict[str, str]:
    """Return the value of the point to use, and of a noisy objective the best observation.

    For several objectives, it is that of the knee of the front.
    """
    if outcome.front is not None:
        values = zip(
            outcome.front.names,
            outcome.fun if isinstance(outcome.fun, tuple) else (),
            strict=False,
        )
        knee = ", ".join(f"{name} {_number(value)}" for name, value in values)
        return {
            "front": f"{len(outcome.front)} points",
            "knee": knee or "–",
        } | _violation(outcome)
    if outcome.deterministic is not False or outcome.x is None:
        return {"best": _number(fun)} | _violation(outcome)
    error = f" ± {outcome.fun_std:.2g}" if outcome.fun_std else ""
    facts = {
        "recommended": _number(fun) + error,
        "best observation": _number(outcome.observed_fun),
    }
    return facts | _violation(outcome)


def _attributes(attributes: dict[str, Any]) -> dict[str, str]:
    """Return the attributes of the best observation, if there are any."""
    text = ", ".join(
        f"{name} {_shown(value)}" for name, value in attributes.items()
    )
    if text:
        return {
            "attributes": text
            if len(text) <= LONGEST
            else f"{text[: LONGEST - 2]} …"
        }
    return {}


def _directions(front: Front) -> str:
    return ", ".join(
        f"{name} ({direction})" for name, direction in front.directions.items()
    )


def _print_front(console: Console, front: Front | None) -> None:
    """Print the front of several objectives as a table; of many points some, evenly spaced."""
    if not front:
        return
    shown = front.shown
    table = Table(
        title=f"front of {len(front)} points"
        + ("" if len(shown) == len(front) else f", {len(shown)} shown")
    )
    for name, direction in front.directions.items():
        table.add_column(Text(plain(f"{name} ({direction})")), justify="right")
    table.add_column("point", overflow="fold")
    for i in shown:
        table.add_row(
            *(
                Text(plain(cell))
                for cell in (
                    *front.cells(i),
                    _one_line(front.space, front[i].x),
                )
            )
        )
    console.print(table)


def _one_line(space: Space, x: Any) -> str:
    """Return a point as names and values, without inactive variables."""
    values = zip(space.columns(), space.flatten(x), strict=True)
    return " ".join(
        f"{column.name or 'x'}={_shown(value)}"
        for column, value in values
        if value is not INACTIVE
    )


def _violation(outcome: Result | Summary) -> dict[str, str]:
    """Return the violation of an infeasible point; nothing for a feasible one."""
    if outcome.x is not None and outcome.violation:
        return {"violation": _number(outcome.violation)}
    return {}


def _grid(facts: dict[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column(overflow="fold")
    for name, text in facts.items():
        table.add_row(Text(plain(name)), Text(plain(text)))
    return table


def _points(
    space: Space, outcome: Result | Summary, certainty: Sequence[str] = ()
) -> Table:
    """Return a table with one row per variable: the point to use, and the most probable one."""
    columns: dict[str, Iterable[str]] = {
        "variable": [column.name or "x" for column in space.columns()]
    }
    noisy = outcome.deterministic is False
    if outcome.x is not None:
        chosen = (
            "knee of the front"
            if outcome.front is not None
            else "recommended"
            if noisy
            else "best"
        )
        columns[chosen] = map(_shown, space.flatten(outcome.x))
    if noisy and outcome.front is None and outcome.observed_x is not None:
        columns["best observation"] = map(
            _shown, space.flatten(outcome.observed_x)
        )
    if outcome.mode is not None:
        columns["most probable"] = map(_shown, space.flatten(outcome.mode))
    if certainty:
        columns["probability"] = certainty
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(Text(plain(text)) for text in row))
    return table


def _shown(value: Any) -> str:
    """Format a value; bits without separators."""
    if isinstance(value, np.ndarray):
        bits = value.dtype in (np.int8, np.bool_)
        words = [
            _shown(entry)
            for entry in (value.astype(np.int8) if bits else value).tolist()
        ]
        text = ("" if bits else ", ").join(words)
        size = f" ({len(words)})"
    else:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        size = ""
    return (
        text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 2]} …{size}"
    )


def _sure(marginal: VariableSummary) -> str:
    """Format the probability of the most probable value.

    For an array, the smallest and the largest one.
    """
    p = marginal.probability
    if p is None:
        return f"68% from {_shown(marginal.low)} to {_shown(marginal.high)}"
    return f"{np.min(p):.3g} to {np.max(p):.3g}" if np.ndim(p) else f"{p:.3g}"


def _number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.10g}"


def _failures(count: int, first: str | None) -> str:
    lines = (first or "").strip().splitlines()
    if count and lines:
        return f"{count}, the first: {lines[-1]}"
    return str(count)


def _took(median: float | None, longest: float | None) -> str:
    if median is None or longest is None:
        return "–"
    return f"median {median:.3g} s, longest {longest:.3g} s"


def _moment(when: float | None) -> str:
    try:
        if when is None:
            return "–"
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    # An untrusted journal may contain any number
    except (ValueError, OSError, OverflowError):
        return str(when)


def _share(summary: Summary) -> str:
    """Return the share of time in which several workers evaluated."""
    if summary.busy is None or len(summary.workers) < 2:
        return ""
    return f", busy {summary.busy:.0%} of the time"


def _busy(workers: dict[str, int]) -> str:
    shown = [f"{name} ({count})" for name, count in workers.items()]
    remaining = (
        f" and {len(shown) - MAX_WORKERS} more"
        if len(shown) > MAX_WORKERS
        else ""
    )
    if shown:
        return f"{len(shown)}: {', '.join(shown[:MAX_WORKERS])}{remaining}"
    return "–"
