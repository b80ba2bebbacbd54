"""The state of the algorithm that follows from the trials of a study."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from knobless.core.algorithm import AnyState
from knobless.core.rng import Stream
from knobless.core.types import Points

from .joint import Joint
from .ranking import completed_value, trial_values
from .tags import tag_of

STATES = 16  # number of states kept; older ones are computed again when needed


@dataclass(frozen=True, eq=False)
class Opening:
    """The start of an iteration, as recorded by the trial of this number."""

    number: int
    iteration: int
    # Number of candidates that must have finished before the next iteration is opened
    size: int
    root: int  # the trial that opened iteration 0
    # Of the space and the algorithm; equal ones are the same object
    identity: Mapping[str, Any]
    x0: int | None  # the trial whose point iteration 0 starts from
    after: Opening | None
    # The trials that the previous iteration has learned from
    learned: tuple[int, ...]

    @property
    def key(self) -> tuple[int, tuple[int, ...]]:
        """What the state depends on.

        A trial whose tag could not be written may open an iteration once more.
        """
        return self.number, self.learned


class Fold:
    """The state that follows from the trials, updated as trials are tagged and finish."""

    def __init__(self, direction: StudyDirection) -> None:
        self._sign = -1.0 if direction == StudyDirection.MAXIMIZE else 1.0
        self._seen = 0  # trials below this number were processed before
        # Those of them that are to be processed again
        self._unsettled: set[int] = set()
        self._openings: dict[int, Opening] = {}
        # The last of the longest chain of each identity
        self._tips: list[Opening] = []
        # Candidates by opening trial
        self._finished: defaultdict[int, list[int]] = defaultdict(list)
        self._joint: Joint | None = None  # of the states and of these:
        # Whether a finished candidate of the current iteration has a code
        self._usable: dict[int, bool] = {}
        self._states: dict[tuple[int, tuple[int, ...]], AnyState] = {}

    def draw(
        self, joint: Joint, trials: Sequence[FrozenTrial], number: int, key: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the tag and the parameters of the trial of this number."""
        if joint is not self._joint:
            self._joint = joint
            self._usable = {}
            self._states = {}
        self._look(trials)
        tip = self._tip(joint.identity)
        last = tip or max(self._tips, key=_length, default=None)
        if last is None:
            tip, tag = self._begin(joint, trials, number)
        elif (
            tip is None or len(self._candidates(joint, trials, tip)) >= tip.size
        ):
            tip, tag = self._open(joint, trials, number, last)
        else:
            tag = {
                "iteration": tip.iteration,
                "number": number,
                "opened": tip.number,
            }
        code = self._point(
            joint, self._state(joint, trials, tip), number - tip.root, key
        )
        return tag | {"code": code.tolist()}, joint.params(code)

    def _look(self, trials: Sequence[FrozenTrial]) -> None:
        """Process new trials in the order of their iterations.

        An opening depends on the one before.
        """
        self._unsettled.update(range(self._seen, len(trials)))
        self._seen = len(trials)
        tags = [(tag_of(trials, n) or {}, n) for n in self._unsettled]
        for tag, number in sorted(
            tags, key=lambda tagged: (tagged[0].get("iteration", 0), tagged[1])
        ):
            opens = tag.get("opened") == number and number not in self._openings
            known = not opens or self._take_in(tag, number, trials)
            if known and trials[number].state.is_finished():
                self._unsettled.remove(number)
                if "opened" in tag:
                    self._finished[tag["opened"]].append(number)

    def _take_in(
        self, tag: Mapping[str, Any], number: int, trials: Sequence[FrozenTrial]
    ) -> bool:
        """Add an opening.

        Return False while a trial it depends on is not yet visible as its process has seen it.
        """
        if tag["iteration"] == 0:
            identity = self._same(tag["identity"])
            opening = Opening(
                number, 0, tag["size"], number, identity, tag["x0"], None, ()
            )
        else:
            after = self._openings.get(tag["after"])
            if after is None or not all(
                n < len(trials) and trials[n].state.is_finished()
                for n in tag["learned"]
            ):
                return False
            identity = (
                self._same(tag["identity"])
                if "identity" in tag
                else after.identity
            )
            opening = _next(
                after, number, tag["size"], tag["learned"], identity
            )
        self._openings[number] = opening
        tip = self._tip(opening.identity)
        if tip is None:
            self._tips.append(opening)
        elif _length(opening) > _length(tip):
            self._tips[self._tips.index(tip)] = opening
        return True

    def _same(self, identity: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the equal identity that is stored, if any: identities are compared often."""
        tip = self._tip(identity)
        return identity if tip is None else tip.identity

    def _tip(self, identity: Mapping[str, Any]) -> Opening | None:
        return next(
            (
                tip
                for tip in self._tips
                if tip.identity is identity or tip.identity == identity
            ),
            None,
        )

    def _candidates(
        self, joint: Joint, trials: Sequence[FrozenTrial], tip: Opening
    ) -> list[int]:
        """Return the finished candidates of an iteration that have a code in the joint space.

        Where a change of the space has opened an iteration that learned nothing, they include those
        of the one before.
        """
        finished = list(self._finished[tip.number])
        while not tip.learned and tip.after is not None:
            tip = tip.after
            finished += self._finished[tip.number]
        for n in finished:
            if n not in self._usable:
                self._usable[n] = self._code(joint, trials, n) is not None
        return sorted(n for n in finished if self._usable[n])

    def _code(
        self, joint: Joint, trials: Sequence[FrozenTrial], number: int
    ) -> Points | None:
        """Return the code of a finished candidate.

        That of its parameters if it was drawn from another space.
        """
        tag = tag_of(trials, number)
        opening = (
            self._openings.get(tag["opened"])
            if tag is not None and "opened" in tag
            else None
        )
        if opening is None:
            return None
        drawn = opening.identity == joint.identity
        if drawn:
            return joint.drawn(trials[number])
        return joint.code(trials[number].params)

    def _begin(
        self, joint: Joint, trials: Sequence[FrozenTrial], number: int
    ) -> tuple[Opening, dict[str, Any]]:
        ranks = [
            (value, t.number)
            for t in trials
            if math.isfinite(value := completed_value(t, self._sign))
            and not _is_blind(trials, t.number)
        ]
        best = min(
            (
                rank
                for rank in ranks
                if joint.code(trials[rank[1]].params) is not None
            ),
            default=None,
        )
        size = joint.stated.lam(joint.stated.init())
        opening = Opening(
            number,
            0,
            size,
            number,
            joint.identity,
            None if best is None else best[1],
            None,
            (),
        )
        tag = {"iteration": 0, "number": number, "opened": number, "size": size}
        return opening, tag | {"identity": opening.identity, "x0": opening.x0}

    def _open(
        self,
        joint: Joint,
        trials: Sequence[FrozenTrial],
        number: int,
        last: Opening,
    ) -> tuple[Opening, dict[str, Any]]:
        """Learn from all finished candidates; λ is at least the number of trials that run at once.

        This number is that of the previous iteration's pending candidates, so a candidate of a dead
        worker is counted for one iteration only. After a change of the space, too few candidates
        are left to the next iteration.
        """
        finished = self._candidates(joint, trials, last)
        learned = finished if len(finished) >= last.size else []
        pending = sum(
            (tag_of(trials, n) or {}).get("opened") == last.number
            for n in self._unsettled
        )
        state = self._state(
            joint, trials, _next(last, number, 0, learned, joint.identity)
        )
        size = max(joint.stated.lam(state), pending + 1)
        self._usable = {} if learned else self._usable
        tag = {
            "iteration": last.iteration + 1,
            "number": number,
            "opened": number,
            "size": size,
        }
        tag |= {"after": last.number, "learned": learned}
        changed = (
            {}
            if last.identity == joint.identity
            else {"identity": joint.identity}
        )
        return _next(last, number, size, learned, joint.identity), tag | changed

    def _state(
        self, joint: Joint, trials: Sequence[FrozenTrial], opening: Opening
    ) -> AnyState:
        """Return the state of an iteration, computed from the last one that is cached.

        All iterations before a change of the space are computed again, in the new space.
        """
        path = [opening]
        while path[-1].key not in self._states and path[-1].after is not None:
            path.append(path[-1].after)
        first = path.pop()
        state = self._states.get(first.key)
        if state is None:
            state = self._keep(first, self._start(joint, trials, first))
        for node in reversed(path):
            codes = {
                n: code
                for n in node.learned
                if (code := self._code(joint, trials, n)) is not None
            }
            if codes:
                values = trial_values([trials[n] for n in codes], self._sign)
                state = joint.stated.tell(
                    state.copy(), np.array(list(codes.values())), values
                )
            self._keep(node, state)
        return state

    def _keep(self, opening: Opening, state: AnyState) -> AnyState:
        while len(self._states) >= STATES:
            del self._states[next(iter(self._states))]
        self._states[opening.key] = state
        return state

    def _start(
        self, joint: Joint, trials: Sequence[FrozenTrial], root: Opening
    ) -> AnyState:
        """Return the initial state, with θ halfway to the best known point if there is one."""
        family = joint.stated.family
        theta = family.initial()
        code = None if root.x0 is None else joint.code(trials[root.x0].params)
        if code is not None:
            theta = family.move(
                theta, 0.5 * (family.statistics(code[None])[0] - theta)
            )
        return joint.stated.init(theta)

    def _point(
        self, joint: Joint, state: AnyState, index: int, key: int
    ) -> Points:
        """Return the point that an optimizer of this seed would draw at this index."""
        # a point takes whole 64-bit words
        words = (joint.stated.family.words + 1) // 2
        return joint.stated.ask(state, Stream(key, index * words), 1)[0]


def _next(
    after: Opening,
    number: int,
    size: int,
    learned: Sequence[int],
    identity: Mapping[str, Any],
) -> Opening:
    return Opening(
        number,
        after.iteration + 1,
        size,
        after.root,
        identity,
        after.x0,
        after,
        tuple(learned),
    )


def _length(opening: Opening) -> tuple[int, int]:
    """Return what decides which chain is followed: its length, then the lower trial number."""
    return opening.iteration, -opening.number


def _is_blind(trials: Sequence[FrozenTrial], number: int) -> bool:
    """Return whether a trial was sampled before anything was learned.

    Such a trial is no better a start than any other.
    """
    tag = tag_of(trials, number)
    return tag is not None and tag["iteration"] == 0
