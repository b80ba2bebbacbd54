"""`python -m reproduction.joint layers --device cuda`: training where only torch and NumPy are installed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.mnist import mnist

from .positions import record_positions
from .runs import EXPERIMENTS, chosen, run_trainings


def main() -> None:
    """Read the options and train; progress goes to the standard error."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.joint", description=__doc__)
    parser.add_argument("experiment", choices=list(EXPERIMENTS))
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--iterations", type=int, default=93750, help="updates of the weights")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--algorithms", nargs="*", default=[], help="settings; those of the paper's figure by default")
    parser.add_argument("--mnist", type=Path, default=None, help="folder with the four files")
    parser.add_argument("--out", type=Path, default=Path("out") / "reproduction")
    parser.add_argument(
        "--positions",
        type=int,
        default=0,
        help="record the losses of this many updates by position instead",
    )
    given = parser.parse_args()
    try:
        settings, data = chosen(given.experiment, given.algorithms), mnist(given.mnist)
    except (ValueError, OSError) as wrong:
        sys.exit(str(wrong))
    size = given.trials, given.iterations
    if given.positions:
        record_positions(given.experiment, data, *size, given.positions, given.device, given.out)
    else:
        run_trainings(given.experiment, settings, data, *size, given.device, given.out, _log)


def _log(line: str) -> None:
    """Write one line to the standard error."""
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
