"""The settings of the two experiments, and their training runs, which are checkpointed and written to a CSV.

A row has the state of a trial after some updates. The rows of a setting are added when it is finished; until then they
are in its checkpoint, together with the weights.
"""

from __future__ import annotations

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

from harness import read_csv, write_csv
from knobless import __version__
from knobless.core.igo import IGO
from knobless.recipes import cga, pbil_epsilon, pbil_lambda
from knobless.space.variables import Binary
from knobless.torch.data import Data

from .estimators import ESTIMATORS, training_of
from .networks import ActivationNetwork, LayerNetwork
from .training import Setting, curve_marks

CURVE_COLUMNS = ("setting", "updates", "trial", "update", "error", "lam_r", "eps", "ones", "mean_error")
CHECKPOINT = 300.0  # seconds between two of them

LAYERS = (
    Setting("cga", LayerNetwork(), cga, clip=2.0),
    Setting("pbil-lambda", LayerNetwork(), pbil_lambda, clip=2.0),
    Setting("pbil-epsilon", LayerNetwork(), pbil_epsilon, clip=2.0),
)
ACTIVATIONS = (
    Setting("cga", ActivationNetwork(), cga),
    Setting("pbil-lambda", ActivationNetwork(), pbil_lambda),
    Setting("pbil-epsilon", ActivationNetwork(), pbil_epsilon),
    Setting("relu", ActivationNetwork(), mask=(1,) * 3072),
    Setting("tanh", ActivationNetwork(), mask=(0,) * 3072),
)
# Remarks of the paper: ten layers are best; training is less stable without skip connections or clipping; PBIL-λ
# would gain from mini-batches of 128, and lose if W were updated after all λ only.
REMARKS = (
    Setting("ten-layers", LayerNetwork(), mask=(1,) * 9 + (0,) * 22, clip=2.0),
    Setting("ten-plain-layers", ActivationNetwork(units=128, depth=10), mask=(1,) * 1280, clip=2.0),
    Setting("pbil-epsilon-no-skip", LayerNetwork(skip=False), pbil_epsilon, clip=2.0),
    Setting("pbil-epsilon-no-clip", LayerNetwork(), pbil_epsilon),
    Setting("pbil-lambda-batch-128", LayerNetwork(), pbil_lambda, batch=128, clip=2.0),
    Setting("pbil-lambda-patient", LayerNetwork(), pbil_lambda, clip=2.0, patient=True),
)


# What of the gain is search: with random losses θ moves to a vertex as well, and without any it stays at ½.
def controls(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Return the controls of an experiment, given its settings of cGA, PBIL-λ and PBIL-ε in this order."""
    return (
        replace(settings[1], name="pbil-lambda-blind", told="random numbers"),
        replace(settings[2], name="pbil-epsilon-blind", told="random numbers"),
        replace(settings[0], name="stochastic", told="nothing"),
    )


LAYER_CONTROLS, CONTROLS = controls(LAYERS), controls(ACTIVATIONS)
# Settings that the paper does not give: it follows a reference that may have used any of these.
VARIED: Mapping[str, dict[str, Any]] = {
    "-rate-0.03": {"learning_rate": 0.03},
    "-he": {"initial": "he"},
    "-normal-0.1": {"initial": 0.1},
    "-normal-0.15": {"initial": 0.15},
    "-batch-128": {"batch": 128},
    "-chainer": {"step": "chainer"},
}


def other_estimators(setting: Setting) -> list[Setting]:
    """Return the setting with each of the other estimators."""
    return [replace(setting, name=name, algorithm=None, estimator=name) for name in ESTIMATORS]


def half_step(bits: Binary) -> IGO:
    """CGA with the step 1/(2n)."""
    return cga(bits, eps=0.5 / bits.n)


def varied(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings with each of the variations."""
    return [replace(s, name=s.name + suffix, **changes) for suffix, changes in VARIED.items() for s in settings]


EXPERIMENTS: Mapping[str, tuple[Setting, ...]] = {
    "layers": (
        *LAYERS,
        *REMARKS,
        *other_estimators(LAYERS[0]),
        *(s for s in varied(LAYERS) if s.name not in {each.name for each in REMARKS}),
        replace(REMARKS[1], name="ten-plain-layers-he", initial="he"),
        *LAYER_CONTROLS,
        replace(LAYERS[0], name="cga-half-step", algorithm=half_step),
        replace(LAYERS[0], name="cga-half-step-chainer", algorithm=half_step, step="chainer"),
        replace(REMARKS[1], name="ten-plain-layers-chainer", step="chainer"),
        replace(REMARKS[1], name="ten-plain-layers-batch-128", batch=128),
    ),
    "activations": (
        *ACTIVATIONS,
        *CONTROLS,
        *other_estimators(ACTIVATIONS[0]),
        replace(ACTIVATIONS[0], name="cga-half-step", algorithm=half_step),
        *varied(ACTIVATIONS),
    ),
}
MAIN = {"layers": LAYERS, "activations": ACTIVATIONS}


def chosen(experiment: str, names: Sequence[str]) -> list[Setting]:
    """Return the settings of these names, or those of the paper's figure if none are given."""
    if not names:
        return list(MAIN[experiment])
    known = {setting.name: setting for setting in EXPERIMENTS[experiment]}
    for name in names:
        if name not in known:
            raise ValueError(f"algorithms: expected some of {', '.join(known)}, got {name!r}")
    return [known[name] for name in names]


def run_trainings(
    experiment: str,
    settings: Sequence[Setting],
    data: Data,
    trials: int,
    updates: int,
    device: str,
    out: Path,
    log: Callable[[str], object],
) -> None:
    """Train what the CSV lacks; `log` receives lines of progress."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{experiment}.csv"
    for setting in settings:
        there = finished(path, setting.name, updates)
        missing = [trial for trial in range(trials) if trial not in there]
        if missing:
            rows, timing = train_setting(setting, data, missing, updates, device, out, log)
            add_rows(path, rows)
            note(out / f"{experiment}-meta.json", {"setting": setting.name, "trials": len(missing), **timing})
            checkpoint_of(out, setting, updates).unlink(missing_ok=True)


def train_setting(
    setting: Setting,
    data: Data,
    trials: Sequence[int],
    updates: int,
    device: str,
    out: Path,
    log: Callable[[str], object],
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Train all trials of a setting; return rows for the CSV, and the timing."""
    training = training_of(setting, data, trials, updates, device)
    path = checkpoint_of(out, setting, updates)
    rows: list[dict[str, Any]] = []
    if path.exists():
        state = torch.load(path, map_location=training.device, weights_only=True)
        if state["trials"] == list(trials):
            rows = state["rows"]
            training.load(state["training"])
            log(f"{setting.name}: resumes after {training.done:,} updates")
    began = saved = time.perf_counter()
    seconds, counted = 0.0, 0  # without what the first steps take, which are compiled
    for mark in curve_marks(updates):
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
        log(f"{setting.name}: {mark:,} of {updates:,} updates,{pace} test error {error:.2f} %")
        if time.perf_counter() - saved > CHECKPOINT and mark < updates:
            save_checkpoint(path, {"trials": list(trials), "rows": rows, "training": training.state()})
            saved = time.perf_counter()
    timing = {"updates": updates, "ms_per_update": round(1e3 * seconds / max(counted, 1), 4)}
    return rows, {**timing, "seconds": round(time.perf_counter() - began, 1), "device": device_name(training.device)}


def checkpoint_of(out: Path, setting: Setting, updates: int) -> Path:
    """Return the path of the checkpoint of a setting; both experiments have one called cga."""
    return out / f"{type(setting.network).__name__.lower()}-{setting.name}-{updates}.checkpoint"


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    os.replace(part, path)


def finished(path: Path, setting: str, updates: int) -> set[int]:
    """Return the trials whose last row is recorded."""
    if not path.exists():
        return set()
    return {
        int(row["trial"])
        for row in read_csv(path)
        if row["setting"] == setting and row["updates"] == str(updates) == row["update"]
    }


def add_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to the CSV, in place of earlier rows of the same trials; the file is replaced as a whole."""
    new = {(row["setting"], str(row["updates"]), str(row["trial"])) for row in rows}
    there = read_csv(path) if path.exists() else []
    kept = [row for row in there if (row["setting"], row["updates"], row["trial"]) not in new]
    write_csv(path, [*kept, *rows], CURVE_COLUMNS)


def note(path: Path, session: Mapping[str, Any]) -> None:
    """Add a run to the metadata of the CSV."""
    before = json.loads(path.read_text())["runs"] if path.exists() else []
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    versions = {"knobless": __version__, "python": platform.python_version(), "torch": torch.__version__}
    run = {"ended": began, **session, **versions, "numpy": np.__version__, "commit": os.environ.get("KNOBLESS_COMMIT")}
    path.write_text(json.dumps({"runs": [*before, run]}, indent=2) + "\n")


def device_name(device: torch.device) -> str:
    """Return the name of a device, for the metadata."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, TF32"
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
