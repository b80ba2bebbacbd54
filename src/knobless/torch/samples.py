"""The samples of an iteration: drawn, evaluated, and summed with weights, in chunks of bounded size.

`StoredSamples` keeps the points of an iteration. `RedrawnSamples` keeps none, for `Separable` objectives: a tile of
points exists only while its contribution is computed, and is drawn again for the gradient. Both use the words of the
same stream, so they draw the same points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from .families import TensorFamily
from .separable import Separable
from .uniforms import tensor_uniforms

DRAWN_AT_ONCE = 2**22  # entries of points that are drawn at once; each needs some tens of bytes meanwhile


class Samples(Protocol):
    """Protocol of the samples of an iteration, with independent trials along the first dimension."""

    def evaluate(self, theta: Tensor, drawn: Tensor, rows: int) -> Tensor:
        """Draw points from θ after those drawn before; return their values, [trials, rows]."""

    def average(self, share: Tensor) -> Tensor:
        """Return Σ share_i T(x_i) over these points, [trials, parameters]."""

    def point(self, row: Tensor) -> Tensor:
        """Return one of these points for each trial."""


class StoredSamples:
    """Points that are stored, for any objective, which gets rows of them."""

    def __init__(self, fun: Callable[[Tensor], Tensor], family: TensorFamily, key: Tensor, words: int) -> None:
        self._fun, self._family, self._key, self._words = fun, family, key, words
        self._points: list[Tensor] = []
        self._size = max(1, DRAWN_AT_ONCE // (words * len(key)))  # rows of a chunk

    def evaluate(self, theta: Tensor, drawn: Tensor, rows: int) -> Tensor:
        self._points, values = [], []
        for start in range(0, rows, self._size):
            k = min(self._size, rows - start)
            x = self._family.draw(theta, tensor_uniforms(self._key, drawn + start, k, self._words))
            self._points.append(x)
            values.append(self._fun(x.flatten(0, 1)).view(len(theta), k))
        return values[0] if len(values) == 1 else torch.cat(values, 1)

    def average(self, share: Tensor) -> Tensor:
        chunks = zip(torch.split(share, self._size, 1), self._points, strict=True)
        first, *others = (self._family.average(part, x) for part, x in chunks)
        return sum(others, start=first)

    def point(self, row: Tensor) -> Tensor:
        each = torch.arange(len(row), device=row.device)
        if len(self._points) == 1:
            return self._points[0][each, row]
        found = [x[each, (row - i * self._size).clamp(0, x.shape[1] - 1)] for i, x in enumerate(self._points)]
        return torch.stack(found)[row // self._size, each]


class RedrawnSamples:
    """Points that are drawn tile by tile and as often as needed, for `Separable` objectives of bits."""

    def __init__(self, fun: Separable, sign: float, family: TensorFamily, key: Tensor, words: int) -> None:
        self._fun, self._sign, self._family, self._key, self._words = fun, sign, family, key, words
        self._tiles = fun.columns(words)
        widest = max(tile.stop - tile.start for tile in self._tiles)
        self._size = max(1, DRAWN_AT_ONCE // (widest * len(key)))
        self._theta, self._drawn = key, key  # of the current iteration

    def evaluate(self, theta: Tensor, drawn: Tensor, rows: int) -> Tensor:
        self._theta, self._drawn = theta, drawn
        sums = theta.new_zeros(len(theta), rows)
        for tile in self._tiles:
            for start in range(0, rows, self._size):
                x = self._draw(start, min(rows, start + self._size), tile)
                found = self._fun.contribution(x.flatten(0, 1), tile)
                sums[:, start : start + self._size] += found.view(x.shape[:2])
        return self._sign * self._fun.values(sums.flatten()).view(sums.shape)

    def average(self, share: Tensor) -> Tensor:
        total = torch.zeros_like(self._theta)
        for tile in self._tiles:
            for start in range(0, share.shape[1], self._size):
                part = share[:, start : start + self._size]
                x = self._draw(start, start + part.shape[1], tile)
                total[:, tile] += self._family.average(part, x)
        return total

    def point(self, row: Tensor) -> Tensor:
        u = tensor_uniforms(self._key, self._drawn + row, 1, self._words)
        return self._family.draw(self._theta, u)[:, 0]

    def _draw(self, start: int, stop: int, tile: slice) -> Tensor:
        u = tensor_uniforms(self._key, self._drawn + start, stop - start, self._words, tile)
        return self._family.draw(self._theta[:, tile], u)
