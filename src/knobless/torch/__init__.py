"""Joint training of weights and architecture in PyTorch.

`Search` samples architectures and learns from their losses, on the device of the weights; `train_epsilon` and
`train_lambda` are the two training loops of the paper; `Residual`, `Activations`, `Mixed` and `Architecture` build
searchable networks, and `freeze` turns them into plain ones. `data` has MNIST and digits.
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
