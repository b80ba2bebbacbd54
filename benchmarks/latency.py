"""Seconds until the first result: a short run at its first use, and later.

    python benchmarks/latency.py [--repeats 1] [--other SRC]

`solve` is `knobless solve` on a satisfiable 3-SAT formula of 20 variables and 91 clauses, `objective` a script that
compiles an objective by `fast.objective` and minimizes it with 1,000 evaluations. Each runs in a new process: for the
first time with an empty cache of numba, and later with what the first run has left there. `--other` names the folder
`src` of another version, whose runs alternate with those of this one. Both the elapsed and the processor time are
printed, because the elapsed time depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from knobless.problems import MaxSat

HERE = Path(__file__).parents[1] / "src"
SCRIPT = """
import numpy as np
import knobless as kl
from knobless import fast

@fast.objective
def changes(x):
    return np.abs(x[1:] - x[:-1]).sum()

kl.minimize(changes, kl.Binary(20), budget=1000, rng=1)
"""


def seconds(source: Path, cache: str, command: list[str]) -> tuple[float, float]:
    """Elapsed and processor time of a command with the package of `source`."""
    given = os.environ | {"PYTHONPATH": str(source), "NUMBA_CACHE_DIR": cache}
    used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], env=given, check=False, stdout=subprocess.DEVNULL)
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--other", type=Path, help="folder src of another version")
    options = parser.parse_args()
    sources = [HERE] if options.other is None else [options.other, HERE]
    with tempfile.TemporaryDirectory() as folder:
        formula, script = Path(folder, "formula.cnf"), Path(folder, "script.py")
        clauses = MaxSat.planted(20, 91, 0).clauses
        formula.write_text("p cnf 20 91\n" + "".join(f"{' '.join(map(str, clause))} 0\n" for clause in clauses))
        script.write_text(SCRIPT)
        solve = ["-m", "knobless", "solve", str(formula), "--budget", "100000", "--seed", "1", "--quiet"]
        for repeat in range(options.repeats):
            for name, command in (("solve", solve), ("objective", [str(script)])):
                caches = [tempfile.mkdtemp(dir=folder) for _ in sources]
                for use in ("first use", "later"):
                    for source, cache in zip(sources, caches, strict=True):
                        elapsed, processor = seconds(source, cache, command)
                        which = "this version" if source is HERE else "the other version"
                        times = f"{elapsed:7.2f} s elapsed, {processor:6.2f} s of processor time"
                        print(f"{repeat} {name:>10} {use:>10} {which:>18}: {times}", flush=True)


if __name__ == "__main__":
    main()
