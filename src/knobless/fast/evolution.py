"""The genetic algorithm on bits, compiled: `evolution.py` of the core again, as plain loops for numba.

One specification, two implementations: from the same stream, this one draws the same points in the same order. A point
that is drawn is written where it stays if it is selected; the population is an order of these places.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from knobless.core.evolution import MOST_IDLE, MOST_PER_VARIABLE, EvolutionState, last_change
from knobless.core.families import Family, threshold
from knobless.core.rng import GOLDEN, LongWords, Stream
from knobless.core.types import Array, Words

from .engine import COUNT, KEY
from .shared import (
    BITS,
    CACHE,
    CURRENT,
    GOING,
    GROW_BUFFERS,
    GROW_CACHE,
    INTS,
    KNOWN,
    LEADER_FUN,
    LONG_WORDS,
    MAX_TOLD,
    NIT,
    OWNER,
    PAUSE,
    POPULATION,
    REALS,
    SELECTED,
    TURN,
    WORDS,
    EngineFunction,
    add_to_record,
    engine_function,
    evaluate_places,
    find,
    following_turn,
    key_of,
    limit_reached,
    mixed,
    must_pause,
    runner,
    search_ended,
    update_leader,
)

_UNIT = 2.0**-32  # of a random number
_HALF = np.uint32(2**31)

# Indices into the counts of a `PopulationState`: size of the population, points in it, iterations since it changed,
# whether the next points are random, points that θ is the mean of, and whether the flags in the cache are set.
POPULATION_SIZE, SELECTED_POINTS, IDLE, FRESH, AVERAGED, FLAGGED = range(6)


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
    # One row per place.
    x: NDArray[np.int8]
    f: Array
    keys: LongWords  # in the cache
    order: NDArray[np.int64]  # the population, best first, then other places


def population(family: Family, state: EvolutionState, stream: Stream) -> PopulationState:
    """Return the population in a state of the core."""
    n, m, places = family.variables, len(state.f), 2 * state.size
    x, f, words = np.empty((places, n), dtype=np.int8), np.empty(places), np.empty(n + 2, dtype=np.uint64)
    x[:m], f[:m] = state.x, state.f
    return PopulationState(
        np.array([state.size, m, state.idle, state.fresh, 0, 0]),
        np.array([stream.key, stream.count], dtype=np.uint64),
        threshold(family.initial()),
        state.theta,
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int8),
        words,
        words.view(np.uint32),
        x,
        f,
        np.empty(places, dtype=np.uint64),
        np.arange(places),
    )


def grown_population(p: PopulationState) -> PopulationState:
    """Return the population with places for twice its size."""
    old, places = len(p.f), 2 * int(p.counts[POPULATION_SIZE])
    x, f, keys = np.empty((places, p.x.shape[1]), dtype=np.int8), np.empty(places), np.empty(places, dtype=np.uint64)
    x[:old], f[:old], keys[:old] = p.x, p.f, p.keys
    return p._replace(x=x, f=f, keys=keys, order=np.concatenate([p.order, np.arange(old, places)]))


def population_theta(family: Family, p: PopulationState) -> Array:
    """Return θ as that of the core."""
    initial, averaged = family.initial(), int(p.counts[AVERAGED])
    return family.move(initial, (p.ones / averaged + p.best) / 2.0 - initial) if averaged else p.theta


_last_change = njit(error_model="numpy")(last_change)


@njit(error_model="numpy")
def _fill(words, size, stream):
    """Write the next words of the stream."""
    z = stream[KEY] + stream[COUNT] * GOLDEN
    for j in range(size):
        z += GOLDEN
        words[j] = mixed(z)
    stream[COUNT] += np.uint64(size)


@njit(error_model="numpy")
def _draw(place, counts, stream, first, words, u, x, order):
    """Write a child, or a random point, to a place, as `Evolution.ask`."""
    child, n, m = x[place], x.shape[1], counts[SELECTED_POINTS]
    if counts[FRESH] or not m:
        _fill(words, (n + 1) >> 1, stream)
        for i in range(n):
            child[i] = np.int8(u[i] < first[i])
        return
    _fill(words, n + 2, stream)
    one = x[order[min(int(m * (u[0] * _UNIT)), int(m * (u[1] * _UNIT)))]]
    other = x[order[min(int(m * (u[2] * _UNIT)), int(m * (u[3] * _UNIT)))]]
    last = _last_change(n)
    crossing, changes = u[4 : 4 + n], u[4 + n : 4 + 2 * n]
    for i in range(n):
        child[i] = (other[i] if crossing[i] < _HALF else one[i]) ^ np.int8(changes[i] <= last)


@njit(error_model="numpy")
def _merge(added, counts, f, keys, order, table):
    """Select the best of the population and of the `added` points after it, as `Evolution._merged`, but for θ.

    Return whether the population has changed. Of equal points the first one is selected: it sets their flag.
    """
    m, size, new = counts[SELECTED_POINTS], counts[POPULATION_SIZE], 0
    worst = f[order[m - 1]] if m == size else math.inf
    for k in range(m, m + added):
        place = order[k]
        if m == size and not f[place] < worst:
            continue
        entry = find(table, keys[place])
        if not table[entry].seen & SELECTED:
            table[entry].seen |= SELECTED
            order[k], order[m + new] = order[m + new], place
            new += 1
    if not new:
        return False
    every = order[: m + new].copy()
    order[: m + new] = every[np.argsort(f[every], kind="mergesort")]
    _shorten(min(m + new, size), m + new, counts, keys, order, table)
    return True


@njit(error_model="numpy")
def _shorten(kept, m, counts, keys, order, table):
    """Keep the first of m points in the population."""
    for k in range(kept, m):
        table[find(table, keys[order[k]])].seen &= ~SELECTED
    counts[SELECTED_POINTS] = kept


@njit(error_model="numpy")
def _tell(added, counts, f, keys, order, table, n):
    """Learn from the points after the population, as `Evolution.tell`, but for θ; return whether it has changed."""
    counts[FRESH] = 0
    if _merge(added, counts, f, keys, order, table):
        counts[IDLE] = 0
        return True
    counts[IDLE] += 1
    if counts[IDLE] == MOST_IDLE:
        size = counts[POPULATION_SIZE]
        counts[POPULATION_SIZE] = min(2 * size, max(MOST_PER_VARIABLE * n, size))
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
def _inject(point, value, counts, x, f, keys, order, table, codes):
    """Add a point of another member, as `Evolution.inject`, but for θ."""
    place = order[counts[SELECTED_POINTS]]
    x[place] = point
    f[place], keys[place] = value, key_of(point, codes)
    _merge(1, counts, f, keys, order, table)


@njit(error_model="numpy")
def _set_flags(counts, x, keys, order, table, codes):
    """Set the flags of a population that was selected elsewhere; its points are in the cache."""
    for k in range(counts[SELECTED_POINTS]):
        keys[order[k]] = key_of(x[order[k]], codes)
        table[find(table, keys[order[k]])].seen |= SELECTED
    counts[FLAGGED] = 1


def _run(f, ints, reals, progress, cache, p, limits, log):
    """Run iterations until a limit is reached or another member has the turn; return which.

    All state is in the arrays, so that a run continues where it stopped between two iterations.
    """
    spent, shared, turns, lowest, course, _, leader_x = progress
    counts, stream, first, _, ones, chosen, words, u, x, values, keys, order = p
    (table, codes), n, told = cache, x.shape[1], 0
    if not counts[FLAGGED]:
        _set_flags(counts, x, keys, order, table, codes)
    why = limit_reached(spent, shared, limits)
    while why == GOING and spent[NIT] < limits.iterations and told < MAX_TOLD:
        m, lam = counts[SELECTED_POINTS], counts[POPULATION_SIZE]
        if 2 * lam > order.size:
            return GROW_BUFFERS
        if log is not None and must_pause(spent, log.f, lam, limits.due):
            return PAUSE
        why = GROW_CACHE if 2 * (spent[KNOWN] + lam) > table.size else search_ended(spent, n)
        if why != GOING:
            return why
        places = order[m : m + lam]
        for place in places:
            _draw(place, counts, stream, first, words, u, x, order)
        why, complete = evaluate_places(f, ints, reals, progress, cache, limits, log, x, places, keys, values)
        if not complete:
            return why
        best = places[0]
        for place in places:
            add_to_record(turns, lowest, course, POPULATION, values[place])
            if values[place] < values[best]:
                best = place
        told += lam
        improved = update_leader(spent, shared, leader_x, POPULATION, x[best], values[best])
        changed = _tell(lam, counts, values, keys, order, table, n)
        if not improved and spent[OWNER] != POPULATION and shared[LEADER_FUN] < math.inf:
            _inject(leader_x, shared[LEADER_FUN], counts, x, values, keys, order, table, codes)
            changed = True
        if changed:
            _average(counts, ones, chosen, x, order)
        spent[CURRENT] = following_turn(spent, shared, turns, course)
        if why == GOING and spent[CURRENT] != POPULATION:
            return TURN
    return why


_POPULATION = types.NamedTuple(
    (
        *(INTS, LONG_WORDS, WORDS, REALS, INTS, BITS, LONG_WORDS, WORDS),
        *(types.int8[:, ::1], REALS, LONG_WORDS, INTS),
    ),
    PopulationState,
)


@engine_function(types.void(_POPULATION, CACHE, BITS, types.float64))
def inject(p, cache, point, value):
    """Add a point that was found between two turns, as `Evolution.inject`."""
    counts, _, _, _, ones, chosen, _, _, x, f, keys, order = p
    if not counts[FLAGGED]:
        _set_flags(counts, x, keys, order, cache.table, cache.codes)
    _inject(point, value, counts, x, f, keys, order, cache.table, cache.codes)
    _average(counts, ones, chosen, x, order)


@cache
def population_runner(logs: bool = False) -> EngineFunction:
    """Return the genetic algorithm, with a log or without."""
    return runner(_run, _POPULATION, logs)
