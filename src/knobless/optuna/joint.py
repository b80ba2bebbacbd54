"""The space of the parameters that are sampled jointly, and the algorithm over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from knobless.core.description import algorithm_data
from knobless.core.igo import IGO
from knobless.core.types import Points
from knobless.space.space import Space
from knobless.space.variables import Choice, Float, Integer

from .tags import TAG


@dataclass(frozen=True, eq=False)
class Joint:
    """Distributions sorted by name, and the algorithm over them."""

    distributions: dict[str, BaseDistribution]
    space: Space
    algorithm: IGO

    @classmethod
    def of(cls, distributions: Mapping[str, BaseDistribution], recipe: Callable[[Space], IGO]) -> Joint:
        found = {name: variable_of(distributions[name]) for name in sorted(distributions)}
        variables = {name: variable for name, variable in found.items() if variable is not None}
        space = Space.of(variables or Choice(0, 1))  # never sampled if there are no variables
        algorithm = recipe(space)
        if not isinstance(algorithm, IGO):  # the state must be a value: branches share the states before them
            raise TypeError(f"algorithm: expected a recipe that returns an IGO, got {algorithm!r:.200}")
        return cls({name: distributions[name] for name in variables}, space, algorithm)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What must be equal for trials to belong to one run."""
        space = {name: repr(each) for name, each in self.distributions.items()}
        return {"space": space, "algorithm": algorithm_data(self.algorithm)}

    def params(self, code: Points) -> dict[str, Any]:
        """Return the parameters of a code."""
        each = zip(self.distributions.items(), self.space.decode(code).values(), strict=True)
        return {name: d.choices[v] if isinstance(d, CategoricalDistribution) else v for (name, d), v in each}

    def code(self, params: Mapping[str, Any]) -> Points | None:
        """Return the code of parameters, or None if they are not in this space."""
        if not params.keys() >= self.distributions.keys():
            return None
        try:
            return self.space.encode({name: _plain(d, params[name]) for name, d in self.distributions.items()})
        except (TypeError, ValueError):
            return None

    @cached_property
    def _options(self) -> list[int]:
        """The numbers of options of the first columns of a code; the other columns are numbers."""
        return sorted(len(d.choices) for d in self.distributions.values() if isinstance(d, CategoricalDistribution))

    def codes(self, trials: Sequence[FrozenTrial]) -> Points:
        kind = self.algorithm.family.dtype
        return np.array([trial.system_attrs[TAG]["code"] for trial in trials], dtype=kind)

    def drew(self, trial: FrozenTrial) -> bool:
        """Return whether the trial was evaluated at its code: an objective may have asked for another range."""
        code = trial.system_attrs[TAG]["code"]
        options = zip(code, self._options, strict=False)
        if len(code) != len(self.distributions) or not all(index in range(k) for index, k in options):
            return False
        drawn = self.params(self.codes([trial])[0])
        return all(_same(d, drawn[n], trial.params[n]) for n, d in self.distributions.items() if n in trial.params)


def variable_of(distribution: BaseDistribution) -> Choice | Integer | Float | None:
    """Return the variable of a distribution; None if it has a single value, or more integers than floats represent."""
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


def _plain(distribution: BaseDistribution, value: Any) -> Any:
    """Return the value of the variable: an option's index, any other value itself."""
    return int(distribution.to_internal_repr(value)) if isinstance(distribution, CategoricalDistribution) else value


def _same(distribution: BaseDistribution, drawn: Any, value: Any) -> bool:
    """Compare up to what a storage may round."""
    try:
        apart = abs(distribution.to_internal_repr(drawn) - distribution.to_internal_repr(value))
    except ValueError:
        return False
    low, high = getattr(distribution, "low", 0.0), getattr(distribution, "high", 1.0)
    return bool(apart <= 1e-9 * max(high - low, abs(low), abs(high)))
