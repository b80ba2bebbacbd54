"""Run `knobless solve` on instances with known best values: SATLIB, Biq Mac and G-set.

    python benchmarks/solve_table.py --data FOLDER [--sets satlib gset] [--budget 100000] [--timeout 60] [--seeds 5]
        [--fresh] [--out docs/peers/solve]

FOLDER contains the files and BEST_KNOWN.json, with the best known `value` of each file name, as defined by the format.
A run ends when it reaches that value. Finished runs are added to runs.csv at once, and the same command resumes from
there; `--fresh` starts again, which is needed after a change of the algorithm. At the end, table.csv, with one row per
instance, table.md and meta.json are written.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from harness import Table, commit, machine, write_csv
from knobless.fast.structured import structured_runner
from knobless.problems.instances import SUFFIXES, Format, Instance, load_instance, solve_instance

SETS = ("satlib", "biqmac", "gset")
HEAD = """# Results of `knobless solve` and best known values

At most {limits} per run, {seeds} runs per instance (seeds 0 to {last}), each on one core; a run ends when it reaches
the best known value. For SAT, the gap is the number of unsatisfied clauses, otherwise the distance from the best known
value, in percent of it. An evaluation counts as one, whether it is complete or incremental. Seconds are those of a run
without the start of the command, on a machine with other load: an order of magnitude.
"""


def instances(data: Path, sets: tuple[str, ...]) -> dict[str, tuple[Path, float]]:
    """Return the file and the best known value by name."""
    known = json.loads((data / "BEST_KNOWN.json").read_text(encoding="utf-8"))
    found = {}
    for name in sorted(name for name in known if name.startswith(sets)):
        where = data / name
        where = where if where.exists() else next(data.rglob(where.name))  # those of SATLIB are in folders by size
        found[str(where.relative_to(data))] = where, known[name]["value"]
    return found


def read(path: Path) -> Instance:
    return load_instance(str(path), None if path.suffix in SUFFIXES else Format.MC)  # rudy's files have no suffix


def gap(format: str, value: float, best: float) -> float:
    """Return the unsatisfied clauses, or the percentage; below 0 if better than the best known value."""
    worse = best - value if format == Format.MC else value - best
    return worse if format == Format.CNF else 100.0 * worse / abs(best)


def measure(found: dict[str, tuple[Path, float]], table: Table, budget: int, timeout: float | None, seeds: int) -> None:
    todo = [
        (name, seed) for name in found for seed in range(seeds) if table.get((name, str(budget), str(seed))) is None
    ]
    if todo:
        structured_runner().compiled  # noqa: B018, outside timed runs
    for name, seed in tqdm(todo, unit="run"):
        path, best = found[name]
        instance = read(path)
        answer = solve_instance(instance, budget, seed, best, timeout)
        table.add(
            {"instance": name, "budget": budget, "seed": seed, "format": instance.format, "n": instance.problem.n}
            | {"value": answer.value, "best_known": best, "gap": gap(instance.format, answer.value or 0, best)}
            | {"nfev": answer.result.nfev, "incremental": answer.result.incremental, "flips": answer.result.flips}
            | {"seconds": f"{answer.seconds:.3f}"}
        )


def summed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarize several runs in one row."""
    gaps = [float(run["gap"]) for run in runs]
    return {
        "runs": len(runs),
        "met": sum(each <= 0.0 for each in gaps),
        "gap_least": f"{min(gaps):.3g}",
        "gap_median": f"{statistics.median(gaps):.3g}",
        "gap_largest": f"{max(gaps):.3g}",
        "nfev_median": round(statistics.median(int(run["nfev"]) for run in runs)),
        "seconds_median": f"{statistics.median(float(run['seconds']) for run in runs):.2f}",
    }


def row(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of an instance: the values of the median run and of the best one."""
    runs = sorted(runs, key=lambda run: float(run["gap"]))
    first, middle = runs[0], runs[len(runs) // 2]
    facts = {"instance": name, "format": first["format"], "n": first["n"], "best_known": first["best_known"]}
    return facts | {"value_best": first["value"], "value_median": middle["value"]} | summed(runs)


def markdown(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = [list(columns), *(list(map(str, each)) for each in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def report(runs: list[dict[str, Any]], out: Path, budget: int, timeout: float | None, seeds: int) -> None:
    by_name, by_set = defaultdict(list), defaultdict(list)
    for run in runs:
        by_name[run["instance"]].append(run)
        by_set[str(Path(run["instance"]).parent)].append(run)
    rows = [row(name, each) for name, each in by_name.items()]
    write_csv(out / "table.csv", rows)
    sets = []
    for name, each in by_set.items():
        s, sizes = summed(each), sorted({int(run["n"]) for run in each})
        n = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else sizes[0]
        gaps = " / ".join(s[f"gap_{which}"] for which in ("least", "median", "largest"))
        sets.append(
            (
                name,
                each[0]["format"],
                n,
                f"{s['met']} of {s['runs']}",
                gaps,
                f"{s['nfev_median']:,}",
                s["seconds_median"],
            )
        )
    columns = ("instance", "n", "best known", "best run", "median run", "met", "median gap", "evaluations", "seconds")
    each = [
        (
            *(r[key] for key in ("instance", "n", "best_known", "value_best", "value_median")),
            f"{r['met']} of {r['runs']}",
            *(r[key] for key in ("gap_median", "nfev_median", "seconds_median")),
        )
        for r in rows
    ]
    head = ("set", "format", "n", "runs that met the best known", "gap: minimum / median / maximum")
    head += ("evaluations, median", "seconds, median")
    most = f"{budget:,} evaluations" + (f" and {timeout:g} seconds" if timeout else "")
    text = HEAD.format(limits=most, seeds=seeds, last=seeds - 1)
    text += "\n" + markdown(head, sets) + "\n## Each instance\n\n" + markdown(columns, each)
    (out / "table.md").write_text(text, encoding="utf-8")
    meta = (
        machine()
        | {"commit": commit()}
        | {"budget": budget, "timeout": timeout, "seeds": seeds, "instances": len(rows)}
    )
    (out / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=100_000)
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--sets", nargs="+", default=SETS, help="beginnings of the names of instances")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("docs/peers/solve"))
    options = parser.parse_args()
    if options.fresh:
        (options.out / "runs.csv").unlink(missing_ok=True)
    found = instances(options.data, tuple(options.sets))
    results = ("format", "n", "value", "best_known", "gap", "nfev", "incremental", "flips", "seconds")
    table = Table(options.out / "runs.csv", ("instance", "budget", "seed"), results)
    measure(found, table, options.budget, options.timeout, options.seeds)
    runs = [
        dict(run)
        for name in found
        for seed in range(options.seeds)
        if (run := table.get((name, str(options.budget), str(seed)))) is not None
    ]
    report(runs, options.out, options.budget, options.timeout, options.seeds)
    print((options.out / "table.md").read_text(encoding="utf-8").split("\n## ")[0])


if __name__ == "__main__":
    main()
