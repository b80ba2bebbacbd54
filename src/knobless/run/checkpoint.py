"""The state of a shared run in a file beside its journal, so that a call need not replay all of it.

The journal has the digest of this file and the number of the last row that is part of the state. A file that is
missing, or has another digest, is ignored: the state is always that of the journal alone.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from knobless.journal.identity import Identity
from knobless.journal.sqlite import Writer

from . import snapshot
from .run_state import RunState


def restore_checkpoint(writer: Writer, run: RunState) -> int:
    """Bring a run that has not begun to its last checkpoint; return the number of the last row that this covers."""
    noted, path = writer.header.get("checkpoint"), _path(writer)
    if noted is None or _digest(path) != noted.get("sha256"):
        return 0
    row = noted.get("row")
    if type(row) is not int or not 0 < row <= writer.last_row:
        return 0
    try:
        identity, data = snapshot.read_snapshot(path)
    except snapshot.SnapshotError:  # of another version
        return 0
    snapshot.restore(run, identity, data)
    return row


def write_checkpoint(writer: Writer, identity: Identity, run: RunState) -> None:
    """Write a checkpoint of a run to which all rows were replayed."""
    path = _path(writer)
    snapshot.save(path, identity, run)
    writer.put("checkpoint", {"sha256": _digest(path), "row": writer.last_row})


def _path(writer: Writer) -> Path:
    return writer.path.with_name(writer.path.name + ".checkpoint")


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
