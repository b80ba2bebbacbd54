"""Ctrl-C: the first one ends a run with its result, a second one raises KeyboardInterrupt."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Seconds between two interrupts that are meant for the program
TWICE_WITHIN = 1.0
_last = -math.inf


def end_of_run(error: KeyboardInterrupt) -> None:
    """Return if an interrupt ends this run only; raise it if it follows another one."""
    global _last
    time_now = time.monotonic()
    before = _last
    _last = time_now
    if time_now - before < TWICE_WITHIN or isinstance(
        error.__context__, KeyboardInterrupt
    ):
        raise error


@contextmanager
def noted_interrupts() -> Iterator[list[int]]:
    """Yield a list with an entry for each KeyboardInterrupt that a signal raises in the block.

    The exception is raised wherever the program is, and is lost in finalizers and in callbacks of
    compiled libraries.
    """
    raised: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    if (
        not callable(handler)
        or threading.current_thread() is not threading.main_thread()
    ):
        yield raised
        return

    def note(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except KeyboardInterrupt:
            raised.append(number)
            raise

    signal.signal(signal.SIGINT, note)
    try:
        yield raised
    finally:
        signal.signal(signal.SIGINT, handler)
