"""The example of joint training: its public loops do what it compares, and it ends in a plain network."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

import knobless as kl
from knobless.algorithms import cga
from knobless.torch import ArchitectureSearch, train_epsilon, train_lambda
from reproduction.joint import networks
from reproduction.joint.training import Setting, Training

UPDATES = 24  # the learning rate changes twice on the way


@pytest.fixture(scope="module")
def example():
    path = Path(__file__).resolve().parent.parent / "examples" / "joint_training.py"
    spec = importlib.util.spec_from_file_location("joint_training", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights_of(training):
    """Matrix and bias of each layer of the first trial, as `nn.Linear` has them."""
    found = []
    for W, b in zip(training.W[::2], training.W[1::2], strict=True):
        stack = zip(W[0], b[0], strict=True) if W.dim() == 4 else [(W[0], b[0])]
        found += [(w.T.clone(), each.clone()) for w, each in stack]
    return found


def linears(network):
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "loop"),
    [(kl.pbil_epsilon, train_epsilon), (cga, train_epsilon), (kl.pbil_lambda, train_lambda)],
    ids=lambda value: value.__name__,
)
@pytest.mark.parametrize("layers", [True, False], ids=["layers", "activations"])
def test_the_loops_do_what_the_batch_of_trials_does(example, recipe, loop, layers):
    """From the same weights, mini-batches and random numbers: the same θ, and weights but for rounding."""
    network = example.layers_network(n=5) if layers else example.activations_network(units=8)
    same = networks.LayerNetwork(64, units=32, n=5) if layers else networks.ActivationNetwork(64, units=8, depth=2)
    clip = 2.0 if layers else torch.inf
    training = Training(Setting("same", same, recipe, clip=clip), example.DATA, [7], UPDATES)
    start = weights_of(training)
    with torch.no_grad():
        for layer, (w, b) in zip(linears(network), start, strict=True):
            layer.weight.copy_(w)
            layer.bias.copy_(b)
    search = ArchitectureSearch(network.space, recipe(network.space))
    search.key.copy_(training.search.key)
    training.run(UPDATES)
    images, labels = torch.tensor(example.DATA.train_x) / 255, torch.tensor(example.DATA.train_y, dtype=torch.int64)
    loader = [(images[batch], labels[batch]) for batch in training.order[0]]

    theta = example.train(network, search, loop, loader, UPDATES, clip)

    assert torch.equal(search.theta, training.search.theta)
    assert theta.shape == (len(example.marks(UPDATES)), same.n)
    for layer, (w, b), (w0, _) in zip(linears(network), weights_of(training), start, strict=True):
        torch.testing.assert_close(layer.weight.detach(), w, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(layer.bias.detach(), b, rtol=1e-4, atol=1e-6)
        assert (w != w0).any()


@pytest.mark.slow
def test_both_experiments_in_very_small(example, tmp_path, capsys):
    panels = [example.solve_layers(updates=12), example.solve_activations(updates=12)]
    printed = capsys.readouterr().out
    assert printed.count("360 of 360 predictions are as before") == 2
    for panel in panels:
        assert panel.theta.shape == (len(panel.marks), panel.n)
        for curve in panel.curves:
            assert curve.column("error").shape == (len(panel.marks), example.TRIALS)
    example.draw(panels, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_off_is_gone(example, capsys):
    network = example.layers_network(units=6, n=5)
    search = ArchitectureSearch(network.space)
    search.theta.copy_(torch.tensor([[0.9, 0.1, 0.5, 0.2, 0.49]]))
    plain = example.freeze(network, search)
    assert [layer.weight.shape for layer in linears(plain)] == [(6, 64), (6, 6), (6, 6), (10, 6)]
    left = 6 * 65 + 2 * 6 * 7 + 10 * 7
    assert f"{left} of {left + 3 * 6 * 7} parameters are left" in capsys.readouterr().out
