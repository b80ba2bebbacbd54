"""Ctrl-C: the first one ends a run with its result, a second one soon after it raises KeyboardInterrupt."""

from __future__ import annotations

import math
import time

TWICE_WITHIN = 1.0  # seconds between two interrupts that are meant for the program
_last = -math.inf


def end_of_run(error: KeyboardInterrupt) -> None:
    """Return if an interrupt ends this run only; raise it if it follows another one."""
    global _last
    now, before = time.monotonic(), _last
    _last = now
    if now - before < TWICE_WITHIN or isinstance(error.__context__, KeyboardInterrupt):
        raise error
