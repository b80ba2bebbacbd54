"""When a run stops: the limits that the user gives, and the rules that follow from them.

A rule is a value that reads the progress of a run and returns why it ends, or None. The loop checks
all of them after each batch of values, in the order of `Rules.of`, and those of single values also
after each value. Rules of the user are functions of the record of an iteration.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from knobless._checks import count, elements, positive_real, real
from knobless.core.pareto import Front
from knobless.core.several import Several

from .constraints import function_name
from .iteration import Info
from .result import MESSAGES, Status
from .sink import Value

# a run ends after this many evaluations if all of them failed
MAX_FAILURES = 100


class RunLimits(NamedTuple):
    """The limits of a run; `target` is a value to be minimized."""

    budget: float  # inf if there is none
    target: float  # NaN, which no value reaches, if there is none
    timeout: float
    stall: float

    @classmethod
    def of(
        cls, sign: float, budget: Any, target: Any, timeout: Any, stall: Any
    ) -> RunLimits:
        """Check what the user has given."""
        if budget is None and timeout is None:
            raise TypeError(
                "budget: expected a number of evaluations, or a timeout, got neither"
            )
        return cls(
            math.inf if budget is None else count("budget", budget),
            math.nan if target is None else sign * real("target", target),
            math.inf if timeout is None else positive_real("timeout", timeout),
            math.inf if stall is None else count("stall", stall),
        )

    def evaluations(self, progress: RunProgress) -> float:
        """Return the evaluations after which the run ends if none of them is an improvement."""
        return min(
            self.budget - progress.nfev,
            self.stall - (progress.nfev - progress.improved_at),
        )


class Ending(NamedTuple):
    """Why a run ended, and the same as a sentence."""

    status: Status
    message: str

    @classmethod
    def of(cls, status: Status) -> Ending:
        """Return the ending with the usual message of a status."""
        return cls(status, MESSAGES[status])


@dataclass(slots=True)
class RunProgress:
    """What stopping rules read."""

    # Evaluations that the search learns from, values not told yet included
    nfev: int = 0
    failures: int = 0  # of those told
    lowest: float = math.inf  # the lowest value
    # The same, without values that reached the target and were not confirmed
    reaching: float = math.inf
    improved_at: int = 0  # evaluations until the last improvement
    left: float = math.inf  # evaluations that are left for the search
    deadline: float = math.inf  # by time.monotonic()
    stopped: Ending | None = None  # by a function of the user
    # Of several objectives, whose lowest values do not matter
    front: Front | None = None

    def take(self, value: Value) -> None:
        """Count a value, which is the next one in the order of the candidates."""
        self.nfev += 1
        if isinstance(value, Several):
            if self.front is None:
                self.front = Front(len(value.values))
            if self.front.add(self.nfev, np.array(value.minimized)):
                self.lowest = value
                self.improved_at = self.nfev
        elif isinstance(value, float):
            if value < self.lowest:
                self.lowest = value
                self.improved_at = self.nfev
            if value < self.reaching:
                self.reaching = value

    def reach(self, lowest: float) -> None:
        """Note the lowest value of evaluations that were not taken one by one."""
        if lowest < self.lowest:
            self.lowest = self.reaching = lowest


class Rule(Protocol):
    """Protocol of stopping rules."""

    def end(self, progress: RunProgress) -> Ending | None:
        """Return why the run ends; None if it continues."""


@dataclass(frozen=True)
class Target:
    """A value was at least as good."""

    value: float

    def end(self, progress: RunProgress) -> Ending | None:
        """Return why the run ends; None if it continues."""
        if progress.reaching <= self.value:
            return Ending.of(Status.TARGET)
        return None


@dataclass(frozen=True)
class Stall:
    """There was no improvement for so many evaluations."""

    most: float

    def end(self, progress: RunProgress) -> Ending | None:
        """Return why the run ends; None if it continues."""
        if progress.nfev - progress.improved_at >= self.most:
            return Ending.of(Status.STALL)
        return None


@dataclass(frozen=True)
class AllFailed:
    """Every evaluation failed, of at least so many."""

    least: int = MAX_FAILURES

    def end(self, progress: RunProgress) -> Ending | None:
        """Return why the run ends; None if it continues."""
        if progress.failures == progress.nfev >= self.least:
            return Ending.of(Status.FAILED)
        return None


@dataclass(frozen=True)
class Timeout:
    """The time is up; the deadline follows from the first evaluation."""

    def end(self, progress: RunProgress) -> Ending | None:
        """Return why the run ends; None if it continues."""
        if time.monotonic() >= progress.deadline:
            return Ending.of(Status.TIMEOUT)
        return None


@dataclass(frozen=True)
class Budget:
    """No evaluations are left."""

    def end(self, progress: RunProgress) -> Ending | None:
        """Return why the run ends; None if it continues."""
        return Ending.of(Status.BUDGET) if progress.left <= 0 else None


@dataclass(frozen=True)
class UserRules:
    """The functions of the user that are called after each iteration.

    These are `callback`, and the rules given as `stop`.
    """

    callback: Callable[[Info], object] | None = None
    stop: tuple[Callable[[Info], object], ...] = ()

    @classmethod
    def of(cls, callback: Any, stop: Any) -> UserRules:
        """Check what the user has given."""
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: expected a function, got {callback!r}")
        if stop is None or callable(stop):
            return cls(callback, () if stop is None else (stop,))
        functions = elements("stop", stop, "a function or several")
        for i, function in enumerate(functions):
            if not callable(function):
                raise TypeError(
                    f"stop[{i}]: expected a function, got {function!r}"
                )
        return cls(callback, functions)

    def __bool__(self) -> bool:
        return self.callback is not None or bool(self.stop)

    def call(self, info: Info) -> Ending | None:
        """Call the functions after an iteration; return why the run ends, None if it continues."""
        if self.callback is not None:
            try:
                returned = self.callback(info)
            except StopIteration:
                return Ending.of(Status.CALLBACK)
            if isinstance(returned, (bool, np.bool_)) and returned:
                hint = "to end the run, raise StopIteration, or pass the function as stop="
                raise TypeError(
                    f"callback: expected no return value, got True; {hint}"
                )
        return next(
            filter(None, (_ending(function, info) for function in self.stop)),
            None,
        )

    def end(self, progress: RunProgress) -> Ending | None:
        """Return why the run ends; None if it continues."""
        return progress.stopped


def _ending(function: Callable[[Info], object], info: Info) -> Ending | None:
    """Return why the run ends by a rule of the user; None if it continues."""
    returned = function(info)
    if isinstance(returned, str) and returned:
        return Ending(Status.STOPPED, returned)
    if returned is not None and not isinstance(returned, (bool, np.bool_, str)):
        raise TypeError(
            f"stop: expected {function_name(function)} to return a bool or a message, got "
            f"{returned!r}"
        )
    if returned:
        return Ending(
            Status.STOPPED, f"Stopped by the rule {function_name(function)}."
        )
    return None


class Rules(NamedTuple):
    """The rules of a run, in the order in which they state why it ends.

    `of_values` are those that are also checked after each value.
    """

    every: tuple[Rule, ...]
    of_values: tuple[Rule, ...]

    @classmethod
    def of(cls, limits: RunLimits, user: UserRules) -> Rules:
        """Return the rules that follow from what the user has given."""
        target = () if math.isnan(limits.target) else (Target(limits.target),)
        stall = () if limits.stall == math.inf else (Stall(limits.stall),)
        timeout = () if limits.timeout == math.inf else (Timeout(),)
        budget = () if limits.budget == math.inf else (Budget(),)
        return cls(
            (
                *target,
                *((user,) if user else ()),
                AllFailed(),
                *stall,
                *timeout,
                *budget,
            ),
            (*target, *stall),
        )

    def end(self, progress: RunProgress) -> Ending | None:
        """Return why the run ends after a batch of values; None if it continues."""
        for rule in self.every:
            ending = rule.end(progress)
            if ending is not None:
                return ending
        return None

    def end_at_value(self, progress: RunProgress, value: Value) -> bool:
        """Return whether a value ends the run.

        It is the next value in the order of the candidates.
        """
        progress.take(value)
        return any(rule.end(progress) for rule in self.of_values)
