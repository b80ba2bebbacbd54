"""The benchmark beside the peers: what is minimised, by enumeration; how runs are counted and compared, by hand."""

from __future__ import annotations

import csv
import itertools
import lzma
import math
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grids
import power
from contest import Done, Function, Objective, compete
from instances import covering, facilities, facility_location, knapsacks, multi_knapsack, set_covering, steiner
from verdicts import Cell, Entry, Rank, standing

BENCHMARKS = Path(power.__file__).parent  # on the path of the tests, by pyproject.toml

whole = st.integers(1, 9)


def points(n):
    return [np.array(x, dtype=np.int8) for x in itertools.product((0, 1), repeat=n)]


def lists(elements, n):
    return st.lists(elements, min_size=n, max_size=n)


def least_is_feasible(cost, greatest, n, plain):
    """`plain` is the cost of a point, inf where it breaks a constraint."""
    costs = {tuple(x): cost(x) for x in points(n)}
    least = min(plain(x) for x in costs)
    assert min(costs.values()) == pytest.approx(least)
    assert all(math.isfinite(plain(x)) for x, c in costs.items() if c <= least + 1e-9)
    assert all(costs[x] == pytest.approx(plain(x)) for x in costs if math.isfinite(plain(x)))
    assert max(costs.values()) <= greatest + 1e-9


@given(lists(whole, 5), st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=6))
def test_what_is_not_covered_never_pays(costs, rows):
    def plain(x):
        return (
            sum(c for c, bit in zip(costs, x, strict=True) if bit)
            if all(any(x[j] for j in r) for r in rows)
            else math.inf
        )

    least_is_feasible(*covering(costs, [sorted(row) for row in rows]), 5, plain)


@given(lists(whole, 5), lists(lists(st.integers(0, 9), 5), 3), lists(st.integers(0, 20), 3))
def test_a_knapsack_too_full_never_pays(profits, weights, capacities):
    def plain(x):
        full = [sum(w * bit for w, bit in zip(row, x, strict=True)) for row in weights]
        fits = all(load <= most for load, most in zip(full, capacities, strict=True))
        return -sum(p for p, bit in zip(profits, x, strict=True) if bit) if fits else math.inf

    least_is_feasible(*knapsacks(profits, weights, capacities), 5, plain)


@given(lists(whole, 4), lists(lists(whole, 3), 4))
def test_a_customer_goes_to_the_cheapest_that_is_open(fixed, serving):
    def plain(x):
        opened = [i for i in range(4) if x[i]]
        served = [min((serving[i][j] for i in opened), default=math.inf) for j in range(3)]
        return sum(fixed[i] for i in opened) + sum(served)

    least_is_feasible(*facilities(fixed, serving), 4, plain)


def test_files(tmp_path):
    file = tmp_path / "instance"
    file.write_text(" 2 3 \n 4 5 6 \n 1 \n 2 \n 2 \n 1 3 \n")
    cost, _ = set_covering(file)
    assert [cost(np.array(x)) for x in ([0, 1, 0], [0, 1, 1], [0, 0, 0])] == [5 + 5, 11, 6 + 5]
    file.write_text("4 2\n1 2 3\n2 3 4\n")
    cost, _ = steiner(file)
    assert [cost(np.array(x)) for x in ([0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0])] == [1, 1 + 2, 4]
    file.write_text("3 2 30\n10 20 4\n1 2 3\n4 5 6\n5 9\n")
    cost, _ = multi_knapsack(file)
    # Items 1 and 2 weigh 3 of 5 and 9 of 9; with 3 it is 1 and 6 too much: 21 each, and 10 or 4 a unit.
    assert [cost(np.array(x)) for x in ([1, 1, 0], [1, 1, 1])] == [-30, -34 + 21 + 10 + 21 + 6 * 4]
    file.write_text("2 3\n capacity 7.5\n capacity 1.\n 9 1 2 \n 9 3 4 \n 9 6 5 \n".replace("capacity", "100"))
    cost, _ = facility_location(file)
    assert [cost(np.array(x)) for x in ([1, 0], [0, 1], [1, 1])] == [7.5 + 10, 1 + 11, 8.5 + 9]


# Tables.


@pytest.fixture
def table(tmp_path, monkeypatch):
    """3 x 2 configurations; the best is the last."""
    rows = {
        f"{i}{j}": {"val_loss": [5.0 - 2 * i - j, 7.0 - 2 * i - j], "else": [0.0]} for i in range(3) for j in range(2)
    }
    with lzma.open(tmp_path / "t.xz", "wb") as file:
        pickle.dump(rows, file)
    monkeypatch.setitem(grids.GRIDS, "t", grids.Grid(2, "t.xz", "val_loss", -1))
    return tmp_path


def test_a_table_is_the_mean_over_trainings_with_options_shuffled(table):
    every = [np.array(x) for x in itertools.product(range(3), range(2))]
    functions = [grids.function("t", table, np.random.SeedSequence(i)) for i in range(8)]
    for function in functions:
        assert sorted(function.value(x) for x in every) == [1, 2, 3, 4, 5, 6]
        assert function.sizes == (3, 2)
        assert min(function.cost(x) for x in every) == 0
    assert len({tuple(function.value(x) for x in every) for function in functions}) > 1


def test_a_rank_is_the_share_that_is_better(table):
    assert [grids.rank("t", table, value) for value in (1, 2, 6)] == pytest.approx([0.5, 1e4 / 6 + 0.5, 5e4 / 6 + 0.5])


def test_a_table_brings_no_code(tmp_path):
    with lzma.open(tmp_path / "evil.xz", "wb") as file:
        pickle.dump({"0": Path("x")}, file)
    with pytest.raises(pickle.UnpicklingError, match="numbers and text alone"):
        grids.read(tmp_path / "evil.xz", "val_loss")


# How a run is counted.


def one_max(n):
    return Function("OneMax", lambda x: float(x.sum()), float(n))


@pytest.mark.parametrize("name", ["ours", "pbil-lambda", "rls", "ea"])
def test_a_run_ends_at_the_very_call_that_meets_the_optimum_or_is_the_last(name):
    seen = []
    function = Function("OneMax", lambda x: (seen.append(int(x.sum())), float(seen[-1]))[1], 12.0)
    ends = set()
    for calls in (3, 3000):
        seen.clear()
        source = np.random.SeedSequence(1)
        f = Objective(function, np.ones(12, dtype=np.int8), calls)
        row = compete(f, power.ALGORITHMS[name].run, source)
        ends.add(row["end"])
        assert row["nfev"] == len(seen) <= calls
        assert float(row["best"]) == 12 - max(seen)
        assert (row["end"] == "optimum") == (seen[-1] == 12)
        assert 12 not in seen[:-1]
        assert row["end"] == "optimum" or row["nfev"] == calls
    assert ends == {"budget", "optimum"}


def test_the_mask_is_all_that_tells_two_runs_apart():
    mask = np.array([1, 0, 1, 0], dtype=np.int8)
    f, g = Objective(one_max(4), mask, 99), Objective(one_max(4), 0 * mask, 99)
    for x in points(4):
        if (x ^ mask).sum() < 4:
            assert f(x) == g(x ^ mask)
    with pytest.raises(Done):
        f(1 - mask)


# How algorithms are compared.


def runs(*ends):
    """Each a number of calls, and what was found with them; 0 is the optimum."""
    return [
        {"end": "budget" if best else "optimum", "nfev": str(nfev), "best": str(float(best))} for nfev, best in ends
    ]


def cell(*ends, optimum=100.0, sense=1):
    return Cell(runs(*ends), optimum, sense)


def said(ours, other, third=None):
    cells = {"ours": ours, "rls": other, "pbil-lambda": cell((1, 0))} | ({"ea": third} if third else {})
    return Entry("line", 5, 100, cells).verdict("ours", ("ours", "pbil-lambda"))


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 1)), min_size=1, max_size=9))
def test_ert_is_what_runs_in_a_row_would_spend(ends):
    solved = [nfev for nfev, best in ends if not best]
    wasted = [nfev for nfev, best in ends if best]
    if solved:  # the mean of a run that meets it, and for each of these the failures before it
        assert cell(*ends).score == pytest.approx(np.mean(solved) + sum(wasted) / len(solved))
    else:
        assert cell(*ends).score == math.inf


def test_calls_decide_where_one_meets_the_optimum():
    assert said(cell((10, 0), (30, 0)), cell((20, 0))) == ("1.00 x", True, True)
    assert said(cell((40, 0)), cell((20, 0))) == ("2.00 x", False, True)
    assert said(cell((41, 0)), cell((20, 0))) == ("2.05 x", False, False)
    assert said(cell((9, 0)), cell((99, 0)), cell((6, 0))) == ("1.50 x", False, True)
    assert said(cell((100, 1), (100, 0)), cell((100, 5))) == ("only knobless", True, True)
    assert said(cell((100, 1)), cell((100, 50), (100, 0))) == ("not met", False, False)


def test_values_decide_where_none_does():
    assert said(cell((100, 3), (100, 5), (100, 9)), cell((100, 5))) == ("level", True, True)
    assert said(cell((100, 4)), cell((100, 6))) == ("value 2.13% better", True, True)
    assert said(cell((100, 51)), cell((100, 50))) == ("value 2.00% worse", False, True)
    assert said(cell((100, 52)), cell((100, 50))) == ("value 4.00% worse", False, False)
    less = {"optimum": -100.0, "sense": -1}
    assert said(cell((100, 51), **less), cell((100, 50), **less)) == ("value 2.00% worse", False, True)
    assert said(cell((100, -7), optimum=None), cell((100, -5), optimum=None)).text == "value 40.00% better"


def test_ranks_are_compared_by_their_geometric_means():
    assert Rank([1.0, 4.0]).score == pytest.approx(2)
    assert said(Rank([1.0, 16.0]), Rank([2.0, 2.0])) == ("2.00 x", False, True)
    assert said(Rank([0.5]), Rank([0.5])) == ("1.00 x", True, True)


def test_ties_count_and_lines_without_ours_do_not():
    shared = Entry("shared", 5, 9, {"ours": cell((10, 0)), "rls": cell((10, 0)), "ea": cell((11, 0))})
    lost = Entry("lost", 5, 9, {"ours": cell((30, 0)), "rls": cell((10, 0))})
    shown = Entry("shown", 5, 9, lost.cells, counted=False)
    absent = Entry("absent", 5, 9, {"rls": cell((10, 0))})
    assert shared.leaders == {"ours", "rls"}
    assert standing([shared, lost, shown, absent], "ours", ("ours",)) == (2, 1, 1, ("lost, n = 5 (3.00 x)",))


# The command.


def command(*options):
    return subprocess.run([sys.executable, str(BENCHMARKS / "power.py"), *options], capture_output=True, text=True)


@pytest.mark.slow
def test_the_command_goes_on_where_it_was_stopped_and_tells_of_all_rows(tmp_path):
    out, page = tmp_path / "power", tmp_path / "power.md"
    places = (
        "<!-- constraints --><!-- end -->\n<!-- summary --><!-- end -->\nb\n<!-- losses -->\nold\n<!-- end -->\nc\n"
    )
    page.write_text(places)
    options = [
        "--suite",
        "labs",
        "--lines",
        "LABS 30",
        "--jobs",
        "1",
        "--seeds",
        "1",
        "--out",
        str(out),
        "--algorithms",
    ]
    assert command(*options, "rls").returncode == 0
    before = (out / "labs.csv").read_text()
    with (out / "labs.csv").open("a") as file:
        file.write("LABS 30,30,20000,ea,0,bud")  # the process was killed here
    done = command(*options, "rls", "ea")
    assert "labs: 1 of 2 runs exist" in done.stdout
    after = (out / "labs.csv").read_text()
    assert after.startswith(before)
    assert [row["algorithm"] for row in csv.DictReader(after.splitlines())] == ["rls", "ea"]
    assert "| RLS " in (out / "table.md").read_text()
    text = page.read_text()
    assert "old" not in text
    assert text.count(power.NOT_YET) == 2
    with (out / "labs.csv").open("a") as file:
        file.write("LABS 30,30,20000,ours,0,optimum,19999,0.0,19999,9.0,1.0,1.0\n")  # of another command
    power.write(out, [])
    assert "| LABS " in page.read_text()
    power.fill(page, losses="x")
    power.fill(page, losses="y")
    assert page.read_text().endswith("b\n<!-- losses -->\ny\n<!-- end -->\nc\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--suite", "scp"], "--data: expected orlib_scp/scp41.txt in the folder"),
        (["--seeds", "0"], "--seeds: expected at least 1, got 0"),
        (["--lines", "F99"], "F99"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path, options, message):
    done = command(*options, "--data", str(tmp_path), "--out", str(tmp_path / "power"))
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
