"""Text for a terminal: messages, the progress bar, and escaped untrusted text."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

EVALUATIONS = "knobless.evaluations"  # the logger of single evaluations
SPELLED = str.maketrans({"λ": "lambda", "ε": "eps", "–": "-", "…": "..."})


def plain(text: str) -> str:
    """Escape characters that control a terminal, and replace those that its encoding lacks."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in text
    )
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        shown.encode(encoding)
    except UnicodeEncodeError:
        return (
            shown.translate(SPELLED)
            .encode(encoding, "backslashreplace")
            .decode(encoding)
        )
    return shown


def escape_unencodable() -> None:
    """Make the standard streams escape characters that their encoding lacks, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@dataclass(frozen=True)
class Messages:
    """Messages about a command in progress, on the standard error; none if `quiet`."""

    quiet: bool = False

    def write(self, text: str) -> None:
        """Print one line."""
        if not self.quiet:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    @property
    def progress(self) -> bool:
        """Whether to show a progress bar: only on a terminal."""
        return not self.quiet and sys.stderr.isatty()

    @contextmanager
    def of_the_library(self) -> Iterator[None]:
        """Print what the library logs, except for single evaluations.

        Nothing is printed while a progress bar shows it.
        """
        log = logging.getLogger("knobless")
        evaluations = logging.getLogger(EVALUATIONS)

        def emit(record: logging.LogRecord) -> None:
            if not self.progress:
                self.write(record.getMessage())

        handler = logging.Handler()
        handler.emit = emit  # type: ignore[method-assign]
        levels = log.level, evaluations.level
        log.setLevel(logging.INFO)
        evaluations.setLevel(logging.WARNING)
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.setLevel(levels[0])
            evaluations.setLevel(levels[1])
