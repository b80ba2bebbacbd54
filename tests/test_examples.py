"""The small examples run as they stand and print what their first lines say.

`python tests/test_examples.py` writes what they print into them anew; look at the difference before committing it.
"""

import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
# Longer ones, with tests of their own.
OTHERS = {
    *("bit_widths.py", "blackjack.py", "compiler_flags.py", "dask_cluster.py", "demo.py", "joint_training.py"),
    "power_stabilizer.py",
}
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.name not in OTHERS)
PRINTS = re.compile(r"(?<=It prints:\n\n)(?:    .*\n)+(?=\"\"\")")
EXTRAS = ("sklearn", "optuna")


def printed(path, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error", path], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return indented(done.stdout)


def indented(text):
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(path, tmp_path, monkeypatch, capfd):
    text = path.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def shown():
        if "workers=" in text:  # whose processes import the main script
            return printed(path, tmp_path)
        runpy.run_path(str(path), run_name="__main__")
        out, errors = capfd.readouterr()
        assert errors == ""
        return indented(out)

    for extra in EXTRAS:
        if re.search(rf"^(from|import) {extra}\b", text, re.MULTILINE):
            pytest.importorskip(extra)
    assert shown() == PRINTS.search(text)[0]
    if any(tmp_path.iterdir()):  # what it left there must not change what it prints
        assert shown() == PRINTS.search(text)[0]


def test_they_are_small():
    assert len(EXAMPLES) >= 8
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 70, path.name


if __name__ == "__main__":
    for path in EXAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            shown = printed(path, folder)
        path.write_text(PRINTS.sub(lambda _, shown=shown: shown, path.read_text(encoding="utf-8")), encoding="utf-8")
