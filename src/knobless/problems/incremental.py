"""The search on an instance with known terms: points are evaluated by flips.

It needs numba. Its costs are those of the terms, with weights rounded so that sums are exact; the
cost that is returned is computed by the problem itself.
"""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import time
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Self

from knobless.run import interrupts
from knobless.run.progress import Bar
from knobless.run.result import MESSAGES, Result, Status
from knobless.run.stopping import RunLimits

from .answers import InstanceProblem
from .problem import BitArray

if TYPE_CHECKING:
    from knobless.fast.structured import StructuredRun

# Variables up to which the black-box search runs alone: it may evaluate all points, which is a
# proof
ENUMERABLE = 20
# Up to this sum, integers are not rounded, four times as large as they are for Max-Cut
LARGEST_SUM = 2.0**49
# How far a cost may be from that of the rounded terms, as a share of the sum of all terms
COST_TOLERANCE = 2.0**-40


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
        return cls(
            result.x,
            result.fun,
            result.nfev,
            0,
            0,
            result.status,
            result.message,
        )


def is_incremental(problem: InstanceProblem) -> bool:
    """Return whether `search_incrementally` is possible.

    Parameters
    ----------
    problem : InstanceProblem
        The problem.

    Returns
    -------
    bool
        False for few variables, without numba, and for large weights, beside which small ones would
        be rounded to 0.
    """
    return (
        problem.n > ENUMERABLE
        and problem.largest_sum <= LARGEST_SUM
        and find_spec("numba") is not None
    )


class Compiler:
    """Compilation of `search_incrementally` in another process, into the cache of numba.

    An interrupt in numba may be lost, and compilation, about half a minute, would make this process
    wait.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = False  # there is no folder for numba's cache

    def is_ready(self) -> bool:
        """Return whether the search is compiled; if not, let it be."""
        if self._failed or (
            self._process is not None and self._process.poll() is None
        ):
            return False
        from knobless.fast.structured import structured_runner

        ready = structured_runner().is_ready
        if not ready and self._process is None:
            logging.getLogger("knobless").info("compiling (once)")
            module = structured_runner.__module__
            command = f"from {module} import structured_runner; structured_runner().compiled"
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        elif not ready:
            self._failed = True
        return ready

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def search_incrementally(
    problem: InstanceProblem,
    found: Found,
    limits: RunLimits,
    seed: int,
    progress: bool,
) -> Found:
    """Minimize the cost of a problem by P3 with tabu search.

    Parameters
    ----------
    problem : InstanceProblem
        The problem.
    found : Found
        Where to begin.
    limits : RunLimits
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
    end = time.monotonic() + limits.timeout
    target = limits.target + COST_TOLERANCE * problem.largest_sum
    run: StructuredRun | None = None
    status: Status | None = None
    with (
        Bar(limits.budget if limits.budget < math.inf else None)
        if progress
        else nullcontext() as bar
    ):
        try:
            from knobless.fast.structured import StructuredRun

            run = StructuredRun(problem.structure(), seed, found.x)
            while status is None:
                status = run.go(limits.budget - found.nfev, target)
                if (
                    status is Status.TARGET
                    and problem(run.best_x) > limits.target
                ):
                    status = None
                    target = math.nextafter(run.best, -math.inf)
                if status is None and time.monotonic() >= end:
                    status = Status.TIMEOUT
                if bar is not None:
                    bar.show(found.nfev + run.nfev, "best", run.best, 0)
        except KeyboardInterrupt as error:
            interrupts.end_of_run(error)
            status = Status.INTERRUPTED
    if run is None or not run.nfev:
        return found._replace(status=status, message=MESSAGES[status])
    x = run.best_x.copy()
    nfev = found.nfev + run.nfev
    return Found(
        x,
        problem(x),
        nfev,
        run.nfev - run.full,
        run.flips,
        status,
        MESSAGES[status],
    )
