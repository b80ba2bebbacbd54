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
    each = zip(column.values.tolist(), column.present.tolist(), strict=True)
    return [shown(value) if present else "" for value, present in each]


def _cell(value: Any) -> str:
    """Return the text of a cell, with an apostrophe before text that a spreadsheet would run as a formula."""
    if type(value) in (int, float):
        return "" if value != value else repr(value)
    text = plain(str(value))
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "'") else text


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OSError, OverflowError):  # an untrusted journal may contain any number
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


def print_summary(found: Summary, space: Space) -> None:
    """Print the summary of a journal."""
    facts = {
        "run": f"{found.direction} {found.objective or 'an unnamed objective'}"
        if found.front is None
        else f"{found.objective or 'an unnamed objective'}: {_directions(found.front)}",
        **_values(found, found.fun),
        **_attributes(found.observed_attributes),
        "evaluations": f"{found.nfev}" + (f" of {found.budget}" if found.budget else ""),
        "failures": _failures(found.failures, found.failure),
        **({"steps": f"{found.steps}, {found.stopped} evaluations stopped"} if found.steps else {}),
        "evaluation time": _took(found.seconds_median, found.seconds_longest),
        "started": _moment(found.started),
        "last ended": _moment(found.ended),
        "workers": _busy(found.workers),
        "objective": objective_kind(found.deterministic, found.deterministic_stated),
        "batch": str(found.batch),
        "seed": str(found.seed),
        "value at mode": _number(found.mode_fun),
        "iterations": _number(found.nit),
        "sample size λ": _number(found.lam),
        "step length ε": _number(found.eps),
    }
    console = Console(highlight=False)
    console.print(_grid(facts))
    _print_front(console, found.front)
    console.print(_points(space, found, [_sure(each) for each in found.marginals]))


def _values(found: Result | Summary, fun: float | None) -> dict[str, str]:
    """Return the value of the point to use; of a noisy objective its estimate, and the best single observation.

    For several objectives, it is that of the knee of the front.
    """
    if found.front is not None:
        values = zip(found.front.names, found.fun if isinstance(found.fun, tuple) else (), strict=False)
        knee = ", ".join(f"{name} {_number(value)}" for name, value in values)
        return {"front": f"{len(found.front)} points", "knee": knee or "–"} | _violation(found)
    if found.deterministic is not False or found.x is None:
        return {"best": _number(fun)} | _violation(found)
    error = f" ± {found.fun_std:.2g}" if found.fun_std else ""
    facts = {"recommended": _number(fun) + error, "best observation": _number(found.observed_fun)}
    return facts | _violation(found)


def _attributes(attributes: dict[str, Any]) -> dict[str, str]:
    """Return the attributes of the best observation, if there are any."""
    text = ", ".join(f"{name} {_shown(value)}" for name, value in attributes.items())
    return {"attributes": text if len(text) <= LONGEST else f"{text[: LONGEST - 2]} …"} if text else {}


def _directions(front: Front) -> str:
    return ", ".join(f"{name} ({direction})" for name, direction in front.directions.items())


def _print_front(console: Console, front: Front | None) -> None:
    """Print the front of several objectives as a table; of many points some, evenly spaced."""
    if not front:
        return
    shown = front.shown
    table = Table(title=f"front of {len(front)} points" + ("" if len(shown) == len(front) else f", {len(shown)} shown"))
    for name, direction in front.directions.items():
        table.add_column(Text(plain(f"{name} ({direction})")), justify="right")
    table.add_column("point", overflow="fold")
    for i in shown:
        table.add_row(*(Text(plain(cell)) for cell in (*front.cells(i), _one_line(front.space, front[i].x))))
    console.print(table)


def _one_line(space: Space, x: Any) -> str:
    """Return a point as names and values, without inactive variables."""
    values = zip(space.columns(), space.flatten(x), strict=True)
    return " ".join(f"{column.name or 'x'}={_shown(value)}" for column, value in values if value is not INACTIVE)


def _violation(found: Result | Summary) -> dict[str, str]:
    """Return the violation of an infeasible point; nothing for a feasible one."""
    return {"violation": _number(found.violation)} if found.x is not None and found.violation else {}


def _grid(facts: dict[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column(overflow="fold")
    for name, text in facts.items():
        table.add_row(Text(plain(name)), Text(plain(text)))
    return table


def _points(space: Space, found: Result | Summary, certainty: Sequence[str] = ()) -> Table:
    """Return a table with one row per variable: the point to use, and the most probable one."""
    columns: dict[str, Iterable[str]] = {"variable": [each.name or "x" for each in space.columns()]}
    noisy = found.deterministic is False
    if found.x is not None:
        chosen = "knee of the front" if found.front is not None else "recommended" if noisy else "best"
        columns[chosen] = map(_shown, space.flatten(found.x))
    if noisy and found.front is None and found.observed_x is not None:
        columns["best observation"] = map(_shown, space.flatten(found.observed_x))
    if found.mode is not None:
        columns["most probable"] = map(_shown, space.flatten(found.mode))
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
        words = [_shown(each) for each in (value.astype(np.int8) if bits else value).tolist()]
        text, many = ("" if bits else ", ").join(words), f" ({len(words)})"
    else:
        text, many = f"{value:.6g}" if isinstance(value, float) else str(value), ""
    return text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 2]} …{many}"


def _sure(marginal: VariableSummary) -> str:
    """Format the probability of the most probable value; for an array, the smallest and the largest one."""
    p = marginal.probability
    if p is None:
        return f"68% from {_shown(marginal.low)} to {_shown(marginal.high)}"
    return f"{np.min(p):.3g} to {np.max(p):.3g}" if np.ndim(p) else f"{p:.3g}"


def _number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.10g}"


def _failures(many: int, first: str | None) -> str:
    lines = (first or "").strip().splitlines()
    return f"{many}, the first: {lines[-1]}" if many and lines else str(many)


def _took(median: float | None, longest: float | None) -> str:
    return "–" if median is None or longest is None else f"median {median:.3g} s, longest {longest:.3g} s"


def _moment(when: float | None) -> str:
    try:
        return "–" if when is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    except (ValueError, OSError, OverflowError):  # an untrusted journal may contain any number
        return str(when)


def _busy(workers: dict[str, int]) -> str:
    each = [f"{name} ({many})" for name, many in workers.items()]
    more = f" and {len(each) - MAX_WORKERS} more" if len(each) > MAX_WORKERS else ""
    return f"{len(each)}: {', '.join(each[:MAX_WORKERS])}{more}" if each else "–"
