"""Instances of public libraries as costs of bits, all to be minimized, with penalties for constraints.

The penalty of a violation exceeds the cost of repairing it: from any infeasible point, a feasible one is reached by
changes none of which increases the cost, and the last of which reduces it. The minimum is therefore that of the
original problem, and no infeasible point attains it.

- Covering (set covering, Steiner triples): a row that is not covered costs one more than its cheapest column.
- Knapsacks: minus the profit. An overfull knapsack costs one more than the largest profit of an item, plus the largest
  profit per weight of an item for every unit of excess weight.
- Facility location: with none open, the cost of opening all and serving each customer from the most expensive one;
  any other point costs less.
- MAX-SAT, QUBO, Max-Cut and LABS have no constraints: the weight of the unsatisfied clauses, x'Qx, minus the cut, the
  energy.

`best` is the lowest known cost: proven, except for maxcut-hamming8-2, whose cost is the best found by a tabu search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contest import Function
from knobless.problems import LABS, MaxCut, MaxSat, Qubo

Cost = tuple[Callable[[Any], float], float]  # and an upper bound of the costs


class Instance(NamedTuple):
    """A file of a library, or a problem that needs none; `n` bits."""

    name: str
    n: int
    best: float
    read: Callable[[Path], Cost]
    file: str = ""

    def function(self, data: Path) -> Function:
        cost, largest = self.read(data / self.file)
        return Function(self.name, cost, self.best, -1, largest - self.best + 1.0)


def max_sat(path: Path) -> Cost:
    problem = MaxSat.read(path)
    return problem, float(len(problem.clauses) if problem.weights is None else sum(problem.weights))


def qubo(path: Path) -> Cost:
    problem = Qubo.read(path)
    return problem, float(np.maximum(problem.matrix, 0.0).sum())


def max_cut(path: Path) -> Cost:
    problem = MaxCut.read(path)
    return problem, float(-np.minimum(problem.weights, 0.0).sum())


def labs(n: int) -> Callable[[Path], Cost]:
    return lambda path: (LABS(n), float(n**3))


def covering(costs: Sequence[float], rows: Sequence[Sequence[int]]) -> Cost:
    """Return the cost of the selected columns; each row lists the columns that cover it."""
    price = np.array(costs, dtype=np.float64)
    covers = np.zeros((len(rows), len(price)), dtype=np.float32)  # which counts exactly
    for row, columns in zip(covers, rows, strict=True):
        row[list(columns)] = 1.0
    penalty = np.array([1.0 + price[list(columns)].min() for columns in rows])

    def cost(x: Any) -> float:
        return float(price @ x + penalty[covers @ x.astype(np.float32) == 0.0].sum())

    return cost, float(price.sum() + penalty.sum())


def set_covering(path: Path) -> Cost:
    """OR-Library: rows and columns, costs of the columns, and for each row the columns that cover it, from 1."""
    numbers = list(map(int, path.read_text().split()))
    m, n = numbers[:2]
    costs, at, rows = numbers[2 : 2 + n], 2 + n, []
    for _ in range(m):
        rows.append([column - 1 for column in numbers[at + 1 : at + 1 + numbers[at]]])
        at += 1 + numbers[at]
    return covering(costs, rows)


def steiner(path: Path) -> Cost:
    """Variables and triples, then the triples, from 1."""
    n, _, *numbers = map(int, path.read_text().split())
    return covering([1] * n, (np.array(numbers).reshape(-1, 3) - 1).tolist())


def knapsacks(profits: Any, weights: Any, capacities: Any) -> Cost:
    """Return minus the profit of the selected items; `weights` has one row per knapsack."""
    profit, weight, capacity = (np.asarray(each, dtype=np.float64) for each in (profits, weights, capacities))
    with np.errstate(divide="ignore"):
        density = np.where(weight > 0.0, profit / weight, 0.0).max(axis=1)
    too_full = 1.0 + profit.max()

    def cost(x: Any) -> float:
        over = np.maximum(weight @ x - capacity, 0.0)
        return float(density @ over + too_full * np.count_nonzero(over) - profit @ x)

    return cost, float(density @ weight.sum(axis=1) + too_full * len(weight))


def multi_knapsack(path: Path) -> Cost:
    """SAC-94: items, knapsacks, the optimum, profits, the weights, one row per knapsack, and the capacities."""
    n, m, _, *numbers = map(float, path.read_text().split())
    n, m = int(n), int(m)
    profits, weights, capacities = numbers[:n], numbers[n : n + n * m], numbers[n + n * m : n + n * m + m]
    return knapsacks(profits, np.reshape(weights, (m, n)), capacities)


def facilities(fixed: Any, serving: Any) -> Cost:
    """Return the cost of the open facilities and of the cheapest service; `serving` has one row per facility."""
    fixed, serving = np.asarray(fixed, dtype=np.float64), np.asarray(serving, dtype=np.float64)
    largest = float(fixed.sum() + serving.max(axis=0).sum()) + 1.0

    def cost(x: Any) -> float:
        is_open = x.astype(bool)
        return float(fixed @ x + serving[is_open].min(axis=0).sum()) if is_open.any() else largest

    return cost, largest


def facility_location(path: Path) -> Cost:
    """OR-Library, capacities left out: facilities and customers; capacity and fixed cost of each facility; for each
    customer the demand, and what serving it costs from each facility.
    """
    m, n, *numbers = map(float, path.read_text().split())
    m, n = int(m), int(n)
    customers = np.reshape(numbers[2 * m :], (n, m + 1))
    return facilities(numbers[1 : 2 * m : 2], customers[:, 1:].T)


INSTANCES = {
    "maxsat": [
        *(
            Instance(f"uf{n:03}-{i:02}", n, 0, max_sat, f"satlib/uf{n:03}/uf{n:03}-{i:02}.cnf")
            for n in (50, 75, 100)
            for i in (1, 2, 3)
        ),
        Instance("maxcut-johnson8-2-4", 28, 392, max_sat, "maxsat_combo/maxcut-johnson8-2-4.clq.wcnf"),
        Instance("maxcut-hamming8-2", 43, 2213, max_sat, "maxsat_combo/maxcut-hamming8-2.clq.wcnf"),
        Instance("frb10-6-4", 60, 50, max_sat, "maxsat_combo/frb-frb10-6-4.wcnf"),
    ],
    "biqmac": [
        Instance("bqp50-1", 50, -2098, qubo, "biqmac/beasley/bqp50-1.sparse"),
        Instance("gka4a", 80, -8598, qubo, "biqmac/gka/gka4a.sparse"),
        Instance("bqp100-1", 100, -7970, qubo, "biqmac/beasley/bqp100-1.sparse"),
        Instance("be100.1", 100, -19412, qubo, "biqmac/be/be100.1.sparse"),
        Instance("g05_60.0", 60, -536, max_cut, "biqmac/rudy/g05_60.0"),
        Instance("pm1s_80.0", 80, -79, max_cut, "biqmac/rudy/pm1s_80.0"),
        Instance("g05_100.0", 100, -1430, max_cut, "biqmac/rudy/g05_100.0"),
        Instance("w09_100.0", 100, -2121, max_cut, "biqmac/rudy/w09_100.0"),
    ],
    "scp": [
        Instance("scpe1", 500, 5, set_covering, "orlib_scp/scpe1.txt"),
        Instance("scp41", 1000, 429, set_covering, "orlib_scp/scp41.txt"),
        Instance("scp42", 1000, 512, set_covering, "orlib_scp/scp42.txt"),
        Instance("scp43", 1000, 516, set_covering, "orlib_scp/scp43.txt"),
    ],
    "mknap": [
        Instance(name, n, -best, multi_knapsack, f"orlib_mknap/sac94/{name}.dat")
        for name, n, best in (
            ("weish01", 30, 4554),
            ("pb7", 37, 1035),
            ("pet7", 50, 16537),
            ("sento1", 60, 7772),
            ("weish29", 90, 9410),
            ("weing7", 105, 1095445),
        )
    ],
    "uflp": [
        Instance(name, n, best, facility_location, f"orlib_uflp/{name}.txt")
        for name, n, best in (
            ("cap71", 16, 932615.75),
            ("cap74", 16, 1034976.975),
            ("cap101", 25, 796648.4375),
            ("cap104", 25, 928941.75),
        )
    ],
    "labs": [Instance(f"LABS {n}", n, LABS(n).optimum or 0.0, labs(n)) for n in (30, 40, 50, 60)],
    "steiner": [
        Instance("stn15", 15, 9, steiner, "steiner/data.15"),
        Instance("stn27", 27, 18, steiner, "steiner/data.27"),
    ],
}
