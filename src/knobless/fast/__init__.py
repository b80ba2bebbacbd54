"""The compiled engine: whole runs without the interpreter, for compiled objectives.

    import numpy as np
    import knobless as kl
    import knobless.fast

    @knobless.fast.objective
    def changes(x):
        return np.abs(x[1:] - x[:-1]).sum()

    kl.minimize(changes, kl.Binary(1000), budget=1_000_000)

`minimize` detects compiled objectives: those made by `objective`, and `knobless.problems`. `Run`
advances a run iteration by iteration; `trials` runs many at once in threads, because compiled code
releases the interpreter lock. The algorithms are the core's: the loop, P3, and the search by P3 and
the genetic algorithm in turns. A seed gives the same run compiled or not.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knobless._checks import extra
from knobless.core.igo import IGO
from knobless.core.types import Array

with extra("fast"):
    from numba import njit, types
    from numba.core.errors import NumbaError
    from numba.experimental.function_type import _get_wrapper_address

    from .engine import plan_of
    from .kernels import KERNELS
    from .run import Run
    from .shared import BITS, OBJECTIVE, READ_ONLY_BITS, EngineFunction

__all__ = [
    "Objective",
    "Run",
    "compiled",
    "objective",
    "of_kernel",
    "plan_of",
    "trials",
]

_NO_INTS = np.empty(0, dtype=np.int64)
_NO_REALS = np.empty(0)


class Address(types.WrapperAddressProtocol):
    """The address of a compiled function, which is looked up once.

    The lookup takes numba longer than a short run.
    """

    def __init__(self, function: Any) -> None:
        self._function = function  # kept alive with its code
        address = _get_wrapper_address(function, OBJECTIVE)  # type: ignore[no-untyped-call]
        self._address: int = address

    def __wrapper_address__(self) -> int:
        return self._address

    def signature(self) -> Any:
        return OBJECTIVE


class Objective:
    """A compiled objective function of binary points, with its data.

    It can be called from Python, for one point or rows of them.

    Parameters
    ----------
    code : compiled function
        Function of a point, `ints` and `reals`, compiled by numba, or a kernel, which is compiled
        when it is used.
    ints : array of int64, optional
        Integer data of the function; none by default.
    reals : array of float64, optional
        Real data of the function; none by default.
    n : int, optional
        Number of bits that the data require; any by default.
    """

    def __init__(
        self,
        code: Any,
        ints: NDArray[np.int64] = _NO_INTS,
        reals: Array = _NO_REALS,
        n: int | None = None,
    ) -> None:
        self.code = code
        # As the engine is typed: writeable and contiguous.
        self.ints = np.require(ints, np.int64, ["C", "W"])
        self.reals = np.require(reals, np.float64, ["C", "W"])
        # Number of bits if the data require one; compiled code has no such check
        self.n = n

    @cached_property
    def function(self) -> Any:
        """The compiled function."""
        if isinstance(self.code, EngineFunction):
            return self.code.compiled
        return self.code

    @cached_property
    def address(self) -> Address:
        """The address of the compiled function."""
        return Address(self.function)

    def check(self, n: int) -> None:
        """Check that the objective is defined for points of n bits.

        Parameters
        ----------
        n : int
            Number of bits.

        Raises
        ------
        ValueError
            If the objective requires another number of bits.
        """
        if self.n is not None and n != self.n:
            raise ValueError(f"objective: expected {self.n} bits, got {n}")

    def __call__(self, x: NDArray[np.int8]) -> Any:
        x = np.ascontiguousarray(x, dtype=np.int8)
        self.check(x.shape[-1])
        if x.ndim == 1:
            return self._one(x)
        return np.array([self._one(row) for row in x])

    def __knobless_compiled__(self) -> Objective:
        return self

    def _one(self, x: NDArray[np.int8]) -> float:
        return float(self.function(x, self.ints, self.reals))

    def __repr__(self) -> str:
        return f"<compiled objective {self.function.__name__}>"


def objective(function: Callable[..., float]) -> Objective:
    """Compile an objective function of binary points.

    Parameters
    ----------
    function : callable
        Takes a point, an int8 array of zeros and ones, and returns the objective value, which is
        minimized. Arrays and numbers that it refers to are fixed when it is compiled.

    Returns
    -------
    Objective
        Callable like the function, for one point or rows of them.

    Raises
    ------
    TypeError
        If numba cannot compile the function.

    Notes
    -----
    An evaluation that raises gives NaN, a failed evaluation. A function that writes into its
    argument gets a copy. The machine code is cached on disk if the function has a file and refers
    to nothing but NumPy and `math`: numba's cache does not notice when other functions or data have
    changed.

    Examples
    --------
    >>> import numpy as np
    >>> from knobless import fast
    >>> @fast.objective
    ... def changes(x):
    ...     return np.abs(x[1:] - x[:-1]).sum()
    >>> changes(np.array([0, 1, 1, 0]))
    2.0
    """
    if not callable(function):
        raise TypeError(f"objective: expected a function, got {function!r}")
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    if len(parameters) != 1 or any(
        parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in parameters
    ):
        raise TypeError(
            "objective: expected a function of one argument, the bits, got "
            f"{function.__name__}{signature}"
        )
    keep = _is_self_contained(function)
    try:
        inner = _compiled(function, types.float64(READ_ONLY_BITS), keep)
        copies = False
    except TypeError:  # perhaps because it writes into its argument
        inner = _compiled(function, types.float64(BITS), keep)
        copies = True

    def outer(x, ints, reals):  # type: ignore[no-untyped-def]
        try:
            return inner(x.copy() if copies else x)
        # Called by address, an error would be printed and the value be 0
        except Exception:
            return np.nan

    outer.__name__ = function.__name__
    outer.__doc__ = function.__doc__
    return Objective(_compiled(outer, OBJECTIVE, keep=False))


def _is_self_contained(function: Callable[..., float]) -> bool:
    """Return whether a function refers to itself, NumPy and `math` alone."""
    if not inspect.isfunction(function) or any(
        inspect.iscode(constant) for constant in function.__code__.co_consts
    ):
        return False
    used = inspect.getclosurevars(function)
    for value in (*used.globals.values(), *used.nonlocals.values()):
        if not (
            inspect.ismodule(value)
            or inspect.isroutine(value)
            or inspect.isclass(value)
        ):
            return False
        name = value.__name__ if inspect.ismodule(value) else value.__module__
        if str(name).partition(".")[0] not in ("numpy", "math"):
            return False
    return True


def _compiled(
    function: Callable[..., float], signature: Any, keep: bool
) -> Any:
    try:
        try:
            return njit(signature, cache=keep, nogil=True)(function)
        # No file to cache it beside, as in an interactive session
        except RuntimeError:
            return njit(signature, nogil=True)(function)
    except NumbaError as error:
        raise TypeError(
            f"objective: numba cannot compile {function.__name__}: {error}"
        ) from error


@cache
def _kernel(name: str) -> EngineFunction:
    return EngineFunction(OBJECTIVE, KERNELS[name])


def compiled(fun: Any) -> Objective | None:
    """Return the compiled objective of `fun`, or None if it has none.

    Parameters
    ----------
    fun : object
        An objective. If it is compiled it has a method `__knobless_compiled__`, which returns an
        `Objective` or None.
    """
    marked = getattr(fun, "__knobless_compiled__", None)
    return None if marked is None else marked()


def of_kernel(
    n: int, name: str, ints: NDArray[np.int64], reals: Array
) -> Objective:
    """Return a kernel with its data as an objective.

    Parameters
    ----------
    n : int
        Number of bits.
    name : str
        Name of the kernel.
    ints : array of int64
        Integer data of the kernel.
    reals : array of float64
        Real data of the kernel.
    """
    return Objective(_kernel(name), ints, reals, n)


def trials(
    fun: Any,
    algorithm: IGO,
    seeds: Iterable[Any],
    *,
    budget: float,
    target: float = math.nan,
    jobs: int | None = None,
) -> Iterator[Run]:
    """Run an algorithm once per seed, in parallel threads.

    Parameters
    ----------
    fun : object
        A compiled objective or a problem of `knobless.problems`.
    algorithm : IGO
        The algorithm.
    seeds : iterable
        One seed per run.
    budget : float
        Evaluations per run.
    target : float
        Objective value that ends a run; NaN for none.
    jobs : int, optional
        Threads; the number of cores by default.

    Yields
    ------
    Run
        The finished runs in the order of the seeds.

    Raises
    ------
    TypeError
        If the objective is not compiled.
    """
    made = compiled(fun)
    if made is None:
        raise TypeError(
            f"fun: expected a compiled objective or a problem that has a kernel, got {fun!r}"
        )

    def one(seed: Any) -> Run:
        run = Run(made, algorithm, seed)
        run.go(budget, target=target)
        return run

    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        yield from pool.map(one, seeds)
