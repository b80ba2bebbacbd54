"""Quadratic costs: QUBO, given by a matrix, and Max-Cut, given by the edges of a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knobless._checks import positive_int, real
from knobless.core.types import Array

from .answers import InstanceProblem, as_whole
from .problem import BLOCK_ROWS, BitArray, Flat, frozen, in_blocks, weigh
from .sparse import read_edges, read_matrix
from .text import TextSource

if TYPE_CHECKING:
    from knobless.fast.gains import Structure

Terms = tuple[NDArray[np.intp], NDArray[np.intp], Array]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Qubo(InstanceProblem):
    """Quadratic unconstrained binary optimization: x'Qx = Σ_i Σ_j Q_ij x_i x_j.

    Parameters
    ----------
    matrix : array_like
        The square matrix Q, symmetric or not; the diagonal and both triangles count.
    optimum : float, optional
        The smallest cost, if it is known.
    """

    matrix: Array
    optimum: float | None = None
    n: int = field(init=False)

    def __init__(self, matrix: ArrayLike, optimum: float | None = None) -> None:
        matrix = frozen(np.asarray(matrix, dtype=np.float64))
        if (
            matrix.ndim != 2
            or matrix.shape[0] != matrix.shape[1]
            or not matrix.size
        ):
            raise ValueError(
                f"Qubo: matrix: expected a square matrix, got an array of shape {matrix.shape}"
            )
        if not np.isfinite(matrix).all():
            raise ValueError(
                "Qubo: matrix: expected finite numbers, got NaN or infinity"
            )
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "n", len(matrix))
        object.__setattr__(
            self,
            "optimum",
            None if optimum is None else real("Qubo: optimum", optimum),
        )

    @classmethod
    def read(cls, source: TextSource, optimum: float | None = None) -> Self:
        """Read a Biq Mac file, or a qbsolv file (.qubo), which has a p line.

        Parameters
        ----------
        source : path or binary file
            The file; it may be compressed by gzip, xz or bzip2.
        optimum : float, optional
            The smallest cost, if it is known.

        Raises
        ------
        ValueError
            If the file is malformed; the message names the line.

        Notes
        -----
        Biq Mac: `n m`, then m lines `i j q` counted from 1; an off-diagonal q is Q_ij and Q_ji, so
        that it counts twice. qbsolv: `p qubo 0 n DIAGONAL OFFDIAGONAL`, then as many lines `i j q`
        counted from 0, which count once. A duplicate entry is an error. Lines that begin with c or
        # are comments.
        """
        return cls(read_matrix(source), optimum)

    def __repr__(self) -> str:
        return f"Qubo(n={self.n}, {np.count_nonzero(self.matrix)} entries)"

    @cached_property
    def _terms(self) -> Terms:
        upper = np.triu(self.matrix) + np.tril(self.matrix, -1).T
        i, j = np.nonzero(upper)
        return i, j, upper[i, j]

    @cached_property
    def _whole(self) -> bool:
        """Whether all sums of the entries are exact integers, so that products do not round."""
        return bool(
            (self.matrix == np.rint(self.matrix)).all()
            and np.abs(self.matrix).sum() < 2.0**53
        )

    def costs(self, x: BitArray) -> Array:
        if self._whole:
            # Few rows at a time: for more, BLAS starts threads, which take longer than a matrix
            # this small.
            return in_blocks(
                self._products, x, min(self.n**2, BLOCK_ROWS // 16)
            )
        return in_blocks(self._sums, x, 16 * len(self._terms[0]))

    def _products(self, x: BitArray) -> Array:
        rows = x.astype(np.float64)
        return ((rows @ self.matrix) * rows).sum(axis=1)

    def _sums(self, x: BitArray) -> Array:
        i, j, q = self._terms
        columns = np.ascontiguousarray(x.T)
        return weigh(q, columns.take(i, axis=0) & columns.take(j, axis=0))

    def flat(self) -> Flat:
        ints, reals = _compressed(self.n, *self._terms)
        return "quadratic" if self._whole else "quadratic_in_order", ints, reals

    def structure(self) -> Structure:
        from knobless.fast.gains import Structure

        i, j, q = self._terms
        off = i != j
        return Structure.of_products(
            np.bincount(i[~off], q[~off], self.n), i[off], j[off], q[off]
        )

    @property
    def kind(self) -> str:
        return "QUBO"

    @property
    def size(self) -> str:
        return f"{self.n} variables"

    @property
    def largest_sum(self) -> float:
        with np.errstate(over="ignore"):
            return float(np.abs(self.matrix).sum())


@dataclass(frozen=True, init=False, eq=False, repr=False)
class MaxCut(InstanceProblem):
    """Max-Cut: minus the total weight of the edges between vertices whose bits differ.

    Parameters
    ----------
    edges : array_like
        Pairs of vertices, counted from 0; parallel edges add up.
    weights : array_like, optional
        One weight per edge. The default is 1.
    n : int, optional
        Number of vertices. By default, the edges determine it.
    optimum : float, optional
        Minus the weight of the largest cut, if it is known.
    """

    edges: NDArray[np.intp]
    weights: Array
    n: int
    optimum: float | None = None

    def __init__(
        self,
        edges: ArrayLike,
        weights: ArrayLike | None = None,
        n: int | None = None,
        optimum: float | None = None,
    ) -> None:
        pairs = np.asarray(edges)
        if (
            pairs.ndim != 2
            or pairs.shape[1] != 2
            or not np.issubdtype(pairs.dtype, np.integer)
        ):
            raise ValueError(
                f"MaxCut: edges: expected pairs of integers, got {pairs.dtype} of shape "
                f"{pairs.shape}"
            )
        if len(pairs) and pairs.min() < 0:
            raise ValueError(
                f"MaxCut: edges: expected vertices counted from 0, got {pairs.min()}"
            )
        if (pairs[:, 0] == pairs[:, 1]).any():
            loop = pairs[pairs[:, 0] == pairs[:, 1]][0, 0]
            raise ValueError(
                f"MaxCut: edges: expected two different vertices, got {loop} with itself"
            )
        named = int(pairs.max()) + 1 if len(pairs) else 0
        n = positive_int("MaxCut: n", named if n is None else n)
        if n < named:
            raise ValueError(
                f"MaxCut: n: expected at least {named}, as many vertices as the edges name, got {n}"
            )
        w = (
            np.ones(len(pairs))
            if weights is None
            else np.asarray(weights, dtype=np.float64)
        )
        if w.shape != (len(pairs),) or not np.isfinite(w).all():
            raise ValueError(
                f"MaxCut: weights: expected {len(pairs)} finite numbers, one per edge, got {w}"
            )
        object.__setattr__(self, "edges", frozen(pairs.astype(np.intp)))
        object.__setattr__(self, "weights", frozen(w))
        object.__setattr__(self, "n", n)
        object.__setattr__(
            self,
            "optimum",
            None if optimum is None else real("MaxCut: optimum", optimum),
        )

    @classmethod
    def read(cls, source: TextSource, optimum: float | None = None) -> Self:
        """Read a graph in the format of rudy, G-set and Biq Mac.

        Parameters
        ----------
        source : path or binary file
            The file; it may be compressed by gzip, xz or bzip2.
        optimum : float, optional
            Minus the weight of the largest cut, if it is known.

        Raises
        ------
        ValueError
            If the file is malformed; the message names the line.

        Notes
        -----
        `n m`, then m lines `i j w` with vertices counted from 1; a line `i j` is an edge of weight
        1. Lines that begin with c or # are comments.
        """
        return cls(*read_edges(source), optimum)

    def __repr__(self) -> str:
        return f"MaxCut(n={self.n}, {len(self.edges)} edges)"

    def costs(self, x: BitArray) -> Array:
        return in_blocks(self._cuts, x, 16 * len(self.edges))

    def _cuts(self, x: BitArray) -> Array:
        columns = np.ascontiguousarray(x.T)
        return -weigh(
            self.weights,
            columns.take(self.edges[:, 0], axis=0)
            ^ columns.take(self.edges[:, 1], axis=0),
        )

    def flat(self) -> Flat:
        """Return the edges in the order in which costs are added, so that both round alike.

        Returns
        -------
        tuple of str, array and array
            Name of the kernel, its integers and its reals.
        """
        return "max_cut", self.edges.astype(np.int64).ravel(), self.weights

    def structure(self) -> Structure:
        from knobless.fast.gains import Structure

        i, j = self.edges.T  # an edge is cut for x_i + x_j - 2 x_i x_j = 1
        linear = -np.bincount(
            self.edges.ravel(), np.repeat(self.weights, 2), self.n
        )
        return Structure.of_products(linear, i, j, 2.0 * self.weights)

    @property
    def kind(self) -> str:
        return "Max-Cut"

    @property
    def size(self) -> str:
        return f"{self.n} vertices, {len(self.edges)} edges"

    @property
    def largest_sum(self) -> float:
        with np.errstate(over="ignore"):
            return float(np.abs(self.weights).sum())

    def value_of(self, x: BitArray, cost: float) -> float | None:
        return as_whole(-cost)

    def cost_of(self, target: float | None) -> float | None:
        return None if target is None else -target


def _compressed(
    n: int, i: NDArray[np.intp], j: NDArray[np.intp], q: Array
) -> tuple[NDArray[np.int64], Array]:
    """Return Σ q x_i x_j over i ≤ j in compressed rows.

    The result has the starts of the rows (n + 1 numbers), then the columns.

    The reals are the diagonal (n numbers), then the values of the columns.
    """
    off = i != j
    diagonal = np.bincount(i[~off], q[~off], n)
    order = np.lexsort((j[off], i[off]))
    starts = np.concatenate([[0], np.cumsum(np.bincount(i[off], minlength=n))])
    ints = np.concatenate([starts, j[off][order]]).astype(np.int64)
    return ints, np.concatenate([diagonal, q[off][order]])
