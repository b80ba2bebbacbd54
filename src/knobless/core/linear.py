"""Thompson sampling with a linear model of the objective, for noisy objectives.

The model is linear in the features of the family, which are its sufficient statistics in standard
units, and is fit to scores of the ranks of all evaluations (`linear_model.py`). A draw of the model
from its posterior distribution is minimized: an option is sampled as often as it is likely to be
the best. There is no sample size and no step length. An iteration has a twentieth as many points as
there are evaluations, all from one fit; with many parameters, whose fits take longer, a third.

Where variables interact, the best options depend on the others, and a point that combines the best
options on average may be a bad one. Every second point is therefore crossed with one of the best
evaluated points: it takes a random share of its variables from there. With few evaluations and
parameters, a model with interactions (`interaction_model.py`) is fit as well. Its probability
replaces the one half, and a draw of it chooses among several crossed points. A point that was
evaluated before is drawn again, since another one is more informative.

Under pure noise every point is uniformly distributed over bits and choices: renaming the options of
a variable in all points renames those of the next one, and leaves values that do not depend on the
points as they are.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from knobless._checks import positive_int

from .algorithm import AlgorithmInfo
from .archive import Archive
from .conditional import Conditional
from .data import listed, whole
from .families import Family, checked_family
from .interaction_model import InteractionModel
from .linear_model import LinearModel, rank_scores, words
from .rng import RNG, Stream, first_uniforms, uniforms
from .subset import resized
from .types import Array, Indices, Points, Words

# Parameters up to which a fit takes little time, so that it is repeated more often
SMALL = 50
# Numbers in the features of all evaluations, 32 MB; beyond that every second evaluation is dropped
KEPT = 2**22
ROWS = 256  # rows of the features that are added to ΦᵀΦ at once
# Evaluations with which a model with interactions is fit
FEWEST_FIT, MOST_FIT = 8, 300
POOL = 32  # points of which a draw of that model chooses one
TRIES = 8  # further draws of a point that was evaluated before
UNCROSSED = 2**32 - 1  # uniform of a point that is not crossed
# Weight of the mean features, which breaks ties in favor of the more frequent option
TIE = 1e-12


@dataclass(frozen=True)
class LinearThompson:
    """Thompson sampling with a Bayesian linear model of the ranks of all evaluations.

    Parameters
    ----------
    family : Family
        Family of the points.
    batch : int
        Least number of points per iteration.

    Notes
    -----
    The first two points are drawn from the initial distribution. A fit takes O(dim³ + n dim²)
    operations for n evaluations and comes whenever their number has grown by 5 %, or by a third
    beyond 50 parameters. The features of the evaluations take at most 32 MB: beyond that every
    second evaluation is dropped.

    The points with which others are crossed are the ln n best of n evaluations, and those with
    equal values. If these are more than a quarter of all, there are few evaluations or few
    different values, and no point is crossed.

    A model with interactions is used up to 50 parameters and for 8 to 300 evaluations. A fit takes
    O(n³) operations and comes whenever their number has grown by a fifth.

    Eigenvectors differ between implementations of LAPACK in the last bits, and with them, rarely,
    the points. `exact` is False for this reason: a journal must repeat recorded points, not draw
    them again.
    """

    family: Family
    batch: int = 1

    # a search adds its evaluations to an archive
    reads_archive: ClassVar[bool] = True
    exact: ClassVar[bool] = False
    overlaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_family(self.family)
        positive_int("batch", self.batch)

    def init(
        self,
        theta: Array | None = None,
        x0: Points | None = None,
        archive: Archive | None = None,
    ) -> LinearState:
        """Return the state before the first iteration, which reads an archive."""
        family = self.family
        theta = (
            family.initial() if theta is None else np.array(theta, dtype=float)
        )
        return LinearState(
            Archive(family, deterministic=False)
            if archive is None
            else archive,
            theta,
        )

    def lam(self, state: LinearState) -> int:
        """Return a twentieth or a third of the number of evaluations.

        Two points at first, and at least `batch`.
        """
        dim = self.family.dim
        n = state.n
        return max(
            2 - n,
            1,
            n // 20 if dim <= SMALL else max(n // 3, dim // 10),
            self.batch,
        )

    def ask(
        self,
        state: LinearState,
        rng: RNG,
        size: int | None = None,
        start: int = 0,
    ) -> Points:
        """Return minimizers of independent draws of the model, some crossed with good points."""
        return self._proposed(
            state, rng, self.lam(state) if size is None else size
        )

    def skip(
        self, state: LinearState, rng: Stream, size: int, start: int = 0
    ) -> None:
        """Advance the stream as `ask` does."""
        rng.skip(size, self.family.words if state.n < 2 else self.width + 2)

    def _proposed(self, state: LinearState, rng: RNG, size: int) -> Points:
        """Return points that draws of the model propose."""
        model = state.model
        if model is None:
            return self.family.sample(state.first, size, rng)
        width = self.width
        known = state.known
        interactions = state.interactions
        u = uniforms(rng, size, width + 2)
        # One per point, for further draws
        streams = np.ascontiguousarray(u[:, width:]).view(np.uint64)[:, 0]
        if interactions is None:
            x = self.points(state, model, u[:, :width])
        else:
            share = words(len(state.first)) + 1
            chosen = u[:, share] < interactions.probability_of_any * 2.0**32
            u = u.copy()
            u[:, share] = UNCROSSED
            x = self.points(state, model, u[:, :width])
            for i in np.flatnonzero(chosen).tolist():
                x[i] = self._chosen(
                    state, model, interactions, int(streams[i]), x[i]
                )
        codes = state.archive.codes
        again = [i for i, code in enumerate(codes(x)) if code in known]
        if again:
            tries = self.points(
                state,
                model,
                np.concatenate(
                    [
                        first_uniforms(key, TRIES, width)
                        for key in streams[again].tolist()
                    ]
                ),
            )
            new = [
                j for j, code in enumerate(codes(tries)) if code not in known
            ]
            for j in reversed(new):
                x[again[j // TRIES]] = tries[j]
        return x

    def _chosen(
        self,
        state: LinearState,
        model: LinearModel,
        interactions: InteractionModel,
        key: int,
        otherwise: Points,
    ) -> Points:
        """Return the best of several crossed points, by a random function with interactions."""
        u = first_uniforms(key, POOL + 1, max(self.width, POOL + 1))
        u[:POOL, words(len(state.first)) + 1] >>= 1  # all of them are crossed
        pool = self.points(state, model, u[:POOL, : self.width])
        values = interactions.draw(
            self.family.features(pool), u[POOL, : POOL + 1]
        )
        new = [
            i
            for i, code in enumerate(state.archive.codes(pool))
            if code not in state.known
        ]
        return pool[min(new, key=values.__getitem__)] if new else otherwise

    @property
    def width(self) -> int:
        """Number of 32-bit uniforms per point."""
        return (
            words(len(self.family.initial()))
            + 2
            + -(-self.family.variables // 4)
        )

    def points(
        self, state: LinearState, model: LinearModel, u: Words
    ) -> Points:
        """Return the points for given uniforms, whether they were evaluated before or not.

        `u` has for each point the uniforms of a draw, one for the elite, one for the share of the
        draw, and one byte per variable.
        """
        family = self.family
        end = words(len(state.first))
        best = state.elites
        w = model.draw(u[:, :end])
        if best is None:
            return family.minimizer(w)
        elite = best[
            (u[:, end].astype(np.uint64) * np.uint64(len(best)))
            >> np.uint64(32)
        ]
        # Every second one is above 1
        share = 2.0 * (u[:, end + 1] + 0.5) * 2.0**-32
        where = np.ascontiguousarray(u[:, end + 2 :]).view(np.uint8)[
            :, : family.variables
        ]
        excess = where + 0.5 - 256.0 * share[:, None]
        if not isinstance(family, Conditional):
            return _crossed(family, family.minimizer(w), elite, excess)
        # What the crossing makes active has a value in the draw, but not always in the elite.
        full = family.full_minimizer(w)
        return family.canonical(
            _crossed(
                family,
                full,
                np.where(family.active(elite), elite, full),
                excess,
            )
        )

    def tell(self, state: LinearState, x: Points, f: Array) -> LinearState:
        """Return the same state, which reads the archive."""
        return state

    def inject(self, state: LinearState, x: Points, f: float) -> LinearState:
        """Return the same state: the archive has the points of other algorithms."""
        return state

    def can_yield(self, state: LinearState) -> bool:
        """Return True: an iteration depends on the archive alone."""
        return True

    def data(self, state: LinearState) -> dict[str, Any]:
        """Return the state as plain data, without the archive."""
        return {"rows": state.kept.tolist()}

    def restore(self, state: LinearState, data: Any) -> LinearState:
        """Return the state that `data` described, given a state of the same archive."""
        rows = [whole(row) for row in listed(data, "rows")]
        first = state.archive.dropped
        end = state.archive.dropped + len(state.archive)
        if (
            rows != sorted(set(rows))
            or (rows and not first <= rows[0] <= rows[-1] < end)
            or len(rows) > state.most
        ):
            raise ValueError(
                f"rows: expected at most {state.most} increasing numbers of evaluations"
            )
        state.read(rows)
        return state

    def best_point(self, state: LinearState) -> Points:
        """Return the point that minimizes the posterior mean.

        Before two evaluations it is the most probable initial point.
        """
        if state.model is None:
            return self.family.mode(state.first)
        return _minimizer(self.family, state.model)

    def info(self, state: LinearState) -> AlgorithmInfo:
        """Return θ and λ; ε and the signal-to-noise ratio are NaN."""
        return AlgorithmInfo(
            state.theta, self.lam(state), math.nan, math.nan, math.nan
        )

    def at_least(self, lam: int) -> Self:
        """Return the same algorithm with at least `lam` points per iteration."""
        return replace(self, batch=max(self.batch, lam))


class LinearState:
    """State of `LinearThompson`: features of the evaluations, and a model that is fit on demand.

    Notes
    -----
    The archive has the evaluations; this has their features. The model depends on the evaluations
    alone: ΦᵀΦ is the sum over blocks of a fixed number of rows, so it does not depend on when they
    were added.
    """

    def __init__(self, archive: Archive, theta: Array) -> None:
        self.archive = archive
        self.family = archive.family
        self.first = theta
        self.most = most_evaluations(self.family)  # that are kept
        self._read = 0  # rows of the archive that were read
        # Of the archive that are kept, counted from the first evaluation
        self._rows = np.empty(0, dtype=np.intp)
        self._used = 0
        self._phi = np.empty((0, len(theta)))
        self._prior = _prior_mean(self.family, theta)
        self._known: set[bytes] = set()
        self._forget()

    def _forget(self) -> None:
        """Drop what was computed from the rows."""
        self._blocks = 0  # of rows that are part of _gram
        self._gram: Array | None = None
        self._interactions: InteractionModel | None = None
        self._changed()

    def _changed(self) -> None:
        self._model: LinearModel | None = None
        self._theta: Array | None = None
        self._elites: Points | None = None

    @property
    def n(self) -> int:
        """Number of evaluations that are kept."""
        archive = self.archive
        end = archive.dropped + len(archive)
        if self._read < end:
            if self._used and self._rows[0] < archive.dropped:
                kept = self._rows[: self._used] >= archive.dropped
                self._rows = self._rows[: self._used][kept]
                self._phi = self._phi[: self._used][kept]
                self._used = len(self._rows)
                self._forget()
            self.read(range(max(self._read, archive.dropped), end))
        return self._used

    @property
    def kept(self) -> Indices:
        """The evaluations that are kept, counted from the first one."""
        n = self.n  # before the rows, which it may replace
        return self._rows[:n]

    def read(self, rows: Any) -> None:
        """Add evaluations of the archive, given by their numbers.

        Of too many every second one is dropped.
        """
        archive = self.archive
        rows = np.array(rows, dtype=np.intp)
        self._read = archive.dropped + len(archive)
        self._changed()
        while len(rows):
            room = self.most + 1 - self._used
            self._extend(rows[:room])
            rows = rows[room:]
            if self._used > self.most:
                # Every second one, not the older half: late points hardly vary, and the model
                # depends on early ones.
                half = slice((self._used - 1) % 2, self._used, 2)
                self._rows, self._phi = (
                    self._rows[half].copy(),
                    self._phi[half].copy(),
                )
                self._used = len(self._rows)
                self._known = set(
                    map(archive.code, (self._rows - archive.dropped).tolist())
                )
                self._forget()

    def _extend(self, rows: Indices) -> None:
        """Add evaluations for which there is room."""
        places = (rows - self.archive.dropped).tolist()
        start = self._used
        end = self._used + len(rows)
        if end > len(self._rows):
            size = max(end, 2 * start, 64)
            self._rows, self._phi = (
                _grown(self._rows, start, size),
                _grown(self._phi, start, size),
            )
        self._rows[start:end] = rows
        self._phi[start:end] = self.family.features(self.archive.at(places))
        self._known.update(map(self.archive.code, places))
        self._used = end

    @property
    def f(self) -> Array:
        """Values of the evaluations."""
        return self.archive.f[self.kept - self.archive.dropped]

    def _at(self, which: Any) -> Points:
        """Return some of the points."""
        return self.archive.at(
            (self.kept[which] - self.archive.dropped).tolist()
        )

    @property
    def model(self) -> LinearModel | None:
        """The model of all evaluations; None before there are two."""
        if self.n > 1 and self._model is None:
            phi = self._phi[: self.n]
            gram = self._products() if self.n > self._phi.shape[1] else None
            self._model = LinearModel.fit(
                phi, rank_scores(self.f), self.family.dim, self._prior, gram
            )
        return self._model

    @property
    def interactions(self) -> InteractionModel | None:
        """The model with interactions of the first evaluations, if their number is suitable.

        It is fit anew whenever the number of evaluations has grown by a fifth.
        """
        if not _has_interactions(self.family, self.n):
            return None
        n = FEWEST_FIT
        while n + n // 5 <= self.n:
            n += n // 5
        if self._interactions is None or len(self._interactions.phi) != n:
            self._interactions = InteractionModel.fit(
                self._phi[:n].copy(), rank_scores(self.f[:n]), self.family.dim
            )
        return self._interactions

    def _products(self) -> Array:
        """Return ΦᵀΦ for the features before centering."""
        if self._gram is None:
            self._gram = np.zeros((self._phi.shape[1],) * 2)
        for i in range(self._blocks, self.n // ROWS):
            rows = self._phi[i * ROWS : (i + 1) * ROWS]
            self._gram += rows.T @ rows
        self._blocks = self.n // ROWS
        remainder = self._phi[self._blocks * ROWS : self.n]
        return self._gram + remainder.T @ remainder

    @property
    def known(self) -> Set[bytes]:
        """Packed points of the evaluations."""
        return self._known if self.n else frozenset()

    @property
    def elites(self) -> Points | None:
        """The ln n best points, and those with equal values.

        None if these are more than a quarter of all.
        """
        if self.n and self._elites is None:
            f = np.where(self.f == self.f, self.f, np.inf)
            at = math.ceil(math.log(self.n)) - 1
            threshold = np.partition(f, at)[at]
            self._elites = self._at(f <= threshold)
        if self._elites is None or 4 * len(self._elites) > self.n:
            return None
        return self._elites

    @property
    def theta(self) -> Array:
        """Mean of the statistics of the newest quarter of the evaluations, within the margins."""
        n = self.n
        if self._theta is None:
            newest = slice(n - -(-n // 4), n)
            mean = (
                self.family.statistics(self._at(newest)).mean(axis=0)
                if n
                else self.first
            )
            self._theta = self.family.move(self.first, mean - self.first)
        return self._theta

    def copy(self, archive: Archive) -> LinearState:
        """Return a state that reads a copy of the archive."""
        copy = LinearState(archive, self.first.copy())
        copy.read(self.kept)
        return copy


def _grown(rows: Points, n: int, size: int) -> Points:
    """Return an array with room for `size` rows that begins with the first n of these."""
    grown = np.empty((size, *rows.shape[1:]), rows.dtype)
    grown[:n] = rows[:n]
    return grown


def _prior_mean(family: Family, theta: Array) -> Array:
    """Return the prior mean of the weights in units of τ, for which sampling begins close to P_θ.

    The least of ln(1/p) plus Gumbel noise is option i with probability p_i. The noise here is
    normal with variance 1, not π²/6. For uniform distributions the mean is zero, as for numbers.
    """
    mean = np.zeros(len(theta))
    for i, k in enumerate(family.options.tolist()):
        if k:
            columns = slice(
                (at := family.parameters(i)).start, at.stop, at.step
            )
            p = theta[columns]
            if (p != 1.0 / k).any():
                log = np.log(p if len(p) == k else [1.0 - p[0], p[0]])
                shift = (
                    log - log.mean()
                    if len(p) == k
                    else (log[1:] - log[0]) * 0.5**0.5
                )
                mean[columns] = shift * (-(6.0**0.5) / math.pi)
    return mean


def _crossed(family: Family, x: Points, elite: Points, excess: Array) -> Points:
    """Return x where `excess` is negative, else the elite.

    The nearest to zero are swapped if a subset needs it.
    """
    crossed = np.where(excess < 0.0, x, elite)
    bounds = family.size_bounds
    if bounds:
        return resized(
            crossed, bounds, np.where(x != elite, np.abs(excess), np.inf)
        )
    return crossed


def _minimizer(family: Family, model: LinearModel) -> Points:
    """Return the minimizer of the posterior mean."""
    return family.minimizer((model.weights - TIE * model.center)[None])[0]


def most_evaluations(family: Family) -> int:
    """Return the maximum number of evaluations that a model is fit to: at least two per feature.

    Its features take 32 MB.
    """
    features = len(family.initial())
    return max(KEPT // features, 2 * features)


def recommend(family: Family, x: Points, f: Array) -> Points:
    """Return the point with the lowest expected rank, by the linear model of all evaluations.

    The point may be one that was not evaluated.
    """
    return _minimizer(
        family, LinearModel.fit(family.features(x), rank_scores(f), family.dim)
    )


def recommend_evaluated(family: Family, x: Points, f: Array) -> Points | None:
    """Return the evaluated point with the lowest expected rank, by the model with interactions.

    It is None where the search does not use this model.
    """
    if not _has_interactions(family, len(f)):
        return None
    phi = family.features(x)
    best: Points = x[
        InteractionModel.fit(phi, rank_scores(f), family.dim).mean(phi).argmin()
    ]
    return best


def _has_interactions(family: Family, n: int) -> bool:
    """Return whether a model with interactions is fit to n evaluations.

    The fit takes O(n³) operations.
    """
    return family.dim <= SMALL and FEWEST_FIT <= n <= MOST_FIT


def estimate(
    family: Family, x: Points, f: Array, at: Points
) -> tuple[Array, Array]:
    """Return expected values at points and their standard errors, by the linear model.

    At least two values must be finite; the others are ignored.
    """
    finite = np.isfinite(f)
    f = f[finite]
    # Large values would overflow when squared
    scale = float(np.abs(f).max()) or 1.0
    mean, std = LinearModel.fit(
        family.features(x[finite]), f / scale, family.dim
    ).predict(family.features(at))
    with np.errstate(over="ignore"):
        return mean * scale, std * scale
