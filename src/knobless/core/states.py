"""States of algorithms as plain data, for snapshots.

The state of the loop is stored as its numbers, those of P3 and of the coordinate search as their initial θ, the key of
their random numbers and the values told, from which they are rebuilt, that of the genetic algorithm as its population,
that of the linear search as its evaluations, that of Bayesian optimization as its evaluations and shares, and that of a
portfolio or of the search of branches as the states of its members; the study of a quadratic objective as its point and
the values so far.
"""

from __future__ import annotations

import math
from base64 import b64encode
from typing import Any

import numpy as np

from .adaptation import Signal
from .algorithm import Algorithm
from .bayesian_portfolio import MOST_BAYESIAN, RANDOM_POINTS, BayesianPortfolio, BayesianState
from .branch_search import BranchSearch
from .branch_state import BranchState, Seen
from .branches import Combination
from .coordinate_search import CoordinateSearch, Descent, Injected
from .data import finite_at, floats, listed, octets, shown, text, whole, whole_at
from .elitism import Elite
from .evolution import Evolution, EvolutionState
from .families import Family, packed_rows
from .gaussian_process import LEAST_SHARE, GaussianProcess, first_shares
from .guided_portfolio import GuidedPortfolio, GuidedState
from .igo import IGO, State
from .linear import LinearState, LinearThompson
from .noisy_portfolio import NoisyPortfolio, NoisyPortfolioState
from .p3 import P3, Pyramid
from .portfolio import MemberRecord, Portfolio, PortfolioState
from .quadratic import PER_TEST, block_sizes
from .quadratic_portfolio import LEARNING, MINIMIZING, TESTING, QuadraticPortfolio, QuadraticState, Study
from .types import Array, Points

SAVED = "IGO, P3, CoordinateSearch, Evolution, LinearThompson, a portfolio or BranchSearch"


def state_data(algorithm: Algorithm, state: Any) -> dict[str, Any]:
    """Return a state as plain data, for `state_of`.

    Raises
    ------
    TypeError
        If the algorithm, or a member of a portfolio, is a custom one.
    """
    match algorithm:
        case IGO():
            theta, (s, gamma, lam_r), elite = state
            data = {"theta": text(theta), "s": text(s), "gamma": float(gamma), "lam_r": float(lam_r)}
            return data | {"elite": _elite_data(elite, algorithm.family)}
        case P3():
            key = None if state.stream is None else state.stream.key
            return {"theta": text(state.first), "key": key, "told": text(np.array(state.told))}
        case CoordinateSearch():
            key = None if state.stream is None else state.stream.key
            family, (at, x, f) = algorithm.family, (*zip(*state.injected, strict=True),) or ((), (), ())
            injected = Elite(np.array(x, family.dtype).reshape(-1, family.variables), np.array(f))
            data = {"theta": text(state.first), "key": key, "told": text(np.array(state.told)), "at": list(at)}
            return data | {"injected": _elite_data(injected, family)}
        case Evolution():
            data = {"theta": text(state.theta), "size": state.size, "idle": state.idle, "fresh": state.fresh}
            return data | {"population": _elite_data(Elite(state.x, state.f), algorithm.family)}
        case LinearThompson():
            return {"x": b64encode(algorithm.family.pack(state.x)).decode(), "f": text(state.f)}
        case NoisyPortfolio():
            return {
                "linear": state_data(algorithm.linear, state.linear),
                "loop": state.loop and state_data(algorithm.loop, state.loop),
                "n": state.n,
                "spent": list(state.spent),
            }
        case GuidedPortfolio():
            data = {"linear": state_data(algorithm.linear, state.linear), "rest": None}
            if state.rest is not None:
                data["rest"] = state_data(algorithm.rest, state.rest)
                data["x0"] = None if state.x0 is None else b64encode(algorithm.family.pack(state.x0[None])).decode()
            return data
        case BayesianPortfolio():
            if state.rest is not None:
                x0 = None if state.x0 is None else b64encode(algorithm.family.pack(state.x0[None])).decode()
                return {"rest": state_data(algorithm.rest, state.rest), "x0": x0}
            fit = state.process and {"shares": text(state.process.shares), "fitted": state.process.fitted}
            data = {"rest": None, "evaluations": _elite_data(Elite(state.x, state.f), algorithm.family), "fit": fit}
            return data | {"fixed": state.fixed.nonzero()[0].tolist()}
        case QuadraticPortfolio():
            study = state.study and _study_data(state.study, algorithm.family)
            data = {"rest": state_data(algorithm.rest, state.rest), "study": study, "ended": state.ended}
            return data | {"before": state.before}
        case BranchSearch():
            return _branches_data(algorithm, state)
        case Portfolio(members=members):
            each = zip(members, state.members, strict=True)
            return {
                "members": [state_data(member, theirs) for member, theirs in each],
                "turn": state.turn,
                "records": [_record_data(record) for record in state.records],
                "best": _elite_data(state.best, algorithm.family),
                "owner": state.owner,
            }
    raise TypeError(f"algorithm: expected {SAVED}, whose state can be saved, got {algorithm!r:.100}")


def state_of(algorithm: Algorithm, data: Any, x0: Points | None) -> Any:
    """Return the state that `state_data` described.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm of the state.
    data
        Data from `state_data`, possibly from an untrusted file.
    x0 : array or None
        The initial point of the run.

    Raises
    ------
    TypeError
        If the algorithm, or a member of a portfolio, is a custom one.
    ValueError
        If `data` is not a state of the algorithm.
    """
    if not isinstance(data, dict):
        raise ValueError("expected the state of an algorithm")
    match algorithm:
        case IGO():
            return _loop_state(algorithm, data)
        case P3():
            return _pyramid(algorithm.init(_theta(algorithm.family, data), x0), data)
        case CoordinateSearch():
            return _descent(algorithm.init(_theta(algorithm.family, data), x0), data)
        case Evolution():
            return _evolution_state(algorithm.family, data)
        case LinearThompson():
            return _history(algorithm.init(), data)
        case NoisyPortfolio():
            linear = state_of(algorithm.linear, data["linear"], x0)
            loop = None if data["loop"] is None else state_of(algorithm.loop, data["loop"], x0)
            spent = tuple(whole(each) for each in listed(data, "spent"))
            if len(spent) != 2:
                raise ValueError(f"spent: expected two numbers, got {len(spent)}")
            return NoisyPortfolioState(linear, loop, whole_at(data, "n"), spent)
        case GuidedPortfolio():
            linear = state_of(algorithm.linear, data["linear"], x0)
            if data["rest"] is None:
                return GuidedState(linear, None, x0)
            x0 = _start(data, algorithm.family)
            return GuidedState(linear, state_of(algorithm.rest, data["rest"], x0), x0)
        case BayesianPortfolio():
            if data["rest"] is None:
                return _bayesian_state(algorithm, data, x0)
            x0 = _start(data, algorithm.family)
            return algorithm.init(x0=x0)._replace(rest=state_of(algorithm.rest, data["rest"], x0))
        case QuadraticPortfolio():
            rest, ended = state_of(algorithm.rest, data["rest"], x0), data["ended"] is True
            study = None if data["study"] is None or ended else _study_of(data["study"], algorithm)
            return QuadraticState(rest, study, ended, whole_at(data, "before"))
        case BranchSearch():
            return _branches(algorithm, data)
        case Portfolio(members=members):
            n = len(members)
            theirs, records = listed(data, "members"), tuple(map(_record_of, listed(data, "records")))
            turn, owner = whole_at(data, "turn"), whole_at(data, "owner")
            if len(theirs) != n or len(records) != n or turn >= n or owner >= n:
                raise ValueError(f"members: expected the states of {n}")
            states = tuple(state_of(member, each, x0) for member, each in zip(members, theirs, strict=True))
            best = _elite_of(data["best"], algorithm.family)
            if len(best.f) > 1:
                raise ValueError(f"best: expected at most one point, got {len(best.f)}")
            return PortfolioState(states, turn, records, best, owner)
    raise TypeError(f"algorithm: expected {SAVED}, whose state can be read, got {algorithm!r:.100}")


def _start(data: dict[str, Any], family: Family) -> Points | None:
    """Return the point from which a portfolio has started."""
    start = None if data["x0"] is None else family.unpack(octets(data, "x0"))
    if start is not None and len(start) != 1:
        raise ValueError(f"x0: expected one point, got {len(start)}")
    return None if start is None else start[0]


def _bayesian_state(algorithm: BayesianPortfolio, data: dict[str, Any], x0: Points | None) -> BayesianState:
    (x, f), fit, n = _elite_of(data["evaluations"], algorithm.family), data["fit"], algorithm.family.variables
    if np.isnan(f).any() or len(f) >= MOST_BAYESIAN or len(np.unique(x, axis=0)) < len(f):
        raise ValueError(f"evaluations: expected fewer than {MOST_BAYESIAN} different points with values")
    process = None
    if (fit is None) != (len(f) < RANDOM_POINTS):
        raise ValueError(f"fit: expected one from {RANDOM_POINTS} evaluations on")
    if fit is not None:
        shares, fitted = floats(fit, "shares"), whole_at(fit, "fitted")
        if shares.shape != first_shares(n).shape or not ((shares >= LEAST_SHARE) & (shares <= 1.0)).all():
            raise ValueError("shares: expected the share of each order")
        if not 1 <= fitted <= len(f):
            raise ValueError(f"fitted: expected 1 to {len(f)}, got {fitted}")
        process = GaussianProcess.of(2.0 * x - 1.0, shares, fitted)
    fixed = [whole(each, most=n - 1) for each in listed(data, "fixed")]
    state = algorithm.init(x0=x0)._replace(x=x, f=f, process=process)
    state.fixed[fixed] = True
    return algorithm.with_points(state) if len(f) else state


def _loop_state(algorithm: IGO, data: dict[str, Any]) -> State:
    family, fresh = algorithm.family, algorithm.init()
    theta, s = _theta(family, data), floats(data, "s")
    gamma, lam_r = finite_at(data, "gamma"), finite_at(data, "lam_r")
    if s.shape != fresh.signal.s.shape or not np.isfinite(s).all() or gamma < 0.0 or lam_r < 0.0:
        raise ValueError("expected a signal of finite numbers")
    return State(theta, Signal(s, gamma, lam_r), _elite_of(data["elite"], family))


def _evolution_state(family: Family, data: dict[str, Any]) -> EvolutionState:
    size, (x, f) = whole_at(data, "size", least=1), _elite_of(data["population"], family)
    if len(f) > size or np.isnan(f).any() or (f[1:] < f[:-1]).any():
        raise ValueError(f"population: expected at most {size} points, best first")
    return EvolutionState(_theta(family, data), x, f, size, whole_at(data, "idle"), data["fresh"] is True)


def _record_data(record: MemberRecord) -> dict[str, Any]:
    return {"spent": record.spent, "values": text(np.array([*record.course, record.lowest]))}


def _record_of(data: Any) -> MemberRecord:
    spent, values = whole_at(data, "spent"), floats(data, "values")
    if len(values) != 1 + spent.bit_length() or np.isnan(values).any() or (values[1:] > values[:-1]).any():
        raise ValueError("values: expected the lowest values after 1, 2, 4, … evaluations")
    *course, lowest = values.tolist()
    return MemberRecord(spent, lowest, tuple(course))


def _study_data(study: Study, family: Family) -> dict[str, Any]:
    center = _elite_data(Elite(study.x[None], np.array([study.center])), family)
    return {"center": center, "stage": study.stage, "values": text(study.f)}


def _study_of(data: dict[str, Any], algorithm: QuadraticPortfolio) -> Study:
    (x, center), stage, f = _elite_of(data["center"], algorithm.family), whole_at(data, "stage"), floats(data, "values")
    n, each = algorithm.family.variables, max(algorithm.family.variables, algorithm.batch)
    pairs = n * (n + 1) // 2
    # Number of values in each stage, and of values that are added at once.
    expected = {TESTING: range(0, PER_TEST * len(block_sizes(n)), PER_TEST), LEARNING: range(0, pairs, each)}
    expected[MINIMIZING] = range(pairs, pairs + 1)
    if len(center) != 1 or stage not in expected or len(f) not in expected[stage]:
        raise ValueError("study: expected a point, a stage and its values")
    if not np.isfinite(center).all() or not np.isfinite(f).all():
        raise ValueError("study: expected finite values")
    return Study.of(x[0], float(center[0]), stage, f, algorithm.batch)


def _theta(family: Family, data: dict[str, Any]) -> Array:
    theta, n = floats(data, "theta"), len(family.initial())
    if len(theta) != n:
        raise ValueError(f"theta: expected {n} parameters, got {len(theta)}")
    with np.errstate(all="ignore"):
        moved = family.move(theta, np.zeros(n))
        if not (np.abs(moved - theta) <= 1e-9).all() or not math.isfinite(family.entropy(theta)):
            raise ValueError("theta: expected parameters of a distribution")
    return theta


def _pyramid(fresh: Pyramid, data: dict[str, Any]) -> Pyramid:
    key, told = data["key"], floats(data, "told")
    if (key is None and len(told)) or len(told) % fresh.climbers or np.isnan(told).any():
        raise ValueError("told: expected the values of all climbers")
    return fresh.again(None if key is None else whole(key, most=2**64 - 1), told.tolist())


def _descent(fresh: Descent, data: dict[str, Any]) -> Descent:
    key, told, (x, f) = data["key"], floats(data, "told"), _elite_of(data["injected"], fresh.family)
    at = [whole(each, least=-1) for each in listed(data, "at")]
    if (key is None and len(told)) or len(told) % fresh.climbers or np.isnan(told).any():
        raise ValueError("told: expected the values of all climbers")
    in_order = at == sorted(at) and all(each <= len(told) and (each < 0 or each % fresh.climbers == 0) for each in at)
    if len(at) != len(f) or not in_order or np.isnan(f).any():
        raise ValueError(f"at: expected {len(f)} numbers of evaluations in increasing order")
    injected = [Injected(*each) for each in zip(at, x, f.tolist(), strict=True)]
    return fresh.again(None if key is None else whole(key, most=2**64 - 1), told.tolist(), injected)


def _history(fresh: LinearState, data: dict[str, Any]) -> LinearState:
    x, f = fresh.family.unpack(octets(data, "x")), floats(data, "f")
    if len(x) != len(f) or len(f) > fresh.most:
        raise ValueError(f"f: expected one value per point and at most {fresh.most}, got {len(f)} for {len(x)} points")
    fresh.add(x, f)
    return fresh


def _branches_data(algorithm: BranchSearch, state: BranchState) -> dict[str, Any]:
    family = algorithm.family
    each = ((key, algorithm.part(key)[1], own) for key, own in state.states.items())
    return {
        "loop": state_data(algorithm.loop, state.loop),
        "linear": state_data(algorithm.linear, state.linear) if algorithm.linear and state.linear else None,
        "theta": text(state.theta),
        "spent": state.spent,
        "n": list(state.n),
        "best": text(np.array(state.best)),
        "states": [[list(key), state_data(own, theirs)] for key, own, theirs in each if own is not None],
        "seen": [[list(key), _seen_data(seen)] for key, seen in state.seen.items()],
        "turn": state.turn and [state.turn[0], list(state.turn[1])],
        "elite": _elite_data(state.elite, family),
    }


def _branches(algorithm: BranchSearch, data: dict[str, Any]) -> BranchState:
    family, fresh = algorithm.family, algorithm.init()
    loop = _loop_state(algorithm.loop, data["loop"])
    theta = _theta(family, data)
    linear = state_of(algorithm.linear, data["linear"], None) if algorithm.linear and data["linear"] else None
    n, best = tuple(whole(each) for each in listed(data, "n")), floats(data, "best")
    if len(n) != len(fresh.n) or len(best) != len(fresh.n) or np.isnan(best).any():
        raise ValueError(f"n: expected numbers for {len(fresh.n)} branches")
    states = {}
    for each in listed(data, "states"):
        key = _combination(algorithm, each[0])  # ValueError, TypeError or LookupError for anything but a pair
        own = algorithm.part(key)[1]
        if own is None:
            raise ValueError("states: expected combinations with variables")
        states[key] = state_of(own, each[1], None)
    width = family.variables * family.dtype.itemsize
    seen = {_combination(algorithm, key): _seen(each, width) for key, each in listed(data, "seen")}
    turn = data["turn"]
    if turn is not None:
        turn = whole(turn[0]), _combination(algorithm, turn[1])
        missing = algorithm.part(turn[1])[1] is not None and turn[1] not in states
        if missing or turn[0] not in algorithm.branches.contained(turn[1]):
            raise ValueError("turn: expected a branch and a combination that contains it")
    spent, elite = whole_at(data, "spent"), _elite_of(data["elite"], family)
    return BranchState(loop, linear, theta, spent, n, tuple(best.tolist()), states, seen, turn, elite)


def _seen_data(seen: Seen) -> dict[str, Any]:
    points = b64encode(b"".join(sorted(seen.points))).decode()
    return {"points": points, "repeats": seen.repeats, "restarts": seen.restarts}


def _seen(data: Any, width: int) -> Seen:
    points = packed_rows(octets(data, "points"), width)
    return Seen(frozenset(row.tobytes() for row in points), whole_at(data, "repeats"), whole_at(data, "restarts"))


def _combination(algorithm: BranchSearch, data: Any) -> Combination:
    if not isinstance(data, list) or not all(type(each) is float for each in data):
        raise ValueError("combination: expected a list of codes")
    if not algorithm.branches.has(tuple(data)):
        raise ValueError(f"combination: expected one of this space, got {shown(data)}")
    return tuple(data)


def _elite_data(elite: Elite, family: Family) -> dict[str, Any]:
    return {"x": b64encode(family.pack(elite.x)).decode(), "f": text(elite.f)}


def _elite_of(data: Any, family: Family) -> Elite:
    elite = Elite(family.unpack(octets(data, "x")), floats(data, "f"))
    if len(elite.x) != len(elite.f):
        raise ValueError(f"elite: expected {len(elite.x)} values, one for each point, got {len(elite.f)}")
    return elite
