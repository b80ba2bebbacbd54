"""Optimization in PyTorch: of objectives in tensors, and of weights and architecture together.

`minimize` and `maximize` run the whole loop on the device of the points, for objectives that
evaluate many points at once; `Separable` and `weighted_sum` are objectives of up to millions of
bits.

`ArchitectureSearch` samples architectures and learns from their losses, on the device of the
weights; `train_epsilon` and `train_lambda` are the two training loops of the paper; `Residual`,
`Activations`, `Mixed` and `Architecture` build searchable networks, and `freeze` turns them into
plain ones. `data` has digits.
"""

from knobless._checks import extra

with extra("torch"):
    from .layers import Activations, Architecture, Mixed, Residual, Searchable
    from .loops import train_epsilon, train_lambda
    from .search import ArchitectureSearch
    from .separable import Separable, weighted_sum
    from .tensor_run import maximize, minimize

__all__ = [
    "Activations",
    "Architecture",
    "ArchitectureSearch",
    "Mixed",
    "Residual",
    "Searchable",
    "Separable",
    "maximize",
    "minimize",
    "train_epsilon",
    "train_lambda",
    "weighted_sum",
]
