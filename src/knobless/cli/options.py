"""Arguments and options of the commands, each declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from knobless.problems.instances import Format


class AlgorithmName(StrEnum):
    """An algorithm that `knobless run` can name."""

    PBIL_LAMBDA = "pbil-lambda"
    PBIL_EPSILON = "pbil-epsilon"
    PBIL_ELITIST = "pbil-elitist"
    CGA = "cga"
    P3 = "p3"
    SEARCH = "search"
    LINEAR_THOMPSON = "linear-thompson"
    NOISY_SEARCH = "noisy-search"


class PlotKind(StrEnum):
    """A kind of plot, for `knobless plot --kind`."""

    HISTORY = "history"
    IMPORTANCE = "importance"
    ENTROPY = "entropy"
    SLICES = "slices"
    PARALLEL = "parallel"
    FRONT = "front"
    HYPERVOLUME = "hypervolume"


def evaluation_count(text: str) -> int:
    """Return an integer of at least 1, which may be written as a float: 1e3."""
    try:
        number = int(text)
    except ValueError:
        number = _whole(text)
    if number < 1:
        raise typer.BadParameter(
            f"expected an integer of at least 1, such as 1000 or 1e3, got {text!r}"
        )
    return number


def _whole(text: str) -> int:
    """Return the integer that is written as a float; 0 if there is none."""
    try:
        number = float(text)
    except ValueError:
        return 0
    return int(number) if number.is_integer() else 0


# Every command that runs a search.
BudgetOption = Annotated[
    int | None,
    typer.Option(
        parser=evaluation_count,
        metavar="INTEGER",
        help="Maximum number of evaluations, such as 1000 or 1e3.",
        show_default="none; a --timeout is needed then",
    ),
]
TargetOption = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="Stop at the first value that is at least this good.",
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Stop after this many seconds."),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        metavar="INTEGER", min=0, help="Seed of the random number generator."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one line of JSON.")
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print no progress bar and no messages."
    ),
]

# `run` and `resume`.
ObjectiveArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="The objective function; its argument is a point.",
    ),
]
CommandOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEMPLATE",
        help="Evaluate by a program instead: './sim {x} --heat={heat}', with a placeholder "
        "for each variable. "
        "The value is the last number printed, apart from a violation, printed as "
        "violation=NUMBER; "
        "several objectives are printed as NAME=NUMBER.",
    ),
]
SpaceOption = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="The search space: a TOML file, or module:name of a Python object.",
    ),
]
JournalOption = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help="Record every evaluation in this file; resume if it exists.",
    ),
]
WorkersOption = Annotated[
    int,
    typer.Option(
        metavar="INTEGER",
        min=-1,
        help="Number of worker processes, -1 for all CPUs; with a --batch the result does not "
        "depend on it.",
    ),
]
BatchOption = Annotated[
    int | None,
    typer.Option(
        metavar="INTEGER",
        min=1,
        help="Evaluate in rounds of at least so many.",
        show_default="no rounds: no worker waits; or as recorded in the journal",
    ),
]
MaximizeOption = Annotated[
    bool, typer.Option("--maximize", help="Maximize instead of minimize.")
]
DeterministicOption = Annotated[
    bool | None,
    typer.Option(
        "--deterministic/--noisy",
        help="Whether equal points have equal values; no evaluations are then spent on testing "
        "this.",
        show_default="tested during the run",
    ),
]
StallOption = Annotated[
    int | None,
    typer.Option(
        parser=evaluation_count,
        metavar="INTEGER",
        help="Stop after this many evaluations without improvement.",
    ),
]
EvaluationTimeoutOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Count an evaluation as failed after this many seconds.",
    ),
]
AlgorithmOption = Annotated[
    AlgorithmName | None,
    typer.Option(
        "--algorithm",
        metavar="NAME",
        help=f"Algorithm to use: {', '.join(AlgorithmName)}.",
        show_default="the recommended one",
    ),
]
ConstraintOption = Annotated[
    list[str] | None,
    typer.Option(
        "--constraint",
        metavar="MODULE:FUNCTION",
        help="A function of a point that returns a number, feasible if at most 0, or a bool; may "
        "be repeated.",
    ),
]
ObjectivesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--objective",
        metavar="NAME[=min|max]",
        help="Name of one of several objectives, in the order of the values that the function "
        "returns; "
        "minimized unless stated otherwise. May be repeated.",
    ),
]
FixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fix",
        metavar="NAME=VALUE",
        help="Fix a variable to a value; may be repeated.",
    ),
]
NewBudgetOption = Annotated[
    int | None,
    typer.Option(
        "--budget",
        parser=evaluation_count,
        metavar="INTEGER",
        help="Maximum number of evaluations in all, such as 1000 or 1e3.",
        show_default="as recorded",
    ),
]
NewWorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="INTEGER",
        min=-1,
        help="Number of worker processes, -1 for all CPUs.",
        show_default="as recorded",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Also call code from outside the current folder, or run a recorded command.",
    ),
]

# `ask` and `tell`.
SharedJournalArgument = Annotated[
    Path,
    typer.Argument(
        metavar="JOURNAL",
        help="Journal of the run, which several processes may share.",
    ),
]
CandidatesOption = Annotated[
    int,
    typer.Option(
        "--n", "-n", metavar="INTEGER", min=1, help="Number of candidates."
    ),
]
AgainOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="First print candidates again that were printed at least this long ago and have no "
        "value; 0 for all.",
    ),
]
FirstSpaceOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The search space: a TOML file, or module:name of a Python object.",
        show_default="as recorded in the journal",
    ),
]
AskBudgetOption = Annotated[
    int | None,
    typer.Option(
        parser=evaluation_count,
        metavar="INTEGER",
        help="Maximum number of evaluations in all, such as 1000 or 1e3.",
        show_default="as recorded in the journal, or no limit",
    ),
]
AskBatchOption = Annotated[
    int | None,
    typer.Option(
        metavar="INTEGER",
        min=1,
        help="Number of evaluations that run at once.",
        show_default="as recorded in the journal, or 1",
    ),
]
WaitOption = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="Wait at most this long while other processes use the journal.",
    ),
]
SkipToldOption = Annotated[
    bool,
    typer.Option(
        "--skip-told",
        help="Ignore candidates that were told or cancelled before.",
    ),
]

# Journals and what is made of them.
JournalArgument = Annotated[
    Path, typer.Argument(metavar="JOURNAL", help="Journal of a run.")
]
CsvOption = Annotated[
    bool,
    typer.Option(
        "--csv",
        help="Print all evaluations as CSV, one per line, instead of the summary.",
    ),
]
JournalsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="JOURNAL...", help="Journal of a run, or several."),
]
FigureOption = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        metavar="FILE",
        help="File to write: .png, .svg or .pdf.",
        show_default="next to the journal, .png",
    ),
]
PageOption = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        metavar="FILE",
        help="File to write.",
        show_default="next to the journal, .html",
    ),
]
HittingTargetOption = Annotated[
    float | None,
    typer.Option(
        "--target",
        metavar="NUMBER",
        help="Plot hitting times: the share of runs that reached this value.",
    ),
]
PlotKindOption = Annotated[
    PlotKind | None,
    typer.Option(
        "--kind",
        metavar="NAME",
        help=f"Draw one plot: {', '.join(PlotKind)}.",
        show_default="a figure with the main ones",
    ),
]
PortOption = Annotated[
    int,
    typer.Option(
        metavar="INTEGER",
        min=0,
        max=65535,
        help="Port on this machine; 0 for any free port.",
    ),
]

# `solve`.
InstanceArgument = Annotated[
    str,
    typer.Argument(
        metavar="INSTANCE",
        help="Instance file, compressed or not; - for the standard input.",
    ),
]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="Format of the file.",
        show_default="from the file name or the contents",
    ),
]
