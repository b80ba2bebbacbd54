"""Named algorithms as expressions over the values of `knobless.core`, and the recommended one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from knobless.core.adaptation import SNR, Fixed, samples, steps
from knobless.core.algorithm import Member
from knobless.core.bayesian_portfolio import MOST_BITS, BayesianPortfolio
from knobless.core.branch_search import BranchSearch
from knobless.core.conditional import Conditional
from knobless.core.coordinate_search import CoordinateSearch
from knobless.core.elitism import LastBest
from knobless.core.evolution import Evolution
from knobless.core.families import Family
from knobless.core.guided_portfolio import GuidedPortfolio
from knobless.core.linear import SMALL, LinearThompson
from knobless.core.noisy_portfolio import NoisyPortfolio
from knobless.core.p3 import P3
from knobless.core.portfolio import Portfolio
from knobless.core.preferences import Quartiles, Truncation
from knobless.core.quadratic import PARTS
from knobless.core.quadratic_portfolio import QuadraticPortfolio
from knobless.space.space import Space

from ._checks import positive_int, positive_real
from .core.igo import IGO

EQUAL_TURNS = 8  # evaluations of P3 and of the genetic algorithm per free parameter, until one of them leads
LINEAR_LIMIT = 300  # free parameters up to which the linear model is used


def family_of(space: Any) -> Family:
    """Return the family of a space, or a family as it is."""
    return space if isinstance(space, Family) else Space.of(space).family


def pbil_lambda(space: Any) -> IGO:
    """PBIL-λ of the paper: ε = n^-½ and an adaptive sample size.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.

    Returns
    -------
    IGO

    Examples
    --------
    >>> import knobless as kl
    >>> algorithm = kl.pbil_lambda(kl.Binary(100))
    >>> algorithm.adaptation.eps
    0.1
    """
    return _parameterless(family_of(space), samples)


def pbil_epsilon(space: Any) -> IGO:
    """PBIL-ε of the paper: two samples per iteration and an adaptive step length.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.

    Returns
    -------
    IGO
    """
    return _parameterless(family_of(space), steps)


def _parameterless(family: Family, spend: Callable[[float, int], tuple[int, float]]) -> IGO:
    """Return PBIL with the settings of the paper, which depend on n alone."""
    n = family.dim
    return IGO(family, Quartiles(), SNR(eps=n**-0.5, lam_max=max(n, 2), spend=spend))


def cga(space: Any, eps: float | None = None) -> IGO:
    """Compact genetic algorithm: two samples and a fixed step.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.
    eps : float, optional
        Step length; 1/n by default.

    Returns
    -------
    IGO
    """
    family = family_of(space)
    return IGO(family, Quartiles(), Fixed(lam=2, eps=1.0 / family.dim if eps is None else eps))


def umda(space: Any, lam: int, mu: int) -> IGO:
    """Univariate marginal distribution algorithm: θ becomes the mean of the best μ of λ samples.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.
    lam : int
        Samples per iteration.
    mu : int
        Selected samples, fewer than `lam`.

    Returns
    -------
    IGO

    Raises
    ------
    ValueError
        If `mu` or `lam` is out of range.
    """
    return pbil(space, lam, mu, 1.0)


def pbil(space: Any, lam: int, mu: int, eps: float) -> IGO:
    """Population-based incremental learning: θ moves by ε towards the mean of the best μ of λ samples.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.
    lam : int
        Samples per iteration.
    mu : int
        Selected samples, fewer than `lam`.
    eps : float
        Step length in (0, 1].

    Returns
    -------
    IGO

    Raises
    ------
    ValueError
        If `mu`, `lam` or `eps` is out of range.
    """
    if positive_int("mu", mu) >= positive_int("lam", lam, least=2):
        raise ValueError(f"mu: expected fewer than lam = {lam}, got {mu}")
    if positive_real("eps", eps) > 1.0:
        raise ValueError(f"eps: expected a number in (0, 1], got {eps}")
    return IGO(family_of(space), Truncation(mu), Fixed(lam, eps))


def pbil_elitist(space: Any) -> IGO:
    """PBIL-λ with elitism: the best point of an iteration takes part in the next one.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.

    Returns
    -------
    IGO
    """
    return replace(pbil_lambda(space), elitism=LastBest())


def p3(space: Any) -> P3:
    """Parameter-less population pyramid, for deterministic objectives over bits, choices and subsets.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.

    Returns
    -------
    P3

    Raises
    ------
    TypeError
        If the space contains numbers.
    """
    return P3(family_of(space))


def linear_thompson(space: Any) -> LinearThompson:
    """Thompson sampling with a linear model of all evaluations, for few evaluations of a noisy objective.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.

    Returns
    -------
    LinearThompson

    Notes
    -----
    The cost of an evaluation grows with the square of the number of free parameters; use it up to some hundreds.

    Examples
    --------
    >>> import knobless as kl
    >>> kl.linear_thompson(kl.Binary(30))
    LinearThompson(family=Bernoulli(n=30, p=0.5, total=None), batch=1)
    """
    return LinearThompson(family_of(space))


def noisy_portfolio(space: Any) -> NoisyPortfolio | IGO:
    """Linear Thompson sampling at first, then in turns with PBIL-λ, for noisy objectives.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.

    Returns
    -------
    NoisyPortfolio or IGO
        PBIL-λ alone above 300 free parameters, where the linear model takes too much time.

    Examples
    --------
    >>> import knobless as kl
    >>> kl.noisy_portfolio(kl.Binary(301)) == kl.pbil_lambda(kl.Binary(301))
    True
    """
    family = family_of(space)
    loop = pbil_lambda(family)
    return NoisyPortfolio(linear_thompson(family), loop) if family.dim <= LINEAR_LIMIT else loop


def portfolio(space: Any) -> Portfolio | GuidedPortfolio | QuadraticPortfolio | BayesianPortfolio:
    """Portfolio of P3, which learns dependencies between variables, and a genetic algorithm, for rugged objectives.

    Over bits alone, a quadratic objective is determined, and its model minimized. The first evaluations of few bits are
    those of Bayesian optimization. Choices are searched by a climb that is guided by a model at first. With subsets,
    elitist PBIL-λ takes the place of the genetic algorithm. With numbers among the variables, which neither supports,
    it is a portfolio of the coordinate search and elitist PBIL-λ.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.

    Returns
    -------
    Portfolio, GuidedPortfolio, QuadraticPortfolio or BayesianPortfolio
        With a guided climb if a variable has more than two options, up to 50 free parameters and without subsets or
        numbers; with the test for quadratic objectives if all variables have two options, at least three of them, and
        with Bayesian optimization before it up to 50.

    Raises
    ------
    TypeError
        If the space contains conditional variables.
    """
    family = family_of(space)
    if not family.options.all():
        return Portfolio((CoordinateSearch(family), pbil_elitist(family)))
    # On subsets the genetic algorithm, whose crossings need further changes to restore the size, was worse.
    if family.size_bounds:
        return Portfolio((P3(family), pbil_elitist(family)))
    both = Portfolio((P3(family), Evolution(family)), equal=EQUAL_TURNS * family.dim)
    if family.options.max() == 2:
        if family.variables < PARTS:
            return both
        later = QuadraticPortfolio(both)
        return BayesianPortfolio(later) if family.variables <= MOST_BITS else later
    return GuidedPortfolio(LinearThompson(family), both) if family.dim <= SMALL else both


def branch_search(space: Any) -> BranchSearch:
    """Search the branches of a conditional space in turns, for deterministic objectives.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search; with conditional variables.

    Returns
    -------
    BranchSearch

    Raises
    ------
    TypeError
        If the space has no conditional variables.

    Notes
    -----
    The search begins with elitist PBIL-λ over the whole space and, up to 300 free parameters, Thompson sampling with a
    linear model. Then each branch is searched by the portfolio of elitist PBIL-λ and P3, or the coordinate search for
    branches with numbers.
    """
    loop = pbil_elitist(space)
    linear = linear_thompson(loop.family) if loop.family.dim <= LINEAR_LIMIT else None
    return BranchSearch(loop, linear, deterministic=True)


def constrained(family: Family) -> Member | None:
    """Return the algorithm for deterministic objectives over bits and choices with constraints.

    Parameters
    ----------
    family : Family
        Family of the points.

    Returns
    -------
    Member or None
        A genetic algorithm, above 300 free parameters in a portfolio with elitist PBIL-λ. None for a family with
        numbers or conditional variables.
    """
    if isinstance(family, Conditional) or not family.options.all():
        return None
    evolution = Evolution(family)
    return evolution if family.dim <= LINEAR_LIMIT else Portfolio((evolution, pbil_elitist(family)))


def recommended(family: Family, deterministic: bool, is_constrained: bool = False) -> Member:
    """Return the algorithm that is used if none is given.

    Parameters
    ----------
    family : Family
        Family of the points.
    deterministic : bool
        Whether equal points have equal values.
    is_constrained : bool
        Whether some points are infeasible and repaired.

    Returns
    -------
    Algorithm
        For noisy objectives linear Thompson sampling, later in turns with PBIL-λ; for deterministic ones the portfolio
        of P3 and a genetic algorithm, with numbers that of the coordinate search and elitist PBIL-λ, or the search of
        branches with conditional variables. With constraints, bits and choices are searched by a genetic algorithm
        (`constrained`), because a repair changes the groups of variables that P3 exchanges, and spaces with numbers by
        elitist PBIL-λ.

    Notes
    -----
    A run for which it is not stated whether the objective is deterministic begins with the algorithm for deterministic
    objectives, and changes to the other one if it finds noise.
    """
    if not deterministic:
        return noisy_portfolio(family)
    if isinstance(family, Conditional):
        return replace(branch_search(family), deterministic=not is_constrained)
    if is_constrained:
        return constrained(family) or pbil_elitist(family)
    return portfolio(family)
