"""What is published besides the code: the table of extras, CITATION.cff, and the package for OptunaHub."""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import optuna
import optunahub
import yaml

import knobless as kl
from knobless.optuna import KnoblessSampler

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REGISTRY = ROOT / "package"
PACKAGE = REGISTRY / "samplers" / "knobless"
README = (PACKAGE / "README.md").read_text(encoding="utf-8")
FRONT = yaml.safe_load(README.split("---\n")[1])


def test_the_package_loads_and_its_examples_run(monkeypatch):
    def load(package):
        return optunahub.load_local_module(package, registry_root=str(REGISTRY))

    assert load("samplers/knobless").KnoblessSampler is KnoblessSampler
    monkeypatch.setattr(optunahub, "load_module", load)  # which would download it
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shown = {}
    exec(example, shown)
    assert shown["study"].best_value == 0
    script = runpy.run_path(str(PACKAGE / "example.py"), run_name="__main__")
    assert script["study"].best_params["model"] == "boosting"
    assert script["study"].best_value < 0.45


def test_the_front_matter_is_what_the_registry_requires():
    assert FRONT.keys() == {"author", "title", "description", "tags", "optuna_versions", "license"}
    assert "sampler" in FRONT["tags"]
    assert all(isinstance(each, str) for each in (*FRONT["tags"], *FRONT["optuna_versions"], FRONT["description"]))
    assert optuna.__version__.split(".")[0] in {each.split(".")[0] for each in FRONT["optuna_versions"]}


def test_license_and_requirements_are_those_of_the_project():
    assert (PACKAGE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    name, extra = re.fullmatch(r"(\w+)\[(\w+)\]\n", (PACKAGE / "requirements.txt").read_text()).groups()
    assert name == PROJECT["name"]
    assert extra in PROJECT["optional-dependencies"]


def test_the_table_of_extras_has_all_of_them_with_what_they_install():
    page = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
    rows = [
        line.split(" | ") for line in page.split("## Extras")[1].split("\n## ")[0].splitlines() if line[:3] == "| `"
    ]
    listed = {extra: row[1] for row in rows for extra in re.findall(r"`(\w+)`", row[0])}
    assert listed.keys() == PROJECT["optional-dependencies"].keys()
    for extra, required in PROJECT["optional-dependencies"].items():
        if listed[extra] != "tools of developers":
            names = {name for each in required for name in re.findall(r"^[\w-]+(?!.*\])|\w+(?=[,\]])", each)}
            assert set(re.findall(r"[\w-]+", listed[extra])) - {"and", "the", "extra", "extras"} == names, extra


def test_the_citation_is_that_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    heading = re.search(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert (citation["version"], citation["title"]) == (kl.__version__, PROJECT["name"])
    assert (citation["license"], citation["abstract"]) == (PROJECT["license"], PROJECT["description"])
    assert citation["authors"] == PROJECT["authors"]
    assert heading[1] == citation["version"]
    assert heading[2] == str(citation.get("date-released", "unreleased"))


def test_the_import_of_the_package_loads_no_other_module():
    code = "import sys, knobless; print(*[name for name in sys.modules if name.startswith('knobless')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["knobless"]


def test_every_public_name_is_found():
    assert [name for name in kl.__all__ if not hasattr(kl, name)] == []
    assert set(kl.__all__) <= set(dir(kl))
    assert len(kl.__all__) <= 26  # what users call; the rest is in the modules
