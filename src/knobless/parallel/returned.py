"""What an objective may return, and the one place where it is read.

A value becomes a float, by which its point ranks. `Constrained` carries a violation besides; its
rank is that of `knobless.core.violation`. `Value` carries attributes, which are taken off where
evaluations are recorded.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any, Self

import numpy as np

from knobless.core.early_stopping import Curve, is_hopeless
from knobless.core.several import Several
from knobless.core.violation import Infeasible, negated, ranked


@dataclass(frozen=True, slots=True)
class Constrained:
    """An objective value with a violation of constraints, as an objective may return it.

    Points with a violation of at most 0 are feasible and rank by their values, the others after
    them by their violations.

    Parameters
    ----------
    value : float
        Objective value; an array with one value per point if the objective is vectorized.
    violation : float
        How much the point violates the constraints, at most 0 if it is feasible; an array with one
        number per point if the objective is vectorized.

    Attributes
    ----------
    value, violation : float
        As given.

    Examples
    --------
    >>> import numpy as np
    >>> import knobless as kl
    >>> gain, weight = np.array([4, 5, 6]), np.array([3, 4, 5])
    >>> def knapsack(x):
    ...     return kl.Constrained(gain @ x, weight @ x - 8)
    >>> kl.maximize(knapsack, kl.Binary(3), budget=20, rng=0).x
    array([1, 0, 1], dtype=int8)
    """

    value: Any
    violation: Any


@dataclass(frozen=True, slots=True)
class Value:
    """An objective value with attributes, such as further metrics.

    Attributes are stored with the evaluation, and the search does not read them.

    Parameters
    ----------
    value : float
        Objective value; or what an objective returns otherwise, such as a `Constrained`.
    attributes : mapping
        Anything that JSON can represent, by names; NumPy scalars and arrays as well.

    Attributes
    ----------
    value, attributes : object
        As given.

    Examples
    --------
    >>> import knobless as kl
    >>> fun = lambda x: kl.Value(x.sum(), {"first": x[0]})
    >>> kl.minimize(fun, kl.Binary(3), budget=8, rng=0).evaluations[0].attributes
    {'first': 1}
    """

    value: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Attributed(float):
    """The rank of a value with attributes, between an objective and what stores evaluations.

    Parameters
    ----------
    rank : float
        The value as it ranks: what `objective_value` returns for it.
    text : str
        The attributes as JSON.

    Attributes
    ----------
    rank, text : object
        As given.
    """

    __slots__ = ("rank", "text")
    rank: float
    text: str

    def __new__(cls, rank: float, text: str) -> Self:
        value = super().__new__(cls, rank)
        value.rank, value.text = rank, text
        return value

    def __neg__(self) -> Attributed:
        return Attributed(negated(self.rank), self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rank, self.text)


def attributes_text(attributes: Any, name: str) -> str:
    """Return attributes as JSON; TypeError for what JSON cannot represent."""
    if not isinstance(attributes, Mapping) or not all(
        isinstance(key, str) for key in attributes
    ):
        raise TypeError(
            f"{name}: attributes: expected values by names, got {attributes!r:.200}"
        )
    try:
        return json.dumps(dict(attributes), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        expected = "expected what JSON can represent, such as numbers, texts and lists of them"
        raise TypeError(
            f"{name}: attributes: {expected}, got {attributes!r:.200}: {error}"
        ) from None


def _plain(value: Any) -> Any:
    """Return a NumPy scalar or array, or one of another array library, as numbers and lists."""
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise TypeError(f"an object of type {type(value).__name__}")


def check_no_attributes(value: Any, name: str) -> None:
    """TypeError for a value with attributes, which only evaluations have."""
    if isinstance(value, Value):
        raise TypeError(
            f"{name}: expected a value without attributes, which only evaluations have, got "
            f"{value!r:.200}"
        )


def without_attributes(value: Any) -> Any:
    """Return the value of an evaluation, or its failure, without attributes."""
    return value.rank if isinstance(value, Attributed) else value


def objective_value(value: Any, name: str = "objective") -> float:
    """Return an objective value as a float; NaN and inf are allowed, they rank worst.

    A value with a violation becomes one number, by which it ranks; one with attributes an
    `Attributed`.
    """
    # Usual, or read before
    if type(value) is float or isinstance(
        value, (Several, Infeasible, Curve, Attributed)
    ):
        return value
    if isinstance(value, Value):
        rank = objective_value(value.value, f"{name}: value")
        return Attributed(rank, attributes_text(value.attributes, name))
    if isinstance(value, Constrained):
        # True could mean either
        if isinstance(value.violation, (bool, np.bool_)):
            raise TypeError(
                f"{name}: violation: expected a number, at most 0 if feasible, got "
                f"{value.violation!r}"
            )
        return ranked(
            number(value.value, f"{name}: value"),
            number(value.violation, f"{name}: violation"),
        )
    return number(value, name)


def objective_values(values: Any, n: int) -> list[float]:
    """Return the values of a vectorized objective at `n` points as floats."""
    if isinstance(values, Constrained):
        pairs = zip(
            objective_values(values.value, n),
            objective_values(values.violation, n),
            strict=True,
        )
        return [ranked(value, violation) for value, violation in pairs]
    if isinstance(values, Value):
        raise TypeError(
            "objective: expected no attributes with vectorized=True, got a Value"
        )
    if isinstance(values, GeneratorType):
        steps = "an objective with steps gets one point at a time: leave out vectorized=True"
        raise TypeError(
            f"objective: expected an array of {n} numbers, got a generator; {steps}"
        )
    _check_not_several(values, "objective")
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or array.shape != (n,):
        shown = f"shape {array.shape} and type {array.dtype}"
        raise TypeError(
            f"objective: expected an array of {n} numbers, got one of {shown}"
        )
    floats: list[float] = array.astype(float).tolist()
    return floats


def last_value(
    generator: Generator[Any, Any, Any],
    limits: Sequence[float] = (),
    sign: float = 1.0,
) -> float:
    """Run an objective that yields its value so far; return the last one, with all steps.

    The attributes are the last ones that were yielded. It is closed at the first value that, times
    `sign`, is hopeless by the `limits` (`knobless.core.early_stopping`).
    """
    steps: list[float] = []
    stopped = False
    text: str | None = None
    try:
        while not stopped:
            try:
                value = next(generator)
            except StopIteration as end:
                if end.value is not None:
                    raise TypeError(
                        f"objective: expected the last value from yield, got {end.value!r} from "
                        "return"
                    ) from None
                break
            name = f"objective: value of step {len(steps) + 1}"
            if value is None:
                hint = (
                    "a function that contains yield is an objective with steps, "
                    "each with its value so far"
                )
                raise TypeError(
                    f"{name}: expected one number, got None; {hint}"
                )
            step = objective_value(value, name)
            text = step.text if isinstance(step, Attributed) else text
            steps.append(without_attributes(step))
            stopped = is_hopeless(
                steps[-1] if sign > 0.0 else negated(steps[-1]),
                len(steps) - 1,
                limits,
            )
    finally:
        _close(generator)
    if not steps:
        raise TypeError(
            "objective: expected a number from yield at least once, got none"
        )
    curve = Curve(steps, stopped)
    return curve if text is None else Attributed(curve, text)


def _close(generator: Generator[Any, Any, Any]) -> None:
    """Close a generator, so that its `finally` runs."""
    try:
        generator.close()
    except RuntimeError as error:
        if "ignored GeneratorExit" not in str(error):
            raise
        raise RuntimeError(
            "objective: expected no further value after it was stopped, got one"
        ) from None


def number(value: Any, name: str) -> float:
    """Return any scalar as a float."""
    if isinstance(value, (float, int, np.integer, np.floating)):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(
                f"{name}: expected a finite number, got an integer that is too large"
            ) from None
    # Array libraries other than NumPy have dtypes without a kind; their scalars are converted by
    # `float` as well.
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    if (
        not getattr(value, "ndim", 0)
        and kind in "fiubO"
        and not isinstance(value, (str, bytes, bytearray, memoryview))
    ):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    _check_not_several(value, name)
    shown = (
        f"an array of shape {value.shape}"
        if getattr(value, "ndim", 0)
        else f"{value!r} of type {type(value).__name__}"
    )
    hint = "; is a return statement missing?" if value is None else ""
    raise TypeError(f"{name}: expected one number, got {shown}{hint}")


def _check_not_several(value: Any, name: str) -> None:
    """TypeError for a tuple, which could mean several objectives or a value and its violation."""
    if isinstance(value, tuple):
        hint = (
            "; a value with a violation of constraints is kl.Constrained(value, violation), and "
            "several objectives "
            "need names, such as objectives=('error', 'latency'), in a shell --objective error "
            "--objective latency"
        )
        raise TypeError(
            f"{name}: expected one number, got a tuple of {len(value)}{hint}"
        )
