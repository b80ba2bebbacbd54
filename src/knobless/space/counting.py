"""The number of points of a space with conditional variables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from knobless.core.subset import LARGEST

_WORK = 10**6  # variables visited, after which the number is taken for infinite


def count_points(
    counts: Sequence[float], needs: Sequence[dict[int, frozenset[int]]]
) -> float:
    """Return the number of different sets of active values.

    Parameters
    ----------
    counts : sequence of float
        Number of different values of each variable; inf for more than 2**1000.
    needs : sequence of dict
        For each variable, those that it depends on, directly or not, with the indices of the values
        they must have.

    Returns
    -------
    float
        An int; or inf for more than 2**1000, or if the count takes too long, which needs many
        variables that depend on several others each.

    Notes
    -----
    Variables that do not depend on each other, directly or through others, are counted apart and
    multiplied. Otherwise the numbers of points for each value of one variable are added. That takes
    polynomial time if no variable depends on two others that do not depend on each other.
    """
    if math.inf in counts:
        return math.inf
    known: dict[frozenset[int], float] = {}
    work = 0

    def product(subset: frozenset[int]) -> float:
        total: float = 1
        for component in _components(subset, needs):
            total = _bounded(total * number(component))
            if total == math.inf:
                return total
        return total

    def number(component: frozenset[int]) -> float:
        nonlocal work
        if len(component) == 1:
            return _bounded(counts[min(component)])
        if component not in known:
            work += len(component)
            known[component] = (
                math.inf if work > _WORK else _bounded(by_value(component))
            )
        return known[component]

    def by_value(component: frozenset[int]) -> float:
        dependents = Counter(
            parent
            for variable in component
            for parent in needs[variable]
            if parent in component
        )
        root = max(
            (
                variable
                for variable in component
                if component.isdisjoint(needs[variable])
            ),
            key=lambda variable: (dependents[variable], -variable),
        )
        below = [variable for variable in component if root in needs[variable]]
        kinds = list({needs[variable][root] for variable in below})
        named = frozenset().union(*kinds)
        patterns = Counter(
            frozenset(i for i, kind in enumerate(kinds) if index in kind)
            for index in named
        )
        patterns[frozenset()] += int(counts[root]) - len(named)
        total: float = 0
        for pattern, times in patterns.items():
            if times:
                accepted = {kinds[i] for i in pattern}
                inactive = {
                    variable
                    for variable in below
                    if needs[variable][root] not in accepted
                }
                total = _bounded(
                    total + times * product(component - inactive - {root})
                )
        return total

    try:
        return product(frozenset(range(len(counts))))
    except RecursionError:  # hundreds of variables that one depends on
        return math.inf


def _bounded(number: float) -> float:
    return math.inf if number > LARGEST else number


def _components(
    variables: frozenset[int], needs: Sequence[dict[int, frozenset[int]]]
) -> Iterator[frozenset[int]]:
    """Yield the sets of variables that are connected by their dependences."""
    neighbors: dict[int, set[int]] = {variable: set() for variable in variables}
    for variable in variables:
        for parent in needs[variable].keys() & variables:
            neighbors[variable].add(parent)
            neighbors[parent].add(variable)
    left = set(variables)
    while left:
        component = set[int]()
        ahead = [left.pop()]
        while ahead:
            variable = ahead.pop()
            component.add(variable)
            ahead += neighbors[variable] & left
            left -= neighbors[variable]
        yield frozenset(component)
