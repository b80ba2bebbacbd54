"""How the loss depends on the position in an iteration of PBIL-λ, whose W is updated after every network."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness import read_csv, write_csv
from knobless.core.types import Array
from knobless.torch.data import Data

from .runs import chosen
from .settings import EARLY
from .training import Training


def record_positions(
    experiment: str, data: Data, trials: int, updates: int, until: int, device: str, out: Path
) -> None:
    """Train PBIL-λ for the first of its updates, and add one row per trial and stage to `positions.csv`."""
    (setting,) = chosen(experiment, ["pbil-lambda"])
    training = Training(setting, data, range(trials), updates, device)
    if training.search is None:
        raise TypeError("setting: expected an algorithm, got a fixed network")
    losses, ends = [], []
    for update in range(1, until + 1):
        training.run(update)
        losses.append(training.losses[:, 0].clone())
        ends.append(training.search.told == 0)
    bounds = sorted({0, *(min(round(share * updates), until) for share in EARLY), until})
    recorded = position_rows(torch.stack(losses, 1).cpu().numpy(), torch.stack(ends, 1).cpu().numpy(), bounds)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "positions.csv"
    others = [row for row in read_csv(path) if row["experiment"] != experiment] if path.exists() else []
    write_csv(path, [*others, *({"experiment": experiment, **row} for row in recorded)])


def position_rows(losses: Array, ends: Array, bounds: list[int]) -> list[dict[str, Any]]:
    """Return, per trial and stage, the share of pairs of an iteration of which the later one has the lower loss.

    Both arrays have one row per trial and one column per update; `ends` is where an iteration closes; it belongs to
    the stage in which it closes.
    """
    rows = []
    for trial, (values, closed) in enumerate(zip(losses, ends, strict=True)):
        stops = np.flatnonzero(closed) + 1
        iterations = np.split(values, stops)[: len(stops)]
        for begin, end in pairwise(bounds):
            here = [each for each, stop in zip(iterations, stops, strict=True) if begin < stop <= end]
            counts = np.array([_later_lower(each) for each in here]).reshape(-1, 2).sum(axis=0)
            share = f"{counts[0] / counts[1]:.6g}" if counts[1] else ""
            stage = {"begin": begin, "end": end, "iterations": len(here), "pairs": int(counts[1])}
            rows.append({"trial": trial, **stage, "later_lower": share})
    return rows


def _later_lower(losses: Array) -> tuple[float, float]:
    """Return the pairs of which the later one is lower, equal ones by half, and all pairs."""
    earlier, later = np.triu_indices(len(losses), 1)
    less = float((losses[later] < losses[earlier]).sum())
    return less + 0.5 * float((losses[later] == losses[earlier]).sum()), float(len(earlier))
