"""Coordinate search, for deterministic objectives over spaces with numbers.

A local search from a random point, in sweeps. A sweep visits the variables in random order. Each
other option of a bit or a choice is tried, and kept if it is not worse. Along a number, the search
goes a step forward or back as long as the value improves, with steps that double; when the values
on both sides are worse, it tries the vertex of the parabola through the three points, and the next
sweep begins with a shorter step. The first line of a sweep continues in the direction in which the
last sweep has moved the numbers, which follows valleys that no variable is parallel to.

After the second visit of a bit or a choice, it is left out of one sweep, then of three, seven and
so on, and so is a number whose steps cannot be shortened. Thus many bits that are right do not
delay a few numbers. When a sweep over all variables improves nothing and no step can be shortened,
the point is a local optimum. The next start is drawn from the mean of the statistics of all local
optima and the initial distribution.

Several points can be evaluated at the same time, by as many climbers, which visit different
variables of one point. A change that has improved a point that was left meanwhile is tried again at
the new one.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np

from knobless._checks import positive_int

from .algorithm import AlgorithmInfo
from .archive import Archive, elite_data, elite_of
from .conditional import Conditional
from .data import listed, text, theta_of, whole
from .elitism import Elite
from .families import Family, Product, checked_family
from .gaussian import RESOLUTION, Axis, Gaussian, bounded, cell_widths
from .p3 import exchanged, told_of
from .rng import RNG, Stream
from .types import Array, Points

FIRST_STEP = 0.25  # of a number, relative to its range
LONGEST_WAIT = 2**20  # sweeps between two visits of a variable, at most

Climber = Generator[Points, float, None]
# a column and what is added to its option, or the index of a number and 0
Move = tuple[int, int]
ALONG: Move = (-1, 0)  # the direction of the last sweep


class Injected(NamedTuple):
    """A point of another algorithm.

    Attributes
    ----------
    at : int
        Number of values told before; −1 before the start.
    x : array of shape (variables,)
        The point.
    f : float
        Its value.
    """

    at: int
    x: Points
    f: float


@dataclass(frozen=True)
class CoordinateSearch:
    """Local search along one variable after another, restarted at every local optimum.

    Parameters
    ----------
    family : Family
        Family of the points.
    climbers : int
        Number of points per iteration.

    Raises
    ------
    TypeError
        If the family contains conditional variables, or no numbers.

    References
    ----------
    Hooke, R. and Jeeves, T. A. (1961). "Direct search" solution of numerical and statistical
    problems. Journal of the ACM 8.

    Examples
    --------
    >>> import knobless as kl
    >>> from knobless.algorithms import CoordinateSearch
    >>> space = kl.Float(-2, 2, n=2)
    >>> search = CoordinateSearch(kl.Space.of(space).family)
    >>> def distance(x):
    ...     return (x[0] - 1) ** 2 + (x[1] + 0.5) ** 2
    >>> result = kl.minimize(distance, space, budget=100, algorithm=search, rng=0)
    >>> result.x.round(2).tolist()
    [1.0, -0.5]
    """

    family: Family
    climbers: int = 1

    def __post_init__(self) -> None:
        checked_family(self.family)
        if isinstance(self.family, Conditional):
            raise TypeError(
                "family: expected no conditional variables; pbil_elitist and pbil_lambda also "
                "take these"
            )
        if self.family.options.all():
            raise TypeError(
                "family: expected integers or floats among the variables, got none"
            )
        positive_int("climbers", self.climbers)

    def init(
        self,
        theta: Array | None = None,
        x0: Points | None = None,
        archive: Archive | None = None,
    ) -> Descent:
        """Return the state before the first iteration."""
        initial = self.family.initial()
        theta = (
            initial
            if theta is None
            else self.family.move(theta, np.zeros(len(initial)))
        )
        return Descent(self.family, theta, x0, self.climbers)

    def lam(self, state: Descent) -> int:
        """Return the number of climbers."""
        return self.climbers

    def ask(
        self, state: Descent, rng: RNG, size: int | None = None, start: int = 0
    ) -> Points:
        """Return the pending points from index `start` on, then random points up to `size`."""
        rng = Stream.of(rng)
        if state.stream is None:
            state.begin(rng.word())
        size = self.climbers if size is None else size
        points = state.pending[start : start + size]
        n_random = size - len(points)
        if n_random:
            return np.concatenate(
                [points, self.family.sample(state.theta, n_random, rng)]
            )
        return points.copy()

    def skip(
        self, state: Descent, rng: Stream, size: int, start: int = 0
    ) -> None:
        """Begin, and advance the stream, as `ask` does."""
        if state.stream is None:
            state.begin(rng.word())
        rng.skip(
            max(start + size - max(len(state.pending), start), 0),
            self.family.words,
        )

    def tell(self, state: Descent, x: Points, f: Array) -> Descent:
        """Return the state after an iteration; the given state is modified.

        A pending point without a value, which was cancelled or replaced, counts as a failure. The
        best of the points that were not asked for is injected.
        """
        if state.stream is None:
            return state
        values_left = [
            value if value == value else math.inf for value in f.tolist()
        ]
        values = []
        # Values come in the order of the pending points; a point without a value is skipped.
        row = 0
        for i, wanted in enumerate(state.pending):
            # Up to rounding
            equal = row < len(values_left) and bool(
                (np.abs(x[row] - wanted) <= RESOLUTION).all()
            )
            values.append(values_left[row] if equal else math.inf)
            if equal:
                values_left[row] = math.inf
            # Skip a row that no pending point matches, as long as enough rows remain.
            row += equal or len(values_left) - row >= self.climbers - i
        state.tell(values)
        # What is left are points that were not asked for.
        if values_left and (lowest := min(values_left)) < math.inf:
            state.inject(x[values_left.index(lowest)], lowest)
        return state

    def inject(self, state: Descent, x: Points, f: float) -> Descent:
        """Return the state at a point of another algorithm, if it is better than all before.

        The given is modified.
        """
        state.inject(x, f)
        return state

    def can_yield(self, state: Descent) -> bool:
        """Return True: the search continues where it was."""
        return True

    def info(self, state: Descent) -> AlgorithmInfo:
        """Return θ and the number of climbers; ε and the signal-to-noise ratio are NaN."""
        return AlgorithmInfo(
            state.theta, self.climbers, math.nan, float(self.climbers), math.nan
        )

    def at_least(self, lam: int) -> Self:
        """Return the same algorithm with at least `lam` climbers."""
        return replace(self, climbers=max(self.climbers, lam))

    def data(self, state: Descent) -> dict[str, Any]:
        """Return the state as plain data: what it is rebuilt from."""
        key = None if state.stream is None else state.stream.key
        at, x, f = (
            zip(*state.injected, strict=True)
            if state.injected
            else ((), (), ())
        )
        injected = Elite(
            np.array(x, self.family.dtype).reshape(-1, self.family.variables),
            np.array(f),
        )
        numbers = {
            "theta": text(state.first),
            "key": key,
            "told": text(np.array(state.told)),
            "at": list(at),
        }
        return numbers | {"injected": elite_data(injected, self.family)}

    def restore(self, state: Descent, data: Any) -> Descent:
        """Return the state that `data` described."""
        key, values = told_of(data, self.climbers)
        x, f = elite_of(data["injected"], self.family)
        at = [whole(number, least=-1) for number in listed(data, "at")]
        # A point is injected before the start (−1) or after a whole iteration.
        possible = {-1, *range(0, len(values) + 1, self.climbers)}
        if (
            len(at) != len(f)
            or at != sorted(at)
            or not possible.issuperset(at)
            or np.isnan(f).any()
        ):
            raise ValueError(
                f"at: expected {len(f)} numbers of evaluations in increasing order"
            )
        injected = [
            Injected(*event) for event in zip(at, x, f.tolist(), strict=True)
        ]
        fresh = Descent(
            self.family, theta_of(self.family, data), state.x0, self.climbers
        )
        return fresh.again(key, values, injected)


class Descent:
    """State of the coordinate search; modified in place by `tell` and `inject`.

    Notes
    -----
    Coroutines cannot be copied. A copy is rebuilt from the key of the random numbers, all values
    told so far and all points injected.
    """

    def __init__(
        self, family: Family, theta: Array, x0: Points | None, climbers: int
    ) -> None:
        self.family = family
        self.first = theta
        self.climbers = climbers
        self.x0 = None if x0 is None else x0.astype(family.dtype)
        self.options = family.options
        self.columns = np.flatnonzero(self.options == 0)  # of the numbers
        self.low, self.high, self.cell, self.rate = np.array(
            [astuple(axis)[:4] for axis in axes_of(family)]
        ).T
        self._logarithmic = bool(self.rate.any())
        self.bounds_of = {
            i: bounds
            for bounds in family.size_bounds
            for i in range(bounds.columns.start, bounds.columns.stop)
        }
        self.stream: Stream | None = None
        self.told: list[float] = []
        self.injected: list[Injected] = []
        self.pending: Points = np.empty((0, family.variables), family.dtype)
        self.best = math.inf  # lowest value so far, also of other algorithms
        self._optima: set[bytes] = set()
        # Of the statistics of the local optima
        self._sum = np.zeros(len(theta))
        self._restart()

    def _restart(self) -> None:
        """Drop the current point."""
        n = len(self.options)
        self.x: Points | None = None
        self.f = math.inf
        self.steps = np.full(len(self.columns), FIRST_STEP)  # signed
        self.sweep = 0
        # Next sweep of each variable, and sweeps left out
        self.due, self.waits = np.zeros((2, n), dtype=np.intp)
        self.queue: list[Move] = []
        self.origin: Points | None = None  # the point at which the sweep began
        self.direction = self.steps
        # Whether the sweep has improved the point, and has all variables
        self.improved = self.whole = True

    def begin(self, key: int) -> None:
        """Start all climbers, with the key of the random numbers."""
        self.stream = Stream(key)
        self._climbers = [
            climber(self, self.stream, None if i else self.x0)
            for i in range(self.climbers)
        ]
        self.pending = np.array([next(climber_) for climber_ in self._climbers])

    def tell(self, values: list[float]) -> None:
        """Send the values of the pending points to the climbers."""
        self.told += values
        self.pending = np.array(
            [
                climber_.send(value)
                for climber_, value in zip(self._climbers, values, strict=True)
            ]
        )

    def inject(self, x: Points, f: float) -> None:
        """Continue at a point of another algorithm if it is better than all before."""
        if not f < self.best:
            return
        self.injected.append(
            Injected(-1 if self.stream is None else len(self.told), x.copy(), f)
        )
        # Continue at the injected point, as if a sweep had led to it.
        before = self.x
        self.x = self.within(x)
        self.f = f
        self.best = f
        if before is not None:
            # A step is at least as long as the way to the new point.
            away = np.abs(self.x - before)[self.columns]
            np.copyto(self.steps, away, where=away > np.abs(self.steps))
        self.queue = []
        self.origin = None
        self.improved = True
        # Visit every variable again.
        self.due[:] = self.waits[:] = 0

    def within(self, x: Points) -> Points:
        """Return a point with its numbers in their ranges."""
        x = x.copy()
        x[self.columns] = bounded(x[self.columns], self.low, self.high)
        return x

    def random(self, stream: Stream) -> Points:
        """Return a point from θ."""
        words = (stream.words(self.family.words) >> np.uint64(32)).astype(
            np.uint32
        )
        return self.within(self.family.draw(self.theta, words[None])[0])

    def next_move(self, stream: Stream) -> Move | None:
        """Return the next visit; None if there is no current point."""
        while self.x is not None and not self.queue:
            self._begin_sweep(self.x, stream)
        return self.queue.pop() if self.queue else None

    def _begin_sweep(self, x: Points, stream: Stream) -> None:
        """Fill the queue, or end at a local optimum."""
        # A local optimum: a sweep improved nothing, and no step is longer than a cell.
        idle = (
            not self.improved
            and not (np.abs(self.steps) > self.widths(x)).any()
        )
        if idle and self.whole:
            self._join(x)
            self._restart()
            return
        # Sweeps in which no variable is due are left out.
        self.sweep = max(self.sweep + 1, int(self.due.min()))
        # The last sweep before a local optimum visits all variables.
        visited = (
            np.arange(len(x))
            if idle
            else np.flatnonzero(self.due <= self.sweep)
        )
        changes = [
            (i, by)
            for i in visited.tolist()
            for by in range(1, self.options[i])
        ]
        moves = changes + [
            (int(i), 0) for i in np.flatnonzero(np.isin(self.columns, visited))
        ]
        self.queue = [moves[j] for j in stream.permutation(len(moves)).tolist()]
        if self.origin is not None:
            # Hooke and Jeeves' pattern move: along the way of the last sweep, first of all.
            direction = (x - self.origin)[self.columns]
            if np.count_nonzero(direction) > 1:
                self.direction = direction
                self.queue.append(ALONG)
        # Waits of 0, 1, 3, 7, … sweeps: w ← min(1 + 2 w, LONGEST_WAIT).
        self.due[visited] = self.sweep + 1 + self.waits[visited]
        self.waits[visited] = np.minimum(
            1 + 2 * self.waits[visited], LONGEST_WAIT
        )
        self.origin, self.improved, self.whole = (
            x,
            False,
            len(visited) == len(x),
        )

    def widths(self, x: Points) -> Array:
        """Return the width of the cell of each number, which is its least step."""
        if self._logarithmic:
            return cell_widths(self.cell, self.rate, x[self.columns])
        return self.cell

    def _join(self, x: Points) -> None:
        """Add a local optimum."""
        key = self.family.indices(x[None])[0].tobytes()
        if key not in self._optima:
            self._optima.add(key)
            self._sum = self._sum + self.family.statistics(x[None])[0]

    def go(self, x: Points, f: float, i: int = -1) -> None:
        """Continue at a point that is not worse, found by a visit of variable i."""
        if f < self.f:
            self.improved, self.best = True, min(self.best, f)
            if i >= 0 and not self.options[i]:
                self.revisit(i)
        self.x = x
        self.f = f

    def revisit(self, i: int) -> None:
        """Visit variable i in the next sweep."""
        self.waits[i], self.due[i] = 0, self.sweep + 1

    @property
    def theta(self) -> Array:
        """Mean of the statistics of all local optima, with the initial θ as one more."""
        # θ = (θ₀ + Σ T(x)) / (1 + m) over the m local optima
        mean = (self.first + self._sum) / (1 + len(self._optima))
        return self.family.move(self.first, mean - self.first)

    def copy(self) -> Descent:
        """Return a copy that does not change with this state."""
        return self.again(
            None if self.stream is None else self.stream.key,
            self.told,
            self.injected,
        )

    def again(
        self, key: int | None, values: list[float], injected: Sequence[Injected]
    ) -> Descent:
        """Return a new state that has received these values and injected points."""
        copy = Descent(self.family, self.first, self.x0, self.climbers)
        by_time = groupby(injected, key=lambda event: event.at)
        events = {at: list(group) for at, group in by_time}
        for at in (-1, *range(0, len(values) + 1, self.climbers)):
            # Values and injected points come in the order in which the state received them.
            if at == 0 and key is not None:
                copy.begin(key)
            if at > 0:
                copy.tell(values[at - self.climbers : at])
            for event in events.get(at, ()):
                copy.inject(event.x, event.f)
        return copy


def climber(search: Descent, stream: Stream, x0: Points | None) -> Climber:
    """Visit one variable after another, and start at a random point where there is none."""
    while True:
        move = search.next_move(stream)
        x = search.x
        if move is None or x is None:
            # No current point: start at x0 once, then at random points.
            start = search.random(stream) if x0 is None else search.within(x0)
            x0 = None
            f = yield start
            if f < search.f:
                search.go(start, f)
        elif move[1]:
            yield from change(search, stream, x, *move)
        else:
            yield from line(search, x, move[0])


def change(
    search: Descent, stream: Stream, x: Points, i: int, by: int
) -> Climber:
    """Try another option of variable i."""
    before = search.f
    y = x.copy()
    y[i] = (int(x[i]) + by) % search.options[i]
    if i in search.bounds_of:
        exchanged(y, i, search.bounds_of[i], stream)
    f = yield y
    # Another climber may have moved on meanwhile; after a restart there is no point at all.
    current = before if search.x is None else search.f
    if f < current or f == search.f < math.inf:
        search.go(y, f, i)
    elif f < before:
        # It improved the point that was left: try it again at the new one.
        search.queue.append((i, by))


def line(search: Descent, x: Points, j: int) -> Climber:
    """Go along number j as long as the value improves.

    j = −1 is the direction of the last sweep.
    """
    i = int(search.columns[j]) if j >= 0 else -1
    t = float(search.steps[j]) if j >= 0 else 1.0
    f = search.f
    widths = search.widths(x)
    # Distances from x and values, at most one on each side
    worse: list[tuple[float, float]] = []
    while len(worse) < 2:
        y, t = stepped(search, x, j, t, widths)
        # Outside of the range, or less than half of a cell away: worse than any point.
        value = math.inf if y is None else (yield y)
        left = search.x is not x  # by another climber, or for an injected point
        if y is not None and value < (f if search.x is None else search.f):
            search.go(y, value, i)
            # Forward: the point left is the worse neighbor on the other side, and the step doubles.
            worse = [(-t, f)]
            x = y
            f = value
            t = 2.0 * t
        else:
            worse.append((t, value))
            # Back: try the other side.
            t = -t
        if left:
            if value < f:
                search.queue.append((j, 0))
            elif j >= 0:
                search.revisit(i)
            return
    # Both sides are worse: the minimum of the parabola through the three points.
    v = vertex(worse[0], worse[1], f)
    y, v = stepped(search, x, j, v, widths)
    if y is not None:
        value = yield y
        if value < (f if search.x is None else search.f):
            search.go(y, value, i)
    if j >= 0:
        # The next sweep begins with half of the shorter distance, towards the vertex.
        step = 0.5 * min(abs(worse[0][0]), abs(worse[1][0]))
        search.steps[j] = math.copysign(max(step, widths[j]), v or t)
        if step > widths[j]:
            search.revisit(i)


def stepped(
    search: Descent, x: Points, j: int, t: float, widths: Array
) -> tuple[Points | None, float]:
    """Return x moved by t along number j or the last direction, and the distance moved.

    Instead of a point it returns None if no number would move by half of its cell.
    """
    y = x.copy()
    if j >= 0:  # in plain numbers, which are faster for a single one
        i = search.columns[j]
        y[i] = min(max(x[i] + t, search.low[j]), search.high[j])
        moved = float(y[i] - x[i])
        return (y, moved) if abs(moved) >= 0.5 * widths[j] else (None, t)
    z = x[search.columns]
    d = search.direction
    # Along the direction d the numbers stay in their ranges, so the distance is a projection on d.
    away = bounded(z + t * d, search.low, search.high) - z
    y[search.columns] = z + away
    if (np.abs(away) >= 0.5 * widths).any():
        return (y, float(away @ d / (d @ d)))
    return (None, t)


def vertex(
    left: tuple[float, float], right: tuple[float, float], f: float
) -> float:
    """Return where the parabola through two points and (0, f) between them is lowest.

    0 without one.
    """
    a, fa = left
    b, fb = right
    # Slopes of the secants through (0, f). With f(t) = f + s t + c t²: p = s + c a and q = s + c b.
    p = (fa - f) / a
    q = (fb - f) / b
    if not math.isfinite(p + q):
        return 0.0
    # c = (q − p)/(b − a), and the minimum is at −s/(2c) = (a − p/c)/2.
    curvature = (q - p) / (b - a)
    return 0.5 * (a - p / curvature) if curvature > 0.0 else 0.0


def axes_of(family: Family) -> tuple[Axis, ...]:
    """Return the axes of all numbers, in the order of their columns."""
    match family:
        case Gaussian(axes=axes):
            return axes
        case Product(parts=parts):
            return tuple(axis for part in parts for axis in axes_of(part))
        case Conditional(flat=flat):
            return axes_of(flat)
    return ()
