"""Several objectives in a shell: run, show, resume, ask and tell, and external programs."""

import json
import sys

import pytest
from typer.testing import CliRunner

import knobless as kl
from knobless.cli.app import app
from knobless.cli.command import Command
from knobless.journal.records import read
from knobless.run.candidates import Failure

TOML = "bits = { binary = 8 }\n"
MODULE = """
def count(c):
    return float(c["bits"].sum()), float((1 - c["bits"]).sum())

def named(c):
    return {"zeros": float((1 - c["bits"]).sum()), "ones": float(c["bits"].sum())}

def one(c):
    return float(c["bits"].sum())

def noisy(c, g=__import__("numpy").random.default_rng(0)):
    return tuple(value + g.normal() for value in count(c))
"""
OBJECTIVES = ("--objective", "ones", "--objective", "zeros=max")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "space.toml").write_text(TOML)
    (tmp_path / "counts.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("counts", None)


def here(*words, code=0, stdin=None):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, words)], input=stdin)
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def printed(capfd):
    """What `--json` prints, which goes to the file descriptor."""
    return lambda *words, **more: (run(*words, "--json", **more), json.loads(capfd.readouterr().out.splitlines()[-1]))[
        1
    ]


def run(*words, fun="counts:count", code=0):
    return here("run", fun, "--space", "space.toml", "--seed", 0, "--quiet", *words, code=code)


def test_runs_are_those_of_minimize(folder, printed):
    expected = kl.minimize(
        lambda c: (float(c["bits"].sum()), float((1 - c["bits"]).sum())),
        kl.Space(bits=kl.Binary(8)),
        budget=40,
        rng=0,
        objectives={"ones": "min", "zeros": "max"},
    )
    found = printed("--budget", 40, *OBJECTIVES)
    values = [[point["values"]["ones"], point["values"]["zeros"]] for point in found["front"]]
    assert values == expected.front.values.tolist()
    assert found["objectives"] == {"ones": "min", "zeros": "max"}
    assert found["fun"] == list(expected.fun)
    larger = run("--budget", 40, "--maximize", "--objective", "ones=min", "--objective", "zeros", fun="counts:named")
    assert "ones (min)" in larger
    assert "zeros (max)" in larger
    assert printed("--budget", 20, "--objective", "ones=max", fun="counts:one")["direction"] == "maximize"


def test_show_and_resume(folder, printed):
    journal = folder / "run.sqlite"
    whole = printed("--budget", 40, *OBJECTIVES)
    run("--budget", 15, *OBJECTIVES, "--journal", journal)
    here("resume", journal, "--budget", 40, "--quiet")
    shown = here("show", journal)
    assert f"{len(whole['front'])} points" in shown
    assert "counts:count: ones (min), zeros (max)" in shown
    assert "knee of the front" in shown
    assert json.loads(here("show", journal, "--json"))["front"] == whole["front"]
    assert here("show", journal, "--csv").splitlines()[0].startswith("bits[0],")
    assert "journal does not match this run: objectives" in run(
        "--budget", 50, "--objective", "zeros=max", "--objective", "ones", "--journal", journal, code=2
    )


def test_under_noise_the_front_has_standard_errors(folder, printed):
    journal = folder / "run.sqlite"
    found = printed("--budget", 60, *OBJECTIVES, "--journal", journal, fun="counts:noisy")
    shown = json.loads(here("show", journal, "--json"))
    assert [point["x"] for point in shown["front"]] == [point["x"] for point in found["front"]]
    for name in ("values", "std"):
        for one, two in zip(shown["front"], found["front"], strict=True):
            assert one[name] == pytest.approx(two[name])
    assert all(point["std"]["ones"] > 0.0 for point in shown["front"])
    assert "±" in here("show", journal)
    here("plot", journal, "--kind", "front")
    here("plot", journal, "--kind", "hypervolume")


def test_a_tuple_without_objectives_names_both_remedies(folder):
    printed = " ".join(run("--budget", 10, code=1).split())
    assert "kl.Constrained(value, violation)" in printed
    assert "--objective error --objective latency" in printed


@pytest.mark.parametrize("words", [("a", "a"), ("a=up",), ("=min",), tuple("abcdef")])
def test_wrong_objectives(folder, words):
    assert "--objective" in run("--budget", 10, *(f"--objective={word}" for word in words), code=2)


def test_ask_and_tell(folder):
    candidates = here("ask", "run.sqlite", "--space", "space.toml", "--seed", 0, "--n", 4, *OBJECTIVES).splitlines()
    points = [json.loads(line) for line in candidates]
    values = [
        {"id": 0, "value": [1.0, 2.0]},
        {"id": 1, "value": {"zeros": 3, "ones": 2}},
        {"id": 2, "value": [0.0, 9.0], "violation": 1.0},
    ]
    here("tell", "run.sqlite", stdin="".join(map(json.dumps, values)).replace("}{", "}\n{"))
    assert [point["id"] for point in points] == [0, 1, 2, 3]
    with read("run.sqlite") as record:
        assert [evaluation.value for evaluation in record.evaluations] == [(1.0, 2.0), (2.0, 3.0), (0.0, 9.0)]
        assert [evaluation.violation for evaluation in record.evaluations] == [0.0, 0.0, 1.0]
    assert "2 values, of ones, zeros" in here("tell", "run.sqlite", stdin='{"id": 3, "value": 1.0}', code=2)
    assert "expected 2 values" in here("tell", "run.sqlite", stdin='{"id": 3, "value": [1, 2, 3]}', code=2)


@pytest.mark.skipif(sys.platform == "win32", reason="the program is one of a shell")
def test_programs_print_objectives_by_name():
    space = kl.Space(x=kl.Integer(0, 9))
    program = Command("echo 'zeros: 3' '\"ones\" = {x}' ones=4 violation=-1", space, ("ones", "zeros"))
    assert program({"x": 1}).value == {"ones": 4.0, "zeros": 3.0}
    with pytest.raises(Failure, match="expected cost=NUMBER, zeros=NUMBER on the standard output"):
        Command("echo zeros=3 {x}", space, ("cost", "zeros"))({"x": 1})
