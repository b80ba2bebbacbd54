"""Instance files: their lines, and the errors that say which file, which line and what is wrong with it.

Files packed by gzip, xz or bzip2 are unpacked on the way, whether their names say so or their first bytes. Sizes that
a file declares are capped before anything is made of them: a typing error, or a hostile file, must not take the memory.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import math
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, NoReturn

Path = str | os.PathLike[str]
Source = Path | io.BufferedReader


class Packing(NamedTuple):
    """How a file may be packed: the end of its name, its first bytes, and what unpacks it."""

    name: str
    suffix: str
    magic: bytes
    open: Callable[[Any], Any]


PACKINGS = (
    Packing("gzip", ".gz", b"\x1f\x8b", gzip.open),
    Packing("xz", ".xz", b"\xfd7zXZ\x00", lzma.open),
    Packing("bzip2", ".bz2", b"BZh", bz2.open),
)
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)

MOST = 10_000_000  # variables, clauses, edges: far above what a black box can be optimized over


def unpacked_name(name: str) -> str:
    """The name without .gz, .xz or .bz2."""
    for packing in PACKINGS:
        name = name.removesuffix(packing.suffix)
    return name


class Lines:
    """The lines of a file, each split into words; `fail` names the file and the line that was read last.

    Of an open file the rest is read, and it stays open.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.path = str(source.name if isinstance(source, io.BufferedReader) else os.fspath(source))
        self.number = 0

    def __iter__(self) -> Iterator[list[str]]:
        """The words of every line that has any."""
        with self._open() as file:
            first = file.peek(8)
            packing = next((p for p in PACKINGS if self.path.endswith(p.suffix) or first.startswith(p.magic)), None)
            try:
                for line in file if packing is None else packing.open(file):
                    self.number += 1
                    if self.number == 1:
                        line = line.removeprefix(codecs.BOM_UTF8)  # as some editors begin a file
                    # latin-1: any byte may stand in a comment, and no digits but 0 to 9 are read as numbers
                    if words := line.decode("latin-1").split():
                        yield words
            except BROKEN as error:
                self.fail(f"not a whole {packing.name if packing else 'packed'} file: {error}")
            except OSError as error:
                if packing is None or error.errno is not None:
                    raise
                self.fail(f"not a whole {packing.name} file: {error}")  # bzip2 has no error of its own

    def _open(self) -> AbstractContextManager[io.BufferedReader]:
        return nullcontext(self._source) if isinstance(self._source, io.BufferedReader) else open(self._source, "rb")

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
