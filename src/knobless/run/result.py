"""What a run leaves behind: the result, and its history as rows that pandas takes as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, overload

import numpy as np

from .optimizer import Info


class Status(StrEnum):
    """Why a run ended."""

    BUDGET = "budget"
    TARGET = "target"
    TIMEOUT = "timeout"
    STALL = "stall"
    EXHAUSTED = "exhausted"
    CONVERGED = "converged"
    CALLBACK = "callback"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


MESSAGES = {
    Status.BUDGET: "The budget of evaluations is spent.",
    Status.TARGET: "The target was reached.",
    Status.TIMEOUT: "The time is up.",
    Status.STALL: "There was no improvement for the number of evaluations given as stall.",
    Status.EXHAUSTED: "Every point of the space was evaluated: the best is the optimum.",
    Status.CONVERGED: "The distribution hardly yields a point that was not evaluated before; what is left is unlikely.",
    Status.CALLBACK: "The callback asked to stop.",
    Status.INTERRUPTED: "Interrupted from the keyboard; this is the result so far.",
    Status.FAILED: "Every evaluation failed; the first one said: ",
}


class Row(NamedTuple):
    """One iteration; λ and ε are those in force after it."""

    iteration: int
    nfev: int
    best: float
    lam: int
    eps: float
    snr: float
    entropy: float


class History(Sequence[Row]):
    """A row per iteration, thinned out evenly on long runs so that it never outgrows `LENGTH` rows.

    The last iteration is always there. A `callback` sees every iteration.
    """

    LENGTH = 2048

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self.stride = 1
        self._last: Row | None = None

    def keeps(self, iteration: int) -> bool:
        return iteration % self.stride == 0

    def append(self, info: Info) -> None:
        row = Row(*info[:7])
        if not self.keeps(row.iteration):
            self._last = row
            return
        self._last = None
        self._rows.append(row)
        if len(self._rows) == self.LENGTH:
            self.stride *= 2
            self._rows = [row for row in self._rows if self.keeps(row.iteration)]

    def _all(self) -> list[Row]:
        return self._rows if self._last is None else [*self._rows, self._last]

    def __len__(self) -> int:
        return len(self._rows) + (self._last is not None)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._all()[index]

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise ImportError("history.to_pandas() needs pandas: pip install pandas") from None
        return pandas.DataFrame(self._all(), columns=Row._fields)

    def __repr__(self) -> str:
        return f"History of {len(self)} rows: {', '.join(Row._fields)}"


@dataclass(frozen=True)
class Result:
    """What `minimize` returns.

    x, fun      the best point and its value; None and NaN if no evaluation succeeded
    mode        the most probable point, what to take when the objective is noisy
    mode_fun    what it gave, averaged over its recent evaluations; None if there were none
    nfev, nit   evaluations and iterations
    success     whether there is a point and, if a target was given, it was reached
    status      why the run ended, and as a sentence: message
    failures    evaluations that raised or gave NaN; failure: what the first of them said
    history     a row per iteration; history.to_pandas() for a frame
    """

    x: Any
    fun: float
    mode: Any
    mode_fun: float | None
    nfev: int
    nit: int
    success: bool
    status: Status
    message: str
    failures: int
    failure: str | None
    history: History

    def __repr__(self) -> str:
        lines = [
            ("message", self.message),
            ("success", f"{self.success} ({self.status})"),
            ("fun", f"{self.fun:.10g}"),
            ("x", _shown(self.x)),
            ("mode", _shown(self.mode) + ("" if self.mode_fun is None else f", which gave {self.mode_fun:.10g}")),
            ("nfev", f"{self.nfev} evaluations, {self.failures} failed"),
            ("nit", f"{self.nit} iterations"),
        ]
        return "\n".join(f"{name:>8}: {text}" for name, text in lines)


def _shown(x: Any, width: int = 400) -> str:
    with np.printoptions(threshold=40, edgeitems=8):
        text = " ".join(repr(x).split())
    return text if len(text) <= width else text[: width - 2] + " …"
