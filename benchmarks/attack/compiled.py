"""Compiled runs: the result must not depend on whether the objective, and with it the loop, is compiled."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import knobless as kl
from knobless import problems

from . import cases, differential

SIZES = (1, 2, 9, 20, 40)


def attack(seed: int, folder: Path) -> list[str]:
    """The differences between a compiled run, the same in Python, and the same with a journal."""
    chance = random.Random(seed)
    fun, n = _objective(chance, seed)
    space = kl.Binary(n)
    options: dict[str, Any] = {
        "budget": chance.choice([1, 30, 400, 2000]),
        "algorithm": cases.algorithm(chance, space, numbers=False),
        "rng": seed,
        "batch": chance.choice([1, 1, 3, 8]),
        "deterministic": chance.random() < 0.5,
    }
    if chance.random() < 0.3:
        options["x0"] = cases.points(space, 1, seed)[0]
    if chance.random() < 0.3:
        options["stall"] = chance.choice([10, 100])
    case = differential.Case(kl.minimize, 1.0, fun, space, options)
    expected = case.facts()
    found = differential.of_its_point(case, expected)
    found += cases.differences("in Python", expected, case.facts(lambda x: fun(x)))
    found += cases.differences("journal", expected, case.facts(journal=folder / "run.sqlite"))
    return found + differential.recorded(case, folder / "run.sqlite", expected)


def _objective(chance: random.Random, seed: int) -> tuple[Any, int]:
    """A compiled objective, and for how many bits it is."""
    n = chance.choice(SIZES)
    match chance.randrange(7):
        case 0:
            return problems.OneMax(n), n
        case 1:
            return problems.LeadingOnes(n), n
        case 2:
            return problems.Traps(5 * n), 5 * n
        case 3:
            return problems.NK(n + 3, 2, seed), n + 3
        case 4:
            return problems.IsingRing(n + 2), n + 2
    return chance.choice(_functions()), n


@cache
def _functions() -> list[Any]:
    """Functions that numba compiles."""
    import numpy as np

    from knobless import fast

    def changes(x):  # type: ignore[no-untyped-def]
        return np.abs(x[1:] - x[:-1]).sum()

    def fails(x):  # type: ignore[no-untyped-def]
        if x.sum() % 3 == 1:
            raise ValueError("a failure")
        return x[0] + 0.5 * x.sum()

    def writes(x):  # type: ignore[no-untyped-def]
        value = x.sum()
        x[:] = 1
        return value

    return [fast.objective(function) for function in (changes, fails, writes)]
