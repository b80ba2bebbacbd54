"""Three compiled estimation-of-distribution algorithms without parameters, as baselines for parameterless.py.

- Smart-restart cGA (Doerr and Zheng, GECCO 2020): the hypothetical population size K doubles from 2; a run of the cGA
  ends after 8 K² iterations.
- Parallel-run cGA (Doerr, Algorithmica 2021): processes with K = 1, 2, 4, …; in round i = 1, 2, … a new one starts, and
  afterwards each of the i processes has made 2^i - 1 iterations.
- Sig-cGA (Doerr and Krejca, IEEE TEVC 2020): frequencies in {1/n, 1/2, 1 - 1/n}, which change only if the number of
  ones in the last 2^m winners, for some m, differs significantly from its expectation. ε = 12, which the theorems
  require to be exceeded.

Each minimizes a compiled objective as `parameterless_problems.py` makes it, which counts its evaluations, and ends when
that has recorded the optimum or the budget is exhausted. Ties are broken at random: the first of two samples wins. All
return what a test can verify: the last K, the iterations of each process, or the frequencies and the winners.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from parameterless_problems import COUNT, FIRST, next_word

HALF, LOW, HIGH = range(3)
EPSILON = 12.0
UNIT = np.float32(2.0**-24)


@njit(cache=True)
def sample(p: Any, x: Any, state: Any) -> None:
    """Draw each bit from 24 random bits: a hash of its index and of 64 random bits, in a loop that is vectorized."""
    word = next_word(state)
    low, high = np.uint32(word), np.uint32(word >> np.uint64(32))
    for i in range(x.size):
        h = np.uint32(np.uint32(i) * np.uint32(0x9E3779B9)) ^ low
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)) ^ high
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        x[i] = np.float32(np.int32(h >> np.uint32(8))) * UNIT < p[i]


@njit(cache=True)
def ended(ints: Any, budget: int) -> bool:
    return ints[FIRST] > 0 or ints[COUNT] >= budget


@njit(cache=True)
def compare(fun: Any, ints: Any, reals: Any, p: Any, x: Any, y: Any, state: Any) -> bool:
    """Draw and evaluate two samples; return whether the first one wins."""
    sample(p, x, state)
    sample(p, y, state)
    first = fun(x, ints, reals)
    return first <= fun(y, ints, reals)


@njit(cache=True)
def generation(fun: Any, ints: Any, reals: Any, p: Any, k: int, x: Any, y: Any, state: Any) -> None:
    """Make one iteration of the cGA with the population size k."""
    step = (1.0 if compare(fun, ints, reals, p, x, y, state) else -1.0) / k
    margin = 1.0 / p.size
    for i in range(p.size):
        moved = p[i] + step * (x[i] - y[i])
        p[i] = min(max(moved, margin), 1.0 - margin)


@njit(cache=True)
def smart_restart_cga(fun: Any, ints: Any, reals: Any, n: int, budget: int, state: Any) -> int:
    x, y = np.empty(n, np.int8), np.empty(n, np.int8)
    k = 2
    while True:
        p = np.full(n, 0.5)
        for _ in range(8 * k * k):
            if ended(ints, budget):
                return k
            generation(fun, ints, reals, p, k, x, y, state)
        k *= 2


@njit(cache=True)
def parallel_run_cga(fun: Any, ints: Any, reals: Any, n: int, budget: int, state: Any) -> Any:
    x, y = np.empty(n, np.int8), np.empty(n, np.int8)
    p, made = np.full((62, n), 0.5), np.zeros(62, np.int64)
    for i in range(62):
        for j in range(i + 1):
            while made[j] < 2 ** (i + 1) - 1:
                if ended(ints, budget):
                    return made
                generation(fun, ints, reals, p[j], 2**j, x, y, state)
                made[j] += 1
    return made


@njit(cache=True)
def thresholds(n: int, epsilon: float, share: float, lengths: int) -> Any:
    """Return how many equal bits are significant in the last 2^m, for a frequency of `share`, by m."""
    log = math.log(n)
    mean = share * 2.0 ** np.arange(lengths)
    return mean + epsilon * np.maximum(np.sqrt(mean * log), log)


@njit(cache=True)
def ones_until(words: Any, before: Any, i: int, t: int) -> int:
    """Return the number of ones of variable i in the first t winners."""
    w, used = t // 64, np.uint64(t % 64)
    word = words[w, i] & ((np.uint64(1) << used) - np.uint64(1))
    count = before[w, i]
    while word:
        word &= word - np.uint64(1)
        count += 1
    return count


@njit(cache=True)
def sig_cga(fun: Any, ints: Any, reals: Any, n: int, budget: int, state: Any) -> Any:
    """Run the sig-cGA; the winners are packed in time, 64 to a word, and `before` counts the ones before each word.

    A number of ones changes by at most one per iteration, so that a length is not tested again until it can have
    become significant.
    """
    iterations = budget // 2 + 1
    lengths = 1 + int(math.log2(iterations))
    half, rare = thresholds(n, EPSILON, 0.5, lengths), thresholds(n, EPSILON, 1.0 / n, lengths)
    words = np.zeros((iterations // 64 + 2, n), np.uint64)
    before = np.zeros((iterations // 64 + 2, n), np.int32)
    x, y = np.empty(n, np.int8), np.empty(n, np.int8)
    level, start, due = np.zeros(n, np.int8), np.zeros(n, np.int64), np.ones(n, np.int64)
    p = np.full(n, 0.5)
    t = 0
    while not ended(ints, budget):
        winner = x if compare(fun, ints, reals, p, x, y, state) else y
        for i in range(n):
            words[t // 64, i] |= np.uint64(winner[i]) << np.uint64(t % 64)
        t += 1
        if t % 64 == 0:
            for i in range(n):
                before[t // 64, i] = ones_until(words, before, i, t - 1) + winner[i]
        for i in range(n):
            if due[i] > t:
                continue
            due[i], change = iterations, HALF
            now = ones_until(words, before, i, t)
            for m in range(lengths):
                length = 2**m
                if length > t - start[i]:
                    due[i] = min(due[i], start[i] + length)
                    break
                ones = now - ones_until(words, before, i, t - length)
                up = rare[m] if level[i] == LOW else half[m]
                down = rare[m] if level[i] == HIGH else half[m]
                if level[i] != HIGH and ones >= up:
                    change = HIGH
                    break
                if level[i] != LOW and length - ones >= down:
                    change = LOW
                    break
                gap = math.inf
                if level[i] != HIGH and up <= length:
                    gap = up - ones
                if level[i] != LOW and down <= length:
                    gap = min(gap, down - (length - ones))
                if gap < math.inf:
                    due[i] = min(due[i], t + max(1, math.ceil(gap)))
            if change != HALF:
                level[i], start[i], due[i] = change, t, t + 1
                p[i] = 1.0 / n if change == LOW else 1.0 - 1.0 / n
    return p, words, t
