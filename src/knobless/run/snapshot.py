"""Snapshots: the state of a run in one file, for programs that keep their own records.

    opt.save("run.json")
    opt = Optimizer.load("run.json", space)

A file has the identity of the run and its `RunState`, random streams and pending candidates included, so that the
loaded run continues as the saved one would have. It is replaced as a whole. It is JSON, with arrays as their bytes:
data, never code.
"""

from __future__ import annotations

import json
import math
import os
from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from knobless._files import write_atomic
from knobless.core.data import floats, listed, octets, parsed, text, whole, whole_at
from knobless.core.families import Family
from knobless.core.repair import Repair
from knobless.core.states import state_data, state_of
from knobless.core.types import Points
from knobless.core.violation import Infeasible
from knobless.journal.events import CANCELLED, TOLD
from knobless.journal.identity import Identity

from .cache import Cache
from .evaluation_log import EvaluationLog
from .feasibility import Feasibility
from .iteration import COPIED, PENDING, Best, FirstFailure, Iteration, Late
from .noise_test import MOST_POINTS, NoiseTest
from .run_state import MOST_WORDS, RunState
from .streams import Streams

FORMAT = "knobless snapshot"
_VERSION = 7
_LARGEST = 2**30  # bytes of a file


class SnapshotError(ValueError):
    """A snapshot that cannot be written or read, or that belongs to another run.

    The message begins with the path of the file and gives the reason.
    """


# Writing.


def save(path: str | os.PathLike[str], identity: Identity, run: RunState) -> None:
    """Write the state of a run to a file, which is replaced as a whole."""
    data = {"format": FORMAT, "version": _VERSION, "identity": identity.data(), "state": packed(run)}
    with snapshot_errors(path):
        write_atomic(path, json.dumps(data))


def packed(run: RunState) -> dict[str, Any]:
    """Return the state of a run as plain data."""
    family = run.space.family
    late = [[id, each.iteration, each.position] for id, each in run.late.items()]
    codes = np.array([each.code for each in run.late.values()]) if late else run.initial_points[:0]
    return {
        "rng": run.streams.data(),
        "constrained": run.constrained_algorithm is None,
        "noisy": run.noisy_algorithm is not None and run.noise_test is None,
        "noise_test": None if run.noise_test is None else _test_data(family, run.noise_test),
        "log": None if run.log is None else _log_data(family, run.log),
        "algorithm": state_data(run.algorithm, run.search),
        "initial_points": _packed(family, run.initial_points),
        "iteration": _iteration_data(family, run.iteration, run.initial_points),
        "recent": [_iteration_data(family, each, run.initial_points) for each in run.recent],
        "late": late,
        "late_codes": _packed(family, codes),
        "again": run.again,
        "best": None if run.best is None else _best_data(family, run.best),
        "failure": None if run.failure is None else list(run.failure),
        "cache": None if run.cache is None else _cache_data(run.cache),
        "stale": run.stale,
        "nit": run.nit,
        "nfev": run.nfev,
        "failures": run.failures,
        "infeasible": run.infeasible,
        "feasibility": None if run.feasibility is None else _feasibility_data(family, run.feasibility),
    }


def _iteration_data(family: Family, iteration: Iteration, none: Points) -> dict[str, Any]:
    codes = iteration.codes if iteration.drawn else none[:0]
    return {
        "first": iteration.first,
        "size": iteration.size,
        "n_initial_points": iteration.n_initial_points,
        "codes": _packed(family, codes),
        "f": text(iteration.f),
        "fates": b64encode(bytes(iteration.fates)).decode(),
    }


def _test_data(family: Family, test: NoiseTest) -> dict[str, Any]:
    numbers = [test.doubt, test.due, test.fun, math.nan if test.expected is None else test.expected]
    codes = np.array(test.points) if test.points else np.empty((0, family.variables), family.dtype)
    return {
        "numbers": text(np.array(numbers)),
        "testing": test.expected is not None,
        "tests": test.tests,
        "turn": test.turn,
        "points": _packed(family, codes),
    }


def _log_data(family: Family, log: EvaluationLog) -> dict[str, Any]:
    return {"points": _packed(family, log.x), "values": text(log.f), "count": log.count}


def _feasibility_data(family: Family, feasibility: Feasibility) -> dict[str, Any]:
    repair = feasibility.repair
    return {
        "checks": feasibility.checks,
        "best": text(np.array([feasibility.best])),
        "target": None if repair is None else _packed(family, repair.target[None]),
        "filled": feasibility.filled,
        "fill_score": feasibility.fill_score,
        "rejected": _packed(family, np.array(feasibility.rejected)) if feasibility.rejected else "",
        "directed": repair is not None and repair.directed,
    }


def _best_data(family: Family, best: Best) -> dict[str, Any]:
    numbers = text(np.array([best.fun, best.violation]))
    return {"numbers": numbers, "id": best.id, "code": _packed(family, best.at[None])}


def _cache_data(cache: Cache) -> dict[str, Any]:
    return {
        "points": b64encode(b"".join(cache.values)).decode(),
        "values": text(np.array([*cache.values.values()])),
        "pending": b64encode(b"".join(cache.waiting)).decode(),
        "waiting": [*cache.waiting.values()],
    }


def _packed(family: Family, codes: Points) -> str:
    return b64encode(family.pack(codes)).decode() if len(codes) else ""


# Reading.


def read_snapshot(path: str | os.PathLike[str]) -> tuple[Identity, dict[str, Any]]:
    """Return the identity and the packed state in a file."""
    path = Path(path)
    if not path.is_file():
        raise SnapshotError(f"{path}: cannot open: no such file")
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"expected at most {_LARGEST} bytes, got {path.stat().st_size}")
    data = parsed(path.read_text(encoding="ascii"))
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError("it is a file of another kind")
    if data.get("version") != _VERSION:
        version = data.get("version")
        raise SnapshotError(f"{path}: cannot resume: expected snapshot format {_VERSION}, got format {version!r:.20}")
    return Identity.from_data(_dict(data, "identity")), _dict(data, "state")


def check(recorded: Identity, given: Identity, path: str | os.PathLike[str]) -> None:
    """SnapshotError if a snapshot belongs to another run."""
    differs = recorded.difference(given, "snapshot")
    if differs:
        raise SnapshotError(f"{path}: snapshot does not match this run: {differs}")


def restore(run: RunState, identity: Identity, data: dict[str, Any]) -> None:
    """Bring a run from its start to the packed state; ValueError if it cannot have been one."""
    family = run.space.family
    run.streams = Streams.from_data(identity.rng, _dict(data, "rng"))
    if data["constrained"] is True and run.constrained_algorithm is not None:
        run.algorithm, run.constrained_algorithm = run.constrained_algorithm, None
    if run.noise_test is not None:
        if data["noisy"] is True and run.noisy_algorithm is not None:
            run.algorithm, run.noise_test, run.cache = run.noisy_algorithm, None, None
        else:
            run.noise_test = _test_of(family, _dict(data, "noise_test"))
    if run.log is not None:
        log = _dict(data, "log")
        run.log.restore(_codes(family, log, "points"), floats(log, "values"), whole_at(log, "count"))
    run.search = state_of(run.algorithm, data["algorithm"], run.x0)
    if run.lam * run.algorithm.family.words > MOST_WORDS:
        raise ValueError(f"lam_r: {run.lam} samples are more than a snapshot may ask for")
    run.initial_points = _codes(family, data, "initial_points")
    run.iteration = now = _iteration_of(family, _dict(data, "iteration"))
    if now.n_initial_points > 1 or now.size != now.n_initial_points + run.lam or not now.missing:
        raise ValueError(f"iteration: expected one of {run.lam} samples that is not complete")
    run.recent = deque(_iteration_of(family, each) for each in listed(data, "recent"))
    if not all(each.drawn for each in run.recent):
        raise ValueError("recent: expected iterations with candidates")
    run.n_recent = sum(each.drawn for each in run.recent)
    late, codes = listed(data, "late"), _codes(family, data, "late_codes")
    run.late = {
        whole(id): Late(whole(nit), whole(position), code)
        for (id, nit, position), code in zip(late, codes, strict=True)
    }
    run.again = [whole(id) for id in listed(data, "again")]
    best, failure = data.get("best"), data.get("failure")
    if best is not None:
        fun, violation = floats(best, "numbers").tolist()
        rank = Infeasible(fun, violation) if violation > 0.0 else fun
        run.best = Best(rank, whole(best["id"], least=-1), _codes(family, best, "code")[0])
    if failure is not None:
        id, message = listed(data, "failure")
        if not isinstance(message, str):
            raise ValueError(f"failure: expected text, got {message!r:.100}")
        run.failure = FirstFailure(whole(id), message)
    if run.cache is not None:
        run.cache = Cache.of(run.space, *_cache_of(_dict(data, "cache"), run.cache.width))
    run.stale, run.nit, run.nfev = (whole_at(data, name) for name in ("stale", "nit", "nfev"))
    run.failures, run.infeasible = whole_at(data, "failures"), whole_at(data, "infeasible")
    if run.feasibility is not None:
        _restore_feasibility(family, run.feasibility, _dict(data, "feasibility"))
    known = {*run.late, *range(run.iteration.first, run.drawn)}
    waiting = [] if run.cache is None else run.cache.waiting.values()
    early = all(id < run.iteration.first for id in run.late)
    if not (early and known.issuperset(run.again) and all(known.issuperset(each) for each in waiting)):
        raise ValueError("expected pending candidates")


def _restore_feasibility(family: Family, feasibility: Feasibility, data: dict[str, Any]) -> None:
    feasibility.filled = [each is True for each in listed(data, "filled")]
    feasibility.fill_score = whole(data["fill_score"], least=-(2**60))
    feasibility.rejected = list(_codes(family, data, "rejected"))
    feasibility.checks, feasibility.best = whole_at(data, "checks"), float(floats(data, "best")[0])
    if data["target"] is not None:
        feasibility.repair = Repair(family, _codes(family, data, "target")[0], data["directed"] is True)


def _test_of(family: Family, data: dict[str, Any]) -> NoiseTest:
    doubt, due, fun, expected = floats(data, "numbers").tolist()
    points = list(_codes(family, data, "points"))
    testing = data["testing"] is True
    if (
        not 0.0 <= doubt <= 1.0
        or not due > 0.0
        or math.isnan(fun)
        or len(points) > MOST_POINTS
        or testing > len(points)
    ):
        raise ValueError("noise_test: expected the state of the tests for noise")
    return NoiseTest(
        doubt, due, whole_at(data, "tests"), whole_at(data, "turn"), fun, points, expected if testing else None
    )


def _iteration_of(family: Family, data: Any) -> Iteration:
    if not isinstance(data, dict):
        raise ValueError("expected an iteration")
    iteration = Iteration(whole_at(data, "first"), whole_at(data, "size", least=1), whole_at(data, "n_initial_points"))
    codes, f = _codes(family, data, "codes"), floats(data, "f")
    fates = bytearray(octets(data, "fates"))
    known_fates = set(fates) <= {PENDING, TOLD, CANCELLED, COPIED} and not {TOLD, COPIED} & set(fates[len(f) :])
    if len(fates) != len(codes) or len(f) > len(codes) or not known_fates:
        raise ValueError("expected the state of each candidate")
    if len(codes):
        iteration.extend(codes)
        iteration.f, iteration.fates = f, fates
        iteration.count_missing()
    return iteration


def _cache_of(data: dict[str, Any], width: int) -> tuple[dict[bytes, float], dict[bytes, list[int]]]:
    points, pending = (_chunks(octets(data, name), width) for name in ("points", "pending"))
    waiting = [[whole(id) for id in each] for each in listed(data, "waiting")]
    if not all(waiting):
        raise ValueError("waiting: expected at least one candidate for each point")
    values = floats(data, "values").tolist()
    return dict(zip(points, values, strict=True)), dict(zip(pending, waiting, strict=True))


@contextmanager
def snapshot_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors caused by the file at `path` into a `SnapshotError` that names it."""
    try:
        yield
    except SnapshotError:
        raise
    except (OSError, MemoryError) as error:
        raise SnapshotError(f"{path}: {str(error) or type(error).__name__}") from error
    except (ValueError, TypeError, OverflowError, LookupError, AttributeError) as error:
        raise SnapshotError(f"{path}: not a valid snapshot: {error}") from error


def _chunks(data: bytes, width: int) -> list[bytes]:
    if len(data) % width:
        raise ValueError(f"expected {width} bytes for each point")
    return [data[i : i + width] for i in range(0, len(data), width)]


def _dict(data: Any, name: str) -> dict[str, Any]:
    if not isinstance(data[name], dict):
        raise ValueError(f"{name}: expected an object")
    return data[name]


def _codes(family: Family, data: Any, name: str) -> Points:
    return family.unpack(octets(data, name))
