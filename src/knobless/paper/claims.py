"""Claims of the paper beside what was measured, and how they are written down."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, when it counts as holding here, what was measured, and whether it holds.

    `holds` is None where the trials that were run do not decide it.
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
    """What a command found: figures with a caption each, and claims."""

    name: str
    title: str
    setup: str
    figures: tuple[tuple[Path, str], ...]
    claims: tuple[Claim, ...]

    def write(self, out: Path) -> list[Path]:
        """`<name>-claims.md`, `.csv` and `.json`."""
        rows = [{**asdict(claim), "holds": claim.verdict} for claim in self.claims]
        paths = [out / f"{self.name}-claims.{ending}" for ending in ("md", "csv", "json")]
        paths[0].write_text(self.markdown(), encoding="utf-8")
        with paths[1].open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, ["claim", "criterion", "measured", "holds"], lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
        paths[2].write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return paths

    def markdown(self) -> str:
        lines = [f"# {self.title}", "", self.setup, "", _row(["the paper's claim", "holds here if", "measured", ""])]
        lines += ["|---|---|---|---|"]
        lines += [_row([c.claim, c.criterion, c.measured, f"**{c.verdict}**"]) for c in self.claims]
        for path, caption in self.figures:
            lines += ["", f"![{caption}]({path.name})", "", caption]
        return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
