"""Names of other libraries, and what to use here instead, for error messages."""

from __future__ import annotations

_MEANT = {
    "rng, the seed or generator": ("seed", "random_state", "random_seed", "generator"),
    "algorithm, a value such as kl.pbil_lambda(space)": ("method", "sampler", "algo", "strategy", "optimizer"),
    "space": ("bounds", "dimensions", "search_space", "domain", "parameters", "param_space", "parametrization"),
    "x0, the initial point": ("init", "initial", "initial_point", "start"),
    "journal, a file": ("storage", "study_name", "checkpoint", "load_if_exists"),
}
_OF_A_RUN = {
    "fun, the objective": ("objective", "func", "function", "f"),
    "budget, the number of evaluations": (
        *("n_trials", "n_iter", "n_calls", "max_evals", "maxiter", "max_iter", "maxfev", "maxfun", "num_samples"),
        *("iterations", "evaluations", "max_evaluations", "trials"),
    ),
    "workers": ("n_jobs", "num_workers", "n_workers", "max_workers", "parallel"),
    "timeout, in seconds": ("max_time", "time_limit", "time_budget"),
    "stall, a number of evaluations": ("patience", "early_stopping", "tol"),
    "callback": ("callbacks",),
    "progress=True": ("show_progress_bar", "verbose", "disp"),
}
_DIRECTION = ("direction", "directions", "maximize", "minimize", "mode", "sense")


def _suggestions(*meant: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: f"use {here}" for each in meant for here, names in each.items() for name in names}


RUN = _suggestions(_MEANT, _OF_A_RUN) | dict.fromkeys(_DIRECTION, "call kl.minimize or kl.maximize")
OPTIMIZER = _suggestions(_MEANT) | dict.fromkeys(_DIRECTION, "use maximize=True to maximize")
OPTIMIZER |= dict.fromkeys(
    ("fun", "budget", "workers", *(name for names in _OF_A_RUN.values() for name in names)),
    "an Optimizer is asked for candidates and told their values; kl.minimize takes an objective and a budget",
)
_OF_AN_ESTIMATOR = {
    "n_iter, the number of candidates": ("budget", "n_trials", "n_calls", "max_evals", "n_candidates"),
    "random_state": ("rng", "seed"),
    "n_jobs": ("workers",),
}
SEARCH_CV = _suggestions(
    _OF_AN_ESTIMATOR,
    {"param_distributions": ("space", "search_spaces", "search_space", "param_dist", "params", "param_space")},
)
FEATURE_SELECTOR = _suggestions(
    _OF_AN_ESTIMATOR, {"n_features_to_select": ("k", "n_features", "k_features", "max_features", "min_features")}
)
OPTUNA_SAMPLER = _suggestions(
    {
        "search_space": ("space", "distributions", "param_distributions"),
        "seed": ("rng", "random_state"),
        "algorithm, a recipe such as kl.pbil_lambda": ("method", "optimizer"),
    }
) | dict.fromkeys(
    ("n_startup_trials", "n_ei_candidates", "multivariate", "group", "popsize", "population_size", "sigma0"),
    "the sampler has no strategy parameters, so leave it out",
)
TENSOR_RUN = {name: text for name, text in RUN.items() if name != "trials"} | dict.fromkeys(
    (
        *("vectorized", "deterministic", "evaluation_timeout", "constraints", "fixed"),
        *("workers", *_OF_A_RUN["workers"], "journal", *_MEANT["journal, a file"]),
    ),
    "not available for objectives in tensors; kl.minimize and kl.maximize have it",
)

# Attributes of the package.
_VARIABLES_AND_CALLS = {
    "kl.Float(low, high), with log=True for a log scale": ("Real", "Uniform", "LogUniform", "FloatDistribution"),
    "kl.Integer(low, high), both included": ("Int", "IntUniform", "RandInt", "IntDistribution"),
    "kl.Choice(*options)": ("Ordinal", "Constant", "CategoricalDistribution"),
    "kl.Binary(n)": ("Bool", "Boolean", "Bits"),
    "kl.minimize(fun, space, budget=1000)": ("minimise", "optimize", "optimise", "fmin", "gp_minimize"),
    "kl.maximize(fun, space, budget=1000)": ("maximise",),
    "kl.minimize, or kl.Optimizer for ask and tell": ("Study", "create_study"),
    "knobless.sklearn.SearchCV": ("SearchCV",),
    "knobless.sklearn.FeatureSelector": ("FeatureSelector",),
    "knobless.optuna.KnoblessSampler": ("KnoblessSampler",),
}
_MODULES = ("fast", "optuna", "plots", "problems", "report", "sklearn", "torch")
PACKAGE_NAMES = _suggestions(_VARIABLES_AND_CALLS) | {name: f"import knobless.{name} first" for name in _MODULES}
