"""Pools of evaluations: all kinds alike, and what becomes of those that are late, crash, fail or are not wanted."""

import multiprocessing
import operator
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from traceback import format_exception

import numpy as np
import pytest

from knobless.parallel.capacity import n_workers
from knobless.parallel.evaluation import RemoteError, WorkerLostError
from knobless.parallel.maps import UNLIMITED
from knobless.parallel.pool import pool_of
from knobless.parallel.processes import MAX_STARTS

SPAWN = multiprocessing.get_context("spawn")
PATIENCE = 300  # seconds after which something that must happen is taken not to; only a guard against a deadlock


def double(x):
    return 2.0 * x


def nap(x):
    time.sleep(x)
    return x


def collect(pool, n):
    """The next n outcomes by id, as they come."""
    found = {}
    while len(found) < n:
        arrived = pool.wait(PATIENCE)
        assert arrived, f"only {sorted(found)} came back"
        for outcome in arrived:
            assert outcome.id not in found
            found[outcome.id] = outcome
    assert len(found) == n
    return found


def values(pool, n):
    return {id: outcome.value for id, outcome in collect(pool, n).items()}


def run(workers, fun, points, evaluation_timeout=None):
    with pool_of(workers, fun, evaluation_timeout) as pool:
        for id, x in enumerate(points):
            pool.submit([(id, x)])
        return collect(pool, len(points))


def until(condition):
    """Waits for what must become true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"  # a zombie is not alive either


def children():
    return {process.pid for process in multiprocessing.active_children()}


def log(path, text):
    """One line more, in one write."""
    with open(path, "a") as file:
        file.write(f"{text}\n")


def lines(path):
    return Path(path).read_text().splitlines() if Path(path).exists() else []


# All kinds alike.


def backwards(fun, items):
    return [fun(item) for item in reversed(list(items))]


@contextmanager
def kinds(kind):
    """What a user may pass as `workers`."""
    match kind:
        case "threads":
            with ThreadPoolExecutor(3) as executor:
                yield executor
        case "threads' map":
            with ThreadPoolExecutor(3) as executor:
                yield executor.map
        case "executor of processes":
            with ProcessPoolExecutor(2, mp_context=SPAWN) as executor:
                yield executor
        case "imap_unordered":
            with SPAWN.Pool(2) as pool:
                yield pool.imap_unordered
        case "map":
            yield map
        case "backwards":
            yield backwards
        case _:
            yield kind


SLOW_KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("executor of processes", "imap_unordered")]
KINDS = [
    1,
    pytest.param(3, marks=pytest.mark.slow),
    np.int64(2),
    "map",
    "backwards",
    "threads",
    "threads' map",
    *SLOW_KINDS,
]

SIZES = {1: 1, 3: 3, 2: 2, "threads": 3, "threads' map": 3, "executor of processes": 2, "imap_unordered": 2}


@pytest.mark.parametrize("limit", [None, pytest.param(1000.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_point_gets_its_value_whatever_the_order(kind, limit):
    before = time.time()
    with kinds(kind) as workers, pool_of(workers, double, limit) as pool:
        assert pool.capacity == {1: 1, 3: 3, 2: 2, "threads": 3, "executor of processes": 2}.get(kind, UNLIMITED)
        assert n_workers(workers) == SIZES.get(kind)
        assert pool.wait() == []  # nothing is out
        for id in (10, 11, 12):
            pool.submit([(id, id)])
        first = {outcome.id: outcome for outcome in pool.wait(PATIENCE)}
        for id in range(20, 30):
            pool.submit([(id, id)])
        found = first | collect(pool, 13 - len(first))
        assert pool.wait() == []
    assert {id: outcome.value for id, outcome in found.items()} == {id: 2.0 * id for id in (10, 11, 12, *range(20, 30))}
    for outcome in found.values():
        assert type(outcome.value) is float
        assert before <= outcome.started <= outcome.ended <= time.time()
        assert outcome.worker.startswith("pid ")


@pytest.mark.slow
def test_where_it_ran():
    def at(workers, limit=None):
        return run(workers, double, [1], limit)[0].worker

    here = f"pid {os.getpid()}@"
    assert at(map).startswith(here)
    assert " " not in at(map).removeprefix("pid ")
    assert not at(2).startswith(here)
    assert not at(1).startswith(here)
    with ThreadPoolExecutor(1, thread_name_prefix="crew") as executor:
        assert at(executor).startswith(here)
        assert at(executor).endswith(" crew_0")


def meet(x):
    """Returns when as many as `n` evaluations are under way."""
    path, n = x
    log(path, os.getpid())
    until(lambda: len(lines(path)) >= n)
    return len(set(lines(path)))


@pytest.mark.slow
def test_as_many_run_at_once_as_there_are_workers(tmp_path):
    found = run(3, meet, [(tmp_path / "here", 3)] * 3)
    assert [found[id].value for id in range(3)] == [3.0, 3.0, 3.0]


def test_no_more_processes_than_there_is_work_for():
    before = children()
    with pool_of(4, double) as pool:
        assert children() == before
        for id in range(4):
            pool.submit([(id, id)])
            collect(pool, 1)
            assert len(children() - before) == 1


@pytest.mark.parametrize("kind", [2, "threads"])
def test_waiting_ends_with_the_timeout_and_loses_nothing(kind, tmp_path):
    with kinds(kind) as workers, pool_of(workers, blocked) as pool:
        pool.submit([(0, (tmp_path, 5))])
        assert pool.wait(0.0) == pool.wait(0.01) == []
        (tmp_path / "go").touch()
        assert values(pool, 1) == {0: 5.0}


# What is not wanted any more.


def blocked(x):
    """Notes that it has begun, and waits for a file."""
    folder, name = x
    log(folder / "begun", name)
    until((folder / "go").exists)
    return name


@pytest.mark.slow
@pytest.mark.parametrize("kind", [1, 2, "threads", SLOW_KINDS[0], "map"], ids=str)
def test_discarded_ones_do_not_begin_and_those_that_have_are_dropped(kind, tmp_path):
    with kinds(kind) as workers, pool_of(workers, blocked) as pool:
        for id in range(12):
            pool.submit([(id, (tmp_path, id))])
        if kind != "map":  # it begins when it is waited for
            assert pool.wait(0.0) == []
            until(lambda: pool.wait(0.0) == [] and len(lines(tmp_path / "begun")) == pool.capacity)
        pool.discard(range(11))
        (tmp_path / "go").touch()
        assert values(pool, 1) == {11: 11}
        assert pool.wait() == []
        assert len(lines(tmp_path / "begun")) <= (1 if kind == "map" else pool.capacity + 1)
        pool.submit([(12, (tmp_path, 12))])
        pool.discard([12, 99])
        assert pool.wait() == []
        pool.submit([(13, (tmp_path, 13))])
        assert values(pool, 1) == {13: 13}


@pytest.mark.parametrize("kind", ["map", "backwards"])
def test_a_look_begins_nothing(kind):
    calls = []
    with kinds(kind) as workers, pool_of(workers, lambda x: calls.append(x) or 0.0) as pool:
        for id in range(3):
            pool.submit([(id, id)])
        assert pool.wait(0.0) == []
        assert calls == []
        assert len(pool.wait()) == len(calls) == (3 if kind == "backwards" else 1)  # what is there comes at once
        assert pool.wait(0.0) == []


def test_of_a_map_under_way_some_may_be_discarded():
    with pool_of(map, double) as pool:
        for id in range(5):
            pool.submit([(id, id)])
        assert values(pool, 1) == {0: 0.0}
        pool.discard([1, 2, 4])
        assert values(pool, 1) == {3: 6.0}
        pool.submit([(5, 5)])
        assert values(pool, 1) == {5: 10.0}


def test_executors_are_left_open():
    with ThreadPoolExecutor(2) as executor:
        run(executor, double, range(4))
        run(executor, double, range(4))
        assert executor.submit(double, 4).result() == 8.0


# Failures.


class NeedsTwoError(Exception):
    """It pickles, and cannot be read again."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class HoldsLockError(Exception):
    """It does not pickle."""

    def __init__(self):
        super().__init__("locked in")
        self.lock = threading.Lock()


def troubled(x):
    match x:
        case "raises":
            raise KeyError("no such thing")
        case "needs two":
            raise NeedsTwoError(1, 2)
        case "holds a lock":
            raise HoldsLockError
        case "stops":
            raise StopIteration
        case "exits":
            sys.exit(3)
        case "nothing":
            return None
        case "lock":
            return threading.Lock()
        case "array":
            return np.zeros(2)
        case "nan":
            return np.float32("nan")
    return np.array(4)


@pytest.mark.parametrize("kind", [1, 2, "threads", *SLOW_KINDS], ids=str)
def test_failures_come_back_with_their_tracebacks(kind):
    cases = {
        "raises": (KeyError, "KeyError: 'no such thing'", 'raise KeyError("no such thing")'),
        "needs two": (NeedsTwoError, "NeedsTwoError: 1 and 2", "raise NeedsTwoError(1, 2)"),
        "holds a lock": (HoldsLockError, "HoldsLockError: locked in", "raise HoldsLockError"),
        "stops": (RuntimeError, "RuntimeError: objective: raised StopIteration()", "raise StopIteration"),
        "exits": (RuntimeError, "RuntimeError: objective: raised SystemExit(3)", "sys.exit(3)"),
        "nothing": (
            TypeError,
            "TypeError: objective: expected one number, got None of type NoneType; is a return statement missing?",
            "",
        ),
        "lock": (TypeError, "of type lock", ""),
        "array": (TypeError, "TypeError: objective: expected one number, got an array of shape (2,)", ""),
    }
    with kinds(kind) as workers:
        found = [outcome.value for _, outcome in sorted(run(workers, troubled, [*cases, "nan", "four"]).items())]
    assert np.isnan(found[-2])
    assert found[-1] == 4.0
    travels = kind != "threads"
    for value, (name, (error, last, line)) in zip(found[:-2], cases.items(), strict=True):
        assert type(value) is (RemoteError if travels and name in ("needs two", "holds a lock") else error)
        text = "".join(format_exception(value))
        assert text.rstrip().endswith(last)
        assert line in text


class PretendsError(Exception):
    """It unpickles as something else than an exception."""

    def __init__(self, *pickled):
        self.pickled = pickled

    def __reduce__(self):
        return self.pickled


class HangsError(Exception):
    """Its state cannot be restored in time."""

    def __setstate__(self, state):
        time.sleep(600)


def deceptive(x):
    match x:
        case "number":
            raise PretendsError(float, (7.0,))
        case "class with __float__":
            raise PretendsError(np.float64, (7.0,))
        case "call":
            raise PretendsError(time.sleep, (600,))
        case "argument":
            raise ValueError(PretendsError(time.sleep, (600,)))
    error = HangsError()
    error.state = 1
    raise error


@pytest.mark.slow
@pytest.mark.parametrize("kind", [2, "executor of processes"], ids=str)
def test_unpickling_an_exception_runs_no_other_code(kind):
    cases = ["number", "class with __float__", "call", "argument", "state"]
    with kinds(kind) as workers:
        found = run(workers, deceptive, cases)
    for id, _ in enumerate(cases):
        assert type(found[id].value) is RemoteError
        assert "Error" in str(found[id].value).splitlines()[-1]


def forks(x):
    """A child process returns, raises or exits as if it were its parent."""
    if os.fork() == 0:
        if x % 3 == 0:
            raise RuntimeError("in the child")
        if x % 3 == 1:
            sys.exit(0)
        return -1.0
    time.sleep(0.05)  # the child comes first
    return float(x)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", [1, 2, "map"], ids=str)
def test_a_forked_child_sends_no_reply(kind):
    with kinds(kind) as workers:
        found = run(workers, forks, range(9))
    assert {id: outcome.value for id, outcome in found.items()} == {id: float(id) for id in range(9)}


def test_a_clock_that_is_set_back_does_not_shorten_an_evaluation(monkeypatch):
    wall = iter(range(1000, 0, -1))
    monkeypatch.setattr(time, "time", lambda: float(next(wall)))
    for outcome in run(map, nap, [0.01, 0.02]).values():
        assert outcome.ended - outcome.started >= 0.01


def test_an_exception_whose_class_is_unknown_here(tmp_path, monkeypatch):
    """The far end loads another version of the module than this one."""
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "versions.py"
    module.write_text("def fun(x):\n    pass\n")
    from versions import fun

    module.write_text("class New(Exception):\n    pass\n\n\ndef fun(x):\n    raise New('of late')\n")
    error = run(2, fun, [0])[0].value
    assert type(error) is RemoteError
    assert str(error).endswith("versions.New: of late")


# Processes of our own: late, crashed.


@pytest.mark.slow
def test_a_late_one_is_killed_and_replaced():
    found = run(2, nap, [0.0, 600.0, 0.0, 0.0, 600.0, 0.0], evaluation_timeout=3.0)
    assert [found[id].value for id in (0, 2, 3, 5)] == [0.0] * 4
    for id in (1, 4):
        assert type(found[id].value) is TimeoutError
        assert str(found[id].value) == "objective: took longer than evaluation_timeout=3 seconds"
        assert found[id].ended - found[id].started > 2.99
        assert not alive(found[id].worker.split()[1].split("@")[0])


@pytest.mark.slow
def test_the_time_to_start_a_process_is_not_the_evaluations():
    """Loading takes longer than the limit, the evaluation does not."""
    assert run(1, SlowToLoad(), [1, 2], evaluation_timeout=2.0)[0].value == 1.0


class SlowToLoad:
    def __setstate__(self, state):
        time.sleep(2.5)

    def __getstate__(self):
        return 1

    def __call__(self, x):
        return x


def with_help(x):
    """Starts another program, as many objectives do, and waits for it."""
    path, seconds = x
    helper = subprocess.Popen(["sleep", str(seconds)])
    log(path, helper.pid)
    return helper.wait()


@pytest.mark.slow
def test_what_a_late_one_has_started_ends_too(tmp_path):
    found = run(1, with_help, [(tmp_path / "pids", 600), (tmp_path / "pids", 0)], evaluation_timeout=3.0)
    assert type(found[0].value) is TimeoutError
    assert found[1].value == 0.0
    until(lambda: not any(map(alive, lines(tmp_path / "pids"))))


def crash(x):
    """Ends its process in some way, the first `times` times."""
    path, times, way = x
    log(path, os.getpid())
    if len(lines(path)) <= times:
        if way == "fork" and os.fork() == 0:
            time.sleep(600)  # holds on to all that was open
        if way == "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        os._exit(7)
    return 5


@pytest.mark.slow
@pytest.mark.parametrize(("way", "how"), [("signal", "was ended by signal 11, "), ("exit", "left with exit code 7")])
def test_a_crash_is_tried_again_and_harms_no_other(way, how, tmp_path):
    points = [(tmp_path / str(id), times, way) for id, times in enumerate([0, 1, 2, 3, 0])]
    with pool_of(2, crash, lost_retries=2) as pool:
        pool.submit(enumerate(points))
        found = collect(pool, 5)
    assert [found[id].value for id in (0, 1, 2, 4)] == [5.0] * 4
    assert [len(lines(path)) for path, *_ in points] == [found[id].tries for id in range(5)] == [1, 2, 3, 3, 1]
    assert type(found[3].value) is WorkerLostError
    assert str(found[3].value).startswith(f"objective: its process {how}")
    assert str(found[3].value).endswith(", the last of 3 times it was tried")
    assert found[3].worker.startswith(f"pid {lines(points[3][0])[-1]}@")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_crash_is_noticed_though_its_pipe_is_held_open(tmp_path):
    assert run(1, crash, [(tmp_path / "pids", 1, "fork")], evaluation_timeout=500.0)[0].value == 5.0


def crash_later(x):
    blocked(x)
    os._exit(7)


@pytest.mark.slow
def test_a_discarded_crash_is_not_tried_again(tmp_path):
    with pool_of(1, crash_later, 100.0) as pool:
        pool.submit([(0, (tmp_path, 0))])
        until(lambda: pool.wait(0.0) == [] and lines(tmp_path / "begun"))
        pool.discard([0])
        (tmp_path / "go").touch()
        pool.submit([(1, (tmp_path, 1))])
        assert type(values(pool, 1)[1]) is WorkerLostError
    assert lines(tmp_path / "begun") == ["0", "1", "1"]


@pytest.mark.slow
def test_processes_that_no_longer_start_end_the_run(tmp_path, monkeypatch):
    """The first process works; then the module of the function ends every process that imports it."""
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "fragile.py"
    module.write_text("import os\n\n\ndef fun(x):\n    return os._exit(4) if x else 3\n")
    from fragile import fun

    with pool_of(1, fun, 100.0) as pool:
        pool.submit([(0, 0)])
        assert values(pool, 1) == {0: 3.0}
        module.write_text(f"import os\nos.write(os.open({str(tmp_path / 'log')!r}, 1089), b'x\\n')\nos._exit(9)\n")
        pool.submit([(1, 1)])
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"^workers: a process left with exit code 9 before it could eval"):
                pool.wait()
    assert len(lines(tmp_path / "log")) == MAX_STARTS


@pytest.mark.slow
def test_an_evaluation_may_have_processes_of_its_own():
    assert run(2, in_a_pool, [3])[0].value == 6.0


def in_a_pool(x):
    with SPAWN.Pool(1) as pool:
        return pool.apply(double, [x])


# Nothing is left behind.


@pytest.mark.slow
def test_no_process_outlives_the_pool(tmp_path):
    before = children()
    with pool_of(3, blocked) as pool:
        pool.submit([(0, (tmp_path, "busy"))])
        until(lambda: pool.wait(0.0) == [] and lines(tmp_path / "begun"))
        pool.submit([(1, (tmp_path, "waits or starts"))])
        pids = children() - before
        assert pids
    assert children() == before
    assert not any(map(alive, pids))

    with pytest.raises(KeyboardInterrupt), pool_of(2, double) as pool:  # noqa: PT012
        pool.submit([(0, 1)])
        collect(pool, 1)  # idle now
        raise KeyboardInterrupt
    assert children() == before


class TidiesUp:
    """Leaves a word when its process ends in order."""

    def __init__(self, path):
        self.path = path

    def __call__(self, x):
        from multiprocessing.util import Finalize

        Finalize(None, log, (self.path, "tidy"), exitpriority=1)
        return x


def test_idle_processes_may_tidy_up(tmp_path):
    run(1, TidiesUp(tmp_path / "log"), [1], evaluation_timeout=100.0)
    assert lines(tmp_path / "log") == ["tidy"]


SCRIPT = """
    import os, subprocess, sys, time
    from pathlib import Path
    from knobless.parallel.pool import pool_of

    def fun(x):
        helper = subprocess.Popen(["sleep", "600"])
        with open("pids", "a") as file:
            file.write(f"{os.getpid()} {helper.pid}\\n")
        time.sleep(600)

    if __name__ == "__main__":
        with pool_of(2, fun) as pool:
            for id in range(4):
                pool.submit([(id, id)])
            print("submitted", flush=True)
            pool.wait(None)
    """


@contextmanager
def script(text, folder):
    """A Python script in a process group of its own, as in a terminal."""
    (folder / "script.py").write_text(textwrap.dedent(text))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "script.py"], cwd=folder, start_new_session=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_processes_end_when_their_parent_is_killed(tmp_path):
    with script(SCRIPT, tmp_path) as parent:
        until(lambda: len(lines(tmp_path / "pids")) == 2)
        pids = [pid for line in lines(tmp_path / "pids") for pid in line.split()]
        assert all(map(alive, pids))
        parent.kill()
        until(lambda: not any(map(alive, pids)))


@pytest.mark.slow
@pytest.mark.parametrize("starting", [True, False])
def test_an_interrupt_ends_all_and_workers_are_silent(starting, tmp_path):
    with script(SCRIPT, tmp_path) as parent:
        parent.stdout.readline()
        if not starting:
            until(lambda: len(lines(tmp_path / "pids")) == 2)
        os.killpg(parent.pid, signal.SIGINT)
        _, said = parent.communicate(timeout=PATIENCE)
    assert said.count("Traceback") == said.count("KeyboardInterrupt") == 1
    assert "Process" not in said
    until(lambda: not any(alive(pid) for line in lines(tmp_path / "pids") for pid in line.split()))


@pytest.mark.slow
def test_interrupts_do_not_reach_processes_that_are_just_starting(tmp_path):
    text = """
        import signal
        from knobless.parallel.pool import pool_of

        if __name__ == "__main__":
            signal.signal(signal.SIGINT, lambda *_: None)
            with pool_of(1, abs, 100.0) as pool:
                pool.submit([(0, -3)])
                print("submitted", flush=True)
                print(pool.wait(None)[0].value, flush=True)
        """
    with script(text, tmp_path) as parent:
        parent.stdout.readline()
        while parent.poll() is None:
            os.killpg(parent.pid, signal.SIGINT)
            time.sleep(0.01)
        assert parent.communicate() == ("3.0\n", "")


@pytest.mark.slow
def test_a_daemon_thread_does_not_keep_the_program_from_ending(tmp_path):
    text = """
        import threading
        from knobless.parallel.pool import pool_of

        def work():
            with pool_of(2, abs, 100.0) as pool:
                pool.submit([(0, -1)])
                pool.wait(None)
                done.set()
                threading.Event().wait()

        if __name__ == "__main__":
            done = threading.Event()
            threading.Thread(target=work, daemon=True).start()
            done.wait()
        """
    with script(text, tmp_path) as process:
        assert process.communicate(timeout=PATIENCE)[1] == ""
    assert process.returncode == 0


# What does not pickle, and scripts.


def test_functions_that_do_not_pickle_are_refused_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)

    def local(x):
        return 0.0

    before = children()
    with ProcessPoolExecutor(1, mp_context=SPAWN) as executor:
        for workers in (2, executor):
            for fun in (lambda x: 0.0, local, partial(operator.add, threading.Lock())):
                with pytest.raises(TypeError, match=r"^fun: expected something that pickles, got ") as info:
                    pool_of(workers, fun)
                for word in (repr(fun), "top level of a module", "functools.partial", "ThreadPoolExecutor"):
                    assert word in str(info.value)
        assert children() == before
    with ThreadPoolExecutor(1) as executor:
        assert run(executor, local, [0])[0].value == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", SLOW_KINDS)
def test_lambdas_travel_by_cloudpickle_whatever_pickles(kind):
    offset = 3
    with kinds(kind) as workers:
        found = run(workers, lambda x: x() + offset, [lambda: 1, lambda: 2])
    assert {id: outcome.value for id, outcome in found.items()} == {0: 4.0, 1: 5.0}


def test_threads_share_the_objective_and_the_point():
    class Counter:
        def __init__(self):
            self.lock, self.points = threading.Lock(), []

        def __call__(self, x):
            with self.lock:
                self.points.append(x)
            return 0.0

    counter, point = Counter(), threading.Lock()
    with ThreadPoolExecutor(2) as executor:
        run(executor, counter, [point])
        run(executor.map, counter, [point])
    assert counter.points == [point, point]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SLOW_KINDS)
def test_a_point_or_a_function_that_does_not_pickle_elsewhere(kind):
    with kinds(kind) as workers:
        with pytest.raises(TypeError, match=r"^x: expected something that pickles, got .*lock"):
            run(workers, double, [threading.Lock()])
        with pytest.raises(TypeError, match=r"^fun: expected something that pickles, got .*lock"):
            run(workers, partial(operator.add, threading.Lock()), [1])


def test_a_point_that_does_not_pickle():
    with pool_of(2, double) as pool, pytest.raises(TypeError, match=r"^x: expected something that pickles, got .*lock"):
        pool.submit([(0, threading.Lock())])


def test_a_function_that_a_new_process_does_not_find(monkeypatch):
    module = type(os)("nowhere_else")
    exec("def fun(x):\n    return 0.0\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "nowhere_else", module)
    with pool_of(2, module.fun) as pool:
        pool.submit([(0, 0)])
        with pytest.raises(TypeError, match=r"^fun: expected something that a new process can load, got Mod") as info:
            pool.wait()
    assert "top level of a module" in str(info.value)


def test_a_script_with_its_own_function(tmp_path):
    text = """
        from knobless.parallel.pool import pool_of

        def fun(x):
            return x + 1

        if __name__ == "__main__":
            with pool_of(2, fun) as pool:
                pool.submit([(0, 41)])
                print(pool.wait(None)[0].value)
        """
    with script(text, tmp_path) as process:
        assert process.communicate(timeout=PATIENCE) == ("42.0\n", "")


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_so(tmp_path):
    text = """
        from knobless.parallel.pool import pool_of

        def fun(x):
            return x + 1

        with pool_of(2, fun) as pool:
            pool.submit([(0, 41)])
            print(pool.wait(None)[0].value)
        """
    with script(text, tmp_path) as process:
        out, said = process.communicate(timeout=PATIENCE)
    assert out == ""
    assert said.count("Traceback") == 1  # that of the process that imports the script is not shown
    last = said.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: workers: a process left with exit code 1 before it could evaluate anything.")
    assert "if __name__ == '__main__'" in last


# Executors of the user's.


@pytest.mark.slow
def test_what_is_late_on_an_executor_is_given_up_and_its_result_dropped(tmp_path):
    with ThreadPoolExecutor(2) as executor, pool_of(executor, blocked, 3.0) as pool:
        pool.submit([(0, (tmp_path, 0))])
        outcome = collect(pool, 1)[0]
        assert type(outcome.value) is TimeoutError
        assert outcome.ended - outcome.started > 2.99
        assert pool.wait() == []
        (tmp_path / "go").touch()
        for id in range(1, 5):
            pool.submit([(id, (tmp_path, id))])
        assert values(pool, 4) == {id: id for id in range(1, 5)}


@pytest.mark.slow
def test_waiting_behind_a_late_one_is_not_being_late(tmp_path):
    """One worker, busy for longer than two limits: what waits for it has not begun."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as executor:
        executor.submit(double, 1).result()
        with pool_of(executor, blocked, 2.0) as pool:
            for id in range(4):
                pool.submit([(id, (tmp_path, id))])
            assert type(values(pool, 1)[0]) is TimeoutError
            assert pool.wait(2.5) == []
            (tmp_path / "go").touch()
            assert values(pool, 3) == {1: 1.0, 2: 2.0, 3: 3.0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["map", "backwards"])
def test_a_map_is_waited_for_and_what_was_late_is_so_all_the_same(kind):
    with kinds(kind) as workers:
        found = run(workers, nap, [0.0, 2.5, 0.0], evaluation_timeout=2.0)
    assert [found[0].value, found[2].value] == [0.0, 0.0]
    assert type(found[1].value) is TimeoutError


def test_a_broken_executor_is_an_error_and_no_failed_evaluation(tmp_path):
    with ProcessPoolExecutor(1, mp_context=SPAWN) as executor, pool_of(executor, crash) as pool:
        for id, times in enumerate([0, 0, 600, 0]):
            pool.submit([(id, (tmp_path / str(id), times, "exit"))])
        assert values(pool, 2) == {0: 5.0, 1: 5.0}
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"^workers: the executor has ended: BrokenProcessPool") as info:
                pool.wait()
            assert "lost, not failed" in str(info.value)
        with pytest.raises(RuntimeError, match="BrokenProcessPool"):
            run(executor, double, [1])


class ByHand(ThreadPoolExecutor):
    """An executor whose futures the test completes; its size is not known."""

    def __init__(self):
        self.futures = []

    def submit(self, fn, /, *args):
        self.futures.append((Future(), partial(fn, *args)))
        return self.futures[-1][0]

    def complete(self, index):
        future, call = self.futures[index]
        future.set_result(call())


def test_what_came_back_before_it_broke_is_not_lost():
    executor = ByHand()
    with pool_of(executor, double) as pool:
        assert pool.capacity == UNLIMITED
        for id in range(4):
            pool.submit([(id, id)])
        executor.futures[2][0].cancel()
        executor.complete(3)
        assert {outcome.id: outcome.value for outcome in pool.wait()} == {3: 6.0}
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"^workers: the executor has ended: CancelledError"):
                pool.wait()


def test_one_whose_worker_was_lost_is_tried_again_beside_no_other_suspect():
    """The others keep the other workers busy."""
    executor = ByHand()
    with pool_of(executor, double) as pool:
        for id in range(3):
            pool.submit([(id, id)])
        for guilty in (0, 1):
            executor.futures[guilty][0].set_exception(OSError("a lost machine"))
        assert pool.wait(0.0) == []
        assert len(executor.futures) == 4  # 0, again, beside 2
        pool.submit([(3, 3)])
        assert len(executor.futures) == 5
        executor.complete(2)
        assert values(pool, 1) == {2: 4.0}
        assert len(executor.futures) == 5  # 1 waits for 0
        executor.complete(3)
        first = collect(pool, 1)[0]
        assert (first.value, first.tries) == (0.0, 2)
        assert len(executor.futures) == 6
        executor.futures[5][0].set_exception(OSError("another lost machine"))  # 1, again
        lost = collect(pool, 1)[1]
        assert type(lost.value) is WorkerLostError
        assert re.fullmatch(r"objective: its worker was lost, the last of 2 times .*another lost.*", str(lost.value))
        assert lost.tries == 2
        executor.complete(4)
        assert values(pool, 1) == {3: 6.0}
        assert pool.wait() == []


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_how_often_a_lost_worker_is_replaced(retries):
    executor = ByHand()
    with pool_of(executor, double, lost_retries=retries) as pool:
        pool.submit([(0, 0)])
        for lost in range(retries + 1):
            assert len(executor.futures) == lost + 1
            executor.futures[lost][0].set_exception(OSError("a lost machine"))
            arrived = pool.wait(0.0)
        assert [(type(outcome.value), outcome.tries) for outcome in arrived] == [(WorkerLostError, retries + 1)]


@pytest.mark.parametrize("again", [False, True])
def test_one_that_is_blamed_may_be_discarded(again):
    executor = ByHand()
    with pool_of(executor, double) as pool:
        for id in range(2):
            pool.submit([(id, id)])
        executor.futures[0][0].set_exception(OSError("a lost machine"))
        assert pool.wait(0.0) == []
        if again:
            executor.complete(1)
            assert values(pool, 1) == {1: 2.0}
        pool.discard([0])
        pool.submit([(2, 2)])
        executor.complete(-1)
        assert values(pool, 1) == {2: 4.0}


def test_leaving_cancels_what_the_executor_has_not_begun():
    executor = ByHand()
    with pool_of(executor, double) as pool:
        for id in range(3):
            pool.submit([(id, id)])
        executor.futures[1][0].set_running_or_notify_cancel()
    assert [future.cancelled() for future, _ in executor.futures] == [True, False, True]


def test_an_executor_that_was_shut_down():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match=r"^workers: the executor takes no evaluation: .*after shutdown"):
        run(executor, double, [1])


# Arguments.


@pytest.mark.parametrize(
    ("workers", "error", "message"),
    [
        (0, ValueError, r"^workers: expected an integer of at least 1, got 0$"),
        (-1, ValueError, r"^workers: expected an integer of at least 1, got -1$"),
        (True, TypeError, r"^workers: expected an integer, .* got True of type bool$"),
        (2.0, TypeError, r"^workers: expected an integer, .* got 2.0 of type float$"),
        ("4", TypeError, r"^workers: expected an integer, .*Executor.*Dask.*map.* got '4' of type str$"),
        (None, TypeError, r"^workers: expected an integer, .* got None of type NoneType$"),
    ],
)
def test_workers_that_are_none(workers, error, message):
    with pytest.raises(error, match=message):
        pool_of(workers, double)


def test_other_arguments():
    with pytest.raises(TypeError, match=r"^fun: expected a function, got 3$"):
        pool_of(1, 3)
    with pytest.raises(ValueError, match=r"^evaluation_timeout: expected a number above 0, got 0.0$"):
        pool_of(2, double, 0)
    with pytest.raises(TypeError, match=r"^evaluation_timeout: expected a number, got '1' of type str$"):
        pool_of(2, double, "1")


def test_callables_that_are_no_map():
    with pytest.raises(RuntimeError, match=r"^workers: expected a result for each point, got 2 too few$"):
        run(lambda fun, items: [fun(item) for item in items[1:-1]], double, [1, 2, 3])
    with pytest.raises(TypeError, match=r"^workers: expected a callable like map, got .*, which returned 7$"):
        run(lambda fun, items: [7 for _ in items], double, [1])
    with pytest.raises(TypeError, match=r"^workers: expected a callable like map, got .* raised .*not iterable"):
        run(lambda fun, items: None, double, [1])
    with pytest.raises(
        RuntimeError, match=r"^workers: .* raised OSError\('no machines'\)\. Pending evaluations are lost"
    ):
        run(without_machines, double, [1])


def without_machines(fun, items):
    raise OSError("no machines")
