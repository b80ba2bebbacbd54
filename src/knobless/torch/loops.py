"""Joint training of weights and architecture: the two procedures of the paper's appendix.

`network(x, mask)` is any module or function of an input and an architecture, a row of
`ArchitectureSearch.ask`. `callback` is called after each update, and hooks of the optimizer
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

from .search import ArchitectureSearch, most_samples

Loss = Callable[[Any, Any], Tensor]
Callback = Callable[[int, Tensor], object]


def train_epsilon(
    network: Callable[[Any, Tensor], Any],
    search: ArchitectureSearch,
    optimizer: torch.optim.Optimizer,
    loader: Iterable[tuple[Any, Any]],
    updates: int,
    loss: Loss = nn.functional.cross_entropy,
    callback: Callback | None = None,
) -> None:
    """Train with PBIL-ε: evaluate two architectures on one mini-batch, update W, then update θ.

    Parameters
    ----------
    network : Callable
        Module or function that is called as `network(x, mask)`.
    search : ArchitectureSearch
        Search over the architectures. Its algorithm has a fixed λ, as `pbil_epsilon(space)` and
        `cga(space)`.
    optimizer : torch.optim.Optimizer
        Optimizer of the weights W.
    loader : Iterable
        Mini-batches `(x, y)`. It is iterated over as often as needed.
    updates : int
        Number of updates of the weights.
    loss : Callable, default=torch.nn.functional.cross_entropy
        Called as `loss(output, y)`.
    callback : Callable, optional
        Called as `callback(update, losses)` after each update. It may raise `StopIteration` to end
        the training.
    """
    lam = most_samples(search.algorithm.adaptation)
    if lam != search.algorithm.lam(search.algorithm.init()):
        raise ValueError(
            "search: expected an algorithm whose λ is fixed, got one that adapts it; use "
            "train_lambda"
        )
    # a mini-batch Z
    for T, (x, y) in enumerate(mini_batches(loader, updates), 1):
        masks = search.ask(lam)  # M_1 and M_2
        losses = torch.stack([loss(network(x, mask), y) for mask in masks])
        update(optimizer, losses.mean())  # the mean of the gradients
        search.tell(masks, losses.detach())
        if stops(callback, T, losses.detach()):
            return


def train_lambda(
    network: Callable[[Any, Tensor], Any],
    search: ArchitectureSearch,
    optimizer: torch.optim.Optimizer,
    loader: Iterable[tuple[Any, Any]],
    updates: int,
    loss: Loss = nn.functional.cross_entropy,
    callback: Callback | None = None,
) -> None:
    """Train with PBIL-λ: a mini-batch and an update of W per architecture, then θ after λ.

    Parameters
    ----------
    network : Callable
        Module or function that is called as `network(x, mask)`.
    search : ArchitectureSearch
        Search over the architectures. Its algorithm adapts λ, as `pbil_lambda(space)`.
    optimizer : torch.optim.Optimizer
        Optimizer of the weights W.
    loader : Iterable
        Mini-batches `(x, y)`. It is iterated over as often as needed.
    updates : int
        Number of updates of the weights.
    loss : Callable, default=torch.nn.functional.cross_entropy
        Called as `loss(output, y)`.
    callback : Callable, optional
        Called as `callback(update, losses)` after each update. It may raise `StopIteration` to end
        the training.
    """
    if getattr(search.algorithm.adaptation, "spend", None) is not samples:
        raise ValueError(
            "search: expected an algorithm that adapts λ, got one that does not; use train_epsilon"
        )
    # a mini-batch Z_i
    for T, (x, y) in enumerate(mini_batches(loader, updates), 1):
        masks = search.ask()  # M_i
        losses = loss(network(x, masks[0]), y)[None]
        update(optimizer, losses.sum())
        search.tell(masks, losses.detach())
        if stops(callback, T, losses.detach()):
            return


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Update W."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def mini_batches(
    loader: Iterable[tuple[Any, Any]], count: int
) -> Iterator[tuple[Any, Any]]:
    """Return `count` mini-batches, from as many passes over the loader as needed."""
    return islice(_passes(loader), positive_int("updates", count))


def _passes(loader: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    while True:
        batch = None
        for batch in loader:
            yield batch
        if batch is None:
            raise ValueError(
                "loader: expected mini-batches (x, y) in every pass over it, got none"
            )


def stops(callback: Callback | None, T: int, losses: Tensor) -> bool:
    """Call the callback; return whether it has raised StopIteration."""
    try:
        if callback is not None:
            callback(T, losses)
    except StopIteration:
        return True
    return False
