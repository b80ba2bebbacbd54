"""Members in turns: who is next, the evaluations of each, injected points, and results of the recommended search."""

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
from conftest import SPACES, examples, members_alone, saved_and_restored, sharing
from knobless.algorithms import (
    Evolution,
    Lead,
    QuadraticStudy,
    Quartiles,
    Search,
    Shares,
    Stage,
    cga,
    p3,
    pbil_elitist,
)
from knobless.core.algorithm import AlgorithmInfo
from knobless.core.description import algorithm_data, algorithm_of
from knobless.core.search import WHOLE
from knobless.core.turns import MOST_EQUAL, MemberRecord, lowest_of
from knobless.families import Bernoulli, Family
from knobless.problems import LeadingOnes, MaxSat, OneMax

FAMILY = Bernoulli(8)


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
    family: Family = FAMILY

    def init(self, theta=None, x0=None, archive=None):
        return Diary()

    def lam(self, state):
        return self.size

    def ask(self, state, rng, size=None, start=0):
        return self.family.sample(state.theta, self.size if size is None else size, rng)

    def tell(self, state, x, f):
        return state._replace(told=(*state.told, tuple(f.tolist())))

    def inject(self, state, x, f):
        return state._replace(heard=(*state.heard, (len(state.told), tuple(x.tolist()), f)))

    def can_yield(self, state):
        return len(state.told) % self.stamina == 0

    def data(self, state):
        return {"told": state.told, "heard": state.heard}

    def restore(self, state, data):
        return Diary(data["told"], data["heard"])

    def info(self, state):
        return AlgorithmInfo(state.theta, self.size, float(self.size), math.nan, -float(self.size))

    def at_least(self, lam):
        return Member(max(self.size, lam), self.stamina)


class Alone(Member):
    """An algorithm without what only members of a search need."""

    inject = can_yield = None


def group_of(state):
    """Return the members' states of a search, whose turn it is, and the evaluations of each."""
    return state.groups[WHOLE]


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
    search = Search(members, Lead(equal))
    rng, state, turns, seen = np.random.default_rng(0), search.init(), [], []
    for _ in range(data.draw(st.integers(1, 60))):
        assert search.lam(state) == members[group_of(state).turn].size
        x = search.ask(state, rng)
        f = data.draw(st.lists(values, min_size=len(x), max_size=len(x)))
        turns.append(([tuple(row) for row in x.tolist()], f))
        state = search.tell(state, x, np.array(f))
        seen.append(group_of(state))
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
        for member, each, words in zip(state.states, told, heard, strict=True):
            assert repr(member.told) == repr(tuple(each))  # NaN is not itself
            assert member.heard == tuple(words)


# What follows from the rule


def spent(search, f, calls, seed=0):
    """After each turn: whose it was, and what each member has spent; and the last state."""
    rng, state, total, turns = np.random.default_rng(seed), search.init(), [0] * len(search.members), []
    while sum(total) < calls:
        who, x = group_of(state).turn, search.ask(state, rng)
        state = search.tell(state, x, np.array([f(row) for row in x], dtype=float))
        total[who] += len(x)
        turns.append((who, tuple(total)))
    return turns, state


@pytest.mark.parametrize(
    "search",
    [
        sharing(kl.Binary(20)),
        Search((kl.pbil_lambda(Bernoulli(20)), cga(Bernoulli(20)), p3(Bernoulli(20)))),
        Search((Member(3, 2), Member(1, 5), Member(2, 1))),
    ],
    ids=["recommended", "three", "scripted"],
)
def test_each_member_has_its_share_up_to_one_turn(search):
    turns, _ = spent(search, lambda x: 1.0, 3000)  # the first one leads, because all are level
    longest, begun = 0, turns[0][1]
    for (who, before), (then, _) in itertools.pairwise(turns):
        if who != then:
            longest, begun = max(longest, before[who] - begun[who]), before
    assert {who for who, _ in turns} == set(range(len(search.members)))
    for _, (first, *others) in turns:
        assert max(others) - min(others) <= longest + 1
        assert first <= 8 * (min(others) + 1) + longest
        assert max(others) <= first / 8 + longest + 1


def records_of(values):
    """The records of members that were told these values."""
    return [MemberRecord().after(f, lowest_of(f)) for f in values]


@examples(100)
@given(st.data())
def test_a_turn_lasts_at_least_as_long_as_stated(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    k, equal = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([0, 5, 40, 300]))
    values = [rng.integers(0, 9, rng.integers(0, 400)).astype(float) for _ in range(k)]
    rule = Lead(equal)
    turn = rule.next(records_of(values))
    kept = rule.keeps(records_of(values), turn)
    assert kept >= 1
    for _ in range(int(min(kept, 200)) - 1):
        values[turn] = np.append(values[turn], rng.integers(-9, 9))
        assert rule.next(records_of(values)) == turn


@pytest.mark.parametrize("leader", [0, 1, 2])
def test_a_leader_has_most_turns(leader):
    search = Search((Member(), Member(), Member()))
    rng, state, value = np.random.default_rng(0), search.init(), 0.0
    turns = []
    for _ in range(2000):
        turns.append(group_of(state).turn)
        x = search.ask(state, rng)
        value -= 1.0
        state = search.tell(state, x, np.array([value if turns[-1] == leader else 5.0]))
    assert [turns.count(member) for member in range(3)] == [1600 if member == leader else 200 for member in range(3)]


def test_whoever_was_better_after_as_many_evaluations_goes_on():
    search = Search((Member(), Member()))
    rng, state, turns = np.random.default_rng(0), search.init(), []
    while len(turns) < 1200:
        turns.append(group_of(state).turn)
        value = 8.0 if turns.count(1) == 20 and turns[-1] == 1 else 9.0
        state = search.tell(state, search.ask(state, rng), np.array([value]))
    # The first member leads as long as both are level, and eight of its evaluations count as one. The second one has
    # the lower value after 32 evaluations. From then on it leads, until it has eight times as many.
    first, second = [i for i, turn in enumerate(turns) if turn == 0], [i for i, turn in enumerate(turns) if turn == 1]
    assert [sum(i < each for i in first) for each in second[:32]] == [1 + 8 * k for k in range(32)]
    assert second[32:] == list(range(second[31] + 1, len(turns)))
    assert len(second) < 8 * len(first)


def test_the_best_point_is_shared():
    """The genetic algorithm has the best point of all members in its population after each turn."""
    search = sharing(kl.Binary(40))
    problem = MaxSat.planted(40, 168, 0)
    rng, state, lowest, shared = np.random.default_rng(1), search.init(), math.inf, 0
    for _ in range(800):
        who, x = group_of(state).turn, search.ask(state, rng)
        state = search.tell(state, x, problem.costs(x))
        lowest = min(lowest, problem.costs(x).min())
        group = group_of(state)
        assert group.best.f[0] == lowest == problem(group.best.x[0])
        assert (state.archive.best.x == group.best.x).all()
        if who == 1 and not group.states[1].fresh:
            assert group.states[1].f[0] == lowest
            shared += group.owner != 1
    assert shared > 5


def test_theta_and_the_step_are_those_of_the_last_member():
    search = Search((Member(4), kl.pbil_epsilon(FAMILY), pbil_elitist(FAMILY)))
    _, state = spent(search, lambda x: float(x.sum()), 300)
    last, theirs = search.members[-1], group_of(state).states[-1]
    assert state.theta.tolist() == theirs.theta.tolist()
    info, expected = search.info(state), last.info(theirs)
    assert info.theta.tolist() == theirs.theta.tolist()
    assert (info.eps, info.lam_r, info.snr) == (expected.eps, expected.lam_r, expected.snr)
    assert info.lam == search.lam(state)


def test_at_least_holds_for_every_member():
    more = sharing(kl.Binary(5)).at_least(7)
    assert [member.lam(member.init()) for member in more.members] == [7, 16]
    more = sharing(kl.Binary(5)).at_least(70)
    assert [member.lam(member.init()) for member in more.members] == [70, 70]


@pytest.mark.parametrize("shares", [(1, 1), (1, 3), (2, 3, 5)])
def test_fixed_shares_are_kept_up_to_one_turn(shares):
    members = tuple(Member(size, 1 + size % 2) for size in range(1, 1 + len(shares)))
    turns, _ = spent(Search(members, Shares(shares), deterministic=False), lambda x: float(x[0]), 2000)
    assert turns[0][0] == len(shares) - 1  # the last one in case of ties
    for _, total in turns:
        relative = [n / share for n, share in zip(total, shares, strict=True)]
        assert max(relative) - min(relative) <= 6.0  # at most two iterations of three evaluations in a row


def test_writing_to_the_copy_of_a_state_changes_nothing():
    search = sharing(kl.Binary(8))
    _, state = spent(search, lambda x: float(x.sum()), 200)
    best, theta = group_of(state).best.x.tolist(), state.theta.tolist()
    copy = state.copy()
    group_of(copy).best.x[:] = 7
    copy.theta[:] = 7
    assert (group_of(state).best.x.tolist(), state.theta.tolist()) == (best, theta)


@pytest.mark.parametrize("calls", [0, 1, 7, 150, 400])
def test_what_was_saved_are_the_members_as_they_were(calls):
    family = kl.Space.of(kl.Binary(12)).family
    search = Search((cga(family), p3(family), pbil_elitist(family), kl.pbil_lambda(family)))
    hashed = lambda x: sum((i + 3) ** 5 * (int(xi) + 1) for i, xi in enumerate(x)) * 2654435761 % 9973  # noqa: E731
    _, state = spent(search, hashed, calls)

    def shown(state):
        group, f = group_of(state), state.archive.f.tolist()
        best = group.best.x.tolist(), group.best.x.dtype, group.best.f.tolist()
        states = json.dumps(search.data(state)["groups"])
        return group.turn, group.records, group.owner, best, states, state.archive.x().tolist(), f, state.n

    assert shown(saved_and_restored(search, state)) == shown(state)
    group = group_of(state)  # or else less would be seen
    assert calls < 150 or (group.owner and min(record.spent for record in group.records))


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ((), ValueError),
        ((cga(Bernoulli(3)), cga(Bernoulli(4))), ValueError),
        ((cga(Bernoulli(3)), "cga"), TypeError),
        (cga(Bernoulli(3)), TypeError),
        ((cga,), TypeError),
        ([cga(Bernoulli(3))], TypeError),
        ((Alone(),), TypeError),
        ((sharing(Bernoulli(8)),), TypeError),
    ],
)
def test_errors_name_the_argument(members, error):
    with pytest.raises(error, match=r"^members\b"):
        Search(members)


def test_errors_name_the_rule_and_the_batch():
    with pytest.raises(ValueError, match=r"^rule: expected 2 shares, got 3"):
        Search((Member(), Member()), Shares((1, 2, 3)))
    with pytest.raises(ValueError, match=r"^batch: expected"):
        Search((Member(),), batch=0)


STAGE = Stage(cga(FAMILY))
MEMBERS = (p3(FAMILY), Evolution(FAMILY))
BRANCHES = kl.search(SPACES["branches"])
WRONG = [
    ({"stages": STAGE}, TypeError, "stages"),
    ({"stages": (STAGE.member,)}, TypeError, "stages"),
    ({"stages": [STAGE]}, TypeError, "stages"),
    ({"stages": (Stage("cga"),)}, TypeError, "members"),
    ({"stages": (Stage(cga(Bernoulli(9))),)}, ValueError, "members"),
    ({"stages": (STAGE,), "members": ()}, ValueError, "members"),
    ({"parts": BRANCHES.parts, "members": ()}, ValueError, "members"),
    ({"parts": BRANCHES.parts, "members": (kl.pbil_lambda(SPACES["branches"]),)}, ValueError, "parts"),
    ({"parts": 1}, TypeError, "parts"),
    ({"parts": Quartiles()}, TypeError, "parts"),
    ({"rule": None}, TypeError, "rule"),
    ({"rule": Lead}, TypeError, "rule"),
    ({"rule": (1, 2)}, TypeError, "rule"),
    ({"study": True}, TypeError, "study"),
    ({"study": p3(FAMILY)}, TypeError, "study"),
    ({"study": QuadraticStudy(Bernoulli(9))}, ValueError, "study"),
]


@pytest.mark.parametrize(("given", "error", "name"), WRONG)
def test_errors_name_the_other_arguments(given, error, name):
    with pytest.raises(error, match=rf"^{name}: expected"):
        Search(**{"members": MEMBERS, **given})


@pytest.mark.parametrize(
    ("until", "error"),
    [(math.nan, ValueError), (-1, ValueError), ("9", TypeError), (None, TypeError), (True, TypeError)],
)
def test_errors_name_the_end_of_a_stage(until, error):
    with pytest.raises(error, match=r"^until: expected"):
        Stage(cga(FAMILY), until)


@pytest.mark.parametrize(
    ("shares", "error"), [((1, 0), ValueError), ((-1, 1), ValueError), ((1, 0.5), TypeError), ([1, 1], TypeError)]
)
def test_errors_name_the_shares(shares, error):
    with pytest.raises(error, match=r"^shares: expected"):
        Shares(shares)


@pytest.mark.parametrize(
    ("equal", "error"), [(-1, ValueError), (MOST_EQUAL + 1, ValueError), (1.5, TypeError), ("1", TypeError)]
)
def test_errors_name_the_number_of_equal_evaluations(equal, error):
    with pytest.raises(error, match=r"^equal: expected"):
        Lead(equal)


@pytest.mark.parametrize("equal", [-1, MOST_EQUAL + 1, 1.5, "1", True, None])
def test_a_description_with_another_number_of_equal_evaluations_is_refused(equal):
    search = Search((p3(FAMILY), Evolution(FAMILY)), Lead(MOST_EQUAL))
    data = json.loads(json.dumps(algorithm_data(search)))
    assert algorithm_of(data, FAMILY) == search
    with pytest.raises((ValueError, TypeError), match="expected"):
        algorithm_of(data | {"rule": data["rule"] | {"equal": equal}}, FAMILY)


# How far the members of the recommended one get


def calls(problem, seed, cap):
    """Until the optimum, inf if that takes more than `cap`."""
    search, rng, spent = members_alone(problem.space), np.random.default_rng(seed), 0
    state = search.init()
    while spent < cap:
        x = search.ask(state, rng)
        f = problem.costs(x)
        if not f.all():
            return spent + int(f.argmin()) + 1
        spent += len(f)
        state = search.tell(state, x, f)
    return math.inf


@pytest.mark.parametrize(("problem", "cap"), [(LeadingOnes(100), 6000), (OneMax(1000), 1100)])
def test_where_one_path_leads_up_it_is_climbed(problem, cap):
    assert all(calls(problem, seed, cap) <= cap for seed in range(3))


def test_clauses_are_satisfied():
    """Of three literals each, 4.2 for each variable; all that a hidden point satisfies are equally likely."""
    assert sum(calls(MaxSat.planted(50, 210, seed), seed, 50_000) < math.inf for seed in range(5)) >= 4
