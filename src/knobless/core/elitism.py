"""Elitism: points that take part in the next iteration without being drawn or evaluated again.

An elitism rule selects the elite from the points of an iteration. In the next iteration `IGO.tell`
ranks the elite together with the new samples, so that it contributes to the update of θ. On a
deterministic objective a good point that was sampled once is then not lost in the next update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from .families import Family
from .types import Array, Points


class Elite(NamedTuple):
    """Points kept from earlier iterations, with their objective values.

    Attributes
    ----------
    x : array of shape (m, variables)
        The points, one per row; m is 0 or 1 for the rules of this module.
    f : array of shape (m,)
        Their objective values.
    """

    x: Points
    f: Array

    @classmethod
    def empty(cls, family: Family) -> Elite:
        """Return the elite of no points of a family."""
        return cls(np.empty((0, family.variables), family.dtype), np.empty(0))

    def copy(self) -> Elite:
        """Return a copy that shares no memory with this one."""
        return Elite(self.x.copy(), self.f.copy())


class Elitism(Protocol):
    """Protocol of elitism rules."""

    def __call__(self, elite: Elite, x: Points, f: Array) -> Elite:
        """Select the elite of the next iteration.

        Parameters
        ----------
        elite : Elite
            The elite of this iteration; not modified.
        x : array of shape (lam, variables)
            The samples of this iteration, at least one; not modified.
        f : array of shape (lam,)
            Their objective values; NaN for a failed evaluation.

        Returns
        -------
        Elite
            A value that shares no memory with `x` and `f`.
        """


@dataclass(frozen=True)
class NoElitism:
    """Keep no points, as in the paper: only θ and the signal are carried to the next iteration."""

    def __call__(self, elite: Elite, x: Points, f: Array) -> Elite:
        return Elite(elite.x[:0], elite.f[:0]) if len(elite.f) else elite


NO_ELITISM = NoElitism()


@dataclass(frozen=True)
class LastBest:
    """Keep the best point of the last iteration, the first in case of ties, for one iteration.

    The elite changes with the samples, so θ is not tied to a single point.

    Examples
    --------
    >>> import numpy as np
    >>> from knobless.algorithms import Elite, LastBest
    >>> elite = Elite(np.array([[0, 0]]), np.array([1.0]))
    >>> LastBest()(elite, np.array([[0, 1], [1, 1]]), np.array([2.0, 3.0])).f.tolist()
    [2.0]
    """

    def __call__(self, elite: Elite, x: Points, f: Array) -> Elite:
        return _best(x, f)


@dataclass(frozen=True)
class BestSoFar:
    """Keep the best point of all iterations, the latest in case of ties, which crosses plateaus.

    This is the greediest rule, and the fastest one if a single path leads to the optimum.

    Examples
    --------
    >>> import numpy as np
    >>> from knobless.algorithms import BestSoFar, Elite
    >>> elite = Elite(np.array([[0, 0]]), np.array([1.0]))
    >>> BestSoFar()(elite, np.array([[0, 1], [1, 1]]), np.array([2.0, 3.0])).f.tolist()
    [1.0]
    """

    def __call__(self, elite: Elite, x: Points, f: Array) -> Elite:
        best = _best(x, f)
        return best if len(best.f) and (best.f <= elite.f).all() else elite


def _best(x: Points, f: Array) -> Elite:
    """Return the first of the best points, or no point if all evaluations failed (NaN or inf)."""
    i = int(f.argmin())
    if f[i] != f[i]:
        i = int(np.where(f == f, f, np.inf).argmin())
    rows = slice(i, i + 1 if f[i] < np.inf else i)
    return Elite(x[rows].copy(), f[rows].copy())
