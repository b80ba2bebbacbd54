"""The ask-and-tell interface, for evaluations that run elsewhere, arrive late, fail, or are lost.

It prints:

    asked for 8, told 6, one failed, one lost
    after 200 evaluations: 2.0 euros, valves 1 and 4 open
"""

import numpy as np

import knobless as kl

PRICE = np.array([5, -1, 4, 3, -1, 6, 2, 4, 3, 5])


def laboratory(x):
    """Return the daily cost of a plant, in place of a manual measurement."""
    return 4.0 + PRICE @ x


opt = kl.Optimizer(kl.Binary(10), batch=8, rng=0)

batch = opt.ask()
opt.tell(batch[5], laboratory(batch[5].x))  # in any order
opt.tell(batch[:5], [laboratory(candidate.x) for candidate in batch[:5]])
opt.tell(batch[6], RuntimeError("the pump broke"))  # ranks worst
opt.cancel(batch[7])  # no value will arrive: the iteration closes without it
print(f"asked for {len(batch)}, told {opt.nfev - opt.failures}, one failed, one lost")

while opt.nfev < 200:
    batch = opt.ask()
    opt.tell(batch, [laboratory(candidate.x) for candidate in batch])

valves = " and ".join(map(str, np.flatnonzero(opt.recommended.x)))
print(f"after {opt.nfev} evaluations: {opt.recommended.fun} euros, valves {valves} open")
