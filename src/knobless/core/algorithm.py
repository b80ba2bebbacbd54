"""The protocol of algorithms: what the shell in `optimizer.py` needs to know of one.

An algorithm is a frozen value for one family. Its state is another value: `ask` returns the points of an iteration and
`tell` the state after their evaluation. `IGO` is the paper's loop, `P3` a model-based genetic algorithm, and
`Portfolio` shares the budget among several algorithms.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

from .adaptation import Signal
from .families import Family
from .rng import RNG
from .types import Array, Points


class AnyState(Protocol):
    """What one may look at in the state of any algorithm."""

    @property
    def theta(self) -> Array:
        """Parameters of the family: where the algorithm expects good points."""

    @property
    def signal(self) -> Signal:
        """What it knows of the signal; of no length where it does not ask."""

    def copy(self) -> Any:
        """Another that does not change with this one."""


@runtime_checkable
class Algorithm(Protocol):
    """A way to search. A state that was told is used up: what `tell` returns takes its place."""

    @property
    def family(self) -> Family:
        """What its points are points of."""

    def init(self, theta: Array | None = None, x0: Points | None = None) -> Any:
        """The state before anything is known; `theta` is where the family begins, x0 a point to begin with."""

    def lam(self, state: Any) -> int:
        """How many points this iteration has."""

    def ask(self, state: Any, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        """`size` points of this iteration from index `start` on, all by default; none from λ on is learnt from."""

    def tell(self, state: Any, x: Points, f: Array) -> Any:
        """The state after these points of the iteration, in their order, had these values; NaN is a failure.

        Those given up are not among them: there may be none.
        """

    def inject(self, state: Any, x: Points, f: float) -> Any:
        """The state after somebody else has found this point, which is better than all of its own."""

    def can_yield(self, state: Any) -> bool:
        """Whether this is a good moment for somebody else to take over."""

    def eps(self, state: Any) -> float:
        """Step length in this iteration; NaN where there are no steps."""

    def snr(self, state: Any) -> float:
        """Signal-to-noise ratio; NaN where nobody asks."""

    def at_least(self, lam: int) -> Self:
        """The same with at least `lam` points an iteration."""
