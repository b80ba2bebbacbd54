"""The feasible points of a run: candidates are checked, and replaced if they are infeasible.

All of this depends on the points drawn, on their ids and on complete iterations, and on the
constraints, which are called again when a journal is replayed. So the candidates of a run do not
depend on the order of arrival, and a run that is resumed has the same ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from knobless.core.conditional import Conditional
from knobless.core.families import ColumnFamily
from knobless.core.repair import Repair
from knobless.core.rng import ALL, Stream, first_uniforms
from knobless.core.subset import resized
from knobless.core.types import Array, Points
from knobless.recipes import pbil_elitist
from knobless.space.fixed import FixedVariables
from knobless.space.space import Space, shown_name

from .constraints import Constraints

# Points that are checked in search of a first feasible one
MOST_CHECKS = 10_000
REDRAWS = 20  # draws of a point with numbers before it is repaired
# The difference between the key of a run and that of its repairs
REPAIRS = 0x5851F42D4C957F2D


def sign(number: float) -> int:
    """Return 1, 0 or −1."""
    return int(number > 0) - int(number < 0)


@dataclass(slots=True)
class Feasibility:
    """The constraints and fixed variables of a run, and the repair of infeasible points."""

    space: Space
    constraints: Constraints
    fixed: FixedVariables
    checks: int = 0  # points at which the constraints were called
    repair: Repair | None = None  # None until a feasible point is known
    # The value of the target of the repair, if that is not a fixed one
    best: float = math.inf
    # Whether each sample of this iteration is filled
    filled: list[bool] = field(default_factory=list)
    # Iterations in which points that were filled had the better values, less the others
    fill_score: int = 0
    # Infeasible draws of this iteration, if there are numbers
    rejected: list[Points] = field(default_factory=list)

    @classmethod
    def of(
        cls, space: Space, constraints: Constraints, fixed: FixedVariables
    ) -> Feasibility | None:
        """Return the feasibility of a run; None if all points are feasible."""
        if not constraints.functions and not len(fixed):
            return None
        if not isinstance(space.family, ColumnFamily):
            raise TypeError(
                "constraints, fixed: expected a space of variables, got the family "
                f"{space.family!r:.200}"
            )
        return cls(space, constraints, fixed)

    def violations(self, code: Points) -> list[float]:
        """Return by how much a point violates each constraint."""
        self.checks += bool(self.constraints.functions)
        return self.constraints.violations(self.space.decode(code))

    def feasible(self, code: Points) -> bool:
        """Return whether a point is feasible."""
        return self._keeps_fixed(code) and not any(self.violations(code))

    def _keeps_fixed(self, code: Points) -> bool:
        return not len(self.fixed) or bool(
            (self.fixed.applied(code[None]) == code).all()
        )

    def are_feasible(self, codes: Points) -> NDArray[np.bool_]:
        """Return which points are feasible."""
        return np.array([self.feasible(code) for code in codes], dtype=bool)

    def require(self, code: Points, name: str) -> None:
        """ValueError if a point that the user gave is infeasible."""
        if not self._keeps_fixed(code):
            names = ", ".join(
                shown_name(self.space.names[i])
                for i in np.flatnonzero(
                    self.fixed.applied(code[None])[0] != code
                )
            )
            raise ValueError(
                f"{name}: expected a point with the values of fixed, got another one for {names}"
            )
        violated = [
            i for i, violation in enumerate(self.violations(code)) if violation
        ]
        if violated:
            shown = "; ".join(map(self.constraints.shown, violated))
            raise ValueError(
                f"{name}: expected a feasible point, got one that violates {shown}"
            )

    def start(self, code: Points) -> None:
        """Begin with a feasible point that the user gave."""
        self.repair = Repair.towards(
            self.space.family, code, self.fixed.columns, self.feasible
        )

    def replaced(
        self, codes: Points, theta: Array, key: int, first: int, n_samples: int
    ) -> Points:
        """Return points with the ids `first` and on, all of them feasible.

        The random numbers depend on the key of the run and on the id of the point. The algorithm
        learns from the first `n_samples` points.
        """
        codes = self.fixed.applied(codes)
        key = key + REPAIRS & ALL
        if not self.constraints.functions:
            return codes
        feasible = self.are_feasible(codes)
        repair = self.repair
        if repair is None:
            known = (
                codes[feasible.argmax()] if feasible.any() else self._found(key)
            )
            repair = self.repair = Repair.towards(
                self.space.family, known, self.fixed.columns, self.feasible
            )
        if feasible.all() and not repair.directed:
            return codes
        codes = codes.copy()
        has_numbers = not self.space.family.options.all()
        for i, is_feasible in enumerate(feasible.tolist()):
            word = Stream(key, first + i).word()
            # One or seven of eight feasible points are filled, whichever was better, and half of
            # them at first.
            fills = repair.directed and word >> 61 < 4 + 3 * sign(
                self.fill_score
            )
            if i < n_samples:
                self.filled.append(fills or not is_feasible)
                if has_numbers and not is_feasible:
                    self.rejected.append(codes[i].copy())
            if is_feasible:
                codes[i] = (
                    repair.fill(codes[i], self.feasible, word)
                    if fills
                    else codes[i]
                )
            else:
                drawn = self._redrawn(theta, word) if has_numbers else None
                codes[i] = (
                    repair(codes[i], self.feasible, word)
                    if drawn is None
                    else drawn
                )
        return codes

    def repaired(self, codes: Points, key: int) -> Points:
        """Return feasible points close to others; the repair has begun if one was needed before."""
        if self.repair is None and len(codes):
            self.repair = Repair.towards(
                self.space.family,
                self._found(key & ALL),
                self.fixed.columns,
                self.feasible,
            )
        repaired = [
            self.repair(code, self.feasible, key + i & ALL)
            for i, code in enumerate(codes)
            if self.repair
        ]
        return np.array(repaired) if repaired else codes

    def _redrawn(self, theta: Array, key: int) -> Points | None:
        """Return a feasible point from P_θ; None if a few draws yield none."""
        family = self.space.family
        for code in self.fixed.applied(
            family.draw(theta, first_uniforms(key, REDRAWS, family.words))
        ):
            if self.feasible(code):
                return code
        return None

    def learn(self, x: Points, f: Array) -> tuple[Points, Array]:
        """Return what the algorithm learns from the samples of an iteration.

        Points are repaired towards the best one.

        With numbers, the infeasible draws are among them and rank worst. Otherwise nothing would
        keep the distribution from moving where all points are infeasible.
        """
        repair = self.repair
        filled = np.array(self.filled, dtype=bool)
        ranked = np.where(f == f, f, math.inf)
        if repair is not None and not repair.directed and len(f):
            i = int(ranked.argmin())
            if f[i] <= self.best:
                self.best, self.repair = (
                    float(f[i]),
                    Repair(repair.family, x[i].copy()),
                )
        # No candidate was cancelled
        if len(filled) == len(f) and filled.any() and not filled.all():
            ranks = ranked.argsort(kind="stable").argsort()
            self.fill_score += sign(
                ranks[~filled].mean() - ranks[filled].mean()
            )
        if self.rejected:
            x = np.concatenate([x, self.rejected])
            f = np.concatenate([f, np.full(len(self.rejected), math.inf)])
        self.filled = []
        self.rejected = []
        return x, f

    def _found(self, key: int) -> Points:
        """Return a feasible point, found by minimizing the violation.

        ValueError if there is none among many.

        The first two have the smallest and the largest code of every variable: often all or nothing
        is feasible.
        """
        family = self.space.family
        highest = np.where(family.options > 0, family.options - 1, 1)
        corners = np.array([0 * highest, highest]).astype(family.dtype)
        corners = resized(corners, family.size_bounds, np.zeros(corners.shape))
        corners = (
            family.canonical(corners)
            if isinstance(family, Conditional)
            else corners
        )
        for code in self.fixed.applied(corners):
            if self.feasible(code):
                return code
        algorithm = pbil_elitist(family).at_least(20)
        state = algorithm.init()
        stream = Stream(key)
        scale = None
        last = self.checks + MOST_CHECKS
        lowest = math.inf
        violated = [0]
        while self.checks < last:
            codes = self.fixed.applied(algorithm.ask(state, stream))
            violations = np.array([self.violations(code) for code in codes])
            if not violations.any(axis=1).all():
                point: Points = codes[violations.any(axis=1).argmin()]
                return point
            with np.errstate(over="ignore", invalid="ignore"):
                scale = (
                    np.maximum(violations.max(axis=0), 1e-300)
                    if scale is None
                    else scale
                )
                f = np.minimum(violations / scale, 1e300).sum(axis=1)
            if f.min() < lowest:
                lowest = float(f.min())
                violated = np.flatnonzero(violations[f.argmin()]).tolist()
            state = algorithm.tell(state, codes, f)
        names = "; ".join(map(self.constraints.shown, violated))
        where = "with the values of fixed " if len(self.fixed) else ""
        raise ValueError(
            f"constraints: expected feasible points {where}in the space, got none among "
            f"{MOST_CHECKS:,} points; the "
            f"one with the least violation violates {names}"
        )
