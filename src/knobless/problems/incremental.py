"""The search on an instance whose terms are known: each point is evaluated by flips from the one before.

It needs numba. Its costs are those of the terms, with weights rounded so that sums are exact; the cost that is returned
is computed by the problem itself.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from knobless.run import interrupts
from knobless.run.compiled_engine import COMPILATION
from knobless.run.loop import StoppingRules
from knobless.run.progress import Bar
from knobless.run.result import MESSAGES, Result, Status

from .answers import InstanceProblem
from .problem import BitArray

if TYPE_CHECKING:
    from knobless.fast.structured import StructuredRun

ENUMERABLE = 20  # variables up to which the black-box search runs alone: it may evaluate all points, which is a proof
LARGEST_SUM = 2.0**49  # up to this sum, integers are not rounded, four times as large as they are for Max-Cut
COST_TOLERANCE = 2.0**-40  # how far a cost may be from that of the rounded terms, as a share of the sum of all terms


class Found(NamedTuple):
    """What a search has found. `x` is None if no point was evaluated.

    Attributes
    ----------
    x : array or None
        The best point.
    cost : float
        Its cost.
    nfev : int
        Evaluations, complete and incremental.
    incremental : int
        Evaluations that were computed from those of another point.
    flips : int
        Flips of single bits by which they were computed.
    status : Status
        Why the search ended.
    message : str
        The same as a sentence.
    """

    x: BitArray | None
    cost: float
    nfev: int
    incremental: int
    flips: int
    status: Status
    message: str

    @classmethod
    def of(cls, result: Result) -> Found:
        """Return the result of a black-box search.

        Parameters
        ----------
        result : Result
            What `minimize` returned.

        Returns
        -------
        Found
            The same, without incremental evaluations.
        """
        return cls(result.x, result.fun, result.nfev, 0, 0, result.status, result.message)


NOTHING = Found(None, math.nan, 0, 0, 0, Status.BUDGET, MESSAGES[Status.BUDGET])  # before the first evaluation


def is_incremental(problem: InstanceProblem, timeout: float) -> bool:
    """Return whether `search_incrementally` is possible, and compiled or worth the time of its compilation.

    Parameters
    ----------
    problem : InstanceProblem
        The problem.
    timeout : float
        Seconds that the search may take.

    Returns
    -------
    bool
        False for few variables, without numba, and for large weights, beside which small ones would be rounded to 0.
    """
    if problem.n <= ENUMERABLE or problem.largest_sum > LARGEST_SUM or find_spec("numba") is None:
        return False
    if timeout >= COMPILATION:
        return True
    from knobless.fast.structured import structured_runner

    return structured_runner().is_ready


def search_incrementally(
    problem: InstanceProblem, found: Found, rules: StoppingRules, seed: int, progress: bool
) -> Found:
    """Minimize the cost of a problem by P3 with tabu search.

    Parameters
    ----------
    problem : InstanceProblem
        The problem.
    found : Found
        Where to begin; `NOTHING` for a random point.
    rules : StoppingRules
        When to stop; the budget includes the evaluations that were made before.
    seed : int
        Seed of the random numbers.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    Found
        The best point, with the cost that the problem computes.
    """
    end = time.monotonic() + rules.timeout
    target = rules.target + COST_TOLERANCE * problem.largest_sum
    run: StructuredRun | None = None
    status: Status | None = None
    with Bar(rules.budget if rules.budget < math.inf else None) if progress else nullcontext() as bar:
        try:
            run = _start(problem, seed, found, bar)
            while status is None:
                status = run.go(rules.budget - found.nfev, target)
                if status is Status.TARGET and problem(run.best_x) > rules.target:
                    status, target = None, math.nextafter(run.best, -math.inf)
                if status is None and time.monotonic() >= end:
                    status = Status.TIMEOUT
                if bar is not None:
                    bar.show(found.nfev + run.nfev, run.best, 1, 0)
        except KeyboardInterrupt as error:
            interrupts.end_of_run(error)
            status = Status.INTERRUPTED
    if run is None or not run.nfev:
        return found._replace(status=status, message=MESSAGES[status])
    x, nfev = run.best_x.copy(), found.nfev + run.nfev
    return Found(x, problem(x), nfev, run.nfev - run.full, run.flips, status, MESSAGES[status])


def _start(problem: InstanceProblem, seed: int, found: Found, bar: Bar | None) -> StructuredRun:
    """Return the run, after compilation if that is needed."""
    from knobless.fast.structured import StructuredRun, structured_runner

    runner = structured_runner()
    if not runner.is_ready:
        logging.getLogger("knobless").info("compiling (once)")
        if bar is not None:
            bar.announce("compiling (once)")
    runner.compiled  # noqa: B018
    return StructuredRun(problem.structure(), seed, found.x)
