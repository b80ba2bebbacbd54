"""Families of distributions over points, from which algorithms sample.

The family of a space is `Space.family`. Algorithms take a family; recipes also take a space.
"""

from knobless.core.conditional import Condition, Conditional
from knobless.core.families import (
    Bernoulli,
    Categorical,
    ColumnFamily,
    Family,
    Product,
)
from knobless.core.gaussian import Axis, Gaussian
from knobless.core.subset import ConditionalBernoulli

__all__ = [
    "Axis",
    "Bernoulli",
    "Categorical",
    "ColumnFamily",
    "Condition",
    "Conditional",
    "ConditionalBernoulli",
    "Family",
    "Gaussian",
    "Product",
]
