"""One call that runs the loop on a function: `minimize`, and `maximize` with the same signature.

A run asks an optimizer for an iteration's candidates and takes their values in the order of the candidates,
wherever these come from: called one by one, or all at once, or from a pool of workers in whatever order they
finish, or found in a journal. So nothing that ends a run, and nothing in its result, depends on which.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from knobless._checks import boolean, count, objective_value, positive_real, real
from knobless.core.algorithm import Algorithm
from knobless.core.types import Points
from knobless.journal.records import Journal

from .candidates import Batch
from .optimizer import Info, Optimizer
from .progress import Bar
from .recording import Log
from .result import MESSAGES, History, Result, Status

if TYPE_CHECKING:
    from knobless.fast import Run
    from knobless.parallel.pool import Pool

HOPELESS = 100  # evaluations without a single value after which a run ends


def minimize(
    fun: Callable[[Any], Any],
    space: Any,
    *,
    budget: int,
    algorithm: Algorithm | None = None,
    target: float | None = None,
    timeout: float | None = None,
    stall: int | None = None,
    x0: Any = None,
    known: Iterable[tuple[Any, float]] = (),
    rng: Any = None,
    batch: int = 1,
    workers: Any = 1,
    vectorized: bool = False,
    deterministic: bool = False,
    evaluation_timeout: float | None = None,
    journal: Any = None,
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
    algorithm      a value such as `cga(space)`; None for the recommended one: `pbil_lambda(space)`, or with
                   `deterministic` `portfolio(space)`, or `pbil_elitist(space)` if there are numbers in the space
    target         stop at the first value that is as good
    timeout        stop after so many seconds, as soon as the evaluation under way is done
    stall          stop after so many evaluations without improvement
    x0             a point to begin with: it is evaluated first, and the search starts halfway to it
    known          (point, value) pairs from elsewhere; they count for the best, not for the budget
    rng            a seed or a numpy Generator
    batch          how many evaluations can run at once: an iteration never asks for fewer, so that as many workers
                   are busy from the first second
    workers        where `fun` runs: a number of processes, a map-like callable, or a concurrent.futures Executor.
                   The result does not depend on it. So workers beyond the size of an iteration are idle, unless
                   `batch` makes it larger: to keep 64 busy say batch=64 as well, which is another run.
    vectorized     `fun` gets all points of an iteration at once (arrays with one row a point) and returns an
                   array with a value for each
    deterministic  equal points give equal values: none is paid for twice
    evaluation_timeout  seconds after which a single evaluation has failed
    journal        a file in which every evaluation is recorded as it ends. If it is there already, the run goes on
                   where it stopped, and ends in the result of a run that never stopped. `budget`, the other reasons
                   to stop, and `workers` may then be others than before. See `knobless.journal`.
    callback       gets an `Info` after each iteration; may raise StopIteration to end the run. With a journal that
                   is there already it sees the iterations that are recorded once more.
    progress       show a progress bar (tqdm)
    """
    opt = Optimizer(space, algorithm, x0, rng, batch, deterministic)
    run = _Run(1.0, fun, opt, budget, target, timeout, stall, known, vectorized, callback)
    return run.run(workers, evaluation_timeout, journal, rng is None, progress)


def maximize(
    fun: Callable[[Any], Any],
    space: Any,
    *,
    budget: int,
    algorithm: Algorithm | None = None,
    target: float | None = None,
    timeout: float | None = None,
    stall: int | None = None,
    x0: Any = None,
    known: Iterable[tuple[Any, float]] = (),
    rng: Any = None,
    batch: int = 1,
    workers: Any = 1,
    vectorized: bool = False,
    deterministic: bool = False,
    evaluation_timeout: float | None = None,
    journal: Any = None,
    callback: Callable[[Info], object] | None = None,
    progress: bool = False,
) -> Result:
    """The point of `space` where `fun` is greatest: `minimize` with the sign turned, in and out."""
    opt = Optimizer(space, algorithm, x0, rng, batch, deterministic)
    run = _Run(-1.0, fun, opt, budget, target, timeout, stall, known, vectorized, callback)
    return run.run(workers, evaluation_timeout, journal, rng is None, progress)


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
        self.timeout = math.inf if timeout is None else positive_real("timeout", timeout)
        self.deadline = time.monotonic() + self.timeout
        self.stall = math.inf if stall is None else count("stall", stall)
        self.vectorized = boolean("vectorized", vectorized)
        self.callback = callback
        self.history = History()
        self.known: list[tuple[Points, float]] = []
        for i, pair in enumerate(known):
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                raise TypeError(f"known[{i}]: expected a pair (point, value), got {pair!r}")
            name = f"known[{i}]"
            self.known.append((opt.space.encode(pair[0], name), objective_value(pair[1], name)))
        opt._on_iteration = self._report
        self.improved_at = 0
        self.engine: Run | None = None
        self.bar: Bar | None = None
        self.pool: Pool | None = None
        self.log: Log | None = None
        self.ahead: dict[int, float | Exception] = {}  # values that are here before those of earlier candidates
        self.recalled = False  # whether all of this iteration was found in the journal
        self.first: int | None = None  # the first candidate of all, whose error is shown at once

    def run(self, workers: Any, evaluation_timeout: float | None, journal: Any, adopt: bool, progress: bool) -> Result:
        self.evaluate = self._all_at_once if self.vectorized else self._one_by_one
        with ExitStack() as stack:
            if boolean("progress", progress):
                self.bar = stack.enter_context(Bar(self.budget))
            if evaluation_timeout is not None or not (type(workers) is int and workers == 1):
                if self.vectorized:
                    given = "evaluation_timeout" if evaluation_timeout is not None else "workers"
                    raise ValueError(f"{given}: expected none with vectorized=True, where one call evaluates all")
                from knobless.parallel.pool import pool_of

                self.pool = stack.enter_context(pool_of(workers, self.fun, evaluation_timeout))
                self.evaluate = self._in_parallel
            if journal is not None:
                self.log = Log(Journal.of(journal), self.opt, self.sign, adopt)
                stack.callback(self.log.close)
                self.known = self.log.known(self.known)
                self.log.note({"fun": _name_of(self.fun), "budget": self.budget})
            for code, value in self.known:
                self.opt._add(code, self.sign * value)
            plain = self.pool is None and self.log is None
            self.compiled = _compiled(self.fun, self.opt, self.sign) if plain else None
            return self._result(self._until_the_end())

    def _until_the_end(self) -> Status:
        status = Status.TARGET if self._reached() else None
        try:
            while status is None:
                # The first iteration is never compiled: it hands out x0 and shows what is wrong with `fun`.
                status = self._advance() if self.compiled and self.opt.nit else self._iterate()
                self._show(self.opt.nfev)
        except _Stop:
            status = Status.TARGET if self._reached() else Status.CALLBACK
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if self.engine is not None:
            self.engine.finish(self.opt)
        return status

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
        engine.update(opt)
        if opt.nit > nit:
            self._report()
        if opt.failures == opt.nfev >= HOPELESS:
            return Status.FAILED
        return status or (Status.TIMEOUT if time.monotonic() >= self.deadline else None)

    def _spend(self, candidates: Batch) -> Status | None:
        """Evaluates and tells; what was evaluated is told whatever happens to the next."""
        values: list[float | Exception] = []
        best, nfev = self.opt.lowest_fun, self.opt.nfev
        self.ahead = {}
        ended = False  # at the last of the values: what others were faster does not count
        try:
            for value in self._values(candidates):
                values.append(value)
                self._show(nfev + len(values))
                if isinstance(value, float) and value < best:
                    best, self.improved_at = value, nfev + len(values)
                    ended = self.target is not None and best <= self.target
                    if ended:
                        return Status.TARGET
                ended = nfev + len(values) - self.improved_at >= self.stall
                if ended:
                    return Status.STALL
        finally:
            if values:
                self.opt.tell(candidates[: len(values)], values)
            if len(values) < len(candidates) and self.ahead and not ended:
                rest = [i for i in range(len(values), len(candidates)) if candidates.ids[i] in self.ahead]
                self.opt.tell(candidates.take(rest), [self.ahead[candidates.ids[i]] for i in rest])
        return Status.TIMEOUT if time.monotonic() >= self.deadline and not self.recalled else None

    def _values(self, candidates: Batch) -> Iterator[float | Exception]:
        """In the order of the candidates: those that the journal has, and the others, evaluated now."""
        self.first = candidates.ids[0] if self.opt.nfev == 0 else None
        if self.log is None:
            return self.evaluate(candidates)
        self.ahead = self.log.recall(candidates)
        missing = [i for i, id in enumerate(candidates.ids) if id not in self.ahead]
        if self.recalled and missing:
            self.deadline = time.monotonic() + self.timeout  # what is recalled does not count
        self.recalled = not missing
        if self.recalled:
            return map(self.ahead.__getitem__, candidates.ids)
        some = candidates.take(missing) if self.ahead else candidates
        self.log.expect(some.ids)
        fresh = self.evaluate(some)
        return self._merged(candidates.ids, dict(self.ahead), fresh) if self.ahead else fresh

    def _merged(
        self, ids: Sequence[int], found: dict[int, float | Exception], fresh: Iterator[float | Exception]
    ) -> Iterator[float | Exception]:
        for id in ids:
            if id in found:
                yield found[id]
                continue
            for value in fresh:
                yield value
                break
            else:
                return

    def _one_by_one(self, candidates: Batch) -> Iterator[float | Exception]:
        log = self.log
        for candidate in candidates:
            started = time.time() if log else 0.0
            value: float | Exception
            try:
                value = self.sign * objective_value(self.fun(candidate.x))
            except Exception as error:
                if candidate.id == self.first:  # a typo should not cost a budget
                    if isinstance(error, StopIteration):  # which would look like the end of this generator
                        raise RuntimeError("objective: raised StopIteration") from error
                    raise
                value = error
            if log:
                log.record(candidate.id, value, started, time.time())
            yield value
            if time.monotonic() >= self.deadline:
                return

    def _all_at_once(self, candidates: Batch) -> Iterator[float | Exception]:
        started = time.time()
        each: list[float | Exception]
        try:
            values = np.asarray(self.fun(candidates.x))
            if values.dtype.kind not in "fiub" or values.shape != (len(candidates),):
                shown = f"shape {values.shape} and type {values.dtype}"
                raise TypeError(f"objective: expected an array of {len(candidates)} numbers, got one of {shown}")
            each = (self.sign * values).astype(float).tolist()
        except Exception as error:
            if candidates.ids[0] == self.first:
                raise
            each = [error] * len(candidates)
        if self.log:
            self.log.record_all(candidates.ids, each, started, time.time())
        return iter(each)

    def _in_parallel(self, candidates: Batch) -> Iterator[float | Exception]:
        """As many at once as the pool takes. What comes is recorded then, and handed on in its turn."""
        pool: Any = self.pool
        waiting, out = deque(candidates), set[int]()
        try:
            for id in candidates.ids:
                while id not in self.ahead:
                    while waiting and len(out) < pool.capacity and time.monotonic() < self.deadline:
                        candidate = waiting.popleft()
                        pool.submit(candidate.id, candidate.x)
                        out.add(candidate.id)
                    if not out:
                        return  # the time is up
                    left = self.deadline - time.monotonic()
                    came = pool.wait(left if 0.0 < left < math.inf and waiting else None)
                    met = self._take(came, out)
                    waiting = deque(c for c in waiting if c.id < met) if met < math.inf else waiting
                yield self.ahead[id]
        finally:
            if out:
                self.first = None
                with suppress(Exception):  # what has ended the run is being said already
                    self._take(pool.wait(0.0), out)  # whatever it was, these are paid for
                pool.discard(out)

    def _take(self, outcomes: Iterable[Any], out: set[int]) -> float:
        """Records what has come; returns the lowest id that meets the target: no later one is needed."""
        pool: Any = self.pool
        met = math.inf
        for outcome in outcomes:
            out.discard(outcome.id)
            value = self._came(outcome.value)
            if outcome.id == self.first and isinstance(value, Exception):
                if self.log:
                    self.log.forget()
                pool.discard(out)  # nor is any of the others wanted
                raise value
            if self.log:
                self.log.record(outcome.id, value, outcome.started, outcome.ended, outcome.worker)
            self.ahead[outcome.id] = value
            if self.target is not None and isinstance(value, float) and value <= self.target:
                met = min(met, outcome.id)
        return met

    def _came(self, value: Any) -> float | Exception:
        try:
            return value if isinstance(value, Exception) else self.sign * objective_value(value)
        except Exception as error:
            return error

    def _report(self) -> None:
        """A row for the history, and an info for the callback, which may raise StopIteration."""
        if self.callback is not None or self.history.keeps(self.opt.nit):
            info = self._info()
            self.history.append(info)
            try:
                if self.callback is not None:
                    self.callback(info)
            except StopIteration:
                raise _Stop from None

    def _show(self, nfev: int) -> None:
        if self.bar is not None:
            self.bar.show(nfev, self.sign * self.opt.lowest_fun, self.opt.lam, self.opt.failures)

    def _info(self) -> Info:
        return self.opt.info._replace(best=self.sign * self.opt.lowest_fun)

    def _reached(self) -> bool:
        return self.target is not None and self.opt.lowest_fun <= self.target

    def _result(self, status: Status) -> Result:
        opt = self.opt
        if opt.nit and (not self.history or self.history[-1].iteration < opt.nit):
            self.history.append(self._info())
        best = opt.best
        mode_fun = opt.mode_fun
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
        from knobless.fast import successor
    except ImportError:  # numba is an extra: without it the same run is just slower
        return None
    return successor(fun, opt, sign)


def _name_of(fun: Any) -> str:
    """For people to read."""
    named = fun if hasattr(fun, "__qualname__") else type(fun)
    return f"{named.__module__}:{named.__qualname__}"
