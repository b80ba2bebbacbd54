"""One page for all reports, with embedded figures and the claims compared with measurements."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from harness import machine

from .claims import Claim, Report

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.7rem; } h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1.5rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; }
th, td { border: 1px solid #ddd; padding: 0.45rem 0.6rem; vertical-align: top; text-align: left; }
th { background: #f6f6f6; } td:last-child { white-space: nowrap; font-weight: 600; }
.yes { color: #17752a; } .no { color: #b3261e; } .open { color: #8a6d00; }
figure { margin: 1.5rem 0; } img { max-width: 100%; } figcaption { color: #555; font-size: 0.9rem; }
"""
CLASSES = {True: "yes", False: "no", None: "open"}


def write_page(reports: Sequence[Report], path: Path) -> Path:
    """Write the page, complete in one file."""
    held = [claim.holds for report in reports for claim in report.claims]
    counts = f"{held.count(True)} of {len(held)} claims hold, {held.count(False)} do not, {held.count(None)} are open."
    made = ", ".join(f"{name} {value}" for name, value in machine().items())
    links = " · ".join(f'<a href="#{report.name}">{escape(report.title)}</a>' for report in reports)
    body = "\n".join(map(_section, reports))
    path.write_text(
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>knobless: the paper, reproduced</title>'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>The paper's results, reproduced</h1>\n<p>{counts}</p>\n"
        f"<p>{links}</p>\n{body}\n<p><small>{escape(made)}</small></p>\n</body>\n</html>\n",
        encoding="utf-8",
    )
    return path


def _section(report: Report) -> str:
    figures = "\n".join(_figure(path, caption) for path, caption in report.figures)
    rows = "\n".join(map(_row, report.claims))
    head = "<tr><th>the paper's claim</th><th>holds here if</th><th>measured</th><th></th></tr>"
    return (
        f'<h2 id="{report.name}">{escape(report.title)}</h2>\n<p>{escape(report.setup)}</p>\n{figures}\n'
        f"<table>{head}\n{rows}\n</table>"
    )


def _figure(path: Path, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return (
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _row(claim: Claim) -> str:
    cells = "".join(f"<td>{escape(text)}</td>" for text in (claim.claim, claim.criterion, claim.measured))
    return f'<tr>{cells}<td class="{CLASSES[claim.holds]}">{claim.verdict}</td></tr>'
