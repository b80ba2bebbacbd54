"""Adaptation of the sample size λ and the step length ε: fixed, or by the signal-to-noise ratio.

The state of an adaptation is a signal (s, γ and λ_r in the paper). λ-adaptation and ε-adaptation
are one mechanism: the same λ_r gives more `samples` (PBIL-λ) or smaller `steps` (PBIL-ε).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

from knobless._checks import positive_int, positive_real

from .types import Array


class Signal(NamedTuple):
    """State of an adaptation.

    Attributes
    ----------
    s : array
        Exponential average of the whitened gradients, normalized by their expected length for
        uninformative values.
    gamma : float
        Expected squared length of `s` for uninformative values.
    lam_r : float
        Real-valued sample size.
    """

    s: Array
    gamma: float
    lam_r: float


class Adaptation(Protocol):
    """Protocol of adaptations."""

    def start(self, zero: Array) -> Signal:
        """Return the initial signal (line 1).

        Parameters
        ----------
        zero : array
            A whitened gradient of length zero.

        Returns
        -------
        Signal
            The signal before the first step.
        """

    def spend_at(self, signal: Signal) -> tuple[int, float]:
        """Return the current λ and ε.

        Parameters
        ----------
        signal : Signal
            The current signal.

        Returns
        -------
        tuple of int and float
            The sample size and the step length.
        """

    def step(
        self, signal: Signal, z: Array, noise: float
    ) -> tuple[float, Signal]:
        """Return ε of this step and the next signal (lines 12 to 15).

        Parameters
        ----------
        signal : Signal
            The current signal; not modified.
        z : array
            The whitened gradient.
        noise : float
            Root of the expected squared length of `z` for uninformative values. If it is 0, no
            sample has a weight, and the signal must be returned unchanged.

        Returns
        -------
        tuple of float and Signal
            The step length and the next signal.
        """

    def at_least(self, lam: int) -> Self:
        """Return the same adaptation with λ of at least `lam`.

        Parameters
        ----------
        lam : int
            Lower bound of the sample size.

        Returns
        -------
        Adaptation
            A new value; the adaptation is not modified.
        """


@dataclass(frozen=True)
class Fixed:
    """Constant λ and ε.

    Parameters
    ----------
    lam : int
        Samples per iteration, at least 2.
    eps : float
        Step length.
    """

    lam: int
    eps: float

    def __post_init__(self) -> None:
        positive_int("lam", self.lam, least=2)
        positive_real("eps", self.eps)

    def start(self, zero: Array) -> Signal:
        return Signal(zero, 0.0, float(self.lam))

    def spend_at(self, signal: Signal) -> tuple[int, float]:
        return self.lam, self.eps

    def step(
        self, signal: Signal, z: Array, noise: float
    ) -> tuple[float, Signal]:
        return self.eps, signal

    def at_least(self, lam: int) -> Self:
        return replace(self, lam=max(self.lam, lam))


def samples(lam_r: float, lam_min: int) -> tuple[int, float]:
    """Return λ and the factor of ε of PBIL-λ: λ_r samples per iteration, full steps.

    Parameters
    ----------
    lam_r : float
        Real-valued sample size.
    lam_min : int
        Lower bound of the sample size.

    Returns
    -------
    tuple of int and float
        λ and the factor of ε.

    Examples
    --------
    >>> samples(10.3, lam_min=2)
    (10, 1.0)
    """
    return round(lam_r), 1.0


def steps(lam_r: float, lam_min: int) -> tuple[int, float]:
    """Return λ and the factor of ε of PBIL-ε: λ_min samples per iteration, ε and β times λ_min/λ_r.

    Parameters
    ----------
    lam_r : float
        Real-valued sample size.
    lam_min : int
        Lower bound of the sample size.

    Returns
    -------
    tuple of int and float
        λ and the factor of ε.

    Examples
    --------
    >>> steps(8.0, lam_min=2)
    (2, 0.25)
    """
    return lam_min, lam_min / lam_r


@dataclass(frozen=True)
class SNR:
    """Adaptation that keeps the signal-to-noise ratio ‖s‖²/γ near α (lines 12 to 15).

    Parameters
    ----------
    eps : float
        Step length ε in (0, 1].
    lam_max : float
        Upper bound of λ_r; may be inf.
    alpha : float
        Target α of the ratio.
    lam_min : int
        Lower bound of λ_r, at least 2.
    spend : callable
        `samples` for PBIL-λ or `steps` for PBIL-ε: (λ_r, λ_min) to λ and the factor of ε.

    Notes
    -----
    β, the inverse time horizon of the average s, equals ε, so the ratio includes the averaging of
    small steps. The ε of a step is the one before its update.

    The state after a step with the whitened gradient z and its expected length `noise` is::

        s ← (1 − β) s + √(β (2 − β)) z / noise
        γ ← (1 − β)² γ + β (2 − β)
        λ_r ← λ_r exp(β (γ − ‖s‖²/α))

    Examples
    --------
    >>> import numpy as np
    >>> from knobless.algorithms import SNR
    >>> snr = SNR(eps=0.1, lam_max=100)
    >>> signal = snr.start(np.zeros(2))
    >>> snr.spend_at(signal)
    (2, 0.1)
    >>> for i in range(50):  # gradients that point nowhere in particular: more samples
    ...     eps, signal = snr.step(signal, np.array([0.0, (-1.0) ** i]), noise=1.0)
    >>> snr.spend_at(signal)
    (100, 0.1)
    """

    eps: float
    lam_max: float
    alpha: float = 1.5
    lam_min: int = 2
    spend: Callable[[float, int], tuple[int, float]] = samples

    def __post_init__(self) -> None:
        if positive_real("eps", self.eps) > 1.0:
            raise ValueError(
                f"eps: expected a number in (0, 1], got {self.eps}"
            )
        positive_real("alpha", self.alpha)
        positive_int("lam_min", self.lam_min, least=2)
        if not self.lam_max >= self.lam_min:
            raise ValueError(
                f"lam_max: expected at least lam_min = {self.lam_min}, got {self.lam_max}"
            )

    def start(self, zero: Array) -> Signal:
        return Signal(zero, 0.0, float(self.lam_min))

    def spend_at(self, signal: Signal) -> tuple[int, float]:
        lam, shorter = self.spend(signal.lam_r, self.lam_min)
        return lam, self.eps * shorter

    def step(
        self, signal: Signal, z: Array, noise: float
    ) -> tuple[float, Signal]:
        s, gamma, lam_r = signal
        _, eps = self.spend_at(signal)
        if not noise:  # no sample has a weight
            return eps, signal
        # β = ε: the average s covers as many steps as θ needs to move.
        beta = eps
        # 1 − (1 − β)², which keeps E‖s‖² = γ for uninformative values (eq. s)
        gain = beta * (2.0 - beta)
        s = (1.0 - beta) * s  # line 12
        s += (math.sqrt(gain) / noise) * z
        gamma = (1.0 - beta) ** 2 * gamma + gain  # line 13
        # Line 14
        lam_r *= math.exp(beta * (gamma - float(s.dot(s)) / self.alpha))
        return eps, Signal(
            s, gamma, float(min(max(lam_r, self.lam_min), self.lam_max))
        )

    def at_least(self, lam: int) -> Self:
        return replace(
            self, lam_min=max(self.lam_min, lam), lam_max=max(self.lam_max, lam)
        )
