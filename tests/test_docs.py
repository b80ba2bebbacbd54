"""Code on the pages runs and prints the output shown; the reference has every public name; docstrings are numpydoc.

Pages are README.md and all of docs/. The blocks of a page run in order, in a folder that is empty at first:

    ```python                   runs, in one namespace per page; a ```text block right after it is its output
    ```python title="oven.py"   is written to that file instead, and so is ```toml title="space.toml"
    ```console                  has a command after each `$ `, and below it its output, errors included
    ```sh                       has commands whose output is not shown, and so do lines `    knobless …`
    ```bibtex                   is shown only

Commands run except for those in NOT_RUN. `python tests/test_docs.py` updates the outputs of all pages, or of those
given; review the difference before committing it.
"""

import ast
import contextlib
import doctest
import functools
import importlib
import inspect
import io
import os
import re
import subprocess
import sys
import tempfile
import types
from enum import Enum
from pathlib import Path

import griffe
import pytest

from knobless.core.adaptation import Adaptation
from knobless.core.algorithm import Algorithm
from knobless.core.elitism import Elitism
from knobless.core.member import Member, SkippingMember
from knobless.core.preferences import Preference

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r'^```(?P<kind>\S*)(?: title="(?P<file>[^"]+)")?\n(?P<body>.*?)^```\n(?:\n?^```text\n(?P<output>.*?)^```\n)?'
    r"|^(?P<indented>(?: {4}knobless [^\n]*\n)+)",
    re.MULTILINE | re.DOTALL,
)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


# Commands that do not run here, by their first words, and why.
NOT_RUN = {
    "pip install": "changes the environment of the tests; `make dist` installs into one of its own",
    "make ": "sets up an environment; the demo and the examples have tests of their own",
    "knobless watch": "serves until Ctrl-C; tests/test_report.py does it",
    **dict.fromkeys(
        ("PYTHONPATH=. dask ", "python on_", "mpiexec ", "python study.py ", "knobless ask run.sqlite "),
        "needs a cluster; tests/test_clusters.py runs it where one is installed",
    ),
    **dict.fromkeys(("python tune_lightgbm.py", "python log_ioh.py"), "needs a library that the tests do not install"),
    "python -m reproduction": "takes minutes to hours; tests/test_reproduce.py does it in small",
}
# What differs from run to run is not compared.
VARIES = re.compile(
    r"pid \d+@[^ ]+|median .* s, longest .* s|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|[\d.]+ seconds|\"seconds\": [\d.e-]+"
    r"|[-\d.]+ \(standard error [\d.]+\)\n[01]+"  # of noise without a seed
)


def updated(page: Path, text: str) -> str:
    """Return the page with its current outputs, run in the current folder."""
    namespace = {"__name__": page.stem}

    def now(block: re.Match) -> str:
        if block["indented"]:
            for line in block["indented"].splitlines():
                printed(line)
            return block[0]
        if block["file"]:
            Path(block["file"]).write_text(block["body"], encoding="utf-8")
            return block[0]
        match block["kind"]:
            case "python":
                output = run(block, page.name, namespace)
                return f"```python\n{block['body']}```\n" + (f"\n```text\n{output}```\n" if output else "")
            case "console":
                if re.search(rf"^\$ (?:{'|'.join(NOT_RUN)})", block["body"], re.MULTILINE):
                    return block[0]
                commands = [line for line in block["body"].splitlines() if line.startswith("$ ")]
                renewed = "".join(f"{line}\n{printed(line[2:], shown=True)}" for line in commands)
                return block[0] if same(renewed, block["body"]) else f"```console\n{renewed}```\n"
            case "sh":
                for line in block["body"].splitlines():
                    printed(line)
                return block[0]
            case "bibtex":
                return block[0]
        raise ValueError(f"{page.name}: a block of an unknown kind: {block[0][:40]!r}")

    return BLOCK.sub(now, text)


def run(block: re.Match, name: str, namespace: dict) -> str:
    """Return the output of a block of Python; its lines keep their numbers in a traceback."""
    first = block.string.count("\n", 0, block.start("body"))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile("\n" * first + block["body"], name, "exec"), namespace)
    return trimmed(output.getvalue())


def printed(command: str, shown: bool = False) -> str:
    """Return the output of a command, errors included. Only a command whose output is shown may fail."""
    command = command.strip()
    if command.startswith(("#", *NOT_RUN)):
        return ""
    assert command.startswith(("knobless ", "python ")), f"neither runs nor is in NOT_RUN: {command}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"COLUMNS": "110", "PYTHONIOENCODING": "utf-8", "PATH": path}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8"}
    done = subprocess.run(command, shell=True, timeout=300, env=environment, **pipes)
    assert shown or done.returncode == 0, f"{command}: {done.stdout}"
    return re.sub(r"pid \d+@[^ ]+", "pid 4711@kitchen", trimmed(done.stdout))


def trimmed(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def same(one: str, other: str) -> bool:
    return VARIES.sub("…", one) == VARIES.sub("…", other)


def marked(page: Path):
    return pytest.param(page, id=page.name, marks=() if page.name == "README.md" else pytest.mark.slow)


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if BLOCK.search(text_of(page))])
def test_what_a_page_shows_is_what_it_prints(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text, before = text_of(page), set(sys.modules)
    try:
        assert updated(page, text).splitlines() == text.splitlines()
    finally:
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
                del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_is_overlooked(page):
    text = text_of(page)
    blocks = [block for block in BLOCK.finditer(text) if not block["indented"]]
    fences = sum(2 + 2 * (block["output"] is not None) for block in blocks)
    assert fences == len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE))
    assert all(block["kind"] == "python" and not block["file"] for block in blocks if block["output"] is not None)
    commands = re.findall(r"^(?: {4})?(?:\$ )?knobless .*", text, re.MULTILINE)
    assert all(any(command in block[0] for block in BLOCK.finditer(text)) for command in commands)


def test_what_does_not_run_is_on_a_page():
    text = "\n".join(text_of(page) for page in PAGES)
    assert [start for start in NOT_RUN if not re.search(rf"^(?: {{4}})?(?:\$ )?{start}", text, re.MULTILINE)] == []


# The reference.

MODULES = [
    "knobless",
    "knobless.algorithms",
    "knobless.families",
    "knobless.fast",
    "knobless.journal",
    "knobless.optuna",
    "knobless.plots",
    "knobless.problems",
    "knobless.parallel.ray",
    "knobless.report",
    "knobless.sklearn",
    "knobless.torch",
    "knobless.torch.data",
    "knobless.report.trace",
    "knobless.run.front",
]


def named(path: str) -> object:
    """Return the object of a name such as `knobless.plots.best`."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def reference() -> list[str]:
    pages = sorted((ROOT / "docs" / "api").glob("*.md"))
    names = [name for page in pages for name in re.findall(r"^::: (\S+)$", text_of(page), re.MULTILINE)]
    return [name for name in names if name not in MODULES]


def test_the_reference_has_every_public_name_once():
    public = [f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__]
    listed = reference()
    # Compared by object: a name that is public in two modules is described in one.
    assert [name for name in listed if not any(named(name) is named(each) for each in public)] == []
    assert [name for name in public if sum(named(name) is named(each) for each in listed) != 1] == []
    assert [name for name in listed if not inspect.getdoc(named(name))] == []


def test_what_the_pages_import_is_in_the_reference():
    imported, listed = set(), [named(name) for name in reference()]
    for page in PAGES:
        for block in BLOCK.finditer(text_of(page)):
            for node in ast.walk(ast.parse(block["body"] if block["kind"] == "python" else "")):
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "knobless":
                    imported |= {f"{node.module}.{each.name}" for each in node.names}
    assert imported
    assert [each for each in imported - set(MODULES) if not any(named(each) is one for one in listed)] == []


# Docstrings.

NOT_IMPERATIVE = re.compile(r"(?:A|An|The|Of|What|Where|Whether|How|As|If|With|[A-Z][a-z]*(?<!s)s)\b")
ALIGNED = re.compile(r"^(?!\.\.\. )\S+(?:, \S+)* {2,}\S", re.MULTILINE)  # names and their meanings in columns
# Parameters without types in one entry: the reference would show all of them with the type and default of the first.
GROUPED = re.compile(r"^[a-z]\w*(?:, \w+)+$(?=\n {4})", re.MULTILINE)
# Protocols document the parameters of their methods; methods of other classes of the core have no need to repeat them.
PROTOCOLS = (Algorithm, Member, SkippingMember, Adaptation, Elitism, Preference)
PROTOCOL_METHODS = {
    f"{protocol.__module__}.{protocol.__qualname__}.{name}" for protocol in PROTOCOLS for name in vars(protocol)
}
Sections = griffe.DocstringSectionKind
BRIEF = 4  # words


def documented(name: str) -> list[tuple[str, object]]:
    """Return a public name and, of a class, its own public methods and properties that have docstrings."""
    obj = named(name)
    own = vars(obj) if inspect.isclass(obj) else {}
    members = {key: getattr(each, "__func__", each) for key, each in own.items() if not key.startswith("_")}
    kinds = (types.FunctionType, property, functools.cached_property)
    found = [(f"{name}.{key}", each) for key, each in members.items() if isinstance(each, kinds) and each.__doc__]
    return [(name, obj), *found]


def parameters(obj: object) -> list[str]:
    """Return the names that a docstring must document: parameters, and fields of dataclasses and named tuples."""
    if inspect.isclass(obj) and (issubclass(obj, Enum) or not {"__init__", "__new__"} & vars(obj).keys()):
        return []
    if getattr(obj, "_is_protocol", False):
        return []
    try:
        signature = inspect.signature(obj)
    except (TypeError, ValueError):
        return []
    prefix = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [prefix.get(each.kind, "") + each.name for each in signature.parameters.values() if each.name != "self"]


def is_method_of_core(function: types.FunctionType) -> bool:
    name = f"{function.__module__}.{function.__qualname__}"
    return name.startswith("knobless.core.") and "." in function.__qualname__ and name not in PROTOCOL_METHODS


def faults(obj: object) -> list[str]:
    """Return how a docstring differs from numpydoc."""
    text = inspect.cleandoc(obj.__doc__ or "")
    summary, _, rest = text.partition("\n")
    sections = griffe.parse_numpy(griffe.Docstring(text), warnings=False)
    kinds = {section.kind: section.value for section in sections}
    entries = [each.name for kind in (Sections.parameters, Sections.attributes) for each in kinds.get(kind, ())]
    listed = [name for entry in entries for name in entry.split(", ")]
    missing = [name for name in parameters(obj) if name not in listed and name != "cls"]
    is_function = isinstance(obj, types.FunctionType)
    if is_function and is_method_of_core(obj):
        missing = []
    found = [f"{name}: not documented" for name in missing]
    if not summary.endswith(".") or rest.partition("\n")[0]:
        found.append("summary: expected one line that ends with a period")
    if is_function and NOT_IMPERATIVE.match(summary):
        found.append(f"summary: expected the imperative, got {summary.split()[0]!r}")
    returned = " ".join(entry.description for entry in kinds.get(Sections.returns, ()))
    if Sections.returns in kinds and len(returned.split()) <= BRIEF:
        found.append("Returns: repeats the summary or the type; leave it out, or state more")
    found += [f"one entry: {names}" for names in GROUPED.findall(text)]
    return found + [f"aligned columns: {line!r}" for line in ALIGNED.findall(text)]


def test_public_docstrings_are_numpydoc():
    each = {name: faults(obj) for path in reference() for name, obj in documented(path)}
    assert {name: found for name, found in each.items() if found} == {}


SOURCE = ROOT / "src"
WITH_EXAMPLES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in text_of(path)]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_the_examples_of_docstrings_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    module = pytest.importorskip(name, exc_type=ImportError)
    assert not doctest.testmod(module).failed


# The comparison.


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of tables by the first cell of each row, without bold markup."""
    cells = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return {first: rest for first, *rest in cells}


def test_the_comparison_says_what_was_measured():
    section = text_of(ROOT / "docs" / "comparison.md").split("## Binary variables without noise")[1].split("\n## ")[0]
    measured = rows(text_of(ROOT / "docs" / "peers" / "table.md"))
    peers = measured["function"][:-1]
    summary, some = (rows(table) for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE))
    assert summary.pop("") == peers
    summary.pop("---")
    led, solved, overhead = summary.values()
    assert led == measured["lines led or shared"][:-1]
    assert solved == measured["solved in every run"][:-1]
    assert overhead == [measured[peer][0] for peer in peers]
    for function, (ours, best, peer) in some.items():
        if function not in ("", "---"):
            line = dict(zip(peers, measured[function], strict=False))
            assert (ours, best) == (line["PBIL-λ"], line[peer])


if __name__ == "__main__":
    for page in [Path(each).resolve() for each in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            sys.path.insert(0, folder)
            text = text_of(page)
            page.write_text(updated(page, text), encoding="utf-8")
            sys.path.remove(folder)
