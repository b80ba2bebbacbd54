"""The documents tell the truth: what they show runs as printed and prints what they show; the reference has every name.

Pages are README.md and all of docs/. The blocks of a page run in order, in a folder that is empty at first:

    ```python                   runs, in one namespace a page; a ```text block right after it is what it prints
    ```python title="oven.py"   is written to that file instead, and so is ```toml title="space.toml"
    ```console                  has a command after each `$ `, and below it what that prints, errors too
    ```sh                       has commands whose output is not shown; lines `    knobless …` are read as such

Commands run but for those in NOT_RUN. `python tests/test_docs.py` writes the outputs of all pages anew, or of those
that it is given; look at the difference before committing it.
"""

import ast
import contextlib
import importlib
import inspect
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r'^```(?P<kind>\S*)(?: title="(?P<file>[^"]+)")?\n(?P<body>.*?)^```\n(?:\n?^```text\n(?P<output>.*?)^```\n)?'
    r"|^(?P<indented>(?: {4}knobless [^\n]*\n)+)",
    re.MULTILINE | re.DOTALL,
)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


# Commands that do not run here, by how they begin, and why.
NOT_RUN = {
    "pip install": "changes the environment of the tests; `make dist` installs into one of its own",
    "make ": "sets up an environment; the demo and the examples have tests of their own",
    "knobless watch": "serves until Ctrl-C; tests/test_report.py does it",
    "knobless reproduce": "takes minutes to hours; tests/test_reproduce.py does it in small",
}
# What differs from run to run is not compared.
VARIES = re.compile(r"pid \d+@[^ ]+|median .* s, longest .* s|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|[\d.]+ seconds")


def played(page: Path, text: str) -> str:
    """The page with what it prints now, in the current folder."""
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
                commands = [line for line in block["body"].splitlines() if line.startswith("$ ")]
                renewed = "".join(f"{line}\n{printed(line[2:], shown=True)}" for line in commands)
                return block[0] if same(renewed, block["body"]) else f"```console\n{renewed}```\n"
            case "sh":
                for line in block["body"].splitlines():
                    printed(line)
                return block[0]
        raise ValueError(f"{page.name}: a block of an unknown kind: {block[0][:40]!r}")

    return BLOCK.sub(now, text)


def run(block: re.Match, name: str, namespace: dict) -> str:
    """What a block of Python prints; its lines keep their numbers in a traceback."""
    first = block.string.count("\n", 0, block.start("body"))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile("\n" * first + block["body"], name, "exec"), namespace)
    return trimmed(output.getvalue())


def printed(command: str, shown: bool = False) -> str:
    """What a command prints, on both channels. Only one whose output is shown may fail."""
    command = command.strip()
    if command.startswith(("#", *NOT_RUN)):
        return ""
    assert command.startswith(("knobless ", "python ")), f"neither runs nor stands in NOT_RUN: {command}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"COLUMNS": "110", "PYTHONIOENCODING": "utf-8", "PATH": path}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8"}
    done = subprocess.run(command, shell=True, timeout=120, env=environment, **pipes)
    assert shown or done.returncode == 0, f"{command}: {done.stdout}"
    return re.sub(r"pid \d+@[^ ]+", "pid 4711@kitchen", trimmed(done.stdout))


def trimmed(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def same(one: str, other: str) -> bool:
    return VARIES.sub("…", one) == VARIES.sub("…", other)


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(text_of(page))], ids=lambda page: page.name)
def test_what_a_page_shows_is_what_it_prints(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text, before = text_of(page), set(sys.modules)
    try:
        assert played(page, text).splitlines() == text.splitlines()
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
    "knobless.fast",
    "knobless.journal",
    "knobless.optuna",
    "knobless.plots",
    "knobless.problems",
    "knobless.report",
    "knobless.sklearn",
    "knobless.torch",
    "knobless.torch.data",
    "knobless.report.trace",
]


def named(path: str) -> object:
    """What `knobless.plots.best` is."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def reference() -> list[str]:
    pages = sorted((ROOT / "docs" / "api").glob("*.md"))
    names = [name for page in pages for name in re.findall(r"^::: (\S+)$", text_of(page), re.MULTILINE)]
    return [name for name in names if name not in MODULES]


def test_the_reference_has_every_public_name_once():
    public = [f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__]
    listed = reference()
    # By what they name: what is public in two modules is described in one.
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


# The comparison.


def rows(text: str) -> dict[str, list[str]]:
    """Tables by the first cell of each row, without what makes a cell bold."""
    cells = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return {first: rest for first, *rest in cells}


def test_the_comparison_says_what_was_measured():
    section = text_of(ROOT / "docs" / "comparison.md").split("## Bits, without noise")[1].split("\n## ")[0]
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


# The site.


@pytest.mark.skipif(not (ROOT / "docs" / "demo.png").exists(), reason="an sdist has no pictures")
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) == len(PAGES)  # README.md is none of them, and one says that a page was not found
    loads = re.compile(
        r'<(?:script|img|iframe|source)\b[^>]*\bsrc="?(?:https?:)?//|<link\b[^>]*\bhref="?(?:https?:)?//'
    )
    assert [page.name for page in pages if loads.search(text_of(page))] == []


if __name__ == "__main__":
    for page in [Path(each).resolve() for each in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            sys.path.insert(0, folder)
            text = text_of(page)
            page.write_text(played(page, text), encoding="utf-8")
            sys.path.remove(folder)
