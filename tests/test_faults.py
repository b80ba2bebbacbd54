"""Faults of the machine during a run: a full disk, a read-only file system, a clock that is set back."""

import os
import shutil
import subprocess
import time

import pytest

import knobless as kl
from knobless.journal import read

BITS = kl.Binary(60)


def ones(x):
    return float(x.sum())


@pytest.fixture
def disk(tmp_path):
    """Return a file system of 256 KiB and a function that mounts it again with other options."""
    if shutil.which("mount") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, timeout=300)

    if mount("size=256k").returncode:
        pytest.skip("a file system cannot be mounted here")
    yield folder, lambda options: mount(f"remount,{options}").check_returncode()
    subprocess.run(["umount", "--lazy", folder], check=True, timeout=300)


def same(result, budget):
    """Return whether a result is that of a run without faults."""
    whole = kl.minimize(ones, BITS, budget=budget, rng=0)
    return (result.fun, result.nfev, result.nit, result.x.tolist()) == (
        *(whole.fun, whole.nfev, whole.nit),
        whole.x.tolist(),
    )


@pytest.mark.slow
def test_a_full_disk_ends_a_run_that_can_be_resumed(disk):
    folder, mount_again = disk
    calls = []
    with pytest.raises(kl.JournalError, match=r"run\.sqlite: cannot record an evaluation: .*full"):
        kl.minimize(lambda x: calls.append(x) or ones(x), BITS, budget=10**6, journal=folder / "run.sqlite", rng=0)
    with read(folder / "run.sqlite") as record:
        recorded = record.counts().evaluations
    assert 0 <= len(calls) - recorded <= 1
    mount_again("size=8m")
    more = []
    result = kl.minimize(
        lambda x: more.append(x) or ones(x), BITS, budget=recorded + 50, journal=folder / "run.sqlite", rng=0
    )
    assert len(more) == 50
    assert same(result, recorded + 50)


def test_a_snapshot_on_a_full_disk_leaves_the_one_before(disk):
    folder, _ = disk
    opt = kl.Optimizer(BITS, rng=0)
    opt.tell(batch := opt.ask(3), [3.0, 1.0, 2.0])
    opt.save(folder / "snapshot")
    opt.tell(batch := opt.ask(3), [6.0, 5.0, 4.0])
    (folder / "filler").write_bytes(bytes(shutil.disk_usage(folder).free))
    with pytest.raises(kl.SnapshotError, match=r"snapshot: .*space"):
        opt.save(folder / "snapshot")
    assert sorted(each.name for each in folder.iterdir()) == ["filler", "snapshot"]
    assert kl.Optimizer.load(folder / "snapshot", BITS).nfev == 3
    assert len(batch) == 3


def test_a_journal_on_a_read_only_disk_can_be_read_and_is_refused_before_an_evaluation(disk):
    folder, mount_again = disk
    path = folder / "run.sqlite"
    kl.minimize(ones, BITS, budget=20, journal=path, rng=0)
    mount_again("ro")
    with read(path) as record:
        assert record.counts().evaluations == kl.Optimizer.from_journal(record).nfev == 20
    for name in ("run.sqlite", "other.sqlite"):
        with pytest.raises(kl.JournalError, match=rf"{name}: cannot open for writing: Read-only file system"):
            kl.minimize(lambda x: pytest.fail("evaluated"), BITS, budget=40, journal=folder / name, rng=0)
    with pytest.raises(kl.SnapshotError, match=r"snapshot: .*Read-only file system"):
        kl.Optimizer(BITS, rng=0).save(folder / "snapshot")
    mount_again("rw")
    assert same(kl.minimize(ones, BITS, budget=40, journal=path, rng=0), 40)


@pytest.mark.parametrize("workers", [1, map])
def test_a_clock_that_is_set_back_changes_nothing(workers, tmp_path, monkeypatch):
    clock, calls = time.time, []

    def turns_back(points):
        calls.append(1)
        if len(calls) == 5:
            monkeypatch.setattr(time, "time", lambda: clock() - 86_400.0)
        return ones(points)

    given = {"budget": 30, "rng": 0, "batch": 1, "timeout": 3600}
    path = tmp_path / "run.sqlite"
    result = kl.minimize(turns_back, BITS, journal=path, workers=workers, **given)
    assert len(calls) == 30
    assert same(result, 30)
    with read(path) as record:
        assert [event.value for event in record] == [each.value for each in result.evaluations]
        assert all(each.seconds is None or 0 <= each.seconds < 3600 for each in result.evaluations)
    assert same(kl.minimize(ones, BITS, journal=path, **given), 30)
