"""Training of R independent trials as one batch: the two procedures of the paper's appendix, on one device throughout.

A `Setting` is what is trained and by which algorithm. `Training` holds its state; `step` is one update of W in every
trial, written for any device. On a GPU its parts are compiled and the whole step is recorded once as a CUDA graph,
which is then replayed without the host taking part. A trial's weights, mini-batches and samples depend on its number
alone, not on the trials beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from knobless.core.igo import IGO
from knobless.space.variables import Binary
from knobless.torch.data import Data
from knobless.torch.search import ArchitectureSearch, most_samples
from knobless.torch.uniforms import tensor_uniforms

from .networks import Factors, Network, Weights

ToldToAlgorithm = Literal["losses", "random numbers", "nothing"]
Momentum = Literal["pytorch", "chainer"]

DRAWS = 10  # networks that are drawn to compute the test error where θ is not learned
LEARNING_RATE = 0.01
MOMENTUM = 0.9
DECAY = 1e-4
WARM = 3  # steps before a step is recorded


@dataclass(frozen=True)
class Setting:
    """A network and how its bits are found: by an algorithm, or fixed.

    With `patient`, W waits for all λ architectures of an iteration and moves by the mean of their gradients. The
    algorithm is told the losses, random numbers instead of them (`blind`), or nothing, so that θ stays at its start.
    `initial` is the standard deviation of the weights of a layer, or its factor over 1/√inputs for "lecun" and "he".
    `step` is the formula of Nesterov's momentum. `estimator` names another way to find the bits (`estimators`).
    """

    name: str
    network: Network
    algorithm: Callable[[Binary], IGO] | None = None
    mask: tuple[int, ...] = ()
    batch: int = 64
    clip: float = math.inf
    patient: bool = False
    learning_rate: float = LEARNING_RATE
    told: ToldToAlgorithm = "losses"
    initial: Literal["lecun", "he"] | float = "lecun"
    step: Momentum = "pytorch"
    estimator: str = ""


class Training:
    """All trials of a setting, from the first update to the last."""

    def __init__(
        self,
        setting: Setting,
        data: Data,
        trials: Sequence[int],
        updates: int,
        device: str | torch.device = "cpu",
        recorded: bool = True,
    ) -> None:
        self.setting = setting
        self.updates = updates
        self.done = 0
        self.device = torch.device(device)
        self.recorded = recorded and self.device.type == "cuda"  # compiled, and replayed as a CUDA graph
        network = setting.network
        each = [network.parameters(torch.Generator().manual_seed(_seed(trial, 0))) for trial in trials]
        self.W = [initialized(torch.stack(same), setting.initial).to(self.device) for same in zip(*each, strict=True)]
        self.V = [torch.zeros_like(W) for W in self.W]  # momentum
        self.sums = [torch.zeros_like(W) for W in self.W] if setting.patient else []
        self.search: ArchitectureSearch | None = None
        self.masks = torch.tensor(setting.mask, dtype=torch.int8, device=self.device).expand(len(trials), 1, -1)
        self.size = 1  # architectures per update
        if setting.algorithm is not None:
            bits = Binary(network.n)
            algorithm = setting.algorithm(bits)
            self.search = ArchitectureSearch(bits, algorithm, trials=len(trials)).to(self.device)
            self.search.key.copy_(torch.tensor([_seed(trial, 1) for trial in trials]))
            if algorithm.lam(algorithm.init()) == most_samples(algorithm.adaptation):
                self.size = most_samples(algorithm.adaptation)
        self.images, self.test_images = (torch.tensor(x, device=self.device) for x in (data.train_x, data.test_x))
        self.labels, self.test_labels = (
            torch.tensor(y, dtype=torch.int64, device=self.device) for y in (data.train_y, data.test_y)
        )
        self.keys = torch.tensor([_seed(trial, 2) for trial in trials], device=self.device)
        self.blind_keys = torch.tensor([_seed(trial, 3) for trial in trials], device=self.device)
        # Whole passes over the data that are whole mini-batches too, so that none is cut.
        passes = setting.batch // math.gcd(len(self.images), setting.batch)
        self.length = passes * len(self.images) // setting.batch
        self.order = torch.empty(len(trials), self.length, setting.batch, dtype=torch.int64, device=self.device)
        self.T = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.rate = torch.tensor(setting.learning_rate, device=self.device)
        self.losses = torch.zeros(len(trials), self.size, device=self.device)  # of the last update
        self._fresh = -1  # which stretch of passes is in `order`
        self._warmed = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32
        if self.recorded:
            torch.compiler.reset()  # nothing is shared with what was compiled for another setting
        self._mini_batch, self._backprop = self._ready(mini_batch), self._ready(network.backprop)
        self._descend, self._wait = self._ready(descend), self._ready(wait)
        self._random_losses = self._ready(random_losses)
        if self.search is not None:
            self._ask, self._tell = self._ready(self.search.ask), self._ready(self.search.tell)

    def _ready(self, part: Callable[..., Any]) -> Callable[..., Any]:
        """Return a part of the step, on a GPU compiled for the shapes that it gets."""
        return torch.compile(part, dynamic=False) if self.recorded else part

    def step(self) -> None:
        """Update W in every trial, and θ where an iteration closes."""
        x, y = self._mini_batch(self.images, self.labels, self.order, self.T)
        masks = self.masks if self.search is None else self._ask(self.size)
        losses, factors = self._backprop(self.W, x, y, masks)
        self.losses.copy_(losses)
        if self.search is not None:
            lam = self.search.lam if self.setting.patient else None
            if self.setting.told == "losses":
                self._tell(masks, losses)
            elif self.setting.told == "random numbers":
                self._tell(masks, self._random_losses(self.blind_keys, self.T, losses))
        if self.search is None or lam is None:
            self._descend(self.W, self.V, factors, self.rate, self.setting.clip, self.setting.step)
        else:
            closed = (self.search.told == 0) / lam  # 0 where an iteration is still open
            self._wait(self.W, self.V, self.sums, factors, self.rate, self.setting.clip, closed)
        self.T += 1

    def run(self, until: int) -> None:
        """Update until a number of updates is reached."""
        while self.done < until:
            stretch = self.done // self.length
            if stretch != self._fresh:
                self.shuffle(stretch)
            self.rate.fill_(self.setting.learning_rate * factor(self.done, self.updates))
            # Neither the learning rate nor the order of the data changes before `stop`.
            changes = (self.updates // 2, self.updates * 3 // 4, (stretch + 1) * self.length, until)
            stop = min(change for change in changes if change > self.done)
            for _ in range(stop - self.done):
                self._advance()
            self.done = stop

    def finish(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _advance(self) -> None:
        if not self.recorded:
            self.step()
        elif self.graph is not None:
            self.graph.replay()
        else:
            self._record()

    def _record(self) -> None:
        """Record the step on a GPU, after the first steps have compiled it."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.step()
        torch.cuda.current_stream().wait_stream(side)
        self._warmed += 1
        if self._warmed == WARM:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()

    def shuffle(self, stretch: int) -> None:
        """Draw the order of the images in these passes: one permutation per pass, by the generator of the trial."""
        images = len(self.images)
        passes = self.order[0].numel() // images
        for trial in range(len(self.keys)):
            key, drawn = self.keys[trial : trial + 1], torch.tensor([stretch * passes], device=self.device)
            order = tensor_uniforms(key, drawn, passes, images)[0].argsort(dim=-1, stable=True)
            self.order[trial] = order.view(self.length, -1)
        self._fresh = stretch

    def errors(self) -> Tensor:
        """Return the test error of each trial in percent; bits are one where θ ≥ ½, or drawn if θ is not learned."""
        return self._errors(self.final_masks())[:, 0]

    def final_masks(self) -> Tensor:
        """Return the bits at test time, [R, 1, n]."""
        if self.search is None:
            return self.masks
        return self.drawn_networks(1) if self.setting.told == "nothing" else self.search.mode[:, None]

    def drawn_networks(self, number: int) -> Tensor:
        """Return networks drawn with θ = ½ for each trial, other ones after each number of updates."""
        words = tensor_uniforms(self.blind_keys, self.T.expand(len(self.keys)) * DRAWS, number, self.setting.network.n)
        return (words < 2**31).to(torch.int8)

    @torch.no_grad()
    def _errors(self, masks: Tensor) -> Tensor:
        """Return the test error in percent of each network of each trial."""
        x, wrong = pixels(self.test_images)[None], []
        for trial in range(len(masks)):  # one after the other, to go easy on memory
            W = [W[trial : trial + 1] for W in self.W]
            each = [self.setting.network.logits(W, x, mask[None, None])[0, 0].argmax(-1) for mask in masks[trial]]
            wrong.append(torch.stack([(found != self.test_labels).float().mean() for found in each]))
        return 100.0 * torch.stack(wrong)

    def records(self) -> list[dict[str, float]]:
        """Return what is recorded of each trial now."""
        errors = self.errors().tolist()
        rows = [{"update": self.done, "error": round(error, 4)} for error in errors]
        if self.search is not None:
            each = (self.search.lam_r, self.search.eps, self.search.mode.sum(-1))
            for row, lam_r, eps, ones in zip(rows, *(values.tolist() for values in each), strict=True):
                row.update(lam_r=float(f"{lam_r:.6g}"), eps=float(f"{eps:.6g}"), ones=ones)
        if self.setting.told == "nothing" and self.done == self.updates:
            for row, each in zip(rows, self._errors(self.drawn_networks(DRAWS)).mean(1).tolist(), strict=True):
                row.update(mean_error=round(each, 4))
        return rows

    def state(self) -> dict[str, Any]:
        """Return all that is needed to resume exactly."""
        search = None if self.search is None else self.search.state_dict()
        return {"W": self.W, "V": self.V, "sums": self.sums, "search": search, "done": self.done}

    def load(self, state: dict[str, Any]) -> None:
        """Resume from a state of the same setting and trials."""
        with torch.no_grad():
            for mine, theirs in zip((self.W, self.V, self.sums), (state[k] for k in ("W", "V", "sums")), strict=True):
                for to, source in zip(mine, theirs, strict=True):
                    to.copy_(source)
        if self.search is not None:
            self.search.load_state_dict(state["search"])
        self.done = state["done"]
        self.T.fill_(self.done)


def mini_batch(images: Tensor, labels: Tensor, order: Tensor, T: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mini-batch of this update, one per trial."""
    chosen = order.index_select(1, T % order.shape[1])[:, 0]
    return pixels(images[chosen]), labels[chosen]


def pixels(images: Tensor) -> Tensor:
    """Return bytes as numbers in [0, 1]."""
    return images.float() / 255.0


def gradients(factors: Factors) -> Iterator[Tensor]:
    """Return the gradients of W and b, layer by layer."""
    for H, G in factors:
        yield H.mT @ G
        yield G.sum(-2)


def initialized(W: Tensor, initial: Literal["lecun", "he"] | float) -> Tensor:
    """Return weights with another standard deviation than 1/√inputs; biases, which are zero, as they are."""
    if initial == "lecun":
        return W
    return W * (math.sqrt(2.0) if initial == "he" else float(initial) * math.sqrt(W.shape[-2]))


def random_losses(keys: Tensor, T: Tensor, losses: Tensor) -> Tensor:
    """Return uniform random numbers in place of the losses of this update."""
    words = tensor_uniforms(keys, T.expand(len(keys)), 1, losses.shape[1])[:, 0]
    return words.to(losses.dtype) * 2.0**-32


def descend(W: Weights, V: Weights, factors: Factors, rate: Tensor, norm: float, step: Momentum = "pytorch") -> None:
    """Nesterov's momentum with weight decay, after the gradient of each trial was clipped to a norm."""
    move_weights(W, V, list(gradients(factors)), rate, norm, step)


def move_weights(
    W: Weights, V: Weights, each: Sequence[Tensor], rate: Tensor, norm: float, step: Momentum = "pytorch"
) -> None:
    """Do the same with the gradients themselves."""
    scale = _scale(each, norm)
    moved = nesterov if step == "pytorch" else chainer_nesterov
    for w, v, g in zip(W, V, each, strict=True):
        moved(w, v, g if scale is None else g * _each(scale, g), rate)


def wait(W: Weights, V: Weights, sums: Weights, factors: Factors, rate: Tensor, norm: float, closed: Tensor) -> None:
    """Sum gradients, and move W by their mean where an iteration closes (`closed`: one over their number, or 0)."""
    for summed, g in zip(sums, gradients(factors), strict=True):
        summed += g
    each = [summed * _each(closed, summed) for summed in sums]
    scale = _scale(each, norm)
    for w, v, g, summed in zip(W, V, each, sums, strict=True):
        moves = _each(closed, w) != 0
        w_next, v_next = w.clone(), v.clone()
        nesterov(w_next, v_next, g if scale is None else g * _each(scale, g), rate)
        w.copy_(torch.where(moves, w_next, w))
        v.copy_(torch.where(moves, v_next, v))
        summed.masked_fill_(moves, 0.0)


def nesterov(w: Tensor, v: Tensor, g: Tensor, rate: Tensor) -> None:
    """Do one step in place."""
    g = g + DECAY * w
    v.copy_(MOMENTUM * v + g)
    w -= rate * (g + MOMENTUM * v)


def chainer_nesterov(w: Tensor, v: Tensor, g: Tensor, rate: Tensor) -> None:
    """Do one step of the formula of Chainer 4.4 in place: v contains the learning rate, which PyTorch's does not."""
    g = g + DECAY * w
    v.copy_(MOMENTUM * v - rate * g)
    w += MOMENTUM**2 * v - (1.0 + MOMENTUM) * rate * g


def _scale(each: Sequence[Tensor], norm: float) -> Tensor | None:
    """Return the factors that bring the gradient of each trial to at most this norm."""
    if norm == math.inf:
        return None
    square = torch.stack([(g * g).flatten(1).sum(1) for g in each]).sum(0)
    return (norm / square.sqrt()).clamp(max=1.0)


def _each(per_trial: Tensor, like: Tensor) -> Tensor:
    return per_trial.view(-1, *[1] * (like.dim() - 1))


def factor(done: int, updates: int) -> float:
    """Return the factor of the learning rate: divided by 10 at 1/2 and again at 3/4 of the updates."""
    return 1.0 if done < updates // 2 else 0.1 if done < updates * 3 // 4 else 0.01


def curve_marks(updates: int, count: int = 60) -> list[int]:
    """Return the updates after which the test error is computed: even on a logarithmic scale, from 100 on."""
    between = np.geomspace(min(100, updates), updates, count).round().astype(int)
    return sorted({*between.tolist(), updates})


def _seed(trial: int, purpose: int) -> int:
    """Return the seed of a trial's weights (0), samples (1) and mini-batches (2)."""
    return int(np.random.SeedSequence([trial, purpose]).generate_state(1, np.uint64)[0] >> np.uint64(1))
