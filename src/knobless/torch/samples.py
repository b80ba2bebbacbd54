"""The samples of an iteration: drawn, evaluated and summed, in chunks of bounded size.

`StoredSamples` keeps the points of an iteration. `RedrawnSamples` keeps none, for `Separable`
objectives: a tile of points exists only while its contribution is computed, and is drawn again for
the gradient. Both use the words of the same stream, so they draw the same points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from .families import TensorFamily
from .separable import Separable
from .uniforms import tensor_uniforms

EVALUATED_AT_ONCE = 2**22  # entries of points
# On a CPU: each needs some tens of bytes meanwhile, which should stay in its cache
DRAWN_AT_ONCE = 2**17


class Samples(Protocol):
    """Protocol of the samples of an iteration, with trials along the first dimension."""

    def evaluate(self, theta: Tensor, drawn: Tensor, rows: int) -> Tensor:
        """Draw points from θ after those drawn before; return their values, [trials, rows]."""

    def average(self, share: Tensor) -> Tensor:
        """Return Σ share_i T(x_i) over these points, [trials, parameters]."""

    def point(self, row: Tensor) -> Tensor:
        """Return one of these points for each trial."""


class StoredSamples:
    """Points that are stored, for any objective, which gets rows of them."""

    def __init__(
        self,
        fun: Callable[[Tensor], Tensor],
        family: TensorFamily,
        key: Tensor,
        words: int,
    ) -> None:
        self._fun = fun
        self._family = family
        self._key = key
        self._words = words
        self._points: list[Tensor] = []
        # Of a chunk that is evaluated
        self._size = rows_of(EVALUATED_AT_ONCE, words * len(key))
        self._block = (
            rows_of(DRAWN_AT_ONCE, words * len(key))
            if key.device.type == "cpu"
            else self._size
        )

    def evaluate(self, theta: Tensor, drawn: Tensor, rows: int) -> Tensor:
        self._points = [
            self._draw(theta, drawn + start, k)
            for start, k in parts(rows, self._size)
        ]
        return in_one(
            [self._fun(x.flatten(0, 1)).view(x.shape[:2]) for x in self._points]
        )

    def _draw(self, theta: Tensor, drawn: Tensor, rows: int) -> Tensor:
        blocks = parts(rows, self._block)
        drawn_blocks = (
            tensor_uniforms(self._key, drawn + start, k, self._words)
            for start, k in blocks
        )
        return in_one([self._family.draw(theta, u) for u in drawn_blocks])

    def average(self, share: Tensor) -> Tensor:
        total = None
        for x, (first, rows) in zip(
            self._points, parts(share.shape[1], self._size), strict=True
        ):
            for start, k in parts(rows, self._block):
                part = self._family.average(
                    share[:, first + start : first + start + k],
                    x[:, start : start + k],
                )
                total = part if total is None else total.add_(part)
        return share if total is None else total

    def point(self, row: Tensor) -> Tensor:
        trials = torch.arange(len(row), device=row.device)
        if len(self._points) == 1:
            return self._points[0][trials, row]
        rows = [
            x[trials, (row - i * self._size).clamp(0, x.shape[1] - 1)]
            for i, x in enumerate(self._points)
        ]
        return torch.stack(rows)[row // self._size, trials]


class RedrawnSamples:
    """Points that are drawn tile by tile as often as needed, for `Separable` objectives."""

    def __init__(
        self,
        fun: Separable,
        sign: float,
        family: TensorFamily,
        key: Tensor,
        words: int,
    ) -> None:
        self._fun = fun
        self._sign = sign
        self._family = family
        self._key = key
        self._words = words
        self._tiles = fun.columns(words)
        widest = max(tile.stop - tile.start for tile in self._tiles)
        at_once = (
            DRAWN_AT_ONCE if key.device.type == "cpu" else EVALUATED_AT_ONCE
        )
        self._size = rows_of(at_once, widest * len(key))
        self._theta, self._drawn = key, key  # of the current iteration

    def evaluate(self, theta: Tensor, drawn: Tensor, rows: int) -> Tensor:
        self._theta, self._drawn = theta, drawn
        sums = theta.new_zeros(len(theta), rows)
        for tile in self._tiles:
            for start, k in parts(rows, self._size):
                x = self._draw(start, k, tile)
                sums[:, start : start + k] += self._fun.contribution(
                    x.flatten(0, 1), tile
                ).view(x.shape[:2])
        return self._sign * self._fun.values(sums.flatten()).view(sums.shape)

    def average(self, share: Tensor) -> Tensor:
        total = torch.zeros_like(self._theta)
        for tile in self._tiles:
            for start, k in parts(share.shape[1], self._size):
                total[:, tile] += self._family.average(
                    share[:, start : start + k], self._draw(start, k, tile)
                )
        return total

    def point(self, row: Tensor) -> Tensor:
        u = tensor_uniforms(self._key, self._drawn + row, 1, self._words)
        return self._family.draw(self._theta, u)[:, 0]

    def _draw(self, start: int, rows: int, tile: slice) -> Tensor:
        u = tensor_uniforms(
            self._key,
            self._drawn + start,
            rows,
            self._words,
            tile.start,
            tile.stop,
        )
        return self._family.draw(self._theta[:, tile], u)


def rows_of(entries: int, width: int) -> int:
    """Return the number of rows that have this many entries, at least one."""
    return max(1, entries // width)


def parts(rows: int, size: int) -> list[tuple[int, int]]:
    """Return the start and the length of the parts of so many rows."""
    return [(start, min(size, rows - start)) for start in range(0, rows, size)]


def in_one(parts: list[Tensor]) -> Tensor:
    """Return tensors concatenated along the rows."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
