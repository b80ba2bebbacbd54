"""One call that runs the loop on a function: `minimize`, and `maximize` with the same signature."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ._checks import boolean, count, objective_value, positive_real, real
from .candidates import Batch
from .igo import IGO
from .optimizer import Info, Optimizer
from .progress import Bar
from .result import MESSAGES, History, Result, Status

if TYPE_CHECKING:
    from .fast import Run

HOPELESS = 100  # evaluations without a single value after which a run ends


def minimize(
    fun: Callable[[Any], Any],
    space: Any,
    *,
    budget: int,
    algorithm: IGO | None = None,
    target: float | None = None,
    timeout: float | None = None,
    stall: int | None = None,
    x0: Any = None,
    known: Iterable[tuple[Any, float]] = (),
    rng: Any = None,
    batch: int = 1,
    vectorized: bool = False,
    deterministic: bool = False,
    callback: Callable[[Info], object] | None = None,
    progress: bool = False,
) -> Result:
    """The point of `space` where `fun` is least, within `budget` evaluations.

        minimize(lambda x: -x.sum(), Binary(100), budget=2000)

    fun            gets a point (an int8 array for `Binary(n)`, a dict for a `Space`) and returns a number. One
                   that raises or returns NaN ranks worst and the run goes on; if the very first one raises,
                   the error is shown at once.
    space          Binary, Choice, Integer, Float, Space, or a list or dict of these
    budget         evaluations at most
    algorithm      a value such as `cga(space)`; None for the recommended one
    target         stop at the first value that is as good
    timeout        stop after so many seconds, as soon as the evaluation under way is done
    stall          stop after so many evaluations without improvement
    x0             a point to begin with: it is evaluated first, and the search starts halfway to it
    known          (point, value) pairs from elsewhere; they count for the best, not for the budget
    rng            a seed or a numpy Generator
    batch          how many evaluations `fun` can do at once (with `vectorized`): never fewer are asked for
    vectorized     `fun` gets all points of an iteration at once (arrays with one row a point) and returns an
                   array with a value for each
    deterministic  equal points give equal values: none is paid for twice
    callback       gets an `Info` after each iteration; may raise StopIteration to end the run
    progress       show a progress bar (tqdm)
    """
    opt = Optimizer(space, algorithm, x0, rng, batch, deterministic)
    return _Run(1.0, fun, opt, budget, target, timeout, stall, known, vectorized, callback).run(progress)


def maximize(
    fun: Callable[[Any], Any],
    space: Any,
    *,
    budget: int,
    algorithm: IGO | None = None,
    target: float | None = None,
    timeout: float | None = None,
    stall: int | None = None,
    x0: Any = None,
    known: Iterable[tuple[Any, float]] = (),
    rng: Any = None,
    batch: int = 1,
    vectorized: bool = False,
    deterministic: bool = False,
    callback: Callable[[Info], object] | None = None,
    progress: bool = False,
) -> Result:
    """The point of `space` where `fun` is greatest: `minimize` with the sign turned, in and out."""
    opt = Optimizer(space, algorithm, x0, rng, batch, deterministic)
    return _Run(-1.0, fun, opt, budget, target, timeout, stall, known, vectorized, callback).run(progress)


class _Stop(Exception):  # noqa: N818
    """The callback asked to stop."""


class _Run:
    """The loop between an optimizer, which minimizes, and a function, with its reasons to stop."""

    def __init__(
        self,
        sign: float,
        fun: Callable[[Any], Any],
        opt: Optimizer,
        budget: int,
        target: float | None,
        timeout: float | None,
        stall: int | None,
        known: Iterable[tuple[Any, float]],
        vectorized: bool,
        callback: Callable[[Info], object] | None,
    ) -> None:
        if not callable(fun):
            raise TypeError(f"fun: expected a function, got {fun!r}")
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: expected a function, got {callback!r}")
        if not isinstance(known, Iterable):
            raise TypeError(f"known: expected pairs (point, value), got {known!r}")
        self.sign = sign
        self.fun = fun
        self.opt = opt
        self.budget = count("budget", budget)
        self.target = None if target is None else sign * real("target", target)
        self.deadline = math.inf if timeout is None else time.monotonic() + positive_real("timeout", timeout)
        self.stall = math.inf if stall is None else count("stall", stall)
        self.evaluate = self._all_at_once if boolean("vectorized", vectorized) else self._one_by_one
        self.callback = callback
        self.history = History()
        for i, pair in enumerate(known):
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                raise TypeError(f"known[{i}]: expected a pair (point, value), got {pair!r}")
            name = f"known[{i}]"
            opt._add(opt.space.encode(pair[0], name), sign * objective_value(pair[1], name))
        opt._on_iteration = self._report
        self.improved_at = 0
        self.compiled = _compiled(fun, opt, sign)
        self.engine: Run | None = None
        self.bar: Bar | None = None

    def run(self, progress: bool) -> Result:
        status = Status.TARGET if self._reached() else None
        with Bar(self.budget) if boolean("progress", progress) else nullcontext() as self.bar:
            try:
                while status is None:
                    # The first iteration is never compiled: it hands out x0 and shows what is wrong with `fun`.
                    status = self._advance() if self.compiled and self.opt.nit else self._iterate()
                    self._show(self.opt.nfev)
            except _Stop:
                status = Status.TARGET if self._reached() else Status.CALLBACK
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
        return self._result(status)

    def _iterate(self) -> Status | None:
        """One iteration, or as much of it as the budget allows; why to stop, if so."""
        opt = self.opt
        candidates = opt.ask()[: self.budget - opt.nfev]
        if not len(candidates):
            return Status.EXHAUSTED if opt.complete else Status.CONVERGED
        status = self._spend(candidates)
        if status is None and opt.nfev >= self.budget:
            status = Status.BUDGET
        if opt.failures == opt.nfev >= HOPELESS:
            status = Status.FAILED
        return status

    def _advance(self) -> Status | None:
        """Compiled iterations, as many as the history takes for one row, or one if there is a callback."""
        opt = self.opt
        if self.engine is None and self.compiled is not None:
            self.engine = self.compiled(self.improved_at)
        engine: Any = self.engine
        nit = opt.nit
        status: Status | None = engine.go(
            self.budget,
            1 if self.callback else self.history.stride,
            math.nan if self.target is None else self.target,
            self.stall,
        )
        engine.hand_over(opt)
        if opt.nit > nit:
            self._report()
        if opt.failures == opt.nfev >= HOPELESS:
            return Status.FAILED
        return status or (Status.TIMEOUT if time.monotonic() >= self.deadline else None)

    def _spend(self, candidates: Batch) -> Status | None:
        """Evaluates and tells; what was evaluated is told whatever happens to the next."""
        values: list[float | Exception] = []
        best, nfev = self.opt.lowest, self.opt.nfev
        try:
            for value in self.evaluate(candidates):
                values.append(value)
                self._show(nfev + len(values))
                if isinstance(value, float) and value < best:
                    best, self.improved_at = value, nfev + len(values)
                    if self.target is not None and best <= self.target:
                        return Status.TARGET
                if nfev + len(values) - self.improved_at >= self.stall:
                    return Status.STALL
        finally:
            if values:
                self.opt.tell(candidates[: len(values)], values)
        return Status.TIMEOUT if time.monotonic() >= self.deadline else None

    def _one_by_one(self, candidates: Batch) -> Iterator[float | Exception]:
        for i, candidate in enumerate(candidates):
            try:
                yield self.sign * objective_value(self.fun(candidate.x))
            except Exception as error:
                if self.opt.nfev == i == 0:  # a typo should not cost a budget
                    if isinstance(error, StopIteration):  # which would look like the end of this generator
                        raise RuntimeError("objective: raised StopIteration") from error
                    raise
                yield error
            if time.monotonic() >= self.deadline:
                return

    def _all_at_once(self, candidates: Batch) -> Iterator[float | Exception]:
        try:
            values = np.asarray(self.fun(candidates.x))
            if values.dtype.kind not in "fiub" or values.shape != (len(candidates),):
                shown = f"shape {values.shape} and type {values.dtype}"
                raise TypeError(f"objective: expected an array of {len(candidates)} numbers, got one of {shown}")
        except Exception as error:
            if self.opt.nfev == 0:
                raise
            return iter([error] * len(candidates))
        return iter((self.sign * values).astype(float).tolist())

    def _report(self) -> None:
        """A row for the history, and an info for the callback, which may raise StopIteration."""
        if self.callback is not None or self.history.due(self.opt.nit):
            info = self._info()
            self.history.append(info)
            try:
                if self.callback is not None:
                    self.callback(info)
            except StopIteration:
                raise _Stop from None

    def _show(self, nfev: int) -> None:
        if self.bar is not None:
            self.bar.show(nfev, self.sign * self.opt.lowest, self.opt.lam, self.opt.failures)

    def _info(self) -> Info:
        return self.opt.info._replace(best=self.sign * self.opt.lowest)

    def _reached(self) -> bool:
        return self.target is not None and self.opt.lowest <= self.target

    def _result(self, status: Status) -> Result:
        opt = self.opt
        if opt.nit and (not self.history or self.history[-1].iteration < opt.nit):
            self.history.append(self._info())
        best = opt.best
        mode_fun = opt.mode_value
        message = MESSAGES[status]
        if status is Status.FAILED and opt.failure:
            message += opt.failure.strip().splitlines()[-1]
        elif best is None:
            message += " No evaluation gave a finite value."
        return Result(
            x=None if best is None else best.x,
            fun=math.nan if best is None else self.sign * best.fun,
            mode=opt.mode,
            mode_fun=None if mode_fun is None else self.sign * mode_fun,
            nfev=opt.nfev,
            nit=opt.nit,
            success=best is not None and (self.target is None or self._reached()),
            status=status,
            message=message,
            failures=opt.failures,
            failure=opt.failure,
            history=self.history,
        )


def _compiled(fun: Any, opt: Optimizer, sign: float) -> Callable[[int], Run] | None:
    """What takes over from the optimizer where the objective is compiled and the engine can run the rest."""
    if not hasattr(fun, "__knobless_compiled__"):
        return None
    try:
        from .fast import successor
    except ImportError:  # numba is an extra: without it the same run is just slower
        return None
    return successor(fun, opt, sign)
