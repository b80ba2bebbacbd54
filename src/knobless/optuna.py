"""Studies of Optuna: a sampler whose state is the fold of the study's own trials.

    study = optuna.create_study(storage="postgresql://…", sampler=KnoblessSampler())
    study.optimize(objective, n_trials=1000)

Every trial drawn here is tagged with its iteration, the trial that opened this iteration, and its code. A trial that
opens an iteration also says which finished trials the one before has learnt from. So θ follows from the storage
alone: nothing else is kept there, no clock is read, and any process that knows the study knows θ. Whoever asks first
when enough candidates have finished opens the next iteration; until then further candidates of the current one are
handed out. A worker that dies is therefore waited for by nobody, and a result that comes after its iteration was
closed counts for the study's best trial only.

Two processes may open the same iteration at once. Then there are two branches: the one that has come furthest is
followed, of equals the one opened by the lower trial number, and what was drawn from the other counts as late.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from knobless.core.description import algorithm_data
from knobless.core.igo import IGO, State
from knobless.core.rng import Stream, keys
from knobless.core.types import Array, Points
from knobless.recipes import pbil_lambda
from knobless.space.space import Space
from knobless.space.variables import Choice, Float, Integer

__all__ = ["KnoblessSampler"]

TAG = "knobless"  # the system attribute
STATES = 16  # kept of the last iterations looked at; older ones are folded again if ever needed

log = logging.getLogger("optuna.knobless")  # below Optuna's own, so that its verbosity and handlers apply


class KnoblessSampler(BaseSampler):
    """PBIL-λ for studies with one objective: bits, categories, integers and floats are sampled jointly.

    Jointly sampled is what all completed trials have in common, as in Optuna's own samplers, or the `search_space`
    given here, from the first trial on. The rest is left to `independent_sampler`, by default a `RandomSampler`.

    When the joint space is first known, θ starts halfway to the best trial that was enqueued or came from another
    sampler. Pruned and failed trials rank worst. For a seed, the trial of number k is drawn from a place of its own in
    the stream of random numbers, counted from the trial that began: processes that share seed and study draw different
    points (but for the first, if several begin at once), and a study that is resumed goes on as if it had never
    stopped. `algorithm` is a recipe such as `pbil_epsilon`.
    """

    def __init__(
        self,
        search_space: Mapping[str, BaseDistribution] | None = None,
        *,
        algorithm: Callable[[Space], IGO] = pbil_lambda,
        seed: int | None = None,
        independent_sampler: BaseSampler | None = None,
    ) -> None:
        for name, each in (search_space or {}).items():
            if not isinstance(each, BaseDistribution):
                raise TypeError(f"search_space[{name!r}]: expected a distribution of Optuna's, got {each!r}")
        if not callable(algorithm):
            raise TypeError(f"algorithm: expected a recipe such as pbil_lambda, got {algorithm!r}")
        if independent_sampler is not None and not isinstance(independent_sampler, BaseSampler):
            raise TypeError(f"independent_sampler: expected a sampler of Optuna's, got {independent_sampler!r}")
        self._given = None if search_space is None else dict(search_space)
        self._algorithm = algorithm
        try:
            self._key = keys(seed, 1)[0]
        except (TypeError, ValueError) as error:
            raise type(error)(f"seed: expected None or an integer of at least 0, got {seed!r}") from None
        other = RandomSampler(seed=None if seed is None else seed % 2**32)  # all that it takes
        self._independent = other if independent_sampler is None else independent_sampler
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()  # trials may run in threads that share this sampler
        self._view: _View | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_view")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def reseed_rng(self) -> None:
        """Of the independent sampler: trials drawn jointly differ by their numbers, however many copies draw them."""
        self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        with self._lock:
            view = self._view_of(study)
            space = view.common.calculate(study, use_cache=True) if self._given is None else self._given
            return dict(view.joint(space, self._algorithm).distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._raise_error_if_multi_objective(study)
        if TAG in trial.system_attrs:  # another attempt at a trial that failed: its point is there already
            return {}
        with self._lock:
            view = self._view_of(study)
            joint = view.joint(search_space, self._algorithm)
            tag: dict[str, Any] = {"iteration": 0}
            params: dict[str, Any] = {}
            if joint.distributions:
                # Not the study's own list, which may be that of the last trial or of one bracket of a pruner.
                trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
                tag, params = view.fold.draw(joint, trials, trial.number, self._key)
            if "fixed_params" not in trial.system_attrs:  # a point that the user has fixed a part of is not from θ
                study._storage.set_trial_system_attr(trial._trial_id, TAG, tag)
        return params

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        self._raise_error_if_multi_objective(study)
        with self._lock:
            self._view_of(study).warn(param_name, trial, self._independent)
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._independent.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._independent.after_trial(study, trial, state, values)

    def _view_of(self, study: Study) -> _View:
        if self._view is None or not self._view.shows(study):
            self._view = _View(study)
        return self._view


class _View:
    """What this process has seen of a study: all of it can be seen again."""

    def __init__(self, study: Study) -> None:
        self._study = study._storage, study._study_id
        self.common = IntersectionSearchSpace()
        self.fold = Fold(study.direction if len(study.directions) == 1 else StudyDirection.MINIMIZE)
        self._joint: tuple[dict[str, BaseDistribution], Joint] | None = None
        self._warned: set[str] = set()

    def shows(self, study: Study) -> bool:
        return self._study == (study._storage, study._study_id)

    def joint(self, space: Mapping[str, BaseDistribution], recipe: Callable[[Space], IGO]) -> Joint:
        """The part of the space that can be sampled jointly; the last one is remembered."""
        space = dict(space)
        if self._joint is None or space not in (self._joint[0], self._joint[1].distributions):
            self._joint = space, Joint.of(space, recipe)
        return self._joint[1]

    def warn(self, name: str, trial: FrozenTrial, sampler: BaseSampler) -> None:
        """Once for every parameter that is left to another sampler while others are sampled jointly."""
        if self._joint is not None and self._joint[1].distributions and name not in self._warned:
            self._warned.add(name)
            log.warning(
                "Trial %d: the parameter %r is left to %s, because not all completed trials have it with the same "
                "distribution; give KnoblessSampler a search_space to have it sampled with the others.",
                trial.number,
                name,
                type(sampler).__name__,
            )


# What is sampled jointly.


@dataclass(frozen=True, eq=False)
class Joint:
    """Distributions by name, in the order of their names, and the algorithm over them."""

    distributions: dict[str, BaseDistribution]
    space: Space
    algorithm: IGO

    @classmethod
    def of(cls, distributions: Mapping[str, BaseDistribution], recipe: Callable[[Space], IGO]) -> Joint:
        found = {name: variable_of(distributions[name]) for name in sorted(distributions)}
        variables = {name: variable for name, variable in found.items() if variable is not None}
        space = Space.of(variables or Choice(0, 1))  # never drawn from where there are none
        algorithm = recipe(space)
        if not isinstance(algorithm, IGO):  # the state must be a value, for processes that learn in different orders
            raise TypeError(f"algorithm: expected a recipe of the loop, such as pbil_lambda, got {algorithm!r:.200}")
        return cls({name: distributions[name] for name in variables}, space, algorithm)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What two processes must agree on to learn from each other's trials."""
        space = {name: repr(each) for name, each in self.distributions.items()}
        return {"space": space, "algorithm": algorithm_data(self.algorithm)}

    def params(self, code: Points) -> dict[str, Any]:
        """What Optuna sees of a code."""
        each = zip(self.distributions.items(), self.space.decode(code).values(), strict=True)
        return {name: d.choices[v] if isinstance(d, CategoricalDistribution) else v for (name, d), v in each}

    def code(self, params: Mapping[str, Any]) -> Points | None:
        """Of a point that another sampler or the user has chosen; None if it is not in this space."""
        if not params.keys() >= self.distributions.keys():
            return None
        try:
            return self.space.encode({name: _plain(d, params[name]) for name, d in self.distributions.items()})
        except (TypeError, ValueError):
            return None

    def codes(self, trials: Sequence[FrozenTrial]) -> Points:
        kind = self.algorithm.family.dtype
        return np.array([trial.system_attrs[TAG]["code"] for trial in trials], dtype=kind)

    def drew(self, trial: FrozenTrial) -> bool:
        """Whether what was evaluated is what was drawn: an objective may have asked for another range."""
        drawn = self.params(self.codes([trial])[0])
        return all(_same(d, drawn[n], trial.params[n]) for n, d in self.distributions.items() if n in trial.params)


def variable_of(distribution: BaseDistribution) -> Choice | Integer | Float | None:
    """Options by their index; None for what has one value only, or cannot be told apart by a float."""
    if distribution.single():
        return None
    try:
        match distribution:
            case CategoricalDistribution(choices=choices):
                return Choice(*range(len(choices)))
            case IntDistribution(low=low, high=high, step=step, log=log):
                return Integer(low, high, step=step, log=log)
            case FloatDistribution(low=low, high=high, step=step, log=log):
                return Float(low, high, step=step, log=log)
    except ValueError:
        pass
    return None


def _plain(distribution: BaseDistribution, value: Any) -> Any:
    """As the variable has it: an option's index, any other value itself."""
    return int(distribution.to_internal_repr(value)) if isinstance(distribution, CategoricalDistribution) else value


def _same(distribution: BaseDistribution, drawn: Any, value: Any) -> bool:
    """But for what a storage may round."""
    try:
        apart = abs(distribution.to_internal_repr(drawn) - distribution.to_internal_repr(value))
    except ValueError:
        return False
    low, high = getattr(distribution, "low", 0.0), getattr(distribution, "high", 1.0)
    return bool(apart <= 1e-9 * max(high - low, abs(low), abs(high)))


# What follows from the trials.


@dataclass(frozen=True, eq=False)
class Opening:
    """The beginning of an iteration, as the trial of this number has recorded it."""

    number: int
    iteration: int
    size: int  # candidates that must have finished before the next one is opened
    root: int  # the trial that opened iteration 0
    identity: dict[str, Any]
    x0: int | None  # the trial that iteration 0 has started from
    after: Opening | None
    learnt: tuple[int, ...]  # the trials that the iteration before has learnt from

    @property
    def key(self) -> tuple[int, tuple[int, ...]]:
        """What its state follows from: a trial whose tag could not be written may open another time."""
        return self.number, self.learnt


class Fold:
    """Takes in each trial as it is tagged and as it finishes, whatever else is going on; the trials are the truth."""

    def __init__(self, direction: StudyDirection) -> None:
        self._sign = -1.0 if direction == StudyDirection.MAXIMIZE else 1.0
        self._seen = 0  # trials below this number were looked at before
        self._unsettled: set[int] = set()  # those of them that have to be looked at again
        self._openings: dict[int, Opening] = {}
        self._tips: list[Opening] = []  # the furthest of each identity
        self._finished: defaultdict[int, list[int]] = defaultdict(list)  # candidates by the trial that opened
        self._back: defaultdict[int, list[int]] = defaultdict(list)  # those of them that are known to be from θ
        self._states: dict[tuple[int, tuple[int, ...]], State] = {}

    def draw(
        self, joint: Joint, trials: Sequence[FrozenTrial], number: int, key: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The tag and the parameters of the trial of this number."""
        self._look(trials)
        tip = self._tip(joint.identity)
        if tip is not None:
            self._back[tip.number] += [n for n in self._finished.pop(tip.number, ()) if joint.drew(trials[n])]
        if tip is None:
            tip, tag = self._begin(joint, trials, number)
        elif len(self._back[tip.number]) >= tip.size:
            tip, tag = self._open(joint, trials, number, tip)
        else:
            tag = {"iteration": tip.iteration, "opened": tip.number}
        code = self._point(joint, self._state(joint, trials, tip), number - tip.root, key)
        return tag | {"code": code.tolist()}, joint.params(code)

    def _look(self, trials: Sequence[FrozenTrial]) -> None:
        """Of parents and children that have both come since the last look, the parents are taken in first."""
        self._unsettled.update(range(self._seen, len(trials)))
        self._seen = len(trials)
        tags = [(trials[n].system_attrs.get(TAG, {}), n) for n in self._unsettled]
        for tag, number in sorted(tags, key=lambda each: (each[0].get("iteration", 0), each[1])):
            opens = tag.get("opened") == number and number not in self._openings  # a copy of a tag opens nothing
            known = not opens or self._take_in(tag, number, trials)
            if known and trials[number].state.is_finished():
                self._unsettled.remove(number)
                if "opened" in tag:
                    self._finished[tag["opened"]].append(number)

    def _take_in(self, tag: Mapping[str, Any], number: int, trials: Sequence[FrozenTrial]) -> bool:
        """False while a trial that it speaks of is not yet seen as whoever has opened this saw it."""
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
            t for t in trials if t.state == TrialState.COMPLETE and not _blind(t) and math.isfinite(t.value or 0.0)
        ]
        known = [t for t in known if joint.code(t.params) is not None]
        best = min(known, key=lambda t: self._sign * (t.value or 0.0), default=None)
        size = joint.algorithm.lam(joint.algorithm.init())
        opening = Opening(number, 0, size, number, joint.identity, None if best is None else best.number, None, ())
        tag = {"iteration": 0, "opened": number, "size": size, "identity": opening.identity, "x0": opening.x0}
        return opening, tag

    def _open(
        self, joint: Joint, trials: Sequence[FrozenTrial], number: int, tip: Opening
    ) -> tuple[Opening, dict[str, Any]]:
        """Learns from all that have finished; λ is not below the number of trials that run at once.

        These are the candidates of the iteration before that are out now: one that a dead worker has left is
        counted once, not for ever.
        """
        learnt = sorted(self._back[tip.number])
        out = sum(trials[n].system_attrs.get(TAG, {}).get("opened") == tip.number for n in self._unsettled)
        state = self._state(joint, trials, _next(tip, number, 0, learnt))
        size = max(joint.algorithm.lam(state), out + 1)
        tag = {"iteration": tip.iteration + 1, "opened": number, "size": size, "after": tip.number, "learnt": learnt}
        return _next(tip, number, size, learnt), tag

    def _state(self, joint: Joint, trials: Sequence[FrozenTrial], opening: Opening) -> State:
        """θ and the rest, told from the last known state on."""
        path = [opening]
        while path[-1].key not in self._states and path[-1].after is not None:
            path.append(path[-1].after)
        first = path.pop()
        state = self._states.get(first.key)
        if state is None:
            state = self._keep(first, self._start(joint, trials, first))
        for each in reversed(path):
            learnt = [trials[n] for n in each.learnt]
            state = self._keep(each, joint.algorithm.tell(state, joint.codes(learnt), self._values(learnt)))
        return state

    def _keep(self, opening: Opening, state: State) -> State:
        while len(self._states) >= STATES:
            del self._states[next(iter(self._states))]
        self._states[opening.key] = state
        return state

    def _start(self, joint: Joint, trials: Sequence[FrozenTrial], root: Opening) -> State:
        """The θ that assumes least, or halfway from there to a point that is known."""
        family = joint.algorithm.family
        theta = family.initial()
        code = None if root.x0 is None else joint.code(trials[root.x0].params)
        if code is not None:
            theta = family.move(theta, 0.5 * (family.statistics(code[None])[0] - theta))
        return joint.algorithm.init(theta)

    def _values(self, trials: Sequence[FrozenTrial]) -> Array:
        """To be minimised; NaN, which ranks worst, for what was pruned or has failed."""
        values = [t.value if t.state == TrialState.COMPLETE else None for t in trials]
        return self._sign * np.array([math.nan if value is None else value for value in values])

    def _point(self, joint: Joint, state: State, index: int, key: int) -> Points:
        """The point that an optimizer of this seed would draw as the one of this index."""
        words = (joint.algorithm.family.words + 1) // 2  # a point takes whole 64-bit words
        return joint.algorithm.ask(state, Stream(key, index * words), 1)[0]


def _next(after: Opening, number: int, size: int, learnt: Sequence[int]) -> Opening:
    return Opening(number, after.iteration + 1, size, after.root, after.identity, after.x0, after, tuple(learnt))


def _blind(trial: FrozenTrial) -> bool:
    """Whether it was drawn here before anything was learnt: no better a place to start from than any other."""
    return bool(trial.system_attrs.get(TAG, {}).get("iteration") == 0)
