"""Ask an optimizer for different candidates, whose costs are cross-validation scores.

The folds are the steps of an evaluation: a candidate is stopped when its scores on the first folds
show that it is hopeless (`knobless.core.early_stopping`). Several folds may be run at once. Scores
of folds that one fit at a time would not have run are then dropped, so that the result does not
depend on the number of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import joblib
import numpy as np
from sklearn.utils import check_random_state

from knobless.core.early_stopping import Curve
from knobless.run.optimizer import Optimizer

Key = TypeVar("Key", bound=Hashable)
# Points in a row that stand for candidates evaluated before, after which a search ends
MAX_REPEATS = 1000


def search_candidates(
    opt: Optimizer,
    n_iter: int,
    key: Callable[[Any], Key],
    steps: Sequence[range],
    racing: bool,
    score: Callable[[Sequence[Key], range], Sequence[Sequence[float]]],
    cost: Callable[[Key, float], float],
) -> dict[Key, list[float]]:
    """Return the scores of up to `n_iter` candidates: fewer if the optimizer yields no new ones.

    Parameters
    ----------
    opt : Optimizer
        The optimizer; each of its iterations is evaluated at once.
    n_iter : int
        Number of candidates.
    key : callable
        What identifies the candidate of a point; different points may stand for the same one.
    steps : sequence of range
        The folds that are run at once. They may overlap, as some numbers have no divisors.
    racing : bool
        Whether hopeless candidates are stopped.
    score : callable
        Run folds of several candidates and return the scores of each.
    cost : callable
        Return the cost of a candidate by its mean score, as the optimizer is told it.
    """
    scores: dict[Key, list[float]] = {}
    curves: dict[Key, Curve] = {}
    n_folds = steps[-1].stop
    repeats = 0
    while (
        len(scores) < n_iter
        and repeats < MAX_REPEATS
        and len(batch := opt.ask())
    ):
        keys = [key(candidate.x) for candidate in batch]
        first = dict(reversed([*zip(keys, batch, strict=True)]))
        new = [k for k in dict.fromkeys(keys) if k not in scores][
            : n_iter - len(scores)
        ]
        costs: dict[Key, list[float]] = {k: [] for k in new}
        scores |= {k: [] for k in new}
        stopped: set[Key] = set()
        for folds in steps:
            running = [k for k in new if k not in stopped]
            for k, values in zip(
                running, score(running, folds) if running else (), strict=True
            ):
                for value in values[len(scores[k]) - folds.start :]:
                    scores[k].append(value)
                    costs[k].append(cost(k, float(np.mean(scores[k]))))
                    hopeful = math.isfinite(costs[k][-1]) and opt.report(
                        first[k], costs[k][-1]
                    )
                    if racing and len(scores[k]) < n_folds and not hopeful:
                        stopped.add(k)
                        break
        curves |= {k: Curve(costs[k], k in stopped) for k in new}
        if len(scores) < n_iter:
            opt.tell(batch, [curves[k] for k in keys])
            repeats = 0 if new else repeats + len(batch)
    return scores


def steps_of(n_folds: int, racing: bool, n_jobs: int | None) -> list[range]:
    """Return the folds of a candidate that are run at once.

    These are as many as there are jobs, or all folds without a race.

    Each step has the same number of folds, so the last one may overlap with the one before.
    """
    jobs = min(joblib.effective_n_jobs(n_jobs), n_folds) if racing else n_folds
    size = math.ceil(n_folds / math.ceil(n_folds / jobs))
    starts = [min(start, n_folds - size) for start in range(0, n_folds, size)]
    return [range(start, start + size) for start in starts]


def optimizer_of(
    space: Any, n_folds: int, n_jobs: int | None, seed: int, x0: Any = None
) -> Optimizer:
    """Return the optimizer of a search; an iteration has enough candidates for all jobs."""
    batch = math.ceil(joblib.effective_n_jobs(n_jobs) / n_folds)
    return Optimizer(space, x0=x0, rng=seed, batch=batch, deterministic=True)


def seed_of(random_state: Any) -> int:
    """Return a seed from any `random_state` of scikit-learn: None, an integer, or a RandomState."""
    return int(check_random_state(random_state).randint(2**31 - 1))
