"""Objects by name, `package.module:attribute`, as they are named at a shell and in the notes of a journal.

Modules of the current folder come first, as with `python -m`. A `Named` function goes to other processes by its name,
so that it need not pickle. A name that came in a file is trusted only where it leads to code of the current folder.
"""

from __future__ import annotations

import sys
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class UserCodeError(Exception):
    """Code of the user's own has raised; the cause is what it raised."""


def imported(name: str) -> Any:
    """Import the object of this name; ValueError if there is none, UserCodeError if its module fails."""
    module, attributes = _split(name)
    if find_spec_of(module) is None:
        raise ValueError(f"{name}: there is no module {module}, neither in this folder nor installed")
    try:
        found = import_module(module)
    except Exception as error:
        raise UserCodeError(f"{name}: {module} cannot be imported") from error
    try:
        return reduce(getattr, attributes, found)
    except AttributeError as error:
        raise ValueError(f"{name}: {error}") from None


def lies_here(name: str) -> bool:
    """Whether its module is in the current folder, so that to import it runs code from there."""
    top = _split(name)[0].partition(".")[0]
    spec = find_spec_of(top)
    if spec is None:
        return False
    places = spec.submodule_search_locations or ([spec.origin] if spec.has_location else [])
    here = Path.cwd().resolve()
    return bool(places) and all(Path(place).parent.resolve() == here for place in places)


def find_spec_of(module: str) -> Any:
    """Where a module is, the current folder included; None where it is nowhere."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return find_spec(module)
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):  # a package on the way to it
            return None
        raise UserCodeError(f"{module} cannot be imported") from error
    except ValueError:  # `__main__` has none
        return None
    except Exception as error:
        raise UserCodeError(f"{module} cannot be imported") from error


def _split(name: str) -> tuple[str, list[str]]:
    module, _, path = name.partition(":")
    attributes = path.split(".")
    if not all(word.isidentifier() for word in (*module.split("."), *attributes)):
        raise ValueError(f"expected a name such as package.module:function, got {name!r}")
    if module.endswith(".py"):
        raise ValueError(f"expected the name of a module, such as {module[:-3]}:{path}, got {name!r}")
    return module, attributes


class Named:
    """A function by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fun = imported(name)
        if not callable(self.fun):
            raise ValueError(f"{name}: expected a function, got {self.fun!r}")
        self.__module__, _, self.__qualname__ = name.partition(":")

    @property
    def lies_here(self) -> bool:
        """Whether it is defined in the current folder: not, if a module there has merely imported it."""
        where = getattr(self.fun, "__module__", None)
        return isinstance(where, str) and lies_here(f"{where}:_")

    def __call__(self, x: Any) -> Any:
        return self.fun(x)

    def __reduce__(self) -> tuple[Any, ...]:
        return Named, (self.name,)
