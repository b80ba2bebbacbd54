"""Layers with a choice in them, and the network that they are found in.

Every option is computed and the choice weighs what comes out: no branch depends on data and nothing is read back, so
that it all runs in a CUDA graph or under `torch.func.vmap`, and what is switched off gets a gradient of zero, not
none: momentum and weight decay go on. `Architecture` names the choices in a model, as a space for `Search`, and takes
a row of them beside the input. `freeze` is the way out: the plain network of one row, without what it left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from knobless._checks import boolean, positive_int
from knobless.space.space import Space
from knobless.space.variables import Binary, Choice

Function = Callable[[Tensor], Tensor]


class Searchable(nn.Module):
    """A layer that can be built in more than one way; `variable` says in which.

    An `Architecture` sets `choice` for the time of a call. It is no buffer: it is no part of the layer's state.
    """

    variable: Binary | Choice
    choice: Tensor | None = None

    def handed(self, choice: Tensor | None) -> Tensor:
        """The choice given, or else the one that an Architecture set."""
        choice = self.choice if choice is None else choice
        if choice is None:
            name = type(self).__name__
            raise RuntimeError(f"{name}: expected a choice: call it within an Architecture, or as layer(x, choice)")
        n = self.variable.n or 1
        if choice.numel() != n:
            raise ValueError(f"choice: expected a row of {n}, got the shape {list(choice.shape)}")
        return choice

    def freeze(self, choice: Any) -> nn.Module:
        """A copy as the plain module of that choice, without the others. Layers within are left as they are."""
        return deepcopy(self.plain(codes("choice", choice, Space.of(self.variable))))

    def plain(self, chosen: Sequence[int]) -> nn.Module:
        """As `freeze`, of the very parts that this layer has."""
        raise NotImplementedError

    def describe(self, chosen: Sequence[int]) -> Any:
        """What is chosen, for people."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return repr(self.variable)

    def _in_mode(self, made: nn.Module) -> nn.Module:
        """`made` in this layer's mode; the parts of it have their own."""
        made.training = self.training
        return made


class Residual(Searchable):
    """X ← X + m·H(X) for each block H: bit k is the m of block k, and a block that is off is skipped.

    With `residual=False` a block that is on replaces its input, X ← (1 − m)·X + m·H(X), which the paper found less
    stable.
    """

    variable: Binary

    def __init__(self, blocks: Iterable[nn.Module], *, residual: bool = True) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        check_input_is_kept("Residual: blocks", self.blocks)
        self.residual = boolean("Residual: residual", residual)
        self.variable = Binary(positive_int("Residual: number of blocks", len(self.blocks)))

    def forward(self, x: Tensor, choice: Tensor | None = None) -> Tensor:
        m = self.handed(choice)
        for k, block in enumerate(self.blocks):
            replaced = selected(m[k], [x, result_of(block, x)])  # of the shape of x, on or off
            x = x + torch.where(m[k] == 1, replaced, 0.0) if self.residual else replaced
        return x

    def plain(self, chosen: Sequence[int]) -> nn.Module:
        active = [self.blocks[k] for k in self.describe(chosen)]
        return self._in_mode(Shortcuts(*active) if self.residual else nn.Sequential(*active))

    def describe(self, chosen: Sequence[int]) -> list[int]:
        """The numbers of the blocks that are on."""
        return [k for k, m in enumerate(chosen) if m]


class Activations(Searchable):
    """For each unit of dimension `dim`, one of several functions: any of torch, or modules, in a list or by name.

    A function must take every number by itself, for a frozen layer gives it only its own units; and every function
    is given every unit, so that its derivative must be finite everywhere.
    """

    variable: Choice
    place: Tensor

    def __init__(self, units: int, functions: Sequence[Function] | Mapping[str, Function], dim: int = -1) -> None:
        super().__init__()
        options = named("Activations: functions", functions)
        self.functions = nn.ModuleList(options.values())
        self.variable = Choice(*options, n=positive_int("Activations: units", units))
        self.dim = dim
        self.register_buffer("place", torch.empty(0), persistent=False)  # knows the device, should no function

    def forward(self, x: Tensor, choice: Tensor | None = None) -> Tensor:
        c = self.handed(choice)
        units = x.shape[self.dim]
        if units != self.variable.n:
            raise ValueError(f"x: expected {self.variable.n} units in dimension {self.dim}, got {units}")
        after = x.ndim - 1 - self.dim if self.dim >= 0 else -1 - self.dim
        return selected(c.reshape(-1, *[1] * after), [result_of(f, x) for f in self.functions])

    def plain(self, chosen: Sequence[int]) -> nn.Module:
        used = sorted(set(chosen))
        functions = [self.functions[k] for k in used]
        if len(functions) == 1:
            return functions[0]
        units = [[i for i, c in enumerate(chosen) if c == k] for k in used]
        return self._in_mode(Partition(functions, units, self.dim).to(self.place.device))

    def describe(self, chosen: Sequence[int]) -> dict[str, int]:
        """The number of units by function."""
        return {name: chosen.count(k) for k, name in enumerate(self.variable.options)}


class Mixed(Searchable):
    """One of several modules, in a list or by name: all must give results of the same shape."""

    variable: Choice

    def __init__(self, modules: Sequence[Function] | Mapping[str, Function]) -> None:
        super().__init__()
        options = named("Mixed: modules", modules)
        self.options = nn.ModuleList(options.values())
        self.variable = Choice(*options)

    def forward(self, x: Any, choice: Tensor | None = None) -> Tensor:
        c = self.handed(choice).reshape(())
        return selected(c, [result_of(option, x) for option in self.options])

    def plain(self, chosen: Sequence[int]) -> nn.Module:
        return self.options[chosen[0]]

    def describe(self, chosen: Sequence[int]) -> str:
        """Its name."""
        return self.variable.options[chosen[0]]


class Architecture(nn.Module):
    """A model with searchable layers anywhere in it, as a network that takes a row of choices beside its input.

        net = Architecture(nn.Sequential(nn.Linear(784, 128), Residual(blocks), nn.Linear(128, 10)))
        search = Search(net.space)
        net(x, search.ask()[0])
        net.freeze(search.mode)                   # a plain network

    `space` names a layer by its path in the model. A row has the columns of the space's codes; for many rows at once
    there is `torch.func.vmap`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"model: expected a torch.nn.Module, got {model!r} of type {type(model).__name__}")
        self.model = model
        found = {
            path or type(layer).__name__.lower(): layer
            for path, layer in model.named_modules()  # a layer that is shared comes once
            if isinstance(layer, Searchable)
        }
        if not found:
            raise ValueError(f"model: expected a Residual, Activations or Mixed in it, got none in {type(model)}")
        self.space = Space.of({path: layer.variable for path, layer in found.items()})
        self._n = self.space.family.variables
        where = [column.where for column in self.space.columns()]
        self._layers = list(zip(found, found.values(), where, strict=True))

    def forward(self, x: Any, mask: Tensor | None = None) -> Any:
        """The model's answer. Without a mask, the layers go by that of the Architecture around this one."""
        if mask is None:
            return self.model(x)
        if not isinstance(mask, Tensor) or mask.is_floating_point():
            kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise TypeError(f"mask: expected a tensor of integers, such as search.ask()[0], got one of {kind}")
        if mask.shape != (self._n,):
            hint = "; for several at once there is torch.func.vmap" if mask.shape[-1:] == (self._n,) else ""
            raise ValueError(f"mask: expected a row of {self._n} choices, got the shape {list(mask.shape)}{hint}")
        before = [layer.choice for _, layer, _ in self._layers]
        try:
            for _, layer, columns in self._layers:
                layer.choice = mask[columns]
            return self.model(x)
        finally:
            for (_, layer, _), choice in zip(self._layers, before, strict=True):
                layer.choice = choice

    def freeze(self, mask: Any) -> nn.Module:
        """A copy of the model with every searchable layer replaced by the plain module of its choice."""
        chosen = codes("mask", mask, self.space)
        copy = deepcopy(self)
        for module in copy.modules():  # where a layer was there may be nothing, and its input must be kept
            if getattr(module, "inplace", False) is True:
                setattr(module, "inplace", False)  # noqa: B010 (mypy takes a module's attributes for tensors)
        choices: dict[nn.Module, list[int]] = {layer: chosen[columns] for _, layer, columns in copy._layers}
        done: dict[nn.Module, nn.Module] = {}  # a shared module is replaced by the same one everywhere

        def plain(module: nn.Module) -> nn.Module:
            if module not in done:
                if isinstance(module, Searchable):
                    done[module] = plain(module.plain(choices[module]))
                elif isinstance(module, Architecture):
                    done[module] = plain(module.model)
                else:
                    done[module] = module
                    for name, child in module._modules.items():  # named_children() would skip the second of two alike
                        if child is not None and plain(child) is not child:
                            module.add_module(name, plain(child))
            return done[module]

        return plain(copy.model)

    def describe(self, mask: Any) -> dict[str, Any]:
        """What the row chooses, by layer: blocks that are on, units by function, the name of a module."""
        chosen = codes("mask", mask, self.space)
        return {path: layer.describe(chosen[columns]) for path, layer, columns in self._layers}


class Shortcuts(nn.Sequential):
    """X ← X + H(X), one block after the other."""

    def forward(self, x: Tensor) -> Tensor:
        for block in self:
            x = x + block(x)
        return x


class Partition(nn.Sequential):
    """Each function for its own units of dimension `dim`."""

    order: Tensor
    back: Tensor

    def __init__(self, functions: Iterable[nn.Module], units: Sequence[Sequence[int]], dim: int) -> None:
        super().__init__(*functions)
        self.sizes = [len(each) for each in units]
        self.dim = dim
        order = torch.tensor([i for each in units for i in each])
        self.register_buffer("order", order, persistent=False)  # the network's shape, none of its state
        self.register_buffer("back", order.argsort(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.split(x.index_select(self.dim, self.order), self.sizes, self.dim)
        done = [f(part) for f, part in zip(self, parts, strict=True)]
        return torch.cat(done, self.dim).index_select(self.dim, self.back)


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)

    def extra_repr(self) -> str:
        return name_of(self.function)


def result_of(option: Function, x: Any) -> Tensor:
    """What the option gives; ValueError if it wrote into its input, which the others need too."""
    watched = isinstance(x, Tensor) and not torch.compiler.is_compiling() and not x.is_inference()
    before = x._version if watched else 0
    result = option(x)
    if watched and x._version != before:
        raise ValueError(f"options: expected what leaves its input as it is, got {option!r}")
    return result


def selected(choice: Tensor, options: Sequence[Tensor]) -> Tensor:
    """Option k where the choice is k."""
    shapes = {tuple(option.shape) for option in options}
    if len(shapes) > 1:
        raise ValueError(f"options: expected results of the same shape, got {sorted(shapes)}")
    result = options[0]
    for k, option in enumerate(options[1:], 1):
        result = torch.where(choice == k, option, result)
    return result


def codes(name: str, row: Any, space: Space) -> list[int]:
    """The row on the host, if it is a point of the space."""
    if isinstance(row, (Mapping, str)):
        raise TypeError(f"{name}: expected a row of numbers, got {row!r}")
    numbers = torch.as_tensor(row)
    numbers = numbers[None] if numbers.ndim == 0 else numbers  # a single choice is a number
    n = space.family.variables
    if numbers.shape != (n,):
        raise ValueError(f"{name}: expected a row of {n} choices, got the shape {list(numbers.shape)}")
    found = numbers.tolist()
    for _, variable, columns in space.columns():
        for i in range(n)[columns]:
            if found[i] not in range(int(variable.count)):
                raise ValueError(f"{name}[{i}]: expected an integer from 0 to {variable.count - 1}, got {found[i]}")
    return [int(number) for number in found]


def named(name: str, options: Any) -> dict[str, nn.Module]:
    """Functions and modules, as modules by name; in a list, two of the same name are told apart by their position."""
    if not isinstance(options, Mapping):
        names = [name_of(option) for option in options]
        told_apart = (each if names.count(each) == 1 else f"{each} {i}" for i, each in enumerate(names))
        options = dict(zip(told_apart, options, strict=True))
    for option in options.values():
        if not callable(option) or isinstance(option, type):
            raise TypeError(f"{name}: expected functions or modules, got {option!r}")
    check_input_is_kept(name, options.values())
    return {key: option if isinstance(option, nn.Module) else Call(option) for key, option in options.items()}


def check_input_is_kept(name: str, options: Iterable[Any]) -> None:
    """ValueError for what can be seen to write into its input, which the others need too."""
    for option in options:
        first = option
        while isinstance(first, nn.Sequential) and len(first):
            first = first[0]
        if getattr(first, "inplace", False):
            raise ValueError(f"{name}: expected what leaves its input as it is, got {first!r}")


def name_of(function: Any) -> str:
    """What people call it: `tanh`, or the class of a module."""
    return getattr(function, "__name__", type(function).__name__)
