"""Ask for candidates, tell their values: the interface to a run, in terms of its space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from os import PathLike
from typing import Any, NamedTuple, Self, cast

import numpy as np

from knobless._checks import boolean, positive_int, suggests
from knobless.core.algorithm import Algorithm, checked_algorithm, observes
from knobless.core.catalog import Regime, after_violations, recommended
from knobless.core.description import algorithm_data, algorithm_of
from knobless.core.families import RecordedFamily
from knobless.core.member import Member
from knobless.core.rng import Stream
from knobless.core.search import Search
from knobless.core.several import Several
from knobless.core.types import Array, Points
from knobless.core.violation import negated
from knobless.journal.events import JournalError
from knobless.journal.identity import Identity
from knobless.journal.records import Record, read
from knobless.parallel.returned import (
    Value,
    attributes_text,
    check_no_attributes,
    objective_value,
)
from knobless.space.codec import space_data
from knobless.space.fixed import FixedVariables
from knobless.space.space import Space

from . import snapshot
from .arguments import OPTIMIZER
from .candidates import (
    NONE,
    Batch,
    Candidate,
    ToldValues,
    encoded_points,
    ids_of,
    told_values,
    values_of,
)
from .constraints import Constraints
from .display import Text, html_table
from .feasibility import Feasibility
from .front import Front
from .iteration import Info
from .objectives import Objectives
from .recommendation import recommended_point
from .recording import Recording, recorded_mode, replay
from .run_state import RunState
from .streams import Streams

# Draws in a row without a new point after which `ask(fixed=)` returns fewer
MOST_STALE_FIXED = 100


class Evaluation(NamedTuple):
    """A point and its objective value.

    Attributes
    ----------
    x : object
        The point, as the objective receives it.
    fun : float or tuple of float
        Its objective value, or a tuple of several.
    violation : float
        How much the point violates the constraints; 0 if it is feasible.
    """

    x: Any
    fun: Any
    violation: float = 0.0


class Optimizer:
    """Minimize or maximize an objective by asking for candidates and telling their values.

    Parameters
    ----------
    space : Space or variable
        The search space: `Binary`, `Choice`, `Integer`, `Float`, `Subset`, `Space`, or a list or
        dict of these; or a custom `Family`, as `minimize` describes it.
    algorithm : Algorithm, optional
        For example `pbil_lambda(space)`, which is then used for any objective. By default the
        recommended algorithm for the space and for what is stated or found about the objective.
    x0 : point or list of points, optional
        Points of the space, which are handed out first, in this order. The search starts from the
        best of them.
    rng : int, Generator or None, optional
        A seed or a NumPy generator. With None and a journal that exists, the seed of the journal.
    batch : int, optional
        Evaluations that run at once; λ is never smaller. By default 1; for a journal that exists,
        as recorded in it.
    deterministic : bool or None, optional
        Whether equal points always have equal values. With True, no point is handed out twice. With
        None and no `algorithm`, the run tests this: now and then its best point is handed out once
        more, and the first difference makes it noisy for good.
    journal : path-like or Journal, optional
        A file in which everything told is recorded. If it exists, the run is resumed: what was told
        is not handed out again, and what was pending is. One process at a time can write to it;
        `close` releases it.
    constraints : callable or sequence of callables, optional
        Restrictions of the points, as `minimize` describes them. Every candidate is feasible.
    fixed : dict, optional
        Values of variables that do not vary, as `minimize` describes them.
    maximize : bool, optional
        Whether larger values are better.
    objectives : sequence of str or dict, optional
        Names of several objectives, or their directions by name, as `minimize` describes them.

    Attributes
    ----------
    space : Space
        The search space.
    batch : int
        Evaluations that run at once.
    maximize : bool
        Whether larger values are better.
    objectives : Objectives or None
        The objectives, if there are several.
    run : RunState
        Everything that changes, as one value. It is internal: use the properties below.

    Raises
    ------
    JournalError
        If the journal cannot be used, or belongs to a run with another space, algorithm, seed,
        `batch`, `deterministic`, `x0`, `constraints`, `fixed` or direction.

    Notes
    -----
    An iteration ends when its candidates with index 0 to λ − 1 are told or cancelled. More
    candidates may be pending; they count for `best` and `nfev`, as late results of earlier
    iterations do. Of equal values, `best` is the one with the lowest candidate id, whatever the
    order of the tells.

    The tests for noise are those of `minimize`; they are decided when an iteration ends, in the
    order of the candidates. If the objective is found to be noisy, `algorithm` changes to that for
    noisy objectives, and `deterministic` becomes False. The point to use is `recommended`. An
    optimizer has no budget, so it makes no evaluations that compare points in the end.

    Examples
    --------
    >>> import knobless as kl
    >>> opt = kl.Optimizer(kl.Binary(20), rng=0)
    >>> while opt.nfev < 500:
    ...     batch = opt.ask()
    ...     opt.tell(batch, [candidate.x.sum() for candidate in batch])
    >>> opt.recommended.fun, opt.deterministic
    (0.0, True)
    """

    @suggests("Optimizer", "kl.Optimizer(space, rng=0)", OPTIMIZER)
    def __init__(
        self,
        space: Any,
        algorithm: Algorithm | None = None,
        x0: Any = None,
        rng: Any = None,
        batch: int | None = None,
        deterministic: bool | None = None,
        journal: Any = None,
        *,
        constraints: Any = None,
        fixed: Mapping[str, Any] | None = None,
        maximize: bool = False,
        objectives: Any = None,
    ) -> None:
        self.space = Space.of(space)
        self._read = stated = Objectives.of(
            objectives, boolean("maximize", maximize)
        )
        self.objectives = (
            stated if stated is not None and len(stated) > 1 else None
        )
        if stated is not None:
            maximize = len(stated) == 1 and stated.signs[0] < 0
        m = 1 if self.objectives is None else len(self.objectives)
        self._constraints = Constraints.of(constraints)
        self._fixed = FixedVariables.of(
            self.space, {} if fixed is None else fixed
        )
        self.maximize = boolean("maximize", maximize)
        self._sign = -1.0 if self.maximize else 1.0
        family = self.space.family
        self._stated = (
            None
            if deterministic is None
            else boolean("deterministic", deterministic)
        )
        noisy = later = None
        if algorithm is None:
            if (
                self._stated is not False
                and not self._constraints.functions
                and m == 1
            ):
                later = after_violations(family)
            regime = Regime(
                self._stated is not False,
                bool(self._constraints.functions),
                m > 1,
            )
            algorithm = recommended(family, regime)
            noisy = (
                recommended(family, regime._replace(deterministic=False))
                if self._stated is None
                else None
            )
        algorithm = checked_algorithm(
            algorithm, "a value such as pbil_lambda(space)"
        )
        if algorithm.family != family:
            wrong = algorithm.family
            shown = f"one for {wrong.variables} variables with {wrong.dim} free parameters"
            expected = "one for this space, priors included, such as pbil_lambda(space)"
            raise ValueError(f"algorithm: expected {expected}, got {shown}")
        if getattr(algorithm, "reads_archive", False) or (
            m > 1 and not observes(algorithm)
        ):
            algorithm = Search(
                (cast(Member[Any], algorithm),),
                deterministic=self._stated is True,
            )
        if batch is None:
            recorded = None if journal is None else recorded_mode(journal)
            batch = 1 if recorded is None else recorded[0]
        self.batch = positive_int("batch", batch)
        self._algorithm = algorithm.at_least(self.batch)
        noisy = None if noisy is None else noisy.at_least(self.batch)
        self._later = None if later is None else later.at_least(self.batch)
        streams = Streams.of(rng)
        code = None if x0 is None else encoded_points(self.space, x0, "x0")
        feasibility = Feasibility.of(self.space, self._constraints, self._fixed)
        self.run = RunState.start(
            self.space,
            self._algorithm,
            code,
            streams,
            self._stated,
            noisy,
            feasibility,
            self._later,
            m,
        )
        self._recording: Recording | None = None
        if journal is not None:
            recording = Recording(
                journal, self.run, self.identity(), adopt=rng is None
            )
            try:
                recording.replay()
            except BaseException:
                recording.close()
                raise
            self._recording = recording

    def __repr__(self) -> str:
        over = f"{self.algorithm.family.variables} variables"
        best = (
            "no value"
            if self.run.best is None
            else f"best {self.observed_fun:.10g}"
        )
        if self.objectives is not None:
            best = f"{len(self.front)} points in the front of {', '.join(self.objectives.names)}"
        return f"<Optimizer over {over}: {best} after {self.nfev} evaluations>"

    def _repr_html_(self) -> str:
        """Return the state of the run as a table for a notebook."""
        recommended = self.recommended
        kinds = {
            None: "not known whether noisy",
            True: "deterministic",
            False: "noisy",
        }
        value = (
            "none yet" if self.run.best is None else f"{self.observed_fun:.10g}"
        )
        several = self.objectives is not None
        rows = [
            ("front", Text(f"{len(self.front)} points"))
            if several
            else ("best value", Text(value)),
            *([] if recommended is None else [("recommended", recommended.x)]),
            (
                "objective",
                Text(
                    f"{'maximized' if self.maximize else 'minimized'}, {kinds[self.deterministic]}"
                ),
            ),
            (
                "evaluations",
                Text(
                    f"{self.nfev}, {self.failures} failed, {len(self.run.pending_ids())} pending"
                ),
            ),
            (
                "iterations",
                Text(f"{self.nit}, the current one with λ = {self.lam}"),
            ),
        ]
        return html_table(
            f"Optimizer over {self.algorithm.family.variables} variables", rows
        )

    # Properties.

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm in use; it changes if the objective is found to be noisy."""
        return self.run.algorithm

    @property
    def deterministic(self) -> bool | None:
        """Whether equal points have equal values, as stated or found.

        None if that is not known yet.
        """
        return self.run.deterministic

    @property
    def nfev(self) -> int:
        """Evaluations told, failures included."""
        return self.run.nfev

    @property
    def nit(self) -> int:
        """Complete iterations."""
        return self.run.nit

    @property
    def failures(self) -> int:
        """Evaluations that raised or returned NaN."""
        return self.run.failures

    @property
    def failure(self) -> str | None:
        """The message of the failed evaluation with the lowest candidate id.

        None if there is none.
        """
        return None if self.run.failure is None else self.run.failure.text

    @property
    def lam(self) -> int:
        """Samples of this iteration."""
        return self.run.lam

    @property
    def eps(self) -> float:
        """Step length of this iteration; NaN if the algorithm does not define it."""
        return self.algorithm.info(self.run.search).eps

    @property
    def state(self) -> Any:
        """The state of the algorithm, a copy."""
        return self.run.search.copy()

    @property
    def theta(self) -> Array:
        """The parameters of the distribution, a copy."""
        return self.run.search.theta.copy()

    @property
    def rng(self) -> Stream:
        """The random stream that draws the samples."""
        return self.run.streams.main

    @property
    def best(self) -> Evaluation | None:
        """The best evaluation so far, the lowest candidate id among equal ones; None if none.

        As long as no point is feasible, it is the one with the least violation.
        """
        best = self.run.best
        if best is None:
            return None
        if self.objectives is not None and not best.violation:
            return self.recommended
        return Evaluation(
            self.space.decode(best.at),
            self._user_value(best.fun),
            best.violation,
        )

    @property
    def front(self) -> Front:
        """The points that no other one dominates, for several objectives.

        Under noise, points are compared by the means of their evaluations.
        """
        if self.objectives is None:
            raise AttributeError(
                "front: expected several objectives, such as Optimizer(space, objectives=('a', "
                "'b'))"
            )
        return Front.of(self.run, self.space, self.objectives)

    def _user_value(self, fun: float) -> Any:
        """Return an objective value with the user's sign, or a tuple of several."""
        return fun.values if isinstance(fun, Several) else self._sign * fun

    @property
    def recommended(self) -> Evaluation | None:
        """The point to use, with an estimate of its mean value.

        None before there is a finite value.

        It is the best point of a deterministic objective. Of a noisy one, whose best value is a
        lucky one, it is chosen by models of all evaluations, without the final comparison of
        `minimize`. The estimate is the mean of its values, or that of a linear model if there are
        fewer than two.

        For several objectives it is the knee of the front: the point that is closest to the ideal
        point, where each objective is scaled by its range on the front. Its value is a tuple.
        """
        if self.objectives is not None and len(front := self.front):
            knee = front[front.knee]
            return Evaluation(knee.x, knee.values)
        point = recommended_point(self.run)
        if point is None:
            return None
        return Evaluation(
            self.space.decode(point.code),
            self._user_value(point.fun),
            point.violation,
        )

    @property
    def observed_fun(self) -> float:
        """The objective value of `best`.

        Inf before there is one, −inf if the optimizer maximizes.
        """
        return self._sign * self.run.lowest_fun

    @property
    def mode(self) -> Any:
        """The most probable point of the search distribution."""
        return self.space.decode(self.run.mode)

    @property
    def mode_fun(self) -> float | None:
        """The mean value of the most probable point among the last 512 evaluations.

        None if it is not among them.
        """
        mode_fun = None if self.objectives is not None else self.run.mode_fun
        return None if mode_fun is None else self._sign * mode_fun

    @property
    def n_to_ask(self) -> int:
        """Candidates of this iteration to be asked for, also those to be handed out again."""
        return self.run.undrawn + len(self.run.again)

    @property
    def pending(self) -> Batch:
        """The candidates that were asked for and are neither told nor cancelled."""
        ids = self.run.pending_ids()
        return Batch(self.space, ids, self.run.codes_of(ids))

    @property
    def complete(self) -> bool:
        """Whether a deterministic objective has been evaluated everywhere."""
        return self.run.complete

    @property
    def exhausted(self) -> bool:
        """Whether `ask` has nothing left: `complete`, or sampling yields no new points."""
        return self.run.exhausted

    @property
    def info(self) -> Info:
        """The record of the last iteration, as a `callback` receives it."""
        info = self.run.info
        return info._replace(best=self._sign * info.best)

    @property
    def on_iteration(self) -> Callable[[], object] | None:
        """A function without arguments that is called after each iteration; None for none."""
        return self.run.on_iteration

    @on_iteration.setter
    def on_iteration(self, function: Callable[[], object] | None) -> None:
        self.run.on_iteration = function

    def identity(self, direction: str | None = None) -> Identity:
        """Return what distinguishes this run from others, as plain data.

        Parameters
        ----------
        direction : {"minimize", "maximize"}, optional
            Direction of the optimization; that of this optimizer by default.

        Returns
        -------
        Identity
            Space, algorithm, initial points, constraints, fixed variables, batch, direction and the
            state of the random numbers.
        """
        x0 = self.run.x0
        return Identity(
            space=space_data(self.space),
            direction=direction
            or ("maximize" if self.maximize else "minimize"),
            batch=self.batch,
            deterministic=self._stated,
            x0=None if x0 is None else self.space.family.pack(x0).hex(),
            constraints=self._constraints.names,
            fixed=self._fixed.data,
            algorithm=algorithm_data(self._algorithm),
            noisy_algorithm=None
            if self.run.noisy_algorithm is None
            else algorithm_data(self.run.noisy_algorithm),
            constrained_algorithm=None
            if self._later is None
            else algorithm_data(self._later),
            rng=self.run.streams.identity(),
            objectives=None
            if self.objectives is None
            else self.objectives.data(),
        )

    # Asking and telling.

    def ask(
        self, k: int | None = None, fixed: Mapping[str, Any] | None = None
    ) -> Batch:
        """Return candidates to evaluate.

        Parameters
        ----------
        k : int, optional
            Number of candidates. By default those of this iteration that were not asked for yet.
        fixed : dict, optional
            Values of variables that these candidates have, as `minimize` describes them, apart from
            `x0` and from tests for noise. Not with a journal, which does not record them.

        Returns
        -------
        Batch
            The candidates. Unless the objective is noisy or an algorithm was given, only new
            points, apart from the tests for noise: fewer than k, or none, if `exhausted`; none too
            if all that is left of this iteration waits for the value of an equal pending point.

        Raises
        ------
        RuntimeError
            If `k` is not given and all candidates of this iteration were asked for.
        ValueError
            If `fixed` is not part of the space, or no feasible point has these values.
        """
        if k is not None:
            positive_int("k", k)
        ids, codes = (
            self.run.ask(k)
            if fixed is None
            else self._ask_fixed(k, FixedVariables.of(self.space, fixed))
        )
        if self._recording is not None and not ids:
            self._recording.drawn()
        return Batch(self.space, ids, codes)

    def _ask_fixed(
        self, k: int | None, fixed: FixedVariables
    ) -> tuple[Sequence[int], Points]:
        """Return ids and points of candidates with further fixed variables."""
        if self._recording is not None:
            raise ValueError(
                "fixed: expected none in ask() with a journal; Optimizer(fixed=) is recorded"
            )
        run = self.run
        usual = self.run.feasibility
        run.feasibility = Feasibility(
            self.space, self._constraints, self._fixed | fixed
        )
        most_stale = run.most_stale
        run.most_stale = MOST_STALE_FIXED
        try:
            return run.ask(k)
        finally:
            run.most_stale = most_stale
            if usual is not None:
                usual.checks += run.feasibility.checks
            run.feasibility = usual

    def tell(
        self, candidates: Batch | Candidate | Iterable[Candidate], values: Any
    ) -> None:
        """Store the objective values of candidates.

        Parameters
        ----------
        candidates : Batch, Candidate or iterable of Candidate
            Any pending candidates, in any order.
        values : array_like or float
            One number for each candidate, in their order, or a `Constrained`; for several
            objectives a tuple or a dict of numbers. A `Value` has attributes, which the journal
            records. NaN or an exception is a failure, which ranks worst.

        Raises
        ------
        ValueError
            If a candidate is unknown or was told or cancelled before, or if the number of values
            differs. Nothing is stored then.
        TypeError
            If a value is not a number.
        """
        ids = ids_of(candidates)
        if isinstance(candidates, Candidate):
            values = [values]
        # Can be read only once
        elif not isinstance(values, (list, np.ndarray)) and isinstance(
            values, Iterator
        ):
            values = list(values)
        attributes: Mapping[int, str] = NONE
        if isinstance(values, (list, tuple)) and Value in {*map(type, values)}:
            attributes = {
                i: attributes_text(v.attributes, "values")
                for i, v in enumerate(values)
                if type(v) is Value
            }
            values = [v.value if type(v) is Value else v for v in values]
        if self._read is not None and isinstance(values, Iterable):
            values = [
                v
                if isinstance(v, BaseException)
                else self._read.read(v, "values")
                for v in values
            ]
        self.run.expect(ids)
        settled = values_of(values, len(ids), self._sign)
        if self.run.reported:
            settled = self._with_steps(ids, settled)
        if self._recording is not None:
            self._recording.told(ids, settled, attributes)
        self.run.tell(ids, *settled)

    def report(self, candidate: Candidate, value: float) -> bool:
        """Report the value so far of an evaluation that takes several steps.

        Return whether to go on.

        Parameters
        ----------
        candidate : Candidate
            A pending candidate.
        value : float
            The value after one more step; for several objectives a tuple or a dict of numbers.

        Returns
        -------
        bool
            False if it is hopeless that the last value will be among the best. The evaluation
            should then end, and the last value reported is told with `tell`, in either case. An
            evaluation that runs on nevertheless counts if another value is told. Always True for
            several objectives.

        Raises
        ------
        ValueError
            If the candidate is unknown or was told or cancelled before.
        TypeError
            If the value is not a number.
        """
        self.run.expect([candidate.id])
        value = self._value(value, "value")
        return self.run.report(
            candidate.id, negated(value) if self.maximize else value
        )

    def _with_steps(
        self, ids: Sequence[int], settled: ToldValues
    ) -> ToldValues:
        """Return values with the steps that were reported."""
        reported = self.run.reported
        ranks = cast(list[float], settled.values())
        for i, id in enumerate(ids):
            if id in reported and i not in settled.failures:
                ranks[i] = self.run.with_steps(id, ranks[i])
            elif i in settled.failures:
                ranks[i] = math.nan
        return told_values(ranks, settled.failures)

    def cancel(
        self, candidates: Batch | Candidate | Iterable[Candidate]
    ) -> None:
        """Store that candidates will have no values; the iteration continues without them.

        A candidate whose evaluation failed because of the point should be told as NaN instead, so
        that it ranks worst.

        Parameters
        ----------
        candidates : Batch, Candidate or iterable of Candidate
            Any pending candidates, in any order.

        Raises
        ------
        ValueError
            If a candidate is unknown or was told or cancelled before.
        """
        ids = ids_of(candidates)
        self.run.expect(ids)
        if self._recording is not None:
            self._recording.cancelled(ids)
        self.run.cancel(ids)

    def add(self, x: Any, value: float) -> None:
        """Store a point that was evaluated elsewhere.

        It counts for `best` and is not handed out as a new point. It is never compared with an
        evaluation to test whether the objective is noisy. The members of a search learn from it as
        from other evaluations: those that fit models read it, and if it is the best point of a
        deterministic objective, it is where they begin, or it is injected into them after their
        next iterations. An algorithm that samples from a distribution, such as
        ``pbil_lambda(space)``, does not change, because it can only learn from its own samples:
        pass a good point as `x0` for that.

        Parameters
        ----------
        x : object
            A point of the space.
        value : float
            Its objective value, or a `Constrained`.
        """
        code = self.space.encode(x)
        value = self._value(value, "value")
        value = negated(value) if self.maximize else value
        if self.run.feasibility is not None:
            self.run.feasibility.require(code, "x")
        if self._recording is not None:
            self._recording.added(code, value)
        self.run.add(code[None], [value])

    def _value(self, value: Any, name: str) -> float:
        """Return an objective value with the user's sign."""
        check_no_attributes(value, name)
        if self._read is None:
            return objective_value(value, name)
        return self._read.read(value, name)

    def close(self) -> None:
        """Close the journal, so that another process can write to it.

        Nothing more can be told here.
        """
        if self._recording is not None:
            # Of a full disk, or in a forked process: nothing that was told is lost
            with suppress(JournalError):
                self._recording.drawn()
            self._recording.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Files.

    @classmethod
    def from_journal(
        cls,
        journal: str | PathLike[str] | Record,
        algorithm: Algorithm | None = None,
        constraints: Any = None,
    ) -> Self:
        """Return an optimizer in the state in which a recorded run is; the journal is only read.

        Parameters
        ----------
        journal : path-like or Record
            The journal of `minimize`, `maximize` or an `Optimizer`. Another process may be writing
            to it.
        algorithm : Algorithm, optional
            The algorithm of the run; needed if it has custom components.
        constraints : callable or sequence of callables, optional
            The constraints of the run, which are called again.

        Returns
        -------
        Optimizer
            It maximizes if the recorded run does.

        Raises
        ------
        JournalError
            If the journal is not valid, or needs or does not match `algorithm`.
        """
        with (
            nullcontext(journal)
            if isinstance(journal, Record)
            else read(journal) as record
        ):
            checked = Constraints.of(constraints)
            if record.identity.constraints and not checked.functions:
                raise JournalError(
                    f"{record.path}: the run has constraints: pass them to "
                    "from_journal(constraints=)"
                )
            space = record.space
            if algorithm is not None and isinstance(
                space.family, RecordedFamily
            ):
                space = Space.of(algorithm.family)
            with record.explained():
                if algorithm is None:
                    algorithm = algorithm_of(
                        record.identity.algorithm, space.family
                    )
                if algorithm is None:
                    raise JournalError(
                        f"{record.path}: the algorithm has custom components: pass it to "
                        "from_journal(algorithm=)"
                    )
                opt = cls._from_identity(
                    record.identity, space, algorithm, checked
                )
                differs = record.identity.difference(opt.identity())
                if differs:
                    raise JournalError(
                        f"{record.path}: journal does not match this run: {differs}"
                    )
                replay(opt.run, record, space.family, record.sign, record.drawn)
            return opt

    @classmethod
    def _from_identity(
        cls,
        identity: Identity,
        space: Space,
        algorithm: Algorithm,
        constraints: Constraints,
    ) -> Self:
        run = RunState.from_identity(identity, space, algorithm, constraints)
        maximize = identity.direction == "maximize"
        opt = cls(
            space,
            algorithm,
            batch=identity.batch,
            deterministic=identity.deterministic,
            rng=0,
            maximize=maximize,
            objectives=Objectives.from_data(identity.objectives),
        )
        opt.run, opt._constraints, opt._fixed = (
            run,
            constraints,
            FixedVariables.from_data(space, identity.fixed),
        )
        opt._later = run.constrained_algorithm
        return opt

    def save(self, path: str | PathLike[str]) -> None:
        """Write a snapshot of this optimizer to a file, which is replaced as a whole.

        Parameters
        ----------
        path : path-like
            The file.

        Raises
        ------
        SnapshotError
            If the file cannot be written.
        TypeError
            If the algorithm is a custom one, whose state cannot be saved.
        """
        snapshot.save(path, self.identity(), self.run)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        space: Any,
        algorithm: Algorithm | None = None,
        constraints: Any = None,
    ) -> Self:
        """Return the optimizer of a snapshot; pending candidates are still pending.

        Parameters
        ----------
        path : path-like
            The file that `save` has written.
        space : Space or variable
            The search space of the optimizer.
        algorithm : Algorithm, optional
            The algorithm of the optimizer; needed if it has custom components.
        constraints : callable or sequence of callables, optional
            The constraints of the optimizer.

        Returns
        -------
        Optimizer
            It continues as the one that was saved would have.

        Raises
        ------
        SnapshotError
            If the file is not a valid snapshot, or does not match `space` or `algorithm`.
        """
        space = Space.of(space)
        with snapshot.snapshot_errors(path):
            identity, data = snapshot.read_snapshot(path)
            snapshot.check(
                identity, identity._replace(space=space_data(space)), path
            )
            algorithm = (
                algorithm_of(identity.algorithm, space.family)
                if algorithm is None
                else algorithm
            )
            if algorithm is None:
                raise snapshot.SnapshotError(
                    f"{path}: the algorithm has custom components: pass it to load(algorithm=)"
                )
            opt = cls._from_identity(
                identity, space, algorithm, Constraints.of(constraints)
            )
            snapshot.check(identity, opt.identity(), path)
            snapshot.restore(opt.run, identity, data)
            return opt
