"""The report of an experiment: claims, figures, and its numbers next to those of the paper."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness import write_csv
from reproduction.claims import Claim, Report

from .comparisons import claims_of_estimators, quartiles
from .readings import claim_of_readings, read_readings, reading_rows, readings_table
from .settings import ADAPTIVE, LABELS, MEAN, OTHER_ESTIMATORS, ErrorQuartiles, JointExperiment, label
from .trials import TrialsBySetting


def write_report(
    experiment: JointExperiment,
    out: Path,
    updates: int,
    found: TrialsBySetting,
    figures: Sequence[tuple[Path, str]],
    claims: Sequence[Claim],
    longer: TrialsBySetting,
) -> Report:
    """Write claims and figures, and the numbers next to those of the paper as a CSV and as tables."""
    setup = f"{updates:,} updates of the weights. {experiment.setup} {_training_note(experiment, out)}".rstrip()
    results = read_readings(experiment, out)
    judged = (*claims, *claims_of_estimators(found), claim_of_readings(experiment, results))
    report = Report(experiment.name, experiment.title, setup, tuple(figures), judged)
    report.write(out)
    lines = [*summary_rows(experiment, found, updates), *summary_rows(experiment, longer, 10 * updates)]
    write_csv(out / f"{experiment.name}-summary.csv", lines)
    text = report.markdown() + "\n## The numbers beside the paper's\n\n" + _markdown_table(experiment, found)
    if longer:
        text += f"\n### After {10 * updates:,} updates\n\n" + _markdown_table(experiment, longer)
    if any(other in found for other in OTHER_ESTIMATORS):
        text += "\n## Other estimators\n\n" + _table_of(experiment, found, ("cga", *ADAPTIVE, *OTHER_ESTIMATORS))
    rows = reading_rows(experiment, results, out)
    write_csv(out / f"{experiment.name}-readings.csv", rows)
    text += "\n## Readings of the settings that the paper leaves open\n\n" + readings_table(rows)
    (out / f"{experiment.name}-claims.md").write_text(text, encoding="utf-8")
    return report


def _training_note(experiment: JointExperiment, out: Path) -> str:
    """State where and for how long it was trained, if the metadata are there."""
    path = out / f"{experiment.name}-meta.json"
    if not path.exists():
        return ""
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    devices = " and ".join(dict.fromkeys(run["device"] for run in runs))
    count, seconds = (sum(run[name] for run in runs) for name in ("trials", "seconds"))
    return f"Trained on {devices}: {count} trainings in {seconds:.0f} s."


def _present(experiment: JointExperiment, found: TrialsBySetting) -> list[str]:
    """Return the settings that were run, in the order of the experiment."""
    named = (name for setting in experiment.known for name in (setting, setting + MEAN))
    return [name for name in named if name in found]


def summary_rows(experiment: JointExperiment, found: TrialsBySetting, updates: int) -> list[dict[str, Any]]:
    """Return one row per setting: the end of its trials, and the numbers of the paper."""
    lines = []
    for setting in _present(experiment, found):
        trials = found[setting]
        here, paper = quartiles(trials.final), experiment.paper.get(setting)
        ends = {name: float(np.median(getattr(trials, name)[:, -1])) for name in ("lam_r", "eps", "ones")}
        lines.append(
            {
                "setting": setting,
                "updates": updates,
                "trials": len(trials.final),
                **{name: f"{value:.4g}" for name, value in here._asdict().items()},
                **{f"paper_{name}": getattr(paper, name, "") for name in ErrorQuartiles._fields},
                **{f"median_{name}": "" if math.isnan(value) else f"{value:.4g}" for name, value in ends.items()},
            }
        )
    return lines


def _markdown_table(experiment: JointExperiment, found: TrialsBySetting) -> str:
    """Return the final test errors in percent, as Markdown; variations are in the table of readings."""
    plain = [setting for setting in _present(experiment, found) if setting.removesuffix(MEAN) in LABELS]
    return _table_of(experiment, found, plain)


def _table_of(experiment: JointExperiment, found: TrialsBySetting, settings: Sequence[str]) -> str:
    """Return the final test errors of those settings that were run, in percent, as Markdown."""
    lines = ["| setting | trials | test error here, % | in the paper |", "|---|---|---|---|"]
    for setting in (setting for setting in settings if setting in found):
        final, paper = found[setting].final, experiment.paper.get(setting)
        given = "" if paper is None else f"{paper.median:.3f}" if paper.low == paper.high else str(paper)
        lines.append(f"| {label(setting)} | {len(final)} | {quartiles(final)} | {given} |")
    return "\n".join(lines) + "\n"
