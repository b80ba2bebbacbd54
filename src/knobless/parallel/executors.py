"""A pool on an executor of the user: anything with `submit(fun, x)` that returns a future."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from .capacity import n_workers
from .evaluation import Reply
from .maps import UNLIMITED
from .sending import Sent


class ExecutorBackend:
    """Submits evaluations to an executor."""

    def __init__(self, executor: Any, call: Callable[[Sent], Reply]) -> None:
        self._executor, self._call = executor, call
        self._capacity = 1
        self.begun: dict[int, float] = {}

    @property
    def capacity(self) -> int:
        # Of an executor that has ended, which the next evaluation will show
        with suppress(Exception):
            self._capacity = n_workers(self._executor) or UNLIMITED
        return self._capacity

    def start(self, id: int, x: Sent) -> Future[Reply]:
        return self._executor.submit(self._call, x)

    def check(self) -> None:
        """Do nothing: the futures of an executor that has ended fail."""

    def ended_by(self, error: BaseException) -> bool:
        return False

    def close(self) -> None:
        """The executor is the user's."""
