"""The package of OptunaHub: it loads from this folder as from a registry, and has what the registry requires."""

import re
import runpy
import tomllib
from pathlib import Path

import optuna
import optunahub
import yaml

from knobless.optuna import KnoblessSampler

REGISTRY = Path(__file__).resolve().parent.parent / "package"
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
    project = tomllib.loads((REGISTRY.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (PACKAGE / "LICENSE").read_text() == (REGISTRY.parent / "LICENSE").read_text()
    name, extra = re.fullmatch(r"(\w+)\[(\w+)\]\n", (PACKAGE / "requirements.txt").read_text()).groups()
    assert name == project["name"]
    assert extra in project["optional-dependencies"]
