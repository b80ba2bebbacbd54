"""Marginal distributions of the variables, for the page, the plots and `knobless show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knobless.core.conditional import Conditional
from knobless.core.families import ColumnFamily, Discrete, Family, Normal
from knobless.core.types import Array, Points
from knobless.space.space import Space, shown_name
from knobless.space.variable import Variable

HEIGHT = 256  # rows of a heat map of θ, at most


class Marginal(NamedTuple):
    """Marginal distribution of one column of a point, as a function of θ.

    Attributes
    ----------
    name : str
        Name of the column.
    variable : Variable
        Variable of the column.
    family : Family
        Family of the points.
    column : int
        Index of the column.
    labels : tuple of str
        Names of the options; empty for a number, and for options in an order.
    """

    name: str
    variable: Variable
    family: Family
    column: int
    labels: tuple[str, ...]

    def probabilities(self, theta: Array) -> Array:
        """Return the probability of each option."""
        match self.family.marginal(theta, self.column):
            case Discrete(p):
                return p
        raise TypeError(
            f"{self.name}: expected a variable with options, got a number"
        )

    def quantiles(self, theta: Array) -> tuple[float, float, float]:
        """Return the value of a number at its mean, and one standard deviation below and above."""
        variable = self.variable
        # Of options in an order, these are positions
        numbers = variable.indices if variable.labels else variable.values
        middle, low, high = numbers(np.array(self._latent(theta))).tolist()
        return middle, low, high

    def span(self, theta: Array) -> tuple[float, float, float]:
        """Return the same as positions in the range, from 0 to 1."""
        middle, low, high = np.clip(self._latent(theta), 0.0, 1.0).tolist()
        return middle, low, high

    def spread(self, theta: Array) -> float:
        """Return the entropy of the options, or the standard deviation of a number in its range."""
        match self.family.marginal(theta, self.column):
            case Discrete(p):
                return float(-(p[p > 0.0] @ np.log(p[p > 0.0])))
            case Normal(_, sigma):
                return sigma

    def _latent(self, theta: Array) -> tuple[float, float, float]:
        match self.family.marginal(theta, self.column):
            case Normal(mean, sigma):
                return mean, mean - sigma, mean + sigma
        raise TypeError(
            f"{self.name}: expected a number, got a variable with options"
        )


def marginals_of(space: Space) -> list[Marginal]:
    """Return one marginal per column, in order, evenly thinned out to `HEIGHT`."""
    if not isinstance(space.family, ColumnFamily):
        return []
    columns = np.concatenate(
        [
            np.arange(column.where.start, column.where.stop)
            for column in space.columns()
        ]
    )
    return marginals_at(space, columns[evenly(len(columns), HEIGHT)].tolist())


def marginals_at(space: Space, columns: Sequence[int]) -> list[Marginal]:
    """Return the marginals of these columns."""
    variables: dict[int, Variable] = {}
    wanted = set(columns)
    for _, variable, where, _ in space.columns():
        variables |= dict.fromkeys(
            wanted.intersection(range(where.start, where.stop)), variable
        )
    return [
        Marginal(
            shown_name(space.names[i]),
            variables[i],
            space.family,
            i,
            () if variables[i].is_latent else variables[i].labels,
        )
        for i in columns
    ]


def heat_rows(
    marginals: Sequence[Marginal],
) -> tuple[list[str], NDArray[np.intp]]:
    """Return the names of the rows of a heat map of θ, and the indices of their parameters."""
    names: list[str] = []
    where: list[int] = []
    for marginal in marginals:
        parameters = marginal.family.parameters(marginal.column)
        if marginal.labels and not marginal.variable.is_bits:
            names += [
                f"{marginal.name} = {label}"
                for label in marginal.labels[-len(parameters) :]
            ]
            where += parameters
        else:
            names.append(marginal.name)
            where.append(parameters[0])
    shown = evenly(len(names), HEIGHT)
    return [names[i] for i in shown], np.array(where, dtype=np.intp)[shown]


class VariableSummary(NamedTuple):
    """One variable at the mode of θ; arrays if the variable is an array.

    Attributes
    ----------
    name : str
        Name of the variable.
    value
        Value at the mode.
    probability : float or array or None
        Probability of that value; None for a number.
    low, high
        Values one standard deviation below and above, between which 68 % lie; None for options.
    """

    name: str
    value: Any
    probability: Any
    low: Any
    high: Any


def variable_summaries(space: Space, theta: Array) -> list[VariableSummary]:
    """Return the mode of θ and its spread, variable by variable."""
    family = space.family
    marginals = []
    # Of inactive variables too
    mode = (family.flat if isinstance(family, Conditional) else family).mode(
        theta
    )
    for column in space.columns():
        name, variable, where, _ = column
        if column.is_constant:
            value = _value(variable, column.codes(mode[None])[0])
            marginals.append(VariableSummary(name, value, 1.0, None, None))
            continue
        value = _value(variable, mode[where])
        if not isinstance(family, ColumnFamily):
            marginals.append(VariableSummary(name, value, None, None, None))
            continue
        distributions = [
            family.marginal(theta, i) for i in range(where.start, where.stop)
        ]
        if variable.labels and not variable.is_latent:
            codes = mode[where].astype(np.intp).tolist()
            p = np.array(
                [
                    m.p[i]
                    for m, i in zip(distributions, codes, strict=True)
                    if isinstance(m, Discrete)
                ]
            )
            marginals.append(
                VariableSummary(
                    name,
                    value,
                    p.tolist()[0] if variable.n is None else p,
                    None,
                    None,
                )
            )
        else:
            sigma = np.array(
                [
                    marginal.sigma
                    for marginal in distributions
                    if isinstance(marginal, Normal)
                ]
            )
            low, high = (
                _value(variable, mode[where] + sign * sigma)
                for sign in (-1.0, 1.0)
            )
            marginals.append(VariableSummary(name, value, None, low, high))
    return marginals


def _value(variable: Variable, codes: Points) -> Any:
    values = variable.values(codes)
    return values.tolist()[0] if variable.n is None else values


def evenly(count: int, limit: int) -> NDArray[np.intp]:
    """Return at most `most` evenly spaced indices below `count`."""
    if count <= limit:
        return np.arange(count)
    return np.linspace(0, count - 1, limit).astype(np.intp)
