"""Lines of instance files, and errors that name the file, the line and what was expected.

Files compressed by gzip, xz or bzip2, recognized by name or by their first bytes, are decompressed
while they are read. Lines and declared sizes are limited, so that a typing error or an untrusted
file cannot take the memory.
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

TextSource = str | os.PathLike[str] | io.BufferedReader


class Compression(NamedTuple):
    """A compression of files: name, suffix, first bytes, and the function that opens a file."""

    name: str
    suffix: str
    magic: bytes
    open: Callable[[Any], Any]


COMPRESSIONS = (
    Compression("gzip", ".gz", b"\x1f\x8b", gzip.open),
    Compression("xz", ".xz", b"\xfd7zXZ\x00", lzma.open),
    Compression("bzip2", ".bz2", b"BZh", bz2.open),
)
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)

# Limits far above what black-box optimization can use, so that a small file cannot take the memory.
MAX_LINE = 2**20  # bytes
MAX_VARIABLES = 100_000
MAX_TERMS = 5_000_000  # clauses, their literals, edges


def uncompressed_name(name: str) -> str:
    """Return the name without .gz, .xz or .bz2."""
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression.suffix)
    return name


def _compression_of(path: str, first: bytes) -> Compression | None:
    return next(
        (
            c
            for c in COMPRESSIONS
            if path.endswith(c.suffix) or first.startswith(c.magic)
        ),
        None,
    )


class Lines:
    """The lines of a file, split into words; `fail` names the file and the line that was read last.

    An open file is read from its current position and stays open.
    """

    def __init__(self, source: TextSource) -> None:
        self._source = source
        self.path = str(
            source.name
            if isinstance(source, io.BufferedReader)
            else os.fspath(source)
        )
        self.number = 0

    def __iter__(self) -> Iterator[list[str]]:
        """Yield the words of each line that is not empty."""
        with self._open() as file:
            compression = _compression_of(self.path, file.peek(8))
            try:
                decompressed = (
                    file if compression is None else compression.open(file)
                )
                while line := decompressed.readline(MAX_LINE + 1):
                    self.number += 1
                    if len(line) > MAX_LINE:
                        self.fail(
                            f"expected a line of at most {MAX_LINE} bytes, got a longer one"
                        )
                    if self.number == 1:
                        # Which some editors add
                        line = line.removeprefix(codecs.BOM_UTF8)
                    # latin-1: a comment may contain any byte, and only 0 to 9 are read as digits
                    if words := line.decode("latin-1").split():
                        yield words
            except BROKEN as error:
                name = "compressed" if compression is None else compression.name
                self.fail(
                    f"expected a complete {name} file, got an error: {error}"
                )
            except OSError as error:
                if compression is None or error.errno is not None:
                    raise
                # bzip2 has no exception class
                self.fail(
                    f"expected a complete {compression.name} file, got an error: {error}"
                )

    def _open(self) -> AbstractContextManager[io.BufferedReader]:
        if isinstance(self._source, io.BufferedReader):
            return nullcontext(self._source)
        return open(self._source, "rb")

    def fail(self, reason: str) -> NoReturn:
        """Raise a ValueError that names the file and the line."""
        raise ValueError(f"{self.path}, line {self.number}: {reason}")

    def integer(self, name: str, word: str, least: int, most: int) -> int:
        """Parse an integer from `least` to `most`."""
        try:
            value = (
                int(word) if "_" not in word and len(word) < 30 else most + 1
            )
        except ValueError:
            value = most + 1
        if not least <= value <= most:
            self.fail(
                f"{name}: expected an integer from {least} to {most}, got {word[:30]!r}"
            )
        return value

    def real(self, name: str, word: str) -> float:
        """Parse a finite number."""
        try:
            value = float(word) if "_" not in word else math.nan
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self.fail(f"{name}: expected a finite number, got {word[:30]!r}")
        return value
