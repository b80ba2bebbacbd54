"""Algorithms as plain data: what a journal records of an algorithm, and what it is compared with.

Components of this library are described by their names and fields and can be rebuilt. Custom components are described
by the names of their types and cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, cast

from .adaptation import SNR, Fixed, samples, steps
from .algorithm import Algorithm, Member
from .bayesian_portfolio import BayesianPortfolio
from .branch_search import BranchSearch
from .coordinate_search import CoordinateSearch
from .data import from_plain, readable_name, shown, to_plain
from .elitism import BestSoFar, LastBest, NoElitism
from .evolution import Evolution
from .families import Family
from .guided_portfolio import GuidedPortfolio
from .igo import IGO
from .linear import LinearThompson
from .noisy_portfolio import NoisyPortfolio
from .p3 import P3
from .portfolio import Portfolio
from .preferences import Quartiles, Truncation, Values
from .quadratic_portfolio import QuadraticPortfolio
from .rng import Stream

CLIMBERS = 2**20  # of P3 and CoordinateSearch, at most, in a file
BATCH = 2**20  # of other algorithms, at most, in a file
_DEPTH = 50  # of portfolios in portfolios

COMPONENTS = {each.__name__: each for each in (Quartiles, Truncation, Values, Fixed, SNR, LastBest, BestSoFar)}
FUNCTIONS: dict[str, Callable[..., Any]] = {"samples": samples, "steps": steps}


def algorithm_data(algorithm: Algorithm) -> Any:
    """Return an algorithm as plain data, without its family, which is that of the space.

    A custom component is described by the name of its type.
    """
    match algorithm:
        case IGO():
            components = {"preference": algorithm.preference, "adaptation": algorithm.adaptation}
            if not isinstance(algorithm.elitism, NoElitism):
                components["elitism"] = algorithm.elitism
            return {name: _component_data(component) for name, component in components.items()}
        case Evolution(batch=batch):
            return {"evolution": {"batch": batch}}
        case P3(climbers=climbers):
            return {"p3": {"climbers": climbers}}
        case CoordinateSearch(climbers=climbers):
            return {"coordinate_search": {"climbers": climbers}}
        case LinearThompson(batch=batch):
            return {"linear": {"batch": batch}}
        case NoisyPortfolio(linear=linear, loop=loop):
            return {"noisy_portfolio": {"linear": algorithm_data(linear), "loop": algorithm_data(loop)}}
        case GuidedPortfolio(linear=linear, rest=later):
            return {"guided_portfolio": {"linear": algorithm_data(linear), "rest": algorithm_data(later)}}
        case BayesianPortfolio(rest=later, batch=batch):
            return {"bayesian_portfolio": {"rest": algorithm_data(later), "batch": batch}}
        case QuadraticPortfolio(rest=later, batch=batch):
            return {"quadratic_portfolio": {"rest": algorithm_data(later), "batch": batch}}
        case BranchSearch(loop=loop, linear=linear, deterministic=deterministic, batch=batch):
            parts = {"loop": algorithm_data(loop), "linear": None if linear is None else algorithm_data(linear)}
            return {"branches": parts | {"deterministic": deterministic, "batch": batch}}
        case Portfolio(members=members, equal=equal):
            return {"portfolio": [algorithm_data(member) for member in members], "equal": equal}
    return {"own": readable_name(type(algorithm))}


def _component_data(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        name = name if COMPONENTS.get(name) is type(value) else readable_name(type(value))
        return {"type": name} | {each.name: _component_data(getattr(value, each.name)) for each in fields(value)}
    if callable(value):
        name = getattr(value, "__name__", "")
        return {"function": name if FUNCTIONS.get(name) is value else readable_name(value)}
    return to_plain(value)


def algorithm_of(data: Any, family: Family, depth: int = _DEPTH) -> Algorithm | None:
    """Return the algorithm that `algorithm_data` described.

    Parameters
    ----------
    data
        Data from `algorithm_data`, possibly from an untrusted file.
    family : Family
        Family of the algorithm.
    depth : int
        Maximum depth of portfolios in portfolios.

    Returns
    -------
    Algorithm or None
        None if the algorithm has custom components, which only the program of the user has.

    Raises
    ------
    ValueError
        If `data` is not the description of an algorithm.
    """
    match data:
        case {"preference": preference, "adaptation": adaptation, **rest} if rest.keys() <= {"elitism"}:
            parts = [_component_of(each) for each in (preference, adaptation, *rest.values())]
            return None if None in parts else IGO(family, *parts)
        case {"p3": {"climbers": int() as n}} if 0 < n <= CLIMBERS and type(n) is int:
            return P3(family, n)
        case {"coordinate_search": {"climbers": int() as n}} if 0 < n <= CLIMBERS and type(n) is int:
            return CoordinateSearch(family, n)
        case {"evolution": {"batch": int() as batch}} if 0 < batch <= BATCH and type(batch) is int:
            return Evolution(family, batch)
        case {"linear": {"batch": int() as batch}} if 0 < batch <= BATCH and type(batch) is int:
            return LinearThompson(family, batch)
        case {"noisy_portfolio": {"linear": linear, "loop": loop, **rest}} if not rest:
            first, second = algorithm_of(linear, family, 0), algorithm_of(loop, family, 0)
            if not isinstance(first, LinearThompson) or not isinstance(second, IGO | None):
                raise ValueError(f"expected a linear search and a loop, got {shown(data)}")
            return None if second is None else NoisyPortfolio(first, second)
        case {"guided_portfolio": {"linear": linear, "rest": later, **rest}} if not rest and depth:
            start, portfolio = algorithm_of(linear, family, 0), algorithm_of(later, family, depth - 1)
            if not isinstance(start, LinearThompson) or not isinstance(portfolio, Portfolio | None):
                raise ValueError(f"expected a linear search and a portfolio, got {shown(data)}")
            return None if portfolio is None else GuidedPortfolio(start, portfolio)
        case {"bayesian_portfolio": {"rest": later, "batch": int() as batch, **rest}} if not rest and depth:
            quadratic = algorithm_of(later, family, depth - 1)
            if type(batch) is not int or not 0 < batch <= BATCH or not isinstance(quadratic, QuadraticPortfolio | None):
                raise ValueError(f"expected a portfolio and a batch, got {shown(data)}")
            return None if quadratic is None else BayesianPortfolio(quadratic, batch)
        case {"quadratic_portfolio": {"rest": later, "batch": int() as batch, **rest}} if not rest and depth:
            portfolio = algorithm_of(later, family, depth - 1)
            if type(batch) is not int or not 0 < batch <= BATCH or not isinstance(portfolio, Portfolio | None):
                raise ValueError(f"expected a portfolio and a batch, got {shown(data)}")
            return None if portfolio is None else QuadraticPortfolio(portfolio, batch)
        case {"branches": {"loop": _, "linear": _, "deterministic": bool(), "batch": int(), **rest}} if not rest:
            return _branch_search(family, **data["branches"])
        case {"portfolio": [_, *_] as each, "equal": int() as equal, **rest} if depth and not rest:
            if type(equal) is not int:
                raise ValueError(f"equal: expected an integer, got {shown(equal)}")
            members = [algorithm_of(member, family, depth - 1) for member in each]
            return None if None in members else Portfolio(tuple(cast(list[Member], members)), equal)
        case {"own": str()}:
            return None
    raise ValueError(f"expected an algorithm, got {shown(data)}")


def _branch_search(family: Family, loop: Any, linear: Any, deterministic: bool, batch: int) -> BranchSearch | None:
    first = algorithm_of(loop, family, 0)
    second = None if linear is None else algorithm_of(linear, family, 0)
    if not isinstance(first, IGO | None) or not isinstance(second, LinearThompson | None):
        raise ValueError(f"expected a loop and a linear search, got {shown(loop)} and {shown(linear)}")
    if type(batch) is not int or not 0 < batch <= BATCH:
        raise ValueError(f"batch: expected 1 to {BATCH}, got {shown(batch)}")
    return None if first is None else BranchSearch(first, second, deterministic, batch)


def _component_of(data: Any) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"expected a component of an algorithm, got {shown(data)}")
    made = COMPONENTS.get(str(data.get("type")))
    if made is None:
        return None
    given: dict[str, Any] = {}
    for name, each in data.items():
        if isinstance(each, dict) and "function" in each:
            given[name] = FUNCTIONS.get(str(each["function"]))
            if given[name] is None:
                return None
        elif name != "type":
            given[name] = from_plain(each)
            if given[name] is not None and type(given[name]) not in (int, float):
                raise ValueError(f"{name}: expected a number, got {shown(each)}")
    if given.keys() != {each.name for each in fields(made)}:
        raise ValueError(f"{made.__name__}: expected {[each.name for each in fields(made)]}, got {list(given)}")
    return made(**given)


def stream_data(stream: Stream) -> dict[str, int]:
    """Return the state of a stream of random numbers as plain data."""
    return {"key": stream.key, "count": stream.count}


def stream_of(data: Any) -> Stream:
    """Return the stream that `stream_data` described; raise ValueError for other data."""
    if not isinstance(data, dict) or data.keys() != {"key", "count"}:
        raise ValueError(f"rng: expected key and count of a stream, got {shown(data)}")
    for name, value in data.items():
        if type(value) is not int or not 0 <= value < 2**64:
            raise ValueError(f"{name}: expected an integer from 0 to 2**64 - 1, got {shown(value)}")
    return Stream(**data)
