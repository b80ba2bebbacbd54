"""The shell around the loop: candidates go out, values come back in any order, iterations close.

`Optimizer` is the only object here that changes. It holds the state of an algorithm (a value), hands out the
candidates of the current iteration and, when those with index 0 to λ − 1 have come back, lets the algorithm
tell the next state. More candidates than λ may be out: they count for the best point and for the number of
evaluations, as late results of earlier iterations do.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from traceback import format_exception
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ._checks import objective_value, positive_int
from .families import Array, Points
from .igo import IGO, pbil_lambda
from .memory import Memory
from .space import Space

STALE = 10_000  # draws in a row without a new point after which the distribution is taken to have no more
RECENT = 4096  # evaluations kept to look up what the most probable point gave

OUT, TOLD, GIVEN_UP = 0, 1, 2


class Candidate(NamedTuple):
    """A point to evaluate."""

    id: int
    x: Any


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


class Batch(Sequence[Candidate]):
    """Candidates in the order of their index; `x` has them all, in the form that a vectorized objective takes."""

    def __init__(self, space: Space, ids: Sequence[int], codes: Points) -> None:
        self._space = space
        self.ids = ids
        self._codes = codes

    @property
    def x(self) -> Any:
        return self._space.decode_batch(self._codes)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> Batch: ...
    def __getitem__(self, index: int | slice) -> Candidate | Batch:
        if isinstance(index, slice):
            return Batch(self._space, self.ids[index], self._codes[index])
        return Candidate(self.ids[index], self._space.decode(self._codes[index]))

    def __repr__(self) -> str:
        return f"Batch of {len(self)}: {', '.join(map(repr, self[:3]))}{', …' if len(self) > 3 else ''}"


class _Iteration:
    """The candidates drawn from one θ and what became of them; ids are `first` and on."""

    def __init__(self, first: int, size: int, guests: Points) -> None:
        self.first = first
        self.size = size  # it closes when so many have come back, the first ones
        self.guests = guests  # rows at the front that were not drawn from θ
        self.missing = size
        self.whole = True  # no candidate was given up
        self.codes: Points = guests[:0]
        self.f = np.empty(0)
        self.fate = np.empty(0, dtype=np.int8)

    def extend(self, codes: Points) -> None:
        if len(self.codes):
            codes = np.concatenate([self.codes, codes])
        self.codes = codes
        self.f = np.concatenate([self.f, np.full(len(codes) - len(self.f), math.nan)])
        self.fate = np.concatenate([self.fate, np.zeros(len(codes) - len(self.fate), dtype=np.int8)])

    def settle(self, rows: slice | NDArray[np.intp], f: Array | float, fate: int) -> None:
        """These candidates, all of them out, have come back or never will."""
        self.f[rows] = f
        self.fate[rows] = fate
        self.whole &= fate == TOLD
        self.missing = self.size - int(np.count_nonzero(self.fate[: self.size]))


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
            raise ValueError(f"algorithm: expected one for this space's {family}, got one for {algorithm.family}")
        self.algorithm = algorithm.at_least(positive_int("batch", batch))
        self._rng = np.random.default_rng(rng)
        self._spare: np.random.Generator | None = None
        self._memory = Memory(self.space) if deterministic else None
        theta = family.initial()
        guests = family.mode(theta)[None][:0]
        if x0 is not None:
            guests = self.space.encode(x0, "x0")[None]
            theta = family.move(theta, 0.5 * (family.statistics(guests)[0] - theta))
        self._state = self.algorithm.init(theta)
        self._iteration = _Iteration(0, len(guests) + self.lam, guests)
        self._late: dict[int, Points] = {}  # candidates of closed iterations that are still out
        self._best: tuple[float, int, Points] | None = None
        self._recent: deque[tuple[Points, Array]] = deque()
        self._kept = 0
        self._stale = 0
        self.nit = 0
        self.nfev = 0
        self.failures = 0
        self.failure: str | None = None  # what the first of them said

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
        """What the most probable point gave, averaged over its recent evaluations; None if there were none."""
        code = self.algorithm.family.mode(self._state.theta)
        if self._memory is not None:
            return self._memory.recall(code)
        seen = self.space.visible(code[None])
        values = [f[(self.space.visible(codes) == seen).all(axis=1)] for codes, f in self._recent]
        found = np.concatenate([*values, np.empty(0)])
        found = found[np.isfinite(found)]
        return float(found.mean()) if len(found) else None

    @property
    def due(self) -> int:
        """Candidates of this iteration that nobody has asked for yet."""
        return max(self._iteration.size - len(self._iteration.codes), 0)

    @property
    def exhausted(self) -> bool:
        """Whether a deterministic objective has nothing left to tell: no point, or none that θ still yields, is new."""
        return self._memory is not None and (len(self._memory) >= self.space.cardinality or self._stale >= STALE)

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
            return self._ask_new(k)
        if k is None and not self.due:
            raise self._all_out()
        first = self._iteration.first + len(self._iteration.codes)
        codes = self._draw(self.due if k is None else k)
        return Batch(self.space, range(first, first + len(codes)), codes)

    def tell(self, candidates: Batch | Candidate | Iterable[Candidate], values: Any) -> None:
        """The candidates' values: numbers, in the order of the candidates; NaN or an exception for a failure.

        Any part of what was asked for, in any order; an iteration closes by itself. Nothing is recorded when
        one of them is unknown or was told before.
        """
        ids = _ids(candidates)
        f, errors = _values([values] if isinstance(candidates, Candidate) else values, len(ids))
        rows = self._expect(ids)
        codes = self._iteration.codes[rows] if rows is not None else np.array([self._code(id) for id in ids])
        self._stale = 0
        self._count(ids, codes, f, errors)
        if rows is not None and self._memory is None:
            self._iteration.settle(rows, f, TOLD)
        else:
            for id, value in zip(ids, f.tolist(), strict=True):
                twins = self._memory.learn(id, value) if self._memory is not None else []
                self._settle([id, *twins], value, TOLD)
        self._close()

    def give_up(self, candidates: Batch | Candidate | Iterable[Candidate]) -> None:
        """These candidates will never come back: the iteration goes on without them.

        One that failed because of what it is should be told as NaN instead, so that it ranks worst.
        """
        ids = _ids(candidates)
        self._expect(ids)
        for id in ids:
            twins = self._memory.forget(id) if self._memory is not None else []
            self._settle([id, *twins], math.nan, GIVEN_UP)
        self._close()

    def add(self, x: Any, value: float) -> None:
        """A point evaluated elsewhere: it counts for `best` and, if `deterministic`, is never handed out.

        θ does not move: only points drawn from it say where it should go. Pass a good one as `x0` for that.
        """
        code, value = self.space.encode(x), objective_value(value)
        if self._memory is not None:
            self._memory.store(code, value)
        if value < self.lowest:
            self._best = value, -1, code

    # How it is done.

    def _draw(self, k: int) -> Points:
        """The next k points of this iteration: guests, then λ from θ, then more from θ by a stream of their own.

        So the iterations of a seed do not depend on how many more candidates were asked for.
        """
        iteration, state = self._iteration, self._state
        asked = len(iteration.codes)
        guests = iteration.guests[asked : asked + k]
        main = min(k - len(guests), max(iteration.size - asked - len(guests), 0))
        more = k - len(guests) - main
        codes = self.algorithm.ask(state, self._rng, main)
        if len(guests):
            codes = np.concatenate([guests, codes])
        if more:
            self._spare = self._spare or self._rng.spawn(1)[0]
            codes = np.concatenate([codes, self.algorithm.ask(state, self._spare, more)])
        iteration.extend(codes)
        return codes

    def _ask_new(self, k: int | None) -> Batch:
        """Draws until k points are new, or all of an iteration are looked at and some are new."""
        ids: list[int] = []
        codes: list[Points] = []
        while not self.exhausted and (len(ids) < k if k is not None else not ids):
            iteration = self._iteration
            if k is None and not self.due:
                raise self._all_out()
            first = iteration.first + len(iteration.codes)
            wanted = self.due if k is None else min(k - len(ids), self.due or k)
            for id, code in enumerate(self._draw(wanted), first):
                new, value = self._memory.meet(id, code)  # type: ignore[union-attr]
                self._stale = 0 if new else self._stale + 1
                if new:
                    ids.append(id)
                    codes.append(code)
                elif value is not None:
                    self._settle([id], value, TOLD)
            self._close()
        return Batch(self.space, ids, np.array(codes) if ids else self._iteration.guests[:0])

    def _all_out(self) -> RuntimeError:
        iteration = self._iteration
        return RuntimeError(
            f"all {iteration.size} candidates of iteration {self.nit} are out and {iteration.missing} have not come "
            "back: tell their values, give_up those that never will, or ask(k) for k candidates more"
        )

    def _expect(self, ids: Sequence[int]) -> slice | NDArray[np.intp] | None:
        """The rows of this iteration that are meant; None if some are of earlier ones. ValueError if any is not out."""
        first, fate = self._iteration.first, self._iteration.fate
        if isinstance(ids, range) and ids.step == 1 and first <= ids.start and ids.stop <= first + len(fate):
            rows = slice(ids.start - first, ids.stop - first)
            if not fate[rows].any():
                return rows
        if len(set(ids)) < len(ids):
            raise ValueError(f"candidates: expected each once, got the ids {list(ids)}")
        for id in ids:
            if not 0 <= id < first + len(fate):
                raise ValueError(f"candidates: expected one that was asked for, got the unknown id {id}")
            handed = self._memory is None or self._memory.is_out(id)
            if not handed or (fate[id - first] != OUT if id >= first else id not in self._late):
                raise ValueError(
                    f"candidates: expected one that is out, got id {id}, which was told or given up before"
                )
        return np.array(ids, dtype=np.intp) - first if all(id >= first for id in ids) else None

    def _code(self, id: int) -> Points:
        first = self._iteration.first
        return self._iteration.codes[id - first] if id >= first else self._late[id]

    def _count(self, ids: Sequence[int], codes: Points, f: Array, errors: list[str]) -> None:
        """Evaluations, failures, and the best of them; of equals the one with the lowest id, (iteration, index)."""
        self.nfev += len(f)
        lowest = float(np.fmin.reduce(f)) if len(f) else math.nan
        if lowest <= self.lowest and lowest < math.inf:
            i = min(np.flatnonzero(f == lowest).tolist(), key=ids.__getitem__)
            if self._best is None or (lowest, ids[i]) < self._best[:2]:
                self._best = lowest, ids[i], codes[i].copy()
        failed = int(np.count_nonzero(f != f))
        if failed:
            self.failures += failed
            self.failure = self.failure or (errors[0] if errors else "the objective returned NaN")

    def _settle(self, ids: list[int], value: float, fate: int) -> None:
        for id in ids:
            if id >= self._iteration.first:
                self._iteration.settle(slice(id - self._iteration.first, id - self._iteration.first + 1), value, fate)
            else:
                self._late.pop(id, None)

    def _close(self) -> None:
        """If the first λ candidates are back, the algorithm learns from them and the next iteration begins."""
        iteration = self._iteration
        if iteration.missing:
            return
        codes, f, fate = iteration.codes, iteration.f, iteration.fate
        for row in np.flatnonzero(fate == OUT).tolist():
            self._late[iteration.first + row] = codes[row]
        drawn = slice(len(iteration.guests), iteration.size)
        x, f = codes[drawn], f[drawn]
        if not iteration.whole:
            back = fate[drawn] == TOLD
            x, f = x[back], f[back]
        if len(f):
            self._state = self.algorithm.tell(self._state, x, f)
        self._remember(x, f)
        self.nit += 1
        self._iteration = _Iteration(iteration.first + len(codes), self.lam, codes[:0])

    def _remember(self, x: Points, f: Array) -> None:
        self._recent.append((x, f))
        self._kept += len(f)
        while self._kept > RECENT:
            self._kept -= len(self._recent.popleft()[1])


def _ids(candidates: Batch | Candidate | Iterable[Candidate]) -> Sequence[int]:
    if isinstance(candidates, Batch):
        return candidates.ids
    each = [candidates] if isinstance(candidates, Candidate) else list(candidates)
    for candidate in each:
        if not isinstance(candidate, Candidate):
            raise TypeError(f"candidates: expected what ask() gave, got {candidate!r}")
    return [candidate.id for candidate in each]


def _values(values: Any, count: int) -> tuple[Array, list[str]]:
    """The values as floats, NaN for exceptions, and what these said."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise TypeError(f"values: expected {count}, one for each candidate, got {values!r}")
    if len(values) != count:
        raise ValueError(f"values: expected {count}, one for each candidate, got {len(values)}")
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub" and values.ndim == 1:
        return values.astype(float), []
    errors = ["".join(format_exception(v)) for v in values if isinstance(v, BaseException)]
    return np.array([math.nan if isinstance(v, BaseException) else objective_value(v) for v in values]), errors
