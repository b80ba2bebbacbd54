"""The benchmark of noisy problems: known optima, noise without bias, and the comparison of two searches."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from noise import Cell, cells_of, comparison
from noisy_problems import PROBLEMS, ring_minimum

BY_FORMULA = [name for name, kind in PROBLEMS.items() if not kind.file]


def made(name, seed=0):
    return PROBLEMS[name].make(np.random.default_rng(seed), Path())


def points(f, n, rng):
    return [
        np.concatenate([rng.integers(f.sizes), rng.random(f.numbers)]) if f.numbers else rng.integers(f.sizes)
        for _ in range(n)
    ]


def test_the_minimum_on_a_ring_is_that_of_enumeration():
    table = np.random.default_rng(0).random((8, 16))
    bits = np.array(list(itertools.product((0, 1), repeat=8)))
    windows = sum(np.roll(bits, -j, axis=1) << (3 - j) for j in range(4))
    assert ring_minimum(table, 3) == pytest.approx(table[np.arange(8), windows].sum(axis=1).min())


@pytest.mark.parametrize(
    "name", ["OneMax 30, σ²=7.5", "mixed", "NK 30", "TwoMax 30", "Ising ring 20", "LeadingOnes 30"]
)
def test_the_mean_of_the_evaluations_is_the_regret(name):
    f = made(name)
    for x in points(f, 3, np.random.default_rng(1)):
        values = np.array([f.evaluate(x) for _ in range(2000)])
        assert abs(values.mean() - f.regret(x)) < 5.0 * values.std() / 2000**0.5
        assert f.regret(x) >= 0.0


@pytest.mark.parametrize("name", ["contamination", "pest"])
def test_simulations_differ_in_the_mean_as_their_regrets_do(name):
    f = made(name)
    one, two = points(f, 2, np.random.default_rng(1))
    values = np.array([(f.evaluate(one), f.evaluate(two)) for _ in range(400)])
    each = values[:, 0] - values[:, 1]
    assert abs(each.mean() - (f.regret(one) - f.regret(two))) < 5.0 * each.std() / 20.0


def test_a_game_is_lost_as_often_as_stated():
    f = made("win/lose")
    (x,) = points(f, 1, np.random.default_rng(1))
    losses = [f.evaluate(x) for _ in range(4000)]
    assert np.mean(losses) == pytest.approx(0.2 + 0.6 * f.regret(x) / 30.0, abs=0.04)


@pytest.mark.parametrize("name", BY_FORMULA)
def test_an_instance_depends_on_its_seed_alone(name):
    x = points(made(name), 1, np.random.default_rng(1))[0]
    assert made(name).evaluate(x) == made(name).evaluate(x)
    assert len({made(name, seed).regret(x) for seed in range(4)}) > 1


def row(search, seed, regret, budget=50):
    return {"problem": "TwoMax 30", "search": search, "budget": str(budget), "seed": str(seed), "regret": str(regret)}


def test_ratios_of_means_with_the_smallest_mean_that_is_not_zero():
    (cell,) = cells_of([row("a", 0, 0.0), row("a", 1, 0.0), row("b", 0, 1.0), row("b", 1, 2.0), row("b", 2, 9.0)])
    assert cell.ratio("a", "b") == (0.0 + 0.5) / (1.5 + 0.5)  # of the two seeds that both have
    assert cell.ratio("a", "a") == cell.p_value("a", "a") == 1.0


@pytest.mark.slow
def test_a_search_that_is_always_worse_is_reported():
    rows = [row(name, seed, seed % 7 + 3.0 * (name == "a")) for name in "ab" for seed in range(12)]
    cells: list[Cell] = cells_of(rows)
    assert comparison(cells, "a", "b")[-1].startswith("Ahead or level in 0% of 1 cells; worse at 1 %: TwoMax 30 at 50")
    assert comparison(cells, "b", "a")[-1] == "Ahead or level in 100% of 1 cells; worse at 1 %: none."
    assert comparison(cells, "a", "absent") == []
