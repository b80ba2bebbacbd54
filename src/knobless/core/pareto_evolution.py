"""A genetic algorithm for several objectives, whose population is the front of all evaluations.

A child takes variables of two points of the front: the first is the one of two random ones that is
further from its neighbors, so that gaps are filled, the second one of the neighbors. Numbers move
along the difference of two other points of the front as often, as in differential evolution. Then
each variable changes with probability 1/(2 n). There is no population to size and none to restart.
A front of few points would be a local search, so the next fronts are part of the population until
it has 16 points; of two random ones, that of the better front is the first parent. Of points with
equal values the last one counts: where many points have equal values, the population drifts.

Under noise, the front is that of the means of all evaluations of each point, in which lucky values
come first. So every second evaluation is another one of the point of the front that has the fewest.

It has no state but the archive, so its points depend on the evaluations and one random number each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from knobless._checks import positive_int

from .acquisition import reflected
from .algorithm import AlgorithmInfo
from .archive import Archive
from .conditional import Conditional
from .data import floats, listed, text, whole
from .evolution import theta_around
from .families import Family
from .pareto import Front, Layers, scaled
from .rng import RNG, Stream
from .subset import resized
from .types import Array, Points

# Random points before the first child, and points of the population at least
FIRST = 16
# Points of the front among which the second parent is, as a share of it
NEIGHBORS = 0.1
LEAST_NEIGHBORS = 3  # of these points, at least
CROSSED = 0.5  # children that have two parents
CHANGES = 0.5  # variables of a child that change, on average
LEAST_STEP, MOST_STEP = -3.0, -0.3  # of a number, as powers of 10
# Of the difference of two points, as powers of 10
LEAST_FACTOR, MOST_FACTOR = -1.0, 0.2
RATES = (0.2, 0.9, 1.0)  # of the numbers that move along it
TRIED = 100  # children until one is new
CHILDREN = 16  # at once
# Under noise, one in so many evaluations is another one of a point of the front
AGAIN = 2


class FrontState:
    """State of the algorithm: the front of the first rows of an archive.

    Modified in place by `tell`.

    Attributes
    ----------
    archive : Archive
        All evaluations.
    rows : int
        Number of rows whose front this is.
    layers : Layers
        The population, in terms of the rows; under noise the front of the means of points, in terms
        of these.
    counts : array
        Under noise, how often each point of the front was evaluated.
    """

    def __init__(
        self, archive: Archive, first: Array, x0: Points | None
    ) -> None:
        self.archive = archive
        self.first = first
        self.x0 = x0
        self.rows = 0
        self.layers = Layers(archive.objectives, FIRST)
        self.counts = self.front.rows

    @property
    def front(self) -> Front:
        """The front."""
        return self.layers.fronts[0]

    def update(self, rows: int) -> None:
        """Add the rows of the archive up to a number of them.

        Under noise, take the front of the means.
        """
        if self.archive.deterministic:
            for row, value in enumerate(
                self.archive.outcomes[self.rows : rows], start=self.rows
            ):
                self.layers.add(row, value)
        else:
            points = self.archive.by_point
            self.layers.fronts = [Front.of(points.means, points.feasible)]
            self.counts = points.counts[self.front.rows]
        self.rows = rows

    @property
    def points(self) -> Points:
        """The points of the population, those of the front first."""
        source = (
            self.archive
            if self.archive.deterministic
            else self.archive.by_point
        )
        return source.at(self.layers.rows.tolist())

    @property
    def theta(self) -> Array:
        """Mean of the statistics of the front."""
        front = self.points[: len(self.front)]
        if len(front):
            return theta_around(self.archive.family, self.first, front)
        return self.first

    def is_new(self, x: Points) -> bool:
        """Return whether a point was not evaluated when this was the front."""
        (key,) = self.archive.keys(x[None])
        if not self.archive.deterministic:
            return self.archive.by_point.index(key) is None
        row = self.archive.row(key)
        return row is None or row >= self.rows

    def copy(self, archive: Archive) -> FrontState:
        """Return a state that reads a copy of the archive."""
        copy = FrontState(archive, self.first, self.x0)
        copy.rows, copy.counts, copy.layers = (
            self.rows,
            self.counts,
            self.layers.copy(),
        )
        return copy


@dataclass(frozen=True)
class ParetoEvolution:
    """Genetic algorithm over the front, for variables of any kind.

    Parameters
    ----------
    family : Family
        Family of the points.
    batch : int
        Number of points per iteration.
    """

    family: Family
    batch: int = 1

    # a search adds its evaluations to an archive
    reads_archive: ClassVar[bool] = True
    # It needs no single value by which points rank
    reads_outcomes: ClassVar[bool] = True
    overlaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive_int("batch", self.batch)

    def init(
        self,
        theta: Array | None = None,
        x0: Points | None = None,
        archive: Archive | None = None,
    ) -> FrontState:
        """Return the state before the first iteration, which reads an archive."""
        first = self.family.initial() if theta is None else theta
        return FrontState(
            Archive(self.family) if archive is None else archive, first, x0
        )

    def lam(self, state: FrontState) -> int:
        """Return the number of points of an iteration."""
        return self.batch

    def ask(
        self,
        state: FrontState,
        rng: RNG,
        size: int | None = None,
        start: int = 0,
    ) -> Points:
        """Return random points at first, then children of the front."""
        rng = rng if isinstance(rng, Stream) else Stream.of(rng)
        size = self.batch if size is None else size
        if not start:
            state.update(len(state.archive))
        parents = state.points
        points = [
            self._point(state, parents, start + i, rng.word())
            for i in range(size)
        ]
        return np.array(points, dtype=self.family.dtype).reshape(
            size, self.family.variables
        )

    def skip(
        self, state: FrontState, rng: Stream, size: int, start: int = 0
    ) -> None:
        """Advance the stream as `ask` does."""
        if not start:
            state.update(len(state.archive))
        rng.skip(size, 2)

    def _point(
        self, state: FrontState, parents: Points, i: int, word: int
    ) -> Points:
        """Return the point with index i of an iteration, new if possible."""
        if not state.rows and not i and state.x0 is not None:
            return state.x0.astype(self.family.dtype)
        stream = Stream(word)
        x: Points = self.family.sample(state.first, 1, stream)[0]
        if state.rows + i < FIRST or not len(parents):
            return x
        if (
            not state.archive.deterministic
            and (state.archive.n + i) % AGAIN == 0
        ):
            fewest = np.argsort(state.counts, kind="stable")
            return parents[fewest[i // AGAIN % len(fewest)]]
        g = np.random.default_rng(word)
        random = x
        for _ in range(TRIED):
            x = self._child(state, parents, random, g)
            if state.is_new(x):
                break
            random = self.family.sample(state.first, 1, stream)[0]
        return x

    def children(self, state: FrontState, g: np.random.Generator) -> Points:
        """Return some children of the population."""
        parents = state.points
        random = self.family.sample(state.first, CHILDREN, g)
        return np.array(
            [self._child(state, parents, is_random, g) for is_random in random]
        )

    def _child(
        self,
        state: FrontState,
        parents: Points,
        random: Points,
        g: np.random.Generator,
    ) -> Points:
        """Return a child of the population, with inactive variables of a random point."""
        family = self.family
        k, n = parents.shape
        first, second = self._pair(state.layers, g)
        x = parents[first].copy()
        mate = parents[second]
        if isinstance(family, Conditional):
            x = np.where(family.active(x[None])[0], x, random)
            mate = np.where(family.active(mate[None])[0], mate, x)
        numbers = family.options == 0
        if k > 1 and g.random() < CROSSED:
            taken = g.random(n) < 0.5
            if numbers.any() and g.random() < 0.5:
                a, b = parents[g.integers(k, size=2)]
                moved = g.random(n) < RATES[g.integers(len(RATES))]
                factor = 10.0 ** g.uniform(LEAST_FACTOR, MOST_FACTOR)
                x = np.where(
                    numbers,
                    np.where(moved, x + factor * (a - b), x),
                    np.where(taken, mate, x),
                )
            else:
                x = np.where(taken, mate, x)
        changed = g.random(n) < CHANGES / n
        if not changed.any() and (
            (x == parents[first]).all() or (x == mate).all()
        ):
            changed[g.integers(n)] = True
        step = 10.0 ** g.uniform(LEAST_STEP, MOST_STEP) * g.standard_normal(n)
        smallest = np.where(
            family.counts > 0, 1.0 / np.maximum(family.counts, 1), 0.0
        )
        step = np.where(
            np.abs(step) < smallest, np.copysign(smallest, step), step
        )
        by = 1 + (g.random(n) * np.maximum(family.options - 1, 1)).astype(
            np.intp
        )
        other_value = np.where(
            numbers, x + step, (x + by) % np.maximum(family.options, 1)
        )
        x = np.where(changed, other_value, x)
        x = np.where(numbers, reflected(x), x).astype(family.dtype)[None]
        if family.size_bounds:
            x = resized(x, family.size_bounds, g.random((1, n)) + changed)
        return (family.canonical(x) if isinstance(family, Conditional) else x)[
            0
        ]

    @staticmethod
    def _pair(layers: Layers, g: np.random.Generator) -> tuple[int, int]:
        """Return the indices of two parents.

        One is of the better front, or in a gap of it; the other is one of its neighbors.
        """
        level = layers.level
        values = scaled(layers.values, layers.values)
        k = len(level)
        near = min(max(LEAST_NEIGHBORS, int(NEIGHBORS * k)), k - 1)
        best: tuple[tuple[int, float], int, Any] = ((-k, -math.inf), 0, None)
        for i in g.integers(k, size=2).tolist():
            squares = ((values - values[i]) ** 2).sum(axis=1)
            squares[i] = math.inf
            # An extreme point has neighbors on one side only, and may have a better one on the
            # other.
            gap = (
                math.inf
                if (values[i] <= 0.0).any()
                else float(np.partition(squares, min(1, k - 1))[:2].sum())
            )
            if (rank := (-int(level[i]), gap)) > best[0]:
                best = rank, i, squares
        _, nearest, squares = best
        if not near:
            return nearest, nearest
        return nearest, int(
            np.argpartition(squares, near - 1)[:near][g.integers(near)]
        )

    def tell(self, state: FrontState, x: Points, f: Array) -> FrontState:
        """Return the same state: the archive has the evaluations."""
        return state

    def inject(self, state: FrontState, x: Points, f: float) -> FrontState:
        """Return the same state: the archive has the points of other algorithms."""
        return state

    def can_yield(self, state: FrontState) -> bool:
        """Return True: an iteration depends on the archive alone."""
        return True

    def info(self, state: FrontState) -> AlgorithmInfo:
        """Return θ and λ; ε and the signal-to-noise ratio are NaN."""
        return AlgorithmInfo(
            state.theta, self.batch, math.nan, float(self.batch), math.nan
        )

    def at_least(self, lam: int) -> Self:
        """Return the same algorithm with at least `lam` points per iteration."""
        return replace(self, batch=max(self.batch, lam))

    def data(self, state: FrontState) -> dict[str, Any]:
        """Return the state as plain data, without the archive."""
        if state.archive.deterministic:
            return {"rows": state.rows}
        front = state.front
        means = {
            "values": text(front.values.ravel()),
            "at": front.rows.tolist(),
            "counts": state.counts.tolist(),
        }
        return {"rows": state.rows, **means}

    def restore(self, state: FrontState, data: Any) -> FrontState:
        """Return the state that `data` described, given one of the same archive."""
        archive = state.archive
        rows = whole(data["rows"], most=len(state.archive))
        if archive.deterministic:
            state.update(rows)
            return state
        points = [
            whole(i, most=len(archive.by_point) - 1) for i in listed(data, "at")
        ]
        state.layers.fronts = [Front(archive.objectives)]
        state.rows, state.front.rows = rows, np.array(points, dtype=np.intp)
        state.front.values = floats(data, "values").reshape(
            -1, archive.objectives
        )
        state.counts = np.array(
            [whole(count, least=1) for count in listed(data, "counts")],
            dtype=np.intp,
        )
        if not len(points) == len(state.front.values) == len(state.counts):
            raise ValueError(f"values: expected those of {len(points)} points")
        return state
