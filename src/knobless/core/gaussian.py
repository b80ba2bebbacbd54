"""Numbers: a latent normal for each integer and float, as one more exponential family.

What is drawn, and told back, is the latent z; what the user sees is its rounded and bounded value, which is the
business of `variables.py`. An `Axis` says how wide a step is there, so that the variance knows where to stop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import positive_int

from .families import margin, uniforms
from .types import Array, Points, Words

RESOLUTION = 1e-6  # of its range, below which a number is not resolved any further (σ² must show in m² + σ²)
START = 1.0 / 12.0  # the variance of the uniform distribution on [0, 1]


@dataclass(frozen=True)
class Axis:
    """One number's latent range: the mean's bounds, and the width of a cell, cell·exp(−rate·z) at z.

    A cell holds the latent values that the user sees as one value: 1/K of the range for K equal steps,
    narrower towards the top in log scale, `RESOLUTION` for a float.
    """

    low: float = 0.0
    high: float = 1.0
    cell: float = RESOLUTION
    rate: float = 0.0


@dataclass(frozen=True)
class Gaussian:
    """Numbers: a latent normal z each on the range scaled to [0, 1], T(z) = (z, z²), θ = (m, m² + σ²).

    It starts with the mean and the variance of the uniform distribution. The mean stays in the range or near it; the
    variance never exceeds its start and keeps a floor, for integers such that the neighbours of the mean
    together keep the probability that a bit's other value keeps.
    """

    axes: tuple[Axis, ...]
    total: int | None = None

    def __post_init__(self) -> None:
        positive_int("number of axes", len(self.axes))

    @property
    def dim(self) -> int:
        return 2 * len(self.axes)

    words = dim  # two uniforms make a normal
    dtype = np.dtype(float)

    @property
    def variables(self) -> int:
        return len(self.axes)

    def within(self, total: int) -> Self:
        return replace(self, total=total)

    @cached_property
    def _axes(self) -> Array:
        return np.array([(a.low, a.high, a.cell, a.rate) for a in self.axes]).T

    @cached_property
    def _reach(self) -> float:
        """σ_min over the width of a cell."""
        return 0.5 / NormalDist().inv_cdf(1.0 - margin(self.total or self.variables, 2) / 2.0)

    def _moments(self, theta: Array) -> tuple[Array, Array]:
        m, second = theta.reshape(2, -1)
        return m, second - m * m

    def initial(self) -> Array:
        m = np.full(self.variables, 0.5)
        return np.concatenate([m, m * m + START])

    def draw(self, theta: Array, u: Words) -> Points:
        m, variance = self._moments(theta)
        half = (u + 0.5) * 2.0**-32  # Box and Muller
        radius = np.sqrt(-2.0 * np.log(half[:, ::2]))
        return m + np.sqrt(variance) * radius * np.cos(2.0 * np.pi * half[:, 1::2])

    def sample(self, theta: Array, size: int, rng: np.random.Generator) -> Points:
        return self.draw(theta, uniforms(rng, size, self.words))

    def statistics(self, x: Points) -> NDArray[Any]:
        return np.concatenate([x, x * x], axis=1)

    def whiten(self, theta: Array, v: Array) -> Array:
        m, variance = self._moments(theta)
        mean, second = v.reshape(2, -1)
        return np.concatenate([mean / np.sqrt(variance), (second - 2.0 * m * mean) / (math.sqrt(2.0) * variance)])

    def move(self, theta: Array, step: Array) -> Array:
        m, variance = self._moments(theta)
        mean, second = step.reshape(2, -1)
        low, high, cell, rate = self._axes
        floor = self._reach * np.maximum(_width(cell, rate, bounded(m + mean, low, high)), RESOLUTION)
        # The variance moves multiplicatively, its inverse by at most half and linearly: under pure noise the
        # precision is then a martingale above its least value (for weights that are centred), so that σ² wanders
        # below its start but keeps coming back, whatever the step. With exp(growth) it would wander down to its floor.
        growth = bounded((second - 2.0 * m * mean) / variance, -0.5, 0.5)
        wider = bounded(variance / (1.0 - growth), floor**2, START)
        # The mean may leave the range by as much as σ exceeds its floor: held at the bound, half of what is drawn
        # would look the same, and an optimum there would hardly be found.
        room = np.sqrt(wider) - floor
        moved = bounded(m + mean, low - room, high + room)
        # As a change to m² + σ², and none at all for a step of zero, which then changes nothing to the last bit.
        still = (mean == 0.0) & (second == 0.0)
        moved = np.where(still, m, moved)
        change = np.where(still, 0.0, wider - variance)
        return np.concatenate([moved, theta[len(m) :] + (moved - m) * (moved + m) + change])

    def mode(self, theta: Array) -> Points:
        return self._moments(theta)[0].copy()

    def entropy(self, theta: Array) -> float:
        return float(0.5 * np.log(2.0 * np.pi * math.e * self._moments(theta)[1]).sum())


def bounded(v: NDArray[Any], low: Any, high: Any) -> NDArray[Any]:
    """v, but not below low nor above high."""
    return np.minimum(np.maximum(v, low), high)


def _width(cell: Array, rate: Array, z: Array) -> Array:
    """Of the cell around z; in log scale twice its lower half, which is the wider one and the only one at the top."""
    width = cell * np.exp(-rate * z)
    return np.divide(-2.0 * np.log1p(-0.5 * rate * width), rate, out=width, where=rate > 0.0)
