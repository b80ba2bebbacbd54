"""The genetic algorithm on bits, compiled: `core/evolution.py` as plain loops.

One specification, two implementations: from the same stream, this one draws the same points in the
same order. The population is an order of places; a point that is selected is copied to a free one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from knobless.core.elitism import Elite
from knobless.core.evolution import (
    MOST_IDLE,
    MOST_PER_VARIABLE,
    Evolution,
    EvolutionState,
    last_change,
)
from knobless.core.families import threshold
from knobless.core.rng import GOLDEN, LongWords, Stream
from knobless.core.types import Array, Words

from . import shared
from .engine import COUNT, KEY
from .shared import BITS, CACHE, INTS, LONG_WORDS, REALS, WORDS

_UNIT = 2.0**-32  # of a random number
_HALF = np.uint32(2**31)

# Indices into the counts of a `PopulationState`
POPULATION_SIZE = 0
SELECTED_POINTS = 1  # points in the population
IDLE = 2  # iterations since it changed
FRESH = 3  # whether the next points are random
AVERAGED = 4  # points that θ is the mean of
FLAGGED = 5  # whether the flags in the cache are set


class PopulationState(NamedTuple):
    """The state of the genetic algorithm over bits."""

    counts: NDArray[np.int64]
    stream: LongWords  # key and counter
    first: Words  # thresholds of random points
    theta: Array  # at the beginning
    ones: NDArray[np.int64]  # of each bit in the points that θ is the mean of
    best: NDArray[np.int8]  # the first of them
    words: LongWords  # random numbers of a point
    u: Words  # the same in 32 bits
    # The best point of another member, its value, which is inf if there is none, and its key.
    rival: NDArray[np.int8]
    rival_f: Array
    rival_key: LongWords
    # One row per place.
    x: NDArray[np.int8]
    f: Array
    keys: LongWords  # in the cache
    order: NDArray[np.int64]  # the population, best first, then other places


class CompiledPopulation(shared.CompiledState):
    """The state of `Evolution` in arrays."""

    arrays: PopulationState

    def __init__(
        self, algorithm: Evolution, state: EvolutionState, stream: Stream
    ) -> None:
        family = algorithm.family
        n = algorithm.family.variables
        m = len(state.f)
        places = 2 * state.size
        x = np.empty((places, n), dtype=np.int8)
        f = np.empty(places)
        words = np.empty(n + 2, dtype=np.uint64)
        x[:m], f[:m] = state.x, state.f
        super().__init__(
            PopulationState(
                np.array([state.size, m, state.idle, state.fresh, 0, 0]),
                np.array([stream.key, stream.count], dtype=np.uint64),
                threshold(family.initial()),
                state.theta,
                np.zeros(n, dtype=np.int64),
                np.zeros(n, dtype=np.int8),
                words,
                words.view(np.uint32),
                np.zeros((1, n), dtype=np.int8),
                np.array([math.inf]),
                np.zeros(1, dtype=np.uint64),
                x,
                f,
                np.empty(places, dtype=np.uint64),
                np.arange(places),
            )
        )
        self._family = family

    @staticmethod
    def supports(algorithm: Evolution, deterministic: bool) -> bool:
        """Return whether the engine can run the algorithm."""
        return deterministic and algorithm.batch == 1

    @staticmethod
    def functions() -> list[shared.EngineFunction]:
        """Return the genetic algorithm and the injection of a point."""
        return [run_population, inject_rival]

    def grow(self, why: int) -> None:
        """Enlarge the places to twice the size of the population."""
        p = self.arrays
        old = len(p.f)
        places = 2 * self.size
        x = np.empty((places, p.x.shape[1]), dtype=np.int8)
        f = np.empty(places)
        keys = np.empty(places, dtype=np.uint64)
        x[:old], f[:old], keys[:old] = p.x, p.f, p.keys
        self.arrays = p._replace(
            x=x,
            f=f,
            keys=keys,
            order=np.concatenate([p.order, np.arange(old, places)]),
        )

    def follow(self, best: Elite | None) -> None:
        """Inject a point of another member after each iteration, until one is better."""
        self.arrays.rival_f[0] = math.inf
        if best is not None and len(best.f):
            self.arrays.rival[:], self.arrays.rival_f[:] = best.x, best.f

    def inject(self, best: Elite) -> None:
        """Add a point of another member, unless it was added after the last iteration."""
        if (
            best.f[0] != self.arrays.rival_f[0]
            or (best.x != self.arrays.rival).any()
        ):
            self.follow(best)
            inject_rival(self.arrays, self.cache)

    @property
    def size(self) -> int:
        """The size of the population."""
        return int(self.arrays.counts[POPULATION_SIZE])

    @property
    def theta(self) -> Array:
        """θ as that of the core."""
        p = self.arrays
        initial = self._family.initial()
        averaged = int(p.counts[AVERAGED])
        if averaged:
            return self._family.move(
                initial, (p.ones / averaged + p.best) / 2.0 - initial
            )
        return p.theta

    @property
    def count(self) -> int:
        """The counter of the random numbers."""
        return int(self.arrays.stream[COUNT])


_last_change = njit(error_model="numpy")(last_change)


@njit(error_model="numpy")
def _fill(words, size, stream):
    """Write the next words of the stream."""
    z = stream[KEY] + stream[COUNT] * GOLDEN
    for j in range(size):
        z += GOLDEN
        words[j] = shared.mixed(z)
    stream[COUNT] += np.uint64(size)


@njit(error_model="numpy")
def _draw(child, counts, stream, first, words, u, x, order):
    """Draw a child, or a random point, as `Evolution.ask`."""
    n = child.size
    m = counts[SELECTED_POINTS]
    if counts[FRESH] or not m:
        _fill(words, (n + 1) >> 1, stream)
        for i in range(n):
            child[i] = np.int8(u[i] < first[i])
        return
    _fill(words, n + 2, stream)
    first_parent = x[
        order[min(int(m * (u[0] * _UNIT)), int(m * (u[1] * _UNIT)))]
    ]
    second_parent = x[
        order[min(int(m * (u[2] * _UNIT)), int(m * (u[3] * _UNIT)))]
    ]
    last = _last_change(n)
    crossing = u[4 : 4 + n]
    changes = u[4 + n : 4 + 2 * n]
    for i in range(n):
        child[i] = (
            second_parent[i] if crossing[i] < _HALF else first_parent[i]
        ) ^ np.int8(changes[i] <= last)


@njit(error_model="numpy")
def _merge(points, values, point_keys, counts, x, f, keys, order, table):
    """Select the best of the population and of other points, as `Evolution._merged`, but for θ.

    Return whether the population has changed. Of equal points the first one is selected: it sets
    their flag.
    """
    m = counts[SELECTED_POINTS]
    size = counts[POPULATION_SIZE]
    new = 0
    worst = f[order[m - 1]] if m == size else math.inf
    for k in range(values.size):
        value = values[k]
        if m == size and not value < worst:
            continue
        entry = shared.find(table, point_keys[k])
        if not table[entry].seen & shared.SELECTED:
            table[entry].seen |= shared.SELECTED
            place = order[m + new]
            shared.copy_point(x, place, points[k])
            f[place], keys[place] = (
                value if value == value else math.inf,
                point_keys[k],
            )
            new += 1
    if not new:
        return False
    merged = order[: m + new].copy()
    order[: m + new] = merged[np.argsort(f[merged], kind="mergesort")]
    _shorten(min(m + new, size), m + new, counts, keys, order, table)
    return True


@njit(error_model="numpy")
def _shorten(kept, m, counts, keys, order, table):
    """Keep the first of m points in the population."""
    for k in range(kept, m):
        table[shared.find(table, keys[order[k]])].seen &= ~shared.SELECTED
    counts[SELECTED_POINTS] = kept


@njit(error_model="numpy")
def _tell(points, values, point_keys, counts, x, f, keys, order, table):
    """Learn from the points of an iteration, as `Evolution.tell`, but for θ.

    Return whether it has changed.
    """
    counts[FRESH] = 0
    if _merge(points, values, point_keys, counts, x, f, keys, order, table):
        counts[IDLE] = 0
        return True
    counts[IDLE] += 1
    if counts[IDLE] == MOST_IDLE:
        size = counts[POPULATION_SIZE]
        counts[POPULATION_SIZE] = min(
            2 * size, max(MOST_PER_VARIABLE * x.shape[1], size)
        )
        counts[IDLE] = 0
        counts[FRESH] = 1
        _shorten(1, counts[SELECTED_POINTS], counts, keys, order, table)
    return False


@njit(error_model="numpy")
def _average(counts, ones, best, x, order):
    """Count the ones of each bit in the population, and copy its best point."""
    ones[:] = 0
    best[:] = x[order[0]]
    for k in range(counts[SELECTED_POINTS]):
        point = x[order[k]]
        for i in range(ones.size):
            ones[i] += point[i]
    counts[AVERAGED] = counts[SELECTED_POINTS]


@njit(error_model="numpy")
def _set_flags(counts, x, keys, order, table, codes):
    """Set the flags of a population that was selected elsewhere; its points are in the cache."""
    for k in range(counts[SELECTED_POINTS]):
        keys[order[k]] = shared.key_of(x[order[k]], codes)
        table[shared.find(table, keys[order[k]])].seen |= shared.SELECTED
    counts[FLAGGED] = 1


_POPULATION = types.NamedTuple(
    (
        *(INTS, LONG_WORDS, WORDS, REALS, INTS, BITS, LONG_WORDS, WORDS),
        *(
            types.int8[:, ::1],
            REALS,
            LONG_WORDS,
            types.int8[:, ::1],
            REALS,
            LONG_WORDS,
            INTS,
        ),
    ),
    PopulationState,
)


@shared.member_function(_POPULATION)
def run_population(f, ints, data, block, cache, p, limits):
    """Run iterations until a limit is reached; return why the genetic algorithm has returned."""
    counts_of_block, every, f_every, evaluated, keys_every, _, _ = block
    (
        counts,
        stream,
        first,
        _,
        n_ones,
        best,
        words,
        u,
        rival,
        rival_f,
        rival_key,
        x,
        values,
        keys,
        order,
    ) = p
    table, codes = cache
    if not counts[FLAGGED]:
        _set_flags(counts, x, keys, order, table, codes)
    rival_key[0] = shared.key_of(rival[0], codes)
    while True:
        row = counts_of_block[shared.DONE_ROWS]
        if not counts_of_block[shared.LAM]:
            lam = counts[POPULATION_SIZE]
            if 2 * lam > order.size:
                return shared.GROW_BUFFERS
            why = shared.begin_iteration(
                counts_of_block, f_every.size, table.size, lam, True, limits
            )
            if why != shared.GOING:
                return why
            for child in every[row : row + lam]:
                _draw(child, counts, stream, first, words, u, x, order)
            shared.set_keys(counts_of_block, every, keys_every, codes)
        if not shared.evaluate_iteration(
            f,
            ints,
            data,
            counts_of_block,
            every,
            f_every,
            evaluated,
            keys_every,
            table,
            limits,
        ):
            return shared.LIMIT
        end = counts_of_block[shared.DONE_ROWS]
        for k in range(row, end):
            if f_every[k] < rival_f[0]:
                rival_f[0] = math.inf
        points = every[row:end]
        point_keys = keys_every[row:end]
        changed = _tell(
            points,
            f_every[row:end],
            point_keys,
            counts,
            x,
            values,
            keys,
            order,
            table,
        )
        if rival_f[0] < math.inf:
            _merge(
                rival, rival_f, rival_key, counts, x, values, keys, order, table
            )
            changed = True
        if changed:
            _average(counts, n_ones, best, x, order)


@shared.engine_function(types.void(_POPULATION, CACHE))
def inject_rival(p, cache):
    """Add the point of another member, as `Evolution.inject`."""
    (
        counts,
        _,
        _,
        _,
        n_ones,
        best,
        _,
        _,
        rival,
        rival_f,
        rival_key,
        x,
        f,
        keys,
        order,
    ) = p
    table, codes = cache
    if not counts[FLAGGED]:
        _set_flags(counts, x, keys, order, table, codes)
    rival_key[0] = shared.key_of(rival[0], codes)
    _merge(rival, rival_f, rival_key, counts, x, f, keys, order, table)
    _average(counts, n_ones, best, x, order)
