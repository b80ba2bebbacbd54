"""The loop on bits, compiled: Algorithm 1 in the order of `igo.py`, as plain loops.

One specification, two implementations: this one draws the core's samples and λ, and its θ differs
by rounding alone. A `Plan` describes an `IGO` in numbers, because compiled code is typed.

Speed comes from four things. Random numbers are computed from a counter, so that drawing a point is
a loop without dependencies, which the compiler turns into vector instructions. Loops that divide
use NumPy's error model, which has no branch for a division by zero. Objectives are called through a
function type with a fixed signature, so that this file is compiled once and found in the cache on
disk for every objective. And nothing is allocated inside the loop.
"""

from __future__ import annotations

import math
from typing import NamedTuple

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

from . import shared
from .shared import BITS, INTS, LONG_WORDS, OBJECTIVE, REALS, WORDS

__all__ = [
    "OBJECTIVE",
    "CompiledLoop",
    "LoopState",
    "Plan",
    "plan_of",
    "run_loop",
]

FEW = 32  # values whose ranks are counted rather than sorted
# Random words, or parts of the gradient, that stay in the fastest cache
WORDS_AT_ONCE = REALS_AT_ONCE = 1024
_SAMPLES = 256  # for which there are buffers at first; they grow with λ

# Rules of elitism
_NO_ELITISM, _LAST_BEST, _BEST_SO_FAR = range(3)

# Indices into the scalars of a `LoopState`
GAMMA = 0
LAM_R = 1
ELITE = 2  # value of the elite, inf if there is none

# Indices into the stream of a `LoopState`
KEY = 0
COUNT = 1  # words drawn


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


def plan_of(algorithm: IGO) -> Plan | None:
    """Return the plan of a loop that the engine can run.

    Parameters
    ----------
    algorithm : IGO
        The loop.

    Returns
    -------
    Plan or None
        None if it cannot be compiled.
    """
    if type(algorithm.family) is not Bernoulli:
        return None
    match algorithm.preference:
        case Quartiles():
            mu = 0
        case Truncation(mu=mu):
            pass
        case _:
            return None
    rules = {
        NoElitism: _NO_ELITISM,
        LastBest: _LAST_BEST,
        BestSoFar: _BEST_SO_FAR,
    }
    if type(algorithm.elitism) not in rules:
        return None
    last = algorithm.family.margin, rules[type(algorithm.elitism)]
    match algorithm.adaptation:
        case Fixed(lam=lam, eps=eps):
            return Plan(mu, False, True, eps, 1.0, lam, lam, *last)
        case SNR(spend=spend) as snr if spend in (samples, steps):
            return Plan(
                mu,
                True,
                spend is samples,
                snr.eps,
                snr.alpha,
                snr.lam_min,
                snr.lam_max,
                *last,
            )
    return None


class LoopState(NamedTuple):
    """The state of an IGO over bits, and the buffers of an iteration."""

    plan: Plan
    theta: Array
    s: Array
    scalars: Array
    kept: NDArray[np.int8]  # the elite
    stream: LongWords  # key and counter
    words: LongWords  # random numbers of some points, or of a part of one
    u: Words  # the same in 32 bits
    t: Words
    gradient: Array
    values: Array  # these three with one more entry, for the elite
    w: Array
    order: NDArray[np.int64]


class CompiledLoop(shared.CompiledState):
    """The state of an `IGO` in arrays."""

    arrays: LoopState

    def __init__(self, algorithm: IGO, state: State, stream: Stream) -> None:
        theta, (s, gamma, lam_r), elite = state
        n = len(theta)
        words = np.empty(WORDS_AT_ONCE, dtype=np.uint64)
        super().__init__(
            LoopState(
                Plan(*map(float, plan_of(algorithm) or ())),
                theta.copy(),
                s.copy(),
                np.array(
                    [gamma, lam_r, elite.f[0] if len(elite.f) else math.inf]
                ),
                elite.x[0].copy()
                if len(elite.f)
                else np.zeros(n, dtype=np.int8),
                np.array([stream.key, stream.count], dtype=np.uint64),
                words,
                words.view(np.uint32),
                np.empty(n, dtype=np.uint32),
                np.empty(n),
                *_buffers(_SAMPLES),
            )
        )

    @staticmethod
    def supports(algorithm: IGO, deterministic: bool) -> bool:
        """Return whether the engine can run the algorithm."""
        return plan_of(algorithm) is not None

    @staticmethod
    def functions() -> list[shared.EngineFunction]:
        """Return the loop."""
        return [run_loop]

    def grow(self, why: int) -> None:
        """Enlarge the buffers to the samples that are drawn next."""
        rows = max(
            2 * len(self.arrays.values),
            round(self.arrays.scalars[LAM_R]),
            int(self.arrays.plan.lam_min),
        )
        self.arrays = LoopState(*self.arrays[:-3], *_buffers(rows))

    @property
    def theta(self) -> Array:
        """The parameters of the distribution."""
        return self.arrays.theta

    @property
    def lam_r(self) -> float:
        """λ_r, before it is rounded."""
        return float(self.arrays.scalars[LAM_R])

    @property
    def count(self) -> int:
        """The counter of the random numbers."""
        return int(self.arrays.stream[COUNT])

    @property
    def core(self) -> State:
        """The state as that of the core."""
        theta, s, (gamma, lam_r, f), kept = (
            *self.arrays[1:3],
            self.arrays.scalars.tolist(),
            self.arrays.kept,
        )
        m = int(f < math.inf)
        return State(
            theta.copy(),
            Signal(s.copy(), gamma, lam_r),
            Elite(np.tile(kept, (m, 1)), np.full(m, f)),
        )


def _buffers(rows: int) -> tuple[Array, Array, NDArray[np.int64]]:
    return (
        np.empty(rows + 1),
        np.empty(rows + 1),
        np.empty(rows + 1, dtype=np.int64),
    )


@njit(error_model="numpy")
def _thresholds(t, theta):
    # Through signed 32 bits, the one conversion that vector instructions have everywhere.
    for i in range(t.size):
        t[i] = np.uint32(
            np.int32(np.floor(theta[i] * 4294967296.0) - 2147483648.0)
        ) ^ np.uint32(0x80000000)


@njit(error_model="numpy")
def _draw(x, first, lam, t, stream, words, u):
    """Draw rows of x from `first` on, as many as the buffer has words for; return the next row.

    As `Stream.uniforms` and `Bernoulli.draw` do: two bits from each word, the lower half first.
    """
    n = x.shape[1]
    words_per_row = (n + 1) >> 1
    # Of word number c: key + c · GOLDEN
    z = stream[KEY] + stream[COUNT] * GOLDEN
    last = min(lam, first + max(words.size // words_per_row, 1))
    drawn = (last - first) * words_per_row
    stream[COUNT] += np.uint64(drawn)
    if words_per_row > words.size:
        _draw_long(x[first], t, z, words, u)
        return last
    for j in range(drawn):
        z += GOLDEN
        words[j] = shared.mixed(z)
    # Unsigned, because a negative index would need a check for each bit
    at = np.uint64(0)
    for k in range(first, last):
        for i in range(n):
            x[np.uint64(k), i] = np.int8(u[at + np.uint64(i)] < t[i])
        at += np.uint64(2 * words_per_row)
    return last


@njit(error_model="numpy")
def _draw_long(x, t, z, words, u):
    """Draw a point with more bits than the buffer has random numbers, part by part."""
    for begin in range(0, x.size, u.size):
        size = min(u.size, x.size - begin)
        for j in range((size + 1) >> 1):
            z += GOLDEN
            words[j] = shared.mixed(z)
        at = np.uint64(begin)
        for i in range(size):
            x[at + np.uint64(i)] = np.int8(u[i] < t[at + np.uint64(i)])


@njit(error_model="numpy")
def _cumulated(rank, lam, mu):
    """Return the sum of the weights of the ranks before this one, in units of λ/μ.

    Μ = 0 stands for quartiles.
    """
    if mu:
        return min(rank, mu)
    quarter = -(-lam // 4)
    return min(rank, quarter) - max(rank - (lam - quarter), 0)


@njit(error_model="numpy")
def _prefer(w, order, f, lam, mu):
    """Compute lines 4 to 6, as `by_rank`; return whether any two weights differ.

    The ranks of a few values are counted, each against all: that has no branches to mispredict.
    Many are sorted.
    """
    unit = lam / (mu if mu else -(-lam // 4))
    if lam <= FEW:
        for k in range(lam):
            first = 0
            n_equal = 0
            for j in range(lam):
                first += f[j] < f[k]
                n_equal += f[j] == f[k]
            w[k] = (
                unit
                * (
                    _cumulated(first + n_equal, lam, mu)
                    - _cumulated(first, lam, mu)
                )
                / n_equal
            )
    else:
        order[:lam] = np.argsort(f[:lam])
        first = 0
        while first < lam:
            last = first + 1
            while last < lam and f[order[last]] == f[order[first]]:
                last += 1
            share = (
                unit
                * (_cumulated(last, lam, mu) - _cumulated(first, lam, mu))
                / (last - first)
            )
            for k in range(first, last):
                w[order[k]] = share
            first = last
    for k in range(1, lam):  # noqa: SIM110 (numba has no generator expressions)
        if w[k] != w[0]:
            return True
    return False


@njit(error_model="numpy")
def _add_rows(gradient, x, at, w, lam, ranked):
    """Add the weighted rows of x from `at` on to the gradient (line 10).

    The gradient is computed in parts that stay in the fastest cache.
    """
    n = gradient.size
    gradient[:] = 0.0
    for begin in range(0, n, REALS_AT_ONCE):
        part = np.uint64(begin)
        size = min(REALS_AT_ONCE, n - begin)
        for k in range(lam):
            weight = w[k] / ranked
            if weight != 0.0:
                for i in range(size):
                    gradient[part + np.uint64(i)] += (
                        weight * x[np.uint64(at + k), part + np.uint64(i)]
                    )


@njit(error_model="numpy")
def _learn(
    theta, s, gradient, total, kept, elite_weight, eps, beta, scale, margin
):
    """Compute lines 12 and 11: s with the current θ, then θ.

    The elite moves θ by its `own` share, but not s.
    """
    top = 1.0 - margin
    for i in range(theta.size):
        p = theta[i]
        g = gradient[i] - total * p
        s[i] = (1.0 - beta) * s[i] + scale * (g / math.sqrt((1.0 - p) * p))
        p += eps * (g + elite_weight * (kept[i] - p))
        p = margin if p < margin else p
        theta[i] = top if p > top else p


@njit(error_model="numpy")
def _move(theta, gradient, total, kept, elite_weight, eps, margin):
    """Line 11 alone, where nothing is adapted."""
    top = 1.0 - margin
    for i in range(theta.size):
        p = theta[i]
        p += eps * (gradient[i] - total * p + elite_weight * (kept[i] - p))
        p = margin if p < margin else p
        theta[i] = top if p > top else p


@njit(error_model="numpy", fastmath={"reassoc"})
def _squared(s):
    total = 0.0
    for i in range(s.size):
        total += s[i] * s[i]
    return total


@njit(error_model="numpy")
def _tell(theta, s, scalars, kept, x, at, f, w, order, gradient, lam, plan):
    """Compute lines 4 to 15, as `IGO.tell`, except for the next elite."""
    mu, adaptive, on_samples, eps, alpha, lam_min, lam_max, margin, _ = plan
    ranked = lam
    if scalars[ELITE] < math.inf:
        f[lam] = scalars[ELITE]
        ranked += 1
    if not _prefer(w, order, f, ranked, int(mu)):  # lines 7-9
        return
    elite_weight = w[lam] / ranked if ranked > lam else 0.0
    _add_rows(gradient, x, at, w, lam, ranked)  # line 10
    total = 0.0
    squares = 0.0
    for k in range(lam):
        weight = w[k] / ranked
        total += weight
        squares += weight * weight
    if not on_samples:
        eps *= lam_min / scalars[LAM_R]
    # If only the elite has a weight, there is no signal
    if not adaptive or not squares:
        _move(theta, gradient, total, kept, elite_weight, eps, margin)
        return
    beta = eps
    gain = beta * (2.0 - beta)
    noise = math.sqrt(theta.size * squares)
    # Lines 11, 12
    _learn(
        theta,
        s,
        gradient,
        total,
        kept,
        elite_weight,
        eps,
        beta,
        math.sqrt(gain) / noise,
        margin,
    )
    scalars[GAMMA] = (1.0 - beta) ** 2 * scalars[GAMMA] + gain  # line 13
    # Line 14
    lam_r = scalars[LAM_R] * math.exp(
        beta * (scalars[GAMMA] - _squared(s) / alpha)
    )
    scalars[LAM_R] = min(max(lam_r, lam_min), lam_max)


@njit(error_model="numpy")
def _keep_elite(scalars, kept, x, at, f, lam, rule):
    """Choose the next elite."""
    best = 0
    for k in range(1, lam):
        best = k if f[k] < f[best] else best
    if rule == _LAST_BEST or f[best] <= scalars[ELITE]:
        scalars[ELITE] = f[best]  # inf: none
        kept[:] = x[at + best]


_LOOP = types.NamedTuple(
    (
        *(
            types.NamedUniTuple(types.float64, 9, Plan),
            REALS,
            REALS,
            REALS,
            BITS,
            LONG_WORDS,
        ),
        *(LONG_WORDS, WORDS, WORDS, REALS, REALS, REALS, INTS),
    ),
    LoopState,
)


@shared.member_function(_LOOP)
def run_loop(f, ints, data, block, cache, loop, limits):
    """Run iterations until a limit is reached; return why the loop has returned."""
    counts, x, f_every, evaluated, keys, best, best_x = block
    (
        plan,
        theta,
        s,
        scalars,
        kept,
        stream,
        words,
        u,
        t,
        gradient,
        values,
        w,
        order,
    ) = loop
    table, codes = cache
    sign = limits.sign
    target = limits.target
    drawn = counts[shared.LAM]
    lowest = best[0]
    while True:
        if not counts[shared.LAM]:
            # Line 15
            lam = (
                round(scalars[LAM_R]) if plan.on_samples else int(plan.lam_min)
            )
            if lam >= values.size:
                return shared.GROW_BUFFERS
            why = shared.begin_iteration(
                counts, f_every.size, table.size, lam, True, limits
            )
            if why != shared.GOING:
                return why
            _thresholds(t, theta)
            drawn = 0
        first = counts[shared.DONE_ROWS]
        lam = counts[shared.LAM]
        at = first if counts[shared.KEEPS_POINTS] else 0
        while drawn < lam:  # line 3
            drawn = _draw(x, at + drawn, at + lam, t, stream, words, u) - at
        if table.size:
            shared.set_keys(counts, x, keys, codes)
            if not shared.evaluate_iteration(
                f,
                ints,
                data,
                counts,
                x,
                f_every,
                evaluated,
                keys,
                table,
                limits,
            ):
                return shared.LIMIT
            for k in range(lam):
                value = f_every[first + k]
                values[k] = value if value == value else math.inf
        else:
            k = counts[shared.VALUED]
            left = counts[shared.LEFT]
            while k < lam and left > 0:
                row = x[np.uint64(at + k)]
                value = sign * f(row, ints, data)
                f_every[np.uint64(first + k)] = value
                values[np.uint64(k)] = value if value == value else math.inf
                left = 0 if value <= target else left - 1
                if value < lowest:
                    lowest = best[0] = value
                    best_x[:] = row
                k += 1
            if not shared.end_iteration(counts, k, left, k):
                return shared.LIMIT
        _tell(
            theta,
            s,
            scalars,
            kept,
            x,
            at,
            values,
            w,
            order,
            gradient,
            lam,
            plan,
        )
        if plan.elitism:
            _keep_elite(scalars, kept, x, at, values, lam, plan.elitism)
