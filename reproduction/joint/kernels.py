"""The stack of experiment I, up and back: as one writes it down and, for a GPU, as one kernel each.

Thirty trainings of 31 small layers are hundreds of small kernels when each operation is one. `stack_forward` and
`stack_backward` take some rows of one trial through all layers in one program, so that X never leaves the processor.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU needs none
    triton = None

# Compiled by hand here; what is before and after is compiled by torch.
by_hand = torch.compiler.disable


@by_hand
def stack_forward(X: Tensor, W: Tensor, b: Tensor, keep: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """X ← keep·X + m·relu(X W + b), layer after layer: what comes out, and X before each layer [R, L, rows, D].

    X is [R, A·B, D], W [R, L, D, D], b [R, L, D]; keep and m [R, A, L] hold for all rows of an architecture.
    """
    trials, rows, width = X.shape
    layers, archs = m.shape[2], m.shape[1]
    X, keep, m = X.contiguous(), keep.contiguous(), m.contiguous()
    passed = X.new_empty(trials, layers, rows, width)
    if fused(X, rows // archs):
        block = block_of(rows // archs, trials * rows)
        out = torch.empty_like(X)
        _climb[(trials, rows // block)](
            X, W, b, keep, m, passed, out, rows, archs, rows // archs, layers, block, width, num_warps=8
        )
        return out, passed
    keep, m = (gate.repeat_interleave(rows // archs, 1)[..., None] for gate in (keep, m))
    for k in range(layers):
        passed[:, k] = X
        X = keep[:, :, k] * X + m[:, :, k] * (X @ W[:, k] + b[:, k, None]).relu()
    return X, passed


@by_hand
def stack_backward(G: Tensor, W: Tensor, b: Tensor, keep: Tensor, m: Tensor, passed: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of X and those of X W + b [R, L, rows, D], from the gradient of the output."""
    trials, rows, width = G.shape
    layers, archs = m.shape[2], m.shape[1]
    G, keep, m = G.contiguous(), keep.contiguous(), m.contiguous()
    GZ = torch.empty_like(passed)
    if fused(G, rows // archs):
        block = block_of(rows // archs, trials * rows)
        G_in = torch.empty_like(G)
        _return[(trials, rows // block)](
            G, W, b, keep, m, passed, GZ, G_in, rows, archs, rows // archs, layers, block, width, num_warps=8
        )
        return G_in, GZ
    keep, m = (gate.repeat_interleave(rows // archs, 1)[..., None] for gate in (keep, m))
    for k in reversed(range(layers)):
        positive = passed[:, k] @ W[:, k] + b[:, k, None] > 0
        GZ[:, k] = torch.where(positive, m[:, :, k] * G, 0.0)
        G = keep[:, :, k] * G + GZ[:, k] @ W[:, k].mT
    return G, GZ


def fused(X: Tensor, rows: int) -> bool:
    """Return whether the kernels support X: on a GPU, in single precision, with whole blocks of rows."""
    return triton is not None and X.is_cuda and X.dtype is torch.float32 and rows % 16 == 0


def block_of(rows: int, total: int) -> int:
    """Return the rows per program, of one architecture: about as many programs as processors (132)."""
    return 32 if rows % 32 == 0 and total >= 32 * 100 else 16


if triton is not None:

    @triton.jit
    def rounded(x):
        """Round to the nearest TF32 number: the matrix units truncate, which is a bias."""
        return ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)

    @triton.jit
    def _climb(
        X,
        W,
        B,
        KEEP,
        M,
        PASSED,
        OUT,
        rows,
        archs,
        per_arch,
        layers: tl.constexpr,
        BLOCK: tl.constexpr,
        D: tl.constexpr,
    ):
        trial = tl.program_id(0).to(tl.int64)
        row = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        gate = (trial * archs + tl.program_id(1) * BLOCK // per_arch) * layers
        d = tl.arange(0, D)
        tile = row[:, None] * D + d[None, :]
        square = d[:, None] * D + d[None, :]
        x = tl.load(X + trial * rows * D + tile)
        for k in range(layers):
            layer = trial * layers + k
            tl.store(PASSED + layer * rows * D + tile, x)
            w = tl.load(W + layer * D * D + square)
            z = tl.dot(rounded(x), rounded(w)) + tl.load(B + layer * D + d)[None, :]
            x = tl.load(KEEP + gate + k) * x + tl.load(M + gate + k) * tl.maximum(z, 0.0)
        tl.store(OUT + trial * rows * D + tile, x)

    @triton.jit
    def _return(
        G,
        W,
        B,
        KEEP,
        M,
        PASSED,
        GZ,
        G_IN,
        rows,
        archs,
        per_arch,
        layers: tl.constexpr,
        BLOCK: tl.constexpr,
        D: tl.constexpr,
    ):
        trial = tl.program_id(0).to(tl.int64)
        row = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        gate = (trial * archs + tl.program_id(1) * BLOCK // per_arch) * layers
        d = tl.arange(0, D)
        tile = row[:, None] * D + d[None, :]
        square = d[:, None] * D + d[None, :]
        g = tl.load(G + trial * rows * D + tile)
        for i in range(layers):
            k = layers - 1 - i
            layer = trial * layers + k
            x = tl.load(PASSED + layer * rows * D + tile)
            w = rounded(tl.load(W + layer * D * D + square))
            # The sign is found again, by the same operations, rather than kept.
            z = tl.dot(rounded(x), w) + tl.load(B + layer * D + d)[None, :]
            gz = tl.where(z > 0.0, tl.load(M + gate + k) * g, 0.0)
            tl.store(GZ + layer * rows * D + tile, gz)
            g = tl.load(KEEP + gate + k) * g + tl.dot(rounded(gz), tl.trans(w))
        tl.store(G_IN + trial * rows * D + tile, g)
