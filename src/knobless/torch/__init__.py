"""Weights and architecture trained together in PyTorch.

`Search` samples architectures and learns from their losses on the device where the weights are; `train_epsilon` and
`train_lambda` are the paper's two loops around it; `Residual`, `Activations`, `Mixed` and `Architecture` build networks
whose parts are chosen, and `freeze` takes from them what was not. `data` has MNIST and digits to try it with.
"""

from .layers import Activations, Architecture, Mixed, Residual, Searchable
from .loops import train_epsilon, train_lambda
from .search import Search

__all__ = [
    "Activations",
    "Architecture",
    "Mixed",
    "Residual",
    "Search",
    "Searchable",
    "train_epsilon",
    "train_lambda",
]
