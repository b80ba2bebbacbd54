"""The example of bit widths finds a network that is smaller than one of four bits, and about as accurate."""

import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="knobless.torch needs torch: pip install 'knobless[torch]'")


@pytest.mark.slow
def test_the_mode_is_small_and_accurate(capfd):
    runpy.run_path(str(Path(__file__).resolve().parent.parent / "examples" / "bit_widths.py"), run_name="__main__")
    out, errors = capfd.readouterr()
    assert errors == ""
    found = [tuple(map(float, each)) for each in re.findall(r": ([\d.]+) kB, accuracy ([\d.]+)", out)]
    assert len(found) == 5
    size, accuracy = found[-1]
    assert found[0][0] < size < found[2][0]
    assert accuracy > found[0][1]
    assert accuracy > 0.93
