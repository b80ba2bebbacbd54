"""Benchmark problems over bits: theory, spins, landscapes, MAX-SAT, QUBO, Max-Cut.

    from knobless.problems import MaxSat
    problem = MaxSat.read("uf100-01.cnf")
    result = kl.minimize(problem, problem.space, budget=100_000, target=0)

A problem is a frozen value: `n` bits, a `space`, an `optimum` if it is known, and a call that
returns the cost, to be minimized, of one point or of each row of an array (`vectorized=True`). All
but `NoisyOneMax` have `flat()`: the name of a kernel in `knobless.fast.kernels` and its data, for
the compiled engine.
"""

from .problem import Problem
from .pseudo_boolean import (
    BinVal,
    Jump,
    LeadingOnes,
    Linear,
    NoisyOneMax,
    OneMax,
    Traps,
)
from .quadratic import MaxCut, Qubo
from .sat import MaxSat
from .spins import LABS, NK, IsingRing, IsingTorus

__all__ = [
    "LABS",
    "NK",
    "BinVal",
    "IsingRing",
    "IsingTorus",
    "Jump",
    "LeadingOnes",
    "Linear",
    "MaxCut",
    "MaxSat",
    "NoisyOneMax",
    "OneMax",
    "Problem",
    "Qubo",
    "Traps",
]
