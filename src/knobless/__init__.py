"""Black-box optimization over discrete and mixed search spaces, without strategy parameters.

    import knobless as kl
    result = kl.minimize(fun, kl.Binary(100), budget=2000)

`minimize`, `maximize` and `Optimizer` optimize over the variables of a `Space`. They are built on the loop of the paper
as a value, `IGO`, made of a family, a preference and an adaptation; recipes such as `pbil_lambda` and `cga` are its
known forms. `P3`, `Evolution`, `CoordinateSearch`, `LinearThompson`, `BranchSearch`, `Portfolio`, `NoisyPortfolio`,
`BayesianPortfolio`, `GuidedPortfolio` and `QuadraticPortfolio` are further algorithms with the same protocol.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from knobless.core.adaptation import SNR, Adaptation, Fixed, samples, steps
from knobless.core.algorithm import Algorithm, AlgorithmInfo, Member
from knobless.core.bayesian_portfolio import BayesianPortfolio
from knobless.core.branch_search import BranchSearch
from knobless.core.conditional import Condition, Conditional
from knobless.core.coordinate_search import CoordinateSearch
from knobless.core.elitism import BestSoFar, Elite, Elitism, LastBest, NoElitism
from knobless.core.evolution import Evolution
from knobless.core.families import Bernoulli, Categorical, Family, Product
from knobless.core.gaussian import Axis, Gaussian
from knobless.core.guided_portfolio import GuidedPortfolio
from knobless.core.igo import IGO, State
from knobless.core.linear import LinearThompson
from knobless.core.noisy_portfolio import NoisyPortfolio
from knobless.core.p3 import P3
from knobless.core.portfolio import Portfolio
from knobless.core.preferences import Preference, Quartiles, Truncation, Values
from knobless.core.quadratic_portfolio import QuadraticPortfolio
from knobless.core.subset import ConditionalBernoulli
from knobless.journal.evaluations import EvaluationRecord, Evaluations
from knobless.journal.records import Journal, JournalError
from knobless.recipes import (
    branch_search,
    cga,
    linear_thompson,
    noisy_portfolio,
    p3,
    pbil,
    pbil_elitist,
    pbil_epsilon,
    pbil_lambda,
    portfolio,
    umda,
)
from knobless.run.arguments import PACKAGE_NAMES as _NAMES
from knobless.run.candidates import Batch, Candidate
from knobless.run.iteration import Info
from knobless.run.minimize import maximize, minimize
from knobless.run.optimizer import Evaluation, Optimizer
from knobless.run.result import History, Result, Status
from knobless.run.snapshot import SnapshotError
from knobless.space.space import Space
from knobless.space.subset import Subset
from knobless.space.variables import Binary, Choice, Float, Integer

__version__ = "0.1.0"

__all__ = [
    "IGO",
    "P3",
    "SNR",
    "Adaptation",
    "Algorithm",
    "AlgorithmInfo",
    "Axis",
    "Batch",
    "BayesianPortfolio",
    "Bernoulli",
    "BestSoFar",
    "Binary",
    "BranchSearch",
    "Candidate",
    "Categorical",
    "Choice",
    "Condition",
    "Conditional",
    "ConditionalBernoulli",
    "CoordinateSearch",
    "Elite",
    "Elitism",
    "Evaluation",
    "EvaluationRecord",
    "Evaluations",
    "Evolution",
    "Family",
    "Fixed",
    "Float",
    "Gaussian",
    "GuidedPortfolio",
    "History",
    "Info",
    "Integer",
    "Journal",
    "JournalError",
    "LastBest",
    "LinearThompson",
    "Member",
    "NoElitism",
    "NoisyPortfolio",
    "Optimizer",
    "Portfolio",
    "Preference",
    "Product",
    "QuadraticPortfolio",
    "Quartiles",
    "Result",
    "SnapshotError",
    "Space",
    "State",
    "Status",
    "Subset",
    "Truncation",
    "Values",
    "branch_search",
    "cga",
    "linear_thompson",
    "maximize",
    "minimize",
    "noisy_portfolio",
    "p3",
    "pbil",
    "pbil_elitist",
    "pbil_epsilon",
    "pbil_lambda",
    "portfolio",
    "samples",
    "steps",
    "umda",
]


if not _TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> None:
        """Raise the AttributeError of a missing name, with the name to use for one of another library."""
        hint = f": {_NAMES[name]}" if name in _NAMES else ""
        raise AttributeError(f"module 'knobless' has no attribute {name!r}{hint}")
