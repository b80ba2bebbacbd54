"""The benchmark of conditional variables: known optima and means, deception, tables, and the comparison of methods."""

from __future__ import annotations

import numpy as np
import pytest

from conditional import Cell, cells_of, counts, lowest
from conditional_problems import (
    GRIDS,
    KINDS,
    REPORTED,
    TUNING,
    Valley,
    configurations,
    kernel_grid,
    problem,
    total,
    tree,
)

TREES = [(kind, number) for kind in KINDS for number in (*REPORTED, *TUNING)]


def costs_of(cost):
    """The cost of each value; of a number, at the middle of equal cells and, with no weight, at its best value."""
    if isinstance(cost, Valley):
        return [cost(x) for x in (np.arange(500) + 0.5) / 500], cost(cost.center)
    return [*cost.values()], min(cost.values())


def ranges(f, parent="", option=None):
    """The lowest and the mean cost of what is active with an option, and whether every node below deceives."""
    lowest = mean = 0.0
    deceives = True
    for each in f.variables:
        if each.parent != parent or (parent and option not in each.options):
            continue
        costs, least = costs_of(f.cost.costs[each.name])
        if any(other.parent == each.name for other in f.variables):
            below = [ranges(f, each.name, value) for value in each.domain.options]
            lows = np.add(costs, [one[0] for one in below])
            costs, least = np.add(costs, [one[1] for one in below]), lows.min()
            deceives &= lows.argmin() == costs.argmax() and all(one[2] for one in below)
        lowest, mean = lowest + least, mean + np.mean(costs)
    return lowest, mean, deceives


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_is_the_lowest_cost_and_deceptive_trees_deceive_at_every_node(kind):
    trees = [tree(kind, number) for number in (*REPORTED, *TUNING)]
    found = [ranges(each) for each in trees]
    assert [lowest for lowest, _, _ in found] == pytest.approx([each.optimum for each in trees])
    means = [total({v: each.cost.costs[v.name] for v in each.variables}).mean for each in trees]
    assert [mean for _, mean, _ in found] == pytest.approx(means, rel=1e-4)
    share = np.mean([deceives for _, _, deceives in found])
    assert share == 1.0 if kind == "deceptive" else share < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_no_point_is_below_the_optimum_and_inactive_values_are_ignored(kind):
    rng = np.random.default_rng(0)
    for number in TUNING:
        f = tree(kind, number)
        for _ in range(20):
            point = f.draw(rng)
            rest = {each.name: f.draw(rng).get(each.name) for each in f.variables}
            assert f(point) == f({**rest, **point}) >= f.optimum


def test_trees_of_different_numbers_differ():
    assert len({repr(tree(*each).variables) for each in TREES}) == len(TREES)


@pytest.mark.parametrize("name", GRIDS)
def test_a_table_has_every_point_that_can_be_drawn(name):
    f, rng = problem("table", name), np.random.default_rng(0)
    assert all(tuple(f.draw(rng).values()) in f.cost.costs for _ in range(1000))
    assert min(map(f, configurations(f.variables))) == f.optimum


def test_the_grid_of_kernels_is_a_part_of_the_table():
    f = kernel_grid()
    assert len(f.cost.costs) == 6 * (1 + 6 + 6 * 4 + 6 * 4 * 3)
    assert f.cost.costs.items() <= problem("table", "svr").cost.costs.items()


def test_a_run_that_ends_early_keeps_its_lowest_value():
    f = tree("honest", TUNING[0])
    points = [f.draw(np.random.default_rng(i)) for i in range(3)]
    least = lowest(f, points, 5)
    assert least.tolist() == [*(min(map(f, points[: i + 1])) for i in range(3)), least[2], least[2]]


def row(method, seed, regret):
    return {"kind": "honest", "problem": "0", "method": method, "seed": str(seed)} | {
        "50": str(regret), "100": "", "200": "", "300": "",
    }  # fmt: skip


@pytest.mark.slow
def test_cells_are_counted_as_better_or_worse():
    cells: list[Cell] = cells_of(row(name, i, i + 20.0 * (name == "b")) for name in ("a", "b") for i in range(9))
    assert counts(cells, "honest", "a", "b")[3:] == ["1", "1", "0 (0.0%)", "1", "0"]
    assert counts(cells, "honest", "b", "a")[3:] == ["1", "0", "1 (100.0%)", "0", "1"]
    assert counts(cells, "honest", "a", "a")[4:6] == ["0", "0 (0.0%)"]
