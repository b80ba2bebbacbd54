"""The portfolio for noisy objectives: a linear search alone at first, then in turns with the loop of the paper.

The linear search needs the fewest evaluations, but does not get further where a linear model cannot describe the
objective. After ten evaluations per free parameter the loop therefore starts from where the linear search has arrived,
and gets three evaluations of four. The linear search learns from all of them. Unlike in a `Portfolio`, turns do not
depend on which member has found the best value, which under noise depends on chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

from .adaptation import SNR
from .algorithm import AlgorithmInfo
from .families import Family
from .igo import IGO, State
from .linear import LinearState, LinearThompson
from .rng import RNG
from .types import Array, Points

LINEAR_ALONE = 10  # evaluations per free parameter before the loop starts
SHARE = 3  # evaluations of the loop per evaluation of the linear search


class NoisyPortfolioState(NamedTuple):
    """State of the portfolio for noisy objectives.

    Attributes
    ----------
    linear : LinearState
        State of the linear search.
    loop : State or None
        State of the loop; None until it has started.
    n : int
        Number of evaluations, of whichever member.
    spent : tuple of int
        Evaluations by the linear search and by the loop since the loop has started.
    """

    linear: LinearState
    loop: State | None = None
    n: int = 0
    spent: tuple[int, int] = (0, 0)

    @property
    def theta(self) -> Array:
        """Parameters of the loop; those of the linear search until the loop has started."""
        return self.linear.theta if self.loop is None else self.loop.theta

    def copy(self) -> NoisyPortfolioState:
        """Return a copy that does not change with this state."""
        return self._replace(linear=self.linear.copy(), loop=self.loop and self.loop.copy())


@dataclass(frozen=True)
class NoisyPortfolio:
    """Linear Thompson sampling, and after a while the loop of the paper in turns with it; all evaluations are shared.

    Parameters
    ----------
    linear : LinearThompson
        The search that is alone at first.
    loop : IGO
        The loop that starts after ten evaluations per free parameter, with the adaptation `SNR` and a finite `lam_max`.

    Raises
    ------
    TypeError
        If the loop has another adaptation than `SNR`.
    ValueError
        If the two are for different families, or `lam_max` is infinite.

    Notes
    -----
    The loop starts with θ from the newest quarter of the evaluations and with λ_r = λ_max: the small samples that it
    usually begins with would lose this θ again. From then on it has the next iteration unless it is above its share of
    three evaluations of four. What can be observed is that of the loop, and of the linear search until the loop has
    started.
    """

    linear: LinearThompson
    loop: IGO

    exact: ClassVar[bool] = False  # as the linear search

    def __post_init__(self) -> None:
        if self.linear.family != self.loop.family:
            raise ValueError("loop: expected an algorithm for the family of the linear search")
        if math.isinf(self._lam_max):
            raise ValueError("loop: expected a finite lam_max, got inf")

    @property
    def _lam_max(self) -> float:
        if not isinstance(self.loop.adaptation, SNR):
            raise TypeError(f"loop: expected the adaptation SNR, got {self.loop.adaptation!r:.200}")
        return float(self.loop.adaptation.lam_max)

    @property
    def family(self) -> Family:
        """Family of the points."""
        return self.loop.family

    def init(self, theta: Array | None = None, x0: Points | None = None) -> NoisyPortfolioState:
        """Return the initial state of the linear search."""
        return NoisyPortfolioState(self.linear.init(theta, x0))

    def lam(self, state: NoisyPortfolioState) -> int:
        """Return the number of points of the current iteration."""
        loop = _turn_of_loop(state)
        return self.linear.lam(state.linear) if loop is None else self.loop.lam(loop)

    def ask(self, state: NoisyPortfolioState, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        """Return points of the algorithm that has the turn."""
        loop = _turn_of_loop(state)
        if loop is None:
            return self.linear.ask(state.linear, rng, size, start)
        return self.loop.ask(loop, rng, size, start)

    def tell(self, state: NoisyPortfolioState, x: Points, f: Array) -> NoisyPortfolioState:
        """Return the state after an iteration; the linear search learns from all points."""
        loop, (linear, ours) = _turn_of_loop(state), state.spent
        if loop is not None:
            state = state._replace(loop=self.loop.tell(loop, x, f), spent=(linear, ours + len(f)))
        elif state.loop is not None:
            state = state._replace(spent=(linear + len(f), ours))
        return self.observe(state, x, f)

    def observe(self, state: NoisyPortfolioState, x: Points, f: Array) -> NoisyPortfolioState:
        """Return the state with further evaluations for the linear search; they count towards the start of the loop."""
        state = state._replace(linear=self.linear.observe(state.linear, x, f), n=state.n + len(f))
        if state.loop is None and state.n >= LINEAR_ALONE * self.family.dim:
            return state._replace(loop=self._started(state.linear.theta))
        return state

    def _started(self, theta: Array) -> State:
        """Return the first state of the loop."""
        state = self.loop.init(theta)
        return state._replace(signal=state.signal._replace(lam_r=self._lam_max))

    def inject(self, state: NoisyPortfolioState, x: Points, f: float) -> NoisyPortfolioState:
        """Return the same state: under noise, a single value does not make a point the best one."""
        return state

    def can_yield(self, state: NoisyPortfolioState) -> bool:
        """Return True: an iteration depends on the state alone."""
        return True

    def info(self, state: NoisyPortfolioState) -> AlgorithmInfo:
        """Return what can be observed of the loop, or of the linear search until the loop has started; with λ."""
        info = self.linear.info(state.linear) if state.loop is None else self.loop.info(state.loop)
        return info._replace(lam=self.lam(state))

    def at_least(self, lam: int) -> Self:
        """Return the same portfolio with at least `lam` points per iteration."""
        return replace(self, linear=self.linear.at_least(lam), loop=self.loop.at_least(lam))


def _turn_of_loop(state: NoisyPortfolioState) -> State | None:
    """Return the state of the loop if it has the turn, else None."""
    linear, loop = state.spent
    return state.loop if loop <= SHARE * linear else None
