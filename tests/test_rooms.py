"""The layout of the package: the order of its rooms, private names and hidden modules.

A room is a folder or a module directly below `knobless`. All checks read the source and import nothing, so that they
also apply to another version: `python tests/test_rooms.py [SRC]` prints their figures and findings for SRC/knobless.
"""

from __future__ import annotations

import ast
import functools
import importlib
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]

# A room imports only those before it.
ORDER = (
    "_checks",
    "_files",
    "core",
    "space",
    "recipes",
    "algorithms",
    "families",
    "parallel",
    "journal",
    "run",
    "report",
    "plots",
    "optuna",
    "sklearn",
    "fast",
    "problems",
    "torch",
    "cli",
    "__main__",
)

# (room, later room that it imports): why
UPWARD = {
    ("run", "fast"): "a compiled objective is run by the compiled loop, which is loaded only then",
}

ENTRIES = 21  # files and folders directly below the package, at most
PRIVATE_USES = 15  # uses of a private name in another file than its own, at most

# (test file, private name of the package): why
TESTS_MAY_USE = {
    ("test_fast_search.py", "_states"): "the arrays of a compiled pyramid, of which results have only the points",
}

# Attributes of named tuples and of torch tensors, and the method that notebooks call
FOREIGN = {"_asdict", "_field_defaults", "_fields", "_make", "_replace", "_repr_html_", "_version"}


@dataclass(frozen=True)
class Module:
    name: str  # with dots, as it is imported
    path: str  # below the folder that was read
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def room(self) -> str:
        return room(self.name)


def room(name: str) -> str:
    """The room of a module; that of the package itself is `__init__`."""
    return [*name.split("."), "__init__"][1]


def modules(source: Path, package: str = "knobless") -> dict[str, Module]:
    found = {}
    for path in sorted((source / package).rglob("*.py")):
        relative = path.relative_to(source)
        parts = relative.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, str(relative), ast.parse(path.read_text()))
    return found


# Imports


@dataclass(frozen=True)
class Import:
    module: str  # where it is imported from, with dots
    name: str | None  # what is imported from it; None for the module itself
    bound: str  # the name that it gets
    line: int


def imports(module: Module) -> Iterator[Import]:
    """All imports of a module, those in functions and under TYPE_CHECKING as well."""
    here = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    for node in ast.walk(module.tree):
        match node:
            case ast.Import():
                for each in node.names:
                    yield Import(each.name, None, each.asname or each.name.partition(".")[0], node.lineno)
            case ast.ImportFrom():
                start = here[: len(here) - node.level + 1] if node.level else []
                origin = ".".join([*start, *([node.module] if node.module else [])])
                for each in node.names:
                    yield Import(origin, each.name, each.asname or each.name, node.lineno)


def origin(found: dict[str, Module], module: str, name: str | None) -> str:
    """The module that a name comes from, through the packages that re-export it."""
    if name is None or name.startswith("__"):
        return module
    if f"{module}.{name}" in found:
        return f"{module}.{name}"
    if module in found and found[module].is_package:
        for each in imports(found[module]):
            if each.bound == name and each.name and each.module != module:
                return origin(found, each.module, each.name)
    return module


def wrong_order(found: dict[str, Module], order: tuple[str, ...] = ORDER) -> dict[tuple[str, str], list[str]]:
    """For each pair of rooms (importer, imported) that the order does not allow, the places."""
    rank = {name: i for i, name in enumerate(order)}
    package = next(iter(found)).partition(".")[0]
    wrong = defaultdict(list)
    for module in found.values():
        if module.room == "__init__":
            continue
        for each in imports(module):
            if each.module.partition(".")[0] != package:
                continue
            if each.module == package and (each.name or "").startswith("__"):
                continue  # such as the version, which no room defines
            target = room(origin(found, each.module, each.name))
            if target != module.room and rank.get(target, len(order)) >= rank.get(module.room, -1):
                wrong[module.room, target].append(f"{module.path}:{each.line}")
    return dict(wrong)


# Private names


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in FOREIGN


def defined(tree: ast.Module) -> set[str]:
    """The private names that a file defines: functions, classes, attributes, slots and variables that are not local."""
    names = top_level(tree)
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name):
                names |= {name} | top_level(node)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=slots)):
                names |= {slot.value for slot in slots if isinstance(slot, ast.Constant)}
    return {name for name in names if is_private(name)}


def used(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The private names that a file imports, reaches as an attribute, or names in a string given to `setattr` etc."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name):
                yield name, node.lineno
            case ast.ImportFrom(names=names):
                yield from ((each.name, node.lineno) for each in names)
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function), args=args):
                if function in ("getattr", "setattr", "delattr", "hasattr"):
                    for each in args:
                        if isinstance(each, ast.Constant) and isinstance(each.value, str):
                            yield each.value.rpartition(".")[2], node.lineno


def private_uses(found: dict[str, Module], users: dict[str, Module]) -> list[tuple[str, int, str]]:
    """(file, line, name) of each use of a private name that another file of the package defines, and this one not."""
    owners = defaultdict(set)
    for module in found.values():
        for name in defined(module.tree):
            owners[name].add(module.path)
    uses = []
    for module in users.values():
        own = defined(module.tree)
        for name, line in used(module.tree):
            if is_private(name) and owners[name] and name not in own:
                uses.append((module.path, line, name))
    return sorted(uses)


def uses_in(found: dict[str, Module], folder: Path) -> list[tuple[str, int, str]]:
    """The same for the files of a folder outside the package."""
    files = {path.name: Module(path.stem, path.name, ast.parse(path.read_text())) for path in folder.glob("*.py")}
    return private_uses(found, files)


# Hidden modules


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run at the top level, those in `if`, `try`, `with` and loops as well."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for each in getattr(node, field, []):
                    yield from statements(each.body if isinstance(each, ast.ExceptHandler) else [each])


def top_level(tree: ast.Module | ast.ClassDef) -> set[str]:
    """Functions, classes and variables that a module or a class defines in its body."""
    names = set()
    for node in statements(tree.body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def hidden(found: dict[str, Module]) -> list[str]:
    """Submodules whose package binds their name to something else."""
    names = []
    for package in found.values():
        if package.is_package:
            bound = top_level(package.tree)
            lines = {node.lineno for node in statements(package.tree.body)}
            for each in imports(package):
                if each.line in lines and each.name and f"{each.module}.{each.name}" not in found:
                    bound.add(each.bound)
            names += [f"{package.name}.{name}" for name in sorted(bound) if f"{package.name}.{name}" in found]
    return names


# Tests for algorithms and states


def algorithm_types(found: dict[str, Module]) -> set[str]:
    """The classes of the core that are algorithms or members, and those of their states."""
    names = {"Algorithm", "Member", "AnyState", "QuadraticStudy", "Study", "Group", "BranchTurns"}
    for module in found.values():
        for node in module.tree.body if module.room == "core" else ():
            if isinstance(node, ast.ClassDef):
                methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
                if methods.keys() >= {"init", "ask", "tell"}:
                    names.add(node.name)
                    returned = methods["init"].returns
                    names |= (
                        {each.id for each in ast.walk(returned) if isinstance(each, ast.Name)} if returned else set()
                    )
    return names - {"S"}


def type_tests(found: dict[str, Module], types: set[str]) -> list[str]:
    """The places outside the core that test whether something is of one of these types."""
    places = []
    for module in found.values():
        for node in ast.walk(module.tree) if module.room != "core" else ():
            match node:
                case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, tested]):
                    pass
                case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[tested]):
                    pass
                case ast.MatchClass(cls=tested):
                    pass
                case _:
                    continue
            named = {each.id for each in ast.walk(tested) if isinstance(each, ast.Name)}
            named |= {each.attr for each in ast.walk(tested) if isinstance(each, ast.Attribute)}
            places += [f"{module.path}:{tested.lineno} {name}" for name in sorted(named & types)]
    return sorted(places)


def entries(source: Path, package: str = "knobless") -> list[str]:
    return sorted(path.name for path in (source / package).iterdir() if path.name != "__pycache__")


def report(source: Path) -> str:
    """All figures and findings, as text."""
    found = modules(source)
    uses, order = private_uses(found, found), wrong_order(found)
    tests = uses_in(found, source.parent / "tests")
    lines = [f"entries directly below the package: {len(entries(source))}"]
    lines += [f"pairs of rooms in the wrong order: {len(order)}"]
    lines += [f"  {a} imports {b}: {', '.join(places)}" for (a, b), places in sorted(order.items())]
    lines += [f"private names used across files: {len(uses)} uses of {len({name for *_, name in uses})} names"]
    lines += [f"  {path}:{line} {name}" for path, line, name in uses]
    lines += [f"private names used in tests: {len(tests)} uses of {len({name for *_, name in tests})} names"]
    lines += [f"  {path}:{line} {name}" for path, line, name in tests]
    lines += [f"hidden modules: {len(hidden(found))}", *(f"  {name}" for name in hidden(found))]
    return "\n".join(lines)


# The tests of this package


@pytest.fixture(scope="module")
def package() -> dict[str, Module]:
    return modules(ROOT / "src")


def test_a_room_imports_only_rooms_before_it(package):
    assert {module.room for module in package.values()} - {"__init__"} <= set(ORDER)
    found = wrong_order(package)
    assert {pair: places for pair, places in found.items() if pair not in UPWARD} == {}
    assert UPWARD.keys() <= found.keys()  # an exception that is no longer needed is removed


def test_only_the_core_tests_for_types_of_algorithms_and_states(package):
    """Elsewhere an optional method of a member decides, so that a new member changes no other file."""
    types = algorithm_types(package)
    assert types >= {"IGO", "State", "P3", "Evolution", "Model", "Search", "SearchState"}
    assert type_tests(package, types) == []


def test_the_package_has_few_entries():
    assert len(entries(ROOT / "src")) <= ENTRIES, entries(ROOT / "src")


@pytest.mark.slow
def test_few_private_names_are_used_across_files(package):
    uses = private_uses(package, package)
    assert len(uses) <= PRIVATE_USES, "\n".join(f"{path}:{line} {name}" for path, line, name in uses)


@pytest.mark.slow
def test_tests_use_no_private_names(package):
    uses = uses_in(package, ROOT / "tests")
    wrong = [f"{path}:{line} {name}" for path, line, name in uses if (path, name) not in TESTS_MAY_USE]
    assert not wrong, "\n".join(wrong)
    assert TESTS_MAY_USE.keys() <= {(path, name) for path, _, name in uses}


def test_no_module_is_hidden(package):
    assert hidden(package) == []


@pytest.mark.slow
def test_a_submodule_is_an_attribute_of_its_package(package):
    """As `hidden`, but by importing, which also covers what is bound later."""
    for name in package:
        if not name.endswith("__main__"):
            module = importlib.import_module(name)
            top, *rest = name.split(".")
            assert functools.reduce(getattr, rest, sys.modules[top]) is module
            assert isinstance(module, ModuleType)
            assert module.__name__ == name


# The tests of the checks: small packages in which something is wrong


@pytest.fixture
def write(tmp_path):
    def write(**files):
        """A package of these files, named as in `core__igo` for core/igo.py; `init` stands for __init__.py."""
        for name, text in files.items():
            *folders, stem = name.split("__")
            path = Path(tmp_path, "knobless", *folders, f"{'__init__' if stem == 'init' else stem}.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return modules(tmp_path)

    return write


@pytest.mark.parametrize(
    "statement",
    [
        "from ..run.loop import go",
        "from ..run import loop",
        "from .. import run",
        "from knobless.run.loop import go",
        "import knobless.run.loop",
        "from .. import go",
        "from .. import also",
        "def f():\n    from ..run.loop import go",
        "class A:\n    def f(self):\n        import knobless.run.loop as loop",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..run.loop import go",
        "try:\n    from ..run.loop import go\nexcept ImportError:\n    pass",
    ],
)
def test_an_import_of_a_later_room_is_found(write, statement):
    found = write(
        init="from .run import go, go as also",
        core__init="",
        core__igo=statement,
        run__init="from .loop import go",
        run__loop="from ..core import igo\nfrom .. import _checks\nfrom . import result\nimport numpy",
        run__result="from ..core.igo import x\nfrom .. import __version__\nx = 1",
        _checks="",
    )
    assert [*wrong_order(found)] == [("core", "run")]


def test_rooms_that_are_not_in_the_order_and_the_package_itself_are_found(write):
    found = write(
        init="", core__igo="from ..extra import x", extra="from .core.igo import y", run__loop="import knobless"
    )
    assert sorted(wrong_order(found)) == [("core", "extra"), ("extra", "core"), ("run", "__init__")]


def test_tests_for_types_of_algorithms_are_found(write):
    found = write(
        init="",
        core__igo="""
            class IGO:
                def init(self) -> State: return isinstance(self, IGO)
                def ask(self): pass
                def tell(self): pass
            class Part:
                def init(self) -> Other: pass
        """,
        run__loop="""
            def f(x):
                if isinstance(x, (int, IGO)) or type(x) is igo.State or isinstance(x, Part | Other): pass
                match x:
                    case IGO(): pass
                return type(x) in {int}, isinstance(x, int)
        """,
    )
    types = algorithm_types(found)
    assert {"IGO", "State"} <= types
    assert not {"Part", "Other"} & types
    assert [place.partition(":")[2] for place in type_tests(found, types)] == ["3 IGO", "3 State", "5 IGO"]


def test_private_names_of_other_files_are_found(write):
    found = write(
        init="",
        a="""
            _CONSTANT = 1
            def _function(): pass
            class A:
                __slots__ = ("_slot",)
                _field: int
                _version = 0
                def __init__(self): self._attribute = self._own = 0
                def _method(self): return self._attribute, self._field
        """,
        b="""
            from .a import A, _function
            from . import a
            class B(A):
                def __init__(self): self._own = 1
            def f(x, _local):
                _field = 3
                x._slot = x._field
                return x._method(), x._attribute, a._CONSTANT, getattr(x, "_slot"), x._own
            def g(x):
                x.__dict__, x._replace(), x._version, x._unknown, _function, _local, _field
        """,
    )
    uses = private_uses(found, found)
    assert {path for path, *_ in uses} == {"knobless/b.py"}
    once = ["_CONSTANT", "_attribute", "_field", "_function", "_method", "_slot", "_slot"]
    assert sorted(name for *_, name in uses) == once


def test_private_names_in_tests_are_found(write, tmp_path):
    found = write(init="", a="class A:\n    def __init__(self): self._x = self._y = 0")
    (tmp_path / "test_a.py").write_text(
        "class T:\n    def f(self): self._y = a._x\ndef test(monkeypatch): monkeypatch.setattr('knobless.a._x', 1)"
    )
    assert uses_in(found, tmp_path) == [("test_a.py", 2, "_x"), ("test_a.py", 3, "_x")]


@pytest.mark.parametrize(
    ("text", "is_hidden"),
    [
        ("from .p3 import p3", True),
        ("from .other import p3", True),
        ("from .other import x as p3", True),
        ("def p3(): pass", True),
        ("p3 = None", True),
        ("if True:\n    from .other import p3", True),
        ("from . import p3", False),
        ("from .p3 import P3", False),
        ("import numpy.random", False),
        ("def f():\n    from .other import p3\n    p3 = 1", False),
    ],
)
def test_a_hidden_module_is_found(write, text, is_hidden):
    found = write(init=text, p3="def p3(): pass", other="p3 = x = 1")
    assert hidden(found) == (["knobless.p3"] if is_hidden else [])


if __name__ == "__main__":
    print(report(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src"))
