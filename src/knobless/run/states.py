"""States of algorithms as plain data, for snapshots.

A state of the loop is its numbers. That of P3 is what it was told: the key of its random numbers and the values, from
which it is made again. That of a portfolio is its members' and who has earned what.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from typing import Any

import numpy as np

from knobless.core.adaptation import Signal
from knobless.core.algorithm import Algorithm
from knobless.core.elitism import Elite
from knobless.core.families import Family
from knobless.core.igo import IGO, State
from knobless.core.p3 import P3, Pyramid
from knobless.core.portfolio import Portfolio, PortfolioState
from knobless.core.types import Array, Points

MOST = 2**53  # of a count


def state_data(algorithm: Algorithm, state: Any) -> dict[str, Any]:
    """What `state_of` makes a state of again; TypeError for an algorithm that is not this library's own."""
    match algorithm:
        case IGO():
            theta, (s, gamma, lam_r), elite = state
            data = {"theta": text(theta), "s": text(s), "gamma": float(gamma), "lam_r": float(lam_r)}
            return data | {"elite": _elite_data(elite, algorithm.family)}
        case P3():
            return {"key": None if state.stream is None else state.stream.key, "told": text(np.array(state.told))}
        case Portfolio(members=members):
            each = zip(members, state.members, strict=True)
            return {
                "members": [state_data(member, theirs) for member, theirs in each],
                "turn": state.turn,
                "idle": list(state.idle),
                "best": _elite_data(state.best, algorithm.family),
                "owner": state.owner,
            }
    raise TypeError(f"algorithm: expected one of this library's own, whose state can be saved, got {algorithm!r:.100}")


def state_of(algorithm: Algorithm, data: Any, x0: Points | None) -> Any:
    """A state as it was; ValueError where it cannot have been one."""
    if not isinstance(data, dict):
        raise ValueError("expected the state of an algorithm")
    match algorithm:
        case IGO():
            return _loop_state(algorithm, data)
        case P3():
            return _pyramid(algorithm.init(x0=x0), data)
        case Portfolio(members=members):
            n = len(members)
            theirs, idle = listed(data, "members"), tuple(whole(each) for each in listed(data, "idle"))
            turn, owner = count(data, "turn"), count(data, "owner")
            if len(theirs) != n or len(idle) != n or turn >= n or owner >= n:
                raise ValueError(f"members: expected the states of {n}")
            states = tuple(state_of(member, each, x0) for member, each in zip(members, theirs, strict=True))
            return PortfolioState(states, turn, idle, _elite_of(data["best"], algorithm.family), owner)
    raise TypeError(f"algorithm: expected one of this library's own, whose state can be read, got {algorithm!r:.100}")


def _loop_state(algorithm: IGO, data: dict[str, Any]) -> State:
    family, fresh = algorithm.family, algorithm.init()
    theta, s = floats(data, "theta"), floats(data, "s")
    gamma, lam_r = finite(data, "gamma"), finite(data, "lam_r")
    if theta.shape != fresh.theta.shape or s.shape != fresh.signal.s.shape:
        raise ValueError(f"theta: expected {len(fresh.theta)} parameters, got {len(theta)}")
    with np.errstate(all="ignore"):
        moved = family.move(theta, np.zeros(len(theta)))
        if not (np.abs(moved - theta) <= 1e-9).all() or not math.isfinite(family.entropy(theta)):
            raise ValueError("theta: expected parameters of a distribution")
        if not np.isfinite(s).all() or gamma < 0.0 or lam_r < 0.0:
            raise ValueError("expected a signal of finite numbers")
    return State(theta, Signal(s, gamma, lam_r), _elite_of(data["elite"], family))


def _pyramid(fresh: Pyramid, data: dict[str, Any]) -> Pyramid:
    key, told = data["key"], floats(data, "told")
    if (key is None and len(told)) or len(told) % fresh.climbers or np.isnan(told).any():
        raise ValueError("told: expected the values of all climbers")
    return fresh.again(None if key is None else whole(key, most=2**64 - 1), told.tolist())


def _elite_data(elite: Elite, family: Family) -> dict[str, Any]:
    return {"x": b64encode(family.pack(elite.x)).decode(), "f": text(elite.f)}


def _elite_of(data: Any, family: Family) -> Elite:
    elite = Elite(family.unpack(octets(data, "x")), floats(data, "f"))
    if not len(elite.x) == len(elite.f) <= 1:
        raise ValueError("elite: expected at most one point with its value")
    return elite


# Fields of JSON, checked.


def text(values: Array) -> str:
    """The bytes of an array."""
    return b64encode(values.astype("<f8").tobytes()).decode()


def floats(data: Any, name: str) -> Array:
    """The array of `text`."""
    return np.frombuffer(octets(data, name), dtype="<f8").astype(float)


def octets(data: Any, name: str) -> bytes:
    """Bytes in base 64."""
    if not isinstance(data[name], str):
        raise ValueError(f"{name}: expected bytes")
    return b64decode(data[name], validate=True)


def listed(data: Any, name: str) -> list[Any]:
    """A list."""
    if not isinstance(data[name], list):
        raise ValueError(f"{name}: expected a list")
    return data[name]


def count(data: Any, name: str, least: int = 0) -> int:
    """A whole number by its name."""
    try:
        return whole(data[name], least)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def whole(value: Any, least: int = 0, most: int = MOST) -> int:
    """A whole number within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"expected an integer of at least {least}, got {value!r:.100}")
    return value


def finite(data: Any, name: str) -> float:
    """A finite number."""
    value = data[name]
    if type(value) is not float or not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, got {value!r:.100}")
    return value
