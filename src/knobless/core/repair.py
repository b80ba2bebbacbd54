"""Repair of infeasible points: small changes towards a point that is feasible.

The variables of an infeasible point take over the values of a feasible one, in random order, until
the point is feasible. Of a number that makes the difference, the value between the two is halved a
few times. The options of a subset are exchanged in pairs, so that its size stays within its bounds.

Many problems over bits have a direction: from the point without ones, or from that with ones only,
every feasible point can be reached through feasible ones. Knapsacks are of the first kind,
coverings of the second. If exactly one of these two points is feasible, it is the target of the
repair. Then bits are set to the other value, in random order, as long as the point stays feasible:
items are ejected to make room for others, and the room that is left is filled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .conditional import Conditional
from .families import Family
from .rng import first_uniforms
from .types import Indices, Mask, Points

HALVINGS = 8  # of the distance between two values of a number

Feasible = Callable[[Points], bool]  # of one point


def single_bits(family: Family) -> Mask:
    """Return which columns are bits that can be changed alone, as those of a subset cannot."""
    bits: Mask = family.options == 2
    for bounds in family.size_bounds:
        bits[bounds.columns] = False
    return bits


@dataclass(frozen=True)
class Repair:
    """Repair of points of one family.

    Parameters
    ----------
    family : Family
        Family of the points.
    target : array of shape (variables,)
        A feasible point.
    directed : bool
        Whether the bits of the target have one value and can be filled with the other one.
    """

    family: Family
    target: Points
    directed: bool = False

    @classmethod
    def towards(
        cls, family: Family, point: Points, fixed: Indices, feasible: Feasible
    ) -> Repair:
        """Return the repair towards a feasible point: all zeros, all ones, or `point`.

        Its target has the values of `point` except for bits. The columns `fixed` keep their values.
        """
        bits = single_bits(family)
        bits[fixed] = False
        if isinstance(family, Conditional) or not bits.any():
            return cls(family, point)
        poles = []
        for value in (0, 1):
            # All zeros, then all ones.
            pole = point.copy()
            pole[bits] = value
            if feasible(pole):
                poles.append(pole)
        if len(poles) == 1:
            return cls(family, poles[0], directed=True)
        return cls(family, point)

    def __call__(self, x: Points, feasible: Feasible, key: int) -> Points:
        """Return a feasible point close to an infeasible one.

        `key` is that of the random numbers.
        """
        family = self.family
        target = self.target
        first, second = first_uniforms(key, 2, family.variables)
        bits = single_bits(family)
        # Bits come first in a directed repair, which returns to them.
        order = (
            np.lexsort((first, ~bits))
            if self.directed
            else first.argsort(kind="stable")
        )
        y = x.copy()
        for columns in self._steps(x, order[(x != target)[order]].tolist()):
            # Take over a value of the target.
            y[columns] = target[columns]
            if feasible(y):
                if not family.options[columns[0]]:
                    y = self._halved(y, columns[0], x[columns[0]], feasible)
                break
        # Items were ejected until the point was feasible. Fill the room that is left.
        if self.directed:
            y = self._filled(y, second, bits, feasible)
        if isinstance(family, Conditional):
            return family.canonical(y[None])[0]
        return y

    def fill(self, x: Points, feasible: Feasible, key: int) -> Points:
        """Return a feasible point to which no bit can be added.

        The point itself if the repair is not directed.
        """
        if not self.directed:
            return x
        u = first_uniforms(key, 2, self.family.variables)[1]
        return self._filled(x.copy(), u, single_bits(self.family), feasible)

    def _steps(self, x: Points, columns: list[int]) -> list[list[int]]:
        """Return the columns that change together: pairs of a subset, or single ones."""
        bounds = self.family.size_bounds
        if not bounds:
            return [[i] for i in columns]
        subset_of = {
            i: k
            for k, subset_bounds in enumerate(bounds)
            for i in range(
                subset_bounds.columns.start, subset_bounds.columns.stop
            )
        }
        steps: list[list[int]] = []
        waiting: dict[tuple[int, int], list[int]] = {}
        for i in columns:
            if i not in subset_of:
                steps.append([i])
                continue
            subset = subset_of[i]
            bit = int(x[i])
            # A bit that becomes one is paired with a bit that becomes zero: the size stays.
            partners = waiting.get((subset, 1 - bit))
            if partners:
                steps.append([partners.pop(), i])
            else:
                waiting.setdefault((subset, bit), []).append(i)
        # The sizes of both subsets are within the bounds, and so are those between them.
        return steps + [[i] for unpaired in waiting.values() for i in unpaired]

    def _halved(
        self, y: Points, i: int, infeasible: float, feasible: Feasible
    ) -> Points:
        """Move number i of a feasible point towards a value at which it is infeasible."""
        feasible_value = float(y[i])
        for _ in range(HALVINGS):
            # Bisection: y[i] = feasible_value is feasible, y[i] = infeasible is not.
            y[i] = middle = 0.5 * (feasible_value + infeasible)
            if feasible(y):
                feasible_value = middle
            else:
                infeasible = middle
        y[i] = feasible_value
        return y

    def _filled(
        self, y: Points, u: NDArray[np.uint32], bits: Mask, feasible: Feasible
    ) -> Points:
        """Flip bits away from the value of the target, as long as the point stays feasible."""
        order = u.argsort(kind="stable")
        for i in order[(bits & (y == self.target))[order]].tolist():
            # Keep the flip if the point stays feasible.
            y[i] = 1 - y[i]
            if not feasible(y):
                y[i] = 1 - y[i]
        return y
