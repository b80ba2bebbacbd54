"""Searchable layers: beside a plain network that branches in Python, and what a frozen one has left."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

import knobless as kl
from knobless.families import Bernoulli
from knobless.torch.layers import Activations, Architecture, Mixed, Residual, Searchable

W = 4  # the width of every layer here
FUNCTIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def linear():
    return nn.Linear(W, W)


def inputs(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


class Plain:
    """A network as it would be written without a search: Python branches on the point, a dict by path.

    `used` gathers the modules that took part.
    """

    def __init__(self, point):
        self.point, self.used = point, []

    def __call__(self, module, x, path=()):
        match module:
            case nn.Sequential():
                for i, child in enumerate(module):
                    x = self(child, x, (*path, str(i)))
                return x
            case Architecture():
                return self(module.model, x, (*path, "model"))
            case Residual():
                for i, block in enumerate(module.blocks):
                    if self.point[".".join(path)][i] == 1:
                        h = self(block, x, (*path, "blocks", str(i)))
                        x = x + h if module.residual else h
                return x
            case Mixed():
                i = module.variable.options.index(self.point[".".join(path)])
                return self(module.options[i], x, (*path, "options", str(i)))
            case Activations():
                columns = []
                for unit, name in enumerate(self.point[".".join(path)]):
                    f = module.functions[module.variable.options.index(name)]
                    columns.append(self(f, x[..., unit]))
                return torch.stack(columns, -1)
            case _:
                self.used.append(module)
                return module(x)

    def parameters(self):
        return {id(p): p.numel() for module in self.used for p in module.parameters()}


@st.composite
def models(draw, depth=2):
    """Any nesting of searchable and plain layers that keeps the width."""
    below = models(depth - 1) if depth else st.builds(linear)
    several = st.lists(below, min_size=2, max_size=3)
    return draw(
        st.one_of(
            below,
            several.map(lambda parts: nn.Sequential(*parts)),
            st.builds(lambda blocks, residual: Residual(blocks, residual=residual), several, st.booleans()),
            several.map(Mixed),
            st.sampled_from([2, 3]).map(lambda k: Activations(W, [nn.PReLU(), torch.tanh, nn.PReLU()][:k])),
            several.map(lambda parts: Architecture(nn.Sequential(Residual(parts), linear()))),
        )
    )


@st.composite
def architectures(draw):
    """A network, a point of its space, and the row for it."""
    net = Architecture(nn.Sequential(draw(models()), draw(models()), Activations(W, FUNCTIONS))).double()
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    point = {}
    for path, layer in net.model.named_modules():
        match layer:
            case Residual():
                point[path] = rng.integers(2, size=len(layer.blocks))
            case Mixed():
                point[path] = str(rng.choice(layer.variable.options))
            case Activations():
                every = layer.variable.options
                point[path] = rng.choice(every if rng.random() < 0.7 else every[:1], size=W)
    return net, point, torch.from_numpy(net.space.encode(point))


@pytest.mark.slow
@given(architectures())
def test_a_network_is_the_plain_one_of_its_row_and_freezes_to_it(case):
    net, point, mask = case
    before = copy.deepcopy(net.state_dict())
    x = inputs(3, W)
    plain = Plain(point)
    expected = plain(net.model, x)
    close(net(x, mask), expected)
    frozen = net.freeze(mask)
    close(frozen(x), expected)
    assert sum(p.numel() for p in frozen.parameters()) == sum(plain.parameters().values())
    assert not any(isinstance(module, Searchable | Architecture) for module in frozen.modules())
    assert all(layer.choice is None for layer in net.modules() if isinstance(layer, Searchable))
    after = net.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before)


@pytest.mark.slow
@given(architectures(), st.integers(0, 2**32 - 1))
def test_many_rows_under_vmap_are_the_rows_one_by_one(case, seed):
    """Under vmap nothing can be read back to the host, nor a branch depend on data."""
    net, _, mask = case
    rng = np.random.default_rng(seed)
    family = net.space.family
    masks = torch.from_numpy(family.sample(family.initial(), 5, rng))
    assert masks.shape == (5, len(mask))
    x = inputs(3, W)
    close(vmap(net, in_dims=(None, 0))(x, masks), torch.stack([net(x, row) for row in masks]))


def test_nothing_is_read_back_to_the_host():
    """On the meta device there is nothing to read."""
    net = Architecture(nn.Sequential(Residual([linear(), linear()]), Activations(W, FUNCTIONS), Mixed([linear()] * 3)))
    net.to("meta")
    x, mask = torch.empty(3, W, device="meta"), torch.empty(len(net.space.names), dtype=torch.int8, device="meta")
    assert net(x, mask).shape == (3, W)


def test_trials_with_weights_of_their_own():
    """30 trainings in one program: a stack of weights, a row and a batch each, and their gradients."""
    nets = [
        Architecture(nn.Sequential(linear(), Residual([linear(), linear()]), Activations(W, FUNCTIONS))).double()
        for _ in range(3)
    ]
    rng = np.random.default_rng(0)
    masks = torch.from_numpy(rng.integers(2, size=(3, 2 + W)))
    x = inputs(3, 5, W)
    parameters, buffers = stack_module_state(nets)
    shell = copy.deepcopy(nets[0]).to("meta")

    def loss(p, b, x, mask):
        return functional_call(shell, (p, b), (x, mask)).square().sum()

    gradients, losses = vmap(torch.func.grad_and_value(loss))(parameters, buffers, x, masks)
    for i, net in enumerate(nets):
        alone = net(x[i], masks[i]).square().sum()
        alone.backward()
        close(losses[i], alone.detach())
        for name, parameter in net.named_parameters():
            close(gradients[name][i], parameter.grad)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("kind", [torch.int8, torch.int64, torch.bool, torch.float32])
def test_blocks_that_are_on_are_applied_in_turn(residual, kind):
    layer = Residual([linear() for _ in range(3)], residual=residual)
    first = x = torch.randn(5, W)
    for block in layer.blocks:
        x = x + block(x) if residual else block(x)
    assert torch.equal(layer(first, torch.ones(3, dtype=kind)), x)
    assert torch.equal(layer(first, torch.zeros(3, dtype=kind)), first)
    one = layer.blocks[1](first)
    assert torch.equal(layer(first, torch.tensor([0, 1, 0]).to(kind)), first + one if residual else one)


def test_every_row_of_bits_freezes_to_its_very_output():
    layer = Residual([linear() for _ in range(4)])
    x = torch.randn(5, W)
    for bits in itertools.product((0, 1), repeat=4):
        frozen = layer.freeze(torch.tensor(bits))
        assert len(frozen) == sum(bits)
        assert torch.equal(frozen(x), layer(x, torch.tensor(bits)))


@pytest.mark.parametrize("residual", [True, False])
def test_a_block_that_is_off_has_a_gradient_of_zero(residual):
    layer = Residual([linear() for _ in range(3)], residual=residual)
    layer(torch.randn(5, W), torch.tensor([1, 0, 1])).square().sum().backward()
    assert all((p.grad == 0.0).all() for p in layer.blocks[1].parameters())
    assert all((p.grad != 0.0).any() for k in (0, 2) for p in layer.blocks[k].parameters())


def test_options_that_are_not_chosen_have_a_gradient_of_zero():
    layer = Mixed([linear() for _ in range(3)])
    x = torch.randn(5, W)
    layer(x, torch.tensor([1])).square().sum().backward()
    expected = torch.autograd.grad(layer.options[1](x).square().sum(), layer.options[1].weight)[0]
    assert torch.equal(layer.options[1].weight.grad, expected)
    assert all((p.grad == 0.0).all() for k in (0, 2) for p in layer.options[k].parameters())
    one = Activations(2, [nn.PReLU(), nn.PReLU()])
    one(torch.full((1, 2), -1.0), torch.tensor([1, 1])).sum().backward()
    assert [f.weight.grad.item() for f in one.functions] == [0.0, -2.0]


@pytest.mark.parametrize("residual", [True, False])
def test_a_row_in_a_list_computes_the_selected_parts_only(residual):
    blocks, options = [linear() for _ in range(3)], [linear() for _ in range(3)]
    net = Architecture(nn.Sequential(Residual(blocks, residual=residual), Activations(W, FUNCTIONS), Mixed(options)))
    used = []
    for part in (*blocks, *options):
        part.register_forward_hook(lambda part, *_: used.append(part))
    x, row = torch.randn(5, W), [1, 0, 1, *[1, 0] * (W // 2), *[1] * (W % 2), 2]
    result = net(x, row)
    assert used == [blocks[0], blocks[2], options[2]]
    result.sum().backward()
    assert [part.weight.grad is not None for part in (*blocks, *options)] == [True, False, True, False, False, True]
    assert torch.equal(net(x, torch.tensor(row)), result)


def test_weight_decay_and_momentum_go_on_in_what_is_off():
    layer = Residual([linear(), linear()])
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.5)
    w = layer.blocks[1].weight.detach().clone()
    momentum = torch.zeros_like(w)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(5, W), torch.tensor([1, 0])).sum().backward()
        optimizer.step()
        momentum = 0.9 * momentum + 0.5 * w
        w = w - 0.1 * (0.5 * w + 0.9 * momentum)
    torch.testing.assert_close(layer.blocks[1].weight.detach(), w)


@pytest.mark.parametrize(
    ("dim", "shape"), [(-1, (3, W)), (1, (3, W, 2, 5)), (-3, (3, W, 2, 5)), (0, (W,)), (0, (W, 3))]
)
def test_a_unit_is_a_feature_of_the_dimension_named(dim, shape):
    layer = Activations(W, FUNCTIONS, dim=dim)
    x = inputs(*shape)
    c = [2, 0, 1, 0]
    expected = torch.empty_like(x)
    for unit, k in enumerate(c):
        where = [slice(None)] * x.ndim
        where[dim] = unit
        expected[tuple(where)] = list(FUNCTIONS.values())[k](x[tuple(where)])
    close(layer(x, torch.tensor(c)), expected)
    close(layer.freeze(c)(x), expected)


def test_bits_of_the_second_experiment():
    """0 is tanh and 1 is ReLU, and two functions are bits."""
    layer = Activations(2, [torch.tanh, torch.relu])
    assert layer.variable == kl.Choice("tanh", "relu", n=2)
    assert kl.Space.of(layer.variable).family == Bernoulli(2)
    x = torch.tensor([[-1.0, -1.0], [2.0, 2.0]])
    t = torch.tanh(x)
    assert torch.equal(layer(x, torch.tensor([0, 1])), torch.tensor([[t[0, 0], 0.0], [t[1, 0], 2.0]]))


def test_a_frozen_layer_calls_only_the_functions_it_uses_and_for_their_own_units():
    seen = {}

    def recording(name):
        def function(x):
            seen[name] = x.shape
            return x

        return function

    layer = Activations(5, {name: recording(name) for name in "abc"})
    layer.freeze([2, 0, 0, 2, 2])(torch.randn(7, 5))
    assert seen == {"a": (7, 2), "c": (7, 3)}
    alone = layer.freeze([1] * 5)
    assert alone.function is layer.functions[1].function


def test_a_mixed_layer_freezes_to_the_module_chosen():
    layer = Mixed({"wide": nn.Linear(W, 3), "none": torch.nn.Flatten(), "narrow": nn.Linear(W, 3, bias=False)})
    frozen = layer.freeze(2)
    assert type(frozen) is nn.Linear
    assert torch.equal(frozen.weight, layer.options[2].weight)
    assert frozen.weight is not layer.options[2].weight
    assert frozen.bias is None


def test_a_copy_that_is_frozen_has_weights_of_its_own():
    net = Architecture(nn.Sequential(linear(), Residual([linear()])))
    before = copy.deepcopy(net.state_dict())
    frozen = net.freeze([1])
    for parameter in frozen.parameters():
        nn.init.zeros_(parameter)
    assert all(torch.equal(net.state_dict()[key], before[key]) for key in before)


def test_a_shared_layer_has_one_choice_and_freezes_to_one_module():
    act, block = Activations(W, [torch.tanh, torch.relu]), linear()
    net = Architecture(nn.Sequential(act, linear(), act, nn.Sequential(act), Residual([block, block, linear()])))
    assert net.space == kl.Space.of({"0": kl.Choice("tanh", "relu", n=W), "4": kl.Binary(3)})
    mask = torch.tensor([0, 1, 1, 0, 1, 1, 0])
    frozen = net.freeze(mask)
    assert frozen[0] is frozen[2] is frozen[3][0]
    assert frozen[4][0] is frozen[4][1]
    x = torch.randn(5, W)
    torch.testing.assert_close(frozen(x), net(x, mask))
    assert sum(p.numel() for p in frozen.parameters()) == 2 * (W * W + W)


class Named(nn.Module):
    """A model with attributes, one of them unused."""

    def __init__(self):
        super().__init__()
        self.op = Mixed({"a": linear(), "b": linear(), "c": nn.Identity()})
        self.stack = Residual([nn.Sequential(linear(), Activations(W, [torch.tanh, torch.relu])), linear()])
        self.register_module("nothing", None)

    def forward(self, x):
        return self.stack(self.op(x))


def test_the_space_names_layers_by_path_and_gives_them_their_columns():
    net = Architecture(Named())
    assert net.space == kl.Space.of(
        {
            "op": kl.Choice("a", "b", "c"),
            "stack": kl.Binary(2),
            "stack.blocks.0.1": kl.Choice("tanh", "relu", n=W),
        }
    )
    # Bits come first in a code, whatever the order of registration.
    units = [f"stack.blocks.0.1[{i}]" for i in range(W)]
    assert net.space.names == ("stack[0]", "stack[1]", *units, "op")
    mask = [1, 0, 0, 1, 1, 1, 2]
    assert net.describe(mask) == {"op": "c", "stack": [0], "stack.blocks.0.1": {"tanh": 1, "relu": 3}}
    frozen = net.freeze(np.array(mask))
    assert type(frozen) is Named
    assert frozen.nothing is None
    assert set(frozen.state_dict()) == {"stack.0.0.weight", "stack.0.0.bias"}


def test_a_model_that_is_itself_a_layer():
    net = Architecture(Residual([linear(), linear()]))
    assert net.space == kl.Space(residual=kl.Binary(2))
    assert len(net.freeze([0, 1])) == 1
    assert net.describe([0, 1]) == {"residual": [1]}


def test_options_are_named_and_told_apart():
    assert Mixed([nn.Linear(1, 1), nn.Identity(), nn.Linear(1, 1)]).variable.options == (
        "Linear 0",
        "Identity",
        "Linear 2",
    )
    assert Activations(1, [nn.functional.gelu, nn.ReLU()]).variable.options == ("gelu", "ReLU")


def test_an_option_may_write_into_what_it_made_itself():
    block = nn.Sequential(linear(), nn.ReLU(inplace=True))
    x = torch.randn(5, W)
    assert torch.equal(Residual([block])(x, torch.tensor([1])), x + torch.relu(block[0](x)))


def test_mode_dtype_and_device_are_kept():
    net = Architecture(
        nn.Sequential(
            Residual([nn.Sequential(nn.Dropout(), Activations(W, FUNCTIONS)), linear()]), Mixed([linear()] * 2)
        )
    ).to(dtype=torch.float16)
    net.eval()
    net.model[0].blocks[1].train()
    mask = net.space.encode({"0": [1, 1], "0.blocks.0.1": ["tanh", "relu", "tanh", "relu"], "1": "Linear 1"})
    frozen = net.freeze(mask)
    modes = {path: module.training for path, module in frozen.named_modules()}
    assert [path for path, training in modes.items() if training] == ["0.1"]
    assert {p.dtype for p in frozen.parameters()} == {torch.float16}
    assert not any(module.training for module in net.freeze([0] * len(mask)).modules())
    apart = net.to("meta").freeze(mask)
    assert {t.device.type for t in (*apart.parameters(), *apart.buffers())} == {"meta"}
    assert apart(torch.empty(3, W, dtype=torch.float16, device="meta")).shape == (3, W)


def test_a_frozen_network_is_saved_and_loaded():
    net = Architecture(Named())
    mask = [1, 0, 0, 1, 1, 1, 1]
    frozen = net.freeze(mask)
    x = torch.randn(5, W)
    assert torch.equal(pickle.loads(pickle.dumps(frozen))(x), frozen(x))
    other = Architecture(Named()).freeze(mask)
    other.load_state_dict(frozen.state_dict())
    assert torch.equal(other(x), frozen(x))


def test_a_network_is_saved_copied_and_loaded():
    net = Architecture(Named())
    x, mask = torch.randn(5, W), torch.tensor([1, 1, 0, 1, 1, 1, 1])
    expected = net(x, mask)
    for same in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert same.space == net.space
        assert torch.equal(same(x, mask), expected)
        nn.init.zeros_(same.model.stack.blocks[1].bias)
        assert not torch.equal(same(x, mask), expected)
    other = Architecture(Named())
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x, mask), expected)
    assert set(net.state_dict()) == {f"model.{name}" for name, _ in net.model.named_parameters()}
    assert torch.equal(net(x, mask), expected)


def test_an_error_in_the_model_leaves_no_choice_behind():
    net = Architecture(Named())
    with pytest.raises(RuntimeError, match="shape"):
        net(torch.randn(5, W + 1), torch.zeros(7, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="Mixed: expected a choice"):
        net(torch.randn(5, W))


class Twice(nn.Module):
    """Goes by the mask around it, by one of its own, and by the first again."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return torch.stack([self.inner(x), self.inner(x, torch.tensor([1, 1])), self.inner(x)])


def test_an_architecture_within_another():
    inner = Architecture(nn.Sequential(Residual([linear(), linear()])))
    net = Architecture(Twice(inner))
    assert net.space == kl.Space.of({"inner.model.0": kl.Binary(2)})
    x = torch.randn(5, W)
    first, second, third = net(x, torch.tensor([0, 1]))
    assert torch.equal(first, x + inner.model[0].blocks[1](x))
    assert torch.equal(second, inner(x, torch.tensor([1, 1])))
    assert torch.equal(third, first)
    assert not torch.equal(second, first)


@pytest.mark.slow
def test_a_network_compiles_whole():
    net = Architecture(Named())
    x, mask = torch.randn(5, W), torch.tensor([1, 0, 0, 1, 1, 1, 1])
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    for row in (mask, 1 - mask):
        assert torch.equal(compiled(x, row), net(x, row))


BITS = Architecture(nn.Sequential(Residual([linear(), linear()])))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Residual([]), ValueError, "Residual: number of blocks: expected .* at least 1, got 0"),
        (lambda: Residual([linear()], residual="yes"), TypeError, "Residual: residual: expected True or False"),
        (lambda: Activations(0, FUNCTIONS), ValueError, "Activations: units: expected .* at least 1, got 0"),
        (lambda: Activations(2, [torch.tanh]), ValueError, r"at least two options, got 1: \('tanh',\)"),
        (lambda: Activations(2, [nn.ReLU, nn.Tanh]), TypeError, "Activations: functions: expected .* got <class"),
        (lambda: Activations(2, ["relu", "tanh"]), TypeError, "Activations: functions: .* got 'relu'"),
        (lambda: Mixed([1, 2]), TypeError, "Mixed: modules: expected functions or modules, got 1"),
        (
            lambda: Mixed([linear(), nn.ReLU(inplace=True)]),
            ValueError,
            r"Mixed: modules: .* input, got ReLU\(inplace=True",
        ),
        (lambda: Residual([nn.Sequential(nn.ReLU(True), linear())]), ValueError, r"Residual: blocks: .*\(inplace=True"),
        (lambda: Architecture(torch.tanh), TypeError, "model: expected a torch.nn.Module, got"),
        (lambda: Architecture(linear()), ValueError, "model: expected a Residual, Activations or Mixed in it"),
        (lambda: Residual([linear()])(torch.ones(1, W)), RuntimeError, "Residual: expected a choice: call it within"),
        (lambda: Residual([linear()])(torch.ones(1, W), torch.ones(2)), ValueError, "choice: expected a row of 1, got"),
        (
            lambda: Activations(3, FUNCTIONS)(torch.ones(1, 1), torch.zeros(3)),
            ValueError,
            "expected 3 units .* got 1",
        ),
        (lambda: Mixed([linear(), nn.Linear(W, 1)])(torch.ones(1, W), torch.zeros(1)), ValueError, "same shape, got"),
        (lambda: BITS(torch.ones(1, W), torch.ones(3).int()), ValueError, r"mask: expected a row of 2 .* shape \[3\]$"),
        (
            lambda: BITS(torch.ones(1, W), torch.ones(5, 2).int()),
            ValueError,
            r"got the shape \[5, 2\]; .* torch.func.vmap",
        ),
        (lambda: BITS(torch.ones(1, W), torch.ones(2)), TypeError, "mask: expected a tensor or list of integers"),
        (lambda: BITS(torch.ones(1, W), (1, 0)), TypeError, "mask: expected a tensor or list .* got tuple"),
        (lambda: BITS(torch.ones(1, W), [1, 2]), ValueError, r"mask\[1\]: expected an integer from 0 to 1, got 2"),
        (lambda: Mixed([linear()] * 3)(torch.ones(1, W), [-1]), ValueError, r"1 integers from 0 to 2, got \[-1\]"),
        (lambda: Mixed([linear()] * 3)(torch.ones(1, W), 1), TypeError, "list of 1 integers, got 1$"),
        (lambda: Mixed([linear()] * 3)(torch.ones(1, W), [1.0]), TypeError, r"list of 1 integers, got \[1.0\]$"),
        (lambda: BITS.freeze([1]), ValueError, r"mask: expected a row of 2 choices, got the shape \[1\]"),
        (lambda: BITS.freeze([1, 2]), ValueError, r"mask\[1\]: expected an integer from 0 to 1, got 2"),
        (lambda: BITS.describe([-1, 0]), ValueError, r"mask\[0\]: expected an integer from 0 to 1, got -1"),
        (lambda: BITS.freeze([0.5, 0]), ValueError, r"mask\[0\]: expected an integer from 0 to 1, got 0.5"),
        (lambda: Mixed([linear()] * 3).freeze(3), ValueError, r"choice\[0\]: expected an integer from 0 to 2, got 3"),
    ],
)
def test_errors_say_what_was_expected_and_what_came(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_what_is_frozen_keeps_its_input_where_a_layer_became_nothing():
    passes = Mixed([nn.Identity(), nn.Linear(W, W)])
    net = Architecture(nn.Sequential(nn.Linear(W, W), Residual([nn.Sequential(passes, nn.ReLU(inplace=True))])))
    mask, x = torch.tensor([1, 0]), torch.randn(3, W)
    assert torch.equal(net(x, mask), net.freeze(mask)(x))


@pytest.mark.parametrize(
    "layer",
    [
        Residual([nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))]),
        Activations(W, [torch.relu_, torch.tanh]),
        Mixed([torch.tanh, torch.relu_]),
    ],
)
def test_what_writes_into_its_input_is_found_out(layer):
    with pytest.raises(ValueError, match="expected functions that do not modify their input"):
        layer(torch.randn(3, W), torch.zeros(layer.variable.n or 1, dtype=torch.int8))


def test_a_block_keeps_the_shape():
    with pytest.raises(ValueError, match="expected results of the same shape"):
        Residual([nn.Linear(W, 1)])(torch.randn(3, W), torch.tensor([1]))


def test_what_a_block_gives_that_is_off_does_not_matter():
    blocks = [nn.Linear(W, W), nn.Linear(W, W)]
    nn.init.constant_(blocks[0].bias, torch.inf)
    assert Residual(blocks)(torch.randn(3, W), torch.tensor([0, 1])).isfinite().all()
