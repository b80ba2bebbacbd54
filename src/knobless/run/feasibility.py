"""The feasible points of a run: candidates are checked before they are handed out, and repaired if they must be.

All of this depends on the points drawn, on their ids and on complete iterations, and on the constraints, which are
called again when a journal is replayed. So the candidates of a run do not depend on the order of arrival, and a run
that is resumed has the same ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from knobless.core.conditional import Conditional
from knobless.core.repair import Repair
from knobless.core.rng import ALL, Stream, first_uniforms
from knobless.core.types import Array, Points
from knobless.recipes import pbil_elitist
from knobless.space.space import Space

from .constraints import Constraints

MOST_CHECKS = 10_000  # points that are checked in search of a first feasible one
REDRAWS = 20  # draws of a point with numbers before it is repaired
REPAIRS = 0x5851F42D4C957F2D  # the difference between the key of a run and that of its repairs


@dataclass(slots=True)
class Feasibility:
    """The constraints of a run, how often they were called, and a repair of infeasible points."""

    space: Space
    constraints: Constraints
    checks: int = 0  # points at which the constraints were called
    repair: Repair | None = None  # None until a feasible point is known
    best: float = math.inf  # the value of the target of the repair, if that is not a fixed one
    rejected: list[Points] = field(default_factory=list)  # infeasible draws of this iteration, if there are numbers

    def violations(self, code: Points) -> list[float]:
        """Return by how much a point violates each constraint."""
        self.checks += 1
        return self.constraints.violations(self.space.decode(code))

    def feasible(self, code: Points) -> bool:
        """Return whether a point is feasible."""
        return not any(self.violations(code))

    def are_feasible(self, codes: Points) -> NDArray[np.bool_]:
        """Return which points are feasible."""
        self.checks += len(codes)
        points = self.space.decode_each(codes)
        return np.array([not any(self.constraints.violations(x)) for x in points], dtype=bool)

    def require(self, code: Points, name: str) -> None:
        """ValueError if a point that the user gave is infeasible."""
        violated = [i for i, violation in enumerate(self.violations(code)) if violation]
        if violated:
            shown = ", ".join(self.constraints.names[i] for i in violated)
            raise ValueError(f"{name}: expected a feasible point, got one that violates {shown}")

    def repaired(self, codes: Points, theta: Array, key: int, first: int, n_samples: int) -> Points:
        """Return points with the ids `first` and on; those that are infeasible are replaced.

        A point with numbers is drawn again from θ a few times before it is repaired. The random numbers depend on the
        key of the run and on the id of the point. The algorithm learns from the first `n_samples` points.
        """
        key = key + REPAIRS & ALL
        feasible = self.are_feasible(codes)
        if self.repair is None:
            self.repair = self._towards(codes[feasible.argmax()] if feasible.any() else self._found(key))
        repair, changed = self.repair, codes
        redraws = not self.space.family.options.all()
        for i in range(len(codes)):
            own = Stream(key, first + i).word()
            # Every second feasible point is filled: points to which bits can be added remain possible.
            fills = feasible[i] and repair.directed and own & 1
            if fills or not feasible[i]:
                changed = codes.copy() if changed is codes else changed
                drawn = self._redrawn(theta, own) if redraws and not feasible[i] else None
                if redraws and i < n_samples:
                    self.rejected.append(codes[i].copy())
                change = repair.fill if fills else repair
                changed[i] = change(codes[i], self.feasible, own) if drawn is None else drawn
        return changed

    def _redrawn(self, theta: Array, key: int) -> Points | None:
        """Return a feasible point from P_θ; None if a few draws yield none."""
        family = self.space.family
        for code in family.draw(theta, first_uniforms(key, REDRAWS, family.words)):
            if self.feasible(code):
                return code
        return None

    def start(self, code: Points) -> None:
        """Begin with a feasible point."""
        self.repair = self._towards(code)

    def _towards(self, code: Points) -> Repair:
        return Repair.towards(self.space.family, code, self.feasible)

    def learn(self, x: Points, f: Array) -> tuple[Points, Array]:
        """Return what the algorithm learns from the samples of an iteration; points are repaired towards the best one.

        With numbers, the infeasible draws are among them and rank worst. Otherwise nothing would keep the distribution
        from moving where all points are infeasible.
        """
        repair = self.repair
        if repair is not None and not repair.directed and len(f):
            i = int(np.where(f == f, f, math.inf).argmin())
            if f[i] <= self.best:
                self.best, self.repair = float(f[i]), Repair(repair.family, x[i].copy())
        if self.rejected:
            x, f = np.concatenate([x, self.rejected]), np.concatenate([f, np.full(len(self.rejected), math.inf)])
            self.rejected = []
        return x, f

    def _found(self, key: int) -> Points:
        """Return a feasible point, found by minimizing the violation; ValueError if there is none among many.

        The first two have the least and the greatest code of every variable: often all or nothing is feasible.
        """
        family = self.space.family
        highest = np.where(family.options > 0, family.options - 1, 1)
        corners = np.array([0 * highest, highest]).astype(family.dtype)
        corners = family.canonical(corners) if isinstance(family, Conditional) else corners
        for code in corners:
            if self.feasible(code):
                return code
        algorithm = pbil_elitist(family).at_least(20)
        state, stream = algorithm.init(), Stream(key)
        scale, last = None, self.checks + MOST_CHECKS
        least, violated = math.inf, [0]
        while self.checks < last:
            codes = algorithm.ask(state, stream)
            each = np.array([self.violations(code) for code in codes])
            if not each.any(axis=1).all():
                found: Points = codes[each.any(axis=1).argmin()]
                return found
            with np.errstate(over="ignore", invalid="ignore"):
                scale = np.maximum(each.max(axis=0), 1e-300) if scale is None else scale
                f = np.minimum(each / scale, 1e300).sum(axis=1)
            if f.min() < least:
                least, violated = float(f.min()), np.flatnonzero(each[f.argmin()]).tolist()
            state = algorithm.tell(state, codes, f)
        names = ", ".join(self.constraints.names[i] for i in violated)
        raise ValueError(
            f"constraints: expected a space with feasible points, got none among {MOST_CHECKS:,} points; the one with "
            f"the least violation violates {names}"
        )
