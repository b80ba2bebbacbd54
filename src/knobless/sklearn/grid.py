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
    """One parameter of an estimator: its variable, and its options if the variable is their index."""

    variable: Variable
    options: Sequence[Any] | None

    def value(self, number: Any) -> Any:
        return number if self.options is None else self.options[number]

    def numbers(self) -> Sequence[Any]:
        """Return all values of the variable, if there are finitely many."""
        return [self.variable.value_at(i) for i in range(int(self.variable.count))]


class Grid:
    """The space of `param_distributions`. Of several dicts, a candidate has the parameters of one.

    The index of the dict is a variable, on which the variables of the dicts are conditional. A candidate is identified
    by this index, followed by the values of the variables of that dict.
    """

    def __init__(self, given: Any) -> None:
        dicts = [given] if isinstance(given, Mapping) else given
        if not isinstance(dicts, (list, tuple)) or not dicts or not all(isinstance(each, Mapping) for each in dicts):
            hint = f"; {CONDITIONS}" if isinstance(given, (Space, When)) else ""
            raise TypeError(f"param_distributions: expected a dict or a list of dicts, got {given!r}{hint}")
        self.dicts = [{name: _parameter(name, value) for name, value in each.items()} for each in dicts]
        tree: dict[Any, Any] = {
            (i, name): parameter.variable if len(dicts) == 1 else parameter.variable.when(dict=i)
            for i, each in enumerate(self.dicts)
            for name, parameter in each.items()
        }
        varying = [parameter for each in self.dicts for parameter in each.values() if parameter.variable.count > 1]
        if len(dicts) > 1 or not varying:  # a space needs something to choose, even if a candidate does not
            tree["dict"] = Choice(*range(max(len(dicts), 2)))
        self.space = Space.of(tree)

    def point(self, x: dict[Any, Any]) -> Point:
        i = x["dict"] if len(self.dicts) > 1 else 0
        return i, *(x[i, name] for name in self.dicts[i])

    def points(self) -> Iterator[Point]:
        """Yield all candidates, if the space is finite."""
        for i, each in enumerate(self.dicts):
            yield from itertools.product([i], *(parameter.numbers() for parameter in each.values()))

    def parameters(self, point: Point) -> dict[str, Any]:
        """Return the parameters of the estimator."""
        each = zip(self.dicts[point[0]].items(), point[1:], strict=True)
        return {name: parameter.value(number) for (name, parameter), number in each}


def _parameter(name: str, given: Any) -> Parameter:
    where = f"param_distributions[{name!r}]"
    if isinstance(given, Variable) and given.n is None and (domain := given.domain) is not None:
        k = len(domain.options)
        return Parameter(Choice(*range(k), p=domain.p), domain.options) if k else Parameter(given, None)
    if hasattr(given, "rvs"):
        return _distribution(where, given)
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        expected = "a list, a distribution, or one Integer, Float or Choice"
        hint = f"; {CONDITIONS}" if isinstance(given, (Space, When)) else ""
        raise TypeError(f"{where}: expected {expected}, got {given!r}{hint}")
    if isinstance(given, tuple) and len(given) == 2 and all(map(_is_number, given)) and given[0] < given[1]:
        low, high = given
        kind = "Integer" if all(isinstance(each, Integral) for each in given) else "Float"
        shown = f"the tuple {given} is read as two options, which are written [{low}, {high}]"
        warnings.warn(f"{where}: {shown}; a range is written kl.{kind}({low}, {high})", UserWarning, 6)
    distinct: dict[Hashable, Any] = {}
    for option in given:
        distinct.setdefault(_identity(option), option)
    options = list(distinct.values())
    if not options:
        raise ValueError(f"{where}: expected at least one option, got none")
    if len(options) > 2 and all(map(_is_number, options)) and len(set(options)) == len(options):
        return Parameter(Integer(0, len(options) - 1), sorted(options))
    return Parameter(Choice(*range(len(options))), options)


def _identity(option: Any) -> Hashable:
    """Return what equal options of the same type have in common; that of lists and arrays is a digest."""
    try:
        hash(option)
    except TypeError:
        return type(option), joblib.hash(option)
    return type(option), option


def _is_number(option: Any) -> bool:
    return isinstance(option, Real) and not isinstance(option, (bool, np.bool_)) and math.isfinite(option)


def _distribution(where: str, given: Any) -> Parameter:
    """Return the range and scale of a distribution, by its quantiles: a distribution of any name may be uniform."""
    try:
        low, high = (float(bound) for bound in given.support())
        q = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
        if math.isfinite(high - low):
            if hasattr(given, "pmf"):
                below = low + np.floor(q * (high - low))
                if low.is_integer() and np.allclose(given.cdf(below), (below - low + 1) / (high - low + 1)):
                    return Parameter(Integer(int(low), int(high)), None)
            elif np.allclose(given.ppf(q), low + q * (high - low)):
                return Parameter(Float(low, high), None)
            elif low > 0.0 and np.allclose(np.log(given.ppf(q)), math.log(low) + q * math.log(high / low)):
                return Parameter(Float(low, high, log=True), None)
    except AttributeError:
        pass  # not a distribution of scipy.stats
    expected = "a distribution that is uniform, or uniform in log scale, on a bounded range"
    hint = "a range is also written Float(low, high, log=True) or Integer(low, high)"
    shown = getattr(getattr(given, "dist", None), "name", repr(given))
    raise ValueError(f"{where}: expected {expected}, got {shown}; {hint}")
