"""Points and results as plain data for JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .front import Front


def jsonable(value: Any) -> Any:
    """Return a value for JSON.

    Arrays are lists, numbers that are not finite are null, and other objects have their names.
    """
    match value:
        case None | bool() | int():
            return value
        case str():
            return str(value)
        case float():
            return value if math.isfinite(value) else None
        case np.ndarray() | np.generic():
            return jsonable(value.tolist())
        case dict():
            return {str(key): jsonable(item) for key, item in value.items()}
        case Front():
            return [jsonable(value.named(point)) for point in value]
        case tuple() if hasattr(value, "_asdict"):
            return jsonable(value._asdict())
        case list() | tuple():
            return [jsonable(item) for item in value]
    return str(value)
