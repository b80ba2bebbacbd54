"""Named algorithms as expressions over the values of the core, and the recommended search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from knobless.core.adaptation import SNR, Fixed, samples, steps
from knobless.core.catalog import Regime, loop, recommended
from knobless.core.elitism import LastBest
from knobless.core.families import Family
from knobless.core.linear import LinearThompson
from knobless.core.p3 import P3
from knobless.core.preferences import Quartiles, Truncation
from knobless.core.search import Search
from knobless.space.space import Space

from ._checks import positive_int, positive_real
from .core.igo import IGO


def family_of(space: Any) -> Family:
    """Return the family of a space, or a family as it is."""
    return space if isinstance(space, Family) else Space.of(space).family


def pbil_lambda(space: Any) -> IGO:
    """PBIL-λ of the paper: ε = n^-½ and an adaptive sample size.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.

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
    """
    return _parameterless(family_of(space), steps)


def _parameterless(
    family: Family, spend: Callable[[float, int], tuple[int, float]]
) -> IGO:
    """Return PBIL with the settings of the paper, which depend on n alone."""
    n = family.dim
    return IGO(
        family, Quartiles(), SNR(eps=n**-0.5, lam_max=max(n, 2), spend=spend)
    )


def cga(space: Any, eps: float | None = None) -> IGO:
    """Compact genetic algorithm: two samples and a fixed step.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.
    eps : float, optional
        Step length; 1/n by default.
    """
    family = family_of(space)
    return IGO(
        family,
        Quartiles(),
        Fixed(lam=2, eps=1.0 / family.dim if eps is None else eps),
    )


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

    Raises
    ------
    ValueError
        If `mu` or `lam` is out of range.
    """
    return pbil(space, lam, mu, 1.0)


def pbil(space: Any, lam: int, mu: int, eps: float) -> IGO:
    """Population-based incremental learning: θ moves by ε towards the mean of the best μ points.

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
    """
    return loop(family_of(space), LastBest())


def p3(space: Any) -> P3:
    """Parameter-less population pyramid, for deterministic objectives without numbers.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.

    Raises
    ------
    TypeError
        If the space contains numbers.
    """
    return P3(family_of(space))


def linear_thompson(space: Any) -> Search:
    """Thompson sampling with a linear model, for few evaluations of a noisy objective.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.

    Notes
    -----
    The cost of an evaluation grows with the square of the number of free parameters; use it up to
    some hundreds.

    Examples
    --------
    >>> import knobless as kl
    >>> kl.algorithms.linear_thompson(kl.Binary(30)).members
    (LinearThompson(family=Bernoulli(n=30, p=0.5, total=None), batch=1),)
    """
    return Search((LinearThompson(family_of(space)),), deterministic=False)


def search(
    space: Any,
    deterministic: bool = True,
    constrained: bool = False,
    several: bool = False,
) -> Search:
    """Return the search that is used if no algorithm is given.

    Parameters
    ----------
    space : Space, Family, or anything `Space.of` takes
        What to search.
    deterministic : bool
        Whether equal points have equal values.
    constrained : bool
        Whether some points are infeasible.
    several : bool
        Whether there are several objectives.

    Returns
    -------
    Search
        For deterministic objectives over bits and choices, P3, which learns dependencies between
        variables, and a genetic algorithm, after Bayesian optimization over few bits or a climb
        that a model guides over few choices; a quadratic objective of bits is determined, and its
        model minimized. With subsets, elitist PBIL-λ takes the place of the genetic algorithm, and
        with numbers, which neither supports, it is the coordinate search and elitist PBIL-λ. With
        conditional variables, the branches are searched in turns. With constraints, bits and
        choices are searched by the genetic algorithm and numbers by elitist PBIL-λ. For noisy
        objectives it is linear Thompson sampling, later in turns with PBIL-λ. With several
        objectives it is Bayesian optimization and a genetic algorithm over the front.

    Notes
    -----
    A run for which it is not stated whether the objective is deterministic begins with the search
    for deterministic objectives, and changes to the other one if it finds noise.

    Examples
    --------
    >>> import knobless as kl
    >>> [type(member).__name__ for member in kl.search(kl.Binary(100)).members]
    ['P3', 'Evolution']
    """
    return recommended(
        family_of(space), Regime(deterministic, constrained, several)
    )
