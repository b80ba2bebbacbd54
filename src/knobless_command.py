"""Where the `knobless` command begins. Outside the package, whose import takes longest: Ctrl-C may come meanwhile."""

import sys


def main() -> None:
    """Runs the command."""
    try:
        from knobless.__main__ import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)
