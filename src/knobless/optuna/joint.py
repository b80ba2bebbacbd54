"""The space of the parameters that are sampled jointly, and the algorithm over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial

from knobless.core.algorithm import Algorithm, checked_algorithm
from knobless.core.description import algorithm_data
from knobless.core.types import Points
from knobless.space.numbers import Float, Integer
from knobless.space.space import Space
from knobless.space.variable import Domain, Variable
from knobless.space.variables import Choice

from .conditions import Needs, variable_value
from .tags import TAG


@dataclass(frozen=True, eq=False)
class Joint:
    """Distributions, their conditions, and the algorithm over them (None: the recommended one)."""

    distributions: dict[str, BaseDistribution]
    conditions: Needs
    space: Space
    algorithm: Algorithm | None

    @classmethod
    def of(
        cls,
        distributions: Mapping[str, BaseDistribution],
        conditions: Needs,
        recipe: Callable[[Space], Algorithm] | None = None,
    ) -> Joint:
        by_name = {
            name: variable_of(distribution)
            for name, distribution in distributions.items()
        }
        variables = {
            name: variable
            for name, variable in by_name.items()
            if variable is not None
        }
        # A condition on a parameter that is not sampled here, such as a fixed one, is assumed to
        # hold.
        kept = {
            name: {
                parent: values
                for parent, values in conditions.get(name, {}).items()
                if parent in variables
            }
            for name in variables
        }
        conditions = {name: needs for name, needs in kept.items() if needs}
        tree = {
            name: variable.when(**conditions[name])
            if name in conditions
            else variable
            for name, variable in variables.items()
        }
        # Never sampled if there are no variables
        space = Space.of(tree or Choice(0, 1))
        algorithm = recipe and checked_algorithm(
            recipe(space), "a recipe that returns an algorithm"
        )
        return cls(
            {name: distributions[name] for name in variables},
            conditions,
            space,
            algorithm,
        )

    @property
    def stated(self) -> Algorithm:
        """The algorithm that was given; RuntimeError if there is none."""
        if self.algorithm is None:
            raise RuntimeError("algorithm: expected a recipe, got none")
        return self.algorithm

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What must be equal for the codes of trials to be comparable."""
        space: dict[str, Any] = {
            name: repr(distribution)
            for name, distribution in self.distributions.items()
        }
        for name, needs in self.conditions.items():
            space[name] = [
                space[name],
                {parent: list(values) for parent, values in needs.items()},
            ]
        return {
            "space": space,
            "algorithm": self.algorithm and algorithm_data(self.algorithm),
        }

    def params(self, code: Points) -> dict[str, Any]:
        """Return the parameters of a code, the active ones only."""
        decoded = (
            (name, self.distributions[name], value)
            for name, value in self.space.decode(code).items()
        )
        return {
            name: d.choices[v] if isinstance(d, CategoricalDistribution) else v
            for name, d, v in decoded
        }

    def code(self, params: Mapping[str, Any]) -> Points | None:
        """Return the code of parameters, or None if they are not in this space."""
        try:
            values = {
                name: variable_value(d, params[name])
                for name, d in self.distributions.items()
                if name in params
            }
            return self.space.encode(
                {
                    name: value
                    for name, value in values.items()
                    if self._is_active(name, values)
                }
            )
        except (TypeError, ValueError):
            return None

    def _is_active(self, name: str, stated: Mapping[str, Any]) -> bool:
        needs = self.conditions.get(name, {})
        return all(
            stated.get(p) in values and self._is_active(p, stated)
            for p, values in needs.items()
        )

    @cached_property
    def _options(self) -> list[int]:
        """The numbers of options of the first columns of a code; the other columns are numbers."""
        return sorted(
            len(d.choices)
            for d in self.distributions.values()
            if isinstance(d, CategoricalDistribution)
        )

    def code_of(self, code: Sequence[float]) -> Points | None:
        """Return the code in a tag, or None if it is none of this space."""
        options = zip(code, self._options, strict=False)
        if len(code) != len(self.distributions) or not all(
            index in range(k) for index, k in options
        ):
            return None
        return np.array(code, dtype=self.space.family.dtype)

    def drawn(self, trial: FrozenTrial) -> Points | None:
        """Return the code of a tagged trial.

        None if it was evaluated elsewhere, where the ranges may be other ones.
        """
        point = self.code_of(trial.system_attrs[TAG]["code"])
        if point is None:
            return None
        drawn = self.params(point)
        matches = (
            _same(self.distributions[n], drawn[n], value)
            for n, value in trial.params.items()
            if n in drawn
        )
        return point if all(matches) else None


def variable_of(distribution: BaseDistribution) -> Variable | None:
    """Return the variable of a distribution.

    None if it has a single value, or more integers than floats represent.
    """
    if distribution.single():
        return None
    try:
        match distribution:
            case CategoricalDistribution(choices=choices):
                return Choice(*range(len(choices)))
            case IntDistribution(low=low, high=high, step=step, log=log):
                return Integer(low, high, step=step, log=log)
            case FloatDistribution(low=low, high=high, step=step, log=log):
                return Float(low, high, step=step, log=log)
    except ValueError:
        pass
    return None


def declared(space: Space) -> tuple[dict[str, BaseDistribution], Needs]:
    """Return the distributions and the conditions of a space of scalar variables by name."""
    columns = {column.name: column for column in space.columns()}
    if not isinstance(space.tree, dict) or columns.keys() != space.tree.keys():
        raise TypeError(
            "search_space: expected a Space of named variables that are not nested, got "
            f"{space!r:.200}"
        )
    distributions = {
        name: _distribution_of(name, column.variable)
        for name, column in columns.items()
    }
    needs = {
        name: {
            parent: tuple(
                variable_value(distributions[parent], v) for v in values
            )
            for parent, values in column.conditions
        }
        for name, column in columns.items()
    }
    return distributions, needs


def _distribution_of(name: str, variable: Variable) -> BaseDistribution:
    domain = variable.domain if variable.n is None else None
    match domain:
        case Domain("options", options=options, p=p) if len(set(p)) == 1:
            return CategoricalDistribution(options)
        case Domain("integer", low, high, step, log):
            return IntDistribution(
                int(low), int(high), log=log, step=int(step or 1)
            )
        case Domain("float", low, high, step, log):
            return FloatDistribution(low, high, log=log, step=step)
    expected = "one Choice, Integer or Float, without a prior"
    raise TypeError(
        f"search_space[{name!r}]: expected {expected}, got {variable!r}"
    )


def _same(distribution: BaseDistribution, drawn: Any, value: Any) -> bool:
    """Compare up to what a storage may round."""
    try:
        apart = abs(
            distribution.to_internal_repr(drawn)
            - distribution.to_internal_repr(value)
        )
    except ValueError:
        return False
    low = getattr(distribution, "low", 0.0)
    high = getattr(distribution, "high", 1.0)
    return bool(apart <= 1e-9 * max(high - low, abs(low), abs(high)))
