"""The summary of a journal as plain data, which `knobless show` prints as a table or as JSON.

Evaluations, failures and times are counted row by row; λ, ε and the distribution come from
replaying the journal, which may be in use meanwhile.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from knobless.core.several import Several
from knobless.journal.evaluations import attributes_of
from knobless.journal.events import ADDED, CHECKED, RETURNED_NAN, TOLD
from knobless.journal.records import Record
from knobless.run.front import Front
from knobless.run.iteration import Best, FirstFailure, is_better
from knobless.run.optimizer import Optimizer
from knobless.run.recommendation import Recommended

from .checks import Checks
from .marginals import VariableSummary, variable_summaries
from .outcomes import front_of


@dataclass(frozen=True)
class Summary:
    """The summary of a run. Values have the user's sign, and the names are those of a `Result`.

    `objectives` has the directions of several objectives by their names; `x` is then the knee of
    the `front`. `stopped` counts the evaluations that were stopped, `steps` the steps of all of
    them, 0 if the objective does not yield. `busy` is the share of time in which the workers
    evaluated, of each from its first evaluation to its last one. `deterministic` is as stated or
    found so far, `deterministic_stated` as it was given to the run.
    """

    objective: str | None
    direction: str
    objectives: dict[str, str]
    budget: int | None
    x: Any
    fun: Any
    fun_std: Any
    front: Front | None
    violation: float | None
    observed_x: Any
    observed_fun: Any
    observed_attributes: dict[str, Any]
    nfev: int
    failures: int
    failure: str | None
    stopped: int
    steps: int
    nit: int | None
    lam: int | None
    eps: float | None
    mode: Any
    mode_fun: float | None
    marginals: list[VariableSummary]
    batch: int
    deterministic: bool | None
    deterministic_stated: bool | None
    seed: Any
    started: float | None
    ended: float | None
    seconds_median: float | None
    seconds_longest: float | None
    workers: dict[str, int]
    busy: float | None


@dataclass
class WorkerTimes:
    """How long a worker has evaluated, and from when to when."""

    seconds: float = 0.0
    first: float = math.inf
    last: float = -math.inf

    def add(self, started: float, ended: float) -> None:
        """Add an evaluation."""
        self.seconds += ended - started
        self.first = min(self.first, started)
        self.last = max(self.last, ended)


def busy_share(times: Iterable[WorkerTimes]) -> float | None:
    """Return the share of time in which workers evaluated; None if that is not known."""
    each = list(times)
    span = sum(worker.last - worker.first for worker in each)
    share = sum(worker.seconds for worker in each) / span if span > 0 else None
    # An untrusted journal may contain any times
    return (
        min(share, 1.0)
        if share is not None and 0.0 <= share < 1.0 + 1e-6
        else None
    )


def summary(record: Record) -> Summary:
    """Return the summary of a journal that is open for reading."""
    nfev = failures = stopped = steps = 0
    failure: FirstFailure | None = None
    best: Best | None = None
    seconds: list[float] = []
    workers: Counter[str] = Counter()
    times: dict[str, WorkerTimes] = {}
    started = math.inf
    ended = -math.inf
    checks = Checks(record.sign)
    for event in record:
        checks.take(event)
        if event.fate in (TOLD, CHECKED):
            nfev += 1
            workers.update([event.worker] if event.worker else [])
        stopped += event.stopped
        steps += 0 if event.steps is None else len(event.curve)
        if event.failed:
            failures += 1
            if event.fate == TOLD and (
                failure is None or event.id < failure.id
            ):
                failure = FirstFailure(event.id, event.failure or RETURNED_NAN)
        if event.started is not None and event.ended is not None:
            seconds.append(event.ended - event.started)
            started = min(started, event.started)
            ended = max(ended, event.ended)
            if event.worker:
                of_worker = times.setdefault(event.worker, WorkerTimes())
                of_worker.add(event.started, event.ended)
        rank = event.rank(record.sign)
        if event.fate in (TOLD, ADDED) and is_better(rank, event.id, best):
            best = Best(rank, event.id, event)
    opt = None if record.algorithm is None else Optimizer.from_journal(record)
    mode_fun = None if opt is None else opt.run.mode_fun
    observed_x, observed_fun = (
        (None, None) if best is None else (record.point(best.at), best.at.value)
    )
    with record.explained():
        attributes = {} if best is None else attributes_of(best.at)
    chosen = None if opt is None else checks.recommended(opt.run)
    command = record.meta.get("command")
    named = (
        command.get("objective") or command.get("command")
        if isinstance(command, dict)
        else record.meta.get("fun")
    )
    budget = record.meta.get("budget")
    summary = Summary(
        objective=named if isinstance(named, str) else None,
        direction=record.direction,
        objectives=record.identity.directions,
        budget=budget if type(budget) is int else None,
        x=observed_x if chosen is None else record.space.decode(chosen.code),
        fun=observed_fun if chosen is None else record.sign * chosen.fun,
        fun_std=None
        if chosen is None or math.isnan(chosen.std)
        else chosen.std,
        front=None,
        violation=_violation(best, chosen),
        observed_x=observed_x,
        observed_fun=observed_fun,
        observed_attributes=attributes,
        nfev=nfev,
        failures=failures,
        failure=None if failure is None else failure.text,
        stopped=stopped,
        steps=steps,
        nit=None if opt is None else opt.nit,
        lam=None if opt is None else opt.lam,
        eps=None if opt is None else opt.eps,
        mode=None if opt is None else opt.mode,
        mode_fun=None if mode_fun is None else record.sign * mode_fun,
        marginals=[]
        if opt is None
        else variable_summaries(opt.space, opt.theta),
        batch=record.batch,
        deterministic=record.deterministic
        if opt is None
        else opt.deterministic,
        deterministic_stated=record.deterministic,
        seed=record.seed,
        started=started if seconds else None,
        ended=ended if seconds else None,
        seconds_median=median(seconds) if seconds else None,
        seconds_longest=max(seconds) if seconds else None,
        workers=dict(workers.most_common()),
        busy=busy_share(times.values()),
    )
    return _of_several(summary, record) if summary.objectives else summary


def _of_several(summary: Summary, record: Record) -> Summary:
    """Return the summary of a run with several objectives.

    The point to use is the knee of the front.
    """
    front = front_of(record.evaluations)
    summary = replace(
        summary,
        front=front,
        observed_x=None,
        observed_fun=None,
        observed_attributes={},
        mode_fun=None,
    )
    if len(front):
        x, fun, std = front[front.knee]
        return replace(summary, x=x, fun=fun, fun_std=std, violation=0.0)
    return replace(
        summary,
        fun=summary.fun.values if isinstance(summary.fun, Several) else None,
    )


def _violation(best: Best | None, chosen: Recommended | None) -> float | None:
    """Return the violation of the point to use; None if there is none."""
    if chosen is not None:
        return chosen.violation
    return None if best is None else best.violation


def objective_kind(deterministic: bool | None, stated: bool | None) -> str:
    """Describe whether an objective is deterministic, and whether that was stated or found."""
    if deterministic is None:
        return "not known whether deterministic"
    kind = "deterministic" if deterministic else "noisy"
    return f"{kind}, {'found' if stated is None else 'stated'}"
