"""Readings of the settings that the paper leaves open: what each gives beside the paper's test errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.claims import Claim

from .comparisons import quartiles
from .settings import VARIATIONS, ErrorQuartiles, JointExperiment, label
from .trials import Trials, TrialsBySetting, read_trials

CLOSE = 0.05  # percent: a median this close to the paper's agrees with it
_AS_HERE = "as chosen here"
_FIXED = ("relu", "tanh")


@dataclass(frozen=True)
class PaperReading:
    """One way to read the paper: for each setting whose test error it gives, what was trained."""

    name: str
    updates: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class ReadingResult:
    """The trials of a reading, by the paper's name of the setting."""

    reading: PaperReading
    trials: TrialsBySetting

    @property
    def own(self) -> list[str]:
        """Settings that are not those of the other tables."""
        return [s for s in self.trials if self.reading.settings[s] != s or self.reading.name == _AS_HERE]

    def distances(self, experiment: JointExperiment) -> dict[str, float]:
        """Return how far each median is from the paper's."""
        medians = {setting: quartiles(trials.final).median for setting, trials in self.trials.items()}
        return {s: round(abs(median - experiment.paper[s].median), 4) for s, median in medians.items()}


def readings_of(experiment: JointExperiment, lengths: Sequence[int]) -> list[PaperReading]:
    """Return all readings: each variation of all settings, then those of some settings alone."""
    named = experiment.paper
    varied = {_AS_HERE: {s: s for s in named}, **{words: {s: s + v for s in named} for v, words in VARIATIONS.items()}}
    if all(s in named for s in _FIXED):
        varied[f"{VARIATIONS['-batch-128']} for fixed networks"] = {
            s: f"{s}-batch-128" if s in _FIXED else s for s in named
        }
        del varied[VARIATIONS["-batch-128"]]
    half = {s: "cga-half-step" if s == "cga" else s for s in named}
    varied["ε = 1/(2n) for cGA"] = half
    if experiment.name == "layers":
        varied[f"{VARIATIONS['-chainer']}, ε = 1/(2n) for cGA"] = {s: f"{run}-chainer" for s, run in half.items()}
    return [PaperReading(words, updates, settings) for updates in lengths for words, settings in varied.items()]


def results_of(experiment: JointExperiment, found: Mapping[int, TrialsBySetting]) -> list[ReadingResult]:
    """Return the readings of which at least one setting of their own was trained."""
    results = []
    for reading in readings_of(experiment, sorted(found)):
        here = found[reading.updates]
        trials: dict[str, Trials] = {s: here[run] for s, run in reading.settings.items() if run in here}
        results.append(ReadingResult(reading, trials))
    return [result for result in results if result.own]


def claim_of_readings(experiment: JointExperiment, results: Sequence[ReadingResult]) -> Claim:
    """Check whether some reading brings all medians close to the paper's."""
    claim = "(Some reading of the settings that the paper leaves open gives its test errors.)"
    criterion = f"for one of the readings, all {len(experiment.paper)} medians are within {CLOSE:g} of the paper's"
    whole = [result for result in results if len(result.trials) == len(experiment.paper)]
    if not whole:
        return Claim(claim, criterion, f"not run: {', '.join(map(label, experiment.paper))}", None)
    nearest = min(whole, key=lambda result: max(result.distances(experiment).values()))
    distances = nearest.distances(experiment)
    far = max(distances, key=lambda setting: distances[setting])
    words = (
        f"{len(whole)} readings with all settings; the nearest is “{nearest.reading.name}”, {nearest.reading.updates:,}"
        f" updates: {sum(d <= CLOSE for d in distances.values())} of {len(distances)} medians are within {CLOSE:g},"
        f" {label(far)} is {distances[far]:.3f} away"
    )
    return Claim(claim, criterion, words, bool(distances[far] <= CLOSE))


def read_readings(experiment: JointExperiment, out: Path) -> list[ReadingResult]:
    """Return the results of the CSV of an experiment."""
    return results_of(experiment, read_trials(out / f"{experiment.name}.csv"))


def reading_rows(experiment: JointExperiment, results: Sequence[ReadingResult], out: Path) -> list[dict[str, Any]]:
    """Return one row per reading and setting, with the duration and the commit of its training."""
    path = out / f"{experiment.name}-meta.json"
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []
    rows = []
    for result in results:
        for setting in result.own:
            trials, trained = result.trials[setting], result.reading.settings[setting]
            mine = [run for run in runs if (run["setting"], run["updates"]) == (trained, result.reading.updates)]
            here, paper = quartiles(trials.final), experiment.paper[setting]
            rows.append(
                {
                    "reading": result.reading.name,
                    "updates": result.reading.updates,
                    "setting": trained,
                    "trials": len(trials.final),
                    **{name: f"{value:.4g}" for name, value in here._asdict().items()},
                    "paper": paper.median,
                    "difference": f"{here.median - paper.median:+.3f}",
                    "seconds": round(sum(run["seconds"] for run in mine), 1) if mine else "",
                    "commit": " ".join(dict.fromkeys(str(run.get("commit"))[:7] for run in mine)),
                }
            )
    return rows


def readings_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return these rows as Markdown."""
    lines = [
        "| reading | updates | setting | trials | test error here, % | the paper | difference | seconds | commit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        here = ErrorQuartiles(*(float(row[name]) for name in ErrorQuartiles._fields))
        cells = [row["reading"], f"{row['updates']:,}", label(row["setting"]).split(",")[0], row["trials"], here]
        cells += [f"{row['paper']:.3f}", row["difference"], row["seconds"], row["commit"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"
