"""External programs as objectives: `knobless run --command './sim {x} --heat={heat}'`.

The template is split into arguments once, by the quoting rules of a shell. Values are then inserted into single
arguments, and the program is started without a shell: whatever a value contains, it cannot become another argument or
another command.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import IO, Any

from knobless.parallel.returned import Constrained
from knobless.report.summary import jsonable
from knobless.run.candidates import Failure
from knobless.space.space import Space
from knobless.space.when import INACTIVE

LAST_BYTES = 2**16  # bytes of the output that are read, the last ones
SHOWN = 200  # characters of a command in a message
TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
SEPARATORS = re.compile(r"[\s=:,;|()\[\]{}\"']+")
WHOLE_POINT = ""  # the placeholder {} of the whole point

Argument = Sequence[tuple[str, str | None]]  # each piece of text with the placeholder that follows it


class Command:
    """An objective that runs a program and returns the last number that it prints, and a violation if it prints one.

    Parameters
    ----------
    template : str
        The command, with the names of variables in braces.
    space : Space
        The search space.
    objectives : tuple of str
        Names of objectives, whose values are printed as ``name=0.5`` or ``name: 0.5``; the last ones count.

    Raises
    ------
    ValueError
        If a placeholder names no variable, a variable has no placeholder, or the program is not found.
    """

    def __init__(self, template: str, space: Space, objectives: tuple[str, ...] = ()) -> None:
        self.objectives = objectives
        try:
            words = shlex.split(template)
        except ValueError as error:
            raise ValueError(f"command: expected a command with complete quotes, got {template!r}: {error}") from None
        if not words:
            raise ValueError(f"command: expected a program and its arguments, got {template!r}")
        self.space = space
        self.arguments: list[Argument] = [_parsed(word) for word in words]
        program, *_ = self.arguments
        if any(name is not None for _, name in program):  # an inactive one would make its next argument the program
            raise ValueError(f"command: expected the name of a program first, got {words[0]!r}")
        self._check_names()
        if shutil.which(_joined(program, {})) is None:
            raise ValueError(f"command: expected a program that exists and can be executed, got {words[0]!r}")

    def _check_names(self) -> None:
        """ValueError unless the placeholders are the variables of the space, or the point as a whole."""
        used = {name for argument in self.arguments for _, name in argument if name is not None}
        elements = {_name(column.name): _elements(column) for column in self.space.columns()}
        known = {WHOLE_POINT, *elements, *(each for names in elements.values() for each in names)}
        for name in sorted(used - known):
            hint = "for other braces write {{ and }}"
            raise ValueError(f"command: expected placeholders among {_shown(elements)}, got {{{name}}}; {hint}")
        missing = [name for name, each in elements.items() if name not in used and not (each and used.issuperset(each))]
        if missing and WHOLE_POINT not in used:
            raise ValueError(f"command: expected a placeholder for each variable, got none for {_shown(missing)}")

    def __call__(self, x: Any) -> Any:
        words = self.words(x)
        with TemporaryFile() as out, TemporaryFile() as err:
            # Files instead of pipes: a process that the program leaves behind does not keep the evaluation waiting.
            try:
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            except (OSError, ValueError) as error:
                raise Failure(f"{_command_line(words)}: cannot be started: {error}") from None
            try:
                code = process.wait()
            except BaseException:  # Ctrl-C
                process.kill()
                process.wait()
                raise
            printed, complaint = _tail(out), _tail(err)
        if not code:
            violation = last_named(printed, "violation")
            value = self._value(printed)
            if value is not None:
                return value if violation is None else Constrained(value, violation)
            shown = repr(printed.strip()[-SHOWN:]) if printed.strip() else "nothing"
            expected = ", ".join(f"{name}=NUMBER" for name in self.objectives) or "a number"
            reason = f"expected {expected} on the standard output, got {shown}"
        else:
            reason = f"exit code {code}" if code > 0 else f"ended by signal {-code}, {signal.strsignal(-code)}"
        raise Failure(f"{complaint.strip()}\n{_command_line(words)}: {reason}".lstrip())

    def _value(self, printed: str) -> Any:
        """Return the value that is printed, or those of objectives by their names; None if one is missing."""
        if not self.objectives:
            return last_number(named_number("violation").sub(" ", printed))
        values = {name: last_named(printed, name) for name in self.objectives}
        return None if None in values.values() else values

    def words(self, x: Any) -> list[str]:
        """Return the program and its arguments for a point; without those that contain an inactive variable."""
        values = {WHOLE_POINT: json.dumps(jsonable(x))}
        for column, value in zip(self.space.columns(), self.space.flatten(x), strict=True):
            if value is INACTIVE:
                continue
            plain = jsonable(value)
            values[_name(column.name)] = _spelled(plain)
            elements = _elements(column)
            values |= dict(zip(elements, map(_spelled, plain if elements else ()), strict=True))
        active = [each for each in self.arguments if all(name is None or name in values for _, name in each)]
        return [_joined(each, values) for each in active]


def named_number(name: str) -> re.Pattern[str]:
    """Return the pattern of what is printed as ``name=0.5`` or ``name: 0.5``; its group is the number."""
    return re.compile(rf"(?<!\w){re.escape(name)}[\"']?\s*[=:]\s*([^\s,;|()\[\]{{}}\"']+)")


def last_named(text: str, name: str) -> float | None:
    """Return the last number that is printed as ``name=0.5`` or ``name: 0.5``; None if there is none."""
    found = named_number(name).findall(text)
    return last_number(found[-1]) if found else None


def last_number(text: str) -> float | None:
    """Return the last number in a text, also NaN or inf; None if there is none.

    Numbers are separated by whitespace or by one of ``= : , ; | ( ) [ ] { }`` and quotes. 1.5D3, as Fortran prints
    double precision, is 1500.
    """
    for word in reversed(SEPARATORS.split(text)):
        try:
            return float("x" if "_" in word else word.replace("D", "E"))
        except ValueError:
            continue
    return None


def _parsed(word: str) -> Argument:
    """Split an argument of the template at its placeholders."""
    pieces: list[tuple[str, str | None]] = []
    text, end = "", 0
    for token in TOKEN.finditer(word):
        text, end = text + word[end : token.start()], token.end()
        if token[1] is not None:
            pieces.append((text, token[1]))
            text = ""
        elif len(token[0]) == 2:
            text += token[0][0]
        else:
            raise ValueError(f"command: expected braces in pairs, {{{{ and }}}} for others, got {word!r}")
    return [*pieces, (text + word[end:], None)]


def _joined(argument: Argument, values: dict[str, str]) -> str:
    return "".join(text + ("" if name is None else values[name]) for text, name in argument)


def _name(name: str) -> str:
    """Return the name of a variable in a template; the variable that is the whole space is x."""
    return name or "x"


def _elements(column: Any) -> list[str]:
    """Return the names of the elements of an array; none for a subset of options, whose number of members may vary."""
    return [f"{_name(column.name)}[{i}]" for i in range(column.variable.array_length or 0)]


def _spelled(value: Any) -> str:
    """Return a value as text: numbers and booleans as in JSON, arrays with commas."""
    if isinstance(value, list):
        return ",".join(map(_spelled, value))
    return value if isinstance(value, str) else json.dumps(value)


def _shown(names: Any) -> str:
    each = [f"{{{name}}}" for name in names]
    return ", ".join(each[:8]) + (", …" if len(each) > 8 else "")


def _command_line(words: Sequence[str]) -> str:
    text = shlex.join(words)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"


def _tail(file: IO[bytes]) -> str:
    file.seek(max(file.seek(0, 2) - LAST_BYTES, 0))
    return file.read().decode("utf-8", "replace")
