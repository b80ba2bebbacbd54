"""Milliseconds per update of the joint trainings on a GPU: 30 trials as one batch, one alone, and plain PyTorch.

    python benchmarks/joint_training.py [--mnist FOLDER] [--updates 500]

*Plain* is a straightforward loop with `knobless.torch.ArchitectureSearch`: autograd, `torch.optim.SGD`, one batched
product per layer, no compilation. It is measured as it is, and with the whole step recorded as a CUDA graph, as
described in docs/joint_training.md. *Eager* calls the library's own functions, including manual backpropagation and
fused kernels, without compiler or graph.

The floor is the time of the unavoidable memory traffic: each weight is read in the forward and in the backward pass,
and read and written, with its momentum, by the update; these bytes divided by the bandwidth of a large copy, measured
here. The time of the same number of empty kernels is printed with it. Without MNIST, the data are noise, which takes as
long.

Finally, the errors of losses and gradients relative to float64 are compared with those of plain PyTorch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from harness.mnist import mnist
from knobless import Binary
from knobless.torch import ArchitectureSearch
from knobless.torch.data import Data
from reproduction.joint.networks import ActivationNetwork, Network, dense, repeated, rows
from reproduction.joint.runs import ACTIVATIONS, LAYERS
from reproduction.joint.training import DECAY, MOMENTUM, Setting, Training, gradients, pixels

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
    """Return the seconds per empty kernel in a graph."""
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
    """Return the bytes per update: the first matrix is not needed in the backward pass."""
    size = sum(W.numel() for W in training.W)
    return 4 * (size + (size - training.W[0].numel()) + 4 * size)


def milliseconds(training: Training, updates: int) -> float:
    training.run(training.done + 100)
    return 1e3 * min(seconds(lambda: training.run(training.done + updates)) for _ in range(3)) / updates


def logits(network: Network, W: list[Tensor], x: Tensor, masks: Tensor) -> Tensor:
    """Of all architectures of all trials, [R, A, B, classes], for autograd."""
    if isinstance(network, ActivationNetwork):
        return network.logits(W, x, masks)
    first, b_first, hidden, b_hidden, last, b_last = W
    X = repeated(dense(x, first, b_first).relu(), masks.shape[1])
    on = rows(masks.to(X.dtype), X)
    # Split once: the gradient of hidden[:, k] would be as large as all of hidden, for every k.
    for k, layer in enumerate(zip(hidden.unbind(1), b_hidden.unbind(1), strict=True)):
        X = X + on[:, :, k] * dense(X, *layer).relu()
    return dense(X, last, b_last).view(*masks.shape[:2], x.shape[1], -1)


def losses_of(scores: Tensor, y: Tensor) -> Tensor:
    """The mean over the mini-batch, [R, A]."""
    each = cross_entropy(scores.flatten(0, 2), y[:, None].expand(scores.shape[:3]).flatten(), reduction="none")
    return each.view(scores.shape[:3]).mean(-1)


def plain(setting: Setting, data: Data, trials: int, device: str = "cuda") -> Callable[[], None]:
    """Return a step of the plain loop, for trials as one batch."""
    network, bits = setting.network, Binary(setting.network.n)
    each = [network.parameters(torch.Generator().manual_seed(trial)) for trial in range(trials)]
    W = [torch.stack(same).to(device).requires_grad_() for same in zip(*each, strict=True)]
    search = ArchitectureSearch(bits, setting.algorithm(bits), trials=trials, rng=0).to(device)
    rule = {"momentum": MOMENTUM, "nesterov": True, "weight_decay": DECAY}
    optimizer = torch.optim.SGD(W, lr=setting.learning_rate, **rule)
    images = torch.tensor(data.train_x, device=device)
    labels = torch.tensor(data.train_y, dtype=torch.int64, device=device)

    def step() -> None:
        batch = torch.randint(len(images), (trials, setting.batch), device=device)
        x, y = pixels(images[batch]), labels[batch]
        masks = search.ask(2)
        losses = losses_of(logits(network, W, x, masks), y)
        optimizer.zero_grad()
        losses.mean(1).sum().backward()  # the mean per trial; trials share no weights
        if setting.clip < float("inf"):
            norm = torch.stack([w.grad.flatten(1).norm(dim=1) for w in W]).norm(dim=0)
            for w in W:
                w.grad *= (setting.clip / norm).clamp(max=1.0).view(-1, *[1] * (w.dim() - 1))
        optimizer.step()
        search.tell(masks, losses.detach())

    return step


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    """A step as one CUDA graph, as in docs/joint_training.md."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def milliseconds_of(step: Callable[[], None], updates: int) -> float:
    for _ in range(20):
        step()
    return 1e3 * min(seconds(lambda: [step() for _ in range(updates)]) for _ in range(3)) / updates


Found = tuple[Tensor, list[Tensor]]  # losses [R, A], and gradients


def by_hand(network: Network, W: list[Tensor], x: Tensor, y: Tensor, masks: Tensor) -> Found:
    losses, factors = network.backprop(W, x, y, masks)
    return losses, list(gradients(factors))


def by_autograd(network: Network, W: list[Tensor], x: Tensor, y: Tensor, masks: Tensor) -> Found:
    W = [w.clone().requires_grad_() for w in W]
    losses = losses_of(logits(network, W, x, masks), y)
    return losses.detach(), list(torch.autograd.grad(losses.mean(1).sum(), W))


def off(found: Found, exact: Found) -> tuple[float, float]:
    """The largest error of a loss, and that of the whole gradient, in norm; both relative."""
    losses = (found[0].double() - exact[0]) / exact[0]
    pairs = list(zip(found[1], exact[1], strict=True))
    error = sum((mine.double() - true).square().sum() for mine, true in pairs)
    return losses.abs().max().item(), (error / sum(true.square().sum() for _, true in pairs)).sqrt().item()


def exactness(setting: Setting, data: Data) -> dict[str, tuple[float, float]]:
    """Compare at the initial weights of all trials, with random architectures."""
    network, some = setting.network, torch.Generator().manual_seed(0)
    each = [network.parameters(torch.Generator().manual_seed(trial)) for trial in range(TRIALS)]
    W = [torch.stack(same).cuda() for same in zip(*each, strict=True)]
    batch = torch.randint(len(data.train_x), (TRIALS, setting.batch), generator=some).numpy()
    x, y = pixels(torch.tensor(data.train_x[batch])).cuda(), torch.tensor(data.train_y[batch]).long().cuda()
    masks = torch.randint(2, (TRIALS, 2, network.n), generator=some, dtype=torch.int8).cuda()
    exact = by_autograd(network, [w.double() for w in W], x.double(), y, masks)
    torch.set_float32_matmul_precision("high")
    found = {"ours, TF32": off(by_hand(network, W, x, y, masks), exact)}
    found["plain, TF32"] = off(by_autograd(network, W, x, y, masks), exact)
    torch.set_float32_matmul_precision("highest")
    return found | {"plain, single precision": off(by_autograd(network, W, x, y, masks), exact)}


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
    print(f"a copy moves {speed / 1e12:.2f} TB/s; an empty kernel takes {1e6 * each:.2f} µs in a graph\n")
    head = ("30 trials", "floor", "ratio", "one trial", "plain, 30", "plain, recorded, 30", "plain, one", "eager, 30")
    print("| |", " | ".join((*head, "kernels", "× launch")), "|")
    print("|---" * (len(head) + 3) + "|")
    for name, setting in SETTINGS.items():
        batch = Training(setting, data, range(TRIALS), 10**6, "cuda")
        together = milliseconds(batch, given.updates)
        count, floor = kernels(batch), 1e3 * unavoidable(batch) / speed
        del batch
        alone = milliseconds(Training(setting, data, range(1), 10**6, "cuda"), given.updates)
        step = plain(setting, data, TRIALS)
        simple = milliseconds_of(step, 50)
        replayed = milliseconds_of(recorded(step), given.updates)
        simple_alone = milliseconds_of(plain(setting, data, 1), 50)
        eager = milliseconds(Training(setting, data, range(TRIALS), 10**6, "cuda", recorded=False), 50)
        print(
            f"| {name} | {together:.3f} | {floor:.3f} | {together / floor:.1f} | {alone:.3f} | {simple:.2f} "
            f"| {replayed:.2f} | {simple_alone:.2f} | {eager:.2f} | {count} | {1e3 * count * each:.3f} |",
            flush=True,
        )
    print("\n| relative error of | the losses | the gradient |\n|---|---|---|")
    for name, setting in SETTINGS.items():
        for way, errors in exactness(setting, data).items():
            print(f"| {name}: {way} |", " | ".join(f"{error:.1e}" for error in errors), "|", flush=True)


if __name__ == "__main__":
    main()
