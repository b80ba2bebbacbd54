"""Weights and architecture trained together: the two procedures of the paper's appendix, to call or to copy.

`network(x, mask)` is any module that takes an architecture (a row that `Search.ask` gave) beside its input. What
happens around an update is the caller's: `callback` is called after each one, and an optimizer's own hooks
(`register_step_pre_hook`) can clip gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from knobless._checks import positive_int
from knobless.core.adaptation import samples

from .search import Search, most_samples

Loss = Callable[[Any, Any], Tensor]
Callback = Callable[[int, Tensor], object]


def train_epsilon(
    network: nn.Module,
    search: Search,
    optimizer: torch.optim.Optimizer,
    loader: Iterable[tuple[Any, Any]],
    updates: int,
    loss: Loss = nn.functional.cross_entropy,
    callback: Callback | None = None,
) -> None:
    """Simultaneous optimization using PBIL-ε: two architectures on one mini-batch, then W, then θ.

    For `pbil_epsilon(space)`, `cga(space)`, and others whose λ is fixed. The loader is gone through as often as
    `updates` of W need; `callback(T, losses)` may raise StopIteration to end earlier.
    """
    lam = most_samples(search.algorithm.adaptation)
    if lam != search.algorithm.lam(search.algorithm.init()):
        raise ValueError("search: expected an algorithm whose λ is fixed, got one that adapts it; use train_lambda")
    for T, (x, y) in enumerate(mini_batches(loader, updates), 1):  # a mini-batch Z
        masks = search.ask(lam)  # M_1 and M_2
        losses = torch.stack([loss(network(x, mask), y) for mask in masks])
        update(optimizer, losses.mean())  # the mean of the gradients
        search.tell(masks, losses.detach())
        if ends(callback, T, losses.detach()):
            return


def train_lambda(
    network: nn.Module,
    search: Search,
    optimizer: torch.optim.Optimizer,
    loader: Iterable[tuple[Any, Any]],
    updates: int,
    loss: Loss = nn.functional.cross_entropy,
    callback: Callback | None = None,
) -> None:
    """Simultaneous optimization using PBIL-λ: a mini-batch and an update of W per architecture, θ after λ of them.

    `Search` counts to λ by itself. The loader and `callback` are as in `train_epsilon`.
    """
    if getattr(search.algorithm.adaptation, "spend", None) is not samples:
        raise ValueError("search: expected an algorithm that adapts λ, got one that does not; use train_epsilon")
    for T, (x, y) in enumerate(mini_batches(loader, updates), 1):  # a mini-batch Z_i
        masks = search.ask()  # M_i
        losses = loss(network(x, masks[0]), y)[None]
        update(optimizer, losses.sum())
        search.tell(masks, losses.detach())
        if ends(callback, T, losses.detach()):
            return


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One update of W."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def mini_batches(loader: Iterable[tuple[Any, Any]], count: int) -> Iterator[tuple[Any, Any]]:
    """So many mini-batches, from as many passes over the loader as it takes."""
    return islice(_passes(loader), positive_int("updates", count))


def _passes(loader: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    while True:
        batch = None
        for batch in loader:
            yield batch
        if batch is None:
            raise ValueError("loader: expected mini-batches (x, y) in every pass over it, got none")


def ends(callback: Callback | None, T: int, losses: Tensor) -> bool:
    """Calls it; whether it asked to stop."""
    try:
        if callback is not None:
            callback(T, losses)
    except StopIteration:
        return True
    return False
