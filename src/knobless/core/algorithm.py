"""Protocols of algorithms, as `knobless.run` and `Portfolio` use them.

An algorithm is a frozen value for one family. Its state is another value: `ask` returns the points of an iteration and
`tell` the state after their evaluation. `IGO` is the loop of the paper, `P3` a model-based genetic algorithm,
`CoordinateSearch` a local search, `LinearThompson` a search with a linear model, and `Portfolio` shares the budget
among several algorithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from .families import Family
from .rng import RNG
from .types import Array, Points


class AlgorithmInfo(NamedTuple):
    """What can be observed of the state of any algorithm; NaN where the algorithm does not define a quantity.

    Attributes
    ----------
    theta : array
        Parameters of the family, around which the algorithm searches. Must not be modified.
    lam : int
        Number of points of the current iteration.
    eps : float
        Step length of the current iteration.
    lam_r : float
        λ_r of the paper: the real-valued sample size before rounding.
    snr : float
        Signal-to-noise ratio, ‖s‖²/γ in the paper: about 1 for uninformative values.
    """

    theta: Array
    lam: int
    eps: float
    lam_r: float
    snr: float


class AnyState(Protocol):
    """Protocol of the states of algorithms."""

    @property
    def theta(self) -> Array:
        """Parameters of the family, around which the algorithm searches."""

    def copy(self) -> Any:
        """Return a copy that does not change with this state."""


@runtime_checkable
class Algorithm(Protocol):
    """Protocol of algorithms.

    Notes
    -----
    A state passed to `tell` is used up and replaced by the returned one.
    """

    @property
    def family(self) -> Family:
        """Family of the points."""

    def init(self, theta: Array | None = None, x0: Points | None = None) -> Any:
        """Return the state before the first iteration.

        Parameters
        ----------
        theta : array, optional
            Initial parameters of the family; those of `family.initial()` by default.
        x0 : array, optional
            Point to start from.

        Returns
        -------
        state
            The initial state.
        """

    def lam(self, state: Any) -> int:
        """Return the number of points of the current iteration.

        Parameters
        ----------
        state
            State of the algorithm.

        Returns
        -------
        int
            Number of points, at least 1.
        """

    def ask(self, state: Any, rng: RNG, size: int | None = None, start: int = 0) -> Points:
        """Return points of the current iteration.

        Parameters
        ----------
        state
            State of the algorithm.
        rng : Stream or numpy.random.Generator
            Source of random numbers; an `Optimizer` passes a `Stream`.
        size : int, optional
            Number of points; all of the iteration by default. Points from index λ on do not enter the update.
        start : int
            Index of the first point within the iteration.

        Returns
        -------
        array of shape (size, variables)
            The points, one per row.
        """

    def tell(self, state: Any, x: Points, f: Array) -> Any:
        """Return the state of the next iteration.

        Parameters
        ----------
        state
            State of the algorithm.
        x : array of shape (m, variables)
            Points of the iteration in their order, without the cancelled ones; possibly none.
        f : array of shape (m,)
            Their objective values; NaN for a failed evaluation.

        Returns
        -------
        state
            The next state; it may share memory with the given one.
        """

    def info(self, state: Any) -> AlgorithmInfo:
        """Return what can be observed of the state.

        Parameters
        ----------
        state
            State of the algorithm.

        Returns
        -------
        AlgorithmInfo
            θ, λ and what else the algorithm defines.
        """

    def at_least(self, lam: int) -> Self:
        """Return the same algorithm with at least `lam` points per iteration.

        Parameters
        ----------
        lam : int
            Number of points that can be evaluated at once.

        Returns
        -------
        Algorithm
            A new value; the algorithm is not modified.
        """


def is_exact(algorithm: Algorithm) -> bool:
    """Return whether an algorithm draws the same points on every machine, up to the rounding of numbers.

    This is so unless the algorithm has an attribute `exact` that is False. The points of such an algorithm depend on
    the library of linear algebra; a run of it is replayed from recorded points, which are not compared with new ones.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.

    Returns
    -------
    bool
        False if recorded points may differ from those drawn again.
    """
    return bool(getattr(algorithm, "exact", True))


@runtime_checkable
class Member(Algorithm, Protocol):
    """Protocol of algorithms that can be members of a `Portfolio`."""

    def inject(self, state: Any, x: Points, f: float) -> Any:
        """Return the state after another algorithm has found a better point.

        Parameters
        ----------
        state
            State of the algorithm.
        x : array of shape (variables,)
            The point; must not be modified.
        f : float
            Its objective value.

        Returns
        -------
        state
            The next state.
        """

    def observe(self, state: Any, x: Points, f: Array) -> Any:
        """Return the state after evaluations that other algorithms have asked for, between two iterations.

        Parameters
        ----------
        state
            State of the algorithm.
        x : array of shape (m, variables)
            The points, one per row; must not be modified.
        f : array of shape (m,)
            Their objective values; NaN for a failed evaluation.

        Returns
        -------
        state
            The next state; the same one if the algorithm learns from its own points only.
        """

    def can_yield(self, state: Any) -> bool:
        """Return whether the turn may pass to another member now.

        Parameters
        ----------
        state
            State of the algorithm.

        Returns
        -------
        bool
            False while the algorithm needs the next evaluations itself.
        """
