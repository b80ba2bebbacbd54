"""Comparison in power.py: the score of an algorithm's runs, the best algorithm on a line, and our verdict against it.

Algorithms are compared by ERT, the calls of all runs divided by the number of runs that met the optimum, if any
algorithm ever meets it; otherwise by the median of the best values; on tables of configurations, by the rank of the
best one found. Ties count for all that share them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

NEAR_CALLS, NEAR_VALUES = 2.0, 0.02  # near: at most twice the calls, or the rank; values within 2 %
Runs = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Cell:
    """The runs of an algorithm on a line; `sense` is 1 for maximization, -1 for minimization."""

    rows: Runs
    optimum: float | None
    sense: int

    @cached_property
    def solved(self) -> int:
        return sum(row["end"] == "optimum" for row in self.rows)

    @cached_property
    def score(self) -> float:
        """ERT."""
        return sum(int(row["nfev"]) for row in self.rows) / self.solved if self.solved else math.inf

    @cached_property
    def cost(self) -> float:
        return statistics.median(float(row["best"]) for row in self.rows)

    @property
    def value(self) -> float:
        return (self.optimum or 0.0) - self.sense * self.cost

    @property
    def order(self) -> tuple[float, float]:
        """Sort key, smaller is better. Costs only order algorithms that never met the optimum."""
        return (self.score, 0.0) if self.solved else (math.inf, self.cost)

    def __str__(self) -> str:
        if self.solved:
            return f"{self.score:,.0f}" + (
                "" if self.solved == len(self.rows) else f" ({self.solved}/{len(self.rows)})"
            )
        return f"[{self.value:.7g}]" if self.optimum is None else f"[{self.value:.7g} of {self.optimum:.7g}]"


@dataclass(frozen=True)
class Rank:
    """Ranks of the best configurations found, whose geometric mean counts: of runs, or the means of several tables."""

    ranks: Sequence[float]
    rows: Runs = ()

    @classmethod
    def of(cls, rows: Runs) -> Rank:
        return cls([float(row["rank"]) for row in rows], rows)

    @cached_property
    def score(self) -> float:
        return math.exp(statistics.fmean(map(math.log, self.ranks)))

    @property
    def order(self) -> tuple[float, float]:
        return self.score, 0.0

    def __str__(self) -> str:
        return f"{self.score:.3g}"


class Verdict(NamedTuple):
    """Ours compared with the best of the others: in words, whether it is at least as good, and at least near."""

    text: str
    good: bool
    near: bool


@dataclass(frozen=True)
class Entry:
    """A line of the table; those that are not `counted` are only shown."""

    label: str
    n: int | None
    calls: int
    cells: Mapping[str, Cell | Rank]
    counted: bool = True

    @property
    def title(self) -> str:
        return self.label if self.n is None else f"{self.label}, n = {self.n}"

    @property
    def leaders(self) -> set[str]:
        least = min(cell.order for cell in self.cells.values())
        return {name for name, cell in self.cells.items() if cell.order == least}

    def verdict(self, ours: str, ourselves: Collection[str]) -> Verdict | None:
        """Return None if ours or all others were not run; `ourselves` do not count as others."""
        others = [cell for name, cell in self.cells.items() if name not in ourselves]
        if ours not in self.cells or not others:
            return None
        mine, best = self.cells[ours], min(others, key=lambda cell: cell.order)
        good = mine.order <= best.order
        if math.isfinite(mine.order[0]) and math.isfinite(best.order[0]):
            ratio = mine.order[0] / best.order[0]
            return Verdict(f"{ratio:.2f} x", good, ratio <= NEAR_CALLS)
        if isinstance(mine, Rank) or isinstance(best, Rank) or mine.solved or best.solved:
            return Verdict("only knobless" if good else "not met", good, good)
        if mine.cost == best.cost:
            return Verdict("level", True, True)
        share = abs(mine.value - best.value) / abs(best.value) if best.value else math.inf
        return Verdict(f"value {share:.2%} {'better' if good else 'worse'}", good, good or share <= NEAR_VALUES)


class Standing(NamedTuple):
    """Numbers of lines: all, those where ours is at least as good as every other, those where it is near or better."""

    lines: int
    good: int
    near: int
    lost: tuple[str, ...]  # the others, with their verdict


def standing(entries: Sequence[Entry], ours: str, ourselves: Collection[str]) -> Standing:
    judged = [(entry, v) for entry in entries if entry.counted and (v := entry.verdict(ours, ourselves))]
    lost = tuple(f"{entry.title} ({v.text})" for entry, v in judged if not v.good)
    return Standing(len(judged), sum(v.good for _, v in judged), sum(v.near for _, v in judged), lost)
