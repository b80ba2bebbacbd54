"""Options that the searches of the paper share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CHEAP = 300  # the largest n at which a trial that reaches the optimum takes seconds


@dataclass(frozen=True)
class Options:
    """The folder of the results, the number of trials, the largest n, and the number of threads (0: one per core).

    Trials are cheap up to n = 300, beyond which there are ten at most.
    """

    out: Path
    trials: int = 30
    max_n: int = 3000
    jobs: int = 0

    @property
    def threads(self) -> int:
        return self.jobs or os.cpu_count() or 1

    def trials_at(self, n: int) -> int:
        """Return the number of trials at a size."""
        return self.trials if n <= CHEAP else min(self.trials, 10)

    def sizes(self, *sizes: int) -> list[int]:
        """Return those of the sizes that do not exceed `max_n`."""
        kept = [n for n in sizes if n <= self.max_n]
        if not kept:
            raise ValueError(f"max_n: expected at least {min(sizes)}, got {self.max_n}")
        return kept
