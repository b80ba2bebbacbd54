"""How results and optimizers are displayed: short text, and tables in HTML."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np

MOST_SHOWN = 20  # of a nested table
_CELL = "text-align: left; vertical-align: top; padding: 2px 8px"


class Text(str):
    """Text to be displayed as it is, unlike an option that is a string."""


def one_line(x: Any, width: int = 400) -> str:
    """Return a point or a value as one line of limited length."""
    with np.printoptions(threshold=40, edgeitems=8):
        text = " ".join(repr(x).split())
    return text if len(text) <= width else text[: width - 2] + " …"


def html_table(caption: str, rows: Iterable[tuple[str, Any]]) -> str:
    """Return a table of names and contents; everything in it is escaped."""
    head = (
        f'<caption style="text-align: left; font-weight: bold">{escape(caption)}</caption>'
        if caption
        else ""
    )
    style = f'style="{_CELL}"'
    body = "".join(
        f"<tr><th {style}>{escape(name)}</th><td {style}>{_cell(x)}</td></tr>"
        for name, x in rows
    )
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _cell(content: Any) -> str:
    if isinstance(content, Text):
        return escape(content)
    if not isinstance(content, dict):
        return f"<code>{escape(one_line(content))}</code>"
    rows = [(str(name), value) for name, value in content.items()]
    remaining = (
        [("…", Text(f"{len(rows) - MOST_SHOWN} more"))]
        if len(rows) > MOST_SHOWN
        else []
    )
    return html_table("", [*rows[:MOST_SHOWN], *remaining])


def html_grid(
    caption: str, head: Iterable[str], rows: Iterable[Iterable[str]]
) -> str:
    """Return a table with a row of names; everything in it is escaped."""
    style = f'style="{_CELL}"'
    top = "".join(f"<th {style}>{escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>"
        + "".join(f"<td {style}>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    title = f'<caption style="text-align: left; font-weight: bold">{escape(caption)}</caption>'
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
