"""What run a file belongs to, as plain data that can be stored, read back and compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from knobless.core.data import difference

KINDS: dict[str, Any] = {
    "direction": str,
    "batch": int,
    "deterministic": bool | None,
    "x0": str | None,
    "constraints": list,
    "fixed": dict,
    "rng": dict,
    "objectives": list | None,
}


class Identity(NamedTuple):
    """The facts that determine a run, apart from the objective.

    Two runs with the same identity draw the same points.

    Attributes
    ----------
    space, algorithm
        As `knobless.space.codec` and `knobless.core.description` describe them.
    noisy_algorithm
        Likewise, the algorithm to change to if the objective is found to be noisy; None if that is
        not tested.
    constrained_algorithm
        Likewise, the algorithm to change to if many evaluations have a violation.
    direction : str
        "minimize" or "maximize".
    objectives : list or None
        For several objectives, pairs of a name and "min" or "max", in the order of the values.
    batch : int
        Evaluations that run at once.
    deterministic : bool or None
        Whether the objective is deterministic; None if that was not stated.
    x0 : str or None
        The packed initial points, in hexadecimal.
    constraints : list of str
        Names of the constraints.
    fixed : dict
        Codes of the fixed columns by their names.
    rng : dict
        The seed, if there is one, and the random streams at the start of the run.
    """

    space: Any
    direction: str
    objectives: list[list[str]] | None
    batch: int
    deterministic: bool | None
    x0: str | None
    constraints: list[str]
    fixed: dict[str, float]
    algorithm: Any
    noisy_algorithm: Any
    constrained_algorithm: Any
    rng: dict[str, Any]

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Identity:
        """Return the identity that `data` describes; ValueError if it is none."""
        for name, kind in KINDS.items():
            value = data.get(name)
            if not isinstance(value, kind) or (
                kind is int and isinstance(value, bool)
            ):
                raise ValueError(
                    f"{name}: expected {getattr(kind, '__name__', kind)}, got {value!r:.100}"
                )
        if data["direction"] not in ("minimize", "maximize"):
            raise ValueError(
                f"direction: expected minimize or maximize, got {data['direction']!r:.100}"
            )
        if data["batch"] < 1:
            raise ValueError(
                f"batch: expected an integer of at least 1, got {data['batch']!r:.100}"
            )
        if not _are_objectives(data["objectives"]):
            raise ValueError(
                "objectives: expected pairs of a name and min or max, got "
                f"{data['objectives']!r:.100}"
            )
        return cls(**{name: data.get(name) for name in cls._fields})  # type: ignore[arg-type]

    def data(self) -> dict[str, Any]:
        """Return plain data for a file."""
        return self._asdict()

    @property
    def is_recommended(self) -> bool:
        """Whether the algorithm was not given by the user and may change during the run."""
        return (
            self.noisy_algorithm is not None
            or self.constrained_algorithm is not None
        )

    @property
    def sign(self) -> float:
        """The factor with which objective values are minimized."""
        return -1.0 if self.direction == "maximize" else 1.0

    @property
    def directions(self) -> dict[str, str]:
        """For several objectives, "min" or "max" by their names, in the order of the values.

        Empty for a single one.
        """
        return dict(self.objectives or ())

    @property
    def seed(self) -> Any:
        """The seed of the run; None if it was started from a generator."""
        return self.rng.get("seed")

    def difference(
        self, other: Identity, source: str = "journal"
    ) -> str | None:
        """Describe the first difference between this identity and that of a run.

        `source` is where this identity was read from.
        """
        for name, recorded, current in zip(
            self._fields, self, other, strict=True
        ):
            differs = (
                _rng_difference(recorded, current, source)
                if name == "rng"
                else difference(recorded, current, name, source)
            )
            if differs:
                return differs
        return None


def _are_objectives(data: Any) -> bool:
    """Return whether data describe objectives with different names; None describes a single one."""
    if data is None:
        return True
    pairs = all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in data
    )
    return (
        pairs
        and all(pair[1] in ("min", "max") for pair in data)
        and len({pair[0] for pair in data}) == len(data)
    )


def _rng_difference(
    recorded: dict[str, Any], current: dict[str, Any], source: str
) -> str | None:
    """Describe how two random streams differ: by their seeds, if both are known."""
    if (
        difference(
            recorded | {"seed": None}, current | {"seed": None}, "rng", source
        )
        is None
    ):
        return None
    hint = f"(without a seed, that of the {source} is used)"
    seeds = recorded.get("seed"), current.get("seed")
    if None in seeds or seeds[0] == seeds[1]:
        return (
            f"rng: {source} has another generator or another state of it {hint}"
        )
    return f"rng: {source} has the seed {seeds[0]}, got {seeds[1]} {hint}"
