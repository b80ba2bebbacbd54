"""The sampler: what a process keeps of a study, and the calls of Optuna."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from knobless._checks import suggests
from knobless.core.algorithm import Algorithm
from knobless.core.rng import keys
from knobless.run.arguments import suggestions
from knobless.space.space import Space

from .conditions import Needs, Presence, variable_value
from .fold import Fold
from .joint import Joint, declared, variable_of
from .ranking import CONSTRAINTS
from .replay import Replay
from .tags import TAG

# Names of arguments in other libraries, and what to use here instead, for error messages.
OPTUNA_SAMPLER = suggestions(
    {
        "search_space": ("space", "distributions", "param_distributions"),
        "seed": ("rng", "random_state"),
        "algorithm, a recipe such as kl.pbil_lambda": ("method", "optimizer"),
    }
) | dict.fromkeys(
    (
        "n_startup_trials",
        "n_ei_candidates",
        "multivariate",
        "group",
        "popsize",
        "population_size",
        "sigma0",
    ),
    "the sampler has no strategy parameters, so leave it out",
)

Constraints = Callable[[FrozenTrial], Sequence[float]]

# After which a declared parameter that no trial has suggested is reported
MANY_TRIALS = 10
UNEXPLAINED = (
    "its distribution varies, or because no categorical or integer parameter determines which "
    "trials have it; pass "
    "search_space to KnoblessSampler to sample it jointly with the others."
)
# a child of Optuna's logger, whose verbosity and handlers apply
log = logging.getLogger("optuna.knobless")


class KnoblessSampler(BaseSampler):
    """Sample trials by the search of `minimize`.

    Binary, categorical, integer and float parameters are sampled jointly, conditional ones
    included.

    Parameters
    ----------
    search_space : Mapping[str, optuna.distributions.BaseDistribution] or Space, optional
        Parameters to sample jointly from the first trial on; a `Space` of named variables also
        states their conditions. By default, those that all completed trials have, and those whose
        condition is inferred from the completed trials.
    algorithm : Callable[[Space], Algorithm], optional
        Recipe of an algorithm to use instead, such as `pbil_lambda`, for studies with one
        objective.
    seed : int, optional
        Seed of the random numbers.
    independent_sampler : optuna.samplers.BaseSampler, optional
        Sampler of the other parameters, by default a `RandomSampler`.
    constraints_func : Callable[[FrozenTrial], Sequence[float]], optional
        Return the values of the constraints of a complete trial, which is feasible if none is above
        0. Values that the objective stores with `trial.set_constraint` are used in any case.

    Notes
    -----
    A parameter that some completed trials lack is conditional on a categorical or integer parameter
    if the value of the latter determines which trials have it. When the conditions change, the
    state is computed again from all trials.

    The search learns from all trials of the study, those of other samplers and studies included. A
    trial that was pruned is an evaluation that was stopped, whose value is estimated from its
    reports. Failed trials, and pruned ones without a report, rank worst. As in `minimize`, the best
    point is evaluated again now and then, which shows whether the objective is noisy.

    With `search_space`, the trials of a process are the evaluations of `minimize` with the same
    seed. Variables have the order of the `Space`, or else that of their names. Processes that share
    a study take part in one search, with the seed of the first trial that was sampled jointly. A
    study that is resumed continues as if it had not been interrupted.

    Studies may have up to five directions. Infeasible trials rank behind feasible ones, by the sum
    of the values of violated constraints.

    With an `algorithm`, its state follows from the trials that it has sampled, and θ starts halfway
    to the best one of the others. A point that was evaluated before is a trial like any other.

    Examples
    --------
    >>> import optuna
    >>> from knobless.optuna import KnoblessSampler
    >>> study = optuna.create_study(sampler=KnoblessSampler(seed=0))
    >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=100)
    >>> study.best_value < 1e-3
    True
    """

    @suggests(
        "KnoblessSampler",
        "KnoblessSampler(search_space, seed=0)",
        OPTUNA_SAMPLER,
    )
    def __init__(
        self,
        search_space: Mapping[str, BaseDistribution] | Space | None = None,
        *,
        algorithm: Callable[[Space], Algorithm] | None = None,
        seed: int | None = None,
        independent_sampler: BaseSampler | None = None,
        constraints_func: Constraints | None = None,
    ) -> None:
        self._needs: Needs | None = None  # inferred from the trials
        if isinstance(search_space, Space):
            search_space, self._needs = declared(search_space)
        if search_space is not None and not isinstance(search_space, Mapping):
            raise TypeError(
                "search_space: expected a Space of named variables, or distributions of Optuna by "
                "name, "
                f"got {search_space!r}"
            )
        for name, distribution in (search_space or {}).items():
            if not isinstance(distribution, BaseDistribution):
                raise TypeError(
                    f"search_space[{name!r}]: expected a distribution of Optuna, got "
                    f"{distribution!r}"
                )
        if algorithm is not None and not callable(algorithm):
            raise TypeError(
                f"algorithm: expected a recipe such as pbil_lambda, or None, got {algorithm!r}"
            )
        if independent_sampler is not None and not isinstance(
            independent_sampler, BaseSampler
        ):
            raise TypeError(
                f"independent_sampler: expected a sampler of Optuna, got {independent_sampler!r}"
            )
        if constraints_func is not None and not callable(constraints_func):
            raise TypeError(
                f"constraints_func: expected a function of a trial, got {constraints_func!r}"
            )
        self._constraints_func = constraints_func
        # A Space has an order, which is that of `minimize`.
        self._ordered = self._needs is not None
        self._given = (
            None
            if search_space is None
            else _sorted(search_space, self._ordered)
        )
        self._algorithm = algorithm
        try:
            self._key = keys(seed, 1)[0]
            self._seed = self._key >> 1 if seed is None else seed
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"seed: expected None or an integer of at least 0, got {seed!r}"
            ) from None
        # It accepts no larger seed
        sampler = RandomSampler(seed=None if seed is None else seed % 2**32)
        self._independent = (
            sampler if independent_sampler is None else independent_sampler
        )
        self._reset()

    def _reset(self) -> None:
        # Trials may run in threads that share this sampler
        self._lock = threading.RLock()
        self._view: _View | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_lock", "_view")
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def reseed_rng(self) -> None:
        """Reseed the independent sampler. Jointly sampled trials differ by their numbers."""
        self._independent.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        with self._lock:
            view = self._view_of(study)
            view.look(_trials(study))
            space = (
                _sorted(view.explained) if self._given is None else self._given
            )
            return dict(
                view.joint(space, self._needs, self._algorithm).distributions
            )

    def sample_relative(
        self,
        study: Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        if self._algorithm is not None:
            self._raise_error_if_multi_objective(study)
        # a retry of a failed trial, whose parameters are fixed
        if TAG in trial.system_attrs:
            return {}
        with self._lock:
            view = self._view_of(study)
            joint = view.joint(search_space, self._needs, self._algorithm)
            if self._algorithm is None:
                return self._searched(study, trial, view, joint)
            tag: dict[str, Any] = {"iteration": 0, "number": trial.number}
            params: dict[str, Any] = {}
            if joint.distributions:
                tag, params = view.fold.draw(
                    joint, _trials(study), trial.number, self._key
                )
            # a partly fixed point is no sample from θ
            if "fixed_params" not in trial.system_attrs:
                study._storage.set_trial_system_attr(trial._trial_id, TAG, tag)
        return params

    def _searched(
        self, study: Study, trial: FrozenTrial, view: _View, joint: Joint
    ) -> dict[str, Any]:
        """Return the parameters that the recommended search asks for.

        a point that is partly fixed is none of its.
        """
        if not joint.distributions or "fixed_params" in trial.system_attrs:
            return {}
        tag, params = view.replay.draw(
            joint, _trials(study), trial.number, self._seed
        )
        study._storage.set_trial_system_attr(trial._trial_id, TAG, tag)
        return params

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        with self._lock:
            self._view_of(study).warn(
                param_name, trial, self._independent, self._given is not None
            )
        return self._independent.sample_independent(
            study, trial, param_name, param_distribution
        )

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._independent.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        if self._given is not None and state == TrialState.COMPLETE:
            with self._lock:
                self._view_of(study).compare(trial, self._given, self._needs)
        if self._constraints_func is not None and state == TrialState.COMPLETE:
            _store_constraints(study, trial, self._constraints_func)
        self._independent.after_trial(study, trial, state, values)

    def _view_of(self, study: Study) -> _View:
        if self._view is None or not self._view.shows(study):
            self._view = _View(study)
        return self._view


def _store_constraints(
    study: Study, trial: FrozenTrial, function: Constraints
) -> None:
    """Store the values of the constraints where the samplers of Optuna do.

    None if they cannot be computed.
    """
    values: list[float] | None = None
    try:
        computed = [float(value) for value in function(trial)]
        if any(map(math.isnan, computed)):
            raise ValueError(
                f"constraints_func: expected numbers, got {computed}"
            )
        values = computed
    finally:
        study._storage.set_trial_system_attr(
            trial._trial_id, CONSTRAINTS, values
        )


def _sorted(
    distributions: Mapping[str, BaseDistribution], ordered: bool = False
) -> dict[str, BaseDistribution]:
    """Return distributions in the order of their names, unless they have one."""
    return dict(distributions if ordered else sorted(distributions.items()))


def _trials(study: Study) -> list[FrozenTrial]:
    """Return all trials.

    The list of the study may be outdated, or have only one bracket of a pruner.
    """
    return study._storage.get_all_trials(study._study_id, deepcopy=False)


class _View:
    """A cache of what follows from a study's trials."""

    def __init__(self, study: Study) -> None:
        self._study = study._storage, study._study_id
        self.fold = Fold(
            study.direction
            if len(study.directions) == 1
            else StudyDirection.MINIMIZE
        )
        self.replay = Replay(study.directions)
        self._presence = Presence()
        self._seen = 0  # trials below this number were processed before
        # Those of them that are to be processed again
        self._unfinished: set[int] = set()
        self._joint: tuple[Any, Joint] | None = None
        # Whether a distribution has a variable
        self._variables: dict[str, tuple[BaseDistribution, bool]] = {}
        self._warned: set[str] = set()

    def shows(self, study: Study) -> bool:
        return self._study == (study._storage, study._study_id)

    def look(self, trials: Sequence[FrozenTrial]) -> None:
        """Add the completed trials to what the conditions are inferred from."""
        self._unfinished.update(range(self._seen, len(trials)))
        self._seen = len(trials)
        for number in [
            n for n in self._unfinished if trials[n].state.is_finished()
        ]:
            self._unfinished.remove(number)
            if trials[number].state == TrialState.COMPLETE:
                self._presence.add(trials[number])

    @property
    def explained(self) -> dict[str, BaseDistribution]:
        """The parameters that all completed trials have, or whose condition is inferred."""
        located = (
            (name, self._presence.distributions[name])
            for name in self._presence.conditions
        )
        return {
            name: distribution
            for name, distribution in located
            if distribution is not None
        }

    def joint(
        self,
        distributions: Mapping[str, BaseDistribution],
        needs: Needs | None,
        recipe: Callable[[Space], Algorithm] | None,
    ) -> Joint:
        """Return the part of the space that can be sampled jointly; the last one is cached."""
        conditions = self._inferred(distributions) if needs is None else needs
        key = {
            n: (distribution, conditions.get(n))
            for n, distribution in distributions.items()
            if self._has_variable(n, distribution)
        }
        if self._joint is None or self._joint[0] != key:
            self._joint = key, Joint.of(distributions, conditions, recipe)
        return self._joint[1]

    def _inferred(self, distributions: Mapping[str, BaseDistribution]) -> Needs:
        """Return the conditions of parameters with one distribution in all completed trials."""
        seen = self._presence.distributions
        unchanged = {
            n
            for n, distribution in distributions.items()
            if n in seen
            and (seen[n] is distribution or seen[n] == distribution)
        }
        return {
            n: needs
            for n, needs in self._presence.conditions.items()
            if n in unchanged and needs.keys() <= unchanged
        }

    def _has_variable(self, name: str, distribution: BaseDistribution) -> bool:
        if (
            name not in self._variables
            or self._variables[name][0] is not distribution
        ):
            self._variables[name] = (
                distribution,
                variable_of(distribution) is not None,
            )
        return self._variables[name][1]

    def compare(
        self,
        trial: FrozenTrial,
        distributions: Mapping[str, BaseDistribution],
        needs: Needs | None,
    ) -> None:
        """Warn once of every parameter whose declaration differs from completed trials."""
        for name in [
            name for name in distributions if name not in self._warned
        ]:
            suggested = trial.distributions.get(name)
            if suggested is None and self._is_missing(
                name, trial, distributions, needs
            ):
                self._warned.add(name)
                message = (
                    "Trial %d: the parameter %r of search_space has not been suggested so far; "
                    "its values have no effect."
                )
                log.warning(message, trial.number, name)
            elif suggested is not None and suggested != distributions[name]:
                self._warned.add(name)
                message = (
                    "Trial %d: the parameter %r is suggested with %r, "
                    "but sampled from %r, as in search_space."
                )
                log.warning(
                    message, trial.number, name, suggested, distributions[name]
                )

    def _is_missing(
        self,
        name: str,
        trial: FrozenTrial,
        distributions: Mapping[str, BaseDistribution],
        needs: Needs | None,
    ) -> bool:
        """Return whether a trial should have had a parameter that it lacks."""
        # The parameter may be conditional; the objective may suggest it later
        if needs is None:
            return (
                trial.number >= MANY_TRIALS
                and name not in self._presence.distributions
            )
        try:
            return all(
                variable_value(distributions[n], trial.params[n]) in active
                for n, active in needs[name].items()
            )
        # The condition is on a parameter that the trial lacks, or on another value
        except (KeyError, ValueError):
            return False

    def warn(
        self,
        name: str,
        trial: FrozenTrial,
        sampler: BaseSampler,
        declared: bool,
    ) -> None:
        """Warn once of every parameter of completed trials that is not sampled jointly."""
        joint = {} if self._joint is None else self._joint[1].distributions
        if (
            joint
            and name in self._presence.distributions
            and name not in joint
            and name not in self._warned
        ):
            self._warned.add(name)
            undeclared = "it is not part of search_space."
            message = "Trial %d: the parameter %r is sampled by %s, because %s"
            log.warning(
                message,
                trial.number,
                name,
                type(sampler).__name__,
                undeclared if declared else UNEXPLAINED,
            )
