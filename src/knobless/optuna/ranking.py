"""The values that the algorithm learns from."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from knobless.core.types import Array
from knobless.core.violation import ranked

# The system attribute of a trial, or the beginning of the names of one per constraint
CONSTRAINTS = "constraints"


def violation_of(trial: FrozenTrial) -> float | None:
    """Return the sum of the constraints of a trial that are above 0; None without constraints.

    It is NaN if the constraints were not computed. They are stored as the samplers of Optuna do, or
    with `trial.set_constraint`.
    """
    attrs = trial.system_attrs
    named = [
        value
        for name, value in attrs.items()
        if name.startswith(f"{CONSTRAINTS}:")
    ]
    if CONSTRAINTS not in attrs and not named:
        return None
    computed = attrs.get(CONSTRAINTS, ())
    if computed is None:
        return math.nan
    return float(sum(value for value in (*computed, *named) if value > 0.0))


def completed_value(trial: FrozenTrial, sign: float) -> float:
    """Return the value of a trial as it ranks, to be minimized; NaN unless it is complete."""
    if trial.state != TrialState.COMPLETE or trial.value is None:
        return math.nan
    if violation := violation_of(trial):
        return ranked(sign * trial.value, violation)
    return sign * trial.value


def trial_values(trials: Sequence[FrozenTrial], sign: float) -> Array:
    """Return values to minimize.

    A failed trial, and a pruned one without a report, has the value NaN, which ranks worst. Other
    pruned trials rank behind the completed ones, each one unit in the last place after the one
    before: a preference for values rather than ranks treats them as the worst completed trial.
    Infeasible trials rank behind the feasible ones, by their violation.
    """
    values = np.array([completed_value(t, sign) for t in trials])
    finite = values[np.isfinite(values)]
    value = finite.max() if len(finite) else 0.0
    reports = [
        {step: sign * report for step, report in t.intermediate_values.items()}
        if t.state == TrialState.PRUNED
        else {}
        for t in trials
    ]
    ranks = ranks_of(reports)
    for rank in sorted(set(ranks.values())):
        value = np.nextafter(value, math.inf)
        values[
            [i for i, rank_of_trial in ranks.items() if rank_of_trial == rank]
        ] = value
    return values


def ranks_of(reports: Sequence[Mapping[int, float]]) -> dict[int, int]:
    """Return the ranks of pruned trials by their reports.

    Trials whose last report is missing, NaN or infinite are left out.

    A trial ranks by its last report among the trials pruned at that step or later, whose own order
    does not depend on it. Of these, a trial without a report up to that step, or with an equal one,
    is better.
    """
    last = {
        i: max(steps)
        for i, steps in enumerate(reports)
        if steps and steps[max(steps)] < math.inf
    }
    ranks: dict[int, int] = {}
    for step in sorted(set(last.values()), reverse=True):
        last_steps = [
            max((s for s in reports[i] if s <= step), default=None)
            for i in ranks
        ]
        later = [
            -math.inf if s is None else reports[i][s]
            for i, s in zip(ranks, last_steps, strict=True)
        ]
        order = {i: (rank, 1, 0.0) for i, rank in ranks.items()}
        for i in last:
            if last[i] == step:
                report = reports[i][step]
                order[i] = (
                    sum(later_report <= report for later_report in later),
                    0,
                    report,
                )
        ordered = sorted(order.values())
        ranks = {i: bisect_left(ordered, key) for i, key in order.items()}
    return ranks
