"""Problems as plain loops that numba compiles: `kernel(x, ints, reals) -> float`.

x is one point, a C-contiguous int8 array of zeros and ones; `ints` and `reals` are the data that
the problem's `flat()` gives along with the kernel's name in `KERNELS`. The functions here are not
compiled: their users compile them. They need the extra `fast`, and only modules that compile them
import this one.

What makes them fast, found by measuring: sums of bits run in 32 bits, which are vectorized (64 take
twice as long), and an index that was read from data is made unsigned, because numba lets a signed
one count from the end and checks its sign every time (five times as long for a formula).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from knobless.core.types import Array

Bits = NDArray[np.int8]
Ints = NDArray[np.int64]
Kernel = Callable[[Bits, Ints, Array], float]


def _population(word: Any) -> Any:
    """Return how many bits of a word are one, in the form that LLVM turns into one instruction."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


# Compiled along with the kernels that call it; in Python it stays what it is
register_jitable(_population)


def one_max(x: Bits, ints: Ints, reals: Array) -> float:
    """`OneMax`."""
    total = np.int32(0)
    for i in range(x.size):
        total = np.int32(total + x[i])
    return float(x.size - total)


def leading_ones(x: Bits, ints: Ints, reals: Array) -> float:
    """`LeadingOnes`: sixteen bits at a time, then those that are left."""
    n = x.size
    i = 0
    while i + 16 <= n:
        leading = np.int8(1)
        for j in range(16):
            leading = np.int8(leading & x[i + j])
        if leading == 0:
            break
        i += 16
    while i < n and x[i] == 1:
        i += 1
    return float(n - i)


def linear(x: Bits, ints: Ints, reals: Array) -> float:
    """`Linear`: ints are the weights in units of reals[0], which are added in vectors.

    Or reals are the weights.
    """
    if ints.size > 0:
        total = 0
        for i in range(x.size):
            total += ints[i] & (np.int64(x[i]) - 1)  # all bits of it, or none
        return total * reals[0]
    cost = 0.0
    for i in range(x.size):
        cost += reals[i] * (1 - x[i])
    return cost


def bin_val(x: Bits, ints: Ints, reals: Array) -> float:
    """`BinVal`: Horner's rule in digits of 32 bits.

    The first digit has the n mod 32 bits left over.
    """
    n = x.size
    value = 0.0
    begin = 0
    end = n % 32
    while begin < n:
        digit = 0
        for i in range(begin, end):
            digit |= np.int64(1 - x[i]) << (end - 1 - i)
        value = value * 4294967296.0 + digit
        begin = end
        end += 32
    return value


def jump(x: Bits, ints: Ints, reals: Array) -> float:
    """`Jump`: ints are k."""
    k = ints[0]
    total = np.int32(0)
    for i in range(x.size):
        total = np.int32(total + x[i])
    zeros = x.size - total
    return float(x.size + k - zeros if 0 < zeros < k else zeros)


def traps(x: Bits, ints: Ints, reals: Array) -> float:
    """`Traps`: ints are k."""
    k = ints[0]
    cost = 0
    for begin in range(0, x.size, k):
        total = 0
        for i in range(begin, begin + k):
            total += x[i]
        if total < k:
            cost += total + 1
    return float(cost)


def ising_ring(x: Bits, ints: Ints, reals: Array) -> float:
    """`IsingRing`."""
    n = x.size
    unequal = np.int32(x[0] ^ x[n - 1])
    for i in range(n - 1):
        unequal = np.int32(unequal + (x[i] ^ x[i + 1]))
    return float(unequal)


def ising_torus(x: Bits, ints: Ints, reals: Array) -> float:
    """`IsingTorus`: ints are the side."""
    n = np.uint64(x.size)
    side = np.uint64(ints[0])
    unit = np.uint64(1)
    none = np.uint64(0)
    unequal = np.int32(0)
    for i in range(n - side):  # down
        unequal = np.int32(unequal + (x[i] ^ x[i + side]))
    for i in range(side):
        unequal = np.int32(unequal + (x[i] ^ x[n - side + i]))
    # Right, the end of a row meeting the beginning of the next
    for i in range(n - unit):
        unequal = np.int32(unequal + (x[i] ^ x[i + unit]))
    # But it should meet the beginning of its own row
    for i in range(none, n, side):
        unequal = np.int32(unequal + (x[i] ^ x[i + side - unit]))
        if i > none:
            unequal = np.int32(unequal - (x[i] ^ x[i - unit]))
    return float(unequal)


def labs(x: Bits, ints: Ints, reals: Array) -> float:
    """`LABS`: with 64 bits in a word, spins at distance k differ where x and x shifted by k do."""
    n = x.size
    words = np.zeros(n // 64 + 2, dtype=np.uint64)  # one more, to shift in from
    for i in range(n):
        words[i >> 6] |= np.uint64(x[i]) << np.uint64(i & 63)
    energy = 0
    for k in range(1, n):
        skip = k >> 6
        shift = np.uint64(k & 63)
        length = n - k
        differ = 0
        for w in range((length + 63) >> 6):
            # In two steps, because a shift by 64 is none.
            low = words[w + skip] >> shift
            high = (
                words[w + skip + 1] << (np.uint64(63) - shift)
            ) << np.uint64(1)
            different = words[w] ^ (low | high)
            left = length - 64 * w
            if left < 64:
                different &= (np.uint64(1) << np.uint64(left)) - np.uint64(1)
            differ += int(_population(different))
        c = length - 2 * differ
        energy += c * c
    return float(energy)


def nk(x: Bits, ints: Ints, reals: Array) -> float:
    """`NK`: ints are k, reals the tables, row by row.

    The window of k + 1 bits moves along the ring.
    """
    n = x.size
    k = ints[0]
    states = 2 << k
    window = 0
    for i in range(k):
        window = 2 * window + x[i]
    total = 0.0
    for i in range(n - k):
        window = (2 * window + x[i + k]) & (states - 1)
        total += reals[np.uint64(i * states + window)]
    for i in range(n - k, n):
        window = (2 * window + x[i + k - n]) & (states - 1)
        total += reals[np.uint64(i * states + window)]
    return total


def max_sat(x: Bits, ints: Ints, reals: Array) -> float:
    """`MaxSat`: ints are groups (length, negated, how many, variables), reals the weights, or none.

    Clauses of three literals, and shorter ones that repeat a literal, are evaluated without a
    branch, which would be mispredicted at every other literal; longer ones up to the first literal
    that is true.
    """
    weighted = reals.size > 0
    cost = 0.0
    broken = 0
    clause = np.uint64(0)
    at = np.uint64(0)
    unit = np.uint64(1)
    two = np.uint64(2)
    three = np.uint64(3)
    while at < ints.size:
        length = ints[at]
        negated = ints[at + unit]
        count = ints[at + two]
        at += three
        # 1: not negated
        p, q, r = (
            np.int8(negated < 3),
            np.int8(negated < 2),
            np.int8(negated < 1),
        )
        if length == 3 and weighted:
            for _ in range(count):
                i = np.uint64(ints[at])
                j = np.uint64(ints[at + unit])
                k = np.uint64(ints[at + two])
                cost += reals[clause] * ((x[i] ^ p) & (x[j] ^ q) & (x[k] ^ r))
                at += three
                clause += unit
        elif length == 3:
            for _ in range(count):
                i = np.uint64(ints[at])
                j = np.uint64(ints[at + unit])
                k = np.uint64(ints[at + two])
                broken += (x[i] ^ p) & (x[j] ^ q) & (x[k] ^ r)
                at += three
        else:
            for _ in range(count):
                met = 0
                while met < length and x[
                    np.uint64(ints[at + np.uint64(met)])
                ] == (met >= length - negated):
                    met += 1
                if met == length:
                    cost += reals[clause] if weighted else 1.0
                at += np.uint64(length)
                clause += unit
    return cost + broken


def max_sat_128(x: Bits, ints: Ints, reals: Array) -> float:
    """`MaxSat` of at most 128 variables, without weights: a point is two words, and so is a clause.

    ints are, for m clauses, m words that mark the variables below 64, m for the others, and as many
    that mark the negated ones alone. A clause is broken if of its variables the negated ones are
    one and no others.
    """
    m = ints.size // 4
    low = high = np.int64(0)
    for i in range(min(x.size, 64)):
        low |= np.int64(x[i]) << i
    for i in range(64, x.size):
        high |= np.int64(x[i]) << (i - 64)
    broken = 0
    for c in range(m):
        broken += (
            ((low & ints[c]) ^ ints[2 * m + c])
            | ((high & ints[m + c]) ^ ints[3 * m + c])
        ) == 0
    return float(broken)


def max_cut(x: Bits, ints: Ints, reals: Array) -> float:
    """`MaxCut`: minus the weights of the edges that are cut.

    Ints are the edges' ends, two by two.
    """
    cut = 0.0
    for e in range(reals.size):
        i = np.uint64(ints[2 * e])
        j = np.uint64(ints[2 * e + 1])
        cut += reals[e] * (x[i] ^ x[j])
    return -cut


def quadratic(x: Bits, ints: Ints, reals: Array) -> float:
    """`Qubo` of integers: Σ q x_i x_j over i ≤ j, in compressed rows.

    ints are where the n rows begin, and the end, then the columns; reals are the diagonal, then the
    values.
    """
    n = x.size
    columns = ints[n + 1 :]
    values = reals[n:]
    cost = 0.0
    for i in range(n):
        begin = ints[i]
        end = ints[i + 1]
        # a short row costs less than a branch that is mispredicted
        if x[i] == 0 and end - begin > 8:
            continue
        a, b = reals[i], 0.0  # two sums, which need not wait for one another
        if (end - begin) % 2:
            end -= 1
            a += values[np.uint64(end)] * x[np.uint64(columns[np.uint64(end)])]
        for p in range(np.uint64(begin), np.uint64(end), np.uint64(2)):
            q = p + np.uint64(1)
            a += values[p] * x[np.uint64(columns[p])]
            b += values[q] * x[np.uint64(columns[q])]
        cost += (a + b) * x[i]
    return cost


def quadratic_in_order(x: Bits, ints: Ints, reals: Array) -> float:
    """`Qubo` of reals, added in the order of `Qubo.costs`, so that both round alike."""
    n = x.size
    columns = ints[n + 1 :]
    values = reals[n:]
    cost = 0.0
    for i in range(n):
        if x[i] == 0:
            continue
        cost += reals[i]
        for p in range(np.uint64(ints[i]), np.uint64(ints[i + 1])):
            cost += values[p] * x[np.uint64(columns[p])]
    return cost


KERNELS: dict[str, Kernel] = {
    kernel.__name__: kernel
    for kernel in (
        *(one_max, leading_ones, linear, bin_val, jump, traps),
        *(
            ising_ring,
            ising_torus,
            labs,
            nk,
            max_sat,
            max_sat_128,
            max_cut,
            quadratic,
            quadratic_in_order,
        ),
    )
}
