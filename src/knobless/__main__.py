"""`python -m knobless`, and the `knobless` command."""

import sys


def main() -> None:
    """Run the command; it requires the extra `cli`."""
    try:  # Ctrl-C may come during imports
        from knobless.cli.errors import missing_extra
        from knobless.cli.terminal import escape_unencodable

        try:
            from knobless.cli.app import app
        except ModuleNotFoundError as error:
            sys.exit(missing_extra(error))
        escape_unencodable()
        app()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
