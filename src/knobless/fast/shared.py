"""What compiled members share: blocks of evaluations, the cache of points, compilation.

A compiled member is the state of an algorithm in arrays and a function that runs its iterations:
`engine.py` is the loop of `igo.py`, `pyramid.py` is P3 and `evolution.py` the genetic algorithm. It
only advances: it writes points and values to a block and returns. Everything that follows from them
is decided in Python between two calls (`run.py`), by the code of interpreted runs: the best point,
turns, studies, tests for noise and the end of a run. `Limits` say how far a member may advance
without a decision. All state is in arrays, and arrays that belong together are a named tuple,
because compiled code is typed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import cache, cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, njit, types
from numpy.typing import NDArray

from knobless.core import evolution, linkage, p3, rng
from knobless.core.elitism import Elite
from knobless.core.rng import FIRST, GOLDEN, SECOND, LongWords, Stream
from knobless.core.types import Array

BITS = types.int8[::1]
READ_ONLY_BITS = types.Array(types.int8, 1, "C", readonly=True)
INTS = types.int64[::1]
REALS = types.float64[::1]
WORDS = types.uint32[::1]
LONG_WORDS = types.uint64[::1]
# Of a point and of the data that belong to it
OBJECTIVE = types.float64(BITS, INTS, REALS)

# Why a member returned
GOING = 0  # it did not
LIMIT = 1  # one of its `Limits` is reached
GROW_BLOCK = 2  # an array is too small: that of samples,
GROW_BUFFERS = 3  # one of the member,
GROW_CACHE = 4  # the cache,
GROW_TERMS = 5  # or the entropies of a tree
INTERRUPTION = 6  # an interrupt from the keyboard must be handled

# Indices into the counts of a `SampleBlock`
DONE_ROWS = 0  # rows of complete iterations
LAM = 1  # samples of the iteration under way; 0 if there is none
VALUED = 2  # samples of this iteration that have values
NEW = 3  # samples of this iteration that were evaluated
LEFT = 4  # evaluations left
COMPLETED = 5  # iterations completed by this call
STALE = 6  # samples in a row that were known
KNOWN = 7  # points in the cache
KEEPS_POINTS = 8  # whether all points are kept
# Size of a block at first, at most; it grows with λ. That of points that are all kept fits into the
# fast caches.
SAMPLE_ROWS = 2**14
POINT_BYTES = 2**20
MOST_POINT_BYTES = 2**23


class SampleBlock(NamedTuple):
    """Candidates in order, one row each, until they are handed over between two iterations.

    A run that needs only the best of its points has those of the last iteration, from the first row
    on: other memory would take longer to write than it takes to draw the points.
    """

    counts: NDArray[np.int64]
    x: NDArray[np.int8]
    f: Array  # to be minimized; NaN for a failed evaluation
    evaluated: NDArray[np.bool_]  # rather than known; only with a cache
    keys: NDArray[np.uint64]  # in the cache
    # The lowest value of the run, and its point; only without a cache
    best: Array
    best_x: NDArray[np.int8]


class Limits(NamedTuple):
    """How far a member advances: in evaluations (`LEFT`), and where no further iteration begins."""

    sign: float  # of the values of the objective, −1 to maximize
    # Value after which there are no evaluations left; NaN for none
    target: float
    iterations: float
    rows: float  # candidates
    turn: float  # candidates after which the member yields as soon as it can
    stale: float  # known samples in a row
    forced: float  # iterations that begin even if there are no evaluations left


ENTRY = np.dtype(
    [("key", np.uint64), ("value", np.float64), ("seen", np.int64)]
)
# Flags of a point: has a value; P3 has asked for it; is a member of the pyramid; is in the
# population.
HAS_VALUE, ASKED, MEMBER, SELECTED = 1, 2, 4, 8


class CacheTable(NamedTuple):
    """Values by points: a hash table with open addressing, at most half full.

    One of size zero stores nothing.

    A point is identified by a key: the exclusive or of the codes of its ones. Up to 64 bits it is
    the point itself. Beyond, codes are random words, and two points may have the same key: with m
    points evaluated, the probability that any two have is m²/2⁶⁵, 3·10⁻⁸ for a million. One of them
    would then not be evaluated but take the other's value.
    """

    table: NDArray[np.void]
    codes: LongWords


def no_cache() -> CacheTable:
    """Return the cache of a run that evaluates every point."""
    return CacheTable(np.empty(0, dtype=ENTRY), np.empty(0, dtype=np.uint64))


def empty_cache(n: int) -> CacheTable:
    """Return an empty cache for n bits."""
    codes = (
        np.uint64(1) << np.arange(n, dtype=np.uint64)
        if n <= 64
        else Stream(0).words(n).copy()
    )
    return CacheTable(np.zeros(1024, dtype=ENTRY), codes)


def grown_cache(cache: CacheTable) -> CacheTable:
    """Return the cache with room for twice as many points."""
    larger = np.zeros(2 * len(cache.table), dtype=ENTRY)
    move(cache.table, larger)
    return cache._replace(table=larger)


def empty_block(n: int, keeps_all: bool) -> SampleBlock:
    """Return an empty block for points of n bits."""
    rows = max(
        min((POINT_BYTES if keeps_all else MOST_POINT_BYTES) // n, SAMPLE_ROWS),
        1,
    )
    counts = np.array([0, 0, 0, 0, 0, 0, 0, 0, keeps_all], dtype=np.int64)
    return SampleBlock(
        counts,
        *_rows(rows, n),
        np.array([math.inf]),
        np.zeros(n, dtype=np.int8),
    )


def grown_block(block: SampleBlock) -> SampleBlock:
    """Return an empty block with twice as many rows."""
    rows, n = block.x.shape
    return SampleBlock(
        block.counts, *_rows(2 * rows, n), block.best, block.best_x
    )


def _rows(
    rows: int, n: int
) -> tuple[NDArray[np.int8], Array, NDArray[np.bool_], NDArray[np.uint64]]:
    evaluated = np.empty(rows, dtype=np.bool_)
    keys = np.empty(rows, dtype=np.uint64)
    return np.empty((rows, n), dtype=np.int8), np.empty(rows), evaluated, keys


class CompiledState:
    """The state of a member in arrays.

    Attributes
    ----------
    arrays : NamedTuple
        The arrays.
    cache : CacheTable
        The cache of the run.
    told : int
        Iterations that the state of the core has seen and this one has not: their points are in the
        cache.
    can_yield : bool
        Whether the turn may pass to another member.
    """

    cache: CacheTable
    told = 0
    can_yield = True

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays

    @staticmethod
    def functions() -> list[EngineFunction]:
        """Return the compiled functions of the state; the first one advances it."""
        raise NotImplementedError

    @property
    def core(self) -> Any:
        """The state as that of the core.

        By default this one, of which the core uses the attributes alone.
        """
        return self

    @property
    def count(self) -> int | None:
        """The counter of the random numbers of the run.

        None if the member has random numbers of its own.
        """
        return None

    def grow(self, why: int) -> None:
        """Enlarge the arrays that are too small."""
        raise NotImplementedError

    def follow(self, best: Elite | None) -> None:
        """Take the best point for the next iterations if another member has found it."""


SAMPLE_BLOCK = types.NamedTuple(
    (
        INTS,
        types.int8[:, ::1],
        REALS,
        types.boolean[::1],
        LONG_WORDS,
        REALS,
        BITS,
    ),
    SampleBlock,
)
LIMITS = types.NamedUniTuple(types.float64, 7, Limits)
TABLE = from_dtype(ENTRY)[::1]
CACHE = types.NamedTuple((TABLE, LONG_WORDS), CacheTable)


def sources() -> list[Path]:
    """Return the files that the engine is compiled from, constants included."""
    return sorted(Path(__file__).parent.glob("*.py")) + [
        Path(str(module.__file__)) for module in (rng, linkage, p3, evolution)
    ]


@cache
def source_hash() -> str:
    """Return a hash of all that the engine is compiled from."""
    return hashlib.sha256(
        b"".join(path.read_bytes() for path in sources())
    ).hexdigest()[:16]


_COMPILING = Lock()


class EngineFunction:
    """A function of the engine that is compiled or loaded at its first call.

    It is loaded if no source of the engine has changed since it was compiled.

    numba looks at the file of the function itself alone. Its cache files have the function's
    qualified name.
    """

    def __init__(self, signature: Any, function: Callable[..., Any]) -> None:
        function.__qualname__ = f"{function.__name__}-{source_hash()}"
        self._signature = signature
        self._dispatcher: Any = njit(
            cache=True, nogil=True, error_model="numpy"
        )(function)

    @cached_property
    def compiled(self) -> Any:
        """The compiled function."""
        with _COMPILING:  # several threads may need it at once
            if not self._dispatcher.signatures:
                self._dispatcher.compile(self._signature)
                self._dispatcher.disable_compile()
        return self._dispatcher

    @property
    def is_ready(self) -> bool:
        """Whether the machine code is in memory or in the cache on disk."""
        if self._dispatcher.signatures:
            return True
        return (
            self._dispatcher._cache.load_overload(
                self._signature, self._dispatcher.targetctx
            )
            is not None
        )

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)


def engine_function(
    signature: Any,
) -> Callable[[Callable[..., Any]], EngineFunction]:
    """Return a decorator that makes an `EngineFunction`."""
    return partial(EngineFunction, signature)


def member_function(
    state: Any,
) -> Callable[[Callable[..., Any]], EngineFunction]:
    """Return a decorator of the function that advances a state of this type."""
    return engine_function(
        types.int64(
            types.FunctionType(OBJECTIVE),
            INTS,
            REALS,
            SAMPLE_BLOCK,
            CACHE,
            state,
            LIMITS,
        )
    )


@njit(error_model="numpy")
def mixed(z):
    """Return the word of a `Stream` whose number c gives z = key + c · GOLDEN."""
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@njit(error_model="numpy")
def word(key, count):
    """Return word number `count`, from 1 on, of a `Stream`."""
    return mixed(np.uint64(count) * GOLDEN + key)


@njit(error_model="numpy")
def key_of(x, codes):
    """Return the key of a point."""
    key = np.uint64(0)
    for i in range(x.size):
        key ^= codes[i] & (np.uint64(0) - np.uint64(x[i]))
    return key


@njit(error_model="numpy")
def find(table, key):
    """Return the index of the point with this key, or the free one where it belongs."""
    last = np.uint64(table.size - 1)
    place = word(key, 0) & last
    while table[place].seen and table[place].key != key:
        place = (place + np.uint64(1)) & last
    return place


@engine_function(types.void(TABLE, TABLE))
def move(table, larger):
    """Copy all entries of a table to a larger one."""
    for i in range(table.size):
        if table[i].seen:
            place = find(larger, table[i].key)
            larger[place].key = table[i].key
            larger[place].value = table[i].value
            larger[place].seen = table[i].seen


@engine_function(types.float64(CACHE, BITS))
def recall(cache, x):
    """Return the value of a point; inf if there is none."""
    entry = cache.table[find(cache.table, key_of(x, cache.codes))]
    return entry.value if entry.seen else math.inf


# These take arrays rather than named tuples: numba counts references whenever an array is taken out
# of a tuple.


@njit(error_model="numpy")
def keep(table, place, key, value, counts):
    """Store a value at a place of the table."""
    table[place].key = key
    table[place].value = value
    table[place].seen = HAS_VALUE
    counts[KNOWN] += 1


@engine_function(types.void(CACHE, BITS, types.float64, INTS))
def store(cache, x, value, counts):
    """Store the value of a point that was evaluated elsewhere."""
    key = key_of(x, cache.codes)
    keep(cache.table, find(cache.table, key), key, value, counts)


@njit(error_model="numpy")
def begin_iteration(counts, rows, places, lam, can_yield, limits):
    """Begin an iteration of λ samples, in a block of so many rows, unless a limit is reached.

    Return why not.
    """
    done = counts[DONE_ROWS]
    left = counts[LEFT]
    if (left <= 0 and counts[COMPLETED] >= limits.forced) or counts[
        COMPLETED
    ] >= limits.iterations:
        return LIMIT
    if (
        done >= limits.rows
        or counts[STALE] >= limits.stale
        or (can_yield and done >= limits.turn)
    ):
        return LIMIT
    if done + lam > rows:
        return LIMIT if done else GROW_BLOCK
    if places and 2 * (counts[KNOWN] + lam) > places:
        return GROW_CACHE
    counts[LAM] = lam
    counts[VALUED] = counts[NEW] = 0
    return GOING


@njit(error_model="numpy")
def copy_point(x, row, point):
    """Copy a point to a row, in less time than by a slice."""
    for i in range(point.size):
        x[row, i] = point[i]


@njit(error_model="numpy")
def set_keys(counts, x, keys, codes):
    """Compute the keys of the samples of the iteration."""
    for row in range(counts[DONE_ROWS], counts[DONE_ROWS] + counts[LAM]):
        keys[row] = key_of(x[row], codes)


@njit(error_model="numpy")
def evaluate_iteration(
    f, ints, data, counts, x, values, evaluated, keys, table, limits
):
    """Evaluate the samples of the iteration; return whether it is complete.

    If there are no evaluations left, samples in the cache have values up to the first that is not.
    """
    k = counts[VALUED]
    left = counts[LEFT]
    new = counts[NEW]
    while k < counts[LAM]:
        row = counts[DONE_ROWS] + k
        place = find(table, keys[row])
        evaluated[row] = not table[place].seen
        if evaluated[row]:
            if left <= 0:
                break
            value = limits.sign * f(x[row], ints, data)
            keep(table, place, keys[row], value, counts)
            left = 0 if value <= limits.target else left - 1
            new += 1
        values[row] = table[place].value
        k += 1
    return end_iteration(counts, k, left, new)


@njit(error_model="numpy")
def end_iteration(counts, k, left, new):
    """Count the samples of the iteration that have values, and the new ones.

    Return whether it is complete.
    """
    counts[VALUED], counts[LEFT], counts[NEW] = k, left, new
    if k < counts[LAM]:
        return False
    counts[STALE] = 0 if new else counts[STALE] + k
    counts[DONE_ROWS] += k
    counts[LAM] = counts[VALUED] = 0
    counts[COMPLETED] += 1
    return True


@engine_function(
    types.void(
        types.FunctionType(OBJECTIVE), INTS, REALS, SAMPLE_BLOCK, CACHE, LIMITS
    )
)
def evaluate_samples(f, ints, data, block, cache, limits):
    """Evaluate the samples of the iteration that are not in the cache.

    Return whether the iteration is complete.
    """
    counts, x, values, evaluated, keys, _, _ = block
    table, codes = cache
    set_keys(counts, x, keys, codes)
    evaluate_iteration(
        f, ints, data, counts, x, values, evaluated, keys, table, limits
    )
