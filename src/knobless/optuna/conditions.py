"""Conditional parameters, inferred from the parameters that completed trials have suggested.

Optuna records which parameters a trial has suggested, but not why. A parameter that some trials
lack is conditional on another one, its parent, if the value of the parent determines whether a
trial has the parameter: all trials with the parameter have the parent, and no value of the parent
occurs both in trials with the parameter and in trials without it. A parent may be conditional
itself. The order of the parameters in a trial is not used: not every storage keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial

# At most: a parent with as many values as there are trials would explain everything
PARENT_VALUES = 16

# Of each parameter, the values required of other ones
Needs = Mapping[str, Mapping[str, tuple[int, ...]]]


class Presence:
    """Which parameters the completed trials have, and with which values of possible parents."""

    def __init__(self, trials: Iterable[FrozenTrial] = ()) -> None:
        # None if trials have different ones
        self.distributions: dict[str, BaseDistribution | None] = {}
        # By the names of a trial's parameters
        self._values: dict[frozenset[str], dict[str, set[int]]] = {}
        self._conditions: Needs | None = None
        for trial in trials:
            self.add(trial)

    def add(self, trial: FrozenTrial) -> None:
        """Add a completed trial."""
        for name, distribution in trial.distributions.items():
            if (
                self.distributions.setdefault(name, distribution)
                != distribution
            ):
                self.distributions[name] = self._conditions = None
        names = frozenset(trial.params)
        if names not in self._values:
            self._values[names], self._conditions = {}, None
        for name, value in trial.params.items():
            if _may_be_parent(distribution := trial.distributions[name]):
                values = self._values[names].setdefault(name, set())
                value = variable_value(distribution, value)
                if value not in values:
                    values.add(value)
                    self._conditions = None

    @property
    def conditions(self) -> Needs:
        """The conditions of the parameters that have an explanation.

        None of those that all trials have.

        The explanation with the fewest assumptions is chosen, ties by name. Each value of the
        parent that was seen is one assumption, in addition to the assumptions that explain the
        parent.
        """
        if self._conditions is None:
            self._conditions = self._infer()
        return self._conditions

    def _infer(self) -> Needs:
        names = sorted(
            name
            for name, distribution in self.distributions.items()
            if distribution is not None
        )
        assumptions = {
            name: 0
            for name in names
            if all(name in values for values in self._values)
        }
        conditions: dict[str, dict[str, tuple[int, ...]]] = {
            name: {} for name in assumptions
        }
        pairs = [
            (name, parent)
            for name in names
            if name not in conditions
            for parent in names
            if parent != name
        ]
        explained = {
            pair: values
            for pair in pairs
            if (values := self._explanation(*pair)) is not None
        }
        while open_pairs := [
            pair
            for pair in explained
            if pair[0] not in conditions and pair[1] in conditions
        ]:
            costs = {
                pair: assumptions[pair[1]] + sum(map(len, explained[pair]))
                for pair in open_pairs
            }
            name, parent = min(open_pairs, key=lambda pair: (costs[pair], pair))
            assumptions[name] = costs[name, parent]
            conditions[name] = {
                parent: tuple(sorted(explained[name, parent][0]))
            }
        return conditions

    def _explanation(
        self, name: str, parent: str
    ) -> tuple[set[int], set[int]] | None:
        """Return the parent's values in trials with and without a parameter.

        None if it is not the parent.
        """
        if not _may_be_parent(self.distributions[parent]) or any(
            name in e and parent not in e for e in self._values
        ):
            return None
        present: set[int] = set()
        absent: set[int] = set()
        for names, values in self._values.items():
            if parent in names:
                (present if name in names else absent).update(values[parent])
        return (present, absent) if present.isdisjoint(absent) else None


def _may_be_parent(distribution: BaseDistribution | None) -> bool:
    match distribution:
        case CategoricalDistribution(choices=choices):
            return 2 <= len(choices) <= PARENT_VALUES
        case IntDistribution(low=low, high=high, step=step):
            return 2 <= (high - low) // step + 1 <= PARENT_VALUES
    return False


def variable_value(distribution: BaseDistribution, value: Any) -> Any:
    """Return the value of the variable: an option's index, any other value itself."""
    if isinstance(distribution, CategoricalDistribution):
        return int(distribution.to_internal_repr(value))
    return value
