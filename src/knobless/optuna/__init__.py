"""A sampler for Optuna whose state follows from the trials of the study alone.

Every trial that is sampled jointly is tagged with its number, its iteration, the trial that opened
this iteration, and its code. A trial that opens an iteration also records the finished trials that
the previous iteration has learned from. So θ is a function of the storage: nothing else is stored,
no clock is read, and every process that can read the study computes the same θ. The first process
that asks for a trial once enough candidates have finished opens the next iteration; until then,
further candidates of the current iteration are sampled. No process waits for a dead worker, and a
result that arrives after its iteration was closed counts for the study's best trial only.

Two processes may open the same iteration at once. Then the run has two ends: the longest chain of
iterations is followed, of equal lengths the one opened by the lower trial number, and candidates of
the other count as late. A tag is valid only for the trial number in it, so trials copied from
another study are known values, not candidates of this one.

The space is inferred from the parameters of the completed trials, conditional ones included. When
it changes, the next iteration is opened with a record of the new space. Its state is computed anew,
from all iterations before it: their trials are encoded in the new space by their parameters.
"""

from knobless._checks import extra

with extra("optuna"):
    from .sampler import KnoblessSampler

__all__ = ["KnoblessSampler"]
