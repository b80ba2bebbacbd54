"""`knobless plot`, `report` and `watch`: figures and pages of recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from . import options
from .errors import reported_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("plot", short_help="Plot a run, or compare several.")(
        plot_command
    )
    app.command(
        "report", short_help="Write an HTML page of a run, or of several."
    )(report_command)
    app.command(
        "watch", short_help="Serve the page of a run while it is running."
    )(watch_command)


def plot_command(
    journals: options.JournalsArgument,
    out: options.FigureOption = None,
    target: options.HittingTargetOption = None,
    kind: options.PlotKindOption = None,
) -> None:
    """Plot a run: values, sample size, signal-to-noise ratio and search distribution.

    Or one plot with --kind.

    Of several objectives, plot the front and its hypervolume. Of several runs, plot the best values
    so far in one figure, or with --target the share of runs that reached it.
    """
    with reported_errors():
        from knobless import plots

        out = out or _beside(journals, ".png")
        _check_output(journals, out)
        if kind is not None and (target is not None or len(journals) > 1):
            raise ValueError(
                "--kind: expected none with "
                f"{'--target' if target is not None else 'several journals'}, got {kind}"
            )
        if target is not None:
            figure = plots.hitting_times(journals, target).get_figure(root=True)
        elif len(journals) == 1:
            figure = (
                plots.panel(journals[0])
                if kind is None
                else _drawn(kind, journals[0])
            )
        else:
            figure = plots.convergence(journals).get_figure(root=True)
        if figure is not None:
            figure.savefig(out)
        typer.echo(f"Figure written to {out}")


def _beside(journals: list[Path], suffix: str) -> Path:
    """Return a path beside the first journal, with the names of all."""
    names = "-".join(journal.stem for journal in journals)
    return journals[0].with_name(names + suffix)


def report_command(
    journals: options.JournalsArgument, out: options.PageOption = None
) -> None:
    """Write a page with the figures, numbers, failures and evaluations of a run, or of several.

    It is one file for a browser. Of several runs, it also compares the best values so far.
    """
    with reported_errors():
        from knobless.report import write

        out = out or _beside(journals, ".html")
        _check_output(journals, out)
        typer.echo(f"Page written to {write(journals, out)}")


def watch_command(
    journal: options.JournalArgument, port: options.PortOption = 0
) -> None:
    """Serve the page of a run on this machine and update it during the run, until Ctrl-C."""
    with reported_errors():
        from knobless.report import serve

        serve(
            journal,
            port,
            lambda address: typer.echo(
                f"Serving {journal} at {address}; Ctrl-C to stop."
            ),
        )


def _drawn(kind: options.PlotKind, journal: Path) -> Figure | None:
    """Return the figure of one plot."""
    from knobless import plots

    if kind is options.PlotKind.SLICES:
        return plots.slice_plots(journal)
    draw = {
        options.PlotKind.HISTORY: plots.history,
        options.PlotKind.IMPORTANCE: plots.importance,
        options.PlotKind.ENTROPY: plots.entropy,
        options.PlotKind.PARALLEL: plots.parallel_coordinates,
        options.PlotKind.FRONT: plots.front,
        options.PlotKind.HYPERVOLUME: plots.hypervolume,
    }[kind]
    return draw(journal).get_figure(root=True)


def _check_output(journals: list[Path], out: Path) -> None:
    """Refuse to overwrite a journal."""
    if any(out.resolve() == journal.resolve() for journal in journals):
        raise ValueError(
            f"{out}: expected a file to write, got the journal itself"
        )
