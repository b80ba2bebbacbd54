"""knobless: black boxes over discrete choices, optimized without a single knob.

    import knobless as kl
    result = kl.minimize(fun, kl.Binary(100), budget=2000)

`minimize` and `Optimizer` are what most people need, with the variables of a `Space`. Below them lies the
paper's loop as a value, `IGO`, made of a family, a preference and an adaptation, and the recipes that name
its known forms. Beyond the paper, `P3` and `Team` are algorithms behind the same protocol.
"""

from .adaptation import SNR, Adaptation, Fixed, samples, steps
from .algorithm import Algorithm
from .candidates import Batch, Candidate
from .families import Bernoulli, Categorical, Family, Product
from .gaussian import Axis, Gaussian
from .igo import IGO, State, cga, pbil, pbil_epsilon, pbil_lambda, umda
from .journal import Journal, JournalError
from .minimize import maximize, minimize
from .optimizer import Evaluation, Info, Optimizer
from .p3 import P3
from .preferences import Preference, Quartiles, Truncation, Values
from .recipes import p3, pbil_survivor, team
from .result import History, Result, Status
from .snapshot import SnapshotError
from .space import Space
from .survivors import BestSoFar, Kept, LastBest, Nobody, Survivors
from .team import Team
from .variables import Binary, Choice, Float, Integer

__version__ = "0.1.0"

__all__ = [
    "IGO",
    "P3",
    "SNR",
    "Adaptation",
    "Algorithm",
    "Axis",
    "Batch",
    "Bernoulli",
    "BestSoFar",
    "Binary",
    "Candidate",
    "Categorical",
    "Choice",
    "Evaluation",
    "Family",
    "Fixed",
    "Float",
    "Gaussian",
    "History",
    "Info",
    "Integer",
    "Journal",
    "JournalError",
    "Kept",
    "LastBest",
    "Nobody",
    "Optimizer",
    "Preference",
    "Product",
    "Quartiles",
    "Result",
    "SnapshotError",
    "Space",
    "State",
    "Status",
    "Survivors",
    "Team",
    "Truncation",
    "Values",
    "cga",
    "maximize",
    "minimize",
    "p3",
    "pbil",
    "pbil_epsilon",
    "pbil_lambda",
    "pbil_survivor",
    "samples",
    "steps",
    "team",
    "umda",
]
