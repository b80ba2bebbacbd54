"""DIMACS files: `p cnf`, `p wcnf`, and the format of the MaxSAT Evaluations since 2022.

A file is a stream of words, not of lines: a clause ends at its 0, on whatever line. `sat.py` turns
the clauses into a problem.
"""

from __future__ import annotations

import math
from decimal import Decimal

from .text import MAX_TERMS, MAX_VARIABLES, Lines, TextSource, uncompressed_name

ClauseList = list[tuple[int, ...]]
Formula = tuple[ClauseList, list[float] | None, int | None]

EXACT_FLOAT = 2.0**53  # above it, not every integer is a float


def read_dimacs(source: TextSource, headless: bool = False) -> Formula:
    """Read the clauses, their weights if any (inf for a hard clause), and n if it is declared.

    A file without a p line is in the format of 2022 if its name ends in .wcnf, or if `headless` is
    true.
    """
    lines = Lines(source)
    headless = headless or uncompressed_name(lines.path).endswith(".wcnf")
    parser: _Parser | None = None
    ended = False
    for words in lines:
        if words[0].startswith("c"):
            continue
        if ended:
            if words != ["0"]:
                lines.fail(
                    f"expected nothing but a 0 after the line '%', got {' '.join(words)[:60]!r}"
                )
        elif words[0] == "%":
            ended = True
        elif words[0] == "p":
            if parser is not None:
                lines.fail(
                    "expected one p line, before the first clause, got another"
                )
            parser = _parser_of(lines, words)
        else:
            if parser is None:
                if not headless:
                    lines.fail(
                        "expected 'p cnf VARIABLES CLAUSES' before the first clause, got "
                        f"{words[0][:30]!r}"
                    )
                parser = _Parser(lines, weighted=True)
            for word in words:
                parser.take(word)
    if parser is None:
        lines.fail(
            "expected 'p cnf VARIABLES CLAUSES', got the end of the file"
        )
    return parser.finish()


def _parser_of(lines: Lines, words: list[str]) -> _Parser:
    """Return a parser for what the p line declares."""
    match words[1:]:
        case ["cnf", n, m]:
            weighted, top = False, None
        case ["wcnf", n, m]:
            weighted, top = True, None
        case ["wcnf", n, m, top]:
            weighted = True
        case _:
            expected = (
                "'p cnf VARIABLES CLAUSES' or 'p wcnf VARIABLES CLAUSES TOP'"
            )
            lines.fail(f"expected {expected}, got {' '.join(words)[:60]!r}")
    return _Parser(
        lines,
        weighted,
        n=lines.integer("number of variables", n, 1, MAX_VARIABLES),
        m=lines.integer("number of clauses", m, 0, MAX_TERMS),
        top=top,
    )


class _Parser:
    """Takes one word after the other.

    Without a p line (n and m are None), h marks a hard clause.
    """

    def __init__(
        self,
        lines: Lines,
        weighted: bool,
        n: int | None = None,
        m: int | None = None,
        top: str | None = None,
    ) -> None:
        self.lines = lines
        self.weighted = weighted
        self.n = n
        self.m = m
        self.top = math.inf if top is None else lines.real("top", top)
        self.exact_top = (
            Decimal(top)
            if top is not None and self.top >= EXACT_FLOAT
            else None
        )
        self.max_literal = MAX_VARIABLES if n is None else n
        self.max_clauses = MAX_TERMS if m is None else m
        self.clauses: ClauseList = []
        self.weights: list[float] = []
        self.clause: list[int] = []
        self.literals = 0

    def take(self, word: str) -> None:
        if self.weighted and len(self.weights) == len(self.clauses):
            self.weights.append(self.weight(word))
        elif literal := self.lines.integer(
            "literal", word, -self.max_literal, self.max_literal
        ):
            self.literals += 1
            if self.literals > MAX_TERMS:
                self.lines.fail(
                    f"expected at most {MAX_TERMS} literals in all clauses, got one more"
                )
            self.clause.append(literal)
        elif len(self.clauses) == self.max_clauses:
            self.lines.fail(
                f"expected {self.max_clauses} clauses, got one more"
            )
        else:
            self.clauses.append(tuple(self.clause))
            self.clause = []

    def weight(self, word: str) -> float:
        if word == "h" and self.n is None:
            return math.inf
        weight = self.lines.real("weight", word)
        if weight < 0.0:
            self.lines.fail(
                f"weight: expected a number of at least 0, got {word!r}"
            )
        # Equal as floats; as written, it may be smaller
        if weight == self.top and self.exact_top is not None:
            return weight if Decimal(word) < self.exact_top else math.inf
        return weight if weight < self.top else math.inf

    def finish(self) -> Formula:
        if self.clause or len(self.weights) > len(self.clauses):
            self.lines.fail(
                "expected a 0 at the end of the last clause, got the end of the file"
            )
        if self.m is not None and len(self.clauses) != self.m:
            self.lines.fail(
                f"expected {self.m} clauses, got {len(self.clauses)}"
            )
        if self.n is None and not any(self.clauses):
            self.lines.fail("expected a clause with a literal, got none")
        return self.clauses, self.weights if self.weighted else None, self.n
