"""External programs as objectives: `knobless run --command './sim {x} --heat={heat}'`.

The template is split into arguments once, by the quoting rules of a shell. Values are then inserted
into single arguments, and the program is started without a shell: whatever a value contains, it
cannot become another argument or another command.

A program that prints lines `knobless: 0.5` is an objective with steps, which is ended when it is
hopeless.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from knobless.parallel.returned import Constrained
from knobless.run.candidates import Failure
from knobless.run.jsonable import jsonable
from knobless.space.space import Space
from knobless.space.when import INACTIVE

LAST_BYTES = 2**16  # bytes of the output that are kept, the last ones
# Seconds between two looks for the next step in the output
POLL_INTERVAL = 0.05
GRACE = 5.0  # seconds that a program has to end after SIGTERM
SHOWN = 200  # characters of a command in a message
STEP = b"knobless:"  # begins a line with the value of a step
TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
SEPARATORS = re.compile(r"[\s=:,;|()\[\]{}\"']+")
WHOLE_POINT = ""  # the placeholder {} of the whole point

# Each piece of text with the placeholder that follows it
Argument = Sequence[tuple[str, str | None]]


class Command:
    """An objective that runs a program and returns the last number that it prints.

    If the program prints a violation, the objective returns both.

    If the program prints lines that begin with ``knobless:``, it returns a generator of the values
    on these lines. A program whose generator is closed is ended with SIGTERM, and with SIGKILL if
    that does not end it.

    Parameters
    ----------
    template : str
        The command, with the names of variables in braces.
    space : Space
        The search space.
    objectives : tuple of str
        Names of objectives, whose values are printed as ``name=0.5`` or ``name: 0.5``; the last
        ones count.

    Raises
    ------
    ValueError
        If a placeholder names no variable, a variable has no placeholder, or the program is not
        found.
    """

    def __init__(
        self, template: str, space: Space, objectives: tuple[str, ...] = ()
    ) -> None:
        self.objectives = objectives
        try:
            words = shlex.split(template)
        except ValueError as error:
            raise ValueError(
                f"command: expected a command with complete quotes, got {template!r}: {error}"
            ) from None
        if not words:
            raise ValueError(
                f"command: expected a program and its arguments, got {template!r}"
            )
        self.space = space
        self.arguments: list[Argument] = [_parsed(word) for word in words]
        program, *_ = self.arguments
        # An inactive one would make its next argument the program
        if any(name is not None for _, name in program):
            raise ValueError(
                f"command: expected the name of a program first, got {words[0]!r}"
            )
        self._check_names()
        if shutil.which(_joined(program, {})) is None:
            raise ValueError(
                f"command: expected a program that exists and can be executed, got {words[0]!r}"
            )

    def _check_names(self) -> None:
        """Check the placeholders.

        ValueError unless they are the variables of the space, or the point as a whole.
        """
        used = {
            name
            for argument in self.arguments
            for _, name in argument
            if name is not None
        }
        elements = {
            _name(column.name): _elements(column)
            for column in self.space.columns()
        }
        known = {
            WHOLE_POINT,
            *elements,
            *(element for names in elements.values() for element in names),
        }
        for name in sorted(used - known):
            hint = "for other braces write {{ and }}"
            raise ValueError(
                f"command: expected placeholders among {_shown(elements)}, got {{{name}}}; {hint}"
            )
        missing = [
            name
            for name, names_of_elements in elements.items()
            if name not in used
            and not (names_of_elements and used.issuperset(names_of_elements))
        ]
        if missing and WHOLE_POINT not in used:
            raise ValueError(
                f"command: expected a placeholder for each variable, got none for {_shown(missing)}"
            )

    def __call__(self, x: Any) -> Any:
        steps = self._run(self.words(x))
        try:
            first = next(steps)
        except StopIteration as end:  # of a program without steps
            return end.value
        return _continued(first, steps)

    def _run(self, words: Sequence[str]) -> Generator[Any, None, Any]:
        """Run the program; yield the values of its steps, or return its value if it has none."""
        # Files instead of pipes: a process that the program leaves behind does not keep the
        # evaluation waiting.
        with TemporaryFile() as out, TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=out, stderr=err
                )
            except (OSError, ValueError) as error:
                raise Failure(
                    f"{_command_line(words)}: cannot be started: {error}"
                ) from None
            n_steps = 0
            try:
                ended = _end_of(process)
                output = StepLines(out)
                while not ended.wait(POLL_INTERVAL):
                    for line in output.new():
                        n_steps += 1
                        yield self._step(line, n_steps, words)
                complaint = _tail(err)
                if code := process.wait():
                    reason = (
                        f"exit code {code}"
                        if code > 0
                        else f"ended by signal {-code}, {signal.strsignal(-code)}"
                    )
                    raise Failure(
                        f"{complaint}\n{_command_line(words)}: {reason}".lstrip()
                    )
                for line in output.new(ended=True):
                    n_steps += 1
                    yield self._step(line, n_steps, words)
            finally:  # it is stopped, or Ctrl-C
                _end(process)
            if n_steps:
                return None
            return self._read(
                output.tail, "on the standard output", words, complaint
            )

    def _step(self, line: str, number: int, words: Sequence[str]) -> Any:
        return self._read(
            line, f"on line {number} that begins with knobless:", words
        )

    def _read(
        self, text: str, place: str, words: Sequence[str], complaint: str = ""
    ) -> Any:
        """Return the value in a text, with its violation if it has one.

        Failure if there is no value.
        """
        value = self._value(text)
        violation = last_named(text, "violation")
        if value is not None:
            return value if violation is None else Constrained(value, violation)
        shown = repr(text.strip()[-SHOWN:]) if text.strip() else "nothing"
        expected = (
            ", ".join(f"{name}=NUMBER" for name in self.objectives)
            or "a number"
        )
        raise Failure(
            f"{complaint}\n{_command_line(words)}: "
            f"expected {expected} {place}, got {shown}".lstrip()
        )

    def _value(self, printed: str) -> Any:
        """Return the value that is printed, or those of objectives by their names.

        None if one is missing.
        """
        if not self.objectives:
            return last_number(named_number("violation").sub(" ", printed))
        values = {name: last_named(printed, name) for name in self.objectives}
        return None if None in values.values() else values

    def words(self, x: Any) -> list[str]:
        """Return the program and its arguments for a point.

        Without those that contain an inactive variable.
        """
        values = {WHOLE_POINT: json.dumps(jsonable(x))}
        for column, value in zip(
            self.space.columns(), self.space.flatten(x), strict=True
        ):
            if value is INACTIVE:
                continue
            plain = jsonable(value)
            values[_name(column.name)] = _spelled(plain)
            elements = _elements(column)
            values |= dict(
                zip(
                    elements,
                    map(_spelled, plain if elements else ()),
                    strict=True,
                )
            )
        active = [
            argument
            for argument in self.arguments
            if all(name is None or name in values for _, name in argument)
        ]
        return [_joined(argument, values) for argument in active]


def named_number(name: str) -> re.Pattern[str]:
    """Return the pattern of what is printed as ``name=0.5`` or ``name: 0.5``.

    Its group is the number.
    """
    return re.compile(
        rf"(?<!\w){re.escape(name)}[\"']?\s*[=:]\s*([^\s,;|()\[\]{{}}\"']+)"
    )


def last_named(text: str, name: str) -> float | None:
    """Return the last number that is printed as ``name=0.5`` or ``name: 0.5``.

    None if there is none.
    """
    numbers = named_number(name).findall(text)
    return last_number(numbers[-1]) if numbers else None


def last_number(text: str) -> float | None:
    """Return the last number in a text, also NaN or inf; None if there is none.

    Numbers are separated by whitespace or by one of ``= : , ; | ( ) [ ] { }`` and quotes. 1.5D3, as
    Fortran prints double precision, is 1500.
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
        text = text + word[end : token.start()]
        end = token.end()
        if token[1] is not None:
            pieces.append((text, token[1]))
            text = ""
        elif len(token[0]) == 2:
            text += token[0][0]
        else:
            raise ValueError(
                f"command: expected braces in pairs, {{{{ and }}}} for others, got {word!r}"
            )
    return [*pieces, (text + word[end:], None)]


def _joined(argument: Argument, values: dict[str, str]) -> str:
    return "".join(
        text + ("" if name is None else values[name]) for text, name in argument
    )


def _name(name: str) -> str:
    """Return the name of a variable in a template; the variable that is the whole space is x."""
    return name or "x"


def _elements(column: Any) -> list[str]:
    """Return the names of the elements of an array.

    None for a subset of options, whose number of members may vary.
    """
    return [
        f"{_name(column.name)}[{i}]"
        for i in range(column.variable.array_length or 0)
    ]


def _spelled(value: Any) -> str:
    """Return a value as text: numbers and booleans as in JSON, arrays with commas."""
    if isinstance(value, list):
        return ",".join(map(_spelled, value))
    return value if isinstance(value, str) else json.dumps(value)


def _shown(names: Any) -> str:
    placeholders = [f"{{{name}}}" for name in names]
    return ", ".join(placeholders[:8]) + (
        ", …" if len(placeholders) > 8 else ""
    )


def _command_line(words: Sequence[str]) -> str:
    text = shlex.join(words)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"


class StepLines:
    """The lines with values of steps in the output of a program, as it grows.

    Attributes
    ----------
    tail : str
        The end of what was read.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._offset = 0
        self._tail = self._line = b""

    @property
    def tail(self) -> str:
        return self._tail.decode("utf-8", "replace")

    def new(self, ended: bool = False) -> Iterator[str]:
        """Yield the values, as text, of complete lines that are new.

        The last one may be incomplete at the end.
        """
        while data := self._data(ended):
            self._offset += len(data)
            self._tail = (self._tail + data)[-LAST_BYTES:]
            *lines, self._line = (self._line + data).split(b"\n")
            self._line = self._line[:LAST_BYTES]
            yield from (
                _value_of(line) for line in lines if line.startswith(STEP)
            )
        if ended and self._line.startswith(STEP):
            yield _value_of(self._line)

    def _data(self, ended: bool) -> bytes:
        """Return bytes that were not read before; at most `LAST_BYTES`."""
        if sys.platform != "win32":
            return os.pread(self._file.fileno(), LAST_BYTES, self._offset)
        # Which also moves where the program writes
        self._file.seek(self._offset)
        return self._file.read(LAST_BYTES) if ended else b""


def _value_of(line: bytes) -> str:
    return line.removeprefix(STEP).decode("utf-8", "replace")


def _continued(first: Any, later: Generator[Any, None, Any]) -> Iterator[Any]:
    with closing(later):
        yield first
        yield from later


def _end_of(process: subprocess.Popen[bytes]) -> threading.Event:
    """Return an event that is set at once when the program ends.

    A wait with a time limit would notice the end late.
    """
    ended = threading.Event()

    def wait() -> None:
        process.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program with the processes that it has started, unless it has ended by itself."""
    for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if process.poll() is not None:
            return
        for pid in _with_descendants(process.pid):
            with suppress(OSError):  # it has ended meanwhile
                os.kill(pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def _with_descendants(pid: int) -> list[int]:
    """Return a process and all its descendants, where /proc lists them."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(
                stat.read_text(errors="replace").rpartition(")")[2].split()[1]
            )
            children[parent].append(int(stat.parent.name))
    family = [pid]
    for parent in family:
        family += children[parent]
    return family


def _tail(file: IO[bytes]) -> str:
    file.seek(max(file.seek(0, 2) - LAST_BYTES, 0))
    return file.read().decode("utf-8", "replace").strip()
