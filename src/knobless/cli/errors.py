"""The error handler of all commands: a message on the standard error, and an exit code.

1: an error in the user's code, or a package that is not installed; 2: a wrong command, option or
file; 130: Ctrl-C. This module imports no optional dependency, so that it can report that one is
missing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception

from .objects import UserCodeError
from .terminal import Messages, plain

# All others: cli
EXTRAS = {
    "matplotlib": "plots",
    "numba": "fast",
    "torch": "torch",
    "tqdm": "progress",
}


@contextmanager
def reported_errors(when_interrupted: str = "") -> Iterator[None]:
    """Turn an expected error into a message and an exit code.

    `when_interrupted` follows "Interrupted.".
    """
    try:
        yield
    except KeyboardInterrupt:
        code = 130
        message = f"Interrupted. {when_interrupted}".rstrip()
    except UserCodeError as error:
        code = 1
        message = f"{_user_traceback(error.__cause__)}{error}."
    except ModuleNotFoundError as error:
        code = 1
        message = missing_extra(error)
    except MemoryError:
        code, message = 2, "Error: not enough memory"
    # User code is not run here, so the cause is data in a file
    except RecursionError:
        code = 2
        message = "Error: the data are nested too deeply"
    # The reader of the output has ended, as `head` does: Typer exits without a message
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError) as error:
        code = 2
        message = f"Error: {plain(_description(error))}"
    else:
        return
    Messages().write(message)
    sys.exit(code)


def _description(error: Exception) -> str:
    """Return the message of an error; that of the operating system begins with the file."""
    named = (
        isinstance(error, OSError)
        and error.filename is not None
        and error.strerror is not None
    )
    if named:
        return f"{error.filename}: {error.strerror}"  # type: ignore[attr-defined]
    return str(error)


def missing_extra(error: ModuleNotFoundError) -> str:
    """Return the message that names the package to install.

    Raise the error again if the module is our own.
    """
    package = (error.name or "knobless").partition(".")[0]
    if package == "knobless":
        raise error
    extra = EXTRAS.get(package, "cli")
    return f"Error: this command requires {package}: pip install 'knobless[{extra}]'"


def _user_traceback(error: BaseException | None) -> str:
    """Format a traceback from the first line of the user's code on."""
    if error is None:
        return ""
    ours = (
        str(Path(__file__).parents[1]),
        str(Path(os.__file__).parent / "importlib"),
        "<frozen importlib",
    )
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(
        ours
    ):
        trace = trace.tb_next
    return "".join(format_exception(error.with_traceback(trace)))
