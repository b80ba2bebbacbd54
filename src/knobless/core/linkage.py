"""Which variables belong together: the linkage tree of a population.

Variables whose values go together in good points are likely to work together. The tree joins, again and again, the two
groups of variables that are nearest (unweighted average linkage, UPGMA). The distance of two variables is 2 − (H(a) +
H(b)) / H(a, b), with entropies of the population: 0 where each tells the other, 1 where neither tells anything.

Distances are whole numbers in units of 2⁻³⁰, so that what rounding makes of a tie remains one, and ties are broken by a
random order of the variables.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .rng import Stream
from .types import Array, Points

UNIT = 2.0**30
MOST = 4096  # options whose pairs are counted: 64 MB a population, which 2,048 bits take

Group = NDArray[np.intp]


class Pairs:
    """How often any two options occur together in a population, which grows."""

    def __init__(self, options: NDArray[np.intp]) -> None:
        total, n = int(options.sum()), len(options)
        self.size = 0
        self.counts = np.zeros((total, total) if total <= MOST else (0, 0), dtype=np.int32)
        # The first options of all variables come first, then the second ones, and so on, in each block the variables
        # with most options first: so that those which still have an option are the first of them, and sums are fast.
        self.place = np.empty(n, dtype=np.intp)
        self.place[(-options).argsort(kind="stable")] = np.arange(n)
        each = np.arange(options.max() if total <= MOST else 0)
        self.blocks = n - np.sort(options).searchsorted(each, "right")  # how many variables have such an option
        self.starts = np.cumsum(self.blocks) - self.blocks

    def add(self, x: Points) -> None:
        """One more point."""
        self.size += 1
        if len(self.counts):
            shown = self.starts[x] + self.place
            self.counts[shown[:, None], shown] += 1

    def tree(self, stream: Stream) -> list[Group]:
        """Groups of variables to be taken over together, from single ones up to all but the whole.

        Groups that are always taken over alike, because each tells the other, are one. Beyond `MOST` options in all
        there are only single ones.
        """
        order = stream.permutation(len(self.place))
        if not len(self.counts):
            return list(order[:, None])
        return joined(self.distances(order), order)

    def distances(self, variables: Group) -> Array:
        """Of each of these to each other one, inf to itself."""
        h = entropy_terms(self.size)[self.counts]
        alone = self._over_options(h.diagonal())
        joint = self._over_options(self._over_options(h).T).T  # in the order of the engine, so that both round alike
        told = np.divide(alone[:, None] + alone, joint, out=np.full(joint.shape, 2.0), where=joint > 0.0)
        distance = np.rint(UNIT * (2.0 - told))
        np.fill_diagonal(distance, np.inf)
        places = self.place[variables]
        return distance[places[:, None], places]

    def _over_options(self, h: Array) -> Array:
        """The sum for each variable, along the first axis."""
        total = h[: len(self.place)].copy()
        for start, size in zip(self.starts[1:].tolist(), self.blocks[1:].tolist(), strict=True):
            total[:size] += h[start : start + size]
        return total


def entropy_terms(m: int) -> Array:
    """−p log₂ p for p = 0, 1/m, …, 1."""
    p = np.arange(1, m + 1) / m
    return np.concatenate([[0.0], -p * np.log2(p)])


def joined(distance: Array, names: NDArray[np.intp]) -> list[Group]:
    """The groups that arise as the nearest two are joined, the first of equals, until one is left."""
    n = len(distance)
    groups: list[Group] = list(names[:, None])
    useful = [True] * n
    place, size = list(range(n)), [1.0] * n  # of the group that each row stands for
    rows = np.arange(n)
    nearest = distance.argmin(axis=1)
    least = distance[rows, nearest]
    for _ in range(n - 1):
        i = int(least.argmin())
        j = int(nearest[i])
        if least[i] <= 0.0:
            useful[place[i]] = useful[place[j]] = False
        groups.append(np.concatenate([groups[place[i]], groups[place[j]]]))
        useful.append(True)
        place[i] = len(groups) - 1
        row = distance[i]
        row *= size[i]
        row += size[j] * distance[j]
        size[i] += size[j]
        row /= size[i]
        np.rint(row, out=row)
        row[i] = np.inf
        distance[:, i] = row
        distance[:, j] = np.inf  # row j stands for nobody any more: it is infinitely far from everyone
        # The two together are nearer to nobody than the nearer of them was. So only those to whom one of them was
        # nearest must look again, unless both were as near; and rounding may have made them the first of equals.
        least[j], nearest[j] = np.inf, -1
        stale = (nearest == j) | ((nearest == i) & (row > least))
        stale[i] = True
        changed = stale.nonzero()[0]
        found = distance[changed].argmin(axis=1)
        nearest[changed] = found
        least[changed] = distance[changed, found]
        nearest[(row == least) & (nearest > i)] = i
    return [group for group, keep in zip(groups[:-1], useful[:-1], strict=True) if keep]
