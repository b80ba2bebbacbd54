"""Choose the bit width of each layer of a small convolutional network, with accuracy and size in the objective.

The network is trained on the 8×8 digits of scikit-learn as usual. The search then minimizes the loss of the rounded
network plus a price for its size. All candidates of an iteration are evaluated in one call, on a new mini-batch, so the
objective is noisy and the result to use is the mode. `freeze` returns the network with the layers that were chosen.
"""

import torch
from torch import nn

from knobless.torch import Architecture, Mixed, minimize
from knobless.torch.data import digits

BITS = torch.tensor([2, 3, 4, 8])
PRICE = 0.1  # of a kilobyte, in units of the loss


class Quantized(nn.Module):
    """A layer whose weights are rounded to so many bits."""

    def __init__(self, layer, bits):
        super().__init__()
        self.layer, self.bits = layer, bits

    def forward(self, x):
        """Apply the layer with rounded weights."""
        step = self.layer.weight.abs().max() / (2 ** (self.bits - 1) - 0.5)
        rounded = step * (torch.floor(self.layer.weight / step) + 0.5)
        return torch.func.functional_call(self.layer, {"weight": rounded}, x)


def network(layers):
    """Return a network of convolutions and a linear layer."""
    *convolutions, last = layers
    return nn.Sequential(*(each for layer in convolutions for each in (layer, nn.ReLU())), nn.Flatten(), last)


def main():
    """Train, search, and compare with networks that have one bit width for all layers."""
    torch.manual_seed(0)
    data = digits()
    x, test_x = (torch.tensor(each).view(-1, 1, 8, 8) / 255 for each in (data.train_x, data.test_x))
    y, test_y = (torch.tensor(each, dtype=torch.int64) for each in (data.train_y, data.test_y))

    # A plain network, trained as usual.
    shapes = [(1, 8, 1), (8, 16, 2), (16, 16, 1), (16, 32, 2)]
    layers = [nn.Conv2d(into, out, 3, stride, padding=1) for into, out, stride in shapes] + [nn.Linear(128, 10)]
    plain = network(layers)
    optimizer = torch.optim.Adam(plain.parameters(), 3e-3)
    for _ in range(400):
        at = torch.randint(len(x), (64,))
        loss = nn.functional.cross_entropy(plain(x[at]), y[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    # The same layers, each with a choice of bit widths.
    options = ({f"{bits} bits": Quantized(layer, bits) for bits in BITS.tolist()} for layer in layers)
    searchable = Architecture(network([Mixed(each) for each in options]))
    weights = torch.tensor([layer.weight.numel() for layer in layers])

    def kilobytes(rows):
        return (BITS[rows.long()] * weights).sum(-1) / 8000

    def objective(points):
        rows = torch.stack(list(points.values()), 1)  # one row per candidate, one column per layer
        at = torch.randint(len(x), (64,))
        outputs = torch.func.vmap(lambda row: searchable(x[at], row))(rows)
        labels = y[at].expand(len(rows), -1)
        losses = nn.functional.cross_entropy(outputs.transpose(1, 2), labels, reduction="none").mean(1)
        return losses + PRICE * kilobytes(rows)

    result = minimize(objective, searchable.space, budget=1500, rng=0)

    def report(name, row):
        accuracy = (searchable.freeze(row)(test_x).argmax(1) == test_y).double().mean()
        print(f"{name}: {kilobytes(torch.as_tensor(row)):.1f} kB, accuracy {accuracy:.3f}")

    for i, bits in enumerate(BITS.tolist()):
        report(f"{bits} bits everywhere", [i] * len(layers))
    report(", ".join(result.mode.values()), searchable.space.encode(result.mode))


if __name__ == "__main__":
    main()
