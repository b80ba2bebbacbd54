"""The random streams of a run: the only place in which generators are made, stored and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from knobless.space.codec import bit_generator_data, generator_of


@dataclass(slots=True)
class Streams:
    """`main` draws the λ samples of each iteration, `spare` the candidates beyond them.

    So the iterations of a seed do not depend on how many more candidates were asked for.
    """

    seed: Any  # None if the run was started from a generator
    main: np.random.Generator
    spare: np.random.Generator
    start: tuple[Any, Any]  # the states of both before anything was drawn

    @classmethod
    def of(cls, rng: Any) -> Self:
        """Return the streams of a seed or a generator."""
        try:
            main = np.random.default_rng(rng)
        except (TypeError, ValueError) as error:
            raise type(error)(f"rng: expected a seed or a numpy.random.Generator, got {rng!r}") from None
        try:
            spare = main.spawn(1)[0]
        except TypeError:  # a generator without a seed sequence
            spare = np.random.default_rng(main.integers(2**63))
        seed = None if isinstance(rng, (np.random.Generator, np.random.BitGenerator)) else _entropy(main)
        return cls(seed, main, spare, (main.bit_generator.state, spare.bit_generator.state))

    @classmethod
    def from_data(cls, start: Any, now: Any = None) -> Self:
        """Return the streams of an identity at the start of the run, or in the state `now`; ValueError if invalid."""
        if not isinstance(start, dict):
            raise ValueError("rng: expected the states of two generators")
        first = [generator_of(start[name]) for name in ("main", "spare")]
        main, spare = first if now is None else [generator_of(now[name]) for name in ("main", "spare")]
        return cls(start.get("seed"), main, spare, (first[0].bit_generator.state, first[1].bit_generator.state))

    def identity(self) -> dict[str, Any]:
        """Return the seed and the states at the start of the run."""
        main, spare = self.start
        return {"seed": self.seed, "main": bit_generator_data(main), "spare": bit_generator_data(spare)}

    def data(self) -> dict[str, Any]:
        """Return the states at present."""
        main, spare = self.main.bit_generator.state, self.spare.bit_generator.state
        return {"main": bit_generator_data(main), "spare": bit_generator_data(spare)}


def _entropy(rng: np.random.Generator) -> Any:
    """Return what the generator was seeded with, for people to read and to seed another with."""
    entropy = getattr(rng.bit_generator.seed_seq, "entropy", None)
    return np.asarray(entropy).tolist() if isinstance(entropy, (np.ndarray, list, tuple)) else entropy
