"""CSV tables: whole ones, and a `Table` of trials that grows by one row as each trial ends.

Everything is text, as in the file. The rest of a line that an interrupted process was writing is ignored.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

TableKey = tuple[str, ...]
TableRow = dict[str, str]


def read_csv(path: Path) -> list[TableRow]:
    """Read the rows of a table; raise a ValueError that names the line of a row with too few or too many fields."""
    columns, rows = _read(path)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Replace a table as a whole. The columns are those of the first row if not given; a missing field is empty."""
    columns = columns or list(rows[0])
    lines = [_line(columns), *(_line([str(row.get(column, "")) for column in columns]) for row in rows)]
    part = path.with_name(f"{path.name}.part")
    part.write_text("".join(lines), encoding="utf-8")
    os.replace(part, path)


def series(values: Iterable[float]) -> str:
    """Return numbers as one field of a row."""
    return " ".join(f"{value:.4g}" for value in values)


class Table:
    """A CSV file of finished trials: columns that identify a trial, then columns with its results."""

    def __init__(self, path: Path, names: Sequence[str], results: Sequence[str]) -> None:
        self.path = path
        self.names = tuple(names)
        self.columns = (*names, *results)
        self._rows: dict[TableKey, TableRow] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._load()
        else:
            path.write_text(_line(self.columns), encoding="utf-8")

    def _load(self) -> None:
        columns, rows = _read(self.path)
        if columns != self.columns:
            raise ValueError(
                f"{self.path}: expected the columns {', '.join(self.columns)}, got {', '.join(columns) or 'none'};"
                " move the file or use another folder"
            )
        size = len(_whole_lines(self.path))
        if size < self.path.stat().st_size:
            os.truncate(self.path, size)
        for row in rows:
            self._keep(dict(zip(columns, row, strict=True)))

    def _keep(self, row: TableRow) -> None:
        self._rows[tuple(row[name] for name in self.names)] = row

    def add(self, row: Mapping[str, Any]) -> None:
        """Append one trial, in the file as well."""
        text = {column: str(row[column]) for column in self.columns}
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_line(list(text.values())))
        self._keep(text)

    def __contains__(self, key: TableKey) -> bool:
        return key in self._rows

    def get(self, key: TableKey) -> TableRow | None:
        """Return the row of a trial; None if it is not recorded."""
        return self._rows.get(key)

    def rows_of(self, keys: Iterable[TableKey]) -> list[TableRow]:
        """Return the rows of those trials that are recorded."""
        return [self._rows[key] for key in keys if key in self._rows]


def _whole_lines(path: Path) -> bytes:
    """Return the file up to its last end of line."""
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1]


def _read(path: Path) -> tuple[tuple[str, ...], list[list[str]]]:
    """Read the columns and the rows of a table."""
    lines = csv.reader(io.StringIO(_whole_lines(path).decode("utf-8"), newline=""))
    columns = tuple(next(lines, ()))
    rows = []
    for row in lines:
        if len(row) != len(columns):
            raise ValueError(f"{path}, line {lines.line_num}: expected {len(columns)} fields, got {len(row)}: {row}")
        rows.append(row)
    return columns, rows


def _line(values: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()
