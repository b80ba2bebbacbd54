"""Figures of how the source reads, per room of the package, with limits: tighten a limit when its figure improves.

`python tests/test_readability.py [SRC]` prints the table, of another folder of source as well.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "knobless"
COLUMNS = 100
BRIEF = 4  # words of a Returns section that repeats the summary

# Determiners, pronouns and adverbs: as the name of a variable, they do not say what it holds.
FUNCTION_WORDS = frozenset(
    {
        "all",
        "another",
        "any",
        "both",
        "each",
        "every",
        "few",
        "found",
        "given",
        "got",
        "here",
        "it",
        "least",
        "less",
        "many",
        "more",
        "most",
        "now",
        "one",
        "ones",
        "other",
        "others",
        "own",
        "rest",
        "same",
        "some",
        "such",
        "that",
        "them",
        "then",
        "there",
        "these",
        "this",
        "those",
        "told",
    }
)


# By room: the most nodes of the syntax tree per line of code, the fewest comments per 100 of them, and the most
# function words per 1,000 variables. Of other rooms only the lines and the Returns sections are limited.
LIMITS = {
    "cli": (6.8, 2.2, 3.0),
    "core": (9.9, 6.8, 7.0),
    "fast": (9.2, 6.2, 5.0),
    "journal": (7.6, 3.3, 5.0),
    "optuna": (8.3, 3.0, 5.0),
    "parallel": (7.8, 4.9, 3.0),
    "plots": (8.5, 1.5, 3.0),
    "problems": (8.1, 3.4, 3.0),
    "report": (9.0, 2.4, 3.0),
    "run": (8.3, 3.1, 5.0),
    "sklearn": (8.2, 2.3, 3.0),
    "space": (8.7, 1.9, 3.0),
    "torch": (9.4, 2.9, 3.0),
}


class Figures(NamedTuple):
    """Counts, from which the figures follow."""

    lines: int = 0  # with code
    nodes: int = 0  # of the syntax tree
    comments: int = 0
    variables: int = 0  # assignments to names
    function_words: int = 0
    long: int = 0  # lines over 100 columns
    returns: int = 0  # Returns sections
    brief: int = 0

    def __add__(self, other: Figures) -> Figures:  # type: ignore[override]
        return Figures(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def density(self) -> float:
        """Nodes per line of code."""
        return self.nodes / max(self.lines, 1)

    @property
    def commented(self) -> float:
        """Comments per 100 lines of code."""
        return 100 * self.comments / max(self.lines, 1)

    @property
    def vague(self) -> float:
        """Function words per 1,000 variables."""
        return 1000 * self.function_words / max(self.variables, 1)


PRAGMA = re.compile(r"\s*# (type: ignore|noqa).*$")  # does not count for the width, as for ruff
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
OUTSIDE_CODE = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}


def figures(text: str) -> Figures:
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    docstrings = [node.body[0] for node in nodes if isinstance(node, DOCUMENTED) and ast.get_docstring(node)]
    prose = {line for doc in docstrings for line in range(doc.lineno, doc.end_lineno + 1)}
    code, comments = set(), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        comments += token.type == tokenize.COMMENT
        if token.type not in OUTSIDE_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    sections = [len(section.split()) for doc in docstrings for section in returns(doc.value.value)]
    return Figures(
        len(code - prose),
        len(nodes),
        comments,
        len(names),
        sum(name in FUNCTION_WORDS for name in names),
        sum(len(PRAGMA.sub("", line)) > COLUMNS for line in text.splitlines()),
        len(sections),
        sum(words <= BRIEF for words in sections),
    )


def returns(docstring: str) -> list[str]:
    """The descriptions below the types of a Returns section."""
    found = re.search(r"\n( *)Returns\n *-------\n(.*?)(?:\n\1\S[^\n]*\n\1---|\Z)", docstring, re.DOTALL)
    if not found:
        return []
    indent = found[1]
    return [" ".join(line.strip() for line in found[2].split("\n") if line.startswith(indent + " "))]


def rooms(source: Path = SOURCE) -> dict[str, Figures]:
    """Figures by room: a folder, or a module directly below the package."""
    by_room: dict[str, Figures] = {}
    for path in sorted(source.rglob("*.py")):
        room = path.relative_to(source).parts[0].removesuffix(".py")
        by_room[room] = by_room.get(room, Figures()) + figures(path.read_text(encoding="utf-8"))
    return by_room


def table(source: Path = SOURCE) -> str:
    by_room = rooms(source)
    by_room["total"] = sum(by_room.values(), start=Figures())
    lines = [f"{'room':12} {'lines':>6} {'nodes':>6} {'comments':>8} {'words':>6} {'long':>5} {'brief Returns':>13}"]
    lines += [
        f"{room:12} {f.lines:6} {f.density:6.1f} {f.commented:8.1f} {f.vague:6.1f} {f.long:5} "
        f"{f.brief:6} of {f.returns}"
        for room, f in by_room.items()
    ]
    return "\n".join(lines)


@pytest.mark.slow
def test_the_source_reads_no_worse():
    by_room = rooms()
    for room, (density, commented, vague) in LIMITS.items():
        found = by_room[room]
        assert found.density <= density, f"{room}: {found.density:.1f} nodes per line of code"
        assert found.commented >= commented, f"{room}: {found.commented:.1f} comments per 100 lines of code"
        assert found.vague <= vague, f"{room}: {found.vague:.1f} function words per 1,000 variables"
    for room, found in by_room.items():
        assert found.long == 0, f"{room}: {found.long} lines over {COLUMNS} columns"
        assert found.brief == 0, f"{room}: {found.brief} Returns sections repeat the summary"


def test_the_figures_of_a_small_module_are_counted():
    text = '"""Doc."""\n\nx = 1  # one\nfound = [\n    x\n]\n# two\n\n\ndef f(x):\n    """Do.\n\n'
    text += '    Returns\n    -------\n    int\n        The number.\n    """\n    return x\n'
    counted = figures(text)
    assert counted.lines == 6
    assert (counted.comments, counted.variables, counted.function_words) == (2, 2, 1)
    assert (counted.returns, counted.brief, counted.long) == (1, 1, 0)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]) / "knobless" if len(sys.argv) > 1 else SOURCE))
