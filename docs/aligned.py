"""For the site: the aligned lists of a docstring, with a name and what it means in each row, become tables.

So do the fields of a named tuple and the values of an enumeration, which have no words of their own.
"""

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
    return _rows("name | meaning", [(name.replace(", ", "`, `"), text) for name, text in rows])


def _rows(head: str, rows: list[tuple[str, str]]) -> str:
    return "\n".join([f"| {head} |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows)])


def _fields(cls: griffe.Class) -> str:
    bases = {str(base) for base in cls.bases}
    of = {name: each for name, each in cls.attributes.items() if not each.docstring}
    if "NamedTuple" in bases:
        return _rows("field | type", [(name, f"`{each.annotation}`") for name, each in of.items()])
    return _rows("name | value", [(name, f"`{each.value}`") for name, each in of.items()]) if "StrEnum" in bases else ""


class Aligned(griffe.Extension):
    """What mkdocstrings calls for each name that it finds."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring before it is rendered."""
        if obj.docstring:
            fields = _fields(obj) if isinstance(obj, griffe.Class) else ""
            obj.docstring.value = f"{tabled(obj.docstring.value)}\n\n{fields}".rstrip()
