"""A pool on a map-like callable: the built-in `map`, `multiprocessing.Pool.imap` and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Self

from .evaluation import Outcome, Reply

UNLIMITED = 1_000_000  # the capacity of workers whose number is not known


class Map:
    """Passes all waiting points to the map in one call. A list is taken whole, an iterator result by result."""

    capacity = UNLIMITED

    def __init__(self, map: Callable[..., Iterable[Any]], call: Callable[[Any], Reply]) -> None:
        self._map = map
        self._call = partial(_numbered, call)
        self._waiting: dict[int, Any] = {}
        self._results: Iterator[Any] = iter(())
        self._pending: set[int] = set()  # candidates whose results are still to come from `_results`

    def submit(self, candidates: Iterable[tuple[int, Any]]) -> None:
        self._waiting.update(candidates)

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        if timeout is not None and timeout <= 0:  # what has arrived was returned before
            return []
        arrived: list[Outcome] = []
        whole = False
        while not arrived and self._waiting.keys() | self._pending:
            if not self._pending:
                batch, self._waiting = self._waiting, {}
                self._pending = set(batch)
                results = self._map(self._call, list(batch.items()))
                self._results, whole = iter(results), isinstance(results, list)
            while self._pending and (whole or not arrived):
                arrived += self._next()
        return arrived

    def discard(self, ids: Iterable[int]) -> None:
        for id in ids:
            self._waiting.pop(id, None)
            self._pending.discard(id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard([*self._waiting, *self._pending])

    def _next(self) -> Iterator[Outcome]:
        match next(self._results, None):
            case None:
                raise RuntimeError(f"workers: expected a result for each point, got {len(self._pending)} too few")
            case (int(id), Reply() as reply):
                if id in self._pending:
                    self._pending.remove(id)
                    yield Outcome(id, *reply)
            case other:
                raise TypeError(f"workers: expected a callable like map, got {self._map!r}, which returned {other!r}")


def _numbered(call: Callable[[Any], Reply], item: tuple[int, Any]) -> tuple[int, Reply]:
    """Evaluate one item; with the id, results may arrive in any order (`imap_unordered`)."""
    return item[0], call(item[1])
