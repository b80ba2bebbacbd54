"""The documents tell the truth: their Python runs as printed, and prints what they show.

The ```python blocks of a document run in order, in one namespace. A ```text block right after one is its
output. `python tests/test_readme.py` writes the outputs anew; look at the difference before committing it.
"""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n?^```text\n(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL)


def run(block: re.Match, document: Path, namespace: dict) -> str:
    """What a block prints; its lines keep their numbers in a traceback."""
    first = block.string.count("\n", 0, block.start("code"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * first + block["code"], document.name, "exec"), namespace)
    return "".join(line.rstrip() + "\n" for line in printed.getvalue().splitlines())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_runs_and_prints_what_is_shown(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": document.stem}
    for block in BLOCK.finditer(document.read_text(encoding="utf-8")):
        assert run(block, document, namespace) == (block["output"] or "")


def test_every_block_is_seen():
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        blocks = list(BLOCK.finditer(text))
        assert len(blocks) == text.count("```python"), document.name
        assert sum(block["output"] is not None for block in blocks) == text.count("```text"), document.name


def rewrite(document: Path) -> None:
    """The document with every output as it is now."""
    namespace = {"__name__": document.stem}

    def renewed(block: re.Match) -> str:
        output = run(block, document, namespace)
        shown = f"\n```text\n{output}```" + ("\n" if block["output"] is None else "") if output else ""
        return f"```python\n{block['code']}```\n{shown}"

    document.write_text(BLOCK.sub(renewed, document.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    for path in DOCUMENTS:
        rewrite(path)
