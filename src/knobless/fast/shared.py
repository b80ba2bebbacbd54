"""What the compiled engines share: counts and best points of a run, the cache of evaluated points, and compilation.

`engine.py` is the loop of `igo.py`, `pyramid.py` is P3 and `evolution.py` the genetic algorithm; the latter two take
turns in a portfolio, on the same progress and cache. `study.py` interrupts this portfolio once.
All state is in arrays, and arrays that belong together are a named tuple, because compiled code is typed.
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

from knobless.core import evolution, linkage, p3, portfolio, rng, violation
from knobless.core.portfolio import LEAD, LEAST_COMPARED
from knobless.core.rng import FIRST, GOLDEN, SECOND, LongWords, Stream
from knobless.core.types import Array
from knobless.core.violation import FEASIBLE_LIMIT
from knobless.run import run_state
from knobless.run.run_state import MAX_STALE

BITS = types.int8[::1]
READ_ONLY_BITS = types.Array(types.int8, 1, "C", readonly=True)
INTS = types.int64[::1]
REALS = types.float64[::1]
WORDS = types.uint32[::1]
LONG_WORDS = types.uint64[::1]
OBJECTIVE = types.float64(BITS, INTS, REALS)  # of a point and of the data that belong to it

# Why an engine returned: the run has ended, another member has the turn, an array is too small, or the evaluations are
# to be handed over (`must_pause`).
GOING, BUDGET, TARGET, STALL, EXHAUSTED, CONVERGED, TURN, GROW_BUFFERS, GROW_CACHE, GROW_TERMS, PAUSE = range(11)

# Members of the portfolio; the only one, if there is no portfolio, is number 0. A `Study` comes between two turns.
PYRAMID, POPULATION, STUDY = range(3)

# Indices into the arrays of `Progress`.
# STUDY_AT is the number of evaluations of the members after which a study begins, 0 if none does; EQUAL is that of each
# member until which turns are equal.
NFEV, NIT, BEST_AT, FAILURES, KNOWN, STALE, OWNER, CURRENT, DRAWN, LOGGED, TEST, STUDY_AT, EQUAL = range(13)
BEST, SIGN, LEADER_FUN = range(3)

# Whether a point is tested for noise: in no iteration, in the next one, or in the last one.
NO_TEST, PLANNED, MADE = range(3)
LOG_BYTES = 2**18  # of points, at least as many as an iteration has
MAX_TOLD = 2**16  # evaluations of one compiled call, so that Ctrl-C is handled in time


class Progress(NamedTuple):
    """Counts and best points of a run; the leader's point is the best of the members' own, as in `portfolio.py`."""

    counts: NDArray[np.int64]
    reals: Array
    # The `MemberRecord` of each member.
    spent: NDArray[np.int64]
    lowest: Array
    course: Array  # one row per member
    best_x: NDArray[np.int8]
    leader_x: NDArray[np.int8]


class Log(NamedTuple):
    """The evaluations of complete iterations until they are handed over, and the point that is tested for noise."""

    x: NDArray[np.int8]
    f: Array
    test_x: NDArray[np.int8]


class Limits(NamedTuple):
    """Limits of a run: evaluations, iterations, target value, evaluations without improvement, and before a test."""

    budget: float
    iterations: float
    target: float  # NaN for none
    stall: float
    due: float


ENTRY = np.dtype([("key", np.uint64), ("value", np.float64), ("seen", np.int64)])
# Flags of a point: has a value; P3 has asked for it; is a member of the pyramid; is in the population.
EVALUATED, ASKED, MEMBER, SELECTED = 1, 2, 4, 8


class CacheTable(NamedTuple):
    """Values by points: a hash table with open addressing, at most half full. One of size zero stores nothing.

    A point is identified by a key: the exclusive or of the codes of its ones. Up to 64 bits it is the point itself.
    Beyond, codes are random words, and two points may have the same key: with m points evaluated, the probability that
    any two have is m²/2⁶⁵, 3·10⁻⁸ for a million. One of them would then not be evaluated but take the other's value.
    """

    table: NDArray[np.void]
    codes: LongWords


def no_cache() -> CacheTable:
    """Return the cache of a run that evaluates every point."""
    return CacheTable(np.empty(0, dtype=ENTRY), np.empty(0, dtype=np.uint64))


def empty_cache(n: int) -> CacheTable:
    """Return an empty cache for n bits."""
    codes = np.uint64(1) << np.arange(n, dtype=np.uint64) if n <= 64 else Stream(0).words(n).copy()
    return CacheTable(np.zeros(1024, dtype=ENTRY), codes)


def progress(n: int, sign: float, members: int) -> Progress:
    """Return the progress of a run that has not begun."""
    counts, spent = np.zeros(13, dtype=np.int64), np.zeros(members, dtype=np.int64)
    best_x, leader_x = np.zeros((2, n), dtype=np.int8)
    reals, course = np.array([math.inf, sign, math.inf]), np.full((members, 64), math.inf)
    return Progress(counts, reals, spent, np.full(members, math.inf), course, best_x, leader_x)


def empty_log(lam: int, n: int) -> Log:
    """Return a log with room for an iteration of λ samples and a test, and for many of fewer samples."""
    rows = max(2 * (lam + 1), LOG_BYTES // n)
    return Log(np.empty((rows, n), dtype=np.int8), np.empty(rows), np.zeros(n, dtype=np.int8))


PROGRESS = types.NamedTuple((INTS, REALS, INTS, REALS, types.float64[:, ::1], BITS, BITS), Progress)
LOG = types.NamedTuple((types.int8[:, ::1], REALS, BITS), Log)
LIMITS = types.NamedUniTuple(types.float64, 5, Limits)
TABLE = from_dtype(ENTRY)[::1]
CACHE = types.NamedTuple((TABLE, LONG_WORDS), CacheTable)


def sources() -> list[Path]:
    """Return the files that the engine is compiled from: its own, and those that it takes constants from."""
    return sorted(Path(__file__).parent.glob("*.py")) + [
        Path(str(each.__file__)) for each in (rng, linkage, p3, evolution, portfolio, violation, run_state)
    ]


@cache
def source_hash() -> str:
    """Return a hash of all that the engine is compiled from."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources())).hexdigest()[:16]


_COMPILING = Lock()


class EngineFunction:
    """A function of the engine that is compiled at its first call, or loaded if no source of the engine has changed.

    numba looks at the file of the function itself alone. Its cache files have the function's qualified name.
    """

    def __init__(self, signature: Any, function: Callable[..., Any]) -> None:
        function.__qualname__ = f"{function.__name__}-{source_hash()}"
        self._signature = signature
        self._dispatcher: Any = njit(cache=True, nogil=True, error_model="numpy")(function)

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
        return self._dispatcher._cache.load_overload(self._signature, self._dispatcher.targetctx) is not None

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)


def engine_function(signature: Any) -> Callable[[Callable[..., Any]], EngineFunction]:
    """Return a decorator that makes an `EngineFunction`."""
    return partial(EngineFunction, signature)


def runner(function: Callable[..., int], state: Any, logs: bool) -> EngineFunction:
    """Return an engine with this type of state, and with a log or with None for it, which is faster."""
    log = LOG if logs else types.none
    signature = types.int64(types.FunctionType(OBJECTIVE), INTS, REALS, PROGRESS, CACHE, state, LIMITS, log)
    return EngineFunction(signature, function)


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


# These take arrays rather than named tuples: numba counts references whenever an array is taken out of a tuple.


@njit(error_model="numpy")
def call_objective(f, ints, data, x, counts, reals, best_x):
    """Evaluate a point; NaN is a failure."""
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
    """Store a value at a place of the table."""
    table[place].key = key
    table[place].value = value
    table[place].seen = EVALUATED
    counts[KNOWN] += 1


@engine_function(types.void(CACHE, BITS, types.float64, INTS))
def store(cache, x, value, counts):
    """Store the value of a point that was evaluated elsewhere."""
    key = key_of(x, cache.codes)
    keep(cache.table, find(cache.table, key), key, value, counts)


@njit(error_model="numpy")
def log_evaluation(log_x, log_f, at, x, value):
    """Store an evaluation in the log."""
    row = log_x[at]
    for i in range(x.size):
        row[i] = x[i]
    log_f[at] = value


@njit(error_model="numpy")
def test_for_noise(f, ints, data, progress, limits, log):
    """Evaluate the point to be tested, before the samples of its iteration; return which limit is reached, if any."""
    counts, reals = progress.counts, progress.reals
    value = call_objective(f, ints, data, log.test_x, counts, reals, progress.best_x)
    log_evaluation(log.x, log.f, counts[LOGGED], log.test_x, value)
    return limit_reached(counts, reals, limits)


@njit(error_model="numpy")
def end_logged_iteration(counts, lam, at):
    """Count the candidates and the evaluations of a complete iteration, and its test."""
    counts[DRAWN] += lam
    counts[LOGGED] = at
    if counts[TEST] == PLANNED:
        counts[DRAWN] += 1
        counts[STALE] = 0
        counts[TEST] = MADE


@njit(error_model="numpy")
def must_pause(counts, log_f, lam, due):
    """Return whether evaluations must be handed over before an iteration of λ samples begins.

    The log is full with these and a test for noise, or such a test is due, or was made.
    """
    full = counts[LOGGED] + lam >= log_f.size
    return full or counts[TEST] == MADE or (counts[TEST] == NO_TEST and counts[NFEV] >= due)


@njit(error_model="numpy")
def limit_reached(counts, reals, limits):
    """Return which limit is reached, if any."""
    if reals[BEST] <= limits.target:  # with NaN for no target, never
        return TARGET
    if counts[NFEV] - counts[BEST_AT] >= limits.stall:
        return STALL
    return BUDGET if counts[NFEV] >= limits.budget else GOING


@njit(error_model="numpy")
def search_ended(counts, n):
    """Return whether all points are evaluated, or sampling yields no new ones."""
    if n < 62 and counts[KNOWN] >> n:
        return EXHAUSTED
    return CONVERGED if counts[STALE] >= MAX_STALE else GOING


@njit(error_model="numpy")
def evaluate_places(f, ints, data, progress, cache, limits, log, x, places, keys, values):
    """Evaluate the points of an iteration at these places that are not in the cache, after the test for noise, if any.

    Return which limit is reached, if any, and whether the iteration is complete. It is if all points have values: those
    in the cache are taken even if a limit is reached.
    """
    counts, reals, best_x, (table, codes) = progress.counts, progress.reals, progress.best_x, cache
    before, at, why = counts[NFEV], counts[LOGGED], GOING
    if log is not None and counts[TEST] == PLANNED:
        why = test_for_noise(f, ints, data, progress, limits, log)
        at += 1
    for place in places:
        point = x[place]
        keys[place] = key_of(point, codes)
        entry = find(table, keys[place])
        if not table[entry].seen:
            if why != GOING:
                return why, False
            value = call_objective(f, ints, data, point, counts, reals, best_x)
            keep(table, entry, keys[place], value, counts)
            why = limit_reached(counts, reals, limits)
            if log is not None:
                log_evaluation(log.x, log.f, at, point, value)
                at += 1
        value = table[entry].value
        values[place] = value if value == value else math.inf
    counts[NIT] += 1
    counts[STALE] = 0 if counts[NFEV] > before else counts[STALE] + places.size
    if log is not None:
        end_logged_iteration(counts, places.size, at)
    return why, True


@njit(error_model="numpy")
def update_leader(counts, reals, leader_x, member, x, value):
    """Keep a member's point if it improves the best value; return whether it does."""
    if value < reals[LEADER_FUN]:
        reals[LEADER_FUN] = value
        leader_x[:] = x
        counts[OWNER] = member
        return True
    return False


@njit(error_model="numpy")
def _powers(count):
    """Return how many powers of two a number has reached: its bit length."""
    powers = 0
    while count >> powers:
        powers += 1
    return powers


@njit(error_model="numpy")
def add_to_record(spent, lowest, course, member, value):
    """Add an evaluation to the record of a member, as `MemberRecord.after`."""
    if value < lowest[member]:
        lowest[member] = value
    spent[member] += 1
    if spent[member] & (spent[member] - 1) == 0:
        course[member, _powers(spent[member]) - 1] = lowest[member]


@njit(error_model="numpy")
def following_turn(counts, reals, spent, course):
    """Return the member that has the next turn, as `portfolio.next_turn`, or that a study begins."""
    if 0 < counts[STUDY_AT] <= spent.sum() and -math.inf < reals[LEADER_FUN] < FEASIBLE_LIMIT:
        return STUDY
    fewest = spent.min()
    if fewest < counts[EQUAL]:
        return spent.argmin()
    leading = course[:, _powers(fewest) - 1].argmin() if fewest >= LEAST_COMPARED else 0
    turn, least = 0, 0
    for i in range(spent.size):
        cost = spent[i] * (1 if i == leading else LEAD)
        if i == 0 or cost < least:
            turn, least = i, cost
    return turn
