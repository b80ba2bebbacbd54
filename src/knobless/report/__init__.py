"""A page for a run: one HTML file with its pictures, numbers and every evaluation; and the same page, live.

    report.write("run.sqlite", "run.html")
    report.serve("run.sqlite")              # until Ctrl-C; see `watch.py`

`page_data.py` says what is on the page, as plain data; `page.py` puts that into `page.html` with `page.css` and `page.js`,
which shows it. The page needs no network and asks nothing of a server but, if it is live, what is new. A journal may
be a stranger's: its words travel as JSON and are shown as text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .page import page
from .page_data import page_data
from .trace import Trace
from .watch import serve

__all__ = ["serve", "write"]


def write(run: Any, path: str | os.PathLike[str]) -> Path:
    """The page of a journal (its path, a record or a `Trace`), complete in one file; returns where it is."""
    path = Path(path)
    path.write_text(page(page_data(Trace.of(run))), encoding="utf-8")
    return path
