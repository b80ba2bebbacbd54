"""`knobless run --command`: programs as objectives, their arguments, values and failures."""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import knobless as kl
from knobless.cli.app import app
from knobless.cli.command import Command, last_number
from knobless.journal.records import read
from knobless.run.candidates import Failure
from knobless.space.toml import space_from_toml

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")

TOML = "x = { integer = [-800, 800] }\nheat = { integer = [0, 9] }"
SIM = """#!/bin/sh
echo "run with $*" >> log
echo "step 1: 99"
[ "$2" = --heat=7 ] && { echo "too hot" >&2; exit 3; }
echo "value = $(($1 * $1 + ${2#--heat=}))"
"""
TEMPLATE = "./sim {x} --heat={heat}"


def value(c):
    if c["heat"] == 7:
        raise Failure("too hot\nexit code 3")
    return c["x"] ** 2 + c["heat"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a program and a space."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.toml").write_text(TOML)
    program(tmp_path / "sim", SIM)
    return tmp_path


def program(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def here(*words, code=0):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, words)])
    assert done.exit_code == code, done.output
    return done


def run(*words, template=TEMPLATE, budget=60, code=0):
    fixed = ["run", "--command", template, "--space", "space.toml", "--budget", budget, "--seed", 2, "--quiet"]
    return here(*fixed, *words, code=code)


def shown():
    return json.loads(here("show", "run.sqlite", "--json").stdout)


# Runs.


@pytest.mark.parametrize(
    "words",
    [(), ("--maximize",), pytest.param(("--workers", 2, "--batch", 1), marks=pytest.mark.slow)],
    ids=["minimize", "maximize", "2 workers"],
)
def test_a_run_of_a_program_is_that_of_a_function_with_the_same_values(folder, words):
    run("--journal", "run.sqlite", *words)
    optimize = kl.maximize if "--maximize" in words else kl.minimize
    result = optimize(value, space_from_toml(TOML, ""), budget=60, rng=2)
    found = shown()
    assert found["objective"] == TEMPLATE
    for name in ("x", "fun", "nfev", "nit", "failures"):
        assert found[name] == getattr(result, name)
    assert found["failures"] > 0
    assert found["failure"].startswith("too hot\n./sim ")
    assert found["failure"].endswith(" --heat=7: exit code 3")
    assert "the first: ./sim" in here("show", "run.sqlite").stdout
    assert len((folder / "log").read_text().splitlines()) == result.nfev


def test_a_run_is_resumed_by_the_same_command_and_by_resume_only_if_trusted(folder):
    run("--journal", "run.sqlite", budget=20)
    refused = here("resume", "run.sqlite", "--budget", 30, code=2).stderr
    assert refused.startswith(f"Error: run.sqlite: cannot resume: the journal has the command {TEMPLATE}, ")
    assert refused.endswith("To run it anyway: knobless resume run.sqlite --trust\n")
    assert len((folder / "log").read_text().splitlines()) == 20  # it was not run
    here("resume", "run.sqlite", "--budget", 30, "--trust")
    run("--journal", "run.sqlite", budget=40)
    assert shown()["nfev"] == 40
    assert len((folder / "log").read_text().splitlines()) == 40

    assert "objective: journal has" in run("--journal", "run.sqlite", template=TEMPLATE + " more", code=2).stderr


@pytest.mark.slow
def test_a_timeout_ends_all_processes_of_an_evaluation(folder):
    program(folder / "sim", "#!/bin/sh\necho 1\n[ $1 -ge 0 ] || exit 0\nsleep 1234 &\necho $! >> pids\nsleep 1234\n")
    run("--journal", "run.sqlite", "--evaluation-timeout", 1, "--algorithm", "cga", budget=4)
    with read("run.sqlite") as record:
        failures = [event.failure for event in record.failures()]
    assert failures
    assert all("took longer than evaluation_timeout=1 seconds" in each for each in failures)
    for pid in map(int, (folder / "pids").read_text().split()):
        assert gone(pid)


def gone(pid):
    """Whether a process has ended, or is about to."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_the_first_failure_ends_the_run_and_is_not_recorded(folder):
    program(folder / "sim", "#!/bin/sh\necho starting\necho no license >&2\nexit 4\n")
    done = run("--journal", "run.sqlite", code=1)
    *lines, last = done.stderr.splitlines()
    assert lines == ["no license"]
    assert last.startswith("./sim ")
    assert last.endswith(": exit code 4. The run ends because its first evaluations failed.")
    assert shown()["nfev"] == 0


# Failures.


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo done", "expected a number on the standard output, got 'done'"),
        (":", "expected a number on the standard output, got nothing"),
        ("echo 1; exit 3", "exit code 3"),
        ("echo 1; kill -SEGV $$", "ended by signal 11, "),
    ],
)
def test_what_is_a_failure(folder, text, reason):
    program(folder / "sim", f"#!/bin/sh\n{text}\n")
    with pytest.raises(Failure, match=r"^\./sim 3: " + reason):
        Command("./sim {x}", kl.Space(x=kl.Integer(0, 9)))({"x": 3})


def test_a_program_that_cannot_be_started_is_a_failure(folder):
    command = Command("./sim {x}", kl.Space(x=kl.Choice("\0", "b")))
    with pytest.raises(Failure, match="cannot be started: embedded null byte"):
        command({"x": "\0"})
    os.unlink("sim")
    with pytest.raises(Failure, match="cannot be started: "):
        command({"x": "b"})


def test_a_process_left_behind_does_not_keep_the_evaluation_waiting(folder):
    program(folder / "sim", "#!/bin/sh\nsleep 60 &\necho $! > pid\necho 5\n")
    assert Command("./sim {x}", kl.Space(x=kl.Integer(0, 9)))({"x": 3}) == 5
    os.kill(int((folder / "pid").read_text()), 9)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3.0),
        ("loss 0.5\nloss 0.25\n", 0.25),
        ("loss=-1.5e-3", -0.0015),
        ('{"loss": 2.5}\n', 2.5),
        ("a, 1; 2) (3]", 3.0),
        ("  0.15D+01 ", 1.5),
        ("1 fold_3 0.2s 1_000 v1.2.3 12abc", 1.0),
        ("0.5\ndone in no time", 0.5),
        ("-inf", -np.inf),
        ("", None),
        ("none", None),
    ],
)
def test_the_last_number(text, number):
    assert last_number(text) == number


def test_nan_is_a_number():
    assert np.isnan(last_number("1 nan"))


# Steps.

STEPS = """#!/bin/sh
echo "$1" >> log
echo "loading 1"
for step in 8 4 2 1; do echo "knobless: $(($1 * $1 + step * 100))"; done
echo "saved 2 files"
"""


def steps_of(x):
    return [float(x * x + 100 * step) for step in (8, 4, 2, 1)]


def test_a_program_with_steps_is_a_function_that_yields(folder):
    program(folder / "sim", STEPS)
    (folder / "space.toml").write_text("x = { integer = [-800, 800] }")
    run("--journal", "run.sqlite", template="./sim {x}", budget=14)
    result = kl.minimize(
        lambda point: (yield from steps_of(point["x"])), kl.Space(x=kl.Integer(-800, 800)), budget=14, rng=2
    )
    with read("run.sqlite") as record:
        rows = [(each.status, each.steps) for each in record.evaluations]
    assert rows == [(each.status, each.steps) for each in result.evaluations]
    assert {status for status, _ in rows} == {"ok", "stopped"}


@pytest.mark.parametrize(
    ("text", "objectives", "values"),
    [
        ("echo knobless: 3; printf 'knobless:2'", (), [3.0, 2.0]),
        ("echo 'knobless: loss 3, violation=1'; echo 'not knobless: 4'; echo 5", (), [kl.Constrained(3.0, 1.0)]),
        ("echo 'knobless: a=1 b=2'; echo 'knobless: b: 1, a: 0'", ("a", "b"), [{"a": 1, "b": 2}, {"a": 0, "b": 1}]),
    ],
)
def test_lines_of_steps(folder, text, objectives, values):
    program(folder / "sim", f"#!/bin/sh\n{text}\n")
    assert [*Command("./sim {x}", kl.Space(x=kl.Integer(0, 9)), objectives)({"x": 3})] == values


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo knobless: 1; echo knobless: none", "expected a number on line 2 that begins with knobless:, got 'none'"),
        ("echo knobless: 1; echo broken >&2; exit 3", "exit code 3"),
    ],
)
def test_what_is_a_failure_after_a_step(folder, text, reason):
    program(folder / "sim", f"#!/bin/sh\n{text}\n")
    with pytest.raises(Failure, match=reason):
        [*Command("./sim {x}", kl.Space(x=kl.Integer(0, 9)))({"x": 3})]


@pytest.mark.parametrize("ignored", ["", "trap '' TERM"])
def test_a_program_that_is_stopped_ends_with_what_it_has_started(folder, ignored, monkeypatch):
    monkeypatch.setattr("knobless.cli.command.GRACE", 0.1)
    waits = "sleep 1234 & echo $! > child; echo knobless: 1; wait; wait"
    program(folder / "sim", f"#!/bin/sh\n{ignored}\necho $$ > pid\n{waits}\n")
    steps = Command("./sim {x}", kl.Space(x=kl.Integer(0, 9)))({"x": 3})
    assert next(steps) == 1.0
    steps.close()
    assert gone(int((folder / "pid").read_text()))
    assert gone(int((folder / "child").read_text()))


# Arguments.


SPACE = kl.Space(
    bits=kl.Binary(3),
    act=kl.Choice("a b", True, None, 7),
    rate=kl.Float(0, 1),
    inner=kl.Space(many=kl.Integer(0, 9, n=2)),
)
POINT = {"bits": np.array([1, 0, 1]), "act": "a b", "rate": 1e-5, "inner": {"many": np.array([3, 4])}}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("sh {bits} {act} {rate} {inner.many}", ["1,0,1", "a b", "1e-05", "3,4"]),
        ("sh {bits[0]}{bits[2]} {bits[1]} --a={act} {rate} '{inner.many} x'", ["11", "0", "--a=a b", "1e-05", "3,4 x"]),
        ("sh {}", [json.dumps({"bits": [1, 0, 1], "act": "a b", "rate": 1e-5, "inner": {"many": [3, 4]}})]),
        ("sh {{{rate}}} {} 'one word'", ["{1e-05}", ..., "one word"]),
    ],
)
def test_arguments(template, words):
    found = Command(template, SPACE).words(POINT)
    assert found[0] == "sh"
    assert [word if expected is not ... else ... for word, expected in zip(found[1:], words, strict=True)] == words


@pytest.mark.parametrize(("option", "word"), [(True, "true"), (None, "null"), (7, "7"), ("a b", "a b")])
def test_options(option, word):
    assert Command("sh {act} {}", SPACE).words(POINT | {"act": option})[1] == word


@pytest.mark.slow
@given(st.text(min_size=1), st.text(min_size=1))
def test_a_value_is_one_argument_whatever_it_contains(first, second):
    space = kl.Space(a=kl.Choice(first, second + first), b=kl.Choice(second, first + second))
    assert Command("sh -c {a} x{b}y", space).words({"a": first, "b": second}) == ["sh", "-c", first, f"x{second}y"]


@pytest.mark.parametrize("text", ["; touch sprung", "$(touch sprung)", "`touch sprung`", "' ; touch sprung '", "a\nb"])
def test_no_shell_reads_a_value(folder, text):
    program(folder / "sim", '#!/bin/sh\nprintf %s "$1" > got\necho 1\n')
    assert Command("./sim {a}", kl.Space(a=kl.Choice(text, "b")))({"a": text}) == 1
    assert (folder / "got").read_text() == text
    assert not (folder / "sprung").exists()


def test_a_single_variable_is_x():
    assert Command("sh {x} {x[1]}", kl.Space.of(kl.Binary(3))).words(np.array([0, 1, 1])) == ["sh", "0,1,1", "1"]
    assert Command("sh {x}", kl.Space.of(kl.Integer(0, 9))).words(4) == ["sh", "4"]
    assert Command("sh {[0]} {[1]}", kl.Space.of([kl.Integer(0, 9)] * 2)).words([4, 5]) == ["sh", "4", "5"]


def test_an_argument_with_an_inactive_variable_is_left_out():
    space = kl.Space(kernel=kl.Choice("rbf", "poly"), degree=kl.Integer(2, 5).when(kernel="poly"))
    command = Command("sh {kernel} --degree={degree} -v", space)
    assert command.words({"kernel": "poly", "degree": 3}) == ["sh", "poly", "--degree=3", "-v"]
    assert command.words({"kernel": "rbf"}) == ["sh", "rbf", "-v"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("./sim {x} {heat} {y}", "expected placeholders among {x}, {heat}, got {y}; for other braces write {{ and }}"),
        ("./sim {x} {heat[0]}", "got {heat[0]}"),
        ("./sim {x}", "expected a placeholder for each variable, got none for {heat}"),
        ("./sim", "got none for {x}, {heat}"),
        ("./sim {x} {heat} }", "expected braces in pairs"),
        ("./sim {x} {heat} {", "expected braces in pairs"),
        ("./sim {x} '{heat}", "No closing quotation"),
        ("", "expected a program and its arguments, got ''"),
        ("{x} {heat}", "expected the name of a program first, got '{x}'"),
        ("./nowhere {x} {heat}", "expected a program that exists and can be executed, got './nowhere'"),
        ("./space.toml {x} {heat}", "expected a program that exists and can be executed, got './space.toml'"),
    ],
    ids=lambda each: each,
)
def test_a_wrong_template_is_a_usage_error(folder, template, message):
    error = run("--journal", "run.sqlite", template=template, code=2).stderr
    assert error.startswith("Error: command: ")
    assert message in error
    assert not (folder / "log").exists()
    assert not (folder / "run.sqlite").exists()


def test_either_a_function_or_a_command(folder):
    assert (
        "got both" in here("run", "sim:f", "--command", TEMPLATE, "--space", "space.toml", "--budget", 9, code=2).stderr
    )
    assert "got neither" in here("run", "--space", "space.toml", "--budget", 9, code=2).stderr


@pytest.mark.slow
def test_ctrl_c_ends_the_program(folder):
    program(folder / "sim", "#!/bin/sh\necho 1\necho $$ > pid\n[ -e gate ] && exec sleep 1234\n")
    (folder / "gate").touch()
    words = [sys.executable, "-m", "knobless", "run", "--command", TEMPLATE, "--space", "space.toml", "--budget", "9"]
    process = subprocess.Popen(
        [*words, "--journal", "run.sqlite"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    end = time.monotonic() + 60
    while time.monotonic() < end and not ((folder / "pid").exists() and (folder / "pid").read_text()):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert shlex.join(["knobless", "resume", "run.sqlite", "--trust"]) in err
    assert gone(int((folder / "pid").read_text()))
