"""Families of bits and choices in tensors, with independent trials along the first dimension.

Parameters have the shape [trials, parameters], points [trials, points, variables]; layouts, margins
and thresholds are those of `knobless.core.families`. There are no branches on data, so all
operations can be recorded in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from knobless.core.families import Bernoulli, Categorical, Family, Product
from knobless.space.space import Space
from knobless.space.variables import Binary, Choice


class TensorFamily(Protocol):
    """Protocol of families in tensors, as `knobless.core.families.Family` in arrays."""

    def draw(self, theta: Tensor, u: Tensor) -> Tensor:
        """Return the points under θ for the 32-bit uniforms u."""

    def average(self, share: Tensor, x: Tensor) -> Tensor:
        """Return Σ share_i T(x_i) over the points of each trial."""

    def whiten(self, theta: Tensor, v: Tensor) -> Tensor:
        """Return G(θ)^½ v for a square root of the Fisher matrix."""

    def move(self, theta: Tensor, step: Tensor) -> Tensor:
        """Return θ + step, projected into the margins."""

    def mode(self, theta: Tensor) -> Tensor:
        """Return the most probable point of each trial."""

    def entropy(self, theta: Tensor) -> Tensor:
        """Return the entropy of each trial in nats."""


class TensorBits:
    """`knobless.core.families.Bernoulli` in tensors."""

    def __init__(self, family: Bernoulli) -> None:
        self.margin = family.margin

    def draw(self, theta: Tensor, u: Tensor) -> Tensor:
        return (u < tensor_threshold(theta)[:, None]).to(torch.int8)

    def average(self, share: Tensor, x: Tensor) -> Tensor:
        return (share[..., None] * x).sum(1)

    def whiten(self, theta: Tensor, v: Tensor) -> Tensor:
        return v / (theta * (1.0 - theta)).sqrt()

    def move(self, theta: Tensor, step: Tensor) -> Tensor:
        return (theta + step).clamp(self.margin, 1.0 - self.margin)

    def mode(self, theta: Tensor) -> Tensor:
        return (theta >= 0.5).to(torch.int8)

    def entropy(self, theta: Tensor) -> Tensor:
        return -(theta * theta.log() + (1.0 - theta) * (-theta).log1p()).sum(-1)


class Choices:
    """`knobless.core.families.Categorical` in tensors."""

    def __init__(self, family: Categorical) -> None:
        self.n = family.n
        self.k = family.k
        self.margin = family.margin
        self._dtype = torch.int8 if family.k <= 2**7 else torch.int16

    def draw(self, theta: Tensor, u: Tensor) -> Tensor:
        tails = self._each(theta).flip(-1)[..., :-1].cumsum(-1)
        below = (
            u[..., None]
            < tensor_threshold(tails.clamp(max=1.0 - self.margin))[:, None]
        )
        return below.sum(-1).to(self._dtype)

    def average(self, share: Tensor, x: Tensor) -> Tensor:
        options = torch.arange(self.k, device=x.device)
        return (
            (share[..., None, None] * (x[..., None] == options))
            .sum(1)
            .flatten(1)
        )

    def whiten(self, theta: Tensor, v: Tensor) -> Tensor:
        root = self._each(theta).sqrt()
        u = self._each(v) / root
        normal = root + self.k**-0.5  # of the Householder reflection
        scale = (
            (normal * u).sum(-1, keepdim=True)
            * self.k**0.5
            / normal.sum(-1, keepdim=True)
        )
        return (u - scale * normal).flatten(1)

    def move(self, theta: Tensor, step: Tensor) -> Tensor:
        moved = self._each(theta + step)
        low = (moved < self.margin).any(-1, keepdim=True)
        raised = moved.clamp(min=self.margin)
        spare = raised - self.margin
        raised = raised + spare * (
            (1.0 - raised.sum(-1, keepdim=True)) / spare.sum(-1, keepdim=True)
        )
        return torch.where(low, raised.clamp(min=self.margin), moved).flatten(1)

    def mode(self, theta: Tensor) -> Tensor:
        return (self.k - 1 - self._each(theta).flip(-1).argmax(-1)).to(
            self._dtype
        )

    def entropy(self, theta: Tensor) -> Tensor:
        return -(theta * theta.log()).sum(-1)

    def _each(self, theta: Tensor) -> Tensor:
        return theta.view(-1, self.n, self.k)


class SideBySide:
    """`knobless.core.families.Product` in tensors."""

    def __init__(self, family: Product) -> None:
        self.parts = [in_tensors(part) for part in family.parts]
        self._columns = family.part_columns
        self._parameters = family.part_parameters

    def draw(self, theta: Tensor, u: Tensor) -> Tensor:
        located = zip(self.parts, self._parameters, self._columns, strict=True)
        return torch.cat(
            [part.draw(theta[:, p], u[..., c]) for part, p, c in located], -1
        )

    def average(self, share: Tensor, x: Tensor) -> Tensor:
        return self._join(
            [
                part.average(share, x[..., c])
                for part, c in zip(self.parts, self._columns, strict=True)
            ]
        )

    def whiten(self, theta: Tensor, v: Tensor) -> Tensor:
        located = zip(self.parts, self._parameters, strict=True)
        return self._join(
            [part.whiten(theta[:, p], v[:, p]) for part, p in located]
        )

    def move(self, theta: Tensor, step: Tensor) -> Tensor:
        located = zip(self.parts, self._parameters, strict=True)
        return self._join(
            [part.move(theta[:, p], step[:, p]) for part, p in located]
        )

    def mode(self, theta: Tensor) -> Tensor:
        return self._join(
            [
                part.mode(theta[:, p])
                for part, p in zip(self.parts, self._parameters, strict=True)
            ]
        )

    def entropy(self, theta: Tensor) -> Tensor:
        located = zip(self.parts, self._parameters, strict=True)
        return torch.stack(
            [part.entropy(theta[:, p]) for part, p in located]
        ).sum(0)

    @staticmethod
    def _join(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts), -1)


CHOICE_LIMIT = 2**15
_EXPECTED = (
    f"bits and choices alone (of fewer than {CHOICE_LIMIT} options), "
    "none of them conditional"
)


def space_in_tensors(space: Space) -> TensorFamily:
    """Return the family of a space in tensors.

    Raise TypeError with the first variable that it cannot contain.
    """
    for column in space.columns():
        variable = column.variable
        allowed = (
            isinstance(variable, (Binary, Choice))
            and variable.count < CHOICE_LIMIT
        )
        if not (
            column.is_constant
            or (allowed and not (column.conditions and space.is_conditional))
        ):
            shown = (
                "a conditional variable" if allowed else f"{variable!r:.200}"
            )
            raise TypeError(
                f"space: expected {_EXPECTED}, got "
                f"{shown}{f' for {column.name}' if column.name else ''}"
            )
    return in_tensors(space.family)


def in_tensors(family: Family) -> TensorFamily:
    """Return the family in tensors.

    Parameters
    ----------
    family : Family
        A family of bits and choices of fewer than 2**15 options.

    Raises
    ------
    TypeError
        If the family contains anything else.
    """
    if isinstance(family, Bernoulli):
        return TensorBits(family)
    if isinstance(family, Categorical) and family.k < CHOICE_LIMIT:
        return Choices(family)
    if isinstance(family, Product):
        return SideBySide(family)
    raise TypeError(f"space: expected {_EXPECTED}, got {type(family).__name__}")


def tensor_threshold(p: Tensor) -> Tensor:
    """Return the 32-bit threshold below which a uniform integer falls with probability p."""
    return (p.double() * 4294967296.0).to(torch.int64)
