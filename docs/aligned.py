"""For the site: the aligned lists of a docstring, with a name and what it means in each row, become tables."""

import re
from typing import Any

import griffe

ROW = re.compile(r"(?P<name>\S+(?:, \S+)*) {2,}(?P<text>\S.*)")


def tabled(text: str) -> str:
    """A docstring with its aligned lists as tables, and everything else as it is."""
    return "\n\n".join(_table(part) or part for part in text.split("\n\n"))


def _table(part: str) -> str | None:
    rows: list[list[str]] = []
    for line in part.splitlines():
        if row := ROW.fullmatch(line):
            rows.append([row["name"], row["text"]])
        elif rows and line.startswith("  "):
            rows[-1][1] += " " + line.strip()
        else:
            return None
    names = [", ".join(f"`{each}`" for each in name.split(", ")) for name, _ in rows]
    return "\n".join(["| name | meaning |", "|---|---|", *(f"| {n} | {text} |" for n, (_, text) in zip(names, rows, strict=True))])


class Aligned(griffe.Extension):
    """What mkdocstrings calls for each name that it finds."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring before it is rendered."""
        if obj.docstring:
            obj.docstring.value = tabled(obj.docstring.value)
