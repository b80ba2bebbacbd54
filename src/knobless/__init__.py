"""Black-box optimization over discrete and mixed search spaces, without strategy parameters.

    import knobless as kl
    result = kl.minimize(fun, kl.Binary(100), budget=2000)

The search depends on the space and on the objective. PBIL-λ, which adapts its number of samples to
the signal-to-noise ratio, runs by default where values are noisy, and in an elitist form for
numbers, subsets and conditional variables. Deterministic objectives of bits or choices alone are
left to a Gaussian process and two genetic algorithms.

`minimize`, `maximize` and `Optimizer` optimize over the variables of a `Space`.
`knobless.algorithms` has the searches and the parts of which they are made, and `knobless.families`
the distributions that these sample.

A name is imported when it is first used, so that the import of the package takes no time.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

__version__ = "0.1.0"

if _TYPE_CHECKING:
    from knobless import algorithms as algorithms
    from knobless import families as families
    from knobless import journal as journal
    from knobless.journal.evaluations import EvaluationRecord, Evaluations
    from knobless.journal.records import Journal, JournalError
    from knobless.parallel.returned import Constrained, Value
    from knobless.recipes import pbil_epsilon, pbil_lambda, search
    from knobless.run.candidates import Batch, Candidate
    from knobless.run.iteration import Info
    from knobless.run.minimize import maximize, minimize
    from knobless.run.optimizer import Evaluation, Optimizer
    from knobless.run.result import History, Result, Status
    from knobless.run.snapshot import SnapshotError
    from knobless.space.numbers import Float, Integer
    from knobless.space.space import Space
    from knobless.space.subset import Subset
    from knobless.space.variables import Binary, Choice

__all__ = [
    "Batch",
    "Binary",
    "Candidate",
    "Choice",
    "Constrained",
    "Evaluation",
    "EvaluationRecord",
    "Evaluations",
    "Float",
    "History",
    "Info",
    "Integer",
    "Journal",
    "JournalError",
    "Optimizer",
    "Result",
    "SnapshotError",
    "Space",
    "Status",
    "Subset",
    "Value",
    "maximize",
    "minimize",
    "pbil_epsilon",
    "pbil_lambda",
    "search",
]

_MODULES = (
    "algorithms",
    "families",
    "fast",
    "journal",
    "optuna",
    "plots",
    "problems",
    "report",
    "sklearn",
    "torch",
)
_HOMES = {
    "journal.evaluations": ("EvaluationRecord", "Evaluations"),
    "journal.records": ("Journal", "JournalError"),
    "parallel.returned": ("Constrained", "Value"),
    "recipes": ("pbil_epsilon", "pbil_lambda", "search"),
    "run.candidates": ("Batch", "Candidate"),
    "run.iteration": ("Info",),
    "run.minimize": ("maximize", "minimize"),
    "run.optimizer": ("Evaluation", "Optimizer"),
    "run.result": ("History", "Result", "Status"),
    "run.snapshot": ("SnapshotError",),
    "space.numbers": ("Float", "Integer"),
    "space.space": ("Space",),
    "space.subset": ("Subset",),
    "space.variables": ("Binary", "Choice"),
}

if not _TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> _Any:
        """Import a name.

        Raise an AttributeError for a missing one, with the name to use for one of another library.
        """
        if name in _MODULES:
            return _import_module(f"knobless.{name}")
        for module, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(
                    _import_module(f"knobless.{module}"), name
                )
                return value
        homes = [
            home
            for home in ("algorithms", "families")
            if name in _import_module(f"knobless.{home}").__all__
        ]
        hints = _import_module("knobless.run.arguments").PACKAGE_NAMES
        hint = (
            f": use kl.{homes[0]}.{name}"
            if homes
            else f": {hints[name]}"
            if name in hints
            else ""
        )
        raise AttributeError(
            f"module 'knobless' has no attribute {name!r}{hint}"
        )

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})
