"""Objectives that are sums over tiles of the variables, without points stored as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from knobless._checks import positive_int

# Columns of a tile by default: one of some thousand rows is still in the cache of a GPU
TILE_WIDTH = 2**14


@dataclass(frozen=True, eq=False)
class Separable:
    """An objective over bits that is a sum of contributions of consecutive variables.

    Samples of such an objective are never stored: the update of the distribution draws them again.
    This allows for millions of variables.

    Parameters
    ----------
    partial : callable
        ``partial(points, columns)`` returns a tensor with one contribution per row of `points`, an
        int8 tensor of the variables in the slice `columns`.
    tiles : int or sequence of int, optional
        Width of a tile, or the width of each tile, such as the number of channels of each layer.
    total : callable, optional
        ``total(sums)`` returns the objective values from the sums of the contributions, a float64
        tensor; for an offset or noise, for example. By default the values are the sums.

    See Also
    --------
    weighted_sum : A weighted sum of the variables.

    Examples
    --------
    >>> import knobless as kl
    >>> from knobless.torch import Separable, minimize
    >>> ones = Separable(lambda points, columns: points.sum(1), tiles=8)
    >>> minimize(ones, kl.Binary(20), budget=1000, rng=0).fun
    0.0
    """

    partial: Callable[[Tensor, slice], Tensor]
    tiles: int | Sequence[int] = TILE_WIDTH
    total: Callable[[Tensor], Tensor] | None = None
    weights: Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for name, function in (
            ("partial", self.partial),
            ("total", self.total),
        ):
            if function is not None and not callable(function):
                raise TypeError(
                    f"{name}: expected a function, got {function!r}"
                )
        for width in (
            self.tiles if isinstance(self.tiles, Sequence) else (self.tiles,)
        ):
            positive_int("tiles", width)

    def columns(self, n: int) -> list[slice]:
        """Return the tiles of `n` variables.

        Parameters
        ----------
        n : int
            Number of variables.

        Returns
        -------
        list of slice
            The columns of each tile.

        Raises
        ------
        ValueError
            If the given widths do not add up to `n`, or there is another number of weights.
        """
        if self.weights is not None and len(self.weights) != n:
            raise ValueError(
                f"weights: expected one per variable, {n}, got {len(self.weights)}"
            )
        if isinstance(self.tiles, Sequence):
            ends = [0]
            for width in self.tiles:
                ends.append(ends[-1] + width)
            if ends[-1] != n:
                raise ValueError(
                    f"tiles: expected widths that add up to {n} variables, got {ends[-1]}"
                )
        else:
            ends = [*range(0, n, self.tiles), n]
        return [slice(start, stop) for start, stop in pairwise(ends)]

    def contribution(self, points: Tensor, columns: slice) -> Tensor:
        """Return the contributions of a tile in double precision.

        Parameters
        ----------
        points : torch.Tensor
            The variables of the tile, one row per point.
        columns : slice
            The columns of the tile.
        """
        return checked_values(
            "partial", self.partial(points, columns), len(points)
        )

    def values(self, sums: Tensor) -> Tensor:
        """Return the objective values from sums of contributions.

        Parameters
        ----------
        sums : torch.Tensor
            One sum per point.
        """
        if self.total is None:
            return sums
        return checked_values("total", self.total(sums), len(sums))

    def __call__(self, points: Tensor) -> Tensor:
        """Return the objective values of whole points.

        Parameters
        ----------
        points : torch.Tensor
            One row per point.
        """
        tiles = self.columns(points.shape[1])
        return self.values(
            sum(
                (self.contribution(points[:, tile], tile) for tile in tiles),
                start=torch.zeros(()),
            )
        )


def weighted_sum(
    weights: Tensor, total: Callable[[Tensor], Tensor] | None = None
) -> Separable:
    """Return the objective that is a weighted sum of binary variables.

    On a GPU, samples are drawn and summed in one kernel.

    Parameters
    ----------
    weights : torch.Tensor
        One weight per variable.
    total : callable, optional
        As in `Separable`.

    Examples
    --------
    >>> import torch, knobless as kl
    >>> from knobless.torch import minimize, weighted_sum
    >>> noisy = weighted_sum(-torch.ones(100), total=lambda sums: sums + torch.randn_like(sums))
    >>> minimize(noisy, kl.Binary(100), budget=5000, rng=0).mode.sum()
    np.int64(100)
    """
    if not isinstance(weights, Tensor) or weights.dim() != 1:
        raise TypeError(
            f"weights: expected a tensor of one dimension, got {weights!r}"
        )
    weights = weights.detach().double()

    def partial(points: Tensor, columns: slice) -> Tensor:
        return points.double() @ weights[columns].to(points.device)

    objective = Separable(partial, total=total)
    object.__setattr__(objective, "weights", weights)
    return objective


def checked_values(name: str, values: Any, rows: int) -> Tensor:
    """Return values that the user's code has returned in double precision.

    TypeError if they are none.
    """
    if (
        not isinstance(values, Tensor)
        or values.shape != (rows,)
        or values.is_complex()
    ):
        if isinstance(values, Tensor):
            shown = f"one of shape {list(values.shape)} and type {values.dtype}"
        else:
            shown = f"{values!r} of type {type(values).__name__}"
        raise TypeError(
            f"{name}: expected a tensor of {rows} numbers, got {shown}"
        )
    return values.detach().double()
