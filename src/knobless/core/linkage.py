"""Linkage: groups of variables that may depend on each other.

The tree repeatedly joins the two nearest groups of variables (unweighted average linkage, UPGMA).
The distance of two variables is 2 − (H(a) + H(b)) / H(a, b) with the entropies of the population: 0
if each determines the other, 1 if they are independent.

Distances are rounded to multiples of 2⁻³⁰, so that rounding errors do not break ties; ties are
broken by a random order of the variables.

The distances are of pairs. If each pair of three or more variables is independent, as where the
parity of the values is what counts, the tree does not contain their group. Often such variables are
declared next to each other, and then `segments` contains their group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .rng import Stream
from .types import Array, Indices, Points

UNIT = 2.0**30
# Options whose pairs are counted, at most: 64 MB per population, for 2,048 bits
MAX_OPTIONS = 4096

VariableGroup = NDArray[np.intp]


class Pairs:
    """Counts of all pairs of options in a growing population."""

    def __init__(self, options: Indices) -> None:
        total = int(options.sum())
        n = len(options)
        self.size = 0
        # counts[a, b]: number of points with both options a and b
        width = total if total <= MAX_OPTIONS else 0
        self.counts = np.zeros((width, width), dtype=np.int32)
        # Order: the first options of all variables, then the second ones, and so on, in each block
        # the variables with most options first. The variables that have a k-th option are then the
        # first of their block: sums are slices.
        self.place = np.empty(n, dtype=np.intp)
        self.place[(-options).argsort(kind="stable")] = np.arange(n)
        option = np.arange(options.max() if total <= MAX_OPTIONS else 0)
        # How many variables have such an option
        self.blocks = n - np.sort(options).searchsorted(option, "right")
        self.starts = np.cumsum(self.blocks) - self.blocks

    def add(self, x: Points) -> None:
        """Add a point."""
        self.size += 1
        if len(self.counts):
            shown = self.starts[x] + self.place
            # All pairs of options of the point.
            self.counts[shown[:, None], shown] += 1

    def tree(self, stream: Stream) -> list[VariableGroup]:
        """Return the groups of the linkage tree, except the one of all variables.

        Groups at distance 0 from each other are replaced by their union. With more than
        `MAX_OPTIONS` options in total, the groups are the single variables.
        """
        order = stream.permutation(len(self.place))
        if not len(self.counts):
            return list(order[:, None])
        return joined(self.distances(order), order)

    def distances(self, variables: VariableGroup) -> Array:
        """Return the matrix of distances between these variables, inf on the diagonal."""
        # −p log p of each pair of options; on the diagonal those of single options.
        h = entropy_terms(self.size)[self.counts]
        # H(a) = Σ −p(a) log p(a) and H(a, b) = Σ −p(a, b) log p(a, b)
        alone = self._over_options(h.diagonal())
        # In the order of the compiled engine, for equal rounding
        joint = self._over_options(self._over_options(h).T).T
        # D(a, b) = 2 − (H(a) + H(b)) / H(a, b), and 0 if both are constant
        ratio = np.divide(
            alone[:, None] + alone,
            joint,
            out=np.full(joint.shape, 2.0),
            where=joint > 0.0,
        )
        # Multiples of 2⁻³⁰: rounding errors do not break ties.
        distance = np.rint(UNIT * (2.0 - ratio))
        np.fill_diagonal(distance, np.inf)
        places = self.place[variables]
        return distance[places[:, None], places]

    def _over_options(self, h: Array) -> Array:
        """Return the sum over the options of each variable, along the first axis."""
        total = h[: len(self.place)].copy()
        starts = self.starts[1:].tolist()
        blocks = self.blocks[1:].tolist()
        # Block k has the k-th options of the variables that have one.
        for start, size in zip(starts, blocks, strict=True):
            total[:size] += h[start : start + size]
        return total


def segments(n: int, stream: Stream) -> list[VariableGroup]:
    """Return contiguous groups of 2, 4, 8, … variables, up to half of all.

    Groups of one size begin at a random place. Those at both ends are shorter, and single variables
    are left out.
    """
    groups = []
    size = 2
    while 2 * size <= n:
        # A random offset, the same for all groups of a size.
        begins = range(-stream.below(size), n, size)
        groups += [
            np.arange(max(begin, 0), min(begin + size, n))
            for begin in begins
            if 1 - size < begin < n - 1
        ]
        size *= 2
    return groups


def entropy_terms(m: int) -> Array:
    """Return −p log₂ p for p = 0, 1/m, …, 1."""
    p = np.arange(1, m + 1) / m
    return np.concatenate([[0.0], -p * np.log2(p)])


def joined(distance: Array, names: Indices) -> list[VariableGroup]:
    """Join the nearest two groups, the first in case of ties, until one is left.

    Return all groups but the last.
    """
    n = len(distance)
    groups: list[VariableGroup] = list(names[:, None])
    useful = [True] * n
    # Index and size of the group of each row
    place = list(range(n))
    size = [1.0] * n
    rows = np.arange(n)
    nearest = distance.argmin(axis=1)
    shortest = distance[rows, nearest]
    for _ in range(n - 1):
        i = int(shortest.argmin())
        j = int(nearest[i])
        # At distance 0 each group determines the other: only their union is useful.
        if shortest[i] <= 0.0:
            useful[place[i]] = useful[place[j]] = False
        groups.append(np.concatenate([groups[place[i]], groups[place[j]]]))
        useful.append(True)
        place[i] = len(groups) - 1
        # UPGMA: d(i ∪ j, k) = (|i| d(i, k) + |j| d(j, k)) / (|i| + |j|)
        row = distance[i]
        row *= size[i]
        row += size[j] * distance[j]
        size[i] += size[j]
        row /= size[i]
        np.rint(row, out=row)
        row[i] = np.inf
        distance[:, i] = row
        distance[:, j] = np.inf  # row j is merged; its distances are inf
        # The joint group is never nearer to a third one than the nearer of the two was. Only rows
        # whose nearest group was one of the two need a new search, unless both were equally near;
        # rounding may create new ties.
        shortest[j] = np.inf
        nearest[j] = -1
        stale = (nearest == j) | ((nearest == i) & (row > shortest))
        stale[i] = True
        changed = stale.nonzero()[0]
        if len(changed) == 1:  # i alone, in less time than by the general case
            nearest[i] = nearest_of_i = row.argmin()
            shortest[i] = row[nearest_of_i]
        else:
            nearest_of = distance[changed].argmin(axis=1)
            nearest[changed] = nearest_of
            shortest[changed] = distance[changed, nearest_of]
        # Ties go to the first group.
        nearest[(row == shortest) & (nearest > i)] = i
    return [
        group
        for group, keep in zip(groups[:-1], useful[:-1], strict=True)
        if keep
    ]
