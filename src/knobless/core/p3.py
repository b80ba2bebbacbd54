"""P3, the parameter-less population pyramid of Goldman and Punch (2014): points climb, then cross, level by level.

Each point begins at random, climbs by single changes, and joins the lowest level of a pyramid. Then it is crossed with
each level in turn: it takes over groups of variables that belong together there (`linkage.py`) from members of the
level, and keeps what is no worse. Whenever a level has made it better, it joins the next one. There is no population
size: the pyramid grows with the search.

One thing differs from the original, whose climbers stop where no single change is better. Here they also step to
neighbours that are equal, and go on for as long again as it took to get there, at least N ln N steps for N neighbours:
as long as it takes to draw each of them, unless all of these are worse. A plateau is then crossed rather than taken for
a peak.

An individual is a coroutine: it yields the points it wants to know and is sent their values. What it asks twice is
answered from memory. So P3 is for objectives where equal points have equal values.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import positive_int

from .algorithm import AlgorithmInfo
from .families import Family
from .linkage import Group, Pairs
from .rng import RNG, Stream
from .types import Array, Points

SKIPPED = 1000  # points in a row answered from memory, after which one is handed out all the same

Individual = Generator[Points, float, None]


@dataclass(frozen=True)
class P3:
    """The pyramid, with as many climbers at once as evaluations run at once: one, unless `batch` asks for more."""

    family: Family
    climbers: int = 1

    def __post_init__(self) -> None:
        if not self.family.options.all():
            raise TypeError(f"family: expected bits and choices, got {self.family!r:.200}")
        positive_int("climbers", self.climbers)

    def init(self, theta: Array | None = None, x0: Points | None = None) -> Pyramid:
        theta = self.family.initial() if theta is None else theta
        return Pyramid(self.family, theta, x0, self.climbers)

    def lam(self, state: Pyramid) -> int:
        return self.climbers

    def ask(self, state: Pyramid, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        rng = Stream.of(rng)
        if state.stream is None:
            state.begin(rng.word())
        size = self.climbers if size is None else size
        own = state.pending[start : start + size]  # which nobody can write to
        more = size - len(own)
        return np.concatenate([own, self.family.sample(state.theta, more, rng)]) if more else own

    def tell(self, state: Pyramid, x: Points, f: Array) -> Pyramid:
        values = [value if value == value else math.inf for value in f.tolist()]
        if len(values) < self.climbers:  # those given up are as bad as failures
            told, rows, values = iter(values), iter(x), []
            row = next(rows, None)
            for wanted in state.pending:
                here = row is not None and (row == wanted).all()
                values.append(next(told) if here else math.inf)
                row = next(rows, None) if here else row
        state.tell(values)
        return state

    def inject(self, state: Pyramid, x: Points, f: float) -> Pyramid:
        return state

    def can_yield(self, state: Pyramid) -> bool:
        return state.can_yield

    def info(self, state: Pyramid) -> AlgorithmInfo:
        return AlgorithmInfo(state.theta, self.climbers, math.nan, float(self.climbers), math.nan)

    def at_least(self, lam: int) -> Self:
        return replace(self, climbers=max(self.climbers, lam))


class Level:
    """Points of the pyramid, and the groups of variables that belong together among them."""

    def __init__(self, options: NDArray[np.intp]) -> None:
        self.points: list[Points] = []
        self._pairs = Pairs(options)
        self._tree: list[Group] | None = None

    def add(self, x: Points) -> None:
        self.points.append(x.copy())
        self._pairs.add(x)
        self._tree = None

    def tree(self, stream: Stream) -> list[Group]:
        if self._tree is None:
            self._tree = self._pairs.tree(stream)
        return self._tree


class Pyramid:
    """The state of P3: the levels, and individuals on their way up. It changes as it is told.

    It is what it was told: from the key of its random numbers and from the values, in their order, another is made
    that goes on as this one.
    """

    def __init__(self, family: Family, theta: Array, x0: Points | None, climbers: int) -> None:
        self.family, self.first, self.climbers = family, theta, climbers
        self.options = family.options
        changes = [(i, by) for i, k in enumerate(self.options.tolist()) for by in range(1, k)]
        self.changes = np.array(changes).reshape(-1, 2)
        self._type = family.dtype
        self.x0 = None if x0 is None else x0.astype(self._type)
        self.stream: Stream | None = None
        self.levels: list[Level] = []
        self.members: set[bytes] = set()
        self._sum = np.zeros(len(theta))  # of their statistics
        self.told: list[float] = []
        self.can_yield = False  # whether an individual has just come to its end
        self._values: dict[bytes, float] = {}
        self._individuals: list[Individual] = []
        self._want([])

    def begin(self, key: int) -> None:
        """With the key of its random numbers."""
        self.stream = Stream(key)
        self._individuals = [individual(self, self.stream, None if i else self.x0) for i in range(self.climbers)]
        self._want([self._next(i, None) for i in range(self.climbers)])

    def tell(self, values: list[float]) -> None:
        """The values of what is pending."""
        self.can_yield = False
        self.told += values
        self._values.update(zip(self._wanted, values, strict=True))
        self._want([self._next(i, value) for i, value in enumerate(values)])

    def _want(self, points: list[bytes]) -> None:
        """These are pending, and handed out as they are: nobody can write to them."""
        self._wanted = points
        self.pending: Points = np.frombuffer(b"".join(points), self._type).reshape(-1, len(self.options))

    def _next(self, i: int, value: float | None) -> bytes:
        """The point that climber i wants to know next, if its last one had this value."""
        for _ in range(SKIPPED):
            try:
                x = self._individuals[i].send(value)  # type: ignore[arg-type]
            except StopIteration:
                self._individuals[i] = individual(self, self.stream, None)  # type: ignore[arg-type]
                x = next(self._individuals[i])
                self.can_yield = True
            point = x.tobytes()
            value = self._values.get(point)
            if value is None:
                break
        return point

    def join(self, level: int, x: Points) -> None:
        """A point is a member once."""
        if x.tobytes() not in self.members:
            self.members.add(x.tobytes())
            if level == len(self.levels):
                self.levels.append(Level(self.options))
            self.levels[level].add(x)
            self._sum = self._sum + self.family.statistics(x[None])[0]

    @property
    def theta(self) -> Array:
        """How often each option occurs among the members, and once more as at first."""
        mean = (self.first + self._sum) / (1 + len(self.members))
        return self.family.move(self.first, mean - self.first)

    def copy(self) -> Pyramid:
        return self.again(None if self.stream is None else self.stream.key, self.told)

    def again(self, key: int | None, told: list[float]) -> Pyramid:
        """A pyramid that began as this one and was told these values."""
        other = Pyramid(self.family, self.first, self.x0, self.climbers)
        if key is not None:
            other.begin(key)
            for i in range(0, len(told), self.climbers):
                other.tell(told[i : i + self.climbers])
        return other


def individual(pyramid: Pyramid, stream: Stream, x0: Points | None) -> Individual:
    """From x0, or else a random point, to the top of the pyramid."""
    words = (stream.words(pyramid.family.words) >> np.uint64(32)).astype(np.uint32)
    x = pyramid.family.draw(pyramid.first, words[None])[0] if x0 is None else x0.copy()
    f = yield x
    f = yield from climb(x, f, pyramid, stream)
    pyramid.join(0, x)
    for i, level in enumerate(pyramid.levels):  # which may grow meanwhile
        before = f
        f = yield from cross(x, f, level, stream)
        if f < before:
            pyramid.join(i + 1, x)


def climb(x: Points, f: float, pyramid: Pyramid, stream: Stream) -> Generator[Points, float, float]:
    """Single changes in random order; those that are no worse are kept, as long as that has led up lately."""
    changes, options = pyramid.changes, pyramid.options
    patience = len(changes) * math.log(len(changes)) if len(changes) > 1 else 1.0
    steps = up = 0  # steps made, and those up to the last one that led up
    moved = True
    while moved:  # else all neighbours are worse
        moved = False
        for i, by in changes[stream.permutation(len(changes))].tolist():
            old = int(x[i])  # as a Python integer, which does not overflow
            x[i] = (old + by) % options[i]
            value = yield x
            steps += 1
            if value < f:
                up = steps
            if value <= f:
                f, moved = value, True
            else:
                x[i] = old
            if steps - up >= max(patience, up):
                return f
    return f


def cross(x: Points, f: float, level: Level, stream: Stream) -> Generator[Points, float, float]:
    """Takes over groups, the smallest first, each from some member of the level where it differs."""
    groups = level.tree(stream)
    donors = np.array(level.points)
    sizes = np.array([len(group) for group in groups], dtype=np.intp)
    for i in np.lexsort((stream.words(len(groups)), sizes)).tolist():
        group = groups[i]
        old = x[group]
        theirs = donors.take(group, axis=1)
        differ = (theirs != old).any(axis=1).nonzero()[0]
        if not len(differ):
            continue
        x[group] = theirs[differ[stream.below(len(differ))]]
        value = yield x
        if value <= f:
            f = value
        else:
            x[group] = old
    return f
