"""A sampler for Optuna whose state follows from the trials of the study alone.

Every trial that is sampled jointly is tagged with its number, its iteration, the trial that opened this iteration, and
its code. A trial that opens an iteration also records the finished trials that the previous iteration has learned
from. So θ is a function of the storage: nothing else is stored, no clock is read, and every process that can read the
study computes the same θ. The first process that asks for a trial once enough candidates have finished opens the next
iteration; until then, further candidates of the current iteration are sampled. No process waits for a dead worker, and
a result that arrives after its iteration was closed counts for the study's best trial only.

Two processes may open the same iteration at once. Then there are two branches: the longest is followed, of equal
lengths the one opened by the lower trial number, and candidates of the other count as late. A tag is valid only for the
trial number in it, so trials copied from another study are known values, not candidates of this one.
"""

from __future__ import annotations

import logging
import math
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

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
STATES = 16  # number of states kept; older ones are computed again when needed

log = logging.getLogger("optuna.knobless")  # a child of Optuna's logger, whose verbosity and handlers apply


class KnoblessSampler(BaseSampler):
    """Sample trials by PBIL-λ, for studies with one objective.

    Binary, categorical, integer and float parameters are sampled jointly.

    Parameters
    ----------
    search_space : Mapping[str, optuna.distributions.BaseDistribution], optional
        Parameters to sample jointly from the first trial on. By default, those that all completed trials have in
        common, as in the samplers of Optuna.
    algorithm : Callable[[Space], IGO], default=pbil_lambda
        Recipe, such as `pbil_epsilon`.
    seed : int, optional
        Seed of the random numbers.
    independent_sampler : optuna.samplers.BaseSampler, optional
        Sampler of the other parameters, by default a `RandomSampler`.

    Notes
    -----
    When the joint space is first known, θ starts halfway to the best trial that was enqueued or came from another
    sampler or study.

    Pruned trials rank behind completed ones, by their last report among the trials pruned at that step or later. Failed
    trials, and pruned ones without a report, rank worst.

    Unlike `minimize`, the sampler does not test whether the objective is noisy: PBIL-λ is made for noise, and a trial
    with the parameters of an earlier one is a trial like any other.

    The random numbers of a trial follow from the seed and the number of the trial, counted from the first one sampled
    jointly. Processes that share a seed and a study sample different points, except for the first trial if several
    start at once. A resumed study continues as if it had not been interrupted.

    Examples
    --------
    >>> import optuna
    >>> from knobless.optuna import KnoblessSampler
    >>> study = optuna.create_study(sampler=KnoblessSampler(seed=0))
    >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=100)
    >>> study.best_value < 1e-3
    True
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
                raise TypeError(f"search_space[{name!r}]: expected a distribution of Optuna, got {each!r}")
        if not callable(algorithm):
            raise TypeError(f"algorithm: expected a recipe such as pbil_lambda, got {algorithm!r}")
        if independent_sampler is not None and not isinstance(independent_sampler, BaseSampler):
            raise TypeError(f"independent_sampler: expected a sampler of Optuna, got {independent_sampler!r}")
        self._given = None if search_space is None else dict(search_space)
        self._algorithm = algorithm
        try:
            self._key = keys(seed, 1)[0]
        except (TypeError, ValueError) as error:
            raise type(error)(f"seed: expected None or an integer of at least 0, got {seed!r}") from None
        other = RandomSampler(seed=None if seed is None else seed % 2**32)  # it accepts no larger seed
        self._independent = other if independent_sampler is None else independent_sampler
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()  # trials may run in threads that share this sampler
        self._view: _View | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_view")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def reseed_rng(self) -> None:
        """Reseed the independent sampler. Jointly sampled trials differ by their numbers."""
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
        if TAG in trial.system_attrs:  # a retry of a failed trial, whose parameters are fixed
            return {}
        with self._lock:
            view = self._view_of(study)
            joint = view.joint(search_space, self._algorithm)
            tag: dict[str, Any] = {"iteration": 0, "number": trial.number}
            params: dict[str, Any] = {}
            if joint.distributions:
                # The list of the study may be outdated, or have the trials of one bracket of a pruner only.
                trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
                tag, params = view.fold.draw(joint, trials, trial.number, self._key)
            if "fixed_params" not in trial.system_attrs:  # a partly fixed point is no sample from θ
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
    """A cache of what follows from a study's trials."""

    def __init__(self, study: Study) -> None:
        self._study = study._storage, study._study_id
        self.common = IntersectionSearchSpace()
        self.fold = Fold(study.direction if len(study.directions) == 1 else StudyDirection.MINIMIZE)
        self._joint: tuple[dict[str, BaseDistribution], Joint] | None = None
        self._warned: set[str] = set()

    def shows(self, study: Study) -> bool:
        return self._study == (study._storage, study._study_id)

    def joint(self, space: Mapping[str, BaseDistribution], recipe: Callable[[Space], IGO]) -> Joint:
        """Return the part of the space that can be sampled jointly; the last one is cached."""
        space = dict(space)
        if self._joint is None or space not in (self._joint[0], self._joint[1].distributions):
            self._joint = space, Joint.of(space, recipe)
        return self._joint[1]

    def warn(self, name: str, trial: FrozenTrial, sampler: BaseSampler) -> None:
        """Warn once for every parameter that is sampled independently while others are sampled jointly."""
        if self._joint is not None and self._joint[1].distributions and name not in self._warned:
            self._warned.add(name)
            log.warning(
                "Trial %d: the parameter %r is sampled by %s, because not all completed trials have it with the same "
                "distribution; pass search_space to KnoblessSampler to sample it jointly with the others.",
                trial.number,
                name,
                type(sampler).__name__,
            )


# The joint space.


@dataclass(frozen=True, eq=False)
class Joint:
    """Distributions sorted by name, and the algorithm over them."""

    distributions: dict[str, BaseDistribution]
    space: Space
    algorithm: IGO

    @classmethod
    def of(cls, distributions: Mapping[str, BaseDistribution], recipe: Callable[[Space], IGO]) -> Joint:
        found = {name: variable_of(distributions[name]) for name in sorted(distributions)}
        variables = {name: variable for name, variable in found.items() if variable is not None}
        space = Space.of(variables or Choice(0, 1))  # never sampled if there are no variables
        algorithm = recipe(space)
        if not isinstance(algorithm, IGO):  # the state must be a value: branches share the states before them
            raise TypeError(f"algorithm: expected a recipe that returns an IGO, got {algorithm!r:.200}")
        return cls({name: distributions[name] for name in variables}, space, algorithm)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What must be equal for trials to belong to one run."""
        space = {name: repr(each) for name, each in self.distributions.items()}
        return {"space": space, "algorithm": algorithm_data(self.algorithm)}

    def params(self, code: Points) -> dict[str, Any]:
        """Return the parameters of a code."""
        each = zip(self.distributions.items(), self.space.decode(code).values(), strict=True)
        return {name: d.choices[v] if isinstance(d, CategoricalDistribution) else v for (name, d), v in each}

    def code(self, params: Mapping[str, Any]) -> Points | None:
        """Return the code of parameters, or None if they are not in this space."""
        if not params.keys() >= self.distributions.keys():
            return None
        try:
            return self.space.encode({name: _plain(d, params[name]) for name, d in self.distributions.items()})
        except (TypeError, ValueError):
            return None

    @cached_property
    def _options(self) -> list[int]:
        """The numbers of options of the first columns of a code; the other columns are numbers."""
        return sorted(len(d.choices) for d in self.distributions.values() if isinstance(d, CategoricalDistribution))

    def codes(self, trials: Sequence[FrozenTrial]) -> Points:
        kind = self.algorithm.family.dtype
        return np.array([trial.system_attrs[TAG]["code"] for trial in trials], dtype=kind)

    def drew(self, trial: FrozenTrial) -> bool:
        """Return whether the trial was evaluated at its code: an objective may have asked for another range."""
        code = trial.system_attrs[TAG]["code"]
        options = zip(code, self._options, strict=False)
        if len(code) != len(self.distributions) or not all(index in range(k) for index, k in options):
            return False
        drawn = self.params(self.codes([trial])[0])
        return all(_same(d, drawn[n], trial.params[n]) for n, d in self.distributions.items() if n in trial.params)


def variable_of(distribution: BaseDistribution) -> Choice | Integer | Float | None:
    """Return the variable of a distribution; None if it has a single value, or more integers than floats represent."""
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
    """Return the value of the variable: an option's index, any other value itself."""
    return int(distribution.to_internal_repr(value)) if isinstance(distribution, CategoricalDistribution) else value


def _same(distribution: BaseDistribution, drawn: Any, value: Any) -> bool:
    """Compare up to what a storage may round."""
    try:
        apart = abs(distribution.to_internal_repr(drawn) - distribution.to_internal_repr(value))
    except ValueError:
        return False
    low, high = getattr(distribution, "low", 0.0), getattr(distribution, "high", 1.0)
    return bool(apart <= 1e-9 * max(high - low, abs(low), abs(high)))


# The tags of trials.


def tag_of(trials: Sequence[FrozenTrial], number: int) -> dict[str, Any] | None:
    """Return the tag of the trial of this number, or None if it has none, a malformed one, or that of another trial.

    A retry has the tag of the trial that failed.
    """
    attrs = trials[number].system_attrs
    tag = attrs.get(TAG)
    if not _is_tag(tag):
        return None
    retried = tag["number"] < number and "failed_trial" in attrs and trials[tag["number"]].system_attrs.get(TAG) == tag
    return tag if tag["number"] == number or retried else None


def _is_tag(tag: Any) -> TypeGuard[dict[str, Any]]:
    if not (isinstance(tag, dict) and _are_counts(tag.get("iteration"), tag.get("number"))):
        return False
    if "opened" not in tag:
        return True
    code = tag.get("code")
    if not (_are_counts(tag["opened"]) and isinstance(code, list) and all(map(_is_finite, code))):
        return False
    if tag["opened"] != tag["number"]:
        return True
    if not _are_counts(tag.get("size")):
        return False
    if tag["iteration"] == 0:
        x0 = tag.get("x0")
        return isinstance(tag.get("identity"), dict) and (x0 is None or (_are_counts(x0) and x0 < tag["number"]))
    learnt = tag.get("learnt")
    return _are_counts(tag.get("after")) and isinstance(learnt, list) and _are_counts(*learnt)


def _are_counts(*values: Any) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


# The values that the algorithm learns from.


def values_of(trials: Sequence[FrozenTrial], sign: float) -> Array:
    """Return values to minimize.

    A failed trial, and a pruned one without a report, has the value NaN, which ranks worst. Other pruned trials rank
    behind the completed ones, each one unit in the last place after the one before: a preference for values rather than
    ranks treats them as the worst completed trial.
    """
    complete = [t.value if t.state == TrialState.COMPLETE else None for t in trials]
    values = sign * np.array([math.nan if value is None else value for value in complete])
    finite = values[np.isfinite(values)]
    value = finite.max() if len(finite) else 0.0
    reports = [
        {step: sign * report for step, report in t.intermediate_values.items()} if t.state == TrialState.PRUNED else {}
        for t in trials
    ]
    ranks = ranks_of(reports)
    for rank in sorted(set(ranks.values())):
        value = np.nextafter(value, math.inf)
        values[[i for i, each in ranks.items() if each == rank]] = value
    return values


def ranks_of(reports: Sequence[Mapping[int, float]]) -> dict[int, int]:
    """Return the ranks of pruned trials by their reports, less those whose last report is missing, NaN or infinite.

    A trial ranks by its last report among the trials pruned at that step or later, whose own order does not depend on
    it. Of these, a trial without a report up to that step, or with an equal one, is better.
    """
    last = {i: max(each) for i, each in enumerate(reports) if each and each[max(each)] < math.inf}
    ranks: dict[int, int] = {}
    for step in sorted(set(last.values()), reverse=True):
        then = [max((s for s in reports[i] if s <= step), default=None) for i in ranks]
        later = [-math.inf if s is None else reports[i][s] for i, s in zip(ranks, then, strict=True)]
        order = {i: (rank, 1, 0.0) for i, rank in ranks.items()}
        for i in last:
            if last[i] == step:
                report = reports[i][step]
                order[i] = sum(each <= report for each in later), 0, report
        ordered = sorted(order.values())
        ranks = {i: bisect_left(ordered, each) for i, each in order.items()}
    return ranks


# The state that follows from the trials.


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
            state = self._keep(each, joint.algorithm.tell(state, joint.codes(learnt), values_of(learnt, self._sign)))
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
