"""Ctrl-C and compiled code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Handle an interrupt from the keyboard when the block ends, not within it.

    A call of compiled code runs some Python code of numba, and an exception that is raised there is
    lost or becomes another one.
    """
    handler = signal.getsignal(signal.SIGINT)
    if (
        not callable(handler)
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    signal.signal(
        signal.SIGINT, lambda number, frame: received.append((number, frame))
    )
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            handler(*received[-1])
