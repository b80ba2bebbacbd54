"""Set up a run from the arguments of `minimize` or `maximize`, run its loop and close it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np

from knobless._checks import boolean, elements
from knobless.core.types import Points
from knobless.core.violation import negated
from knobless.journal.events import Journal
from knobless.parallel.capacity import dask_client, n_workers
from knobless.parallel.returned import check_no_attributes, objective_value
from knobless.space.space import Space

from . import interrupts
from .code_digest import code_digest, same_interpreter
from .compiled_engine import CompiledEngine
from .feasibility import Feasibility
from .loop import UNCOMPARED, Loop
from .memory import Memory
from .objectives import Objectives
from .optimizer import Optimizer
from .progress import Bar
from .recommendation import Recommended, recommended_point
from .recording import Recording, recorded_mode
from .result import Result, Status
from .sink import Sink
from .sources import EvaluatedObjective
from .stopping import Ending, RunLimits, UserRules

NOT_CALLED = " (All evaluations were read from the journal: the objective was not called.)"


def optimize(
    sign: float,
    objective: EvaluatedObjective,
    opt: Optimizer,
    limits: RunLimits,
    user: UserRules,
    known: Iterable[tuple[Any, float]],
    journal: Any,
    adopt_seed: bool,
    progress: bool,
    by_arrival: bool,
) -> Result:
    """Minimize an objective if `sign` is 1, or maximize it if `sign` is -1."""
    if boolean("vectorized", objective.vectorized):
        opt.space.check_vectorized()
    if opt.objectives is not None and not math.isnan(limits.target):
        raise ValueError("target: expected none with several objectives")
    pairs = encoded_pairs(
        known, opt.space, sign, opt.run.feasibility, objective.objectives
    )
    budget = None if limits.budget == math.inf else limits.budget
    with ExitStack() as resources:
        bar = (
            resources.enter_context(Bar(budget))
            if boolean("progress", progress)
            else None
        )
        source, pool = objective.source(resources)
        sink: Sink
        compiled = None
        if journal is not None:
            identity = opt.identity("minimize" if sign > 0 else "maximize")
            sink = recording = Recording(journal, opt.run, identity, adopt_seed)
            resources.callback(recording.close)
            pairs = recording.known(pairs)
            _note_objective(recording, objective, budget)
            if by_arrival:
                recording.begin_arrivals()
        else:
            sink = Memory(
                opt.space,
                sign,
                None if opt.objectives is None else opt.objectives.directions,
            )
            if (
                objective.in_this_process
                and opt.run.feasibility is None
                and objective.objectives is None
            ):
                compiled = CompiledEngine.of(objective.fun, opt, sign)
        loop = Loop(
            sign,
            opt,
            limits,
            user,
            source,
            sink,
            bar,
            compiled,
            pool if by_arrival else None,
            by_arrival,
        )
        if pairs:
            opt.run.add(
                np.array([code for code, _ in pairs]),
                [value for _, value in pairs],
            )
        return _result(loop, loop.run())


def _result(loop: Loop, ending: Ending) -> Result:
    """Return the result of a run, after the comparison of the points to recommend."""
    opt = loop.opt
    run = loop.opt.run
    status, message = ending
    if loop.history.last_iteration < run.nit:
        loop.history.append(loop.info_of(*run.info_arguments))
    best = opt.best
    chosen = None
    if status not in UNCOMPARED and opt.objectives is None:
        try:
            chosen = loop.reevaluations.compare(status)
        except KeyboardInterrupt as error:
            interrupts.end_of_run(error)
            status, message = Ending.of(Status.INTERRUPTED)
    chosen = chosen or recommended_point(run)
    front = None if opt.objectives is None else opt.front
    x, fun = (
        (None, math.nan)
        if chosen is None
        else (opt.space.decode(chosen.code), loop.user_value(chosen.fun))
    )
    std: Any = None if chosen is None or math.isnan(chosen.std) else chosen.std
    if front:
        x, fun, std = front[front.knee]
        if std is None and opt.deterministic:
            std = (0.0,) * len(fun)
    mode_fun = opt.mode_fun
    failures = run.failures + loop.reevaluations.failures
    failing = 2 * failures > loop.nfev
    message += _remarks(loop, status, failures, chosen)
    if failing:
        warnings.warn(
            f"Most evaluations failed. {message}", RuntimeWarning, stacklevel=5
        )
    elif best is None and loop.nfev:
        warnings.warn(message, RuntimeWarning, stacklevel=5)
    reached = (
        math.isnan(loop.limits.target)
        or status is Status.TARGET
        or loop.reached
    )
    return Result(
        x=x,
        fun=fun,
        fun_std=std,
        deterministic=opt.deterministic,
        violation=math.nan
        if chosen is None
        else 0.0
        if front
        else chosen.violation,
        observed_x=None if best is None else best.x,
        observed_fun=math.nan if best is None else loop.user_value(best.fun),
        mode=opt.mode,
        mode_fun=None if mode_fun is None else loop.sign * mode_fun,
        nfev=loop.nfev,
        nit=run.nit,
        constraint_checks=0
        if run.feasibility is None
        else run.feasibility.checks,
        success=chosen is not None
        and not chosen.violation
        and reached
        and not failing
        and status is not Status.INTERRUPTED,
        status=status,
        message=message,
        failures=failures,
        failure=opt.failure,
        history=loop.history,
        evaluations=loop.sink.evaluations(loop.nfev),
        front=front,
    )


def _remarks(
    loop: Loop, status: Status, failures: int, chosen: Recommended | None
) -> str:
    """Return what the message of a result adds to why the run ended."""
    run = loop.opt.run
    remarks = ""
    if run.noisy_algorithm is not None and run.noise_test is None:
        point = (
            "the recommended point"
            if loop.opt.objectives is None
            else "the knee of the front of means"
        )
        remarks += f" The objective was found to be noisy: x is {point}."
    reason = (loop.opt.failure or "").strip().rpartition("\n")[2]
    if status is Status.FAILED:
        remarks += reason
    elif 2 * failures > loop.nfev:
        remarks += f" {failures} of {loop.nfev} evaluations failed. The first failure: {reason}"
    elif run.best is None:
        remarks += " No evaluation gave a finite value."
    if chosen is not None and chosen.violation:
        remarks += " No feasible point was found: x has the least violation, "
        remarks += f"{chosen.violation:.6g}."
    if loop.nfev and not loop.evaluator.evaluated:
        remarks += NOT_CALLED
    return remarks


def mode_of(batch: int | None, workers: Any, journal: Any) -> tuple[int, bool]:
    """Return the `batch` of a run, and whether values are used in the order of arrival.

    Without a `batch`, they are if there are several workers, or if that is recorded in a journal.
    Workers that are a map take many points in one call, and so `batch` is their number then.
    """
    recorded = None if journal is None else recorded_mode(journal)
    if batch is not None:
        return batch, batch == 1 and recorded == (1, True)
    limit = n_workers(workers) or 1
    waits_for_none = (
        not (callable(workers) and not hasattr(workers, "submit"))
        or dask_client(workers) is not None
    )
    if recorded is None:
        if waits_for_none:
            return (1, limit > 1 or dask_client(workers) is not None)
        return (limit, False)
    size, by_arrival = recorded
    if size == 1:
        return 1, by_arrival or (waits_for_none and limit > 1)
    if size < limit:
        warnings.warn(
            f"{Journal.of(journal).path}: the run was begun with batch={size}, so it may ask for "
            "no more than "
            f"{size} evaluations at once, and {limit} workers are not all busy. To use them, "
            "begin a new run in "
            "another file without batch, and pass the evaluations of this one as known",
            UserWarning,
            stacklevel=4,
        )
    return size, False


def _note_objective(
    journal: Recording, objective: EvaluatedObjective, budget: float | None
) -> None:
    """Record what is evaluated; warn if it is not what the journal has values of."""
    fun = objective.name
    code = code_digest(objective.fun)
    if journal.next_rows is not None:
        before = journal.meta
        comparable = (
            isinstance(before.get("code"), str)
            and code is not None
            and same_interpreter(before["code"], code)
        )
        if (
            (before["code"] != code)
            if comparable
            else before.get("fun", fun) != fun
        ):
            warnings.warn(
                f"{journal.path}: the objective differs from the recorded one, "
                f"{str(before.get('fun'))[:200]}: values "
                "that the journal has are not evaluated again. If they are not valid any more, "
                "use another file",
                UserWarning,
                stacklevel=5,
            )
    journal.note({"fun": fun, "code": code, "budget": budget})


def encoded_pairs(
    known: Iterable[tuple[Any, float]],
    space: Space,
    sign: float,
    feasibility: Feasibility | None = None,
    objectives: Objectives | None = None,
) -> list[tuple[Points, float]]:
    """Return the known points encoded, with their values to be minimized."""
    pairs = []
    for i, pair in enumerate(elements("known", known, "pairs (point, value)")):
        name = f"known[{i}]"
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise TypeError(
                f"{name}: expected a pair (point, value), got {pair!r}"
            )
        code = space.encode(pair[0], name)
        check_no_attributes(pair[1], name)
        value = (
            objective_value(pair[1], name)
            if objectives is None
            else objectives.read(pair[1], name)
        )
        if feasibility is not None:
            feasibility.require(code, name)
        pairs.append((code, value if sign > 0 else negated(value)))
    return pairs
