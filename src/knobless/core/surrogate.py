"""What is modeled of the evaluations in an archive: the objective and the violations.

Each is a Gaussian process (`kernel.py`), whose hyperparameters are fit again when the number of
evaluations has grown by a tenth, from the result of the fit before. So they depend on the
evaluations alone, not on when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .archive import Archive
from .kernel import Covariance, Encoding, Process, scaled_values
from .types import Array, Points
from .violation import PER_VIOLATION, is_feasible, is_infeasible

GROWTH = 10  # a process is fit again with one in so many more evaluations
# In place of the logarithm of a violation, and at most
FEASIBLE, MOST_RELATIVE = -0.1, 3.0

Rows = NDArray[np.intp]
# From values as they rank to rows that count, and what is modeled
Response = Callable[[Array], tuple[Rows, Array]]


def objective(f: Array) -> tuple[Rows, Array]:
    """Return the objective values, scaled.

    Infeasible points count if no point is feasible, by their violations.
    """
    infeasible = is_infeasible(f)
    # With a feasible point, infeasible ones have no value of the objective.
    rows = (
        np.flatnonzero(~infeasible)
        if is_feasible(f[np.isfinite(f)]).any()
        else np.arange(len(f))
    )
    return rows, scaled_values(f[rows])


def violation(f: Array) -> tuple[Rows, Array]:
    """Return the logarithm of the violation in units of the median violation.

    It is slightly less than 0 for feasible points.
    """
    rows = np.flatnonzero(np.isfinite(f))
    infeasible = is_infeasible(f[rows])
    violations = f[rows][infeasible] / PER_VIOLATION
    y = np.full(len(rows), FEASIBLE)
    if len(violations):  # there may be none among the first evaluations
        y[infeasible] = np.minimum(
            np.log1p(violations / np.median(violations)), MOST_RELATIVE
        )
    return rows, y


class Hyperparameters(NamedTuple):
    """The result of a fit.

    Attributes
    ----------
    theta : array
        The hyperparameters.
    mean : array
        Their means by the prior.
    """

    theta: Array
    mean: Array

    @property
    def wider(self) -> Array:
        """Hyperparameters halfway to the prior."""
        return 0.5 * (self.theta + self.mean)


class Surrogate:
    """The process of a response, fit to the first evaluations of an archive.

    Parameters
    ----------
    encoding : Encoding
        Coordinates of the points.
    response : callable
        What is modeled.
    index : int, optional
        Which of several objectives this is.
    """

    def __init__(
        self, encoding: Encoding, response: Response, index: int | None = None
    ) -> None:
        self.encoding = encoding
        self.response = response
        self.index = index
        self._n = 0  # evaluations of the last fit
        self._fit: Hyperparameters | None = None

    def data(self, archive: Archive, n: int) -> tuple[Points, Array]:
        """Return points and responses of the first n evaluations, with centered numbers.

        The response decides which evaluations count.
        """
        rows, y = self.response(archive.f[:n])
        if self.index is not None:
            y = scaled_values(archive.outcomes[:n][rows, self.index])
        return self.encoding.centered(archive.x(0, n)[rows]), y

    def hyperparameters(self, archive: Archive, n: int) -> Hyperparameters:
        """Return the hyperparameters after n evaluations."""
        # Fit again when the archive has grown by a share: at fixed sizes, so that a copy fits the
        # same.
        m = self._n + max(1, self._n // GROWTH) if self._n else 2
        while m <= n:
            x, y = self.data(archive, m)
            covariance = Covariance(self.encoding, x)
            # From the last hyperparameters, and from their prior means.
            starts = (
                [covariance.mean]
                if self._fit is None
                else [self._fit.theta, covariance.mean]
            )
            theta = covariance.fit(y, starts)
            self._n = m
            self._fit = Hyperparameters(theta, covariance.mean)
            m += max(1, m // GROWTH)
        if self._fit is None:
            mean = Covariance(self.encoding, self.data(archive, n)[0]).mean
            return Hyperparameters(mean, mean)
        return self._fit

    def process(self, archive: Archive, n: int) -> Process:
        """Return the process after n evaluations."""
        x, y = self.data(archive, n)
        return Process.of(
            self.encoding, x, y, self.hyperparameters(archive, n).theta
        )

    def copy(self) -> Surrogate:
        """Return a copy, for another archive with the same evaluations."""
        copy = Surrogate(self.encoding, self.response, self.index)
        copy._n = self._n
        copy._fit = self._fit
        return copy
