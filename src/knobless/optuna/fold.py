"""The state of the algorithm that follows from the trials of a study."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from knobless.core.igo import State
from knobless.core.rng import Stream
from knobless.core.types import Points

from .joint import Joint
from .ranking import trial_values
from .tags import tag_of

STATES = 16  # number of states kept; older ones are computed again when needed


@dataclass(frozen=True, eq=False)
class Opening:
    """The start of an iteration, as recorded by the trial of this number."""

    number: int
    iteration: int
    size: int  # number of candidates that must have finished before the next iteration is opened
    root: int  # the trial that opened iteration 0
    identity: dict[str, Any]
    x0: int | None  # the trial whose point iteration 0 starts from
    after: Opening | None
    learnt: tuple[int, ...]  # the trials that the previous iteration has learned from

    @property
    def key(self) -> tuple[int, tuple[int, ...]]:
        """What the state depends on: a trial whose tag could not be written may open an iteration once more."""
        return self.number, self.learnt


class Fold:
    """The state that follows from the trials, updated as trials are tagged and finish."""

    def __init__(self, direction: StudyDirection) -> None:
        self._sign = -1.0 if direction == StudyDirection.MAXIMIZE else 1.0
        self._seen = 0  # trials below this number were processed before
        self._unsettled: set[int] = set()  # those of them that are to be processed again
        self._openings: dict[int, Opening] = {}
        self._tips: list[Opening] = []  # the last of the longest branch of each identity
        self._finished: defaultdict[int, list[int]] = defaultdict(list)  # candidates by opening trial
        self._back: defaultdict[int, list[int]] = defaultdict(list)  # those of them that are samples from θ
        self._states: dict[tuple[int, tuple[int, ...]], State] = {}

    def draw(
        self, joint: Joint, trials: Sequence[FrozenTrial], number: int, key: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the tag and the parameters of the trial of this number."""
        self._look(trials)
        tip = self._tip(joint.identity)
        if tip is not None:
            self._back[tip.number] += [n for n in self._finished.pop(tip.number, ()) if joint.drew(trials[n])]
        if tip is None:
            tip, tag = self._begin(joint, trials, number)
        elif len(self._back[tip.number]) >= tip.size:
            tip, tag = self._open(joint, trials, number, tip)
        else:
            tag = {"iteration": tip.iteration, "number": number, "opened": tip.number}
        code = self._point(joint, self._state(joint, trials, tip), number - tip.root, key)
        return tag | {"code": code.tolist()}, joint.params(code)

    def _look(self, trials: Sequence[FrozenTrial]) -> None:
        """Process new trials, in the order of their iterations, since an opening depends on the one before."""
        self._unsettled.update(range(self._seen, len(trials)))
        self._seen = len(trials)
        tags = [(tag_of(trials, n) or {}, n) for n in self._unsettled]
        for tag, number in sorted(tags, key=lambda each: (each[0].get("iteration", 0), each[1])):
            opens = tag.get("opened") == number and number not in self._openings
            known = not opens or self._take_in(tag, number, trials)
            if known and trials[number].state.is_finished():
                self._unsettled.remove(number)
                if "opened" in tag:
                    self._finished[tag["opened"]].append(number)

    def _take_in(self, tag: Mapping[str, Any], number: int, trials: Sequence[FrozenTrial]) -> bool:
        """Add an opening; return False while a trial it depends on is not yet visible as its process has seen it."""
        if tag["iteration"] == 0:
            opening = Opening(number, 0, tag["size"], number, tag["identity"], tag["x0"], None, ())
        else:
            after = self._openings.get(tag["after"])
            if after is None or not all(n < len(trials) and trials[n].state.is_finished() for n in tag["learnt"]):
                return False
            opening = _next(after, number, tag["size"], tag["learnt"])
        self._openings[number] = opening
        tip = self._tip(opening.identity)
        if tip is None:
            self._tips.append(opening)
        elif (opening.iteration, -opening.number) > (tip.iteration, -tip.number):
            self._tips[self._tips.index(tip)] = opening
        return True

    def _tip(self, identity: Mapping[str, Any]) -> Opening | None:
        return next((tip for tip in self._tips if tip.identity == identity), None)

    def _begin(self, joint: Joint, trials: Sequence[FrozenTrial], number: int) -> tuple[Opening, dict[str, Any]]:
        known = [
            t
            for t in trials
            if t.state == TrialState.COMPLETE and not _is_blind(trials, t.number) and math.isfinite(t.value or 0.0)
        ]
        known = [t for t in known if joint.code(t.params) is not None]
        best = min(known, key=lambda t: self._sign * (t.value or 0.0), default=None)
        size = joint.algorithm.lam(joint.algorithm.init())
        opening = Opening(number, 0, size, number, joint.identity, None if best is None else best.number, None, ())
        tag = {"iteration": 0, "number": number, "opened": number, "size": size}
        return opening, tag | {"identity": opening.identity, "x0": opening.x0}

    def _open(
        self, joint: Joint, trials: Sequence[FrozenTrial], number: int, tip: Opening
    ) -> tuple[Opening, dict[str, Any]]:
        """Learn from all finished candidates; λ is at least the number of trials that run at once.

        This number is that of the previous iteration's pending candidates, so a candidate of a dead worker is counted
        for one iteration only.
        """
        learnt = sorted(self._back[tip.number])
        pending = sum((tag_of(trials, n) or {}).get("opened") == tip.number for n in self._unsettled)
        state = self._state(joint, trials, _next(tip, number, 0, learnt))
        size = max(joint.algorithm.lam(state), pending + 1)
        tag = {"iteration": tip.iteration + 1, "number": number, "opened": number, "size": size}
        return _next(tip, number, size, learnt), tag | {"after": tip.number, "learnt": learnt}

    def _state(self, joint: Joint, trials: Sequence[FrozenTrial], opening: Opening) -> State:
        """Return the state of an iteration, computed from the last one that is cached."""
        path = [opening]
        while path[-1].key not in self._states and path[-1].after is not None:
            path.append(path[-1].after)
        first = path.pop()
        state = self._states.get(first.key)
        if state is None:
            state = self._keep(first, self._start(joint, trials, first))
        for each in reversed(path):
            learnt = [trials[n] for n in each.learnt if tag_of(trials, n) is not None and joint.drew(trials[n])]
            state = self._keep(each, joint.algorithm.tell(state, joint.codes(learnt), trial_values(learnt, self._sign)))
        return state

    def _keep(self, opening: Opening, state: State) -> State:
        while len(self._states) >= STATES:
            del self._states[next(iter(self._states))]
        self._states[opening.key] = state
        return state

    def _start(self, joint: Joint, trials: Sequence[FrozenTrial], root: Opening) -> State:
        """Return the initial state, with θ halfway to the best known point if there is one."""
        family = joint.algorithm.family
        theta = family.initial()
        code = None if root.x0 is None else joint.code(trials[root.x0].params)
        if code is not None:
            theta = family.move(theta, 0.5 * (family.statistics(code[None])[0] - theta))
        return joint.algorithm.init(theta)

    def _point(self, joint: Joint, state: State, index: int, key: int) -> Points:
        """Return the point that an optimizer of this seed would draw at this index."""
        words = (joint.algorithm.family.words + 1) // 2  # a point takes whole 64-bit words
        return joint.algorithm.ask(state, Stream(key, index * words), 1)[0]


def _next(after: Opening, number: int, size: int, learnt: Sequence[int]) -> Opening:
    return Opening(number, after.iteration + 1, size, after.root, after.identity, after.x0, after, tuple(learnt))


def _is_blind(trials: Sequence[FrozenTrial], number: int) -> bool:
    """Return whether it was sampled before anything was learned, which makes it no better a start than any other."""
    tag = tag_of(trials, number)
    return tag is not None and tag["iteration"] == 0
