"""P3 on bits, compiled: `p3.py` and `linkage.py` again, with one climber, as plain loops for numba.

One specification, two implementations: with the same key, this one asks for the same points in the
same order. What is a coroutine there is a `PHASE` here: `proceed` computes the next point to
evaluate, `take_value` takes its value.

A level is stored by columns, one bit per member, in blocks of 64 members: a word of a block holds
one variable of all of them. So pairs are counted, and members that differ found, 64 at a time. A
tree is an order of the variables in which each group is contiguous; for neighboring variables it is
the order in which they are declared.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from knobless.core.families import Bernoulli, threshold
from knobless.core.linkage import MAX_OPTIONS, UNIT, entropy_terms
from knobless.core.p3 import P3, ROUNDS, SKIPPED, Pyramid, coupon_draws
from knobless.core.rng import Stream
from knobless.core.types import Array, Points, Words

from . import shared
from .kernels import _population
from .shared import BITS, INTS, LONG_WORDS, REALS, WORDS

# Points in one compiled call that were asked for before, so that Ctrl-C is handled in time
MOST_ANSWERS = 2**16

# Phases of an individual
BEGIN = 0
BEGUN = 1  # its first point was asked for
CLIMB = 2  # local search
COMBINE = 3  # the point of the better values of each bit was asked for
CLIMBED = 4  # the local search has ended
ENTER = 5  # it enters a level
CROSS = 6  # it takes over groups of bits from the points of a level

# Indices into the counts of a `PyramidState`
PHASE = 0
WORD_COUNT = 1  # random words drawn
NEXT = 2  # place in the order of bits or groups
STEPS = 3  # flips tried by the local search
UP = 4  # of these, until the last improvement
MOVED = 5  # whether the round has changed the point
CHANGED = 6  # entries of `changed`
LEVEL = 7  # the level that is crossed
LEVELS = 8
BLOCKS = 9
MEMBERS = 10  # of the pyramid
PENDING_POINT = 11  # whether x has no value yet
ANSWERED = 12  # points in a row that were answered from the cache
CAN_YIELD = 13  # whether an individual has just finished
INDIVIDUALS = 14  # begun so far
PASS = 15  # steps before the current round
TREE = 16  # row of `leaves` and `spans` of the current groups
TREE_SIZE = 17  # its groups
N_COUNTS = 18

# Indices into the reals of a `PyramidState`
F = 0  # value of x
BEFORE = 1  # value before the level
PATIENCE = 2  # N ln N, of which P3 takes `ROUNDS`, and a tabu search one

# Indices into the keys of a `PyramidState`
STREAM = 0
POINT = 1  # x

# Indices into a row of `levels`
HEAD = 0  # first block
TAIL = 1  # last block
SIZE = 2  # members
GROUPS = 3  # of the tree; −1 if there is none

NEIGHBORS = 0  # row of `leaves` and `spans`; the tree of level i has row i + 1


class PyramidState(NamedTuple):
    """The state of P3 over bits."""

    counts: NDArray[np.int64]
    reals: Array
    keys: NDArray[np.uint64]  # of the stream, and of x in the cache
    # Thresholds of the random point that an individual begins with
    first: Words
    # Initial point of the first individual; empty if there is none
    x0: NDArray[np.int8]
    x: NDArray[np.int8]
    # Bits of x that were flipped in the local search
    changed: NDArray[np.int64]
    # Order in which bits are flipped, or groups taken over
    order: NDArray[np.int64]
    ones: NDArray[np.int64]  # of each bit among all members
    # Sums of the differences in value between one and zero, of each bit in the local search
    effects: Array
    # `entropy_terms` for the next tree: computed by NumPy, because other logarithms may round
    # otherwise
    terms: Array
    # One row per level: first and last block, members, groups; −1 if there is no tree
    levels: NDArray[np.int64]
    leaves: NDArray[np.int64]  # orders of the variables, one row per tree
    spans: NDArray[np.int64]  # begins and ends of the groups in these
    columns: NDArray[np.uint64]  # one row per block
    chain: NDArray[np.int64]  # the next block of the level
    masks: NDArray[np.uint64]  # of members that differ, block by block


def empty_pyramid(algorithm: P3, key: int, x0: Points | None) -> PyramidState:
    """Return an empty pyramid with the key of its random numbers."""
    n = algorithm.family.variables
    none = np.empty(0, dtype=np.int64)
    return grown_pyramid(
        PyramidState(
            np.zeros(N_COUNTS, dtype=np.int64),
            np.array([math.inf, math.inf, coupon_draws(n)]),
            np.array([key, 0], dtype=np.uint64),
            threshold(algorithm.family.initial()),
            np.empty(0, dtype=np.int8) if x0 is None else x0.copy(),
            np.zeros(n, dtype=np.int8),
            np.empty(n, dtype=np.int64),
            np.empty(2 * n, dtype=np.int64),
            np.zeros(n, dtype=np.int64),
            np.zeros(n),
            np.empty(0),
            none.reshape(0, 4),
            np.arange(n)[None],
            np.empty((1, 2 * n, 2), dtype=np.int64),
            none.astype(np.uint64).reshape(0, n),
            none,
            none.astype(np.uint64),
        )
    )


def grown_pyramid(
    pyramid: PyramidState, why: int = shared.GROW_BUFFERS
) -> PyramidState:
    """Return the pyramid with more room.

    It gets room for more levels and blocks, or the table for its next tree.
    """
    if why == shared.GROW_TERMS:
        return pyramid._replace(
            terms=entropy_terms(
                int(pyramid.levels[pyramid.counts[LEVEL], SIZE])
            )
        )
    growing = ("levels", "leaves", "spans", "columns", "chain", "masks")
    return pyramid._replace(
        **{name: _longer(getattr(pyramid, name)) for name in growing}
    )


class CompiledPyramid(shared.CompiledState):
    """The state of `P3` in arrays.

    It begins with an empty pyramid and is rebuilt from the values that P3 was told.
    """

    arrays: PyramidState

    def __init__(self, algorithm: P3, state: Pyramid, stream: Stream) -> None:
        key = stream.word() if state.stream is None else state.stream.key
        super().__init__(empty_pyramid(algorithm, key, state.x0))
        self._family, self.told = algorithm.family, len(state.told)

    @staticmethod
    def supports(algorithm: P3, deterministic: bool) -> bool:
        """Return whether the engine can run the algorithm."""
        return (
            deterministic
            and algorithm.climbers == 1
            and type(algorithm.family) is Bernoulli
        )

    @staticmethod
    def functions() -> list[shared.EngineFunction]:
        """Return P3."""
        return [run_pyramid]

    def grow(self, why: int) -> None:
        """Enlarge the arrays that are too small."""
        self.arrays = grown_pyramid(self.arrays, why)

    @property
    def theta(self) -> Array:
        """The mean of the members, as that of the core."""
        first = self._family.initial()
        members = int(self.arrays.counts[MEMBERS])
        return self._family.move(
            first, (first + self.arrays.ones) / (1 + members) - first
        )

    @property
    def can_yield(self) -> bool:  # type: ignore[override]
        """Whether an individual has just finished."""
        return bool(self.arrays.counts[CAN_YIELD])


def _longer(array: NDArray[Any]) -> NDArray[Any]:
    added = np.empty((max(4, len(array)), *array.shape[1:]), dtype=array.dtype)
    return np.concatenate([array, added])


@njit(error_model="numpy")
def _words(p, size):
    """Return the next words of the stream."""
    words = np.empty(size, dtype=np.uint64)
    for i in range(size):
        words[i] = shared.word(p.keys[STREAM], p.counts[WORD_COUNT] + 1 + i)
    p.counts[WORD_COUNT] += size
    return words


@njit(error_model="numpy")
def below(p, n):
    """Return an integer from 0 to n − 1, from the next word of the stream, as `Stream.below`."""
    p.counts[WORD_COUNT] += 1
    return np.int64(
        (
            (shared.word(p.keys[STREAM], p.counts[WORD_COUNT]) >> np.uint64(32))
            * np.uint64(n)
        )
        >> np.uint64(32)
    )


@njit(error_model="numpy")
def _turn(p, i, codes):
    p.x[i] ^= 1
    p.keys[POINT] ^= codes[i]


@njit(error_model="numpy")
def _begin(p, codes):
    """Set x to a random point, or to the initial point of the run."""
    words = _words(p, p.x.size)
    if p.counts[INDIVIDUALS] == 0 and p.x0.size:
        p.x[:] = p.x0
    else:
        for i in range(p.x.size):
            p.x[i] = np.int8(np.uint32(words[i] >> np.uint64(32)) < p.first[i])
    p.keys[POINT] = shared.key_of(p.x, codes)
    p.counts[INDIVIDUALS] += 1


@njit(error_model="numpy")
def _join(p, level, table):
    """Add x to a level, unless it is a member."""
    place = shared.find(table, p.keys[POINT])
    if table[place].seen & shared.MEMBER:
        return
    table[place].key = p.keys[POINT]
    table[place].seen |= shared.MEMBER
    counts = p.counts
    if level == counts[LEVELS]:
        p.levels[level, SIZE] = 0
        counts[LEVELS] += 1
    about = p.levels[level]
    bit = np.uint64(about[SIZE] % 64)
    if bit == 0:
        block = counts[BLOCKS]
        p.columns[block] = 0
        if about[SIZE]:
            p.chain[about[TAIL]] = block
        else:
            about[HEAD] = block
        about[TAIL] = block
        counts[BLOCKS] += 1
    column = p.columns[about[TAIL]]
    for i in range(p.x.size):
        column[i] |= np.uint64(p.x[i]) << bit
        p.ones[i] += p.x[i]
    about[SIZE] += 1
    about[GROUPS] = -1
    counts[MEMBERS] += 1


@njit(error_model="numpy")
def _distances(p, level, order):
    """`Pairs.distances`, for variables in this order."""
    m = p.levels[level, SIZE]
    n = p.x.size
    h = p.terms
    blocks = (m + 63) // 64
    columns = np.empty((blocks, n), dtype=np.uint64)
    block = p.levels[level, HEAD]
    for b in range(blocks):
        for i in range(n):
            columns[b, i] = p.columns[block, order[i]]
        block = p.chain[block]
    n_ones = np.zeros(n, dtype=np.int64)
    for b in range(blocks):
        for i in range(n):
            n_ones[i] += np.int64(_population(columns[b, i]))
    alone = np.empty(n)
    for i in range(n):
        alone[i] = h[m - n_ones[i]] + h[n_ones[i]]
    distance = np.empty((n, n))
    n_both = np.empty(n, dtype=np.int64)
    for i in range(n):
        n_both[:] = 0
        for b in range(blocks):
            mine = columns[b, i]
            for j in range(i + 1, n):
                n_both[j] += np.int64(_population(mine & columns[b, j]))
        distance[i, i] = math.inf
        for j in range(i + 1, n):
            h11 = h[n_both[j]]
            h10 = h[n_ones[i] - n_both[j]]
            h01 = h[n_ones[j] - n_both[j]]
            h00 = h[m - n_ones[i] - n_ones[j] + n_both[j]]
            # Each sum in the order of the core, which is another for the other side.
            distance[i, j] = _distance(
                alone[i] + alone[j], (h00 + h10) + (h01 + h11)
            )
            distance[j, i] = _distance(
                alone[i] + alone[j], (h00 + h01) + (h10 + h11)
            )
    return distance


@njit(error_model="numpy")
def _distance(alone, joint):
    return np.rint(UNIT * (2.0 - (alone / joint if joint > 0.0 else 2.0)))


@njit(error_model="numpy")
def _nearest(row):
    """Return the index of the smallest entry, the first in case of ties."""
    at = 0
    for k in range(1, row.size):
        if row[k] < row[at]:
            at = k
    return at


@njit(error_model="numpy")
def linkage_tree(p, level):
    """`Pairs.tree`, with the joins of `linkage.joined`.

    Groups are numbered as there, the single ones first.
    """
    n = p.x.size
    leaves = p.leaves[level + 1]
    spans = p.spans[level + 1]
    # Ties, which are unlikely for 64 bits, would be in another order in NumPy
    order = np.argsort(_words(p, n))
    if 2 * n > MAX_OPTIONS:
        for i in range(n):
            leaves[i], spans[i, 0], spans[i, 1] = order[i], i, i + 1
        p.levels[level, GROUPS] = n
        return
    distance = _distances(p, level, order)
    left = np.empty(n - 1, dtype=np.int64)
    right = np.empty(n - 1, dtype=np.int64)
    length = np.ones(2 * n - 1, dtype=np.int64)
    useful = np.ones(2 * n - 1, dtype=np.bool_)
    place = np.arange(n)
    nearest = np.empty(n, dtype=np.int64)
    shortest = np.empty(n)
    for i in range(n):
        nearest[i] = _nearest(distance[i])
        shortest[i] = distance[i, nearest[i]]
    for join in range(n - 1):
        i = _nearest(shortest)
        j = nearest[i]
        a = place[i]
        b = place[j]
        if shortest[i] <= 0.0:
            useful[a] = useful[b] = False
        left[join], right[join] = a, b
        length[n + join] = length[a] + length[b]
        place[i] = n + join
        row = distance[i]
        for k in range(n):
            row[k] = np.rint(
                (length[a] * row[k] + length[b] * distance[j, k])
                / (length[a] + length[b])
            )
        row[i] = math.inf  # row j is merged; its distances are inf
        shortest[j] = math.inf
        for k in range(n):
            if shortest[k] == math.inf and k != i:
                continue
            distance[k, j] = math.inf
            distance[k, i] = row[k]
            # Also if i was the nearest, or j: others as near come later. Few rows are searched
            # again.
            if k != i and (
                row[k] < shortest[k]
                or (row[k] == shortest[k] and i <= nearest[k])
            ):
                nearest[k] = i
                shortest[k] = row[k]
            elif k == i or nearest[k] == i or nearest[k] == j:
                nearest[k] = _nearest(distance[k])
                shortest[k] = distance[k, nearest[k]]
    # Stretches of leaves, from the whole down to the single ones.
    start = np.zeros(2 * n - 1, dtype=np.int64)
    for join in range(n - 2, -1, -1):
        start[left[join]] = start[n + join]
        start[right[join]] = start[n + join] + length[left[join]]
    for i in range(n):
        leaves[start[i]] = order[i]
    groups = 0
    for g in range(2 * n - 2):  # all but the whole
        if useful[g]:
            spans[groups, 0], spans[groups, 1] = start[g], start[g] + length[g]
            groups += 1
    p.levels[level, GROUPS] = groups


@njit(error_model="numpy")
def _segments(p):
    """`linkage.segments`; return the number of groups."""
    n = p.x.size
    spans = p.spans[NEIGHBORS]
    groups, size = 0, 2
    while 2 * size <= n:
        for begin in range(-below(p, size), n - 1, size):
            if begin > 1 - size:
                spans[groups, 0], spans[groups, 1] = (
                    max(begin, 0),
                    min(begin + size, n),
                )
                groups += 1
        size *= 2
    return groups


@njit(error_model="numpy")
def _smallest_first(p):
    """Set the order in which groups are taken over: by size, random among groups of equal size."""
    groups = p.counts[TREE_SIZE]
    spans = p.spans[p.counts[TREE]]
    shuffled = np.argsort(_words(p, groups))
    place = np.zeros(p.x.size + 2, dtype=np.int64)
    for g in range(groups):
        place[spans[g, 1] - spans[g, 0] + 1] += 1
    for size in range(1, place.size):
        place[size] += place[size - 1]
    for g in shuffled:
        size = spans[g, 1] - spans[g, 0]
        p.order[place[size]] = g
        place[size] += 1


@njit(error_model="numpy")
def _take_over(p, level, group, codes):
    """Take a group over from a random member that differs there; return whether there is one."""
    tree = p.counts[TREE]
    x = p.x
    leaves = p.leaves[tree]
    begin, end = p.spans[tree, group]
    left = p.levels[level, SIZE]
    block = p.levels[level, HEAD]
    n_different = 0
    all_members = ~np.uint64(0)
    while left > 0:
        members = (
            all_members
            if left >= 64
            else (np.uint64(1) << np.uint64(left)) - np.uint64(1)
        )
        column = p.columns[block]
        differ = np.uint64(0)
        for k in range(begin, end):
            i = leaves[k]
            differ |= (column[i] ^ (np.uint64(0) - np.uint64(x[i]))) & members
            if differ == members:
                break
        p.masks[block] = differ
        n_different += np.int64(_population(differ))
        left -= 64
        block = p.chain[block]
    if not n_different:
        return False
    chosen = below(p, n_different)
    block = p.levels[level, HEAD]
    while chosen >= np.int64(_population(p.masks[block])):
        chosen -= np.int64(_population(p.masks[block]))
        block = p.chain[block]
    differ = p.masks[block]
    for _ in range(chosen):
        differ &= differ - np.uint64(1)
    column = p.columns[block]
    lowest = differ & (np.uint64(0) - differ)
    changed = 0
    for k in range(begin, end):
        i = leaves[k]
        if np.int8(column[i] & lowest != 0) != x[i]:
            _turn(p, i, codes)
            p.changed[changed] = i
            changed += 1
    p.counts[CHANGED] = changed
    return True


@njit(error_model="numpy")
def _combine(p, codes):
    """Set each bit to the value that was better in the local search.

    Return whether x has changed.
    """
    changed = 0
    for i in range(p.x.size):
        if p.effects[i] > 0.0 if p.x[i] else p.effects[i] < 0.0:
            _turn(p, i, codes)
            p.changed[changed] = i
            changed += 1
    p.counts[CHANGED] = changed
    return changed > 0


@njit(error_model="numpy")
def proceed(p, codes, table):
    """Compute the next point to evaluate, x; at most one member joins on the way."""
    counts = p.counts
    n = p.x.size
    while True:
        if counts[PHASE] == CLIMB:
            if counts[NEXT] == n:
                if counts[UP] <= counts[PASS] and _combine(p, codes):
                    counts[PHASE] = COMBINE
                    return shared.GOING
                if not counts[MOVED]:  # all neighbors are worse
                    counts[PHASE] = CLIMBED
                    continue
                counts[MOVED] = 0
                counts[PASS] = counts[STEPS]
                p.order[:n] = np.argsort(_words(p, n))
                counts[NEXT] = 0
            i = p.order[counts[NEXT]]
            counts[NEXT] += 1
            _turn(p, i, codes)
            p.changed[0] = i
            counts[CHANGED] = 1
            return shared.GOING
        if counts[PHASE] == CROSS:
            level = counts[LEVEL]
            while counts[NEXT] < counts[TREE_SIZE]:
                group = p.order[counts[NEXT]]
                counts[NEXT] += 1
                if _take_over(p, level, group, codes):
                    return shared.GOING
            if p.reals[F] < p.reals[BEFORE]:
                _join(p, level + 1, table)
            counts[LEVEL] += 1
            counts[PHASE] = ENTER if counts[LEVEL] < counts[LEVELS] else BEGIN
        elif counts[PHASE] == ENTER:
            level = counts[LEVEL]
            if (counts[INDIVIDUALS] + level) % 2 == 0 and n >= 4:
                counts[TREE], counts[TREE_SIZE] = NEIGHBORS, _segments(p)
            else:
                if p.levels[level, GROUPS] < 0:
                    if (
                        2 * n <= MAX_OPTIONS
                        and p.terms.size != p.levels[level, SIZE] + 1
                    ):
                        return shared.GROW_TERMS
                    linkage_tree(p, level)
                counts[TREE], counts[TREE_SIZE] = (
                    level + 1,
                    p.levels[level, GROUPS],
                )
            _smallest_first(p)
            p.reals[BEFORE] = p.reals[F]
            counts[NEXT] = 0
            counts[PHASE] = CROSS
        elif counts[PHASE] == CLIMBED:
            _join(p, 0, table)
            counts[LEVEL] = 0
            counts[PHASE] = ENTER
        else:
            counts[CAN_YIELD] = counts[INDIVIDUALS] > 0
            _begin(p, codes)
            counts[PHASE] = BEGUN
            return shared.GOING


@njit(error_model="numpy")
def take_value(p, value, codes):
    """Take the value of x: a change that is no worse is kept."""
    counts = p.counts
    reals = p.reals
    if value != value:
        value = math.inf
    if counts[PHASE] == BEGUN:
        reals[F] = value
        counts[STEPS] = counts[UP] = 0
        counts[PASS] = -1
        counts[MOVED] = 1
        counts[NEXT] = p.x.size
        counts[PHASE] = CLIMB
        p.effects[:] = 0.0
        return
    if counts[PHASE] == CLIMB and math.isfinite(value - reals[F]):
        i = p.changed[0]
        p.effects[i] += value - reals[F] if p.x[i] else reals[F] - value
    better = value < reals[F]
    if better or (value == reals[F] and counts[PHASE] != COMBINE):
        reals[F] = value
        counts[MOVED] = 1
    else:
        for k in range(counts[CHANGED]):
            _turn(p, p.changed[k], codes)
    if counts[PHASE] == CLIMB or counts[PHASE] == COMBINE:
        counts[STEPS] += 1
        if better:
            counts[UP] = counts[STEPS]
        if counts[PHASE] == COMBINE:
            counts[PHASE] = CLIMB
            counts[PASS] = -1  # once after an order
        elif counts[STEPS] - counts[UP] >= max(
            ROUNDS * reals[PATIENCE], counts[UP]
        ):
            counts[PHASE] = CLIMBED


PYRAMID_STATE = types.NamedTuple(
    (
        *(
            INTS,
            REALS,
            LONG_WORDS,
            WORDS,
            BITS,
            BITS,
            INTS,
            INTS,
            INTS,
            REALS,
            REALS,
        ),
        *(
            types.int64[:, ::1],
            types.int64[:, ::1],
            types.int64[:, :, ::1],
            types.uint64[:, ::1],
            INTS,
            LONG_WORDS,
        ),
    ),
    PyramidState,
)


@shared.member_function(PYRAMID_STATE)
def run_pyramid(f, ints, data, block, cache, p, limits):
    """Run iterations of one point each until a limit is reached; return why P3 has returned.

    A point that P3 has asked for before is told at once, up to `SKIPPED` times in a row. A point
    that only another member has asked for is not evaluated again either, but counts as an
    iteration, as in `Optimizer`.
    """
    counts = p.counts
    counts_of_block, x, values, evaluated, keys, _, _ = block
    table, codes = cache
    answers = 0
    while True:
        if not counts[PENDING_POINT]:
            if max(counts[LEVELS], counts[BLOCKS]) == p.chain.size:
                return shared.GROW_BUFFERS
            if answers >= MOST_ANSWERS:
                return shared.INTERRUPTION
            why = proceed(p, codes, table)
            if why != shared.GOING:
                return why
            answers += 1
            place = shared.find(table, p.keys[POINT])
            if (
                table[place].seen & shared.ASKED
                and counts[ANSWERED] < SKIPPED - 1
            ):
                counts[ANSWERED] += 1
                take_value(p, table[place].value, codes)
                continue
            counts[ANSWERED] = 0
            counts[PENDING_POINT] = 1
        row = counts_of_block[shared.DONE_ROWS]
        if not counts_of_block[shared.LAM]:
            why = shared.begin_iteration(
                counts_of_block,
                values.size,
                table.size,
                1,
                counts[CAN_YIELD],
                limits,
            )
            if why != shared.GOING:
                return why
            shared.copy_point(x, row, p.x)
            keys[row] = p.keys[POINT]
        if not shared.evaluate_iteration(
            f,
            ints,
            data,
            counts_of_block,
            x,
            values,
            evaluated,
            keys,
            table,
            limits,
        ):
            return shared.LIMIT
        table[shared.find(table, p.keys[POINT])].seen |= shared.ASKED
        counts[PENDING_POINT] = counts[CAN_YIELD] = 0
        take_value(p, values[row], codes)
