"""The search of a study: an `Optimizer` that is told the values of the trials.

The tags of the trials are a log. Each records which trials had finished and were told, and which
candidate the trial then got. Processes that read the same log make the same calls of an optimizer
with the same seed, that of the first tag. So nothing is shared but the trials, and a single process
makes the calls that `minimize` makes.

A trial that another process begins at the same moment has no tag yet. It is assumed to get the
candidate that is next. If its tag differs later, all calls are repeated, with the points of the
tags, which are not computed again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from knobless.core.early_stopping import Curve
from knobless.core.rng import Stream
from knobless.core.types import Points
from knobless.parallel.returned import Constrained
from knobless.run.candidates import Candidate
from knobless.run.optimizer import Optimizer

from .joint import Joint
from .ranking import violation_of
from .tags import TAG, Call, call_of


class Replay:
    """The optimizer of a study, which is told the values of the trials.

    Parameters
    ----------
    directions : sequence of StudyDirection
        The directions of the study.
    """

    def __init__(self, directions: Sequence[StudyDirection]) -> None:
        self._maximize = [
            direction == StudyDirection.MAXIMIZE for direction in directions
        ]
        self._seen = 0  # trials below this number were read before
        # Those of them that are to be read again
        self._unsettled: set[int] = set()
        self._calls: dict[int, Call] = {}  # by trial
        self._begun: set[int] = set()  # trials that run and have no tag
        self._finished: list[int] = []
        self._joint: Joint | None = None  # of the optimizer and of these:
        self._made: dict[int, Call] = {}  # the calls that were made, by trial
        # The candidates without a value, by trial
        self._waiting: dict[int, Candidate] = {}
        self._late: dict[int, Points] = {}  # those that no candidate has
        self._told: set[int] = set()

    def draw(
        self,
        joint: Joint,
        trials: Sequence[FrozenTrial],
        number: int,
        seed: int,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the tag and the parameters of the trial of this number."""
        space = digest(joint.identity)
        self._read(trials)
        calls: dict[int, Call | None] = dict.fromkeys(self._begun)
        calls |= {
            n: call for n, call in self._calls.items() if call.space == space
        }
        log = [(n, calls[n]) for n in sorted(calls) if n < number]
        if joint is not self._joint or not self._begins(log):
            first = log[0][1] if log else None
            self._restart(joint, seed if first is None else first.seed)
        for n, call in log[len(self._made) :]:
            self._repeat(joint, trials, n, call)
        finished = [
            n for n in self._finished if n not in self._told and n != number
        ]
        self._tell(joint, trials, finished)
        candidate = self._ask()
        code = (
            self._random(number) if candidate is None else self._code(candidate)
        )
        if candidate is not None:
            self._waiting[number] = candidate
        id = None if candidate is None else candidate.id
        call = Call(
            space, self._seed, tuple(finished), id, tuple(code.tolist())
        )
        self._made[number] = call
        tag = {
            "number": number,
            **call._asdict(),
            "told": finished,
            "code": code.tolist(),
        }
        return tag, joint.params(code)

    def _read(self, trials: Sequence[FrozenTrial]) -> None:
        """Read the tags of trials that were not finished before."""
        unsettled = sorted(
            self._unsettled | set(range(self._seen, len(trials)))
        )
        self._seen = len(trials)
        for n in unsettled:
            trial = trials[n]
            call = call_of(trials, n)
            if call is not None:
                self._calls[n] = call
            ours = (
                TAG not in trial.system_attrs
                and "fixed_params" not in trial.system_attrs
            )
            (
                self._begun.add
                if ours and trial.state == TrialState.RUNNING
                else self._begun.discard
            )(n)
            if trial.state.is_finished():
                self._unsettled.discard(n)
                self._finished.append(n)
            else:
                self._unsettled.add(n)
        self._finished.sort()

    def _begins(self, log: Sequence[tuple[int, Call | None]]) -> bool:
        """Return whether a log begins with the calls that were made."""
        made = list(self._made.items())
        matches = (
            n == m and call in (None, made_call)
            for (n, call), (m, made_call) in zip(log, made, strict=False)
        )
        return len(made) <= len(log) and all(matches)

    def _restart(self, joint: Joint, seed: int) -> None:
        """Begin with a new optimizer."""
        directions = {
            str(i): "max" if maximize else "min"
            for i, maximize in enumerate(self._maximize)
        }
        several: dict[str, Any] = (
            {"objectives": directions} if len(directions) > 1 else {}
        )
        self._joint, self._seed = joint, seed
        self._opt = Optimizer(
            joint.space,
            rng=seed,
            maximize=not several and self._maximize[0],
            **several,
        )
        self._made, self._waiting, self._late, self._told = {}, {}, {}, set()

    def _repeat(
        self,
        joint: Joint,
        trials: Sequence[FrozenTrial],
        n: int,
        call: Call | None,
    ) -> None:
        """Make the calls of a trial.

        They are those of its tag, or if there is none yet, those that are assumed.
        """
        if call is None:
            candidate = self._ask()
            id, code = (
                (None, ())
                if candidate is None
                else (candidate.id, tuple(self._code(candidate).tolist()))
            )
            self._made[n] = Call(
                digest(joint.identity), self._seed, (), id, code
            )
            if candidate is not None:
                self._waiting[n] = candidate
            return
        self._made[n] = call
        finished = (
            m
            for m in call.told
            if m < len(trials) and trials[m].state.is_finished()
        )
        self._tell(joint, trials, [m for m in finished if m not in self._told])
        point = joint.code_of(call.code)
        if point is None or call.candidate is None:
            return
        self._opt.run.recorded = {call.candidate: point}
        candidate = self._ask()
        self._opt.run.recorded = {}
        if candidate is not None and np.array_equal(
            self._code(candidate), point
        ):
            self._waiting[n] = candidate
        else:  # processes have not seen the same trials
            if candidate is not None:
                self._opt.cancel(candidate)
            self._late[n] = point
            self._note_late()

    def _ask(self) -> Candidate | None:
        """Return the next candidate; None if every point is evaluated or pending."""
        batch = self._opt.ask(1)
        return batch[0] if len(batch) else None

    def _code(self, candidate: Candidate) -> Points:
        return self._opt.run.codes_of([candidate.id])[0]

    def _note_late(self) -> None:
        """Note the points that no candidate has: models believe what they expect of them."""
        run = self._opt.run
        family = self._opt.space.family
        late = np.array([*self._late.values()], dtype=family.dtype).reshape(
            -1, family.variables
        )
        run.archive.pending_points = lambda: np.concatenate(
            [run.pending_points(), late]
        )

    def _tell(
        self,
        joint: Joint,
        trials: Sequence[FrozenTrial],
        numbers: Iterable[int],
    ) -> None:
        """Tell the values of trials, or add those of points that no candidate has."""
        opt = self._opt
        late = len(self._late)
        for n in numbers:
            self._told.add(n)
            trial = trials[n]
            candidate = self._waiting.pop(n, None)
            code = self._late.pop(n, None)
            if candidate is not None and joint.drawn(trial) is not None:
                opt.tell(candidate, self._value_of(trial))
                continue
            # Its objective has suggested other ranges
            if candidate is not None:
                opt.cancel(candidate)
            if code is None or joint.drawn(trial) is None:
                code = joint.code(trial.params)
            if code is not None and trial.state == TrialState.COMPLETE:
                opt.add(joint.space.decode(code), self._value_of(trial))
        if len(self._late) != late:
            self._note_late()

    def _value_of(self, trial: FrozenTrial) -> Any:
        """Return what the optimizer is told; if the trial has failed, NaN for each objective."""
        m = len(self._maximize)
        value = value_of(trial)
        return (value,) * m if m > 1 and isinstance(value, float) else value

    def _random(self, number: int) -> Points:
        """Return a random point, where there is none left to ask for."""
        family = self._opt.space.family
        return family.sample(
            family.initial(),
            1,
            Stream.of(np.random.default_rng([self._seed, number])),
        )[0]


def value_of(trial: FrozenTrial) -> Any:
    """Return what an optimizer is told of a trial: its values, with the steps that it has reported.

    NaN if it failed.

    A pruned trial is an evaluation that was stopped. With constraints, the values come with their
    violation.
    """
    steps = [
        trial.intermediate_values[step]
        for step in sorted(trial.intermediate_values)
    ]
    if trial.state == TrialState.PRUNED:
        if steps and math.isfinite(steps[-1]):
            return Curve(steps, stopped=True)
        return math.nan
    if trial.state != TrialState.COMPLETE or trial.values is None:
        return math.nan
    value: Any = (
        tuple(trial.values) if len(trial.values) > 1 else float(trial.values[0])
    )
    if (violation := violation_of(trial)) is not None:
        return Constrained(value, violation)
    if len(trial.values) > 1:
        return value
    if steps and all(map(math.isfinite, steps)):
        return Curve((*steps, value))
    return value


def digest(identity: Mapping[str, Any]) -> str:
    """Return a short text that is equal for equal spaces."""
    return hashlib.sha256(
        json.dumps(identity, sort_keys=True).encode()
    ).hexdigest()[:16]
