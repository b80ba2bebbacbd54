"""The loop over bits on a GPU, by the kernels of `kernels.py`; the results are those of `Engine`.

An iteration is five kernels and the objective. A `weighted_sum` is summed while it is drawn.
Another `Separable` one gets tiles, and any other objective rows of whole points, both drawn into
memory of bounded size. The gradient draws those points again that have a weight.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from knobless.core.adaptation import SNR, samples
from knobless.core.families import Bernoulli
from knobless.core.igo import IGO
from knobless.core.preferences import Truncation
from knobless.run.stopping import MAX_FAILURES, RunLimits

from . import kernels
from .engine import NO_LIMIT, TrialCounts, account
from .families import TensorFamily, tensor_threshold
from .samples import in_one, parts, rows_of
from .search import TensorState, spend, weights
from .separable import Separable

CHUNK_ON_GPU = 2**26  # entries of points that exist at once
MOST_RANKED = 2**14  # values whose ranks are counted; more are sorted


def is_fused(algorithm: IGO, device: torch.device) -> bool:
    """Return whether the kernels support a run: over bits, on a GPU or in Triton's interpreter."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return (
        kernels.HAS_TRITON
        and isinstance(algorithm.family, Bernoulli)
        and (device.type == "cuda" or interpreted)
    )


class RecordedGraph:
    """A function without arguments that becomes a CUDA graph at its second call.

    A graph is started in one call, which takes less time than five kernels do. The first call
    compiles them.
    """

    def __init__(
        self, function: Callable[[], Tensor | None], device: torch.device
    ) -> None:
        self._function = function
        self._direct = True  # whether to call the function itself
        self._cuda = device.type == "cuda"
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensor | None = None

    def __call__(self) -> Any:
        if self._direct:
            self._direct = not self._cuda
            return self._function()
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._graph.capture_begin()
                self._result = self._function()
                self._graph.capture_end()
            torch.cuda.current_stream().wait_stream(stream)
        self._graph.replay()
        return self._result


class FusedEngine:
    """`Engine` in kernels, for bits: its tensors change in place."""

    def __init__(
        self,
        algorithm: IGO,
        family: TensorFamily,
        limits: RunLimits,
        state: TensorState,
        counts: TrialCounts,
        best_x: Tensor,
        key: Tensor,
        values: Callable[[Tensor], Tensor],
        separable: Separable | None,
        sign: float,
    ) -> None:
        self.algorithm = algorithm
        self.family = family
        self.limits = limits
        self.state, self.counts, self.best_x = (
            state,
            TrialCounts(*(count.clone() for count in counts)),
            best_x,
        )
        self._key = key
        self._values = values
        self._separable = separable
        # `values` has it already
        self._sign = 1.0 if separable is None else sign
        trials, self._n = state.theta.shape
        self._half = (self._n + 1) // 2
        self._drawn = torch.zeros_like(key)
        self._lam, _ = spend(algorithm.adaptation, state.lam_r)
        self._thresholds = tensor_threshold(state.theta).to(torch.int32)
        self._flags = key.new_zeros(trials, 5)
        self._numbers = state.theta.new_zeros(trials, 3)
        # Rows and words that a program of the update has at once
        self._block = (8, 64)
        self._squares = state.theta.new_zeros(
            trials, _blocks(self._half, self._block[1])
        )
        # By the number of samples, as the two below
        self._values_of: dict[int, Tensor] = {}
        self._learning: dict[int, RecordedGraph] = {}
        self._summing: dict[int, RecordedGraph] = {}
        adaptation: Any = algorithm.adaptation
        self._signal = isinstance(adaptation, SNR)
        self._spend = kernels.SPEND_FIXED.value
        bounds = (1.0, 1.0, 1.0)
        if isinstance(adaptation, SNR):
            self._spend = (
                kernels.SPEND_SAMPLES.value
                if adaptation.spend is samples
                else kernels.SPEND_STEPS.value
            )
            bounds = (
                adaptation.alpha,
                float(adaptation.lam_min),
                adaptation.lam_max,
            )
        margin, dim = algorithm.family.margin, algorithm.family.dim  # type: ignore[attr-defined]
        self._constants = state.theta.new_tensor(
            [adaptation.eps, margin, *bounds, dim, limits.target]
        )
        self._tiles = [] if separable is None else separable.columns(self._n)
        self._weights = (
            None
            if separable is None or separable.weights is None
            else separable.weights.to(key.device)
        )
        self._unit = self._weights is not None and bool(
            (self._weights == self._weights[0]).all()
        )

    @property
    def lam(self) -> Tensor:
        """Samples of the next iteration."""
        return self._lam

    def iterate(self, rows: int) -> None:
        """Run one iteration of at most `rows` samples."""
        if rows not in self._values_of:
            self._values_of[rows] = self.state.theta.new_empty(
                len(self._key), rows
            )
            self._learning[rows] = RecordedGraph(
                lambda: self._learn(rows), self._key.device
            )
            self._summing[rows] = RecordedGraph(
                lambda: self._weighted_sums(rows), self._key.device
            )
        torch.mul(self._evaluate(rows), self._sign, out=self._values_of[rows])
        self._learning[rows]()

    def _evaluate(self, rows: int) -> Tensor:
        """Return the values of the samples, [trials, rows]."""
        trials = len(self._key)
        separable = self._separable
        if separable is None:
            everything = slice(0, self._n)
            chunks = parts(rows, rows_of(CHUNK_ON_GPU, trials * self._n))
            return in_one(
                [
                    self._values(self._draw(*chunk, everything)).view(
                        trials, -1
                    )
                    for chunk in chunks
                ]
            )
        sums = (
            self._tile_sums(separable, rows)
            if self._weights is None
            else self._summing[rows]()
        )
        return separable.values(sums.flatten()).view(trials, rows)

    def _learn(self, rows: int) -> None:
        """Learn from the values of the samples: lines 4 to 15 of Algorithm 1."""
        f = self._values_of[rows]
        chosen = torch.empty_like(f, dtype=torch.int64)
        weight = torch.empty_like(f)
        self._account(f, self._shares(f), chosen, weight)
        trials, tiles = self._squares.shape
        state = self.state
        kernels.update_kernel[(tiles, trials)](
            self._key, self._drawn, self._thresholds, chosen, weight, state.theta, state.s,
            self._squares, self.best_x, self._flags, self._numbers, self._constants, self._n,
            self._half, rows, self._signal, *self._block, num_warps=1,
        )  # fmt: skip
        kernels.adapt_kernel[(trials,)](
            self._drawn, self._lam, state.lam_r, state.gamma, self._squares, self._flags,
            self._numbers, self._constants, tiles, self._spend, 1024,
        )  # fmt: skip

    def _weighted_sums(self, rows: int) -> Tensor:
        weights = self._weights
        block_rows = 16
        words = 128
        blocks = min(16, max(1, self._half // 2**13))
        trials = len(self._key)
        tiles = _blocks(self._half, words * blocks)
        kind = torch.int32 if self._unit else torch.float64
        out = torch.empty(
            trials, tiles, rows, dtype=kind, device=self._key.device
        )
        kernels.sum_kernel[(_blocks(rows, block_rows), tiles, trials)](
            self._key, self._drawn, self._lam, self._thresholds, weights, out, self._n,
            self._half, rows, self._unit, block_rows, words, blocks,
        )  # fmt: skip
        sums = out.sum(1)
        return sums * weights[0] if self._unit and weights is not None else sums

    def _tile_sums(self, separable: Separable, rows: int) -> Tensor:
        trials = len(self._key)
        sums = self.state.theta.new_zeros(trials, rows)
        for tile in self._tiles:
            for start, k in parts(
                rows, rows_of(CHUNK_ON_GPU, trials * (tile.stop - tile.start))
            ):
                points = self._draw(start, k, tile)
                sums[:, start : start + k] += separable.contribution(
                    points, tile
                ).view(trials, k)
        return sums

    def _draw(self, start: int, rows: int, columns: slice) -> Tensor:
        """Return rows of points, those of each trial one after the other."""
        trials = len(self._key)
        width = columns.stop - columns.start
        out = torch.empty(
            trials * rows, width, dtype=torch.int8, device=self._key.device
        )
        grid = (_blocks(rows, 8), _blocks(width // 2 + 1, 128), trials)
        kernels.draw_kernel[grid](
            self._key, self._drawn, self._thresholds, out, self._n, self._half, start, rows,
            columns.start, columns.stop, 8, 128,
        )  # fmt: skip
        return out

    def _shares(self, f: Tensor) -> Tensor:
        """Return the weights over λ."""
        trials, rows = f.shape
        preference = self.algorithm.preference
        if rows > MOST_RANKED:
            return weights(preference, f, self._lam) / self._lam[:, None]
        share = torch.empty_like(f)
        truncated = isinstance(preference, Truncation)
        mu = preference.mu if isinstance(preference, Truncation) else 0
        kernels.weight_kernel[(_blocks(rows, 64), trials)](
            f, self._lam, share, rows, mu, truncated, 64, 64
        )
        return share

    def _account(
        self, f: Tensor, share: Tensor, chosen: Tensor, weight: Tensor
    ) -> None:
        """Count, apply the stopping rules, and prepare the update."""
        counts = self.counts
        limits = self.limits
        stalls = (
            account(counts, f, self._lam, limits)
            if limits.stall < math.inf
            else None
        )
        kernels.account_kernel[(len(f),)](
            f, share, chosen, weight, self._lam, self.state.lam_r, counts.status, counts.nit,
            counts.nfev, counts.failures, counts.improved_at, counts.best, self._flags,
            self._numbers, self._constants, f.shape[1], NO_LIMIT if limits.budget == math.inf else
            int(limits.budget), MAX_FAILURES, self._spend, 1024,
        )  # fmt: skip
        if stalls is not None:  # which the kernel does not know
            after, taken = stalls
            for old, new in zip(counts, after, strict=True):
                old.copy_(new)
            self._flags[:, 0] *= taken.closing
            self._flags[:, 1:4] = torch.stack(
                [column.to(self._flags) for column in taken], 1
            )


def _blocks(entries: int, size: int) -> int:
    """Return the number of blocks of a size that cover the entries."""
    return -(-entries // size)
