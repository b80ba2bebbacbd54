"""Every algorithm as a recipe over the values of `core`, and which one is recommended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from knobless.core.adaptation import SNR, Fixed, samples, steps
from knobless.core.algorithm import Algorithm
from knobless.core.elitism import LastBest
from knobless.core.families import Family
from knobless.core.p3 import P3
from knobless.core.portfolio import Portfolio
from knobless.core.preferences import Quartiles, Truncation
from knobless.space.space import Space

from ._checks import positive_int, positive_real
from .core.igo import IGO


def family_of(space: Any) -> Family:
    """Recipes take a family, or anything that is a space."""
    return space if isinstance(space, Family) else Space.of(space).family


def pbil_lambda(space: Any) -> IGO:
    """PBIL-λ, the paper's proposal and the default here: ε = n^-½ and as many samples as the signal needs."""
    return _parameterless(family_of(space), samples)


def pbil_epsilon(space: Any) -> IGO:
    """PBIL-ε: two samples an iteration and steps as short as the signal needs."""
    return _parameterless(family_of(space), steps)


def _parameterless(family: Family, spend: Callable[[float, int], tuple[int, float]]) -> IGO:
    """The paper's defaults, which depend on n alone."""
    n = family.dim
    return IGO(family, Quartiles(), SNR(eps=n**-0.5, lam_max=max(n, 2), spend=spend))


def cga(space: Any, eps: float | None = None) -> IGO:
    """The compact genetic algorithm: two samples and a fixed step, 1/n as usual."""
    family = family_of(space)
    return IGO(family, Quartiles(), Fixed(lam=2, eps=1.0 / family.dim if eps is None else eps))


def umda(space: Any, lam: int, mu: int) -> IGO:
    """The univariate marginal distribution algorithm: θ becomes the mean of the best μ of λ samples."""
    return pbil(space, lam, mu, 1.0)


def pbil(space: Any, lam: int, mu: int, eps: float) -> IGO:
    """Population-based incremental learning: θ moves by ε towards the mean of the best μ of λ samples."""
    if positive_int("mu", mu) >= positive_int("lam", lam, least=2):
        raise ValueError(f"mu: expected fewer than lam = {lam}, got {mu}")
    if positive_real("eps", eps) > 1.0:
        raise ValueError(f"eps: expected a number in (0, 1], got {eps}")
    return IGO(family_of(space), Truncation(mu), Fixed(lam, eps))


def pbil_elitist(space: Any) -> IGO:
    """PBIL-λ with a survivor: the best point of an iteration takes part in the next one."""
    return replace(pbil_lambda(space), elitism=LastBest())


def p3(space: Any) -> P3:
    """The parameter-less population pyramid, over bits and choices."""
    return P3(family_of(space))


def portfolio(space: Any) -> Portfolio:
    """P3, which finds what belongs together, and PBIL-λ with a survivor, which sees through ruggedness, by turns."""
    family = family_of(space)
    return Portfolio((P3(family), pbil_elitist(family)))


def recommended(family: Family, deterministic: bool) -> Algorithm:
    """What is taken where nobody has said: PBIL-λ; where equal points have equal values, a portfolio.

    P3 exchanges options, which numbers have not: with numbers among the variables it is PBIL-λ with a survivor alone.
    """
    if not deterministic:
        return pbil_lambda(family)
    return portfolio(family) if family.options.all() else pbil_elitist(family)
