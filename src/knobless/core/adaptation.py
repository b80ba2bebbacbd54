"""How much is spent: samples per iteration and length of the step, fixed or kept at a signal-to-noise ratio.

An adaptation carries a signal (the paper's s, γ and λ_r) from iteration to iteration. λ-adaptation and
ε-adaptation are one mechanism: the same λ_r is spent on more `samples` (PBIL-λ) or on smaller `steps`
(PBIL-ε).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

from knobless._checks import positive_int, positive_real

from .types import Array


class Signal(NamedTuple):
    """What an adaptation remembers: the averaged gradient s, its weight γ, and the real-valued λ_r."""

    s: Array
    gamma: float
    lam_r: float


class Adaptation(Protocol):
    """What the loop needs to know of how much to spend."""

    def start(self, zero: Array) -> Signal:
        """Line 1; `zero` is a whitened gradient of length zero."""

    def spend_at(self, signal: Signal) -> tuple[int, float]:
        """λ and ε in force."""

    def step(self, signal: Signal, z: Array, noise: float) -> tuple[float, Signal]:
        """ε for this step and the next signal, from the whitened gradient z and its length under pure noise."""

    def at_least(self, lam: int) -> Self:
        """The same with λ never below `lam`."""


@dataclass(frozen=True)
class Fixed:
    """The same λ and ε in every iteration."""

    lam: int
    eps: float

    def __post_init__(self) -> None:
        positive_int("lam", self.lam, least=2)
        positive_real("eps", self.eps)

    def start(self, zero: Array) -> Signal:
        return Signal(zero, 0.0, float(self.lam))

    def spend_at(self, signal: Signal) -> tuple[int, float]:
        return self.lam, self.eps

    def step(self, signal: Signal, z: Array, noise: float) -> tuple[float, Signal]:
        return self.eps, signal

    def at_least(self, lam: int) -> Self:
        return replace(self, lam=max(self.lam, lam))


def samples(lam_r: float, lam_min: int) -> tuple[int, float]:
    """PBIL-λ: λ_r samples an iteration, steps of full length."""
    return round(lam_r), 1.0


def steps(lam_r: float, lam_min: int) -> tuple[int, float]:
    """PBIL-ε: λ_min samples an iteration, ε and β shorter by the factor λ_min/λ_r."""
    return lam_min, lam_min / lam_r


@dataclass(frozen=True)
class SNR:
    """Lines 12 to 15 of Algorithm 1: λ_r moves so that ‖s‖²/γ, the signal-to-noise ratio, stays near α.

    β, the inverse time horizon of the average s, is ε: the averaging that a small ε does is then seen in
    the ratio. `spend` says what λ_r buys. The ε of a step is the one in force before it.
    """

    eps: float
    lam_max: float
    alpha: float = 1.5
    lam_min: int = 2
    spend: Callable[[float, int], tuple[int, float]] = samples

    def __post_init__(self) -> None:
        if positive_real("eps", self.eps) > 1.0:
            raise ValueError(f"eps: expected a number in (0, 1], got {self.eps}")
        positive_real("alpha", self.alpha)
        positive_int("lam_min", self.lam_min, least=2)
        if not self.lam_max >= self.lam_min:
            raise ValueError(f"lam_max: expected at least lam_min = {self.lam_min}, got {self.lam_max}")

    def start(self, zero: Array) -> Signal:
        return Signal(zero, 0.0, float(self.lam_min))

    def spend_at(self, signal: Signal) -> tuple[int, float]:
        lam, shorter = self.spend(signal.lam_r, self.lam_min)
        return lam, self.eps * shorter

    def step(self, signal: Signal, z: Array, noise: float) -> tuple[float, Signal]:
        s, gamma, lam_r = signal
        _, eps = self.spend_at(signal)
        if not noise:  # no sample has a weight
            return eps, signal
        beta = eps
        gain = beta * (2.0 - beta)
        s = (1.0 - beta) * s  # line 12
        s += (math.sqrt(gain) / noise) * z
        gamma = (1.0 - beta) ** 2 * gamma + gain  # line 13
        lam_r *= math.exp(beta * (gamma - float(s @ s) / self.alpha))  # line 14
        return eps, Signal(s, gamma, float(min(max(lam_r, self.lam_min), self.lam_max)))

    def at_least(self, lam: int) -> Self:
        return replace(self, lam_min=max(self.lam_min, lam), lam_max=max(self.lam_max, lam))
