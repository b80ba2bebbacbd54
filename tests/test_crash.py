"""Kills: a run that is ended by SIGKILL at random moments, with one and four workers, resumes to the same result."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CRASH = Path(__file__).parent / "attack" / "crash.py"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the benchmark forks")
@pytest.mark.parametrize("words", [["--budgets", "1200", "200"], ["--budgets", "300", "100", "--several"]])
def test_four_kills(words):
    done = subprocess.run(
        [sys.executable, CRASH, "--kills", "4", "--seed", "3", *words],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("4 kills; seed")
