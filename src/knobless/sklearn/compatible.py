"""What scikit-learn 1.6 has made public, for version 1.5 too."""

from __future__ import annotations

from typing import Any

try:
    from sklearn.utils import get_tags
    from sklearn.utils.validation import validate_data
except ImportError:  # scikit-learn 1.5, which has the same under private names
    from types import SimpleNamespace

    from sklearn.utils._tags import _safe_tags

    def get_tags(estimator: Any) -> Any:
        """Return the tags of an estimator."""
        allow_nan = _safe_tags(estimator, key="allow_nan")
        return SimpleNamespace(input_tags=SimpleNamespace(allow_nan=allow_nan))

    def validate_data(
        estimator: Any, X: Any, *, ensure_all_finite: bool, **arguments: Any
    ) -> Any:
        """Return checked data, and store the number and the names of its features."""
        return estimator._validate_data(
            X, force_all_finite=ensure_all_finite, **arguments
        )


__all__ = ["get_tags", "validate_data"]
