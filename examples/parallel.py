"""Parallel evaluation in four processes, with the same result as in one: `batch` states rounds of four.

It prints:

    cost 29.12 with 4 staff, lifts: one
    the same result: True
"""

import time

import knobless as kl

SPACE = kl.Space(doors=kl.Binary(12), lift=kl.Choice("none", "one", "two"), staff=kl.Integer(1, 20))


def cost(x):
    """Return the cost of an entrance: staff, lifts and waiting times. The pause is in place of a simulation."""
    time.sleep(0.005)
    lifts = {"none": 0, "one": 1, "two": 2}[x["lift"]]
    return 60 / (1 + x["doors"].sum()) + 30 / x["staff"] + 10 / (1 + lifts) + 2 * x["staff"] + 4 * lifts


if __name__ == "__main__":  # the processes import this file
    # Without batch no worker waits for another one, and the result depends on which evaluation ends first.
    together = kl.minimize(cost, SPACE, budget=200, rng=0, workers=4, batch=4)
    alone = kl.minimize(cost, SPACE, budget=200, rng=0, batch=4)
    print(f"cost {together.fun:.2f} with {together.x['staff']} staff, lifts: {together.x['lift']}")
    print("the same result:", together.fun == alone.fun and together.nit == alone.nit)
