"""One iteration in tensors: draw, evaluate, apply the stopping rules, learn.

For independent trials side by side.

Nothing here depends on the values of tensors, so no iteration waits for the device. A trial that
has ended stays as it is while others continue, and so does a run until its end is noticed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from knobless.core.igo import IGO
from knobless.run.result import Status
from knobless.run.stopping import MAX_FAILURES, RunLimits

from .families import TensorFamily
from .samples import Samples
from .search import TensorState, learn, spend

RUNNING = 0
# By number
STATUSES = (None, Status.TARGET, Status.STALL, Status.BUDGET, Status.FAILED)
_TARGET, _STALL, _BUDGET, _FAILED = range(1, 5)
NO_LIMIT = 2**62


class TrialCounts(NamedTuple):
    """What a run counts, one entry per trial."""

    nit: Tensor
    nfev: Tensor
    failures: Tensor
    improved_at: Tensor  # evaluations until the last improvement
    best: Tensor  # the lowest value
    status: Tensor  # RUNNING, or why the trial has ended

    @classmethod
    def start(
        cls, trials: int, best: float, limits: RunLimits, device: torch.device
    ) -> TrialCounts:
        """Return the counts before the first evaluation; `best` is the lowest known value."""
        zero = torch.zeros(trials, dtype=torch.int64, device=device)
        status = torch.full_like(
            zero, _TARGET if best <= limits.target else RUNNING
        )
        return cls(
            zero,
            zero,
            zero,
            zero,
            torch.full_like(zero, best, dtype=torch.float64),
            status,
        )


class Taken(NamedTuple):
    """Which values of an iteration count."""

    closing: Tensor  # whether the iteration is complete
    improved: Tensor  # whether there is a new lowest value
    row: Tensor  # where it is


def account(
    counts: TrialCounts, f: Tensor, lam: Tensor, limits: RunLimits
) -> tuple[TrialCounts, Taken]:
    """Return the counts after the values of an iteration, taken until a rule applies."""
    nit, nfev, failures, improved_at, best, status = counts
    running = status == RUNNING
    place = torch.arange(f.shape[1], device=f.device)
    left = (
        NO_LIMIT if limits.budget == math.inf else int(limits.budget)
    ) - nfev
    taken = torch.minimum(lam, left) * running
    value = torch.where((place < taken[:, None]) & (f == f), f, math.inf)
    if not math.isnan(limits.target):
        hit = _first(value <= limits.target)
        status = torch.where(running & (hit < taken), _TARGET, status)
        taken = torch.minimum(taken, hit + 1)
    if limits.stall < math.inf:
        before = torch.cat((best[:, None], value), 1).cummin(1).values[:, :-1]
        latest = (
            torch.where(
                value < before, nfev[:, None] + place + 1, improved_at[:, None]
            )
            .cummax(1)
            .values
        )
        hit = _first(nfev[:, None] + place + 1 - latest >= int(limits.stall))
        # A value that reaches the target ends a run before the stall is looked at.
        stalled = running & (hit < taken - (status == _TARGET).to(taken))
        status = torch.where(stalled, _STALL, status)
        taken = torch.where(stalled, hit + 1, taken)
    inside = place < taken[:, None]
    lowest, row = torch.where(inside, value, math.inf).min(1)
    improved = lowest < best
    after = nfev + taken
    failures = failures + (inside & (f != f)).sum(1)
    closing = running & (taken == lam)
    status = torch.where(
        running & (status == RUNNING) & (taken >= left), _BUDGET, status
    )
    status = torch.where(
        running & (failures == after) & (after >= MAX_FAILURES), _FAILED, status
    )
    improved_at = torch.where(improved, nfev + row + 1, improved_at)
    best = torch.where(improved, lowest, best)
    return TrialCounts(
        nit + closing, after, failures, improved_at, best, status
    ), Taken(closing, improved, row)


def _first(hits: Tensor) -> Tensor:
    """Return the index of the first True of each row; NO_LIMIT if there is none."""
    return torch.where(hits.any(1), hits.to(torch.int8).argmax(1), NO_LIMIT)


def take_point(
    counts: TrialCounts, best_x: Tensor, x: Tensor, f: Tensor, limits: RunLimits
) -> tuple[TrialCounts, Tensor]:
    """Return counts and best points after the value of a point not drawn from θ."""
    after, (_, improved, _) = account(
        counts, f[:, None], torch.ones_like(counts.nit), limits
    )
    return after._replace(nit=counts.nit), torch.where(
        improved[:, None], x, best_x
    )


def record(
    algorithm: IGO,
    family: TensorFamily,
    state: TensorState,
    counts: TrialCounts,
) -> Tensor:
    """Return the fields of `Info` but θ, one row per trial."""
    lam, eps = spend(algorithm.adaptation, state.lam_r)
    snr = torch.where(
        state.gamma > 0, (state.s * state.s).sum(1) / state.gamma, math.nan
    )
    fields = (
        counts.nit,
        counts.nfev,
        counts.best,
        lam,
        state.lam_r,
        eps,
        snr,
        family.entropy(state.theta),
    )
    return torch.stack([field.double() for field in fields], 1)


class Engine:
    """The loop in tensor operations, on any device."""

    def __init__(
        self,
        algorithm: IGO,
        family: TensorFamily,
        limits: RunLimits,
        state: TensorState,
        counts: TrialCounts,
        best_x: Tensor,
        samples: Samples,
    ) -> None:
        self.algorithm = algorithm
        self.family = family
        self.limits = limits
        self.state = state
        self.counts = counts
        self.best_x = best_x
        self._samples = samples
        # Points that each trial has drawn
        self._drawn = torch.zeros_like(counts.nfev)

    @property
    def lam(self) -> Tensor:
        """Samples of the next iteration."""
        return spend(self.algorithm.adaptation, self.state.lam_r)[0]

    def iterate(self, rows: int) -> None:
        """Run one iteration of at most `rows` samples."""
        state = self.state
        lam = self.lam
        f = self._samples.evaluate(state.theta, self._drawn, rows)
        self.counts, (closing, improved, row) = account(
            self.counts, f, lam, self.limits
        )
        self.best_x = torch.where(
            improved[:, None], self._samples.point(row), self.best_x
        )
        after = learn(
            self.algorithm, self.family, state, self._samples.average, f, lam
        )
        self.state = TensorState(
            *(
                torch.where(
                    closing if new.dim() == 1 else closing[:, None], new, old
                )
                for old, new in zip(state, after, strict=True)
            )
        )
        self._drawn = self._drawn + lam * closing
