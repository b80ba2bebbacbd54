"""One run evaluated in many ways: in threads, out of order, vectorized, recorded, stopped and resumed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import knobless as kl
from knobless.journal import read
from knobless.journal.events import CHECKED
from knobless.run.optimize import NOT_CALLED

from . import cases

FIELDS = [each.name for each in fields(kl.Result) if each.name not in ("evaluations", "failure", "history")]


class Case(NamedTuple):
    """A call of `minimize` or `maximize`, the same in all the ways in which it is evaluated."""

    run: Callable[..., kl.Result]
    sign: float
    fun: Callable[[Any], float]
    space: Any
    options: dict[str, Any]

    def facts(self, fun: Any = None, **how: Any) -> dict[str, Any]:
        """What the result consists of; where the run raises, the type of the exception."""
        thetas: list[list[float]] = []
        given = how.pop("callback", None)

        def callback(info: Any) -> None:
            thetas.append(info.theta.tolist())
            if given is not None:
                given(info)

        try:
            result = self.run(fun or self.fun, self.space, **self.options | how, callback=callback)
        except RuntimeError as error:  # the first evaluation failed
            return {"raised": repr(error)}
        failure = result.failure and result.failure.strip().splitlines()[-1]
        found = {name: getattr(result, name) for name in FIELDS} | {"message": result.message.removesuffix(NOT_CALLED)}
        if not result.evaluations.dropped:  # those of compiled iterations are
            found["evaluations"] = [(each.x, each.value, each.status, each.iteration) for each in result.evaluations]
        return found | {"failure": failure, "history": list(result.history), "theta": thetas[-1:]}


class Calls:
    """Counts the evaluations, and raises KeyboardInterrupt in place of one of them."""

    def __init__(self, fun: Callable[[Any], float], most: float = float("inf")) -> None:
        self.fun, self.most, self.points = fun, most, list[str]()

    def __call__(self, x: Any) -> float:
        if len(self.points) >= self.most:
            raise KeyboardInterrupt
        self.points.append(repr(x))
        return self.fun(x)


def attack(seed: int, folder: Path) -> list[str]:
    """The differences between one way to evaluate a random run and all others."""
    case, chance = drawn(seed)
    expected, found = _reference(case)
    for title, workers in _workers(chance).items():
        with workers() as pool:
            found += cases.differences(title, expected, case.facts(workers=pool))
    vectorizes = isinstance(case.fun, cases.Objective) and case.fun.failures != "raise"
    if vectorizes and not cases.is_conditional(case.space):
        found += cases.differences("vectorized", expected, case.facts(case.fun.vectorized, vectorized=True))
    found += cases.differences("journal", expected, case.facts(journal=folder / "whole.sqlite"))
    found += recorded(case, folder / "whole.sqlite", expected)
    found += cases.differences("stopped and resumed", expected, _resumed(case, chance, folder / "cut.sqlite"))
    # Evaluations that ran beside the one that met the target are recorded, but do not count for the result; neither do
    # those of the finalists at an earlier end of a noisy run.
    ended_early = expected.get("status") in (kl.Status.TARGET, kl.Status.STALL)
    if not ended_early and expected.get("deterministic") is not False:
        found += recorded(case, folder / "cut.sqlite", expected)
    return found


def drawn(seed: int) -> tuple[Case, random.Random]:
    """The case of a seed, and a generator for what else is random."""
    chance = random.Random(seed)
    numbers = chance.random() < 0.5
    space = cases.space(chance, numbers)
    fun = cases.objective(chance)
    sign = chance.choice([1.0, -1.0])
    values = [(x, cases.value_of(fun, x)) for x in cases.points(space, 4, seed)]
    finite = [(x, value) for x, value in values if isinstance(value, float) and abs(value) < 1e300]
    small = kl.Space.of(space).cardinality < 1000  # where P3 draws a thousand known points for each new one
    options: dict[str, Any] = {
        "budget": chance.choice([1, 7, 30, 60] if small else [1, 7, 60, 250]),
        "algorithm": cases.algorithm(chance, space, numbers),
        "rng": seed,
        "batch": chance.choice([1, 1, 3, 8]),
        "deterministic": chance.choice((None, False, True)),
    }
    if chance.random() < 0.3:
        options["x0"] = values[0][0]
    if chance.random() < 0.3:
        options["known"] = finite
    if chance.random() < 0.3 and finite:
        options["target"] = finite[0][1] - sign * chance.choice([0.0, 1.0, 5.0])
    if chance.random() < 0.3:
        options["stall"] = chance.choice([1, 10, 40])
    return Case(kl.minimize if sign > 0 else kl.maximize, sign, fun, space, options), chance


def _reference(case: Case) -> tuple[dict[str, Any], list[str]]:
    """The result of a plain call, and what is wrong with it by itself."""
    calls = Calls(case.fun)
    expected = case.facts(calls)
    if "raised" in expected:
        return expected, []
    found = []
    if len(calls.points) != expected["nfev"]:
        found.append(f"reference: {len(calls.points)} evaluations, but nfev is {expected['nfev']}")
    if case.options["deterministic"] and len(set(calls.points)) < len(calls.points):
        found.append("reference: a point was evaluated more than once in a deterministic run")
    return expected, found + of_its_point(case, expected)


def of_its_point(case: Case, facts: dict[str, Any]) -> list[str]:
    """`fun` must be the value of `x`, unless it is an estimate."""
    if facts["x"] is None or facts["deterministic"] is False:
        return []
    value = cases.value_of(case.fun, facts["x"])
    return [] if value == facts["fun"] else [f"reference: fun is {facts['fun']!r}, but the value of x is {value!r}"]


def _workers(chance: random.Random) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Where evaluations run, by name."""

    def shuffled(call: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        each = list(items)
        chance.shuffle(each)
        return map(call, each)

    return {
        "one by one": lambda: nullcontext(1),
        "threads": lambda: ThreadPoolExecutor(3),
        "shuffling map": lambda: nullcontext(shuffled),
        "map to a list": lambda: nullcontext(lambda call, items: list(map(call, items))),
    }


def _resumed(case: Case, chance: random.Random, journal: Path) -> dict[str, Any]:
    """The result of the last of several calls with one journal, all but the last stopped early."""
    budget, workers = case.options["budget"], list(_workers(chance).values())
    for _ in range(chance.randint(1, 3)):
        some = chance.randint(1, budget)
        match chance.choice(["interrupt", "budget", "callback"]):
            case "interrupt":
                case.facts(Calls(case.fun, some), journal=journal)
            case "budget":
                with chance.choice(workers)() as pool:
                    case.facts(journal=journal, budget=some, workers=pool)
            case "callback":
                case.facts(journal=journal, callback=_stop_at(chance.randint(1, 30)))
    with chance.choice(workers)() as pool:
        return case.facts(journal=journal, workers=pool)


def _stop_at(nit: int) -> Callable[[Any], None]:
    def callback(info: Any) -> None:
        if info.iteration >= nit:
            raise StopIteration

    return callback


def recorded(case: Case, journal: Path, expected: dict[str, Any]) -> list[str]:
    """What the journal of a complete run and `knobless show` must agree on with the result."""
    if "raised" in expected:
        return []
    with read(journal) as record:
        counts = record.counts()
        checked = [event for event in record if event.fate == CHECKED]  # not told to the optimizer
        folded = kl.Optimizer.from_journal(record, case.options["algorithm"])
    best = folded.best
    got = {
        "nfev": counts.evaluations,
        "failures": counts.failures,
        "observed_x": best and best.x,
        "observed_fun": best.fun if best else float("nan"),
        "nit": folded.nit,
        "theta": [folded.theta.tolist()] if folded.nit else [],
    }
    found = cases.differences("journal.read", {name: expected[name] for name in got}, got)
    failures = sum(event.failed for event in checked)
    fold = {"nfev": folded.nfev + len(checked), "failures": folded.failures + failures}
    found += cases.differences("fold", {name: expected[name] for name in fold}, fold)
    show = cases.shown(journal)
    names = ("x", "fun", "fun_std", "observed_x", "observed_fun", "deterministic", "nfev", "failures", "nit")
    return found + cases.differences(
        "knobless show", {name: cases.plain(expected[name]) for name in names}, {name: show[name] for name in names}
    )
