"""The evaluations of a `Study`, compiled: the points of one iteration at a time, which the core determines."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from knobless.core.quadratic_portfolio import Study
from knobless.core.types import Array

from .shared import (
    GOING,
    GROW_CACHE,
    INTS,
    KNOWN,
    LONG_WORDS,
    NIT,
    PAUSE,
    REALS,
    TURN,
    EngineFunction,
    evaluate_places,
    limit_reached,
    must_pause,
    runner,
    search_ended,
)


class StudyPoints(NamedTuple):
    """The points of an iteration, with their values when it is complete."""

    x: NDArray[np.int8]
    f: Array
    keys: NDArray[np.uint64]  # in the cache
    places: NDArray[np.int64]


def study_points(study: Study) -> StudyPoints:
    """Return the next points of a study."""
    m = len(study.points)
    return StudyPoints(study.points.copy(), np.empty(m), np.empty(m, dtype=np.uint64), np.arange(m))


def _run(f, ints, reals, progress, cache, p, limits, log):
    """Run one iteration, unless a limit is reached; return which, or that the turn ends."""
    counts, m = progress.counts, p.f.size
    why = limit_reached(counts, progress.reals, limits)
    if why != GOING or counts[NIT] >= limits.iterations:
        return why
    if log is not None and must_pause(counts, log.f, m, limits.due):
        return PAUSE
    why = GROW_CACHE if 2 * (counts[KNOWN] + m) > cache.table.size else search_ended(counts, p.x.shape[1])
    if why != GOING:
        return why
    why, complete = evaluate_places(f, ints, reals, progress, cache, limits, log, p.x, p.places, p.keys, p.f)
    return TURN if complete else why


_POINTS = types.NamedTuple((types.int8[:, ::1], REALS, LONG_WORDS, INTS), StudyPoints)


@cache
def study_runner(logs: bool = False) -> EngineFunction:
    """Return the evaluation of the points, with a log or without."""
    return runner(_run, _POINTS, logs)
