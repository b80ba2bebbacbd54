"""Every public algorithm in an `Optimizer`: one protocol, with the same guarantees.

A new one is one more line in `ALGORITHMS`.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest

import knobless as kl
from conftest import SPACES, briefly_modeled, members_alone, quick_if, sharing
from knobless.algorithms import (
    IGO,
    P3,
    Algorithm,
    BestSoFar,
    CoordinateSearch,
    Evolution,
    LinearThompson,
    NoElitism,
    Search,
    cga,
    linear_thompson,
    p3,
    pbil,
    pbil_elitist,
    umda,
)
from knobless.core.algorithm import AlgorithmInfo
from knobless.core.catalog import PartMembers, in_branches
from knobless.core.description import stream_data
from knobless.core.rng import Stream
from knobless.families import Conditional, Family


class Walker(NamedTuple):
    """Where a walk stands."""

    theta: np.ndarray
    x: np.ndarray | None = None
    f: float = math.inf

    def copy(self):
        return self._replace(theta=self.theta.copy(), x=None if self.x is None else self.x.copy())


@dataclass(frozen=True)
class Walk:
    """A user's own, as little as there can be: some variables of the best point are drawn anew."""

    family: Family
    size: int = 2

    def init(self, theta=None, x0=None):
        return Walker(self.family.initial() if theta is None else theta, x0)

    def lam(self, state):
        return self.size

    def ask(self, state, rng, size=None, start=0):
        rows, rng = [], Stream.of(rng)
        for _ in range(self.size if size is None else size):
            anew, fresh = (
                rng.generator().random(self.family.variables) < 0.3,
                self.family.sample(state.theta, 1, rng)[0],
            )
            rows.append(fresh if state.x is None else np.where(anew, fresh, state.x))
        return np.array(rows).reshape(-1, self.family.variables).astype(self.family.mode(state.theta).dtype)

    def tell(self, state, x, f):
        if not len(f):
            return state
        i = int(np.where(f == f, f, np.inf).argmin())
        return state._replace(x=x[i], f=float(f[i])) if f[i] <= state.f else state

    def info(self, state):
        return AlgorithmInfo(state.theta, self.size, math.nan, math.nan, math.nan)

    def at_least(self, lam):
        return replace(self, size=max(self.size, lam))


class WalkingMember(Walk):
    """The same with what a member of a search needs beyond that."""

    def init(self, theta=None, x0=None, archive=None):
        return super().init(theta, x0)

    def inject(self, state, x, f):
        return state._replace(x=x, f=f)

    def can_yield(self, state):
        return True

    def data(self, state):
        return {"theta": state.theta.tolist(), "x": None if state.x is None else state.x.tolist(), "f": state.f}

    def restore(self, state, data):
        x = None if data["x"] is None else np.array(data["x"], self.family.dtype)
        return Walker(np.array(data["theta"]), x, data["f"])


BITS, CHOICES, NUMBERS, SUBSETS = (SPACES[name] for name in ("few bits", "few choices", "numbers", "subsets"))
BRANCHES, NUMBERED_BRANCHES = SPACES["branches"], SPACES["branches with numbers"]
SEVEN_BITS = kl.Space(bits=kl.Binary(3), kinds=kl.Choice("a", "b", n=4))


def best_so_far(space):
    return replace(kl.pbil_lambda(space), elitism=BestSoFar())


def family_of(space):
    return kl.Space.of(space).family


def of_three(space):
    return Search((pbil_elitist(space), P3(family_of(space), 2), cga(space)))


def with_a_linear_model(space):
    return Search((LinearThompson(family_of(space)), kl.pbil_lambda(space)))


def with_a_walk(space):
    return Search((pbil_elitist(space), WalkingMember(family_of(space))))


def noisy(space):
    return kl.search(space, deterministic=False)


def constrained(space):
    return briefly_modeled(space, constrained=True)


def without_a_linear_model(space):
    return in_branches(family_of(space), PartMembers(deterministic=False, elitism=NoElitism()), deterministic=False)


ALGORITHMS = {
    "pbil_lambda": (kl.pbil_lambda, CHOICES),
    "pbil_epsilon": (kl.pbil_epsilon, BITS),
    "cga": (cga, CHOICES),
    "umda": (lambda space: umda(space, 6, 2), BITS),
    "pbil": (lambda space: pbil(space, 6, 2, 0.3), CHOICES),
    "pbil_elitist": (pbil_elitist, CHOICES),
    "pbil_elitist on numbers": (pbil_elitist, NUMBERS),
    "best so far": (best_so_far, BITS),
    "p3": (p3, BITS),
    "evolution": (lambda space: Evolution(family_of(space)), CHOICES),
    "p3 on choices": (p3, CHOICES),
    "pbil_lambda on subsets": (kl.pbil_lambda, SUBSETS),
    "linear_thompson": (linear_thompson, CHOICES),
    "linear_thompson on subsets": (linear_thompson, SUBSETS),
    "linear_thompson on numbers": (linear_thompson, NUMBERS),
    "coordinate search": (lambda space: CoordinateSearch(family_of(space)), NUMBERS),
    "search": (briefly_modeled, BITS),
    "search on seven bits": (briefly_modeled, SEVEN_BITS),
    "search on choices": (briefly_modeled, CHOICES),
    "search on numbers": (briefly_modeled, NUMBERS),
    "search on subsets": (briefly_modeled, SUBSETS),
    "search of branches": (briefly_modeled, BRANCHES),
    "search of branches with numbers": (briefly_modeled, NUMBERED_BRANCHES),
    "search of branches without a linear model": (without_a_linear_model, NUMBERED_BRANCHES),
    "noisy search": (noisy, CHOICES),
    "noisy search on numbers": (noisy, NUMBERS),
    "noisy search of branches": (noisy, BRANCHES),
    "search with constraints": (constrained, CHOICES),
    "search of branches with constraints": (constrained, BRANCHES),
    "members alone": (members_alone, BITS),
    "members alone on seven bits": (members_alone, SEVEN_BITS),
    "members alone on choices": (members_alone, CHOICES),
    "members without a study": (sharing, BITS),
    "search of three": (of_three, CHOICES),
    "search with a linear model": (with_a_linear_model, CHOICES),
    "own": (lambda space: Walk(family_of(space)), NUMBERS),
    "search with an own": (with_a_walk, BITS),
}
STEPS = 50  # of a run that is resumed now and then
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def kind(algorithm):
    """Return the class of an algorithm, and for a search what it is made of."""
    if not isinstance(algorithm, Search):
        return type(algorithm)
    stages = tuple(type(stage.member) for stage in algorithm.stages)
    return stages, type(algorithm.rule), algorithm.study is not None, algorithm.parts is not None


# One of each kind is quick; the others differ from it in their parts.
KINDS = {kind(recipe(space)): name for name, (recipe, space) in reversed(ALGORITHMS.items())}
one_quick_of_each_kind = pytest.mark.parametrize(
    "name", [quick_if(name in KINDS.values(), name) for name in ALGORITHMS]
)
either = pytest.mark.parametrize(
    "deterministic", [pytest.param(False, marks=pytest.mark.slow), True], ids=["noisy", "deterministic"]
)


def made(name, **options):
    recipe, space = ALGORITHMS[name]
    return kl.Optimizer(space, recipe(space), **{"rng": 5, "batch": 3} | options)


def flat(x):
    if isinstance(x, dict):
        return tuple(flat(value) for value in x.values())
    return tuple(map(flat, x)) if isinstance(x, list | np.ndarray) else x


def value(candidate):
    """Of any point one of a few, so that ties abound; NaN and failures are among them."""
    number = sum(map(ord, repr(flat(candidate.x)))) % 9
    return RuntimeError("eight") if number == 8 else math.nan if number == 7 else float(number)


def look(opt):
    best = opt.best and (repr(flat(opt.best.x)), opt.best.fun)
    counts = opt.nfev, opt.nit, opt.failures, opt.n_to_ask, opt.lam, repr(opt.eps), repr(opt.info.snr), opt.exhausted
    out = sorted((c.id, repr(flat(c.x))) for c in opt.pending)
    return opt.theta.tolist(), best, counts, repr(opt.mode_fun), out, stream_data(opt.rng)


def test_all_public_recipes_are_here():
    recipes = {"cga", "linear_thompson", "p3", "search", "umda"}
    recipes |= {"pbil", "pbil_elitist", "pbil_epsilon", "pbil_lambda"}
    assert recipes <= ALGORITHMS.keys()
    others = {name for name in kl.algorithms.__all__ if name.islower()} - recipes
    assert others == {"samples", "steps"}


@every_algorithm
def test_it_keeps_the_protocol(name):
    recipe, space = ALGORITHMS[name]
    algorithm = recipe(space)
    assert isinstance(algorithm, Algorithm)
    assert algorithm == recipe(space)
    assert hash(algorithm) == hash(recipe(space))
    for lam in (1, 4, 9):
        more = algorithm.at_least(lam)
        assert type(more) is type(algorithm)
        assert more.lam(more.init()) == max(lam, algorithm.lam(algorithm.init()))
    state, rng = algorithm.init(), np.random.default_rng(0)
    dtype = algorithm.family.mode(algorithm.family.initial()).dtype
    for _ in range(20):
        lam = algorithm.lam(state)
        x = algorithm.ask(state, rng)
        assert x.shape == (lam, algorithm.family.variables)
        assert x.dtype == dtype
        assert algorithm.ask(state, np.random.default_rng(1), 0).shape == (0, algorithm.family.variables)
        assert state.theta.shape == algorithm.family.initial().shape
        assert math.isfinite(algorithm.family.entropy(state.theta))
        copy, theta = state.copy(), state.theta.tolist()
        f = np.arange(lam, dtype=float)
        state = algorithm.tell(state, x, f)
        assert copy.theta.tolist() == theta
        after = algorithm.tell(copy, x, f)
        assert after.theta.tolist() == state.theta.tolist()
        if hasattr(algorithm, "can_yield"):
            assert algorithm.can_yield(after) is algorithm.can_yield(state)
        assert algorithm.lam(after) == algorithm.lam(state)
        info = algorithm.info(state)
        assert (info.theta.tolist(), info.lam) == (state.theta.tolist(), algorithm.lam(state))
        assert all(isinstance(each, float) for each in info[2:])
        state = after  # a copy continues as the original


# Asking and telling


@either
@one_quick_of_each_kind
def test_asked_in_parts_is_asked_at_once(name, deterministic):
    one, other = (made(name, deterministic=deterministic, batch=6) for _ in range(2))
    for _ in range(8):
        if one.exhausted:
            break
        at_once = one.ask()
        parts = [*other.ask(1)]
        while len(parts) < len(at_once):
            parts += other.ask(min(2, len(at_once) - len(parts)))
        assert [(c.id, repr(flat(c.x))) for c in parts] == [(c.id, repr(flat(c.x))) for c in at_once]
        for opt in (one, other):
            opt.tell(at_once, [value(c) for c in at_once])
        if not deterministic:  # known points after the last new one are drawn by the next ask
            assert look(one) == look(other)


def spoil(x):
    """Writes into whatever can be written into."""
    for each in x.values() if isinstance(x, dict) else x if isinstance(x, list) else [x]:
        if isinstance(each, np.ndarray) and each.flags.writeable:
            each[...] = each.flat[0]
        elif isinstance(each, dict | list):
            spoil(each)


@either
@one_quick_of_each_kind
def test_writing_to_what_was_handed_out_changes_nothing(name, deterministic):
    opt, other = (made(name, deterministic=deterministic) for _ in range(2))
    for _ in range(20):
        if opt.exhausted:
            break
        out, same = opt.ask(), other.ask()
        values = [value(c) for c in same]
        batch = () if isinstance(opt.space.family, Conditional) else (out.x,)  # which has no batches of points
        for x in (*(c.x for c in out), *batch, opt.mode, opt.theta):
            spoil(x)
        opt.tell(out, values)
        other.tell(same, values)
        assert look(opt) == look(other)


@every_algorithm
def test_the_points_of_an_iteration_are_the_callers_own(name):
    """Writing into them changes no state, or raises."""
    recipe, space = ALGORITHMS[name]
    algorithm, rng = recipe(space).at_least(3), np.random.default_rng(0)
    state = algorithm.init()
    for _ in range(5):
        x = algorithm.ask(state, rng)
        kept, before = x.copy(), state.copy()
        spoil(x)
        f = np.arange(len(x), dtype=float)
        state, before = algorithm.tell(state, kept, f), algorithm.tell(before, kept, f)
        draws = [algorithm.ask(each, np.random.default_rng(1)).tolist() for each in (state, before)]
        assert draws[0] == draws[1]


@either
@one_quick_of_each_kind
def test_any_order_of_tells_in_any_parts_is_the_same(name, deterministic):
    def played(shuffled):
        opt = made(name, deterministic=deterministic)
        for _ in range(12):
            if opt.exhausted:
                break
            order = shuffled(list(opt.ask()))
            while order:
                half = 1 + len(order) // 2
                opt.tell(order[:half], [value(c) for c in order[:half]])
                order = order[half:]
        return look(opt)

    chance = random.Random(3)
    expected = played(list)
    for _ in range(3):
        assert played(lambda each: chance.sample(each, len(each))) == expected


@either
@one_quick_of_each_kind
def test_an_iteration_goes_on_without_those_given_up(name, deterministic):
    opt, chance = made(name, deterministic=deterministic), random.Random(0)
    for round in range(30):
        if opt.exhausted:
            break
        nit, out = opt.nit, list(opt.ask())
        lost = out if round == 3 else [c for c in out if chance.random() < 0.4]
        back = [c for c in out if c not in lost]
        opt.cancel(lost)
        opt.tell(back, [value(c) for c in back])
        if not deterministic:  # where points are known already, more may have closed on the way
            assert opt.nit == nit + 1
    assert opt.best.fun < 7
    assert not opt.pending


@every_algorithm
@pytest.mark.parametrize("failed", [math.nan, math.inf, RuntimeError("no")], ids=["nan", "inf", "error"])
def test_where_all_fail_there_is_no_best_and_then_there_is(name, failed):
    opt = made(name)
    for _ in range(6):
        out = opt.ask()
        opt.tell(out, [failed] * len(out))
    assert opt.best is None
    out = opt.ask()
    opt.tell(out, [1.0] * len(out))
    assert opt.best.fun == 1.0


@one_quick_of_each_kind
def test_no_iteration_is_smaller_than_the_batch(name):
    opt = made(name, batch=7)
    for _ in range(25):
        out = opt.ask()
        assert opt.lam >= 7
        assert len(out) >= 7
        opt.tell(out, [value(c) for c in out])


@either
@one_quick_of_each_kind
def test_x0_is_handed_out_first(name, deterministic):
    _, space = ALGORITHMS[name]
    start = kl.Space.of(space)
    x0 = start.decode(start.family.draw(start.family.initial(), np.full((1, start.family.words), 2**30, np.uint32))[0])
    opt = made(name, deterministic=deterministic, x0=x0)
    first = opt.ask(1)[0]
    assert (first.id, repr(flat(first.x))) == (0, repr(flat(x0)))
    opt.tell(first, -1.0)
    for _ in range(15):
        out = opt.ask()
        if deterministic:
            assert repr(flat(x0)) not in [repr(flat(c.x)) for c in out]
        opt.tell(out, [value(c) for c in out])
    assert repr(flat(opt.best.x)) == repr(flat(x0))


@pytest.mark.slow
@every_algorithm
def test_a_deterministic_run_pays_for_no_point_twice(name):
    opt, paid = made(name, deterministic=True), []
    covers = ALGORITHMS[name][1] in (BITS, SEVEN_BITS) and (
        name == "p3" or name.startswith(("search on", "members"))
    )  # which leave no point of a small space out
    while not opt.exhausted and opt.nfev < (600 if covers else 300):
        out = opt.ask()
        paid += [repr(flat(c.x)) for c in out]
        opt.tell(out, [value(c) for c in out])
    assert len(paid) == len(set(paid)) == opt.nfev
    assert opt.nfev > (50 if name == "linear_thompson" else 100)  # which is for noisy objectives, and converges
    if covers:
        assert opt.complete


# Resuming


def played(name, deterministic, steps, begun, again):
    """Random asking, telling, giving up and adding; `again` makes another optimizer of one, now and then."""
    chance = random.Random(f"{name} {deterministic}")
    opt, out = begun(), []
    space = opt.space
    for _ in range(steps):
        act, k = chance.random(), chance.randint(1, 5)
        k = len(out) if len(out) > 8 else k
        chance.shuffle(out)
        if chance.random() < 0.25:
            opt, out = again(opt, sorted(out, key=lambda c: c.id))
        elif act < 0.45 and len(out) <= 8 and not opt.exhausted:
            out += opt.ask(k)
        elif act < 0.85 and out:
            some, out = out[:k], out[k:]
            opt.tell(some, [value(c) for c in some])
        elif act < 0.92 and out:
            opt.cancel(out.pop())
        elif act > 0.96:
            opt.add(space.decode(space.family.mode(space.family.initial())), chance.choice([-1.0, 0.5, math.nan]))
        out.sort(key=lambda c: c.id)
    return opt


@pytest.mark.slow
@either
@every_algorithm
def test_a_journal_opened_again_goes_on_as_the_run_that_never_stopped(name, deterministic, tmp_path):
    def begun():
        return made(name, deterministic=deterministic, journal=tmp_path / "run.sqlite")

    def killed(opt, out):
        opt.close()
        opt = begun()
        held = list(opt.ask(len(out))) if out else []  # what was out is handed out again
        assert [(c.id, repr(flat(c.x))) for c in held] == [(c.id, repr(flat(c.x))) for c in out]
        return opt, held

    steps = max(STEPS, 10 * made(name).lam)  # enough for several iterations
    expected = played(name, deterministic, steps, lambda: made(name, deterministic=deterministic), lambda *both: both)
    opt = played(name, deterministic, steps, begun, killed)
    assert look(opt) == look(expected)
    assert opt.nit >= 3
    opt.close()


@either
@one_quick_of_each_kind
def test_what_was_saved_goes_on_as_the_run_that_never_stopped(name, deterministic, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # this is not about the disk, which is slow
    path, (_, space) = tmp_path / "run.json", ALGORITHMS[name]

    def begun():
        return made(name, deterministic=deterministic)

    def loaded(opt, out):
        opt.save(path)
        custom = opt.algorithm if name == "search with an own" else None
        if custom is not None:
            with pytest.raises(kl.SnapshotError, match="custom components"):
                kl.Optimizer.load(path, space)
        other = kl.Optimizer.load(path, space, custom)
        assert other.algorithm == opt.algorithm
        assert look(other) == look(opt)
        return other, out

    if name == "own":
        with pytest.raises(TypeError, match=r"^algorithm: expected one whose state can be saved"):
            begun().save(path)
        assert not path.exists()
        return
    expected = played(name, deterministic, STEPS, begun, lambda *both: both)
    assert look(played(name, deterministic, STEPS, begun, loaded)) == look(expected)


# Whole runs


@one_quick_of_each_kind
def test_a_run_ends_where_its_journal_says_it_does(name, tmp_path):
    """`minimize` in two parts with a journal is `minimize` in one."""
    recipe, space = ALGORITHMS[name]

    def fun(x):
        return float(sum(map(ord, repr(flat(x)))) % 101)

    def run(budget, **options):
        result = kl.minimize(fun, space, budget=budget, rng=2, algorithm=recipe(space), **options)
        return repr(flat(result.x)), result.fun, result.nfev, result.nit, repr(flat(result.mode))

    journal = tmp_path / "run.sqlite"
    run(30, journal=journal)
    assert run(80, journal=journal) == run(80)


def zeros(x):
    return int((x == 0).sum())


@pytest.mark.slow
def test_two_workers_give_what_one_gives():
    def run(workers):
        result = kl.minimize(
            zeros, kl.Binary(12), budget=60, rng=0, batch=3, workers=workers, deterministic=True, algorithm=None
        )
        return result.x.tolist(), result.fun, result.nfev, result.nit, [*map(repr, result.history)]

    assert run(2) == run(1)


@either
@every_algorithm
def test_what_is_given_up_is_not_asked_for_for_ever(name, deterministic):
    """Where nothing of an iteration comes back, the next one is about other points."""
    opt = made(name, batch=1, deterministic=deterministic)
    seen = set()
    for nit in range(12):
        assert opt.nit == nit
        batch = opt.ask()
        seen |= {repr(flat(candidate.x)) for candidate in batch}
        opt.cancel(batch)
    assert len(seen) > 6
    batch = opt.ask()
    opt.tell(batch, [1.0] * len(batch))
    assert opt.observed_fun == 1.0


def test_a_class_is_no_algorithm():
    for each in (IGO, P3, Search):
        with pytest.raises(TypeError, match=r"^algorithm: expected a value such as pbil_lambda"):
            kl.Optimizer(BITS, each)
