"""The tags of trials that are sampled jointly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

from optuna.trial import FrozenTrial

TAG = "knobless"  # the system attribute


class Call(NamedTuple):
    """What an optimizer was told and asked for one trial, as its tag records.

    Attributes
    ----------
    space : str
        What the space is known by.
    seed : int
        The seed of the optimizer.
    told : tuple of int
        The trials that it was told before it was asked.
    candidate : int or None
        The id of the candidate; None if there was nothing left to ask for.
    code : tuple of float
        Its point.
    """

    space: str
    seed: int
    told: tuple[int, ...]
    candidate: int | None
    code: tuple[float, ...]


def call_of(trials: Sequence[FrozenTrial], number: int) -> Call | None:
    """Return the call of the trial of this number.

    None if its tag is no call, or that of another trial.
    """
    tag = trials[number].system_attrs.get(TAG)
    if not (
        isinstance(tag, dict)
        and {*tag} == {"number", *Call._fields}
        and tag["number"] == number
    ):
        return None
    n_told = tag["told"]
    code = tag["code"]
    candidate = tag["candidate"]
    lists = isinstance(n_told, (list, tuple)) and isinstance(
        code, (list, tuple)
    )
    if not (
        lists
        and isinstance(tag["space"], str)
        and _are_counts(tag["seed"], *n_told)
    ):
        return None
    if not (
        (candidate is None or _are_counts(candidate))
        and all(map(_is_finite, code))
    ):
        return None
    return Call(
        tag["space"], tag["seed"], tuple(n_told), candidate, tuple(code)
    )


def tag_of(trials: Sequence[FrozenTrial], number: int) -> dict[str, Any] | None:
    """Return the tag of the trial of this number.

    None if it has none, a malformed one, or that of another trial.

    A retry has the tag of the trial that failed.
    """
    attrs = trials[number].system_attrs
    tag = attrs.get(TAG)
    if not _is_tag(tag):
        return None
    retried = (
        tag["number"] < number
        and "failed_trial" in attrs
        and trials[tag["number"]].system_attrs.get(TAG) == tag
    )
    return tag if tag["number"] == number or retried else None


def _is_tag(tag: Any) -> TypeGuard[dict[str, Any]]:
    if not (
        isinstance(tag, dict)
        and _are_counts(tag.get("iteration"), tag.get("number"))
    ):
        return False
    if "opened" not in tag:
        return True
    code = tag.get("code")
    if not (
        _are_counts(tag["opened"])
        and isinstance(code, list)
        and all(map(_is_finite, code))
    ):
        return False
    if tag["opened"] != tag["number"]:
        return True
    if not _are_counts(tag.get("size")):
        return False
    if tag["iteration"] == 0:
        x0 = tag.get("x0")
        return isinstance(tag.get("identity"), dict) and (
            x0 is None or (_are_counts(x0) and x0 < tag["number"])
        )
    learned = tag.get("learned")
    identity = tag.get("identity", {})
    return (
        _are_counts(tag.get("after"))
        and isinstance(learned, list)
        and _are_counts(*learned)
        and type(identity) is dict
    )


def _are_counts(*values: Any) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
