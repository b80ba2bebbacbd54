"""The loop: Algorithm 1 of the paper over values, and the algorithms it is known by as recipes.

`IGO` is a frozen value made of a family (what is sampled), a preference (what is liked), an adaptation (how much is
spent) and, beyond the paper, survivors (who takes part again). Its state is another value: `ask` draws points from it
and `tell` returns the next one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from .adaptation import Adaptation, Signal
from .elitism import NO_ELITISM, Elite, Elitism
from .families import Family
from .preferences import Preference
from .rng import RNG
from .types import Array, Points


class State(NamedTuple):
    """What is carried from iteration to iteration."""

    theta: Array
    signal: Signal
    elite: Elite | None = None  # the survivor, if there is one

    def copy(self) -> State:
        theta, (s, gamma, lam_r), kept = self
        return State(theta.copy(), Signal(s.copy(), gamma, lam_r), kept and kept.copy())


@dataclass(frozen=True)
class IGO:
    """Information-geometric optimization: a natural-gradient step on θ per iteration.

    A survivor is ranked among the samples and pulls θ like them. It says nothing of the signal: it was not drawn from
    θ, and only for points that were is the length of their whitened gradient known when f tells nothing, E‖z‖² = n Σ
    share², whatever their weights are, as long as these do not depend on the points. So z is the samples' part alone.
    """

    family: Family
    preference: Preference
    adaptation: Adaptation
    elitism: Elitism = NO_ELITISM

    def init(self, theta: Array | None = None, x0: Points | None = None) -> State:
        """Line 1: before the first iteration, at `theta` or where the family starts; halfway from there to x0."""
        initial = self.family.initial()
        if theta is not None:
            if np.shape(theta) != initial.shape:
                raise ValueError(f"theta: expected {len(initial)} parameters, got the shape {np.shape(theta)}")
            theta = self.family.move(np.array(theta, dtype=float), np.zeros(len(initial)))
        theta = initial if theta is None else theta
        if x0 is not None:
            theta = self.family.move(theta, 0.5 * (self.family.statistics(x0[None])[0] - theta))
        return State(theta, self.adaptation.start(self.family.whiten(theta, np.zeros(len(theta)))))

    def ask(self, state: State, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        """Line 3: `size` points from P_θ, λ of them by default."""
        return self.family.sample(state.theta, self.lam(state) if size is None else size, rng)

    def tell(self, state: State, x: Points, f: Array) -> State:
        """Lines 4 to 15: the state after the points x had the values f."""
        if not len(f):  # all were given up
            return state
        theta, signal, before = state
        kept = self.elitism(before, x, f)
        w = self.preference(f if before is None else np.concatenate((f, (before.f,))))  # lines 4-6
        if not np.count_nonzero(w != w[0]):  # lines 7-9
            return state if kept is before else State(theta, signal, kept)
        share = w / len(w)
        if before is not None:
            share, own = share[:-1], float(share[-1])
        gradient = share @ self.family.statistics(x)  # line 10
        total = share.sum()
        if total:  # nothing to take off where the weights are centred
            gradient -= total * theta
        noise = math.sqrt(self.family.dim * float(share @ share))  # its length if f told nothing
        # Lines 12-15 come before line 11: eq. (s) whitens with θ as it was when x was drawn, and only then
        # is the whitened gradient over `noise` of length one on average when f tells nothing.
        if noise:
            eps, signal = self.adaptation.step(signal, self.family.whiten(theta, gradient), noise)
        else:  # the survivor alone has a weight, and says nothing of the signal
            eps = self.eps(state)
        if before is not None:
            gradient += own * (self.family.statistics(before.x[None])[0] - theta)
        gradient *= eps
        return State(self.family.move(theta, gradient), signal, kept)  # line 11

    def inject(self, state: State, x: Points, f: float) -> State:
        """The state in which this point is the survivor, if there are any."""
        return state if self.elitism == NO_ELITISM else state._replace(elite=Elite(x, f))

    def can_yield(self, state: State) -> bool:
        """After every iteration."""
        return True

    def lam(self, state: State) -> int:
        """Samples in this iteration."""
        return self.adaptation.spend_at(state.signal)[0]

    def eps(self, state: State) -> float:
        """Step length in this iteration."""
        return self.adaptation.spend_at(state.signal)[1]

    def snr(self, state: State) -> float:
        """‖s‖²/γ, about 1 when f tells nothing and held near α; NaN before anything was learnt, or if ε is fixed."""
        s, gamma, _ = state.signal
        return float(s @ s) / gamma if gamma else math.nan

    def at_least(self, lam: int) -> Self:
        """The same algorithm with at least `lam` samples per iteration."""
        return replace(self, adaptation=self.adaptation.at_least(lam))
