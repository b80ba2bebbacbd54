"""What a run returns: the result, and its history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from knobless._checks import extra
from knobless.journal.evaluations import Evaluations

from .arguments import RESULT_NAMES
from .display import Text, html_table, one_line
from .front import Front
from .iteration import Info
from .jsonable import jsonable

_T = TypeVar("_T")


class Status(StrEnum):
    """Why a run ended.

    Attributes
    ----------
    BUDGET, TARGET, TIMEOUT, STALL
        The limits given to `minimize`.
    EXHAUSTED
        Every point of the space was evaluated.
    CONVERGED
        Sampling yields no new points.
    CALLBACK
        The callback raised StopIteration.
    STOPPED
        A function given as `stop` ended the run.
    INTERRUPTED
        The run was interrupted from the keyboard.
    FAILED
        Every evaluation failed.
    """

    BUDGET = "budget"
    TARGET = "target"
    TIMEOUT = "timeout"
    STALL = "stall"
    EXHAUSTED = "exhausted"
    CONVERGED = "converged"
    CALLBACK = "callback"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


MESSAGES = {
    Status.BUDGET: "Evaluation budget exhausted.",
    Status.TARGET: "Target reached.",
    Status.TIMEOUT: "Time limit reached.",
    Status.STALL: "No improvement within the number of evaluations given as stall.",
    Status.EXHAUSTED: "Every point of the space was evaluated: the best point is the optimum.",
    Status.CONVERGED: "Converged: sampling yields no new points.",
    Status.CALLBACK: "Stopped by the callback.",
    Status.INTERRUPTED: "Interrupted from the keyboard.",
    Status.FAILED: "Every evaluation failed. The first failure: ",
}


class ThinnedList(Generic[_T]):
    """Items by their number, thinned out evenly so that there are always fewer than `length`."""

    def __init__(self, length: int) -> None:
        self._length = length
        self.stride = 1
        self.items: list[tuple[int, _T]] = []

    def keeps(self, number: int) -> bool:
        """Return whether an item of this number is kept."""
        return number % self.stride == 0

    def take(self, number: int, item: Callable[[], _T]) -> None:
        """Add an item, which is only computed if it is kept."""
        if self.keeps(number):
            self.add(number, item())

    def add(self, number: int, item: _T) -> None:
        """Add an item that is kept."""
        self.items.append((number, item))
        if len(self.items) == self._length:
            self.stride *= 2
            self.items = [item for item in self.items if self.keeps(item[0])]


class History(Sequence[Info]):
    """The iterations of a run, one `Info` each, without `theta`.

    Long runs are thinned out evenly to fewer than `LENGTH` rows, of which the last iteration is
    always one. A `callback` receives every iteration, with `theta`.

    Parameters
    ----------
    compute : callable, optional
        Returns the `Info` of an iteration from the arguments of `append_deferred`.
    """

    LENGTH = 2048
    DEFERRED_BYTES = 2**22

    def __init__(self, compute: Callable[..., Info] = Info) -> None:
        # An iteration from what `append_deferred` receives
        self._compute = compute
        self._rows = ThinnedList[Info | tuple[Any, ...]](self.LENGTH)
        self._last: Info | None = None
        self._deferred = 0  # bytes of the rows that are not computed yet

    @property
    def stride(self) -> int:
        """Distance between two iterations that are kept."""
        return self._rows.stride

    @property
    def last_iteration(self) -> int:
        """Number of the last iteration; 0 if there is none."""
        if self._last is not None:
            return self._last.iteration
        return self._rows.items[-1][0] if self._rows.items else 0

    def keeps(self, iteration: int) -> bool:
        """Return whether an iteration is kept if others follow.

        Parameters
        ----------
        iteration : int
            Number of the iteration.

        Returns
        -------
        bool
            Whether its number is a multiple of `stride`.
        """
        return iteration % self._rows.stride == 0

    def append(self, info: Info) -> None:
        """Add an iteration.

        Parameters
        ----------
        info : Info
            The state of the run after the iteration.
        """
        row = Info(*info[:-1])  # without θ
        self._last = None if self.keeps(info.iteration) else row
        self._rows.take(info.iteration, lambda: row)

    def append_deferred(
        self, iteration: int, args: Callable[[], tuple[Any, ...]], size: int
    ) -> None:
        """Add an iteration if it is kept.

        It is computed when the history is read, or when too many are deferred.

        In most runs that is never, and a row takes a good part of the time of a short iteration.

        Parameters
        ----------
        iteration : int
            Number of the iteration.
        args : callable
            Return the arguments of the function that computes the state of the run after the
            iteration. It is called now, if the iteration is kept.
        size : int
            Bytes that are kept until then.
        """
        if iteration % self._rows.stride:
            return
        self._last = None
        self._rows.add(iteration, args())
        self._deferred += size
        if self._deferred > self.DEFERRED_BYTES:
            self._complete()

    def _complete(self) -> list[Info]:
        """Compute the rows that are deferred; return all."""
        rows = [
            row if isinstance(row, Info) else Info(*self._compute(*row)[:-1])
            for _, row in self._rows.items
        ]
        if self._deferred:
            self._rows.items = [
                (number, row)
                for (number, _), row in zip(self._rows.items, rows, strict=True)
            ]
            self._deferred = 0
        return rows

    def __getstate__(self) -> dict[str, Any]:
        self._complete()
        return self.__dict__

    def _all(self) -> list[Info]:
        rows = self._complete()
        return rows if self._last is None else [*rows, self._last]

    def __len__(self) -> int:
        return len(self._rows.items) + (self._last is not None)

    @overload
    def __getitem__(self, index: int) -> Info: ...
    @overload
    def __getitem__(self, index: slice) -> list[Info]: ...
    def __getitem__(self, index: int | slice) -> Info | list[Info]:
        return self._all()[index]

    def to_pandas(self) -> Any:
        """Convert the history to a pandas data frame.

        Returns
        -------
        pandas.DataFrame
            One row per iteration and one column per field of `Info` except `theta`.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        with extra("pandas"):
            import pandas
        return pandas.DataFrame(
            [row[:-1] for row in self._all()], columns=Info._fields[:-1]
        )

    def __repr__(self) -> str:
        return f"History of {len(self)} rows: {', '.join(Info._fields[:-1])}"


@dataclass(frozen=True)
class Result:
    """What `minimize` and `maximize` return.

    Attributes
    ----------
    x : point or None
        The point to use: the best point of a deterministic objective, the recommended point of a
        noisy one. None if no evaluation succeeded.
    fun : float or tuple of float
        Its objective value, or a tuple of several; of a noisy objective an estimate of its mean.
        NaN if there is none.
    fun_std : float, tuple of float or None
        The standard error of that estimate: 0 for a deterministic objective, None if it is not
        known; a tuple for several objectives.
    deterministic : bool or None
        Whether the objective is deterministic, as stated or found; None if that was neither stated
        nor found.
    violation : float
        How much `x` violates the constraints, if the objective returns pairs (value, violation); 0
        if it is feasible.
    observed_x : point or None
        The point of the best single observation, which under noise is a lucky one.
    observed_fun : float
        The value of that observation.
    mode : point
        The most probable point of the search distribution.
    mode_fun : float or None
        Its mean objective value among the last 512 evaluations; None if it is not among them.
    nfev : int
        Number of evaluations.
    nit : int
        Number of iterations. It can exceed `nfev`: a point with a stored value is not evaluated
        again.
    constraint_checks : int
        Points at which the constraints were called; 0 if there are none.
    success : bool
        Whether there is a best point, which is feasible, the target was reached if one was given,
        at most half of the evaluations failed, and the run was not interrupted.
    status : Status
        Why the run ended.
    message : str
        The same as a sentence.
    failures : int
        Evaluations that raised or returned NaN.
    failure : str or None
        The message of the first of them, in the order of the candidates.
    history : History
        One row per iteration; `history.to_pandas()` returns a data frame.
    evaluations : Evaluations
        All evaluations, or the last ones of a long run without a journal; `evaluations.to_pandas()`
        returns a data frame with the variables, the value, the status and the time of each.
    front : Front or None
        For several objectives, the points that no other one dominates, in the order of the first
        objective; ``front.to_pandas()`` returns a data frame. `x` is then the knee of the front,
        the point closest to the ideal point where each objective is scaled by its range on the
        front, and `fun` the tuple of its values. None for a single objective.
    """

    x: Any
    fun: Any
    fun_std: Any
    deterministic: bool | None
    violation: float
    observed_x: Any
    observed_fun: Any
    mode: Any
    mode_fun: float | None
    nfev: int
    nit: int
    constraint_checks: int
    success: bool
    status: Status
    message: str
    failures: int
    failure: str | None
    history: History
    evaluations: Evaluations
    front: Front | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data for JSON.

        Returns
        -------
        dict
            All attributes but `history` and `evaluations`: arrays as lists, numbers that are not
            finite as None, and the front as a list of points with their values.
        """
        names = [
            field.name
            for field in fields(self)
            if field.name not in ("history", "evaluations")
        ]
        return {name: jsonable(getattr(self, name)) for name in names}

    if not TYPE_CHECKING:  # a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            """Raise an AttributeError, with the name to use for one of another library."""
            hint = f": use {RESULT_NAMES[name]}" if name in RESULT_NAMES else ""
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{hint}"
            )

    def __repr__(self) -> str:
        lines = [
            *self._summary(),
            ("x", one_line(self.x)),
            (
                "mode",
                one_line(self.mode)
                + (
                    ""
                    if self.mode_fun is None
                    else f", with value {self.mode_fun:.10g}"
                ),
            ),
            *self._counts(),
        ]
        return "\n".join(f"{name:>8}: {text}" for name, text in lines)

    def _repr_html_(self) -> str:
        """Return the result as a table for a notebook."""
        table = html_table(
            "Result", [*self._summary(), ("x", self.x), *self._counts()]
        )
        return table if self.front is None else table + self.front._repr_html_()

    def _summary(self) -> list[tuple[str, Text]]:
        return [
            ("message", Text(self.message)),
            ("success", Text(f"{self.success} ({self.status})")),
            ("fun", Text(self._fun)),
            *(
                []
                if self.front is None
                else [("front", Text(repr(self.front)))]
            ),
        ]

    @property
    def _fun(self) -> str:
        """The value as text."""
        if isinstance(self.fun, tuple):
            errors = [
                f" ± {error:.2g}" if error else ""
                for error in self.fun_std or [0.0] * len(self.fun)
            ]
            estimates = (
                f"{value:.10g}{error}"
                for value, error in zip(self.fun, errors, strict=True)
            )
            return f"({', '.join(estimates)})"
        return f"{self.fun:.10g}" + (
            f" ± {self.fun_std:.2g}" if self.fun_std else ""
        )

    def _counts(self) -> list[tuple[str, Text]]:
        return [
            ("nfev", Text(f"{self.nfev} evaluations, {self.failures} failed")),
            ("nit", Text(f"{self.nit} iterations")),
            *(
                [("checks", Text(f"{self.constraint_checks} of constraints"))]
                if self.constraint_checks
                else []
            ),
        ]
