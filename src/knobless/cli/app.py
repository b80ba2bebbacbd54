"""The `knobless` command. A thin shell: it reads options, calls the library, and shows what came back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from knobless import __version__

from . import pictures as pictures_cli
from . import run as commands
from . import solve as solve_cli

if TYPE_CHECKING:
    from knobless.paper import Report

app = typer.Typer(no_args_is_help=True)
reproduce = typer.Typer(
    help="Make the paper's results again: trials, figures, and its claims beside what was measured.\n\n"
    "Every command may be stopped with Ctrl-C and goes on where it was when it is called again.",
    no_args_is_help=True,
)
for command in (commands.run, commands.show, commands.resume):
    app.command()(command)
solve_cli.register(app)
pictures_cli.register(app)
app.add_typer(reproduce, name="reproduce")

Out = Annotated[Path, typer.Option(help="Folder for tables and figures; trials that are there are not run again.")]
Trials = Annotated[int, typer.Option(min=1, help="Independent trials of each setting.")]
MaxN = Annotated[int, typer.Option(min=10, help="Largest number of bits.")]
MaxNFrom30 = Annotated[int, typer.Option(min=30, help="Largest number of bits.")]  # fits begin there
Jobs = Annotated[int, typer.Option(min=0, help="Threads; 0 for all cores.")]
Cap = Annotated[float, typer.Option(min=1, help="Calls after which a trial is given up.")]
Satlib = Annotated[Path | None, typer.Option(help="Folder with SATLIB's uf*.cnf; without it, instances by seed.")]
CapPerN = Annotated[float, typer.Option(min=1, help="Calls per variable before giving up; the paper has 1e7.")]
Budget = Annotated[float, typer.Option(min=1, help="Calls of each trial.")]
Skip = Annotated[bool, typer.Option(help="Leave out larger n where no trial got to the optimum.")]
Iterations = Annotated[int, typer.Option(min=1, help="Updates of the weights.")]
Device = Annotated[str | None, typer.Option(help="cuda or cpu; without it, cuda if there is a GPU.")]
Algorithms = Annotated[
    list[str] | None,
    typer.Option(help="Settings to train, with commas between or given again; those of the paper's figure by default."),
]
Mnist = Annotated[Path | None, typer.Option(help="Folder with the four files of MNIST.")]

OUT = Path("reproduction")


def say_version(asked: bool) -> None:
    """Says it, and ends the command."""
    if asked:
        typer.echo(f"knobless {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=say_version, is_eager=True, help="Print the version and leave.")
]


@app.callback()
def options(version: Version = False) -> None:
    """Black boxes over discrete choices, optimized without a single knob."""


@contextmanager
def friendly() -> Iterator[None]:
    """Turns what a user can mend into one line, without a traceback."""
    error = Console(stderr=True)
    try:
        yield
    except KeyboardInterrupt:
        error.print("Stopped. What is finished is kept; the same command goes on from here.")
        raise typer.Exit(130) from None
    except ModuleNotFoundError as missing:
        if (missing.name or "knobless").startswith("knobless"):
            raise
        extra = "torch" if missing.name == "torch" else "cli"
        error.print(f"This needs {missing.name}: pip install 'knobless\\[{extra}]'")
        raise typer.Exit(1) from None
    except (ValueError, OSError) as wrong:
        error.print(str(wrong), markup=False)
        raise typer.Exit(2) from None


def show(report: Report, out: Path) -> None:
    """The claims as a table."""
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
    console.print(f"Written to {out}: {', '.join(names)}")


@reproduce.command("hitting-times")
def hitting_times(
    out: Out = OUT, trials: Trials = 10, max_n: MaxNFrom30 = 3000, jobs: Jobs = 0, cap: Cap = 3e7, skip: Skip = True
) -> None:
    """Figure 1: calls to the optimum of OneMax and LeadingOnes; cGA's scaling; the drift of PBIL-ε."""
    with friendly():
        from knobless.paper import Options, hitting_times

        show(hitting_times.reproduce(Options(out, trials, max_n, jobs), cap, skip), out)


@reproduce.command("lambda-dynamics")
def lambda_dynamics(out: Out = OUT, trials: Trials = 10, max_n: MaxN = 1000, jobs: Jobs = 0, cap: Cap = 3e7) -> None:
    """λ over runs of PBIL-λ on OneMax and LeadingOnes at n = 1000."""
    with friendly():
        from knobless.paper import Options, lambda_dynamics

        show(lambda_dynamics.reproduce(Options(out, trials, max_n, jobs), cap), out)


@reproduce.command("alpha")
def alpha(out: Out = OUT, trials: Trials = 10, max_n: MaxN = 300, jobs: Jobs = 0, cap: Cap = 3e7) -> None:
    """The appendix: robustness of PBIL-λ against α; and λ_max = ∞ beside n."""
    with friendly():
        from knobless.paper import Options, alpha

        show(alpha.reproduce(Options(out, trials, max_n, jobs), cap), out)


@reproduce.command("max-3-sat")
def max_3_sat(
    out: Out = OUT,
    trials: Trials = 10,
    max_n: MaxN = 100,
    jobs: Jobs = 0,
    satlib: Satlib = None,
    cap_per_n: CapPerN = 1e5,
) -> None:
    """Max-3-SAT: ten uniform random instances each of 20, 50, 75 and 100 variables."""
    with friendly():
        from knobless.paper import Options, max_3_sat

        show(max_3_sat.reproduce(Options(out, trials, max_n, jobs), satlib, cap_per_n), out)


@reproduce.command("noise")
def noise(out: Out = OUT, trials: Trials = 10, max_n: MaxN = 100, jobs: Jobs = 0, budget: Budget = 1e6) -> None:
    """Noisy OneMax: the σ at which cGA breaks, and the adaptation."""
    with friendly():
        from knobless.paper import Options, noise

        show(noise.reproduce(Options(out, trials, max_n, jobs), budget), out)


@reproduce.command("theorem")
def theorem(out: Out = OUT, trials: Trials = 10, max_n: MaxN = 10, jobs: Jobs = 0) -> None:
    """Theorem 1 along exact natural-gradient trajectories (the spaces have a fixed size: `--max-n` changes nothing)."""
    with friendly():
        from knobless.paper import Options, theorem

        show(theorem.reproduce(Options(out, trials, max_n, jobs)), out)


@reproduce.command("layers")
def layers(
    out: Out = OUT,
    trials: Trials = 30,
    iterations: Iterations = 93750,
    device: Device = None,
    algorithms: Algorithms = None,
    mnist: Mnist = None,
) -> None:
    """Experiment I: layers of a deep network, chosen while it is trained. Training needs PyTorch and MNIST."""
    with friendly():
        from knobless.paper import layers
        from knobless.paper.joint import results as joint

        options = joint.Options(out, trials, iterations, device, split(algorithms), mnist)
        show(layers.reproduce(options, say), out)


@reproduce.command("activations")
def activations(
    out: Out = OUT,
    trials: Trials = 30,
    iterations: Iterations = 93750,
    device: Device = None,
    algorithms: Algorithms = None,
    mnist: Mnist = None,
) -> None:
    """Experiment II: tanh or ReLU, chosen for each unit while it is trained. Training needs PyTorch and MNIST."""
    with friendly():
        from knobless.paper import activations
        from knobless.paper.joint import results as joint

        options = joint.Options(out, trials, iterations, device, split(algorithms), mnist)
        show(activations.reproduce(options, say), out)


def split(names: list[str] | None) -> tuple[str, ...]:
    """`a,b` and `a` then `b` alike."""
    return tuple(name for given in names or () for name in given.replace(",", " ").split())


def say(line: str) -> None:
    """A line of progress."""
    Console(stderr=True, soft_wrap=True).print(line, markup=False, highlight=False)


@reproduce.command("all")
def everything(
    out: Out = OUT,
    trials: Trials = 10,
    max_n: MaxNFrom30 = 3000,
    jobs: Jobs = 0,
    cap: Cap = 3e7,
    skip: Skip = True,
    satlib: Satlib = None,
    cap_per_n: CapPerN = 1e5,
    budget: Budget = 1e6,
) -> None:
    """Everything in order, and index.html with figures and claims; layers and activations where they were trained."""
    with friendly():
        from knobless.paper import Options, page
        from knobless.paper import activations as activations_
        from knobless.paper import alpha as alpha_
        from knobless.paper import hitting_times as hitting_times_
        from knobless.paper import lambda_dynamics as lambda_dynamics_
        from knobless.paper import layers as layers_
        from knobless.paper import max_3_sat as max_3_sat_
        from knobless.paper import noise as noise_
        from knobless.paper import theorem as theorem_
        from knobless.paper.joint import results as joint

        def options(largest: int) -> Options:
            return Options(out, trials, min(max_n, largest), jobs)

        reports = [
            hitting_times_.reproduce(options(3000), cap, skip),
            lambda_dynamics_.reproduce(options(1000), cap),
            alpha_.reproduce(options(300), cap),
            max_3_sat_.reproduce(options(100), satlib, cap_per_n),
            noise_.reproduce(options(100), budget),
            theorem_.reproduce(options(100)),
            *(m.report(out) for m in (layers_, activations_) if joint.UPDATES in joint.read(out / f"{m.NAME}.csv")),
        ]
        for report in reports:
            show(report, out)
        Console().print(f"The page: {page.write(reports, out / 'index.html')}")


if __name__ == "__main__":
    app()
