"""Branches of a conditional space, and the part of the space that each combination has.

A branch is one value of a column on which others depend. A combination has one branch for each such
column that is active; given it, the rest of the space is a family like any other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from .conditional import Conditional, Intervals, inside
from .families import Discrete, Family, Normal
from .types import Array, Indices, Points

# Code of each branch column; a fixed one if it is inactive
Combination = tuple[float, ...]


class Branch(NamedTuple):
    """One value of a column on which others depend.

    Attributes
    ----------
    node : int
        Index of the column among the branch columns.
    code : float
        The value.
    prior : float
        Its prior probability, relative to that of equally probable values.
    """

    node: int
    code: float
    prior: float


class Part(NamedTuple):
    """The part of a space that is active in a combination of branches.

    Attributes
    ----------
    template : array of shape (variables,)
        A point of the combination.
    columns : array of int
        Active columns apart from the branch columns; possibly none.
    parameters : array of int
        Indices of their parameters in θ, in the order of the parameters of `family`.
    family : Family or None
        Family of these columns; None if there are none.
    """

    template: Points
    columns: Indices
    parameters: Indices
    family: Family | None

    def embed(self, x: Points) -> Points:
        """Return points of the whole space for points of this part."""
        codes = np.tile(self.template, (len(x), 1))
        codes[:, self.columns] = x
        return codes


@dataclass(frozen=True)
class Branches:
    """Branches of a family with conditional columns.

    Parameters
    ----------
    family : Conditional
        The family; its `branches` are the columns and their values, less those that depend on other
        columns.
    """

    family: Conditional

    @cached_property
    def _nodes(self) -> list[tuple[int, tuple[float, ...]]]:
        """The branch columns with the codes of their values.

        a column comes after those that it depends on.
        """
        needs = self.family.requirements
        columns = {column for column, _ in self.family.branches}
        # A combination decides whether a column is active only if it has values of all columns that
        # it depends on.
        # A column whose own conditions no combination decides is no node.
        nodes = [
            node
            for node in self.family.branches
            if columns.issuperset(needs[node[0]])
        ]
        return sorted(nodes, key=lambda node: len(needs[node[0]]))

    @cached_property
    def columns(self) -> list[int]:
        """The branch columns."""
        return [column for column, _ in self._nodes]

    @cached_property
    def each(self) -> list[Branch]:
        """All branches, ordered by column."""
        branches = []
        for node, (column, codes) in enumerate(self._nodes):
            marginal = self.family.marginal(self.family.initial(), column)
            # Values of a number are equally probable.
            p = (
                marginal.p.tolist()
                if isinstance(marginal, Discrete)
                else [1.0 / len(codes)] * len(codes)
            )
            branches += [
                Branch(node, code, len(codes) * prior)
                for code, prior in zip(codes, p, strict=True)
            ]
        return branches

    @cached_property
    def of_node(self) -> list[list[int]]:
        """Indices of the branches of each column."""
        return [
            [i for i, branch in enumerate(self.each) if branch.node == node]
            for node in range(len(self._nodes))
        ]

    @cached_property
    def _needs(self) -> list[dict[int, Intervals]]:
        """For each column, the codes that the branch columns must have for it to be active."""
        index = {column: node for node, column in enumerate(self.columns)}
        return [
            {index[p]: codes for p, codes in requirements.items() if p in index}
            for requirements in self.family.requirements
        ]

    def weighted(self, theta: Array, shares: Sequence[float]) -> Array:
        """Return θ with the parameters of the branch columns replaced.

        `shares` are the weights of the branches, which sum to one in each column. The weights are
        the probabilities of the values of a choice, and a number has its most probable value at the
        branch with the largest weight.
        """
        theta = theta.copy()
        for branches, (column, codes), (at, statistics) in zip(
            self.of_node, self._nodes, self._statistics, strict=True
        ):
            weights = np.array([shares[b] for b in branches])
            marginal = self.family.marginal(theta, column)
            if isinstance(marginal, Normal):
                # E[z] = mean and E[z²] = mean² + σ², with σ as before
                mean = codes[weights.argmax()]
                theta[at] = mean, mean**2 + marginal.sigma**2
            else:
                # E[T(x)] = Σ weight · T(value)
                theta[at] = weights @ statistics
        return self.family.move(theta, np.zeros(len(theta)))

    @cached_property
    def _statistics(self) -> list[tuple[range, Array]]:
        """Of each branch column, the indices of its parameters and the statistics of its values."""
        statistics_of = []
        for column, codes in self._nodes:
            x = np.tile(self.family.inactive, (len(codes), 1))
            x[:, column] = codes
            at = self.family.parameters(column)
            statistics_of.append((at, self.family.flat.statistics(x)[:, at]))
        return statistics_of

    def combine(
        self, branch: int, best: Sequence[float], u: Array
    ) -> Combination:
        """Return a combination that contains a branch, by the best values of the branches.

        The other columns get the branch with the least value. `u` has two uniform numbers in [0, 1)
        for each of them: the first one decides whether its branch is drawn from the prior instead,
        by the second one, in one case of as many as there are columns.
        """
        node, code, _ = self.each[branch]
        needs = self._needs[self.columns[node]]
        chosen: list[float] = []
        for i, column in enumerate(self.columns):
            if i == node:
                chosen.append(code)
            elif not all(
                inside(chosen[p], codes)
                for p, codes in self._needs[column].items()
            ):
                chosen.append(float(self.family.inactive[column]))
            else:
                allowed = [
                    b
                    for b in self.of_node[i]
                    if i not in needs or inside(self.each[b].code, needs[i])
                ]
                # With probability 1/columns explore: a branch from the prior.
                if u[i, 0] * len(self.columns) < 1.0:
                    shares = list(
                        accumulate(self.each[b].prior for b in allowed)
                    )
                    pick = allowed[bisect_right(shares, u[i, 1] * shares[-1])]
                else:
                    # Otherwise the branch with the best value.
                    pick = min(allowed, key=lambda b: best[b])
                chosen.append(self.each[pick].code)
        return tuple(chosen)

    def combination_of(self, x: Points) -> Combination:
        """Return the combination of a point.

        The code of a number is replaced by that of the nearest value.
        """
        codes_of_point: list[float] = x[self.columns].astype(float).tolist()
        if self._numbers:
            active = self._active(tuple(codes_of_point))
            for node, codes in self._numbers.items():
                if active[node]:
                    code = codes_of_point[node]
                    codes_of_point[node] = min(
                        codes, key=lambda value: abs(value - code)
                    )
        return tuple(codes_of_point)

    @cached_property
    def _numbers(self) -> dict[int, tuple[float, ...]]:
        """The branch columns that are numbers, by index, with the codes of their values."""
        options = self.family.options
        return {
            node: codes
            for node, (column, codes) in enumerate(self._nodes)
            if options[column] == 0
        }

    def contained(self, combination: Combination) -> list[int]:
        """Return the indices of the branches of a combination, those of active columns."""
        active = self._active(combination)
        return [
            i
            for i, (node, code, _) in enumerate(self.each)
            if active[node] and combination[node] == code
        ]

    def _active(self, combination: Combination) -> list[bool]:
        """Return which branch columns are active."""
        needs = (self._needs[column].items() for column in self.columns)
        return [
            all(inside(combination[p], codes) for p, codes in of_column)
            for of_column in needs
        ]

    def has(self, combination: Combination) -> bool:
        """Return whether a point may have this combination."""
        if len(combination) != len(self.columns):
            return False
        states = zip(
            self._active(combination), combination, self._nodes, strict=True
        )
        return all(
            code in codes if active else code == self.family.inactive[column]
            for active, code, (column, codes) in states
        )

    def part(self, combination: Combination) -> Part:
        """Return the part of the space that is active in a combination."""
        family = self.family
        template = family.inactive.copy()
        # Inactive columns have their fixed codes, branch columns the codes of the combination.
        template[self.columns] = combination
        columns = [
            column
            for column, needs in enumerate(self._needs)
            if column not in self.columns
            and all(inside(combination[p], codes) for p, codes in needs.items())
        ]
        if not columns:
            none = np.empty(0, dtype=np.intp)
            return Part(template, none, none, None)
        # The rest of the space, as a family of its own.
        inner = family.select(columns)
        parameters = np.empty(len(inner.initial()), dtype=np.intp)
        for i, column in enumerate(columns):
            indices = inner.parameters(i)
            parameters[indices.start : indices.stop : indices.step] = (
                family.parameters(column)
            )
        return Part(template, np.array(columns), parameters, inner)
