"""The page of the constants of the default searches, from the code: values, and comments beside them.

    python benchmarks/constants.py > docs/constants.md

`tests/test_constants.py` compares the page with the code. Constants that do not change which points are
evaluated, such as sizes of blocks, are left out by name.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import knobless

PACKAGE = Path(knobless.__file__).parent
MODULES = {
    "core/catalog.py": "Which members, and for how long",
    "core/turns.py": "Turns of members",
    "core/branching.py": "Turns of branches",
    "core/model.py": "Model: which points",
    "core/acquisition.py": "Model: candidates for the largest expected improvement",
    "core/kernel.py": "Model: the Gaussian process",
    "core/surrogate.py": "Model: fits and violations",
    "core/hypervolume_improvement.py": "Model: several objectives",
    "core/pareto_evolution.py": "Evolution of a front",
    "core/p3.py": "P3",
    "core/evolution.py": "Genetic algorithm",
    "core/quadratic.py": "Study of quadratic functions",
    "core/coordinate_search.py": "Coordinate search",
    "core/linear.py": "Linear search under noise",
    "core/linear_model.py": "Linear model",
    "core/interaction_model.py": "Model with interactions under noise",
    "core/gaussian.py": "Numbers",
    "core/early_stopping.py": "Early stopping",
    "run/noise_test.py": "Tests for noise",
    "run/recommendation.py": "The recommended point",
    "run/feasibility.py": "Constraints",
    "run/run_state.py": "Other rules of a run",
}
# Sizes of blocks and of memory, limits for files, and names of values that are no numbers.
LEFT_OUT = {
    *("BLOCK_SIZE", "ROOT", "ERFC", "ROWS", "TILE", "KEPT", "ELITIST", "DETERMINISTIC", "HALF", "MOST_EQUAL"),
    *("UNCROSSED", "VERIFIED", "RECENT", "MOST_WORDS", "MOST_PENDING", "REPAIRS"),
}
HEAD = """# Constants

There is nothing for the user to set. The searches that run by default depend on the constants on
this page, which were chosen by experiments, and on what follows from the space: with n
[free parameters](algorithm.md), PBIL-λ has the step length n^−½ and at most max(n, 2) samples per
iteration, the target of its signal-to-noise ratio is 1.5, and its sample size begins at 2, all as
in the paper. [What runs when](what_runs_when.md) describes the parts.

The page is generated from the code by `python benchmarks/constants.py`. Constants that do not
change which points are evaluated are left out.
"""


class Constant(NamedTuple):
    """Names of constants of one line, their values, and the comment."""

    names: str
    value: str
    comment: str


def constants_of(module: str) -> list[Constant]:
    """Return the constants of a module, with the comment beside or above each."""
    text = (PACKAGE / module).read_text(encoding="utf-8")
    lines, found = text.splitlines(), []
    for node in ast.parse(text).body:
        names = ast.unparse(node.targets[0]).strip("()") if isinstance(node, ast.Assign) else ""
        upper = names.replace(", ", "").isupper() and not names.startswith("_")
        if upper and is_plain(node) and not set(names.split(", ")) & LEFT_OUT:
            beside = lines[node.end_lineno - 1].partition("  # ")[2]
            comment = beside or above(lines, node.lineno - 1)
            value = ast.unparse(node.value)
            value = value.strip("()") if ", " in names else value
            found.append(Constant(names, value, comment[:1].upper() + comment[1:]))
    return found


def is_plain(node: ast.AST) -> bool:
    """Return whether a value is made of numbers, and not by a class or a function of this library."""
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return not any(isinstance(function, ast.Name) for function in calls)


def above(lines: list[str], row: int) -> str:
    """Return the comment that ends above a row."""
    first = row
    while first and lines[first - 1].startswith("# "):
        first -= 1
    return " ".join(line[2:] for line in lines[first:row])


def page() -> str:
    parts = [HEAD]
    for module, title in MODULES.items():
        constants = constants_of(module)
        if constants:
            rows = [f"| `{each.names}` | `{each.value}` | {each.comment} |" for each in constants]
            parts.append(f"## {title}\n\n| `knobless/{module}` | value | |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
