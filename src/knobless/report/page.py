"""The page as one text: `page.html` with the style, the script and the data filled in.

Its content security policy has the hashes of its own style and script, so a browser runs no others:
text in an untrusted journal could not run even if it were parsed as markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any


def html_page(data: dict[str, Any] | None) -> str:
    """Return the page with these data; with None, the page polls its server for them."""
    parts = files(__package__)
    style, script = (
        (parts / name).read_text(encoding="utf-8")
        for name in ("page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        f"connect-src {'none' if data else 'self'!r}; base-uri 'none'; form-action 'none'"
    )
    # Only a < can end a script element.
    words = json.dumps(data, allow_nan=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    title = html.escape(
        f"{data['name']} · knobless" if data else "knobless watch"
    )
    filled = (parts / "page.html").read_text(encoding="utf-8")
    for name, text in (
        ("policy", policy),
        ("title", title),
        ("style", style),
        ("data", words),
        ("script", script),
    ):
        # Once, and never in text filled in before
        before, mark, after = filled.partition(f"<!--{name}-->")
        filled = before + text + after if mark else filled
    return filled


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
