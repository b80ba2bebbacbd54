"""What follows from one table of evaluations: nothing pending is forgotten, nothing known is computed again."""

from __future__ import annotations

import cProfile
import pstats
import tracemalloc

import numpy as np
import pytest

import knobless as kl
from knobless.core.archive import Archive
from knobless.core.search import Search
from knobless.families import Bernoulli
from knobless.run.run_state import VERIFIED

SPACES = {
    "bits": kl.Binary(4),
    "choice": kl.Choice("a", "b", "c", p=[0.9, 0.05, 0.05]),
    "numbers": kl.Space(a=kl.Integer(0, 3), b=kl.Float(0, 1)),
    "conditional": kl.Space(c=kl.Choice(0, 1), x=kl.Choice(0, 1, 2).when(c=1)),
}


@pytest.mark.parametrize("deterministic", [None, True, False])
@pytest.mark.parametrize("name", SPACES)
def test_asking_and_telling_in_any_order_neither_raises_nor_forgets(name, deterministic):
    """`ask` may be called while `n_to_ask` is positive, and a run with pending points is not complete."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        opt = kl.Optimizer(SPACES[name], rng=seed, batch=int(rng.integers(1, 7)), deterministic=deterministic)
        pending = {}
        for _ in range(60):
            if opt.n_to_ask and not opt.exhausted and rng.random() < 0.6:
                pending |= {c.id: c for c in (opt.ask() if rng.random() < 0.5 else opt.ask(1))}
            elif pending:
                candidate = pending.pop(list(pending)[rng.integers(len(pending))])
                if rng.random() < 0.1:
                    opt.cancel(candidate)
                else:
                    opt.tell(candidate, np.nan if rng.random() < 0.2 else rng.integers(3))
            assert sorted(c.id for c in opt.pending) == sorted(pending)
            assert not (pending and opt.complete)


@pytest.mark.parametrize("deterministic", [None, True])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_a_tiny_space_with_failures_ends_whatever_the_batch(batch, deterministic):
    def fun(x):
        if x.sum() % 2:
            raise ValueError("odd")
        return float(x.sum())

    result = kl.minimize(fun, kl.Binary(4), budget=5000, rng=0, batch=batch, deterministic=deterministic)
    assert (result.status, result.fun) == ("exhausted", 0.0)
    assert result.nfev < 40  # 16 points, and some tests for noise


def calls(options: int) -> float:
    """Calls of functions per evaluation, with a number below each option of a choice."""
    space = kl.Space(c=kl.Choice(*range(options)), **{f"x{i}": kl.Float(0, 1).when(c=i) for i in range(options)})
    with cProfile.Profile() as profile:
        result = kl.minimize(
            lambda point: point["c"] + point[f"x{point['c']}"], space, budget=8 * options, rng=0, deterministic=True
        )
    return pstats.Stats(profile).total_calls / result.nfev  # type: ignore[attr-defined]


def test_the_work_per_evaluation_hardly_grows_with_the_branches():
    assert calls(100) < 2 * calls(20)


@pytest.mark.parametrize("deterministic", [True, False])
def test_points_take_a_bit_per_bit(deterministic):
    """Apart from the last ones, which are packed together."""
    n, rows = 10_000, 2000
    rng = np.random.default_rng(0)
    archive = Archive(Bernoulli(n), deterministic=deterministic)
    tracemalloc.start()
    try:
        for _ in range(rows):
            archive.add(rng.integers(0, 2, (1, n), dtype=np.int8), rng.random(1))
        assert len(archive) == rows
        assert tracemalloc.get_traced_memory()[0] < 0.5 * rows * n
    finally:
        tracemalloc.stop()


def test_the_memory_of_a_run_does_not_have_unpacked_points():
    n, budget = 10_000, 1500
    tracemalloc.start()
    try:
        opt = kl.Optimizer(kl.Binary(n), rng=0, deterministic=True)
        while opt.nfev < budget:
            opt.tell(batch := opt.ask(), [float(c.x.sum()) for c in batch])
        assert tracemalloc.get_traced_memory()[0] < 0.5 * budget * n
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", SPACES)
def test_a_journal_gives_the_state_at_any_time(name, tmp_path):
    with kl.Optimizer(SPACES[name], rng=3, deterministic=True, journal=tmp_path / "run.sqlite") as opt:
        rng = np.random.default_rng(0)
        for _ in range(25):
            if opt.exhausted:
                break
            opt.tell(batch := opt.ask(), rng.random(len(batch)))
            seen = kl.Optimizer.from_journal(tmp_path / "run.sqlite")
            assert (seen.nit, seen.nfev, seen.lam) == (opt.nit, opt.nfev, opt.lam)
            assert seen.theta.tolist() == opt.theta.tolist()


@pytest.mark.parametrize("deterministic", [None, True])
@pytest.mark.parametrize("name", SPACES)
def test_what_is_pending_when_a_journal_is_opened_again_is_handed_out(name, deterministic, tmp_path):
    """Also if it is all that is left of a small space: such a run is neither complete nor exhausted."""
    for seed in range(4):
        rng, path = np.random.default_rng(seed), tmp_path / f"{seed}.sqlite"
        given = {"rng": seed, "batch": 3, "deterministic": deterministic, "journal": path}
        opt, pending = kl.Optimizer(SPACES[name], **given), {}
        for _ in range(25):
            if not opt.exhausted and opt.n_to_ask and rng.random() < 0.6:
                pending |= {c.id: c for c in opt.ask(int(rng.integers(1, 4)))}
            elif pending:
                candidate = pending.pop(list(pending)[rng.integers(len(pending))])
                opt.tell(candidate, rng.integers(3))
            if rng.random() < 0.5:
                opt.close()
                opt = kl.Optimizer(SPACES[name], **given)
                if pending:
                    assert not opt.complete
                    assert not opt.exhausted
                    again = opt.ask(len(pending))
                    assert {c.id: repr(c.x) for c in again} == {id: repr(c.x) for id, c in pending.items()}
                    pending = {c.id: c for c in again}
        opt.close()


@pytest.mark.parametrize("deterministic", [None, True, False])
def test_a_journal_is_read_without_proposing_points(deterministic, tmp_path, monkeypatch):
    """A few are drawn again and compared, as a check of versions and machines."""
    space, path = kl.Binary(40), tmp_path / "run.sqlite"
    result = kl.minimize(lambda x: float(x.sum()), space, budget=90, rng=0, deterministic=deterministic, journal=path)
    ask, asked = Search.ask, []

    def counted(self, state, rng, size=None, start=0, fixed=None):
        asked.append(self.lam(state) if size is None else size)
        return ask(self, state, rng, size, start, fixed)

    monkeypatch.setattr(Search, "ask", counted)
    assert kl.Optimizer.from_journal(path).nit == result.nit
    assert sum(asked) <= VERIFIED
