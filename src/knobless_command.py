"""Entry point of the `knobless` command, outside the package: Ctrl-C may come while the package is imported."""

import sys


def main() -> None:
    """Run the command."""
    try:
        from knobless.__main__ import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)
