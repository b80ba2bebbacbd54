"""Names of arguments in other libraries, and what to use here instead, for error messages."""

from knobless.run.arguments import suggestions

_OF_AN_ESTIMATOR = {
    "n_iter, the number of candidates": (
        "budget",
        "n_trials",
        "n_calls",
        "max_evals",
        "n_candidates",
    ),
    "random_state": ("rng", "seed"),
    "n_jobs": ("workers",),
}
SEARCH_CV = suggestions(
    _OF_AN_ESTIMATOR,
    {
        "param_distributions": (
            "space",
            "search_spaces",
            "search_space",
            "param_dist",
            "params",
            "param_space",
        )
    },
)
FEATURE_SELECTOR = suggestions(
    _OF_AN_ESTIMATOR,
    {
        "n_features_to_select": (
            "k",
            "n_features",
            "k_features",
            "max_features",
            "min_features",
        )
    },
)
