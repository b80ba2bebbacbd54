"""The catalog: which members search which space, by what is known about the objective."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .adaptation import SNR, samples
from .branches import Branches
from .conditional import Conditional
from .coordinate_search import CoordinateSearch
from .elitism import NO_ELITISM, Elitism, LastBest
from .evolution import Evolution
from .families import ColumnFamily, Family
from .igo import IGO
from .linear import LinearThompson
from .model import MOST_VARIABLES, Model
from .p3 import P3
from .pareto_evolution import ParetoEvolution
from .preferences import Quartiles
from .quadratic import PARTS
from .search import Members, Search, Stage
from .study import QuadraticStudy
from .turns import Lead, Shares

# Evaluations of P3 and of the genetic algorithm per free parameter, until one of them leads
EQUAL_TURNS = 8
LINEAR_LIMIT = 300  # free parameters up to which the linear model is used
# Evaluations per free parameter of a noisy objective before the loop begins
LINEAR_ALONE = 10
# Evaluations of the loop per evaluation of the linear search, under noise
LOOP_SHARE = 3
# Evaluations of the model in a space with numbers, and under noise with conditions
MODEL_ON_NUMBERS = 100
# Evaluations of the loop per branch, and of the linear search, before the turns of branches
PER_BRANCH = 5
ELITIST = LastBest()
# All members, which journals describe by the names of their classes.
MEMBERS: tuple[type[Any], ...] = (
    IGO,
    P3,
    Evolution,
    ParetoEvolution,
    CoordinateSearch,
    LinearThompson,
    Model,
    QuadraticStudy,
)


class Regime(NamedTuple):
    """What is known about an objective.

    Attributes
    ----------
    deterministic : bool
        Whether equal points have equal values.
    constrained : bool
        Whether some points are infeasible: they are repaired, or evaluations show violations.
    several : bool
        Whether there are several objectives.
    """

    deterministic: bool = True
    constrained: bool = False
    several: bool = False


DETERMINISTIC = Regime()


def loop(family: Family, elitism: Elitism = NO_ELITISM) -> IGO:
    """Return PBIL-λ with the settings of the paper, which depend on n alone."""
    n = family.dim
    return IGO(
        family,
        Quartiles(),
        SNR(eps=n**-0.5, lam_max=max(n, 2), spend=samples),
        elitism,
    )


@dataclass(frozen=True)
class PartMembers:
    """The members for the parts of a conditional space.

    Parameters
    ----------
    deterministic : bool
        Whether PBIL-λ shares the turns with P3, or the coordinate search for parts with numbers.
    elitism : Elitism
        Elitism of PBIL-λ.
    """

    deterministic: bool = True
    elitism: Elitism = ELITIST

    def __call__(self, family: Family) -> Members:
        """Return the members for the family of a part."""
        last = loop(family, self.elitism)
        if not self.deterministic or isinstance(family, Conditional):
            return (last,)
        return (
            P3(family) if family.options.all() else CoordinateSearch(family),
            last,
        )


def recommended(family: Family, regime: Regime = DETERMINISTIC) -> Search:
    """Return the search that is used if none is given, for a family and a regime."""
    # a custom one, which only the loop can search
    if not isinstance(family, ColumnFamily):
        elitism = ELITIST if regime.deterministic else NO_ELITISM
        return Search(
            (loop(family, elitism),), deterministic=regime.deterministic
        )
    if regime.several:
        return _several(family, regime)
    if not regime.deterministic:
        return _noisy(family)
    if isinstance(family, Conditional):
        return _conditional(family, regime)
    elitist = loop(family, ELITIST)
    stages: tuple[Stage, ...] = (
        (Stage(Model(family)),) if family.variables <= MOST_VARIABLES else ()
    )
    if regime.constrained:
        return replace(_constrained(family), stages=stages)
    if not family.options.all():
        # The last digits of numbers take the coordinate search fewer evaluations.
        stages = tuple(
            replace(stage, until=MODEL_ON_NUMBERS) for stage in stages
        )
        return Search((CoordinateSearch(family), elitist), stages=stages)
    # On subsets the genetic algorithm, whose crossings need further changes to restore the size,
    # was worse.
    if family.size_bounds:
        return Search((P3(family), elitist), stages=stages)
    study = (
        QuadraticStudy(family)
        if family.options.max() == 2 and family.variables >= PARTS
        else None
    )
    return Search(
        (P3(family), Evolution(family)),
        Lead(EQUAL_TURNS * family.dim),
        stages,
        study,
    )


def _several(family: ColumnFamily, regime: Regime) -> Search:
    """Return the genetic algorithm over the front, after the model if values are exact."""
    modeled = regime.deterministic and family.variables <= MOST_VARIABLES
    stages = (Stage(Model(family)),) if modeled else ()
    return Search(
        (ParetoEvolution(family),),
        stages=stages,
        deterministic=regime.deterministic,
    )


def _noisy(family: Family) -> Search:
    """Return the linear search, and after a while PBIL-λ in turns with it.

    With numbers or conditions, first the model.

    The linear search needs the fewest evaluations, but does not get further where a linear model
    cannot describe the objective. The loop therefore begins from where it has arrived, and gets
    three evaluations of four.
    """
    if family.dim > LINEAR_LIMIT:
        return Search((loop(family),), deterministic=False)
    linear = LinearThompson(family)
    stages: tuple[Stage, ...] = (Stage(linear, LINEAR_ALONE * family.dim),)
    # Over bits and choices alone, the linear search needs fewer evaluations.
    if family.variables <= MOST_VARIABLES and (
        isinstance(family, Conditional) or not family.options.all()
    ):
        stages = (Stage(Model(family), MODEL_ON_NUMBERS), *stages)
    return Search(
        (linear, loop(family)),
        Shares((1, LOOP_SHARE)),
        stages,
        deterministic=False,
    )


def _conditional(family: Conditional, regime: Regime) -> Search:
    """Return the search of a conditional space: the model, then turns among branches."""
    branches = in_branches(family, PartMembers(not regime.constrained))
    if branches.parts is None or family.variables > MOST_VARIABLES:
        return branches
    return replace(branches, stages=(Stage(Model(family)),))


def in_branches(
    family: Conditional, parts: PartMembers, deterministic: bool = True
) -> Search:
    """Return PBIL-λ over the whole space at first, then turns among branches.

    That is enough where a good branch is good on average. If no variable depends on a choice, it is
    PBIL-λ alone.
    """
    whole = loop(family, parts.elitism)
    k = len(Branches(family).each)
    if not k:
        return Search((whole,), deterministic=deterministic)
    return Search(
        stages=(Stage(whole, PER_BRANCH * k),),
        parts=parts,
        deterministic=deterministic,
    )


def after_violations(family: Family) -> Search | None:
    """Return the search to change to if many evaluations show violations.

    None if the search does not change.
    """
    # Of a custom family they are zeros
    if isinstance(family, Conditional) or not family.options.all():
        return None
    return recommended(family, Regime(constrained=True))


def _constrained(family: Family) -> Search:
    """Return a genetic algorithm: a repair changes the groups of variables that P3 exchanges.

    With numbers it is elitist PBIL-λ, above 300 free parameters both.
    """
    elitist = loop(family, ELITIST)
    if not family.options.all():
        return Search((elitist,))
    evolution = Evolution(family)
    return Search(
        (evolution,) if family.dim <= LINEAR_LIMIT else (evolution, elitist)
    )
