"""A noisy objective: the run detects the noise and recommends a point, not the one with the best observed value.

It prints:

    possible:         7.9
    recommended:      estimated 8.8 ± 0.6, in truth 7.6
    luckiest:         measured 34.7, in truth 6.6
"""

import numpy as np

import knobless as kl

rng = np.random.default_rng(5)
EFFECT = rng.normal(size=30)  # of each switch, not known to the search


def gain(x):
    """Return the expected value."""
    return float(EFFECT @ x)


def measured(x):
    """Return a noisy observation."""
    return gain(x) + 8.0 * rng.standard_normal()


result = kl.maximize(measured, kl.Binary(30), budget=10_000, rng=0)
print(f"possible:         {EFFECT[EFFECT > 0].sum():.1f}")
print(f"recommended:      estimated {result.fun:.1f} ± {result.fun_std:.1f}, in truth {gain(result.x):.1f}")
print(f"luckiest:         measured {result.observed_fun:.1f}, in truth {gain(result.observed_x):.1f}")
