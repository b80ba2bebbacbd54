"""Searchable layers, and the network that contains them.

Every option is computed and the choice selects among the results: no branch depends on data and
nothing is copied to the host, so that everything runs in a CUDA graph or under `torch.func.vmap`.
The weights of options that are not selected get gradients of zero, not None: momentum and weight
decay apply to them. If the row of choices is a list of integers instead of a tensor, only the
selected modules and blocks are computed, and the weights of the others get no gradient.
`Architecture` collects the choices of a model in a space for `ArchitectureSearch` and takes a row
of them in addition to the input. `freeze` returns the plain network of one row, without the options
that it does not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from knobless._checks import boolean, positive_int
from knobless.space.space import Space
from knobless.space.variables import Binary, Choice

Function = Callable[[Tensor], Tensor]
Row = Tensor | Sequence[int]


class Searchable(nn.Module):
    """Base class of layers with options.

    Attributes
    ----------
    variable : Binary or Choice
        Variable of the search space that selects among the options.
    choice : torch.Tensor, Sequence[int] or None
        Choice that an `Architecture` sets during a call. It is not a buffer: it is no part of the
        layer's state.
    """

    variable: Binary | Choice
    choice: Row | None = None

    def resolve(self, choice: Row | None) -> Row:
        """Return the choice given, or else the one that an `Architecture` has set.

        Parameters
        ----------
        choice : torch.Tensor, Sequence[int] or None
            Choice given to `forward`.
        """
        choice = self.choice if choice is None else choice
        if choice is None:
            name = type(self).__name__
            raise RuntimeError(
                f"{name}: expected a choice: call it within an Architecture, or as layer(x, choice)"
            )
        n = self.variable.n or 1
        if isinstance(choice, Tensor):
            if choice.numel() != n:
                raise ValueError(
                    f"choice: expected a row of {n}, got the shape {list(choice.shape)}"
                )
        elif not isinstance(choice, Sequence) or not all(
            isinstance(index, Integral) for index in choice
        ):
            raise TypeError(
                f"choice: expected a tensor or a list of {n} integers, got {choice!r:.200}"
            )
        elif len(choice) != n or not all(
            index in range(int(self.variable.count)) for index in choice
        ):
            raise ValueError(
                f"choice: expected {n} integers from 0 to {self.variable.count - 1}, got "
                f"{choice!r:.200}"
            )
        return choice

    def freeze(self, choice: Any) -> nn.Module:
        """Return a copy as the plain module of one choice.

        Searchable layers inside stay searchable.

        Parameters
        ----------
        choice : array-like of int
            Row of choices of this layer.
        """
        return deepcopy(
            self.plain(codes("choice", choice, Space.of(self.variable)))
        )

    def plain(self, chosen: Sequence[int]) -> nn.Module:
        """Return the plain module of one choice, which shares its parts with this layer.

        Parameters
        ----------
        chosen : Sequence[int]
            Row of choices of this layer.
        """
        raise NotImplementedError

    def describe(self, chosen: Sequence[int]) -> Any:
        """Return a readable description of a choice.

        Parameters
        ----------
        chosen : Sequence[int]
            Row of choices of this layer.
        """
        raise NotImplementedError

    def extra_repr(self) -> str:
        return repr(self.variable)

    def _in_mode(self, made: nn.Module) -> nn.Module:
        """Set the training mode of a new module to that of this layer; its parts keep theirs."""
        made.training = self.training
        return made


class Residual(Searchable):
    """Apply or skip each of several blocks: X ← X + m·H(X), where bit k is the m of block k.

    Parameters
    ----------
    blocks : Iterable[torch.nn.Module]
        Blocks H, whose results have the shape of their inputs.
    residual : bool, default=True
        If False, a block that is on replaces its input, X ← (1 − m)·X + m·H(X), which is less
        stable according to the paper.
    """

    variable: Binary

    def __init__(
        self, blocks: Iterable[nn.Module], *, residual: bool = True
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        check_input_is_kept("Residual: blocks", self.blocks)
        self.residual = boolean("Residual: residual", residual)
        self.variable = Binary(
            positive_int("Residual: number of blocks", len(self.blocks))
        )

    def forward(self, x: Tensor, choice: Row | None = None) -> Tensor:
        m = self.resolve(choice)
        if not isinstance(m, Tensor):
            for k in self.describe(m):
                replaced = result_of(self.blocks[k], x)
                x = x + replaced if self.residual else replaced
            return x
        for k, block in enumerate(self.blocks):
            # Checks the shape, on or off
            replaced = selected(m[k], [x, result_of(block, x)])
            x = (
                x + torch.where(m[k] == 1, replaced, 0.0)
                if self.residual
                else replaced
            )
        return x

    def plain(self, chosen: Sequence[int]) -> nn.Module:
        active = [self.blocks[k] for k in self.describe(chosen)]
        return self._in_mode(
            Shortcuts(*active) if self.residual else nn.Sequential(*active)
        )

    def describe(self, chosen: Sequence[int]) -> list[int]:
        """Return the indices of the blocks that are on.

        Parameters
        ----------
        chosen : Sequence[int]
            Row of choices of this layer.
        """
        return [k for k, m in enumerate(chosen) if m]


class Activations(Searchable):
    """Apply to each unit one of several activation functions.

    Parameters
    ----------
    units : int
        Number of units.
    functions : Sequence or Mapping of callables
        Functions or modules, in a list or by name.
    dim : int, default=-1
        Dimension of the units.

    Notes
    -----
    A function must be elementwise: a frozen layer applies it to its own units only. Every function
    is evaluated on every unit, so its derivative must be finite everywhere.
    """

    variable: Choice
    place: Tensor

    def __init__(
        self,
        units: int,
        functions: Sequence[Function] | Mapping[str, Function],
        dim: int = -1,
    ) -> None:
        super().__init__()
        options = named("Activations: functions", functions)
        self.functions = nn.ModuleList(options.values())
        self.variable = Choice(
            *several("Activations", options),
            n=positive_int("Activations: units", units),
        )
        self.dim = dim
        # Follows the device of the layer
        self.register_buffer("place", torch.empty(0), persistent=False)

    def forward(self, x: Tensor, choice: Row | None = None) -> Tensor:
        c = torch.as_tensor(self.resolve(choice), device=x.device)
        units = x.shape[self.dim]
        if units != self.variable.n:
            raise ValueError(
                f"x: expected {self.variable.n} units in dimension {self.dim}, got {units}"
            )
        after = x.ndim - 1 - self.dim if self.dim >= 0 else -1 - self.dim
        return selected(
            c.reshape(-1, *[1] * after),
            [result_of(f, x) for f in self.functions],
        )

    def plain(self, chosen: Sequence[int]) -> nn.Module:
        used = sorted(set(chosen))
        functions = [self.functions[k] for k in used]
        if len(functions) == 1:
            return functions[0]
        units = [[i for i, c in enumerate(chosen) if c == k] for k in used]
        return self._in_mode(
            Partition(functions, units, self.dim).to(self.place.device)
        )

    def describe(self, chosen: Sequence[int]) -> dict[str, int]:
        """Return the number of units by function.

        Parameters
        ----------
        chosen : Sequence[int]
            Row of choices of this layer.

        Returns
        -------
        dict of str to int
            Number of units by the name of the function.
        """
        return {
            name: chosen.count(k)
            for k, name in enumerate(self.variable.options)
        }


class Mixed(Searchable):
    """Apply one of several modules.

    Parameters
    ----------
    modules : Sequence or Mapping of callables
        Modules or functions, in a list or by name, whose results have the same shape.
    """

    variable: Choice

    def __init__(
        self, modules: Sequence[Function] | Mapping[str, Function]
    ) -> None:
        super().__init__()
        options = named("Mixed: modules", modules)
        self.options = nn.ModuleList(options.values())
        self.variable = Choice(*several("Mixed", options))

    def forward(self, x: Any, choice: Row | None = None) -> Tensor:
        c = self.resolve(choice)
        if not isinstance(c, Tensor):
            return result_of(self.options[c[0]], x)
        return selected(
            c.reshape(()), [result_of(option, x) for option in self.options]
        )

    def plain(self, chosen: Sequence[int]) -> nn.Module:
        return self.options[chosen[0]]

    def describe(self, chosen: Sequence[int]) -> str:
        """Return the name of the module.

        Parameters
        ----------
        chosen : Sequence[int]
            Row of choices of this layer.
        """
        return self.variable.options[chosen[0]]


class Architecture(nn.Module):
    """Network that takes a row of choices in addition to its input.

    Parameters
    ----------
    model : torch.nn.Module
        Model with searchable layers anywhere in it.

    Attributes
    ----------
    space : Space
        Choices of the layers, named by the paths of the layers in the model.

    Notes
    -----
    A row has the columns of the codes of `space`. Use `torch.func.vmap` for several rows at once.
    For a row in a tensor, all options are computed, and nothing is copied to the host. For a list,
    such as `search.ask()[0].tolist()`, only the selected modules and blocks are computed; the
    gradients of the others are None.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from knobless.torch import Architecture, ArchitectureSearch, Residual
    >>> blocks = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)]
    >>> net = Architecture(nn.Sequential(nn.Linear(4, 8), Residual(blocks), nn.Linear(8, 2)))
    >>> search = ArchitectureSearch(net.space, rng=0)
    >>> net(torch.zeros(5, 4), search.ask()[0]).shape
    torch.Size([5, 2])
    >>> plain = net.freeze(search.mode)
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"model: expected a torch.nn.Module, got {model!r} of type {type(model).__name__}"
            )
        self.model = model
        chosen = {
            path or type(layer).__name__.lower(): layer
            # a shared layer occurs once
            for path, layer in model.named_modules()
            if isinstance(layer, Searchable)
        }
        if not chosen:
            raise ValueError(
                f"model: expected a Residual, Activations or Mixed in it, got none in {type(model)}"
            )
        self.space = Space.of(
            {path: layer.variable for path, layer in chosen.items()}
        )
        self._n = self.space.family.variables
        where = [column.where for column in self.space.columns()]
        self._layers = list(zip(chosen, chosen.values(), where, strict=True))

    def forward(self, x: Any, mask: Row | None = None) -> Any:
        """Return the output of the model.

        Parameters
        ----------
        x : object
            Input of the model.
        mask : torch.Tensor or list of int, optional
            Row of choices. By default, the layers use that of the `Architecture` around this one.
        """
        if mask is None:
            return self.model(x)
        if isinstance(mask, list):
            mask = codes("mask", mask, self.space)
        elif not isinstance(mask, Tensor) or mask.is_floating_point():
            kind = (
                mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            )
            raise TypeError(
                f"mask: expected a tensor or list of integers, such as search.ask()[0], got {kind}"
            )
        elif mask.shape != (self._n,):
            hint = (
                "; use torch.func.vmap for several rows"
                if mask.shape[-1:] == (self._n,)
                else ""
            )
            raise ValueError(
                f"mask: expected a row of {self._n} choices, got the shape {list(mask.shape)}{hint}"
            )
        before = [layer.choice for _, layer, _ in self._layers]
        try:
            for _, layer, columns in self._layers:
                layer.choice = mask[columns]
            return self.model(x)
        finally:
            for (_, layer, _), choice in zip(self._layers, before, strict=True):
                layer.choice = choice

    def freeze(self, mask: Any) -> nn.Module:
        """Return a copy of the model with plain modules in the place of searchable layers.

        Parameters
        ----------
        mask : array-like of int
            Row of choices.
        """
        chosen = codes("mask", mask, self.space)
        copy = deepcopy(self)
        # a removed layer's neighbor must not write into a shared input
        for module in copy.modules():
            if getattr(module, "inplace", False) is True:
                # For mypy, the attributes of a module are tensors.
                setattr(module, "inplace", False)  # noqa: B010
        choices: dict[nn.Module, list[int]] = {
            layer: chosen[columns] for _, layer, columns in copy._layers
        }
        # a shared module is replaced by the same one everywhere
        done: dict[nn.Module, nn.Module] = {}

        def plain(module: nn.Module) -> nn.Module:
            if module not in done:
                if isinstance(module, Searchable):
                    done[module] = plain(module.plain(choices[module]))
                elif isinstance(module, Architecture):
                    done[module] = plain(module.model)
                else:
                    done[module] = module
                    # named_children() would skip repeated modules
                    for name, child in module._modules.items():
                        if child is not None and plain(child) is not child:
                            module.add_module(name, plain(child))
            return done[module]

        return plain(copy.model)

    def describe(self, mask: Any) -> dict[str, Any]:
        """Return a readable description of a row of choices.

        Parameters
        ----------
        mask : array-like of int
            Row of choices.

        Returns
        -------
        dict of str to object
            By layer: indices of blocks that are on, numbers of units by function, or the name of a
            module.
        """
        chosen = codes("mask", mask, self.space)
        return {
            path: layer.describe(chosen[columns])
            for path, layer, columns in self._layers
        }


class Shortcuts(nn.Sequential):
    """The blocks of a frozen `Residual`: X ← X + H(X), one after the other."""

    def forward(self, x: Tensor) -> Tensor:
        for block in self:
            x = x + block(x)
        return x


class Partition(nn.Sequential):
    """The functions of a frozen `Activations`, each applied to its own units of dimension `dim`."""

    order: Tensor
    back: Tensor

    def __init__(
        self,
        functions: Iterable[nn.Module],
        units: Sequence[Sequence[int]],
        dim: int,
    ) -> None:
        super().__init__(*functions)
        self.sizes = [len(indices) for indices in units]
        self.dim = dim
        order = torch.tensor([i for indices in units for i in indices])
        # Part of the structure, not of the state
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("back", order.argsort(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.split(
            x.index_select(self.dim, self.order), self.sizes, self.dim
        )
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
    """Return the option's result.

    ValueError if the option has modified its input, which the others need.
    """
    watched = (
        isinstance(x, Tensor)
        and not torch.compiler.is_compiling()
        and not x.is_inference()
    )
    before = x._version if watched else 0
    result = option(x)
    if watched and x._version != before:
        raise ValueError(
            f"options: expected functions that do not modify their input, got {option!r}"
        )
    return result


def selected(choice: Tensor, options: Sequence[Tensor]) -> Tensor:
    """Return option k where the choice is k."""
    shapes = {tuple(option.shape) for option in options}
    if len(shapes) > 1:
        raise ValueError(
            f"options: expected results of the same shape, got {sorted(shapes)}"
        )
    result = options[0]
    for k, option in enumerate(options[1:], 1):
        result = torch.where(choice == k, option, result)
    return result


def codes(name: str, row: Any, space: Space) -> list[int]:
    """Return a row as integers, or raise a ValueError if it is not a point of the space."""
    if isinstance(row, (Mapping, str)):
        raise TypeError(f"{name}: expected a row of numbers, got {row!r}")
    numbers = torch.as_tensor(row)
    # a single choice is a number
    numbers = numbers[None] if numbers.ndim == 0 else numbers
    n = space.family.variables
    if numbers.shape != (n,):
        raise ValueError(
            f"{name}: expected a row of {n} choices, got the shape {list(numbers.shape)}"
        )
    decoded = numbers.tolist()
    for _, variable, columns, _ in space.columns():
        for i in range(n)[columns]:
            if decoded[i] not in range(int(variable.count)):
                raise ValueError(
                    f"{name}[{i}]: expected an integer from 0 to {variable.count - 1}, got "
                    f"{decoded[i]}"
                )
    return [int(number) for number in decoded]


def named(name: str, options: Any) -> dict[str, nn.Module]:
    """Return functions and modules as modules by name.

    Equal names in a list are followed by the index.
    """
    if not isinstance(options, Mapping):
        names = [name_of(option) for option in options]
        distinct = (
            name if names.count(name) == 1 else f"{name} {i}"
            for i, name in enumerate(names)
        )
        options = dict(zip(distinct, options, strict=True))
    for option in options.values():
        if not callable(option) or isinstance(option, type):
            raise TypeError(
                f"{name}: expected functions or modules, got {option!r}"
            )
    check_input_is_kept(name, options.values())
    return {
        key: option if isinstance(option, nn.Module) else Call(option)
        for key, option in options.items()
    }


def several(name: str, options: Mapping[str, nn.Module]) -> Iterable[str]:
    """Return the names of the options, of which there must be two at least."""
    if len(options) < 2:
        raise ValueError(
            f"{name}: expected at least two options, got {len(options)}: {tuple(options)}"
        )
    return options


def check_input_is_kept(name: str, options: Iterable[Any]) -> None:
    """Raise a ValueError for modules declared to modify their input, which other options need."""
    for option in options:
        first = option
        while isinstance(first, nn.Sequential) and len(first):
            first = first[0]
        if getattr(first, "inplace", False):
            raise ValueError(
                f"{name}: expected functions that do not modify their input, got {first!r}"
            )


def name_of(function: Any) -> str:
    """Return the name of a function, or the class name of a module."""
    return getattr(function, "__name__", type(function).__name__)
