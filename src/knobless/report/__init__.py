"""A page for a run: one HTML file with its pictures, numbers and every evaluation; and the same page, live.

    report.write("run.sqlite", "run.html")
    report.serve("run.sqlite")              # until Ctrl-C; see `watch.py`

`page_data.py` collects the contents of the page as plain data; `page.py` puts them into `page.html` with `page.css` and
`page.js`, which displays them. The page needs no network; a live page polls its own server for new rows. A journal may
be an untrusted file: its text travels as JSON and is shown as text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from knobless._files import write_atomic

from .page import page
from .page_data import page_data
from .trace import Trace
from .watch import serve

__all__ = ["serve", "write"]


def write(run: Any, path: str | os.PathLike[str]) -> Path:
    """The page of a journal (its path, a record or a `Trace`), complete in one file; returns where it is."""
    path = Path(path)
    write_atomic(path, page(page_data(Trace.of(run))))
    return path
