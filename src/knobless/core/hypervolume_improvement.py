"""Scores of candidates for several objectives: how much they are expected to improve the front.

For two objectives, the score is the expected hypervolume improvement in closed form: a sum over the
strips between neighboring points of the front, and in each the product of two independent
expectations. For more, it is the expected improvement of a weighted Chebyshev function with random
weights, different ones for each point.

The reference point is the worst value of all evaluations in each objective.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .acquisition import log_improvement
from .kernel import Process
from .pareto import is_front
from .types import Array, Points

AUGMENTED = 0.05  # share of the sum of the objectives in the Chebyshev function
DRAWN = 64  # values by which an expectation is estimated
LEAST = 1e-300  # of an improvement, whose logarithm is the score


class FrontImprovement:
    """The logarithm of the expected improvement on the front of some values.

    Parameters
    ----------
    processes : sequence of Process
        One process for each objective.
    values : array of shape (n, objectives)
        Values of the evaluations, as the processes have them.
    margin : float
        By how much a value has to improve on that of a point of the front.
    g : numpy.random.Generator
        Source of random weights.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        values: Array,
        margin: float,
        g: np.random.Generator,
    ) -> None:
        self.processes, self.reference = processes, values.max(axis=0)
        front = np.unique(values[is_front(values)], axis=0)
        self.low, high = front.min(axis=0), front.max(axis=0)
        self.spread = np.where(high > self.low, high - self.low, 1.0)
        self.front = front - margin
        # A random direction, so that successive points cover the front.
        self.weights = g.dirichlet(np.ones(values.shape[1]))
        self.normal = (
            g.standard_normal((DRAWN, values.shape[1]))
            if values.shape[1] > 2
            else np.empty(0)
        )

    def __call__(self, points: Points) -> Array:
        """Return the scores of points."""
        predicted = [process.predict(points) for process in self.processes]
        if len(predicted) == 2:
            gain = expected_hypervolume_improvement(
                self.front, self.reference, predicted
            )
            scores: Array = np.log(np.maximum(gain, LEAST))
            return scores
        mean, deviation = (
            np.stack(moments, axis=-1)
            for moments in zip(*predicted, strict=True)
        )
        drawn = self._scalar(mean[:, None] + deviation[:, None] * self.normal)
        # ParEGO: expected improvement of a Chebyshev scalarization (Knowles, 2006), by draws.
        gain = np.maximum(self._scalar(self.front).min() - drawn, 0.0).mean(
            axis=1
        )
        # Where no draw improves on the front, those with a better mean come first.
        return np.log(gain + LEAST * np.exp(-self._scalar(mean)))

    def _scalar(self, values: Array) -> Array:
        """Return the weighted Chebyshev function of values, scaled by the ranges of the front."""
        scaled = (values - self.low) / self.spread * self.weights
        scalar: Array = scaled.max(axis=-1) + AUGMENTED * scaled.sum(axis=-1)
        return scalar


def expected_hypervolume_improvement(
    front: Array, reference: Array, predicted: Sequence[tuple[Array, Array]]
) -> Array:
    """Return the expected hypervolume improvement of points with two objectives.

    Their values are independent normal numbers.

    `front` is in the order of the first objective, and `predicted` has mean and standard deviation
    by objective.
    """
    (mean, deviation), (other_mean, other_deviation) = predicted
    # Of the strips, from left to right
    rights = np.append(front[:, 0], reference[0])[:, None]
    tops = np.insert(front[:, 1], 0, reference[1])[:, None]
    # E[(right − y₁)⁺] of each strip
    reached = np.exp(log_improvement(rights, mean, deviation))
    # Expected width of the strip that a value is left of
    widths = np.diff(reached, axis=0, prepend=0.0)
    heights = np.exp(log_improvement(tops, other_mean, other_deviation))
    # Σ over strips of expected width × expected height (independent objectives).
    gain: Array = np.maximum((widths * heights).sum(axis=0), 0.0)
    return gain
