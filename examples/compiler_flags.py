"""Search the optimization flags of GCC for the smallest object code, or for the shortest run time of a program.

    python examples/compiler_flags.py size lz4hc.c --budget 1000 --workers 2
    python examples/compiler_flags.py time benchmark.c lz4.c --budget 300

With `size`, the objective is the size of the code and constants of the compiled files, which is deterministic. With
`time`, the files are linked into a program that prints the seconds it took; they are noisy. The flags and their
settings at each level are read from `gcc -Q --help=optimizers`, and integer parameters from `gcc -Q --help=params`.
Needs GCC and matplotlib.
"""

import argparse
import json
import re
import subprocess
import tempfile
import time
from functools import cache, partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

import knobless as kl

LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os", "-Oz")

# Flags that change more than the code: the meaning of a program, its binary interface, its protection against errors,
# its tables for debuggers and exceptions, and files that are read or written.
EXCLUDED = re.compile(
    r"math|signed-zeros|nans|precision|inexact|cx-|float|fp-|data-races|trapv|wrapv|finite-loops|volatile|commons"
    r"|pack-struct|short-|struct-return|atomics|interposition|plt|live-patching|gc-roots"
    r"|stack-(protector|clash|check)|harden|unwind-tables|exceptions|var-tracking|statement-frontiers"
    r"|branch-probabilities|profile|opt-info|save-optimization|delayed-branch|section-anchors|grow-size"
)
PARAMETERS = re.compile(
    r"^(early-inlining-insns|inline-(min-speedup|unit-growth)|max-inline-insns-(auto|single|size|small)"
    r"|max-combine-insns|(min|max)-crossjump-.*|max-tail-merge-.*|max-goto-duplication-insns|max-grow-copy-bb-insns)$"
)


def output(*command):
    """Return what a command prints, or raise an error with its messages."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-500:]}")
    return done.stdout


@cache
def flags_at(level):
    """Return whether each flag is on at an optimization level."""
    listed = output("gcc", level, "-Q", "--help=optimizers")
    lines = re.findall(r"^  -f(\S+)\s+\[(enabled|disabled)\]$", listed, re.MULTILINE)
    return {name: state == "enabled" for name, state in lines if not EXCLUDED.search(name)}


@cache
def parameters_at(level):
    """Return the integer parameters at an optimization level, and their bounds, which are open for some."""
    listed = output("gcc", level, "-Q", "--help=params")
    lines = re.findall(r"^  --param=(\S+)=(?:<(\d+),(\d+)>)?\s+(\d+)$", listed, re.MULTILINE)
    return {n: (int(value), int(low or 0), int(high or 10**6)) for n, low, high, value in lines if PARAMETERS.match(n)}


def search_space():
    """Return the space of a level, all flags, and integer parameters up to four times their usual values."""
    parameters = {}
    for name, (_, low, high) in parameters_at("-O2").items():
        usual = max(parameters_at(level)[name][0] for level in LEVELS)
        parameters[name] = kl.Integer(low, min(high, max(4 * usual, 10)))
    return kl.Space(level=kl.Choice(*LEVELS), flags=kl.Binary(len(flags_at("-O2"))), parameters=kl.Space(**parameters))


def point_at(level):
    """Return the point of the search space that stands for an optimization level."""
    return {
        "level": level,
        "flags": np.array(list(flags_at(level).values()), dtype=np.int8),
        "parameters": {name: value for name, (value, _, _) in parameters_at(level).items()},
    }


def options(x):
    """Return the command-line options of a point: its level, and whatever differs from that level."""
    usual = point_at(x["level"])
    flags = zip(flags_at(x["level"]), x["flags"], usual["flags"], strict=True)
    changed = [f"-f{name}" if on else f"-fno-{name}" for name, on, default in flags if on != default]
    parameters = ((n, v) for n, v in x["parameters"].items() if v != usual["parameters"][n])
    return [x["level"], *changed, *(f"--param={name}={value}" for name, value in parameters)]


def size(files, given):
    """Return the bytes of code and constants of the files, compiled with the given options."""
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in files:
            output("gcc", "-w", *given, "-c", path, "-o", f"{folder}/file.o")
            total += int(output("size", f"{folder}/file.o").splitlines()[1].split()[0])
    return total


def build(files, given, folder):
    """Compile the files into a program and return its path."""
    includes = {f"-I{Path(path).resolve().parent}" for path in files}
    output("gcc", "-w", *given, *includes, *files, "-o", f"{folder}/program")
    return f"{folder}/program"


def seconds(files, given):
    """Return the seconds that the program prints, compiled with the given options."""
    with tempfile.TemporaryDirectory() as folder:
        return float(output(build(files, given, folder)))


def size_at(files, x):
    """Return the objective of `size`."""
    return size(files, options(x))


def seconds_at(files, x):
    """Return the objective of `time`."""
    return seconds(files, options(x))


def shortened(files, given, bytes_):
    """Return the options without those that can be left out, one after the other, with no more bytes."""
    for each in given[1:]:
        fewer = [option for option in given if option != each]
        if (now := size(files, fewer)) <= bytes_:
            given, bytes_ = fewer, now
    return given, bytes_


def compare_seconds(files, settings, repeats):
    """Return the seconds of programs with these options, measured in turn, with one row per setting."""
    with tempfile.TemporaryDirectory() as folder:
        programs = []
        for i, given in enumerate(settings):
            (Path(folder) / str(i)).mkdir()
            programs.append(build(files, given, f"{folder}/{i}"))
        return np.array([[float(output(program)) for program in programs] for _ in range(repeats)]).T


def draw(report, path):
    """Draw the smallest size over evaluations, and the sizes at the levels made for size."""
    figure = Figure(figsize=(6, 3.2), dpi=100, layout="constrained")
    ax = figure.subplots()
    ax.step(range(1, len(report["values"]) + 1), np.fmin.accumulate(report["values"]), where="post", color="#1f5fa8")
    for level in ("-Os", "-Oz"):
        ax.axhline(report["bytes"][level], color="#e07b1a", linewidth=1, linestyle="--")
        va = "bottom" if level == "-Os" else "top"
        ax.text(1, report["bytes"][level], f"  {level}", va=va, ha="right", transform=ax.get_yaxis_transform())
    ax.set(xlabel="compilations", ylabel="bytes")
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main(arguments=None):
    """Search, and compare with the levels of GCC."""
    parser = argparse.ArgumentParser(description="Search the optimization flags of GCC.")
    parser.add_argument("goal", choices=["size", "time"])
    parser.add_argument("files", nargs="+", help="C files; for `time`, of a program that prints its seconds")
    parser.add_argument("--budget", type=int, default=1000, help="number of compilations")
    parser.add_argument("--workers", type=int, default=1, help="compilations at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--journal", help="file in which every evaluation is recorded, to resume from")
    parser.add_argument("--repeats", type=int, default=100, help="measurements in the final comparison of `time`")
    parser.add_argument("--output", type=Path, help="JSON file for the results; for `size` also a figure")
    given = parser.parse_args(arguments)

    started = time.perf_counter()
    start, objective = ("-Oz", size_at) if given.goal == "size" else ("-O3", seconds_at)
    result = kl.minimize(
        partial(objective, given.files),
        search_space(),
        budget=given.budget,
        x0=point_at(start),
        rng=given.seed,
        workers=given.workers,
        journal=given.journal,
        deterministic=given.goal == "size",
    )
    found = options(result.x)
    report = {"goal": given.goal, "seed": given.seed, "evaluations": result.nfev, "failures": result.failures}
    if given.goal == "size":
        found, bytes_ = shortened(given.files, found, result.fun)
        report["bytes"] = {level: size(given.files, [level]) for level in LEVELS} | {"found": bytes_}
        for name, each in report["bytes"].items():
            print(f"{name:6} {each:9,} bytes")
    else:
        levels = ("-O2", "-O3")
        measured = compare_seconds(given.files, [*([level] for level in levels), found], given.repeats)
        report["seconds"] = dict(zip((*levels, "found"), measured.tolist(), strict=True))
        for name, each in zip(report["seconds"], measured, strict=True):
            error = each.std(ddof=1) / len(each) ** 0.5
            print(f"{name:6} {each.mean():.5f} ± {error:.5f} s, median {np.median(each):.5f} s")
    print(f"{result.nfev} evaluations in {time.perf_counter() - started:.0f} s, {result.failures} failed")
    print("gcc", *found)
    if given.output:
        report |= {"options": found, "wall_seconds": round(time.perf_counter() - started)}
        report["values"] = [evaluation.value for evaluation in result.evaluations]
        given.output.write_text(json.dumps(report) + "\n", encoding="utf-8")
        if given.goal == "size":
            draw(report, given.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
