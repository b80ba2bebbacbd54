"""The interface of all pools, and `pool_of`, which makes one from the `workers` of the user.

A run submits points and waits for outcomes, in any order. A number of workers means processes
started here (`processes`). Executors (`executors`), Dask clients (`dask`) and map-like callables
(`maps`) belong to the user: they are neither started nor closed here. Each of them calls
`evaluate_timed` (`evaluation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, Protocol, Self

from knobless._checks import positive_int, positive_real

from .dask import DaskBackend
from .evaluation import Outcome
from .executors import ExecutorBackend
from .futures import Backend, Futures
from .maps import Map
from .processes import Processes
from .sending import Sent, evaluate_sent, pickled


class Pool(Protocol):
    """Runs evaluations.

    More evaluations may be submitted than run at once; the others wait. Leaving the context ends
    worker processes that were started here at once, and drops what is pending elsewhere.
    """

    @property
    def capacity(self) -> int:
        """The number of evaluations that can run at once; that of a cluster may change.

        It is `UNLIMITED` if it is not known, and for a map, which takes all that waits in one call.
        """

    def submit(self, candidates: Iterable[tuple[int, Any]]) -> None:
        """Submit evaluations.

        Parameters
        ----------
        candidates : iterable of (int, object)
            The number of each candidate, which its outcome has as well, and its point.
        """

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """Return the outcomes that have arrived, at least one.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for a first one. With 0, no evaluation is begun either.

        Returns
        -------
        list of Outcome
            Empty only if the timeout passes or nothing is pending.
        """

    def discard(self, ids: Iterable[int]) -> None:
        """Drop candidates.

        Those that have not begun do not begin, and the outcomes of the others are ignored.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


def pool_of(
    workers: Any,
    fun: Callable[[Any], Any],
    evaluation_timeout: float | None = None,
    lost_retries: int = 1,
) -> Pool:
    """Return a pool that evaluates `fun` on `workers`.

    Parameters
    ----------
    workers : int, executor, Dask client or map-like callable
        As in `minimize`. An integer starts as many processes, also if it is 1. An executor is any
        object with ``submit(fun, x)`` that returns a future with the methods of
        `concurrent.futures.Future`.
    fun : callable
        The objective.
    evaluation_timeout : float, optional
        Seconds after which an evaluation fails with a TimeoutError. A worker process started here
        is killed then; the worker of an executor stays busy with it; a map-like callable is waited
        for.
    lost_retries : int, optional
        How often an evaluation is tried again if its worker was lost. A map-like callable cannot do
        that.

    Returns
    -------
    Pool
        To be used as a context manager.

    Raises
    ------
    TypeError
        If `workers` is none of these, or `fun` is not callable or cannot be pickled for other
        processes.
    ValueError
        If a number is out of range.
    """
    if not callable(fun):
        raise TypeError(f"fun: expected a function, got {fun!r}")
    limit = (
        None
        if evaluation_timeout is None
        else positive_real("evaluation_timeout", evaluation_timeout)
    )
    if not isinstance(workers, bool) and hasattr(workers, "__index__"):
        return Processes(
            positive_int("workers", workers),
            pickled("fun", fun, by_value=True),
            limit,
            lost_retries,
        )
    sent = Sent("fun", fun)
    call = partial(evaluate_sent, sent, limit)
    if hasattr(workers, "get_executor"):  # a Dask client
        workers = workers.get_executor()
    if hasattr(workers, "submit"):
        # Others may not pickle at all
        if isinstance(workers, ProcessPoolExecutor):
            pickled("fun", fun, by_value=True)
        backend: Backend = (
            DaskBackend(workers, call, limit)
            if hasattr(workers, "_client")
            else ExecutorBackend(workers, call)
        )
        return Futures(backend, sent, limit, lost_retries)
    if callable(workers):
        return Map(workers, sent, call)
    kinds = (
        "an integer, a concurrent.futures.Executor, a Dask client "
        "or a callable like map (such as pool.imap)"
    )
    raise TypeError(
        f"workers: expected {kinds}, got {workers!r} of type {type(workers).__name__}"
    )
