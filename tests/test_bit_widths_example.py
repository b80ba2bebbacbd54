"""The example of bit widths finds a network that is smaller than one of four bits, and about as accurate."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="knobless.torch needs torch: pip install 'knobless[torch]'")


@pytest.mark.slow
def test_the_mode_is_small_and_accurate():
    path = Path(__file__).resolve().parent.parent / "examples" / "bit_widths.py"
    done = subprocess.run([sys.executable, "-W", "error", path], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    found = [tuple(map(float, each)) for each in re.findall(r": ([\d.]+) kB, accuracy ([\d.]+)", done.stdout)]
    assert len(found) == 5
    size, accuracy = found[-1]
    assert found[0][0] < size < found[2][0]
    assert accuracy > found[0][1]
    assert accuracy > 0.93
