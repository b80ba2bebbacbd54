"""The shell around the loop: candidates go out, values come back in any order, iterations close.

`Optimizer` is the only object here that changes. It holds the state of an algorithm (a value), hands out the
candidates of the current iteration and, when those with index 0 to λ − 1 have come back, lets the algorithm
tell the next state. More candidates than λ may be out: they count for the best point and for the number of
evaluations, as late results of earlier iterations do.

With a journal, what comes back is first recorded and then learnt from. What is recorded is drawn and told again
when the journal is opened the next time: the state is the fold of the journal.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np

from knobless._checks import boolean, objective_value, positive_int
from knobless.core.algorithm import Algorithm
from knobless.core.description import algorithm_data, stream_data, stream_of
from knobless.core.families import Family
from knobless.core.igo import State
from knobless.core.rng import Stream, keys
from knobless.core.types import Array, Points
from knobless.journal.records import ADDED, Event, Journal, JournalError, Writer, kept
from knobless.recipes import recommended
from knobless.space.codec import space_data
from knobless.space.space import Space

from .cache import Cache
from .candidates import CANCELLED, EMPTY, TOLD, Batch, Candidate, Iteration, ids_of, values_of
from .snapshot import load, save

STALE = 1000  # draws in a row without a new point after which the distribution is taken to have no more
RECENT = 512  # evaluations kept to look up what the most probable point gave
WORDS = 2**28  # random words that a journal may ask for at once


class Evaluation(NamedTuple):
    """A point and its value."""

    x: Any
    fun: float


class Late(NamedTuple):
    """A candidate of a closed iteration that is still out."""

    iteration: int
    position: int
    code: Points


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

    `journal` is a file in which all that is told is recorded. If it is there already, the run goes on where it
    stopped: what was told is not handed out again, and what was asked for but never told is. With `rng=None` the
    journal's own seed is taken; anything else that differs from what the journal says is an error. One process at a
    time may write to it; `close` lets it go.
    """

    def __init__(
        self,
        space: Any,
        algorithm: Algorithm | None = None,
        x0: Any = None,
        rng: Any = None,
        batch: int = 1,
        deterministic: bool = False,
        journal: Any = None,
    ) -> None:
        self.space = Space.of(space)
        family = self.space.family
        self.deterministic = boolean("deterministic", deterministic)
        algorithm = recommended(family, self.deterministic) if algorithm is None else algorithm
        if isinstance(algorithm, type) or not isinstance(algorithm, Algorithm):
            raise TypeError(f"algorithm: expected a value such as pbil_lambda(space), got {algorithm!r}")
        if algorithm.family != family:
            shown = f"one for {algorithm.family.variables} variables with {algorithm.family.dim} free parameters"
            expected = "one made for this very space, priors included, such as pbil_lambda(space)"
            raise ValueError(f"algorithm: expected {expected}, got {shown}")
        self.batch = positive_int("batch", batch)
        self.algorithm = algorithm.at_least(self.batch)
        self.rng, self._spare, self._seed = _streams(rng)
        self._cache = Cache(self.space) if self.deterministic else None
        self._begin(None if x0 is None else self.space.encode(x0, "x0"))
        self._late: dict[int, Late] = {}  # candidates of closed iterations that are still out
        self._again: list[int] = []  # out when another process ended: to be handed out again
        self._best: tuple[float, int, Points] | None = None
        self._recent: deque[Iteration] = deque()
        self._kept = 0
        self._stale = 0
        self.nit = 0
        self.nfev = 0
        self.failures = 0
        self.failure: str | None = None  # what the first of them said
        self._on_iteration: Callable[[], object] | None = None  # called after each iteration
        self._journal: Writer | None = None
        if journal is not None:
            writer = self._keep(journal, "minimize", adopt=rng is None)
            try:
                with writer.explained():
                    self._replay(writer.events(), 1.0)
            except JournalError:
                writer.close()
                raise
            self._journal = writer

    @cached_property
    def _packing(self) -> Family:
        return self.space.family

    def _begin(self, x0: Points | None) -> None:
        """With x0, which is handed out before any point is drawn."""
        family = self.algorithm.family
        self._initial_points = np.empty((0, family.variables), family.dtype) if x0 is None else x0[None]
        self._x0 = x0
        self._state: Any = self.algorithm.init(x0=x0)
        self._iteration = Iteration(0, len(self._initial_points) + self.lam, n_initial_points=len(self._initial_points))

    def __repr__(self) -> str:
        over = f"{self.algorithm.family.variables} variables"
        return f"<Optimizer over {over}: best {self.lowest_fun:.10g} after {self.nfev} evaluations>"

    # What one may look at.

    @property
    def lam(self) -> int:
        """Samples in this iteration."""
        return self.algorithm.lam(self._state)

    @property
    def eps(self) -> float:
        """Step length in this iteration."""
        return self.algorithm.info(self._state).eps

    @property
    def state(self) -> Any:
        """The algorithm's state, a copy."""
        return self._state.copy()

    @property
    def theta(self) -> Array:
        """The distribution's parameters, a copy."""
        return self._state.theta.copy()

    @property
    def best(self) -> Evaluation | None:
        """The best point so far with its value; the first of equals. None before there is one."""
        return None if self._best is None else Evaluation(self.space.decode(self._best[2]), self._best[0])

    @property
    def lowest_fun(self) -> float:
        """The value of the best point so far; inf before there is one."""
        return math.inf if self._best is None else self._best[0]

    @property
    def mode(self) -> Any:
        """The most probable point, what to take when the objective is noisy."""
        return self.space.decode(self.algorithm.family.mode(self._state.theta))

    @property
    def mode_fun(self) -> float | None:
        """What the most probable point gave, averaged over its recent evaluations; None if there were none.

        Recent are the last `RECENT` evaluations; of older ones only the best point is remembered.
        """
        code = self.algorithm.family.mode(self._state.theta)
        if self._cache is not None:
            return self._cache.recall(code)
        seen = self.space.visible(code[None])
        found = [EMPTY]
        for iteration in (*self._recent, *([self._iteration] if self._iteration.drawn else [])):
            x, f = iteration.told()
            found.append(f[(self.space.visible(x) == seen).all(axis=1)])
        values = np.concatenate(found)
        values = values[np.isfinite(values)]
        if len(values):
            return float(values.mean())
        same = self._best is not None and (self.space.visible(self._best[2][None]) == seen).all()
        return self.lowest_fun if same else None

    @property
    def n_to_ask(self) -> int:
        """Candidates of this iteration that nobody has asked for yet, or that are to be asked for again."""
        return self._undrawn + len(self._again)

    @property
    def _undrawn(self) -> int:
        return max(self._iteration.size - self._iteration.drawn, 0)

    @property
    def _drawn(self) -> int:
        """Candidates drawn, in all iterations."""
        return self._iteration.first + self._iteration.drawn

    @property
    def pending(self) -> Batch:
        """The candidates that were asked for and have not come back."""
        if self._cache is not None:
            ids = self._cache.pending_ids()
        else:
            ids = [*self._late, *(self._iteration.pending_ids() if self._iteration.drawn else ())]
        return Batch(self.space, ids, self._codes_of(ids))

    @property
    def complete(self) -> bool:
        """Whether a deterministic objective has been evaluated everywhere."""
        return self._cache is not None and len(self._cache) >= self.space.cardinality

    @property
    def exhausted(self) -> bool:
        """Whether `ask` has nothing left to hand out: `complete`, or θ yields no new point any more."""
        return self._stale >= STALE or self.complete

    @property
    def info(self) -> Info:
        """What a `callback` gets, as of now."""
        theta, lam, eps, _, snr = self.algorithm.info(self._state)
        theta = theta.view()
        theta.flags.writeable = False
        entropy = self.algorithm.family.entropy(theta)
        return Info(self.nit, self.nfev, self.lowest_fun, lam, eps, snr, entropy, theta)

    # What one does.

    def ask(self, k: int | None = None) -> Batch:
        """The candidates of this iteration that nobody has asked for yet, or the next k candidates.

        With `deterministic`, only points never handed out before; fewer, or none, when `exhausted`.
        """
        if k is not None:
            positive_int("k", k)
        if self._again:
            return self._ask_again(k)
        if self._cache is not None:
            return self._ask_new(k, self._cache)
        ids, codes = self._draw(k)
        return Batch(self.space, ids, codes)

    def tell(self, candidates: Batch | Candidate | Iterable[Candidate], values: Any) -> None:
        """The candidates' values: numbers, in the order of the candidates; NaN or an exception for a failure.

        Any part of what was asked for, in any order; an iteration closes by itself. Nothing is recorded when
        one of them is unknown or was told before.
        """
        ids = ids_of(candidates)
        if isinstance(candidates, Candidate):
            values = [values]
        elif not isinstance(values, (list, np.ndarray)) and isinstance(values, Iterator):  # gone after the first look
            values = list(values)
        f, errors = values_of(values, len(ids))
        self._expect(ids)
        if self._journal is not None:
            texts = iter(errors)
            failures = [next(texts) if isinstance(v, BaseException) else None for v in values] if errors else None
            self._record(self._journal, ids, TOLD, f, failures)
        self._told(ids, f, errors)

    def _told(self, ids: Sequence[int], f: Array, errors: list[str]) -> None:
        self._stale = 0
        self._count(ids, f, errors)
        self._settle(ids, f, TOLD)

    def cancel(self, candidates: Batch | Candidate | Iterable[Candidate]) -> None:
        """These candidates will never come back: the iteration goes on without them.

        One that failed because of what it is should be told as NaN instead, so that it ranks worst.
        """
        ids = ids_of(candidates)
        self._expect(ids)
        f = np.full(len(ids), math.nan)
        if self._journal is not None:
            self._record(self._journal, ids, CANCELLED, f, None)
        self._settle(ids, f, CANCELLED)

    def add(self, x: Any, value: float) -> None:
        """A point evaluated elsewhere: it counts for `best` and, if `deterministic`, is never handed out.

        θ does not move: only points drawn from it say where it should go. Pass a good one as `x0` for that.
        """
        code, value = self.space.encode(x), objective_value(value, "value")
        if self._journal is not None:
            self._journal.append(self._added(code, value))
        self._add(code, value)

    def save(self, path: Any) -> None:
        """Writes all of it to one file, which is replaced whole or not at all. See `knobless.run.snapshot`."""
        save(self, path)

    @classmethod
    def load(cls, path: Any, space: Any, algorithm: Algorithm | None = None) -> Optimizer:
        """The optimizer that was saved; what was out is still out, `out` has it.

        An algorithm with parts of the user's own must be given again.
        """
        return load(cls, path, space, algorithm)

    def close(self) -> None:
        """Lets the journal go, for another process to write; nothing more can be told here."""
        if self._journal is not None:
            self._journal.close()

    def _add(self, code: Points, value: float) -> None:
        if self._cache is not None:
            self._cache.store(code, value)
        if value < self.lowest_fun:
            self._best = value, -1, code

    def adopt(
        self, state: State, nit: int, nfev: int, failures: int, best: tuple[float, Points], last: Iteration
    ) -> None:
        """Goes on from where another engine has taken the run; `last` is its last iteration, all told."""
        self._state = state
        self.nit, self.nfev, self.failures = nit, nfev, failures
        if failures and self.failure is None:
            self.failure = "the objective returned NaN"
        if best[0] < self.lowest_fun:
            self._best = best[0], last.first, best[1]
        self._recent = deque([last])
        self._kept = last.drawn
        self._iteration = Iteration(last.first + last.drawn, self.lam)

    # How it is done.

    def _draw(self, k: int | None) -> tuple[range, Points]:
        """The next k points of this iteration: guests, then λ from θ, then more from θ by a stream of their own.

        So the iterations of a seed do not depend on how many more candidates were asked for.
        """
        iteration, due = self._iteration, self._undrawn
        if k is None and not due:
            raise RuntimeError(
                f"all {iteration.size} candidates of iteration {self.nit} are out and {iteration.missing} have not "
                "come back: tell their values, cancel those that never will, or ask(k) for k candidates more"
            )
        k = due if k is None else k
        guests = min(k, len(self._initial_points))
        start = iteration.drawn - iteration.n_initial_points + len(self._initial_points)  # of those that are no guests
        codes = self.algorithm.ask(self._state, self.rng, min(k, due) - guests, start)
        if guests:
            codes = np.concatenate([self._initial_points[:guests], codes])
            self._initial_points = self._initial_points[guests:]
        if k > due:
            codes = np.concatenate([codes, self.algorithm.ask(self._state, self._spare, k - due, self.lam)])
        return iteration.extend(codes), codes

    def _ask_new(self, k: int | None, memory: Cache) -> Batch:
        """Draws until k points are new, or all of an iteration are looked at and some are new."""
        ids: Sequence[int] = ()
        codes = self._initial_points[:0]
        while len(ids) < (1 if k is None else k) and not self.exhausted:
            left = None if k is None else min(k - len(ids), self._undrawn or k - len(ids))
            more, fresh = self._met(memory, left)
            ids, codes = ([*ids, *more], np.concatenate([codes, fresh])) if ids else (more, fresh)
        return Batch(self.space, ids, codes)

    def _met(self, memory: Cache, k: int | None) -> tuple[Sequence[int], Points]:
        """The new ones among the next k points; those whose value is known are settled."""
        ids, codes = self._draw(k)
        new, known, values = memory.meet(ids, codes)
        if len(new) == len(ids):  # the usual case
            self._stale = 0
            return ids, codes
        self._stale = len(ids) - 1 - new[-1] if new else self._stale + len(ids)
        if known:
            self._iteration.settle(known if len(known) < len(ids) else ids, np.array(values), TOLD)
        self._close()
        return ([ids[row] for row in new], codes[new]) if new else ((), codes[:0])

    def _ask_again(self, k: int | None) -> Batch:
        """What was out when another process ended, and new ones if that is not enough."""
        ids, self._again = self._again[:k], self._again[len(self._again) if k is None else k :]
        codes = self._codes_of(ids)
        if k is not None and len(ids) < k:
            more = self.ask(k - len(ids))
            ids, codes = [*ids, *more.ids], np.concatenate([codes, more._codes])
        return Batch(self.space, ids, codes)

    def _codes_of(self, ids: Sequence[int]) -> Points:
        """Of candidates that are out."""
        first = self._iteration.first
        if isinstance(ids, range) and ids.start >= first:
            return self._iteration.codes[ids.start - first : ids.stop - first]
        each = [self._late[id].code if id < first else self._iteration.codes[id - first] for id in ids]
        return np.array(each) if each else self._initial_points[:0]

    def _expect(self, ids: Sequence[int]) -> None:
        """ValueError if one of these is not out."""
        out = isinstance(ids, range) and self._iteration.are_out(ids)
        if out and (self._cache is None or all(map(self._cache.is_out, ids))):
            return
        if len(set(ids)) < len(ids):
            raise ValueError(f"candidates: expected each once, got the ids {list(ids)}")
        for id in ids:
            if not 0 <= id < self._iteration.first + self._iteration.drawn:
                raise ValueError(f"candidates: expected one that was asked for, got the unknown id {id}")
            handed_out = self._cache is None or self._cache.is_out(id)
            if not handed_out or not (id in self._late or self._iteration.are_out([id])):
                raise ValueError(f"candidates: expected one that is out, got id {id}, which was told or given up")

    def _count(self, ids: Sequence[int], f: Array, errors: list[str]) -> None:
        """Evaluations, failures, and the best of them; of equals the one with the lowest id, (iteration, index)."""
        self.nfev += len(f)
        lowest = f.item() if len(f) == 1 else np.minimum.reduce(f) if len(f) else math.inf
        if lowest != lowest:  # NaN is among them
            self.failures += int(np.count_nonzero(f != f))
            self.failure = self.failure or (errors[0] if errors else "the objective returned NaN")
            lowest = np.fmin.reduce(f)
        if lowest < self.lowest_fun or (
            self._best is not None and lowest == self.lowest_fun and min(ids) < self._best[1]
        ):
            id = min(ids[i] for i in np.flatnonzero(f == lowest).tolist())
            if self._best is None or (lowest, id) < self._best[:2]:
                late = id < self._iteration.first
                code = self._late[id].code if late else self._iteration.codes[id - self._iteration.first].copy()
                self._best = float(lowest), id, code

    def _settle(self, ids: Sequence[int], f: Array, fate: int) -> None:
        """Books what has come back, or never will, for this iteration and for points that wait for the same value."""
        if self._again:
            self._again = [id for id in self._again if id not in ids]
        if self._cache is not None:
            ids, f = self._cache.back(ids, f, keep=fate == TOLD)
        if not self._late or (isinstance(ids, range) and ids.start >= self._iteration.first):
            self._iteration.settle(ids, f, fate)
        else:
            now = [i for i, id in enumerate(ids) if self._late.pop(id, None) is None]
            for i in sorted(set(range(len(ids))).difference(now)):
                self._settle_late(ids[i], f[i : i + 1], fate)
            self._iteration.settle([ids[i] for i in now], f[now], fate)
        self._close()

    def _settle_late(self, id: int, f: Array, fate: int) -> None:
        """A recent evaluation is one whenever it comes."""
        for iteration in self._recent:
            if iteration.first <= id < iteration.first + iteration.drawn:
                iteration.settle([id], f, fate)

    def _close(self) -> None:
        """If the first λ candidates are back, the algorithm learns from them and the next iteration begins."""
        iteration = self._iteration
        if iteration.missing:
            return
        if iteration.drawn > iteration.size:
            for id in iteration.pending_ids():
                position = id - iteration.first
                self._late[id] = Late(self.nit, position, iteration.codes[position])
        x, f = iteration.harvest()
        self._state = self.algorithm.tell(self._state, x, f)
        if self._cache is None:  # which has them all
            self._recent.append(iteration)
            self._kept += iteration.drawn
            while self._kept - self._recent[0].drawn > RECENT:
                self._kept -= self._recent.popleft().drawn
        self.nit += 1
        self._iteration = Iteration(iteration.first + iteration.drawn, self.lam)
        if self._on_iteration is not None:
            self._on_iteration()

    # How it is recorded, and told again.

    def _identity(self, direction: str) -> dict[str, Any]:
        """What run this is, before anything is drawn."""
        return {
            "space": space_data(self.space),
            "direction": direction,
            "batch": self.batch,
            "deterministic": self.deterministic,
            "x0": None if self._x0 is None else self._packing.pack(self._x0[None]).hex(),
            "algorithm": algorithm_data(self.algorithm),
            "rng": {"seed": self._seed, "main": stream_data(self.rng), "spare": stream_data(self._spare)},
        }

    def _keep(self, journal: Any, direction: str, adopt: bool) -> Writer:
        """Opens a journal of this run, new or not; with `adopt`, this run becomes that of the journal's seed."""
        identity = self._identity(direction)
        writer = Writer(Journal.of(journal))
        try:
            with writer.explained():
                if adopt and writer.identity is not None:
                    self._take_streams(writer.identity)
                    identity = self._identity(direction)
                writer.begin(identity)
        except JournalError:
            writer.close()
            raise
        return writer

    def _take_streams(self, identity: Mapping[str, Any]) -> None:
        rng = identity.get("rng")
        if not isinstance(rng, dict):
            raise ValueError("rng: expected the states of two streams")
        self.rng, self._spare, self._seed = stream_of(rng["main"]), stream_of(rng["spare"]), rng.get("seed")

    @classmethod
    def folded(
        cls, space: Space, algorithm: Algorithm, identity: Mapping[str, Any], events: Iterable[Event], sign: float
    ) -> Self:
        """The optimizer that a journal's events lead to, values times `sign`."""
        opt = cls(space, algorithm, None, 0, identity["batch"], identity["deterministic"])
        opt._take_streams(identity)
        if identity.get("x0") is not None:
            opt._begin(opt._packing.unpack(bytes.fromhex(identity["x0"]))[0])
        opt._replay(events, sign)
        return opt

    def _replay(self, events: Iterable[Event], sign: float) -> None:
        """Draws and tells all again; ValueError where that cannot have been."""
        for (drawn, fate), group in groupby(events, key=attrgetter("drawn", "fate")):
            each = list(group)
            f = sign * np.array([event.value for event in each], dtype=float)
            data = b"".join([event.code for event in each])
            self._redraw(drawn)
            if fate == ADDED:
                for code, value in zip(self._packing.unpack(data), f.tolist(), strict=True):
                    self._add(code, value)
                continue
            ids = run_of([event.id for event in each])
            self._expect(ids)
            self._confirm(ids, data)
            if fate == TOLD:
                self._told(ids, f, [event.failure for event in each if event.failure])
            else:
                self._settle(ids, f, CANCELLED)
        self._again = list(self.pending.ids)

    def _redraw(self, drawn: int) -> None:
        """Until as many are drawn as had been, in all iterations."""
        while self._drawn < drawn:
            k = min(drawn - self._drawn, self._undrawn or drawn - self._drawn)
            if k * self.algorithm.family.words > WORDS:
                raise ValueError(f"{k} candidates at once are more than a journal may ask for")
            if self._cache is not None:
                self._met(self._cache, k)
            else:
                self._draw(k)

    def _confirm(self, ids: Sequence[int], data: bytes) -> None:
        """What was evaluated is what is drawn now; on a machine that rounds otherwise, it is what was recorded."""
        codes = self._codes_of(ids)
        if self._packing.pack(codes) == data:
            return
        recorded = self._packing.unpack(data)
        if recorded.shape != codes.shape or not np.allclose(recorded, codes, rtol=0.0, atol=1e-6):
            raise ValueError(f"the points recorded for the candidates {list(ids)[:5]} are not those that are drawn now")
        for id, code in zip(ids, recorded, strict=True):
            if id >= self._iteration.first:
                self._iteration.codes[id - self._iteration.first] = code

    def _record(
        self, journal: Writer, ids: Sequence[int], fate: int, f: Array, failures: Sequence[str | None] | None
    ) -> None:
        now = time.time()
        values = [None if value != value else value for value in f.tolist()]
        texts = [None] * len(values) if failures is None else failures
        each = zip(self._entries(ids, fate), values, texts, strict=True)
        journal.append(*(entry.row(value, text, None, now, None) for entry, value, text in each))

    def _entries(self, ids: Sequence[int], fate: int) -> list[Entry]:
        """What a journal says of candidates that are out, beside their values."""
        first, drawn, nit = self._iteration.first, self._drawn, self.nit
        entries = []
        packed, width = self._packing.pack(self._codes_of(ids)), self._packing.width
        for id, start in zip(ids, range(0, len(packed), width), strict=True):
            code = packed[start : start + width]
            iteration, position = (nit, id - first) if id >= first else self._late[id][:2]
            entries.append(Entry(drawn, fate, id, code, iteration, position))
        return entries

    def _added(self, code: Points, value: float) -> tuple[Any, ...]:
        entry = Entry(self._drawn, ADDED, -1, self._packing.pack(code[None]), self.nit, -1)
        return entry.row(None if value != value else value, None, None, time.time(), None)


class Entry(NamedTuple):
    """What a journal says of a candidate, beside its value."""

    drawn: int
    fate: int
    id: int
    code: bytes
    iteration: int
    position: int

    def row(
        self, value: float | None, failure: str | None, started: float | None, ended: float, worker: str | None
    ) -> tuple[Any, ...]:
        drawn, fate, id, code, iteration, position = self
        failure = failure and kept(failure)
        return drawn, fate, id, code, value, failure, iteration, position, started, ended, worker


def run_of(ids: list[int]) -> Sequence[int]:
    """As a range, if that is what they are."""
    run = range(ids[0], ids[0] + len(ids))
    return run if ids == list(run) else ids


def _streams(rng: Any) -> tuple[Stream, Stream, Any]:
    """Return the stream of the iterations, that of candidates beyond λ, and the seed if there is one."""
    try:
        generator = np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rng: expected a seed or a numpy.random.Generator, got {rng!r}") from None
    main, spare = keys(generator, 2)
    if isinstance(rng, (np.random.Generator, np.random.BitGenerator)):
        return Stream(main), Stream(spare), None
    seed = getattr(generator.bit_generator.seed_seq, "entropy", None)
    seed = np.asarray(seed).tolist() if isinstance(seed, (np.ndarray, list, tuple)) else seed
    return Stream(main), Stream(spare), seed
