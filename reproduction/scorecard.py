"""The claims of all reports in the order of the paper, with their verdicts, commands and times, on one page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .claims import markdown_row

# The order of the paper: theory, the mechanism, Figure 1, experiments I and II, the discussion, the
# appendix, and the study that it leaves out.
SECTIONS = {
    "theorem": "Theorem 1",
    "mechanism": "The adaptation of the sample size",
    "hitting-times": "Figure 1: evaluations to the optimum",
    "lambda-dynamics": "The sample size over a run",
    "layers": "Experiment I: layers",
    "activations": "Experiment II: activation functions",
    "noise": "Noise",
    "alpha": "Appendix: the choice of α",
    "max-3-sat": "Omitted from the paper: max-3-SAT",
}
VERDICTS = ("holds", "does not hold", "not decided")
FIGURE_1 = "![Calls to the optimum of OneMax and LeadingOnes](hitting-times.png)"


def write_scorecard(folder: Path) -> Path:
    """Write `scorecard.md` from the claims and times of the reports in a folder.

    Parameters
    ----------
    folder : Path
        The folder with the `<name>-claims.json` and `<name>-meta.json` of the reports; some may be
        missing.

    Returns
    -------
    Path
        The page.
    """
    claims = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name in SECTIONS
        if (path := folder / f"{name}-claims.json").exists()
    }
    lines = [
        "# The paper's claims, in its order",
        "",
        "The criteria are in the tables that the titles link. Claims in parentheses are not in the paper.",
        "Times are those of all sessions of a command, on two cores; of the two experiments, of all",
        "trainings on one NVIDIA H200.",
        "",
        markdown_row(["", *VERDICTS, "command", "seconds"]),
        "|---|---|---|---|---|---|",
    ]
    total = Counter[str]()
    for name, rows in claims.items():
        counts = Counter(row["holds"] for row in rows)
        total.update(counts)
        command = f"`python -m reproduction {name}`"
        times = _seconds(folder / f"{name}-meta.json")
        cells = [f"[{SECTIONS[name]}]({name}-claims.md)", *_counts(counts), command, times]
        lines.append(markdown_row(cells))
    lines.append(markdown_row(["**all**", *(f"**{count}**" for count in _counts(total)), "", ""]))
    for name, rows in claims.items():
        lines += ["", f"## {SECTIONS[name]}", ""]
        if name == "hitting-times" and (folder / "hitting-times.png").exists():
            lines += [FIGURE_1, ""]
        lines += [markdown_row(["the paper", "here", ""]), "|---|---|---|"]
        lines += [markdown_row([row["claim"], row["measured"], f"**{row['holds']}**"]) for row in rows]
    path = folder / "scorecard.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _counts(counts: Mapping[str, int]) -> Sequence[str]:
    return [str(counts[verdict]) for verdict in VERDICTS]


def _seconds(path: Path) -> str:
    """Return the time of all sessions or trainings of a command; an empty text if none was recorded."""
    if not path.exists():
        return ""
    meta: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    sessions = [each["wall_seconds"] for each in meta.get("sessions", ())]
    return f"{sum(sessions) + sum(each['seconds'] for each in meta.get('runs', ())):,.0f}"
