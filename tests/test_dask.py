"""A real Dask cluster on this machine: a scheduler and worker processes that talk over TCP, some of which die."""

import contextlib
import logging
import os
import signal
import threading
import time
from pathlib import Path
from traceback import format_exception

import dask
import pytest
from dask.distributed import Client, LocalCluster

import knobless as kl
from knobless.parallel import dask as on_dask
from knobless.parallel.capacity import n_workers
from knobless.parallel.evaluation import WorkerLostError
from knobless.parallel.pool import pool_of
from knobless.parallel.sending import Sent

PATIENCE = 300  # seconds after which something that must happen is taken not to; only a guard against a deadlock
ALLOWED = 1  # deaths that Dask forgives a task here; by default three, which takes longer


@contextlib.contextmanager
def cluster_of(n_workers):
    quiet = {"silence_logs": logging.CRITICAL, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": ALLOWED}),
        LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, **quiet) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(n_workers, timeout=PATIENCE)
        yield client


@pytest.fixture(scope="module")
def client():
    with cluster_of(3) as client:
        yield client


@pytest.fixture  # a new one for each test: Dask does not always replace a worker that was killed
def mortal():
    with cluster_of(2) as client:
        yield client


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def lines(path):
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def collect(pool, n):
    found = {}
    while len(found) < n:
        arrived = pool.wait(PATIENCE)
        assert arrived, f"only {sorted(found)} came back"
        found |= {outcome.id: outcome for outcome in arrived}
    return found


def run(workers, fun, points, evaluation_timeout=None):
    with pool_of(workers, fun, evaluation_timeout) as pool:
        for id, x in enumerate(points):
            pool.submit([(id, x)])
        return collect(pool, len(points))


def blocked(x):
    """Notes who runs it, waits for a file, and may then end its process."""
    folder, value = x
    with open(folder / f"{value}", "a") as file:
        file.write(f"{os.getpid()}\n")
    while not (folder / "go").exists():
        time.sleep(0.01)
    if value < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 1000.0])
@pytest.mark.parametrize(
    "by", [lambda client: client, lambda client: client.get_executor()], ids=["client", "executor"]
)
def test_a_client_and_its_executor_are_workers(client, by, limit):
    with pool_of(by(client), lambda x: 2 * x["a"], limit) as pool:
        assert pool.capacity == n_workers(by(client)) == 3
        for id in range(20):
            pool.submit([(id, {"a": id})])
        found = collect(pool, 20)
        assert pool.wait() == []
    assert {id: outcome.value for id, outcome in found.items()} == {id: 2.0 * id for id in range(20)}
    assert {outcome.worker for outcome in found.values()} <= set(client.scheduler_info()["workers"])
    assert all(outcome.started <= outcome.ended for outcome in found.values())
    assert client.status == "running"


@pytest.mark.slow
def test_equal_points_are_evaluated_each_time(client):
    """Left to itself Dask would take them for one."""
    found = run(client.get_executor(), lambda x: int.from_bytes(os.urandom(4)), [1] * 20)
    assert len({outcome.value for outcome in found.values()}) == 20


@pytest.mark.slow
def test_failures_come_back_with_their_tracebacks(client):
    class LocalError(Exception):
        def __init__(self, one, two):
            super().__init__(one)

    def fun(x):
        raise LocalError("of this kind", 2) if x else KeyError("that one")

    found = run(client, fun, [0, 1])
    assert type(found[0].value) is KeyError
    for id, last in enumerate(["KeyError: 'that one'", "LocalError: of this kind"]):
        text = "".join(format_exception(found[id].value))
        assert text.rstrip().endswith(last)
        assert 'raise LocalError("of this kind", 2) if x' in text


@pytest.mark.slow
def test_a_worker_killed_during_an_evaluation_costs_a_retry(mortal, tmp_path):
    with pool_of(mortal.get_executor(), blocked) as pool:
        for id in range(9):
            pool.submit([(id, (tmp_path, id))])
        until(lambda: sum(bool(lines(path)) for path in tmp_path.iterdir()) >= 2)  # created first, written later
        victim = min(path for path in tmp_path.iterdir() if lines(path))
        os.kill(int(lines(victim)[0]), signal.SIGKILL)
        (tmp_path / "go").touch()
        found = collect(pool, 9)
    assert [found[id].value for id in range(9)] == [*range(9)]
    assert len(set(lines(victim))) == 2


@pytest.mark.slow
def test_one_that_kills_its_worker_each_time_has_failed(mortal, tmp_path):
    (tmp_path / "go").touch()
    found = run(mortal.get_executor(), blocked, [(tmp_path, -1), *((tmp_path, value) for value in range(6))])
    assert len(set(lines(tmp_path / "-1"))) == 2 * (ALLOWED + 1)  # after the failures, it was tried again alone
    assert type(found[0].value) is WorkerLostError
    assert found[0].tries == 2
    assert f"on {ALLOWED + 1} different workers, but all those workers died" in str(found[0].value)
    assert [found[id].value for id in range(1, 7)] == [*range(6)]


@pytest.mark.slow
def test_what_is_late_is_given_up_and_what_waits_is_not_late(client, tmp_path):
    """With its workers busy elsewhere for longer than the limit, nothing has begun."""
    (tmp_path / "elsewhere").mkdir()
    elsewhere = [client.submit(blocked, (tmp_path / "elsewhere", id)) for id in range(6)]
    until(lambda: len([*(tmp_path / "elsewhere").iterdir()]) == 3)
    with pool_of(client.get_executor(), blocked, 3.0) as pool:
        pool.submit([(0, (tmp_path, 0))])
        assert pool.wait(4.0) == []
        (tmp_path / "elsewhere" / "go").touch()
        client.gather(elsewhere)
        outcome = collect(pool, 1)[0]
        assert type(outcome.value) is TimeoutError
        assert outcome.ended - outcome.started > 2.99
        (tmp_path / "go").touch()
        pool.submit([(1, (tmp_path, 1))])
        assert collect(pool, 1)[1].value == 1.0
        assert pool.wait() == []


def known(client):
    """Tasks of the scheduler, which are added and removed with a delay."""
    return client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.tasks))


@pytest.mark.slow
def test_discarded_ones_do_not_begin(client, tmp_path):
    before = known(client)
    with pool_of(client, blocked) as pool:
        for id in range(30):
            pool.submit([(id, (tmp_path, id))])
        until(lambda: len(known(client) - before) == 3)
        pool.discard(range(29))
        (tmp_path / "go").touch()
        assert collect(pool, 1)[29].value == 29.0
        assert pool.wait() == []
    assert len([*tmp_path.iterdir()]) <= 5


@pytest.mark.slow
def test_a_cluster_that_goes_away_is_an_error_and_no_failed_evaluation(tmp_path):
    quiet = {"silence_logs": logging.CRITICAL, "dashboard_address": ":0"}
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=True, **quiet)
    with cluster, Client(cluster) as client, pool_of(client, blocked) as pool:
        pool.submit([(0, (tmp_path, 0))])
        until(lambda: (tmp_path / "0").exists())
        client.close()
        with pytest.raises(RuntimeError, match=r"^workers: the executor has ended: CancelledError"):
            pool.wait(PATIENCE)


@pytest.mark.slow
def test_workers_that_come_later_are_used_and_a_cluster_without_any_is_an_error(tmp_path, monkeypatch, caplog):
    quiet = {"silence_logs": logging.CRITICAL, "dashboard_address": ":0"}
    cluster = LocalCluster(n_workers=0, threads_per_worker=1, processes=True, **quiet)
    with cluster, Client(cluster) as client, pool_of(client, blocked) as pool:
        assert pool.capacity == 1  # it waits in the queue of the scheduler
        pool.submit((id, (tmp_path, id)) for id in range(3))
        assert pool.wait(0.0) == []
        assert "has no workers: evaluations wait for them" in caplog.text
        monkeypatch.setattr(on_dask, "PATIENCE", 0.0)
        assert pool.wait(1.5) == []  # it has never had one, and may wait for a machine
        cluster.scale(2)
        until(lambda: pool.wait(0.1) == [] and pool.capacity == 2)
        until(lambda: pool.wait(0.1) == [] and len([*tmp_path.iterdir()]) == 2)
        cluster.scale(0)
        with pytest.raises(RuntimeError, match=r"^workers: the Dask cluster has had no workers for \d+ seconds\. Pend"):
            pool.wait(PATIENCE)


@pytest.mark.slow
def test_a_cluster_that_grows_by_itself_gets_as_many_evaluations_as_it_may_have_workers():
    quiet = {"silence_logs": logging.CRITICAL, "dashboard_address": ":0"}
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, processes=False, **quiet) as cluster,
        Client(cluster) as client,
    ):
        assert n_workers(client) == 1
        cluster.adapt(minimum=0, maximum=5)
        assert n_workers(client) == n_workers(client.get_executor()) == 5


@pytest.mark.slow
def test_an_objective_that_does_not_pickle(client):
    lock = threading.Lock()
    with pool_of(client, lambda x: lock) as pool:
        pool.submit([(0, 0)])
        with pytest.raises(TypeError, match=r"^fun: expected something that pickles, got .*lambda"):
            pool.wait(PATIENCE)


def raises():
    raise OSError("lost on the way")


class Lost:
    """Something that cannot be loaded."""

    def __reduce__(self):
        return raises, ()


@pytest.mark.slow
def test_a_result_that_is_lost_on_its_way_is_an_error(client):
    backend = on_dask.DaskBackend(client.get_executor(), lambda x: Lost(), None)
    assert "lost on the way" in str(backend.start(0, Sent("x", 0)).exception(PATIENCE))


# A run.

SPACE = kl.Space(bits=kl.Binary(12), kind=kl.Choice("a", "b", "c"), size=kl.Integer(1, 30))


class Objective:
    """Halfway there, it waits once to be killed, if `folder` is given."""

    def __init__(self, folder=None):
        self.folder = folder

    def __call__(self, x):
        value = float(x["bits"].sum() + (x["kind"] != "b") + abs(x["size"] - 7) / 10)
        if self.folder and value < 5:
            with contextlib.suppress(FileExistsError), open(self.folder / "victim", "x") as file:
                print(os.getpid(), file=file, flush=True)
                time.sleep(600)
        return value


@pytest.mark.slow
def test_a_run_with_a_killed_worker_gives_the_result_of_a_serial_one(mortal, tmp_path):
    killed = []

    def kill():
        until(lambda: lines(tmp_path / "victim"))
        killed.append(int(lines(tmp_path / "victim")[0]))
        os.kill(killed[0], signal.SIGKILL)

    before = set(mortal.run(os.getpid).values())
    killer = threading.Thread(target=kill)
    killer.start()
    given = {"space": SPACE, "budget": 80, "batch": 6, "rng": 3}
    result = kl.minimize(Objective(tmp_path), workers=mortal, **given)
    killer.join()
    serial = kl.minimize(Objective(), **given)
    assert killed
    assert killed[0] in before
    assert result.failures == 0
    assert look(result) == look(serial)


def look(result):
    """All of a result, for bit-for-bit comparison."""
    facts = (result.fun, result.nfev, result.nit, result.status, result.success, result.failures, result.mode_fun)
    return repr(result.x), repr(result.mode), facts, result.message, [*map(repr, result.history)]
