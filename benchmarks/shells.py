"""Shells that share a run through `knobless ask` and `knobless tell`; some are killed at random moments.

    python benchmarks/shells.py [--shells 4] [--kills 1] [--candidates 200] [--n 5] [--seed 0]

Each shell asks for n candidates, computes their values with awk and tells them. One after the other, as many shells as
given are killed, with the commands that they run. In the end a shell evaluates with `--again 0` what has no value. The
script prints what was handed out and recorded. It exits with 1 if a candidate is lost, or was handed out or recorded
twice. The table has the time of one call for a journal of some thousand evaluations, without the start of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import knobless as kl
from knobless.journal import Journal, read
from knobless.run.shared import SharedRun

SPACE = "x = { binary = 20 }\nheat = { integer = [0, 1000] }"
LOOP = """
while lines=$({knobless} ask run.sqlite --n {n} {options}); do
    echo "$lines" >> "asked.$1"
    echo "$lines" | awk '{{
        match($0, /"id": [0-9]+/); id = substr($0, RSTART + 6, RLENGTH - 6)
        match($0, /"heat": [0-9]+/); heat = substr($0, RSTART + 8, RLENGTH - 8)
        print "{{\\"id\\": " id ", \\"value\\": " heat "}}"
    }}' | {knobless} tell run.sqlite || exit 1
done
"""


def start(name: str, n: int, options: str) -> subprocess.Popen[bytes]:
    """Start a shell in a process group of its own."""
    text = LOOP.format(knobless=f"{sys.executable} -m knobless", n=n, options=options)
    return subprocess.Popen(["sh", "-c", text, "sh", name], start_new_session=True, stderr=subprocess.DEVNULL)


def handed_out(name: str) -> list[int]:
    path = Path(f"asked.{name}")
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


def share(shells: int, kills: int, candidates: int, n: int, rng: random.Random) -> bool:
    """Run the shells; return whether nothing was lost and nothing happened twice."""
    Path("space.toml").write_text(SPACE)
    begin = f"--space space.toml --seed 1 --batch {shells * n} --budget {candidates}"
    running = {str(i): start(str(i), n, begin) for i in range(shells)}
    for victim in range(kills):
        time.sleep(rng.uniform(2, 8))
        os.killpg(running[str(victim)].pid, signal.SIGKILL)
    for process in running.values():
        process.wait()
    first = [id for name in running for id in handed_out(name)]
    start("last", n, "--again 0").wait()
    with read("run.sqlite") as record:
        told = [event.id for event in record]
    again = handed_out("last")
    print(f"{shells} shells, {kills} killed: {len(first)} candidates handed out, {len({*first})} of them different")
    print(f"{len(again)} handed out again, {len(told)} recorded, {len({*told})} of them different")
    nfev = kl.Optimizer.from_journal("run.sqlite").nfev
    return len(first) == len({*first}) and len(told) == len({*told}) == nfev == candidates and {*first} <= {*told}


def measure() -> None:
    """Print the milliseconds of one call."""
    print("evaluations  ms of one call (three calls)")
    opt = kl.Optimizer(kl.Binary(100), rng=0, journal="long.sqlite")
    for nfev in (1000, 3000, 5000):
        while opt.nfev < nfev:
            batch = opt.ask()
            opt.tell(batch, [float(candidate.x[::2].sum() - candidate.x[1::3].sum()) for candidate in batch])
        opt.close()
        times = []
        for _ in range(3):
            started = time.perf_counter()
            with SharedRun(Journal("long.sqlite")) as run:
                run.ask(1)
            times.append(f"{1e3 * (time.perf_counter() - started):.0f}")
        print(f"{nfev:11}  {', '.join(times)}")
        opt = kl.Optimizer(kl.Binary(100), rng=0, journal="long.sqlite")
    opt.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shells", type=int, default=4)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--n", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sound = share(given.shells, given.kills, given.candidates, given.n, random.Random(given.seed))
        print("nothing lost, nothing twice" if sound else "FAILED")
        measure()
        os.chdir("/")
    sys.exit(not sound)


if __name__ == "__main__":
    main()
