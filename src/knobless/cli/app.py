"""The `knobless` command: the Typer app, with the commands of this package."""

from __future__ import annotations

from typing import Annotated

import typer

from knobless import __version__

from . import ask, pictures, run, solve


def _print_version(asked: bool) -> None:
    """Print the version and exit."""
    if asked:
        typer.echo(f"knobless {__version__}")
        raise typer.Exit


# Plain help, where the names of types do not narrow the column of descriptions
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _callback(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Black-box optimization over discrete and mixed search spaces, without strategy parameters."""


for module in (run, ask, solve, pictures):
    module.register(app)
