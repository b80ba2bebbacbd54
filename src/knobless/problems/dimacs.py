"""DIMACS files: `p cnf`, `p wcnf` with or without a top, and the MaxSAT Evaluation's of 2022, without a p line.

Files are a stream of words, not of lines: a clause ends at its 0, wherever that is. `sat.py` makes a value of
what is read here.
"""

from __future__ import annotations

import math
from decimal import Decimal

from .text import MOST, Lines, Source, unpacked_name

Clauses = list[tuple[int, ...]]

EXACT = 2.0**53  # beyond it not every whole number is a float


def read(source: Source, headless: bool = False) -> tuple[Clauses, list[float] | None, int | None]:
    """The clauses, their weights if they have any (inf for a hard clause), and n if it is declared.

    A file without a p line is one of 2022 if it is called .wcnf, or if `headless` says that it may be.
    """
    lines = Lines(source)
    headless = headless or unpacked_name(lines.path).endswith(".wcnf")
    reader: Reader | None = None
    ended = False
    for words in lines:
        if words[0].startswith("c"):
            continue
        if ended:
            if words != ["0"]:
                lines.fail(f"expected nothing after the line '%' but a 0, got {' '.join(words)[:60]!r}")
        elif words[0] == "%":
            ended = True
        elif words[0] == "p":
            if reader is not None:
                lines.fail("expected one p line, before the first clause, got another")
            reader = headed(lines, words)
        else:
            if reader is None:
                if not headless:
                    lines.fail(f"expected 'p cnf VARIABLES CLAUSES' before the first clause, got {words[0][:30]!r}")
                reader = Reader(lines, weighted=True)
            for word in words:
                reader.take(word)
    if reader is None:
        lines.fail("expected 'p cnf VARIABLES CLAUSES', got the end of the file")
    return reader.finish()


def headed(lines: Lines, words: list[str]) -> Reader:
    """A reader that knows what the p line declares."""
    match words[1:]:
        case ["cnf", n, m]:
            weighted, top = False, None
        case ["wcnf", n, m]:
            weighted, top = True, None
        case ["wcnf", n, m, top]:
            weighted = True
        case _:
            expected = "'p cnf VARIABLES CLAUSES' or 'p wcnf VARIABLES CLAUSES TOP'"
            lines.fail(f"expected {expected}, got {' '.join(words)[:60]!r}")
    return Reader(
        lines,
        weighted,
        n=lines.integer("number of variables", n, 1, MOST),
        m=lines.integer("number of clauses", m, 0, MOST),
        top=top,
    )


class Reader:
    """Takes one word after the other; without a p line (n and m are None) a clause may be hard by its h."""

    def __init__(
        self, lines: Lines, weighted: bool, n: int | None = None, m: int | None = None, top: str | None = None
    ) -> None:
        self.lines, self.weighted, self.n, self.m = lines, weighted, n, m
        self.top = math.inf if top is None else lines.real("top", top)
        self.exact_top = Decimal(top) if top is not None and self.top >= EXACT else None
        self.largest = MOST if n is None else n
        self.most = MOST if m is None else m
        self.clauses: Clauses = []
        self.weights: list[float] = []
        self.clause: list[int] = []

    def take(self, word: str) -> None:
        if self.weighted and len(self.weights) == len(self.clauses):
            self.weights.append(self.weight(word))
        elif literal := self.lines.integer("literal", word, -self.largest, self.largest):
            self.clause.append(literal)
        elif len(self.clauses) == self.most:
            self.lines.fail(f"expected {self.most} clauses, got one more")
        else:
            self.clauses.append(tuple(self.clause))
            self.clause = []

    def weight(self, word: str) -> float:
        if word == "h" and self.n is None:
            return math.inf
        weight = self.lines.real("weight", word)
        if weight < 0.0:
            self.lines.fail(f"weight: expected a number of at least 0, got {word!r}")
        if weight == self.top and self.exact_top is not None:  # as floats; as they are written, it may be less
            return weight if Decimal(word) < self.exact_top else math.inf
        return weight if weight < self.top else math.inf

    def finish(self) -> tuple[Clauses, list[float] | None, int | None]:
        if self.clause or len(self.weights) > len(self.clauses):
            self.lines.fail("the last clause is not ended by 0")
        if self.m is not None and len(self.clauses) != self.m:
            self.lines.fail(f"expected {self.m} clauses, got {len(self.clauses)}")
        if self.n is None and not any(self.clauses):
            self.lines.fail("expected a clause with a literal, got none")
        return self.clauses, self.weights if self.weighted else None, self.n
