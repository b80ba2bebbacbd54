"""`knobless ask` and `tell`: the same run as with `Optimizer`, by any number of processes that take turns."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import knobless as kl
from knobless.cli.app import app
from knobless.journal.records import read
from knobless.journal.sqlite import Writer
from knobless.run import shared
from knobless.run.jsonable import jsonable
from knobless.run.recording import Recording
from knobless.space.toml import space_from_toml

TOML = """
bits = { binary = 6 }
kernel = { choice = ["linear", "poly"] }
degree = { integer = [2, 9], when = { kernel = "poly" } }
rate = { float = [1e-4, 1], log = true }
"""
SPACE = space_from_toml(TOML, "")


def value(x):
    return sum(x["bits"]) + x["rate"] + abs(x.get("degree", 9) - 4)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.toml").write_text(TOML)
    return tmp_path


def here(*words, code=0, stdin=None):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, words)], input=stdin)
    assert done.exit_code == code, done.output
    return done


def ask(*words, code=0):
    return [json.loads(line) for line in here("ask", "run.sqlite", *words, code=code).stdout.splitlines()]


def tell(*lines, words=(), code=0):
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    return here("tell", "run.sqlite", *words, code=code, stdin=text)


def begin(*words):
    return ask("--space", "space.toml", "--seed", 3, *words)


def recorded():
    with read("run.sqlite") as record:
        return [(event.id, event.fate, event.value, event.failure) for event in record]


# The same run as with the library.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "always"),
    [
        pytest.param("minimize", True, id="checkpoints"),
        pytest.param("minimize", False, id="no checkpoints"),
        pytest.param("maximize", False, id="maximize"),
    ],
)
def test_the_run_is_that_of_an_optimizer(folder, direction, always, monkeypatch):
    monkeypatch.setattr(shared, "SLOW", -1.0 if always else 1e9)
    sign = -1.0 if direction == "maximize" else 1.0
    words = ["--maximize"] if direction == "maximize" else []
    opt = kl.Optimizer(SPACE, rng=3)
    begin(*words)
    first = opt.ask(1)
    tell({"id": 0, "value": 2.5})
    opt.tell(first, [sign * 2.5])
    for round in range(16):
        n = 1 + round % 4
        lines, batch = ask("--n", n), opt.ask(n)
        assert lines == [{"id": each.id, "x": jsonable(each.x)} for each in batch]
        last = {"id": lines[-1]["id"]}
        done = [{"id": each["id"], "value": value(each["x"])} for each in lines[:-1]]
        if round % 3 == 0:
            tell(*done[::-1], last | {"failed": "broken"})
            values = [*(sign * each["value"] for each in done[::-1]), RuntimeError()]
            opt.tell([*batch[:-1][::-1], batch[-1]], values)
        elif round % 3 == 1:
            tell(*done, last | {"cancelled": True})
            opt.tell(batch[:-1], [sign * each["value"] for each in done])
            opt.cancel(batch[-1])
        else:
            tell(*done, last | {"value": None})
            opt.tell(batch, [*(sign * each["value"] for each in done), float("nan")])
    twin = kl.Optimizer.from_journal("run.sqlite")
    assert twin.theta.tolist() == opt.theta.tolist()
    assert (twin.nfev, twin.nit, twin.failures) == (opt.nfev, opt.nit, opt.failures)
    assert twin.observed_fun == sign * opt.observed_fun  # it maximizes, as the journal does
    assert (folder / "run.sqlite.checkpoint").exists() == always
    found = json.loads(here("show", "run.sqlite", "--json").stdout)
    assert (found["nfev"], found["observed_fun"], found["direction"]) == (opt.nfev, sign * opt.observed_fun, direction)
    assert found["failure"] == "broken"
    assert found["seconds_longest"] >= 0


def test_a_checkpoint_that_is_not_of_this_journal_is_ignored(folder, monkeypatch):
    monkeypatch.setattr(shared, "SLOW", -1.0)
    begin("--n", 3)
    tell(*({"id": id, "value": 1.0 * id} for id in range(3)))
    ask()
    found = ask("--again", 0)
    path = folder / "run.sqlite.checkpoint"
    text = path.read_text()
    used = []
    restored = Recording.restored_row
    monkeypatch.setattr(Recording, "restored_row", lambda journal: used.append(restored(journal)) or used[-1])
    for change in (lambda: None, lambda: path.write_text(text.replace("waiting", "weiting")), path.unlink):
        change()
        assert ask("--again", 0) == found
    assert used == [3, 0, 0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes there")
def test_named_pipes_are_not_opened(folder, monkeypatch):
    monkeypatch.setattr(shared, "SLOW", -1.0)
    begin("--n", 3)
    tell(*({"id": id, "value": 1.0 * id} for id in range(3)))
    ask()
    found = ask("--again", 0)
    (folder / "run.sqlite.checkpoint").unlink()
    os.mkfifo(folder / "run.sqlite.checkpoint")
    assert ask("--again", 0) == found
    os.mkfifo(folder / "pipe")
    assert "pipe: cannot open: no such file" in here("ask", "pipe", code=2).output
    with pytest.raises(kl.JournalError, match="pipe: cannot open: expected a file"):
        kl.Optimizer(SPACE, journal="pipe")


def test_the_library_continues_and_hands_out_again_what_is_pending(folder):
    first = begin("--n", 4)
    tell({"id": 2, "value": 1.0})
    with kl.Optimizer(SPACE, journal="run.sqlite") as opt:
        again = opt.ask(3)
        assert [{"id": each.id, "x": jsonable(each.x)} for each in again] == [first[0], first[1], first[3]]
        opt.tell(again, [1.0, 2.0, 3.0])
    assert ask()[0]["id"] not in range(4)


@pytest.mark.parametrize("always", [False, True], ids=["replayed", "checkpoint"])
def test_fixed_variables_are_recorded(folder, monkeypatch, always):
    monkeypatch.setattr(shared, "SLOW", -1.0 if always else 9e9)
    found = begin("--n", 3, "--fix", "kernel=poly", "--fix", "bits[2]=1")
    opt = kl.Optimizer(SPACE, rng=3, fixed={"kernel": "poly", "bits[2]": 1})
    for _ in range(2):
        batch = opt.ask(3)
        assert found == [{"id": each.id, "x": jsonable(each.x)} for each in batch]
        opt.tell(batch, [value(each.x) for each in batch])
        tell(*({"id": each["id"], "value": value(each["x"])} for each in found))
        found = ask("--n", 3)
    assert all(each["x"]["kernel"] == "poly" and each["x"]["bits"][2] == 1 for each in found)
    wrong = here("ask", "run.sqlite", "--space", "space.toml", "--fix", "kernel=linear", code=2)
    assert "journal does not match this run: fixed" in wrong.stderr


def test_a_run_with_constraints_is_refused(folder):
    kl.Optimizer(SPACE, journal="run.sqlite", constraints=lambda x: x["rate"] < 0.5).close()
    message = "Error: run.sqlite: cannot resume: the run has constraints; use Optimizer(constraints=, journal=)\n"
    assert here("ask", "run.sqlite", code=2).stderr == message


# What is handed out.


def test_a_candidate_is_handed_out_once_or_again_after_a_time(folder, monkeypatch):
    first = begin("--n", 2)
    second = ask("--n", 2)
    assert [each["id"] for each in first + second] == [0, 1, 2, 3]
    now = time.time() + 100
    monkeypatch.setattr(time, "time", lambda: now)
    third = ask("--n", 1, "--again", 50)
    assert third == first[:1]
    assert ask("--n", 9, "--again", 50)[:3] == [first[1], *second]  # the first one was handed out just now
    assert len(ask("--n", 2, "--again", 200)) == 2
    tell({"id": 1, "value": 0.0}, {"id": 0, "cancelled": True})
    assert [each["id"] for each in ask("--n", 2, "--again", 0)] == [2, 3]


def test_a_budget_limits_what_is_handed_out(folder):
    assert len(begin("--n", 3, "--budget", "5e0")) == 3
    assert len(ask("--n", 9)) == 2
    done = here("ask", "run.sqlite", code=1)
    assert done.stdout == ""
    assert done.stderr == "No candidates left: 0 evaluations are recorded, 5 candidates are pending.\n"
    tell({"id": 0, "value": 1.0}, {"id": 1, "failed": ""}, {"id": 2, "cancelled": True})
    assert len(ask("--n", 9)) == 1  # for the cancelled one
    assert len(ask("--n", 9, "--again", 0)) == 3
    assert len(ask("--n", 9, "--budget", 7)) == 2
    assert json.loads(here("show", "run.sqlite", "--json").stdout)["budget"] == 7


def test_a_space_that_is_exhausted(folder):
    (folder / "space.toml").write_text("x = { choice = [1, 2, 3] }")
    found = begin("--n", 9, "--deterministic")
    assert sorted(each["x"]["x"] for each in found) == [1, 2, 3]
    tell(*({"id": each["id"], "value": each["x"]["x"]} for each in found))
    assert ask(code=1) == []


# What is told.


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["nonsense"], "standard input, line 1: expected "),
        (['{"id": 0, "value": 1}', "", '{"id": 1}'], "standard input, line 3: expected "),
        (['{"id": 0, "value": "1"}'], "line 1: expected "),
        (['{"id": 0, "value": true}'], "line 1: expected "),
        (['{"id": true, "value": 1}'], "line 1: expected "),
        (['{"id": 0, "value": 1' + "0" * 400 + "}"], "line 1: expected "),
        (['{"id": 0, "value": 1, "failed": "no"}'], "line 1: expected "),
        (['{"id": 0, "cancelled": false}'], "line 1: expected "),
        (["[0, 1]"], "line 1: expected "),
        (
            ['{"id": 0, "value": 1}', '{"id": 0, "cancelled": true}'],
            "line 2: expected each candidate once, got the id 0",
        ),
        (['{"id": 0, "value": 1}', '{"id": 7, "value": 1}'], "the unknown id 7"),
        (['{"id": 0, "value": 1}', '{"id": 2, "value": 1}'], "got id 2, which was told or cancelled"),
    ],
)
def test_if_one_line_is_wrong_none_is_recorded(folder, lines, message):
    begin("--n", 3)
    tell({"id": 2, "value": 5})
    before = recorded()
    assert message in tell(*lines, code=2).stderr
    assert recorded() == before


def test_what_was_told_before_can_be_skipped(folder):
    begin("--n", 3)
    tell({"id": 2, "value": 5})
    tell({"id": 2, "value": 6}, {"id": 0, "value": 1}, words=["--skip-told"])
    assert [row[:3] for row in recorded()] == [(2, 1, 5.0), (0, 1, 1.0)]
    assert "the unknown id 9" in tell({"id": 9, "value": 6}, words=["--skip-told"], code=2).stderr


# Wrong calls.


def test_the_first_call_needs_a_space(folder):
    assert "no such file; a space is needed" in here("ask", "run.sqlite", code=2).stderr
    assert "no such file" in tell({"id": 0, "value": 1}, code=2).stderr
    assert not (folder / "run.sqlite").exists()
    begin("--batch", 3)
    assert "--space: expected with" in here("ask", "run.sqlite", "--batch", 3, code=2).stderr
    begin("--batch", 3)
    begin()
    for word in (["--maximize"], ["--batch", 2], ["--algorithm", "cga"], ["--noisy"]):
        error = here("ask", "run.sqlite", "--space", "space.toml", "--seed", 3, *word, code=2).stderr
        assert "journal does not match this run" in error


def test_a_caller_waits_for_the_journal(folder):
    begin()
    writer = Writer(kl.Journal("run.sqlite"))
    done = here("ask", "run.sqlite", "--wait", 0.05, code=2)
    assert "another run is writing to it" in done.stderr
    timer = threading.Timer(0.3, writer.close)
    timer.start()
    assert ask("--wait", 600)[0]["id"] == 1
    timer.join()
    with pytest.raises(ValueError, match="wait: expected a number of at least 0, got -1"):
        kl.Journal("run.sqlite", wait=-1)


# Several processes.

WORKER = """
import io, json, sys, time
from typer.testing import CliRunner
from knobless.cli.app import app

def call(*words, stdin=None):
    return CliRunner().invoke(app, words, input=stdin)

name, hang = sys.argv[1], int(sys.argv[2])
with open(f"{name}.log", "w", buffering=1) as log:
    for round in range(1000):
        done = call("ask", "run.sqlite", "--space", "space.toml", "--seed", "3", "--budget", "100", "--n", "3")
        if done.exit_code:
            assert "No candidates left" in done.output, (done.output, done.exception)  # not an exception
            break
        log.write(done.stdout)
        if round == hang:
            open("hanging", "w").close()
            time.sleep(600)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        values = [{"id": each["id"], "value": sum(each["x"]["bits"]) + each["x"]["rate"]} for each in lines]
        done = call("tell", "run.sqlite", stdin="".join(json.dumps(each) + "\\n" for each in values))
        assert done.exit_code == 0, done.output
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills a process")
def test_four_processes_and_one_is_killed(folder):
    """Nothing is lost and nothing is handed out or told twice."""
    hangs = {"a": -1, "b": -1, "c": -1, "d": 1}
    workers = {
        name: subprocess.Popen([sys.executable, "-c", WORKER, name, str(hang)], stderr=subprocess.PIPE, text=True)
        for name, hang in hangs.items()
    }
    end = time.monotonic() + 300
    while not (folder / "hanging").exists() and workers["d"].poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    workers["d"].send_signal(signal.SIGKILL)
    errors = {name: worker.communicate(timeout=300)[1] for name, worker in workers.items()}
    assert {name: worker.returncode for name, worker in workers.items()} == dict.fromkeys("abc", 0) | {"d": -9}, errors
    asked = {name: [json.loads(line)["id"] for line in Path(f"{name}.log").read_text().splitlines()] for name in hangs}
    every = [id for ids in asked.values() for id in ids]
    assert len(every) == len({*every}) == 100
    assert all(asked.values())
    lost = ask("--n", 9, "--again", 0)
    assert [each["id"] for each in lost] == asked["d"][-3:]
    tell(*({"id": each["id"], "value": 0} for each in lost))
    assert ask("--again", 0, code=1) == []
    assert sorted(row[0] for row in recorded()) == sorted(every)
    assert kl.Optimizer.from_journal("run.sqlite").nfev == 100
