"""Conditional variables as a user declares them: `variable.when(name=values)`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from knobless._checks import suggests

from .options import alike

MOST_VALUES = 10**4  # of one condition
CALL = "variable.when(kernel='rbf') or variable.when(n_layers=(2, 3))"


class Inactive(Enum):
    """Type of the marker of an inactive variable, where every variable has an entry."""

    INACTIVE = "–"

    def __str__(self) -> str:
        return self.value


INACTIVE = Inactive.INACTIVE


@dataclass(frozen=True, eq=False, repr=False)
class When:
    """A conditional variable or space, as `when` returns it.

    Parameters
    ----------
    of
        The variable, space, or list or dict of variables.
    conditions : tuple of pairs
        Name of another variable, and the values of it for which this one is active.
    """

    of: Any
    conditions: tuple[tuple[str, tuple[Any, ...]], ...]

    @suggests("when", CALL)
    def when(self, /, **conditions: Any) -> When:
        """Return this as a conditional variable, active for some values of other variables.

        Parameters
        ----------
        **conditions
            One value or several values of each named variable.

        Raises
        ------
        ValueError
            If there is a condition on this name already.
        """
        for name, _ in self.conditions:
            if name in conditions:
                raise ValueError(
                    f"when: {name}: expected one condition, got two: {self!r} and "
                    f"{conditions[name]!r}"
                )
        return When(self.of, self.conditions + conditions_of(conditions))

    def __eq__(self, other: object) -> bool:
        if (
            not isinstance(other, When)
            or len(self.conditions) != len(other.conditions)
            or self.of != other.of
        ):
            return False
        values = dict(other.conditions)
        return all(
            name in values and _same(mine, values[name])
            for name, mine in self.conditions
        )

    def __hash__(self) -> int:
        return hash(frozenset(name for name, _ in self.conditions))

    def __repr__(self) -> str:
        of = (
            f"Space.of({self.of!r})"
            if isinstance(self.of, (dict, list))
            else repr(self.of)
        )
        conditions = [
            f"{name}={shown_values(values)}" for name, values in self.conditions
        ]
        return f"{of}.when({', '.join(conditions)})"


@suggests("when", CALL)
def when(self: Any, /, **conditions: Any) -> When:
    """Return this as a conditional variable, active for some values of other variables.

    Parameters
    ----------
    **conditions
        By the name of another variable, the value for which this one is active; or a tuple, list,
        set or range of values. Several names mean that all conditions must hold.

    Returns
    -------
    When
        The conditional variable, which a `Space` takes like any other.

    Raises
    ------
    ValueError
        If there is no condition, or one without values.

    Notes
    -----
    The other variable is a `Choice`, an `Integer` or a ``Binary(1)``. Its name is looked up in the
    same space, then in the spaces around it; if it is inactive itself, so is this one. Points have
    the keys of active variables only. An option that is a tuple is written as ``when(name=[(1,
    2)])``.

    Examples
    --------
    >>> import knobless as kl
    >>> kl.Integer(2, 5).when(kernel="poly")
    Integer(2, 5).when(kernel='poly')
    """
    return When(self, conditions_of(conditions))


def conditions_of(
    conditions: dict[str, Any],
) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return names and values of conditions, given by name as `when` takes them."""
    if not conditions:
        raise ValueError(
            "when: expected at least one condition, such as when(kernel='rbf'), got none"
        )
    return tuple(
        (name, _values(name, values)) for name, values in conditions.items()
    )


def _values(name: str, values: Any) -> tuple[Any, ...]:
    """Return the values of a condition: those of a tuple, list, set or range, or else one."""
    if not isinstance(values, (tuple, list, set, frozenset, range)):
        return (values,)
    if not values:
        raise ValueError(
            f"when: {name}: expected at least one value, got {values!r}"
        )
    if len(values) > MOST_VALUES:
        raise ValueError(
            f"when: {name}: expected at most {MOST_VALUES} values, got {len(values)}"
        )
    return tuple(values)


def shown_values(values: tuple[Any, ...]) -> str:
    """Return the values of a condition as `when` takes them."""
    single = len(values) == 1 and not isinstance(
        values[0], (tuple, list, set, frozenset, range)
    )
    if single:
        return repr(values[0])
    if len(values) == 1:
        return repr(list(values))
    return repr(values)


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Return whether two conditions have the same values, in any order."""
    return all(any(alike(x, y) for y in b) for x in a) and all(
        any(alike(x, y) for x in a) for y in b
    )
