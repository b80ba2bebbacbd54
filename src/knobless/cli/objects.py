"""Objects by name, `package.module:attribute`, on the command line and in a journal.

Modules of the current folder come first, as with `python -m`. A `NamedFunction` is pickled by its
name, so that worker processes can import what does not pickle. A name from an untrusted file is
followed only if `is_local`.
"""

from __future__ import annotations

import sys
from functools import reduce
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class UserCodeError(Exception):
    """The user's code raised the exception that is the cause of this one."""


def import_object(name: str) -> Any:
    """Import an object by name.

    Raise ValueError if there is none, UserCodeError if its module fails.
    """
    module, attributes = _split(name)
    if _find(module) is None:
        raise ValueError(
            f"{name}: no module {module} in the current folder, and none installed"
        )
    try:
        loaded = import_module(module)
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{name}: {module} cannot be imported") from error
    try:
        return reduce(getattr, attributes, loaded)
    except AttributeError as error:
        raise ValueError(f"{name}: {error}") from None


def is_local(name: str) -> bool:
    """Return whether importing the module of this name runs only a file that lies in the current
    folder.

    Modules of packages are not local: a subfolder may have been unpacked from an untrusted archive,
    and importing a module of a package runs the package first. Nothing is imported for this, and
    `sys.path` stays as it is.
    """
    module, _ = _split(name)
    # a file of a standard name is never imported
    if "." in module or module in sys.stdlib_module_names:
        return False
    folder = Path.cwd()
    loaded = sys.modules.get(module)
    spec = (
        PathFinder.find_spec(module, [str(folder)])
        if loaded is None
        else getattr(loaded, "__spec__", None)
    )
    if spec is None or not spec.has_location or spec.origin is None:
        return False
    return Path(spec.origin).parent.resolve() == folder.resolve()


def _find(module: str) -> ModuleSpec | None:
    """Find a module, the current folder first; None if there is none."""
    folder = str(Path.cwd())
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    try:
        return find_spec(module)
    except ModuleNotFoundError as error:
        # a package that contains it
        if f"{module}.".startswith(f"{error.name}."):
            return None
        raise UserCodeError(f"{module} cannot be imported") from error
    except ValueError:  # `__main__` has none
        return None
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{module} cannot be imported") from error


def _split(name: str) -> tuple[str, list[str]]:
    """Split a name into its module and its attributes."""
    module, _, path = name.partition(":")
    attributes = path.split(".")
    if not all(
        word.isidentifier() for word in (*module.split("."), *attributes)
    ):
        raise ValueError(
            f"expected a name such as package.module:function, got {name!r}"
        )
    if module.endswith(".py"):
        raise ValueError(
            f"expected the name of a module, such as {module[:-3]}:{path}, got {name!r}"
        )
    return module, attributes


class NamedFunction:
    """A function that is pickled by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fun = import_object(name)
        if not callable(self.fun):
            raise ValueError(f"{name}: expected a function, got {self.fun!r}")
        self.__module__, _, self.__qualname__ = name.partition(":")
        self.__wrapped__ = self.fun

    @property
    def is_local(self) -> bool:
        """Whether it is defined in a file of the current folder, and not merely imported there."""
        module = getattr(self.fun, "__module__", None)
        return (
            isinstance(module, str)
            and all(map(str.isidentifier, module.split(".")))
            and is_local(f"{module}:_")
        )

    def __call__(self, x: Any) -> Any:
        return self.fun(x)

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedFunction, (self.name,)
