"""Arguments of other libraries, and the argument to use here instead, for error messages."""

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
SEARCH_CV = {
    name: f"use {here}"
    for here, names in {
        "n_iter, the number of candidates": ("budget", "n_trials", "n_calls", "max_evals", "n_candidates"),
        "random_state": ("rng", "seed"),
        "n_jobs": ("workers",),
        "param_distributions": ("space", "search_spaces", "search_space", "param_dist", "params", "param_space"),
    }.items()
    for name in names
}
