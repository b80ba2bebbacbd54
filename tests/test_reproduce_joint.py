"""`python -m reproduction layers` and `activations`: verdicts follow the numbers, and nothing is trained twice."""

from __future__ import annotations

import csv
import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy.stats import mannwhitneyu
from typer.testing import CliRunner

from harness import mnist, read_csv, write_csv
from knobless.torch import data
from reproduction import Claim, Report, activations, layers, mechanism
from reproduction.commands import app
from reproduction.joint import missing, runs
from reproduction.joint.comparisons import all_of, claims_of_estimators, lower, rank_sum
from reproduction.joint.positions import position_rows, record_positions
from reproduction.joint.readings import claim_of_readings, results_of
from reproduction.joint.settings import TrainingOptions
from reproduction.joint.trials import Trials, read_trials

MODULES = {"layers": layers, "activations": activations}
EXPERIMENTS = {"layers": layers.LAYER_SELECTION, "activations": activations.ACTIVATION_SELECTION}
ROOT = Path(__file__).parents[1]
COMMITTED = Path(__file__).parent.parent / "docs" / "reproduction"
AT = (100, 1000, 10_000, 93_750)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trials(*medians: float, lam_r=(4.0, 8.0, 30.0, 10.0), eps=0.01, spread=0.01, count=12, at=AT) -> Trials:
    """Trials whose errors have these medians at these updates."""
    errors = np.array(medians) + spread * np.linspace(-1.0, 1.0, count)[:, None]
    same = np.ones((count, 1))
    rest = (same * np.array(lam_r), np.full(errors.shape, eps), np.full(errors.shape, 9.0))
    return Trials(tuple(range(count)), np.array(at, dtype=float), errors, *rest)


# As the paper has it: every claim must hold.
PAPER = {
    "layers": {
        "cga": trials(50, 9, 3, 2.240),
        "pbil-lambda": trials(30, 6, 2.5, 1.855, spread=0.1),
        "pbil-epsilon": trials(30, 5, 2.4, 1.795, spread=0.1),
        "ten-plain-layers": trials(20, 4, 2.2, 1.778, spread=0.2),
        "pbil-epsilon-no-skip": trials(90, 70, 5, 2.5, spread=1.0),
        "pbil-epsilon-no-clip": trials(90, 90, 90, 90, spread=0.0),
        "pbil-lambda-batch-128": trials(30, 5, 2.4, 1.7),
        "pbil-lambda-patient": trials(60, 9, 3, 2.4),
    },
    "activations": {
        "cga": trials(12, 6, 2.6, 1.450),
        "pbil-lambda": trials(12, 5, 2.3, 1.370),
        "pbil-epsilon": trials(12, 5, 2.3, 1.385, eps=1 / 3072 / 8),
        "relu": trials(11, 4, 1.8, 1.610),
        "tanh": trials(11, 5, 2.2, 1.520),
    },
}


def claims(name: str, found: dict[str, Trials]) -> list[Claim]:
    return layers.claims_of_layers(found) if name == "layers" else activations.claims_of_activations(found, found)


def verdicts(name: str, found: dict[str, Trials]) -> dict[str, bool | None]:
    return {claim.claim: claim.holds for claim in claims(name, found)}


CONTROLS = {
    "pbil-lambda-blind": trials(12, 5.5, 2.5, 1.5),
    "pbil-epsilon-blind": trials(12, 5.5, 2.5, 1.5),
    "stochastic": trials(12, 6, 3, 1.9),
}


def test_controls_are_judged_once_they_are_run():
    found = verdicts("activations", PAPER["activations"] | CONTROLS)
    assert len(found) == len(verdicts("activations", PAPER["activations"])) + 6
    assert set(found.values()) == {True}
    for setting, numbers, words in (
        ("pbil-lambda-blind", trials(12, 5.5, 2.2, 1.5), "mitigated by the search, and not because .*: PBIL-λ"),
        ("pbil-epsilon-blind", trials(12, 5.5, 2.5, 1.3), "final performance is due to the search.*: PBIL-ε"),
        ("pbil-lambda-blind", trials(12, 5.5, 2.5, 2.0), "Commitment to a random network .*: PBIL-λ"),
    ):
        changed = verdicts("activations", PAPER["activations"] | CONTROLS | {setting: numbers})
        fallen = [claim for claim, holds in changed.items() if not holds]
        assert len(fallen) == 1
        assert re.search(words, fallen[0])


@pytest.mark.parametrize("name", MODULES)
def test_all_claims_hold_on_the_papers_numbers_and_none_is_decided_without_numbers(name):
    assert set(verdicts(name, PAPER[name]).values()) == {True}
    assert set(verdicts(name, {}).values()) == {None}
    assert all(claim.measured.startswith("not run: ") for claim in claims(name, {}))


LEVEL = (2.0, 20.0, 20.0, 20.0)  # λ_r grown before 1 % of the updates, and level from there on
ORDER = ("The paper's numbers", "ten times the updates")
FLIPS = [  # other numbers of one setting, and words of the claims that then hold no longer: these, and no others
    ("layers", "pbil-lambda", trials(30, 9.5, 2.5, 1.855), ["training: PBIL-λ"]),
    ("layers", "pbil-epsilon", trials(30, 5, 3.5, 1.795, spread=0.1), ["training: PBIL-ε"]),
    ("layers", "pbil-lambda", trials(30, 6, 2.5, 2.35), ["iteration: PBIL-λ", "plain layers: PBIL-λ"]),
    ("layers", "pbil-epsilon", trials(30, 5, 2.4, 2.5, spread=0.1), ["iteration: PBIL-ε", "plain layers: PBIL-ε"]),
    ("layers", "pbil-lambda", trials(30, 6, 2.5, 1.855, lam_r=LEVEL), ["dynamically: PBIL-λ"]),
    ("layers", "pbil-epsilon", trials(30, 5, 2.4, 1.795, spread=0.1, lam_r=LEVEL), ["dynamically: PBIL-ε"]),
    ("layers", "ten-plain-layers", trials(20, 4, 2, 1.5), ["ten, whose", "layers: PBIL-λ", "layers: PBIL-ε"]),
    ("layers", "pbil-epsilon-no-skip", trials(30, 5, 2.4, 1.7, spread=0.05), ["due to the skip"]),
    ("layers", "pbil-epsilon-no-clip", trials(30, 5, 2.4, 1.7, spread=0.05), ["Clipping"]),
    ("layers", "pbil-lambda-batch-128", trials(30, 5, 2.4, 2.0), ["size 2N"]),
    ("layers", "pbil-lambda-patient", trials(30, 5, 2.4, 1.5), ["more promising"]),
    ("activations", "relu", trials(11, 4, 1.8, 1.40), ["over fixed M in the final performance: all R", *ORDER]),
    ("activations", "tanh", trials(11, 5, 2.2, 1.40), ["over fixed M in the final performance: all t", *ORDER]),
    ("activations", "relu", trials(11, 7, 1.8, 1.61), ["slower than with fixed M: all ReLU"]),
    ("activations", "tanh", trials(11, 5, 3.0, 1.52), ["slower than with fixed M: all tanh"]),
    ("activations", "pbil-lambda", trials(12, 7, 2.3, 1.37), ["mitigated by our methods: PBIL-λ"]),
    ("activations", "pbil-epsilon", trials(12, 5, 3, 1.37, eps=1e-5), ["mitigated by our methods: PBIL-ε"]),
    ("activations", "pbil-lambda", trials(12, 5, 2.3, 1.48), ["in the final performance: PBIL-λ", *ORDER]),
    ("activations", "pbil-epsilon", trials(12, 5, 2, 1.48, eps=1e-5), ["in the final performance: PBIL-ε", *ORDER]),
    ("activations", "pbil-epsilon", trials(12, 5, 2, 1.37, eps=1e-5, lam_r=LEVEL), ["The step-size in PBIL-ε"]),
    ("activations", "pbil-lambda", trials(12, 5, 2, 1.37, lam_r=LEVEL), ["the sample size in PBIL-λ"]),
    ("activations", "pbil-epsilon", trials(12, 5, 2, 1.37, eps=1 / 3072 / 2), ["ε became much smaller"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "setting", "numbers", "words"), FLIPS)
def test_a_verdict_follows_its_numbers_and_no_others(name, setting, numbers, words):
    fallen = [claim for claim, holds in verdicts(name, {**PAPER[name], setting: numbers}).items() if holds is False]
    assert len(fallen) == len(words)
    assert all(any(word in claim for claim in fallen) for word in words), fallen


def test_every_claim_can_fall():
    for name in MODULES:
        flips = [words for experiment, _, _, words in FLIPS if experiment == name]
        assert {c for c in verdicts(name, {}) if not any(w in c for words in flips for w in words)} == set()


@pytest.mark.parametrize("name", MODULES)
def test_what_may_be_chance_is_not_decided(name):
    alike = {setting: trials(5, 5, 5, 5) for setting in PAPER[name]}
    compared = [c for c in claims(name, alike) if "p < 0.01" in c.criterion and "within" not in c.criterion]
    assert len(compared) == (6 if name == "layers" else 10)
    assert {claim.holds for claim in compared} == {None}


def test_the_long_run_decides_its_own_claim_alone():
    found = PAPER["activations"]
    without, right, wrong = (
        activations.claims_of_activations(found, longer)
        for longer in ({}, {k: v for k, v in found.items() if k != "pbil-lambda"}, {**found, "relu": found["cga"]})
    )
    assert [c.holds for c in without] == [True] * 12 + [None]
    assert [c.holds for c in right] == [True] * 13  # PBIL-λ is not asked for
    assert [c.holds for c in wrong] == [True] * 12 + [False]


def test_other_estimators_are_judged_once_they_are_run():
    assert claims_of_estimators(PAPER["layers"]) == []
    found = PAPER["layers"] | {"gumbel": trials(9, 5, 3, 2.1), "reinforce": trials(9, 5, 3, 1.5)}
    assert [claim.holds for claim in claims_of_estimators(found)] == [True, False, True, False]


@pytest.mark.parametrize(("name", "setting"), [("layers", "cga"), ("activations", "relu")])
def test_a_reading_agrees_if_all_medians_are_close(name, setting):
    experiment, found = EXPERIMENTS[name], PAPER[name]
    judge = lambda its: claim_of_readings(experiment, results_of(experiment, {93_750: its})).holds  # noqa: E731
    median = experiment.paper[setting].median
    far = {setting: trials(9, 5, 3, median + 0.06)}
    assert judge(found) is True
    assert judge(found | far) is False
    assert judge(found | {setting: trials(9, 5, 3, median + 0.05)}) is True
    assert judge({setting: found[setting]}) is None
    varied = {f"{s}-he": its for s, its in found.items() if s in experiment.paper}
    assert judge(found | far | varied) is True


def test_a_reading_may_change_some_settings_alone():
    experiment = EXPERIMENTS["activations"]
    far, near = trials(9, 5, 3, 2.0), PAPER["activations"]
    found = near | {"relu": far, "tanh": far, "relu-batch-128": near["relu"], "tanh-batch-128": near["tanh"]}
    first, second = results_of(experiment, {93_750: found})
    assert [max(each.distances(experiment).values()) <= 0.05 for each in (first, second)] == [False, True]
    assert second.own == ["relu", "tanh"]


# Comparisons, computed another way.

few = st.lists(st.integers(0, 8), min_size=3, max_size=30)


@given(few, few)
def test_the_rank_sum_test_is_scipys(a, b):
    x, y = np.array(a, dtype=float), np.array(b, dtype=float)
    if len({*a, *b}) == 1:
        assert rank_sum(x, y) == 1.0
    else:
        expected = mannwhitneyu(x, y, method="asymptotic").pvalue
        assert rank_sum(x, y) == pytest.approx(expected, rel=1e-9)
        assert rank_sum(y, x) == pytest.approx(expected, rel=1e-9)


def test_lower_needs_a_difference_beyond_chance():
    x = np.linspace(1.0, 2.0, 12)
    assert lower(x, x + 1.0) is True
    assert lower(x + 1.0, x) is False
    assert lower(x, x + 0.1) is None
    assert lower(x[:3], x[:3] + 9.0) is None  # three trials never are enough


def test_three_valued_and():
    assert all_of([True, True]) is True
    assert all_of([True, None]) is None
    assert all_of([None, False]) is False
    assert all_of([]) is None


def test_a_share_of_the_updates_is_looked_up_on_the_logarithmic_scale():
    found = trials(1, 2, 3, 4)
    assert [found.place(share) for share in (0.001, 0.01, 0.1, 1.0)] == [0, 1, 2, 3]
    assert found.place(0.03) == 1  # 2812: nearer to 1000 than to 10,000 by factors
    assert found.place(0.05) == 2


def test_durations_have_their_unit():
    assert [missing.duration(s) for s in (0.1, 90, 150, 7300, 200_000)] == ["1 s", "90 s", "2 min", "2 hours", "2 days"]


def test_the_time_on_a_cpu_is_that_of_an_update_times_their_number(monkeypatch, few_images):
    clock = itertools.count()
    monkeypatch.setattr(missing.time, "perf_counter", lambda: next(clock))  # each look a second later
    settings = runs.chosen("layers", ["ten-layers", "pbil-lambda"])
    said = missing.cpu_estimate(settings, mnist.mnist(None), {setting.name: [0] for setting in settings}, 93_750)
    # Two updates were between two looks.
    assert said.startswith("93,750 updates will take about 26 hours on this CPU (ten-layers 13 hours, pbil-lambda 13 h")


# The CSV.


def write(path: Path, found: dict[str, Trials], updates: int = 93_750) -> None:
    rows = []
    for setting, its in found.items():
        for i, number in enumerate(its.numbers):
            for j, update in enumerate(its.at):
                named = {"setting": setting, "updates": updates, "trial": number, "update": int(update)}
                measured = {name: getattr(its, name)[i, j] for name in ("error", "lam_r", "eps", "ones")}
                if setting in ("relu", "tanh", "ten-plain-layers"):
                    measured = {"error": measured["error"]}
                rows.append({**named, **measured})
    runs.add_rows(path, rows)


def test_what_is_read_is_what_was_written(tmp_path):
    write(tmp_path / "t.csv", PAPER["activations"])
    write(tmp_path / "t.csv", {"cga": trials(9, 3, 1, at=(100, 1000, 937_500), lam_r=(2, 2, 2))}, 937_500)
    found = read_trials(tmp_path / "t.csv")
    assert set(found) == {93_750, 937_500}
    assert list(found[93_750]) == list(PAPER["activations"])
    for name in ("at", "error", "lam_r", "eps", "ones"):
        assert np.array_equal(getattr(found[93_750]["cga"], name), getattr(PAPER["activations"]["cga"], name))
    assert np.isnan(found[93_750]["relu"].lam_r).all()
    assert found[937_500]["cga"].at[-1] == 937_500


def test_a_trial_without_its_last_row_does_not_count(tmp_path):
    path = tmp_path / "t.csv"
    write(path, {"cga": trials(9, 3, 2, 1, count=4)})
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("cga,93750,2,93750")))
    assert read_trials(path)[93_750]["cga"].numbers == (0, 1, 3)
    assert read_trials(tmp_path / "none.csv") == {}


@pytest.mark.parametrize("text", ["setting,updates,trial,update,error,lam_r,eps,ones\ncga,937,,,,,,\n", "a,b\n1,2\n"])
def test_a_broken_csv_is_named_with_its_line(tmp_path, text):
    (tmp_path / "layers.csv").write_text(text)
    with pytest.raises(ValueError, match=r"layers.csv, line 2: expected a row of a trial, got"):
        read_trials(tmp_path / "layers.csv")


def test_settings_have_the_names_under_which_they_are_trained():
    for name in MODULES:
        assert set(EXPERIMENTS[name].known) == {setting.name for setting in runs.EXPERIMENTS[name]}
        assert EXPERIMENTS[name].settings == tuple(setting.name for setting in runs.MAIN[name])
        searched = [setting for setting in runs.EXPERIMENTS[name] if setting.algorithm is not None]
        assert {setting.network.n for setting in searched} == {EXPERIMENTS[name].n}


# The order of the losses in an iteration.


def test_pairs_are_counted_within_iterations():
    losses = np.array([[3.0, 1.0, 2.0, 2.0, 5.0, 4.0, 3.0, 9.0]])
    ends = np.array([[0, 1, 0, 1, 0, 0, 1, 0]], dtype=bool)  # the last iteration does not close
    first, second = position_rows(losses, ends, [0, 4, 8])
    assert (first["iterations"], first["pairs"], first["later_lower"]) == (2, 2, "0.75")  # equal ones count half
    assert (second["iterations"], second["pairs"], second["later_lower"]) == (1, 3, "1")


def test_the_losses_by_position_are_recorded_and_judged(few_images, tmp_path):
    path = tmp_path / "positions.csv"
    assert mechanism.claim_of_positions(path).holds is None
    record_positions("layers", mnist.mnist(None), 1, 200, 4, "cpu", tmp_path)
    rows = read_csv(path)
    assert [(row["end"], row["iterations"], row["pairs"]) for row in rows] == [("2", "1", "1"), ("4", "1", "1")]
    for shares, holds in ((("0.6", "0.6"), True), (("0.6", "0.4"), False)):
        write_csv(path, [{**row, "later_lower": share} for row, share in zip(rows, shares, strict=True)])
        assert mechanism.claim_of_positions(path).holds is holds


# The commands.


def command(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "1000"})
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def without_drawing(monkeypatch):
    """Write pictures without contents: to draw them takes longer than all else, and other tests do it."""
    monkeypatch.setattr(Figure, "savefig", lambda _, path: path.write_bytes(b""))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_what_is_committed_is_what_the_committed_csv_gives(name, tmp_path):
    for ending in (".csv", "-meta.json"):
        shutil.copy(COMMITTED / f"{name}{ending}", tmp_path)
    before = files(tmp_path)
    command(name, "--out", tmp_path)
    after = files(tmp_path)
    assert {key: after[key] for key in before} == before  # neither is written to
    for made in (f"{name}-claims.md", f"{name}-claims.csv", f"{name}-claims.json"):
        assert after[made].decode() == (COMMITTED / made).read_text(encoding="utf-8")
    for made in (f"{name}-summary.csv", f"{name}-readings.csv"):
        assert after[made].decode() == (COMMITTED / made).read_text(encoding="utf-8")
    pictures = {key for key in after if key.endswith(".png")}
    if (COMMITTED / f"{name}.png").exists():  # an sdist has no pictures
        assert pictures == {path.name for path in COMMITTED.glob(f"{name}*.png")}
    assert all(after[picture].startswith(b"\x89PNG") for picture in pictures)


def test_the_table_has_medians_and_quartiles_beside_the_papers():
    with (COMMITTED / "layers.csv").open() as file:
        final = [float(r["error"]) for r in csv.DictReader(file) if (r["setting"], r["update"]) == ("cga", "93750")]
    middle, low, high = np.quantile(final, [0.5, 0.25, 0.75])
    line = f"| cGA | 30 | {middle:.3f} ({low:.3f}, {high:.3f}) | 2.240 (2.130, 2.298) |"
    assert line in (COMMITTED / "layers-claims.md").read_text(encoding="utf-8")


def test_the_numbers_in_the_readme_are_those_of_the_tables():
    claims_of = "".join((COMMITTED / f"{name}-claims.md").read_text(encoding="utf-8") for name in MODULES)
    section = (COMMITTED / "README.md").read_text(encoding="utf-8").split("## Layers and activations")[1]
    cells = re.findall(r"\d\.\d{3} \(\d\.\d{3}, \d\.\d{3}\)", section)
    assert len(cells) == 16 + 20 + 15  # and those of other readings, of the long runs and of other estimators
    assert [cell for cell in cells if f"| {cell} |" not in claims_of] == []


@pytest.mark.slow
@pytest.mark.usefixtures("without_drawing")
def test_the_long_run_appears_with_its_rows(tmp_path):
    write(tmp_path / "activations.csv", PAPER["activations"])
    longer = {s: trials(9, 3, e, lam_r=(2, 4, 9), at=(100, 9375, 937_500)) for s, e in (("cga", 1.4), ("relu", 1.6))}
    write(tmp_path / "activations.csv", longer, 937_500)
    command("activations", "--trials", 12, "--out", tmp_path)
    assert (tmp_path / "activations-long.png").exists()
    text = (tmp_path / "activations-claims.md").read_text(encoding="utf-8")
    assert "| cGA | 12 | 1.400 (1.395, 1.405) |" in text.split("### After 937,500 updates")[1]
    assert json.loads((tmp_path / "activations-claims.json").read_text())[-2]["holds"] == "not decided"


WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None; sys.argv[1:] = {!r}; import reproduction.__main__ as m; m.main()"
)


def without_torch(*words: object) -> subprocess.CompletedProcess[str]:
    code = WITHOUT_TORCH.format([str(word) for word in words])
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_pictures_need_no_torch_and_training_says_that_it_does(tmp_path):
    write(tmp_path / "layers.csv", PAPER["layers"])
    done = without_torch("layers", "--trials", 12, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "layers.png").exists()
    done = without_torch("layers", "--trials", 13, "--out", tmp_path)
    assert (done.returncode, done.stderr.strip()) == (
        1,
        "Error: this command requires torch: pip install 'knobless[torch]'",
    )


@pytest.fixture
def few_images(monkeypatch):
    """Noise in the shape of MNIST, and what is trained on it."""
    rng = np.random.default_rng(0)
    images = data.Data(
        *(rng.integers(0, 256, (64, 784)).astype(np.uint8), rng.integers(0, 10, 64).astype(np.uint8)),
        *(rng.integers(0, 256, (20, 784)).astype(np.uint8), rng.integers(0, 10, 20).astype(np.uint8)),
    )
    monkeypatch.setattr(mnist, "mnist", lambda folder: images)
    trained: list[tuple[str, list[int]]] = []
    train_setting = runs.train_setting

    def counted(setting, images, numbers, *rest):
        trained.append((setting.name, list(numbers)))
        return train_setting(setting, images, numbers, *rest)

    monkeypatch.setattr(runs, "train_setting", counted)
    return trained


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_training_ends_in_a_report_and_is_not_done_again(name, tmp_path, few_images):
    said: list[str] = []
    experiment = EXPERIMENTS[name]
    options = TrainingOptions(tmp_path, trials=1, iterations=3, device="cpu")
    report = MODULES[name].reproduce(options, said.append)
    assert few_images == [(setting, [0]) for setting in experiment.settings]
    assert re.match(r"3 updates will take about \d+ \w+ on this CPU \(cga \d+ \w+, ", said[1])
    assert said[2].startswith(f"[1/{len(experiment.settings)}] cga: 3 of 3 updates, test error")
    assert {claim.verdict for claim in report.claims} <= {"holds", "does not hold", "not decided"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path, _ in report.figures)
    assert not (tmp_path / f"{name}-long.png").exists()
    before = (tmp_path / f"{name}.csv").read_bytes()
    missing.train_missing(experiment, options, said.append)
    assert len(few_images) == len(experiment.settings)
    missing.train_missing(experiment, TrainingOptions(tmp_path, 2, 3, "cpu", ("pbil-lambda",)), said.append)
    assert few_images[len(experiment.settings) :] == [("pbil-lambda", [1])]
    assert (tmp_path / f"{name}.csv").read_bytes().startswith(before)


def test_what_was_stopped_goes_on_with_the_next_setting(tmp_path, few_images):
    def stop(line: str) -> None:
        if line.startswith("[2/"):
            raise KeyboardInterrupt

    options = TrainingOptions(tmp_path, 1, 2, "cpu", ("cga", "ten-layers"))
    with pytest.raises(KeyboardInterrupt):
        missing.train_missing(layers.LAYER_SELECTION, options, stop)
    assert list(read_trials(tmp_path / "layers.csv")[2]) == ["cga"]
    missing.train_missing(layers.LAYER_SELECTION, options, lambda line: None)
    assert few_images == [("cga", [0]), ("ten-layers", [0]), ("ten-layers", [0])]
    assert list(read_trials(tmp_path / "layers.csv")[2]) == ["cga", "ten-layers"]


def test_both_experiments_may_be_stopped_in_the_same_folder(tmp_path):
    both = [runs.checkpoint_of(tmp_path, runs.MAIN[name][0], 100) for name in MODULES]
    assert both[0] != both[1]


@pytest.mark.slow
@pytest.mark.usefixtures("without_drawing")
def test_the_command_trains_what_it_is_told(tmp_path, few_images):
    words = ["--algorithms", "cga,pbil-epsilon", "--algorithms", "ten-layers", "--trials", 1, "--iterations", 2]
    said = command("layers", *words, "--device", "cpu", "--out", tmp_path)
    assert [name for name, _ in few_images] == ["cga", "pbil-epsilon", "ten-layers"]
    assert "[3/3] ten-layers: 2 of 2 updates" in said
    assert "not run: PBIL-λ" in said


@pytest.mark.parametrize("name", MODULES)
def test_help_names_the_options(name):
    said = command(name, "--help")
    for option in ("--trials", "--iterations", "--device", "--algorithms", "--mnist", "--out"):
        assert option in said
    assert "30" in said
    assert "93750" in said


def test_what_a_user_can_mend_is_one_line(tmp_path, few_images):
    out = ("--out", tmp_path, "--trials", 1, "--iterations", 2)
    expected = f"Error: algorithms: expected some of {', '.join(layers.LAYER_SELECTION.known)}, got 'relu'"
    assert command("layers", "--algorithms", "relu", *out, code=2).strip() == expected
    said = command("layers", "--device", "tpu", *out, code=2).strip()
    assert said == "Error: device: expected cpu, cuda or one GPU such as cuda:0, got 'tpu'"
    assert few_images == []
    with pytest.raises(ValueError, match="trials: expected an integer of at least 1, got 0"):
        layers.reproduce(TrainingOptions(tmp_path, trials=0), few_images.append)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_not_asked_for_and_said(tmp_path):
    assert missing.device_of(None) == "cpu"
    said = command("activations", "--device", "cuda", "--out", tmp_path, code=2).strip()
    assert said == "Error: device: expected an available device, got 'cuda', and PyTorch finds no GPU"


def test_without_mnist_it_says_how_to_get_it(tmp_path):
    said = command("layers", "--device", "cpu", "--mnist", tmp_path / "empty", "--out", tmp_path, code=2)
    assert "expected the four files of MNIST" in said


def test_a_csv_of_other_trainings_only_is_said():
    with pytest.raises(ValueError, match=r"layers.csv: expected trials of 10 updates, got 93,750"):
        layers.report(COMMITTED, 10)


@pytest.mark.slow
@pytest.mark.usefixtures("without_drawing")
def test_all_has_them_where_they_were_trained(tmp_path, monkeypatch):
    for name in ("hitting_times", "lambda_dynamics", "alpha", "max_3_sat", "noise", "theorem", "mechanism"):
        __import__(f"reproduction.{name}")
        empty = Report(name, name, "", (), ())
        monkeypatch.setattr(sys.modules[f"reproduction.{name}"], "reproduce", lambda *_, empty=empty, **__: empty)
    command("all", "--out", tmp_path)
    assert 'id="layers"' not in (tmp_path / "index.html").read_text()
    write(tmp_path / "layers.csv", PAPER["layers"])
    command("all", "--out", tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert 'id="layers"' in page
    assert 'id="activations"' not in page


@pytest.mark.slow
def test_training_needs_nothing_but_numpy_and_torch(tmp_path):
    others = ("matplotlib", "numba", "rich", "scipy", "tqdm", "typer", "pysat")
    code = f"import sys; sys.modules.update(dict.fromkeys({others})); import reproduction.joint.__main__ as m; m.main()"
    words = ["layers", "--mnist", str(tmp_path), "--device", "cpu", "--out", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "expected the four files of MNIST" in done.stderr
