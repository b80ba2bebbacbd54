"""Algorithm 1 in tensors, for many independent trials at once, with θ on the device of the weights.

`ArchitectureSearch` is an `nn.Module` whose buffers hold the state; like `Optimizer` for the core,
it is the only object that changes. Nothing is copied to the host, so that a training step can be
recorded in a CUDA graph. The iterations of trials may have different lengths: each trial closes its
own when it has λ losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from knobless._checks import positive_int
from knobless.core.adaptation import SNR, Adaptation, Fixed, samples, steps
from knobless.core.data import difference
from knobless.core.description import algorithm_data
from knobless.core.elitism import NO_ELITISM
from knobless.core.families import Family
from knobless.core.igo import IGO
from knobless.core.preferences import Preference, Quartiles, Truncation
from knobless.core.rng import keys
from knobless.recipes import pbil_epsilon
from knobless.space.codec import space_data
from knobless.space.space import Space

from .families import TensorFamily, space_in_tensors
from .uniforms import tensor_uniforms


class TensorState(NamedTuple):
    """State of the algorithm, with one row per trial: `State` and `Signal` in one."""

    theta: Tensor
    s: Tensor
    gamma: Tensor
    lam_r: Tensor


class ArchitectureSearch(nn.Module):
    """Sample architectures and learn from their losses.

    Parameters
    ----------
    space : Space, Binary, Choice, or a list or dict of these
        Search space of the architectures.
    algorithm : IGO, optional
        Algorithm, such as `pbil_lambda(space)`. By default, PBIL-ε.
    trials : int, optional
        Number of independent searches. If given, all shapes have one more dimension in front.
    rng : int or numpy.random.Generator, optional
        Seed of the random numbers.

    Notes
    -----
    A trial's iteration closes when it has λ losses; further losses in the same `tell` are ignored.
    Like any module, a search is moved by `.to(...)`, and its `state_dict` has the complete state: a
    search that loads it continues as the one that saved it.

    Examples
    --------
    >>> from knobless import Binary
    >>> from knobless.torch import ArchitectureSearch
    >>> search = ArchitectureSearch(Binary(31), rng=0)
    >>> masks = search.ask(2)  # one row per architecture: bits, and indices of options
    >>> search.tell(masks, masks.sum(1))  # one loss per row
    >>> search.mode.shape
    torch.Size([31])
    """

    theta: Tensor
    s: Tensor
    gamma: Tensor
    lam_r: Tensor
    key: Tensor
    drawn: Tensor
    told: Tensor
    x: Tensor
    f: Tensor

    def __init__(
        self,
        space: Any,
        algorithm: IGO | None = None,
        *,
        trials: int | None = None,
        rng: Any = None,
    ) -> None:
        super().__init__()
        self.space = Space.of(space)
        family = self.space.family
        self._family = space_in_tensors(self.space)
        self.algorithm = tensor_algorithm(
            pbil_epsilon(family) if algorithm is None else algorithm, family
        )
        rows = 1 if trials is None else positive_int("trials", trials)
        self._lead = () if trials is None else (rows,)
        # Evaluated here: torch.compile does not support the lock of a cached property
        self._words = family.words
        state = self.algorithm.init()
        capacity = most_samples(self.algorithm.adaptation)
        key = np.array(keys(rng, rows), dtype=np.uint64).view(np.int64)
        kind = torch.get_default_dtype()
        for name, value in (("theta", state.theta), ("s", state.signal.s)):
            self.register_buffer(
                name, torch.tensor(np.tile(value, (rows, 1)), dtype=kind)
            )
        for name, number in (
            ("gamma", state.signal.gamma),
            ("lam_r", state.signal.lam_r),
        ):
            self.register_buffer(name, torch.full((rows,), number, dtype=kind))
        # Of the stream of a trial
        self.register_buffer("key", torch.tensor(key))
        # Points so far
        self.register_buffer("drawn", torch.zeros(rows, dtype=torch.int64))
        # The current iteration. One more row than its maximum takes the losses beyond λ.
        self.register_buffer("told", torch.zeros(rows, dtype=torch.int64))
        self.register_buffer(
            "x",
            self._family.mode(self.theta)[:, None].repeat(1, capacity + 1, 1),
        )
        self.register_buffer("f", torch.zeros(rows, capacity + 1, dtype=kind))

    # The state of the algorithm.

    @property
    def state(self) -> TensorState:
        """The buffers, not copied."""
        return TensorState(self.theta, self.s, self.gamma, self.lam_r)

    @property
    def lam(self) -> Tensor:
        """Number of samples in this iteration."""
        return self._shaped(spend(self.algorithm.adaptation, self.lam_r)[0])

    @property
    def eps(self) -> Tensor:
        """Step length in this iteration."""
        return self._shaped(spend(self.algorithm.adaptation, self.lam_r)[1])

    @property
    def mode(self) -> Tensor:
        """The most probable architecture; a bit is one from θ = ½ on."""
        return self._shaped(self._family.mode(self.theta))

    def extra_repr(self) -> str:
        trials = f", trials={self._lead[0]}" if self._lead else ""
        return f"{self.x.shape[-1]} variables, {_named(self.algorithm.adaptation)}{trials}"

    # Ask and tell.

    def ask(self, k: int = 1) -> Tensor:
        """Sample architectures from P_θ.

        Parameters
        ----------
        k : int, default=1
            Number of architectures per trial.
        """
        u = tensor_uniforms(
            self.key, self.drawn, positive_int("k", k), self._words
        )
        self.drawn += k
        return self._shaped(self.draw(u))

    def draw(self, u: Tensor) -> Tensor:
        """Return the architectures of given random numbers.

        Parameters
        ----------
        u : torch.Tensor
            32-bit uniforms, shape (trials, k, words).

        Returns
        -------
        torch.Tensor
            Architectures, shape (trials, k, variables).
        """
        return self._family.draw(self.theta, u)

    @torch.no_grad()
    def tell(self, masks: Tensor, losses: Tensor) -> None:
        """Learn from the losses of architectures.

        Parameters
        ----------
        masks : torch.Tensor
            Architectures, as `ask` has returned them.
        losses : torch.Tensor
            One loss per architecture. NaN and inf rank worst.
        """
        x, f = self._rows(masks, losses)
        lam, _ = spend(self.algorithm.adaptation, self.lam_r)
        place = self.told[:, None] + torch.arange(x.shape[1], device=x.device)
        place = torch.where(place < lam[:, None], place, self.f.shape[1] - 1)
        trial = torch.arange(len(x), device=x.device)[:, None]
        self.x[trial, place] = x
        self.f[trial, place] = f
        self.told += x.shape[1]
        closing = self.told >= lam
        rows: slice | Tensor = slice(None)
        used = self.f.shape[1] - 1
        padded = used
        if closing.device.type == "cpu" and not torch.compiler.is_compiling():
            # On a GPU the host would wait for this
            rows = closing.nonzero()[:, 0]
            if not len(rows):
                return
            used = int(lam[rows].max())
            # In whole blocks, so that the order of summation does not depend on the other trials.
            padded = min(-(-used // 64) * 64, padded)
        x = self.x[rows, :used]
        f = self.f[rows, :padded]
        before = TensorState(*(value[rows] for value in self.state))

        def average(share: Tensor) -> Tensor:
            return self._family.average(share[:, :used], x)

        after = learn(
            self.algorithm, self._family, before, average, f, lam[rows]
        )
        for value, old, new in zip(self.state, before, after, strict=True):
            closes = closing[rows]
            value[rows] = torch.where(
                closes if new.dim() == 1 else closes[:, None], new, old
            )
        self.told.masked_fill_(closing, 0)

    # Internals.

    def _rows(self, masks: Tensor, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Return both with the dimension of the trials in front, after checks."""
        lead = self._lead
        for name, tensor in (("masks", masks), ("losses", losses)):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name}: expected a tensor, got {tensor!r}")
        if masks.is_floating_point():
            raise TypeError(
                f"masks: expected integers, as returned by ask, got {masks.dtype}"
            )
        if (
            masks.shape[:-2] != lead
            or masks.shape[-1] != self.x.shape[-1]
            or masks.dim() != len(lead) + 2
        ):
            expected = [*lead, "k", self.x.shape[-1]]
            raise ValueError(
                f"masks: expected the shape {expected}, as returned by ask, got {list(masks.shape)}"
            )
        if losses.shape != masks.shape[:-1]:
            raise ValueError(
                f"losses: expected the shape {list(masks.shape[:-1])}, got {list(losses.shape)}"
            )
        return masks.reshape(-1, *masks.shape[-2:]).to(self.x), losses.reshape(
            -1, masks.shape[-2]
        ).to(self.f)

    def _shaped(self, value: Tensor) -> Tensor:
        return value if self._lead else value[0]

    def get_extra_state(self) -> dict[str, Any]:
        """Return the space and the algorithm that the state belongs to."""
        return {
            "space": space_data(self.space),
            "algorithm": algorithm_data(self.algorithm),
        }

    def set_extra_state(self, state: Any) -> None:
        """Do nothing: the description was compared before anything was loaded.

        Parameters
        ----------
        state : dict
            Description of the space and the algorithm.
        """

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, *arguments: Any
    ) -> None:
        theirs = state_dict.get(f"{prefix}_extra_state")
        differs = (
            None
            if theirs is None
            else difference(
                theirs, self.get_extra_state(), "search", "state_dict"
            )
        )
        if differs:
            raise ValueError(
                f"state_dict does not match this search: {differs}"
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def tensor_algorithm(algorithm: Any, family: Family) -> IGO:
    """Return an algorithm over this family that is supported in tensors.

    TypeError or ValueError for any other.
    """
    if not all(
        hasattr(algorithm, part)
        for part in ("preference", "adaptation", "elitism")
    ):
        raise TypeError(
            "algorithm: expected one of pbil_lambda, pbil_epsilon, cga, umda or pbil, such as "
            "pbil_lambda(space), "
            f"got a value of type {type(algorithm).__name__}"
        )
    if algorithm.family != family:
        raise ValueError(
            "algorithm: expected one made for this space, such as pbil_lambda(space)"
        )
    if not isinstance(algorithm.preference, (Quartiles, Truncation)):
        raise TypeError(
            f"algorithm: expected a preference by rank, got {algorithm.preference!r}"
        )
    if algorithm.elitism != NO_ELITISM:
        raise TypeError(
            f"algorithm: expected one without elitism, got {algorithm.elitism!r}"
        )
    spend(algorithm.adaptation, torch.ones(1))
    most_samples(algorithm.adaptation)
    return algorithm


def learn(
    algorithm: IGO,
    family: TensorFamily,
    state: TensorState,
    average: Callable[[Tensor], Tensor],
    f: Tensor,
    lam: Tensor,
) -> TensorState:
    """Return the next state (lines 4 to 15) for the first λ points of each trial.

    It equals `IGO.tell`.

    `average(share)` returns Σ share_i T(x_i) over the points of each trial.
    """
    theta, s, gamma, lam_r = state
    w = weights(algorithm.preference, f, lam)  # lines 4-6
    inside = torch.arange(w.shape[1], device=w.device) < lam[:, None]
    informative = ((w != w[:, :1]) & inside).any(1)  # lines 7-9
    share = w / lam[:, None]
    gradient = average(share) - share.sum(1, keepdim=True) * theta  # line 10
    # Its length for uninformative values
    noise = (algorithm.family.dim * (share * share).sum(1)).sqrt()
    _, eps = spend(algorithm.adaptation, lam_r)
    moved = family.move(theta, eps[:, None] * gradient)  # line 11
    if isinstance(algorithm.adaptation, SNR):
        beta = eps
        gain = beta * (2.0 - beta)
        z = (
            family.whiten(theta, gradient)
            * (gain.sqrt() / torch.where(informative, noise, 1.0))[:, None]
        )
        s_next = (1.0 - beta)[:, None] * s + z  # line 12, with θ as it was
        gamma_next = (1.0 - beta) ** 2 * gamma + gain  # line 13
        signal = (
            gamma_next - (s_next * s_next).sum(1) / algorithm.adaptation.alpha
        )
        grown = lam_r * torch.exp(beta * signal)  # line 14
        # Line 15
        lam_next = grown.clamp(
            algorithm.adaptation.lam_min, algorithm.adaptation.lam_max
        )
        s = torch.where(informative[:, None], s_next, s)
        gamma = torch.where(informative, gamma_next, gamma)
        lam_r = torch.where(informative, lam_next, lam_r)
    return TensorState(
        torch.where(informative[:, None], moved, theta), s, gamma, lam_r
    )


def weights(preference: Preference, f: Tensor, lam: Tensor) -> Tensor:
    """Return weights of the first λ values of each trial, shared by ties; 0 for the others."""
    lam = lam[:, None]
    inside = torch.arange(f.shape[1], device=f.device) < lam
    f = torch.where(inside & (f == f), f, torch.inf)
    ranked = f.sort(1).values
    first = torch.searchsorted(ranked, f)
    last = torch.minimum(torch.searchsorted(ranked, f, right=True), lam)
    mu = preference.mu if isinstance(preference, Truncation) else (lam + 3) // 4
    unit = lam.to(f.dtype) / mu
    counts = _cumulated(preference, last, lam, mu) - _cumulated(
        preference, first, lam, mu
    )
    return torch.where(inside, unit * counts / (last - first), 0.0)


def _cumulated(
    preference: Preference, rank: Tensor, lam: Tensor, mu: Any
) -> Tensor:
    """Return the sum of the weights of lower ranks, in units of λ/μ."""
    best = (
        rank.clamp(max=mu) if isinstance(mu, int) else torch.minimum(rank, mu)
    )
    if isinstance(preference, Truncation):
        return best
    return best - (rank - lam + mu).clamp(min=0)


def spend(adaptation: Adaptation, lam_r: Tensor) -> tuple[Tensor, Tensor]:
    """Return λ and ε of each trial."""
    if isinstance(adaptation, Fixed):
        return torch.full_like(
            lam_r, adaptation.lam, dtype=torch.int64
        ), torch.full_like(lam_r, adaptation.eps)
    if isinstance(adaptation, SNR) and adaptation.spend is samples:
        return lam_r.round().to(torch.int64), torch.full_like(
            lam_r, adaptation.eps
        )
    if isinstance(adaptation, SNR) and adaptation.spend is steps:
        lam_min = adaptation.lam_min
        return torch.full_like(
            lam_r, lam_min, dtype=torch.int64
        ), adaptation.eps * (lam_min / lam_r)
    raise TypeError(
        f"algorithm: expected one that adapts samples or steps, or neither, got {adaptation!r}"
    )


def most_samples(adaptation: Adaptation) -> int:
    """Return the largest λ, for which memory is allocated."""
    if isinstance(adaptation, Fixed):
        return adaptation.lam
    if isinstance(adaptation, SNR) and adaptation.spend is steps:
        return adaptation.lam_min
    if isinstance(adaptation, SNR) and adaptation.lam_max < 2**31:
        return round(adaptation.lam_max)
    raise TypeError(
        f"algorithm: expected one with a bound on λ, got {adaptation!r}"
    )


def _named(value: Any) -> str:
    """Return a value of the core as text that is the same in every process."""
    if is_dataclass(value):
        inner = ", ".join(
            f"{field.name}={_named(getattr(value, field.name))}"
            for field in fields(value)
        )
        return f"{type(value).__name__}({inner})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_named, value))})"
    return value.__name__ if callable(value) else repr(value)
