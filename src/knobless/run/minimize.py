"""`minimize` and `maximize`: one call that optimizes an objective function over a search space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from knobless._checks import suggests
from knobless.core.algorithm import Algorithm

from .arguments import RUN, check_objective
from .iteration import Info
from .objectives import Objectives
from .optimize import mode_of, optimize
from .optimizer import Optimizer
from .result import Result
from .sources import EvaluatedObjective, workers_of
from .stopping import RunLimits, UserRules

StoppingRule = Callable[[Info], object]


@suggests("minimize", "kl.minimize(fun, space, budget=1000)", RUN)
def minimize(
    fun: Callable[[Any], Any],
    space: Any,
    *,
    budget: int | None = None,
    algorithm: Algorithm | None = None,
    target: float | None = None,
    timeout: float | None = None,
    stall: int | None = None,
    stop: StoppingRule | Iterable[StoppingRule] | None = None,
    x0: Any = None,
    constraints: Any = None,
    fixed: Mapping[str, Any] | None = None,
    known: Iterable[tuple[Any, float]] = (),
    rng: Any = None,
    batch: int | None = None,
    workers: Any = 1,
    vectorized: bool = False,
    deterministic: bool | None = None,
    evaluation_timeout: float | None = None,
    journal: Any = None,
    callback: Callable[[Info], object] | None = None,
    progress: bool = False,
    objectives: Sequence[str] | Mapping[str, str] | None = None,
) -> Result:
    """Minimize an objective function over a search space.

    Parameters
    ----------
    fun : callable
        The objective, ``fun(x) -> float``. It gets a point of `space`: an int8 array for
        ``Binary(n)``, a dict for a `Space` with names. It may return ``kl.Constrained(value,
        violation)``, for constraints that only an evaluation shows: points with a violation of at
        most 0 are feasible and rank by their values, the others after them by their violations. An
        evaluation that raises an exception (`SystemExit` included) or returns NaN is a failed
        evaluation: it ranks worst and the run continues.
    space : Binary, Choice, Integer, Float, Subset, Space, or a list or dict of these
        The search space; or a custom `Family` of distributions, whose points are arrays.
    budget : int, optional
        The maximum number of evaluations. It may be left out if there is a `timeout`.
    algorithm : Algorithm, optional
        A value such as ``pbil_lambda(space)``, which is then used for any objective. The default is
        the recommended algorithm for the space and for what is stated or found about the objective
        (`knobless.recipes.recommended`).
    target : float, optional
        Stop at the first value that is at least as good. As long as it is not known whether the
        objective is deterministic, that point is evaluated once more, and the run continues if the
        second value does not reach it.
    timeout : float, optional
        Stop after this many seconds, when the evaluations that are running have ended.
    stall : int, optional
        Stop after this many evaluations without an improvement.
    stop : callable or sequence of callables, optional
        Further stopping rules: functions that are called with an `Info` after each iteration, as a
        `callback` is, and return whether the run ends: True, or a str, which becomes the message of
        the result. They apply to runs that are resumed as well, also at iterations that are
        recorded.
    x0 : point or list of points, optional
        Initial points, which are evaluated first, in this order. The search starts from the best of
        them: the initial distribution is moved halfway to it.
    constraints : callable or sequence of callables, optional
        Restrictions of the points that are known without an evaluation: functions of a point that
        return a number, feasible if at most 0, or a bool, feasible if True. They are called often
        and should take little time. Every point that is evaluated is feasible: an infeasible one is
        changed into a feasible one before.
    fixed : dict, optional
        Values of variables that do not vary, by their names as in ``space.columns()``, such as
        ``"optimizer.rate"``; entries of arrays are ``"layers[3]"``, and the variable that is the
        whole space is called ``"x"``.
    known : iterable of (point, value) pairs, optional
        Points evaluated elsewhere. They count for the best point, but not for the budget. The
        recommended algorithm learns from them as from its own evaluations; one that samples from a
        distribution, such as ``pbil_lambda(space)``, learns only from its own samples.
    rng : None, int, or numpy.random.Generator, optional
        The seed of the run, or a generator. The same seed gives the same run.
    batch : int, optional
        Evaluate in rounds of at least this many points: the run does not depend on `workers`, nor
        on the order in which evaluations end. By default, no worker waits for another one, and
        values are used in the order in which they arrive. For a journal that exists, the default is
        what it records.
    workers : int, Executor, Dask client or map-like callable, optional
        Where `fun` is evaluated: in this many processes, on an executor of `concurrent.futures`, on
        a Dask cluster, or by a callable such as ``pool.imap``. With 1, in this process; with −1, in
        as many processes as there are CPUs that this process may use.
    vectorized : bool, optional
        Whether `fun` gets all points of an iteration at once, as arrays with one row per point, and
        returns an array with one value per point, or a `Constrained` of two such arrays.
        Constraints get single points.
    deterministic : bool or None, optional
        Whether equal points always have equal values. With True, each point is evaluated at most
        once. With False, points may be evaluated several times. With None, the default, the run
        tests this: see Notes.
    evaluation_timeout : float, optional
        Seconds after which a single evaluation fails.
    journal : path or Journal, optional
        A file in which every evaluation is recorded when it ends. If the file exists, the run is
        resumed from it and has the result of a run that was never interrupted. The stopping rules
        and `workers` may differ from before.
    callback : callable, optional
        Called with an `Info` after each iteration, those that a journal has included. The `Info`
        also has the point to use so far and the new evaluations. It may raise `StopIteration` to
        stop the run.
    progress : bool, optional
        Whether to show a progress bar, which needs tqdm.
    objectives : sequence of str or dict, optional
        Names of two to five objectives, all of which are minimized, or their directions by name,
        such as ``{"error": "min", "throughput": "max"}``. `fun` then returns as many numbers in
        this order, or a dict with these names, and the result has the points that no other one
        dominates, `front`. There is nothing else to set: no reference point, no weights.

    Returns
    -------
    Result
        The point to use, `x`, and its value `fun`, the reason why the run ended, and its history.
        `x` is the best point of a deterministic objective and the recommended point of a noisy one,
        with an estimate of its mean value; for several objectives, it is the knee of the `front`.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid; the message has its name, what was expected and what was given.
        ValueError also if no feasible point is found.
    JournalError
        If the journal cannot be used, or is that of another run.
    Exception
        The exception of the first evaluation if the next three raise as well, or all until the end:
        a mistake in `fun` should not use up the budget. If `fun` calls `sys.exit`, this is a
        RuntimeError.

    See Also
    --------
    maximize : The same for the largest value.
    Optimizer : Ask and tell, for custom loops.

    Notes
    -----
    With neither `algorithm` nor `deterministic`, a run begins with the algorithm for deterministic
    objectives and tests whether it is one: it evaluates its best point once more after 8
    evaluations and then whenever their number has grown by a factor of 1.5, or of 4 once it is
    unlikely that noise has been overlooked. These evaluations count. The first difference beyond
    the rounding of floating-point sums makes the run noisy for good: it changes to the algorithm
    for noisy objectives, which learns from all evaluations so far. A noisy run of at least 40
    evaluations spends the last 5 % of them on comparing the points to recommend. With an
    `algorithm`, nothing is tested: if `deterministic` is not given, `x` is the best single
    observation.

    With a stated `batch`, the run of a seed depends neither on `workers` nor on the order in which
    evaluations end: values are used in the order of the candidates, and the workers beyond the size
    of an iteration are idle. Without one, each worker gets a point when it is free, and the run
    depends on the order in which values arrive, which a journal records. With one worker both are
    the same. A callable like ``pool.imap`` as `workers` takes many points in one call, so `batch`
    is then by default the size of the pool.

    With `constraints`, an infeasible point is repaired: its variables take over the values of a
    feasible point, in random order, until it is feasible. If of the points without ones and with
    ones only exactly one is feasible, bits are repaired towards that one and then set to the other
    value as long as the point stays feasible. A first feasible point is searched for among 10,000
    points by minimizing the violation; if there is none, a ValueError is raised before the first
    evaluation. A run that is resumed calls the constraints again.

    Ctrl-C ends a run with the result so far; pressed twice within a second, it raises
    KeyboardInterrupt. A run in which each of the first 100 evaluations fails ends early. If more
    than half of the evaluations fail, there is a RuntimeWarning at the end.

    Examples
    --------
    >>> import knobless as kl
    >>> result = kl.minimize(lambda x: float(x.sum()), kl.Binary(20), budget=1000, rng=0)
    >>> result.fun, result.nfev
    (0.0, 1000)
    """
    check_objective(fun, space)
    workers = workers_of(workers)
    stated = Objectives.of(objectives, maximize=False)
    batch, by_arrival = mode_of(batch, workers, journal)
    sign = 1.0 if stated is None else stated.sign
    return optimize(
        sign,
        EvaluatedObjective(
            fun, workers, vectorized, evaluation_timeout, stated
        ),
        Optimizer(
            space,
            algorithm,
            x0,
            rng,
            batch,
            deterministic,
            constraints=constraints,
            fixed=fixed,
            objectives=stated
            if stated is not None and len(stated) > 1
            else None,
        ),
        RunLimits.of(sign, budget, target, timeout, stall),
        UserRules.of(callback, stop),
        known,
        journal,
        rng is None,
        progress,
        by_arrival,
    )


@suggests("maximize", "kl.maximize(fun, space, budget=1000)", RUN)
def maximize(
    fun: Callable[[Any], Any],
    space: Any,
    *,
    budget: int | None = None,
    algorithm: Algorithm | None = None,
    target: float | None = None,
    timeout: float | None = None,
    stall: int | None = None,
    stop: StoppingRule | Iterable[StoppingRule] | None = None,
    x0: Any = None,
    constraints: Any = None,
    fixed: Mapping[str, Any] | None = None,
    known: Iterable[tuple[Any, float]] = (),
    rng: Any = None,
    batch: int | None = None,
    workers: Any = 1,
    vectorized: bool = False,
    deterministic: bool | None = None,
    evaluation_timeout: float | None = None,
    journal: Any = None,
    callback: Callable[[Info], object] | None = None,
    progress: bool = False,
    objectives: Sequence[str] | Mapping[str, str] | None = None,
) -> Result:
    """Maximize an objective function over a search space.

    Parameters
    ----------
    fun : callable
        The objective, as in `minimize`; a larger value is better.
    space : Binary, Choice, Integer, Float, Subset, Space, or a list or dict of these
        As in `minimize`.
    budget : int, optional
        As in `minimize`.
    algorithm : Algorithm, optional
        As in `minimize`.
    target : float, optional
        Stop at the first value of `fun` that is at least as large, as `minimize` describes it.
    timeout : float, optional
        As in `minimize`.
    stall : int, optional
        As in `minimize`.
    stop : callable or sequence of callables, optional
        As in `minimize`; `best` of the `Info` is a value of `fun`, not negated.
    x0 : point or list of points, optional
        As in `minimize`.
    constraints : callable or sequence of callables, optional
        As in `minimize`.
    fixed : dict, optional
        As in `minimize`.
    known : iterable of (point, value) pairs, optional
        As in `minimize`, with values of `fun`.
    rng : None, int, or numpy.random.Generator, optional
        As in `minimize`.
    batch : int, optional
        As in `minimize`.
    workers : int, Executor, Dask client or map-like callable, optional
        As in `minimize`.
    vectorized : bool, optional
        As in `minimize`.
    deterministic : bool or None, optional
        As in `minimize`.
    evaluation_timeout : float, optional
        As in `minimize`.
    journal : path or Journal, optional
        As in `minimize`.
    callback : callable, optional
        As in `minimize`.
    progress : bool, optional
        As in `minimize`.
    objectives : sequence of str or dict, optional
        As in `minimize`; names without directions are maximized.

    Returns
    -------
    Result
        As of `minimize`: `fun` and the values in the history are those of the objective, not
        negated.

    Raises
    ------
    TypeError, ValueError, JournalError, Exception
        As `minimize` does.

    See Also
    --------
    minimize : The same for the smallest value, with a description of all parameters.

    Notes
    -----
    The run is that of `minimize` on ``-fun``.

    Examples
    --------
    >>> import knobless as kl
    >>> result = kl.maximize(lambda x: float(x.sum()), kl.Binary(20), budget=1000, rng=0)
    >>> result.fun, result.nfev
    (20.0, 1000)
    """
    check_objective(fun, space)
    workers = workers_of(workers)
    stated = Objectives.of(objectives, maximize=True)
    batch, by_arrival = mode_of(batch, workers, journal)
    sign = -1.0 if stated is None else stated.sign
    return optimize(
        sign,
        EvaluatedObjective(
            fun, workers, vectorized, evaluation_timeout, stated
        ),
        Optimizer(
            space,
            algorithm,
            x0,
            rng,
            batch,
            deterministic,
            constraints=constraints,
            fixed=fixed,
            objectives=stated
            if stated is not None and len(stated) > 1
            else None,
        ),
        RunLimits.of(sign, budget, target, timeout, stall),
        UserRules.of(callback, stop),
        known,
        journal,
        rng is None,
        progress,
        by_arrival,
    )
