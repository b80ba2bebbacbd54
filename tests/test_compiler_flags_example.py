"""The example of compiler flags: a level is a point of the space, and the search improves on it."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("size")), reason="needs gcc and size")
pytest.importorskip("matplotlib", reason="the run is drawn: pip install 'knobless[plots]'")

PROGRAM = """
#include <stdio.h>
static int values[200];
int main(void) {
    for (int i = 0; i < 200; i++) values[i] = i * 7919 % 200;
    for (int i = 1; i < 200; i++)
        for (int j = i; j && values[j - 1] > values[j]; j--) {
            int v = values[j];
            values[j] = values[j - 1];
            values[j - 1] = v;
        }
    printf("%d\\n", values[199]);
    return 0;
}
"""


@pytest.fixture(scope="module")
def compiler_flags():
    path = Path(__file__).resolve().parent.parent / "examples" / "compiler_flags.py"
    spec = importlib.util.spec_from_file_location("compiler_flags", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "sort.c"
    path.write_text(PROGRAM, encoding="utf-8")
    return str(path)


def test_a_level_is_a_point_with_its_own_options_only(compiler_flags):
    space = compiler_flags.search_space()
    for level in compiler_flags.LEVELS:
        point = compiler_flags.point_at(level)
        assert compiler_flags.options(space.decode(space.encode(point))) == [level]
    point = compiler_flags.point_at("-Os")
    name = next(iter(compiler_flags.flags_at("-Os")))
    point["flags"][0] ^= 1
    point["parameters"]["max-combine-insns"] = 3
    assert compiler_flags.options(point) in (
        ["-Os", f"-f{prefix}{name}", "--param=max-combine-insns=3"] for prefix in ("", "no-")
    )


def test_size_is_at_most_that_of_the_initial_point(compiler_flags, program, tmp_path):
    compiler_flags.main(["size", program, "--budget", "6", "--output", f"{tmp_path}/found.json"])
    report = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert report["bytes"]["found"] == compiler_flags.size([program], report["options"]) <= report["bytes"]["-Oz"]
    assert report["values"][0] == report["bytes"]["-Oz"]


def test_a_program_that_fails_has_no_seconds(compiler_flags, program):
    assert compiler_flags.seconds([program], ["-O1"]) == 199
    Path(program).write_text("int main(void) { return 3; }", encoding="utf-8")
    with pytest.raises(RuntimeError, match="program failed"):
        compiler_flags.seconds([program], ["-O1"])
