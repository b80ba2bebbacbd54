"""The family of numbers: a latent normal for each integer and float.

Points hold the latent z. The value that the user sees is z rounded and bounded by the variables of
`knobless.space`. An `Axis` has the width of a step of that value, which is the scale of the
smallest useful variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import positive_int

from .families import ColumnFamily, Normal, margin, packed_rows
from .types import Array, Indices, Points, Words

# Finest resolution of a number, relative to its range (σ² must not vanish in m² + σ²)
RESOLUTION = 1e-6
START = 1.0 / 12.0  # the variance of the uniform distribution on [0, 1]


@dataclass(frozen=True)
class Axis:
    """Latent range of a number.

    Parameters
    ----------
    low : float
        Lower bound of the mean.
    high : float
        Upper bound of the mean.
    cell : float
        The width of a cell at z = 0.
    rate : float
        The rate at which cells become narrower: the width at z is cell·exp(−rate·z).
    count : int
        Number of cells; 0 for a continuum.

    Notes
    -----
    A cell is the set of latent values that decode to one value: 1/K of the range for K equal steps,
    narrower towards the top on a log scale, 1e-6 for a float.
    """

    low: float = 0.0
    high: float = 1.0
    cell: float = RESOLUTION
    rate: float = 0.0
    count: int = 0


@dataclass(frozen=True)
class Gaussian(ColumnFamily):
    """Family of numbers: a latent normal z for each, with T(z) = (z, z²) and θ = (m, m² + σ²).

    Parameters
    ----------
    axes : tuple of Axis
        Latent range of each number.
    total : int, optional
        Number of variables of the whole problem; that of the axes by default.

    Notes
    -----
    The initial mean and variance are those of the uniform distribution. The mean stays in the range
    or near it. The variance never exceeds its initial value and has a floor: for integers, the
    neighbors of the mean together keep the probability that the less probable value of a bit keeps.

    Examples
    --------
    >>> from knobless.families import Axis, Gaussian
    >>> number = Gaussian((Axis(),))
    >>> number.initial().round(4).tolist()  # m = 1/2 and m² + σ² = 1/4 + 1/12
    [0.5, 0.3333]
    """

    axes: tuple[Axis, ...]
    total: int | None = None

    def __post_init__(self) -> None:
        positive_int("number of axes", len(self.axes))

    @property
    def dim(self) -> int:
        return 2 * len(self.axes)

    words = dim  # two uniforms per normal
    dtype = np.dtype(float)

    @property
    def variables(self) -> int:
        return len(self.axes)

    @property
    def options(self) -> Indices:
        return np.zeros(self.variables, dtype=np.intp)

    @property
    def counts(self) -> Indices:
        return np.array([axis.count for axis in self.axes])

    @property
    def width(self) -> int:
        return 8 * self.variables

    def within(self, total: int) -> Self:
        return replace(self, total=total)

    @cached_property
    def _axes(self) -> Array:
        return np.array([(a.low, a.high, a.cell, a.rate) for a in self.axes]).T

    @cached_property
    def _reach(self) -> float:
        """Least σ, relative to the width of a cell."""
        return 0.5 / NormalDist().inv_cdf(
            1.0 - margin(self.total or self.variables, 2) / 2.0
        )

    def _moments(self, theta: Array) -> tuple[Array, Array]:
        m, second = theta.reshape(2, -1)
        return m, second - m * m

    def initial(self) -> Array:
        m = np.full(self.variables, 0.5)
        return np.concatenate([m, m * m + START])

    def draw(self, theta: Array, u: Words) -> Points:
        m, variance = self._moments(theta)
        half = (u + 0.5) * 2.0**-32  # Box and Muller
        # Box and Muller: z = √(−2 ln u₁) cos(2π u₂), with u at the middle of its interval
        radius = np.sqrt(-2.0 * np.log(half[:, ::2]))
        return m + np.sqrt(variance) * radius * np.cos(
            2.0 * np.pi * half[:, 1::2]
        )

    def statistics(self, x: Points) -> NDArray[Any]:
        return np.concatenate([x, x * x], axis=1)

    def indices(self, x: Points) -> Points:
        low, _, cell, rate = self._axes
        # On a log scale, cells are those of integers v at ln v.
        unit = np.where(rate > 0.0, cell * rate, 1.0)
        integers = np.rint(np.exp(rate * x) / unit) - np.rint(
            np.exp(rate * low) / unit
        )
        steps = np.where(rate > 0.0, integers, np.floor(x * self.counts))
        return np.where(
            self.counts > 0, bounded(steps, 0.0, self.counts - 1.0), x
        )

    def features(self, x: Points) -> Array:
        # The Legendre polynomials of degree 1 and 2, orthonormal on [0, 1]; values outside decode
        # to the bounds.
        u = bounded(x, 0.0, 1.0) - 0.5
        return np.concatenate(
            [math.sqrt(12.0) * u, math.sqrt(180.0) * (u * u - START)], axis=1
        )

    def minimizer(self, w: Array) -> Points:
        # Σ w·features = slope·u + curvature·(u² − 1/12) for u = x − ½, in the units of u
        slope, curvature = np.split(
            w * np.repeat((math.sqrt(12.0), math.sqrt(180.0)), self.variables),
            2,
            axis=1,
        )
        # A bound, or inside of the range where the parabola opens upwards.
        u = np.where(slope <= 0.0, 0.5, -0.5)
        np.divide(
            -0.5 * slope, curvature, out=u, where=np.abs(slope) < curvature
        )
        return 0.5 + u

    def whiten(self, theta: Array, v: Array) -> Array:
        m, variance = self._moments(theta)
        # u = (δm/σ, δσ²/(√2 σ²)) with δσ² = δE[z²] − 2 m δm
        mean, second = v.reshape(2, -1)
        return np.concatenate(
            [
                mean / np.sqrt(variance),
                (second - 2.0 * m * mean) / (math.sqrt(2.0) * variance),
            ]
        )

    def move(self, theta: Array, step: Array) -> Array:
        m, variance = self._moments(theta)
        mean, second = step.reshape(2, -1)
        low, high, cell, rate = self._axes
        # σ at least such that the neighbors of the mean keep the probability of a margin.
        floor = self._reach * np.maximum(
            cell_widths(cell, rate, bounded(m + mean, low, high)), RESOLUTION
        )
        # The variance changes by a factor; its inverse changes linearly and by at most half. For
        # uninformative values and centered weights the precision is then a martingale above its
        # least value: σ² varies below its initial value but returns to it for any step length. With
        # exp(growth) it would drift down to its floor.
        growth = bounded((second - 2.0 * m * mean) / variance, -0.5, 0.5)
        wider = bounded(variance / (1.0 - growth), floor**2, START)
        # The mean may leave the range by as much as σ exceeds its floor. If it were kept at the
        # bound, half of the samples would decode to the same value, and an optimum at the bound
        # would hardly be found.
        room = np.sqrt(wider) - floor
        moved = bounded(m + mean, low - room, high + room)
        # As a change of m² + σ², exactly zero for a step of zero.
        still = (mean == 0.0) & (second == 0.0)
        moved = np.where(still, m, moved)
        change = np.where(still, 0.0, wider - variance)
        return np.concatenate(
            [moved, theta[len(m) :] + (moved - m) * (moved + m) + change]
        )

    def mode(self, theta: Array) -> Points:
        return self._moments(theta)[0].copy()

    def entropy(self, theta: Array) -> float:
        return float(
            0.5 * np.log(2.0 * np.pi * math.e * self._moments(theta)[1]).sum()
        )

    def marginal(self, theta: Array, i: int) -> Normal:
        m, second = theta[i :: self.variables].tolist()
        return Normal(m, math.sqrt(max(second - m * m, 0.0)))

    def parameters(self, i: int) -> range:
        return range(i, self.dim, self.variables)

    def select(self, columns: Sequence[int]) -> Gaussian:
        return Gaussian(tuple(self.axes[i] for i in columns))

    def pack(self, x: Points) -> bytes:
        return np.ascontiguousarray(x, dtype="<f8").tobytes()

    def unpack(self, data: bytes) -> Points:
        x = packed_rows(data, self.width).view("<f8").astype(float)
        if not np.isfinite(x).all():
            raise ValueError("packed point: expected finite numbers")
        return x


def bounded(v: NDArray[Any], low: Any, high: Any) -> NDArray[Any]:
    """Return v limited to [low, high]; faster than `np.clip`."""
    return np.minimum(np.maximum(v, low), high)


def cell_widths(cell: Array, rate: Array, z: Array) -> Array:
    """Return the width of the cell around z.

    On a log scale twice its lower half, which is the wider one.
    """
    width = cell * np.exp(-rate * z)
    return np.divide(
        -2.0 * np.log1p(-0.5 * rate * width), rate, out=width, where=rate > 0.0
    )
