"""Estimators that are compared with PBIL: unbiased where they claim it, and the steps of torch."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="reproduction.joint needs torch: pip install 'knobless[torch]'")

from knobless.torch.data import Data  # noqa: E402
from reproduction.joint.estimators import (  # noqa: E402
    ESTIMATORS,
    EstimatorTraining,
    GumbelStraightThrough,
    HardConcrete,
    LeaveOneOut,
    adam,
)
from reproduction.joint.networks import ActivationNetwork, LayerNetwork  # noqa: E402
from reproduction.joint.training import Setting, gradients, mini_batch  # noqa: E402

NETWORKS = {
    "layers": LayerNetwork(pixels=6, units=5, n=4, classes=3),
    "activations": ActivationNetwork(pixels=6, units=4, depth=2, classes=3),
}


def data():
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (n, 6), dtype=np.uint8) for n in (12, 8))
    return Data(train, (train.argmax(1) % 3).astype(np.uint8), test, (test.argmax(1) % 3).astype(np.uint8))


def training_of(estimator, network, trials=(0, 1), updates=20):
    setting = Setting(estimator, NETWORKS[network], batch=4, clip=0.5, learning_rate=0.1, estimator=estimator)
    return EstimatorTraining(setting, data(), list(trials), updates)


@pytest.mark.parametrize("samples", [2, 3])
def test_leave_one_out_is_unbiased(samples):
    points = torch.tensor(list(itertools.product((0, 1), repeat=2)))
    losses = torch.tensor([0.3, 2.0, -1.0, 0.7], dtype=torch.float64)
    phi = torch.tensor([[0.4, -1.1]], dtype=torch.float64, requires_grad=True)
    p = torch.where(points == 1, torch.sigmoid(phi), 1.0 - torch.sigmoid(phi)).prod(1)
    (exact,) = torch.autograd.grad(p @ losses, phi)
    found = torch.zeros(1, 2, dtype=torch.float64)
    with torch.no_grad():
        for rows in itertools.product(range(4), repeat=samples):
            chosen = list(rows)
            found += p[chosen].prod() * LeaveOneOut(samples).gradient(phi, points[chosen][None], losses[chosen][None])
    torch.testing.assert_close(found, exact)


def test_adam_is_that_of_torch():
    torch.manual_seed(0)
    w = torch.randn(2, 5, dtype=torch.float64)
    by_torch = torch.nn.Parameter(w.clone())
    optimizer = torch.optim.Adam([by_torch], lr=0.01)
    first, second = torch.zeros_like(w), torch.zeros_like(w)
    for t in range(1, 6):
        g = torch.randn(2, 5, dtype=torch.float64)
        by_torch.grad = g.clone()
        optimizer.step()
        adam(w, first, second, g, torch.tensor([t]))
        torch.testing.assert_close(w, by_torch.detach())


def test_samples_of_the_relaxations():
    phi = torch.tensor([[0.5, -2.0]], requires_grad=True)
    noise = torch.logit(torch.tensor([[[0.3, 0.9]]]))
    straight = GumbelStraightThrough().sample(phi, noise)
    assert straight.tolist() == [[[0.0, 1.0]]]  # the bits with which u exceeds 1 − σ(φ)
    (slope,) = torch.autograd.grad(straight.sum(), phi)
    soft = torch.sigmoid(phi.detach() + noise[:, 0])
    torch.testing.assert_close(slope, soft * (1.0 - soft))
    gates = HardConcrete().sample(torch.tensor([[0.0]]), torch.tensor([[[-9.0], [0.0], [9.0]]]))
    torch.testing.assert_close(gates.flatten(), torch.tensor([0.0, 0.5, 1.0]))
    assert HardConcrete().final(torch.tensor([[-9.0, 9.0]])).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("network", NETWORKS)
def test_weights_have_the_gradient_of_the_drawn_network(network):
    training = training_of("gumbel", network)
    training.shuffle(0)
    x, y = mini_batch(training.images, training.labels, training.order, training.T)
    *each, slope = training.differentiate(x, y)
    masks = (training.uniforms(1) > 0.5).to(torch.int8)  # φ = 0
    _, factors = training.setting.network.backprop(training.W, x, y, masks)
    for found, expected in zip(each, gradients(factors), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert slope.abs().max() > 0.0


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_resumed_training_ends_as_a_whole_one(estimator, network):
    whole, first, second = (training_of(estimator, network) for _ in range(3))
    whole.run(20)
    first.run(7)
    second.load(first.state())
    second.run(20)
    assert torch.equal(whole.phi, second.phi)
    assert whole.phi.abs().max() > 0.0
    assert all(torch.equal(a, b) for a, b in zip(whole.W, second.W, strict=True))
    assert whole.records() == second.records()
    alone = training_of(estimator, network, trials=(1,))
    alone.run(20)
    torch.testing.assert_close(alone.phi[0], whole.phi[1], rtol=1e-4, atol=1e-5)


def test_without_a_difference_between_the_bits_nothing_is_learned():
    training = training_of("reinforce", "activations")
    training.setting = replace(training.setting, clip=0.0)
    for W in training.W:
        W.zero_()
    training.run(5)
    assert not training.phi.any()
