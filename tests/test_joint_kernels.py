"""The kernels of the stack beside the plain way through it: on a GPU, and by Triton's interpreter without one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="reproduction.joint needs torch: pip install 'knobless[torch]'")

from reproduction.joint import kernels  # noqa: E402

# The interpreter is chosen before Triton is imported, hence a process of its own.
INTERPRETED = """
import sys
import torch
from reproduction.joint import kernels

kernels.fused = lambda X, rows: True
found = []
for X, W, b, keep, m, G in torch.load(sys.argv[1], weights_only=True):
    out, passed = kernels.stack_forward(X, W, b, keep, m)
    found.append((out, passed, *kernels.stack_backward(G, W, b, keep, m, passed)))
torch.save(found, sys.argv[2])
"""

interpreter = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="the kernels' interpreter needs triton: pip install triton"
)
gpu = pytest.mark.skipif(
    kernels.triton is None or not torch.cuda.is_available(), reason="the kernels need triton and an NVIDIA GPU"
)


@pytest.fixture(autouse=True)
def plain():
    """Not on both cores."""
    torch.set_num_threads(1)


def whole_numbers(trials, archs, rows, width, layers, seed):
    """Small ones, with few weights: every product and sum is exact, in TF32 too."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(low, high, *shape):
        return torch.randint(low, high + 1, shape, generator=generator).float()

    W = numbers(-1, 1, trials, layers, width, width) * (
        torch.rand(trials, layers, width, width, generator=generator) < 0.1
    )
    m = numbers(0, 1, trials, archs, layers)
    return [numbers(-2, 2, trials, archs * rows, width), W, numbers(-1, 1, trials, layers, width),
            1 - m if seed % 2 else torch.ones_like(m), m, numbers(-2, 2, trials, archs * rows, width)]  # fmt: skip


def any_numbers(trials, archs, rows, width, layers, seed):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    m = torch.randint(2, (trials, archs, layers), generator=generator).float()
    return [normal(trials, archs * rows, width), normal(trials, layers, width, width) / width**0.5,
            normal(trials, layers, width), 1 - m if seed % 2 else torch.ones_like(m), m,
            normal(trials, archs * rows, width)]  # fmt: skip


def between_two():
    """Three quarters of the way from a TF32 number to the next, through a layer that does nothing."""
    X = torch.full((1, 16, 16), 1 + 2**-11 + 2**-12)
    gate = torch.ones(1, 1, 1)
    return [X, torch.eye(16)[None, None], torch.zeros(1, 1, 16), 0 * gate, gate, X]


SHAPES = [(2, 2, 32, 16, 3), (1, 1, 16, 32, 2), (3, 2, 16, 16, 4)]
MANY = (50, 2, 32, 16, 2)  # so many rows that a program takes 32 of them
EXACT = [*(whole_numbers(*shape, seed) for shape in SHAPES for seed in (0, 1)), whole_numbers(*MANY, 0)]
ROUGH = [any_numbers(*shape, seed) for shape in SHAPES for seed in (0, 1)]


def by_kernels(cases, folder):
    """Up and back by Triton's interpreter."""
    torch.save(cases, folder / "given")
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run(
        [sys.executable, "-c", INTERPRETED, folder / "given", folder / "found"],
        check=True,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
    )
    return torch.load(folder / "found", weights_only=True)


def as_written(case):
    """Up and back as one writes it down."""
    X, W, b, keep, m, G = case
    out, passed = kernels.stack_forward(X, W, b, keep, m)
    return out, passed, *kernels.stack_backward(G, W, b, keep, m, passed)


def tf32(x):
    """To the nearest number of 10 bits behind the point, halves away from zero."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa.abs() * 2**11 + 0.5).floor() * x.sign(), exponent - 11)


def in_tf32(case, passed, GZ):
    """Every layer as one writes it down, with what goes into products rounded, from what went into that layer."""
    X, W, b, keep, m, G = case
    W, rows, layers = tf32(W), G.shape[1] // m.shape[1], m.shape[2]
    keep, m = (gate.repeat_interleave(rows, 1)[..., None] for gate in (keep, m))
    Z = [tf32(passed[:, k]) @ W[:, k] + b[:, k, None] for k in range(layers)]
    up = [X, *(keep[:, :, k] * passed[:, k] + m[:, :, k] * Z[k].relu() for k in range(layers))]
    back = []
    for k in reversed(range(layers)):
        back.insert(0, (Z[k] > 0) * m[:, :, k] * G)
        G = keep[:, :, k] * G + tf32(GZ[:, k]) @ W[:, k].mT
    return up[-1], torch.stack(up[:-1], 1), G, torch.stack(back, 1)


def test_whole_numbers_stay_small_enough_to_be_exact():
    for case in EXACT:
        found = as_written(case)
        assert all(each.abs().max() <= 2**11 for each in found)
        assert all(each.abs().max() >= 2 for each in found)
        assert len(found[0].unique()) > 3


def compare(found):
    """Exactly, where that can be; otherwise to the rounding of TF32, and closely to what such a rounding gives."""
    for case, each in zip(EXACT, found, strict=False):
        for mine, plain in zip(each, as_written(case), strict=True):
            assert torch.equal(mine, plain)
    for case, each in zip(ROUGH, found[len(EXACT) :], strict=True):
        torch.testing.assert_close(each[:2], as_written(case)[:2], rtol=0, atol=0.02)
        torch.testing.assert_close(each, in_tf32(case, each[1], each[3]), rtol=0, atol=1e-5)
        assert not torch.equal(each[0], as_written(case)[0])


@interpreter
def test_the_kernels_do_what_is_written(tmp_path):
    *found, through = by_kernels([*EXACT, *ROUGH, between_two()], tmp_path)
    compare(found)
    rounded = torch.full((1, 16, 16), 1 + 2**-10)  # to the nearest, not cut off
    assert torch.equal(through[0], rounded)
    assert torch.equal(through[2], rounded)


@gpu
def test_the_kernels_do_what_is_written_on_a_gpu():
    cases = [[each.cuda() for each in case] for case in EXACT + ROUGH]
    assert all(kernels.fused(case[0], 16) for case in cases)
    compare([tuple(each.cpu() for each in as_written(case)) for case in cases])


def test_a_block_of_rows_has_one_architecture():
    for rows in range(16, 257, 16):
        for total in (rows, 3199, 3200, 10**5):
            assert rows % kernels.block_of(rows, total) == 0
    assert kernels.block_of(64, 30 * 128) == 32


def test_what_the_kernels_do_not_take_goes_the_plain_way():
    for X in (torch.zeros(1, 16, 16), torch.zeros(1, 16, 16, dtype=torch.float64)):
        assert not kernels.fused(X, 16)
