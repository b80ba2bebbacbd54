"""Executors and clusters of other libraries, each the real one on this machine, and the page about them.

A library that is not installed is skipped. To run all of them:

    pip install '.[cli,dask,optuna,ray]' pytest hypothesis loky ipyparallel mpi4py mpich dask-jobqueue
    pytest tests/test_clusters.py

and, for Slurm, a node of it on this machine.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import knobless as kl
from knobless.parallel.capacity import n_workers
from knobless.parallel.evaluation import WorkerLostError
from knobless.parallel.pool import pool_of
from test_docs import BLOCK, ROOT

PATIENCE = 300  # seconds after which something that must happen is taken not to; only a guard against a deadlock
PAGE = ROOT / "docs" / "clusters.md"


def installed(*modules):
    return all(importlib.util.find_spec(module) for module in modules)


def needs(*modules):
    return pytest.mark.skipif(not installed(*modules), reason=f"{' or '.join(modules)} is not installed")


# The page.


def slurm():
    """Return whether there is a node that takes jobs."""
    if not shutil.which("sinfo"):
        return False
    nodes = subprocess.run(["sinfo", "--noheader", "--format=%t"], capture_output=True, text=True, timeout=60)
    return nodes.returncode == 0 and "idle" in nodes.stdout


# What a block of commands needs, by a part of its text.
NEEDS = {
    "dask ": lambda: installed("distributed"),
    "on_slurm.py": lambda: installed("dask_jobqueue") and slurm(),
    "on_ray.py": lambda: installed("ray"),
    "on_mpi.py": lambda: installed("mpi4py") and shutil.which("mpiexec"),
    "on_ipyparallel.py": lambda: installed("ipyparallel"),
    "study.py": lambda: installed("optuna"),
    "sbatch": lambda: installed("typer") and slurm(),
}
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.slow
@pytest.mark.parametrize("part", NEEDS)
def test_the_commands_of_the_page(part, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", PATH)
    if not NEEDS[part]():
        pytest.skip("not installed here")
    blocks = [*BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]
    for block in blocks:
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["body"], encoding="utf-8")
    [body] = [block["body"] for block in blocks if block["kind"] == "console" and part in block["body"]]
    commands = "\n".join(line[2:] for line in body.splitlines() if line.startswith("$ "))
    expected = "".join(f"{line}\n" for line in body.splitlines() if not line.startswith("$ "))
    script = f"trap 'kill $(jobs -p) 2> /dev/null' EXIT\n{commands}\n"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == expected, done.stderr + "".join(path.read_text() for path in tmp_path.glob("*log"))


def test_every_block_of_commands_is_run():
    blocks = [block["body"] for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")) if block["kind"] == "console"]
    assert [sum(part in body for part in NEEDS) for body in blocks] == [1] * len(blocks)
    assert len(blocks) == len(NEEDS)


# Executors of libraries.


@contextlib.contextmanager
def loky_executor():
    import loky

    executor = loky.ProcessPoolExecutor(2)
    yield executor
    executor.shutdown(kill_workers=True)


@contextlib.contextmanager
def ipyparallel_executor():
    import ipyparallel

    with ipyparallel.Cluster(n=2, log_level=50) as client:
        client.wait_for_engines(2)
        yield client.executor()


@contextlib.contextmanager
def ray_executor():
    import ray

    from knobless.parallel.ray import RayExecutor

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield RayExecutor()
    ray.shutdown()


EXECUTORS = {"loky": loky_executor, "ipyparallel": ipyparallel_executor, "ray": ray_executor}
LEFT_BEHIND = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


PARAMS = {name: pytest.param(name, marks=[needs(name), LEFT_BEHIND]) for name in EXECUTORS}


@pytest.fixture(scope="module", params=PARAMS.values())
def executor(request):
    with EXECUTORS[request.param]() as executor:
        yield executor


def outcomes(workers, fun, points, evaluation_timeout=None):
    with pool_of(workers, fun, evaluation_timeout) as pool:
        pool.submit(enumerate(points))
        found = {}
        while len(found) < len(points):
            arrived = pool.wait(PATIENCE)
            assert arrived, f"only {sorted(found)} came back"
            found |= {outcome.id: outcome for outcome in arrived}
        assert pool.wait() == []
    return found


@pytest.mark.slow
def test_values_and_failures_come_back(executor):
    def fun(x):
        if x == 3:
            raise KeyError("three")
        return 2.0 * x

    found = outcomes(executor, fun, range(12))
    assert n_workers(executor) == 2
    assert {id: found[id].value for id in found if id != 3} == {id: 2.0 * id for id in range(12) if id != 3}
    assert type(found[3].value) is KeyError
    assert len({outcome.worker for outcome in found.values()} - {f"pid {os.getpid()}"}) in (1, 2)
    assert {outcome.tries for outcome in found.values()} == {1}


@pytest.mark.slow
def test_an_objective_or_a_point_that_does_not_pickle_is_an_error(executor):
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"^fun: expected something that pickles, got .*lambda.*lock"):
        outcomes(executor, lambda x: lock, [1])
    with pytest.raises(TypeError, match=r"^x: expected something that pickles, got .*lock"):
        outcomes(executor, float, [lock])
    assert outcomes(executor, float, [1])[0].value == 1.0


@pytest.mark.slow
def test_a_late_evaluation_has_failed(executor, tmp_path):
    def fun(x):
        while x == 1 and not (tmp_path / "go").exists():
            time.sleep(0.01)
        return x

    if "ipyparallel" in type(executor).__module__:
        pytest.skip("its futures do not show what runs: a late evaluation fails when it returns")
    found = outcomes(executor, fun, range(4), evaluation_timeout=5.0)
    (tmp_path / "go").touch()
    assert type(found[1].value) is TimeoutError
    assert [found[id].value for id in (0, 2, 3)] == [0.0, 2.0, 3.0]


@pytest.mark.slow
@pytest.mark.parametrize("executor", [PARAMS["ray"]], indirect=True)
def test_a_ray_worker_that_is_lost_is_replaced_once(executor, tmp_path):
    def fun(x):
        with open(tmp_path / str(x), "a") as file:
            file.write(f"{os.getpid()}\n")
        if x == 0 or (x == 1 and len((tmp_path / "1").read_text().split()) == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    found = outcomes(executor, fun, range(6))
    assert [found[id].value for id in range(1, 6)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [found[id].tries for id in range(6)] == [2, 2, 1, 1, 1, 1]
    assert type(found[0].value) is WorkerLostError
    assert str(found[0].value).startswith(
        "objective: its worker was lost, the last of 2 times it was tried: WorkerCrashedError: "
    )
    assert len((tmp_path / "0").read_text().split()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("executor", [PARAMS["ray"]], indirect=True)
def test_the_size_of_a_ray_executor_follows_its_options(executor):
    sizes = [type(executor)(options).max_workers for options in (None, {"num_cpus": 0.25}, {"num_gpus": 1})]
    assert sizes == [2, 8, 1]
    assert type(executor)(max_workers=7).max_workers == 7
    with pytest.raises(ValueError, match=r"^max_workers: expected an integer of at least 1, got 0$"):
        type(executor)(max_workers=0)


# A run whose workers end.


class Halfway:
    """An objective that ends its workers once it has been called some times."""

    def __init__(self, end):
        self.end, self.calls = end, 0

    def __call__(self, x):
        self.calls += 1
        if self.calls == 30:
            self.end()
        return float(x.sum())


def test_an_executor_that_is_shut_down_ends_the_run_and_a_journal_has_what_was_evaluated(tmp_path):
    given = {"space": kl.Binary(12), "budget": 100, "batch": 4, "rng": 0, "journal": tmp_path / "run.sqlite"}
    with ThreadPoolExecutor(2) as executor:
        executor.shutdown()
        with pytest.raises(RuntimeError, match=r"^workers: the executor takes no evaluation: .* after shutdown"):
            kl.minimize(sum, workers=executor, **given)
    with ThreadPoolExecutor(2) as executor:
        first = Halfway(lambda: executor.shutdown(wait=False))
        with pytest.raises(RuntimeError, match=r"^workers: the executor takes no evaluation: .* after shutdown"):
            kl.minimize(first, workers=executor, **given)
    second = Halfway(lambda: None)
    result = kl.minimize(second, **given)
    assert result.nfev == first.calls + second.calls == 100
    assert result.failures == 0


def test_an_objective_that_does_not_pickle_leaves_no_run_behind(tmp_path):
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"^fun: expected something that pickles, got "):
        kl.minimize(lambda x: lock, kl.Binary(12), budget=10, workers=2, journal=tmp_path / "run.sqlite")
    assert not [*tmp_path.iterdir()]


def test_a_joblib_parallel_is_no_map():
    class Parallel:
        def __call__(self, iterable):
            return [call() for call in iterable]

    with pytest.raises(
        TypeError, match=r"^workers: expected a callable like map, got .*Parallel object.*, which raised"
    ):
        kl.minimize(sum, kl.Binary(4), budget=10, workers=Parallel())
