"""The loop on bits, compiled: Algorithm 1 again, in the order of `igo.py`, as plain loops for numba.

One specification, two implementations: this one draws the core's samples and λ, and its θ differs by rounding alone.
A `Plan` describes an `IGO` in numbers, because compiled code is typed.

Speed comes from four things. Random numbers are computed from a counter, so that drawing a point is a loop without
dependencies, which the compiler turns into vector instructions. Loops that divide use NumPy's error model, which has
no branch for a division by zero. Objectives are called through a function type with a fixed signature, so that this
file is compiled once and found in the cache on disk for every objective. And nothing is allocated inside the loop.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from knobless.core.adaptation import SNR, Fixed, Signal, samples, steps
from knobless.core.elitism import BestSoFar, Elite, LastBest, NoElitism
from knobless.core.families import Bernoulli
from knobless.core.igo import IGO, State
from knobless.core.preferences import Quartiles, Truncation
from knobless.core.rng import GOLDEN, LongWords, Stream
from knobless.core.types import Array, Words
from knobless.run.run_state import RECENT

from .shared import (
    BEST,
    BEST_AT,
    BITS,
    BUDGET,
    FAILURES,
    GOING,
    GROW_BUFFERS,
    GROW_CACHE,
    INTS,
    KNOWN,
    LOGGED,
    LONG_WORDS,
    NFEV,
    NIT,
    OBJECTIVE,
    PAUSE,
    PLANNED,
    REALS,
    SIGN,
    STALE,
    STALL,
    TARGET,
    TEST,
    WORDS,
    EngineFunction,
    end_logged_iteration,
    find,
    keep,
    key_of,
    limit_reached,
    log_evaluation,
    mixed,
    must_pause,
    runner,
    search_ended,
    test_for_noise,
)

__all__ = ["OBJECTIVE", "LoopState", "Plan", "grown_loop", "loop", "loop_runner", "loop_state", "plan_of"]

FEW = 32  # values whose ranks are counted rather than sorted
WORDS_AT_ONCE = REALS_AT_ONCE = 1024  # random words, or parts of the gradient, that stay in the fastest cache
_ROWS = 256  # of the sample buffer at first; it grows with λ

# Rules of elitism.
_NO_ELITISM, _LAST_BEST, _BEST_SO_FAR = range(3)

# Indices into the arrays of a `LoopState`.
GAMMA, LAM_R, ELITE = range(3)  # ELITE is the value of the elite, inf if there is none
OLDER, NEWER = range(2)
KEY, COUNT = range(2)


class Plan(NamedTuple):
    """An IGO over bits in numbers: its preference, adaptation, margin and elitism."""

    mu: float  # of a truncation; 0 for quartiles
    adaptive: float
    on_samples: float
    eps: float
    alpha: float
    lam_min: float
    lam_max: float
    margin: float
    elitism: float  # one of the rules above


def plan_of(algorithm: Any) -> Plan | None:
    """Return the plan of an algorithm that the engine can run.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.

    Returns
    -------
    Plan or None
        None if it cannot be compiled.
    """
    if not (isinstance(algorithm, IGO) and isinstance(algorithm.family, Bernoulli)):
        return None
    match algorithm.preference:
        case Quartiles():
            mu = 0
        case Truncation(mu=mu):
            pass
        case _:
            return None
    rules = {NoElitism: _NO_ELITISM, LastBest: _LAST_BEST, BestSoFar: _BEST_SO_FAR}
    if type(algorithm.elitism) not in rules:
        return None
    last = algorithm.family.margin, rules[type(algorithm.elitism)]
    match algorithm.adaptation:
        case Fixed(lam=lam, eps=eps):
            return Plan(mu, False, True, eps, 1.0, lam, lam, *last)
        case SNR(spend=spend) as snr if spend in (samples, steps):
            return Plan(mu, True, spend is samples, snr.eps, snr.alpha, snr.lam_min, snr.lam_max, *last)
    return None


class LoopState(NamedTuple):
    """The state of an IGO over bits, and the buffers of an iteration."""

    plan: Plan
    theta: Array
    s: Array
    scalars: Array
    kept: NDArray[np.int8]  # the elite
    stream: LongWords  # key and counter
    # Two earlier states, the older at least RECENT evaluations ago, and in `told` the values since then: `Run.recent`
    # repeats that part of the run, because storing every point would take longer than drawing it.
    saved: Array  # θ, s and the scalars, a row each
    saved_kept: NDArray[np.int8]
    saved_nfev: NDArray[np.int64]
    saved_count: LongWords
    words: LongWords  # random numbers of some points, or of a part of one
    u: Words  # the same in 32 bits
    t: Words
    gradient: Array
    told: Array
    x: NDArray[np.int8]
    values: Array  # these three with one more entry, for the elite
    w: Array
    order: NDArray[np.int64]


def loop(plan: Plan, state: State, stream: Stream) -> LoopState:
    """Return the loop in a state of the core."""
    theta, (s, gamma, lam_r), elite = state
    n = len(theta)
    scalars = np.array([gamma, lam_r, elite.f[0] if len(elite.f) else math.inf])
    kept = elite.x[0].copy() if len(elite.f) else np.zeros(n, dtype=np.int8)
    words = np.empty(WORDS_AT_ONCE, dtype=np.uint64)
    return LoopState(
        Plan(*map(float, plan)),
        theta.copy(),
        s.copy(),
        scalars,
        kept,
        np.array([stream.key, stream.count], dtype=np.uint64),
        np.tile(np.concatenate([theta, s, scalars]), (2, 1)),
        np.tile(kept, (2, 1)),
        np.zeros(2, dtype=np.int64),
        np.full(2, stream.count, dtype=np.uint64),
        words,
        words.view(np.uint32),
        np.empty(n, dtype=np.uint32),
        np.empty(n),
        *_buffers(_ROWS, n),
    )


def grown_loop(loop: LoopState) -> LoopState:
    """Return the loop with buffers for the samples that it draws next."""
    rows = max(2 * len(loop.x), round(loop.scalars[LAM_R]), int(loop.plan.lam_min))
    grown = LoopState(*loop[:-5], *_buffers(rows, len(loop.theta)))
    grown.told[: len(loop.told)] = loop.told
    return grown


def _buffers(rows: int, n: int) -> tuple[Array, NDArray[np.int8], Array, Array, NDArray[np.int64]]:
    told, x = np.empty(2 * (RECENT + rows)), np.empty((rows, n), dtype=np.int8)
    return told, x, np.empty(rows + 1), np.empty(rows + 1), np.empty(rows + 1, dtype=np.int64)


def loop_state(loop: LoopState) -> State:
    """Return the state as that of the core."""
    return _state(loop.theta, loop.s, loop.scalars, loop.kept)


def older_state(loop: LoopState) -> State:
    """Return the older of the two saved states as that of the core."""
    n = len(loop.theta)
    theta, s, scalars = np.split(loop.saved[OLDER], [n, 2 * n])
    return _state(theta, s, scalars, loop.saved_kept[OLDER])


def _state(theta: Array, s: Array, scalars: Array, kept: NDArray[np.int8]) -> State:
    gamma, lam_r, f = scalars.tolist()
    m = int(f < math.inf)
    return State(theta.copy(), Signal(s.copy(), gamma, lam_r), Elite(np.tile(kept, (m, 1)), np.full(m, f)))


@njit(error_model="numpy")
def _thresholds(t, theta):
    # Through signed 32 bits, the one conversion that vector instructions have everywhere.
    for i in range(t.size):
        t[i] = np.uint32(np.int32(np.floor(theta[i] * 4294967296.0) - 2147483648.0)) ^ np.uint32(0x80000000)


@njit(error_model="numpy")
def _draw(x, first, lam, t, stream, words, u):
    """Draw the rows of x from `first` on, as many as the buffer has words for; return the number after the last.

    As `Stream.uniforms` and `Bernoulli.draw` do: two bits from each word, the lower half first.
    """
    n = x.shape[1]
    each = (n + 1) >> 1
    z = stream[KEY] + stream[COUNT] * GOLDEN  # of word number c: key + c · GOLDEN
    last = min(lam, first + max(words.size // each, 1))
    drawn = (last - first) * each
    stream[COUNT] += np.uint64(drawn)
    if each > words.size:
        _draw_long(x[first], t, z, words, u)
        return last
    for j in range(drawn):
        z += GOLDEN
        words[j] = mixed(z)
    at = np.uint64(0)  # unsigned, because a negative index would need a check for each bit
    for k in range(first, last):
        for i in range(n):
            x[k, i] = np.int8(u[at + np.uint64(i)] < t[i])
        at += np.uint64(2 * each)
    return last


@njit(error_model="numpy")
def _draw_long(x, t, z, words, u):
    """Draw a point with more bits than the buffer has random numbers, part by part."""
    for begin in range(0, x.size, u.size):
        size = min(u.size, x.size - begin)
        for j in range((size + 1) >> 1):
            z += GOLDEN
            words[j] = mixed(z)
        at = np.uint64(begin)
        for i in range(size):
            x[at + np.uint64(i)] = np.int8(u[i] < t[at + np.uint64(i)])


@njit(error_model="numpy")
def _cumulated(rank, lam, mu):
    """Return the sum of the weights of the ranks before this one, in units of λ/μ; μ = 0 stands for quartiles."""
    if mu:
        return min(rank, mu)
    quarter = -(-lam // 4)
    return min(rank, quarter) - max(rank - (lam - quarter), 0)


@njit(error_model="numpy")
def _prefer(w, order, f, lam, mu):
    """Compute lines 4 to 6, as `by_rank`; return whether any two weights differ.

    The ranks of a few values are counted, each against all: that has no branches to mispredict. Many are sorted.
    """
    unit = lam / (mu if mu else -(-lam // 4))
    if lam <= FEW:
        for k in range(lam):
            first = 0
            same = 0
            for j in range(lam):
                first += f[j] < f[k]
                same += f[j] == f[k]
            w[k] = unit * (_cumulated(first + same, lam, mu) - _cumulated(first, lam, mu)) / same
    else:
        order[:lam] = np.argsort(f[:lam])
        first = 0
        while first < lam:
            last = first + 1
            while last < lam and f[order[last]] == f[order[first]]:
                last += 1
            share = unit * (_cumulated(last, lam, mu) - _cumulated(first, lam, mu)) / (last - first)
            for k in range(first, last):
                w[order[k]] = share
            first = last
    for k in range(1, lam):  # noqa: SIM110 (numba has no generator expressions)
        if w[k] != w[0]:
            return True
    return False


@njit(error_model="numpy")
def _add_rows(gradient, x, w, lam, ranked):
    """Line 10, part by part of the gradient, so that the part stays in the fastest cache."""
    n = gradient.size
    gradient[:] = 0.0
    for begin in range(0, n, REALS_AT_ONCE):
        at, size = np.uint64(begin), min(REALS_AT_ONCE, n - begin)
        for k in range(lam):
            each = w[k] / ranked
            if each != 0.0:
                for i in range(size):
                    gradient[at + np.uint64(i)] += each * x[k, at + np.uint64(i)]


@njit(error_model="numpy")
def _learn(theta, s, gradient, total, kept, own, eps, beta, scale, margin):
    """Compute lines 12 and 11: s with the current θ, then θ; the elite moves θ by its `own` share, but not s."""
    top = 1.0 - margin
    for i in range(theta.size):
        p = theta[i]
        g = gradient[i] - total * p
        s[i] = (1.0 - beta) * s[i] + scale * (g / math.sqrt((1.0 - p) * p))
        p += eps * (g + own * (kept[i] - p))
        p = margin if p < margin else p
        theta[i] = top if p > top else p


@njit(error_model="numpy")
def _move(theta, gradient, total, kept, own, eps, margin):
    """Line 11 alone, where nothing is adapted."""
    top = 1.0 - margin
    for i in range(theta.size):
        p = theta[i]
        p += eps * (gradient[i] - total * p + own * (kept[i] - p))
        p = margin if p < margin else p
        theta[i] = top if p > top else p


@njit(error_model="numpy", fastmath={"reassoc"})
def _squared(s):
    total = 0.0
    for i in range(s.size):
        total += s[i] * s[i]
    return total


@njit(error_model="numpy")
def _tell(theta, s, scalars, kept, x, f, w, order, gradient, lam, plan):
    """Compute lines 4 to 15, as `IGO.tell`, except for the next elite."""
    mu, adaptive, on_samples, eps, alpha, lam_min, lam_max, margin, _ = plan
    ranked = lam
    if scalars[ELITE] < math.inf:
        f[lam] = scalars[ELITE]
        ranked += 1
    if not _prefer(w, order, f, ranked, int(mu)):  # lines 7-9
        return
    own = w[lam] / ranked if ranked > lam else 0.0
    _add_rows(gradient, x, w, lam, ranked)  # line 10
    total = 0.0
    squares = 0.0
    for k in range(lam):
        each = w[k] / ranked
        total += each
        squares += each * each
    if not on_samples:
        eps *= lam_min / scalars[LAM_R]
    if not adaptive or not squares:  # if only the elite has a weight, there is no signal
        _move(theta, gradient, total, kept, own, eps, margin)
        return
    beta = eps
    gain = beta * (2.0 - beta)
    noise = math.sqrt(theta.size * squares)
    _learn(theta, s, gradient, total, kept, own, eps, beta, math.sqrt(gain) / noise, margin)  # lines 11, 12
    scalars[GAMMA] = (1.0 - beta) ** 2 * scalars[GAMMA] + gain  # line 13
    lam_r = scalars[LAM_R] * math.exp(beta * (scalars[GAMMA] - _squared(s) / alpha))  # line 14
    scalars[LAM_R] = min(max(lam_r, lam_min), lam_max)


@njit(error_model="numpy")
def _save(saved, saved_kept, saved_nfev, saved_count, told, theta, s, scalars, kept, stream, nfev):
    """Save the state before an iteration; of the two earlier ones, the older and its values are dropped."""
    dropped = saved_nfev[NEWER] - saved_nfev[OLDER]
    for i in range(nfev - saved_nfev[NEWER]):
        told[i] = told[i + dropped]
    saved[OLDER], saved_kept[OLDER] = saved[NEWER], saved_kept[NEWER]
    saved_nfev[OLDER], saved_count[OLDER] = saved_nfev[NEWER], saved_count[NEWER]
    n = theta.size
    saved[NEWER, :n], saved[NEWER, n : 2 * n], saved[NEWER, 2 * n :] = theta, s, scalars
    saved_kept[NEWER] = kept
    saved_nfev[NEWER], saved_count[NEWER] = nfev, stream[COUNT]


@njit(error_model="numpy")
def _keep_elite(scalars, kept, x, f, lam, rule):
    """Choose the next elite."""
    best = 0
    for k in range(1, lam):
        best = k if f[k] < f[best] else best
    if rule == _LAST_BEST or f[best] <= scalars[ELITE]:
        scalars[ELITE] = f[best]  # inf: none
        kept[:] = x[best]


def _run(f, ints, reals, progress, cache, loop, limits, log):
    """Run iterations until a limit is reached; return which.

    All state is in the arrays, so that a run continues where it stopped between two iterations.
    """
    counts, shared, best_x = progress.counts, progress.reals, progress.best_x
    plan, theta, s, scalars, kept, stream = loop[:6]
    saved, saved_kept, saved_nfev, saved_count = loop[6:10]
    words, u, t, gradient, told, x, values, w, order = loop[10:]
    table, codes = cache
    remembers = table.size > 0
    key = place = np.uint64(0)
    # Not in the arrays, where each evaluation would wait for the last to be written.
    nfev, best_at, best, sign = counts[NFEV], counts[BEST_AT], shared[BEST], shared[SIGN]
    budget, iterations, target, stall, due = limits
    why = limit_reached(counts, shared, limits)
    while why == GOING and counts[NIT] < iterations:
        lam = round(scalars[LAM_R]) if plan.on_samples else int(plan.lam_min)  # line 15
        if lam > x.shape[0]:
            why = GROW_BUFFERS
            break
        if log is not None:
            counts[NFEV] = nfev
            if must_pause(counts, log.f, lam, due):
                why = PAUSE
                break
        if remembers:
            why = GROW_CACHE if 2 * (counts[KNOWN] + lam) > table.size else search_ended(counts, x.shape[1])
            if why != GOING:
                break
        elif nfev - saved_nfev[NEWER] >= RECENT:
            _save(saved, saved_kept, saved_nfev, saved_count, told, theta, s, scalars, kept, stream, nfev)
        _thresholds(t, theta)
        k = drawn = 0
        before, at = nfev, counts[LOGGED]
        if log is not None and counts[TEST] == PLANNED:
            counts[BEST_AT], shared[BEST] = best_at, best
            why = test_for_noise(f, ints, reals, progress, limits, log)
            nfev, best_at, best = counts[NFEV], counts[BEST_AT], shared[BEST]
            at += 1
        while k < lam and (why == GOING or remembers):  # line 3
            if k == drawn:
                drawn = _draw(x, drawn, lam, t, stream, words, u)
            if remembers:
                key = key_of(x[k], codes)
                place = find(table, key)
                if table[place].seen:
                    value = table[place].value
                    values[k] = value if value == value else math.inf
                    k += 1
                    continue
                if why != GOING:  # but if all that is left of the iteration is known, it closes
                    break
            value = sign * f(x[k], ints, reals)
            if remembers:
                keep(table, place, key, value, counts)
                if log is not None:
                    log_evaluation(log.x, log.f, at, x[k], value)
                    at += 1
            if value != value:
                counts[FAILURES] += 1
                value = math.inf
            values[k] = value
            nfev += 1
            k += 1
            if value < best:
                best = value
                best_at = nfev
                best_x[:] = x[k - 1]
                if value <= target:
                    why = TARGET
            if why == GOING and nfev - best_at >= stall:
                why = STALL
            if why == GOING and nfev >= budget:
                why = BUDGET
        if not remembers:
            since = before - saved_nfev[OLDER]
            for i in range(k):
                told[since + i] = values[i]
            if log is not None:
                for i in range(k):
                    log_evaluation(log.x, log.f, at + i, x[i], values[i])
                at += k
        if k == lam:
            _tell(theta, s, scalars, kept, x, values, w, order, gradient, lam, plan)
            counts[NIT] += 1
            counts[STALE] = 0 if nfev > before else counts[STALE] + lam
            if log is not None:
                end_logged_iteration(counts, lam, at)
            if plan.elitism:
                _keep_elite(scalars, kept, x, values, lam, plan.elitism)
    counts[NFEV], counts[BEST_AT], shared[BEST] = nfev, best_at, best
    return why


_LOOP = types.NamedTuple(
    (
        *(types.NamedUniTuple(types.float64, 9, Plan), REALS, REALS, REALS, BITS, LONG_WORDS),
        *(types.float64[:, ::1], types.int8[:, ::1], INTS, LONG_WORDS),
        *(LONG_WORDS, WORDS, WORDS, REALS, REALS, types.int8[:, ::1], REALS, REALS, INTS),
    ),
    LoopState,
)


@cache
def loop_runner(logs: bool = False) -> EngineFunction:
    """Return the loop, with a log or without."""
    return runner(_run, _LOOP, logs)


def _recorded(x, ints, reals):
    """Objective of a run that is repeated: return its next value, store its point; ints[0] counts them."""
    at, n = ints[0], x.size
    ints[0] += 1
    ints[1:].view(np.int8)[at * n : (at + 1) * n] = x
    return reals[at]


@cache
def recorded() -> EngineFunction:
    """Return the objective of a run that is repeated."""
    return EngineFunction(OBJECTIVE, _recorded)
