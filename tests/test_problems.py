"""The problems: each beside a definition in plain Python, its optimum by enumeration, and the files by samples."""

from __future__ import annotations

import functools
import gzip
import itertools
import math
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
from conftest import frozen
from knobless.problems import (
    LABS,
    NK,
    BinVal,
    IsingRing,
    IsingTorus,
    Jump,
    LeadingOnes,
    Linear,
    MaxCut,
    MaxSat,
    NoisyOneMax,
    OneMax,
    Problem,
    Qubo,
    Traps,
)
from knobless.problems.problem import BLOCK_ROWS

DATA = Path(__file__).parent / "data"

# Clauses of every kind: empty, short, long, with a literal twice, and with a literal and its negation.
MIXED = [(), (1,), (-2,), (3, -1), (1, 2, 3), (-4, -5, -6), (2, 2, -7), (4, -4, 1), (1, 2, -3, -4), (-1, -2, -3, -5, 6)]
WEIGHTS = [1, 2, 3.5, 4, 5, math.inf, 0, 1, 0.1, math.inf]
MATRIX = np.array([[2, -3, 0, 1], [0, 1, 5, 0], [-4, 0, -1, 2], [0, 0, 0, 0]])
EDGES = [(0, 1), (2, 1), (2, 3), (4, 0), (3, 4), (0, 2), (0, 2)]

# Small enough to enumerate
SMALL = {
    "OneMax(1)": OneMax(1),
    "OneMax": OneMax(9),
    "LeadingOnes": LeadingOnes(9),
    "Linear": Linear([0.5, 3.0, 1e-3, 2.0, 2.0, 7.1]),
    "Linear.random": Linear.random(9, 3),
    "BinVal": BinVal(9),
    "Jump(1)": Jump(7, 1),
    "Jump": Jump(8, 3),
    "Jump(n)": Jump(5, 5),
    "Traps": Traps(10),
    "Traps(3)": Traps(9, 3),
    "IsingRing": IsingRing(9),
    "IsingTorus": IsingTorus(3),
    "LABS(1)": LABS(1),
    "LABS": LABS(11),
    "NK": NK(9, 3, 1),
    "NK(0)": NK(6, 0, 2),
    "NK(n-1)": NK(6, 5, 3),
    "MaxSat": MaxSat.random(8, 40, 0),
    "MaxSat of all kinds": MaxSat(MIXED),
    "weighted MaxSat": MaxSat(MIXED, WEIGHTS),
    "planted MaxSat": MaxSat.planted(8, 60, 1),
    "Qubo": Qubo(MATRIX),
    "Qubo of reals": Qubo(MATRIX + 0.1),
    "MaxCut": MaxCut(EDGES),
    "weighted MaxCut": MaxCut(EDGES, [1, -2, 3.5, 1, 0.1, 2, 1], n=6),
}
# Beyond words, blocks of bits, and one digit of BinVal
LARGE = {
    "OneMax": OneMax(1003),
    "LeadingOnes": LeadingOnes(133),
    "Linear": Linear(np.linspace(0.1, 2.0, 131)),
    "Linear.random": Linear.random(1001, 4),
    "BinVal": BinVal(1023),
    "BinVal(64)": BinVal(64),
    "Jump": Jump(517, 20),
    "Traps": Traps(300, 4),
    "IsingRing": IsingRing(301),
    "IsingTorus": IsingTorus(17),
    "LABS": LABS(63),
    "LABS(64)": LABS(64),
    "LABS(65)": LABS(65),
    "LABS(200)": LABS(200),
    "NK": NK(80, 6, 1),
    "MaxSat of 64": MaxSat.random(64, 270, 5),
    "MaxSat of 65": MaxSat.random(65, 270, 5),
    "MaxSat of 128": MaxSat.random(128, 500, 5, k=4),
    "MaxSat of 129": MaxSat.random(129, 500, 5),
    "MaxSat(2)": MaxSat.random(130, 300, 5, k=2),
    "MaxSat of all kinds": MaxSat(MIXED * 3, n=140),
    "weighted MaxSat": MaxSat([*MIXED, *MaxSat.random(150, 300, 0).clauses], [*WEIGHTS, *range(300)]),
    "Qubo": Qubo(np.random.default_rng(0).integers(-50, 50, (60, 60))),
    "Qubo of reals": Qubo(np.random.default_rng(0).normal(size=(60, 60))),
    "MaxCut": MaxCut([(i, (i * i + j) % 97) for i in range(97) for j in range(1, 14) if (i * i + j) % 97 != i]),
}
EVERY = {**SMALL, **{f"large {name}": problem for name, problem in LARGE.items()}}

small = pytest.mark.parametrize("problem", SMALL.values(), ids=SMALL)
every = pytest.mark.parametrize("problem", EVERY.values(), ids=EVERY)


def all_points(n):
    return frozen(list(itertools.product((0, 1), repeat=n)), np.int8)


def some_points(problem, count=40, seed=0):
    """Random points of all densities, so that long runs of ones and zeros are among them."""
    rng = np.random.default_rng(seed)
    x = rng.random((count, problem.n)) < rng.choice([0.02, 0.5, 0.9, 0.99, 1.0], (count, 1))
    return frozen(x, np.int8)


def definition(problem, x):
    """The cost from the textbook, in plain Python, of a list of ints."""
    n, s = len(x), [2 * xi - 1 for xi in x]
    match problem:
        case OneMax():
            return n - sum(x)
        case LeadingOnes():
            return n - sum(math.prod(x[: i + 1]) for i in range(n))
        case Linear():
            return math.fsum(w for w, xi in zip(problem.weights, x, strict=True) if not xi)
        case BinVal():
            return 2**n - 1 - int("".join(map(str, x)), 2)
        case Jump(k=k):
            ones = sum(x)
            return n + k - (k + ones if ones <= n - k or ones == n else n - ones)
        case Traps(k=k):
            blocks = [sum(x[i : i + k]) for i in range(0, n, k)]
            return sum(k - (k if u == k else k - 1 - u) for u in blocks)
        case IsingRing():
            return (n - sum(s[i] * s[i - 1] for i in range(n))) / 2
        case IsingTorus(side=side):
            at = {(i, j): s[i * side + j] for i in range(side) for j in range(side)}
            bonds = [at[i, j] * (at[(i + 1) % side, j] + at[i, (j + 1) % side]) for i, j in at]
            return (2 * n - sum(bonds)) / 2
        case LABS():
            return sum(sum(s[i] * s[i + k] for i in range(n - k)) ** 2 for k in range(1, n))
        case NK(k=k):
            windows = ["".join(str(x[(i + j) % n]) for j in range(k + 1)) for i in range(n)]
            return math.fsum(problem.tables[i, int(window, 2)] for i, window in enumerate(windows))
        case MaxSat(clauses=clauses, weights=weights):
            weights = [1] * len(clauses) if weights is None else weights
            hard = 1 + sum(w for w in weights if w < math.inf)
            broken = [not any(x[abs(v) - 1] == (v > 0) for v in clause) for clause in clauses]
            return math.fsum(min(w, hard) for w, is_broken in zip(weights, broken, strict=True) if is_broken)
        case Qubo(matrix=Q):
            return math.fsum(Q[i, j] * x[i] * x[j] for i in range(n) for j in range(n))
        case MaxCut(edges=edges, weights=weights):
            return -math.fsum(w for (i, j), w in zip(edges, weights, strict=True) if x[i] != x[j])
    raise AssertionError(problem)


# What each cost is


@every
def test_the_cost_is_the_definition(problem):
    x = all_points(problem.n) if problem.n <= 11 else some_points(problem)
    expected = [float(definition(problem, row)) for row in x.tolist()]
    np.testing.assert_allclose(problem(x), expected, rtol=1e-14, atol=1e-13)


@every
def test_rows_cost_what_they_cost_alone(problem):
    x = some_points(problem)
    batch = problem(x)
    assert batch.dtype == np.float64
    assert batch.shape == (len(x),)
    one = problem(x[0])
    assert type(one) is float
    assert batch.tolist() == [problem(row) for row in x]


@every
def test_a_row_costs_the_same_wherever_it_stands(problem):
    x = some_points(problem, 7)
    assert problem(np.tile(x, (13, 1))).tolist() == np.tile(problem(x), 13).tolist()
    assert problem(np.asfortranarray(x)).tolist() == problem(x).tolist()


@small
def test_the_optimum_is_the_least_cost_of_all_points(problem):
    least = problem(all_points(problem.n)).min()
    if problem.optimum is None:
        assert isinstance(problem, (MaxSat, Qubo, MaxCut))
    else:
        assert problem.optimum == least


@pytest.mark.parametrize("n", range(1, 17))
def test_the_least_energies_of_labs(n):
    # The first spin and the direction do not matter: half the points do.
    x = all_points(n)[: 2 ** max(n - 1, 1)]
    assert LABS(n)(x).min() == LABS(n).optimum


def test_labs_of_unknown_optimum():
    assert LABS(66).optimum == 257
    assert LABS(67).optimum is None


@pytest.mark.parametrize("seed", range(8))
def test_the_optimum_of_nk_is_exact(seed):
    for k in (0, 1, 2, 4, 9):
        problem = NK(10, k, seed)
        assert problem.optimum == problem(all_points(10)).min()
    assert NK(12, 11, seed).optimum is None


@every
def test_an_empty_batch_and_a_large_one(problem):
    assert problem(np.empty((0, problem.n), np.int8)).shape == (0,)
    if problem.n <= 11:
        rows = 3 * BLOCK_ROWS // problem.n // 50
        x = np.resize(all_points(problem.n), (rows, problem.n))
        assert problem(x)[-5:].tolist() == problem(x[-5:]).tolist()


@every
def test_what_holds_bits_is_taken(problem):
    x = some_points(problem, 5)
    costs = problem(x).tolist()
    for same in (x.astype(bool), x.astype(np.int64), x.astype(float), x.tolist(), np.repeat(x, 2, axis=1)[:, ::2]):
        assert problem(same).tolist() == costs


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([1, 0], r"x: expected an array of 3 bits, or of rows of 3, got the shape \(2,\)"),
        ([[[1, 0, 1]]], r"x: expected an array of 3 bits.*\(1, 1, 3\)"),
        (1, r"x: expected an array of 3 bits.*\(\)"),
        ([0, 1, 2], r"x: expected zeros and ones, got \[0 1 2\]"),
        ([0, 0.5, 1], "x: expected zeros and ones"),
    ],
)
def test_what_is_no_point(x, message):
    with pytest.raises(ValueError, match=message):
        OneMax(3)(x)


@every
def test_problems_are_values(problem):
    assert isinstance(problem, Problem)
    assert problem.space == kl.Binary(problem.n)
    assert len(repr(problem)) < 120
    assert type(problem).__name__ in repr(problem)
    with pytest.raises(FrozenInstanceError):
        problem.n = 3
    again = pickle.loads(pickle.dumps(problem))
    x = some_points(problem, 4)
    assert again(x).tolist() == problem(x).tolist()


def test_equality_and_hash_by_value():
    assert OneMax(5) == OneMax(5) != OneMax(6)
    assert OneMax(5) != LeadingOnes(5)
    assert Jump(5, 2) == Jump(5, 2) != Jump(5, 3)
    assert IsingTorus(4) == IsingTorus(4)
    assert MaxSat.random(9, 20, 0) == MaxSat.random(9, 20, 0) != MaxSat.random(9, 20, 1)
    assert len({Traps(10), Traps(10), MaxSat([[1]]), MaxSat([(1,)])}) == 2
    assert replace(MaxSat([[1], [-1]]), optimum=1.0).optimum == 1.0
    assert replace(Qubo(MATRIX), optimum=-4.0).optimum == -4.0
    assert replace(MaxCut(EDGES), optimum=-4.0).optimum == -4.0


def test_problems_keep_what_they_were_given():
    for given_, make in [(np.ones(3), Linear), (np.eye(3), Qubo), (np.array(EDGES), MaxCut)]:
        problem = make(given_)
        x = some_points(problem, 3)
        before = problem(x).tolist()
        given_ += 1
        assert problem(x).tolist() == before
    for kept in (Linear([1.0]).weights, NK(4, 1, 0).tables, Qubo([[1]]).matrix, MaxCut(EDGES).edges):
        assert not kept.flags.writeable


def test_binval_keeps_the_order_of_numbers():
    """To 53 digits from the first zero, which all but the closest of points differ in."""
    problem = BinVal(1023)
    x = some_points(problem, 200)
    order = np.lexsort(x.T[::-1])[::-1]  # the largest number first
    assert (np.diff(problem(x)[order]) >= 0.0).all()
    assert problem(np.zeros(1023, np.int8)) < math.inf
    nearly = np.ones((54, 1023), np.int8)
    nearly[np.arange(54), np.arange(1023 - 54, 1023)] = 0
    assert problem(nearly).tolist() == [2.0**i for i in range(53, -1, -1)]


def test_noise():
    problem, same = NoisyOneMax(20, 2.0, 7), NoisyOneMax(20, 2.0, 7)
    x = some_points(problem, 50)
    assert problem.optimum is None
    assert problem.mean == OneMax(20)
    noisy = problem(x)
    assert noisy.tolist() == [same(row) for row in x]  # row by row, the same noise
    assert problem(x).tolist() != noisy.tolist()  # a call moves the generator
    many = problem(np.resize(x, (40_000, 20))) - problem.mean(np.resize(x, (40_000, 20)))
    assert abs(many.mean()) < 0.05
    assert abs(many.std() - 2.0) < 0.05
    assert NoisyOneMax(20, 0.0, 1)(x).tolist() == OneMax(20)(x).tolist()
    assert not hasattr(problem, "flat")
    assert repr(problem) == "NoisyOneMax(n=20, sigma=2)"


def test_noise_is_no_ones_draws_but_its_own():
    rng = np.random.default_rng(0)
    problem = NoisyOneMax(3, 1.0, rng)
    problem(np.zeros((10, 3), np.int8))
    assert rng.random() == np.random.default_rng(0).random()


def test_minimize_takes_a_problem():
    problem = OneMax(20)
    alone = kl.minimize(problem, problem.space, budget=5000, target=problem.optimum, rng=0)
    rows = kl.minimize(problem, problem.space, budget=5000, target=problem.optimum, rng=0, vectorized=True)
    assert alone.fun == rows.fun == 0.0
    assert alone.nfev == rows.nfev < 5000


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: OneMax(0), ValueError, "OneMax: n: expected an integer of at least 1, got 0"),
        (lambda: OneMax(2.5), TypeError, "OneMax: n: expected an integer, got 2.5"),
        (lambda: LeadingOnes(-1), ValueError, "LeadingOnes: n: expected an integer of at least 1, got -1"),
        (lambda: Linear([1.0, 0.0]), ValueError, "Linear: weights: expected finite numbers above 0"),
        (lambda: Linear([[1.0]]), ValueError, r"Linear: weights: expected one weight per bit.*\(1, 1\)"),
        (lambda: BinVal(1024), ValueError, "BinVal: n: expected at most 1023, got 1024"),
        (lambda: Jump(3, 4), ValueError, "Jump: k: expected at most n = 3, got 4"),
        (lambda: Traps(12), ValueError, "Traps: n: expected a multiple of k = 5, got 12"),
        (lambda: NoisyOneMax(3, -1.0, 0), ValueError, "NoisyOneMax: sigma: expected a number of at least 0, got -1.0"),
        (lambda: IsingRing(2), ValueError, "IsingRing: n: expected an integer of at least 3, got 2"),
        (lambda: NK(5, 5, 0), ValueError, "NK: k: expected from 0 to n - 1 = 4, got 5"),
        (lambda: NK(100, 60, 0), ValueError, r"NK: k: expected tables of at most 2\*\*26 numbers"),
        (lambda: MaxSat([[1, 0]]), ValueError, "MaxSat: clauses: expected literals other than 0, got 0"),
        (lambda: MaxSat([[1, 1.5]]), TypeError, "MaxSat: clauses: literal: expected an integer, got 1.5"),
        (lambda: MaxSat([[3]], n=2), ValueError, "MaxSat: n: expected at least 3, a variable of the clauses, got 2"),
        (lambda: MaxSat([[]]), ValueError, "MaxSat: n: expected an integer of at least 1, got 0"),
        (lambda: MaxSat([[1]], [1, 2]), ValueError, "MaxSat: weights: expected one for each of 1 clauses, got 2"),
        (lambda: MaxSat([[1]], [-1]), ValueError, "MaxSat: weights: expected numbers of at least 0, got -1"),
        (lambda: MaxSat([[1]], [math.nan]), ValueError, "MaxSat: weights: weight: expected a finite number, got nan"),
        (lambda: MaxSat.random(2, 5, 0), ValueError, r"MaxSat: k: expected at most n = 2 distinct variables.*got 3"),
        (lambda: Qubo([[1, 2]]), ValueError, r"Qubo: matrix: expected a square matrix.*\(1, 2\)"),
        (lambda: Qubo([[math.nan]]), ValueError, "Qubo: matrix: expected finite numbers"),
        (lambda: MaxCut([(0, 0)]), ValueError, "MaxCut: edges: expected two different vertices, got 0 with itself"),
        (lambda: MaxCut([(0, -1)]), ValueError, "MaxCut: edges: expected vertices counted from 0, got -1"),
        (lambda: MaxCut([(0, 5)], n=5), ValueError, "MaxCut: n: expected at least 6, as many vertices"),
        (lambda: MaxCut([(0, 1.5)]), ValueError, "MaxCut: edges: expected pairs of integers"),
        (lambda: MaxCut([(0, 1)], [1, 2]), ValueError, "MaxCut: weights: expected 1 finite numbers"),
    ],
)
def test_arguments_that_make_no_problem(make, error, message):
    with pytest.raises(error, match=message):
        make()


# Instances by seed


def test_random_linear_functions_by_seed():
    weights = Linear.random(5000, 3).weights
    assert weights.tolist() == Linear.random(5000, np.random.default_rng(3)).weights.tolist()
    assert weights.tolist() != Linear.random(5000, 4).weights.tolist()
    assert 0.0 < weights.min() < 0.01
    assert 0.99 < weights.max() <= 1.0
    # Exact in any order
    assert math.fsum(weights) == weights.sum() == weights[::-1].cumsum()[-1]


@given(st.integers(1, 30), st.integers(0, 200), st.integers(0, 2**32), st.data())
def test_random_clauses_have_distinct_variables(n, m, seed, data):
    k = data.draw(st.integers(1, min(n, 6)))
    for make in (MaxSat.random, MaxSat.planted):
        problem = make(n, m, seed, k)
        assert problem == make(n, m, np.random.default_rng(seed), k)
        assert problem.n == n
        assert len(problem.clauses) == m
        assert all(len({abs(literal) for literal in clause}) == k for clause in problem.clauses)


@pytest.mark.slow
def test_random_clauses_are_uniform():
    problem = MaxSat.random(5, 80_000, 0)
    counts = {}
    for clause in problem.clauses:
        counts[clause] = counts.get(clause, 0) + 1
    assert len(counts) == 5 * 4 * 3 * 8
    assert max(abs(count - 80_000 / 480) for count in counts.values()) < 5.0 * math.sqrt(80_000 / 480)


@given(st.integers(3, 40), st.integers(0, 300), st.integers(0, 2**32))
def test_planted_instances_are_satisfied_by_the_hidden_point(n, m, seed):
    problem = MaxSat.planted(n, m, seed)
    assert problem.optimum == 0.0
    assert problem(np.random.default_rng(seed).integers(0, 2, n)) == 0.0


@pytest.mark.slow
def test_planted_clauses_are_uniform_among_those_satisfied():
    problem = MaxSat.planted(4, 56_000, 0)
    counts = {}
    for clause in problem.clauses:
        counts[clause] = counts.get(clause, 0) + 1
    assert len(counts) == 4 * 3 * 2 * 7
    assert max(abs(count - 56_000 / 168) for count in counts.values()) < 5.0 * math.sqrt(56_000 / 168)


def test_nk_landscapes_by_seed():
    assert NK(20, 4, 0).tables.tolist() == NK(20, 4, np.random.default_rng(0)).tables.tolist()
    assert NK(20, 4, 0).tables.tolist() != NK(20, 4, 1).tables.tolist()


# Files


def test_a_satlib_file():
    problem = MaxSat.read(DATA / "satlib.cnf")
    assert problem == MaxSat([(1, -2, 3), (-1, -4, 5), (2, 3, -5), (-3, 4, 1), (-2, -3, -5), (4, 5, -1)], n=5)
    assert problem([0, 0, 0, 0, 0]) == 0.0
    assert problem([1, 1, 1, 1, 0]) == 1.0  # -1 -4 5
    assert problem([1, 1, 1, 0, 0]) == 1.0  # 4 5 -1
    assert MaxSat.read(str(DATA / "satlib.cnf"), optimum=0).optimum == 0.0


def test_clauses_over_several_lines():
    problem = MaxSat.read(DATA / "lines.cnf")
    assert problem.clauses == ((1, 2, 3), (-1, -2, -3), (4,), (-5, 6), ())
    assert problem.n == 6
    assert problem([1, 0, 0, 1, 0, 0]) == 1.0  # the empty clause


def test_weighted_files():
    top = MaxSat.read(DATA / "top.wcnf")
    assert top.clauses == ((1, -2, 4), (-1, -2, 3), (-2, -4), (-3, 2), (3, 1), (-1,))
    assert top.weights == (math.inf, math.inf, 8.0, 4.0, 3.0, 0.5)
    assert top.n == 4
    assert top([0, 1, 0, 0]) == 16.5 + 3.0  # 1 -2 4 is hard: one more than 8 + 4 + 3 + 0.5, and 3 1 is broken
    soft = MaxSat.read(DATA / "soft.wcnf")
    assert soft.weights == (2.0, 3.0, 4.0)
    assert soft([1, 1, 1]) == 7.0
    hard = MaxSat.read(DATA / "hard.wcnf")
    assert hard.clauses == ((1, 2, 3, 4), (-3, -5, 6, 7), (-1, -2), (1, 6, -7), (-5,))
    assert hard.weights == (math.inf, 1.0, 6.0, 4.0, math.inf)
    assert hard.n == 7
    assert hard([0, 0, 0, 0, 1, 0, 1]) == 12.0 + 4.0 + 12.0


@pytest.mark.parametrize("problem", [MaxSat.read(DATA / "top.wcnf"), MaxSat.read(DATA / "hard.wcnf")])
def test_hard_clauses_come_first(problem):
    """Any point that satisfies all hard clauses is better than any that does not."""
    hard = replace(problem, weights=[float(w == math.inf) for w in problem.weights])
    x = all_points(problem.n)
    broken, costs = hard(x), problem(x)
    for count in range(int(broken.max())):
        assert costs[broken <= count].max() < costs[broken > count].min()


def test_qubo_files():
    """The same function in both dialects: x1 = 1 and x2 = 1 together add 6."""
    biqmac, qbsolv = Qubo.read(DATA / "biqmac.sparse"), Qubo.read(DATA / "qbsolv.qubo")
    assert biqmac.matrix.tolist() == [[-10, 3, 0, 0], [3, 0, 0, -4.5], [0, 0, 2, 7], [0, -4.5, 7, 0]]
    assert qbsolv.matrix.tolist() == [[-10, 6, 0, 0], [0, 0, 0, -9], [0, 0, 2, 14], [0, 0, 0, 0]]
    x = all_points(4)
    assert biqmac(x).tolist() == qbsolv(x).tolist()
    assert biqmac([1, 1, 0, 1]) == -10 + 6 - 9


def test_max_cut_files():
    problem = MaxCut.read(DATA / "gset.txt", optimum=-5.5)
    assert problem.n == 5
    assert problem.optimum == -5.5
    assert problem.edges.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3], [2, 4], [3, 4]]
    assert problem.weights.tolist() == [1.0, -1.0, 1.0, 1.0, 2.5, 1.0]
    assert problem([0, 1, 0, 0, 1]) == -(1.0 + 1.0 + 1.0 + 2.5 + 1.0)


@pytest.mark.parametrize(
    ("kind", "name"), [(MaxSat, "satlib.cnf"), (MaxSat, "hard.wcnf"), (Qubo, "qbsolv.qubo"), (MaxCut, "gset.txt")]
)
def test_packed_files_and_other_line_ends(kind, name, tmp_path):
    plain = kind.read(DATA / name)
    packed, dos = tmp_path / f"{name}.gz", tmp_path / name
    packed.write_bytes(gzip.compress((DATA / name).read_bytes()))
    dos.write_bytes((DATA / name).read_bytes().replace(b"\n", b"\r\n"))
    x = some_points(plain)
    assert kind.read(packed)(x).tolist() == kind.read(dos)(x).tolist() == plain(x).tolist()


@st.composite
def formulas(draw):
    n = draw(st.integers(1, 9))
    literal = st.integers(1, n).flatmap(lambda v: st.sampled_from([v, -v]))
    clauses = draw(st.lists(st.lists(literal, max_size=5), max_size=12))
    weights = draw(st.none() | st.lists(st.integers(0, 9), min_size=len(clauses), max_size=len(clauses)))
    return MaxSat(clauses, weights, n)


@given(formulas(), st.randoms(use_true_random=False))
def test_what_is_written_is_read(tmp_path_factory, problem, random):
    """Words may be parted by any white space, and comments stand between lines."""
    words = []
    for c, clause in enumerate(problem.clauses):
        words += [] if problem.weights is None else [f"{problem.weights[c]:g}"]
        words += [*map(str, clause), "0"]
    kind = "cnf" if problem.weights is None else "wcnf"
    body = "".join(word + random.choice([" ", "\n", "\t ", "\n\n", "\nc 1 0\n"]) for word in words)
    path = tmp_path_factory.mktemp("dimacs") / f"written.{kind}"
    path.write_text(f"c\np {kind} {problem.n} {len(problem.clauses)}\n{body}")
    read = MaxSat.read(path)
    assert read == problem
    x = some_points(problem, 10)
    assert read(x).tolist() == [float(definition(problem, row)) for row in x.tolist()]


MALFORMED = [
    # kind, file name, text, line, reason
    (MaxSat, "a.cnf", "", 0, "expected 'p cnf VARIABLES CLAUSES', got the end of the file"),
    (MaxSat, "a.cnf", "c only\n", 1, "expected 'p cnf VARIABLES CLAUSES', got the end of the file"),
    (MaxSat, "a.cnf", "c\n1 2 0\n", 2, "expected 'p cnf VARIABLES CLAUSES' before the first clause, got '1'"),
    (MaxSat, "a.cnf", "p cnf 3\n", 1, "expected 'p cnf VARIABLES CLAUSES' or .*, got 'p cnf 3'"),
    (MaxSat, "a.cnf", "p sat 3 1\n", 1, "expected 'p cnf VARIABLES CLAUSES' or .*, got 'p sat 3 1'"),
    (MaxSat, "a.cnf", "p cnf 3 1 7\n", 1, "expected 'p cnf VARIABLES CLAUSES' or .*, got 'p cnf 3 1 7'"),
    (MaxSat, "a.cnf", "p cnf x 1\n", 1, "number of variables: expected an integer from 1 to 100000, got 'x'"),
    (MaxSat, "a.cnf", "p cnf 0 1\n", 1, "number of variables: expected an integer from 1 to 100000, got '0'"),
    (MaxSat, "a.cnf", "p cnf 99999999999 1\n", 1, "number of variables: expected an integer from 1 to 100000"),
    (MaxSat, "a.cnf", f"p cnf {'9' * 5000} 1\n", 1, "number of variables: expected an integer from 1 to 100000"),
    (MaxSat, "a.cnf", "p cnf 3 -1\n", 1, "number of clauses: expected an integer from 0 to 5000000, got '-1'"),
    (MaxSat, "a.cnf", "p cnf 3 99999999999\n", 1, "number of clauses: expected an integer from 0 to 5000000"),
    (MaxSat, "a.cnf", "p cnf 3 1\np cnf 3 1\n1 0\n", 2, "expected one p line, before the first clause, got another"),
    (MaxSat, "a.cnf", "p cnf 3 1\n1 4 0\n", 2, "literal: expected an integer from -3 to 3, got '4'"),
    (MaxSat, "a.cnf", "p cnf 3 2\n1 0\n\nc\n2 -4 0\n", 5, "literal: expected an integer from -3 to 3, got '-4'"),
    (MaxSat, "a.cnf", "p cnf 3 1\n1 two 0\n", 2, "literal: expected an integer from -3 to 3, got 'two'"),
    (MaxSat, "a.cnf", "p cnf 13 1\n1_3 0\n", 2, "literal: expected an integer from -13 to 13, got '1_3'"),
    (MaxSat, "a.cnf", "p cnf 3 1\n1.0 0\n", 2, "literal: expected an integer from -3 to 3, got '1.0'"),
    (MaxSat, "a.cnf", "p cnf 3 1\n1 2\n3\n", 3, "expected a 0 at the end of the last clause"),
    (MaxSat, "a.cnf", "p cnf 3 1\n1 2\n%\n0\n", 4, "expected a 0 at the end of the last clause"),
    (MaxSat, "a.cnf", "p cnf 3 3\n1 0\n2 0\n", 3, "expected 3 clauses, got 2"),
    (MaxSat, "a.cnf", "p cnf 3 1\n1 0\n2 0\n3 0\n", 3, "expected 1 clauses, got one more"),
    (MaxSat, "a.cnf", "p cnf 3 1\n1 0\n%\n0\n2 0\n", 5, "expected nothing but a 0 after the line '%', got '2 0'"),
    (MaxSat, "a.wcnf", "p wcnf 3 1 x\n1 1 0\n", 1, "top: expected a finite number, got 'x'"),
    (MaxSat, "a.wcnf", "p wcnf 3 1 5\nh 1 0\n", 2, "weight: expected a finite number, got 'h'"),
    (MaxSat, "a.wcnf", "p wcnf 3 1 5\n-1 1 0\n", 2, "weight: expected a number of at least 0, got '-1'"),
    (MaxSat, "a.wcnf", "p wcnf 3 1 5\nnan 1 0\n", 2, "weight: expected a finite number, got 'nan'"),
    (MaxSat, "a.wcnf", "p wcnf 3 1 5\ninf 1 0\n", 2, "weight: expected a finite number, got 'inf'"),
    (MaxSat, "a.wcnf", "p wcnf 3 2 5\n1 1 0\n4\n", 3, "expected a 0 at the end of the last clause"),
    (MaxSat, "a.wcnf", "h 1 99999999 0\n", 1, "literal: expected an integer from -100000 to 100000"),
    (MaxSat, "a.wcnf", "h 0\n1 0\n", 2, "expected a clause with a literal, got none"),
    (MaxSat, "a.wcnf", "h 1 0\np wcnf 3 1 5\n", 2, "expected one p line, before the first clause, got another"),
    (Qubo, "a.sparse", "", 0, "expected 'N M', got the end of the file"),
    (Qubo, "a.sparse", "3\n", 1, "expected the sizes 'N M', got '3'"),
    (Qubo, "a.sparse", "99999 1\n1 1 1\n", 1, "n: expected an integer from 1 to 5000, got '99999'"),
    (Qubo, "a.sparse", "2 99999999\n", 1, "m: expected an integer from 0 to 25000000, got '99999999'"),
    (Qubo, "a.sparse", "2 1\n1 2\n", 2, "expected an entry 'I J VALUE', got '1 2'"),
    (Qubo, "a.sparse", "2 1\n0 2 5\n", 2, "index: expected an integer from 1 to 2, got '0'"),
    (Qubo, "a.sparse", "2 1\n1 2 x\n", 2, "value: expected a finite number, got 'x'"),
    (Qubo, "a.sparse", "2 1\n1 2 1e999\n", 2, "value: expected a finite number, got '1e999'"),
    (Qubo, "a.sparse", "2 2\n1 2 3\n2 1 3\n", 3, "entry 2 1 is given twice"),
    (Qubo, "a.sparse", "2 2\n1 2 3\n", 2, "expected 2 entries, got 1"),
    (Qubo, "a.sparse", "2 1\n1 2 3\n1 1 3\n", 3, "expected 1 entries, got one more"),
    (Qubo, "a.qubo", "p qubo 0 2 1\n", 1, "expected 'p qubo 0 N DIAGONAL OFFDIAGONAL', got 'p qubo 0 2 1'"),
    (Qubo, "a.qubo", "c\np qubo 0 2 0 1\n1 2 3\n", 3, "index: expected an integer from 0 to 1, got '2'"),
    (MaxCut, "a.txt", "\n", 1, "expected 'N M', got the end of the file"),
    (MaxCut, "a.txt", "3 1 1\n", 1, "expected the sizes 'N M', got '3 1 1'"),
    (MaxCut, "a.txt", "99999999 1\n", 1, "n: expected an integer from 1 to 100000, got '99999999'"),
    (MaxCut, "a.txt", "3 1\n1 2 3 4\n", 2, "expected an edge 'I J WEIGHT', got '1 2 3 4'"),
    (MaxCut, "a.txt", "3 1\n1 4 1\n", 2, "vertex: expected an integer from 1 to 3, got '4'"),
    (MaxCut, "a.txt", "3 1\n2 2 1\n", 2, "expected two different vertices, got 2 with itself"),
    (MaxCut, "a.txt", "3 1\n1 2 one\n", 2, "weight: expected a finite number, got 'one'"),
    (MaxCut, "a.txt", "3 2\n1 2 1\n", 2, "expected 2 edges, got 1"),
    (MaxCut, "a.txt", "3 1\n1 2 1\n2 3 1\n", 3, "expected 1 edges, got one more"),
]


@pytest.mark.parametrize(("kind", "name", "text", "line", "reason"), MALFORMED)
def test_a_malformed_file_gives_its_name_the_line_and_the_reason(kind, name, text, line, reason, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=reason) as caught:
        kind.read(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert len(str(caught.value)) < len(str(path)) + 200


def test_broken_and_missing_files(tmp_path):
    path = tmp_path / "a.cnf.gz"
    path.write_bytes(gzip.compress(b"p cnf 2 1\n1 2 0\n" * 100)[:-12])
    with pytest.raises(ValueError, match=r"a\.cnf\.gz, line \d+: "):
        MaxSat.read(path)
    path.write_bytes(b"p cnf 2 1\n1 2 0\n")
    with pytest.raises(ValueError, match=r"a\.cnf\.gz, line 0: expected a complete gzip file"):
        MaxSat.read(path)
    with pytest.raises(FileNotFoundError):
        MaxSat.read(tmp_path / "none.cnf")
    latin = tmp_path / "latin.cnf"
    latin.write_bytes(b"c M\xfcller\np cnf 2 1\n1 2 0\n")
    assert MaxSat.read(latin).n == 2
    for pack in (bytes, gzip.compress):  # a byte-order mark
        latin.write_bytes(pack(b"\xef\xbb\xbfp cnf 2 1\n1 2 0\n"))
        assert MaxSat.read(latin).n == 2


# The compiled kernels


@functools.cache
def compiled(name):
    numba = pytest.importorskip("numba", reason="the kernels are compiled by numba, of the extra `fast`")
    from knobless.fast.kernels import KERNELS

    return numba.njit(KERNELS[name])


@pytest.mark.slow
@every
def test_the_kernel_gives_the_cost(problem):
    name, ints, reals = problem.flat()
    assert ints.dtype == np.int64
    assert reals.dtype == np.float64
    assert ints.flags.c_contiguous
    assert reals.flags.c_contiguous
    kernel = compiled(name)
    x = all_points(problem.n) if problem.n <= 11 else some_points(problem, 100)
    costs = [kernel(row, ints, reals) for row in x]
    assert all(type(cost) is float for cost in costs)
    # Exactly, so that a run does not depend on which of its iterations are compiled; one by one and in batches.
    assert costs == problem(x).tolist() == [problem(row) for row in x]


@pytest.mark.slow
@given(formulas())
def test_the_kernels_of_any_formula(problem):
    x = all_points(problem.n)[:: max(1, 2**problem.n // 32)]
    for same in (problem, replace(problem, n=130)):  # in words, and in groups
        name, ints, reals = same.flat()
        padded = np.zeros((len(x), same.n), np.int8)
        padded[:, : problem.n] = x
        assert [compiled(name)(row, ints, reals) for row in padded] == problem(x).tolist()


def test_every_kernel_belongs_to_a_problem():
    pytest.importorskip("numba", reason="the kernels are compiled by numba, of the extra `fast`")
    from knobless.fast.kernels import KERNELS

    assert {problem.flat()[0] for problem in EVERY.values()} == set(KERNELS)


def test_problems_need_nothing_but_numpy():
    code = "import sys, knobless.problems; sys.exit(any(m in sys.modules for m in ('numba', 'knobless.fast.kernels')))"
    subprocess.run([sys.executable, "-c", code], check=True)
