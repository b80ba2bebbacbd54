"""Other estimators of the gradient with respect to architecture bits, for comparison: what is used instead of PBIL.

The bits have logits φ, which Adam updates in every step with an estimate of the gradient of the expected loss.
`GumbelStraightThrough` and `HardConcrete` differentiate the loss with respect to the bits; `LeaveOneOut` needs their
losses alone, as PBIL does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from knobless.torch.data import Data
from knobless.torch.uniforms import tensor_uniforms

from .training import Setting, Training, move_weights

ADAM_RATE, ADAM_DECAYS, ADAM_EPSILON = 0.01, (0.9, 0.999), 1e-8  # the usual decays


class Relaxation(Protocol):
    """Differentiable samples of bits."""

    def sample(self, phi: Tensor, logistic: Tensor) -> Tensor:
        """Return bits for standard logistic noise, differentiable with respect to φ."""

    def final(self, phi: Tensor) -> Tensor:
        """Return the bits at test time."""


@dataclass(frozen=True)
class GumbelStraightThrough:
    """Bits in the forward pass, the gradient of their relaxation in the backward pass (Jang et al., 2017)."""

    temperature: float = 1.0

    def sample(self, phi: Tensor, logistic: Tensor) -> Tensor:
        soft = torch.sigmoid((phi[:, None] + logistic) / self.temperature)
        return (soft > 0.5).to(soft.dtype) + soft - soft.detach()

    def final(self, phi: Tensor) -> Tensor:
        return (phi >= 0.0).to(phi.dtype)


@dataclass(frozen=True)
class HardConcrete:
    """Gates in [0, 1] with mass at both ends (Louizos et al., 2018), without the penalty of the number of gates."""

    temperature: float = 2.0 / 3.0
    low: float = -0.1
    high: float = 1.1

    def sample(self, phi: Tensor, logistic: Tensor) -> Tensor:
        return self._stretched(torch.sigmoid((phi[:, None] + logistic) / self.temperature))

    def final(self, phi: Tensor) -> Tensor:
        return self._stretched(torch.sigmoid(phi))

    def _stretched(self, soft: Tensor) -> Tensor:
        return (soft * (self.high - self.low) + self.low).clamp(0.0, 1.0)


@dataclass(frozen=True)
class LeaveOneOut:
    """REINFORCE: every architecture has the mean loss of the others as its baseline (Kool et al., 2019)."""

    samples: int = 2

    def gradient(self, phi: Tensor, masks: Tensor, losses: Tensor) -> Tensor:
        """Return the estimate of the gradient of the expected loss."""
        baseline = (losses.sum(1, keepdim=True) - losses) / (self.samples - 1)
        deviation = masks.to(phi.dtype) - torch.sigmoid(phi)[:, None]
        return ((losses - baseline)[..., None] * deviation).mean(1)

    def final(self, phi: Tensor) -> Tensor:
        """Return the bits at test time."""
        return (phi >= 0.0).to(phi.dtype)


Estimator = GumbelStraightThrough | HardConcrete | LeaveOneOut
ESTIMATORS: dict[str, Estimator] = {
    "gumbel": GumbelStraightThrough(),
    "hard-concrete": HardConcrete(),
    "reinforce": LeaveOneOut(),
}


class EstimatorTraining(Training):
    """All trials of a setting whose bits have logits φ."""

    def __init__(
        self,
        setting: Setting,
        data: Data,
        trials: Sequence[int],
        updates: int,
        device: str | torch.device = "cpu",
        recorded: bool = True,
    ) -> None:
        super().__init__(setting, data, trials, updates, device, recorded)
        self.estimator = ESTIMATORS[setting.estimator]
        self._loss, self._move = self._ready(self.relaxed_loss), self._ready(move_weights)
        self.phi, self.first, self.second = (
            torch.zeros(len(trials), setting.network.n, device=self.device) for _ in range(3)
        )

    def step(self) -> None:
        """Update W and φ in every trial."""
        x, y = self._mini_batch(self.images, self.labels, self.order, self.T)
        if isinstance(self.estimator, LeaveOneOut):
            u = self.uniforms(self.estimator.samples)
            masks = (u < torch.sigmoid(self.phi)[:, None]).to(torch.int8)
            losses, factors = self._backprop(self.W, x, y, masks)
            gradient = self.estimator.gradient(self.phi, masks, losses)
            self._descend(self.W, self.V, factors, self.rate, self.setting.clip, self.setting.step)
        else:
            *each, gradient = self.differentiate(x, y)
            self._move(self.W, self.V, each, self.rate, self.setting.clip, self.setting.step)
        adam(self.phi, self.first, self.second, gradient, self.T + 1)
        self.T += 1

    def uniforms(self, samples: int) -> Tensor:
        """Return uniform numbers in (0, 1), [R, samples, n]."""
        drawn = self.T.expand(len(self.keys)) * samples
        words = tensor_uniforms(self.blind_keys, drawn, samples, self.setting.network.n)
        return (words.to(torch.float32) + 0.5) * 2.0**-32

    def differentiate(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """Return the gradients of the loss with respect to W and φ."""
        logistic = torch.logit(self.uniforms(1).clamp(1e-6, 1.0 - 1e-6))
        with torch.enable_grad():
            inputs = [each.detach().requires_grad_() for each in (*self.W, self.phi)]
            return list(torch.autograd.grad(self._loss(inputs, logistic, x, y), inputs))

    def relaxed_loss(self, inputs: Sequence[Tensor], logistic: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of the losses of the trials, differentiable with respect to the inputs, W and φ."""
        masks = cast(Relaxation, self.estimator).sample(inputs[-1], logistic)
        logits = self.setting.network.logits(inputs[:-1], x, masks)[:, 0]
        return F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1]

    def final_masks(self) -> Tensor:
        """Return the bits at test time, [R, 1, n]."""
        return self.estimator.final(self.phi)[:, None]

    def records(self) -> list[dict[str, float]]:
        """Return what is recorded of each trial now."""
        ones = (self.phi >= 0.0).sum(-1).tolist()
        return [{**row, "ones": each} for row, each in zip(super().records(), ones, strict=True)]

    def state(self) -> dict[str, Any]:
        """Return all that is needed to resume exactly."""
        return {**super().state(), "logits": [self.phi, self.first, self.second]}

    def load(self, state: dict[str, Any]) -> None:
        """Resume from a state of the same setting and trials."""
        super().load(state)
        for to, source in zip((self.phi, self.first, self.second), state["logits"], strict=True):
            to.copy_(source)


def training_of(
    setting: Setting, data: Data, trials: Sequence[int], updates: int, device: str | torch.device = "cpu"
) -> Training:
    """Return the training of a setting, whichever way its bits are found."""
    return (EstimatorTraining if setting.estimator else Training)(setting, data, trials, updates, device)


def adam(w: Tensor, first: Tensor, second: Tensor, g: Tensor, t: Tensor) -> None:
    """Do one step of Adam in place; `t` is its number, from 1 on."""
    (a, b), steps = ADAM_DECAYS, t.to(w.dtype)
    first.mul_(a).add_(g, alpha=1.0 - a)
    second.mul_(b).addcmul_(g, g, value=1.0 - b)
    w -= ADAM_RATE * (first / (1.0 - a**steps)) / ((second / (1.0 - b**steps)).sqrt() + ADAM_EPSILON)
