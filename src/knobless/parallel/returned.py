"""What an objective may return, and the one place where it is read.

A value becomes a float, by which its point ranks. `Constrained` carries a violation besides; its rank is that of
`knobless.core.violation`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

import numpy as np

from knobless.core.early_stopping import Curve, is_hopeless
from knobless.core.several import Several
from knobless.core.violation import Infeasible, negated, ranked


@dataclass(frozen=True, slots=True)
class Constrained:
    """An objective value with a violation of constraints, as an objective may return it.

    Points with a violation of at most 0 are feasible and rank by their values, the others after them by their
    violations.

    Parameters
    ----------
    value : float
        Objective value; an array with one value per point if the objective is vectorized.
    violation : float
        How much the point violates the constraints, at most 0 if it is feasible; an array with one number per point if
        the objective is vectorized.

    Attributes
    ----------
    value, violation : float
        As given.

    Examples
    --------
    >>> import numpy as np
    >>> import knobless as kl
    >>> gain, weight = np.array([4, 5, 6]), np.array([3, 4, 5])
    >>> kl.maximize(lambda x: kl.Constrained(gain @ x, weight @ x - 8), kl.Binary(3), budget=20, rng=0).x
    array([1, 0, 1], dtype=int8)
    """

    value: Any
    violation: Any


def objective_value(value: Any, name: str = "objective") -> float:
    """Return an objective value as a float; NaN and inf are allowed, they rank worst.

    A value with a violation becomes one number, by which it ranks.
    """
    if type(value) is float or isinstance(value, (Several, Infeasible, Curve)):  # the usual case, or read before
        return value
    if isinstance(value, Constrained):
        if isinstance(value.violation, (bool, np.bool_)):  # True could mean either
            raise TypeError(f"{name}: violation: expected a number, at most 0 if feasible, got {value.violation!r}")
        return ranked(number(value.value, f"{name}: value"), number(value.violation, f"{name}: violation"))
    return number(value, name)


def objective_values(values: Any, n: int) -> list[float]:
    """Return the values of a vectorized objective at `n` points as floats."""
    if isinstance(values, Constrained):
        pairs = zip(objective_values(values.value, n), objective_values(values.violation, n), strict=True)
        return [ranked(value, violation) for value, violation in pairs]
    if isinstance(values, GeneratorType):
        steps = "an objective with steps gets one point at a time: leave out vectorized=True"
        raise TypeError(f"objective: expected an array of {n} numbers, got a generator; {steps}")
    _check_not_several(values, "objective")
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or array.shape != (n,):
        shown = f"shape {array.shape} and type {array.dtype}"
        raise TypeError(f"objective: expected an array of {n} numbers, got one of {shown}")
    floats: list[float] = array.astype(float).tolist()
    return floats


def last_value(generator: Generator[Any, Any, Any], limits: Sequence[float] = (), sign: float = 1.0) -> float:
    """Run an objective that yields its value so far; return the last one, with all steps.

    It is closed at the first value that, times `sign`, is hopeless by the `limits` (`knobless.core.early_stopping`).
    """
    steps: list[float] = []
    stopped = False
    try:
        while not stopped:
            try:
                value = next(generator)
            except StopIteration as end:
                if end.value is not None:
                    raise TypeError(
                        f"objective: expected the last value from yield, got {end.value!r} from return"
                    ) from None
                break
            name = f"objective: value of step {len(steps) + 1}"
            if value is None:
                hint = "a function that contains yield is an objective with steps, each with its value so far"
                raise TypeError(f"{name}: expected one number, got None; {hint}")
            steps.append(objective_value(value, name))
            stopped = is_hopeless(steps[-1] if sign > 0.0 else negated(steps[-1]), len(steps) - 1, limits)
    finally:
        _close(generator)
    if not steps:
        raise TypeError("objective: expected a number from yield at least once, got none")
    return Curve(steps, stopped)


def _close(generator: Generator[Any, Any, Any]) -> None:
    """Close a generator, so that its `finally` runs."""
    try:
        generator.close()
    except RuntimeError as error:
        if "ignored GeneratorExit" not in str(error):
            raise
        raise RuntimeError("objective: expected no further value after it was stopped, got one") from None


def number(value: Any, name: str) -> float:
    """Return any scalar as a float."""
    if isinstance(value, (float, int, np.integer, np.floating)):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{name}: expected a finite number, got an integer that is too large") from None
    # Array libraries other than NumPy have dtypes without a kind; their scalars are converted by `float` as well.
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    if not getattr(value, "ndim", 0) and kind in "fiubO" and not isinstance(value, (str, bytes, bytearray, memoryview)):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    _check_not_several(value, name)
    shown = (
        f"an array of shape {value.shape}" if getattr(value, "ndim", 0) else f"{value!r} of type {type(value).__name__}"
    )
    hint = "; is a return statement missing?" if value is None else ""
    raise TypeError(f"{name}: expected one number, got {shown}{hint}")


def _check_not_several(value: Any, name: str) -> None:
    """TypeError for a tuple, which could mean several objectives or a value and its violation."""
    if isinstance(value, tuple):
        hint = (
            "; a value with a violation of constraints is kl.Constrained(value, violation), and several objectives "
            "need names, such as objectives=('error', 'latency'), in a shell --objective error --objective latency"
        )
        raise TypeError(f"{name}: expected one number, got a tuple of {len(value)}{hint}")
