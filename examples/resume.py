"""Checkpoint and resume: a journal records every evaluation, and an interrupted run continues from it.

It prints:

    stopped after 39 evaluations: 9 mistakes
    resumed to 400: 0 mistakes; 361 evaluations were left
    same result as without the interruption: True
"""

from tempfile import TemporaryDirectory

import numpy as np

import knobless as kl

SECRET = np.random.default_rng(1).integers(0, 2, 60)
calls = 0


def mistakes(x):
    """Return the number of mistakes, in place of an evaluation that takes hours."""
    global calls
    if (calls := calls + 1) == 40:
        raise KeyboardInterrupt  # the user presses Ctrl-C
    return np.count_nonzero(x != SECRET)


def run(journal):
    """Start or resume the run: the call is the same."""
    return kl.minimize(mistakes, kl.Binary(60), budget=400, rng=0, journal=journal)


with TemporaryDirectory() as folder:  # use a permanent folder instead
    first = run(f"{folder}/run.sqlite")
    print(f"stopped after {first.nfev} evaluations: {first.fun:.0f} mistakes")
    second = run(f"{folder}/run.sqlite")
    print(f"resumed to {second.nfev}: {second.fun:.0f} mistakes; {calls - 40} evaluations were left")
whole = run(None)
print("same result as without the interruption:", np.array_equal(second.mode, whole.mode) and second.fun == whole.fun)
