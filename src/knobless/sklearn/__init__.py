"""Estimators for scikit-learn: `FeatureSelector`, and `SearchCV` for hyperparameters.

Both evaluate candidates by scikit-learn's cross-validation, on splits drawn once, so that the
objective, the negated mean score, is deterministic and each candidate is evaluated at most once.
The space of `SearchCV` follows from the parameter distributions that users of scikit-learn write
(`grid.py`).
"""

from knobless._checks import extra

with extra("sklearn"):
    from .search import SearchCV
    from .selector import FeatureSelector

__all__ = ["FeatureSelector", "SearchCV"]
