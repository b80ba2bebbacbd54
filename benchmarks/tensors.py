"""Runs of `knobless.torch.minimize`: OneMax with noise up to a million bits, the rate of draws, and other libraries.

    python benchmarks/tensors.py growth [--device cuda] [--sizes 1e3 1e4 1e5 1e6] [--seeds 1]
    python benchmarks/tensors.py rate [--size 1e6] [--rows 448]
    python benchmarks/tensors.py peers [--sizes 1000 10000] [--seconds 5]

*growth* minimizes minus the number of ones plus Gaussian noise of variance n/40 until the most probable point is the
optimum, with nothing set, and prints one row per run. The time includes the compilation of kernels that are not in the
cache of Triton. *rate* measures the kernels alone on a GPU: bits that are drawn and summed, bits that are drawn again
and summed with weights for the gradient, and the 32-bit floats of `torch.rand`. *peers* needs evotorch: evaluations per
second of its SNES on one CPU thread, with a bit where a coordinate is positive, and of `minimize` with the same number
of samples per iteration (`batch`), one after the other. `--out FOLDER` writes the rows to a CSV file.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import knobless as kl
from knobless.run.iteration import Info
from knobless.torch import minimize, weighted_sum

Row = dict[str, Any]


def seconds(work: Callable[[], object], repetitions: int = 7) -> float:
    """Return the median time on the GPU, after a first call that compiles."""
    work()
    times = []
    for _ in range(repetitions):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return sorted(times)[repetitions // 2]


def one_max(n: int, seed: int, device: str, timeout: float) -> Row:
    """Run until the mode is optimal."""
    torch.manual_seed(seed)
    sigma = math.sqrt(n / 40)
    fun = weighted_sum(-torch.ones(n), total=lambda sums: sums + sigma * torch.randn_like(sums))

    def until_optimal(info: Info) -> None:
        if bool((info.theta >= 0.5).all()):  # type: ignore[union-attr]
            raise StopIteration

    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    result = minimize(fun, kl.Binary(n), timeout=timeout, rng=seed, device=device, callback=until_optimal)
    taken = time.perf_counter() - began
    return {
        "n": n,
        "seed": seed,
        "optimal": bool(result.mode.all()),
        "evaluations": result.nfev,
        "iterations": result.nit,
        "largest lambda": max(info.lam for info in result.history),
        "last lambda": result.history[-1].lam,
        "seconds": round(taken, 2),
        "bytes": torch.cuda.max_memory_allocated() if cuda else "",
    }


def growth(sizes: list[float], seeds: int, device: str, timeout: float) -> Iterator[Row]:
    for n in map(int, sizes):
        for seed in range(seeds):
            yield one_max(n, seed, device, timeout)


def rate(n: int, rows: int) -> Iterator[Row]:
    """Measure the kernels on the samples of an iteration in which half of the points have a weight."""
    from knobless.torch import kernels

    half, number = (n + 1) // 2, {"dtype": torch.float64, "device": "cuda"}
    key, drawn, lam = (torch.tensor([value], device="cuda") for value in (1, 0, rows))
    theta = 0.1 + 0.8 * torch.rand(1, n, **number)
    thresholds = (theta * 2**32).to(torch.int64).to(torch.int32)
    words, blocks = 128, 16
    tiles = -(-half // (words * blocks))
    sums = torch.empty(tiles, rows, dtype=torch.int32, device="cuda")
    grid = (-(-rows // 16), tiles, 1)
    draw = seconds(
        lambda: kernels.sum_kernel[grid](
            key, drawn, lam, thresholds, theta, sums, n, half, rows, True, 16, words, blocks
        )
    )
    yield {"what": "draw and sum", "bits per second": f"{rows * n / draw:.3g}"}
    some = rows // 2
    chosen = torch.randperm(rows, device="cuda")[:some].sort().values
    weight = torch.where(torch.arange(some, device="cuda") % 2 == 0, 1.0, -1.0).double() / some
    tiles = -(-half // 64)
    squares, s = torch.empty(tiles, **number), torch.zeros_like(theta)
    best_x = torch.empty(n, dtype=torch.int8, device="cuda")
    flags = torch.tensor([1, 1, 0, 0, some], device="cuda")
    numbers = torch.tensor([0.0, 1e-9, 1e-9], **number)
    constants = torch.tensor([1e-9, 1 / n, 1.5, 2.0, n, n, math.nan], **number)
    again = seconds(
        lambda: kernels.update_kernel[(tiles, 1)](
            key, drawn, thresholds, chosen, weight, theta, s, squares, best_x, flags, numbers, constants, n, half, rows,
            True, 8, 64, num_warps=1,
        )
    )  # fmt: skip
    yield {"what": "draw again, sum with weights, update", "bits per second": f"{some * n / again:.3g}"}
    floats = seconds(lambda: torch.rand(rows, n, device="cuda"))
    yield {"what": "torch.rand", "bits per second": f"{rows * n / floats:.3g}"}


def peers(sizes: list[float], limit: float) -> Iterator[Row]:
    import logging

    from evotorch import Problem
    from evotorch.algorithms import SNES

    logging.disable(logging.INFO)
    torch.set_num_threads(1)

    def ones(x: Tensor) -> Tensor:
        return x.sum(1)

    for n in map(int, sizes):
        for size in (100, 1000):
            problem = Problem("min", lambda x: (x > 0).sum(1).float(), solution_length=n, initial_bounds=(-1, 1),
                              vectorized=True)  # fmt: skip
            search = SNES(problem, stdev_init=1.0, popsize=size)
            search.step()
            began, steps = time.perf_counter(), 0
            while time.perf_counter() - began < limit:
                search.step()
                steps += 1
            theirs = steps * size / (time.perf_counter() - began)
            began = time.perf_counter()
            result = minimize(ones, kl.Binary(n), timeout=limit, rng=0, batch=size, device="cpu")
            ours = result.nfev / (time.perf_counter() - began)
            yield {
                "n": n,
                "samples per iteration": size,
                "EvoTorch SNES": round(theirs),
                "knobless": round(ours),
                "ratio": f"{ours / theirs:.2f}",
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["growth", "rate", "peers"])
    parser.add_argument("--sizes", type=float, nargs="+")
    parser.add_argument("--size", type=float, default=1e6)
    parser.add_argument("--rows", type=int, default=448)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.part == "growth":
        found = growth(given.sizes or [1e3, 1e4, 1e5, 1e6], given.seeds, given.device, given.timeout)
    elif given.part == "rate":
        found = rate(int(given.size), given.rows)
    else:
        found = peers(given.sizes or [1e3, 1e4], given.seconds)
    rows = []
    for row in found:
        if not rows:
            print(f"| {' | '.join(row)} |\n|{'---|' * len(row)}")
        print(f"| {' | '.join(map(str, row.values()))} |", flush=True)
        rows.append(row)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        with (given.out / f"{given.part}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
