"""The rows of a journal and where it is written, as plain values."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from knobless._checks import real
from knobless.core.early_stopping import Curve
from knobless.core.families import Family
from knobless.core.several import Several
from knobless.core.types import Points
from knobless.core.violation import ranked

# What a row records: an evaluation, a cancellation, a point evaluated elsewhere, an evaluation that
# the search does not learn from, because it only confirms that the target is reached or compares
# the points to recommend.
TOLD, CANCELLED, ADDED, CHECKED = 1, 2, 3, 4
# The message of a failed evaluation that did not raise
RETURNED_NAN = "the objective returned NaN"


class JournalError(ValueError):
    """A journal that cannot be opened, read or written, or that belongs to another run.

    The message begins with the path of the journal and gives the reason.
    """


@dataclass(frozen=True)
class Journal:
    """Where a run is recorded, with notes.

    Parameters
    ----------
    path : path-like
        The SQLite file. It is created if it does not exist.
    meta : mapping, optional
        Notes that are stored in the journal; anything that JSON can represent.
    wait : float, optional
        Seconds to wait while another process writes to the journal, before a `JournalError` is
        raised.

    Raises
    ------
    TypeError
        If `path` is not a path, or if `meta` cannot be represented in JSON.
    ValueError
        If `wait` is negative.

    Examples
    --------
    >>> journal = kl.Journal("run.sqlite", {"data": "2024-05"})  # doctest: +SKIP
    >>> kl.minimize(fun, space, budget=1000, journal=journal)  # doctest: +SKIP
    """

    path: str | os.PathLike[str]
    meta: Mapping[str, Any] = field(default_factory=dict)
    wait: float = 0.0

    def __post_init__(self) -> None:
        if (
            not isinstance(self.path, (str, os.PathLike))
            or not Path(self.path).name
        ):
            raise TypeError(f"journal: expected a path, got {self.path!r}")
        try:
            json.dumps(dict(self.meta))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"meta: expected a dict that JSON can represent, got {self.meta!r}: {error}"
            ) from None
        if real("wait", self.wait) < 0:
            raise ValueError(
                f"wait: expected a number of at least 0, got {self.wait!r}"
            )

    @classmethod
    def of(cls, journal: Any) -> Journal:
        """Return a journal or a path as a `Journal`.

        Parameters
        ----------
        journal : path-like or Journal
            What a user gave.

        Returns
        -------
        Journal
            The same object, or a journal at this path.
        """
        return journal if isinstance(journal, cls) else cls(journal)


class Event(NamedTuple):
    """One row of a journal.

    Attributes
    ----------
    drawn : int
        Candidates drawn before this row was written, so that a replay draws the same ones before
        it.
    fate : int
        1 for an evaluation, 2 for a cancelled candidate, 3 for a point that was evaluated
        elsewhere, 4 for an evaluation that the search does not learn from.
    id : int
        The candidate; −1 for a point evaluated elsewhere; for an evaluation that the search does
        not learn from, its number among those.
    code : bytes
        The packed point; `Record.point` decodes it.
    value : float or None
        The objective value with the user's sign, a `Several` for several objectives; None if the
        evaluation failed.
    failure : str or None
        The traceback, if the evaluation raised.
    iteration : int
        The number of complete iterations before it.
    position : int
        The index of the candidate among the samples of its iteration. −1 for a point that was not
        sampled: an initial point, a second evaluation that tests for noise or confirms that the
        target is reached, a point evaluated elsewhere. For an evaluation that compares the points
        to recommend, the index of the point among these.
    started : float or None
        Time of the start in seconds since the epoch.
    ended : float or None
        Time of the end in seconds since the epoch.
    worker : str or None
        Where the objective was evaluated.
    violation : float or None
        How much the point violates the constraints, above 0; None for a feasible point.
    steps : bytes or None
        The values of an objective that yields, with the user's sign, as float64 of little-endian
        byte order; of several objectives those of a step are adjacent. Violations are not stored.
    stopped : int
        1 for an evaluation that was stopped after these steps and has no value, else 0.
    attributes : str or None
        The attributes of the value as JSON; None if there are none.
    """

    drawn: int
    fate: int
    id: int
    code: bytes
    value: float | None
    failure: str | None
    iteration: int
    position: int
    started: float | None
    ended: float | None
    worker: str | None
    violation: float | None = None
    steps: bytes | None = None
    stopped: int = 0
    attributes: str | None = None

    def rank(self, sign: float) -> float:
        """Return the value to be minimized as it ranks; NaN if there is none.

        Parameters
        ----------
        sign : float
            −1 for a run that maximizes, else 1.

        Returns
        -------
        float
            The value times `sign`; an `Infeasible` if there is a violation, a `Curve` if there are
            steps.
        """
        value = self.value
        if value is not None and not isinstance(value, Several):
            value *= sign
        rank = (
            math.nan
            if value is None
            else value
            if self.violation is None
            else ranked(value, self.violation)
        )
        if self.steps is None:
            return rank
        if isinstance(value, Several):
            steps: list[float] = [
                Several(values, value.signs) for values in self.curve
            ]
        else:
            steps = (sign * np.array(self.curve)).tolist()
        return Curve(
            steps if self.stopped else [*steps[:-1], rank], bool(self.stopped)
        )

    @classmethod
    def read(cls, row: Iterable[Any]) -> Self:
        """Return a row of the file, in which the values of several objectives are text.

        Parameters
        ----------
        row : iterable
            The fields.
        """
        event = cls._make(row)
        if isinstance(event.value, str):
            return event._replace(value=Several.of(event.value))
        return event

    @property
    def stored(self) -> tuple[Any, ...]:
        """The fields as they are stored in the file."""
        if isinstance(self.value, Several):
            return self._replace(value=self.value.text)  # type: ignore[arg-type]
        return self

    @property
    def failed(self) -> bool:
        """Whether this is an evaluation that raised or returned NaN."""
        return (
            self.fate in (TOLD, CHECKED)
            and self.value is None
            and not self.stopped
        )

    @property
    def curve(self) -> list[Any]:
        """The values of an objective that yields, with the user's sign.

        a ValueError if they cannot be read.
        """
        if not self.steps:
            raise ValueError("expected the values of steps, got none")
        values = np.frombuffer(self.steps, dtype="<f8")
        if not isinstance(self.value, Several):
            return values.tolist()
        return list(
            map(tuple, values.reshape(-1, len(self.value.values)).tolist())
        )


def steps_of(curve: Curve, sign: float) -> tuple[bytes, int]:
    """Return the fields `steps` and `stopped` of an evaluation with steps."""
    values = curve.values
    width = max(
        len(value.values) if isinstance(value, Several) else 1
        for value in values
    )
    rows = [
        value.values if isinstance(value, Several) else (sign * value,) * width
        for value in values
    ]
    return np.array(rows, dtype="<f8").tobytes(), int(curve.stopped)


def unpacked(events: Sequence[Event], family: Family) -> Points:
    """Return the codes of events, one per row; raise ValueError unless each event has one point."""
    # One may be too long where another is too short
    if any(len(event.code) != family.width for event in events):
        raise ValueError(f"expected {family.width} bytes for each point")
    return family.unpack(b"".join([event.code for event in events]))


class Counts(NamedTuple):
    """Numbers of rows of each kind, and the times of the first start and the last end.

    Attributes
    ----------
    evaluations : int
        Evaluations, failed ones included.
    failures : int
        Failed evaluations.
    cancelled : int
        Cancelled candidates.
    added : int
        Points evaluated elsewhere.
    started : float or None
        Time of the first start in seconds since the epoch.
    ended : float or None
        Time of the last end in seconds since the epoch.
    """

    evaluations: int
    failures: int
    cancelled: int
    added: int
    started: float | None
    ended: float | None
