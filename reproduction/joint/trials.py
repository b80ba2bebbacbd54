"""The trials that the CSV of an experiment records, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness import read_csv
from knobless.core.types import Array

from .settings import MEAN, JointExperiment


@dataclass(frozen=True)
class Trials:
    """The finished trials of a setting: one row per trial, one column per recorded number of updates."""

    numbers: tuple[int, ...]
    at: Array
    error: Array  # test error in percent
    lam_r: Array
    eps: Array
    ones: Array

    def place(self, share: float) -> int:
        """Return the column nearest to a share of all updates, on the logarithmic scale of the columns."""
        return int(np.abs(np.log(self.at / (share * self.at[-1]))).argmin())

    @property
    def final(self) -> Array:
        return self.error[:, -1]


TrialsBySetting = Mapping[str, Trials]
_Curve = dict[int, list[float]]  # of one trial, by update


def read_trials(path: Path) -> dict[int, dict[str, Trials]]:
    """Read the trials of a CSV, by the number of updates of the whole training and by setting."""
    curves: dict[tuple[int, str], dict[int, _Curve]] = {}
    for number, row in enumerate(read_csv(path) if path.exists() else (), 2):
        try:
            updates, trial, update = (int(row[name]) for name in ("updates", "trial", "update"))
            values = [float(row.get(name) or "nan") for name in ("error", "lam_r", "eps", "ones", "mean_error")]
        except (KeyError, ValueError):
            raise ValueError(f"{path}, line {number}: expected a row of a trial, got {row}") from None
        curves.setdefault((updates, row["setting"]), {}).setdefault(trial, {})[update] = values
    found: dict[int, dict[str, Trials]] = {}
    for (updates, setting), trials in curves.items():
        ended = {number: trials[number] for number in sorted(trials) if updates in trials[number]}
        if ended:
            at = sorted(set.intersection(*map(set, ended.values())))
            values_of = np.array([[curve[update] for update in at] for curve in ended.values()])
            *columns, mean_error = np.moveaxis(values_of, 2, 0)
            here = found.setdefault(updates, {})
            here[setting] = Trials(tuple(ended), np.array(at, dtype=float), *columns)
            if not np.isnan(mean_error[:, -1]).any():
                last = [values[:, -1:] for values in (mean_error, *columns[1:])]
                here[setting + MEAN] = Trials(tuple(ended), np.array(at[-1:], dtype=float), *last)
    return found


def trials_at(experiment: JointExperiment, out: Path, updates: int) -> tuple[TrialsBySetting, TrialsBySetting]:
    """Return the trials of this many updates, of which there must be some, and of ten times as many."""
    path = out / f"{experiment.name}.csv"
    found = read_trials(path)
    if updates not in found:
        got = ", ".join(f"{n:,}" for n in sorted(found)) or "none"
        raise ValueError(f"{path}: expected trials of {updates:,} updates, got {got}")
    return found[updates], found.get(10 * updates, {})
