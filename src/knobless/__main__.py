"""`python -m knobless`, and all of `knobless` but its first line: the command, or what to install for it."""

import sys


def main() -> None:
    """Runs the command; it needs the extra `cli`."""
    try:
        from knobless.cli.app import app
    except ModuleNotFoundError as missing:
        if (missing.name or "knobless").startswith("knobless"):
            raise
        sys.exit(f"The knobless command needs {missing.name}: pip install 'knobless[cli]'")
    app()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # while modules were imported
        sys.exit(130)
