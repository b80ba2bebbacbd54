"""`python -m reproduction`: every command on a small scale, its output, and resuming."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from harness import STREAM, Table, read_csv, seed
from knobless.core.adaptation import SNR
from knobless.fast import Run
from knobless.problems import LeadingOnes, MaxSat, OneMax
from knobless.run.result import Status
from reproduction import (
    Claim,
    Options,
    Report,
    alpha,
    drift,
    hitting_times,
    lambda_dynamics,
    max_3_sat,
    mechanism,
    noise,
    theorem,
)
from reproduction.commands import app
from reproduction.experiment import (
    Readiness,
    Skipping,
    Stopped,
    Task,
    finish,
    follow,
    kernel_of,
    run_tasks,
    trials_table,
)
from reproduction.measure import Sample, quantile, slope
from reproduction.page import write_page
from reproduction.scorecard import write_scorecard
from reproduction.settings import ALGORITHMS, CGA_1, LAMBDA, LAMBDA_1

ROOT = Path(__file__).parents[1]


def command(*words: object) -> str:
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


COMMANDS = {
    "hitting-times": ["--max-n", 30, "--cap", 3000],
    "lambda-dynamics": ["--max-n", 30],
    "alpha": ["--max-n", 10, "--cap", 20000],
    "max-3-sat": ["--max-n", 20, "--cap-per-n", 200],
    "noise": ["--max-n", 10, "--budget", 1000],
    "theorem": [],
    "mechanism": [],
}


@pytest.mark.parametrize(
    "name", [name if name == "max-3-sat" else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS]
)
def test_a_command_writes_its_files_and_a_second_call_runs_nothing(name, tmp_path, monkeypatch):
    if name == "max-3-sat":
        pytest.importorskip("pysat", reason="instances are drawn with python-sat: pip install '.[reproduction]'")
    words = [
        name,
        *COMMANDS[name],
        "--trials",
        1 if name in ("theorem", "mechanism") else 2,
        "--jobs",
        2,
        "--out",
        tmp_path,
    ]
    assert "claim" in command(*words)
    claims = json.loads((tmp_path / f"{name}-claims.json").read_text())
    assert {c["holds"] for c in claims} <= {"holds", "does not hold", "not decided"}
    assert len(read_csv(tmp_path / f"{name}-claims.csv")) == len(claims)
    assert (tmp_path / f"{name}-claims.md").read_text().count("\n| ") == len(claims) + 1
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    before = {path: path.read_bytes() for path in tmp_path.glob("*.csv")}
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)  # which takes longer than all else
    command(*words)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.csv")} == before
    meta = json.loads((tmp_path / f"{name}-meta.json").read_text())
    assert meta["numba"]
    assert [session["trials"] > 0 for session in meta["sessions"]] == [True]  # the second call ran none


def test_the_number_of_threads_does_not_show(tmp_path):
    found = []
    for jobs in (1, 3):
        table = trials_table(tmp_path / f"{jobs}.csv", hitting_times.KEY_COLUMNS, hitting_times.RESULT_COLUMNS)
        run_tasks(table, hitting_times.plan(Options(tmp_path, trials=2, max_n=10), cap=2000), jobs, "test")
        found.append({tuple(row.values())[:-1] for row in read_csv(table.path)})  # all but the seconds
    assert found[0] == found[1]


def test_the_page_holds_everything_in_one_file(tmp_path):
    image = tmp_path / "a.png"
    image.write_bytes(b"\x89PNG")
    claim = Claim("a < b", "if", "1.0", None)
    path = write_page([Report("x", "X", "setup", ((image, "caption"),), (claim,))], tmp_path / "index.html")
    html = path.read_text()
    assert "a &lt; b" in html
    assert "not decided" in html
    assert "data:image/png;base64,iVBORw==" in html
    assert 'src="http' not in html


def test_the_committed_scorecard_has_the_committed_claims(tmp_path):
    committed = ROOT / "docs" / "reproduction"
    for path in committed.glob("*.json"):
        shutil.copy(path, tmp_path)
    (tmp_path / "hitting-times.png").touch()  # an sdist has no pictures
    page = write_scorecard(tmp_path).read_text()
    assert page == (committed / "scorecard.md").read_text()
    claims = [claim for path in committed.glob("*-claims.json") for claim in json.loads(path.read_text())]
    held = sum(claim["holds"] == "holds" for claim in claims)
    assert f"| **all** | **{held}** |" in page
    assert page.count("** |\n") == len(claims)


# Resuming.


def counted(ran: list[int], number: int, fails: int | None = None) -> Task:
    def run(stop: Event) -> dict[str, int]:
        if number == fails:
            raise KeyboardInterrupt
        ran.append(number)
        return {"square": number * number}

    return Task({"number": number}, run, cost=-number)


def table_at(path: Path) -> Table:
    return trials_table(path, ["number"], ["square"])


def test_what_was_stopped_goes_on_without_repeating_a_trial(tmp_path):
    path, ran = tmp_path / "t.csv", []
    with pytest.raises(KeyboardInterrupt):
        run_tasks(table_at(path), [counted(ran, i, fails=4) for i in range(8)], 1, "test")
    assert ran == [0, 1, 2, 3]
    assert len(read_csv(path)) == 4
    run_tasks(table_at(path), [counted(ran, i) for i in range(8)], 2, "test")
    assert sorted(ran) == list(range(8))
    assert {(int(r["number"]), int(r["square"])) for r in read_csv(path)} == {(i, i * i) for i in range(8)}


def test_a_half_written_line_is_cut_off_and_its_trial_run_again(tmp_path):
    path, ran = tmp_path / "t.csv", []
    path.write_text(f"stream,number,square,seconds\n{STREAM},0,0,0.1\n{STREAM},1,1")
    run_tasks(table_at(path), [counted(ran, i) for i in range(3)], 1, "test")
    assert ran == [1, 2]
    assert [r["square"] for r in read_csv(path)] == ["0", "1", "4"]


def test_a_table_of_other_columns_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n")
    with pytest.raises(ValueError, match="expected the columns stream, number, square, seconds, got a, b"):
        table_at(path)


def test_costly_trials_begin_first(tmp_path):
    ran: list[int] = []
    run_tasks(table_at(tmp_path / "t.csv"), [counted(ran, i) for i in (3, 1, 2)], 1, "test")
    assert ran == [1, 2, 3]


def test_a_running_trial_is_told_to_stop():
    stop = Event()
    stop.set()
    run = Run(kernel_of(LeadingOnes(300)), ALGORITHMS[CGA_1](300), 0)
    with pytest.raises(Stopped):
        finish(run, 1e9, stop)
    assert run.nfev < 10_000


def test_larger_n_are_skipped_where_none_was_solved_and_only_there(tmp_path):
    tasks = hitting_times.plan(Options(tmp_path, trials=2, max_n=100), cap=3000)
    table = trials_table(tmp_path / "t.csv", hitting_times.KEY_COLUMNS, hitting_times.RESULT_COLUMNS)
    judge = Skipping(table, tasks, larger=True)
    chain = [t for t in tasks if (t.name["function"], t.name["setting"]) == ("LeadingOnes", CGA_1)]

    def verdicts() -> list[Readiness]:
        return [judge(task) for task in chain[::2]]  # n = 10, 30, 100

    assert verdicts() == [Readiness.GO, Readiness.WAIT, Readiness.WAIT]
    rest = {"stream": STREAM, "calls": 1, "iterations": 1, "best": 0, "lam_r": 2, "seconds": 0}
    table.add({**chain[0].name, **rest, "solved": 1})
    assert verdicts() == [Readiness.GO, Readiness.GO, Readiness.WAIT]
    for task in chain[2:4]:
        table.add({**task.name, **rest, "solved": 0})
    assert verdicts()[2] is Readiness.SKIP


def test_no_more_than_ten_trials_are_run_where_all_end_at_the_cap(tmp_path):
    tasks = hitting_times.plan(Options(tmp_path, trials=12, max_n=30), cap=3000)
    table = trials_table(tmp_path / "t.csv", hitting_times.KEY_COLUMNS, hitting_times.RESULT_COLUMNS)
    judge = Skipping(table, tasks, larger=False)
    group = [t for t in tasks if (t.name["function"], t.name["setting"], t.name["n"]) == ("OneMax", CGA_1, 30)]
    rest = {"stream": STREAM, "calls": 1, "iterations": 1, "best": 0, "lam_r": 2, "seconds": 0}
    for task in group[:9]:
        table.add({**task.name, **rest, "solved": 0})
    assert [judge(task) for task in group[9:]] == [Readiness.GO, Readiness.WAIT, Readiness.WAIT]
    table.add({**group[9].name, **rest, "solved": 0})
    assert [judge(task) for task in group[10:]] == [Readiness.SKIP] * 2
    table.add({**group[3].name, **rest, "solved": 1})
    assert [judge(task) for task in group[10:]] == [Readiness.GO] * 2


def test_trials_of_an_earlier_stream_are_run_again(tmp_path):
    path, ran = tmp_path / "t.csv", []
    path.write_text(f"stream,number,square,seconds\n{STREAM - 1},0,0,0.1\n{STREAM},1,1,0.1\n")
    run_tasks(table_at(path), [counted(ran, i) for i in range(2)], 1, "test")
    assert ran == [0]


def test_on_equal_seeds_pbil_lambda_with_two_samples_is_cga():
    """The paper: with ε = 1/n it performed very similarly to cGA, as it kept λ = 2."""
    runs = [Run(kernel_of(OneMax(300)), ALGORITHMS[name](300), seed("pair")) for name in (LAMBDA_1, CGA_1)]
    assert [run.go(1e6, target=0.0) for run in runs] == [Status.TARGET] * 2
    assert runs[0].nfev == runs[1].nfev == 2 * runs[0].nit


# The committed tables.

TABLES = {
    "hitting-times": (hitting_times, hitting_times.reproduce),
    "hitting-times-drift": (drift, drift.reproduce),
    "lambda-dynamics": (lambda_dynamics, lambda_dynamics.reproduce),
    "alpha": (alpha, alpha.reproduce),
    "alpha-lambda-max": (alpha, lambda options: alpha.run_bounds(options, 3e7)),
    "noise": (noise, noise.reproduce),
    "theorem": (theorem, theorem.reproduce),
    "mechanism": (mechanism, mechanism.reproduce),
}
OUTDATED = {"alpha", "alpha-lambda-max", "hitting-times", "hitting-times-drift", "max-3-sat"}  # of stream 1
COMPILED = {"lambda-dynamics", "noise"}  # of those that are remade


class PlannedError(Exception):
    """The trials that a command would run."""


def numbers(text: str) -> object:
    """Return the numbers of a field up to what another machine may round; a name as it is."""
    try:
        return pytest.approx([float(word) for word in text.split()], rel=1e-3, abs=1e-6, nan_ok=True)
    except ValueError:
        return text


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in COMPILED else []) for name in TABLES]
)
def test_a_committed_row_is_remade(name, tmp_path, monkeypatch):
    module, reproduce = TABLES[name]
    rows = read_csv(ROOT / "docs" / "reproduction" / f"{name}.csv")
    streams = {row["stream"] for row in rows}
    if name in OUTDATED:
        assert streams < {str(STREAM - 1), str(STREAM)}
        pytest.skip(f"{name}.csv was made before the random stream was changed")
    assert streams == {str(STREAM)}

    def planned(table, tasks, *_):
        raise PlannedError({table.path.stem: tasks})

    monkeypatch.setattr(module, "run_tasks", planned)
    with pytest.raises(PlannedError) as plan:
        reproduce(Options(tmp_path, max_n=100 if name == "noise" else 1000))  # as the commands have it
    (tasks,) = plan.value.args[0].values()
    by_key = {task.key: task for task in tasks}
    names = ("stream", *tasks[0].name)
    keyed = {tuple(row[column] for column in names): row for row in rows}
    key = min(keyed.keys() & by_key.keys(), key=lambda key: (float(keyed[key]["seconds"]), key))
    made = by_key[key].run(Event())
    expected = {column: numbers(value) for column, value in keyed[key].items() if column in made}
    assert {column: [float(word) for word in str(value).split()] for column, value in made.items()} == expected


# The figures, computed another way.


@pytest.mark.slow
def test_a_row_is_what_the_engine_gives_for_its_seed(tmp_path):
    command("hitting-times", "--max-n", 30, "--trials", 2, "--cap", 2000, "--out", tmp_path)
    rows = [row for row in read_csv(tmp_path / "hitting-times.csv") if row["n"] == "10"]
    row = next(r for r in rows if (r["function"], r["setting"], r["trial"]) == ("OneMax", LAMBDA, "1"))
    run = Run(kernel_of(OneMax(10)), ALGORITHMS[LAMBDA](10), seed("hitting-times", "OneMax", 10, 1))
    run.go(2000, target=0.0)
    assert int(row["calls"]) == run.nfev
    group = [float(r["calls"]) for r in rows if (r["function"], r["setting"], r["n"]) == ("OneMax", LAMBDA, "10")]
    line = next(s for s in read_csv(tmp_path / "hitting-times-summary.csv") if s["setting"] == LAMBDA)
    assert float(line["median"]) == pytest.approx(np.median(group), abs=0.5)


def test_seeds_differ_by_every_word_and_are_the_same_tomorrow():
    assert seed("a", 1).entropy == seed("a", "1").entropy != seed("a", 2).entropy
    assert seed("a", 1).entropy != seed("a1").entropy


def test_quantiles_are_numpys_and_infinite_where_a_cut_off_trial_has_a_share():
    values = np.random.default_rng(0).normal(size=11)
    for q in (0.0, 0.25, 0.4, 0.5, 1.0):
        assert quantile(values, q) == pytest.approx(np.quantile(values, q))
    sample = Sample((1.0, 2.0, 3.0, math.inf))
    assert (sample.median, sample.quartiles[1], sample.solved) == (2.5, math.inf, 3)


def test_slopes_are_numpys_and_leave_out_sizes_with_cut_off_trials():
    rng = np.random.default_rng(1)
    samples = [(n, Sample(tuple(n**1.5 * rng.lognormal(size=5)))) for n in (10, 100, 1000)]
    x = np.log([n for n, s in samples for _ in s.calls])
    y = np.log([c for _, s in samples for c in s.calls])
    coefficients, covariance = np.polyfit(x, y, 1, cov=True)
    fit = slope([*samples, (3000, Sample((1.0, math.inf)))])
    assert fit is not None
    assert fit.slope == pytest.approx(coefficients[0])
    assert fit.error == pytest.approx(math.sqrt(covariance[0, 0]))
    assert slope(samples[:1]) is None


def test_marks_are_passed_by_less_than_an_iteration():
    run = Run(kernel_of(LeadingOnes(100)), ALGORITHMS[LAMBDA](100), 0)
    for mark in follow(run, [10, 500, 5000], Event()):
        assert mark <= run.nfev <= mark + 2 * run.lam_r


def test_the_noisy_kernel_is_one_max_plus_normal_numbers():
    objective = noise.noisy(3.0, "test")
    x = np.array([1, 0, 1, 1, 0, 1, 1, 1], dtype=np.int8)
    values = np.array([objective(x) for _ in range(20_000)]) - 2.0
    assert values.mean() == pytest.approx(0.0, abs=4 * 3.0 / math.sqrt(20_000))
    assert values.std() == pytest.approx(3.0, rel=0.03)
    assert (np.abs(values) < 3.0).mean() == pytest.approx(math.erf(1 / math.sqrt(2)), abs=0.015)
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.03
    assert noise.noisy(3.0, "test")(x) - 2.0 == values[0]
    assert noise.noisy(0.0, "test")(x) == 2.0


@pytest.mark.slow
def test_generated_instances_are_satisfiable_by_enumeration():
    instances = max_3_sat.generated(20)
    points = (np.arange(2**20)[:, None] >> np.arange(20) & 1).astype(np.int8)
    assert len({name for name, _ in instances}) == 10
    assert instances[0][1](points).min() == 0.0
    assert not max_3_sat.satisfiable(MaxSat([[1], [-1]]))


def test_satlib_names_are_found_in_order_and_other_sizes_refused(tmp_path):
    for number in (10, 2, 1):
        problem = MaxSat.random(20, 91, number)
        lines = ["p cnf 20 91", *(" ".join(map(str, clause)) + " 0" for clause in problem.clauses), "%", "0"]
        (tmp_path / f"uf20-{number:02d}.cnf").write_text("\n".join(lines))
    assert [name for name, _ in max_3_sat.from_folder(tmp_path, 20)] == ["uf20-01", "uf20-02", "uf20-10"]
    with pytest.raises(ValueError, match="expected files named uf50-01"):
        max_3_sat.from_folder(tmp_path, 50)
    (tmp_path / "uf50-01.cnf").write_text("p cnf 2 1\n1 2 0\n")
    with pytest.raises(ValueError, match="expected 50 variables and 218 clauses"):
        max_3_sat.from_folder(tmp_path, 50)


def test_a_missing_folder_is_one_line(tmp_path):
    result = CliRunner().invoke(app, ["max-3-sat", "--satlib", str(tmp_path), "--out", str(tmp_path / "o")])
    assert result.exit_code == 2
    assert "expected files named uf20-01.cnf" in result.stderr


def test_theorem_probabilities_are_those_of_the_family():
    for name in ("random f, 8 bits", "random f, 5 choices of 4"):
        small = theorem.space(name, 1)
        theta = theorem.beginning(small, 1, name)
        p = theorem.point_probabilities(small, theta)
        assert p.sum() == pytest.approx(1.0)
        assert p @ small.family.statistics(small.x) == pytest.approx(theta)  # θ = E_θ[T]


def test_alpha_is_measured_against_the_best_of_each_size():
    calls = {a: tuple(float(100 * (i + 1)) for _ in range(3)) for i, a in enumerate(alpha.ALPHAS)}
    samples = {("OneMax", a, 10): Sample(c) for a, c in calls.items()}
    assert alpha.relative(samples, "OneMax", alpha.ALPHAS[0], 10) == (1.0, 1.0, 1.0)
    assert alpha.relative(samples, "OneMax", alpha.ALPHAS[2], 10)[1] == 3.0


def test_the_command_says_what_it_needs():
    code = "import sys; sys.modules['typer'] = None; import reproduction.__main__ as m; m.main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == "Error: this command requires typer: pip install 'knobless[cli]'"


def test_sizes_below_those_of_the_fits_are_refused(tmp_path):
    result = CliRunner().invoke(app, ["hitting-times", "--max-n", "20", "--out", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (2, "Error: max_n: expected at least 30, got 20\n")


@pytest.mark.parametrize("name", [*COMMANDS, "all"])
def test_help_of_every_command(name):
    text = CliRunner(env={"COLUMNS": "200"}).invoke(app, [name, "--help"]).stdout
    for option in ("--out", "--trials", "--max-n", "--jobs", *(w for w in COMMANDS.get(name, ()) if "--" in str(w))):
        assert option in text


def test_subtracting_the_sample_mean_scales_the_expected_gradient():
    for lam in (2, 3, 4):
        assert mechanism.centering_factor(lam) == pytest.approx(1.0 - 1.0 / lam, abs=1e-12)


def test_the_covariance_needs_independent_and_centered_weights():
    assert min(mechanism.covariance_ratios()) > 0.1


def test_another_horizon_with_the_same_length_is_the_usual_adaptation():
    eps, z = 0.1, np.arange(5.0)
    usual, other = SNR(eps, 5.0), mechanism.OtherHorizon(eps, 5.0, beta=eps)
    signal = usual.start(np.zeros(5))
    for length in (1.0, 0.5, 2.0):
        expected, found = usual.step(signal, z, length), other.step(signal, z, length)
        assert (found[0], *found[1][1:]) == (expected[0], *expected[1][1:])
        np.testing.assert_array_equal(found[1].s, expected[1].s)
        signal = expected[1]
