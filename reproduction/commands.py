"""The commands of `python -m reproduction`: one for each result of the paper, and one for all of them.

The commands are made from the tables below: a help text, and the options beyond those that all of them have, with
their defaults. An option is named like the parameter of the `reproduce` function that it sets.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from knobless.cli.errors import reported_errors
from knobless.cli.terminal import Messages

if TYPE_CHECKING:
    from .claims import Report

_OPTIONS: dict[str, Any] = {
    "out": Annotated[
        Path, typer.Option(help="Folder for tables and figures; trials recorded there are not run again.")
    ],
    "trials": Annotated[int, typer.Option(min=1, help="Independent trials of each setting.")],
    "max_n": Annotated[int, typer.Option(min=10, help="Largest number of bits.")],
    "jobs": Annotated[int, typer.Option(min=0, help="Number of threads; 0 for all cores.")],
    "cap": Annotated[float, typer.Option(min=1, help="Evaluations after which a trial is cut off.")],
    "skip": Annotated[bool, typer.Option(help="Skip larger n where no trial reached the optimum.")],
    "satlib": Annotated[
        Path | None,
        typer.Option(help="Folder with SATLIB's uf*.cnf.", show_default="random instances by seed"),
    ],
    "cap_per_n": Annotated[float, typer.Option(min=1, help="Evaluations per variable after which a trial is cut off.")],
    "budget": Annotated[float, typer.Option(min=1, help="Evaluations of each trial.")],
    "iterations": Annotated[int, typer.Option(min=1, help="Updates of the weights.")],
    "device": Annotated[str | None, typer.Option(help="cuda or cpu.", show_default="cuda if there is a GPU")],
    "algorithms": Annotated[
        list[str] | None,
        typer.Option(help="Settings to train, separated by commas or repeated.", show_default="those of the figure"),
    ],
    "mnist": Annotated[Path | None, typer.Option(help="Folder with the four files of MNIST.")],
}
_OUT = Path("out") / "reproduction"
_SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "hitting-times": (
        "Figure 1: evaluations to the optimum of OneMax and LeadingOnes, scaling of cGA, drift of PBIL-ε.",
        {"max_n": 3000, "cap": 3e7, "skip": True},
    ),
    "lambda-dynamics": (
        "λ over runs of PBIL-λ on OneMax and LeadingOnes at n = 1000.",
        {"max_n": 1000, "cap": 3e7},
    ),
    "alpha": (
        "The appendix: robustness of PBIL-λ to α, and λ_max = ∞ compared with n.",
        {"max_n": 1000, "cap": 3e7},
    ),
    "max-3-sat": (
        "MAX-3-SAT: ten uniform random instances each of 20, 50 and 75 variables.",
        {"max_n": 75, "satlib": None, "cap_per_n": 1e5},
    ),
    "noise": (
        "Noisy OneMax: the noise level at which cGA fails, and the adaptation.",
        {"max_n": 100, "budget": 1e6},
    ),
    "theorem": (
        "Theorem 1 along exact natural-gradient trajectories; the sizes are fixed, `--max-n` has no effect.",
        {"max_n": 10},
    ),
    "mechanism": (
        "The ratio ‖s‖²/γ, α, β, ε and λ, and the equations; the sizes are fixed, `--max-n` has no effect.",
        {"max_n": 100},
    ),
}
_TRAINING = {"iterations": 93_750, "device": None, "algorithms": None, "mnist": None}
_TRAININGS = {
    "layers": "Experiment I: selection of layers during training. Training requires PyTorch and MNIST.",
    "activations": "Experiment II: selection of activation functions during training. It requires PyTorch and MNIST.",
}
_KEPT = "Finished trials are kept; repeat the command to continue."

app = typer.Typer(
    help="Reproduce the results of the paper: trials, figures, and its claims compared with the measurements.\n\n"
    "An interrupted command continues where it stopped when it is repeated.",
    no_args_is_help=True,
)


def _command(name: str, text: str, defaults: dict[str, Any], run: Callable[..., None]) -> None:
    """Register a command whose options are the keys of `defaults`."""

    def command(**given: Any) -> None:
        with reported_errors(_KEPT):
            run(**given)

    command.__doc__ = text
    command.__annotations__ = {key: _OPTIONS[key] for key in defaults}
    command.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(key, Parameter.KEYWORD_ONLY, default=value, annotation=_OPTIONS[key])
            for key, value in defaults.items()
        ]
    )
    app.command(name)(command)


def _search(name: str, out: Path, trials: int, max_n: int, jobs: int, **rest: Any) -> Report:
    """Run the trials of one result that are missing."""
    from .options import Options

    module = import_module(f"reproduction.{name.replace('-', '_')}")
    report: Report = module.reproduce(Options(out, trials, max_n, jobs), **rest)
    return report


def _training(name: str, algorithms: list[str] | None, **rest: Any) -> Report:
    """Train the settings of one experiment that are missing."""
    from .joint.settings import TrainingOptions

    names = tuple(name for given in algorithms or () for name in given.replace(",", " ").split())
    module = import_module(f"reproduction.{name}")
    report: Report = module.reproduce(TrainingOptions(algorithms=names, **rest), Messages().write)
    return report


def _all(out: Path, trials: int, max_n: int, jobs: int, **rest: Any) -> None:
    """Run all searches, then report them and the trainings that are recorded on one page."""
    from .joint.settings import UPDATES
    from .joint.trials import read_trials
    from .page import write_page

    reports = []
    for name, (_, defaults) in _SEARCHES.items():
        its = {key: rest[key] for key in defaults if key != "max_n"}
        reports.append(_search(name, out, trials, min(max_n, defaults["max_n"]), jobs, **its))
    for name in _TRAININGS:
        if UPDATES in read_trials(out / f"{name}.csv"):
            reports.append(import_module(f"reproduction.{name}").report(out))
    for report in reports:
        _print(report, out)
    Console().print(f"Page written to {write_page(reports, out / 'index.html')}")


def _print(report: Report, out: Path) -> None:
    """Print the claims as a table, and update the page with those of all reports."""
    from .scorecard import write_scorecard

    table = Table(title=report.title, show_lines=True)
    for column in ("the paper's claim", "measured"):
        table.add_column(column, ratio=3)
    table.add_column("", min_width=13)
    colors = {True: "green", False: "red", None: "yellow"}
    for claim in report.claims:
        table.add_row(claim.claim, claim.measured, f"[{colors[claim.holds]}]{claim.verdict}")
    console = Console()
    console.print(table)
    names = [f"{report.name}.csv", f"{report.name}-claims.md", *(path.name for path, _ in report.figures)]
    console.print(f"Written to {out}: {', '.join(names)}, {write_scorecard(out).name}")


def _printed(make: Callable[..., Report], name: str) -> Callable[..., None]:
    """Return a command's function: make one report and print it."""
    return lambda **given: _print(make(name, **given), given["out"])


for _name, (_text, _defaults) in _SEARCHES.items():
    _first = {"out": _OUT, "trials": 30, "max_n": _defaults["max_n"], "jobs": 0}
    _command(_name, _text, _first | _defaults, _printed(_search, _name))
for _name, _text in _TRAININGS.items():
    _command(_name, _text, {"out": _OUT, "trials": 30} | _TRAINING, _printed(_training, _name))
_command(
    "all",
    "Everything in order, with index.html for figures and claims; layers and activations if they were trained.",
    {"out": _OUT, "trials": 30, "max_n": 3000, "jobs": 0}
    | {key: value for _, defaults in _SEARCHES.values() for key, value in defaults.items() if key != "max_n"},
    _all,
)
