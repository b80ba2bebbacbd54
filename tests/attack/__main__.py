"""The command: runs attacks for some minutes, or one case, and prints what was tried and what was wrong."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `python tests/attack` puts only the folder there

import attack
from attack import ask_tell, cases, compiled, differential, hostile, kill, races
from knobless.run import interrupts

interrupts.TWICE_WITHIN = 0.0  # simulated interrupts follow each other closely, and are for one run each

ATTACKS: dict[str, Callable[[int, Path], list[str]]] = {
    "differential": differential.attack,
    "compiled": compiled.attack,
    "fuzzer": ask_tell.attack,
    "kill": kill.attack,
    "hostile": hostile.attack,
    "races": races.attack,
}
PATIENCE = 900  # seconds after which a case is taken to hang; the slowest takes a minute on an idle machine
LINES = 6  # of what differed, shown for a case unless it is run alone


class Hangs(BaseException):
    """Not an `Exception`, which an optimizer would count as a failed evaluation."""


@dataclass
class Tally:
    """What was tried of one attack."""

    cases: int = 0
    seconds: float = 0.0
    wrong: list[int] = field(default_factory=list)


def tried(name: str, seed: int) -> tuple[list[str], float]:
    """One case: what differed, and how many seconds it took."""

    def hangs(*_: Any) -> None:
        raise Hangs

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(PATIENCE)
    try:
        with tempfile.TemporaryDirectory(prefix="knobless-attack-") as folder, warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", cases.EXPECTED_WARNINGS)
            found = ATTACKS[name](seed, Path(folder))
    except (Exception, Hangs):
        found = traceback.format_exc().splitlines()[::-1]  # the exception first
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return found, time.monotonic() - began


def one(names: list[str], seed: int) -> int:
    """Runs one case of each attack and prints all that differed."""
    wrong = 0
    for name in names:
        found, seconds = tried(name, seed)
        print(f"{name} {seed}: {'wrong' if found else 'right'}, {seconds:.1f} s", *found, sep="\n    ")
        wrong += bool(found)
    return wrong


def many(names: list[str], first: int, minutes: float, most: float, jobs: int) -> int:
    """Runs cases for some minutes, about the same time for each attack; prints what is wrong, then a table.

    There are at most `most` cases of each attack.
    """
    tallies = {name: Tally() for name in names}
    end = time.monotonic() + 60.0 * minutes
    running: dict[Future[tuple[list[str], float]], tuple[str, int]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        while True:
            while len(running) < jobs and time.monotonic() < end:
                busy = [name for name, _ in running.values()]
                left = [name for name in names if tallies[name].cases < most]
                if not left:
                    break
                name = min(left, key=lambda name: (busy.count(name), tallies[name].seconds))
                seed = first + tallies[name].cases
                tallies[name].cases += 1
                running[pool.submit(tried, name, seed)] = name, seed
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name, seed = running.pop(future)
                found, seconds = future.result()
                tallies[name].seconds += seconds
                if found:
                    tallies[name].wrong.append(seed)
                    print(f"{name} {seed}", *(line[:250] for line in found[:LINES]), sep="\n    ", flush=True)
    print(f"\n{'attack':<14}{'tried':>7}{'wrong':>7}{'seconds':>9}  wrong cases")
    for name, tally in tallies.items():
        seeds = " ".join(map(str, sorted(tally.wrong)[:10])) + (" ..." if len(tally.wrong) > 10 else "")
        print(f"{name:<14}{tally.cases:>7}{len(tally.wrong):>7}{tally.seconds:>9.0f}  {seeds}".rstrip())
    return sum(len(tally.wrong) for tally in tallies.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="attack", description=attack.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--cases", type=int, default=math.inf, help="at most so many of each attack")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first case; case i has seed + i")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default=",".join(ATTACKS), help="names of attacks, separated by commas")
    parser.add_argument("--case", type=int, help="run only the case with this seed")
    options = parser.parse_args()
    names = options.only.split(",")
    unknown = set(names) - set(ATTACKS)
    if unknown:
        parser.error(f"--only: expected some of {', '.join(ATTACKS)}, got {', '.join(sorted(unknown))}")
    if options.case is not None:
        sys.exit(bool(one(names, options.case)))
    sys.exit(bool(many(names, options.seed, options.minutes, options.cases, options.jobs)))


if __name__ == "__main__":
    main()
