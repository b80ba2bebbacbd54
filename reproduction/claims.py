"""Claims of the paper, compared with measurements, as Markdown, CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from harness import write_csv


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, the criterion by which it holds, the measurement, and whether it holds.

    `holds` is None if the trials do not decide it.
    """

    claim: str
    criterion: str
    measured: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        return {True: "holds", False: "does not hold", None: "not decided"}[self.holds]


@dataclass(frozen=True)
class Report:
    """The result of a command: figures with captions, and claims."""

    name: str
    title: str
    setup: str
    figures: tuple[tuple[Path, str], ...]
    claims: tuple[Claim, ...]

    def write(self, out: Path) -> list[Path]:
        """Write `<name>-claims.md`, `.csv` and `.json`; return their paths."""
        rows = [{**asdict(claim), "holds": claim.verdict} for claim in self.claims]
        paths = [out / f"{self.name}-claims.{ending}" for ending in ("md", "csv", "json")]
        paths[0].write_text(self.markdown(), encoding="utf-8")
        write_csv(paths[1], rows, [field.name for field in fields(Claim)])
        paths[2].write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return paths

    def markdown(self) -> str:
        lines = [
            f"# {self.title}",
            "",
            self.setup,
            "",
            markdown_row(["the paper's claim", "holds here if", "measured", ""]),
        ]
        lines += ["|---|---|---|---|"]
        lines += [markdown_row([c.claim, c.criterion, c.measured, f"**{c.verdict}**"]) for c in self.claims]
        for path, caption in self.figures:
            lines += ["", f"![{caption}]({path.name})", "", caption]
        return "\n".join(lines) + "\n"


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
