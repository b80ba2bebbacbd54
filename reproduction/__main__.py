"""`python -m reproduction`, from the folder that contains the package; it requires the extra `cli`."""

from __future__ import annotations

import sys

from knobless.cli.errors import missing_extra
from knobless.cli.terminal import escape_unencodable


def main() -> None:
    """Run the command."""
    try:
        from .commands import app
    except ModuleNotFoundError as error:
        sys.exit(missing_extra(error))
    escape_unencodable()
    app(prog_name="python -m reproduction")


if __name__ == "__main__":
    main()
