"""`python -m knobless`, and the `knobless` command after its first line."""

import sys

from knobless.cli.errors import missing_extra
from knobless.cli.terminal import escape_unencodable


def main() -> None:
    """Run the command; it requires the extra `cli`."""
    try:
        from knobless.cli.app import app
    except ModuleNotFoundError as error:
        sys.exit(missing_extra(error))
    escape_unencodable()
    app()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # during imports
        sys.exit(130)
