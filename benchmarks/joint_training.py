"""Milliseconds per update of the joint trainings on a GPU: 30 trials as one batch, one trial alone, and eager PyTorch.

    python benchmarks/joint_training.py [--mnist FOLDER] [--updates 500]

The floor is what cannot be avoided: each weight is read for the way up and for the way back, and read and written, with
its momentum, by the update; these bytes over the bandwidth of a large copy, measured here. Beside it stands what the
same number of kernels would take if they did nothing. Without MNIST, noise is trained on, which takes as long.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from knobless.joint.runs import ACTIVATIONS, LAYERS
from knobless.joint.training import Training
from knobless.torch.data import Data, mnist

TRIALS = 30
SETTINGS = {"layers": LAYERS[2], "activations": ACTIVATIONS[2]}  # PBIL-ε: two architectures per mini-batch


def seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def bandwidth() -> float:
    """Bytes per second of a large copy, read and written."""
    a = torch.randint(256, (2**30,), dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    b.copy_(a)
    return 50 * 2 * a.numel() / seconds(lambda: [b.copy_(a) for _ in range(50)])


def launch() -> float:
    """Seconds per kernel that does nothing, in a graph."""
    x, graph = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(1000):
            x += 1
    graph.replay()
    return seconds(lambda: [graph.replay() for _ in range(20)]) / 20_000


def kernels(training: Training) -> int:
    """Kernels per update, as recorded."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        training.run(training.done + 1)
        training.finish()
    return len(profile.events())


def unavoidable(training: Training) -> int:
    """Bytes per update: the first matrix is not needed on the way back."""
    size = sum(W.numel() for W in training.W)
    return 4 * (size + (size - training.W[0].numel()) + 4 * size)


def milliseconds(training: Training, updates: int) -> float:
    training.run(training.done + 100)
    return 1e3 * min(seconds(lambda: training.run(training.done + updates)) for _ in range(3)) / updates


def noise() -> Data:
    rng = np.random.default_rng(0)
    images = [rng.integers(256, size=(n, 784), dtype=np.uint8) for n in (60_000, 10_000)]
    labels = [rng.integers(10, size=n, dtype=np.uint8) for n in (60_000, 10_000)]
    return Data(images[0], labels[0], images[1], labels[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--updates", type=int, default=500)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("This benchmark needs a GPU with CUDA.")
    data = mnist(given.mnist) if given.mnist else noise()
    speed, each = bandwidth(), launch()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, TF32")
    print(f"a copy moves {speed / 1e12:.2f} TB/s; a kernel that does nothing takes {1e6 * each:.2f} µs in a graph\n")
    print("| | 30 trials, ms | floor, ms | ratio | kernels | × launch, ms | eager, ms | one trial, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for name, setting in SETTINGS.items():
        batch = Training(setting, data, range(TRIALS), 10**6, "cuda")
        together = milliseconds(batch, given.updates)
        count, floor = kernels(batch), 1e3 * unavoidable(batch) / speed
        del batch
        eager = milliseconds(Training(setting, data, range(TRIALS), 10**6, "cuda", recorded=False), 50)
        alone = milliseconds(Training(setting, data, range(1), 10**6, "cuda"), given.updates)
        print(
            f"| {name} | {together:.3f} | {floor:.3f} | {together / floor:.1f} | {count} | {1e3 * count * each:.3f} "
            f"| {eager:.2f} | {alone:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
