"""`knobless run`, `show` and `resume` as a shell sees them: what is printed, what is recorded, and how they end."""

import contextlib
import datetime
import json
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from dataclasses import asdict

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import conftest
import knobless as kl
from knobless.algorithms import IGO, Fixed, cga
from knobless.cli import run as commands
from knobless.cli.app import app
from knobless.cli.objects import NamedFunction, import_object, is_local
from knobless.cli.plan import RunPlan
from knobless.cli.terminal import plain
from knobless.families import Bernoulli
from knobless.journal.records import read
from knobless.journal.sqlite import Writer
from knobless.report.marginals import variable_summaries
from knobless.run.jsonable import jsonable
from knobless.space import toml as spacefile

TOML = """
layers = { binary = 6 }
act = { choice = ["relu", "tanh", "gelu"], p = [0.5, 0.25, 0.25] }
width = { integer = [8, 256], log = true }

[optimizer]
rate = { float = [1e-5, 1e-1], log = true }
"""
SIM = """
import datetime, math, os, subprocess, sys, time

import knobless as kl

space = kl.Space(kind=kl.Choice(datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)), bits=kl.Binary(5))
nothing = None

def value(c):
    far = abs(math.log10(c["optimizer"]["rate"]) + 3) + abs(c["width"] - 40) / 10
    return float(c["layers"].sum()) + (c["act"] != "gelu") + far

def loss(c):
    print("printed by the function", flush=True)
    if c["act"] == "tanh" and c["layers"][0]:
        raise RuntimeError("diverged")
    return value(c)

def gain(c):
    return -loss(c)

def gated(c):
    '''Hangs after forty evaluations, while there is a file called gate.'''
    import fcntl

    while True:
        with open("log", "r+") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            if len(log.readlines()) < 40 or not os.path.exists("gate"):
                log.write(f"{c}\\n")
                return value(c)
        time.sleep(0.005)

def hangs(c):
    time.sleep(600 if c["act"] == "tanh" else 0)
    return value(c)

def years(c):
    return c["kind"].year + c["bits"].sum()

class Model:
    def __init__(self):
        self.unpicklable = lambda: None

    def loss(self, c):
        return value(c)

model = Model()
anonymous = lambda c: value(c)

def raises(c):
    raise ValueError("no such luck")

def exits(c):
    sys.exit(0)

def nans(c):
    return math.nan

def text(c):
    return "much"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a module and a space."""
    (tmp_path / "sim.py").write_text(SIM)
    (tmp_path / "space.toml").write_text(TOML)
    (tmp_path / "log").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "sim", raising=False)
    yield tmp_path
    sys.modules.pop("sim", None)


def command(*words):
    """As the installed command does, -P does not put the current folder on the path."""
    return [sys.executable, "-P", "-m", "knobless", *map(str, words)]


def shell(*words, code=0):
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done


def here(*words, code=0):
    """The same without a process of its own."""
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, words)])
    assert done.exit_code == code, done.output
    return done


def run(*words, objective="sim:loss", space="space.toml", budget=300, rng=5):
    return ["run", objective, "--space", space, "--budget", budget, "--seed", rng, *words]


def reported(result):
    """The expected output of `--json` for a result, through JSON and back."""
    return json.loads(json.dumps(result.to_dict(), allow_nan=False))


def without_traceback(data):
    return data | {"failure": data["failure"] and data["failure"].strip().splitlines()[-1]}


# A run and its result.


@pytest.mark.parametrize(
    ("name", "minimize"), [pytest.param("loss", kl.minimize, marks=pytest.mark.slow), ("gain", kl.maximize)]
)
def test_the_json_of_a_run_is_the_result_of_the_library_and_nothing_else_is_printed(folder, name, minimize):
    words = ["--maximize"] if name == "gain" else ["--workers", 2]
    done = shell(*run("--batch", 4, "--json", *words, objective=f"sim:{name}"))
    data = json.loads(done.stdout)
    sim = NamedFunction(f"sim:{name}")
    result = minimize(sim, spacefile.space_from_toml(TOML, "here"), budget=300, batch=4, rng=5)
    assert result.failures
    assert without_traceback(data) == {
        "objective": f"sim:{name}",
        "direction": minimize.__name__,
        "objectives": {},
        "journal": None,
        **without_traceback(reported(result)),
    }
    # Two processes may print in the middle of each other's lines. There is no bar, for it is no terminal.
    assert done.stderr.count("printed by the function") == 300
    assert not done.stderr.replace("printed by the function", "").strip()


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--algorithm", "cga"], lambda space: {"algorithm": cga(space)}),
        (["--algorithm", "pbil-epsilon"], lambda space: {"algorithm": kl.pbil_epsilon(space)}),
        (["--target", "2.5"], lambda space: {"target": 2.5}),
        (["--stall", "7"], lambda space: {"stall": 7}),
        (["--deterministic"], lambda space: {"deterministic": True}),
        (["--noisy"], lambda space: {"deterministic": False}),
        ([], lambda space: {}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_options_are_those_of_the_library(folder, words, options):
    space = spacefile.space_from_toml(TOML, "here")
    here(*run("--journal", "run.sqlite", *words, "--quiet", budget=120))
    result = kl.minimize(import_object("sim:loss"), space, budget=120, rng=5, **options(space))
    plain = kl.minimize(import_object("sim:loss"), space, budget=120, rng=5)
    found = json.loads(here("show", "run.sqlite", "--json").stdout)
    for name in ("x", "fun", "fun_std", "observed_x", "observed_fun", "deterministic", "nfev", "nit"):
        assert found[name] == jsonable(getattr(result, name))
    assert ([*result.history] != [*plain.history]) == bool(words)
    assert found["deterministic_stated"] == options(space).get("deterministic")


@pytest.mark.slow
def test_a_time_limit_for_the_run_and_for_an_evaluation(folder):
    words = ("--evaluation-timeout", 2, "--algorithm", "pbil-lambda", "--json")
    done = shell(*run(*words, objective="sim:hangs", budget=6, rng=1))
    data = json.loads(done.stdout)
    assert data["failures"] > 0
    assert "evaluation_timeout=2 " in data["failure"]
    done = here(*run("--timeout", 1e-6, budget=300))
    assert "Time limit reached." in done.stdout


def test_a_time_limit_is_enough(folder):
    done = here("run", "sim:value", "--space", "space.toml", "--timeout", 0.2, "--seed", 1)
    assert "Time limit reached." in done.stdout
    assert (
        "expected a number of evaluations, or a --timeout"
        in here("run", "sim:value", "--space", "space.toml", code=2).stderr
    )


def test_the_number_of_workers_may_be_that_of_the_cpus(folder, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    journal = folder / "run.sqlite"
    here(*run("--workers", -1, "--journal", journal, objective="sim:value", budget=20))
    with read(journal) as record:
        assert (record.batch, record.meta["command"]["workers"]) == (1, -1)


@pytest.mark.slow
def test_missing_files_and_folders_are_named(folder):
    journal = folder / "run.sqlite"
    here(*run("--journal", journal, objective="sim:value", budget=20))
    for words in (["solve", "no.cnf", "--budget", 9], ["plot", journal, "-o", "no/run.png"]):
        message = here(*words, code=2).stderr
        assert re.match(r"Error: .*no(\.cnf|/run.png): No such file or directory\n", message), message


def test_what_is_printed_for_people(folder):
    done = here(*run())
    result = kl.minimize(import_object("sim:loss"), spacefile.space_from_toml(TOML, "here"), budget=300, rng=5)
    words = done.stdout.split()
    assert "Evaluation budget exhausted." in done.stdout
    assert f"{result.fun:.10g}" in words
    assert f"{result.failures}, the first: RuntimeError: diverged" in done.stdout
    bits, rate = "".join(map(str, result.x["layers"])), f"{result.x['optimizer']['rate']:.6g}"
    for word in ("layers", bits, result.x["act"], str(result.x["width"]), "optimizer.rate", rate):
        assert word in words
    assert "printed by the function" in done.stdout  # only --json keeps it away from there


@pytest.mark.slow
def test_functions_go_to_workers_by_name(folder):
    for name in ("sim:anonymous", "sim:model.loss"):
        data = json.loads(shell(*run("--workers", 2, "--json", objective=name, budget=20)).stdout)
        assert data["nfev"] == 20
        assert data["failures"] == 0


@pytest.mark.slow
def test_too_few_evaluations_at_once_for_the_workers(folder):
    advice = "3 workers, but an iteration may have only 2 evaluations: leave out --batch to keep all workers busy."
    few = ["--workers", 3, "--batch", 1]
    assert here(*run(*few, objective="sim:value", budget=1)).stderr == advice + "\n"
    assert here(*run(*few, "--quiet", objective="sim:value", budget=1)).stderr == ""
    assert here(*run("--workers", 3, objective="sim:value", budget=1)).stderr == ""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_a_bar_on_a_terminal(folder):
    import fcntl
    import pty
    import termios

    for words, expected in (((), True), (("--quiet",), False)):
        above, below = pty.openpty()
        fcntl.ioctl(below, termios.TIOCSWINSZ, struct.pack("4H", 25, 100, 0, 0))
        seen = bytearray()

        def drain(above=above, seen=seen):
            """All that comes, since a terminal holds only a few lines; it ends with an error."""
            with contextlib.suppress(OSError):
                while part := os.read(above, 4096):
                    seen.extend(part)

        reader = threading.Thread(target=drain)
        reader.start()
        done = subprocess.run(
            command(*run(*words, objective="sim:value")), stdout=subprocess.PIPE, stderr=below, timeout=300
        )
        os.close(below)
        reader.join()
        os.close(above)
        assert (b"300/300" in seen) == expected
        assert done.returncode == 0
        assert b"300/300" not in done.stdout


# Kills and interrupts.


def begun(*words):
    """A run that hangs after forty evaluations, once these are recorded."""
    open("gate", "w").close()
    process = subprocess.Popen(
        command(*run("--journal", "run.sqlite", *words, objective="sim:gated")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        if commands.count_recorded("run.sqlite") == 40:
            return process
        time.sleep(0.01)
    raise AssertionError(process.communicate())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="locks by fcntl")
@pytest.mark.parametrize("words", [(), ("--workers", 3, "--batch", 5)], ids=["1 process", "3 workers"])
def test_a_killed_run_goes_on_to_the_result_of_one_that_was_not(folder, words):
    process = begun(*words)
    found = json.loads(here("show", "run.sqlite", "--json").stdout)  # while it is being written
    assert (found["nfev"], found["budget"], found["objective"]) == (40, 300, "sim:gated")
    refused = shell("resume", "run.sqlite", code=2)
    assert "another run is writing to it" in refused.stderr
    process.kill()
    process.communicate()
    os.unlink("gate")
    done = shell("resume", "run.sqlite", "--json")
    assert done.stderr == "Resuming sim:gated after 40 of 300 evaluations.\n"
    value, points = import_object("sim:value"), []
    result = kl.minimize(
        lambda c: points.append(f"{c}\n") or value(c),
        spacefile.space_from_toml(TOML, ""),
        budget=300,
        rng=5,
        batch=5 if words else 1,
    )
    data = json.loads(done.stdout)
    expected = reported(result)
    assert {name: data[name] for name in expected} == expected
    with open("log") as log:
        assert sorted(log.readlines()) == sorted(points)  # no candidate was evaluated twice
    with read("run.sqlite") as record:
        opt = kl.Optimizer.from_journal(record)
    twin = kl.Optimizer(spacefile.space_from_toml(TOML, ""), rng=5, batch=5 if words else 1)
    while twin.nfev < 300:
        batch = twin.ask()[: 300 - twin.nfev]
        twin.tell(batch, [value(candidate.x) for candidate in batch])
    assert opt.theta.tolist() == twin.theta.tolist()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT and locks by fcntl")
@pytest.mark.parametrize("words", [(), ("--workers", 2, "--batch", 2)], ids=["1 process", "2 workers"])
def test_ctrl_c_keeps_what_is_recorded_and_says_how_to_go_on(folder, words):
    process = begun(*words)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Interrupted from the keyboard." in out
    assert err.splitlines()[-1] == "Interrupted. Recorded evaluations are kept; to resume: knobless resume run.sqlite"
    os.unlink("gate")
    assert commands.count_recorded("run.sqlite") == 40
    data = json.loads(shell("resume", "run.sqlite", "--json").stdout)
    assert data["nfev"] == commands.count_recorded("run.sqlite") == 300


# Resuming.


def test_there_is_nothing_left_to_do_until_the_budget_is_raised(folder):
    here(*run("--journal", "run.sqlite", budget=50, objective="sim:gain"), "--maximize", "--batch", 3)
    done = here("resume", "run.sqlite")
    assert "Nothing left to do: 50 evaluations are recorded." in done.stderr
    assert "Evaluation budget exhausted." in done.stdout
    done = here("resume", "run.sqlite", "--budget", 120)
    assert "Nothing" not in done.stderr
    whole = here(*run(budget=120, objective="sim:gain"), "--maximize", "--batch", 3)
    last = "Evaluation budget exhausted."
    assert done.stdout[done.stdout.index(last) :] == whole.stdout[whole.stdout.index(last) :]
    assert "Nothing" in here("resume", "run.sqlite").stderr  # the new budget is known from now on


def test_the_same_command_goes_on_too(folder):
    here(*run("--journal", "run.sqlite", budget=50))
    done = here("run", "sim:loss", "--space", "space.toml", "--budget", 80, "--journal", "run.sqlite")
    assert "Resuming sim:loss after 50 evaluations in run.sqlite." in done.stderr
    assert commands.count_recorded("run.sqlite") == 80


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"objective": "sim:value"}, 'objective: journal has "sim:loss", got "sim:value"'),
        ({"space": "other.toml"}, "space"),
        ({"rng": 4}, "rng: journal has the seed 5, got 4"),
        ({"words": ["--batch", 2]}, "batch: journal has 1, got 2"),
        ({"words": ["--maximize"]}, 'direction: journal has "minimize", got "maximize"'),
        ({"words": ["--algorithm", "cga"]}, "algorithm"),
        ({"words": ["--deterministic"]}, "deterministic"),
    ],
    ids=lambda each: str(each) if isinstance(each, dict) else "",
)
def test_another_run_is_refused_and_changes_nothing(folder, changed, said):
    (folder / "other.toml").write_text("act = { choice = [1, 2] }")
    here(*run("--journal", "run.sqlite", budget=20))
    with read("run.sqlite") as record:
        before = record.meta, list(record)
    words = changed.pop("words", [])
    done = here(*run("--journal", "run.sqlite", *words, budget=30, **changed), code=2)
    assert done.stderr.startswith("Error: run.sqlite: journal does not match this run: " + said)
    with read("run.sqlite") as record:
        assert (record.meta, list(record)) == before


@pytest.mark.parametrize("space", ["dates.toml", "sim:space"])
def test_options_that_json_has_no_word_for_survive(folder, space):
    (folder / "dates.toml").write_text("kind = { choice = [2020-01-01, 2021-01-01] }\nbits = { binary = 5 }")
    here(*run("--journal", "run.sqlite", objective="sim:years", space=space, budget=10, rng=0))
    (folder / "dates.toml").unlink()  # the journal has a copy
    here("resume", "run.sqlite", "--budget", 60)
    data = json.loads(here("show", "run.sqlite", "--json").stdout)
    result = kl.minimize(import_object("sim:years"), import_object("sim:space"), budget=60, rng=0)
    assert result.x["kind"] == datetime.date(2020, 1, 1)
    assert (data["fun"], data["nfev"], data["failures"]) == (result.fun, 60, 0)


def noted(folder, **changed):
    """A journal of a few evaluations, with notes that were tampered with."""
    here(*run("--journal", "run.sqlite", budget=5))
    with read("run.sqlite") as record:
        plan = asdict(RunPlan.of(record))
    writer = Writer(kl.Journal("run.sqlite"))
    writer.note({"command": plan | changed})
    writer.close()


@pytest.mark.parametrize(
    "name", ["subprocess:run", "os:system", "sim:os.system", "sim:subprocess.run", "knobless:minimize"]
)
def test_a_journal_cannot_make_anyone_call_what_is_not_in_the_folder(folder, name):
    noted(folder, objective=name)
    done = here("resume", "run.sqlite", "--budget", 9, code=2)
    assert f"the journal names {name}, " in done.stderr
    assert done.stderr.endswith("To run it anyway: knobless resume run.sqlite --trust\n")
    assert commands.count_recorded("run.sqlite") == 5


@pytest.mark.parametrize(
    "init", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["package", "namespace package"]
)
@pytest.mark.parametrize(
    "changed", [{"objective": "unpacked.payload:fun"}, {"space": "unpacked.payload:space"}], ids=str
)
def test_nor_run_code_of_a_subfolder(folder, changed, init):
    (folder / "unpacked").mkdir()
    trap = "open('sprung', 'w').close()\nfun = space = None"
    (folder / "unpacked" / "payload.py").write_text(trap)
    if init:
        (folder / "unpacked" / "__init__.py").write_text(trap)
    noted(folder, **{"toml": None, "space": "sim:space"} | changed)
    assert "not in a file of the current folder" in shell("resume", "run.sqlite", code=2).stderr
    assert not (folder / "sprung").exists()


@pytest.mark.slow
def test_nor_run_a_file_that_has_the_name_of_a_standard_module(folder):
    (folder / "secrets.py").write_text("open('sprung', 'w').close()")
    for name in ("secrets:choice", "nowhere:fun"):
        noted(folder, objective=name)
        shell("resume", "run.sqlite", code=2)
        (folder / "run.sqlite").unlink()
    assert not (folder / "sprung").exists()


def test_nor_import_it(folder):
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "trap.py").write_text("open('sprung', 'w').close()\nfun = space = None")
    sys.path.insert(0, str(folder / "elsewhere"))
    noted(folder, objective="trap:fun")
    here("resume", "run.sqlite", code=2)
    (folder / "run.sqlite").unlink()
    noted(folder, objective="sim:loss", space="trap:space", toml=None)
    here("resume", "run.sqlite", code=2)
    assert not (folder / "sprung").exists()
    assert "trap:space: space: expected" in here("resume", "run.sqlite", "--trust", code=2).stderr
    assert (folder / "sprung").exists()


def test_trust_calls_it(folder):
    noted(folder, objective="knobless.problems:OneMax")
    here("resume", "run.sqlite", "--budget", 9, "--trust")
    with read("run.sqlite") as record:
        assert ["n: expected an integer" in (event.failure or "") for event in record] == [False] * 5 + [True] * 4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"budget": "many"}, "budget: expected an integer, got 'many'"),
        ({"workers": 0}, "workers: expected an integer of at least 1, got 0"),
        ({"target": [1]}, "target: expected a number, got [1]"),
        ({"timeout": -1}, "timeout: expected a number above 0, got -1"),
        ({"objective": 7}, "objective: expected text, got 7"),
        ({"objective": "import os"}, "expected a name such as package.module:function, got 'import os'"),
        ({"toml": "x = { binary = 1000000000000 }"}, "space.toml: expected at most 10000000 values in a point"),
        ({"toml": "= ["}, "space.toml: not TOML"),
        ({"more": 1}, "command: expected budget, "),
    ],
    ids=str,
)
def test_notes_that_were_tampered_with_are_refused(folder, changed, said):
    noted(folder, **changed)
    assert said in here("resume", "run.sqlite", code=2).stderr


def test_a_journal_of_the_library_does_not_say_how_to_go_on_but_can_be_gone_on_with(folder):
    space = spacefile.space_from_toml(TOML, "")
    kl.minimize(import_object("sim:loss"), space, budget=10, rng=5, journal="run.sqlite")
    assert "the journal was not created by `knobless run`" in here("resume", "run.sqlite", code=2).stderr
    here(*run("--journal", "run.sqlite", budget=20))
    here("resume", "run.sqlite", "--budget", 30)
    assert commands.count_recorded("run.sqlite") == 30


# What a journal shows.


def test_show_is_what_the_library_says(folder):
    here(*run("--journal", "run.sqlite", "--maximize", objective="sim:gain"))
    data = json.loads(here("show", "run.sqlite", "--json").stdout)
    with read("run.sqlite") as record:
        opt = kl.Optimizer.from_journal(record)
        seconds = [event.ended - event.started for event in record]
        first = next(record.failures()).failure
    assert (data["x"], data["fun"]) == (jsonable(opt.best.x), opt.best.fun)
    assert data["fun"] < 0
    assert (data["nfev"], data["nit"], data["lam"], data["eps"]) == (opt.nfev, opt.nit, opt.lam, opt.eps)
    assert (data["failures"], data["failure"]) == (opt.failures, first)
    assert data["mode"] == jsonable(opt.mode)
    assert data["seconds_median"] == np.median(seconds)
    assert data["seconds_longest"] == max(seconds)
    assert sum(data["workers"].values()) == 300
    assert (data["seed"], data["budget"], data["direction"]) == (5, 300, "maximize")
    text = here("show", "run.sqlite").stdout
    for fact in (
        "maximize sim:gain",
        f"{data['fun']:.10g}",
        "300 of 300",
        f"{opt.failures}, the first: RuntimeError: diverged",
        f"{opt.eps:.10g}",
        f"pid {os.getpid()}",
        "gelu",
        "optimizer.rate",
        "68% from",
    ):
        assert fact in text


def test_show_of_a_journal_that_another_program_keeps(folder):
    with_own = IGO(Bernoulli(20), lambda f: f.mean() - f, Fixed(4, 0.1))
    opt = kl.Optimizer(kl.Binary(20), with_own, rng=0, journal="run.sqlite")
    assert "nothing" not in here("show", "run.sqlite").stderr
    batch = opt.ask()
    opt.tell(batch[3], 1.0)
    opt.tell(batch[:3], [2.0, 1.0, np.nan])
    data = json.loads(here("show", "run.sqlite", "--json").stdout)
    assert (data["nfev"], data["failures"], data["fun"]) == (4, 1, 1.0)
    assert data["x"] == batch[1].x.tolist()  # the first of equals, though it came later
    assert (data["lam"], data["mode"], data["marginals"]) == (None, None, [])  # unknown for a custom algorithm
    text = here("show", "run.sqlite").stdout
    assert "".join(map(str, data["x"])) in text
    opt.close()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "run.sqlite: cannot open: no such file"),
        (b"", "nothing has been recorded yet"),
        (b"nonsense" * 500, "file is not a database"),
        ("cut", "run.sqlite: "),
    ],
    ids=["none", "empty", "foreign", "cut"],
)
@pytest.mark.parametrize("verb", ["show", "resume"])
def test_files_that_are_no_journals(folder, verb, content, said):
    if content == "cut":
        here(*run("--journal", "run.sqlite", budget=200))
        content = (folder / "run.sqlite").read_bytes()[:7000]
    if content is not None:
        (folder / "run.sqlite").write_bytes(content)
    done = here(verb, "run.sqlite", code=2)
    assert done.stderr.startswith("Error: ")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_header_that_is_nested_deeply_is_one_line(folder):
    here(*run("--journal", "run.sqlite", budget=5))
    with contextlib.closing(sqlite3.connect("run.sqlite")) as file, file:
        (identity,) = file.execute("SELECT json FROM header WHERE name = 'identity'").fetchone()
        nested = identity.replace('"seed": 5', '"seed": ' + "[" * 700 + "]" * 700)
        assert nested != identity
        file.execute("UPDATE header SET json = ? WHERE name = 'identity'", (nested,))
    done = subprocess.run(command("show", "run.sqlite", "--json"), capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_json_of_a_hostile_journal_is_plain_ascii(folder):
    opt = kl.Optimizer({"a\x9b\u202e": kl.Choice("\udc80", "\x85b")}, rng=0, journal="run.sqlite")
    batch = opt.ask(2)
    opt.tell(batch, [RuntimeError("\x9b31m\u2066"), 1.0])
    opt.close()
    text = here("show", "run.sqlite", "--json").stdout
    assert text.isascii()
    assert text[:-1].isprintable()
    assert json.loads(text)["failure"].endswith("\x9b31m\u2066\n")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_terminals_without_unicode(folder, encoding):
    here(*run("--journal", "run.sqlite", budget=20, objective="sim:value"))
    env = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "COLUMNS": "100"}
    for words in (
        ["show", "run.sqlite"],
        ["resume", "run.sqlite"],
        ["plot", "--help"],
    ):
        done = subprocess.run(command(*words), capture_output=True, timeout=120, env=env)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
        done.stdout.decode(encoding)
        assert words[0] != "show" or b" lambda  " in done.stdout


def test_a_journal_gives_a_terminal_no_orders(folder):
    opt = kl.Optimizer({"\x1b[2J[red]name": kl.Choice("\x1b]0;title\x07", "[bold]b")}, rng=0, journal="run.sqlite")
    batch = opt.ask(2)
    opt.tell(batch, [RuntimeError("\x1b[31mred\x1b[0m"), 1.0])
    opt.close()
    text = here("show", "run.sqlite").stdout
    assert "\x1b" not in text
    assert "\x07" not in text
    assert r"\x1b[2J[red]name" in text
    assert r"RuntimeError: \x1b[31mred" in text
    assert plain("λ […] \u202e\n") == "λ […] \\u202e\\n"


SPACE = kl.Space.of(
    [kl.Binary(2), kl.Choice("a", "b"), kl.Choice("a", "b", "c", n=2), kl.Integer(1, 9), kl.Float(0, 1, n=2)]
)


@given(conftest.thetas(SPACE.family))
def test_the_mode_is_shown_with_its_probability(theta):
    code = SPACE.family.mode(theta)
    oracle = dict(zip(SPACE.names, conftest.marginals(SPACE.family, theta), strict=True))
    column = dict(zip(SPACE.names, code, strict=True))
    sigma = {name: np.sqrt(p @ (np.array(z) - np.dot(z, p)) ** 2) for name, (z, p) in oracle.items()}
    bits, two, three, whole, real = found = variable_summaries(SPACE, theta)
    assert [each.name for each in found] == ["[0]", "[1]", "[2]", "[3]", "[4]"]
    for each, names in ((bits, ["[0][0]", "[0][1]"]), (two, ["[1]"]), (three, ["[2][0]", "[2][1]"])):
        expected = [oracle[name][1][int(column[name])] for name in names]
        np.testing.assert_allclose(np.atleast_1d(each.probability), expected, rtol=1e-12)
        assert np.allclose(expected, [max(oracle[name][1]) for name in names])
    assert [bits.value.tolist(), two.value, three.value.tolist(), whole.value, real.value.tolist()] == jsonable(
        SPACE.decode(code)
    )
    for each, names in ((whole, ["[3]"]), (real, ["[4][0]", "[4][1]"])):
        variable = kl.Integer(1, 9) if each is whole else kl.Float(0, 1)
        for side, s in ((each.low, -1), (each.high, 1)):
            latent = np.array([column[name] + s * sigma[name] for name in names])
            np.testing.assert_allclose(np.atleast_1d(side), variable.values(latent), rtol=1e-9)
        assert each.probability is None


# Spaces in files.


def test_a_file_says_all_that_python_can():
    text = """
    bits = { binary = 4, p = [0.1, 0.2, 0.3, 0.4] }
    even = { binary = 2, p = 0.25 }
    one = { choice = ["a", 2, 3.5, true, [1, 2]], p = [0.2, 0.2, 0.2, 0.2, 0.2] }
    some = { choice = ["a", "b"], n = 3 }
    whole = { integer = [0, 12], step = 3, n = 2 }
    listed = [{ integer = [1, 64], log = true }, { float = [0, 1] }]

    [deep.er]
    grid = { float = [0, 1], step = 0.1 }
    rate = { float = [1e-5, 1e-1], log = true, n = 2 }
    float = { binary = 1 }

    [[layers]]
    kind = { choice = ["conv", "dense"] }

    [[layers]]
    kind.choice = ["conv", "pool"]
    """
    assert spacefile.space_from_toml(text, "here") == kl.Space(
        bits=kl.Binary(4, p=[0.1, 0.2, 0.3, 0.4]),
        even=kl.Binary(2, p=0.25),
        one=kl.Choice("a", 2, 3.5, True, [1, 2]),
        some=kl.Choice("a", "b", n=3),
        whole=kl.Integer(0, 12, step=3, n=2),
        listed=[kl.Integer(1, 64, log=True), kl.Float(0, 1)],
        deep={
            "er": {
                "grid": kl.Float(0, 1, step=0.1),
                "rate": kl.Float(1e-5, 1e-1, log=True, n=2),
                "float": kl.Binary(1),
            }
        },
        layers=[{"kind": kl.Choice("conv", "dense")}, {"kind": kl.Choice("conv", "pool")}],
    )
    assert spacefile.space_from_toml("binary = 100", "here") == kl.Space.of(kl.Binary(100))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "here: expected at least one variable, got none"),
        ("a = 3", "here: a: expected a variable, such as { integer = [1, 64] }, or a table of variables, got 3"),
        ("[a.b]\ntype = 'integer'", "here: a.b.type: expected a variable, such as"),
        ("[a]", "here: a: expected at least one variable, got none"),
        ("a = []", "here: a: expected at least one variable, got an empty array"),
        ("a = { binary = 0 }", "here: a: binary: n: expected an integer of at least 1, got 0"),
        ("a = { binary = 'x' }", "here: a: binary: n: expected an integer, got 'x' of type str"),
        ("a = { binary = 2, p = 2 }", "here: a: binary: p: expected probabilities strictly between 0 and 1, got 2"),
        ("a = { binary = 2, q = 2 }", "here: a: q: expected p beside binary, got q"),
        ("a = { binary = 2, p = { x = 1 } }", "here: a: p: expected an option of binary, got a table"),
        (
            "a = { binary = 2, float = 3 }",
            "here: a: expected one of binary, choice, integer, float, subset, got binary and float",
        ),
        ("a = { choice = 'x' }", "here: a: choice: expected an array of options, got 'x'"),
        ("a = { choice = [] }", "here: a: choice: expected at least one option, got none"),
        ("a = { choice = ['x', 'x'] }", "here: a: choice: expected options that differ, got 'x' twice"),
        ("a = { choice = [1, 2], p = [1] }", "here: a: choice: p: expected 2 probabilities for 2 options, got [1]"),
        ("a = { integer = 3 }", "here: a: integer: expected [low, high], got 3"),
        ("a = { integer = [1, 2, 3] }", "here: a: integer: expected [low, high], got [1, 2, 3]"),
        ("a = { integer = [3, 1] }", "here: a: integer: expected low <= high, got low = 3 and high = 1"),
        ("a = { integer = [1, 2.5] }", "here: a: integer: high: expected an integer, got 2.5 of type float"),
        ("a = { integer = [1, 9], log = 1 }", "here: a: integer: log: expected True or False, got 1"),
        (
            "a = [{ float = [0, 1] }, { float = [0, inf] }]",
            "here: a[1]: float: high: expected a finite number, got inf",
        ),
        ("a = { float = [0, 1], log = true }", "here: a: float: low: expected a number above 0 in log scale, got 0.0"),
        ("a = [", "here: not TOML: "),
        ("binary = 900000000000000", "here: expected at most 10000000 values in a point, got 900000000000000"),
        ("a = { binary = 9000000 }\nb = { float = [0, 1], n = 1000001 }", "here: expected at most 10000000 values"),
        ("a = " + "[" * 5000, "here: nested too deeply"),
    ],
    ids=lambda each: each[:30],
)
def test_a_wrong_file_is_named_with_its_key(text, said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        spacefile.space_from_toml(text, "here")
    assert str(caught.value).startswith(said)


WORDS = [
    "a",
    "b",
    "binary",
    "choice",
    "integer",
    "float",
    "p",
    "n",
    "log",
    "=",
    "=",
    ".",
    ",",
    "[",
    "]",
    "{",
    "}",
    "\n",
]
VALUES = ["1", "9", "0.5", "-3", "1e999", "nan", "true", "'x'", "2020-01-01", "[1, 9]", "[0.5, 0.5]", "{ binary = 3 }"]


@pytest.mark.slow
@given(st.lists(st.sampled_from(WORDS + VALUES), max_size=12).map(" ".join) | st.text(max_size=30))
def test_any_text_is_a_space_or_a_value_error(text):
    space, said = None, "here: "
    try:
        space = spacefile.space_from_toml(text, "here")
    except ValueError as error:
        said = str(error)
    assert said.startswith("here: ")
    assert space is None or len(space.names) == space.family.variables


# What is wrong with a command.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"objective": "sim"}, "expected a name such as package.module:function, got 'sim'"),
        ({"objective": "sim.py:loss"}, "expected the name of a module, such as sim:loss, got 'sim.py:loss'"),
        ({"objective": "nowhere:loss"}, "nowhere:loss: no module nowhere in the current folder"),
        ({"objective": "sim.deep:loss"}, "sim.deep:loss: no module sim.deep"),
        ({"objective": "sim:lost"}, "sim:lost: module 'sim' has no attribute 'lost'"),
        ({"objective": "sim:nothing"}, "sim:nothing: expected a function, got None"),
        ({"space": "nowhere.toml"}, "nowhere.toml: No such file or directory"),
        ({"space": "sim:loss"}, "sim:loss: space: expected Binary, Choice"),
        ({"space": "sim.py"}, "sim.py: not TOML: "),
    ],
    ids=str,
)
def test_a_wrong_name_is_a_usage_error(folder, words, said):
    done = here(*run(**words), code=2)
    assert done.stderr.startswith(f"Error: {said}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "0"], "--budget"),
        (["--budget", "many"], "--budget"),
        (["--budget", "1.5"], "--budget"),
        (["--budget", "1e400"], "--budget"),
        (["--budget", "nan"], "--budget"),
        (["--workers", "-2"], "--workers"),
        (["--workers", "0"], "workers: expected an integer of at least 1, got 0"),
        (["--algorithm", "magic"], "--algorithm"),
        (["--seed", "-1"], "--seed"),
        (["--target", "nan"], "target: expected a finite number, got nan"),
        (["--timeout", "0"], "timeout: expected a number above 0, got 0.0"),
        (["--evaluation-timeout", "-1"], "evaluation_timeout: expected a number above 0, got -1.0"),
        (["--journal", "nowhere/run.sqlite"], "nowhere/run.sqlite: cannot open for writing"),
        (["--journal", "space.toml"], "space.toml: file is not a database"),
        (["--nonsense"], "--nonsense"),
    ],
    ids=" ".join,
)
def test_a_wrong_option_is_a_usage_error(folder, words, said):
    assert said in here(*run(*words), code=2).stderr
    assert (folder / "space.toml").read_text() == TOML


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_the_function_is_shown_from_where_it_begins(folder, workers):
    done = shell(*run("--workers", workers, objective="sim:raises"), code=1)
    lines = done.stderr.splitlines()
    assert lines[-2:] == ["ValueError: no such luck", "sim:raises: the run ends with this error."]
    assert 'raise ValueError("no such luck")' in done.stderr
    assert workers > 1 or "knobless" not in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_exit_of_the_function_is_an_error(folder, workers):
    done = shell(*run("--workers", workers, objective="sim:exits"), code=1)
    last = ["RuntimeError: objective: raised SystemExit(0)", "sim:exits: the run ends with this error."]
    assert done.stderr.splitlines()[-2:] == last
    assert "sys.exit(0)" in done.stderr
    assert workers > 1 or "knobless" not in done.stderr


def test_errors_of_the_user(folder):
    (folder / "broken.py").write_text("1 / 0")
    done = here(*run(objective="broken:loss"), code=1)
    assert done.stderr.splitlines()[-2:] == [
        "ZeroDivisionError: division by zero",
        "broken:loss: broken cannot be imported.",
    ]
    assert "importlib" not in done.stderr
    (folder / "lacking.py").write_text("import nowhere_to_be_found")
    assert "No module named 'nowhere_to_be_found'" in here(*run(objective="lacking:loss"), code=1).stderr
    done = here(*run(objective="sim:text"), code=1)
    assert "TypeError: objective: expected one number, got 'much' of type str" in done.stderr


@pytest.mark.slow
def test_a_run_without_a_value_has_failed(folder):
    done = here(*run(objective="sim:nans"), code=1)
    assert "Every evaluation failed. The first failure: the objective returned NaN" in done.stdout
    assert "5 of 5 evaluations failed." in here(*run(objective="sim:nans", budget=5), code=1).stdout
    data = json.loads(shell(*run("--json", objective="sim:nans", budget=5), code=1).stdout)
    assert (data["x"], data["fun"], data["success"]) == (None, None, False)


def test_integers_may_be_written_as_floats(folder):
    words = ["--budget", "1.2e1", "--journal", "run.sqlite", "--stall", "1e3"]
    here("run", "sim:value", "--space", "space.toml", *words)
    assert commands.count_recorded("run.sqlite") == 12
    here("resume", "run.sqlite", "--budget", "2e1")
    assert commands.count_recorded("run.sqlite") == 20


def test_every_command_that_draws_random_numbers_calls_its_seed_a_seed(folder):
    group = typer.main.get_command(app)
    named = {
        name: {option for parameter in each.params for option in parameter.opts}
        for name, each in group.commands.items()
    }
    assert {name for name, options in named.items() if "--seed" in options} == {"run", "ask", "solve"}
    assert not any({"--rng", "--random-state"} & options for options in named.values())


def test_help(folder):
    assert {"run", "show", "resume"} <= {*here("--help").stdout.split()}
    assert "Usage: " in here(code=2).output
    assert "Missing option '--space'" in here("run", "sim:loss", code=2).stderr
    options = (
        "--space",
        "--budget",
        "--journal",
        "--workers",
        "--batch",
        "--maximize",
        "--target",
        "--json",
        "Exit codes",
    )
    for option in options:
        assert option in here("run", "--help").stdout
    assert "--trust" in here("resume", "--help").stdout


def test_only_files_of_the_current_folder_are_local(folder, monkeypatch):
    (folder / "inside").mkdir()
    (folder / "inside" / "payload.py").write_text("def fun(x): return 0")
    (folder / "inside" / "conftest.py").write_text("def fun(x): return 0")
    (folder / "regular").mkdir()
    (folder / "regular" / "__init__.py").write_text("def fun(x): return 0")
    (folder / "random.py").write_text("def fun(x): return 0")
    monkeypatch.syspath_prepend(folder / "inside")  # as a .pth file may do
    local = {"sim:loss": True, "os:system": False, "sys:exit": False, "nowhere:x": False, "__main__:x": False}
    local |= {"inside.payload:fun": False, "inside:fun": False, "payload:fun": False, "conftest:fun": False}
    local |= {"regular:fun": False, "regular.fun:fun": False, "random:fun": False}
    before = [*sys.path], {*sys.modules}
    assert {name: is_local(name) for name in local} == local
    assert before == (sys.path, {*sys.modules})  # nothing is imported to find out
    assert NamedFunction("sim:model.loss").is_local
    assert not NamedFunction("sim:math.sqrt").is_local
    assert not NamedFunction("inside.payload:fun").is_local
    for name in ("inside", "inside.payload"):
        sys.modules.pop(name)
