"""A fixed slice of the attacks of `tests/attack`, by seed; a case that is wrong prints what differed.

`python tests/attack --only NAME --case SEED` reruns one of them, `python tests/attack` runs many more.
"""

import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("the attacks limit and fork processes", allow_module_level=True)

from attack import ask_tell, compiled, differential, hostile

COMMAND = Path(__file__).parent / "attack"

DIFFERENTIAL, COMPILED, FUZZER, HOSTILE = 18, 6, 30, 60  # cases of each attack


def cases(count, size, *more):
    """The seeds in groups, so that they can be split between processes; all but the first group are slow tests.

    `more` are seeds that were wrong once.
    """
    groups = [*(range(i, min(i + size, count)) for i in range(0, count, size)), *([seed] for seed in more)]
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "seeds",
        [pytest.param(seeds, id=f"{seeds[0]}-{seeds[-1]}", marks=[slow] if seeds[0] else []) for seeds in groups],
    )


def wrong(attack, seeds, tmp_path):
    """What differed, by seed."""
    found = {}
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        if differences := attack(seed, folder):
            found[seed] = differences
    return found


@pytest.mark.slow
@cases(DIFFERENTIAL, 6)
def test_a_result_does_not_depend_on_how_it_is_evaluated_recorded_or_resumed(seeds, tmp_path):
    assert wrong(differential.attack, seeds, tmp_path) == {}


@cases(COMPILED, 1)
def test_a_compiled_run_is_the_same_in_python(seeds, tmp_path):
    assert wrong(compiled.attack, seeds, tmp_path) == {}


@cases(FUZZER, 5, 211)  # a resumed run had another layout of its points in memory, and another last digit of θ
def test_the_order_and_form_of_calls_do_not_matter(seeds, tmp_path):
    assert wrong(ask_tell.attack, seeds, tmp_path) == {}


@cases(HOSTILE, 5)
def test_an_untrusted_file_opens_or_fails_with_an_error_of_the_library(seeds, tmp_path):
    def attack(seed, folder):
        return [each for each in map(hostile.outcome, hostile.uses(seed, folder).values()) if each]

    assert wrong(attack, seeds, tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("races", 12), ("kill", 1)])  # in a process that can be forked and killed
def test_one_of_two_writers_is_refused_and_a_killed_run_loses_nothing(name, count):
    words = ["--only", name, "--cases", str(count), "--minutes", "5", "--jobs", "1"]
    ended = subprocess.run([sys.executable, COMMAND, *words], capture_output=True, text=True, timeout=400)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    assert ended.stdout.split()[-4:-1] == [name, str(count), "0"]
