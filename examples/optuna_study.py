"""An Optuna study with a knobless sampler; pruners, storages and plots work as usual. Needs Optuna.

It prints:

    0.000 with 4 layers, gelu
"""

import math

import optuna

from knobless.optuna import KnoblessSampler

optuna.logging.set_verbosity(optuna.logging.WARNING)


def objective(trial):
    """Return a loss, in place of a training run."""
    layers = trial.suggest_int("layers", 1, 12)
    activation = trial.suggest_categorical("activation", ["relu", "tanh", "gelu"])
    rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    return abs(layers - 4) / 4 + (activation != "gelu") + (math.log10(rate) + 3) ** 2


study = optuna.create_study(sampler=KnoblessSampler(seed=0))
study.optimize(objective, n_trials=250)
print(f"{study.best_value:.3f} with {study.best_params['layers']} layers, {study.best_params['activation']}")
