"""`minimize` and `maximize` for objectives in tensors: the loop runs on the device of the points.

The host only starts iterations. It reads the counts of a run once every so many iterations: always
on a CPU, where that costs nothing. In between λ is not known to the host, but a bound on it: by
lines 13 and 14 of Algorithm 1 it grows by less than the factor exp(ε) per iteration, because γ is
at most one.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from knobless._checks import boolean, positive_int, suggests
from knobless.core.adaptation import SNR
from knobless.core.adaptation import samples as spend_samples
from knobless.core.igo import IGO
from knobless.core.types import Points
from knobless.core.violation import FEASIBLE_LIMIT
from knobless.journal.evaluations import NO_ROWS, Evaluations
from knobless.journal.events import RETURNED_NAN
from knobless.recipes import pbil_lambda
from knobless.run import interrupts
from knobless.run.arguments import MEANT, OF_A_RUN, RUN
from knobless.run.iteration import Info
from knobless.run.optimize import encoded_pairs
from knobless.run.progress import Bar
from knobless.run.result import MESSAGES, History, Result, Status
from knobless.run.stopping import RunLimits
from knobless.run.streams import Streams
from knobless.space.space import Space
from knobless.space.variables import Binary
from knobless.space.when import When

from .engine import STATUSES, Engine, TrialCounts, record, take_point
from .families import TensorFamily, in_tensors, space_in_tensors
from .fused import FusedEngine, is_fused
from .samples import RedrawnSamples, Samples, StoredSamples
from .search import TensorState, most_samples, tensor_algorithm
from .separable import Separable, checked_values

# Names of arguments in other libraries, and what to use here instead, for error messages.
TENSOR_RUN = {
    name: text for name, text in RUN.items() if name != "trials"
} | dict.fromkeys(
    (
        *(
            "stop",
            "vectorized",
            "deterministic",
            "evaluation_timeout",
            "constraints",
            "fixed",
        ),
        *(
            "workers",
            *OF_A_RUN["workers"],
            "journal",
            *MEANT["journal, a file"],
        ),
    ),
    "not available for objectives in tensors; kl.minimize and kl.maximize have it",
)

MOST_ITERATIONS = 64  # between two readings of the counts
# Of the samples of a weighted sum, where λ is not known to the host
ROW_MULTIPLE = 64

TensorObjective = Callable[[Any], Tensor]
RunCallback = Callable[[Any], object]


@suggests("minimize", "minimize(fun, space, budget=10000)", TENSOR_RUN)
def minimize(
    fun: TensorObjective | Separable,
    space: Any,
    *,
    budget: int | None = None,
    device: torch.device | str | None = None,
    algorithm: IGO | None = None,
    target: float | None = None,
    timeout: float | None = None,
    stall: int | None = None,
    x0: Any = None,
    known: Iterable[tuple[Any, float]] = (),
    rng: Any = None,
    batch: int = 1,
    trials: int | None = None,
    callback: RunCallback | None = None,
    progress: bool = False,
) -> Result | list[Result]:
    """Minimize an objective in tensors over bits and choices.

    Parameters
    ----------
    fun : callable or Separable
        The objective. It gets all points of an iteration and returns a tensor with one value per
        point, on the same device. The points of ``Binary(n)`` are an int8 tensor with one row per
        point; those of a `Space` with names are a dict of tensors, with one row per point each. A
        choice is given by the index of its option. NaN is a failed evaluation, which ranks worst.
    space : Binary, Choice, Space, or a list or dict of these
        The search space: bits and choices, none of them conditional.
    budget : int, optional
        The maximum number of evaluations. It may be left out if there is a `timeout`.
    device : torch.device or str, optional
        Where the points are drawn. The default is torch's default device.
    algorithm : IGO, optional
        A value such as ``pbil_epsilon(space)``. The default is ``pbil_lambda(space)``.
    target : float, optional
        Stop at the first value that is at least as good.
    timeout : float, optional
        Stop after this many seconds, at the end of an iteration.
    stall : int, optional
        As in `knobless.minimize`.
    x0 : point, optional
        As in `knobless.minimize`.
    known : iterable of (point, value) pairs, optional
        As in `knobless.minimize`.
    rng : None, int, or numpy.random.Generator, optional
        As in `knobless.minimize`.
    batch : int, optional
        The smallest number of samples per iteration.
    trials : int, optional
        Number of independent runs side by side. `fun` gets the points of all of them in one call.
        Run i is the one with ``rng=numpy.random.default_rng(rng).spawn(trials)[i]``.
    callback : callable, optional
        Called with an `Info` after each iteration, or with a list of one `Info` per run if `trials`
        is given; `Info.theta` is a tensor. On a GPU it is called once every so many iterations, at
        most 64. It may raise `StopIteration` to stop the run.
    progress : bool, optional
        Whether to show a progress bar, which needs tqdm.

    Returns
    -------
    Result or list of Result
        As of ``knobless.minimize`` with an `algorithm`: `x` is the best single observation. If the
        objective is noisy, use `mode`. If it is not, evaluate `mode`, which is often better than
        `x`: see Notes. No evaluations are kept, and `mode_fun` is None. With `trials`, a list of
        one result per run.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid; the message has its name, what was expected and what was given.
    Exception
        Any exception of `fun`.

    See Also
    --------
    knobless.minimize : For objectives of one point, and for all kinds of variables.
    Separable : Objectives of millions of bits.

    Notes
    -----
    The run of a seed is that of ``knobless.minimize(..., algorithm=pbil_lambda(space),
    vectorized=True)``: the same samples and λ. All parameters are in double precision.

    The better of `x` and `mode` without noise is the `x` of
    ``minimize(fun, space, budget=1, x0=result.mode, known=[(result.x, result.fun)])``.

    On a GPU there is no host synchronization per iteration. `fun` may therefore get up to 64
    iterations of points after the one that ends a run, and more rows than λ in an iteration. These
    values are ignored.

    Examples
    --------
    >>> import knobless as kl
    >>> from knobless.torch import minimize
    >>> result = minimize(lambda x: x.sum(1), kl.Binary(20), budget=1000, rng=0)
    >>> result.fun, result.nfev
    (0.0, 1000)
    """
    limits = RunLimits.of(1.0, budget, target, timeout, stall)
    return _optimize(
        1.0,
        fun,
        space,
        device,
        algorithm,
        limits,
        x0,
        known,
        rng,
        batch,
        trials,
        callback,
        progress,
    )


@suggests("maximize", "maximize(fun, space, budget=10000)", TENSOR_RUN)
def maximize(
    fun: TensorObjective | Separable,
    space: Any,
    *,
    budget: int | None = None,
    device: torch.device | str | None = None,
    algorithm: IGO | None = None,
    target: float | None = None,
    timeout: float | None = None,
    stall: int | None = None,
    x0: Any = None,
    known: Iterable[tuple[Any, float]] = (),
    rng: Any = None,
    batch: int = 1,
    trials: int | None = None,
    callback: RunCallback | None = None,
    progress: bool = False,
) -> Result | list[Result]:
    """Maximize an objective in tensors over bits and choices.

    Parameters
    ----------
    fun : callable or Separable
        The objective, as in `minimize`; a larger value is better.
    space : Binary, Choice, Space, or a list or dict of these
        As in `minimize`.
    budget : int, optional
        As in `minimize`.
    device : torch.device or str, optional
        As in `minimize`.
    algorithm : IGO, optional
        As in `minimize`.
    target : float, optional
        Stop at the first value of `fun` that is at least as large.
    timeout : float, optional
        As in `minimize`.
    stall : int, optional
        As in `minimize`.
    x0 : point, optional
        As in `minimize`.
    known : iterable of (point, value) pairs, optional
        As in `minimize`, with values of `fun`.
    rng : None, int, or numpy.random.Generator, optional
        As in `minimize`.
    batch : int, optional
        As in `minimize`.
    trials : int, optional
        As in `minimize`.
    callback : callable, optional
        As in `minimize`.
    progress : bool, optional
        As in `minimize`.

    Returns
    -------
    Result or list of Result
        As of `minimize`: `fun` and the values in the history are those of the objective, not
        negated.

    Raises
    ------
    TypeError, ValueError, Exception
        As `minimize` does.

    See Also
    --------
    minimize : The same for the smallest value, with a description of all parameters.

    Examples
    --------
    >>> import knobless as kl
    >>> from knobless.torch import maximize
    >>> maximize(lambda x: x.sum(1), kl.Binary(20), budget=1000, rng=0).fun
    20.0
    """
    limits = RunLimits.of(-1.0, budget, target, timeout, stall)
    return _optimize(
        -1.0,
        fun,
        space,
        device,
        algorithm,
        limits,
        x0,
        known,
        rng,
        batch,
        trials,
        callback,
        progress,
    )


@torch.no_grad()
def _optimize(
    sign: float,
    fun: Any,
    space: Any,
    device: Any,
    algorithm: IGO | None,
    limits: RunLimits,
    x0: Any,
    known: Iterable[tuple[Any, float]],
    rng: Any,
    batch: int,
    trials: int | None,
    callback: RunCallback | None,
    progress: bool,
) -> Result | list[Result]:
    """Minimize if `sign` is 1, or maximize if `sign` is -1."""
    if not callable(fun):
        raise TypeError(f"fun: expected a function, got {fun!r}")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: expected a function, got {callback!r}")
    space = Space.of(space)
    if isinstance(fun, Separable) and not isinstance(space.sole, Binary):
        raise TypeError(
            "fun: expected a function, or Binary(n) as the space of a Separable objective, got "
            f"{space!r}"
        )
    space_in_tensors(space)  # raises for numbers and conditional variables
    algorithm = tensor_algorithm(
        pbil_lambda(space) if algorithm is None else algorithm, space.family
    )
    algorithm = algorithm.at_least(positive_int("batch", batch))
    rngs = (
        [rng]
        if trials is None
        else np.random.default_rng(rng).spawn(positive_int("trials", trials))
    )
    keys = [Streams.of(rng).main.key for rng in rngs]
    pairs = encoded_pairs(known, space, sign)
    code = None if x0 is None else space.encode(x0, "x0")
    where = usable_device(device)
    with ExitStack() as resources:
        run = TensorRun(
            sign, fun, space, algorithm, limits, keys, where, code, pairs
        )
        if boolean("progress", progress):
            run.bar = resources.enter_context(
                Bar(
                    None
                    if limits.budget == math.inf
                    else limits.budget * len(keys)
                )
            )
        results = run.run(callback, listed=trials is not None)
    return results[0] if trials is None else results


def usable_device(device: Any) -> torch.device:
    """Return the device of new tensors; raise ValueError if there is none."""
    try:
        return torch.empty(0, device=device).device
    # The former where torch is built without CUDA
    except (AssertionError, RuntimeError) as error:
        message = str(error).splitlines()[0]
        raise ValueError(
            f"device: expected an available device, got {device!r}: {message}"
        ) from None


class TensorRun:
    """Runs side by side, in tensors."""

    def __init__(
        self,
        sign: float,
        fun: TensorObjective | Separable,
        space: Space,
        algorithm: IGO,
        limits: RunLimits,
        keys: list[int],
        device: torch.device,
        x0: Points | None,
        known: list[tuple[Points, float]],
    ) -> None:
        self.sign = sign
        self.fun = fun
        self.space = space
        self.algorithm = algorithm
        self.limits = limits
        self.device, self.trials = device, len(keys)
        self.bar: Bar | None = None
        self.histories = [History() for _ in keys]
        self.status: list[Status | None] = [None for _ in keys]
        family = in_tensors(space.family)
        start = algorithm.init(x0=x0)
        feasible = [
            (code, value) for code, value in known if value < FEASIBLE_LIMIT
        ]
        code, best = min(
            feasible,
            key=lambda pair: pair[1],
            default=(space.family.mode(start.theta), math.inf),
        )
        state = TensorState(*map(self._repeated, (start.theta, *start.signal)))
        counts = TrialCounts.start(self.trials, best, limits, device)
        key = torch.tensor(
            np.array(keys, dtype=np.uint64).view(np.int64), device=device
        )
        best_x = self._repeated(code)
        if x0 is not None and not best <= limits.target:
            x = self._repeated(x0)
            counts, best_x = take_point(
                counts, best_x, x, self.values(x), limits
            )
        self.engine = self._engine(family, key, state, counts, best_x)
        # Iterations that were started; trials that have ended have fewer
        self.nit = 0
        # Of iterations that the histories keep, not read yet
        self.records: list[Tensor] = []

    def _repeated(self, value: Any) -> Tensor:
        """Return a value once per trial."""
        return torch.as_tensor(
            np.array([value] * self.trials), device=self.device
        )

    def _engine(
        self,
        family: TensorFamily,
        key: Tensor,
        state: TensorState,
        counts: TrialCounts,
        best_x: Tensor,
    ) -> Engine | FusedEngine:
        start = (self.algorithm, family, self.limits, state, counts, best_x)
        separable = self.fun if isinstance(self.fun, Separable) else None
        if is_fused(self.algorithm, self.device):
            return FusedEngine(*start, key, self.values, separable, self.sign)
        words = self.space.family.words
        samples: Samples = StoredSamples(self.values, family, key, words)
        if separable is not None:
            samples = RedrawnSamples(separable, self.sign, family, key, words)
        return Engine(*start, samples)

    def values(self, x: Tensor) -> Tensor:
        """Return the values of points, one per row, to be minimized."""
        points = (
            x
            if isinstance(self.fun, Separable)
            else tensor_points(self.space, x)
        )
        return self.sign * checked_values("objective", self.fun(points), len(x))

    def run(self, callback: RunCallback | None, listed: bool) -> list[Result]:
        """Iterate until a stopping rule applies; return the results."""
        deadline = time.monotonic() + self.limits.timeout
        reading = self._read()
        try:
            while None in self.status:
                running = [status is None for status in self.status]
                self._iterate(reading)
                nit = reading.nit
                reading = self._read()
                if (
                    callback is not None
                    and reading.nit != nit
                    and self._stops(callback, listed)
                ):
                    self._end(Status.CALLBACK, running)
                if time.monotonic() >= deadline:
                    self._end(
                        Status.TIMEOUT,
                        [status is None for status in self.status],
                    )
        except KeyboardInterrupt as error:
            interrupts.end_of_run(error)
            self._end(
                Status.INTERRUPTED, [status is None for status in self.status]
            )
            reading = self._read()
        return self._results(reading)

    def _iterate(self, reading: Reading) -> None:
        """Run iterations until the next reading."""
        longest = max(
            self.histories, key=lambda history: history.last_iteration
        )
        for i in range(self._iterations):
            self.engine.iterate(self._rows(reading, i))
            self.nit += 1
            if longest.keeps(self.nit):
                self.records.append(self._record())

    @property
    def _iterations(self) -> int:
        """Iterations until the next reading: so few that λ grows by at most a quarter."""
        if reads_at_once(self.device):
            return 1
        return max(
            1,
            min(
                MOST_ITERATIONS, int(math.sqrt(self.algorithm.family.dim)) // 4
            ),
        )

    def _rows(self, reading: Reading, i: int) -> int:
        """Return λ of the i-th iteration after a reading, or an upper bound of it."""
        if reads_at_once(self.device):
            by_trial = zip(self.status, reading.lam, reading.nfev, strict=True)
            return int(
                max(
                    min(lam, self.limits.budget - nfev)
                    for status, lam, nfev in by_trial
                    if status is None
                )
            )
        adaptation = self.algorithm.adaptation
        largest = most_samples(adaptation)
        if not (
            isinstance(adaptation, SNR) and adaptation.spend is spend_samples
        ):
            return largest
        bound = math.floor(
            max(reading.lam_r) * math.exp(i * adaptation.eps) * (1.0 + 1e-9)
            + 0.5
        )
        # Few different numbers, because kernels are recorded for each, but no more than a quarter
        # too large. In a weighted sum the rows beyond λ take no time.
        smallest = (
            ROW_MULTIPLE
            if isinstance(self.fun, Separable) and self.fun.weights is not None
            else 1
        )
        multiple = max(smallest, 2 ** max(bound.bit_length() - 3, 0))
        return min(largest, -(-bound // multiple) * multiple)

    def _read(self) -> Reading:
        """Read the counts from the device; complete the histories and the progress bar."""
        counts = self.engine.counts
        state = self.engine.state
        read = (
            counts.status,
            counts.nit,
            counts.nfev,
            counts.failures,
            counts.best,
            self.engine.lam,
            state.lam_r,
        )
        status, nit, nfev, failures, best, lam, lam_r = torch.stack(
            [counts_of_trials.double() for counts_of_trials in read]
        ).tolist()
        nit, nfev, failures, lam = (
            [int(x) for x in numbers] for numbers in (nit, nfev, failures, lam)
        )
        reading = Reading(nit, nfev, failures, lam, best, lam_r)
        self.status = [
            was or STATUSES[int(code)]
            for was, code in zip(self.status, status, strict=True)
        ]
        rows = self.records
        self.records = []
        for row in torch.stack(rows).tolist() if rows else []:
            for history, fields in zip(self.histories, row, strict=True):
                if fields[0] > history.last_iteration:
                    history.append(self._info(fields))
        if self.bar is not None:
            self.bar.show(
                sum(reading.nfev),
                "best",
                self.sign * min(best),
                sum(reading.failures),
            )
        return reading

    def _record(self) -> Tensor:
        return record(
            self.algorithm,
            self.engine.family,
            self.engine.state,
            self.engine.counts,
        )

    def _info(self, fields: list[float], theta: Any = None) -> Info:
        nit, nfev, best, lam, lam_r, eps, snr, entropy = fields
        return Info(
            int(nit),
            int(nfev),
            self.sign * best,
            int(lam),
            lam_r,
            eps,
            snr,
            entropy,
            theta=theta,
        )

    def _infos(self) -> list[Info]:
        """Return the present state of each trial."""
        by_trial = zip(
            self._record().tolist(),
            self.engine.state.theta.clone(),
            strict=True,
        )
        return [self._info(fields, theta) for fields, theta in by_trial]

    def _stops(self, callback: RunCallback, listed: bool) -> bool:
        """Call the callback; return whether it has raised StopIteration."""
        infos = self._infos()
        try:
            callback(infos if listed else infos[0])
        except StopIteration:
            return True
        return False

    def _end(self, status: Status, ended: list[bool]) -> None:
        """Set the status of trials that have not reached the target."""
        by_trial = zip(self.status, ended, strict=True)
        self.status = [
            status if ends and was is not Status.TARGET else was
            for was, ends in by_trial
        ]

    def _results(self, reading: Reading) -> list[Result]:
        """Return the result of each trial."""
        modes = self.engine.family.mode(self.engine.state.theta).cpu().numpy()
        points = self.engine.best_x.cpu().numpy()
        infos = self._infos()
        return [
            self._result(i, reading, points[i], modes[i], infos[i])
            for i in range(self.trials)
        ]

    def _result(
        self, i: int, reading: Reading, point: Points, mode: Points, info: Info
    ) -> Result:
        history = self.histories[i]
        nfev = reading.nfev[i]
        failures = reading.failures[i]
        best = reading.best[i]
        status = self.status[i] or Status.INTERRUPTED
        if history.last_iteration < reading.nit[i]:
            history.append(info)
        has_point = best < math.inf
        failing = 2 * failures > nfev
        target = self.limits.target
        message = MESSAGES[status]
        if status is Status.FAILED:
            message += RETURNED_NAN
        elif failing:
            message += f" {failures} of {nfev} evaluations failed."
            message += f" The first failure: {RETURNED_NAN}"
        elif not has_point:
            message += " No evaluation gave a finite value."
        if failing:
            warnings.warn(
                f"Most evaluations failed. {message}",
                RuntimeWarning,
                stacklevel=7,
            )
        decode = self.space.decode
        dtype = self.space.family.dtype
        direction = "minimize" if self.sign > 0 else "maximize"
        return Result(
            x=decode(point.astype(dtype)) if has_point else None,
            fun=self.sign * best if has_point else math.nan,
            fun_std=None,
            deterministic=None,
            violation=0.0 if has_point else math.nan,
            observed_x=decode(point.astype(dtype)) if has_point else None,
            observed_fun=self.sign * best if has_point else math.nan,
            mode=decode(mode.astype(dtype)),
            mode_fun=None,
            nfev=nfev,
            constraint_checks=0,
            nit=reading.nit[i],
            success=has_point
            and (math.isnan(target) or best <= target)
            and not failing
            and status != Status.INTERRUPTED,
            status=status,
            message=message,
            failures=failures,
            failure=RETURNED_NAN if failures else None,
            history=history,
            evaluations=Evaluations(self.space, direction, NO_ROWS, nfev),
        )


def reads_at_once(device: torch.device) -> bool:
    """Return whether the host can read tensors without waiting."""
    return device.type == "cpu"


class Reading(NamedTuple):
    """The counts of each trial as read from the device."""

    nit: list[int]
    nfev: list[int]
    failures: list[int]
    lam: list[int]
    best: list[float]
    lam_r: list[float]


def tensor_points(space: Space, codes: Tensor) -> Any:
    """Return codes as one tensor per variable; choices have the indices of options."""
    values = []
    for _, variable, where, _ in space.columns():
        part = codes[:, where]
        if where.start == where.stop:  # a constant
            part = codes.new_zeros(len(codes), variable.n or 1)
        values.append(part[:, 0] if variable.n is None else part)
    return _filled(space.tree, iter(values))


def _filled(tree: Any, values: Iterator[Tensor]) -> Any:
    if isinstance(tree, dict):
        return {name: _filled(below, values) for name, below in tree.items()}
    if isinstance(tree, list):
        return [_filled(below, values) for below in tree]
    return _filled(tree.of, values) if isinstance(tree, When) else next(values)
