"""What every problem is: a frozen value of n bits that is called with points and answers with costs.

A concrete problem writes `costs`, for int8 rows; `Problem` turns what a caller has into such rows, and one
point into one float. Problems whose cost adds up weights share `weigh`, and all take their rows in blocks
where the work array would otherwise be large.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knobless.core.types import Array
from knobless.space.variables import Binary

BitArray = NDArray[np.int8]
Flat = tuple[str, NDArray[np.int64], Array]

BLOCK = 2**19  # bytes of a work array: it stays in the cache, and a large batch takes no gigabytes
NO_INTS = np.empty(0, dtype=np.int64)
NO_REALS = np.empty(0)


class Problem(ABC):
    """A cost over n bits, always to be minimised.

    `problem(x)` is a float for one point, a 1-D array of zeros and ones, and an array of floats for a 2-D
    array with one row a point; a row's cost does not depend on the rows around it. int8 and bool are taken
    as they are, without a look at the entries; anything else is checked and copied.
    """

    n: int

    @property
    def optimum(self) -> float | None:
        """The least cost, where it is known."""
        return None

    @property
    def space(self) -> Binary:
        """Where the points live, as `minimize` wants it."""
        return Binary(self.n)

    def __call__(self, x: Any) -> Any:
        rows = bits(x, self.n)
        return float(self.costs(rows[None])[0]) if rows.ndim == 1 else self.costs(rows)

    def __knobless_compiled__(self) -> Any:
        """What marks an objective for the compiled engine; None for a problem without a kernel."""
        from knobless.fast import of_kernel

        return of_kernel(self.n, *self.flat()) if hasattr(self, "flat") else None

    @abstractmethod
    def costs(self, x: BitArray) -> Array:
        """The cost of each row of a C-contiguous int8 array of n columns."""


def bits(x: Any, n: int) -> BitArray:
    """`x` as a C-contiguous int8 array of one point or of rows of n."""
    x = np.asarray(x)
    if x.ndim not in (1, 2) or x.shape[-1] != n:
        raise ValueError(f"x: expected an array of {n} bits, or of rows of {n}, got the shape {x.shape}")
    if x.dtype == np.bool_:
        x = x.view(np.int8)
    elif x.dtype != np.int8:
        if not ((x == 0) | (x == 1)).all():
            raise ValueError(f"x: expected zeros and ones, got {x}")
        x = x.astype(np.int8)
    return np.ascontiguousarray(x)


def weigh(weights: Array, holds: NDArray[Any]) -> Array:
    """Σ of the weights of the terms that hold, for each point; `holds` has one row a term, one column a point.

    The terms are added one after the other, not by a matrix product: that rounds by where in the batch a
    point stands, and equal points must tie.
    """
    if not len(weights):
        return np.zeros(holds.shape[1])
    terms = weights[:, None] * holds
    # NumPy adds rows one after the other, but pairwise where there is only one column.
    return terms.cumsum(axis=0)[-1] if terms.shape[1] == 1 else terms.sum(axis=0)


def in_blocks(costs: Callable[[BitArray], Array], x: BitArray, width: int) -> Array:
    """`costs(x)`, for as many rows at a time as take up `BLOCK` where one takes `width` bytes of work."""
    size = max(8, BLOCK // max(width, 1))  # fewer would be dearer than the cache is worth
    if len(x) <= size:
        return costs(x)
    return np.concatenate([costs(x[i : i + size]) for i in range(0, len(x), size)])


def frozen(a: NDArray[Any]) -> NDArray[Any]:
    """A read-only C-contiguous copy, for a value to keep."""
    a = np.array(a, order="C")
    a.flags.writeable = False
    return a
