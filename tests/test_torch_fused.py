"""The kernels for bits have the results of the plain tensor operations: on a GPU, or else in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

import knobless as kl
from knobless.algorithms import cga, umda

torch = pytest.importorskip("torch", reason="knobless.torch needs torch: pip install 'knobless[torch]'")
needs_triton = pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs triton")

WEIGHTS = torch.arange(37.0, dtype=torch.float64) - 11


def rough(x):
    """Values with ties, failures and infinite values."""
    f = (x.double() @ WEIGHTS.to(x.device)) % 7
    f[f == 3] = torch.nan
    f[f == 5] = torch.inf
    return f


def cases():
    from knobless.torch import Separable, weighted_sum

    space = kl.Binary(37)
    yield weighted_sum(torch.ones(37)), {"rng": 0}
    yield weighted_sum(-torch.ones(37), total=lambda sums: sums**2 - 20 * sums), {"rng": 1, "trials": 2}
    yield weighted_sum(WEIGHTS), {"rng": 1, "trials": 3, "target": -60.0}
    yield Separable(lambda x, columns: x.sum(1) % 3, tiles=(3, 5, 29)), {"rng": 1, "stall": 50}
    yield rough, {"rng": 1, "target": 0.5, "stall": 30}
    yield rough, {"rng": 2, "algorithm": kl.pbil_epsilon(space)}
    yield rough, {"rng": 3, "algorithm": cga(space)}
    yield rough, {"rng": 4, "algorithm": umda(space, 9, 4), "x0": [1] * 37}


def same(fused, plain):
    for name in ("fun", "nfev", "nit", "status", "failures", "message"):
        assert getattr(fused, name) == getattr(plain, name), name
    assert (fused.x == plain.x).all()
    assert (fused.mode == plain.mode).all()
    a, b = np.array([[info[:-1] for info in each.history] for each in (fused, plain)])
    np.testing.assert_array_equal(a[:, :4], b[:, :4])
    np.testing.assert_allclose(a, b, rtol=1e-9)


def compare(device):
    from knobless.torch import minimize, tensor_run

    is_fused = tensor_run.is_fused
    for fun, how in cases():
        results = []
        for used, place in ((is_fused, device), (lambda *_: False, "cpu")):
            tensor_run.is_fused = used
            found = minimize(fun, kl.Binary(37), budget=200, device=place, **how)
            results.append(found if isinstance(found, list) else [found])
        for fused, plain in zip(*results, strict=True):
            same(fused, plain)


@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_run_on_a_gpu_is_that_of_plain_tensor_operations():
    compare("cuda")


@needs_triton
@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels are tested on the GPU")
def test_a_run_by_interpreted_kernels_is_that_of_plain_tensor_operations():
    """In a process of its own: what has been imported before is not interpreted."""
    subprocess.run([sys.executable, __file__], env=os.environ | {"TRITON_INTERPRET": "1"}, check=True)


if __name__ == "__main__":
    compare("cpu")
