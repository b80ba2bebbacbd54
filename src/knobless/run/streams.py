"""The random stream of a run: the only place in which it is made, stored and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from knobless.core.description import stream_data, stream_of
from knobless.core.rng import Stream, generator_of, keys


@dataclass(slots=True)
class Streams:
    """`main` draws all candidates, in the order of their ids."""

    seed: Any  # None if the run was started from a generator
    main: Stream

    @classmethod
    def of(cls, rng: Any) -> Self:
        """Return the stream of a seed or a generator."""
        generator = generator_of(rng)
        is_numpy = isinstance(
            rng, (np.random.Generator, np.random.BitGenerator)
        )
        (main,) = keys(generator, 1)
        return cls(None if is_numpy else _entropy(generator), Stream(main))

    @classmethod
    def from_data(cls, start: Any, current: Any = None) -> Self:
        """Return the stream of an identity at the start of the run, or in the state `now`.

        ValueError if invalid.
        """
        if not isinstance(start, dict):
            raise ValueError("rng: expected a random stream")
        return cls(
            start.get("seed"),
            stream_of((start if current is None else current)["main"]),
        )

    def identity(self) -> dict[str, Any]:
        """Return the seed and the stream at the start of the run."""
        return {"seed": self.seed, "main": stream_data(Stream(self.main.key))}

    def data(self) -> dict[str, Any]:
        """Return the stream at present."""
        return {"main": stream_data(self.main)}


def _entropy(rng: np.random.Generator) -> Any:
    """Return what the generator was seeded with, for people to read and to seed another with."""
    entropy = getattr(rng.bit_generator.seed_seq, "entropy", None)
    if isinstance(entropy, (np.ndarray, list, tuple)):
        return np.asarray(entropy).tolist()
    return entropy
