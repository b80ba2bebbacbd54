"""A study that tests whether an objective is quadratic in bits, and then minimizes it.

The values of a point and of the points that differ from it in one or two bits determine a quadratic
function of n bits: N = 1 + n (n + 1) / 2 values. When a search has made half as many evaluations, a
few tests at its best point show whether the objective is quadratic (`quadratic.py`). If so, the
neighbors of that point are evaluated, and then the minimum of the model. A quadratic objective thus
takes about 1.5 N evaluations, and one that the search minimizes with fewer than N / 2 costs nothing
more. Other objectives cost the evaluations of a test, 7 in most cases.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from knobless._checks import positive_int

from .archive import elite_data, elite_of
from .conditional import Conditional
from .data import floats, text, whole_at
from .elitism import Elite
from .families import Family, checked_family
from .quadratic import (
    PARTS,
    PER_TEST,
    Quadratic,
    block_sizes,
    flipped,
    is_quadratic,
    neighbors,
    tests,
)
from .rng import RNG, Stream
from .types import Array, Points
from .violation import is_feasible

TESTING, LEARNING, MINIMIZING = range(3)


class Study(NamedTuple):
    """The evaluations that determine a quadratic function.

    Attributes
    ----------
    x : array
        The point of the tests, whose neighbors are evaluated.
    center : float
        Its value.
    stage : int
        `TESTING` whether the objective is quadratic, `LEARNING` the values of the neighbors, or
        `MINIMIZING` the model.
    f : array
        Values of the tests so far, later those of the neighbors.
    points : array
        The next points.
    """

    x: Points
    center: float
    stage: int
    f: Array
    points: Points

    @classmethod
    def of(
        cls, x: Points, center: float, stage: int, f: Array, batch: int
    ) -> Study:
        """Return a study with its next points.

        These are 7 points of a test, n neighbors (at least `batch`), or minima of the model.
        """
        # The same for a bit and a choice of two
        n = len(x)
        key = zlib.crc32(x.astype(np.int8).tobytes())
        if stage == TESTING:
            # The next test alone: most objectives fail the first one.
            flips = tests(n, key)[len(f) : len(f) + PER_TEST]
        elif stage == LEARNING:
            # The next n of the N − 1 = n (n + 1)/2 neighbors.
            flips = neighbors(n, len(f), max(n, batch))
        else:
            # Sums of values near the largest float
            # Values near the largest float may overflow in sums.
            with np.errstate(over="ignore", invalid="ignore"):
                flips = Quadratic(center, f).minima(key)[:batch]
        return cls(x, center, stage, f, flipped(x, flips))

    def after(self, values: Array, batch: int) -> Study | None:
        """Return the study with the values of its points.

        None if it has ended, also by an infeasible point.
        """
        n = len(self.x)
        stage = self.stage
        f = np.concatenate([self.f, values])
        if stage == MINIMIZING or not _have_values(values):
            return None
        if stage == TESTING:
            # One test that fails ends the study.
            if not is_quadratic(self.center, f):
                return None
            # All tests have passed. Their values are not those of neighbors.
            if len(f) == PER_TEST * len(block_sizes(n)):
                stage = LEARNING
                f = f[:0]
        # Every neighbor has a value: f determines the model.
        elif len(f) == n * (n + 1) // 2:
            stage = MINIMIZING
        return Study.of(self.x, self.center, stage, f, batch)

    def lowest(self, values: Array) -> Elite | None:
        """Return the best of the minima of the model, whose values are given, and of the neighbors.

        None in the stages before, and if a point failed or is infeasible.
        """
        if self.stage != MINIMIZING or not _have_values(values):
            return None
        # The best minimum of the model, or the best neighbor if that is better.
        i = int(values.argmin())
        j = int(self.f.argmin())
        if values[i] <= self.f[j]:
            return Elite(self.points[i : i + 1], values[i : i + 1])
        return Elite(
            flipped(self.x, neighbors(len(self.x), j, 1)), self.f[j : j + 1]
        )


def _have_values(f: Array) -> bool:
    """Return whether all evaluations succeeded, at feasible points."""
    return bool((np.isfinite(f) & is_feasible(f)).all())


@dataclass(frozen=True)
class QuadraticStudy:
    """Evaluations that interrupt a search over bits to test for a quadratic objective.

    Parameters
    ----------
    family : Family
        Family of the points, of bits alone.
    batch : int
        Least number of points per iteration.

    Raises
    ------
    TypeError
        If a variable has more than two options, or there are numbers, subsets or conditional
        variables.
    ValueError
        If there are fewer than three variables.

    Notes
    -----
    An iteration has the 7 points of a test, n neighbors, or the minimum of the model. If these are
    fewer than `batch`, the others are random. The study ends if one of its points fails, is
    cancelled or infeasible.

    Examples
    --------
    >>> import knobless as kl
    >>> from knobless.algorithms import QuadraticStudy
    >>> QuadraticStudy(kl.Space.of(kl.Binary(12)).family).begins_at  # half of 1 + 12 · 13 / 2
    39
    """

    family: Family
    batch: int = 1

    def __post_init__(self) -> None:
        family = checked_family(self.family)
        if (
            isinstance(family, Conditional)
            or family.size_bounds
            or (family.options != 2).any()
        ):
            raise TypeError("family: expected bits only")
        if family.variables < PARTS:
            raise ValueError(
                f"family: expected at least {PARTS} bits, got {family.variables}"
            )
        positive_int("batch", self.batch)

    @property
    def begins_at(self) -> int:
        """Number of evaluations after which the study begins: half of N."""
        # N = 1 + n (n + 1)/2 values determine a quadratic function of n bits; begin at N/2.
        n = self.family.variables
        return (1 + n * (n + 1) // 2) // 2

    def begin(self, best: Elite) -> Study | None:
        """Return the first state of the study around the best point; None if it has no value."""
        # Tests need the value of their center.
        if not len(best.f) or not _have_values(best.f):
            return None
        return Study.of(
            best.x[0], float(best.f[0]), TESTING, np.empty(0), self.batch
        )

    def lam(self, state: Study) -> int:
        """Return the number of points of the current iteration."""
        return max(len(state.points), self.batch)

    def ask(self, state: Study, rng: RNG, size: int, start: int = 0) -> Points:
        """Return points of the study, and random ones up to `size`."""
        points = state.points[start : start + size].copy()
        n_random = size - len(points)
        if n_random:
            return np.concatenate(
                [
                    points,
                    self.family.sample(self.family.initial(), n_random, rng),
                ]
            )
        return points

    def skip(
        self, state: Study, rng: Stream, size: int, start: int = 0
    ) -> None:
        """Advance the stream as `ask` does."""
        rng.skip(
            size - len(state.points[start : start + size]), self.family.words
        )

    def tell(
        self, state: Study, x: Points, f: Array
    ) -> tuple[Study | None, Elite | None]:
        """Return the study after an iteration, and the best point of the model, if any.

        The study is None if it has ended.
        """
        asked = len(state.points)
        # Fixed variables are replaced in the points; as a function of all variables the objective
        # is what it was.
        # One of them was cancelled
        if len(f) < self.lam(state) and not np.array_equal(
            x[:asked], state.points
        ):
            return None, None
        return state.after(f[:asked], self.batch), state.lowest(f[:asked])

    def at_least(self, lam: int) -> Self:
        """Return the same study with at least `lam` points per iteration."""
        return replace(self, batch=max(self.batch, lam))

    def data(self, state: Study) -> dict[str, Any]:
        """Return the state as plain data."""
        center = elite_data(
            Elite(state.x[None], np.array([state.center])), self.family
        )
        return {"center": center, "stage": state.stage, "values": text(state.f)}

    def state_of(self, data: Any) -> Study:
        """Return the state that `data` described, possibly from an untrusted file."""
        x, center = elite_of(data["center"], self.family)
        stage = whole_at(data, "stage")
        f = floats(data, "values")
        n = self.family.variables
        # Neighbors come in blocks of this size, so a state has a multiple of it.
        at_once = max(self.family.variables, self.batch)
        pairs = n * (n + 1) // 2
        # Number of values in each stage, and of values that are added at once.
        expected = {
            TESTING: range(0, PER_TEST * len(block_sizes(n)), PER_TEST),
            LEARNING: range(0, pairs, at_once),
        }
        expected[MINIMIZING] = range(pairs, pairs + 1)
        if (
            len(center) != 1
            or stage not in expected
            or len(f) not in expected[stage]
        ):
            raise ValueError("study: expected a point, a stage and its values")
        if not np.isfinite(center).all() or not np.isfinite(f).all():
            raise ValueError("study: expected finite values")
        return Study.of(x[0], float(center[0]), stage, f, self.batch)
