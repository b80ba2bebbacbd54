"""The arguments of `knobless run`, as they are recorded in a journal for `knobless resume`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from knobless._checks import positive_int, positive_real, real
from knobless.journal.records import JournalError, Record
from knobless.run.objectives import Objectives
from knobless.run.sources import workers_of
from knobless.space import toml as spacefile
from knobless.space.space import Space

from .command import Command
from .objects import NamedFunction, import_object


@dataclass(frozen=True)
class RunPlan:
    """The arguments of a run that `minimize` does not record in a journal."""

    objective: str | None  # module:function
    command: str | None  # of an external program, instead of the objective
    space: str  # as given: a file, or module:name
    toml: str | None  # contents of the file
    budget: int | None
    workers: int
    target: float | None
    timeout: float | None
    stall: int | None
    evaluation_timeout: float | None
    constraints: Sequence[str] = ()  # module:function of each
    fixed: Sequence[str] = ()  # name=value
    objectives: Sequence[str] = ()  # name=min or name=max

    def __post_init__(self) -> None:
        for name in ("constraints", "fixed", "objectives"):
            choice = getattr(self, name)
            if not isinstance(choice, (list, tuple)) or not all(
                isinstance(item, str) for item in choice
            ):
                raise TypeError(
                    f"{name}: expected a list of text, got {choice!r}"
                )
        for name in ("objective", "command", "space", "toml"):
            if not isinstance(getattr(self, name) or "", str):
                raise TypeError(
                    f"{name}: expected text, got {getattr(self, name)!r}"
                )
        if (self.objective is None) == (self.command is None):
            choice = "neither" if self.command is None else "both"
            raise ValueError(
                f"objective: expected either MODULE:FUNCTION or --command, got {choice}"
            )
        if self.budget is not None:
            positive_int("budget", self.budget)
        elif self.timeout is None:
            raise ValueError(
                "--budget: expected a number of evaluations, or a --timeout, got neither"
            )
        positive_int("workers", workers_of(self.workers))
        if self.stall is not None:
            positive_int("stall", self.stall)
        if self.target is not None:
            real("target", self.target)
        for name in ("timeout", "evaluation_timeout"):
            if getattr(self, name) is not None:
                positive_real(name, getattr(self, name))

    @classmethod
    def of(cls, record: Record) -> RunPlan:
        """Return the plan that `knobless run` recorded in a journal."""
        noted = record.meta.get("command")
        if noted is None:
            reason = (
                "the journal was not created by `knobless run`, "
                "so it records no command to resume"
            )
            raise JournalError(
                f"{record.path}: cannot resume: {reason}; call `minimize` again with this journal"
            )
        names = {field.name for field in fields(cls)}
        if not isinstance(noted, dict) or noted.keys() != names:
            raise JournalError(
                f"{record.path}: command: expected {', '.join(sorted(names))}, got {noted!r:.100}"
            )
        try:
            return cls(**noted)
        except (TypeError, ValueError) as error:
            raise JournalError(f"{record.path}: command: {error}") from None

    @property
    def name(self) -> str:
        """The objective or the command, for people to read."""
        return self.objective or self.command or ""

    def read_objective(self, space: Space) -> NamedFunction | Command:
        """Import the objective, or check the command."""
        if self.command is None:
            return NamedFunction(self.objective or "")
        return Command(self.command, space, tuple(self.read_objectives() or ()))

    def read_objectives(self) -> dict[str, str] | None:
        """Return the directions of objectives by their names; None without any."""
        return objectives_of(self.objectives, maximize=False)

    def read_constraints(self) -> list[NamedFunction]:
        """Import the constraints."""
        return [NamedFunction(name) for name in self.constraints]

    def read_fixed(self) -> dict[str, Any]:
        """Return the values of fixed variables: as JSON where that is possible, else as text."""
        return fixed_values(self.fixed)

    def read_space(self) -> Space:
        """Build the space from the recorded TOML, or import it."""
        return _space_of(self.space, self.toml)


def fixed_values(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values of fixed variables by name, each given as NAME=VALUE."""
    return dict(map(_assignment, assignments))


def objectives_of(
    definitions: Sequence[str], maximize: bool
) -> dict[str, str] | None:
    """Return the directions of objectives, each given as NAME, NAME=min or NAME=max.

    None without any.
    """
    if not definitions:
        return None
    usual = "max" if maximize else "min"
    pairs = [
        (name, direction if equals else usual)
        for name, equals, direction in (e.partition("=") for e in definitions)
    ]
    names = [name for name, _ in pairs]
    if len({*names}) < len(names):
        raise ValueError(
            f"--objective: expected different names, got {', '.join(names)}"
        )
    try:
        Objectives.of(dict(pairs))
    except (TypeError, ValueError) as error:
        raise ValueError(f"--objective: {error}") from None
    return dict(pairs)


def direction_of(maximize: bool, objectives: dict[str, str] | None) -> str:
    """Return the direction of a run; several objectives have directions of their own."""
    if objectives is not None:
        return "maximize" if [*objectives.values()] == ["max"] else "minimize"
    return "maximize" if maximize else "minimize"


def _assignment(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--fix: expected NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def read_space(space: str) -> Space:
    """Read a space from a TOML file, or import it by its name."""
    return _space_of(space, toml_text(space))


def _space_of(space: str, toml: str | None) -> Space:
    if toml is not None:
        return spacefile.space_from_toml(toml, space)
    try:
        return Space.of(import_object(space))
    except TypeError as error:
        raise ValueError(f"{space}: {error}") from None


def toml_text(space: str) -> str | None:
    """Read the TOML file of a space; None if `space` is module:name."""
    if (
        ":" in space
        and not space.endswith(".toml")
        and not Path(space).exists()
    ):
        return None
    try:
        return Path(space).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{space}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{space}: not TOML: {error}") from None
