"""Constraints, objective values with a violation, and fixed variables."""

from __future__ import annotations

import itertools
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import knobless as kl
from constraints import BUDGETS, METHODS, SEEN, medians
from harness import read_csv
from knobless.algorithms import linear_thompson, p3
from knobless.cli.app import app
from knobless.core.repair import Repair
from knobless.core.violation import Infeasible, is_feasible, negated, ranked

BITS = kl.Binary(8)
WEIGHTS = np.array([5, 3, 8, 2, 7, 4, 6, 1])
MIXED = kl.Space(
    bits=kl.Binary(3),
    kind=kl.Choice("a", "b", "c"),
    n=kl.Integer(0, 9),
    rate=kl.Float(0.0, 1.0),
    size=kl.Float(0.0, 1.0),
)
TREE = kl.Space(kernel=kl.Choice("linear", "poly"), degree=kl.Integer(2, 9).when(kernel="poly"), c=kl.Float(0.0, 1.0))


def light(x):
    return float(WEIGHTS @ x - 12)


def roomy(x):
    return float(WEIGHTS @ x - 20)


def covering(x):
    return x[:4].any() and x[3:].any()


def between(x):
    return 2 <= x.sum() <= 4


def thin(x):
    return x["rate"] + x["size"] + x["n"] / 10 - 0.6


def paired(x):
    return x["kind"] != "a" or x["bits"].sum() == 2


def low_degree(x):
    return x.get("degree", 0) * x["c"] - 2.0


PROBLEMS = {
    "knapsack": (BITS, [roomy]),
    "covering": (BITS, [covering]),
    "two sides": (BITS, [between, roomy]),
    "choices": (kl.Choice(0, 1, 2, n=5), [lambda x: int(np.sum(x)) - 4]),
    "mixed": (MIXED, [thin, paired]),
    "subset": (kl.Subset(8, 3), [roomy]),
    "conditional": (TREE, [low_degree]),
}
ALGORITHMS = {
    "default": lambda space: {},
    "deterministic": lambda space: {"deterministic": True},
    "noisy": lambda space: {"deterministic": False},
    "pbil": lambda space: {"algorithm": kl.pbil_lambda(space)},
    "linear": lambda space: {"algorithm": linear_thompson(space)},
}


def score(x):
    """Return some objective value of any point."""
    if isinstance(x, dict):
        return sum(score(each) for each in x.values() if not isinstance(each, str))
    return float(-np.sum(x)) + 0.01 * float(np.sum(np.arange(np.size(x)) * x))


def holds(constraints, x):
    values = [constraint(x) for constraint in constraints]
    return all(value if isinstance(value, (bool, np.bool_)) else value <= 0 for value in values)


# Constraints.


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("problem", PROBLEMS)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32), batch=st.integers(1, 5), sizes=st.lists(st.integers(1, 7), max_size=12))
def test_every_candidate_is_feasible(problem, algorithm, seed, batch, sizes):
    space, constraints = PROBLEMS[problem]
    opt = kl.Optimizer(space, rng=seed, batch=batch, constraints=constraints, **ALGORITHMS[algorithm](space))
    for k in sizes:
        for candidate in opt.ask(k):
            assert holds(constraints, candidate.x)
            opt.tell(candidate, score(candidate.x))


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("deterministic", [None, False])
def test_the_run_does_not_depend_on_workers_or_a_journal(tmp_path, problem, deterministic):
    space, constraints = PROBLEMS[problem]

    def run(budget=40, **more):
        result = kl.minimize(
            score, space, budget=budget, rng=1, batch=3, constraints=constraints, deterministic=deterministic, **more
        )
        seen = [(repr(each.x), each.value) for each in result.evaluations]
        return seen, repr(result.x), result.fun, result.constraint_checks

    whole = run()
    assert all(
        holds(constraints, each.x)
        for each in kl.minimize(score, space, budget=40, rng=1, constraints=constraints).evaluations
    )
    with ThreadPoolExecutor(3) as pool:
        assert run(workers=pool) == whole
    run(17, journal=tmp_path / "j")
    assert run(journal=tmp_path / "j") == whole
    opt = kl.Optimizer.from_journal(tmp_path / "j", constraints=constraints)
    assert opt.nfev <= 40
    with pytest.raises(kl.JournalError, match="the run has constraints: pass them to from_journal"):
        kl.Optimizer.from_journal(tmp_path / "j")
    with pytest.raises(kl.JournalError, match="journal does not match this run: constraints"):
        kl.minimize(
            score, space, budget=40, journal=tmp_path / "j", deterministic=deterministic, constraints=lambda x: 0.0
        )


@pytest.mark.parametrize("problem", PROBLEMS)
def test_snapshots_continue_the_run(tmp_path, problem):
    space, constraints = PROBLEMS[problem]
    opt = kl.Optimizer(space, rng=0, batch=2, constraints=constraints)
    for number in range(12):
        batch = opt.ask(3)
        opt.save(tmp_path / "s")
        other = kl.Optimizer.load(tmp_path / "s", space, constraints=constraints)
        values = [score(candidate.x) for candidate in batch]
        for each in (opt, other):
            each.tell(batch, values)
        if number % 3 == 2:
            opt = other
        assert repr(opt.ask(1)[0].x) == repr(other.ask(1)[0].x) if opt is not other else True
    with pytest.raises(kl.SnapshotError, match="constraints"):
        kl.Optimizer.load(tmp_path / "s", space)


@given(seed=st.integers(0, 2**63), code=st.integers(0, 255), target=st.integers(0, 255))
def test_repairs_end_between_the_point_and_a_feasible_one(seed, code, target):
    family = kl.Space.of(BITS).family
    x, a = (np.array([n >> i & 1 for i in range(8)], dtype=np.int8) for n in (code, target))
    feasible = lambda y: light(y) <= 0.0 and between(y)  # noqa: E731
    if feasible(a) and not feasible(x):
        y = Repair(family, a)(x, feasible, seed)
        assert feasible(y)
        assert ((y == x) | (y == a)).all()
    knapsack = lambda y: light(y) <= 0.0  # noqa: E731
    repair = Repair.towards(family, np.zeros(8, np.int8), np.empty(0, np.intp), knapsack)
    assert repair.directed
    y = repair(x, knapsack, seed) if not knapsack(x) else repair.fill(x, knapsack, seed)
    assert knapsack(y)
    assert not any(knapsack(y + np.eye(8, dtype=np.int8)[i]) for i in np.flatnonzero(y == 0))
    assert knapsack(x) is False or (y >= x).all()


def test_all_feasible_points_are_found():
    points = [np.array(x, dtype=np.int8) for x in itertools.product((0, 1), repeat=8)]
    feasible = {x.tobytes() for x in points if light(x) <= 0}
    for sign in (1, -1):  # whether items are good or bad, points to which items could be added are found
        seen = set()
        kl.minimize(
            lambda x, seen=seen, sign=sign: seen.add(x.tobytes()) or float(sign * x.sum()),
            BITS,
            budget=2000,
            rng=0,
            constraints=light,
            deterministic=True,
        )
        assert len(seen) > 0.9 * len(feasible)
        assert seen <= feasible


@pytest.mark.slow
def test_a_knapsack_is_solved():
    rng = np.random.default_rng(0)
    value, weight = rng.integers(10, 99, 24), rng.integers(10, 99, 24)
    exact = _knapsack(value.tolist(), weight.tolist(), int(weight.sum() // 3))
    result = kl.maximize(
        lambda x: float(value @ x),
        kl.Binary(24),
        budget=1500,
        rng=0,
        constraints=lambda x: float(weight @ x) - weight.sum() // 3,
    )
    assert result.fun == exact
    assert result.constraint_checks > result.nfev


def _knapsack(values, weights, capacity):
    best = [0] * (capacity + 1)
    for value, weight in zip(values, weights, strict=True):
        best = [max(b, best[c - weight] + value) if c >= weight else b for c, b in enumerate(best)]
    return best[capacity]


def test_the_distribution_stays_where_points_are_feasible():
    space = kl.Space(a=kl.Float(0, 1), b=kl.Float(0, 1))
    result = kl.maximize(
        lambda x: x["a"] + 2 * x["b"], space, budget=400, rng=0, constraints=lambda x: x["a"] + x["b"] - 1
    )
    assert result.fun > 1.9
    assert result.mode["a"] + result.mode["b"] < 1.2


def test_a_noisy_objective_is_evaluated_at_feasible_points_only():
    noise, seen = np.random.default_rng(0), []

    def fun(x):
        seen.append(light(x) <= 0.0)
        return float(x.sum() + noise.normal())

    result = kl.maximize(fun, BITS, budget=300, rng=0, constraints=light)
    assert result.deterministic is False
    assert all(seen)
    assert light(result.x) <= 0.0


@pytest.mark.parametrize(
    ("constraint", "error", "message"),
    [
        (
            lambda x: None,
            TypeError,
            r"constraints\[0\], .*: expected a number, feasible if at most 0, or a bool.* got None at array",
        ),
        (lambda x: np.ones(3), TypeError, r"got an array of shape \(3,\) at array"),
        (lambda x: math.nan, TypeError, "got nan at array"),
        (lambda x: "no", TypeError, "got 'no' at array"),
        (lambda x: (1.0, 2.0), TypeError, r"got \(1.0, 2.0\) at array"),
        (lambda x: 1 / 0, RuntimeError, r"constraints\[0\], .*: raised ZeroDivisionError.* at array"),
        (lambda x: False, ValueError, "expected feasible points in the space, got none among 10,000 points.*violates"),
        (lambda x: 1.0 + x.sum(), ValueError, "expected feasible points in the space"),
        (3, TypeError, "constraints: expected a function or a sequence of functions, got 3"),
        ([light, 3], TypeError, r"constraints\[1\]: expected a function, got 3"),
        ("light", TypeError, "constraints: expected a function or a sequence of functions, got 'light'"),
    ],
)
def test_bad_constraints_end_the_run_before_an_evaluation(constraint, error, message):
    with pytest.raises(error, match=message):
        kl.minimize(lambda x: pytest.fail("evaluated"), BITS, budget=10, rng=0, constraints=constraint)


def test_infeasible_points_of_the_user_are_refused():
    heavy = np.ones(8, dtype=np.int8)
    with pytest.raises(ValueError, match=r"x0: expected a feasible point, got one that violates .*light"):
        kl.minimize(score, BITS, budget=10, x0=heavy, constraints=light)
    with pytest.raises(ValueError, match=r"known\[0\]: expected a feasible point"):
        kl.minimize(score, BITS, budget=10, known=[(heavy, 1.0)], constraints=light)
    with pytest.raises(ValueError, match="x: expected a feasible point"):
        kl.Optimizer(BITS, constraints=light).add(heavy, 1.0)
    assert kl.minimize(score, BITS, budget=10, x0=heavy * 0, constraints=light, rng=0).nfev == 10


def test_without_constraints_nothing_changes():
    plain = kl.minimize(score, BITS, budget=100, rng=0)
    assert [repr(each.x) for each in plain.evaluations] == [
        repr(each.x) for each in kl.minimize(score, BITS, budget=100, rng=0, constraints=[], fixed={}).evaluations
    ]
    assert plain.constraint_checks == plain.violation == 0


# Values with a violation.

NUMBERS = st.floats(allow_nan=False, min_value=-1e150, max_value=1e150)


@given(st.lists(st.tuples(NUMBERS, st.floats(-1e70, 1e70, allow_nan=False)), min_size=2, max_size=6))
def test_ranks_order_feasible_points_by_value_and_others_by_violation(pairs):
    ranks = [ranked(*pair) for pair in pairs]
    key = [(0, value) if violation <= 0 else (1, max(violation, 2.0**-255)) for value, violation in pairs]
    for (a, rank_a), (b, rank_b) in itertools.combinations(zip(key, ranks, strict=True), 2):
        assert (a < b) == (rank_a < rank_b)
        assert (a == b) == (rank_a == rank_b)
    assert is_feasible(np.array(ranks)).tolist() == [violation <= 0 for _, violation in pairs]
    for (value, violation), rank in zip(pairs, ranks, strict=True):
        same = pickle.loads(pickle.dumps(rank))
        assert same == rank
        if violation > 0:
            assert isinstance(same, Infeasible)
            assert (same.value, same.violation) == (value, violation)
            assert negated(rank) == rank
            assert negated(rank).value == -value


def test_failed_values_with_a_violation_fail():
    assert math.isnan(ranked(math.nan, 0.0))
    assert math.isnan(ranked(1.0, math.nan))
    assert ranked(math.inf, -1.0) == math.inf


@pytest.mark.parametrize("value", [1.797e308, -(2.0**512)])
def test_values_that_are_too_large_for_a_violation_are_refused(value):
    with pytest.raises(ValueError, match=r"^value: expected a magnitude below 2\*\*512 .*, got "):
        kl.minimize(lambda x: kl.Constrained(value, 0.0), kl.Binary(8), budget=5, rng=0)
    assert kl.minimize(lambda x: kl.Constrained(2.0**511, 0.0), kl.Binary(8), budget=5, rng=0).fun == 2.0**511


def knapsack_pair(x):
    return kl.Constrained(float(WEIGHTS @ x), float(WEIGHTS @ x - 12))


@pytest.mark.parametrize("deterministic", [None, True, False])
@pytest.mark.parametrize(
    "options", [{}, {"algorithm": kl.pbil_lambda(BITS)}, {"algorithm": p3(BITS), "deterministic": True}]
)
def test_the_best_feasible_point_is_found(deterministic, options):
    result = kl.maximize(knapsack_pair, BITS, budget=300, rng=0, **{"deterministic": deterministic} | options)
    assert result.fun == 12.0
    assert result.violation == 0.0
    assert result.success
    worse = [each for each in result.evaluations if each.violation > 0]
    assert worse
    assert all(kl.Constrained(each.value, each.violation) == knapsack_pair(each.x) for each in worse)


def test_without_a_feasible_point_the_least_violation_is_the_result():
    result = kl.maximize(lambda x: kl.Constrained(x[0], 1.0 + x.sum()), BITS, budget=300, rng=0)
    assert not result.success
    assert result.violation == 1.0
    assert result.fun == 0.0
    assert not result.x.any()
    assert "No feasible point was found: x has the least violation, 1." in result.message
    assert result.history[-1].violation == 1.0
    assert result.history[-1].best == 0.0


@pytest.mark.parametrize("direction", [kl.minimize, kl.maximize])
def test_values_with_a_violation_are_recorded(tmp_path, direction):
    def run(budget, **more):
        result = direction(lambda x: kl.Constrained(score(x), light(x)), BITS, budget=budget, rng=0, batch=2, **more)
        rows = [(repr(each.x), each.value, each.violation) for each in result.evaluations]
        return rows, result.fun, result.violation, [row[:3] for row in result.history]

    whole = run(80)
    run(20, journal=tmp_path / "j")
    assert run(80, journal=tmp_path / "j") == whole
    with ThreadPoolExecutor(2) as pool:
        assert run(80, workers=pool) == whole
    with kl.journal.read(tmp_path / "j") as record:
        assert [(event.value, event.violation or 0.0) for event in record] == [row[1:] for row in whole[0]]
    opt = kl.Optimizer.from_journal(tmp_path / "j")
    assert (opt.best.fun, opt.best.violation) == whole[1:3]
    opt.save(tmp_path / "s")
    assert kl.Optimizer.load(tmp_path / "s", BITS).best.violation == opt.best.violation


def test_values_with_a_violation_can_be_told_added_known_and_vectorized():
    opt = kl.Optimizer(BITS, rng=0)
    batch = opt.ask(3)
    opt.tell(batch, [kl.Constrained(1.0, 2.0), 3.0, kl.Constrained(0.5, 1.0)])
    assert opt.best[1:] == (3.0, 0.0)
    opt.add(np.zeros(8, np.int8), kl.Constrained(-9.0, 4.0))
    assert opt.best.fun == 3.0
    known = [(np.ones(8, np.int8), kl.Constrained(5.0, 0.25))]
    result = kl.minimize(lambda x: kl.Constrained(0.0, 1.0), BITS, budget=5, rng=0, known=known)
    assert (result.fun, result.violation) == (5.0, 0.25)
    result = kl.maximize(
        lambda x: kl.Constrained(x @ WEIGHTS, x @ WEIGHTS - 12.0), BITS, budget=300, rng=0, vectorized=True
    )
    assert (result.fun, result.violation) == (12.0, 0.0)


@pytest.mark.parametrize("pair", [(1.0, 2.0), (1.0,), (1.0, 2.0, 3.0)])
@pytest.mark.parametrize("vectorized", [False, True])
def test_a_tuple_could_mean_anything(pair, vectorized):
    message = r"expected one number, got a tuple of \d; a value with a violation of constraints is kl.Constrained"
    with pytest.raises(TypeError, match="objective: " + message):
        kl.minimize(lambda x: pair, BITS, budget=9, rng=0, vectorized=vectorized)
    with pytest.raises(TypeError, match=r"known\[0\]: " + message):
        kl.minimize(score, BITS, budget=9, known=[([0] * 8, pair)])
    opt = kl.Optimizer(BITS, rng=0)
    with pytest.raises(TypeError, match="values: " + message):
        opt.tell(opt.ask(1), [pair])
    with pytest.raises(TypeError, match="value: " + message):
        opt.add([0] * 8, pair)


def test_noise_in_the_violation_is_noise():
    noise = np.random.default_rng(0)
    result = kl.minimize(lambda x: kl.Constrained(0.0, 5 + x.sum() + noise.normal()), BITS, budget=200, rng=0)
    assert result.deterministic is False
    assert not result.success
    quiet = kl.minimize(lambda x: kl.Constrained(x.sum() + 1e-9 * noise.normal(), light(x)), BITS, budget=200, rng=0)
    assert quiet.deterministic is True  # as without violations: differences of rounding


# Fixed variables.


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from("abc"), bit=st.integers(0, 1), n=st.integers(0, 3))
def test_fixed_variables_keep_their_values(seed, kind, bit, n):
    fixed = {"kind": kind, "bits[1]": bit, "n": n}
    opt = kl.Optimizer(MIXED, rng=seed, fixed=fixed, constraints=[thin, paired], deterministic=True)
    for _ in range(4):
        batch = opt.ask()
        for candidate in batch:
            x = candidate.x
            assert (x["kind"], x["bits"][1], x["n"]) == (kind, bit, n)
            assert holds([thin, paired], x)
        opt.tell(batch, [score(candidate.x) for candidate in batch])
    later = opt.ask(2, fixed={"rate": 0.125})
    assert [candidate.x["rate"] for candidate in later] == [0.125] * 2


def test_a_run_with_fixed_variables_is_resumed(tmp_path):
    def run(budget, **more):
        result = kl.minimize(score, TREE, budget=budget, rng=0, fixed={"kernel": "poly"}, **more)
        return [repr(each.x) for each in result.evaluations]

    whole = run(60)
    assert all("'kernel': 'poly'" in x for x in whole)
    run(20, journal=tmp_path / "j")
    assert run(60, journal=tmp_path / "j") == whole
    assert kl.Optimizer.from_journal(tmp_path / "j").nfev > 50
    with pytest.raises(kl.JournalError, match="fixed"):
        kl.minimize(score, TREE, budget=60, journal=tmp_path / "j")
    with (
        pytest.raises(ValueError, match=r"fixed: expected none in ask\(\) with a journal"),
        kl.Optimizer(BITS, journal=tmp_path / "k") as opt,
    ):
        opt.ask(1, fixed={"x[0]": 1})


@pytest.mark.parametrize(
    ("fixed", "error", "message"),
    [
        ({"other": 1}, ValueError, "fixed: expected names among bits, kind, n, rate, size, got 'other'"),
        ({"kind": "z"}, ValueError, r"fixed\['kind'\]: expected one of 'a', 'b', 'c', got 'z'"),
        ({"rate": 1.5}, ValueError, r"fixed\['rate'\]: expected a number from 0.0 to 1.0, got 1.5"),
        ({"bits": [1, 0]}, ValueError, r"fixed\['bits'\]: expected 3 values, got \[1, 0\]"),
        ({"bits": 1}, ValueError, r"fixed\['bits'\]: expected 3 values, got 1"),
        ({"bits[3]": 1}, ValueError, "fixed: expected names among"),
        ([("kind", "a")], TypeError, "fixed: expected a dict of values by the names of variables"),
        pytest.param(
            {"n": 9},
            ValueError,
            "expected feasible points with the values of fixed in the space, got none",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_bad_fixed_values(fixed, error, message):
    with pytest.raises(error, match=message):
        kl.minimize(
            lambda x: pytest.fail("evaluated"), MIXED, budget=10, rng=0, fixed=fixed, constraints=[thin, paired]
        )
    with pytest.raises(error, match=message):
        kl.Optimizer(MIXED, rng=0, constraints=[thin, paired]).ask(1, fixed=fixed)


def test_x0_must_have_the_fixed_values():
    with pytest.raises(ValueError, match="x0: expected a point with the values of fixed"):
        kl.minimize(score, BITS, budget=10, x0=[0] * 8, fixed={"x[2]": 1})


# The benchmark.


def test_the_recorded_gaps_are_those_of_the_page():
    root = Path(__file__).resolve().parent.parent
    rows = read_csv(root / "docs/peers/constraints/runs.csv")
    gap = medians(rows)
    names = sorted({name for name, _, _ in gap} - set(SEEN))
    mean = {
        (method, budget): sum(gap[name, method, budget] for name in names) / len(names)
        for method in METHODS
        for budget in BUDGETS
    }
    page = (root / "docs/constraints.md").read_text(encoding="utf-8")
    for method, (title, _) in METHODS.items():
        assert f"| {title} | " + " | ".join(f"{mean[method, budget]:.3f}" for budget in BUDGETS) + " |" in page
    for budget in BUDGETS:
        assert mean["constraints", budget] <= mean["ga-repair", budget]
        assert mean["pair", budget] <= mean["penalty", budget]


# The command line.


def test_constraints_and_fixed_variables_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "constrained_objective.py").write_text(
        "import knobless as kl\n"
        "space = kl.Space(a=kl.Float(0, 1), b=kl.Float(0, 1), kind=kl.Choice('u', 'v'))\n"
        "def f(x):\n    assert x['a'] + x['b'] <= 1 and x['kind'] == 'v'\n    return -x['a'] * x['b']\n"
        "def g(x):\n    return x['a'] + x['b'] - 1\n"
    )
    m = "constrained_objective"
    run = ["run", f"{m}:f", "--space", f"{m}:space", "--constraint", f"{m}:g", "--fix", "kind=v", "--seed", "0", "-q"]
    whole = CliRunner().invoke(app, [*run, "--budget", "60", "--json"])
    assert whole.exit_code == 0, whole.output
    assert CliRunner().invoke(app, [*run, "--budget", "20", "--journal", "j"]).exit_code == 0
    resumed = CliRunner().invoke(app, ["resume", "j", "--budget", "60", "--json", "-q"])
    assert resumed.exit_code == 0, resumed.output
    ignored = ('"journal": "j"', '"journal": null')
    assert resumed.stdout.replace(*ignored) == whole.stdout
    assert CliRunner().invoke(app, ["show", "j"]).exit_code == 0
    for bad, message in (("kind=z", "expected one of 'u', 'v'"), ("kind", "expected NAME=VALUE")):
        done = CliRunner().invoke(app, [*run[:-3], "--fix", bad, "--budget", "20"])
        assert done.exit_code == 2
        assert message in done.output


def test_programs_can_print_a_violation():
    from knobless.cli.command import last_named, last_number

    assert last_named("loss 3.0\nviolation=0.5\n", "violation") == 0.5
    assert last_named('{"value": 1, "violation": -2e1}', "violation") == -20.0
    assert last_named("violations 3", "violation") is None
    assert last_number("3 4") == 4.0


@pytest.mark.parametrize(
    ("space", "fixed", "points"),
    [
        (kl.Subset(5, 2), {"x": [1, 1, 0, 0, 0]}, 1),
        (kl.Binary(3), {"x[0]": 1}, 4),
        (kl.Subset(8, 3), {"x[0]": 1}, 21),
        (kl.Subset(6, (1, 3)), {"x[0]": 1, "x[5]": 0}, 11),
        (kl.Space(a=kl.Choice("p", "q", "r"), b=kl.Binary(2)), {"a": "q"}, 4),
    ],
)
@pytest.mark.parametrize("deterministic", [None, True])
def test_a_run_ends_when_all_points_with_the_fixed_values_are_evaluated(space, fixed, points, deterministic):
    seen = set()
    result = kl.minimize(
        lambda x: seen.add(repr(x)) or 1.0, space, budget=200, rng=0, fixed=fixed, deterministic=deterministic
    )
    assert result.status == "exhausted"
    assert len(seen) == points


def test_a_scalar_array_of_a_bool_is_a_bool_and_a_violation_is_not():
    for made in (bool, np.bool_, np.array):
        result = kl.minimize(
            lambda x: float(x.sum()),
            kl.Binary(6),
            budget=40,
            rng=0,
            constraints=lambda x, made=made: made(x.sum() >= 3),
        )
        assert result.fun == 3
    with pytest.raises(TypeError, match="violation: expected a number, at most 0 if feasible, got True"):
        kl.minimize(lambda x: kl.Constrained(x.sum(), bool(x[0])), kl.Binary(6), budget=40, x0=[1] * 6, rng=0)


@pytest.mark.parametrize("seed", range(4))
def test_a_recommended_point_was_never_infeasible_if_there_is_such_a_point(seed):
    noise, infeasible = np.random.default_rng(seed), {}

    def loss(x):
        value = float(x @ np.arange(10))
        violation = value - 6 + 0.1 * noise.normal()
        infeasible.setdefault(x.tobytes(), []).append(violation > 0)
        return kl.Constrained(value + 0.5 * noise.normal(), violation)

    result = kl.maximize(loss, kl.Subset(10, 3), budget=90, rng=seed, deterministic=False)
    assert any(not any(each) for each in infeasible.values())
    assert result.success
    assert not any(infeasible.get(result.x.tobytes(), ()))
