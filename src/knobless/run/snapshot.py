"""Snapshots: an optimizer between two calls as one file, for those who keep their own records.

    opt.save("run.json")
    opt = Optimizer.load("run.json", space)

All that an optimizer holds is in it, the states of its generators and the candidates that are out among it, so that
what follows is what would have followed. A file is written whole or not at all. It is JSON, with arrays as their
bytes: data, never code.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from knobless.core.algorithm import Algorithm
from knobless.core.data import difference, floats, listed, octets, parsed, text, whole, whole_at
from knobless.core.description import algorithm_of
from knobless.core.families import Family
from knobless.core.states import state_data, state_of
from knobless.core.types import Points
from knobless.space.codec import space_data
from knobless.space.space import Space

from .candidates import CANCELLED, OUT, TOLD, Iteration

if TYPE_CHECKING:
    from .optimizer import Optimizer

FORMAT = "knobless snapshot"
VERSION = 2  # 1 had the loop's state alone
LARGEST = 2**30  # bytes of a file


class SnapshotError(ValueError):
    """A snapshot that cannot be written or read, or that belongs to another space; says which, and why."""


# Writing.


def save(opt: Optimizer, path: str | os.PathLike[str]) -> None:
    """Writes it whole or not at all: under another name first, then on the disk, then in its place."""
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    data = {"format": FORMAT, "version": VERSION, "identity": opt._identity("minimize"), "state": _state_data(opt)}
    with _explained(path):
        try:
            with part.open("w", encoding="ascii") as file:
                json.dump(data, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
        _settle(path.parent)


def _settle(folder: Path) -> None:
    """The new name is on the disk too, where folders can be asked for that."""
    with suppress(OSError):
        where = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(where)
        finally:
            os.close(where)


def _state_data(opt: Optimizer) -> dict[str, Any]:
    packing, memory = opt.space.family, opt._cache
    late = [[id, each.iteration, each.position] for id, each in opt._late.items()]
    codes = np.array([each.code for each in opt._late.values()]) if late else opt._initial_points[:0]
    return {
        "algorithm": state_data(opt.algorithm, opt._state),
        "initial_points": _packed(packing, opt._initial_points),
        "iteration": _iteration_data(packing, opt._iteration, opt._initial_points),
        "recent": [_iteration_data(packing, each, opt._initial_points) for each in opt._recent],
        "late": late,
        "late_codes": _packed(packing, codes),
        "again": opt._again,
        "best": None if opt._best is None else _best_data(packing, opt._best),
        "memory": None if memory is None else _memory_data(*memory.contents()),
        "stale": opt._stale,
        "nit": opt.nit,
        "nfev": opt.nfev,
        "failures": opt.failures,
        "failure": opt.failure,
    }


def _iteration_data(packing: Family, iteration: Iteration, none: Points) -> dict[str, Any]:
    codes = iteration.codes if iteration.drawn else none[:0]
    return {
        "first": iteration.first,
        "size": iteration.size,
        "n_initial_points": iteration.n_initial_points,
        "codes": _packed(packing, codes),
        "f": text(iteration._f),
        "fate": b64encode(bytes(iteration._fate)).decode(),
    }


def _best_data(packing: Family, best: tuple[float, int, Points]) -> dict[str, Any]:
    value, id, code = best
    return {"value": text(np.array([value])), "id": id, "code": _packed(packing, code[None])}


def _memory_data(values: dict[bytes, float], out: dict[bytes, list[int]]) -> dict[str, Any]:
    return {
        "points": b64encode(b"".join(values)).decode(),
        "values": text(np.array([*values.values()])),
        "out": b64encode(b"".join(out)).decode(),
        "waiting": [*out.values()],
    }


def _packed(packing: Family, codes: Points) -> str:
    return b64encode(packing.pack(codes)).decode() if len(codes) else ""


# Reading.


def load(made: type[Optimizer], path: str | os.PathLike[str], space: Any, algorithm: Algorithm | None) -> Optimizer:
    """The optimizer that was saved."""
    path, space = Path(path), Space.of(space)
    with _explained(path):
        data = _read(path)
        identity = data.get("identity")
        if not isinstance(identity, dict):
            raise ValueError("there is no identity")
        differs = difference(identity.get("space"), space_data(space), "space", "snapshot")
        if differs:
            raise SnapshotError(f"{path}: a snapshot of another run, {differs}")
        algorithm = algorithm_of(identity.get("algorithm"), space.family) if algorithm is None else algorithm
        if algorithm is None:
            raise SnapshotError(f"{path}: the algorithm has parts of its user's own; pass it to load(algorithm=)")
        batch, deterministic = whole_at(identity, "batch", least=1), identity.get("deterministic")
        opt = made(space, algorithm, None, 0, batch, deterministic)  # type: ignore[arg-type]
        differs = difference(identity.get("algorithm"), opt._identity("minimize")["algorithm"], "algorithm", "snapshot")
        if differs:
            raise SnapshotError(f"{path}: a snapshot of another run, {differs}")
        opt._take_streams(identity)
        packing = space.family
        x0 = identity.get("x0")
        opt._x0 = None if x0 is None else packing.unpack(bytes.fromhex(x0))[0]
        _restore(opt, packing, _dict(data, "state"))
        return opt


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError("there is no such file")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"expected at most {LARGEST} bytes, got {path.stat().st_size}")
    data = parsed(path.read_text(encoding="ascii"))
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError("it is a file of another kind")
    if data.get("version") != VERSION:
        raise ValueError(f"it is of version {data.get('version')!r:.20}, and this library knows version {VERSION}")
    return data


def _restore(opt: Optimizer, packing: Family, data: dict[str, Any]) -> None:
    from .optimizer import WORDS, Late

    family = opt.algorithm.family
    opt._state = state_of(opt.algorithm, data["algorithm"], opt._x0)
    if opt.lam * family.words > WORDS:
        raise ValueError(f"lam_r: {opt.lam} samples are more than a snapshot may ask for")
    opt._initial_points = _codes(packing, data, "initial_points")
    opt._iteration = _iteration_of(packing, _dict(data, "iteration"))
    recent = [_iteration_of(packing, each) for each in listed(data, "recent")]
    opt._recent, opt._kept = deque(recent), sum(each.drawn for each in recent)
    late, codes = listed(data, "late"), _codes(packing, data, "late_codes")
    opt._late = {
        whole(id): Late(whole(nit), whole(position), code)
        for (id, nit, position), code in zip(late, codes, strict=True)
    }
    opt._again = [whole(id) for id in listed(data, "again")]
    best = data.get("best")
    if best is not None:
        opt._best = float(floats(best, "value")[0]), whole(best["id"], least=-1), _codes(packing, best, "code")[0]
    if opt._cache is not None:
        opt._cache.fill(*_memory_of(_dict(data, "memory"), opt._cache.width))
    opt._stale, opt.nit, opt.nfev, opt.failures = (whole_at(data, k) for k in ("stale", "nit", "nfev", "failures"))
    opt.failure = data.get("failure")
    if not isinstance(opt.failure, str | None):
        raise ValueError(f"failure: expected text, got {opt.failure!r:.100}")
    known = {*opt._late, *range(opt._iteration.first, opt._drawn)}
    waiting = [] if opt._cache is None else opt._cache.contents()[1].values()
    early = all(id < opt._iteration.first for id in opt._late)
    if not (early and known.issuperset(opt._again) and all(known.issuperset(each) for each in waiting)):
        raise ValueError("expected candidates that are out")


def _iteration_of(packing: Family, data: Any) -> Iteration:
    if not isinstance(data, dict):
        raise ValueError("expected an iteration")
    iteration = Iteration(whole_at(data, "first"), whole_at(data, "size", least=1), whole_at(data, "n_initial_points"))
    codes, f = _codes(packing, data, "codes"), floats(data, "f")
    fate = bytearray(octets(data, "fate"))
    if len(fate) != len(codes) or not len(f) <= len(codes) or not set(fate) <= {OUT, TOLD, CANCELLED}:
        raise ValueError("expected what became of each candidate")
    if len(codes):
        iteration.extend(codes)
        iteration._f, iteration._fate = f, fate
        iteration.missing = fate.count(OUT, 0, iteration.size) + max(iteration.size - len(codes), 0)
    return iteration


def _memory_of(data: dict[str, Any], width: int) -> tuple[dict[bytes, float], dict[bytes, list[int]]]:
    points, out = (_chunks(octets(data, name), width) for name in ("points", "out"))
    waiting = [[whole(id) for id in each] for each in listed(data, "waiting")]
    if not all(waiting):
        raise ValueError("waiting: expected somebody")
    values = floats(data, "values").tolist()
    return dict(zip(points, values, strict=True)), dict(zip(out, waiting, strict=True))


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Whatever is wrong with the file, in this library's own words."""
    try:
        yield
    except SnapshotError:
        raise
    except (OSError, MemoryError) as error:
        raise SnapshotError(f"{path}: {error or type(error).__name__}") from error
    except (ValueError, TypeError, OverflowError, LookupError, AttributeError) as error:
        raise SnapshotError(f"{path}: not a snapshot as this library writes it: {error}") from error


def _chunks(data: bytes, width: int) -> list[bytes]:
    if len(data) % width:
        raise ValueError(f"expected {width} bytes for each point")
    return [data[i : i + width] for i in range(0, len(data), width)]


def _dict(data: Any, name: str) -> dict[str, Any]:
    if not isinstance(data[name], dict):
        raise ValueError(f"{name}: expected an object")
    return data[name]


def _codes(packing: Family, data: Any, name: str) -> Points:
    return packing.unpack(octets(data, name))
