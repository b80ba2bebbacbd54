"""The two networks of the paper, written for R trainings at once: every tensor begins with the dimension of trials.

A network is a value: `parameters` makes the weights of a trial, `logits` runs the A architectures of every trial on
its mini-batch (x [R, B, pixels], masks [R, A, n]), and `backprop` goes back as well, by hand: autograd would keep and
move about twice as much. What it returns are the factors of the gradients: a matrix's gradient is HᵀG, with H the input
of the layer and G the gradient of its output, one row per example, and that of a bias is the sum of the rows of G.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Protocol

import torch
from torch import Tensor

from . import kernels

Weights = Sequence[Tensor]  # W and b, layer by layer
Factors = list[tuple[Tensor, Tensor]]  # H and G, layer by layer


class Network(Protocol):
    """Interface of a network for training."""

    @property
    def n(self) -> int:
        """Architecture bits."""

    def parameters(self, generator: torch.Generator) -> list[Tensor]:
        """Return the weights of one trial: LeCun-normal matrices, zero biases."""

    def logits(self, W: Weights, x: Tensor, masks: Tensor) -> Tensor:
        """Return the logits of all architectures of all trials, [R, A, B, classes]."""

    def backprop(self, W: Weights, x: Tensor, y: Tensor, masks: Tensor) -> tuple[Tensor, Factors]:
        """Return the losses [R, A], and the factors of the gradient of their mean over A."""


@dataclass(frozen=True)
class LayerNetwork:
    """Experiment I: X ← X + m·H(X) through `n` layers that can be switched off, after one that cannot.

    Without `skip` it is X ← (1 − m)·X + m·H(X), which the paper calls less stable.
    """

    pixels: int = 784
    units: int = 128
    n: int = 31
    classes: int = 10
    skip: bool = True

    def parameters(self, generator: torch.Generator) -> list[Tensor]:
        shapes = [(self.pixels, self.units), (self.n, self.units, self.units), (self.units, self.classes)]
        return _lecun_normal(shapes, generator)

    def logits(self, W: Weights, x: Tensor, masks: Tensor) -> Tensor:
        first, b_first, hidden, b_hidden, last, b_last = W
        archs = masks.shape[1]
        X = repeated(dense(x, first, b_first).relu(), archs)
        keep, m = self._gates(masks, X)
        for k in range(self.n):
            H = dense(X, hidden[:, k], b_hidden[:, k]).relu()
            X = rows(keep[..., k], X) * X + rows(m[..., k], X) * H
        return apart(dense(X, last, b_last), archs)

    def backprop(self, W: Weights, x: Tensor, y: Tensor, masks: Tensor) -> tuple[Tensor, Factors]:
        first, b_first, hidden, b_hidden, last, b_last = W
        archs = masks.shape[1]
        X = dense(x, first, b_first).relu()
        keep, m = self._gates(masks, X)
        out, passed = kernels.stack_forward(repeated(X, archs), hidden, b_hidden, keep, m)
        losses, G = cross_entropy(dense(out, last, b_last), y, archs)
        G_in, GZ = kernels.stack_backward(G @ last.mT, hidden, b_hidden, keep, m, passed)
        G_first = torch.where(X > 0, apart(G_in, archs).sum(1), 0.0)
        return losses, [(x, G_first), (passed, GZ), (out, G)]

    def _gates(self, masks: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        m = masks.to(X.dtype)
        return torch.ones_like(m) if self.skip else 1.0 - m, m


@dataclass(frozen=True)
class ActivationNetwork:
    """Experiment II: one bit per hidden unit selects tanh (0) or ReLU (1)."""

    pixels: int = 784
    units: int = 1024
    depth: int = 3
    classes: int = 10

    @property
    def n(self) -> int:
        return self.depth * self.units

    def parameters(self, generator: torch.Generator) -> list[Tensor]:
        sizes = [self.pixels, *[self.units] * self.depth, self.classes]
        return _lecun_normal(list(pairwise(sizes)), generator)

    def logits(self, W: Weights, x: Tensor, masks: Tensor) -> Tensor:
        inputs, _ = self._forward(W, x, masks)
        return apart(dense(inputs[-1], W[-2], W[-1]), masks.shape[1])

    def backprop(self, W: Weights, x: Tensor, y: Tensor, masks: Tensor) -> tuple[Tensor, Factors]:
        archs = masks.shape[1]
        inputs, relu = self._forward(W, x, masks)
        losses, G = cross_entropy(dense(inputs[-1], W[-2], W[-1]), y, archs)
        factors = [(inputs[-1], G)]
        for k in reversed(range(self.depth)):
            H = apart(inputs[k + 1], archs)
            slope = torch.where(relu[k], (H > 0).to(H.dtype), 1.0 - H * H)
            G = (G @ W[2 * k + 2].mT) * slope.flatten(1, 2)
            factors.append((inputs[k], G if k else apart(G, archs).sum(1)))
        return losses, factors[::-1]

    def _forward(self, W: Weights, x: Tensor, masks: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return the input of each layer, and which units are ReLU."""
        gates = [m[:, :, None] for m in masks.chunk(self.depth, -1)]
        inputs, relu = [x], [gate != 0 for gate in gates]
        for k, (gate, chosen) in enumerate(zip(gates, relu, strict=True)):
            Z = dense(inputs[-1], W[2 * k], W[2 * k + 1])
            # Up to the first activation all architectures do the same: it is done once.
            Z = apart(Z, masks.shape[1]) if k else Z[:, None]
            if gate.is_floating_point():  # to be differentiated
                H = gate * Z.relu() + (1.0 - gate) * Z.tanh()
            else:
                H = torch.where(chosen, Z.relu(), Z.tanh())
            inputs.append(H.flatten(1, 2))
        return inputs, relu


def dense(x: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """x W + b in every trial."""
    return x @ W + b[:, None]


def repeated(X: Tensor, archs: int) -> Tensor:
    """Repeat the rows for each architecture."""
    return X[:, None].expand(-1, archs, -1, -1).flatten(1, 2)


def apart(X: Tensor, archs: int) -> Tensor:
    """[R, A·B, …] as [R, A, B, …]."""
    return X.view(len(X), archs, -1, X.shape[-1])


def rows(per_arch: Tensor, X: Tensor) -> Tensor:
    """Repeat a number per architecture for each of its rows in X."""
    return per_arch.repeat_interleave(X.shape[1] // per_arch.shape[1], 1)[..., None]


def cross_entropy(logits: Tensor, y: Tensor, archs: int) -> tuple[Tensor, Tensor]:
    """Return the mean loss of each architecture [R, A], and the gradient of the mean over architectures."""
    logs = logits.log_softmax(-1)
    right = torch.nn.functional.one_hot(y, logits.shape[-1]).to(logits.dtype).repeat(1, archs, 1)
    losses = -apart((logs * right).sum(-1, keepdim=True), archs).mean((-2, -1))
    return losses, (logs.exp() - right) / logits.shape[1]


def _lecun_normal(shapes: Sequence[tuple[int, ...]], generator: torch.Generator) -> list[Tensor]:
    weights = []
    for shape in shapes:
        weights.append(torch.randn(shape, generator=generator) / sqrt(shape[-2]))
        weights.append(torch.zeros(*shape[:-2], shape[-1]))
    return weights
