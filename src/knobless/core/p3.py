"""P3, the parameter-less population pyramid, for deterministic objectives.

Each individual starts at a random point, is improved by local search (single changes of a
variable), and joins the lowest level of a pyramid of populations. It is then crossed with each
level in turn: it takes over groups of variables (`linkage.py`) from points of the level and keeps
changes that are not worse. Whenever a level has improved it, it joins the next one. There is no
population size: the pyramid grows with the search.

The groups are those of the linkage tree of the level, as in the original, and in every second
crossing neighboring variables instead.

The local search differs from the original, which stops where no single change is better. Here it
also accepts equal neighbors and continues for as many steps as led to the last improvement, at
least 4 N ln N for N neighbors (N ln N is the expected number of draws until each has been drawn),
unless all neighbors are worse. It thereby crosses plateaus. When all variables were changed without
an improvement, one point combines what was better on average: each variable takes the option with
the lowest sum of the differences in value so far.

Several points can be evaluated at the same time, by as many climbers. They share the first
individual: they evaluate different neighbors of the same point, and the better ones are combined.
After that, each climber has an individual of its own, all in one pyramid.

A change of one bit of a subset may lead out of the bounds of its size. It is then an exchange: the
bit changes together with a random one of the other value. For a range of sizes, every second change
within the bounds is an exchange too. A crossing changes further bits of the subset, outside of the
group, first those that differ from the other point.

An individual is a coroutine that yields points and is sent their values. A point that is yielded
twice is answered from a cache, so the objective must be deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from knobless._checks import positive_int

from .algorithm import AlgorithmInfo
from .archive import Archive
from .conditional import Conditional
from .data import floats, text, theta_of, whole
from .families import Family, SizeBounds, checked_family
from .linkage import Pairs, VariableGroup, segments
from .rng import RNG, Stream
from .subset import number_of_points, resized
from .types import Array, Indices, Points

ROUNDS = 4  # times N ln N steps without an improvement end a local search
SKIPPED = 1000  # cached points in a row after which one is evaluated again

Individual = Generator[Points, float, None]
Batches = Generator[list[bytes], list[float], None]
KeyedPoint = tuple[bytes, bytes]  # the digest of a point, and its bytes


@dataclass(frozen=True)
class P3:
    """Parameter-less population pyramid, for bits, choices and subsets.

    Each individual starts at a random point, is improved by local search, and is then crossed with
    the levels of a pyramid of populations; a level that improves it moves it one level up.

    Parameters
    ----------
    family : Family
        Family of the points, without numbers.
    climbers : int
        Number of points per iteration. The first individual is improved by all climbers, later ones
        by one each.

    Raises
    ------
    TypeError
        If the family contains numbers or conditional variables.

    References
    ----------
    Goldman, B. W. and Punch, W. F. (2014). Parameter-less population pyramid. GECCO 2014.

    Examples
    --------
    >>> import knobless as kl
    >>> from knobless.algorithms import P3
    >>> space = kl.Binary(20)
    >>> p3 = P3(kl.Space.of(space).family)
    >>> result = kl.minimize(
    ...     lambda x: int((1 - x).sum()), space, budget=2000, algorithm=p3, target=0, rng=0
    ... )
    >>> result.fun, result.nfev
    (0.0, 20)
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
        if not self.family.options.all():
            numbers = int((self.family.options == 0).sum())
            remedy = (
                "pbil_elitist and pbil_lambda also take integers and floats"
            )
            expected = "bits, choices and subsets only"
            raise TypeError(
                f"family: expected {expected}, got {numbers} integers or floats; {remedy}"
            )
        positive_int("climbers", self.climbers)

    def init(
        self,
        theta: Array | None = None,
        x0: Points | None = None,
        archive: Archive | None = None,
    ) -> Pyramid:
        """Return the state before the first iteration."""
        initial = self.family.initial()
        theta = (
            initial
            if theta is None
            else self.family.move(theta, np.zeros(len(initial)))
        )
        return Pyramid(self.family, theta, x0, self.climbers)

    def lam(self, state: Pyramid) -> int:
        """Return the number of individuals."""
        return self.climbers

    def ask(
        self, state: Pyramid, rng: RNG, size: int | None = None, start: int = 0
    ) -> Points:
        """Return the pending points from index `start` on, then random points up to `size`."""
        rng = rng if isinstance(rng, Stream) else Stream.of(rng)
        if state.stream is None:
            state.begin(rng.word())
        points = state.pending  # read-only
        size = len(points) if size is None else size
        if start or size != len(points):
            points = points[start : start + size]
        n_random = size - len(points)
        if n_random:
            return np.concatenate(
                [points, self.family.sample(state.theta, n_random, rng)]
            )
        return points

    def skip(
        self, state: Pyramid, rng: Stream, size: int, start: int = 0
    ) -> None:
        """Begin, and advance the stream, as `ask` does."""
        if state.stream is None:
            state.begin(rng.word())
        rng.skip(
            max(start + size - max(len(state.pending), start), 0),
            self.family.words,
        )

    def tell(self, state: Pyramid, x: Points, f: Array) -> Pyramid:
        """Return the state after an iteration; the given state is modified."""
        if state.stream is None:  # points that it has not asked for
            return state
        values = f[: self.climbers].tolist()
        for i, value in enumerate(values):
            if value != value:
                values[i] = math.inf
        if len(values) < self.climbers:  # cancelled points count as failures
            told_values = iter(values)
            rows = iter(x)
            values = []
            row = next(rows, None)
            for wanted in state.pending:
                has_value = row is not None and (row == wanted).all()
                values.append(next(told_values) if has_value else math.inf)
                row = next(rows, None) if has_value else row
        state.tell(values)
        return state

    def inject(self, state: Pyramid, x: Points, f: float) -> Pyramid:
        """Return the same state: points of other algorithms are not used."""
        return state

    def can_yield(self, state: Pyramid) -> bool:
        """Return whether an individual has just finished."""
        return state.can_yield

    def info(self, state: Pyramid) -> AlgorithmInfo:
        """Return θ and the number of individuals; ε and the signal-to-noise ratio are NaN."""
        return AlgorithmInfo(
            state.theta, self.climbers, math.nan, float(self.climbers), math.nan
        )

    def at_least(self, lam: int) -> Self:
        """Return the same algorithm with at least `lam` individuals."""
        return replace(self, climbers=max(self.climbers, lam))

    def data(self, state: Pyramid) -> dict[str, Any]:
        """Return the state as plain data: what it is rebuilt from."""
        key = None if state.stream is None else state.stream.key
        return {
            "theta": text(state.first),
            "key": key,
            "told": text(np.array(state.told)),
        }

    def restore(self, state: Pyramid, data: Any) -> Pyramid:
        """Return the state that `data` described."""
        key, values = told_of(data, self.climbers)
        return Pyramid(
            self.family, theta_of(self.family, data), state.x0, self.climbers
        ).again(key, values)


def told_of(data: Any, climbers: int) -> tuple[int | None, list[float]]:
    """Return the key of the random numbers and the values of all climbers.

    ValueError for other data.
    """
    key = data["key"]
    values = floats(data, "told")
    if (
        (key is None and len(values))
        or len(values) % climbers
        or np.isnan(values).any()
    ):
        raise ValueError("told: expected the values of all climbers")
    return None if key is None else whole(key, most=2**64 - 1), values.tolist()


class Level:
    """One population of the pyramid, with its linkage tree."""

    def __init__(self, options: Indices) -> None:
        self.points: list[Points] = []
        self._pairs = Pairs(options)
        self._tree: list[VariableGroup] | None = None

    def add(self, x: Points) -> None:
        """Add a point."""
        self.points.append(x.copy())
        self._pairs.add(x)
        self._tree = None

    def tree(self, stream: Stream) -> list[VariableGroup]:
        """Return the groups of the linkage tree, which is rebuilt after each new point."""
        if self._tree is None:
            self._tree = self._pairs.tree(stream)
        return self._tree


class Pyramid:
    """State of P3: the populations and the current individuals; modified in place by `tell`.

    Notes
    -----
    Coroutines cannot be copied. A copy is rebuilt from the key of the random numbers and all values
    told so far.
    """

    def __init__(
        self, family: Family, theta: Array, x0: Points | None, climbers: int
    ) -> None:
        self.family = family
        self.first = theta
        self.climbers = climbers
        self.options = family.options
        changes = [
            (i, by)
            for i, k in enumerate(self.options.tolist())
            for by in range(1, k)
        ]
        self.changes = np.array(changes).reshape(-1, 2)  # all single changes
        self.size_bounds = family.size_bounds
        self.bounds_of = {
            i: bounds
            for bounds in self.size_bounds
            for i in range(bounds.columns.start, bounds.columns.stop)
        }
        # Steps without an improvement that end a local search. Over a subset nothing else ends it,
        # because not all exchanges are tried.
        rounds = 1 if self.bounds_of else ROUNDS
        self.patience = rounds * coupon_draws(len(changes))
        self._type = family.dtype
        self._variables = family.variables
        self.x0 = None if x0 is None else x0.astype(self._type)
        self.stream: Stream | None = None
        self.levels: list[Level] = []
        self.members: set[bytes] = set()
        self.individuals = 0  # begun so far
        self._sum = np.zeros(len(theta))  # sum of the statistics of all members
        self._theta: Array | None = None  # None after a change of the members
        self.told: list[float] = []
        self.can_yield = False  # whether an individual has just finished
        # By the digests of points, which are long
        self.values: dict[bytes, float] = {}
        self._n_points = number_of_points(family)
        self._individuals: list[Individual] = []
        # The first individual, as long as all climbers work on it
        self._first: Batches | None = None
        self._want([])

    def begin(self, key: int) -> None:
        """Start all climbers with the key of the random numbers.

        Several climbers improve one individual together, a single one has its own.
        """
        self.stream = Stream(key)
        if self.climbers > 1:
            self._first = climb_together(self, self.stream)
            self._want(_keyed(next(self._first)))
        else:
            self._start(self.x0)

    def _start(self, x0: Points | None) -> None:
        """Start one individual per climber, the first one at x0."""
        self._individuals = [
            self._new_individual(None if i else x0)
            for i in range(self.climbers)
        ]
        self._want([self._next(i, None) for i in range(self.climbers)])

    def _new_individual(self, x0: Points | None) -> Individual:
        return individual(self, self.stream, x0)  # type: ignore[arg-type]

    def tell(self, values: list[float]) -> None:
        """Send the values of the pending points to the individuals."""
        self.can_yield = False
        self.told += values
        if len(values) == 1:  # in less time than by the loops below
            self.values[self._keys[0]] = values[0]
            self._want([self._next(0, values[0])])
            return
        self.values |= zip(self._keys, values, strict=True)
        if self._first is None:
            self._want([self._next(i, value) for i, value in enumerate(values)])
            return
        try:
            self._want(_keyed(self._first.send(values)))
        except StopIteration:
            # The first individual is in the pyramid: from here on one for each climber.
            self._first = None
            self.can_yield = True
            self._start(None)

    def random(self, stream: Stream) -> Points:
        """Return a point of the initial distribution."""
        words = stream.words(self.family.words)
        u = (words >> np.uint64(32)).astype(np.uint32)
        x: Points = self.family.draw(self.first, u[None])[0]
        return x

    def _want(self, points: list[KeyedPoint]) -> None:
        """Set the pending points, as a read-only array."""
        self._keys = [key for key, _ in points]
        data = b"".join([point for _, point in points])
        self.pending: Points = np.ndarray(
            (len(points), self._variables), self._type, data
        )

    def _next(self, i: int, value: float | None) -> KeyedPoint:
        """Return the next point of individual i, after its last point had this value."""
        # Points of the cache cost no evaluation. After many in a row one is evaluated again, so
        # that this ends where nothing new can be found.
        for _ in range(1 if self._knows_all else SKIPPED):
            try:
                x = self._individuals[i].send(value)  # type: ignore[arg-type]
            except StopIteration:
                self._individuals[i] = self._new_individual(None)
                x = next(self._individuals[i])
                self.can_yield = True
            point = x.tobytes()
            key = digest(point)
            known = self.values.get(key)
            if known is None:
                break
            value = known
        return key, point

    @property
    def _knows_all(self) -> bool:
        """Whether all points have values, so that several climbers find no new one."""
        return self.climbers > 1 and len(self.values) >= self._n_points

    def join(self, level: int, x: Points) -> None:
        """Add a point to a level, unless the pyramid contains it."""
        if x.tobytes() not in self.members:
            self.members.add(x.tobytes())
            if level == len(self.levels):
                self.levels.append(Level(self.options))
            self.levels[level].add(x)
            self._sum = self._sum + self.family.statistics(x[None])[0]
            self._theta = None

    @property
    def theta(self) -> Array:
        """Mean of the statistics of all members, with the initial θ as one more."""
        if self._theta is None:
            # θ = (θ₀ + Σ T(x)) / (1 + m) for m members
            mean = (self.first + self._sum) / (1 + len(self.members))
            self._theta = self.family.move(self.first, mean - self.first)
        return self._theta

    def copy(self) -> Pyramid:
        """Return a copy that does not change with this state."""
        key = None if self.stream is None else self.stream.key
        return self.again(key, self.told)

    def again(self, key: int | None, values: list[float]) -> Pyramid:
        """Return a pyramid with the same start, after these values were told."""
        copy = Pyramid(self.family, self.first, self.x0, self.climbers)
        if key is not None:
            copy.begin(key)
            for i in range(0, len(values), self.climbers):
                copy.tell(values[i : i + self.climbers])
        return copy


def _keyed(points: list[bytes]) -> list[KeyedPoint]:
    return [(digest(point), point) for point in points]


def digest(point: bytes) -> bytes:
    """Return 16 bytes that identify a point.

    Different points have equal bytes with probability 2⁻¹²⁸.
    """
    return blake2b(point, digest_size=16).digest()


def coupon_draws(n: int) -> float:
    """Return n ln n.

    This is about the expected number of draws until each of n things has been drawn (the coupon
    collector's problem).
    """
    return n * math.log(n) if n > 1 else 1.0


def individual(
    pyramid: Pyramid, stream: Stream, x0: Points | None
) -> Individual:
    """Improve x0, or else a random point, by local search and by all levels of the pyramid."""
    pyramid.individuals += 1
    number = pyramid.individuals
    # In any case, so that the other random numbers do not depend on x0
    x = pyramid.random(stream)
    x = x if x0 is None else x0.copy()
    f = yield x
    f = yield from climb(x, f, pyramid, stream)
    pyramid.join(0, x)
    # Goldman and Punch (2014), algorithm 3: cross with each level from the lowest up, and join the
    # level above where a crossing has improved the individual.
    for i, level in enumerate(pyramid.levels):  # the list may grow meanwhile
        before = f
        neighboring = (number + i) % 2 == 0 and len(x) >= 4
        groups = segments(len(x), stream) if neighboring else level.tree(stream)
        f = yield from cross(
            x, f, groups, level.points, stream, pyramid.size_bounds
        )
        if f < before:
            pyramid.join(i + 1, x)


def climb_together(pyramid: Pyramid, stream: Stream) -> Batches:
    """Improve the first individual by local search, with all climbers at once.

    All better neighbors of a point are combined to the next point, which is evaluated together with
    neighbors of its own. If it is worse than the best of them, the search continues from that one.
    """
    n = len(pyramid.changes)
    patience = pyramid.patience
    x = best = pyramid.random(stream) if pyramid.x0 is None else pyramid.x0
    f = math.inf  # value of the best point
    steps = 0  # single changes tried so far
    up = 0  # single changes tried until the last improvement
    first = x.tolist()  # options that the changes are relative to
    order: list[int] = []  # the next changes, last one first
    worse: set[int] = set()  # changes of x that lead to worse points
    # As many steps without an improvement as led to the last one end the search, at least
    # `patience`.
    while steps - up < max(patience, up):
        if len(worse) == n:
            if not pyramid.bounds_of:
                break  # x is a local optimum
            worse.clear()  # of a subset, not all exchanges have been tried
        # The batch: the new point x itself, and different neighbors of it.
        batch = [] if digest(x.tobytes()) in pyramid.values else [x]
        tried: dict[int, Points] = {}
        while len(batch) < pyramid.climbers and len(worse) + len(tried) < n:
            order = order or stream.permutation(n).tolist()
            change = order.pop()
            if change not in worse and change not in tried:
                tried[change] = y = x.copy()
                i, by = pyramid.changes[change].tolist()
                y[i] = other_option(
                    int(x[i]), first[i], by, int(pyramid.options[i])
                )
                if i in pyramid.bounds_of:
                    exchanged(y, i, pyramid.bounds_of[i], stream)
                if digest(y.tobytes()) not in pyramid.values:
                    batch.append(y)
        if batch:
            # Climbers without a neighbor evaluate random points.
            n_random = pyramid.climbers - len(batch)
            batch += [pyramid.random(stream) for _ in range(n_random)]
            yield [y.tobytes() for y in batch]
        steps += len(tried)
        value = {
            change: pyramid.values[digest(y.tobytes())]
            for change, y in tried.items()
        }
        value_of_x = pyramid.values[digest(x.tobytes())]
        last = f
        # Equal values are accepted, which crosses plateaus.
        if value_of_x <= f:
            best = x
            f = value_of_x
        lowest = min(tried, key=value.__getitem__, default=None)
        if lowest is not None and value[lowest] <= f:
            best = tried[lowest]
            f = value[lowest]
        if f < last:
            up = steps
        if best is x:
            worse.update(tried)
            continue
        better = [
            change for change in tried if value[change] < value_of_x <= last
        ]
        if len(better) > 1:
            combined = x.copy()
            # Of one variable, the best one last
            for change in sorted(better, key=value.__getitem__, reverse=True):
                np.copyto(combined, tried[change], where=tried[change] != x)
            if pyramid.size_bounds:
                cost = stream.words(len(x)).astype(float)
                combined = resized(
                    combined[None], pyramid.size_bounds, cost[None]
                )[0]
            x = combined
        else:
            x = best
        worse.clear()
    pyramid.join(0, best)


def climb(
    x: Points, f: float, pyramid: Pyramid, stream: Stream
) -> Generator[Points, float, float]:
    """Accept single changes in random order that are not worse, until there is no more progress."""
    changes = pyramid.changes
    options = pyramid.options.tolist()
    bounds_of = pyramid.bounds_of
    patience = pyramid.patience
    # Sums of differences in value, by variable and option
    effects = [[0.0] * k for k in options]
    steps = 0  # single changes tried so far
    up = 0  # single changes tried until the last improvement
    moved = True
    # Otherwise all neighbors are worse; of a subset, not all exchanges have been tried
    while moved or bounds_of:
        moved = False
        begun = steps
        first = x.tolist()
        # One round: all single changes in random order.
        for i, by in changes[stream.permutation(len(changes))].tolist():
            old = int(x[i])
            x[i] = new = other_option(old, first[i], by, options[i])
            exchanged_bit = (
                exchanged(x, i, bounds_of[i], stream)
                if i in bounds_of
                else None
            )
            value = yield x
            steps += 1
            # What the two options contribute to the value, as seen at the current point.
            difference = value - f
            if math.isfinite(difference):
                effects[i][new] += difference
                effects[i][old] -= difference
            if value < f:
                up = steps
            if value <= f:
                f = value
                moved = True
            else:
                x[i] = old
                if exchanged_bit is not None:
                    x[exchanged_bit] = 1 - old
            if steps - up >= max(patience, up):
                return f
        if up <= begun and not bounds_of:
            # The round improved nothing: try the point of the options that were better on average.
            before = x.copy()
            x[:] = [
                best_option(effect, old)
                for effect, old in zip(effects, x.tolist(), strict=True)
            ]
            if (x != before).any():
                value = yield x
                steps += 1
                if value < f:
                    f = value
                    moved = True
                    up = steps
                else:
                    x[:] = before
    return f


def other_option(current: int, first: int, by: int, options: int) -> int:
    """Return the option for a change, which is relative to an earlier option `first`.

    Thus all options are tried, also after a change to an equal value was accepted.
    """
    option = (first + by) % options
    return option if option != current else first


def best_option(effects: Sequence[float], current: int) -> int:
    """Return the option with the lowest sum, the current one in case of ties with it."""
    lowest = min(effects)
    return effects.index(lowest) if lowest < effects[current] else current


def exchanged(
    x: Points, i: int, bounds: SizeBounds, stream: Stream
) -> int | None:
    """Change another bit of a subset after bit i, and return its index.

    This is done if the size of the subset needs it, and otherwise in every second case; None if no
    bit was changed.
    """
    columns, low, high = bounds
    bits = x[columns]
    admissible = low <= int(bits.sum()) <= high
    if admissible and stream.below(2):
        return None
    start = columns.start
    candidates = [
        j for j in (bits == x[i]).nonzero()[0].tolist() if j != i - start
    ]
    if not candidates:
        return None
    partner = start + candidates[stream.below(len(candidates))]
    x[partner] = 1 - x[partner]
    return partner


def cross(
    x: Points,
    f: float,
    groups: list[VariableGroup],
    points: list[Points],
    stream: Stream,
    size_bounds: Sequence[SizeBounds],
) -> Generator[Points, float, float]:
    """Take over groups of variables from the points of a level, smallest groups first.

    Each group comes from a random one of the points that differ in it.
    """
    donors = np.array(points)
    sizes = np.array([len(group) for group in groups], dtype=np.intp)
    # Smallest groups first; groups of one size in random order.
    order = np.lexsort((stream.words(len(groups)), sizes))
    for i in order.tolist():
        group = groups[i]
        old = x.copy()
        differs = (donors.take(group, axis=1) != x[group]).any(axis=1)
        differ = differs.nonzero()[0]
        if not len(differ):
            continue
        donor = donors[differ[stream.below(len(differ))]]
        x[group] = donor[group]
        if size_bounds:
            # Restore the size of the subset by bits outside of the group, first by those that
            # differ from the donor; a random part in [0, 1) breaks ties.
            u = np.ldexp(stream.words(len(x)).astype(float), -64)
            cost = (x == donor) + u
            cost[group] = math.inf
            x[:] = resized(x[None], size_bounds, cost[None])[0]
        value = yield x
        if value <= f:
            f = value
        else:
            x[:] = old
    return f
