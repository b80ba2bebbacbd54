"""A pool on a Dask cluster, by the executor of its client.

Dask has a queue of its own and repeats what a lost worker was running. It takes equal calls for one
call unless `pure` is False. Its futures do not show when they begin to run: with a limit, the
workers send an event.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from uuid import uuid4

from .capacity import most_workers
from .evaluation import LOST, Reply
from .sending import Sent

# Seconds that a cluster may be without workers after it had some
PATIENCE = 300.0
LOOK_INTERVAL = 1.0  # seconds between two questions to the scheduler
# With Dask's no-workers-timeout; not in all its versions
NO_WORKER_ERRORS = ("NoWorkerError", "NoValidWorkerError")


class DaskBackend:
    """Submits evaluations to the executor of a Dask client."""

    def __init__(
        self, executor: Any, call: Callable[[Sent], Reply], limit: float | None
    ) -> None:
        self._executor = executor
        self._call = call
        self._client = executor._client
        self._topic = None if limit is None else f"knobless-{uuid4()}"
        self._capacity = 1
        self._looked = -LOOK_INTERVAL
        self._seen: float | None = None  # when the cluster last had a worker
        self._waiting = False  # for a worker
        self.begun: dict[int, float] = {}
        if self._topic is not None:
            self._client.subscribe_topic(
                self._topic,
                lambda event: self.begun.update({event[1]: time.monotonic()}),
            )

    @property
    def capacity(self) -> int:
        self._look()
        return self._capacity

    def start(self, id: int, x: Sent) -> Future[Reply]:
        """Start an evaluation, without `submit` of the executor.

        The future of `submit` never ends if the result is lost.
        """
        if self._executor._shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")
        call = (
            (self._call, x)
            if self._topic is None
            else (_announced, self._topic, id, self._call, x)
        )
        task = self._client.submit(
            *call, **self._executor._kwargs | {"pure": False}
        )
        reply: Future[Reply] = Future()
        reply.add_done_callback(
            lambda reply: (
                task.cancel()
                if reply.cancelled() and not task.cancelled()
                else None
            )
        )
        self._client.loop.add_callback(_settle, task, reply)
        return reply

    def check(self) -> None:
        self._look()
        # a new cluster may wait in a queue for hours
        if not self._waiting or self._seen is None:
            return
        seconds = time.monotonic() - self._seen
        if seconds > PATIENCE:
            raise RuntimeError(
                f"workers: the Dask cluster has had no workers for {seconds:.0f} seconds. {LOST}"
            )

    def ended_by(self, error: BaseException) -> bool:
        return type(error).__name__ in NO_WORKER_ERRORS

    def close(self) -> None:
        if self._topic is not None:
            self._client.unsubscribe_topic(self._topic)

    def _look(self) -> None:
        """Ask the scheduler for its workers."""
        checked_at = time.monotonic()
        if checked_at - self._looked < LOOK_INTERVAL:
            return
        self._looked = checked_at
        # Without a scheduler, the futures are cancelled
        with suppress(Exception):
            threads = sum(self._client.nthreads().values())
            self._capacity = max(threads, most_workers(self._client))
            if threads:
                self._seen = checked_at
            elif not self._waiting:
                logging.getLogger("knobless").warning(
                    f"{self._client!r} has no workers: evaluations wait for them"
                )
            self._waiting = not threads


async def _settle(task: Any, reply: Future[Reply]) -> None:
    """End a future as the task of a Dask client ends, or with the error by which its result is
    lost.
    """
    value: Any = None
    error: BaseException | None = None
    try:
        value = await task
    except BaseException as raised:
        error = raised
    if task.cancelled():
        reply.cancel()
    if not reply.set_running_or_notify_cancel():
        return
    if error is None:
        reply.set_result(value)
    else:
        reply.set_exception(error)


def _announced(
    topic: str, id: int, call: Callable[[Sent], Reply], x: Sent
) -> Reply:
    """Evaluate on a Dask worker, after an event that the evaluation begins."""
    sys.modules["distributed"].get_worker().log_event(topic, id)
    return call(x)
