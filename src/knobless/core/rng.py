"""The counter-based random numbers of all engines: SplitMix64 with a 64-bit key.

Word number c of a stream is a fixed function of the key and c. The state of a stream is therefore
two integers, and NumPy, compiled code and torch all compute the same numbers.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .types import Indices, Words

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
MIX = ((np.uint64(30), FIRST), (np.uint64(27), SECOND))
LAST = np.uint64(31)
ALL = 2**64 - 1
# Words computed at once, at most and at first: a NumPy call takes as long as several hundred words,
# for any number.
BLOCK = 16384
FIRST_BLOCK = 1024

LongWords = NDArray[np.uint64]

OFFSETS = np.arange(1, BLOCK + 1, dtype=np.uint64) * GOLDEN


def generator_of(rng: Any) -> np.random.Generator:
    """Return the NumPy generator of a seed, or `rng` itself if it is a generator.

    An error names the argument.
    """
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"rng: expected a seed or a numpy.random.Generator, got {rng!r}"
        ) from None


def keys(rng: Any, size: int) -> list[int]:
    """Return keys drawn from a seed or a NumPy generator."""
    drawn: list[int] = (
        generator_of(rng).integers(2**64, size=size, dtype=np.uint64).tolist()
    )
    return drawn


class Stream:
    """A stream of random 64-bit words; drawing advances its counter.

    Parameters
    ----------
    key : int
        Which stream, from 0 to 2⁶⁴ − 1.
    count : int, default 0
        Words drawn already.
    """

    __slots__ = ("_buffer", "_first", "_halves", "count", "key")

    def __init__(self, key: int, count: int = 0) -> None:
        self.key = key
        self.count = count
        self._first = count  # number of the first word in the buffer
        self._buffer = OFFSETS[:0]
        self._halves = self._buffer.view(np.uint32)  # the same numbers

    @classmethod
    def of(cls, rng: Any) -> Self:
        """Return `rng` itself if it is a stream, else a stream.

        Its key is the first word of the NumPy generator that the seed or the generator gives.
        """
        return rng if isinstance(rng, cls) else cls(keys(rng, 1)[0])

    def words(self, size: int) -> LongWords:
        """Return the next `size` words, read-only."""
        begin = self._advance(size)
        return self._buffer[begin : begin + size]

    def _advance(self, size: int) -> int:
        """Advance the counter; return where the next `size` words begin in the buffer."""
        begin = self.count - self._first
        if begin + size > len(self._buffer):
            unused = self._buffer[begin:]
            # Twice as many as before: a short run does not need a whole block.
            self._buffer = np.empty(
                max(size, min(BLOCK, max(FIRST_BLOCK, 2 * len(self._buffer)))),
                dtype=np.uint64,
            )
            self._buffer[: len(unused)] = unused
            _fill(
                self._buffer[len(unused) :], self.key, self.count + len(unused)
            )
            self._buffer.flags.writeable = False
            self._halves = self._buffer.view(np.uint32)
            self._first = self.count
            begin = 0
        self.count += size
        return begin

    def uniforms(self, size: int, words: int) -> Words:
        """Return `size` rows of `words` uniform 32-bit integers.

        Every row takes whole 64-bit words, so that four rows drawn twice are eight rows drawn once.
        32 bits are exact enough (a probability is off by at most 2⁻³²) and cost half of what
        doubles do.
        """
        # 64-bit words per row, two uniforms each
        half = (words + 1) // 2
        begin = 2 * self._advance(size * half)
        return self._halves[begin : begin + 2 * size * half].reshape(
            size, 2 * half
        )[:, :words]

    def skip(self, size: int, words: int) -> None:
        """Advance as `uniforms` does, without computing the numbers."""
        self.count += size * ((words + 1) // 2)

    def below(self, n: int) -> int:
        """Return an integer from 0 to n − 1, for n below 2³².

        Python integers are faster than NumPy for a single number.
        """
        return (self.word() >> 32) * n >> 32

    def word(self) -> int:
        """Return the next word as an integer."""
        self.count += 1
        # SplitMix64: state = key + count · golden ratio, then the finalizer of MurmurHash3
        z = (self.count * int(GOLDEN) + self.key) & ALL
        z = ((z ^ (z >> 30)) * int(FIRST)) & ALL
        z = ((z ^ (z >> 27)) * int(SECOND)) & ALL
        return z ^ (z >> 31)

    def permutation(self, n: int) -> Indices:
        """Return 0 to n − 1 in random order."""
        return self.words(n).argsort(kind="stable")

    def generator(self) -> np.random.Generator:
        """Return a NumPy generator that is seeded with the next word, for custom algorithms."""
        return np.random.default_rng(self.word())


# What is accepted; `Stream.of` makes a stream of it
RNG = Stream | np.random.Generator


def uniforms(rng: RNG, size: int, words: int) -> Words:
    """Return `Stream.uniforms` of a stream, or of the stream of a NumPy generator."""
    return (rng if isinstance(rng, Stream) else Stream.of(rng)).uniforms(
        size, words
    )


def unit_interval(u: Words) -> NDArray[np.float64]:
    """Return uniform numbers from 0 to 1 for uniform 32-bit integers."""
    return np.ldexp(u.astype(float), -32)


def first_uniforms(key: int, size: int, words: int) -> Words:
    """Return `Stream(key).uniforms(size, words)` without a buffer for more, which takes longer."""
    half = (words + 1) // 2
    drawn = np.empty(size * half, dtype=np.uint64)
    _fill(drawn, key, 0)
    return drawn.reshape(size, half).view(np.uint32)[:, :words]


def _fill(out: LongWords, key: int, count: int) -> None:
    """Write the words that follow the first `count`.

    They are computed in blocks, which stay in the cache of the processor.
    """
    shifted = np.empty(min(len(out), BLOCK), dtype=np.uint64)
    for begin in range(0, len(out), BLOCK):
        z = out[begin : begin + BLOCK]
        s = shifted[: len(z)]
        np.add(
            OFFSETS[: len(z)],
            np.uint64((key + (count + begin) * int(GOLDEN)) & ALL),
            out=z,
        )
        for shift, factor in MIX:
            np.right_shift(z, shift, out=s)
            np.bitwise_xor(z, s, out=z)
            np.multiply(z, factor, out=z)
        np.right_shift(z, LAST, out=s)
        np.bitwise_xor(z, s, out=z)
