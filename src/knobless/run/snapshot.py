"""Snapshots: the state of a run in one file, for programs that keep their own records.

    opt.save("run.json")
    opt = Optimizer.load("run.json", space)

A file has the identity of the run and its `RunState`: all evaluations, pending candidates, random
streams and the state of the algorithm. So the loaded run continues as the saved one would have, and
loading asks for no points. The file is replaced as a whole. It is JSON, with arrays as their bytes:
data, never code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from knobless._files import write_atomic
from knobless.core.algorithm import MEMBER, Owner
from knobless.core.archive import COPIED, STOPPED, encoded
from knobless.core.data import (
    floats,
    listed,
    octets,
    parsed,
    text,
    whole,
    whole_at,
)
from knobless.core.early_stopping import Curve
from knobless.core.families import Family
from knobless.core.repair import Repair
from knobless.core.several import Several
from knobless.core.types import Points
from knobless.core.violation import Infeasible
from knobless.journal.events import CANCELLED, TOLD
from knobless.journal.identity import Identity

from .feasibility import Feasibility
from .iteration import PENDING, Best, FirstFailure, Iteration, Late, Settled
from .noise_test import MOST_POINTS, NoiseTest
from .run_state import MOST_WORDS, RunState, Unlearned, first_iteration, started
from .streams import Streams

FORMAT = "knobless snapshot"
_VERSION = 12
_LARGEST = 2**30  # bytes of a file
COUNTS = ("stale", "nit", "nfev", "failures", "infeasible")


class SnapshotError(ValueError):
    """A snapshot that cannot be written or read, or that belongs to another run.

    The message begins with the path of the file and gives the reason.
    """


# Writing.


def save(
    path: str | os.PathLike[str], identity: Identity, run: RunState
) -> None:
    """Write the state of a run to a file, which is replaced as a whole."""
    data = {
        "format": FORMAT,
        "version": _VERSION,
        "identity": identity.data(),
        "state": packed(run),
    }
    with snapshot_errors(path):
        write_atomic(path, json.dumps(data))


def packed(run: RunState) -> dict[str, Any]:
    """Return the state of a run as plain data."""
    family = run.space.family
    pack = partial(_packed, run.space.family)
    iteration = run.iteration
    late = run.late
    best = run.best
    if not hasattr(run.algorithm, "data"):
        raise TypeError(
            f"algorithm: expected one whose state can be saved, got {run.algorithm!r:.100}"
        )
    return {
        "rng": run.streams.data(),
        "constrained": run.constrained_algorithm is None,
        "noisy": run.noisy,
        "noise_test": None
        if run.noise_test is None
        else _test_data(family, run.noise_test),
        "origin": None if run.origin is None else pack(run.origin[None]),
        "archive": None if run.is_search else run.archive.data(),
        "algorithm": run.algorithm.data(run.search),
        "initial_points": pack(run.initial_points),
        "iteration": {
            "first": iteration.first,
            "size": iteration.size,
            "n_initial_points": iteration.n_initial_points,
            "codes": pack(iteration.codes) if iteration.drawn else "",
            "f": text(iteration.f),
            "fates": encoded(iteration.fates),
            "owners": [
                [start, *_owner_data(owner)]
                for start, owner in iteration.owners
            ],
            "others": [
                [id, *_late_data(family, item), text(np.array([value])), fate]
                for id, item, value, fate in iteration.others
            ],
        },
        "unlearned": [
            [
                *_owner_data(owner),
                *(item.asked, item.needed, item.settled),
                [_settled_data(family, part) for part in item.parts],
            ]
            for owner, item in run.unlearned.items()
        ],
        "curves": [text(values) for values in run.curves.complete],
        "reported": [
            [id, item.stopped, list(map(_rank_data, item.steps))]
            for id, item in run.reported.items()
        ],
        "late": [[id, *_late_data(family, item)] for id, item in late.items()],
        "waiting": None if run.pending is None else run.pending.waiting,
        "again": run.again,
        "best": None
        if best is None
        else [
            best.id,
            pack(best.at[None]),
            text(np.array([best.fun, best.violation])),
        ],
        "failure": None if run.failure is None else list(run.failure),
        "counts": [getattr(run, name) for name in COUNTS],
        "feasibility": None
        if run.feasibility is None
        else _feasibility_data(family, run.feasibility),
    }


def _test_data(family: Family, test: NoiseTest) -> dict[str, Any]:
    return {
        "numbers": text(np.array([test.doubt, test.due])),
        "values": text(np.array(test.values).ravel()),
        "expected": None
        if test.expected is None
        else text(np.ravel(test.expected)),
        "tests": test.tests,
        "turn": test.turn,
        "points": _packed(family, np.array(test.points)),
    }


def _feasibility_data(
    family: Family, feasibility: Feasibility
) -> dict[str, Any]:
    repair = feasibility.repair
    return {
        "checks": feasibility.checks,
        "best": text(np.array([feasibility.best])),
        "target": None
        if repair is None
        else _packed(family, repair.target[None]),
        "filled": feasibility.filled,
        "fill_score": feasibility.fill_score,
        "rejected": _packed(family, np.array(feasibility.rejected)),
        "directed": repair is not None and repair.directed,
    }


def _owner_data(owner: Owner | None) -> list[Any]:
    if owner is None:
        return [None]
    return [[owner.kind, owner.number, list(owner.key), owner.restarts]]


def _owner_of(data: Any) -> Owner | None:
    """Return the owner that `_owner_data` described; ValueError or TypeError for other data."""
    if data is None:
        return None
    kind, index, key, restarts = data
    if not all(type(code) in (int, float) for code in key):
        raise ValueError("owner: expected a combination of branches")
    return Owner(
        whole(kind, most=MEMBER), whole(index), tuple(key), whole(restarts)
    )


def _late_data(family: Family, late: Late) -> list[Any]:
    return [
        late.iteration,
        late.position,
        _packed(family, late.code[None]),
        *_owner_data(late.owner),
    ]


def _late_of(
    family: Family, nit: Any, position: Any, code: Any, owner: Any
) -> Late:
    return Late(
        whole(nit),
        whole(position, least=-1),
        _point(family, code),
        _owner_of(owner),
    )


def _settled_data(family: Family, part: Settled) -> list[Any]:
    return [
        list(part.ids),
        _packed(family, part.codes),
        text(part.f),
        encoded(part.fates),
    ]


def _settled_of(family: Family, data: Any) -> Settled:
    """Return candidates with values that `_settled_data` described.

    ValueError or TypeError for other data.
    """
    ids, codes, f, fates = data
    part = {"codes": codes, "f": f, "fates": fates}
    settled = Settled(
        list(map(whole, ids)),
        _codes(family, part, "codes"),
        floats(part, "f"),
        octets(part, "fates"),
    )
    if (
        not len(settled.ids)
        == len(settled.codes)
        == len(settled.f)
        == len(settled.fates)
    ):
        raise ValueError("unlearned: expected one value for each candidate")
    return settled


def _rank_data(rank: float) -> Any:
    """Return a value as it ranks as plain data."""
    if isinstance(rank, Infeasible):
        return [_rank_data(rank.value), rank.violation.hex()]
    return (
        {"objectives": rank.text} if isinstance(rank, Several) else rank.hex()
    )


def _rank_of(data: Any) -> float:
    """Return the value that `_rank_data` described; ValueError or TypeError for other data."""
    if isinstance(data, list):
        value, violation = data
        return Infeasible(_rank_of(value), float.fromhex(violation))
    if isinstance(data, dict):
        return Several.of(data["objectives"])
    return float.fromhex(data)


def _packed(family: Family, codes: Points) -> str:
    return encoded(family.pack(codes)) if len(codes) else ""


# Reading.


def read_snapshot(
    path: str | os.PathLike[str],
) -> tuple[Identity, dict[str, Any]]:
    """Return the identity and the packed state in a file."""
    path = Path(path)
    if not path.is_file():
        raise SnapshotError(f"{path}: cannot open: no such file")
    if path.stat().st_size > _LARGEST:
        raise ValueError(
            f"expected at most {_LARGEST} bytes, got {path.stat().st_size}"
        )
    data = parsed(path.read_text(encoding="ascii"))
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError("it is a file of another kind")
    if data.get("version") != _VERSION:
        version = data.get("version")
        raise SnapshotError(
            f"{path}: cannot resume: expected snapshot format {_VERSION}, got format "
            f"{version!r:.20}"
        )
    return Identity.from_data(_dict(data, "identity")), _dict(data, "state")


def check(
    recorded: Identity, current: Identity, path: str | os.PathLike[str]
) -> None:
    """SnapshotError if a snapshot belongs to another run."""
    differs = recorded.difference(current, "snapshot")
    if differs:
        raise SnapshotError(
            f"{path}: snapshot does not match this run: {differs}"
        )


def restore(run: RunState, identity: Identity, data: dict[str, Any]) -> None:
    """Bring a run from its start to the packed state; ValueError if it cannot have been one."""
    family = run.space.family
    run.streams = Streams.from_data(identity.rng, _dict(data, "rng"))
    if data["constrained"] is True and run.constrained_algorithm is not None:
        run.become_constrained(run.constrained_algorithm)
    if run.noise_test is not None:
        if data["noisy"] is True:
            run.become_noisy()
        else:
            run.noise_test = _test_of(
                family, run.archive.objectives, _dict(data, "noise_test")
            )
    run.origin = (
        None if data["origin"] is None else _point(family, data["origin"])
    )
    run.search = started(run.algorithm, run.origin, run.archive)
    if not run.is_search:
        run.archive.restore(data["archive"])
    run.search = run.algorithm.restore(run.search, _dict(data, "algorithm"))  # type: ignore[attr-defined]
    if run.lam * run.algorithm.family.words > MOST_WORDS:
        raise ValueError(
            f"lam_r: {run.lam} samples are more than a snapshot may ask for"
        )
    run.initial_points = _codes(family, data, "initial_points")
    run.iteration = iteration = _iteration_of(family, _dict(data, "iteration"))
    initial = 1 if run.x0 is None or iteration.first else len(run.x0)
    size = first_iteration(iteration.n_initial_points, run.lam).size
    if (
        iteration.n_initial_points > initial
        or iteration.size > size
        or not iteration.missing
    ):
        raise ValueError(
            f"iteration: expected one of at most {run.lam} samples that is not complete"
        )
    run.late = {
        whole(id): _late_of(family, *late) for id, *late in listed(data, "late")
    }
    for owner, *counts, parts in listed(data, "unlearned"):
        asked, needed, settled = map(whole, counts)
        unlearned = Unlearned(
            asked,
            needed,
            settled,
            [_settled_of(family, part) for part in parts],
        )
        run.unlearned[run.checked_owner(_owner_of(owner))] = unlearned
    run.curves.restore(
        [
            floats({"values": values}, "values")
            for values in listed(data, "curves")
        ]
    )
    run.reported = {
        whole(id): Curve(list(map(_rank_of, steps)), stopped is True)
        for id, stopped, steps in listed(data, "reported")
    }
    if data["best"] is not None:
        id, code, numbers = listed(data, "best")
        fun, violation = floats({"numbers": numbers}, "numbers").tolist()
        rank = Infeasible(fun, violation) if violation > 0.0 else fun
        run.best = Best(rank, whole(id, least=-1), _point(family, code))
    if data["failure"] is not None:
        id, message = listed(data, "failure")
        if not isinstance(message, str):
            raise ValueError(f"failure: expected text, got {message!r:.100}")
        run.failure = FirstFailure(whole(id), message)
    for name, count in zip(COUNTS, listed(data, "counts"), strict=True):
        setattr(run, name, whole(count))
    if run.feasibility is not None:
        _restore_feasibility(
            family, run.feasibility, _dict(data, "feasibility")
        )
    known = {*run.late, *range(run.iteration.first, run.drawn)}
    waiting = (
        [
            [whole(id) for id in ids_waiting]
            for ids_waiting in listed(data, "waiting")
        ]
        if run.pending is not None
        else []
    )
    run.again = [whole(id) for id in listed(data, "again")]
    early = all(id < run.iteration.first for id in run.late)
    if not (
        early and all(waiting) and known.issuperset(chain(run.again, *waiting))
    ):
        raise ValueError("expected pending candidates")
    if run.pending is not None and waiting:
        run.pending.restore(
            waiting,
            run.archive.keys(
                run.codes_of([ids_waiting[0] for ids_waiting in waiting])
            ),
        )


def _restore_feasibility(
    family: Family, feasibility: Feasibility, data: dict[str, Any]
) -> None:
    feasibility.filled = [flag is True for flag in listed(data, "filled")]
    feasibility.fill_score = whole(data["fill_score"], least=-(2**60))
    feasibility.rejected = list(_codes(family, data, "rejected"))
    feasibility.checks, feasibility.best = (
        whole_at(data, "checks"),
        float(floats(data, "best")[0]),
    )
    if data["target"] is not None:
        feasibility.repair = Repair(
            family, _codes(family, data, "target")[0], data["directed"] is True
        )


def _test_of(
    family: Family, objectives: int, data: dict[str, Any]
) -> NoiseTest:
    doubt, due = floats(data, "numbers").tolist()
    points = list(_codes(family, data, "points"))
    shape = () if objectives == 1 else (objectives,)
    values = list(floats(data, "values").reshape(-1, *shape))
    expected = (
        None
        if data["expected"] is None
        else floats(data, "expected").reshape(shape)
    )
    known = [*values, *([] if expected is None else [expected])]
    if (
        not 0.0 <= doubt <= 1.0
        or not due > 0.0
        or np.isnan(known).any()
        or not len(points) == len(values) <= MOST_POINTS
        or (known and not points)
    ):
        raise ValueError(
            "noise_test: expected the state of the tests for noise"
        )
    return NoiseTest(
        doubt,
        due,
        whole_at(data, "tests"),
        whole_at(data, "turn"),
        values,
        points,
        expected,
    )


def _iteration_of(family: Family, data: Any) -> Iteration:
    if not isinstance(data, dict):
        raise ValueError("expected an iteration")
    iteration = Iteration(
        whole_at(data, "first"),
        whole_at(data, "size", least=1),
        whole_at(data, "n_initial_points"),
    )
    codes = _codes(family, data, "codes")
    f = floats(data, "f")
    fates = bytearray(octets(data, "fates"))
    valued = {TOLD, COPIED, STOPPED}
    known_fates = set(fates) <= valued | {
        PENDING,
        CANCELLED,
    } and not valued & set(fates[len(f) :])
    if len(fates) != len(codes) or len(f) > len(codes) or not known_fates:
        raise ValueError("expected the state of each candidate")
    if len(codes):
        iteration.extend(codes)
        iteration.f, iteration.fates = f, fates
        iteration.owners = [
            (whole(start), _owner_of(owner))
            for start, owner in listed(data, "owners")
        ]
        starts = [start for start, _ in iteration.owners]
        if (
            starts[:1] != [0]
            or starts != sorted({*starts})
            or starts[-1] >= len(codes)
        ):
            raise ValueError("owners: expected those of each candidate")
    for id, *late, value, fate in listed(data, "others"):
        (number,) = floats({"value": value}, "value").tolist()
        iteration.others.append(
            (whole(id), _late_of(family, *late), number, whole(fate, least=1))
        )
        if fate not in valued | {CANCELLED}:
            raise ValueError(
                f"others: expected the state of each candidate, got {fate!r:.20}"
            )
    iteration.count_missing()
    return iteration


@contextmanager
def snapshot_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors caused by the file at `path` into a `SnapshotError` that names it."""
    try:
        yield
    except SnapshotError:
        raise
    except (OSError, MemoryError) as error:
        raise SnapshotError(
            f"{path}: {str(error) or type(error).__name__}"
        ) from error
    except (
        ValueError,
        TypeError,
        OverflowError,
        LookupError,
        AttributeError,
    ) as error:
        raise SnapshotError(f"{path}: not a valid snapshot: {error}") from error


def _dict(data: Any, name: str) -> dict[str, Any]:
    if not isinstance(data[name], dict):
        raise ValueError(f"{name}: expected an object")
    return data[name]


def _codes(family: Family, data: Any, name: str) -> Points:
    return family.unpack(octets(data, name))


def _point(family: Family, code: Any) -> Points:
    (point,) = _codes(family, {"code": code}, "code")
    return point
