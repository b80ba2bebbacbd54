"""The random numbers of `knobless.core.rng` in tensors: the same words for a key and a counter."""

from __future__ import annotations

import torch
from torch import Tensor

from knobless.core.rng import FIRST, GOLDEN, SECOND

# As signed integers
_GOLDEN, _FIRST, _SECOND = (
    int(word) - 2**64 for word in (GOLDEN, FIRST, SECOND)
)


def tensor_uniforms(
    key: Tensor,
    drawn: Tensor,
    k: int,
    words: int,
    start: int = 0,
    stop: int | None = None,
) -> Tensor:
    """Return rows of `Stream.uniforms`, [trials, k, words].

    Parameters
    ----------
    key : torch.Tensor
        Key of the stream of each trial.
    drawn : torch.Tensor
        Number of rows that each trial has drawn.
    k : int
        Number of rows that follow these.
    words : int
        Number of uniforms in a row.
    start, stop : int, optional
        The first column to return, and that after the last; all by default.
    """
    half = (words + 1) // 2
    stop = words if stop is None else stop
    row = drawn[:, None] + torch.arange(k, device=drawn.device)
    place = row[..., None] * half + torch.arange(
        start // 2 + 1, (stop + 1) // 2 + 1, device=drawn.device
    )
    z = key[:, None, None] + place * _GOLDEN
    z ^= _shifted(z, 30)
    z *= _FIRST
    z ^= _shifted(z, 27)
    z *= _SECOND
    z ^= _shifted(z, 31)
    low = z & 0xFFFFFFFF
    high = _shifted(z, 32)
    return torch.stack((low, high), dim=-1).flatten(-2)[
        ..., start % 2 : start % 2 + stop - start
    ]


def _shifted(z: Tensor, bits: int) -> Tensor:
    """Return a logical right shift, which torch does not have for signed integers."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)
