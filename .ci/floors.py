"""Print the oldest version of each library that users install, as constraints for pip: `make test-floors`.

PyTorch is left out: an old one fits no other version of the tests' tools.
"""

import re
import tomllib
from pathlib import Path

# Libraries of these libraries and of the tests, as old as the oldest versions allow: with newer ones these warn.
INDIRECT = ("click<8.3", "pyparsing<3.2", "pytest<9")
EXTRAS = ("fast", "cli", "progress", "pandas", "plots", "dask", "optuna", "sklearn")

project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
required = [*project["dependencies"], *(each for extra in EXTRAS for each in project["optional-dependencies"][extra])]
for requirement in required:
    if bounded := re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement):
        print(f"{bounded[1]}=={bounded[2]}")
print(*INDIRECT, sep="\n")
