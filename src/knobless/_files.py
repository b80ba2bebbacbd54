"""Files that are replaced as a whole."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_atomic(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file in one step.

    A reader, or a crash, finds the old contents or the new ones, never a part.

    The text goes to a temporary file with a unique name in the same folder, which is synced and
    then renamed.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write: no such folder: {path.parent}")
    part = path.with_name(f"{path.name}.{secrets.token_hex(6)}.part")
    try:
        with part.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    with suppress(OSError):  # not every platform can sync a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
