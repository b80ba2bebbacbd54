"""Reports: one HTML file with the plots, numbers and evaluations of a run, or the same page live.

`page_data.py` collects the contents of the page as plain data; `page.py` puts them into `page.html`
with `page.css` and `page.js`, which displays them. The page needs no network; a live page polls its
own server for new rows. A journal may be an untrusted file: its text is transferred as JSON and
shown as text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from knobless._files import write_atomic

from .page import html_page
from .page_data import collect_page_data
from .trace import Trace, run_names
from .watch import serve

__all__ = ["serve", "write"]


def write(run: Any, path: str | os.PathLike[str]) -> Path:
    """Write the report of a run to one HTML file, or of several runs that are compared.

    Parameters
    ----------
    run : str, os.PathLike, Record, Trace or sequence of these
        Journal: its path, a record from `knobless.journal.read`, or a trace. For several, the page
        has their best values over evaluations in one plot, and the report of each.
    path : str or os.PathLike
        Path of the file to write.

    Examples
    --------
    >>> from knobless import report
    >>> report.write("run.sqlite", "run.html")  # doctest: +SKIP
    """
    path = Path(path)
    runs = list(run) if isinstance(run, (list, tuple)) else [run]
    if not runs:
        raise ValueError("run: expected at least one, got none")
    pages = [collect_page_data(Trace.of(run)) for run in runs]
    if len({page["direction"] for page in pages}) > 1:
        raise ValueError(
            "run: expected runs that all minimize or all maximize, got both"
        )
    named = [
        page | {"name": name}
        for page, name in zip(pages, run_names(runs), strict=True)
    ]
    data = (
        pages[0]
        if len(runs) == 1
        else {"name": f"{len(runs)} runs", "several": named}
    )
    write_atomic(path, html_page(data))
    return path
