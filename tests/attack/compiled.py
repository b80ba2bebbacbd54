"""Compiled runs: the result must not depend on whether the objective, and with it the loop, is compiled."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

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
    interpreted, recorded = case.facts(lambda x: fun(x)), case.facts(journal=folder / "run.sqlite")
    found += cases.differences("in Python", expected, _without_rounding(interpreted, expected))
    found += cases.differences("journal", interpreted, recorded)
    return found + differential.recorded(case, folder / "run.sqlite", recorded)


def _without_rounding(facts: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """The facts, with the expected θ and history where these differ by rounding alone: engines sum in other orders."""
    if "raised" in facts or "raised" in expected:
        return facts
    near = {name: expected[name] for name in ("theta", "history") if _near(facts[name], expected[name])}
    return facts | near


def _near(got: list[Any], expected: list[Any]) -> bool:
    """Whether rows of numbers are equal within rounding; of an `Info` only real numbers other than the best value."""
    if len(got) != len(expected):
        return False
    for one, other in zip(got, expected, strict=True):
        if isinstance(one, kl.Info):
            exact = {name: getattr(other, name) for name in ("lam_r", "eps", "snr", "entropy")}
            if repr(one._replace(**exact)) != repr(other):
                return False
            one, other = one[4:8], other[4:8]
        if not np.allclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True):
            return False
    return True


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
