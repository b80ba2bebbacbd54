"""The contents of the page as plain data: the numbers of a `Trace`, packed to few bytes per row.

An array is `{"f8": …}`, `{"i4": …}` or `{"u1": …}`: its little-endian bytes in base64, which are
exact, short and fast to read in a browser. A column of the table has `per` entries per row. Text
from the journal stays text.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knobless.core.description import algorithm_data
from knobless.core.types import Array, Points
from knobless.space.space import Column, shown_name
from knobless.space.variable import Variable
from knobless.space.when import INACTIVE

from .importance import variable_importance
from .marginals import Marginal, marginals_at
from .summary import objective_kind
from .trace import DOTS, Trace, drawable

# Rows by their fates in a journal, and
FATES = ("", "evaluated", "cancelled", "added", "check", "failed", "stopped")
# Evaluations without a value; `page.js` has the same numbers
FAILED, STOPPED = 5, 6
COLUMNS = {
    "evaluation",
    "fate",
    "value",
    "iteration",
    "position",
    "steps",
    "seconds",
    "ended",
    "worker",
    "failure",
}
# Bytes per row for the variables in the table; wider ones are left out
WIDTH = 256
_LONG = 4000  # characters shown of a failure, the last ones
IMPORTANT = 20  # variables shown with their importance
SHOWN = 200  # points of a front, at most
ENTRIES = 2048  # of arrays and scalars together, shown in the configurations


def collect_page_data(
    trace: Trace, since: int = 0, forest: bool | None = None
) -> dict[str, Any]:
    """Return all contents, with the rows of the table from `since` on.

    `forest` is for the importance of variables.
    """
    steps = trace.steps
    names, iterations, theta_history = trace.theta_history
    evaluations = int(trace.calls[-1]) if len(trace) else 0
    best = trace.best
    recommended = trace.recommended
    calls, bests = trace.improvements
    objectives = _objectives(trace)
    # The best of the first objective, under noise a mean
    if trace.outcomes is not None and len(trace.outcomes.front):
        row = int(trace.outcomes.front[0])
        best = trace.outcomes.values[row, 0], row, trace.codes(row)[0]
    return {
        "name": trace.name,
        "direction": trace.direction,
        "facts": _facts(trace),
        "budget": _budget(trace),
        "calls": evaluations,
        "failed": sum(message.times for message in trace.failure_messages),
        "rows": len(trace),
        "since": since,
        "times": packed_array(_times(trace)),
        "alpha": trace.alpha,
        "best": packed_array([math.nan if best is None else best[0]]),
        "recommended": None
        if recommended is None
        else packed_array([recommended.fun, recommended.std]),
        "bestRow": -1 if best is None else best[1],
        "nit": steps[-1].iteration if steps else 0,
        "improvements": [packed_array(calls), packed_array(drawable(bests))],
        "dots": [packed_array(part) for part in trace.dots],
        "bands": [packed_array(part) for part in trace.bands],
        "extent": packed_array(trace.extent),
        "curves": _curves(trace),
        "objectives": objectives,
        "steps": {
            name: packed_array([getattr(step, name) for step in steps])
            for name in ("iteration", "nfev", "lam_r", "eps", "snr", "entropy")
        },
        "theta_history": {
            "names": names,
            "iterations": packed_array(iterations),
            "p": packed_array(theta_history.ravel()),
        },
        "entropies": _entropies(trace),
        "importance": _importance(trace, forest),
        "folded": trace.theta is not None,
        "marginals": _marginals(trace),
        "variables": trace.space.family.variables,
        "configuration": _configuration(trace),
        "failures": [
            {
                "text": _tail(text),
                "times": times,
                "row": first,
                "call": int(trace.calls[first]),
            }
            for text, times, first in trace.failure_messages
        ],
        "columns": _columns(trace, since),
        "leftOut": sum(
            not column.is_constant for column in trace.space.columns()
        )
        - len(_shown(trace)),
    }


def packed_array(numbers: Any) -> dict[str, str]:
    """Return an array as JSON data."""
    array = np.asarray(numbers)
    kind = (
        "u1"
        if array.dtype == np.uint8
        else "i4"
        if array.dtype.kind == "i"
        else "f8"
    )
    # Possible in an untrusted journal
    if kind == "i4" and array.size and max(-array.min(), array.max()) >= 2**31:
        kind = "f8"
    return {kind: base64.b64encode(array.astype(f"<{kind}").tobytes()).decode()}


def _facts(trace: Trace) -> list[tuple[str, str]]:
    """Return the description of the run as pairs of text."""
    algorithm = (
        trace.identity.algorithm
        if trace.algorithm is None
        else algorithm_data(trace.algorithm)
    )
    facts = [
        ("space", repr(trace.space)),
        ("algorithm", json.dumps(algorithm)),
        ("seed", str(trace.seed)),
        ("batch", str(trace.identity.batch)),
        *(
            [("objectives", json.dumps(trace.objectives))]
            if trace.objectives
            else []
        ),
        (
            "objective",
            objective_kind(trace.deterministic, trace.identity.deterministic),
        ),
        *(
            (str(name), note if isinstance(note, str) else json.dumps(note))
            for name, note in trace.meta.items()
        ),
    ]
    return [
        (name, text if len(text) <= _LONG else text[:_LONG] + " …")
        for name, text in facts
    ]


def _budget(trace: Trace) -> int | None:
    budget = trace.meta.get("budget")
    return budget if type(budget) is int and 0 < budget < 2**53 else None


def _times(trace: Trace) -> list[float]:
    """Return the time of the first start and of the last end.

    If no start is recorded, the first is an end.
    """
    started = np.array(trace.started)
    ended = np.array(trace.ended)
    known = np.concatenate([started, ended])
    known = known[np.isfinite(known)]
    if len(known):
        return [float(known.min()), float(known.max())]
    return [math.nan, math.nan]


def _objectives(trace: Trace) -> dict[str, Any] | None:
    """Return the front of several objectives: its rows, their values, and the hypervolume."""
    outcomes = trace.outcomes
    if outcomes is None:
        return None
    rows = outcomes.front
    values = outcomes.values
    observed = outcomes.observed_values
    shown = rows[
        np.unique(
            np.linspace(0, len(rows) - 1, min(len(rows), SHOWN)).astype(np.intp)
        )
    ]
    dots = np.flatnonzero(np.isfinite(observed).all(axis=1))
    dots = dots[
        np.unique(
            np.linspace(0, len(dots) - 1, min(len(dots), DOTS)).astype(np.intp)
        )
    ]
    numbers, volumes = outcomes.hypervolumes
    return {
        "directions": [
            [name, direction] for name, direction in outcomes.directions.items()
        ],
        "count": len(rows),
        "rows": packed_array(shown.astype(np.int64)),
        "front": packed_array(drawable(values[shown]).ravel()),
        "errors": None
        if outcomes.std is None
        else packed_array(outcomes.std[shown].ravel()),
        "dots": packed_array(drawable(observed[dots]).ravel()),
        "knee": outcomes.knee,
        "hypervolume": [packed_array(numbers), packed_array(volumes)],
    }


def _curves(trace: Trace) -> dict[str, Any] | None:
    """Return the learning curves one after another; None if the objective does not yield."""
    curves = trace.curves
    if not curves:
        return None
    return {
        "values": packed_array(
            drawable(np.concatenate([curve.values for curve in curves]))
        ),
        "lengths": packed_array(
            np.array([len(curve.values) for curve in curves])
        ),
        "stopped": packed_array(
            np.array([curve.stopped for curve in curves], dtype=np.uint8)
        ),
        "rows": packed_array(np.array([curve.row for curve in curves])),
        "steps": sum(trace.step_counts),
        "stops": sum(trace.stopped),
    }


def _entropies(trace: Trace) -> dict[str, Any]:
    names, iterations, rows = trace.entropies
    return {
        "names": names,
        "iterations": packed_array(iterations),
        "p": packed_array(rows.ravel()),
    }


def _importance(trace: Trace, forest: bool | None) -> dict[str, Any]:
    """Return the most important variables.

    Each has its place in the table (−1 if it is not there) and its range.
    """
    observed = trace.observed
    importance = variable_importance(observed, forest)
    shown = {i: place for place, (i, _) in enumerate(_shown(trace))}
    places = [
        (shown.get(i, -1), entry)
        for i, column in enumerate(trace.space.columns())
        for entry in range(column.variable.n or 1)
    ]
    entries = []
    for index, score in zip(
        importance.columns[:IMPORTANT].tolist(),
        importance.scores.tolist(),
        strict=False,
    ):
        column = observed.column(index)
        place, entry = places[index]
        limits = packed_array([column.low, column.high])
        entries.append(
            {
                "name": column.name,
                "score": score,
                "place": place,
                "entry": entry,
                "range": limits,
                "log": column.log,
                "order": index,
            }
        )
    return {
        "method": importance.method,
        "entries": entries,
        "count": len(places),
    }


def _marginals(trace: Trace) -> list[dict[str, Any]]:
    theta = trace.theta
    if theta is None:
        return []
    return [_marginal(marginal, theta) for marginal in trace.marginals]


def _marginal(marginal: Marginal, theta: Array) -> dict[str, Any]:
    if not marginal.labels:
        return {
            "name": marginal.name,
            "span": packed_array(marginal.span(theta)),
            "values": packed_array(marginal.quantiles(theta)),
        }
    p = marginal.probabilities(theta)
    # The most probable ones, if there are more
    shown = np.sort(np.argsort(-p)[:64])
    bit = marginal.variable.is_bits
    return {
        "name": marginal.name,
        "bit": bit,
        "labels": [marginal.labels[i] for i in shown],
        "p": packed_array(p[shown]),
    }


def _configuration(trace: Trace) -> list[dict[str, Any]]:
    """Return the value of each variable in the point to use and in the most probable point.

    The latter has a probability.
    """
    best = trace.best
    recommended = trace.recommended
    mode = trace.mode
    theta = trace.theta
    left = ENTRIES
    code = (
        recommended.code
        if recommended is not None
        else None
        if best is None
        else best[2]
    )
    outcomes = trace.outcomes
    if outcomes is not None and outcomes.knee >= 0:
        code = trace.codes()[outcomes.knee]
    active = [_active(trace, point) for point in (code, mode)]
    entries = []
    for i, column in enumerate(trace.space.columns()):
        name, variable, where, _ = column
        if column.is_constant:
            continue
        shown = slice(where.start, min(where.stop, where.start + left))
        left -= shown.stop - shown.start
        entry = {
            "name": shown_name(name),
            "count": where.stop - where.start,
            "bits": variable.is_bits,
            "best": []
            if code is None
            else _texts(variable, code[shown], active[0][i]),
            "mode": []
            if mode is None
            else _texts(variable, mode[shown], active[1][i]),
        }
        if theta is not None:
            columns = range(shown.start, shown.stop)
            entry["sure"] = [
                _certainty(marginal, theta)
                for marginal in marginals_at(trace.space, columns)
            ]
        entries.append(entry)
        if not left:
            break
    return entries


def _active(trace: Trace, code: Points | None) -> list[bool]:
    """Return which variables of a point are active; none if there is no point."""
    return [] if code is None else trace.space.active(code[None])[0].tolist()


def _texts(variable: Variable, code: Points, active: bool) -> list[str]:
    """Return the values as text."""
    words = variable.labels
    if not active:
        return [str(INACTIVE)] * len(code)
    if words:
        return [words[i] for i in variable.indices(code).tolist()]
    return [repr(value) for value in variable.values(code).tolist()]


def _certainty(marginal: Marginal, theta: Array) -> list[float]:
    """Return the probability of the most probable option, or the bounds of 68 % of a number."""
    if marginal.labels:
        return [float(marginal.probabilities(theta).max())]
    return list(marginal.quantiles(theta)[1:])


def _tail(text: str) -> str:
    return text if len(text) <= _LONG else "… " + text[-_LONG:]


# The table.


def _columns(trace: Trace, since: int) -> list[dict[str, Any]]:
    fates = np.array(trace.fates[since:], dtype=np.uint8)
    failures = np.array(trace.failure_index[since:], dtype=np.int64)
    stopped = np.array(trace.stopped[since:], dtype=bool)
    steps = np.array(trace.step_counts[since:], dtype=np.int64)
    fates = np.where(
        failures >= 0, FAILED, np.where(stopped, STOPPED, fates)
    ).astype(np.uint8)
    started = np.array(trace.started[since:])
    ended = np.array(trace.ended[since:])
    last = [
        message.text.strip().rpartition("\n")[2][-300:]
        for message in trace.failure_messages
    ]
    codes = trace.codes(since)
    active = trace.space.active(codes)
    return [
        _column(
            "evaluation",
            np.where(trace.evaluated[since:], trace.calls[since:], 0),
            zero="",
        ),
        _column("fate", fates, labels=FATES),
        _column("value", np.array(trace.values[since:], dtype=float)),
        *(
            _variable(column, codes[:, column.where], active[:, i])
            for i, column in _shown(trace)
        ),
        *_attributes(trace, since),
        _column(
            "iteration", np.array(trace.iterations[since:], dtype=np.int64)
        ),
        _column("position", np.array(trace.positions[since:], dtype=np.int64)),
        _column("steps", steps, zero=""),
        _column("seconds", ended - started, rough=True),
        _column("ended", ended, time=True),
        _column(
            "worker",
            np.array(trace.workers[since:], dtype=np.int64),
            labels=list(trace.worker_names),
        ),
        _column("failure", failures + 1, labels=["", *last]),
    ]


def _attributes(trace: Trace, since: int) -> list[dict[str, Any]]:
    """Return the attributes.

    One that is called like a variable or another column begins with ``a.``
    """
    names = {
        shown_name(column.name) for column in trace.space.columns()
    } | COLUMNS
    return [
        _column(f"a.{name}" if name in names else name, data)
        | {"attribute": True}
        | ({} if labels is None else {"labels": labels})
        for name, data, labels in trace.attributes.columns(since)
    ]


def _column(
    name: str, data: NDArray[Any], per: int = 1, **more: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "per": per,
        "data": packed_array(data.ravel()),
        **more,
    }


def _shown(trace: Trace) -> list[tuple[int, Column]]:
    """Return the variables that fit into the table, by index, without constants."""
    kept = []
    room = WIDTH
    for i, column in enumerate(trace.space.columns()):
        if column.is_constant:
            continue
        n = column.variable.n or 1
        bits = column.variable.is_bits and not column.conditions
        width = -(-n // 8) if bits else n * (4 if column.variable.labels else 8)
        if width <= room:
            room -= width
            kept.append((i, column))
    return kept


def _variable(
    column: Column, codes: Points, active: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return a column of the table; cells of an inactive variable are empty."""
    name = shown_name(column.name)
    variable = column.variable
    n = column.variable.n or 1
    if variable.is_bits and not column.conditions:
        return _column(
            name,
            np.packbits(codes.astype(np.bool_), axis=1),
            per=-(-n // 8),
            bits=n,
            variable=True,
        )
    words = variable.labels
    if words:
        data = np.where(
            active[:, None], variable.indices(codes), len(words)
        ).astype(np.int64)
        return _column(
            name,
            data,
            per=n,
            labels=[*words, ""] if column.conditions else words,
            variable=True,
        )
    data = np.where(
        active[:, None], variable.values(codes).astype(float), math.nan
    )
    return _column(name, data, per=n, variable=True)
