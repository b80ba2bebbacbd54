"""The fits of a search by candidate and fold, and the table of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import FitFailedWarning

# The scores and times of one fit, as scikit-learn keeps them
Fit = dict[str, Any]


class Fits:
    """The fits of a search.

    Parameters
    ----------
    steps : sequence of range
        The folds that are run at once.
    error_score : float or "raise"
        The score of a fit that fails.
    sought : object
        The name of the score to search for, if there are several; of one that is not a name, the
        first.

    Attributes
    ----------
    by_point : dict
        For each candidate its fits, in the order of the folds; None for one that failed along with
        all others of a call, which scikit-learn does not keep.
    made : list of dict
        All fits that scikit-learn has kept.
    results : dict
        The table of all candidates, which is filled when the search ends.
    """

    def __init__(
        self, steps: Sequence[range], error_score: Any, sought: Any
    ) -> None:
        self.steps = steps
        self.error_score = error_score
        self._sought = sought
        self.by_point: dict[Any, list[Fit | None]] = {}
        self.made: list[Fit] = []
        self.results: dict[str, Any] = {}
        # The first one in a call in which all fits failed
        self._failure: str | None = None
        self._n_added = 0

    def add(self, points: Sequence[Any], folds: range) -> list[list[float]]:
        """Add the fits of a call, which has run these folds of each candidate.

        Return their scores.
        """
        fits = self.made[self._n_added :]
        self._n_added = len(self.made)
        n = len(folds)
        return [
            self._add(point, folds, fits[i * n : (i + 1) * n])
            for i, point in enumerate(points)
        ]

    def add_failed(
        self, points: Sequence[Any], folds: range, failure: ValueError
    ) -> list[list[float]]:
        """Add a call in which all fits failed, and return their scores; raise other errors."""
        if self.error_score == "raise" or "fits failed" not in str(failure):
            raise failure
        self._failure = (
            self._failure or str(failure).partition("following error:\n")[2]
        )
        return [
            self._add(point, folds, [None] * len(folds)) for point in points
        ]

    def _add(
        self, point: Any, folds: range, fits: Sequence[Fit | None]
    ) -> list[float]:
        """Add the fits of a candidate on folds that it has not had."""
        known = self.by_point.setdefault(point, [])
        known += fits[len(known) - folds.start :]
        return [self._score(fit) for fit in fits]

    def keep(self, scores: Mapping[Any, Sequence[float]]) -> None:
        """Keep the fits with these scores: others were run at once with them."""
        self.by_point = {
            point: self.by_point[point][: len(kept)]
            for point, kept in scores.items()
        }

    def _score(self, fit: Fit | None) -> float:
        if fit is None:
            return float(self.error_score)
        scores = fit["test_scores"]
        if not isinstance(scores, dict):
            return float(scores)
        named = isinstance(self._sought, str) and self._sought in scores
        return float(scores[self._sought if named else next(iter(scores))])

    def check(self) -> None:
        """Warn of fits that failed; ValueError if all of them did."""
        fits = [fit for fits in self.by_point.values() for fit in fits]
        failures = [
            self._failure if fit is None else fit["fit_error"] for fit in fits
        ]
        failures = [failure for failure in failures if failure is not None]
        shown = f"The first failure:\n{failures[0]}" if failures else ""
        if len(failures) == len(fits):
            hint = "Set error_score='raise' to debug the error."
            raise ValueError(f"All the {len(fits)} fits failed. {hint} {shown}")
        if failures:
            counts = (
                f"{len(failures)} fits failed out of a total of {len(fits)}"
            )
            message = (
                f"{counts}, and have the score {self.error_score}. {shown}"
            )
            warnings.warn(message, FitFailedWarning, 5)

    def rows(self, n_folds: int) -> list[Fit]:
        """Return a fit for each candidate and fold; folds that were not run have scores of NaN."""
        failed = self._without_value(self.error_score)
        missing = self._without_value(np.nan)
        return [
            failed if fit is None else fit
            for fits in self.by_point.values()
            for fit in (*fits, *[missing] * (n_folds - len(fits)))
        ]

    def _without_value(self, score: float) -> Fit:
        """Return a fit whose scores are all this number, and whose times are not known."""
        fit: Fit = dict.fromkeys(self.made[0], np.nan)
        for name in {"test_scores", "train_scores"} & fit.keys():
            scores = self.made[0][name]
            fit[name] = (
                dict.fromkeys(scores, score)
                if isinstance(scores, dict)
                else score
            )
        return fit
