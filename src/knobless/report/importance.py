"""How much each variable matters for the objective value, estimated from the evaluations of a run.

With scikit-learn it is permutation importance: a random forest is fit to two thirds of the
evaluations, and the score of a variable is the increase of its squared error on the others when the
values of the variable are permuted among them. Without scikit-learn, it is the share of the
variance that the variable explains by itself, with numbers sorted into bins. Both use ranks of the
objective values, so that a few bad values do not decide. An inactive variable has a value of its
own, and is permuted among the evaluations in which it is active.

Both describe the evaluated points, which a search concentrates where the values are good, and not
the whole space.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knobless.core.types import Array

from .marginals import evenly
from .observed import Observed

PERMUTATION = "permutation importance of a random forest"
VARIANCE = "variance explained by each variable alone"
FEWEST = 30  # evaluations that a forest is fit to, at least
MOST_USED = 2**14  # evaluations used
MOST_ROWS = 3072  # evaluations used by a forest
MOST_TESTED = 512  # of which the error is measured, at most
MOST_COLUMNS = 64  # permuted: those that explain most by themselves
MOST_READ = 2048  # columns of which the importance is computed
TREES, BINS = 64, 8


class Importance(NamedTuple):
    """The importance of the columns of an `Observed`, the most important first.

    Attributes
    ----------
    columns : array of int
        Indices of the columns.
    names : list of str
        Their names.
    scores : array
        Their scores, which sum to 1 unless all are 0.
    method : str
        What the scores are.
    """

    columns: NDArray[np.intp]
    names: list[str]
    scores: Array
    method: str


def variable_importance(
    observed: Observed, forest: bool | None = None
) -> Importance:
    """Return the importance of the columns.

    Parameters
    ----------
    observed : Observed
        Evaluations.
    forest : bool, optional
        Whether to fit a random forest; by default, if scikit-learn is installed.
    """
    kept = np.flatnonzero(~np.isnan(observed.values))
    kept = kept[evenly(len(kept), MOST_USED)]
    observed = observed._replace(
        codes=observed.codes[kept], values=observed.values[kept]
    )
    columns = evenly(observed.n_columns, MOST_READ)
    columns_of = [observed.column(int(i)) for i in columns]
    f = ranks(observed.sign * observed.values)
    x = np.array([column.values for column in columns_of]).T.reshape(
        len(f), len(columns_of)
    )
    numeric = [not column.labels for column in columns_of]
    scores = np.array(
        [_explained(x[:, i], f, numeric[i]) for i in range(len(columns_of))]
    )
    method = VARIANCE
    forest = find_spec("sklearn") is not None if forest is None else forest
    if forest and len(f) >= FEWEST and f.std() > 0.0:
        strongest = np.sort(np.argsort(-scores, kind="stable")[:MOST_COLUMNS])
        scores = np.zeros(len(columns_of))
        scores[strongest] = _permuted(x[:, strongest], f)
        method = PERMUTATION
    if scores.sum() > 0.0:
        scores = scores / scores.sum()
    order = np.argsort(-scores, kind="stable")
    return Importance(
        columns[order],
        [columns_of[i].name for i in order],
        scores[order],
        method,
    )


def ranks(f: Array) -> Array:
    """Return the ranks of values from 0 to 1, the mean rank of equal ones."""
    _, index, counts = np.unique(f, return_inverse=True, return_counts=True)
    mean = np.cumsum(counts) - (counts + 1) / 2.0
    return np.asarray(mean[index] / max(len(f) - 1, 1), dtype=float)


def _explained(x: Array, f: Array, numeric: bool) -> float:
    """Return the share of the variance of f that groups of x explain.

    The share is adjusted for the number of groups.
    """
    active = ~np.isnan(x)
    total = float(((f - f.mean()) ** 2).sum()) if len(f) else 0.0
    x = x[active]
    f = f[active]
    if len(f) < 3 or total == 0.0:
        return 0.0
    if numeric:
        x = np.searchsorted(
            np.unique(np.quantile(x, np.arange(1, BINS) / BINS)),
            x,
            side="right",
        ).astype(float)
    _, group = np.unique(x, return_inverse=True)
    counts = np.bincount(group)
    k = len(counts)
    n = len(f)
    around = float(((f - f.mean()) ** 2).sum())
    within = float(((f - (np.bincount(group, f) / counts)[group]) ** 2).sum())
    if k < 2 or n <= k or around == 0.0:
        return 0.0
    return (
        max(1.0 - (within / (n - k)) / (around / (n - 1)), 0.0) * around / total
    )


def _permuted(x: Array, f: Array) -> Array:
    """Return the increase of a forest's error when each column is permuted.

    The increase is relative to the variance of f.
    """
    from sklearn.ensemble import RandomForestRegressor

    rows = evenly(len(f), MOST_ROWS)
    x = x[rows]
    f = f[rows]
    active = ~np.isnan(x)
    lowest = np.nanmin(np.where(active, x, np.inf), axis=0)
    # a value of its own
    x = np.where(active, x, np.where(np.isfinite(lowest), lowest, 0.0) - 1.0)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(f))
    tested, fitted = np.split(order, [min(len(f) // 3, MOST_TESTED)])
    forest = RandomForestRegressor(
        TREES, min_samples_leaf=2, random_state=0
    ).fit(x[fitted], f[fitted])
    x = x[tested]
    f = f[tested]
    active = active[tested]
    error = ((forest.predict(x) - f) ** 2).mean()
    repeats = int(np.clip(256 // x.shape[1], 1, 8))
    scores = np.zeros(x.shape[1])
    for i in range(x.shape[1]):
        if len(np.unique(x[:, i])) < 2:
            continue
        changed = np.tile(x, (repeats, 1, 1))
        where = np.flatnonzero(active[:, i])
        for column in changed:
            column[where, i] = column[rng.permutation(where), i]
        predicted = forest.predict(changed.reshape(-1, x.shape[1])).reshape(
            repeats, -1
        )
        scores[i] = max(float(((predicted - f) ** 2).mean() - error), 0.0)
    return scores / max(float(f.var()), 1e-300)
