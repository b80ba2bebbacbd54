"""Tune a pipeline with branches: the kind of model decides which parameters exist."""

from __future__ import annotations

import math
from pathlib import Path

import optuna
import optunahub


def objective(trial: optuna.Trial) -> float:
    """Return a loss that is smallest for boosting with a rate of 0.1 and 32 leaves."""
    model = trial.suggest_categorical("model", ["linear", "forest", "boosting"])
    if model == "linear":
        return 0.6 + 0.1 * abs(math.log10(trial.suggest_float("penalty", 1e-4, 1e4, log=True)))
    if model == "forest":
        return 0.5 + abs(trial.suggest_float("share", 0.1, 1.0) - 0.7)
    rate = trial.suggest_float("rate", 1e-3, 1.0, log=True)
    leaves = trial.suggest_int("leaves", 2, 256, log=True)
    return 0.4 + (math.log10(rate) + 1) ** 2 + (math.log2(leaves) - 5) ** 2 / 16


if __name__ == "__main__":
    registry = Path(__file__).resolve().parents[2]
    module = optunahub.load_local_module("samplers/knobless", registry_root=str(registry))
    study = optuna.create_study(sampler=module.KnoblessSampler(seed=0))
    study.optimize(objective, n_trials=100)
    print(study.best_params, study.best_value)
