"""Runs that are killed a few times and resumed: the laws of `tests/attack/crash.py`, one run for each case."""

from __future__ import annotations

import random
from pathlib import Path

from . import crash

KILLS = 4  # of one run


def attack(seed: int, folder: Path) -> list[str]:
    """The law that was broken, if any."""
    chance, tally = random.Random(seed), crash.Tally()
    pause, mode = chance.choice(list(crash.BUDGET)), chance.choice(crash.MODES)
    several = chance.random() < 0.5
    try:
        while not tally.runs:
            crash.killed_until_done(tally, chance, pause, several, mode, chance.randrange(2**32), KILLS)
    except crash.BrokenLaw as error:
        return [str(error)]
    return []
