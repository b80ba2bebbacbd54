"""Codes as bytes, for files: eight bits to a byte, an option in as many bytes as its index needs, a latent
number in eight. Little-endian, so that a file may move to another machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knobless.core.families import Bernoulli, Categorical, Product, slices
from knobless.core.types import Points

from .space import Space


class Packing:
    """How the codes of a space are packed; `width` bytes each."""

    def __init__(self, space: Space) -> None:
        family: Any = space.family
        self._parts: tuple[Any, ...] = family.parts if isinstance(family, Product) else (family,)
        self._columns = slices(part.variables for part in self._parts)
        self._dtype = family.mode(family.initial()).dtype
        self._widths = [_width(part) for part in self._parts]
        self.width = sum(self._widths)

    def pack(self, codes: Points) -> bytes:
        """The rows, one after the other."""
        each = [_packed(part, codes[:, c]) for part, c in zip(self._parts, self._columns, strict=True)]
        return (each[0] if len(each) == 1 else np.concatenate(each, axis=1)).tobytes()

    def rows(self, codes: Points) -> list[bytes]:
        """The rows, each."""
        data, width = self.pack(codes), self.width
        return [data[i : i + width] for i in range(0, len(data), width)]

    def unpack(self, data: bytes) -> Points:
        """The rows that `pack` packed; ValueError for what cannot be."""
        if len(data) % self.width:
            raise ValueError(f"expected {self.width} bytes for each point, got {len(data)} in all")
        rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, self.width)
        codes = np.empty((len(rows), self._columns[-1].stop), dtype=self._dtype)
        for part, columns, where in zip(self._parts, self._columns, slices(self._widths), strict=True):
            codes[:, columns] = _unpacked(part, rows[:, where])
        return codes


def _dtype(part: Any) -> str:
    if isinstance(part, Categorical):
        return "<u1" if part.k <= 2**8 else "<u2" if part.k <= 2**16 else "<u4"
    return "<f8"


def _width(part: Any) -> int:
    if isinstance(part, Bernoulli):
        return (part.n + 7) // 8
    return int(part.variables) * np.dtype(_dtype(part)).itemsize


def _packed(part: Any, codes: Points) -> NDArray[np.uint8]:
    if isinstance(part, Bernoulli):
        return np.packbits(codes.astype(np.bool_), axis=1)
    return np.ascontiguousarray(codes, dtype=_dtype(part)).view(np.uint8)


def _unpacked(part: Any, rows: NDArray[np.uint8]) -> NDArray[Any]:
    if isinstance(part, Bernoulli):
        return np.unpackbits(rows, axis=1, count=part.n)
    codes = np.ascontiguousarray(rows).view(_dtype(part))
    if isinstance(part, Categorical):
        if (codes >= part.k).any():
            raise ValueError(f"expected options 0 to {part.k - 1}, got {codes.max()}")
    elif not np.isfinite(codes).all():
        raise ValueError("expected finite numbers")
    return codes
