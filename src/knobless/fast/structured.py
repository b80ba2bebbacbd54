"""P3 for costs with known terms: evaluation by flips, and a tabu search.

An individual is improved by tabu search instead of the local search of `p3.py`, then joins the
pyramid and is crossed with its levels as there (`pyramid.py`). The tabu search flips the bit with
the best gain among those that have not been flipped lately, or that lead to a better point than any
of this individual; it ends by the rule of `p3.py`: after as many steps as led to the last
improvement, at least n ln n. A bit that was flipped is not flipped back for 3 steps, plus a random
number of up to n/10 others, as in breakout local search for Max-Cut.

Every step of the tabu search and every crossing is one evaluation, whatever the number of flips.

References
----------
Benlic, U. and Hao, J.-K. (2013). Breakout local search for the max-cut problem. Engineering
Applications of Artificial Intelligence 26(3).
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from knobless.core.families import Bernoulli
from knobless.core.p3 import P3
from knobless.core.rng import Stream
from knobless.core.types import Array
from knobless.run.result import Status

from . import shared
from .gains import GAIN_STATE, STRUCTURE, GainState, Structure, flip, reset
from .interrupts import deferred_interrupt
from .pyramid import (
    BEGUN,
    BLOCKS,
    CHANGED,
    CLIMB,
    CLIMBED,
    LEVELS,
    MEMBERS,
    PATIENCE,
    PHASE,
    POINT,
    PYRAMID_STATE,
    STEPS,
    UP,
    F,
    below,
    empty_pyramid,
    grown_pyramid,
    proceed,
    take_value,
)
from .shared import BITS, CACHE, INTS, REALS

# Gains compared in one compiled call, so that Ctrl-C is handled in time
GAINS_AT_ONCE = 2**24
# Steps for which a flipped bit is tabu, and the share of n that is added at random
TENURE, TENURE_SHARE = 3, 10

# Indices into the counts of a `TabuState`
EVALUATIONS = 0
FULL = 1  # evaluations that were not incremental
FLIPS = 2

# Indices into the reals of a `TabuState`
LOWEST_COST = 0  # of the run
VALUE = 1  # cost of the point of the gains


class TabuState(NamedTuple):
    """What the tabu search adds to the pyramid and the gains."""

    # Evaluations, those of them that were not incremental, and flips
    counts: NDArray[np.int64]
    # The lowest cost of the run, and the cost of the point of the gains
    reals: Array
    best_x: NDArray[np.int8]
    # Number of the step from which a bit may be flipped again
    free_at: NDArray[np.int64]
    ties: NDArray[np.int64]  # bits with the same gain


_TABU = types.NamedTuple((INTS, REALS, BITS, INTS, INTS), TabuState)


class StructuredRun:
    """A run of P3 with tabu search on a cost whose terms are known.

    Parameters
    ----------
    structure : Structure
        The terms of the cost.
    seed : int
        Seed of the random numbers.
    x0 : array, optional
        The point at which the first individual begins.
    """

    def __init__(
        self,
        structure: Structure,
        seed: int,
        x0: NDArray[np.int8] | None = None,
    ) -> None:
        n = len(structure.starts) - 1
        self.structure = structure
        self._gains = GainState.of(structure)
        self._pyramid = empty_pyramid(
            P3(Bernoulli(n)), Stream.of(seed).word(), x0
        )
        self._members = shared.empty_cache(n)
        counts = np.zeros(3, dtype=np.int64)
        reals = np.array([math.inf, math.inf])
        self._tabu = TabuState(
            counts,
            reals,
            np.zeros(n, dtype=np.int8),
            *np.zeros((2, n), dtype=np.int64),
        )

    @property
    def nfev(self) -> int:
        """Evaluations so far."""
        return int(self._tabu.counts[EVALUATIONS])

    @property
    def full(self) -> int:
        """Evaluations so far that were not incremental."""
        return int(self._tabu.counts[FULL])

    @property
    def flips(self) -> int:
        """Flips so far."""
        return int(self._tabu.counts[FLIPS])

    @property
    def best(self) -> float:
        """The lowest cost so far."""
        return float(self._tabu.reals[LOWEST_COST])

    @property
    def best_x(self) -> NDArray[np.int8]:
        """The point with that cost."""
        return self._tabu.best_x

    def go(
        self, budget: float = math.inf, target: float = math.nan
    ) -> Status | None:
        """Continue the run for a fraction of a second."""
        pause = self.nfev + max(1, GAINS_AT_ONCE // len(self.best_x))
        with deferred_interrupt():
            why = structured_runner()(
                self.structure,
                self._gains,
                self._pyramid,
                self._members,
                self._tabu,
                min(budget, pause),
                target,
            )
        if why == shared.GROW_CACHE:
            self._members = shared.grown_cache(self._members)
        elif why != shared.LIMIT:
            self._pyramid = grown_pyramid(self._pyramid, why)
        if self.best <= target:
            return Status.TARGET
        return Status.BUDGET if self.nfev >= budget else None


@njit(error_model="numpy")
def _begin(structure, state, p, tabu):
    """Begin the tabu search of an individual at its random point."""
    state.x[:] = p.x
    tabu.reals[VALUE] = reset(structure, state)
    tabu.counts[EVALUATIONS] += 1
    tabu.counts[FULL] += 1
    tabu.free_at[:] = 0
    p.reals[F] = tabu.reals[VALUE]
    p.counts[STEPS] = p.counts[UP] = 0
    p.counts[PHASE] = CLIMB


@njit(error_model="numpy")
def _choose(gains, free_at, ties, step, below_best, p):
    """Return the bit with the least gain that is not tabu, or has a gain below `below_best`."""
    lowest = math.inf
    count = 0
    for i in range(gains.size):
        gain = gains[i]
        if gain <= lowest and (free_at[i] <= step or gain < below_best):
            if gain < lowest:
                lowest, count = gain, 0
            ties[count] = i
            count += 1
    return ties[below(p, count)]


@njit(error_model="numpy")
def _climb(structure, state, p, tabu, budget, target):
    """Tabu search, with its best point in the pyramid; return whether it has ended."""
    counts = p.counts
    gains = state.gains
    n = p.x.size
    free_at = tabu.free_at
    ties = tabu.ties
    value = tabu.reals[VALUE]
    best = p.reals[F]
    step = counts[STEPS]
    up = counts[UP]
    left = step + budget - tabu.counts[EVALUATIONS]
    begun = step
    # A target of NaN, for none, is never reached.
    while (
        step < left
        and not best <= target
        and step - up < max(p.reals[PATIENCE], up)
    ):
        i = _choose(gains, free_at, ties, step, best - value, p)
        value += flip(structure, state, i)
        step += 1
        free_at[i] = step + min(
            TENURE + below(p, max(n // TENURE_SHARE, 1)), n - 1
        )
        if value < best:
            best, up = value, step
            p.x[:] = state.x
    tabu.counts[EVALUATIONS] += step - begun
    tabu.counts[FLIPS] += step - begun
    tabu.reals[VALUE], p.reals[F] = value, best
    counts[STEPS], counts[UP] = step, up
    return step - up >= max(p.reals[PATIENCE], up)


@njit(error_model="numpy")
def _end(structure, state, p, tabu, codes):
    """Return to the best point of the tabu search."""
    for i in range(p.x.size):
        if p.x[i] != state.x[i]:
            flip(structure, state, i)
            tabu.counts[FLIPS] += 1
    p.keys[POINT] = shared.key_of(p.x, codes)
    p.counts[PHASE] = CLIMBED


@njit(error_model="numpy")
def _cross(structure, state, p, tabu, codes):
    """Evaluate a crossing by flips; they are undone if it is worse."""
    value = p.reals[F]
    changed = p.counts[CHANGED]
    for k in range(changed):
        value += flip(structure, state, p.changed[k])
    tabu.counts[EVALUATIONS] += 1
    tabu.counts[FLIPS] += changed
    if value > p.reals[F]:
        for k in range(changed):
            flip(structure, state, p.changed[k])
        tabu.counts[FLIPS] += changed
    take_value(p, value, codes)


def _run(structure, state, p, members, tabu, budget, target):
    """Run until a number of evaluations or the target is reached, or an array is too small.

    Return which.
    """
    counts = p.counts
    table, codes = members
    while True:
        if p.reals[F] < tabu.reals[LOWEST_COST]:
            tabu.reals[LOWEST_COST] = p.reals[F]
            tabu.best_x[:] = p.x
        # With NaN for no target, never
        if (
            tabu.counts[EVALUATIONS] >= budget
            or tabu.reals[LOWEST_COST] <= target
        ):
            return shared.LIMIT
        if counts[PHASE] == CLIMB:
            if _climb(structure, state, p, tabu, budget, target):
                _end(structure, state, p, tabu, codes)
            continue
        if max(counts[LEVELS], counts[BLOCKS]) == p.chain.size:
            return shared.GROW_BUFFERS
        if 2 * (counts[MEMBERS] + 1) > table.size:
            return shared.GROW_CACHE
        why = proceed(p, codes, table)
        if why != shared.GOING:
            return why
        if counts[PHASE] == BEGUN:
            _begin(structure, state, p, tabu)
        else:
            _cross(structure, state, p, tabu, codes)


@cache
def structured_runner() -> shared.EngineFunction:
    """Return the compiled run."""
    number = types.float64
    return shared.EngineFunction(
        types.int64(
            STRUCTURE, GAIN_STATE, PYRAMID_STATE, CACHE, _TABU, number, number
        ),
        _run,
    )
