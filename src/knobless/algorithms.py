"""The parts of a search: algorithms, recipes, and the values that compose them.

    import knobless as kl
    kl.minimize(fun, space, budget=1000, algorithm=kl.algorithms.cga(space))

`knobless.families` has the distributions that algorithms sample.
"""

from knobless.core.adaptation import SNR, Adaptation, Fixed, samples, steps
from knobless.core.algorithm import Algorithm, AlgorithmInfo
from knobless.core.archive import Archive
from knobless.core.coordinate_search import CoordinateSearch
from knobless.core.elitism import BestSoFar, Elite, Elitism, LastBest, NoElitism
from knobless.core.evolution import Evolution
from knobless.core.igo import IGO, State
from knobless.core.linear import LinearThompson
from knobless.core.member import Member
from knobless.core.model import Model
from knobless.core.p3 import P3
from knobless.core.preferences import Preference, Quartiles, Truncation, Values
from knobless.core.search import Search, Stage
from knobless.core.study import QuadraticStudy
from knobless.core.turns import Lead, Shares
from knobless.recipes import (
    cga,
    linear_thompson,
    p3,
    pbil,
    pbil_elitist,
    pbil_epsilon,
    pbil_lambda,
    search,
    umda,
)

__all__ = [
    "IGO",
    "P3",
    "SNR",
    "Adaptation",
    "Algorithm",
    "AlgorithmInfo",
    "Archive",
    "BestSoFar",
    "CoordinateSearch",
    "Elite",
    "Elitism",
    "Evolution",
    "Fixed",
    "LastBest",
    "Lead",
    "LinearThompson",
    "Member",
    "Model",
    "NoElitism",
    "Preference",
    "QuadraticStudy",
    "Quartiles",
    "Search",
    "Shares",
    "Stage",
    "State",
    "Truncation",
    "Values",
    "cga",
    "linear_thompson",
    "p3",
    "pbil",
    "pbil_elitist",
    "pbil_epsilon",
    "pbil_lambda",
    "samples",
    "search",
    "steps",
    "umda",
]
