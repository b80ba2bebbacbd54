"""The benchmarks beside published results: functions by their formulas, and baselines by their laws."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import parameterless_edas as edas
from parameterless import expected
from parameterless_problems import COUNT, FIRST, deceptive_leading_blocks, independent_set
from published_problems import COMBO, combo_cases, combo_draw, four_peaks, hiff, path_length, trap, weighted_max_sat


def points(n):
    return [np.array(x, dtype=np.int8) for x in itertools.product((0, 1), repeat=n)]


def test_contamination_is_that_of_the_authors():
    rng = np.random.default_rng(0)
    instance = COMBO["contamination"].make(7, np.random.default_rng(1), Path())
    mask = np.random.default_rng(1).integers(0, 2, 25, dtype=np.int8)
    case = combo_cases()[1]
    z = np.random.RandomState(case).beta(1.0, 30.0, 100)
    growth = np.random.RandomState(case).beta(1.0, 17.0 / 3.0, (25, 100))
    control = np.random.RandomState(case).beta(1.0, 3.0 / 7.0, (25, 100))
    assert np.array_equal(combo_draw(case)(-1, 30.0), z)
    x, cost = rng.integers(0, 2, 25, dtype=np.int8), 0.0
    for i in range(25):
        z = growth[i] * (1 - x[i]) * (1.0 - z) + (1.0 - control[i] * x[i]) * z
        cost += x[i] - (np.mean(z < 0.1) - 0.95)
    assert instance.fun(x ^ mask) == pytest.approx(cost + 0.01 * x.sum())


def test_weights_of_max_sat_are_standardized(tmp_path):
    (tmp_path / "maxsat_combo").mkdir()
    (tmp_path / "maxsat_combo" / "a.wcnf").write_text("p wcnf 2 3 9\n1 1 0\n2 -1 2 0\n6 -2 0\n")
    instance = weighted_max_sat("a.wcnf", 0, np.random.default_rng(0), tmp_path)
    light, middle, heavy = (np.array([1.0, 2.0, 6.0]) - 3.0) / np.std([1.0, 2.0, 6.0])
    costs = sorted(instance.fun(x) for x in points(2))
    by_hand = sorted([-(middle + heavy), -middle, -(light + heavy), -(light + middle)])
    assert costs == pytest.approx(by_hand)


def test_maxima_of_the_compiled_functions():
    costs = {tuple(x): hiff(x, [32], []) for x in points(8)}
    assert [x for x, cost in costs.items() if cost == 0.0] == [(0,) * 8, (1,) * 8]
    assert costs[0, 0, 0, 0, 1, 1, 1, 1] == 8.0
    ones = np.ones(20, dtype=np.int8)
    assert trap(ones, [], []) == 0.0
    assert trap(0 * ones, [], []) == 2.0  # 9 + 9 of 20
    peaks = [tuple(x) for x in points(8) if four_peaks(x, [2], []) == 0.0]
    assert peaks == [(1, 1, 1, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 0, 0, 0)]
    assert [path_length(np.array(x)) for x in ([0, 0], [1, 0], [1, 1], [0, 1])] == [0, 1, 2, -1]


def test_functions_of_the_parameterless_comparison():
    for x in points(6):
        blocks = [int(a + b) for a, b in x.reshape(3, 2)]
        leading = [*blocks, 0].index(next((b for b in blocks if b != 2), 0)) if blocks != [2, 2, 2] else 3
        value = 6 if leading == 3 else 2 * leading + (blocks[leading] == 0)
        assert deceptive_leading_blocks(x, [], []) == 6 - value

    def is_edge(i, j, n):  # as ioh defines it, from 1
        half = n // 2
        return (i != half and j == i + 1) or (i < half and j == i + half + 1) or (2 <= i <= half and j == i + half - 1)

    for x in points(8):
        ones = (np.flatnonzero(x) + 1).tolist()
        edges = sum(is_edge(i, j, 8) for i, j in itertools.combinations(ones, 2))
        assert independent_set(x, [4], []) == 4 - (len(ones) - 8 * edges)


@pytest.fixture
def interpreted(monkeypatch):
    """Return the baselines without compilation, with NumPy's generator."""
    for name in ("ended", "compare", "generation", "thresholds", "ones_until"):
        monkeypatch.setattr(edas, name, getattr(edas, name).py_func)

    def sample(p, x, state):
        x[:] = state.random(len(p)) < p

    monkeypatch.setattr(edas, "sample", sample)

    def run(algorithm, n, budget):
        ints = np.zeros(3, dtype=np.int64)
        return algorithm.py_func(zeros, ints, None, n, budget, np.random.default_rng(0)), ints

    return run


def zeros(x, ints, reals):
    """OneMax whose optimum is not recorded, so that runs use the budget."""
    ints[COUNT] += 1
    return float(len(x) - x.sum())


def test_smart_restarts_double_the_population_after_8_k_squared_iterations(interpreted):
    budget = 2 * 8 * (2**2 + 4**2 + 8**2)
    assert interpreted(edas.smart_restart_cga, 4, budget - 2)[0] == 8
    assert interpreted(edas.smart_restart_cga, 4, budget)[0] == 16


def test_parallel_runs_have_equal_budgets_after_each_round(interpreted):
    made, ints = interpreted(edas.parallel_run_cga, 4, 2 * 5 * (2**5 - 1))
    assert made.tolist() == [2**5 - 1] * 5 + [0] * 57
    assert ints[FIRST] == 0


def test_frequencies_of_sig_cga_change_only_on_significance(interpreted, monkeypatch):
    monkeypatch.setattr(edas, "EPSILON", 2.0)
    n = 6
    (p, words, t), _ = interpreted(edas.sig_cga, n, 1200)
    winners = [[int(words[s // 64, i] >> np.uint64(s % 64)) & 1 for s in range(t)] for i in range(n)]
    assert p.tolist() == [frequency(history, n, 2.0) for history in winners]
    assert (p == 1.0 - 1.0 / n).sum() > n / 2


def frequency(winners, n, epsilon):
    """Return the frequency after these winners, by Algorithm 1 of Doerr and Krejca."""

    def exceeds(count, mean):
        return count >= mean + epsilon * max(math.sqrt(mean * math.log(n)), math.log(n))

    p, history = 0.5, []
    for bit in winners:
        history.append(bit)
        for m in range(len(history).bit_length()):
            length = 2**m
            ones = sum(history[-length:])
            if p != 1.0 - 1.0 / n and exceeds(ones, length * p):
                p, history = 1.0 - 1.0 / n, []
                break
            if p != 1.0 / n and exceeds(length - ones, length * (1.0 - p)):
                p, history = 1.0 / n, []
                break
    return p


def test_expected_evaluations():
    rows = [{"nfev": "100", "first": "0"}, {"nfev": "30", "first": "20"}]
    assert expected(rows) == "120 (1/2)"
    assert expected(rows[1:]) == "20 (1/1)"
    assert expected(rows[:1]) == "0/1"
