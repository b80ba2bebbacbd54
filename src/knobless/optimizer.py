"""The shell around the loop: candidates go out, values come back in any order, iterations close.

`Optimizer` is the only object here that changes. It holds the state of an algorithm (a value), hands out the
candidates of the current iteration and, when those with index 0 to λ − 1 have come back, lets the algorithm
tell the next state. More candidates than λ may be out: they count for the best point and for the number of
evaluations, as late results of earlier iterations do.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._checks import boolean, objective_value, positive_int
from .adaptation import Signal
from .candidates import GIVEN_UP, NOTHING, TOLD, Batch, Candidate, Iteration, ids_of, values_of
from .families import Array, Points
from .igo import IGO, State, pbil_lambda
from .memory import Memory
from .space import Space

STALE = 1000  # draws in a row without a new point after which the distribution is taken to have no more
RECENT = 512  # evaluations kept to look up what the most probable point gave


class Evaluation(NamedTuple):
    """A point and its value."""

    x: Any
    fun: float


class Info(NamedTuple):
    """What one may look at after an iteration; λ and ε are those in force from then on."""

    iteration: int
    nfev: int
    best: float
    lam: int
    eps: float
    snr: float
    entropy: float
    theta: Array


class Optimizer:
    """Ask for candidates, tell their values.

        opt = Optimizer(Binary(20), rng=0)
        while opt.nfev < 1000:
            batch = opt.ask()
            opt.tell(batch, [fun(candidate.x) for candidate in batch])
        opt.best

    `batch` is how many evaluations run at once: λ is never smaller. `deterministic` says that equal points
    have equal values: none is handed out twice. `x0` is handed out first and θ starts halfway to it.
    """

    def __init__(
        self,
        space: Any,
        algorithm: IGO | None = None,
        x0: Any = None,
        rng: Any = None,
        batch: int = 1,
        deterministic: bool = False,
    ) -> None:
        self.space = Space.of(space)
        family = self.space.family
        algorithm = pbil_lambda(family) if algorithm is None else algorithm
        if not isinstance(algorithm, IGO):
            raise TypeError(f"algorithm: expected a value such as pbil_lambda(space), got {algorithm!r}")
        if algorithm.family != family:
            shown = f"one for {algorithm.family.variables} variables with {algorithm.family.dim} free parameters"
            expected = "one made for this very space, priors included, such as pbil_lambda(space)"
            raise ValueError(f"algorithm: expected {expected}, got {shown}")
        self.algorithm = algorithm.at_least(positive_int("batch", batch))
        self.rng, self._spare = _streams(rng)
        self.deterministic = boolean("deterministic", deterministic)
        self._memory = Memory(self.space) if self.deterministic else None
        theta = family.initial()
        self._guests = family.mode(theta)[None][:0]  # rows to hand out before any are drawn
        if x0 is not None:
            self._guests = self.space.encode(x0, "x0")[None]
            theta = family.move(theta, 0.5 * (family.statistics(self._guests)[0] - theta))
        self._state = self.algorithm.init(theta)
        self._iteration = Iteration(0, len(self._guests) + self.lam, guests=len(self._guests))
        self._late: dict[int, Points] = {}  # candidates of closed iterations that are still out
        self._best: tuple[float, int, Points] | None = None
        self._recent: deque[Iteration] = deque()
        self._kept = 0
        self._stale = 0
        self.nit = 0
        self.nfev = 0
        self.failures = 0
        self.failure: str | None = None  # what the first of them said
        self._on_iteration: Callable[[], object] | None = None  # called after each iteration

    def __repr__(self) -> str:
        over = f"{self.algorithm.family.variables} variables"
        return f"<Optimizer over {over}: best {self.lowest:.10g} after {self.nfev} evaluations>"

    # What one may look at.

    @property
    def lam(self) -> int:
        """Samples in this iteration."""
        return self.algorithm.lam(self._state)

    @property
    def eps(self) -> float:
        """Step length in this iteration."""
        return self.algorithm.eps(self._state)

    @property
    def state(self) -> State:
        """The algorithm's state, a copy."""
        theta, (s, gamma, lam_r) = self._state
        return State(theta.copy(), Signal(s.copy(), gamma, lam_r))

    @property
    def theta(self) -> Array:
        """The distribution's parameters, a copy."""
        return self._state.theta.copy()

    @property
    def best(self) -> Evaluation | None:
        """The best point so far with its value; the first of equals. None before there is one."""
        return None if self._best is None else Evaluation(self.space.decode(self._best[2]), self._best[0])

    @property
    def lowest(self) -> float:
        """The value of the best point so far; inf before there is one."""
        return math.inf if self._best is None else self._best[0]

    @property
    def mode(self) -> Any:
        """The most probable point, what to take when the objective is noisy."""
        return self.space.decode(self.algorithm.family.mode(self._state.theta))

    @property
    def mode_value(self) -> float | None:
        """What the most probable point gave, averaged over its recent evaluations; None if there were none.

        Recent are the last `RECENT` evaluations; of older ones only the best point is remembered.
        """
        code = self.algorithm.family.mode(self._state.theta)
        if self._memory is not None:
            return self._memory.recall(code)
        seen = self.space.visible(code[None])
        found = [NOTHING]
        for iteration in (*self._recent, *([self._iteration] if self._iteration.drawn else [])):
            x, f = iteration.told()
            found.append(f[(self.space.visible(x) == seen).all(axis=1)])
        values = np.concatenate(found)
        values = values[np.isfinite(values)]
        if len(values):
            return float(values.mean())
        same = self._best is not None and (self.space.visible(self._best[2][None]) == seen).all()
        return self.lowest if same else None

    @property
    def due(self) -> int:
        """Candidates of this iteration that nobody has asked for yet."""
        return max(self._iteration.size - self._iteration.drawn, 0)

    @property
    def complete(self) -> bool:
        """Whether a deterministic objective has been evaluated everywhere."""
        return self._memory is not None and len(self._memory) >= self.space.cardinality

    @property
    def exhausted(self) -> bool:
        """Whether `ask` has nothing left to hand out: `complete`, or θ yields no new point any more."""
        return self.complete or self._stale >= STALE

    @property
    def info(self) -> Info:
        theta = self._state.theta.view()
        theta.flags.writeable = False
        snr, entropy = self.algorithm.snr(self._state), self.algorithm.family.entropy(theta)
        return Info(self.nit, self.nfev, self.lowest, self.lam, self.eps, snr, entropy, theta)

    # What one does.

    def ask(self, k: int | None = None) -> Batch:
        """The candidates of this iteration that nobody has asked for yet, or the next k candidates.

        With `deterministic`, only points never handed out before; fewer, or none, when `exhausted`.
        """
        if k is not None:
            positive_int("k", k)
        if self._memory is not None:
            return self._ask_new(k, self._memory)
        ids, codes = self._draw(k)
        return Batch(self.space, ids, codes)

    def tell(self, candidates: Batch | Candidate | Iterable[Candidate], values: Any) -> None:
        """The candidates' values: numbers, in the order of the candidates; NaN or an exception for a failure.

        Any part of what was asked for, in any order; an iteration closes by itself. Nothing is recorded when
        one of them is unknown or was told before.
        """
        ids = ids_of(candidates)
        f, errors = values_of([values] if isinstance(candidates, Candidate) else values, len(ids))
        self._expect(ids)
        self._stale = 0
        self._count(ids, f, errors)
        self._settle(ids, f, TOLD)

    def give_up(self, candidates: Batch | Candidate | Iterable[Candidate]) -> None:
        """These candidates will never come back: the iteration goes on without them.

        One that failed because of what it is should be told as NaN instead, so that it ranks worst.
        """
        ids = ids_of(candidates)
        self._expect(ids)
        self._settle(ids, np.full(len(ids), math.nan), GIVEN_UP)

    def add(self, x: Any, value: float) -> None:
        """A point evaluated elsewhere: it counts for `best` and, if `deterministic`, is never handed out.

        θ does not move: only points drawn from it say where it should go. Pass a good one as `x0` for that.
        """
        self._add(self.space.encode(x), objective_value(value, "value"))

    def _add(self, code: Points, value: float) -> None:
        if self._memory is not None:
            self._memory.store(code, value)
        if value < self.lowest:
            self._best = value, -1, code

    def adopt(
        self, state: State, nit: int, nfev: int, failures: int, best: tuple[float, Points], last: Iteration
    ) -> None:
        """Goes on from where another engine has taken the run; `last` is its last iteration, all told."""
        self._state = state
        self.nit, self.nfev, self.failures = nit, nfev, failures
        if failures and self.failure is None:
            self.failure = "the objective returned NaN"
        if best[0] < self.lowest:
            self._best = best[0], last.first, best[1]
        self._recent = deque([last])
        self._kept = last.drawn
        self._iteration = Iteration(last.first + last.drawn, self.lam)

    # How it is done.

    def _draw(self, k: int | None) -> tuple[range, Points]:
        """The next k points of this iteration: guests, then λ from θ, then more from θ by a stream of their own.

        So the iterations of a seed do not depend on how many more candidates were asked for.
        """
        iteration, due = self._iteration, self.due
        if k is None and not due:
            raise RuntimeError(
                f"all {iteration.size} candidates of iteration {self.nit} are out and {iteration.missing} have not "
                "come back: tell their values, give_up those that never will, or ask(k) for k candidates more"
            )
        k = due if k is None else k
        guests = min(k, len(self._guests))
        codes = self.algorithm.ask(self._state, self.rng, min(k, due) - guests)
        if guests:
            codes = np.concatenate([self._guests[:guests], codes])
            self._guests = self._guests[guests:]
        if k > due:
            codes = np.concatenate([codes, self.algorithm.ask(self._state, self._spare, k - due)])
        return iteration.extend(codes), codes

    def _ask_new(self, k: int | None, memory: Memory) -> Batch:
        """Draws until k points are new, or all of an iteration are looked at and some are new."""
        ids: list[int] = []
        codes: list[Points] = []
        while not self.exhausted and (not ids if k is None else len(ids) < k):
            left = None if k is None else k - len(ids)
            drawn = self._draw(left if left is None else min(left, self.due or left))
            for id, code, (new, value) in zip(*drawn, memory.meet(*drawn), strict=True):
                self._stale = 0 if new else self._stale + 1
                if new:
                    ids.append(id)
                    codes.append(code)
                elif value is not None:
                    self._iteration.settle([id], np.array([value]), TOLD)
            self._close()
        return Batch(self.space, ids, np.array(codes) if ids else self._guests[:0])

    def _expect(self, ids: Sequence[int]) -> None:
        """ValueError if one of these is not out."""
        if self._memory is None and isinstance(ids, range) and self._iteration.are_out(ids):
            return
        if len(set(ids)) < len(ids):
            raise ValueError(f"candidates: expected each once, got the ids {list(ids)}")
        for id in ids:
            if not 0 <= id < self._iteration.first + self._iteration.drawn:
                raise ValueError(f"candidates: expected one that was asked for, got the unknown id {id}")
            handed_out = self._memory is None or self._memory.is_out(id)
            if not handed_out or not (id in self._late or self._iteration.are_out([id])):
                raise ValueError(f"candidates: expected one that is out, got id {id}, which was told or given up")

    def _count(self, ids: Sequence[int], f: Array, errors: list[str]) -> None:
        """Evaluations, failures, and the best of them; of equals the one with the lowest id, (iteration, index)."""
        self.nfev += len(f)
        lowest = np.minimum.reduce(f) if len(f) else math.inf
        if lowest != lowest:  # NaN is among them
            self.failures += int(np.count_nonzero(f != f))
            self.failure = self.failure or (errors[0] if errors else "the objective returned NaN")
            lowest = np.fmin.reduce(f)
        if lowest < self.lowest or (self._best is not None and lowest == self.lowest and min(ids) < self._best[1]):
            id = min(ids[i] for i in np.flatnonzero(f == lowest).tolist())
            if self._best is None or (lowest, id) < self._best[:2]:
                late = id < self._iteration.first
                code = self._late[id] if late else self._iteration.codes[id - self._iteration.first].copy()
                self._best = float(lowest), id, code

    def _settle(self, ids: Sequence[int], f: Array, fate: int) -> None:
        """Books what has come back, or never will, for this iteration and for points that wait for the same value."""
        if self._memory is not None:
            ids, f = self._memory.back(ids, f, keep=fate == TOLD)
        if isinstance(ids, range) and ids.start >= self._iteration.first:
            self._iteration.settle(ids, f, fate)
        else:
            now = [i for i, id in enumerate(ids) if self._late.pop(id, None) is None]
            self._iteration.settle([ids[i] for i in now], f[now], fate)
        self._close()

    def _close(self) -> None:
        """If the first λ candidates are back, the algorithm learns from them and the next iteration begins."""
        iteration = self._iteration
        if iteration.missing:
            return
        if iteration.drawn > iteration.size:
            for id in iteration.left_out():
                self._late[id] = iteration.codes[id - iteration.first]
        x, f = iteration.harvest()
        if len(f):
            self._state = self.algorithm.tell(self._state, x, f)
        self._recent.append(iteration)
        self._kept += iteration.drawn
        while self._kept - self._recent[0].drawn > RECENT:
            self._kept -= self._recent.popleft().drawn
        self.nit += 1
        self._iteration = Iteration(iteration.first + iteration.drawn, self.lam)
        if self._on_iteration is not None:
            self._on_iteration()


def _streams(rng: Any) -> tuple[np.random.Generator, np.random.Generator]:
    """The stream of the iterations, and another for what is asked for beyond them."""
    try:
        main = np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rng: expected a seed or a numpy.random.Generator, got {rng!r}") from None
    try:
        return main, main.spawn(1)[0]
    except TypeError:  # a generator without a seed sequence
        return main, np.random.default_rng(main.integers(2**63))
