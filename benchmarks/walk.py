"""Count the files and rooms of knobless that the evaluations of a run enter.

    python benchmarks/walk.py [--source BEFORE/src --source AFTER/src ...]

`minimize` runs twice: PBIL-λ with an executor and a journal, and the default search without either. A profiler follows
the main thread and the worker threads and counts function calls (a resumed generator is a call) and changes of file: a
call or a return that leads from one file of the package to another. A room is a folder or a module directly below the
package. Of the first run, only iterations of 5 evaluations count, after the first few; of the second one, only those of
one evaluation, after the stages in which a model decides. The figures are the most common ones among them.

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

EVALUATIONS = 5  # in one iteration of the run with an executor and a journal
SKIPPED = 3  # iterations at its start, which import modules and open files
ITERATIONS = 40
LATER = 150  # evaluations of the plain run, which are not counted
PLAIN = 100  # those that are


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


def measure() -> dict[str, dict[str, Any]]:
    """The figures of the knobless that this process imports, of both runs."""
    import knobless as kl

    space = kl.Binary(30)
    with tempfile.TemporaryDirectory() as folder, LockStep(EVALUATIONS) as executor:
        given = {"algorithm": kl.pbil_lambda(space), "batch": EVALUATIONS, "workers": executor}
        journal = {"journal": Path(folder, "run.db"), "budget": EVALUATIONS * ITERATIONS}
        recorded = figures(walked({**given, **journal})[SKIPPED:], EVALUATIONS)
    plain = walked({"budget": LATER + PLAIN, "deterministic": True})
    return {
        f"an executor and a journal, {EVALUATIONS} evaluations": recorded,
        "plain, 1 evaluation": figures(plain[LATER:], 1),
    }


def walked(given: dict[str, Any]) -> list[tuple[int, Any]]:
    """For each iteration of a run, the number of its evaluations and the figures of its walk."""
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

    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        kl.minimize(fun, kl.Binary(30), rng=0, callback=callback, **given)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return iterations


def figures(iterations: list[tuple[int, Any]], evaluations: int) -> dict[str, Any]:
    """The most common figures of iterations of so many evaluations."""
    found = Counter(cut for n, cut in iterations if n == evaluations)
    (changes, calls), times = found.most_common(1)[0]
    files = dict(calls)
    return {
        "rooms": sorted({Path(file).parts[0].removesuffix(".py") for file in files}),
        "files": files,
        "changes of file": changes,
        "calls": sum(files.values()),
        "agreeing": f"{times} of {found.total()} iterations",
    }


def measure_at(source: Path) -> dict[str, dict[str, Any]]:
    """The figures of another source tree, from a process that imports it."""
    environment = os.environ | {"PYTHONPATH": str(source.resolve())}
    done = subprocess.run([sys.executable, __file__, "--json"], env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def table(results: Iterable[tuple[str, dict[str, Any]]]) -> None:
    first: dict[tuple[str, str], int] = {}
    for source, runs in results:
        for run, result in runs.items():
            print(f"{source}: {run} ({result['agreeing']} agree)")
            for name in ("rooms", "files", "changes of file", "calls"):
                count = result[name] if isinstance(result[name], int) else len(result[name])
                share = f"{count / first.setdefault((run, name), count):8.0%}"
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
