"""Turns among the branches of a conditional space.

The points of an iteration come from one combination of branches, so points are ranked among their
like, and a branch that must be tuned before it is good is tuned. The r-th best branch of a variable
has a share of the evaluations proportional to 1/r. θ is one vector for the whole space: variables
that several branches have in common are learned in all of them.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .archive import Archive
from .branches import Branches, Combination
from .conditional import Conditional
from .data import floats, listed, octets, shown, text, theta_of, whole, whole_at
from .families import packed_rows
from .rng import Stream
from .subset import number_of_points
from .types import Array, Points

# Points of a combination up to which those that were evaluated are counted
COUNTED = 2**12
# Points in a row that were evaluated before, after which the search of a combination is restarted
REPEATS = 50
# Combinations that are drawn in search of one that is not exhausted
TRIED = 100


class Seen(NamedTuple):
    """The points of a combination that were evaluated.

    Attributes
    ----------
    points : frozenset of bytes
        The different points.
    repeats : int
        Evaluations since the last new point.
    restarts : int
        How often the search of the combination was restarted.
    """

    points: frozenset[bytes] = frozenset()
    repeats: int = 0
    restarts: int = 0

    def add(self, point: bytes) -> Seen:
        """Return this with one more point."""
        if point in self.points:
            return self._replace(repeats=self.repeats + 1)
        return self._replace(points=self.points | {point}, repeats=0)


class BranchTurns(NamedTuple):
    """State of the turns among branches.

    Attributes
    ----------
    theta : array
        Parameters of the whole space around which the search is.
    n : tuple of int
        Evaluations in the turns of each branch.
    best : tuple of float
        The best value of each branch.
    seen : mapping
        The points of each combination that were evaluated, if the objective is deterministic and
        its points are few.
    branch : int
        The branch whose turn it is.
    combination : tuple of float
        The combination of branches that is searched.
    """

    theta: Array
    n: tuple[int, ...]
    best: tuple[float, ...]
    seen: Mapping[Combination, Seen]
    branch: int = 0
    combination: Combination = ()

    def restarts(self, key: Combination) -> int:
        """Return how often the search of a combination was restarted.

        Zero if its points are not counted.
        """
        return self.seen[key].restarts if key in self.seen else 0


@dataclass(frozen=True)
class Branching:
    """The rule by which branches and their combinations have turns.

    Parameters
    ----------
    family : Conditional
        Family of the points.
    counts : bool
        Whether to count evaluated points: a combination all of whose points were evaluated gets no
        more turns, and one whose search yields no new points is searched anew. For deterministic
        objectives.
    """

    family: Conditional
    counts: bool

    @cached_property
    def branches(self) -> Branches:
        """Branches of the space."""
        return Branches(self.family)

    @cached_property
    def _sizes(self) -> dict[Combination, float]:
        return {}

    def _size(self, key: Combination) -> float:
        """Return the number of points of a combination.

        Inf with a continuum or further conditions.
        """
        if key not in self._sizes:
            family = self.branches.part(key).family
            conditional = isinstance(family, Conditional)
            self._sizes[key] = (
                1.0
                if family is None
                else math.inf
                if conditional
                else number_of_points(family)
            )
        return self._sizes[key]

    def begin(self, theta: Array, archive: Archive) -> BranchTurns:
        """Return the state before the first turn, with all evaluations so far."""
        k = len(self.branches.each)
        return self.count(
            BranchTurns(theta, (0,) * k, (math.inf,) * k, {}),
            archive.x(),
            archive.f,
        )

    def count(self, turns: BranchTurns, x: Points, f: Array) -> BranchTurns:
        """Return the state with new best values of the branches, and the points evaluated."""
        best = list(turns.best)
        seen = dict(turns.seen)
        # Before _size, which is slow
        finite = ~(self.family.active(x) & (self.family.counts == 0)).any(
            axis=1
        )
        rows = zip(
            x, self.family.indices(x), finite.tolist(), f.tolist(), strict=True
        )
        for row, point, is_finite, value in rows:
            # A value counts for each branch of its combination.
            key = self.branches.combination_of(row)
            for branch in self.branches.contained(key):
                best[branch] = (
                    min(best[branch], value) if value == value else best[branch]
                )
            if self.counts and is_finite and self._size(key) <= COUNTED:
                seen[key] = seen.get(key, Seen()).add(point.tobytes())
        return turns._replace(best=tuple(best), seen=seen)

    def spend(
        self, turns: BranchTurns, key: Combination, evaluations: int
    ) -> BranchTurns:
        """Return the state with the evaluations of a combination counted.

        Points of another one come from a replacement, such as a repair, and count for its least
        searched branch.
        """
        # Points of another combination come from a repair; they count for its branch with the
        # fewest turns.
        branch = turns.branch
        if key != turns.combination:
            branch = min(self.branches.contained(key), key=turns.n.__getitem__)
        n = (
            *turns.n[:branch],
            turns.n[branch] + evaluations,
            *turns.n[branch + 1 :],
        )
        return turns._replace(n=n)

    def next(self, turns: BranchTurns, key: int) -> BranchTurns:
        """Return the state with the next turn.

        The random numbers of the other branches of the combination are those of the stream with
        this key: the same for all seeds, since `lam` depends on the combination and draws nothing.
        """
        # θ of a branch column follows the shares of its branches.
        shares = self._shares(turns)
        turns = turns._replace(
            theta=self.branches.weighted(turns.theta, shares)
        )
        # The branch with the fewest evaluations relative to its share comes first.
        order = sorted(
            range(len(shares)),
            key=lambda branch: turns.n[branch] / shares[branch],
        )
        stream = Stream(key)
        u = self._uniforms(stream)
        for branch in order:
            combination = self.branches.combine(branch, turns.best, u)
            if not self._exhausted(turns, combination):
                return turns._replace(branch=branch, combination=combination)
        for _ in range(TRIED):
            u = self._uniforms(stream)
            # All combinations of the best branch are exhausted, it seems: draw others from the
            # prior.
            u[:, 0] = 0.0  # all from the prior
            combination = self.branches.combine(order[0], turns.best, u)
            if not self._exhausted(turns, combination):
                break
        return turns._replace(branch=order[0], combination=combination)

    def _uniforms(self, stream: Stream) -> Array:
        nodes = len(self.branches.columns)
        return np.ldexp(stream.words(2 * nodes).astype(float), -64).reshape(
            nodes, 2
        )

    def _shares(self, turns: BranchTurns) -> list[float]:
        """Return the share of each branch in the evaluations of its column.

        The r-th best branch has the weight 1/r times its prior probability.
        """
        shares = [0.0] * len(turns.n)
        for of_node in self.branches.of_node:
            ranked = enumerate(
                sorted(of_node, key=lambda branch: turns.best[branch]), start=1
            )
            # Zipf's law: weight 1/r for rank r, times the prior
            weights = {
                branch: self.branches.each[branch].prior / rank
                for rank, branch in ranked
            }
            total = sum(weights.values())
            for branch, weight in weights.items():
                shares[branch] = weight / total
        return shares

    def _exhausted(self, turns: BranchTurns, key: Combination) -> bool:
        """Return whether all points of a combination were evaluated."""
        return key in turns.seen and len(turns.seen[key].points) >= self._size(
            key
        )

    def restarted(
        self, turns: BranchTurns, key: Combination
    ) -> BranchTurns | None:
        """Return the state with one more restart of a combination, or None.

        A combination restarts when its search yields no new points.
        """
        seen = turns.seen.get(key)
        if seen is None or seen.repeats < REPEATS:
            return None
        return turns._replace(
            seen={
                **turns.seen,
                key: seen._replace(repeats=0, restarts=seen.restarts + 1),
            }
        )

    def data(self, turns: BranchTurns) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "theta": text(turns.theta),
            "n": list(turns.n),
            "best": text(np.array(turns.best)),
            "seen": [
                [
                    list(key),
                    b64encode(b"".join(sorted(seen.points))).decode(),
                    seen.repeats,
                    seen.restarts,
                ]
                for key, seen in turns.seen.items()
            ],
            "branch": turns.branch,
            "combination": list(turns.combination),
        }

    def turns_of(self, data: Any) -> BranchTurns:
        """Return the state that `data` described.

        ValueError, TypeError or LookupError for other data.
        """
        n = tuple(map(whole, listed(data, "n")))
        best = floats(data, "best")
        k = len(self.branches.each)
        if len(n) != k or len(best) != k or np.isnan(best).any():
            raise ValueError(f"n: expected numbers for {k} branches")
        width = self.family.variables * self.family.dtype.itemsize
        seen = {}
        for key, points, repeats, restarts in listed(data, "seen"):
            rows = packed_rows(octets({"points": points}, "points"), width)
            seen[self.combination(key)] = Seen(
                frozenset(row.tobytes() for row in rows),
                whole(repeats),
                whole(restarts),
            )
        key = self.combination(data["combination"])
        branch = whole_at(data, "branch")
        if branch not in self.branches.contained(key):
            raise ValueError(
                "branch: expected one that the combination contains"
            )
        return BranchTurns(
            theta_of(self.family, data),
            n,
            tuple(best.tolist()),
            seen,
            branch,
            key,
        )

    def combination(self, data: Any) -> Combination:
        """Return a combination of plain data; ValueError if the space has no such."""
        if not isinstance(data, list) or not all(
            type(code) is float for code in data
        ):
            raise ValueError("combination: expected a list of codes")
        if not self.branches.has(tuple(data)):
            raise ValueError(
                f"combination: expected one of this space, got {shown(data)}"
            )
        return tuple(data)
