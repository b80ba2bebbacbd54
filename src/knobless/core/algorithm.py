"""The protocol of algorithms, as `knobless.run` uses them.

An algorithm is a frozen value for one family. Its state is another value: `ask` returns the points
of an iteration and `tell` the state after their evaluation. `IGO` is the loop of the paper, `P3` a
model-based genetic algorithm, `CoordinateSearch` a local search. A `Search` shares the evaluations
of a run among several algorithms (`member.py`).
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    Protocol,
    Self,
    runtime_checkable,
)

from .families import Family
from .rng import RNG
from .types import Array, Points

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # `Algorithm` alone is an algorithm with any state
    S = TypeVar("S", default=Any)
else:
    from typing import TypeVar

    S = TypeVar("S")


class AlgorithmInfo(NamedTuple):
    """What can be observed of the state of any algorithm.

    A quantity is NaN where the algorithm does not define it.

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


class Owner(NamedTuple):
    """What has asked for a point, so that it gets the value, which may arrive in another turn.

    Attributes
    ----------
    kind : int
        `ALONE` for an algorithm that is not a search; `STAGE`, `STUDY` or `MEMBER` of a search.
    number : int
        Which stage or member.
    key : tuple
        The combination of branches of a member.
    restarts : int
        How often the members of this combination were restarted before.
    """

    kind: int
    number: int = 0
    key: tuple[float, ...] = ()
    restarts: int = 0


ALONE, STAGE, STUDY, MEMBER = range(4)


class AnyState(Protocol):
    """Protocol of the states of algorithms."""

    @property
    def theta(self) -> Array:
        """Parameters of the family, around which the algorithm searches."""

    def copy(self) -> Any:
        """Return a copy that does not change with this state."""


@runtime_checkable
class Algorithm(Protocol[S]):
    """Protocol of algorithms.

    Notes
    -----
    A state passed to `tell` is used up and replaced by the returned one.
    """

    @property
    def family(self) -> Family:
        """Family of the points."""

    def init(self, theta: Array | None = None, x0: Points | None = None) -> S:
        """Return the state before the first iteration.

        Parameters
        ----------
        theta : array, optional
            Initial parameters of the family; those of `family.initial()` by default.
        x0 : array, optional
            Point to start from.
        """

    def lam(self, state: S) -> int:
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

    def ask(
        self, state: S, rng: RNG, size: int | None = None, start: int = 0
    ) -> Points:
        """Return points of the current iteration.

        Parameters
        ----------
        state
            State of the algorithm.
        rng : Stream or numpy.random.Generator
            Source of random numbers; an `Optimizer` passes a `Stream`.
        size : int, optional
            Number of points; all of the iteration by default. Points from index λ on do not enter
            the update.
        start : int
            Index of the first point within the iteration.

        Returns
        -------
        array of shape (size, variables)
            The points, one per row.
        """

    def tell(self, state: S, x: Points, f: Array) -> S:
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

    def info(self, state: S) -> AlgorithmInfo:
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


def checked_algorithm(value: Any, expected: str) -> Algorithm:
    """Return an argument `algorithm`; TypeError unless it is one."""
    if isinstance(value, type) or not isinstance(value, Algorithm):
        raise TypeError(f"algorithm: expected {expected}, got {value!r:.200}")
    return value


def observes(algorithm: Algorithm) -> bool:
    """Return whether an algorithm has `observe`, as searches do.

    It then reads all evaluations of a run in an archive.
    """
    return hasattr(algorithm, "observe")


def keeps_states(algorithm: Algorithm) -> bool:
    """Return whether the states of an algorithm are values.

    This is so if the algorithm has an attribute `keeps_states` that is True.
    """
    return getattr(algorithm, "keeps_states", False)


def overlaps(algorithm: Any) -> bool:
    """Return whether the iterations of an algorithm may overlap.

    It then learns from any λ points that it has asked for.

    This is so if it has an attribute `overlaps` that is True. Any other one is told exactly the
    first λ points that it has asked for in an iteration, and asks for no others before.
    """
    return bool(getattr(algorithm, "overlaps", False))


def most_points(algorithm: Any, lam: int, asked: int) -> int:
    """Return how many points an algorithm can be asked for after so many in this iteration.

    Beyond λ, they are asked for one at a time: each may depend on the ones that are pending.
    """
    return max(lam - asked, 1 if overlaps(algorithm) else 0)


def is_exact(algorithm: Algorithm) -> bool:
    """Return whether an algorithm draws the same points on every machine.

    This is so unless the algorithm has an attribute `exact` that is False. The points of such an
    algorithm depend on the library of linear algebra; a run of it is replayed from recorded points,
    which are not compared with new ones.
    """
    return bool(getattr(algorithm, "exact", True))
