"""The benchmark of one-shot architecture search: ways to apply the edges, and short runs of its methods."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from one_shot_nas import METHODS, Settings, Supernet, images, mixture, path, read_images, search, straight_through

ROW = [3, 1, 2, 4, 0, 3]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Images of noise."""
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(16, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "some.npz", x=np.diff(x, axis=2, prepend=np.uint8(0)), y=rng.integers(10, size=16))
    return folder / "some.npz"


def test_an_architecture_is_a_mixture_of_weights_zero_and_one_and_has_straight_through_gradients():
    torch.manual_seed(0)
    network, x = Supernet(1, 2).double(), torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = network(x, path(ROW))
    one = torch.nn.functional.one_hot(torch.tensor(ROW), 5).double().requires_grad_()
    torch.testing.assert_close(network(x, mixture(one)), expected)
    other = network(x, straight_through(one, ROW))
    torch.testing.assert_close(other, expected)
    # The gradient of the gate that is one is that of the mixture.
    gradients = [torch.autograd.grad(y.square().sum(), one)[0] for y in (network(x, mixture(one)), other)]
    chosen = [i for i, k in enumerate(ROW) if k]
    torch.testing.assert_close(*(gradient[chosen, [ROW[i] for i in chosen]] for gradient in gradients))


@pytest.mark.parametrize("method", METHODS)
def test_a_run_finds_an_architecture(method, file):
    row = search(method, 0, Settings(file, "cpu", 0.05, warmup=0.0, batch=4, cells=1, width=2))
    assert (row["method"], row["seed"], len(row["row"])) == (method, 0, 6)
    assert set(row["row"]) <= set("01234")


def test_images_are_read_as_they_were_written(tmp_path):
    image = pytest.importorskip("PIL.Image")
    x = np.random.default_rng(0).integers(256, size=(2, 3, 32, 32, 3), dtype=np.uint8)
    for k in (1, 2):
        image.fromarray(x[k - 1].reshape(3, 1024, 3)).save(tmp_path / f"data_batch_{k}.png")
    (tmp_path / "train_lables.json").write_text(json.dumps([*range(10)]))
    images(tmp_path, tmp_path / "some.npz")
    for k, part in enumerate(read_images(tmp_path / "some.npz", "cpu")):
        assert np.array_equal(part.x[:, 4:-4, 4:-4], x[k])
        assert part.y.tolist() == [3 * k, 3 * k + 1, 3 * k + 2]
