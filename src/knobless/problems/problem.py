"""The base class of problems: a frozen value that maps points of n bits to costs.

A concrete problem defines `costs` for int8 rows; `Problem` converts its argument to such rows, and
the cost of a single point to a float. Problems whose cost is a weighted sum share `weigh`, and all
process rows in blocks where the work array would otherwise be large.
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

BLOCK_ROWS = 2**19  # bytes of a work array, small enough for the cache
EMPTY_INTS = np.empty(0, dtype=np.int64)
EMPTY_REALS = np.empty(0)


class Problem(ABC):
    """A cost function over n bits, to be minimized.

    `problem(x)` is a float for one point, a 1-D array of zeros and ones, and an array of floats for
    a 2-D array with one row per point.

    Attributes
    ----------
    n : int
        Number of bits.
    optimum : float or None
        The smallest cost, if it is known.
    space : Binary
        The search space, for `minimize`.

    Notes
    -----
    The cost of a row does not depend on the other rows. int8 and bool arrays are used without a
    check of their entries; all others are checked and copied.
    """

    n: int

    @property
    def optimum(self) -> float | None:
        """The smallest cost, if it is known."""
        return None

    @property
    def space(self) -> Binary:
        """The search space, for `minimize`."""
        return Binary(self.n)

    def __call__(self, x: Any) -> Any:
        rows = bits(x, self.n)
        if rows.ndim == 1:
            return float(self.costs(rows[None])[0])
        return self.costs(rows)

    def __knobless_compiled__(self) -> Any:
        """Return the objective for the compiled engine; None for a problem without a kernel."""
        from knobless.fast import of_kernel

        return (
            of_kernel(self.n, *self.flat()) if hasattr(self, "flat") else None
        )

    @abstractmethod
    def costs(self, x: BitArray) -> Array:
        """Return the cost of each row of a C-contiguous int8 array of n columns.

        Parameters
        ----------
        x : array of shape (m, n)
            Points, one per row.
        """


def bits(x: Any, n: int) -> BitArray:
    """Return `x` as a C-contiguous int8 array: one point, or one row per point."""
    x = np.asarray(x)
    if x.ndim not in (1, 2) or x.shape[-1] != n:
        raise ValueError(
            f"x: expected an array of {n} bits, or of rows of {n}, got the shape {x.shape}"
        )
    if x.dtype == np.bool_:
        x = x.view(np.int8)
    elif x.dtype != np.int8:
        if not ((x == 0) | (x == 1)).all():
            raise ValueError(f"x: expected zeros and ones, got {x}")
        x = x.astype(np.int8)
    return np.ascontiguousarray(x)


def weigh(weights: Array, holds: NDArray[Any]) -> Array:
    """Return the sum of the weights of the terms that hold, for each point.

    `holds` has one row per term and one column per point. The terms are added in order, not by a
    matrix product, whose rounding depends on the position of a point in the batch: equal points
    must tie.
    """
    if not len(weights):
        return np.zeros(holds.shape[1])
    terms = weights[:, None] * holds
    # NumPy adds rows one after the other, but pairwise where there is only one column.
    return (
        terms.cumsum(axis=0)[-1] if terms.shape[1] == 1 else terms.sum(axis=0)
    )


def in_blocks(
    costs: Callable[[BitArray], Array], x: BitArray, width: int
) -> Array:
    """Return `costs(x)`, computed in blocks of rows.

    One row requires `width` bytes of work memory.
    """
    # Smaller blocks cost more than the cache saves
    size = max(8, BLOCK_ROWS // max(width, 1))
    if len(x) <= size:
        return costs(x)
    return np.concatenate(
        [costs(x[i : i + size]) for i in range(0, len(x), size)]
    )


def frozen(a: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only C-contiguous copy."""
    a = np.array(a, order="C")
    a.flags.writeable = False
    return a
