"""Set up a run from the arguments of `minimize` or `maximize`, run its loop and close what was opened."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from knobless._checks import boolean
from knobless.core.types import Points
from knobless.core.violation import negated
from knobless.parallel.evaluation import objective_value
from knobless.space.space import Space

from .code_digest import code_digest, same_interpreter
from .compiled_engine import CompiledEngine
from .feasibility import Feasibility
from .iteration import Info
from .loop import Loop, StoppingRules
from .optimizer import Optimizer
from .progress import Bar
from .recording import Recording, recorded_batch
from .result import Result
from .sources import EvaluatedObjective, n_workers


def optimize(
    sign: float,
    objective: EvaluatedObjective,
    opt: Optimizer,
    rules: StoppingRules,
    known: Iterable[tuple[Any, float]],
    journal: Any,
    adopt_seed: bool,
    callback: Callable[[Info], object] | None,
    progress: bool,
) -> Result:
    """Minimize an objective if `sign` is 1, or maximize it if `sign` is -1."""
    if not callable(objective.fun):
        raise TypeError(f"fun: expected a function, got {objective.fun!r}")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: expected a function, got {callback!r}")
    if boolean("vectorized", objective.vectorized):
        opt.space.check_vectorized()
    pairs = encoded_pairs(known, opt.space, sign, opt.run.feasibility)
    loop = Loop(sign, opt, rules, callback)
    with ExitStack() as resources:
        if boolean("progress", progress):
            loop.bar = resources.enter_context(Bar(None if rules.budget == math.inf else rules.budget))
        loop.source = objective.source(resources)
        if journal is not None:
            identity = opt.identity("minimize" if sign > 0 else "maximize")
            loop.journal = Recording(journal, opt.run, identity, adopt_seed)
            resources.callback(loop.journal.close)
            pairs = loop.journal.known(pairs)
            _note_objective(loop.journal, objective, None if rules.budget == math.inf else rules.budget)
        elif objective.in_this_process and opt.run.feasibility is None:
            loop.compiled = CompiledEngine.of(objective.fun, opt, sign)
        for code, value in pairs:
            opt.run.add(code, value)
        return loop.result(loop.run())


def batch_of(batch: int | None, workers: Any, journal: Any) -> int:
    """Return `batch` if it is given; else that of a journal which exists, or the number of workers."""
    if batch is not None:
        return batch
    recorded = None if journal is None else recorded_batch(journal)
    return n_workers(workers) if recorded is None else recorded


def _note_objective(journal: Recording, objective: EvaluatedObjective, budget: float | None) -> None:
    """Record what is evaluated; warn if it is not what the journal has values of."""
    fun, code = objective.name, code_digest(objective.fun)
    if journal.next_rows is not None:
        before = journal.meta
        comparable = isinstance(before.get("code"), str) and code is not None and same_interpreter(before["code"], code)
        if (before["code"] != code) if comparable else before.get("fun", fun) != fun:
            warnings.warn(
                f"{journal.path}: the objective differs from the recorded one, {str(before.get('fun'))[:200]}: values "
                "that the journal has are not evaluated again. If they are not valid any more, use another file",
                UserWarning,
                stacklevel=5,
            )
    journal.note({"fun": fun, "code": code, "budget": budget})


def encoded_pairs(
    known: Iterable[tuple[Any, float]], space: Space, sign: float, feasibility: Feasibility | None = None
) -> list[tuple[Points, float]]:
    """Return the known points encoded, with their values to be minimized."""
    if not isinstance(known, Iterable):
        raise TypeError(f"known: expected pairs (point, value), got {known!r}")
    pairs = []
    for i, pair in enumerate(known):
        name = f"known[{i}]"
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise TypeError(f"{name}: expected a pair (point, value), got {pair!r}")
        code, value = space.encode(pair[0], name), objective_value(pair[1], name)
        if feasibility is not None:
            feasibility.require(code, name)
        pairs.append((code, value if sign > 0 else negated(value)))
    return pairs
