"""The point to use of a noisy objective: finalists, of which fresh evaluations decide.

The lowest single observation of a noisy objective is a lucky one, the more so the more observations
there are. Better points are often the most probable one, the minimum of a linear model of all
evaluations, and the one with the best average. In a short run, the lowest observation may be the
best of them. None is best on every problem, so the last evaluations of a run compare them.
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import NamedTuple

import numpy as np

from knobless.core import linear
from knobless.core.catalog import LINEAR_LIMIT
from knobless.core.families import ColumnFamily, Family
from knobless.core.types import Array, Points
from knobless.core.violation import FEASIBLE_LIMIT, PER_VIOLATION, is_feasible

from .pending import row_bytes
from .run_state import RunState

FINALISTS_SHARE = 20  # one of so many evaluations is spent on finalists
LEAST_BUDGET = 40  # evaluations of a run below which none is
SHORT = 1000  # evaluations below which the lowest observation is a finalist


class Recommended(NamedTuple):
    """A point with an estimate of its mean value, its standard error, and its mean violation.

    Of an infeasible point of a noisy objective, the mean value is not known.
    """

    code: Points
    fun: float
    std: float
    violation: float = 0.0


def reserved(nfev: float) -> int:
    """Return the number of evaluations, out of `nfev`, that are spent on finalists."""
    if LEAST_BUDGET <= nfev < math.inf:
        return math.ceil(nfev / FINALISTS_SHARE)
    return 0


class Evaluations(NamedTuple):
    """The points and values of all evaluations."""

    x: Points
    f: Array


def finalists(run: RunState) -> Points:
    """Return the different points among which the one to use is chosen, the first one first.

    There are none before an iteration with a finite value is complete.
    """
    return _finalists(run, Evaluations(*run.archive.evaluations()))


def _finalists(run: RunState, earlier: Evaluations) -> Points:
    family = run.space.family
    finite = np.isfinite(earlier.f)
    if not finite.any():
        return earlier.x[:0]
    has_columns = isinstance(family, ColumnFamily)  # which linear models need
    recommended = getattr(run.algorithm, "recommended", None)  # of a search
    modeled = None if recommended is None else recommended(run.search)
    finalists = [_best_average(run, earlier)]
    if modeled is None:
        expected = (
            linear.recommend_evaluated(family, earlier.x, earlier.f)
            if has_columns
            else None
        )
        finalists.insert(0, run.mode if expected is None else expected)
    if len(earlier.f) < SHORT:
        finalists.append(
            earlier.x[np.where(finite, earlier.f, math.inf).argmin()]
        )
    if (
        has_columns
        and family.dim <= LINEAR_LIMIT
        and np.count_nonzero(finite) > 1
    ):
        finalists.insert(
            0, linear.recommend(family, *_thinned(family, earlier.x, earlier.f))
        )
    if modeled is not None:
        finalists.insert(0, modeled)
    codes = np.array(finalists)
    if run.feasibility is not None:
        codes = run.feasibility.fixed.applied(codes)
    _, first = np.unique(run.space.visible(codes), axis=0, return_index=True)
    codes = codes[np.sort(first)]
    if run.feasibility is None:
        return codes
    return codes[run.feasibility.are_feasible(codes)]


def recommended_point(run: RunState) -> Recommended | None:
    """Return the point to use without further evaluations; None before there is a finite value."""
    if run.best is None:
        return None
    earlier = Evaluations(*run.archive.evaluations()) if run.noisy else None
    codes = (
        run.initial_points[:0] if earlier is None else _finalists(run, earlier)
    )
    if earlier is None or not len(codes):
        std = 0.0 if run.deterministic else math.nan
        return Recommended(run.best.at, run.best.fun, std, run.best.violation)
    code = codes[0]
    return Recommended(
        code, *_estimate(run, earlier, code, _values_of(run, earlier, code))
    )


def winner(
    run: RunState, codes: Points, values: list[Array]
) -> Recommended | None:
    """Return the finalist with the best mean of fresh values; None if none has a finite one."""
    earlier = Evaluations(*run.archive.evaluations())
    if run.infeasible:
        values = [
            _with_violations(_values_of(run, earlier, code), f)
            for code, f in zip(codes, values, strict=True)
        ]
    means = [
        math.inf if math.isnan(mean) else mean
        for mean, _ in map(mean_and_error, values)
    ]
    i = int(np.argmin(means))
    # Another point may have been feasible each time
    if run.infeasible and FEASIBLE_LIMIT <= means[i] < math.inf:
        code = _best_average(
            run, earlier, set(row_bytes(run.space.visible(codes)))
        )
        repeated = _values_of(run, earlier, code)
        if is_feasible(repeated[np.isfinite(repeated)]).all():
            return Recommended(code, *_estimate(run, earlier, code, repeated))
    if means[i] == math.inf:
        return None
    mean, std, violation = _estimate(run, earlier, codes[i], values[i])
    n = np.count_nonzero(np.isfinite(values[i]))
    if n > 1 and not violation:
        feasible = [
            f
            for f, mean_of_point in zip(values, means, strict=True)
            if mean_of_point < FEASIBLE_LIMIT
        ]
        std = pooled_deviation(feasible) / math.sqrt(n)
    return Recommended(codes[i], mean, std, violation)


def pooled_deviation(values: list[Array]) -> float:
    """Return the standard deviation of finite values of several points around the mean of each.

    A point has few values, and the deviation of two alone is often several times too small.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        finite = [f[np.isfinite(f)] for f in values]
        squares = sum(
            float(((f - f.mean()) ** 2).sum()) for f in finite if len(f)
        )
        freedom = sum(len(f) - 1 for f in finite if len(f))
    return math.sqrt(squares / freedom) if freedom else math.nan


def _with_violations(before: Array, fresh: Array) -> Array:
    """Return fresh values, or all of them if one shows that the point is infeasible."""
    together = np.concatenate([before, fresh])
    if is_feasible(together[np.isfinite(together)]).all():
        return fresh
    return together


def _estimate(
    run: RunState, earlier: Evaluations, code: Points, values: Array
) -> tuple[float, float, float]:
    """Return the mean of a point with its standard error.

    It is that of its values, or of the linear model if these are few.

    The third number is its mean violation: a point counts as feasible if all of its evaluations
    are.
    """
    mean, std = mean_and_error(values)
    finite = np.isfinite(earlier.f)
    family = run.space.family
    if run.infeasible:
        if mean >= FEASIBLE_LIMIT:
            return math.nan, math.nan, mean / PER_VIOLATION
        finite &= is_feasible(earlier.f)
    if (
        isinstance(family, ColumnFamily)
        and math.isnan(std)
        and np.count_nonzero(finite) > 1
    ):
        means, stds = linear.estimate(
            family,
            *_thinned(family, earlier.x[finite], earlier.f[finite]),
            code[None],
        )
        return float(means[0]), float(stds[0]), 0.0
    return mean, std, 0.0


def mean_and_error(values: Array) -> tuple[float, float]:
    """Return the mean of the finite values and its standard error; NaN where there are too few."""
    finite = values[np.isfinite(values)]
    n = len(finite)
    # Of the largest numbers, the mean is infinite
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(finite.mean()) if n else math.nan
        return mean, float(finite.std(ddof=1)) / math.sqrt(
            n
        ) if n > 1 else math.nan


def _thinned(family: Family, x: Points, f: Array) -> tuple[Points, Array]:
    """Return evenly chosen evaluations of the whole run.

    The first ones are the most diverse, hence the most informative.
    """
    limit = linear.most_evaluations(family)
    # With few evaluations, a fit takes little time whatever the number of parameters
    if family.dim > LINEAR_LIMIT:
        limit = max(min(LINEAR_LIMIT, linear.KEPT // family.dim), 2)
    step = -(-len(f) // limit)
    return x[::step], f[::step]


def _best_average(
    run: RunState, earlier: Evaluations, excluded: Set[bytes] = frozenset()
) -> Points:
    """Return the point with the best average, each with one more value: the mean of all.

    Points that were infeasible, and those that are excluded, are returned only if there is no
    other.
    """
    rows = np.flatnonzero(np.isfinite(earlier.f))
    f = earlier.f[rows]
    # For each point the number of its first evaluation
    first: dict[bytes, int] = {}
    groups = [
        first.setdefault(key, i)
        for i, key in enumerate(row_bytes(run.space.visible(earlier.x[rows])))
    ]
    group_of_row = np.array(groups, dtype=np.intp)
    if run.infeasible:
        # In all evaluations of the point
        feasible = (
            np.bincount(group_of_row, ~is_feasible(f))[group_of_row] == 0.0
        )
        feasible &= ~np.isin(
            group_of_row, [i for key, i in first.items() if key in excluded]
        )
        group_of_row, f = (
            (group_of_row[feasible], f[feasible])
            if feasible.any()
            else (group_of_row, f)
        )
    counts = np.bincount(group_of_row)
    with np.errstate(over="ignore", invalid="ignore"):
        average = (np.bincount(group_of_row, f) + f.mean()) / (counts + 1.0)
    average[counts == 0] = math.inf
    code: Points = earlier.x[rows[average.argmin()]]
    return code


def _values_of(run: RunState, earlier: Evaluations, code: Points) -> Array:
    is_equal = (
        run.space.visible(earlier.x) == run.space.visible(code[None])
    ).all(axis=1)
    return earlier.f[is_equal]
