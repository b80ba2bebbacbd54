"""Design a stabilizer for a generator: at eight operating points, and under a random load.

    python examples/power_stabilizer.py --output out/power_stabilizer

A generator at the end of a long line swings against the grid, and its voltage regulator can make the swing grow. A
stabilizer measures the speed and adds a signal to the regulator. It has five constants: a gain, and the times of two
lead-lag stages. Two objectives, both to be maximized:

- points: the least damping ratio of all modes at eight operating points.
- loads: the least damping ratio at one random load, another one in each evaluation, so that the objective is noisy. The
  goal is the mean over all loads, which the search does not get.

The constants are five floats, or 75 bits, as population-based incremental learning needs them: 15 for each constant, in
equal steps or in equal ratios. Needs NumPy and knobless; the figure needs matplotlib.
"""

import argparse
import csv
import json
import platform
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import knobless as kl
from knobless.algorithms import cga, pbil_lambda

# A large turbine generator: reactances per unit on its rating, times in seconds.
XD, XQ, XD_TRANSIENT = 1.6, 1.55, 0.32
FIELD_TIME = 6.0  # T'd0
INERTIA = 10.0  # 2H
FREQUENCY = 377.0  # ω0, rad/s
REGULATOR_GAIN, REGULATOR_TIME = 50.0, 0.05
WASHOUT = 10.0
# Active and reactive power, and the reactance of the line: from half to full load, with a strong and a weak grid.
POINTS = [(p, q, line) for p, q in ((0.5, 0.1), (0.8, 0.2), (1.0, 0.3), (1.1, 0.4)) for line in (0.4, 0.7)]

NAMES = ("gain", "lead1", "lag1", "lead2", "lag2")
LOW = np.array([0.1, 0.02, 0.01, 0.02, 0.01])
HIGH = np.array([50.0, 1.0, 0.5, 1.0, 0.5])
OFF = np.array([0.0, 0.1, 0.1, 0.1, 0.1])  # no stabilizer
BITS = 15  # per constant
FLOATS = kl.Space(**{name: kl.Float(low, high, log=True) for name, low, high in zip(NAMES, LOW, HIGH, strict=True)})
BINARY = kl.Binary(len(NAMES) * BITS)

LOADS = np.array([(0.4, 1.1), (0.0, 0.4), (0.3, 0.8)])  # ranges of the same three, for random loads


# The model of Heffron and Phillips


class Constants(NamedTuple):
    """K1 to K6: how torque, field and terminal voltage change with the rotor angle and the transient voltage."""

    k1: float
    k2: float
    k3: float
    k4: float
    k5: float
    k6: float


class OperatingPoint(NamedTuple):
    """The state of a generator in steady operation, in the coordinates of the rotor."""

    line: float
    angle: float  # δ, against the grid
    grid: float  # its voltage
    field: float  # E'q, the voltage behind the transient reactance


def currents(point, angle, field):
    """Return the currents i_d and i_q of a generator at a line, for any angle and voltage E'q."""
    i_d = (field - point.grid * np.cos(angle)) / (point.line + XD_TRANSIENT)
    i_q = point.grid * np.sin(angle) / (point.line + XQ)
    return i_d, i_q


def operating_point(active, reactive, line):
    """Return the steady state in which this power is delivered at the terminal voltage 1."""
    current = active - 1j * reactive
    grid = 1.0 - 1j * line * current
    axis = np.angle(1.0 + 1j * XQ * current)  # of q; the terminal voltage has the angle 0
    i_d = -(current * np.exp(-1j * axis)).imag
    v_q = np.cos(axis)
    return OperatingPoint(line, axis - np.angle(grid), abs(grid), v_q + XD_TRANSIENT * i_d)


def constants(point):
    """Linearize torque, field and terminal voltage at an operating point."""
    i_d, i_q = currents(point, point.angle, point.field)
    v_d, v_q = XQ * i_q, point.field - XD_TRANSIENT * i_d
    salient = XQ - XD_TRANSIENT
    d_angle = point.grid * np.sin(point.angle) / (point.line + XD_TRANSIENT)  # of i_d with the angle
    q_angle = point.grid * np.cos(point.angle) / (point.line + XQ)  # of i_q
    d_field = 1.0 / (point.line + XD_TRANSIENT)  # of i_d with E'q
    return Constants(
        k1=(point.field + salient * i_d) * q_angle + salient * i_q * d_angle,
        k2=i_q * (1.0 + salient * d_field),
        k3=1.0 / (1.0 + (XD - XD_TRANSIENT) * d_field),
        k4=(XD - XD_TRANSIENT) * d_angle,
        k5=v_d * XQ * q_angle - v_q * XD_TRANSIENT * d_angle,
        k6=v_q * (1.0 - XD_TRANSIENT * d_field),
    )


def matrix(k, gain, lead1, lag1, lead2, lag2):
    """Return A of dx/dt = A x for the deviations of angle, speed, E'q, field voltage and the stabilizer's three."""
    angle, speed, field, exciter, washed, first, second = range(7)
    A = np.zeros((7, 7))
    A[angle, speed] = FREQUENCY
    A[speed, [angle, field]] = -k.k1 / INERTIA, -k.k2 / INERTIA
    A[field, [angle, field, exciter]] = -k.k4 / FIELD_TIME, -1.0 / (k.k3 * FIELD_TIME), 1.0 / FIELD_TIME
    # gain · s·Tw/(1 + s·Tw) · (1 + s·lead1)/(1 + s·lag1) · (1 + s·lead2)/(1 + s·lag2)
    A[washed] = gain * A[speed]
    A[washed, washed] -= 1.0 / WASHOUT
    A[first] = lead1 / lag1 * A[washed]
    A[first, [washed, first]] += 1.0 / lag1, -1.0 / lag1
    A[second] = lead2 / lag2 * A[first]
    A[second, [first, second]] += 1.0 / lag2, -1.0 / lag2
    voltage = REGULATOR_GAIN / REGULATOR_TIME
    A[exciter, [angle, field, exciter, second]] = -voltage * k.k5, -voltage * k.k6, -1.0 / REGULATOR_TIME, voltage
    return A


# Objectives


def damping(states, stabilizer):
    """Return the least damping ratio of all modes for each of several linearized states; negative if one grows."""
    modes = np.linalg.eigvals([matrix(k, *stabilizer) for k in states])
    return (-modes.real / np.abs(modes)).min(axis=1)


def random_load(rng):
    """Return the constants K1 to K6 at a random load."""
    return constants(operating_point(*rng.uniform(*LOADS.T)))


KS = [constants(operating_point(*point)) for point in POINTS]
MANY = [random_load(rng) for rng in [np.random.default_rng(0)] for _ in range(2000)]  # to compute the mean


def in_steps(x):
    """Return the five constants of 75 bits, from LOW to HIGH in equal steps."""
    return LOW + (HIGH - LOW) * _shares(x)


def in_ratios(x):
    """Return the five constants of 75 bits, from LOW to HIGH in equal ratios."""
    return LOW * (HIGH / LOW) ** _shares(x)


def as_floats(x):
    """Return the five constants of a point of floats, which are on a logarithmic scale."""
    return np.array([x[name] for name in NAMES])


def _shares(x):
    return np.reshape(x, (-1, BITS)) @ (1 << np.arange(BITS)[::-1]) / (2**BITS - 1)


# Searches

RANDOM = "random points"
SEARCHES = {
    "default, floats": (FLOATS, as_floats, None),
    "PBIL-λ, floats": (FLOATS, as_floats, pbil_lambda),
    "default, bits, ratios": (BINARY, in_ratios, None),
    "PBIL-λ, bits, ratios": (BINARY, in_ratios, pbil_lambda),
    "cGA, bits, ratios": (BINARY, in_ratios, cga),
    "default, bits, steps": (BINARY, in_steps, None),
    "PBIL-λ, bits, steps": (BINARY, in_steps, pbil_lambda),
    "cGA, bits, steps": (BINARY, in_steps, cga),
}


def search(name, objective, budget, seed):
    """Return the constants that a search recommends."""
    space, decode, recipe = SEARCHES[name]
    rng = np.random.default_rng([seed, 1])

    def at_points(x):
        return damping(KS, decode(x)).min()

    def at_a_load(x):
        return damping([random_load(rng)], decode(x))[0]

    exact = objective == "points"
    algorithm = None if recipe is None else recipe(space)
    fun = at_points if exact else at_a_load
    return decode(kl.maximize(fun, space, budget=budget, algorithm=algorithm, deterministic=exact, rng=seed).x)


def best_of_random_points(objective, budget, seed):
    """Return the best of random points; at random loads, each is evaluated a hundred times."""
    rng = np.random.default_rng([seed, 2])
    repeats = 1 if objective == "points" else 100
    points = np.exp(rng.uniform(np.log(LOW), np.log(HIGH), (budget // repeats, len(NAMES))))
    if objective == "points":
        return max(points, key=lambda point: damping(KS, point).min())
    return max(points, key=lambda point: damping([random_load(rng) for _ in range(repeats)], point).mean())


def main():
    """Run all searches, print their results, and write them and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--points", type=int, default=2000, metavar="N", help="evaluations at the operating points")
    parser.add_argument("--loads", type=int, default=20_000, metavar="N", help="evaluations at random loads")
    parser.add_argument("--output", type=Path, default=Path("out") / "power_stabilizer")
    options = parser.parse_args()
    rows = []
    for objective, budget in (("points", options.points), ("loads", options.loads)):
        for name in (*SEARCHES, RANDOM):
            for seed in range(options.seeds):
                began = time.process_time()
                find = best_of_random_points if name == RANDOM else partial(search, name)
                stabilizer = find(objective, budget, seed)
                seconds = time.process_time() - began
                ratios = {"least": damping(KS, stabilizer).min(), "mean": damping(MANY, stabilizer).mean()}
                values = {name: f"{value:.5g}" for name, value in zip(NAMES, stabilizer, strict=True)}
                row = {"objective": objective, "search": name, "budget": budget, "seed": seed}
                row |= {column: f"{ratio:.4f}" for column, ratio in ratios.items()}
                rows.append({**row, **values, "seconds": f"{seconds:.1f}"})
            print_results(rows[-options.seeds :])
    write(rows, options.output)


def print_results(rows):
    """Print the median and the range over the seeds of one search."""
    shown = []
    for column in ("least", "mean"):
        ratios = np.array([float(row[column]) for row in rows])
        shown.append(f"{column} {np.median(ratios):6.3f} ({ratios.min():.3f} to {ratios.max():.3f})")
    seconds = np.mean([float(row["seconds"]) for row in rows])
    print(f"{rows[0]['objective']:8} {rows[0]['search']:22} {'   '.join(shown)}   {seconds:.1f} s", flush=True)


def write(rows, folder):
    """Write all results, the versions, and the figure of the best stabilizer."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "runs.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    versions = {"knobless": kl.__version__, "numpy": np.__version__, "python": platform.python_version()}
    (folder / "meta.json").write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
    best = max(rows, key=lambda row: float(row["least"]))
    draw(np.array([float(best[name]) for name in NAMES]), folder / "swings.png")


def swing(k, stabilizer, seconds):
    """Return the deviation of the speed after a short push on the shaft that changes it by 0.001."""
    A = matrix(k, *stabilizer)
    pushed = np.zeros(len(A))
    pushed[1] = 1e-3
    gain, lead1, lag1, lead2, lag2 = stabilizer
    pushed[4] = gain * pushed[1]  # the stabilizer passes a step on at once
    pushed[5] = lead1 / lag1 * pushed[4]
    pushed[6] = lead2 / lag2 * pushed[5]
    modes, V = np.linalg.eig(A)
    return ((V[1] * np.linalg.solve(V, pushed.astype(complex))) @ np.exp(np.outer(modes, seconds))).real


def draw(stabilizer, path):
    """Draw the speed after a push on the shaft at all operating points, without and with a stabilizer."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), dpi=110, layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    seconds = np.linspace(0.0, 5.0, 501)
    for ax, values, title in zip(panels, (OFF, stabilizer), ("without", "with"), strict=True):
        for (active, _, line), k in zip(POINTS, KS, strict=True):
            label = f"{active:g} of the rating, line {line:g}"
            ax.plot(seconds, 1e3 * swing(k, values, seconds), linewidth=1, label=label)
        ax.set(title=f"{title} a stabilizer", xlabel="seconds after a push on the shaft", ylim=(-6.0, 6.0))
        ax.grid(alpha=0.3)
    panels[0].set_ylabel("deviation of the speed, 1/1000")
    panels[1].legend(fontsize=7)
    figure.savefig(path)


if __name__ == "__main__":
    main()
