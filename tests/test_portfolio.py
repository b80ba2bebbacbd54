"""A portfolio: its turns, the evaluations of each member, injected points, and results of the recommended one."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
from conftest import examples, later_portfolio
from knobless.core.algorithm import AlgorithmInfo
from knobless.core.description import algorithm_data, algorithm_of
from knobless.core.portfolio import MOST_EQUAL, PortfolioState
from knobless.core.states import state_data, state_of
from knobless.problems import LeadingOnes, MaxSat, OneMax

FAMILY = kl.Bernoulli(8)


class Diary(NamedTuple):
    """The state of a member that writes down what happens to it."""

    told: tuple = ()
    heard: tuple = ()

    theta = FAMILY.initial()

    def copy(self):
        return self


@dataclass(frozen=True)
class Member:
    """Asks for λ points and rests after every so many iterations; it learns nothing."""

    size: int = 1
    stamina: int = 1
    family: kl.Family = FAMILY

    def init(self, theta=None, x0=None):
        return Diary()

    def lam(self, state):
        return self.size

    def ask(self, state, rng, size=None, start=0):
        return self.family.sample(state.theta, self.size if size is None else size, rng)

    def tell(self, state, x, f):
        return state._replace(told=(*state.told, tuple(f.tolist())))

    def inject(self, state, x, f):
        return state._replace(heard=(*state.heard, (len(state.told), tuple(x.tolist()), f)))

    def observe(self, state, x, f):
        return state

    def can_yield(self, state):
        return len(state.told) % self.stamina == 0

    def info(self, state):
        return AlgorithmInfo(state.theta, self.size, float(self.size), math.nan, -float(self.size))

    def at_least(self, lam):
        return Member(max(self.size, lam), self.stamina)


class Alone(Member):
    """An algorithm without what only members of a portfolio need."""

    inject = observe = can_yield = None


def plain(members, equal, turns):
    """The same from the whole record, looked through anew at each turn.

    `turns` are the points and values of each; yields whose it was, what each has found, what was heard,
    and who is next.
    """
    found = [[] for _ in members]  # the values of each, in order
    best, owner, turn, tells = None, None, 0, [0] * len(members)
    for x, f in turns:
        who = turn
        values = [math.inf if math.isnan(v) else v for v in f]
        found[who] += values
        lowest = min(values)
        heard = None
        if lowest < math.inf and (best is None or lowest < best[1]):
            best, owner = (x[values.index(lowest)], lowest), who
        elif best is not None and owner != who:
            heard = best
        tells[who] += 1
        if tells[who] % members[who].stamina == 0:
            fewest = min(map(len, found))
            compared = 2 ** math.floor(math.log2(fewest)) if fewest >= 16 else 0
            leader = min(range(len(members)), key=lambda m: (min(found[m][:compared], default=0.0), m))
            leads = fewest >= equal
            cost = [len(own) / 8 if leads and m == leader else len(own) for m, own in enumerate(found)]
            turn = cost.index(min(cost))
        yield who, [list(own) for own in found], heard, best, turn


values = st.one_of(st.integers(-9, 9).map(float), st.sampled_from([math.nan, math.inf, -math.inf]))


@examples(50)
@given(st.data())
def test_the_books_are_those_of_the_whole_record(data):
    size = st.builds(Member, st.integers(1, 3), st.integers(1, 3))
    members = tuple(data.draw(st.lists(size, min_size=1, max_size=4)))
    equal = data.draw(st.integers(0, 30))
    portfolio = kl.Portfolio(members, equal)
    rng, state, turns, seen = np.random.default_rng(0), portfolio.init(), [], []
    for _ in range(data.draw(st.integers(1, 60))):
        assert portfolio.lam(state) == members[state.turn].size
        x = portfolio.ask(state, rng)
        f = data.draw(st.lists(values, min_size=len(x), max_size=len(x)))
        turns.append(([tuple(row) for row in x.tolist()], f))
        state = portfolio.tell(state, x, np.array(f))
        seen.append(state)
    heard = [[] for _ in members]
    told = [[] for _ in members]
    for state, (_, f), (who, found, news, best, turn) in zip(seen, turns, plain(members, equal, turns), strict=True):
        told[who].append(tuple(f))
        if news:
            heard[who].append((len(told[who]), *news))
        for record, own in zip(state.records, found, strict=True):
            assert (record.spent, record.lowest) == (len(own), min(own, default=math.inf))
            assert record.course == tuple(min(own[: 2**k]) for k in range(len(own).bit_length()))
        assert state.turn == turn
        assert (state.best.x.tolist(), state.best.f.tolist()) == (([list(best[0])], [best[1]]) if best else ([], []))
        for member, each, words in zip(state.members, told, heard, strict=True):
            assert repr(member.told) == repr(tuple(each))  # NaN is not itself
            assert member.heard == tuple(words)


# What follows from the rule


def spent(portfolio, f, calls, seed=0):
    """After each turn: whose it was, and what each member has spent; and the last state."""
    rng, state, total, turns = np.random.default_rng(seed), portfolio.init(), [0] * len(portfolio.members), []
    while sum(total) < calls:
        who, x = state.turn, portfolio.ask(state, rng)
        state = portfolio.tell(state, x, np.array([f(row) for row in x], dtype=float))
        total[who] += len(x)
        turns.append((who, tuple(total)))
    return turns, state


@pytest.mark.parametrize(
    "portfolio",
    [
        later_portfolio(kl.Binary(20)).rest,
        kl.Portfolio((kl.pbil_lambda(kl.Bernoulli(20)), kl.cga(kl.Bernoulli(20)), kl.p3(kl.Bernoulli(20)))),
        kl.Portfolio((Member(3, 2), Member(1, 5), Member(2, 1))),
    ],
    ids=["recommended", "three", "scripted"],
)
def test_each_member_has_its_share_up_to_one_turn(portfolio):
    turns, _ = spent(portfolio, lambda x: 1.0, 3000)  # the first one leads, because all are level
    longest, begun = 0, turns[0][1]
    for (who, before), (then, _) in itertools.pairwise(turns):
        if who != then:
            longest, begun = max(longest, before[who] - begun[who]), before
    assert {who for who, _ in turns} == set(range(len(portfolio.members)))
    for _, (first, *others) in turns:
        assert max(others) - min(others) <= longest + 1
        assert first <= 8 * (min(others) + 1) + longest
        assert max(others) <= first / 8 + longest + 1


@pytest.mark.parametrize("leader", [0, 1, 2])
def test_a_leader_has_most_turns(leader):
    portfolio = kl.Portfolio((Member(), Member(), Member()))
    rng, state, value = np.random.default_rng(0), portfolio.init(), 0.0
    turns = []
    for _ in range(2000):
        turns.append(state.turn)
        x = portfolio.ask(state, rng)
        value -= 1.0
        state = portfolio.tell(state, x, np.array([value if state.turn == leader else 5.0]))
    assert [turns.count(member) for member in range(3)] == [1600 if member == leader else 200 for member in range(3)]


def test_whoever_was_better_after_as_many_evaluations_goes_on():
    portfolio = kl.Portfolio((Member(), Member()))
    rng, state, turns = np.random.default_rng(0), portfolio.init(), []
    while len(turns) < 1200:
        turns.append(state.turn)
        value = 8.0 if turns.count(1) == 20 and state.turn == 1 else 9.0
        state = portfolio.tell(state, portfolio.ask(state, rng), np.array([value]))
    # The first member leads as long as both are level, and eight of its evaluations count as one. The second one has
    # the lower value after 32 evaluations. From then on it leads, until it has eight times as many.
    first, second = [i for i, turn in enumerate(turns) if turn == 0], [i for i, turn in enumerate(turns) if turn == 1]
    assert [sum(i < each for i in first) for each in second[:32]] == [1 + 8 * k for k in range(32)]
    assert second[32:] == list(range(second[31] + 1, len(turns)))
    assert len(second) < 8 * len(first)


def test_the_best_point_is_shared():
    """The genetic algorithm has the portfolio's best point in its population after each turn."""
    portfolio = later_portfolio(kl.Binary(40)).rest
    problem = MaxSat.planted(40, 168, 0)
    rng, state, lowest, shared = np.random.default_rng(1), portfolio.init(), math.inf, 0
    for _ in range(800):
        who, x = state.turn, portfolio.ask(state, rng)
        state = portfolio.tell(state, x, problem.costs(x))
        lowest = min(lowest, problem.costs(x).min())
        assert state.best.f[0] == lowest == problem(state.best.x[0])
        if who == 1 and not state.members[1].fresh:
            assert state.members[1].f[0] == lowest
            shared += state.owner != 1
    assert shared > 5


def test_theta_and_the_step_are_those_of_the_last_member():
    portfolio = kl.Portfolio((Member(4), kl.pbil_epsilon(FAMILY), kl.pbil_elitist(FAMILY)))
    _, state = spent(portfolio, lambda x: float(x.sum()), 300)
    last, theirs = portfolio.members[-1], state.members[-1]
    assert state.theta.tolist() == theirs.theta.tolist()
    info, expected = portfolio.info(state), last.info(theirs)
    assert info.theta.tolist() == theirs.theta.tolist()
    assert (info.eps, info.lam_r, info.snr) == (expected.eps, expected.lam_r, expected.snr)
    assert info.lam == portfolio.lam(state)


def test_at_least_holds_for_every_member():
    more = later_portfolio(kl.Binary(5)).rest.at_least(7)
    assert [member.lam(member.init()) for member in more.members] == [7, 16]
    more = later_portfolio(kl.Binary(5)).rest.at_least(70)
    assert [member.lam(member.init()) for member in more.members] == [70, 70]


def test_a_team_may_be_in_a_team():
    inner = kl.Portfolio((Member(1, 2), Member(2, 1)))
    portfolio = kl.Portfolio((inner, Member(1, 3)))
    turns, state = spent(portfolio, lambda x: float(x.sum()), 200)
    assert {who for who, _ in turns} == {0, 1}
    assert all(member.told for member in state.members[0].members)


def test_writing_to_the_copy_of_a_state_changes_nothing():
    portfolio = later_portfolio(kl.Binary(8)).rest
    _, state = spent(portfolio, lambda x: float(x.sum()), 200)
    best, theta = state.best.x.tolist(), state.theta.tolist()
    copy = state.copy()
    copy.best.x[:] = 7
    copy.theta[:] = 7
    assert (state.best.x.tolist(), state.theta.tolist()) == (best, theta)


@pytest.mark.parametrize("calls", [0, 1, 7, 150, 400])
def test_what_was_saved_is_the_team_as_it_was(calls):
    space = kl.Space.of(kl.Binary(12))
    family = space.family
    portfolio = kl.Portfolio(
        (kl.cga(family), kl.p3(family), kl.Portfolio((kl.pbil_elitist(family), kl.pbil_lambda(family))))
    )
    hashed = lambda x: sum((i + 3) ** 5 * (int(xi) + 1) for i, xi in enumerate(x)) * 2654435761 % 9973  # noqa: E731
    _, state = spent(portfolio, hashed, calls)

    def shown(state):
        if isinstance(state, PortfolioState):
            best = state.best.x.tolist(), state.best.x.dtype, state.best.f.tolist()
            return state.turn, state.records, state.owner, best, [shown(member) for member in state.members]
        elite, signal = getattr(state, "elite", None), getattr(state, "signal", None)  # which a pyramid does not have
        kept = elite and (elite.x.tolist(), elite.f.tolist())
        return state.theta.tolist(), signal and signal.lam_r, kept

    data = json.loads(json.dumps(state_data(portfolio, state)))
    assert shown(state_of(portfolio, data, None)) == shown(state)
    assert calls < 150 or (state.owner and min(record.spent for record in state.records))  # or else less would be seen


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ((), ValueError),
        ((kl.cga(kl.Bernoulli(3)), kl.cga(kl.Bernoulli(4))), ValueError),
        ((kl.cga(kl.Bernoulli(3)), "cga"), TypeError),
        (kl.cga(kl.Bernoulli(3)), TypeError),
        ((kl.cga,), TypeError),
        ([kl.cga(kl.Bernoulli(3))], TypeError),
        ((Alone(),), TypeError),
    ],
)
def test_errors_name_the_argument(members, error):
    with pytest.raises(error, match=r"^members\b"):
        kl.Portfolio(members)


@pytest.mark.parametrize(
    ("equal", "error"), [(-1, ValueError), (MOST_EQUAL + 1, ValueError), (1.5, TypeError), ("1", TypeError)]
)
def test_errors_name_the_number_of_equal_evaluations(equal, error):
    with pytest.raises(error, match=r"^equal: expected"):
        kl.Portfolio((Member(),), equal)


@pytest.mark.parametrize("equal", [-1, MOST_EQUAL + 1, 1.5, "1", True, None])
def test_a_description_with_another_number_of_equal_evaluations_is_refused(equal):
    portfolio = kl.Portfolio((kl.p3(FAMILY), kl.Evolution(FAMILY)), MOST_EQUAL)
    data = json.loads(json.dumps(algorithm_data(portfolio)))
    assert algorithm_of(data, FAMILY) == portfolio
    with pytest.raises(ValueError, match="expected"):
        algorithm_of(data | {"equal": equal}, FAMILY)


# How far the recommended one gets


def calls(problem, seed, cap):
    """Until the optimum, inf if that takes more than `cap`."""
    portfolio, rng, spent = kl.portfolio(problem.space), np.random.default_rng(seed), 0
    state = portfolio.init()
    while spent < cap:
        x = portfolio.ask(state, rng)
        f = problem.costs(x)
        if not f.all():
            return spent + int(f.argmin()) + 1
        spent += len(f)
        state = portfolio.tell(state, x, f)
    return math.inf


@pytest.mark.parametrize(("problem", "cap"), [(LeadingOnes(100), 6000), (OneMax(1000), 1100)])
def test_where_one_path_leads_up_it_is_climbed(problem, cap):
    assert all(calls(problem, seed, cap) <= cap for seed in range(3))


def test_clauses_are_satisfied():
    """Of three literals each, 4.2 for each variable; all that a hidden point satisfies are equally likely."""
    assert sum(calls(MaxSat.planted(50, 210, seed), seed, 50_000) < math.inf for seed in range(5)) >= 4
