"""A run that several processes share through its journal, for `knobless ask` and `knobless tell`.

Each call opens the journal, replays it, hands out candidates or stores values, and closes it. Other
processes wait meanwhile for the lock of the journal, so their calls take turns. Which candidates
were handed out, and when, is recorded before they are returned. Checkpoints keep the replay short.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from knobless.core.algorithm import Algorithm
from knobless.core.description import algorithm_of
from knobless.journal.events import Journal, JournalError
from knobless.journal.identity import Identity
from knobless.journal.sqlite import Writer
from knobless.parallel.returned import (
    Attributed,
    objective_value,
    without_attributes,
)
from knobless.space.codec import space_of
from knobless.space.fixed import FixedVariables
from knobless.space.space import Space

from .candidates import Batch, Failure, decoded_points, values_of
from .optimizer import Optimizer
from .recording import Recording
from .run_state import check_batch

# Seconds of a replay that is worth a checkpoint, which takes about as long
SLOW = 0.05


@dataclass(frozen=True)
class RunSettings:
    """The settings with which a run begins, as those of `Optimizer`."""

    space: Space
    direction: str
    algorithm: Algorithm | None = None
    x0: Any = None
    rng: int | None = None
    batch: int | None = None
    deterministic: bool | None = None
    fixed: Any = None
    objectives: Any = None

    @classmethod
    def of(cls, identity: Identity, path: Path) -> Self:
        """Return the settings of a recorded run; its random streams are taken from the journal."""
        space = space_of(identity.space)
        check_batch(identity.batch, space.family)
        algorithm = algorithm_of(identity.algorithm, space.family)
        if identity.constraints:
            raise JournalError(
                f"{path}: cannot resume: the run has constraints; use Optimizer(constraints=, "
                "journal=)"
            )
        if algorithm is None:
            raise JournalError(
                f"{path}: cannot resume: the algorithm has custom components, which are not "
                "recorded"
            )
        x0 = (
            None
            if identity.x0 is None
            else decoded_points(
                space, space.family.unpack(bytes.fromhex(identity.x0))
            )
        )
        return cls(
            space,
            identity.direction,
            None if identity.is_recommended else algorithm,
            x0,
            batch=identity.batch,
            deterministic=identity.deterministic,
            fixed=FixedVariables.from_data(space, identity.fixed),
            objectives=identity.directions or None,
        )


class SharedRun:
    """A run in the state that its journal has, for one call.

    a context manager, which closes the journal.

    Without a `start`, the journal must be that of a run. With one, it must be new or that of a run
    which began so.
    """

    def __init__(
        self, journal: Journal, start: RunSettings | None = None
    ) -> None:
        if start is None and not Path(journal.path).is_file():
            raise JournalError(
                f"{journal.path}: cannot open: no such file; a space is needed to create it"
            )
        writer = Writer(journal)
        try:
            with writer.explained():
                data = writer.header.get("identity")
                recorded = None if data is None else Identity.from_data(data)
                if start is None:
                    if recorded is None:
                        raise JournalError(
                            f"{journal.path}: nothing has been recorded yet; a space is needed"
                        )
                    start = RunSettings.of(recorded, writer.path)
            batch = start.batch or (1 if recorded is None else recorded.batch)
            opt = Optimizer(
                start.space,
                start.algorithm,
                start.x0,
                start.rng,
                batch,
                start.deterministic,
                fixed=start.fixed,
                objectives=start.objectives,
            )
            identity = opt.identity(start.direction)
            self._recording = Recording(
                writer, opt.run, identity, adopt=start.rng is None
            )
            self._recording.replay(SLOW)
        except BaseException:
            writer.close()
            raise
        self._run, self._sign, self._meta = (
            opt.run,
            identity.sign,
            writer.header.get("meta", {}),
        )
        self._objectives = opt.objectives

    @property
    def budget(self) -> int | None:
        """The recorded number of evaluations after which no candidates are handed out."""
        budget = self._meta.get("budget")
        return budget if type(budget) is int else None

    @property
    def nfev(self) -> int:
        """Evaluations told, failures included."""
        return self._run.nfev

    @property
    def n_pending(self) -> int:
        """Candidates that were handed out and are neither told nor cancelled."""
        return len(self._run.pending_ids())

    def ask(self, k: int, again_after: float | None = None) -> Batch:
        """Return at most k candidates.

        These are fewer if the budget is used up or sampling yields no new points.

        Pending candidates that were handed out at least `again_after` seconds ago come first.
        """
        run = self._run
        present = time.time()
        asked = self._recording.asked
        pending = run.pending_ids()
        old = present - (math.inf if again_after is None else again_after)
        run.again = [
            id
            for id in pending
            if asked.get(id, -math.inf) <= old and again_after is not None
        ]
        k = max(k, 0)
        if self.budget is not None:
            k = min(
                k,
                len(run.again) + max(self.budget - run.nfev - len(pending), 0),
            )
        run.check_pending(max(k - len(run.again), 0))
        ids, codes = run.ask(k) if k else ((), run.initial_points[:0])
        self._recording.hand_out(ids, present)
        return Batch(run.space, ids, codes)

    def tell(
        self,
        values: Mapping[int, Any],
        cancelled: list[int],
        skip_told: bool = False,
    ) -> None:
        """Record values of pending candidates, and which ones will have none.

        ValueError if one is not pending.

        A value is what an objective may return, or a `Failure`. With `skip_told`, candidates that
        are not pending any more are left out.
        """
        run = self._run
        read = (
            objective_value
            if self._objectives is None
            else self._objectives.read
        )
        values = {
            id: value
            if isinstance(value, Failure)
            else read(value, f"candidate {id}")
            for id, value in values.items()
        }
        if skip_told:
            left = set(run.pending_ids()).union(
                id for id in [*values, *cancelled] if not 0 <= id < run.drawn
            )
            values = {id: value for id, value in values.items() if id in left}
            cancelled = [id for id in cancelled if id in left]
        run.expect([*values, *cancelled])
        attributes = {
            i: value.text
            for i, value in enumerate(values.values())
            if isinstance(value, Attributed)
        }
        values_told = values_of(
            list(map(without_attributes, values.values())),
            len(values),
            self._sign,
        )
        self._recording.told(list(values), values_told, attributes)
        self._recording.cancelled(cancelled)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._recording.close()
