"""The example of the stabilizer: its model is the derivative of the nonlinear one, and its page has its results."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from harness import read_csv

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def example():
    path = ROOT / "examples" / "power_stabilizer.py"
    spec = importlib.util.spec_from_file_location("power_stabilizer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def generator(example, point, angle, field):
    """Torque, i_d and terminal voltage of the nonlinear machine."""
    i_d, i_q = example.currents(point, angle, field)
    v_d, v_q = example.XQ * i_q, field - example.XD_TRANSIENT * i_d
    return np.array([v_d * i_d + v_q * i_q, i_d, np.hypot(v_d, v_q)])


@pytest.mark.parametrize("where", [(0.5, 0.1, 0.4), (1.1, 0.4, 0.7), (0.9, -0.1, 0.5)])
def test_the_operating_point_delivers_its_power_at_the_terminal_voltage_1(example, where):
    point = example.operating_point(*where)
    i_d, i_q = example.currents(point, point.angle, point.field)
    torque, _, voltage = generator(example, point, point.angle, point.field)
    v_d, v_q = example.XQ * i_q, point.field - example.XD_TRANSIENT * i_d
    assert (torque, v_q * i_d - v_d * i_q, voltage) == pytest.approx((where[0], where[1], 1.0))


@pytest.mark.parametrize("where", [(0.5, 0.1, 0.4), (1.1, 0.4, 0.7)])
def test_the_constants_are_derivatives_of_the_nonlinear_machine(example, where):
    point, h = example.operating_point(*where), 1e-6
    k = example.constants(point)
    by_angle, by_field = (
        (
            generator(example, point, point.angle + a, point.field + f)
            - generator(example, point, point.angle - a, point.field - f)
        )
        / (2 * h)
        for a, f in ((h, 0.0), (0.0, h))
    )
    reactances = example.XD - example.XD_TRANSIENT
    assert (k.k1, k.k5) == pytest.approx((by_angle[0], by_angle[2]), rel=1e-6)
    assert (k.k2, k.k6) == pytest.approx((by_field[0], by_field[2]), rel=1e-6)
    assert (1.0 / k.k3, k.k4) == pytest.approx((1.0 + reactances * by_field[1], reactances * by_angle[1]), rel=1e-6)


def test_the_matrix_has_the_transfer_function_of_the_stabilizer(example):
    """From speed to the output of the stabilizer, where nothing feeds back to the speed."""
    stabilizer, s = (7.0, 0.2, 0.03, 0.15, 0.02), 2j * np.pi * 1.3
    gain, lead1, lag1, lead2, lag2 = stabilizer
    A = example.matrix(example.KS[0], *stabilizer).astype(complex)
    # Of dx/dt = A x, with the states before the stabilizer at a swing x·exp(s·t): speed v, and its derivative in row 1.
    B, speed = A[4:, :4], np.array([0.0, 1.0, 0.0, 0.0])
    B = np.outer(np.array([gain, gain * lead1 / lag1, gain * lead1 / lag1 * lead2 / lag2]) * s, speed)
    states = np.linalg.solve(s * np.eye(3) - A[4:, 4:], B @ speed)
    washed = gain * s * example.WASHOUT / (1.0 + s * example.WASHOUT)
    expected = washed * (1.0 + s * lead1) / (1.0 + s * lag1) * (1.0 + s * lead2) / (1.0 + s * lag2)
    assert states[2] == pytest.approx(expected)


def test_the_regulator_makes_the_swing_grow_and_a_stabilizer_damps_it(example):
    off = example.damping(example.KS, example.OFF)
    assert off.min() == pytest.approx(-0.1686, abs=1e-4)
    assert off[0] > off[-1]  # a light load on a strong grid swings less than full load on a weak one
    assert example.damping(example.KS, [50.0, 0.13, 0.025, 0.08, 0.026]).min() > 0.6
    speed = example.swing(example.KS[-1], example.OFF, np.array([0.0, 5.0]))
    assert speed[0] == pytest.approx(1e-3)


def test_bits_cover_the_ranges_in_steps_and_in_ratios(example):
    none, all_, first = (np.zeros(75, np.int8), np.ones(75, np.int8), np.tile([1] + 14 * [0], 5))
    for decode in (example.in_steps, example.in_ratios):
        np.testing.assert_allclose([decode(none), decode(all_)], [example.LOW, example.HIGH])
    np.testing.assert_allclose(example.in_steps(first), (example.LOW + example.HIGH) / 2, rtol=1e-3)
    np.testing.assert_allclose(example.in_ratios(first), np.sqrt(example.LOW * example.HIGH), rtol=1e-3)


def test_searches_of_a_few_evaluations(example, tmp_path, monkeypatch, capsys):
    few = {name: example.SEARCHES[name] for name in ("default, floats", "PBIL-λ, bits, steps", "cGA, bits, ratios")}
    monkeypatch.setattr(example, "SEARCHES", few)
    monkeypatch.setattr("sys.argv", ["", "--seeds", "1", "--points", "30", "--loads", "200", "--output", str(tmp_path)])
    example.main()
    printed = capsys.readouterr().out
    assert printed.count("\n") == 2 * 4
    rows = read_csv(tmp_path / "runs.csv")
    for row in rows:
        stabilizer = [float(row[name]) for name in example.NAMES]
        assert float(row["least"]) == pytest.approx(example.damping(example.KS, stabilizer).min(), abs=2e-3)
    assert (tmp_path / "swings.png").stat().st_size > 1000


def test_the_page_has_the_medians_of_the_committed_runs(example):
    rows = read_csv(ROOT / "docs" / "examples" / "power_stabilizer" / "runs.csv")
    page = (ROOT / "docs" / "power_stabilizer.md").read_text(encoding="utf-8")
    for name in (*example.SEARCHES, example.RANDOM):
        cells = []
        for objective, column in (("points", "least"), ("loads", "mean")):
            ratios = [float(r[column]) for r in rows if (r["objective"], r["search"]) == (objective, name)]
            assert len(ratios) == 5
            cells.append(f"{np.median(ratios):.3f} ({min(ratios):.3f}, {max(ratios):.3f})")
        label = "random points of floats" if name == example.RANDOM else name
        assert f"| {label} | {' | '.join(cells)} |" in page
