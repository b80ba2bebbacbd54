"""Instance files: their lines, and the errors that say which file, which line and what is wrong with it.

Files ending in .gz are unpacked on the way. Sizes that a file declares are capped before anything is made
of them: a typing error, or a hostile file, must not take the memory.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Iterator
from typing import IO, NoReturn

Path = str | os.PathLike[str]

MOST = 10_000_000  # variables, clauses, edges: far above what a black box can be optimized over


class Lines:
    """The lines of a file, each split into words; `fail` names the file and the line that was read last."""

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        self.number = 0

    def __iter__(self) -> Iterator[list[str]]:
        """The words of every line that has any."""
        with self._open() as file:
            try:
                for line in file:
                    self.number += 1
                    # latin-1: any byte may stand in a comment, and no digits but 0 to 9 are read as numbers
                    if words := line.decode("latin-1").split():
                        yield words
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                self.fail(f"not a whole gzip file: {error}")

    def _open(self) -> IO[bytes]:
        return gzip.open(self.path) if self.path.endswith(".gz") else open(self.path, "rb")  # type: ignore[return-value]

    def fail(self, reason: str) -> NoReturn:
        raise ValueError(f"{self.path}, line {self.number}: {reason}")

    def integer(self, name: str, word: str, least: int, most: int) -> int:
        """`word` as an integer from `least` to `most`."""
        try:
            value = int(word) if "_" not in word and len(word) < 30 else most + 1
        except ValueError:
            value = most + 1
        if not least <= value <= most:
            self.fail(f"{name}: expected an integer from {least} to {most}, got {word[:30]!r}")
        return value

    def real(self, name: str, word: str) -> float:
        """`word` as a finite number."""
        try:
            value = float(word) if "_" not in word else math.nan
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self.fail(f"{name}: expected a finite number, got {word[:30]!r}")
        return value
