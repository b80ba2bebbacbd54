"""The benchmark of early stopping: its tables are complete, and a run on a table is exact."""

from __future__ import annotations

import math

import numpy as np
import pytest

from early_stopping import SYNTHETIC, Task, stops, synthetic, with_minimize
from learning_curves import PROBLEMS, read


def test_tables_have_a_row_per_configuration():
    tables = read()
    assert {name: losses.shape for name, losses in tables.items()} == {
        name: (grid.size, grid.steps) for name, grid in PROBLEMS.items()
    }
    assert all(np.isfinite(losses[:, -1]).mean() > 0.5 for losses in tables.values())


@pytest.mark.parametrize("stopping", [False, True])
def test_a_run_counts_its_steps(stopping):
    losses = read()["svc"]
    meter = with_minimize(Task("svc", losses, float(np.quantile(losses[:, -1], 0.02)), 0), stopping)
    assert meter.reached
    assert meter.bests[-1] == min(meter.bests)
    complete = meter.complete * losses.shape[1]
    assert complete <= meter.steps <= meter.evaluations * losses.shape[1]
    assert stopping or complete == meter.steps


@pytest.mark.parametrize("kind", SYNTHETIC)
def test_synthetic_curves_are_stopped_or_complete(kind):
    share, lost = stops(synthetic(kind, np.random.default_rng(0), n=40))
    assert 0.0 < share <= 1.0
    assert lost in (True, False)
    assert math.isclose(stops(np.tile(np.arange(5.0), (10, 1)))[0], 1.0)  # equal curves are not stopped
