"""Random sequences of calls to an optimizer, and a twin that gets the same values in a canonical order.

The optimizer is told in any order and form, and has a journal that is closed and reopened, or is saved and loaded. The
twin has neither, and is told either the candidates of each call sorted by id, or one by one. Both must agree after
every call. While more candidates are pending than an iteration has, the order in which they are told counts, so the
twin keeps it.
"""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import knobless as kl
from knobless.journal import read

from . import cases

FIELDS = "best theta lam eps nit nfev failures mode mode_fun n_to_ask exhausted".split()  # noqa: SIM905
NOISE = (0.0, 1.0, 2.5, math.nan, math.inf, -math.inf, RuntimeError("one"), ValueError("another"))


def attack(seed: int, folder: Path) -> list[str]:
    """The first differences between an optimizer and its twin."""
    game = Game(random.Random(seed), seed, folder)
    try:
        for _ in range(game.chance.randint(10, 40)):
            game.play()
            if game.found:
                break
        else:
            game.finish()
    except Exception:
        game.found += [f"{game.calls[-1]}: raised", *traceback.format_exc().splitlines()[::-1]]
    finally:
        game.opt.close()
    return [*game.found, "calls: " + "; ".join(game.calls)] if game.found else []


class Game:
    """An optimizer and its twin, what is out, and what differed."""

    def __init__(self, chance: random.Random, seed: int, folder: Path) -> None:
        self.chance, self.folder = chance, folder
        numbers = chance.random() < 0.5
        self.space = cases.space(chance, numbers)
        self.fun = cases.objective(chance)
        self.deterministic = chance.random() < 0.5
        self.algorithm = cases.algorithm(chance, self.space, numbers)
        self.x0 = cases.points(self.space, 1, seed)[0] if chance.random() < 0.3 else None
        self.batch = chance.choice([1, 1, 3, 6])
        self.seed = seed
        self.journal = folder / "run.sqlite" if chance.random() < 0.6 else None
        self.one_by_one = chance.random() < 0.5
        self.opt, self.twin = self._optimizer(self.journal), self._optimizer(None)
        self.out: list[Any] = []  # batches that were asked for, whole or what is left of them
        self.told: list[Any] = []
        self.recorded = True  # whether the journal has all that was drawn
        self.overlapping = False  # whether more candidates are pending than an iteration has
        self.calls: list[str] = []
        self.found: list[str] = []

    def _optimizer(self, journal: Path | None) -> Any:
        return kl.Optimizer(
            self.space, self.algorithm, self.x0, self.seed, self.batch, self.deterministic, journal=journal
        )

    def play(self) -> None:
        """One call, on both."""
        moves: list[tuple[float, Callable[[], None]]] = [
            (3, self.ask),
            (6 * bool(self.out), self.tell),
            (1 * bool(self.out), self.cancel),
            (0.5, self.add),
            (0.3 * bool(self.told), self.tell_again),
            (0.1, self.tell_nothing),
            (0.7, self.reopen if self.journal else self.save),
        ]
        weights, calls = zip(*moves, strict=True)
        self.chance.choices(calls, weights)[0]()
        self.compare()

    def ask(self) -> None:
        k = self.chance.choice([None, None, 1, 2, 5])
        self.calls.append(f"ask({'' if k is None else k})")
        self.overlapping = (bool(self.out) and self.overlapping) or (k is not None and k > self.twin.n_to_ask)
        asked = [cases.value_of(lambda opt: opt.ask(k), opt) for opt in (self.opt, self.twin)]
        self.check("ask", [list(each) if not isinstance(each, Exception) else repr(each) for each in asked][::-1])
        self.recorded = False
        if not isinstance(asked[0], Exception) and len(asked[0]):
            self.out.append(asked[0])

    def part(self) -> tuple[Any, list[Any]]:
        """Some candidates that are out, in a form that `tell` takes, and as a list."""
        chance = self.chance
        batch = self.out.pop(chance.randrange(len(self.out)))
        match chance.randrange(7):
            case 0:
                part: Any = batch[chance.randrange(len(batch))]
            case 1:
                part = batch[:: chance.choice([-1, 2, -2, 3])]
            case 2:
                part = batch[chance.randrange(len(batch)) :: chance.choice([1, -1])]
            case 3:
                part = chance.sample(list(batch), chance.randint(1, len(batch)))
            case 4 if self.out:  # of two batches
                part = [*batch, *self.out.pop()]
                chance.shuffle(part)
            case _:
                part = batch
        candidates = [part] if isinstance(part, kl.Candidate) else list(part)
        ids = {candidate.id for candidate in candidates}
        left = [candidate for candidate in batch if candidate.id not in ids]
        if left:
            self.out.append(left)
        self.told += candidates
        return part, candidates

    def tell(self) -> None:
        part, candidates = self.part()
        values = [self._value(candidate.x) for candidate in candidates]
        ids = [candidate.id for candidate in candidates]
        self.calls.append(f"tell({ids}, {values})")
        if isinstance(part, kl.Candidate):
            self.opt.tell(part, values[0])
        elif self.chance.random() < 0.2:
            self.opt.tell((candidate for candidate in part), iter(values))
        else:
            self.opt.tell(part, values)
        if self.one_by_one:
            for candidate, value in zip(candidates, values, strict=True):
                self.twin.tell(candidate, value)
        else:
            order = [*range(len(ids))] if self.overlapping else sorted(range(len(ids)), key=ids.__getitem__)
            self.twin.tell([candidates[i] for i in order], [values[i] for i in order])
        self.recorded = True

    def _value(self, x: Any) -> float | Exception:
        if not self.deterministic and self.chance.random() < 0.3:
            return self.chance.choice(NOISE)
        return cases.value_of(self.fun, x)

    def cancel(self) -> None:
        part, candidates = self.part()
        self.calls.append(f"cancel({[candidate.id for candidate in candidates]})")
        self.opt.cancel(part)
        self.twin.cancel(candidates if self.overlapping else sorted(candidates, key=lambda candidate: candidate.id))
        self.recorded = True

    def add(self) -> None:
        (x,) = cases.points(self.space, 1, self.chance.randrange(2**32))
        value = cases.value_of(self.fun, x)
        if isinstance(value, float):
            self.calls.append(f"add({x}, {value})")
            self.opt.add(x, value)
            self.twin.add(x, value)
            self.recorded = True

    def tell_again(self) -> None:
        """A candidate that has come back is refused, and nothing changes."""
        candidate = self.chance.choice(self.told)
        self.calls.append(f"tell again {candidate.id}")
        for opt in (self.opt, self.twin):
            refused = cases.value_of(lambda opt: opt.tell([candidate], [0.0]), opt)
            self.check("tell again", ["ValueError", type(refused).__name__])

    def tell_nothing(self) -> None:
        self.calls.append("tell and cancel nothing")
        self.opt.tell([], [])
        self.opt.cancel([])

    def save(self) -> None:
        self.calls.append("save, load")
        self.opt.save(self.folder / "saved")
        self.opt = kl.Optimizer.load(self.folder / "saved", self.space, self.algorithm)

    def reopen(self) -> None:
        """What was out is handed out again, as it was."""
        # Points whose values are known take part without being recorded: only the next record has them.
        if self.deterministic and not self.recorded:
            return
        self.calls.append("close, reopen")
        self.opt.close()
        self.opt = self._optimizer(self.journal)
        waiting = sorted((candidate for batch in self.out for candidate in batch), key=lambda candidate: candidate.id)
        again = sorted(self.opt.ask(len(waiting)), key=lambda candidate: candidate.id) if waiting else []
        self.check("reopen", [waiting, again])

    def compare(self) -> None:
        """Both have the same state."""
        expected, got = _state(self.twin), _state(self.opt)
        if self.one_by_one:  # otherwise another failure is the first
            expected, got = expected | _failure(self.twin), got | _failure(self.opt)
        self.found += cases.differences(self.calls[-1] if self.calls else "begin", expected, got)

    def check(self, title: str, both: list[Any]) -> None:
        """Two values are the same: the expected one, and what came."""
        self.found += cases.differences(self.calls[-1], {title: both[0]}, {title: both[1]})

    def finish(self) -> None:
        """What was recorded leads to the same state, and `knobless show` has the same best point."""
        if not self.journal or not self.recorded:
            return
        self.calls.append("fold")
        with read(self.journal) as record:
            folded = kl.Optimizer.from_journal(record, self.algorithm)
        expected, got = (_state(opt) | _failure(opt) for opt in (self.opt, folded))
        del expected["n_to_ask"]  # pending candidates are to be asked for again
        if self.opt.pending:
            del expected["exhausted"]
        self.found += cases.differences("fold", expected, got)
        best, chosen = self.opt.best, self.opt.recommended
        expected = {"x": chosen and cases.plain(chosen.x), "fun": chosen and cases.plain(chosen.fun)}
        expected |= {"observed_x": best and cases.plain(best.x), "observed_fun": best and cases.plain(best.fun)}
        expected |= {name: getattr(self.opt, name) for name in ("nfev", "failures", "nit")}
        self.found += cases.differences("knobless show", expected, cases.shown(self.journal))


def _state(opt: Any) -> dict[str, Any]:
    found = {name: getattr(opt, name) for name in FIELDS}
    out = sorted(opt.pending, key=lambda candidate: candidate.id)
    return found | {"theta": found["theta"].tolist(), "out": out}


def _failure(opt: Any) -> dict[str, Any]:
    return {"failure": opt.failure and opt.failure.strip().splitlines()[-1]}
