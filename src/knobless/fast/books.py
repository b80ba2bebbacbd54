"""What the compiled engines share: the books of a run, and the memory of points that were paid for.

`engine.py` is the loop of `igo.py`, `pyramid.py` is P3; in a portfolio they take turns on the same books and memory.
All that lasts is in arrays, and arrays that belong together are a named tuple, which compiled code knows by its types.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, njit, types
from numpy.typing import NDArray

from knobless.core import linkage, p3, rng
from knobless.core.rng import FIRST, GOLDEN, SECOND, LongWords, Stream
from knobless.core.types import Array
from knobless.run import optimizer
from knobless.run.optimizer import STALE as TOO_STALE

BITS = types.int8[::1]
READ_ONLY_BITS = types.Array(types.int8, 1, "C", readonly=True)
INTS = types.int64[::1]
REALS = types.float64[::1]
WORDS = types.uint32[::1]
LONG_WORDS = types.uint64[::1]
OBJECTIVE = types.float64(BITS, INTS, REALS)  # of a point and of the data that belong to it

# Why an engine returned: the run is over, it is another member's turn, or something is too small.
GOING, BUDGET, TARGET, STALL, EXHAUSTED, CONVERGED, TURN, GROW_BUFFERS, MEMORY, TERMS = range(10)

# Members of a portfolio.
PYRAMID, LOOP = range(2)
NEVER = 2**62  # what one has spent who is not there

# Where the books keep what.
NFEV, NIT, BEST_AT, FAILURES, KNOWN, STALE, OWNER = range(7)
BEST, SIGN, LEAD = range(3)


class Books(NamedTuple):
    """What was spent and found. The lead is the best that the members themselves have found, as in `portfolio.py`."""

    counts: NDArray[np.int64]
    reals: Array
    idle: NDArray[np.int64]  # what each member has spent since it led
    best_x: NDArray[np.int8]
    lead_x: NDArray[np.int8]


class Limits(NamedTuple):
    """Evaluations, iterations, a value as good as which ends the run, and evaluations without improvement."""

    budget: float
    iterations: float
    target: float  # NaN for none
    stall: float


ENTRY = np.dtype([("key", np.uint64), ("value", np.float64), ("seen", np.int64)])
# What a point was, added up.
PAID, ASKED, MEMBER = 1, 2, 4  # has a value; P3 has asked for it; is a member of the pyramid


class Cache(NamedTuple):
    """Values by points: open addressing with at most half of the places taken. Without places, there is no memory.

    A point is known by a key: the exclusive or of the codes of its ones. Up to 64 bits it is the point itself. Beyond,
    codes are random words, and two points have the same key by chance: with m points evaluated, the probability that
    any two have is m²/2⁶⁵, 3·10⁻⁸ for a million. One of them would then not be evaluated but take the other's value.
    """

    table: NDArray[np.void]
    codes: LongWords


def no_memory() -> Cache:
    """Of a run that pays for every point."""
    return Cache(np.empty(0, dtype=ENTRY), np.empty(0, dtype=np.uint64))


def memory(n: int) -> Cache:
    """An empty one for n bits."""
    codes = np.uint64(1) << np.arange(n, dtype=np.uint64) if n <= 64 else Stream(0).words(n).copy()
    return Cache(np.zeros(1024, dtype=ENTRY), codes)


def books(n: int, sign: float) -> Books:
    """Those of a run that has not begun."""
    best_x, lead_x = np.zeros((2, n), dtype=np.int8)
    reals = np.array([math.inf, sign, math.inf])
    return Books(np.zeros(7, dtype=np.int64), reals, np.array([NEVER, NEVER]), best_x, lead_x)


BOOKS = types.NamedTuple((INTS, REALS, INTS, BITS, BITS), Books)
LIMITS = types.NamedUniTuple(types.float64, 4, Limits)
TABLE = from_dtype(ENTRY)[::1]
MEMORY_TYPE = types.NamedTuple((TABLE, LONG_WORDS), Cache)


def sources() -> list[Path]:
    """Return the files that the engine is compiled from: its own, and those that it takes constants from."""
    return sorted(Path(__file__).parent.glob("*.py")) + [
        Path(str(each.__file__)) for each in (rng, linkage, p3, optimizer)
    ]


@cache
def source_hash() -> str:
    """Return a hash of all that the engine is compiled from."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources())).hexdigest()[:16]


def cached(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function of the engine, or take it from the cache on disk if no source of the engine has changed.

    numba looks at the file of the function itself alone. Its cache files have the function's qualified name.
    """

    def decorator(function: Callable[..., Any]) -> Any:
        function.__qualname__ = f"{function.__name__}-{source_hash()}"
        return njit(signature, cache=True, nogil=True, error_model="numpy")(function)

    return decorator


def compiled(function: Callable[..., int], state: Any) -> Any:
    """Compile an engine with this type of state."""
    return cached(types.int64(types.FunctionType(OBJECTIVE), INTS, REALS, BOOKS, MEMORY_TYPE, state, LIMITS))(function)


@njit(error_model="numpy")
def word(key, count):
    """Word number `count`, from 1 on, of a `Stream`."""
    z = np.uint64(count) * GOLDEN + key
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@njit(error_model="numpy")
def key_of(x, codes):
    """By which a point is known."""
    key = np.uint64(0)
    for i in range(x.size):
        key ^= codes[i] & (np.uint64(0) - np.uint64(x[i]))
    return key


@njit(error_model="numpy")
def find(table, key):
    """Where the point with this key is, or would be."""
    last = np.uint64(table.size - 1)
    place = word(key, 0) & last
    while table[place].seen and table[place].key != key:
        place = (place + np.uint64(1)) & last
    return place


@cached(types.void(TABLE, TABLE))
def move(table, larger):
    """All that is in a table to a larger one."""
    for i in range(table.size):
        if table[i].seen:
            place = find(larger, table[i].key)
            larger[place].key = table[i].key
            larger[place].value = table[i].value
            larger[place].seen = table[i].seen


@cached(types.float64(MEMORY_TYPE, BITS))
def recall(memory, x):
    """The value of a point; inf where there is none."""
    entry = memory.table[find(memory.table, key_of(x, memory.codes))]
    return entry.value if entry.seen else math.inf


# These take arrays rather than the books: numba counts references whenever an array is taken out of a tuple.


@njit(error_model="numpy")
def pay(f, ints, data, x, counts, reals, best_x):
    """Evaluates; NaN is a failure."""
    value = reals[SIGN] * f(x, ints, data)
    counts[NFEV] += 1
    if value != value:
        counts[FAILURES] += 1
    if value < reals[BEST]:
        reals[BEST] = value
        counts[BEST_AT] = counts[NFEV]
        best_x[:] = x
    return value


@njit(error_model="numpy")
def keep(table, place, key, value, counts):
    """Remembers what was paid for."""
    table[place].key = key
    table[place].value = value
    table[place].seen = PAID
    counts[KNOWN] += 1


@cached(types.void(MEMORY_TYPE, BITS, types.float64, INTS))
def store(memory, x, value, counts):
    """Remembers what was paid for elsewhere."""
    key = key_of(x, memory.codes)
    keep(memory.table, find(memory.table, key), key, value, counts)


@njit(error_model="numpy")
def met(counts, reals, limits):
    """Which limit is met, if any."""
    if reals[BEST] <= limits.target:  # with NaN for no target, never
        return TARGET
    if counts[NFEV] - counts[BEST_AT] >= limits.stall:
        return STALL
    return BUDGET if counts[NFEV] >= limits.budget else GOING


@njit(error_model="numpy")
def emptied(counts, n):
    """Whether there is nothing left to look at, or nothing that comes up."""
    if n < 62 and counts[KNOWN] >> n:
        return EXHAUSTED
    return CONVERGED if counts[STALE] >= TOO_STALE else GOING


@njit(error_model="numpy")
def credit(counts, reals, idle, lead_x, member, x, value, later):
    """The best point that a member was told, and how many it was told after it: who is better than all leads."""
    if value < reals[LEAD]:
        reals[LEAD] = value
        lead_x[:] = x
        idle[member] = later
        counts[OWNER] = member
