"""The commands that show runs: `knobless plot`, `knobless report` and `knobless watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

Run = Annotated[Path, typer.Argument(metavar="JOURNAL", help="The journal of a run, as in minimize(journal=...).")]
Runs = Annotated[list[Path], typer.Argument(metavar="JOURNAL...", help="The journal of a run, or of several.")]
Picture = Annotated[Path | None, typer.Option("-o", "--out", help="Where to; .png, .svg or .pdf. Default: beside it.")]
Page = Annotated[Path | None, typer.Option("-o", "--out", help="Where to. Default: beside the journal, as .html.")]
Target = Annotated[
    float | None, typer.Option(help="Draw hitting times instead: the share of the runs with a value as good as this.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any that is free.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the app."""
    for command in (plot, report, watch):
        app.command()(command)


def plot(journals: Runs, out: Picture = None, target: Target = None) -> None:
    """Draw a run: values, λ_r, ε, the signal-to-noise ratio, θ over time and at its end."""
    from .app import friendly

    with friendly():
        from knobless import plots

        out = out or journals[0].with_suffix(".png")
        _spare(journals, out)
        if target is not None:
            figure = plots.hitting_times(journals, target).get_figure(root=True)
        elif len(journals) == 1:
            figure = plots.panel(journals[0])
        else:
            raise ValueError(
                f"expected --target with {len(journals)} journals: what several show is their hitting times"
            )
        if figure is not None:
            figure.savefig(out)
        _say(f"The picture: {out}")


def report(journal: Run, out: Page = None) -> None:
    """Write a page with a run's pictures, numbers, failures and evaluations: one file, to open in a browser."""
    from .app import friendly

    with friendly():
        from knobless.report import write

        out = out or journal.with_suffix(".html")
        _spare([journal], out)
        _say(f"The page: {write(journal, out)}")


def watch(journal: Run, port: Port = 0) -> None:
    """Serve the page of a run on this machine and keep it up to date while the run goes on, until Ctrl-C."""
    from .app import friendly

    with friendly():
        from knobless.report import serve

        serve(journal, port, lambda address: _say(f"{journal} is shown at {address} until Ctrl-C."))


def _spare(journals: list[Path], out: Path) -> None:
    """A journal is never written over."""
    if any(out.resolve() == journal.resolve() for journal in journals):
        raise ValueError(f"{out}: expected a file to write to, got the journal itself")


def _say(text: str) -> None:
    Console(soft_wrap=True).print(text, markup=False, highlight=False)
