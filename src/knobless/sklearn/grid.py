"""The space of the parameter distributions that users of scikit-learn write."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import joblib
import numpy as np

from knobless.space.numbers import Float, Integer
from knobless.space.space import Space
from knobless.space.variable import Variable
from knobless.space.variables import Choice
from knobless.space.when import When

Point = tuple[Any, ...]  # what identifies a candidate

CONDITIONS = "variables are given as a dict, and conditional ones as a list of dicts, one per case"


class Parameter(NamedTuple):
    """One parameter of an estimator: its variable, and the options that the variable indexes."""

    variable: Variable
    options: Sequence[Any] | None

    def value(self, number: Any) -> Any:
        return number if self.options is None else self.options[number]

    def numbers(self) -> Sequence[Any]:
        """Return all values of the variable, if there are finitely many."""
        return [
            self.variable.value_at(i) for i in range(int(self.variable.count))
        ]


class Grid:
    """The space of `param_distributions`. Of several dicts, a candidate has the parameters of one.

    The index of the dict is a variable, on which the variables of the dicts are conditional. A
    candidate is identified by this index, followed by the values of the variables of that dict.
    """

    def __init__(self, grid: Any) -> None:
        dicts = [grid] if isinstance(grid, Mapping) else grid
        if (
            not isinstance(dicts, (list, tuple))
            or not dicts
            or not all(isinstance(parameters, Mapping) for parameters in dicts)
        ):
            hint = f"; {CONDITIONS}" if isinstance(grid, (Space, When)) else ""
            raise TypeError(
                f"param_distributions: expected a dict or a list of dicts, got {grid!r}{hint}"
            )
        self.dicts = [
            {
                name: _parameter(name, value)
                for name, value in parameters.items()
            }
            for parameters in dicts
        ]
        tree: dict[Any, Any] = {
            (i, name): parameter.variable
            if len(dicts) == 1
            else parameter.variable.when(dict=i)
            for i, parameters in enumerate(self.dicts)
            for name, parameter in parameters.items()
        }
        varying = [
            parameter
            for parameters in self.dicts
            for parameter in parameters.values()
            if parameter.variable.count > 1
        ]
        # a space needs something to choose, even if a candidate does not
        if len(dicts) > 1 or not varying:
            tree["dict"] = Choice(*range(max(len(dicts), 2)))
        self.space = Space.of(tree)

    def point(self, x: dict[Any, Any]) -> Point:
        i = x["dict"] if len(self.dicts) > 1 else 0
        return i, *(x[i, name] for name in self.dicts[i])

    def points(self) -> Iterator[Point]:
        """Yield all candidates, if the space is finite."""
        for i, parameters in enumerate(self.dicts):
            yield from itertools.product(
                [i], *(parameter.numbers() for parameter in parameters.values())
            )

    def parameters(self, point: Point) -> dict[str, Any]:
        """Return the parameters of the estimator."""
        chosen = zip(self.dicts[point[0]].items(), point[1:], strict=True)
        return {
            name: parameter.value(number)
            for (name, parameter), number in chosen
        }


def _parameter(name: str, values: Any) -> Parameter:
    where = f"param_distributions[{name!r}]"
    if (
        isinstance(values, Variable)
        and values.n is None
        and (domain := values.domain) is not None
    ):
        k = len(domain.options)
        if k:
            return Parameter(Choice(*range(k), p=domain.p), domain.options)
        return Parameter(values, None)
    if hasattr(values, "rvs"):
        return _distribution(where, values)
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(
        values, Iterable
    ):
        expected = "a list, a distribution, or one Integer, Float or Choice"
        hint = f"; {CONDITIONS}" if isinstance(values, (Space, When)) else ""
        raise TypeError(f"{where}: expected {expected}, got {values!r}{hint}")
    if (
        isinstance(values, tuple)
        and len(values) == 2
        and all(map(_is_number, values))
        and values[0] < values[1]
    ):
        low, high = values
        kind = (
            "Integer"
            if all(isinstance(value, Integral) for value in values)
            else "Float"
        )
        shown = f"the tuple {values} is read as two options, which are written [{low}, {high}]"
        warnings.warn(
            f"{where}: {shown}; a range is written kl.{kind}({low}, {high})",
            UserWarning,
            6,
        )
    distinct: dict[Hashable, Any] = {}
    for option in values:
        distinct.setdefault(_identity(option), option)
    options = list(distinct.values())
    if not options:
        raise ValueError(f"{where}: expected at least one option, got none")
    if (
        len(options) > 2
        and all(map(_is_number, options))
        and len(set(options)) == len(options)
    ):
        return Parameter(Integer(0, len(options) - 1), sorted(options))
    return Parameter(Choice(*range(len(options))), options)


def _identity(option: Any) -> Hashable:
    """Return what equal options of the same type have in common.

    That of lists and arrays is a digest.
    """
    try:
        hash(option)
    except TypeError:
        return type(option), joblib.hash(option)
    return type(option), option


def _is_number(option: Any) -> bool:
    return (
        isinstance(option, Real)
        and not isinstance(option, (bool, np.bool_))
        and math.isfinite(option)
    )


def _distribution(where: str, distribution: Any) -> Parameter:
    """Return the range and scale of a distribution, by its quantiles.

    A distribution of any name may be uniform.
    """
    try:
        low, high = (float(bound) for bound in distribution.support())
        q = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
        if math.isfinite(high - low):
            if hasattr(distribution, "pmf"):
                below = low + np.floor(q * (high - low))
                if low.is_integer() and np.allclose(
                    distribution.cdf(below),
                    (below - low + 1) / (high - low + 1),
                ):
                    return Parameter(Integer(int(low), int(high)), None)
            elif np.allclose(distribution.ppf(q), low + q * (high - low)):
                return Parameter(Float(low, high), None)
            elif low > 0.0 and np.allclose(
                np.log(distribution.ppf(q)),
                math.log(low) + q * math.log(high / low),
            ):
                return Parameter(Float(low, high, log=True), None)
    except AttributeError:
        pass  # not a distribution of scipy.stats
    expected = "a distribution that is uniform, or uniform in log scale, on a bounded range"
    hint = "a range is also written Float(low, high, log=True) or Integer(low, high)"
    shown = getattr(
        getattr(distribution, "dist", None), "name", repr(distribution)
    )
    raise ValueError(f"{where}: expected {expected}, got {shown}; {hint}")
