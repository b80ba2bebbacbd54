"""Types of the arrays that all of `core` shares."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Points = NDArray[Any]  # int8 for bits, int16 for choices, float64 as soon as a number is among them
Words = NDArray[np.uint32]
