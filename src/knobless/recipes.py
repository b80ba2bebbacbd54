"""The algorithms beyond the paper as recipes, and which one is recommended.

Those of the paper are at the end of `igo.py`; what is here is made of the same loop, of `P3` and of `Team`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .algorithm import Algorithm
from .families import Family, Product
from .gaussian import Gaussian
from .igo import IGO, family_of, pbil_lambda
from .p3 import P3
from .survivors import LastBest
from .team import Team


def pbil_survivor(space: Any) -> IGO:
    """PBIL-λ with a survivor: the best point of an iteration takes part in the next one."""
    return replace(pbil_lambda(space), survivors=LastBest())


def p3(space: Any) -> P3:
    """The parameter-less population pyramid, over bits and choices."""
    return P3(family_of(space))


def team(space: Any) -> Team:
    """P3, which finds what belongs together, and PBIL-λ with a survivor, which sees through ruggedness, by turns."""
    family = family_of(space)
    return Team((P3(family), pbil_survivor(family)))


def recommended(family: Family, deterministic: bool) -> Algorithm:
    """What is taken where nobody has said: PBIL-λ; where equal points have equal values, a team.

    P3 exchanges options, which numbers have not: with numbers among the variables it is PBIL-λ with a survivor alone.
    """
    if not deterministic:
        return pbil_lambda(family)
    return pbil_survivor(family) if _has_numbers(family) else team(family)


def _has_numbers(family: Family) -> bool:
    parts = family.parts if isinstance(family, Product) else (family,)
    return any(isinstance(part, Gaussian) for part in parts)
