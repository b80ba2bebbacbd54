"""The values of several objectives over the evaluations of a run: their front, and its hypervolume.

Hypervolumes are those of values scaled by the ranges of the last front, up to a tenth beyond its
nadir, relative to the last one. Under noise, a point has the mean of all its evaluations from its
first one on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knobless.core import pareto
from knobless.core.pareto import hypervolume, is_front, knee, scaled
from knobless.core.point_values import JITTER
from knobless.core.types import Array, Points
from knobless.journal.evaluations import Evaluations
from knobless.journal.records import Record, read
from knobless.run.front import Front
from knobless.space.space import Space

BEYOND = 1.1  # the reference point, where the front is between 0 and 1
COURSE = 200  # evaluations at which a hypervolume is computed, at most


class Outcomes(NamedTuple):
    """Values of several objectives, by evaluation, each to be minimized.

    Attributes
    ----------
    directions : dict
        "min" or "max" by the names of the objectives.
    observed : array of shape (n, objectives)
        The values; NaN for failed and infeasible evaluations.
    minimized : array of shape (n, objectives)
        What is compared: the same, or under noise the mean of all evaluations of the point, NaN if
        it has one alone.
    std : array of shape (n, objectives) or None
        Standard errors of these means; None without noise.
    """

    directions: Mapping[str, str]
    observed: Array
    minimized: Array
    std: Array | None = None

    @classmethod
    def of(cls, run: Any) -> Outcomes:
        """Return the values of a result, a journal or evaluations.

        ValueError if it has a single objective.
        """
        outcomes = getattr(run, "outcomes", None)
        if isinstance(outcomes, cls):  # of a trace
            return outcomes
        if isinstance(run, Evaluations):
            return cls.of_evaluations(run)
        evaluations = getattr(run, "evaluations", None)
        if isinstance(evaluations, Evaluations) and not isinstance(run, Record):
            return cls.of_evaluations(evaluations)
        if isinstance(run, Record):
            return cls.of_evaluations(run.evaluations)
        with read(run) as record:
            return cls.of_evaluations(record.evaluations)

    @classmethod
    def of_evaluations(cls, evaluations: Evaluations) -> Outcomes:
        """Return the values of evaluations."""
        if not evaluations.objectives:
            raise ValueError(
                "run: expected one with several objectives, got one with a single objective"
            )
        return cls.of_points(
            evaluations.space, evaluations.objectives, *evaluations.outcomes()
        )

    @classmethod
    def of_points(
        cls,
        space: Space,
        directions: Mapping[str, str],
        codes: Points,
        values: Array,
        infeasible: NDArray[np.bool_],
    ) -> Outcomes:
        """Return the values of evaluations with the user's signs, given their points.

        NaN for those that failed.
        """
        observed = values * signs_of(directions)
        observed[infeasible] = np.nan
        valued = np.flatnonzero(~np.isnan(observed).any(axis=1))
        _, first, point = np.unique(
            space.visible(codes), axis=0, return_index=True, return_inverse=True
        )
        valued_part = point.ravel()[valued]
        counts = np.maximum(np.bincount(valued_part, minlength=1), 1)
        # Relative to the first value of a point, so that the mean of equal ones is exact.
        base = np.where(np.isfinite(observed[first]), observed[first], 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            columns = (observed[valued] - base[valued_part]) / counts[
                valued_part, None
            ]
            means = base[: len(counts)] + np.stack(
                [
                    np.bincount(valued_part, column, len(counts))
                    for column in columns.T
                ],
                1,
            )
            offsets = np.where(
                counts[valued_part, None] > 1,
                observed[valued] - means[valued_part],
                0.0,
            )
            finite = np.where(
                np.isfinite(observed[valued]), np.abs(observed[valued]), 0.0
            )
            if not (
                np.abs(offsets) > JITTER * finite.max(axis=0, initial=0.0)
            ).any():
                return cls(directions, observed, observed)
            deviation = np.sqrt((offsets**2).sum(axis=0) / (counts - 1).sum())
        minimized = np.full_like(observed, np.nan)
        std = np.full_like(observed, np.nan)
        kept = valued[
            (counts[valued_part] > 1)
            & ~np.isin(valued_part, point.ravel()[infeasible])
        ]
        minimized[kept] = means[point.ravel()[kept]]
        std[kept] = deviation / np.sqrt(counts[point.ravel()[kept], None])
        return cls(directions, observed, minimized, std)

    @property
    def values(self) -> Array:
        """What is compared, with the user's signs."""
        return self.minimized * signs_of(self.directions) + 0.0

    @property
    def observed_values(self) -> Array:
        """The values with the user's signs."""
        return self.observed * signs_of(self.directions) + 0.0

    @property
    def front(self) -> NDArray[np.intp]:
        """Indices of the evaluations in the front, in the order of the first objective.

        Of equal ones the first.
        """
        rows = (
            np.flatnonzero(is_front(self.minimized))
            if len(self.minimized)
            else np.empty(0, dtype=np.intp)
        )
        first = np.unique(self.minimized[rows], axis=0, return_index=True)[1]
        return rows[first]

    @property
    def knee(self) -> int:
        """Index of the evaluation at the knee of the front; −1 if the front is empty."""
        rows = self.front
        return int(rows[knee(self.minimized[rows])]) if len(rows) else -1

    @property
    def hypervolumes(self) -> tuple[NDArray[np.int64], Array]:
        """Numbers of evaluations after which the front has changed, and the hypervolumes.

        Hypervolumes are relative to the last one.
        """
        last = self.minimized[self.front]
        if not len(last):
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        reference = np.full(len(self.directions), BEYOND)
        front = pareto.Front(len(self.directions))
        unit = scaled(self.minimized, last)
        changed = [i for i, row in enumerate(unit) if front.add(i, row)]
        chosen = np.unique(
            np.linspace(0, len(changed) - 1, min(len(changed), COURSE)).astype(
                np.intp
            )
        )
        calls = np.array([changed[i] + 1 for i in chosen], dtype=np.int64)
        volumes = np.array(
            [
                hypervolume(unit[:n][is_front(unit[:n])], reference)
                for n in calls
            ]
        )
        if calls[-1] < len(unit):
            calls = np.append(calls, len(unit))
            volumes = np.append(volumes, volumes[-1])
        return calls, volumes / volumes[-1]


def front_of(evaluations: Evaluations) -> Front:
    """Return the front of evaluations with several objectives."""
    codes, values, infeasible = evaluations.outcomes()
    outcomes = Outcomes.of_points(
        evaluations.space, evaluations.objectives, codes, values, infeasible
    )
    rows = outcomes.front
    directions = evaluations.objectives
    std = None if outcomes.std is None else outcomes.std[rows]
    return Front(
        evaluations.space,
        directions,
        codes[rows],
        outcomes.minimized[rows],
        std,
    )


def signs_of(directions: Mapping[str, str]) -> Array:
    """Return for each objective 1 if it is minimized, −1 if it is maximized."""
    return np.array(
        [
            1.0 if direction == "min" else -1.0
            for direction in directions.values()
        ]
    )


def attained(runs: list[Outcomes], at: Array) -> Array:
    """Return the lowest second objective that each run attains at values of the first.

    All values are minimized; inf where a run has none. One row per run.
    """
    rows = []
    for run in runs:
        front = run.minimized[run.front]
        index = np.searchsorted(front[:, 0], at, side="right") - 1
        rows.append(
            np.where(
                index >= 0,
                front[np.maximum(index, 0), 1] if len(front) else np.inf,
                np.inf,
            )
        )
    return np.array(rows)
