"""The random streams of a run: the only place in which they are made, stored and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from knobless.core.description import stream_data, stream_of
from knobless.core.rng import Stream, generator_of, keys


@dataclass(slots=True)
class Streams:
    """`main` draws the λ samples of each iteration, `spare` the candidates beyond them.

    So the iterations of a seed do not depend on how many more candidates were asked for.
    """

    seed: Any  # None if the run was started from a generator
    main: Stream
    spare: Stream

    @classmethod
    def of(cls, rng: Any) -> Self:
        """Return the streams of a seed or a generator."""
        generator = generator_of(rng)
        given = isinstance(rng, (np.random.Generator, np.random.BitGenerator))
        main, spare = keys(generator, 2)
        return cls(None if given else _entropy(generator), Stream(main), Stream(spare))

    @classmethod
    def from_data(cls, start: Any, now: Any = None) -> Self:
        """Return the streams of an identity at the start of the run, or in the state `now`; ValueError if invalid."""
        if not isinstance(start, dict):
            raise ValueError("rng: expected two random streams")
        main, spare = (stream_of((start if now is None else now)[name]) for name in ("main", "spare"))
        return cls(start.get("seed"), main, spare)

    def identity(self) -> dict[str, Any]:
        """Return the seed and the streams at the start of the run."""
        main, spare = (stream_data(Stream(each.key)) for each in (self.main, self.spare))
        return {"seed": self.seed, "main": main, "spare": spare}

    def data(self) -> dict[str, Any]:
        """Return the streams at present."""
        return {"main": stream_data(self.main), "spare": stream_data(self.spare)}


def _entropy(rng: np.random.Generator) -> Any:
    """Return what the generator was seeded with, for people to read and to seed another with."""
    entropy = getattr(rng.bit_generator.seed_seq, "entropy", None)
    return np.asarray(entropy).tolist() if isinstance(entropy, (np.ndarray, list, tuple)) else entropy
