"""The sampler of knobless as a package of OptunaHub."""

from knobless.optuna import KnoblessSampler

__all__ = ["KnoblessSampler"]
