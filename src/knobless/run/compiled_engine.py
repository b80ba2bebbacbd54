"""When a run changes to the compiled engine.

A run of a seed is the same compiled or interpreted, so that it can change after any iteration. To
import numba takes about a second and to compile the engine about half a minute, the first time;
after that its machine code is in a cache on disk. So a run begins interpreted, and most short ones
end before anything is imported or compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from .optimizer import Optimizer

if TYPE_CHECKING:
    from knobless.fast.run import Run, Successor

LOAD_AFTER = 0.2  # seconds of a run after which the engine is imported
COMPILE_AFTER = 2.0  # seconds of a run after which it may be compiled,
# If the rest of the run would take longer than this, about as long as compilation
COMPILATION = 30.0


class CompiledEngine:
    """The compiled engine of a run, which is imported and compiled only if the run takes long."""

    def __init__(self, fun: Any, opt: Optimizer, sign: float) -> None:
        self._run = fun, opt, sign
        self._successor: Successor | None = None
        self._supported = True  # as long as nothing else is known

    @classmethod
    def of(cls, fun: Any, opt: Optimizer, sign: float) -> Self | None:
        """Return the engine of a run; None for an objective that cannot be compiled."""
        if hasattr(fun, "__knobless_compiled__"):
            return cls(fun, opt, sign)
        return None

    def start(
        self,
        seconds: float,
        left: float,
        improved_at: int,
        announce: Callable[[str], object],
    ) -> Run | None:
        """Return the compiled run that continues this one; None if it is to be interpreted further.

        The run has taken `seconds` and would take `left` more, at most, and its last improvement
        was at evaluation `improved_at`. Compilation is announced, because it takes long.
        """
        if self._successor is None:
            if not self._supported or (
                seconds < LOAD_AFTER and "knobless.fast" not in sys.modules
            ):
                return None
            self._successor = self._load()
            self._supported = self._successor is not None
            if self._successor is None or self._successor.is_ready:
                return self._successor and self._successor.start(improved_at)
        if seconds < COMPILE_AFTER or left < COMPILATION:
            return None
        announce("compiling (once)")
        return self._successor.start(improved_at)

    def _load(self) -> Successor | None:
        """Import the engine; None if it does not support the run."""
        try:
            from knobless.fast import compiled
            from knobless.fast.run import Successor
        # Numba is an extra: without it the same run is just slower
        except ImportError:
            return None
        fun, opt, sign = self._run
        return Successor.of(compiled(fun), opt, sign)
