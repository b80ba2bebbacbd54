"""A study on a real PostgreSQL server that four processes share, one of which is killed in the middle of a trial.

The server is the test's own: made in a temporary folder, reached by a socket there, run by a user without privileges,
and gone afterwards. It needs Debian's `postgresql`, or any other with `initdb` and `pg_ctl`, and `psycopg2`.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

optuna = pytest.importorskip("optuna")
pytest.importorskip("psycopg2", reason="psycopg2 is not installed (pip install psycopg2-binary)")

from optuna.trial import TrialState  # noqa: E402

from knobless.optuna import KnoblessSampler  # noqa: E402
from knobless.optuna.tags import TAG  # noqa: E402

TRIALS = 60
PROCESSES = 4
FATAL = 4  # of its own trials, the one in which a worker hangs until it is killed

WORKER = """
import os, sys, time
import optuna
from knobless.optuna import KnoblessSampler

url, victim = sys.argv[1], sys.argv[2] == "victim"
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(study_name="shared", storage=url, sampler=KnoblessSampler(seed=0))
count = 0

def objective(trial):
    global count
    bits = [trial.suggest_categorical(f"b{i:02}", [0, 1]) for i in range(8)]
    depth, lr = trial.suggest_int("depth", 1, 16), trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    trial.set_user_attr("pid", os.getpid())
    count += 1
    if victim and count == FATAL:
        print(trial.number, flush=True)
        time.sleep(3600)
    return 8 - sum(bits) + abs(depth - 5) / 15

over = optuna.study.MaxTrialsCallback(TRIALS, states=(optuna.trial.TrialState.COMPLETE,))
study.optimize(objective, callbacks=[over])
""".replace("FATAL", str(FATAL)).replace("TRIALS", str(TRIALS))


def program(name):
    """On the path, or where Debian keeps it."""
    found = shutil.which(name) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install postgresql)")
    return found


@pytest.fixture
def server():
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    as_user = {}
    folder = Path(tempfile.mkdtemp(prefix="kl-pg-", dir="/tmp"))  # a socket's path must be short
    if os.geteuid() == 0:  # which PostgreSQL refuses to run as
        names = {each.pw_name for each in pwd.getpwall()}
        user = next((name for name in ("postgres", "nobody") if name in names), None)
        if user is None:
            pytest.skip("there is no user without privileges to run PostgreSQL as")
        as_user = {"user": user, "cwd": folder}
        shutil.chown(folder, user)
    data, log = folder / "data", folder / "log"
    quick = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"

    def run(*words):
        done = subprocess.run(words, capture_output=True, text=True, **as_user)
        assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")

    try:
        run(initdb, "-D", data, "-U", "knobless", "--auth=trust", "--no-sync", "-E", "UTF8")
        run(pg_ctl, "-D", data, "-l", log, "-o", quick, "-w", "start")
        try:
            url = f"postgresql+psycopg2://knobless@/postgres?host={folder}"
            yield url, lambda: run(pg_ctl, "-D", data, "-l", log, "-o", quick, "-m", "fast", "-w", "restart")
        finally:
            run(pg_ctl, "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_a_study_continues_after_the_server_was_restarted(server):
    url, restart = server
    study = optuna.create_study(storage=url, sampler=KnoblessSampler(seed=0))

    def objective(trial):
        bits = [trial.suggest_categorical(f"b{i}", [0, 1]) for i in range(8)]
        if trial.number == 12:
            restart()
        return float(sum(bits))

    with pytest.raises((optuna.exceptions.StorageInternalError, AssertionError)):  # the latter hides the former
        study.optimize(objective, n_trials=40)
    study.optimize(objective, n_trials=27)
    states = [trial.state for trial in study.trials]
    assert states.count(TrialState.COMPLETE) == 39
    assert [number for number, state in enumerate(states) if state != TrialState.COMPLETE] == [12]
    assert study.best_value <= 1
    tags = [trial.system_attrs.get(TAG, {}) for trial in study.trials]
    assert tags[-1]["told"] == [len(tags) - 2]


@pytest.mark.slow
def test_four_processes_share_a_study_and_one_of_them_is_killed(server):
    server, _ = server
    study = optuna.create_study(study_name="shared", storage=server)
    roles = ["victim"] + ["worker"] * (PROCESSES - 1)
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, server, role], stdout=subprocess.PIPE, text=True)
        for role in roles
    ]
    try:
        number = int(workers[0].stdout.readline())
        os.kill(workers[0].pid, signal.SIGKILL)
        codes = [worker.wait(1200) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            worker.stdout.close()
    assert codes == [-signal.SIGKILL, 0, 0, 0]

    trials = study.trials
    tags = [trial.system_attrs.get(TAG, {}) for trial in trials]
    # None is lost: all that was asked for is there, and all of it has ended but for what the dead one left.
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert [trial.number for trial in trials if trial.state != TrialState.COMPLETE] == [number]
    assert TRIALS <= len(trials) - 1 < TRIALS + PROCESSES
    assert len({trial.user_attrs["pid"] for trial in trials}) == PROCESSES
    # None is stuck: trials were learned from after the death.
    told = {n for tag in tags for n in tag.get("told", ())}
    assert number not in told
    assert len(told) > TRIALS - PROCESSES
    last = [trial.value for trial in trials[-30:] if trial.value is not None]
    assert sum(last) / len(last) < 2.5  # 4.3 at random, with a standard error of 0.3

    # Though all of them have the same seed, few points are drawn twice: when two ask at the same moment, and as tests.
    drawn = [tuple(tag["code"]) for tag in tags if "code" in tag]
    assert len(set(drawn)) > 0.8 * len(drawn)
