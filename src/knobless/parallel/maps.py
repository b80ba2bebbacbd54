"""A pool on a map-like callable: the built-in `map`, `multiprocessing.Pool.imap` and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Self

from .evaluation import LOST, Outcome, Reply
from .sending import Sent

UNLIMITED = 1_000_000  # the capacity of workers whose number is not known


class Map:
    """Passes all waiting points to the map in one call.

    A list is taken whole, an iterator result by result.
    """

    capacity = UNLIMITED

    def __init__(
        self,
        map: Callable[..., Iterable[Any]],
        fun: Sent,
        call: Callable[[Sent], Reply],
    ) -> None:
        self._map = map
        self._fun = fun
        self._call = partial(_numbered, call)
        self._waiting: dict[int, Any] = {}
        self._items: list[tuple[int, Sent]] = []
        self._results: Iterator[Any] = iter(())
        # Candidates whose results are still to come from `_results`
        self._pending: set[int] = set()

    def submit(self, candidates: Iterable[tuple[int, Any]]) -> None:
        self._waiting.update(candidates)

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        # What has arrived was returned before
        if timeout is not None and timeout <= 0:
            return []
        arrived: list[Outcome] = []
        whole = False
        while not arrived and self._waiting.keys() | self._pending:
            if not self._pending:
                whole = self._begin()
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

    def _begin(self) -> bool:
        """Pass all that waits to the map; return whether it has returned all results at once."""
        self._items = [(id, Sent("x", x)) for id, x in self._waiting.items()]
        try:
            results = self._map(self._call, self._items)
            self._results = iter(results)
        except Exception as error:
            raise self._failure(error) from error
        self._pending = set(self._waiting)
        self._waiting = {}
        return isinstance(results, list)

    def _next(self) -> Iterator[Outcome]:
        try:
            result = next(self._results, None)
        except Exception as error:
            raise self._failure(error) from error
        match result:
            case None:
                raise RuntimeError(
                    f"workers: expected a result for each point, got {len(self._pending)} too few"
                )
            case (int(id), Reply() as reply):
                if id in self._pending:
                    self._pending.remove(id)
                    yield Outcome(id, *reply)
            case other:
                raise TypeError(
                    f"workers: expected a callable like map, got {self._map!r}, which returned "
                    f"{other!r}"
                )

    def _failure(self, error: Exception) -> Exception:
        """Return what an exception of the map means; those of the objective do not arrive here."""
        for sent in (self._fun, *(x for _, x in self._items)):
            if sent.error:
                return sent.error
        # It takes other arguments, or returns nothing to iterate over
        if isinstance(error, TypeError):
            return TypeError(
                f"workers: expected a callable like map, got {self._map!r}, which raised {error!r}"
            )
        return RuntimeError(f"workers: {self._map!r} raised {error!r}. {LOST}")


def _numbered(
    call: Callable[[Sent], Reply], item: tuple[int, Sent]
) -> tuple[int, Reply]:
    """Evaluate one item; with the id, results may arrive in any order (`imap_unordered`)."""
    return item[0], call(item[1])
