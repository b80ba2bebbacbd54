"""Kills: a run that is ended by SIGKILL at random moments, with one and four workers, resumes to the same result."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CRASH = Path(__file__).parent.parent / "benchmarks" / "crash.py"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the benchmark forks")
def test_four_kills():
    done = subprocess.run(
        [sys.executable, CRASH, "--kills", "4", "--seed", "3", "--budgets", "1200", "200"],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("4 kills; seed")
