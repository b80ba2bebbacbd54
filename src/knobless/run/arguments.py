"""Names of other libraries, and what to use here instead, for error messages."""

from __future__ import annotations

import inspect
from typing import Any

MEANT = {
    "rng, the seed or generator": (
        "seed",
        "random_state",
        "random_seed",
        "generator",
    ),
    "algorithm, a value such as kl.pbil_lambda(space)": (
        "method",
        "sampler",
        "algo",
        "strategy",
        "optimizer",
    ),
    "space": (
        "bounds",
        "dimensions",
        "search_space",
        "domain",
        "parameters",
        "param_space",
        "parametrization",
    ),
    "x0, the initial points": (
        "init",
        "initial",
        "initial_point",
        "initial_points",
        "points_to_evaluate",
        "start",
    ),
    "journal, a file": (
        "storage",
        "study_name",
        "checkpoint",
        "load_if_exists",
    ),
}
OF_A_RUN = {
    "fun, the objective": ("objective", "func", "function", "f"),
    "budget, the number of evaluations": (
        *(
            "n_trials",
            "n_iter",
            "n_calls",
            "max_evals",
            "maxiter",
            "max_iter",
            "maxfev",
            "maxfun",
            "num_samples",
        ),
        *("iterations", "evaluations", "max_evaluations", "trials"),
    ),
    "workers": (
        "n_jobs",
        "num_workers",
        "n_workers",
        "max_workers",
        "parallel",
    ),
    "timeout, in seconds": ("max_time", "time_limit", "time_budget"),
    "stall, a number of evaluations": ("patience", "early_stopping", "tol"),
    "callback": ("callbacks",),
    "stop, a function or several": (
        "termination",
        "stopping_criterion",
        "stopping_criteria",
        "stop_when",
    ),
    "progress=True": ("show_progress_bar", "verbose", "disp"),
}
_DIRECTION = (
    "direction",
    "directions",
    "maximize",
    "minimize",
    "mode",
    "sense",
)


def suggestions(*meant: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Return what to use for each name, from the names that what is used here has elsewhere."""
    return {
        name: f"use {name_here}"
        for libraries in meant
        for name_here, names in libraries.items()
        for name in names
    }


RUN = suggestions(MEANT, OF_A_RUN) | dict.fromkeys(
    _DIRECTION, "call kl.minimize or kl.maximize"
)
OPTIMIZER = suggestions(MEANT) | dict.fromkeys(
    _DIRECTION, "use maximize=True to maximize"
)
OPTIMIZER |= dict.fromkeys(
    (
        "fun",
        "budget",
        "workers",
        *(name for names in OF_A_RUN.values() for name in names),
    ),
    "an Optimizer is asked for candidates and told their values; kl.minimize takes an objective "
    "and a budget",
)
# Attributes of the package.
_VARIABLES_AND_CALLS = {
    "kl.Float(low, high), with log=True for a log scale": (
        "Real",
        "Uniform",
        "LogUniform",
        "FloatDistribution",
    ),
    "kl.Integer(low, high), both included": (
        "Int",
        "IntUniform",
        "RandInt",
        "IntDistribution",
    ),
    "kl.Choice(*options)": ("Constant", "CategoricalDistribution"),
    "kl.Choice(*options, ordered=True)": ("Ordinal", "OrdinalHyperparameter"),
    "kl.Binary(n)": ("Bool", "Boolean", "Bits"),
    "kl.minimize(fun, space, budget=1000)": (
        "minimise",
        "optimize",
        "optimise",
        "fmin",
        "gp_minimize",
    ),
    "kl.maximize(fun, space, budget=1000)": ("maximise",),
    "kl.minimize, or kl.Optimizer for ask and tell": ("Study", "create_study"),
    "knobless.sklearn.SearchCV": ("SearchCV",),
    "knobless.sklearn.FeatureSelector": ("FeatureSelector",),
    "knobless.optuna.KnoblessSampler": ("KnoblessSampler",),
}
PACKAGE_NAMES = suggestions(_VARIABLES_AND_CALLS)
# Attributes of results.
_RESULT = {
    "x, the point to use": (
        *(
            "best_params",
            "best_config",
            "best_x",
            "best_point",
            "best_parameters",
            "best_trial",
            "params",
        ),
    ),
    "fun, its value": (
        "best_value",
        "best_score",
        "best_score_",
        "best_fun",
        "best_f",
        "best_loss",
        "value",
    ),
    "front": ("best_trials", "pareto", "pareto_front"),
    "evaluations": (
        "trials",
        "evals",
        "x_iters",
        "func_vals",
        "trials_dataframe",
    ),
    "observed_x and observed_fun, the best single observation": (
        "best",
        "lowest_x",
        "lowest_fun",
    ),
}
RESULT_NAMES = {
    name: name_here for name_here, names in _RESULT.items() for name in names
}


def check_objective(fun: Any, space: Any) -> None:
    """Check the objective.

    TypeError if it and the space are swapped, or if it cannot be called with one point.
    """
    if not callable(fun):
        hint = (
            "; the objective comes first: minimize(fun, space, budget=1000)"
            if callable(space)
            else ""
        )
        raise TypeError(f"fun: expected a function, got {fun!r:.200}{hint}")
    try:
        accepted = inspect.signature(fun)
    except (TypeError, ValueError):  # of a function without one
        return
    try:
        accepted.bind(None)
    except TypeError:
        named = "; the variables of a space with names are the items of a dict: x['width']"
        name = getattr(fun, "__name__", type(fun).__name__)
        raise TypeError(
            f"fun: expected a function of one argument, the point, got {name}{accepted}{named}"
        ) from None
