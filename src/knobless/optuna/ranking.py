"""The values that the algorithm learns from."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from knobless.core.types import Array


def trial_values(trials: Sequence[FrozenTrial], sign: float) -> Array:
    """Return values to minimize.

    A failed trial, and a pruned one without a report, has the value NaN, which ranks worst. Other pruned trials rank
    behind the completed ones, each one unit in the last place after the one before: a preference for values rather than
    ranks treats them as the worst completed trial.
    """
    complete = [t.value if t.state == TrialState.COMPLETE else None for t in trials]
    values = sign * np.array([math.nan if value is None else value for value in complete])
    finite = values[np.isfinite(values)]
    value = finite.max() if len(finite) else 0.0
    reports = [
        {step: sign * report for step, report in t.intermediate_values.items()} if t.state == TrialState.PRUNED else {}
        for t in trials
    ]
    ranks = ranks_of(reports)
    for rank in sorted(set(ranks.values())):
        value = np.nextafter(value, math.inf)
        values[[i for i, each in ranks.items() if each == rank]] = value
    return values


def ranks_of(reports: Sequence[Mapping[int, float]]) -> dict[int, int]:
    """Return the ranks of pruned trials by their reports, less those whose last report is missing, NaN or infinite.

    A trial ranks by its last report among the trials pruned at that step or later, whose own order does not depend on
    it. Of these, a trial without a report up to that step, or with an equal one, is better.
    """
    last = {i: max(each) for i, each in enumerate(reports) if each and each[max(each)] < math.inf}
    ranks: dict[int, int] = {}
    for step in sorted(set(last.values()), reverse=True):
        then = [max((s for s in reports[i] if s <= step), default=None) for i in ranks]
        later = [-math.inf if s is None else reports[i][s] for i, s in zip(ranks, then, strict=True)]
        order = {i: (rank, 1, 0.0) for i, rank in ranks.items()}
        for i in last:
            if last[i] == step:
                report = reports[i][step]
                order[i] = sum(each <= report for each in later), 0, report
        ordered = sorted(order.values())
        ranks = {i: bisect_left(ordered, each) for i, each in order.items()}
    return ranks
