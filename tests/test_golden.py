"""Golden trajectories: for every recipe, space and seed the samples and λ stay what they were.

A change here is a change that users see: the same seed gives another run. Where that is meant, write the
files anew with `python tests/test_golden.py --write` and say why in the commit.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from knobless import Axis, Bernoulli, Categorical, Gaussian, Product, cga, pbil, pbil_epsilon, pbil_lambda, umda

GOLDEN = Path(__file__).parent / "golden"
ITERATIONS = 60
SEEDS = (0, 1)
RECIPES = {
    "pbil_lambda": pbil_lambda,
    "pbil_epsilon": pbil_epsilon,
    "cga": cga,
    "umda": lambda family: umda(family, 10, 4),
    "pbil": lambda family: pbil(family, 10, 4, 0.2),
}
SPACES = {
    "bits": Bernoulli(15),
    "choices": Product((Categorical(4, 3), Categorical(3, 5))),
    "mixed": Product(
        (Bernoulli(5), Categorical(2, 3), Gaussian((Axis(), Axis(0.05, 0.95, cell=0.1), Axis(0.2, 0.98, 0.6, 3.0))))
    ),
}


def objective(x):
    """Some structure, some roughness, many ties: numbers are seen in cells of a tenth."""
    cells = np.floor(np.asarray(x, dtype=float) * 10.0)
    return np.abs(cells[:, 1:] - cells[:, :-1]).sum(axis=1) + cells[:, 0] - 3.0 * (cells.sum(axis=1) % 3.0)


def trajectory(recipe, family, seed):
    """λ of each iteration, the first two samples, and a digest of all."""
    algorithm, rng = recipe(family), np.random.default_rng(seed)
    state = algorithm.init()
    lam, seen = [], []
    for _ in range(ITERATIONS):
        x = algorithm.ask(state, rng)
        lam.append(len(x))
        seen.append(
            np.round(np.asarray(x, dtype=float), 6) + 0.0
        )  # cos and log differ in the last bit between machines
        state = algorithm.tell(state, x, objective(x))
    drawn = np.concatenate(seen)
    digest = hashlib.sha256(drawn.astype("<f8").tobytes()).hexdigest()
    return {"lam": lam, "first": drawn[:2].tolist(), "last": drawn[-1].tolist(), "digest": digest}


def trajectories(name):
    return {
        space: {str(seed): trajectory(RECIPES[name], family, seed) for seed in SEEDS}
        for space, family in SPACES.items()
    }


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", RECIPES)
def test_trajectories_stay_what_they_were(name, space):
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    assert golden.keys() == SPACES.keys()
    for seed in SEEDS:
        found = trajectory(RECIPES[name], SPACES[space], seed)
        for part, expected in golden[space][str(seed)].items():  # the samples one can read come before the digest
            assert found[part] == expected, (part, seed)


def test_trajectories_differ_between_seeds():
    digests = [run["digest"] for name in RECIPES for space in trajectories(name).values() for run in space.values()]
    assert len(set(digests)) == len(digests)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/test_golden.py --write")
    GOLDEN.mkdir(exist_ok=True)
    for name in RECIPES:
        (GOLDEN / f"{name}.json").write_text(json.dumps(trajectories(name), indent=1) + "\n")
