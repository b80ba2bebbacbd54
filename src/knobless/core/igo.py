"""Information-geometric optimization: Algorithm 1 of the paper.

`IGO` is a frozen value made of a family (the distribution), a preference (the weights), an
adaptation (sample size and step length) and, beyond the paper, an elitism rule. Its state is
another value: `ask` draws points from it and `tell` returns the next one. `knobless.recipes` has
the named algorithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from .adaptation import Adaptation, Signal
from .algorithm import AlgorithmInfo
from .archive import Archive, elite_data, elite_of
from .data import finite_at, floats, text, theta_of
from .elitism import NO_ELITISM, Elite, Elitism
from .families import Family, checked_family
from .preferences import Preference
from .rng import RNG, Stream
from .types import Array, Points


class State(NamedTuple):
    """State of the loop between two iterations.

    Attributes
    ----------
    theta : array
        Parameters of the family.
    signal : Signal
        State of the adaptation.
    elite : Elite
        Points kept by the elitism rule.
    """

    theta: Array
    signal: Signal
    elite: Elite

    def copy(self) -> State:
        """Return a copy that shares no memory with this one."""
        theta, (s, gamma, lam_r), elite = self
        return State(theta.copy(), Signal(s.copy(), gamma, lam_r), elite.copy())


@dataclass(frozen=True)
class IGO:
    """Information-geometric optimization: one natural-gradient step on θ per iteration.

    Parameters
    ----------
    family : Family
        Distribution of the points.
    preference : Preference
        Weights of the points from their objective values.
    adaptation : Adaptation
        Sample size and step length.
    elitism : Elitism
        Points that take part in the next iteration again; none by default, as in the paper.

    Notes
    -----
    The elite is ranked with the samples and contributes to the update of θ like them, but not to
    the signal. It was not drawn from θ, and the expected squared length of the whitened gradient
    for uninformative values, n Σ(w/λ)², is known only for points that were.

    References
    ----------
    Ollivier, Y., Arnold, L., Auger, A. and Hansen, N. (2017). Information-geometric optimization
    algorithms: a unifying picture via invariance principles. Journal of Machine Learning Research
    18.

    Examples
    --------
    PBIL-λ on OneMax with 20 bits:

    >>> import knobless as kl
    >>> from knobless.algorithms import IGO, SNR, Quartiles
    >>> space = kl.Binary(20)
    >>> family = kl.Space.of(space).family
    >>> igo = IGO(family, Quartiles(), SNR(eps=20**-0.5, lam_max=20))
    >>> result = kl.minimize(
    ...     lambda x: int((1 - x).sum()), space, budget=2000, algorithm=igo, target=0, rng=0
    ... )
    >>> result.fun, result.nfev
    (0.0, 75)
    """

    family: Family
    preference: Preference
    adaptation: Adaptation
    elitism: Elitism = NO_ELITISM

    keeps_states: ClassVar[bool] = True
    # Θ changes little meanwhile, and the sum of the weights is zero
    overlaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_family(self.family)
        parts = (
            ("preference", self.preference, callable, "Quartiles()"),
            (
                "adaptation",
                self.adaptation,
                lambda part: hasattr(part, "step"),
                "Fixed(lam=2, eps=0.1)",
            ),
            ("elitism", self.elitism, callable, "LastBest()"),
        )
        for name, part, fits, example in parts:
            if isinstance(part, type) or not fits(part):
                raise TypeError(
                    f"{name}: expected a value such as {example}, got {part!r:.200}"
                )

    def init(
        self,
        theta: Array | None = None,
        x0: Points | None = None,
        archive: Archive | None = None,
    ) -> State:
        """Return the state before the first iteration (line 1); with `x0`, θ starts halfway to it.

        The archive is not used: the loop learns from its own samples.

        Raises
        ------
        ValueError
            If `theta` does not have the shape of the parameters of the family.
        """
        initial = self.family.initial()
        if theta is not None:
            if np.shape(theta) != initial.shape:
                raise ValueError(
                    f"theta: expected {len(initial)} parameters, got the shape {np.shape(theta)}"
                )
            theta = self.family.move(
                np.array(theta, dtype=float), np.zeros(len(initial))
            )
        theta = initial if theta is None else theta
        if x0 is not None:
            theta = self.family.move(
                theta, 0.5 * self.family.deviations(theta, x0[None])[0]
            )
        signal = self.adaptation.start(
            self.family.whiten(theta, np.zeros(len(theta)))
        )
        return State(theta, signal, Elite.empty(self.family))

    def ask(
        self, state: State, rng: RNG, size: int | None = None, start: int = 0
    ) -> Points:
        """Return `size` points from P_θ, λ by default (line 3)."""
        return self.family.sample(
            state.theta, self.lam(state) if size is None else size, rng
        )

    def skip(
        self, state: State, rng: Stream, size: int, start: int = 0
    ) -> None:
        """Advance the stream as `ask` does."""
        self.family.skip(state.theta, size, rng)

    def tell(self, state: State, x: Points, f: Array) -> State:
        """Return the state after the points x have the objective values f (lines 4 to 15)."""
        if not len(f):  # every candidate was cancelled
            return state
        theta, signal, elite = state
        kept = self.elitism(elite, x, f)
        # Lines 4-6
        w = self.preference(np.concatenate((f, elite.f)) if len(elite.f) else f)
        weights = w.tolist()
        if min(weights) == max(weights):  # lines 7-9
            return State(theta, signal, kept)
        w = w / float(len(w))
        drawn = w[: len(f)]
        gradient = self.family.gradient(theta, x, drawn)  # line 10
        # Its length if f is uninformative
        noise = math.sqrt(self.family.active_dim(theta) * drawn.dot(drawn))
        # Lines 12-15 come before line 11: eq. (s) whitens with the θ from which x was drawn. Only
        # then is the expected squared length of the whitened gradient over `noise` one for
        # uninformative values.
        eps, signal = self.adaptation.step(
            signal, self.family.whiten(theta, gradient), noise
        )
        if len(elite.f):  # the elite moves θ, not the signal
            gradient += w[len(f) :] @ self.family.deviations(theta, elite.x)
        gradient *= eps
        return State(self.family.move(theta, gradient), signal, kept)  # line 11

    def inject(self, state: State, x: Points, f: float) -> State:
        """Return the state with this point as the elite, or the same state without elitism."""
        if self.elitism == NO_ELITISM:
            return state
        return state._replace(elite=Elite(x[None], np.array([f])))

    def continued(self, theta: Array) -> State:
        """Return the state at a θ that another algorithm has learned.

        λ_r starts at λ_max, because an update from few samples would lose what θ represents.
        """
        state = self.init(theta)
        lam_max = float(getattr(self.adaptation, "lam_max", state.signal.lam_r))
        if math.isfinite(lam_max):
            return state._replace(signal=state.signal._replace(lam_r=lam_max))
        return state

    def at_theta(self, state: State, theta: Array) -> State:
        """Return the state with other parameters, within the margins."""
        return state._replace(
            theta=self.family.move(theta, np.zeros(len(theta)))
        )

    def can_yield(self, state: State) -> bool:
        """Return True: an iteration depends on the state alone."""
        return True

    def lam(self, state: State) -> int:
        """Return the number of samples of the current iteration."""
        return self.adaptation.spend_at(state.signal)[0]

    def info(self, state: State) -> AlgorithmInfo:
        """Return θ, λ, ε, λ_r and the signal-to-noise ratio ‖s‖²/γ.

        The ratio is NaN before the first update, and if λ and ε are fixed.
        """
        theta, (s, gamma, lam_r), _ = state
        lam, eps = self.adaptation.spend_at(state.signal)
        return AlgorithmInfo(
            theta,
            lam,
            eps,
            lam_r,
            float(s.dot(s)) / gamma if gamma else math.nan,
        )

    def at_least(self, lam: int) -> Self:
        """Return the same algorithm with at least `lam` samples per iteration."""
        return replace(self, adaptation=self.adaptation.at_least(lam))

    def data(self, state: State) -> dict[str, Any]:
        """Return the state as plain data."""
        theta, (s, gamma, lam_r), elite = state
        numbers = {
            "theta": text(theta),
            "s": text(s),
            "gamma": float(gamma),
            "lam_r": float(lam_r),
        }
        return numbers | {"elite": elite_data(elite, self.family)}

    def restore(self, state: State, data: Any) -> State:
        """Return the state that `data` described."""
        theta = theta_of(self.family, data)
        s = floats(data, "s")
        gamma = finite_at(data, "gamma")
        lam_r = finite_at(data, "lam_r")
        if (
            s.shape != state.signal.s.shape
            or not np.isfinite(s).all()
            or gamma < 0.0
            or lam_r < 0.0
        ):
            raise ValueError("expected a signal of finite numbers")
        return State(
            theta, Signal(s, gamma, lam_r), elite_of(data["elite"], self.family)
        )
