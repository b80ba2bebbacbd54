"""The settings of the two experiments, and their runs: checkpointed, taken up again, and written to a CSV.

A row says how a trial stood after some updates. A setting's rows are added when it is through; until then they are
in its checkpoint, beside the weights.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from knobless import __version__
from knobless.recipes import cga, pbil_epsilon, pbil_lambda
from knobless.torch.data import Data

from .networks import Activations, Layers
from .training import Setting, Training, marks

COLUMNS = ("setting", "updates", "trial", "update", "error", "lam_r", "eps", "ones")
CHECKPOINT = 300.0  # seconds between two of them

LAYERS = (
    Setting("cga", Layers(), cga, clip=2.0),
    Setting("pbil-lambda", Layers(), pbil_lambda, clip=2.0),
    Setting("pbil-epsilon", Layers(), pbil_epsilon, clip=2.0),
)
ACTIVATIONS = (
    Setting("cga", Activations(), cga),
    Setting("pbil-lambda", Activations(), pbil_lambda),
    Setting("pbil-epsilon", Activations(), pbil_epsilon),
    Setting("relu", Activations(), mask=(1,) * 3072),
    Setting("tanh", Activations(), mask=(0,) * 3072),
)
# What the paper says in passing: ten layers are best; without skip connections or clipping it is less stable; PBIL-λ
# would gain from mini-batches of 128, and lose if W waited for all λ.
REMARKS = (
    Setting("ten-layers", Layers(), mask=(1,) * 9 + (0,) * 22, clip=2.0),
    Setting("pbil-epsilon-no-skip", Layers(skip=False), pbil_epsilon, clip=2.0),
    Setting("pbil-epsilon-no-clip", Layers(), pbil_epsilon),
    Setting("pbil-lambda-batch-128", Layers(), pbil_lambda, batch=128, clip=2.0),
    Setting("pbil-lambda-patient", Layers(), pbil_lambda, clip=2.0, patient=True),
)


def at_rate(setting: Setting, rate: float) -> Setting:
    """The same with another learning rate, which the paper does not give."""
    return replace(setting, name=f"{setting.name}-rate-{rate}", learning_rate=rate)


EXPERIMENTS: Mapping[str, tuple[Setting, ...]] = {
    "layers": (*LAYERS, *REMARKS, *(at_rate(setting, 0.03) for setting in LAYERS)),
    "activations": (*ACTIVATIONS, *(at_rate(setting, 0.03) for setting in ACTIVATIONS)),
}
MAIN = {"layers": LAYERS, "activations": ACTIVATIONS}


def chosen(experiment: str, names: Sequence[str]) -> list[Setting]:
    """The settings of these names; those of the paper's figure if there are none."""
    if not names:
        return list(MAIN[experiment])
    known = {setting.name: setting for setting in EXPERIMENTS[experiment]}
    for name in names:
        if name not in known:
            raise ValueError(f"algorithms: expected some of {', '.join(known)}, got {name!r}")
    return [known[name] for name in names]


def run(
    experiment: str,
    settings: Sequence[Setting],
    data: Data,
    trials: int,
    updates: int,
    device: str,
    out: Path,
    say: Callable[[str], object],
) -> None:
    """Trains what the CSV does not have yet; `say` gets a line now and then."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{experiment}.csv"
    for setting in settings:
        there = finished(path, setting.name, updates)
        missing = [trial for trial in range(trials) if trial not in there]
        if missing:
            rows, told = carry_out(setting, data, missing, updates, device, out, say)
            append(path, rows)
            note(out / f"{experiment}-meta.json", {"setting": setting.name, "trials": len(missing), **told})
            checkpoint_of(out, setting, updates).unlink(missing_ok=True)


def carry_out(
    setting: Setting,
    data: Data,
    trials: Sequence[int],
    updates: int,
    device: str,
    out: Path,
    say: Callable[[str], object],
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All trials of a setting to the end: rows for the CSV, and how long it took."""
    training = Training(setting, data, trials, updates, device)
    path = checkpoint_of(out, setting, updates)
    rows: list[dict[str, Any]] = []
    if path.exists():
        state = torch.load(path, map_location=training.device, weights_only=True)
        if state["trials"] == list(trials):
            rows = state["rows"]
            training.load(state["training"])
            say(f"{setting.name}: goes on after {training.done:,} updates")
    began = saved = time.perf_counter()
    seconds, counted = 0.0, 0  # without what the first steps take, which are compiled
    for mark in marks(updates):
        if mark <= training.done:
            continue
        start, before = time.perf_counter(), training.done
        training.run(mark)
        training.finish()
        if before >= 100:
            seconds, counted = seconds + time.perf_counter() - start, counted + mark - before
        now = training.records()
        named = {"setting": setting.name, "updates": updates}
        rows += [{**named, "trial": trial, **row} for trial, row in zip(trials, now, strict=True)]
        each = 1e3 * seconds / max(counted, 1)
        left = (updates - mark) * each / 1e3
        pace = f" {each:.3f} ms each, {left:.0f} s left," if counted else ""
        error = median(row["error"] for row in now)
        say(f"{setting.name}: {mark:,} of {updates:,} updates,{pace} test error {error:.2f} %")
        if time.perf_counter() - saved > CHECKPOINT and mark < updates:
            save(path, {"trials": list(trials), "rows": rows, "training": training.state()})
            saved = time.perf_counter()
    told = {"updates": updates, "ms_per_update": round(1e3 * seconds / max(counted, 1), 4)}
    return rows, {**told, "seconds": round(time.perf_counter() - began, 1), "device": device_name(training.device)}


def checkpoint_of(out: Path, setting: Setting, updates: int) -> Path:
    """Where a setting's checkpoint is while it is under way; both experiments have a cGA."""
    return out / f"{type(setting.network).__name__.lower()}-{setting.name}-{updates}.checkpoint"


def save(path: Path, state: dict[str, Any]) -> None:
    """As a whole or not at all."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    os.replace(part, path)


def finished(path: Path, setting: str, updates: int) -> set[int]:
    """Trials that have their last row."""
    if not path.exists():
        return set()
    with path.open(encoding="utf-8", newline="") as file:
        return {
            int(row["trial"])
            for row in csv.DictReader(file)
            if row["setting"] == setting and row["updates"] == str(updates) == row["update"]
        }


def append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """To the CSV, which is replaced as a whole: what was there of these trials, or was cut off, is gone."""
    new = {(row["setting"], str(row["updates"]), str(row["trial"])) for row in rows}
    kept: list[Mapping[str, Any]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            there = list(csv.DictReader(file))
        kept = [row for row in there if None not in row.values() and tuple(list(row.values())[:3]) not in new]
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows([*kept, *rows])
    os.replace(part, path)


def note(path: Path, session: Mapping[str, Any]) -> None:
    """Adds a run to what is known of how the CSV was made."""
    before = json.loads(path.read_text())["runs"] if path.exists() else []
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    versions = {"knobless": __version__, "python": platform.python_version(), "torch": torch.__version__}
    run = {"ended": began, **session, **versions, "numpy": np.__version__, "commit": os.environ.get("KNOBLESS_COMMIT")}
    path.write_text(json.dumps({"runs": [*before, run]}, indent=2) + "\n")


def device_name(device: torch.device) -> str:
    """As a reader of results wants it."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, TF32"
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
