"""The two loops beside the procedures of the paper's appendix, written out with the core for θ."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import knobless as kl
from knobless.algorithms import cga, pbil

torch = pytest.importorskip("torch", reason="knobless.torch needs torch: pip install 'knobless[torch]'")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from knobless.torch import ArchitectureSearch, train_epsilon, train_lambda  # noqa: E402
from knobless.torch.uniforms import tensor_uniforms  # noqa: E402

SPACE = kl.Binary(8)
OPTIMIZERS = {
    "SGD": lambda W: torch.optim.SGD(W, lr=0.3, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "Adam": lambda W: torch.optim.Adam(W, lr=0.02),
}


@pytest.fixture(autouse=True)
def plain():
    """In double precision, seeded, and not on both cores."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


class Tiny(nn.Module):
    """A hidden layer whose units can be switched off."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 3)

    def forward(self, x, mask):
        return self.last(mask * torch.tanh(self.first(x)))


def batches(count=5):
    x = torch.randn(count, 6, 3, generator=torch.Generator().manual_seed(1))
    return [(each, each.argmax(-1)) for each in x]


class Sampler:
    """P_θ by the core, from the uniforms that `ArchitectureSearch` draws from."""

    def __init__(self, search):
        self.algorithm, self.key, self.drawn = search.algorithm, search.key.clone(), 0
        self.state = self.algorithm.init()

    def sample(self):
        u = tensor_uniforms(self.key, torch.tensor([self.drawn]), 1, 8)[0].numpy().astype(np.uint32)
        self.drawn += 1
        return torch.tensor(self.algorithm.family.draw(self.state.theta, u)[0])

    def update(self, M, L):
        x, f = (np.array([each.numpy() for each in some]) for some in (M, L))
        self.state = self.algorithm.tell(self.state, x, f)


def endless(loader):
    while True:
        yield from loader


def gradient(network, M, Z):
    """The loss of an architecture on a mini-batch, and its gradient."""
    loss = nn.functional.cross_entropy(network(Z[0], M), Z[1])
    return loss.detach(), torch.autograd.grad(loss, list(network.parameters()))


def descend(network, optimizer, g):
    for w, g_w in zip(network.parameters(), g, strict=True):
        w.grad = g_w
    optimizer.step()


def procedure_epsilon(network, sampler, optimizer, loader, T_max):
    """Simultaneous optimization using PBIL-ε."""
    t, Z_next = 0, endless(loader)
    while t < T_max:
        Z = next(Z_next)
        M_1, M_2 = sampler.sample(), sampler.sample()
        (L_1, g_1), (L_2, g_2) = (gradient(network, M, Z) for M in (M_1, M_2))
        descend(network, optimizer, [(a + b) / 2 for a, b in zip(g_1, g_2, strict=True)])
        sampler.update([M_1, M_2], [L_1, L_2])
        t += 1


def procedure_lambda(network, sampler, optimizer, loader, T_max):
    """Simultaneous optimization using PBIL-λ, ended in the midst of an iteration if need be; all λ that were used."""
    t, Z_next, lams = 0, endless(loader), []
    while t < T_max:
        lam = sampler.algorithm.lam(sampler.state)
        lams.append(lam)
        M, L = [], []
        for _ in range(lam):
            if t == T_max:
                return lams
            Z_i, M_i = next(Z_next), sampler.sample()
            L_i, g = gradient(network, M_i, Z_i)
            descend(network, optimizer, g)
            M.append(M_i)
            L.append(L_i)
            t += 1
        sampler.update(M, L)
    return lams


def twins(algorithm, optimizer="SGD"):
    """A network, a search and an optimizer, and the same again with the core."""
    network, search = Tiny(), ArchitectureSearch(SPACE, algorithm, rng=4)
    other = copy.deepcopy(network)
    make = OPTIMIZERS[optimizer]
    return (network, search, make(network.parameters())), (other, Sampler(search), make(other.parameters()))


def agree(mine, theirs):
    """W bit for bit, and θ to rounding."""
    (network, search, _), (other, sampler, _) = mine, theirs
    for a, b in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    np.testing.assert_allclose(search.theta[0], sampler.state.theta, rtol=0, atol=1e-12)
    assert search.drawn.item() == sampler.drawn


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("recipe", [kl.pbil_epsilon, cga])
def test_train_epsilon_is_the_procedure_of_the_paper(recipe, optimizer):
    mine, theirs = twins(recipe(SPACE), optimizer)
    train_epsilon(*mine, batches(), 60)
    procedure_epsilon(*theirs, batches(), 60)
    agree(mine, theirs)
    assert np.abs(theirs[1].state.theta - 0.5).max() > 0.1


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("updates", [60, *(pytest.param(each, marks=pytest.mark.slow) for each in (61, 62, 63))])
def test_train_lambda_is_the_procedure_of_the_paper(updates, optimizer):
    mine, theirs = twins(kl.pbil_lambda(SPACE), optimizer)
    train_lambda(*mine, batches(), updates)
    lams = procedure_lambda(*theirs, batches(), updates)
    agree(mine, theirs)
    assert len({*lams}) > 2


def test_train_epsilon_takes_the_mean_of_any_fixed_number():
    mine, (network, sampler, optimizer) = twins(pbil(SPACE, 5, 2, 0.3))
    train_epsilon(*mine, batches(), 1)
    M = [sampler.sample() for _ in range(5)]
    L, g = zip(*(gradient(network, M_i, batches()[0]) for M_i in M), strict=True)
    descend(network, optimizer, [sum(each) / 5 for each in zip(*g, strict=True)])
    sampler.update(M, L)
    for a, b in zip(mine[0].parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)
    np.testing.assert_allclose(mine[1].theta[0], sampler.state.theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("train", [train_epsilon, train_lambda])
def test_a_data_loader_is_gone_through_anew_in_every_pass(train):
    x = torch.arange(12.0)[:, None].expand(12, 3)
    seen = []

    class Watched(Tiny):
        def forward(self, x, mask):
            seen.append(x[:, 0].tolist())
            return super().forward(x, mask)

    network, algorithm = Watched(), kl.pbil_lambda(SPACE) if train is train_lambda else None
    search = ArchitectureSearch(SPACE, algorithm, rng=0)
    data = TensorDataset(x, torch.zeros(12, dtype=torch.int64))
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(2))
    train(network, search, OPTIMIZERS["SGD"](network.parameters()), loader, 6)
    per_update = 2 if train is train_epsilon else 1
    assert len(seen) == 6 * per_update
    assert seen[::per_update] == seen[per_update - 1 :: per_update]  # both architectures on one mini-batch
    images = np.concatenate(seen[::per_update]).tolist()
    first, second = images[:12], images[12:]
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second


class GoneError(Exception):
    """What a callback may raise."""


@pytest.mark.parametrize(("train", "shape"), [(train_epsilon, (2,)), (train_lambda, (1,))])
def test_the_callback_sees_every_update_and_may_end_it(train, shape):
    recipe = kl.pbil_epsilon if train is train_epsilon else kl.pbil_lambda
    told = []

    def stop(T, losses):
        told.append((T, losses.shape, losses.requires_grad, mine[1].theta.clone(), mine[1].drawn.item()))
        if T == 7:
            raise StopIteration

    mine, _ = twins(recipe(SPACE))
    theirs = copy.deepcopy(mine[:2])
    train(*mine, batches(), 100, callback=stop)
    train(*theirs, OPTIMIZERS["SGD"](theirs[0].parameters()), batches(), 7)
    assert [(T, seen, grad) for T, seen, grad, _, _ in told] == [(T, shape, False) for T in range(1, 8)]
    assert torch.equal(told[-1][3], mine[1].theta)  # it comes after θ
    assert told[-1][4] == 7 * shape[0]
    assert torch.equal(mine[1].theta, theirs[1].theta)
    for a, b in zip(mine[0].parameters(), theirs[0].parameters(), strict=True):
        assert torch.equal(a, b)

    def fail(T, losses):
        raise GoneError

    with pytest.raises(GoneError):
        train(*mine, batches(), 100, callback=fail)


@pytest.mark.parametrize("train", [train_epsilon, train_lambda])
def test_a_loss_of_ones_own_and_an_optimizer_with_a_hook(train):
    def loss(out, y):
        seen.append(out.detach())
        return (out - 1e3 * nn.functional.one_hot(y, 3)).square().sum()

    seen, norms = [], []
    recipe = kl.pbil_epsilon if train is train_epsilon else kl.pbil_lambda
    (network, search, _), _ = twins(recipe(SPACE))
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    before = [w.clone() for w in network.parameters()]

    def clip(optimizer, args, kwargs):
        norms.append(nn.utils.clip_grad_norm_(network.parameters(), 0.01))

    optimizer.register_step_pre_hook(clip)
    train(network, search, optimizer, batches(), 1, loss)
    assert len(seen) == (2 if train is train_epsilon else 1)
    assert norms[0] > 1
    moved = sum((a - b).square().sum() for a, b in zip(network.parameters(), before, strict=True))
    torch.testing.assert_close(moved.sqrt(), torch.tensor(0.01), rtol=1e-6, atol=0)


@pytest.mark.parametrize("train", [train_epsilon, train_lambda])
def test_loaders_without_mini_batches_are_refused(train):
    mine, _ = twins(kl.pbil_epsilon(SPACE) if train is train_epsilon else kl.pbil_lambda(SPACE))
    with pytest.raises(ValueError, match=r"^loader: expected mini-batches \(x, y\) in every pass over it, got none$"):
        train(*mine, [], 5)
    assert mine[1].drawn.item() == 0
    done = []
    once = (batch for batch in batches(3))  # as a generator is: there is no second pass
    with pytest.raises(ValueError, match=r"^loader: expected mini-batches \(x, y\) in every pass over it, got none$"):
        train(*mine, once, 5, callback=lambda T, losses: done.append(T))
    assert done == [1, 2, 3]
    train(*mine, (batch for batch in batches(3)), 3)  # which is no matter where none is needed
    train(*mine, endless(batches(3)), 7)


@pytest.mark.parametrize("train", [train_epsilon, train_lambda])
@pytest.mark.parametrize("updates", [0, -3, 2.5])
def test_only_whole_numbers_of_updates_can_be_made(train, updates):
    mine, _ = twins((cga if train is train_epsilon else kl.pbil_lambda)(SPACE))
    with pytest.raises((ValueError, TypeError), match=r"^updates: expected"):
        train(*mine, batches(), updates)


def test_train_epsilon_needs_a_fixed_lambda():
    space = kl.Binary(3)
    network = nn.Linear(2, 2)
    search = ArchitectureSearch(space, kl.pbil_lambda(space), rng=0)
    with pytest.raises(ValueError, match="search: expected an algorithm whose λ is fixed"):
        train_epsilon(network, search, torch.optim.SGD(network.parameters(), lr=0.1), [(0, 0)], 1)


def test_train_lambda_needs_an_algorithm_that_adapts_lambda():
    network, search = nn.Linear(2, 2), ArchitectureSearch(kl.Binary(3))
    with pytest.raises(ValueError, match="search: expected an algorithm that adapts λ"):
        train_lambda(network, search, torch.optim.SGD(network.parameters(), lr=0.1), [(0, 0)], 1)
