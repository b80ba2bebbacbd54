"""Bayesian optimization with a Gaussian process, for the first evaluations of an objective.

The first points fill the space: a Latin hypercube, whose first point has all numbers at their
centers. Each further one has the largest expected improvement, by the process of all evaluations
(`kernel.py`), of random points, of points near the best ones, and of those that climbs from these
reach.

If evaluations have shown violations, a second process is that of the violation, and the expected
improvement is multiplied by the probability that there is none. Of points that violate stated
constraints, none is proposed.

With several objectives, each has a process, and the improvement is that of the front
(`hypervolume_improvement.py`). Every second point is then a child of the front
(`pareto_evolution.py`): where the processes are wrong, it still moves.

A process that is wrong about the lengths may stay where it is. After three evaluations without an
improvement, every second one has to improve by more than nothing, and is chosen with lengths nearer
to the prior. In a conditional space, every third evaluation belongs to one branch, by the turns of
`branching.py`.
"""

from __future__ import annotations

import math
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import positive_int

from .acquisition import (
    BEST,
    CHECKED,
    UNIFORM,
    Candidates,
    Prior,
    Score,
    Turn,
    canonical,
    log_improvement,
    log_probability_below,
)
from .algorithm import AlgorithmInfo
from .archive import Archive
from .branches import Branches
from .conditional import Conditional
from .data import octets, whole
from .evolution import theta_around
from .families import Family, checked_family
from .hypervolume_improvement import FrontImprovement
from .kernel import Encoding, Process
from .pareto import is_front
from .pareto_evolution import FrontState, ParetoEvolution
from .rng import RNG, Stream, first_uniforms
from .surrogate import Surrogate, objective, violation
from .types import Array, Indices, Points
from .violation import is_feasible, is_infeasible

# Where the model yields to other members: it takes O(n³) operations for n evaluations.
MOST_VARIABLES = 100  # of a space
MOST_EVALUATIONS = 300  # of a run
MOST_UNIMPROVED = 100  # evaluations without an improvement

# Points that fill the space; between these, one more than there are variables
LEAST_FIRST, MOST_FIRST = 4, 10
MOST_CLIMBING = 10  # points of an iteration that are chosen by climbs
MOST_REPEATED = 5  # iterations in a row without a new point
# Improvements asked for, in standard deviations of the values
MARGINS = (0.01, 0.05, 0.01, 0.2, 0.01, 0.5)
# From which on lengths are nearer to the prior, and there are no climbs
LARGE_MARGIN = 0.1
PATIENCE = 3  # evaluations without an improvement before these
# Improvements, relative to the distance of the median from the best value
NEGLIGIBLE = 1e-3
# Relative variance, from which on points are compared by their means and not by their values
SMALL_NOISE = 0.01
BRANCH_TURN = 3  # one in so many evaluations belongs to a branch
# One in so many evaluations is a child of the front, with several objectives
CHILD_TURN = 2

Fixed = NDArray[np.bool_]


@dataclass(frozen=True)
class Model:
    """Bayesian optimization of at most 100 variables of any kind, for the first evaluations.

    Parameters
    ----------
    family : Family
        Family of the points.
    batch : int
        Number of points per iteration.

    Raises
    ------
    ValueError
        If there are more than 100 variables.

    Notes
    -----
    The points are determined by the evaluations and one random number. Several points at once are
    chosen one after the other, each as if the ones before had the mean as their value. Some
    iterations in a row without a new point end it, as in a space that is nearly exhausted.
    """

    family: Family
    batch: int = 1

    # Sums are rounded differently on other machines
    exact: ClassVar[bool] = False
    # a search adds its evaluations to an archive
    reads_archive: ClassVar[bool] = True
    # It needs no single value by which points rank
    reads_outcomes: ClassVar[bool] = True
    # `ask` is told which variables are fixed
    takes_fixed: ClassVar[bool] = True
    # Pending points are taken to have the mean as their value
    overlaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_family(self.family)
        if self.family.variables > MOST_VARIABLES:
            raise ValueError(
                f"family: expected at most {MOST_VARIABLES} variables, got {self.family.variables}"
            )
        positive_int("batch", self.batch)

    @cached_property
    def encoding(self) -> Encoding:
        """The coordinates of the points."""
        return Encoding(self.family)

    @cached_property
    def branches(self) -> Branches | None:
        """The branches of a conditional space; None without any."""
        branches = (
            Branches(self.family)
            if isinstance(self.family, Conditional)
            else None
        )
        return branches if branches is not None and branches.each else None

    def init(
        self,
        theta: Array | None = None,
        x0: Points | None = None,
        archive: Archive | None = None,
    ) -> ModelState:
        """Return the state before the first iteration, which reads an archive."""
        first = self.family.initial() if theta is None else theta
        return ModelState(
            Archive(self.family) if archive is None else archive, first, x0
        )

    def lam(self, state: ModelState) -> int:
        """Return the number of points of an iteration."""
        return self.batch

    def ask(
        self,
        state: ModelState,
        rng: RNG,
        size: int | None = None,
        start: int = 0,
        fixed: Fixed | None = None,
    ) -> Points:
        """Return x0 at first, then points that fill the space, then the most promising ones.

        The points of a batch are chosen together, further ones one at a time. If there are no more
        new points, they are random.
        """
        self._begin(state, rng, start, fixed)
        size = self.batch if size is None else size
        limit = self.batch if start < self.batch else 1
        first = min(start, self.batch)
        points = self._next(state, limit)[
            first % self.batch : first % self.batch + size
        ]
        more = size - len(points)
        # Of a stream that the evaluations determine, so that `skip` need not know how many there
        # are
        if more:
            words = first_uniforms(
                state.key_of_points ^ 1, start + size, self.family.words
            )
            points = np.concatenate(
                [points, self.family.draw(state.first, words[-more:])]
            )
        return points.copy()

    def skip(
        self,
        state: ModelState,
        rng: Stream,
        size: int,
        start: int = 0,
        fixed: Fixed | None = None,
    ) -> None:
        """Advance the stream as `ask` does."""
        self._begin(state, rng, start, fixed)

    def _begin(
        self, state: ModelState, rng: RNG, start: int, fixed: Fixed | None
    ) -> None:
        """Begin a batch, or a single point beyond it, which depend on what the archive has now."""
        if state.key is None:
            state.key, state.begun = Stream.of(rng).word(), len(state.archive)
        anew = start == 0 or start >= self.batch
        if anew or state.fixed is None:
            state.fixed = fixed
        if anew:
            state.rows = len(state.archive)
            state.pending = state.archive.pending

    def tell(self, state: ModelState, x: Points, f: Array) -> ModelState:
        """Return the state after evaluations that the archive has; the given state is modified."""
        archive = state.archive
        if len(x) < self.batch and state.key is not None:
            asked = self._next(state, self.batch)
            told = set(archive.keys(x))
            # Cancelled points are not asked for again.
            cancelled = [
                i
                for i, key in enumerate(archive.keys(asked))
                if key not in told and archive.row(key) is None
            ]
            if len(cancelled) == len(asked) - len(x):
                state.cancelled = np.concatenate(
                    [state.cancelled, asked[cancelled]]
                )
        rows = len(archive)
        if len(f):
            state.repeated = state.repeated + 1 if rows == state.rows else 0
        unimproved = self._unimproved_of(state, rows) > MOST_UNIMPROVED
        state.ended = (
            rows >= MOST_EVALUATIONS
            or state.repeated >= MOST_REPEATED
            or unimproved
        )
        return state

    @property
    def _first_points(self) -> int:
        """Number of points that fill the space."""
        return min(max(self.family.variables + 1, LEAST_FIRST), MOST_FIRST)

    @staticmethod
    def _unimproved(f: Array, begun: int) -> int:
        """Return the number of evaluations since the last improvement that counts."""
        values = np.where(f < math.inf, f, math.inf)
        if is_feasible(values[values < math.inf]).any():
            values[is_infeasible(values)] = math.inf
        lowest = np.minimum.accumulate(values)
        finite = values[np.isfinite(values)]
        if not len(finite):
            return len(f) - begun
        with np.errstate(over="ignore", invalid="ignore"):
            least = NEGLIGIBLE * (float(np.median(finite)) - lowest[-1])
            improved = np.flatnonzero(lowest[:-1] - lowest[1:] > least)
        last = int(improved[-1]) + 1 if len(improved) else 0
        return len(f) - 1 - max(last, begun - 1)

    # The next points.

    def _next(self, state: ModelState, limit: int) -> Points:
        """Return the next points, at most so many, and fewer if there are no others."""
        fixed = None if state.fixed is None else state.fixed.tobytes()
        made_for = (
            limit,
            state.rows,
            state.repeated,
            len(state.cancelled),
            state.pending.tobytes(),
            fixed,
        )
        if state.made_for != made_for:
            state.points = self._made(state, limit)
            state.made_for = made_for
        return state.points

    def _made(self, state: ModelState, limit: int) -> Points:
        archive = state.archive
        n = state.rows
        taken = Taken(archive, n)
        believed: list[Points] = []
        if len(state.pending):
            taken.take(state.pending, believed, len(state.pending))
        taken.leave_out(state.cancelled)
        chosen: list[Points] = []
        filled = n + len(believed)
        if filled < self._first_points or not n:
            if not filled and state.x0 is not None:
                taken.take(
                    self.encoding.centered(
                        state.x0[None].astype(self.family.dtype)
                    ),
                    chosen,
                    1,
                )
            points = self._filling(state)
            if n and state.fixed is not None:
                # The last point has the values of fixed variables, a pending one before all.
                last = (
                    state.pending[-1:]
                    if len(state.pending)
                    else archive.x(n - 1, n)
                )
                points = np.where(state.fixed, last, points)
            taken.take(
                points,
                chosen,
                min(self._first_points - filled, limit) if n else limit,
            )
        if n and len(chosen) < limit:
            self._improving(state, taken, believed, chosen, limit)
        return np.array(chosen) if chosen else archive.x(0, 0)

    def _filling(self, state: ModelState) -> Points:
        """Return points that fill the space: a Latin hypercube, centers of numbers first."""
        m = max(self._first_points, self.batch) + 2
        d = self.family.variables
        g = np.random.default_rng(state.key)
        cells = g.permuted(np.tile(np.arange(m), (d, 1)), axis=1).T
        prior = Prior(self.encoding, state.first)
        points = prior.points((cells + g.random((m, d))) / m, g)
        points[:1] = self.encoding.centered(
            prior.sized(prior.center(points[0])[None], g)
        )
        points = canonical(self.family, points)
        feasible = state.archive.feasible
        if feasible is None:
            return points
        # Infeasible points are replaced by random feasible ones, and repaired if there are not
        # enough of these.
        others = np.flatnonzero(~feasible.are_feasible(points))
        random = (
            canonical(self.family, prior.points(g.random((UNIFORM, d)), g))
            if len(others)
            else points[:0]
        )
        random = random[feasible.are_feasible(random)][: len(others)]
        points[others[: len(random)]] = random
        rest = others[len(random) :]
        points[rest] = self.encoding.centered(
            feasible.repaired(points[rest], int(g.integers(2**63)))
        )
        return points

    def _improving(
        self,
        state: ModelState,
        taken: Taken,
        pending: list[Points],
        chosen: list[Points],
        limit: int,
    ) -> None:
        """Add points of large expected improvement.

        Pending ones and those chosen before have the mean as value.
        """
        archive = state.archive
        n = state.rows
        if archive.objectives > 1:
            self._improving_front(state, taken, pending, chosen, limit)
            return
        x, y = state.objective.data(archive, n)
        fit = state.objective.hyperparameters(archive, n)
        process = Process.of(state.objective.encoding, x, y, fit.theta)
        for point in (*pending, *chosen):
            process = process.believing(point)
        f = archive.f[:n]
        # Whether some points are infeasible, and others are not
        violated = len(y) < len(f) or None
        violations = violated and state.violation.process(archive, n)
        means = y if process.noise < SMALL_NOISE else process.predict(x)[0]
        lowest = float(means.min())
        ranked = y if archive.deterministic else means
        stalled = self._unimproved(f, state.begun) - PATIENCE
        wider: Process | None = None
        g = np.random.default_rng(state.key_of_points)
        prior = Prior(self.encoding, state.first)
        free = (
            np.ones(self.family.variables, dtype=bool)
            if state.fixed is None
            else ~state.fixed
        )
        while len(chosen) < limit:
            before = len(chosen)
            at = stalled + len(pending) + before
            margin = MARGINS[at % len(MARGINS)] if at >= 0 else MARGINS[0]
            wide = margin > LARGE_MARGIN
            if wide and wider is None:
                wider = Process.of(state.objective.encoding, x, y, fit.wider)
                for point in (*pending, *chosen):
                    wider = wider.believing(point)
            ahead = (*pending, *chosen)
            turn = (
                self._turn(x, ranked, ahead)
                if (n + len(ahead)) % BRANCH_TURN == 0
                else None
            )
            target = (lowest if turn is None else turn.best) - margin
            best = x[self._best_rows(x, ranked, turn)]
            if not free.all():
                best = np.where(free, best, x[-1])
            score = partial(
                improvement,
                wider if wide and wider else process,
                violations,
                target,
            )
            candidates = Candidates(
                prior, score, best, free, turn, archive.feasible, g
            )
            taken.take(
                candidates.best_first(not wide and before < MOST_CLIMBING),
                chosen,
                before + 1,
            )
            if len(chosen) == before:
                return
            if len(chosen) < limit:
                process = process.believing(chosen[-1])
                wider = wider and wider.believing(chosen[-1])

    def _improving_front(
        self,
        state: ModelState,
        taken: Taken,
        pending: list[Points],
        chosen: list[Points],
        limit: int,
    ) -> None:
        """Add points of large expected improvement of the front, and children of it, in turns."""
        archive = state.archive
        n = state.rows
        x = state.objectives[0].data(archive, n)[0]
        y = np.stack(
            [each.data(archive, n)[1] for each in state.objectives], axis=1
        )
        fits = [each.hyperparameters(archive, n) for each in state.objectives]
        violations = state.violation.process(archive, n) if len(y) < n else None
        stalled = self._unimproved_of(state, n) - PATIENCE
        g = np.random.default_rng(state.key_of_points)
        prior = Prior(self.encoding, state.first)
        free = (
            np.ones(self.family.variables, dtype=bool)
            if state.fixed is None
            else ~state.fixed
        )
        front = state.front
        front.update(n)
        while len(chosen) < limit:
            before = len(chosen)
            at = stalled + len(pending) + len(chosen)
            if (
                (n + len(pending) + before) % CHILD_TURN == 0
                and free.all()
                and len(front.front)
            ):
                taken.take(
                    ParetoEvolution(self.family).children(front, g),
                    chosen,
                    before + 1,
                )
            if len(chosen) > before:
                continue
            margin = MARGINS[at % len(MARGINS)] if at >= 0 else MARGINS[0]
            wide = margin > LARGE_MARGIN
            processes = []
            for own, fit in zip(y.T, fits, strict=True):
                process = Process.of(
                    state.objective.encoding,
                    x,
                    own,
                    fit.wider if wide else fit.theta,
                )
                for point in (*pending, *chosen):
                    process = process.believing(point)
                processes.append(process)
            noisy = any(process.noise >= SMALL_NOISE for process in processes)
            values = (
                np.stack(
                    [process.predict(x)[0] for process in processes], axis=1
                )
                if noisy
                else y
            )
            improved = FrontImprovement(processes, values, margin, g)
            best = x[g.permutation(np.flatnonzero(is_front(values)))[:BEST]]
            if not free.all():
                best = np.where(free, best, x[-1])
            score = partial(of_feasible, improved, violations)
            candidates = Candidates(
                prior, score, best, free, None, archive.feasible, g
            )
            taken.take(
                candidates.best_first(not wide and before < MOST_CLIMBING),
                chosen,
                before + 1,
            )
            if len(chosen) == before:
                return

    def _unimproved_of(self, state: ModelState, n: int) -> int:
        """Return how many of the first n evaluations came after the last improvement."""
        archive = state.archive
        if archive.objectives == 1:
            return self._unimproved(archive.f[:n], state.begun)
        state.front.update(n)
        return n - 1 - max(state.front.front.last, state.begun - 1)

    def _best_rows(self, x: Points, y: Array, turn: Turn | None) -> Indices:
        """Return the rows of the best points, if possible in the branch that has the turn."""
        order = y.argsort(kind="stable")
        if turn is not None:
            own = self.encoding.active(x)[:, turn.column] & (
                x[:, turn.column] == turn.code
            )
            order = order[own[order]] if own.any() else order
        return order[:BEST]

    def _turn(
        self, x: Points, y: Array, ahead: Sequence[Points]
    ) -> Turn | None:
        """Return the branch with the fewest evaluations relative to its share.

        The r-th best branch has the share 1/r.
        """
        branches = self.branches
        if branches is None:
            return None
        active = self.encoding.active(x)
        every = np.concatenate(
            [x, np.array(ahead, dtype=x.dtype).reshape(-1, x.shape[1])]
        )
        found: list[tuple[float, Turn]] = []
        for own in branches.of_node:
            column = branches.columns[branches.each[own[0]].node]
            of = [every[:, column] == branches.each[b].code for b in own]
            best = [
                float(y[at[: len(y)] & active[:, column]].min(initial=math.inf))
                for at in of
            ]
            order = sorted(
                range(len(own)),
                key=lambda i: best[i] if best[i] < math.inf else -math.inf,
            )
            for rank, i in enumerate(order, start=1):
                spent = (
                    float(np.count_nonzero(of[i]))
                    * rank
                    / branches.each[own[i]].prior
                )
                target = best[i] if best[i] < math.inf else float(y.mean())
                found.append(
                    (spent, Turn(column, branches.each[own[i]].code, target))
                )
        return min(found, key=lambda each: each[0])[1]

    def recommended(self, state: ModelState) -> Points | None:
        """Return the evaluated point with the lowest mean.

        None after more evaluations than the model is fit to.
        """
        archive = state.archive
        n = len(state.archive)
        x, y = (
            state.objective.data(archive, n)
            if n <= MOST_EVALUATIONS
            else (archive.x(0, 0), ())
        )
        if not len(y):
            return None
        return x[state.objective.process(archive, n).predict(x)[0].argmin()]

    # The rest of the protocol.

    def inject(self, state: ModelState, x: Points, f: float) -> ModelState:
        """Return the same state: the archive has the points of other algorithms."""
        return state

    def can_yield(self, state: ModelState) -> bool:
        """Return True: an iteration depends on the archive alone."""
        return True

    def info(self, state: ModelState) -> AlgorithmInfo:
        """Return θ and λ; ε and the signal-to-noise ratio are NaN."""
        return AlgorithmInfo(
            state.theta, self.batch, math.nan, float(self.batch), math.nan
        )

    def at_least(self, lam: int) -> Self:
        """Return the same algorithm with at least `lam` points per iteration."""
        return replace(self, batch=max(self.batch, lam))

    def data(self, state: ModelState) -> dict[str, Any]:
        """Return the state as plain data, without the archive."""
        cancelled = b64encode(self.family.pack(state.cancelled)).decode()
        numbers = {
            "key": state.key,
            "begun": state.begun,
            "rows": state.rows,
            "repeated": state.repeated,
        }
        pending = b64encode(self.family.pack(state.pending)).decode()
        return numbers | {
            "cancelled": cancelled,
            "pending": pending,
            "ended": state.ended,
        }

    def restore(self, state: ModelState, data: Any) -> ModelState:
        """Return the state that `data` described, given one of the same archive."""
        restored = ModelState(state.archive, state.first, state.x0)
        restored.key = (
            None if data["key"] is None else whole(data["key"], most=2**64 - 1)
        )
        restored.cancelled = self.family.unpack(octets(data, "cancelled"))
        restored.pending = self.family.unpack(octets(data, "pending"))
        most = len(state.archive)
        restored.begun, restored.rows = (
            whole(data[name], most=most) for name in ("begun", "rows")
        )
        restored.repeated = whole(data["repeated"], most=MOST_REPEATED)
        restored.ended = data["ended"] is True
        return restored


class ModelState:
    """State of the model; modified in place by `tell`.

    Attributes
    ----------
    key : int or None
        Key of the random numbers; None before the first turn.
    begun : int
        Number of rows of the archive before the first turn.
    rows : int
        Number of rows that the points of the current iteration depend on.
    pending : array
        Points of other iterations that were being evaluated when the current one began.
    fixed : array of bool or None
        Which variables are fixed in this iteration.
    cancelled : array
        Points that were cancelled.
    repeated : int
        Number of the last iterations in a row without a new point.
    points : array
        The points of the current iteration, once they were computed.
    objective, violation : Surrogate
        What is modeled of the evaluations.
    objectives : tuple of Surrogate
        The same for each of several objectives.
    front : FrontState
        The front of several objectives.
    """

    def __init__(
        self, archive: Archive, first: Array, x0: Points | None
    ) -> None:
        self.archive = archive
        self.first = first
        self.x0 = x0
        self.key: int | None = None
        self.begun = self.rows = 0
        self.cancelled = self.pending = archive.x(0, 0)
        self.repeated = 0
        self.ended = False
        self.fixed: Fixed | None = None
        self.points = archive.x(0, 0)
        self.made_for: tuple[int, int, int, int, bytes, bytes | None] | None = (
            None
        )
        encoding = Encoding(archive.family, linear=not archive.deterministic)
        self.objective, self.violation = (
            Surrogate(encoding, objective),
            Surrogate(encoding, violation),
        )
        self.objectives = tuple(
            Surrogate(encoding, objective, i) for i in range(archive.objectives)
        )
        self.front = FrontState(archive, first, None)

    @property
    def key_of_points(self) -> int:
        """The key of the random numbers of an iteration, from the points asked for before."""
        packed = self.archive.family.pack(self.pending)
        rows = zlib.crc32(
            b"".join([*map(self.archive.code, range(self.rows)), packed])
        )
        return rows + (self.repeated << 32) ^ (self.key or 0)

    @property
    def theta(self) -> Array:
        """Mean of the statistics of the best quarter of the points; the best one counts half."""
        archive = self.archive
        if not len(archive):
            return self.first
        best = archive.f.argsort(kind="stable")[: 1 + len(archive) // 4]
        return theta_around(
            archive.family, self.first, archive.at(best.tolist())
        )

    def copy(self, archive: Archive) -> ModelState:
        """Return a state that reads a copy of the archive."""
        other = ModelState(archive, self.first, self.x0)
        other.key = self.key
        other.begun = self.begun
        other.rows = self.rows
        other.cancelled = self.cancelled
        other.ended = self.ended
        other.fixed = self.fixed
        other.pending = self.pending
        other.points = self.points
        other.made_for = self.made_for
        other.repeated = self.repeated
        other.objective, other.violation = (
            self.objective.copy(),
            self.violation.copy(),
        )
        other.objectives = tuple(each.copy() for each in self.objectives)
        other.front = self.front.copy(archive)
        return other


def improvement(
    process: Process, violations: Process | None, target: float, points: Points
) -> Array:
    """Return the logarithms of expected improvements times probabilities of no violation."""
    return of_feasible(
        lambda points: log_improvement(target, *process.predict(points)),
        violations,
        points,
    )


def of_feasible(
    score: Score, violations: Process | None, points: Points
) -> Array:
    """Return the logarithms of improvements, times the probabilities of no violation."""
    value = score(points)
    if violations is None:
        return value
    return value + log_probability_below(*violations.predict(points))


class Taken:
    """The points that are not asked for again.

    These are rows, pending and cancelled points, and those of this iteration.
    """

    def __init__(self, archive: Archive, rows: int) -> None:
        self._archive, self._rows = archive, rows
        self._keys: set[bytes] = set()

    def leave_out(self, points: Points) -> None:
        """Leave out further points."""
        if len(points):
            self._keys.update(self._archive.keys(points))

    def take(self, points: Points, chosen: list[Points], most: int) -> None:
        """Add the first points that are new to those that are chosen, up to a number of these."""
        for i in range(0, len(points), CHECKED):
            if len(chosen) >= most:
                return
            block = points[i : i + CHECKED]
            for point, key in zip(
                block, self._archive.keys(block), strict=True
            ):
                row = self._archive.row(key)
                if (
                    len(chosen) < most
                    and key not in self._keys
                    and (row is None or row >= self._rows)
                ):
                    self._keys.add(key)
                    chosen.append(point.copy())
