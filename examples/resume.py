"""A journal: every evaluation is recorded as it ends, and a run that was stopped goes on as if it had not been.

It prints:

    stopped after 149 evaluations: 6 mistakes
    went on to 400: 0 mistakes; 251 evaluations were left to do
    as if it had never stopped: True
"""

from tempfile import TemporaryDirectory

import numpy as np

import knobless as kl

SECRET = np.random.default_rng(1).integers(0, 2, 60)
calls = 0


def mistakes(x):
    """Stands for something that takes hours."""
    global calls
    if (calls := calls + 1) == 150:
        raise KeyboardInterrupt  # you press Ctrl-C
    return np.count_nonzero(x != SECRET)


def run(journal):
    """The same call, whether it begins or goes on."""
    return kl.minimize(mistakes, kl.Binary(60), budget=400, rng=0, journal=journal)


with TemporaryDirectory() as folder:  # yours stay, and so does what is in them
    first = run(f"{folder}/run.sqlite")
    print(f"stopped after {first.nfev} evaluations: {first.fun:.0f} mistakes")
    second = run(f"{folder}/run.sqlite")
    print(f"went on to {second.nfev}: {second.fun:.0f} mistakes; {calls - 150} evaluations were left to do")
whole = run(None)
print("as if it had never stopped:", np.array_equal(second.mode, whole.mode) and second.fun == whole.fun)
