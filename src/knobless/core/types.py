"""Types of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# Int8 for bits, int16 or int32 for choices, float64 with numbers
Points = NDArray[Any]
Words = NDArray[np.uint32]
Mask = NDArray[np.bool_]  # which points, variables or rows
Indices = NDArray[np.intp]
