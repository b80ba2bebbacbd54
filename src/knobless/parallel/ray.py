"""Evaluations as tasks of a Ray cluster, by an executor for `workers`.

Ray is imported by the executor only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from knobless._checks import extra, positive_int

__all__ = ["RayExecutor"]


class RayExecutor:
    """An executor that runs each evaluation as a Ray task.

    Parameters
    ----------
    options : mapping, optional
        Options of ``ray.remote`` for each evaluation, such as ``{"num_gpus": 1}``. Ray repeats no
        evaluation unless ``max_retries`` is given, because a run does that by itself.
    max_workers : int, optional
        The number of evaluations that run at once. The default is what the resources of the cluster
        allow, which may change during a run. Give it for a cluster that adds nodes by itself when
        evaluations are waiting.

    Notes
    -----
    `ray.util.multiprocessing.Pool` passes points to its actors in turn, whether they are busy or
    not. With uneven durations its workers wait; the tasks of this executor do not.

    Examples
    --------
    >>> ray.init()  # doctest: +SKIP
    >>> kl.minimize(fun, space, budget=200, workers=RayExecutor())  # doctest: +SKIP
    """

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        max_workers: int | None = None,
    ) -> None:
        self._options = {"num_cpus": 1, "max_retries": 0} | dict(options or {})
        self._max_workers = (
            None
            if max_workers is None
            else positive_int("max_workers", max_workers)
        )
        with extra("ray"):
            self._ray = import_module("ray")
        self._run = self._ray.remote(**self._options)(_call)
        # The last function and its reference: it is sent once
        self._stored: tuple[Any, Any] = (None, None)

    @property
    def max_workers(self) -> int:
        """The number of evaluations that run at once, at least 1."""
        if self._max_workers is not None:
            return self._max_workers
        options = self._options
        total = self._ray.cluster_resources()
        needs = {
            "CPU": options["num_cpus"],
            "GPU": options.get("num_gpus"),
            **(options.get("resources") or {}),
        }
        return max(
            int(
                min(
                    total.get(name, 0) / need
                    for name, need in needs.items()
                    if need
                )
            ),
            1,
        )

    def submit(self, function: Callable[[Any], Any], x: Any) -> Future[Any]:
        """Start a task.

        Parameters
        ----------
        function : callable
            What is called.
        x : object
            Its argument.

        Returns
        -------
        Future
            It fails with an exception of Ray if the worker is lost.
        """
        if self._stored[0] is not function:
            self._stored = function, self._ray.put(function)
        future: Future[Any] = self._run.remote(self._stored[1], x).future()
        future.set_running_or_notify_cancel()
        return future


def _call(function: Callable[[Any], Any], x: Any) -> Any:
    return function(x)
