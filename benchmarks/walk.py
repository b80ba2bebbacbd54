"""Count the files and rooms of knobless that one iteration enters.

    python benchmarks/walk.py [--source BEFORE/src --source AFTER/src ...]

`minimize` runs with an executor and a journal. A profiler follows the main thread and the worker threads and counts
function calls (a resumed generator is a call) and changes of file: a call or a return that leads from one file of the
package to another. A room is a folder or a module directly below the package. Only iterations of 5 evaluations count,
after the first few; the figures are the most common ones among them.

With `--source`, each source tree is measured in a process of its own and compared with the first one. Only the public
interface is used, so that any two versions can be compared. The executor runs one evaluation at a time and `submit`
waits for its end, so that the order of events, and with it every figure, is the same in each run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Any

EVALUATIONS = 5  # in one iteration
SKIPPED = 3  # iterations at the start, which import modules and open files
ITERATIONS = 40


class LockStep(ThreadPoolExecutor):
    """A thread pool whose `submit` returns when the evaluation has ended."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(*args, **kwargs)
        wait([future])
        return future


class Walk:
    """A profile function that counts, and the figures since the last `cut`."""

    def __init__(self, package: Path) -> None:
        self.prefix = f"{package}{os.sep}"
        self.place: str | None = None
        self.calls = Counter[str]()
        self.changes = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return") or not (file := self.file(frame)):
            return
        if event == "call":
            self.calls[file] += 1
            self.enter(file)
        else:
            caller = frame.f_back
            while caller and not self.file(caller):
                caller = caller.f_back
            if caller:
                self.enter(self.file(caller))

    def file(self, frame: FrameType) -> str:
        """The path below the package, or an empty string for other code."""
        name = frame.f_code.co_filename
        return name.removeprefix(self.prefix) if name.startswith(self.prefix) else ""

    def enter(self, file: str) -> None:
        self.changes += file != self.place
        self.place = file

    def cut(self) -> tuple[int, tuple[tuple[str, int], ...]]:
        """The changes of file and the calls per file since the last cut."""
        figures = self.changes, tuple(sorted(self.calls.items()))
        self.changes, self.calls = 0, Counter()
        return figures


def measure() -> dict[str, Any]:
    """The figures of the knobless that this process imports."""
    import knobless as kl

    walk = Walk(Path(kl.__file__).parent)
    evaluations = 0
    iterations = []

    def fun(x: Any) -> float:
        nonlocal evaluations
        evaluations += 1
        return -float(x.sum())

    def callback(_: object) -> None:
        nonlocal evaluations
        iterations.append((evaluations, walk.cut()))
        evaluations = 0

    with tempfile.TemporaryDirectory() as folder, LockStep(EVALUATIONS) as executor:
        threading.setprofile(walk)
        sys.setprofile(walk)
        try:
            kl.minimize(
                fun,
                kl.Binary(30),
                budget=EVALUATIONS * ITERATIONS,
                algorithm=kl.pbil_lambda(kl.Binary(30)),
                rng=0,
                batch=EVALUATIONS,
                workers=executor,
                journal=Path(folder, "run.db"),
                callback=callback,
            )
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    found = Counter(figures for n, figures in iterations[SKIPPED:] if n == EVALUATIONS)
    (changes, calls), times = found.most_common(1)[0]
    files = dict(calls)
    return {
        "rooms": sorted({Path(file).parts[0].removesuffix(".py") for file in files}),
        "files": files,
        "changes of file": changes,
        "calls": sum(files.values()),
        "agreeing": f"{times} of {found.total()} iterations",
    }


def measure_at(source: Path) -> dict[str, Any]:
    """The figures of another source tree, from a process that imports it."""
    environment = os.environ | {"PYTHONPATH": str(source.resolve())}
    done = subprocess.run([sys.executable, __file__, "--json"], env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def table(results: Iterable[tuple[str, dict[str, Any]]]) -> None:
    first: dict[str, int] = {}
    for source, result in results:
        print(f"{source}: one iteration of {EVALUATIONS} evaluations ({result['agreeing']} agree)")
        for name in ("rooms", "files", "changes of file", "calls"):
            count = result[name] if isinstance(result[name], int) else len(result[name])
            share = f"{count / first.setdefault(name, count):8.0%}"
            print(f"{name:>16} {count:6d} {share}", flush=True)
        print("  rooms:", ", ".join(result["rooms"]))
        print("  calls per file:", ", ".join(f"{file} {n}" for file, n in result["files"].items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, action="append", default=[], help="a folder that contains knobless/")
    parser.add_argument("--json", action="store_true", help="print the figures of the installed package as JSON")
    options = parser.parse_args()
    if options.json:
        print(json.dumps(measure()))
    elif options.source:
        table((str(source), measure_at(source)) for source in options.source)
    else:
        table([("installed", measure())])


if __name__ == "__main__":
    main()
