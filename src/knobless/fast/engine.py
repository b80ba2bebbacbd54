"""The loop on bits, compiled: Algorithm 1 again, in the order of `igo.py`, as plain loops for numba.

One specification, two implementations: fed the same uniforms, this one draws the core's samples and λ, and its
θ differs by rounding alone. What an `IGO` says with values is said here with numbers, because compiled code
must know its types: a `Plan` holds them.

Speed comes from four things. Each bit has a random stream of its own (xoroshiro64**, two words of state), so
that drawing a point is one loop without dependencies, which the compiler turns into vector instructions. Loops
that divide use NumPy's error model, which has no branch for a division by zero. Objectives are called through a
function type with a fixed signature, so that this file is compiled once and found in the cache on disk whatever
the objective. And nothing is allocated inside the loop.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types

from knobless.adaptation import SNR, Fixed, samples, steps
from knobless.families import Bernoulli
from knobless.igo import IGO
from knobless.preferences import Quartiles, Truncation

BITS = types.int8[::1]
INTS = types.int64[::1]
REALS = types.float64[::1]
WORDS = types.uint32[::1]
OBJECTIVE = types.float64(BITS, INTS, REALS)  # of a point and of the data that belong to it

# Why `run` returned.
GOING, BUDGET, TARGET, STALL, ROOM, STARVED = range(6)

FEW = 32  # values whose ranks are counted rather than sorted

# Where it keeps its scalars.
GAMMA, LAM_R, BEST, SIGN = range(4)
NFEV, NIT, BEST_AT, FAILURES, FED, LAST = range(6)


class Plan(NamedTuple):
    """An IGO over bits in numbers: what its preference, its adaptation and its family's margin say."""

    mu: float  # of a truncation; 0 for quartiles
    adaptive: float
    on_samples: float
    eps: float
    alpha: float
    lam_min: float
    lam_max: float
    margin: float


def plan_of(algorithm: Any) -> Plan | None:
    """The plan of an algorithm that this engine can run; None for any other."""
    if not (isinstance(algorithm, IGO) and isinstance(algorithm.family, Bernoulli)):
        return None
    match algorithm.preference:
        case Quartiles():
            mu = 0
        case Truncation(mu=mu):
            pass
        case _:
            return None
    margin = algorithm.family.margin
    match algorithm.adaptation:
        case Fixed(lam=lam, eps=eps):
            return Plan(mu, False, True, eps, 1.0, lam, lam, margin)
        case SNR(spend=spend) as snr if spend in (samples, steps):
            return Plan(mu, True, spend is samples, snr.eps, snr.alpha, snr.lam_min, snr.lam_max, margin)
    return None


@njit(error_model="numpy")
def _thresholds(t, theta):
    # Through signed 32 bits, the one conversion that vector instructions have everywhere.
    for i in range(t.size):
        t[i] = np.uint32(np.int32(np.floor(theta[i] * 4294967296.0) - 2147483648.0)) ^ np.uint32(0x80000000)


@njit(error_model="numpy")
def _draw(x, t, a, b):
    """One point: xoroshiro64** in every bit's own stream (a, b)."""
    for i in range(x.size):
        s0 = a[i]
        s1 = np.uint32(b[i] ^ s0)
        r = np.uint32(s0 * np.uint32(0x9E3779BB))
        r = np.uint32(np.uint32(r << np.uint32(5)) | np.uint32(r >> np.uint32(27)))
        r = np.uint32(r * np.uint32(5))
        turned = np.uint32(np.uint32(s0 << np.uint32(26)) | np.uint32(s0 >> np.uint32(6)))
        a[i] = np.uint32(turned ^ s1 ^ np.uint32(s1 << np.uint32(9)))
        b[i] = np.uint32(np.uint32(s1 << np.uint32(13)) | np.uint32(s1 >> np.uint32(19)))
        x[i] = np.int8(r < t[i])


@njit(error_model="numpy")
def _draw_fed(x, t, u):
    for i in range(x.size):
        x[i] = np.int8(u[i] < t[i])


@njit(error_model="numpy")
def _cumulated(rank, lam, mu):
    """Weights of the ranks before this one, in units of λ/μ; μ = 0 stands for quartiles."""
    if mu:
        return min(rank, mu)
    quarter = -(-lam // 4)
    return min(rank, quarter) - max(rank - (lam - quarter), 0)


@njit(error_model="numpy")
def _prefer(w, order, f, lam, mu):
    """Lines 4-6, as `by_rank`; returns whether any two weights differ.

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
def _add_row(gradient, x, w):
    for i in range(gradient.size):
        gradient[i] += w * x[i]


@njit(error_model="numpy")
def _learn(theta, s, gradient, total, eps, beta, scale, margin):
    """Lines 11 and 12: s with θ as it was, then θ."""
    top = 1.0 - margin
    for i in range(theta.size):
        p = theta[i]
        g = gradient[i] - total * p
        s[i] = (1.0 - beta) * s[i] + scale * (g / math.sqrt((1.0 - p) * p))
        p += eps * g
        p = margin if p < margin else p
        theta[i] = top if p > top else p


@njit(error_model="numpy")
def _move(theta, gradient, total, eps, margin):
    """Line 11 alone, where nothing is adapted."""
    top = 1.0 - margin
    for i in range(theta.size):
        p = theta[i] + eps * (gradient[i] - total * theta[i])
        p = margin if p < margin else p
        theta[i] = top if p > top else p


@njit(error_model="numpy", fastmath={"reassoc"})
def _squared(s):
    total = 0.0
    for i in range(s.size):
        total += s[i] * s[i]
    return total


@njit(error_model="numpy")
def _tell(theta, s, scalars, x, f, w, order, gradient, lam, plan):
    """Lines 4 to 15: `IGO.tell`."""
    mu, adaptive, on_samples, eps, alpha, lam_min, lam_max, margin = plan
    if not _prefer(w, order, f, lam, int(mu)):  # lines 7-9
        return
    gradient[:] = 0.0
    total = 0.0
    squares = 0.0
    for k in range(lam):  # line 10
        each = w[k] / lam
        total += each
        squares += each * each
        if each != 0.0:
            _add_row(gradient, x[k], each)
    if not adaptive:
        _move(theta, gradient, total, eps, margin)
        return
    if not on_samples:
        eps *= lam_min / scalars[LAM_R]
    beta = eps
    gain = beta * (2.0 - beta)
    noise = math.sqrt(theta.size * squares)
    _learn(theta, s, gradient, total, eps, beta, math.sqrt(gain) / noise, margin)  # lines 11, 12
    scalars[GAMMA] = (1.0 - beta) ** 2 * scalars[GAMMA] + gain  # line 13
    lam_r = scalars[LAM_R] * math.exp(beta * (scalars[GAMMA] - _squared(s) / alpha))  # line 14
    scalars[LAM_R] = min(max(lam_r, lam_min), lam_max)


def _run(f, ints, reals, plan, theta, s, scalars, counts, a, b, u, x, values, w, order, gradient, t, best_x, limits):
    """Iterations until one of the limits (evaluations, iterations, target, stall) is met; returns which.

    All that lasts is in the arrays, so that a run goes on where it stopped between two iterations.
    """
    budget, iterations, target, stall = limits
    plan = (plan[0], plan[1], plan[2], plan[3], plan[4], plan[5], plan[6], plan[7])
    nfev, best_at, best, sign = counts[NFEV], counts[BEST_AT], scalars[BEST], scalars[SIGN]
    why = GOING
    if best <= target:  # with NaN for no target, never
        why = TARGET
    elif nfev - best_at >= stall:
        why = STALL
    elif nfev >= budget:
        why = BUDGET
    while why == GOING and counts[NIT] < iterations:
        lam = round(scalars[LAM_R]) if plan[2] else int(plan[5])  # line 15
        if lam > x.shape[0]:
            why = ROOM
            break
        if u.shape[0] and counts[FED] + lam > u.shape[0]:
            why = STARVED
            break
        _thresholds(t, theta)
        k = 0
        while k < lam and why == GOING:  # line 3
            if u.shape[0]:
                _draw_fed(x[k], t, u[counts[FED]])
                counts[FED] += 1
            else:
                _draw(x[k], t, a, b)
            value = sign * f(x[k], ints, reals)
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
        counts[LAST] = k
        if k == lam:
            _tell(theta, s, scalars, x, values, w, order, gradient, lam, plan)
            counts[NIT] += 1
    counts[NFEV], counts[BEST_AT], scalars[BEST] = nfev, best_at, best
    return why


_ARRAYS = (
    types.float64[::1],  # plan
    types.float64[::1],  # theta
    types.float64[::1],  # s
    types.float64[::1],  # scalars
    types.int64[::1],  # counts
    WORDS,  # a
    WORDS,  # b
    types.uint32[:, ::1],  # u
    types.int8[:, ::1],  # x
    types.float64[::1],  # values
    types.float64[::1],  # w
    types.int64[::1],  # order
    types.float64[::1],  # gradient
    WORDS,  # t
    BITS,  # best_x
    types.UniTuple(types.float64, 4),  # limits
)

run = njit(
    types.int64(types.FunctionType(OBJECTIVE), INTS, REALS, *_ARRAYS), cache=True, nogil=True, error_model="numpy"
)(_run)
