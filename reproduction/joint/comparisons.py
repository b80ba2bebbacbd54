"""Comparisons of settings by their test errors, and claims about them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from knobless.core.types import Array
from reproduction.claims import Claim
from reproduction.measure import quantile

from .settings import ADAPTIVE, DYNAMIC, EARLY, END, OTHER_ESTIMATORS, SIGNIFICANCE, ErrorQuartiles, label
from .trials import TrialsBySetting


def quartiles(values: Iterable[float]) -> ErrorQuartiles:
    """Return the median, the lower and the upper quartile."""
    kept = list(values)
    return ErrorQuartiles(*(quantile(kept, q) for q in (0.5, 0.25, 0.75)))


def rank_sum(a: Array, b: Array) -> float:
    """Return the two-sided p of Wilcoxon's rank-sum test: normal approximation, corrected for ties and continuity."""
    both = np.concatenate([a, b])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    m, n, total = len(a), len(b), len(both)
    ties = float((counts**3 - counts).sum()) / (total * (total - 1))
    spread = math.sqrt(m * n / 12 * (total + 1 - ties))
    away = abs(float(ranks[:m].sum()) - m * (total + 1) / 2) - 0.5
    return math.erfc(max(away, 0.0) / spread / math.sqrt(2)) if spread else 1.0


def lower(a: Array, b: Array) -> bool | None:
    """Return whether the median of a is below that of b; None if they may differ by chance."""
    if rank_sum(a, b) >= SIGNIFICANCE or np.median(a) == np.median(b):
        return None
    return bool(np.median(a) < np.median(b))


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """Return False if one is False, True if all are True, else None."""
    known = list(verdicts)
    return False if False in known else None if None in known or not known else True


def ahead(found: TrialsBySetting, first: str, second: str, shares: Sequence[float], claim: str) -> Claim:
    """Check the claim that one setting has the lower test error, at given shares of the updates."""
    when = (
        "at the end" if shares == END else "at " + " and at ".join(f"{100 * s:g} %" for s in shares) + " of the updates"
    )
    criterion = f"the median test error of {label(first)} is below that of {label(second)} {when}, p < {SIGNIFICANCE:g}"
    if missing := not_run(found, first, second):
        return Claim(claim, criterion, missing, None)
    a, b = found[first], found[second]
    verdicts, words = [], []
    for share in shares:
        i, j = a.place(share), b.place(share)
        x, y = a.error[:, i], b.error[:, j]
        verdicts.append(lower(x, y))
        words.append(f"{np.median(x):.3f} against {np.median(y):.3f} after {a.at[i]:,.0f} ({chance(x, y)})")
    return Claim(claim, criterion, "; ".join(words), all_of(verdicts))


def claims_of_estimators(found: TrialsBySetting) -> list[Claim]:
    """Compare the adaptive methods with the other estimators that were run."""
    claim = "({} is ahead of another estimator at the end: {}.)"
    others = [other for other in OTHER_ESTIMATORS if other in found]
    return [ahead(found, s, other, END, claim.format(label(s), label(other))) for s in ADAPTIVE for other in others]


def chance(a: Array, b: Array) -> str:
    """Format the p of the difference of two samples."""
    p = rank_sum(a, b)
    return f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"


def not_run(found: TrialsBySetting, *settings: str) -> str:
    """Name the settings that are missing; empty if none is."""
    names = [label(setting) for setting in settings if setting not in found]
    return f"not run: {', '.join(names)}" if names else ""


def dynamic(found: TrialsBySetting, setting: str, claim: str) -> Claim:
    """Check the claim that λ_r changes during training, beyond its initial growth from 2."""
    begin = EARLY[0]
    criterion = (
        f"from {100 * begin:g} % of the updates on, the largest λ_r of a trial is {DYNAMIC:g} times the smallest"
    )
    if missing := not_run(found, setting):
        return Claim(claim, criterion + " in the median", missing, None)
    trials = found[setting]
    lam = trials.lam_r[:, trials.place(begin) :]
    factor = float(np.median(lam.max(axis=1) / lam.min(axis=1)))
    first, last, most = (float(np.median(lam[:, i])) for i in (0, -1, int(np.median(lam, axis=0).argmax())))
    words = f"{factor:.2g} times; the median λ_r is {first:.3g} there, {most:.3g} at most, {last:.3g} at the end"
    return Claim(claim, criterion + " in the median", words, factor >= DYNAMIC)
